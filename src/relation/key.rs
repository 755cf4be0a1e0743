//! The usual keys of pairs: a number, a text, a CPU.

use std::hash::{Hash, Hasher};

use crate::event::{EventKey, KeyText};
use crate::stats::PairKey;

/// The common key of the events of a pair. Two words, so that it fits in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKey {
    Number(u64),
    Text(KeyText),
    /// The CPU on which both events happen: losses on other CPUs do not concern the pair.
    Cpu(u64),
}

impl RelationKey {
    pub fn thread(tid: i32) -> RelationKey {
        RelationKey::Number(i64::from(tid) as u64)
    }

    pub fn event_key(self) -> EventKey {
        match self {
            RelationKey::Number(number) | RelationKey::Cpu(number) => EventKey::Number(number),
            RelationKey::Text(text) => EventKey::Text(text),
        }
    }
}

impl From<EventKey> for RelationKey {
    fn from(key: EventKey) -> RelationKey {
        match key {
            EventKey::Number(number) => RelationKey::Number(number),
            EventKey::Text(text) => RelationKey::Text(text),
        }
    }
}

// Hashes without the variant, since all keys of a run are of one kind.
impl Hash for RelationKey {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            RelationKey::Number(number) | RelationKey::Cpu(number) => number.hash(state),
            RelationKey::Text(text) => text.hash(state),
        }
    }
}

impl PairKey for RelationKey {
    fn cpu(&self) -> Option<u32> {
        if let RelationKey::Cpu(cpu) = *self { u32::try_from(cpu).ok() } else { None }
    }
}
