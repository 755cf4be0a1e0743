//! How the records of each event become text and JSON.

use std::sync::Arc;

use crate::escape::escape_into;
use crate::json::{push_escaped, push_string};
use crate::tep::format::Format;
use crate::tep::format::field::Field;
use crate::tep::print_fmt::PrintFmt;
use crate::tep::syscalls::call_text::{CallArguments, CallResult};
use crate::tep::syscalls::{self, SyscallEnd};

/// How the records of one event become text.
#[derive(Debug)]
pub struct EventText {
    pub format: Arc<Format>,
    /// None: the print format cannot be compiled, and fields are shown as `name=value`.
    pub print: Option<PrintFmt>,
    pub(super) flags: Option<Field>,
    pub(super) preempt_count: Option<Field>,
    /// The name or alias of the event as in each line: `name: `.
    pub(super) label: Vec<u8>,
    /// The label in JSON: `"event":"name","alias":"name"`.
    pub(super) json_label: Vec<u8>,
    /// The event's own (not common) fields, each with its key `"name":`.
    pub(super) json_fields: Vec<(Vec<u8>, Field)>,
    /// Of the start of a system call: what its arguments are.
    pub(super) arguments: Option<CallArguments>,
    /// Of the end of one: what it returns, and the field that has it.
    pub(super) result: Option<(CallResult, Field)>,
    /// Strings follow its records.
    pub(super) has_strings: bool,
}

impl EventText {
    pub fn new(name: &str, alias: Option<&str>, format: Arc<Format>) -> EventText {
        let mut label = Vec::new();
        escape_into(alias.unwrap_or(name).as_bytes(), &mut label);
        label.extend_from_slice(b": ");
        EventText {
            label,
            json_label: event_label(name, alias),
            json_fields: format.user_fields().map(|field| (crate::json::label(&field.name), field.clone())).collect(),
            print: PrintFmt::compile(&format).ok(),
            arguments: arguments_of(&format),
            result: result_of(&format),
            flags: format.field("common_flags").cloned(),
            preempt_count: format.field("common_preempt_count").cloned(),
            format,
            has_strings: false,
        }
    }

    /// Strings follow the record of a system call: see [`ArgumentTexts`](crate::report::ArgumentTexts).
    #[must_use]
    pub fn with_strings(mut self, has_strings: bool) -> EventText {
        self.has_strings = has_strings;
        self
    }
}

/// What the arguments of the system call are whose start the event marks. None: that is not known, or the kernel's own text
/// has more than the arguments.
fn arguments_of(format: &Format) -> Option<CallArguments> {
    let (end, number) = syscalls::end_and_number(&format.name).filter(|_| format.system == syscalls::SYSTEM)?;
    let is_bare = syscalls::without_user_text(format).fields.len() == format.fields.len();
    CallArguments::of(number).filter(|_| is_bare && end == SyscallEnd::Enter)
}

/// What the system call returns whose end the event marks.
fn result_of(format: &Format) -> Option<(CallResult, Field)> {
    let (end, number) = syscalls::end_and_number(&format.name).filter(|_| format.system == syscalls::SYSTEM)?;
    let ret = format.field("ret").filter(|ret| ret.size == size_of::<i64>() && end == SyscallEnd::Exit)?;
    Some((CallResult::of(number), ret.clone()))
}

/// The keys of an event's name and alias: `"event":"name","alias":"name"`.
fn event_label(name: &str, alias: Option<&str>) -> Vec<u8> {
    let mut out = crate::json::label("event");
    push_string(name, &mut out);
    if let Some(alias) = alias {
        out.extend_from_slice(b",\"alias\":");
        push_escaped(alias.as_bytes(), &mut out);
    }
    out
}
