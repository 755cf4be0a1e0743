//! The tables: count and time of the periods in each state, and the number of tasks in it now.

use std::cmp::Reverse;
use std::hint::cold_path;

use rustc_hash::FxHashMap;

use crate::profilers::task_state::coverage;
use crate::report::{Column, Schema, Value, Verdict};
use crate::sched::{STATES, SchedState, States, Wakeup};
use crate::stats::Distribution;
use crate::task::Comm;

/// Durations of ended periods, by state.
pub type Distributions = [Distribution; STATES];
pub type ByThread = FxHashMap<i32, (Comm, Box<StateTimes>)>;

/// By state: the periods that ended in an interval, and the part of the interval that these and other periods took.
#[derive(Clone, Debug, Default)]
pub struct StateTimes {
    pub distributions: Distributions,
    /// The part of these periods in earlier intervals, ns. It is stored because it changes rarely, unlike the part in
    /// this interval.
    reported_before: [u128; STATES],
    /// The part of this interval in periods of unknown length, ns.
    of_no_length: [u64; STATES],
    /// The part of this interval in periods that may in fact be several, because of a loss, ns.
    pub unseen: [u64; STATES],
    unwoken: [Unwoken; STATES],
    /// The longest stretch of a thread on a CPU that ended or was interrupted, ns.
    pub stretch_ns: u64,
}

/// Number of waits whose wake-up went unseen; in the row of run delay, the number of delays that are missing because of
/// that.
#[derive(Clone, Copy, Debug, Default)]
struct Unwoken {
    all: u64,
    /// The waits after which the task may also have waited for a busy CPU.
    busy: u64,
}

/// A row: the periods of all tasks in a state, or those of one thread.
#[derive(Clone, Debug)]
pub struct StateRow {
    /// None: the row is about all tasks.
    thread: Option<(i32, Comm)>,
    state: SchedState,
    label: Value,
    /// Durations of the periods that ended.
    durations: Distribution,
    total_ns: u64,
    /// The longest period, including periods that go on.
    longest_ns: Option<u64>,
    /// The longest stretch of the thread on a CPU, in the row of R.
    stretch_ns: Option<u64>,
    /// Number of tasks in the state at the end of the interval, and the sum of their times in it.
    ongoing: Option<u64>,
    ongoing_ns: Option<u64>,
    /// Known time and whole lifetime, of the state or of the thread: both are summed over rows. Only one row of a
    /// thread has them, for all its rows. Both 0: unknown.
    known_ns: u64,
    lived_ns: u64,
    /// The known time of the thread, the same in each of its rows.
    seen_ns: u64,
    of_ns: u64,
    /// Text shows `seen` in this row, once per thread.
    says_seen: bool,
    /// Waits whose wake-up went unseen. None: impossible in this state.
    unwoken: Option<u64>,
    unwoken_busy: Option<u64>,
    /// Periods of unknown state, which may have been in this state.
    unknown: Option<u64>,
    /// Time that the thread waited in other states than S and I, ns: threads are ordered by it, and the rows of a
    /// thread stay together.
    cost_ns: u64,
}

/// A row for each state.
pub static STATES_OF_ALL: Schema<StateRow> = Schema::<StateRow>::new("states", COLUMNS.split_at(2).1)
    .explained(MEANINGS)
    .settled(settle)
    .judged(StateRow::verdict);

/// A row for each thread and state: the threads first that have waited longest in other states than S and I.
pub static STATES_OF_THREADS: Schema<StateRow> = Schema::<StateRow>::new("threads", COLUMNS)
    .ordered(|one, other| {
        let rank = |row: &StateRow| (Reverse(row.cost_ns), row.thread, row.state);
        rank(one).cmp(&rank(other))
    })
    .settled(settle)
    .explained(MEANINGS)
    .judged(StateRow::verdict);

const MEANINGS: &[(&str, &str)] = &[
    ("state", "R, S, D, T, t, I or RD; `?` of a thread without any event so far"),
    ("count", "periods that ended in the interval"),
    (
        "total_ns",
        "how much of the interval tasks spent in the state, summed: also in periods that go on, or began before the start",
    ),
    ("min_ns", "the shortest that ended"),
    ("p50_ns", "half of those that ended were no longer; off by 2.2 % at most, as all percentiles"),
    ("p95_ns", "95 of 100"),
    ("p99_ns", "99 of 100"),
    ("max_ns", "the longest; of those that go on, so far"),
    (
        "stretch_ns",
        "only of the R of a thread: its longest time on a CPU until it waited, without the time for which it was preempted",
    ),
    ("longest", "`max_ns`; of the R of a thread `stretch_ns`"),
    ("ongoing", "tasks that are in the state as the interval ends"),
    ("seen", "where time is missing: `seen_ns` of `of_ns`, with threads once for each"),
    ("seen_ns", "only where time is missing: so much of the time of the state, or of the thread, is known"),
    ("of_ns", "and so much there is"),
    ("ongoing_ns", "how long those of `ongoing` are in the state so far, summed; not before the run began"),
    ("unwoken", "only where tasks are hidden: waits whose wake-up went unseen"),
    ("unwoken_busy", "those of them that may have waited for a busy CPU"),
    ("unknown", "periods that may have been of this state"),
    ("duration_ns", "how long the periods were that ended"),
];

const COLUMNS: &[Column<StateRow>] = &[
    Column::label("tid", "tid", |row| row.thread.map_or(Value::None, |(tid, _)| Value::Signed(tid.into()))),
    Column::label("comm", "comm", |row| row.thread.map_or(Value::None, |(_, comm)| Value::Comm(comm))),
    Column::label("state", "state", |row| row.label.clone()),
    Column::<StateRow>::derived("count", "count", |row, _| Value::Unsigned(row.durations.count())).additive(),
    Column::<StateRow>::counter("total_ns", "total ms", |row| &mut row.total_ns).ns(),
    Column::derived("min_ns", "min ms", |row, _| row.measured(row.durations.min())),
    Column::derived("p50_ns", "p50 ms", |row, _| row.measured(row.durations.quantile(0.50))),
    Column::derived("p95_ns", "p95 ms", |row, _| row.measured(row.durations.quantile(0.95))),
    Column::derived("p99_ns", "p99 ms", |row, _| row.measured(row.durations.quantile(0.99))),
    Column::<StateRow>::greatest("max_ns", "", |row| &mut row.longest_ns).ns().json_only(),
    Column::<StateRow>::greatest("stretch_ns", "", |row| &mut row.stretch_ns).ns().json_only(),
    Column::<StateRow>::derived("longest", "max ms", |row, _| row.longest()).text_only(),
    Column::gauge("ongoing", "now", |row| &mut row.ongoing),
    // The text cell says `seen` itself, so it has no heading.
    Column::<StateRow>::derived("seen", " ", |row, _| row.seen_in_words()).text_only(),
    Column::<StateRow>::derived("seen_ns", "", |row, _| row.if_partly_seen(row.seen_ns)).json_only(),
    Column::<StateRow>::derived("of_ns", "", |row, _| row.if_partly_seen(row.of_ns)).json_only(),
    Column::<StateRow>::gauge("ongoing_ns", "", |row| &mut row.ongoing_ns).ns().json_only(),
    Column::<StateRow>::known_counter("unwoken", "", |row| &mut row.unwoken).json_only(),
    Column::<StateRow>::known_counter("unwoken_busy", "", |row| &mut row.unwoken_busy).json_only(),
    Column::<StateRow>::known_counter("unknown", "", |row| &mut row.unknown).json_only(),
    Column::<StateRow>::distribution("duration_ns", |row| &mut row.durations).ns(),
    Column::<StateRow>::counter("known_ns", "", |row| &mut row.known_ns).ns().hidden(),
    Column::<StateRow>::counter("lived_ns", "", |row| &mut row.lived_ns).ns().hidden(),
];

/// Fills in the columns about the thread from all of its rows, and how many tasks are in the state now: not every
/// interval has a row for each state, and a state without a row in the last interval has no task now.
fn settle(rows: &mut [StateRow]) {
    let mut threads: FxHashMap<i32, Whole> = FxHashMap::default();
    for row in rows.iter() {
        let Some(thread) = row.thread else { continue };
        let none = Whole { known_ns: 0, lived_ns: 0, cost_ns: 0, first: (thread.1, row.state) };
        let whole = threads.entry(thread.0).or_insert(none);
        whole.known_ns = whole.known_ns.saturating_add(row.known_ns);
        whole.lived_ns = whole.lived_ns.saturating_add(row.lived_ns);
        whole.cost_ns = whole.cost_ns.saturating_add(row.cost_of_its_own());
        whole.first = whole.first.min((thread.1, row.state));
    }
    for row in rows {
        let of_thread = row.thread.and_then(|(tid, comm)| threads.get(&tid).map(|whole| (comm, whole)));
        (row.seen_ns, row.of_ns) = (row.known_ns, row.lived_ns);
        if !row.is_unknown() {
            (row.ongoing, row.ongoing_ns) = (row.ongoing.or(Some(0)), row.ongoing_ns.or(Some(0)));
        }
        if let Some((comm, whole)) = of_thread {
            (row.seen_ns, row.of_ns, row.cost_ns) = (whole.known_ns, whole.lived_ns, whole.cost_ns);
            row.says_seen = whole.first == (comm, row.state);
        }
    }
}

/// The sums of a thread over its rows.
struct Whole {
    known_ns: u64,
    lived_ns: u64,
    cost_ns: u64,
    /// Index of the first row.
    first: (Comm, SchedState),
}

/// Shown as the state of a thread whose state is unknown.
const UNKNOWN: Value = Value::Word("?");

impl StateRow {
    fn is_unknown(&self) -> bool {
        self.label == UNKNOWN
    }

    fn cost_of_its_own(&self) -> u64 {
        let is_asked_for = [SchedState::RUNNING, SchedState::SLEEP, SchedState::IDLE].contains(&self.state);
        if is_asked_for { 0 } else { self.total_ns }
    }

    /// Of the R of a thread, the longest stretch counts.
    fn longest(&self) -> Value {
        self.stretch_ns.max(self.longest_ns).map_or(Value::None, Value::Ns)
    }

    fn measured(&self, ns: u64) -> Value {
        if self.durations.is_empty() { Value::None } else { Value::Ns(ns) }
    }

    fn if_partly_seen(&self, ns: u64) -> Value {
        if self.seen_ns < self.of_ns { Value::Ns(ns) } else { Value::None }
    }

    fn seen_in_words(&self) -> Value {
        let words = coverage::words(self.seen_ns, self.of_ns).filter(|_| self.says_seen && self.seen_ns < self.of_ns);
        words.map_or(Value::None, |words| Value::Text(words.into()))
    }

    /// The verdict of a row when nothing was lost.
    fn verdict(&self) -> Verdict {
        if [self.unwoken_busy, self.unknown].iter().any(|count| count.is_some_and(|count| count > 0)) {
            Verdict::Discarded
        } else if self.unwoken.is_some() {
            Verdict::Estimate
        } else {
            Verdict::Exact
        }
    }
}

impl StateTimes {
    /// A period ended. The interval began at `from`.
    #[inline(always)]
    pub fn record(&mut self, state: SchedState, since: u64, until: u64, from: u64) {
        let length = until.saturating_sub(since);
        self.distributions[state.index()].record(length);
        if since < from {
            cold_path(); // once per task and interval
            self.reported_before[state.index()] += u128::from(length - until.saturating_sub(from));
        }
    }

    /// A period ended that began before the run.
    #[inline(always)]
    pub fn take_up(&mut self, state: SchedState, since: u64, until: u64, from: u64) {
        let sum = &mut self.of_no_length[state.index()];
        *sum = sum.saturating_add(until.saturating_sub(since.max(from)));
    }

    /// A period was discarded.
    pub fn take_unseen(&mut self, state: SchedState, since: u64, until: u64, from: u64) {
        let sum = &mut self.unseen[state.index()];
        *sum = sum.saturating_add(until.saturating_sub(since.max(from)));
    }

    /// Time in all states, ns.
    pub fn all_states(&self) -> u64 {
        self.totals().into_iter().fold(0, u64::saturating_add)
    }

    /// By state, ns of the periods in this interval, without what earlier tables have shown.
    pub fn totals(&self) -> [u64; STATES] {
        std::array::from_fn(|at| {
            let ended = self.distributions[at].sum().saturating_sub(self.reported_before[at]);
            u64::try_from(ended).unwrap_or(u64::MAX).saturating_add(self.of_no_length[at])
        })
    }

    /// By state, the numbers of all unseen wake-ups and of those with a busy CPU.
    #[cfg(test)]
    pub fn unwoken(&self) -> [(u64, u64); STATES] {
        self.unwoken.map(|unwoken| (unwoken.all, unwoken.busy))
    }

    /// A wait in `state` had no visible wake-up; the run delay that follows it is missing.
    pub fn note_unwoken(&mut self, state: SchedState, wakeup: Wakeup) {
        for state in [state, SchedState::RUN_DELAY] {
            let unwoken = &mut self.unwoken[state.index()];
            unwoken.all += u64::from(wakeup != Wakeup::Seen);
            unwoken.busy += u64::from(wakeup == Wakeup::Unseen);
        }
    }
}

/// Tasks that are in a state at the end of the interval.
#[derive(Clone, Copy, Debug, Default)]
struct GoingOn {
    count: u64,
    /// Sum of their times in the state, ns.
    ns: u64,
    longest_ns: u64,
    /// The part of `ns` in the interval, ns.
    in_interval_ns: u64,
}

type Ongoing = [GoingOn; STATES];

impl GoingOn {
    fn add(&mut self, ns: u64, in_interval_ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
        self.in_interval_ns = self.in_interval_ns.saturating_add(in_interval_ns);
    }
}

/// Adds the periods that go on, and builds the rows.
pub struct TimeTable<'a, F> {
    states: &'a States,
    selects: F,
    ongoing: FxHashMap<i32, (Comm, Ongoing)>,
    all: Ongoing,
    /// Some wake-ups are hidden from events.
    hides: bool,
    /// By thread, the number of periods that may have been in any state but R.
    lapses: FxHashMap<i32, u64>,
    /// Missing time by state, where there is a row per state.
    unseen: [u64; STATES],
    /// Lifetimes of the threads in the interval, where there are rows per thread.
    lives: FxHashMap<i32, (Comm, u64)>,
}

impl<'a, F: Fn(SchedState) -> bool> TimeTable<'a, F> {
    pub fn new(states: &'a States, selects: F, hides: bool, lapses: FxHashMap<i32, u64>) -> TimeTable<'a, F> {
        TimeTable {
            states,
            selects,
            ongoing: FxHashMap::default(),
            all: Ongoing::default(),
            hides,
            lapses,
            unseen: [0; STATES],
            lives: FxHashMap::default(),
        }
    }

    /// Sets the missing time by state, and the lifetimes of threads.
    pub fn cover(&mut self, unseen: [u64; STATES], lives: FxHashMap<i32, (Comm, u64)>) {
        (self.unseen, self.lives) = (unseen, lives);
    }

    /// Time of the interval in periods that go on, ns.
    pub fn ongoing_ns(&self) -> u64 {
        sum_of(&self.all)
    }

    /// A thread has been in `state` for `ns`, of which `in_interval_ns` are in the interval.
    pub fn goes_on(&mut self, tid: i32, comm: Comm, state: SchedState, ns: u64, in_interval_ns: u64) {
        let at = state.index();
        self.all[at].add(ns, in_interval_ns);
        self.ongoing.entry(tid).or_insert((comm, Ongoing::default())).1[at].add(ns, in_interval_ns);
    }

    /// A row per state.
    pub fn rows(&self, times: &mut StateTimes) -> Vec<StateRow> {
        let seen_of = |at: usize, total: u64| (total, total.saturating_add(self.unseen[at]));
        self.rows_of(None, times, &self.all, self.lapses.values().sum(), seen_of)
    }

    /// A row per thread and state.
    pub fn rows_by_thread(&self, threads: &mut ByThread) -> Vec<StateRow> {
        let mut tids: Vec<i32> = threads.keys().chain(self.ongoing.keys()).chain(self.lives.keys()).copied().collect();
        tids.sort_unstable();
        tids.dedup();
        let mut rows = Vec::new();
        for tid in tids {
            let mut known = threads.remove(&tid);
            let life = self.lives.get(&tid).copied();
            let ongoing = self.ongoing.get(&tid).copied();
            let comms = [known.as_ref().map(|known| known.0), ongoing.map(|both| both.0), life.map(|life| life.0)];
            let thread = Some((tid, comms.into_iter().flatten().next().unwrap_or_default()));
            let ongoing = ongoing.map(|both| both.1).unwrap_or_default();
            let seen_ns = known.as_ref().map_or(0, |(_, times)| times.all_states()).saturating_add(sum_of(&ongoing));
            let seen_of = life.map_or((0, 0), |(_, of_ns)| (seen_ns, of_ns.max(seen_ns)));
            let lapses = self.lapses.get(&tid).copied().unwrap_or(0);
            let mut none = StateTimes::default();
            let times = known.as_mut().map_or(&mut none, |(_, times)| times);
            let mut of_thread = self.rows_of(thread, times, &ongoing, lapses, |_, _| (0, 0));
            if of_thread.is_empty() && seen_of.0 < seen_of.1 {
                of_thread.push(StateRow { thread, ..StateRow::unknown() });
            }
            if let Some(first) = of_thread.first_mut() {
                (first.known_ns, first.lived_ns) = seen_of;
            }
            rows.append(&mut of_thread);
        }
        rows
    }

    /// `seen_of`: the known and the whole time of a state with this total time, ns.
    fn rows_of(
        &self,
        thread: Option<(i32, Comm)>,
        times: &mut StateTimes,
        ongoing: &Ongoing,
        lapses: u64,
        seen_of: impl Fn(usize, u64) -> (u64, u64),
    ) -> Vec<StateRow> {
        let mut rows = Vec::new();
        let totals = times.totals();
        let stretch_ns = thread.map(|_| times.stretch_ns).filter(|ns| *ns > 0);
        for (at, &GoingOn { count, ns, longest_ns, in_interval_ns }) in ongoing.iter().enumerate() {
            let state = SchedState::at(at);
            let durations = &times.distributions[at];
            let total_ns = totals[at].saturating_add(in_interval_ns);
            let (seen_ns, of_ns) = seen_of(at, total_ns);
            let is_missing = thread.is_none() && of_ns > seen_ns;
            if (durations.is_empty() && count == 0 && total_ns == 0 && !is_missing) || !(self.selects)(state) {
                continue;
            }
            let Unwoken { all, busy } = times.unwoken[at];
            // A waiting task may already have been woken unseen.
            let may_be_woken =
                self.hides && (state == SchedState::RUN_DELAY || state != SchedState::RUNNING && count > 0);
            let longest_ended = (!durations.is_empty()).then(|| durations.max());
            rows.push(StateRow {
                thread,
                state,
                label: self.states.label(state),
                durations: std::mem::take(&mut times.distributions[at]),
                total_ns,
                longest_ns: longest_ended.max((count > 0).then_some(longest_ns)),
                stretch_ns: stretch_ns.filter(|_| state == SchedState::RUNNING),
                ongoing: Some(count),
                ongoing_ns: Some(ns),
                known_ns: seen_ns,
                lived_ns: of_ns,
                seen_ns: 0,
                of_ns: 0,
                says_seen: true,
                unwoken: (all > 0 || may_be_woken).then_some(all),
                unwoken_busy: (busy > 0).then_some(busy),
                unknown: (lapses > 0 && state != SchedState::RUNNING).then_some(lapses),
                cost_ns: 0,
            });
        }
        rows
    }
}

impl StateRow {
    /// The row of a thread without any known period.
    fn unknown() -> StateRow {
        StateRow {
            thread: None,
            state: SchedState::RUNNING,
            label: UNKNOWN,
            durations: Distribution::new(),
            total_ns: 0,
            longest_ns: None,
            stretch_ns: None,
            ongoing: None,
            ongoing_ns: None,
            known_ns: 0,
            lived_ns: 0,
            seen_ns: 0,
            of_ns: 0,
            says_seen: true,
            unwoken: None,
            unwoken_busy: None,
            unknown: None,
            cost_ns: 0,
        }
    }
}

fn sum_of(ongoing: &Ongoing) -> u64 {
    ongoing.iter().fold(0, |sum: u64, state| sum.saturating_add(state.in_interval_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{RowSums, Rows, TypedRows};
    use crate::sched::states_fixture::{NEW, sched_switch};

    #[test]
    fn rows_have_what_ended_and_what_goes_on() {
        let states = States::new(&sched_switch(NEW.0, NEW.1)).unwrap();
        let comm = Comm::new(b"t");
        let mut threads = ByThread::default();
        threads.entry(7).or_insert((comm, Box::new(StateTimes::default()))).1.record(SchedState::DISK, 100, 105, 102);
        let mut table = TimeTable::new(&states, |state| state != SchedState::RUNNING, false, FxHashMap::default());
        table.goes_on(7, comm, SchedState::SLEEP, 30, 30);
        table.goes_on(8, comm, SchedState::DISK, 40, 15);
        table.goes_on(9, comm, SchedState::RUNNING, 50, 50); // not a selected state
        let brief = |row: &StateRow| {
            let seen_of = (row.seen_ns < row.of_ns).then_some((row.seen_ns, row.of_ns));
            (row.thread.unwrap().0, row.label.clone(), row.durations.count(), row.total_ns, row.longest_ns, seen_of)
        };
        let settled = |mut rows: Vec<StateRow>| {
            settle(&mut rows);
            rows
        };
        let rows = settled(table.rows_by_thread(&mut threads.clone()));
        let row = |tid, state, count, total, longest| (tid, Value::Word(state), count, total, Some(longest), None);
        let want = [row(7, "S", 0, 30, 30), row(7, "D", 1, 3, 5), row(8, "D", 0, 15, 40)];
        assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), want);
        assert_eq!(
            rows.iter().map(|row| (row.ongoing.unwrap(), row.cost_ns)).collect::<Vec<_>>(),
            [(1, 3), (0, 3), (1, 15)]
        );
        assert_eq!(TypedRows::new(&STATES_OF_THREADS, rows).order(), [2, 0, 1]);
        // A thread without events, a thread whose time is all known, and one of which too little is known.
        table.cover([0; STATES], [(5, (comm, 60)), (7, (comm, 33)), (8, (comm, 20))].into_iter().collect());
        let rows = settled(table.rows_by_thread(&mut threads));
        let brief = |row: &StateRow| (row.thread.unwrap().0, row.label.clone(), row.seen_ns, row.of_ns);
        let row = |tid, state, seen_ns, of_ns| (tid, Value::Word(state), seen_ns, of_ns);
        let want = [row(5, "?", 0, 60), row(7, "S", 33, 33), row(7, "D", 33, 33), row(8, "D", 15, 20)];
        assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), want);
        let ongoing: Vec<_> =
            table.rows(&mut StateTimes::default()).iter().map(|row| row.ongoing_ns.unwrap()).collect();
        assert_eq!(ongoing, [30, 40]);
    }

    /// Thread 7 is in D in the second interval only, and then has a higher cost than 8: its rows stay together, and
    /// each has the known time of the thread in both intervals.
    #[test]
    fn rows_of_a_thread_stand_together_over_the_whole_run() {
        let states = States::new(&sched_switch(NEW.0, NEW.1)).unwrap();
        let comm = Comm::new(b"t");
        let mut sums: RowSums<()> = RowSums::new(&TypedRows::new(&STATES_OF_THREADS, Vec::new()), 100, usize::MAX);
        for (of_7, of_8) in [
            (&[SchedState::SLEEP][..], SchedState::DISK),
            (&[SchedState::RUNNING, SchedState::DISK], SchedState::SLEEP),
        ] {
            let mut table = TimeTable::new(&states, |_| true, false, FxHashMap::default());
            let mut threads = ByThread::default();
            let mut times = |tid, state, ns| {
                threads.entry(tid).or_insert((comm, Box::new(StateTimes::default()))).1.record(state, 0, ns, 0);
            };
            of_7.iter().for_each(|state| times(7, *state, 20));
            times(8, of_8, 15);
            table.cover([0; STATES], [(7, (comm, 50)), (8, (comm, 15))].into_iter().collect());
            let mut rows = TypedRows::new(&STATES_OF_THREADS, table.rows_by_thread(&mut threads));
            sums.rows().forget_gauges();
            for at in 0..rows.len() {
                sums.add(&mut rows, at, ());
            }
        }
        sums.settle();
        let order = sums.order();
        let rows = sums.rows().as_any().downcast_ref::<TypedRows<StateRow>>().unwrap().rows();
        let brief = |at: usize| {
            let row = &rows[at];
            assert_eq!((row.ongoing, row.ongoing_ns), (Some(0), Some(0)), "also where the last interval has no row");
            (row.thread.unwrap().0, row.state, row.seen_ns, row.of_ns, row.says_seen)
        };
        let want = [
            (7, SchedState::RUNNING, 60, 100, true),
            (7, SchedState::SLEEP, 60, 100, false),
            (7, SchedState::DISK, 60, 100, false),
            (8, SchedState::SLEEP, 30, 30, true),
            (8, SchedState::DISK, 30, 30, false),
        ];
        assert_eq!(order.into_iter().map(brief).collect::<Vec<_>>(), want);
    }
}
