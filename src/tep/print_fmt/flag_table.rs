//! The names a `print fmt` gives to a field's values: task states, flags, actions.

use super::calls;
use super::expr::{CExpr, COp, Call, NameTable};

/// A field of a record ends before this, as `Format::parse` checks.
const MAX_RECORD_BYTES: usize = 1 << 16;

/// The table of one `__print_flags` or `__print_symbolic`.
#[derive(Clone, Debug)]
pub struct FlagTable {
    /// Mask (flags) or value (symbolic), and its name, in the kernel's order.
    pub entries: Vec<(u64, String)>,
    /// True for `__print_flags`: the entries are bits that combine.
    pub flags: bool,
    value: CExpr,
    call: Call,
    offset: usize,
    size: usize,
}

impl FlagTable {
    /// The first table in `argument` whose value reads the field at `offset`.
    pub(super) fn find(argument: &CExpr, offset: usize) -> Option<FlagTable> {
        let mut found = None;
        argument.walk(&mut |expr| {
            if let COp::Call(call) = &expr.op
                && found.is_none()
            {
                found = FlagTable::of_call(call, offset);
            }
        });
        found
    }

    fn of_call(call: &Call, offset: usize) -> Option<FlagTable> {
        let (value, table, flags) = match call {
            Call::Flags { value, table, .. } => (value, table, true),
            Call::Symbolic { value, table } => (value, table, false),
            _ => return None,
        };
        let mut size = None;
        value.walk(&mut |expr| match expr.op {
            COp::Load { offset: at, size: bytes } if at == offset => size = Some(bytes),
            _ => {}
        });
        let size = size.filter(|_| offset <= MAX_RECORD_BYTES)?;
        Some(FlagTable { entries: entries(table), flags, value: value.clone(), call: call.clone(), offset, size })
    }

    /// The value that the kernel looks up in the table when the field holds `raw_value`: for `prev_state`, its bits
    /// that are states. Other fields count as 0.
    pub fn masked(&self, raw_value: u64) -> u64 {
        self.value.eval(&field_record(raw_value, self.offset, self.size)).and_then(|value| value.number()).unwrap_or(0)
    }

    /// Appends the text the kernel prints when the field holds `raw_value`.
    pub fn render(&self, raw_value: u64, out: &mut Vec<u8>) {
        let start = out.len();
        if self.call.render(&field_record(raw_value, self.offset, self.size), out).is_err() {
            out.truncate(start);
            calls::render_symbol(raw_value, &NameTable::new(), out);
        }
    }
}

/// A record that holds nothing but the field of `size` bytes at `offset`.
pub fn field_record(number: u64, offset: usize, size: usize) -> Vec<u8> {
    let mut record = vec![0; offset + size + 8]; // both are bounded
    let bytes = number.to_ne_bytes();
    let bytes = if cfg!(target_endian = "big") { bytes.get(8 - size.min(8)..) } else { bytes.get(..size.min(8)) };
    if let (Some(bytes), Some(place)) = (bytes, record.get_mut(offset..offset + size.min(8))) {
        place.copy_from_slice(bytes);
    }
    record
}

fn entries(table: &NameTable) -> Vec<(u64, String)> {
    table.iter().map(|(mask, name)| (*mask, String::from_utf8_lossy(name).into_owned())).collect()
}
