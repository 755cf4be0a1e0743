//! What a task does once it is switched away from its CPU, by the bits of `prev_state`.

use crate::tep::{Format, drift};

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadDoing {
    #[default]
    Runs,
    /// Ready to run, without a CPU.
    Ready,
    Sleeps,
    /// Uninterruptible: state D.
    Blocks,
    /// Stopped, traced or in another state.
    Rests,
}

/// The bits of `prev_state`, by the print format of the switch: kernels differ.
#[derive(Clone, Copy, Debug)]
pub struct StateBits {
    pub sleep: u64,
    pub disk: u64,
    /// All that mean a task which is not ready to run.
    any: u64,
}

impl StateBits {
    /// None: the format of the switch does not tell the states.
    pub fn of(sched_switch: &Format) -> Option<StateBits> {
        let table = drift::task_states(sched_switch)?;
        let bit = |letter: &str| table.entries.iter().find(|(_, name)| name == letter).map_or(0, |(mask, _)| *mask);
        Some(StateBits { sleep: bit("S"), disk: bit("D"), any: table.masked(u64::MAX) })
    }

    /// Those of a made-up switch: 1 sleeps, 2 blocks, 4 rests.
    #[cfg(test)]
    pub fn made_up() -> StateBits {
        StateBits { sleep: 1, disk: 2, any: 7 }
    }

    /// What a task does that has left its CPU in this state.
    pub fn doing(self, prev_state: u64) -> ThreadDoing {
        match prev_state & self.any {
            0 => ThreadDoing::Ready,
            state if state & self.disk != 0 => ThreadDoing::Blocks,
            state if state & self.sleep != 0 => ThreadDoing::Sleeps,
            _ => ThreadDoing::Rests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::samples::SCHED_SWITCH_6_18;

    #[test]
    fn states_are_those_of_the_format() {
        let bits = StateBits::of(&Format::parse("sched", SCHED_SWITCH_6_18).unwrap()).unwrap();
        let doing = [0, 0x100, 1, 2, 0x82, 4, 0x10].map(|state| bits.doing(state));
        use ThreadDoing::{Blocks, Ready, Rests, Sleeps};
        assert_eq!(doing, [Ready, Ready, Sleeps, Blocks, Blocks, Rests, Rests]);
    }
}
