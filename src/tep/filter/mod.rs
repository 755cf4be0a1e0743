//! Event filters, `pid == 1 && comm ~ "java*"`: parsed and checked here, because the kernel gives no position when it
//! refuses a filter, and evaluated here for records that the kernel cannot filter.
//!
//! Source: kernel/trace/trace_events_filter.c.

mod cpus;
mod eval;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::caret::caret;
use crate::tep::format::Format;
use crate::tep::format::field::Field;
use eval::{FilterNode, FilterTest};

/// A filter that fits an event.
#[derive(Clone, Debug)]
pub struct Filter {
    kernel_text: String,
    root: FilterNode,
}

/// The longest text that the kernel takes, in bytes.
pub const FILTER_MAX: usize = 4095;

/// How a filter can test a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Number,
    Text,
    /// `char *`: text behind a pointer, which only the kernel can read.
    TextPointer,
    CpuMask,
    Nothing,
}

impl Comparison {
    pub fn of(field: &Field) -> Comparison {
        parse::comparison_of(field)
    }

    pub fn word(self) -> &'static str {
        match self {
            Comparison::Number => "number",
            Comparison::Text => "text",
            Comparison::TextPointer => "text pointer",
            Comparison::CpuMask => "CPU mask",
            Comparison::Nothing => "none",
        }
    }

    /// The operators for such a field, and `CPUS{}` if its value has that form.
    pub fn operators(self) -> &'static str {
        match self {
            Comparison::Number => "== != < <= > >= &",
            Comparison::Text | Comparison::TextPointer => "== != ~",
            Comparison::CpuMask => "== != & CPUS{}",
            Comparison::Nothing => "",
        }
    }
}

/// A filter text that does not parse, or does not fit the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    pub text: String,
    /// Byte offset of the fault.
    pub offset: usize,
    pub message: String,
    kind: FilterFaultKind,
}

/// Kinds of faults of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterFaultKind {
    Form,
    UnknownField,
    /// A number that the field can never have.
    OutOfRange,
}

impl std::error::Error for FilterError {}

impl FilterError {
    /// The text is a filter for another event: it names a field that this event lacks.
    pub fn is_unknown_field(&self) -> bool {
        self.kind == FilterFaultKind::UnknownField
    }

    /// The text is a filter with a number that the field can never have.
    pub fn is_out_of_range(&self) -> bool {
        self.kind == FilterFaultKind::OutOfRange
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, caret(&self.text, self.offset, 4))
    }
}

impl Filter {
    /// Parses a filter and checks it against the fields of `format`.
    ///
    /// # Errors
    /// The kernel would refuse it; the error says where and why.
    pub fn parse(text: &str, format: &Format) -> Result<Filter, FilterError> {
        parse::parse(text, format)
    }

    /// Matches what both filters match.
    #[must_use]
    pub fn and(self, other: Filter) -> Filter {
        let text = format!("{} && {}", self.operand(true), other.operand(true));
        Filter { kernel_text: text, root: FilterNode::All(vec![self.root, other.root]) }
    }

    /// Matches what either filter matches.
    #[must_use]
    pub fn or(self, other: Filter) -> Filter {
        let text = format!("{} || {}", self.operand(false), other.operand(false));
        Filter { kernel_text: text, root: FilterNode::Any(vec![self.root, other.root]) }
    }

    /// Matches what this filter does not match.
    #[must_use]
    pub fn negated(self) -> Filter {
        // The blank is needed because the kernel reads a function name (.function) up to the next blank.
        Filter { kernel_text: format!("!({} )", self.kernel_text), root: FilterNode::Not(Box::new(self.root)) }
    }

    /// The conjunction of the filters given; None when there is none.
    pub fn all_of(filters: impl IntoIterator<Item = Option<Filter>>) -> Option<Filter> {
        filters.into_iter().flatten().reduce(Filter::and)
    }

    /// The disjunction of the filters given; None when there is none.
    pub fn any_of(filters: impl IntoIterator<Item = Option<Filter>>) -> Option<Filter> {
        filters.into_iter().flatten().reduce(Filter::or)
    }

    fn operand(&self, of_and: bool) -> String {
        match (&self.root, of_and) {
            (FilterNode::Any(_), true) | (FilterNode::All(_), false) => format!("({} )", self.kernel_text),
            _ => self.kernel_text.clone(),
        }
    }

    /// True when the text is not too long for the kernel.
    pub fn is_short(&self) -> bool {
        self.kernel_text.len() <= FILTER_MAX
    }

    /// The filter in the kernel's syntax: bare words are quoted, and patterns written such that all kernels match them
    /// in the same way.
    pub fn text(&self) -> &str {
        &self.kernel_text
    }

    /// True when a test is about text with a [`Field::limit`], which the kernel does not know.
    pub fn tests_limited_text(&self) -> bool {
        self.root.any(&|test| matches!(test, FilterTest::Text { field: Some(field), .. } if field.limit.is_some()))
    }

    /// True when only the kernel can evaluate one of the tests.
    pub fn needs_kernel(&self) -> bool {
        self.root.any(&|test| matches!(test, FilterTest::KernelOnly))
    }

    /// Evaluates the filter for a record. None: only the kernel can evaluate it, or the record is too short.
    pub fn matches(&self, raw: &[u8], comm_of_current: &[u8], cpu: u32) -> Option<bool> {
        self.root.matches(&eval::FilterInput { raw, comm: comm_of_current, cpu })
    }
}

/// `value` as a literal of the filter language, which has no escapes. None: the text contains both kinds of quotes, NUL
/// or line breaks, or is too long for the kernel.
pub fn quote(value: &str) -> Option<String> {
    if value.len() >= parse::MAX_STRING || value.contains(['\0', '\n']) {
        return None;
    }
    let mark = if value.contains('"') { '\'' } else { '"' };
    (!value.contains(mark)).then(|| format!("{mark}{value}{mark}"))
}
