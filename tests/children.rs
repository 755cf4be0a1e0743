//! Probes in programs that children of the target run: each of their calls is seen, or the numbers are marked.

#[macro_use]
mod common;

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

use common::seccomp::{Arg, Refusal, refused};
use common::{Done, Load, Prog, command, copy_program, example, run_over, start_watching, until};
use perf_prof::event::ProbePoint;
use perf_prof::profiler::code::{self, CodeLocation, WantedFunctions};
use perf_prof::symbol::functions::search::{MAX_OF_FILE_BYTES, Search};
use perf_prof::sys::mount::private_tracefs;
use serde_json::Value;
use tempfile::TempDir;

const CALLS: usize = 10;

/// Skips the test if programs cannot be probed.
macro_rules! need_uprobes {
    () => {
        need_events!();
        if !private_tracefs().is_ok_and(|tracefs| tracefs.root().join("uprobe_events").exists()) {
            skip!("this kernel has no uprobes");
        }
    };
}

/// perf_event_open of a thread on any CPU: it is what keeps the kernel from swapping events. Old kernels do not know
/// it.
const AS_BEFORE_6_12: Refusal =
    Refusal { nr: libc::SYS_perf_event_open, errno: libc::EINVAL, when: &[(2, Arg::AtLeast(u32::MAX))] };

/// A copy of a program that no other process runs.
struct Own {
    _dir: TempDir,
    path: String,
}

impl Own {
    fn copy_of(name: &str) -> Own {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("program");
        copy_program(example(name), &path);
        Own { path: path.to_str().expect("UTF-8").to_owned(), _dir: dir }
    }

    fn probe(&self) -> String {
        format!("uprobe:calls_add@\"{}\"", self.path)
    }
}

fn verdicts(done: &Done, kind: &str) -> Vec<Value> {
    done.of_type(kind).iter().map(|object| object["verdict"].clone()).collect()
}

/// perf-prof over a command, on a kernel as it was before 6.12.
fn run_as_before(options: &[&str], workload: &[&str]) -> Done {
    let args = [options, &["--"], workload].concat();
    Prog::spawn(refused(command(&args), &[AS_BEFORE_6_12])).finish().code(0)
}

/// Of two siblings, the one that lives on makes the calls; the kernel may have swapped the events of both.
#[track_caller]
fn all_of_a_sister(run: fn(&[&str], &[&str]) -> Done) {
    let own = Own::copy_of("calls");
    let (probe, count) = (own.probe(), CALLS.to_string());
    for _ in 0..5 {
        let done = run(&["trace", "--json", "-e", &probe], &[&example("sisters"), &own.path, &count]);
        assert_eq!(done.of_type("event").len(), CALLS, "{done:#?}");
        assert!(verdicts(&done, "interval").iter().all(|verdict| verdict == "exact"), "{done:#?}");
        assert_eq!(done.total("children_in_doubt"), 0, "{done:#?}");
    }
}

/// The only place of a function in a file.
fn in_file(place: &ProbePoint, path: &str) -> CodeLocation {
    let search = Search::within(MAX_OF_FILE_BYTES);
    code::in_file(WantedFunctions { place, most: 1 }, path, &search).expect("the function").remove(0)
}

#[test]
fn events_stay_with_their_task() {
    need_uprobes!();
    all_of_a_sister(run_over);
    all_of_a_sister(run_from_a_shell);
}

/// perf-prof on a running shell, which then starts the command.
fn run_from_a_shell(options: &[&str], workload: &[&str]) -> Done {
    let mut shell = Load::shell();
    let pid = shell.pid().to_string();
    let options: Vec<&str> = options.iter().copied().filter(|option| *option != "--json").collect();
    let prog = start_watching(&[&options, &["-p", pid.as_str()][..]].concat());
    shell.tell(&workload.join(" "));
    shell.stop();
    prog.finish().code(0)
}

#[test]
fn probes_of_others_too() {
    need_uprobes!();
    let own = Own::copy_of("calls");
    let place = ProbePoint { function: "calls_add".to_owned(), offset: 0, ret: false };
    let spot = in_file(&place, &own.path);
    let tracefs = private_tracefs().expect("a tracefs of our own");
    let list = tracefs.root().join("uprobe_events");
    let group = format!("children_{}", std::process::id());
    let tell = |line: String| -> std::io::Result<()> {
        OpenOptions::new().append(true).open(&list)?.write_all(line.as_bytes())
    };
    tell(format!("p:{group}/add {}:{:#x}\n", own.path, spot.offset)).expect("a probe");
    let done = run_over(
        &["trace", "--json", "-e", &format!("{group}:add")],
        &[&example("sisters"), &own.path, &CALLS.to_string()],
    );
    until("nobody holds the probe", || tell(format!("-:{group}/add\n")).is_ok());
    assert_eq!(done.of_type("event").len(), CALLS, "{done:#?}");
}

#[test]
fn old_kernels_probe_a_file_of_the_target_alone_in_every_process() {
    need_uprobes!();
    all_of_a_sister(run_as_before);
}

#[test]
fn rows_with_possibly_missing_calls_are_marked() {
    need_uprobes!();
    let own = Own::copy_of("calls");
    let mut other = Load::of(&own.path, &["1", "--wait"]);
    assert_eq!(other.says(), "ready");
    let count = CALLS.to_string();
    let done = run_as_before(&["trace", "--json", "-e", &own.probe()], &[&example("sisters"), &own.path, &count]);
    assert!(done.of_type("event").len() <= CALLS, "{done:#?}");
    assert_eq!((verdicts(&done, "interval"), done.total("children_in_doubt")), (vec!["lower_bound".into()], 2));
    done.says(&[
        "degraded: calls of uprobe:calls_add@",
        "may go unseen",
        "cure: ",
        "calls in 2 processes",
        "no number is exact",
    ]);
    // Without a child there is no doubt.
    let done = run_as_before(&["trace", "--json", "-e", &own.probe()], &[&own.path, &count]);
    assert_eq!(done.of_type("event").len(), CALLS, "{done:#?}");
    assert_eq!((verdicts(&done, "interval"), done.total("children_in_doubt")), (vec!["exact".into()], 0), "{done:#?}");
}

#[test]
fn allocations_of_children() {
    need_uprobes!();
    let uleak = [example("sisters"), example("uleak"), "100".to_owned(), "64".to_owned(), "50".to_owned()];
    let uleak: Vec<&str> = uleak.iter().map(String::as_str).collect();
    let options = ["kmemleak", "malloc", "-g", "--json"];
    let of_leaky = |done: &Done| -> Vec<(Value, Value)> {
        let is = |frame: &Value| frame["symbol"].as_str().is_some_and(|symbol| symbol.contains("leaky"));
        let rows = done.of_type("row").into_iter();
        let rows = rows.filter(|row| row["stack"].as_array().is_some_and(|stack| stack.iter().any(is)));
        rows.map(|row| (row["allocs"].clone(), row["verdict"].clone())).collect()
    };
    let done = run_over(&options, &uleak);
    assert_eq!(of_leaky(&done), [(100.into(), "exact".into())], "{done:#?}");
    // Every process uses the C library.
    let done = run_as_before(&options, &uleak);
    assert!(verdicts(&done, "row").iter().all(|verdict| verdict == "unsure"), "{done:#?}");
    assert_eq!(verdicts(&done, "interval"), ["lower_bound"]);
    done.says(&["degraded: calls of ", "may go unseen", "calls in 2 processes"]);
}

/// A hog on each of the first two CPUs, as long as the loads live.
fn busy() -> Vec<Load> {
    let hog = |cpu: &u32| {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
        Load::start(command)
    };
    common::online_cpus().iter().take(2).map(hog).collect()
}

#[test]
fn a_family_on_busy_cpus() {
    need_uprobes!();
    let own = Own::copy_of("calls");
    let last = common::online_cpus().len().min(2) - 1;
    let script = format!(
        "taskset -c 0 {0} {CALLS} & taskset -c {last} {0} {CALLS} & ({0} {CALLS} & {0} {CALLS}; wait); wait",
        own.path
    );
    let _hogs = busy();
    for _ in 0..15 {
        let done = run_over(&["trace", "--json", "-e", &own.probe()], &["sh", "-c", &script]);
        assert_eq!(done.of_type("event").len(), 4 * CALLS, "{done:#?}");
        assert_eq!(verdicts(&done, "interval"), ["exact"]);
    }
}
