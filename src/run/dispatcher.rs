//! Dispatches records: side records to the tables of tasks, samples to their profiler, losses to all profilers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustc_hash::FxHashSet;

use crate::host::Host;
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
use crate::run::idle_judge::IdleJudge;
use crate::run::loss::LossBook;
use crate::run::meter::Meter;
use crate::run::task_filter::TaskFilter;
use crate::run::unseen::UnseenEvents;
use crate::run::views::{MissingCounts, Views};
use crate::stats::weights::Weighted;
use crate::symbol::{SpaceKeys, Stacks};
use crate::sys;
use crate::task::{TaskTable, Watched};

/// The state that the records of the merge change.
pub struct Dispatcher {
    pub evlist: Evlist,
    /// By class of rings, the offsets of id and time that all records of a ring share.
    pub layouts: Arc<[Layout]>,
    /// Samples hold user addresses, so mappings are needed.
    pub any_address: bool,
    pub views: Views,
    /// Set only in a dry run, whose profilers print nothing.
    pub meter: Option<Meter>,
    /// The context that profilers use.
    pub ctx: Context,
    /// The requests of the profilers after the last tick.
    pub last_tick: TickOutcome,
    /// Losses in all rings.
    pub loss: LossBook,
    pub filter: TaskFilter,
    /// Windows of user stacks lost because their ring was full.
    pub lost_windows: u64,
    /// Time of the sample that reached the limit.
    pub ended_ns: Option<Timestamp>,
    pub records: RecordCounts,
    pub unseen: UnseenEvents,
    pub idle: IdleJudge,
    task_check: TaskCheck,
}

/// Counts of records read from the rings.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordCounts {
    /// Samples, including ignored and dropped ones.
    pub samples: u64,
    /// Bytes of all records.
    pub bytes: u64,
    pub late: u64,
    pub malformed: u64,
}

impl RecordCounts {
    /// Mean size of a record in bytes.
    pub fn mean_bytes(self) -> u64 {
        self.bytes.checked_div(self.samples).unwrap_or(0)
    }
}

/// The verdict on an interval of a view, with its samples and discarded pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct JudgedInterval {
    pub verdict: Verdict,
    pub samples: u64,
    pub discarded: u64,
}

/// The last comparison of the task table with /proc.
#[derive(Clone, Copy, Debug, Default)]
struct TaskCheck {
    /// Records lost before the comparison.
    lost: u64,
    /// Earliest time of the next comparison.
    next_ns: Timestamp,
}

impl TaskCheck {
    /// Compares the task table with /proc, if records were lost since the last comparison. `lost`: records lost up to
    /// now.
    fn compare(&mut self, tasks: &mut TaskTable, lost: u64, now: Timestamp) {
        const PAUSE_NS: u64 = 1_000_000_000;
        if lost == self.lost || now < self.next_ns {
            return;
        }
        tasks.correct(now);
        // With many threads a comparison takes long, and the rings fill meanwhile, so the next one is delayed.
        let took = sys::monotonic_ns().saturating_sub(now);
        *self = TaskCheck { lost, next_ns: now.saturating_add(PAUSE_NS.max(took.saturating_mul(50))) };
    }
}

impl Dispatcher {
    /// A dispatcher without known tasks, which drops no sample.
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
            any_address: evlist.evsels.any_address(),
            unseen: UnseenEvents::of(&evlist),
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
            filter: TaskFilter::default(),
            lost_windows: 0,
            ended_ns: None,
            records: RecordCounts::default(),
            idle: IdleJudge::default(),
            task_check: TaskCheck::default(),
        }
    }

    /// The merge's stamp of a record.
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
                self.records.malformed += u64::from(piece.records() == 0); // no event has its id
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
            self.records.malformed += u64::from(self.take_side_record(record, item, cpu, class).is_err());
            return;
        }
        // No counter includes skipped bytes: they held at least one record.
        self.count_dropped(cpu, class, u64::from(matches!(item.kind, ItemKind::Corrupt)));
        self.lost(LostWindow { cpu, start_ns: item.after, end_ns: item.time, count: 0 }, class);
    }

    /// Samples whose user stacks were found by frame pointers although their events have windows, such as those whose
    /// window was lost.
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

    /// Every view has seen its `-N` samples.
    #[inline]
    pub fn has_enough(&self) -> bool {
        self.views.have_enough()
    }

    /// The samples need no time order across threads. A run with `-N` does need it, since the first samples are wanted.
    pub fn is_ordered_by_thread(&self) -> bool {
        self.evlist.evsels.is_ordered_by_thread() && self.views.iter().all(|view| view.limit.is_none())
    }

    /// Counts samples that were lost in a ring.
    pub fn count_lost(&mut self, cpu: u32, class: Class, count: u64) {
        self.loss.count(cpu, count);
        if count > 0 {
            let owners = self.views.in_class(class, &self.evlist);
            owners.into_iter().for_each(|view| self.views.count_loss(view, |loss| loss.count(cpu, count)));
        }
    }

    /// Counts records of a ring that were lost, as reported by the ring's own records.
    fn count_dropped(&mut self, cpu: u32, class: Class, count: u64) {
        match class {
            Class::Side => self.count_side_lost(count),
            Class::Events(_) if self.evlist.holds_windows(class) => self.lost_windows += count,
            Class::Events(_) => self.count_lost(cpu, class, count),
        }
    }

    /// Counts lost SWITCH records, for the views that need them.
    pub fn count_lost_switches(&mut self, count: u64) {
        self.loss.count_switches(count);
        for &view in self.evlist.idle.watchers() {
            self.views.count_loss(view, |loss| loss.count_switches(count));
        }
    }

    /// Number of samples that some view has used.
    pub fn samples(&self) -> u64 {
        self.views.iter().map(|view| view.samples).sum()
    }

    /// Counts lost side records, which every view needs.
    pub fn count_side_lost(&mut self, count: u64) {
        self.loss.count_side(count);
        self.views.iter_mut().for_each(|view| view.loss.count_side(count));
    }

    /// Sends new stacks to the output, before the batch that refers to them.
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

    /// Forgets the stacks that nothing will refer to.
    #[cold]
    fn forget_stacks(&mut self) {
        // Waiting occurrences may refer to stacks, and stacks in flight cannot be forgotten by the output thread.
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

    /// Sends the weights of stacks since the last call to the output thread, which names the stacks and adds up the
    /// weights.
    fn send_weights(&mut self) {
        self.weigh_samples();
        for view in 0..self.views.len() {
            let rows = self.take_weights(view);
            if !rows.is_empty() {
                self.ctx.output.weights(view, rows);
            }
        }
    }

    /// The weights of stacks of a view since the last call.
    pub fn take_weights(&mut self, view: usize) -> Vec<Weighted> {
        self.views.enter(view, &mut self.ctx);
        self.ctx.view.weights.take()
    }

    /// Makes the profilers weigh the samples that have no weight yet.
    pub fn weigh_samples(&mut self) {
        self.notify(Event::WeighSamples);
    }

    /// Notifies all profilers.
    fn notify(&mut self, event: Event<'_>) {
        for view in 0..self.views.len() {
            self.notify_view(view, event);
        }
    }

    fn notify_view(&mut self, index: usize, event: Event<'_>) {
        let Dispatcher { views, ctx, .. } = self;
        if let Some(view) = views.enter(index, ctx) {
            view.profiler.on(event, ctx);
        }
    }

    fn take_side_record(&mut self, record: &[u8], item: &Item<'_>, cpu: u32, class: Class) -> Result<(), Malformed> {
        let (side, id) = decode(record, self.layouts.first().unwrap_or(&Layout::NONE))?;
        let window = |count| LostWindow { cpu, start_ns: item.after, end_ns: item.time, count };
        match side {
            Record::Lost { count } => {
                self.lost(window(count), class);
                if !self.evlist.counts_lost() {
                    self.count_dropped(cpu, class, count);
                }
            }
            Record::LostSamples { count } if self.evlist.holds_windows(class) => self.lost_windows += count,
            Record::LostSamples { count } => {
                self.lost(window(count), class);
                self.count_lost(cpu, class, count);
            }
            Record::Throttle { on: true } => self.notify(Event::Throttled { cpu }),
            Record::Switch { out: false, other: prev, .. } => self.take_switch_in(prev, cpu, id),
            Record::Comm { .. } | Record::Fork(_) | Record::Exit(_) | Record::Mmap(_) => {
                self.take_task_record(&side, id);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the switch-in of a task on a CPU where a hidden task may have run before.
    fn take_switch_in(&mut self, prev: Option<i32>, cpu: u32, id: SampleId) {
        self.evlist.idle.count_switch_in(cpu, prev == Some(0));
        if id.tid < 0 {
            return; // the task has exited and has no tid any more; sched_switch still reports it
        }
        let switch_in = Event::SwitchIn { tid: id.tid, prev, time: id.time, cpu };
        for index in 0..self.evlist.idle.watchers().len() {
            self.notify_view(self.evlist.idle.watchers()[index], switch_in);
        }
    }

    /// Handles a new name, program or mapping of a task, a fork or an exit.
    fn take_task_record(&mut self, side: &Record<'_>, id: SampleId) {
        if self.any_address
            && let Some(change) = self.ctx.spaces.apply(side, id.time)
        {
            self.ctx.stacks.push_change(change);
            self.send_stacks();
        }
        if let Record::Fork(fork) = side
            && fork.pid == fork.tid
            && self.ctx.watched.contains(fork.ptid)
        {
            self.unseen.count_child();
        }
        if let Record::Comm { pid, tid, exec: true, .. } = *side
            && pid == tid
        {
            let left = if self.evlist.sees_all_exits() || self.ctx.watched.fixed().is_none() {
                self.ctx.tasks.left_of(pid)
            } else {
                self.ctx.watched.left_of(pid)
            };
            if !left.is_empty() {
                return self.taken_over(pid, &left, side, id);
            }
        }
        self.apply_to_tasks(side, id.time);
        if !matches!(side, Record::Mmap(_)) {
            self.notify(Event::Task { record: side, time: id.time, cpu: id.cpu });
        }
    }

    /// A thread that is not the first of its process has executed a program, and has taken over the first one's tid.
    #[cold]
    fn taken_over(&mut self, pid: i32, left: &[i32], exec: &Record<'_>, id: SampleId) {
        let SampleId { time, cpu, .. } = id;
        let exits = left.iter().map(|&tid| Record::Exit(TaskRecord { pid, ppid: 0, tid, ptid: 0, time }));
        let exits: Vec<Record<'_>> = exits.collect();
        if let &[old] = left {
            self.ctx.watched.took_over(old, pid);
        }
        exits.iter().chain([exec]).for_each(|record| self.apply_to_tasks(record, time));
        // With several threads left the old tid is unknown: exit records were lost.
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

    /// Handles a loss of records on a CPU, in any ring.
    pub fn lost_to_all(&mut self, window: LostWindow) {
        self.lost_to((0..self.views.len()).collect(), window);
    }

    fn lost_to(&mut self, views: Vec<usize>, window: LostWindow) {
        self.loss.window(window);
        self.ctx.user_stacks.forget(window.cpu); // the sample of the kept window may be lost
        views.into_iter().for_each(|view| self.lost_to_view(view, window, LostKinds::Any));
    }

    fn lost_to_view(&mut self, view: usize, window: LostWindow, kinds: LostKinds<'_>) {
        self.views.count_loss(view, |loss| loss.window(window));
        self.notify_view(view, Event::Lost(&window, kinds));
    }

    /// Handles that samples of the events `is_hidden` may have been hidden in `windows`, one per CPU.
    pub fn hidden(&mut self, is_hidden: impl Fn(&str) -> bool, windows: &[LostWindow]) {
        let mut events: BTreeMap<usize, Vec<EventId>> = BTreeMap::new();
        for (event, _) in self.evlist.iter().filter(|(_, evsel)| evsel.is_opened() && is_hidden(evsel.name())) {
            self.evlist.evsels.subscribers(event).for_each(|(view, event)| events.entry(view).or_default().push(event));
        }
        for &window in windows {
            self.loss.window(window);
            events.iter().for_each(|(view, events)| self.lost_to_view(*view, window, LostKinds::Events(events)));
        }
    }

    /// Compares the number of records, taken up to `complete_ns`, with counts read earlier.
    pub fn compare_counts(&mut self, complete_ns: Timestamp) {
        let known = [self.records.samples, self.loss.total(), self.records.malformed];
        self.unseen.compare_counts(complete_ns, known.into_iter().fold(0, u64::saturating_add));
    }

    /// Notifies the profilers of the counts of their events. Not if the run drops samples of other tasks, since the
    /// counts include these.
    pub fn notify_counts(&mut self) {
        for (cpu, event, counted) in self.evlist.take_counted() {
            if self.filter.is_on() {
                continue;
            }
            let subscribers: Vec<(usize, EventId)> = self.evlist.evsels.subscribers(event).collect();
            for (owner, event) in subscribers {
                self.notify_view(owner, Event::Counted { event, cpu, counted: &counted });
            }
        }
    }

    /// Notifies the profilers that events are enabled.
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

    /// Resends the stacks and mappings that the output has missed, once it keeps up again.
    fn resend_dropped(&mut self) {
        if let Some(gap) = self.ctx.output.end_gap() {
            self.ctx.spaces.renew_all();
            gap.first.into_iter().for_each(|first| self.ctx.stacks.forget_from(first));
        }
    }

    /// To be called between samples, after all records up to `now`.
    pub fn tick(&mut self, now: Timestamp) {
        self.resend_dropped();
        self.last_tick = TickOutcome::default();
        for index in 0..self.views.len() {
            if let Some(view) = self.views.enter(index, &mut self.ctx) {
                self.last_tick.merge(view.profiler.tick(now, &mut self.ctx));
            }
        }
        self.send_stacks();
        let are_many = |view| self.views.sums(view, &self.ctx).is_some_and(|sums| sums.weights.are_many());
        if (0..self.views.len()).any(are_many) && self.ctx.output.flush_all() {
            self.send_weights();
        }
        let is_run = !self.meter.as_ref().is_some_and(Meter::is_of_dry_run);
        for note in self.ctx.notes.drain(..).filter(|_| is_run) {
            self.ctx.output.note(note);
        }
    }

    /// Notifies the profilers that events are disabled. All records up to `now` were taken.
    pub fn stopped(&mut self, now: Timestamp) {
        self.notify(Event::Stopped { now });
        self.send_stacks();
    }

    /// After losses, compares the task table with /proc: tasks may have started, exited or changed their names unseen.
    pub fn check_tasks(&mut self, now: Timestamp) {
        let lost = self.loss.total().saturating_add(self.loss.side_total());
        self.task_check.compare(&mut self.ctx.tasks, lost, now);
    }

    /// Decides which CPUs hide their idle tasks, and reports them once.
    pub fn judge_idle(&mut self, now: Timestamp) {
        let missed = std::mem::take(&mut self.last_tick.missed_switches);
        if let Some(line) = self.idle.judge(&mut self.evlist, missed, now) {
            self.ctx.output.note(line);
        }
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
        let [of_run, in_doubt] = [self.unseen.verdict_of_run(), Verdict::Unsure];
        let Some(view) = self.views.iter_mut().nth(view) else { return JudgedInterval::default() };
        let missing = MissingCounts {
            lost: [
                view.loss.total(),
                view.loss.side_total(),
                view.loss.switches_total(),
                view.loss.windows_total(),
                self.records.malformed,
                self.unseen.missed_calls,
                self.unseen.hidden(),
                undecodable,
            ]
            .into_iter()
            .fold(0, u64::saturating_add),
            untracked,
            stacks: self.ctx.stacks.refused() + self.ctx.output.dropped_stacks(),
            discarded,
            late: self.records.late,
        };
        let (samples, before) = view.next_interval(missing);
        for table in &mut report.tables {
            let basis = table.rows.basis();
            let Some(verdict) = missing.verdict_on(basis, before) else { continue };
            let of_run = match basis {
                Basis::RunByRow if self.unseen.children_in_doubt() > 0 => in_doubt, // frees may be unseen
                _ => of_run,
            };
            table.verdict = table.verdict.and(verdict).and(of_run);
        }
        let of_interval = missing.since(before);
        let verdict = of_interval.verdict(false).and(of_run);
        JudgedInterval { verdict, samples, discarded: of_interval.discarded }
    }
}
