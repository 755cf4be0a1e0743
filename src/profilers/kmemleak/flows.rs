//! What came and went at each place, and how much of it stayed, over time.
//!
//! An event adds to the sums of its place and does no more. Ten times a second [`Flows::look`] compares the amount that is
//! outstanding at each place with the least of the part of time that goes on. What a leak keeps is never given back, so the
//! least of each part rises; what a cache or a queue takes and gives back does not raise it.

use rustc_hash::FxHashMap;

use crate::report::WordSet;
use crate::symbol::StackId;
use crate::tep::format::field::LocatedText;

/// A place; or an owner, where the events tell no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    pub fn of(stack: Option<StackId>, owner: u32) -> FlowKey {
        /// Set in the keys of owners: numbers of stacks have 32 bits.
        const OWNER: u64 = 1 << 32;
        FlowKey(stack.map_or(OWNER | u64::from(owner), |stack| stack.number().into()))
    }

    /// The number of a stack. None: the key of an owner.
    fn stack(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }
}

/// The cache of the kernel that an object is from, as its event names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheTag<'a> {
    /// Equal for equal caches at one place: of the length of the name and the size of the objects. 0: no cache.
    key: u32,
    name: Option<LocatedText>,
    raw: &'a [u8],
}

impl<'a> CacheTag<'a> {
    /// The tag of an object of `bytes`, whose event has a name.
    #[inline(always)]
    pub fn of(name: LocatedText, bytes: u64, raw: &'a [u8]) -> CacheTag<'a> {
        CacheTag { key: name.word(raw).unwrap_or(0) ^ bytes as u32, name: Some(name), raw }
    }
}

/// The sums of a place since it was first seen. An event adds to two of them that are not neighbours: to add to both at once
/// would take more instructions.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct FlowSums {
    /// Outstanding bytes.
    bytes: u64,
    /// The number of its stack. 0: it has none.
    stack: u32,
    /// [`CacheTag::key`] of the last allocation.
    cache: u32,
    allocs: u64,
    frees: u64,
}

const _: () = assert!(size_of::<FlowSums>() == 32);

/// A place, with what is rarely looked at.
#[derive(Debug, Default)]
struct FlowAccount {
    key: FlowKey,
    sums: FlowSums,
    history: Option<Box<FlowHistory>>,
    caches: WordSet,
}

/// A place over time.
#[derive(Clone, Copy, Debug, Default)]
struct FlowHistory {
    /// The least amount of the part of time that goes on.
    least: u64,
    points: [FlowPoint; POINTS],
}

/// A part of time that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FlowPoint {
    /// The least amount that was outstanding.
    least: u64,
    /// The sums at its end.
    allocs: u64,
    frees: u64,
}

/// The time since the start in parts of equal length. When there are too many, each two become one.
#[derive(Clone, Copy, Debug)]
struct FlowClock {
    start_ns: u64,
    part_ns: u64,
    /// Parts that are over.
    parts: usize,
}

/// Places whose sums are found without hashing.
const RECENT: usize = 1 << 12;
/// Parts of time that are kept.
const POINTS: usize = 16;
/// Parts of time that a trend is judged by, the last ones.
pub const TREND_PARTS: usize = 8;
/// Length of a part at first, ns. The kernel frees much of what it no longer needs within some 100 ms.
pub const FIRST_PART_NS: u64 = 500_000_000;
/// Accounts up to which those of places stay where nothing is outstanding.
const MAX_IDLE: usize = 1 << 12;

/// The accounts of all places.
#[derive(Debug)]
pub struct Flows {
    /// By the numbers of stacks: while a place is here, the sums in its account are old.
    recent: Box<[FlowSums; RECENT]>,
    accounts: Vec<FlowAccount>,
    numbers: FxHashMap<FlowKey, u32>,
    clock: FlowClock,
    /// Accounts at which those of places are dropped where nothing is outstanding.
    drop_at: usize,
    /// Amounts are bytes, else allocations.
    pub has_sizes: bool,
}

impl Default for Flows {
    fn default() -> Flows {
        let clock = FlowClock { start_ns: 0, part_ns: FIRST_PART_NS, parts: 0 };
        let recent = Box::new([FlowSums::default(); RECENT]);
        Flows {
            recent,
            accounts: Vec::new(),
            numbers: FxHashMap::default(),
            clock,
            drop_at: MAX_IDLE,
            has_sizes: false,
        }
    }
}

/// A place in the last parts of time, with what goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceFlow {
    /// The least amount outstanding in each part: as many as [`FlowSpan::parts`].
    pub least: [u64; TREND_PARTS],
    /// In this span.
    pub allocs: u64,
    pub frees: u64,
    /// Since the place was first seen.
    pub all_allocs: u64,
    pub all_frees: u64,
    /// The caches of the kernel that its objects are from.
    pub caches: WordSet,
}

/// What the numbers of each [`PlaceFlow`] are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSpan {
    /// Up to now.
    pub span_ns: u64,
    pub part_ns: u64,
    /// Parts that are over, [`TREND_PARTS`] at most.
    pub parts: usize,
}

impl Flows {
    pub fn start(&mut self, now: u64) {
        self.clock.start_ns = now;
    }

    #[inline(always)]
    pub fn allocated(&mut self, stack: Option<StackId>, owner: u32, bytes: u64, cache: CacheTag<'_>) {
        if let Some(stack) = stack {
            let sums = &mut self.recent[slot(stack.number())];
            if sums.stack == stack.number() && sums.cache == cache.key {
                sums.allocs += 1;
                sums.bytes = sums.bytes.wrapping_add(bytes); // an event's own expression may say anything
                return;
            }
        }
        self.allocated_elsewhere(FlowKey::of(stack, owner), bytes, cache);
    }

    #[inline(never)]
    fn allocated_elsewhere(&mut self, key: FlowKey, bytes: u64, cache: CacheTag<'_>) {
        let number = self.number(key);
        if let (Some(name), Some(account)) = (cache.name, self.accounts.get_mut(number)) {
            account.caches.add(name.text(cache.raw).unwrap_or_default());
        }
        let Some(sums) = self.sums(key, number) else { return };
        sums.cache = cache.key;
        sums.allocs += 1;
        sums.bytes = sums.bytes.wrapping_add(bytes);
    }

    #[inline(always)]
    pub fn freed(&mut self, stack: Option<StackId>, owner: u32, bytes: u64) {
        if let Some(stack) = stack {
            let sums = &mut self.recent[slot(stack.number())];
            if sums.stack == stack.number() {
                sums.frees += 1;
                sums.bytes = sums.bytes.wrapping_sub(bytes);
                return;
            }
        }
        self.freed_elsewhere(FlowKey::of(stack, owner), bytes);
    }

    #[inline(never)]
    fn freed_elsewhere(&mut self, key: FlowKey, bytes: u64) {
        let number = self.number(key);
        let Some(sums) = self.sums(key, number) else { return };
        sums.frees += 1;
        sums.bytes = sums.bytes.wrapping_sub(bytes);
    }

    /// It was not freed after all.
    pub fn restored(&mut self, stack: Option<StackId>, owner: u32, bytes: u64) {
        let key = FlowKey::of(stack, owner);
        let number = self.number(key);
        let Some(sums) = self.sums(key, number) else { return };
        sums.frees = sums.frees.saturating_sub(1);
        sums.bytes = sums.bytes.wrapping_add(bytes);
    }

    /// The number of the account of a place, which is made if there is none.
    fn number(&mut self, key: FlowKey) -> usize {
        let next = self.accounts.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let sums = FlowSums { stack: key.stack().unwrap_or(0), ..FlowSums::default() };
            self.accounts.push(FlowAccount { key, sums, ..FlowAccount::default() });
        }
        number as usize
    }

    /// The sums of a place. With a stack they are recent ones from now on.
    fn sums(&mut self, key: FlowKey, number: usize) -> Option<&mut FlowSums> {
        let Some(stack) = key.stack() else { return self.accounts.get_mut(number).map(|account| &mut account.sums) };
        if self.recent[slot(stack)].stack != stack {
            self.put_back(slot(stack));
            self.recent[slot(stack)] = self.accounts.get(number)?.sums;
        }
        Some(&mut self.recent[slot(stack)])
    }

    /// Copies the recent sums of a slot to their account.
    fn put_back(&mut self, slot: usize) {
        let sums = self.recent[slot];
        let number = self.numbers.get(&FlowKey(sums.stack.into())).filter(|_| sums.stack != 0);
        if let Some(account) = number.and_then(|&number| self.accounts.get_mut(number as usize)) {
            account.sums = sums;
        }
    }

    /// Looks at the amounts of all places.
    pub fn look(&mut self, now: u64) {
        (0..RECENT).for_each(|slot| self.put_back(slot));
        if self.accounts.len() > self.drop_at {
            self.drop_idle();
        }
        let has_sizes = self.has_sizes;
        for FlowAccount { sums, history, .. } in &mut self.accounts {
            let amount = if has_sizes { sums.bytes } else { sums.allocs.saturating_sub(sums.frees) };
            // In the part in which a place is first seen, nothing was outstanding there before.
            let history = history.get_or_insert_default();
            history.least = history.least.min(amount);
        }
        while self.clock.is_over(now) {
            self.end_part();
        }
    }

    /// A part of time is over.
    fn end_part(&mut self) {
        let (at, has_sizes) = (self.clock.parts, self.has_sizes);
        let folds = at + 1 == POINTS;
        for FlowAccount { sums, history, .. } in &mut self.accounts {
            let Some(history) = history else { continue };
            let amount = if has_sizes { sums.bytes } else { sums.allocs.saturating_sub(sums.frees) };
            if let Some(point) = history.points.get_mut(at) {
                *point = FlowPoint { least: history.least, allocs: sums.allocs, frees: sums.frees };
            }
            history.least = amount;
            if folds {
                history.fold();
            }
        }
        self.clock.end_part(folds);
    }

    /// Drops the accounts of places where nothing is outstanding: they may come again, with new sums.
    #[cold]
    fn drop_idle(&mut self) {
        self.recent.fill(FlowSums::default());
        self.accounts.retain(|account| account.sums.allocs != account.sums.frees);
        self.numbers.clear();
        self.numbers.extend(self.accounts.iter().map(|account| account.key).zip(0..));
        self.drop_at = MAX_IDLE.max(2 * self.accounts.len());
    }

    /// The span of [`Flows::of`], after [`Flows::look`].
    pub fn span(&self, now: u64) -> FlowSpan {
        let FlowClock { part_ns, parts, .. } = self.clock;
        let first_ns = self.clock.end_of(self.first_part());
        FlowSpan { span_ns: now.saturating_sub(first_ns), part_ns, parts: parts.min(TREND_PARTS) }
    }

    /// The number of the first part of the span.
    fn first_part(&self) -> usize {
        self.clock.parts.saturating_sub(TREND_PARTS)
    }

    /// What came and went at a place, after [`Flows::look`].
    pub fn of(&self, key: FlowKey) -> PlaceFlow {
        let Some(account) = self.numbers.get(&key).and_then(|&number| self.accounts.get(number as usize)) else {
            return PlaceFlow::default();
        };
        let FlowAccount { sums, history, caches, .. } = account;
        let first = self.first_part();
        let points = history.as_ref().map_or(&[][..], |history| &history.points[..self.clock.parts]);
        let before = first.checked_sub(1).and_then(|last| points.get(last)).copied().unwrap_or_default();
        let mut least = [0; TREND_PARTS];
        for (least, point) in least.iter_mut().zip(points.iter().skip(first)) {
            *least = point.least;
        }
        PlaceFlow {
            least,
            allocs: sums.allocs.saturating_sub(before.allocs),
            frees: sums.frees.saturating_sub(before.frees),
            all_allocs: sums.allocs,
            all_frees: sums.frees,
            caches: caches.clone(),
        }
    }
}

/// Where the sums of a stack are while they are recent.
#[inline(always)]
fn slot(stack: u32) -> usize {
    stack as usize % RECENT
}

impl FlowHistory {
    /// Makes one part of each two.
    fn fold(&mut self) {
        let points = self.points;
        let mut pairs =
            points.chunks_exact(2).map(|pair| FlowPoint { least: pair[0].least.min(pair[1].least), ..pair[1] });
        self.points.fill_with(|| pairs.next().unwrap_or_default());
    }
}

impl FlowClock {
    /// The end of the first `parts` parts.
    fn end_of(&self, parts: usize) -> u64 {
        self.start_ns.saturating_add(self.part_ns.saturating_mul(parts as u64))
    }

    fn is_over(&self, now: u64) -> bool {
        self.end_of(self.parts + 1) <= now
    }

    fn end_part(&mut self, folds: bool) {
        self.parts += 1;
        if folds {
            self.parts /= 2;
            self.part_ns = self.part_ns.saturating_mul(2);
        }
    }
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
