//! Evaluates a parsed filter for a record, as the kernel does.

use super::cpus::CpuSet;
use crate::glob::kernel_glob;
use crate::tep::format::field::{Field, ReadError, until_nul};
use crate::tep::types::IntType;

/// The parts of a sample that a filter may test.
pub struct FilterInput<'a> {
    pub raw: &'a [u8],
    pub comm: &'a [u8],
    pub cpu: u32,
}

/// A filter, or a part of one.
#[derive(Clone, Debug)]
pub enum FilterNode {
    All(Vec<FilterNode>),
    Any(Vec<FilterNode>),
    Not(Box<FilterNode>),
    Test(FilterTest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterOp {
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
pub enum FilterTest {
    /// Compares an integer field. `value` is already cut to the field's type.
    Int {
        field: Field,
        op: FilterOp,
        value: u64,
    },
    Cpu {
        op: FilterOp,
        value: i64,
    },
    /// Compares a text field. None: the comm of the current task.
    Text {
        field: Option<Field>,
        op: FilterOp,
        value: Vec<u8>,
    },
    /// Compares a field that holds a CPU number; None: the current CPU.
    CpuIn {
        field: Option<Field>,
        op: FilterOp,
        cpus: CpuSet,
    },
    Mask {
        field: Field,
        op: FilterOp,
        cpus: CpuSet,
    },
    /// Tests that only the kernel can evaluate: `.function`, `.ustring`, text behind a pointer.
    KernelOnly,
}

impl FilterNode {
    /// Whether `is` holds for some test of the filter.
    pub fn any(&self, is: &impl Fn(&FilterTest) -> bool) -> bool {
        match self {
            FilterNode::All(parts) | FilterNode::Any(parts) => parts.iter().any(|part| part.any(is)),
            FilterNode::Not(part) => part.any(is),
            FilterNode::Test(test) => is(test),
        }
    }

    /// Evaluates the node. None: the answer depends on something that only the kernel knows.
    pub fn matches(&self, sample: &FilterInput<'_>) -> Option<bool> {
        match self {
            FilterNode::All(parts) => any(parts, sample, false).map(|found| !found),
            FilterNode::Any(parts) => any(parts, sample, true),
            FilterNode::Not(part) => part.matches(sample).map(|matched| !matched),
            FilterNode::Test(test) => test.matches(sample),
        }
    }
}

/// Whether a part evaluates to `wanted`; None: no part certainly does, and some are unknown.
fn any(parts: &[FilterNode], sample: &FilterInput<'_>, wanted: bool) -> Option<bool> {
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

impl FilterTest {
    fn matches(&self, sample: &FilterInput<'_>) -> Option<bool> {
        Some(match self {
            FilterTest::KernelOnly => return None,
            FilterTest::Int { field, op, value } => {
                let ty = IntType { size: field.size, signed: field.signed };
                op.compare(ty.convert(field.read_u64(sample.raw).ok()?), *value, field.signed)
            }
            FilterTest::Cpu { op, value } => op.compare(u64::from(sample.cpu), *value as u64, true),
            FilterTest::Text { field, op, value } => {
                let matched = match field {
                    Some(field) if field.limit.is_some() => op.match_whole(field.text(sample.raw).ok()?, value),
                    Some(field) => op.match_text(field.bytes(sample.raw).ok()?, value),
                    None => op.match_text(sample.comm, value),
                };
                matched != (*op == FilterOp::NotEqual)
            }
            FilterTest::CpuIn { field, op, cpus } => {
                let cpu = match field {
                    Some(field) => read_cpu(field, sample.raw).ok()?,
                    None => Some(sample.cpu),
                };
                match op {
                    FilterOp::Equal => cpus.equals_cpu(cpu),
                    FilterOp::NotEqual => !cpus.equals_cpu(cpu),
                    _ => cpu.is_some_and(|cpu| cpus.contains(cpu)),
                }
            }
            FilterTest::Mask { field, op, cpus } => {
                let mask = field.bytes(sample.raw).ok()?;
                match op {
                    FilterOp::Equal => cpus.equals_mask(mask),
                    FilterOp::NotEqual => !cpus.equals_mask(mask),
                    _ => cpus.intersects(mask),
                }
            }
        })
    }
}

/// The field as a CPU number; `Ok(None)` when it is no CPU number, such as -1.
fn read_cpu(field: &Field, raw: &[u8]) -> Result<Option<u32>, ReadError> {
    Ok(u32::try_from(field.read_i64(raw)?).ok())
}

impl FilterOp {
    fn compare(self, a: u64, b: u64, signed: bool) -> bool {
        let order = if signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
        match self {
            FilterOp::Equal => order.is_eq(),
            FilterOp::NotEqual => order.is_ne(),
            FilterOp::Less => order.is_lt(),
            FilterOp::LessEqual => order.is_le(),
            FilterOp::Greater => order.is_gt(),
            FilterOp::GreaterEqual => order.is_ge(),
            FilterOp::BitAnd => a & b != 0,
            FilterOp::Glob => false,
        }
    }

    /// As `match_text`, for text with a limit, whose length is known.
    fn match_whole(self, text: &[u8], value: &[u8]) -> bool {
        match self {
            FilterOp::Glob => self.match_text(text, value),
            _ => text == value,
        }
    }

    /// Whether the text in `bytes` is `value`, before `!=` negates the answer.
    fn match_text(self, bytes: &[u8], value: &[u8]) -> bool {
        let text = until_nul(bytes);
        match (self, value.split_first()) {
            (FilterOp::Glob, Some((b'!', pattern))) => !kernel_glob(pattern, text),
            (FilterOp::Glob, _) => kernel_glob(value, text),
            // The kernel compares at most the size of the field: text that fills it without a NUL
            // also equals a longer value.
            _ if text.len() == bytes.len() && !bytes.is_empty() => value.starts_with(text),
            _ => value == text,
        }
    }
}
