//! Callchains, interned: each distinct stack is kept once and named by a number.

use std::hash::Hasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::perf::record::Callchain;
use crate::symbol::spaces::{Module, Spaces};
use crate::task::procfs::KernelFrame;

/// An interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackId(NonZeroU32);

/// A frame as it was when its stack was first seen.
#[derive(Clone, Debug)]
pub enum Frame {
    Kernel(u64),
    User {
        addr: u64,
        place: Option<(Arc<Module>, u64)>,
    },
    /// From /proc/TID/stack, which gives names but no addresses.
    Named(KernelFrame),
    /// The stack went on; the kernel's depth limit cut it.
    Truncated,
}

/// The frames of a stack, innermost first; sent to the output thread once.
#[derive(Clone, Debug)]
pub struct Stack {
    pub id: StackId,
    pub frames: Arc<[Frame]>,
}

/// The table of stacks. It grows to a limit in bytes; then new stacks are counted instead of kept.
#[derive(Debug)]
pub struct Stacks {
    by_hash: FxHashMap<u64, Vec<(StackId, Key)>>,
    words: Vec<u64>,
    bytes: usize,
    limit_bytes: usize,
    depth_limit: usize,
    last: u32,
    /// Not yet sent to the output thread.
    fresh: Vec<Stack>,
    refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Key {
    space: u32,
    start: usize,
    len: usize,
}

const PERF_CONTEXT_MAX: u64 = -4095_i64 as u64; // markers are above, include/uapi/linux/perf_event.h
const PERF_CONTEXT_KERNEL: u64 = -128_i64 as u64;

impl Stacks {
    /// `depth_limit`: at how many addresses the kernel cuts (`kernel.perf_event_max_stack`).
    pub fn new(limit_bytes: usize, depth_limit: usize) -> Stacks {
        Stacks {
            by_hash: FxHashMap::default(),
            words: Vec::new(),
            bytes: 0,
            limit_bytes,
            depth_limit,
            last: 0,
            fresh: Vec::new(),
            refused: 0,
        }
    }

    /// The id of `chain` in process `pid`. None when it is empty or the table is full.
    pub fn intern(&mut self, chain: Callchain<'_>, pid: i32, spaces: &mut Spaces) -> Option<StackId> {
        if chain.is_empty() {
            return None;
        }
        let has_user = chain.iter().any(|word| word >= PERF_CONTEXT_MAX && word != PERF_CONTEXT_KERNEL);
        // Kernel addresses mean the same in every process.
        let space = if has_user { spaces.key(pid) } else { 0 };
        let mut hasher = FxHasher::default();
        hasher.write_u32(space);
        chain.iter().for_each(|word| hasher.write_u64(word));
        let hash = hasher.finish();
        let words = &self.words;
        let same = |key: &Key| {
            key.space == space
                && key.len == chain.len()
                && words[key.start..key.start + key.len].iter().copied().eq(chain.iter())
        };
        if let Some((id, _)) = self.by_hash.get(&hash).and_then(|bucket| bucket.iter().find(|(_, key)| same(key))) {
            return Some(*id);
        }
        let frames = self.frames(chain, pid, spaces);
        let key = Key { space, start: self.words.len(), len: chain.len() };
        let id = self.keep(frames, chain.len() * 8)?;
        self.words.extend(chain.iter());
        self.by_hash.entry(hash).or_default().push((id, key));
        Some(id)
    }

    /// A stack read from /proc. Rare, so it is not looked up.
    pub fn named(&mut self, frames: Vec<KernelFrame>) -> Option<StackId> {
        if frames.is_empty() {
            return None;
        }
        self.keep(frames.into_iter().map(Frame::Named).collect(), 0)
    }

    fn frames(&self, chain: Callchain<'_>, pid: i32, spaces: &mut Spaces) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(chain.len() + 1);
        let mut kernel = true;
        for word in chain.iter() {
            if word >= PERF_CONTEXT_MAX {
                kernel = word == PERF_CONTEXT_KERNEL;
            } else if kernel {
                frames.push(Frame::Kernel(word));
            } else {
                frames.push(Frame::User { addr: word, place: spaces.locate(pid, word) });
            }
        }
        if frames.len() >= self.depth_limit {
            frames.push(Frame::Truncated);
        }
        frames
    }

    fn keep(&mut self, frames: Vec<Frame>, key_bytes: usize) -> Option<StackId> {
        let bytes = key_bytes + frames.len() * size_of::<Frame>() + 96; // the maps' own share, roughly
        if self.bytes + bytes > self.limit_bytes {
            self.refused += 1;
            return None;
        }
        self.bytes += bytes;
        self.last += 1;
        let id = StackId(NonZeroU32::new(self.last)?);
        self.fresh.push(Stack { id, frames: frames.into() });
        Some(id)
    }

    /// The stacks that the output thread does not know yet.
    pub fn take_fresh(&mut self) -> Vec<Stack> {
        std::mem::take(&mut self.fresh)
    }

    #[inline]
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// How many stacks found the table full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::target::Host;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn chain(bytes: &[u8]) -> Callchain<'_> {
        Callchain::from_bytes(bytes)
    }

    fn spaces() -> Spaces {
        Spaces::new(Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() })
    }

    const USER: u64 = -512_i64 as u64;

    #[test]
    fn equal_stacks_share_an_id() {
        let (mut stacks, mut spaces) = (Stacks::new(1 << 20, 127), spaces());
        let kernel = bytes(&[PERF_CONTEXT_KERNEL, 1, 2]);
        let user = bytes(&[PERF_CONTEXT_KERNEL, 1, USER, 2]);
        let first = stacks.intern(chain(&kernel), 5, &mut spaces);
        assert_eq!(first, stacks.intern(chain(&kernel), 6, &mut spaces), "kernel stacks are the same in every process");
        let in_5 = stacks.intern(chain(&user), 5, &mut spaces);
        assert_ne!(in_5, stacks.intern(chain(&user), 6, &mut spaces), "user stacks are not");
        assert_eq!(in_5, stacks.intern(chain(&user), 5, &mut spaces));
        let frames: Vec<usize> = stacks.take_fresh().iter().map(|stack| stack.frames.len()).collect();
        assert_eq!(frames, [2, 2, 2]);
        assert_eq!(stacks.intern(chain(&[]), 5, &mut spaces), None);
    }

    #[test]
    fn a_full_table_counts() {
        let (mut stacks, mut spaces) = (Stacks::new(1000, 127), spaces());
        for n in 0..100 {
            stacks.intern(chain(&bytes(&[PERF_CONTEXT_KERNEL, n])), 5, &mut spaces);
        }
        assert!(stacks.refused() > 50 && stacks.refused() < 100, "{}", stacks.refused());
    }

    #[test]
    fn a_cut_stack_says_so() {
        let (mut stacks, mut spaces) = (Stacks::new(1 << 20, 3), spaces());
        stacks.intern(chain(&bytes(&[PERF_CONTEXT_KERNEL, 1, 2, 3])), 5, &mut spaces);
        let fresh = stacks.take_fresh();
        assert!(matches!(fresh[0].frames.last(), Some(Frame::Truncated)));
    }
}
