//! Numbers as text. Integers, which take most of the time of a line, are appended to a buffer several times faster than
//! by `core::fmt`. Lengths of time are formatted for people.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// The text of 0 to 99.
const PAIRS: [[u8; 2]; 100] = pairs(b"0123456789");
/// The text of 0 to 0xff in hex.
const HEX_PAIRS: [[u8; 2]; 256] = pairs(HEX);
const HEX: &[u8; 16] = b"0123456789abcdef";

const fn pairs<const RADIX: usize, const COUNT: usize>(digits: &[u8; RADIX]) -> [[u8; 2]; COUNT] {
    let mut pairs = [[0; 2]; COUNT];
    let mut value = 0;
    while value < COUNT {
        pairs[value] = [digits[value / RADIX], digits[value % RADIX]];
        value += 1;
    }
    pairs
}

/// The digits of one number.
#[derive(Clone, Copy, Debug)]
pub struct Digits {
    bytes: [u8; MAX_DIGITS],
    len: usize,
}

/// A u64 has up to 22 digits, in octal.
const MAX_DIGITS: usize = 24;

impl Digits {
    #[inline]
    pub fn decimal(mut value: u64) -> Digits {
        let mut bytes = [0; MAX_DIGITS];
        let len = decimal_len(value);
        let mut end = len;
        while end >= 2 {
            bytes[end - 2..end].copy_from_slice(&PAIRS[(value % 100) as usize]);
            value /= 100;
            end -= 2;
        }
        if end == 1 {
            bytes[0] = b'0' + (value % 10) as u8;
        }
        Digits { bytes, len }
    }

    #[inline]
    pub fn hex(mut value: u64) -> Digits {
        let mut bytes = [0; MAX_DIGITS];
        let len = (67 - (value | 1).leading_zeros() as usize) / 4;
        let mut end = len;
        while end >= 2 {
            bytes[end - 2..end].copy_from_slice(&HEX_PAIRS[(value & 0xff) as usize]);
            value >>= 8;
            end -= 2;
        }
        if end == 1 {
            bytes[0] = HEX[(value & 15) as usize];
        }
        Digits { bytes, len }
    }

    pub fn octal(mut value: u64) -> Digits {
        let mut bytes = [0; MAX_DIGITS];
        let len = (66 - (value | 1).leading_zeros() as usize) / 3;
        for digit in bytes[..len].iter_mut().rev() {
            *digit = b'0' + (value & 7) as u8;
            value >>= 3;
        }
        Digits { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn make_uppercase(&mut self) {
        self.bytes.make_ascii_uppercase();
    }

    /// Copies all bytes, then truncates: a few stores, where a copy of unknown length would be a call.
    #[inline]
    fn push(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

/// Number of decimal digits.
#[inline]
fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Appends `value` as `{value}` does.
#[inline]
pub fn push_unsigned(value: u64, out: &mut Vec<u8>) {
    if value < 10 {
        out.push(b'0' + value as u8);
    } else {
        Digits::decimal(value).push(out);
    }
}

/// Appends `value` as `{value}` does.
#[inline]
pub fn push_signed(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    push_unsigned(value.unsigned_abs(), out);
}

/// Appends `value` as `{value:x}` does.
#[inline]
pub fn push_hex(value: u64, out: &mut Vec<u8>) {
    if value < 16 {
        out.push(HEX[value as usize]);
    } else {
        Digits::hex(value).push(out);
    }
}

/// Appends `value` as `{value:016x}` does.
pub fn push_hex16(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 16];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(value.to_be_bytes()) {
        *pair = HEX_PAIRS[usize::from(byte)];
    }
    out.extend_from_slice(&digits);
}

/// Appends `value` as `{value:7}` does.
pub fn push_blank_padded<const WIDTH: usize>(value: u64, out: &mut Vec<u8>) {
    push_padded::<WIDTH>(value, b' ', out);
}

/// Appends `value` as `{value:03}` does.
pub fn push_zero_padded<const WIDTH: usize>(value: u64, out: &mut Vec<u8>) {
    push_padded::<WIDTH>(value, b'0', out);
}

#[inline]
fn push_padded<const WIDTH: usize>(value: u64, fill: u8, out: &mut Vec<u8>) {
    let digits = Digits::decimal(value);
    let end = out.len() + WIDTH.max(digits.len);
    out.extend_from_slice(&[fill; WIDTH]);
    out.truncate(end - digits.len);
    digits.push(out);
}

/// The last six digits of `value`, zeros in front.
pub fn six_digits(value: u32) -> [u8; 6] {
    let [a, b] = PAIRS[(value / 10_000 % 100) as usize];
    let [c, d] = PAIRS[(value / 100 % 100) as usize];
    let [e, f] = PAIRS[(value % 100) as usize];
    [a, b, c, d, e, f]
}

/// The last three digits of `value`, zeros in front.
pub fn three_digits(value: u32) -> [u8; 3] {
    let [a, b] = PAIRS[(value % 100) as usize];
    [b'0' + (value / 100 % 10) as u8, a, b]
}

/// A length of time for people: `812ns`, `1.5us`, `31.2ms`, `2.50s`, `3m12s`, `2h05m`, `5d03h`. At most 7 characters.
pub fn format_ns(ns: u64) -> String {
    let round = |unit_ns: u64| ns / unit_ns + u64::from(ns % unit_ns >= unit_ns.div_ceil(2));
    // Each unit is chosen by the rounded number, so that 999.96us is 1.0ms and not 1000.0us.
    let (us_tenths, ms_tenths, s_hundredths) = (round(US / 10), round(MS / 10), round(S / 100));
    let (s, minutes, hours) = (round(S), round(60 * S), round(3_600 * S));
    if ns < US {
        format!("{ns}ns")
    } else if us_tenths < 10_000 {
        format!("{}.{}us", us_tenths / 10, us_tenths % 10)
    } else if ms_tenths < 10_000 {
        format!("{}.{}ms", ms_tenths / 10, ms_tenths % 10)
    } else if s_hundredths < 6_000 {
        format!("{}.{:02}s", s_hundredths / 100, s_hundredths % 100)
    } else if s < 3_600 {
        format!("{}m{:02}s", s / 60, s % 60)
    } else if minutes < 24 * 60 {
        format!("{}h{:02}m", minutes / 60, minutes % 60)
    } else if hours < 1_000 * 24 {
        format!("{}d{:02}h", hours / 24, hours % 24)
    } else {
        format!("{}d", hours / 24)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prints_as_fmt_does() {
        let mut values = vec![0, u64::MAX, i64::MAX as u64, 1 << 63];
        values.extend((0..64).flat_map(|bit| [1 << bit, (1u64 << bit).wrapping_sub(1)]));
        values.extend((0..20).map(|power| 10u64.pow(power)).flat_map(|value| [value - 1, value, value + 1]));
        for value in values {
            assert_eq!(text(|out| push_unsigned(value, out)), value.to_string());
            assert_eq!(text(|out| push_signed(value as i64, out)), (value as i64).to_string());
            assert_eq!(text(|out| push_hex(value, out)), format!("{value:x}"));
            assert_eq!(text(|out| push_hex16(value, out)), format!("{value:016x}"));
            assert_eq!(text(|out| out.extend_from_slice(Digits::octal(value).as_bytes())), format!("{value:o}"));
            assert_eq!(text(|out| push_blank_padded::<7>(value, out)), format!("{value:>7}"));
            assert_eq!(text(|out| push_zero_padded::<3>(value, out)), format!("{value:03}"));
            let value = value as u32;
            assert_eq!(six_digits(value).as_slice(), format!("{:06}", value % 1_000_000).as_bytes());
            assert_eq!(three_digits(value).as_slice(), format!("{:03}", value % 1000).as_bytes());
        }
    }

    #[test]
    fn formats_times() {
        let cases = [
            (0, "0ns"),
            (812, "812ns"),
            (1_500, "1.5us"),
            (999_949, "999.9us"),
            (999_950, "1.0ms"),
            (31_200_000, "31.2ms"),
            (999_950_000, "1.00s"),
            (2_500_000_000, "2.50s"),
            (59_994_999_999, "59.99s"),
            (59_995_000_000, "1m00s"),
            (192_000_000_000, "3m12s"),
            (3_599_500_000_000, "1h00m"),
            (7_500_000_000_000, "2h05m"),
            (86_399_000_000_000, "1d00h"),
            (442_800_000_000_000, "5d03h"),
            (u64::MAX, "213504d"),
        ];
        for (ns, want) in cases {
            assert_eq!(format_ns(ns), want, "{ns}");
        }
    }

    proptest! {
        #[test]
        fn short_times(ns: u64) {
            prop_assert!(format_ns(ns).len() <= 7);
        }
    }
}
