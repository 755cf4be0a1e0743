//! Which ring of a CPU an event's records go to.
//!
//! A full ring drops the records of all its events: an event that floods would cost a rare event its records. So side
//! records have a small ring of their own, and so has each event that is not paired with others, as long as there are
//! few of them. Events without a filter that are known to be frequent share a ring: none of them is rare. Views have
//! rings of their own, as long as they are few.

use crate::perf::event_id::EventId;
use crate::perf::evsel::Evsel;

/// What a ring of a CPU is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// COMM, FORK, EXIT, MMAP2.
    Side,
    Events(usize),
}

/// What a ring has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingLoad {
    /// Events that come at a rate which is known, and low: so many bytes a second on a CPU at most.
    Steady(u64),
    /// Events that come rarely, even when they come in a flood.
    Rare,
    /// Any other events.
    Any,
}

/// Limit of unpaired events with a ring each; more of them share one ring.
const MAX_ALONE: usize = 3;

/// Limit of the shared rings, one per view. Further views share the last one.
const MAX_SHARED: usize = 4;

/// Systems and events, by the beginning of their names, that may come a hundred thousand times a second.
const LOUD: [&str; 19] = [
    "exceptions:",
    "irq:",
    "irq_vectors:",
    "kmem:",
    "lock:",
    "msr:",
    "napi:",
    "net:",
    "preemptirq:",
    "raw_syscalls:",
    "rcu:",
    "sched:sched_stat_",
    "sched:sched_switch",
    "sched:sched_wak",
    "skb:",
    "timer:",
    "tlb:",
    "workqueue:",
    "x86_fpu:",
];

/// Systems and events, by the beginning of their names, that stay far below a hundred thousand a second.
const RARE: [&str; 5] = ["oom:", "sched:sched_process_", "signal:", "task:", "watchdog:"];

/// Bytes a second that sampled events may write into a steady ring: copies of stacks of 32 KiB come to 3 MiB at 99 Hz.
const MAX_STEADY_BYTES_PER_S: u64 = 4 << 20;

/// By event, the number of its ring; the number of rings; and the ring for windows of user stacks.
pub fn of(evsels: &[Evsel]) -> (Vec<usize>, usize, Option<usize>) {
    let is_alone = |evsel: &Evsel| evsel.is_opened() && evsel.is_unpaired && !is_loud(evsel);
    let alone = evsels.iter().filter(|evsel| is_alone(evsel)).count();
    // The first rings are for events that share a ring, one per view: a flood in one view must not cost another view
    // its records.
    let shares = |evsel: &Evsel| evsel.is_opened_itself() && !evsel.is_window() && !is_alone(evsel);
    let mut owners: Vec<usize> = evsels.iter().filter(|evsel| shares(evsel)).map(|evsel| evsel.owner).collect();
    owners.dedup(); // the events of a view are adjacent
    let first = owners.len().min(MAX_SHARED);
    let mut next = first;
    let mut class = |evsel: &Evsel| {
        if !is_alone(evsel) {
            let view = owners.iter().position(|owner| *owner == evsel.owner);
            return view.map_or(0, |view| view.min(MAX_SHARED - 1));
        }
        let class = next;
        next += usize::from(alone <= MAX_ALONE);
        class
    };
    let mut classes: Vec<usize> = evsels.iter().map(&mut class).collect();
    let rings = (first + if alone <= MAX_ALONE { alone } else { 1 }).max(1);
    let windows = evsels.iter().any(Evsel::is_window).then_some(rings);
    for (class, _) in classes.iter_mut().zip(evsels).filter(|(_, evsel)| evsel.is_window()) {
        *class = rings;
    }
    // A BPF program's output goes to the ring of its event, where it comes just before the event's record.
    for (index, evsel) in evsels.iter().enumerate() {
        let of = evsel.program_of().map(EventId::index);
        let opened = of.map(|of| evsels.get(of).and_then(|of| of.shared_with).map_or(of, EventId::index));
        if let Some(class) = opened.and_then(|opened| classes.get(opened).copied()) {
            classes[index] = class;
        }
    }
    (classes, rings + usize::from(windows.is_some()), windows)
}

/// What each of the `rings` has to hold. `classes`: by event, the number of its ring.
pub fn demands(evsels: &[Evsel], classes: &[usize], rings: usize) -> Vec<RingLoad> {
    let demand = |ring: usize| {
        let events = || evsels.iter().zip(classes).filter(|(evsel, class)| evsel.is_opened() && **class == ring);
        let bytes_per_s = |evsel: &Evsel| evsel.attr.bytes_per_s().unwrap_or(u64::MAX);
        let steady_bytes = events().map(|(evsel, _)| bytes_per_s(evsel)).fold(0, u64::saturating_add);
        if events().next().is_none() {
            RingLoad::Any
        } else if steady_bytes <= MAX_STEADY_BYTES_PER_S {
            RingLoad::Steady(steady_bytes)
        } else if events().all(|(evsel, _)| RARE.iter().any(|rare| evsel.name.starts_with(rare))) {
            RingLoad::Rare
        } else {
            RingLoad::Any
        }
    };
    (0..rings).map(demand).collect()
}

/// True for an event that may come a hundred thousand times a second. An event with a user's filter may well be rare.
pub(super) fn is_loud(evsel: &Evsel) -> bool {
    !evsel.is_filtered && LOUD.iter().any(|loud| evsel.name.starts_with(loud))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Attr;
    use crate::perf::attr::Sampling;

    #[test]
    fn a_loud_event_starves_no_other() {
        let evsel = |name: &str| match name.split_once('/') {
            Some((name, _)) => Evsel::new(name, Attr::tracepoint(1)).unpaired(true),
            None => Evsel::new(name, Attr::tracepoint(1)).unpaired(false),
        };
        let (switch, wakeup, enter) = ("sched:sched_switch", "sched:sched_wakeup", "raw_syscalls:sys_enter");
        let cases: [(&[&str], &[usize], usize); 8] = [
            (&[], &[], 1),
            (&["a:b"], &[0], 1),
            (&[switch, wakeup], &[0, 0], 1),
            (&["a:b", "a:c"], &[0, 1], 2),
            (&["a:b", switch, wakeup], &[1, 0, 0], 2),
            (&["raw_syscalls:sys_enter/id==1/", "raw_syscalls:sys_enter/id==2/"], &[0, 1], 2),
            (&[enter, "a:b", "a:c", "a:d"], &[0, 1, 2, 3], 4),
            (&[enter, "a:b", "a:c", "a:d", "a:e", switch], &[0, 1, 1, 1, 1, 0], 2),
        ];
        for (names, classes, rings) in cases {
            let evsels: Vec<Evsel> = names.iter().copied().map(evsel).collect();
            assert_eq!(of(&evsels), (classes.to_vec(), rings, None), "{names:?}");
        }
    }

    #[test]
    fn views_do_not_share_rings_while_they_are_few() {
        let evsel = |owner: &usize| {
            let mut evsel = Evsel::new("sched:sched_switch", Attr::tracepoint(1));
            evsel.owner = *owner;
            evsel
        };
        let cases: [(&[usize], &[usize], usize); 3] = [
            (&[0, 0, 1, 1], &[0, 0, 1, 1], 2),
            (&[2, 5, 5], &[0, 1, 1], 2),
            (&[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 3, 3], 4),
        ];
        for (owners, classes, rings) in cases {
            let evsels: Vec<Evsel> = owners.iter().map(evsel).collect();
            assert_eq!(of(&evsels), (classes.to_vec(), rings, None), "{owners:?}");
        }
    }

    #[test]
    fn what_a_ring_has_to_hold_is_told_by_its_events() {
        use RingLoad::{Any, Rare, Steady};
        let clock = |hz| Evsel::new("cpu-clock", Attr::cpu_clock(Sampling::Frequency(hz)));
        let point = |name: &str| Evsel::new(name, Attr::tracepoint(1));
        let evsels = [
            clock(99),
            Evsel::new("task-clock", Attr::task_clock()),
            clock(997).callchain_if(true, 0),
            Evsel::new("cycles", Attr::cycles(Sampling::Period(1000))),
            point("signal:signal_generate"),
            point("signal:signal_deliver"),
            point("sched:sched_process_exec"),
            point("sched:sched_switch"),
            point("sched:sched_switch").unopened(),
            clock(9970).callchain_if(true, 0),
        ];
        let demand = |indices: &[usize]| {
            let classes: Vec<usize> = (0..evsels.len()).map(|index| usize::from(!indices.contains(&index))).collect();
            demands(&evsels, &classes, 1)[0]
        };
        let cases: [(&[usize], RingLoad); 11] = [
            (&[], Any),
            (&[0, 1], Steady(99 * 128)),
            (&[2], Steady(997 * (128 + 8 * 127))),
            (&[0, 2], Steady(99 * 128 + 997 * (128 + 8 * 127))),
            (&[9], Any),
            (&[3], Any),
            (&[4, 5], Rare),
            (&[4, 6, 8], Rare),
            (&[6, 7], Any),
            (&[0, 4], Any),
            (&[8], Any),
        ];
        for (indices, want) in cases {
            assert_eq!(demand(indices), want, "{indices:?}");
        }
    }

    #[test]
    fn events_that_belong_together_stay_together() {
        let evsels = [Evsel::new("signal:a", Attr::tracepoint(1)), Evsel::new("signal:b", Attr::tracepoint(2))];
        assert_eq!(of(&evsels), (vec![0, 0], 1, None));
        let unopened = [
            Evsel::new("raw_syscalls:sys_enter", Attr::tracepoint(1)).unpaired(false),
            Evsel::new("a:b", Attr::tracepoint(2)).unpaired(false).unopened(),
        ];
        assert_eq!(of(&unopened), (vec![0, 0], 1, None));
    }
}
