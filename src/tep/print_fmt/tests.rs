//! Compiles real and hostile `print fmt` texts and prints records with them.

use std::io::Write;

use super::*;
use crate::tep::format::Format;
use crate::tep::samples;

const FIELDS: &str = "name: test\nID: 1\nformat:\n\
    \tfield:int i;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:unsigned int u;\toffset:12;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned long l;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:char c[8];\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:u8 a[4];\toffset:32;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] s;\toffset:36;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc u16[] d;\toffset:40;\tsize:4;\tsigned:0;\n\
    \tfield:u8 b;\toffset:44;\tsize:1;\tsigned:0;\n\
    \tfield:s8 n;\toffset:45;\tsize:1;\tsigned:1;\n\
    \tfield:const char * p;\toffset:48;\tsize:8;\tsigned:0;\n\
    \tfield:foo_t f;\toffset:56;\tsize:2;\tsigned:0;\n\
    \tfield:__rel_loc u16[] r;\toffset:68;\tsize:4;\tsigned:0;\n\
    \tfield:__rel_loc char[] t;\toffset:72;\tsize:4;\tsigned:0;\n\n";

/// i -2, u 0xfffffffe, l 0x123456789a, c "hi", a 1 2 3 4, s "str", d 5 6, b 200, n -3, p 0xffff888000000000, f 9; r as
/// d and t as s, located from themselves.
fn record() -> Vec<u8> {
    let mut raw = vec![0; 60];
    raw[8..12].copy_from_slice(&(-2i32).to_ne_bytes());
    raw[12..16].copy_from_slice(&0xffff_fffeu32.to_ne_bytes());
    raw[16..24].copy_from_slice(&0x12_3456_789au64.to_ne_bytes());
    raw[24..26].copy_from_slice(b"hi");
    raw[32..36].copy_from_slice(&[1, 2, 3, 4]);
    raw[36..40].copy_from_slice(&(60u32 | 4 << 16).to_ne_bytes());
    raw[40..44].copy_from_slice(&(64u32 | 4 << 16).to_ne_bytes());
    raw[44] = 200;
    raw[45] = 0xfd;
    raw[48..56].copy_from_slice(&0xffff_8880_0000_0000u64.to_ne_bytes());
    raw[56..58].copy_from_slice(&9u16.to_ne_bytes());
    let arrays = |raw: &mut Vec<u8>| {
        raw.extend(b"str\0");
        raw.extend(5u16.to_ne_bytes());
        raw.extend(6u16.to_ne_bytes());
    };
    arrays(&mut raw);
    raw.extend((8u32 | 4 << 16).to_ne_bytes());
    raw.extend((4u32 << 16).to_ne_bytes());
    arrays(&mut raw);
    raw
}

fn compile(print_fmt: &str) -> Result<PrintFmt, Unsupported> {
    PrintFmt::compile(&Format::parse("sys", &format!("{FIELDS}print fmt: {print_fmt}\n")).unwrap())
}

fn text_of(compiled: &PrintFmt, raw: &[u8]) -> String {
    let mut out = Vec::new();
    compiled.render(raw, &NoNames, &mut out);
    String::from_utf8(out).unwrap()
}

fn print(print_fmt: &str) -> String {
    let compiled = compile(print_fmt).unwrap_or_else(|error| panic!("{print_fmt}: {error}"));
    text_of(&compiled, &record())
}

#[test]
fn converts_as_the_kernels_printf() {
    let cases = [
        (r#""plain""#, "plain"),
        (r#""100%%", "#, "100%"),
        (r#""%d %i %u", REC->i, REC->i, REC->i"#, "-2 -2 4294967294"),
        (r#""%x %X %o", REC->u, REC->u, 8"#, "fffffffe FFFFFFFE 10"),
        (r#""%#x %#x %#o %#o", 0, 255, 0, 8"#, "0x0 0xff 0 010"),
        (r#""%08lx|%8lx|%-8lx|", 26, 26, 26"#, "0000001a|      1a|1a      |"),
        (r#""%#010x|%-#6x|", 26, 26"#, "0x0000001a|0x1a  |"),
        (r#""%llu %lu %zu %Lu", REC->l, REC->l, REC->l, REC->l"#, "78187493530 78187493530 78187493530 78187493530"),
        (r#""%x %hx %hhx %hhd", REC->l, REC->l, REC->l, REC->l"#, "3456789a 789a 9a -102"),
        (r#""%+d|% d|%05d|%-5d|%5d|", 7, 7, -7, 7, 7"#, "+7| 7|-0007|7    |    7|"),
        (r#""%.2x|%5.2d|%05.2d|%.0d", 3, 3, 3, 0"#, "03|   03|00003|0"),
        (r#""%*d|%-*d|%*d", 4, 7, 4, 7, -4, 7"#, "   7|7   |7   "),
        (r#""%c%c|%3c|%-3c|", 'a', 66, 'x', 'y'"#, "aB|  x|y  |"),
        (r#""%s|%5s|%-5s|%.1s|%.*s", REC->c, REC->c, REC->c, REC->c, 1, REC->c"#, "hi|   hi|hi   |h|h"),
        (
            r#""%p|%px|%pK|%20p", REC->l, REC->p, REC->l, REC->l"#,
            "000000123456789a|ffff888000000000|000000123456789a|          123456789a",
        ),
        (r#""%pS %ps", REC->l, (void *)REC->l"#, "0x123456789a 0x123456789a"),
        (r#""%s %s", REC->p, ((void *)0)"#, "0xffff888000000000 (null)"),
        (r#""%pI4 %pi4", REC->a, &REC->a[0]"#, "1.2.3.4 001.002.003.004"),
        (r#""%*ph|%*phN|%4phC", 3, REC->a, 2, REC->a, REC->a"#, "01 02 03|0102|01:02:03:04"),
        (r#""%*pbl|%*pb", 8, REC->a, 16, REC->a"#, "0|0201"),
    ];
    for (text, want) in cases {
        assert_eq!(print(text), want, "{text}");
    }
}

#[test]
fn computes_as_c() {
    let cases: [(&str, i64); 54] = [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * 3 % 4", 1),
        ("1 << 4 | 1 ^ 3 & 2", 19),
        ("1 || 0 && 0", 1),
        ("2 > 1 == 1", 1),
        ("REC->i < 0", 1),
        ("REC->i < 0U", 0),
        ("REC->i < REC->l", 0),
        ("REC->u > 0", 1),
        ("REC->u + 4", 2),
        ("REC->u + 4L", 0x1_0000_0002),
        ("REC->i >> 1", -1),
        ("REC->u >> 1", 0x7fff_ffff),
        ("REC->b + 100", 300),
        ("(unsigned char)(REC->b + 100)", 44),
        ("(u8)300", 44),
        ("(char)300", 44),
        ("(s8)0xff", -1),
        ("(unsigned int)-1", 0xffff_ffff),
        ("(unsigned long long)-1 == ~0ULL", 1),
        ("(int)REC->l", 0x3456_789a),
        ("(foo_t)70000", 4464),
        ("(long)(int)REC->u", -2),
        ("-REC->b", -200),
        ("~REC->b", -201),
        ("!REC->b", 0),
        ("!0", 1),
        ("REC->n", -3),
        ("1 / 0", 0),
        ("1 % 0", 0),
        ("REC->i / (REC->b - 200)", 0),
        ("((int)0x80000000) / -1", -2_147_483_648),
        ("1 << 33", 2),
        ("1UL << 33", 1 << 33),
        ("REC->i ? 5 : 6", 5),
        ("0 ? 1 : 2 ? 3 : 4", 3),
        ("REC->b ?: 9", 200),
        ("sizeof(int) + sizeof(unsigned long) + sizeof(REC->c) + sizeof(u16)", 22),
        ("sizeof(struct foo *)", 8),
        ("REC->a[2]", 3),
        ("*REC->a", 1),
        ("*(u16 *)&REC->u == 0xfffe", 1),
        ("*(u16 *)&REC->a[1]", 0x0302),
        ("*(u16 *)(REC->a + (REC->b - 199)) == 0x0302", 1),
        ("((u16 *)__get_dynamic_array(d))[1]", 6),
        ("__get_dynamic_array_len(d) / sizeof(u16)", 2),
        ("__builtin_expect(!!(REC->i), 0)", 1),
        ("__builtin_constant_p(7) ? 7 : unknown(REC->i)", 7),
        ("1 ? 8 : UNKNOWN_NAME", 8),
        ("(typeof(REC->b))300", 44),
        ("((unsigned int) ((REC->u) & ((1U << 20) - 1)))", 0xffffe),
        ("__print_ns_to_secs(REC->l)", 78),
        ("__print_ns_without_secs(REC->l)", 187_493_530),
        ("(enum foo)3 + (const unsigned short)65537", 4),
    ];
    for (text, want) in cases {
        assert_eq!(print(&format!("\"%lld\", (long long)({text})")), want.to_string(), "{text}");
    }
}

#[test]
fn calls_the_kernels_functions() {
    let cases = [
        (r#""%s", __get_str(s)"#, "str"),
        (r#""%s", __print_flags(3, "|", { 1, "A" }, { 2, "B" })"#, "A|B"),
        (r#""%s", __print_flags(0, "|", { 1, "A" })"#, ""),
        (r#""%s", __print_flags(13, "|", { 1, "A" }, { 3, "B" })"#, "A|0xc"),
        (r#""%s", __print_flags(4, "", { 3, "B" })"#, "0x4"),
        (r#""%s", __print_flags(REC->i + 1, "|", { -1, "all" })"#, "all"),
        (r#""%s", __print_flags(3, ",", { 1, "A" }, { 0, ((void *)0) }, { 2, "B" })"#, "A,0x2"),
        (r#""%s", __print_flags(3, "|", {( unsigned long)(1UL << 0), "A"}, { (2), "B" "C" }, )"#, "A|BC"),
        (r#""%s", __print_symbolic(REC->b, { 200, "yes" }, { 1, "no" })"#, "yes"),
        (r#""%s", __print_symbolic(REC->i, { 1, "no" })"#, "0xfffffffffffffffe"),
        (r#""%s", __print_symbolic(REC->u, { })"#, "0xfffffffe"),
        (r#""%s", __print_symbolic_u64(5, { 5ULL, "five" })"#, "five"),
        (r#""%-6s|%6s|%.2s", __print_symbolic(1, { 1, "one" }), "ab", "xyz""#, "one   |    ab|xy"),
        (r#""%s", REC->b == 200 ? __print_symbolic(1, { 1, "one" }) : "other""#, "one"),
        (r#""%s", REC->b ? "yes" : "no""#, "yes"),
        (r#""%s", REC->b ? REC->c : "no""#, "hi"),
        (r#""%s", __print_hex(REC->a, 3)"#, "01 02 03"),
        (r#""%s", __print_hex_str(__get_dynamic_array(s), __get_dynamic_array_len(s))"#, "73747200"),
        (r#""%s", __print_array(REC->a, 4, 1)"#, "{0x1,0x2,0x3,0x4}"),
        (r#""%s", __print_array(__get_dynamic_array(d), __get_dynamic_array_len(d) / 2, 2)"#, "{0x5,0x6}"),
        (r#""%s", __print_dynamic_array(d, sizeof(u16))"#, "{0x5,0x6}"),
        (r#""%s", __get_bitmask(d)"#, "00060005"),
        (r#""%s", "a" "b""#, "ab"),
        (r#""instr="%s" x", __get_str(s)"#, "instr=\"str\" x"),
        (r#""warn="%s"", __get_str(s)"#, "warn=\"str\""),
        (r#""a, "%d", b", 1"#, "a, \"1\", b"),
        (r#""a\t" "b%d\n" "c", 1"#, "a\tb1\nc"),
        ("\"line\nbreak %d\n\", 1", "line\nbreak 1\n"),
    ];
    for (text, want) in cases {
        assert_eq!(print(text), want, "{text}");
    }
}

#[test]
fn shows_a_question_mark_without_a_value() {
    let cases = [
        (r#""a=%d b=%s", REC->a[4], "x""#, "a=? b=x"),
        (r#""%s", __print_array(REC->a, 5, 1)"#, "?"),
        (r#""%s", __print_array(REC->a, -1, 1)"#, "?"),
        (r#""%s", __print_hex(REC->a, 1000000)"#, "?"),
        (r#""%d", REC->a"#, "?"),
        (r#""%pI6c", REC->a"#, "?"),
        (r#""%*ph", 60, REC->a"#, "?"),
    ];
    for (text, want) in cases {
        assert_eq!(print(text), want, "{text}");
    }
    let compiled = compile(r#""%d %s %s %d", REC->i, REC->c, __get_str(s), 7"#).unwrap();
    for len in 0..record().len() {
        let text = text_of(&compiled, &record()[..len]);
        assert!(text.ends_with(" 7"), "{text}");
    }
    assert_eq!(text_of(&compiled, &[]), "? ? ? 7");
}

#[test]
fn shows_the_fields_of_an_unknown_argument() {
    let cases = [
        (
            r#""a=%u b=%d", msecs_of(REC->u + REC->i, REC->u), 1"#,
            "function msecs_of",
            "a=msecs_of(u=4294967294,i=-2) b=1",
        ),
        (r#""%d", HZ"#, "name HZ", "HZ()"),
        (r#""%p", base + REC->i"#, "name base", "base(i=-2)"),
        (
            r#""%s|%s", driver_name(p, __get_str(s), REC->a), REC->c"#,
            "function driver_name",
            "driver_name(s=str,a={1,2,3,4})|hi",
        ),
        (r#""%s", __print_symbolic(REC->i, { FOO, "x" }, { 1, "y" })"#, "name FOO", "0xfffffffffffffffe"),
        (r#""%s", __print_flags(REC->a[2], "|", { 1, "x" }, { 1 << BAR, "y" })"#, "name BAR", "x|0x2"),
        (r#""%d", REC->nothing"#, "field nothing", "?()"),
        (r#""%s", __get_str(i)"#, "field i, which locates nothing", "?(i=-2)"),
        (r#""%d", REC->a.b"#, "member b", "b(a={1,2,3,4})"),
        (r#""%d", (bar_t)REC->i"#, "type bar_t", "bar_t(i=-2)"),
        (r#""%d", ((union x) { .y = REC->i }).y"#, "member y", "y(i=-2)"),
        (r#""%s", ({ const char *t = say(REC->b); t; })"#, "function say", "say(b=200)"),
        (r#""%s %d", ({ if (REC->b) { f(REC->n); } }), 7"#, "statement expression", "?(b=200,n=-3) 7"),
        (r#""%d", ({ int x = REC->b; do { x = 1; } while (0); x; })"#, "statement expression", "?(b=200)"),
        (r#""%d", ({ f(REC->b); 7; })"#, "statement expression", "?(b=200)"),
        (r#""%pV", REC->p"#, "conversion of a kernel pointer", "?(p=0xffff888000000000)"),
        (r#""%d", *(int *)REC->p"#, "dereference of a kernel pointer", "?(p=0xffff888000000000)"),
        (r#""%pI4", REC->p"#, "dereference of a kernel pointer", "?(p=0xffff888000000000)"),
        (r#""%d", __print_symbolic(REC->i, { 1, "x" })"#, "text where a number belongs", "?(i=-2)"),
        (r#""%*d", WIDTH, REC->i"#, "name WIDTH", "WIDTH(i=-2)"),
    ];
    for (text, gap, want) in cases {
        let compiled = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(compiled.gaps(), [gap], "{text}");
        assert_eq!(text_of(&compiled, &record()), want, "{text}");
    }
    // The stand-in shows only where the unknown function would be called.
    let compiled = compile(r#""%d %d", REC->b == 200 ? 5 : unknown(REC->i), REC->b ? unknown(REC->i) : 6"#).unwrap();
    assert_eq!(text_of(&compiled, &record()), "5 unknown(b=200,i=-2)");
    assert_eq!(compiled.gaps(), ["function unknown"]);
    assert_eq!(text_of(&compiled, &[]), "unknown(b=?,i=?) unknown(b=?,i=?)");
}

#[test]
fn knows_functions_and_constants_of_the_kernel() {
    let cases = [
        (r#""[%s]", nvme_trace_disk_name(p, REC->c)"#, "[disk=hi, ]"),
        (r#""[%s]", nvme_trace_disk_name(p, &REC->c[2])"#, "[]"),
        (r#""%s %s", xhci_ring_type_string(REC->a[0]), xhci_ring_type_string(REC->b)"#, "ISOC UNKNOWN"),
        (r#""%s", __print_symbolic(10, { TCP_LISTEN, "listen" })"#, "listen"),
        (r#""%d", ({ int x = (REC->i); int y = (3); ((x) < (y) ? (x) : (y)); })"#, "-2"),
        (r#""%d", ({ typeof(REC->i) x = (REC->i); typeof(3) y = (3); (void) (&x == &y); x > y ? x : y; })"#, "3"),
        (
            r#""%d", ({ __auto_type x = (REC->n); __auto_type y = (9);
                do { if (!(!(sizeof(x) > 4))) __compiletime_assert_7(); } while (0); ((x) > (y) ? (x) : (y)); })"#,
            "9",
        ),
        (
            r#""%x", ({ ({ do { extern void __compiletime_assert_9(void); } while (0); });
                (typeof(0xff00))(((REC->l) & (0xff00)) >> (__builtin_ffsll(0xff00) - 1)); })"#,
            "78",
        ),
        (r#""%lld", (unsigned long long)(((ktime_t) { .tv64 = REC->l }).tv64)"#, "78187493530"),
        (r#""%d", (REC)->i"#, "-2"),
        (r#""%d", 7 + sizeof(struct { int:-!!(REC->i == 1); })"#, "7"),
    ];
    for (text, want) in cases {
        assert_eq!(print(text), want, "{text}");
        assert!(compile(text).unwrap().gaps().is_empty(), "{text}");
    }
}

/// Helpers that include/trace/stages/stage7_class_define.h leaves for readers to compute. `__get_buf` is memory of the
/// kernel.
#[test]
fn knows_each_helper_of_the_kernels_list() {
    let cases = [
        (r#""%s", __print_flags(REC->b, "|", { 8, "A" }, { 64, "B" })"#, "A|B|0x80"),
        (r#""%s", __print_flags_u64(REC->b, "|", { 8, "A" })"#, "A|0xc0"),
        (r#""%s", __print_symbolic(REC->b, { 200, "yes" })"#, "yes"),
        (r#""%s", __print_symbolic_u64(REC->b, { 200, "yes" })"#, "yes"),
        (r#""%s", __print_hex(__get_dynamic_array(d), 4)"#, "05 00 06 00"),
        (r#""%s", __print_hex_str(REC->a, 4)"#, "01020304"),
        (r#""%d", ((u16 *)__get_dynamic_array(d))[1]"#, "6"),
        (r#""%d", ((u16 *)__get_rel_dynamic_array(r))[1]"#, "6"),
        (r#""%d", __get_dynamic_array_len(d)"#, "4"),
        (r#""%d", __get_rel_dynamic_array_len(r)"#, "4"),
        (r#""%s", __get_str(s)"#, "str"),
        (r#""%s", __get_rel_str(t)"#, "str"),
        (r#""%s", __get_bitmask(d)"#, "00060005"),
        (r#""%s", __get_rel_bitmask(r)"#, "00060005"),
        (r#""%s", __get_cpumask(d)"#, "00060005"),
        (r#""%s", __get_rel_cpumask(r)"#, "00060005"),
        (r#""%*ph", 2, __get_sockaddr(d)"#, "05 00"),
        (r#""%*ph", 2, __get_rel_sockaddr(r)"#, "05 00"),
        (r#""%s", __print_array(REC->a, 2, 2)"#, "{0x201,0x403}"),
        (r#""%s", __print_dynamic_array(d, 2)"#, "{0x5,0x6}"),
        (r#""%u", (REC->l) / 1000000000UL"#, "78"),
        (r#""%u", (REC->l) % 1000000000UL"#, "187493530"),
        (r#""%u", (REC->b & 0x8)"#, "8"),
    ];
    for (text, want) in cases {
        assert_eq!(print(text), want, "{text}");
        assert!(compile(text).unwrap().gaps().is_empty(), "{text}");
    }
    assert_eq!(compile(r#""%s", driver_text(__get_buf(64), REC->b)"#).unwrap().gaps(), ["function driver_text"]);
}

#[test]
fn dumps_bytes_as_the_kernel_does() {
    let dump = |arguments: &str| print(&format!("\"%s\", __print_hex_dump({arguments})"));
    let cases = [
        (r#""", DUMP_PREFIX_NONE, 16, 1, REC->a, 4, false"#, "\n01 02 03 04\n"),
        (r#""", DUMP_PREFIX_NONE, 16, 2, REC->a, 4, false"#, "\n0201 0403\n"),
        (r#""", DUMP_PREFIX_NONE, 16, 4, REC->a, 4, 0"#, "\n04030201\n"),
        (r#""", DUMP_PREFIX_NONE, 16, 4, REC->a, 3, 0"#, "\n01 02 03\n"), // no group of 3
        (r#""> ", DUMP_PREFIX_OFFSET, 16, 1, REC->a, 4, 0"#, "\n> 00000000: 01 02 03 04\n"),
        (r#""", DUMP_PREFIX_NONE, 16, 1, REC->a, 0, 0"#, "\n"),
        (r#""", DUMP_PREFIX_NONE, 16, 1, REC->a, 5, 0"#, "?"),
        (r#""", DUMP_PREFIX_NONE, 16, 1, REC->a, REC->l, 0"#, "?"),
    ];
    for (arguments, want) in cases {
        assert_eq!(dump(arguments), want, "{arguments}");
    }
    let text = dump(r#""", 2, 7, 8, "0123456789abcdef\x7f xyz", 21, true"#);
    let lines = [
        "",
        "00000000: 3736353433323130 6665646362613938  0123456789abcdef",
        "00000010: 7f 20 78 79 7a                                   . xyz",
        "",
    ];
    assert_eq!(text, lines.join("\n"));
    let addressed = compile(r#""%s", __print_hex_dump("", DUMP_PREFIX_ADDRESS, 16, 1, REC->a, 4, 0)"#).unwrap();
    assert_eq!(addressed.gaps(), ["address of the record"]);
}

/// The code that compilers and inline functions of the kernel's headers leave for byte orders, bit counts and units of
/// time.
#[test]
fn computes_what_compilers_leave() {
    let cases = [
        ("__builtin_bswap16(REC->l)", 0x9a78),
        ("__builtin_bswap32((__u32)(( __u32)(__be32)(REC->l)))", 0x9a78_5634),
        ("__builtin_bswap64(REC->l)", 0x9a78_5634_1200_0000_u64 as i64),
        ("__fswab16(REC->l)", 0x9a78),
        ("__fswab32(REC->l)", 0x9a78_5634),
        ("__fswab64(REC->l)", 0x9a78_5634_1200_0000_u64 as i64),
        ("__arch_swab32(REC->l)", 0x9a78_5634),
        ("(__builtin_constant_p((__u16)(REC->l)) ? 1 : __fswab16(REC->l))", 0x9a78),
        ("__builtin_bswap32(REC->i) < 0", 0), // unsigned
        ("__le16_to_cpup((__le16 *)REC->a)", 0x0201),
        ("__be16_to_cpup((__be16 *)REC->a)", 0x0102),
        ("__le32_to_cpup((__le32 *)REC->a)", 0x0403_0201),
        ("__be32_to_cpup((__be32 *)REC->a)", 0x0102_0304),
        ("__be64_to_cpup((__be64 *)&REC->l)", 0x9a78_5634_1200_0000_u64 as i64),
        ("__le64_to_cpup((__le64 *)&REC->l)", 0x12_3456_789a),
        ("__swab32p((__u32 *)REC->a)", 0x0102_0304),
        ("get_unaligned_be16(&REC->a[1])", 0x0203),
        ("get_unaligned_le16(&REC->a[1])", 0x0302),
        ("get_unaligned_be32(REC->a)", 0x0102_0304),
        ("__builtin_ffs(REC->b)", 4),
        ("__builtin_ffsll(0)", 0),
        ("ffs(REC->b) + fls(REC->b) + fls(0)", 12),
        ("__ffs(REC->b) * 100 + __fls(REC->b)", 307),
        ("fls64(REC->l)", 37),
        ("__builtin_clz(REC->b)", 24),
        ("__builtin_clzll(REC->l)", 27),
        ("__builtin_ctz(REC->b) + __builtin_ctzl(REC->b) + __builtin_ctzll(REC->b)", 9),
        ("__builtin_popcount(REC->i) * 100 + __builtin_popcountll(REC->i)", 3163),
        ("__arch_hweight8(REC->u) + __arch_hweight16(REC->u)", 7 + 15),
        ("__sw_hweight32(REC->u) + __arch_hweight64(REC->b)", 31 + 3),
        ("__ilog2_u32(REC->b) * 100 + __ilog2_u64(REC->l)", 736),
        ("ktime_to_ns(REC->l) + ktime_to_us(REC->l) + ktime_to_ms(REC->l)", 78_187_493_530 + 78_187_493 + 78_187),
        ("ktime_to_us(-1500)", -1),
        ("div_u64(REC->l, 1000) + div64_u64(REC->l, REC->b)", 78_187_493 + 390_937_467),
        ("div_s64(REC->i, 2)", -1),
        ("div_u64(REC->l, 0)", 0),
    ];
    for (text, want) in cases {
        let text = format!("\"%lld\", (long long)({text})");
        assert_eq!(print(&text), want.to_string(), "{text}");
        assert!(compile(&text).unwrap().gaps().is_empty(), "{text}");
    }
    // Undefined in C: no value.
    for text in ["__builtin_clz(REC->i + 2)", "__builtin_ctz(REC->i + 2)", "__ffs(REC->i + 2)", "__ilog2_u32(0)"] {
        assert_eq!(print(&format!("\"%d\", {text}")), "?", "{text}");
    }
}

#[test]
fn refuses_text_that_is_no_call_of_printf() {
    let cases = [
        (r#""%y", 1"#, "conversion %y"),
        (r#""%"#, "syntax: no text in quotes"),
        (r#""%", 1"#, "conversion at the end of the text"),
        (r#""%d""#, "syntax: fewer arguments than conversions"),
        (r#""x", 1"#, "syntax: more arguments than conversions"),
        (r#""%d", (1"#, "syntax: `)` expected at \"\""),
        ("", "no print fmt"),
        ("junk", "syntax: no text in quotes"),
    ];
    for (text, want) in cases {
        assert_eq!(compile(text).map(|_| ()).unwrap_err().reason, want, "{text}");
    }
}

#[test]
fn bounds_depth_work_and_output() {
    let wrapped =
        |open: &str, close: &str, times: usize| format!("\"%d\", {}1{}", open.repeat(times), close.repeat(times));
    assert!(compile(&wrapped("(", ")", 60)).is_ok());
    let deep = [
        wrapped("(", ")", 20_000),
        wrapped("-", "", 20_000),
        wrapped("(int)", "", 5_000),
        wrapped("(typeof(", "", 5_000),
        wrapped("(typeof((", "))1", 50),
        wrapped("sizeof(", ")", 5_000),
        wrapped("REC->a[", "]", 5_000),
        wrapped("1 ? ", " : 1", 5_000),
        wrapped("1 ?: ", "", 5_000),
        wrapped("__builtin_expect(", ", 1)", 2_000),
        wrapped("f(", ")", 10_000),
        format!("\"%d\", {}", vec!["REC->i"; 5_000].join(" + ")),
        wrapped("(REC->i ?: ", ")", 60),
        format!("\"%d\", {}REC->i{}", "(".repeat(60), " ?: 1)".repeat(60)),
        format!("\"%d\", ({{ int a = REC->i; {} a; }})", "int a = a + a; ".repeat(60)),
        wrapped("({ int a = ", "; a; })", 500),
        wrapped("((long) { .a = ", " }).a", 500),
        wrapped("sizeof(struct { int:", "; })", 500),
    ];
    for text in &deep {
        let _ = compile(text).map(|compiled| text_of(&compiled, &record()));
    }
    let wide = format!("\"{}\"{}", "%4000d".repeat(40), ", REC->i".repeat(40));
    assert_eq!(print(&wide).len(), MAX_TEXT_BYTES);
    assert!(compile(&format!("\"{}\"", "x".repeat(MAX_PRINT_FMT_BYTES))).is_err());
}

#[test]
fn prints_real_records() {
    let event = |system: &str, text: &str| {
        let format = Format::parse(system, text).unwrap();
        (PrintFmt::compile(&format).unwrap(), format)
    };
    let (switch, format) = event("sched", samples::SCHED_SWITCH_6_18);
    let mut raw = vec![0; 64];
    raw[8..12].copy_from_slice(b"bash");
    raw[24..28].copy_from_slice(&42i32.to_ne_bytes());
    raw[28..32].copy_from_slice(&120i32.to_ne_bytes());
    raw[32..40].copy_from_slice(&0x102u64.to_ne_bytes());
    raw[40..49].copy_from_slice(b"swapper/1");
    raw[60..64].copy_from_slice(&120i32.to_ne_bytes());
    assert_eq!(
        text_of(&switch, &raw),
        "prev_comm=bash prev_pid=42 prev_prio=120 prev_state=D+ ==> next_comm=swapper/1 next_pid=0 next_prio=120"
    );
    assert_eq!(format.field("prev_state").unwrap().read_i64(&raw), Ok(0x102));

    let (softirq, _) = event("irq", samples::SOFTIRQ_ENTRY);
    let raw = [&[0; 8][..], &7u32.to_ne_bytes()].concat();
    assert_eq!(text_of(&softirq, &raw), "vec=7 [action=SCHED]");

    let (exec, _) = event("sched", samples::SCHED_PROCESS_EXEC);
    let raw = [&[0; 8][..], &(20u32 | 8 << 16).to_ne_bytes(), &5i32.to_ne_bytes(), &6i32.to_ne_bytes(), b"/bin/ls\0"]
        .concat();
    assert_eq!(text_of(&exec, &raw), "filename=/bin/ls pid=5 old_pid=6");

    let (greeting, _) = event("user_events", samples::REL_LOC);
    let raw = [&[0; 8][..], &(4u32 | 6 << 16).to_ne_bytes(), &3u32.to_ne_bytes(), b"hello\0"].concat();
    assert_eq!(text_of(&greeting, &raw), "text=hello count=3");

    let (issue, _) = event("block", samples::BLOCK_RQ_ISSUE);
    let mut raw = vec![0; 64];
    raw[8..12].copy_from_slice(&(254u32 << 20 | 3).to_ne_bytes());
    raw[16..24].copy_from_slice(&2048u64.to_ne_bytes());
    raw[24..28].copy_from_slice(&8u32.to_ne_bytes());
    raw[28..32].copy_from_slice(&4096u32.to_ne_bytes());
    raw[32..34].copy_from_slice(&0x4004u16.to_ne_bytes());
    raw[34..36].copy_from_slice(b"WS");
    raw[44..48].copy_from_slice(b"jbd2");
    raw[60..64].copy_from_slice(&(64u32 | 1 << 16).to_ne_bytes());
    raw.push(0);
    assert_eq!(text_of(&issue, &raw), "254,3 WS 4096 () 2048 + 8 be,0,4 [jbd2]");

    let (kmalloc, _) = event("kmem", samples::KMALLOC);
    let mut raw = vec![0; 44];
    raw[40..44].copy_from_slice(&0xd0u32.to_ne_bytes());
    assert!(text_of(&kmalloc, &raw).ends_with(" gfp_flags=GFP_KERNEL"), "{}", text_of(&kmalloc, &raw));
}

#[test]
fn finds_the_task_states() {
    let table = |text: &str| {
        let format = Format::parse("sched", text).unwrap();
        PrintFmt::compile(&format).unwrap().flag_table("prev_state").unwrap()
    };
    // prev_state, and the letters it prints.
    let cases: [(&str, &[(u64, &str)]); 6] = [
        (samples::SCHED_SWITCH_3_4, &[(1, "S"), (2, "D"), (512, ""), (130, "D|W"), (2 | 512, "D")]),
        (samples::SCHED_SWITCH_3_10, &[(1, "S"), (2 | 128, "D|K"), (1024, ""), (16, "Z")]),
        (samples::SCHED_SWITCH_4_4, &[(2 | 1024, "D|N"), (2 | 128, "D|K"), (2048, "")]),
        (samples::SCHED_SWITCH_5_10, &[(2, "D"), (0x80, "I"), (0x100, ""), (0x402, "D"), (0x20, "Z")]),
        (samples::SCHED_SWITCH_6_1, &[(2, "D"), (0x80, "I"), (0x100, "")]),
        (
            samples::SCHED_SWITCH_6_18,
            &[(0, ""), (1, "S"), (2, "D"), (0x80, "I"), (0x100, ""), (0x182, "D|I"), (u64::MAX, "S|D|T|t|X|Z|P|I")],
        ),
    ];
    for (text, states) in cases {
        let table = table(text);
        assert!(table.flags);
        assert_eq!(table.entries.iter().find(|(_, name)| name == "D").map(|(mask, _)| *mask), Some(2));
        for (state, want) in states {
            let mut out = Vec::new();
            table.render(*state, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), *want, "{state:#x}");
        }
    }
    assert_eq!(table(samples::SCHED_SWITCH_6_18).masked(0x102), 2);
    assert_eq!(table(samples::SCHED_SWITCH_3_10).masked(0x402), 2);

    let softirq = PrintFmt::compile(&Format::parse("irq", samples::SOFTIRQ_ENTRY).unwrap()).unwrap();
    let actions = softirq.flag_table("vec").unwrap();
    assert_eq!((actions.flags, actions.entries.len(), actions.masked(3)), (false, 10, 3));
    assert!(softirq.flag_table("common_pid").is_none());
    assert!(softirq.flag_table("nothing").is_none());
}

/// Each field as the event shows it. Fields that it shows as decimal numbers, or together with others, have no text.
#[test]
fn fields_have_the_text_of_their_event() {
    use FieldForm::*;
    let compiled = |sample: &str| PrintFmt::compile(&Format::parse("x", sample).unwrap()).unwrap();
    let cases = [
        (samples::SCHED_SWITCH_6_18, "prev_state", Name, 0, "R"),
        (samples::SCHED_SWITCH_6_18, "prev_state", Name, 2, "D"),
        (samples::SCHED_SWITCH_6_18, "prev_state", Name, 0x100, "R+"),
        (samples::SOFTIRQ_ENTRY, "vec", Name, 3, "NET_RX"),
        (samples::SOFTIRQ_ENTRY, "vec", Name, 77, "0x4d"),
        (samples::BLOCK_RQ_ISSUE, "dev", Device, 254 << 20, "254,0"),
        (samples::BLOCK_RQ_ISSUE, "dev", Device, 8 << 20 | 17, "8,17"),
        (samples::KMALLOC, "gfp_flags", Name, 0xd0, "GFP_KERNEL"),
        (samples::KMALLOC, "ptr", Hex, 0xffff_8880_0000_1000, "ffff888000001000"),
    ];
    for (sample, field, form, number, want) in cases {
        let shown = compiled(sample).field_text(field).unwrap_or_else(|| panic!("{field}"));
        let text = shown.text(number).map(|text| String::from_utf8(text).unwrap());
        assert_eq!((shown.form, text.as_deref()), (form, Some(want)), "{field} {number:#x}");
    }
    let newer =
        samples::KMALLOC.replace("call_site=%lx", "call_site=%pS").replace("REC->call_site", "(void *)REC->call_site");
    assert_eq!(compiled(&newer).field_text("call_site").unwrap().form, KernelAddress);
    for (sample, field) in [
        (samples::SCHED_SWITCH_6_18, "next_pid"),
        (samples::SCHED_SWITCH_6_18, "prev_comm"),
        (samples::SOFTIRQ_ENTRY, "common_pid"),
        (samples::BLOCK_RQ_ISSUE, "sector"),
        (samples::KMALLOC, "bytes_req"),
    ] {
        assert!(compiled(sample).field_text(field).is_none(), "{field}");
    }
}

#[test]
fn asks_for_names() {
    struct FixedNames;
    impl KernelLookup for FixedNames {
        fn kernel_symbol(&self, addr: u64, out: &mut Vec<u8>, with_offset: bool) -> bool {
            let _ = write!(out, "f{addr:x}{}", if with_offset { "+0x1/0x2" } else { "" });
            true
        }
        fn kernel_text(&self, _addr: u64, out: &mut Vec<u8>) -> bool {
            out.extend_from_slice(b"constant");
            true
        }
    }
    let compiled = compile(r#""%ps %pS %s", 16, 17, REC->p"#).unwrap();
    let mut out = Vec::new();
    compiled.render(&record(), &FixedNames, &mut out);
    assert_eq!(out, b"f10 f11+0x1/0x2 constant");
}

proptest::proptest! {
    #[test]
    fn survives_any_print_fmt(
        text in "\"[a%dsxp*.0-9\\\\ -]{0,12}\"(, [RECiaslcd()+*/<>?:&|!~,\\[\\]{}\"0-9 -]{0,30}){0,3}|.{0,40}",
        raw in proptest::collection::vec(proptest::num::u8::ANY, 0..100),
    ) {
        if let Ok(compiled) = compile(&text) {
            compiled.render(&raw, &NoNames, &mut Vec::new());
        }
    }

    #[test]
    fn survives_made_up_expressions(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "REC->i", "REC->a", "REC->l", "REC->p", "__get_dynamic_array(d)", "(", ")", "[", "]", "+", "-", "*", "/", "%", "<<", ">>",
            "&", "|", "?", ":", "(u8 *)", "(long)", "1", "0x8000000000000000ULL", "sizeof(", "~", "!", "==", "<", "&&", ",", "typeof(",
            "__print_flags(", "__print_array(", "{ 1, \"x\" }", "\"|\"", "__get_str(s)", "__builtin_expect(", "-1",
        ]), 0..14),
        conversion in proptest::sample::select(vec!["%d", "%s", "%pI6c", "%*ph", "%.*s", "%llx", "%pS", "%*pbl", "%c"]),
        raw in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
    ) {
        if let Ok(compiled) = compile(&format!("\"{conversion}\", {}", parts.concat())) {
            let mut out = Vec::new();
            compiled.render(&raw, &NoNames, &mut out);
            compiled.render(&record(), &NoNames, &mut out);
            let _ = compiled.flag_table("i").map(|table| table.masked(u64::MAX));
        }
    }
}
