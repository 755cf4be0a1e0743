//! Perf maps, in which processes name code that they generate: where the map of a process is ([`mod@file`]), and what is in it
//! ([`content`]).

pub mod content;
pub mod file;
