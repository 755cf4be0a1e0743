//! Sockets whose queue for accept is full. No event tells of that: the kernel counts what it drops, by socket and in all.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::Host;
use crate::profilers::net::endpoint::{address_value, port_value};
use crate::profilers::net::owners::SocketOwners;
use crate::report::{Basis, Column, Schema, Value};
use crate::sys::monotonic_ns;
use crate::sys::tcp_sockets::{SocketListing, TcpSocket, listening_sockets};
use crate::task::Comm;

/// A socket whose process is not found is asked about again after so long.
const ASK_AGAIN_NS: u64 = 10_000_000_000;
/// So long an interval waits for the process of a new socket, whose next row has it otherwise.
const PATIENCE: Duration = Duration::from_millis(50);
/// Limit of sockets whose counts are kept although a listing that was not whole lacks them.
const MAX_KEPT: usize = 40_000;

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
#[derive(Debug)]
pub struct Listeners {
    host: Host,
    seen: SeenListeners,
    owners: Arc<SocketOwners>,
    /// When the process of a socket was asked for, ns, by inode.
    asked: FxHashMap<u32, u64>,
    /// Listen queues that overflowed in all, and packets that were dropped so.
    counted: Option<[u64; 2]>,
}

/// What sockets that listen had dropped when they were seen last.
#[derive(Debug, Default)]
struct SeenListeners {
    /// By cookie. None: the kernel does not tell.
    dropped: FxHashMap<u64, Option<u32>>,
    /// The last listing had all sockets: those that it lacked are new.
    is_whole: bool,
}

impl SeenListeners {
    /// Takes a listing. Returns the sockets whose queue is full or which have dropped packets since the last one, with
    /// the number of these packets.
    fn update(&mut self, listing: &SocketListing) -> Vec<(TcpSocket, u64)> {
        let mut full = Vec::new();
        let mut dropped = FxHashMap::default();
        for socket in &listing.sockets {
            if dropped.insert(socket.cookie, socket.dropped).is_some() {
                continue; // it was told twice
            }
            let before = match self.dropped.get(&socket.cookie) {
                Some(before) => *before,
                None if self.is_whole => Some(0),
                None => None, // it may be an old one
            };
            let new = socket.dropped.zip(before).map_or(0, |(now, before)| now.wrapping_sub(before));
            if new > 0 || socket.queued > socket.backlog {
                full.push((*socket, u64::from(new)));
            }
        }
        self.is_whole = listing.is_whole;
        if !listing.is_whole && self.dropped.len() < MAX_KEPT {
            self.dropped.extend(dropped);
        } else {
            self.dropped = dropped;
        }
        full
    }
}

impl Listeners {
    pub fn new(host: &Host, owners: Arc<SocketOwners>) -> Listeners {
        let (seen, asked, counted) = Default::default();
        Listeners { host: host.clone(), seen, owners, asked, counted }
    }

    /// Takes the counts at the start. Returns the ports at which somebody listens.
    pub fn begin(&mut self) -> FxHashSet<u16> {
        self.counted = self.count();
        let Ok(listing) = listening_sockets() else { return FxHashSet::default() };
        self.seen.update(&listing);
        listing.sockets.iter().map(|socket| socket.port).collect()
    }

    /// Takes the rows since the last call, and how many queues overflowed and how many packets were dropped so since the
    /// last call that was not `quiet`.
    pub fn take(&mut self, quiet: bool) -> (Vec<ListenerRow>, Option<[u64; 2]>) {
        let counted = self.count();
        let new = counted.zip(self.counted).map(|(now, before)| {
            let [overflows, drops] = [0, 1].map(|index: usize| now[index].saturating_sub(before[index]));
            [overflows, drops]
        });
        if !quiet {
            self.counted = counted;
        }
        let Ok(listing) = listening_sockets() else { return (Vec::new(), new) };
        let full = self.seen.update(&listing);
        self.ask(&full);
        (rows(&full, |inode| self.owners.owner(inode).unwrap_or_default()), new)
    }

    /// Asks for a process of each socket that has none yet.
    fn ask(&mut self, full: &[(TcpSocket, u64)]) {
        let now = monotonic_ns();
        self.asked.retain(|_, asked_ns| now.saturating_sub(*asked_ns) < ASK_AGAIN_NS);
        let inodes = full.iter().map(|(socket, _)| socket.inode);
        let is_unknown = |inode: &u32| !self.asked.contains_key(inode) && self.owners.owner(*inode).is_none();
        let unknown: Vec<u32> = inodes.filter(is_unknown).collect();
        if !unknown.is_empty() && self.owners.ask(unknown.clone(), PATIENCE) {
            self.asked.extend(unknown.into_iter().map(|inode| (inode, now)));
        }
    }

    /// The counts of the network namespace since it exists.
    fn count(&self) -> Option<[u64; 2]> {
        let text = fs::read_to_string(self.host.proc.join("net/netstat")).ok()?;
        parse_counts(&text)
    }
}

/// The rows of full sockets: those of a process that listen at the same address and port (SO_REUSEPORT) are one.
fn rows(full: &[(TcpSocket, u64)], owner: impl Fn(u32) -> (i32, Comm)) -> Vec<ListenerRow> {
    let mut rows: FxHashMap<(i32, IpAddr, u16), ListenerRow> = FxHashMap::default();
    for (socket, dropped) in full {
        let (pid, comm) = owner(socket.inode);
        let (address, port) = (socket.address.to_canonical(), socket.port);
        let row = rows.entry((pid, address, port)).or_insert_with(|| {
            let (queued, backlog) = (Some(0), Some(0));
            ListenerRow { pid, comm, address, port, dropped: 0, queued, backlog }
        });
        row.dropped += dropped;
        row.queued = row.queued.map(|queued| queued + u64::from(socket.queued));
        row.backlog = row.backlog.map(|backlog| backlog + u64::from(socket.backlog));
    }
    rows.into_values().collect()
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

    fn socket(cookie: u64, dropped: Option<u32>) -> TcpSocket {
        let address = IpAddr::from([127, 0, 0, 1]);
        let (port, inode) = (80, cookie as u32);
        TcpSocket { cookie, address, port, peer: (address, 0), queued: 3, backlog: 4, inode, dropped }
    }

    fn new_drops(seen: &mut SeenListeners, sockets: &[TcpSocket], is_whole: bool) -> Vec<(u64, u64)> {
        let full = seen.update(&SocketListing { sockets: sockets.to_vec(), is_whole });
        full.into_iter().map(|(socket, new)| (socket.cookie, new)).collect()
    }

    #[test]
    fn drops_of_earlier_are_not_those_of_an_interval() {
        let mut seen = SeenListeners::default();
        assert!(new_drops(&mut seen, &[socket(1, Some(7))], true).is_empty(), "at the start");
        assert_eq!(new_drops(&mut seen, &[socket(1, Some(9)), socket(2, Some(1))], true), [(1, 2), (2, 1)]);
        let twice = [socket(1, Some(10)), socket(1, Some(10))];
        assert_eq!(new_drops(&mut seen, &twice, false), [(1, 1)], "told twice, and the other one is missing");
        let all = [socket(1, Some(10)), socket(2, Some(2)), socket(3, Some(50))];
        assert_eq!(new_drops(&mut seen, &all, true), [(2, 1)], "the third may have been there");
        assert!(new_drops(&mut seen, &[socket(1, None), socket(4, None)], true).is_empty());
        assert!(new_drops(&mut seen, &[socket(1, Some(60))], true).is_empty(), "what it was is not known");
    }

    #[test]
    fn sockets_that_share_a_port_are_one_row() {
        let owner = |inode| (if inode == 3 { 8 } else { 7 }, Comm::default());
        let mut rows = rows(&[(socket(1, None), 2), (socket(2, None), 5), (socket(3, None), 1)], owner);
        rows.sort_by_key(|row| row.pid);
        let told: Vec<_> = rows.iter().map(|row| (row.pid, row.dropped, row.queued, row.backlog)).collect();
        assert_eq!(told, [(7, 7, Some(6), Some(8)), (8, 1, Some(3), Some(4))]);
    }

    #[test]
    fn counts_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 33\nIpExt: A\nIpExt: 7\n";
        assert_eq!(parse_counts(text), Some([22, 33]));
        for text in ["", "TcpExt: ListenDrops\n", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1\n"] {
            assert_eq!(parse_counts(text), None, "{text:?}");
        }
    }
}
