//! Text from others (names, paths, symbols, event fields) may hold anything; a terminal must not obey it.

/// Appends `text` with everything but printable characters as `\xNN` (bytes) or `\u{N}` (control and direction marks).
pub fn escape_into(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_harmless(character) {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            } else if character.is_ascii() {
                push_byte(character as u8, out);
            } else {
                out.extend_from_slice(format!("\\u{{{:x}}}", character as u32).as_bytes());
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_byte(byte, out));
    }
}

/// As [`escape_into`], into a new text.
pub fn escape(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    escape_into(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn is_harmless(character: char) -> bool {
    // Marks that turn the direction of a line can hide what it says.
    !character.is_control()
        && !matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neutralises_what_a_terminal_obeys() {
        let cases: [(&[u8], &str); 7] = [
            (b"nginx: worker", "nginx: worker"),
            (b"\x1b[2J", "\\x1b[2J"),
            (b"a\nb\t\x7f", "a\\x0ab\\x09\\x7f"),
            ("größe".as_bytes(), "größe"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
        ];
        for (text, want) in cases {
            assert_eq!(escape(text), want);
        }
    }
}
