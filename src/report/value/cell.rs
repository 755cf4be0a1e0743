//! Values of types that single profilers define, which print themselves for every reader.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::json::Object;
use crate::report::Value;
use crate::symbol::StackId;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::task::Comm;
use crate::task::call_parts::{CallPartsOf, PartSums};
use crate::task::descriptor::OpenFile;

/// A value of a profiler's own type. A value that needs a look-up has neither text nor JSON before that: see
/// [`Cell::looked_up`].
///
/// The type must be `Eq` and `Hash`, so that equal cells can be merged.
pub trait Cell: Any + Debug + Send + Sync + CellIdentity {
    /// Appends the text for a line.
    fn text(&self, _out: &mut Vec<u8>) {}

    /// Appends the shorter text for tables, the screen and labels of metrics.
    fn brief(&self, out: &mut Vec<u8>) {
        self.text(out);
    }

    /// Appends the value as JSON.
    fn json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"null");
    }

    /// Writes keys into the object of the traced event that the value belongs to.
    fn event_keys(&self, _object: &mut Object<'_>) {}

    /// Appends text that stands in front of the task in the line of such an event.
    fn before_event(&self, _out: &mut Vec<u8>) {}

    /// Appends text at the end of the line of such an event; by default a line below it.
    fn behind_event(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\n    ");
        self.text(out);
    }

    /// The value completed with what only the output thread can look up. None: it is complete.
    fn looked_up(&self, _look_ups: &mut dyn CellLookUps) -> Option<Value> {
        None
    }

    /// Approximate number of heap bytes.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// What the output thread looks up for cells.
pub trait CellLookUps {
    /// The frames of a stack with their names, innermost first.
    fn frames(&mut self, stack: StackId) -> Vec<NamedFrame>;

    /// The text of a frame: function, offset and file.
    fn place(&self, frame: &NamedFrame) -> Arc<str>;

    /// The name of the kernel's variable at an address, with the offset into it. None: it has none, or is not listed.
    fn kernel_data(&mut self, address: u64) -> Option<Arc<str>>;

    /// What a process executes, if it still has this name.
    fn command(&mut self, pid: i32, comm: Comm) -> Command;

    /// The file that a descriptor of a thread is open on; of `AT_FDCWD` the current directory, without its device.
    fn file(&mut self, tid: i32, fd: i32) -> Option<OpenFile>;

    /// The sums of the parts of a call that a thread is in.
    fn part_sums(&mut self, question: &CallPartsOf) -> Option<PartSums>;

    /// The path at an address of a thread's memory.
    fn string(&mut self, tid: i32, address: u64) -> Option<Vec<u8>>;
}

/// The command line of a process, as the output thread finds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Unasked,
    /// The process has ended.
    Gone,
    /// The process is a kernel thread, or its command line cannot be read.
    Unknown,
    Line(Arc<str>),
}

/// Comparison of cells whose type is not known.
pub trait CellIdentity {
    fn is_equal(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
}

impl<C: Eq + Hash + 'static> CellIdentity for C {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

/// A cell of any type.
#[derive(Clone, Debug)]
pub struct AnyCell(Arc<dyn Cell>);

impl AnyCell {
    pub fn new(cell: impl Cell) -> AnyCell {
        AnyCell(Arc::new(cell))
    }
}

impl Deref for AnyCell {
    type Target = dyn Cell;

    fn deref(&self) -> &dyn Cell {
        &*self.0
    }
}

impl PartialEq for AnyCell {
    fn eq(&self, other: &AnyCell) -> bool {
        self.0.is_equal(&*other.0)
    }
}

impl Eq for AnyCell {}

impl Hash for AnyCell {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash_into(state);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Look-ups that find nothing.
    pub struct NoLookUps;

    impl CellLookUps for NoLookUps {
        fn frames(&mut self, _stack: StackId) -> Vec<NamedFrame> {
            Vec::new()
        }

        fn place(&self, _frame: &NamedFrame) -> Arc<str> {
            "".into()
        }

        fn kernel_data(&mut self, _address: u64) -> Option<Arc<str>> {
            None
        }

        fn command(&mut self, _pid: i32, _comm: Comm) -> Command {
            Command::Unknown
        }

        fn part_sums(&mut self, _question: &CallPartsOf) -> Option<PartSums> {
            None
        }

        fn file(&mut self, _tid: i32, _fd: i32) -> Option<OpenFile> {
            None
        }

        fn string(&mut self, _tid: i32, _address: u64) -> Option<Vec<u8>> {
            None
        }
    }

    impl Value {
        /// The value as the output thread shows it when look-ups find nothing.
        pub fn without_look_ups(self) -> Value {
            let found = self.as_cell().and_then(|cell| cell.looked_up(&mut NoLookUps));
            found.unwrap_or(self)
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct EvenCell(u64);

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct OddCell(u64);

    impl Cell for EvenCell {}
    impl Cell for OddCell {}

    #[test]
    fn cells_are_equal_if_their_types_and_values_are() {
        let cells = [Value::cell(EvenCell(2)), Value::cell(EvenCell(4)), Value::cell(OddCell(2))];
        assert_eq!(cells[0], Value::cell(EvenCell(2)));
        assert!(cells[0] != cells[1] && cells[0] != cells[2] && cells[0] != Value::Unsigned(2));
        let different: std::collections::HashSet<Value> = cells.iter().chain(&cells).cloned().collect();
        assert_eq!(different.len(), 3);
        assert!(cells[0].heap_bytes() > size_of::<EvenCell>());
    }
}
