//! Conversions of a bare field, `%d` of `REC->pid`: most of what a `print fmt` has. They become an offset and a way
//! to show what is there, with no expression to evaluate and no layout to compute.

use super::expr::{CExpr, COp, CType, NoValue};
use super::pointer::PointerKind;
use super::printf::{Conversion, ConversionFlags, ConversionKind, ConversionSize};
use crate::digits::{push_hex, push_hex16, push_signed, push_unsigned};
use crate::tep::format::field::{TextLimit, int_at, located, until_nul};
use crate::tep::operators::BinaryOperator;
use crate::tep::types::IntType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldConversion {
    Integer(FieldLoad, NumberForm),
    /// The text in these bytes of the record.
    Text {
        offset: usize,
        end: usize,
    },
    /// The text that the locator word at `word` locates.
    Located {
        word: usize,
        relative: bool,
        limit: Option<TextLimit>,
    },
}

/// An integer in the record, converted to `ty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLoad {
    offset: usize,
    size: usize,
    ty: IntType,
    /// Least length of the record: an element of an array is read only when the whole array is there.
    min_record_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    Signed,
    Unsigned,
    Hex,
    /// 16 hex digits.
    Address,
}

impl FieldConversion {
    /// None when the conversion has flags, a width or a precision, or the argument is more than a field.
    pub fn new(conversion: &Conversion, argument: &CExpr) -> Option<FieldConversion> {
        let plain = conversion.flags == ConversionFlags::default()
            && matches!((&conversion.width, &conversion.precision), (ConversionSize::None, ConversionSize::None));
        if !plain {
            return None;
        }
        match (conversion.kind, &argument.op) {
            (ConversionKind::Integer { radix, signed, upper: false, bytes }, _) => {
                let load = FieldLoad::of(argument)?.cast(IntType { size: bytes, signed })?;
                let shown = match radix {
                    10 if signed => NumberForm::Signed,
                    10 => NumberForm::Unsigned,
                    16 => NumberForm::Hex,
                    _ => return None,
                };
                Some(FieldConversion::Integer(load, shown))
            }
            (ConversionKind::Pointer(PointerKind::Address), _) => {
                Some(FieldConversion::Integer(FieldLoad::of(argument)?, NumberForm::Address))
            }
            (ConversionKind::Text, COp::Place { offset, size }) => {
                Some(FieldConversion::Text { offset: *offset, end: offset.checked_add(*size)? })
            }
            (ConversionKind::Text, COp::Located { word, relative, limit }) => {
                Some(FieldConversion::Located { word: *word, relative: *relative, limit: *limit })
            }
            _ => None,
        }
    }

    #[inline]
    pub fn render(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
        match *self {
            FieldConversion::Integer(load, shown) => {
                let bits = load.read(raw)?;
                match shown {
                    NumberForm::Signed => push_signed(bits as i64, out),
                    NumberForm::Unsigned => push_unsigned(bits, out),
                    NumberForm::Hex => push_hex(bits, out),
                    NumberForm::Address => push_hex16(bits, out),
                }
            }
            FieldConversion::Text { offset, end } => {
                out.extend_from_slice(until_nul(raw.get(offset..end).ok_or(NoValue)?));
            }
            FieldConversion::Located { word, relative, limit } => {
                let text = until_nul(located(raw, word, relative)?);
                out.extend_from_slice(limit.map_or(text, |limit| limit.cut(text, raw)));
            }
        }
        Ok(())
    }
}

impl FieldLoad {
    /// The expression as a load, if it is no more than a field or an element of one, cast or not.
    fn of(expr: &CExpr) -> Option<FieldLoad> {
        // A value that is no integer is an address, of 64 bits in any case.
        let ty = if let CType::Int(ty) = expr.ty { ty } else { IntType::U64 };
        match &expr.op {
            COp::Load { offset, size } => {
                Some(FieldLoad { offset: *offset, size: *size, ty, min_record_bytes: offset.checked_add(*size)? })
            }
            COp::Cast(operand) => FieldLoad::of(operand)?.cast(ty),
            COp::Deref(pointer) => {
                let CType::Int(ty) = expr.ty else { return None };
                let (offset, min_record_bytes) = FieldLoad::element(pointer)?;
                // An integer that ends behind its field cannot be read, however long the record is.
                (offset.checked_add(ty.size)? <= min_record_bytes).then_some(FieldLoad {
                    offset,
                    size: ty.size,
                    ty,
                    min_record_bytes,
                })
            }
            _ => None,
        }
    }

    /// The offset that a pointer to an element of a field points to, and the end of the field.
    fn element(pointer: &CExpr) -> Option<(usize, usize)> {
        match &pointer.op {
            COp::Place { offset, size } => Some((*offset, offset.checked_add(*size)?)),
            COp::Binary(BinaryOperator::Add, pair) => {
                let [base, index] = &**pair;
                let CType::Pointer(pointee) = base.ty else { return None }; // a cast may have changed that of the sum
                let COp::Place { offset, size } = base.op else { return None };
                let step = pointee.map_or(1, |ty| ty.size);
                let distance = usize::try_from(index.as_const()?).ok()?.checked_mul(step)?;
                Some((offset.checked_add(distance)?, offset.checked_add(size)?))
            }
            _ => None,
        }
    }

    /// The load, converted to `then` as well; None when one conversion cannot do both.
    fn cast(self, then: IntType) -> Option<FieldLoad> {
        let ty = match (self.ty, then) {
            (first, then) if then.size <= first.size => then,
            // The longer type holds every value of the shorter one.
            (first, then) if !first.signed || then.signed || then.size == 8 => first,
            _ => return None,
        };
        Some(FieldLoad { ty, ..self })
    }

    /// Size of the load, if it reads the bytes that begin at `offset`.
    pub fn size_at(&self, offset: usize) -> Option<usize> {
        (self.offset == offset).then_some(self.size)
    }

    #[inline]
    fn read(&self, raw: &[u8]) -> Result<u64, NoValue> {
        if raw.len() < self.min_record_bytes {
            return Err(NoValue);
        }
        Ok(self.ty.convert(int_at(raw, self.offset, self.size)?))
    }
}
