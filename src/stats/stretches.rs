//! Stretches of time that may overlap.

/// The total length of the stretches, from and until, without overlaps. Sorts them.
pub fn union_ns(stretches: &mut [(u64, u64)]) -> u64 {
    stretches.sort_unstable();
    let mut sum: u64 = 0;
    let mut covered = 0;
    for &(from, until) in &*stretches {
        sum = sum.saturating_add(until.saturating_sub(from.max(covered)));
        covered = covered.max(until);
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_moment_counts_once(mut stretches in prop::collection::vec((0_u64..200, 0_u64..200), 0..20)) {
            let moments = (0..200).filter(|at| stretches.iter().any(|(from, until)| from <= at && at < until)).count();
            prop_assert_eq!(union_ns(&mut stretches), moments as u64);
        }
    }
}
