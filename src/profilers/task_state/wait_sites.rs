//! Where tasks wait whose waits go on. /proc is asked once per wait, since a waiting task stays where it is.
//!
//! An answer counts only if the wait still goes on once all events up to the time of the answer were seen.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use anyhow::Result;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::host::Host;
use crate::symbol::StackId;
use crate::task::asker::{Answer, Asker, WaitQuestion, WaitSite};
use crate::task::procfs::KernelFrame;
use crate::task::user_snapshot::UserSnapshot;

/// How long the line of a wait is held back for the answer, ns.
const PATIENCE_NS: u64 = 500_000_000;
/// Most waits that are kept.
const LIMIT: usize = 8192;
/// Questions about waits that get a line. Each takes the asking thread some 100 µs.
const QUESTIONS: Allowance = Allowance::new(256, 128);

/// A token bucket: a burst of `most`, then `per_second`.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    most: u64,
    per_second: u64,
    left: u64,
    /// When the last token was added.
    since_ns: u64,
}

impl Allowance {
    pub const fn new(most: u64, per_second: u64) -> Allowance {
        Allowance { most, per_second, left: most, since_ns: 0 }
    }

    /// Takes a token, if one is left.
    pub fn take(&mut self, now: u64) -> bool {
        let each_ns = (1_000_000_000 / self.per_second.max(1)).max(1);
        let new = now.saturating_sub(self.since_ns) / each_ns;
        if self.left.saturating_add(new) >= self.most {
            (self.left, self.since_ns) = (self.most, now);
        } else {
            self.left += new;
            self.since_ns += new * each_ns;
        }
        let has_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_one
    }
}

/// A number for where a task waits: the call, the descriptor that it works on, and the function of the kernel.
pub fn place(site: &WaitSite) -> u64 {
    let call = site.call.as_ref().map(|call| (call.name, call.files.first().map(|file| file.fd)));
    FxBuildHasher.hash_one((call, site.wchan.as_deref()))
}

/// Where the tasks wait.
#[derive(Debug)]
pub struct WaitSites {
    asker: Option<Asker>,
    stacks: bool,
    waits: FxHashMap<i32, PendingQuestion>,
    /// Waits for which only the stack is wanted, by task and beginning: asked when there is room.
    backlog: VecDeque<(i32, u64)>,
    allowance: Allowance,
}

#[derive(Debug)]
struct PendingQuestion {
    since: u64,
    asked_ns: u64,
    status: Status,
    /// The stack of the wait, read when /proc was asked.
    stack: Option<StackId>,
}

/// A stack that came with an answer.
#[derive(Debug)]
pub struct FoundStack {
    pub tid: i32,
    pub kernel: Vec<KernelFrame>,
    pub user: Option<Box<UserSnapshot>>,
}

#[derive(Debug)]
enum Status {
    Asked,
    /// The answer came, but events up to its time are still to come.
    Answered(Answer),
    Known(WaitSite),
    /// The answer is not about this wait.
    Nothing,
}

/// The state of the question about a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Unasked,
    /// The answer may come soon.
    Awaited,
    /// The answer has come, or would be too late.
    Over,
}

impl Default for WaitSites {
    /// Asks nothing.
    fn default() -> WaitSites {
        WaitSites {
            asker: None,
            stacks: false,
            waits: FxHashMap::default(),
            backlog: VecDeque::new(),
            allowance: QUESTIONS,
        }
    }
}

impl WaitSites {
    /// # Errors
    /// No thread can be started.
    pub fn asked_of(host: &Host, stacks: bool) -> Result<WaitSites> {
        Ok(WaitSites { asker: Some(Asker::start(host.clone())?), stacks, ..WaitSites::default() })
    }

    /// The tid of the asking thread.
    pub fn thread(&self) -> Option<i32> {
        self.asker.as_ref().map(Asker::tid)
    }

    /// Asks where `tid` waits since `since`. False when that is not possible now.
    pub fn ask(&mut self, tid: i32, since: u64, now: u64) -> bool {
        if self.waits.len() >= LIMIT || !self.allowance.take(now) {
            return false;
        }
        self.send(WaitQuestion { tid, since, stack: self.stacks }, now)
    }

    fn send(&mut self, question: WaitQuestion, now: u64) -> bool {
        let is_sent = self.asker.as_ref().is_some_and(|asker| asker.ask(question));
        if is_sent {
            let wait = PendingQuestion { since: question.since, asked_ns: now, status: Status::Asked, stack: None };
            self.waits.insert(question.tid, wait);
        }
        is_sent
    }

    /// Asks for the stack of a waiting task, when there is time for that.
    pub fn ask_later(&mut self, tid: i32, since: u64) {
        if self.stacks && self.asker.is_some() && self.backlog.len() < LIMIT {
            self.backlog.push_back((tid, since));
        }
    }

    /// Takes new answers.
    pub fn collect(&mut self, now: u64) {
        let Some(asker) = &self.asker else { return };
        for answer in asker.answers() {
            if let Some(wait) = self.waits.get_mut(&answer.tid).filter(|wait| wait.since == answer.since) {
                wait.status = Status::Answered(answer);
            }
        }
        while let Some(&(tid, since)) = self.backlog.front() {
            if !self.asker.as_ref().is_some_and(Asker::has_room_for_stacks) {
                break; // earlier stacks must be taken first
            }
            let is_asked = self.waits.get(&tid).is_some_and(|wait| wait.since == since);
            if !is_asked && self.waits.len() < LIMIT && !self.send(WaitQuestion { tid, since, stack: true }, now) {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Whether an answer, or an event up to the time of an answer, is about to come.
    pub fn awaits(&self, now: u64) -> bool {
        let is_awaited = |wait: &PendingQuestion| match wait.status {
            Status::Asked => now.saturating_sub(wait.asked_ns) < PATIENCE_NS,
            Status::Answered(_) => true,
            Status::Known(_) | Status::Nothing => false,
        };
        !self.backlog.is_empty() || self.waits.values().any(is_awaited)
    }

    /// All events up to `seen` are known; `goes_on` says whether the wait of a task with this beginning still goes on.
    /// Answers about such waits are valid from then on. Returns the stacks that came with these answers.
    pub fn believe(&mut self, seen: u64, goes_on: impl Fn(i32, u64) -> bool) -> Vec<FoundStack> {
        let mut stacks = Vec::new();
        for (&tid, wait) in &mut self.waits {
            let Status::Answered(answer) = &mut wait.status else { continue };
            if answer.until_ns > seen {
                continue;
            }
            let site = answer.site.take().filter(|_| goes_on(tid, wait.since));
            wait.status = site.map_or(Status::Nothing, |mut site| {
                let (kernel, user) = (std::mem::take(&mut site.stack), site.user.take());
                let is_any = !kernel.is_empty() || user.is_some();
                stacks.extend(is_any.then_some(FoundStack { tid, kernel, user }));
                Status::Known(site)
            });
        }
        stacks
    }

    /// Stores the stack of a wait, as it was when it was read.
    pub fn keep_stack(&mut self, tid: i32, stack: Option<StackId>) {
        self.waits.get_mut(&tid).into_iter().for_each(|wait| wait.stack = stack);
    }

    /// See [`WaitSites::keep_stack`].
    pub fn stack(&self, tid: i32, since: u64) -> Option<StackId> {
        self.waits.get(&tid).filter(|wait| wait.since == since)?.stack
    }

    pub fn stacks_in_use(&self) -> impl Iterator<Item = StackId> {
        self.waits.values().filter_map(|wait| wait.stack)
    }

    pub fn progress(&self, tid: i32, since: u64, now: u64) -> Progress {
        let Some(wait) = self.waits.get(&tid).filter(|wait| wait.since == since) else { return Progress::Unasked };
        match &wait.status {
            Status::Asked | Status::Answered(_) if now.saturating_sub(wait.asked_ns) < PATIENCE_NS => Progress::Awaited,
            Status::Asked | Status::Answered(_) | Status::Known(_) | Status::Nothing => Progress::Over,
        }
    }

    /// Where a task has waited since `since`, and still does as of the last call of [`WaitSites::believe`].
    pub fn known(&self, tid: i32, since: u64) -> Option<&WaitSite> {
        match &self.waits.get(&tid).filter(|wait| wait.since == since)?.status {
            Status::Known(site) => Some(site),
            _ => None,
        }
    }

    /// The answer about a wait that lasted from `since` to `until`.
    pub fn of_ended(&self, tid: i32, since: u64, until: u64) -> Option<&WaitSite> {
        match &self.waits.get(&tid).filter(|wait| wait.since == since)?.status {
            Status::Known(site) => Some(site),
            Status::Answered(answer) if answer.until_ns <= until => answer.site.as_ref(),
            _ => None,
        }
    }

    /// The answer about the wait of a task is not valid any more.
    pub fn forget(&mut self, tid: i32) {
        self.waits.remove(&tid);
    }

    /// Forgets waits that have ended.
    pub fn retain(&mut self, goes_on: impl Fn(i32, u64) -> bool) {
        self.waits.retain(|tid, wait| goes_on(*tid, wait.since));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::perf::record::Innermost;
    use crate::symbol::{SpaceKeys, Stacks};
    use crate::sys::monotonic_ns;
    use crate::task::fixture::FixtureProcess;

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_allowance_is_used_up_and_comes_again() {
        let mut allowance = Allowance::new(3, 2);
        let mut taken = |now| (0..10).filter(|_| allowance.take(now)).count();
        assert_eq!(taken(100 * S), 3);
        assert_eq!(taken(100 * S + S / 2 - 1), 0);
        assert_eq!(taken(100 * S + S / 2), 1);
        assert_eq!(taken(101 * S), 1);
        assert_eq!(taken(101 * S + S / 4), 0);
        assert_eq!(taken(101 * S + S / 2), 1, "a part of the time is not lost");
        assert_eq!(taken(100 * S), 0, "a clock that stands still");
        assert_eq!(taken(1000 * S), 3);
        assert!(Allowance::new(1, u64::MAX).take(0) && !Allowance::new(0, 1).take(0));
    }

    /// A task that waits in D state, at `/proc/5`.
    fn waiting() -> FixtureProcess {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) D 1 5").write("schedstat", "77 0 1\n").write("wchan", "folio_wait");
        process.write("stack", "[<0>] folio_wait+0x1/0x2\n");
        process
    }

    fn wait_sites(process: &FixtureProcess, stacks: bool) -> WaitSites {
        WaitSites::asked_of(&process.host(), stacks).unwrap()
    }

    /// Waits until the answer about `/proc/5` has come.
    fn answered(known: &mut WaitSites) -> u64 {
        loop {
            known.collect(monotonic_ns());
            if let Some(Status::Answered(answer)) = known.waits.get(&5).map(|wait| &wait.status) {
                return answer.until_ns;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_answer_counts_when_the_wait_is_known_to_have_lasted() {
        let process = waiting();
        let mut known = wait_sites(&process, false);
        let now = monotonic_ns();
        assert_eq!(known.progress(5, 9, now), Progress::Unasked);
        assert!(known.ask(5, 9, now) && known.awaits(now));
        assert_eq!((known.progress(5, 9, now), known.progress(5, 10, now)), (Progress::Awaited, Progress::Unasked));
        let until = answered(&mut known);
        assert!(known.believe(until - 1, |_, _| true).is_empty());
        assert!(known.known(5, 9).is_none() && known.awaits(now), "events up to then are still to come");
        // The wait has ended meanwhile, later than the answer or not.
        assert!(known.of_ended(5, 9, until - 1).is_none() && known.of_ended(5, 8, until).is_none());
        assert_eq!(known.of_ended(5, 9, until).and_then(|site| site.wchan.as_deref()), Some("folio_wait"));
        known.believe(until, |tid, since| (tid, since) == (5, 9));
        assert_eq!(known.known(5, 9).and_then(|site| site.wchan.as_deref()), Some("folio_wait"));
        assert!(known.known(5, 10).is_none() && !known.awaits(now));
        assert_eq!((known.progress(5, 9, now), known.progress(5, 10, now)), (Progress::Over, Progress::Unasked));
        known.retain(|_, since| since == 10);
        assert_eq!(known.progress(5, 9, now), Progress::Unasked);
    }

    #[test]
    fn an_answer_about_another_wait_is_dropped() {
        let process = waiting();
        let mut known = wait_sites(&process, false);
        assert!(known.ask(5, 9, monotonic_ns()));
        let until = answered(&mut known);
        known.believe(until, |_, since| since == 10);
        assert!(known.known(5, 9).is_none() && known.of_ended(5, 9, until).is_none());
        assert_eq!(known.progress(5, 9, monotonic_ns()), Progress::Over);
    }

    #[test]
    fn stacks_come_once() {
        let process = waiting();
        let mut known = wait_sites(&process, true);
        for later in [false, true] {
            if later {
                known.ask_later(5, 9);
            } else {
                assert!(known.ask(5, 9, monotonic_ns()));
            }
            let until = answered(&mut known);
            assert_eq!(known.believe(until, |_, _| true).len(), 1);
            let mut spaces = SpaceKeys::default();
            let id = Stacks::new(1 << 20, 127).intern_address(1, false, Innermost::Executed, 5, &mut spaces);
            known.keep_stack(5, id);
            assert!(id.is_some() && known.stack(5, 9) == id && known.stack(5, 8).is_none());
            assert!(known.stacks_in_use().eq(id));
            assert!(known.believe(until, |_, _| true).is_empty(), "they come once");
            known.forget(5);
            assert_eq!(known.stack(5, 9), None);
        }
        let mut known = wait_sites(&process, false);
        assert!(known.ask(5, 9, monotonic_ns()));
        let until = answered(&mut known);
        assert!(known.believe(until, |_, _| true).is_empty(), "nobody has asked for it");
    }

    #[test]
    fn questions_are_bounded() {
        let process = waiting();
        let mut known = wait_sites(&process, false);
        let now = monotonic_ns();
        let asked = (1..1000).filter(|&tid| known.ask(tid, 1, now)).count();
        assert_eq!(asked as u64, QUESTIONS.most);
        assert!(!WaitSites::default().ask(5, 9, now));
    }

    #[test]
    fn a_late_answer_is_not_waited_for() {
        let process = waiting();
        let fifo = process.path("syscall");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let mut known = wait_sites(&process, false);
        assert!(known.ask(5, 9, monotonic_ns()));
        let later = monotonic_ns() + PATIENCE_NS;
        assert!(
            !known.awaits(later) && known.progress(5, 9, later) == Progress::Over && known.known(5, 9).is_none(),
            "the line is written without it"
        );
        // The asking thread continues, and the answer serves the next line.
        drop(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
        let until = answered(&mut known);
        known.believe(until, |_, _| true);
        assert!(known.known(5, 9).is_some());
    }
}
