//! watchdog against lockups in emulated machines: each is reported before the kernel's own report.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::time::Duration;

use common::waits::MS;
use common::{Again, Attempted, CpuWatch, attempts, number, or_again};
use lab::{AMD64, Lab, Output};
use serde_json::Value;

/// `step NAME THRESH FAULT CPU OTHER`: the fault on one CPU, and on the other somebody who writes into the kernel's log
/// as soon as a lockup under the task that caused it stands in our output. The log then has both reports, in the order
/// in which they came. Who waits for ours starts no process: in an emulated machine that may take as long as we are
/// ahead.
///
/// The events stay on between the steps: to switch them, the kernel changes its own code under way, and the emulator at
/// times runs a CPU into the breakpoint that it sets for that (`text_poke_bp`).
const STEP: &str = r#"
    echo 3 >/proc/sys/kernel/printk
    watching held trace -e 'timer:hrtimer_expire_entry/now==0/' -e 'timer:hrtimer_start/expires==0/' -e 'sched:sched_switch/next_pid==-1/'
    expiries() { grep -c "CPU $2: timer expired" /out/$1.err || :; }
    expired_since() { [ $(expiries $1 $2) -gt $(($3 + 1)) ]; }
    cat >/tmp/teller <<'END'
        begun=
        while :; do
            if read -r line; then
                line=$begun$line begun= tid=none
                read -r tid </out/$1.tid || :
                case $line in
                    *'"phase":"'[!r]*'"running":{"tid":'$tid,*) echo told $1 >/dev/kmsg; exit ;;
                esac
            else
                begun=$begun$line
                usleep 10000
            fi
        done </out/$1
END
    step() {
        echo $2 >/proc/sys/kernel/watchdog_thresh
        watching $1 watchdog -g -i 500
        await expired_since $1 0 0
        await expired_since $1 1 0
        echo "begin $1" >/dev/kmsg
        echo none >/out/$1.tid
        taskset -c $5 sh /tmp/teller $1 &
        taskset -c $4 sh -c "echo \$\$ >/out/$1.tid; echo $3 >/proc/ppfault"
        await expired_since $1 $4 $(expiries $1 $4)
        stop $1
        dmesg >/out/dmesg
    }
"#;

struct Fault {
    name: &'static str,
    /// kernel.watchdog_thresh during the fault, s.
    thresh: u64,
    command: &'static str,
    ms: u64,
    kind: &'static str,
    /// Text of the kernel's report. None: the kernel has no detector for this fault.
    report: Option<&'static str>,
}

/// The kernel counts in seconds of 2^30 ns, begun ones too, and looks every 0.4 s: it may report 3.6 s after the last
/// sign.
const SOFT: [Fault; 2] = [
    Fault {
        name: "preemptoff",
        thresh: 1,
        command: "preemptoff 4200",
        ms: 4200,
        kind: "soft lockup",
        report: Some("soft lockup - CPU#"),
    },
    Fault {
        name: "kernelspin",
        thresh: 1,
        command: "kernelspin 4200",
        ms: 4200,
        kind: "soft lockup",
        report: Some("soft lockup - CPU#"),
    },
];

fn script(faults: &[Fault]) -> String {
    let steps = faults.iter().flat_map(|fault| {
        [(0, 1), (1, 0)].map(|(cpu, other)| {
            format!("step {}{cpu} {} '{}' {cpu} {other}\n", fault.name, fault.thresh, fault.command)
        })
    });
    STEP.to_owned() + &steps.collect::<String>() + "stop held"
}

/// `reasons`: for a prediction that came too late. While a host stops a guest in real time, no prediction is possible.
#[track_caller]
fn check(output: &Output, fault: &Fault, cpu: u32, reasons: &[Again]) -> Attempted {
    let name = format!("{}{cpu}", fault.name);
    let done = output.results(&name).code(0);
    let tid: u64 = output.file(&format!("{name}.tid")).trim().parse().expect("a tid");
    let of_cpu = |event: &Value| event["cpu"] == cpu && event["kind"] == fault.kind;
    let events: Vec<Value> = done.of_type("event").into_iter().filter(of_cpu).collect();
    // A busy host stops CPUs, too, and that is told; but not for so long. From the last sign of life before the fault
    // to the first one behind it:
    let is_end = |event: &Value| event["phase"] == "recovered" && number(event, "duration_ns") >= (fault.ms - 100) * MS;
    let end = events.iter().position(is_end).unwrap_or_else(|| panic!("{name}: it does not end: {done:?}"));
    let begins = |event: &Value| event["phase"] == "predicted";
    let begin = events[..end].iter().rposition(begins).unwrap_or_else(|| panic!("{name}: it does not begin: {done:?}"));
    let first = &events[begin];
    assert!(events[begin + 1..end].iter().all(|event| event["phase"] == "ongoing"), "{name}: {events:?}");
    // A CPU that the host had stopped before the fault may have run into it without a timer interrupt between: then the
    // prediction was of somebody else, and true.
    let is_it = |event: &Value| event["running"]["tid"] == tid;
    let named = events[begin..end].iter().position(is_it).unwrap_or_else(|| panic!("{name}: not {tid}: {events:?}"));
    assert!(events[begin + named..end].iter().all(is_it), "{name}: not {tid} throughout: {events:?}");
    if fault.kind == "soft lockup" {
        let stacks = events[begin..end].iter().flat_map(|event| event["stack"].as_array().expect("a stack"));
        assert!({ stacks }.any(|frame| frame["symbol"] == "ppfault_spin"), "{name}: {events:?}");
    } else {
        // Its last stack: that of another task, and none if that one was in user code.
        let is_dark = |event: &Value| event["dark"] == true && event["sampled"]["comm"].is_string();
        assert!(events[begin..end].iter().any(is_dark) && first["stack"].is_array(), "{name}: {events:?}");
    }
    // Intervals go on during the lockup.
    let meanwhile = number(first, "time_ns") + 1..number(&events[end], "time_ns");
    let is_meanwhile = |row: &Value| row["cpu"] == cpu && meanwhile.contains(&number(row, "time_ns"));
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(is_meanwhile).collect();
    assert!(rows.iter().all(|row| row["state"] == fault.kind), "{name}: {rows:?}");
    assert!(!rows.is_empty(), "{name}: {done:?}");
    println!("{name}: {} rows meanwhile", rows.len());
    let log = output.file("dmesg");
    let after = log.split(&format!("begin {name}\n")).nth(1).unwrap_or_else(|| panic!("{name}: {log}"));
    let after = after.split("begin ").next().unwrap_or_default();
    let told = after.find(&format!("told {name}")).unwrap_or_else(|| panic!("{name}: not told: {after}"));
    if let Some(report) = fault.report {
        let report = format!("{report}{cpu}");
        let reported = after.find(&report).unwrap_or_else(|| panic!("{name}: the kernel said nothing: {after}"));
        or_again(told <= reported, reasons, || format!("{name}: too late: {after}"))?;
        println!("{name}: {} before {}", line_at(after, told), line_at(after, reported));
    }
    Ok(())
}

fn line_at(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    text[start..].lines().next().unwrap_or_default()
}

fn check_all(lab: impl Fn() -> Lab, faults: &[Fault]) {
    attempts(|| {
        let (lab, watch) = (lab(), CpuWatch::of_account());
        println!("{}", lab.version());
        let is_busy = [Again::CpuBusy(&watch, Duration::from_millis(100))];
        let reasons = if lab.has_virtual_time() { &[][..] } else { &is_busy };
        let output = lab.ppfault().run(&script(faults));
        let cases = faults.iter().flat_map(|fault| [(fault, 0), (fault, 1)]);
        { cases }.try_for_each(|(fault, cpu)| check(&output, fault, cpu, reasons))
    });
}

#[test]
fn soft_lockups_before_the_kernel_on_6_1() {
    need_lab!();
    check_all(|| Lab::new(AMD64[0]), &SOFT);
}

#[test]
fn soft_lockups_before_the_kernel_on_6_12() {
    need_lab!();
    check_all(|| Lab::new(AMD64[1]).virtual_time(), &SOFT);
}

/// Without a PMU the kernel has no detector of hard lockups.
#[test]
fn a_dark_cpu_that_the_kernel_does_not_see() {
    need_lab!();
    let dark = [Fault { name: "dark", thresh: 1, command: "irqoff 3500", ms: 3500, kind: "hard lockup", report: None }];
    check_all(|| Lab::new(AMD64[0]), &dark);
    check_all(|| Lab::new(AMD64[1]).virtual_time(), &dark);
}

/// The kernel looks every three periods, 2.4 s, whether there was one: it reports 2.4 to 4.8 s after the last. Then the
/// CPU that reports waits, with interrupts off, for the stuck one to show its stack: no prediction is possible any
/// more.
#[test]
fn a_dark_cpu_before_the_kernel_on_arm64() {
    need_lab!();
    let dark = [Fault {
        name: "dark",
        thresh: 2,
        command: "irqoff 6500",
        ms: 6500,
        kind: "hard lockup",
        report: Some("detected hard LOCKUP on cpu "),
    }];
    check_all(|| Lab::arm64("6.12").virtual_time(), &dark);
}
