//! The books: what is allocated in the kernel and in each process, what was left behind by those that have gone, and which
//! calls of an allocator are under way.
//!
//! An address means something only in its address space. A process gets a new one when it is born and when it executes a
//! program; what lives when one ends will never be freed, and is summed up by place, so that it takes no more memory.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profilers::kmemleak::pointers::{Pointers, Record};
use crate::symbol::StackId;

/// Whose addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Kernel,
    /// By pid.
    Process(i32),
}

/// What perf-prof itself has allocated: paired like everything else, but not counted and not shown.
pub const OURSELVES: u32 = 0;

/// Events counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub allocs: u64,
    pub frees: u64,
    /// Of those: nobody had seen the allocation.
    pub unmatched: u64,
    /// Allocations at an address that was not free yet: its free went unseen.
    pub replaced: u64,
    /// Allocations whose address was stored where nobody could see it.
    pub out_of_reach: u64,
    /// Calls of an allocator whose return may have gone unseen.
    pub unfinished: u64,
}

impl Counts {
    /// Allocations that may be outstanding, and are in no sum.
    pub fn left_out(&self) -> u64 {
        self.out_of_reach.saturating_add(self.unfinished)
    }
}

/// Outstanding allocations of one owner at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub allocs: u64,
    pub bytes: u64,
    pub oldest_ns: u64,
    pub newest_ns: u64,
    /// Of processes, or programs, that have ended.
    pub exited: u64,
    /// Their free may be among what was lost.
    pub unsure: u64,
    /// Those before them whose free nobody saw: their addresses were given out again.
    pub replaced: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.allocs += other.allocs;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
        self.newest_ns = self.newest_ns.min(other.newest_ns);
        self.exited += other.exited;
        self.unsure += other.unsure;
        self.replaced += other.replaced;
    }
}

/// Sums by place and owner.
pub type Sums = FxHashMap<(Option<StackId>, u32), Sum>;

/// Whose calls are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A thread, in its program.
    User(i32),
    /// A thread, in the kernel.
    Kernel(i32),
    /// The kernel on a CPU, where no thread has a number: all idle tasks have 0.
    Cpu(u32),
}

/// A call of an allocator that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Which function.
    pub pair: u16,
    pub bytes: u64,
    /// What realloc was given, taken out of the books: somebody else may have its address before realloc returns.
    pub old: Option<(Space, Record)>,
    /// The address that realloc was given; where posix_memalign is to store its result. 0: none.
    pub argument: u64,
}

#[derive(Debug, Default)]
struct Process {
    pointers: Pointers,
    exited_ns: Option<u64>,
}

/// Everything that is outstanding.
#[derive(Debug, Default)]
pub struct Ledger {
    pub counts: Counts,
    kernel: Pointers,
    processes: FxHashMap<i32, Process>,
    /// Mostly one call, rarely one inside another.
    calls: FxHashMap<Caller, Vec<Open>>,
    left: Sums,
    /// Processes that have exited and are not in `left` yet.
    ending: Vec<i32>,
    /// What was freed unseen, by place and owner.
    replaced: FxHashMap<(Option<StackId>, u32), u64>,
    /// And at places that are not kept.
    replaced_elsewhere: u64,
    /// `--than`
    than_ns: u64,
    /// What is older may have been freed unseen.
    lost_until_ns: u64,
}

/// Events of a process may come after its exit: it is kept so long, ns.
const LINGERS_NS: u64 = 1_000_000_000;
/// Places of processes that have gone, kept apart at most.
const MOST_LEFT: usize = 1 << 16;
/// Places where something was freed unseen, kept apart at most: each keeps a stack.
const MOST_REPLACED: usize = 1 << 10;
/// Calls in the kernel, one inside another: a task's, and those of the interrupts on top of it.
const MOST_NESTED: usize = 8;

impl Ledger {
    /// `than_ns`: younger allocations are not shown.
    pub fn new(than_ns: u64) -> Ledger {
        Ledger { than_ns, ..Ledger::default() }
    }

    /// Takes an allocation down. False when its address was not free.
    #[inline]
    pub fn allocated(&mut self, space: Space, record: Record) -> bool {
        self.counts.allocs += u64::from(record.owner != OURSELVES);
        match self.pointers(space).insert(record) {
            Some(known) if known.owner != OURSELVES => {
                self.replaced(known);
                false
            }
            _ => true,
        }
    }

    /// Its free went unseen.
    #[cold]
    fn replaced(&mut self, record: Record) {
        self.counts.replaced += 1;
        let key = (record.stack, record.owner);
        if self.replaced.len() < MOST_REPLACED || self.replaced.contains_key(&key) {
            *self.replaced.entry(key).or_default() += 1;
        } else {
            self.replaced_elsewhere += 1;
        }
    }

    /// Something was freed unseen at more places than are kept: it may be any.
    pub fn replaced_anywhere(&self) -> bool {
        self.replaced_elsewhere > 0
    }

    /// Strikes an allocation out and returns it. `counts`: it is worth a count even if nobody saw the allocation.
    #[inline]
    pub fn freed(&mut self, space: Space, ptr: u64, time: u64, counts: bool) -> Option<Record> {
        let pointers = match space {
            Space::Kernel => Some(&mut self.kernel),
            Space::Process(pid) => self.processes.get_mut(&pid).map(|process| &mut process.pointers),
        };
        let record = pointers.and_then(|pointers| match pointers.get(ptr) {
            // A free that comes late belongs to who had the address before.
            Some(record) if record.time > time => None,
            Some(_) => pointers.remove(ptr),
            None => None,
        });
        match record {
            Some(record) => self.counts.frees += u64::from(record.owner != OURSELVES),
            None => {
                self.counts.frees += u64::from(counts);
                self.counts.unmatched += u64::from(counts);
            }
        }
        record
    }

    /// Puts back what [`Ledger::freed`] has struck out: it was not freed after all.
    fn restore(&mut self, space: Space, record: Record) {
        let pointers = self.pointers(space);
        // Somebody else may have its address: then it was freed.
        if pointers.get(record.ptr).is_none() {
            pointers.insert(record);
            self.counts.frees -= u64::from(record.owner != OURSELVES && self.counts.frees > 0);
        }
    }

    #[inline]
    fn pointers(&mut self, space: Space) -> &mut Pointers {
        match space {
            Space::Kernel => &mut self.kernel,
            Space::Process(pid) => &mut self.processes.entry(pid).or_default().pointers,
        }
    }

    // Calls under way

    /// A thread is inside an allocator: what that calls on its behalf is its own business.
    #[inline]
    pub fn is_inside(&self, tid: i32) -> bool {
        self.calls.get(&Caller::User(tid)).is_some_and(|calls| !calls.is_empty())
    }

    /// An allocator is called. False when it is so inside another one.
    pub fn enters(&mut self, caller: Caller, open: Open) -> bool {
        let calls = self.calls.entry(caller).or_default();
        if let Caller::User(_) = caller {
            // No allocator calls itself: an earlier call was left by a jump, or its return went unseen.
            if let Some(stale) = calls.iter().position(|call| call.pair == open.pair) {
                calls.truncate(stale);
            }
        } else if calls.len() >= MOST_NESTED {
            calls.remove(0); // an interrupt may call what it has interrupted, but not so often
            self.counts.unfinished += 1;
        }
        calls.push(open);
        calls.len() == 1
    }

    /// What the call that was just entered replaces.
    pub fn replaces(&mut self, caller: Caller, space: Space, old: Option<Record>) {
        if let Some(open) = self.calls.get_mut(&caller).and_then(|calls| calls.last_mut()) {
            open.old = old.map(|old| (space, old));
        }
    }

    /// A call returns: what it was called with, if it is the outermost one. In the kernel an interrupt's call may be inside
    /// another one and counts as well.
    pub fn leaves(&mut self, caller: Caller, pair: u16) -> Option<Open> {
        let calls = self.calls.get_mut(&caller)?;
        let at = calls.iter().rposition(|call| call.pair == pair)?;
        let open = calls.get(at).copied();
        calls.truncate(at);
        open.filter(|_| at == 0 || !matches!(caller, Caller::User(_)))
    }

    /// A call has failed.
    pub fn failed(&mut self, open: Open) {
        // realloc(p, 0) frees; else a failed realloc leaves everything as it was.
        if let Some((space, old)) = open.old.filter(|_| open.bytes > 0) {
            self.restore(space, old);
        }
    }

    // Tasks and losses

    /// A process is born.
    pub fn forked(&mut self, pid: i32, now: u64) {
        self.fold(pid, now);
    }

    /// A process executes another program: its memory is gone.
    pub fn executed(&mut self, pid: i32, now: u64) {
        self.fold(pid, now);
    }

    /// A thread has exited. A process ends with its last one: `lives` is asked whether another one is left.
    pub fn thread_exited(&mut self, tid: i32, pid: i32, now: u64, lives: impl FnOnce(i32) -> bool) {
        self.calls.remove(&Caller::User(tid));
        self.calls.remove(&Caller::Kernel(tid));
        if self.processes.contains_key(&pid) && !lives(pid) {
            self.exited(pid, now);
        }
    }

    fn exited(&mut self, pid: i32, now: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            if process.exited_ns.is_none() {
                self.ending.push(pid);
            }
            process.exited_ns = Some(now);
        }
    }

    /// Sums up what processes left that exited a while ago. One that `lives` has not: a thread of it was not known.
    pub fn expire(&mut self, now: u64, lives: impl Fn(i32) -> bool) {
        let is_due =
            |process: &Process| process.exited_ns.is_some_and(|exited| exited.saturating_add(LINGERS_NS) < now);
        let due: Vec<i32> = self.ending.extract_if(.., |pid| self.processes.get(pid).is_none_or(is_due)).collect();
        for pid in due {
            match self.processes.get_mut(&pid) {
                Some(process) if lives(pid) => process.exited_ns = None,
                _ => self.fold(pid, now),
            }
        }
    }

    /// All processes but these have exited, unseen.
    pub fn only_live(&mut self, living: &FxHashSet<i32>, now: u64) {
        let gone: Vec<i32> = self.processes.keys().copied().filter(|pid| !living.contains(pid)).collect();
        gone.into_iter().for_each(|pid| self.exited(pid, now));
    }

    /// Records were lost up to `end`.
    pub fn lost(&mut self, end: u64) {
        self.lost_until_ns = self.lost_until_ns.max(end);
        // Their returns may be missing. What realloc was given may be freed or not, like all that is older than the loss.
        for open in std::mem::take(&mut self.calls).into_values().flatten() {
            self.counts.unfinished += 1;
            if let Some((space, old)) = open.old {
                self.restore(space, old);
            }
        }
    }

    pub fn lost_until_ns(&self) -> u64 {
        self.lost_until_ns
    }

    #[cold]
    fn fold(&mut self, pid: i32, now: u64) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let now = process.exited_ns.unwrap_or(now);
        let mut left = std::mem::take(&mut self.left);
        for record in process.pointers.iter() {
            self.sum(record, now, true, &mut left);
        }
        self.left = left;
    }

    /// Adds a record to the sums, unless it is too young or ours.
    #[inline]
    fn sum(&self, record: &Record, now: u64, exited: bool, sums: &mut Sums) {
        let age = now.saturating_sub(record.time);
        if age < self.than_ns || record.owner == OURSELVES {
            return;
        }
        let sum = Sum {
            allocs: 1,
            bytes: record.bytes,
            oldest_ns: age,
            newest_ns: age,
            exited: u64::from(exited),
            unsure: u64::from(record.time < self.lost_until_ns),
            replaced: 0,
        };
        let mut key = (record.stack, record.owner);
        if exited && sums.len() >= MOST_LEFT && !sums.contains_key(&key) {
            key.0 = None;
        }
        sums.entry(key).and_modify(|known| known.add(sum)).or_insert(sum);
    }

    // What there is

    /// All that is outstanding, by place and owner.
    pub fn sums(&self, now: u64) -> Sums {
        let mut sums = self.left.clone();
        self.kernel.iter().for_each(|record| self.sum(record, now, false, &mut sums));
        for process in self.processes.values() {
            let (now, exited) = process.exited_ns.map_or((now, false), |exited| (exited, true));
            process.pointers.iter().for_each(|record| self.sum(record, now, exited, &mut sums));
        }
        for (key, sum) in &mut sums {
            sum.replaced = self.replaced.get(key).copied().unwrap_or(0);
        }
        sums
    }

    /// The stacks of all that is outstanding.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let live = self.processes.values().map(|process| &process.pointers).chain([&self.kernel]);
        let live = live.flat_map(Pointers::iter).filter_map(|record| record.stack);
        let under_way = self.calls.values().flatten().filter_map(|call| call.old?.1.stack);
        live.chain(under_way).chain(self.left.keys().chain(self.replaced.keys()).filter_map(|(stack, _)| *stack))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const A: Space = Space::Process(1);
    const B: Space = Space::Process(2);
    const T: Caller = Caller::User(5);

    fn record(ptr: u64, time: u64, bytes: u64) -> Record {
        Record { ptr, time, bytes, stack: None, owner: 1 }
    }

    fn counts(ledger: &Ledger) -> (u64, u64, u64, u64) {
        let Counts { allocs, frees, unmatched, replaced, .. } = ledger.counts;
        (allocs, frees, unmatched, replaced)
    }

    fn sum(ledger: &Ledger, now: u64) -> Option<Sum> {
        ledger.sums(now).get(&(None, 1)).copied()
    }

    fn call(pair: u16, bytes: u64) -> Open {
        Open { pair, bytes, old: None, argument: 0 }
    }

    #[test]
    fn equal_addresses_of_two_processes_stay_apart() {
        let mut ledger = Ledger::new(0);
        assert!(ledger.allocated(A, record(8, 1, 10)) && ledger.allocated(B, record(8, 2, 20)));
        assert!(ledger.allocated(Space::Kernel, record(8, 3, 40)));
        assert_eq!(ledger.freed(B, 8, 4, true), Some(record(8, 2, 20)));
        assert_eq!((ledger.freed(B, 8, 5, true), counts(&ledger)), (None, (3, 2, 1, 0)));
        let want = Sum { allocs: 2, bytes: 50, oldest_ns: 9, newest_ns: 7, exited: 0, unsure: 0, replaced: 0 };
        assert_eq!(sum(&ledger, 10), Some(want));
    }

    #[test]
    fn an_address_that_was_not_free_is_replaced() {
        let mut ledger = Ledger::new(0);
        assert!(ledger.allocated(A, record(8, 1, 10)) && !ledger.allocated(A, record(8, 5, 20)));
        // A late free of the first.
        assert_eq!(ledger.freed(A, 8, 4, true), None);
        assert_eq!(counts(&ledger), (2, 1, 1, 1));
        assert_eq!(sum(&ledger, 10).map(|sum| (sum.allocs, sum.bytes, sum.replaced)), Some((1, 20, 1)));
    }

    /// Each place keeps its stack from being forgotten: there are few, and what is beyond them is known to be so.
    #[test]
    fn few_places_of_unseen_frees_are_kept() {
        let mut ledger = Ledger::new(0);
        let mut replace = |owner: u32| {
            ledger.allocated(A, Record { owner, ..record(8, 1, 10) });
            ledger.allocated(A, Record { owner, ..record(8, 1, 10) });
            ledger.freed(A, 8, 2, true);
            (ledger.replaced.len(), ledger.replaced_anywhere())
        };
        let most = MOST_REPLACED as u32;
        assert!((1..=most).map(&mut replace).eq((1..=MOST_REPLACED).map(|count| (count, false))));
        assert_eq!(replace(most), (MOST_REPLACED, false), "it is known");
        assert_eq!(replace(most + 1), (MOST_REPLACED, true));
        assert_eq!(ledger.counts.replaced, u64::from(most) + 2);
    }

    #[test]
    fn what_we_allocate_ourselves_counts_nowhere() {
        let mut ledger = Ledger::new(0);
        ledger.allocated(Space::Kernel, Record { owner: OURSELVES, ..record(8, 1, 10) });
        ledger.allocated(Space::Kernel, Record { owner: OURSELVES, ..record(9, 1, 10) });
        assert!(ledger.freed(Space::Kernel, 8, 2, true).is_some(), "whoever frees it");
        assert!(ledger.allocated(Space::Kernel, record(9, 3, 5)));
        assert_eq!(counts(&ledger), (1, 0, 0, 0));
        assert_eq!(sum(&ledger, 10).map(|sum| sum.bytes), Some(5));
    }

    #[test]
    fn what_is_left_at_an_exit_stays() {
        let mut ledger = Ledger::new(3);
        for (ptr, time) in [(1, 1), (2, 2), (3, 9)] {
            ledger.allocated(A, record(ptr, time, 10));
        }
        ledger.thread_exited(1, 1, 10, |_| false);
        ledger.freed(A, 2, 5, true); // it came late
        let want = Some(Sum { allocs: 1, bytes: 10, oldest_ns: 9, newest_ns: 9, exited: 1, unsure: 0, replaced: 0 });
        assert_eq!(sum(&ledger, 1000), want, "its age is that at the exit, the third was too young");
        ledger.expire(10 + LINGERS_NS, |_| false);
        assert_eq!(ledger.processes.len(), 1);
        ledger.expire(11 + LINGERS_NS, |_| false);
        assert!(ledger.processes.is_empty() && ledger.ending.is_empty());
        assert_eq!(sum(&ledger, 5 * LINGERS_NS), want);
        // Its number is used again, by a process that executes another program.
        ledger.forked(1, 20 + LINGERS_NS);
        ledger.allocated(A, record(1, 21 + LINGERS_NS, 10));
        ledger.executed(1, 30 + LINGERS_NS);
        assert_eq!(sum(&ledger, 9 * LINGERS_NS).map(|sum| (sum.allocs, sum.exited)), Some((2, 2)));
        ledger.allocated(B, record(1, 31 + LINGERS_NS, 10));
        ledger.only_live(&FxHashSet::default(), 40 + LINGERS_NS);
        assert_eq!(sum(&ledger, 9 * LINGERS_NS).map(|sum| (sum.allocs, sum.exited)), Some((3, 3)));
    }

    #[test]
    fn a_loss_makes_what_is_older_doubtful() {
        let mut ledger = Ledger::new(0);
        ledger.allocated(A, record(1, 1, 10));
        ledger.allocated(A, record(2, 6, 10));
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
            ledger.allocated(A, record(ptr, 1, 10));
            ledger.enters(caller, call(0, 20));
            let old = ledger.freed(A, ptr, 2, true);
            ledger.replaces(caller, A, old);
        }
        // Another thread gets one of the addresses: that one was freed.
        ledger.allocated(A, record(9, 3, 40));
        assert_eq!((sum(&ledger, 10).map(|sum| sum.allocs), counts(&ledger)), (Some(1), (3, 2, 0, 0)));
        ledger.lost(2);
        assert_eq!(sum(&ledger, 10).map(|sum| (sum.allocs, sum.bytes, sum.unsure)), Some((2, 50, 1)));
        assert_eq!((counts(&ledger), ledger.counts.unfinished), ((3, 1, 0, 0), 2));
    }

    #[test]
    fn a_process_ends_with_its_last_thread() {
        let mut ledger = Ledger::new(0);
        ledger.allocated(A, record(8, 1, 10));
        ledger.allocated(A, record(9, 1, 10));
        ledger.thread_exited(1, 1, 10, |pid| pid == 1);
        ledger.expire(20 + LINGERS_NS, |_| true);
        assert_eq!(sum(&ledger, 20).map(|sum| sum.exited), Some(0), "its first thread has left the others");
        assert!(ledger.freed(A, 8, 30 + LINGERS_NS, true).is_some());
        // A thread that is known too late.
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
        // The second call of malloc shows that nobody is in the first any more.
        ledger.enters(T, call(1, 1));
        ledger.enters(T, call(0, 2));
        ledger.enters(T, call(1, 3));
        assert_eq!(ledger.leaves(T, 1).map(|open| open.bytes), Some(3));
        // An interrupt's own call in the kernel.
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
        // The idle tasks of two CPUs; an interrupt calls what it has interrupted.
        ledger.enters(one, call(0, 1));
        ledger.enters(other, call(0, 2));
        ledger.enters(one, call(0, 3));
        let mut leaves = |caller| ledger.leaves(caller, 0).map(|open| open.bytes);
        assert_eq!([leaves(one), leaves(one), leaves(other), leaves(one)], [Some(3), Some(1), Some(2), None]);
        // Returns that nobody saw.
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
            ledger.allocated(A, record(8, 1, 10));
            let old = ledger.freed(A, 8, 2, true);
            assert_eq!(sum(&ledger, 10), None);
            ledger.failed(Open { pair: 0, bytes, old: old.map(|old| (A, old)), argument: 8 });
            assert_eq!((sum(&ledger, 10).map_or(0, |sum| sum.allocs), ledger.counts.unmatched), (left, 0), "{bytes}");
            ledger.freed(A, 8, 3, false);
        }
        assert_eq!(counts(&ledger), (2, 2, 0, 0));
    }

    proptest! {
        /// Whatever comes in whatever order: each space is a map of its own, and the books balance.
        #[test]
        fn books_balance(steps in prop::collection::vec((0..6_u8, 0..3_i32, 0..12_u64), 0..300)) {
            let (mut ledger, mut model) = (Ledger::new(0), HashMap::new());
            let mut left = 0;
            for (time, (step, pid, ptr)) in (1..).zip(steps) {
                let space = if pid == 0 { Space::Kernel } else { Space::Process(pid) };
                match step {
                    0..=2 => {
                        let known = model.insert((pid, ptr), time);
                        prop_assert_eq!(ledger.allocated(space, record(ptr, time, 1)), known.is_none());
                    }
                    3..=4 => {
                        let record = ledger.freed(space, ptr, time, true);
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
            let Counts { allocs, frees, unmatched, replaced, .. } = ledger.counts;
            prop_assert_eq!(allocs + unmatched, frees + outstanding + replaced);
        }
    }
}
