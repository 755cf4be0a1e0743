//! Parses the arguments of a `print fmt`: C expressions with the kernel's own functions in them.

mod calls;
mod constants;
mod functions;

use crate::tep::format::Format;
use crate::tep::format::field::{Field, FieldKind};
use crate::tep::operators::BinaryOperator;
use crate::tep::print_fmt::Unsupported;
use crate::tep::print_fmt::expr::{CExpr, COp, CType, CUnary};
use crate::tep::print_fmt::lexer::{Lexer, Token};
use crate::tep::types::{self, IntType};

/// Nesting of expressions and operands; a pair of parentheses takes two levels.
const MAX_NESTING: u32 = 128;
/// Operands read in all. Without a limit, going back to each parenthesis that was no cast could take for ever.
const MAX_STEPS: u32 = 50_000;
const RECORD: &str = "the record itself";
const COMPOUND_LITERAL: &str = "compound literal";

pub struct ArgumentParser<'a> {
    pub lexer: Lexer<'a>,
    pub format: &'a Format,
    pub long: usize,
    /// Table entries that had to be left out, and why.
    pub left_out: Vec<String>,
    /// The variables of the statement expression that is being read.
    locals: Vec<(&'a str, CExpr)>,
    /// The member that the compound literal just read sets, and its value.
    literal: Option<(&'a str, CExpr)>,
    nesting: u32,
    steps: u32,
}

/// One argument, and its source.
pub struct Argument<'a> {
    pub expr: CExpr,
    pub source: &'a str,
}

impl<'a> ArgumentParser<'a> {
    pub fn new(format: &'a Format, lexer: Lexer<'a>) -> Self {
        let (left_out, locals) = (Vec::new(), Vec::new());
        ArgumentParser {
            lexer,
            format,
            long: format.long_size(),
            left_out,
            locals,
            literal: None,
            nesting: 0,
            steps: 0,
        }
    }

    /// `, a, b, c` up to the end of the text.
    pub fn arguments(&mut self) -> Result<Vec<Argument<'a>>, Unsupported> {
        let mut all = Vec::new();
        while self.lexer.eat(",") {
            if self.lexer.peek()? == Token::End {
                break; // `"text", ` with nothing behind
            }
            let source = self.lexer.rest();
            let expr = self.expression()?;
            let end = source.len().saturating_sub(self.lexer.rest().len());
            all.push(Argument { expr, source: source.get(..end).unwrap_or_default() });
        }
        match self.lexer.peek()? {
            Token::End => Ok(all),
            _ => Err(Unsupported::new(format!("syntax at {:?}", self.lexer.excerpt()))),
        }
    }

    pub fn expression(&mut self) -> Result<CExpr, Unsupported> {
        self.nested(Self::ternary)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Unsupported>) -> Result<T, Unsupported> {
        self.steps += 1;
        if self.nesting >= MAX_NESTING || self.steps > MAX_STEPS {
            return Err(Unsupported::new("an expression too deep"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    /// A clone of `expr`. Copies of copies grow fast, so each part of a copy counts as an operand read.
    pub fn copy(&mut self, expr: &CExpr) -> Result<CExpr, Unsupported> {
        let mut size = 0u32;
        expr.walk(&mut |_| size = size.saturating_add(1));
        self.steps = self.steps.saturating_add(size);
        if self.steps > MAX_STEPS { Err(Unsupported::new("an expression too deep")) } else { Ok(expr.clone()) }
    }

    fn ternary(&mut self) -> Result<CExpr, Unsupported> {
        let condition = self.binary(0)?;
        if !self.lexer.eat("?") {
            return Ok(condition);
        }
        if self.lexer.eat(":") {
            let no = self.expression()?; // GNU `a ?: b`
            let yes = self.copy(&condition)?;
            return CExpr::choose(condition, yes, no);
        }
        let yes = self.expression()?;
        self.lexer.expect(":")?;
        let no = self.expression()?;
        CExpr::choose(condition, yes, no)
    }

    /// Operators of at least this precedence, from left to right.
    fn binary(&mut self, least: u8) -> Result<CExpr, Unsupported> {
        let mut left = self.nested(Self::unary)?;
        while let Some((op, precedence)) = self.peek_operator()?.filter(|&(_, precedence)| precedence >= least) {
            self.lexer.next()?;
            let right = self.binary(precedence + 1)?; // at most 10 levels
            left = CExpr::binary(op, left, right)?;
        }
        Ok(left)
    }

    fn peek_operator(&self) -> Result<Option<(BinaryOperator, u8)>, Unsupported> {
        let Token::Mark(mark) = self.lexer.peek()? else { return Ok(None) };
        Ok(Some(match mark {
            "||" => (BinaryOperator::EitherTrue, 0),
            "&&" => (BinaryOperator::BothTrue, 1),
            "|" => (BinaryOperator::BitOr, 2),
            "^" => (BinaryOperator::BitXor, 3),
            "&" => (BinaryOperator::BitAnd, 4),
            "==" => (BinaryOperator::Equal, 5),
            "!=" => (BinaryOperator::NotEqual, 5),
            "<" => (BinaryOperator::Less, 6),
            "<=" => (BinaryOperator::LessEqual, 6),
            ">" => (BinaryOperator::Greater, 6),
            ">=" => (BinaryOperator::GreaterEqual, 6),
            "<<" => (BinaryOperator::ShiftLeft, 7),
            ">>" => (BinaryOperator::ShiftRight, 7),
            "+" => (BinaryOperator::Add, 8),
            "-" => (BinaryOperator::Subtract, 8),
            "*" => (BinaryOperator::Multiply, 9),
            "/" => (BinaryOperator::Divide, 9),
            "%" => (BinaryOperator::Remainder, 9),
            _ => return Ok(None),
        }))
    }

    fn unary(&mut self) -> Result<CExpr, Unsupported> {
        if let Token::Mark(mark) = self.lexer.peek()? {
            let op = match mark {
                "-" => Some(CUnary::Negate),
                "~" => Some(CUnary::Invert),
                "!" => Some(CUnary::Not),
                _ => None,
            };
            if let Some(op) = op {
                self.lexer.next()?;
                return CExpr::unary(op, self.nested(Self::unary)?);
            }
            match mark {
                "+" => {
                    self.lexer.next()?;
                    return self.nested(Self::unary);
                }
                "*" => {
                    self.lexer.next()?;
                    return CExpr::deref(self.nested(Self::unary)?);
                }
                "&" => {
                    self.lexer.next()?;
                    return self.nested(Self::unary).map(address_of);
                }
                "(" => {
                    if let Some(ty) = self.cast_type()? {
                        if self.lexer.eat("{") {
                            return self.compound_literal(ty);
                        }
                        let operand = self.nested(Self::unary)?;
                        return match ty {
                            Ok(ty) => CExpr::cast(operand, ty),
                            Err(name) => Ok(CExpr::bad(format!("type {name}"))),
                        };
                    }
                }
                _ => {}
            }
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    fn primary(&mut self) -> Result<CExpr, Unsupported> {
        match self.lexer.next()? {
            Token::Number(value, ty) => Ok(CExpr::constant(value, ty)),
            Token::Text(mut text) => {
                while let Token::Text(more) = self.lexer.peek()? {
                    self.lexer.next()?;
                    text.extend(more);
                }
                Ok(CExpr::leaf(COp::Literal(text), CType::Text))
            }
            Token::Mark("(") if self.lexer.eat("{") => self.statement_expression(),
            Token::Mark("(") => {
                let inner = self.expression()?;
                self.lexer.expect(")")?;
                Ok(inner)
            }
            Token::Word("REC") if self.lexer.eat("->") => {
                let name = self.lexer.word()?;
                Ok(self.field(name))
            }
            Token::Word("REC") => Ok(CExpr::bad(RECORD)),
            Token::Word("sizeof") => self.size_of(),
            Token::Word("true") => Ok(CExpr::constant(1, IntType::INT)),
            Token::Word("false" | "NULL") => Ok(CExpr::constant(0, IntType::INT)),
            Token::Word(name) if self.lexer.eat("(") => self.call(name),
            Token::Word(name) => self.name(name),
            Token::Mark(mark) => Err(Unsupported::new(format!("syntax: `{mark}` before {:?}", self.lexer.excerpt()))),
            Token::End => Err(Unsupported::new("syntax: the text ends too early")),
        }
    }

    fn field(&self, name: &str) -> CExpr {
        self.format.field(name).map_or_else(|| CExpr::bad(format!("field {name}")), field_value)
    }

    fn name(&mut self, name: &str) -> Result<CExpr, Unsupported> {
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, value)| value.clone());
        match local {
            Some(value) => self.copy(&value),
            None => Ok(constants::value(name, &self.format.print_fmt)
                .map_or_else(|| CExpr::bad(format!("name {name}")), |value| CExpr::constant(value, IntType::INT))),
        }
    }

    /// `({ int x = a; int y = b; x < y ? x : y; })`, what the kernel's `min()` expands to, with the checks that the
    /// compiler has made.
    fn statement_expression(&mut self) -> Result<CExpr, Unsupported> {
        let (start, outer) = (self.lexer.clone(), self.locals.len());
        let result = self.nested(Self::statements);
        self.locals.truncate(outer);
        match result {
            Ok(value) => Ok(value),
            Err(_) => {
                self.lexer = start;
                self.lexer.skip_to_close()?;
                self.lexer.expect(")")?;
                Ok(CExpr::bad("statement expression"))
            }
        }
    }

    fn statements(&mut self) -> Result<CExpr, Unsupported> {
        loop {
            if self.check()? {
                if self.lexer.eat("}") {
                    self.lexer.expect(")")?;
                    return Ok(CExpr::constant(0, IntType::INT)); // nothing but checks: void in C
                }
                continue;
            }
            let start = self.lexer.clone();
            let ty = if self.eat_word("__auto_type") { None } else { Some(self.type_name()?) };
            if !matches!(ty, Some(None | Some(Err(_))))
                && let Ok(name) = self.lexer.word()
                && self.lexer.eat("=")
            {
                let value = self.expression()?;
                let value = if let Some(Some(Ok(ty))) = ty { CExpr::cast(value, ty)? } else { value };
                self.lexer.expect(";")?;
                self.locals.push((name, value));
                continue;
            }
            self.lexer = start;
            let value = self.expression()?;
            self.lexer.expect(";")?;
            if !self.lexer.eat("}") {
                match value.fault() {
                    None => continue, // computed and dropped
                    Some(reason) => return Err(Unsupported::new(reason)),
                }
            }
            self.lexer.expect(")")?;
            return Ok(value);
        }
    }

    /// Skips a statement that only the compiler needed: `BUILD_BUG_ON`, `(void) (&x == &y);`, `static_assert`.
    fn check(&mut self) -> Result<bool, Unsupported> {
        let start = self.lexer.clone();
        if self.eat_word("do") && self.lexer.eat("{") {
            let body = self.lexer.rest();
            self.lexer.skip_to_close()?;
            let body = body.get(..body.len().saturating_sub(self.lexer.rest().len())).unwrap_or_default();
            if body.contains("__compiletime_assert") && self.eat_word("while") && self.lexer.eat("(") {
                self.lexer.skip_to_close()?;
                if self.lexer.eat(";") {
                    return Ok(true);
                }
            }
        }
        self.lexer = start.clone();
        let asserts = self.eat_word("_Static_assert") || self.eat_word("static_assert");
        let dropped = !asserts && self.lexer.eat("(") && self.eat_word("void") && self.lexer.eat(")");
        if (asserts || dropped) && self.lexer.eat("(") {
            self.lexer.skip_to_close()?;
            if self.lexer.eat(";") {
                return Ok(true);
            }
        }
        self.lexer = start;
        Ok(false)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        self.lexer.peek() == Ok(Token::Word(word)) && self.lexer.next().is_ok()
    }

    /// `((ktime_t) { .tv64 = REC->expires }).tv64`, whose brace is read: a number put into a struct, which
    /// [`Self::postfix`] takes out again.
    fn compound_literal(&mut self, ty: Result<CType, String>) -> Result<CExpr, Unsupported> {
        let start = self.lexer.clone();
        self.literal = self.member_set_to(ty).unwrap_or_default();
        if self.literal.is_none() {
            self.lexer = start;
            self.lexer.skip_to_close()?;
        }
        Ok(CExpr::bad(COMPOUND_LITERAL))
    }

    fn member_set_to(&mut self, ty: Result<CType, String>) -> Result<Option<(&'a str, CExpr)>, Unsupported> {
        let Ok(CType::Int(ty)) = ty else { return Ok(None) };
        self.lexer.expect(".")?;
        let member = self.lexer.word()?;
        self.lexer.expect("=")?;
        let value = self.expression()?;
        self.lexer.expect("}")?;
        Ok(Some((member, CExpr::cast(value, CType::Int(ty))?)))
    }

    fn postfix(&mut self, mut expr: CExpr) -> Result<CExpr, Unsupported> {
        loop {
            if self.lexer.eat("[") {
                let index = self.expression()?;
                self.lexer.expect("]")?;
                let at = CExpr::binary(BinaryOperator::Add, expr, index)?;
                expr = if matches!(at.ty, CType::Pointer(_)) {
                    CExpr::deref(at)?
                } else {
                    CExpr::bad("index into no array")
                };
            } else if matches!(&expr.op, COp::Bad(reason) if reason == RECORD) && self.lexer.eat("->") {
                let name = self.lexer.word()?;
                expr = self.field(name); // `(REC)->field`
            } else if self.lexer.eat(".") || self.lexer.eat("->") {
                let member = self.lexer.word()?;
                let of_literal = matches!(&expr.op, COp::Bad(reason) if reason == COMPOUND_LITERAL);
                expr = match self.literal.take().filter(|(name, _)| of_literal && *name == member) {
                    Some((_, value)) => value,
                    None => CExpr::bad(format!("member {member}")),
                };
            } else {
                return Ok(expr);
            }
        }
    }

    /// After `sizeof`: a type or an expression in parentheses.
    fn size_of(&mut self) -> Result<CExpr, Unsupported> {
        let size = |size: usize, long| Ok(CExpr::constant(size as u64, IntType::unsigned(long)));
        match self.cast_type()? {
            Some(Ok(CType::Int(ty))) => return size(ty.size, self.long),
            Some(Ok(_)) => return size(self.long, self.long),
            Some(Err(name)) => return Ok(CExpr::bad(format!("size of {name}"))),
            None => {}
        }
        if let Some(bytes) = self.struct_of_checks()? {
            return size(bytes, self.long);
        }
        let operand = self.nested(Self::unary)?;
        match (&operand.op, operand.ty) {
            (COp::Bad(_), _) => Ok(operand),
            (COp::Place { size: bytes, .. }, _) => size(*bytes, self.long),
            (COp::Literal(text), _) => size(text.len() + 1, self.long),
            (_, CType::Int(ty)) => size(ty.size, self.long),
            (_, _) => size(self.long, self.long),
        }
    }

    /// `(struct { int:-!!(condition); })`: a check that the compiler has made, of size 0.
    fn struct_of_checks(&mut self) -> Result<Option<usize>, Unsupported> {
        let start = self.lexer.clone();
        if self.lexer.eat("(") && self.lexer.word() == Ok("struct") && self.lexer.eat("{") {
            let check = self.lexer.word() == Ok("int") && self.lexer.eat(":");
            self.lexer.skip_to_close()?;
            if check && self.lexer.eat(")") {
                return Ok(Some(0));
            }
        }
        self.lexer = start;
        Ok(None)
    }

    /// `( TYPE )` if that comes next: the type, or the name of a type of unknown size.
    fn cast_type(&mut self) -> Result<Option<Result<CType, String>>, Unsupported> {
        let start = self.lexer.clone();
        if self.lexer.eat("(") {
            let ty = self.type_name()?;
            if ty.is_some() && self.lexer.eat(")") {
                return Ok(ty);
            }
        }
        self.lexer = start;
        Ok(None)
    }

    fn type_name(&mut self) -> Result<Option<Result<CType, String>>, Unsupported> {
        let mut words: Vec<&str> = Vec::new();
        let mut of_expression = None;
        while let Token::Word(word) = self.lexer.peek()? {
            let tagged = words.last().is_some_and(|last| matches!(*last, "struct" | "union" | "enum"));
            let named = words.iter().any(|word| !types::is_qualifier(word));
            let continues = types::is_qualifier(word) || types::is_basic(word) && !named_only(&words);
            if named && !tagged && !continues || of_expression.is_some() && !types::is_qualifier(word) {
                break;
            }
            self.lexer.next()?;
            if matches!(word, "typeof" | "__typeof__" | "__typeof" | "typeof_unqual") {
                of_expression = Some(self.type_of()?);
            } else {
                words.push(word);
            }
        }
        let mut pointers = 0;
        while self.lexer.eat("*") {
            pointers += 1;
            while let Token::Word(word) = self.lexer.peek()? {
                if !types::is_qualifier(word) {
                    break;
                }
                self.lexer.next()?;
            }
        }
        let Some(&last) = words.last().or(of_expression.is_some().then_some(&"typeof")) else { return Ok(None) };
        let base = match of_expression {
            Some(CType::Int(ty)) => Some(ty),
            Some(other) => return Ok(Some(Ok(other))),
            None => self
                .declared_type(last)
                .filter(|_| words.len() == 1)
                .or_else(|| types::from_words(words.iter().copied(), self.long)),
        };
        let looks_like_type = base.is_some()
            || pointers > 0
            || matches!(words.first(), Some(&("struct" | "union" | "enum" | "const")))
            || last == "void"
            || last.ends_with("_t");
        Ok(match (pointers, base) {
            _ if !looks_like_type => None,
            (0, Some(ty)) => Some(Ok(CType::Int(ty))),
            (0, None) => Some(Err(words.join(" "))),
            (1, ty) => Some(Ok(CType::Pointer(ty))),
            (_, _) => Some(Ok(CType::Pointer(Some(IntType::unsigned(self.long))))),
        })
    }

    /// The type of a typedef with which a field of the event is declared: the field has its size.
    fn declared_type(&self, name: &str) -> Option<IntType> {
        let field = self.format.fields.iter().find(|field| field.declared == name && field.kind == FieldKind::Int)?;
        field.int_type()
    }

    /// `(EXPR)` or `(TYPE)` after `typeof`.
    fn type_of(&mut self) -> Result<CType, Unsupported> {
        if let Some(ty) = self.nested(Self::cast_type)? {
            return ty.map_err(|name| Unsupported::new(format!("type {name}")));
        }
        self.lexer.expect("(")?;
        let operand = self.expression()?;
        self.lexer.expect(")")?;
        Ok(operand.ty)
    }
}

/// Whether the words so far name a type completely: only a qualifier may follow.
fn named_only(words: &[&str]) -> bool {
    words.iter().any(|word| !types::is_qualifier(word) && !types::is_basic(word))
}

/// `REC->field` as C sees it: an integer, or a pointer to the first element.
fn field_value(field: &Field) -> CExpr {
    let place = |pointee| CExpr::leaf(COp::Place { offset: field.offset, size: field.size }, CType::Pointer(pointee));
    match field.kind {
        FieldKind::Int | FieldKind::Pointer => {
            let load = COp::Load { offset: field.offset, size: field.size };
            let ty = IntType { size: field.size, signed: field.signed };
            match field.kind {
                FieldKind::Pointer => CExpr::leaf(load, CType::Pointer(pointee(&field.declared, field.size))),
                _ => CExpr::leaf(load, CType::Int(ty)),
            }
        }
        FieldKind::Text | FieldKind::Array { .. } => place(field.int_type()),
        // The word itself, as `REC->__data_loc_name` would read it.
        FieldKind::DataLoc { .. } | FieldKind::RelLoc { .. } => {
            CExpr::leaf(COp::Load { offset: field.offset, size: 4 }, CType::Int(IntType::unsigned(4)))
        }
    }
}

fn pointee(declared: &str, long: usize) -> Option<IntType> {
    let base = declared.trim_end().strip_suffix('*')?;
    types::from_words(base.split_whitespace(), long)
}

fn address_of(operand: CExpr) -> CExpr {
    let pointee = match operand.ty {
        CType::Int(ty) => Some(ty),
        _ => None,
    };
    match operand.op {
        COp::Load { offset, size } => CExpr::leaf(COp::Place { offset, size }, CType::Pointer(pointee)),
        COp::Place { .. } => operand, // the address of an array
        COp::Deref(inner) => *inner,
        COp::Bad(_) => operand,
        _ => CExpr::bad("address of a value"),
    }
}
