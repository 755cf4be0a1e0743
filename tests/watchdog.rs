//! `watchdog` on this machine, where nothing locks up: it sees the timers, names CPUs with unseen timers, follows the
//! kernel's settings, and predicts nothing. Lockups are provoked in the lab: see `lab_watchdog`.

#[macro_use]
mod common;

use std::fs;
use std::path::PathBuf;

use common::waits::MS;
use common::{Done, attempts, number, online_cpus, run, start_watching};

/// Sets kernel.watchdog_thresh for a test, and restores it when dropped.
struct Threshold {
    before: String,
}

fn sysctl(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/kernel").join(name)
}

fn set(name: &str, value: &str) {
    fs::write(sysctl(name), value).unwrap_or_else(|err| panic!("kernel.{name}: {err}"));
}

impl Threshold {
    /// None, with the reason on stdout, where the kernel has no watchdog.
    fn of(seconds: &str) -> Option<Threshold> {
        let Ok(before) = fs::read_to_string(sysctl("watchdog_thresh")) else {
            println!("skipped: the kernel has no watchdog");
            return None;
        };
        if fs::read_to_string(sysctl("watchdog")).is_ok_and(|on| on.trim() == "0") {
            println!("skipped: the kernel's watchdog is off");
            return None;
        }
        set("watchdog_thresh", seconds);
        Some(Threshold { before })
    }
}

impl Drop for Threshold {
    fn drop(&mut self) {
        set("watchdog_thresh", self.before.trim());
    }
}

/// Expiries of a CPU's timer that a run with -v has seen.
fn expiries(done: &Done, cpu: u32) -> usize {
    let head = format!("watchdog: CPU {cpu}: timer expired");
    done.err.iter().filter(|line| line.starts_with(&head)).count()
}

/// `Err` if a CPU is stuck: one that the host does not run for half a second looks stuck, too.
fn nothing_is_stuck(done: &Done) -> Result<(), String> {
    if done.of_type("event").is_empty() { Ok(()) } else { Err(format!("{done:?}")) }
}

#[test]
fn sees_the_timer_of_a_cpu() {
    need_events!(alone);
    let Some(_one) = Threshold::of("1") else { return };
    attempts(try_sees_the_timer_of_a_cpu);
}

fn try_sees_the_timer_of_a_cpu() -> Result<(), String> {
    let cpu = online_cpus()[0];
    let list = cpu.to_string();
    let done = run(&["watchdog", "-C", &list, "-F", "1", "-g", "-v", "--json", "--for", "3"]).code(0);
    // One per 400 ms; a busy machine may delay them, and they may begin late.
    let seen = expiries(&done, cpu);
    let rows = done.of_type("row");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&row["cpu"], &row["state"]), (&cpu.into(), &"ok".into()), "{row}");
    let span = number(&done.of_type("interval")[0], "end_ns") - number(&done.of_type("interval")[0], "start_ns");
    assert!((3..=span / (400 * MS) + 1).contains(&(seen as u64)), "{seen} expiries in {span} ns: {done:?}");
    assert!(number(row, "last_timer_ns") < span && number(row, "last_watchdog_ns") < span, "{row}");
    assert!(row["running"]["comm"].is_string() && row["running"]["tid"].is_u64(), "{row}");
    nothing_is_stuck(&done)?;
    assert!(done.err.iter().any(|line| line.contains("due every 400.0ms")), "{done:?}");
    // Every expiry has started the timer again, and had the stop task run.
    assert!(number(&done.end(), "samples") >= 3 * seen as u64 - 2, "{done:?}");
    Ok(())
}

#[test]
fn a_cpu_that_was_not_seen_is_not_called_ok() {
    need_events!(alone);
    let Some(_one) = Threshold::of("60") else { return };
    // Due every 24 s: at most two of the runs see a timer of these CPUs. But the stop task also moves perf-prof's own
    // threads to their CPUs, and half of the runs see that.
    let unseen = |done: &Done| {
        let mut rows = done.of_type("row").into_iter().filter(|row| row.get("last_timer_ns").is_none());
        rows.any(|row| row.get("last_watchdog_ns").is_none())
    };
    let run = || run(&["watchdog", "-F", "1", "--json", "--for", "0.01"]).code(0);
    let done = (0..30).map(|_| run()).find(unseen).expect("a CPU whose timer does not expire");
    for row in done.of_type("row") {
        let seen = row.get("last_timer_ns").is_some() || row.get("last_watchdog_ns").is_some();
        assert_eq!(row["state"], if seen { "ok" } else { "not seen yet" }, "{row}");
    }
}

#[test]
fn runs_as_typed() {
    need_events!(alone);
    let Some(_one) = Threshold::of("1") else { return };
    let done = run(&["watchdog", "-F", "1", "-g", "--for", "1.5"]).code(0);
    let heading = done.out.iter().position(|line| line.starts_with("CPU state")).expect("a table");
    assert_eq!(done.out.len() - heading - 1, online_cpus().len(), "{done:?}");
    assert!(
        done.err.last().is_some_and(|line| line.starts_with("watchdog: ") && line.contains("events in")),
        "{done:?}"
    );
    let first = &done.err[0];
    let has_nmi = !fs::read_to_string("/proc/interrupts").unwrap().contains("PMI:") || !first.contains("PMU");
    assert!(has_nmi || first.ends_with("a CPU with interrupts off cannot be sampled"), "{first}");
}

#[test]
fn every_cpu_shows_its_timer_or_is_named() {
    need_events!(alone);
    let Some(_one) = Threshold::of("1") else { return };
    attempts(try_every_cpu_shows_its_timer_or_is_named);
}

fn try_every_cpu_shows_its_timer_or_is_named() -> Result<(), String> {
    let done = run(&["watchdog", "-v", "--json", "--for", "2.5"]).code(0);
    let named = |cpu: u32| {
        let lists = done.err.iter().filter(|line| line.contains("no watchdog timer seen for two periods (800.0ms)"));
        let number = cpu.to_string();
        lists.filter(|line| line.split([' ', ':']).any(|word| word == number)).count()
    };
    for cpu in online_cpus() {
        let (seen, named) = (expiries(&done, cpu), named(cpu));
        assert!(seen > 0 || named == 1, "CPU {cpu}: {done:?}");
        assert!(named <= 1, "once: {done:?}");
    }
    nothing_is_stuck(&done)
}

#[test]
fn follows_the_settings() {
    need_events!(alone);
    let Some(_one) = Threshold::of("1") else { return };
    attempts(try_follows_the_settings);
}

fn try_follows_the_settings() -> Result<(), String> {
    let mut run = start_watching(&["watchdog", "-i", "10s"]);
    // A longer period: timers that are late by the old one are not.
    set("watchdog_thresh", "3");
    run.err_line(|line| line == "watchdog: kernel.watchdog_thresh 1 -> 3");
    run.err_line(|line| line.contains("timer expired after 1.20s"));
    set("watchdog_thresh", "0");
    run.err_line(|line| line.contains("kernel.watchdog_thresh 3 -> 0") && line.contains("watchdog is off"));
    set("watchdog_thresh", "1");
    run.err_line(|line| line.contains("kernel.watchdog_thresh 0 -> 1"));
    run.err_line(|line| line.contains("timer expired after 400.0ms") || line.contains("timer expired after 40"));
    run.signal(nix::sys::signal::Signal::SIGINT);
    nothing_is_stuck(&run.finish().code(0))
}

#[test]
fn says_when_there_is_nothing_to_watch() {
    need_events!(alone);
    let Some(_off) = Threshold::of("0") else { return };
    let done = run(&["watchdog", "--for", "1"]).code(1);
    let want =
        "perf-prof: the kernel's watchdog is off (kernel.watchdog_thresh is 0): sysctl -w kernel.watchdog_thresh=10";
    assert_eq!((done.err.as_slice(), done.out.len()), (&[want.to_owned()][..], 0));
}

#[test]
fn results_go_to_a_file() {
    need_events!(alone);
    let Some(_one) = Threshold::of("1") else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let done = run(&["watchdog", "--json", "-o", file.path().to_str().unwrap(), "--for", "500ms"]).code(0);
    assert!(done.out.is_empty());
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(text.lines().last().is_some_and(|line| line.contains("\"type\":\"end\"")), "{text}");
}
