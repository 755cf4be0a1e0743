//! Opens files by the number of their inode, as servers of NFS do. Needs CAP_DAC_READ_SEARCH.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Type of a handle with an inode of 32 bits and its generation, include/linux/exportfs.h.
const FILEID_INO32_GEN: i32 = 1;
/// Type of a handle with an inode of 64 bits and its generation, fs/xfs/xfs_export.h.
const FILEID_INO64_GEN: i32 = 0x81;
/// `_IOR('X', 127, struct xfs_bulkstat_req)`, fs/xfs/libxfs/xfs_fs.h.
const XFS_IOC_BULKSTAT: u64 = 0x8040_587f;

/// What a file system needs to find a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHandle {
    /// ext4 takes generation 0 for any.
    Inode32 {
        inode: u32,
        generation: u32,
    },
    Xfs {
        inode: u64,
        generation: u32,
    },
}

impl FileHandle {
    fn encoded(self) -> (i32, Vec<u8>) {
        match self {
            FileHandle::Inode32 { inode, generation } => {
                (FILEID_INO32_GEN, [inode, generation].map(u32::to_ne_bytes).concat())
            }
            FileHandle::Xfs { inode, generation } => {
                (FILEID_INO64_GEN, [&inode.to_ne_bytes()[..], &generation.to_ne_bytes()].concat())
            }
        }
    }
}

/// An `O_PATH` descriptor of a file in the file system of `mount`, an open directory.
///
/// # Errors
/// ESTALE: there is no such file. EPERM without CAP_DAC_READ_SEARCH. EOPNOTSUPP: the file system knows no handles.
pub fn open_by_handle(mount: &File, handle: FileHandle) -> io::Result<OwnedFd> {
    let (kind, id) = handle.encoded();
    let length = id.len() as u32;
    // struct file_handle, include/linux/fs.h: the length of the id, its type, and the id. Words align it.
    let bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &id].concat();
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: `words` is a struct file_handle with as many bytes of an id as it says, and the kernel only reads it.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), words.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The generation of an inode of the xfs of `mount`, an open file or directory. None: it is free.
///
/// # Errors
/// ENOTTY: this is no xfs, or the kernel is older than 5.5.
pub fn xfs_generation(mount: &File, inode: u64) -> io::Result<Option<u32>> {
    const GENERATION_INDEX: usize = 8; // the word of `bs_gen` in struct xfs_bulkstat
    const HEAD_WORDS: usize = 8; // struct xfs_bulk_ireq
    const WORDS: usize = HEAD_WORDS + 32; // struct xfs_bulkstat has 24
    const OUT_COUNT_INDEX: usize = 2;
    let mut words = [0_u64; WORDS];
    words[0] = inode;
    // flags 0 and icount 1 share a word, as ocount and agno do.
    words[1] = u64::from_ne_bytes([[0; 4], 1_u32.to_ne_bytes()].concat().try_into().unwrap_or_default());
    // SAFETY: the kernel reads the head and writes it back with one struct xfs_bulkstat behind it, which fits.
    let rc = unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_BULKSTAT as _, words.as_mut_ptr()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let low = |word: u64| u32::from_ne_bytes(*word.to_ne_bytes().first_chunk().unwrap_or(&[0; 4]));
    // The first inode in use that is not below the asked one.
    let is_it = low(words[OUT_COUNT_INDEX]) == 1 && words[HEAD_WORDS] == inode;
    Ok(is_it.then(|| low(words[HEAD_WORDS + GENERATION_INDEX])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_as_file_systems_read_them() {
        let cases = [
            (FileHandle::Inode32 { inode: 7, generation: 0 }, 1, 8),
            (FileHandle::Xfs { inode: 1 << 33, generation: 5 }, 0x81, 12),
        ];
        for (handle, kind, bytes) in cases {
            let (got, id) = handle.encoded();
            assert_eq!((got, id.len()), (kind, bytes), "{handle:?}");
        }
    }

    #[test]
    fn what_knows_no_handles_is_an_error() {
        let proc = File::open("/proc").unwrap();
        assert!(open_by_handle(&proc, FileHandle::Inode32 { inode: 1, generation: 0 }).is_err());
        assert!(xfs_generation(&proc, 1).is_err());
    }
}
