//! How far back a loss of records reaches.

/// A window in which records of one CPU were lost: every pair that was open before `end_ns` and closes after `start_ns`
/// may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWindow {
    pub cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Records counted in a LOST record, side records among them.
    pub count: u64,
}

/// The end of the last loss. A period that began before it may have ended and begun anew unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LossHorizon {
    /// 0: nothing was lost.
    end_ns: u64,
}

impl LossHorizon {
    /// Records were lost up to `end_ns`. Losses may come in any order.
    pub fn lost_until(&mut self, end_ns: u64) {
        self.end_ns = self.end_ns.max(end_ns);
    }

    /// True if no record is missing from `since_ns` on.
    #[inline]
    pub fn saw_all_since(self, since_ns: u64) -> bool {
        since_ns >= self.end_ns
    }

    /// The later of `at_ns` and the end of the last loss: until then, an event of `at_ns` may have repeated unseen.
    pub fn latest(self, at_ns: u64) -> u64 {
        self.end_ns.max(at_ns)
    }

    pub fn any_loss(self) -> bool {
        self.end_ns > 0
    }

    /// When that began which no record tells of, though all since the horizon were seen.
    pub fn began_unseen(self) -> Began {
        if self.any_loss() { Began::BeforeLoss } else { Began::BeforeStart }
    }

    /// 0 without a loss.
    pub fn end_ns(self) -> u64 {
        self.end_ns
    }
}

/// What is known of the beginning of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Began {
    #[default]
    Exactly,
    /// Before the start of the run.
    BeforeStart,
    /// Before the end of a loss.
    BeforeLoss,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with the list of all losses.
        #[test]
        fn a_beginning_is_seen_when_it_is_behind_all_losses(
            ends in prop::collection::vec(1_u64..100, 0..8),
            since in 0_u64..120,
        ) {
            let mut horizon = LossHorizon::default();
            ends.iter().for_each(|end| horizon.lost_until(*end));
            prop_assert_eq!(horizon.any_loss(), !ends.is_empty());
            prop_assert_eq!(horizon.saw_all_since(since), ends.iter().all(|end| *end <= since));
            prop_assert_eq!(horizon.latest(since), ends.iter().copied().fold(since, u64::max));
            prop_assert_eq!(horizon.end_ns(), ends.iter().copied().max().unwrap_or(0));
        }
    }
}
