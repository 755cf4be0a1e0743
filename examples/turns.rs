//! System calls through a great number of different stacks, each of which encodes a number.
//!
//! `turns COUNT DEPTH`: COUNT calls of close with the numbers from 1 << 20 on, which are no open files. Each call is
//! made DEPTH functions deep, from 21 to 10,000: the innermost functions encode the lowest bits of the number,
//! `turn_right` for 1 and `turn_left` for 0. They have frame pointers, and `turns_begin`, whose frame is the outermost,
//! calls the first of them. Prints `calls=N pid=N`.

use std::{env, process};

const FIRST: u64 = 1 << 20;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl turns_begin, turn_left, turn_right, turn_on",
    ".type turns_begin, @function",
    ".type turn_left, @function",
    ".type turn_right, @function",
    ".type turn_on, @function",
    "turns_begin: push rbp",
    "xor ebp, ebp",
    "call turn_on",
    "pop rbp",
    "ret",
    ".size turns_begin, . - turns_begin",
    "turn_left: push rbp",
    "mov rbp, rsp",
    "call turn_on",
    "pop rbp",
    "ret",
    ".size turn_left, . - turn_left",
    "turn_right: push rbp",
    "mov rbp, rsp",
    "call turn_on",
    "pop rbp",
    "ret",
    ".size turn_right, . - turn_right",
    "turn_on: test esi, esi",
    "jz 2f",
    "dec esi",
    "cmp esi, 32",
    "jae turn_left",
    "bt edi, esi",
    "jc turn_right",
    "jmp turn_left",
    "2: push rbp",
    "mov rbp, rsp",
    "mov eax, 3", // close
    "syscall",
    "pop rbp",
    "ret",
    ".size turn_on, . - turn_on",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl turns_begin, turn_left, turn_right, turn_on",
    ".type turns_begin, @function",
    ".type turn_left, @function",
    ".type turn_right, @function",
    ".type turn_on, @function",
    "turns_begin: stp x29, x30, [sp, #-16]!",
    "mov x29, #0",
    "bl turn_on",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".size turns_begin, . - turns_begin",
    "turn_left: stp x29, x30, [sp, #-16]!",
    "mov x29, sp",
    "bl turn_on",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".size turn_left, . - turn_left",
    "turn_right: stp x29, x30, [sp, #-16]!",
    "mov x29, sp",
    "bl turn_on",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".size turn_right, . - turn_right",
    "turn_on: cbz w1, 2f",
    "sub w1, w1, #1",
    "cmp w1, #32",
    "b.hs turn_left",
    "lsr w2, w0, w1",
    "tbnz w2, #0, turn_right",
    "b turn_left",
    "2: stp x29, x30, [sp, #-16]!",
    "mov x29, sp",
    "mov x8, #57", // close
    "svc #0",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".size turn_on, . - turn_on",
);

unsafe extern "C" {
    /// Calls close(`number`) through `depth` nested functions.
    fn turns_begin(number: u64, depth: u64);
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[count, depth]) = numbers.as_deref().filter(|numbers| matches!(numbers, [..=1_000_000, 21..=10_000]))
    else {
        eprintln!("usage: turns COUNT DEPTH");
        process::exit(2);
    };
    for number in FIRST..FIRST + count {
        // SAFETY: keeps to the calling convention, needs 16 bytes of stack for each function, and closes no file: none
        // has such a number.
        unsafe { turns_begin(number, depth) };
    }
    println!("calls={count} pid={}", process::id());
}
