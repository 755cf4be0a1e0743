//! Strings and addresses of sockets that the arguments of a system call point to, behind the bytes of the call's record.
//!
//! Each string is stored as the offset of its argument in the record, a kind, a length and the bytes; the length of the
//! record itself comes last.

/// What is known of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentText<'a> {
    /// The whole string, without the NUL byte.
    Read(&'a [u8]),
    /// The first bytes of a string that is longer than a path may be.
    Cut(&'a [u8]),
    /// A string that was read after the entry of the call, maybe after its end: the program may have overwritten it.
    Late(&'a [u8]),
    Unread(UnreadText),
    /// The address of a socket, as the kernel takes it.
    SocketAddress(&'a [u8]),
    /// The strings of a list, each with its NUL byte; the last one has none if the list goes on.
    Words(&'a [u8]),
    /// Another thing than a string.
    UnreadData(UnreadText),
}

/// Why a string is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadText {
    /// Nothing readable was at the string's address when the call was made.
    NotInMemory,
    /// The copy was lost, or copying had not begun.
    NoCopy,
    /// The kernel does not allow copying strings.
    Refused,
}

impl UnreadText {
    const ALL: [UnreadText; 3] = [UnreadText::NotInMemory, UnreadText::NoCopy, UnreadText::Refused];

    /// By its number in a record.
    fn of_kind(kind: u16) -> UnreadText {
        UnreadText::ALL.get(usize::from(kind)).copied().unwrap_or(UnreadText::Refused)
    }

    /// As text has it.
    pub fn reason(self) -> &'static str {
        match self {
            UnreadText::NotInMemory => "not in memory",
            UnreadText::NoCopy => "its copy was lost",
            UnreadText::Refused => "copying is refused",
        }
    }
}

/// Appends strings to the bytes of a record.
#[derive(Debug)]
pub struct ArgumentTextWriter<'b> {
    bytes: &'b mut Vec<u8>,
    raw_bytes: u32,
}

/// Kinds. From `UNREAD` and `UNREAD_DATA` on there is one for each reason.
const UNREAD: u16 = 3;
const SOCKET_ADDRESS: u16 = 6;
const WORDS: u16 = 7;
const UNREAD_DATA: u16 = 8;

const HEADER_BYTES: usize = 8;
const LAST_BYTES: usize = 4;

impl<'b> ArgumentTextWriter<'b> {
    /// Clears `bytes`, and starts with the record.
    pub fn new(bytes: &'b mut Vec<u8>, raw: &[u8]) -> ArgumentTextWriter<'b> {
        bytes.clear();
        bytes.extend_from_slice(raw);
        // The size of a record is a u16.
        ArgumentTextWriter { raw_bytes: raw.len() as u32, bytes }
    }

    /// Appends a string. `offset`: the offset of its argument in the record.
    pub fn push(&mut self, offset: u16, text: ArgumentText<'_>) {
        let (kind, text): (u16, &[u8]) = match text {
            ArgumentText::Read(text) => (0, text),
            ArgumentText::Cut(text) => (1, text),
            ArgumentText::Late(text) => (2, text),
            ArgumentText::Unread(unread) => (UNREAD + unread as u16, b""),
            ArgumentText::SocketAddress(address) => (SOCKET_ADDRESS, address),
            ArgumentText::Words(words) => (WORDS, words),
            ArgumentText::UnreadData(unread) => (UNREAD_DATA + unread as u16, b""),
        };
        self.bytes.extend_from_slice(&offset.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes()); // at most the length of a path
        self.bytes.extend_from_slice(text);
    }

    /// Ends writing. Returns the record with its strings.
    pub fn finish(self) -> &'b [u8] {
        self.bytes.extend_from_slice(&self.raw_bytes.to_ne_bytes());
        self.bytes
    }
}

/// A record and its strings.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentTexts<'a> {
    pub raw: &'a [u8],
    texts: &'a [u8],
}

impl<'a> ArgumentTexts<'a> {
    /// A record without strings.
    pub fn none(raw: &'a [u8]) -> ArgumentTexts<'a> {
        ArgumentTexts { raw, texts: &[] }
    }

    /// Splits what [`ArgumentTextWriter`] has written. Other bytes are a record without strings.
    pub fn split(bytes: &'a [u8]) -> ArgumentTexts<'a> {
        let split = || {
            let (rest, raw_bytes) = bytes.split_last_chunk::<LAST_BYTES>()?;
            rest.split_at_checked(u32::from_ne_bytes(*raw_bytes) as usize)
        };
        split().map_or(ArgumentTexts::none(bytes), |(raw, texts)| ArgumentTexts { raw, texts })
    }

    /// Offset of each argument, and its string.
    pub fn iter(self) -> impl Iterator<Item = (u16, ArgumentText<'a>)> {
        let mut rest = self.texts;
        std::iter::from_fn(move || {
            let (header, behind) = rest.split_first_chunk::<HEADER_BYTES>()?;
            let [offset0, offset1, kind0, kind1, len @ ..] = *header;
            let (text, behind) = behind.split_at_checked(u32::from_ne_bytes(len) as usize)?;
            rest = behind;
            let text = match u16::from_ne_bytes([kind0, kind1]) {
                0 => ArgumentText::Read(text),
                1 => ArgumentText::Cut(text),
                2 => ArgumentText::Late(text),
                SOCKET_ADDRESS => ArgumentText::SocketAddress(text),
                kind @ UNREAD..SOCKET_ADDRESS => ArgumentText::Unread(UnreadText::of_kind(kind - UNREAD)),
                WORDS => ArgumentText::Words(text),
                kind => ArgumentText::UnreadData(UnreadText::of_kind(kind - UNREAD_DATA)),
            };
            Some((u16::from_ne_bytes([offset0, offset1]), text))
        })
    }

    /// True when no strings follow the record.
    pub fn is_empty(self) -> bool {
        self.texts.is_empty()
    }

    /// The string of the argument at `offset`.
    pub fn at(self, offset: usize) -> Option<ArgumentText<'a>> {
        self.iter().find(|(at, _)| usize::from(*at) == offset).map(|(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_as_they_were_written() {
        let texts = [
            (16, ArgumentText::Read(b"/etc")),
            (24, ArgumentText::Read(b"")),
            (32, ArgumentText::Cut(b"/a")),
            (36, ArgumentText::Late(b"/b")),
            (40, ArgumentText::Unread(UnreadText::NotInMemory)),
            (48, ArgumentText::Unread(UnreadText::NoCopy)),
            (56, ArgumentText::Unread(UnreadText::Refused)),
            (64, ArgumentText::SocketAddress(b"\x02\0")),
            (68, ArgumentText::Words(b"ls\0-l\0")),
            (72, ArgumentText::UnreadData(UnreadText::NotInMemory)),
            (80, ArgumentText::UnreadData(UnreadText::NoCopy)),
            (88, ArgumentText::UnreadData(UnreadText::Refused)),
        ];
        let mut bytes = vec![1, 2];
        let mut writer = ArgumentTextWriter::new(&mut bytes, b"record");
        texts.iter().for_each(|&(offset, text)| writer.push(offset, text));
        let written = writer.finish().to_vec();
        let split = ArgumentTexts::split(&written);
        assert_eq!(split.raw, b"record");
        assert!(split.iter().eq(texts.iter().copied()));
        assert_eq!((split.at(32), split.at(33)), (Some(ArgumentText::Cut(b"/a")), None));
        for cut in 0..written.len() {
            let split = ArgumentTexts::split(&written[..cut]);
            assert!(split.raw.len() + split.iter().count() <= cut);
        }
    }
}
