//! The text of one value: of a cell, or of a detail in a line.

use std::io::Write;

use crate::digits::{format_ns, push_hex, push_signed, push_unsigned, three_digits};
use crate::escape::escape_into;
use crate::report::Value;

/// Appends a duration in seconds, and any other value unchanged.
pub fn push_seconds(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Ns(ns) => {
            push_unsigned(ns / 1_000_000_000, out);
            out.push(b'.');
            out.extend_from_slice(&three_digits((ns / 1_000_000 % 1000) as u32));
        }
        value => push_value(value, out),
    }
}

/// Appends a value.
pub fn push_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        // A place and a time of day were replaced by their texts before.
        Value::None | Value::Stack(_) | Value::Place(_) | Value::Moment(_) => {}
        Value::Cell(cell) => cell.text(out),
        Value::Age(ns) => out.extend_from_slice(format_ns(*ns).as_bytes()),
        Value::Unsigned(value) => push_unsigned(*value, out),
        Value::Signed(value) => push_signed(*value, out),
        // Milliseconds down to the microsecond.
        Value::Ns(ns) => {
            push_unsigned(ns / 1_000_000, out);
            out.push(b'.');
            out.extend_from_slice(&three_digits((ns / 1000 % 1000) as u32));
        }
        Value::Us(ns) => {
            push_unsigned(ns / 1000, out);
            out.push(b'.');
            out.extend_from_slice(&three_digits((ns % 1000) as u32));
        }
        Value::Pct(hundredths) => {
            let tenths = (hundredths + 5) / 10;
            push_unsigned(u64::from(tenths / 10), out);
            out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
        }
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Address(addr) => {
            out.extend_from_slice(b"0x");
            push_hex(*addr, out);
        }
        Value::Word(text) | Value::Phrase { text, .. } => out.extend_from_slice(text.as_bytes()),
        Value::Comm(comm) => escape_into(comm.as_bytes(), out),
        Value::Text(text) => escape_into(text.as_bytes(), out),
        Value::Path(path) => push_path(path, out),
        Value::Words(words) => {
            for (index, word) in words.iter().enumerate() {
                if index > 0 {
                    out.push(b' ');
                }
                escape_into(word.as_bytes(), out);
            }
        }
    }
}

/// Appends a path; of a long path only the end, which says more than the beginning.
fn push_path(path: &[u8], out: &mut Vec<u8>) {
    const LIMIT: usize = 120;
    let is_inside = |byte: u8| byte & 0xc0 == 0x80; // a continuation byte of UTF-8
    let (mut end, is_cut) = (&path[path.len().saturating_sub(LIMIT)..], path.len() > LIMIT);
    if is_cut {
        out.extend_from_slice(b"...");
        end = &end[end.iter().take(3).take_while(|byte| is_inside(**byte)).count()..];
    }
    escape_into(end, out);
}

/// The text of a cell.
pub fn cell(value: &Value) -> String {
    let mut out = Vec::new();
    match value {
        Value::Cell(cell) => cell.brief(&mut out),
        // Milliseconds with four decimals: a typical run delay is below a microsecond.
        Value::Ns(ns) => {
            let _ = write!(out, "{}.{:04}", ns / 1_000_000, ns / 100 % 10_000);
        }
        value => push_value(value, &mut out),
    }
    String::from_utf8_lossy(&out).into_owned()
}
