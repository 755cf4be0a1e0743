//! What the tests of the whole program share: perf-prof as a user would run it (`prog`), loads beside it (`load`), and
//! whether this machine lets us trace at all.
//!
//! No test sleeps in the hope that something has happened by then: it waits for a line, for the end of a process or for
//! a state of one ([`until`] looks every ms), or repeats a provocation until it was seen. A sleep is the load, the
//! fault or the time that is measured, and says so. Whatever takes longer than [`GUARD`] is killed and fails.
//!
//! Tests run beside each other, those that measure alone: `need_events!(alone)`.
#![allow(dead_code, unused_imports)] // each test binary uses a part

#[macro_use]
pub mod skips;

mod again;
pub mod bpf;
mod load;
mod prog;
pub mod pty;
pub mod seccomp;
pub mod shell;
mod turn;
pub mod user;
mod visible;
pub mod waits;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use perf_prof::perf::Attr;
use perf_prof::perf::attr::MissingFeatures;
use perf_prof::sys;
use perf_prof::sys::perf::Watch;
use serde_json::Value;

pub use again::{Again, Attempted, CpuWatch, Shortfall, again, attempts, loads_programs, or_again};
pub use load::{Load, becomes_real_time, before_all_others, hurry};
pub use prog::{Done, Prog, children, command, run, run_over, start, start_watching, start_watching_in_text};
pub use turn::Turn;
pub use visible::stay_visible;

/// Longer than anything but a hang, even on a machine that stands still for a minute.
pub const GUARD: Duration = Duration::from_secs(300);

/// Skips the test if this machine does not allow tracing. The test then runs beside other tests of this program, or
/// `alone`, see [`Turn::alone`].
#[macro_export]
macro_rules! need_events {
    () => {
        need_events!(beside_others);
    };
    ($turn:ident) => {
        if let Err(why) = $crate::common::can_trace() {
            skip!("{why}");
        }
        let _turn = $crate::common::Turn::$turn();
    };
}

/// Root and perf events, or why they are not there.
pub fn can_trace() -> Result<(), String> {
    if !sys::is_root() {
        return Err("needs root".to_owned());
    }
    let tid = nix::unistd::gettid().as_raw();
    let opened = MissingFeatures::default().open(&mut Attr::dummy(), Watch::Task { tid, cpu: online_cpus()[0] });
    opened.map(drop).map_err(|err| format!("perf_event_open: {err}"))
}

pub fn online_cpus() -> Vec<u32> {
    perf_prof::host::online_cpus(&Default::default()).expect("online CPUs")
}

/// A program of examples/, which cargo builds for its tests.
pub fn example(name: &str) -> String {
    let exe = std::env::current_exe().expect("own path");
    let path: PathBuf = exe.ancestors().nth(2).expect("target/PROFILE/deps").join("examples").join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// The calling thread.
pub fn own_tid() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Runs the calling thread on `cpu` alone. False: it is not online, or may not be used.
pub fn pin(cpu: u32) -> bool {
    let mut only = CpuSet::new();
    only.set(cpu as usize).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)).is_ok()
}

/// A system call that nothing else in a test makes.
pub fn getppid() {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Another such system call.
pub fn getuid() {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getuid) };
}

/// The selector of a system call.
pub fn syscall(nr: libc::c_long) -> String {
    format!("raw_syscalls:sys_enter/id=={nr}/")
}

/// True if a child of the test ends in time.
pub fn ends_within(pid: i32, most: Duration) -> bool {
    let Ok(fd) = sys::poll::pidfd(pid) else { return true };
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let most = PollTimeout::try_from(most).expect("a timeout");
    poll(&mut fds, most).is_ok_and(|ready| ready > 0)
}

/// The number behind `key` in an object.
#[track_caller]
pub fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {object}"))
}

/// `key=N` of the line that a load prints at its end.
#[track_caller]
pub fn load_number(line: &str, key: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key}= in {line:?}"))
}

/// The state letter of a thread, None when it has gone.
pub fn state_letter(tid: u64) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    text.get(text.rfind(')')? + 2..)?.chars().next()
}

/// Copies a program that is to be executed. Another process copies it, so that no child of this one inherits the copy
/// open for writing, which would make it busy (ETXTBSY).
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.is_ok_and(|status| status.success()), "cp {} {}", from.as_ref().display(), to.as_ref().display());
}

/// Time that the hypervisor took from all CPUs since boot.
pub fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let ticks: u64 = text.split_whitespace().nth(8).and_then(|word| word.parse().ok()).unwrap_or(0);
    ticks * 10_000_000
}

/// Waits for a condition that must be polled.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < GUARD, "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tells of a repeated attempt.
pub fn once_more(why: &str) {
    println!("once more: {why}");
    let thread = thread::current();
    skips::note("retries", &format!("{}: {why}", thread.name().unwrap_or("a thread")));
}

/// A static 32-bit x86 program of nothing but `code`.
pub fn elf32(code: &[u8]) -> Vec<u8> {
    const ADDR: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let size = HEADERS + code.len() as u32;
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |elf: &mut Vec<u8>, halves: &[u16]| halves.iter().for_each(|half| elf.extend(half.to_le_bytes()));
    let words = |elf: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| elf.extend(word.to_le_bytes()));
    halves(&mut elf, &[2, 3]); // ET_EXEC, EM_386
    words(&mut elf, &[1, ADDR + HEADERS, 52, 0, 0]);
    halves(&mut elf, &[52, 32, 1, 0, 0, 0]);
    words(&mut elf, &[1, 0, ADDR, ADDR, size, size, 5, 4096]); // PT_LOAD, read and execute
    elf.extend(code);
    elf
}
