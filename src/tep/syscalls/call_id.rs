//! A system call by its number and mode.

use std::borrow::Cow;

use crate::tep::syscalls::{compat_calls, name};

/// A system call as `syscall_name` has it: its number, and whether that is one of 32-bit mode on a 64-bit kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    pub number: u64,
    pub is_compat: bool,
}

impl CallId {
    /// Set in the bits of a call of 32-bit mode. No number has only this bit in its upper half.
    pub const COMPAT: u64 = 1 << 62;

    pub fn of_bits(bits: u64) -> CallId {
        let is_compat = bits >> 32 == CallId::COMPAT >> 32;
        CallId { number: if is_compat { bits & u64::from(u32::MAX) } else { bits }, is_compat }
    }

    /// The name, as far as it is known. Numbers of 32-bit mode mean other calls: `32-bit getpid`.
    pub fn name(self) -> Option<Cow<'static, str>> {
        match self.is_compat {
            true => Some(compat_calls::text(self.number as u32).into()),
            false => name(self.number).map(Cow::Borrowed),
        }
    }
}
