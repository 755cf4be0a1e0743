//! Single occurrences: how one of a kind is named in JSON and laid out in text.

use crate::task::Comm;

/// How an occurrence of one kind is named in JSON and laid out in text.
#[derive(Debug)]
pub struct Shape {
    /// A key with a dot belongs to an object: `waker.tid`. Keys of one object are neighbours.
    pub keys: &'static [&'static str],
    pub line: &'static [Part],
    /// How a flood of them is put together in text. None: each of them is asked for.
    pub grouping: Option<Grouping>,
}

/// When occurrences of a shape are one line of text in a flood: they agree in some keys, and have equal stacks. Of the other
/// keys the line has those that are the same in all of them. Numbers name a value by its place in [`Shape::keys`].
#[derive(Debug)]
pub struct Grouping {
    /// What one of them is called.
    pub noun: &'static str,
    pub same: &'static [usize],
    /// Where it happened, of one without a stack. Without this either, only those of one name are put together.
    pub place: usize,
    /// How long each took, as [`Value::Ns`]: the line has the longest.
    pub duration: usize,
    /// True of what goes on: a sum would count the same time again and again.
    pub goes_on: usize,
}

/// A piece of a text line. Numbers name the value by its place in [`Shape::keys`].
#[derive(Debug)]
pub enum Part {
    Text(&'static str),
    /// Right-aligned in `width` columns.
    Value {
        key: usize,
        width: usize,
    },
    /// A duration in seconds.
    Seconds(usize),
    /// The subject: name, tid and CPU.
    Subject,
    /// The subject's CPU alone.
    Cpu,
    /// Printed when the value is known, and not false or 0 %.
    If(usize, &'static [Part]),
    IfNot(usize, &'static [Part]),
}

/// Who, when and where of an occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// ns, CLOCK_MONOTONIC.
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}
