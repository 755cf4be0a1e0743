//! Names of frames: each frame is named when it is first printed ([`names`]), within a bounded [`time`], and the name of its place is
//! kept ([`name_cache`]). [`named_frame`] is what is shown. [`coverage`] says which places have no name, and [`interrupt`] which
//! interrupt a stack belongs to, by its names.

pub mod coverage;
#[cfg(test)]
pub mod fixture;
pub mod interrupt;
pub mod name_cache;
pub mod named_frame;
pub mod names;
pub mod time;
