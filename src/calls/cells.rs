//! What the output thread finds out about a call: its text, and the function in which it waits.

use std::sync::Arc;

use crate::report::{Cell, CellLookUps, Value};
use crate::symbol::StackId;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::task::call_parts::{CallPartsOf, PartSums, PartsAt};
use crate::task::descriptor::OpenFile;
use crate::tep::syscalls::call_text::{CallFile, CallLookUps, CallParts, MadeCall};
use crate::tep::syscalls::errnos;

/// A system call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallText(pub Arc<MadeCall>);

impl Cell for CallText {
    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        Some(Value::Text(self.0.text(ThreadLookUps { look_ups, made: &self.0 }).into()))
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Look-ups about the thread of a call.
struct ThreadLookUps<'a> {
    look_ups: &'a mut dyn CellLookUps,
    made: &'a MadeCall,
}

impl CallLookUps for ThreadLookUps<'_> {
    fn file(&mut self, fd: i32) -> Option<CallFile> {
        let OpenFile { path, device } = self.look_ups.file(self.made.tid, fd)?;
        Some(CallFile { path, device })
    }

    fn parts(&mut self, address: u64, count: u64, of_messages: bool) -> Option<CallParts> {
        let MadeCall { tid, number, args, .. } = *self.made;
        let parts = match of_messages {
            true => PartsAt::Messages { address, count },
            false => PartsAt::Parts { address, count },
        };
        let question = CallPartsOf { tid, number: number.try_into().ok()?, args, parts };
        let PartSums { parts, bytes, is_cut } = self.look_ups.part_sums(&question)?;
        Some(CallParts { parts, bytes, is_cut })
    }

    fn string(&mut self, address: u64) -> Option<Vec<u8>> {
        self.look_ups.string(self.made.tid, address)
    }
}

/// The function that waits: the one that called the scheduler, by the stack of the switch away from the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitPlace(pub StackId);

impl Cell for WaitPlace {
    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let frames = look_ups.frames(self.0);
        let frame = frames.iter().find(|frame| !is_scheduler(frame));
        Some(frame.map_or(Value::None, |frame| Value::Text(look_ups.place(frame))))
    }
}

/// Prefixes of functions between a wait and the scheduler. Source: kernel/sched/core.c, kernel/sched/completion.c,
/// kernel/sched/wait_bit.c, kernel/time/sleep_timeout.c; and the tracepoint itself, which some kernels do not omit from
/// its stack (`__traceiter_sched_switch`, include/linux/tracepoint.h).
#[rustfmt::skip]
const SCHEDULER: [&str; 9] = [
    "__traceiter_",
    "__schedule", "schedule", "io_schedule", "preempt_schedule", "__wait_for_common", "do_wait_for_common",
    "wait_for_completion", "bit_wait",
];

fn is_scheduler(frame: &NamedFrame) -> bool {
    frame.symbol.as_ref().is_ok_and(|name| SCHEDULER.iter().any(|start| name.starts_with(start)))
}

/// The name of an error.
pub fn error(errno: u32) -> Value {
    errnos::name(errno).map_or_else(|| Value::Text(Arc::from(format!("errno {errno}"))), Value::Word)
}

/// A part of the time, if it is not 0.
pub fn part(ns: u64) -> Value {
    if ns == 0 { Value::None } else { Value::Ns(ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names() {
        assert_eq!(error(2), Value::Word("ENOENT"));
        assert_eq!(error(4000), Value::Text("errno 4000".into()));
    }

    #[test]
    fn a_wait_is_where_the_scheduler_was_called() {
        let frame = |name: &str| NamedFrame::new(Ok(name.into()), 0x41, None);
        let chain = ["__traceiter_sched_switch", "__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep"];
        let frames = chain.map(frame);
        let place = frames.iter().find(|frame| !is_scheduler(frame)).map(|frame| frame.symbol.clone());
        assert_eq!(place, Some(Ok("do_nanosleep".into())));
    }
}
