//! Copies of user stacks: what an event asks for so that the callchain of a program without frame pointers can be found.
//!
//! An event that a timer or a counter paces carries the copy in its own samples. An event that comes as often as its tasks
//! please has a companion instead: the same event once more, with the copy and nothing else, into a ring of its own. A ring
//! of copies that overflows costs stacks, never samples.

use perf_event_open_sys::bindings as b;

/// How the user's part of a callchain was made, and how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UserPart {
    /// By the kernel, from frame pointers.
    #[default]
    FramePointers,
    /// By unwind tables, up to the start of the thread.
    Whole,
    /// Up to the start of the thread; a step went by an unproven frame pointer.
    Guessed,
    /// By unwind tables, up to the end of the copy of so many KiB.
    Truncated { kib: u8 },
    /// By unwind tables, up to code that has none.
    Broken,
}

/// Registers and stack bytes of a task at the moment of a sample.
#[derive(Clone, Copy, Debug)]
pub struct UserWindow<'a> {
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
    /// The return address of a leaf function on aarch64; 0 elsewhere.
    pub lr: u64,
    /// From `sp` upward, as much as the kernel could copy.
    pub stack: &'a [u8],
    /// Bytes that were asked for.
    pub asked: usize,
}

/// Bits of the registers of a window, arch/*/include/uapi/asm/perf_regs.h. The kernel writes them in the order of their bits.
pub(super) const WINDOW_REGS: u64 = if cfg!(target_arch = "aarch64") {
    1 << 29 | 1 << 30 | 1 << 31 | 1 << 32 // fp, lr, sp, pc
} else {
    1 << 6 | 1 << 7 | 1 << 8 // bp, sp, ip
};

/// A record's size is 16 bits; the kernel cuts a copy to what fits, and refuses one that can never fit.
pub const MOST_WINDOW_BYTES: u32 = 65_528;

impl<'a> UserWindow<'a> {
    /// Of a sample's registers and stack. None: the task has no 64-bit user mode, or a copy is missing.
    pub(super) fn new(abi: u64, regs: &[u8], stack: &'a [u8], asked: usize) -> Option<UserWindow<'a>> {
        if abi != u64::from(b::PERF_SAMPLE_REGS_ABI_64) {
            return None;
        }
        let (words, []) = regs.as_chunks::<8>() else { return None };
        let (pc, sp, fp, lr) = match *words {
            [bp, sp, ip] if !cfg!(target_arch = "aarch64") => (ip, sp, bp, [0; 8]),
            [fp, lr, sp, pc] => (pc, sp, fp, lr),
            _ => return None,
        };
        let [pc, sp, fp, lr] = [pc, sp, fp, lr].map(u64::from_ne_bytes);
        Some(UserWindow { pc, sp, fp, lr, stack, asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_in_the_order_of_their_bits() {
        let count = WINDOW_REGS.count_ones() as u64;
        let regs: Vec<u8> = (1..=count).flat_map(u64::to_ne_bytes).collect();
        let window = UserWindow::new(2, &regs, b"stack", 8).unwrap();
        let want = if count == 4 { (4, 3, 1, 2) } else { (3, 2, 1, 0) };
        assert_eq!((window.pc, window.sp, window.fp, window.lr), want);
        for (abi, regs) in [(0, &regs[..]), (1, &regs), (2, &regs[8..]), (2, &regs[1..])] {
            assert!(UserWindow::new(abi, regs, b"", 8).is_none(), "{abi} {}", regs.len());
        }
    }
}
