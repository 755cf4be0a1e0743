//! Sockets whose queue for accept is full. No event tells of that: the kernel counts what it drops, by socket and in all.

use std::fs;
use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::Host;
use crate::profilers::net::endpoint::{address_value, port_value};
use crate::report::{Basis, Column, Schema, Value};
use crate::sys::tcp_sockets::{TcpSocket, listening_sockets};
use crate::task::{Comm, procfs, sockets};

/// A listening socket that has dropped packets of peers, or whose queue is full.
#[derive(Clone, Debug)]
pub struct ListenerRow {
    pub pid: i32,
    pub comm: Comm,
    pub address: IpAddr,
    pub port: u16,
    pub dropped: u64,
    pub queued: Option<u64>,
    pub backlog: Option<u64>,
}

pub static LISTENERS: Schema<ListenerRow> = Schema::<ListenerRow>::new(
    "listeners",
    &[
        Column::<ListenerRow>::label("pid", "pid", |row| match row.pid {
            0 => Value::None,
            pid => Value::Signed(pid.into()),
        })
        .if_any(),
        Column::label("comm", "comm", |row| Value::Comm(row.comm)),
        Column::label("address", "address", |row| address_value(Some(row.address))),
        Column::label("port", "port", |row| port_value(row.port)),
        Column::counter("dropped", "dropped", |row| &mut row.dropped),
        Column::gauge("queued", "queued", |row| &mut row.queued),
        Column::gauge("backlog", "backlog", |row| &mut row.backlog),
    ],
)
.explained(&[
    ("pid", "a process that has the socket"),
    ("comm", "its name"),
    ("address", "the address at which it listens"),
    ("port", "the port"),
    ("dropped", "packets of peers that want to connect, dropped since the queue was full; the peers repeat them"),
    ("queued", "connections that wait for accept as the interval ends"),
    ("backlog", "the limit of these: the argument of listen, at most `net.core.somaxconn`"),
])
.titled("listening sockets whose queue was full")
.rests_on(Basis::Counters)
.ordered(|one, other| {
    other.dropped.cmp(&one.dropped).then((one.port, one.address, one.pid).cmp(&(other.port, other.address, other.pid)))
});

/// The sockets of this network namespace that listen, as they were last time.
#[derive(Debug, Default)]
pub struct Listeners {
    host: Host,
    /// Packets that each socket has dropped, by cookie.
    dropped: FxHashMap<u64, u32>,
    /// A process that has the socket, by cookie.
    owners: FxHashMap<u64, (i32, Comm)>,
    /// Listen queues that overflowed in all, and packets that were dropped so.
    counted: Option<[u64; 2]>,
}

impl Listeners {
    pub fn new(host: &Host) -> Listeners {
        Listeners { host: host.clone(), ..Listeners::default() }
    }

    /// Takes the counts at the start. Returns the ports at which somebody listens.
    pub fn begin(&mut self) -> FxHashSet<u16> {
        let sockets = listening_sockets().unwrap_or_default();
        self.counted = self.count();
        self.dropped = sockets.iter().map(|socket| (socket.cookie, socket.dropped.unwrap_or(0))).collect();
        sockets.iter().map(|socket| socket.port).collect()
    }

    /// Takes the rows since the last call, and how many queues overflowed and how many packets were dropped so.
    pub fn take(&mut self) -> (Vec<ListenerRow>, Option<[u64; 2]>) {
        let sockets = listening_sockets().unwrap_or_default();
        let counted = self.count();
        let new = counted.zip(self.counted).map(|(now, before)| {
            let [overflows, drops] = [0, 1].map(|index: usize| now[index].saturating_sub(before[index]));
            [overflows, drops]
        });
        self.counted = counted;
        let mut full = Vec::new();
        for socket in &sockets {
            let before = self.dropped.get(&socket.cookie).copied().unwrap_or(0);
            let dropped = socket.dropped.unwrap_or(0).wrapping_sub(before);
            if dropped > 0 || socket.queued > socket.backlog {
                full.push((socket, u64::from(dropped)));
            }
        }
        self.find_owners(&full);
        let row = |(socket, dropped): &(&TcpSocket, u64)| {
            let (pid, comm) = self.owners.get(&socket.cookie).copied().unwrap_or_default();
            ListenerRow {
                pid,
                comm,
                address: socket.address.to_canonical(),
                port: socket.port,
                dropped: *dropped,
                queued: Some(socket.queued.into()),
                backlog: Some(socket.backlog.into()),
            }
        };
        let rows = full.iter().map(row).collect();
        self.dropped = sockets.iter().map(|socket| (socket.cookie, socket.dropped.unwrap_or(0))).collect();
        self.owners.retain(|cookie, _| self.dropped.contains_key(cookie));
        (rows, new)
    }

    /// Finds a process for each socket that has none yet.
    fn find_owners(&mut self, full: &[(&TcpSocket, u64)]) {
        let unknown = full.iter().filter(|(socket, _)| !self.owners.contains_key(&socket.cookie));
        let cookies: FxHashMap<u32, u64> = unknown.map(|(socket, _)| (socket.inode, socket.cookie)).collect();
        if cookies.is_empty() {
            return;
        }
        let inodes: Vec<u32> = cookies.keys().copied().collect();
        for (inode, pid) in sockets::owners(&self.host, &inodes) {
            let comm = procfs::comm(&self.host, pid).unwrap_or_default();
            self.owners.extend(cookies.get(&inode).map(|cookie| (*cookie, (pid, comm))));
        }
        for cookie in cookies.values() {
            self.owners.entry(*cookie).or_default(); // not looked for again
        }
    }

    /// The counts of the network namespace since it exists.
    fn count(&self) -> Option<[u64; 2]> {
        let text = fs::read_to_string(self.host.proc.join("net/netstat")).ok()?;
        parse_counts(&text)
    }
}

/// `ListenOverflows` and `ListenDrops` in the text of /proc/net/netstat: a line of names, and one of numbers.
fn parse_counts(text: &str) -> Option<[u64; 2]> {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, numbers) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
    let counts: FxHashMap<&str, &str> = names.zip(numbers).collect();
    let count = |name| counts.get(name)?.parse().ok();
    Some([count("ListenOverflows")?, count("ListenDrops")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 33\nIpExt: A\nIpExt: 7\n";
        assert_eq!(parse_counts(text), Some([22, 33]));
        for text in ["", "TcpExt: ListenDrops\n", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1\n"] {
            assert_eq!(parse_counts(text), None, "{text:?}");
        }
    }
}
