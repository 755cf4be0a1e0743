//! One conversion of a `printf`: `%-5d`, `%lx`, `%.8s`.

use crate::expr::{ExprType, Naming};

/// Most characters that a number or text is padded to.
const MAX_WIDTH: usize = 64;
const KNOWN: &str = "d i u x X o c s p, with a width and l or h, as in %5d or %-16s";

/// What stands between the `%` and the end of its letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyConversion {
    left: bool,
    zeros: bool,
    plus: bool,
    blank: bool,
    prefix: bool,
    width: usize,
    precision: Option<usize>,
    size: PrintedSize,
    pub letter: u8,
}

/// How many bits of a number are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PrintedSize {
    Char,
    Short,
    /// 32 bits, where the number fits in them.
    #[default]
    Int,
    Long,
}

impl KeyConversion {
    /// Parses the start of `text`, a `%` and what follows. Returns the number of bytes, too.
    pub fn parse(text: &[u8]) -> Result<(KeyConversion, usize), String> {
        let mut conversion = KeyConversion::default();
        let mut at = 1;
        loop {
            match text.get(at) {
                Some(b'-') => conversion.left = true,
                Some(b'0') => conversion.zeros = true,
                Some(b'+') => conversion.plus = true,
                Some(b' ') => conversion.blank = true,
                Some(b'#') => conversion.prefix = true,
                _ => break,
            }
            at += 1;
        }
        conversion.width = number(text, &mut at)?.unwrap_or(0);
        if text.get(at) == Some(&b'.') {
            at += 1;
            conversion.precision = Some(number(text, &mut at)?.unwrap_or(0));
        }
        let sizes: [(&[u8], PrintedSize); 6] = [
            (b"hh", PrintedSize::Char),
            (b"h", PrintedSize::Short),
            (b"ll", PrintedSize::Long),
            (b"l", PrintedSize::Long),
            (b"z", PrintedSize::Long),
            (b"j", PrintedSize::Long),
        ];
        let rest = text.get(at..).unwrap_or_default();
        if let Some((letters, size)) = sizes.iter().find(|(letters, _)| rest.starts_with(letters)) {
            conversion.size = *size;
            at += letters.len();
        }
        match text.get(at) {
            Some(letter) if b"diuxXocsp%".contains(letter) => conversion.letter = *letter,
            other => {
                let other =
                    other.filter(|byte| byte.is_ascii_graphic()).map_or(String::new(), |byte| char::from(*byte).into());
                return Err(format!("`%{other}` is none of {KNOWN}"));
            }
        }
        Ok((conversion, at + 1))
    }

    /// Why a value of this type cannot be shown so.
    pub fn refuses(&self, ty: ExprType) -> Option<&'static str> {
        match (ty, self.letter) {
            (ExprType::Named(Naming::Kernel), _) => {
                Some("only what stands alone is named so: printkey=ksymbol(key), without printf")
            }
            (ExprType::Signed | ExprType::Unsigned, b's') => Some("this is a number, and %s takes text"),
            (ExprType::Text | ExprType::Named(_), letter) if letter != b's' => Some("this is text, which %s takes"),
            _ => None,
        }
    }

    pub fn number(&self, bits: u64, out: &mut Vec<u8>) {
        let (signed, bits) = self.cut(bits);
        let sign = match () {
            () if !matches!(self.letter, b'd' | b'i') => "",
            () if signed < 0 => "-",
            () if self.plus => "+",
            () if self.blank => " ",
            () => "",
        };
        let (prefix, digits) = match self.letter {
            b'd' | b'i' => ("", signed.unsigned_abs().to_string()),
            b'x' if self.prefix && bits != 0 => ("0x", format!("{bits:x}")),
            b'x' => ("", format!("{bits:x}")),
            b'X' if self.prefix && bits != 0 => ("0X", format!("{bits:X}")),
            b'X' => ("", format!("{bits:X}")),
            b'o' if self.prefix && bits != 0 => ("0", format!("{bits:o}")),
            b'o' => ("", format!("{bits:o}")),
            b'p' => ("0x", format!("{bits:x}")),
            b'c' => return self.padded(&[bits as u8], out),
            _ => ("", bits.to_string()),
        };
        let digits = if self.precision == Some(0) && bits == 0 { String::new() } else { digits };
        let len = sign.len() + prefix.len() + digits.len();
        let zeros = match self.precision {
            Some(precision) => precision.saturating_sub(digits.len()),
            None if self.zeros && !self.left => self.width.saturating_sub(len),
            None => 0,
        };
        self.padded(format!("{sign}{prefix}{}{digits}", "0".repeat(zeros)).as_bytes(), out);
    }

    pub fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        self.padded(text.get(..self.precision.unwrap_or(text.len())).unwrap_or(text), out);
    }

    /// The number as meant, with and without a sign.
    fn cut(&self, bits: u64) -> (i64, u64) {
        match self.size {
            PrintedSize::Char => (i64::from(bits as i8), u64::from(bits as u8)),
            PrintedSize::Short => (i64::from(bits as i16), u64::from(bits as u16)),
            // `%p` is of a pointer, whatever its size.
            PrintedSize::Int if self.letter != b'p' && i32::try_from(bits as i64).is_ok() => {
                (bits as i64, u64::from(bits as u32))
            }
            PrintedSize::Int | PrintedSize::Long => (bits as i64, bits),
        }
    }

    fn padded(&self, text: &[u8], out: &mut Vec<u8>) {
        let padding = self.width.saturating_sub(text.len());
        let blanks = |out: &mut Vec<u8>| out.resize(out.len() + padding, b' ');
        if !self.left {
            blanks(out);
        }
        out.extend_from_slice(text);
        if self.left {
            blanks(out);
        }
    }
}

/// A number of characters.
fn number(text: &[u8], at: &mut usize) -> Result<Option<usize>, String> {
    let mut value: Option<usize> = None;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        let next = value.unwrap_or(0) * 10 + usize::from(digit - b'0');
        if next > MAX_WIDTH {
            return Err(format!("at most {MAX_WIDTH} characters"));
        }
        value = Some(next);
        *at += 1;
    }
    Ok(value)
}
