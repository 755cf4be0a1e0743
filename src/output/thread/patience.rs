//! How long the end of a run waits for the output thread.
//!
//! A slow reader gets all the time that it takes, until the run is told to end a second time. So does the thread's own
//! work, which is bounded by the number of results. Time in files and mappings of others is limited: the author of a
//! file must not decide when perf-prof ends.

use crate::output::sink::SinkProgress;
use crate::output::thread::in_flight::InFlight;
use crate::outside;
use crate::symbol::CurrentStep;
use crate::sys;
use crate::task::run_delay::RunDelay;

/// Longest time in files of others without progress, and longest wait of any kind after a second Ctrl-C.
const MAX_NS: u64 = 2_000_000_000;
/// Time in files of others without progress after which the lookup of names stops: the results are written without
/// them.
const HURRY_NS: u64 = 1_000_000_000;
/// Time in files of others, with slow progress, after which the lookup of names stops.
const HURRY_IN_ALL_NS: u64 = 5_000_000_000;

#[derive(Debug)]
pub struct Patience {
    delay: RunDelay,
    /// [`outside::starved_ns`] at the last observation.
    starved_ns: u64,
    observed_ns: u64,
    seen: OutputProgress,
    /// Time that the thread has spent in files of others since its last progress, without waits for its reader or a
    /// CPU.
    in_files_ns: u64,
    in_files_total_ns: u64,
    second_stop_ns: u64,
}

/// Messages taken up and bytes written by the output thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OutputProgress {
    messages: u64,
    bytes: u64,
}

/// One observation of the output thread.
#[derive(Clone, Copy, Debug, Default)]
struct OutputObservation {
    passed_ns: u64,
    /// The part of it in which the thread, or a worker that it asked, waited for a CPU. The kernel adds that of the thread
    /// when the thread gets a CPU.
    delay_ns: u64,
    progress: OutputProgress,
    /// The thread reads a file or the mappings of others.
    in_files: bool,
    /// The reader has taken nothing for a long time.
    is_reader_stuck: bool,
    /// How often the run was told to end.
    stop_requests: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitDecision {
    Wait,
    Hurry,
    GiveUp,
}

impl Patience {
    pub fn with(tid: i32) -> Patience {
        Patience {
            delay: RunDelay::of(tid),
            starved_ns: outside::starved_ns(),
            observed_ns: sys::monotonic_ns(),
            seen: OutputProgress::default(),
            in_files_ns: 0,
            in_files_total_ns: 0,
            second_stop_ns: 0,
        }
    }

    /// Whether to go on waiting. `stop_requests`: how often the run was told to end.
    pub fn keeps_waiting(
        &mut self,
        stop_requests: usize,
        waits: &SinkProgress,
        in_flight: &InFlight,
        step: &CurrentStep,
    ) -> bool {
        let now = sys::monotonic_ns();
        let starved_ns = outside::starved_ns();
        let starved_before = std::mem::replace(&mut self.starved_ns, starved_ns);
        let passed_ns = now.saturating_sub(std::mem::replace(&mut self.observed_ns, now));
        // Several threads may have waited for workers at the same time.
        let starved_ns = starved_ns.saturating_sub(starved_before).min(passed_ns);
        let observed = OutputObservation {
            passed_ns,
            delay_ns: self.delay.take() + starved_ns,
            progress: OutputProgress { messages: in_flight.taken(), bytes: waits.bytes() },
            in_files: step.is_any(),
            is_reader_stuck: waits.is_reader_stuck(),
            stop_requests,
        };
        let decision = self.judge(observed);
        if decision == WaitDecision::Hurry {
            step.set_hurry();
        }
        decision != WaitDecision::GiveUp
    }

    fn judge(&mut self, observed: OutputObservation) -> WaitDecision {
        if observed.in_files {
            let add = |sum: u64| (sum + observed.passed_ns).saturating_sub(observed.delay_ns);
            (self.in_files_ns, self.in_files_total_ns) = (add(self.in_files_ns), add(self.in_files_total_ns));
        }
        if observed.progress != self.seen {
            self.seen = observed.progress;
            self.in_files_ns = 0;
        }
        if observed.stop_requests > 1 {
            self.second_stop_ns += observed.passed_ns;
        }
        match observed.stop_requests {
            3.. => WaitDecision::GiveUp,
            2 if observed.is_reader_stuck || self.second_stop_ns >= MAX_NS => WaitDecision::GiveUp,
            _ if self.in_files_ns >= MAX_NS => WaitDecision::GiveUp,
            2 => WaitDecision::Hurry,
            _ if self.in_files_ns >= HURRY_NS || self.in_files_total_ns >= HURRY_IN_ALL_NS => WaitDecision::Hurry,
            _ => WaitDecision::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_NS: u64 = 20_000_000;
    const HANGING: OutputObservation = OutputObservation {
        passed_ns: 0,
        delay_ns: 0,
        progress: OutputProgress { messages: 0, bytes: 0 },
        in_files: true,
        is_reader_stuck: false,
        stop_requests: 0,
    };

    /// Judges an observation every 20 ms. Returns after how many ms the decisions to hurry and to give up came first.
    fn decisions(mut observed: impl FnMut(u64) -> OutputObservation) -> (Option<u64>, Option<u64>) {
        let mut patience = Patience::with(0);
        let (mut hurry, mut end) = (None, None);
        for n in 1..1000 {
            let ms = n * STEP_NS / 1_000_000;
            match patience.judge(OutputObservation { passed_ns: STEP_NS, ..observed(ms) }) {
                WaitDecision::Wait => {}
                WaitDecision::Hurry => drop(hurry.get_or_insert(ms)),
                WaitDecision::GiveUp => drop(end.get_or_insert(ms)),
            }
        }
        (hurry, end)
    }

    #[test]
    fn a_slow_reader_is_waited_for() {
        let slow = OutputObservation { is_reader_stuck: true, stop_requests: 1, ..OutputObservation::default() };
        assert_eq!(decisions(|_| slow), (None, None));
        assert_eq!(
            decisions(|ms| OutputObservation { stop_requests: if ms < 10_000 { 1 } else { 2 }, ..slow }).1,
            Some(10_000)
        );
        // So is the thread's own work.
        assert_eq!(decisions(|_| OutputObservation { stop_requests: 1, ..OutputObservation::default() }), (None, None));
        assert_eq!(decisions(|_| OutputObservation { stop_requests: 2, ..OutputObservation::default() }).1, Some(2000));
    }

    #[test]
    fn a_hanging_thread_is_given_up_after_two_seconds() {
        for stop_requests in [0, 1] {
            assert_eq!(decisions(|_| OutputObservation { stop_requests, ..HANGING }), (Some(1000), Some(2000)));
        }
        // A second Ctrl-C is no reason to wait longer, and a third none to wait at all.
        let (hurry, end) = decisions(|ms| OutputObservation { stop_requests: if ms < 500 { 1 } else { 2 }, ..HANGING });
        assert_eq!((hurry, end), (Some(500), Some(2000)));
        assert_eq!(decisions(|_| OutputObservation { stop_requests: 3, ..HANGING }).1, Some(20));
    }

    #[test]
    fn a_thread_with_progress_is_waited_for() {
        let gets_on = |ms: u64, stop_requests| OutputObservation {
            progress: OutputProgress { messages: ms / 500, bytes: 0 },
            stop_requests,
            ..HANGING
        };
        assert_eq!(decisions(|ms| gets_on(ms, 1)), (Some(5000), None), "in a hurry in the end");
        let writes = |ms: u64| OutputObservation {
            progress: OutputProgress { messages: 0, bytes: ms },
            ..OutputObservation::default()
        };
        assert_eq!(decisions(writes), (None, None));
        // After a second Ctrl-C there are two seconds, progress or not.
        assert_eq!(decisions(|ms| gets_on(ms, 2)).1, Some(2000));
        assert_eq!(decisions(|ms| OutputObservation { stop_requests: 2, ..writes(ms) }).1, Some(2000));
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_does_not_hang() {
        // It has a tenth of a CPU, and the kernel says so once a second.
        let starved =
            |ms: u64| OutputObservation { delay_ns: if ms.is_multiple_of(1000) { 900_000_000 } else { 0 }, ..HANGING };
        let (_, end) = decisions(starved);
        assert!(end.is_none_or(|ms| ms > 10_000), "{end:?}");
    }
}
