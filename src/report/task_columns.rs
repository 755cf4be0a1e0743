//! The columns that name the task of a row.

use crate::report::{Column, Value};
use crate::stats::TaskKey;

/// A row about a task, or about all tasks of a process or of a name.
pub trait TaskKeyRow: 'static {
    fn task(&self) -> &TaskKey;
}

impl<V: 'static> TaskKeyRow for (TaskKey, V) {
    fn task(&self) -> &TaskKey {
        &self.0
    }
}

impl<R: TaskKeyRow> Column<R> {
    /// Three columns: pid, tid and name.
    pub const TASK: [Column<R>; 3] = [
        Column::<R>::label("pid", "pid", |row| number(row.task().pid)).if_any(),
        Column::<R>::label("tid", "tid", |row| number(row.task().tid)).if_any(),
        Column::label("comm", "comm", |row| Value::Comm(row.task().comm)),
    ];
}

/// The number as a cell; blank for 0, which is no task with a row.
fn number(number: i32) -> Value {
    if number == 0 { Value::None } else { Value::Signed(number.into()) }
}
