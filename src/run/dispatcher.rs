//! Where records go: side records to the tables of tasks, samples to their profiler, losses to all profilers.

use std::ops::ControlFlow;
use std::time::Duration;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustc_hash::FxHashSet;

use crate::host::Host;
use crate::output::{Output, UnwindingSums};
use crate::perf::classes::Class;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::windows::WINDOW_OWNER;
use crate::perf::layout::Layout;
use crate::perf::record::{Malformed, Record, decode, record_type, sample_identifier};
use crate::perf::{EventId, Sample};
use crate::profiler::user_stacks::UserStacks;
use crate::profiler::{Context, Event, LostWindow, Profiler, Report, RunScope, Samples, TickOutcome, Timestamp};
use crate::report::{Basis, Verdict};
use crate::ringbuf::{Item, ItemKind, RecordRun, Stamp};
use crate::run::loss::LossBook;
use crate::run::meter::Meter;
use crate::stats::weights::StackWeights;
use crate::symbol::{SpaceKeys, Stacks};
use crate::sys;
use crate::task::cpu_times::Reading;
use crate::task::{TaskTable, Watched};

/// The state behind the merge.
pub struct Dispatcher {
    pub evlist: Evlist,
    /// The layout of id and time, which all records share.
    pub layout: Layout,
    /// Samples hold addresses.
    pub any_address: bool,
    pub profilers: Vec<Box<dyn Profiler>>,
    /// Only in a dry run, whose profilers print nothing.
    pub meter: Option<Meter>,
    /// What a profiler may use.
    pub ctx: Context,
    /// What the profilers asked for after the last tick.
    pub last_tick: TickOutcome,
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
    /// `-N`
    pub limit: Option<u64>,
    /// Time of the sample that reached the limit.
    pub ended_ns: Option<Timestamp>,
    pub samples: u64,
    /// Samples that came out of the rings, also those that are ignored or dropped here.
    samples_read: u64,
    pub record_bytes: u64,
    pub late: u64,
    pub malformed: u64,
    /// Calls of probed functions that no probe saw.
    pub missed_calls: u64,
    /// Calls of probed functions in children of the target's processes may go unseen.
    pub may_miss_children: bool,
    /// Number of such children.
    pub children_in_doubt: u64,
    task_check: TaskCheck,
    /// As of the last interval.
    missing: MissingCounts,
    /// CPU times at the last look at CPUs that are never idle.
    cpu_times: Option<Reading>,
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

/// Counts of what is missing from the results, by what that means for them.
#[derive(Clone, Copy, Debug, Default)]
struct MissingCounts {
    lost: u64,
    untracked: u64,
    stacks: u64,
    discarded: u64,
    late: u64,
}

impl MissingCounts {
    fn since(self, before: MissingCounts) -> MissingCounts {
        MissingCounts {
            lost: self.lost.saturating_sub(before.lost),
            untracked: self.untracked.saturating_sub(before.untracked),
            stacks: self.stacks.saturating_sub(before.stacks),
            discarded: self.discarded.saturating_sub(before.discarded),
            late: self.late.saturating_sub(before.late),
        }
    }

    /// `by_stack`: rows have stacks, so a sample without its stack is missing from its row.
    fn verdict(self, by_stack: bool) -> Verdict {
        if self.lost > 0 || self.untracked > 0 || by_stack && self.stacks > 0 {
            Verdict::LowerBound
        } else if self.discarded > 0 || self.late > 0 {
            Verdict::Discarded
        } else {
            Verdict::Exact
        }
    }
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
            layout: evlist.shared_layout(),
            any_address: evlist.any_address(),
            evlist,
            profilers,
            meter: None,
            ctx: Context {
                tasks: TaskTable::new(host.clone()),
                watched,
                scope,
                spaces: SpaceKeys::default(),
                stacks,
                user_stacks: UserStacks::default(),
                weights: StackWeights::default(),
                host,
                started_ns: 0,
                output,
                discarded: 0,
                untracked: 0,
                notes: Vec::new(),
            },
            last_tick: TickOutcome::default(),
            loss: LossBook::default(),
            filter_in_user: false,
            filtered: FilteredSamples::default(),
            window_bytes: 0,
            lost_windows: 0,
            windows_ended: false,
            limit: None,
            ended_ns: None,
            samples: 0,
            samples_read: 0,
            record_bytes: 0,
            late: 0,
            malformed: 0,
            missed_calls: 0,
            may_miss_children: false,
            children_in_doubt: 0,
            task_check: TaskCheck::default(),
            missing: MissingCounts::default(),
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

    /// Takes the samples at the start of a piece: a profiler gets all of its samples that follow each other in one call.
    #[inline]
    pub fn take_samples(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        loop {
            let Dispatcher { evlist, profilers, meter, ctx, filter_in_user, filtered, .. } = self;
            let route = piece.next_record().and_then(sample_identifier).and_then(|id| evlist.route(id));
            let Some(owner) = route.map(|route| route.owner) else { break };
            if owner as usize == WINDOW_OWNER {
                if !self.take_window(piece) {
                    break;
                }
                continue;
            }
            let Some(profiler) = profilers.get_mut(owner as usize) else { break };
            let most = self.limit.map_or(u64::MAX, |limit| limit - self.samples);
            let has_companions = ctx.user_stacks.has_companions();
            let is_gated = *filter_in_user || meter.is_some() || has_companions;
            let mut gate = |event: EventId, sample: &Sample<'_>, ctx: &mut Context| {
                if has_companions {
                    ctx.user_stacks.comes(event, sample.cpu);
                }
                if *filter_in_user && evlist.evsel(event).is_task_bound() && !ctx.watched.contains(sample.tid) {
                    filtered.samples += 1;
                    filtered.bytes += sample.record().len() as u64;
                    return false;
                }
                meter.iter_mut().for_each(|meter| meter.add(event, sample));
                true
            };
            let mut samples = Samples::new(piece, evlist, owner, most, if is_gated { Some(&mut gate) } else { None });
            profiler.samples(&mut samples, ctx);
            let taken = samples.taken();
            self.samples_read += taken.all();
            self.samples += taken.relevant;
            self.malformed += taken.malformed;
            self.send_stacks();
            self.ctx.output.flush_large();
            if self.has_enough() {
                self.ended_ns = Some(piece.last());
                return ControlFlow::Break(());
            }
            if taken.all() == 0 {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes the window of a user stack that comes before its sample. False: there is no more to take.
    fn take_window(&mut self, piece: &mut RecordRun<'_>) -> bool {
        let Dispatcher { evlist, ctx, filter_in_user, window_bytes, .. } = self;
        let Some(record) = piece.next_record() else { return false };
        let Some(route) = sample_identifier(record).and_then(|id| evlist.route(id)) else { return false };
        let Some(sample) = evlist.sample(route, record) else { return false };
        if piece.take(record.len(), sample.time).is_none() {
            return piece.switch_ring();
        }
        *window_bytes += record.len() as u64;
        if !*filter_in_user || !evlist.evsel(route.event).is_task_bound() || ctx.watched.contains(sample.tid) {
            let of = evlist.evsel(route.event).window_of().unwrap_or_default();
            ctx.user_stacks.companion(of, &sample, &mut ctx.spaces, ctx.output.published());
        }
        true
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
            Class::Side => self.loss.count_side(least),
            Class::Events(_) if self.evlist.holds_windows(class) => self.lost_windows += least,
            Class::Events(_) => self.loss.count(cpu, least),
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

    /// `-N` samples were seen.
    #[inline]
    pub fn has_enough(&self) -> bool {
        self.limit.is_some_and(|limit| self.samples >= limit)
    }

    /// New stacks go to the output before the batch that refers to them.
    #[inline(always)]
    fn send_stacks(&mut self) {
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
        if !self.ctx.output.flush_all() {
            self.ctx.stacks.postpone_forgetting(); // what was not printed refers to them
            return;
        }
        let (start_ns, _) = sys::cpu_ns();
        self.send_weights();
        let mut used = FxHashSet::default();
        self.profilers.iter().for_each(|profiler| profiler.stacks_in_use(&mut used));
        self.ctx.output.tell(self.ctx.stacks.forget(used).into_iter());
        self.ctx.stacks.set_growth(Duration::from_nanos(sys::cpu_ns().0.saturating_sub(start_ns)));
    }

    /// Sends the weights of stacks since the last time to the output, which names the stacks and adds the weights up.
    fn send_weights(&mut self) {
        self.weigh_samples();
        let rows = self.ctx.weights.take();
        if !rows.is_empty() {
            self.ctx.output.weights(rows);
        }
    }

    /// Has the profilers weigh the samples that have no weight yet.
    pub fn weigh_samples(&mut self) {
        self.notify(Event::WeighSamples);
    }

    /// Notifies all profilers.
    fn notify(&mut self, event: Event<'_>) {
        let Dispatcher { profilers, ctx, .. } = self;
        profilers.iter_mut().for_each(|profiler| profiler.on(event, ctx));
    }

    fn take_side_record(&mut self, record: &[u8], item: &Item<'_>, cpu: u32, class: Class) -> Result<(), Malformed> {
        let (side, id) = decode(record, &self.layout)?;
        match side {
            Record::Lost { count } => {
                self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count }, class);
                match class {
                    _ if self.evlist.counts_lost() => {}
                    _ if self.evlist.holds_windows(class) => self.lost_windows += count,
                    Class::Side => self.loss.count_side(count),
                    Class::Events(_) => self.loss.count(cpu, count),
                }
                return Ok(());
            }
            Record::LostSamples { count } if self.evlist.holds_windows(class) => {
                self.lost_windows += count;
                return Ok(());
            }
            Record::LostSamples { count } => {
                self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count }, class);
                self.loss.count(cpu, count);
                return Ok(());
            }
            Record::Throttle { on: true } => {
                self.notify(Event::Throttled { cpu });
                return Ok(());
            }
            Record::Switch { out: false, other: prev, .. } => {
                self.evlist.count_switch_in(cpu, prev == Some(0));
                self.notify(Event::SwitchIn { tid: id.tid, prev, time: id.time, cpu });
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
        self.ctx.tasks.apply(&side, id.time);
        self.ctx.watched.apply(&side);
        if !matches!(side, Record::Mmap(_)) {
            self.notify(Event::Task { record: &side, time: id.time, cpu: id.cpu });
        }
        Ok(())
    }

    pub fn lost(&mut self, window: LostWindow, class: Class) {
        match class {
            Class::Side => {
                self.loss.side_window();
                self.notify(Event::LostSide(&window));
            }
            Class::Events(_) if self.evlist.holds_windows(class) => self.ctx.user_stacks.forget(window.cpu),
            Class::Events(_) => {
                self.loss.window(window);
                self.ctx.user_stacks.forget(window.cpu); // the sample that it came with may be among the lost ones
                self.notify(Event::Lost(&window));
            }
        }
    }

    /// Notifies the profilers of the counts of their events; not with `filter_in_user`, as the counts are of other tasks then, too.
    pub fn notify_counts(&mut self) {
        for (cpu, event, counted) in self.evlist.take_counted() {
            let owner = self.evlist.evsel(event).owner();
            if let Some(profiler) = self.profilers.get_mut(owner).filter(|_| !self.filter_in_user) {
                profiler.on(Event::Counted { event, cpu, counted: &counted }, &mut self.ctx);
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
        for profiler in &mut self.profilers {
            self.last_tick.merge(profiler.tick(now, &mut self.ctx));
        }
        self.send_stacks();
        if self.ctx.weights.are_many() && self.ctx.output.flush_all() {
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
        for cpu in self.evlist.judge_idle() {
            self.ctx.output.note(format!(
                "CPU {cpu} hides its idle task from events, and the wake-ups in its interrupts: records of its switches \
                 stand in, at about 1 µs each"
            ));
        }
    }

    /// CPUs that were never idle during the last test for a hidden idle task, and have been idle since, are tested again.
    pub fn retest_idle(&mut self) {
        let busy: Vec<u32> = self.evlist.never_idle().collect();
        if busy.is_empty() {
            self.cpu_times = None;
            return;
        }
        let now = Reading::now(&self.ctx.host);
        let idle_ns = |times: &Reading, cpu| times.cpu(cpu).map(|times| times.idle_ns);
        if let Some(before) = &self.cpu_times {
            for cpu in busy {
                if idle_ns(&now, cpu) > idle_ns(before, cpu) {
                    self.evlist.retest_idle(cpu);
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

    /// Sets the verdict of each table of an interval, and gives that of the interval. `undecodable`: records without a time.
    pub fn judge(&mut self, report: &mut Report, undecodable: u64) -> Verdict {
        let missing = MissingCounts {
            lost: [
                self.loss.total(),
                self.loss.side_total(),
                self.loss.switches_total(),
                self.loss.windows_total(),
                self.malformed,
                self.missed_calls,
                undecodable,
            ]
            .into_iter()
            .fold(0, u64::saturating_add),
            untracked: self.ctx.untracked,
            stacks: self.ctx.stacks.refused() + self.ctx.output.dropped_stacks(),
            discarded: self.ctx.discarded,
            late: self.late,
        };
        let of_interval = missing.since(self.missing);
        for table in &mut report.tables {
            let basis = table.rows.basis();
            let verdict = match basis {
                Basis::Counters => continue,
                Basis::Interval => of_interval.verdict(false),
                Basis::Run => missing.verdict(true),
                Basis::RunByRow => MissingCounts { discarded: 0, ..missing }.verdict(true),
            };
            let of_children = match basis {
                Basis::RunByRow if self.children_in_doubt > 0 => Verdict::Unsure, // what ended what is counted
                _ => self.verdict_of_children(),
            };
            table.verdict = table.verdict.and(verdict).and(of_children);
        }
        self.missing = missing;
        of_interval.verdict(false).and(self.verdict_of_children())
    }

    fn verdict_of_children(&self) -> Verdict {
        if self.children_in_doubt > 0 { Verdict::LowerBound } else { Verdict::Exact }
    }

    pub fn mean_record_bytes(&self) -> u64 {
        self.record_bytes.checked_div(self.samples_read).unwrap_or(0)
    }
}
