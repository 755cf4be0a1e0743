//! What an expression gave for an event: as a line below it, or as keys of its object.

use crate::digits::{push_hex, push_signed, push_unsigned};
use crate::escape::escape_into;
use crate::output::json::{self, Object};
use crate::report::{ExprOutcome, PairOffset, Value};

/// Appends `result: 0x10 (16)`, `result: "text"`, or why there is none.
pub fn push_text(outcome: &ExprOutcome, out: &mut Vec<u8>) {
    out.extend_from_slice(if matches!(outcome, ExprOutcome::NoValue(_)) { b"no value: " } else { b"result: " });
    match outcome {
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

fn push_number(bits: u64, decimal: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    push_hex(bits, out);
    out.extend_from_slice(b" (");
    decimal(out);
    out.push(b')');
}

/// Appends the value of the key `result`.
pub fn push_json(outcome: &ExprOutcome, out: &mut Vec<u8>) {
    match outcome {
        ExprOutcome::Signed(value) => json::push_value(&Value::Signed(*value), out),
        ExprOutcome::Unsigned(value) => json::push_value(&Value::Unsigned(*value), out),
        ExprOutcome::Text(text) => json::push_value(&Value::Path(text.clone()), out),
        ExprOutcome::Named(_, name) => json::push_value(&Value::Text(name.clone()), out),
        ExprOutcome::Place(address, _) => json::push_value(&Value::Address(*address), out),
        ExprOutcome::NoValue(_) => json::push_value(&Value::None, out),
    }
}

/// Writes the keys of a value beside a traced event.
pub fn beside(object: &mut Object<'_>, value: &Value) {
    let outcome = match value {
        Value::Outcome(outcome) => outcome,
        Value::Offset(offset) => return in_pair(object, offset),
        lineage => return object.value("lineage", lineage),
    };
    object.value("result", value);
    match outcome {
        ExprOutcome::Named(number, _) => object.value("result_of", &Value::Unsigned(*number)),
        ExprOutcome::NoValue(reason) => object.value("no_value", &Value::Word(reason)),
        _ => {}
    }
}

fn in_pair(object: &mut Object<'_>, offset: &PairOffset) {
    object.value("offset_ns", &Value::Signed(offset.ns));
    object.value("left_out", &Value::Unsigned(offset.hidden.into()));
    if let Some(thread) = offset.thread {
        object.value("thread", &Value::Word(thread.word()));
    }
    if let Some(ran_ns) = offset.ran_ns {
        object.value("prev_ran_ns", &Value::Unsigned(ran_ns.get()));
    }
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
            push_text(&outcome, &mut line);
            let mut object = Object::new(&mut json);
            beside(&mut object, &Value::Outcome(outcome));
            object.end();
            assert_eq!(
                (String::from_utf8(line).unwrap().as_str(), String::from_utf8(json).unwrap().as_str()),
                (text, keys)
            );
        }
    }
}
