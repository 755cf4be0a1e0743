//! The ledger: live allocations in the kernel and in each process, memory that ended processes left behind, and calls
//! of an allocator that have not returned.
//!
//! An address is only meaningful in its address space. A process gets a new one at fork and at exec. Allocations that
//! are live when an address space ends will never be freed: they are summed by place, to bound the memory of the
//! ledger.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profilers::kmemleak::ages::AgeAmounts;
use crate::profilers::kmemleak::flows::{CacheTag, FlowKey, Flows};
use crate::profilers::kmemleak::pointers::{LiveAllocation, Pointers};
use crate::stats::{KeyedSums, LossHorizon, SumKey};
use crate::symbol::StackId;

/// The address space of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerSpace {
    Kernel,
    /// The address space of this pid.
    Process(i32),
}

/// The owner of perf-prof's own allocations: they are paired like all others, but neither counted nor shown.
pub const OURSELVES: u32 = 0;

/// Events counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocCounts {
    pub allocs: u64,
    pub frees: u64,
    /// Frees whose allocation was not seen.
    pub unmatched: u64,
    /// Allocations at an address that was still in use: the free in between went unseen.
    pub replaced: u64,
    /// Allocations whose address was stored in memory that samples do not copy.
    pub out_of_reach: u64,
    /// Calls of an allocator whose return may have gone unseen.
    pub unfinished: u64,
}

impl AllocCounts {
    /// Memory was freed whose allocation was not seen.
    pub fn unmatched(&mut self) {
        self.frees += 1;
        self.unmatched += 1;
    }

    /// Allocations that may be outstanding but are not in any sum.
    pub fn left_out(&self) -> u64 {
        self.out_of_reach.saturating_add(self.unfinished)
    }
}

/// Outstanding allocations of one owner at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingSum {
    pub allocs: u64,
    pub bytes: u64,
    pub oldest_ns: u64,
    pub newest_ns: u64,
    /// The part in processes, or programs, that have ended.
    pub exited: u64,
    /// Allocations whose free may be among lost records.
    pub unsure: u64,
    /// Earlier allocations whose address was reused without a free event.
    pub replaced: u64,
    /// The bytes, or the allocations where no event has a size, by age.
    pub ages: AgeAmounts,
}

impl OutstandingSum {
    pub fn add(&mut self, other: OutstandingSum) {
        self.allocs += other.allocs;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
        self.newest_ns = self.newest_ns.min(other.newest_ns);
        self.exited += other.exited;
        self.unsure += other.unsure;
        self.replaced += other.replaced;
        self.ages.add(other.ages);
    }
}

impl Default for OutstandingSum {
    /// The sum without any allocation.
    fn default() -> OutstandingSum {
        let (newest_ns, ages) = (u64::MAX, AgeAmounts::default());
        OutstandingSum { allocs: 0, bytes: 0, oldest_ns: 0, newest_ns, exited: 0, unsure: 0, replaced: 0, ages }
    }
}

/// Where an allocation was made, and by which owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocOrigin {
    pub stack: Option<StackId>,
    pub owner: u32,
}

impl AllocOrigin {
    fn of(record: &LiveAllocation) -> AllocOrigin {
        AllocOrigin { stack: record.stack, owner: record.owner }
    }

    /// The key of the flow at this place.
    pub fn flow_key(&self) -> FlowKey {
        FlowKey::of(self.stack, self.owner)
    }
}

impl SumKey for AllocOrigin {
    fn others(&self) -> AllocOrigin {
        AllocOrigin { stack: None, owner: self.owner }
    }
}

pub type OutstandingSums = KeyedSums<AllocOrigin, OutstandingSum>;

/// The context in which the entry and the return of a call are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A thread, in user code.
    User(i32),
    /// A thread, in kernel code.
    Kernel(i32),
    /// Kernel code in an idle task, by CPU: all idle tasks have the tid 0.
    Cpu(u32),
}

/// A call of an allocator that has not returned yet.
#[derive(Clone, Copy, Debug)]
pub struct OpenCall {
    /// Index of the function.
    pub pair: u16,
    pub bytes: u64,
    /// The allocation that realloc was given. It is already removed from the ledger: another thread may get its address
    /// before realloc returns.
    pub old: Option<(PointerSpace, LiveAllocation)>,
    /// The address that realloc was given; or the address at which posix_memalign stores its result. 0: none.
    pub argument: u64,
}

#[derive(Debug, Default)]
struct ProcessAllocations {
    pointers: Pointers,
    exited_ns: Option<u64>,
}

/// All outstanding allocations.
#[derive(Debug)]
pub struct Ledger {
    pub counts: AllocCounts,
    pub flows: Flows,
    kernel: Pointers,
    processes: FxHashMap<i32, ProcessAllocations>,
    /// Calls that have not returned, by caller, the outermost first: mostly one.
    calls: FxHashMap<Caller, Vec<OpenCall>>,
    /// Allocations that ended processes left behind.
    left: OutstandingSums,
    /// Processes that have exited and are not in `left` yet.
    ending: Vec<i32>,
    /// Unseen frees, by place and owner of the allocation.
    replaced: FxHashMap<AllocOrigin, u64>,
    /// `--than`, ns
    than_ns: u64,
    /// The free of an allocation that is older than this may be lost.
    horizon: LossHorizon,
}

/// How long the allocations of a process are kept after its exit, ns: its events may come late.
const LINGERS_NS: u64 = 1_000_000_000;
/// Most places of ended processes that have a sum of their own.
const MAX_LEFT: usize = 1 << 16;
/// Most places with unseen frees that have a count of their own: each keeps a stack.
const MAX_REPLACED: usize = 1 << 10;
/// Most nested calls in the kernel: one of a task, and those of interrupts on top of it.
const MAX_NESTED: usize = 8;

impl Default for Ledger {
    /// A ledger that shows allocations of any age.
    fn default() -> Ledger {
        Ledger {
            counts: AllocCounts::default(),
            flows: Flows::default(),
            kernel: Pointers::default(),
            processes: FxHashMap::default(),
            calls: FxHashMap::default(),
            left: KeyedSums::new(MAX_LEFT),
            ending: Vec::new(),
            replaced: FxHashMap::default(),
            than_ns: 0,
            horizon: LossHorizon::default(),
        }
    }
}

impl Ledger {
    /// A ledger that hides allocations younger than `than_ns`.
    pub fn new(than_ns: u64) -> Ledger {
        Ledger { than_ns, ..Ledger::default() }
    }

    /// Records an allocation, with its kernel cache if the event names one. False when its address was still in use.
    #[inline(always)]
    pub fn allocated(&mut self, space: PointerSpace, record: LiveAllocation, cache: CacheTag<'_>) -> bool {
        if record.owner != OURSELVES {
            self.counts.allocs += 1;
            self.flows.allocated(record.stack, record.owner, record.bytes, cache);
        }
        match self.pointers(space).insert(record) {
            Some(known) if known.owner != OURSELVES => {
                self.replaced(known);
                false
            }
            _ => true,
        }
    }

    /// The free of `record` was not seen.
    #[cold]
    fn replaced(&mut self, record: LiveAllocation) {
        self.counts.replaced += 1;
        let key = AllocOrigin::of(&record);
        self.flows.freed(record.stack, record.owner, record.bytes);
        if self.replaced.len() < MAX_REPLACED || self.replaced.contains_key(&key) {
            *self.replaced.entry(key).or_default() += 1;
        }
    }

    /// More places had unseen frees than are kept: any place may be among them.
    pub fn replaced_anywhere(&self) -> bool {
        self.counts.replaced > self.replaced.values().sum()
    }

    /// Removes the allocation at `ptr` and returns it.
    #[inline(always)]
    pub fn freed(&mut self, space: PointerSpace, ptr: u64, time: u64) -> Option<LiveAllocation> {
        let Ledger { kernel, processes, counts, flows, .. } = self;
        let pointers = match space {
            PointerSpace::Kernel => Some(kernel),
            PointerSpace::Process(pid) => processes.get_mut(&pid).map(|process| &mut process.pointers),
        };
        // A free that arrives late belongs to the previous allocation at this address.
        pointers?.take_until(ptr, time, |record| {
            if record.owner != OURSELVES {
                counts.frees += 1;
                flows.freed(record.stack, record.owner, record.bytes);
            }
        })
    }

    /// Puts back the allocation that [`Ledger::freed`] removed, because it was not freed.
    fn restore(&mut self, space: PointerSpace, record: LiveAllocation) {
        let pointers = self.pointers(space);
        // If another allocation has this address by now, the old one was freed.
        if pointers.get(record.ptr).is_none() {
            pointers.insert(record);
            if record.owner != OURSELVES {
                self.counts.frees = self.counts.frees.saturating_sub(1);
                self.flows.restored(record.stack, record.owner, record.bytes);
            }
        }
    }

    #[inline]
    fn pointers(&mut self, space: PointerSpace) -> &mut Pointers {
        match space {
            PointerSpace::Kernel => &mut self.kernel,
            PointerSpace::Process(pid) => &mut self.processes.entry(pid).or_default().pointers,
        }
    }

    // Calls under way

    /// Whether a thread is inside an allocator: allocations that the allocator makes for itself are not counted.
    #[inline]
    pub fn is_inside(&self, tid: i32) -> bool {
        self.calls.get(&Caller::User(tid)).is_some_and(|calls| !calls.is_empty())
    }

    /// An allocator is called. False when the call is nested in a call of another allocator.
    pub fn enters(&mut self, caller: Caller, open: OpenCall) -> bool {
        let calls = self.calls.entry(caller).or_default();
        if let Caller::User(_) = caller {
            // No allocator calls itself: an earlier call was left by a jump, or its return went unseen.
            if let Some(stale) = calls.iter().position(|call| call.pair == open.pair) {
                calls.truncate(stale);
            }
        } else if calls.len() >= MAX_NESTED {
            calls.remove(0); // an interrupt may call the function that it has interrupted, but not so often
            self.counts.unfinished += 1;
        }
        calls.push(open);
        calls.len() == 1
    }

    /// The call that was just entered replaces `old`. `counts`: the free of `old` is counted even if its allocation was
    /// not seen.
    #[inline(never)]
    pub fn reallocates(&mut self, caller: Caller, space: PointerSpace, old: u64, time: u64, counts: bool) {
        let old = self.freed(space, old, time);
        if old.is_none() && counts {
            self.counts.unmatched();
        }
        if let Some(open) = self.calls.get_mut(&caller).and_then(|calls| calls.last_mut()) {
            open.old = old.map(|old| (space, old));
        }
    }

    /// A call returns: gives its entry, if it is the outermost call. In the kernel, the call of an interrupt may be
    /// nested in another one, and counts, too.
    pub fn leaves(&mut self, caller: Caller, pair: u16) -> Option<OpenCall> {
        let calls = self.calls.get_mut(&caller)?;
        let at = calls.iter().rposition(|call| call.pair == pair)?;
        let open = calls.get(at).copied();
        calls.truncate(at);
        open.filter(|_| at == 0 || !matches!(caller, Caller::User(_)))
    }

    /// A call has failed.
    pub fn failed(&mut self, open: OpenCall) {
        // realloc(p, 0) frees; else a failed realloc leaves everything as it was.
        if let Some((space, old)) = open.old.filter(|_| open.bytes > 0) {
            self.restore(space, old);
        }
    }

    // Tasks and losses

    /// A process was forked.
    pub fn forked(&mut self, pid: i32, now: u64) {
        self.fold(pid, now);
    }

    /// A process executes another program: its memory is gone.
    pub fn executed(&mut self, pid: i32, now: u64) {
        self.fold(pid, now);
    }

    /// A thread has exited. A process ends with its last thread: `lives` says whether another thread of it lives.
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

    /// Sums up the allocations of processes that exited a while ago. If `lives` says that such a process lives, it has
    /// a thread that was not known.
    pub fn expire(&mut self, now: u64, lives: impl Fn(i32) -> bool) {
        let is_due = |process: &ProcessAllocations| {
            process.exited_ns.is_some_and(|exited| exited.saturating_add(LINGERS_NS) < now)
        };
        let due: Vec<i32> = self.ending.extract_if(.., |pid| self.processes.get(pid).is_none_or(is_due)).collect();
        for pid in due {
            match self.processes.get_mut(&pid) {
                Some(process) if lives(pid) => process.exited_ns = None,
                _ => self.fold(pid, now),
            }
        }
    }

    /// Processes that are not in `living` have exited without a record.
    pub fn only_live(&mut self, living: &FxHashSet<i32>, now: u64) {
        let gone: Vec<i32> = self.processes.keys().copied().filter(|pid| !living.contains(pid)).collect();
        gone.into_iter().for_each(|pid| self.exited(pid, now));
    }

    /// Records were lost up to `end`.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
        // Return events may be missing. The allocation that realloc was given may be freed or not, like each allocation
        // that is older than the loss.
        for open in std::mem::take(&mut self.calls).into_values().flatten() {
            self.counts.unfinished += 1;
            if let Some((space, old)) = open.old {
                self.restore(space, old);
            }
        }
    }

    pub fn horizon(&self) -> LossHorizon {
        self.horizon
    }

    #[cold]
    fn fold(&mut self, pid: i32, now: u64) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let now = process.exited_ns.unwrap_or(now);
        let mut left = std::mem::replace(&mut self.left, KeyedSums::new(0));
        for record in process.pointers.iter() {
            let is_summed = self.sum(record, now, true, &mut left);
            let origin = AllocOrigin::of(record);
            match record.owner {
                OURSELVES => {}
                _ if !is_summed => self.flows.freed(record.stack, record.owner, record.bytes),
                _ if left.get(&origin).is_none() => {
                    self.flows.freed(record.stack, record.owner, record.bytes);
                    let AllocOrigin { stack, owner } = origin.others();
                    self.flows.allocated(stack, owner, record.bytes, CacheTag::default());
                }
                _ => {}
            }
        }
        self.left = left;
    }

    /// Adds a record to the sums. False: the record is too young, or an allocation of perf-prof.
    #[inline]
    fn sum(&self, record: &LiveAllocation, now: u64, exited: bool, sums: &mut OutstandingSums) -> bool {
        let age = now.saturating_sub(record.time);
        if age < self.than_ns || record.owner == OURSELVES {
            return false;
        }
        let sum = OutstandingSum {
            allocs: 1,
            bytes: record.bytes,
            oldest_ns: age,
            newest_ns: age,
            exited: u64::from(exited),
            unsure: u64::from(!self.horizon.saw_all_since(record.time)),
            replaced: 0,
            ages: AgeAmounts::of(age, if self.flows.has_sizes { record.bytes } else { 1 }),
        };
        sums.sum(AllocOrigin::of(record)).add(sum);
        true
    }

    // Results

    /// The sums of all outstanding allocations, by place and owner.
    pub fn sums(&self, now: u64) -> OutstandingSums {
        let mut sums = self.left.clone().unbounded();
        for record in self.kernel.iter() {
            self.sum(record, now, false, &mut sums);
        }
        for process in self.processes.values() {
            let (now, exited) = process.exited_ns.map_or((now, false), |exited| (exited, true));
            for record in process.pointers.iter() {
                self.sum(record, now, exited, &mut sums);
            }
        }
        for (key, sum) in sums.iter_mut() {
            sum.replaced = self.replaced.get(key).copied().unwrap_or(0);
        }
        sums
    }

    /// The stacks of all outstanding allocations.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let live = self.processes.values().map(|process| &process.pointers).chain([&self.kernel]);
        let live = live.flat_map(Pointers::iter).filter_map(|record| record.stack);
        let under_way = self.calls.values().flatten().filter_map(|call| call.old?.1.stack);
        live.chain(under_way).chain(self.left.keys().chain(self.replaced.keys()).filter_map(|origin| origin.stack))
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
