//! Evaluates a parsed filter for a record, as the kernel does.

use super::super::field::{Field, ReadError, until_nul};
use super::super::types::IntType;
use super::cpus::CpuSet;
use crate::glob::glob_of_kernel;

/// What a filter looks at.
pub struct Sample<'a> {
    pub raw: &'a [u8],
    pub comm: &'a [u8],
    pub cpu: u32,
}

/// A filter, or a part of one.
#[derive(Clone, Debug)]
pub enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    NotEqual,
    Glob,
    LessEqual,
    Less,
    GreaterEqual,
    Greater,
    BitAnd,
}

#[derive(Clone, Debug)]
pub enum Test {
    /// `value` is already cut to the field's type.
    Int {
        field: Field,
        op: Op,
        value: u64,
    },
    Cpu {
        op: Op,
        value: i64,
    },
    /// None: the comm of the current task.
    Text {
        field: Option<Field>,
        op: Op,
        value: Vec<u8>,
    },
    /// A number that is a CPU; None: the current CPU.
    CpuIn {
        field: Option<Field>,
        op: Op,
        cpus: CpuSet,
    },
    Mask {
        field: Field,
        op: Op,
        cpus: CpuSet,
    },
    /// `.function`, `.ustring`, and text behind a pointer.
    KernelOnly,
}

impl Node {
    /// Whether any part of it is of a kind.
    pub fn any(&self, is: &impl Fn(&Test) -> bool) -> bool {
        match self {
            Node::All(parts) | Node::Any(parts) => parts.iter().any(|part| part.any(is)),
            Node::Not(part) => part.any(is),
            Node::Test(test) => is(test),
        }
    }

    /// None where the answer depends on something only the kernel knows.
    pub fn matches(&self, sample: &Sample<'_>) -> Option<bool> {
        match self {
            Node::All(parts) => any(parts, sample, false).map(|found| !found),
            Node::Any(parts) => any(parts, sample, true),
            Node::Not(part) => part.matches(sample).map(|matched| !matched),
            Node::Test(test) => test.matches(sample),
        }
    }
}

/// Whether one of the parts is `wanted`; None if none surely is but some are unknown.
fn any(parts: &[Node], sample: &Sample<'_>, wanted: bool) -> Option<bool> {
    let mut unknown = false;
    for part in parts {
        match part.matches(sample) {
            Some(matched) if matched == wanted => return Some(true),
            Some(_) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(false) }
}

impl Test {
    fn matches(&self, sample: &Sample<'_>) -> Option<bool> {
        Some(match self {
            Test::KernelOnly => return None,
            Test::Int { field, op, value } => {
                let ty = IntType { size: field.size, signed: field.signed };
                op.compare(ty.convert(field.read_u64(sample.raw).ok()?), *value, field.signed)
            }
            Test::Cpu { op, value } => op.compare(u64::from(sample.cpu), *value as u64, true),
            Test::Text { field, op, value } => {
                let matched = match field {
                    Some(field) if field.limit.is_some() => op.match_whole(field.text(sample.raw).ok()?, value),
                    Some(field) => op.match_text(field.bytes(sample.raw).ok()?, value),
                    None => op.match_text(sample.comm, value),
                };
                matched != (*op == Op::NotEqual)
            }
            Test::CpuIn { field, op, cpus } => {
                let cpu = match field {
                    Some(field) => read_cpu(field, sample.raw).ok()?,
                    None => Some(sample.cpu),
                };
                match op {
                    Op::Equal => cpus.equals_cpu(cpu),
                    Op::NotEqual => !cpus.equals_cpu(cpu),
                    _ => cpu.is_some_and(|cpu| cpus.contains(cpu)),
                }
            }
            Test::Mask { field, op, cpus } => {
                let mask = field.bytes(sample.raw).ok()?;
                match op {
                    Op::Equal => cpus.equals_mask(mask),
                    Op::NotEqual => !cpus.equals_mask(mask),
                    _ => cpus.intersects(mask),
                }
            }
        })
    }
}

/// The field as a CPU number; `Ok(None)` when it is none, such as -1.
fn read_cpu(field: &Field, raw: &[u8]) -> Result<Option<u32>, ReadError> {
    Ok(u32::try_from(field.read_i64(raw)?).ok())
}

impl Op {
    fn compare(self, a: u64, b: u64, signed: bool) -> bool {
        let order = if signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
        match self {
            Op::Equal => order.is_eq(),
            Op::NotEqual => order.is_ne(),
            Op::Less => order.is_lt(),
            Op::LessEqual => order.is_le(),
            Op::Greater => order.is_gt(),
            Op::GreaterEqual => order.is_ge(),
            Op::BitAnd => a & b != 0,
            Op::Glob => false,
        }
    }

    /// The same of a text that is cut: as long as it is.
    fn match_whole(self, text: &[u8], value: &[u8]) -> bool {
        match self {
            Op::Glob => self.match_text(text, value),
            _ => text == value,
        }
    }

    /// Whether the text in `bytes` is `value`, before `!=` turns the answer round.
    fn match_text(self, bytes: &[u8], value: &[u8]) -> bool {
        let text = until_nul(bytes);
        match (self, value.split_first()) {
            (Op::Glob, Some((b'!', pattern))) => !glob_of_kernel(pattern, text),
            (Op::Glob, _) => glob_of_kernel(value, text),
            // The kernel compares at most the size of the field: text that fills it without a NUL
            // also equals a longer value.
            _ if text.len() == bytes.len() && !bytes.is_empty() => value.starts_with(text),
            _ => value == text,
        }
    }
}
