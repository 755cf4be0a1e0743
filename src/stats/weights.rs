//! How much fell on each stack of each task: what flame graphs and lists of functions are made of.

use rustc_hash::FxHashMap;

use crate::symbol::StackId;
use crate::task::Comm;

/// Tasks with their stacks, kept apart at most. What comes beyond is counted in one place.
const MOST: usize = 1 << 18;

/// Of one task, on one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    pub pid: i32,
    pub comm: Comm,
    /// None: there was none, or it was not kept.
    pub stack: Option<StackId>,
    pub weight: u64,
}

/// A sum per task and stack.
#[derive(Debug, Default)]
pub struct StackWeights {
    sums: FxHashMap<(i32, Comm, Option<StackId>), u64>,
}

impl StackWeights {
    pub fn add(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.add_within(MOST, (pid, comm, stack), weight);
    }

    fn add_within(&mut self, most: usize, mut key: (i32, Comm, Option<StackId>), weight: u64) {
        if self.sums.len() >= most && !self.sums.contains_key(&key) {
            key = (0, Comm::new(b"<others>"), None);
        }
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(weight);
    }

    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// It is time to take them: later ones may find no room.
    pub fn are_many(&self) -> bool {
        self.sums.len() >= MOST / 4
    }

    /// All sums so far, which then begin anew.
    pub fn take(&mut self) -> Vec<Weighted> {
        let rows = self.rows();
        self.sums.clear();
        rows
    }

    /// All sums so far, in no order.
    pub fn rows(&self) -> Vec<Weighted> {
        self.sums.iter().map(|(&(pid, comm, stack), &weight)| Weighted { pid, comm, stack, weight }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut weights = StackWeights::default();
        let comm = Comm::new(b"a");
        for pid in [1, 2, 1, 3, 4, 2] {
            weights.add_within(2, (pid, comm, None), 10);
        }
        let mut rows = weights.rows();
        rows.sort_by_key(|row| row.pid);
        let brief: Vec<(i32, u64)> = rows.iter().map(|row| (row.pid, row.weight)).collect();
        assert_eq!(brief, [(0, 20), (1, 20), (2, 20)]);
    }
}
