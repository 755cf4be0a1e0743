//! Weights of stacks in which a frame may get a name later: each report adds them with the names known by then.

use rustc_hash::FxHashMap;

use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::task::Comm;

/// Limit of the stacks of tasks that wait for names. Further stacks are added without names.
const LIMIT: usize = 1 << 14;

#[derive(Debug, Default)]
pub struct Unsettled(FxHashMap<(i32, Comm, StackId), Weight>);

impl Unsettled {
    /// False when there is no room for the row, or it has no stack.
    pub fn add(&mut self, row: &Weighted) -> bool {
        let Some(stack) = row.stack else { return false };
        let key = (row.pid, row.comm, stack);
        if self.0.len() >= LIMIT && !self.0.contains_key(&key) {
            return false;
        }
        let sum = self.0.entry(key).or_default();
        *sum = sum.and(row.weight);
        true
    }

    /// Removes and returns the rows whose stack is chosen.
    pub fn take(&mut self, mut is_chosen: impl FnMut(StackId) -> bool) -> Vec<Weighted> {
        self.0.extract_if(|(_, _, stack), _| is_chosen(*stack)).map(row).collect()
    }

    pub fn rows(&self) -> Vec<Weighted> {
        self.0.iter().map(|(key, weight)| row((*key, *weight))).collect()
    }
}

fn row(((pid, comm, stack), weight): ((i32, Comm, StackId), Weight)) -> Weighted {
    Weighted { pid, comm, stack: Some(stack), weight }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Innermost;
    use crate::symbol::{SpaceKeys, Stacks};

    #[test]
    fn sums_by_stack_until_they_are_taken() {
        let (mut stacks, mut keys) = (Stacks::new(16 << 20, 127), SpaceKeys::default());
        let ids: Vec<StackId> = (0..=LIMIT as u64)
            .filter_map(|n| stacks.intern_address(n, false, Innermost::Executed, 5, &mut keys))
            .collect();
        let row = |stack, weight| Weighted {
            pid: 7,
            comm: Comm::new(b"x"),
            stack,
            weight: Weight { amount: weight, samples: weight },
        };
        let mut unsettled = Unsettled::default();
        assert!(!unsettled.add(&row(None, 1)));
        assert!(unsettled.add(&row(Some(ids[0]), 2)) && unsettled.add(&row(Some(ids[0]), 3)));
        assert!(ids[1..LIMIT].iter().all(|id| unsettled.add(&row(Some(*id), 1))));
        assert!(!unsettled.add(&row(Some(ids[LIMIT]), 1)) && unsettled.add(&row(Some(ids[1]), 1)));
        assert_eq!(unsettled.take(|id| id == ids[0]), [row(Some(ids[0]), 5)]);
        assert_eq!(unsettled.take(|_| true).len(), LIMIT - 1);
        assert!(unsettled.take(|_| true).is_empty());
    }
}
