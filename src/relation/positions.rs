//! Chains of events: the positions that an event has in a chain, and which role it may have in a pair.

/// The positions of an event as bits: the indexes of the `-e` options in which it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions(u32);

impl Positions {
    /// Limit of the positions of a chain.
    pub const LIMIT: u16 = 32;

    /// The set of one position, below [`Positions::LIMIT`].
    pub fn one(position: u16) -> Positions {
        Positions(1 << position)
    }

    pub fn and(self, other: Positions) -> Positions {
        Positions(self.0 | other.0)
    }

    pub fn is_any(self) -> bool {
        self.0 != 0
    }

    #[inline(always)]
    fn has(self, position: u16) -> bool {
        self.0.wrapping_shr(position.into()) & 1 != 0 // it is below the limit
    }

    fn first(self) -> Option<u16> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as u16)
    }
}

/// The positions in which an event takes part in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPositions {
    /// Positions in which the event may start a pair.
    pub starts: Positions,
    /// Positions in which the event may end a pair.
    pub ends: Positions,
}

impl PairPositions {
    /// The position in which the event starts a pair. `ended`: the position in which it has ended one.
    #[inline(always)]
    pub fn start(self, ended: Option<u16>) -> Option<u16> {
        ended.filter(|position| self.starts.has(*position)).or_else(|| self.starts.first())
    }

    /// Whether the event may end a pair in this position.
    #[inline(always)]
    pub fn ends_at(self, position: u16) -> bool {
        self.ends.has(position)
    }

    /// Whether the event may be the first event of a chain.
    #[inline(always)]
    pub fn starts_first(self) -> bool {
        self.starts.has(0)
    }
}

/// A chain: its number of positions, and what follows the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    positions: u16,
    /// The first position follows the last.
    is_cycle: bool,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new(1, false)
    }
}

impl Chain {
    pub fn new(positions: u16, is_cycle: bool) -> Chain {
        Chain { positions, is_cycle }
    }

    /// The roles that an event of these positions may have.
    pub fn part(self, at: Positions) -> PairPositions {
        let last = 1 << (self.positions - 1);
        let (starts, ends) = if self.is_cycle { (at.0, at.0) } else { (at.0 & !last, at.0 & !1) };
        PairPositions { starts: Positions(starts), ends: Positions(ends) }
    }

    /// The position that ends a pair which began in `position`.
    #[inline(always)]
    pub fn next(self, position: u16) -> u16 {
        if position + 1 == self.positions { 0 } else { position + 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profiler::LostWindow;
    use crate::relation::{
        Declaration, EventMoment, OpenStart, PairEnd, PairOutcome, Relation, RelationKey, RelationTerms, RowKey,
        Unpaired,
    };
    use crate::stats::SumKey;
    use crate::task::Comm;

    /// Pairs of a chain, all in one row.
    #[derive(Debug)]
    struct ChainPairs(Chain);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct OneRow;

    impl SumKey for OneRow {
        fn others(&self) -> OneRow {
            OneRow
        }
    }

    impl RowKey for OneRow {}

    impl Declaration for ChainPairs {
        type Key = RelationKey;
        type Start = u16;
        type End = PairPositions;
        type Row = OneRow;
        type Sums = ();

        fn row(&self, _key: &RelationKey, _start: &OpenStart<u16>, _end: &PairEnd<PairPositions>) -> OneRow {
            OneRow
        }

        fn fits(&self, start: &u16, end: &PairPositions) -> bool {
            end.ends_at(self.0.next(*start))
        }

        fn may_be_first(&self, _key: &RelationKey, end: &PairPositions) -> bool {
            end.starts_first()
        }
    }

    fn chain(positions: u16, is_cycle: bool) -> Relation<ChainPairs> {
        Relation::new(ChainPairs(Chain::new(positions, is_cycle)), RelationTerms::default())
    }

    impl Relation<ChainPairs> {
        fn part(&self, at: Positions) -> PairPositions {
            self.declared.0.part(at)
        }

        fn starts(&mut self, key: RelationKey, position: u16, time: u64) {
            self.start(key, moment(time), Comm::default(), None, position);
        }

        /// The start time of the pair that ends at `time`, its first position, and its last one.
        fn ends(&mut self, key: RelationKey, part: PairPositions, time: u64) -> Option<(u64, u16, u16)> {
            let chain = self.declared.0;
            match self.count(key, &PairEnd { moment: moment(time), own: part }) {
                PairOutcome::Ended(start) => Some((start.since, start.open.own, chain.next(start.open.own))),
                _ => None,
            }
        }
    }

    fn moment(time: u64) -> EventMoment {
        EventMoment { time, cpu: 0, pid: 1, tid: 1 }
    }

    fn key(number: u64) -> RelationKey {
        RelationKey::Number(number)
    }

    /// One step of a test run: an event of a position under a key, seen or lost, on a CPU.
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
        /// Compared with the full truth, of which the relation sees only a part: overflowing rings lose runs of events
        /// of their CPU. Each reported pair is a true pair, and pairs are missing only where records were lost, and are
        /// counted.
        #[test]
        fn no_pair_is_told_that_was_not(steps in prop::collection::vec(step(), 0..300), is_cycle in any::<bool>()) {
            let mut relation = chain(3, is_cycle);
            // The truth: the last start of each key.
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
                    relation.lost(&LostWindow { cpu, start_ns: time, end_ns: time, count: 1 });
                }
                if ends.has(position) && let Some((since, ..)) = relation.ends(key(number), part, time) {
                    // A pair across a loss that is not reported yet may be wrong: the interval of the loss will be
                    // marked.
                    if !losing.contains(&true) {
                        told.push((number, since, time));
                    }
                }
                if starts.has(position) {
                    relation.starts(key(number), position, time);
                }
            }
            prop_assert!(told.iter().all(|pair| true_pairs.contains(pair)), "{:?} of {:?}", told, true_pairs);
        }

        /// Without losses all pairs are reported, and each start is in a pair, is counted, or waits.
        #[test]
        fn each_start_is_accounted_for(steps in prop::collection::vec(step(), 0..300), is_cycle in any::<bool>()) {
            let mut relation = chain(3, is_cycle);
            let (mut starts, mut pairs) = (0, 0);
            for (time, SeenStep { key: number, position, .. }) in (1_u64..).zip(steps) {
                let part = relation.part(Positions::one(position));
                if part.ends.has(position) {
                    pairs += u64::from(relation.ends(key(number), part, time).is_some());
                }
                if part.starts.has(position) {
                    starts += 1;
                    relation.starts(key(number), position, time);
                }
            }
            let waiting = relation.waiting(u64::MAX).count() as u64;
            let Unpaired { pairs: counts, skipped, .. } = relation.new_unpaired();
            prop_assert_eq!(starts, pairs + waiting + skipped + counts.reopened);
        }
    }

    #[test]
    fn a_chain_has_a_pair_for_each_step() {
        let mut relation = chain(3, false);
        let both = relation.part(Positions::one(0).and(Positions::one(2)));
        assert_eq!((both.starts, both.ends), (Positions::one(0), Positions::one(2)));
        let [second, third] = [1, 2].map(|position| relation.part(Positions::one(position)));
        relation.starts(key(1), 0, 10);
        assert_eq!(relation.ends(key(1), second, 15), Some((10, 0, 1)));
        relation.starts(key(1), 1, 15);
        assert_eq!(relation.ends(key(2), third, 16), None, "another key");
        assert_eq!(relation.ends(key(1), third, 17), Some((15, 1, 2)));
        relation.starts(key(1), 0, 20);
        assert_eq!(relation.ends(key(1), third, 21), None, "the second position is missing");
        let counts = relation.new_unpaired();
        assert_eq!((counts.skipped, counts.pairs.unmatched), (1, 1));
    }

    /// With the same event in two positions, or in a cycle, each event but the first ends a pair and starts the next.
    #[test]
    fn an_event_may_follow_itself() {
        let both = Positions::one(0).and(Positions::one(1));
        for (mut relation, at) in [(chain(2, false), both), (chain(1, true), Positions::one(0))] {
            let mut since = Vec::new();
            for time in [10, 20, 40] {
                let part = relation.part(at);
                let ended = relation.ends(key(1), part, time);
                since.extend(ended.map(|(since, ..)| since));
                let position = part.start(ended.map(|(.., position)| position)).unwrap();
                relation.starts(key(1), position, time);
            }
            assert_eq!(since, [10, 20]);
            assert_eq!(relation.new_unpaired(), Unpaired::default());
        }
    }
}
