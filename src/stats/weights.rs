//! Weights of the stacks of each task: the input of flame graphs and lists of functions.

use crate::stats::{KeyedSums, TaskStack};
use crate::symbol::StackId;
use crate::task::Comm;

/// Limit of the sums by task and stack. Weights without room are added to one sum.
const MAX_SUMS: usize = 1 << 18;

/// An amount, in the unit that the profiler weighs by (samples, ns, bytes), and the number of samples behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    pub amount: u64,
    pub samples: u64,
}

impl Weight {
    #[must_use]
    pub fn and(self, other: Weight) -> Weight {
        Weight { amount: self.amount.saturating_add(other.amount), samples: self.samples.saturating_add(other.samples) }
    }
}

/// The weight of one stack of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    pub pid: i32,
    pub comm: Comm,
    /// None: there was no stack, or it was not kept.
    pub stack: Option<StackId>,
    pub weight: Weight,
}

#[derive(Clone, Copy, Debug, Default)]
struct WeightSum {
    weight: Weight,
    /// Number of samples that have no weight yet.
    unweighed: u64,
}

/// A sum per task and stack.
#[derive(Debug)]
pub struct StackWeights(KeyedSums<TaskStack, WeightSum>);

impl Default for StackWeights {
    fn default() -> StackWeights {
        StackWeights(KeyedSums::new(MAX_SUMS))
    }
}

impl StackWeights {
    /// Adds one sample that weighs `amount`.
    pub fn add(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, amount: u64) {
        let sum = self.0.sum(TaskStack { pid, comm, stack });
        sum.weight = sum.weight.and(Weight { amount, samples: 1 });
    }

    /// Adds one sample whose weight [`StackWeights::weigh`] sets later.
    pub fn add_unweighed(&mut self, pid: i32, comm: Comm, stack: Option<StackId>) {
        self.0.sum(TaskStack { pid, comm, stack }).unweighed += 1;
    }

    /// Adds an amount without a sample and a stack.
    pub fn add_unseen(&mut self, pid: i32, comm: Comm, amount: u64) {
        let sum = self.0.sum(TaskStack { pid, comm, stack: None });
        sum.weight = sum.weight.and(Weight { amount, samples: 0 });
    }

    /// Sets the weight of all samples that have none. `each`: the weight of one sample of a process.
    pub fn weigh(&mut self, each: impl Fn(i32) -> f64) {
        for (TaskStack { pid, .. }, sum) in self.0.iter_mut().filter(|(_, sum)| sum.unweighed > 0) {
            let samples = std::mem::take(&mut sum.unweighed);
            let amount = (samples as f64 * each(*pid)).round() as u64;
            sum.weight = sum.weight.and(Weight { amount, samples });
        }
    }

    /// True if the sums should be taken soon, since room is getting short.
    pub fn are_many(&self) -> bool {
        self.0.len() >= MAX_SUMS / 4
    }

    /// Takes all sums out, in no order.
    pub fn take(&mut self) -> Vec<Weighted> {
        let rows = self.rows();
        self.0.clear();
        rows
    }

    /// All sums so far, in no order.
    pub fn rows(&self) -> Vec<Weighted> {
        let row = |(&TaskStack { pid, comm, stack }, sum): (&TaskStack, &WeightSum)| {
            let unweighed = Weight { amount: sum.unweighed, samples: sum.unweighed };
            Weighted { pid, comm, stack, weight: sum.weight.and(unweighed) }
        };
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(weights: &StackWeights) -> Vec<(i32, u64, u64)> {
        let mut rows = weights.rows();
        rows.sort_by_key(|row| row.pid);
        rows.iter().map(|row| (row.pid, row.weight.amount, row.weight.samples)).collect()
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut weights = StackWeights(KeyedSums::new(2));
        let comm = Comm::new(b"a");
        for pid in [1, 2, 1, 3, 4, 2] {
            weights.add(pid, comm, None, 10);
        }
        assert_eq!(sorted(&weights), [(0, 20, 2), (1, 20, 2), (2, 20, 2)]);
    }

    #[test]
    fn samples_are_weighed_when_it_is_known_what_they_stand_for() {
        let mut weights = StackWeights::default();
        let comm = Comm::new(b"a");
        for pid in [1, 1, 2] {
            weights.add_unweighed(pid, comm, None);
        }
        weights.add_unseen(3, comm, 500);
        weights.weigh(|pid| if pid == 1 { 100.0 } else { 0.25 });
        assert_eq!(sorted(&weights), [(1, 200, 2), (2, 0, 1), (3, 500, 0)]);
        weights.add_unweighed(1, comm, None);
        weights.weigh(|_| 7.0);
        assert_eq!(sorted(&weights), [(1, 207, 3), (2, 0, 1), (3, 500, 0)]);
    }
}
