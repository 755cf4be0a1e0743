//! `run`: several profilers over one set of events, each with the numbers that it would have alone.

#[macro_use]
mod common;

use common::{Done, Load, Prog, number, run, start, start_watching};
use serde_json::Value;

const EXECS: u64 = 20;
const EXEC: &str = "trace -e sched:sched_process_exec";

/// A run over a shell that starts so many programs, one after the other.
fn over_execs(options: &[&str]) -> Done {
    let load = format!("i=0; while [ $i -lt {EXECS} ]; do /bin/true; i=$((i+1)); done");
    run(&[&["run", "--json"], options, &["--", "sh", "-c", &load]].concat()).code(0)
}

fn of_view(done: &Done, kind: &str, view: &str) -> Vec<Value> {
    done.of_type(kind).into_iter().filter(|object| object["view"] == view).collect()
}

fn sum(rows: &[Value], key: &str) -> u64 {
    rows.iter().map(|row| number(row, key)).sum()
}

/// As alone, top reports every second.
#[test]
fn the_interval_of_a_view_is_that_of_the_run() {
    need_events!();
    let view = "top -e sched:sched_switch -k common_pid";
    let intervals = |options: &[&str]| {
        let done = run(&[&["run", "--json", "--for", "1200ms"], options, &[view]].concat()).code(0);
        done.of_type("interval").len()
    };
    assert_eq!((intervals(&[]), intervals(&["-i", "10s"])), (2, 1));
}

#[test]
fn each_view_has_its_own_numbers() {
    need_events!();
    let (a, b) = (format!("name=a {EXEC}"), format!("name=b {EXEC}"));
    let done = over_execs(&["-i", "50", &a, "signal", "task-state", &b]);
    let execs = |view| of_view(&done, "event", view).iter().map(|event| number(event, "time_ns")).collect::<Vec<u64>>();
    assert_eq!((execs("a").len() as u64, execs("a")), (EXECS + 1, execs("b")), "both have all: {done:#?}");
    assert!(of_view(&done, "event", "a").iter().all(|event| event["profiler"] == "trace"));
    let [intervals, total] = ["row", "total"].map(|kind| sum(&of_view(&done, kind, "signal"), "count"));
    let all = number(&done.end(), "intervals");
    assert_eq!((intervals, if all > 1 { total } else { intervals }), (EXECS, EXECS), "a SIGCHLD for each program");
    let ends = done.end()["views"].as_array().cloned().unwrap_or_default();
    let told = |key: &str| ends.iter().map(|end| end[key].clone()).collect::<Vec<Value>>();
    assert_eq!(told("view"), ["a", "signal", "task-state", "b"]);
    assert_eq!(told("profiler"), ["trace", "signal", "task-state", "trace"]);
    assert_eq!((&told("samples")[0], &told("samples")[3]), (&(EXECS + 1).into(), &(EXECS + 1).into()));
    assert_eq!(told("lost"), [0, 0, 0, 0]);
    for view in ["a", "signal", "task-state", "b"] {
        let of_intervals = of_view(&done, "interval", view);
        let at = ends.iter().find(|end| end["view"] == view).expect("the view");
        assert_eq!((of_intervals.len() as u64, sum(&of_intervals, "samples")), (all, number(at, "samples")), "{view}");
    }
    assert_eq!(number(&done.end(), "samples"), sum(&ends, "samples"));
}

/// What a view says is what its profiler says alone.
#[test]
fn a_view_waits_as_long_as_the_profiler_alone_says() {
    need_events!();
    let load = ["--", "sleep", "0.3"];
    let view = run(&[&["run", "--json", "task-state -S --than 250", "profile"][..], &load].concat()).code(0);
    let alone = run(&[&["task-state", "-S", "--than", "250", "--json"][..], &load].concat()).code(0);
    let waits = |done: &Done| -> Vec<Value> {
        let events = of_view(done, "event", "task-state").into_iter();
        events.filter(|event| event["still_waiting"] == false).collect()
    };
    let ([one], [other]) = (&waits(&view)[..], &waits(&alone)[..]) else {
        panic!("one wait each: {view:#?} {alone:#?}")
    };
    for event in [one, other] {
        assert_eq!((&event["comm"], &event["state"]), (&"sleep".into(), &"S".into()), "{event}");
        assert!((300_000_000..1_300_000_000).contains(&number(event, "duration_ns")), "{event}");
    }
}

/// Names of the events that a dry run would open.
fn opened(views: &[&str]) -> Vec<String> {
    let done = run(&[&["run", "--dry-run", "--for", "100ms", "--json"], views].concat()).code(0);
    let events = done.of_type("forecast")[0]["events"].as_array().cloned().unwrap_or_default();
    let is_event = |event: &&Value| event["copies_of_stacks"] != true;
    events.iter().filter(is_event).filter_map(|event| Some(event["event"].as_str()?.to_owned())).collect()
}

#[test]
fn equal_events_are_opened_once() {
    need_events!();
    let one = "sched:sched_process_exec";
    assert_eq!(opened(&[&format!("name=a {EXEC}"), &format!("name=b {EXEC}")]), [one]);
    assert_eq!(opened(&[EXEC, &format!("name=b {EXEC} --filter 'pid > 0'")]), [one, one]);
    assert_eq!(opened(&[EXEC, &format!("name=b {EXEC} -g")]), [one, one]);
}

#[test]
fn each_view_has_its_own_limit() {
    need_events!();
    let (few, all) = (format!("name=few {EXEC} -N 3"), format!("name=all {EXEC}"));
    let done = over_execs(&[&few, &all]);
    let count = |view| of_view(&done, "event", view).len() as u64;
    assert_eq!((count("few"), count("all")), (3, EXECS + 1), "{done:#?}");
}

/// The run ends when no view takes any more.
#[test]
fn limits_of_all_views_end_the_run() {
    need_events!();
    let mut load = Load::shell();
    let pid = load.pid().to_string();
    let (few, fewer) = (format!("name=few {EXEC} -N 3"), "name=fewer signal -N 1");
    let prog: Prog = start_watching(&["run", "-p", &pid, &few, fewer]);
    (0..4).for_each(|_| load.tell("/bin/true"));
    let done = prog.finish().code(0);
    let count = |view| of_view(&done, "event", view).len();
    assert_eq!((count("few"), count("fewer")), (3, 1), "{done:#?}");
}

/// A flood that one view is lost in costs the others nothing.
#[test]
fn a_loss_is_the_loss_of_its_view() {
    need_events!();
    let mut load = Load::shell();
    let pid = load.pid().to_string();
    let calm = "name=calm task-state -S --than 3600s";
    let prog =
        start_watching(&["run", "-m", "16", "-p", &pid, "name=loud trace -e raw_syscalls:sys_enter", calm, "signal"]);
    prog.stopped(|| {
        load.tell("i=0; while [ $i -lt 3000 ]; do umask; i=$((i+1)); done >/dev/null; kill -0 $$; echo done");
        assert_eq!(load.says(), "done");
    });
    load.tell("/bin/true; echo done");
    assert_eq!(load.says(), "done");
    let done = prog.interrupt().code(0);
    let ends = done.end()["views"].as_array().cloned().unwrap_or_default();
    let lost = |at: usize| number(&ends[at], "lost");
    assert!(lost(0) > 0 && number(&done.end(), "lost") >= lost(0), "{ends:?}");
    assert_eq!(lost(2), 0, "{ends:?}");
    assert!(
        of_view(&done, "interval", "loud").iter().any(|interval| interval["verdict"] == "lower_bound"),
        "{done:#?}"
    );
    // Losses of names and forks, which other programs may cause, are everybody's.
    let signal = of_view(&done, "interval", "signal");
    let is_whole = |interval: &Value| interval["verdict"] == "exact" || number(interval, "lost_side") > 0;
    assert!(signal.iter().all(is_whole), "{signal:?}");
}

#[test]
fn text_tells_the_views_apart() {
    need_events!();
    let execs = format!("name='my execs' {EXEC}");
    let done = run(&["run", "-i", "10s", &execs, "task-state", "--", "sh", "-c", "/bin/true; /bin/true"]).code(0);
    let traced = done.out.iter().filter(|line| line.contains(" my execs: ") && line.contains("sched_process_exec"));
    assert_eq!(traced.count(), 3, "{done:#?}");
    assert!(done.out.iter().any(|line| line.contains(" task-state, interval 1, ")), "{done:#?}");
    let summary = |name: &str| done.err.iter().any(|line| line.starts_with(name));
    assert!(summary("run: ") && summary("my execs: 3 events, 0 lost") && summary("task-state: "), "{done:#?}");
}

#[test]
fn an_error_names_its_view() {
    need_events!();
    let done = run(&["run", "task-state", "name=x trace -e no:event"]).code(1);
    assert!(done.err().contains("view 'x': there is no event no:event"), "{}", done.err());
}

#[test]
fn what_is_no_view_is_refused() {
    let cases: [(&[&str], &str); 6] = [
        (&["run"], "<VIEW>... is missing"),
        (&["run", "task-state -i 100"], "view 'task-state -i 100': -i belongs to the whole run"),
        (&["run", "tarce"], "view 'tarce': there is no subcommand 'tarce'; did you mean trace?"),
        (&["run", "profile", "watchdog"], "view 'watchdog': watchdog runs alone"),
        (&["run", "profile", "profile -F 10"], "two views are named profile"),
        (&["run", "profile --flame-graph x.svg", "name=b profile --flame-graph x.svg"], "in the same place"),
    ];
    for (args, want) in cases {
        let done = start(args).finish().code(2);
        assert!(done.err().contains(want), "{args:?}: {}", done.err());
    }
}
