//! How long the end of a run waits for the output thread.
//!
//! A reader that takes its time has it, until the run is told to end a second time, and so has our own work: it is bounded
//! by what there is to say. A thread that computes, or hangs, in a file of somebody else's has not: whoever wrote the file
//! must not decide when we end.

use crate::output::sink::Waits;
use crate::output::under_way::UnderWay;
use crate::symbol::CurrentStep;
use crate::sys;
use crate::task::run_delay::RunDelay;

/// In files of others, in which the thread gets nowhere; and all that there is after a second Ctrl-C.
const MOST_NS: u64 = 2_000_000_000;
/// Then no more names are looked for, so that the results are written without.
const HURRY_NS: u64 = 1_000_000_000;
/// The same, where it gets on slowly.
const HURRY_IN_ALL_NS: u64 = 5_000_000_000;

#[derive(Debug)]
pub struct Patience {
    delay: RunDelay,
    looked_ns: u64,
    seen: Got,
    /// The thread's time in files of others since it last got on: not while it waited for its reader, or for a CPU.
    in_files_ns: u64,
    in_all_ns: u64,
    told_again_ns: u64,
}

/// How far the output thread has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Got {
    messages: u64,
    bytes: u64,
}

/// What is seen of the output thread.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    passed_ns: u64,
    /// Of that it waited for a CPU. Told when it has got one.
    delay_ns: u64,
    got: Got,
    /// It looks into a file, or at the mappings, of somebody else.
    in_files: bool,
    /// The reader has taken nothing for long.
    is_for_nobody: bool,
    /// How often the run was told to end.
    told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Wait,
    Hurry,
    GiveUp,
}

impl Patience {
    pub fn with(tid: i32) -> Patience {
        Patience {
            delay: RunDelay::of(tid),
            looked_ns: sys::monotonic_ns(),
            seen: Got::default(),
            in_files_ns: 0,
            in_all_ns: 0,
            told_again_ns: 0,
        }
    }

    /// Whether to go on waiting. `told`: how often the run was told to end.
    pub fn lasts(&mut self, told: usize, waits: &Waits, under_way: &UnderWay, step: &CurrentStep) -> bool {
        let now = sys::monotonic_ns();
        let look = Look {
            passed_ns: now.saturating_sub(std::mem::replace(&mut self.looked_ns, now)),
            delay_ns: self.delay.take(),
            got: Got { messages: under_way.taken(), bytes: waits.bytes() },
            in_files: step.is_any(),
            is_for_nobody: waits.for_nobody(),
            told,
        };
        let wish = self.judge(look);
        if wish == Wish::Hurry {
            step.set_hurry();
        }
        wish != Wish::GiveUp
    }

    fn judge(&mut self, look: Look) -> Wish {
        if look.in_files {
            let add = |sum: u64| (sum + look.passed_ns).saturating_sub(look.delay_ns);
            (self.in_files_ns, self.in_all_ns) = (add(self.in_files_ns), add(self.in_all_ns));
        }
        if look.got != self.seen {
            self.seen = look.got;
            self.in_files_ns = 0;
        }
        if look.told > 1 {
            self.told_again_ns += look.passed_ns;
        }
        match look.told {
            3.. => Wish::GiveUp,
            2 if look.is_for_nobody || self.told_again_ns >= MOST_NS => Wish::GiveUp,
            _ if self.in_files_ns >= MOST_NS => Wish::GiveUp,
            2 => Wish::Hurry,
            _ if self.in_files_ns >= HURRY_NS || self.in_all_ns >= HURRY_IN_ALL_NS => Wish::Hurry,
            _ => Wish::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_NS: u64 = 20_000_000;
    const HANGS: Look = Look {
        passed_ns: 0,
        delay_ns: 0,
        got: Got { messages: 0, bytes: 0 },
        in_files: true,
        is_for_nobody: false,
        told: 0,
    };

    /// Looks as often as given: what was wished last, and after how many ms it was another wish than to wait, and the end.
    fn wishes(mut look: impl FnMut(u64) -> Look) -> (Option<u64>, Option<u64>) {
        let mut patience = Patience::with(0);
        let (mut hurry, mut end) = (None, None);
        for n in 1..1000 {
            let ms = n * STEP_NS / 1_000_000;
            match patience.judge(Look { passed_ns: STEP_NS, ..look(ms) }) {
                Wish::Wait => {}
                Wish::Hurry => drop(hurry.get_or_insert(ms)),
                Wish::GiveUp => drop(end.get_or_insert(ms)),
            }
        }
        (hurry, end)
    }

    #[test]
    fn a_reader_has_the_time_that_it_takes() {
        let slow = Look { is_for_nobody: true, told: 1, ..Look::default() };
        assert_eq!(wishes(|_| slow), (None, None));
        assert_eq!(wishes(|ms| Look { told: if ms < 10_000 { 1 } else { 2 }, ..slow }).1, Some(10_000));
        // So has what we have to say.
        assert_eq!(wishes(|_| Look { told: 1, ..Look::default() }), (None, None));
        assert_eq!(wishes(|_| Look { told: 2, ..Look::default() }).1, Some(2000));
    }

    #[test]
    fn what_hangs_is_given_up_after_two_seconds() {
        for told in [0, 1] {
            assert_eq!(wishes(|_| Look { told, ..HANGS }), (Some(1000), Some(2000)));
        }
        // A second Ctrl-C is no reason to wait longer, and a third none to wait at all.
        let (hurry, end) = wishes(|ms| Look { told: if ms < 500 { 1 } else { 2 }, ..HANGS });
        assert_eq!((hurry, end), (Some(500), Some(2000)));
        assert_eq!(wishes(|_| Look { told: 3, ..HANGS }).1, Some(20));
    }

    #[test]
    fn who_gets_on_is_waited_for() {
        let gets_on = |ms: u64, told| Look { got: Got { messages: ms / 500, bytes: 0 }, told, ..HANGS };
        assert_eq!(wishes(|ms| gets_on(ms, 1)), (Some(5000), None), "in a hurry in the end");
        let writes = |ms: u64| Look { got: Got { messages: 0, bytes: ms }, ..Look::default() };
        assert_eq!(wishes(writes), (None, None));
        // All that there is after a second Ctrl-C, whoever takes it.
        assert_eq!(wishes(|ms| gets_on(ms, 2)).1, Some(2000));
        assert_eq!(wishes(|ms| Look { told: 2, ..writes(ms) }).1, Some(2000));
    }

    #[test]
    fn what_waits_for_a_cpu_does_not_hang() {
        // It has a tenth of a CPU, and the kernel says so once a second.
        let starved = |ms: u64| Look { delay_ns: if ms.is_multiple_of(1000) { 900_000_000 } else { 0 }, ..HANGS };
        let (_, end) = wishes(starved);
        assert!(end.is_none_or(|ms| ms > 10_000), "{end:?}");
    }
}
