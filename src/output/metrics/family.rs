//! The content of a scrape as plain, immutable data: families of points, encoded on demand.

use std::sync::Arc;

use crate::stats::Distribution;

/// The whole content of a scrape.
#[derive(Debug, Default)]
pub struct MetricsSnapshot {
    pub families: Vec<MetricFamily>,
}

/// Points of one name, whose labels tell them apart.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// The name without the suffix of its kind (`_total`).
    pub name: Arc<str>,
    pub kind: FamilyKind,
    pub unit: MetricUnit,
    pub help: Arc<str>,
    pub points: Vec<MetricPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A number that only grows.
    Counter,
    Gauge,
    Histogram,
}

/// The unit in which values are stored, and the unit in which they are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Number of objects.
    None,
    Bytes,
    Hertz,
    /// Stored in ns, exported in seconds.
    Seconds,
    /// Stored and exported in ns.
    Nanoseconds,
    Ratio,
}

impl MetricUnit {
    /// The suffix of names, which is also the word in `# UNIT`.
    pub fn word(self) -> Option<&'static str> {
        match self {
            MetricUnit::None => None,
            MetricUnit::Bytes => Some("bytes"),
            MetricUnit::Hertz => Some("hertz"),
            MetricUnit::Seconds => Some("seconds"),
            MetricUnit::Nanoseconds => Some("nanoseconds"),
            MetricUnit::Ratio => Some("ratio"),
        }
    }
}

pub type LabelSet = Arc<[(Arc<str>, Arc<str>)]>;

#[derive(Clone, Debug)]
pub struct MetricPoint {
    /// The labels, sorted by name.
    pub labels: LabelSet,
    pub value: MetricValue,
}

#[derive(Clone, Debug)]
pub enum MetricValue {
    /// A number in the unit in which the family is stored.
    Number(u64),
    Fraction(f64),
    Distribution(Arc<Distribution>),
}

impl MetricFamily {
    pub fn new(name: &str, kind: FamilyKind, unit: MetricUnit, help: &str) -> MetricFamily {
        MetricFamily { name: name.into(), kind, unit, help: help.into(), points: Vec::new() }
    }

    /// Adds a point.
    #[must_use]
    pub fn with(mut self, labels: LabelSet, value: MetricValue) -> MetricFamily {
        self.points.push(MetricPoint { labels, value });
        self
    }

    /// The bounds of the classic buckets, as powers of two in the stored unit. Buckets of distributions end at powers
    /// of two, too, so the counts are exact.
    pub fn powers(&self) -> impl Iterator<Item = u32> + use<> {
        let (first, last) = match self.unit {
            MetricUnit::Seconds | MetricUnit::Nanoseconds => (10, 36), // 1 us to 69 s
            MetricUnit::Bytes => (6, 36),
            MetricUnit::None | MetricUnit::Hertz | MetricUnit::Ratio => (0, 26),
        };
        (first..=last).step_by(2)
    }
}

impl MetricValue {
    /// The number as exported in `unit`.
    pub fn as_f64(&self, unit: MetricUnit) -> f64 {
        match self {
            MetricValue::Number(number) => told(u128::from(*number), unit),
            MetricValue::Fraction(number) => *number,
            MetricValue::Distribution(values) => told(values.sum(), unit),
        }
    }
}

/// The exported form of a number that is stored in `unit`.
pub fn told(number: u128, unit: MetricUnit) -> f64 {
    const NS_PER_S: f64 = 1e9;
    // Both are exact up to 2^53, so the quotient is the number nearest to the true one.
    if unit == MetricUnit::Seconds { number as f64 / NS_PER_S } else { number as f64 }
}

/// For each of `powers`, the number of values up to 2 to that power.
pub fn counts_up_to(values: &Distribution, powers: impl Iterator<Item = u32>) -> Vec<(u32, u64)> {
    const PARTS: i32 = 16;
    let mut buckets = values.scale_4().peekable();
    let mut below = values.zeros();
    let count = |power: u32| {
        // Bucket `i` ends at 2^(i/16).
        while let Some((_, count)) = buckets.next_if(|(bucket, _)| *bucket <= power as i32 * PARTS) {
            below = below.saturating_add(count);
        }
        (power, below)
    };
    powers.map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the values themselves, including values at and next to the bounds.
    #[test]
    fn classic_buckets_are_exact() {
        let mut values: Vec<u64> = vec![0, 0, 1, 3, u64::MAX];
        for power in 0..60 {
            values.extend([(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        }
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        for (power, count) in counts_up_to(&distribution, 0..=40) {
            let want = values.iter().filter(|value| **value <= 1 << power).count();
            assert_eq!(count, want as u64, "2^{power}");
        }
        assert_eq!(counts_up_to(&Distribution::new(), 3..5), [(3, 0), (4, 0)]);
    }

    #[test]
    fn seconds_are_as_near_as_can_be() {
        for ns in [1, 999, 1_024, 123_456_789, 1_000_000_001, (1 << 53) - 1] {
            let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            assert_eq!(MetricValue::Number(ns).as_f64(MetricUnit::Seconds), text.parse::<f64>().unwrap());
        }
        assert_eq!(MetricValue::Number(7).as_f64(MetricUnit::Bytes), 7.0);
    }
}
