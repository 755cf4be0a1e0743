//! The fuzz targets: for each a plain function of bytes that panics on a finding.
//!
//! `fuzz_targets/` passes them the bytes of libFuzzer; `tests/hostile.rs` of the main package, which takes this file in
//! as a module, replays `corpus/` through the same functions. The functions are independent of both.

mod input;

pub mod demangle;
pub mod elf;
pub mod expr;
pub mod filter;
pub mod format;
pub mod http;
pub mod kallsyms;
pub mod merge;
pub mod named;
pub mod perf_map;
pub mod print_fmt;
pub mod probe_args;
pub mod proc_files;
pub mod record;
pub mod ring;
pub mod selector;
pub mod values;
pub mod waits;
pub mod walk;
