//! The position of a record in its pair, which is shown with the record.

use std::io::Write;
use std::num::NonZeroU64;

use crate::json::Object;
use crate::report::{Cell, Value};

/// Where a record is in a pair, and what its line adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PairOffset {
    /// Time since the start of the pair.
    pub ns: i64,
    /// Number of records before this one that were left out.
    pub hidden: u32,
    /// For a switch: how long the task that leaves its CPU has run.
    pub ran_ns: Option<NonZeroU64>,
    /// The state after this record of the thread that is the key.
    pub thread: Option<ThreadNow>,
}

/// The state of a thread after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadNow {
    Woken,
    Moved,
    Running,
    Preempted,
    Sleeping,
    /// In state D.
    Blocked,
    /// Stopped, traced or in another state.
    Stopped,
}

impl ThreadNow {
    pub fn word(self) -> &'static str {
        match self {
            ThreadNow::Woken => "woken",
            ThreadNow::Moved => "moved",
            ThreadNow::Running => "running",
            ThreadNow::Preempted => "preempted",
            ThreadNow::Sleeping => "sleeping",
            ThreadNow::Blocked => "blocked",
            ThreadNow::Stopped => "stopped",
        }
    }
}

/// Text shows the offset and the thread before the event, and the other values after it.
impl Cell for PairOffset {
    fn before_event(&self, out: &mut Vec<u8>) {
        let us = self.ns.unsigned_abs();
        let sign = if self.ns < 0 { '-' } else { '+' };
        let text = format!("{sign}{}.{:03}", us / 1000, us % 1000);
        let _ = write!(out, "|{text:>13} us ");
        if let Some(thread) = self.thread {
            let _ = write!(out, "{:<9} ", thread.word());
        }
    }

    /// How long the task that leaves its CPU has run, and how many records before this one were left out: `, prev ran
    /// 1763.022 us, 3 left out before`.
    fn behind_event(&self, out: &mut Vec<u8>) {
        if let Some(ran_ns) = self.ran_ns.map(NonZeroU64::get) {
            let _ = write!(out, ", prev ran {}.{:03} us", ran_ns / 1000, ran_ns % 1000);
        }
        if self.hidden > 0 {
            let _ = write!(out, ", {} left out before", self.hidden);
        }
    }

    fn event_keys(&self, object: &mut Object<'_>) {
        object.value("offset_ns", &Value::Signed(self.ns));
        object.value("left_out", &Value::Unsigned(self.hidden.into()));
        if let Some(thread) = self.thread {
            object.value("thread", &Value::Word(thread.word()));
        }
        if let Some(ran_ns) = self.ran_ns {
            object.value("prev_ran_ns", &Value::Unsigned(ran_ns.get()));
        }
    }
}
