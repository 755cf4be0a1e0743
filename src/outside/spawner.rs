//! The spawner, a process that forks workers on request, and the main loop of a worker.
//!
//! The process with the rings does not fork workers itself: with 600 MiB of memory a fork takes 20 ms. Workers are not
//! executed as a program either, since that would need perf-prof's own file. The spawner has one thread, reads nothing
//! of other processes, and ends with its parent; the workers end with the spawner. At the end of a run the spawner is
//! told to end first. It reaps its workers, and its parent reaps it: the first process of a container may reap no
//! orphans.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::host::Host;
use crate::outside::question::{QuestionHandlers, WorkerContext, reply};
use crate::sys::packets::{PacketSocket, pair};
use crate::sys::process::{fork_apart, has_ended, kill_child, reap_within};

/// A worker, as the asking process has it. Dropping it ends the worker, unless the worker hangs.
#[derive(Debug)]
pub struct Worker {
    pub pid: i32,
    pub socket: PacketSocket,
}

/// The asking process's end of the spawner.
#[derive(Debug)]
pub struct Spawner {
    pub pid: i32,
    socket: PacketSocket,
}

const FORK: u8 = 0;
const KILL: u8 = 1;
const END: u8 = 2;
/// How long a fork may take, ms: the spawner has nothing else to do.
const PATIENCE_MS: u16 = 2000;
/// How long killed workers may take to end. A worker that hangs does not end.
const WORKERS_END: Duration = Duration::from_millis(100);
const SPAWNER_ENDS: Duration = Duration::from_millis(300);

impl Spawner {
    /// Forks the spawner.
    ///
    /// # Errors
    /// This process has several threads, or no process or descriptor is left.
    pub fn start(handlers: QuestionHandlers) -> io::Result<Spawner> {
        let (own, its) = pair()?;
        let pid = fork_apart(c"perf-prof-forks", its.as_fd(), || serve(&its, handlers))?;
        Ok(Spawner { pid, socket: own })
    }

    /// A new worker.
    ///
    /// # Errors
    /// No process or descriptor is left, or the spawner was killed.
    pub fn fork(&self) -> io::Result<Worker> {
        self.socket.send(&[FORK], &[])?;
        if !self.socket.is_ready_within(PATIENCE_MS) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut packet = self.socket.receive()?.ok_or(io::ErrorKind::BrokenPipe)?;
        let number = packet.bytes.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        match packet.files.pop() {
            Some(fd) => Ok(Worker { pid: number, socket: PacketSocket::from_fd(fd) }),
            None => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Ends the spawner and all workers. Workers that hang are not waited for.
    pub fn end(self) {
        let _ = self.socket.send(&[END], &[]); // without a spawner nothing has to be ended
        reap_within(&mut vec![self.pid], SPAWNER_ENDS);
    }

    /// Kills a worker. A worker that hangs ends when its read returns.
    pub fn kill(&self, pid: i32) {
        let [a, b, c, d] = pid.to_ne_bytes();
        let _ = self.socket.send(&[KILL, a, b, c, d], &[]); // without a spawner, its workers have ended, too
    }
}

/// The main function of the spawner.
fn serve(socket: &PacketSocket, handlers: QuestionHandlers) {
    let mut workers: Vec<i32> = Vec::new();
    obey(socket, handlers, &mut workers);
    workers.iter().for_each(|pid| kill_child(*pid));
    reap_within(&mut workers, WORKERS_END);
}

/// Forks and kills workers, until it is told to end.
fn obey(socket: &PacketSocket, handlers: QuestionHandlers, workers: &mut Vec<i32>) {
    while let Ok(Some(packet)) = socket.receive() {
        workers.retain(|pid| !has_ended(*pid));
        match packet.bytes[..] {
            [FORK] => {
                let answer = match fork_worker(handlers) {
                    Ok(Worker { pid, socket: end }) => {
                        workers.push(pid);
                        socket.send(&pid.to_ne_bytes(), &[end.into_fd().as_fd()])
                    }
                    Err(err) => socket.send(&err.raw_os_error().unwrap_or(libc::EAGAIN).to_ne_bytes(), &[]),
                };
                if answer.is_err() {
                    return;
                }
            }
            [KILL, a, b, c, d] => {
                let pid = i32::from_ne_bytes([a, b, c, d]);
                workers.iter().filter(|worker| **worker == pid).for_each(|worker| kill_child(*worker));
            }
            _ => return,
        }
    }
}

fn fork_worker(handlers: QuestionHandlers) -> io::Result<Worker> {
    let (own, its) = pair()?;
    let pid = fork_apart(c"perf-prof-asks", its.as_fd(), || work(&its, handlers))?;
    Ok(Worker { pid, socket: own })
}

/// The main function of a worker: answers one question after another.
fn work(socket: &PacketSocket, handlers: QuestionHandlers) {
    let mut context = WorkerContext::of_worker(Host::default());
    while let Ok(Some(question)) = socket.receive() {
        // An empty message would mean the end of the connection.
        let (message, files) = reply(handlers, question, &mut context).unwrap_or((vec![u8::MAX], Vec::new()));
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        if socket.send(&message, &files).is_err() {
            return;
        }
    }
}
