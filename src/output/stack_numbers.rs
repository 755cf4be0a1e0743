//! Numbers by which stacks are named that stand above: who reads sees at once that it is the same place again.

use rustc_hash::FxHashMap;

use crate::symbol::stack_key::StackKey;

/// Stacks known at most.
const MOST: usize = 256;
/// A stack is printed anew when more lines than that came since.
const NEAR_LINES: u64 = 200;

#[derive(Debug, Default)]
pub struct StackNumbers {
    known: FxHashMap<StackKey, Known>,
    /// The greatest number given.
    last: u64,
    /// Printed so far.
    lines: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u64,
    /// The line where its frames were printed last. None: they are to be printed again.
    printed_at: Option<u64>,
    /// And that where it was named last.
    named_at: u64,
}

/// How a stack is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMention {
    /// By its frames, which belong to this number from now on.
    Printed(u64),
    /// By its number.
    Above(u64),
}

impl StackNumbers {
    /// Names a stack. None: there is none that a number could stand for.
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
        if self.known.len() >= MOST {
            let of = |known: &Known| (known.named_at, known.number);
            let oldest = self.known.values().map(of).min();
            self.known.retain(|_, known| Some(of(known)) != oldest);
        }
        self.last += 1;
        self.known.insert(key.clone(), Known { number: self.last, printed_at: Some(now), named_at: now });
        Some(StackMention::Printed(self.last))
    }

    /// Whether its frames need not be printed.
    pub fn is_above(&self, key: &StackKey) -> bool {
        self.known.get(key).is_some_and(|known| is_near(known, self.lines))
    }

    /// The frames had not all of their names: next time they may have.
    pub fn print_again(&mut self, key: &StackKey) {
        if let Some(known) = self.known.get_mut(key) {
            known.printed_at = None;
        }
    }

    /// Counts the lines of what was printed.
    pub fn passed(&mut self, printed: &[u8]) -> u32 {
        let lines = printed.iter().filter(|byte| **byte == b'\n').count();
        self.lines += lines as u64;
        lines.try_into().unwrap_or(u32::MAX)
    }
}

fn is_near(known: &Known, now: u64) -> bool {
    known.printed_at.is_some_and(|line| now - line <= NEAR_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::stack_key::FrameKey;

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
    fn few_are_known() {
        let mut numbers = StackNumbers::default();
        for addr in 0..10 * MOST as u64 {
            numbers.mention(&key(addr));
            numbers.mention(&key(0));
            numbers.passed(b"\n");
            assert!(numbers.known.len() <= MOST);
        }
        use StackMention::{Above, Printed};
        assert!(matches!(numbers.mention(&key(0)), Some(Above(1) | Printed(1))), "it was named all the time");
        assert_eq!(numbers.last, 10 * MOST as u64, "no number is given twice");
    }
}
