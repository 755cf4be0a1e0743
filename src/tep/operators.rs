//! The operators of C between two numbers, and their results.

use crate::tep::types::IntType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
    /// `&&`
    BothTrue,
    /// `||`
    EitherTrue,
}

impl BinaryOperator {
    /// `x op y`, both already of type `ty`. What C leaves undefined has a value here: dividing by zero gives 0, and a shift
    /// counts modulo the width.
    pub fn apply(self, x: u64, y: u64, ty: IntType) -> u64 {
        let (sx, sy) = (x as i64, y as i64);
        let shift = y as u32 & (8 * ty.size as u32 - 1);
        let less = if ty.signed { sx < sy } else { x < y };
        match self {
            BinaryOperator::Add => x.wrapping_add(y),
            BinaryOperator::Subtract => x.wrapping_sub(y),
            BinaryOperator::Multiply => x.wrapping_mul(y),
            BinaryOperator::Divide | BinaryOperator::Remainder if y == 0 => 0,
            BinaryOperator::Divide if ty.signed => sx.wrapping_div(sy) as u64,
            BinaryOperator::Divide => x / y,
            BinaryOperator::Remainder if ty.signed => sx.wrapping_rem(sy) as u64,
            BinaryOperator::Remainder => x % y,
            BinaryOperator::ShiftLeft => x << shift,
            BinaryOperator::ShiftRight if ty.signed => (sx >> shift) as u64,
            BinaryOperator::ShiftRight => x >> shift,
            BinaryOperator::Less => u64::from(less),
            BinaryOperator::GreaterEqual => u64::from(!less),
            BinaryOperator::Greater => u64::from(!less && x != y),
            BinaryOperator::LessEqual => u64::from(less || x == y),
            BinaryOperator::Equal => u64::from(x == y),
            BinaryOperator::NotEqual => u64::from(x != y),
            BinaryOperator::BitAnd => x & y,
            BinaryOperator::BitXor => x ^ y,
            BinaryOperator::BitOr => x | y,
            BinaryOperator::BothTrue => u64::from(x != 0 && y != 0),
            BinaryOperator::EitherTrue => u64::from(x != 0 || y != 0),
        }
    }
}
