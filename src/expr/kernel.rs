//! Expressions that the kernel can evaluate as a filter: `ret == -ENOENT` is `ret == -2` to it.

use crate::expr::compile::compile;
use crate::expr::parse::{ExprKind, ExprNode, UnaryOperator};
use crate::expr::value::ExprType;
use crate::tep::filter::quote;
use crate::tep::format::field::FieldKind;
use crate::tep::operators::BinaryOperator;
use crate::tep::{Comparison, Filter, Format};

/// An equivalent kernel filter. None: none is known.
pub fn filter(node: &ExprNode, format: &Format) -> Option<Filter> {
    let both = |[left, right]: &[ExprNode; 2]| Some((filter(left, format)?, filter(right, format)?));
    match &node.kind {
        ExprKind::And(operands) => both(operands).map(|(left, right)| left.and(right)),
        ExprKind::Or(operands) => both(operands).map(|(left, right)| left.or(right)),
        ExprKind::Unary(UnaryOperator::Not, inner) => filter(inner, format).map(Filter::negated),
        ExprKind::Binary(binary, operands) => {
            let [left, right] = &**operands;
            let (operator, turned) = operators(*binary)?;
            comparison(left, operator, right, format).or_else(|| comparison(right, turned, left, format))
        }
        ExprKind::Glob(operands) => {
            let [text, pattern] = &**operands;
            let ExprKind::Text(bytes) = &pattern.kind else { return None };
            // In the kernel's patterns a leading `!` negates, and `^` is an ordinary member of a set.
            let is_same = !bytes.starts_with(b"!") && !bytes.contains(&b'^');
            if is_same { comparison(text, "~", pattern, format) } else { None }
        }
        _ => None,
    }
}

/// The kernel's operator, and the equivalent operator for exchanged operands.
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

/// The filter that compares a field with a constant.
fn comparison(field: &ExprNode, operator: &str, with: &ExprNode, format: &Format) -> Option<Filter> {
    let ExprKind::Name(name) = &field.kind else { return None };
    let field = format.field(name)?;
    if let ExprKind::Text(bytes) = &with.kind {
        let is_text = field.is_text() && field.limit.is_none() && Comparison::of(field) == Comparison::Text;
        // The kernel takes a text that fills its array without a NUL as equal to any longer text with that prefix.
        let is_whole =
            operator == "~" || !bytes.contains(&0) && (field.kind != FieldKind::Text || bytes.len() < field.size);
        let text = quote(std::str::from_utf8(bytes).ok()?)?;
        let is_same = is_text && is_whole && !bytes.is_empty();
        return if is_same { parsed(name, operator, &text, format) } else { None };
    }
    let program = compile(with, format).ok().filter(|program| program.reads().is_empty())?;
    let bits = program.eval(&&[][..])?;
    let is_number = field.kind == FieldKind::Int && Comparison::of(field) == Comparison::Number;
    match program.ty() {
        _ if !is_number => None,
        ExprType::Unsigned => parsed(name, operator, &bits.to_string(), format),
        _ => parsed(name, operator, &(bits as i64).to_string(), format),
    }
}

/// The parsed filter. None: the number does not fit in the field.
fn parsed(name: &str, operator: &str, value: &str, format: &Format) -> Option<Filter> {
    Filter::parse(&format!("{name} {operator} {value}"), format).ok()
}
