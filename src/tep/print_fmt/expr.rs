//! Typed C expressions over a record: how they are built, folded and evaluated.

use std::ops::Not;

use super::super::field::{ReadError, TextLimit, int_at, located, until_nul};
use super::super::types::IntType;
use super::Unsupported;
use super::calls::Call;

/// Deeper expressions are refused, so that evaluation never runs out of stack.
const MAX_DEPTH: u16 = 200;

#[derive(Clone, Debug)]
pub struct Expr {
    pub op: Op,
    pub ty: Ty,
    depth: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    Int(IntType),
    /// A pointer, to integers if their type is known.
    Pointer(Option<IntType>),
    /// Text that is made on the spot: a literal, or what a function prints.
    Text,
}

#[derive(Clone, Debug)]
pub enum Op {
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
    /// A pointer to what the locator word at `word` locates, and the length of that.
    Located {
        word: usize,
        relative: bool,
        limit: Option<TextLimit>,
    },
    LocatedLen {
        word: usize,
    },
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<[Expr; 2]>),
    /// Conversion to the type of the expression.
    Cast(Box<Expr>),
    /// The integer behind a pointer.
    Deref(Box<Expr>),
    Choose(Box<[Expr; 3]>),
    Call(Box<Call>),
    /// Something this compiler cannot do. Harmless in a branch that is never taken.
    Bad(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Negate,
    Invert,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Xor,
    Or,
    BothTrue,
    EitherTrue,
}

/// What an expression evaluates to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Extended to 64 bits according to the type.
    Number(u64),
    /// A pointer into the record, as the bytes from there on.
    Bytes(&'a [u8]),
    /// A literal, as an expression of its own.
    Literal(&'a [u8]),
}

/// Why an expression has no value for this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

impl From<ReadError> for Fault {
    fn from(_: ReadError) -> Self {
        Fault
    }
}

impl<'a> Value<'a> {
    pub fn number(self) -> Result<u64, Fault> {
        match self {
            Value::Number(bits) => Ok(bits),
            Value::Bytes(_) | Value::Literal(_) => Err(Fault), // an address nobody knows
        }
    }

    pub fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Value::Bytes(bytes) | Value::Literal(bytes) => Ok(bytes),
            Value::Number(_) => Err(Fault),
        }
    }

    fn is_true(self) -> bool {
        self != Value::Number(0)
    }
}

impl Ty {
    /// The type after C's integer promotions.
    fn promoted(self) -> IntType {
        match self {
            Ty::Int(ty) if ty.size < 4 => IntType::INT,
            Ty::Int(ty) => ty,
            _ => IntType::U64,
        }
    }
}

/// The type two operands meet in.
fn common_type(a: Ty, b: Ty) -> IntType {
    let (a, b) = (a.promoted(), b.promoted());
    match a.size.cmp(&b.size) {
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Equal => IntType { size: a.size, signed: a.signed && b.signed },
    }
}

impl Expr {
    pub fn constant(value: u64, ty: IntType) -> Expr {
        Expr { op: Op::Const(ty.convert(value)), ty: Ty::Int(ty), depth: 1 }
    }

    pub fn leaf(op: Op, ty: Ty) -> Expr {
        Expr { op, ty, depth: 1 }
    }

    pub fn bad(reason: impl Into<String>) -> Expr {
        Expr { op: Op::Bad(reason.into()), ty: Ty::Int(IntType::INT), depth: 1 }
    }

    pub fn as_const(&self) -> Option<u64> {
        match self.op {
            Op::Const(bits) => Some(bits),
            _ => None,
        }
    }

    fn node(op: Op, ty: Ty, operands: &[u16]) -> Result<Expr, Unsupported> {
        let depth = operands.iter().copied().max().unwrap_or(0) + 1;
        if depth > MAX_DEPTH {
            return Err(Unsupported::new("an expression too deep"));
        }
        let expr = Expr { op, ty, depth };
        Ok(
            if let Ty::Int(ty) = ty
                && expr.is_foldable()
            {
                match expr.eval(&[]) {
                    Ok(Value::Number(bits)) => Expr::constant(bits, ty),
                    _ => expr,
                }
            } else {
                expr
            },
        )
    }

    /// Whether all operands are constants already.
    fn is_foldable(&self) -> bool {
        match &self.op {
            Op::Unary(_, a) | Op::Cast(a) => a.as_const().is_some(),
            Op::Binary(_, pair) => pair.iter().all(|operand| operand.as_const().is_some()),
            _ => false,
        }
    }

    pub fn call(call: Call, operands: &[&Expr]) -> Result<Expr, Unsupported> {
        let depths: Vec<u16> = operands.iter().map(|operand| operand.depth).collect();
        Expr::node(Op::Call(Box::new(call)), Ty::Text, &depths)
    }

    pub fn unary(op: Unary, operand: Expr) -> Result<Expr, Unsupported> {
        let ty = if op == Unary::Not { IntType::INT } else { operand.ty.promoted() };
        let depth = operand.depth;
        Expr::node(Op::Unary(op, Box::new(operand)), Ty::Int(ty), &[depth])
    }

    pub fn binary(op: Binary, a: Expr, b: Expr) -> Result<Expr, Unsupported> {
        use Binary::{
            Add, BothTrue, EitherTrue, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, ShiftLeft, ShiftRight,
            Subtract,
        };
        let ty = match op {
            Less | LessEqual | Greater | GreaterEqual | Equal | NotEqual | BothTrue | EitherTrue => {
                Ty::Int(IntType::INT)
            }
            ShiftLeft | ShiftRight => Ty::Int(a.ty.promoted()),
            Add | Subtract if matches!((a.ty, b.ty), (Ty::Pointer(_), Ty::Int(_))) => a.ty,
            Add if matches!((a.ty, b.ty), (Ty::Int(_), Ty::Pointer(_))) => return Expr::binary(op, b, a),
            _ => Ty::Int(common_type(a.ty, b.ty)),
        };
        // `0 && x` and `1 || x` never look at x.
        match (op, a.as_const()) {
            (BothTrue, Some(0)) => return Ok(Expr::constant(0, IntType::INT)),
            (EitherTrue, Some(bits)) if bits != 0 => return Ok(Expr::constant(1, IntType::INT)),
            _ => {}
        }
        let depths = [a.depth, b.depth];
        Expr::node(Op::Binary(op, Box::new([a, b])), ty, &depths)
    }

    pub fn cast(operand: Expr, ty: Ty) -> Result<Expr, Unsupported> {
        let depth = operand.depth;
        match (operand.ty, ty) {
            // Text stays text whatever it is called: `(char *)"none"`, `(const char *)__print_..`.
            (Ty::Text, _) => Ok(operand),
            (Ty::Pointer(_), Ty::Pointer(_)) => Ok(Expr { ty, ..operand }),
            (Ty::Int(_), Ty::Pointer(_)) if operand.as_const().is_some() => Ok(Expr { ty, ..operand }), // NULL
            _ => Expr::node(Op::Cast(Box::new(operand)), ty, &[depth]),
        }
    }

    pub fn deref(operand: Expr) -> Result<Expr, Unsupported> {
        let Ty::Pointer(Some(ty)) = operand.ty else { return Ok(Expr::bad("dereference of a pointer to no integer")) };
        if !operand.may_be_bytes() {
            return Ok(Expr::bad("dereference of a kernel pointer"));
        }
        let depth = operand.depth;
        Expr::node(Op::Deref(Box::new(operand)), Ty::Int(ty), &[depth])
    }

    pub fn choose(condition: Expr, yes: Expr, no: Expr) -> Result<Expr, Unsupported> {
        if let Some(bits) = condition.as_const() {
            return Ok(if bits != 0 { yes } else { no });
        }
        let ty = match (yes.ty, no.ty) {
            (Ty::Int(_), Ty::Int(_)) => Ty::Int(common_type(yes.ty, no.ty)),
            (Ty::Text, _) | (_, Ty::Text) => Ty::Text,
            (Ty::Pointer(_), _) => yes.ty,
            (_, Ty::Pointer(_)) => no.ty,
        };
        let depths = [condition.depth, yes.depth, no.depth];
        Expr::node(Op::Choose(Box::new([condition, yes, no])), ty, &depths)
    }

    /// Whether the value can be a pointer whose bytes are in the record.
    pub fn may_be_bytes(&self) -> bool {
        match &self.op {
            Op::Place { .. } | Op::Located { .. } | Op::Literal(_) => true,
            Op::Binary(_, pair) => matches!(self.ty, Ty::Pointer(_)) && pair.iter().any(Expr::may_be_bytes),
            Op::Cast(a) => a.may_be_bytes(),
            Op::Choose(three) => three.iter().skip(1).any(Expr::may_be_bytes),
            _ => false,
        }
    }

    /// Calls `visit` with this expression and all below it.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        match &self.op {
            Op::Unary(_, a) | Op::Cast(a) | Op::Deref(a) => a.walk(visit),
            Op::Binary(_, pair) => pair.iter().for_each(|operand| operand.walk(visit)),
            Op::Choose(three) => three.iter().for_each(|operand| operand.walk(visit)),
            Op::Call(call) => call.operands().into_iter().for_each(|operand| operand.walk(visit)),
            _ => {}
        }
    }

    /// The first thing in it that cannot be done.
    pub fn fault(&self) -> Option<String> {
        let mut reason = None;
        self.walk(&mut |expr| {
            if let Op::Bad(text) = &expr.op
                && reason.is_none()
            {
                reason = Some(text.clone());
            }
        });
        reason
    }

    pub fn eval<'a>(&'a self, raw: &'a [u8]) -> Result<Value<'a>, Fault> {
        Ok(match &self.op {
            Op::Const(bits) => Value::Number(*bits),
            Op::Literal(text) => Value::Literal(text),
            Op::Load { offset, size } => Value::Number(self.converted(int_at(raw, *offset, *size)?)),
            Op::Place { offset, size } => {
                let end = offset.checked_add(*size).ok_or(Fault)?;
                Value::Bytes(raw.get(*offset..end).ok_or(Fault)?)
            }
            Op::Located { word, relative, limit } => {
                let bytes = located(raw, *word, *relative)?;
                Value::Bytes(limit.map_or(bytes, |limit| limit.cut(until_nul(bytes), raw)))
            }
            Op::LocatedLen { word } => Value::Number(int_at(raw, *word, 4)? >> 16),
            Op::Unary(op, operand) => {
                let value = operand.eval(raw)?;
                Value::Number(self.converted(match op {
                    Unary::Not => u64::from(value.is_true().not()),
                    Unary::Negate => value.number()?.wrapping_neg(),
                    Unary::Invert => !value.number()?,
                }))
            }
            Op::Binary(op, pair) => {
                let [a, b] = &**pair;
                self.eval_binary(*op, a, b, raw)?
            }
            Op::Cast(operand) => match operand.eval(raw)? {
                Value::Number(bits) => Value::Number(self.converted(bits)),
                value if matches!(self.ty, Ty::Pointer(_)) => value,
                _ => return Err(Fault),
            },
            Op::Deref(operand) => {
                let Ty::Int(ty) = self.ty else { return Err(Fault) };
                Value::Number(self.converted(int_at(operand.eval(raw)?.bytes()?, 0, ty.size)?))
            }
            Op::Choose(three) => {
                let [condition, yes, no] = &**three;
                let taken = if condition.eval(raw)?.is_true() { yes } else { no };
                match taken.eval(raw)? {
                    Value::Number(bits) => Value::Number(self.converted(bits)),
                    value => value,
                }
            }
            Op::Call(_) | Op::Bad(_) => return Err(Fault),
        })
    }

    /// `bits` as a value of this expression's type.
    fn converted(&self, bits: u64) -> u64 {
        match self.ty {
            Ty::Int(ty) => ty.convert(bits),
            _ => bits,
        }
    }

    fn eval_binary<'a>(&'a self, op: Binary, a: &'a Expr, b: &'a Expr, raw: &'a [u8]) -> Result<Value<'a>, Fault> {
        match op {
            Binary::BothTrue => return Ok(Value::Number(u64::from(a.eval(raw)?.is_true() && b.eval(raw)?.is_true()))),
            Binary::EitherTrue => {
                return Ok(Value::Number(u64::from(a.eval(raw)?.is_true() || b.eval(raw)?.is_true())));
            }
            _ => {}
        }
        let (left, right) = (a.eval(raw)?, b.eval(raw)?);
        if let Ty::Pointer(pointee) = self.ty {
            let step = pointee.map_or(1, |ty| ty.size) as u64;
            let distance = right.number()?.wrapping_mul(step);
            return Ok(match left {
                Value::Number(bits) if op == Binary::Subtract => Value::Number(bits.wrapping_sub(distance)),
                Value::Number(bits) => Value::Number(bits.wrapping_add(distance)),
                Value::Bytes(bytes) if op == Binary::Add => {
                    Value::Bytes(usize::try_from(distance).ok().and_then(|at| bytes.get(at..)).ok_or(Fault)?)
                }
                _ => return Err(Fault),
            });
        }
        // A pointer into the record is never NULL; that is all that can be said of its address.
        if let (Value::Bytes(_) | Value::Literal(_), Value::Number(0)) = (left, right)
            && matches!(op, Binary::Equal | Binary::NotEqual)
        {
            return Ok(Value::Number(u64::from(op == Binary::NotEqual)));
        }
        let ty = match op {
            Binary::ShiftLeft | Binary::ShiftRight => a.ty.promoted(),
            _ => common_type(a.ty, b.ty),
        };
        let (x, y) = (ty.convert(left.number()?), right.number()?);
        let y = if matches!(op, Binary::ShiftLeft | Binary::ShiftRight) { y } else { ty.convert(y) };
        Ok(Value::Number(self.converted(arithmetic(op, x, y, ty))))
    }
}

/// `x op y`, both already of type `ty`. What C leaves undefined has a value here: dividing by zero
/// gives 0, and a shift counts modulo the width.
fn arithmetic(op: Binary, x: u64, y: u64, ty: IntType) -> u64 {
    let (sx, sy) = (x as i64, y as i64);
    let shift = y as u32 & (8 * ty.size as u32 - 1);
    let less = if ty.signed { sx < sy } else { x < y };
    match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Subtract => x.wrapping_sub(y),
        Binary::Multiply => x.wrapping_mul(y),
        Binary::Divide | Binary::Remainder if y == 0 => 0,
        Binary::Divide if ty.signed => sx.wrapping_div(sy) as u64,
        Binary::Divide => x / y,
        Binary::Remainder if ty.signed => sx.wrapping_rem(sy) as u64,
        Binary::Remainder => x % y,
        Binary::ShiftLeft => x << shift,
        Binary::ShiftRight if ty.signed => (sx >> shift) as u64,
        Binary::ShiftRight => x >> shift,
        Binary::Less => u64::from(less),
        Binary::GreaterEqual => u64::from(!less),
        Binary::Greater => u64::from(!less && x != y),
        Binary::LessEqual => u64::from(less || x == y),
        Binary::Equal => u64::from(x == y),
        Binary::NotEqual => u64::from(x != y),
        Binary::And => x & y,
        Binary::Xor => x ^ y,
        Binary::Or => x | y,
        Binary::BothTrue => u64::from(x != 0 && y != 0),
        Binary::EitherTrue => u64::from(x != 0 || y != 0),
    }
}
