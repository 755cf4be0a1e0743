//! Literals: numbers, characters and texts.

/// Why a literal is invalid, and the byte offset of the fault in the literal.
pub type LiteralFault = (String, usize);

/// Parses a decimal, hexadecimal (`0x`) or octal (leading 0) number.
pub fn number(word: &str) -> Option<u64> {
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// The bytes of a literal that begins with a quote, and its length with both quotes.
pub fn quoted(text: &str) -> Result<(Vec<u8>, usize), LiteralFault> {
    let quote = text.as_bytes().first().copied().unwrap_or(b'"');
    let (bytes, mut value, mut at) = (text.as_bytes(), Vec::new(), 1);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            _ if byte == quote => return Ok((value, at + 1)),
            b'\\' => {
                let (escaped, used) = escape(bytes.get(at + 1..).unwrap_or_default())
                    .ok_or_else(|| ("no escape of C: write \\n, \\t, \\0, \\x7f, \\\\ or \\\"".to_owned(), at))?;
                value.push(escaped);
                at += 1 + used;
            }
            _ => {
                value.push(byte);
                at += 1;
            }
        }
    }
    Err(("this quote is never closed".to_owned(), 0))
}

/// The byte that an escape stands for, and the length of the escape, both without the backslash.
fn escape(bytes: &[u8]) -> Option<(u8, usize)> {
    let number = |digits: &[u8], radix| u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
    let count = |most: usize, is: fn(&u8) -> bool, from: usize| {
        bytes.iter().skip(from).take(most).take_while(|byte| is(byte)).count()
    };
    let plain = match bytes.first()? {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'e' => 27,
        same @ (b'\\' | b'"' | b'\'' | b'?') => *same,
        b'x' => {
            let len = count(2, u8::is_ascii_hexdigit, 1);
            return Some((number(bytes.get(1..1 + len)?, 16)?, 1 + len));
        }
        b'0'..=b'7' => {
            let len = count(3, |byte| (b'0'..=b'7').contains(byte), 0);
            return Some((number(bytes.get(..len)?, 8)?, len));
        }
        _ => return None,
    };
    Some((plain, 1))
}
