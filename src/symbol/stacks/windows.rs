//! Callchains that are unwound on the output thread: their windows of the user's stack, and the memory that these may take.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxBuildHasher;

use crate::perf::record::{ChainForm, UserPart};
use crate::symbol::stacks::chain_words::{PERF_CONTEXT_MAX, PERF_CONTEXT_USER, user_part_start};
use crate::unwind::{Cut, UnwoundChain, UserRegs, Walked};

/// A callchain whose user part the reading side could not unwind: the tables of a file were not loaded.
#[derive(Debug)]
pub struct StackWindow {
    /// The number of the address space, as of the sample.
    pub space: u32,
    /// The callchain as the kernel wrote it.
    pub words: Box<[u64]>,
    pub form: ChainForm,
    pub regs: UserRegs,
    /// The user's stack, from the stack pointer upward.
    pub stack: Box<[u8]>,
    /// Bytes of stack that the event asked for.
    pub asked: usize,
    _share: PoolShare,
}

/// Registers and stack of a thread, as they were copied.
#[derive(Clone, Copy, Debug)]
pub struct CopiedStack<'a> {
    pub regs: UserRegs,
    /// The user's stack, from the stack pointer upward.
    pub stack: &'a [u8],
    /// Bytes of stack that the event asked for.
    pub asked: usize,
}

/// Limit of the memory of all windows on their way to the output thread.
#[derive(Clone, Debug)]
pub struct WindowPool {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// The memory that a window takes from the pool, given back on drop.
#[derive(Debug)]
struct PoolShare {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl WindowPool {
    pub fn new(limit: usize) -> WindowPool {
        WindowPool { taken: Arc::default(), limit }
    }

    /// Copies a window. None: the pool has no room for it.
    pub fn window(
        &self,
        space: u32,
        words: impl Iterator<Item = u64>,
        form: ChainForm,
        CopiedStack { regs, stack, asked }: CopiedStack<'_>,
    ) -> Option<StackWindow> {
        let bytes = stack.len() + size_of::<StackWindow>();
        // Only the reading side takes memory from the pool, so that `taken` can only shrink meanwhile.
        if self.taken.load(Ordering::Relaxed) + bytes > self.limit {
            return None;
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let share = PoolShare { taken: self.taken.clone(), bytes };
        Some(StackWindow { space, words: words.collect(), form, regs, stack: stack.into(), asked, _share: share })
    }
}

impl StackWindow {
    /// A number for the place: the kernel's part of the chain, where the thread left user mode, and how deep its stack was
    /// there. Equal windows have equal numbers.
    pub fn place(&self) -> u64 {
        let kernel = &self.words[..user_part_start(self.words.iter().copied(), self.words.len())];
        FxBuildHasher.hash_one((kernel, self.regs.pc, self.regs.sp))
    }
}

/// How the user part was found, from the end of the walk and the bytes of stack that were copied and asked for. None:
/// tables are missing yet.
pub fn user_part(walked: Walked, copied: usize, asked: usize) -> Option<UserPart> {
    Some(match walked {
        Walked::Whole => UserPart::Whole,
        Walked::Guessed => UserPart::Guessed,
        // The kernel could not copy all bytes: during an exec the old stack is gone, and a larger copy would not help.
        Walked::Truncated(Cut::Window) if copied < asked => UserPart::Broken,
        Walked::Truncated(Cut::Window) => {
            UserPart::Truncated { kib: u8::try_from(asked.div_ceil(1024)).unwrap_or(u8::MAX) }
        }
        Walked::Truncated(Cut::Frames) => UserPart::TooDeep,
        Walked::Broken(_) => UserPart::Broken,
        Walked::NoTables(_) => return None,
    })
}

/// Marks the next address of an unwound chain as code that a signal has interrupted.
const INTERRUPTED_NEXT: u64 = PERF_CONTEXT_MAX + 1;
/// Marks the next address as the first guess.
const GUESSED_NEXT: u64 = PERF_CONTEXT_MAX + 2;

/// Appends the unwound user part to the kernel's words, up to the depth that the event asks for. True when the depth
/// cuts the callchain. Marks stand for what is known of the user addresses: see [`unwound_addresses`].
pub fn unwound_words(kernel: &[[u8; 8]], chain: &UnwoundChain, form: ChainForm, words: &mut Vec<[u8; 8]>) -> bool {
    words.clear();
    words.extend_from_slice(kernel);
    words.push(PERF_CONTEXT_USER.to_ne_bytes());
    let markers = kernel.iter().filter(|word| u64::from_ne_bytes(**word) >= PERF_CONTEXT_MAX).count();
    let most =
        if form.depth == 0 { usize::MAX } else { usize::from(form.depth).saturating_sub(kernel.len() - markers) };
    let addresses = chain.addresses();
    let kept = &addresses[..addresses.len().min(most)];
    let mut from = 0;
    let mut mark = |index: usize, mark: u64, words: &mut Vec<[u8; 8]>| {
        words.extend(kept[from..index].iter().map(|address| address.to_ne_bytes()));
        words.push(mark.to_ne_bytes());
        from = index;
    };
    let mut guessed = chain.guessed_from().filter(|index| *index < kept.len());
    for &index in chain.interrupted().iter().filter(|index| **index < kept.len()) {
        if let Some(first) = guessed.take_if(|first| *first <= index) {
            mark(first, GUESSED_NEXT, words);
        }
        mark(index, INTERRUPTED_NEXT, words);
    }
    if let Some(first) = guessed {
        mark(first, GUESSED_NEXT, words);
    }
    words.extend(kept[from..].iter().map(|address| address.to_ne_bytes()));
    addresses.len() >= most // the kernel calls a chain of this depth cut, too
}

/// An address of a user part, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwoundAddress {
    pub addr: u64,
    /// The address is a return address.
    pub is_behind_call: bool,
    /// The address is the first guess.
    pub is_guess: bool,
}

/// The addresses of an unwound user part, from words as [`unwound_words`] makes them. No code is mapped at the values
/// of the marks.
pub fn unwound_addresses(words: &[u64]) -> impl Iterator<Item = UnwoundAddress> {
    let (mut is_behind_call, mut is_guess) = (false, false); // the first address is that of the next instruction
    words.iter().filter_map(move |&word| match word {
        INTERRUPTED_NEXT => {
            is_behind_call = false;
            None
        }
        GUESSED_NEXT => {
            is_guess = true;
            None
        }
        addr => {
            let address = UnwoundAddress { addr, is_behind_call, is_guess };
            (is_behind_call, is_guess) = (true, false);
            Some(address)
        }
    })
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl StackWindow {
    /// Memory of the window, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<StackWindow>() + size_of_val(&self.words[..]) + size_of_val(&self.stack[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::stacks::chain_words::PERF_CONTEXT_KERNEL;

    /// The chain made of kernel words and an unwound part, and the user's part of it.
    fn words(unwound: &UnwoundChain, depth: u16) -> (Vec<u64>, bool) {
        let mut words = Vec::new();
        let kernel = [PERF_CONTEXT_KERNEL, 1 << 63].map(u64::to_ne_bytes);
        let cut = unwound_words(&kernel, unwound, ChainForm { depth, ..ChainForm::default() }, &mut words);
        assert_eq!(words[..3], [PERF_CONTEXT_KERNEL, 1 << 63, PERF_CONTEXT_USER].map(u64::to_ne_bytes));
        (words[3..].iter().map(|word| u64::from_ne_bytes(*word)).collect(), cut)
    }

    #[test]
    fn what_is_known_of_addresses_stays_with_them() {
        let address = |addr, is_behind_call, is_guess| UnwoundAddress { addr, is_behind_call, is_guess };
        for interrupted in [&[][..], &[1], &[3], &[1, 2, 3]] {
            for guessed in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
                let chain = UnwoundChain::of(&[10, 11, 12, 13], interrupted, guessed);
                for depth in [0, 2, 3, 4, 5, 6] {
                    let (words, cut) = words(&chain, depth);
                    let most = if depth == 0 { 4 } else { usize::from(depth) - 1 };
                    let want: Vec<UnwoundAddress> = (0..4)
                        .map(|at| address(10 + at as u64, chain.is_behind_call(at), guessed == Some(at)))
                        .take(most)
                        .collect();
                    let found: Vec<UnwoundAddress> = unwound_addresses(&words).collect();
                    assert_eq!((found, cut), (want, (1..=5).contains(&depth)), "{chain:?} {depth}");
                }
            }
        }
        assert_eq!(words(&UnwoundChain::of(&[10, 11], &[], Some(2)), 0).0, [10, 11], "no mark without an address");
    }

    #[test]
    fn a_full_pool_has_room_again_when_windows_are_gone() {
        let pool = WindowPool::new(10_000);
        let regs = UserRegs::new(1, 2, 3, 0);
        let copy = CopiedStack { regs, stack: &[0; 4000], asked: 4000 };
        let window = || pool.window(1, std::iter::empty(), ChainForm::default(), copy);
        let (first, second) = (window().unwrap(), window().unwrap());
        assert!(window().is_none());
        drop(first);
        assert!(window().is_some());
        drop(second);
        assert_eq!(pool.taken.load(Ordering::Relaxed), 0);
    }
}
