//! Where a task waits, by its stack when it left its CPU: the function that has called the scheduler.

use crate::output::frames;
use crate::report::Value;
use crate::symbol::names::NamedFrame;

/// Beginnings of the names of functions through which a wait ends up in the scheduler. Source: kernel/sched/core.c,
/// kernel/sched/completion.c, kernel/sched/wait_bit.c, kernel/time/sleep_timeout.c.
#[rustfmt::skip]
const SCHEDULER: [&str; 8] = [
    "__schedule", "schedule", "io_schedule", "preempt_schedule", "__wait_for_common", "do_wait_for_common",
    "wait_for_completion", "bit_wait",
];

/// The innermost function that is no part of the scheduler.
pub fn place(stack: &[NamedFrame]) -> Value {
    let is_scheduler = |frame: &&NamedFrame| {
        frame.symbol.as_ref().is_ok_and(|name| SCHEDULER.iter().any(|start| name.starts_with(start)))
    };
    let Some(frame) = stack.iter().find(|frame| !is_scheduler(frame)) else { return Value::None };
    let mut text = Vec::new();
    frames::place(frame, &mut text);
    Value::Text(String::from_utf8_lossy(&text).into())
}
