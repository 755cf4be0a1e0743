//! Halves of callchains, as the user of each view wants them.

use anyhow::{Result, bail};

use crate::perf::attr::Attr;
use crate::perf::evsel::{ChainUse, Evsel};
use crate::perf::evsels::Evsels;

/// Which halves of callchains the user wants. None: as the event has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainHalves {
    /// The frames of programs.
    pub user: Option<bool>,
    /// The frames of the kernel.
    pub kernel: Option<bool>,
}

impl ChainHalves {
    /// Leaving out one half means that the other one is wanted.
    fn settled(self) -> ChainHalves {
        let without = |half| (half == Some(false)).then_some(true);
        ChainHalves { user: self.user.or(without(self.kernel)), kernel: self.kernel.or(without(self.user)) }
    }
}

impl Evsels {
    /// Limits the shown callchains to the halves that their view wants. To be called before windows of stacks are
    /// added. Returns the views that have no callchains.
    ///
    /// # Errors
    /// Nothing would be left of a callchain.
    pub fn halve_callchains(&mut self, views: &[ChainHalves]) -> Result<Vec<usize>> {
        let mut without = Vec::new();
        for (owner, halves) in views.iter().enumerate().filter(|(_, halves)| **halves != ChainHalves::default()) {
            let shown = |evsel: &&mut Evsel| evsel.owner == owner && evsel.chain_use == ChainUse::Shown;
            let mut events = self.list.iter_mut().filter(shown).filter(|evsel| evsel.has_callchain()).peekable();
            if events.peek().is_none() {
                without.push(owner);
            }
            for evsel in events {
                evsel.attr = evsel.attr.clone().chain_halves(halves.settled());
                if evsel.attr.has_no_chain_half() {
                    bail!(
                        "{} is sampled in programs alone: --no-user-callchain leaves nothing of its stacks",
                        evsel.name
                    );
                }
            }
        }
        Ok(without)
    }
}

impl Attr {
    /// Callchains with these halves. An event that does not count in the kernel has no kernel frames.
    fn chain_halves(mut self, halves: ChainHalves) -> Attr {
        if let Some(user) = halves.user {
            self.exclude_user_frames(!user);
        }
        if let Some(kernel) = halves.kernel.filter(|kernel| !kernel || self.sees_kernel()) {
            self.exclude_kernel_frames(!kernel);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Evlist;
    use crate::perf::attr::{Exclude, Sampling};

    fn halves(user: Option<bool>, kernel: Option<bool>) -> ChainHalves {
        ChainHalves { user, kernel }
    }

    /// The halves that an event of `attr` has in the end: user, kernel.
    fn left(attr: Attr, wanted: ChainHalves) -> Option<[bool; 2]> {
        let mut evlist = Evlist::new();
        evlist.add(Evsel::new("x", attr).callchain(0)).unwrap();
        evlist.evsels.halve_callchains(&[wanted]).ok()?;
        let raw = evlist.evsels[0].attr.raw();
        Some([raw.exclude_callchain_user() == 0, raw.exclude_callchain_kernel() == 0])
    }

    #[test]
    fn halves_are_taken_and_left() {
        let both = || Attr::tracepoint(1);
        let kernel = || both().kernel_callchain();
        assert_eq!(left(both(), halves(None, None)), Some([true, true]));
        assert_eq!(left(both(), halves(Some(false), None)), Some([false, true]));
        assert_eq!(left(both(), halves(None, Some(false))), Some([true, false]));
        assert_eq!(left(kernel(), halves(None, None)), Some([false, true]));
        assert_eq!(left(kernel(), halves(Some(true), None)), Some([true, true]));
        assert_eq!(left(kernel(), halves(None, Some(false))), Some([true, false]), "not nothing");
        let programs = || Attr::cycles(Sampling::Frequency(99)).exclude(Exclude { kernel: true, ..Exclude::default() });
        assert_eq!(left(programs().user_callchain(), halves(None, Some(true))), Some([true, false]));
        assert_eq!(left(programs().user_callchain(), halves(Some(false), None)), None);
    }

    #[test]
    fn views_without_callchains_are_told() {
        let mut evlist = Evlist::new();
        evlist.add(Evsel::new("x", Attr::tracepoint(1))).unwrap();
        evlist.add(Evsel::new("y", Attr::tracepoint(2)).kernel_place(3)).unwrap();
        assert_eq!(evlist.evsels.halve_callchains(&[halves(Some(false), None)]).unwrap(), [0]);
        assert_eq!(evlist.evsels.halve_callchains(&[ChainHalves::default()]).unwrap(), [0; 0]);
    }
}
