//! System calls of threads: their two events, the strings they are given, what their threads do meanwhile, and those in
//! progress since before the run. What is counted of them is the profiler's.
//!
//! `kinds` knows calls by number, `list` those that are wanted; `events` opens the events, `call` has the two ends of a
//! call; `paths` keeps the strings that calls are given; `sched` has the events that show what threads do during a call,
//! and `where_time` sums the time of each state; `before` finds earlier calls; `cells` are the values of lines.

pub mod before;
pub mod call;
pub mod cells;
pub mod events;
pub mod kinds;
pub mod list;
pub mod paths;
pub mod sched;
pub mod where_time;

pub use call::{CallInFlight, CallingThread, EndedCall};
pub use events::{CallEvents, WantedCalls};
pub use kinds::{CallKind, CallKinds, CallNumber};
pub use list::CallList;
pub use paths::{CallPaths, PathOfCall, calls_with_strings};
