//! The workers of a run. A worker answers one question at a time, for any thread, and is given up when it does not
//! answer.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::host::Host;
use crate::outside::question::{self, ABOUT, Answered, Question, QuestionHandlers};
use crate::outside::refusals::{AfterHang, MAX_STUCK, Refusals};
use crate::outside::spawner::{Spawner, Worker};
use crate::outside::{ASKED_CPU_NS, AskedOf};
use crate::sys::packets::Packet;
use crate::sys::poll::is_told_to_end;
use crate::sys::process_cpu_ns;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    #[error("no worker process can be started")]
    NoWorker,
    #[error("it has not answered before")]
    Refused,
    /// The process or thread that the worker was reading.
    #[error("process {0} does not answer")]
    Late(i32),
    #[error("the worker process ended")]
    Ended,
    #[error("told to end")]
    ToldToEnd,
    /// The run is about to end, and the answer would take too long.
    #[error("it takes too long")]
    TakesLong,
    #[error("the question cannot be asked")]
    NotUnderstood,
}

/// All workers of this process.
#[derive(Debug)]
pub struct Pool {
    handlers: QuestionHandlers,
    state: Mutex<PoolState>,
    is_hurried: AtomicBool,
    /// Time that askers have waited for workers which waited for a CPU, ns.
    starved_ns: AtomicU64,
}

#[derive(Debug)]
struct PoolState {
    spawner: Option<Spawner>,
    /// Workers that wait for a question.
    idle: Vec<Worker>,
    /// Workers that were killed because they hang, and have not ended yet.
    stuck: Vec<Worker>,
    /// Workers in use, by pid.
    busy: Vec<i32>,
    refusals: Refusals,
    /// The user was told that the limit of hanging workers is reached.
    told_full: bool,
    notes: Vec<String>,
}

/// How the wait for an answer ended.
enum WaitEnd {
    Answered,
    Late,
    /// The wait was ended early. The worker does not hang.
    Unawaited(NoAnswer),
}

/// Workers forked at the start, so that their activity can be left out of the results: one for each thread that asks
/// questions.
const AT_START: usize = 3;
/// Longest wait for one answer when the run is to end.
const HURRIED: Duration = Duration::from_millis(400);
/// As [`HURRIED`], while the worker makes progress. The end of a run waits for names of its last report, but not much
/// longer than this.
const HURRIED_BY_STEPS: Duration = Duration::from_millis(800);
/// A worker that is runnable, but gets no CPU, may take so many times its deadline.
const STARVED: u32 = 10;
/// CPU time with which a worker counts as making progress, within a deadline: enough for reading a megabyte of a file.
const GETS_ON: Duration = Duration::from_millis(1);
/// How often a wait checks its end conditions, ms.
const SLICE_MS: u16 = 20;
/// Most notes that are kept until they are taken.
const MAX_NOTES: usize = 16;

impl Pool {
    pub fn start(handlers: QuestionHandlers) -> Pool {
        let (spawner, note) = match Spawner::start(handlers) {
            Ok(spawner) => (Some(spawner), None),
            Err(err) => (None, Some(format!("{NOTHING_IS_ASKED}: no process can be forked ({err})"))),
        };
        let forked = spawner.iter().flat_map(|spawner| (0..AT_START).map_while(|_| spawner.fork().ok()));
        let state = PoolState {
            idle: forked.collect(),
            spawner,
            stuck: Vec::new(),
            busy: Vec::new(),
            refusals: Refusals::default(),
            told_full: false,
            notes: note.into_iter().collect(),
        };
        Pool { handlers, state: Mutex::new(state), is_hurried: AtomicBool::new(false), starved_ns: AtomicU64::new(0) }
    }

    pub fn ask<Q: Question>(
        &self,
        host: &Host,
        subject: AskedOf,
        question: &Q,
        files: &[&dyn AsFd],
    ) -> Result<Answered<Q::Answer>, NoAnswer> {
        let message = question::encode(self.handlers, question).ok_or(NoAnswer::NotUnderstood)?;
        let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
        let reply = match self.exchange(host, subject, &message, &files) {
            // The worker was killed, or had no memory: another worker may answer.
            Err(NoAnswer::Ended) => self.exchange(host, subject, &message, &files)?,
            reply => reply?,
        };
        question::decode(reply).ok_or(NoAnswer::NotUnderstood)
    }

    /// Sends a message to a worker, and returns its reply.
    fn exchange(
        &self,
        host: &Host,
        subject: AskedOf,
        message: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<Packet, NoAnswer> {
        let worker = self.take_worker(host, subject)?;
        let before_ns = process_cpu_ns(worker.pid);
        if worker.socket.send(message, files).is_err() {
            self.done(&worker);
            return Err(NoAnswer::Ended);
        }
        let end = self.wait(&worker, subject);
        if let (Some(before_ns), Some(after_ns)) = (before_ns, process_cpu_ns(worker.pid)) {
            ASKED_CPU_NS.set(ASKED_CPU_NS.get() + after_ns.saturating_sub(before_ns));
        }
        match end {
            WaitEnd::Answered => {}
            WaitEnd::Late => return Err(NoAnswer::Late(self.give_up(host, worker, subject))),
            WaitEnd::Unawaited(why) => {
                self.done(&worker);
                self.state().kill(&worker);
                return Err(why);
            }
        }
        let reply = worker.socket.receive();
        self.done(&worker);
        let Ok(Some(reply)) = reply else { return Err(NoAnswer::Ended) };
        self.state().idle.push(worker);
        Ok(reply)
    }

    pub fn askable(&self, host: &Host, mut pids: Vec<i32>) -> Vec<i32> {
        let state = self.state();
        if !state.refusals.is_empty() {
            pids.retain(|pid| state.refusals.may_ask(*pid, owner(host, *pid), state.stuck.len()));
        }
        pids
    }

    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    /// Ends all workers except those that hang. No further question is answered.
    pub fn stop(&self) {
        let mut state = self.state();
        (state.idle, state.stuck) = Default::default();
        let spawner = state.spawner.take();
        drop(state);
        spawner.into_iter().for_each(Spawner::end);
    }

    pub fn starved_ns(&self) -> u64 {
        self.starved_ns.load(Ordering::Relaxed)
    }

    pub fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    pub fn processes(&self) -> Vec<i32> {
        let state = self.state();
        let workers = state.idle.iter().chain(&state.stuck).map(|worker| worker.pid);
        workers.chain(state.busy.iter().copied()).chain(state.spawner.as_ref().map(|spawner| spawner.pid)).collect()
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // consistent at any time
    }

    /// A worker for a question: an idle one, or a new one.
    fn take_worker(&self, host: &Host, AskedOf { pid, user, .. }: AskedOf) -> Result<Worker, NoAnswer> {
        let mut state = self.state();
        state.stuck.retain(|worker| !worker.socket.is_hung_up());
        let stuck = state.stuck.len();
        if (pid != 0 || user.is_some())
            && !state.refusals.is_empty()
            && !state.refusals.may_ask(pid, user.or_else(|| owner(host, pid)), stuck)
        {
            if stuck >= MAX_STUCK && !std::mem::replace(&mut state.told_full, true) {
                state.note(format!("{NOTHING_IS_ASKED}, as long as {stuck} worker processes hang"));
            }
            return Err(NoAnswer::Refused);
        }
        while let Some(worker) = state.idle.pop() {
            if !worker.socket.is_hung_up() {
                state.busy.push(worker.pid);
                return Ok(worker);
            }
        }
        let Some(spawner) = &state.spawner else { return Err(NoAnswer::NoWorker) };
        match spawner.fork() {
            Ok(worker) => {
                state.busy.push(worker.pid);
                Ok(worker)
            }
            Err(err) => {
                state.note(format!("{NOTHING_IS_ASKED}: no process can be forked ({err})"));
                state.spawner = None;
                Err(NoAnswer::NoWorker)
            }
        }
    }

    fn done(&self, worker: &Worker) {
        self.state().busy.retain(|pid| *pid != worker.pid);
    }

    fn wait(&self, worker: &Worker, AskedOf { deadline, by_steps, ends_when_told, .. }: AskedOf) -> WaitEnd {
        let asked = Instant::now();
        let mut start = asked;
        let mut used_before = None;
        let mut slice = (asked, None);
        loop {
            if worker.socket.is_ready_within(SLICE_MS) {
                return WaitEnd::Answered;
            }
            if ends_when_told && is_told_to_end() {
                return WaitEnd::Unawaited(NoAnswer::ToldToEnd);
            }
            let is_hurried = self.is_hurried.load(Ordering::Relaxed);
            let used_now = process_cpu_ns(worker.pid).map_or(Duration::ZERO, Duration::from_nanos);
            let used = used_now.saturating_sub(*used_before.get_or_insert(used_now));
            let (slice_start, used_at_start) = std::mem::replace(&mut slice, (Instant::now(), Some(used_now)));
            if is_runnable(worker.pid) {
                let ran = used_now.saturating_sub(used_at_start.unwrap_or(used_now));
                let starved = slice_start.elapsed().saturating_sub(ran);
                self.starved_ns.fetch_add(starved.as_nanos() as u64, Ordering::Relaxed);
            }
            if by_steps && used >= GETS_ON {
                if is_hurried && asked.elapsed() >= HURRIED_BY_STEPS {
                    return WaitEnd::Unawaited(NoAnswer::TakesLong);
                }
                (start, used_before) = (Instant::now(), Some(used_now));
                continue;
            }
            let waited = start.elapsed();
            let deadline = if is_hurried { deadline.min(HURRIED) } else { deadline };
            let is_starved = || used < deadline && waited < deadline * STARVED && is_runnable(worker.pid);
            if waited >= deadline && !is_starved() {
                return if worker.socket.is_ready_within(0) { WaitEnd::Answered } else { WaitEnd::Late };
            }
        }
    }

    /// Kills a worker that hangs, and records the process that made it hang. Returns the pid of that process; 0: a file
    /// did.
    fn give_up(&self, host: &Host, worker: Worker, subject: AskedOf) -> i32 {
        self.done(&worker);
        let pid = if subject.pid == 0 { subject_of(worker.pid) } else { subject.pid };
        let place = place_of(worker.pid);
        let user = subject.user.or_else(|| owner(host, pid));
        let mut state = self.state();
        state.kill(&worker);
        state.stuck.push(worker);
        let outcome = state.refusals.hung(pid, user);
        let place = place.map_or(String::new(), |place| format!(" (it waits in {place})"));
        let of_user = match (outcome, user) {
            (AfterHang::User, Some(user)) if pid == 0 => format!(", nor of any other file of user {user}"),
            (AfterHang::User, Some(user)) => format!(", nor about any other process of user {user}"),
            _ => String::new(),
        };
        let (what, it) = match (pid, subject.user) {
            (0, Some(user)) => (format!("from a file that a program of user {user} has mapped"), "of it"),
            (0, None) => ("from a file".to_owned(), "of it"),
            (pid, _) => (format!("about process {pid}"), "about it"),
        };
        state.note(format!("degraded: no answer {what}{place}: nothing more is asked {it}{of_user}"));
        pid
    }
}

const NOTHING_IS_ASKED: &str = "degraded: nothing is read of other processes: no names of their code, files and waits";

impl PoolState {
    fn kill(&self, worker: &Worker) {
        self.spawner.iter().for_each(|spawner| spawner.kill(worker.pid));
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        }
    }
}

/// The user (uid) of a process, from a file whose read never hangs: it takes no lock of the process.
fn owner(host: &Host, pid: i32) -> Option<u32> {
    let status = fs::read(host.proc.join(pid.to_string()).join("status")).ok()?;
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether a worker runs, or waits for a CPU.
fn is_runnable(worker: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("State:").is_some_and(|state| state.trim_start().starts_with('R')))
}

/// The process or thread that a worker reads, from the worker's name: see
/// [`WorkerContext::about`](crate::outside::WorkerContext::about). 0: none.
fn subject_of(worker: i32) -> i32 {
    let name = fs::read_to_string(format!("/proc/{worker}/comm")).unwrap_or_default();
    name.trim_end().strip_prefix(ABOUT).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The kernel function in which a worker hangs. This read cannot hang: the worker holds no lock of its own process.
fn place_of(worker: i32) -> Option<String> {
    let place = fs::read_to_string(format!("/proc/{worker}/wchan")).ok()?;
    (!place.is_empty() && place != "0").then_some(place)
}
