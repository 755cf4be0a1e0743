//! Expressions over the fields of an event, `4096<<order`: parsed once, compiled once to a small program, evaluated per
//! sample without allocation.
//!
//! Values are whole numbers of 64 bits that wrap around, as in C. Fields and literals that need all 64 bits unsigned
//! make `/ % >> < <= > >=` unsigned. A division by zero, a shift by less than 0 or more than 63 bits and a record that
//! ends before the field have no value; nothing panics.
//!
//! ```text
//! EXPR    = OR [ "?" EXPR ":" EXPR ]
//! levels  = "||"  "&&"  "|"  "^"  "&"  "== !="  "< <= > >="  "<< >>"  "+ -"  "* / %"  unary "- + ~ !"
//! PRIMARY = FIELD | 10 | 0x1f | 017 | "(" EXPR ")"
//! ```

mod parse;
mod program;

use std::fmt;

use crate::caret::caret;
use crate::tep::Format;

pub use program::Program;

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
    at: usize,
    unknown_field: bool,
}

impl ExprError {
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Byte offset of the fault in the text.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The text is an expression, but of another event: it names a field that this one lacks.
    pub fn is_unknown_field(&self) -> bool {
        self.unknown_field
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, caret(&self.text, self.at, 2))
    }
}

impl std::error::Error for ExprError {}

impl Expr {
    /// # Errors
    /// The text is no expression; the error says where.
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        match parse::parse(text) {
            Ok(root) => Ok(Expr { text: text.to_owned(), root }),
            Err((message, at)) => Err(ExprError { message, text: text.to_owned(), at, unknown_field: false }),
        }
    }

    /// The expression over the records of an event.
    ///
    /// # Errors
    /// The event lacks a field, or a field is no number; the error says where.
    pub fn compile(&self, format: &Format) -> Result<Program, ExprError> {
        program::compile(&self.root, format).map_err(|fault| ExprError {
            message: fault.message,
            text: self.text.clone(),
            at: fault.at,
            unknown_field: fault.unknown_field,
        })
    }
}

#[cfg(test)]
mod tests;
