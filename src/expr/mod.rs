//! Expressions over the fields of an event, `4096<<order` or `comm ~ "java*" && pid < prio`: parsed once, compiled once
//! to a small program, evaluated per sample without allocation. `literals` and `constants` parse literals and named
//! constants, `value` has inputs and results, `kernel` turns expressions into kernel filters.
//!
//! A value is a number or a text. Numbers have 64 bits that wrap around, as in C. Fields and literals that need all 64
//! bits unsigned make `/ % >> < <= > >=` unsigned. Text ends at its first NUL, in a record and between quotes. A division
//! by zero, a shift by less than 0 or more than 63 bits, an index out of bounds and a record that ends before the field
//! have no value; nothing panics, and nothing but the record is read.
//!
//! ```text
//! EXPR    = OR [ "?" EXPR ":" EXPR ]
//! levels  = "||"  "&&"  "|"  "^"  "&"  "== !="  "< <= > >= ~"  "<< >>"  "+ -"  "* / %"  prefix "- + ~ ! (TYPE)"
//! POSTFIX = PRIMARY { "[" EXPR "]" }
//! PRIMARY = NAME | 10 | 0x1f | 017 | 'c' | "text" | "sizeof(" TYPE ")" | NAME "(" [ EXPR { "," EXPR } ] ")" | "(" EXPR ")"
//! ```

mod compile;
mod constants;
mod kernel;
mod literals;
mod parse;
mod program;
mod value;

use std::fmt;

use crate::caret::caret;
use crate::tep::{Filter, Format};

pub use literals::quoted;
pub use program::{NumberPlace, Program};
pub use value::{ExprInput, ExprType, ExprValue, Naming, NoResult, NoResultCounts, SampleVariable};

/// A parsed expression. [`Expr::compile`] checks whether an event has its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    text: String,
    root: parse::ExprNode,
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    message: String,
    text: String,
    offset: usize,
    unknown_field: bool,
}

impl ExprError {
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Byte offset of the fault in the text.
    pub fn at(&self) -> usize {
        self.offset
    }

    /// The text is an expression over another event: it names a field that this event lacks.
    pub fn is_unknown_field(&self) -> bool {
        self.unknown_field
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, caret(&self.text, self.offset, 2))
    }
}

impl std::error::Error for ExprError {}

impl Expr {
    /// # Errors
    /// The text is no expression; the error says where.
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        match parse::parse(text) {
            Ok(root) => Ok(Expr { text: text.to_owned(), root }),
            Err((message, at)) => Err(ExprError { message, text: text.to_owned(), offset: at, unknown_field: false }),
        }
    }

    /// The text as typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Compiles the expression for the records of an event.
    ///
    /// # Errors
    /// The event lacks a field, or a number stands where text is needed, or the other way round; the error says where.
    pub fn compile(&self, format: &Format) -> Result<Program, ExprError> {
        compile::compile(&self.root, format).map_err(|fault| ExprError {
            unknown_field: fault.unknown_field,
            ..self.error(fault.message, fault.offset)
        })
    }

    /// As [`Expr::compile`], for an expression whose value must be a number.
    ///
    /// # Errors
    /// As [`Expr::compile`]; the value is no number.
    pub fn compile_number(&self, format: &Format) -> Result<Program, ExprError> {
        let program = self.compile(format)?;
        match program.ty() {
            ty if ty.is_number() => Ok(program),
            ty => Err(self.error(format!("this is {ty}, and a number is needed"), self.root.offset)),
        }
    }

    /// A kernel filter that is equivalent to the expression, if one is known, even if it is too long for the kernel.
    pub fn kernel_filter(&self, format: &Format) -> Option<Filter> {
        kernel::filter(&self.root, format)
    }

    fn error(&self, message: String, at: usize) -> ExprError {
        ExprError { message, text: self.text.clone(), offset: at, unknown_field: false }
    }
}

#[cfg(test)]
mod tests;
