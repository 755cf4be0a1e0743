//! Keys, from the bytes that a terminal sends for them.

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Esc,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-L: draw everything again.
    Redraw,
}

/// Limit of the bytes of an incomplete sequence. A longer one is no key.
const MAX_PENDING: usize = 32;

/// Parses bytes as they arrive; a sequence may arrive in parts.
#[derive(Debug, Default)]
pub struct KeyParser {
    pending: Vec<u8>,
}

impl KeyParser {
    /// The keys that `bytes` complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let (mut keys, mut at) = (Vec::new(), 0);
        while let Some((key, len)) = first(&self.pending[at..]) {
            keys.extend(key);
            at += len;
        }
        self.pending.drain(..at);
        if self.pending.len() > MAX_PENDING {
            self.pending.clear();
        }
        keys
    }

    /// True when the bytes so far may be the beginning of a key.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// No further bytes came in time: what looked like the start of a sequence was the Esc key.
    pub fn flush(&mut self) -> Option<Key> {
        let pending = std::mem::take(&mut self.pending);
        (pending == [ESC]).then_some(Key::Esc)
    }
}

const ESC: u8 = 0x1b;

/// The first key and its length in bytes; no key for bytes without meaning. None: the sequence is incomplete.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let key = match *bytes.first()? {
        ESC => return escape_sequence(bytes),
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x08 | 0x7f => Key::Backspace,
        0x0c => Key::Redraw,
        0x00..=0x1f => return Some((None, 1)),
        0x20..=0x7e => Key::Char(char::from(bytes[0])),
        lead => return wide(bytes, lead),
    };
    Some((Some(key), 1))
}

/// A character of more than one byte.
fn wide(bytes: &[u8], lead: u8) -> Option<(Option<Key>, usize)> {
    let len = match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((None, 1)),
    };
    let text = bytes.get(..len)?;
    match std::str::from_utf8(text) {
        Ok(text) => Some((text.chars().next().filter(|one| !one.is_control()).map(Key::Char), len)),
        Err(_) => Some((None, 1)),
    }
}

/// `ESC [ parameters letter`, and `ESC O letter` of terminals in application mode.
fn escape_sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes.get(1)? {
        b'[' => {}
        b'O' => return bytes.get(2).map(|&letter| (named(letter, &[]), 3)),
        ESC => return Some((Some(Key::Esc), 1)),
        _ => return Some((None, 2)), // Alt with a key has no meaning
    }
    let is_final = |byte: &u8| (0x40..=0x7e).contains(byte);
    let end = 2 + bytes[2..].iter().position(is_final)?;
    Some((named(bytes[end], &bytes[2..end]), end + 1))
}

fn named(letter: u8, parameters: &[u8]) -> Option<Key> {
    let number = parameters.split(|&byte| byte == b';').next().unwrap_or_default();
    Some(match (letter, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        let cases: [(&[u8], &[Key]); 14] = [
            (b"q", &[Key::Char('q')]),
            (b"\r\n", &[Key::Enter, Key::Enter]),
            (b"\t\x1b[Z", &[Key::Tab, Key::BackTab]),
            (b"\x7f\x08", &[Key::Backspace, Key::Backspace]),
            (b"\x1b[A\x1b[B\x1b[C\x1b[D", &[Key::Up, Key::Down, Key::Right, Key::Left]),
            (b"\x1bOA\x1bOH\x1bOF", &[Key::Up, Key::Home, Key::End]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b[1~\x1b[4~\x1b[7~\x1b[8~\x1b[H", &[Key::Home, Key::End, Key::Home, Key::End, Key::Home]),
            (b"\x1b[1;5A", &[Key::Up]),
            (b"\x1b[200~x", &[Key::Char('x')]),
            ("é木".as_bytes(), &[Key::Char('é'), Key::Char('木')]),
            (b"\xff\xc3(", &[Key::Char('(')]),
            (b"\x01\x0c", &[Key::Redraw]),
            (b"\x1bx", &[]),
        ];
        for (bytes, want) in cases {
            assert_eq!(KeyParser::default().feed(bytes), want, "{bytes:?}");
            // Split at any byte, the sequence gives the same key.
            let mut parser = KeyParser::default();
            let keys: Vec<Key> = bytes.chunks(1).flat_map(|byte| parser.feed(byte)).collect();
            assert_eq!(keys, want, "{bytes:?} torn");
        }
    }

    #[test]
    fn a_lone_escape_is_a_key_when_nothing_follows() {
        let mut parser = KeyParser::default();
        assert!(parser.feed(b"\x1b").is_empty() && parser.is_waiting());
        assert_eq!((parser.flush(), parser.flush()), (Some(Key::Esc), None));
        assert!(parser.feed(b"\x1b[").is_empty());
        assert_eq!(parser.flush(), None, "the beginning of something else");
        assert_eq!(parser.feed(b"\x1b\x1b[A"), [Key::Esc, Key::Up]);
    }

    #[test]
    fn an_endless_sequence_is_forgotten() {
        let mut parser = KeyParser::default();
        assert!(parser.feed(&[b"\x1b[", &[b'1'; 1000][..]].concat()).is_empty());
        assert_eq!(parser.feed(b"q"), [Key::Char('q')]);
    }
}
