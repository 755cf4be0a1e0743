//! Latencies by key: their distribution, and the worst case.

use crate::stats::{Distribution, KeyedSums};
use crate::symbol::StackId;
use crate::task::Comm;

/// Latencies by key, in bounded memory like all keyed sums.
pub type LatencyTable<K> = KeyedSums<K, Latency>;

/// Latencies of one key, ns.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    pub distribution: Distribution,
    /// The greatest latency; of equal ones the earliest. None: nothing was recorded.
    pub worst: Option<WorstCase>,
}

/// One latency, with its end and its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstCase {
    pub ns: u64,
    /// When the latency ended, ns, CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub cpu: u32,
    pub tid: i32,
    pub comm: Comm,
    pub stack: Option<StackId>,
}

impl WorstCase {
    /// The worse of two cases.
    #[must_use]
    pub fn worse(one: Option<WorstCase>, other: Option<WorstCase>) -> Option<WorstCase> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.exceeds(one.ns, one.at_ns) { other } else { one }),
            (one, other) => one.or(other),
        }
    }

    fn exceeds(&self, ns: u64, at: u64) -> bool {
        self.ns > ns || self.ns == ns && self.at_ns < at
    }
}

impl Latency {
    /// Records a latency of `ns` that ended at `at`. `case` is called if this latency is the worst so far.
    #[inline(always)]
    pub fn record(&mut self, ns: u64, at: u64, case: impl FnOnce() -> WorstCase) {
        self.distribution.record(ns);
        if self.worst.is_none_or(|worst| ns > worst.ns || ns == worst.ns && at < worst.at_ns) {
            self.worst = Some(case());
        }
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Latency) {
        self.distribution.merge(&other.distribution);
        self.worst = WorstCase::worse(self.worst, other.worst);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::stats::SumKey;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct OptionalKey(Option<u8>);

    impl SumKey for OptionalKey {
        fn others(&self) -> OptionalKey {
            OptionalKey(None)
        }
    }

    fn case(ns: u64, at: u64) -> WorstCase {
        WorstCase { ns, at_ns: at, cpu: 0, tid: 1, comm: Comm::default(), stack: None }
    }

    proptest! {
        /// Compared with lists of the latencies of each key; keys without room share a list. The latencies are recorded
        /// in one table, and in two tables that are merged.
        #[test]
        fn each_key_has_its_latencies(
            most in 0_usize..8,
            recorded in prop::collection::vec((0_u8..12, 0_u64..50, 0_u64..1000), 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut table: LatencyTable<OptionalKey> = LatencyTable::new(most);
            let mut plain: HashMap<OptionalKey, Vec<(u64, u64)>> = HashMap::new();
            for &(key, ns, at) in &recorded {
                table.sum(OptionalKey(Some(key))).record(ns, at, || case(ns, at));
                let fits = plain.len() < most || plain.contains_key(&OptionalKey(Some(key)));
                plain.entry(OptionalKey(Some(key).filter(|_| fits))).or_default().push((ns, at));
            }
            prop_assert_eq!(table.len(), plain.len());
            for (key, all) in &plain {
                let latency = table.get(key).expect("the key is known");
                let at = cut.index(all.len() + 1);
                let mut parts = [&all[..at], &all[at..]].map(|part| {
                    let mut latency = Latency::default();
                    part.iter().for_each(|&(ns, at)| latency.record(ns, at, || case(ns, at)));
                    latency
                });
                let [one, other] = &mut parts;
                other.merge(one);
                let worst = all.iter().max_by_key(|(ns, at)| (*ns, Reverse(*at))).map(|&(ns, at)| case(ns, at));
                for latency in [latency, other] {
                    prop_assert_eq!(latency.worst, worst);
                    prop_assert_eq!(latency.distribution.count(), all.len() as u64);
                    prop_assert_eq!(latency.distribution.sum(), all.iter().map(|(ns, _)| u128::from(*ns)).sum::<u128>());
                }
            }
        }
    }
}
