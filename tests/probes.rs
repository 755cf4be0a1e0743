//! Probes in programs: what they count and record.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/uprobes.rs"]
mod uprobes;

use std::fs::{self};
use std::path::Path;
use std::process::Command;

use common::{Load, Prog, command, example, load_number, number, run, run_over, start, start_watching, until};
use nix::sys::signal::Signal;
use perf_prof::event::ProbePoint;
use perf_prof::symbol::functions::binary::Binary;
use perf_prof::symbol::functions::search::Search;
use serde_json::Value;
use uprobes::{calls, fields, in_file, probe};

// What is counted and recorded

#[test]
fn every_call_with_its_arguments() {
    need_uprobes!();
    const COUNT: u64 = 1000;
    let add = probe("uprobe", "calls_add", "//args='a=$arg1:u64 b=$arg2'/");
    let ret = probe("uretprobe", "calls_add", "//args='sum=$retval:s32'/");
    let text = probe("uprobe", "calls_text", "//args='text=$arg1:string first=+0($arg1):char $arg2:s32 $comm'/");
    let many = probe("uprobe", "calls_many", "//args='$arg1 f=$arg6:u8 g=$arg7:u64 h=$arg8:x16 j=$arg10:u64'/");
    let done = calls(&[&add, &ret, &text, &many], COUNT);
    assert_eq!(done.total("lost"), 0);
    let of = |kind: &str, function: &str| fields(&done, &probe(kind, function, ""));
    let (add, ret, text, many) = (
        of("uprobe", "calls_add"),
        of("uretprobe", "calls_add"),
        of("uprobe", "calls_text"),
        of("uprobe", "calls_many"),
    );
    for of in [&add, &ret, &text, &many] {
        assert_eq!(of.len() as u64, COUNT);
    }
    for i in 0..COUNT {
        let at = i as usize;
        assert_eq!((number(&add[at], "a"), number(&add[at], "b")), (i, 2 * i));
        assert_eq!(number(&ret[at], "sum"), 3 * i);
        assert_eq!((&text[at]["text"], number(&text[at], "arg2")), (&format!("word-{i}").into(), i));
        assert_eq!((&text[at]["comm"], number(&text[at], "first")), (&"calls".into(), u64::from(b'w')));
        let values = ["arg1", "f", "g", "h", "j"].map(|name| number(&many[at], name));
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(values, [i, 5, 6 * i, 7, 9 * i]);
        }
    }
}

#[test]
fn text_with_a_length() {
    need_uprobes!();
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        skip!("where arguments are is not known of this machine");
    }
    const COUNT: u64 = 30;
    let function = "calls::words::count";
    let run = |rest: &str| {
        let done = calls(&[&probe("uprobe", function, rest)], COUNT);
        assert_eq!(done.total("lost"), 0);
        done
    };
    let text = |i: u64| format!("word-{i}/")[..5 + i as usize % 3].to_owned();
    let done = run("//args='text=$arg1:string[$arg2] short=$arg1:string[4] all=$arg1:string'/");
    let events = fields(&done, &probe("uprobe", function, ""));
    assert_eq!(events.len() as u64, COUNT);
    for (i, event) in (0..).zip(&events) {
        assert_eq!((&event["text"], number(event, "text_len")), (&text(i).into(), text(i).len() as u64));
        assert_eq!(event["short"], "word");
        // Text without a length.
        assert!(event["all"].as_str().is_some_and(|all| all.starts_with(&text(i))), "{event}");
    }
    // A filter is evaluated on the text as shown.
    let cases = [
        ("text == \"word-\"", 10),
        ("text == \"word-1\"", 5), // of 1, and of 10, 13, 16 and 19 without their ends
        ("text != \"word-\" && text_len == 6", 10),
        ("text ~ \"*/\"", 3), // 2, 5 and 8
        ("text_len > 6", 10),
        ("short == \"word\"", COUNT),
        ("short == \"word-\"", 0),
    ];
    for (filter, want) in cases {
        let rest = format!("/{filter}/args='text=$arg1:string[$arg2] short=$arg1:string[4]'/");
        assert_eq!(run(&rest).of_type("event").len() as u64, want, "{filter}");
    }
    // As text; the length is behind it.
    let selector = probe("uprobe", function, "//args='text=$arg1:string[$arg2]'/");
    let done = run_over(&["trace", "-e", &selector], &[&example("calls"), "2"]);
    assert!(done.out[0].ends_with(" text=\"word-\" text_len=5"), "{done:#?}");
    assert!(done.out[1].ends_with(" text=\"word-1\" text_len=6"), "{done:#?}");
}

#[test]
fn a_filter_on_arguments() {
    need_uprobes!();
    let cases = [
        (probe("uprobe", "calls_add", "/b >= 1000 && a < 700/args='a=$arg1:u64 b=$arg2:u64'/"), 200),
        (probe("uprobe", "calls_text", "/text == \"word-7\" || n == 9/args='text=$arg1:string n=$arg2:s32'/"), 2),
        (probe("uretprobe", "calls_text", "/less < -990/args='less=$retval:s32'/"), 9),
        (probe("uprobe", "calls_many", "//"), 1000),
    ];
    for (selector, want) in cases {
        assert_eq!(calls(&[&selector], 1000).of_type("event").len(), want, "{selector}");
    }
    let both = probe("uprobe", "calls_add", "//args='a=$arg1:u64'/");
    let done = run_over(&["trace", "--json", "--filter", "a == 3", "-e", &both], &[&example("calls"), "10"]);
    assert_eq!(done.of_type("event").len(), 1);
}

#[test]
fn text_and_stack() {
    need_uprobes!();
    let selector = probe("uretprobe", "calls_add", "//args='sum=$retval:u64'/stack/");
    let done = run_over(&["trace", "-e", &selector], &[&example("calls"), "2"]);
    let lines: Vec<&String> = done.out.iter().filter(|line| line.contains("calls_add@")).collect();
    let [first, second] = lines[..] else { panic!("{done:#?}") };
    assert!(first.ends_with(" sum=0") && second.ends_with(" sum=3"), "{done:#?}");
    let selector = probe("uprobe", "calls_add", "//alias=add/");
    let done = run_over(&["trace", "-g", "-e", &selector], &[&example("calls"), "1"]);
    assert!(done.out[0].contains("] add: ("), "{done:#?}");
    assert!(done.out[1].contains(" calls_add+0x0 (calls)"), "{done:#?}");
}

#[test]
fn a_byte_inside_of_a_function() {
    need_uprobes!();
    // Only a disassembler knows where instructions start; one starts at offset 0.
    let selector = probe("uprobe", "calls_add+0", "//");
    assert_eq!(calls(&[&selector], 10).of_type("event").len(), 10);
    let done = run(&["trace", "-e", &probe("uprobe", "calls_add+0x10000", "")]).code(1);
    done.says(&["behind its end"]);
    let done = run(&["trace", "-e", &probe("uprobe", "calls_add+4", "//args='$arg1'/")]).code(2);
    done.says(&["arguments are known where a function starts"]);
}

#[test]
fn children_of_a_command_are_seen() {
    need_uprobes!();
    let selector = probe("uprobe", "calls_add", "//args='a=$arg1:u64'/");
    let script = format!("{0} 10 & {0} 20; wait", example("calls"));
    let done = run_over(&["trace", "--json", "-e", &selector], &["sh", "-c", &script]);
    let mut values: Vec<u64> = done.of_type("event").iter().map(|event| number(&event["fields"], "a")).collect();
    values.sort_unstable();
    let want: Vec<u64> = (0..10).flat_map(|i| [i, i]).chain(10..20).collect();
    assert_eq!(values, want);
}

// Names of functions as in the source

#[test]
fn functions_by_their_names_in_the_source() {
    need_uprobes!();
    const COUNT: u64 = 40;
    // A function that is instantiated for two types, and one that is called twice.
    for (name, want) in [("count", COUNT), ("skip", 2 * COUNT), ("weigh", 2 * COUNT)] {
        let done = calls(&[&probe("uprobe", &format!("calls::words::{name}"), "")], COUNT);
        let shown = probe("uprobe", &format!("calls::words::{name}"), "");
        assert_eq!(fields(&done, &shown).len() as u64, want, "{name}: {done:#?}");
        assert_eq!(done.of_type("event").len() as u64, want, "{name}");
        assert_eq!(done.total("lost"), 0);
    }
}

#[test]
fn functions_of_a_pattern() {
    let kernel = need_uprobes!();
    const COUNT: u64 = 30;
    let done = calls(&[&probe("uprobe", "*::words::*", "")], COUNT);
    let of = |function: &str| fields(&done, &probe("uprobe", function, "")).len() as u64;
    assert_eq!((of("calls::words::count"), of("calls::words::skip")), (COUNT, 2 * COUNT), "{done:#?}");
    assert_eq!(done.of_type("event").len() as u64, 5 * COUNT, "both kinds of weigh, too");
    // Patterns of C names, and returns.
    let (entries, returns) = (probe("uprobe", "calls_?[dx]*", ""), probe("uretprobe", "calls_*", ""));
    let done = calls(&[&entries, &returns], COUNT);
    let of = |kind: &str, function: &str| fields(&done, &probe(kind, function, "")).len() as u64;
    assert_eq!((of("uprobe", "calls_add"), of("uprobe", "calls_text")), (COUNT, 0), "{done:#?}");
    for function in ["calls_add", "calls_text", "calls_many"] {
        assert_eq!(of("uretprobe", function), COUNT);
    }
    // In a process, without FILE.
    let mut load = Load::of(&example("calls"), &["10", "--wait"]);
    load.says();
    let (pid, selector) = (load.pid().to_string(), "uprobe:*::words::s*//args='n=$arg1:u64'/");
    let watching = start_watching(&["trace", "-p", &pid, "-e", selector]);
    load.tell("go");
    let done = watching.finish().code(0);
    let mut numbers: Vec<u64> =
        fields(&done, "uprobe:calls::words::skip").iter().map(|event| number(event, "n")).collect();
    numbers.sort_unstable();
    let mut want: Vec<u64> = (0..10).flat_map(|i| [i, 2 * i]).collect();
    want.sort_unstable();
    assert_eq!(numbers, want);
    until("they are gone", || kernel.probes().iter().all(|line| !line.contains("words__")));
}

#[test]
fn invalid_patterns_are_refused() {
    need_uprobes!();
    let cases = [
        (probe("uprobe", "*", ""), 1, &["functions, more than 100: name fewer", "; some are "][..]),
        (probe("uprobe", "*::words::*", "//most=3/"), 1, &["`*::words::*` is 4 functions, more than 3", "most=4"]),
        (probe("uprobe", "calls::words::weigh", "//most=1/"), 1, &["is 2 functions, more than 1"]),
        (probe("uprobe", "nothing::of::*", ""), 1, &["has no function `nothing::of::*`", "inlined"]),
        (probe("uprobe", "calls_*+8", ""), 2, &["an offset is one into a single function"]),
        (probe("uprobe", "calls::words::weigh+4", ""), 1, &["has 2 functions `calls::words::weigh`", "into one"]),
        // An exact name comes first.
        (probe("uprobe", "count", ""), 1, &["has no function `count`", "did you mean calls::words::count"]),
        (probe("uprobe", "calls::word::count", ""), 1, &["did you mean calls::words::count"]),
        ("sched:sched_switch//most=3/".into(), 2, &["most is for functions of programs"]),
        (probe("uprobe", "calls_*", "//most=1001/"), 2, &["most is a number of functions"]),
    ];
    for (selector, code, words) in cases {
        run(&["trace", "-e", &selector, "--for", "1ms"]).code(code).says(words);
    }
    let alloc = format!("{}//ptr=1/", probe("uretprobe", "calls_*", ""));
    run(&["kmemleak", "--alloc", &alloc, "--free", "kmem:kfree"]).code(2).says(&["has a wildcard"]);
}

const OVERLOADS: &str = r#"
namespace word_counter {
    struct Words { int n; Words(int n); int operator()(int); };
    __attribute__((noinline)) Words::Words(int n) : n(n) { __asm__ volatile("" :: "r"(n)); }
    __attribute__((noinline)) int Words::operator()(int m) { __asm__ volatile(""); return n + m; }
    __attribute__((noinline)) int count(int n) { __asm__ volatile(""); return n + 1; }
    __attribute__((noinline)) int count(const char *text) { __asm__ volatile(""); return text[0]; }
    template <typename T> __attribute__((noinline)) int weigh(T t) { __asm__ volatile(""); return sizeof(T) + (int)t; }
}
int main() {
    int sum = 0;
    for (int i = 0; i < 10; i++) sum += word_counter::count(i) + word_counter::count("x") + word_counter::count("y");
    for (int i = 0; i < 7; i++) { word_counter::Words words(i); sum += words(i) + words(2); }
    for (int i = 0; i < 5; i++) sum += word_counter::weigh(i) + word_counter::weigh((long)i) + word_counter::weigh('a');
    return sum == 0;
}
"#;

#[test]
fn overloads_of_cpp() {
    need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("words.cpp"), dir.path().join("words"));
    fs::write(&source, OVERLOADS).expect("a source");
    match Command::new("g++").arg("-O1").arg("-o").args([&program, &source]).output() {
        Err(err) => skip!("no g++: {err}"),
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
    }
    let program = program.to_str().expect("UTF-8");
    let cases = [
        ("word_counter::count", 30),
        ("word_counter::count(int)", 10),
        ("word_counter::count(char const*)", 20),
        ("word_counter::c*", 30),
        ("_ZN12word_counter5countEi", 10),
        ("word_counter::Words::Words", 7),
        ("word_counter::Words::operator()", 14),
        ("word_counter::weigh", 15),
        ("word_counter::weigh<long>", 5),
        ("word_counter::*", 66),
    ];
    for (name, want) in cases {
        let selector = format!("uprobe:\"{name}\"@\"{program}\"");
        let done = run_over(&["trace", "--json", "-e", &selector], &[program]);
        assert_eq!(done.of_type("event").len(), want, "{name}: {done:#?}");
    }
}

const NESTED: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) long fourth(long n) { sum += syscall(SYS_getppid); return n + sum; }
__attribute__((noinline)) long third(long n) { return fourth(n + 1) + 1; }
__attribute__((noinline)) long second(long n) { return third(n + 1) + 1; }
__attribute__((noinline)) long first(long n) { return second(n + 1) + 1; }
int main(void) { return first(1) == 0; }
"#;

/// Without frame pointers nothing tells where the caller was of a function whose return is probed. Those further out are found.
#[test]
fn callers_beyond_a_pending_return_probe() {
    need_uprobes!();
    if !cfg!(target_arch = "x86_64") {
        skip!("return addresses stand behind the frames of x86_64 alone");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("nested.c"), dir.path().join("nested"));
    fs::write(&source, NESTED).expect("a source");
    match Command::new("cc").args(["-O1", "-fomit-frame-pointer", "-o"]).args([&program, &source]).output() {
        Err(err) => skip!("no C compiler: {err}"),
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
    }
    let program = program.to_str().expect("UTF-8");
    const HIDDEN: &str = "hidden by a return probe";
    let cases: [(&[&str], &[&str]); 3] = [
        (&["third"], &["fourth", "third", HIDDEN, "first", "main"]),
        (&["third", "second"], &["fourth", "third", HIDDEN, HIDDEN, "main"]),
        (&["fourth", "second"], &["fourth", HIDDEN, "second", HIDDEN, "main"]),
    ];
    for (probed, want) in cases {
        let probes = probed.iter().map(|function| format!("uretprobe:{function}@\"{program}\""));
        let events: Vec<String> = probes.chain(["syscalls:sys_enter_getppid//stack/".to_owned()]).collect();
        let done = run_over(&["trace", "--no-kernel-callchain", "--json", "-e", &events.join(",")], &[program]);
        let call = done.of_type("event").into_iter().find(|event| event["stack"].is_array()).expect("a call");
        let name = |frame: &Value| frame["symbol"].as_str().or(frame["reason"].as_str()).map(str::to_owned);
        let frames: Vec<String> = call["stack"].as_array().unwrap().iter().filter_map(name).collect();
        assert_eq!(frames.get(1..1 + want.len()).expect("frames"), want, "{frames:#?}");
        assert!(!done.err.iter().any(|line| line.contains("frame-pointer")), "{done:#?}");
    }
}

/// A name in a file may have any bytes. It is typed as it is shown.
#[test]
fn functions_whose_names_are_not_utf8() {
    need_uprobes!();
    const COUNT: u64 = 10;
    let dir = tempfile::tempdir().expect("a directory");
    let program = own_calls(dir.path());
    let mut bytes = fs::read(&program).expect("a program");
    let (before, after) = (b"\0calls_add\0", b"\0calls\xe9add\0");
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, before).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at..at + after.len()].copy_from_slice(after));
    fs::write(&program, bytes).expect("a program");
    for name in [r"calls\xe9add", r"calls\xe9a*", "calls?add"] {
        let selector = format!("uprobe:{name}@\"{program}\"");
        let done = run_over(&["trace", "--json", "-e", &selector], &[&program, &COUNT.to_string()]);
        let events = done.of_type("event");
        assert_eq!(events.len() as u64, COUNT, "{name}: {done:#?}");
        let shown = format!(r#"uprobe:calls\xe9add@"{program}""#);
        assert!(events.iter().all(|event| event["event"] == *shown), "{name}: {events:#?}");
    }
    let selector = format!("uprobe:calls_add@\"{program}\"");
    run(&["trace", "-e", &selector, "--", &program, "1"]).code(1).says(&["has no function", "calls_add"]);
}

// Which file

#[test]
fn a_path_of_any_kind() {
    need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let odd = dir.path().join("a b;c#d:e(f)");
    common::copy_program(example("calls"), &odd);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&odd, &link).expect("a link");
    let odd = odd.to_str().expect("UTF-8");
    for path in [odd, link.to_str().expect("UTF-8"), "./link"] {
        let selector = format!("uprobe:calls_add@\"{path}\"//args='a=$arg1:u64'/");
        let mut command = command(&["trace", "--json", "-e", &selector, "--", odd, "5"]);
        command.current_dir(dir.path());
        let done = Prog::spawn(command).finish().code(0);
        assert_eq!(done.of_type("event").len(), 5, "{path}: {done:#?}");
    }
}

#[test]
fn an_address_is_a_function_too() {
    need_uprobes!();
    let place = ProbePoint { function: "calls_add".to_owned(), offset: 0, ret: false };
    let spot = in_file(&place, &example("calls"));
    // The linker's offset between address and file is the same for all code of a program.
    let program = Binary::open(Path::new(&spot.file.path), &Search::within(0)).expect("a file").expect("a program");
    let address =
        (0..16).map(|page| spot.offset + page * 0x1000).find(|address| program.offset(*address) == Some(spot.offset));
    let selector = probe("uprobe", &format!("{:#x}", address.expect("an address")), "//args='a=$arg1:u64'/");
    assert_eq!(calls(&[&selector], 7).of_type("event").len(), 7);
}

#[test]
fn without_a_path_the_target_is_searched() {
    need_uprobes!();
    // The program of the command itself; then its C library.
    for function in ["calls_add", "getppid"] {
        let done = calls(&[&format!("uprobe:{function}")], 25);
        assert_eq!(fields(&done, &format!("uprobe:{function}")).len(), 25, "{function}");
    }
    // A running process.
    let mut load = Load::of(&example("calls"), &["30", "--wait"]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let selectors = "uprobe:calls_add//args='a=$arg1:u64'/,uprobe:getppid";
    let mut prog = start(&["trace", "--json", "-v", "-p", &pid, "-e", selectors]);
    prog.err_line(|line| line.contains("uprobe:getppid is in /") && line.contains("libc"));
    prog.signal(Signal::SIGUSR1);
    prog.object(|object| object["type"] == "interval");
    load.tell("go");
    let done = prog.finish().code(0);
    assert_eq!(fields(&done, "uprobe:calls_add").len(), 30);
    assert_eq!(fields(&done, "uprobe:getppid").len(), 30);
    // The C library, without a target.
    let mut prog = start_watching(&["trace", "-e", "uprobe:getppid"]);
    let mut load = Load::of(&example("calls"), &["40"]);
    let line = load.says();
    let (pid, mut seen) = (load_number(&line, "pid"), 0);
    while seen < 40 {
        prog.object(|object| object["type"] == "event" && object["pid"] == pid);
        seen += 1;
    }
    prog.interrupt().code(0);
}

#[test]
fn processes_with_files_of_their_own() {
    let kernel = need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("calls");
    common::copy_program(example("calls"), &copy);
    let programs = [example("calls"), example("calls"), copy.to_str().expect("UTF-8").to_owned()];
    let mut loads = programs.map(|program| Load::of(&program, &["10", "--wait"]));
    loads.iter_mut().for_each(|load| assert_eq!(load.says(), "ready"));
    let pids: Vec<String> = loads.iter().map(|load| load.pid().to_string()).collect();
    let selector = "uprobe:calls_add/a < 5/args='a=$arg1:u64'/";
    let prog = start_watching(&["trace", "-p", &pids.join(","), "-e", selector]);
    kernel.has_of(prog.pid(), 2);
    loads.iter_mut().for_each(|load| load.tell("go"));
    let done = prog.finish().code(0);
    for load in &loads {
        let of = |event: &&Value| event["pid"] == load.pid();
        assert_eq!(done.of_type("event").iter().filter(of).count(), 5, "{done:#?}");
    }
}

/// `calls`, executed on an overlay of its own over `dir`, when `change` has been done there.
fn on_an_overlay(dir: &Path, change: &str) -> Load {
    let dir = dir.to_str().expect("UTF-8");
    let script = format!(
        "cd {dir} && mount -t tmpfs none own && cd own && mkdir up work all &&
        mount -t overlay -o lowerdir={dir}/below,upperdir=up,workdir=work none all && cd all && {change} &&
        exec ./calls 10 --wait"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    Load::start(command)
}

/// As with several containers of one image.
#[test]
fn a_file_below_several_overlays_has_one_probe() {
    let kernel = need_uprobes!();
    if !fs::read_to_string("/proc/filesystems").expect("filesystems").contains("overlay") {
        skip!("this kernel has no overlays");
    }
    let dir = tempfile::tempdir().expect("a directory");
    ["below", "own"].iter().for_each(|name| fs::create_dir(dir.path().join(name)).expect("a directory"));
    let below = dir.path().join("below/calls");
    common::copy_program(example("calls"), &below);
    let (one, two) = (on_an_overlay(dir.path(), "true"), on_an_overlay(dir.path(), "true"));
    // This overlay gets a copy in its upper layer, with the same inode number.
    let changed = on_an_overlay(dir.path(), "chmod 700 calls");
    let mut loads = [Load::of(below.to_str().expect("UTF-8"), &["10", "--wait"]), one, two, changed];
    loads.iter_mut().for_each(|load| assert_eq!(load.says(), "ready"));
    let pids: Vec<String> = loads.iter().map(|load| load.pid().to_string()).collect();
    let prog = start_watching(&["trace", "-p", &pids.join(","), "-e", "uprobe:calls_add"]);
    kernel.has_of(prog.pid(), 2);
    loads.iter_mut().for_each(|load| load.tell("go"));
    let done = prog.finish().code(0);
    for load in &loads {
        let of = |event: &&Value| event["pid"] == load.pid();
        assert_eq!(done.of_type("event").iter().filter(of).count(), 10, "{done:#?}");
    }
}

#[test]
fn a_file_that_the_process_has_not_loaded_is_reported() {
    need_uprobes!();
    let load = Load::shell();
    let pid = load.pid().to_string();
    let done = run(&["trace", "-e", &probe("uprobe", "calls_add", ""), "-p", &pid, "--for", "1ms"]).code(0);
    done.says(&["no process that is watched has loaded", "examples/calls"]);
}

// What is refused

#[test]
fn one_sentence_each() {
    need_uprobes!();
    let text = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("uprobe:main@\"{}\"", text.path().display());
    let cases: Vec<(String, i32, &[&str])> = vec![
        (
            probe("uprobe", "calls_ad", ""),
            1,
            &["has no function `calls_ad`", "may have been inlined", "did you mean calls_add"],
        ),
        (probe("uprobe", "malloc", ""), 1, &["`malloc` is not in", "a library defines it"]),
        ("uprobe:main@\"/nonexistent/x\"".into(), 1, &["cannot open /nonexistent/x"]),
        ("uprobe:main@\"/proc\"".into(), 1, &["/proc is no regular file"]),
        (text, 1, &["is no ELF file"]),
        ("uprobe:mallok".into(), 1, &["is not in the system's C library", "did you mean malloc"]),
        ("uprobe:0x1234".into(), 1, &["name it, as in uprobe:0x1234@"]),
        (probe("uprobe", "0xffffffffffffff00", ""), 1, &["there is no code at"]),
        (probe("uprobe", "calls_add", "/size > 1/args='a=$arg1'/"), 1, &["has no field `size`; it has", "calls_add@"]),
        (probe("uprobe", "calls_add", "/a >/args='a=$arg1'/"), 2, &["filter of uprobe:calls_add@"]),
        (probe("uprobe", "calls_add", "//args='a=$retval'/"), 2, &["args of uprobe:calls_add@", "write uretprobe:"]),
        (probe("uretprobe", "calls_add", "//args='a=$arg1'/"), 2, &["record them with uprobe:"]),
        (probe("uprobe", "calls_add", "//args='a=$arg1:u65'/"), 2, &["no such type"]),
        (probe("uprobe", "calls_add", "//args='a=@no_such'/"), 1, &["the kernel does not take this"]),
        ("uprobe:a\tb".into(), 2, &["not a function name"]),
    ];
    for (selector, code, words) in cases {
        let done = run(&["trace", "-e", &selector, "--for", "1ms"]).code(code).says(words);
        assert!(!done.err().contains("perf_prof_"), "the group is nobody's business: {done:#?}");
    }
}

#[test]
fn the_caret_is_under_the_fault() {
    need_uprobes!();
    let cases = [("//args='x=$arg1 a=@no_such'/", "@no_such"), ("//args='x=$arg1 yy=$arg2:s65'/", "s65'")];
    for (rest, fault) in cases {
        let done = run(&["trace", "-e", &probe("uprobe", "calls_add", rest)]);
        let at = done.err.iter().position(|line| line.trim() == "^").unwrap_or_else(|| panic!("no caret: {done:#?}"));
        let (text, caret) = (&done.err[at - 1], done.err[at].len() - 1);
        assert!(text[caret..].starts_with(fault), "{done:#?}");
    }
}

/// 32-bit programs have their arguments on the stack.
#[test]
fn a_program_of_another_mode() {
    need_uprobes!();
    if !cfg!(target_arch = "x86_64") || !Path::new("/usr/bin/cc").exists() {
        skip!("needs x86_64 and a C compiler");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
    let text = "__attribute__((noinline)) int add(int a, int b) { __asm__ volatile(\"\"); return a + b; }\n\
        static int call(void) { int sum = 0; for (int i = 0; i < 10; i++) sum += add(i, 7 * i); return sum; }\n\
        void _start(void) { int sum = call(); __asm__ volatile(\"int $0x80\" :: \"a\"(1), \"b\"(sum != 360)); }\n";
    fs::write(&source, text).expect("a source");
    let built = Command::new("cc")
        .args(["-m32", "-O1", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-fno-stack-protector", "-o"])
        .args([&program, &source])
        .output()
        .expect("cc");
    if !built.status.success() {
        skip!("cc -m32: {}", String::from_utf8_lossy(&built.stderr));
    }
    let program = program.to_str().expect("UTF-8");
    let selector = format!("uprobe:add@\"{program}\"//args='a=$arg1 b=$arg2:s32'/");
    let done = run(&["trace", "--json", "-e", &selector, "--", program]).code(0);
    let events = done.of_type("event");
    assert_eq!(events.len(), 10, "{done:#?}");
    for (i, event) in events.iter().enumerate() {
        let fields = &event["fields"];
        assert_eq!((number(fields, "a"), number(fields, "b")), (i as u64, 7 * i as u64), "{event}");
    }
}

// The cost for programs

/// A copy of examples/calls that no other process runs.
fn own_calls(dir: &Path) -> String {
    let path = dir.join("calls");
    common::copy_program(example("calls"), &path);
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// Hits count for all processes and include those that the filter drops, since each has a cost.
#[test]
fn hits_are_reported_with_their_cost() {
    need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let calls = own_calls(dir.path());
    let add = format!("uprobe:calls_add@\"{calls}\"");
    let watching = start_watching(&["trace", "-e", &format!("{add}/common_pid == 1/")]);
    run_to_its_end(&[&calls, "30"]);
    let done = watching.interrupt().code(0);
    let end = done.end();
    assert_eq!((number(&end, "samples"), number(&end, "probe_hits")), (0, 30), "{end}");
    assert!(number(&end, "probe_cost_ns") > 0, "{end}");
    done.says(&["a hit costs its program about ", "every process of the machine pays"]);
    // For a command alone, with calls and returns.
    let text = run(&["trace", "-e", &add, "-e", &add.replace("uprobe", "uretprobe"), "--", &calls, "30"]).code(0);
    text.says(&[
        "about ",
        "the processes that are watched pay",
        "trace: 60 hits of probes in programs, which cost these about ",
    ]);
}

#[test]
fn a_forecast_has_the_cost_for_programs() {
    need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let add = format!("uprobe:calls_add@\"{}\"", own_calls(dir.path()));
    let done = run(&["trace", "-e", &add, "--dry-run", "--for", "0.1"]).code(0);
    done.says(&["a hit costs its program about ", "probes in programs: 0 hits/s"]);
}

fn run_to_its_end(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).stdout(std::process::Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{words:?}");
}
