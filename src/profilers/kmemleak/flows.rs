//! Allocations and frees at each place, and how much stayed allocated, over time.
//!
//! An event only adds to the sums of its place. Ten times per second [`Flows::look`] compares the outstanding amount of
//! each place with its minimum in the current part of the time. A leak is never freed, so the minimum of each part
//! rises; what a cache or a queue allocates and frees again does not raise it.

use rustc_hash::FxHashMap;

use crate::report::WordSet;
use crate::symbol::StackId;
use crate::tep::format::field::LocatedText;

/// A place; or an owner, where events have no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    pub fn of(stack: Option<StackId>, owner: u32) -> FlowKey {
        /// Set in the keys of owners: stack numbers have 32 bits.
        const OWNER: u64 = 1 << 32;
        FlowKey(stack.map_or(OWNER | u64::from(owner), |stack| stack.number().into()))
    }

    /// The stack number. None: the key is that of an owner.
    fn stack(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }
}

/// The kernel cache that an object is from, as its event names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheTag<'a> {
    /// Equal for equal caches at one place: made of the length of the name and the size of the objects. 0: no cache.
    key: u32,
    name: Option<LocatedText>,
    raw: &'a [u8],
}

impl<'a> CacheTag<'a> {
    /// The tag of an object of `bytes`, whose event has the name of a cache.
    #[inline(always)]
    pub fn of(name: LocatedText, bytes: u64, raw: &'a [u8]) -> CacheTag<'a> {
        CacheTag { key: name.word(raw).unwrap_or(0) ^ bytes as u32, name: Some(name), raw }
    }
}

/// The sums of a place since it was first seen. An event adds to two of them that are not adjacent: one wide addition
/// to both would take more instructions.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct FlowSums {
    /// Outstanding bytes.
    bytes: u64,
    /// The stack number of the place. 0: it has no stack.
    stack: u32,
    /// [`CacheTag::key`] of the last allocation.
    cache: u32,
    allocs: u64,
    frees: u64,
}

const _: () = assert!(size_of::<FlowSums>() == 32);

/// The account of a place, with data that is rarely used.
#[derive(Debug, Default)]
struct FlowAccount {
    key: FlowKey,
    sums: FlowSums,
    history: Option<Box<FlowHistory>>,
    caches: WordSet,
}

/// The history of a place.
#[derive(Clone, Copy, Debug, Default)]
struct FlowHistory {
    /// The minimum in the current part.
    least: u64,
    points: [FlowPoint; POINTS],
}

/// A finished part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FlowPoint {
    /// The minimum of the outstanding amount.
    least: u64,
    /// The sums at the end of the part.
    allocs: u64,
    frees: u64,
}

/// The time since the start in parts of equal length. When there are too many parts, each two are merged.
#[derive(Clone, Copy, Debug)]
struct FlowClock {
    start_ns: u64,
    part_ns: u64,
    /// Number of finished parts.
    parts: usize,
}

/// Size of the direct-mapped table of recent sums, which are found without hashing.
const RECENT: usize = 1 << 12;
/// Most parts that are kept.
const POINTS: usize = 16;
/// The last parts, by which a trend is judged.
pub const TREND_PARTS: usize = 8;
/// Initial length of a part, ns. The kernel frees much unused memory only after some 100 ms.
pub const FIRST_PART_NS: u64 = 500_000_000;
/// Number of accounts up to which those of places without outstanding amounts are kept.
const MAX_IDLE: usize = 1 << 12;

/// The accounts of all places.
#[derive(Debug)]
pub struct Flows {
    /// By stack number. While a place is in this table, the sums in its account are out of date.
    recent: Box<[FlowSums; RECENT]>,
    accounts: Vec<FlowAccount>,
    numbers: FxHashMap<FlowKey, u32>,
    clock: FlowClock,
    /// Number of accounts at which those of places without outstanding amounts are dropped.
    drop_at: usize,
    /// Amounts are bytes; otherwise numbers of allocations.
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

/// The flow of a place in the last parts of the time, including the current part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceFlow {
    /// The minimum of the outstanding amount in each part: [`FlowSpan::parts`] values.
    pub least: [u64; TREND_PARTS],
    /// Sums in this span.
    pub allocs: u64,
    pub frees: u64,
    /// Sums since the place was first seen.
    pub all_allocs: u64,
    pub all_frees: u64,
    /// The kernel caches that objects of this place are from.
    pub caches: WordSet,
}

/// The span that the numbers of each [`PlaceFlow`] are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSpan {
    /// Length of the span, which ends now.
    pub span_ns: u64,
    pub part_ns: u64,
    /// Number of finished parts, [`TREND_PARTS`] at most.
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
                sums.bytes = sums.bytes.wrapping_add(bytes); // the user's own expression may give any number
                return;
            }
        }
        // In parts: the tag as a whole would be passed in memory, and written there for each allocation.
        self.allocated_elsewhere(FlowKey::of(stack, owner), bytes, cache.key, cache.name, cache.raw);
    }

    #[inline(never)]
    fn allocated_elsewhere(&mut self, key: FlowKey, bytes: u64, cache: u32, name: Option<LocatedText>, raw: &[u8]) {
        let number = self.number(key);
        if let (Some(name), Some(account)) = (name, self.accounts.get_mut(number)) {
            account.caches.add(name.text(raw).unwrap_or_default());
        }
        let Some(sums) = self.sums(key, number) else { return };
        sums.cache = cache;
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

    /// A free is undone.
    pub fn restored(&mut self, stack: Option<StackId>, owner: u32, bytes: u64) {
        let key = FlowKey::of(stack, owner);
        let number = self.number(key);
        let Some(sums) = self.sums(key, number) else { return };
        sums.frees = sums.frees.saturating_sub(1);
        sums.bytes = sums.bytes.wrapping_add(bytes);
    }

    /// The number of the account of a place, which is created if there is none.
    fn number(&mut self, key: FlowKey) -> usize {
        let next = self.accounts.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let sums = FlowSums { stack: key.stack().unwrap_or(0), ..FlowSums::default() };
            self.accounts.push(FlowAccount { key, sums, ..FlowAccount::default() });
        }
        number as usize
    }

    /// The sums of a place. The sums of a stack move to the table of recent sums.
    fn sums(&mut self, key: FlowKey, number: usize) -> Option<&mut FlowSums> {
        let Some(stack) = key.stack() else { return self.accounts.get_mut(number).map(|account| &mut account.sums) };
        if self.recent[slot(stack)].stack != stack {
            self.put_back(slot(stack));
            self.recent[slot(stack)] = self.accounts.get(number)?.sums;
        }
        Some(&mut self.recent[slot(stack)])
    }

    /// Copies the recent sums of a slot back to their account.
    fn put_back(&mut self, slot: usize) {
        let sums = self.recent[slot];
        let number = self.numbers.get(&FlowKey(sums.stack.into())).filter(|_| sums.stack != 0);
        if let Some(account) = number.and_then(|&number| self.accounts.get_mut(number as usize)) {
            account.sums = sums;
        }
    }

    /// Updates the minima of all places, and ends parts that are over.
    pub fn look(&mut self, now: u64) {
        (0..RECENT).for_each(|slot| self.put_back(slot));
        if self.accounts.len() > self.drop_at {
            self.drop_idle();
        }
        let has_sizes = self.has_sizes;
        for FlowAccount { sums, history, .. } in &mut self.accounts {
            let amount = if has_sizes { sums.bytes } else { sums.allocs.saturating_sub(sums.frees) };
            // In the part in which a place is first seen, its amount was 0 before.
            let history = history.get_or_insert_default();
            history.least = history.least.min(amount);
        }
        while self.clock.is_over(now) {
            self.end_part();
        }
    }

    /// Ends the current part.
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

    /// Drops the accounts of places without outstanding amounts: such a place may return, with new sums.
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

    /// The index of the first part of the span.
    fn first_part(&self) -> usize {
        self.clock.parts.saturating_sub(TREND_PARTS)
    }

    /// The flow of a place, after [`Flows::look`].
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

/// The slot for the recent sums of a stack.
#[inline(always)]
fn slot(stack: u32) -> usize {
    stack as usize % RECENT
}

impl FlowHistory {
    /// Merges each two parts into one.
    fn fold(&mut self) {
        let points = self.points;
        let mut pairs =
            points.chunks_exact(2).map(|pair| FlowPoint { least: pair[0].least.min(pair[1].least), ..pair[1] });
        self.points.fill_with(|| pairs.next().unwrap_or_default());
    }
}

impl FlowClock {
    /// The time at which the first `parts` parts end.
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
