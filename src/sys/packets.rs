//! Messages with descriptors between processes: a pair of SOCK_SEQPACKET sockets, unix(7), and sealed memory files for
//! data that is too long for a message.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};

/// Limit of the bytes of a message: far below the send buffer of a socket (`net.core.wmem_default`).
pub const MAX_MESSAGE_BYTES: usize = 48 << 10;
/// Limit of the descriptors in a message (SCM_MAX_FD).
pub const MAX_DESCRIPTORS: usize = 253;

/// One message.
#[derive(Debug, Default)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// One end of a pair of sockets.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// Two connected ends, close-on-exec.
///
/// # Errors
/// No descriptor is left.
pub fn pair() -> io::Result<(PacketSocket, PacketSocket)> {
    let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((PacketSocket(one), PacketSocket(other)))
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketSocket {
    /// An end that was received in a message.
    pub fn from_fd(fd: OwnedFd) -> PacketSocket {
        PacketSocket(fd)
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a message, all or nothing, without waiting for room.
    ///
    /// # Errors
    /// The other end is closed, the message is too long, or the other end has too many unread messages.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<UnixAddr>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        Ok(())
    }

    /// Waits for a message. None: the other end is closed.
    ///
    /// # Errors
    /// A message is longer than [`MAX_MESSAGE_BYTES`], or has more descriptors than fit.
    pub fn receive(&self) -> io::Result<Option<Packet>> {
        let mut bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut control = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let (len, files, is_whole) = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(err) => return Err(err.into()),
                Ok(message) => {
                    let mut files = Vec::new();
                    for part in message.cmsgs()? {
                        if let ControlMessageOwned::ScmRights(raw) = part {
                            // SAFETY: the kernel has just installed these descriptors for this process, and nothing
                            // else owns them.
                            files.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                        }
                    }
                    let is_whole = !message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
                    break (message.bytes, files, is_whole);
                }
            }
        };
        if !is_whole {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(len);
        Ok((len > 0).then_some(Packet { bytes, files })) // empty messages are never sent
    }

    /// Waits up to `ms` for a message, or for the other end to be closed. False: neither happened.
    pub fn is_ready_within(&self, ms: u16) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(ms)).is_ok_and(|ready| ready > 0)
    }

    /// True when the other end is closed: its process has ended.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }
}

const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_WRITE);

/// An empty memory file that can be sealed.
///
/// # Errors
/// Memory or descriptors are short.
pub fn memory_file() -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(File::from(memfd_create("perf-prof", flags)?))
}

/// Seals a memory file, which nobody can change from now on.
///
/// # Errors
/// The file was not made by [`memory_file`], or is mapped for writing.
pub fn seal(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(())
}

/// A sealed memory file with these bytes.
///
/// # Errors
/// Memory or descriptors are short.
pub fn sealed(bytes: &[u8]) -> io::Result<File> {
    let mut file = memory_file()?;
    file.write_all(bytes)?;
    seal(&file)?;
    Ok(file)
}

/// The length of a file that was received in a message.
///
/// # Errors
/// The file is not sealed, so its sender could still change it.
pub fn sealed_len(file: &File) -> io::Result<u64> {
    let seals = SealFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SEALS) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file.metadata()?.len())
}

/// The bytes of a file that was received in a message.
///
/// # Errors
/// The file is not sealed, or longer than `max`.
pub fn read_sealed(file: &File, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(sealed_len(file)?).ok().filter(|len| *len <= max).ok_or(io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (one, other) = pair().unwrap();
        let file = sealed(b"content").unwrap();
        one.send(b"first", &[file.as_fd()]).unwrap();
        one.send(&vec![7; MAX_MESSAGE_BYTES], &[]).unwrap();
        let mut first = other.receive().unwrap().unwrap();
        assert_eq!((&first.bytes[..], first.files.len()), (&b"first"[..], 1));
        assert_eq!(read_sealed(&File::from(first.files.remove(0)), 100).unwrap(), b"content");
        assert!(other.is_ready_within(0));
        assert_eq!(other.receive().unwrap().unwrap().bytes, vec![7; MAX_MESSAGE_BYTES]);
        assert!(!other.is_ready_within(0) && !other.is_hung_up());
        one.send(&vec![7; MAX_MESSAGE_BYTES + 1], &[]).unwrap();
        assert!(other.receive().is_err(), "too long");
        drop(one);
        assert!(other.is_ready_within(0) && other.is_hung_up() && other.receive().unwrap().is_none());
    }

    #[test]
    fn only_sealed_files_are_read() {
        let mut open = memory_file().unwrap();
        open.write_all(b"x").unwrap();
        assert!(read_sealed(&open, 10).is_err());
        seal(&open).unwrap();
        assert_eq!(read_sealed(&open, 10).unwrap(), b"x");
        assert!(open.write_all(b"y").is_err() && open.set_len(0).is_err());
        assert!(read_sealed(&sealed(b"12345").unwrap(), 4).is_err(), "longer than wanted");
        assert!(read_sealed(&File::open("/proc/self/exe").unwrap(), 1 << 30).is_err());
    }
}
