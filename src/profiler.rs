//! What a profiler is: its calls, and what it is given in each of them; `samples` is how it is given many at once. `probes`
//! defines what `kprobe:` and `uprobe:` select, `code` finds the files and bytes of the latter, `inherited` has children of the
//! target seen by them. `filters` says in the kernel's language which tasks are asked for, `hits` what probes in programs cost
//! these; `bare` what a name without its system stands for.

mod args;
mod bare;
pub mod code;
pub mod filters;
pub mod hits;
mod inherited;
pub mod probes;
mod samples;

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashSet;

use crate::cli::usage;
use crate::event::Head;
use crate::host::Host;
use crate::output::{LostSpan, Output};
use crate::perf::evlist::{Counted, Evlist};
use crate::perf::evsel::{EventId, Evsel};
use crate::perf::no_tracefs::{Lockdown, NoTracefs, unreadable};
use crate::perf::record::Innermost;
use crate::perf::refusal::{Reason, Refused};
use crate::perf::target::{Target, Tasks};
use crate::perf::{Attr, Record, Sample};
use crate::profiler::code::Spot;
pub use crate::report::Report;
use crate::report::{Command, Kin, Shape, Subject, Value};
use crate::stats::weights::{StackWeights, Weighted};
use crate::symbol::{SpaceKeys, StackId, Stacks};
use crate::sys::mount::{PrivateTracefs, private_tracefs};
use crate::sys::mounts::mounts;
use crate::task::{Ancestor, Comm, TaskTable, Watched, procfs};
use crate::tep::EventError;
use crate::tep::filter::FilterError;
use crate::tep::format::Format;
use crate::tep::probe::Probes;
use crate::tep::tracefs::{Tracefs, USUAL, mount_points};

pub use args::{ProfilerArgs, Trial};
pub use samples::{Samples, Use};

/// ns, CLOCK_MONOTONIC.
pub type Timestamp = u64;

/// Records of one CPU are missing: every pair that was open before `end_ns` and closes after `start_ns` may be wrong.
pub type LostWindow = LostSpan;

/// One subcommand: which events it needs, what it makes of their samples, and what it reports.
pub trait Profiler {
    /// Adds the events, with their attributes and binding.
    ///
    /// # Errors
    /// An event or field that this kernel lacks; options that contradict each other.
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup) -> Result<()>;

    /// Sets what the kernel may drop before it costs a record.
    ///
    /// # Errors
    /// A filter that does not fit the event.
    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup) -> Result<()> {
        let _ = (evlist, setup);
        Ok(())
    }

    /// Takes one sample: the hot path. No text, no symbols, no look-up by name.
    ///
    /// # Errors
    /// A record without its fields; it is counted, and the run goes on.
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()>;

    /// Takes samples that follow each other. Here they come to `sample` one by one, without a virtual call for each.
    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        samples.each(ctx, |event, sample, ctx| self.sample(event, sample, ctx));
    }

    /// Reports an interval and starts the next. `now` is its end.
    ///
    /// # Errors
    /// None known; an error ends the run.
    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()>;

    /// Reports the last, partial interval.
    ///
    /// # Errors
    /// As [`Profiler::interval`].
    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.interval(now, report)
    }

    /// Events are on; the names of tasks are known. It may be long since the first events: they are as old as
    /// [`Context::started_ns`].
    fn started(&mut self, now: Timestamp, ctx: &mut Context) {
        let _ = (now, ctx);
    }

    /// A task was born, renamed or ended, on `cpu`; the tables of `ctx` know it already.
    fn task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        let _ = (record, time, cpu, ctx);
    }

    /// `tid` has got `cpu`, from the task `prev` if that is told. Only where idle tasks are watched, see
    /// [`Evlist::watch_idle`]; the event of the same switch comes before, if it was seen.
    fn came(&mut self, tid: i32, prev: Option<i32>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        let _ = (tid, prev, time, cpu, ctx);
    }

    /// Called ten times a second, between samples, with all events older than `now` seen.
    fn tick(&mut self, now: Timestamp, ctx: &mut Context) {
        let _ = (now, ctx);
    }

    /// Events are off and all were seen: the last moment to hand over an occurrence. Not called when `-N` ended the run.
    /// [`Profiler::deinit`] follows.
    fn stopped(&mut self, now: Timestamp, ctx: &mut Context) {
        let _ = (now, ctx);
    }

    /// What people should hear on stderr; asked for after each tick.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// CPUs that may not run or wake a thread, sorted: a paced run keeps its own away.
    fn suspects(&self) -> &[u32] {
        &[]
    }

    /// The kernel takes no samples on `cpu` for a while, since there were too many.
    fn throttled(&mut self, cpu: u32) {
        let _ = cpu;
    }

    /// Before an interval's report: what `event` counted on `cpu` in it, once per task for a task-bound one. Its times are
    /// then those for which these tasks ran, as far as its attr asks for them.
    fn counted(&mut self, event: EventId, cpu: u32, counted: &Counted) {
        let _ = (event, cpu, counted);
    }

    /// Before weights of stacks are handed over, and before an interval's report: gives those their weight that have none.
    fn weigh_samples(&mut self, weights: &mut StackWeights) {
        let _ = weights;
    }

    /// What it weighs, where that is not what its options say. Asked when its events are known.
    fn weighs(&self) -> Option<&'static str> {
        None
    }

    /// The stacks that it will show or weigh some time: all others may be forgotten now.
    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>);

    /// Forgets every pair that the loss may have closed.
    fn lost(&mut self, window: &LostWindow) {
        let _ = window;
    }

    /// Only names, forks, exits and mappings may be missing. As bad as [`Profiler::lost`] for who follows tasks.
    fn lost_side(&mut self, window: &LostWindow) {
        self.lost(window);
    }
}

/// What a profiler knows before anything is opened.
pub struct Setup<'a> {
    pub tracefs: &'a TracefsFinder,
    pub target: &'a Target,
    pub host: &'a Host,
    /// The tasks of the answer as they are now.
    pub watched: &'a Watched,
    /// The command that will be started.
    pub command: Option<&'a OsStr>,
    /// `-g`, or a flame graph.
    pub stacks: bool,
    /// A flame graph is wanted: see [`Context::weigh`].
    pub flame_graph: bool,
    /// `-i`.
    pub interval: Option<std::time::Duration>,
    /// Our own threads.
    pub own: [i32; 2],
    pub notes: RefCell<Vec<String>>,
    pub warnings: RefCell<Vec<Warning>>,
}

/// What is less than usual in a run.
#[derive(Debug)]
pub struct Warning {
    pub reason: Reason,
    /// Something that is expected is missing; else it is another way to the same.
    degraded: bool,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.degraded { "degraded: " } else { "" }, self.reason)
    }
}

impl Setup<'_> {
    /// The format of `sys:name`.
    ///
    /// # Errors
    /// No such event here, or tracefs cannot be read.
    pub fn format(&self, name: &str) -> Result<Arc<Format>> {
        let (system, event) =
            name.split_once(':').with_context(|| format!("{name:?} is not of the form system:event"))?;
        Ok(Arc::new(self.tracefs.get()?.format(system, event)?))
    }

    /// The tracepoint `sys:name` as an event of its own, not yet in the list.
    ///
    /// # Errors
    /// As [`Setup::format`].
    pub fn tracepoint(&self, name: &str) -> Result<(Evsel, Arc<Format>)> {
        let format = self.format(name)?;
        Ok((Evsel::new(name, Attr::tracepoint(format.id)), format))
    }

    /// The format of an event of the list.
    ///
    /// # Errors
    /// As [`Setup::format`].
    pub fn format_of(&self, evsel: &Evsel) -> Result<Arc<Format>> {
        let of_probe = evsel.attr().tracepoint_id().and_then(|id| self.tracefs.format_of_probe(id));
        of_probe.map_or_else(|| self.format(evsel.name()), Ok)
    }

    /// What is wrong with a filter of the user's for events of `format`: text that does not parse, or a field that the
    /// event lacks.
    pub fn filter_error(&self, err: FilterError, format: &Format) -> anyhow::Error {
        // An unknown field's error names the event itself.
        if err.is_unknown_field() {
            anyhow::Error::msg(err)
        } else {
            usage(format!("filter of {}: {err}", format.full_name()))
        }
    }

    /// A kernel filter that leaves our own threads out: right for events that have no second party.
    pub fn not_ourselves(&self) -> String {
        self.own.map(|tid| format!("common_pid != {tid}")).join(" && ")
    }

    /// Something that everybody should hear.
    pub fn warn(&self, text: String) {
        self.warnings.borrow_mut().push(Warning { reason: Reason::incurable(text), degraded: false });
    }

    /// Something that is expected of the command, and will be missing.
    pub fn degrade(&self, reason: Reason) {
        self.warnings.borrow_mut().push(Warning { reason, degraded: true });
    }

    /// In a nested pid namespace the kernel gives all tasks outside of it the number 0. The targets of `-p` and `-t` are
    /// inside.
    pub fn degrade_outsiders(&self) {
        if procfs::is_nested(self.host) && matches!(self.target.tasks, Tasks::All | Tasks::Cgroups(_)) {
            self.degrade(Reason::new(
                "tasks outside of this pid namespace have no numbers or names here: they are <outside>, number 0",
                "run on the host, or in a container with --pid=host",
            ));
        }
    }

    /// Something for `-v`.
    pub fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }
}

/// tracefs where it usually is, else mounted privately, else wherever it is mounted: found when first needed.
#[derive(Debug, Default)]
pub struct TracefsFinder {
    /// They are removed while there is a tracefs: fields go in this order.
    probes: OnceCell<Probes>,
    /// Of these probes.
    formats: RefCell<Vec<Arc<Format>>>,
    /// Where functions of programs were found, or why not, until their probes are defined.
    spots: RefCell<Vec<(Head, Result<Vec<Spot>>)>>,
    found: OnceCell<(Tracefs, Option<PrivateTracefs>)>,
}

impl TracefsFinder {
    /// One that is known: the trees of a test.
    pub fn at(tracefs: Tracefs) -> TracefsFinder {
        TracefsFinder { found: (tracefs, None).into(), ..TracefsFinder::default() }
    }

    /// # Errors
    /// It is mounted nowhere and cannot be mounted.
    pub fn get(&self) -> Result<&Tracefs> {
        if self.found.get().is_none() {
            let found = match Tracefs::find_mounted(USUAL) {
                Some(tracefs) => (tracefs, None),
                None => {
                    let host = Host::default();
                    let elsewhere = || mount_points(mounts(&host.proc));
                    own_tracefs().or_else(|err| match Tracefs::find_mounted(elsewhere()) {
                        Some(tracefs) => Ok((tracefs, None)),
                        None => Err(NoTracefs::new(err, &host)),
                    })?
                }
            };
            let _ = self.found.set(found);
        }
        self.found.get().map(|(tracefs, _)| tracefs).context("tracefs vanished")
    }

    /// Why an event is refused, and what would help.
    pub fn reason(&self, err: &anyhow::Error) -> Reason {
        let denied = |err: &EventError| match err {
            EventError::Permission { path } => Some(unreadable(path, self.get().ok()?.root(), &Lockdown::now())),
            _ => None,
        };
        let known = |cause: &(dyn std::error::Error + 'static)| {
            let refused = cause.downcast_ref::<Refused>().map(|refused| refused.reason.clone());
            let none = || cause.downcast_ref::<NoTracefs>().map(|none| none.reason.clone());
            refused.or_else(none).or_else(|| cause.downcast_ref().and_then(denied))
        };
        err.chain().find_map(known).unwrap_or_else(|| Reason::incurable(format!("{err:#}")))
    }

    /// As [`TracefsFinder::get`], for what root alone may, as `why` says.
    ///
    /// # Errors
    /// The same.
    pub fn get_as_root(&self, why: &str) -> Result<&Tracefs> {
        self.get().map_err(|err| match err.downcast::<NoTracefs>() {
            Ok(none) => none.and_root_only(why).into(),
            Err(err) => err,
        })
    }

    /// Where it was found, for `-v`.
    pub fn describe(&self) -> Option<String> {
        self.found.get().map(|(tracefs, private)| match private {
            Some(_) => "tracefs: a private mount of our own".to_owned(),
            None => format!("tracefs: {}", tracefs.root().display()),
        })
    }
}

/// One that is mounted for us alone.
fn own_tracefs() -> io::Result<(Tracefs, Option<PrivateTracefs>)> {
    let mount = private_tracefs()?;
    let tracefs = Tracefs::at(mount.root());
    match tracefs.list() {
        // Root's alone, it may be mounted by somebody who may not read it.
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => Err(err),
        _ => Ok((tracefs, Some(mount))),
    }
}

/// What a profiler has at hand while samples come.
pub struct Context {
    pub tasks: TaskTable,
    pub watched: Watched,
    pub spaces: SpaceKeys,
    pub stacks: Stacks,
    pub weights: StackWeights,
    pub host: Host,
    /// No event is older than the run: it began just before they were enabled.
    pub started_ns: Timestamp,
    /// What is emitted goes there.
    pub(crate) output: Output,
    /// Pairs that were thrown away because an end of theirs may not have been seen.
    pub discarded: u64,
    /// CPUs on which switches went unseen though nothing was lost, once for each.
    pub missed_switches: Vec<u32>,
    /// What could not be followed because too much is followed already.
    pub untracked: u64,
    /// Set by a profiler for a sample that is none of its business after all: it does not count.
    pub ignored: bool,
    /// Set by a profiler that waits for a thread of its own, or for records up to now: the next [`Profiler::tick`] is soon.
    pub hurry: bool,
}

impl Context {
    /// Hands over a tracepoint's record to be printed as it is, and a lineage to be told beside it.
    pub fn emit_event(
        &mut self,
        subject: Subject,
        event: EventId,
        raw: &[u8],
        lineage: Option<Arc<[Kin]>>,
        stack: Option<StackId>,
    ) {
        self.output.batch.event(subject, event, raw, lineage.map(Value::Lineage), stack);
    }

    /// A process and those that have made it, as of now: see [`TaskTable::follow_ancestry`].
    pub fn lineage(&mut self, pid: i32) -> Arc<[Kin]> {
        let kin = |Ancestor { pid, comm }| Kin { pid, comm, command: Command::Unasked };
        self.tasks.lineage(pid).into_iter().map(kin).collect()
    }

    /// Hands over an occurrence of a profiler's own kind.
    pub fn emit<const N: usize>(
        &mut self,
        subject: Subject,
        shape: &'static Shape,
        values: [Value; N],
        stack: Option<StackId>,
    ) {
        self.output.batch.shaped(subject, shape, values, stack);
    }

    /// The sample's callchain, interned. None without one.
    #[inline(always)]
    pub fn stack(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        self.stacks.intern(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's callchain in the kernel, where its event has it for nothing but the place.
    pub fn kernel_place(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        self.stacks.place(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's address as a stack of its own.
    pub fn address(&mut self, sample: &Sample<'_>, user: bool) -> Option<StackId> {
        self.stacks.address(sample.ip(), user, Innermost::Executed, sample.pid, &mut self.spaces)
    }

    /// An address in the code of a process as a stack of its own, where the events of the run hold addresses.
    pub fn user_address(&mut self, addr: u64, pid: i32) -> Option<StackId> {
        self.stacks.address(addr, true, Innermost::Executed, pid, &mut self.spaces)
    }

    /// Adds to what fell on a stack of a task, for the flame graph and the lists of functions.
    #[inline]
    pub fn weigh(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.weights.add(pid, comm, stack, weight);
    }

    /// The same of a sample that is weighed later: see [`Profiler::weigh_samples`].
    #[inline]
    pub fn weigh_later(&mut self, pid: i32, comm: Comm, stack: Option<StackId>) {
        self.weights.add_unweighed(pid, comm, stack);
    }

    /// Hands over an occurrence in which many stacks had a share.
    pub fn emit_weighted<const N: usize>(
        &mut self,
        subject: Subject,
        shape: &'static Shape,
        values: [Value; N],
        weights: impl Iterator<Item = Weighted>,
    ) {
        self.output.batch.weighted(subject, shape, values, weights);
    }

    /// What a waiting thread is waiting in, from /proc, now.
    pub fn wait_channel(&self, tid: i32) -> Option<String> {
        procfs::wchan(&self.host, tid)
    }

    /// CPU time that a thread has used, from /proc, now. None when the kernel does not tell.
    pub fn ran_ns_from_proc(&self, tid: i32) -> Option<u64> {
        procfs::ran_ns(&self.host, tid)
    }

    /// The signals that wait for a thread, from /proc, now.
    pub fn signals_from_proc(&self, tid: i32) -> Option<procfs::SignalState> {
        procfs::signals(&self.host, tid)
    }

    /// The signals that wait for a process, as one of its living threads tells. None when it has none.
    pub fn process_signals_from_proc(&self, pid: i32) -> Option<procfs::SignalState> {
        procfs::process_signals(&self.host, pid)
    }

    /// State, name and CPU of a thread, from /proc, now.
    pub fn state_from_proc(&self, tid: i32) -> Option<procfs::Stat> {
        procfs::stat(&self.host, tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_its_cure_apart() {
        let nowhere = Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() };
        let none = NoTracefs::new(std::io::Error::from_raw_os_error(libc::EPERM), &nowhere);
        let reason = TracefsFinder::default().reason(&anyhow::Error::from(none).context("no second witness"));
        assert!(reason.why.contains("tracefs") && !reason.why.contains("cure"), "{reason}");
        assert!(reason.cure.is_some(), "{reason}");
        let other = TracefsFinder::default().reason(&anyhow::anyhow!("b").context("a"));
        assert_eq!(other, Reason::incurable("a: b"));
        let warnings = [false, true].map(|degraded| Warning { reason: reason.clone(), degraded }.to_string());
        assert_eq!(warnings[1], format!("degraded: {}", warnings[0]));
    }
}
