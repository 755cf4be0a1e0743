//! Invented names. Tests of real names are in `tests/demangle.rs`.

use std::thread;

use proptest::prelude::*;

use super::*;
use text::MAX_NAME_BYTES;

const FIXTURE: &str = include_str!("../../../tests/data/cpp_names.txt");

fn real_names() -> Vec<&'static str> {
    FIXTURE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next()).collect()
}

#[test]
fn only_mangled_names_are_demangled() {
    for name in ["f", "i", "St", "main", "_start", "Z1fv", "_Rfoo", "_Z", "_Zz", "R", "ZN4core3fmtE", ""] {
        assert_eq!(demangled(name), None, "{name}");
    }
    let cases = [
        ("_Z3fooi", "foo(int)"),
        ("__Z3fooi", "foo(int)"),
        ("_ZNSolsEi@@GLIBCXX_3.4", "std::basic_ostream<char, std::char_traits<char> >::operator<<(int)@@GLIBCXX_3.4"),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        ("_ZN4core3fmt5write17h0123456789abcdefE.llvm.1234", "core::fmt::write"),
        ("_RNvC6_123foo3bar", "123foo::bar"),
        // Without a hash, a name is C++.
        ("_ZN12_GLOBAL__N_11xE", "(anonymous namespace)::x"),
        ("_ZN1A1xE.lto_priv.0", "A::x [clone .lto_priv.0]"),
        ("_ZN1A17h0123456789abcdexE", "A::h0123456789abcdex"),
        ("___Z3fooi_block_invoke", "invocation function for block in foo(int)"),
        ("____Z3foov_block_invoke_2", "invocation function for block in foo()"),
    ];
    for (name, want) in cases {
        assert_eq!(demangled(name).as_deref(), Some(want), "{name}");
    }
}

#[test]
fn a_name_that_stands_for_gigabytes_is_cut() {
    // Each argument is a template with the one before it as both arguments.
    let of_two = |before: char| format!("S_IS{before}_S{before}_E");
    let name: String = "0123456789ABCDEFGHIJKLMNOPQR".chars().map(of_two).collect();
    assert_eq!(demangled(&format!("_Z1f1AIiiE{name}")).map(|name| name.len()), Some(MAX_NAME_BYTES));
    let two = of_two('0');
    let want = "f(A<int, int>, A<A<int, int>, A<int, int> >)";
    assert_eq!(demangled(&format!("_Z1f1AIiiE{two}")).as_deref(), Some(want));
    let long = format!("_Z5000{}v", "x".repeat(5000));
    assert_eq!(demangled(&long).map(|name| name.len()), Some(MAX_NAME_BYTES));
}

#[test]
fn names_that_exceed_a_bound_stay_mangled() {
    let packs: String =
        "0123456789ABCDEFGHIJKLMNOPQR".chars().map(|before| format!("JT{before}_T{before}_E")).collect();
    let sizes: String = (0..40).map(|_| "sr1AIXsr1B").collect();
    let names = [
        format!("_Z1fIX{}", "dl".repeat(28)),
        format!("_Z1fIX{}1xEEvv", "dl".repeat(500)),
        format!("_Z1fI{}", "J".repeat(10_000)),
        format!("_Z1fI{packs}EvDpT_"),
        format!("_Z1fIX{sizes}"),
        format!("_ZN1A{}", "cvT_I".repeat(1000)),
        format!("_Z1f{}", "T_I".repeat(1000)),
        format!("_Z1f{}i", "P".repeat(1000)),
        format!("_Z1fv{}", ".a".repeat(5000)),
        "_Z1fIT_EvT_".to_owned(),    // an argument that refers to itself
        "_Z1fIT0_T_EvT_".to_owned(), // two arguments that refer to each other
        "_Z1fIDpT_EvT_".to_owned(),
        format!("_Z1f{}", "x".repeat(20_000)),
        format!("_Z20000{}v", "x".repeat(20_000)),
        "_Z99999999999999999999x".to_owned(),
        "_Z4294967296x".to_owned(),
        "_Z1äv".to_owned(), // ends within a character
        "_Z1fS99999999999999_".to_owned(),
        "_Z1fT99999999999999_".to_owned(),
        format!("_RINvC1a1f{}E", "u".repeat(5000)),
    ];
    for name in names {
        assert_eq!(demangled(&name), None, "{}", &name[..name.len().min(100)]);
    }
}

#[test]
fn nested_names_fit_into_a_small_stack() {
    const STACK_BYTES: usize = 1 << 20; // half of the default of a thread
    let openings = [
        "P",
        "A_",
        "F",
        "M",
        "KP",
        "1AI",
        "N1AI",
        "St1AI",
        "1AIJ",
        "1AIX",
        "DTnt",
        "DTcl",
        "DTsr",
        "DTcv",
        "DTqu",
        "DTnw",
        "Dp",
        "1AIXaa",
        "1AIXdt",
        "1AIXil",
        "1AIXtl",
        "1AIXtldi1a",
        "1AIXsr1A",
        "1AIXfl",
        "1AIXrQ",
        "1AIXL",
        "1AIL_Z",
        "1AITn",
        "1AITt",
        "1AITp",
        "Z1f",
        "Z",
        "ZZ",
        "NK",
        "NUl",
        "Z1fEUl",
        "1Acv",
        "Dv_",
        "DO",
        "Dw",
        "DB",
        "U1AI",
        "u1AI",
        "T_I",
        "1AIXsrN",
        "1AIXu1a",
        "1AIXgs",
        "1AIXsp",
        "1AIXsZ",
        "1AIXon",
        "1AIXdn",
        "1AIXfp",
        "DTsr1AIXdn",
        "1AIQ",
    ];
    let names: Vec<String> = openings
        .iter()
        .flat_map(|opening| [100, 120, 126, 200, 2000].map(|levels| (opening, levels)))
        .flat_map(|(opening, levels)| {
            let nested = opening.repeat(levels);
            let closings = ["E", "EE", "_E", "E_", "v"].map(|end| end.repeat(levels));
            closings.map(|closing| format!("_Z1f{nested}i{closing}"))
        })
        .chain([chain("1AIiE", |back| format!("S_IS{back}E")), chain("Pi", |back| format!("FPS{back}vE"))])
        .chain([chain("1AIiE", |back| format!("Z1fIS{back}EvT_EUlvE_")), format!("_R{}u", "INvC1a1fT".repeat(600))])
        .chain(["u", "S", "R", "A", "F", "NvM", "NvX", "Y"].map(|part| format!("_RINvC1a1f{}", part.repeat(499))))
        .collect();
    let run = move || names.iter().filter(|name| demangled(name).is_some()).count();
    let named = thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
    assert!(named > 30, "{named}: some are whole names");
}

/// A name with 1000 types, each of which refers to the one before.
fn chain(first: &str, next: impl Fn(&str) -> String) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let number = |at: usize| format!("{}{}_", DIGITS[at / 36] as char, DIGITS[at % 36] as char);
    let back: Vec<String> = (0..1000).map(number).collect();
    let types: String = back.iter().map(|back| next(back.trim_start_matches('0'))).collect();
    format!("_Z1f{first}{types}")
}

/// Names from random terminals of the grammar.
fn made_up() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "1a", "1b", "3foo", "N", "E", "I", "J", "Z", "S_", "S0_", "S1_", "SA_", "St", "Ss", "Sa", "T_", "T0_", "T1_",
        "P", "R", "O", "K", "V", "r", "i", "v", "c", "b", "d", "z", "F", "A3_", "A_", "M", "Dp", "DT", "Dt", "Dn",
        "Da", "Dv4_", "DB8_", "DF16_", "Do", "DO", "Dw", "Dx", "X", "L", "Li1", "Lb1", "Ld3ff", "L_Z", "n", "5", "Ul",
        "E_", "E0_", "Ut_", "C1", "C2", "D0", "D1", "CI1", "cv", "li1x", "pl", "mi", "nt", "ad", "cl", "dt", "pt",
        "sr", "srN", "gs", "sZ", "sP", "sp", "fp_", "fp0_", "fL0p_", "fl", "fr", "fL", "il", "tl", "di1a", "dx", "nw",
        "_", "pi", "qu", "ix", "on", "dn", "tw", "tr", "te", "st", "at", "sz", "cc", "rq", "rQ", "Q", "Tn", "Ty", "Tt",
        "Tp", "Tk", "W1m", "B1t", "DC", "TV", "TI", "Th1_", "Tv0_n1_", "TC", "GV", "GR", "TA", "s", "d_", "_0",
        "__10_", "U1q", "u1v", "pp", "pp_", "cp", "ls", "Y", "H", "M1a", ".cold", ".0", "ä",
    ];
    let part = proptest::sample::select(PARTS);
    proptest::collection::vec(part, 1..40).prop_map(|parts| format!("_Z{}", parts.concat()))
}

/// Real names with random edits from other real names.
fn edited() -> impl Strategy<Value = String> {
    let names = real_names();
    let name = proptest::sample::select(names.clone());
    let edits =
        proptest::collection::vec((any::<(u16, u16, u8)>(), proptest::sample::select(names), any::<u16>()), 0..6);
    (name, edits).prop_map(|(name, edits)| {
        let mut bytes = name.as_bytes().to_vec();
        for ((at, len, kind), other, from) in edits {
            let at = usize::from(at) % (bytes.len() + 1);
            let end = (at + usize::from(len) % 8).min(bytes.len());
            let from = usize::from(from) % other.len();
            let piece = &other.as_bytes()[from..(from + usize::from(len) % 24).min(other.len())];
            let piece = if kind < 64 { &[] } else { piece };
            bytes.splice(at..if kind < 160 { end } else { at }, piece.iter().copied());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn is_sound(name: &str) -> bool {
    let text = demangled(name);
    let again = demangled(name);
    text == again && text.is_none_or(|text| text.len() <= MAX_NAME_BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn made_up_names_are_survived(name in made_up()) {
        prop_assert!(is_sound(&name));
    }

    #[test]
    fn edited_names_are_survived(name in edited()) {
        prop_assert!(is_sound(&name));
        let longer = format!("_Z{name}");
        prop_assert!(is_sound(&longer));
    }
}
