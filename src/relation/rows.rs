//! The sums of pairs, by row.

use crate::stats::{KeyedSums, Latency, SumKey};
use crate::symbol::StackId;

/// The key of a row.
pub trait RowKey: SumKey + Copy + Ord {
    /// The index of a frequent row, which is then found without hashing. It must be below a few thousand.
    #[inline(always)]
    fn index(&self) -> Option<usize> {
        None
    }

    /// The row with this index, if there is one.
    fn at_index(index: usize) -> Option<Self> {
        let _ = index;
        None
    }
}

/// The sums of a row.
#[derive(Clone, Debug, Default)]
pub struct PairSums<S> {
    pub latency: Latency,
    /// Pairs at least as long as the limit.
    pub than: u64,
    /// Pairs that began before the interval in which they ended.
    pub before: u64,
    /// Ends whose start was not seen.
    pub no_start: u64,
    /// The profiler's own sums.
    pub own: S,
}

impl<S> PairSums<S> {
    fn is_empty(&self) -> bool {
        self.latency.worst.is_none() && self.no_start == 0
    }
}

/// The sums of all rows, in bounded memory.
#[derive(Debug)]
pub struct PairRows<R, S> {
    /// The sums of rows that have an index, by index.
    by_index: Vec<PairSums<S>>,
    rest: KeyedSums<R, PairSums<S>>,
}

impl<R: RowKey, S: Clone + Default> Default for PairRows<R, S> {
    fn default() -> PairRows<R, S> {
        PairRows { by_index: Vec::new(), rest: KeyedSums::default() }
    }
}

impl<R: RowKey, S: Clone + Default> PairRows<R, S> {
    /// The sums of a row, for adding to them.
    #[inline(always)]
    pub fn sum(&mut self, row: R) -> &mut PairSums<S> {
        if let Some(index) = row.index() {
            if index >= self.by_index.len() {
                self.grow(index);
            }
            return &mut self.by_index[index];
        }
        self.sum_of_rest(row)
    }

    #[inline(never)]
    fn sum_of_rest(&mut self, row: R) -> &mut PairSums<S> {
        self.rest.sum(row)
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        self.by_index.resize(index + 1, PairSums::default());
    }

    /// All rows with their sums, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (R, &PairSums<S>)> {
        let by_index = self.by_index.iter().enumerate().filter(|(_, sums)| !sums.is_empty());
        let by_index = by_index.filter_map(|(index, sums)| Some((R::at_index(index)?, sums)));
        by_index.chain(self.rest.iter().map(|(row, sums)| (*row, sums)))
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes all sums out, in the order of their rows.
    pub fn take(&mut self) -> Vec<(R, PairSums<S>)> {
        let by_index = self.by_index.iter_mut().enumerate().filter(|(_, sums)| !sums.is_empty());
        let mut rows: Vec<_> =
            by_index.filter_map(|(index, sums)| Some((R::at_index(index)?, std::mem::take(sums)))).collect();
        rows.extend(self.rest.drain());
        rows.sort_unstable_by_key(|(row, _)| *row);
        rows
    }

    /// The stacks of the worst cases.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.iter().filter_map(|(_, sums)| sums.latency.worst.and_then(|case| case.stack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::WorstCase;
    use crate::task::Comm;

    /// A row of an optional index and a number; without room it is `OTHERS`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct NumberedRow(Option<u8>, u16);

    const OTHERS: NumberedRow = NumberedRow(Some(u8::MAX), 0);

    impl SumKey for NumberedRow {
        fn others(&self) -> NumberedRow {
            OTHERS
        }
    }

    impl RowKey for NumberedRow {
        fn index(&self) -> Option<usize> {
            (self.0.is_none() && self.1 < 100).then_some(self.1.into())
        }

        fn at_index(index: usize) -> Option<NumberedRow> {
            Some(NumberedRow(None, u16::try_from(index).ok()?))
        }
    }

    /// Rows with an index and rows without one each have their own sums.
    #[test]
    fn rows_are_kept_apart() {
        let rows = [(None, 1), (None, 3), (None, 1000), (Some(7), 1), (Some(8), 1)];
        let rows = rows.map(|(one, other)| NumberedRow(one, other));
        let mut all: PairRows<NumberedRow, u64> = PairRows::default();
        assert!(all.is_empty());
        for (ns, row) in (1..).zip(rows.iter().chain(&rows)) {
            let (tid, comm, stack) = (1, Comm::default(), None);
            let sums = all.sum(*row);
            sums.latency.record(ns, ns, || WorstCase { ns, at_ns: ns, cpu: 0, tid, comm, stack });
            sums.own += ns;
        }
        assert_eq!(all.iter().count(), rows.len());
        let taken = all.take();
        assert_eq!(taken.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows);
        assert!(taken.iter().all(|(_, sums)| sums.latency.distribution.count() == 2));
        assert_eq!(taken.iter().map(|(_, sums)| sums.own).sum::<u64>(), 55);
        assert!(all.is_empty() && all.take().is_empty());
    }

    #[test]
    fn an_end_without_a_start_makes_a_row() {
        let mut all: PairRows<NumberedRow, ()> = PairRows::default();
        all.sum(NumberedRow(None, 2)).no_start += 1;
        let taken = all.take();
        assert_eq!(
            taken.iter().map(|(row, sums)| (*row, sums.no_start)).collect::<Vec<_>>(),
            [(NumberedRow(None, 2), 1)]
        );
    }

    #[test]
    fn rows_are_bounded() {
        let mut all: PairRows<NumberedRow, ()> = PairRows::default();
        for number in 0..20_000 {
            all.sum(NumberedRow(None, 100 + number)).no_start += 1;
        }
        let taken = all.take();
        assert!(taken.len() <= 10_001, "{}", taken.len());
        assert_eq!(taken.iter().map(|(_, sums)| sums.no_start).sum::<u64>(), 20_000);
        assert!(taken.iter().any(|(row, _)| *row == OTHERS));
    }
}
