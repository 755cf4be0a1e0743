//! The typed value of a cell or key. Nothing here is text yet. A value of a rare kind is a [`Cell`], which a look-up
//! may replace by another [`Value`].

pub mod cell;

use std::sync::Arc;

use crate::report::{AnyCell, Cell};
use crate::stats::Began;
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
    /// The share of `part` in `whole`, rounded; unknown of nothing.
    pub fn share(part: u64, whole: u64) -> Value {
        if whole == 0 { Value::None } else { Value::Pct(hundredths_of(part, whole)) }
    }

    /// Since when a period lasts whose beginning was not seen.
    pub fn beginning(began: Began) -> Value {
        match began {
            Began::Exactly => Value::None,
            Began::BeforeStart => Value::Phrase { word: "before_start", text: "it began before the start" },
            Began::BeforeLoss => Value::Phrase { word: "before_loss", text: "records were lost" },
        }
    }

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

/// The share of `part` in `whole` in hundredths of a per cent, rounded; 0 of nothing.
pub fn hundredths_of(part: u64, whole: u64) -> u32 {
    let whole = u128::from(whole.max(1));
    let hundredths = (u128::from(part) * 10_000 + whole / 2) / whole;
    u32::try_from(hundredths).unwrap_or(u32::MAX)
}

/// Approximate overhead of the allocator for each allocation.
pub const OVERHEAD_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded() {
        for (part, whole, want) in [(0, 0, 0), (1, 3, 3333), (2, 3, 6667), (7, 7, 10_000), (u64::MAX, u64::MAX, 10_000)]
        {
            assert_eq!(hundredths_of(part, whole), want, "{part} of {whole}");
        }
    }
}
