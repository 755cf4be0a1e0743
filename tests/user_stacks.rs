//! Programs whose chains of calls are known: what the profilers show of them.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Done, attempts, number, run};
use serde_json::Value;

/// What a program is made with.
#[derive(Clone, Copy, Debug)]
enum ProgramLanguage {
    C,
    Cpp,
    Rust,
}
use ProgramLanguage::{C, Cpp, Rust};

/// Commands that show stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StackView {
    /// Samples of a clock, at any instruction.
    Profile,
    /// Waits of a known number.
    Waits,
    /// Allocations that are left.
    Leaks,
    /// A probe in a function, its return, switches.
    Events,
}
use StackView::{Events, Leaks, Profile, Waits};

const ALL: &[StackView] = &[Profile, Waits, Leaks, Events];
const MOST: &[StackView] = &[Profile, Waits, Leaks];

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
    case(C, "-O2 -static-pie", "qsort", &["leaf inner compare by_qsort main"], MOST),
    case(C, "-O2 -no-pie", "alloca", &["leaf inner with_alloca main"], MOST),
    case(C, "-O0", "realigned", &["leaf inner with_alloca realigned main"], MOST),
    case(C, "-O3 -mavx2 -fcf-protection=none", "realigned", &["leaf inner with_alloca realigned main"], MOST),
    case(C, "-O2", "signal", &["leaf on_signal by_signal main"], ALL),
    case(C, "-O2 -static", "signal", &["leaf on_signal by_signal main"], MOST),
    case(C, "-O2 -fno-omit-frame-pointer", "fault", FAULT, ALL),
    case(C, "-O2 -static", "fault", FAULT, MOST),
    case(C, "-O2", "thread", THREAD, MOST),
    case(Cpp, "-O0", "catches", CATCHES, MOST),
    case(Cpp, "-O2", "catches", CATCHES, ALL),
    case(Cpp, "-O2 -static", "cleanup", CLEANUP, MOST),
    case(Rust, "", "cleanup", RUST_CLEANUP, MOST),
    case(Rust, "-O", "plain", RUST, ALL),
    case(Rust, "-O --target=MUSL", "plain", RUST, MOST),
    case(Rust, "-O --target=MUSL", "cleanup", RUST_CLEANUP, MOST),
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

/// Functions that leaf() calls.
const BELOW_LEAF: [&str; 2] = ["tick", "probed"];
const WAITS: u64 = 20;
/// Their windows must find room until the tables of the program are loaded.
const ALLOCS: u64 = 60;

/// A built program, and what is wrong with its chains.
struct KnownProgram {
    path: String,
    mode: &'static str,
    /// Of the functions, innermost first.
    chains: Vec<Vec<String>>,
    call_graph: &'static str,
    /// The end of a chain that does not fit.
    end: Option<&'static str>,
    faults: Vec<String>,
    /// Samples of the C++ runtime as it leaves functions that an exception goes through.
    leaving: u64,
}

impl KnownProgram {
    fn new(path: String, mode: &'static str, chains: Vec<Vec<String>>) -> KnownProgram {
        KnownProgram { path, mode, chains, call_graph: "-g", end: None, faults: Vec::new(), leaving: 0 }
    }

    fn args<'a>(&'a self, action: &'a str, times: &'a str) -> [&'a str; 5] {
        ["--", &self.path, self.mode, action, times]
    }

    fn run(&self, options: &[&str], action: &str, times: u64) -> Done {
        let times = times.to_string();
        run(&[options, &[self.call_graph, "--json"], &self.args(action, &times)].concat()).code(0)
    }

    /// Names of own functions in a chain, innermost first, without those that leaf() calls.
    fn own<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let is_own =
            |name: &String| BELOW_LEAF.contains(&name.as_str()) || self.chains.iter().any(|chain| chain.contains(name));
        let mut own: Vec<String> = names.map(short_name).filter(is_own).collect();
        if own.len() > 1 && BELOW_LEAF.contains(&own[0].as_str()) && own[1] == "leaf" {
            own.remove(0);
        }
        own
    }

    /// True for a chain from some own function to the outermost one.
    fn is_known(&self, own: &[String]) -> bool {
        self.chains.iter().any(|chain| match self.end {
            None => chain.ends_with(own),
            Some(_) => (0..chain.len()).any(|from| chain[from..].starts_with(own)),
        })
    }

    /// Counts a chain that is right and that of leaf().
    fn check(&mut self, view: StackView, names: &[&str], count: u64) -> u64 {
        let own = self.own(names.iter().copied());
        if own.is_empty() {
            return 0; // before main(), or behind it
        }
        let end = names.last().copied().unwrap_or_default();
        let is_end = self.end.is_none_or(|wanted| end == wanted) || own.last().is_some_and(|name| name == "main");
        if !self.is_known(&own) || !is_end {
            // It overwrites its own frame with that of the function where it ends.
            if view == Profile && names.iter().any(|name| name.starts_with("_Unwind_")) {
                self.leaving += count;
                return 0;
            }
            let names = if names.len() > 40 { &names[names.len() - 40..] } else { names };
            self.faults.push(format!("{view:?}: {count} x {names:?}"));
            return 0;
        }
        if own[0] == self.chains[0][0] { count } else { 0 }
    }

    /// Faults of the file of a flame graph, and how many samples were of the program's own.
    fn profile(&mut self) -> Result<(), String> {
        const CPU_MS: u64 = 300;
        let folded = tempfile::Builder::new().suffix(".folded").tempfile().expect("a temporary file");
        let path = folded.path().to_str().expect("a path in UTF-8");
        let done = self.run(&["profile", "-F", "997", "--flame-graph", path], "busy", CPU_MS);
        let text = std::fs::read_to_string(path).expect("the graph");
        let mut seen = 0;
        let mut without = 0;
        for line in text.lines() {
            let (stack, count) = line.rsplit_once(' ').expect("a weight");
            let count: u64 = count.parse().expect("a number");
            let mut names: Vec<&str> = stack.split(';').skip(1).collect();
            names.reverse();
            self.check(Profile, &names, count);
            let own = self.own(names.iter().copied());
            seen += count;
            let is_of_thread = names.last() == Some(&"clone3"); // before its routine, and behind it
            without += if own.is_empty() && !is_of_thread { count } else { 0 };
        }
        let leaving = std::mem::take(&mut self.leaving);
        if leaving > 2 + seen / 20 {
            self.faults.push(format!("{leaving} of {seen} samples inside of the C++ runtime\n{text}"));
        }
        if seen < CPU_MS / 3 || without > 20 + seen / 50 {
            return Err(format!("{seen} samples, {without} of them without own functions: {:#?}\n{text}", done.end()));
        }
        Ok(())
    }

    fn waits(&mut self) -> Result<(), String> {
        let done = self.run(&["task-state", "-S", "--than", "1ms"], "sleep", WAITS);
        let seen = self.check_events(Waits, &done.of_type("event"));
        if seen == WAITS { Ok(()) } else { Err(format!("{seen} of {WAITS} waits: {done:#?}")) }
    }

    fn leaks(&mut self) -> Result<(), String> {
        let done = self.run(&["kmemleak", "malloc"], "malloc", ALLOCS);
        let mut seen = 0;
        for row in done.of_type("row") {
            seen += self.check(Leaks, &names(&row["stack"]), number(&row, "allocs"));
        }
        if seen == ALLOCS { Ok(()) } else { Err(format!("{seen} of {ALLOCS} allocations: {done:#?}")) }
    }

    fn events(&mut self) -> Result<(), String> {
        let path = self.path.clone();
        let events = format!("uprobe:probed@\"{path}\",uretprobe:probed@\"{path}\",sched:sched_switch");
        let done = self.run(&["trace", "-e", &events], "sleep", WAITS);
        for (prefix, exact) in [("uprobe:", true), ("uretprobe:", true), ("sched:", false)] {
            let is_it = |event: &Value| event["event"].as_str().is_some_and(|name| name.starts_with(prefix));
            // Preempted before the kernel has done what the instruction under a probe does, a task is at none of its own.
            let is_at_probe = |event: &Value| names(&event["stack"]).contains(&"irqentry_exit_to_user_mode");
            let events = done.of_type("event").into_iter().filter(is_it);
            let of: Vec<Value> = events.filter(|event| exact || !is_at_probe(event)).collect();
            let seen = self.check_events(Events, &of);
            // Preempted it is switched out, too.
            if seen < WAITS || exact && seen > WAITS {
                return Err(format!("{seen} of {WAITS} {prefix} {done:#?}"));
            }
        }
        Ok(())
    }

    fn check_events(&mut self, view: StackView, events: &[Value]) -> u64 {
        events.iter().map(|event| self.check(view, &names(&event["stack"]), 1)).sum()
    }

    fn show(&mut self, view: StackView) {
        let mut found = Vec::new();
        attempts(|| {
            self.faults.clear();
            let shown = match view {
                Profile => self.profile(),
                Waits => self.waits(),
                Leaks => self.leaks(),
                Events => self.events(),
            };
            found.append(&mut self.faults);
            if found.is_empty() { shown } else { Ok(()) }
        });
        self.faults = found;
    }
}

/// The names of the frames, innermost first.
fn names(stack: &Value) -> Vec<&str> {
    let frames = stack.as_array().into_iter().flatten();
    frames.map(|frame| frame["symbol"].as_str().or(frame["reason"].as_str()).unwrap_or("?")).collect()
}

/// Without parameters, what it is a part of, and how often it was cloned.
fn short_name(name: &str) -> String {
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    let name = if name.starts_with("<known_chains::Guard") { "drop" } else { name };
    name.trim_start_matches("known_chains::").trim_end_matches(".cold").to_owned()
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
                println!("skipped: {why}");
                continue;
            }
        };
        let words = |chain: &&str| chain.split(' ').map(str::to_owned).collect();
        let chains = case.chains.iter().map(words).collect();
        let mut subject = KnownProgram::new(path, case.mode, chains);
        for &view in case.views {
            subject.show(view);
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
        let cases =
            [("-g", cut, Waits), ("-g", cut, Leaks), ("-g", cut, Events), ("--call-graph=dwarf,8K", cut, Profile)];
        let whole = [Profile, Waits, Events].map(|view| ("--call-graph=dwarf,64K", None, view));
        for (call_graph, end, view) in cases.into_iter().chain(whole) {
            (subject.call_graph, subject.end) = (call_graph, end);
            subject.show(view);
            faults.append(&mut subject.faults);
        }
        assert!(faults.is_empty(), "{path}: {} faults:\n{}", faults.len(), faults.join("\n"));
    }
}

/// A return probe further out has taken the place of a return address. The kernel's chain has it, where there are frame
/// pointers; else the chain ends there.
#[test]
fn return_probes_further_out() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let whole = ["probed", "leaf", "inner", "middle", "outer", "main"];
    for (options, want) in [("-O2 -fno-omit-frame-pointer", &whole[..]), ("-O2 -fomit-frame-pointer", &whole[..3])] {
        let Ok(path) = build(dir.path(), &case(C, options, "plain", PLAIN, ALL)) else { skip!("no compiler") };
        let events = format!("uprobe:probed@\"{path}\",uretprobe:inner@\"{path}\"");
        let done = run(&["trace", "-e", &events, "-g", "--json", "--", &path, "plain", "sleep", "20"]).code(0);
        let (mut inside, mut returns) = (0, 0);
        for event in done.of_type("event") {
            let is_return = event["event"].as_str().is_some_and(|name| name.starts_with("uretprobe:"));
            let names = names(&event["stack"]);
            let want = if is_return { &whole[3..] } else { want };
            assert!(names.starts_with(want), "{options}: {names:?}");
            assert_eq!(names.last() == Some(&"_start"), want.len() != 3 || is_return, "{options}: {names:?}");
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
    let options = ["task-state", "-S", "--than", "1ms"];
    let done = subject.run(&options, "sleep", WAITS);
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
    let text = run(&[&options[..], &["-g"], &subject.args("sleep", "3")].concat()).code(0);
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
    let done = subject.run(&["task-state", "-S", "--than", "1ms"], "sleep", WAITS);
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
