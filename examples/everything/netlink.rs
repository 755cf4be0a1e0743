//! Requests to the kernel's network stack: devices, addresses, neighbours, queues.

use crate::sys::{at, at_mut, call, close};

pub const NEW_LINK: u16 = 16;
pub const DEL_LINK: u16 = 17;
pub const NEW_ADDR: u16 = 20;
pub const NEW_ROUTE: u16 = 24;
pub const NEW_NEIGH: u16 = 28;
pub const DEL_NEIGH: u16 = 29;
pub const NEW_QDISC: u16 = 36;
pub const DEL_QDISC: u16 = 37;

/// Request flags: request with acknowledgement, create, replace.
const REQUEST: u16 = 1 | 4 | 0x100 | 0x400;

pub struct Netlink(isize);

impl Netlink {
    pub fn new() -> Netlink {
        Netlink(call(libc::SYS_socket, [libc::AF_NETLINK as usize, libc::SOCK_RAW as usize, 0]))
    }

    /// Sends a request and reads the answer, which may be an error.
    pub fn ask(&self, kind: u16, body: &[u8]) {
        let len = 16 + body.len() as u32;
        let mut message = len.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        call(libc::SYS_sendto, [self.0 as usize, at(&message[..]), message.len(), 0, 0, 0]);
        let mut answer = [0u8; 4096];
        call(libc::SYS_recvfrom, [self.0 as usize, at_mut(&mut answer), answer.len(), 0, 0, 0]);
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// An attribute: its size, its type, and its bytes, padded to words.
pub fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let mut all = (4 + bytes.len() as u16).to_ne_bytes().to_vec();
    all.extend(kind.to_ne_bytes());
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// `ifinfomsg`, which sets the device up or leaves it unchanged.
pub fn link(index: u32, up: bool) -> Vec<u8> {
    let mut all = vec![0; 4];
    all.extend(index.to_ne_bytes());
    all.extend(u32::from(up).to_ne_bytes());
    all.extend(u32::from(up).to_ne_bytes());
    all
}

/// `ndmsg`: a permanent neighbour.
pub fn neighbour(family: u8, index: u32, flags: u8) -> Vec<u8> {
    let mut all = vec![family, 0, 0, 0];
    all.extend(index.to_ne_bytes());
    all.extend(0x40u16.to_ne_bytes()); // NUD_NOARP
    all.extend([flags, 0]);
    all
}

/// `tcmsg`, for the queueing discipline of a device.
pub fn queue(index: u32, kind: &[u8]) -> Vec<u8> {
    let mut all = vec![0; 4];
    all.extend(index.to_ne_bytes());
    all.extend(0x10000u32.to_ne_bytes());
    all.extend(u32::MAX.to_ne_bytes()); // TC_H_ROOT
    all.extend([0; 4]);
    all.extend(attribute(1, kind));
    all
}
