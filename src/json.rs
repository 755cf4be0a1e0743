//! JSON: objects, lists, texts and numbers that every reader takes exactly. One object per line, units in the keys.

use std::io::Write;

use crate::digits::{self, Digits};
use crate::escape::{escape, is_plain};

/// The largest integer that every JSON reader takes exactly.
const EXACT: u64 = 1 << 53;

/// A value that an object may have under a key.
pub trait JsonValue {
    /// Whether the value is known. False: the key is left out.
    fn is_known(&self) -> bool;

    fn push(&self, out: &mut Vec<u8>);
}

/// Builds one JSON object, and writes the commas between its keys.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
    /// Key of the open inner object, from a dotted key. Empty: none is open.
    inside: &'a str,
}

impl<'a> Object<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, first: true, inside: "" }
    }

    pub fn end(self) {
        if !self.inside.is_empty() {
            self.out.push(b'}');
        }
        self.out.push(b'}');
    }

    /// Writes the key; the caller appends the value.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        push_string(key, self.out);
        self.out.push(b':');
        self.out
    }

    /// As `key`, with a key made by [`label`].
    #[inline]
    pub fn labelled(&mut self, label: &[u8]) -> &mut Vec<u8> {
        self.comma();
        self.out.extend_from_slice(label);
        self.out
    }

    #[inline]
    fn comma(&mut self) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
    }

    pub fn text(&mut self, key: &str, text: &str) {
        push_string(text, self.key(key));
    }

    pub fn unsigned(&mut self, key: &str, value: u64) {
        push_unsigned(value, self.key(key));
    }

    /// Writes a number with two decimals.
    pub fn decimal(&mut self, key: &str, value: f64) {
        let value = if value.is_finite() { value } else { 0.0 };
        let _ = write!(self.key(key), "{value:.2}");
    }

    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub fn signed(&mut self, key: &str, value: i64) {
        push_signed(value, self.key(key));
    }

    /// Writes a value under its key; a dotted key opens or continues an inner object.
    pub fn value(&mut self, key: &'a str, value: &impl JsonValue) {
        let (object, key) = key.split_once('.').unwrap_or(("", key));
        if object != self.inside && !self.inside.is_empty() {
            self.out.push(b'}');
            self.inside = "";
        }
        if !value.is_known() {
            return;
        }
        if object != self.inside {
            self.key(object).push(b'{');
            self.first = true;
            self.inside = object;
        }
        value.push(self.key(key));
        self.first = false;
    }
}

/// A key as JSON: `"name":`.
pub fn label(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_string(name, &mut out);
    out.push(b':');
    out
}

pub fn push_string(text: &str, out: &mut Vec<u8>) {
    if is_itself(text.as_bytes()) {
        push_quoted(text.as_bytes(), out);
    } else {
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(out, text);
    }
}

/// Appends text from others as a string, escaped for terminals and for JSON.
pub fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    if is_itself(text) {
        push_quoted(text, out);
    } else {
        push_string(&escape(text), out);
    }
}

/// True for text that needs no escape, neither for terminals nor for JSON.
pub fn is_itself(text: &[u8]) -> bool {
    is_plain(text) && !text.iter().fold(false, |any, byte| any | matches!(byte, b'"' | b'\\'))
}

pub fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

pub fn push_unsigned(value: u64, out: &mut Vec<u8>) {
    if value > EXACT {
        push_quoted(Digits::decimal(value).as_bytes(), out);
    } else {
        digits::push_unsigned(value, out);
    }
}

pub fn push_signed(value: i64, out: &mut Vec<u8>) {
    if value.unsigned_abs() > EXACT {
        out.push(b'"');
        digits::push_signed(value, out);
        out.push(b'"');
    } else {
        digits::push_signed(value, out);
    }
}

/// Appends an address as hexadecimal text, since it may be above `EXACT`.
pub fn push_address(addr: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"0x");
    digits::push_hex(addr, out);
    out.push(b'"');
}

pub fn push_list<T>(items: impl Iterator<Item = T>, out: &mut Vec<u8>, push: impl Fn(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(item, out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_integers_are_text() {
        let mut out = Vec::new();
        let mut object = Object::new(&mut out);
        object.unsigned("a", u64::MAX);
        object.signed("b", i64::MIN);
        object.unsigned("c", EXACT);
        object.end();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value, serde_json::json!({"a": "18446744073709551615", "b": "-9223372036854775808", "c": EXACT}));
    }
}
