//! How an event shows one of its fields, for code that has only the number, such as a key of a table.

use super::expr::{CExpr, COp};
use super::field_conversion::{FieldConversion, NumberForm};
use super::pointer::PointerKind;
use super::printf::ConversionKind;
use super::{FormatPiece, NoNames, render_pieces};
use crate::tep::print_fmt::flag_table::field_record;

/// What a `print fmt` makes of one field. Fields that it shows as decimal numbers have none.
#[derive(Clone, Debug)]
pub struct FieldText {
    pub form: FieldForm,
    /// What shows the field, and reads nothing else.
    pieces: Vec<FormatPiece>,
    offset: usize,
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// By a name: `D`, `GFP_KERNEL|__GFP_ZERO`, `NET_RX`.
    Name,
    /// An address of the kernel, by its symbol.
    KernelAddress,
    /// Major and minor number: `254,0`.
    Device,
    /// A number in hex.
    Hex,
}

/// What one conversion makes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShownAs {
    Text,
    Symbol,
    Hex,
    Decimal,
}

impl FieldText {
    /// What `pieces` make of the field at `offset`.
    pub(super) fn find(pieces: &[FormatPiece], offset: usize) -> Option<FieldText> {
        let shown_as = |piece: &FormatPiece| shown_as(piece, offset).map(|(shown, _)| shown);
        let has = |run: &[FormatPiece], wanted| run.iter().any(|piece| shown_as(piece) == Some(wanted));
        let is_device = |window: &&[FormatPiece]| match window {
            [major, FormatPiece::Literal(_), minor] => [major, minor].map(shown_as) == [Some(ShownAs::Decimal); 2],
            _ => false,
        };
        // A name may have several parts: `%s%s` is a state and a `+`.
        let name = pieces.split(|piece| shown_as(piece).is_none()).find(|run| has(run, ShownAs::Text));
        let one = |wanted| pieces.chunks(1).find(|piece| has(piece, wanted));
        let (form, pieces) = name
            .map(|run| (FieldForm::Name, run))
            .or_else(|| Some((FieldForm::KernelAddress, one(ShownAs::Symbol)?)))
            .or_else(|| Some((FieldForm::Device, pieces.windows(3).find(is_device)?)))
            .or_else(|| Some((FieldForm::Hex, one(ShownAs::Hex)?)))?;
        let (_, size) = pieces.iter().find_map(|piece| self::shown_as(piece, offset))?;
        Some(FieldText { form, pieces: pieces.to_vec(), offset, size })
    }

    /// The text for a number. None: there is none for this one.
    pub fn text(&self, number: u64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        render_pieces(&self.pieces, &field_record(number, self.offset, self.size), &NoNames, &mut out);
        let text = out.trim_ascii();
        (!text.is_empty()).then(|| text.to_vec())
    }
}

/// How a conversion shows the field at `offset`, and the size of the field. None: it shows something else, too.
fn shown_as(piece: &FormatPiece, offset: usize) -> Option<(ShownAs, usize)> {
    match piece {
        FormatPiece::FieldConversion(FieldConversion::Integer(load, form)) => {
            let shown = match form {
                NumberForm::Signed | NumberForm::Unsigned => ShownAs::Decimal,
                NumberForm::Hex | NumberForm::Address => ShownAs::Hex,
            };
            load.size_at(offset).map(|size| (shown, size))
        }
        FormatPiece::Conversion(conversion, argument) => {
            let shown = match conversion.kind {
                ConversionKind::Text => ShownAs::Text,
                ConversionKind::Pointer(PointerKind::Symbol { .. }) => ShownAs::Symbol,
                ConversionKind::Pointer(PointerKind::Address) => ShownAs::Hex,
                ConversionKind::Integer { radix: 16, .. } => ShownAs::Hex,
                ConversionKind::Integer { .. } => ShownAs::Decimal,
                ConversionKind::Char | ConversionKind::Pointer(_) => return None,
            };
            size_read(argument, offset).map(|size| (shown, size))
        }
        FormatPiece::Literal(_) | FormatPiece::Gap(_) | FormatPiece::FieldConversion(_) => None,
    }
}

/// The size of the field at `offset`, if the expression reads it and nothing else.
fn size_read(expr: &CExpr, offset: usize) -> Option<usize> {
    let (mut size, mut reads_others) = (None, false);
    expr.walk(&mut |expr| match expr.op {
        COp::Load { offset: other, size: bytes } if other == offset => size = Some(bytes),
        COp::Load { .. } | COp::Place { .. } | COp::Located { .. } | COp::LocatedLen { .. } | COp::Bad(_) => {
            reads_others = true;
        }
        _ => {}
    });
    size.filter(|_| !reads_others)
}
