//! A compiled expression, and its evaluation.

use crate::expr::parse::UnaryOperator;
use crate::expr::value::{ExprInput, ExprType, ExprValue, NoResult, SampleVariable};
use crate::glob::glob;
use crate::tep::format::field::{Field, Int32, Int64};
use crate::tep::operators::BinaryOperator;
use crate::tep::types::IntType;

/// Limit of the values on the stack of an evaluation. Most expressions need far fewer.
pub const MAX_STACK: usize = 64;
/// Stack size for most expressions: small, since the stack is cleared for each evaluation.
const SMALL_STACK: usize = 8;

/// An expression over the records of one event.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) steps: Box<[ExprStep]>,
    /// The bytes of all text literals.
    pub(super) texts: Box<[u8]>,
    pub(super) ty: ExprType,
    /// The largest number of values on the stack.
    pub(super) depth: usize,
    /// The fields and variables that the program reads, with their types, each once.
    pub(super) reads: Vec<String>,
    /// Set when the program is one load of an 8-byte field, as most are.
    pub(super) single_load: Option<Int64>,
    /// Set when the program is one load of a 4-byte number, and whether that has a sign.
    pub(super) single_int: Option<(Int32, bool)>,
}

/// One step, on a stack of values. Jumps lead forwards only, so every program ends.
#[derive(Clone, Debug)]
pub enum ExprStep {
    Push(u64),
    Load(Field),
    SampleVariable(SampleVariable),
    /// Offset of the data that a field locates.
    Offset(Field),
    /// Length of the data that a field locates.
    Length(Field),
    /// Replaces an index by the element of an array.
    Element(Field),
    /// Pushes a [`TextSpan`].
    Text(Field),
    /// Pops an index and a text, pushes the byte.
    Byte,
    Unary(UnaryOperator),
    /// A binary operator. `bool`: unsigned.
    Binary(BinaryOperator, bool),
    Cast(IntType),
    /// Pops two texts, pushes whether they are equal, or the opposite.
    SameText(bool),
    /// Pops a pattern and a text.
    Glob,
    /// Pops a number of bytes and two texts, pushes -1, 0 or 1.
    ComparePrefixes,
    /// Converts from network byte order.
    FromNetwork16,
    FromNetwork32,
    /// Replaces a value by 1, or 0 when it is 0.
    Truth,
    /// Pops a value, and jumps when it is 0.
    JumpIfZero(usize),
    /// Pops a value. If its truth equals the `bool`, pushes that as 1 or 0 and jumps.
    JumpKeeping(bool, usize),
    Jump(usize),
}

/// A text on the stack: a range of the record, or of the program's own texts.
#[derive(Clone, Copy)]
pub struct TextSpan {
    is_literal: bool,
    start: u32,
    len: u32,
}

impl TextSpan {
    const LITERAL: u64 = 1 << 63;

    /// None for a span beyond 2 GiB.
    pub fn new(is_literal: bool, start: usize, len: usize) -> Option<TextSpan> {
        let fits = |number: usize| u32::try_from(number).ok().filter(|number| *number < 1 << 31);
        Some(TextSpan { is_literal, start: fits(start)?, len: fits(len)? })
    }

    pub fn bits(self) -> u64 {
        let literal = if self.is_literal { Self::LITERAL } else { 0 };
        literal | u64::from(self.start) << 31 | u64::from(self.len)
    }

    fn of(bits: u64) -> TextSpan {
        let low = |bits: u64| (bits & ((1 << 31) - 1)) as u32;
        TextSpan { is_literal: bits & Self::LITERAL != 0, start: low(bits >> 31), len: low(bits) }
    }

    fn get<'a>(self, raw: &'a [u8], texts: &'a [u8]) -> Result<&'a [u8], NoResult> {
        let (all, start) = (if self.is_literal { texts } else { raw }, self.start as usize);
        all.get(start..start + self.len as usize).ok_or(NoResult::Missing)
    }
}

/// A number at a fixed offset in each record.
#[derive(Clone, Copy, Debug)]
pub enum NumberPlace {
    Signed4(Int32),
    Unsigned4(Int32),
    Bytes8(Int64),
}

impl NumberPlace {
    /// # Errors
    /// The record ends before the number does.
    #[inline(always)]
    pub fn read(self, raw: &[u8]) -> Result<u64, NoResult> {
        let number = match self {
            NumberPlace::Signed4(field) => field.read(raw).map(|number| i64::from(number) as u64),
            NumberPlace::Unsigned4(field) => field.read(raw).map(|number| u64::from(number as u32)),
            NumberPlace::Bytes8(field) => field.read(raw),
        };
        number.map_err(|_| NoResult::Missing)
    }
}

impl Program {
    /// The field, when the program is one load of an 8-byte field.
    pub fn single_load(&self) -> Option<Int64> {
        self.single_load
    }

    /// The place of the value, when the program is one load of a number of 4 or 8 bytes.
    pub fn number_place(&self) -> Option<NumberPlace> {
        let place = match (self.single_int, self.single_load) {
            (Some((field, true)), _) => NumberPlace::Signed4(field),
            (Some((field, false)), _) => NumberPlace::Unsigned4(field),
            (None, field) => NumberPlace::Bytes8(field?),
        };
        matches!(self.ty, ExprType::Signed | ExprType::Unsigned).then_some(place)
    }

    pub fn ty(&self) -> ExprType {
        self.ty
    }

    /// The fields and variables that the program reads, as messages show them: `prio (int)`.
    pub fn reads(&self) -> &[String] {
        &self.reads
    }

    /// The number for a record. None: the program has no value for the record, or the value is no number.
    #[inline(always)]
    pub fn eval<'r>(&self, input: &impl ExprInput<'r>) -> Option<u64> {
        match self.single_load {
            Some(field) => field.read(input.raw()).ok(),
            None => self.number(input).ok(),
        }
    }

    /// Whether the number for a record is not 0.
    ///
    /// # Errors
    /// The program has no value for the record.
    #[inline]
    pub fn holds<'r>(&self, input: &impl ExprInput<'r>) -> Result<bool, NoResult> {
        self.number(input).map(|bits| bits != 0)
    }

    /// The value for a record.
    ///
    /// # Errors
    /// A field is not in the record, or an operation has no result.
    pub fn value<'a, 'r: 'a>(&'a self, input: &impl ExprInput<'r>) -> Result<ExprValue<'a>, NoResult> {
        let bits = match self.single_int {
            Some((field, is_signed)) => {
                let number = field.read(input.raw()).map_err(|_| NoResult::Missing)?;
                if is_signed { i64::from(number) as u64 } else { u64::from(number as u32) }
            }
            None => self.run(input)?,
        };
        Ok(match self.ty {
            ExprType::Signed => ExprValue::Signed(bits as i64),
            ExprType::Unsigned => ExprValue::Unsigned(bits),
            ExprType::Text => ExprValue::Text(TextSpan::of(bits).get(input.raw(), &self.texts)?),
            ExprType::Named(naming) => ExprValue::Named(naming, bits),
        })
    }

    fn number<'r>(&self, input: &impl ExprInput<'r>) -> Result<u64, NoResult> {
        match self.ty {
            ExprType::Signed | ExprType::Unsigned => self.run(input),
            ExprType::Text | ExprType::Named(_) => Err(NoResult::Missing),
        }
    }

    /// Runs the program. Returns the bits of its result.
    fn run<'r>(&self, input: &impl ExprInput<'r>) -> Result<u64, NoResult> {
        match &*self.steps {
            [ExprStep::Load(field)] => load(field, input.raw()),
            _ if self.depth <= SMALL_STACK => Evaluation::<SMALL_STACK>::new(self, input.raw()).run(input),
            _ => Evaluation::<MAX_STACK>::new(self, input.raw()).run(input),
        }
    }
}

#[inline]
fn load(field: &Field, raw: &[u8]) -> Result<u64, NoResult> {
    field.read_i64(raw).map(|value| value as u64).map_err(|_| NoResult::Missing)
}

/// The state of one evaluation.
struct Evaluation<'a, const DEPTH: usize> {
    program: &'a Program,
    raw: &'a [u8],
    slots: [u64; DEPTH],
    used: usize,
}

impl<'a, const DEPTH: usize> Evaluation<'a, DEPTH> {
    fn new(program: &'a Program, raw: &'a [u8]) -> Self {
        Evaluation { program, raw, slots: [0; DEPTH], used: 0 }
    }

    fn run<'r>(mut self, input: &impl ExprInput<'r>) -> Result<u64, NoResult> {
        let mut at = 0;
        while let Some(step) = self.program.steps.get(at) {
            at += 1;
            match step {
                ExprStep::JumpIfZero(to) => {
                    if self.pop()? == 0 {
                        at = *to;
                    }
                }
                ExprStep::JumpKeeping(when, to) => {
                    if (self.pop()? != 0) == *when {
                        self.push(u64::from(*when))?;
                        at = *to;
                    }
                }
                ExprStep::Jump(to) => at = *to,
                step => {
                    let value = self.step(step, input)?;
                    self.push(value)?;
                }
            }
        }
        self.pop()
    }

    /// The value that a step pushes.
    #[inline(always)]
    fn step<'r>(&mut self, step: &ExprStep, input: &impl ExprInput<'r>) -> Result<u64, NoResult> {
        Ok(match step {
            ExprStep::Push(bits) => *bits,
            ExprStep::Load(field) => load(field, self.raw)?,
            ExprStep::SampleVariable(variable) => input.variable(*variable).ok_or(NoResult::Missing)?,
            ExprStep::Offset(field) => self.located(field)?.0,
            ExprStep::Length(field) => self.located(field)?.1,
            ExprStep::Element(field) => {
                let index = self.pop()?;
                field.element(self.raw, index).map_err(|_| NoResult::Index)?
            }
            ExprStep::Text(field) => self.text_of(field)?,
            ExprStep::Byte => {
                let index = usize::try_from(self.pop()?).map_err(|_| NoResult::Index)?;
                let text = self.pop_text()?;
                // As in C, the byte at the end of a text is a NUL.
                let byte = text.get(index).copied().or((index == text.len()).then_some(0));
                u64::from(byte.ok_or(NoResult::Index)?)
            }
            ExprStep::Unary(unary) => {
                let value = self.pop()?;
                match unary {
                    UnaryOperator::Minus => value.wrapping_neg(),
                    UnaryOperator::Complement => !value,
                    UnaryOperator::Not => u64::from(value == 0),
                }
            }
            ExprStep::Binary(binary, unsigned) => {
                let right = self.pop()?;
                let left = self.pop()?;
                apply(*binary, *unsigned, left, right)?
            }
            ExprStep::Cast(ty) => ty.convert(self.pop()?),
            ExprStep::SameText(wanted) => {
                let (left, right) = self.pop_texts()?;
                u64::from((left == right) == *wanted)
            }
            ExprStep::Glob => {
                let (text, pattern) = self.pop_texts()?;
                u64::from(glob(pattern, text))
            }
            ExprStep::ComparePrefixes => {
                let most = usize::try_from(self.pop()?).unwrap_or(usize::MAX);
                let (left, right) = self.pop_texts()?;
                let cut = |text: &'a [u8]| text.get(..most).unwrap_or(text);
                i64::from(cut(left).cmp(cut(right)) as i8) as u64
            }
            ExprStep::FromNetwork16 => u64::from(u16::from_be(self.pop()? as u16)),
            ExprStep::FromNetwork32 => u64::from(u32::from_be(self.pop()? as u32)),
            ExprStep::Truth => u64::from(self.pop()? != 0),
            ExprStep::JumpIfZero(_) | ExprStep::JumpKeeping(..) | ExprStep::Jump(_) => 0, // jumps are handled elsewhere
        })
    }

    fn located(&self, field: &Field) -> Result<(u64, u64), NoResult> {
        let (start, len) = field.location(self.raw).ok_or(NoResult::Missing)?.map_err(|_| NoResult::Missing)?;
        Ok((start as u64, len as u64))
    }

    fn text_of(&self, field: &Field) -> Result<u64, NoResult> {
        let text = field.text(self.raw).map_err(|_| NoResult::Missing)?;
        let start = text.as_ptr().addr().wrapping_sub(self.raw.as_ptr().addr()); // the text is a part of the record
        TextSpan::new(false, start, text.len()).map(TextSpan::bits).ok_or(NoResult::Missing)
    }

    #[inline(always)]
    fn push(&mut self, value: u64) -> Result<(), NoResult> {
        *self.slots.get_mut(self.used).ok_or(NoResult::Missing)? = value;
        self.used += 1;
        Ok(())
    }

    #[inline(always)]
    fn pop(&mut self) -> Result<u64, NoResult> {
        self.used = self.used.checked_sub(1).ok_or(NoResult::Missing)?;
        self.slots.get(self.used).copied().ok_or(NoResult::Missing)
    }

    fn pop_text(&mut self) -> Result<&'a [u8], NoResult> {
        let span = TextSpan::of(self.pop()?);
        span.get(self.raw, &self.program.texts)
    }

    fn pop_texts(&mut self) -> Result<(&'a [u8], &'a [u8]), NoResult> {
        let right = self.pop_text()?;
        Ok((self.pop_text()?, right))
    }
}

/// # Errors
/// The operation has no result.
pub(super) fn apply(binary: BinaryOperator, unsigned: bool, left: u64, right: u64) -> Result<u64, NoResult> {
    use BinaryOperator::{Divide, Remainder, ShiftLeft, ShiftRight};
    match binary {
        Divide | Remainder if right == 0 => Err(NoResult::DivisionByZero),
        ShiftLeft | ShiftRight if right >= u64::BITS.into() => Err(NoResult::Shift),
        _ => Ok(binary.apply(left, right, IntType { size: 8, signed: !unsigned })),
    }
}
