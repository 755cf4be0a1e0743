//! The typed value of a cell or key. Nothing here is text yet.

use std::sync::Arc;

use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::context::Interruption;

/// One cell of a row or one key of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Not known: left out of JSON, blank in text.
    None,
    Unsigned(u64),
    Signed(i64),
    /// A duration.
    Ns(u64),
    /// How old something is, in ns: brief in text.
    Age(u64),
    /// Hundredths of a per cent.
    Pct(u32),
    Bool(bool),
    /// Hexadecimal.
    Address(u64),
    Word(&'static str),
    /// A word in JSON, a phrase in text.
    Phrase {
        word: &'static str,
        text: &'static str,
    },
    Comm(Comm),
    Text(Arc<str>),
    /// A path, or what stands in its place: whole in JSON, its end in text.
    Path(Arc<[u8]>),
    /// The innermost frame of a stack: its function.
    Place(StackId),
    /// An interrupt, by its kind and the stack of what it did: the output thread finds out what it is called.
    Interrupt(Interruption, Option<StackId>),
    /// A list of words, joined by blanks in text.
    Words(Arc<[String]>),
    /// A process and those that have made it, the next one first.
    Lineage(Arc<[Kin]>),
    /// Frames: `stack` in JSON, lines below its row in text. None: there was none, or it was not kept.
    Stack(Option<StackId>),
}

impl Value {
    /// About as much memory as it takes beside its own.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Text(text) => OVERHEAD_BYTES + text.len(),
            Value::Words(words) => {
                OVERHEAD_BYTES + words.iter().map(|word| size_of_val(word) + word.len()).sum::<usize>()
            }
            Value::Path(path) => OVERHEAD_BYTES + path.len(),
            Value::Lineage(kin) => OVERHEAD_BYTES + size_of_val(&kin[..]),
            Value::None | Value::Unsigned(_) | Value::Signed(_) | Value::Ns(_) | Value::Age(_) | Value::Pct(_) => 0,
            Value::Bool(_) | Value::Address(_) | Value::Word(_) | Value::Phrase { .. } | Value::Comm(_) => 0,
            Value::Place(_) | Value::Stack(_) | Value::Interrupt(..) => 0,
        }
    }
}

/// Of an allocator, for each piece of memory.
pub const OVERHEAD_BYTES: usize = 16;

/// One of a [`Value::Lineage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin {
    pub pid: i32,
    pub comm: Comm,
    pub command: Command,
}

/// What a process of the past executes now: the output thread finds out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Unasked,
    /// It has ended.
    Gone,
    /// It is a kernel thread, or nobody can tell.
    Unknown,
    Line(Arc<str>),
}
