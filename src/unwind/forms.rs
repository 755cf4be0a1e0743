//! The DWARF expressions that occur in unwind tables, each recognised by its bytes.

use gimli::{
    DW_OP_and, DW_OP_breg0, DW_OP_breg31, DW_OP_bregx, DW_OP_deref, DW_OP_ge, DW_OP_lit0, DW_OP_lit3, DW_OP_lit15,
    DW_OP_lit31, DW_OP_plus, DW_OP_plus_uconst, DW_OP_shl, EndianSlice, LittleEndian, Reader,
};

/// The meaning of an expression. Registers have their DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `register + offset`
    Register(u16, i64),
    /// `*(register + offset) + addend`
    Behind(u16, i64, u64),
    /// In a procedure linkage table: `register + offset`, and one word more once `pc` has reached the byte `pushed` of
    /// its entry: `register + offset + ((pc & 15) >= pushed) * 8`.
    Plt { register: u16, offset: i64, pc: u16, pushed: u64 },
}

/// The form of an expression. None: any other expression.
pub(super) fn form(expression: &[u8]) -> Option<Form> {
    let mut rest = EndianSlice::new(expression, LittleEndian);
    let (register, offset) = register(&mut rest)?;
    if rest.is_empty() {
        return Some(Form::Register(register, offset));
    }
    if let Some(form) = plt(rest, register, offset) {
        return Some(form);
    }
    let mut is_behind = false;
    let mut plus = 0;
    match rest.read_u8().ok()? {
        op if op == DW_OP_deref.0 => is_behind = true,
        op if op == DW_OP_plus_uconst.0 => plus = rest.read_uleb128().ok()?,
        _ => return None,
    }
    if is_behind && !rest.is_empty() {
        (rest.read_u8().ok()? == DW_OP_plus_uconst.0).then_some(())?;
        plus = rest.read_uleb128().ok()?;
    }
    match (rest.is_empty(), is_behind) {
        (true, true) => Some(Form::Behind(register, offset, plus)),
        (true, false) => Some(Form::Register(register, offset.checked_add_unsigned(plus)?)),
        (false, _) => None,
    }
}

fn plt(mut rest: EndianSlice<'_, LittleEndian>, register_: u16, offset: i64) -> Option<Form> {
    let (pc, 0) = register(&mut rest)? else { return None };
    let [fifteen, and, pushed, ge, three, shl, plus] = *rest.slice() else { return None };
    let ops = [fifteen, and, ge, three, shl, plus];
    let wanted = [DW_OP_lit15, DW_OP_and, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus].map(|op| op.0);
    let is_literal = (DW_OP_lit0.0..=DW_OP_lit31.0).contains(&pushed);
    let form = || Form::Plt { register: register_, offset, pc, pushed: u64::from(pushed - DW_OP_lit0.0) };
    (ops == wanted && is_literal).then(form)
}

/// A register, and the offset that is added to it.
fn register(rest: &mut EndianSlice<'_, LittleEndian>) -> Option<(u16, i64)> {
    let number = match rest.read_u8().ok()? {
        op if (DW_OP_breg0.0..=DW_OP_breg31.0).contains(&op) => u16::from(op - DW_OP_breg0.0),
        op if op == DW_OP_bregx.0 => u16::try_from(rest.read_uleb128().ok()?).ok()?,
        _ => return None,
    };
    Some((number, rest.read_sleb128().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_known_by_their_bytes() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        let cases: [(&[u8], Option<Form>); 14] = [
            (&[0x77, 8], Some(Form::Register(7, 8))),
            (&[0x76, 0x78], Some(Form::Register(6, -8))),
            (&[0x92, 31, 0x10], Some(Form::Register(31, 16))),
            (&[0x77, 8, 0x23, 8], Some(Form::Register(7, 16))),
            (&[0x76, 0x78, 0x06], Some(Form::Behind(6, -8, 0))),
            (&[0x77, 0xc8, 0x01, 0x06, 0x23, 8], Some(Form::Behind(7, 200, 8))),
            (&plt, Some(Form::Plt { register: 7, offset: 8, pc: 16, pushed: 11 })),
            (&[], None),
            (&[0x77], None),
            (&[0x77, 8, 0x06, 0x06], None),
            (&[0x77, 8, 0x06, 0x23, 8, 0x96], None),
            (&[0x2f, 0xfd, 0xff], None), // DW_OP_skip -3
            (&[0x92, 0xff, 0xff, 0xff, 0x7f, 0], None),
            (&[0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8], None),
        ];
        for (bytes, want) in cases {
            assert_eq!(form(bytes), want, "{bytes:x?}");
        }
        for cut in 3..plt.len() {
            assert_eq!(form(&plt[..cut]), None, "{cut}");
        }
    }
}
