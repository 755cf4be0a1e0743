//! Inputs and results of expressions.

use std::fmt;

/// What an expression may read: a record, and its sample.
pub trait ExprInput<'r> {
    /// The record of the event.
    fn raw(&self) -> &'r [u8];

    /// The value of a variable. None: it is not known.
    fn variable(&self, variable: SampleVariable) -> Option<u64>;
}

/// A record alone: the built-in variables have no value.
impl<'r> ExprInput<'r> for &'r [u8] {
    fn raw(&self) -> &'r [u8] {
        self
    }

    fn variable(&self, variable: SampleVariable) -> Option<u64> {
        (variable == SampleVariable::CallMode).then_some(0)
    }
}

/// A variable that every event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleVariable {
    Cpu,
    Pid,
    Tid,
    Time,
    Period,
    /// The upper bits of a [`CallId`](crate::tep::syscalls::call_id::CallId):
    /// [`CallId::COMPAT`](crate::tep::syscalls::call_id::CallId) where the current task is in 32-bit mode, else 0. It
    /// has no name, and is read by `syscall_name`.
    CallMode,
}

impl SampleVariable {
    pub const ALL: [(&'static str, SampleVariable); 5] = [
        ("_cpu", SampleVariable::Cpu),
        ("_pid", SampleVariable::Pid),
        ("_tid", SampleVariable::Tid),
        ("_time", SampleVariable::Time),
        ("_period", SampleVariable::Period),
    ];

    pub fn named(name: &str) -> Option<SampleVariable> {
        SampleVariable::ALL.iter().find(|(known, _)| *known == name).map(|(_, variable)| *variable)
    }
}

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExprType {
    Signed,
    /// A number that needs all 64 bits without a sign.
    Unsigned,
    Text,
    /// A number that is shown as a name.
    Named(Naming),
}

impl ExprType {
    pub fn is_number(self) -> bool {
        matches!(self, ExprType::Signed | ExprType::Unsigned)
    }

    /// Whether samples must say if the task is in 32-bit mode.
    pub fn needs_abi(self) -> bool {
        self == ExprType::Named(Naming::Syscall)
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

/// What kind of name a number is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `ksymbol(address)`
    Kernel,
    /// `comm_get(tid)`
    Task,
    /// `syscall_name(number)`: the number is a [`CallId`](crate::tep::syscalls::call_id::CallId).
    Syscall,
}

/// The value of an expression for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExprValue<'a> {
    Signed(i64),
    Unsigned(u64),
    Text(&'a [u8]),
    Named(Naming, u64),
}

/// Why an expression has no value for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoResult {
    DivisionByZero,
    Shift,
    Index,
    Missing,
}

impl NoResult {
    pub const ALL: [NoResult; 4] = [NoResult::DivisionByZero, NoResult::Shift, NoResult::Index, NoResult::Missing];

    pub fn reason(self) -> &'static str {
        match self {
            NoResult::DivisionByZero => "division by zero",
            NoResult::Shift => "shift by less than 0 or more than 63 bits",
            NoResult::Index => "index out of bounds",
            NoResult::Missing => "a field is not in the record",
        }
    }
}

/// Number of records without a value, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoResultCounts([u64; NoResult::ALL.len()]);

impl NoResultCounts {
    pub fn add(&mut self, reason: NoResult, count: u64) {
        self.0[reason as usize] += count;
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Prints the reasons that were met: `division by zero 3, index out of bounds 1`.
impl fmt::Display for NoResultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = NoResult::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        let texts: Vec<String> = met.map(|(reason, count)| format!("{} {count}", reason.reason())).collect();
        f.write_str(&texts.join(", "))
    }
}
