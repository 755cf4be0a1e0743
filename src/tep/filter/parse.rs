//! The grammar of event filters, and the checks that a filter fits its event.

use std::num::IntErrorKind;

use super::cpus::CpuSet;
use super::eval::{FilterNode, FilterOp, FilterTest};
use super::{Comparison, Filter, FilterError, FilterFaultKind, quote};
use crate::tep::format::field::{Field, FieldKind};
use crate::tep::format::{Format, nearest};
use crate::tep::types::{IntType, radix_and_digits};

/// The kernel takes strings shorter than this (`MAX_FILTER_STR_VAL`).
pub const MAX_STRING: usize = 256;
/// Limit of nested parentheses.
const MAX_DEPTH: usize = 64;
/// Operators; a longer one stands before its prefixes.
const OPS: [(&str, FilterOp); 8] = [
    ("==", FilterOp::Equal),
    ("!=", FilterOp::NotEqual),
    ("~", FilterOp::Glob),
    ("<=", FilterOp::LessEqual),
    ("<", FilterOp::Less),
    (">=", FilterOp::GreaterEqual),
    (">", FilterOp::Greater),
    ("&", FilterOp::BitAnd),
];

pub fn parse(text: &str, format: &Format) -> Result<Filter, FilterError> {
    let mut parser =
        FilterParser { text, offset: 0, format, kernel_text: String::with_capacity(text.len()), copied: 0 };
    let parsed = parser.filter();
    let rest = text.get(parser.copied..).unwrap_or_default();
    match parsed {
        Ok(root) => Ok(Filter { kernel_text: parser.kernel_text + rest, root }),
        Err(FilterFault { offset, message, kind }) => {
            Err(FilterError { text: text.to_owned(), offset: offset.min(text.len()), message, kind })
        }
    }
}

type FilterResult<T> = Result<T, FilterFault>;

struct FilterFault {
    offset: usize,
    message: String,
    kind: FilterFaultKind,
}

fn fail<T>(offset: usize, message: impl Into<String>) -> FilterResult<T> {
    Err(FilterFault { offset, message: message.into(), kind: FilterFaultKind::Form })
}

/// The operand that a name in a filter stands for.
enum FilterOperand<'a> {
    Int(&'a Field),
    /// None: the comm of the current task.
    Text(Option<&'a Field>),
    /// `char *`: only the kernel can read the text behind it.
    TextPointer,
    Cpu,
    Mask(&'a Field),
    Other(&'a Field),
}

struct FilterParser<'a> {
    text: &'a str,
    offset: usize,
    format: &'a Format,
    kernel_text: String,
    /// Bytes of `text` that are already in `kernel_text`.
    copied: usize,
}

impl<'a> FilterParser<'a> {
    fn filter(&mut self) -> FilterResult<FilterNode> {
        if let Some(offset) = self.text.find('\0') {
            return fail(offset, "a NUL byte in the filter");
        }
        if self.rest().is_empty() {
            return fail(0, "the filter is empty");
        }
        let root = self.any(0)?;
        match self.rest().chars().next() {
            None => Ok(root),
            Some(')') => fail(self.offset, "this parenthesis closes nothing"),
            Some('&' | '|') => fail(self.offset, "tests are joined by `&&` or `||`"),
            Some(_) => fail(self.offset, "`&&`, `||` or the end expected here"),
        }
    }

    fn any(&mut self, depth: usize) -> FilterResult<FilterNode> {
        let mut parts = vec![self.all(depth)?];
        while self.eat("||") {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() > 1 { FilterNode::Any(parts) } else { parts.swap_remove(0) })
    }

    fn all(&mut self, depth: usize) -> FilterResult<FilterNode> {
        let mut parts = vec![self.operand(depth)?];
        while self.eat("&&") {
            parts.push(self.operand(depth)?);
        }
        Ok(if parts.len() > 1 { FilterNode::All(parts) } else { parts.swap_remove(0) })
    }

    fn operand(&mut self, depth: usize) -> FilterResult<FilterNode> {
        let mut negated = false;
        while self.eat("!") {
            negated = !negated;
        }
        let open = self.offset;
        let inner = if self.eat("(") {
            if depth >= MAX_DEPTH {
                return fail(open, "too many parentheses inside each other");
            }
            let inner = self.any(depth + 1)?;
            if !self.eat(")") {
                return match self.rest() {
                    "" => fail(open, "this parenthesis is never closed"),
                    _ => fail(self.offset, "`&&`, `||` or `)` expected here"),
                };
            }
            inner
        } else {
            FilterNode::Test(self.test()?)
        };
        Ok(if negated { FilterNode::Not(Box::new(inner)) } else { inner })
    }

    /// Parses `field op value`.
    fn test(&mut self) -> FilterResult<FilterTest> {
        self.skip_blanks();
        let start = self.offset;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return fail(start, "a field name expected here");
        }
        let Some(subject) = self.subject(name) else {
            return Err(FilterFault {
                offset: start,
                message: self.no_such_field(name),
                kind: FilterFaultKind::UnknownField,
            });
        };
        let behind_name = self.offset;
        let suffix = if self.rest_as_is().starts_with('.') {
            self.offset += 1;
            self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
        } else {
            ""
        };
        self.skip_blanks();
        let op_at = self.offset;
        let Some((mark, op)) = OPS.into_iter().find(|(mark, _)| self.rest_as_is().starts_with(mark)) else {
            return fail(op_at, "one of == != ~ < <= > >= & expected here");
        };
        self.offset += mark.len();
        self.skip_blanks();
        match suffix {
            "" if self.offset == behind_name => fail(self.offset, "a value expected here"),
            "" => self.value(name, subject, op_at, op),
            "function" => self.function(name, subject, op_at, op),
            "ustring" => match subject {
                FilterOperand::TextPointer => self.text_value(None, op_at, op).map(|_| FilterTest::KernelOnly),
                _ => fail(behind_name, format!("`.ustring` is for `char *` fields, which `{name}` is not")),
            },
            _ => fail(behind_name, format!("`.{suffix}` is unknown: `.function` and `.ustring` exist")),
        }
    }

    fn value(
        &mut self,
        name: &str,
        subject: FilterOperand<'_>,
        op_at: usize,
        op: FilterOp,
    ) -> FilterResult<FilterTest> {
        if self.rest_as_is().is_empty() {
            return fail(self.offset, "a value expected here");
        }
        if self.rest_as_is().starts_with("CPUS") {
            return self.cpus(name, subject, op_at, op);
        }
        match subject {
            FilterOperand::Int(field) => {
                let value = self.number(name, IntType { size: field.size, signed: field.signed }, op_at, op)?;
                Ok(FilterTest::Int { field: field.clone(), op, value })
            }
            FilterOperand::Cpu if op == FilterOp::BitAnd => fail(op_at, "`&` needs a set here: `CPU & CPUS{0-3}`"),
            FilterOperand::Cpu => Ok(FilterTest::Cpu { op, value: self.number(name, IntType::INT, op_at, op)? as i64 }),
            FilterOperand::Text(field) => {
                Ok(FilterTest::Text { value: self.text_value(field, op_at, op)?, field: field.cloned(), op })
            }
            FilterOperand::TextPointer => self.text_value(None, op_at, op).map(|_| FilterTest::KernelOnly),
            FilterOperand::Mask(_) => fail(self.offset, format!("`{name}` is a CPU mask: compare it with CPUS{{0-3}}")),
            FilterOperand::Other(field) => {
                fail(op_at, format!("`{name}` is `{}`, which no filter can compare", field.declared))
            }
        }
    }

    fn number(&mut self, name: &str, ty: IntType, op_at: usize, op: FilterOp) -> FilterResult<u64> {
        let start = self.offset;
        if op == FilterOp::Glob {
            return fail(op_at, format!("`~` compares text, and `{name}` is a number"));
        }
        if self.rest_as_is().starts_with(['"', '\'']) {
            return fail(start, format!("`{name}` is a number, so its value takes no quotes"));
        }
        let negative = self.rest_as_is().starts_with('-');
        self.offset += usize::from(negative);
        let digits = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let (radix, digits) = radix_and_digits(digits);
        let bits = 8 * ty.size as u32;
        let (low, high) =
            if ty.signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        let out_of_range = || {
            let message = format!("`{name}` holds {low} to {high}");
            Err(FilterFault { offset: start, message, kind: FilterFaultKind::OutOfRange })
        };
        let magnitude = match u64::from_str_radix(digits, radix) {
            Ok(magnitude) => magnitude,
            Err(err) if *err.kind() == IntErrorKind::PosOverflow => return out_of_range(),
            Err(_) => return fail(start, format!("`{name}` is a number: decimal, 0x hex or 0 octal expected here")),
        };
        let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
        // Hex often means bits: 0xffffffff is -1 in a signed field of 4 bytes.
        let as_bits = radix != 10 && !negative && bits < 64 && magnitude >> bits == 0;
        if (low..=high).contains(&value) || as_bits { Ok(ty.convert(value as u64)) } else { out_of_range() }
    }

    /// Text in quotes, or a bare word, which the kernel gets in quotes.
    fn text_value(&mut self, field: Option<&Field>, op_at: usize, op: FilterOp) -> FilterResult<Vec<u8>> {
        if !matches!(op, FilterOp::Equal | FilterOp::NotEqual | FilterOp::Glob) {
            let what = field.map_or_else(|| "this".to_owned(), |field| format!("`{}`", field.name));
            return fail(op_at, format!("{what} is text, which is compared with == != or ~"));
        }
        let start = self.offset;
        let value = match self.rest_as_is().chars().next() {
            Some(mark @ ('"' | '\'')) => {
                self.offset += 1;
                let value = self.take_while(|c| c != mark);
                if self.rest_as_is().is_empty() {
                    return fail(start, "this quote is never closed");
                }
                self.offset += 1;
                value
            }
            _ => self.take_while(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '&' | '|')),
        };
        if value.is_empty() && self.offset == start {
            return fail(start, "text expected here");
        }
        let in_kernel = if op == FilterOp::Glob { kernel_pattern(value, field) } else { value.to_owned() };
        match quote(&in_kernel) {
            Some(quoted) if self.text.get(start..self.offset) != Some(quoted.as_str()) => self.replace(start, &quoted),
            Some(_) => {}
            None if in_kernel.len() >= MAX_STRING => return fail(start, "the kernel takes at most 255 bytes of text"),
            None => return fail(start, "text with both kinds of quotes cannot be written in a filter"),
        }
        Ok(value.as_bytes().to_vec())
    }

    /// `field.function == symbol`: an address inside of a function.
    fn function(
        &mut self,
        name: &str,
        subject: FilterOperand<'_>,
        op_at: usize,
        op: FilterOp,
    ) -> FilterResult<FilterTest> {
        match subject {
            FilterOperand::Int(field) if field.size == self.format.long_size() => {}
            _ => return fail(op_at, format!("`.function` needs an address, which `{name}` is not")),
        }
        if !matches!(op, FilterOp::Equal | FilterOp::NotEqual) {
            return fail(op_at, "functions are compared with == or !=");
        }
        let start = self.offset;
        let symbol = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | ':'));
        if symbol.is_empty() {
            return fail(start, "a kernel function or an address expected here");
        }
        // The kernel takes everything up to a blank as the symbol, even a `)`, so a blank is required.
        if self.rest_as_is().starts_with([')', '&', '|']) {
            self.replace(start, &format!("{symbol} "));
        }
        Ok(FilterTest::KernelOnly)
    }

    /// `CPUS{0-3}`
    fn cpus(&mut self, name: &str, subject: FilterOperand<'_>, op_at: usize, op: FilterOp) -> FilterResult<FilterTest> {
        if !matches!(op, FilterOp::Equal | FilterOp::NotEqual | FilterOp::BitAnd) {
            return fail(op_at, "a set of CPUs is compared with == != or &");
        }
        self.offset += "CPUS".len();
        let open = self.offset;
        if !self.rest_as_is().starts_with('{') {
            return fail(open, "`{` expected here");
        }
        self.offset += 1;
        let start = self.offset;
        let list = self.take_while(|c| c != '}');
        if self.rest_as_is().is_empty() {
            return fail(open, "this brace is never closed");
        }
        self.offset += 1;
        let Some(cpus) = CpuSet::parse(list) else { return fail(start, "CPUs expected here, such as 0-3,8") };
        match subject {
            FilterOperand::Int(field) => Ok(FilterTest::CpuIn { field: Some(field.clone()), op, cpus }),
            FilterOperand::Cpu => Ok(FilterTest::CpuIn { field: None, op, cpus }),
            FilterOperand::Mask(field) => Ok(FilterTest::Mask { field: field.clone(), op, cpus }),
            _ => fail(op_at, format!("`{name}` is neither a number nor a CPU mask")),
        }
    }

    /// The event's own field of that name, else a built-in name that every event has.
    fn subject(&self, name: &str) -> Option<FilterOperand<'a>> {
        if let Some(field) = self.format.field(name) {
            return Some(subject_of(field));
        }
        match name {
            "CPU" | "cpu" | "common_cpu" => Some(FilterOperand::Cpu),
            "COMM" | "comm" => Some(FilterOperand::Text(None)),
            _ => None,
        }
    }

    fn no_such_field(&self, name: &str) -> String {
        let names = self.format.user_fields().chain(self.format.fields.iter().filter(|field| field.is_common()));
        let names = names.map(|field| field.name.as_str()).chain(["CPU", "COMM"]);
        format!("{} has no field `{name}`; it has {}", self.format.full_name(), nearest(name, names, 8).join(", "))
    }

    /// Appends `with` to `kernel_text`, in place of the text read since `start`.
    fn replace(&mut self, start: usize, with: &str) {
        self.kernel_text.push_str(self.text.get(self.copied..start).unwrap_or_default());
        self.kernel_text.push_str(with);
        self.copied = self.offset;
    }

    fn rest_as_is(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn rest(&mut self) -> &'a str {
        self.skip_blanks();
        self.rest_as_is()
    }

    fn skip_blanks(&mut self) {
        self.take_while(|c| c.is_ascii_whitespace());
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest_as_is();
        let len = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.offset += len;
        rest.get(..len).unwrap_or_default()
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        self.offset += if found { mark.len() } else { 0 };
        found
    }
}

pub fn comparison_of(field: &Field) -> Comparison {
    match subject_of(field) {
        FilterOperand::Int(_) | FilterOperand::Cpu => Comparison::Number,
        FilterOperand::Text(_) => Comparison::Text,
        FilterOperand::TextPointer => Comparison::TextPointer,
        FilterOperand::Mask(_) => Comparison::CpuMask,
        FilterOperand::Other(_) => Comparison::Nothing,
    }
}

/// How the kernel filters such a field (`filter_assign_type`). In filters, arrays of `unsigned char` are text, too.
fn subject_of(field: &Field) -> FilterOperand<'_> {
    let char_array = field.declared.contains('[') && field.declared.contains("char");
    match field.kind {
        FieldKind::Int | FieldKind::Pointer if matches!(field.declared.as_str(), "char *" | "const char *") => {
            FilterOperand::TextPointer
        }
        FieldKind::Int | FieldKind::Pointer => FilterOperand::Int(field),
        FieldKind::DataLoc { .. } if field.declared.contains("cpumask") => FilterOperand::Mask(field),
        _ if char_array && !field.declared.contains('*') => FilterOperand::Text(Some(field)),
        _ => FilterOperand::Other(field),
    }
}

/// A pattern written such that the kernel matches it like `glob`. The kernel takes two short cuts
/// (`filter_parse_regex`): it compares a pattern that starts with a digit literally, and for `*text` it looks for the
/// text at the end of a fixed array, behind the NUL. Both were seen on 6.18. A backslash prevents both.
fn kernel_pattern(pattern: &str, field: Option<&Field>) -> String {
    let body = pattern.strip_prefix('!').unwrap_or(pattern);
    let escape_at = |offset: usize| {
        format!("{}\\{}", pattern.get(..offset).unwrap_or_default(), pattern.get(offset..).unwrap_or_default())
    };
    if body.starts_with(|c: char| c.is_ascii_digit()) && body.contains(['*', '?', '[', '\\']) {
        return escape_at(pattern.len() - body.len());
    }
    let fixed = field.is_none_or(|field| matches!(field.kind, FieldKind::Text | FieldKind::Array { .. }));
    match body.strip_prefix('*') {
        Some(end) if fixed && !end.contains(['*', '?', '[', '\\']) => match end.char_indices().next_back() {
            Some((_, last)) => escape_at(pattern.len() - last.len_utf8()),
            None => pattern.to_owned(),
        },
        _ => pattern.to_owned(),
    }
}
