//! The context in which a record was written: the task itself, or an interrupt that happened to hit that task.

use crate::tep::format::Format;
use crate::tep::format::field::Field;

/// The field of an event, `common_flags`, whose bits tell the context of each record.
#[derive(Clone, Debug, Default)]
pub struct ContextFlags(Option<Field>);

/// The kind of interrupt that hit the current task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interruption {
    Hard,
    Soft,
    Nmi,
}

/// `TRACE_FLAG_*`, include/linux/trace_events.h.
const HARD: u64 = 0x08;
const SOFT: u64 = 0x10;
const NMI: u64 = 0x40;

impl ContextFlags {
    pub fn of(format: &Format) -> ContextFlags {
        ContextFlags(format.field("common_flags").cloned())
    }

    /// Flags of a record that was written in a hard interrupt.
    pub const HARD_INTERRUPT: u8 = HARD as u8;

    /// False where the event lacks the field.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Kernel filter that passes records written in a hard or soft interrupt, or all other records.
    pub fn filter(in_interrupt: bool) -> String {
        let bits = HARD | SOFT;
        if in_interrupt { format!("common_flags & {bits}") } else { format!("!(common_flags & {bits})") }
    }

    /// The innermost interrupt in which the record was written. None: the current task wrote it.
    #[inline]
    pub fn interruption(&self, raw: &[u8]) -> Option<Interruption> {
        let flags = self.0.as_ref().and_then(|flags| flags.read_u64(raw).ok()).unwrap_or(0);
        let found = [(NMI, Interruption::Nmi), (HARD, Interruption::Hard), (SOFT, Interruption::Soft)];
        found.into_iter().find(|(bit, _)| flags & bit != 0).map(|(_, interruption)| interruption)
    }

    /// True when an interrupt wrote the record: the current task has no part in it.
    #[inline]
    pub fn in_interrupt(&self, raw: &[u8]) -> bool {
        self.interruption(raw).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_interrupt_counts() {
        let text = "name: y\nID: 1\nformat:\n\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\n\
                    \tfield:int nr;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        let flags = ContextFlags::of(&Format::parse("x", text).unwrap());
        let cases = [
            (0x00, None),
            (0x81, None), // interrupts off, bottom halves off
            (0x08, Some(Interruption::Hard)),
            (0x11, Some(Interruption::Soft)),
            (0x18, Some(Interruption::Hard)),
            (0x58, Some(Interruption::Nmi)),
        ];
        for (byte, want) in cases {
            assert_eq!(flags.interruption(&[0, 0, byte, 0]), want, "{byte:#x}");
        }
        assert_eq!(flags.interruption(&[0, 0]), None, "the record was cut");
        assert!(!ContextFlags::default().in_interrupt(&[0xff; 8]));
    }
}
