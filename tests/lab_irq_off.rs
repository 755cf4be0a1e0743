//! irq-off on other kernels, against interrupts that are off for a known time, and against faults that only look like
//! it.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use common::{Again, Attempted, CpuWatch, Done, attempts, number, or_again};
use lab::{AMD64, Lab};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A fault on CPU 1, between two readings of the clock, while perf-prof is kept on CPU 0.
fn script(fault: &str, options: &str) -> String {
    format!(
        "taskset -p 1 $$ >/dev/null
        watching run irq-off --all -g {options}
        taskset 2 sh -c 'exec 3>/proc/ppfault
            read before idle </proc/uptime
            echo {fault} >&3
            read after idle </proc/uptime
            echo $before
            echo $after'
        stop run"
    )
}

/// Runs irq-off over the fault. Returns its output, and the time of the fault by the guest's clock, in steps of 10 ms.
fn provoke(lab: Lab, fault: &str, options: &str) -> (Done, u64) {
    let output = lab.ppfault().run(&script(fault, options));
    let said: Vec<f64> = output.done.out.iter().map(|line| line.parse().expect("a number")).collect();
    let [before_s, after_s] = said[..] else { panic!("{said:?}") };
    (output.results("run").code(0), ((after_s - before_s) * 1e9) as u64)
}

/// The finished silences with `symbol` as the interrupted function, or as the timer function that took long.
fn gaps_in(done: &Done, symbol: &str) -> Vec<Value> {
    let is_in = |event: &Value| {
        let stack = event["stack"].as_array().into_iter().flatten();
        { stack }.any(|frame| frame["symbol"] == symbol)
    };
    let events = done.of_type("event").into_iter();
    events.filter(|event| event["still_silent"] == false && is_in(event)).collect()
}

/// Interrupts that are off for `ms`, or longer where a busy host makes the guest slow.
#[track_caller]
fn check_off(lab: impl Fn() -> Lab, fault: &str, ms: u64, symbol: &str) {
    attempts(|| try_check_off(lab(), fault, ms, symbol));
}

fn try_check_off(lab: Lab, fault: &str, ms: u64, symbol: &str) -> Attempted {
    let version = lab.version();
    let (done, took_ns) = provoke(lab, &format!("{fault} {ms}"), "-L 60ms --period 6ms");
    let [event] = &gaps_in(&done, symbol)[..] else { panic!("{version}: not one gap: {done:#?}") };
    let is_off = event["kind"] == "interrupts off";
    or_again(is_off, &[Again::GuestStopped(&done)], || format!("{version}: {event}"))?;
    assert_eq!(event["cpu"], 1, "{version}: {event}");
    let (least, most) = (number(event, "duration_ns"), number(event, "at_most_ns"));
    println!("{version}: {fault} {ms}: {least} to {most} ns, {took_ns} ns by the clock");
    let longest = (ms * MS * 11 / 10).max(took_ns + 20 * MS);
    assert!(least >= ms * MS * 9 / 10 && least <= longest, "{version}: {event}");
    assert!(most >= ms * MS * 99 / 100 && most <= longest + 10 * MS, "{version}: {event}");
    let row = done.of_type("row").into_iter().rfind(|row| row["cpu"] == 1).expect("a row");
    assert!(number(&row, "count") >= 1 && number(&row, "max_ns") >= least, "{version}: {row}");
    Ok(())
}

#[test]
fn interrupts_off() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_off(|| Lab::new(series), "irqoff", 200, "ppfault_run"));
}

#[test]
fn interrupts_off_on_arm64() {
    need_lab!();
    check_off(|| Lab::arm64("6.12"), "irqoff", 200, "ppfault_run");
}

#[test]
fn a_long_handler_keeps_interrupts_off() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_off(|| Lab::new(series), "hardirq", 150, "ppfault_hrtimer"));
}

/// The timer fires meanwhile, so there is nothing to report.
#[test]
fn faults_with_interrupts_on_are_not_reported() {
    need_lab!();
    for series in AMD64 {
        for fault in ["preemptoff 200", "softirq 200"] {
            attempts(|| {
                let lab = Lab::new(series);
                let (version, watch) = (lab.version(), CpuWatch::of_account());
                let (done, took_ns) = provoke(lab, fault, "-L 60ms --period 6ms");
                assert!(took_ns >= 180 * MS, "{version}: the fault took {took_ns} ns");
                let found = gaps_in(&done, "ppfault_run").into_iter().chain(gaps_in(&done, "ppfault_timer"));
                // A busy host may stop the CPU for a while, but hardly for the whole time.
                let is_long = |event: &Value| number(event, "at_most_ns") > 150 * MS;
                let is_found = { found }.any(|event| event["kind"] == "interrupts off" && is_long(&event));
                let reasons = [Again::GuestStopped(&done), Again::CpuBusy(&watch, Duration::from_millis(150))];
                or_again(!is_found, &reasons, || format!("{version}: {fault}: {done:#?}"))
            });
        }
    }
}

/// A CPU that is silent is shown while it is, with the task that runs there.
#[test]
fn a_silence_is_shown_while_it_lasts() {
    need_lab!();
    let (done, _) = provoke(Lab::new("6.12"), "irqoff 2500", "-L 60ms");
    let events = done.of_type("event");
    let on_cpu1 = |event: &&Value| event["cpu"] == 1;
    let silent: Vec<&Value> = events.iter().filter(on_cpu1).filter(|event| event["still_silent"] == true).collect();
    assert!(silent.len() >= 2, "{done:#?}");
    assert!(silent.iter().all(|event| event["kind"] == "silent"), "{silent:?}");
    let names = |event: &Value, comm: &str| {
        let runnable = event["runnable"].as_array().into_iter().flatten().filter_map(Value::as_str);
        event["comm"] == comm || { runnable }.any(|name| name.starts_with(&format!("{comm}:")))
    };
    assert!(silent.iter().any(|event| names(event, "sh")), "{silent:?}");
    let [ended] = &gaps_in(&done, "ppfault_run")[..] else { panic!("{done:#?}") };
    assert_eq!(ended["kind"], "interrupts off");
    let longest = silent.iter().map(|event| number(event, "at_most_ns")).max();
    assert!(longest <= Some(number(ended, "at_most_ns")), "{longest:?} {ended}");
}

/// A silence of over 250 ms, as it is in JSON.
const LONG_SILENCE: &str = r#""at_most_ns":([0-9]{10}|[3-9][0-9]{8}|2[5-9][0-9]{7}),"#;

/// Runs irq-off on CPU 0 of a guest, nothing on CPU 1. Meanwhile the host repeats `fault`, which gets QEMU's pid, until
/// a long silence of `kind` was found on CPU 1. Returns all finished silences.
fn provoke_from_outside(lab: Lab, kind: &str, fault: impl Fn(Pid) + Send + 'static) -> Vec<Value> {
    let dir = tempfile::tempdir().expect("a directory");
    let (pid, console) = (dir.path().join("pid"), dir.path().join("console"));
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let lab = lab.qemu("-pidfile").qemu(&text(&pid)).qemu("-name").qemu("guest,debug-threads=on").console(&console);
    // The guest says when irq-off watches, and goes on when the silence is reported.
    let script = format!(
        "taskset -p 1 $$ >/dev/null
        watching run irq-off --all -L 100ms --period 5ms
        echo lab: go >/dev/ttyS0
        is_found() {{ grep -E '{LONG_SILENCE}' /out/run | grep '\"cpu\":1,' | grep -q '\"kind\":\"{kind}\"'; }}
        await is_found
        echo lab: found >/dev/ttyS0
        stop run"
    );
    let (runs, ended) = mpsc::channel::<()>();
    let host = thread::spawn(move || {
        // The guest may have to wait for others, not come up at all, or hang and be booted once more.
        while ended.recv_timeout(Duration::from_millis(1)) != Err(RecvTimeoutError::Disconnected) {
            let said = fs::read_to_string(&console).unwrap_or_default();
            let qemu = fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse().ok());
            if let Some(qemu) = qemu
                && said.contains("lab: go")
                && !said.contains("lab: found")
            {
                fault(Pid::from_raw(qemu));
            }
        }
    });
    let done = lab.run(&script).results("run").code(0);
    drop(runs);
    host.join().expect("the host's part");
    let is_long = |event: &Value| event["still_silent"] == false && number(event, "at_most_ns") >= 250 * MS;
    done.of_type("event").into_iter().filter(is_long).collect()
}

/// Sleeps for the length of the fault.
fn hold() {
    thread::sleep(Duration::from_millis(300));
}

/// A guest that the host stops: neither of its CPUs had its interrupts off.
#[test]
fn a_stopped_guest() {
    need_lab!();
    for series in AMD64 {
        let long = provoke_from_outside(Lab::new(series), "machine stopped", |qemu| {
            let _ = kill(qemu, Signal::SIGSTOP); // it may have gone
            hold();
            let _ = kill(qemu, Signal::SIGCONT);
            hold(); // it runs again
        });
        println!("{series}: {long:?}");
        let stopped = |event: &&Value| event["kind"] == "machine stopped" && event["cpu"] == 1;
        let times = |event: &Value| {
            let end = number(event, "time_ns");
            end - number(event, "at_most_ns")..end
        };
        // A busy host may hold up a CPU of the guest for as long, later on.
        let stop = times(long.iter().find(stopped).expect("a stopped machine"));
        let meanwhile = |event: &&Value| times(event).start < stop.end && stop.start < times(event).end;
        let mut found: Vec<_> =
            long.iter().filter(meanwhile).map(|event| (number(event, "cpu"), &event["kind"])).collect();
        found.sort_by_key(|(cpu, _)| *cpu);
        let kind = Value::from("machine stopped");
        assert_eq!(found, [(0, &kind), (1, &kind)], "{series}: {long:#?}");
    }
}

/// A CPU that has nothing to do and is woken late, while the other goes on: its interrupts were on.
#[test]
fn an_idle_cpu() {
    need_lab!();
    for series in AMD64 {
        // If the other CPU waits for this one, it is silent, too, and the verdict is a stopped machine; try again.
        let long = provoke_from_outside(Lab::new(series), "idle", |qemu| {
            let cpu = Halted::stop(qemu, "CPU 1/TCG");
            hold();
            drop(cpu);
            hold(); // both run again
        });
        println!("{series}: {long:?}");
        let of_idle = |event: &&Value| event["cpu"] == 1 && event["comm"] == "swapper" && event["tid"] == 0;
        let kinds: Vec<&Value> = long.iter().filter(of_idle).map(|event| &event["kind"]).collect();
        assert!(kinds.contains(&&Value::from("idle")), "{series}: {long:#?}");
        // Silences of other tasks are not checked: a busy host may hold up the CPU while it works.
        assert!(!kinds.contains(&&Value::from("interrupts off")), "{series}: {long:#?}");
    }
}

/// A CPU of a guest, kept from going on when an interrupt comes.
struct Halted(i32);

impl Halted {
    /// Stops the thread of QEMU with this name, while it waits as a CPU does that has nothing to do. None: it has gone.
    fn stop(qemu: Pid, name: &str) -> Option<Halted> {
        let threads = fs::read_dir(format!("/proc/{qemu}/task")).ok()?.flatten();
        let mut tids = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok());
        let file =
            |tid: i32, name: &str| fs::read_to_string(format!("/proc/{qemu}/task/{tid}/{name}")).unwrap_or_default();
        let tid = tids.find(|&tid| file(tid, "comm").trim_end() == name)?;
        ptrace(libc::PTRACE_SEIZE, tid)?;
        loop {
            ptrace(libc::PTRACE_INTERRUPT, tid)?;
            let status = waitpid(Pid::from_raw(tid), Some(WaitPidFlag::__WALL)).ok()?;
            if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                return None;
            }
            if waits_on_condition(&file(tid, "syscall")) {
                return Some(Halted(tid));
            }
            ptrace(libc::PTRACE_CONT, tid)?;
            thread::sleep(Duration::from_millis(1)); // it does something else until then
        }
    }
}

/// Whether a thread with this /proc/PID/syscall is in `pthread_cond_wait`; it waits in another way for a lock, which a
/// CPU at work wants, too.
fn waits_on_condition(syscall: &str) -> bool {
    let mut words = syscall.split(' ');
    let [number, _, operation] = [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
    let operation = i32::from_str_radix(operation.trim_start_matches("0x"), 16).unwrap_or_default();
    number == libc::SYS_futex.to_string() && operation & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT_BITSET
}

impl Drop for Halted {
    fn drop(&mut self) {
        let _ = ptrace(libc::PTRACE_DETACH, self.0); // it may have gone
    }
}

/// None: there is no such thread any more.
fn ptrace(request: libc::c_uint, tid: i32) -> Option<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of these requests reads or writes memory of ours.
    let result = unsafe { libc::ptrace(request, tid, none, none) };
    let err = std::io::Error::last_os_error();
    assert!(result == 0 || err.raw_os_error() == Some(libc::ESRCH), "ptrace {request:#x} of {tid}: {err}");
    (result == 0).then_some(())
}
