//! Typed C expressions over a record: how they are built, folded and evaluated. A call makes text of its operands.

use std::ops::Not;

use super::Unsupported;
use crate::tep::format::field::{ReadError, TextLimit, int_at, located, until_nul};
use crate::tep::operators::BinaryOperator;
use crate::tep::types::IntType;

/// Deeper expressions are refused, so that evaluation never runs out of stack.
const MAX_DEPTH: u16 = 200;

#[derive(Clone, Debug)]
pub struct CExpr {
    pub op: COp,
    pub ty: CType,
    depth: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CType {
    Int(IntType),
    /// A pointer, to integers if their type is known.
    Pointer(Option<IntType>),
    /// Text that is not in the record: a literal, or what a function prints.
    Text,
}

#[derive(Clone, Debug)]
pub enum COp {
    Const(u64),
    Literal(Vec<u8>),
    /// The integer in these bytes of the record.
    Load {
        offset: usize,
        size: usize,
    },
    /// A pointer to these bytes of the record.
    Place {
        offset: usize,
        size: usize,
    },
    /// A pointer to the data that the locator word at `word` locates.
    Located {
        word: usize,
        relative: bool,
        limit: Option<TextLimit>,
    },
    /// Length of that data.
    LocatedLen {
        word: usize,
    },
    Unary(CUnary, Box<CExpr>),
    Binary(BinaryOperator, Box<[CExpr; 2]>),
    /// Conversion to the type of the expression.
    Cast(Box<CExpr>),
    /// The integer behind a pointer.
    Deref(Box<CExpr>),
    Choose(Box<[CExpr; 3]>),
    Call(Box<Call>),
    /// Something that cannot be computed here, and why. Harmless in a branch that is never taken.
    Bad(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CUnary {
    Negate,
    Invert,
    Not,
    Bits(BitFunction),
}

/// A function of the bits of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitFunction {
    SwapBytes,
    CountOnes,
    /// The lowest bit set, counted from 1; 0 for 0.
    FirstSet,
    /// The highest bit set, counted from 1; 0 for 0.
    LastSet,
    /// These three are undefined for 0.
    TrailingZeros,
    LeadingZeros,
    HighestBit,
}

impl BitFunction {
    /// Applies the function to `bits`, a number of `size` bytes extended with zeros.
    fn apply(self, bits: u64, size: usize) -> Result<u64, NoValue> {
        let outside = 64 - 8 * size.clamp(1, 8) as u32;
        let count = match self {
            BitFunction::SwapBytes => return Ok(bits.swap_bytes() >> outside),
            BitFunction::CountOnes => bits.count_ones(),
            BitFunction::LastSet => 64 - bits.leading_zeros(),
            BitFunction::FirstSet if bits == 0 => 0,
            _ if bits == 0 => return Err(NoValue),
            BitFunction::FirstSet => bits.trailing_zeros() + 1,
            BitFunction::TrailingZeros => bits.trailing_zeros(),
            BitFunction::LeadingZeros => bits.leading_zeros() - outside,
            BitFunction::HighestBit => 63 - bits.leading_zeros(),
        };
        Ok(u64::from(count))
    }
}

/// A call that makes text.
#[derive(Clone, Debug)]
pub enum Call {
    Flags {
        value: CExpr,
        delimiter: Vec<u8>,
        table: NameTable,
    },
    Symbolic {
        value: CExpr,
        table: NameTable,
    },
    Hex {
        bytes: CExpr,
        len: CExpr,
        spaced: bool,
    },
    HexDump(HexDump),
    Array {
        bytes: CExpr,
        count: CExpr,
        size: CExpr,
    },
    Bitmask {
        bytes: CExpr,
    },
    /// `nvme_trace_disk_name`
    DiskName {
        name: CExpr,
    },
    /// A function of the kernel that returns a name for each value.
    Named {
        value: CExpr,
        names: &'static [&'static str],
        other: &'static str,
    },
}

/// `__print_hex_dump`: lines of `row` bytes in groups of `group`.
#[derive(Clone, Debug)]
pub struct HexDump {
    pub prefix: Vec<u8>,
    /// Lines begin with the offset of their first byte.
    pub offsets: bool,
    pub row: usize,
    pub group: usize,
    pub bytes: CExpr,
    pub len: CExpr,
    /// Lines end with the bytes as text.
    pub ascii: bool,
}

/// `{ mask, "name" }, ..` in the kernel's order.
pub type NameTable = Vec<(u64, Vec<u8>)>;

/// What an expression evaluates to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CValue<'a> {
    /// Extended to 64 bits according to the type.
    Number(u64),
    /// A pointer into the record, as the bytes from there on.
    Bytes(&'a [u8]),
    /// The bytes of a literal.
    Literal(&'a [u8]),
}

/// An expression has no value for this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoValue;

impl From<ReadError> for NoValue {
    fn from(_: ReadError) -> Self {
        NoValue
    }
}

impl<'a> CValue<'a> {
    pub fn number(self) -> Result<u64, NoValue> {
        match self {
            CValue::Number(bits) => Ok(bits),
            CValue::Bytes(_) | CValue::Literal(_) => Err(NoValue), // its address is unknown
        }
    }

    pub fn bytes(self) -> Result<&'a [u8], NoValue> {
        match self {
            CValue::Bytes(bytes) | CValue::Literal(bytes) => Ok(bytes),
            CValue::Number(_) => Err(NoValue),
        }
    }

    fn is_true(self) -> bool {
        self != CValue::Number(0)
    }
}

impl CType {
    /// The type after C's integer promotions.
    fn promoted(self) -> IntType {
        match self {
            CType::Int(ty) if ty.size < 4 => IntType::INT,
            CType::Int(ty) => ty,
            _ => IntType::U64,
        }
    }
}

/// The type to which C converts both operands.
fn common_type(a: CType, b: CType) -> IntType {
    let (a, b) = (a.promoted(), b.promoted());
    match a.size.cmp(&b.size) {
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Equal => IntType { size: a.size, signed: a.signed && b.signed },
    }
}

impl Call {
    pub fn operands(&self) -> Vec<&CExpr> {
        match self {
            Call::Flags { value, .. } | Call::Symbolic { value, .. } | Call::Named { value, .. } => vec![value],
            Call::DiskName { name } => vec![name],
            Call::Hex { bytes, len, .. } | Call::HexDump(HexDump { bytes, len, .. }) => vec![bytes, len],
            Call::Array { bytes, count, size } => vec![bytes, count, size],
            Call::Bitmask { bytes } => vec![bytes],
        }
    }
}

impl CExpr {
    pub fn constant(value: u64, ty: IntType) -> CExpr {
        CExpr { op: COp::Const(ty.convert(value)), ty: CType::Int(ty), depth: 1 }
    }

    pub fn leaf(op: COp, ty: CType) -> CExpr {
        CExpr { op, ty, depth: 1 }
    }

    pub fn bad(reason: impl Into<String>) -> CExpr {
        CExpr { op: COp::Bad(reason.into()), ty: CType::Int(IntType::INT), depth: 1 }
    }

    pub fn as_const(&self) -> Option<u64> {
        match self.op {
            COp::Const(bits) => Some(bits),
            _ => None,
        }
    }

    fn node(op: COp, ty: CType, operands: &[u16]) -> Result<CExpr, Unsupported> {
        let depth = operands.iter().copied().max().unwrap_or(0) + 1;
        if depth > MAX_DEPTH {
            return Err(Unsupported::new("an expression too deep"));
        }
        let expr = CExpr { op, ty, depth };
        Ok(
            if let CType::Int(ty) = ty
                && expr.is_foldable()
            {
                match expr.eval(&[]) {
                    Ok(CValue::Number(bits)) => CExpr::constant(bits, ty),
                    _ => expr,
                }
            } else {
                expr
            },
        )
    }

    /// Whether all operands are constants.
    fn is_foldable(&self) -> bool {
        match &self.op {
            COp::Unary(_, a) | COp::Cast(a) => a.as_const().is_some(),
            COp::Binary(_, pair) => pair.iter().all(|operand| operand.as_const().is_some()),
            _ => false,
        }
    }

    pub fn call(call: Call) -> Result<CExpr, Unsupported> {
        let depths: Vec<u16> = call.operands().iter().map(|operand| operand.depth).collect();
        CExpr::node(COp::Call(Box::new(call)), CType::Text, &depths)
    }

    pub fn unary(op: CUnary, operand: CExpr) -> Result<CExpr, Unsupported> {
        let ty = match (op, operand.ty) {
            (CUnary::Bits(BitFunction::SwapBytes), CType::Int(ty)) => ty,
            (CUnary::Not | CUnary::Bits(_), _) => IntType::INT,
            (CUnary::Negate | CUnary::Invert, ty) => ty.promoted(),
        };
        let depth = operand.depth;
        CExpr::node(COp::Unary(op, Box::new(operand)), CType::Int(ty), &[depth])
    }

    pub fn binary(op: BinaryOperator, a: CExpr, b: CExpr) -> Result<CExpr, Unsupported> {
        use BinaryOperator::{
            Add, BothTrue, EitherTrue, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, ShiftLeft, ShiftRight,
            Subtract,
        };
        let ty = match op {
            Less | LessEqual | Greater | GreaterEqual | Equal | NotEqual | BothTrue | EitherTrue => {
                CType::Int(IntType::INT)
            }
            ShiftLeft | ShiftRight => CType::Int(a.ty.promoted()),
            Add | Subtract if matches!((a.ty, b.ty), (CType::Pointer(_), CType::Int(_))) => a.ty,
            Add if matches!((a.ty, b.ty), (CType::Int(_), CType::Pointer(_))) => return CExpr::binary(op, b, a),
            _ => CType::Int(common_type(a.ty, b.ty)),
        };
        // `0 && x` and `1 || x` never look at x.
        match (op, a.as_const()) {
            (BothTrue, Some(0)) => return Ok(CExpr::constant(0, IntType::INT)),
            (EitherTrue, Some(bits)) if bits != 0 => return Ok(CExpr::constant(1, IntType::INT)),
            _ => {}
        }
        let depths = [a.depth, b.depth];
        CExpr::node(COp::Binary(op, Box::new([a, b])), ty, &depths)
    }

    pub fn cast(operand: CExpr, ty: CType) -> Result<CExpr, Unsupported> {
        let depth = operand.depth;
        match (operand.ty, ty) {
            // Text stays text whatever it is cast to: `(char *)"none"`, `(const char *)__print_..`.
            (CType::Text, _) => Ok(operand),
            (CType::Pointer(_), CType::Pointer(_)) => Ok(CExpr { ty, ..operand }),
            (CType::Int(_), CType::Pointer(_)) if operand.as_const().is_some() => Ok(CExpr { ty, ..operand }), // NULL
            _ => CExpr::node(COp::Cast(Box::new(operand)), ty, &[depth]),
        }
    }

    pub fn deref(operand: CExpr) -> Result<CExpr, Unsupported> {
        let CType::Pointer(Some(ty)) = operand.ty else {
            return Ok(CExpr::bad("dereference of a pointer to no integer"));
        };
        if !operand.may_be_bytes() {
            return Ok(CExpr::bad("dereference of a kernel pointer"));
        }
        let depth = operand.depth;
        CExpr::node(COp::Deref(Box::new(operand)), CType::Int(ty), &[depth])
    }

    pub fn choose(condition: CExpr, yes: CExpr, no: CExpr) -> Result<CExpr, Unsupported> {
        if let Some(bits) = condition.as_const() {
            return Ok(if bits != 0 { yes } else { no });
        }
        let ty = match (yes.ty, no.ty) {
            (CType::Int(_), CType::Int(_)) => CType::Int(common_type(yes.ty, no.ty)),
            (CType::Text, _) | (_, CType::Text) => CType::Text,
            (CType::Pointer(_), _) => yes.ty,
            (_, CType::Pointer(_)) => no.ty,
        };
        let depths = [condition.depth, yes.depth, no.depth];
        CExpr::node(COp::Choose(Box::new([condition, yes, no])), ty, &depths)
    }

    /// Whether the value can be a pointer whose bytes are in the record.
    pub fn may_be_bytes(&self) -> bool {
        match &self.op {
            COp::Place { .. } | COp::Located { .. } | COp::Literal(_) => true,
            COp::Binary(_, pair) => matches!(self.ty, CType::Pointer(_)) && pair.iter().any(CExpr::may_be_bytes),
            COp::Cast(a) => a.may_be_bytes(),
            COp::Choose(three) => three.iter().skip(1).any(CExpr::may_be_bytes),
            _ => false,
        }
    }

    /// Calls `visit` with this expression and all below it.
    pub fn walk(&self, visit: &mut dyn FnMut(&CExpr)) {
        visit(self);
        match &self.op {
            COp::Unary(_, a) | COp::Cast(a) | COp::Deref(a) => a.walk(visit),
            COp::Binary(_, pair) => pair.iter().for_each(|operand| operand.walk(visit)),
            COp::Choose(three) => three.iter().for_each(|operand| operand.walk(visit)),
            COp::Call(call) => call.operands().into_iter().for_each(|operand| operand.walk(visit)),
            _ => {}
        }
    }

    /// The reason of the first [`COp::Bad`] in the expression.
    pub fn fault(&self) -> Option<String> {
        let mut reason = None;
        self.walk(&mut |expr| {
            if let COp::Bad(text) = &expr.op
                && reason.is_none()
            {
                reason = Some(text.clone());
            }
        });
        reason
    }

    pub fn eval<'a>(&'a self, raw: &'a [u8]) -> Result<CValue<'a>, NoValue> {
        Ok(match &self.op {
            COp::Const(bits) => CValue::Number(*bits),
            COp::Literal(text) => CValue::Literal(text),
            COp::Load { offset, size } => CValue::Number(self.converted(int_at(raw, *offset, *size)?)),
            COp::Place { offset, size } => {
                let end = offset.checked_add(*size).ok_or(NoValue)?;
                CValue::Bytes(raw.get(*offset..end).ok_or(NoValue)?)
            }
            COp::Located { word, relative, limit } => {
                let bytes = located(raw, *word, *relative)?;
                CValue::Bytes(limit.map_or(bytes, |limit| limit.cut(until_nul(bytes), raw)))
            }
            COp::LocatedLen { word } => CValue::Number(int_at(raw, *word, 4)? >> 16),
            COp::Unary(op, operand) => {
                let value = operand.eval(raw)?;
                CValue::Number(self.converted(match op {
                    CUnary::Not => u64::from(value.is_true().not()),
                    CUnary::Negate => value.number()?.wrapping_neg(),
                    CUnary::Invert => !value.number()?,
                    CUnary::Bits(function) => match operand.ty {
                        CType::Int(ty) => function.apply(value.number()?, ty.size)?,
                        CType::Pointer(_) | CType::Text => return Err(NoValue),
                    },
                }))
            }
            COp::Binary(op, pair) => {
                let [a, b] = &**pair;
                self.eval_binary(*op, a, b, raw)?
            }
            COp::Cast(operand) => match operand.eval(raw)? {
                CValue::Number(bits) => CValue::Number(self.converted(bits)),
                value if matches!(self.ty, CType::Pointer(_)) => value,
                _ => return Err(NoValue),
            },
            COp::Deref(operand) => {
                let CType::Int(ty) = self.ty else { return Err(NoValue) };
                CValue::Number(self.converted(int_at(operand.eval(raw)?.bytes()?, 0, ty.size)?))
            }
            COp::Choose(three) => {
                let [condition, yes, no] = &**three;
                let taken = if condition.eval(raw)?.is_true() { yes } else { no };
                match taken.eval(raw)? {
                    CValue::Number(bits) => CValue::Number(self.converted(bits)),
                    value => value,
                }
            }
            COp::Call(_) | COp::Bad(_) => return Err(NoValue),
        })
    }

    /// `bits` as a value of this expression's type.
    fn converted(&self, bits: u64) -> u64 {
        match self.ty {
            CType::Int(ty) => ty.convert(bits),
            _ => bits,
        }
    }

    fn eval_binary<'a>(
        &'a self,
        op: BinaryOperator,
        a: &'a CExpr,
        b: &'a CExpr,
        raw: &'a [u8],
    ) -> Result<CValue<'a>, NoValue> {
        match op {
            BinaryOperator::BothTrue => {
                return Ok(CValue::Number(u64::from(a.eval(raw)?.is_true() && b.eval(raw)?.is_true())));
            }
            BinaryOperator::EitherTrue => {
                return Ok(CValue::Number(u64::from(a.eval(raw)?.is_true() || b.eval(raw)?.is_true())));
            }
            _ => {}
        }
        let (left, right) = (a.eval(raw)?, b.eval(raw)?);
        // The step is that of the operand: a cast may have changed the type of the sum.
        if let (CType::Pointer(_), CType::Pointer(pointee)) = (self.ty, a.ty) {
            let step = pointee.map_or(1, |ty| ty.size) as u64;
            let distance = right.number()?.wrapping_mul(step);
            return Ok(match left {
                CValue::Number(bits) if op == BinaryOperator::Subtract => CValue::Number(bits.wrapping_sub(distance)),
                CValue::Number(bits) => CValue::Number(bits.wrapping_add(distance)),
                CValue::Bytes(bytes) if op == BinaryOperator::Add => {
                    CValue::Bytes(usize::try_from(distance).ok().and_then(|at| bytes.get(at..)).ok_or(NoValue)?)
                }
                _ => return Err(NoValue),
            });
        }
        // A pointer into the record is never NULL; that is all that can be said of its address.
        if let (CValue::Bytes(_) | CValue::Literal(_), CValue::Number(0)) = (left, right)
            && matches!(op, BinaryOperator::Equal | BinaryOperator::NotEqual)
        {
            return Ok(CValue::Number(u64::from(op == BinaryOperator::NotEqual)));
        }
        let ty = match op {
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => a.ty.promoted(),
            _ => common_type(a.ty, b.ty),
        };
        let (x, y) = (ty.convert(left.number()?), right.number()?);
        let y = if matches!(op, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight) { y } else { ty.convert(y) };
        Ok(CValue::Number(self.converted(op.apply(x, y, ty))))
    }
}
