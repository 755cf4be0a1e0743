//! How a key is shown: `printkey=EXPR`, an expression over the one variable `key`, or `printf("%03d %ld", EXPR, ...)` of
//! such expressions.
//!
//! ```text
//! PRINTF     = "printf(" "text with conversions" { "," EXPR } ")"
//! CONVERSION = "%" { "-" | "0" | "+" | " " | "#" } [ WIDTH ] [ "." PRECISION ] [ "hh" | "h" | "l" | "ll" | "z" ] LETTER
//! LETTER     = "d" | "i" | "u" | "x" | "X" | "o" | "c" | "s" | "p" | "%"
//! ```
//! A number is never cut: `%d` of one that needs more than 32 bits shows all of it. `hh` and `h` cut, as in C.

use std::fmt;

use crate::event::conversion::KeyConversion;
use crate::event::part::{SelectorFault, SelectorPart};
use crate::expr::{self, Expr, ExprValue, Naming, NoResult, Program};
use crate::tep::Format;
use crate::tep::syscalls::call_id::CallId;

/// Bytes of a shown key; the rest is cut off.
const MAX_SHOWN: usize = 256;
const MAX_CONVERSIONS: usize = 16;
/// The format of the record over which the expressions are compiled: one field, `key`.
const KEY_RECORD: &str =
    "name: key\nID: 0\nformat:\n\tfield:u64 key;\toffset:0;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";

/// How keys are shown.
#[derive(Clone)]
pub struct PrintKey {
    /// As typed.
    text: String,
    form: PrintForm,
}

#[derive(Clone, Debug)]
enum PrintForm {
    Value(Program),
    Printf(Vec<PrintPart>),
}

/// A part of the text of a `printf`.
#[derive(Clone, Debug)]
enum PrintPart {
    Text(Vec<u8>),
    Value(KeyConversion, Program),
}

/// A key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrintedKey {
    Signed(i64),
    Unsigned(u64),
    Text(Vec<u8>),
    Named(Naming, u64),
}

impl fmt::Debug for PrintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrintKey").field(&self.text).finish()
    }
}

impl PartialEq for PrintKey {
    fn eq(&self, other: &PrintKey) -> bool {
        self.text == other.text
    }
}

impl Eq for PrintKey {}

impl PrintKey {
    /// # Errors
    /// The text is neither an expression over `key` nor a `printf` of such; the fault has its place.
    pub fn parse(part: SelectorPart<'_>) -> Result<PrintKey, SelectorFault> {
        let text = part.text.to_owned();
        let behind = part.text.strip_prefix("printf").map(|rest| part.from(part.text.len() - rest.len()).trim());
        let Some(parentheses) = behind.filter(|rest| rest.text.starts_with('(')) else {
            return Ok(PrintKey { text, form: PrintForm::Value(program(part)?) });
        };
        let Some(inside) = parentheses.text[1..].strip_suffix(')') else {
            return parentheses.end().fault("a `)` is missing, and nothing stands behind it");
        };
        let arguments = SelectorPart { text: inside, offset: parentheses.offset + 1 }.split(',')?;
        Ok(PrintKey { text, form: PrintForm::Printf(printf(&arguments)?) })
    }

    /// As typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key as it is shown. `task`: the name of a thread.
    ///
    /// # Errors
    /// An expression has no value for this key.
    pub fn print(&self, key: u64, mut task: impl FnMut(u64) -> Vec<u8>) -> Result<PrintedKey, NoResult> {
        let record = key.to_ne_bytes();
        let record = &record[..];
        let parts = match &self.form {
            PrintForm::Printf(parts) => parts,
            PrintForm::Value(program) => {
                return Ok(match program.value(&record)? {
                    ExprValue::Signed(number) => PrintedKey::Signed(number),
                    // In the expression the key is unsigned, but the bits may be those of a negative number.
                    ExprValue::Unsigned(number) => PrintedKey::Unsigned(number),
                    ExprValue::Text(text) => PrintedKey::Text(text.to_vec()),
                    ExprValue::Named(naming, number) => PrintedKey::Named(naming, number),
                });
            }
        };
        let mut out = Vec::new();
        for part in parts {
            match part {
                PrintPart::Text(text) => out.extend_from_slice(text),
                PrintPart::Value(conversion, program) => match program.value(&record)? {
                    ExprValue::Signed(number) => conversion.number(number as u64, &mut out),
                    ExprValue::Unsigned(number) => conversion.number(number, &mut out),
                    ExprValue::Text(text) => conversion.text(text, &mut out),
                    ExprValue::Named(Naming::Syscall, number) => {
                        conversion
                            .text(CallId::of_bits(number).name().unwrap_or("unknown".into()).as_bytes(), &mut out);
                    }
                    ExprValue::Named(_, number) => conversion.text(&task(number), &mut out),
                },
            }
        }
        out.truncate(MAX_SHOWN);
        Ok(PrintedKey::Text(out))
    }
}

/// An expression over the key.
fn program(part: SelectorPart<'_>) -> Result<Program, SelectorFault> {
    let part = part.trim();
    let fault =
        |message: &str, offset: usize| SelectorFault { message: message.to_owned(), offset: part.offset + offset };
    let expr = Expr::parse(part.text).map_err(|err| fault(err.message(), err.at()))?;
    let format = Format::parse("key", KEY_RECORD).map_err(|err| fault(&err.to_string(), 0))?;
    expr.compile(&format).map_err(|err| match err.is_unknown_field() {
        true => fault("this is not known here: the one variable is `key`", err.at()),
        false => fault(err.message(), err.at()),
    })
}

/// The parts of a `printf`, whose first argument is the text.
fn printf(arguments: &[SelectorPart<'_>]) -> Result<Vec<PrintPart>, SelectorFault> {
    let Some((form, values)) = arguments.split_first().map(|(form, values)| (form.trim(), values)) else {
        return Ok(Vec::new());
    };
    if !form.text.starts_with('"') {
        return form.fault("printf begins with a text in double quotes, as in printf(\"%d %d\", key >> 32, (int)key)");
    }
    let (text, used) =
        expr::quoted(form.text).map_err(|(message, offset)| SelectorFault { message, offset: form.offset + offset })?;
    if used < form.text.len() {
        return form.from(used).fault("a `,` is missing here");
    }
    let (mut parts, mut rest, mut values) = (Vec::new(), &text[..], values.iter());
    let mut signs = form.text.match_indices('%').map(|(offset, _)| offset);
    while let Some(offset) = rest.iter().position(|byte| *byte == b'%') {
        let (before, from) = rest.split_at(offset);
        parts.push(PrintPart::Text(before.to_vec()));
        let sign = form.from(signs.next().unwrap_or(0));
        let (conversion, used) =
            KeyConversion::parse(from).map_err(|why| SelectorFault { message: why, offset: sign.offset })?;
        rest = from.get(used..).unwrap_or_default();
        if conversion.letter == b'%' {
            signs.next();
            parts.push(PrintPart::Text(b"%".to_vec()));
            continue;
        }
        let Some(value) = values.next() else {
            return sign.fault("a value is missing for this: one for each %, behind the text");
        };
        let program = program(*value)?;
        if let Some(why) = conversion.refuses(program.ty()) {
            return value.trim().fault(why);
        }
        parts.push(PrintPart::Value(conversion, program));
        if parts.len() > 2 * MAX_CONVERSIONS {
            return form.fault(format!("more than {MAX_CONVERSIONS} values"));
        }
    }
    if !rest.is_empty() {
        parts.push(PrintPart::Text(rest.to_vec()));
    }
    match values.next() {
        Some(more) => more.trim().fault("the text has no % for this value"),
        None => Ok(parts),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<PrintKey, SelectorFault> {
        PrintKey::parse(SelectorPart { text, offset: 100 })
    }

    fn printed(text: &str, key: u64) -> PrintedKey {
        let print = parse(text).unwrap_or_else(|fault| panic!("{text}: {}", fault.message));
        print.print(key, |tid| format!("task{tid}").into_bytes()).unwrap()
    }

    #[test]
    fn keys_are_printed_as_in_c() {
        let cases = [
            (r#"printf("%03d %ld", (int)(key>>32), (int)key)"#, (7 << 32) | 0xffff_ffff, "007 -1"),
            (r#"printf("%d", key)"#, u64::MAX, "-1"),
            (r#"printf("%d", key)"#, 1 << 40, "1099511627776"),
            (r#"printf("%u %x", key, key)"#, -2_i64 as u64, "4294967294 fffffffe"),
            (r#"printf("%lu %lx", key, key)"#, -2_i64 as u64, "18446744073709551614 fffffffffffffffe"),
            (r#"printf("%hhd %hu", key, key)"#, 0x1_ff80, "-128 65408"),
            (r#"printf("%5d|%-5d|%+d|% d|%05d", key, key, key, key, -key)"#, 42, "   42|42   |+42| 42|-0042"),
            (r##"printf("%#x %#o %X %p", key, key, key, key)"##, 0xab, "0xab 0253 AB 0xab"),
            (r##"printf("%#x", key)"##, 0, "0"),
            (r#"printf("%.3d|%6.3d|%.0d", key, key, 0)"#, 5, "005|   005|"),
            (r#"printf("%c%c", key, 66)"#, 65, "AB"),
            (r#"printf("100%% %s", key ? "yes" : "no")"#, 0, "100% no"),
            (r#"printf("%8s|%-8s|%.2s", "abc", "abc", "abc")"#, 0, "     abc|abc     |ab"),
            (r#"printf("%s %d", comm_get(key), key)"#, 12, "task12 12"),
            (r#"printf ( "\x25d\n" , key )"#, 3, "3\n"),
        ];
        for (text, key, want) in cases {
            assert_eq!(printed(text, key), PrintedKey::Text(want.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn an_expression_keeps_its_type() {
        assert_eq!(printed("key >> 32", 5 << 32), PrintedKey::Unsigned(5));
        assert_eq!(printed("(int)key", u64::MAX), PrintedKey::Signed(-1));
        assert_eq!(printed("key == 1 ? \"one\" : \"many\"", 2), PrintedKey::Text(b"many".to_vec()));
        assert_eq!(printed("ksymbol(key)", 9), PrintedKey::Named(Naming::Kernel, 9));
    }

    #[test]
    fn no_key_is_longer_than_the_limit() {
        let text = format!("printf(\"{}\", {})", "%64d".repeat(16), ["key"; 16].join(","));
        let PrintedKey::Text(shown) = printed(&text, 1) else { panic!("no text") };
        assert_eq!(shown.len(), MAX_SHOWN);
    }

    #[test]
    fn faults_have_their_place() {
        let cases = [
            ("pid", 0, "this is not known here: the one variable is `key`"),
            ("key +", 5, "a field or a number is missing"),
            ("printf(\"%d\", key", 16, "a `)` is missing"),
            ("printf(key)", 7, "printf begins with a text"),
            ("printf(\"%d\" key)", 11, "a `,` is missing"),
            ("printf(\"%d %d\", key)", 11, "a value is missing"),
            ("printf(\"%d\", key, key)", 18, "the text has no %"),
            ("printf(\"%% %q\", key)", 11, "`%q` is none of"),
            ("printf(\"%*d\", 3, key)", 8, "`%*` is none of"),
            ("printf(\"%65d\", key)", 8, "at most 64"),
            ("printf(\"%\", key)", 8, "`%` is none of"),
            ("printf(\"%d\", nokey)", 13, "this is not known here"),
            ("printf(\"%s\", key)", 13, "this is a number"),
            ("printf(\"%d\", \"x\")", 13, "this is text"),
            ("printf(\"%s\", ksymbol(key))", 13, "only what stands alone"),
            ("printf()", 7, "printf begins with a text"),
        ];
        for (text, offset, message) in cases {
            let fault = parse(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(fault.message.starts_with(message), "{text}: {}", fault.message);
            assert_eq!(fault.offset, 100 + offset, "{text}: {}", fault.message);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(printf\\(|key|%[-0+ #]*[0-9]{0,3}[.]?[0-9]?(hh|h|l|ll)?[diuxXocsp%]|[\"(),%]|\\PC){0,12}", key: u64) {
            match parse(&text) {
                Ok(print) => {
                    if let Ok(PrintedKey::Text(shown)) = print.print(key, |_| vec![b'x'; 1000]) {
                        prop_assert!(shown.len() <= MAX_SHOWN || !text.starts_with("printf"));
                    }
                }
                Err(fault) => prop_assert!((100..=100 + text.len()).contains(&fault.offset)),
            }
        }
    }
}
