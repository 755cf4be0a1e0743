//! Where records go: side records to the tables of tasks, samples to their profiler, losses to all profilers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustc_hash::FxHashSet;

use crate::host::{Host, cpu_ranges};
use crate::output::{Output, UnwindingSums};
use crate::perf::EventId;
use crate::perf::classes::Class;
use crate::perf::decode::decode;
use crate::perf::evlist::Evlist;
use crate::perf::layout::Layout;
use crate::perf::record::{Malformed, Record, SampleId, TaskRecord, record_type};
use crate::profiler::user_stacks::UserStacks;
use crate::profiler::{Context, Event, LostKinds, LostWindow, Profiler, RunScope, TickOutcome, Timestamp, ViewSums};
use crate::report::{Basis, Report, Verdict};
use crate::ringbuf::{Item, ItemKind, RecordRun, Stamp};
use crate::run::loss::LossBook;
use crate::run::meter::Meter;
use crate::run::views::{MissingCounts, Views};
use crate::stats::weights::Weighted;
use crate::symbol::{SpaceKeys, Stacks};
use crate::sys;
use crate::task::cpu_times::Reading;
use crate::task::{TaskTable, Watched};

/// The state behind the merge.
pub struct Dispatcher {
    pub evlist: Evlist,
    /// By class of rings, the layout of id and time, which all records of a ring share.
    pub layouts: Arc<[Layout]>,
    /// Samples hold addresses.
    pub any_address: bool,
    pub views: Views,
    /// Only in a dry run, whose profilers print nothing.
    pub meter: Option<Meter>,
    /// What a profiler may use.
    pub ctx: Context,
    /// What the profilers asked for after the last tick.
    pub last_tick: TickOutcome,
    /// Losses in all rings.
    pub loss: LossBook,
    /// Task-bound events also see other tasks, whose samples are dropped here.
    pub filter_in_user: bool,
    pub filtered: FilteredSamples,
    /// Bytes of windows of user stacks that came beside samples.
    pub window_bytes: u64,
    /// Windows of user stacks that found their rings full.
    pub lost_windows: u64,
    /// Windows beside samples came too often, and were ended.
    pub windows_ended: bool,
    /// Time of the sample that reached the limit.
    pub ended_ns: Option<Timestamp>,
    /// Samples that came out of the rings, also those that are ignored or dropped here.
    pub(super) samples_read: u64,
    pub record_bytes: u64,
    pub late: u64,
    pub malformed: u64,
    /// Calls of probed functions that no probe saw.
    pub missed_calls: u64,
    /// Events that the kernel has counted and that came neither as samples nor as losses, at least: a task hides them.
    pub unseen: u64,
    /// The last reading of the kernel's counts, until all records before it were taken.
    counts_read: Option<(u64, Timestamp)>,
    /// Calls of probed functions in children of the target's processes may go unseen.
    pub may_miss_children: bool,
    /// Number of such children.
    pub children_in_doubt: u64,
    /// BPF programs may have hidden some events that the kernel does not count.
    pub hides_uncounted: bool,
    task_check: TaskCheck,
    /// CPU times at the last look at CPUs that are never idle.
    cpu_times: Option<Reading>,
}

/// An interval of a view.
#[derive(Clone, Copy, Debug, Default)]
pub struct JudgedInterval {
    pub verdict: Verdict,
    pub samples: u64,
    pub discarded: u64,
}

/// Samples of other tasks, which were dropped here.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilteredSamples {
    pub samples: u64,
    pub bytes: u64,
}

/// The last comparison of the task table with /proc.
#[derive(Clone, Copy, Debug, Default)]
struct TaskCheck {
    /// Records lost by then.
    lost: u64,
    /// Earliest time of the next comparison.
    next: Timestamp,
}

impl Dispatcher {
    /// A dispatcher that knows no task and drops no sample.
    pub fn new(
        evlist: Evlist,
        profilers: Vec<Box<dyn Profiler>>,
        watched: Watched,
        scope: RunScope,
        stacks: Stacks,
        host: Host,
        output: Output,
    ) -> Dispatcher {
        Dispatcher {
            layouts: evlist.shared_layouts(),
            any_address: evlist.any_address(),
            evlist,
            views: Views::new(profilers),
            meter: None,
            ctx: Context {
                tasks: TaskTable::new(host.clone()),
                watched,
                scope,
                spaces: SpaceKeys::default(),
                stacks,
                user_stacks: UserStacks::default(),
                view: ViewSums::default(),
                host,
                started_ns: 0,
                output,
                notes: Vec::new(),
            },
            last_tick: TickOutcome::default(),
            loss: LossBook::default(),
            filter_in_user: false,
            filtered: FilteredSamples::default(),
            window_bytes: 0,
            lost_windows: 0,
            windows_ended: false,
            ended_ns: None,
            samples_read: 0,
            record_bytes: 0,
            late: 0,
            malformed: 0,
            missed_calls: 0,
            unseen: 0,
            counts_read: None,
            may_miss_children: false,
            children_in_doubt: 0,
            hides_uncounted: false,
            task_check: TaskCheck::default(),
            cpu_times: None,
        }
    }

    /// The stamp of a record, for the merge.
    #[inline]
    pub fn stamp(layout: &Layout, record: &[u8]) -> Stamp {
        use perf_event_open_sys::bindings::PERF_RECORD_LOST;
        let kind = record_type(record);
        let time = if kind == PERF_RECORD_SAMPLE { layout.sample_time(record) } else { layout.side_time(record) };
        match time {
            Some(time) if kind == PERF_RECORD_LOST => Stamp::Here(time),
            Some(time) => Stamp::At(time),
            None => Stamp::Bad,
        }
    }

    /// Takes one item of the merge. `place`: CPU and class of a ring.
    #[inline(always)]
    pub fn take(&mut self, item: &Item<'_>, place: impl Fn(usize) -> (u32, Class)) -> ControlFlow<()> {
        match item.kind {
            ItemKind::Record(record) if record_type(record) == PERF_RECORD_SAMPLE => {
                let mut piece = RecordRun::of(record, item.late);
                let flow = self.take_samples(&mut piece);
                self.malformed += u64::from(piece.records() == 0); // no event of this run has its id
                flow
            }
            _ => {
                let (cpu, class) = place(item.ring);
                self.take_non_sample(item, cpu, class);
                ControlFlow::Continue(())
            }
        }
    }

    /// Takes an item that is no sample, from a ring of `cpu`.
    #[inline(never)]
    fn take_non_sample(&mut self, item: &Item<'_>, cpu: u32, class: Class) {
        if let ItemKind::Record(record) = item.kind {
            self.malformed += u64::from(self.take_side_record(record, item, cpu, class).is_err());
            return;
        }
        // No counter knows of skipped bytes: at least one record was among them.
        let least = u64::from(matches!(item.kind, ItemKind::Corrupt));
        match class {
            Class::Side => self.count_side_lost(least),
            Class::Events(_) if self.evlist.holds_windows(class) => self.lost_windows += least,
            Class::Events(_) => self.count_lost(cpu, class, least),
        }
        self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count: 0 }, class);
    }

    /// Samples whose user stacks are by frame pointers although their events have windows. One that was lost leaves its
    /// sample without.
    pub fn lost_unwind(&self) -> u64 {
        let counts = self.ctx.user_stacks.counts();
        counts.no_room + counts.no_window
    }

    /// None: no event has windows.
    pub fn unwinding(&self) -> Option<UnwindingSums> {
        let stacks = &self.ctx.user_stacks;
        let (counts, rules) = (stacks.counts(), stacks.unwinder_counts());
        stacks.is_on().then_some(UnwindingSums {
            windows: counts.windows,
            lost_windows: self.lost_windows,
            walked: counts.walked,
            handed_on: counts.handed_on,
            rules: rules.rules,
            rules_made: rules.made,
        })
    }

    /// Each view has seen its `-N` samples.
    #[inline]
    pub fn has_enough(&self) -> bool {
        self.views.have_enough()
    }

    /// The samples need no order among different threads. With a limit, those that come first are wanted.
    pub fn is_ordered_by_thread(&self) -> bool {
        self.evlist.is_ordered_by_thread() && self.views.iter().all(|view| view.limit.is_none())
    }

    /// Samples were lost in a ring.
    pub fn count_lost(&mut self, cpu: u32, class: Class, count: u64) {
        self.loss.count(cpu, count);
        if count > 0 {
            let owners = self.views.in_class(class, &self.evlist);
            owners.into_iter().for_each(|at| self.views.count_loss(at, |loss| loss.count(cpu, count)));
        }
    }

    /// SWITCH records were lost: only some views need them.
    pub fn count_lost_switches(&mut self, count: u64) {
        self.loss.count_switches(count);
        for &at in self.evlist.idle.watchers() {
            self.views.count_loss(at, |loss| loss.count_switches(count));
        }
    }

    /// Number of samples that were of use to some view.
    pub fn samples(&self) -> u64 {
        self.views.iter().map(|view| view.samples).sum()
    }

    /// Side records were lost: every view needs them.
    pub fn count_side_lost(&mut self, count: u64) {
        self.loss.count_side(count);
        self.views.iter_mut().for_each(|view| view.loss.count_side(count));
    }

    /// New stacks go to the output before the batch that refers to them.
    #[inline(always)]
    pub(super) fn send_stacks(&mut self) {
        if self.ctx.stacks.is_changed() {
            self.send_stack_updates();
        }
    }

    #[inline(never)]
    fn send_stack_updates(&mut self) {
        if self.ctx.stacks.has_updates() {
            self.ctx.output.tell(self.ctx.stacks.take_updates());
        }
        if self.ctx.stacks.should_forget() {
            self.forget_stacks();
        }
        self.ctx.stacks.clear_changed();
    }

    /// Forgets the stacks that nobody will refer to.
    #[cold]
    fn forget_stacks(&mut self) {
        // What was not printed refers to them, and what was not taken up is not forgotten there.
        if !self.ctx.output.flush_all() || !self.ctx.output.has_taken_news() {
            self.ctx.stacks.postpone_forgetting();
            return;
        }
        let (start_ns, _) = sys::cpu_ns();
        self.send_weights();
        let mut used = FxHashSet::default();
        self.views.iter().for_each(|view| view.profiler.stacks_in_use(&mut used));
        self.ctx.output.tell(self.ctx.stacks.forget(used).into_iter());
        self.ctx.stacks.set_growth(Duration::from_nanos(sys::cpu_ns().0.saturating_sub(start_ns)));
    }

    /// Sends the weights of stacks since the last time to the output, which names the stacks and adds the weights up.
    fn send_weights(&mut self) {
        self.weigh_samples();
        for at in 0..self.views.len() {
            let rows = self.take_weights(at);
            if !rows.is_empty() {
                self.ctx.output.weights(at, rows);
            }
        }
    }

    /// The weights of stacks of a view since the last time.
    pub fn take_weights(&mut self, view: usize) -> Vec<Weighted> {
        self.views.enter(view, &mut self.ctx);
        self.ctx.view.weights.take()
    }

    /// Has the profilers weigh the samples that have no weight yet.
    pub fn weigh_samples(&mut self) {
        self.notify(Event::WeighSamples);
    }

    /// Notifies all profilers.
    fn notify(&mut self, event: Event<'_>) {
        for at in 0..self.views.len() {
            self.notify_view(at, event);
        }
    }

    fn notify_view(&mut self, at: usize, event: Event<'_>) {
        let Dispatcher { views, ctx, .. } = self;
        if let Some(view) = views.enter(at, ctx) {
            view.profiler.on(event, ctx);
        }
    }

    fn take_side_record(&mut self, record: &[u8], item: &Item<'_>, cpu: u32, class: Class) -> Result<(), Malformed> {
        let (side, id) = decode(record, self.layouts.first().unwrap_or(&Layout::NONE))?;
        match side {
            Record::Lost { count } => {
                self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count }, class);
                match class {
                    _ if self.evlist.counts_lost() => {}
                    _ if self.evlist.holds_windows(class) => self.lost_windows += count,
                    Class::Side => self.count_side_lost(count),
                    Class::Events(_) => self.count_lost(cpu, class, count),
                }
                return Ok(());
            }
            Record::LostSamples { count } if self.evlist.holds_windows(class) => {
                self.lost_windows += count;
                return Ok(());
            }
            Record::LostSamples { count } => {
                self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count }, class);
                self.count_lost(cpu, class, count);
                return Ok(());
            }
            Record::Throttle { on: true } => {
                self.notify(Event::Throttled { cpu });
                return Ok(());
            }
            Record::Switch { out: false, other: prev, .. } => {
                self.evlist.idle.count_switch_in(cpu, prev == Some(0));
                if id.tid < 0 {
                    return Ok(()); // it has exited, and has lost its number; the event of the switch has that all the same
                }
                let switch_in = Event::SwitchIn { tid: id.tid, prev, time: id.time, cpu };
                for at in 0..self.evlist.idle.watchers().len() {
                    self.notify_view(self.evlist.idle.watchers()[at], switch_in);
                }
                return Ok(());
            }
            Record::Comm { .. } | Record::Fork(_) | Record::Exit(_) | Record::Mmap(_) => {}
            _ => return Ok(()),
        }
        if self.any_address
            && let Some(change) = self.ctx.spaces.apply(&side, id.time)
        {
            self.ctx.stacks.push_change(change);
            self.send_stacks();
        }
        if let Record::Fork(fork) = &side {
            let is_child = fork.pid == fork.tid && self.ctx.watched.contains(fork.ptid);
            self.children_in_doubt += u64::from(is_child && self.may_miss_children);
        }
        if let Record::Comm { pid, tid, exec: true, .. } = side
            && pid == tid
        {
            let left = if self.evlist.sees_all_exits() || self.ctx.watched.fixed().is_none() {
                self.ctx.tasks.left_of(pid)
            } else {
                self.ctx.watched.left_of(pid)
            };
            if !left.is_empty() {
                self.taken_over(pid, &left, &side, id);
                return Ok(());
            }
        }
        self.apply_to_tasks(&side, id.time);
        if !matches!(side, Record::Mmap(_)) {
            self.notify(Event::Task { record: &side, time: id.time, cpu: id.cpu });
        }
        Ok(())
    }

    /// A process executes a program, and another thread than the first one had done so.
    #[cold]
    fn taken_over(&mut self, pid: i32, left: &[i32], exec: &Record<'_>, id: SampleId) {
        let SampleId { time, cpu, .. } = id;
        let exits = left.iter().map(|&tid| Record::Exit(TaskRecord { pid, ppid: 0, tid, ptid: 0, time }));
        let exits: Vec<Record<'_>> = exits.collect();
        if let &[old] = left {
            self.ctx.watched.took_over(old, pid);
        }
        exits.iter().chain([exec]).for_each(|record| self.apply_to_tasks(record, time));
        // Of several it is not known which: the exits of the others were lost.
        if let &[old] = left {
            self.notify(Event::TookOver { old, pid, time, cpu });
        }
        exits.iter().chain([exec]).for_each(|record| self.notify(Event::Task { record, time, cpu }));
    }

    fn apply_to_tasks(&mut self, record: &Record<'_>, time: Timestamp) {
        self.ctx.tasks.apply(record, time);
        self.ctx.watched.apply(record);
    }

    pub fn lost(&mut self, window: LostWindow, class: Class) {
        match class {
            Class::Side => {
                self.loss.side_window();
                self.views.iter_mut().for_each(|view| view.loss.side_window());
                self.notify(Event::LostSide(&window));
            }
            Class::Events(_) if self.evlist.holds_windows(class) => self.ctx.user_stacks.forget(window.cpu),
            Class::Events(_) => self.lost_to(self.views.in_class(class, &self.evlist), window),
        }
    }

    /// Records of a CPU were lost, of whatever ring.
    pub fn lost_to_all(&mut self, window: LostWindow) {
        self.lost_to((0..self.views.len()).collect(), window);
    }

    fn lost_to(&mut self, views: Vec<usize>, window: LostWindow) {
        self.loss.window(window);
        self.ctx.user_stacks.forget(window.cpu); // the sample that it came with may be among the lost ones
        views.into_iter().for_each(|at| self.lost_to_view(at, window, LostKinds::Any));
    }

    fn lost_to_view(&mut self, at: usize, window: LostWindow, kinds: LostKinds<'_>) {
        self.views.count_loss(at, |loss| loss.window(window));
        self.notify_view(at, Event::Lost(&window, kinds));
    }

    /// Samples of the events `is_hidden` may have been hidden in `windows`, each of another CPU.
    pub fn hidden(&mut self, is_hidden: impl Fn(&str) -> bool, windows: &[LostWindow]) {
        let mut events: BTreeMap<usize, Vec<EventId>> = BTreeMap::new();
        for (event, _) in self.evlist.iter().filter(|(_, evsel)| evsel.is_opened() && is_hidden(evsel.name())) {
            self.evlist.subscribers(event).for_each(|(view, event)| events.entry(view).or_default().push(event));
        }
        for &window in windows {
            self.loss.window(window);
            events.iter().for_each(|(view, events)| self.lost_to_view(*view, window, LostKinds::Events(events)));
        }
    }

    /// The kernel's counts have been read: they will be compared with the records.
    pub fn counts_were_read(&mut self) {
        if self.counts_read.is_none() {
            self.counts_read = self.evlist.happened();
        }
    }

    /// The last reading of counts is too old to be of use.
    pub fn forget_counts(&mut self) {
        self.counts_read = None;
    }

    /// All records up to `complete_ns` were taken: compares them with the counts of before. More records may have been taken
    /// since, so that this is the least number of those that went unseen.
    pub fn compare_counts(&mut self, complete_ns: Timestamp) {
        let Some((happened, _)) = self.counts_read.take_if(|(_, read_ns)| *read_ns <= complete_ns) else { return };
        let known = [self.samples_read, self.loss.total(), self.malformed].into_iter().fold(0, u64::saturating_add);
        self.unseen = self.unseen.max(happened.saturating_sub(known));
    }

    /// Notifies the profilers of the counts of their events; not with `filter_in_user`, as the counts are of other tasks then, too.
    pub fn notify_counts(&mut self) {
        for (cpu, event, counted) in self.evlist.take_counted() {
            if self.filter_in_user {
                continue;
            }
            let subscribers: Vec<(usize, EventId)> = self.evlist.subscribers(event).collect();
            for (owner, event) in subscribers {
                self.notify_view(owner, Event::Counted { event, cpu, counted: &counted });
            }
        }
    }

    /// Events are on.
    pub fn started(&mut self, now: Timestamp) {
        self.notify(Event::Started { now });
        self.send_stacks();
    }

    /// The pids of the watched processes that live now.
    pub fn watched_processes(&self) -> Vec<i32> {
        let watched = self.ctx.tasks.living().filter(|(tid, _)| self.ctx.watched.contains(*tid));
        let mut pids: Vec<i32> = watched.map(|(_, pid)| pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Once the output keeps up again, it gets the stacks and mappings that it has missed.
    fn resend_dropped(&mut self) {
        if let Some(gap) = self.ctx.output.end_gap() {
            self.ctx.spaces.renew_all();
            gap.first.into_iter().for_each(|first| self.ctx.stacks.forget_from(first));
        }
    }

    /// Between samples; all records up to `now` were seen.
    pub fn tick(&mut self, now: Timestamp) {
        self.resend_dropped();
        self.last_tick = TickOutcome::default();
        for at in 0..self.views.len() {
            if let Some(view) = self.views.enter(at, &mut self.ctx) {
                self.last_tick.merge(view.profiler.tick(now, &mut self.ctx));
            }
        }
        self.send_stacks();
        let are_many = |at| self.views.sums(at, &self.ctx).is_some_and(|sums| sums.weights.are_many());
        if (0..self.views.len()).any(are_many) && self.ctx.output.flush_all() {
            self.send_weights();
        }
        let is_run = self.meter.is_none();
        for note in self.ctx.notes.drain(..).filter(|_| is_run) {
            self.ctx.output.note(note);
        }
    }

    /// Events are off; all records up to `now` were seen.
    pub fn stopped(&mut self, now: Timestamp) {
        self.notify(Event::Stopped { now });
        self.send_stacks();
    }

    /// After losses, compares the task table with /proc: tasks may have come, gone and changed their names unseen.
    pub fn check_tasks(&mut self, now: Timestamp) {
        const PAUSE_NS: u64 = 1_000_000_000;
        let lost = self.loss.total().saturating_add(self.loss.side_total());
        if lost == self.task_check.lost || now < self.task_check.next {
            return;
        }
        self.ctx.tasks.correct(now);
        // On a machine with many threads this takes long, and the rings fill meanwhile.
        let took = sys::monotonic_ns().saturating_sub(now);
        self.task_check = TaskCheck { lost, next: now.saturating_add(PAUSE_NS.max(took.saturating_mul(50))) };
    }

    /// Decides which CPUs hide their idle tasks, and says so once.
    pub fn judge_idle(&mut self) {
        for cpu in std::mem::take(&mut self.last_tick.missed_switches) {
            self.evlist.missed_switch(cpu);
        }
        let mut hidden = self.evlist.idle.judge();
        hidden.sort_unstable();
        let who = match &hidden[..] {
            [] => return,
            [cpu] => {
                format!("CPU {cpu} hides its idle task from events, and the wake-ups in its interrupts: records of its")
            }
            cpus => format!(
                "CPUs {} hide their idle tasks from events, and the wake-ups in their interrupts: records of their",
                cpu_ranges(cpus)
            ),
        };
        self.ctx.output.note(format!("{who} switches stand in, at about 1 µs each"));
    }

    /// CPUs that were never idle during the last test for a hidden idle task, and have been idle since, are tested again.
    pub fn retest_idle(&mut self) {
        let busy: Vec<u32> = self.evlist.idle.never_idle().collect();
        if busy.is_empty() {
            self.cpu_times = None;
            return;
        }
        let now = Reading::now(&self.ctx.host);
        let idle_ns = |times: &Reading, cpu| times.cpu(cpu).map(|times| times.idle_ns);
        if let Some(before) = &self.cpu_times {
            for cpu in busy {
                if idle_ns(&now, cpu) > idle_ns(before, cpu) {
                    self.evlist.idle.retest(cpu);
                }
            }
        }
        self.cpu_times = Some(now);
    }

    /// Forgets tasks that ended a while ago.
    pub fn expire(&mut self, now: Timestamp) {
        self.ctx.tasks.expire(now);
        self.ctx.spaces.expire(now);
    }

    /// Sets the verdict of each table of a view in an interval. `undecodable`: records without a time.
    pub fn judge(&mut self, view: usize, report: &mut Report, undecodable: u64) -> JudgedInterval {
        let sums = self.views.sums(view, &self.ctx);
        let (untracked, discarded) = sums.map_or((0, 0), |sums| (sums.untracked, sums.discarded));
        let [of_run, in_doubt] = [self.verdict_of_run(), Verdict::Unsure];
        let Some(view) = self.views.iter_mut().nth(view) else { return JudgedInterval::default() };
        let missing = MissingCounts {
            lost: [
                view.loss.total(),
                view.loss.side_total(),
                view.loss.switches_total(),
                view.loss.windows_total(),
                self.malformed,
                self.missed_calls,
                self.unseen,
                undecodable,
            ]
            .into_iter()
            .fold(0, u64::saturating_add),
            untracked,
            stacks: self.ctx.stacks.refused() + self.ctx.output.dropped_stacks(),
            discarded,
            late: self.late,
        };
        let (samples, before) = view.next_interval(missing);
        for table in &mut report.tables {
            let basis = table.rows.basis();
            let Some(verdict) = missing.verdict_on(basis, before) else { continue };
            let of_run = match basis {
                Basis::RunByRow if self.children_in_doubt > 0 => in_doubt, // what ended what is counted
                _ => of_run,
            };
            table.verdict = table.verdict.and(verdict).and(of_run);
        }
        let of_interval = missing.since(before);
        let verdict = of_interval.verdict(false).and(of_run);
        JudgedInterval { verdict, samples, discarded: of_interval.discarded }
    }

    /// What holds in all of the run.
    fn verdict_of_run(&self) -> Verdict {
        let of_children = if self.children_in_doubt > 0 { Verdict::LowerBound } else { Verdict::Exact };
        of_children.and(if self.hides_uncounted { Verdict::Unsure } else { Verdict::Exact })
    }

    pub fn mean_record_bytes(&self) -> u64 {
        self.record_bytes.checked_div(self.samples_read).unwrap_or(0)
    }
}
