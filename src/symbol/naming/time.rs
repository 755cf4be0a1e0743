//! Bounds the time that the output thread spends on names, and tells waiting threads what it is reading.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::outside;
use crate::symbol::unnamed::GIVEN_UP;
use crate::sys;

/// CPU time per report for names that are looked up, ns: other users' files must not decide how long a report takes.
const MAX_REPORT_NS: u64 = 500_000_000;
/// CPU time of a report for one file, ns: a large or hostile file must not use up the time of other files.
const MAX_FILE_NS: u64 = 400_000_000;
/// Most CPU time of workers that one look-up takes from a report's time, ns. An index of a large file takes longer, but
/// without it the file has no names.
const MAX_WORKER_NS: u64 = 100_000_000;
/// CPU time for names that a run may spend at once, ns. Beyond it, the run may spend a fixed share of its duration: a
/// program that never runs at the same address twice would need names all the time.
const AT_ONCE_NS: u64 = 2_000_000_000;
const RUN_SHARE: u64 = 8;
/// CPU time for the names of occurrences that wait when the run ends, if the run has spent its time, ns: the user waits
/// for their last line.
const AT_END_NS: u64 = 50_000_000;
/// After a look-up that took longer, CPU time is measured. Elapsed time is cheaper to read, and never less than CPU
/// time.
const SHORT: Duration = Duration::from_micros(50);
/// After this, the names of occurrences have the full time again: they arrive in batches all the time.
const RENEW_AFTER: Duration = Duration::from_secs(1);

/// What the output thread is doing that may take long, and whether it should end soon.
#[derive(Clone, Debug, Default)]
pub struct CurrentStep(Arc<StepState>);

#[derive(Debug, Default)]
struct StepState {
    /// The file in which names are looked up.
    file: Mutex<Option<Arc<str>>>,
    /// The process whose mappings are read, or 0.
    pid: AtomicI32,
    is_last_report: AtomicBool,
    is_in_hurry: AtomicBool,
}

impl CurrentStep {
    fn set_file(&self, file: Option<Arc<str>>) {
        *self.0.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Runs `work`, which reads the mappings of a process.
    pub fn in_process<T>(&self, pid: i32, work: impl FnOnce() -> T) -> T {
        self.0.pid.store(pid, Ordering::Relaxed);
        let result = work();
        self.0.pid.store(0, Ordering::Relaxed);
        result
    }

    /// True while the thread reads a file, or the mappings of a process.
    pub fn is_any(&self) -> bool {
        self.0.pid.load(Ordering::Relaxed) != 0 || self.0.file.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The step in words, which follow "the output".
    pub fn describe(&self) -> Option<String> {
        if let Some(file) = &*self.0.file.lock().unwrap_or_else(PoisonError::into_inner) {
            return Some(format!("looks for names in {file}"));
        }
        let pid = self.0.pid.load(Ordering::Relaxed);
        (pid != 0).then(|| format!("reads what process {pid} has mapped"))
    }

    /// The last report of the run begins.
    pub fn set_last_report(&self) {
        self.0.is_last_report.store(true, Ordering::Relaxed);
    }

    /// The run has ended, and the user waits: no more names are looked up.
    pub fn set_hurry(&self) {
        self.0.is_in_hurry.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn end_hurry(&self) {
        self.0.is_in_hurry.store(false, Ordering::Relaxed);
    }

    pub fn is_in_hurry(&self) -> bool {
        self.0.is_in_hurry.load(Ordering::Relaxed)
    }
}

/// When a look-up began.
#[derive(Clone, Copy, Debug)]
pub enum LookUpStart {
    CpuNs(u64),
    Time(Instant),
}

/// The CPU time left for names.
#[derive(Debug)]
pub struct NamingTime {
    step: CurrentStep,
    left_ns: u64,
    began: Instant,
    /// CPU time of the whole run so far.
    spent_of_run_ns: u64,
    renewed_at: Instant,
    had_last_report: bool,
    /// CPU time spent per file since the last renewal.
    spent_ns: FxHashMap<Arc<str>, u64>,
    /// The last look-up took long, or there was none.
    was_long: bool,
    /// CPU time of workers when the look-up began.
    workers_before_ns: u64,
    /// Some names were given up since the last message.
    gave_up: bool,
    is_reported: bool,
}

impl NamingTime {
    pub fn new(step: CurrentStep) -> NamingTime {
        NamingTime {
            step,
            left_ns: MAX_REPORT_NS,
            began: Instant::now(),
            spent_of_run_ns: 0,
            renewed_at: Instant::now(),
            had_last_report: false,
            spent_ns: FxHashMap::default(),
            was_long: true,
            workers_before_ns: 0,
            gave_up: false,
            is_reported: false,
        }
    }

    /// Starts a message: of a report, or of a batch of occurrences. The last report always has the full time; messages
    /// after it get no new time, and occurrences before it have what the run has left.
    pub fn start(&mut self, is_report: bool) {
        let is_last = self.step.0.is_last_report.load(Ordering::Relaxed);
        let is_time =
            if is_last { is_report && !self.had_last_report } else { self.renewed_at.elapsed() >= RENEW_AFTER };
        if is_time {
            self.had_last_report = is_last;
            let of_run = if is_last { u64::MAX } else { self.left_of_run_ns(self.began.elapsed()) };
            self.left_ns = MAX_REPORT_NS.min(of_run);
            self.renewed_at = Instant::now();
            self.spent_ns.clear();
            self.is_reported = false;
        } else if is_last && !self.had_last_report {
            self.left_ns = self.left_ns.min(AT_ONCE_NS.saturating_sub(self.spent_of_run_ns).max(AT_END_NS));
        }
    }

    /// CPU time that the run may still spend when `elapsed` has passed since its start.
    fn left_of_run_ns(&self, elapsed: Duration) -> u64 {
        let share = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) / RUN_SHARE;
        AT_ONCE_NS.saturating_add(share).saturating_sub(self.spent_of_run_ns)
    }

    /// No name is looked up any more until the next report.
    pub fn is_over(&self) -> bool {
        self.left_ns == 0 || self.step.is_in_hurry()
    }

    /// Starts a look-up in a file. None when no time is left.
    pub fn begin(&mut self, path: &Arc<str>) -> Option<LookUpStart> {
        if self.is_over() || self.spent_ns.get(path).is_some_and(|spent_ns| *spent_ns >= MAX_FILE_NS) {
            self.gave_up = true;
            return None;
        }
        self.step.set_file(Some(path.clone()));
        self.workers_before_ns = outside::asked_cpu_ns();
        Some(if self.was_long { LookUpStart::CpuNs(sys::thread_cpu_ns()) } else { LookUpStart::Time(Instant::now()) })
    }

    /// Ends the look-up that began at `start`.
    pub fn end(&mut self, path: &Arc<str>, start: LookUpStart) {
        self.step.set_file(None);
        let took = match start {
            LookUpStart::CpuNs(start_ns) => Duration::from_nanos(sys::thread_cpu_ns().saturating_sub(start_ns)),
            LookUpStart::Time(start) => start.elapsed(),
        };
        // A thread that was kept from the CPU has not spent its time, so elapsed time counts only up to SHORT. If
        // look-ups are long, the CPU time of the next one is measured.
        let is_exact = matches!(start, LookUpStart::CpuNs(_));
        self.was_long = took > SHORT;
        let took = if is_exact { took } else { took.min(SHORT) };
        self.charge(path, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let of_workers_ns = outside::asked_cpu_ns().saturating_sub(self.workers_before_ns);
        self.left_ns = self.left_ns.saturating_sub(of_workers_ns.min(MAX_WORKER_NS));
        self.spent_of_run_ns += of_workers_ns;
    }

    /// No name is looked up any more in a file until the next report.
    pub fn give_up(&mut self, path: &Arc<str>) {
        self.spent_ns.insert(path.clone(), MAX_FILE_NS);
        self.gave_up = true;
    }

    pub(super) fn charge(&mut self, path: &Arc<str>, took_ns: u64) {
        let spent_ns = match self.spent_ns.get_mut(path) {
            Some(spent_ns) => spent_ns,
            None => self.spent_ns.entry(path.clone()).or_default(),
        };
        // A single look-up cannot be interrupted, so a file may exceed its share; other files do not pay for that.
        self.left_ns = self.left_ns.saturating_sub(took_ns.min(MAX_FILE_NS.saturating_sub(*spent_ns)));
        *spent_ns += took_ns;
        self.spent_of_run_ns += took_ns;
    }

    #[cfg(test)]
    pub fn spend_all(&mut self) {
        self.left_ns = 0;
    }

    /// The message on names that were given up, at most once per report.
    pub fn take_message(&mut self) -> Option<String> {
        let is_due = std::mem::take(&mut self.gave_up) && !std::mem::replace(&mut self.is_reported, true);
        if !is_due {
            return None;
        }
        let most = self.spent_ns.iter().max_by_key(|(_, spent)| **spent);
        let most = most.map(|(file, _)| format!(", most of it on {file}")).unwrap_or_default();
        let spent_ms = self.spent_ns.values().sum::<u64>() / 1_000_000;
        let then = if self.had_last_report { "" } else { ", and looked for again in the next report" };
        Some(format!("names: {spent_ms} ms of CPU time were spent{most}; the others are shown as ({GIVEN_UP}){then}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::file::in_memory;
    use crate::symbol::elf::symbols::SymbolOptions;
    use crate::symbol::elf::vdso::own_vdso;
    use crate::symbol::{Content, Frame, FrameNames, Module};

    /// Frames in a small file, by offset.
    fn frames_of_a_file() -> impl Fn(u64) -> Frame {
        let file = in_memory(&mut own_vdso().expect("every process has one").as_slice()).unwrap();
        let module = Arc::new(Module::new("/a", Content::File(file)));
        module.used_by(0);
        move |offset| Frame::User {
            addr: offset,
            behind_call: false,
            guessed: false,
            place: Ok((module.clone(), offset)),
        }
    }

    fn names(step: &CurrentStep) -> FrameNames {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        FrameNames::observed("/nonexistent", options, step.clone())
    }

    /// Names given up in one report are found in the next.
    #[test]
    fn names_take_their_time_and_no_more() {
        let (frame, step) = (frames_of_a_file(), CurrentStep::default());
        let mut names = names(&step);
        names.start(true);
        assert_ne!(names.frame(&frame(64)).symbol, Err(GIVEN_UP.into()));
        names.spend_all();
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP.into()));
        assert_ne!(names.frame(&frame(64)).symbol, Err(GIVEN_UP.into()), "that was looked up before");
        let line = names.take_given_up().expect("it is said");
        assert!(line.contains("/a") && line.contains(" ms of CPU time"), "{line}");
        names.start(true);
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP.into()), "a report just began");
        assert_eq!(names.take_given_up(), None, "once a report");
        step.set_last_report();
        names.start(false);
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP.into()), "the time is for the report itself");
        names.start(true);
        assert_ne!(names.frame(&frame(128)).symbol, Err(GIVEN_UP.into()), "the last one has time of its own");
        names.spend_all();
        names.start(true);
        assert_eq!(names.frame(&frame(192)).symbol, Err(GIVEN_UP.into()), "it is one report, of many messages");
        assert_eq!(names.coverage().count.total(), 3, "each place counts once");
        assert_eq!(step.describe(), None);
    }

    #[test]
    fn one_file_takes_no_names_from_others() {
        let mut time = NamingTime::new(CurrentStep::default());
        let (large, other): (Arc<str>, Arc<str>) = ("/large".into(), "/other".into());
        assert!(time.begin(&large).is_some());
        time.charge(&large, 10_000_000_000);
        assert!(time.begin(&large).is_none());
        let start_ns = time.begin(&other).expect("there is time for this one");
        time.end(&other, start_ns);
        assert!(time.take_message().is_some_and(|line| line.contains("most of it on /large")));
        time.spend_all();
        assert!(time.begin(&other).is_none());
    }

    #[test]
    fn a_run_does_not_look_for_names_all_the_time() {
        const S: u64 = 1_000_000_000;
        let step = CurrentStep::default();
        let mut time = NamingTime::new(step.clone());
        let left = |time: &NamingTime, seconds| time.left_of_run_ns(Duration::from_secs(seconds));
        assert_eq!((left(&time, 0), left(&time, 80)), (2 * S, 12 * S));
        // Four files take the full time of one report each.
        for file in ["/a", "/b", "/c", "/d"] {
            time.charge(&file.into(), MAX_REPORT_NS);
        }
        assert_eq!((left(&time, 0), left(&time, 8)), (0, S));
        time.began = Instant::now();
        time.renewed_at = time.renewed_at.checked_sub(RENEW_AFTER).expect("the machine has run for a second");
        time.start(true);
        assert!(time.left_ns < MAX_REPORT_NS, "{}", time.left_ns);
        step.set_last_report();
        time.start(true);
        assert_eq!(time.left_ns, MAX_REPORT_NS, "the last report has time of its own");
    }

    /// If names have taken much time before, Ctrl-C is not followed by as much time for names.
    #[test]
    fn what_waits_at_the_end_gets_few_names() {
        let step = CurrentStep::default();
        let left_at_end = |spent_ns: u64| {
            let mut time = NamingTime::new(step.clone());
            for (file, share) in ["/a", "/b", "/c", "/d", "/e"].into_iter().zip(1..) {
                time.charge(&file.into(), spent_ns / 5);
                time.left_ns = MAX_REPORT_NS; // each in a report of its own
                assert_eq!(time.spent_of_run_ns, spent_ns / 5 * share);
            }
            step.set_last_report();
            time.start(false);
            time.left_ns
        };
        assert_eq!(left_at_end(0), MAX_REPORT_NS, "a short run");
        assert_eq!(left_at_end(1_800_000_000), 200_000_000);
        assert_eq!(left_at_end(5_000_000_000), AT_END_NS);
    }

    #[test]
    fn a_long_look_up_is_followed_by_one_that_is_measured() {
        let mut time = NamingTime::new(CurrentStep::default());
        let file: Arc<str> = "/a".into();
        assert!(matches!(time.begin(&file), Some(LookUpStart::CpuNs(_))));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).expect("the machine has run for a second");
        time.end(&file, LookUpStart::Time(long_ago));
        assert!(time.spent_of_run_ns <= SHORT.as_nanos() as u64, "the thread may have waited");
        assert!(matches!(time.begin(&file), Some(LookUpStart::CpuNs(_))));
    }

    #[test]
    fn nothing_is_looked_for_in_a_hurry() {
        let (frame, step) = (frames_of_a_file(), CurrentStep::default());
        let mut names = names(&step);
        step.set_hurry();
        names.start(true);
        assert_eq!(names.frame(&frame(64)).symbol, Err(GIVEN_UP.into()));
    }
}
