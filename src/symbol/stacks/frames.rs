//! Frames of the stacks that the output thread knows, in one array. Stacks of all lengths come and go: separate
//! allocations would fragment the heap.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::perf::record::UserPart;
use crate::symbol::stacks::frame::{Frame, StackId};

/// Where the user part of a stack comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStack {
    pub part: UserPart,
    /// The file that the process executes. None: nothing is known of its mappings.
    pub program: Option<Arc<str>>,
    pub pid: i32,
}

/// Frames by stack.
#[derive(Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    /// Range of the frames in `frames`: first, and one past the last.
    spans: FxHashMap<StackId, (usize, usize)>,
    /// Where the user part comes from, for stacks with frames of a program.
    users: FxHashMap<StackId, UserStack>,
}

/// Frames by which the array grows at least.
const MIN_GROWTH: usize = 1024;

impl Frames {
    pub fn insert(&mut self, id: StackId, frames: impl IntoIterator<Item = Frame>) {
        let start = self.frames.len();
        for frame in frames {
            if self.frames.len() == self.frames.capacity() {
                self.frames.reserve_exact(MIN_GROWTH.max(self.frames.len() / 4)); // doubling would waste too much
            }
            self.frames.push(frame);
        }
        self.spans.insert(id, (start, self.frames.len()));
    }

    /// Where the user part of a stack comes from.
    pub fn set_user(&mut self, id: StackId, user: UserStack) {
        self.users.insert(id, user);
    }

    /// None: the stack has no frame of a program, or is unknown.
    pub fn user(&self, id: StackId) -> Option<&UserStack> {
        self.users.get(&id)
    }

    /// The frames of a stack, innermost first. None for an unknown stack.
    pub fn get(&self, id: StackId) -> Option<&[Frame]> {
        let &(start, end) = self.spans.get(&id)?;
        self.frames.get(start..end)
    }

    /// Forgets all stacks but those for which `keep` is true, and frees their memory.
    pub fn retain(&mut self, mut keep: impl FnMut(StackId) -> bool) {
        self.spans.retain(|&id, _| keep(id));
        self.users.retain(|id, _| self.spans.contains_key(id));
        let mut spans: Vec<&mut (usize, usize)> = self.spans.values_mut().collect();
        spans.sort_unstable();
        let mut behind = 0;
        for span in spans {
            let start = behind;
            for from in span.0..span.1 {
                self.frames.swap(behind, from); // `behind` is never above `from`
                behind += 1;
            }
            *span = (start, behind);
        }
        self.frames.truncate(behind);
        self.frames.shrink_to_fit();
        self.spans.shrink_to_fit();
        self.users.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Innermost;
    use crate::symbol::{SpaceKeys, Stacks};

    #[test]
    fn kept_stacks_keep_their_frames() {
        let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
        let mut frames = Frames::default();
        let ids: Vec<StackId> =
            (1..50).filter_map(|n| stacks.intern_address(n, false, Innermost::Executed, 5, &mut keys)).collect();
        for (n, &id) in ids.iter().enumerate() {
            frames.insert(id, (1..=n as u64 + 1).map(|addr| Frame::Kernel { addr, behind_call: false }));
            frames.set_user(id, UserStack { program: Some(format!("/{n}").into()), ..UserStack::default() });
        }
        let addresses = |frames: &Frames, id: StackId| {
            let address =
                |frame: &Frame| if let Frame::Kernel { addr, .. } = frame { *addr } else { panic!("{frame:?}") };
            frames.get(id).map(|frames| frames.iter().map(address).collect::<Vec<u64>>())
        };
        let is_kept = |n: usize| n.is_multiple_of(7);
        frames.retain(|id| is_kept(ids.iter().position(|other| *other == id).unwrap()));
        for (n, &id) in ids.iter().enumerate() {
            assert_eq!(addresses(&frames, id), is_kept(n).then(|| (1..=n as u64 + 1).collect()));
            let program = frames.user(id).and_then(|user| user.program.as_deref());
            assert_eq!(program, is_kept(n).then(|| format!("/{n}")).as_deref());
        }
        assert_eq!(frames.frames.len(), (0..ids.len()).filter(|&n| is_kept(n)).map(|n| n + 1).sum::<usize>());
    }
}
