//! Names of threads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A thread's name: up to 15 bytes of anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Comm([u8; 16]);

impl Comm {
    /// The first 15 bytes of `name`, up to a NUL.
    #[inline]
    pub fn new(name: &[u8]) -> Comm {
        // The first and last bytes of a short name overlap in bytes that are equal in both.
        let ends =
            |first: u64, last: u64, width: usize| u128::from(first) | u128::from(last) << (8 * (name.len() - width));
        let field = if let Some(field) = name.first_chunk() {
            u128::from_le_bytes(*field)
        } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            ends(u64::from_le_bytes(*first), u64::from_le_bytes(*last), 8)
        } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            ends(u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into(), 4)
        } else {
            name.iter().rev().fold(0, |field, &byte| field << 8 | u128::from(byte))
        };
        Comm::cut(field)
    }

    /// The name of an existing task. A task may have an empty name (PR_SET_NAME), while an empty [`Comm`] means an
    /// unknown name.
    #[inline]
    pub fn of_task(name: &[u8]) -> Comm {
        const EMPTY: Comm = Comm(*b"<empty>\0\0\0\0\0\0\0\0\0");
        let comm = Comm::new(name);
        if comm.is_empty() { EMPTY } else { comm }
    }

    /// Clears the bytes from the first NUL on, without a loop: every event of the scheduler has two names.
    #[inline]
    fn cut(field: u128) -> Comm {
        let [first, last] = [field as u64, (field >> 64) as u64 & (u64::MAX >> 8)]; // the last byte is always NUL
        let [first, last] = match before_nul(first) {
            Some(first) => [first, 0], // most names are short
            None => [first, before_nul(last).unwrap_or(last)],
        };
        Comm((u128::from(first) | u128::from(last) << 64).to_le_bytes())
    }

    pub fn as_bytes(&self) -> &[u8] {
        // All bytes behind the name are 0.
        let len = self.0.len() - u128::from_le_bytes(self.0).leading_zeros() as usize / 8;
        &self.0[..len]
    }

    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

/// The bytes of a word before its first NUL. None: the word has no NUL.
#[inline]
fn before_nul(word: u64) -> Option<u64> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    // The high bit of each zero byte, and of some bytes behind the first one.
    let zeros = word.wrapping_sub(ONES) & !word & HIGH;
    let first = zeros & zeros.wrapping_neg();
    (zeros != 0).then(|| word & (first >> 7).wrapping_sub(1))
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_may_end_a_name() {
        for (end, byte) in (0..16).flat_map(|end| [0x01, 0x7f, 0x80, 0x81, 0xff].map(|byte| (end, byte))) {
            let mut field = [byte; 16];
            field[end] = 0;
            assert_eq!(Comm::new(&field).as_bytes(), &field[..end]);
        }
        assert_eq!(Comm::new(&[0x80; 16]).as_bytes(), [0x80; 15]);
    }

    #[test]
    fn a_task_without_a_name_is_there() {
        for (name, want) in [(&b""[..], &b"<empty>"[..]), (b"\0rubbish", b"<empty>"), (b"sh\0", b"sh"), (b" ", b" ")] {
            assert_eq!(Comm::of_task(name).as_bytes(), want);
        }
    }

    #[test]
    fn comm_is_cut_at_nul_and_15_bytes() {
        let cases: [(&[u8], &[u8]); 4] = [
            (b"", b""),
            (b"sh\0rubbish", b"sh"),
            (b"0123456789abcdef", b"0123456789abcde"),
            (b"\xff\x1b[", b"\xff\x1b["),
        ];
        for (name, want) in cases {
            assert_eq!(Comm::new(name).as_bytes(), want);
        }
    }
}
