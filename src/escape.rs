//! Text from other programs (names, paths, symbols, event fields) may hold any bytes; a terminal must not obey them.

use std::borrow::Cow;

use crate::digits::push_hex;

/// Appends `text`, with control characters and invalid bytes as `\xNN`, and invisible characters as `\u{N}`.
pub fn escape_into(text: &[u8], out: &mut Vec<u8>) {
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        escape_other(text, out);
    }
}

/// Escapes the bytes of `out` from `start` on, for text that was written there unescaped.
pub fn escape_from(start: usize, out: &mut Vec<u8>) {
    if !out.get(start..).is_some_and(is_plain) {
        let text = out.split_off(start);
        escape_other(&text, out);
    }
}

/// True when every byte is a printable ASCII character, so that there is nothing to escape.
#[inline]
pub fn is_plain(text: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const ONE: u64 = HIGH >> 7;
    // The high bit of each byte that is not in 0x20..=0x7e. The subtraction never borrows from the next byte, since all
    // high bits are set before. The addition carries only out of bytes above 0x7e, which are not plain themselves.
    let others = |word: u64| (word | word.wrapping_add(ONE) | !((word | HIGH) - 0x20 * ONE)) & HIGH;
    let (words, rest) = text.as_chunks::<8>();
    let in_words = words.iter().fold(0, |all, word| all | others(u64::from_ne_bytes(*word)));
    in_words == 0 && rest.iter().all(|byte| matches!(byte, 0x20..=0x7e))
}

fn escape_other(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_harmless(character) {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            } else if character.is_ascii() {
                push_byte(character as u8, out);
            } else {
                out.extend_from_slice(b"\\u{");
                push_hex(u64::from(character), out);
                out.push(b'}');
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_byte(byte, out));
    }
}

/// As [`escape_into`], into a new string.
pub fn escape(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    escape_into(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Undoes [`escape`] for bytes: each `\xNN` becomes that byte. `\u{N}` stays.
pub fn unescape(text: &str) -> Cow<'_, [u8]> {
    let mut parts = text.split("\\x");
    let first = parts.next().unwrap_or_default().as_bytes();
    if first.len() == text.len() {
        return first.into();
    }
    let mut bytes = first.to_vec();
    for part in parts {
        let code = part.split_at_checked(2).filter(|(code, _)| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match code.and_then(|(code, rest)| Some((u8::from_str_radix(code, 16).ok()?, rest))) {
            Some((byte, rest)) => {
                bytes.push(byte);
                bytes.extend_from_slice(rest.as_bytes());
            }
            None => bytes.extend([b"\\x", part.as_bytes()].concat()),
        }
    }
    bytes.into()
}

fn is_harmless(character: char) -> bool {
    // U+FFFE and U+FFFF are no characters, and not allowed in XML.
    !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}') && !is_unseen(character)
}

/// Invisible characters: marks that change the direction of a line can hide its text, and two different names would
/// look the same. These are the Unicode categories Cf, Zl and Zp, code points reserved for such characters, fillers,
/// and variation selectors.
fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters() {
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
            let mut out = [b"head \n".as_slice(), text].concat();
            escape_from(6, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("head \n{want}"));
        }
    }

    #[test]
    fn escaped_bytes_are_found_again() {
        for text in [&b"h\xe9llo"[..], b"\xff\xfe raw", b"\x1b[2J", b"plain", "größe".as_bytes(), b""] {
            assert_eq!(*unescape(&escape(text)), *text);
        }
        for text in ["a\\x", "a\\x4", "a\\xg1", "a\\x+1", "a\\", "\\xé"] {
            assert_eq!(*unescape(text), *text.as_bytes());
        }
    }

    #[test]
    fn escapes_what_is_not_seen() {
        let unseen = "\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200f}\u{2028}\u{2029}\u{202a}\u{2060}\u{2066}\u{206f}\u{3164}\
                      \u{fe0f}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{e0100}";
        for character in unseen.chars() {
            assert_eq!(escape(character.to_string().as_bytes()), format!("\\u{{{:x}}}", u32::from(character)));
        }
        let seen = "o\u{308}ß中文日本語한글👍\u{a0}\u{e000}\u{fffd}";
        assert_eq!(escape(seen.as_bytes()), seen);
    }

    #[test]
    fn sees_other_bytes_at_every_offset() {
        for byte in 0..=u8::MAX {
            for (len, neighbour) in (0..20).flat_map(|len| [(len, b' '), (len, b'~')]) {
                let mut text = vec![neighbour; len];
                assert!(is_plain(&text));
                for at in 0..len {
                    text[at] = byte;
                    assert_eq!(is_plain(&text), matches!(byte, 0x20..=0x7e), "{byte:#x} at {at} of {len}");
                    text[at] = neighbour;
                }
            }
        }
    }
}
