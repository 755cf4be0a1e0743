//! Pieces of a selector with their offset in the text, so that messages can point at a fault.

use std::str::CharIndices;

/// A fault, and its byte offset in the whole text.
pub struct SelectorFault {
    pub message: String,
    pub offset: usize,
}

/// A piece of the text, and its byte offset in the whole text.
#[derive(Clone, Copy)]
pub struct SelectorPart<'a> {
    pub text: &'a str,
    pub offset: usize,
}

impl<'a> SelectorPart<'a> {
    pub fn from(self, start: usize) -> SelectorPart<'a> {
        SelectorPart { text: &self.text[start..], offset: self.offset + start }
    }

    pub fn end(self) -> SelectorPart<'a> {
        self.from(self.text.len())
    }

    pub fn trim(self) -> SelectorPart<'a> {
        let start = self.text.len() - self.text.trim_start().len();
        SelectorPart { text: self.text.trim(), offset: self.offset + start }
    }

    /// The parts before and after the first `separator`, even one in quotes or parentheses.
    pub fn cut(self, separator: char) -> Option<(SelectorPart<'a>, SelectorPart<'a>)> {
        let (before, _) = self.text.split_once(separator)?;
        Some((SelectorPart { text: before, offset: self.offset }, self.from(before.len() + separator.len_utf8())))
    }

    /// Removes a pair of quotes around the whole part. `"a" == "b"` has none.
    pub fn unquote(self) -> SelectorPart<'a> {
        let Some(quote) = self.text.chars().next().filter(|&c| is_quote(c)) else {
            return self;
        };
        let mut inside = self.text[1..].char_indices();
        match closing(&mut inside, quote) {
            Some(offset) if inside.next().is_none() => {
                SelectorPart { text: &self.text[1..=offset], offset: self.offset + 1 }
            }
            _ => self,
        }
    }

    /// The pieces between separators that stand outside quotes and parentheses.
    pub fn split(self, separator: char) -> Result<Vec<SelectorPart<'a>>, SelectorFault> {
        let (mut parts, mut start, mut open) = (Vec::new(), 0, Vec::new());
        let mut chars = self.text.char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                quote if is_quote(quote) && closing(&mut chars, quote).is_none() => {
                    return self.from(offset).fault("this quote is never closed");
                }
                '(' => open.push(offset),
                ')' if open.pop().is_none() => {
                    return self.from(offset).fault("this `)` closes nothing");
                }
                c if c == separator && open.is_empty() => {
                    parts.push(SelectorPart { text: &self.text[start..offset], offset: self.offset + start });
                    start = offset + c.len_utf8();
                }
                _ => {}
            }
        }
        if let Some(offset) = open.pop() {
            return self.from(offset).fault("this `(` is never closed");
        }
        parts.push(self.from(start));
        Ok(parts)
    }

    pub fn fault<T>(self, message: impl Into<String>) -> Result<T, SelectorFault> {
        Err(SelectorFault { message: message.into(), offset: self.offset })
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// Offset of the next `quote`. Leaves the iterator behind the quote.
fn closing(chars: &mut CharIndices<'_>, quote: char) -> Option<usize> {
    while let Some((offset, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(offset),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> SelectorPart<'_> {
        SelectorPart { text, offset: 0 }
    }

    #[test]
    fn splits_outside_quotes_and_parentheses() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[""]),
            ("a", &["a"]),
            ("a,b,", &["a", "b", ""]),
            ("(a,b),c", &["(a,b)", "c"]),
            ("((a),b),c", &["((a),b)", "c"]),
            ("'a,(b',c", &["'a,(b'", "c"]),
            ("(a')',b),c", &["(a')',b)", "c"]),
            ("\"a\\\",b\",c", &["\"a\\\",b\"", "c"]),
        ];
        for (text, want) in cases {
            let parts = part(text).split(',').ok().unwrap();
            assert!(parts.iter().map(|part| part.text).eq(want.iter().copied()), "{text:?}");
            assert!(parts.iter().all(|part| text[part.offset..].starts_with(part.text)));
        }
    }

    #[test]
    fn unquotes_once() {
        let cases = [
            ("'a'", "a"),
            ("\"\"", ""),
            ("\"'a'\"", "'a'"),
            ("'é\\''", "é\\'"),
            ("'a' 'b'", "'a' 'b'"),
            ("'a", "'a"),
            ("'", "'"),
            ("a'b'", "a'b'"),
        ];
        for (text, want) in cases {
            assert_eq!(part(text).unquote().text, want);
        }
    }
}
