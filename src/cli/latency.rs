//! The options that choose latencies by their length.

use crate::cli::values::{self, Time};

/// Which latencies have lines of their own
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct LatencyArgs {
    /// Show those that take at least so long, in ns, or as 1.5ms
    #[arg(long, value_name = "TIME", value_parser = values::time_ns)]
    than: Option<Time>,
    /// As --than, and show tables only if there was such a one
    #[arg(long, value_name = "TIME", value_parser = values::time_ns, conflicts_with = "than")]
    only_than: Option<Time>,
    /// Show those that take less than this
    #[arg(long, value_name = "TIME", value_parser = values::time_ns)]
    lower: Option<Time>,
}

impl LatencyArgs {
    /// The limit of `--than` or `--only-than`, ns.
    pub fn than_ns(&self) -> Option<u64> {
        self.than.or(self.only_than).map(|time| time.0)
    }

    /// Tables are shown only if some latency reached the limit.
    pub fn only_than(&self) -> bool {
        self.only_than.is_some()
    }

    /// Whether a latency counts as over the limit.
    #[inline]
    pub fn is_over(&self, ns: u64) -> bool {
        self.than_ns().is_some_and(|than| ns >= than)
    }

    /// Whether a latency has a line of its own.
    #[inline]
    pub fn shows(&self, ns: u64) -> bool {
        self.is_over(ns) || self.lower.is_some_and(|lower| ns < lower.0)
    }

    /// Whether any latency may have a line of its own.
    pub fn shows_any(&self) -> bool {
        self.than.or(self.only_than).or(self.lower).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_by_what_is_equal() {
        let args = |than, only_than, lower| {
            let time = |ns: Option<u64>| ns.map(Time);
            LatencyArgs { than: time(than), only_than: time(only_than), lower: time(lower) }
        };
        let over = args(Some(5), None, None);
        assert_eq!([4, 5, 6].map(|ns| over.shows(ns)), [false, true, true]);
        let both = args(None, Some(5), Some(3));
        assert_eq!(
            [2, 3, 5].map(|ns| (both.shows(ns), both.is_over(ns))),
            [(true, false), (false, false), (true, true)]
        );
        assert!(both.only_than() && both.shows_any() && !over.only_than());
        assert!(!LatencyArgs::default().shows_any() && !LatencyArgs::default().shows(7));
    }
}
