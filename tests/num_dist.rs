//! `num-dist`: distributions of numbers that are known.

#[macro_use]
mod common;

use std::ops::Range;

use common::{Done, own_tid, run, run_over, start_watching};
use serde_json::Value;

const CLOSE: &str = "syscalls:sys_enter_close";
/// Numbers that no descriptor has.
const NO_FDS: i64 = 100_000;

/// Closes descriptors that are none, so that each number is the argument of a call that does nothing.
fn close_all(fds: Range<i64>) {
    for fd in fds {
        // SAFETY: no descriptor has such a number, so nothing is closed.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

/// A run over calls of this thread that close none of its descriptors.
fn over_own_calls(options: &[&str], load: impl FnOnce()) -> Done {
    let tid = own_tid().to_string();
    let run = start_watching(&[&["num-dist", "-m", "4M", "-t", &tid], options].concat());
    load();
    run.interrupt().code(0)
}

fn only_row(done: &Done) -> Value {
    let rows = done.of_type("row");
    let [row] = &rows[..] else { panic!("one row: {done:?}") };
    row.clone()
}

fn numbers(row: &Value, keys: &[&str]) -> Vec<i64> {
    keys.iter().map(|key| row[*key].as_i64().unwrap_or_else(|| panic!("{key} in {row}"))).collect()
}

#[test]
fn sizes_of_writes_are_those_of_dd() {
    need_events!();
    let load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4096", "count=1000", "status=none"];
    let done = run_over(&["num-dist", "--json", "-e", "syscalls:sys_enter_write//num=count/alias=bytes/"], &load);
    let row = only_row(&done);
    let got = numbers(&row, &["count", "total", "min", "mean", "p50", "p95", "p99", "max", "stddev"]);
    assert_eq!(got, [1000, 4_096_000, 4096, 4096, 4096, 4096, 4096, 4096, 0], "{row}");
    assert_eq!(
        (&row["event"], &row["max_comm"], &row["verdict"]),
        (&"bytes".into(), &"dd".into(), &"exact".into()),
        "{row}"
    );
}

#[test]
fn different_numbers_have_their_distribution() {
    need_events!();
    let event = format!("{CLOSE}/fd >= {NO_FDS}/num=((int)fd-100000)/");
    let done = over_own_calls(&["-e", &event], || close_all(NO_FDS..NO_FDS + 1001));
    let row = only_row(&done);
    let got = numbers(&row, &["count", "total", "min", "mean", "max", "stddev"]);
    assert_eq!(got, [1001, 500_500, 0, 500, 1000, 289], "{row}");
    for (key, want) in [("p50", 500_f64), ("p95", 950.0), ("p99", 990.0)] {
        let got = row[key].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert!((got - want).abs() <= want * 0.0222 + 1.0, "{key} {got}: {row}");
    }
    assert_eq!(row["max_tid"], own_tid(), "{row}");
}

#[test]
fn numbers_below_zero_are_counted() {
    need_events!();
    let event = format!("{CLOSE}/fd >= {NO_FDS}/num=(100003-(int)fd)/");
    let done = over_own_calls(&["-e", &event], || close_all(NO_FDS..NO_FDS + 10));
    let row = only_row(&done);
    assert_eq!(numbers(&row, &["count", "total", "min", "p50", "mean", "max"]), [10, -15, -6, -2, -1, 3], "{row}");
    let event = "syscalls:sys_exit_close/ret < 0/num=ret/";
    let done = over_own_calls(&["-e", event], || close_all(NO_FDS..NO_FDS + 10));
    let error = i64::from(-libc::EBADF);
    let row = only_row(&done);
    assert_eq!(numbers(&row, &["count", "min", "p50", "max", "stddev"]), [10, error, error, error, 0], "{row}");
}

#[test]
fn rows_are_by_key_and_by_thread() {
    need_events!();
    let event = format!("{CLOSE}/fd >= {NO_FDS}/num=fd/");
    let by = "fd % 2 ? \"odd\" : \"even\"";
    let done = over_own_calls(&["-e", &event, "--by", by], || close_all(NO_FDS..NO_FDS + 5));
    let rows = done.of_type("row");
    let got: Vec<(&str, i64, i64)> = rows
        .iter()
        .map(|row| (row["key"].as_str().expect("text"), numbers(row, &["count"])[0], numbers(row, &["max"])[0]))
        .collect();
    assert_eq!(got, [("even", 3, NO_FDS + 4), ("odd", 2, NO_FDS + 3)], "{done:?}");
    let done = over_own_calls(&["-e", &event, "--perins"], || close_all(NO_FDS..NO_FDS + 5));
    assert_eq!(only_row(&done)["tid"], own_tid(), "{done:?}");
    let cpu = common::online_cpus()[0].to_string();
    let load = ["taskset", "-c", &cpu, "true"];
    let done = run(&[
        &["num-dist", "--json", "--perins", "-e", "sched:sched_process_exec//num=pid/key=_cpu/", "--"],
        &load[..],
    ]
    .concat());
    let rows = done.code(0).of_type("row");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["tid"].is_number() && row["key"].is_number()), "{rows:?}");
}

/// Each number that takes the limit has a line, with its value and the stack.
#[test]
fn great_numbers_are_shown() {
    need_events!();
    let event = format!("{CLOSE}/fd >= {NO_FDS}/num=((int)fd-100005)/");
    let done = over_own_calls(&["-e", &event, "--than", "3", "-g"], || close_all(NO_FDS..NO_FDS + 10));
    let shown: Vec<Value> = done.of_type("event").iter().map(|event| event["result"].clone()).collect();
    assert_eq!(shown, [3, 4], "{done:?}");
    assert!(done.of_type("event").iter().all(|event| event["stack"].is_array() && event["fields"]["fd"].is_number()));
    assert_eq!(numbers(&only_row(&done), &["count", "max"]), [10, 4], "all are in the table: {done:?}");
    let done = over_own_calls(&["-e", &event, "--than", "-1"], || close_all(NO_FDS..NO_FDS + 10));
    assert_eq!(done.of_type("event").len(), 6, "{done:?}");
}

#[test]
fn intervals_add_up() {
    need_events!();
    let event = format!("{CLOSE}/fd >= {NO_FDS}/num=((int)fd-100000)/");
    let tid = own_tid().to_string();
    let mut run = start_watching(&["num-dist", "-i", "100", "-t", &tid, "-e", &event]);
    for (from, to) in [(0, 10), (10, 20)] {
        close_all(NO_FDS + from..NO_FDS + to);
        run.object(|object| object["type"] == "row" && object["max"] == to - 1);
    }
    let done = run.interrupt().code(0);
    let total = &done.of_type("total")[0];
    assert_eq!(numbers(total, &["count", "total", "min", "max"]), [20, 190, 0, 19], "{total}");
}

#[test]
fn numbers_are_drawn_over_time() {
    need_events!();
    let load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4096", "count=100", "status=none"];
    let options = ["num-dist", "-e", "syscalls:sys_enter_write//num=count/alias=bytes/", "--heatmap", "-", "--"];
    let done = run(&[&options[..], &load].concat()).code(0);
    let says = |words: &str| done.out.iter().any(|line| line.contains(words));
    assert!(says("numbers, number: 100 values") && says("event bytes"), "{done:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    need_events!();
    let exec = "sched:sched_process_exec";
    let of_exec = |attrs: &str| format!("{exec}//{attrs}/");
    let cases: [(&[&str], i32, &[&str]); 6] = [
        (&["-e", exec], 2, &["sched:sched_process_exec: which number?", "//num=FIELD/"]),
        (&["-e", &of_exec("num=filename")], 2, &["num of sched:sched_process_exec is text", "a number is needed"]),
        (&["-e", &of_exec("num=pidd")], 1, &["pidd", "pid"]),
        (&["-e", &of_exec("num=pid/top-by=pid")], 2, &["attribute top-by is for top", "num=EXPR", "^"]),
        (&["-e", &of_exec("num=pid"), "--by", "pid+"], 2, &["--by: ", "^"]),
        (&["-e", &of_exec("num=pid"), "--than", "1ms"], 2, &["--than", "1ms"]),
    ];
    for (options, code, words) in cases {
        run(&[&["num-dist", "--for", "1ms"], options].concat()).code(code).says(words);
    }
}
