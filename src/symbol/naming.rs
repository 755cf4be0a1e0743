//! How much of the output thread's time names may take, and what it is at meanwhile, for those who wait for it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::symbol::files::UnnamedReason;
use crate::sys;

/// In place of a name that the time did not suffice for.
pub const GIVEN_UP: UnnamedReason = "names given up";

/// CPU time for names that are looked up anew, of a report: no file of others decides how long a report takes.
const MOST_NS: u64 = 500_000_000;
/// Of that for one file: a large one, or a hostile one, takes no names from the others.
const MOST_OF_ONE_NS: u64 = 400_000_000;
/// Occurrences come in batches all the time: their names have as much again after this.
const RENEWED_AFTER: Duration = Duration::from_secs(1);

/// What the output thread does now that may take long; and whether somebody wants it to end soon.
#[derive(Clone, Debug, Default)]
pub struct CurrentStep(Arc<StepState>);

#[derive(Debug, Default)]
struct StepState {
    /// The file whose names are looked for.
    file: Mutex<Option<Arc<str>>>,
    /// The process whose mappings are read, else 0.
    pid: AtomicI32,
    is_last_report: AtomicBool,
    is_in_hurry: AtomicBool,
}

impl CurrentStep {
    fn set_file(&self, file: Option<Arc<str>>) {
        *self.0.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Reads what a process has mapped, while `work` runs.
    pub fn in_process<T>(&self, pid: i32, work: impl FnOnce() -> T) -> T {
        self.0.pid.store(pid, Ordering::Relaxed);
        let result = work();
        self.0.pid.store(0, Ordering::Relaxed);
        result
    }

    /// It looks into a file, or at a process, of somebody else.
    pub fn is_any(&self) -> bool {
        self.0.pid.load(Ordering::Relaxed) != 0 || self.0.file.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// In words that follow "the output".
    pub fn describe(&self) -> Option<String> {
        if let Some(file) = &*self.0.file.lock().unwrap_or_else(PoisonError::into_inner) {
            return Some(format!("looks for names in {file}"));
        }
        let pid = self.0.pid.load(Ordering::Relaxed);
        (pid != 0).then(|| format!("reads what process {pid} has mapped"))
    }

    /// What comes now is the run's last report.
    pub fn set_last_report(&self) {
        self.0.is_last_report.store(true, Ordering::Relaxed);
    }

    /// The run has ended, and somebody waits: nothing new is looked for.
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

/// The time that names have.
#[derive(Debug)]
pub struct NamingTime {
    step: CurrentStep,
    left_ns: u64,
    renewed: Instant,
    had_last: bool,
    /// By file, since the last renewal.
    spent_ns: FxHashMap<Arc<str>, u64>,
    gave_up: bool,
    is_told: bool,
}

impl NamingTime {
    pub fn new(step: CurrentStep) -> NamingTime {
        NamingTime {
            step,
            left_ns: MOST_NS,
            renewed: Instant::now(),
            had_last: false,
            spent_ns: FxHashMap::default(),
            gave_up: false,
            is_told: false,
        }
    }

    /// A message is taken up: one of a report, or a batch of occurrences. The last report has time of its own, whatever
    /// came before it; nothing has more after that.
    pub fn start(&mut self, is_report: bool) {
        let is_last = self.step.0.is_last_report.load(Ordering::Relaxed);
        let is_time = if is_last { is_report && !self.had_last } else { self.renewed.elapsed() >= RENEWED_AFTER };
        if is_time {
            self.had_last = is_last;
            self.left_ns = MOST_NS;
            self.renewed = Instant::now();
            self.spent_ns.clear();
            self.is_told = false;
        }
    }

    /// A name is to be looked for in a file: since when, in CPU time, if there is time for that.
    pub fn begin(&mut self, path: &Arc<str>) -> Option<u64> {
        let spent_ns = self.spent_ns.get(path).copied().unwrap_or(0);
        if self.left_ns == 0 || spent_ns >= MOST_OF_ONE_NS || self.step.is_in_hurry() {
            self.gave_up = true;
            return None;
        }
        self.step.set_file(Some(path.clone()));
        Some(sys::thread_cpu_ns())
    }

    /// It was looked for since then.
    pub fn end(&mut self, path: &Arc<str>, start_ns: u64) {
        self.step.set_file(None);
        self.charge(path, sys::thread_cpu_ns().saturating_sub(start_ns));
    }

    pub(super) fn charge(&mut self, path: &Arc<str>, took_ns: u64) {
        let spent_ns = match self.spent_ns.get_mut(path) {
            Some(spent_ns) => spent_ns,
            None => self.spent_ns.entry(path.clone()).or_default(),
        };
        // A single look takes as long as it takes.
        self.left_ns = self.left_ns.saturating_sub(took_ns.min(MOST_OF_ONE_NS.saturating_sub(*spent_ns)));
        *spent_ns += took_ns;
    }

    #[cfg(test)]
    pub fn spend_all(&mut self) {
        self.left_ns = 0;
    }

    /// What is said of names that were given up, once a report at most.
    pub fn take_line(&mut self) -> Option<String> {
        let is_due = std::mem::take(&mut self.gave_up) && !std::mem::replace(&mut self.is_told, true);
        if !is_due {
            return None;
        }
        let most = self.spent_ns.iter().max_by_key(|(_, spent)| **spent);
        let most = most.map(|(file, _)| format!(", most of it on {file}")).unwrap_or_default();
        let spent_ms = self.spent_ns.values().sum::<u64>() / 1_000_000;
        let then = if self.had_last { "" } else { ", and looked for again in the next report" };
        Some(format!("names: {spent_ms} ms of CPU time were spent{most}; the others are shown as ({GIVEN_UP}){then}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::SymbolOptions;
    use crate::symbol::elf_file::in_memory;
    use crate::symbol::names::own_vdso;
    use crate::symbol::{Content, Frame, FrameNames, Module};

    /// Of a small file.
    fn frames_of_a_file() -> impl Fn(u64) -> Frame {
        let file = in_memory(&mut own_vdso().expect("every process has one").as_slice()).unwrap();
        let module = Arc::new(Module::new("/a", Content::File(file)));
        module.used_by(0);
        move |offset| Frame::User { addr: offset, behind_call: false, place: Ok((module.clone(), offset)) }
    }

    fn names(step: &CurrentStep) -> FrameNames {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        FrameNames::observed("/nonexistent", options, step.clone())
    }

    /// What is given up in one report is found in the next.
    #[test]
    fn names_take_their_time_and_no_more() {
        let (frame, step) = (frames_of_a_file(), CurrentStep::default());
        let mut names = names(&step);
        names.start(true);
        assert_ne!(names.frame(&frame(64)).symbol, Err(GIVEN_UP));
        names.spend_all();
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP));
        assert_ne!(names.frame(&frame(64)).symbol, Err(GIVEN_UP), "that was looked up before");
        let line = names.take_given_up().expect("it is said");
        assert!(line.contains("/a") && line.contains(" ms of CPU time"), "{line}");
        names.start(true);
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP), "a report just began");
        assert_eq!(names.take_given_up(), None, "once a report");
        step.set_last_report();
        names.start(false);
        assert_eq!(names.frame(&frame(128)).symbol, Err(GIVEN_UP), "the time is for the report itself");
        names.start(true);
        assert_ne!(names.frame(&frame(128)).symbol, Err(GIVEN_UP), "the last one has time of its own");
        names.spend_all();
        names.start(true);
        assert_eq!(names.frame(&frame(192)).symbol, Err(GIVEN_UP), "it is one report, of many messages");
        assert_eq!(names.coverage().count.total(), 3, "each place counts once");
        assert_eq!(step.describe(), None);
    }

    #[test]
    fn one_file_takes_no_names_from_others() {
        let mut time = NamingTime::new(CurrentStep::default());
        let (large, other): (Arc<str>, Arc<str>) = ("/large".into(), "/other".into());
        assert!(time.begin(&large).is_some());
        time.charge(&large, 10_000_000_000);
        assert_eq!(time.begin(&large), None);
        let start_ns = time.begin(&other).expect("there is time for this one");
        time.end(&other, start_ns);
        assert!(time.take_line().is_some_and(|line| line.contains("most of it on /large")));
        time.spend_all();
        assert_eq!(time.begin(&other), None);
    }

    #[test]
    fn nothing_is_looked_for_in_a_hurry() {
        let (frame, step) = (frames_of_a_file(), CurrentStep::default());
        let mut names = names(&step);
        step.set_hurry();
        names.start(true);
        assert_eq!(names.frame(&frame(64)).symbol, Err(GIVEN_UP));
    }
}
