//! The typed value of a cell or key. Nothing here is text yet.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::report::CpuRunner;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::call_text::MadeCall;
use crate::tep::context::Interruption;

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
    /// A path, or a word in place of it. JSON has all of it, text its end.
    Path(Arc<[u8]>),
    /// The function of the innermost frame of a stack.
    Place(StackId),
    /// An interrupt, by its kind and the stack of its handler: the output thread finds its name.
    Interrupt(Interruption, Option<StackId>),
    /// A system call with its arguments: the output thread words it.
    Call(Arc<MadeCall>),
    /// The function that waits, by the stack of the switch away from its CPU.
    WaitPlace(StackId),
    /// A list of words, joined by blanks in text.
    Words(Arc<[String]>),
    /// A process and its ancestors, the nearest first.
    Lineage(Arc<[LineageProcess]>),
    /// Where a record is in a pair.
    Offset(PairOffset),
    /// Who ran during a wait.
    Runners(Arc<[CpuRunner]>),
    /// What an expression gave for an event.
    Outcome(ExprOutcome),
    /// Frames: `stack` in JSON, lines below the row in text. None: there was no stack, or it was not kept.
    Stack(Option<StackId>),
}

impl Value {
    /// Approximate number of bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Text(text) => OVERHEAD_BYTES + text.len(),
            Value::Words(words) => {
                OVERHEAD_BYTES + words.iter().map(|word| size_of_val(word) + word.len()).sum::<usize>()
            }
            Value::Path(path) => OVERHEAD_BYTES + path.len(),
            Value::Outcome(ExprOutcome::Text(text)) => OVERHEAD_BYTES + text.len(),
            Value::Outcome(ExprOutcome::Named(_, name)) => OVERHEAD_BYTES + name.len(),
            Value::Outcome(_) => 0,
            Value::Call(call) => OVERHEAD_BYTES + size_of_val(&**call),
            Value::Runners(runners) => OVERHEAD_BYTES + size_of_val(&runners[..]),
            Value::Lineage(kin) => OVERHEAD_BYTES + size_of_val(&kin[..]),
            Value::None | Value::Unsigned(_) | Value::Signed(_) | Value::Ns(_) | Value::Age(_) | Value::Pct(_) => 0,
            Value::Us(_)
            | Value::Moment(_)
            | Value::Bool(_)
            | Value::Address(_)
            | Value::Word(_)
            | Value::Phrase { .. }
            | Value::Comm(_) => 0,
            Value::Offset(_) | Value::Place(_) | Value::WaitPlace(_) | Value::Stack(_) | Value::Interrupt(..) => 0,
        }
    }
}

/// Approximate overhead of the allocator for each allocation.
pub const OVERHEAD_BYTES: usize = 16;

/// What an expression gave for an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprOutcome {
    Signed(i64),
    Unsigned(u64),
    Text(Arc<[u8]>),
    /// An address of the kernel, and its stack, which the output thread names.
    Place(u64, Option<StackId>),
    /// A number with its name.
    Named(u64, Arc<str>),
    /// There is no value, and why.
    NoValue(&'static str),
}

/// Where a record is in a pair, and what it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PairOffset {
    /// From the start of the pair.
    pub ns: i64,
    /// Records before it that were left out.
    pub hidden: u32,
    /// For a switch: how long the task that leaves its CPU has run.
    pub ran_ns: Option<NonZeroU64>,
    /// What the thread that is the key does after this record.
    pub thread: Option<ThreadNow>,
}

/// What a thread does after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadNow {
    Woken,
    Moved,
    Running,
    Preempted,
    Sleeping,
    /// In state D.
    Blocked,
    /// Stopped, traced or in another state.
    Stopped,
}

impl ThreadNow {
    pub fn word(self) -> &'static str {
        match self {
            ThreadNow::Woken => "woken",
            ThreadNow::Moved => "moved",
            ThreadNow::Running => "running",
            ThreadNow::Preempted => "preempted",
            ThreadNow::Sleeping => "sleeping",
            ThreadNow::Blocked => "blocked",
            ThreadNow::Stopped => "stopped",
        }
    }
}

/// One process of a [`Value::Lineage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineageProcess {
    pub pid: i32,
    pub comm: Comm,
    pub command: Command,
}

/// The command line of a process of a lineage: the output thread asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Unasked,
    /// The process has ended.
    Gone,
    /// The process is a kernel thread, or its command line cannot be read.
    Unknown,
    Line(Arc<str>),
}
