//! Maps many files executable, and calls a function in each.
//!
//! `mappings DIR COUNT elf|rubbish`: writes `mapped-0`, `mapped-1` and so on into DIR unless they exist, either ELF
//! files without symbols or bare machine code, maps them and prints `ready pid=N`. Then it calls getppid from each in
//! turn, some 1,000 times per second, until it is killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::{env, process, ptr, thread};

#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3]; // mov $110, %eax; syscall; ret
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[0xa8, 0x15, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6]; // mov x8, #173; svc #0; ret
/// Size of the header of a 64-bit ELF file, bytes.
const HEADER: usize = 64;

type Function = extern "C" fn();

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: mappings DIR COUNT elf|rubbish");
        process::exit(2);
    };
    let [dir, count, kind] = args.as_slice() else { usage() };
    let (Ok(count), true) = (count.parse::<usize>(), ["elf", "rubbish"].contains(&kind.as_str())) else { usage() };
    let (content, start) = if kind == "elf" { (elf(), HEADER) } else { (CODE.to_vec(), 0) };
    let functions: Vec<Function> = (0..count)
        .map(|index| {
            let path = format!("{dir}/mapped-{index}");
            if !fs::exists(&path).expect("look for a file") {
                fs::write(&path, &content).expect("write a file");
            }
            mapped(&path, start)
        })
        .collect();
    println!("ready pid={}", process::id());
    io::stdout().flush().expect("flush");
    for function in functions.iter().cycle() {
        function();
        thread::sleep(Duration::from_millis(1));
    }
}

/// A header without segments and sections, and the code.
fn elf() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend(3_u16.to_le_bytes()); // ET_DYN
    elf.extend(if cfg!(target_arch = "x86_64") { 62_u16 } else { 183 }.to_le_bytes());
    elf.extend(1_u32.to_le_bytes());
    elf.resize(52, 0);
    elf.extend([HEADER as u16, 56, 0, HEADER as u16, 0, 0].map(u16::to_le_bytes).as_flattened());
    elf.extend(CODE);
    elf
}

fn mapped(path: &str, start: usize) -> Function {
    let file = File::open(path).expect("open a file");
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping of a whole file; at `start` there is a self-contained function.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), start + CODE.len(), protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED, "mmap");
        std::mem::transmute::<*mut libc::c_void, Function>(at.byte_add(start))
    }
}
