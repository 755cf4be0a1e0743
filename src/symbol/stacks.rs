//! Callchains, interned: each distinct stack is kept once and named by a number.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::record::{Callchain, ChainForm, Innermost, UserPart};
use crate::symbol::files::UnnamedReason;
use crate::symbol::mappings::Module;
use crate::symbol::space_keys::{SpaceChange, SpaceKeys};
use crate::symbol::spaces::{AddressSpaces, NO_ADDRESS};
use crate::symbol::windows::StackWindow;
use crate::task::procfs::KernelFrame;

/// An interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(NonZeroU32);

/// A stack on its way to the output thread, once.
#[derive(Clone, Debug)]
pub struct NewStack {
    pub id: StackId,
    pub pid: i32,
    pub body: StackBody,
}

#[derive(Clone, Debug)]
pub enum StackBody {
    /// Addresses and markers as the kernel writes them; `cut`: the depth limit was reached.
    Chain { words: Box<[u64]>, cut: bool, innermost: Innermost, user: UserPart },
    /// The user part is yet to be unwound.
    Window(Arc<StackWindow>),
    /// From /proc/TID/stack, which gives names but no addresses.
    Named(Vec<KernelFrame>),
}

/// What the output thread must know before it prints what follows, in order.
#[derive(Clone, Debug)]
pub enum SymbolUpdate {
    Stack(NewStack),
    Space(SpaceChange),
    /// How often each stack was taken since the last time, and how many callchains were empty.
    StackCounts {
        stacks: Vec<(StackId, u64)>,
        empty: u64,
    },
    /// Of the stacks up to `last` only those in `kept` are referred to after this batch.
    Forget {
        last: StackId,
        kept: FxHashSet<StackId>,
    },
    /// Changes of address spaces were left out before: what a process has mapped is to be asked anew.
    RereadMaps,
}

impl SymbolUpdate {
    /// About as much memory as it takes.
    pub fn bytes(&self) -> usize {
        /// Of an allocator, for each piece of memory.
        const OVERHEAD_BYTES: usize = 16;
        let heap = match self {
            SymbolUpdate::Stack(NewStack { body: StackBody::Chain { words, .. }, .. }) => size_of_val(&words[..]),
            SymbolUpdate::Stack(NewStack { body: StackBody::Named(frames), .. }) => size_of_val(&frames[..]),
            SymbolUpdate::Stack(NewStack { body: StackBody::Window(window), .. }) => window.bytes(),
            SymbolUpdate::Space(change) => change.heap_bytes(),
            SymbolUpdate::StackCounts { stacks, .. } => size_of_val(&stacks[..]),
            SymbolUpdate::Forget { kept, .. } => kept.capacity() * (size_of::<StackId>() + 1),
            SymbolUpdate::RereadMaps => 0,
        };
        size_of::<SymbolUpdate>() + OVERHEAD_BYTES + heap
    }
}

/// A frame, innermost first.
#[derive(Clone, Debug)]
pub enum Frame {
    Kernel {
        addr: u64,
        behind_call: bool,
    },
    User {
        addr: u64,
        /// It is a return address. The call before it may be the last thing that its function does: what lies at the
        /// address itself is another function then.
        behind_call: bool,
        /// Of the instruction before it then: the module and the offset in its file, or why it is in none.
        place: Result<(Arc<Module>, u64), UnnamedReason>,
    },
    Named(Box<KernelFrame>),
    /// The stack went on.
    Truncated(StackCut),
}

/// What cut a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackCut {
    DepthLimit,
    /// The copy of the user's stack ended after so many KiB.
    Window {
        kib: u8,
    },
}

impl NewStack {
    /// The frames, with user addresses as places in files as they are mapped now.
    pub fn frames(self, spaces: &mut AddressSpaces) -> Vec<Frame> {
        let (words, cut, innermost, user) = match self.body {
            StackBody::Named(frames) => return frames.into_iter().map(|frame| Frame::Named(Box::new(frame))).collect(),
            StackBody::Chain { words, cut, innermost, user } => (words, cut, innermost, user),
            // Nobody has unwound it: what the kernel found is what there is.
            StackBody::Window(window) => (window.words.clone(), false, window.form.innermost, UserPart::FramePointers),
        };
        let mut frames = Vec::with_capacity(words.len() + 1);
        let (before, user_words) = words.split_at(user_part_start(words.iter().copied(), words.len()));
        let mut kernel = true;
        let mut is_first = true; // of the kernel's, or of the user's: where that was left
        for &addr in without_end_marker(before) {
            if addr >= PERF_CONTEXT_MAX {
                kernel = addr == PERF_CONTEXT_KERNEL;
                is_first = true;
                continue;
            }
            let behind_call = match innermost {
                _ if !is_first => true,
                Innermost::Executed => false,
                Innermost::BehindTracepoint => kernel,
                Innermost::BehindCall => frames.is_empty(),
            };
            is_first = false;
            frames.push(match kernel {
                true => Frame::Kernel { addr, behind_call },
                false => Frame::User { addr, behind_call, place: Err(NO_ADDRESS) }, // of a guest
            });
        }
        let mut is_first = true;
        for &addr in without_end_marker(user_words).iter().skip(1) {
            let behind_call = !is_first || innermost == Innermost::BehindCall && frames.is_empty();
            is_first = false;
            let place = spaces.locate(self.pid, addr.saturating_sub(u64::from(behind_call)));
            frames.push(Frame::User { addr, behind_call, place });
        }
        match user {
            _ if cut || user == UserPart::TooDeep => frames.push(Frame::Truncated(StackCut::DepthLimit)),
            UserPart::Truncated { kib } => frames.push(Frame::Truncated(StackCut::Window { kib })),
            _ => {}
        }
        frames
    }
}

/// How many words come before the process's part of a chain, which is the last one and begins with its marker,
/// perf_callchain() in kernel/events/callchain.c. Behind it a word that looks like a marker is what the process had on its
/// stack.
pub fn user_part_start(mut words: impl Iterator<Item = u64>, len: usize) -> usize {
    words.position(|word| word == PERF_CONTEXT_USER).unwrap_or(len)
}

/// Without the zero that a user stack may end with. On arm64 the kernel writes down the return address of the outermost
/// frame, which has none.
fn without_end_marker(words: &[u64]) -> &[u64] {
    match words {
        [rest @ .., before, 0] if *before < PERF_CONTEXT_MAX => words.get(..=rest.len()).unwrap_or(words),
        _ => words,
    }
}

/// The table of stacks. It grows to a limit in bytes; then new stacks are counted instead of kept. Before it comes to that,
/// those that nobody refers to any more are forgotten: on a machine where processes come and go each has stacks of its own.
#[derive(Debug)]
pub struct Stacks {
    by_hash: FxHashMap<u64, Vec<(StackId, InternedStack)>>,
    words: Vec<[u8; 8]>,
    /// Those that came last, by [`recent_slot`]: most come again soon.
    recent: Box<[Option<RecentStack>]>,
    /// What each takes.
    sizes: Vec<(StackId, u32)>,
    bytes: usize,
    /// When it is time to forget.
    forget_at_bytes: usize,
    /// New stacks since the last time.
    new_since_forgetting: u32,
    limit_bytes: usize,
    depth_limit: usize,
    last: u32,
    /// Not yet sent to the output thread.
    updates: Vec<SymbolUpdate>,
    changed: bool,
    refused: u64,
    /// Callchains without an address.
    empty: u64,
    /// Callchains that were handed on to be unwound since the last counts.
    windows: Vec<StackId>,
}

#[derive(Clone, Copy, Debug)]
struct InternedStack {
    space: u32,
    start: usize,
    len: usize,
    /// Deeper than it was allowed to be: it is no stack that ends there.
    cut: bool,
    innermost: Innermost,
    user: UserPart,
    /// How often it came since the last look, once or more.
    seen: u32,
    /// How often it was the callchain of a sample.
    taken: u64,
}

/// A stack of the table, and how often it came since its [`InternedStack`] was told of that.
#[derive(Clone, Copy, Debug)]
struct RecentStack {
    id: StackId,
    /// Of the words alone.
    hash: u64,
    form: ChainForm,
    has_user: bool,
    space: u32,
    start: usize,
    len: usize,
    seen: u32,
    taken: u64,
}

/// Of so many stacks that came last.
const RECENT_BITS: u32 = 9;

pub(super) const PERF_CONTEXT_MAX: u64 = -4095_i64 as u64; // markers are above, include/uapi/linux/perf_event.h
const PERF_CONTEXT_KERNEL: u64 = -128_i64 as u64;
pub(super) const PERF_CONTEXT_USER: u64 = -512_i64 as u64;

/// At most this part of the limit may be taken by stacks that nobody refers to any more, unless the output is blocked.
const GROWTH_SHARE: usize = 4;
/// This part of the limit is for stacks that nobody refers to, but that come again and again.
const FREQUENT_SHARE: usize = 8;
/// So much always may: a look at who refers to what is not worth it for less.
const MIN_GROWTH_BYTES: usize = 1 << 20;
/// It takes a while, and may find that nearly all are needed.
const MIN_NEW_STACKS: usize = 1024;
/// And so much per ms that the last look has taken.
const GROWTH_BYTES_PER_MS: usize = 1 << 20;

/// The address at which `chain` leaves the process. None when it is not in the process at all.
pub fn innermost_user(chain: Callchain<'_>) -> Option<u64> {
    let mut words = chain.iter().skip_while(|word| *word != PERF_CONTEXT_USER).skip(1);
    words.next().filter(|word| *word < PERF_CONTEXT_MAX)
}

/// Where a stack is looked for among the recent ones. A few words must do, as what is found there is compared in full.
#[inline(always)]
fn recent_slot(chain: Callchain<'_>) -> usize {
    const FACTORS: [u64; 2] = [0xf135_7aea_2e62_a9c5, 0xbf58_476d_1ce4_e5b9];
    // The first two are a marker and the function that calls the event: most have these in common.
    let hash = if let [_, _, a, b, c, .., last] = chain.words() {
        let [a, b, c, last] = [a, b, c, last].map(|word| u64::from_ne_bytes(*word));
        let outer = (c ^ last.rotate_left(32)).wrapping_add(chain.len() as u64);
        (a ^ b.rotate_left(32)).wrapping_mul(FACTORS[0]) ^ outer.wrapping_mul(FACTORS[1])
    } else {
        chain.hash().wrapping_mul(FACTORS[0])
    };
    (hash >> (u64::BITS - RECENT_BITS)) as usize
}

/// All words are looked at: they are few, and to stop early takes a jump for each, or a call.
#[inline(always)]
fn is_same(words: &[[u8; 8]], chain: Callchain<'_>) -> bool {
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let pairs = words.iter().zip(chain.words());
    words.len() == chain.len() && pairs.fold(0, |all, (one, other)| all | (word(one) ^ word(other))) == 0
}

impl Stacks {
    /// `depth_limit`: at how many addresses the kernel cuts (`kernel.perf_event_max_stack`).
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
            depth_limit,
            last: 0,
            updates: Vec::new(),
            changed: false,
            refused: 0,
            empty: 0,
            windows: Vec::new(),
        }
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

    /// As [`Stacks::intern`], of a callchain that is none of those which somebody has asked for.
    pub fn intern_uncounted(
        &mut self,
        chain: Callchain<'_>,
        form: ChainForm,
        pid: i32,
        spaces: &mut SpaceKeys,
    ) -> Option<StackId> {
        if chain.is_empty() { None } else { self.find(chain, form, pid, spaces, 0) }
    }

    /// As [`Stacks::intern`], and counts it as so many callchains.
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
        let has_user = chain.iter().fold(false, |any, word| any | is_user(word)); // without a branch for each
        // Kernel addresses mean the same in every process.
        let space = if has_user { spaces.key(pid) } else { 0 };
        let most = match form.depth {
            0 if form.user == UserPart::FramePointers => self.depth_limit,
            0 => usize::MAX,
            depth => usize::from(depth),
        };
        let is_cut = || {
            let before = user_part_start(chain.iter(), chain.len());
            let markers = chain.iter().take(before + 1).filter(|word| *word >= PERF_CONTEXT_MAX).count();
            chain.len() - markers >= most
        };
        let cut = chain.len() >= most && is_cut();
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
            let id = self.insert(pid, body, chain.len())?;
            self.words.extend(chain.iter().map(u64::to_ne_bytes));
            let len = chain.len();
            self.by_hash
                .entry(key)
                .or_default()
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
            return; // as most where stacks are many
        }
        let bucket = self.by_hash.get_mut(&(recent.hash ^ u64::from(recent.space)));
        if let Some((_, key)) = bucket.and_then(|bucket| bucket.iter_mut().find(|(id, _)| *id == recent.id)) {
            key.seen = key.seen.saturating_add(recent.seen);
            key.taken += recent.taken;
        }
    }

    /// Lets all keys know how often their stacks came. None is recent any more.
    fn flush_recent(&mut self) {
        for at in 0..self.recent.len() {
            if let Some(recent) = self.recent[at].take() {
                self.add_counts(recent);
            }
        }
    }

    /// As [`Stacks::intern`], of one address without its callers.
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

    /// A stack read from /proc. Rare, so it is not looked up.
    pub fn intern_named(&mut self, frames: Vec<KernelFrame>) -> Option<StackId> {
        let len = frames.len();
        if len == 0 { None } else { self.insert(0, StackBody::Named(frames), len) }
    }

    /// A callchain that the output thread unwinds. It has a number of its own: what it is equal to is not known yet.
    pub fn defer(&mut self, window: StackWindow, pid: i32) -> Option<StackId> {
        const USUAL_FRAMES: usize = 32;
        let id = self.insert(pid, StackBody::Window(Arc::new(window)), USUAL_FRAMES)?;
        self.windows.push(id);
        Some(id)
    }

    fn insert(&mut self, pid: i32, body: StackBody, len: usize) -> Option<StackId> {
        // The words here, the frames on the output side, and the maps' own share, roughly.
        let bytes = len * (size_of::<u64>() + size_of::<Frame>()) + 128;
        self.new_since_forgetting = self.new_since_forgetting.saturating_add(1);
        self.changed = true;
        let next = self.last.checked_add(1).filter(|_| self.bytes + bytes <= self.limit_bytes);
        let Some(id) = next.and_then(NonZeroU32::new).map(StackId) else {
            self.refused += 1;
            return None;
        };
        self.bytes += bytes;
        self.last = id.0.get();
        self.sizes.push((id, u32::try_from(bytes).unwrap_or(u32::MAX)));
        self.updates.push(SymbolUpdate::Stack(NewStack { id, pid, body }));
        Some(id)
    }

    /// True when there are many stacks, of which some may not be needed any more.
    pub fn should_forget(&self) -> bool {
        self.bytes >= self.forget_at_bytes && self.new_since_forgetting as usize >= self.min_new_stacks()
    }

    /// Nothing can be forgotten now: not before there are many more.
    pub fn postpone_forgetting(&mut self) {
        self.new_since_forgetting = (self.min_new_stacks() - MIN_NEW_STACKS) as u32;
    }

    /// So many new ones are worth a look.
    fn min_new_stacks(&self) -> usize {
        MIN_NEW_STACKS.max(self.sizes.len() / 4)
    }

    /// How often each was taken since the last time.
    pub fn take_counts(&mut self) -> SymbolUpdate {
        self.flush_recent();
        let keys = self.by_hash.values_mut().flatten().filter(|(_, key)| key.taken > 0);
        let counts = keys.map(|(id, key)| (*id, std::mem::take(&mut key.taken)));
        let stacks = counts.chain(self.windows.drain(..).map(|id| (id, 1))).collect();
        SymbolUpdate::StackCounts { stacks, empty: std::mem::take(&mut self.empty) }
    }

    /// Forgets all but the stacks in `kept`, and those that came more than once since the last time. What of the others
    /// comes again gets a new id.
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

    /// Forgets the stacks from `first` on: nobody was told of them. One that comes again gets a new id.
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
        self.sizes.retain(|(id, _)| is_kept(*id));
        self.bytes = self.sizes.iter().map(|(_, bytes)| *bytes as usize).sum();
    }

    fn add_frequent(&self, kept: &mut FxHashSet<StackId>) {
        let mut room = self.limit_bytes / FREQUENT_SHARE;
        let frequent = self.by_hash.values().flatten().filter(|(_, key)| key.seen > 1);
        let frequent: FxHashSet<StackId> = frequent.map(|(id, _)| *id).collect();
        for (id, bytes) in &self.sizes {
            if frequent.contains(id) && !kept.contains(id) && *bytes as usize <= room {
                room -= *bytes as usize;
                kept.insert(*id);
            }
        }
    }

    /// It took so long to find out what is still needed, and to forget the rest: how many more there may be before the next
    /// time. Most of the time goes to what is needed.
    pub fn set_growth(&mut self, took: Duration) {
        let most = self.limit_bytes - self.limit_bytes / 16;
        let part = self.limit_bytes / GROWTH_SHARE;
        let by_time =
            usize::try_from(took.as_micros()).unwrap_or(usize::MAX).saturating_mul(GROWTH_BYTES_PER_MS / 1000);
        let room = by_time.max(self.bytes / 2).clamp(MIN_GROWTH_BYTES.min(part), part);
        self.forget_at_bytes = (self.bytes + room).min(most);
    }

    /// A change that later stacks depend on.
    pub fn push_change(&mut self, change: SpaceChange) {
        self.updates.push(SymbolUpdate::Space(change));
        self.changed = true;
    }

    /// What the output thread does not know yet.
    pub fn take_updates(&mut self) -> std::vec::Drain<'_, SymbolUpdate> {
        self.updates.drain(..)
    }

    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Whether there may be fresh ones, or more than should be kept, since the last [`clear_changed`](Stacks::clear_changed).
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    pub fn clear_changed(&mut self) {
        self.changed = false;
    }

    /// How many stacks found the table full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
