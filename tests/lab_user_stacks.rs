//! Stacks of programs whose chains of calls are known, on arm64: as `tests/user_stacks.rs` has them where it runs.

#[macro_use]
mod common;
#[path = "common/known_chains.rs"]
mod known_chains;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Again, CpuWatch, Shortfall, again, attempts, number};
use known_chains::{KnownProgram, StackView};
use lab::Lab;

use StackView::{Events, Leaks, Profile, Waits};

const ALL: &[StackView] = &[Profile, Waits, Leaks, Events];
const LIMIT: &[StackView] = &[Profile, Waits, Leaks];
const FEW: &[StackView] = &[Waits, Leaks];
const WAITS: &[StackView] = &[Waits];

/// Options of the compiler, and the modes of the program: own functions of each chain, innermost first.
type LabCase = (&'static str, &'static [(&'static str, &'static [&'static str], &'static [StackView])]);

const PLAIN: &[&str] = &["leaf inner middle outer main"];
const SIGNAL: &[&str] = &["leaf on_signal by_signal main"];
const FAULT: &[&str] = &["leaf on_fault faults by_fault main", "neighbour"];
const ALLOCA: &[&str] = &["leaf inner with_alloca main"];
const REALIGNED: &[&str] = &["leaf inner with_alloca realigned main"];
const QSORT: &[&str] = &["leaf inner compare by_qsort main"];
const THREAD: &[&str] = &["leaf inner middle outer thread_routine", "by_thread main"];

const CASES: [LabCase; 4] = [
    ("-O0", &[("plain", PLAIN, ALL), ("realigned", REALIGNED, WAITS), ("signal", SIGNAL, WAITS)]),
    ("-O0 -fomit-frame-pointer", &[("plain", PLAIN, WAITS), ("alloca", ALLOCA, WAITS)]),
    (
        "-O2 -fomit-frame-pointer",
        &[("plain", PLAIN, ALL), ("signal", SIGNAL, LIMIT), ("fault", FAULT, LIMIT), ("thread", THREAD, FEW)],
    ),
    (
        "-O2 -fno-omit-frame-pointer -mbranch-protection=standard",
        &[("plain", PLAIN, LIMIT), ("fault", FAULT, WAITS), ("qsort", QSORT, WAITS), ("alloca", ALLOCA, WAITS)],
    ),
];

/// Emulated, a CPU may be away for most of the time, and so long that a pause is over before it begins.
const LEAST_SAMPLES: u64 = 20;
const LEAST_WAITS: u64 = 10;
/// The copies of a whole profile find room until the tables are loaded, which takes long there.
const PROFILED: (&str, &str) = ("499", "--call-graph=dwarf,16K");

/// A static program for arm64. Its C library is Debian's.
fn build(dir: &Path, number: usize, options: &str) -> PathBuf {
    let program = dir.join(format!("chains{number}"));
    let mut compiler = Command::new("aarch64-linux-gnu-gcc-12");
    compiler.arg(format!("--sysroot={}", lab::cache().join("libc/arm64").display()));
    compiler.args(options.split(' ')).args(["-static", "-pthread", "-o"]).arg(&program);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/known_chains.c");
    let built = compiler.arg(source).output().expect("a compiler: see lab/README.md");
    assert!(built.status.success(), "{options}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

/// A view of a program, and the name of its results.
struct LabRun {
    name: String,
    view: StackView,
    subject: KnownProgram,
}

fn graph(name: &str) -> String {
    format!("{name}.folded")
}

fn runs() -> Vec<LabRun> {
    let mut runs = Vec::new();
    for (number, (_, modes)) in CASES.iter().enumerate() {
        for (mode, chains, views) in *modes {
            for &view in *views {
                let chains = chains.iter().map(|chain| chain.split(' ').map(str::to_owned).collect()).collect();
                let mut subject = KnownProgram::new(format!("/guest/chains{number}"), mode, chains);
                (subject.least_samples, subject.least_waits) = (LEAST_SAMPLES, LEAST_WAITS);
                if view == Profile {
                    (subject.hz, subject.call_graph) = PROFILED;
                }
                runs.push(LabRun { name: format!("chains{number}-{mode}-{view:?}"), view, subject });
            }
        }
    }
    runs
}

/// The kernel would lower its limit where emulation makes a sample take long.
fn script(runs: &[LabRun]) -> String {
    let mut script = "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent\n".to_owned();
    for run in runs {
        let args = run.subject.args(run.view, &format!("/out/{}", graph(&run.name)));
        let args: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
        script.push_str(&format!("prof {} {}\n", run.name, args.join(" ")));
    }
    script
}

#[test]
fn chains_are_known_on_arm64() {
    need_lab!();
    let dir = tempfile::tempdir().expect("a directory");
    let programs: Vec<PathBuf> =
        CASES.iter().enumerate().map(|(number, (options, _))| build(dir.path(), number, options)).collect();
    let mut runs = runs();
    // Only runs that lack something are made again.
    attempts(|| {
        let watch = CpuWatch::of_account();
        let output = programs.iter().fold(Lab::arm64("6.12"), |lab, program| lab.file(program)).run(&script(&runs));
        let mut missing: Vec<Shortfall> = Vec::new();
        let mut faults = Vec::new();
        runs.retain_mut(|LabRun { name, view, subject }| {
            let done = output.results(name).code(0);
            let graph = if *view == Profile { output.file(&graph(name)) } else { String::new() };
            let before = missing.len();
            missing.extend(subject.look(*view, &done, &graph, &watch).err());
            let found: Vec<String> = subject.faults.drain(..).map(|fault| format!("{name}: {fault}")).collect();
            // Stacks whose copies were lost are by frame pointers.
            if number(&done.end(), "lost_unwind") > 0 {
                missing.extend(again::<()>(&[Again::RecordsLost(&done)], found.join("\n")).err());
            } else {
                faults.extend(found);
            }
            missing.len() > before
        });
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
        missing.pop().map_or(Ok(()), Err)
    });
}
