//! Which processes have a socket, by the links in /proc/PID/fd.

use std::fs;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::host::{Host, processes};
use crate::outside::{self, Question, WorkerContext};
use crate::task::procfs::file;

/// Limit of descriptors of a process that are looked at.
const MAX_DESCRIPTORS: usize = 10_000;
/// Limit of processes that are looked at.
const MAX_PROCESSES: usize = 10_000;
/// A worker looks at no further process after so long, far below the deadline of its answer: many descriptors are no sign
/// that a process hangs.
const MAX_ANSWER: Duration = Duration::from_millis(100);
/// Limit of the time for all processes.
const MAX_SEARCH: Duration = Duration::from_secs(10);

/// What a worker saw of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketsSeen {
    /// The inodes of its sockets among the wanted ones.
    These(Vec<u32>),
    /// The time was up before.
    NotYet,
}

/// Which of these sockets each of these processes has.
#[derive(Debug, Serialize, Deserialize)]
pub struct SocketsOf {
    pids: Vec<i32>,
    inodes: Vec<u32>,
}

impl Question for SocketsOf {
    /// None: the process has ended, or may not be read.
    type Answer = Vec<Option<SocketsSeen>>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<Option<SocketsSeen>> {
        let wanted: FxHashSet<u32> = self.inodes.iter().copied().collect();
        let started = Instant::now();
        let see = |(index, pid): (usize, &i32)| {
            if index > 0 && started.elapsed() > MAX_ANSWER {
                return Some(SocketsSeen::NotYet);
            }
            context.about(*pid);
            sockets_of(&context.host, *pid, &wanted).map(SocketsSeen::These)
        };
        self.pids.iter().enumerate().map(see).collect()
    }
}

fn sockets_of(host: &Host, pid: i32, wanted: &FxHashSet<u32>) -> Option<Vec<u32>> {
    let entries = fs::read_dir(file(host, pid, "fd")).ok()?;
    let inode = |link: &str| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    let links = entries.take(MAX_DESCRIPTORS).filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inodes = links.filter_map(|link| inode(link.to_str()?));
    Some(inodes.filter(|inode| wanted.contains(inode)).collect())
}

/// The process with the smallest number that has each of these sockets, by inode: where several have it, mostly the one
/// that has made it. Those that no process has, or none that was looked at in time, are left out. May take seconds.
pub fn owners(host: &Host, inodes: &[u32]) -> FxHashMap<u32, i32> {
    let mut found = FxHashMap::default();
    let mut pids = processes(host);
    pids.truncate(MAX_PROCESSES);
    let started = Instant::now();
    while !pids.is_empty() && found.len() < inodes.len() && started.elapsed() < MAX_SEARCH {
        let question = |pids| SocketsOf { pids, inodes: inodes.to_vec() };
        let mut later = Vec::new();
        outside::ask_each(host, &pids, question, |pid, seen: SocketsSeen| {
            match seen {
                SocketsSeen::NotYet => later.push(pid),
                SocketsSeen::These(sockets) => add(&mut found, pid, sockets),
            }
            found.len() < inodes.len() && started.elapsed() < MAX_SEARCH
        });
        pids = later;
    }
    found
}

fn add(found: &mut FxHashMap<u32, i32>, pid: i32, sockets: Vec<u32>) {
    for inode in sockets {
        found.entry(inode).and_modify(|known| *known = pid.min(*known)).or_insert(pid);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn our_own_socket_is_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = link.to_str().unwrap().trim_matches(|digit: char| !digit.is_ascii_digit()).parse().unwrap();
        let own = std::process::id().cast_signed();
        let wanted = [inode, u32::MAX].into_iter().collect();
        assert_eq!(sockets_of(&Host::default(), own, &wanted), Some(vec![inode]));
        assert_eq!(sockets_of(&Host::default(), i32::MAX, &wanted), None);
    }
}
