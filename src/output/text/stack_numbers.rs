//! Numbers of stacks in text: a stack printed a few lines above is referred to by its number, and the reader sees at
//! once that it is the same place.

use rustc_hash::FxHashMap;

use crate::symbol::stacks::key::StackKey;

/// Most stacks that have numbers.
const LIMIT: usize = 256;
/// A stack is printed again when more lines than this have been printed since.
const NEAR_LINES: u64 = 200;

#[derive(Debug, Default)]
pub struct StackNumbers {
    known: FxHashMap<StackKey, NumberedStack>,
    /// The greatest number used.
    last: u64,
    /// Lines printed so far.
    lines: u64,
}

#[derive(Clone, Copy, Debug)]
struct NumberedStack {
    number: u64,
    /// The line at which the frames were last printed. None: they are to be printed again.
    printed_at: Option<u64>,
    /// The line at which the stack was last mentioned.
    named_at: u64,
}

/// How a line refers to its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMention {
    /// The frames follow; the stack has this number from now on.
    Printed(u64),
    /// The frames with this number stand above.
    Above(u64),
}

impl StackNumbers {
    /// Mentions a stack. None: there are no frames that a number could stand for.
    pub fn mention(&mut self, key: &StackKey) -> Option<StackMention> {
        if !matches!(key, StackKey::Frames(_)) {
            return None;
        }
        let now = self.lines;
        if let Some(known) = self.known.get_mut(key) {
            known.named_at = now;
            if is_near(known, now) {
                return Some(StackMention::Above(known.number));
            }
            known.printed_at = Some(now);
            return Some(StackMention::Printed(known.number));
        }
        if self.known.len() >= LIMIT {
            let of = |known: &NumberedStack| (known.named_at, known.number);
            let oldest = self.known.values().map(of).min();
            self.known.retain(|_, known| Some(of(known)) != oldest);
        }
        self.last += 1;
        self.known.insert(key.clone(), NumberedStack { number: self.last, printed_at: Some(now), named_at: now });
        Some(StackMention::Printed(self.last))
    }

    /// Whether the frames stand above and need not be printed.
    pub fn is_above(&self, key: &StackKey) -> bool {
        self.known.get(key).is_some_and(|known| is_near(known, self.lines))
    }

    /// Prints the frames at the next mention, since some had no name yet.
    pub fn print_again(&mut self, key: &StackKey) {
        if let Some(known) = self.known.get_mut(key) {
            known.printed_at = None;
        }
    }

    /// Counts the lines of text that was printed.
    pub fn passed(&mut self, printed: &[u8]) -> u32 {
        let lines = printed.iter().filter(|byte| **byte == b'\n').count();
        self.lines += lines as u64;
        lines.try_into().unwrap_or(u32::MAX)
    }
}

fn is_near(known: &NumberedStack, now: u64) -> bool {
    known.printed_at.is_some_and(|line| now - line <= NEAR_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::stacks::key::FrameKey;

    fn key(addr: u64) -> StackKey {
        StackKey::Frames([FrameKey::Kernel(addr)].into())
    }

    #[test]
    fn a_stack_keeps_its_number() {
        use StackMention::{Above, Printed};
        let mut numbers = StackNumbers::default();
        assert_eq!((numbers.mention(&StackKey::Absent), numbers.mention(&StackKey::Unknown)), (None, None));
        assert_eq!((numbers.mention(&key(1)), numbers.mention(&key(2))), (Some(Printed(1)), Some(Printed(2))));
        assert_eq!(numbers.passed(&[b'\n'; NEAR_LINES as usize]), NEAR_LINES as u32);
        assert!(numbers.is_above(&key(1)) && !numbers.is_above(&key(3)));
        assert_eq!((numbers.mention(&key(1)), numbers.mention(&key(2))), (Some(Above(1)), Some(Above(2))));
        numbers.passed(b"a line\n");
        assert!(!numbers.is_above(&key(2)));
        assert_eq!((numbers.mention(&key(2)), numbers.mention(&key(2))), (Some(Printed(2)), Some(Above(2))));
        assert_eq!((numbers.mention(&key(3)), numbers.mention(&key(1))), (Some(Printed(3)), Some(Printed(1))));
        numbers.print_again(&key(3));
        assert_eq!((numbers.mention(&key(3)), numbers.mention(&key(3))), (Some(Printed(3)), Some(Above(3))));
    }

    #[test]
    fn the_number_of_stacks_is_bounded() {
        let mut numbers = StackNumbers::default();
        for addr in 0..10 * LIMIT as u64 {
            numbers.mention(&key(addr));
            numbers.mention(&key(0));
            numbers.passed(b"\n");
            assert!(numbers.known.len() <= LIMIT);
        }
        use StackMention::{Above, Printed};
        assert!(matches!(numbers.mention(&key(0)), Some(Above(1) | Printed(1))), "it was named all the time");
        assert_eq!(numbers.last, 10 * LIMIT as u64, "no number is given twice");
    }
}
