//! Results as plain data: distributions that many events are counted into ([`Histogram`]), typed values, rows and
//! single occurrences ([`value`]), and what fell on each stack ([`weights`]).

pub mod histogram;
pub mod value;
pub mod weights;

pub use histogram::Histogram;
