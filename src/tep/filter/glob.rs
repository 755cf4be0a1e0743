//! Shell patterns as the kernel matches them for `~`.
//!
//! Source: `glob_match`, lib/glob.c: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a literal character.
//! A bracket that is never closed stands for itself.

/// Whether `pattern` matches all of `text`. Takes at most their lengths' product of steps.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last `*`, with one more byte given to it.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        let Some(&byte) = text.get(t) else {
            return p == pattern.len();
        };
        match one(pattern.get(p..).unwrap_or_default(), byte) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match &mut retry {
                Some((behind, from)) => {
                    *from += 1;
                    (p, t) = (*behind, *from);
                }
                None => return false,
            },
        }
    }
}

/// How much of the pattern `byte` uses up; None if it does not match its first element.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [b'?', ..] => Some(1),
        [b'[', ref class @ ..] => match in_class(class, byte) {
            Some((true, used)) => Some(1 + used),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(1),
        },
        [b'\\', literal, ..] => (byte == literal).then_some(2),
        [literal, ..] => (byte == literal).then_some(1),
        [] => None,
    }
}

/// Whether the class that starts behind a `[` has `byte` in it, and its length with the `]`. None
/// without a `]`. A `]` in the first place is a member.
fn in_class(class: &[u8], byte: u8) -> Option<(bool, usize)> {
    let inverted = class.first() == Some(&b'!');
    let (mut at, mut found) = (usize::from(inverted), false);
    let first = at;
    loop {
        let low = *class.get(at)?;
        if low == b']' && at > first {
            return Some((found != inverted, at + 1));
        }
        let high = match (class.get(at + 1), class.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                at += 2;
                high
            }
            (Some(b'-'), None) => return None,
            _ => low,
        };
        found |= (low..=high).contains(&byte);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_the_kernel_does() {
        let cases: [(&str, &str, bool); 34] = [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "aa", false),
            ("a", "", false),
            ("", "", true),
            ("", "a", false),
            ("?", "a", true),
            ("?", "", false),
            ("??", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("*b", "abc", false),
            ("a*c*", "abcd", true),
            ("*bc*bc*", "xbcybcz", true),
            ("*aaaaa", "aaaaaaaaaa", true),
            ("*ab", "aab", true),
            ("[a]", "a", true),
            ("[!a]", "a", false),
            ("[!a]", "b", true),
            ("[a-c]", "b", true),
            ("[a-c]", "d", false),
            ("[]a]", "]", true),
            ("[!]a]", "]", false),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("[a-", "[a-", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[1--]x*", "-xyz", false), // an empty range
        ];
        for (pattern, text, want) in cases {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), want, "{pattern:?} {text:?}");
        }
    }
}
