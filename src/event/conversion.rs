//! One conversion of a `printf`: `%-5d`, `%lx`, `%.8s`.

use crate::expr::{ExprType, Naming};
use crate::tep::print_fmt::{ConversionFlags, ConversionLayout};

/// Most characters that a number or text is padded to.
const MAX_WIDTH: usize = 64;
const KNOWN: &str = "d i u x X o c s p, with a width and l or h, as in %5d or %-16s";

/// A conversion: the flags, width, precision, size and letter behind the `%`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyConversion {
    layout: ConversionLayout,
    size: PrintedSize,
    pub letter: u8,
}

/// How many bits of a number a conversion prints.
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
        let mut flagged = text.get(1..).unwrap_or_default();
        conversion.layout.flags = ConversionFlags::parse(&mut flagged);
        let mut offset = text.len() - flagged.len();
        conversion.layout.width = number(text, &mut offset)?;
        if text.get(offset) == Some(&b'.') {
            offset += 1;
            conversion.layout.precision = Some(number(text, &mut offset)?.unwrap_or(0));
        }
        let sizes: [(&[u8], PrintedSize); 6] = [
            (b"hh", PrintedSize::Char),
            (b"h", PrintedSize::Short),
            (b"ll", PrintedSize::Long),
            (b"l", PrintedSize::Long),
            (b"z", PrintedSize::Long),
            (b"j", PrintedSize::Long),
        ];
        let rest = text.get(offset..).unwrap_or_default();
        if let Some((letters, size)) = sizes.iter().find(|(letters, _)| rest.starts_with(letters)) {
            conversion.size = *size;
            offset += letters.len();
        }
        match text.get(offset) {
            Some(letter) if b"diuxXocsp%".contains(letter) => conversion.letter = *letter,
            other => {
                let other =
                    other.filter(|byte| byte.is_ascii_graphic()).map_or(String::new(), |byte| char::from(*byte).into());
                return Err(format!("`%{other}` is none of {KNOWN}"));
            }
        }
        Ok((conversion, offset + 1))
    }

    /// Why the conversion cannot print a value of this type.
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
        let ConversionLayout { flags, width, precision } = self.layout;
        let (signed, bits) = self.cut(bits);
        let uncut = ConversionLayout { precision: None, ..self.layout };
        let (value, radix, is_signed) = match self.letter {
            b'c' => return uncut.text(&[bits as u8], out),
            b'd' | b'i' => (signed as u64, 10, true),
            b'x' | b'X' | b'p' => (bits, 16, false),
            b'o' => (bits, 8, false),
            _ => (bits, 10, false),
        };
        // Unlike the kernel's printf, C's printf gives 0 no prefix, and no digit where the precision is 0; where there
        // is a precision, zeros fill no width.
        if precision == Some(0) && bits == 0 {
            let sign: &[u8] = match self.letter {
                b'p' => b"0x",
                b'd' | b'i' if flags.plus => b"+",
                b'd' | b'i' if flags.space => b" ",
                _ => b"",
            };
            return uncut.text(sign, out);
        }
        let alternate = self.letter == b'p' || flags.alternate && bits != 0;
        let flags = ConversionFlags { alternate, zero: flags.zero && precision.is_none(), ..flags };
        let layout = ConversionLayout { flags, width, precision };
        layout.integer(value, radix, is_signed, self.letter == b'X', out);
    }

    pub fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        self.layout.text(text, out);
    }

    /// The number cut to the size that the conversion prints, signed and unsigned.
    fn cut(&self, bits: u64) -> (i64, u64) {
        match self.size {
            PrintedSize::Char => (i64::from(bits as i8), u64::from(bits as u8)),
            PrintedSize::Short => (i64::from(bits as i16), u64::from(bits as u16)),
            // `%p` prints all 64 bits.
            PrintedSize::Int if self.letter != b'p' && i32::try_from(bits as i64).is_ok() => {
                (bits as i64, u64::from(bits as u32))
            }
            PrintedSize::Int | PrintedSize::Long => (bits as i64, bits),
        }
    }
}

/// A number of characters.
fn number(text: &[u8], offset: &mut usize) -> Result<Option<usize>, String> {
    let mut value: Option<usize> = None;
    while let Some(digit) = text.get(*offset).filter(|byte| byte.is_ascii_digit()) {
        let next = value.unwrap_or(0) * 10 + usize::from(digit - b'0');
        if next > MAX_WIDTH {
            return Err(format!("at most {MAX_WIDTH} characters"));
        }
        value = Some(next);
        *offset += 1;
    }
    Ok(value)
}
