//! A convoy of known shape: tasks that wait for one lock, one behind the other.
//!
//! `lock_convoy KIND WAITERS HOLD_MS [PATH]`. KIND is `mutex` (of threads), `pipe` (the kernel's mutex of a pipe), or
//! `flock`, `fcntl`, `ofd` (processes, on PATH). Prints `pid=N`, and waits for a line on stdin. Then takes the lock,
//! lets WAITERS tasks wait for it, and gives it back after HOLD_MS ms; each of them has it for HOLD_MS ms, too, but those
//! of a pipe, which give it back at once. At the end prints `waits=N wait_ns=N owner=TID`: the sum of the times in which
//! the tasks waited, measured around each call, and the thread that was first. Waits for another line before it exits.

use std::{
    cell::UnsafeCell,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::MetadataExt,
    },
    process::{self, Command, Stdio},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["waits", kind, hold, path] => wait_for_file(kind, milliseconds(hold), path),
        [kind, waiters, hold, ..] => {
            let (waiters, hold) = (waiters.parse().unwrap_or_else(|_| usage()), milliseconds(hold));
            println!("pid={}", process::id());
            line();
            let wait_ns = match (kind, words.get(3)) {
                ("mutex", None) => mutex(waiters, hold),
                ("pipe", None) => pipe(waiters, hold),
                ("flock" | "fcntl" | "ofd", Some(path)) => file(kind, waiters, hold, path),
                _ => usage(),
            };
            println!("waits={waiters} wait_ns={wait_ns} owner={}", tid());
            line();
        }
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: lock_convoy mutex|pipe|flock|fcntl|ofd WAITERS HOLD_MS [PATH]");
    process::exit(2);
}

fn milliseconds(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap_or_else(|_| usage()))
}

fn line() {
    io::stdout().flush().expect("flush");
    io::stdin().lock().read_line(&mut String::new()).expect("a line");
}

fn tid() -> i32 {
    // SAFETY: it takes no pointer.
    unsafe { libc::gettid() }
}

/// Waits until `is_so`, which the kernel tells of other tasks.
fn await_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn timed(work: impl FnOnce()) -> u128 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos()
}

/// A mutex of libc, which its threads share.
struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made for this.
unsafe impl Sync for PthreadMutex {}
// SAFETY: as above; nothing moves it after its first use, since it is in an Arc.
unsafe impl Send for PthreadMutex {}

impl PthreadMutex {
    fn lock(&self) {
        // SAFETY: the mutex lives as long as `self`.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn unlock(&self) {
        // SAFETY: as above; this thread has it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// Whether the thread is in the system call of this number.
fn is_in_call(tid: i32, number: i64) -> bool {
    let call = fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
    call.starts_with(&format!("{number} "))
}

fn is_in_state(tid: i32, state: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(state))
}

fn mutex(waiters: usize, hold: Duration) -> u128 {
    let mutex = Arc::new(PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
    mutex.lock();
    let (tell, told) = channel();
    let threads: Vec<_> = (0..waiters)
        .map(|_| {
            let (mutex, tell) = (mutex.clone(), tell.clone());
            let thread = thread::spawn(move || {
                tell.send(tid()).expect("main lives");
                let ns = timed(|| mutex.lock());
                thread::sleep(hold);
                mutex.unlock();
                ns
            });
            let tid = told.recv().expect("its number");
            await_until("a thread in futex", || is_in_call(tid, libc::SYS_futex));
            thread
        })
        .collect();
    thread::sleep(hold);
    mutex.unlock();
    threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
}

/// Memory whose first access waits until it is allowed: see userfaultfd(2).
struct Withheld {
    fault: File,
    address: usize,
}

const PAGE: usize = 4096;

/// Numbers and layouts of include/uapi/linux/userfaultfd.h.
#[repr(C)]
struct UffdioApi([u64; 3]);
#[repr(C)]
struct UffdioRegister([u64; 4]);
#[repr(C)]
struct UffdioZeropage([u64; 4]);
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;

impl Withheld {
    fn new() -> Withheld {
        // SAFETY: anonymous memory of one page; ioctls on a descriptor of our own with structures of their sizes.
        unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            assert!(fd >= 0, "userfaultfd: {}", io::Error::last_os_error());
            let fault = File::from_raw_fd(fd as i32);
            let address = libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            let mut api = UffdioApi([0xaa, 0, 0]);
            assert_eq!(libc::ioctl(fault.as_raw_fd(), UFFDIO_API, &mut api), 0);
            let mut register = UffdioRegister([address as u64, PAGE as u64, 1, 0]);
            assert_eq!(libc::ioctl(fault.as_raw_fd(), UFFDIO_REGISTER, &mut register), 0);
            Withheld { fault, address: address as usize }
        }
    }

    fn allow(&self) {
        let mut page = UffdioZeropage([self.address as u64, PAGE as u64, 0, 0]);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ioctl(self.fault.as_raw_fd(), UFFDIO_ZEROPAGE, &mut page) }, 0);
    }
}

/// A read from a pipe has the pipe's mutex while it waits for the memory to which it copies.
fn pipe(waiters: usize, hold: Duration) -> u128 {
    let (mut read, write) = io::pipe().expect("a pipe");
    (&write).write_all(b"x").expect("a byte");
    let withheld = Arc::new(Withheld::new());
    let (tell, told) = channel::<i32>();
    let owner = tid();
    let helper = {
        let (withheld, write) = (withheld.clone(), write.try_clone().expect("a descriptor"));
        thread::spawn(move || {
            // The page fault of the reader is the first event.
            let mut fd = libc::pollfd { fd: withheld.fault.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, which lives.
            assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 20_000) }, 1);
            let writes: Vec<_> = (0..waiters).map(|_| writer(write.try_clone().expect("one"), tell.clone())).collect();
            for _ in 0..waiters {
                let tid = told.recv().expect("its number");
                await_until("a writer that waits", || is_in_state(tid, "D"));
            }
            thread::sleep(hold);
            withheld.allow();
            writes.into_iter().map(|thread| thread.join().expect("a thread")).sum::<u128>()
        })
    };
    // SAFETY: the page is mapped, and nobody else uses it.
    let page = unsafe { std::slice::from_raw_parts_mut(withheld.address as *mut u8, 1) };
    assert_eq!(read.read(page).expect("a byte"), 1);
    assert_eq!(owner, tid());
    helper.join().expect("a thread")
}

fn writer(write: io::PipeWriter, tell: Sender<i32>) -> thread::JoinHandle<u128> {
    thread::spawn(move || {
        tell.send(tid()).expect("main lives");
        timed(|| (&write).write_all(b"y").expect("a byte"))
    })
}

/// Takes or gives back the lock of a file.
fn lock_file(file: &File, kind: &str, takes: bool) {
    let fd = file.as_raw_fd();
    let lock_type = if takes { libc::F_WRLCK } else { libc::F_UNLCK };
    // SAFETY: all zeros is a valid flock: the whole file.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = lock_type as i16;
    // SAFETY: a descriptor of our own, and a structure that lives.
    let done = unsafe {
        match kind {
            "flock" => libc::flock(fd, if takes { libc::LOCK_EX } else { libc::LOCK_UN }),
            "fcntl" => libc::fcntl(fd, libc::F_SETLKW, &range),
            _ => libc::fcntl(fd, libc::F_OFD_SETLKW, &range),
        }
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

fn open(path: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("the file")
}

fn wait_for_file(kind: &str, hold: Duration, path: &str) {
    let file = open(path);
    let ns = timed(|| lock_file(&file, kind, true));
    thread::sleep(hold);
    lock_file(&file, kind, false);
    println!("{ns}");
}

fn file(kind: &str, waiters: usize, hold: Duration, path: &str) -> u128 {
    let file = open(path);
    lock_file(&file, kind, true);
    let inode = format!(":{} ", file.metadata().expect("it is there").ino());
    let children: Vec<_> = (1..=waiters)
        .map(|number| {
            let args = ["waits", kind, &hold.as_millis().to_string(), path];
            let own = env::current_exe().expect("the path of this program");
            let child = Command::new(own).args(args).stdout(Stdio::piped()).spawn().expect("a child");
            await_until("a process behind the lock", || {
                let locks = fs::read_to_string("/proc/locks").expect("the kernel's list");
                locks.lines().filter(|line| line.contains("->") && line.contains(&inode)).count() == number
            });
            child
        })
        .collect();
    thread::sleep(hold);
    lock_file(&file, kind, false);
    let output = |child: process::Child| child.wait_with_output().expect("a child").stdout;
    let ns = |out: Vec<u8>| String::from_utf8_lossy(&out).trim().parse::<u128>().expect("a number");
    children.into_iter().map(|child| ns(output(child))).sum()
}
