//! The TCP sockets of this network namespace, from the kernel's socket diagnostics, sock_diag(7): those that listen, with
//! their queues, and those that are connected.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::sys::replayed;

/// A socket that listens or is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// The kernel's own number of the socket, which no other socket gets.
    pub cookie: u64,
    pub address: IpAddr,
    pub port: u16,
    /// The other end; of a socket that listens no address, and port 0.
    pub peer: (IpAddr, u16),
    /// Connections that wait for accept; of a socket that is connected, bytes that were not read.
    pub queued: u32,
    /// The limit of these connections; of a socket that is connected, bytes that were not acknowledged.
    pub backlog: u32,
    pub inode: u32,
    /// Packets of peers that were dropped since the socket listens: mostly since its queue was full. None: this kernel
    /// does not tell.
    pub dropped: Option<u32>,
}

/// The sockets that the kernel has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketListing {
    pub sockets: Vec<TcpSocket>,
    /// False: there are more than the limit, or some may be missing since sockets changed meanwhile.
    pub is_whole: bool,
}

/// Limit of sockets that are read.
const MAX_SOCKETS: usize = 20_000;
/// Limit of answers that are read for a family, each of some hundred sockets.
const MAX_ANSWERS: usize = 1000;
/// More than the kernel puts into an answer.
const ANSWER_BYTES: usize = 64 << 10;

// include/uapi/linux/sock_diag.h, inet_diag.h, netlink.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_SKMEMINFO: u16 = 7;
const SK_MEMINFO_DROPS: usize = 8;
/// States as bits, include/net/tcp_states.h: all that belong to a connection with an owner.
const CONNECTED: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
const LISTENING: u32 = 1 << 10;
const HEADER_BYTES: usize = 16;
/// Flag of a message, include/uapi/linux/netlink.h: the list changed while it was read.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;

/// All sockets that listen, or as many as the limit allows; none in a replay.
///
/// # Errors
/// The kernel has no socket diagnostics, or does not allow them.
pub fn listening_sockets() -> io::Result<SocketListing> {
    sockets_in(LISTENING)
}

/// All sockets that are connected or try to be, or as many as the limit allows; none in a replay.
///
/// # Errors
/// As [`listening_sockets`].
pub fn connected_sockets() -> io::Result<SocketListing> {
    sockets_in(CONNECTED)
}

fn sockets_in(states: u32) -> io::Result<SocketListing> {
    let mut listing = SocketListing { sockets: Vec::new(), is_whole: true };
    if replayed::is_on() {
        return Ok(listing);
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let diagnostics = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?;
    let mut answer = vec![0; ANSWER_BYTES];
    for family in [libc::AF_INET, libc::AF_INET6] {
        send(diagnostics.as_raw_fd(), &request(family as u8, states), MsgFlags::empty())?;
        let mut is_over = false;
        for _ in 0..MAX_ANSWERS {
            let bytes = recv(diagnostics.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
            is_over = parse_answer(&answer[..bytes], &mut listing)?;
            if is_over {
                break;
            }
        }
        listing.is_whole &= is_over;
    }
    Ok(listing)
}

/// Asks for the sockets of a family in these states: `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: u8, states: u32) -> Vec<u8> {
    const REQUEST_BYTES: u32 = 16 + 56;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let extensions = 1 << (INET_DIAG_SKMEMINFO - 1);
    let mut request = Vec::with_capacity(REQUEST_BYTES as usize);
    request.extend(REQUEST_BYTES.to_ne_bytes());
    request.extend([SOCK_DIAG_BY_FAMILY, flags].map(u16::to_ne_bytes).concat());
    request.extend([0; 8]); // sequence and sender
    request.extend([family, libc::IPPROTO_TCP as u8, extensions, 0]);
    request.extend(states.to_ne_bytes());
    request.resize(REQUEST_BYTES as usize, 0);
    request
}

/// Adds the sockets of an answer. True: it was the last one.
fn parse_answer(mut answer: &[u8], listing: &mut SocketListing) -> io::Result<bool> {
    while let Some(header) = answer.first_chunk::<HEADER_BYTES>() {
        let length = word(header, 0).unwrap_or(0) as usize;
        let Some(message) = answer.get(HEADER_BYTES..length) else { return Err(io::ErrorKind::InvalidData.into()) };
        listing.is_whole &= u16::from_ne_bytes([header[6], header[7]]) & NLM_F_DUMP_INTR == 0;
        match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let errno = word(message, 0).unwrap_or(0).cast_signed().wrapping_neg();
                return Err(Errno::from_raw(errno).into());
            }
            _ if listing.sockets.len() < MAX_SOCKETS => listing.sockets.extend(parse_socket(message)),
            _ => listing.is_whole = false,
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// A `struct inet_diag_msg` with its attributes.
fn parse_socket(message: &[u8]) -> Option<TcpSocket> {
    let is_v4 = i32::from(*message.first()?) == libc::AF_INET;
    let address = |offset: usize| {
        let bytes = message.get(offset..)?.first_chunk::<16>()?;
        let v4 = || IpAddr::from(Ipv4Addr::from([bytes[0], bytes[1], bytes[2], bytes[3]]));
        Some(if is_v4 { v4() } else { Ipv6Addr::from(*bytes).into() })
    };
    let port = |offset: usize| Some(u16::from_be_bytes(*message.get(offset..)?.first_chunk()?));
    let mut socket = TcpSocket {
        cookie: u64::from(word(message, 44)?) | u64::from(word(message, 48)?) << 32,
        address: address(8)?,
        port: port(4)?,
        peer: (address(24)?, port(6)?),
        queued: word(message, 56)?,
        backlog: word(message, 60)?,
        inode: word(message, 68)?,
        dropped: None,
    };
    let mut attributes = message.get(MESSAGE_BYTES..)?;
    while let Some(head) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) == INET_DIAG_SKMEMINFO {
            socket.dropped = word(value, SK_MEMINFO_DROPS * 4);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(socket)
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + body.len()) as u32;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    }

    fn body() -> Vec<u8> {
        let mut body = vec![0; MESSAGE_BYTES];
        (body[0], body[5]) = (libc::AF_INET as u8, 80);
        body[8..12].copy_from_slice(&[10, 0, 0, 7]);
        for (offset, number) in [(44, 5_u32), (48, 1), (56, 3), (60, 2), (68, 77)] {
            body[offset..offset + 4].copy_from_slice(&number.to_ne_bytes());
        }
        body.extend([&40_u16.to_ne_bytes()[..], &INET_DIAG_SKMEMINFO.to_ne_bytes(), &[0; 32]].concat());
        body.extend([&8_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[0; 4]].concat());
        body[MESSAGE_BYTES..MESSAGE_BYTES + 2].copy_from_slice(&40_u16.to_ne_bytes());
        let drops = MESSAGE_BYTES + 4 + SK_MEMINFO_DROPS * 4;
        body.splice(drops..drops, 9_u32.to_ne_bytes());
        body
    }

    fn nothing() -> SocketListing {
        SocketListing { sockets: Vec::new(), is_whole: true }
    }

    #[test]
    fn sockets_are_parsed() {
        let answer = [message(SOCK_DIAG_BY_FAMILY, &body()), message(libc::NLMSG_DONE as u16, &[0; 4])].concat();
        let mut listing = nothing();
        assert!(parse_answer(&answer, &mut listing).unwrap() && listing.is_whole);
        let [socket] = listing.sockets[..] else { panic!("one socket: {listing:?}") };
        assert_eq!((socket.address.to_string(), socket.port), ("10.0.0.7".to_owned(), 80));
        assert_eq!((socket.cookie, socket.queued, socket.backlog, socket.inode), (5 | 1 << 32, 3, 2, 77));
        let mut changed = answer;
        changed[6] |= NLM_F_DUMP_INTR as u8;
        assert!(parse_answer(&changed, &mut listing).unwrap() && !listing.is_whole, "some may be missing");
        let mut full = SocketListing { sockets: vec![socket; MAX_SOCKETS], is_whole: true };
        assert!(!parse_answer(&message(SOCK_DIAG_BY_FAMILY, &body()), &mut full).unwrap() && !full.is_whole);
        assert_eq!(full.sockets.len(), MAX_SOCKETS);
    }

    #[test]
    fn hostile_answers_are_refused() {
        let whole = message(SOCK_DIAG_BY_FAMILY, &body());
        for cut in 0..whole.len() {
            let mut listing = nothing();
            let parsed = parse_answer(&whole[..cut], &mut listing);
            assert!(listing.sockets.is_empty() && (parsed.is_err() || cut < HEADER_BYTES), "cut at {cut}");
        }
        for length in [0_u32, 1, 15, 17, u32::MAX] {
            let mut lies = whole.clone();
            lies[..4].copy_from_slice(&length.to_ne_bytes());
            let _ = parse_answer(&lies, &mut nothing()); // ends
        }
        for length in [0_u16, 1, 3, 5, u16::MAX] {
            let mut lies = body();
            lies[MESSAGE_BYTES..MESSAGE_BYTES + 2].copy_from_slice(&length.to_ne_bytes());
            let _ = parse_socket(&lies); // ends
        }
        let error = message(libc::NLMSG_ERROR as u16, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(parse_answer(&error, &mut nothing()).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn our_own_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Ok(listing) = listening_sockets() else { return }; // not in this kernel
        let own = listing.sockets.iter().find(|socket| socket.port == port).expect("it listens");
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connected = connected_sockets().unwrap().sockets;
        let client = connected.into_iter().find(|socket| socket.peer.1 == port).expect("it is there");
        assert_eq!((client.address, client.peer.0), (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()));
        assert_eq!((own.address, own.queued), (IpAddr::from(Ipv4Addr::LOCALHOST), 0));
        assert!(own.backlog > 0 && own.cookie != 0 && own.inode != 0);
    }
}
