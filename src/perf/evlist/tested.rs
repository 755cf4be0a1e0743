//! Events whose samples must pass a test that is no kernel filter.

use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;

impl Evlist {
    /// Some event's samples must pass a test: see [`Evsel::tested`].
    #[inline]
    pub fn any_test(&self) -> bool {
        self.any_test
    }

    /// The events with samples that their test could not judge: name, number of samples, and why.
    pub fn not_judged(&self) -> Vec<(&str, u64, String)> {
        let of = |evsel: &'_ Evsel| evsel.test()?.not_judged();
        self.evsels.iter().filter_map(|evsel| of(evsel).map(|(count, why)| (evsel.name(), count, why))).collect()
    }
}
