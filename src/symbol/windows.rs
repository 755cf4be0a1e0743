//! Callchains that are unwound on the output thread: their windows of the user's stack, and the memory that these may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::perf::record::{ChainForm, UserPart};
use crate::symbol::new_stack::{PERF_CONTEXT_MAX, PERF_CONTEXT_USER};
use crate::unwind::{Cut, UserRegs, Walked};

/// A callchain whose user part the reading side could not unwind: the tables of a file were not loaded.
#[derive(Debug)]
pub struct StackWindow {
    /// The number of the address space, as of the sample.
    pub space: u32,
    /// The callchain as the kernel wrote it.
    pub words: Box<[u64]>,
    pub form: ChainForm,
    pub regs: UserRegs,
    /// From the stack pointer upward.
    pub stack: Box<[u8]>,
    /// Bytes that were asked for.
    pub asked: usize,
    _share: PoolShare,
}

/// Bytes that windows on their way may take together.
#[derive(Clone, Debug)]
pub struct WindowPool {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// What a window takes of the pool, which has it again when this is dropped.
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
        regs: UserRegs,
        stack: &[u8],
        asked: usize,
    ) -> Option<StackWindow> {
        let bytes = stack.len() + size_of::<StackWindow>();
        // The reading side alone takes, so what is seen here can only become less.
        if self.taken.load(Ordering::Relaxed) + bytes > self.limit {
            return None;
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let share = PoolShare { taken: self.taken.clone(), bytes };
        Some(StackWindow { space, words: words.collect(), form, regs, stack: stack.into(), asked, _share: share })
    }
}

/// How a walk that ended so found the user's part, in so many copied bytes of those that were asked for. None: tables are
/// missing yet.
pub fn user_part(walked: Walked, copied: usize, asked: usize) -> Option<UserPart> {
    Some(match walked {
        Walked::Whole => UserPart::Whole,
        Walked::Guessed => UserPart::Guessed,
        // The kernel could not copy all of it: in an exec the stack of before is gone, and more would not help.
        Walked::Truncated(Cut::Window) if copied < asked => UserPart::Broken,
        Walked::Truncated(Cut::Window) => {
            UserPart::Truncated { kib: u8::try_from(asked.div_ceil(1024)).unwrap_or(u8::MAX) }
        }
        Walked::Truncated(Cut::Frames) => UserPart::TooDeep,
        Walked::Broken(_) => UserPart::Broken,
        Walked::NoTables(_) => return None,
    })
}

/// A callchain of the kernel's words and the user's addresses that were found, within the depth that its event asks for. True
/// when that cuts it.
pub fn unwound_words(kernel: &[[u8; 8]], addresses: &[u64], form: ChainForm, words: &mut Vec<[u8; 8]>) -> bool {
    words.clear();
    words.extend_from_slice(kernel);
    words.push(PERF_CONTEXT_USER.to_ne_bytes());
    let markers = kernel.iter().filter(|word| u64::from_ne_bytes(**word) >= PERF_CONTEXT_MAX).count();
    let most =
        if form.depth == 0 { usize::MAX } else { usize::from(form.depth).saturating_sub(kernel.len() - markers) };
    words.extend(addresses.iter().take(most).map(|address| address.to_ne_bytes()));
    addresses.len() >= most // the kernel calls a chain of this depth cut, too
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl StackWindow {
    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<StackWindow>() + size_of_val(&self.words[..]) + size_of_val(&self.stack[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_has_room_again_when_windows_are_gone() {
        let pool = WindowPool::new(10_000);
        let regs = UserRegs::new(1, 2, 3, 0);
        let window = || pool.window(1, std::iter::empty(), ChainForm::default(), regs, &[0; 4000], 4000);
        let (first, second) = (window().unwrap(), window().unwrap());
        assert!(window().is_none());
        drop(first);
        assert!(window().is_some());
        drop(second);
        assert_eq!(pool.taken.load(Ordering::Relaxed), 0);
    }
}
