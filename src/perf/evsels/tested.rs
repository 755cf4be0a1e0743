//! Events whose samples must pass a test that is no kernel filter.

use crate::perf::evsel::Evsel;
use crate::perf::evsels::Evsels;

impl Evsels {
    /// Some event of the view has samples that must pass a test: see [`Evsel::tested`].
    #[inline]
    pub fn tests_samples_of(&self, owner: usize) -> bool {
        self.tested_owners.contains(&owner)
    }

    /// The events with samples that their test could not judge: name, number of samples, and why.
    pub fn not_judged(&self) -> Vec<(&str, u64, String)> {
        let of = |evsel: &'_ Evsel| evsel.test()?.not_judged();
        self.list.iter().filter_map(|evsel| of(evsel).map(|(count, why)| (evsel.name(), count, why))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::perf::evsel::SampleTest;
    use crate::perf::{Attr, Evlist, Sample};

    #[derive(Debug)]
    struct NonePasses;

    impl SampleTest for NonePasses {
        fn passes(&self, _sample: &Sample<'_>) -> bool {
            false
        }

        fn text(&self) -> String {
            "0".to_owned()
        }

        fn not_judged(&self) -> Option<(u64, String)> {
            None
        }
    }

    #[test]
    fn a_test_concerns_the_view_of_its_event() {
        let mut evlist = Evlist::new();
        for (owner, is_tested) in [(0, false), (1, true), (1, false), (2, false)] {
            evlist.adding_for(owner);
            let test = is_tested.then(|| Arc::new(NonePasses) as Arc<dyn SampleTest>);
            evlist.add(Evsel::new("a:b".to_owned(), Attr::tracepoint(1)).tested(test)).unwrap();
        }
        assert_eq!([0, 1, 2].map(|owner| evlist.evsels.tests_samples_of(owner)), [false, true, false]);
    }
}
