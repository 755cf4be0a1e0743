//! Stacks: as records have them, and as frames.
//!
//! The main thread interns callchains ([`table`]; [`chain_words`] says what their words mean) and sends new ones to the output thread
//! ([`new_stack`]). A callchain whose user part was not found yet goes as a window of the user's stack ([`windows`]), that of a
//! thread that waits as a snapshot ([`waiters`]); the output thread unwinds these ([`unwinding`]). It makes frames of them
//! ([`frame`]), which it keeps ([`frames`]). [`key`] says which two stacks are equal for a reader.

pub mod chain_words;
pub mod frame;
pub mod frames;
pub mod key;
pub mod new_stack;
pub mod table;
pub mod unwinding;
pub mod waiters;
pub mod windows;
