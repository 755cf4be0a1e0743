//! The tables: how often and how long tasks were in each state, and how many are in it now.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::coverage;
use crate::profilers::task_state::machine::Wakeup;
use crate::profilers::task_state::states::{STATES, State, States};
use crate::report::{Column, RowDoubts, Value};
use crate::stats::Histogram;
use crate::task::Comm;

/// Durations of ended periods, by state.
pub type Histograms = [Histogram; STATES];
pub type ByThread = FxHashMap<i32, (Comm, Box<Times>)>;

/// By state, the periods that ended in an interval, and how much of it they and others took up.
#[derive(Debug)]
pub struct Times {
    pub histograms: Histograms,
    /// Of each period what lies in the interval, ns: not what a table before has told already. Also of those whose length is
    /// not known.
    totals: [u64; STATES],
    /// The same of periods that may have ended, and others begun, in a loss.
    pub unseen: [u64; STATES],
    unwoken: [Unwoken; STATES],
}

/// Waits whose wake-up went unseen; of run delay, how many of it are missing for that.
#[derive(Clone, Copy, Debug, Default)]
struct Unwoken {
    all: u64,
    /// Of them, those that may have waited for a CPU that had something else to do.
    busy: u64,
}

pub static COLUMNS: [Column; MEASURED] = MEASURES;

/// The same for each thread.
pub static THREAD_COLUMNS: [Column; MEASURED + 2] = {
    let mut columns = [Column { key: "tid", heading: "tid" }; MEASURED + 2];
    columns[1] = Column { key: "comm", heading: "comm" };
    let mut at = 0;
    while at < MEASURES.len() {
        columns[at + 2] = MEASURES[at];
        at += 1;
    }
    columns
};

const MEASURED: usize = 16;

const MEASURES: [Column; MEASURED] = [
    Column { key: "state", heading: "state" },
    Column { key: "count", heading: "count" },
    Column { key: "total_ns", heading: "total ms" },
    Column { key: "min_ns", heading: "min ms" },
    Column { key: "p50_ns", heading: "p50 ms" },
    Column { key: "p95_ns", heading: "p95 ms" },
    Column { key: "p99_ns", heading: "p99 ms" },
    Column { key: "max_ns", heading: "max ms" },
    Column { key: "ongoing", heading: "now" },
    // In words; no more than these stand above it.
    Column { key: "", heading: " " },
    Column { key: "seen_ns", heading: "" },
    Column { key: "of_ns", heading: "" },
    Column { key: "ongoing_ns", heading: "" },
    Column { key: "unwoken", heading: "" },
    Column { key: "unwoken_busy", heading: "" },
    Column { key: "unknown", heading: "" },
];

/// The columns, from the last, that say how far a row can be trusted.
pub fn doubts(columns: &[Column]) -> RowDoubts {
    let [estimate, busy, unknown] = [3, 2, 1].map(|from_end| columns.len() - from_end);
    RowDoubts { estimate, discarded: [busy, unknown] }
}

impl Times {
    pub const fn new() -> Times {
        Times {
            histograms: [const { Histogram::new() }; STATES],
            totals: [0; STATES],
            unseen: [0; STATES],
            unwoken: [Unwoken { all: 0, busy: 0 }; STATES],
        }
    }

    pub fn clear(&mut self) {
        self.histograms.iter_mut().for_each(Histogram::clear);
        self.totals = [0; STATES];
        self.unseen = [0; STATES];
        self.unwoken = Default::default();
    }

    /// A period ended. The interval began at `from`.
    #[inline(always)]
    pub fn record(&mut self, state: State, since: u64, until: u64, from: u64) {
        self.histograms[state.index()].record(until.saturating_sub(since));
        self.take_up(state, since, until, from);
    }

    /// The same of one that began before anybody looked.
    #[inline(always)]
    pub fn take_up(&mut self, state: State, since: u64, until: u64, from: u64) {
        let total = &mut self.totals[state.index()];
        *total = total.saturating_add(until.saturating_sub(since.max(from)));
    }

    /// The same of one that is thrown away.
    pub fn take_unseen(&mut self, state: State, since: u64, until: u64, from: u64) {
        let sum = &mut self.unseen[state.index()];
        *sum = sum.saturating_add(until.saturating_sub(since.max(from)));
    }

    /// Time in any state.
    pub fn all_states(&self) -> u64 {
        self.totals.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns))
    }

    #[cfg(test)]
    pub fn totals(&self) -> [u64; STATES] {
        self.totals
    }

    /// By state, of all and of busy CPUs.
    #[cfg(test)]
    pub fn unwoken(&self) -> [(u64, u64); STATES] {
        self.unwoken.map(|unwoken| (unwoken.all, unwoken.busy))
    }

    /// A wait in `state` had no wake-up that was seen; the run delay behind it is missing.
    pub fn note_unwoken(&mut self, state: State, wakeup: Wakeup) {
        for state in [state, State::RUN_DELAY] {
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
    /// How long they are in it, ns.
    ns: u64,
    longest_ns: u64,
    /// How much of that lies in the interval.
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

/// Gathers what goes on, and lays out the rows.
pub struct TimeTable<'a, F> {
    states: &'a States,
    selects: F,
    ongoing: FxHashMap<i32, (Comm, Ongoing)>,
    all: Ongoing,
    /// Some wake-ups are hidden.
    hides: bool,
    /// By thread, periods that may have been of any state but R.
    lapses: FxHashMap<i32, u64>,
    /// What is missing of each state, where there is a row for each.
    unseen: [u64; STATES],
    /// How long threads have lived in the interval, where there are rows for each of them.
    lives: FxHashMap<i32, (Comm, u64)>,
}

impl<'a, F: Fn(State) -> bool> TimeTable<'a, F> {
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

    /// So much time is missing by state, and so long threads have lived.
    pub fn cover(&mut self, unseen: [u64; STATES], lives: FxHashMap<i32, (Comm, u64)>) {
        (self.unseen, self.lives) = (unseen, lives);
    }

    /// How much of the interval lies in what goes on.
    pub fn ongoing_ns(&self) -> u64 {
        sum_of(&self.all)
    }

    /// A thread has been in `state` for `ns`, of which so many lie in the interval.
    pub fn goes_on(&mut self, tid: i32, comm: Comm, state: State, ns: u64, in_interval_ns: u64) {
        let at = state.index();
        self.all[at].add(ns, in_interval_ns);
        self.ongoing.entry(tid).or_insert((comm, Ongoing::default())).1[at].add(ns, in_interval_ns);
    }

    /// A row per state.
    pub fn rows(&self, times: &Times) -> Vec<Vec<Value>> {
        let mut rows = Vec::new();
        self.add_rows(times, &self.all, self.lapses.values().sum(), &[], None, &mut rows);
        rows
    }

    /// A row per thread and state, by tid.
    pub fn rows_by_thread(&self, threads: &ByThread) -> Vec<Vec<Value>> {
        let mut tids: Vec<i32> = threads.keys().chain(self.ongoing.keys()).chain(self.lives.keys()).copied().collect();
        tids.sort_unstable();
        tids.dedup();
        let mut rows = Vec::new();
        let none = Times::new();
        for tid in tids {
            let (known, times) = threads.get(&tid).map_or((None, &none), |(comm, all)| (Some(*comm), all));
            let life = self.lives.get(&tid).copied();
            let (comm, ongoing) = match self.ongoing.get(&tid) {
                Some(ongoing) => *ongoing,
                None => (life.map_or_else(Comm::default, |life| life.0), Ongoing::default()),
            };
            let seen_ns = times.all_states().saturating_add(sum_of(&ongoing));
            let seen_of = life.map(|(_, of_ns)| (seen_ns, of_ns)).filter(|(seen_ns, of_ns)| seen_ns < of_ns);
            let head = [Value::Signed(tid.into()), Value::Comm(known.unwrap_or(comm))];
            let lapses = self.lapses.get(&tid).copied().unwrap_or(0);
            let before = rows.len();
            self.add_rows(times, &ongoing, lapses, &head, seen_of, &mut rows);
            if rows.len() == before && seen_of.is_some() {
                let mut row = head.to_vec();
                row.extend([Value::Word("?"), Value::Unsigned(0), Value::Ns(0)]);
                row.resize(head.len() + SEEN, Value::None);
                row.extend(seen_values(seen_of, true));
                row.resize(head.len() + MEASURED, Value::None);
                rows.push(row);
            }
        }
        rows
    }

    /// `seen_of`: of a thread; else each state has its own.
    fn add_rows(
        &self,
        times: &Times,
        ongoing: &Ongoing,
        lapses: u64,
        head: &[Value],
        seen_of: Option<(u64, u64)>,
        into: &mut Vec<Vec<Value>>,
    ) {
        let first = into.len();
        for (at, histogram) in times.histograms.iter().enumerate() {
            let GoingOn { count, ns, longest_ns, in_interval_ns } = ongoing[at];
            let state = State::at(at);
            let total = times.totals[at].saturating_add(in_interval_ns);
            let unseen = if head.is_empty() { self.unseen[at] } else { 0 };
            if (histogram.is_empty() && count == 0 && total == 0 && unseen == 0) || !(self.selects)(state) {
                continue;
            }
            let seen_of = if unseen > 0 { Some((total, total.saturating_add(unseen))) } else { seen_of };
            let [p50, p95, p99] = histogram.quantiles([0.50, 0.95, 0.99]);
            let measured = |value: u64| if histogram.is_empty() { Value::None } else { Value::Ns(value) };
            let Unwoken { all, busy } = times.unwoken[at];
            // Who waits may have been woken unseen already.
            let may_be_woken = self.hides && (state == State::RUN_DELAY || state != State::RUNNING && count > 0);
            let some = |count: u64, there: bool| if there { Value::Unsigned(count) } else { Value::None };
            let mut row = head.to_vec();
            row.extend([
                self.states.label(state),
                Value::Unsigned(histogram.count()),
                Value::Ns(total),
                measured(histogram.min()),
                measured(p50),
                measured(p95),
                measured(p99),
                if count > 0 { Value::Ns(histogram.max().max(longest_ns)) } else { measured(histogram.max()) },
                Value::Unsigned(count),
            ]);
            row.extend(seen_values(seen_of, head.is_empty() || into.len() == first));
            row.extend([
                Value::Ns(ns),
                some(all, all > 0 || may_be_woken),
                some(busy, busy > 0),
                some(lapses, lapses > 0 && state != State::RUNNING),
            ]);
            into.push(row);
        }
    }
}

/// Where they are among the columns of [`MEASURES`].
const SEEN: usize = 9;

/// How much of the time is known, in words too if these are shown.
fn seen_values(seen_of: Option<(u64, u64)>, shown: bool) -> [Value; 3] {
    let Some((seen_ns, of_ns)) = seen_of else { return [const { Value::None }; 3] };
    let words = coverage::words(seen_ns, of_ns).filter(|_| shown);
    [words.map_or(Value::None, |words| Value::Text(words.into())), Value::Ns(seen_ns), Value::Ns(of_ns)]
}

fn sum_of(ongoing: &Ongoing) -> u64 {
    ongoing.iter().fold(0, |sum: u64, state| sum.saturating_add(state.in_interval_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::task_state::states::tests::{NEW, sched_switch};

    #[test]
    fn rows_have_what_ended_and_what_goes_on() {
        let states = States::new(&sched_switch(NEW.0, NEW.1)).unwrap();
        let comm = Comm::new(b"t");
        let mut threads = ByThread::default();
        threads.entry(7).or_insert((comm, Box::new(Times::new()))).1.record(State::DISK, 100, 105, 102);
        let mut table = TimeTable::new(&states, |state| state != State::RUNNING, false, FxHashMap::default());
        table.goes_on(7, comm, State::SLEEP, 30, 30);
        table.goes_on(8, comm, State::DISK, 40, 15);
        table.goes_on(9, comm, State::RUNNING, 50, 50); // not selected
        // tid, state, count, total, the longest and those that go on
        let brief = |row: Vec<Value>| [0, 2, 3, 4, 9, 10].map(|at| row[at].clone());
        let brief: Vec<[Value; 6]> = table.rows_by_thread(&threads).into_iter().map(brief).collect();
        let row = |tid, state, count, total, max, now| {
            let count = Value::Unsigned(count);
            [Value::Signed(tid), Value::Word(state), count, Value::Ns(total), Value::Ns(max), Value::Unsigned(now)]
        };
        assert_eq!(brief, [row(7, "S", 0, 30, 30, 1), row(7, "D", 1, 3, 5, 0), row(8, "D", 0, 15, 40, 1)]);
        // One that is known to live, and of which nothing else is known; one of which all is; one of which too little is.
        table.cover([0; STATES], [(5, (comm, 60)), (7, (comm, 33)), (8, (comm, 20))].into_iter().collect());
        let rows = table.rows_by_thread(&threads);
        let brief: Vec<[Value; 4]> = rows.into_iter().map(|row| [0, 2, 12, 13].map(|at| row[at].clone())).collect();
        let row = |tid, state, seen_of: Option<(u64, u64)>| {
            let ns = |ns: Option<u64>| ns.map_or(Value::None, Value::Ns);
            [Value::Signed(tid), Value::Word(state), ns(seen_of.map(|both| both.0)), ns(seen_of.map(|both| both.1))]
        };
        let want = [row(5, "?", Some((0, 60))), row(7, "S", None), row(7, "D", None), row(8, "D", Some((15, 20)))];
        assert_eq!(brief, want);
        let sums: Vec<Value> = table.rows(&Times::new()).iter().map(|row| row[12].clone()).collect();
        assert_eq!(sums, [Value::Ns(30), Value::Ns(40)]);
    }
}
