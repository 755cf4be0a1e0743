//! Distributions of numbers that may be less than 0.

use crate::stats::Distribution;

/// Numbers of 64 bits, with or without a sign: one distribution of the numbers from 0 up, and one of the absolute
/// values below 0. The error of quantiles is that of [`Distribution`].
#[derive(Clone, Debug, Default)]
pub struct SignedDistribution {
    /// The absolute values of the numbers below 0.
    pub below: Distribution,
    /// All other numbers.
    pub above: Distribution,
}

impl SignedDistribution {
    #[inline]
    pub fn record(&mut self, number: i64) {
        match u64::try_from(number) {
            Ok(number) => self.above.record(number),
            Err(_) => self.below.record(number.unsigned_abs()),
        }
    }

    #[inline]
    pub fn record_unsigned(&mut self, number: u64) {
        self.above.record(number);
    }

    /// Adds all numbers of `other`.
    pub fn merge(&mut self, other: &SignedDistribution) {
        self.below.merge(&other.below);
        self.above.merge(&other.above);
    }

    pub fn count(&self) -> u64 {
        self.below.count().saturating_add(self.above.count())
    }

    pub fn sum(&self) -> i128 {
        let sum = |distribution: &Distribution| i128::try_from(distribution.sum()).unwrap_or(i128::MAX);
        sum(&self.above).saturating_sub(sum(&self.below))
    }

    /// None while empty, like all functions below.
    pub fn min(&self) -> Option<i128> {
        match (self.below.is_empty(), self.above.is_empty()) {
            (true, true) => None,
            (true, false) => Some(self.above.min().into()),
            (false, _) => Some(-i128::from(self.below.max())),
        }
    }

    pub fn max(&self) -> Option<i128> {
        match (self.below.is_empty(), self.above.is_empty()) {
            (true, true) => None,
            (_, false) => Some(self.above.max().into()),
            (false, true) => Some(-i128::from(self.below.min())),
        }
    }

    /// Rounded towards 0.
    pub fn mean(&self) -> Option<i128> {
        self.sum().checked_div(self.count().into())
    }

    /// The mean of the squared distances from the mean.
    pub fn variance(&self) -> Option<f64> {
        if self.below.is_empty() {
            return (!self.above.is_empty()).then(|| self.above.variance());
        }
        let (count, mean) = (self.count() as f64, self.sum() as f64 / self.count() as f64);
        let squares = self.below.sum_of_squares() + self.above.sum_of_squares();
        // Clamped to what minimum, maximum and mean allow: rounding could exceed it, or go below 0.
        let widest = (self.max()? as f64 - mean) * (mean - self.min()? as f64);
        Some((squares / count - mean * mean).min(widest).max(0.0))
    }

    /// The number of nearest rank `ceil(q x count)`, as in [`Distribution::quantile`].
    pub fn quantile(&self, q: f64) -> Option<i128> {
        let (below, above) = (self.below.count(), self.above.count());
        let all = below.saturating_add(above);
        let rank = ((q * all as f64 * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64).max(1);
        let of = |distribution: &Distribution, rank: u64, count: u64| distribution.quantile(rank as f64 / count as f64);
        match () {
            () if all == 0 => None,
            // Ranks below 0 are counted from the greatest absolute value.
            () if rank <= below => Some(-i128::from(of(&self.below, below - rank + 1, below))),
            () => Some(of(&self.above, (rank - below).min(above), above).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[i64]) -> SignedDistribution {
        let mut distribution = SignedDistribution::default();
        numbers.iter().for_each(|number| distribution.record(*number));
        distribution
    }

    #[test]
    fn numbers_below_and_above_are_put_together() {
        let all = of(&[-5, -1, 0, 2, 9]);
        assert_eq!((all.count(), all.sum(), all.min(), all.max(), all.mean()), (5, 5, Some(-5), Some(9), Some(1)));
        assert_eq!([0.0, 0.2, 0.4, 0.5, 0.8, 1.0].map(|q| all.quantile(q).unwrap()), [-5, -5, -1, 0, 2, 9]);
        assert_eq!(all.variance(), Some(21.2));
        let none = of(&[]);
        assert_eq!(
            (none.min(), none.max(), none.mean(), none.variance(), none.quantile(0.5)),
            (None, None, None, None, None)
        );
        assert_eq!((of(&[i64::MIN]).min(), of(&[-7, -3]).max()), (Some(i128::from(i64::MIN)), Some(-3)));
        let mut large = SignedDistribution::default();
        large.record_unsigned(u64::MAX);
        assert_eq!((large.max(), large.sum()), (Some(u64::MAX.into()), i128::from(u64::MAX)));
    }

    proptest! {
        /// Compared with the sorted list.
        #[test]
        fn quantiles_are_those_of_the_sorted_numbers(
            mut numbers in prop::collection::vec(-100_000_i64..100_000, 1..200),
            percent in 0_u32..=100,
        ) {
            let all = of(&numbers);
            numbers.sort_unstable();
            let rank = (numbers.len() * percent as usize).div_ceil(100).max(1);
            let want = numbers[rank - 1] as f64;
            let got = all.quantile(f64::from(percent) / 100.0).unwrap() as f64;
            prop_assert!((got - want).abs() <= want.abs() * Distribution::MAX_ERROR + 0.5, "{got} for {want}");
            let mean = numbers.iter().sum::<i64>() as f64 / numbers.len() as f64;
            let variance = numbers.iter().map(|number| (*number as f64 - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
            prop_assert!((all.variance().unwrap() - variance).abs() <= variance * 1e-6 + 1e-3);
            prop_assert_eq!((all.min(), all.max()), (Some(numbers[0].into()), numbers.last().map(|last| (*last).into())));
            prop_assert_eq!(all.sum(), i128::from(numbers.iter().sum::<i64>()));
        }
    }
}
