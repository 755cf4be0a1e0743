//! perf-prof as a library: the rooms behind the `perf-prof` binary, shared with its examples, benches and tests.
//!
//! Data flows one way: the kernel's ring buffers ([`ringbuf`]) hold records ([`perf`]), a run ([`run`]) merges them
//! by time and hands samples to a profiler ([`profiler`]), whose reports the output thread ([`output`]) prints.

/// Of the tests of the whole program.
#[cfg(test)]
#[macro_use]
#[path = "../tests/common"]
mod common {
    #[macro_use]
    pub mod skips;
}

pub mod app;
pub mod bpf;
pub mod calls;
pub(crate) mod caret;
pub mod cli;
pub mod commands;
pub mod destination;
pub mod digits;
pub mod escape;
pub mod event;
pub mod expr;
pub mod file;
pub mod glob;
pub mod host;
pub mod json;
pub mod output;
pub mod outside;
pub mod perf;
pub mod profiler;
pub mod profilers;
pub mod relation;
pub mod report;
pub mod ringbuf;
pub mod run;
pub mod sched;
pub mod stats;
pub mod symbol;
pub mod sys;
pub mod task;
pub mod tep;
pub mod unwind;
