//! What an expression is evaluated for, and what it gives.

use std::fmt;

/// What an expression may read: a record, and its sample.
pub trait ExprInput<'r> {
    /// The record of the event.
    fn raw(&self) -> &'r [u8];

    /// None: it is not known.
    fn builtin(&self, builtin: Builtin) -> Option<u64>;
}

/// A record alone: the built-in variables have no value.
impl<'r> ExprInput<'r> for &'r [u8] {
    fn raw(&self) -> &'r [u8] {
        self
    }

    fn builtin(&self, _builtin: Builtin) -> Option<u64> {
        None
    }
}

/// A variable that every event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Cpu,
    Pid,
    Tid,
    Time,
    Period,
}

impl Builtin {
    pub const ALL: [(&'static str, Builtin); 5] = [
        ("_cpu", Builtin::Cpu),
        ("_pid", Builtin::Pid),
        ("_tid", Builtin::Tid),
        ("_time", Builtin::Time),
        ("_period", Builtin::Period),
    ];

    pub fn named(name: &str) -> Option<Builtin> {
        Builtin::ALL.iter().find(|(known, _)| *known == name).map(|(_, builtin)| *builtin)
    }
}

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExprType {
    Signed,
    /// A number that needs all 64 bits without a sign.
    Unsigned,
    Text,
    /// A number in place of which a name is shown.
    Named(Naming),
}

impl ExprType {
    pub fn is_number(self) -> bool {
        matches!(self, ExprType::Signed | ExprType::Unsigned)
    }
}

impl fmt::Display for ExprType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExprType::Signed => "a number",
            ExprType::Unsigned => "an unsigned number",
            ExprType::Text => "text",
            ExprType::Named(Naming::Kernel) => "the name of a kernel address",
            ExprType::Named(Naming::Task) => "the name of a task",
            ExprType::Named(Naming::Syscall) => "the name of a system call",
        })
    }
}

/// What a number is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `ksymbol(address)`
    Kernel,
    /// `comm_get(tid)`
    Task,
    /// `syscall_name(number)`
    Syscall,
}

/// What an expression gave for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExprValue<'a> {
    Signed(i64),
    Unsigned(u64),
    Text(&'a [u8]),
    Named(Naming, u64),
}

/// Why an expression has no value for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoValue {
    DivisionByZero,
    Shift,
    Index,
    Missing,
}

impl NoValue {
    pub const ALL: [NoValue; 4] = [NoValue::DivisionByZero, NoValue::Shift, NoValue::Index, NoValue::Missing];

    pub fn reason(self) -> &'static str {
        match self {
            NoValue::DivisionByZero => "division by zero",
            NoValue::Shift => "shift by less than 0 or more than 63 bits",
            NoValue::Index => "index out of bounds",
            NoValue::Missing => "a field is not in the record",
        }
    }
}

/// Number of records without a value, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoValueCounts([u64; NoValue::ALL.len()]);

impl NoValueCounts {
    pub fn add(&mut self, reason: NoValue, count: u64) {
        self.0[reason as usize] += count;
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Prints the reasons that were met: `division by zero 3, index out of bounds 1`.
impl fmt::Display for NoValueCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = NoValue::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        let texts: Vec<String> = met.map(|(reason, count)| format!("{} {count}", reason.reason())).collect();
        f.write_str(&texts.join(", "))
    }
}
