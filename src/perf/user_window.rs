//! Windows, copies of user stacks: with them the callchain of a program without frame pointers can be found.
//!
//! An event that a timer or a counter paces carries the copy in its own samples. Any other event has a companion
//! instead: the same event once more, with only the copy, and with a ring of its own. If that ring overflows, stacks
//! are lost, but no samples.

use perf_event_open_sys::bindings as b;

/// How the user part of a callchain was found, and how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UserPart {
    /// By the kernel, from frame pointers.
    #[default]
    FramePointers,
    /// By unwind tables, up to the start of the thread.
    Whole,
    /// Up to the start of the thread, but a step relied on a frame pointer that no unwind table confirms.
    Guessed,
    /// By unwind tables, up to the end of the copied `kib` KiB.
    Truncated { kib: u8 },
    /// By unwind tables, up to the limit of frames.
    TooDeep,
    /// By unwind tables, up to code without a table.
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
    words: &'a [[u8; 8]],
    /// From `sp` upward, as much as the kernel could copy.
    pub stack: &'a [u8],
    /// Bytes that the event asked for.
    pub asked: usize,
}

/// Bits of the registers of a window, arch/*/include/uapi/asm/perf_regs.h. The kernel writes them in the order of their bits.
/// On x86_64 all general registers: hand-written code may keep its frame address in any of them.
pub(super) const WINDOW_REGS: u64 = if cfg!(target_arch = "aarch64") {
    1 << 29 | 1 << 30 | 1 << 31 | 1 << 32 // fp, lr, sp, pc
} else {
    0x1ff | 0xff << 16 // ax bx cx dx si di bp sp ip, r8 to r15
};

/// The size of a record has 16 bits. The kernel cuts a copy to the room in the record, and refuses a larger size than
/// this.
pub const MAX_WINDOW_BYTES: u32 = 65_528;

impl<'a> UserWindow<'a> {
    /// The window made of a sample's registers and stack. None: the task has no 64-bit user mode, or a copy is missing.
    pub(super) fn new(abi: u64, regs: &'a [u8], stack: &'a [u8], asked: usize) -> Option<UserWindow<'a>> {
        let (words, []) = regs.as_chunks::<8>() else { return None };
        if abi != u64::from(b::PERF_SAMPLE_REGS_ABI_64) || words.len() != WINDOW_REGS.count_ones() as usize {
            return None;
        }
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word));
        let (pc, sp, fp, lr) = match cfg!(target_arch = "aarch64") {
            true => (word(3), word(2), word(0), word(1)),
            false => (word(8), word(7), word(6), 0),
        };
        Some(UserWindow { pc, sp, fp, lr, words, stack, asked })
    }

    /// The general registers of x86_64, by their numbers in DWARF (rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15). None on
    /// aarch64, where no code needs them.
    pub fn general(&self) -> impl Iterator<Item = (u8, u64)> + use<'a> {
        const DWARF: [(u8, usize); 15] = [
            (0, 0),
            (1, 3),
            (2, 2),
            (3, 1),
            (4, 4),
            (5, 5),
            (6, 6), // the kernel has ax bx cx dx
            (8, 9),
            (9, 10),
            (10, 11),
            (11, 12),
            (12, 13),
            (13, 14),
            (14, 15),
            (15, 16),
        ];
        let words = if cfg!(target_arch = "aarch64") { &[] } else { self.words };
        DWARF.into_iter().filter_map(|(number, index)| Some((number, u64::from_ne_bytes(*words.get(index)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_in_the_order_of_their_bits() {
        let count = u64::from(WINDOW_REGS.count_ones());
        let regs: Vec<u8> = (1..=count).flat_map(u64::to_ne_bytes).collect();
        let window = UserWindow::new(2, &regs, b"stack", 8).unwrap();
        let want = if cfg!(target_arch = "aarch64") { (4, 3, 1, 2) } else { (9, 8, 7, 0) };
        assert_eq!((window.pc, window.sp, window.fp, window.lr), want);
        let general: Vec<(u8, u64)> = window.general().filter(|(number, _)| [1, 8, 15].contains(number)).collect();
        let want: &[(u8, u64)] = if cfg!(target_arch = "aarch64") { &[] } else { &[(1, 4), (8, 10), (15, 17)] };
        assert_eq!(general, want);
        for (abi, regs) in [(0, &regs[..]), (1, &regs), (2, &regs[8..]), (2, &regs[1..])] {
            assert!(UserWindow::new(abi, regs, b"", 8).is_none(), "{abi} {}", regs.len());
        }
    }
}
