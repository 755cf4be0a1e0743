//! A process and its ancestors, with their command lines.

use std::borrow::Cow;
use std::sync::Arc;

use crate::digits::push_signed;
use crate::escape::escape_into;
use crate::json::{Object, push_escaped, push_list};
use crate::report::{Cell, CellLookUps, Command, Value};
use crate::task::Comm;

/// A process and its ancestors, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lineage(pub Arc<[LineageProcess]>);

/// One process of a [`Lineage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineageProcess {
    pub pid: i32,
    pub comm: Comm,
    pub command: Command,
    /// What it had executed by then, where /proc does not tell any more.
    pub executed: Option<Arc<[u8]>>,
}

impl LineageProcess {
    /// Its command line: as /proc has it, or as it was executed.
    fn line(&self) -> Option<Cow<'_, str>> {
        match &self.command {
            Command::Line(line) => Some(Cow::Borrowed(line)),
            _ => self.executed.as_deref().map(String::from_utf8_lossy),
        }
    }
}

impl Cell for Lineage {
    fn text(&self, out: &mut Vec<u8>) {
        for (index, process) in self.0.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b" < " } else { b"" });
            push_of_kin(process.comm.as_bytes(), out);
            out.push(b' ');
            push_signed(i64::from(process.pid), out);
            if process.command == Command::Gone {
                out.extend_from_slice(b" (gone)");
            }
            if let Some(line) = process.line() {
                out.extend_from_slice(b": ");
                push_of_kin(shortened(&line).as_bytes(), out);
            }
        }
    }

    fn json(&self, out: &mut Vec<u8>) {
        push_list(self.0.iter(), out, |process, out| {
            let mut object = Object::new(out);
            object.signed("pid", i64::from(process.pid));
            push_escaped(process.comm.as_bytes(), object.key("comm"));
            if process.command == Command::Gone {
                object.bool("gone", true);
            }
            if let Some(line) = process.line() {
                push_escaped(line.as_bytes(), object.key("command"));
            }
            object.end();
        });
    }

    fn event_keys(&self, object: &mut Object<'_>) {
        self.json(object.key("lineage"));
    }

    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let kin = self.0.iter().map(|process| match process.command {
            Command::Unasked => {
                LineageProcess { command: look_ups.command(process.pid, process.comm), ..process.clone() }
            }
            _ => process.clone(),
        });
        Some(Value::cell(Lineage(kin.collect())))
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// Escapes `<`, too: a process must not choose a name that makes it look like a child of another process.
fn push_of_kin(text: &[u8], out: &mut Vec<u8>) {
    for (index, part) in text.split(|&byte| byte == b'<').enumerate() {
        out.extend_from_slice(if index > 0 { b"\\x3c" } else { b"" });
        escape_into(part, out);
    }
}

/// The start of a command line, which may be very long.
fn shortened(line: &str) -> Cow<'_, str> {
    const LIMIT: usize = 60;
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &line[..end]).into(),
        None => line.into(),
    }
}
