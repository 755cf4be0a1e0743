//! `name=value name=value`: the text of a record whose `print fmt` cannot be compiled.

use std::io::Write;

use crate::digits::{push_signed, push_unsigned};
use crate::tep::format::Format;
use crate::tep::format::field::{Field, FieldValue};

/// Appends the event's own fields to `out`. A field that the record does not hold shows as `?`.
pub fn render_fields(format: &Format, raw: &[u8], out: &mut Vec<u8>) {
    render_list(format.user_fields(), b' ', raw, out);
}

/// Appends `name=value` of each of `fields`.
pub(in crate::tep) fn render_list<'a>(
    fields: impl Iterator<Item = &'a Field>,
    between: u8,
    raw: &[u8],
    out: &mut Vec<u8>,
) {
    for (at, field) in fields.enumerate() {
        if at > 0 {
            out.push(between);
        }
        out.extend_from_slice(field.name.as_bytes());
        out.push(b'=');
        match field.value(raw) {
            Ok(value) => render_value(value, out),
            Err(_) => out.push(b'?'),
        }
    }
}

/// Appends a value as `render_fields` shows it.
fn render_value(value: FieldValue<'_>, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = match value {
        FieldValue::Signed(value) => {
            push_signed(value, out);
            Ok(())
        }
        FieldValue::Unsigned(value) => {
            push_unsigned(value, out);
            Ok(())
        }
        FieldValue::Pointer(value) => write!(out, "{value:#x}"),
        FieldValue::Text(text) => out.write_all(text),
        FieldValue::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        FieldValue::Ints(ints) => {
            out.push(b'{');
            for (at, value) in ints.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                render_value(value, out); // recursion ends here: elements are numbers
            }
            out.push(b'}');
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::samples;

    fn text(format: &Format, raw: &[u8]) -> String {
        let mut out = Vec::new();
        render_fields(format, raw, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prints_names_and_values() {
        let format = Format::parse("s", samples::REL_LOC).unwrap();
        let raw = [&[0; 8][..], &(4u32 | 6 << 16).to_ne_bytes(), &7u32.to_ne_bytes(), b"hello\0"].concat();
        assert_eq!(text(&format, &raw), "text=hello count=7");
        assert_eq!(text(&format, &raw[..15]), "text=? count=?");
    }

    #[test]
    fn prints_each_kind() {
        let lines = [
            ("int a", 4, 1, "a=-1"),
            ("unsigned int a", 4, 0, "a=4294967295"),
            ("void * a", 8, 0, "a=0xffffffffffffffff"),
            ("unsigned long ip", 8, 0, "ip=0xffffffffffffffff"),
            ("short a[3]", 6, 1, "a={-1,-1,-1}"),
            ("struct s a", 3, 0, "a=ffffff"),
        ];
        for (declaration, size, signed, want) in lines {
            let format = format!(
                "name: x\nID: 1\n\tfield:{declaration};\toffset:0;\tsize:{size};\tsigned:{signed};\nprint fmt: \"\""
            );
            assert_eq!(text(&Format::parse("s", &format).unwrap(), &[0xff; 8]), want);
        }
    }
}
