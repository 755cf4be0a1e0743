//! The typed value of a cell or key. Nothing here is text yet. A value of a rare kind is a [`Cell`], which a look-up
//! may replace by another [`Value`].

pub mod cell;

use std::sync::Arc;

use crate::report::{AnyCell, Cell};
use crate::symbol::StackId;
use crate::task::Comm;

/// One cell of a row or one key of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Not known: left out of JSON, blank in text.
    None,
    Unsigned(u64),
    Signed(i64),
    /// A duration, in text in ms.
    Ns(u64),
    /// A duration in ns, in text in us.
    Us(u64),
    /// A time, ns, CLOCK_MONOTONIC: in a table of text the time of day.
    Moment(u64),
    /// An age in ns, in text in its shortest form.
    Age(u64),
    /// Hundredths of a per cent.
    Pct(u32),
    Bool(bool),
    /// Printed in hexadecimal.
    Address(u64),
    Word(&'static str),
    /// A word in JSON, a phrase in text.
    Phrase {
        word: &'static str,
        text: &'static str,
    },
    Comm(Comm),
    Text(Arc<str>),
    /// A path, or a word in place of it. JSON has the whole path, text only the end of a long one.
    Path(Arc<[u8]>),
    /// The function of the innermost frame of a stack.
    Place(StackId),
    /// A list of words, joined by blanks in text.
    Words(Arc<[String]>),
    /// A value of a profiler's own kind.
    Cell(AnyCell),
    /// Frames: `stack` in JSON, lines below the row in text. None: there was no stack, or it was not kept.
    Stack(Option<StackId>),
}

impl Value {
    /// A value of a profiler's own kind.
    pub fn cell(cell: impl Cell) -> Value {
        Value::Cell(AnyCell::new(cell))
    }

    pub fn as_cell(&self) -> Option<&dyn Cell> {
        if let Value::Cell(cell) = self { Some(&**cell) } else { None }
    }

    /// Approximate number of bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Text(text) => OVERHEAD_BYTES + text.len(),
            Value::Words(words) => {
                OVERHEAD_BYTES + words.iter().map(|word| size_of_val(word) + word.len()).sum::<usize>()
            }
            Value::Path(path) => OVERHEAD_BYTES + path.len(),
            Value::Cell(cell) => OVERHEAD_BYTES + size_of_val(&**cell) + cell.heap_bytes(),
            _ => 0,
        }
    }
}

/// Approximate overhead of the allocator for each allocation.
pub const OVERHEAD_BYTES: usize = 16;
