//! What was counted, by CPU, and where the samples were.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use perf_event_open_sys::bindings as b;

use crate::perf::evlist::Counted;
use crate::report::{Column, Value};
use crate::stats::{KeyedSums, SumKey};
use crate::symbol::StackId;
use crate::task::Comm;

pub static COUNT_COLUMNS: [Column; 5] = [
    Column { key: "cpu", heading: "CPU" },
    Column { key: "count", heading: "since start" },
    Column { key: "delta", heading: "counted" },
    Column { key: "run_pct", heading: "% of time" },
    Column { key: "estimate", heading: "estimate" },
];

pub static PLACE_COLUMNS: [Column; 6] = [
    Column { key: "samples", heading: "samples" },
    Column { key: "events", heading: "events" },
    Column { key: "mode", heading: "mode" },
    Column { key: "comm", heading: "comm" },
    Column { key: "addr", heading: "address" },
    Column { key: "place", heading: "function" },
];

/// What a CPU was doing when a sample was taken.
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
    /// From the header of a sample.
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

    /// Its addresses are those of this machine.
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
pub struct Counts(BTreeMap<u32, Count>);

#[derive(Debug, Default)]
struct Count {
    before: u64,
    now: Counted,
}

/// Whose time the counters tell of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Each CPU's.
    #[default]
    Cpus,
    /// That of tasks, which is spread over the CPUs: their event is wanted on all of them at once, and counts on one.
    Tasks,
    /// That of tasks where only some of the CPUs are looked at.
    Unknown,
}

impl Counts {
    pub fn add(&mut self, cpu: u32, counted: &Counted) {
        let now = &mut self.0.entry(cpu).or_default().now;
        now.count = now.count.saturating_add(counted.count);
        now.enabled_ns = now.enabled_ns.saturating_add(counted.enabled_ns);
        now.running_ns = now.running_ns.saturating_add(counted.running_ns);
    }

    /// CPUs that counted something. The next interval begins.
    pub fn take_rows(&mut self, times: Times) -> Vec<Vec<Value>> {
        let sum = |of: fn(&Counted) -> u64| self.0.values().map(|count| of(&count.now)).fold(0, u64::saturating_add);
        let wanted = sum(|now| now.enabled_ns).checked_div(self.0.len() as u64).unwrap_or(0);
        let of_tasks = (sum(|now| now.running_ns), wanted);
        let mut rows = Vec::new();
        for (cpu, count) in &mut self.0 {
            let Counted { count: delta, enabled_ns, running_ns, .. } = std::mem::take(&mut count.now);
            count.before = count.before.saturating_add(delta);
            let (running_ns, enabled_ns) = match times {
                Times::Cpus => (running_ns, enabled_ns),
                Times::Tasks => of_tasks,
                Times::Unknown => (0, 0),
            };
            if delta > 0 {
                rows.push(vec![
                    Value::Unsigned((*cpu).into()),
                    Value::Unsigned(count.before),
                    Value::Unsigned(delta),
                    share(running_ns, enabled_ns).map_or(Value::None, Value::Pct),
                    estimate(delta, running_ns, enabled_ns).map_or(Value::None, Value::Unsigned),
                ]);
            }
        }
        rows
    }
}

/// Hundredths of a per cent of the time in which the event was wanted.
fn share(running_ns: u64, enabled_ns: u64) -> Option<u32> {
    let share = (u128::from(running_ns) * 10_000).div_ceil(u128::from(enabled_ns).max(1));
    (enabled_ns > 0).then_some(share.min(10_000) as u32)
}

/// How many there may have been, when the event had to share its counter with others.
fn estimate(delta: u64, running_ns: u64, enabled_ns: u64) -> Option<u64> {
    if share(running_ns, enabled_ns).is_none_or(|share| share == 10_000) {
        return None; // then the count is no estimate
    }
    let all = (u128::from(delta) * u128::from(enabled_ns)).checked_div(running_ns.into())?;
    Some(u64::try_from(all).unwrap_or(u64::MAX))
}

/// Rows at most; what comes beyond is one more.
const MOST: usize = 10_000;

/// The samples of an interval, by the address of the instruction.
#[derive(Debug)]
pub struct Places(KeyedSums<Place, Sum>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    mode: Mode,
    comm: Comm,
    ip: u64,
    /// The same address may be another one's.
    stack: Option<StackId>,
}

impl SumKey for Place {
    fn others(&self) -> Place {
        Place { mode: Mode::Unknown, comm: Comm::new(b"<others>"), ip: 0, stack: None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u64,
    events: u64,
}

impl Default for Places {
    fn default() -> Places {
        Places(KeyedSums::new(MOST))
    }
}

impl Places {
    pub fn add(&mut self, mode: Mode, comm: Comm, ip: u64, stack: Option<StackId>, events: u64) {
        let sum = self.0.sum(Place { mode, comm, ip, stack });
        sum.samples += 1;
        sum.events = sum.events.saturating_add(events);
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        self.0.keys().filter_map(|place| place.stack)
    }

    /// Most frequent first. The next interval begins.
    pub fn take_rows(&mut self) -> Vec<Vec<Value>> {
        let mut places: Vec<(Place, Sum)> = self.0.drain().collect();
        places.sort_unstable_by_key(|(place, sum)| (Reverse(sum.samples), *place));
        let row = |(place, sum): (Place, Sum)| {
            vec![
                Value::Unsigned(sum.samples),
                Value::Unsigned(sum.events),
                Value::Word(place.mode.word()),
                Value::Comm(place.comm),
                Value::Address(place.ip),
                place.stack.map_or(Value::None, Value::Place),
            ]
        };
        places.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(count: u64, enabled_ns: u64, running_ns: u64) -> Counted {
        Counted { count, enabled_ns, running_ns, span_ns: 0 }
    }

    #[test]
    fn counters_that_share_are_scaled_as_an_estimate() {
        let mut counts = Counts::default();
        counts.add(1, &counted(30, 100, 25));
        counts.add(1, &counted(10, 100, 25));
        counts.add(0, &counted(7, 100, 100));
        counts.add(2, &counted(0, 100, 0));
        counts.add(3, &counted(5, 0, 0));
        let number = Value::Unsigned;
        let rows = counts.take_rows(Times::Cpus);
        let want = [
            vec![number(0), number(7), number(7), Value::Pct(10_000), Value::None],
            vec![number(1), number(40), number(40), Value::Pct(2500), number(160)],
            vec![number(3), number(5), number(5), Value::None, Value::None],
        ];
        assert_eq!(rows, want);
        counts.add(1, &counted(2, 10, 10));
        let want = [vec![number(1), number(42), number(2), Value::Pct(10_000), Value::None]];
        assert_eq!(counts.take_rows(Times::Cpus), want);
        assert!(counts.take_rows(Times::Cpus).is_empty());
        assert_eq!(estimate(u64::MAX, 1, u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn a_task_is_on_one_cpu_at_a_time() {
        let fill = |running: [u64; 2]| {
            let mut counts = Counts::default();
            counts.add(0, &counted(30, 1_000_000, running[0]));
            counts.add(1, &counted(10, 1_000_000, running[1]));
            counts
        };
        let brief = |rows: Vec<Vec<Value>>| rows.iter().map(|row| (row[3].clone(), row[4].clone())).collect::<Vec<_>>();
        let whole = || (Value::Pct(10_000), Value::None);
        assert_eq!(brief(fill([930_000, 69_990]).take_rows(Times::Tasks)), [whole(), whole()]);
        let half = |count| (Value::Pct(5000), Value::Unsigned(count));
        assert_eq!(brief(fill([430_000, 70_000]).take_rows(Times::Tasks)), [half(60), half(20)]);
        let unknown = || (Value::None, Value::None);
        assert_eq!(brief(fill([430_000, 70_000]).take_rows(Times::Unknown)), [unknown(), unknown()]);
    }

    #[test]
    fn samples_are_summed_by_place() {
        let mut places = Places::default();
        let (a, c) = (Comm::new(b"a"), Comm::new(b"c"));
        for (mode, comm, ip) in
            [(Mode::User, a, 5), (Mode::Kernel, a, 5), (Mode::Kernel, a, 5), (Mode::User, c, 5), (Mode::User, a, 6)]
        {
            places.add(mode, comm, ip, None, 100);
        }
        let rows = places.take_rows();
        let brief: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[1].clone(), row[2].clone())).collect();
        let number = Value::Unsigned;
        let user = || (number(1), number(100), Value::Word("user"));
        assert_eq!(brief, [(number(2), number(200), Value::Word("kernel")), user(), user(), user()]);
        for ip in 0..MOST as u64 + 3 {
            places.add(Mode::User, a, ip, None, 1);
        }
        let rows = places.take_rows();
        assert_eq!((rows.len(), &rows[0][0]), (MOST + 1, &number(3)));
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
