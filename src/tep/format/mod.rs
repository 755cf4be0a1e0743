//! A tracepoint's description: its id, its fields, and the text of its `print fmt`.
//!
//! Layout: `events/<system>/<name>/format` in tracefs.

mod elements;
pub mod field;
pub mod fields_text;

use std::cmp::Reverse;

use crate::tep::format::field::{Field, TextLimit};
use crate::tep::probe::fetch::FetchLimit;

/// Limit of the bytes of a format: the largest one of eight kernels has 20 KiB.
const MAX_FORMAT_BYTES: usize = 1 << 20;
const MAX_FIELDS: usize = 4096;
/// Limit of the end of a field: in perf the size of a record is a u16.
const MAX_RECORD_BYTES: usize = 1 << 16;

/// A tracepoint, as the running kernel describes it.
#[derive(Clone, Debug)]
pub struct Format {
    pub system: String,
    pub name: String,
    pub id: u32,
    pub fields: Vec<Field>,
    /// Everything after `print fmt: `, not yet parsed. Empty when there is none.
    pub print_fmt: String,
}

/// A format text that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("format line {line}: {what}")]
pub struct FormatError {
    /// Counted from 1; 0 for the text as a whole.
    pub line: usize,
    pub what: String,
}

/// A field the event does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} has no field `{field}`; it has {has}")]
pub struct FieldError {
    pub event: String,
    pub field: String,
    /// The fields of the event, the most similar names first.
    pub has: String,
}

impl Format {
    /// Parses the text of a `format` file.
    ///
    /// # Errors
    /// A line names a field without its place, or `name:` or `ID:` is missing. Some vendor events have no `print fmt`;
    /// it is empty then.
    pub fn parse(system: &str, text: &str) -> Result<Format, FormatError> {
        let error = |line, what: &str| FormatError { line, what: what.to_owned() };
        if text.len() > MAX_FORMAT_BYTES {
            return Err(error(0, "too long"));
        }
        let (mut name, mut id, mut fields) = (None, None, Vec::new());
        let (mut rest, mut number, mut print_fmt) = (text, 0, "");
        while !rest.is_empty() {
            number += 1;
            // `print fmt` comes last and may contain line breaks.
            if let Some(text) = rest.trim_start_matches([' ', '\t']).strip_prefix("print fmt:") {
                print_fmt = text.trim();
                break;
            }
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            rest = after;
            let line = line.trim();
            if let Some(text) = line.strip_prefix("name:") {
                name = Some(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("ID:") {
                id = Some(text.trim().parse().map_err(|_| error(number, "the ID is not a number"))?);
            } else if line.starts_with("field") {
                if fields.len() >= MAX_FIELDS {
                    return Err(error(number, "too many fields"));
                }
                fields.push(parse_field(line).map_err(|what| error(number, what))?);
            }
        }
        Ok(Format {
            system: system.to_owned(),
            name: name.ok_or_else(|| error(number, "no `name:` line up to here"))?,
            id: id.ok_or_else(|| error(number, "no `ID:` line up to here"))?,
            fields,
            print_fmt: print_fmt.to_owned(),
        })
    }

    /// `system:name`
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.system, self.name)
    }

    /// True for the event of a probe: the kernel gives it fields whose names begin with `__probe_`.
    pub fn is_probe_event(&self) -> bool {
        self.fields.iter().any(|field| field.name.starts_with("__probe_"))
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field called `name`.
    ///
    /// # Errors
    /// The event has no such field; the error lists its fields.
    pub fn require(&self, name: &str) -> Result<&Field, FieldError> {
        self.field(name).ok_or_else(|| FieldError {
            event: self.full_name(),
            field: name.to_owned(),
            has: nearest(name, self.fields.iter().map(|field| field.name.as_str()), 8).join(", "),
        })
    }

    /// The event's own fields, without the common ones.
    pub fn user_fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_common())
    }

    /// Sets the limit of the text field `name`. Without such a field, or without the field that has its length, the
    /// text has no limit.
    pub fn limit_text(&mut self, name: &str, limit: &FetchLimit) {
        let limit = match limit {
            FetchLimit::Bytes(bytes) => Some(TextLimit::Bytes(*bytes)),
            FetchLimit::Field(name) => self.field(name).and_then(|len| {
                let (offset, size) = (u16::try_from(len.offset).ok()?, u8::try_from(len.size).ok()?);
                Some(TextLimit::At { offset, size })
            }),
        };
        if let Some(field) = self.fields.iter_mut().find(|field| field.name == name) {
            field.limit = limit;
        }
    }

    /// The size of `long` in the kernel that wrote the format: 4 if a field says so.
    pub(in crate::tep) fn long_size(&self) -> usize {
        let is_long = |field: &Field| {
            matches!(field.declared.as_str(), "long" | "unsigned long" | "size_t") || field.declared.ends_with('*')
        };
        self.fields.iter().find(|field| is_long(field) && matches!(field.size, 4 | 8)).map_or(8, |field| field.size)
    }
}

/// Parses `field:DECL; offset:N; size:N; signed:N;`. `DECL` may hold semicolons itself.
fn parse_field(line: &str) -> Result<Field, &'static str> {
    let (_, line) = line.split_once(':').ok_or("a field without a declaration")?;
    let (declaration, places) =
        line.rfind("offset:").and_then(|at| line.split_at_checked(at)).ok_or("a field without an offset")?;
    let declaration = declaration.trim_end().trim_end_matches(';');
    let number = |key: &str| {
        let mut parts = places.split(';').filter_map(|part| part.trim().strip_prefix(key));
        parts.next().map(|text| text.trim().parse::<usize>())
    };
    let offset = number("offset:").and_then(Result::ok).ok_or("the offset is not a number")?;
    let size = number("size:").and_then(Result::ok).ok_or("the size is not a number")?;
    if offset.checked_add(size).is_none_or(|end| end > MAX_RECORD_BYTES) {
        return Err("the field ends beyond any record");
    }
    let signed = match number("signed:") {
        None => None,
        Some(value) => Some(value.map_err(|_| "`signed:` is not a number")? != 0),
    };
    Field::from_declaration(declaration, offset, size, signed).ok_or("the declaration has no name")
}

/// Up to `count` of `names`, the most similar to `wanted` first. Names with nothing in common come last, in their
/// order.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let mut names: Vec<_> = names.map(|name| (likeness(wanted, name), name)).collect();
    names.sort_by_key(|&(score, _)| Reverse(score)); // stable
    names.into_iter().take(count).map(|(_, name)| name).collect()
}

/// The similarity of two names, larger is more similar: a contained name counts more than a small edit distance, and
/// that more than nothing.
pub(crate) fn likeness(wanted: &str, name: &str) -> usize {
    let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
    let distance = edit_distance(wanted.as_bytes(), name.as_bytes());
    let near = wanted.len().max(name.len()).div_ceil(3).max(1);
    if distance <= near {
        1000usize.saturating_sub(distance)
    } else if wanted.len() >= 3 && name.len() >= 3 && (name.contains(&wanted) || wanted.contains(&name)) {
        500usize.saturating_sub(distance)
    } else {
        0
    }
}

/// Levenshtein distance, of at most the first 64 bytes each.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (a.get(..64).unwrap_or(a), b.get(..64).unwrap_or(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let cost = (diagonal + usize::from(x != y)).min(*above + 1).min(left + 1);
            diagonal = *above;
            left = cost;
            *above = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::format::field::FieldKind;
    use crate::tep::samples;

    #[test]
    fn parses_real_formats() {
        let cases = [
            ("sched", samples::SCHED_SWITCH_3_4, "sched:sched_switch", 70, 12),
            ("sched", samples::SCHED_SWITCH_6_18, "sched:sched_switch", 372, 11),
            ("kmem", samples::KMALLOC, "kmem:kmalloc", 121, 9),
            ("irq", samples::SOFTIRQ_ENTRY, "irq:softirq_entry", 223, 5),
            ("block", samples::BLOCK_RQ_ISSUE, "block:block_rq_issue", 2104, 12),
        ];
        for (system, text, name, id, fields) in cases {
            let format = Format::parse(system, text).unwrap();
            assert_eq!((format.full_name().as_str(), format.id, format.fields.len()), (name, id, fields));
        }
        let exec = Format::parse("sched", samples::SCHED_PROCESS_EXEC).unwrap();
        assert_eq!(exec.field("filename").unwrap().kind, FieldKind::DataLoc { text: true, element: 1 });
        assert!(exec.user_fields().map(|field| field.name.as_str()).eq(["filename", "pid", "old_pid"]));
        assert_eq!(Format::parse("sched", samples::SCHED_SWITCH_3_4).unwrap().long_size(), 4);
        assert_eq!(Format::parse("sched", samples::SCHED_SWITCH_6_18).unwrap().long_size(), 8);
    }

    #[test]
    fn parses_odd_lines() {
        let parse = |line: &str| Format::parse("s", &format!("name: x\nID: 1\nformat:\n{line}\n\nprint fmt: \"\"\n"));
        type Parsed<'a> = (&'a str, usize, usize, bool);
        let cases: [(&str, Option<Parsed<'_>>); 11] = [
            ("field:int a; offset:8; size:4; signed:1;", Some(("a", 8, 4, true))),
            ("\tfield:int a;\toffset:8;\tsize:4;\tsigned:0;", Some(("a", 8, 4, false))),
            ("\tfield:int a;\toffset:8;\tsize:4;", Some(("a", 8, 4, true))), // before 2.6.35
            ("\tfield special:char b[4];\toffset:8;\tsize:4;", Some(("b", 8, 4, false))),
            ("\tfield:union { int a; long b; } u;\toffset:8;\tsize:8;\tsigned:0;", Some(("u", 8, 8, false))),
            ("\tfield:char c[A > B ? A : B];\toffset:8;\tsize:8;\tsigned:1;", Some(("c", 8, 8, true))),
            ("\tfield:int a;\toffset:65535;\tsize:4;\tsigned:1;", None),
            ("\tfield:int a;\toffset:18446744073709551615;\tsize:4;\tsigned:1;", None),
            ("\tfield:int a;\toffset:-1;\tsize:4;\tsigned:1;", None),
            ("\tfield:int a;\tsize:4;\tsigned:1;", None),
            ("\tfield:;\toffset:0;\tsize:4;\tsigned:1;", None),
        ];
        for (line, want) in cases {
            let format = parse(line);
            let got = format.as_ref().ok().and_then(|format| format.fields.first());
            assert_eq!(got.map(|f| (f.name.as_str(), f.offset, f.size, f.signed)), want, "{line}");
        }
        assert_eq!(
            parse("\tfield:int a;\tsize:4;").unwrap_err().to_string(),
            "format line 4: a field without an offset"
        );
    }

    #[test]
    fn keeps_line_breaks_of_the_text() {
        let format = Format::parse("s", "name: x\nID: 1\nprint fmt: \"a\nname: b\", REC->c\n").unwrap();
        assert_eq!((format.name.as_str(), format.print_fmt.as_str()), ("x", "\"a\nname: b\", REC->c"));
    }

    #[test]
    fn survives_truncation_at_every_byte() {
        for text in [samples::SCHED_SWITCH_6_18, samples::BLOCK_RQ_ISSUE, samples::REL_LOC] {
            for len in 0..text.len() {
                let _ = Format::parse("s", &text[..len]);
            }
        }
    }

    #[test]
    fn names_the_fields_there_are() {
        let format = Format::parse("sched", samples::SCHED_SWITCH_6_18).unwrap();
        assert_eq!(format.require("prev_pid").unwrap().offset, 24);
        let message = format.require("prev_sate").unwrap_err().to_string();
        assert!(message.starts_with("sched:sched_switch has no field `prev_sate`; it has prev_state, "), "{message}");
    }

    #[test]
    fn measures_distance() {
        let cases = [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)];
        for (a, b, want) in cases {
            assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), want, "{a} {b}");
        }
        assert!(likeness("switch", "sched_switch") > likeness("switch", "sched_wakeup"));
        assert_eq!(likeness("x", "sched"), 0);
    }

    proptest::proptest! {
        #[test]
        fn survives_any_text(text in ".{0,200}", field in "[a-z_*\\[\\]() ]{0,30}", offset: u64, size: u64) {
            let _ = Format::parse("s", &text);
            let line = format!("name: x\nID: 1\n\tfield:{field};\toffset:{offset};\tsize:{size};\nprint fmt: {text}");
            let _ = Format::parse("s", &line);
        }
    }
}
