//! `profile`: shares, functions and stacks against a load that measures itself; flame graphs of all profilers.

#[macro_use]
mod common;

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use common::{
    Again, Attempted, CpuWatch, Done, Load, Prog, Turn, example, hurry, load_number, number, or_again, run, run_over,
    start, stolen_ns,
};
use serde_json::Value;

/// Least number of samples for the accuracy that is checked.
const HZ: &str = "997";
const WALL_MS: &str = "3000";

/// The function rows of a run: symbol to per cent.
fn functions(done: &Done) -> HashMap<String, f64> {
    let rows = done.rows_and_lists().into_iter().filter(|row| row["symbol"].is_string());
    rows.map(|row| (row["symbol"].as_str().unwrap().to_owned(), row["pct"].as_f64().unwrap())).collect()
}

/// The per cent of a function of `parts`.
#[track_caller]
fn pct(functions: &HashMap<String, f64>, name: &str) -> f64 {
    let is = |symbol: &String| symbol.ends_with(&format!("::{name}"));
    functions.iter().find(|(symbol, _)| is(symbol)).unwrap_or_else(|| panic!("no {name} in {functions:?}")).1.to_owned()
}

/// 75:25 within four points, or within four points of what the load itself measured.
#[track_caller]
fn check_parts(functions: &HashMap<String, f64>, load: &str) {
    let (three, one) = (load_number(load, "three_ns") as f64, load_number(load, "one_ns") as f64);
    let truth = 100.0 * three / (three + one);
    assert!((truth - 75.0).abs() < 1.0, "the load itself is wrong: {load}");
    let (three, one) = (pct(functions, "three_parts"), pct(functions, "one_part"));
    let share = 100.0 * three / (three + one);
    assert!((share - truth).abs() < 4.0, "{share} instead of {truth}: {functions:?}");
    // On a busy machine each switch costs the load some time.
    assert!(three + one > 50.0, "it did little else: {functions:?}");
}

/// `parts` on a CPU, as a background load.
fn parts_on(cpu: u32, wall_ms: &str) -> Load {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), &example("parts"), wall_ms]);
    Load::start(command)
}

/// Tasks without a pid in the namespace are not taken for the idle task, nor for each other.
#[test]
fn tasks_outside_of_a_nested_namespace_are_one() {
    need_events!(alone);
    usual_limits();
    let cpu = first_cpu();
    let _load = parts_on(cpu, "4000");
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc", env!("CARGO_BIN_EXE_perf-prof")]);
    command.args(["profile", "--json", "-F", HZ, "-C", &cpu.to_string(), "--for", "1.5"]);
    let done = Prog::spawn(command).finish();
    if done.err().contains("unshare:") {
        skip!("{}", done.err());
    }
    let done = done.code(0).says(&["degraded: tasks outside of this pid namespace", "cure: run on the host"]);
    let rows = done.rows_and_lists();
    let nobody: Vec<&Value> = rows.iter().filter(|row| row["pid"] == 0).collect();
    assert!(nobody.len() == 1 && nobody[0]["comm"] == "<outside>", "{nobody:?}");
    // The CPU was busy all the time, by its accounting, too, and nearly all of that with these tasks.
    let of_cpu = rows.iter().find(|row| row["cpu"] == cpu).expect("a row of the CPU");
    assert!(of_cpu["idle_pct"].as_f64().unwrap() < 20.0, "{of_cpu}");
    assert!(nobody[0]["pct"].as_f64().unwrap() > 60.0, "{nobody:?}");
    assert!(number(of_cpu, "achieved_hz") > 200, "{of_cpu}"); // fewer if the machine stands still
    assert!(
        rows.iter().all(|row| !row["symbol"].as_str().is_some_and(|name| name.contains("three_parts"))),
        "{rows:?}"
    );
}

fn first_cpu() -> u32 {
    common::online_cpus()[0]
}

const SAMPLE_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// The kernel itself lowers its limit where the PMU's interrupts take long, as in a virtual machine.
fn usual_limits() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let limit = fs::read_to_string(SAMPLE_RATE).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if limit.is_some_and(|limit| limit < 100_000) {
            let _ = fs::write(SAMPLE_RATE, "100000");
        }
    });
}

// Measurements

#[test]
fn functions_of_a_workload_that_has_exited() {
    need_events!(alone);
    usual_limits();
    let stolen = stolen_ns();
    let done = run_over(&["profile", "--json", "-F", HZ], &[&example("parts"), WALL_MS]);
    let stolen = (stolen_ns() - stolen) as f64;
    check_parts(&functions(&done), &done.load);
    let end = done.end();
    let tasks: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["comm"] == "parts").collect();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let pid = load_number(&done.load, "pid");
    assert_eq!(number(&tasks[0], "pid"), pid);
    // In per cent of one CPU: the time that the load reports, over the time of the run.
    let used = (load_number(&done.load, "three_ns") + load_number(&done.load, "one_ns")) as f64;
    let interval = &done.of_type("interval")[0];
    let span = (number(interval, "end_ns") - number(interval, "start_ns")) as f64;
    let got = tasks[0]["pct"].as_f64().unwrap();
    // Other work of the load, and time that the hypervisor took, are in one and not in the other.
    let (more, stolen) = (got - 100.0 * used / span, 100.0 * stolen / span);
    assert!(more > -10.0 && more < 10.0 + stolen, "{got} of {used} in {span}, {stolen} stolen");
    assert_eq!(number(&end, "samples"), number(interval, "samples"));
}

#[test]
fn functions_of_a_process_that_lives_and_of_one_that_ends() {
    need_events!(alone);
    usual_limits();
    let cpu = first_cpu();
    for options in [&["--for", "2.5"][..], &[]] {
        let mut load = parts_on(cpu, if options.is_empty() { "2500" } else { "4000" });
        let pid = load.pid().to_string();
        let done = run(&[&["profile", "--json", "-F", HZ, "-p", &pid], options].concat()).code(0);
        check_parts(&functions(&done), &load.says());
    }
}

/// Samples of a task's busy time every ms of it: as many as the ms that the load says it has used.
#[test]
fn a_sample_each_millisecond_of_busy_time() {
    need_events!(alone);
    common::stay_visible();
    usual_limits();
    common::attempts(try_a_sample_each_millisecond_of_busy_time);
}

fn try_a_sample_each_millisecond_of_busy_time() -> Attempted {
    let watch = CpuWatch::by_clock();
    let done = run_over(&["profile", "--json", "-c", "1000000"], &[&example("parts"), "2000"]);
    if !done.err().contains("-c is in ns") {
        skip_part!("cycles are sampled here, and nobody knows how many there are in a ms");
        return Ok(());
    }
    check_parts(&functions(&done), &done.load);
    let used_ms = (load_number(&done.load, "three_ns") + load_number(&done.load, "one_ns")) / 1_000_000;
    let tasks = done.of_type("row").into_iter().filter(|row| row["comm"] == "parts");
    let samples: u64 = tasks.map(|row| number(&row, "samples")).sum();
    // The load does a little more than it measures. A machine that stands still takes one sample for all of that time,
    // and time that the host takes counts for the timer and not for the task.
    let is_right = |samples: u64, used_ms: u64| samples * 10 >= used_ms * 7 && samples * 10 <= used_ms * 13;
    let check = |samples: u64, used_ms: u64| {
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(samples.abs_diff(used_ms) / 2))];
        or_again(is_right(samples, used_ms), &reasons, || format!("{samples} samples of {used_ms} ms"))
    };
    check(samples, used_ms)?;
    for row in done.of_type("row").into_iter().filter(|row| row["cpu"].is_u64()) {
        assert!(row["wanted_hz"].is_null() && number(&row, "period") == 1_000_000, "{row}");
    }
    assert!(!done.err().contains("instead of"), "{done:?}");
    // Half as often.
    let done = run_over(&["profile", "--json", "-c", "2000000"], &[&example("parts"), "1000"]);
    let used_ms = (load_number(&done.load, "three_ns") + load_number(&done.load, "one_ns")) / 1_000_000;
    check(2 * number(&done.end(), "samples"), used_ms)
}

#[test]
fn whole_cpus_with_shares_that_sum_up() {
    need_events!(alone);
    usual_limits();
    common::attempts(try_whole_cpus_with_shares_that_sum_up);
}

fn try_whole_cpus_with_shares_that_sum_up() -> Attempted {
    let watch = CpuWatch::by_clock();
    let cpu = first_cpu();
    let load = parts_on(cpu, "60000");
    hurry(load.pid());
    let list = cpu.to_string();
    let done = run(&["profile", "--json", "-F", HZ, "-C", &list, "--for", "2.5", "-i", "1000"]).code(0);
    let cpus: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["cpu"].is_u64()).collect();
    assert!(cpus.len() >= 2, "intervals: {cpus:?}");
    for row in &cpus {
        let part = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        let sum = part("user_pct") + part("kernel_pct") + part("guest_pct") + part("idle_pct");
        assert!((sum - 100.0).abs() < 0.02, "{row}");
        assert_eq!(row["cpu"], cpu);
        assert_eq!(number(row, "wanted_hz"), 997);
        // A spinning load. Time in which the host does not run the machine has no samples, and counts as idle.
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(100))];
        or_again(part("user_pct") > 50.0 && part("idle_pct") < 20.0, &reasons, || row.to_string())?;
    }
    // Others may have run there too.
    let functions = functions(&done);
    let (three, one) = (pct(&functions, "three_parts"), pct(&functions, "one_part"));
    let share = 100.0 * three / (three + one);
    assert!((share - 75.0).abs() < 4.0, "{share}: {functions:?}");
    Ok(())
}

#[test]
fn an_idle_cpu_is_idle() {
    need_events!();
    usual_limits();
    // A shared machine is never quite idle: the expected value is that of /proc/stat.
    let done = run(&["profile", "--json", "--for", "2"]).code(0);
    let cpus: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["cpu"].is_u64()).collect();
    assert_eq!(cpus.len(), common::online_cpus().len());
    let busy: f64 = cpus.iter().map(|row| 100.0 - row["idle_pct"].as_f64().unwrap()).sum();
    let tasks: f64 = done
        .of_type("row")
        .iter()
        .filter(|row| row["comm"].is_string() && row["user_pct"].is_number())
        .map(|row| row["pct"].as_f64().unwrap())
        .sum();
    assert!(tasks <= busy + 1.0, "tasks use {tasks}, CPUs are busy {busy}");
}

#[test]
fn kinds_that_are_left_out() {
    need_events!();
    usual_limits();
    let flood = example("flood");
    let count = "3000000";
    let done = run_over(&["profile", "--json", "-g", "-F", HZ, "--exclude-kernel"], &[&flood, count]);
    let addresses = |done: &Done| -> Vec<String> {
        let stacks = done.rows_and_lists().into_iter().filter_map(|row| row["stack"].as_array().cloned());
        stacks.flatten().filter_map(|frame| frame["addr"].as_str().map(str::to_owned)).collect()
    };
    let is_kernel = |addr: &String| addr.len() == 18 && addr.starts_with("0xffff");
    let seen = addresses(&done);
    assert!(!seen.is_empty() && !seen.iter().any(is_kernel), "{seen:?}");
    assert!(
        done.rows_and_lists().iter().all(|row| row["kernel_pct"].is_null() && row["module"] != "[kernel]"),
        "{done:?}"
    );
    let done = run_over(&["profile", "--json", "-F", HZ, "--exclude-user"], &[&flood, count]);
    let modules: Vec<Value> = done.rows_and_lists().into_iter().filter(|row| row["symbol"].is_string()).collect();
    assert!(
        !modules.is_empty() && modules.iter().all(|row| row["module"].as_str().unwrap().starts_with('[')),
        "{done:?}"
    );
}

#[test]
fn a_busy_cpu_is_named_while_it_is_busy() {
    need_events!(alone);
    usual_limits();
    let cpu = first_cpu();
    let list = cpu.to_string();
    let load = parts_on(cpu, "20000");
    let mut prog = start(&["profile", "--json", "-g", "--than", "50", "-C", &list]);
    let line = prog.line(|line| line.contains(r#""type":"event""#));
    let event: Value = serde_json::from_str(&line).unwrap();
    let part = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} in {event}"));
    assert!(part("user_pct") + part("kernel_pct") > 50.0 && event["cpu"] == cpu, "{event}");
    let sum = part("user_pct") + part("kernel_pct") + part("guest_pct") + part("idle_pct");
    assert!((sum - 100.0).abs() < 0.02, "{event}");
    let text = event["stacks"].to_string();
    assert!(text.contains("three_parts"), "{event}");
    prog.interrupt().code(0);
    drop(load);
    // The same for a thread.
    let done = run_over(&["profile", "--json", "--than", "30"], &[&example("parts"), "2300"]);
    let pid = load_number(&done.load, "pid");
    let events = done.of_type("event");
    assert!(!events.is_empty() && events.iter().all(|event| number(event, "tid") == pid), "{events:?}");
}

// The limits of sampling

/// Sets a sysctl, and back again.
struct Sysctl(&'static str, String);

impl Sysctl {
    fn set(name: &'static str, value: &str) -> Option<Sysctl> {
        let old = fs::read_to_string(name).ok()?;
        fs::write(name, value).ok()?;
        Some(Sysctl(name, old))
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = fs::write(self.0, self.1.trim());
    }
}

#[test]
fn more_than_the_kernel_allows() {
    need_events!(alone);
    let limit: u64 = fs::read_to_string(SAMPLE_RATE).unwrap().trim().parse().unwrap();
    let over = (limit + 1).to_string();
    let done = run(&["profile", "-F", &over, "--for", "1ms"]).code(1);
    done.says(&["kernel.perf_event_max_sample_rate", &limit.to_string(), "sysctl -w"]);

    // When the limit is lowered during the run, the kernel throttles: a line says so, and the shares stay right.
    let cpu = first_cpu();
    let list = cpu.to_string();
    let mut load = parts_on(cpu, "4000");
    let Some(raised) = Sysctl::set(SAMPLE_RATE, "100000") else { skip!("{SAMPLE_RATE} cannot be written") };
    let mut prog = start(&["profile", "--json", "-F", "4000", "-C", &list, "-i", "500"]);
    prog.line(|line| line.contains(r#""type":"interval""#));
    let lowered = Sysctl::set(SAMPLE_RATE, "300").unwrap();
    let throttled = prog.line(|line| line.contains(r#""throttled":"#) && !line.contains(r#""throttled":0"#));
    prog.err_line(|line| line.contains("held back samples") && line.contains("instead of 4000"));
    let row = prog.line(|line| line.contains(r#""throttled":"#) && line.contains("achieved_hz"));
    drop((lowered, raised));
    let done = prog.interrupt().code(0);
    let row: Value = serde_json::from_str(&row).unwrap();
    assert!(number(&row, "achieved_hz") < 2000, "{throttled} {row}");
    assert!(row["idle_pct"].as_f64().unwrap() < 30.0, "{row}");
    let functions = functions(&done);
    let (three, one) = (pct(&functions, "three_parts"), pct(&functions, "one_part"));
    let share = 100.0 * three / (three + one);
    assert!((share - 75.0).abs() < 4.0, "{share}: {}", load.says());
}

#[test]
fn options_that_make_no_sense() {
    let _turn = Turn::beside_others();
    usual_limits();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["-F", "0"], 2, "at least 1"),
        (&["-F", "abc"], 2, "not a number"),
        (&["--than", "100"], 2, "write less"),
        (&["--than", "x"], 2, "not a percentage"),
        (&["--exclude-user", "--exclude-kernel"], 2, "leave nothing to sample"),
        (&["--exclude-host", "--exclude-guest"], 2, "leave nothing to sample"),
        (&["--flame-graph", "x.png"], 2, ".svg or .folded"),
        (&["--flame-graph", "-", "--json"], 2, "-o"),
        (&["--flame-graph", "/nonexistent/x.svg"], 1, "/nonexistent/x.svg"),
    ];
    for (options, code, word) in cases {
        run(&[&["profile"], options, &["--", "true"]].concat()).code(code).says(&[word]);
    }
}

#[test]
fn a_frequency_can_be_low() {
    need_events!();
    usual_limits();
    let done = run(&["profile", "--json", "-F", "1", "--for", "1.5"]).code(0);
    assert!(number(&done.end(), "samples") <= 2 * common::online_cpus().len() as u64, "{done:?}");
}

// Flame graphs

/// Weight by stack.
fn folded(text: &str) -> Vec<(Vec<&str>, u64)> {
    text.lines()
        .map(|line| {
            let (stack, weight) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            (stack.split(';').collect(), weight.parse().unwrap_or_else(|_| panic!("{line:?}")))
        })
        .collect()
}

#[test]
fn folded_lines_hold_every_sample_once() {
    need_events!(alone);
    usual_limits();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.folded");
    let name = path.to_str().unwrap();
    let done = run_over(&["profile", "--json", "-F", HZ, "--flame-graph", name], &[&example("parts"), "1500"]);
    let text = fs::read_to_string(&path).unwrap();
    let lines = folded(&text);
    assert_eq!(lines.iter().map(|(_, weight)| weight).sum::<u64>(), number(&done.end(), "samples"));
    let mut stacks: Vec<&Vec<&str>> = lines.iter().map(|(stack, _)| stack).collect();
    stacks.dedup();
    assert_eq!(stacks.len(), lines.len(), "each stack once");
    let all = lines.iter().filter(|(stack, _)| stack.len() > 1 && stack[0] == "parts").count();
    assert!(all > 0 && all * 2 > lines.len(), "{text}");
    let of = |function: &str| -> u64 {
        let ends = lines.iter().filter(|(stack, _)| stack.last().is_some_and(|frame| frame.ends_with(function)));
        ends.map(|(_, weight)| weight).sum()
    };
    let (three, one) = (of("::three_parts") as f64, of("::one_part") as f64);
    assert!((100.0 * three / (three + one) - 75.0).abs() < 4.0, "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_picture_and_lines_on_stdout() {
    need_events!();
    usual_limits();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.svg");
    run_over(&["profile", "-F", HZ, "--flame-graph", path.to_str().unwrap()], &[&example("parts"), "500"]);
    let svg = fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("three_parts (") && svg.contains("samples"), "{svg}");
    let done = run(&["profile", "-F", HZ, "--flame-graph", "-", "-i", "100", "-C", "0", "--for", "500ms"]).code(0);
    folded(&done.out.join("\n"));
    assert!(done.err().contains("profile: "), "{done:?}");
}

#[test]
fn a_signal_brings_the_picture_up_to_date() {
    need_events!();
    usual_limits();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.folded");
    let _load = parts_on(first_cpu(), "20000");
    let mut prog = start(&["profile", "-F", HZ, "--than", "10", "--flame-graph", path.to_str().unwrap()]);
    prog.line(|line| line.contains("% idle")); // a second of the load was seen
    assert!(!path.exists());
    prog.signal(nix::sys::signal::Signal::SIGUSR1);
    prog.line(|line| line.contains("functions, %"));
    prog.line(|line| line.contains("three_parts"));
    prog.signal(nix::sys::signal::Signal::SIGUSR1);
    prog.line(|line| line.contains("functions, %")); // the graph of the first was written before
    assert!(fs::read_to_string(&path).is_ok_and(|text| !folded(&text).is_empty()));
    prog.interrupt().code(0);
}

#[test]
fn events_and_waits_are_drawn_too() {
    need_events!(alone);
    usual_limits();
    let event = format!("raw_syscalls:sys_enter/id=={}/", libc::SYS_getppid);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.folded");
    let name = path.to_str().unwrap();
    let done = run_over(&["trace", "--json", "-e", &event, "--flame-graph", name], &[&example("flood"), "5000"]);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(folded(&text).iter().map(|(_, weight)| weight).sum::<u64>(), 5000, "{text}");
    assert!(done.of_type("event").iter().all(|event| event["stack"].is_null()), "drawn, not printed");

    common::attempts(|| try_a_wait_is_drawn(&path));
}

/// Of a known length: the parent of a vfork waits for its child.
fn try_a_wait_is_drawn(path: &std::path::Path) -> Attempted {
    let name = path.to_str().unwrap();
    let done = run_over(&["task-state", "-D", "--json", "--flame-graph", name], &[&example("dstate"), "1", "400"]);
    let text = fs::read_to_string(path).unwrap();
    let vfork: u64 = folded(&text)
        .iter()
        .filter(|(stack, _)| stack[0] == "dstate" && stack.iter().any(|frame| frame.contains("kernel_clone")))
        .map(|(_, us)| us)
        .sum();
    let rows = done.rows_and_lists();
    let longest = rows.iter().filter(|row| row["state"] == "D").map(|row| number(row, "total_ns")).sum::<u64>() / 1000;
    let is_hidden = [Again::Discarded(&done), Again::IdleHidden(&done)];
    or_again(vfork > 0, &is_hidden, || format!("the end of the wait: {text}"))?;
    // The child may have slept for a moment already when the parent began to wait.
    assert!((375_000..=longest).contains(&vfork), "{vfork} of {longest}: {text}");
    Ok(())
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    need_events!();
    usual_limits();
    let script =
        format!("{} profile --flame-graph - --for 200ms 2>/dev/null | true; echo $?", env!("CARGO_BIN_EXE_perf-prof"));
    let output = Command::new("bash").args(["-c", &format!("set -o pipefail; {script}")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
}

/// Each process lives for less than a third of the period. An event on the tasks would start a new period with each.
#[test]
fn processes_that_live_for_less_than_a_sample_have_their_share() {
    need_events!(alone);
    usual_limits();
    let done = run_over(&["profile", "--json", "-F", "99"], &[&example("churn"), "200", "4"]);
    let rows = done.rows_and_lists();
    let burnt = rows.iter().find(|row| row["symbol"] == "churn_burn").map_or(0, |row| number(row, "samples")) as f64;
    // 800 times 3 ms, within chance. The timer of the CPU clock may be delayed while tasks start and end.
    let truth = 800.0 * 0.003 * 99.0;
    let by_clock = done.err().contains("no hardware counter") && burnt > truth / 2.0;
    assert!(
        by_clock || (burnt - truth).abs() < 5.0 * f64::sqrt(truth),
        "{burnt} samples, {truth} are expected: {done:?}"
    );
}

/// Two threads on two CPUs, with -C for one of them.
#[test]
fn one_cpu_of_a_process() {
    need_events!();
    usual_limits();
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let loads = [parts_on(one, "20000"), parts_on(other, "20000")];
    let [here, there] = [0, 1].map(|index| loads[index].pid().to_string());
    let pids = format!("{here},{there}");
    let done = run(&["profile", "--json", "-F", HZ, "-C", &one.to_string(), "-p", &pids, "--for", "1"]).code(0);
    let rows = done.rows_and_lists();
    let cpus: Vec<&Value> = rows.iter().filter(|row| row["cpu"].is_u64()).map(|row| &row["cpu"]).collect();
    assert_eq!(cpus, [one], "{done:?}");
    let tasks: Vec<String> = rows.iter().filter(|row| row["pid"].is_u64()).map(|row| row["pid"].to_string()).collect();
    assert_eq!(tasks, [here], "{done:?}");
}
