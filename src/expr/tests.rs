use proptest::prelude::*;

use super::parse::{ExprKind, ExprNode, UnaryOperator};
use super::*;
use crate::tep::fixture;
use crate::tep::operators::BinaryOperator;

/// Fields: `a` int, `b` unsigned long, `c` u8, `d` s64, `s` and `t` text, and some others.
fn format() -> Format {
    let fields = [
        ("int a", 0, 4, true),
        ("unsigned long b", 8, 8, false),
        ("u8 c", 16, 1, false),
        ("s64 d", 24, 8, true),
        ("char s[8]", 32, 8, true),
        ("short h[3]", 40, 6, true),
        ("__data_loc char[] t", 48, 4, false),
        ("unsigned char uc[4]", 52, 4, false),
        ("u8 mac[4]", 56, 4, false),
        ("__be32 addr", 64, 4, false),
    ];
    fixture::format("x:y", &fields)
}

fn raw(a: i32, b: u64, c: u8, d: i64) -> [u8; 40] {
    let mut raw = [0; 40];
    raw[..4].copy_from_slice(&a.to_ne_bytes());
    raw[8..16].copy_from_slice(&b.to_ne_bytes());
    raw[16] = c;
    raw[24..32].copy_from_slice(&d.to_ne_bytes());
    raw
}

fn record() -> Vec<u8> {
    let mut record = raw(-2, u64::MAX - 1, 200, 7).to_vec();
    record[32..40].copy_from_slice(b"ab\xffd\0xyz");
    let pieces: [&[u8]; 6] = [
        &[1, 0, 0xff, 0xff, 3, 0], // h: 1, -1, 3
        &[0; 2],
        &(72_u32 | 6 << 16).to_ne_bytes(), // t
        &[0; 20],
        b"/etc\0z",
        &[0; 2],
    ];
    pieces.iter().for_each(|piece| record.extend_from_slice(piece));
    record[64..68].copy_from_slice(&0x0a00_0001_u32.to_be_bytes());
    record
}

fn compiled(text: &str) -> Program {
    let expr = Expr::parse(text).unwrap_or_else(|err| panic!("{err}"));
    expr.compile(&format()).unwrap_or_else(|err| panic!("{err}"))
}

fn value(text: &str) -> Option<i64> {
    compiled(text).eval(&&record()[..]).map(|value| value as i64)
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
    assert_eq!(program.eval(&&raw[..]), Some(8));
    assert!((0..32).all(|len| program.eval(&&raw[..len]).is_none()));
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
        ("a = 1", 2, "nothing can be assigned"),
        ("a $ 1", 2, "operator"),
        ("é", 0, "neither"),
        ("a + *b", 4, "nothing is read through a pointer"),
        ("&b", 0, "no address"),
        ("a++", 1, "nothing can be assigned"),
        ("1 + --a", 4, "nothing can be assigned"),
        ("a, b", 1, "no `,`"),
        ("1 2 garbage )", 2, "operator"),
        ("1==1.5", 4, "operator"),
        ("s == \"x", 5, "never closed"),
        ("s == 'xy'", 5, "text in double"),
        ("''", 0, "one byte"),
        ("\"\\q\"", 1, "escape"),
        ("'\\x'", 1, "escape"),
        ("\"\\400\"", 1, "escape"),
        ("h[1", 1, "never closed"),
        ("h]", 1, "closes nothing"),
        ("ntohs(1 2)", 8, "a `,` or `)`"),
        ("ntohs(1", 5, "never closed"),
        ("1 + printf(\"x\")", 4, "prints nothing"),
        ("system(\"reboot\")", 0, "runs no commands"),
        ("sizeof(a)", 6, "sizeof is of a type"),
        ("(unsigned long)", 15, "missing"),
    ];
    for (text, at, message) in cases {
        let err = Expr::parse(text).unwrap_err();
        assert!(err.offset == at && err.message.contains(message), "{text:?}: {err} at {}", err.offset);
    }
    let refused = |text: &str| Expr::parse(text).unwrap().compile(&format()).unwrap_err();
    let unknown = [
        ("1 + bytes", 4, "x:y has no field `bytes`; it has "),
        ("a == -ENOENTT", 6, "did you mean ENOENT?"),
        ("_cpus", 0, "did you mean _cpu?"),
        ("openat", 0, "no field `openat`"),
    ];
    for (text, at, message) in unknown {
        let err = refused(text);
        assert!(err.is_unknown_field() && err.offset == at && err.message.contains(message), "{err}");
    }
    let cases = [
        ("s + 1", 0, "this is text"),
        ("1 + s", 4, "this is text, and a number is needed"),
        ("!s", 1, "this is text"),
        ("s && a", 0, "this is text"),
        ("s == 1", 5, "this is a number, and text is needed"),
        ("1 == s", 5, "this is text, and a number is needed"),
        ("a ~ \"x\"", 0, "this is a number, and text is needed"),
        ("s ~ a", 4, "this is a number, and text is needed"),
        ("a ? s : 1", 8, "text is needed"),
        ("a ? 1 : s", 8, "a number is needed"),
        ("(int)s", 5, "a number is needed"),
        ("a + h", 4, "`h` of x:y is short[3], not a number: an element is h[0]"),
        ("a[0]", 0, "`a` is int, which has no elements"),
        ("1[0]", 0, "text is needed"),
        ("s[s]", 2, "a number is needed"),
        ("nosuch(1)", 0, "there is no function `nosuch`; there are ntohl"),
        ("ntohs()", 0, "write ntohs(number)"),
        ("ksymbol(b) == \"x\"", 0, "only what is printed has this name"),
        ("a ? ksymbol(b) : comm_get(a)", 17, "of one type"),
    ];
    for (text, at, message) in cases {
        let err = refused(text);
        assert!(
            !err.is_unknown_field() && err.offset == at && err.message.contains(message),
            "{err} at {}",
            err.offset
        );
    }
    let err = Expr::parse(" s").unwrap().compile_number(&format()).unwrap_err();
    assert!(err.offset == 1 && err.message.contains("this is text, and a number is needed"), "{err}");
}

#[test]
fn texts_are_compared_by_their_contents() {
    let cases = [
        ("s == \"ab\\xffd\"", Some(1)),
        ("s != \"ab\\xffd\"", Some(0)),
        ("\"abc\" == \"abc\"", Some(1)),
        ("\"abc\" == \"abcd\"", Some(0)),
        ("\"a\\0b\" == \"a\\0c\"", Some(1)),
        ("t == \"/etc\"", Some(1)),
        ("t == s", Some(0)),
        ("t ~ \"/e*\"", Some(1)),
        ("t ~ \"/e\"", Some(0)),
        ("t ~ \"/[a-f]?[!x]\" && !(t ~ \"x\")", Some(1)),
        ("\"\" == uc", Some(1)),
        ("(a ? t : s) == \"/etc\"", Some(1)),
        ("(a ? \"x\" : s)[0]", Some(120)),
        ("strncmp(t, \"/ever\", 2)", Some(0)),
        ("strncmp(t, \"/ever\", 3)", Some(-1)),
        ("strncmp(t, \"/e\", 9)", Some(1)),
        ("strncmp(t, t, -1)", Some(0)),
        ("t_len", Some(6)),
        ("t_offset", Some(72)),
    ];
    for (text, want) in cases {
        assert_eq!(value(text), want, "{text}");
    }
    let record = record();
    let program = compiled("a ? t : s");
    assert_eq!(program.value(&&record[..]), Ok(ExprValue::Text(b"/etc")));
    assert_eq!(program.value(&&record[..40]), Err(NoResult::Missing));
}

#[test]
fn elements_casts_and_functions() {
    let cases = [
        ("s[0]", Some(97)),
        ("s[0] == 'a'", Some(1)),
        ("s[2]", Some(255)),
        ("s[2] == '\\xff' && s[4] == '\\0'", Some(1)),
        ("s[7]", Some(122)),
        ("s[8]", None),
        ("s[-1]", None),
        ("t[5]", Some(122)),
        ("t[6]", None),
        ("\"ab\"[1]", Some(98)),
        ("\"ab\"[2]", Some(0)),
        ("\"ab\"[3]", None),
        ("h[1]", Some(-1)),
        ("h[a+3] + h[2]", Some(2)),
        ("h[3]", None),
        ("mac[0]", Some(0)),
        ("'a'", Some(97)),
        ("'\\''", Some(39)),
        ("(char)300", Some(44)),
        ("(signed char)200", Some(-56)),
        ("(u16)a", Some(65534)),
        ("(unsigned int)a > 5", Some(1)),
        ("(unsigned long)a > 5", Some(1)),
        ("(long)b < 0", Some(1)),
        ("(void *)a > 5", Some(1)),
        ("(int)0x1ffffffff", Some(-1)),
        ("-(int)c", Some(-200)),
        ("sizeof(long) + sizeof(unsigned short) + sizeof(char *)", Some(18)),
        ("ntohs(0x1234)", Some(i64::from(u16::from_be(0x1234)))),
        ("ntohl(0x12345678)", Some(i64::from(u32::from_be(0x1234_5678)))),
        ("ntohl(addr) >> 24", Some(10)),
        ("-ENOENT", Some(-2)),
        ("a == -ENOENT", Some(1)),
        ("SIGKILL + TASK_UNINTERRUPTIBLE", Some(11)),
        ("__NR_openat", Some(libc::SYS_openat)),
        ("_cpu", None), // a record alone has no CPU
    ];
    for (text, want) in cases {
        assert_eq!(value(text), want, "{text}");
    }
    assert_eq!(compiled("ksymbol(b)").value(&&record()[..]), Ok(ExprValue::Named(Naming::Kernel, u64::MAX - 1)));
    assert_eq!(compiled("b + 1").value(&&record()[..]), Ok(ExprValue::Unsigned(u64::MAX)));
    assert_eq!(compiled("c ? a : b").reads(), ["c (u8)", "a (int)", "b (unsigned long)"]);
}

#[test]
fn what_has_no_value_says_why() {
    let cases = [
        ("1/(a+2)", NoResult::DivisionByZero),
        ("1%0", NoResult::DivisionByZero),
        ("1<<64", NoResult::Shift),
        ("h[9]", NoResult::Index),
        ("_time", NoResult::Missing),
    ];
    let mut counts = NoResultCounts::default();
    for (text, want) in cases {
        assert_eq!(compiled(text).value(&&record()[..]), Err(want), "{text}");
        assert_eq!(compiled(text).holds(&&record()[..]), Err(want), "{text}");
        counts.add(want, 1);
    }
    assert_eq!(counts.total(), 5);
    assert!(counts.to_string().starts_with("division by zero 2, shift by"), "{counts}");
}

#[test]
fn names_of_calls_and_states_are_those_of_the_event() {
    let compiled = |system: &str, format: &str, text: &str| {
        let format = Format::parse(system, format).unwrap();
        Expr::parse(text).unwrap().compile(&format).ok()?.eval(&&[0_u8; 64][..])
    };
    let call = "name: sys_enter\nID: 1\nformat:\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n";
    assert_eq!(compiled("raw_syscalls", call, "openat"), Some(libc::SYS_openat as u64));
    assert_eq!(compiled("mine", call, "openat"), None);
    let switch = "name: s\nID: 1\nformat:\n\tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\n\
        print fmt: \"%s\", __print_flags(REC->prev_state & 0xff, \"|\", { 1, \"S\" }, { 2, \"D\" }, { 16, \"X\" }, { 32, \"Z\" })\n";
    assert_eq!(compiled("sched", switch, "EXIT_DEAD | TASK_INTERRUPTIBLE | TASK_RUNNING"), Some(17));
    assert_eq!(compiled("sched", call, "EXIT_DEAD"), None, "it differs between kernels");
    assert_eq!(compiled("sched", call, "TASK_UNINTERRUPTIBLE"), Some(2));
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

/// The expected value, evaluated on the tree, and whether it is unsigned.
fn model(node: &ExprNode, raw: &[u8]) -> (Option<u64>, bool) {
    let truth = |value: Option<u64>| value.map(|value| value != 0);
    match &node.kind {
        ExprKind::Number { bits, unsigned } => (Some(*bits), *unsigned),
        ExprKind::Name(name) => {
            let format = format();
            let field = format.field(name).unwrap();
            (field.read_i64(raw).ok().map(|value| value as u64), name == "b")
        }
        ExprKind::Unary(unary, inner) => {
            let (value, unsigned) = model(inner, raw);
            match unary {
                UnaryOperator::Minus => (value.map(u64::wrapping_neg), unsigned),
                UnaryOperator::Complement => (value.map(|value| !value), unsigned),
                UnaryOperator::Not => (truth(value).map(|truth| u64::from(!truth)), false),
            }
        }
        ExprKind::Binary(binary, operands) => {
            use BinaryOperator::*;
            let ((left, a), (right, b)) = (model(&operands[0], raw), model(&operands[1], raw));
            let unsigned = a || b && !matches!(binary, ShiftLeft | ShiftRight);
            let value = left.zip(right).and_then(|(left, right)| reference(*binary, unsigned, left, right));
            (value, unsigned && !matches!(binary, Less | LessEqual | Greater | GreaterEqual | Equal | NotEqual))
        }
        ExprKind::And(operands) => match truth(model(&operands[0], raw).0) {
            Some(true) => (truth(model(&operands[1], raw).0).map(u64::from), false),
            other => (other.map(u64::from), false),
        },
        ExprKind::Or(operands) => match truth(model(&operands[0], raw).0) {
            Some(false) => (truth(model(&operands[1], raw).0).map(u64::from), false),
            other => (other.map(u64::from), false),
        },
        ExprKind::Choice(parts) => {
            let [condition, then, other] = &**parts;
            let unsigned = model(then, raw).1 | model(other, raw).1;
            match truth(model(condition, raw).0) {
                None => (None, unsigned),
                Some(true) => (model(then, raw).0, unsigned),
                Some(false) => (model(other, raw).0, unsigned),
            }
        }
        ExprKind::Cast(ty, inner) => {
            let value = model(inner, raw).0.map(|value| match (ty.size, ty.signed) {
                (1, true) => i64::from(value as i8) as u64,
                (1, false) => u64::from(value as u8),
                (2, true) => i64::from(value as i16) as u64,
                (2, false) => u64::from(value as u16),
                (4, true) => i64::from(value as i32) as u64,
                (4, false) => u64::from(value as u32),
                _ => value,
            });
            (value, ty.size == 8 && !ty.signed)
        }
        ExprKind::Index(operands) => {
            let at = model(&operands[1], raw).0.and_then(|at| usize::try_from(at).ok());
            let byte = at.filter(|at| *at < 8).and_then(|at| raw.get(32 + at));
            (byte.map(|byte| u64::from(*byte)), false)
        }
        _ => unreachable!("not among the texts"),
    }
}

/// The operation in 128 bits, without overflow.
fn reference(binary: BinaryOperator, unsigned: bool, left: u64, right: u64) -> Option<u64> {
    use BinaryOperator::*;
    let wide = |bits: u64| if unsigned { i128::from(bits) } else { i128::from(bits as i64) };
    let (a, b) = (wide(left), wide(right));
    let shift = i128::from(right as i64);
    let fits = (0..64).contains(&shift);
    let result = match binary {
        Multiply => a.wrapping_mul(b),
        Divide => a.checked_div(b)?,
        Remainder => a.checked_rem(b)?,
        Add => a + b,
        Subtract => a - b,
        ShiftLeft => fits.then(|| a << shift)?,
        ShiftRight => fits.then(|| a >> shift)?,
        Less => i128::from(a < b),
        LessEqual => i128::from(a <= b),
        Greater => i128::from(a > b),
        GreaterEqual => i128::from(a >= b),
        Equal => i128::from(a == b),
        NotEqual => i128::from(a != b),
        BitAnd => a & b,
        BitXor => a ^ b,
        BitOr => a | b,
        BothTrue => i128::from(a != 0 && b != 0),
        EitherTrue => i128::from(a != 0 || b != 0),
    };
    Some(result as u64)
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
            ("[-~!]", inner.clone()).prop_map(|(op, a)| format!("{op} {a}")),
            ("\\((char|s8|short|u16|int|unsigned|long|u64)\\)", inner.clone()).prop_map(|(ty, a)| format!("{ty}{a}")),
            inner.clone().prop_map(|a| format!("s[{a}]")),
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
        prop_assert_eq!(expr.compile(&format()).unwrap().eval(&&raw[..]), model(&expr.root, &raw).0, "{}", text);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text: String, raw in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(expr) = Expr::parse(&text) {
            let _ = expr.compile(&format()).map(|program| program.value(&&raw[..]).map(|value| format!("{value:?}")));
        }
    }

    #[test]
    fn text_of_the_grammars_characters_is_parsed_or_refused(text in "([abcdsth0-9x()?:<>=!&|^~+*/% ,\"'\\[\\]-]|\\(int\\)|ntohs\\(|strncmp\\(){0,60}") {
        if let Ok(expr) = Expr::parse(&text) {
            let _ = expr.compile(&format()).map(|program| program.eval(&&raw(1, 2, 3, 4)[..])); // `c2` is no field
        }
    }
}
