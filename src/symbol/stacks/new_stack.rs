//! A stack on its way to the output thread, and its frames: addresses as places in files, as these are mapped at the moment.

use std::sync::Arc;

use crate::perf::record::{Innermost, UserPart};
use crate::symbol::spaces::address_spaces::AddressSpaces;
use crate::symbol::stacks::chain_words::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, user_part_start, without_end_marker};
use crate::symbol::stacks::frame::{Frame, StackCut, StackId};
use crate::symbol::stacks::waiters::WaiterStack;
use crate::symbol::stacks::windows::{StackWindow, UnwoundAddress, unwound_addresses};
use crate::symbol::unnamed::NO_ADDRESS;
use crate::task::procfs::KernelFrame;

/// A stack that was just interned, on its way to the output thread.
#[derive(Clone, Debug)]
pub struct NewStack {
    pub id: StackId,
    pub pid: i32,
    pub body: StackBody,
}

/// The frames of a stack before their addresses are located.
#[derive(Clone, Debug)]
pub enum StackBody {
    /// Addresses and markers as the kernel writes them; `cut`: the depth limit was reached.
    Chain { words: Box<[u64]>, cut: bool, innermost: Innermost, user: UserPart },
    /// The user part is yet to be unwound.
    Window(Arc<StackWindow>),
    /// Frames of /proc/TID/stack, which gives names but no addresses.
    Named(Vec<KernelFrame>),
    /// The stack of a thread that waits.
    Waiter(Box<WaiterStack>),
}

impl NewStack {
    /// How the user part was found.
    pub fn user_part(&self) -> UserPart {
        match &self.body {
            StackBody::Chain { user, .. } => *user,
            StackBody::Waiter(waiter) => waiter.part,
            StackBody::Window(_) | StackBody::Named(_) => UserPart::FramePointers,
        }
    }

    /// The frames; user addresses become offsets in the files that are mapped now.
    pub fn frames(self, spaces: &mut AddressSpaces) -> Vec<Frame> {
        let (words, cut, innermost, user) = match self.body {
            StackBody::Named(frames) => return frames.into_iter().map(|frame| Frame::Named(Box::new(frame))).collect(),
            StackBody::Waiter(waiter) => return waiter.frames(spaces),
            StackBody::Chain { words, cut, innermost, user } => (words, cut, innermost, user),
            // The window was not unwound: only the frames that the kernel found are known.
            StackBody::Window(window) => (window.words.clone(), false, window.form.innermost, UserPart::FramePointers),
        };
        let mut frames = Vec::with_capacity(words.len() + 1);
        let (before, user_words) = words.split_at(user_part_start(words.iter().copied(), words.len()));
        let mut kernel = true;
        let mut is_first = true; // the innermost address since the last marker
        for &addr in without_end_marker(before) {
            if addr >= PERF_CONTEXT_MAX {
                kernel = addr == PERF_CONTEXT_KERNEL;
                is_first = true;
                continue;
            }
            let behind_call = match innermost {
                _ if !is_first => true,
                Innermost::Executed => false,
                Innermost::BehindTracepoint => kernel,
                Innermost::BehindCall => frames.is_empty(),
            };
            is_first = false;
            frames.push(match kernel {
                true => Frame::Kernel { addr, behind_call },
                false => Frame::User { addr, behind_call, guessed: false, place: Err(NO_ADDRESS) }, // of a guest
            });
        }
        let by_frame_pointers = without_end_marker(user_words).get(1..).unwrap_or_default();
        let user_part: Vec<UnwoundAddress> = match user {
            UserPart::FramePointers => by_frame_pointers
                .iter()
                .enumerate()
                .map(|(index, &addr)| UnwoundAddress { addr, is_behind_call: index > 0, is_guess: false })
                .collect(),
            _ => unwound_addresses(by_frame_pointers).collect(),
        };
        let is_return = innermost == Innermost::BehindCall && frames.is_empty();
        for (index, &UnwoundAddress { addr, is_behind_call, is_guess }) in user_part.iter().enumerate() {
            let behind_call = is_behind_call || index == 0 && is_return;
            let place = spaces.locate(self.pid, addr.saturating_sub(u64::from(behind_call)));
            frames.push(Frame::User { addr, behind_call, guessed: is_guess, place });
        }
        match user {
            _ if cut || user == UserPart::TooDeep => frames.push(Frame::Truncated(StackCut::DepthLimit)),
            UserPart::Truncated { kib } => frames.push(Frame::Truncated(StackCut::Window { kib })),
            _ => {}
        }
        frames
    }
}
