//! Makes system calls from code in odd places, for stacks whose innermost user frame is known.
//!
//! `places PLACE COUNT [FILE]`: prints `ready pid=N`, then calls getppid COUNT times from a function in PLACE, or, if
//! the environment has `PLACES_GO=stdin`, so many times for each line of stdin. PLACE is one of:
//! - `own`: `call_from_own` of this program; `rust`: `call_from_rust`, whose name is mangled;
//! - `nofp`: `call_without_frame_pointer`, from which no frame pointer leads to the callers;
//! - `noreturn`: `never_returns`, called by the last instruction of `call_into_noreturn`. It ends the program
//!   after 20 calls;
//! - `jit`: memory without a file; `many`: the same, each call from a place of its own;
//! - `perf-map`: as `jit`, named `call_from_jit` in /tmp/perf-PID.map, which is removed at the end unless FILE is given;
//! - `file`: FILE, into which only machine code is written;
//! - `library`: FILE, a copy of this program that is mapped as a library would be; `nofp-library`: both;
//! - `vdso`: clock_gettime of the process's CPU time instead, which the vdso passes on to the kernel;
//! - `exec`: as `own`, then executes itself as `jit`.

use std::arch::{asm, global_asm};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::{env, process, ptr};

#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3]; // mov $110, %eax; syscall; ret
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[0xa8, 0x15, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6]; // mov x8, #173; svc #0; ret

type Function = extern "C" fn();

/// A stack must show this name. The function calls nothing and reads no data, so that it runs at any address.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn call_from_own() {
    getppid();
}

/// The name of this function is mangled in the file.
#[inline(never)]
extern "C" fn call_from_rust() {
    getppid();
    std::hint::black_box(7); // otherwise the compiler merges the two functions
}

#[inline(always)]
fn getppid() {
    // SAFETY: getppid touches no memory; the clobbered registers are declared.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("syscall", inout("rax") libc::SYS_getppid => _, out("rcx") _, out("r11") _, options(nomem, nostack));
        #[cfg(target_arch = "aarch64")]
        asm!("svc #0", in("x8") libc::SYS_getppid, out("x0") _, options(nomem, nostack));
    }
}

// The frame pointer register holds another value, as in code compiled without frame pointers.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl call_without_frame_pointer",
    "call_without_frame_pointer:",
    "push rbp",
    "xor ebp, ebp",
    "mov eax, 110",
    "syscall",
    "pop rbp",
    "ret",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl call_without_frame_pointer",
    "call_without_frame_pointer:",
    "str x29, [sp, #-16]!",
    "mov x29, #0",
    "mov x8, #173",
    "svc #0",
    "ldr x29, [sp], #16",
    "ret",
);

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl call_into_noreturn",
    "call_into_noreturn:",
    "push rbp",
    "mov rbp, rsp",
    "call never_returns",
    ".globl behind_the_call",
    "behind_the_call:",
    "ret",
    ".globl never_returns",
    "never_returns:",
    "push rbp",
    "mov rbp, rsp",
    "mov ebx, 20",
    "2:",
    "mov eax, 110",
    "syscall",
    "dec ebx",
    "jnz 2b",
    "mov eax, 231", // exit_group
    "xor edi, edi",
    "syscall",
    "ud2",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl call_into_noreturn",
    "call_into_noreturn:",
    "stp x29, x30, [sp, #-16]!",
    "mov x29, sp",
    "bl never_returns",
    ".globl behind_the_call",
    "behind_the_call:",
    "ret",
    ".globl never_returns",
    "never_returns:",
    "stp x29, x30, [sp, #-16]!",
    "mov x29, sp",
    "mov w19, #20",
    "2:",
    "mov x8, #173",
    "svc #0",
    "subs w19, w19, #1",
    "b.ne 2b",
    "mov x0, #0",
    "mov x8, #94", // exit_group
    "svc #0",
    "brk #0",
);

// A standard frame, whatever options this program was compiled with, and the outermost one: it has the name of the C
// library's function in which threads begin.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl start_thread",
    "start_thread:",
    "push rbp",
    "lea rax, [rip + 2f]",
    "push rax",
    "push 0",
    "mov rbp, rsp",
    "call rdi",
    "2:",
    "add rsp, 16",
    "pop rbp",
    "ret",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl start_thread",
    "start_thread:",
    "stp x29, x30, [sp, #-32]!",
    "adr x9, 2f",
    "stp xzr, x9, [sp, #16]",
    "add x29, sp, #16",
    "blr x0",
    "2:",
    "ldp x29, x30, [sp], #32",
    "ret",
);

unsafe extern "C" {
    safe fn call_without_frame_pointer();
    safe fn call_into_noreturn();
    safe fn start_thread(function: Function);
}

extern "C" fn call_from_vdso() {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
}

fn main() {
    // argv[0] may contain any bytes.
    let args: Vec<String> = env::args_os().skip(1).filter_map(|arg| arg.into_string().ok()).collect();
    let (Some(place), Some(count)) = (args.first(), args.get(1).and_then(|count| count.parse::<u64>().ok())) else {
        eprintln!("usage: places PLACE COUNT [FILE]");
        process::exit(2);
    };
    let file = args.get(2).map(String::as_str);
    println!("ready pid={}", process::id());
    io::stdout().flush().expect("flush");
    let map = format!("/tmp/perf-{}.map", process::id());
    let function = match place.as_str() {
        "own" | "exec" => call_from_own,
        "rust" => call_from_rust,
        "nofp" => call_without_frame_pointer,
        "noreturn" => call_into_noreturn,
        "vdso" => call_from_vdso,
        "jit" | "perf-map" => made_at_run_time(1)[0],
        "many" => {
            let functions = made_at_run_time(usize::try_from(count).expect("COUNT"));
            return functions.iter().for_each(|function| start_thread(*function));
        }
        "file" => {
            let path = file.expect("FILE");
            fs::write(path, CODE).expect("write FILE");
            mapped(path, 0, CODE.len())
        }
        "library" => library(file.expect("FILE"), call_from_own),
        "nofp-library" => library(file.expect("FILE"), call_without_frame_pointer),
        _ => panic!("no such place: {place}"),
    };
    if place == "perf-map" {
        let line = format!("{:x} {:x} call_from_jit\n", function as usize, CODE.len());
        fs::write(&map, line).expect("write the map");
        // A perf map that other users may write would be ignored.
        fs::set_permissions(&map, fs::Permissions::from_mode(0o644)).expect("chmod the map");
    }
    let waits = env::var("PLACES_GO").is_ok_and(|value| value == "stdin");
    let calls = || (0..count).for_each(|_| start_thread(function));
    if waits {
        io::stdin().lines().for_each(|_| calls());
    } else {
        calls();
    }
    if place == "perf-map" && file.is_none() {
        fs::remove_file(&map).expect("remove the map");
    }
    if place == "exec" {
        let err = process::Command::new("/proc/self/exe").args(["jit", &args[1]]).env_remove("PLACES_GO").exec();
        panic!("exec: {err}");
    }
}

/// Copies of CODE in anonymous memory.
fn made_at_run_time(copies: usize) -> Vec<Function> {
    const ROOM: usize = CODE.len().next_multiple_of(16);
    let len = copies * ROOM;
    // SAFETY: a new mapping; each copy fits into its slot, and is a whole function of that signature once it is copied.
    unsafe {
        let at = libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED, "mmap");
        let rooms = || (0..copies).map(|copy| at.byte_add(copy * ROOM));
        rooms().for_each(|room| ptr::copy_nonoverlapping(CODE.as_ptr(), room.cast(), CODE.len()));
        assert_eq!(libc::mprotect(at, len, libc::PROT_READ | libc::PROT_EXEC), 0, "mprotect");
        rooms().map(|room| std::mem::transmute::<*mut libc::c_void, Function>(room)).collect()
    }
}

/// The function at `offset` of a file, mapped executable.
fn mapped(path: &str, offset: usize, len: usize) -> Function {
    let file = File::open(path).expect("open FILE");
    let page = offset & !0xffff; // a multiple of the page size of any architecture
    // SAFETY: a new mapping; the caller guarantees a self-contained function there.
    unsafe {
        let at = libc::mmap(
            ptr::null_mut(),
            offset + len - page,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            page as libc::off_t,
        );
        assert_ne!(at, libc::MAP_FAILED, "mmap");
        std::mem::transmute::<*mut libc::c_void, Function>(at.byte_add(offset - page))
    }
}

/// A function in another copy of this program.
fn library(path: &str, function: Function) -> Function {
    let own = function as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("hex");
    let offset = maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-')?;
        (hex(start)..hex(end)).contains(&own).then(|| own - hex(start) + hex(words[2]))
    });
    mapped(path, offset.expect("our own mapping"), 64)
}
