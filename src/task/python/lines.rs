//! Line numbers of instructions, from the table in a code object. Each entry covers some instructions, begins with a
//! byte of at least 128, and has the change of the line number (Objects/locations.md of CPython).

/// The line of the instruction at `offset` (bytes) in a function whose first line is `first`.
pub fn line_at(table: &[u8], first: u32, offset: u64) -> Option<u32> {
    const INSTRUCTION_BYTES: u64 = 2;
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (i64::from(first), 0);
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        end += (u64::from(head & 7) + 1) * INSTRUCTION_BYTES;
        let kind = head >> 3 & 0xf;
        match kind {
            0..10 => drop(bytes.next()?), // columns
            10..13 => {
                line += i64::from(kind - 10);
                let _columns = (bytes.next()?, bytes.next()?);
            }
            13 => line += signed(&mut bytes)?,
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    number(&mut bytes)?; // number of lines, and columns
                }
            }
            _ => {}
        }
        if offset < end {
            const NONE: u8 = 15;
            return u32::try_from(line).ok().filter(|&line| kind != NONE && line > 0);
        }
    }
    None
}

/// Reads a number: six bits per byte, the lowest first; bit 6 is set if more bytes follow.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(6) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 0x3f).wrapping_shl(shift);
        if byte & 0x40 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a signed number, whose lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    let size = i64::from(value >> 1);
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_table() {
        // One instruction without columns, two in the next line, one far ahead, one further back, one without a line,
        // one in the same line.
        let table = [
            0x80 | 13 << 3,
            0, //
            0x80 | 11 << 3 | 1,
            4,
            9, //
            0x80 | 14 << 3,
            0x40 | 0x28,
            1,
            0,
            1,
            2, // + 52
            0x80 | 13 << 3,
            1 | 3 << 1,     // - 3
            0x80 | 15 << 3, //
            0x80,
            0x55,
        ];
        let cases =
            [(0, Some(10)), (2, Some(11)), (5, Some(11)), (6, Some(63)), (8, Some(60)), (10, None), (12, Some(60))];
        for (offset, want) in cases {
            assert_eq!(line_at(&table, 10, offset), want, "{offset}");
        }
        assert_eq!(line_at(&table, 10, 14), None, "behind the end");
        for cut in 0..table.len() {
            let _ = line_at(&table[..cut], 10, 12);
        }
        assert_eq!(line_at(&[0x7f; 20], 10, 0), None);
        assert_eq!(line_at(&[0x80 | 14 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f], 10, 0), None);
        assert_eq!(line_at(&[0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f], 1, 0), None, "before the first line");
        assert_eq!(line_at(&[], 10, u64::MAX), None);
    }
}
