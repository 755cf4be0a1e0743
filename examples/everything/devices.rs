//! Devices, and everything that belongs to no other room.

use std::fs;
use std::path::Path;

use crate::sys::{at, at_mut, call, close, open, text};

pub fn all(_dir: &Path) {
    latency();
    programs();
    counters();
    for name in
        ["/proc/meminfo", "/proc/vmstat", "/proc/zoneinfo", "/proc/interrupts", "/proc/self/maps", "/proc/self/stack"]
    {
        let _ = fs::read(name);
    }
    terminal();
    calls_of_old();
}

/// Forbids deep idle states, and allows them again.
fn latency() {
    let fd = open(Path::new("/dev/cpu_dma_latency"), libc::O_RDWR);
    for most in [2_000_000_000i32, 1_999_999_999] {
        call(libc::SYS_write, [fd as usize, at(&most), 4]);
    }
    close(fd);
}

/// A program for packets, `return XDP_PASS`, which is run on a test packet.
fn programs() {
    let code: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];
    let mut attributes = [0u64; 18];
    attributes[0] = 6 | 2 << 32; // BPF_PROG_TYPE_XDP, number of instructions
    attributes[1] = at(&code) as u64;
    attributes[2] = text(c"GPL") as u64;
    let program = call(libc::SYS_bpf, [5, at_mut(&mut attributes), 128]);
    let (packet, mut out) = ([0u8; 64], [0u8; 256]);
    let mut run = [0u64; 10];
    run[0] = program as u32 as u64;
    run[1] = 64 | 256 << 32;
    run[2] = at(&packet) as u64;
    run[3] = at_mut(&mut out) as u64;
    call(libc::SYS_bpf, [10, at_mut(&mut run), 80]);
    close(program);
    let mut map = [0u64; 18];
    map[0] = 1 | 4 << 32; // a hash of words
    map[1] = 8 | 16 << 32;
    close(call(libc::SYS_bpf, [0, at_mut(&mut map), 128]));
}

/// A counter of context switches, of this task alone.
fn counters() {
    let mut attributes = [0u64; 16];
    attributes[0] = 1 | 128 << 32;
    attributes[1] = 3;
    let fd = call(libc::SYS_perf_event_open, [at_mut(&mut attributes), 0, usize::MAX, usize::MAX, 0]);
    call(libc::SYS_read, [fd as usize, at_mut(&mut 0u64), 8]);
    close(fd);
}

/// A pair of pseudo terminals.
fn terminal() {
    let main = open(Path::new("/dev/ptmx"), libc::O_RDWR | libc::O_NOCTTY);
    call(libc::SYS_ioctl, [main as usize, 0x4004_5431, at(&0i32)]); // TIOCSPTLCK
    let other = call(libc::SYS_ioctl, [main as usize, 0x5441, libc::O_RDWR as usize | libc::O_NOCTTY as usize]); // TIOCGPTPEER
    call(libc::SYS_write, [main as usize, at(b"hello\n"), 6]);
    call(libc::SYS_write, [other as usize, at(b"hello\n"), 6]);
    call(libc::SYS_read, [other as usize, at_mut(&mut [0u8; 64]), 64]);
    close(other);
    close(main);
}

/// Calls through the page that kernels keep for old programs.
fn calls_of_old() {
    #[cfg(target_arch = "x86_64")]
    if fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("[vsyscall]")) {
        // SAFETY: the fixed address of `time` on x86-64; the page is mapped, as checked above.
        let time: extern "C" fn(*mut i64) -> i64 = unsafe { std::mem::transmute(0xffff_ffff_ff60_0400usize) };
        time(std::ptr::null_mut());
    }
}
