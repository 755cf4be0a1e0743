//! Bit masks as the kernel prints them: `%*pb` (hex words) and `%*pbl` (ranges).

use std::io::Write;

/// Bit `at` of a mask stored as native `unsigned long` words.
fn bit(bytes: &[u8], index: usize) -> bool {
    let byte = index / 8;
    let byte = if cfg!(target_endian = "big") { byte ^ 7 } else { byte };
    bytes.get(byte).is_some_and(|bits| bits & (1 << (index % 8)) != 0)
}

/// 32 bits at a time, the highest first, separated by commas: `00000001,0000000f`.
pub fn render_hex(bytes: &[u8], bits: usize, out: &mut Vec<u8>) {
    let bits = bits.min(bytes.len() * 8);
    for chunk in (0..bits.div_ceil(32)).rev() {
        let width = (bits - chunk * 32).min(32);
        let value =
            (0..width).filter(|index| bit(bytes, chunk * 32 + index)).fold(0u32, |value, index| value | 1 << index);
        let digits = width.div_ceil(4);
        let separator = if chunk == 0 { "" } else { "," };
        let _ = write!(out, "{value:0digits$x}{separator}"); // writing to a Vec cannot fail
    }
}

/// `0-3,7`
pub fn render_list(bytes: &[u8], bits: usize, out: &mut Vec<u8>) {
    let bits = bits.min(bytes.len() * 8);
    let start = out.len();
    let mut index = 0;
    while index < bits {
        if !bit(bytes, index) {
            index += 1;
            continue;
        }
        let end = (index..bits).find(|&next| !bit(bytes, next)).unwrap_or(bits);
        if out.len() > start {
            out.push(b',');
        }
        let _ = if end - index == 1 { write!(out, "{index}") } else { write!(out, "{index}-{}", end - 1) };
        index = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_masks() {
        let cases: [(u64, usize, &str, &str); 6] = [
            (0xf, 64, "00000000,0000000f", "0-3"),
            (0x1_0000_0089, 64, "00000001,00000089", "0,3,7,32"),
            (0x3, 2, "3", "0-1"),
            (0x1ff, 9, "1ff", "0-8"),
            (0, 8, "00", ""),
            (u64::MAX, 999, "ffffffff,ffffffff", "0-63"),
        ];
        for (mask, bits, hex, list) in cases {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            render_hex(&mask.to_ne_bytes(), bits, &mut a);
            render_list(&mask.to_ne_bytes(), bits, &mut b);
            assert_eq!((a.as_slice(), b.as_slice()), (hex.as_bytes(), list.as_bytes()), "{mask:x}");
        }
    }
}
