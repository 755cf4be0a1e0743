//! Filters over two events of Linux 6.18.

use super::*;
use crate::tep::format::Format;

const FORMAT: &str = "name: test\nID: 1\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:unsigned char flag;\toffset:28;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned long ip;\toffset:32;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] path;\toffset:40;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc cpumask_t[] cpus;\toffset:44;\tsize:4;\tsigned:0;\n\
    \tfield:const char * s;\toffset:48;\tsize:8;\tsigned:0;\n\
    \tfield:int m[3];\toffset:56;\tsize:12;\tsigned:1;\n\nprint fmt: \"\"\n";

fn format() -> Format {
    Format::parse("sys", FORMAT).unwrap()
}

/// comm "7zip", pid -2, flag 0x81, ip u64::MAX, path "/bin/sh", CPUs 0 and 3.
fn record() -> Vec<u8> {
    let mut raw = vec![0; 68];
    raw[4..8].copy_from_slice(&77i32.to_ne_bytes());
    raw[8..12].copy_from_slice(b"7zip");
    raw[24..28].copy_from_slice(&(-2i32).to_ne_bytes());
    raw[28] = 0x81;
    raw[32..40].fill(0xff);
    raw[40..44].copy_from_slice(&(68u32 | 8 << 16).to_ne_bytes());
    raw[44..48].copy_from_slice(&(76u32 | 8 << 16).to_ne_bytes());
    raw.extend(b"/bin/sh\0");
    raw.extend(9u64.to_ne_bytes());
    raw
}

#[test]
fn evaluates_as_the_kernel_does() {
    let cases: [(&str, Option<bool>); 47] = [
        ("pid == -2", Some(true)),
        ("pid==-2&&flag==129", Some(true)),
        ("pid == 0xfffffffe", Some(true)),
        ("pid < 0", Some(true)),
        ("pid > 0", Some(false)),
        ("pid >= -2 && pid <= -2", Some(true)),
        ("flag > 128", Some(true)),
        ("flag & 1", Some(true)),
        ("flag & 0x7e", Some(false)),
        ("flag == 0201", Some(true)),
        ("ip > 5", Some(true)),
        ("ip == 0xffffffffffffffff", Some(true)),
        ("comm == \"7zip\"", Some(true)),
        ("comm == '7zip'", Some(true)),
        ("comm == 7zip", Some(true)),
        ("comm != 7zip", Some(false)),
        ("comm == 7zi", Some(false)),
        ("comm == \"\"", Some(false)),
        ("comm ~ \"7z*\"", Some(true)),
        ("comm ~ '*zip'", Some(true)),
        ("comm ~ [0-9]zi?", Some(true)),
        ("comm ~ \"!7*\"", Some(false)),
        ("path ~ \"/bin/*\"", Some(true)),
        ("path == /bin/sh", Some(true)),
        ("path != /bin/bash", Some(true)),
        ("COMM == current", Some(true)),
        ("CPU == 2", Some(true)),
        ("common_cpu != 2", Some(false)),
        ("CPU & CPUS{1-2}", Some(true)),
        ("CPU == CPUS{2}", Some(true)),
        ("CPU == CPUS{1-2}", Some(false)),
        ("common_pid == 77", Some(true)),
        ("pid & CPUS{0-7}", Some(false)),
        ("flag & CPUS{120-140}", Some(true)),
        ("cpus == CPUS{0,3}", Some(true)),
        ("cpus != CPUS{0,3}", Some(false)),
        ("cpus & CPUS{3-9}", Some(true)),
        ("!(pid == 1) && !(pid == 2 || pid == 3)", Some(true)),
        ("!pid == 1", Some(true)),
        ("!!pid == 1", Some(false)),
        ("pid == 1 || pid == -2 && flag == 129", Some(true)),
        ("(pid == 1 || pid == -2) && flag == 1", Some(false)),
        ("s == \"x\"", None),
        ("s.ustring == \"x\"", None),
        ("ip.function == schedule", None),
        ("ip.function == schedule || pid < 0", Some(true)),
        ("s == x && pid > 0", Some(false)),
    ];
    for (text, want) in cases {
        let filter = Filter::parse(text, &format()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(filter.matches(&record(), b"current\0", 2), want, "{text}");
        // The text for the kernel parses to the same filter.
        let again = Filter::parse(filter.text(), &format()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.matches(&record(), b"current\0", 2), want, "{}", filter.text());
    }
    let short = Filter::parse("pid == -2", &format()).unwrap();
    assert_eq!(short.matches(&record()[..26], b"", 0), None);
}

#[test]
fn text_that_fills_its_array_has_no_nul() {
    let mut raw = record();
    raw[8..24].copy_from_slice(b"0123456789abcdef");
    for (text, want) in [("comm == 0123456789abcdef", true), ("comm == 0123456789abcde", false), ("comm ~ *ef", true)] {
        assert_eq!(Filter::parse(text, &format()).unwrap().matches(&raw, b"", 0), Some(want), "{text}");
    }
}

#[test]
fn writes_text_for_the_kernel() {
    let cases = [
        ("comm == bash", "comm == \"bash\""),
        ("(comm==a\"b&&pid==1)", "(comm=='a\"b'&&pid==1)"),
        ("comm ~ java*", "comm ~ \"java*\""),
        ("comm ~ \"*sh\"", "comm ~ \"*s\\h\""),
        ("comm ~ '!*sh' || pid == 1", "comm ~ \"!*s\\h\" || pid == 1"),
        ("comm ~ \"7z*\"", "comm ~ \"\\7z*\""),
        ("path ~ \"*sh\"", "path ~ \"*sh\""),
        ("comm ~ \"*\"", "comm ~ \"*\""),
        ("comm == 'it is'", "comm == \"it is\""),
        ("(ip.function == schedule)", "(ip.function == schedule )"),
        ("  pid == 1 ", "  pid == 1 "),
    ];
    for (text, want) in cases {
        assert_eq!(Filter::parse(text, &format()).unwrap().text(), want);
    }
}

#[test]
fn points_at_the_fault() {
    let cases: [(&str, usize, &str); 42] = [
        ("", 0, "empty"),
        ("  ", 0, "empty"),
        ("pidd == 1", 0, "sys:test has no field `pidd`; it has pid, "),
        ("pid == 1 && x == 2", 12, "no field `x`"),
        ("pid", 3, "one of == != ~ < <= > >= & expected"),
        ("pid = 1", 4, "one of =="),
        ("pid ==", 6, "a value expected"),
        ("pid == x", 7, "decimal, 0x hex or 0 octal"),
        ("pid == \"1\"", 7, "takes no quotes"),
        ("pid == 09", 7, "decimal"),
        ("pid == 1x", 7, "decimal"),
        ("pid == 2147483648", 7, "`pid` holds -2147483648 to 2147483647"),
        ("pid == 0x1ffffffff", 7, "holds"),
        ("pid == 99999999999999999999", 7, "`pid` holds -2147483648 to 2147483647"),
        ("pid == 99999999999999999999x", 7, "holds"),
        ("flag == 256", 8, "`flag` holds 0 to 255"),
        ("flag == -1", 8, "holds 0 to 255"),
        ("ip == -1", 6, "holds 0 to 18446744073709551615"),
        ("pid ~ \"x\"", 4, "`~` compares text"),
        ("comm < \"x\"", 5, "`comm` is text, which is compared with == != or ~"),
        ("comm & 1", 5, "is text, which is compared"),
        ("comm == \"x", 8, "quote is never closed"),
        ("comm == )", 8, "text expected"),
        ("comm == \"a'b\" && comm == a'b\"c", 25, "both kinds of quotes"),
        ("(pid == 1", 0, "this parenthesis is never closed"),
        ("pid == 1)", 8, "closes nothing"),
        ("(pid == 1 pid == 2)", 10, "`)` expected"),
        ("pid == 1 pid == 2", 9, "the end expected"),
        ("pid == 1 & pid == 2", 9, "joined by"),
        ("pid == 1 | pid == 2", 9, "joined by"),
        ("pid == 1 &&", 11, "field name expected"),
        ("()", 1, "field name expected"),
        ("CPU & 1", 4, "`&` needs a set"),
        ("cpus == 1", 8, "is a CPU mask"),
        ("cpus & CPUS{x}", 12, "CPUs expected"),
        ("cpus & CPUS{1", 11, "brace is never closed"),
        ("cpus < CPUS{1}", 5, "a set of CPUs is compared"),
        ("comm == CPUS{1}", 5, "neither a number nor a CPU mask"),
        ("m == 1", 2, "no filter can compare"),
        ("pid.function == x", 13, "`.function` needs an address"),
        ("comm.ustring == x", 4, "`.ustring` is for `char *`"),
        ("pid.foo == x", 3, "`.foo` is unknown"),
    ];
    for (text, offset, message) in cases {
        let error = Filter::parse(text, &format()).expect_err(text);
        assert!(error.message.contains(message), "{text:?}: {}", error.message);
        assert_eq!(error.offset, offset, "{text:?}: {}", error.message);
    }
    let error = Filter::parse("comm == é && x == 1", &format()).unwrap_err();
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1..], ["    comm == é && x == 1", "                 ^"]);
}

#[test]
fn nesting_and_length_are_bounded() {
    let deep = format!("{}pid == 1{}", "(".repeat(65), ")".repeat(65));
    assert_eq!(Filter::parse(&deep, &format()).unwrap_err().offset, 64);
    let deep = format!("{}pid == 1{}", "(".repeat(64), ")".repeat(64));
    assert!(Filter::parse(&deep, &format()).is_ok());
    assert!(Filter::parse(&format!("{}pid == 1", "!".repeat(100_001)), &format()).is_ok());
    let wide = vec!["pid == 1"; 10_000].join(" || ");
    assert_eq!(Filter::parse(&wide, &format()).unwrap().matches(&record(), b"", 0), Some(false));
    assert!(Filter::parse(&format!("comm == \"{}\"", "x".repeat(256)), &format()).is_err());
    assert!(Filter::parse(&format!("comm == \"{}\"", "x".repeat(255)), &format()).is_ok());
}

#[test]
fn quotes_values() {
    let cases: [(&str, Option<&str>); 6] = [
        ("bash", Some("\"bash\"")),
        ("", Some("\"\"")),
        ("a'b", Some("\"a'b\"")),
        ("a\"b", Some("'a\"b'")),
        ("a\"b'c", None),
        ("a\nb", None),
    ];
    for (value, want) in cases {
        assert_eq!(quote(value).as_deref(), want, "{value:?}");
    }
}

proptest::proptest! {
    #[test]
    fn survives_any_text(text in "[pidcomflags=!<>~&|()\"' 0-9x.{}CPUS-]{0,60}|.{0,40}", raw: Vec<u8>) {
        match Filter::parse(&text, &format()) {
            Ok(filter) => {
                filter.matches(&raw, &raw, 3);
                let again = Filter::parse(filter.text(), &format()).expect("the kernel's text parses");
                proptest::prop_assert_eq!(again.matches(&raw, &raw, 3), filter.matches(&raw, &raw, 3));
            }
            Err(error) => proptest::prop_assert!(error.offset <= text.len() && !error.to_string().is_empty()),
        }
    }
}

#[test]
fn filters_are_combined() {
    let parse = |text: &str| Filter::parse(text, &format()).unwrap();
    let (one, either, both) = (parse("pid == 1"), parse("pid == 2 || pid == 3"), parse("flag & 1 && pid != 9"));
    let cases = [
        (one.clone().and(either.clone()), "pid == 1 && (pid == 2 || pid == 3 )"),
        (one.clone().or(either.clone()), "pid == 1 || pid == 2 || pid == 3"),
        (one.clone().and(both.clone()), "pid == 1 && flag & 1 && pid != 9"),
        (
            one.clone().or(both.clone()).and(either.clone()),
            "(pid == 1 || (flag & 1 && pid != 9 ) ) && (pid == 2 || pid == 3 )",
        ),
        (either.clone().negated(), "!(pid == 2 || pid == 3 )"),
    ];
    for (filter, want) in cases {
        assert_eq!(filter.text(), want);
    }
    assert!(Filter::all_of([None, None]).is_none());
    for joined in [Filter::all_of([None, Some(one.clone())]), Filter::any_of([Some(one.clone()), None])] {
        assert_eq!(joined.unwrap().text(), one.text());
    }
}

#[test]
fn combined_filters_match_as_their_text_says() {
    let texts =
        ["pid == -2", "pid == 1", "flag & 1 && pid < 0", "pid == 1 || comm == 7zip", "!(pid == 1)", "ip.function == f"];
    let parse = |text: &str| Filter::parse(text, &format()).unwrap();
    let matches = |filter: &Filter| filter.matches(&record(), b"bash", 3);
    for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (parse(one), parse(other)))) {
        let known = matches(&one).zip(matches(&other));
        let (both, either) = (one.clone().and(other.clone()), one.clone().or(other.clone()));
        assert!(known.is_none_or(|(one, other)| matches(&both) == Some(one && other)), "{}", both.text());
        assert!(known.is_none_or(|(one, other)| matches(&either) == Some(one || other)), "{}", either.text());
        for filter in [one.clone().negated(), both.clone().negated(), both, either] {
            assert_eq!(matches(&parse(filter.text())), matches(&filter), "{}", filter.text());
        }
    }
}
