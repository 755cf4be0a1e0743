//! Distributions of `u64` values, mostly latencies in ns, in a few hundred bytes.
//!
//! Buckets are exponential: each is wider than the one before by the same factor, the 16th root of 2, and has its upper end
//! in it. Prometheus' native histograms of schema 4 and OpenTelemetry's of scale 4 have the same. A quantile is the middle of
//! its bucket and so at most [`Histogram::MAX_ERROR`] away from the value of that rank. Count, sum, minimum and maximum are
//! exact.

use std::ops::RangeInclusive;

/// Buckets per power of two. Twice as many would halve the error and double the memory.
const PARTS: usize = 16;
/// The counts grow by this many buckets.
const BLOCK: usize = PARTS;

/// A distribution. Unused it owns no heap; used, 4 bytes per bucket from the lowest to the highest one in use, so 1.3 KiB for
/// 1 us to 1 s and never over 4.1 KiB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u32>,
    wraps: Vec<(u16, u32)>, // bucket, and how often its count passed 2^32
    sum: u128,
    low: u64,   // the least value, but not below `QUICK`; u64::MAX without any
    width: u64, // of the values from `low` up to the greatest, but not above it
    max: u64,
    first: u16, // bucket of `counts[0]`
}

/// Values whose bucket is found in the quick way: floats have all of their digits.
const QUICK: RangeInclusive<u64> = 1..=(1 << f64::MANTISSA_DIGITS) - 1;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// The largest distance of a quantile from the true value, as a share of it, and before it is rounded to a whole number:
    /// half of 2^(1/16) - 1.
    pub const MAX_ERROR: f64 = 0.0222;

    pub const fn new() -> Self {
        Self { counts: Vec::new(), wraps: Vec::new(), sum: 0, low: u64::MAX, width: 0, max: 0, first: 0 }
    }

    #[inline(always)]
    pub fn record(&mut self, value: u64) {
        if value.wrapping_sub(self.low) >= self.width {
            return self.record_beyond(value);
        }
        self.sum = self.sum.wrapping_add(u128::from(value)); // nobody records 2^64 values
        let bucket = quick_bucket(value);
        match self.counts.get_mut(bucket.wrapping_sub(usize::from(self.first))) {
            Some(count) => {
                *count = count.wrapping_add(1);
                if *count == 0 {
                    self.carry(bucket, 1);
                }
            }
            None => self.add(bucket, 1),
        }
    }

    /// A value that is less or greater than all before, or has no quick bucket.
    #[cold]
    fn record_beyond(&mut self, value: u64) {
        self.sum = self.sum.wrapping_add(u128::from(value));
        self.widen(value, value);
        self.add(bucket(value), 1);
    }

    fn widen(&mut self, least: u64, greatest: u64) {
        self.low = self.low.min(least.max(*QUICK.start()));
        self.max = self.max.max(greatest);
        self.width = (self.max.min(*QUICK.end()) + 1).saturating_sub(self.low);
    }

    /// Everything recorded in `other` counts here as well.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in other.used() {
            self.add(bucket, count);
        }
        self.sum = self.sum.saturating_add(other.sum);
        if !other.is_empty() {
            self.widen(other.min(), other.max);
        }
    }

    /// Forgets the values but keeps the memory, for the next interval.
    pub fn clear(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.fill(0);
        *self = Self { counts, first: self.first, ..Self::new() };
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

    /// 0 while empty, like all that follow.
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

    /// The value of nearest rank `ceil(q x count)`: `q` 0 is the minimum, 1 the maximum, both exact, 0.5 the (lower) median.
    ///
    /// Any other is the middle of the bucket that holds the value of that rank, within minimum and maximum: exact below 27, else
    /// off by at most [`MAX_ERROR`](Self::MAX_ERROR) of the true value.
    pub fn quantile(&self, q: f64) -> u64 {
        self.quantile_of(self.count(), q)
    }

    /// Several at once, which takes half of the looks.
    pub fn quantiles<const N: usize>(&self, qs: [f64; N]) -> [u64; N] {
        let all = self.count();
        qs.map(|q| self.quantile_of(all, q))
    }

    fn quantile_of(&self, all: u64, q: f64) -> u64 {
        // 0.07 x 100 is a little over 7 in binary, and is meant as rank 7.
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

    /// The buckets in use, lowest first: which values, and how many of them.
    pub fn buckets(&self) -> impl Iterator<Item = (RangeInclusive<u64>, u64)> {
        self.used().map(|(bucket, count)| (bounds(bucket), count))
    }

    /// Bytes on the heap, for memory limits.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(self.counts.as_slice()) + size_of_val(self.wraps.as_slice())
    }

    fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        let buckets = self.counts.iter().zip(usize::from(self.first)..);
        let full = buckets.map(|(&low, bucket)| (bucket, u64::from(low) | u64::from(self.wraps_of(bucket)) << 32));
        full.filter(|&(_, count)| count > 0)
    }

    fn wraps_of(&self, bucket: usize) -> u32 {
        self.wraps.iter().find(|wrap| usize::from(wrap.0) == bucket).map_or(0, |wrap| wrap.1)
    }

    /// Room for a new bucket, counts of a merge: the slow way.
    #[cold]
    fn add(&mut self, bucket: usize, count: u64) {
        self.cover(bucket);
        let low = &mut self.counts[bucket - usize::from(self.first)];
        let total = (u64::from(*low)).saturating_add(count);
        *low = total as u32;
        let carry = (total >> 32) as u32;
        if carry > 0 {
            self.carry(bucket, carry);
        }
    }

    #[cold]
    fn carry(&mut self, bucket: usize, times: u32) {
        match self.wraps.iter_mut().find(|wrap| usize::from(wrap.0) == bucket) {
            Some(wrap) => wrap.1 = wrap.1.saturating_add(times),
            None => self.wraps.push((bucket as u16, times)),
        }
    }

    /// Widens `counts` by whole blocks until it holds `bucket`. Exactly, as most histograms settle at once.
    fn cover(&mut self, bucket: usize) {
        let block = bucket / BLOCK * BLOCK;
        if self.counts.is_empty() {
            self.first = block as u16;
        }
        let first = usize::from(self.first);
        if block < first {
            let mut counts = vec![0; first - block + self.counts.len()];
            counts[first - block..].copy_from_slice(&self.counts);
            (self.counts, self.first) = (counts, block as u16);
        } else if let Some(more) = (block + BLOCK - first).checked_sub(self.counts.len()) {
            self.counts.reserve_exact(more);
            self.counts.resize(self.counts.len() + more, 0);
        }
    }
}

/// The digits of a float behind its first one.
const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// The digits of 2^(k/16) behind the first one, cut off: where, within a power of two, buckets end.
const ENDS: [u64; PARTS + 1] = [
    0,
    0x0_b558_6cf9_890f,
    0x1_72b8_3c7d_517a,
    0x2_387a_6e75_6238,
    0x3_06fe_0a31_b715,
    0x3_dea6_4c12_3422,
    0x4_bfda_d536_2a27,
    0x5_ab07_dd48_5429,
    0x6_a09e_667f_3bcc,
    0x7_a114_73eb_0186,
    0x8_ace5_422a_a0db,
    0x9_c491_82a3_f090,
    0xa_e89f_995a_d3ad,
    0xc_199b_dd85_529c,
    0xd_5818_dcfb_a487,
    0xe_a4af_a2a4_90d9,
    1 << MANTISSA_BITS,
];

/// Equal parts of a power of two that are narrower than any bucket: in none of them more than one bucket ends.
const LINEAR_BITS: u32 = 5;
const LINEAR_SHIFT: u32 = MANTISSA_BITS - LINEAR_BITS;
const PART_SHIFT: u32 = MANTISSA_BITS - PARTS.ilog2();

/// For each linear part what must be added to a float's bits so that they pass into the next sixteenth of their power of two
/// just where a bucket ends.
const SHIFTS: [u64; 1 << LINEAR_BITS] = {
    let mut shifts = [0; 1 << LINEAR_BITS];
    let (mut linear, mut part) = (0, 0);
    while linear < shifts.len() {
        let (start, end) = ((linear as u64) << LINEAR_SHIFT, (linear as u64 + 1) << LINEAR_SHIFT);
        let next = ENDS[part + 1];
        // An end is in the bucket that it ends, hence one less; so is the power of two itself, in that of the one below.
        if next < end {
            part += 1;
            shifts[linear] = ((part as u64) << PART_SHIFT).wrapping_sub(next + 1);
        } else {
            shifts[linear] = ((part as u64) << PART_SHIFT).wrapping_sub(if linear == 0 { 1 } else { start });
        }
        linear += 1;
    }
    shifts
};

/// Buckets: one for 0, one for 1, and 16 for each power of two behind it, up to 1025.
#[inline]
fn bucket(value: u64) -> usize {
    // Of long ones the digits that a float has.
    let cut = (u64::BITS - f64::MANTISSA_DIGITS).saturating_sub(value.leading_zeros());
    if value == 0 { 0 } else { bucket_of((value >> cut << cut) as f64) }
}

/// The same for a value of [`QUICK`]: half of the processors take long to find the highest bit of a whole number.
#[inline(always)]
fn quick_bucket(value: u64) -> usize {
    bucket_of(value as i64 as f64)
}

#[inline(always)]
fn bucket_of(value: f64) -> usize {
    const ONE: usize = 1.0_f64.to_bits() as usize >> PART_SHIFT;
    let bits = value.to_bits();
    let shift = SHIFTS[(bits >> LINEAR_SHIFT) as usize % SHIFTS.len()];
    ((bits.wrapping_add(shift) >> PART_SHIFT) as usize).wrapping_sub(ONE - 2)
}

/// The values of a bucket. Some have none, between small numbers: it is empty then.
fn bounds(bucket: usize) -> RangeInclusive<u64> {
    let above = |bucket: usize| bucket.checked_sub(1).map_or(0, greatest);
    if bucket == 0 { 0..=0 } else { above(bucket - 1) + 1..=above(bucket) }
}

/// The greatest value up to 2^(sixteenths/16).
fn greatest(sixteenths: usize) -> u64 {
    let (power, part) = ((sixteenths / PARTS) as u32, sixteenths % PARTS);
    let digits = ENDS[part] | 1 << MANTISSA_BITS;
    if power <= MANTISSA_BITS {
        digits >> (MANTISSA_BITS - power)
    } else {
        // Digits that a float does not have are not looked at.
        let more = power - MANTISSA_BITS;
        digits.checked_shl(more).filter(|_| power < u64::BITS).map_or(u64::MAX, |value| value | ((1 << more) - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QS: [f64; 9] = [0.0, 0.001, 0.07, 0.25, 0.5, 0.95, 0.99, 0.999, 1.0];

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    /// Against the sorted values, at every `q` of `QS`.
    fn check(values: &[u64]) {
        let histogram = of(values);
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        for q in QS {
            // Thousandths keep the rank exact.
            let rank = ((q * 1000.0).round() as usize * sorted.len()).div_ceil(1000).max(1);
            let (got, want) = (histogram.quantile(q), sorted[rank - 1]);
            let off = got.abs_diff(want) as f64;
            assert!(off <= want as f64 * Histogram::MAX_ERROR + 0.5, "q {q}: {got}, not {want}");
        }
        let exact = (histogram.count(), histogram.sum(), histogram.min(), histogram.max());
        assert_eq!(
            exact,
            (values.len() as u64, values.iter().map(|&v| u128::from(v)).sum(), sorted[0], sorted[sorted.len() - 1])
        );
        assert_eq!((histogram.quantile(0.0), histogram.quantile(1.0)), (histogram.min(), histogram.max()));
        let narrow =
            |range: &RangeInclusive<u64>| (range.end() - range.start()) as f64 <= *range.start() as f64 * 0.0443;
        assert!(histogram.buckets().all(|(range, _)| narrow(&range)));
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), histogram.count());
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
    fn buckets_meet_without_gap() {
        let mut next = 0;
        for index in 0..=bucket(u64::MAX) {
            let range = bounds(index);
            assert_eq!(*range.start(), next, "{index}");
            if range.is_empty() {
                continue; // no whole number is in it
            }
            assert_eq!((bucket(*range.start()), bucket(*range.end())), (index, index), "{range:?}");
            next = range.end().wrapping_add(1);
        }
        assert_eq!((next, bucket(u64::MAX)), (0, 1025));
        let alone = (0..=26).all(|value| bounds(bucket(value)) == (value..=value));
        assert!(alone && bounds(bucket(27)) == (27..=28));
    }

    /// An end is the last of its bucket, and 16 of them double it.
    #[test]
    fn buckets_end_at_powers_of_the_root() {
        for sixteenths in 0..=16 * 52 {
            let end = (sixteenths as f64 / 16.0).exp2();
            let exact = end.floor() as u64;
            let off = greatest(sixteenths).abs_diff(exact);
            // The last digits of powers are as good as the library.
            assert!(off as f64 <= end * 4.0 * f64::EPSILON, "{sixteenths}: {exact}");
        }
        for power in 0..64 {
            assert_eq!(bucket(1 << power), 16 * power + 1, "upper ends are in");
        }
    }

    #[test]
    fn the_quick_way_leads_to_the_same_bucket() {
        for bucket_there in 1..=bucket(*QUICK.end()) {
            for value in [*bounds(bucket_there).start(), *bounds(bucket_there).end()] {
                if QUICK.contains(&value) {
                    assert_eq!(quick_bucket(value), bucket(value), "{value}");
                }
            }
        }
        assert_eq!(quick_bucket(*QUICK.end()), bucket(*QUICK.end()));
    }

    #[test]
    fn values_beyond_the_quick_way() {
        for values in [&[u64::MAX][..], &[0], &[3, 15], &[15, 16, 17], &[1 << 53, 1 << 60, u64::MAX - 1]] {
            check(values);
            let mut merged = Histogram::new();
            merged.merge(&of(values));
            assert_eq!((merged.is_empty(), merged.min(), merged.max()), (false, values[0], values[values.len() - 1]));
        }
    }

    #[test]
    fn costs_little() {
        assert!(size_of::<Histogram>() <= 96);
        let mut histogram = Histogram::new();
        assert_eq!(histogram.heap_bytes(), 0);
        histogram.record(1_000_000_000);
        assert_eq!(histogram.heap_bytes(), 64);
        histogram.record(1_000);
        assert_eq!(histogram.heap_bytes(), 21 * 64);
        (0..64).for_each(|bit| histogram.record(1 << bit));
        assert!(histogram.heap_bytes() <= 4096);
    }

    #[test]
    fn empty_and_cleared() {
        let mut histogram = of(&[5, 5_000]);
        let heap = histogram.heap_bytes();
        histogram.clear();
        for histogram in [&histogram, &Histogram::new()] {
            assert!(histogram.is_empty());
            assert_eq!(
                (histogram.count(), histogram.sum(), histogram.min(), histogram.max(), histogram.mean()),
                (0, 0, 0, 0, 0)
            );
            assert_eq!((histogram.quantile(0.5), histogram.quantile(f64::NAN), histogram.buckets().count()), (0, 0, 0));
        }
        assert_eq!(histogram.heap_bytes(), heap);
        histogram.record(7);
        assert_eq!((histogram.min(), histogram.max(), histogram.mean(), histogram.quantile(0.5)), (7, 7, 7, 7));
    }

    #[test]
    fn counts_pass_32_bits() {
        let mut histogram = of(&[1, 1_000]);
        for _ in 0..40 {
            let copy = histogram.clone();
            histogram.merge(&copy);
        }
        histogram.record(1);
        assert_eq!(histogram.count(), (2 << 40) + 1);
        let counts: Vec<_> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [(1 << 40) + 1, 1 << 40]);
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.51)), (1, 991.max(histogram.quantile(0.51))));
        // By one, across the edge.
        let mut edge = of(&[3]);
        edge.add(bucket(3), u64::from(u32::MAX) - 1);
        edge.record(3);
        assert_eq!(edge.buckets().next(), Some((3..=3, 1 << 32)));
        let mut edge = of(&[30, 50]);
        edge.add(bucket(30), u64::from(u32::MAX) - 1);
        edge.record(30);
        assert_eq!((edge.count(), edge.buckets().next()), ((1 << 32) + 1, Some((30..=30, 1 << 32))));
        // Even lies saturate.
        for _ in 0..100 {
            let copy = histogram.clone();
            histogram.merge(&copy);
        }
        assert_eq!(histogram.count(), u64::MAX);
        assert!(histogram.quantile(0.9) <= 1_000);
    }

    proptest! {
        #[test]
        fn any_values_within_the_bound(values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0_u32..64).prop_map(move |s| v >> s)), 1..300)) {
            check(&values);
        }

        #[test]
        fn merge_equals_union(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(0_u64..100_000, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let union = of(&[a, b].concat());
            prop_assert_eq!(merged.buckets().collect::<Vec<_>>(), union.buckets().collect::<Vec<_>>());
            prop_assert_eq!((merged.count(), merged.sum(), merged.min(), merged.max()), (union.count(), union.sum(), union.min(), union.max()));
        }
    }
}
