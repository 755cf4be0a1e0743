//! The frames of a stack, and the number that stands for it.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::symbol::spaces::module::Module;
use crate::symbol::unnamed::UnnamedReason;
use crate::task::procfs::KernelFrame;
use crate::task::python::PythonFrame;

/// An interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub(super) NonZeroU32);

impl StackId {
    /// No other stack of the run ever has this number.
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

/// A frame of a stack. Stacks list their frames innermost first.
#[derive(Clone, Debug)]
pub enum Frame {
    Kernel {
        addr: u64,
        behind_call: bool,
    },
    User {
        addr: u64,
        /// `addr` is a return address. The call before it may be the last instruction of its function; `addr` itself
        /// then lies in another function.
        behind_call: bool,
        /// This frame and those further out were found by an unproven guess; the frames before it were not.
        guessed: bool,
        /// The module and the offset in its file, or why there is none. Of a return address: the place of the call, one
        /// byte before `addr`.
        place: Result<(Arc<Module>, u64), UnnamedReason>,
    },
    Named(Box<KernelFrame>),
    /// A function of a program that an interpreter executes.
    Python(Box<PythonFrame>),
    /// The stack went on here, but was cut.
    Truncated(StackCut),
}

/// What cut a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackCut {
    DepthLimit,
    /// The copy of the user stack ended after so many KiB.
    Window {
        kib: u8,
    },
}
