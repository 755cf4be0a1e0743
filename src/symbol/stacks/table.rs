//! Callchains, interned: each distinct stack is kept once and named by a number.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::record::{Callchain, ChainForm, Innermost, UserPart};
use crate::symbol::budget::{Budget, ROOT, Share};
use crate::symbol::spaces::space_keys::{SpaceChange, SpaceKeys};
use crate::symbol::stacks::chain_words::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER, user_part_start};
use crate::symbol::stacks::frame::{Frame, StackId};
use crate::symbol::stacks::new_stack::{NewStack, StackBody};
use crate::symbol::stacks::waiters::WaiterStack;
use crate::symbol::stacks::windows::StackWindow;
use crate::task::procfs::KernelFrame;
use crate::task::user_snapshot::UserSnapshot;

/// A message to the output thread. It is applied in order, before what follows it is printed.
#[derive(Clone, Debug)]
pub enum SymbolUpdate {
    Stack(NewStack),
    Space(SpaceChange),
    /// How often each stack was sampled since the last such message, and how many callchains were empty.
    StackCounts {
        stacks: Vec<(StackId, u64)>,
        empty: u64,
    },
    /// After this batch, nothing refers to stacks up to `last` except those in `kept`.
    Forget {
        last: StackId,
        kept: FxHashSet<StackId>,
    },
    /// Changes of address spaces were dropped before this message: the mappings of processes must be read again.
    RereadMaps,
}

impl SymbolUpdate {
    /// True when the message need not be sent at once. Mappings are sent in their order, so that addresses mean the
    /// same later.
    pub fn may_wait(&self) -> bool {
        matches!(self, SymbolUpdate::Stack(NewStack { body: StackBody::Chain { .. }, .. }))
    }

    /// Approximate memory of the message, in bytes.
    pub fn bytes(&self) -> usize {
        /// Overhead of the allocator per allocation.
        const OVERHEAD_BYTES: usize = 16;
        let heap = match self {
            SymbolUpdate::Stack(NewStack { body: StackBody::Chain { words, .. }, .. }) => size_of_val(&words[..]),
            SymbolUpdate::Stack(NewStack { body: StackBody::Named(frames), .. }) => size_of_val(&frames[..]),
            SymbolUpdate::Stack(NewStack { body: StackBody::Window(window), .. }) => window.bytes(),
            SymbolUpdate::Stack(NewStack { body: StackBody::Waiter(waiter), .. }) => waiter.bytes(),
            SymbolUpdate::Space(change) => change.heap_bytes(),
            SymbolUpdate::StackCounts { stacks, .. } => size_of_val(&stacks[..]),
            SymbolUpdate::Forget { kept, .. } => kept.capacity() * (size_of::<StackId>() + 1),
            SymbolUpdate::RereadMaps => 0,
        };
        size_of::<SymbolUpdate>() + OVERHEAD_BYTES + heap
    }
}

/// The table of stacks. It grows up to a limit in bytes; beyond it, new stacks are counted as refused. Stacks that
/// nobody refers to are forgotten before that: on a machine where processes come and go, each process adds stacks of
/// its own.
#[derive(Debug)]
pub struct Stacks {
    by_hash: FxHashMap<u64, Vec<(StackId, InternedStack)>>,
    words: Vec<[u8; 8]>,
    /// Cache of recent stacks, by [`recent_slot`]: most stacks recur soon.
    recent: Box<[Option<RecentStack>]>,
    /// Bytes of each stack, and the hash of its place: see [`Stacks::place_hash`].
    sizes: Vec<(StackId, u32, Option<NonZeroU32>)>,
    bytes: usize,
    /// Size of the table at which unreferenced stacks are looked for.
    forget_at_bytes: usize,
    /// New stacks since the last such search, refused ones included.
    new_since_forgetting: u32,
    limit_bytes: usize,
    /// The table's part of the run's budget, which changes in steps.
    share: Option<Share>,
    depth_limit: usize,
    last: u32,
    /// Messages that the output thread has not been sent yet.
    updates: Vec<SymbolUpdate>,
    changed: bool,
    refused: u64,
    /// Callchains without an address.
    empty: u64,
    /// Callchains that were handed on to be unwound since the last counts.
    windows: Vec<StackId>,
}

/// A stack in the table.
#[derive(Clone, Copy, Debug)]
struct InternedStack {
    /// Key of the address space, from [`SpaceKeys::key`]; 0 without user frames.
    space: u32,
    start: usize,
    len: usize,
    /// The depth limit cut the stack: it differs from a whole stack of equal frames.
    cut: bool,
    innermost: Innermost,
    user: UserPart,
    /// Look-ups since the last forgetting, including the first one.
    seen: u32,
    /// Samples with this callchain since the last [`SymbolUpdate::StackCounts`].
    taken: u64,
}

/// An entry of the cache of recent stacks. Its counts are added to the [`InternedStack`] when it leaves the cache.
#[derive(Clone, Copy, Debug)]
struct RecentStack {
    id: StackId,
    /// Hash of the words, without the address space.
    hash: u64,
    form: ChainForm,
    has_user: bool,
    space: u32,
    start: usize,
    len: usize,
    seen: u32,
    taken: u64,
}

/// Number of entries in the cache of recent stacks, as a power of two.
const RECENT_BITS: u32 = 9;

/// At most 1/GROWTH_SHARE of the limit is added between two forgettings, unless the output is blocked.
const GROWTH_SHARE: usize = 4;
/// 1/FREQUENT_SHARE of the limit is kept for stacks that recur although nobody refers to them.
const FREQUENT_SHARE: usize = 8;
/// Growth that is always allowed between two forgettings: finding out which stacks are in use is not worth it for less.
const MIN_GROWTH_BYTES: usize = 1 << 20;
/// New stacks that are always allowed between two forgettings: a search takes time, and may find nearly all in use.
const MIN_NEW_STACKS: usize = 1024;
/// Step in which the table takes bytes from the run's budget and gives them back.
const SHARE_STEP_BYTES: usize = 1 << 20;
/// 1/KEPT_SHARE of the limit is the table's own, whatever the rest of the run takes.
const KEPT_SHARE: usize = 8;
/// Growth allowed per millisecond of CPU time that the last forgetting took.
const GROWTH_BYTES_PER_MS: usize = 1 << 20;

/// The cache slot of a callchain. A few words suffice for this hash, because the entry found is compared in full.
#[inline(always)]
fn recent_slot(chain: Callchain<'_>) -> usize {
    const FACTORS: [u64; 2] = [0xf135_7aea_2e62_a9c5, 0xbf58_476d_1ce4_e5b9];
    // Words 0 and 1 are a marker and the function that raises the event: most chains share them.
    let hash = if let [_, _, a, b, c, .., last] = chain.words() {
        let [a, b, c, last] = [a, b, c, last].map(|word| u64::from_ne_bytes(*word));
        let outer = (c ^ last.rotate_left(32)).wrapping_add(chain.len() as u64);
        (a ^ b.rotate_left(32)).wrapping_mul(FACTORS[0]) ^ outer.wrapping_mul(FACTORS[1])
    } else {
        chain.hash().wrapping_mul(FACTORS[0])
    };
    (hash >> (u64::BITS - RECENT_BITS)) as usize
}

/// Compares all words: they are few, and stopping early would cost a branch per word, or a call.
#[inline(always)]
fn is_same(words: &[[u8; 8]], chain: Callchain<'_>) -> bool {
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let pairs = words.iter().zip(chain.words());
    words.len() == chain.len() && pairs.fold(0, |all, (one, other)| all | (word(one) ^ word(other))) == 0
}

/// Whether the kernel's limit of addresses, or that of the event, cut a chain.
#[inline(always)]
fn is_cut(chain: Callchain<'_>, form: ChainForm, depth_limit: usize) -> bool {
    let limit = match form.depth {
        0 if form.user == UserPart::FramePointers => depth_limit,
        0 => usize::MAX,
        depth => usize::from(depth),
    };
    let addresses = || {
        // Only a chain that perf-prof has unwound has perf-prof's marks among the user addresses.
        let before = match form.user {
            UserPart::FramePointers => user_part_start(chain.iter(), chain.len()),
            _ => chain.len(),
        };
        chain.len() - chain.iter().take(before + 1).filter(|word| *word >= PERF_CONTEXT_MAX).count()
    };
    chain.len() >= limit && addresses() >= limit
}

fn hashed_place(hash: u64) -> Option<NonZeroU32> {
    NonZeroU32::new((hash >> 32) as u32 ^ hash as u32)
}

impl Stacks {
    /// `depth_limit`: number of addresses at which the kernel cuts (`kernel.perf_event_max_stack`).
    pub fn new(limit_bytes: usize, depth_limit: usize) -> Stacks {
        Stacks {
            by_hash: FxHashMap::default(),
            words: Vec::new(),
            recent: vec![None; 1 << RECENT_BITS].into_boxed_slice(),
            sizes: Vec::new(),
            bytes: 0,
            forget_at_bytes: MIN_GROWTH_BYTES.min(limit_bytes / GROWTH_SHARE),
            new_since_forgetting: 0,
            limit_bytes,
            share: None,
            depth_limit,
            last: 0,
            updates: Vec::new(),
            changed: false,
            refused: 0,
            empty: 0,
            windows: Vec::new(),
        }
    }

    /// Makes the memory of the table a part of `whole`. Stacks belong to no single user, so no user's share pays for
    /// them.
    #[must_use]
    pub fn within(self, whole: &Budget) -> Stacks {
        Stacks { share: whole.take((self.limit_bytes / KEPT_SHARE) as u64, &[ROOT]), ..self }
    }

    /// The id of `chain` in process `pid`. None when it is empty or the table is full.
    #[inline]
    pub fn intern(
        &mut self,
        chain: Callchain<'_>,
        form: ChainForm,
        pid: i32,
        spaces: &mut SpaceKeys,
    ) -> Option<StackId> {
        if chain.is_empty() {
            self.empty += 1;
            return None;
        }
        self.find(chain, form, pid, spaces, 1)
    }

    /// As [`Stacks::intern`], but neither the stack nor an empty chain is counted in [`SymbolUpdate::StackCounts`].
    pub fn intern_uncounted(
        &mut self,
        chain: Callchain<'_>,
        form: ChainForm,
        pid: i32,
        spaces: &mut SpaceKeys,
    ) -> Option<StackId> {
        if chain.is_empty() { None } else { self.find(chain, form, pid, spaces, 0) }
    }

    /// As [`Stacks::intern`]; adds `taken` to the samples of the stack.
    #[inline]
    fn find(
        &mut self,
        chain: Callchain<'_>,
        form: ChainForm,
        pid: i32,
        spaces: &mut SpaceKeys,
        taken: u64,
    ) -> Option<StackId> {
        let place = recent_slot(chain);
        if let Some(recent) = &mut self.recent[place]
            && recent.form == form
            && is_same(&self.words[recent.start..recent.start + recent.len], chain)
            && recent.space == if recent.has_user { spaces.key(pid) } else { 0 }
        {
            recent.seen = recent.seen.saturating_add(1);
            recent.taken += taken;
            return Some(recent.id);
        }
        self.find_or_insert(chain, place, form, pid, spaces, taken)
    }

    #[inline(never)]
    fn find_or_insert(
        &mut self,
        chain: Callchain<'_>,
        place: usize,
        form: ChainForm,
        pid: i32,
        spaces: &mut SpaceKeys,
        taken: u64,
    ) -> Option<StackId> {
        let is_user = |word| word >= PERF_CONTEXT_MAX && word != PERF_CONTEXT_KERNEL;
        let has_user = chain.iter().fold(false, |any, word| any | is_user(word)); // no branch per word
        // Kernel addresses mean the same in every process.
        let space = if has_user { spaces.key(pid) } else { 0 };
        let cut = is_cut(chain, form, self.depth_limit);
        let words = &self.words;
        let ChainForm { innermost, user, .. } = form;
        let is_it = |key: &InternedStack| {
            (key.space, key.cut, key.innermost, key.user) == (space, cut, innermost, user)
                && is_same(&words[key.start..key.start + key.len], chain)
        };
        let hash = chain.hash();
        let key = hash ^ u64::from(space);
        let bucket = self.by_hash.get_mut(&key);
        let found = bucket.and_then(|bucket| bucket.iter_mut().find(|(_, key)| is_it(key)));
        let (id, start) = if let Some((id, key)) = found {
            key.taken += taken;
            key.seen = key.seen.saturating_add(1);
            (*id, key.start)
        } else {
            let start = self.words.len();
            let body = StackBody::Chain { words: chain.iter().collect(), cut, innermost, user };
            let id = self.insert(pid, body, chain.len(), hashed_place(key))?;
            self.words.extend(chain.iter().map(u64::to_ne_bytes));
            let len = chain.len();
            // Nearly always the only stack with its hash: a vector that grows would have room for four.
            self.by_hash
                .entry(key)
                .or_insert_with(|| Vec::with_capacity(1))
                .push((id, InternedStack { space, start, len, cut, innermost, user, seen: 1, taken }));
            (id, start)
        };
        let recent = RecentStack { id, hash, form, has_user, space, start, len: chain.len(), seen: 0, taken: 0 };
        if let Some(before) = self.recent[place].replace(recent) {
            self.add_counts(before);
        }
        Some(id)
    }

    fn add_counts(&mut self, recent: RecentStack) {
        if (recent.seen, recent.taken) == (0, 0) {
            return; // most entries, where stacks are many
        }
        let bucket = self.by_hash.get_mut(&(recent.hash ^ u64::from(recent.space)));
        if let Some((_, key)) = bucket.and_then(|bucket| bucket.iter_mut().find(|(id, _)| *id == recent.id)) {
            key.seen = key.seen.saturating_add(recent.seen);
            key.taken += recent.taken;
        }
    }

    /// Adds the counts of all recent stacks to their entries, and empties the cache.
    fn flush_recent(&mut self) {
        for at in 0..self.recent.len() {
            if let Some(recent) = self.recent[at].take() {
                self.add_counts(recent);
            }
        }
    }

    /// As [`Stacks::intern_uncounted`], for one address without its callers.
    pub fn intern_address(
        &mut self,
        ip: u64,
        user: bool,
        innermost: Innermost,
        pid: i32,
        spaces: &mut SpaceKeys,
    ) -> Option<StackId> {
        let marker = if user { PERF_CONTEXT_USER } else { PERF_CONTEXT_KERNEL };
        let [head, tail] = [marker, ip].map(u64::to_ne_bytes);
        let mut words = [0; 16];
        words[..8].copy_from_slice(&head);
        words[8..].copy_from_slice(&tail);
        self.find(
            Callchain::from_bytes(&words),
            ChainForm { depth: u16::MAX, innermost, ..ChainForm::default() },
            pid,
            spaces,
            0,
        )
    }

    /// Adds a stack read from /proc. These are rare, so equal ones are not looked for.
    pub fn intern_named(&mut self, frames: Vec<KernelFrame>) -> Option<StackId> {
        let len = frames.len();
        if len == 0 { None } else { self.insert(0, StackBody::Named(frames), len, None) }
    }

    /// Adds such a stack together with the user part of a thread that waits.
    pub fn intern_waiter(&mut self, kernel: Vec<KernelFrame>, user: Box<UserSnapshot>) -> Option<StackId> {
        let waiter = Box::new(WaiterStack::new(kernel, user));
        let len = waiter.expected_frames();
        self.insert(waiter.user.pid, StackBody::Waiter(waiter), len, None)
    }

    /// Adds a callchain that the output thread will unwind. It always gets a new id: the stacks that it is equal to are
    /// not known yet.
    pub fn defer(&mut self, window: StackWindow, pid: i32) -> Option<StackId> {
        const USUAL_FRAMES: usize = 32;
        let place = hashed_place(window.place());
        let id = self.insert(pid, StackBody::Window(Arc::new(window)), USUAL_FRAMES, place)?;
        self.windows.push(id);
        Some(id)
    }

    fn insert(&mut self, pid: i32, body: StackBody, len: usize, place: Option<NonZeroU32>) -> Option<StackId> {
        // The words here, the frames on the output side, and roughly what the maps take.
        let bytes = len * (size_of::<u64>() + size_of::<Frame>()) + 240;
        self.new_since_forgetting = self.new_since_forgetting.saturating_add(1);
        self.changed = true;
        let has_room = self.has_room(bytes);
        let next = self.last.checked_add(1).filter(|_| has_room);
        let Some(id) = next.and_then(NonZeroU32::new).map(StackId) else {
            self.refused += 1;
            self.forget_at_bytes = self.forget_at_bytes.min(self.bytes); // the rest of the run may have taken bytes
            return None;
        };
        self.bytes += bytes;
        self.last = id.0.get();
        self.sizes.push((id, u32::try_from(bytes).unwrap_or(u32::MAX), place));
        self.updates.push(SymbolUpdate::Stack(NewStack { id, pid, body }));
        Some(id)
    }

    /// A number that is the same for equal stacks of a process, whatever their ids. None: the stack was read from /proc,
    /// or is forgotten.
    pub fn place_hash(&self, id: StackId) -> Option<NonZeroU32> {
        let at = self.sizes.binary_search_by_key(&id, |(id, ..)| *id).ok()?;
        self.sizes[at].2
    }

    fn has_room(&mut self, more_bytes: usize) -> bool {
        let bytes = self.bytes + more_bytes;
        let pays =
            |share: &mut Share| bytes as u64 <= share.bytes() || share.grow(more_bytes.max(SHARE_STEP_BYTES) as u64);
        bytes <= self.limit_bytes && self.share.as_mut().is_none_or(pays)
    }

    /// True when it is time to look for stacks that nobody refers to.
    pub fn should_forget(&self) -> bool {
        self.bytes >= self.forget_at_bytes && self.new_since_forgetting as usize >= self.min_new_stacks()
    }

    /// Nothing can be forgotten now: the next attempt waits for more stacks.
    pub fn postpone_forgetting(&mut self) {
        self.new_since_forgetting = (self.min_new_stacks() - MIN_NEW_STACKS) as u32;
    }

    /// New stacks after which the next search is worth its time.
    fn min_new_stacks(&self) -> usize {
        MIN_NEW_STACKS.max(self.sizes.len() / 4)
    }

    /// How often each stack was sampled since the last call.
    pub fn take_counts(&mut self) -> SymbolUpdate {
        self.flush_recent();
        let keys = self.by_hash.values_mut().flatten().filter(|(_, key)| key.taken > 0);
        let counts = keys.map(|(id, key)| (*id, std::mem::take(&mut key.taken)));
        let stacks = counts.chain(self.windows.drain(..).map(|id| (id, 1))).collect();
        SymbolUpdate::StackCounts { stacks, empty: std::mem::take(&mut self.empty) }
    }

    /// Forgets all stacks except those in `kept` and those seen more than once since the last call. A forgotten stack
    /// that recurs gets a new id.
    pub fn forget(&mut self, mut kept: FxHashSet<StackId>) -> Vec<SymbolUpdate> {
        self.flush_recent();
        self.add_frequent(&mut kept);
        let taken = self.take_counts();
        self.retain(|id| kept.contains(&id));
        self.new_since_forgetting = 0;
        self.set_growth(Duration::ZERO);
        let last = NonZeroU32::new(self.last).map(StackId);
        std::iter::once(taken).chain(last.map(|last| SymbolUpdate::Forget { last, kept })).collect()
    }

    /// Forgets the stacks from `first` on, which the output thread never received. One that recurs gets a new id.
    pub fn forget_from(&mut self, first: StackId) {
        self.flush_recent();
        self.retain(|id| id < first);
    }

    fn retain(&mut self, is_kept: impl Fn(StackId) -> bool) {
        let before = std::mem::take(&mut self.words);
        let words = &mut self.words;
        let mut keep = |(id, key): &mut (StackId, InternedStack)| {
            if is_kept(*id) {
                let start = words.len();
                words.extend_from_slice(&before[key.start..key.start + key.len]);
                key.start = start;
                key.seen = 0;
            }
            is_kept(*id)
        };
        self.by_hash.retain(|_, bucket| {
            bucket.retain_mut(&mut keep);
            !bucket.is_empty()
        });
        self.by_hash.shrink_to_fit();
        self.sizes.retain(|(id, ..)| is_kept(*id));
        self.bytes = self.sizes.iter().map(|(_, bytes, _)| *bytes as usize).sum();
        let kept = (self.bytes + SHARE_STEP_BYTES).max(self.limit_bytes / KEPT_SHARE);
        self.share.iter_mut().for_each(|share| share.shrink_to(kept as u64));
    }

    /// Adds to `kept` the stacks seen more than once, oldest first, within 1/[`FREQUENT_SHARE`] of the limit.
    fn add_frequent(&self, kept: &mut FxHashSet<StackId>) {
        let mut room = self.limit_bytes / FREQUENT_SHARE;
        let frequent = self.by_hash.values().flatten().filter(|(_, key)| key.seen > 1);
        let frequent: FxHashSet<StackId> = frequent.map(|(id, _)| *id).collect();
        for (id, bytes, _) in &self.sizes {
            if frequent.contains(id) && !kept.contains(id) && *bytes as usize <= room {
                room -= *bytes as usize;
                kept.insert(*id);
            }
        }
    }

    /// Sets how far the table may grow before the next forgetting. `took`: CPU time of the last one, which goes mostly
    /// to the stacks that stay.
    pub fn set_growth(&mut self, took: Duration) {
        let most = self.limit_bytes - self.limit_bytes / 16;
        let part = self.limit_bytes / GROWTH_SHARE;
        let by_time =
            usize::try_from(took.as_micros()).unwrap_or(usize::MAX).saturating_mul(GROWTH_BYTES_PER_MS / 1000);
        let room = by_time.max(self.bytes / 2).clamp(MIN_GROWTH_BYTES.min(part), part);
        self.forget_at_bytes = (self.bytes + room).min(most);
    }

    /// Queues a change of an address space; stacks interned later depend on it.
    pub fn push_change(&mut self, change: SpaceChange) {
        self.updates.push(SymbolUpdate::Space(change));
        self.changed = true;
    }

    /// The messages that the output thread has not been sent yet.
    pub fn take_updates(&mut self) -> std::vec::Drain<'_, SymbolUpdate> {
        self.updates.drain(..)
    }

    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Whether there may be messages to send or stacks to forget since the last
    /// [`clear_changed`](Stacks::clear_changed).
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    pub fn clear_changed(&mut self) {
        self.changed = false;
    }

    /// Number of stacks that were not kept because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
