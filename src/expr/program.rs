//! Compiles the tree of an expression to a program, and evaluates that.

use crate::expr::parse::{BinaryOperator, ExprNode, UnaryOperator};
use crate::tep::Format;
use crate::tep::field::{Field, FieldKind, Int64};

/// Values on the stack of an evaluation. The parser's own limits keep most expressions far below.
const MAX_STACK: usize = 64;

/// An expression over the records of one event.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Box<[ExprStep]>,
    /// Set when the program is one load of an 8-byte field, as most are.
    single_load: Option<Int64>,
}

/// One step, on a stack of values. Jumps lead forwards only, so every program ends.
#[derive(Clone, Debug)]
enum ExprStep {
    Push(u64),
    Load(Field),
    Unary(UnaryOperator),
    /// `bool`: unsigned.
    Binary(BinaryOperator, bool),
    /// Replaces a value by 1, or 0 when it is 0.
    Truth,
    /// Pops a value, and jumps when it is 0.
    JumpIfZero(usize),
    /// Pops a value. When it is true or false as the `bool` says, pushes 1 or 0 and jumps.
    JumpKeeping(bool, usize),
    Jump(usize),
}

pub struct CompileFault {
    pub message: String,
    pub at: usize,
    pub unknown_field: bool,
}

pub fn compile(root: &ExprNode, format: &Format) -> Result<Program, CompileFault> {
    let mut compiler = Compiler { format, steps: Vec::new(), depth: 0 };
    compiler.node(root)?;
    let single_load = match &*compiler.steps {
        [ExprStep::Load(field)] => field.int64().ok(),
        _ => None,
    };
    Ok(Program { steps: compiler.steps.into(), single_load })
}

impl Program {
    /// The field, when the program is one load of an 8-byte field.
    pub fn single_load(&self) -> Option<Int64> {
        self.single_load
    }

    /// The value for a record. None: a field is not in the record, or the arithmetic has no result.
    #[inline(always)]
    pub fn eval(&self, raw: &[u8]) -> Option<u64> {
        match self.single_load {
            Some(field) => field.read(raw).ok(),
            None => self.eval_any(raw),
        }
    }

    fn eval_any(&self, raw: &[u8]) -> Option<u64> {
        match &*self.steps {
            [ExprStep::Load(field)] => load(field, raw),
            steps => run(steps, raw),
        }
    }
}

fn load(field: &Field, raw: &[u8]) -> Option<u64> {
    field.read_i64(raw).ok().map(|value| value as u64)
}

fn run(steps: &[ExprStep], raw: &[u8]) -> Option<u64> {
    let mut slots = [0_u64; MAX_STACK];
    let (mut used, mut at) = (0_usize, 0);
    while let Some(step) = steps.get(at) {
        at += 1;
        match step {
            ExprStep::Push(bits) => push(&mut slots, &mut used, *bits)?,
            ExprStep::Load(field) => push(&mut slots, &mut used, load(field, raw)?)?,
            ExprStep::Unary(unary) => {
                let value = pop(&slots, &mut used)?;
                let result = match unary {
                    UnaryOperator::Minus => value.wrapping_neg(),
                    UnaryOperator::Complement => !value,
                    UnaryOperator::Not => u64::from(value == 0),
                };
                push(&mut slots, &mut used, result)?;
            }
            ExprStep::Binary(binary, unsigned) => {
                let right = pop(&slots, &mut used)?;
                let left = pop(&slots, &mut used)?;
                push(&mut slots, &mut used, apply(*binary, *unsigned, left, right)?)?;
            }
            ExprStep::Truth => {
                let value = pop(&slots, &mut used)?;
                push(&mut slots, &mut used, u64::from(value != 0))?;
            }
            ExprStep::JumpIfZero(to) => {
                if pop(&slots, &mut used)? == 0 {
                    at = *to;
                }
            }
            ExprStep::JumpKeeping(when, to) => {
                if (pop(&slots, &mut used)? != 0) == *when {
                    push(&mut slots, &mut used, u64::from(*when))?;
                    at = *to;
                }
            }
            ExprStep::Jump(to) => at = *to,
        }
    }
    pop(&slots, &mut used)
}

#[inline]
fn push(slots: &mut [u64; MAX_STACK], used: &mut usize, value: u64) -> Option<()> {
    *slots.get_mut(*used)? = value;
    *used += 1;
    Some(())
}

#[inline]
fn pop(slots: &[u64; MAX_STACK], used: &mut usize) -> Option<u64> {
    *used = used.checked_sub(1)?;
    slots.get(*used).copied()
}

/// None: the operation has no result.
pub(super) fn apply(binary: BinaryOperator, unsigned: bool, left: u64, right: u64) -> Option<u64> {
    let (a, b) = (left as i64, right as i64);
    let shift = || u32::try_from(right).ok().filter(|bits| *bits < u64::BITS);
    let compare = |signed: bool, unsigned_too: bool| u64::from(if unsigned { unsigned_too } else { signed });
    Some(match binary {
        BinaryOperator::Multiply => left.wrapping_mul(right),
        BinaryOperator::Divide if unsigned => left.checked_div(right)?,
        BinaryOperator::Divide if b == 0 => return None,
        BinaryOperator::Divide => a.wrapping_div(b) as u64,
        BinaryOperator::Remainder if unsigned => left.checked_rem(right)?,
        BinaryOperator::Remainder if b == 0 => return None,
        BinaryOperator::Remainder => a.wrapping_rem(b) as u64,
        BinaryOperator::Add => left.wrapping_add(right),
        BinaryOperator::Subtract => left.wrapping_sub(right),
        BinaryOperator::ShiftLeft => left << shift()?,
        BinaryOperator::ShiftRight if unsigned => left >> shift()?,
        BinaryOperator::ShiftRight => (a >> shift()?) as u64,
        BinaryOperator::Less => compare(a < b, left < right),
        BinaryOperator::LessEqual => compare(a <= b, left <= right),
        BinaryOperator::Greater => compare(a > b, left > right),
        BinaryOperator::GreaterEqual => compare(a >= b, left >= right),
        BinaryOperator::Equal => u64::from(left == right),
        BinaryOperator::NotEqual => u64::from(left != right),
        BinaryOperator::BitAnd => left & right,
        BinaryOperator::BitXor => left ^ right,
        BinaryOperator::BitOr => left | right,
    })
}

struct Compiler<'a> {
    format: &'a Format,
    steps: Vec<ExprStep>,
    /// Values on the stack when the next step begins.
    depth: usize,
}

impl Compiler<'_> {
    /// Appends the steps that leave the value of `node`. Returns whether it is unsigned.
    fn node(&mut self, node: &ExprNode) -> Result<bool, CompileFault> {
        match node {
            ExprNode::Number { bits, unsigned } => {
                self.steps.push(ExprStep::Push(*bits));
                Ok(*unsigned)
            }
            ExprNode::Field { name, at } => self.field(name, *at),
            ExprNode::Unary(unary, inner) => {
                let unsigned = self.node(inner)?;
                self.steps.push(ExprStep::Unary(*unary));
                Ok(unsigned && *unary != UnaryOperator::Not)
            }
            ExprNode::Binary(binary, left, right) => self.binary(*binary, left, right),
            ExprNode::And(left, right) => self.logical(false, left, right),
            ExprNode::Or(left, right) => self.logical(true, left, right),
            ExprNode::Choice(parts) => {
                let [condition, then, other] = &**parts;
                self.node(condition)?;
                let skip = self.placeholder();
                let unsigned = self.node(then)?;
                let end = self.placeholder();
                self.steps[skip] = ExprStep::JumpIfZero(self.steps.len());
                let unsigned = self.node(other)? | unsigned;
                self.steps[end] = ExprStep::Jump(self.steps.len());
                Ok(unsigned)
            }
        }
    }

    fn binary(&mut self, binary: BinaryOperator, left: &ExprNode, right: &ExprNode) -> Result<bool, CompileFault> {
        let left = self.node(left)?;
        self.depth += 1;
        if self.depth >= MAX_STACK {
            return Err(CompileFault { message: "nested too deeply".to_owned(), at: 0, unknown_field: false });
        }
        let right = self.node(right)?;
        self.depth -= 1;
        let is_shift = matches!(binary, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let unsigned = left || right && !is_shift; // a shift has the type of its left operand
        self.steps.push(ExprStep::Binary(binary, unsigned));
        let is_truth = matches!(
            binary,
            BinaryOperator::Less
                | BinaryOperator::LessEqual
                | BinaryOperator::Greater
                | BinaryOperator::GreaterEqual
                | BinaryOperator::Equal
                | BinaryOperator::NotEqual
        );
        Ok(unsigned && !is_truth)
    }

    /// The right side is evaluated only where it matters.
    fn logical(&mut self, when: bool, left: &ExprNode, right: &ExprNode) -> Result<bool, CompileFault> {
        self.node(left)?;
        let skip = self.placeholder();
        self.node(right)?;
        self.steps.push(ExprStep::Truth);
        self.steps[skip] = ExprStep::JumpKeeping(when, self.steps.len());
        Ok(false)
    }

    /// Appends a jump that is replaced when its destination is known.
    fn placeholder(&mut self) -> usize {
        self.steps.push(ExprStep::Jump(0));
        self.steps.len() - 1
    }

    fn field(&mut self, name: &str, at: usize) -> Result<bool, CompileFault> {
        let field = match self.format.require(name) {
            Ok(field) => field,
            Err(err) => return Err(CompileFault { message: err.to_string(), at, unknown_field: true }),
        };
        if !matches!(field.kind, FieldKind::Int | FieldKind::Pointer) {
            let message = format!("`{name}` of {} is {}, not a number", self.format.full_name(), field.declared);
            return Err(CompileFault { message, at, unknown_field: false });
        }
        let field = Field { signed: field.signed && field.kind == FieldKind::Int, ..field.clone() };
        let unsigned = field.size == 8 && !field.signed;
        self.steps.push(ExprStep::Load(field));
        Ok(unsigned)
    }
}
