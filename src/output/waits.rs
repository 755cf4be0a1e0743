//! Where a task waits, by its stack when it left its CPU: the function that has called the scheduler.

use crate::output::frames;
use crate::report::Value;
use crate::symbol::names::NamedFrame;

/// Functions through which a wait ends up in the scheduler. Source: kernel/sched/core.c, kernel/time/sleep_timeout.c.
#[rustfmt::skip]
const SCHEDULER: [&str; 14] = [
    "__schedule", "schedule", "schedule_timeout", "schedule_timeout_uninterruptible", "schedule_timeout_interruptible",
    "schedule_timeout_killable", "io_schedule", "io_schedule_timeout", "schedule_preempt_disabled", "schedule_hrtimeout",
    "schedule_hrtimeout_range", "schedule_hrtimeout_range_clock", "__schedule_loop", "bit_wait_io",
];

/// The innermost function that is no part of the scheduler.
pub fn place(stack: &[NamedFrame]) -> Value {
    let is_scheduler = |frame: &&NamedFrame| {
        frame.symbol.as_ref().is_ok_and(|name| SCHEDULER.contains(&name.split('.').next().unwrap_or_default()))
    };
    let Some(frame) = stack.iter().find(|frame| !is_scheduler(frame)) else { return Value::None };
    let mut text = Vec::new();
    frames::place(frame, &mut text);
    Value::Text(String::from_utf8_lossy(&text).into())
}
