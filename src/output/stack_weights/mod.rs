//! Weights of stacks: added up by names (`fold`), kept until their names are found (`unsettled`), and the functions and
//! stacks with the most as lists (`top`).

pub mod fold;
pub mod top;
pub mod unsettled;
