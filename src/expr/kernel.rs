//! Expressions that the kernel can evaluate as a filter: `ret == -ENOENT` is `ret == -2` to it.

use crate::expr::compile::compile;
use crate::expr::parse::{BinaryOperator, ExprKind, ExprNode, UnaryOperator};
use crate::expr::value::ExprType;
use crate::tep::field::FieldKind;
use crate::tep::filter::quote;
use crate::tep::{Comparison, Format};

/// A filter text that means the same. None: there is none, as far as is known. Whether a number fits in its field is left
/// to [`Filter::parse`](crate::tep::Filter::parse).
pub fn filter_text(node: &ExprNode, format: &Format) -> Option<String> {
    match &node.kind {
        ExprKind::And(operands) => joined(operands, "&&", format),
        ExprKind::Or(operands) => joined(operands, "||", format),
        ExprKind::Unary(UnaryOperator::Not, inner) => Some(format!("!({} )", filter_text(inner, format)?)),
        ExprKind::Binary(binary, operands) => {
            let [left, right] = &**operands;
            let (operator, turned) = operators(*binary)?;
            comparison(left, operator, right, format).or_else(|| comparison(right, turned, left, format))
        }
        ExprKind::Glob(operands) => {
            let [text, pattern] = &**operands;
            let ExprKind::Text(bytes) = &pattern.kind else { return None };
            // To the kernel `!` in front turns the answer round, and `^` is an ordinary member of a set.
            let is_same = !bytes.starts_with(b"!") && !bytes.contains(&b'^');
            if is_same { comparison(text, "~", pattern, format) } else { None }
        }
        _ => None,
    }
}

fn joined(operands: &[ExprNode; 2], by: &str, format: &Format) -> Option<String> {
    let [left, right] = operands;
    Some(format!("({} ) {by} ({} )", filter_text(left, format)?, filter_text(right, format)?))
}

/// The operator of the kernel, and the one with the operands exchanged.
fn operators(binary: BinaryOperator) -> Option<(&'static str, &'static str)> {
    Some(match binary {
        BinaryOperator::Equal => ("==", "=="),
        BinaryOperator::NotEqual => ("!=", "!="),
        BinaryOperator::Less => ("<", ">"),
        BinaryOperator::LessEqual => ("<=", ">="),
        BinaryOperator::Greater => (">", "<"),
        BinaryOperator::GreaterEqual => (">=", "<="),
        BinaryOperator::BitAnd => ("&", "&"),
        _ => return None,
    })
}

/// A field with a constant.
fn comparison(field: &ExprNode, operator: &str, with: &ExprNode, format: &Format) -> Option<String> {
    let ExprKind::Name(name) = &field.kind else { return None };
    let field = format.field(name)?;
    if let ExprKind::Text(bytes) = &with.kind {
        let is_text = field.is_text() && field.limit.is_none() && Comparison::of(field) == Comparison::Text;
        // Text that fills its array without a NUL equals longer text to the kernel.
        let is_whole =
            operator == "~" || !bytes.contains(&0) && (field.kind != FieldKind::Text || bytes.len() < field.size);
        let text = quote(std::str::from_utf8(bytes).ok()?)?;
        return (is_text && is_whole && !bytes.is_empty()).then(|| format!("{name} {operator} {text}"));
    }
    let program = compile(with, format).ok().filter(|program| program.reads().is_empty())?;
    let bits = program.eval(&&[][..])?;
    let is_number = field.kind == FieldKind::Int && Comparison::of(field) == Comparison::Number;
    is_number.then(|| match program.ty() {
        ExprType::Unsigned => format!("{name} {operator} {bits}"),
        _ => format!("{name} {operator} {}", bits as i64),
    })
}
