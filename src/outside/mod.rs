//! Worker processes for reads that another process can make hang: its files in /proc, its memory, the files that it has
//! mapped.
//!
//! Such a read may never return (a FUSE server or a userfaultfd that does not answer, a stuck exec, a dead file
//! server), and a thread that hangs in it keeps its whole process from ending, with all its events and BPF programs. So
//! the process that reads the rings asks workers, with a deadline. `question` has the questions and answers, `spawner`
//! the process that forks workers, `pool` gives questions to workers and gives up workers that hang, `refusals` keeps
//! the processes and users about which nothing more is asked.
//!
//! The spawner is forked before any thread and any event exists ([`start`]). Without a spawner (in unit tests, in
//! benches, in the worker itself) [`ask`] answers in this process.

mod pool;
mod question;
mod refusals;
mod spawner;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

pub use pool::NoAnswer;
pub use question::{Answered, Question, QuestionHandler, WorkerContext, WorkerPlace, as_bytes};

use crate::host::Host;
use crate::sys::packets::memory_file;
use crate::sys::process_cpu_ns;
use pool::Pool;

/// The process or user that a question is about, and how long the answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOf {
    /// A process or thread. 0: none in particular.
    pub pid: i32,
    /// The user (uid) who can make the answer hang, where `pid` does not tell.
    pub user: Option<u32>,
    pub deadline: Duration,
    /// The deadline starts anew whenever the worker has made progress. Such a worker bounds its work itself.
    pub by_steps: bool,
    /// The wait ends when a signal to end this process is pending.
    pub ends_when_told: bool,
}

/// Reads of /proc and of the memory of a process return at once, unless they hang.
const PROCESS_DEADLINE: Duration = Duration::from_millis(400);
/// A file may have to come from a slow disk.
const FILE_DEADLINE: Duration = Duration::from_millis(1500);
/// For questions before a run: no other work waits for the answer.
const STEP_DEADLINE: Duration = Duration::from_secs(3);

impl AskedOf {
    /// A question about several processes: the worker names the one that it reads with [`WorkerContext::about`].
    pub const SEVERAL: AskedOf =
        AskedOf { pid: 0, user: None, deadline: PROCESS_DEADLINE, by_steps: false, ends_when_told: false };
    /// A question about any number of files and processes.
    const LONG: AskedOf = AskedOf { deadline: STEP_DEADLINE, by_steps: true, ends_when_told: true, ..AskedOf::SEVERAL };

    /// The memory, or files in /proc, of a process or thread.
    pub fn process(pid: i32) -> AskedOf {
        AskedOf { pid, ..AskedOf::SEVERAL }
    }

    /// A file that a process has mapped.
    pub fn file_of(pid: i32) -> AskedOf {
        AskedOf { pid, deadline: FILE_DEADLINE, ..AskedOf::SEVERAL }
    }

    /// A file that processes of these users have mapped. With several users, a hang counts against none of them.
    pub fn file_of_users(users: &[u32]) -> AskedOf {
        let user = if let [user] = users { Some(*user) } else { None };
        AskedOf { user, deadline: FILE_DEADLINE, ..AskedOf::SEVERAL }
    }
}

static POOL: OnceLock<Pool> = OnceLock::new();

thread_local! {
    static ASKED_CPU_NS: Cell<u64> = const { Cell::new(0) };
}

/// Forks the spawner. From then on [`ask`] asks workers, which answer the questions in `handlers`. This process must
/// still have a single thread. If no spawner can be forked, no question is answered, and [`take_notes`] says why.
pub fn start(handlers: &'static [&'static [QuestionHandler]]) {
    POOL.get_or_init(|| Pool::start(handlers));
}

/// Asks a question about a process or a file. The caller waits until the deadline at most.
///
/// # Errors
/// There was no answer in time, or no questions are asked any more about the process or its user.
pub fn ask<Q: Question>(host: &Host, subject: AskedOf, question: &Q) -> Result<Answered<Q::Answer>, NoAnswer> {
    ask_with(host, subject, question, &[])
}

/// As [`ask`], with open files for the worker.
///
/// # Errors
/// As [`ask`].
pub fn ask_with<Q: Question>(
    host: &Host,
    subject: AskedOf,
    question: &Q,
    files: &[&dyn AsFd],
) -> Result<Answered<Q::Answer>, NoAnswer> {
    match POOL.get() {
        Some(pool) => pool.ask(host, subject, question, files),
        None => Ok(question::answer_here(host, question, files)),
    }
}

/// Why a long question has no answer.
#[derive(Debug)]
pub struct Unanswered {
    pub why: NoAnswer,
    /// The file that the worker was reading. Empty: none.
    pub path: PathBuf,
}

/// Asks a question whose answer may take long. The wait goes on while the worker makes progress and no signal to end
/// this process is pending. The worker names the file that it reads with [`WorkerContext::place`].
///
/// # Errors
/// As [`ask`].
pub fn ask_long<Q: Question>(host: &Host, question: &Q) -> Result<Answered<Q::Answer>, Unanswered> {
    let note = memory_file().ok();
    let files: Vec<&dyn AsFd> = note.iter().map(|note| note as &dyn AsFd).collect();
    ask_with(host, AskedOf::LONG, question, &files)
        .map_err(|why| Unanswered { why, path: note.as_ref().map_or_else(PathBuf::new, question::told_path) })
}

/// Processes or threads per message: the answer should fit into one message, and come soon.
const AT_ONCE: usize = 256;

/// Asks about many processes or threads, part by part. The worker names the one that it reads with
/// [`WorkerContext::about`], and has an answer for each. `take` gets the answers; it returns false to stop. Processes
/// that do not answer are left out.
pub fn ask_each<Q, A>(host: &Host, ids: &[i32], question: impl Fn(Vec<i32>) -> Q, mut take: impl FnMut(i32, A) -> bool)
where
    Q: Question<Answer = Vec<Option<A>>>,
{
    let mut parts: Vec<Vec<i32>> = ids.chunks(AT_ONCE).rev().map(<[i32]>::to_vec).collect();
    while let Some(part) = parts.pop() {
        let part = askable(host, part);
        match ask(host, AskedOf::SEVERAL, &question(part.clone())) {
            Ok(answered) => {
                for (&id, answer) in part.iter().zip(answered.value) {
                    if answer.is_some_and(|answer| !take(id, answer)) {
                        return;
                    }
                }
            }
            // The ids before and after the one that hangs are asked about again.
            Err(NoAnswer::Late(late)) => {
                let Some(index) = part.iter().position(|id| *id == late) else { continue };
                parts.extend([&part[index + 1..], &part[..index]].map(<[i32]>::to_vec));
            }
            Err(_) => return,
        }
    }
}

/// Those of `pids` about which questions are still asked.
pub fn askable(host: &Host, pids: Vec<i32>) -> Vec<i32> {
    match POOL.get() {
        Some(pool) => pool.askable(host, pids),
        None => pids,
    }
}

/// Messages for the user about workers that hang, since the last call.
pub fn take_notes() -> Vec<String> {
    POOL.get().map_or_else(Vec::new, Pool::take_notes)
}

/// The run is about to end: from now on, waits for answers are much shorter than their deadlines.
pub fn hurry() {
    POOL.get().into_iter().for_each(Pool::hurry);
}

/// Time for which answers were late because their workers waited for a CPU, ns: a busy machine is nobody's file that hangs.
pub fn starved_ns() -> u64 {
    POOL.get().map_or(0, Pool::starved_ns)
}

/// Ends the workers. No further question is answered.
pub fn stop() {
    POOL.get().into_iter().for_each(Pool::stop);
}

/// The spawner and the workers: processes of perf-prof itself, as is their activity.
pub fn own_processes() -> Vec<i32> {
    POOL.get().map_or_else(Vec::new, Pool::processes)
}

/// CPU time that workers have used so far for questions of the calling thread, ns.
pub fn asked_cpu_ns() -> u64 {
    ASKED_CPU_NS.get()
}

/// CPU time that the spawner and the workers have used so far, ns.
pub fn cpu_ns() -> u64 {
    own_processes().into_iter().filter_map(process_cpu_ns).sum()
}
