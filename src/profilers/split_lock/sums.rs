//! The counts by CPU, and the samples by place.

use std::collections::BTreeMap;

use perf_event_open_sys::bindings as b;

use crate::perf::evlist::Counted;
use crate::report::{Basis, Column, Schema, Value};
use crate::stats::SumKey;
use crate::symbol::StackId;
use crate::task::Comm;

/// The count of a CPU in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountRow {
    pub cpu: u32,
    pub delta: u64,
    pub since_start: Option<u64>,
    /// The time for which the event counted; `enabled_ns`: the time for which it was wanted. Unknown if both are 0.
    pub running_ns: u64,
    pub enabled_ns: u64,
}

pub static COUNTS: Schema<CountRow> = Schema::<CountRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::gauge("count", "since start", |row| &mut row.since_start),
        Column::counter("delta", "counted", |row| &mut row.delta),
        Column::<CountRow>::counter("running_ns", "", |row| &mut row.running_ns).ns().hidden(),
        Column::<CountRow>::counter("enabled_ns", "", |row| &mut row.enabled_ns).ns().hidden(),
        Column::derived("run_pct", "% of time", |row, _| row.share().map_or(Value::None, Value::Pct)),
        Column::derived("estimate", "estimate", |row, _| row.estimate().map_or(Value::None, Value::Unsigned)),
    ],
)
.titled("CPUs, counted")
.explained(&[
    ("count", "counted since the start of the run"),
    ("delta", "counted in the interval"),
    ("run_pct", "how much of the time the event had a counter; less than 100 when there are more events than counters"),
    ("estimate", "only then: how many there would have been at the same pace in all of the time"),
])
.rests_on(Basis::Counters);

/// The place of samples: a task, and the address of its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodePlace {
    pub mode: Mode,
    pub comm: Comm,
    pub addr: u64,
    /// The function at `addr`: the same address may be other code in another process.
    pub stack: Option<StackId>,
}

impl SumKey for CodePlace {
    fn others(&self) -> CodePlace {
        CodePlace { mode: Mode::Unknown, comm: Comm::new(b"<others>"), addr: 0, stack: None }
    }
}

/// The samples at one place, and the events that they stand for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaceSum {
    samples: u64,
    events: u64,
}

impl PlaceSum {
    pub fn add(&mut self, events: u64) {
        self.samples += 1;
        self.events = self.events.saturating_add(events);
    }
}

pub static PLACES: Schema<(CodePlace, PlaceSum)> = Schema::<(CodePlace, PlaceSum)>::new(
    "places",
    &[
        Column::counter("samples", "samples", |(_, sum)| &mut sum.samples),
        Column::counter("events", "events", |(_, sum)| &mut sum.events),
        Column::label("mode", "mode", |(place, _)| Value::Word(place.mode.word())),
        Column::label("comm", "comm", |(place, _)| Value::Comm(place.comm)),
        Column::label("addr", "address", |(place, _)| Value::Address(place.addr)),
        Column::place("place", "function", |(place, _)| &mut place.stack),
    ],
)
.titled("where the samples were")
.explained(&[
    ("samples", "samples at this address"),
    ("events", "events that the samples stand for: `-T` times as many"),
    ("mode", "`user`, `kernel`, `guest-user`, `guest-kernel`, `hypervisor` or `unknown`"),
    ("addr", "address of the instruction"),
    ("place", "function at the address, or why it has no name"),
])
.ordered(|(one, few), (other, many)| {
    let name = |place: &CodePlace| (place.mode, place.comm, place.addr);
    many.samples.cmp(&few.samples).then(name(one).cmp(&name(other)))
});

/// The mode of a CPU when a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    User,
    Kernel,
    Hypervisor,
    GuestUser,
    GuestKernel,
    Unknown,
}

impl Mode {
    /// From `misc` in the header of a sample.
    pub fn of(misc: u16) -> Mode {
        match u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK {
            b::PERF_RECORD_MISC_USER => Mode::User,
            b::PERF_RECORD_MISC_KERNEL => Mode::Kernel,
            b::PERF_RECORD_MISC_HYPERVISOR => Mode::Hypervisor,
            b::PERF_RECORD_MISC_GUEST_USER => Mode::GuestUser,
            b::PERF_RECORD_MISC_GUEST_KERNEL => Mode::GuestKernel,
            _ => Mode::Unknown,
        }
    }

    /// True if addresses are those of this machine, not of a guest or hypervisor.
    pub fn is_here(self) -> bool {
        matches!(self, Mode::User | Mode::Kernel)
    }

    pub fn word(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Hypervisor => "hypervisor",
            Mode::GuestUser => "guest-user",
            Mode::GuestKernel => "guest-kernel",
            Mode::Unknown => "unknown",
        }
    }
}

/// The counters of an interval, by CPU.
#[derive(Debug, Default)]
pub struct CpuCounts(BTreeMap<u32, CpuCount>);

#[derive(Debug, Default)]
struct CpuCount {
    before: u64,
    now: Counted,
}

/// What the times of the counters refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterTimes {
    /// The times of each CPU.
    #[default]
    Cpus,
    /// The times of tasks, spread over all CPUs: the event of a task is wanted on all CPUs at once, and counts on one.
    Tasks,
    /// The times of tasks on only some CPUs.
    Unknown,
}

impl CpuCounts {
    pub fn add(&mut self, cpu: u32, counted: &Counted) {
        let now = &mut self.0.entry(cpu).or_default().now;
        now.count = now.count.saturating_add(counted.count);
        now.enabled_ns = now.enabled_ns.saturating_add(counted.enabled_ns);
        now.running_ns = now.running_ns.saturating_add(counted.running_ns);
    }

    /// Takes the rows out, of CPUs that counted something.
    pub fn take_rows(&mut self, times: CounterTimes) -> Vec<CountRow> {
        let sum = |of: fn(&Counted) -> u64| self.0.values().map(|count| of(&count.now)).fold(0, u64::saturating_add);
        let wanted = sum(|now| now.enabled_ns).checked_div(self.0.len() as u64).unwrap_or(0);
        let of_tasks = (sum(|now| now.running_ns), wanted);
        let row = |(&cpu, count): (&u32, &mut CpuCount)| {
            let Counted { count: delta, enabled_ns, running_ns, .. } = std::mem::take(&mut count.now);
            count.before = count.before.saturating_add(delta);
            let (running_ns, enabled_ns) = match times {
                CounterTimes::Cpus => (running_ns, enabled_ns),
                CounterTimes::Tasks => of_tasks,
                CounterTimes::Unknown => (0, 0),
            };
            (delta > 0).then_some(CountRow { cpu, delta, since_start: Some(count.before), running_ns, enabled_ns })
        };
        self.0.iter_mut().filter_map(row).collect()
    }
}

impl CountRow {
    /// The share of the wanted time for which the event counted, in hundredths of a per cent.
    fn share(&self) -> Option<u32> {
        let share = (u128::from(self.running_ns) * 10_000).div_ceil(u128::from(self.enabled_ns).max(1));
        (self.enabled_ns > 0).then_some(share.min(10_000) as u32)
    }

    /// The estimated number of events, if the event shared its counter with others.
    fn estimate(&self) -> Option<u64> {
        if self.share().is_none_or(|share| share == 10_000) {
            return None; // the count is exact, or nothing is known
        }
        let all = (u128::from(self.delta) * u128::from(self.enabled_ns)).checked_div(self.running_ns.into())?;
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TypedRows};
    use crate::stats::KeyedSums;

    fn counted(count: u64, enabled_ns: u64, running_ns: u64) -> Counted {
        Counted { count, enabled_ns, running_ns, span_ns: 0 }
    }

    #[test]
    fn counters_that_share_are_scaled_as_an_estimate() {
        let mut counts = CpuCounts::default();
        counts.add(1, &counted(30, 100, 25));
        counts.add(1, &counted(10, 100, 25));
        counts.add(0, &counted(7, 100, 100));
        counts.add(2, &counted(0, 100, 0));
        counts.add(3, &counted(5, 0, 0));
        let brief = |row: &CountRow| (row.cpu, row.since_start.unwrap(), row.delta, row.share(), row.estimate());
        let rows: Vec<_> = counts.take_rows(CounterTimes::Cpus).iter().map(brief).collect();
        let want = [(0, 7, 7, Some(10_000), None), (1, 40, 40, Some(2500), Some(160)), (3, 5, 5, None, None)];
        assert_eq!(rows, want);
        counts.add(1, &counted(2, 10, 10));
        let rows: Vec<_> = counts.take_rows(CounterTimes::Cpus).iter().map(brief).collect();
        assert_eq!(rows, [(1, 42, 2, Some(10_000), None)]);
        assert!(counts.take_rows(CounterTimes::Cpus).is_empty());
        let row = CountRow { cpu: 0, delta: u64::MAX, since_start: None, running_ns: 1, enabled_ns: u64::MAX };
        assert_eq!(row.estimate(), Some(u64::MAX));
    }

    #[test]
    fn a_task_is_on_one_cpu_at_a_time() {
        let fill = |running: [u64; 2]| {
            let mut counts = CpuCounts::default();
            counts.add(0, &counted(30, 1_000_000, running[0]));
            counts.add(1, &counted(10, 1_000_000, running[1]));
            counts
        };
        let brief = |rows: Vec<CountRow>| rows.iter().map(|row| (row.share(), row.estimate())).collect::<Vec<_>>();
        assert_eq!(brief(fill([930_000, 69_990]).take_rows(CounterTimes::Tasks)), [(Some(10_000), None); 2]);
        let half = |count| (Some(5000), Some(count));
        assert_eq!(brief(fill([430_000, 70_000]).take_rows(CounterTimes::Tasks)), [half(60), half(20)]);
        assert_eq!(brief(fill([430_000, 70_000]).take_rows(CounterTimes::Unknown)), [(None, None); 2]);
    }

    #[test]
    fn samples_are_summed_by_place() {
        let mut places: KeyedSums<CodePlace, PlaceSum> = KeyedSums::new(100);
        let at = |mode, comm, addr| CodePlace { mode, comm, addr, stack: None };
        let (a, c) = (Comm::new(b"a"), Comm::new(b"c"));
        for (mode, comm, ip) in
            [(Mode::User, a, 5), (Mode::Kernel, a, 5), (Mode::Kernel, a, 5), (Mode::User, c, 5), (Mode::User, a, 6)]
        {
            places.sum(at(mode, comm, ip)).add(100);
        }
        let rows = TypedRows::new(&PLACES, places.drain().collect());
        let ordered = rows.order().into_iter().map(|at| &rows.rows()[at]);
        let brief: Vec<_> = ordered.map(|(place, sum)| (sum.samples, sum.events, place.mode)).collect();
        let user = (1, 100, Mode::User);
        assert_eq!(brief, [(2, 200, Mode::Kernel), user, user, user]);
        (0..103).for_each(|addr| places.sum(at(Mode::User, a, addr)).add(1));
        let rows: Vec<_> = places.drain().collect();
        assert_eq!((rows.len(), rows.iter().map(|(_, sum)| sum.samples).max()), (101, Some(3)));
    }

    #[test]
    fn modes_are_those_of_the_record() {
        let cases =
            [(0, "unknown"), (1, "kernel"), (2, "user"), (3, "hypervisor"), (4, "guest-kernel"), (5, "guest-user")];
        for (misc, want) in cases {
            assert_eq!(Mode::of(misc | 0x4000).word(), want);
        }
    }
}
