//! Distributions of `u64` values, mostly latencies in ns, in a few hundred bytes.
//!
//! Buckets are exponential: each is wider than the one before by the factor 2^(1/16), and includes its upper end, as in
//! Prometheus' native histograms of schema 4 and OpenTelemetry's histograms of scale 4. A quantile is the middle of its
//! bucket and so at most [`Distribution::MAX_ERROR`] away from the value of that rank. Count, sum, minimum and maximum
//! are exact. The sum of squares is a float, which costs three instructions per value: a 128-bit integer costs as many,
//! takes twice the room, and may overflow. From the buckets alone a standard deviation would be off by 2.2 % of the
//! values.

use std::ops::RangeInclusive;

use crate::stats::buckets::{BIAS, BUCKETS, PARTS, QUICK, biased_bucket, bounds, bucket, quick_float};

/// The counts grow by this many buckets.
const BLOCK: usize = PARTS;

/// A distribution. An empty one has no heap memory. Otherwise it takes 4 bytes per bucket from the lowest to the
/// highest one in use: 1.3 KiB for 1 us to 1 s, never more than 4.1 KiB; twice that once a bucket has counted 2^32
/// values.
#[derive(Clone, Debug)]
pub struct Distribution {
    counts: Vec<u32>,
    wraps: Option<Box<[u32; BUCKETS]>>, // how often the count of a bucket wrapped at 2^32
    sum: u128,
    squares: f64, // the sum of squares
    low: u64,     // the least value, but not below `QUICK`; u64::MAX without any
    width: u64,   // distance from `low` to the greatest quick value
    max: u64,
    first_biased: usize, // bucket of `counts[0]`, plus `BIAS`
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl Distribution {
    /// The largest relative error of a quantile before rounding to an integer: half of 2^(1/16) - 1.
    pub const MAX_ERROR: f64 = 0.0222;

    pub const fn new() -> Self {
        Self {
            counts: Vec::new(),
            wraps: None,
            sum: 0,
            squares: 0.0,
            low: u64::MAX,
            width: 0,
            max: 0,
            first_biased: BIAS,
        }
    }

    #[inline(always)]
    pub fn record(&mut self, value: u64) {
        if value.wrapping_sub(self.low) >= self.width {
            return self.record_beyond(value);
        }
        let float = quick_float(value);
        self.sum = self.sum.wrapping_add(u128::from(value)); // nobody records 2^64 values
        self.squares += float * float;
        // The unbiased bucket number is computed only in the rare branches.
        match self.counts.get_mut(biased_bucket(float).wrapping_sub(self.first_biased)) {
            Some(count) => {
                *count = count.wrapping_add(1);
                if *count == 0 {
                    self.carry(bucket(value), 1);
                }
            }
            None => self.add(bucket(value), 1),
        }
    }

    /// Records a value that is less or greater than all before, or is not in `QUICK`.
    #[cold]
    fn record_beyond(&mut self, value: u64) {
        self.sum = self.sum.wrapping_add(u128::from(value));
        self.squares += value as f64 * value as f64;
        self.widen(value, value);
        self.add(bucket(value), 1);
    }

    fn widen(&mut self, least: u64, greatest: u64) {
        self.low = self.low.min(least.max(*QUICK.start()));
        self.max = self.max.max(greatest);
        self.width = (self.max.min(*QUICK.end()) + 1).saturating_sub(self.low);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        for (bucket, count) in other.used() {
            self.add(bucket, count);
        }
        self.sum = self.sum.saturating_add(other.sum).min(u128::MAX / 2); // leaves room for later values
        self.squares += other.squares;
        if !other.is_empty() {
            self.widen(other.min(), other.max);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.used().next().is_none()
    }

    pub fn count(&self) -> u64 {
        self.used().fold(0, |all, (_, count)| all.saturating_add(count))
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// 0 while empty, like all functions below.
    pub fn min(&self) -> u64 {
        match self.used().next() {
            None | Some((0, _)) => 0,
            Some(_) => self.low,
        }
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// Rounded down.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(u128::from(self.count())).map_or(0, |mean| u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The relative error is at most (count + 2) x 2^-53: each addition rounds. Its last digits may depend on the order
    /// of values and merges.
    pub fn sum_of_squares(&self) -> f64 {
        self.squares
    }

    /// The mean of the squared distances from the mean. The error is at most (count + 8) x 2^-53 of the mean square.
    /// The result is never more than minimum, maximum and mean allow, so it is 0 if all values are equal.
    pub fn variance(&self) -> f64 {
        let count = self.count() as f64;
        if count == 0.0 {
            return 0.0;
        }
        let mean = self.sum as f64 / count;
        let widest = (self.max as f64 - mean) * (mean - self.min() as f64);
        (self.squares / count - mean * mean).min(widest).max(0.0)
    }

    pub fn standard_deviation(&self) -> f64 {
        self.variance().sqrt()
    }

    /// The value of nearest rank `ceil(q x count)`: `q` 0 is the minimum, 1 the maximum, both exact, 0.5 the (lower)
    /// median.
    ///
    /// Any other quantile is the middle of the bucket that holds the value of that rank, clamped to minimum and
    /// maximum: exact below 27, else off by at most [`MAX_ERROR`](Self::MAX_ERROR) of the true value.
    pub fn quantile(&self, q: f64) -> u64 {
        let all = self.count();
        // In floating point 0.07 x 100 is slightly more than 7, but rank 7 is meant.
        let rank = (q * all as f64 * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64;
        if rank <= 1 {
            return self.min();
        }
        if rank >= all {
            return self.max;
        }
        let mut below = 0_u64;
        for (bucket, count) in self.used() {
            below = below.saturating_add(count);
            if below >= rank {
                let (low, high) = bounds(bucket).into_inner();
                return (low + (high - low) / 2).clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// The buckets in use, lowest first: their range of values, and the number of values in it.
    pub fn buckets(&self) -> impl Iterator<Item = (RangeInclusive<u64>, u64)> {
        self.used().map(|(bucket, count)| (bounds(bucket), count))
    }

    /// Number of values that are 0, which is in no bucket of [`scale_4`](Self::scale_4).
    pub fn zeros(&self) -> u64 {
        self.used().next().filter(|(bucket, _)| *bucket == 0).map_or(0, |(_, count)| count)
    }

    /// The buckets in use as native histograms of schema 4 number them, lowest first: bucket `i` has the values above
    /// 2^((i-1)/16) up to 2^(i/16). In OpenTelemetry's scale 4 the same bucket is `i - 1`.
    pub fn scale_4(&self) -> impl Iterator<Item = (i32, u64)> {
        self.used().filter(|(bucket, _)| *bucket > 0).map(|(bucket, count)| (bucket as i32 - 1, count))
    }

    /// Bytes on the heap, for memory limits.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(self.counts.as_slice()) + self.wraps.as_deref().map_or(0, size_of_val)
    }

    /// The bucket of `counts[0]`.
    fn first(&self) -> usize {
        self.first_biased - BIAS
    }

    fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        let buckets = self.counts.iter().zip(self.first()..);
        let full = buckets.map(|(&low, bucket)| (bucket, u64::from(low) | u64::from(self.wraps_of(bucket)) << 32));
        full.filter(|&(_, count)| count > 0)
    }

    fn wraps_of(&self, bucket: usize) -> u32 {
        self.wraps.as_ref().map_or(0, |wraps| wraps[bucket])
    }

    /// The general, slow way to add: the bucket may be outside of `counts`, and `count` more than 1.
    #[cold]
    fn add(&mut self, bucket: usize, count: u64) {
        self.cover(bucket);
        let first = self.first();
        let low = &mut self.counts[bucket - first];
        let total = (u64::from(*low)).saturating_add(count);
        *low = total as u32;
        let carry = (total >> 32) as u32;
        if carry > 0 {
            self.carry(bucket, carry);
        }
    }

    #[cold]
    fn carry(&mut self, bucket: usize, times: u32) {
        let wraps = &mut self.wraps.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket];
        *wraps = wraps.saturating_add(times);
    }

    /// Widens `counts` by whole blocks until it holds `bucket`. It reserves no further room, as most distributions soon
    /// stop growing.
    fn cover(&mut self, bucket: usize) {
        let block = bucket / BLOCK * BLOCK;
        if self.counts.is_empty() {
            self.first_biased = block + BIAS;
        }
        let first = self.first();
        if block < first {
            let mut counts = vec![0; first - block + self.counts.len()];
            counts[first - block..].copy_from_slice(&self.counts);
            (self.counts, self.first_biased) = (counts, block + BIAS);
        } else if let Some(more) = (block + BLOCK - first).checked_sub(self.counts.len()) {
            self.counts.reserve_exact(more);
            self.counts.resize(self.counts.len() + more, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QS: [f64; 9] = [0.0, 0.001, 0.07, 0.25, 0.5, 0.95, 0.99, 0.999, 1.0];

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|&value| distribution.record(value));
        distribution
    }

    /// Compares the quantiles at every `q` of `QS` with those of the sorted values.
    fn check(values: &[u64]) {
        let distribution = of(values);
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        for q in QS {
            // Thousandths keep the rank exact.
            let rank = ((q * 1000.0).round() as usize * sorted.len()).div_ceil(1000).max(1);
            let (got, want) = (distribution.quantile(q), sorted[rank - 1]);
            let off = got.abs_diff(want) as f64;
            assert!(off <= want as f64 * Distribution::MAX_ERROR + 0.5, "q {q}: {got}, not {want}");
        }
        let exact = (distribution.count(), distribution.sum(), distribution.min(), distribution.max());
        assert_eq!(
            exact,
            (values.len() as u64, values.iter().map(|&v| u128::from(v)).sum(), sorted[0], sorted[sorted.len() - 1])
        );
        assert_eq!((distribution.quantile(0.0), distribution.quantile(1.0)), (distribution.min(), distribution.max()));
        let narrow =
            |range: &RangeInclusive<u64>| (range.end() - range.start()) as f64 <= *range.start() as f64 * 0.0443;
        assert!(distribution.buckets().all(|(range, _)| narrow(&range)));
        assert_eq!(distribution.buckets().map(|(_, count)| count).sum::<u64>(), distribution.count());
        assert_eq!(distribution.zeros(), sorted.iter().filter(|value| **value == 0).count() as u64);
        for (index, count) in distribution.scale_4() {
            let [above, end] = [index - 1, index].map(|index| (f64::from(index) / 16.0).exp2());
            // `exp2` may be wrong in its last digits, and the conversion of a large value to a float rounds.
            let is_in = |value: f64| value > above * (1.0 - 1e-14) && value <= end * (1.0 + 1e-14);
            let those = sorted.iter().filter(|value| bucket(**value) as i32 - 1 == index && is_in(**value as f64));
            assert_eq!(those.count() as u64, count, "{index}");
        }
        assert_eq!(
            distribution.scale_4().map(|(_, count)| count).sum::<u64>(),
            distribution.count() - distribution.zeros()
        );
        check_variance(&distribution, values);
    }

    /// Compares the variance with one computed from the distances of the values from their exact mean.
    fn check_variance(distribution: &Distribution, values: &[u64]) {
        let count = values.len() as f64;
        let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
        // The distance of `count` times the value from the sum is exact; positive floats add up without cancellation.
        let distance = |value: &u64| (u128::from(*value) * values.len() as u128).abs_diff(sum) as f64 / count;
        let variance = values.iter().map(|value| distance(value).powi(2)).sum::<f64>() / count;
        let mean_square = values.iter().map(|&value| (value as f64).powi(2)).sum::<f64>() / count;
        // The sums computed here have the same error as those that they are compared with.
        let error = 2.0 * (count + 8.0) * f64::EPSILON / 2.0 * mean_square;
        let got = distribution.variance();
        assert!((got - variance).abs() <= error, "{got}, not {variance}, of {mean_square}");
        assert_eq!(distribution.standard_deviation(), got.sqrt());
        if values.iter().all(|value| *value == values[0]) {
            assert!(got <= mean_square * 4.0 * f64::EPSILON, "{got}");
        }
    }

    #[test]
    fn variances_of_known_distributions() {
        let all = |values: &[u64]| of(values).variance();
        assert_eq!(all(&[2, 4, 4, 4, 5, 5, 7, 9]), 4.0);
        assert_eq!((all(&[123_456_789; 1000]), all(&[u64::MAX; 3]), all(&[7])), (0.0, 0.0, 0.0));
        // Values whose spread is far smaller than the values.
        let near: Vec<u64> = (0..1000).map(|number| 1_000_000_000 + number % 2 * 2).collect();
        let off = (all(&near) - 1.0).abs();
        assert!(off <= 1008.0 * f64::EPSILON / 2.0 * 1e18, "{off}");
        assert_eq!(of(&[0, 2, 16, 17]).scale_4().collect::<Vec<_>>(), [(16, 1), (64, 1), (66, 1)]);
    }

    #[test]
    fn quantiles_of_known_distributions() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let uniform: Vec<u64> = (1..=10_000).collect();
        let wide: Vec<u64> = (0..10_000).map(|_| random() << (random() % 33)).collect();
        let heavy: Vec<u64> = (0..10_000).map(|_| 1_000_000_000_000 / (random() + 1)).collect();
        let two: Vec<u64> = (0..10_000).map(|i| if i % 100 == 0 { 150_000_000 } else { 2_000 + i }).collect();
        for values in [
            &uniform[..],
            &wide,
            &heavy,
            &two,
            &[7],
            &[0],
            &[u64::MAX],
            &[0, u64::MAX],
            &[123_456_789; 1000],
            &[0; 5],
            &[u64::MAX; 3],
        ] {
            check(values);
        }
        assert_eq!(of(&[u64::MAX; 3]).quantile(0.5), u64::MAX);
        assert_eq!(of(&[123_456_789; 1000]).quantile(0.5), 123_456_789);
        assert_eq!(of(&uniform[..100]).quantile(0.07), 7);
    }

    #[test]
    fn values_beyond_the_quick_way() {
        for values in [&[u64::MAX][..], &[0], &[3, 15], &[15, 16, 17], &[1 << 53, 1 << 60, u64::MAX - 1]] {
            check(values);
            let mut merged = Distribution::new();
            merged.merge(&of(values));
            assert_eq!((merged.is_empty(), merged.min(), merged.max()), (false, values[0], values[values.len() - 1]));
        }
    }

    #[test]
    fn costs_little() {
        assert!(size_of::<Distribution>() <= 96);
        let mut distribution = Distribution::new();
        assert_eq!(distribution.heap_bytes(), 0);
        distribution.record(1_000_000_000);
        assert_eq!(distribution.heap_bytes(), 64);
        distribution.record(1_000);
        assert_eq!(distribution.heap_bytes(), 21 * 64);
        (0..64).for_each(|bit| distribution.record(1 << bit));
        assert!(distribution.heap_bytes() <= 4096);
    }

    #[test]
    fn all_is_0_while_empty() {
        let mut merged = Distribution::new();
        merged.merge(&Distribution::new());
        for distribution in [Distribution::new(), merged] {
            assert!(distribution.is_empty());
            assert_eq!((distribution.count(), distribution.sum(), distribution.mean()), (0, 0, 0));
            assert_eq!((distribution.min(), distribution.max()), (0, 0));
            assert_eq!((distribution.quantile(0.5), distribution.quantile(f64::NAN)), (0, 0));
            assert_eq!((distribution.sum_of_squares(), distribution.variance()), (0.0, 0.0));
            let used = (distribution.buckets().count(), distribution.zeros(), distribution.scale_4().count());
            assert_eq!((used, distribution.heap_bytes()), ((0, 0, 0), 0));
        }
    }

    #[test]
    fn counts_pass_32_bits() {
        let mut distribution = of(&[1, 1_000]);
        for _ in 0..40 {
            let copy = distribution.clone();
            distribution.merge(&copy);
        }
        distribution.record(1);
        assert_eq!(distribution.count(), (2 << 40) + 1);
        let counts: Vec<_> = distribution.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [(1 << 40) + 1, 1 << 40]);
        assert_eq!(
            (distribution.quantile(0.5), distribution.quantile(0.51)),
            (1, 991.max(distribution.quantile(0.51)))
        );
        // One more value, which makes a count wrap at 2^32.
        let mut edge = of(&[3]);
        edge.add(bucket(3), u64::from(u32::MAX) - 1);
        edge.record(3);
        assert_eq!(edge.buckets().next(), Some((3..=3, 1 << 32)));
        let mut edge = of(&[30, 50]);
        edge.add(bucket(30), u64::from(u32::MAX) - 1);
        edge.record(30);
        assert_eq!((edge.count(), edge.buckets().next()), ((1 << 32) + 1, Some((30..=30, 1 << 32))));
        // Impossible counts saturate.
        for _ in 0..100 {
            let copy = distribution.clone();
            distribution.merge(&copy);
        }
        assert_eq!(distribution.count(), u64::MAX);
        assert!(distribution.quantile(0.9) <= 1_000);
    }

    /// Values of any number of digits.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(value, shift)| value.checked_shr(shift).unwrap_or(0))
    }

    proptest! {
        #[test]
        fn any_values_within_the_bound(values in prop::collection::vec(value(), 1..300)) {
            check(&values);
        }

        /// The parts are merged in any order.
        #[test]
        fn merges_equal_the_union(
            parts in prop::collection::vec(prop::collection::vec(value(), 0..30), 1..8),
            order in any::<prop::sample::Index>(),
        ) {
            let mut distributions: Vec<Distribution> = parts.iter().map(|part| of(part)).collect();
            while distributions.len() > 1 {
                let one = distributions.swap_remove(order.index(distributions.len()));
                let at = order.index(distributions.len());
                distributions[at].merge(&one);
            }
            let (merged, union) = (&distributions[0], of(&parts.concat()));
            prop_assert_eq!(merged.buckets().collect::<Vec<_>>(), union.buckets().collect::<Vec<_>>());
            let exact = |all: &Distribution| (all.count(), all.sum(), all.min(), all.max());
            prop_assert_eq!(exact(merged), exact(&union));
            if !merged.is_empty() {
                check_variance(merged, &parts.concat());
            }
        }
    }
}
