//! reclaim: processes in a cgroup that is too small for them, against what the kernel says of their stalls.

#[macro_use]
mod common;

use common::{Again, Attempted, Done, Load, attempts, example, load_number, number, or_again, start_watching};
use serde_json::Value;

/// A load in a cgroup of its own, and what it said at its end.
struct HogRun {
    cgroup: String,
    said: String,
    done: Done,
}

/// Watches what the processes of `memory_hog` do in their cgroup.
fn watch(load: &[&str], options: &[&str]) -> HogRun {
    let mut load = Load::of(&example("memory_hog"), load);
    let cgroup = load.says().strip_prefix("cgroup=").expect("its cgroup").to_owned();
    let prog = start_watching(&[&["reclaim", "-m", "1024"], options].concat());
    load.tell("go");
    let said = load.says();
    HogRun { cgroup, said, done: prog.interrupt().code(0) }
}

fn rows<'a>(table: &'a str, cgroup: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |row| row["type"] == "row" && row["table"] == table && row["cgroup"] == cgroup
}

/// A folder of a disk: memory of a file system that has none cannot be written back.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn is_close(told_ns: u64, truth_ns: u64) -> bool {
    told_ns.abs_diff(truth_ns) * 20 <= truth_ns
}

/// Writers of more than their cgroup may have. The time in which at least one of them stalls is what the kernel calls
/// `some`: stalls at the same time count once there, and each in the table of stalls.
fn check_writers(processes: u64) -> Attempted {
    let dir = on_disk();
    let directory = dir.path().to_str().expect("a path in UTF-8");
    let hogs = watch(&["16", "dirty", directory, &processes.to_string(), "128"], &["-i", "100", "--than", "1ns"]);
    let HogRun { cgroup, said, done } = &hogs;
    or_again(done.total("lost") == 0, &[Again::RecordsLost(done)], || format!("{:#?}", done.err))?;
    if said.ends_with("psi_ns=none") {
        println!("skipped: this kernel measures no pressure");
        return Ok(());
    }
    let truth_ns = load_number(said, "psi_ns");
    let stalled_ns = done.sum("stalled_ns", rows("pressure", cgroup));
    let total_ns = done.sum("total_ns", rows("stalls", cgroup));
    println!("{processes} writers: {stalled_ns} ns of {truth_ns}, {total_ns} in all");
    or_again(is_close(stalled_ns, truth_ns), &[Again::Discarded(done), Again::IdleHidden(done)], || {
        format!("stalled for {stalled_ns} ns of {truth_ns}: {done:#?}")
    })?;
    // Only what nobody else did at the same time is less in the sum than one by one.
    assert!(total_ns >= stalled_ns && (processes > 1 || is_close(total_ns, stalled_ns)), "{total_ns}: {done:#?}");
    assert!(done.sum("reclaimed_bytes", rows("stalls", cgroup)) > 100 << 20, "most of what was written: {done:#?}");
    let of_hogs = |row: &Value| row["kind"] == "cgroup reclaim" && row["cgroup"] == cgroup.as_str();
    let lines: Vec<Value> = done.of_type("event").into_iter().filter(of_hogs).collect();
    assert_eq!(lines.len() as u64, done.sum("count", rows("stalls", cgroup)), "a line each: {done:#?}");
    let line_ns: u64 = lines.iter().map(|line| number(line, "duration_ns")).sum();
    assert_eq!(line_ns, total_ns, "{done:#?}");
    let is_whole =
        |line: &Value| line["comm"] == "memory_hog" && line["gfp_flags"].is_string() && line["order"].is_u64();
    assert!(lines.iter().all(is_whole), "{:#?}", lines[0]);
    Ok(())
}

#[test]
fn stalls_are_what_the_kernel_measures() {
    need_events!();
    attempts(|| check_writers(1));
}

#[test]
fn stalls_at_the_same_time_count_once() {
    need_events!();
    attempts(|| check_writers(3));
}

/// One row for all processes of a cgroup; and nothing of it when others are watched.
#[test]
fn rows_are_those_asked_for() {
    need_events!();
    let dir = on_disk();
    let load = ["16", "dirty", dir.path().to_str().expect("a path in UTF-8"), "2", "40"];
    attempts(|| {
        let HogRun { cgroup, done, .. } = watch(&load, &["--by", "cgroup"]);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let found: Vec<Value> = done.json().into_iter().filter(rows("stalls", &cgroup)).collect();
        let [row] = &found[..] else { panic!("not one row: {done:#?}") };
        assert!(row.get("pid").is_none() && row.get("comm").is_none() && row["kind"] == "cgroup reclaim", "{row}");
        let HogRun { cgroup, done, .. } = watch(&load, &["-p", &std::process::id().to_string(), "-N", "1"]);
        assert!(!done.json().iter().any(|row| row["cgroup"] == cgroup.as_str()), "{done:#?}");
        assert_eq!(done.total("samples"), 0, "none of ours: {done:#?}");
        let of_kernel = |row: &Value| row["table"] == "pressure" && !row["some_ns"].is_null();
        assert!(!done.json().iter().any(of_kernel), "the machine's, not ours: {done:#?}");
        Ok(())
    });
}

#[test]
fn a_kill_has_victim_trigger_and_limit() {
    need_events!();
    if std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1) {
        println!("skipped: with swap nobody is killed");
        return;
    }
    let HogRun { cgroup, said, done } = watch(&["24", "touch", "64", "1"], &["-g"]);
    assert_eq!(load_number(&said, "killed"), 1, "{said}");
    // The hogs of other tests may be killed, too.
    let is_ours = |line: &Value| line["kind"] == "oom kill" && line["cgroup"].as_str().is_none_or(|of| of == cgroup);
    let kills: Vec<Value> = done.of_type("event").into_iter().filter(is_ours).collect();
    let [kill] = &kills[..] else { panic!("not one kill: {done:#?}") };
    assert_eq!(kill["victim"]["comm"], "memory_hog", "{kill}");
    assert_eq!(kill["pid"], kill["victim"]["pid"], "it is the victim's own allocation: {kill}");
    assert!(kill["stack"].is_array(), "{kill}");
    if std::fs::File::open("/dev/kmsg").is_err() {
        println!("skipped: the kernel's log cannot be read");
        return;
    }
    assert_eq!((&kill["constraint"], &kill["cgroup"]), (&"memcg".into(), &cgroup.as_str().into()), "{kill}");
    let anon_bytes = number(kill, "anon_bytes");
    assert_eq!(number(kill, "limit_bytes"), 24 << 20, "{kill}");
    assert!((16 << 20..=24 << 20).contains(&anon_bytes) && number(kill, "used_bytes") >= anon_bytes, "{kill}");
}
