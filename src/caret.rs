//! A text with a caret under the place of its fault.

use unicode_width::UnicodeWidthChar;

/// Characters that are shown of a long text, and how many of these may be before the fault.
const MAX_SHOWN: usize = 70;
const MAX_BEFORE: usize = 50;

/// A line break, and two lines that show a fault at byte `at` of `text`; nothing for an empty text. A long text is cut
/// on both sides: if it wrapped, the caret would not be under the fault.
pub fn caret(text: &str, at: usize, indent: usize) -> String {
    if text.is_empty() {
        return String::new();
    }
    let before = text.char_indices().take_while(|&(start, _)| start < at).count();
    let len = text.chars().count();
    let skipped = if len > MAX_SHOWN { before.saturating_sub(MAX_BEFORE) } else { 0 };
    let cut = |is_cut: bool| if is_cut { "..." } else { "" };
    // A `?` has one column: the width of a control character is not known, and the caret must stay under the fault.
    let printable = |c: char| if c.is_control() { '?' } else { c };
    let shown: String = text.chars().skip(skipped).take(MAX_SHOWN).map(printable).collect();
    let head = cut(skipped > 0);
    let width: usize = shown.chars().take(before - skipped).map(|c| c.width().unwrap_or(1)).sum();
    let column = head.len() + width;
    format!("\n{:indent$}{head}{shown}{}\n{:indent$}{:column$}^", "", cut(len - skipped > MAX_SHOWN), "", "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_caret_is_under_the_fault() {
        let cases = [
            ("", 0, ""),
            ("a:", 2, "\n  a:\n    ^"),
            ("é\n:a", 3, "\n  é?:a\n    ^"),
            ("進捗:a", 6, "\n  進捗:a\n      ^"),
        ];
        for (text, at, want) in cases {
            assert_eq!(caret(text, at, 2), want, "{text:?}");
        }
        let long = format!("{}!{}", "x".repeat(5000), "y".repeat(5000));
        let want = format!("\n  ...{}!{}...\n{}^", "x".repeat(50), "y".repeat(19), " ".repeat(55));
        assert_eq!(caret(&long, 5000, 2), want);
    }

    proptest! {
        #[test]
        fn never_panics(text: String, at in 0..200_usize) {
            let _ = caret(&text, at, 2);
        }
    }
}
