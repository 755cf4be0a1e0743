//! The spawner, a process that forks workers when asked, and the life of a worker.
//!
//! The process with the rings forks neither: with 600 MiB of memory that would take 20 ms. Nor is a program executed, which needs
//! the file of this one. The spawner has one thread, touches nothing of others, and ends with its parent, the workers with it. At the
//! end of a run it is told to end first, and reaps its workers, as its parent reaps it: the first process of a container may reap
//! nobody.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::host::Host;
use crate::outside::question::{QuestionHandlers, WorkerContext, reply};
use crate::sys::packets::{PacketSocket, pair};
use crate::sys::process::{fork_apart, has_ended, kill_child, reap_within};

/// A worker, as the asking process has it. Dropping it ends the worker, unless that hangs.
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
/// How long the spawner may take to fork, ms: it has nothing else to do.
const PATIENCE_MS: u16 = 2000;
/// How long workers may take to end when they are killed. One that hangs does not.
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

    /// Ends the spawner and all workers. One that hangs is not waited for.
    pub fn end(self) {
        let _ = self.socket.send(&[END], &[]); // where it has gone already nothing is to be ended
        reap_within(&mut vec![self.pid], SPAWNER_ENDS);
    }

    /// Kills a worker. One that hangs may stay until what it waits for has come.
    pub fn kill(&self, pid: i32) {
        let [a, b, c, d] = pid.to_ne_bytes();
        let _ = self.socket.send(&[KILL, a, b, c, d], &[]); // where the spawner has gone its workers have, too
    }
}

/// The spawner's life.
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

/// A worker's life: answers, one question after another.
fn work(socket: &PacketSocket, handlers: QuestionHandlers) {
    let mut context = WorkerContext::of_worker(Host::default());
    while let Ok(Some(question)) = socket.receive() {
        // An empty answer would be the end of the connection.
        let (message, files) = reply(handlers, question, &mut context).unwrap_or((vec![u8::MAX], Vec::new()));
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        if socket.send(&message, &files).is_err() {
            return;
        }
    }
}
