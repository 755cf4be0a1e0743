//! A network of a thread's own, whose one device counts what is sent through it and nothing else.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sched::{CloneFlags, unshare};

use super::own_tid;

/// What the kernel counted for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCounts {
    pub bytes: u64,
    pub packets: u64,
}

/// Gives the calling thread, and those it starts later, a network with nothing but a loopback device under a name that no
/// other device has. Returns the name.
///
/// # Errors
/// It is not permitted, or the kernel lacks namespaces.
pub fn own_network() -> io::Result<String> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let name = format!("pp{}", own_tid());
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // A device has a new name before it is up, the address of this host after.
    ask(&socket, libc::SIOCSIFNAME, "lo", |request| {
        let mut new_name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
        for (to, from) in new_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_newname = new_name;
    })?;
    ask(&socket, libc::SIOCSIFFLAGS, &name, |request| request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short)?;
    Ok(name)
}

fn ask(socket: &UdpSocket, what: libc::c_ulong, device: &str, fill: impl FnOnce(&mut libc::ifreq)) -> io::Result<()> {
    // SAFETY: an `ifreq` is plain bytes.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    fill(&mut request);
    // SAFETY: the kernel reads one `ifreq`, whose names end in NUL: they are shorter than the arrays.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a device in the network of the calling thread has sent.
pub fn sent(device: &str) -> DeviceCounts {
    let text = fs::read_to_string("/proc/thread-self/net/dev").expect("counts of devices");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    let numbers: Vec<u64> =
        line.expect("the device").split_whitespace().map(|word| word.parse().expect("a number")).collect();
    DeviceCounts { bytes: numbers[8], packets: numbers[9] }
}
