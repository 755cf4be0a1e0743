//! The JSON of one value.

use crate::digits;
use crate::json::{JsonValue, push_address, push_escaped, push_list, push_signed, push_string, push_unsigned};
use crate::report::Value;

impl JsonValue for Value {
    fn is_known(&self) -> bool {
        *self != Value::None
    }

    fn push(&self, out: &mut Vec<u8>) {
        match self {
            // The frames of a stack are written by their reader. A place was replaced by its text before.
            Value::None | Value::Stack(_) | Value::Place(_) => out.extend_from_slice(b"null"),
            Value::Cell(cell) => cell.json(out),
            Value::Unsigned(value) | Value::Ns(value) | Value::Us(value) | Value::Age(value) | Value::Moment(value) => {
                push_unsigned(*value, out);
            }
            Value::Signed(value) => push_signed(*value, out),
            Value::Pct(hundredths) => {
                digits::push_unsigned(u64::from(hundredths / 100), out);
                let [_, tens, ones] = digits::three_digits(hundredths % 100);
                out.extend_from_slice(&[b'.', tens, ones]);
            }
            Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Address(addr) => push_address(*addr, out),
            Value::Word(word) | Value::Phrase { word, .. } => push_string(word, out),
            Value::Comm(comm) => push_escaped(comm.as_bytes(), out),
            Value::Text(text) => push_escaped(text.as_bytes(), out),
            Value::Path(path) => push_escaped(path, out),
            Value::Words(words) => push_list(words.iter(), out, |word, out| push_escaped(word.as_bytes(), out)),
        }
    }
}
