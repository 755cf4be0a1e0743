//! Tokens of the C expressions behind a `print fmt`.

use super::Unsupported;
use crate::tep::types::{IntType, radix_and_digits};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    Word(&'a str),
    Number(u64, IntType),
    Text(Vec<u8>),
    /// An operator or a bracket.
    Mark(&'static str),
    End,
}

/// Longer marks first: `<<` is not two `<`.
const MARKS: [&str; 33] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", "?", ":", "+", "-", "*",
    "/", "%", "&", "|", "^", "~", "!", "<", ">", ".", ";", "=",
];

/// Reads tokens one at a time. A clone keeps a position to go back to.
#[derive(Clone)]
pub struct Lexer<'a> {
    rest: &'a str,
    long: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str, long: usize) -> Self {
        Lexer { rest: text, long }
    }

    /// The unread text, from the next token on.
    pub fn rest(&self) -> &'a str {
        self.rest.trim_start()
    }

    pub fn peek(&self) -> Result<Token<'a>, Unsupported> {
        self.clone().next()
    }

    pub fn next(&mut self) -> Result<Token<'a>, Unsupported> {
        let text = self.rest.trim_start();
        self.rest = text;
        let Some(first) = text.bytes().next() else { return Ok(Token::End) };
        match first {
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
                self.take(end).map(Token::Word)
            }
            b'"' => self.quoted(b'"').map(Token::Text),
            b'\'' => match *self.quoted(b'\'')? {
                [byte] => Ok(Token::Number(IntType::signed(1).convert(u64::from(byte)), IntType::INT)),
                _ => Err(Unsupported::new("character literal")),
            },
            _ => match MARKS.into_iter().find(|mark| text.starts_with(mark)) {
                Some(mark) => self.take(mark.len()).map(|_| Token::Mark(mark)),
                None => Err(Unsupported::new(format!("character {:?}", text.chars().next().unwrap_or_default()))),
            },
        }
    }

    /// Reads `mark` if it is next.
    pub fn eat(&mut self, mark: &str) -> bool {
        match self.peek() {
            Ok(Token::Mark(found)) if found == mark => self.next().is_ok(),
            _ => false,
        }
    }

    pub fn expect(&mut self, mark: &str) -> Result<(), Unsupported> {
        if self.eat(mark) {
            Ok(())
        } else {
            Err(Unsupported::new(format!("syntax: `{mark}` expected at {:?}", self.excerpt())))
        }
    }

    pub fn word(&mut self) -> Result<&'a str, Unsupported> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            _ => Err(Unsupported::new(format!("syntax: a name expected before {:?}", self.excerpt()))),
        }
    }

    /// Skips everything up to the bracket that closes the one just read.
    pub fn skip_to_close(&mut self) -> Result<(), Unsupported> {
        let mut depth = 1usize;
        while depth > 0 {
            match self.next()? {
                Token::Mark("(" | "[" | "{") => depth += 1,
                Token::Mark(")" | "]" | "}") => depth -= 1,
                Token::End => return Err(Unsupported::new("syntax: a bracket is never closed")),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn excerpt(&self) -> String {
        self.rest().chars().take(20).collect()
    }

    fn take(&mut self, len: usize) -> Result<&'a str, Unsupported> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| Unsupported::new("syntax: not ASCII"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<Token<'a>, Unsupported> {
        let end = self.rest.find(|c: char| !is_word(c)).unwrap_or(self.rest.len());
        let text = self.take(end)?;
        let bad = || Unsupported::new(format!("number {text}"));
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        let suffix = text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase();
        let (radix, digits) = radix_and_digits(digits);
        let value = u64::from_str_radix(digits, radix).map_err(|_| bad())?;
        let unsigned = suffix.contains('u');
        let size = match suffix.matches('l').count() {
            0 => 4,
            1 => self.long,
            2 => 8,
            _ => return Err(bad()),
        };
        // The first type that holds the value; only hex and octal may become unsigned by size.
        let candidates = [IntType::signed(size), IntType::unsigned(size), IntType::signed(8), IntType::unsigned(8)];
        let allowed = |ty: &IntType| if unsigned { !ty.signed } else { ty.signed || radix != 10 };
        let holds = |ty: &IntType| ty.convert(value) == value && (!ty.signed || value <= i64::MAX as u64);
        let ty = candidates.into_iter().filter(allowed).find(holds).unwrap_or(IntType::U64);
        Ok(Token::Number(value, ty))
    }

    /// A string or character literal, its escapes replaced.
    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, Unsupported> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'\\') => end += 2,
                Some(&byte) if byte == quote => break,
                Some(_) => end += 1,
                None => return Err(Unsupported::new("syntax: a quote is never closed")),
            }
        }
        let text = self.take(end + 1)?;
        Ok(unescape(text.get(1..end).unwrap_or_default().as_bytes()))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces C escapes. Unknown ones lose their backslash, as compilers do.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&code, after)) = rest.split_first() else { break };
        rest = after;
        match code {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'v' => out.push(11),
            b'x' => out.push(digits(&mut rest, 16, 2)),
            b'0'..=b'7' => {
                let mut octal = text.get(text.len() - rest.len() - 1..).unwrap_or_default();
                out.push(digits(&mut octal, 8, 3));
                rest = octal;
            }
            other => out.push(other),
        }
    }
    out
}

/// Up to `max` digits off the front of `rest`, as a byte.
fn digits(rest: &mut &[u8], radix: u32, max: usize) -> u8 {
    let mut value = 0u32;
    for _ in 0..max {
        let Some((digit, after)) =
            rest.split_first().and_then(|(&c, after)| Some((char::from(c).to_digit(radix)?, after)))
        else {
            break;
        };
        value = value * radix + digit;
        *rest = after;
    }
    value as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text, 8);
        let mut all = Vec::new();
        while let Ok(token) = lexer.next() {
            if token == Token::End {
                break;
            }
            all.push(token);
        }
        all
    }

    #[test]
    fn types_numbers_as_c_does() {
        let cases: [(&str, u64, IntType); 10] = [
            ("1", 1, IntType::INT),
            ("010", 8, IntType::INT),
            ("0xffffffff", 0xffff_ffff, IntType::unsigned(4)),
            ("4294967295", 0xffff_ffff, IntType::signed(8)),
            ("1U", 1, IntType::unsigned(4)),
            ("1UL", 1, IntType::U64),
            ("1ull", 1, IntType::U64),
            ("0x8000000000000000", 1 << 63, IntType::U64),
            ("'a'", 97, IntType::INT),
            (r"'\n'", 10, IntType::INT),
        ];
        for (text, value, ty) in cases {
            assert_eq!(tokens(text), [Token::Number(value, ty)], "{text}");
        }
        for text in ["08", "1z", "0x", "99999999999999999999", "1lll", "'ab'", "\"open", "$", "é", "\"\\"] {
            assert!(tokens(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn splits_marks_words_and_literals() {
        assert_eq!(
            tokens(r#"REC->a<<=1"#),
            [
                Token::Word("REC"),
                Token::Mark("->"),
                Token::Word("a"),
                Token::Mark("<<"),
                Token::Mark("="),
                Token::Number(1, IntType::INT)
            ]
        );
        assert_eq!(tokens(r#""a\"\x41\101\t" "#), [Token::Text(b"a\"AA\t".to_vec())]);
    }
}
