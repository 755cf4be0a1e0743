//! `watchdog` on this machine, where nothing locks up: it sees the timers, names CPUs with unseen timers, follows the
//! kernel's settings, and predicts nothing. Lockups are provoked in the lab: see `lab_watchdog`.

#[macro_use]
mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::waits::MS;
use common::{
    Again, Attempted, CpuWatch, Done, Prog, again, attempts, number, online_cpus, run, start_watching, until,
};

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
    /// `Err`: the kernel has no watchdog.
    fn of(seconds: &str) -> Result<Threshold, &'static str> {
        let before = fs::read_to_string(sysctl("watchdog_thresh")).map_err(|_| "the kernel has no watchdog")?;
        if fs::read_to_string(sysctl("watchdog")).is_ok_and(|on| on.trim() == "0") {
            return Err("the kernel's watchdog is off");
        }
        set("watchdog_thresh", seconds);
        Ok(Threshold { before })
    }
}

/// Skips the test where there is none.
macro_rules! threshold {
    ($seconds:expr) => {
        match Threshold::of($seconds) {
            Ok(threshold) => threshold,
            Err(why) => skip!("{why}"),
        }
    };
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

/// No CPU is stuck. One that the host does not run looks the same.
fn nothing_is_stuck(done: &Done, watch: &CpuWatch) -> Attempted {
    let events = done.of_type("event");
    let half = |event| Duration::from_nanos(number(event, "stuck_ns") / 2);
    { events.iter() }.try_for_each(|event| again(&[Again::CpuStolen(watch, half(event))], format!("{done:?}")))
}

#[test]
fn sees_the_timer_of_a_cpu() {
    need_events!(alone);
    let _one = threshold!("1");
    attempts(try_sees_the_timer_of_a_cpu);
}

fn try_sees_the_timer_of_a_cpu() -> Attempted {
    let watch = CpuWatch::of_account();
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
    nothing_is_stuck(&done, &watch)?;
    assert!(done.err.iter().any(|line| line.contains("due every 400.0ms")), "{done:?}");
    // Every expiry has started the timer again, and had the stop task run.
    assert!(number(&done.end(), "samples") >= 3 * seen as u64 - 2, "{done:?}");
    Ok(())
}

#[test]
fn a_cpu_that_was_not_seen_is_not_called_ok() {
    need_events!(alone);
    let _one = threshold!("60");
    // Its timer is due every 24 s. The stop task of a CPU also takes threads away from it: those of perf-prof come from
    // another CPU, those of others may be there.
    let [cpu, .., other] = online_cpus()[..] else { skip!("needs two CPUs") };
    let (cpu, other) = (cpu.to_string(), other.to_string());
    let watchdog = ["watchdog", "-C", &cpu, "-F", "1", "--json", "--for", "0.01"];
    until("a run in which the CPU is not seen", || {
        let mut command = Command::new("taskset");
        command.args(["-c", &other, env!("CARGO_BIN_EXE_perf-prof")]).args(watchdog);
        let rows = Prog::spawn(command).finish().code(0).of_type("row");
        let [row] = &rows[..] else { panic!("one row: {rows:?}") };
        let seen = row.get("last_timer_ns").is_some() || row.get("last_watchdog_ns").is_some();
        assert_eq!(row["state"], if seen { "ok" } else { "not seen yet" }, "{row}");
        !seen
    });
}

#[test]
fn runs_as_typed() {
    need_events!(alone);
    let _one = threshold!("1");
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
    let _one = threshold!("1");
    attempts(try_every_cpu_shows_its_timer_or_is_named);
}

fn try_every_cpu_shows_its_timer_or_is_named() -> Attempted {
    let watch = CpuWatch::of_account();
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
    nothing_is_stuck(&done, &watch)
}

#[test]
fn follows_the_settings() {
    need_events!(alone);
    let _one = threshold!("1");
    attempts(try_follows_the_settings);
}

fn try_follows_the_settings() -> Attempted {
    let watch = CpuWatch::of_account();
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
    nothing_is_stuck(&run.finish().code(0), &watch)
}

#[test]
fn says_when_there_is_nothing_to_watch() {
    need_events!(alone);
    let _off = threshold!("0");
    let done = run(&["watchdog", "--for", "1"]).code(1);
    let want =
        "perf-prof: the kernel's watchdog is off (kernel.watchdog_thresh is 0): sysctl -w kernel.watchdog_thresh=10";
    assert_eq!((done.err.as_slice(), done.out.len()), (&[want.to_owned()][..], 0));
}

#[test]
fn results_go_to_a_file() {
    need_events!(alone);
    let _one = threshold!("1");
    let file = tempfile::NamedTempFile::new().unwrap();
    let done = run(&["watchdog", "--json", "-o", file.path().to_str().unwrap(), "--for", "500ms"]).code(0);
    assert!(done.out.is_empty());
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(text.lines().last().is_some_and(|line| line.contains("\"type\":\"end\"")), "{text}");
}
