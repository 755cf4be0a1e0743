//! A process whose memory never responds: `stalled DIR` mounts a file system on DIR whose server, this process, answers
//! no reads, prints the pid of a child, and waits. The child has a file of it mapped, and calls openat(2) with a path
//! in the mapping. When this process is killed, the child continues.
//!
//! `stalled DIR code`: the child has mapped the file as code, and waits without touching it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

// include/uapi/linux/fuse.h
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const HEADER_BYTES: usize = 40;

const FILE_BYTES: u64 = 1 << 20;
const FILE_NODE: u64 = 2;

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// `struct fuse_attr` of the directory (node 1) or the file.
fn attr(node: u64) -> Vec<u8> {
    let (mode, size) = if node == FILE_NODE { (libc::S_IFREG, FILE_BYTES) } else { (libc::S_IFDIR, 0) };
    [longs(&[node, size, 0, 0, 0, 0]), words(&[0, 0, 0, mode | 0o755, 1, 0, 0, 0, 4096, 0])].concat()
}

/// Answers all requests but reads.
fn serve(mut fuse: File) {
    const VALID_S: u64 = 1000;
    let mut request = vec![0; 1 << 20];
    loop {
        let Ok(len) = fuse.read(&mut request) else { return };
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        assert!(len >= HEADER_BYTES);
        let (unique, node) = (long(8), long(16));
        let answer = match word(4) {
            READ | FORGET | INTERRUPT | BATCH_FORGET => continue,
            INIT => Ok([words(&[7, 31, 0, 0, 0, 65536, 1, 0]), vec![0; 32]].concat()),
            LOOKUP => Ok([longs(&[FILE_NODE, 0, VALID_S, VALID_S]), words(&[0, 0]), attr(FILE_NODE)].concat()),
            GETATTR => Ok([longs(&[VALID_S]), words(&[0, 0]), attr(node)].concat()),
            OPEN => Ok(longs(&[0, 0])),
            _ => Err(-libc::ENOSYS),
        };
        let (error, body) = answer.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let header = [words(&[16 + body.len() as u32, error.cast_unsigned()]), longs(&[unique])].concat();
        let _ = fuse.write(&[header, body].concat()); // the caller may have ended
    }
}

/// Opens the file, detaches the mount, so that no path leads to the file any more, and hangs. `is_code`: the file is
/// mapped as code, and the child waits without touching it.
fn hang(dir: &str, is_code: bool) {
    let file = File::open(format!("{dir}/file")).expect("the file");
    // SAFETY: a new mapping, of which this code reads nothing.
    unsafe {
        let dir = std::ffi::CString::new(dir).expect("a path");
        assert_eq!(libc::umount2(dir.as_ptr(), libc::MNT_DETACH), 0);
        let protection = libc::PROT_READ | if is_code { libc::PROT_EXEC } else { libc::PROT_WRITE };
        let map = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED);
        println!("{}", std::process::id());
        if is_code {
            loop {
                libc::pause();
            }
        }
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, map, libc::O_RDONLY | libc::O_CLOEXEC);
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let is_code = std::env::args().nth(2).is_some_and(|what| what == "code");
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
    let [target, options] = [dir.as_str(), &options].map(|text| std::ffi::CString::new(text).expect("no NUL"));
    // SAFETY: all pointers are to NUL-terminated strings; the process has one thread, so that its child may call any
    // function.
    unsafe {
        let mounted = libc::mount(c"stalled".as_ptr(), target.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast());
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        if libc::fork() == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            drop(fuse); // the mount must end with its server
            hang(&dir, is_code);
            libc::_exit(0);
        }
    }
    serve(fuse);
}
