//! The buckets of a distribution: which bucket a value is in, and where each bucket ends.

use std::ops::RangeInclusive;

/// Buckets per power of two. Twice as many would halve the error and double the memory.
pub(super) const PARTS: usize = 16;
/// One bucket for 0, one for 1, and [`PARTS`] up to each further power of two.
pub(super) const BUCKETS: usize = 2 + PARTS * u64::BITS as usize;
/// Values whose bucket is found quickly, since an `f64` holds all of their digits.
pub(super) const QUICK: RangeInclusive<u64> = 1..=(1 << f64::MANTISSA_DIGITS) - 1;

/// Binary digits of a float after its leading one.
const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// The mantissas of 2^(k/16), rounded down: where, within a power of two, buckets end.
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

/// A power of two is divided into 2^LINEAR_BITS equal parts, so narrow that at most one bucket ends in each.
const LINEAR_BITS: u32 = 5;
const LINEAR_SHIFT: u32 = MANTISSA_BITS - LINEAR_BITS;
const PART_SHIFT: u32 = MANTISSA_BITS - PARTS.ilog2();

/// For each linear part, a number that is added to the bits of a float: the sum reaches the next sixteenth of its power
/// of two exactly where a bucket ends.
const SHIFTS: [u64; 1 << LINEAR_BITS] = {
    let mut shifts = [0; 1 << LINEAR_BITS];
    let (mut linear, mut part) = (0, 0);
    while linear < shifts.len() {
        let (start, end) = ((linear as u64) << LINEAR_SHIFT, (linear as u64 + 1) << LINEAR_SHIFT);
        let next = ENDS[part + 1];
        // One less, since the upper end belongs to its bucket. Likewise a power of two, which ends the bucket below it.
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

#[inline]
pub(super) fn bucket(value: u64) -> usize {
    // Binary digits beyond those of a float are cut off: rounding up could pass the end of the bucket.
    let cut = (u64::BITS - f64::MANTISSA_DIGITS).saturating_sub(value.leading_zeros());
    if value == 0 { 0 } else { bucket_of((value >> cut << cut) as f64) }
}

/// A value of [`QUICK`], for [`biased_bucket`]. Its exponent is the position of the integer's highest bit, which is
/// slow to find directly on many processors.
#[inline(always)]
pub(super) fn quick_float(value: u64) -> f64 {
    value as i64 as f64
}

fn bucket_of(float: f64) -> usize {
    biased_bucket(float) - BIAS
}

/// The difference between the upper bits of a float and the number of its bucket.
pub(super) const BIAS: usize = (1.0_f64.to_bits() >> PART_SHIFT) as usize - 2;

/// The bucket of a float of at least 1, plus [`BIAS`].
#[inline(always)]
pub(super) fn biased_bucket(float: f64) -> usize {
    let bits = float.to_bits();
    let shift = SHIFTS[(bits >> LINEAR_SHIFT) as usize % SHIFTS.len()];
    (bits.wrapping_add(shift) >> PART_SHIFT) as usize
}

/// The integers of a bucket. Some buckets of small numbers contain none: their range is empty.
pub(super) fn bounds(bucket: usize) -> RangeInclusive<u64> {
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
        // Values are compared by as many binary digits as a float has.
        let more = power - MANTISSA_BITS;
        digits.checked_shl(more).filter(|_| power < u64::BITS).map_or(u64::MAX, |value| value | ((1 << more) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_without_gap() {
        let mut next = 0;
        for index in 0..=bucket(u64::MAX) {
            let range = bounds(index);
            assert_eq!(*range.start(), next, "{index}");
            if range.is_empty() {
                continue; // the bucket contains no integer
            }
            assert_eq!((bucket(*range.start()), bucket(*range.end())), (index, index), "{range:?}");
            next = range.end().wrapping_add(1);
        }
        assert_eq!((next, bucket(u64::MAX)), (0, BUCKETS - 1));
        let alone = (0..=26).all(|value| bounds(bucket(value)) == (value..=value));
        assert!(alone && bounds(bucket(27)) == (27..=28));
    }

    /// Buckets end at the powers of the 16th root of 2, inclusive.
    #[test]
    fn buckets_end_at_powers_of_the_root() {
        for sixteenths in 0..=16 * 52 {
            let end = (sixteenths as f64 / 16.0).exp2();
            let exact = end.floor() as u64;
            let off = greatest(sixteenths).abs_diff(exact);
            // `exp2` may be wrong in its last digits.
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
                    assert_eq!(bucket_of(quick_float(value)), bucket(value), "{value}");
                }
            }
        }
        assert_eq!(bucket_of(quick_float(*QUICK.end())), bucket(*QUICK.end()));
    }
}
