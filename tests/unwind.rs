//! Chains of programs that are stopped somewhere, against what is known of them.

#[macro_use]
mod common;
#[path = "common/stopped.rs"]
mod stopped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use common::Load;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use perf_prof::host::{Host, threads};
use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf::symbols::SymbolOptions;
use perf_prof::symbol::{AddressSpaces, Frame, FrameNames};
use perf_prof::unwind::{Arch, Cut, MAX_FRAMES, MappedCode, Unwinder, UnwoundChain, UserStackSample, Walked};
use stopped::{StoppedStack, stop_once};

/// What a program is doing at one moment.
struct Chain {
    ended: Walked,
    /// Innermost first.
    functions: Vec<String>,
}

/// Walks what is stopped.
struct Walker {
    spaces: AddressSpaces,
    names: FrameNames,
    unwinder: Unwinder,
    budget: Budget,
}

impl Walker {
    fn new() -> Walker {
        let budget = Budget::default();
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: budget.clone() };
        Walker {
            spaces: AddressSpaces::new(Host::default()),
            names: FrameNames::new("/proc/kallsyms", options),
            unwinder: Unwinder::default(),
            budget,
        }
    }

    fn walk(&mut self, pid: i32, seen: &StoppedStack, window: usize) -> Chain {
        self.spaces.forget_processes(); // it may have mapped more
        let space = self.spaces.space_code(pid);
        let mut load = |code: &Arc<MappedCode>| self.spaces.load_tables(code, &self.budget);
        let mut chain = UnwoundChain::default();
        let stack = &seen.stack[..window.min(seen.stack.len())];
        let sample = UserStackSample { arch: Arch::NATIVE, regs: &seen.regs, stack, kernel_chain: &[] };
        let ended = self.unwinder.walk(&sample, &space, &mut load, &mut chain);
        let functions = chain.addresses().iter().enumerate().map(|(at, &addr)| {
            let behind_call = chain.is_behind_call(at);
            let place = self.spaces.locate(pid, addr - u64::from(behind_call));
            let named = self.names.frame(&Frame::User { addr, behind_call, guessed: false, place });
            match named.symbol {
                Ok(name) => name.to_string(),
                Err(reason) => format!("{addr:#x} ({reason}, {})", named.module.as_deref().unwrap_or("nowhere")),
            }
        });
        Chain { ended, functions: functions.collect() }
    }
}

fn build(dir: &Path, options: &[&str]) -> PathBuf {
    let program = dir.join(options.join(" ").replace(['/', ' '], "_"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/unwind_chains.c");
    let built =
        Command::new("cc").args(options).arg("-o").arg(&program).args([source, "-pthread"]).output().expect("cc");
    assert!(built.status.success(), "{options:?}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

fn end(load: Load) {
    kill(Pid::from_raw(load.pid()), Signal::SIGKILL).expect("it runs");
    load.stop();
}

/// Of the program's own functions in each mode, those below spin().
const MODES: [(&str, &[&str]); 11] = [
    ("plain", &["inner", "middle", "outer", "main"]),
    ("deep", &["inner", "deep", "main"]),
    ("alloca", &["inner", "with_alloca", "main"]),
    ("realigned", &["inner", "realigned", "main"]),
    ("both", &["inner", "with_alloca", "realigned_alloca", "main"]),
    ("raise", &["on_signal", "by_raise", "by_signal", "main"]),
    ("timer", &["on_signal", "busy", "by_signal", "main"]),
    ("altstack", &["on_signal"]),
    ("qsort", &["inner", "compare", "by_qsort", "main"]),
    ("thread", &["inner", "middle", "outer", "thread_routine"]),
    ("noreturn", &["inner", "never_returns", "calls_it", "main"]),
];
const OWN: [&str; 20] = [
    "spin",
    "inner",
    "middle",
    "outer",
    "deep",
    "with_alloca",
    "realigned",
    "realigned_alloca",
    "on_signal",
    "busy",
    "by_signal",
    "by_raise",
    "by_timer",
    "compare",
    "by_qsort",
    "thread_routine",
    "by_thread",
    "never_returns",
    "calls_it",
    "main",
];
const STOPS: usize = 30;

fn check(program: &Path, mode: &str, want: &[&str], faults: &mut Vec<String>) {
    let mut walker = Walker::new();
    let mut load = Load::of(program.to_str().expect("UTF-8"), &[mode]);
    load.says();
    let pid = load.pid();
    let tid = threads(&Host::default(), pid).into_iter().max().expect("a thread");
    for _ in 0..STOPS {
        let seen = stop_once(tid).expect("it runs");
        let chain = walker.walk(pid, &seen, usize::MAX);
        let is_own = |name: &&String| OWN.contains(&&***name);
        let mut own: Vec<&str> = chain.functions.iter().filter(is_own).map(String::as_str).collect();
        let depth = own.len();
        own.dedup();
        let is_depth = mode != "deep" || depth == 301 + 3; // spin, inner and main
        // Of what is on another stack, only the interrupted function is known.
        let is_cut = mode == "altstack";
        let end = if is_cut { Walked::Truncated(Cut::Window) } else { Walked::Whole };
        own.retain(|name| !is_cut || *name != "busy");
        let is_interrupted = |name: &String| name == "leaf" || name == "busy";
        let is_depth = is_depth && (!is_cut || chain.functions.last().is_some_and(is_interrupted));
        let is_right = own.first() == Some(&"spin") && own[1..] == *want && is_depth;
        if chain.ended != end || !is_right {
            let name = program.file_name().expect("a name").to_string_lossy();
            faults.push(format!("{name} {mode}: {:?} {:x?} {:?}", chain.ended, seen.regs, chain.functions));
            break;
        }
    }
    end(load);
}

#[test]
fn chains_are_as_the_source_has_them() {
    if !perf_prof::sys::is_root() || !Path::new("/usr/bin/cc").exists() {
        skip!("needs root and a C compiler");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let kinds: [&[&str]; 8] = [
        &["-O0"],
        &["-O2"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O2", "-fomit-frame-pointer", "-no-pie"],
        &["-O2", "-static"],
        &["-O2", "-static-pie"],
        &["-O2", "-s", "-rdynamic"],
        &["-O3", "-fcf-protection=none", "-mavx2", "-fPIE", "-pie"],
    ];
    let mut faults = Vec::new();
    for options in kinds {
        if options.contains(&"-mavx2") && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let program = build(dir.path(), options);
        for (mode, want) in MODES {
            check(&program, mode, want, &mut faults);
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The loader's code that binds a function has its frame in a register which its callees save.
#[test]
fn a_call_that_is_bound_late_is_followed() {
    if !perf_prof::sys::is_root() || !Path::new("/usr/bin/cc").exists() {
        skip!("needs root and a C compiler");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/unwind_lazy.c");
    let cc = |options: &[&str], name: &str| {
        let path = dir.path().join(name);
        let built = Command::new("cc").args(["-O2", source]).args(options).arg("-o").arg(&path).output().expect("cc");
        assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
        path
    };
    let library = cc(&["-DLIBRARY", "-shared", "-fPIC"], "liblazy.so");
    let library = library.to_str().expect("UTF-8");
    let rpath = format!("-Wl,-rpath,{}", dir.path().display());
    let program = cc(&[library, &rpath, "-Wl,-z,lazy"], "lazy");
    let mut walker = Walker::new();
    let mut load = Load::of(program.to_str().expect("UTF-8"), &[]);
    load.says();
    for _ in 0..STOPS {
        let seen = stop_once(load.pid()).expect("it runs");
        let chain = walker.walk(load.pid(), &seen, usize::MAX);
        let own: Vec<&str> = chain.functions.iter().map(String::as_str).collect();
        assert_eq!(chain.ended, Walked::Whole, "{own:?}");
        let at = |name: &str| own.iter().position(|function| *function == name).unwrap_or(usize::MAX);
        let (spin, program) = (at("spin"), at("calls_it"));
        let is_bound = own.get(spin + 1) == Some(&"resolver") && program > spin + 2;
        assert!(is_bound && own[program..].starts_with(&["calls_it", "main"]), "{own:?}");
    }
    end(load);
}

#[test]
fn what_does_not_fit_is_truncated() {
    if !perf_prof::sys::is_root() || !Path::new("/usr/bin/cc").exists() {
        skip!("needs root and a C compiler");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = build(dir.path(), &["-O2"]);
    let mut walker = Walker::new();
    let mut load = Load::of(program.to_str().expect("UTF-8"), &["deep"]);
    load.says();
    let seen = stop_once(load.pid()).expect("it runs");
    let whole = walker.walk(load.pid(), &seen, usize::MAX);
    assert_eq!(whole.ended, Walked::Whole, "{:?}", whole.functions);
    for window in (0..3000).step_by(8) {
        let part = walker.walk(load.pid(), &seen, window);
        assert_eq!(part.ended, Walked::Truncated(Cut::Window), "{window}: {:?}", part.functions);
        assert_eq!(part.functions, whole.functions[..part.functions.len()], "{window}");
    }
    assert!(whole.functions.len() < MAX_FRAMES);
    end(load);
}

#[test]
fn static_programs_have_their_tables_elsewhere() {
    let target = musl_target();
    if !perf_prof::sys::is_root() || !Path::new("/usr/bin/cc").exists() {
        skip!("needs root and a linker");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("static");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/unwind_static.rs");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    let built = compiler.args(["--edition=2024", "-O", "--target", target, "-o"]).arg(&program).arg(source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        skip!("no Rust for {target}");
    }
    let mut in_libc = 0;
    for mode in ["main", "thread"] {
        let mut walker = Walker::new();
        let mut load = Load::of(program.to_str().expect("UTF-8"), &[mode]);
        load.says();
        let tid = threads(&Host::default(), load.pid()).into_iter().max().expect("a thread");
        for _ in 0..100 {
            let seen = stop_once(tid).expect("it runs");
            let chain = walker.walk(load.pid(), &seen, usize::MAX);
            let at = |name: &str| chain.functions.iter().position(|function| function == name);
            let is_right =
                at("waits").is_some_and(|at| chain.functions.get(at + 1).is_some_and(|name| name == "caller"));
            assert!(chain.ended == Walked::Whole && is_right, "{mode}: {:?} {:?}", chain.ended, chain.functions);
            in_libc += usize::from(chain.functions.iter().any(|name| name.contains("nanosleep")));
        }
        end(load);
    }
    assert!(in_libc > 10, "{in_libc}");
}

fn musl_target() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" }
}

/// Programs of a distribution at work.
const ORDINARY: [(&str, &[&str]); 7] = [
    ("gzip", &["-9c", "/dev/urandom"]),
    ("xz", &["-c", "/dev/urandom"]),
    ("sha512sum", &["/dev/zero"]),
    ("openssl", &["speed", "-seconds", "20", "sha256"]),
    (
        "perl",
        &["-e", "while (1) { my %h = map { $_ => \"x$_\" } 1..500; my $s = join ',', sort keys %h; $s =~ s/1/2/g; }"],
    ),
    (
        "python3",
        &["-c", "import json\nwhile True: json.loads(json.dumps({str(i): [i] * 5 for i in range(300)}, indent=1))"],
    ),
    ("bash", &["-c", "while :; do x=$((x + 1)); y=${x//1/2}; [[ $y == *3* ]] && z=$y; done"]),
];

#[test]
fn ordinary_programs_are_whole() {
    const SAMPLES: usize = 200;
    if !perf_prof::sys::is_root() {
        skip!("needs root");
    }
    let mut faults = Vec::new();
    for (program, args) in ORDINARY {
        let path = Path::new("/usr/bin").join(program);
        if !path.exists() {
            continue;
        }
        let mut walker = Walker::new();
        let mut command = Command::new(path);
        command.args(args);
        let load = Load::start(command);
        let (mut whole, mut others) = (0, BTreeMap::<String, usize>::new());
        for _ in 0..SAMPLES {
            sleep(Duration::from_millis(1)); // another moment
            let stopped = stop_once(load.pid()).expect("it runs");
            let chain = walker.walk(load.pid(), &stopped, 32 << 10);
            if chain.ended == Walked::Whole {
                whole += 1;
            } else {
                let innermost = &chain.functions[..chain.functions.len().min(3)];
                *others.entry(format!("{:?} {innermost:?}", chain.ended)).or_default() += 1;
            }
        }
        println!("{program}: {whole} of {SAMPLES} {others:#?}");
        if whole * 100 < SAMPLES * 95 {
            faults.push(format!("{program}: {whole} of {SAMPLES}"));
        }
        end(load);
    }
    assert!(faults.is_empty(), "{faults:?}");
}
