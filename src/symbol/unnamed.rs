//! Frames whose function has no name, and why it has none.

use std::fmt;

/// Why a frame has no name, in the words of the output; also why the file that would name it could not be opened.
pub type UnnamedReason = &'static str;

pub const NOT_ELF: UnnamedReason = "non-elf";
pub const STRIPPED: UnnamedReason = "stripped";
pub const NO_SYMBOL: UnnamedReason = "between symbols";
pub const TOO_LARGE: UnnamedReason = "too many symbols: a larger `--symbol-memory` helps";
pub const TOO_SLOW: UnnamedReason = "too many symbols: they take too long to read";
/// The names that the file has now need not be those of the functions that were found in it.
pub const CHANGED: UnnamedReason = "its file has changed";
/// The file did not answer in time.
pub const NO_ANSWER: UnnamedReason = "its file does not answer";
pub const DELETED: UnnamedReason = "deleted";
pub const NO_PERM: UnnamedReason = "no-perm";
pub const EXITED: UnnamedReason = "exited";
/// The process has no number in our pid namespace.
pub const OUTSIDE: UnnamedReason = "outside of this pid namespace";
/// The limit of open files is reached.
pub const NO_ROOM: UnnamedReason = "too many files are mapped: a larger `ulimit -n` helps";
/// The address is in no executable mapping.
pub const NOT_MAPPED: UnnamedReason = "not mapped when last seen";
/// A word of a user stack cannot be a user address.
pub const NO_ADDRESS: UnnamedReason = "no address: no frame pointers here";
/// A return probe has replaced the return address, the only trace of the caller.
pub const RETURN_PROBE: UnnamedReason = "hidden by a return probe";
/// No perf map was found.
pub const JIT_NO_MAP: UnnamedReason = "jit-no-map";
pub const NOT_IN_MAP: UnnamedReason = "not in its perf map";
pub const HIDDEN: UnnamedReason = "no-perm: kernel.kptr_restrict hides addresses";
/// There was no time for the name.
pub const GIVEN_UP: UnnamedReason = "names given up";

/// Why a frame has no name, and the function that it is in, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unnamed {
    pub reason: UnnamedReason,
    /// The linker's address of the function's first byte, by the unwind tables of its file. None: the tables do not
    /// say.
    pub function: Option<u64>,
}

impl From<UnnamedReason> for Unnamed {
    fn from(reason: UnnamedReason) -> Unnamed {
        Unnamed { reason, function: None }
    }
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}
