//! `--dry-run`: its forecast equals what a run then sees, for loads with a known number of calls per second; and it
//! leaves nothing behind.

#[macro_use]
mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::user::{Copy, PERFMON, turn};
use common::{Again, CpuWatch, Done, Load, Prog, example, hurry, number, or_again, run};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;

/// Calls per second of [`paced`], by the clock and not by how fast they are made.
const RATE: f64 = 20_000.0;

/// `flood` at [`RATE`] on CPU 0.
fn paced() -> Load {
    paced_on(0)
}

fn paced_on(cpu: usize) -> Load {
    let load = Load::of(&example("flood"), &["1000000000", &RATE.to_string()]);
    let mut cpus = CpuSet::new();
    cpus.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(load.pid()), &cpus)).expect("the CPU");
    hurry(load.pid());
    load
}

/// The only line of stdout, of a run with `--dry-run --json`.
#[track_caller]
fn forecast(args: &[&str], workload: &[&str]) -> Value {
    let options = [args, &["--dry-run", "--json"]].concat();
    let dashes: &[&str] = if workload.is_empty() { &[] } else { &["--"] };
    let done = run(&[&options, dashes, workload].concat()).code(0);
    let [forecast] = &done.of_type("forecast")[..] else { panic!("one forecast: {done:?}") };
    let of_load = |line: &&String| !line.starts_with("calls=");
    assert_eq!(done.out.iter().filter(of_load).count(), 1, "{done:?}");
    assert_eq!(forecast["profiler"], args[0]);
    assert!(number(forecast, "ring_pages").is_power_of_two(), "{forecast}");
    forecast.clone()
}

fn decimal(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {object}"))
}

fn is_about(got: f64, want: f64) -> bool {
    (got - want).abs() <= want * 0.1
}

#[track_caller]
fn within_a_tenth(what: &str, got: f64, want: f64) {
    assert!(is_about(got, want), "{what}: {got} is not about {want}");
}

/// A load that stands still catches up: in a second that begins or ends with as much its rate is not [`RATE`].
fn is_delayed(watch: &CpuWatch) -> Again<'_> {
    Again::CpuStolen(watch, Duration::from_millis(40))
}

/// The forecast of a load of [`RATE`], on one CPU.
#[track_caller]
fn forecast_of_rate(args: &[&str], workload: &[&str]) -> Value {
    let mut told = Value::Null;
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        told = forecast(args, workload);
        let mut rates = [&told["events_per_s"], &told["events"][0]["busiest_cpu_per_s"]].into_iter();
        let is_so = rates.all(|rate| rate.as_f64().is_some_and(|rate| is_about(rate, RATE)));
        or_again(is_so, &[is_delayed(&watch)], || format!("{args:?}: {told}"))
    });
    told
}

fn getppid() -> String {
    common::syscall(libc::SYS_getppid)
}

#[test]
fn the_forecast_of_a_paced_load_is_right_for_every_target() {
    need_events!(alone);
    let load = paced();
    let (event, pid) = (getppid(), load.pid().to_string());
    for target in [&["-p", &pid][..], &["-t", &pid], &["-C", "0"], &[]] {
        let told = forecast_of_rate(&[&["trace", "-e", &event], target].concat(), &[]);
        let what = format!("{target:?}: {told}");
        let [event] = &told["events"].as_array().expect("a list")[..] else { panic!("one event: {told}") };
        assert_eq!(event["event"], "raw_syscalls:sys_enter");
        within_a_tenth(&what, decimal(event, "events_per_s"), RATE);
        assert!(number(&told, "counted_ns") >= 1_000_000_000 && told["ended_early"] == false, "{what}");
    }
    // Counts are kept by CPU.
    if let &[_, other, ..] = &common::online_cpus()[..] {
        let _other = paced_on(other as usize);
        common::attempts(|| {
            let watch = CpuWatch::by_clock();
            let told = forecast(&["trace", "-e", &event], &[]);
            let (sum, busiest) = (decimal(&told, "events_per_s"), decimal(&told["events"][0], "busiest_cpu_per_s"));
            let is_so = is_about(sum, 2.0 * RATE) && is_about(busiest, RATE);
            or_again(is_so, &[is_delayed(&watch)], || told.to_string())
        });
    }
    // Filters and CPUs hold for the counters too.
    for narrow in [&["-e", "raw_syscalls:sys_enter/id==-2/"][..], &["-e", &event, "-t", &common::own_tid().to_string()]]
    {
        let told = forecast(&[&["trace"], narrow].concat(), &[]);
        assert_eq!(decimal(&told, "events_per_s"), 0.0, "{told}");
        assert!(decimal(&told["events"][0], "record_bytes") > 50.0, "what none was seen of is estimated: {told}");
        assert_eq!(told["events"][0]["estimated"], true, "{told}");
    }
}

/// 8 KiB each time would be more than a run with copies of its own accord goes on with.
#[test]
fn copies_of_stacks_are_counted() {
    need_events!(alone);
    let load = paced();
    let (event, pid) = (getppid(), load.pid().to_string());
    let args = |how| ["trace", "-e", &event, "-p", &pid, how];
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let told = forecast(&args("--call-graph=dwarf,1K"), &[]);
        let [event, copies] = &told["events"].as_array().expect("a list")[..] else { panic!("two: {told}") };
        assert_eq!((&event["copies_of_stacks"], &copies["copies_of_stacks"]), (&Value::Null, &true.into()), "{told}");
        assert_eq!((&copies["event"], &copies["estimated"]), (&event["event"], &false.into()), "{told}");
        let bytes = decimal(copies, "record_bytes");
        assert!((1024.0..1400.0).contains(&bytes), "{told}");
        let of_copies = decimal(copies, "events_per_s") * bytes;
        assert!(decimal(&told, "bytes_per_s") > of_copies, "{told}");
        let is_so = [decimal(event, "events_per_s"), decimal(copies, "events_per_s"), decimal(&told, "events_per_s")];
        or_again(is_so.iter().all(|per_s| is_about(*per_s, RATE)), &[is_delayed(&watch)], || told.to_string())
    });
    let told = forecast(&args("-g"), &[]);
    assert_eq!(told["events"].as_array().map(Vec::len), Some(1), "ended: {told}");
    assert!(decimal(&told, "bytes_per_s") < RATE * 1000.0, "{told}");
}

#[test]
fn the_bytes_are_those_of_a_run_and_the_advised_ring_loses_nothing() {
    need_events!(alone);
    let load = paced();
    let (event, pid) = (getppid(), load.pid().to_string());
    for stacks in [&[][..], &["--call-graph=fp"], &["--call-graph=dwarf,1K"]] {
        let args = [&["trace", "-e", &event, "-p", &pid], stacks].concat();
        let told = forecast_of_rate(&args, &[]);
        let pages = number(&told, "ring_pages").to_string();
        common::attempts(|| {
            let watch = CpuWatch::by_clock();
            let end = run(&[&args[..], &["--json", "--for", "1", "-m", &pages]].concat()).code(0).end();
            let about = |key| is_about(decimal(&told, key), decimal(&end["self"], key));
            let is_so = number(&end, "lost") == 0 && about("events_per_s") && about("bytes_per_s");
            or_again(is_so, &[is_delayed(&watch)], || format!("{told}: {end}"))
        });
        let has_frames = decimal(&told["events"][0], "frames") > 0.0;
        assert_eq!(has_frames, !stacks.is_empty(), "{told}");
    }
}

#[test]
fn a_command_is_run_for_a_moment_and_ended() {
    need_events!(alone);
    let flood = example("flood");
    let event = getppid();
    // The load may move between CPUs: the share of the busiest is not known.
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let told = forecast(&["trace", "-e", &event], &[&flood, "1000000000", &RATE.to_string()]);
        or_again(is_about(decimal(&told, "events_per_s"), RATE), &[is_delayed(&watch)], || told.to_string())
    });
    let done = run(&["trace", "-e", &event, "--dry-run", "--", &flood, "1000000000", "20000"]).code(0);
    assert!(!done.out.iter().any(|line| line.starts_with("calls=")), "it was ended: {done:?}");
    done.says(&[&format!("--dry-run runs {flood:?} for 1.6 s at most, then ends it")]);
    // The forecast of a command that ends by itself covers the time that it ran.
    let told = forecast(&["trace", "-e", &event], &[&flood, "100000", "0"]);
    assert_eq!(told["ended_early"], true, "{told}");
    assert!(decimal(&told, "events_per_s") > RATE, "{told}");
    run(&["trace", "-e", &event, "--dry-run", "--", "/nosuch"]).code(1).says(&["cannot execute"]);
}

#[test]
fn nothing_is_written_but_the_forecast() {
    need_events!(alone);
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (output, graph) = (path("out"), path("graph.svg"));
    let event = getppid();
    let load = paced();
    let pid = load.pid().to_string();
    let base = ["trace", "-e", &event, "-p", &pid, "-i", "50", "--strict-loss", "-N", "1", "-v"];
    forecast_of_rate(&[&base[..], &["-o", &output, "--flame-graph", &graph]].concat(), &[]);
    assert!(!Path::new(&output).exists() && !Path::new(&graph).exists());
    // stdout has the forecast, whatever the run would print there.
    let told = forecast_of_rate(&[&base[..], &["--flame-graph", "-"]].concat(), &[]);
    assert!(decimal(&told["events"][0], "frames") > 0.0, "{told}");
    let done = run(&["trace", "-e", &event, "-p", &pid, "--dry-run"]).code(0);
    assert!(done.err.is_empty(), "{done:?}");
}

/// perf-prof in a shell that has set a limit first.
fn limited(limit: &str, args: &[&str]) -> Done {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"ulimit {limit} && exec "$0" "$@""#), env!("CARGO_BIN_EXE_perf-prof")]);
    shell.args(args);
    Prog::spawn(shell).finish()
}

#[test]
fn missing_descriptors_for_counters_are_an_error_with_the_cure() {
    need_events!(alone);
    let args = ["trace", "-e", "sched:*", "--for", "100ms"];
    let needed = |done: &Done| {
        let words: Vec<&str> = done.err[0].split(' ').collect();
        let at = words.windows(2).position(|pair| pair == ["file", "descriptors"]).expect("how many");
        words[at - 1].parse::<u64>().expect("a number")
    };
    let few = limited("-n 64", &[&args[..], &["--dry-run"]].concat()).code(1);
    let few = few.says(&["file descriptors are needed, 64 are allowed: raise `ulimit -n`"]);
    // Descriptors that suffice for the run do not suffice for the counters as well.
    let enough = format!("-n {}", needed(&few));
    limited(&enough, &args).code(0);
    let done = limited(&enough, &[&args[..], &["--dry-run"]].concat()).code(1);
    let done =
        done.says(&["--dry-run opens each event twice: ", "are allowed: raise `ulimit -n`, select fewer events"]);
    assert_eq!((done.err.len(), done.out.len()), (1, 0), "{done:?}");
    limited(&format!("-n {}", needed(&done)), &[&args[..], &["--dry-run"]].concat()).code(0);
    // The soft limit is raised as far as the hard one allows.
    limited("-S -n 64", &[&args[..], &["--dry-run"]].concat()).code(0);
}

#[test]
fn rings_are_those_that_the_mlock_limit_allows() {
    need_events!(alone);
    const UID: u32 = 1000;
    let copy = Copy::of(UID);
    let locking = |args: &[&str]| {
        let limit = r#"ulimit -l 0 && exec "$0" "$@""#;
        copy.with_tracefs_behind(&turn(), &PERFMON, &["sh", "-c", limit], args).code(0)
    };
    let run = locking(&["task-state", "--for", "1ms"]);
    let told = run.err.iter().find(|line| line.contains("the mlock limit allows ")).expect("smaller rings");
    let pages = told.split("allows ").nth(1).and_then(|text| text.split(' ').next()).expect("a number");
    let load = paced();
    let text = locking(&["task-state", "--dry-run"]);
    assert!(text.err.is_empty(), "it is no fault of a run: {text:?}");
    let text = text.out.join("\n");
    for words in
        [&format!("cut to {pages} ("), &format!("the mlock limit allows -m {pages} at most; cure: CAP_IPC_LOCK")]
    {
        assert!(text.contains(words), "{words:?}: {text}");
    }
    let told = |args: &[&str]| {
        let done = locking(args);
        done.of_type("forecast").first().cloned().unwrap_or_else(|| panic!("{done:?}"))
    };
    let default = told(&["task-state", "--dry-run", "--json"]);
    assert_eq!(number(&default, "run_ring_pages").to_string(), pages, "{default}");
    assert_eq!(number(&default, "allowed_ring_pages").to_string(), pages, "{default}");
    let asked = told(&["task-state", "--dry-run", "--json", "-m", "8"]);
    assert_eq!(number(&asked, "run_ring_pages"), 8, "{asked}");
    // More pages are needed than the limit allows.
    drop(load);
    let flood = Load::of(&example("flood"), &["100000000000", "0"]);
    let event = getppid();
    let little = told(&["trace", "-e", &event, "-p", &flood.pid().to_string(), "--dry-run", "--json"]);
    let allowed = number(&little, "allowed_ring_pages");
    assert!(allowed < number(&little, "ring_pages") && little["ring_suffices"] == false, "{little}");
    assert_eq!(number(&little, "run_ring_pages"), allowed, "{little}");
}

#[test]
fn profilers_that_must_not_read_counters_are_forecast_from_samples() {
    need_events!(alone);
    let _load = paced();
    let cpus = common::online_cpus().len() as f64;
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let told = forecast(&["irq-off", "--period", "2ms"], &[]);
        assert_eq!(number(&told, "counters"), 0, "no counter is read: {told}");
        let sampled = number(&told, "sampled_ns");
        assert!(number(&told, "counted_ns") >= 1_000_000_000 && sampled >= 1_500_000_000, "{told}");
        let timer = &told["events"][0];
        assert!(timer["event"] == "cpu-clock" && timer["estimated"] == false, "{told}");
        let (each, busiest) = (decimal(timer, "events_per_s"), decimal(timer, "busiest_cpu_per_s"));
        // A CPU whose idle task is hidden has samples only while it is busy.
        let is_each = (0.9 * 500.0..1.1 * 500.0 * cpus).contains(&each);
        or_again(is_each && is_about(busiest, 500.0), &[is_delayed(&watch)], || told.to_string())
    });
    let told = forecast(&["watchdog"], &[]);
    assert_eq!(number(&told, "counters"), 0, "{told}");
}

/// The words of the line of text with this end.
#[track_caller]
fn row<'a>(done: &'a Done, end: &str) -> Vec<&'a str> {
    let line = done.out.iter().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("no {end:?} in {done:?}"));
    line.split_whitespace().collect()
}

#[test]
fn text_has_the_numbers_of_json() {
    need_events!(alone);
    let load = paced();
    let (event, pid) = (getppid(), load.pid().to_string());
    let silent = format!("{event},sched:sched_process_hang");
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let done = run(&["trace", "-e", &silent, "-p", &pid, "--dry-run", "-m", "16"]).code(0);
        assert!(done.out[0].contains(" trace, forecast: counted for "), "{done:?}");
        let row = row(&done, "  raw_syscalls:sys_enter");
        let number = |column: usize| row[column].parse::<f64>().expect("a number");
        within_a_tenth("MB/s", number(2), number(0) * number(3) / 1e6);
        check_words(&done);
        let is_so = is_about(number(0), RATE) && is_about(number(1), RATE) && done.out[0].contains(" for 1.0");
        or_again(is_so, &[is_delayed(&watch)], || format!("{done:?}"))
    });
}

fn check_words(done: &Done) {
    let text = done.out.join("\n");
    for words in ["did not happen: sched:sched_process_hang", "self: about ", "; -m 16 is too small"] {
        assert!(text.contains(words), "{words:?}: {text}");
    }
    assert!(done.out.iter().skip(1).all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn every_profiler_has_a_forecast() {
    need_events!(alone);
    let load = paced();
    let pid = load.pid().to_string();
    let cpus = common::online_cpus().len() as f64;
    let cases: [(&[&str], Option<f64>); 8] = [
        (&["profile", "-F", "199"], Some(199.0 * cpus)),
        (&["profile", "-F", "199", "--exclude-user"], None),
        (&["task-state"], None),
        (&["signal"], None),
        (&["irq-off"], None),
        (&["watchdog"], None),
        (&["kmemleak", "slab"], None),
        (&["split-lock", "--event", "context-switches", "-T", "10"], None),
    ];
    for (args, want) in cases {
        let told = forecast(&[args, &["--for", "300ms"]].concat(), &[]);
        let events = told["events"].as_array().expect("a list");
        assert!(!events.is_empty() && number(&told, "counters").is_multiple_of(events.len() as u64), "{told}");
        let sum: f64 = events.iter().map(|event| decimal(event, "events_per_s")).sum();
        assert!((sum - decimal(&told, "events_per_s")).abs() < 0.1, "{told}");
        match want {
            // An idle CPU has no cycles.
            Some(most) if events[0]["event"] == "cycles" => assert!(sum < most * 1.1, "{told}"),
            Some(want) => within_a_tenth(&told.to_string(), sum, want),
            None => {}
        }
    }
    // The load waits for ticks of the clock some thousand times a second, and other tasks raise events, too.
    let told = forecast(&["task-state", "-p", &pid], &[]);
    assert!(decimal(&told, "events_per_s") > 100.0, "{told}");
}
