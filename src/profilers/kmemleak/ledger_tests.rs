//! The ledger, in single cases and against a plain model.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const A: PointerSpace = PointerSpace::Process(1);
const B: PointerSpace = PointerSpace::Process(2);
const T: Caller = Caller::User(5);

fn record(ptr: u64, time: u64, bytes: u64) -> LiveAllocation {
    LiveAllocation { ptr, time, bytes, stack: None, owner: 1 }
}

fn counts(ledger: &Ledger) -> (u64, u64, u64, u64) {
    let AllocCounts { allocs, frees, unmatched, replaced, .. } = ledger.counts;
    (allocs, frees, unmatched, replaced)
}

fn allocated(ledger: &mut Ledger, space: PointerSpace, record: LiveAllocation) -> bool {
    ledger.allocated(space, record, CacheTag::default())
}

/// A free by a task that the run is about.
fn freed(ledger: &mut Ledger, space: PointerSpace, ptr: u64, time: u64) -> Option<LiveAllocation> {
    let record = ledger.freed(space, ptr, time);
    if record.is_none() {
        ledger.counts.unmatched();
    }
    record
}

fn sum(ledger: &Ledger, now: u64) -> Option<OutstandingSum> {
    ledger.sums(now).get(&AllocOrigin { stack: None, owner: 1 }).copied()
}

fn call(pair: u16, bytes: u64) -> OpenCall {
    OpenCall { pair, bytes, old: None, argument: 0 }
}

#[test]
fn equal_addresses_of_two_processes_stay_apart() {
    let mut ledger = Ledger::new(0);
    assert!(allocated(&mut ledger, A, record(8, 1, 10)) && allocated(&mut ledger, B, record(8, 2, 20)));
    assert!(allocated(&mut ledger, PointerSpace::Kernel, record(8, 3, 40)));
    assert_eq!(freed(&mut ledger, B, 8, 4), Some(record(8, 2, 20)));
    assert_eq!((freed(&mut ledger, B, 8, 5), counts(&ledger)), (None, (3, 2, 1, 0)));
    let ages = AgeAmounts::of(9, 2);
    let want =
        OutstandingSum { allocs: 2, bytes: 50, oldest_ns: 9, newest_ns: 7, exited: 0, unsure: 0, replaced: 0, ages };
    assert_eq!(sum(&ledger, 10), Some(want));
}

#[test]
fn an_address_that_was_not_free_is_replaced() {
    let mut ledger = Ledger::new(0);
    assert!(allocated(&mut ledger, A, record(8, 1, 10)) && !allocated(&mut ledger, A, record(8, 5, 20)));
    // A late free of the first allocation.
    assert_eq!(freed(&mut ledger, A, 8, 4), None);
    assert_eq!(counts(&ledger), (2, 1, 1, 1));
    assert_eq!(sum(&ledger, 10).map(|sum| (sum.allocs, sum.bytes, sum.replaced)), Some((1, 20, 1)));
}

/// Each place keeps its stack from being forgotten: few places are kept, and it is known when there were more.
#[test]
fn few_places_of_unseen_frees_are_kept() {
    let mut ledger = Ledger::new(0);
    let mut replace = |owner: u32| {
        allocated(&mut ledger, A, LiveAllocation { owner, ..record(8, 1, 10) });
        allocated(&mut ledger, A, LiveAllocation { owner, ..record(8, 1, 10) });
        freed(&mut ledger, A, 8, 2);
        (ledger.replaced.len(), ledger.replaced_anywhere())
    };
    let most = MAX_REPLACED as u32;
    assert!((1..=most).map(&mut replace).eq((1..=MAX_REPLACED).map(|count| (count, false))));
    assert_eq!(replace(most), (MAX_REPLACED, false), "it is known");
    assert_eq!(replace(most + 1), (MAX_REPLACED, true));
    assert_eq!(ledger.counts.replaced, u64::from(most) + 2);
}

#[test]
fn what_we_allocate_ourselves_counts_nowhere() {
    let mut ledger = Ledger::new(0);
    allocated(&mut ledger, PointerSpace::Kernel, LiveAllocation { owner: OURSELVES, ..record(8, 1, 10) });
    allocated(&mut ledger, PointerSpace::Kernel, LiveAllocation { owner: OURSELVES, ..record(9, 1, 10) });
    assert!(freed(&mut ledger, PointerSpace::Kernel, 8, 2).is_some(), "whoever frees it");
    assert!(allocated(&mut ledger, PointerSpace::Kernel, record(9, 3, 5)));
    assert_eq!(counts(&ledger), (1, 0, 0, 0));
    assert_eq!(sum(&ledger, 10).map(|sum| sum.bytes), Some(5));
}

#[test]
fn what_is_left_at_an_exit_stays() {
    let mut ledger = Ledger::new(3);
    for (ptr, time) in [(1, 1), (2, 2), (3, 9)] {
        allocated(&mut ledger, A, record(ptr, time, 10));
    }
    ledger.thread_exited(1, 1, 10, |_| false);
    freed(&mut ledger, A, 2, 5); // this free comes late
    let want = Some(OutstandingSum {
        allocs: 1,
        bytes: 10,
        oldest_ns: 9,
        newest_ns: 9,
        exited: 1,
        unsure: 0,
        replaced: 0,
        ages: AgeAmounts::of(9, 1),
    });
    assert_eq!(sum(&ledger, 1000), want, "its age is that at the exit, the third was too young");
    ledger.expire(10 + LINGERS_NS, |_| false);
    assert_eq!(ledger.processes.len(), 1);
    ledger.expire(11 + LINGERS_NS, |_| false);
    assert!(ledger.processes.is_empty() && ledger.ending.is_empty());
    assert_eq!(sum(&ledger, 5 * LINGERS_NS), want);
    // The pid is reused by a process that executes another program.
    ledger.forked(1, 20 + LINGERS_NS);
    allocated(&mut ledger, A, record(1, 21 + LINGERS_NS, 10));
    ledger.executed(1, 30 + LINGERS_NS);
    assert_eq!(sum(&ledger, 9 * LINGERS_NS).map(|sum| (sum.allocs, sum.exited)), Some((2, 2)));
    allocated(&mut ledger, B, record(1, 31 + LINGERS_NS, 10));
    ledger.only_live(&FxHashSet::default(), 40 + LINGERS_NS);
    assert_eq!(sum(&ledger, 9 * LINGERS_NS).map(|sum| (sum.allocs, sum.exited)), Some((3, 3)));
}

/// The rest of an ended process counts where it is listed: nowhere if it was too young, and in the sum of other places
/// when there is no room.
#[test]
fn what_is_left_stays_in_the_amounts() {
    let mut ledger = Ledger::new(3);
    ledger.left = KeyedSums::new(1);
    let origin = |number| AllocOrigin { stack: stacks().nth(number), owner: 1 };
    for (ptr, time, number) in [(1, 1, 0), (2, 1, 1), (3, 9, 0)] {
        allocated(&mut ledger, A, LiveAllocation { stack: origin(number).stack, ..record(ptr, time, 10) });
    }
    ledger.executed(1, 10);
    ledger.flows.look(10);
    let kept = |origin: AllocOrigin| {
        let flow = ledger.flows.of(origin.flow_key());
        flow.all_allocs - flow.all_frees
    };
    let (listed, others) = (ledger.left.get(&origin(0)).is_some(), origin(0).others());
    let [with_room, without] = if listed { [0, 1] } else { [1, 0] };
    assert_eq!([kept(origin(with_room)), kept(origin(without)), kept(others)], [1, 0, 1]);
}

/// Stacks, with the same numbers in each call.
fn stacks() -> impl Iterator<Item = StackId> {
    let (mut stacks, mut spaces) = (crate::symbol::Stacks::new(1 << 20, 127), Default::default());
    (1..).map_while(move |ip| stacks.intern_address(ip, false, Default::default(), 0, &mut spaces))
}

#[test]
fn a_loss_makes_what_is_older_doubtful() {
    let mut ledger = Ledger::new(0);
    allocated(&mut ledger, A, record(1, 1, 10));
    allocated(&mut ledger, A, record(2, 6, 10));
    ledger.enters(T, call(0, 10));
    ledger.lost(5);
    ledger.lost(3);
    assert_eq!(sum(&ledger, 10).map(|sum| (sum.allocs, sum.unsure)), Some((2, 1)));
    assert!(!ledger.is_inside(5) && ledger.leaves(T, 0).is_none());
    assert_eq!(ledger.counts.unfinished, 1);
}

#[test]
fn a_loss_gives_back_what_a_realloc_was_given() {
    let mut ledger = Ledger::new(0);
    for (ptr, caller) in [(8, T), (9, Caller::User(6))] {
        allocated(&mut ledger, A, record(ptr, 1, 10));
        ledger.enters(caller, call(0, 20));
        ledger.reallocates(caller, A, ptr, 2, true);
    }
    // Another thread gets one of the addresses: so that allocation was freed.
    allocated(&mut ledger, A, record(9, 3, 40));
    assert_eq!((sum(&ledger, 10).map(|sum| sum.allocs), counts(&ledger)), (Some(1), (3, 2, 0, 0)));
    ledger.lost(2);
    assert_eq!(sum(&ledger, 10).map(|sum| (sum.allocs, sum.bytes, sum.unsure)), Some((2, 50, 1)));
    assert_eq!((counts(&ledger), ledger.counts.unfinished), ((3, 1, 0, 0), 2));
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let mut ledger = Ledger::new(0);
    allocated(&mut ledger, A, record(8, 1, 10));
    allocated(&mut ledger, A, record(9, 1, 10));
    ledger.thread_exited(1, 1, 10, |pid| pid == 1);
    ledger.expire(20 + LINGERS_NS, |_| true);
    assert_eq!(sum(&ledger, 20).map(|sum| sum.exited), Some(0), "its first thread has left the others");
    assert!(freed(&mut ledger, A, 8, 30 + LINGERS_NS).is_some());
    // A thread that becomes known too late.
    ledger.thread_exited(2, 1, 40, |_| false);
    ledger.expire(50 + LINGERS_NS, |_| true);
    assert_eq!(sum(&ledger, 60 + LINGERS_NS).map(|sum| sum.exited), Some(0));
    ledger.thread_exited(3, 1, 70 + LINGERS_NS, |_| false);
    ledger.expire(80 + 2 * LINGERS_NS, |_| false);
    assert_eq!(sum(&ledger, 90 + 2 * LINGERS_NS).map(|sum| (sum.allocs, sum.exited)), Some((1, 1)));
    assert!(ledger.processes.is_empty() && counts(&ledger) == (2, 1, 0, 0));
}

#[test]
fn only_the_outermost_call_counts() {
    let mut ledger = Ledger::new(0);
    ledger.enters(T, call(1, 100)); // calloc
    ledger.enters(T, call(0, 116)); // calls malloc
    assert!(ledger.is_inside(5) && !ledger.is_inside(6));
    assert!(ledger.leaves(T, 0).is_none());
    assert_eq!(ledger.leaves(T, 1).map(|open| open.bytes), Some(100));
    assert!(!ledger.is_inside(5) && ledger.leaves(T, 1).is_none());
    // The second call of malloc shows that the thread has left the first one.
    ledger.enters(T, call(1, 1));
    ledger.enters(T, call(0, 2));
    ledger.enters(T, call(1, 3));
    assert_eq!(ledger.leaves(T, 1).map(|open| open.bytes), Some(3));
    // An interrupt makes a call of its own in the kernel.
    let kernel = Caller::Kernel(5);
    ledger.enters(kernel, call(1, 1));
    ledger.enters(kernel, call(0, 2));
    assert_eq!(ledger.leaves(kernel, 0).map(|open| open.bytes), Some(2));
    ledger.thread_exited(5, 5, 1, |_| false);
    assert!(ledger.calls.is_empty());
}

#[test]
fn calls_in_the_kernel_nest() {
    let mut ledger = Ledger::new(0);
    let (one, other) = (Caller::Cpu(0), Caller::Cpu(1));
    // The idle tasks of two CPUs; an interrupt calls the function that it has interrupted.
    ledger.enters(one, call(0, 1));
    ledger.enters(other, call(0, 2));
    ledger.enters(one, call(0, 3));
    let mut leaves = |caller| ledger.leaves(caller, 0).map(|open| open.bytes);
    assert_eq!([leaves(one), leaves(one), leaves(other), leaves(one)], [Some(3), Some(1), Some(2), None]);
    // Unseen returns.
    for bytes in 0..10 {
        ledger.enters(one, call(0, bytes));
    }
    assert_eq!(ledger.counts.unfinished, 2);
    let left: Vec<u64> = std::iter::from_fn(|| ledger.leaves(one, 0)).map(|open| open.bytes).collect();
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2]);
}

#[test]
fn a_failed_realloc_leaves_the_old() {
    let mut ledger = Ledger::new(0);
    for (bytes, left) in [(50, 1), (0, 0)] {
        allocated(&mut ledger, A, record(8, 1, 10));
        let old = freed(&mut ledger, A, 8, 2);
        assert_eq!(sum(&ledger, 10), None);
        ledger.failed(OpenCall { pair: 0, bytes, old: old.map(|old| (A, old)), argument: 8 });
        assert_eq!((sum(&ledger, 10).map_or(0, |sum| sum.allocs), ledger.counts.unmatched), (left, 0), "{bytes}");
        ledger.freed(A, 8, 3);
    }
    assert_eq!(counts(&ledger), (2, 2, 0, 0));
}

proptest! {
    /// Whatever the order of events: each space behaves like a map, and the sums balance.
    #[test]
    fn sums_balance(steps in prop::collection::vec((0..6_u8, 0..3_i32, 0..12_u64), 0..300)) {
        let (mut ledger, mut model) = (Ledger::new(0), HashMap::new());
        let mut left = 0;
        for (time, (step, pid, ptr)) in (1..).zip(steps) {
            let space = if pid == 0 { PointerSpace::Kernel } else { PointerSpace::Process(pid) };
            match step {
                0..=2 => {
                    let known = model.insert((pid, ptr), time);
                    prop_assert_eq!(allocated(&mut ledger, space, record(ptr, time, 1)), known.is_none());
                }
                3..=4 => {
                    let record = freed(&mut ledger, space, ptr, time);
                    prop_assert_eq!(record.map(|record| record.time), model.remove(&(pid, ptr)));
                }
                _ if pid > 0 => {
                    ledger.executed(pid, time);
                    let before = model.len();
                    model.retain(|(of, _), _| *of != pid);
                    left += before - model.len();
                }
                _ => ledger.lost(time),
            }
        }
        let outstanding = sum(&ledger, 1000).map_or(0, |sum| sum.allocs);
        prop_assert_eq!(outstanding, (model.len() + left) as u64);
        let AllocCounts { allocs, frees, unmatched, replaced, .. } = ledger.counts;
        prop_assert_eq!(allocs + unmatched, frees + outstanding + replaced);
        // At the one place, allocated minus freed bytes equal the outstanding bytes.
        ledger.flows.look(1000);
        let flow = ledger.flows.of(FlowKey::of(None, 1));
        prop_assert_eq!((flow.all_allocs, flow.all_frees), (allocs, allocs - outstanding));
    }
}
