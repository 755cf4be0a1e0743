//! Checks the types of an expression, and compiles its tree to a program.

use crate::expr::constants;
use crate::expr::parse::{ExprKind, ExprNode, UnaryOperator};
use crate::expr::program::{ExprStep, MAX_STACK, Program, TextSpan};
use crate::expr::value::{ExprType, Naming, SampleVariable};
use crate::tep::Format;
use crate::tep::format::field::{Field, FieldKind};
use crate::tep::format::{likeness, nearest};
use crate::tep::operators::BinaryOperator;
use crate::tep::types::IntType;

pub struct CompileFault {
    pub message: String,
    pub offset: usize,
    pub unknown_field: bool,
}

/// Functions: name, number of arguments, and usage for messages.
const FUNCTIONS: [(&str, usize, &str); 6] = [
    ("ntohl", 1, "ntohl(number)"),
    ("ntohs", 1, "ntohs(number)"),
    ("strncmp", 3, "strncmp(text, text, bytes)"),
    ("ksymbol", 1, "ksymbol(address)"),
    ("comm_get", 1, "comm_get(tid)"),
    ("syscall_name", 1, "syscall_name(number)"),
];

/// The fault of a function such as `comm_get` inside of a larger expression.
const NAME_WITHIN: &str = "only what is printed has this name: it is the whole expression or none of it";

fn fault<T>(at: usize, message: impl Into<String>) -> Result<T, CompileFault> {
    Err(CompileFault { message: message.into(), offset: at, unknown_field: false })
}

pub fn compile(root: &ExprNode, format: &Format) -> Result<Program, CompileFault> {
    let mut compiler = Compiler { format, steps: Vec::new(), texts: Vec::new(), reads: Vec::new(), used: 0, depth: 0 };
    let ty = compiler.node(root)?;
    let (single_load, single_int) = match &*compiler.steps {
        [ExprStep::Load(field)] => (field.int64().ok(), field.int32().ok().map(|int| (int, field.signed))),
        _ => (None, None),
    };
    let Compiler { steps, texts, reads, depth, .. } = compiler;
    Ok(Program { steps: steps.into(), texts: texts.into(), ty, depth, reads, single_load, single_int })
}

struct Compiler<'a> {
    format: &'a Format,
    steps: Vec<ExprStep>,
    texts: Vec<u8>,
    reads: Vec<String>,
    /// Number of values on the stack after the last step.
    used: usize,
    /// The largest such number so far.
    depth: usize,
}

impl Compiler<'_> {
    /// Appends a step that takes `pops` values and leaves one.
    fn push(&mut self, step: ExprStep, pops: usize, at: usize) -> Result<(), CompileFault> {
        self.steps.push(step);
        self.used = self.used.saturating_sub(pops) + 1;
        self.depth = self.depth.max(self.used);
        if self.depth > MAX_STACK { fault(at, "nested too deeply") } else { Ok(()) }
    }

    /// Appends the steps that push the value of `node`. Returns its type.
    fn node(&mut self, node: &ExprNode) -> Result<ExprType, CompileFault> {
        let at = node.offset;
        match &node.kind {
            ExprKind::Number { bits, unsigned } => {
                self.push(ExprStep::Push(*bits), 0, at)?;
                Ok(number_type(*unsigned))
            }
            ExprKind::Text(bytes) => {
                // As in C, a text ends at its first NUL.
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                let Some(span) = TextSpan::new(true, self.texts.len(), text.len()) else {
                    return fault(at, "too long");
                };
                self.texts.extend_from_slice(text);
                self.push(ExprStep::Push(span.bits()), 0, at)?;
                Ok(ExprType::Text)
            }
            ExprKind::Name(name) => self.name(name, at),
            ExprKind::Unary(unary, inner) => {
                let unsigned = self.number(inner)?;
                self.push(ExprStep::Unary(*unary), 1, at)?;
                Ok(number_type(unsigned && *unary != UnaryOperator::Not))
            }
            ExprKind::Binary(binary, operands) => self.binary(*binary, operands, at),
            ExprKind::Glob(operands) => {
                let [text, pattern] = &**operands;
                self.text(text)?;
                self.text(pattern)?;
                self.push(ExprStep::Glob, 2, at)?;
                Ok(ExprType::Signed)
            }
            ExprKind::Index(operands) => self.index(operands, at),
            ExprKind::Cast(ty, inner) => {
                self.number(inner)?;
                self.push(ExprStep::Cast(*ty), 1, at)?;
                Ok(number_type(*ty == IntType::U64))
            }
            ExprKind::Call(name, arguments) => self.call(name, arguments, at),
            ExprKind::And(operands) => self.logical(false, operands, at),
            ExprKind::Or(operands) => self.logical(true, operands, at),
            ExprKind::Choice(parts) => self.choice(parts),
        }
    }

    /// As [`Compiler::node`], for a node that must be a number. Returns whether it is unsigned.
    fn number(&mut self, node: &ExprNode) -> Result<bool, CompileFault> {
        match self.node(node)? {
            ExprType::Signed => Ok(false),
            ExprType::Unsigned => Ok(true),
            ExprType::Text => fault(node.offset, "this is text, and a number is needed here: an element is text[0]"),
            ExprType::Named(_) => fault(node.offset, NAME_WITHIN),
        }
    }

    fn text(&mut self, node: &ExprNode) -> Result<(), CompileFault> {
        match self.node(node)? {
            ExprType::Text => Ok(()),
            ExprType::Named(_) => fault(node.offset, NAME_WITHIN),
            ExprType::Signed | ExprType::Unsigned => {
                fault(node.offset, "this is a number, and text is needed here, as in comm ~ \"java*\"")
            }
        }
    }

    fn binary(
        &mut self,
        binary: BinaryOperator,
        operands: &[ExprNode; 2],
        offset: usize,
    ) -> Result<ExprType, CompileFault> {
        let [left, right] = operands;
        let is_equality = matches!(binary, BinaryOperator::Equal | BinaryOperator::NotEqual);
        let left_type = self.node(left)?;
        if is_equality && left_type == ExprType::Text {
            self.text(right)?;
            self.push(ExprStep::SameText(binary == BinaryOperator::Equal), 2, offset)?;
            return Ok(ExprType::Signed);
        }
        let left_unsigned = self.expect_number(left, left_type)?;
        let right_unsigned = self.number(right)?;
        let is_shift = matches!(binary, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let unsigned = left_unsigned || right_unsigned && !is_shift; // a shift has the type of its left operand
        self.push(ExprStep::Binary(binary, unsigned), 2, offset)?;
        let is_truth = is_equality
            || matches!(
                binary,
                BinaryOperator::Less
                    | BinaryOperator::LessEqual
                    | BinaryOperator::Greater
                    | BinaryOperator::GreaterEqual
            );
        Ok(number_type(unsigned && !is_truth))
    }

    /// Compiles `&&` or `||`: the right side is evaluated only if it decides the result.
    fn logical(&mut self, when: bool, operands: &[ExprNode; 2], at: usize) -> Result<ExprType, CompileFault> {
        let [left, right] = operands;
        self.number(left)?;
        let skip = self.placeholder();
        self.used -= 1;
        self.number(right)?;
        self.push(ExprStep::Truth, 1, at)?;
        self.steps[skip] = ExprStep::JumpKeeping(when, self.steps.len());
        Ok(ExprType::Signed)
    }

    fn choice(&mut self, parts: &[ExprNode; 3]) -> Result<ExprType, CompileFault> {
        let [condition, then, other] = parts;
        self.number(condition)?;
        let skip = self.placeholder();
        self.used -= 1;
        let then_type = self.node(then)?;
        let end = self.placeholder();
        self.used -= 1;
        self.steps[skip] = ExprStep::JumpIfZero(self.steps.len());
        let ty = match then_type {
            ExprType::Signed | ExprType::Unsigned => {
                let unsigned = self.number(other)?;
                number_type(unsigned || then_type == ExprType::Unsigned)
            }
            ExprType::Text => {
                self.text(other)?;
                ExprType::Text
            }
            ExprType::Named(_) if self.node(other)? == then_type => then_type,
            ExprType::Named(_) => return fault(other.offset, "both sides of the `:` must be of one type"),
        };
        self.steps[end] = ExprStep::Jump(self.steps.len());
        Ok(ty)
    }

    /// Appends a jump that is replaced when its destination is known.
    fn placeholder(&mut self) -> usize {
        self.steps.push(ExprStep::Jump(0));
        self.steps.len() - 1
    }

    /// `a[b]`: an element of an array, or a character of a text.
    fn index(&mut self, operands: &[ExprNode; 2], at: usize) -> Result<ExprType, CompileFault> {
        let [of, index] = operands;
        if let ExprKind::Name(name) = &of.kind
            && let Some(field) = self.format.field(name)
        {
            let Some(ty) = field.element_type() else {
                return fault(of.offset, format!("`{name}` is {}, which has no elements", field.declared));
            };
            let field = field.clone();
            self.number(index)?;
            self.note(&field.name, &field.declared);
            self.push(ExprStep::Element(field), 1, at)?;
            return Ok(number_type(ty == IntType::U64));
        }
        self.text(of)?;
        self.number(index)?;
        self.push(ExprStep::Byte, 2, at)?;
        Ok(ExprType::Signed)
    }

    fn call(&mut self, name: &str, arguments: &[ExprNode], at: usize) -> Result<ExprType, CompileFault> {
        let Some((_, count, form)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            let all: Vec<&str> = FUNCTIONS.iter().map(|(known, ..)| *known).collect();
            return fault(at, format!("there is no function `{name}`; there are {}", all.join(", ")));
        };
        if arguments.len() != *count {
            return fault(at, format!("write {form}"));
        }
        match arguments {
            [left, right, most] => {
                self.text(left)?;
                self.text(right)?;
                self.number(most)?;
                self.push(ExprStep::ComparePrefixes, 3, at)?;
            }
            _ => arguments.iter().try_for_each(|argument| self.number(argument).map(drop))?,
        }
        let step = match name {
            "ntohl" => ExprStep::FromNetwork32,
            "ntohs" => ExprStep::FromNetwork16,
            "ksymbol" => return Ok(ExprType::Named(Naming::Kernel)),
            "comm_get" => return Ok(ExprType::Named(Naming::Task)),
            "syscall_name" => {
                self.push(ExprStep::SampleVariable(SampleVariable::CallMode), 0, at)?;
                self.push(ExprStep::Binary(BinaryOperator::BitOr, false), 2, at)?;
                return Ok(ExprType::Named(Naming::Syscall));
            }
            _ => return Ok(ExprType::Signed),
        };
        self.push(step, 1, at)?;
        Ok(ExprType::Signed)
    }

    fn expect_number(&self, node: &ExprNode, ty: ExprType) -> Result<bool, CompileFault> {
        match ty {
            ExprType::Text => {
                fault(node.offset, "this is text: `==`, `!=` and `~` compare texts, and an element is text[0]")
            }
            ExprType::Named(_) => fault(node.offset, NAME_WITHIN),
            number => Ok(number == ExprType::Unsigned),
        }
    }

    fn note(&mut self, name: &str, declared: &str) {
        let read = if declared.is_empty() { name.to_owned() } else { format!("{name} ({declared})") };
        if !self.reads.contains(&read) {
            self.reads.push(read);
        }
    }

    /// Resolves a name: first as a field, then as a built-in variable, then as a constant.
    fn name(&mut self, name: &str, at: usize) -> Result<ExprType, CompileFault> {
        if let Some(field) = self.format.field(name) {
            return self.field(&field.clone(), at);
        }
        if let Some(variable) = SampleVariable::named(name) {
            self.note(name, "");
            self.push(ExprStep::SampleVariable(variable), 0, at)?;
            return Ok(number_type(matches!(variable, SampleVariable::Time | SampleVariable::Period)));
        }
        if let Some(step) = self.part_of_location(name) {
            self.note(name, "");
            self.push(step, 0, at)?;
            return Ok(ExprType::Signed);
        }
        let Some(value) = constants::value(name, self.format) else { return Err(self.unknown(name, at)) };
        self.push(ExprStep::Push(value), 0, at)?;
        Ok(ExprType::Signed)
    }

    /// `X_offset` and `X_len` of a field `X` that locates its data.
    fn part_of_location(&self, name: &str) -> Option<ExprStep> {
        let located = |name: &str| {
            let field = self.format.field(name)?;
            matches!(field.kind, FieldKind::DataLoc { .. } | FieldKind::RelLoc { .. }).then(|| field.clone())
        };
        if let Some(field) = name.strip_suffix("_offset").and_then(located) {
            return Some(ExprStep::Offset(field));
        }
        name.strip_suffix("_len").and_then(located).map(ExprStep::Length)
    }

    fn field(&mut self, field: &Field, at: usize) -> Result<ExprType, CompileFault> {
        if field.is_text() {
            self.note(&field.name, &field.declared);
            self.push(ExprStep::Text(field.clone()), 0, at)?;
            return Ok(ExprType::Text);
        }
        if !matches!(field.kind, FieldKind::Int | FieldKind::Pointer) {
            let example = field.element_type().map_or(String::new(), |_| format!(": an element is {}[0]", field.name));
            let event = self.format.full_name();
            return fault(at, format!("`{}` of {event} is {}, not a number{example}", field.name, field.declared));
        }
        let field = Field { signed: field.signed && field.kind == FieldKind::Int, ..field.clone() };
        let unsigned = field.size == 8 && !field.signed;
        self.note(&field.name, &field.declared);
        self.push(ExprStep::Load(field), 0, at)?;
        Ok(number_type(unsigned))
    }

    fn unknown(&self, name: &str, at: usize) -> CompileFault {
        let mut message = match self.format.require(name) {
            Ok(_) => String::new(), // the name is no field
            Err(err) => err.to_string(),
        };
        let variables = SampleVariable::ALL.iter().map(|(name, _)| *name);
        let other = nearest(name, constants::names().chain(variables), 1);
        let field = self.format.fields.iter().map(|field| likeness(name, &field.name)).max().unwrap_or(0);
        if let [other] = other[..]
            && likeness(name, other) > field
        {
            message = format!("{message}; did you mean {other}?");
        }
        CompileFault { message, offset: at, unknown_field: true }
    }
}

fn number_type(unsigned: bool) -> ExprType {
    if unsigned { ExprType::Unsigned } else { ExprType::Signed }
}
