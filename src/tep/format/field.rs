//! One field of a tracepoint: where it lies in the raw bytes, and the readers of the hot path.

use std::iter;

use crate::tep::types::{self, IntType};

/// A named byte range of a tracepoint's raw data.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// The C type without the name: `char[16]`, `__data_loc char[]`, `const void *`.
    pub declared: String,
    pub offset: usize,
    pub size: usize,
    /// Whether the integer, or each element of an array, is signed.
    pub signed: bool,
    pub kind: FieldKind,
    /// Length at which a text ends even without a NUL, as for a probe's `string[N]`.
    pub limit: Option<TextLimit>,
}

/// Length at which a text ends even without a NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLimit {
    Bytes(u16),
    /// The number of bytes is the integer at this place of the record.
    At {
        offset: u16,
        size: u8,
    },
}

impl TextLimit {
    /// `text` up to the limit. The kernel's `(fault)` in place of unreadable text is not cut.
    pub(in crate::tep) fn cut<'a>(self, text: &'a [u8], raw: &[u8]) -> &'a [u8] {
        const UNREAD: &[u8] = b"(fault)"; // FAULT_STRING, kernel/trace/trace_probe.h
        let most = match self {
            TextLimit::Bytes(bytes) => usize::from(bytes),
            TextLimit::At { offset, size } => {
                let len = int_at(raw, offset.into(), size.into()).unwrap_or(0);
                usize::try_from(len).unwrap_or(usize::MAX)
            }
        };
        if text == UNREAD && most > 0 { text } else { &text[..text.len().min(most)] }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    Int,
    Pointer,
    /// A fixed array of plain `char`, signed or not: text up to the first NUL, which may be missing.
    Text,
    /// A fixed array, or a struct or union (elements of 1 byte).
    Array {
        element: usize,
        count: usize,
    },
    /// A word that locates the data: the low 16 bits are the offset in the record, the high 16 bits the length.
    DataLoc {
        text: bool,
        element: usize,
    },
    /// As `DataLoc`, with the offset counted from the end of the word.
    RelLoc {
        text: bool,
        element: usize,
    },
}

/// Offset of a 4-byte integer in the record: all that hot paths need of a field.
#[derive(Clone, Copy, Debug)]
pub struct Int32 {
    offset: u16,
}

impl Int32 {
    /// Reads the field. The bits of an unsigned one are taken as signed.
    ///
    /// # Errors
    /// `raw` ends before the field does.
    #[inline(always)]
    pub fn read(self, raw: &[u8]) -> Result<i32, ReadError> {
        let at = usize::from(self.offset);
        let bytes = raw.get(at..at + 4).and_then(<[u8]>::first_chunk).ok_or(ReadError::Short)?;
        Ok(i32::from_ne_bytes(*bytes))
    }
}

/// Offset of an 8-byte integer or pointer in the record, as [`Int32`].
#[derive(Clone, Copy, Debug)]
pub struct Int64 {
    offset: u16,
}

impl Int64 {
    /// Reads the bits of the field, signed or not.
    ///
    /// # Errors
    /// `raw` ends before the field does.
    #[inline(always)]
    pub fn read(self, raw: &[u8]) -> Result<u64, ReadError> {
        let at = usize::from(self.offset);
        let bytes = raw.get(at..at + 8).and_then(<[u8]>::first_chunk).ok_or(ReadError::Short)?;
        Ok(u64::from_ne_bytes(*bytes))
    }
}

/// A text that the record itself locates, for the hot path: its locator is read there, the text rarely.
#[derive(Clone, Copy, Debug)]
pub struct LocatedText {
    offset: u16,
}

impl LocatedText {
    /// The offset of the text in the record, and its length in the upper half.
    #[inline(always)]
    pub fn word(self, raw: &[u8]) -> Option<u32> {
        let at = usize::from(self.offset);
        raw.get(at..at + 4).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// # Errors
    /// `raw` ends before the text does.
    pub fn text(self, raw: &[u8]) -> Result<&[u8], ReadError> {
        Ok(until_nul(located(raw, self.offset.into(), false)?))
    }
}

/// Why a field could not be read from a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the record ends before the field does")]
    Short,
    #[error("the field is not an integer")]
    NotInteger,
    #[error("the value does not fit")]
    TooLarge,
    #[error("the field does not have the size it has in all known kernels")]
    OtherSize,
    #[error("the field is not text")]
    NotText,
}

/// A field's value, by how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    Signed(i64),
    Unsigned(u64),
    /// An address: shown in hex.
    Pointer(u64),
    /// Bytes up to the first NUL, in no particular encoding.
    Text(&'a [u8]),
    Ints(IntArray<'a>),
    /// A struct, or an array whose elements are no integers.
    Bytes(&'a [u8]),
}

/// An array of integers inside a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntArray<'a> {
    bytes: &'a [u8],
    ty: IntType,
}

impl<'a> IntArray<'a> {
    /// `Signed` or `Unsigned`, in order. Bytes after the last whole element are left out.
    pub fn iter(&self) -> impl Iterator<Item = FieldValue<'a>> + use<'a> {
        let ty = self.ty;
        self.bytes.chunks_exact(ty.size).filter_map(move |bytes| {
            let bits = ty.convert(int_at(bytes, 0, ty.size).ok()?);
            Some(if ty.signed { FieldValue::Signed(bits as i64) } else { FieldValue::Unsigned(bits) })
        })
    }
}

/// The `N` bytes at `offset`.
#[inline]
pub(super) fn chunk_at<const N: usize>(raw: &[u8], offset: usize) -> Result<[u8; N], ReadError> {
    raw.get(offset..).and_then(<[u8]>::first_chunk).copied().ok_or(ReadError::Short)
}

/// The unsigned integer of `size` bytes at `offset`, zero-extended.
#[inline]
pub(in crate::tep) fn int_at(raw: &[u8], offset: usize, size: usize) -> Result<u64, ReadError> {
    let bytes = offset.checked_add(size).and_then(|end| raw.get(offset..end)).ok_or(ReadError::Short)?;
    match *bytes {
        [a] => Ok(u64::from(a)),
        [a, b] => Ok(u64::from(u16::from_ne_bytes([a, b]))),
        [a, b, c, d] => Ok(u64::from(u32::from_ne_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(ReadError::NotInteger),
    }
}

/// The bytes that the location word at offset `word` points to.
#[inline]
pub(in crate::tep) fn located(raw: &[u8], word: usize, relative: bool) -> Result<&[u8], ReadError> {
    let loc = u32::from_ne_bytes(chunk_at(raw, word)?) as usize;
    let base = if relative { word + 4 } else { 0 };
    let start = base + (loc & 0xffff);
    raw.get(start..start + (loc >> 16)).ok_or(ReadError::Short)
}

/// `bytes` up to the first NUL.
#[inline]
pub(in crate::tep) fn until_nul(bytes: &[u8]) -> &[u8] {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const ONE: u64 = HIGH >> 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of each zero byte; after the first zero byte it may be set for other bytes, too.
        let zeros = word.wrapping_sub(ONE) & !word & HIGH;
        if zeros != 0 {
            return bytes.get(..8 * at + zeros.trailing_zeros() as usize / 8).unwrap_or_default();
        }
    }
    let len = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    bytes.get(..8 * words.len() + len).unwrap_or_default()
}

impl Field {
    /// # Errors
    /// The field has another size, or is no integer.
    pub fn int32(&self) -> Result<Int32, ReadError> {
        let offset = u16::try_from(self.offset).map_err(|_| ReadError::Short)?; // no record is longer than a u16
        if self.kind == FieldKind::Int && self.size == 4 { Ok(Int32 { offset }) } else { Err(ReadError::OtherSize) }
    }

    /// # Errors
    /// The field has another size, or is no single number.
    pub fn int64(&self) -> Result<Int64, ReadError> {
        let offset = u16::try_from(self.offset).map_err(|_| ReadError::Short)?;
        let is_number = matches!(self.kind, FieldKind::Int | FieldKind::Pointer);
        if is_number && self.size == 8 { Ok(Int64 { offset }) } else { Err(ReadError::OtherSize) }
    }

    /// # Errors
    /// The field is no text whose place the record tells.
    pub fn located_text(&self) -> Result<LocatedText, ReadError> {
        let offset = u16::try_from(self.offset).map_err(|_| ReadError::Short)?;
        let is_located = matches!(self.kind, FieldKind::DataLoc { text: true, .. });
        if is_located && self.limit.is_none() { Ok(LocatedText { offset }) } else { Err(ReadError::NotText) }
    }

    pub fn is_common(&self) -> bool {
        self.name.starts_with("common_")
    }

    /// Reads the field as an unsigned integer, zero-extended, in the tracepoint's own unit.
    ///
    /// # Errors
    /// `raw` ends before the field does, or the field is not 1, 2, 4 or 8 bytes long.
    #[inline]
    pub fn read_u64(&self, raw: &[u8]) -> Result<u64, ReadError> {
        if self.size == 8 {
            return chunk_at(raw, self.offset).map(u64::from_ne_bytes);
        }
        int_at(raw, self.offset, self.size)
    }

    /// Reads the field, sign-extended when it is signed.
    ///
    /// # Errors
    /// As `read_u64`.
    #[inline]
    pub fn read_i64(&self, raw: &[u8]) -> Result<i64, ReadError> {
        let bits = self.read_u64(raw)?;
        Ok(if self.signed { IntType::signed(self.size).convert(bits) as i64 } else { bits as i64 })
    }

    /// Reads a field of up to 4 bytes, or a longer one whose value fits. An unsigned field of
    /// 4 bytes keeps its bits: `u32::MAX` reads as -1.
    ///
    /// # Errors
    /// As `read_u64`, or the value does not fit.
    #[inline]
    pub fn read_i32(&self, raw: &[u8]) -> Result<i32, ReadError> {
        if self.size == 4 {
            return chunk_at(raw, self.offset).map(i32::from_ne_bytes);
        }
        let value = self.read_i64(raw)?;
        if self.size <= 4 { Ok(value as i32) } else { i32::try_from(value).map_err(|_| ReadError::TooLarge) }
    }

    /// The bytes of the field, or of the data that it points to.
    ///
    /// # Errors
    /// `raw` ends before these bytes.
    #[inline]
    pub fn bytes<'a>(&self, raw: &'a [u8]) -> Result<&'a [u8], ReadError> {
        match self.kind {
            FieldKind::DataLoc { .. } => located(raw, self.offset, false),
            FieldKind::RelLoc { .. } => located(raw, self.offset, true),
            _ => {
                let end = self.offset.checked_add(self.size).ok_or(ReadError::Short)?;
                raw.get(self.offset..end).ok_or(ReadError::Short)
            }
        }
    }

    fn cut<'a>(&self, text: &'a [u8], raw: &[u8]) -> &'a [u8] {
        self.limit.map_or(text, |limit| limit.cut(text, raw))
    }

    /// The text of the field, without the NUL that ends it.
    ///
    /// # Errors
    /// `raw` ends before the text, or the field is a number or an array of larger elements.
    #[inline]
    pub fn text<'a>(&self, raw: &'a [u8]) -> Result<&'a [u8], ReadError> {
        match self.kind {
            FieldKind::Text
            | FieldKind::Array { element: 1, .. }
            | FieldKind::DataLoc { element: 1, .. }
            | FieldKind::RelLoc { element: 1, .. } => Ok(self.cut(until_nul(self.bytes(raw)?), raw)),
            _ => Err(ReadError::NotText),
        }
    }

    /// The value in the form it should be shown in.
    ///
    /// # Errors
    /// `raw` ends before the field or the data that it points to.
    pub fn value<'a>(&self, raw: &'a [u8]) -> Result<FieldValue<'a>, ReadError> {
        Ok(match self.kind {
            FieldKind::Int if self.is_address() => FieldValue::Pointer(self.read_u64(raw)?),
            FieldKind::Int if self.signed => FieldValue::Signed(self.read_i64(raw)?),
            FieldKind::Int => FieldValue::Unsigned(self.read_u64(raw)?),
            FieldKind::Pointer => FieldValue::Pointer(self.read_u64(raw)?),
            FieldKind::Text | FieldKind::DataLoc { text: true, .. } | FieldKind::RelLoc { text: true, .. } => {
                FieldValue::Text(self.cut(until_nul(self.bytes(raw)?), raw))
            }
            FieldKind::Array { element, .. }
            | FieldKind::DataLoc { element, .. }
            | FieldKind::RelLoc { element, .. } => {
                let bytes = self.bytes(raw)?;
                match element {
                    1 | 2 | 4 | 8 if self.declared.contains('[') => {
                        FieldValue::Ints(IntArray { bytes, ty: IntType { size: element, signed: self.signed } })
                    }
                    _ => FieldValue::Bytes(bytes),
                }
            }
        })
    }

    /// Addresses are often declared `unsigned long`.
    fn is_address(&self) -> bool {
        const NAMES: [&str; 8] =
            ["ip", "addr", "ptr", "call_site", "parent_ip", "__probe_ip", "__probe_func", "__probe_ret_ip"];
        self.size >= 4 && NAMES.contains(&self.name.as_str())
    }

    /// The type of the field, or of its elements when it is an array.
    pub(in crate::tep) fn int_type(&self) -> Option<IntType> {
        let size = match self.kind {
            FieldKind::Int | FieldKind::Pointer => self.size,
            FieldKind::Text => 1,
            FieldKind::Array { element, .. }
            | FieldKind::DataLoc { element, .. }
            | FieldKind::RelLoc { element, .. } => element,
        };
        matches!(size, 1 | 2 | 4 | 8).then_some(IntType { size, signed: self.signed })
    }

    /// Builds a field from its declaration, `DECL` of `field:DECL; offset:..`. None: the declaration has no name.
    pub(super) fn from_declaration(text: &str, offset: usize, size: usize, signed: Option<bool>) -> Option<Field> {
        let (name, declared) = split_declaration(text)?;
        let base = declared.split('[').next().unwrap_or_default();
        let words = || base.split_whitespace().filter(|word| !is_locator(word));
        let element_type = types::from_words(words(), 8);
        // Kernels before 2.6.35 had no `signed:`.
        let signed = signed.unwrap_or_else(|| element_type.is_some_and(|ty| ty.signed));
        let is_char = words().filter(|word| !types::is_qualifier(word)).eq(iter::once("char"));
        let kind = Self::kind(&declared, size, element_type, is_char);
        Some(Field { name: name.to_owned(), declared, offset, size, signed, kind, limit: None })
    }

    fn kind(declared: &str, size: usize, element_type: Option<IntType>, is_char: bool) -> FieldKind {
        let element = if declared.contains('*') { 8 } else { element_type.map_or(1, |ty| ty.size) };
        let locates = size.is_multiple_of(4) && size > 0;
        if declared.starts_with("__data_loc") && locates {
            FieldKind::DataLoc { text: is_char, element }
        } else if declared.starts_with("__rel_loc") && locates {
            FieldKind::RelLoc { text: is_char, element }
        } else if let Some(dimensions) = declared.find('[').and_then(|at| declared.get(at..)) {
            let count = element_count(dimensions).filter(|count| *count > 0 && size.is_multiple_of(*count));
            match count {
                Some(count) if is_char && count == size => FieldKind::Text,
                None if is_char => FieldKind::Text, // the size is a macro or a computation
                Some(count) => FieldKind::Array { element: (size / count).max(1), count },
                None if size.is_multiple_of(element) => FieldKind::Array { element, count: size / element },
                None => FieldKind::Array { element: 1, count: size },
            }
        } else if matches!(size, 4 | 8) && (declared.ends_with('*') || declared.contains("(*")) {
            FieldKind::Pointer
        } else if matches!(size, 1 | 2 | 4 | 8) {
            FieldKind::Int
        } else {
            FieldKind::Array { element: 1, count: size }
        }
    }
}

fn is_locator(word: &str) -> bool {
    matches!(word, "__data_loc" | "__rel_loc")
}

/// Takes the name out of a C declaration: `char comm[16]` is `comm` and `char[16]`.
fn split_declaration(text: &str) -> Option<(&str, String)> {
    let text = text.trim();
    // A function pointer, `void (*func)(int)`: the name is inside. Not so in `u8 x[(int)sizeof(a)]`.
    let pointer = text.find("(*").filter(|&at| !text.get(..at).is_some_and(|before| before.contains('[')));
    if let Some(at) = pointer {
        let (before, inner) = text.split_at_checked(at + 2)?;
        let (name, after) = inner.split_once(')')?;
        let name = name.trim();
        return (!name.is_empty()).then(|| (name, format!("{before}){after}")));
    }
    let mut head = text;
    while head.ends_with(']') {
        head = head.get(..opening_bracket(head)?)?.trim_end();
    }
    let dimensions = text.get(head.len()..)?.trim();
    let start = head.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let (ty, name) = head.split_at_checked(start)?;
    (!name.is_empty()).then(|| (name, format!("{}{dimensions}", ty.trim_end())))
}

/// The offset of the bracket that opens the one at the end of `text`.
fn opening_bracket(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' if depth == 1 => return Some(at),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The product of `[4][8]`; None when a dimension is not a plain number.
fn element_count(dimensions: &str) -> Option<usize> {
    let mut count = 1usize;
    for part in dimensions.split(']').filter(|part| !part.is_empty()) {
        count = count.checked_mul(part.trim().strip_prefix('[')?.trim().parse().ok()?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(declaration: &str, offset: usize, size: usize, signed: bool) -> Field {
        Field::from_declaration(declaration, offset, size, Some(signed)).unwrap()
    }

    #[test]
    fn text_ends_at_its_limit() {
        let raw = |text: &[u8], len: u64| {
            [&(12_u32 | (text.len() as u32) << 16).to_ne_bytes()[..], &len.to_ne_bytes(), text].concat()
        };
        let at = |size| Some(TextLimit::At { offset: 4, size });
        type Case<'a> = (&'a [u8], u64, Option<TextLimit>, &'a [u8]);
        let cases: [Case<'_>; 12] = [
            (b"word-1/\0", 6, None, b"word-1/"),
            (b"word-1/\0", 6, at(8), b"word-1"),
            (b"word-1/\0", 6, at(4), b"word-1"),
            (b"word\0", 6, at(8), b"word"),
            (b"word\0", u64::MAX, at(8), b"word"),
            (b"word\0", 0, at(8), b""),
            (b"word\0", 3, at(3), b""),
            (b"(fault)\0", 3, at(8), b"(fault)"),
            (b"(fault)\0", 0, at(8), b""),
            (b"word\0", 0, Some(TextLimit::Bytes(3)), b"wor"),
            (b"word\0", 0, Some(TextLimit::Bytes(4096)), b"word"),
            (b"", 9, at(8), b""),
        ];
        for (text, len, limit, want) in cases {
            let mut field = Field::from_declaration("__data_loc char[] text", 0, 4, None).unwrap();
            field.limit = limit;
            let raw = raw(text, len);
            assert_eq!(field.text(&raw).unwrap(), want, "{text:?} {limit:?}");
            assert_eq!(field.value(&raw).unwrap(), FieldValue::Text(want));
            for end in 0..raw.len() {
                let _ = field.value(&raw[..end]); // does not panic
            }
        }
    }

    #[test]
    fn reads_declarations() {
        use FieldKind::{Array, DataLoc, Int, Pointer, RelLoc, Text};
        let cases: [(&str, usize, &str, &str, FieldKind); 17] = [
            ("int common_pid", 4, "common_pid", "int", Int),
            ("char comm[16]", 16, "comm", "char[16]", Text),
            ("char  comm [16]", 16, "comm", "char[16]", Text),
            ("unsigned char x[16]", 16, "x", "unsigned char[16]", Array { element: 1, count: 16 }),
            ("const char * s", 8, "s", "const char *", Pointer),
            ("void *p", 8, "p", "void *", Pointer),
            ("__data_loc char[] name", 4, "name", "__data_loc char[]", DataLoc { text: true, element: 1 }),
            ("__data_loc u64[] t", 4, "t", "__data_loc u64[]", DataLoc { text: false, element: 8 }),
            ("__rel_loc char[] name", 4, "name", "__rel_loc char[]", RelLoc { text: true, element: 1 }),
            ("__data_loc char[][2] s", 8, "s", "__data_loc char[][2]", DataLoc { text: true, element: 1 }),
            ("u32 m[2][3]", 24, "m", "u32[2][3]", Array { element: 4, count: 6 }),
            ("char name[TASK_COMM_LEN]", 16, "name", "char[TASK_COMM_LEN]", Text),
            ("u8 c[(int)sizeof(struct a)]", 26, "c", "u8[(int)sizeof(struct a)]", Array { element: 1, count: 26 }),
            ("void (*func)(int, void *)", 8, "func", "void (*)(int, void *)", Pointer),
            ("union { int a; long b; } u", 8, "u", "union { int a; long b; }", Int),
            ("struct fpu fpu", 40, "fpu", "struct fpu", Array { element: 1, count: 40 }),
            ("unsigned long args[6]", 48, "args", "unsigned long[6]", Array { element: 8, count: 6 }),
        ];
        for (text, size, name, declared, kind) in cases {
            let got = field(text, 0, size, false);
            assert_eq!((got.name.as_str(), got.declared.as_str(), got.kind), (name, declared, kind), "{text}");
        }
        for text in ["", "   ", "[4]", "int x]", "(*"] {
            assert!(Field::from_declaration(text, 0, 4, None).is_none(), "{text:?}");
        }
    }

    #[test]
    fn reads_integers() {
        let raw = [0xfe, 0xff, 0xff, 0xff, 1, 0, 0, 0x80];
        let at = |size, signed| field("int x", 0, size, signed);
        assert_eq!(at(4, true).read_i64(&raw), Ok(-2));
        assert_eq!(at(4, false).read_i64(&raw), Ok(0xffff_fffe));
        assert_eq!(at(4, true).read_u64(&raw), Ok(0xffff_fffe));
        assert_eq!(at(1, true).read_i32(&raw), Ok(-2));
        assert_eq!(at(2, true).read_u64(&raw), Ok(0xfffe));
        assert_eq!(at(4, false).read_i32(&raw), Ok(-2));
        assert_eq!(at(8, true).read_i32(&raw), Err(ReadError::TooLarge));
        assert_eq!(at(8, true).read_u64(&raw[..7]), Err(ReadError::Short));
        assert_eq!(at(3, true).read_u64(&raw), Err(ReadError::NotInteger));
        assert_eq!(field("int x", usize::MAX, 4, true).read_u64(&raw), Err(ReadError::Short));
    }

    #[test]
    fn reads_integers_of_32_bits() {
        let raw = [9, 0xfe, 0xff, 0xff, 0xff];
        let pid = field("pid_t pid", 1, 4, true).int32().unwrap();
        assert_eq!((pid.read(&raw), pid.read(&raw[..4])), (Ok(-2), Err(ReadError::Short)));
        assert_eq!(field("short x", 0, 2, true).int32().err(), Some(ReadError::OtherSize));
        assert_eq!(field("char x[4]", 0, 4, true).int32().err(), Some(ReadError::OtherSize));
        assert_eq!(field("int x", 1 << 16, 4, true).int32().err(), Some(ReadError::Short));
    }

    #[test]
    fn follows_locators_and_distrusts_them() {
        let word = |offset: u32, len: u32| (offset | len << 16).to_ne_bytes();
        let data = field("__data_loc char[] s", 4, 4, false);
        let rel = field("__rel_loc char[] s", 4, 4, false);
        type Case<'a> = (&'a Field, [u8; 4], Result<&'a [u8], ReadError>);
        let cases: [Case<'_>; 7] = [
            (&data, word(8, 4), Ok(b"abc")),
            (&data, word(9, 2), Ok(b"bc")),
            (&data, word(8, 0), Ok(b"")),
            (&data, word(8, 5), Err(ReadError::Short)),
            (&data, word(0xffff, 0xffff), Err(ReadError::Short)),
            (&rel, word(0, 4), Ok(b"abc")),
            (&rel, word(1, 4), Err(ReadError::Short)),
        ];
        for (field, word, want) in cases {
            let raw = [&[0; 4][..], &word, b"abc\0"].concat();
            assert_eq!(field.text(&raw), want, "{} {word:?}", field.declared);
        }
        assert_eq!(data.text(b"1234567"), Err(ReadError::Short));
        assert_eq!(field("int pid", 0, 4, true).text(b"abcd"), Err(ReadError::NotText));
    }

    #[test]
    fn gives_values_by_kind() {
        let raw: Vec<u8> = (1..=16).collect();
        assert_eq!(field("char x[4]", 0, 4, false).value(&raw), Ok(FieldValue::Text(&[1, 2, 3, 4])));
        assert_eq!(
            field("void * x", 0, 8, false).value(&raw),
            Ok(FieldValue::Pointer(u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8])))
        );
        assert_eq!(field("unsigned long ip", 0, 1, false).value(&raw), Ok(FieldValue::Unsigned(1)));
        assert_eq!(field("struct s x", 0, 3, false).value(&raw), Ok(FieldValue::Bytes(&[1, 2, 3])));
        let Ok(FieldValue::Ints(ints)) = field("u8 x[3]", 0, 3, false).value(&raw) else { panic!("not ints") };
        assert!(ints.iter().eq([1, 2, 3].map(FieldValue::Unsigned)));
    }
}
