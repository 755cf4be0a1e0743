//! Calls that fail: by error, call and process.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::profilers::syscalls::kinds::{CallNumber, OTHERS};
use crate::profilers::syscalls::paths::PathOfCall;
use crate::report::{Column, Schema, Unit, Value};
use crate::stats::SumKey;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::errnos;

/// Who fails at what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FailedCall {
    pub call: CallNumber,
    pub errno: u32,
    pub pid: i32,
    pub comm: Comm,
    /// What it was given.
    pub paths: [PathOfCall; 2],
    /// Where the program makes the call, with `-g`.
    pub stack: Option<StackId>,
}

impl SumKey for FailedCall {
    fn others(&self) -> FailedCall {
        FailedCall {
            call: OTHERS,
            errno: self.errno,
            pid: 0,
            comm: Comm::new(b"<others>"),
            paths: Default::default(),
            stack: None,
        }
    }
}

/// A row of the table.
pub type ErrorRow = (FailedCall, u64);

pub static ERRORS: Schema<ErrorRow> = Schema::<ErrorRow>::new(
    "errors",
    &[
        Column::label("comm", "comm", |(who, _)| Value::Comm(who.comm)),
        Column::label("pid", "pid", |(who, _)| Value::Signed(who.pid.into())),
        Column::label("call", "call", |(who, _)| who.call.value()),
        Column::label("error", "error", |(who, _)| error(who.errno)),
        Column::counter("count", "count", |(_, count)| count),
        Column::<ErrorRow>::derived("per_s", "per s", |(_, count), span_ns| per_second(*count, span_ns))
            .in_unit(Unit::Hz),
        Column::<ErrorRow>::label("path", "path", |(who, _)| path(&who.paths[0])).if_any(),
        Column::<ErrorRow>::label("path2", "second path", |(who, _)| path(&who.paths[1])).if_any(),
        Column::<ErrorRow>::label("path_unread", "path unread", |(who, _)| unread(&who.paths[0])).if_any(),
        Column::<ErrorRow>::place("place", "function", |(who, _)| &mut who.stack).if_any(),
    ],
)
.explained(&[
    ("call", "its name; `sys_N` for a number without a known name, `32-bit sys_N` for one of 32-bit mode"),
    ("error", "the name of the error, or its number"),
    ("count", "calls of the process that failed with it"),
    ("per_s", "the same in a second"),
    ("path", "the path, or other string, that the call was given, as the program wrote it"),
    ("path2", "the second one, of calls such as rename"),
    ("path_unread", "why it is not known"),
    ("place", "the function that made the call, with `-g`; in JSON `stack` has all frames"),
])
.ordered(|(one, few), (other, many)| (Reverse(few), one).cmp(&(Reverse(many), other)));

fn path(path: &PathOfCall) -> Value {
    path.text().map_or(Value::None, Value::Path)
}

fn unread(path: &PathOfCall) -> Value {
    if let PathOfCall::Unread(reason) = path { Value::Word(reason) } else { Value::None }
}

/// The name of an error.
pub fn error(errno: u32) -> Value {
    errnos::name(errno).map_or_else(|| Value::Text(Arc::from(format!("errno {errno}"))), Value::Word)
}

fn per_second(count: u64, span_ns: u64) -> Value {
    const SECOND_NS: u128 = 1_000_000_000;
    if span_ns == 0 {
        return Value::None;
    }
    let per_s = (u128::from(count) * SECOND_NS + u128::from(span_ns) / 2) / u128::from(span_ns);
    Value::Unsigned(u64::try_from(per_s).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_and_rates() {
        assert_eq!(error(2), Value::Word("ENOENT"));
        assert_eq!(error(4000), Value::Text("errno 4000".into()));
        assert_eq!(per_second(5, 0), Value::None);
        assert_eq!(per_second(5, 2_000_000_000), Value::Unsigned(3));
        assert_eq!(per_second(u64::MAX, 1), Value::Unsigned(u64::MAX));
    }
}
