//! The worst case of each row in the whole run.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::relation::{PairRows, RowKey};
use crate::stats::WorstCase;
use crate::symbol::StackId;

/// Limit of the rows with a worst case.
const MAX_WORST: usize = 1000;

/// The worst case of each row in the whole run.
#[derive(Debug)]
pub struct WorstCases<R>(FxHashMap<R, WorstCase>);

impl<R> Default for WorstCases<R> {
    fn default() -> WorstCases<R> {
        WorstCases(FxHashMap::default())
    }
}

impl<R: RowKey + Hash> WorstCases<R> {
    /// Merges the worst cases of an interval into those of the run.
    pub fn remember<S: Clone + Default>(&mut self, rows: &PairRows<R, S>) {
        for (row, sums) in rows.iter() {
            let Some(case) = sums.latency.worst else { continue };
            if self.0.len() < MAX_WORST || self.0.contains_key(&row) {
                let known = self.0.entry(row).or_insert(case);
                *known = WorstCase::worse(Some(*known), Some(case)).unwrap_or(case);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&R, &WorstCase)> {
        self.0.iter()
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.0.values().filter_map(|case| case.stack)
    }
}
