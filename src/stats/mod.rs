//! Results as plain data: distributions that many events are counted into ([`Histogram`]), typed values, rows and
//! single occurrences ([`value`]).

pub mod histogram;
pub mod value;

pub use histogram::Histogram;
