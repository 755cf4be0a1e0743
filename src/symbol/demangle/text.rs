//! Text of a bounded length: a short mangled name may stand for gigabytes.

use std::fmt::{self, Write};

/// Longest text of a name. Names of templates can be longer, but nobody reads them.
pub const MAX_NAME_BYTES: usize = 4096;

/// A text that is cut at [`MAX_NAME_BYTES`].
#[derive(Debug, Default)]
pub struct BoundedText {
    text: String,
    is_full: bool,
}

impl BoundedText {
    pub fn of(text: &str) -> String {
        let mut name = BoundedText::default();
        name.push(text);
        name.text
    }

    /// Appends text. False when it was cut.
    pub fn push(&mut self, more: &str) -> bool {
        let kept = more.floor_char_boundary(MAX_NAME_BYTES - self.text.len());
        self.text.push_str(&more[..kept]);
        self.is_full |= kept < more.len();
        !self.is_full
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Removes the text behind `len`.
    pub fn truncate(&mut self, len: usize) {
        self.text.truncate(len);
    }

    pub fn ends_with(&self, last: char) -> bool {
        self.text.ends_with(last)
    }

    pub fn is_full(&self) -> bool {
        self.is_full
    }

    pub fn into_string(self) -> String {
        self.text
    }
}

impl Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.push(more) { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(BoundedText::of(&"ä".repeat(3000)).len(), MAX_NAME_BYTES);
        assert_eq!(BoundedText::of(&format!("x{}", "ä".repeat(3000))).len(), MAX_NAME_BYTES - 1);
        assert_eq!(BoundedText::of(&"x".repeat(MAX_NAME_BYTES)), "x".repeat(MAX_NAME_BYTES));
        let mut text = BoundedText::default();
        assert!(text.push("ab") && !text.push(&"x".repeat(MAX_NAME_BYTES)) && !text.push("y"));
        assert!(text.is_full() && text.len() == MAX_NAME_BYTES);
    }
}
