//! Formats of made-up events, for tests.

use crate::tep::Format;

/// The format of `system:name`, of fields with offset, size, and whether they are signed.
pub fn format(full_name: &str, fields: &[(&str, usize, usize, bool)]) -> Format {
    let field = |(declaration, offset, size, signed): &(&str, usize, usize, bool)| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};\n", u8::from(*signed))
    };
    let fields: String = fields.iter().map(field).collect();
    let (system, name) = full_name.split_once(':').expect("a system");
    Format::parse(system, &format!("name: {name}\nID: 1\nformat:\n{fields}\nprint fmt: \"\"\n")).expect("a format")
}
