//! Connections on the loopback device whose ends are known, and datagrams that a socket has no room for.
//!
//! `connections REFUSED ACCEPTED RESET DATAGRAMS`: prints `pid=N`, and waits for a line on stdin. Then, one after
//! another: REFUSED connects to a port at which nobody listens, over IPv4, and one over IPv6; ACCEPTED connections that
//! wait 5 ms for accept and are closed; RESET connections that the accepting side ends with a reset; connects to a socket
//! that never accepts, with a backlog of 1: two get into its queue, three are given up after 300 ms, one times out; and
//! DATAGRAMS of 100 bytes to a socket with the smallest receive buffer, which are received only afterwards.
//! Prints `dead_port=N port=N full_port=N udp_port=N received=N dropped=N`: `dropped` packets that ask for connections,
//! as the kernel counts them. Ends after another line on stdin, and until then neither the socket that never accepts
//! nor its two connections are closed.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use std::{env, process, thread};

use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};

const IN_QUEUE: Duration = Duration::from_millis(5);
const UNTIL_GIVEN_UP: Duration = Duration::from_millis(300);

fn main() {
    let args: Vec<usize> = env::args().skip(1).map(|arg| arg.parse().unwrap_or_else(|_| usage())).collect();
    let [refused, accepted, reset, datagrams] = args[..] else { usage() };
    println!("pid={}", process::id());
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");

    let dead_port =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener").local_addr().expect("its port").port();
    let v4 = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, dead_port));
    let v6 = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, dead_port, 0, 0));
    for address in std::iter::repeat_n(v4, refused).chain([v6]) {
        TcpStream::connect(address).expect_err("nobody listens");
    }

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    for number in 0..accepted + reset {
        let client = TcpStream::connect(address).expect("connected");
        thread::sleep(IN_QUEUE);
        let (server, _) = listener.accept().expect("accepted");
        if number >= accepted {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            setsockopt(&server, sockopt::Linger, &linger).expect("linger");
            drop(server);
        }
        drop(client);
    }

    let dropped_before = listen_drops();
    let (full, _queued) = overflow();
    let dropped = listen_drops() - dropped_before;

    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    setsockopt(&receiver, sockopt::RcvBuf, &0).expect("a small buffer");
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for _ in 0..datagrams {
        sender.send_to(&[b'x'; 100], receiver.local_addr().expect("its address")).expect("sent");
    }
    receiver.set_nonblocking(true).expect("nonblocking");
    let received = std::iter::from_fn(|| receiver.recv(&mut [0; 100]).ok()).count();
    println!(
        "dead_port={dead_port} port={} full_port={} udp_port={} received={received} dropped={dropped}",
        address.port(),
        full.local_addr().expect("its address").port(),
        receiver.local_addr().expect("its address").port()
    );
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");
}

/// Connects to a socket that never accepts. Returns it, and the connections in its queue.
fn overflow() -> (TcpListener, [TcpStream; 2]) {
    let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    listen(&full, Backlog::new(1).expect("a backlog")).expect("a smaller backlog");
    let address = full.local_addr().expect("its address");
    let queued = [(); 2].map(|()| TcpStream::connect(address).expect("in the queue"));
    let waiting = [(); 3].map(|()| socket(address.port(), libc::SOCK_NONBLOCK));
    assert!(waiting.iter().all(|(_, errno)| *errno == libc::EINPROGRESS), "{waiting:?}");
    thread::sleep(UNTIL_GIVEN_UP);
    drop(waiting);
    let (_, errno) = socket(address.port(), 0);
    assert_eq!(errno, libc::ETIMEDOUT);
    (full, queued)
}

/// A socket that tries for 100 ms to connect to a port of this machine, with flags, and the error number of that.
fn socket(port: u16, flags: i32) -> (OwnedFd, i32) {
    let limit_ms = 100;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: the kernel reads the number and the address, which live as long as the calls; the new descriptor is owned
    // by nothing else.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0);
        assert!(fd >= 0, "a socket");
        let length = size_of_val(&limit_ms) as u32;
        let set = libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, (&raw const limit_ms).cast(), length);
        assert_eq!(set, 0, "a time limit");
        let result = libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as u32);
        let errno = if result == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(0) };
        (OwnedFd::from_raw_fd(fd), errno)
    }
}

/// `ListenDrops` of /proc/net/netstat.
fn listen_drops() -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").expect("the kernel's counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let mut pairs = names.split(' ').zip(numbers.split(' '));
    let (_, drops) = pairs.find(|(name, _)| *name == "ListenDrops").expect("a counter");
    drops.parse().expect("a number")
}

fn usage() -> ! {
    eprintln!("usage: connections REFUSED ACCEPTED RESET DATAGRAMS");
    process::exit(2);
}
