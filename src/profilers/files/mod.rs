//! `files`: which files are slow, who uses them, and whether the time goes to the disk.
//!
//! Events: `raw_syscalls:sys_enter` and `raw_syscalls:sys_exit`, period 1, on the tasks of the run, with the kernel's filter
//! for calls about files. The events of the single calls would cost others less, but they are 90 pairs on each CPU. Of
//! the page cache, those that fire where a read misses or a writer waits. Cost: two records per call, of 128 and 88
//! bytes, and a copy of each path by a BPF program.
//!
//! `operations` knows the calls, `pairs` declares their pairs; `descriptors` follows which file each descriptor is open
//! on, `names` finds paths and file systems; `earlier` has calls since before the run, `cache` the events of the page
//! cache, `slow` the lines, `table` the tables.

mod cache;
mod descriptors;
mod earlier;
mod names;
mod operations;
mod pairs;
mod slow;
mod table;

use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::calls::{
    CallEvents, CallInFlight, CallNumber, CallPaths, CallingThread, EndedCall, PathOfCall, WantedCalls,
    calls_with_strings,
};
use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::file::InodeKey;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::files::cache::{CacheEvents, CacheStep};
use crate::profilers::files::descriptors::Descriptors;
use crate::profilers::files::earlier::EarlierFileCalls;
use crate::profilers::files::names::{CalledFiles, FileKind, FileNumber, NamedFile};
use crate::profilers::files::operations::{DescriptorEffect, FileArgument, FileCallUse, FileCalls, FileOperation};
use crate::profilers::files::pairs::{FileCall, FileCallPairs, FileUser, OperationOf, OperationSums, merge};
use crate::profilers::files::slow::SlowFileCalls;
use crate::profilers::files::table::{
    CALLS, FILES, FileOrder, FileRow, FileSum, OPEN, OpenFileRow, OperationRow, PROCESSES, SLOW, directory_of, failure,
    file_system_of,
};
use crate::relation::{EventMoment, OpenStart, PairEnd, PairOutcome, PairSums, Relation, RelationTerms};
use crate::report::{OccurrenceLayout, TableSchema, TaskNames, TaskOfRow};
use crate::sched::TaskEvent;
use crate::stats::{Began, KeyedSums, TaskKey};
use crate::symbol::StackId;
use crate::task::file_reader::FileSystem;

/// Which files are slow, who uses them, and whether their time goes to the disk
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "filetop",
    after_help = "\
Examples:
  Which files take the time of calls, and whose:
    perf-prof files -i 1000
  Slow calls, each with its file and where the time went:
    perf-prof files --than 10ms
  Which files fail to open, and for whom:
    perf-prof files --sort errors -i 1000
  What one service does to its files, by directory:
    perf-prof files -p postgres --by directory --for 10
  Whether calls hang on a file server:
    perf-prof files --by filesystem -i 1000

Files that are opened by path have the path that the program gave; what other
descriptors are open on /proc tells. Pipes and sockets are left out: `syscalls`
has their calls."
)]
pub struct FilesArgs {
    #[command(flatten)]
    lengths: LatencyArgs,
    /// Also pages read and faults of mappings: a record for each page that is added
    #[arg(long)]
    cache: bool,
    /// Without the paths that calls are given: nothing is copied, and files are known by descriptor only
    #[arg(long)]
    no_paths: bool,
    /// What has a row in the table of files
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FileGrouping::File)]
    by: FileGrouping,
    /// Which rows come first: those with most of this
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FileOrder::Time)]
    sort: FileOrder,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FileGrouping {
    File,
    Directory,
    #[value(name = "filesystem")]
    FileSystem,
}

impl ProfilerArgs for FilesArgs {
    const NAME: &'static str = "files";
    const TABLES: &'static [&'static dyn TableSchema] = &[&FILES, &PROCESSES, &CALLS, &OPEN];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SLOW.layout());
    const WEIGHT: &'static str = "us";

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Files::new(self)))
    }
}

/// Most pairs of a file and a process in an interval.
const MAX_USERS: usize = 20_000;

/// The profiler behind [`FilesArgs`].
#[derive(Debug)]
struct Files {
    args: FilesArgs,
    calls: FileCalls,
    events: Option<CallEvents>,
    paths: Option<CallPaths>,
    relation: Relation<FileCallPairs>,
    descriptors: Descriptors,
    names: CalledFiles,
    users: KeyedSums<FileUser, FileSum>,
    slow: Option<SlowFileCalls>,
    cache: CacheEvents,
    earlier: EarlierFileCalls,
    misses_cpus: bool,
}

impl Files {
    fn new(args: FilesArgs) -> Files {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation =
            Relation::new(FileCallPairs, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (calls, users) = (FileCalls::known(), KeyedSums::new(MAX_USERS));
        let (events, paths, slow, cache, misses_cpus) = Default::default();
        let (descriptors, names, earlier) = Default::default();
        Files { args, calls, events, paths, relation, descriptors, names, users, slow, cache, earlier, misses_cpus }
    }

    fn entered(&mut self, id: i64, args: [u64; 6], sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let call = CallNumber::new(id, sample.is_compat());
        let Some(used) = self.calls.of(call) else { return Use::Ignored };
        self.earlier.entered(sample.tid);
        let [a, b, c, d, ..] = args;
        let file = self.file_of(used, call, args, sample);
        let (pid, fd) = (sample.pid, a as i32);
        let is_direct = self.descriptors.is_direct(pid, fd);
        let own = FileCall { call, used, file, args: [a, b, c, d], is_direct, misses: false, faulted: None };
        match used.effect {
            DescriptorEffect::Closes => self.descriptors.closed(pid, fd, &mut self.names),
            // With the flag CLOSE_RANGE_CLOEXEC, 4, they are closed later.
            DescriptorEffect::ClosesRange if c & 4 == 0 => {
                let closes = |fd: i32, _| u64::try_from(fd).is_ok_and(|fd| (a..=b).contains(&fd));
                self.descriptors.closed_where(pid, closes, &mut self.names);
            }
            DescriptorEffect::Moves => self.descriptors.moves(pid, fd),
            _ => {}
        }
        if used.operation.is_some()
            && let Some(slow) = &mut self.slow
        {
            slow.clocks.entered(TaskEvent::unnamed(sample.time, sample.cpu, sample.tid), args);
        }
        let stack = if used.operation.is_some() { ctx.stack(sample) } else { None };
        let comm = ctx.tasks.comm(sample.tid);
        self.relation.start(CallingThread(sample.tid), EventMoment::of(sample), comm, stack, own);
        Use::Relevant
    }

    /// The file that a call is about.
    fn file_of(&mut self, used: FileCallUse, call: CallNumber, args: [u64; 6], sample: &Sample<'_>) -> FileNumber {
        let Files { paths, descriptors, names, .. } = self;
        let (pid, tid) = (sample.pid, sample.tid);
        if let Some(paths) = paths {
            paths.entered(call, sample);
        }
        let index = match used.file {
            FileArgument::Descriptor(index) if used.operation.is_some() => index,
            FileArgument::Descriptor(_) => return FileNumber::OTHERS,
            FileArgument::Path => {
                let [path, _] = paths.as_mut().map_or_else(Default::default, |paths| paths.ended(tid, call));
                return match path {
                    // With AT_EMPTY_PATH it is the file of the descriptor.
                    PathOfCall::Read { text, .. } if text.is_empty() => {
                        descriptors.file(pid, tid, args[0] as i32, names)
                    }
                    PathOfCall::Read { text, directory } => {
                        let directory = directory.map(|fd| descriptors.file(pid, tid, fd, names));
                        names.by_path(tid, directory, &text)
                    }
                    _ => FileNumber::UNREAD,
                };
            }
        };
        descriptors.file(pid, tid, args[usize::from(index)] as i32, names)
    }

    fn exited(&mut self, ended: EndedCall, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Some(used) = self.calls.of(ended.call) else { return Use::Ignored };
        let key = CallingThread(sample.tid);
        let kind = self.relation.get(key).and_then(|start| self.names.kind(start.open.own.file));
        let end = PairEnd { moment: EventMoment::of(sample), own: (ended, kind) };
        match self.relation.end(key, &end, ctx) {
            PairOutcome::Ended(start) => {
                let start = *start;
                self.ended(&start, ended.ret, sample, ctx);
            }
            PairOutcome::NoStart | PairOutcome::Unfit => {
                self.earlier.forget(sample.tid);
                self.relation.rows.sum(OperationOf { operation: used.operation, untold: None }).no_start += 1;
            }
            PairOutcome::Doubtful => {}
        }
        Use::Relevant
    }

    fn ended(&mut self, start: &OpenStart<FileCall>, ret: i64, sample: &Sample<'_>, ctx: &mut Context) {
        let OpenStart { since, open } = start;
        let own = open.own;
        let offset = self.apply(&own, ret, sample);
        let Some(operation) = own.used.operation else { return };
        let ns = sample.time.saturating_sub(*since);
        let sum = self.users.sum(FileUser::of(own.file, open.comm, sample, ctx));
        sum.calls[operation as usize] += 1;
        sum.spent_ns[operation as usize] += ns;
        let bytes = own.bytes(ret);
        match operation {
            FileOperation::Read => sum.read_bytes += bytes.unwrap_or(0),
            FileOperation::Write => sum.written_bytes += bytes.unwrap_or(0),
            _ => {}
        }
        sum.errors += u64::from(failure(ret).is_some());
        sum.longest_ns = sum.longest_ns.max(Some(ns));
        let is_cached = operation == FileOperation::Read && !own.is_direct && bytes.is_some_and(|bytes| bytes > 0);
        if is_cached && self.cache.tell_misses() {
            *(if own.misses { &mut sum.cache.misses } else { &mut sum.cache.hits }) += 1;
        }
        if let Some(slow) = &mut self.slow {
            slow.ended(start, &own, (ret, offset), sample, &self.names, ctx);
        }
    }

    /// An event tells of the page cache: about the file of the call that the task is in, or about a mapping.
    fn cached(&mut self, step: CacheStep, inode: Option<InodeKey>, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Files { relation, names, cache, users, .. } = self;
        let key = CallingThread(sample.tid);
        let call = relation.get(key).map(|start| start.open.own);
        let call = call.filter(|call| call.used.operation.is_some());
        let reads = call.is_some_and(|call| call.used.operation == Some(FileOperation::Read));
        // During a write pages are added for the new bytes, and a page that is missing is of the memory that is written.
        let is_faulted = call.is_some_and(|call| call.faulted.is_some() && call.faulted == inode);
        let of_call = call.filter(|_| match step {
            CacheStep::HeldBack(_) | CacheStep::AwaitsWriteback => true,
            CacheStep::Misses | CacheStep::Adds(_) => reads && !is_faulted,
            CacheStep::Faults => false,
        });
        let file = match (of_call, inode) {
            (Some(call), Some(inode)) => {
                names.is_inode(call.file, inode);
                if cache.is_miss(step) && !call.misses {
                    relation.move_start(key, key, |start| start.own.misses = true);
                }
                call.file
            }
            (Some(call), None) => call.file,
            (None, Some(inode)) if matches!(step, CacheStep::Adds(_)) && !is_faulted && call.is_some() => {
                call.into_iter().for_each(|call| names.is_inode(call.file, inode));
                return Use::Ignored;
            }
            (None, Some(inode)) => {
                if step == CacheStep::Faults && call.is_some() {
                    relation.move_start(key, key, |start| start.own.faulted = Some(inode));
                }
                names.by_inode(sample.tid, inode, sample.time)
            }
            (None, None) => return Use::Ignored,
        };
        let comm = ctx.tasks.comm(sample.tid);
        let sum = &mut users.sum(FileUser::of(file, comm, sample, ctx)).cache;
        match step {
            CacheStep::Misses => {}
            CacheStep::Adds(pages) => sum.pages_read += pages,
            CacheStep::Faults => sum.faults += 1,
            CacheStep::HeldBack(ns) => {
                sum.held_back += u64::from(ns > 0);
                sum.held_back_ns = Some(sum.held_back_ns.unwrap_or(0) + ns).filter(|ns| *ns > 0);
            }
            CacheStep::AwaitsWriteback => sum.writeback_waits += 1,
        }
        Use::Relevant
    }

    /// Follows what a call has done to descriptors. Returns the position in the file at which the call began.
    fn apply(&mut self, call: &FileCall, ret: i64, sample: &Sample<'_>) -> Option<u64> {
        let Files { descriptors, names, .. } = self;
        let (pid, tid, fd) = (sample.pid, sample.tid, call.args[0] as i32);
        if call.used.effect == DescriptorEffect::Moves {
            return descriptors.moved(pid, fd, u64::try_from(ret).unwrap_or(0));
        }
        let Ok(returned) = u64::try_from(ret) else { return None };
        let new = returned as i32;
        match call.used.effect {
            DescriptorEffect::Opens { flags } => {
                let flags = flags.map(|index| call.arg(index) as i32);
                let is_read = call.file != FileNumber::UNREAD;
                let file = if is_read { call.file } else { names.by_descriptor(tid, new) };
                descriptors.opened(pid, new, file, flags);
            }
            DescriptorEffect::Duplicates => descriptors.duplicated(pid, fd, new, false, names),
            DescriptorEffect::DuplicatesTo => {
                let closes_on_exec = call.arg(2) as i32 & libc::O_CLOEXEC != 0;
                let is_dup3 = i64::from(call.call.number) == libc::SYS_dup3;
                descriptors.duplicated(pid, fd, new, is_dup3 && closes_on_exec, names);
            }
            DescriptorEffect::Controls => match call.arg(1) as i32 {
                libc::F_DUPFD => descriptors.duplicated(pid, fd, new, false, names),
                libc::F_DUPFD_CLOEXEC => descriptors.duplicated(pid, fd, new, true, names),
                libc::F_SETFD => {
                    descriptors.set_closes_on_exec(pid, fd, call.arg(2) as i32 & libc::FD_CLOEXEC != 0);
                }
                libc::F_SETFL => descriptors.set_direct(pid, fd, call.arg(2) as i32 & libc::O_DIRECT != 0),
                _ => {}
            },
            DescriptorEffect::ChangesDirectory => {
                let is_known = call.used.file == FileArgument::Path && call.file != FileNumber::UNREAD;
                descriptors.changed_directory(pid, is_known.then_some(call.file), names);
            }
            DescriptorEffect::Seeks => descriptors.seeked(pid, fd, Some(returned)),
            _ => {}
        }
        call.used.offset.map(|index| call.arg(index))
    }

    fn look_for_earlier(&mut self, now: Timestamp, ctx: &mut Context) {
        let Files { earlier, relation, calls, descriptors, names, .. } = self;
        if earlier.is_due(now) {
            relation.forget_doubtful();
        }
        let is_open = |tid| relation.since(CallingThread(tid)).is_some();
        earlier.look(now, (calls, is_open), descriptors, names, ctx);
    }

    /// The rows of calls in progress.
    fn open_calls(&self, now: Timestamp) -> Vec<OpenFileRow> {
        let seen = self.relation.iter().map(|(key, start)| {
            let (open, FileCall { call, used, file, .. }) = (start.open, start.open.own);
            (key.0, start.since, open.pid, open.comm, call, used, file, Began::Exactly)
        });
        let earlier = self.earlier.iter().filter_map(|(tid, start, file)| {
            let (open, CallInFlight { call, began }) = (start.open, start.open.own);
            Some((tid, start.since, open.pid, open.comm, call, self.calls.of(call)?, file, began))
        });
        let is_shown =
            |used: FileCallUse, file| used.operation.is_some() && self.names.kind(file) == Some(FileKind::Path);
        let rows = seen.chain(earlier).filter(|(.., used, file, _)| is_shown(*used, *file));
        rows.map(|(tid, since, pid, comm, call, _, file, began)| {
            let (file, age_ns) = (self.names.name(file), Some(now.saturating_sub(since)));
            OpenFileRow { call, file, pid, tid, comm, age_ns, began }
        })
        .collect()
    }

    fn on_task(&mut self, record: &Record<'_>) {
        let Files { descriptors, names, relation, slow, paths, earlier, .. } = self;
        match record {
            Record::Fork(task) if task.pid != task.ppid => descriptors.forked(task.ppid, task.pid, names),
            Record::Comm { pid, exec: true, .. } => {
                descriptors.closed_where(*pid, |_, closes_on_exec| closes_on_exec, names);
            }
            Record::Exit(task) => {
                earlier.forget(task.tid);
                relation.forget(CallingThread(task.tid));
                slow.iter_mut().for_each(|slow| slow.clocks.forget(task.tid));
                paths.iter_mut().for_each(|paths| paths.forget(task.tid));
                if task.pid == task.tid {
                    descriptors.exited(task.pid, names);
                }
            }
            _ => {}
        }
    }

    /// The rows of operations. Those of descriptors that are asked stay for the next interval, unless it `is_last`.
    fn operations(&mut self, now: Timestamp, is_last: bool) -> Vec<OperationRow> {
        let names = &self.names;
        let mut rows: FxHashMap<(FileOperation, bool), PairSums<OperationSums>> = FxHashMap::default();
        let mut kept = Vec::new();
        for (of, sums) in self.relation.rows.take() {
            let Some(operation) = of.operation else { continue };
            let is_unknown = match of.untold.map(|number| names.kind(number)) {
                Some(None) if !is_last => {
                    kept.push((of, sums));
                    continue;
                }
                Some(Some(FileKind::NoFile)) => continue,
                Some(Some(FileKind::Unknown) | None) => true,
                None | Some(Some(FileKind::Path)) => false,
            };
            merge(rows.entry((operation, is_unknown)).or_default(), &sums);
        }
        kept.into_iter().for_each(|(of, sums)| merge(self.relation.rows.sum(of), &sums));
        let waiting = self.relation.waiting_by(now, |_, start| {
            let FileCall { used, file, .. } = start.open.own;
            used.operation.filter(|_| names.kind(file) == Some(FileKind::Path))
        });
        for operation in waiting.keys().copied().flatten() {
            rows.entry((operation, false)).or_default();
        }
        let row = |((operation, is_unknown), sums): ((FileOperation, bool), PairSums<OperationSums>)| OperationRow {
            operation,
            is_unknown,
            latency: sums.latency,
            bytes: sums.own.bytes,
            errors: sums.own.errors,
            than: sums.than,
            no_start: sums.no_start,
            now: waiting.get(&Some(operation)).filter(|_| !is_unknown).map(|open| open.count),
        };
        rows.into_iter().map(row).collect()
    }

    /// The rows of files, and those of processes.
    fn rows(&mut self, is_last: bool) -> [Vec<FileRow>; 2] {
        let mut files: FxHashMap<FileNumber, FileRow> = FxHashMap::default();
        let mut processes: FxHashMap<TaskKey, FileSum> = FxHashMap::default();
        let sums: Vec<(FileUser, FileSum)> = self.users.drain().collect();
        for (user, mut sum) in sums {
            match self.names.kind(user.file) {
                None if !is_last => {
                    self.users.sum(user).add(&sum);
                    continue;
                }
                Some(FileKind::NoFile) => continue,
                _ => {}
            }
            if self.names.is_direct(user.file) || !self.names.name(user.file).has_page_cache() {
                (sum.cache.hits, sum.cache.misses) = (0, 0);
            }
            if sum == FileSum::default() {
                continue; // a page of a mapping was read, and faults are not counted
            }
            let FileUser { pid, comm, process, .. } = user;
            let users = TaskNames::of(TaskOfRow { pid: Some(pid), comm, process }, [sum.total_ns(), 1]);
            let row = files.entry(user.file).or_default();
            row.sum.add(&sum);
            row.users.merge(&users);
            processes.entry(TaskKey { pid, tid: 0, comm: process }).or_default().add(&sum);
        }
        let order = self.args.sort;
        let name = |number| match (self.args.by, self.names.name(number)) {
            (FileGrouping::File, file) => file,
            (FileGrouping::Directory, file) => directory_of(file),
            (FileGrouping::FileSystem, file) => file_system_of(file),
        };
        let files = one_row_each(files.into_iter().map(|(number, row)| (name(number), row)).collect(), order);
        let process = |(task, sum)| FileRow { order, task, sum, ..FileRow::default() };
        [files, processes.into_iter().map(process).collect()]
    }

    fn report(&mut self, now: Timestamp, is_last: bool, report: &mut Report) {
        let unpaired = self.relation.end_interval(now, report);
        let calls = self.operations(now, is_last);
        let [files, processes] = self.rows(is_last);
        let in_text = calls.iter().any(|row| row.than > 0) || !self.args.lengths.only_than();
        let verdict = unpaired.verdict(self.misses_cpus);
        let top = self.args.top as usize;
        report.delta(&FILES, files).judged(verdict).text_rows(top).in_text(in_text);
        report.delta(&PROCESSES, processes).judged(verdict).text_rows(top).in_text(in_text);
        report.delta(&CALLS, calls).judged(verdict).below(unpaired.in_words()).in_text(in_text);
        let open = self.open_calls(now);
        let any_open = !open.is_empty();
        report.snapshot(&OPEN, open).text_rows(top).in_text(in_text && any_open);
        unpaired.report(report);
        self.names.end_interval(self.descriptors.files());
    }
}

/// A row for each name: a file has several numbers if calls know it in several ways, and not each way tells its file
/// system.
#[expect(clippy::mutable_key_type, reason = "files are compared by their inode, not by what is known of its name")]
fn one_row_each(named: Vec<(NamedFile, FileRow)>, order: FileOrder) -> Vec<FileRow> {
    let told = named.iter().filter_map(|(file, _)| Some((file.path.clone()?, file.file_system.clone()?)));
    let told: FxHashMap<Arc<[u8]>, FileSystem> = told.collect();
    let mut rows: FxHashMap<NamedFile, FileRow> = FxHashMap::default();
    for (mut file, row) in named {
        if let (Some(path), None) = (&file.path, &file.file_system) {
            file.file_system = told.get(path).cloned();
        }
        let sum = rows.entry(file).or_default();
        sum.sum.add(&row.sum);
        sum.users.merge(&row.users);
    }
    rows.into_iter().map(|(file, row)| FileRow { order, file: Some(file), ..row }).collect()
}

impl Profiler for Files {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let wanted = WantedCalls { only_errors: false, paths: true, stacks: setup.stacks };
        let events = CallEvents::open(wanted, evlist, setup)?;
        self.slow = SlowFileCalls::open(self.args.lengths, self.args.common.stacks(), evlist, setup)?;
        if let Some((enter, _)) = events.enter.as_ref().filter(|_| !self.args.no_paths) {
            let calls = calls_with_strings(Some(&self.calls.list()), true, setup)?;
            self.paths = CallPaths::ask(*enter, &calls, evlist, setup)?;
        }
        self.events = Some(events);
        self.cache = CacheEvents::open(self.args.cache, evlist, setup)?;
        self.names = CalledFiles::start(setup.host)?;
        self.misses_cpus = setup.scope.cpus().is_some();
        match self.misses_cpus {
            true => setup.degrade_pairs(),
            false => self.earlier = EarlierFileCalls::start(&self.calls, setup)?,
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        if let Some(slow) = &self.slow {
            slow.sched.filter(evlist, setup)?;
        }
        let looks = self.earlier.thread();
        let own: Vec<i32> = self.names.threads().iter().copied().chain(looks).collect();
        let scope = setup.scope.clone().without(&own);
        let list = self.calls.list();
        self.events.as_ref().map_or(Ok(()), |events| events.filter(Some(&list), &scope, evlist, setup))
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(events) = &self.events else { return Ok(Use::Ignored) };
        if let Some((enter, fields)) = &events.enter
            && *enter == event
        {
            let (id, args) = (fields.id.read(sample.raw)?.cast_signed(), fields.args(sample.raw)?);
            return Ok(self.entered(id, args, sample, ctx));
        }
        if event == events.exit {
            let fields = events.exited;
            let (id, ret) = (fields.id.read(sample.raw)?.cast_signed(), fields.ret.read(sample.raw)?.cast_signed());
            return Ok(self.exited(EndedCall::of(id, sample.is_compat(), ret), sample, ctx));
        }
        if let Some((step, inode)) = self.cache.read(event, sample)? {
            let is_own = ctx.scope.is_own(sample.tid) || self.names.asks(sample.tid);
            return Ok(if is_own { Use::Ignored } else { self.cached(step, inode, sample, ctx) });
        }
        let is_path = self.paths.as_mut().is_some_and(|paths| paths.take(event, sample));
        if let Some(slow) = self.slow.as_mut().filter(|_| !is_path) {
            slow.sched.sample(event, sample, &mut slow.clocks, ctx)?;
        }
        Ok(Use::Ignored)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let is_urgent = self.names.tick(now);
        self.look_for_earlier(now, ctx);
        let due = self.relation.tick(now, ctx);
        if let Some(slow) = &mut self.slow {
            slow.show_open(&due, now, &self.names);
            slow.show_named(&self.names, false, ctx);
        }
        TickOutcome { is_urgent, ..TickOutcome::default() }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match &event {
            Event::Started { now } => self.look_for_earlier(*now, ctx),
            Event::Task { record, .. } => self.on_task(record),
            Event::TookOver { old, pid, .. } => {
                self.relation.forget(CallingThread(*old));
                self.slow.iter_mut().for_each(|slow| slow.clocks.took_over(*old, *pid));
            }
            Event::SwitchIn { tid, time, cpu, .. } => {
                self.slow.iter_mut().for_each(|slow| slow.clocks.came(TaskEvent::unnamed(*time, *cpu, *tid)));
            }
            Event::Lost(window, kinds) => {
                self.slow.iter_mut().for_each(|slow| slow.clocks.lost(window.end_ns));
                // Only scheduler records may be lost: calls are still known.
                if !self.events.as_ref().is_some_and(|events| kinds.include(&events.of_calls())) {
                    return;
                }
                self.earlier.lost(window.end_ns);
                self.paths.iter_mut().for_each(|paths| paths.lost(window.cpu));
                self.descriptors.clear();
            }
            Event::LostSide(_) => self.descriptors.clear(),
            Event::Stopped { now } => {
                self.names.settle(*now);
                let due = self.relation.open_lines_at_end(*now, ctx);
                if let Some(slow) = &mut self.slow {
                    slow.show_open(&due, *now, &self.names);
                    slow.show_named(&self.names, true, ctx);
                }
            }
            _ => {}
        }
        self.relation.on(&event, ctx);
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.report(now, false, report);
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.names.settle(now);
        self.report(now, true, report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.slow.iter().flat_map(SlowFileCalls::stacks));
    }
}
