//! Whether the amount that stays at a place grows.
//!
//! The minima of the last parts of the time decide. So memory that is allocated and freed within a part does not count;
//! nor, later in a run, the filling of a cache at its beginning.

use crate::profilers::kmemleak::flows::TREND_PARTS;

/// How the amount that stays at a place develops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// With few exceptions, each later part has a higher minimum.
    Growing,
    /// There are too few parts, or the later ones keep more without being in order.
    TooEarly,
    /// The later parts have no higher minima than the earlier ones.
    Plateau,
}

/// Least number of growing pairs of parts minus shrinking pairs that counts as growth. There are 28 pairs. Minima in
/// random order reach it at 7 of 1000 places. Minima of three rising levels have 21; minima of two levels 16 at most.
const GROWING_PAIRS: i32 = 20;
/// A plateau may be exceeded by 1 / `PLATEAU_SHARE`: the amount of a full cache varies a little.
const PLATEAU_SHARE: u64 = 32;

impl Trend {
    /// `least`: the minima of the parts, the oldest first.
    pub fn of(least: &[u64]) -> Trend {
        if least.len() < TREND_PARTS {
            return Trend::TooEarly;
        }
        let pairs =
            (1..least.len()).flat_map(|later| least[..later].iter().map(move |earlier| least[later].cmp(earlier)));
        if pairs.map(|order| order as i32).sum::<i32>() >= GROWING_PAIRS {
            return Trend::Growing;
        }
        let (earlier, later) = least.split_at(least.len() / 2);
        let [most_before, most] = [earlier, later].map(|parts| parts.iter().copied().max().unwrap_or(0));
        if most <= most_before.saturating_add(most_before / PLATEAU_SHARE) { Trend::Plateau } else { Trend::TooEarly }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_grows_or_does_not() {
        use Trend::{Growing, Plateau, TooEarly};
        let cases: [(&[u64], Trend); 17] = [
            (&[1, 2, 3, 4, 5, 6, 7, 8], Growing),
            (&[0, 0, 0, 0, 1, 2, 3, 4], Growing),
            (&[0, 0, 0, 0, 0, 1, 2, 3], TooEarly),
            // A slow leak next to a large constant amount.
            (&[90_000, 90_001, 90_002, 90_003, 90_004, 90_005, 90_006, 90_007], Growing),
            // Some parts are out of order.
            (&[10, 30, 20, 40, 50, 70, 60, 80], Growing),
            (&[10, 30, 20, 40, 70, 60, 50, 80], Growing),
            (&[30, 20, 10, 60, 50, 40, 80, 70], TooEarly),
            // One object at long intervals.
            (&[1, 1, 1, 2, 2, 2, 3, 3], Growing),
            (&[1, 1, 1, 1, 2, 2, 2, 2], TooEarly),
            // Caches: full, filled in the first half, varying a little.
            (&[7, 7, 7, 7, 7, 7, 7, 7], Plateau),
            (&[0, 5, 10, 10, 10, 10, 10, 10], Plateau),
            (&[1000, 990, 1010, 1000, 1020, 980, 1030, 1000], Plateau),
            (&[1000, 990, 1010, 1000, 1020, 980, 1060, 1000], TooEarly),
            (&[0, 0, 0, 0, 0, 0, 0, 0], Plateau),
            (&[8, 7, 6, 5, 4, 3, 2, 1], Plateau),
            (&[1, 2, 3, 4, 5, 6, 7], TooEarly),
            (&[], TooEarly),
        ];
        for (least, want) in cases {
            assert_eq!(Trend::of(least), want, "{least:?}");
        }
        assert_eq!(Trend::of(&[0, u64::MAX, 1, u64::MAX, 2, u64::MAX, 3, u64::MAX]), Plateau);
    }
}
