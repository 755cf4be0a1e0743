//! The processes that have sockets, by inode. A thread asks for them: on a machine with many processes that takes seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::sys;
use crate::task::{Comm, procfs, sockets};

/// Most questions that wait, each about all sockets that were new at once.
const MAX_WAITING: usize = 4;
/// Limit of the sockets whose processes are known.
const MAX_KNOWN: usize = 50_000;

/// A process, and its name.
pub type SocketOwner = (i32, Comm);

/// What is known so far, and the thread that asks.
#[derive(Debug)]
pub struct SocketOwners {
    known: Arc<Mutex<FxHashMap<u32, SocketOwner>>>,
    questions: Sender<Vec<u32>>,
    /// Number of questions without an answer.
    unanswered: Arc<AtomicUsize>,
    /// Has a message for each question that was answered.
    answered: Receiver<()>,
}

impl SocketOwners {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host) -> Result<SocketOwners> {
        let (questions, to_ask) = bounded::<Vec<u32>>(MAX_WAITING);
        let (answer, answered) = bounded(MAX_WAITING);
        let known = Arc::new(Mutex::new(FxHashMap::default()));
        let unanswered = Arc::new(AtomicUsize::new(0));
        let (owners, open, host) = (known.clone(), unanswered.clone(), host.clone());
        let work = move || {
            for inodes in to_ask {
                ask(&host, &inodes, &owners);
                open.fetch_sub(1, Ordering::Relaxed);
                let _ = answer.try_send(()); // nobody waits for the later ones
            }
        };
        sys::start_thread("socket-owners", work).context("cannot start the thread that asks whose sockets are")?;
        Ok(SocketOwners { known, questions, unanswered, answered })
    }

    /// Asks for the processes of these sockets, and waits for the answer, unless that takes long or another question is
    /// still open. False: too many questions wait.
    pub fn ask(&self, inodes: Vec<u32>, patience: Duration) -> bool {
        self.answered.try_iter().for_each(drop);
        let is_alone = self.unanswered.fetch_add(1, Ordering::Relaxed) == 0;
        let is_asked = self.questions.try_send(inodes).is_ok();
        if !is_asked {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        } else if is_alone {
            let _ = self.answered.recv_timeout(patience);
        }
        is_asked
    }

    /// The process that has a socket, if it is known by now.
    pub fn owner(&self, inode: u32) -> Option<SocketOwner> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&inode).copied()
    }
}

fn ask(host: &Host, inodes: &[u32], known: &Mutex<FxHashMap<u32, SocketOwner>>) {
    let mut comms: FxHashMap<i32, Comm> = FxHashMap::default();
    for (inode, pid) in sockets::owners(host, inodes) {
        let comm = *comms.entry(pid).or_insert_with(|| procfs::comm(host, pid).unwrap_or_default());
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(inode, (pid, comm));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn owners_are_told_later() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = link.to_str().unwrap().trim_matches(|digit: char| !digit.is_ascii_digit()).parse().unwrap();
        let owners = SocketOwners::start(&Host::default()).unwrap();
        assert_eq!(owners.owner(inode), None);
        assert!(owners.ask(vec![inode, u32::MAX], Duration::from_secs(60)));
        assert!(owners.owner(inode).is_some_and(|(pid, _)| pid > 0));
        assert_eq!(owners.owner(u32::MAX), None);
    }
}
