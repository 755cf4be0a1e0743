//! The line of one call over the limit, and its JSON keys.

use std::sync::Arc;

use crate::calls::cells::{CallText, WaitPlace, error, part};
use crate::calls::kinds::CallNumber;
use crate::calls::where_time::TimeParts;
use crate::report::layout::{SUBJECT, detail, text, unless, when};
use crate::report::{Detail, GroupBy, OccurrenceSchema, Value};
use crate::stats::Began;
use crate::tep::syscalls::call_text::MadeCall;
use crate::tep::syscalls::errnos;

/// A call that has ended or goes on, as its line shows it.
#[derive(Debug)]
pub struct SlowCall {
    pub call: CallNumber,
    pub duration_ns: u64,
    pub made: Arc<MadeCall>,
    pub still_open: bool,
    /// If the call began before the run, its duration is a lower bound.
    pub began: Began,
    pub parts: TimeParts,
}

pub static SLOW: OccurrenceSchema<SlowCall> = OccurrenceSchema::<SlowCall>::new(
    &[
        Detail::new("call", |slow| slow.call.value()),
        Detail::new("duration_ns", |slow| Value::Ns(slow.duration_ns)),
        Detail::new("still_open", |slow| Value::Bool(slow.still_open)),
        Detail::new("since", |slow| Value::beginning(slow.began)),
        Detail::new("text", |slow| Value::cell(CallText(slow.made.clone()))),
        Detail::new("args", |slow| Value::Words(slow.made.args.iter().map(|arg| format!("{arg:#x}")).collect())),
        Detail::new("ret", |slow| slow.made.ret.map_or(Value::None, Value::Signed)),
        Detail::new("error", |slow| slow.made.ret.and_then(errnos::of_return).map_or(Value::None, error)),
        Detail::new("run_ns", |slow| part(slow.parts.ran)),
        Detail::new("ready_ns", |slow| part(slow.parts.ready)),
        Detail::new("sleep_ns", |slow| part(slow.parts.slept)),
        Detail::new("disk_ns", |slow| part(slow.parts.blocked)),
        Detail::new("other_ns", |slow| part(slow.parts.rested)),
        Detail::new("unseen_ns", |slow| part(slow.parts.unseen)),
        Detail::new("waits_at", |slow| {
            slow.parts.wait_stack.map_or(Value::None, |stack| Value::cell(WaitPlace(stack)))
        }),
    ],
    &[
        detail("duration_ns").wide(11),
        text(" ms  "),
        SUBJECT,
        text("  "),
        when("text", &[detail("text")]),
        unless("text", &[detail("call")]),
        when("still_open", &[text(" goes on")]),
        detail("since").between(" (at least: ", ")"),
        detail("disk_ns").between(", D ", " ms"),
        detail("sleep_ns").between(", S ", " ms"),
        detail("waits_at").after(" at "),
        detail("run_ns").between(", run ", " ms"),
        detail("ready_ns").between(", ready ", " ms"),
        detail("other_ns").between(", other ", " ms"),
        detail("unseen_ns").between(", unseen ", " ms"),
    ],
)
.grouped(GroupBy {
    noun: "call",
    same: &["call", "still_open", "error"],
    place: "waits_at",
    duration: "duration_ns",
    goes_on: "still_open",
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Subject;
    use crate::task::Comm;

    #[test]
    fn a_line_says_where_the_time_went() {
        let args = [3, 0, 0, 0, 0, 0];
        let number = libc::SYS_fsync as i32;
        let made = MadeCall { number, is_compat: false, tid: 8, args, ret: Some(0), paths: [None, None] };
        let parts = TimeParts { ran: 1_000_000, blocked: 101_000_000, ..TimeParts::default() };
        let call = CallNumber { number, is_compat: false };
        let slow = SlowCall {
            call,
            duration_ns: 102_000_000,
            made: made.into(),
            still_open: false,
            began: Began::Exactly,
            parts,
        };
        let values: Vec<Value> = SLOW.values(&slow).map(Value::without_look_ups).collect();
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"dd") };
        let mut out = Vec::new();
        crate::output::text::occurrence(&subject, SLOW.layout(), &values, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "    102.000 ms  dd 8 [001]  fsync(3) = 0, D 101.000 ms, run 1.000 ms");
    }
}
