//! Lists of strings as text: `["sh", "-c", "ls"]`.

use super::put;

/// The strings of a list as a BPF program has copied it, and whether there are more: each ends with a NUL byte, the
/// last one only if the list is complete.
pub fn split(list: &[u8]) -> (impl Iterator<Item = &[u8]>, bool) {
    let is_cut = list.last().is_some_and(|last| *last != 0);
    let list = list.strip_suffix(b"\0").map_or_else(|| Some(list).filter(|_| is_cut), Some);
    (list.into_iter().flat_map(|list| list.split(|byte| *byte == 0)), is_cut)
}

/// Appends the strings, unescaped.
pub fn push(list: &[u8], out: &mut String) {
    let (words, is_cut) = split(list);
    out.push('[');
    for (index, word) in words.enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        put(out, format_args!("\"{}\"", String::from_utf8_lossy(word).replace('"', "\\\"")));
    }
    out.push_str(if is_cut { ", ...]" } else { "]" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_they_are_written() {
        let cases: [(&[u8], &str); 6] = [
            (b"", "[]"),
            (b"\0", r#"[""]"#),
            (b"ls\0", r#"["ls"]"#),
            (b"sh\0-c\0echo \"x\"\0", r#"["sh", "-c", "echo \"x\""]"#),
            (b"sh\0-c", r#"["sh", "-c", ...]"#),
            (b"a\0\0b\0", r#"["a", "", "b"]"#),
        ];
        for (list, want) in cases {
            let mut out = String::new();
            push(list, &mut out);
            assert_eq!(out, want);
        }
    }
}
