//! An expression, and a record for it: parentheses around the whole change nothing, and a filter of the kernel that is made of it
//! matches the same records.

use perf_prof::expr::{Expr, ExprValue};
use perf_prof::tep::Filter;

use super::input::{EVERY_KIND, text_and_bytes};

pub fn run(data: &[u8]) {
    let Some((text, raw)) = text_and_bytes(data) else { return };
    let expr = match Expr::parse(text) {
        Ok(expr) => expr,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Ok(program) = expr.compile(&EVERY_KIND).map_err(|error| error.to_string()) else { return };
    let value = program.value(&raw);
    assert_eq!(value, program.value(&raw));
    if let Ok(ExprValue::Text(text)) = value {
        assert!(text.is_empty() || text.len() <= text.len().max(raw.len()) && !text.contains(&0));
    }
    let _ = (program.value(&&[][..]), program.value(&&raw[..raw.len() / 2]), program.reads());
    // What the kernel can evaluate means the same to it.
    let filter = expr.kernel_filter(&EVERY_KIND);
    let parsed = filter.as_ref().and_then(|filter| Filter::parse(filter.text(), &EVERY_KIND).ok());
    for filter in [filter, parsed].into_iter().flatten() {
        if let (Some(matched), Ok(holds)) = (filter.matches(raw, b"bash", 0), program.holds(&raw)) {
            assert_eq!(matched, holds, "{text:?}");
        }
    }
    // An expression of the greatest allowed depth becomes too deep.
    if let Ok(same) = Expr::parse(&format!("({text})")) {
        assert_eq!(same.compile(&EVERY_KIND).expect("as before").value(&raw), value);
    }
    let value = program.holds(&raw);
    if let Ok(negated) = Expr::parse(&format!("!({text})")) {
        match negated.compile(&EVERY_KIND) {
            Ok(negated) => assert_eq!(negated.holds(&raw), value.map(|value| !value)),
            Err(error) => assert!(!program.ty().is_number(), "{text:?}: {error}"),
        }
    }
}
