//! Programs whose chains of calls are known: what the profilers show of them.

#[macro_use]
mod common;
#[path = "common/known_chains.rs"]
mod known_chains;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{CpuWatch, Done, attempts, example, number, run, run_over};
use known_chains::{KnownProgram, StackView, WAITS, names};

/// What a program is made with.
#[derive(Clone, Copy, Debug)]
enum ProgramLanguage {
    C,
    Cpp,
    Rust,
}
use ProgramLanguage::{C, Cpp, Rust};

use StackView::{Events, Leaks, Profile, Waits};

const ALL: &[StackView] = &[Profile, Waits, Leaks, Events];
const LIMIT: &[StackView] = &[Profile, Waits, Leaks];

/// A program in one of its modes.
#[derive(Clone, Copy, Debug)]
struct ChainCase {
    language: ProgramLanguage,
    options: &'static str,
    mode: &'static str,
    /// Own functions, innermost first, of all that goes on. The first chain is that of leaf().
    chains: &'static [&'static str],
    views: &'static [StackView],
}

const PLAIN: &[&str] = &["leaf inner middle outer main"];
const THREAD: &[&str] = &["leaf inner middle outer thread_routine", "by_thread main"];
/// Interrupted by a signal at its first instruction, faults() lies behind neighbour().
const FAULT: &[&str] = &["leaf on_fault faults by_fault main", "neighbour"];
const CATCHES: &[&str] = &["leaf catches outer main", "throws passes_on catches outer main"];
const CLEANUP: &[&str] =
    &["leaf Guard::~Guard cleans_up swallows outer main", "throws passes_on cleans_up swallows outer main"];
/// The outer main() is the one that the C library calls.
const RUST: &[&str] = &["leaf inner outer main main"];
const RUST_CLEANUP: &[&str] = &["leaf inner outer drop unwinds swallows main main"];

/// On x86_64 gcc leaves out frame pointers from -O1 on.
const CASES: [ChainCase; 20] = [
    case(C, "-O0", "plain", PLAIN, ALL),
    case(C, "-O2 -fomit-frame-pointer", "plain", PLAIN, ALL),
    case(C, "-O2 -fno-omit-frame-pointer -no-pie", "plain", PLAIN, ALL),
    case(C, "-O2 -static", "plain", PLAIN, ALL),
    case(C, "-O2 -static-pie", "qsort", &["leaf inner compare by_qsort main"], LIMIT),
    case(C, "-O2 -no-pie", "alloca", &["leaf inner with_alloca main"], LIMIT),
    case(C, "-O0", "realigned", &["leaf inner with_alloca realigned main"], LIMIT),
    case(C, "-O3 -mavx2 -fcf-protection=none", "realigned", &["leaf inner with_alloca realigned main"], LIMIT),
    case(C, "-O2", "signal", &["leaf on_signal by_signal main"], ALL),
    case(C, "-O2 -static", "signal", &["leaf on_signal by_signal main"], LIMIT),
    case(C, "-O2 -fno-omit-frame-pointer", "fault", FAULT, ALL),
    case(C, "-O2 -static", "fault", FAULT, LIMIT),
    case(C, "-O2", "thread", THREAD, LIMIT),
    case(Cpp, "-O0", "catches", CATCHES, LIMIT),
    case(Cpp, "-O2", "catches", CATCHES, ALL),
    case(Cpp, "-O2 -static", "cleanup", CLEANUP, LIMIT),
    case(Rust, "", "cleanup", RUST_CLEANUP, LIMIT),
    case(Rust, "-O", "plain", RUST, ALL),
    case(Rust, "-O --target=MUSL", "plain", RUST, LIMIT),
    case(Rust, "-O --target=MUSL", "cleanup", RUST_CLEANUP, LIMIT),
];

const fn case(
    language: ProgramLanguage,
    options: &'static str,
    mode: &'static str,
    chains: &'static [&'static str],
    views: &'static [StackView],
) -> ChainCase {
    ChainCase { language, options, mode, chains, views }
}

/// The samples of these events go a short way through the reader.
#[test]
fn stacks_at_allocations_of_the_kernel_are_unwound() {
    need_events!();
    let own = ["--alloc", "kmem:kmem_cache_alloc", "--free", "kmem:kmem_cache_free"];
    for allocator in [&["slab"][..], &own] {
        let options = [&["kmemleak"], allocator, &["--call-graph=dwarf", "--json"]].concat();
        let end = run_over(&options, &[&example("kalloc"), "2000", "100"]).end();
        let [windows, walked, handed_on] = ["windows", "walked", "handed_on"].map(|key| number(&end["unwinding"], key));
        assert!(windows > 0 && walked + handed_on > 0, "{allocator:?}: {end}");
    }
}

/// Runs a view, and again while it shows fewer than there are.
fn show(subject: &mut KnownProgram, view: StackView) {
    let mut found = Vec::new();
    attempts(|| {
        subject.faults.clear();
        let watch = CpuWatch::of_account();
        let folded = tempfile::Builder::new().suffix(".folded").tempfile().expect("a temporary file");
        let done = perf_prof(&subject.args(view, folded.path().to_str().expect("a path in UTF-8")));
        let graph = std::fs::read_to_string(folded.path()).expect("the graph");
        let shown = subject.look(view, &done, &graph, &watch);
        found.append(&mut subject.faults);
        if found.is_empty() { shown } else { Ok(()) }
    });
    subject.faults = found;
}

fn perf_prof(args: &[String]) -> Done {
    run(&args.iter().map(String::as_str).collect::<Vec<_>>()).code(0)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

const MUSL: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" };

/// The program of a case. Err: there is no compiler for it.
fn build(dir: &Path, case: &ChainCase) -> Result<String, String> {
    let (compiler, file) = match case.language {
        C => ("cc", "known_chains.c"),
        Cpp => ("c++", "known_chains.cpp"),
        Rust => ("rustc", "known_chains.rs"),
    };
    let options = case.options.replace("MUSL", MUSL);
    let program = dir.join(format!("{compiler}{}", options.replace([' ', '='], "")));
    let path = program.to_str().expect("a path in UTF-8").to_owned();
    if program.exists() {
        return Ok(path);
    }
    let mut command = Command::new(compiler);
    command.args(options.split_whitespace()).arg("-o").arg(&program).arg(source(file));
    match case.language {
        C | Cpp => command.arg("-pthread"),
        Rust => command.args(["--edition=2024", "--crate-name=known_chains"]),
    };
    match command.output() {
        Ok(output) if output.status.success() => Ok(path),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(err) => Err(format!("{compiler}: {err}")),
    }
}

fn check_cases(wanted: fn(&ChainCase) -> bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut faults = Vec::new();
    for case in CASES.iter().filter(|case| wanted(case)) {
        let path = match build(dir.path(), case) {
            Ok(path) => path,
            Err(why) => {
                skip_part!("{why}");
                continue;
            }
        };
        let words = |chain: &&str| chain.split(' ').map(str::to_owned).collect();
        let chains = case.chains.iter().map(words).collect();
        let mut subject = KnownProgram::new(path, case.mode, chains);
        for &view in case.views {
            show(&mut subject, view);
            faults.extend(subject.faults.drain(..).map(|fault| format!("{case:?} {fault}")));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn programs_in_c() {
    need_events!();
    check_cases(|case| matches!(case.language, C));
}

#[test]
fn programs_in_cpp() {
    need_events!();
    check_cases(|case| matches!(case.language, Cpp));
}

#[test]
fn programs_in_rust() {
    need_events!();
    check_cases(|case| matches!(case.language, Rust));
}

/// A recursion of 300 calls, with frames of 64 bytes at least.
fn recursions(dir: &Path) -> Vec<KnownProgram> {
    let chain = [vec!["leaf", "inner"], vec!["deep"; 300], vec!["main"]].concat();
    let chain: Vec<String> = chain.into_iter().map(str::to_owned).collect();
    let built = ["-O0", "-O2 -fomit-frame-pointer"].map(|options| build(dir, &case(C, options, "deep", PLAIN, ALL)));
    built.into_iter().flatten().map(|path| KnownProgram::new(path, "deep", vec![chain.clone()])).collect()
}

#[test]
fn deep_stacks() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let subjects = recursions(dir.path());
    if subjects.is_empty() {
        skip!("no compiler");
    }
    for mut subject in subjects {
        let path = subject.path.clone();
        let mut faults = Vec::new();
        // Windows of 8 KiB and such that hold it all. With frame pointers the kernel sees 127 functions, and the last
        // one that a window shows is there several times.
        let cut = Some("[truncated after 8 KiB]");
        let cases = [
            ("-g", cut, Waits),
            ("-g", Some("[truncated after 4 KiB]"), Leaks),
            ("-g", cut, Events),
            ("--call-graph=dwarf,8K", cut, Profile),
        ];
        let whole = [Profile, Waits, Events].map(|view| ("--call-graph=dwarf,64K", None, view));
        for (call_graph, end, view) in cases.into_iter().chain(whole) {
            (subject.call_graph, subject.end) = (call_graph, end);
            show(&mut subject, view);
            faults.append(&mut subject.faults);
        }
        assert!(faults.is_empty(), "{path}: {} faults:\n{}", faults.len(), faults.join("\n"));
    }
}

/// A return probe further out has taken the place of a return address. The kernel's chain has it, where there are frame
/// pointers; else the probe stands for one caller, and the next one is found on the stack.
#[test]
fn return_probes_further_out() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let whole = ["probed", "leaf", "inner", "middle", "outer", "main"];
    let hidden = ["probed", "leaf", "inner", "hidden by a return probe", "outer", "main"];
    for (options, want) in [("-O2 -fno-omit-frame-pointer", whole), ("-O2 -fomit-frame-pointer", hidden)] {
        let Ok(path) = build(dir.path(), &case(C, options, "plain", PLAIN, ALL)) else { skip!("no compiler") };
        let events = format!("uprobe:probed@\"{path}\",uretprobe:inner@\"{path}\"");
        let done = run(&["trace", "-e", &events, "-g", "--json", "--", &path, "plain", "sleep", "20"]).code(0);
        let (mut inside, mut returns) = (0, 0);
        for event in done.of_type("event") {
            let is_return = event["event"].as_str().is_some_and(|name| name.starts_with("uretprobe:"));
            let names = names(&event["stack"]);
            let want = if is_return { &whole[3..] } else { &want[..] };
            assert!(names.starts_with(want), "{options}: {names:?}");
            assert_eq!(names.last(), Some(&"_start"), "{options}: {names:?}");
            *if is_return { &mut returns } else { &mut inside } += 1;
        }
        assert_eq!((inside, returns), (20, 20), "{options}: {done:#?}");
    }
}

/// Without tables, only frame pointers lead out of the program's functions, and nothing proves that they are any.
#[test]
fn a_guess_is_marked() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let options = "-O2 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables";
    let Ok(path) = build(dir.path(), &case(C, options, "plain", PLAIN, ALL)) else { skip!("no compiler") };
    let chain = PLAIN[0].split(' ').map(str::to_owned).collect();
    let subject = KnownProgram::new(path, "plain", vec![chain]);
    let done = perf_prof(&subject.args(Waits, ""));
    let events = done.of_type("event");
    for event in &events {
        let own: Vec<String> = subject.own(names(&event["stack"]).into_iter());
        assert!(subject.is_known(&own), "{event}");
        let stack = event["stack"].as_array().expect("a stack");
        let guessed: Vec<&str> = stack
            .iter()
            .filter(|frame| frame["guessed"] == true)
            .filter_map(|frame| frame["symbol"].as_str())
            .collect();
        // The tables of the C library lead to leaf().
        assert_eq!(guessed, ["inner"], "{event}");
    }
    let stacks = done.end()["stacks"].clone();
    assert_eq!((events.len() as u64, number(&stacks, "guessed")), (WAITS, WAITS), "{stacks}");
    let args = subject.args(Waits, "").into_iter().filter(|word| word != "--json").collect::<Vec<_>>();
    let text = perf_prof(&args);
    let is_inner = |line: &&String| line.contains(" inner+");
    let is_marked = |line: &String| line.ends_with(" (guessed from here)");
    assert!(text.out.iter().any(|line| is_inner(&line)), "{text:?}");
    assert!(text.out.iter().all(|line| is_inner(&line) == is_marked(line)), "{text:?}");
}

/// Starts of functions and their names, by `nm`.
fn symbols(path: &str) -> BTreeMap<u64, String> {
    let listed = Command::new("nm").arg(path).output().expect("nm").stdout;
    let listed = String::from_utf8(listed).expect("UTF-8");
    let symbol = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [start, "t" | "T", name] => Some((u64::from_str_radix(start, 16).ok()?, name.to_owned())),
        _ => None,
    };
    listed.lines().filter_map(symbol).collect()
}

/// The tables of such a file are found by its program headers.
#[test]
fn a_file_without_section_headers() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let options = "-O2 -fomit-frame-pointer";
    let Ok(path) = build(dir.path(), &case(C, options, "plain", PLAIN, ALL)) else { skip!("no compiler") };
    let names = symbols(&path);
    let mut bytes = std::fs::read(&path).expect("the program");
    // e_shoff, e_shentsize, e_shnum and e_shstrndx, as `strip --strip-section-headers` leaves them.
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    std::fs::write(&path, bytes).expect("the program");
    let subject = KnownProgram::new(path, "plain", Vec::new());
    let done = perf_prof(&subject.args(Waits, ""));
    let events = done.of_type("event");
    for event in &events {
        let frames = event["stack"].as_array().expect("a stack").iter();
        let starts =
            frames.filter_map(|frame| u64::from_str_radix(frame["function_addr"].as_str()?.get(2..)?, 16).ok());
        let own: Vec<&str> = starts.filter_map(|start| names.get(&start)).map(String::as_str).collect();
        assert!(own.join(" ").starts_with(PLAIN[0]), "{own:?} {event}");
    }
    let stacks = done.end()["stacks"].clone();
    assert_eq!((events.len() as u64, number(&stacks, "good")), (WAITS, WAITS), "{stacks}");
}

/// The kernel names a task when the program before is gone, and the registers are still those of that program.
#[test]
fn a_stack_that_is_gone_says_why() {
    need_events!();
    let args = ["trace", "-e", "task:task_rename", "-g", "--json", "--", "sh", "-c", "/bin/true; /bin/true; exit 0"];
    let done = run(&args).code(0);
    let stacks = done.end()["stacks"].clone();
    let programs = stacks["programs"].as_array().expect("programs");
    let help: Vec<&str> = programs.iter().filter_map(|program| program["help"].as_str()).collect();
    assert!(!help.is_empty() && help.iter().all(|help| help.contains("within exec")), "{stacks}");
}
