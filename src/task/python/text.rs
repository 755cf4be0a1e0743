//! Strings of the interpreter (`PyUnicodeObject`). Long ones are cut.

use crate::task::memory::ProcessMemory;
use crate::task::python::PythonRuntime;

/// Which part of a long string is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Head,
    Tail,
}

/// Longest string, in UTF-8.
const MAX_BYTES: usize = 256;
const CUT: &str = "...";

/// The string at `address`. None: no string is there.
pub fn read(address: u64, kept: Kept, runtime: &PythonRuntime, memory: &mut ProcessMemory) -> Option<Box<str>> {
    const MAX_CHARACTERS: u64 = 1 << 20;
    let layout = &runtime.layout;
    if memory.word(address.checked_add(8)?)? != runtime.text_type {
        return None;
    }
    let len = memory.word(address.checked_add(layout.text_length)?)?;
    let state = memory.half(address.checked_add(layout.text_state)?)?;
    let (width, is_compact, is_ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !matches!(width, 1 | 2 | 4) || !is_compact || is_ascii && width != 1 || len == 0 || len > MAX_CHARACTERS {
        return None;
    }
    let some = len.min(MAX_BYTES as u64);
    let skipped = if kept == Kept::Tail { len - some } else { 0 };
    let start = address.checked_add(if is_ascii { layout.ascii } else { layout.other })?;
    let bytes = memory.up_to(start.checked_add(skipped * width)?, (some * width) as usize);
    if bytes.len() as u64 != some * width {
        return None;
    }
    let characters: Vec<char> = bytes.chunks_exact(width as usize).map(character).collect();
    Some(fit(&characters, some < len, kept))
}

fn character(bytes: &[u8]) -> char {
    let value = match *bytes {
        [one] => u32::from(one),
        [low, high] => u32::from(u16::from_ne_bytes([low, high])),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        _ => u32::MAX,
    };
    char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The characters that fit, with a mark if some are omitted.
fn fit(characters: &[char], is_cut: bool, kept: Kept) -> Box<str> {
    let whole: usize = characters.iter().map(|character| character.len_utf8()).sum();
    if !is_cut && whole <= MAX_BYTES {
        return characters.iter().collect::<String>().into();
    }
    let mut room = MAX_BYTES - CUT.len();
    let fits = |character: &&char| {
        let is_room = character.len_utf8() <= room;
        room = room.saturating_sub(character.len_utf8());
        is_room
    };
    match kept {
        Kept::Head => characters.iter().take_while(fits).collect::<String>() + CUT,
        Kept::Tail => {
            let count = characters.iter().rev().take_while(fits).count();
            CUT.to_owned() + &characters[characters.len() - count..].iter().collect::<String>()
        }
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut() {
        let text = |text: &str, is_cut, kept| fit(&text.chars().collect::<Vec<_>>(), is_cut, kept);
        assert_eq!(&*text("abc", false, Kept::Head), "abc");
        assert_eq!(&*text("abc", true, Kept::Tail), "...abc");
        let long = "€".repeat(256);
        assert_eq!(*text(&long, false, Kept::Head), format!("{}...", "€".repeat(84)));
        assert_eq!(*text(&format!("{long}x"), false, Kept::Tail), format!("...{}x", "€".repeat(84)));
        assert_eq!(text(&"x".repeat(256), false, Kept::Tail).len(), 256);
    }
}
