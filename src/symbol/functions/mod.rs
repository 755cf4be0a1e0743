//! From a name to an address: functions of programs and libraries ([`binary`]) by their name or a pattern ([`matching`]), in a
//! bounded [`search`].

pub mod binary;
pub mod matching;
pub mod search;
