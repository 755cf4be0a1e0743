//! Worker processes for whatever may hang in somebody else's hands: /proc files of others, their memory, the files they have mapped.
//!
//! A read of these may never return (a FUSE server or a userfaultfd that does not answer, a stuck exec, a dead file server), and a
//! thread that hangs in it keeps its whole process, with all events and programs. So the process that reads the rings asks
//! workers, with a deadline. `question` is what is asked, `spawner` the process that forks workers, `pool` who is asked and
//! who is no more, `refusals` whose processes made a worker hang.
//!
//! The spawner is forked before any thread and any event exists ([`start`]). Without it (in unit tests, in benches, in the worker
//! itself) [`ask`] answers in this process.

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

/// Whom a question is about, and how long its answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOf {
    /// A process or thread. 0: nobody in particular.
    pub pid: i32,
    /// The user (uid) in whose hands it is, where `pid` does not tell.
    pub user: Option<u32>,
    pub deadline: Duration,
    /// The deadline begins anew as long as the worker gets on, which bounds its work itself.
    pub by_steps: bool,
    /// The wait ends when this process is told to end.
    pub ends_when_told: bool,
}

/// What the kernel and the memory of a process answer at once, unless they hang.
const PROCESS_DEADLINE: Duration = Duration::from_millis(400);
/// A file may have to come from a slow disk.
const FILE_DEADLINE: Duration = Duration::from_millis(1500);
/// Before a run nobody waits for anything else.
const STEP_DEADLINE: Duration = Duration::from_secs(3);

impl AskedOf {
    /// Several processes: the worker tells with [`WorkerContext::about`] which one it is at.
    pub const SEVERAL: AskedOf =
        AskedOf { pid: 0, user: None, deadline: PROCESS_DEADLINE, by_steps: false, ends_when_told: false };
    /// As many files and processes as it takes.
    const LONG: AskedOf = AskedOf { deadline: STEP_DEADLINE, by_steps: true, ends_when_told: true, ..AskedOf::SEVERAL };

    /// The memory, or files in /proc, of a process or thread.
    pub fn process(pid: i32) -> AskedOf {
        AskedOf { pid, ..AskedOf::SEVERAL }
    }

    /// A file that a process has mapped.
    pub fn file_of(pid: i32) -> AskedOf {
        AskedOf { pid, deadline: FILE_DEADLINE, ..AskedOf::SEVERAL }
    }

    /// A file that processes of these users have mapped. Where they are several it is in the hands of none of them.
    pub fn file_of_users(users: &[u32]) -> AskedOf {
        let user = if let [user] = users { Some(*user) } else { None };
        AskedOf { user, deadline: FILE_DEADLINE, ..AskedOf::SEVERAL }
    }
}

static POOL: OnceLock<Pool> = OnceLock::new();

thread_local! {
    static ASKED_CPU_NS: Cell<u64> = const { Cell::new(0) };
}

/// Forks the spawner. From now on [`ask`] asks workers, which know the questions in `handlers`. This process must have one thread
/// still. Where there can be no spawner, nothing is answered, and [`take_notes`] tells why.
pub fn start(handlers: &'static [&'static [QuestionHandler]]) {
    POOL.get_or_init(|| Pool::start(handlers));
}

/// Asks about what is in the hands of others. The caller waits until the deadline at most.
///
/// # Errors
/// There was no answer in time, or the subject, or its user, is asked no more.
pub fn ask<Q: Question>(host: &Host, subject: AskedOf, question: &Q) -> Result<Answered<Q::Answer>, NoAnswer> {
    ask_with(host, subject, question, &[])
}

/// As [`ask`], about open files.
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
    /// The file that the worker was at. Empty: none.
    pub path: PathBuf,
}

/// Asks a question whose answer may take long. It is waited for as long as the worker gets on, and this process is not told to end.
/// The worker tells with [`WorkerContext::place`] what it is at.
///
/// # Errors
/// As [`ask`].
pub fn ask_long<Q: Question>(host: &Host, question: &Q) -> Result<Answered<Q::Answer>, Unanswered> {
    let note = memory_file().ok();
    let files: Vec<&dyn AsFd> = note.iter().map(|note| note as &dyn AsFd).collect();
    ask_with(host, AskedOf::LONG, question, &files)
        .map_err(|why| Unanswered { why, path: note.as_ref().map_or_else(PathBuf::new, question::told_path) })
}

/// Processes or threads of one message: the answer should fit into another, and come soon.
const AT_ONCE: usize = 256;

/// Asks about many processes or threads, part by part. The question tells with [`WorkerContext::about`] which one it is at, and
/// has an answer for each. `take` is given those that there are; false from it: that was enough. Whoever does not answer is left
/// out.
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
            // Those before and behind the one that hangs are asked again.
            Err(NoAnswer::Late(late)) => {
                let Some(index) = part.iter().position(|id| *id == late) else { continue };
                parts.extend([&part[index + 1..], &part[..index]].map(<[i32]>::to_vec));
            }
            Err(_) => return,
        }
    }
}

/// The processes and threads among these that may still be asked.
pub fn askable(host: &Host, pids: Vec<i32>) -> Vec<i32> {
    match POOL.get() {
        Some(pool) => pool.askable(host, pids),
        None => pids,
    }
}

/// What the user should hear of workers that hang, since the last call.
pub fn take_notes() -> Vec<String> {
    POOL.get().map_or_else(Vec::new, Pool::take_notes)
}

/// The run is to end: answers are waited for much less than their deadlines.
pub fn hurry() {
    POOL.get().into_iter().for_each(Pool::hurry);
}

/// Ends the workers. Nothing is answered any more.
pub fn stop() {
    POOL.get().into_iter().for_each(Pool::stop);
}

/// The processes of the room: this program's own, as is what they do.
pub fn own_processes() -> Vec<i32> {
    POOL.get().map_or_else(Vec::new, Pool::processes)
}

/// CPU time that workers have used so far for questions of the calling thread, ns.
pub fn asked_cpu_ns() -> u64 {
    ASKED_CPU_NS.get()
}

/// CPU time that these have used so far, ns.
pub fn cpu_ns() -> u64 {
    own_processes().into_iter().filter_map(process_cpu_ns).sum()
}
