//! The text of calls in a `print fmt`.
//!
//! Source: include/trace/stages/stage3_trace_output.h and kernel/trace/trace_output.c.

use std::io::Write;

use super::bitmap;
use super::expr::{Call, HexDump, NameTable, NoValue};
use crate::digits::push_hex;
use crate::tep::format::field::{int_at, until_nul};

impl Call {
    /// Appends the text.
    pub fn render(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
        match self {
            Call::Flags { value, delimiter, table } => render_flags(value.eval(raw)?.number()?, delimiter, table, out),
            Call::Symbolic { value, table } => render_symbol(value.eval(raw)?.number()?, table, out),
            Call::Hex { bytes, len, spaced } => {
                let bytes = first(bytes.eval(raw)?.bytes()?, len.eval(raw)?.number()?)?;
                let separator: &[u8] = if *spaced { b" " } else { b"" };
                render_hex(bytes, separator, out);
            }
            Call::HexDump(dump) => {
                let bytes = first(dump.bytes.eval(raw)?.bytes()?, dump.len.eval(raw)?.number()?)?;
                render_hex_dump(dump, bytes, out);
            }
            Call::Array { bytes, count, size } => {
                let size = size.eval(raw)?.number()?;
                let len = count.eval(raw)?.number()?.checked_mul(size).ok_or(NoValue)?;
                render_array(first(bytes.eval(raw)?.bytes()?, len)?, size, out)?;
            }
            Call::DiskName { name } => {
                let name = until_nul(name.eval(raw)?.bytes()?);
                if !name.is_empty() {
                    out.extend_from_slice(b"disk=");
                    out.extend_from_slice(name);
                    out.extend_from_slice(b", ");
                }
            }
            Call::Named { value, names, other } => {
                let value = usize::try_from(value.eval(raw)?.number()?).ok();
                let name = value.and_then(|value| names.get(value)).unwrap_or(other);
                out.extend_from_slice(name.as_bytes());
            }
            Call::Bitmask { bytes } => {
                let bytes = bytes.eval(raw)?.bytes()?;
                bitmap::render_hex(bytes, bytes.len() * 8, out);
            }
        }
        Ok(())
    }
}

fn first(bytes: &[u8], len: u64) -> Result<&[u8], NoValue> {
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).ok_or(NoValue)
}

/// The names of the bits set, then what is left of them in hex. As in the kernel, an entry with
/// mask 0 is named whenever bits are left.
pub fn render_flags(value: u64, delimiter: &[u8], table: &NameTable, out: &mut Vec<u8>) {
    let start = out.len();
    let mut left = value;
    for (mask, name) in table {
        if left == 0 {
            break;
        }
        if left & mask == *mask {
            left &= !mask;
            if out.len() > start {
                out.extend_from_slice(delimiter);
            }
            out.extend_from_slice(name);
        }
    }
    if left != 0 {
        if out.len() > start {
            out.extend_from_slice(delimiter);
        }
        out.extend_from_slice(b"0x");
        push_hex(left, out);
    }
}

/// The name of the value, else the value in hex. An empty name does not count as one.
pub fn render_symbol(value: u64, table: &NameTable, out: &mut Vec<u8>) {
    match table.iter().find(|(mask, _)| *mask == value) {
        Some((_, name)) if !name.is_empty() => out.extend_from_slice(name),
        _ => {
            out.extend_from_slice(b"0x");
            push_hex(value, out);
        }
    }
}

pub fn render_hex(bytes: &[u8], separator: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        let _ = write!(out, "{byte:02x}"); // writing to a Vec cannot fail
    }
}

/// A line break, then lines with a line break each. Source: seq_buf_hex_dump and hex_dump_to_buffer, lib/.
fn render_hex_dump(dump: &HexDump, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'\n');
    for (line, row) in bytes.chunks(dump.row).enumerate() {
        out.extend_from_slice(&dump.prefix);
        if dump.offsets {
            let _ = write!(out, "{:08x}: ", line * dump.row); // writing to a Vec cannot fail
        }
        let start = out.len();
        let group = if row.len().is_multiple_of(dump.group) { dump.group } else { 1 };
        for (at, number) in row.chunks(group).enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            let bits = int_at(number, 0, group).unwrap_or_default(); // as long as `group`: 1, 2, 4 or 8
            let _ = write!(out, "{bits:0width$x}", width = 2 * group);
        }
        if dump.ascii {
            let column = dump.row * 2 + dump.row / group + 1;
            out.resize(out.len().max(start + column), b' ');
            out.extend(row.iter().map(|&byte| if matches!(byte, b' '..=b'~') { byte } else { b'.' }));
        }
        out.push(b'\n');
    }
}

fn render_array(bytes: &[u8], size: u64, out: &mut Vec<u8>) -> Result<(), NoValue> {
    let size = usize::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8)).ok_or(NoValue)?;
    out.push(b'{');
    for (at, element) in bytes.chunks_exact(size).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"0x");
        push_hex(int_at(element, 0, size)?, out);
    }
    out.push(b'}');
    Ok(())
}
