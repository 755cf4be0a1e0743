//! The states that options ask for.

use crate::cli::WaitStateArgs;
use crate::sched::SchedState;

/// Whether the options ask for a state.
pub fn selects(args: WaitStateArgs, state: SchedState) -> bool {
    match state {
        SchedState::SLEEP if args.no_interruptible => false,
        _ if !args.names_any() => true,
        SchedState::SLEEP => args.interruptible,
        SchedState::DISK => args.uninterruptible,
        SchedState::RUN_DELAY => args.run_delay,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_wanted_and_what_is_not_is_left_out() {
        let wanted = |args: WaitStateArgs| {
            [SchedState::RUNNING, SchedState::SLEEP, SchedState::DISK, SchedState::RUN_DELAY]
                .map(|state| selects(args, state))
        };
        let none = WaitStateArgs::default();
        assert_eq!(wanted(none), [true; 4]);
        assert_eq!(wanted(WaitStateArgs { no_interruptible: true, ..none }), [true, false, true, true]);
        assert_eq!(wanted(WaitStateArgs { interruptible: true, ..none }), [false, true, false, false]);
        let waits = WaitStateArgs { no_interruptible: true, uninterruptible: true, run_delay: true, ..none };
        assert_eq!(wanted(waits), [false, false, true, true]);
        assert!(!none.leaves_out_any() && waits.leaves_out_any() && !waits.blocked_only());
    }
}
