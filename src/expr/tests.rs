use proptest::prelude::*;

use super::parse::{BinaryOperator, ExprNode, UnaryOperator};
use super::*;

/// `a` int, `b` unsigned long, `c` u8, `d` s64, `s` text.
fn format() -> Format {
    let field = |text: &str, offset, size, signed| {
        format!("\tfield:{text};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    let fields = [
        field("int a", 0, 4, 1),
        field("unsigned long b", 8, 8, 0),
        field("u8 c", 16, 1, 0),
        field("s64 d", 24, 8, 1),
        field("char s[8]", 32, 8, 1),
    ];
    Format::parse("x", &format!("name: y\nID: 1\nformat:\n{}\nprint fmt: \"\"\n", fields.concat())).unwrap()
}

fn raw(a: i32, b: u64, c: u8, d: i64) -> [u8; 40] {
    let mut raw = [0; 40];
    raw[..4].copy_from_slice(&a.to_ne_bytes());
    raw[8..16].copy_from_slice(&b.to_ne_bytes());
    raw[16] = c;
    raw[24..32].copy_from_slice(&d.to_ne_bytes());
    raw
}

fn value(text: &str) -> Option<i64> {
    let expr = Expr::parse(text).unwrap_or_else(|err| panic!("{err}"));
    let program = expr.compile(&format()).unwrap_or_else(|err| panic!("{err}"));
    program.eval(&raw(-2, u64::MAX - 1, 200, 7)).map(|value| value as i64)
}

#[test]
fn evaluates() {
    let cases = [
        ("a", Some(-2)),
        ("b", Some(-2)),
        ("c", Some(200)),
        (" d ", Some(7)),
        ("1+2*3", Some(7)),
        ("(1+2)*3", Some(9)),
        ("10-3-2", Some(5)),
        ("100/10/5", Some(2)),
        ("0x10 + 010 + 10", Some(34)),
        ("-a", Some(2)),
        ("- -a", Some(-2)),
        ("+a", Some(-2)),
        ("~0", Some(-1)),
        ("!c", Some(0)),
        ("!!c", Some(1)),
        ("-2+3", Some(1)),
        ("4096<<d", Some(4096 << 7)),
        ("a>>1", Some(-1)),
        ("b>>1", Some(i64::MAX)),
        ("0xffffffffffffffff>>60", Some(15)),
        ("a/3", Some(0)),
        ("-7/2", Some(-3)),
        ("-7%4", Some(-3)),
        ("a<1", Some(1)),
        ("b<1", Some(0)),
        ("b>d", Some(1)),
        ("a<=-2 && c>=200", Some(1)),
        ("1|6^3&2", Some(5)),
        ("1==1==1", Some(1)),
        ("c&0x80 ? d : 1/0", Some(7)),
        ("0 ? 1 : 0 ? 2 : 3", Some(3)),
        ("c || 1/0", Some(1)),
        ("0 && 1/0", Some(0)),
        ("300*10000000000", Some(3_000_000_000_000)),
        ("9223372036854775807+1", Some(i64::MIN)),
        ("1/0", None),
        ("1%(a+2)", None),
        ("b/0", None),
        ("1<<64", None),
        ("1<<-1", None),
        ("1>>a", None),
        ("(0-9223372036854775807-1)/-1", Some(i64::MIN)),
    ];
    for (text, want) in cases {
        assert_eq!(value(text), want, "{text}");
    }
}

#[test]
fn a_short_record_has_no_value() {
    let program = Expr::parse("d+1").unwrap().compile(&format()).unwrap();
    let raw = raw(0, 0, 0, 7);
    assert_eq!(program.eval(&raw), Some(8));
    assert!((0..32).all(|len| program.eval(&raw[..len]).is_none()));
}

#[test]
fn faults_have_their_place() {
    let cases = [
        ("", 0, "missing"),
        ("a+", 2, "missing"),
        ("a b", 2, "operator"),
        ("(a", 0, "never closed"),
        ("a)", 1, "closes nothing"),
        ("08", 0, "no number"),
        ("1x", 0, "no number"),
        ("0x", 0, "no number"),
        ("18446744073709551616", 0, "no number"),
        ("a?b", 3, "`:`"),
        ("a = 1", 2, "operator"),
        ("a $ 1", 2, "operator"),
        ("é", 0, "neither"),
        ("a + *b", 4, "neither"),
    ];
    for (text, at, message) in cases {
        let err = Expr::parse(text).unwrap_err();
        assert!(err.at == at && err.message.contains(message), "{text:?}: {err} at {}", err.at);
    }
    let unknown = |text: &str| Expr::parse(text).unwrap().compile(&format()).unwrap_err();
    let err = unknown("1 + bytes");
    assert!(err.is_unknown_field() && err.at == 4 && err.message.contains("x:y has no field `bytes`"), "{err}");
    let err = unknown("s");
    assert!(!err.is_unknown_field() && err.message.contains("not a number"), "{err}");
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["(".repeat(5000), "-".repeat(5000), "1?".repeat(5000), "1+(".repeat(5000)] {
        assert!(Expr::parse(&text).is_err());
    }
    let sum = vec!["a"; 90].join("+");
    assert_eq!(value(&sum), Some(-180));
    assert!(Expr::parse(&vec!["a"; 5000].join("+")).is_err());
}

/// The value that the program should compute, taken from the tree, and whether it is unsigned.
fn model(node: &ExprNode, raw: &[u8]) -> (Option<u64>, bool) {
    let truth = |value: Option<u64>| value.map(|value| value != 0);
    match node {
        ExprNode::Number { bits, unsigned } => (Some(*bits), *unsigned),
        ExprNode::Field { name, .. } => {
            let format = format();
            let field = format.field(name).unwrap();
            (field.read_i64(raw).ok().map(|value| value as u64), name == "b")
        }
        ExprNode::Unary(unary, inner) => {
            let (value, unsigned) = model(inner, raw);
            match unary {
                UnaryOperator::Minus => (value.map(u64::wrapping_neg), unsigned),
                UnaryOperator::Complement => (value.map(|value| !value), unsigned),
                UnaryOperator::Not => (truth(value).map(|truth| u64::from(!truth)), false),
            }
        }
        ExprNode::Binary(binary, left, right) => {
            use BinaryOperator::*;
            let ((left, a), (right, b)) = (model(left, raw), model(right, raw));
            let unsigned = a || b && !matches!(binary, ShiftLeft | ShiftRight);
            let value = left.zip(right).and_then(|(left, right)| program::apply(*binary, unsigned, left, right));
            (value, unsigned && !matches!(binary, Less | LessEqual | Greater | GreaterEqual | Equal | NotEqual))
        }
        ExprNode::And(left, right) => match truth(model(left, raw).0) {
            Some(true) => (truth(model(right, raw).0).map(u64::from), false),
            other => (other.map(u64::from), false),
        },
        ExprNode::Or(left, right) => match truth(model(left, raw).0) {
            Some(false) => (truth(model(right, raw).0).map(u64::from), false),
            other => (other.map(u64::from), false),
        },
        ExprNode::Choice(parts) => {
            let [condition, then, other] = &**parts;
            let unsigned = model(then, raw).1 | model(other, raw).1;
            match truth(model(condition, raw).0) {
                None => (None, unsigned),
                Some(true) => (model(then, raw).0, unsigned),
                Some(false) => (model(other, raw).0, unsigned),
            }
        }
    }
}

fn texts() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[abcd]",
        "[0-9]{1,3}".prop_map(|text| text.trim_start_matches('0').to_owned() + "1"),
        Just("0xffffffffffffffff".to_owned())
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let operators = "\\|\\||&&|<<|>>|<=|>=|==|!=|<|>|\\||\\^|&|\\+|-|\\*|/|%";
        prop_oneof![
            (inner.clone(), operators, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            ("[-~!]", inner.clone()).prop_map(|(op, a)| format!("{op}{a}")),
            inner.clone().prop_map(|a| format!("({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest! {
    #[test]
    fn programs_agree_with_the_evaluated_tree(text in texts(), a: i32, b: u64, c: u8, d in -70_i64..70) {
        let expr = Expr::parse(&text).map_err(|err| TestCaseError::fail(err.to_string()))?;
        let raw = raw(a, b, c, d);
        prop_assert_eq!(expr.compile(&format()).unwrap().eval(&raw), model(&expr.root, &raw).0, "{}", text);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text: String, raw in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(expr) = Expr::parse(&text) {
            let _ = expr.compile(&format()).map(|program| program.eval(&raw));
        }
    }

    #[test]
    fn text_of_the_grammars_characters_is_parsed_or_refused(text in "[abcd0-9x()?:<>=!&|^~+*/% -]{0,60}") {
        if let Ok(expr) = Expr::parse(&text) {
            let _ = expr.compile(&format()).map(|program| program.eval(&raw(1, 2, 3, 4))); // `c2` is no field
        }
    }
}
