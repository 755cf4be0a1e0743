//! Patterns of names: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a literal character. A bracket that is never closed
//! stands for itself, as in the kernel.

/// Whether a pattern of tasks, events or functions, as users type it, matches all of `text`. `[^a]` is the same as
/// `[!a]`. The number of steps is at most the product of the lengths.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, b"!^")
}

/// As [`glob`], by the rules of the kernel's filter operator `~`: there `^` is a member of a set like any other.
/// Source: `glob_match`, lib/glob.c.
pub fn kernel_glob(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, b"!")
}

/// True for a name that is a pattern.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// Why a pattern is surely a mistake: a set without an end would match its own text, and a range that runs backwards
/// nothing.
pub fn fault(pattern: &str) -> Option<&'static str> {
    let mut rest = pattern.as_bytes();
    while let [first, behind @ ..] = rest {
        let mut is_backwards = false;
        let used = match first {
            b'\\' => 1,
            b'[' => match parse_set(behind, b"!^", |low, high| is_backwards |= low > high) {
                None => return Some("an unclosed `[`"),
                Some(_) if is_backwards => return Some("a range that runs backwards"),
                Some((_, used)) => used,
            },
            _ => 0,
        };
        rest = behind.get(used..).unwrap_or_default();
    }
    None
}

fn matches(pattern: &[u8], text: &[u8], inverting: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Positions to continue from after a mismatch: behind the last `*`, which then matches one byte more.
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
        match match_element(pattern.get(p..).unwrap_or_default(), byte, inverting) {
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

/// Length of the pattern's first element, if `byte` matches it.
fn match_element(pattern: &[u8], byte: u8, inverting: &[u8]) -> Option<usize> {
    match *pattern {
        [b'?', ..] => Some(1),
        [b'[', ref class @ ..] => {
            let mut found = false;
            match parse_set(class, inverting, |low, high| found |= (low..=high).contains(&byte)) {
                Some((inverted, used)) => (found != inverted).then_some(1 + used),
                None => (byte == b'[').then_some(1),
            }
        }
        [b'\\', literal, ..] => (byte == literal).then_some(2),
        [literal, ..] => (byte == literal).then_some(1),
        [] => None,
    }
}

/// Calls `range` with each range of the set that starts behind a `[`. Returns whether the set is inverted, and its
/// length with the `]`; None without a `]`. A `]` in the first place is a member.
fn parse_set(class: &[u8], inverting: &[u8], mut range: impl FnMut(u8, u8)) -> Option<(bool, usize)> {
    let inverted = class.first().is_some_and(|first| inverting.contains(first));
    let mut at = usize::from(inverted);
    let first = at;
    loop {
        let low = *class.get(at)?;
        if low == b']' && at > first {
            return Some((inverted, at + 1));
        }
        let high = match (class.get(at + 1), class.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                at += 2;
                high
            }
            (Some(b'-'), None) => return None,
            _ => low,
        };
        range(low, high);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_as_the_kernel_does() {
        let cases: [(&str, &str, bool); 35] = [
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
            ("*ab*abc", "ababcabc", true),
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
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            assert_eq!([glob, kernel_glob].map(|glob| glob(pattern, text)), [want; 2], "{pattern:?} {text:?}");
        }
        let (people, kernel) = (|text: &[u8]| glob(b"[^a]", text), |text: &[u8]| kernel_glob(b"[^a]", text));
        assert_eq!([people(b"a"), people(b"b"), kernel(b"^"), kernel(b"b")], [false, true, true, false]);
    }

    #[test]
    fn finds_faults_of_patterns() {
        for pattern in ["[", "sched:[", "*[", "a[z-a]", "[a-", "[!]"] {
            assert!(fault(pattern).is_some(), "{pattern}");
        }
        for pattern in ["", "\\[", "sched:[a-z]*", "[]]", "[!]a-]x", "[^[]", "\\"] {
            assert_eq!(fault(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn globs_end(pattern in "[a*?\\[\\]!^\\\\-]{0,12}", text in "[ab]{0,15}") {
            glob(pattern.as_bytes(), text.as_bytes());
            fault(&pattern);
        }

        #[test]
        fn survives_anything(pattern: Vec<u8>, text: Vec<u8>, typed: String) {
            kernel_glob(&pattern, &text);
            fault(&typed);
        }
    }
}
