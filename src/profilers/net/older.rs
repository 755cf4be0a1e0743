//! Whose the connections are that are older than the run: those of this network namespace, as they were at its start.

use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::profilers::net::endpoint::{Endpoint, Ends};
use crate::sys::tcp_sockets::{TcpSocket, connected_sockets};
use crate::task::{Comm, procfs, sockets};

/// Limit of connections whose processes are looked for: a question has the numbers of all of them.
const MAX_CONNECTIONS: usize = 8000;

/// The processes of connections, by their ends.
#[derive(Debug, Default)]
pub struct OlderConnections(FxHashMap<Ends, (i32, Comm)>);

impl OlderConnections {
    /// Looks at all processes: those that may not be read are left out.
    pub fn read(host: &Host) -> OlderConnections {
        let mut connected = connected_sockets().unwrap_or_default();
        connected.truncate(MAX_CONNECTIONS);
        if connected.is_empty() {
            return OlderConnections::default();
        }
        let inodes: Vec<u32> = connected.iter().map(|socket| socket.inode).filter(|inode| *inode != 0).collect();
        let owners = sockets::owners(host, &inodes);
        let mut comms: FxHashMap<i32, Comm> = FxHashMap::default();
        let owned = connected.iter().filter_map(|socket| Some((socket, *owners.get(&socket.inode)?)));
        let by_ends = owned.map(|(socket, pid)| {
            let comm = *comms.entry(pid).or_insert_with(|| procfs::comm(host, pid).unwrap_or_default());
            (ends(socket), (pid, comm))
        });
        OlderConnections(by_ends.collect())
    }

    pub fn owner(&self, ends: &Ends) -> Option<(i32, Comm)> {
        self.0.get(ends).copied()
    }

    /// Another connection has these ends now.
    pub fn reused(&mut self, ends: &Ends) {
        self.0.remove(ends);
    }
}

fn ends(socket: &TcpSocket) -> Ends {
    let (address, port) = socket.peer;
    Ends { local: Endpoint::new(socket.address, socket.port), peer: Endpoint::new(address, port) }
}
