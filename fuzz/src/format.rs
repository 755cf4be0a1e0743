//! A `format` file and a record of its event: every field that is read lies within the record.

use perf_prof::tep::{Comparison, FieldValue, Format, render_fields};

use super::input::text_and_bytes;

/// Greatest size of a record in perf.
const MAX_RECORD_BYTES: usize = 1 << 16;

pub fn run(data: &[u8]) {
    let Some((text, raw)) = text_and_bytes(data) else { return };
    match Format::parse("fuzz", text) {
        Ok(format) => look(&format, raw),
        Err(error) => assert!(error.line <= text.matches('\n').count() + 2 && !error.to_string().is_empty()),
    }
}

fn look(format: &Format, raw: &[u8]) {
    for field in &format.fields {
        assert!(!field.name.is_empty() && field.offset + field.size <= MAX_RECORD_BYTES);
        assert_eq!(format.require(&field.name).map(|field| &field.name), Ok(&field.name));
        let _ = (Comparison::of(field).operators(), field.text(raw), field.read_i32(raw));
        assert!(field.bytes(raw).is_ok_and(|bytes| bytes.len() <= raw.len()) || field.bytes(raw).is_err());
        assert_eq!(field.read_i64(raw).is_ok(), field.read_u64(raw).is_ok());
        match field.value(raw) {
            Ok(FieldValue::Ints(ints)) => assert!(ints.iter().count() <= raw.len()),
            Ok(FieldValue::Text(text)) => assert!(!text.contains(&0) && text.len() <= raw.len()),
            _ => {}
        }
    }
    let mut out = Vec::new();
    render_fields(format, raw, &mut out);
    // Up to 20 digits and a comma for each byte.
    let names: usize = format.fields.iter().map(|field| field.name.len() + 30).sum();
    assert!(out.len() <= names + format.fields.len() * raw.len() * 21);
    let _ = (format.is_probe_event(), format.require("no such").map_err(|error| error.to_string()));
}
