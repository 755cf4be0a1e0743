//! Text of a bounded length: a short mangled name may stand for gigabytes.

use std::fmt::{self, Write};

/// The longest that compilers make of templates are longer than anybody reads.
pub const MOST_NAME_BYTES: usize = 4096;

/// What there is of a name up to [`MOST_NAME_BYTES`].
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    is_full: bool,
}

impl Text {
    pub fn of(text: &str) -> String {
        let mut name = Text::default();
        name.push(text);
        name.text
    }

    /// False when it was cut.
    pub fn push(&mut self, more: &str) -> bool {
        let kept = more.floor_char_boundary(MOST_NAME_BYTES - self.text.len());
        self.text.push_str(&more[..kept]);
        self.is_full |= kept < more.len();
        !self.is_full
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Takes back what was written last.
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

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.push(more) { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(Text::of(&"ä".repeat(3000)).len(), MOST_NAME_BYTES);
        assert_eq!(Text::of(&format!("x{}", "ä".repeat(3000))).len(), MOST_NAME_BYTES - 1);
        assert_eq!(Text::of(&"x".repeat(MOST_NAME_BYTES)), "x".repeat(MOST_NAME_BYTES));
        let mut text = Text::default();
        assert!(text.push("ab") && !text.push(&"x".repeat(MOST_NAME_BYTES)) && !text.push("y"));
        assert!(text.is_full() && text.len() == MOST_NAME_BYTES);
    }
}
