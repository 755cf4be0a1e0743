//! Whether callchains are whole ([`chain`]), and how many are ([`counts`]).

pub mod chain;
pub mod counts;
