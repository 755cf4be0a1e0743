//! A frame as it is shown.

use std::sync::Arc;

use crate::symbol::naming::name_cache::FunctionName;
use crate::symbol::perf_map::file::may_be_replaced;
use crate::symbol::unnamed::{GIVEN_UP, NOT_IN_MAP, Unnamed, UnnamedReason};

/// A frame with its name, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFrame {
    /// None for frames from /proc, which have no address, and for the marker of a cut stack.
    pub addr: Option<u64>,
    /// The symbol, or why the frame has none.
    pub symbol: Result<Arc<str>, Unnamed>,
    /// Offset from the start of the function, whether it has a symbol or not. If the function is not known: the offset in
    /// the file, or the address.
    pub offset: u64,
    pub module: Option<Arc<str>>,
    /// Line in the source file (the module) of a function that an interpreter executes; 0: not known. Such a frame has
    /// no address.
    pub line: Option<u32>,
    /// This frame and those further out were found by an unproven guess; the frames before it were not.
    pub guessed: bool,
}

impl NamedFrame {
    /// A frame without an address and a line, and not guessed.
    pub fn new(symbol: Result<Arc<str>, Unnamed>, offset: u64, module: Option<Arc<str>>) -> NamedFrame {
        NamedFrame { addr: None, symbol, offset, module, line: None, guessed: false }
    }

    pub(super) fn of(function: &FunctionName, offset: u64, addr: Option<u64>) -> NamedFrame {
        NamedFrame { addr, ..NamedFrame::new(function.name.clone(), offset, function.module.clone()) }
    }

    /// True when the time for names was used up before the name of this frame was looked up.
    pub fn is_given_up(&self) -> bool {
        self.reason() == Some(GIVEN_UP)
    }

    /// True when a later look-up may find a name: the time was used up, or a perf map may still name the frame.
    pub fn may_get_name(&self) -> bool {
        let by_map = |why: UnnamedReason| why == NOT_IN_MAP || may_be_replaced(why);
        self.is_given_up() || self.reason().is_some_and(by_map)
    }

    pub(super) fn reason(&self) -> Option<UnnamedReason> {
        self.symbol.as_ref().err().map(|unnamed| unnamed.reason)
    }

    pub fn function(&self) -> FunctionName {
        FunctionName { name: self.symbol.clone(), module: self.module.clone() }
    }
}
