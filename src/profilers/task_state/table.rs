//! The tables: how often and how long tasks were in each state, and how many are in it now.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::states::{STATES, State, States};
use crate::stats::Histogram;
use crate::stats::value::{Column, Value};
use crate::task::Comm;

/// Durations of ended periods, by state.
pub type Histograms = [Histogram; STATES];
pub type ByThread = FxHashMap<i32, (Comm, Box<Histograms>)>;

pub static COLUMNS: [Column; 10] = MEASURES;

/// The same for each thread.
pub static THREAD_COLUMNS: [Column; 12] = {
    let mut columns = [Column { key: "tid", heading: "tid" }; 12];
    columns[1] = Column { key: "comm", heading: "comm" };
    let mut at = 0;
    while at < MEASURES.len() {
        columns[at + 2] = MEASURES[at];
        at += 1;
    }
    columns
};

const MEASURES: [Column; 10] = [
    Column { key: "state", heading: "state" },
    Column { key: "count", heading: "count" },
    Column { key: "total_ns", heading: "total ms" },
    Column { key: "min_ns", heading: "min ms" },
    Column { key: "p50_ns", heading: "p50 ms" },
    Column { key: "p95_ns", heading: "p95 ms" },
    Column { key: "p99_ns", heading: "p99 ms" },
    Column { key: "max_ns", heading: "max ms" },
    Column { key: "ongoing", heading: "now" },
    Column { key: "ongoing_ns", heading: "" },
];

pub fn empty() -> Histograms {
    [const { Histogram::new() }; STATES]
}

/// Tasks in each state at the end of the interval, and their time in it so far, ns.
type Ongoing = [(u64, u64); STATES];

/// Gathers what goes on, and lays out the rows.
pub struct TimeTable<'a, F> {
    states: &'a States,
    selects: F,
    ongoing: FxHashMap<i32, (Comm, Ongoing)>,
    all: Ongoing,
}

impl<'a, F: Fn(State) -> bool> TimeTable<'a, F> {
    pub fn new(states: &'a States, selects: F) -> TimeTable<'a, F> {
        TimeTable { states, selects, ongoing: FxHashMap::default(), all: [(0, 0); STATES] }
    }

    /// A thread has been in `state` for `ns`.
    pub fn goes_on(&mut self, tid: i32, comm: Comm, state: State, ns: u64) {
        let at = state.index();
        self.all[at].0 += 1;
        self.all[at].1 += ns;
        self.ongoing.entry(tid).or_insert((comm, [(0, 0); STATES])).1[at] = (1, ns);
    }

    /// A row per state.
    pub fn rows(&self, histograms: &Histograms) -> Vec<Vec<Value>> {
        let mut rows = Vec::new();
        self.add_rows(histograms, &self.all, &[], &mut rows);
        rows
    }

    /// A row per thread and state, by tid.
    pub fn rows_by_thread(&self, threads: &ByThread) -> Vec<Vec<Value>> {
        let mut tids: Vec<i32> = threads.keys().chain(self.ongoing.keys()).copied().collect();
        tids.sort_unstable();
        tids.dedup();
        let mut rows = Vec::new();
        let none = empty();
        for tid in tids {
            let (known, histograms) = threads.get(&tid).map_or((None, &none), |(comm, all)| (Some(*comm), all));
            let (comm, ongoing) = self.ongoing.get(&tid).copied().unwrap_or((Comm::default(), [(0, 0); STATES]));
            let head = [Value::Signed(tid.into()), Value::Comm(known.unwrap_or(comm))];
            self.add_rows(histograms, &ongoing, &head, &mut rows);
        }
        rows
    }

    fn add_rows(&self, histograms: &Histograms, ongoing: &Ongoing, head: &[Value], into: &mut Vec<Vec<Value>>) {
        for (at, histogram) in histograms.iter().enumerate() {
            let (count, ns) = ongoing[at];
            let state = State::at(at);
            if (histogram.is_empty() && count == 0) || !(self.selects)(state) {
                continue;
            }
            let [p50, p95, p99] = histogram.quantiles([0.50, 0.95, 0.99]);
            let measured = |value: u64| if histogram.is_empty() { Value::None } else { Value::Ns(value) };
            let mut row = head.to_vec();
            row.extend([
                self.states.label(state),
                Value::Unsigned(histogram.count()),
                Value::Ns(u64::try_from(histogram.sum()).unwrap_or(u64::MAX)),
                measured(histogram.min()),
                measured(p50),
                measured(p95),
                measured(p99),
                measured(histogram.max()),
                Value::Unsigned(count),
                Value::Ns(ns),
            ]);
            into.push(row);
        }
    }
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
        threads.entry(7).or_insert((comm, Box::new(empty()))).1[State::DISK.index()].record(5);
        let mut table = TimeTable::new(&states, |state| state != State::RUNNING);
        table.goes_on(7, comm, State::SLEEP, 30);
        table.goes_on(8, comm, State::DISK, 40);
        table.goes_on(9, comm, State::RUNNING, 50); // not selected
        let brief: Vec<(Value, Value, Value, Value)> = table
            .rows_by_thread(&threads)
            .into_iter()
            .map(|row| (row[0].clone(), row[2].clone(), row[3].clone(), row[10].clone()))
            .collect();
        let row = |tid, state, count, now| {
            (Value::Signed(tid), Value::Word(state), Value::Unsigned(count), Value::Unsigned(now))
        };
        assert_eq!(brief, [row(7, "S", 0, 1), row(7, "D", 1, 0), row(8, "D", 0, 1)]);
        let sums: Vec<Value> = table.rows(&empty()).iter().map(|row| row[9].clone()).collect();
        assert_eq!(sums, [Value::Ns(30), Value::Ns(40)]);
    }
}
