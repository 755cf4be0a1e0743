//! How old the outstanding amount of a place is: a histogram of a few fixed ages.

use std::io::Write;

use crate::json::push_list;
use crate::report::Cell;

/// Number of ages that are told apart.
pub const AGES: usize = 6;
/// The age at which each but the last one ends, ns.
const ENDS_NS: [u64; AGES - 1] = [1_000_000_000, 10_000_000_000, 60_000_000_000, 600_000_000_000, 3_600_000_000_000];
const NAMES: [&str; AGES] = ["<1s", "1-10s", "10-60s", "1-10m", "10-60m", ">1h"];

/// Outstanding amounts by age, the youngest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgeAmounts(pub [u64; AGES]);

impl AgeAmounts {
    /// An amount of one age.
    pub fn of(age_ns: u64, amount: u64) -> AgeAmounts {
        let mut amounts = [0; AGES];
        amounts[ENDS_NS.partition_point(|end_ns| *end_ns <= age_ns)] = amount;
        AgeAmounts(amounts)
    }

    pub fn add(&mut self, other: AgeAmounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, amount)| *sum = sum.saturating_add(amount));
    }

    /// The share of each age: `12% <1s, 88% 1-10s`. Empty if all of it is of one age, which the oldest one tells.
    pub fn shares(&self) -> String {
        let total: u128 = self.0.iter().copied().map(u128::from).sum();
        let share = |(&amount, name): (&u64, &str)| match (u128::from(amount) * 200 + total) / (2 * total) {
            0 => format!("<1% {name}"),
            percent => format!("{percent}% {name}"),
        };
        let shares: Vec<String> = self.0.iter().zip(NAMES).filter(|(amount, _)| **amount > 0).map(share).collect();
        if shares.len() > 1 { shares.join(", ") } else { String::new() }
    }
}

impl Cell for AgeAmounts {
    fn text(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.shares().as_bytes());
    }

    fn json(&self, out: &mut Vec<u8>) {
        let ends = ENDS_NS.map(Some).into_iter().chain([None]);
        let used = self.0.iter().zip(ends).filter(|(amount, _)| **amount > 0);
        push_list(used, out, |(amount, end_ns), out| {
            let _ = match end_ns {
                Some(end_ns) => write!(out, "{{\"below_ns\":{end_ns},\"amount\":{amount}}}"),
                None => write!(out, "{{\"amount\":{amount}}}"),
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_by_age() {
        const S: u64 = 1_000_000_000;
        let mut ages = AgeAmounts::default();
        assert_eq!(ages.shares(), "");
        for (age_ns, amount) in [(0, 1), (S - 1, 2), (3600 * S, 4), (u64::MAX, 4)] {
            ages.add(AgeAmounts::of(age_ns, amount));
        }
        assert_eq!((ages.0, ages.shares().as_str()), ([3, 0, 0, 0, 0, 8], "27% <1s, 73% >1h"));
        for age_ns in [S, 10 * S, 60 * S, 600 * S] {
            ages.add(AgeAmounts::of(age_ns, 1));
            ages.add(AgeAmounts::of(age_ns, 1000));
        }
        assert_eq!(ages.shares(), "<1% <1s, 25% 1-10s, 25% 10-60s, 25% 1-10m, 25% 10-60m, <1% >1h");
        assert!("    age: ".len() + "99% ".len() + ages.shares().len() <= 80, "the longest that there is fits");
        let json = |ages: AgeAmounts| {
            let mut out = Vec::new();
            ages.json(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(json(AgeAmounts([5, 0, 0, 0, 0, 7])), r#"[{"below_ns":1000000000,"amount":5},{"amount":7}]"#);
        assert_eq!(json(AgeAmounts::default()), "[]");
        let mut most = AgeAmounts([u64::MAX; AGES]);
        most.add(most);
        assert!(most.shares().starts_with("17% <1s, "));
    }
}
