//! Pairs of events that belong together by a key: the time from the first to the second.

use std::hash::{BuildHasher, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::stats::LossHorizon;

/// What the two events of a pair have in common: a thread, a CPU, a request.
pub trait PairKey: Copy + Eq + Hash {
    /// The CPU on which all events of this key happen: losses on other CPUs do not concern the pair. None: any CPU.
    fn cpu(&self) -> Option<u32> {
        None
    }
}

/// Open pairs: those whose first event was seen. A closing event ends the pair that was opened last under its key.
///
/// All times are ns, CLOCK_MONOTONIC. [`Pairs::lost`] is called before the records that follow the loss.
///
/// Most pairs are closed soon, and their keys return. So each slot, which several keys share, holds the pair opened
/// last under one of these keys. Such a pair is found by one comparison; it moves to a hash table when another pair
/// takes its slot.
#[derive(Debug)]
pub struct Pairs<K, Open> {
    /// By the low bits of the hash of a key.
    slots: Vec<PairSlot<K, Open>>,
    /// Number of pairs in `slots`.
    in_slots: usize,
    /// The pairs whose slots other pairs have taken.
    rest: FxHashMap<K, OpenPair<Open>>,
    /// The pair of `rest` that was closed last.
    closed: Option<OpenPair<Open>>,
    /// Limit of open pairs.
    most: usize,
    /// The age at which pairs expire. None: they never do.
    longest_ns: Option<u64>,
    losses: Losses,
    counts: PairCounts,
    /// When the full table was last searched for pairs to drop, ns.
    last_sweep: u64,
}

#[derive(Debug)]
struct PairSlot<K, Open> {
    /// A closed pair stays here until the next one is opened, so that `close` need not copy it.
    pair: Option<(K, OpenPair<Open>)>,
    /// The pair is open. Implies that `pair` is set.
    is_open: bool,
    /// Number of pairs in the hash table whose keys belong to this slot.
    in_rest: u32,
}

/// Limit of slots: while a few hundred pairs are open, most keys find their slot free.
const MAX_SLOTS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPair<Open> {
    pub since: u64,
    pub open: Open,
}

/// What [`Pairs::close`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome<'a, Open> {
    Pair(&'a OpenPair<Open>),
    /// There is no open pair: it was opened before the start or unseen, found no room, or was dropped.
    Unmatched,
    /// The open pair is from before the end of a loss, so it may have been closed and opened again unseen.
    Doubtful,
}

/// Counts of events and pairs that [`Pairs::close`] did not return as a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// Closing events without an open pair.
    pub unmatched: u64,
    /// Pairs discarded because of a loss.
    pub doubtful: u64,
    /// Pairs that were opened again before a closing event was seen.
    pub reopened: u64,
    /// Pairs that were open for longer than allowed.
    pub expired: u64,
    /// Pairs dropped for lack of room: the oldest ones, so that new pairs have room.
    pub no_room: u64,
}

/// The ends of the last losses.
#[derive(Debug, Default)]
struct Losses {
    anywhere: LossHorizon,
    by_cpu: FxHashMap<u32, LossHorizon>,
}

impl Losses {
    #[inline]
    fn saw_all_since(&self, since: u64, cpu: Option<u32>) -> bool {
        self.anywhere.saw_all_since(since)
            || cpu.is_some_and(|cpu| self.by_cpu.get(&cpu).is_none_or(|horizon| horizon.saw_all_since(since)))
    }
}

/// Why a pair is dropped without having been closed.
enum DropReason {
    Doubtful,
    Expired,
}

impl<K: PairKey, Open: Copy> Pairs<K, Open> {
    /// `most_bytes`: limit of the size of the tables, without heap memory of `Open`. `longest_ns`: the age at which
    /// pairs expire.
    pub fn new(most_bytes: usize, longest_ns: Option<u64>) -> Pairs<K, Open> {
        let power_of_two = |most: usize| most.checked_ilog2().map_or(0, |power| 1_usize << power);
        let slot_bytes = size_of::<PairSlot<K, Open>>();
        // Slots take a sixteenth of the bytes. If there is no room for a slot, there is none for any pair.
        let slots = power_of_two((most_bytes / slot_bytes / 16).clamp(1, MAX_SLOTS).min(most_bytes / slot_bytes));
        // The hash table has a power of two of places, each with a control byte, and fills seven eighths of them. An
        // insertion reserves one place more than it needs; to reclaim removed places the table doubles its size, unless
        // it is at most half full.
        let places = power_of_two((most_bytes - slots * slot_bytes) / (size_of::<(K, OpenPair<Open>)>() + 1));
        Pairs {
            slots: (0..slots).map(|_| PairSlot { pair: None, is_open: false, in_rest: 0 }).collect(),
            in_slots: 0,
            rest: FxHashMap::default(),
            closed: None,
            most: (places / 16 * 7).saturating_sub(1),
            longest_ns,
            losses: Losses::default(),
            counts: PairCounts::default(),
            last_sweep: 0,
        }
    }

    /// The first event of a pair. An event older than the open pair comes late: its own pair has been closed unseen.
    #[inline(always)]
    pub fn open(&mut self, key: K, time: u64, open: Open) {
        let (at, has_room) = (self.slot_of(&key), self.len() < self.most);
        let is_free = self.slots.get(at).is_some_and(|slot| !slot.is_open && slot.in_rest == 0);
        let has_slot = is_free && has_room || self.free_slot(key, at, time);
        if !has_slot {
            return;
        }
        // The pair is written directly into its slot: otherwise it would be built elsewhere and copied.
        if let Some(slot) = self.slots.get_mut(at) {
            (slot.pair, slot.is_open) = (Some((key, OpenPair { since: time, open })), true);
            self.in_slots += 1;
        }
    }

    /// Frees a slot for a pair that is opened at `time`, and drops the pair that is open under the same key. False: the
    /// pair is not opened.
    #[inline(never)]
    fn free_slot(&mut self, key: K, at: usize, time: u64) -> bool {
        let known = self.get(&key).map(|pair| pair.since);
        if self.len() >= self.most && known.is_none() && !self.make_room(time) {
            self.counts.no_room += 1;
            return false;
        }
        if let Some(since) = known {
            match gone(&self.losses, self.longest_ns, since.min(time), key.cpu(), time) {
                None => self.counts.reopened += 1,
                Some(gone) => self.counts.count(&gone),
            }
            if since > time {
                return false;
            }
            self.remove(key, u64::MAX);
        }
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if let Some((other, pair)) = slot.open().copied() {
            slot.is_open = false;
            slot.in_rest += 1; // there are fewer pairs than 2^32
            self.in_slots -= 1;
            self.rest.insert(other, pair);
        }
        true
    }

    /// The second event of a pair. An event older than the open pair belongs to an earlier pair.
    #[inline(always)]
    pub fn close(&mut self, key: K, time: u64) -> CloseOutcome<'_, Open> {
        let Some((since, place)) = self.remove(key, time) else {
            self.counts.unmatched += 1;
            return CloseOutcome::Unmatched;
        };
        if let Some(gone) = gone(&self.losses, self.longest_ns, since, key.cpu(), time) {
            self.counts.count(&gone);
            self.counts.unmatched += u64::from(matches!(gone, DropReason::Expired));
            return if let DropReason::Doubtful = gone { CloseOutcome::Doubtful } else { CloseOutcome::Unmatched };
        }
        let pair = match place {
            Some(at) => self.slots.get(at).and_then(|slot| slot.pair.as_ref()).map(|(_, pair)| pair),
            None => self.closed.as_ref(),
        };
        pair.map_or(CloseOutcome::Unmatched, CloseOutcome::Pair)
    }

    /// Records of `cpu` were lost up to `end`. Losses may come in any order.
    pub fn lost(&mut self, cpu: u32, end: u64) {
        self.losses.anywhere.lost_until(end);
        self.losses.by_cpu.entry(cpu).or_default().lost_until(end);
    }

    /// When the open pair of a key began.
    pub fn since(&self, key: K) -> Option<u64> {
        self.get(&key).map(|pair| pair.since)
    }

    /// Removes a pair that will not be closed, for example because its task has exited.
    pub fn forget(&mut self, key: K) -> Option<OpenPair<Open>> {
        match self.remove(key, u64::MAX)?.1 {
            Some(at) => self.slots.get(at)?.pair.map(|(_, pair)| pair),
            None => self.closed,
        }
    }

    /// The pairs that are open at `now`, in no order. Doubtful and expired ones are dropped: their closing events are
    /// unmatched.
    pub fn still_open(&mut self, now: u64) -> impl Iterator<Item = (&K, &OpenPair<Open>)> {
        self.sweep(now);
        self.iter()
    }

    /// Drops the open pairs that a loss has made doubtful.
    pub fn forget_doubtful(&mut self) {
        let is_doubtful = |(key, pair): &(&K, &OpenPair<Open>)| !self.losses.saw_all_since(pair.since, key.cpu());
        let keys: Vec<K> = self.all().filter(is_doubtful).map(|(key, _)| *key).collect();
        self.counts.doubtful += keys.len() as u64;
        for key in keys {
            self.forget(key);
        }
    }

    /// The open pairs, in no order, including those that will be dropped.
    pub fn opened(&self) -> impl Iterator<Item = &OpenPair<Open>> {
        self.all().map(|(_, pair)| pair)
    }

    /// The open pairs that no loss has made doubtful, including expired ones, in no order. Nothing is dropped.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &OpenPair<Open>)> {
        self.all().filter(|(key, pair)| self.losses.saw_all_since(pair.since, key.cpu()))
    }

    fn all(&self) -> impl Iterator<Item = (&K, &OpenPair<Open>)> {
        let in_slots = self.slots.iter().filter_map(PairSlot::open);
        in_slots.map(|(key, pair)| (key, pair)).chain(&self.rest)
    }

    /// The counts since the last call.
    pub fn take_counts(&mut self) -> PairCounts {
        std::mem::take(&mut self.counts)
    }

    fn len(&self) -> usize {
        self.in_slots + self.rest.len()
    }

    #[inline(always)]
    fn slot_of(&self, key: &K) -> usize {
        FxBuildHasher.hash_one(key) as usize & self.slots.len().wrapping_sub(1)
    }

    /// The pair that is open under a key.
    pub fn get(&self, key: &K) -> Option<&OpenPair<Open>> {
        let slot = self.slots.get(self.slot_of(key)).and_then(PairSlot::open);
        slot.filter(|(other, _)| other == key).map(|(_, pair)| pair).or_else(|| self.rest.get(key))
    }

    /// Removes the pair that is open under `key`, unless it was opened after `time`. Returns when the pair was opened,
    /// and its slot. No slot: the pair is in `closed` now.
    #[inline(always)]
    fn remove(&mut self, key: K, time: u64) -> Option<(u64, Option<usize>)> {
        let at = self.slot_of(&key);
        if let Some(PairSlot { pair: Some((other, pair)), is_open, .. }) = self.slots.get_mut(at)
            && *is_open
            && *other == key
        {
            if pair.since > time {
                return None;
            }
            *is_open = false;
            self.in_slots -= 1;
            return Some((pair.since, Some(at)));
        }
        self.remove_from_rest(key, at, time)
    }

    #[inline(never)]
    fn remove_from_rest(&mut self, key: K, at: usize, time: u64) -> Option<(u64, Option<usize>)> {
        let slot = self.slots.get_mut(at);
        if slot.as_ref().is_some_and(|slot| slot.in_rest == 0) || self.rest.get(&key)?.since > time {
            return None;
        }
        slot.into_iter().for_each(|slot| slot.in_rest -= 1);
        self.closed = self.rest.remove(&key);
        Some((self.closed.as_ref()?.since, None))
    }

    fn retain(&mut self, mut keeps: impl FnMut(&K, &OpenPair<Open>) -> bool) {
        for slot in &mut self.slots {
            if slot.open().is_some_and(|(key, pair)| !keeps(key, pair)) {
                slot.is_open = false;
                self.in_slots -= 1;
            }
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.retain(|key, pair| {
            let stays = keeps(key, pair);
            if !stays {
                let at = self.slot_of(key);
                self.slots.get_mut(at).into_iter().for_each(|slot| slot.in_rest -= 1);
            }
            stays
        });
        self.rest = rest;
    }

    fn sweep(&mut self, now: u64) {
        let (losses, longest_ns, mut counts) = (std::mem::take(&mut self.losses), self.longest_ns, self.counts);
        self.retain(|key, pair| {
            let gone = gone(&losses, longest_ns, pair.since, key.cpu(), now);
            gone.iter().for_each(|gone| counts.count(gone));
            gone.is_none()
        });
        (self.losses, self.counts) = (losses, counts);
    }

    /// Searches the full table for pairs to drop, at most once in 100 ms. If there are none, drops the older half of
    /// all pairs.
    #[cold]
    fn make_room(&mut self, now: u64) -> bool {
        const PAUSE_NS: u64 = 100_000_000;
        if now >= self.last_sweep.saturating_add(PAUSE_NS) {
            self.last_sweep = now;
            self.sweep(now);
        }
        if self.len() >= self.most {
            let mut times: Vec<u64> = self.opened().map(|pair| pair.since).collect();
            let middle = times.len() / 2;
            if middle < times.len() {
                let (_, cut, _) = times.select_nth_unstable(middle);
                let before = self.len();
                self.retain(|_, pair| pair.since > *cut);
                self.counts.no_room += (before - self.len()) as u64;
            }
        }
        self.len() < self.most
    }
}

/// Why a pair opened at `since` must be dropped at `now`. None: it may stay.
#[inline(always)]
fn gone(losses: &Losses, longest_ns: Option<u64>, since: u64, cpu: Option<u32>, now: u64) -> Option<DropReason> {
    if !losses.saw_all_since(since, cpu) {
        return Some(DropReason::Doubtful);
    }
    let is_over = longest_ns.is_some_and(|longest| now.saturating_sub(since) > longest);
    is_over.then_some(DropReason::Expired)
}

impl<K, Open> PairSlot<K, Open> {
    fn open(&self) -> Option<&(K, OpenPair<Open>)> {
        self.pair.as_ref().filter(|_| self.is_open)
    }
}

impl PairCounts {
    fn count(&mut self, gone: &DropReason) {
        match gone {
            DropReason::Doubtful => self.doubtful += 1,
            DropReason::Expired => self.expired += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A key that belongs to one CPU, or to any CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct CpuKey {
        cpu: Option<u32>,
        number: u8,
    }

    impl PairKey for CpuKey {
        fn cpu(&self) -> Option<u32> {
            self.cpu
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum PairStep {
        Open(CpuKey, u64),
        Close(CpuKey, u64),
        Lost(u32, u64),
        Forget(CpuKey),
        List,
    }

    fn key() -> impl Strategy<Value = CpuKey> {
        (prop::option::of(0_u32..2), 0_u8..3).prop_map(|(cpu, number)| CpuKey { cpu, number })
    }

    /// Records may be a little late, losses come at any time.
    fn step() -> impl Strategy<Value = PairStep> {
        prop_oneof![
            6 => (key(), 0_u64..4).prop_map(|(key, late)| PairStep::Open(key, late)),
            6 => (key(), 0_u64..4).prop_map(|(key, late)| PairStep::Close(key, late)),
            1 => (0_u32..2, 0_u64..9).prop_map(|(cpu, late)| PairStep::Lost(cpu, late)),
            1 => key().prop_map(PairStep::Forget),
            1 => Just(PairStep::List),
        ]
    }

    /// A plain list of the open pairs, each with the number of the step that opened it, and of all losses.
    struct PlainPairs {
        open: Vec<(CpuKey, u64, usize)>,
        losses: Vec<(u32, u64)>,
        longest: u64,
        counts: PairCounts,
    }

    impl PlainPairs {
        fn is_doubtful(&self, key: CpuKey, since: u64) -> bool {
            self.losses.iter().any(|(cpu, end)| *end > since && key.cpu.is_none_or(|its| its == *cpu))
        }

        /// Counts a pair that was opened at `since`, judged at `now`. True: it is neither doubtful nor expired.
        fn count(&mut self, key: CpuKey, since: u64, now: u64) -> bool {
            let is_doubtful = self.is_doubtful(key, since);
            let is_expired = !is_doubtful && now.saturating_sub(since) > self.longest;
            self.counts.doubtful += u64::from(is_doubtful);
            self.counts.expired += u64::from(is_expired);
            !is_doubtful && !is_expired
        }

        fn place(&self, key: CpuKey) -> Option<usize> {
            self.open.iter().position(|(other, ..)| *other == key)
        }

        fn opened(&mut self, key: CpuKey, time: u64, number: usize) {
            let Some(at) = self.place(key) else { return self.open.push((key, time, number)) };
            let before = self.open[at].1;
            if before <= time {
                self.open[at] = (key, time, number);
            }
            let is_pair = self.count(key, before.min(time), time);
            self.counts.reopened += u64::from(is_pair);
        }

        fn closed(&mut self, key: CpuKey, time: u64) -> Result<OpenPair<usize>, &'static str> {
            let Some(at) = self.place(key).filter(|at| self.open[*at].1 <= time) else {
                self.counts.unmatched += 1;
                return Err("unmatched");
            };
            let (_, since, open) = self.open.remove(at);
            if self.count(key, since, time) {
                Ok(OpenPair { since, open })
            } else if self.is_doubtful(key, since) {
                Err("doubtful")
            } else {
                self.counts.unmatched += 1;
                Err("unmatched")
            }
        }

        fn list(&mut self, now: u64) -> Vec<(CpuKey, u64, usize)> {
            let all = std::mem::take(&mut self.open);
            self.open = all.into_iter().filter(|(key, since, _)| self.count(*key, *since, now)).collect();
            self.open.clone()
        }
    }

    fn sorted(mut all: Vec<(CpuKey, u64, usize)>) -> Vec<(CpuKey, u64, usize)> {
        all.sort_by_key(|(_, _, number)| *number);
        all
    }

    /// Checks that each pair is stored once, and that the counts of pairs are right.
    fn check_slots<Open: Copy>(pairs: &Pairs<CpuKey, Open>) {
        let mut in_rest = vec![0; pairs.slots.len()];
        pairs.rest.keys().for_each(|key| in_rest.get_mut(pairs.slot_of(key)).into_iter().for_each(|count| *count += 1));
        for (at, (slot, count)) in pairs.slots.iter().zip(in_rest).enumerate() {
            assert_eq!(slot.in_rest, count);
            let key = slot.open().map(|(key, _)| key);
            assert!(key.is_none_or(|key| pairs.slot_of(key) == at && !pairs.rest.contains_key(key)));
        }
        assert_eq!(pairs.slots.iter().filter(|slot| slot.open().is_some()).count(), pairs.in_slots);
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_a_plain_list(
            steps in prop::collection::vec(step(), 0..200),
            longest in prop_oneof![Just(None), (3_u64..30).prop_map(Some)],
            most_bytes in prop_oneof![Just(1 << 16), Just(1 << 11)], // with 64 slots, and with 2
        ) {
            let mut pairs: Pairs<CpuKey, usize> = Pairs::new(most_bytes, longest);
            let longest = longest.unwrap_or(u64::MAX);
            let mut plain = PlainPairs { open: Vec::new(), losses: Vec::new(), longest, counts: PairCounts::default() };
            for (number, step) in steps.into_iter().enumerate() {
                let now = number as u64 + 10;
                match step {
                    PairStep::Open(key, late) => {
                        pairs.open(key, now - late, number);
                        plain.opened(key, now - late, number);
                    }
                    PairStep::Close(key, late) => {
                        let closed = match pairs.close(key, now - late) {
                            CloseOutcome::Pair(pair) => Ok(*pair),
                            CloseOutcome::Unmatched => Err("unmatched"),
                            CloseOutcome::Doubtful => Err("doubtful"),
                        };
                        prop_assert_eq!(closed, plain.closed(key, now - late));
                    }
                    PairStep::Lost(cpu, late) => {
                        pairs.lost(cpu, now - late);
                        plain.losses.push((cpu, now - late));
                    }
                    PairStep::Forget(key) => {
                        let forgotten = pairs.forget(key).map(|pair| (key, pair.since, pair.open));
                        let want = plain.place(key).map(|at| plain.open.remove(at));
                        prop_assert_eq!(forgotten, want);
                    }
                    PairStep::List => {
                        let listed = pairs.still_open(now).map(|(key, pair)| (*key, pair.since, pair.open)).collect();
                        prop_assert_eq!(sorted(listed), sorted(plain.list(now)));
                    }
                }
                prop_assert_eq!(pairs.counts, plain.counts);
                let certain = pairs.iter().map(|(key, pair)| (*key, pair.since, pair.open)).collect();
                let is_certain = |open: &&(CpuKey, u64, usize)| !plain.is_doubtful(open.0, open.1);
                prop_assert_eq!(sorted(certain), sorted(plain.open.iter().filter(is_certain).copied().collect()));
                prop_assert_eq!(pairs.opened().count(), plain.open.len());
                check_slots(&pairs);
            }
            prop_assert_eq!((pairs.take_counts(), pairs.take_counts()), (plain.counts, PairCounts::default()));
        }

        /// Many keys in a small table, opened and closed in any order: each opening leads to a pair, or is counted
        /// under no room.
        #[test]
        fn the_table_stays_within_its_bytes(
            most_bytes in 0_usize..4096,
            keys in prop::collection::vec((any::<bool>(), 0_u8..255), 0..1000),
        ) {
            let mut pairs: Pairs<CpuKey, u64> = Pairs::new(most_bytes, None);
            let (mut opened, mut paired) = (0, 0);
            for (time, (opens, number)) in (0..).zip(keys) {
                let key = CpuKey { cpu: None, number };
                if opens {
                    pairs.open(key, time, time);
                    opened += 1;
                } else {
                    paired += u64::from(matches!(pairs.close(key, time), CloseOutcome::Pair(_)));
                }
                let bytes = (pairs.rest.capacity() * 8 / 7) * (size_of::<(CpuKey, OpenPair<u64>)>() + 1)
                    + pairs.slots.capacity() * size_of::<PairSlot<CpuKey, u64>>();
                prop_assert!(bytes <= most_bytes, "{} of {}", bytes, most_bytes);
                check_slots(&pairs);
            }
            let counts = pairs.take_counts();
            prop_assert_eq!(opened, paired + counts.no_room + counts.reopened + pairs.still_open(2000).count() as u64);
        }
    }

    #[test]
    fn a_full_table_drops_doubtful_and_expired_pairs() {
        const SECOND: u64 = 1_000_000_000;
        let key = |number| CpuKey { cpu: Some(0), number };
        let mut pairs: Pairs<CpuKey, ()> =
            Pairs::new(72 * (size_of::<(CpuKey, OpenPair<()>)>() + 1), Some(10 * SECOND));
        let mut open_all = |time: u64, first: u8, lost: Option<u32>| {
            lost.iter().for_each(|cpu| pairs.lost(*cpu, time));
            (first..first + 20).for_each(|number| pairs.open(key(number), time + u64::from(number), ()));
            (pairs.take_counts(), pairs.len())
        };
        let counts = |no_room, doubtful, expired| PairCounts { no_room, doubtful, expired, ..PairCounts::default() };
        assert_eq!(open_all(SECOND, 0, None), (counts(0, 0, 0), 20));
        assert_eq!(open_all(2 * SECOND, 20, None), (counts(14, 0, 0), 26), "the older half of 27 went");
        assert_eq!(open_all(3 * SECOND, 40, Some(1)), (counts(28, 0, 0), 18), "a loss on another CPU");
        assert_eq!(open_all(4 * SECOND, 60, Some(0)), (counts(0, 18, 0), 20));
        assert_eq!(open_all(15 * SECOND, 80, None), (counts(0, 0, 20), 20));
    }

    /// A million openings without an end: the table keeps the newest pairs, and a pair opened after them is found.
    #[test]
    fn a_table_that_fills_finds_new_pairs() {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        struct Number(u64);
        impl PairKey for Number {}
        let mut pairs: Pairs<Number, ()> = Pairs::new(1 << 16, None);
        (0..1_000_000).for_each(|number| pairs.open(Number(number), number, ()));
        assert!(matches!(pairs.close(Number(999_999), 1_000_000), CloseOutcome::Pair(OpenPair { since: 999_999, .. })));
        let open = pairs.still_open(1_000_001).count() as u64;
        let PairCounts { no_room, .. } = pairs.take_counts();
        assert_eq!(open + no_room, 999_999);
        assert!(open * 2 >= pairs.most as u64);
    }
}
