//! Whose the connections are that are older than the run: those of this network namespace, as they were at its start.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::profilers::net::endpoint::{Endpoint, Ends};
use crate::profilers::net::owners::{SocketOwner, SocketOwners};
use crate::sys::tcp_sockets::{TcpSocket, connected_sockets};

/// Limit of connections whose processes are looked for: a question has the numbers of all of them.
const MAX_CONNECTIONS: usize = 8000;
/// So long the start of the run waits for their processes at most: those that are found later are told later.
const PATIENCE: Duration = Duration::from_millis(300);

/// The sockets of connections, by their ends.
#[derive(Debug, Default)]
pub struct OlderConnections {
    inodes: FxHashMap<Ends, u32>,
    owners: Option<Arc<SocketOwners>>,
}

impl OlderConnections {
    /// Looks at all processes: those that may not be read are left out.
    pub fn read(owners: &Arc<SocketOwners>) -> OlderConnections {
        let mut connected = connected_sockets().map(|listing| listing.sockets).unwrap_or_default();
        connected.truncate(MAX_CONNECTIONS);
        connected.retain(|socket| socket.inode != 0);
        let inodes: FxHashMap<Ends, u32> = connected.iter().map(|socket| (ends(socket), socket.inode)).collect();
        if !inodes.is_empty() {
            owners.ask(inodes.values().copied().collect(), PATIENCE);
        }
        OlderConnections { inodes, owners: Some(owners.clone()) }
    }

    pub fn owner(&self, ends: &Ends) -> Option<SocketOwner> {
        self.owners.as_ref()?.owner(*self.inodes.get(ends)?)
    }

    /// Another connection has these ends now.
    pub fn reused(&mut self, ends: &Ends) {
        self.inodes.remove(ends);
    }
}

fn ends(socket: &TcpSocket) -> Ends {
    let (address, port) = socket.peer;
    Ends { local: Endpoint::new(socket.address, socket.port), peer: Endpoint::new(address, port) }
}
