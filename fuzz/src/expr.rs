//! An expression, and a record for it: parentheses around the whole change nothing.

use perf_prof::expr::Expr;

use super::input::{EVERY_KIND, text_and_bytes};

pub fn run(data: &[u8]) {
    let Some((text, raw)) = text_and_bytes(data) else { return };
    let expr = match Expr::parse(text) {
        Ok(expr) => expr,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Ok(program) = expr.compile(&EVERY_KIND).map_err(|error| error.to_string()) else { return };
    let value = program.eval(raw);
    assert_eq!(value, program.eval(raw));
    let _ = (program.eval(&[]), program.eval(&raw[..raw.len() / 2]));
    // An expression of the greatest allowed depth becomes too deep.
    if let Ok(same) = Expr::parse(&format!("({text})")) {
        assert_eq!(same.compile(&EVERY_KIND).expect("as before").eval(raw), value);
    }
    if let Ok(negated) = Expr::parse(&format!("!({text})")) {
        let want = value.map(|value| u64::from(value == 0));
        assert_eq!(negated.compile(&EVERY_KIND).expect("as before").eval(raw), want);
    }
}
