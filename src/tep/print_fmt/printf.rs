//! The conversions of the kernel's printf: `%-10s`, `%#08lx`, `%*pbl`. They differ from C's in small
//! ways; the source is lib/vsprintf.c.

use super::Unsupported;
use super::expr::CExpr;
use super::pointer::PointerKind;
use crate::digits::Digits;

/// Wider output is cut: no kernel buffer for a line is larger than 8 KiB.
const MAX_WIDTH: u64 = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversionFlags {
    pub left: bool,
    pub plus: bool,
    pub space: bool,
    pub alternate: bool,
    pub zero: bool,
}

impl ConversionFlags {
    /// The flags at the start of `rest`, which begins behind them afterwards.
    pub fn parse(rest: &mut &[u8]) -> ConversionFlags {
        let mut flags = ConversionFlags::default();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b'-' => flags.left = true,
                b'+' => flags.plus = true,
                b' ' => flags.space = true,
                b'#' => flags.alternate = true,
                b'0' => flags.zero = true,
                _ => break,
            }
            *rest = after;
        }
        flags
    }
}

/// A width or precision: a number, or the value of an argument.
#[derive(Clone, Debug, Default)]
pub enum ConversionSize {
    #[default]
    None,
    Fixed(u64),
    /// `*`, before it gets its argument.
    Star,
    Argument(Box<CExpr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionKind {
    Integer { radix: u32, signed: bool, upper: bool, bytes: usize },
    Char,
    Text,
    Pointer(PointerKind),
}

/// One `%...`, without its argument.
#[derive(Clone, Debug)]
pub struct Conversion {
    pub flags: ConversionFlags,
    pub width: ConversionSize,
    pub precision: ConversionSize,
    pub kind: ConversionKind,
}

pub enum PrintfPart {
    Literal(Vec<u8>),
    Conversion(Conversion),
}

/// Splits the text of a `print fmt` into literal text and conversions. `long` is the size of a C `long`.
pub fn parse(text: &[u8], long: usize) -> Result<Vec<PrintfPart>, Unsupported> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            literal.push(byte);
        } else if let Some(after) = rest.strip_prefix(b"%") {
            literal.push(b'%');
            rest = after;
        } else {
            if !literal.is_empty() {
                parts.push(PrintfPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(PrintfPart::Conversion(conversion(&mut rest, long)?));
        }
    }
    if !literal.is_empty() {
        parts.push(PrintfPart::Literal(literal));
    }
    Ok(parts)
}

fn conversion(rest: &mut &[u8], long: usize) -> Result<Conversion, Unsupported> {
    let flags = ConversionFlags::parse(rest);
    let width = size(rest);
    let precision = if eat(rest, b".") {
        match size(rest) {
            ConversionSize::None => ConversionSize::Fixed(0),
            size => size,
        }
    } else {
        ConversionSize::None
    };
    let bytes = if eat(rest, b"hh") {
        1
    } else if eat(rest, b"h") {
        2
    } else if eat(rest, b"ll") || eat(rest, b"L") || eat(rest, b"q") {
        8
    } else if eat(rest, b"l") || eat(rest, b"z") || eat(rest, b"Z") || eat(rest, b"t") {
        long
    } else {
        4
    };
    let Some((&code, after)) = rest.split_first() else {
        return Err(Unsupported::new("conversion at the end of the text"));
    };
    *rest = after;
    let integer = |radix, signed, upper| ConversionKind::Integer { radix, signed, upper, bytes };
    let kind = match code {
        b'd' | b'i' => integer(10, true, false),
        b'u' => integer(10, false, false),
        b'x' => integer(16, false, false),
        b'X' => integer(16, false, true),
        b'o' => integer(8, false, false),
        b'c' => ConversionKind::Char,
        b's' => ConversionKind::Text,
        b'p' => {
            // The kernel takes all letters and digits that follow, known or not.
            let len = rest.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (code, after) = rest.split_at(len); // `len` is a position in it
            *rest = after;
            ConversionKind::Pointer(PointerKind::parse(code))
        }
        other => return Err(Unsupported::new(format!("conversion %{}", char::from(other).escape_default()))),
    };
    Ok(Conversion { flags, width, precision, kind })
}

fn eat(rest: &mut &[u8], prefix: &[u8]) -> bool {
    match rest.strip_prefix(prefix) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn size(rest: &mut &[u8]) -> ConversionSize {
    if eat(rest, b"*") {
        return ConversionSize::Star;
    }
    let mut value = None;
    while let Some((digit, after)) = rest.split_first().filter(|(byte, _)| byte.is_ascii_digit()) {
        value = Some((value.unwrap_or(0u64) * 10 + u64::from(digit - b'0')).min(MAX_WIDTH));
        *rest = after;
    }
    value.map_or(ConversionSize::None, ConversionSize::Fixed)
}

/// The layout of one conversion, with the values of its `*` arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversionLayout {
    pub flags: ConversionFlags,
    pub width: Option<usize>,
    pub precision: Option<usize>,
}

impl ConversionLayout {
    /// From `width` and `precision` as the arguments give them: a negative width means left-aligned.
    pub fn new(flags: ConversionFlags, width: Option<i64>, precision: Option<i64>) -> ConversionLayout {
        let cut = |value: u64| value.min(MAX_WIDTH) as usize;
        let left = flags.left || width.is_some_and(|width| width < 0);
        ConversionLayout {
            flags: ConversionFlags { left, ..flags },
            width: width.map(|width| cut(width.unsigned_abs())),
            precision: precision.map(|precision| cut(u64::try_from(precision).unwrap_or(0))),
        }
    }

    /// Pads what `out` holds from `start` on to the width.
    pub fn pad(&self, start: usize, out: &mut Vec<u8>) {
        let missing = self.width.unwrap_or(0).saturating_sub(out.len().saturating_sub(start));
        out.extend(std::iter::repeat_n(b' ', missing));
        if !self.flags.left
            && let Some(text) = out.get_mut(start..)
        {
            text.rotate_right(missing);
        }
    }

    /// Appends a text, cut to the precision and padded.
    pub fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(text);
        self.finish_text(start, out);
    }

    /// Cuts the text from `start` on to the precision, then pads it.
    pub fn finish_text(&self, start: usize, out: &mut Vec<u8>) {
        if let Some(precision) = self.precision {
            out.truncate(start.saturating_add(precision));
        }
        self.pad(start, out);
    }

    /// Appends an integer. `bits` is extended to 64 bits as its type says.
    pub fn integer(&self, bits: u64, radix: u32, signed: bool, upper: bool, out: &mut Vec<u8>) {
        let flags = self.flags;
        let negative = signed && (bits as i64) < 0;
        let magnitude = if negative { (bits as i64).unsigned_abs() } else { bits };
        let mut digits = match radix {
            16 => Digits::hex(magnitude),
            8 => Digits::octal(magnitude),
            _ => Digits::decimal(magnitude),
        };
        if upper {
            digits.make_uppercase();
        }
        let digits = digits.as_bytes();
        let sign: &[u8] = match (negative, signed) {
            (true, _) => b"-",
            (_, true) if flags.plus => b"+",
            (_, true) if flags.space => b" ",
            _ => b"",
        };
        // Unlike C: the prefix of 0 is `0x` too.
        let prefix: &[u8] = match (flags.alternate, radix) {
            (true, 16) if upper => b"0X",
            (true, 16) => b"0x",
            (true, 8) if magnitude != 0 => b"0",
            _ => b"",
        };
        let precision = self.precision.unwrap_or(0).max(digits.len());
        let padding = self.width.unwrap_or(0).saturating_sub(sign.len() + prefix.len() + precision);
        // Unlike C: zeros fill the width even when a precision is given.
        let (before, zeros, behind) = match (flags.left, flags.zero) {
            (true, _) => (0, 0, padding),
            (false, true) => (0, padding, 0),
            (false, false) => (padding, 0, 0),
        };
        out.extend(std::iter::repeat_n(b' ', before));
        out.extend_from_slice(sign);
        out.extend_from_slice(prefix);
        out.extend(std::iter::repeat_n(b'0', zeros + precision - digits.len()));
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b' ', behind));
    }
}
