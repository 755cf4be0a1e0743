//! The value of an expression for an event: shown as a line below the event, or as keys of its JSON object.

use std::sync::Arc;

use crate::digits::{push_hex, push_signed, push_unsigned};
use crate::escape::escape_into;
use crate::json::{JsonValue, Object};
use crate::report::{Cell, CellLookUps, OVERHEAD_BYTES, Value};
use crate::symbol::StackId;

/// The value of an expression for an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprOutcome {
    Signed(i64),
    Unsigned(u64),
    Text(Arc<[u8]>),
    /// A kernel address, and the stack of that address, which the output thread names.
    Place(u64, Option<StackId>),
    /// A number with its name.
    Named(u64, Arc<str>),
    /// There is no value, and why.
    NoValue(&'static str),
}

impl Cell for ExprOutcome {
    /// Appends `result: 0x10 (16)`, `result: "text"`, or why there is no value.
    fn text(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if matches!(self, ExprOutcome::NoValue(_)) { b"no value: " } else { b"result: " });
        match self {
            ExprOutcome::Signed(value) => push_number(*value as u64, |out| push_signed(*value, out), out),
            ExprOutcome::Unsigned(value) => push_number(*value, |out| push_unsigned(*value, out), out),
            ExprOutcome::Text(text) => {
                out.push(b'"');
                for (index, part) in text.split(|byte| *byte == b'"').enumerate() {
                    out.extend_from_slice(if index > 0 { b"\\\"" } else { b"" });
                    escape_into(part, out);
                }
                out.push(b'"');
            }
            ExprOutcome::Named(value, name) => {
                escape_into(name.as_bytes(), out);
                out.extend_from_slice(b", the name of ");
                push_number(*value, |out| push_unsigned(*value, out), out);
            }
            ExprOutcome::Place(address, _) => push_number(*address, |out| push_unsigned(*address, out), out),
            ExprOutcome::NoValue(reason) => out.extend_from_slice(reason.as_bytes()),
        }
    }

    /// Appends the value for the key `result`.
    fn json(&self, out: &mut Vec<u8>) {
        match self {
            ExprOutcome::Signed(value) => Value::Signed(*value).push(out),
            ExprOutcome::Unsigned(value) => Value::Unsigned(*value).push(out),
            ExprOutcome::Text(text) => Value::Path(text.clone()).push(out),
            ExprOutcome::Named(_, name) => Value::Text(name.clone()).push(out),
            ExprOutcome::Place(address, _) => Value::Address(*address).push(out),
            ExprOutcome::NoValue(_) => Value::None.push(out),
        }
    }

    fn event_keys(&self, object: &mut Object<'_>) {
        self.json(object.key("result"));
        match self {
            ExprOutcome::Named(number, _) => object.value("result_of", &Value::Unsigned(*number)),
            ExprOutcome::NoValue(reason) => object.value("no_value", &Value::Word(reason)),
            _ => {}
        }
    }

    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let ExprOutcome::Place(address, Some(stack)) = self else { return None };
        let innermost = look_ups.frames(*stack).into_iter().next();
        let name = innermost.map_or_else(|| "".into(), |frame| look_ups.place(&frame));
        Some(Value::cell(ExprOutcome::Named(*address, name)))
    }

    fn heap_bytes(&self) -> usize {
        match self {
            ExprOutcome::Text(text) => OVERHEAD_BYTES + text.len(),
            ExprOutcome::Named(_, name) => OVERHEAD_BYTES + name.len(),
            _ => 0,
        }
    }
}

fn push_number(bits: u64, decimal: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    push_hex(bits, out);
    out.extend_from_slice(b" (");
    decimal(out);
    out.push(b')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_a_text_and_keys() {
        let cases = [
            (ExprOutcome::Signed(-2), "result: 0xfffffffffffffffe (-2)", r#"{"result":-2}"#),
            (
                ExprOutcome::Unsigned(u64::MAX),
                "result: 0xffffffffffffffff (18446744073709551615)",
                r#"{"result":"18446744073709551615"}"#,
            ),
            (ExprOutcome::Text(b"a\x1b\"".as_slice().into()), r#"result: "a\x1b\"""#, r#"{"result":"a\\x1b\""}"#),
            (
                ExprOutcome::Named(257, "openat".into()),
                "result: openat, the name of 0x101 (257)",
                r#"{"result":"openat","result_of":257}"#,
            ),
            (
                ExprOutcome::NoValue("division by zero"),
                "no value: division by zero",
                r#"{"result":null,"no_value":"division by zero"}"#,
            ),
        ];
        for (outcome, text, keys) in cases {
            let (mut line, mut json) = (Vec::new(), Vec::new());
            outcome.text(&mut line);
            let mut object = Object::new(&mut json);
            outcome.event_keys(&mut object);
            object.end();
            assert_eq!(
                (String::from_utf8(line).unwrap().as_str(), String::from_utf8(json).unwrap().as_str()),
                (text, keys)
            );
        }
    }
}
