//! Sockets of many families, on the loopback device; and a network namespace with devices of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::file;
use crate::netlink::{self, Netlink, attribute, link, neighbour, queue};
use crate::sys::{at, at_mut, call, close, text};

/// Longer than the first retransmission timeout.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn all(dir: &Path) {
    let _ = streams();
    let _ = datagrams();
    let _ = datagrams_of_six();
    let _ = refused();
    let _ = reset();
    let _ = dropped();
    let _ = local(dir);
    let _ = many_paths();
    other_families();
}

fn streams() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    let fd = client.as_raw_fd() as usize;
    client.write_all(b"hello")?;
    server.read_exact(&mut [0; 5])?;
    call(libc::SYS_sendto, [fd, at(b"!"), 1, libc::MSG_OOB as usize, 0, 0]);
    let len = 1 << 18;
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&vec![3; len]));
        let mut all = vec![0; len];
        server.read_exact(&mut all)
    })?;
    let mut info = [0u8; 256];
    let mut size = 256u32;
    call(
        libc::SYS_getsockopt,
        [fd, libc::IPPROTO_TCP as usize, libc::TCP_INFO as usize, at_mut(&mut info), at_mut(&mut size)],
    );
    call(libc::SYS_getpeername, [fd, at_mut(&mut info), at_mut(&mut size)]);
    client.shutdown(Shutdown::Write)?;
    server.read_to_end(&mut Vec::new())?;
    drop((client, server, listener));
    let six = TcpListener::bind("[::1]:0")?;
    drop(TcpStream::connect(six.local_addr()?)?.write_all(b"hello"));
    drop(six.accept()?);
    Ok(())
}

fn datagrams() -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let other = UdpSocket::bind("127.0.0.1:0")?;
    let fd = other.as_raw_fd() as usize;
    let smallest = 1i32;
    call(libc::SYS_setsockopt, [fd, libc::SOL_SOCKET as usize, libc::SO_RCVBUF as usize, at(&smallest), 4]);
    for _ in 0..20 {
        socket.send_to(&[5; 1000], other.local_addr()?)?; // the queue has no room for most of these
    }
    other.recv_from(&mut [0; 1000])?;
    socket.connect(other.local_addr()?)?;
    let words = *b"by sendmmsg";
    let vector = [at(&words), words.len()];
    let mut message = [0usize; 8];
    (message[2], message[3]) = (at(&vector), 1);
    let fd = socket.as_raw_fd() as usize;
    call(libc::SYS_sendmmsg, [fd, at_mut(&mut message), 1, 0]);
    call(libc::SYS_sendmsg, [fd, at(&message), 0]);
    let mut bytes = [0u8; 64];
    let vector = [at_mut(&mut bytes), bytes.len()];
    message[2] = at(&vector);
    let fd = other.as_raw_fd() as usize;
    call(libc::SYS_recvmmsg, [fd, at_mut(&mut message), 1, libc::MSG_DONTWAIT as usize, 0]);
    call(libc::SYS_recvmsg, [fd, at_mut(&mut message), libc::MSG_DONTWAIT as usize]);
    drop(other);
    let _ = socket.send(b"nobody is there");
    let _ = socket.send(b"nobody is there"); // the error of the first packet has arrived
    Ok(())
}

fn datagrams_of_six() -> io::Result<()> {
    let six = UdpSocket::bind("[::1]:0")?;
    six.send_to(b"hello", six.local_addr()?)?;
    six.recv_from(&mut [0; 5])?;
    let gone = UdpSocket::bind("[::1]:0")?.local_addr()?;
    six.send_to(b"nobody is there", gone).map(drop)
}

fn refused() -> io::Result<()> {
    let gone = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    drop(TcpStream::connect(gone));
    let gone = TcpListener::bind("[::1]:0")?.local_addr()?;
    TcpStream::connect(gone).map(drop)
}

/// Closes with unread bytes: the peer gets a reset.
fn reset() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.write_all(b"unread")?;
    drop(server);
    client.read(&mut [0; 8]).map(drop)
}

/// A filter drops incoming packets until the peer retransmits.
fn dropped() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    let nothing = 0x0000_0000_0000_0006u64; // `return 0`
    let program = [1usize, at(&nothing)];
    let (fd, level) = (server.as_raw_fd() as usize, libc::SOL_SOCKET as usize);
    call(libc::SYS_setsockopt, [fd, level, libc::SO_ATTACH_FILTER as usize, at(&program), 16]);
    client.write_all(b"again and again")?;
    call(libc::SYS_setsockopt, [fd, level, libc::SO_DETACH_FILTER as usize, at(&0i32), 4]);
    server.set_read_timeout(Some(PATIENCE))?;
    server.read_exact(&mut [0; 15])
}

fn local(dir: &Path) -> io::Result<()> {
    let name = file(dir, "socket.of.ours");
    let listener = UnixListener::bind(&name)?;
    let mut client = UnixStream::connect(&name)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"hello")?;
    server.read_exact(&mut [0; 5])?;
    let (one, other) = UnixDatagram::pair()?;
    one.send(b"hello")?;
    other.recv(&mut [0; 5])?;
    let mut ends = [0i32; 2];
    call(libc::SYS_socketpair, [libc::AF_UNIX as usize, libc::SOCK_SEQPACKET as usize, 0, at_mut(&mut ends)]);
    call(libc::SYS_write, [ends[0] as usize, at(b"hello"), 5]);
    ends.iter().for_each(|&end| close(end as isize));
    Ok(())
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let fd = call(libc::SYS_socket, [family as usize, kind as usize, protocol as usize]);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Multipath TCP.
fn many_paths() -> io::Result<()> {
    const IPPROTO_MPTCP: i32 = 262;
    let listener = TcpListener::from(socket(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_MPTCP)?);
    let client = socket(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_MPTCP)?;
    let any = address(Ipv4Addr::LOCALHOST, 0);
    call(libc::SYS_bind, [listener.as_raw_fd() as usize, at(&any), 16]);
    call(libc::SYS_listen, [listener.as_raw_fd() as usize, 1]);
    let SocketAddr::V4(there) = listener.local_addr()? else { return Ok(()) };
    call(libc::SYS_connect, [client.as_raw_fd() as usize, at(&address(*there.ip(), there.port())), 16]);
    let (mut server, _) = listener.accept()?;
    let mut client = TcpStream::from(client);
    client.write_all(b"hello")?;
    server.read_exact(&mut [0; 5])?;
    server.write_all(b"hello")?;
    client.read_exact(&mut [0; 5])
}

/// `sockaddr_in`.
fn address(ip: Ipv4Addr, port: u16) -> [u8; 16] {
    let mut all = [0; 16];
    all[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    all[2..4].copy_from_slice(&port.to_be_bytes());
    all[4..8].copy_from_slice(&ip.octets());
    all
}

/// Sockets of other families, created and closed; with raw sockets, an echo on the loopback device.
fn other_families() {
    for family in [libc::AF_PACKET, libc::AF_NETLINK, libc::AF_VSOCK, libc::AF_ALG, libc::AF_KEY, libc::AF_XDP] {
        for kind in [libc::SOCK_RAW, libc::SOCK_DGRAM, libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            drop(socket(family, kind, 0));
        }
    }
    if let Ok(raw) = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) {
        let echo = [8u8, 0, 0xf7, 0xff, 0, 0, 0, 0];
        let there = address(Ipv4Addr::LOCALHOST, 0);
        call(libc::SYS_sendto, [raw.as_raw_fd() as usize, at(&echo), 8, 0, at(&there), 16]);
        call(
            libc::SYS_recvfrom,
            [raw.as_raw_fd() as usize, at_mut(&mut [0u8; 64]), 64, libc::MSG_DONTWAIT as usize, 0, 0],
        );
    }
    if let Ok(bad) = socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) {
        let on = 1i32;
        call(libc::SYS_setsockopt, [bad.as_raw_fd() as usize, 270, 11, at(&on), 4]); // NETLINK_EXT_ACK
    }
    // The machine itself as the peer.
    if let Ok(near) = socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0) {
        let mut there = [0u8; 16];
        there[..2].copy_from_slice(&(libc::AF_VSOCK as u16).to_ne_bytes());
        there[4..8].copy_from_slice(&1234u32.to_ne_bytes());
        there[8..12].copy_from_slice(&1u32.to_ne_bytes());
        call(libc::SYS_connect, [near.as_raw_fd() as usize, at(&there), 16]);
    }
}

/// A namespace with its own loopback device, a pair of devices and a bridge, if the kernel supports these.
pub fn namespace(_dir: &Path) {
    if call(libc::SYS_unshare, [libc::CLONE_NEWNET as usize]) != 0 {
        return;
    }
    let netlink = Netlink::new();
    netlink.ask(netlink::NEW_LINK, &link(1, true));
    for kind in [&b"pfifo\0"[..], b"bfifo\0", b"prio\0", b"fq_codel\0", b"nothing of the kind\0"] {
        netlink.ask(netlink::NEW_QDISC, &queue(1, kind));
        let _ = streams();
        let _ = datagrams();
    }
    netlink.ask(netlink::DEL_QDISC, &queue(1, b"pfifo\0"));
    devices(&netlink);
    refused_packets(&netlink);
    netlink.ask(netlink::NEW_LINK, &link(77, true)); // there is no such device
}

/// The first device that is created has an index above that of the loopback device; all of these are tried.
const INDEXES: std::ops::Range<u32> = 2..12;

fn devices(netlink: &Netlink) {
    for (name, kind) in [(c"every0", &b"veth"[..]), (c"every1", b"dummy"), (c"every2", b"bridge")] {
        let info = attribute(1, kind);
        let body = [link(0, false), attribute(3, name.to_bytes_with_nul()), attribute(18, &info)].concat();
        netlink.ask(netlink::NEW_LINK, &body);
    }
    let bridge = call(libc::SYS_socket, [libc::AF_INET as usize, libc::SOCK_DGRAM as usize, 0]);
    let mut request = [0u8; 40];
    request[..6].copy_from_slice(b"every2");
    call(libc::SYS_ioctl, [bridge as usize, 0x8933, at_mut(&mut request)]); // SIOCGIFINDEX
    close(bridge);
    for index in INDEXES {
        let own = [10, 9, index as u8, 1];
        let mut body = vec![libc::AF_INET as u8, 24, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend([attribute(1, &own), attribute(2, &own)].concat());
        netlink.ask(netlink::NEW_ADDR, &body);
        netlink.ask(netlink::NEW_LINK, &link(index, true));
        netlink.ask(netlink::NEW_LINK, &[link(index, true), attribute(10, &request[16..20])].concat());
        let known = [attribute(1, &[10, 9, index as u8, 7]), attribute(2, &[2, 0, 0, 0, 0, 7])].concat();
        for question in [netlink::NEW_NEIGH, netlink::DEL_NEIGH] {
            netlink.ask(question, &[neighbour(libc::AF_INET as u8, index, 0), known.clone()].concat());
        }
        let station = attribute(2, &[2, 0, 0, 0, 0, index as u8]);
        for flags in [2, 4] {
            // for the device itself, for its bridge
            netlink
                .ask(netlink::NEW_NEIGH, &[neighbour(libc::AF_BRIDGE as u8, index, flags), station.clone()].concat());
            netlink
                .ask(netlink::DEL_NEIGH, &[neighbour(libc::AF_BRIDGE as u8, index, flags), station.clone()].concat());
        }
        if let Ok(socket) = UdpSocket::bind("0.0.0.0:0") {
            let _ = socket.send_to(b"who is there", (Ipv4Addr::new(10, 9, index as u8, 9), 9));
        }
    }
    netlink.ask(netlink::NEW_ROUTE, &[libc::AF_INET as u8, 0, 0, 0, 254, 4, 0, 7, 0, 0, 0, 0]);
    INDEXES.for_each(|index| netlink.ask(netlink::DEL_LINK, &link(index, false)));
}

/// An XDP program on the loopback device that returns an invalid verdict for each packet.
fn refused_packets(netlink: &Netlink) {
    let code: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095]; // `return XDP_ABORTED`
    let mut attributes = [0u64; 18];
    attributes[0] = 6 | 2 << 32; // BPF_PROG_TYPE_XDP, number of instructions
    attributes[1] = at(&code) as u64;
    attributes[2] = text(c"GPL") as u64;
    let program = call(libc::SYS_bpf, [5, at_mut(&mut attributes), 128]);
    if program == -1 {
        return;
    }
    let nested = [attribute(1, &(program as i32).to_ne_bytes()), attribute(3, &2u32.to_ne_bytes())].concat();
    netlink.ask(netlink::NEW_LINK, &[link(1, true), attribute(43 | 0x8000, &nested)].concat());
    if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let _ = socket.send_to(b"refused", there);
    }
    close(program);
}
