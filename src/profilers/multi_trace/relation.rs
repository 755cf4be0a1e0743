//! The relation between events: which end belongs to which start, by position and key.

use std::hash::{Hash, Hasher};

use crate::event::{EventKey, KeyText};
use crate::report::{Report, Value};
use crate::stats::{CloseOutcome, PairCounts, PairKey, Pairs, WorstCase};
use crate::symbol::StackId;
use crate::task::Comm;

/// Most memory for starts without an end.
const START_BYTES: usize = 32 << 20;

/// What the events of a pair have in common. Two words, so that it is in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKey {
    Number(u64),
    Text(KeyText),
    /// The CPU on which both happen: losses on others do not concern the pair.
    Cpu(u64),
}

impl RelationKey {
    pub fn thread(tid: i32) -> RelationKey {
        RelationKey::Number(i64::from(tid) as u64)
    }

    pub fn event_key(self) -> EventKey {
        match self {
            RelationKey::Number(number) | RelationKey::Cpu(number) => EventKey::Number(number),
            RelationKey::Text(text) => EventKey::Text(text),
        }
    }
}

impl From<EventKey> for RelationKey {
    fn from(key: EventKey) -> RelationKey {
        match key {
            EventKey::Number(number) => RelationKey::Number(number),
            EventKey::Text(text) => RelationKey::Text(text),
        }
    }
}

// All keys of a run are of one kind.
impl Hash for RelationKey {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            RelationKey::Number(number) | RelationKey::Cpu(number) => number.hash(state),
            RelationKey::Text(text) => text.hash(state),
        }
    }
}

impl PairKey for RelationKey {
    fn cpu(&self) -> Option<u32> {
        if let RelationKey::Cpu(cpu) = *self { u32::try_from(cpu).ok() } else { None }
    }
}

/// An event that may start a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStart {
    /// Its place among the events of the run.
    pub event: u16,
    /// The `-e` that it belongs to, from 0 on.
    pub position: u16,
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub stack: Option<StackId>,
    /// Its number in the timeline.
    pub number: u64,
}

impl PairStart {
    /// The pair as a worst case: of the task at the start, and when and where it ended.
    pub fn case(&self, ns: u64, at: u64, cpu: u32) -> WorstCase {
        WorstCase { ns, at, cpu, tid: self.tid, comm: self.comm, stack: self.stack }
    }
}

/// How many events were in no pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpaired {
    pub pairs: PairCounts,
    /// Starts whose next event was not one of the next position.
    pub skipped: u64,
    /// Starts whose next event was hidden, and may have been one that a filter drops.
    pub hidden: u64,
}

impl Unpaired {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Unpaired) -> Unpaired {
        let (one, two) = (self.pairs, other.pairs);
        let pairs = PairCounts {
            unmatched: one.unmatched + two.unmatched,
            doubtful: one.doubtful + two.doubtful,
            reopened: one.reopened + two.reopened,
            expired: one.expired + two.expired,
            no_room: one.no_room + two.no_room,
        };
        Unpaired { pairs, skipped: self.skipped + other.skipped, hidden: self.hidden + other.hidden }
    }

    /// The counts that are not 0, in words. None: all are.
    pub fn in_words(&self) -> Option<String> {
        let words = self.named().into_iter().filter(|(count, ..)| *count > 0);
        let words: Vec<String> = words
            .map(|(count, _, [one, several])| format!("{count} {}", if count == 1 { one } else { several }))
            .collect();
        (!words.is_empty()).then(|| format!("in no pair: {}", words.join(", ")))
    }

    /// Adds the counts to a report.
    pub fn report(&self, report: &mut Report) {
        for (count, key, _) in self.named() {
            report.total(key, Value::Unsigned(count));
        }
    }

    fn named(&self) -> [(u64, &'static str, [&'static str; 2]); 7] {
        let PairCounts { unmatched, doubtful, reopened, expired, no_room } = self.pairs;
        [
            (unmatched, "ends_alone", ["end without a start", "ends without a start"]),
            (
                reopened,
                "starts_again",
                ["start before another start of its key", "starts before another start of their key"],
            ),
            (
                self.skipped,
                "skipped",
                ["start whose next event skips a position", "starts whose next event skips a position"],
            ),
            (self.hidden, "hidden", ["start whose next event was hidden", "starts whose next event was hidden"]),
            (expired, "expired", ["start that expired", "starts that expired"]),
            (no_room, "no_room", ["start for which there was no room", "starts for which there was no room"]),
            (doubtful, "doubtful", ["pair across lost records", "pairs across lost records"]),
        ]
    }
}

/// The positions of an event: the `-e` in which it stands, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions(u32);

impl Positions {
    /// Limit of positions.
    pub const LIMIT: u16 = 32;

    /// One position below [`Positions::LIMIT`].
    pub fn one(position: u16) -> Positions {
        Positions(1 << position)
    }

    pub fn and(self, other: Positions) -> Positions {
        Positions(self.0 | other.0)
    }

    pub fn is_any(self) -> bool {
        self.0 != 0
    }

    fn has(self, position: u16) -> bool {
        position < Positions::LIMIT && self.0 >> position & 1 != 0
    }

    fn first(self) -> Option<u16> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as u16)
    }
}

/// The positions in which an event takes part in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPositions {
    /// Those in which it may start one.
    pub starts: Positions,
    /// Those in which it may end one.
    pub ends: Positions,
}

impl PairPositions {
    /// The position in which an event starts a pair. `ended`: that in which it has ended one.
    #[inline(always)]
    pub fn start(self, ended: Option<u16>) -> Option<u16> {
        ended.filter(|position| self.starts.has(*position)).or_else(|| self.starts.first())
    }
}

/// Starts by key, of which each waits for an event of the next position.
#[derive(Debug)]
pub struct Relation {
    pairs: Pairs<RelationKey, PairStart>,
    positions: u16,
    /// The first position follows the last.
    is_cycle: bool,
    skipped: u64,
    hidden: u64,
    /// Events that ended no pair, but that start one: no start is missing.
    only_started: u64,
}

impl Default for Relation {
    fn default() -> Relation {
        Relation::new(1, false, None)
    }
}

impl Relation {
    /// `longest_ns`: the age at which starts expire.
    pub fn new(positions: u16, is_cycle: bool, longest_ns: Option<u64>) -> Relation {
        let pairs = Pairs::new(START_BYTES, longest_ns);
        Relation { pairs, positions, is_cycle, skipped: 0, hidden: 0, only_started: 0 }
    }

    /// What an event of these positions may do.
    pub fn part(&self, at: Positions) -> PairPositions {
        let last = 1 << (self.positions - 1);
        let (starts, ends) = if self.is_cycle { (at.0, at.0) } else { (at.0 & !last, at.0 & !1) };
        PairPositions { starts: Positions(starts), ends: Positions(ends) }
    }

    /// An event that may end a pair: the start of that pair, and the position that the event then has.
    #[inline(always)]
    pub fn end(&mut self, key: RelationKey, part: PairPositions, time: u64) -> Option<(&PairStart, u16)> {
        let pair = match self.pairs.close(key, time) {
            CloseOutcome::Pair(pair) => &pair.open,
            CloseOutcome::Unmatched => {
                self.only_started += u64::from(part.starts.has(0));
                return None;
            }
            CloseOutcome::Doubtful => return None,
        };
        let next = if pair.position + 1 == self.positions { 0 } else { pair.position + 1 };
        if !part.ends.has(next) {
            self.skipped += 1;
            return None;
        }
        Some((pair, next))
    }

    /// An event that may start a pair.
    #[inline(always)]
    pub fn start(&mut self, key: RelationKey, start: PairStart) {
        self.pairs.open(key, start.time, start);
    }

    /// Records of `cpu` were lost up to `end_ns`.
    pub fn lost(&mut self, cpu: u32, end_ns: u64) {
        self.pairs.lost(cpu, end_ns);
    }

    /// When the start that waits under a key happened.
    pub fn since(&self, key: RelationKey) -> Option<u64> {
        self.pairs.since(key)
    }

    /// An event under this key was not seen: the start that waits is in no pair with a later one.
    pub fn hide(&mut self, key: RelationKey) {
        self.hidden += u64::from(self.pairs.forget(key).is_some());
    }

    /// The task that is the key has exited: nothing ends its pair.
    pub fn forget(&mut self, key: RelationKey) {
        self.pairs.forget(key);
    }

    /// The starts that wait for their ends at `now`.
    pub fn waiting(&mut self, now: u64) -> impl Iterator<Item = (&RelationKey, &PairStart)> {
        self.pairs.still_open(now).map(|(key, pair)| (key, &pair.open))
    }

    /// Drops the starts that losses have made doubtful, and those that have expired, and counts them.
    pub fn drop_doubtful(&mut self, now: u64) {
        drop(self.pairs.still_open(now));
    }

    /// The stacks of all starts.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.pairs.opened().filter_map(|pair| pair.open.stack)
    }

    /// The counts since the last call.
    pub fn take_counts(&mut self) -> Unpaired {
        let mut pairs = self.pairs.take_counts();
        pairs.unmatched = pairs.unmatched.saturating_sub(std::mem::take(&mut self.only_started));
        Unpaired { pairs, skipped: std::mem::take(&mut self.skipped), hidden: std::mem::take(&mut self.hidden) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start(position: u16, time: u64) -> PairStart {
        let (comm, stack) = (Comm::default(), None);
        PairStart { event: position, position, time, cpu: 0, pid: 1, tid: 1, comm, stack, number: time }
    }

    fn key(number: u64) -> RelationKey {
        RelationKey::Number(number)
    }

    /// One step of a run: an event of a position under a key, seen or lost with its CPU.
    #[derive(Clone, Copy, Debug)]
    struct SeenStep {
        key: u64,
        position: u16,
        is_lost: bool,
        cpu: u32,
    }

    fn step() -> impl Strategy<Value = SeenStep> {
        let is_lost = prop::bool::weighted(0.1);
        (0_u64..3, 0_u16..3, is_lost, 0_u32..2).prop_map(|(key, position, is_lost, cpu)| SeenStep {
            key,
            position,
            is_lost,
            cpu,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// Against the whole truth, of which the relation sees a part: rings that overflow lose a run of events of their
        /// CPU. Each pair that is told is one of the truth, and what is missing was counted: pairs are missing only
        /// where something was lost.
        #[test]
        fn no_pair_is_told_that_was_not(steps in prop::collection::vec(step(), 0..300), is_cycle in any::<bool>()) {
            let mut relation = Relation::new(3, is_cycle, None);
            // The truth: for each key the last start.
            let mut last: [Option<(u16, u64)>; 3] = [None; 3];
            let (mut true_pairs, mut told) = (Vec::new(), Vec::new());
            let mut losing = [false; 2];
            for (time, SeenStep { key: number, position, is_lost, cpu }) in (1_u64..).zip(steps) {
                let slot = &mut last[number as usize];
                let at = Positions::one(position);
                let part = relation.part(at);
                let PairPositions { starts, ends } = part;
                if ends.has(position) && let Some((of, since)) = slot.take() && (of + 1) % 3 == position {
                    true_pairs.push((number, since, time));
                }
                if starts.has(position) {
                    *slot = Some((position, time));
                }
                if is_lost {
                    losing[cpu as usize] = true;
                    continue;
                }
                if std::mem::take(&mut losing[cpu as usize]) {
                    relation.lost(cpu, time);
                }
                if ends.has(position) && let Some((start, _)) = relation.end(key(number), part, time) {
                    // A pair across a loss that is not known yet may be wrong: the interval of the loss is marked.
                    if !losing.contains(&true) {
                        told.push((number, start.time, time));
                    }
                }
                if starts.has(position) {
                    relation.start(key(number), start(position, time));
                }
            }
            prop_assert!(told.iter().all(|pair| true_pairs.contains(pair)), "{:?} of {:?}", told, true_pairs);
        }

        /// Without losses all pairs are told, and each start is in a pair, or counted, or waits.
        #[test]
        fn each_start_is_accounted_for(steps in prop::collection::vec(step(), 0..300), is_cycle in any::<bool>()) {
            let mut relation = Relation::new(3, is_cycle, None);
            let (mut starts, mut pairs) = (0, 0);
            for (time, SeenStep { key: number, position, .. }) in (1_u64..).zip(steps) {
                let part = relation.part(Positions::one(position));
                if part.ends.has(position) {
                    pairs += u64::from(relation.end(key(number), part, time).is_some());
                }
                if part.starts.has(position) {
                    starts += 1;
                    relation.start(key(number), start(position, time));
                }
            }
            let waiting = relation.waiting(u64::MAX).count() as u64;
            let Unpaired { pairs: counts, skipped, .. } = relation.take_counts();
            prop_assert_eq!(starts, pairs + waiting + skipped + counts.reopened);
        }
    }

    #[test]
    fn a_chain_has_a_pair_for_each_step() {
        let mut relation = Relation::new(3, false, None);
        let both = relation.part(Positions::one(0).and(Positions::one(2)));
        assert_eq!((both.starts, both.ends), (Positions::one(0), Positions::one(2)));
        let [second, third] = [1, 2].map(|position| relation.part(Positions::one(position)));
        relation.start(key(1), start(0, 10));
        assert_eq!(relation.end(key(1), second, 15).map(|(start, at)| (start.time, at)), Some((10, 1)));
        relation.start(key(1), start(1, 15));
        assert_eq!(relation.end(key(2), third, 16), None, "another key");
        assert_eq!(relation.end(key(1), third, 17).map(|(start, at)| (start.position, at)), Some((1, 2)));
        relation.start(key(1), start(0, 20));
        assert_eq!(relation.end(key(1), third, 21), None, "the second position is missing");
        let counts = relation.take_counts();
        assert_eq!((counts.skipped, counts.pairs.unmatched), (1, 1));
    }

    /// The same event in two positions, or in a cycle: each but the first ends a pair, and starts the next.
    #[test]
    fn an_event_may_follow_itself() {
        let both = Positions::one(0).and(Positions::one(1));
        for (mut relation, at) in
            [(Relation::new(2, false, None), both), (Relation::new(1, true, None), Positions::one(0))]
        {
            let mut since = Vec::new();
            for time in [10, 20, 40] {
                let part = relation.part(at);
                let ended = relation.end(key(1), part, time);
                since.extend(ended.map(|(start, _)| start.time));
                let position = part.start(ended.map(|(_, position)| position)).unwrap();
                relation.start(key(1), start(position, time));
            }
            assert_eq!(since, [10, 20]);
            assert_eq!(relation.take_counts(), Unpaired::default());
        }
    }
}
