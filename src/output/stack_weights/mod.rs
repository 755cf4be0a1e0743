//! Weights of stacks: added up by names (`fold`), kept until their names are found (`unsettled`), and listed by weight
//! as functions and stacks (`top`).

pub mod fold;
pub mod top;
pub mod unsettled;
