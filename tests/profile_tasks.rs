//! `profile`: its tables of threads, of short-lived processes, and of interrupts, against loads and counters that know.

#[macro_use]
mod common;

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Again, Done, Load, example, hurry, load_number, number, or_again, own_tid, run, run_over};
use perf_prof::sys::monotonic_ns;
use serde_json::Value;

const HZ: &str = "997";

fn rows(done: &Done, kind: &str, table: &str) -> Vec<Value> {
    done.of_type(kind).into_iter().filter(|row| row["table"] == table).collect()
}

fn pct(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Checks the threads of `uneven` in some rows: the heavy one's part of both, in per cent, is that of the load, and
/// both add up to their process.
#[track_caller]
fn check_threads(threads: &[Value], tasks: &[Value], pid: u64, truth: f64) {
    let of = |comm: &str| {
        let all: Vec<&Value> = threads.iter().filter(|row| row["pid"] == pid && row["comm"] == comm).collect();
        assert_eq!(all.len(), 1, "{comm} in {threads:?}");
        all[0]
    };
    let (heavy, light) = (pct(of("heavy"), "pct"), pct(of("light"), "pct"));
    let process = tasks.iter().find(|row| row["pid"] == pid).expect("a row of the process");
    let others: f64 =
        threads.iter().filter(|row| row["pid"] == pid && row["tid"] == pid).map(|row| pct(row, "pct")).sum();
    let all = heavy + light + others;
    assert!((all - pct(process, "pct")).abs() < 0.1, "{threads:?} {process}");
    assert_eq!(of("heavy")["pct_by"], process["pct_by"]);
    let share = 100.0 * heavy / (heavy + light);
    assert!((share - truth).abs() <= 4.0, "{share} % instead of {truth}: {threads:?}");
}

fn uneven_truth(load: &str) -> f64 {
    let (heavy, light) = (load_number(load, "heavy_ns") as f64, load_number(load, "light_ns") as f64);
    let truth = 100.0 * heavy / (heavy + light);
    assert!((truth - 75.0).abs() < 1.0, "the load itself is wrong: {load}");
    truth
}

#[test]
fn threads_of_a_process_have_their_shares() {
    need_events!(alone);
    let done = run_over(&["profile", "--json", "-F", HZ, "--perins"], &[&example("uneven"), "2000"]);
    let (threads, tasks) = (rows(&done, "row", "threads"), rows(&done, "row", "tasks"));
    let tid = |comm: &str| threads.iter().find(|row| row["comm"] == comm).map(|row| number(row, "tid"));
    let tids = ["heavy", "light"].map(|name| Some(load_number(&done.load, name)));
    assert_eq!([tid("heavy"), tid("light")], tids, "{done:?}");
    let samples = |rows: &[Value]| rows.iter().map(|row| number(row, "samples")).sum::<u64>();
    assert_eq!(samples(&threads), samples(&tasks));
    check_threads(&threads, &tasks, load_number(&done.load, "pid"), uneven_truth(&done.load));
}

/// Shares come from the account of the process, in each interval and in the whole run.
#[test]
fn threads_of_whole_machines_follow_the_account() {
    need_events!(alone);
    let mut command = Command::new(example("uneven"));
    command.arg("2500");
    let mut load = Load::start(command);
    let done = run(&["profile", "--json", "-F", HZ, "--perins", "-i", "800", "--for", "1.6"]).code(0);
    let pid = load.pid() as u64;
    let truth = uneven_truth(&load.says());
    let (threads, tasks) = (rows(&done, "total", "threads"), rows(&done, "total", "tasks"));
    let own = tasks.iter().find(|row| row["pid"] == pid).expect("the process");
    assert_eq!(own["pct_by"], "account", "{own}");
    check_threads(&threads, &tasks, pid, truth);
}

/// Text has the table of threads only if it says more than that of processes.
#[test]
fn a_table_of_threads_says_more_than_one_of_processes() {
    need_events!(alone);
    let perins = ["profile", "-F", HZ, "--perins"];
    let shown = |options: &[&str], load: &str| {
        let done = run_over(options, &[&example(load), "600"]);
        done.out.iter().any(|line| line.ends_with(": threads, % of one CPU"))
    };
    assert!(shown(&perins, "uneven") && !shown(&perins, "parts"));
    // Without the option it is there where several threads of a process are busy.
    assert!(shown(&perins[..3], "uneven") && !shown(&perins[..3], "parts"));
    let done = run_over(&[&perins[..3], &["--json"]].concat(), &[&example("uneven"), "600"]);
    assert!(rows(&done, "row", "threads").is_empty() && !rows(&done, "row", "tasks").is_empty(), "{done:?}");
    // The limit of rows in text.
    let done = run_over(&[&perins[..], &["--top", "1"]].concat(), &[&example("uneven"), "600"]);
    let lines = done.out.iter().filter(|line| line.contains(" light "));
    assert_eq!(lines.count(), 0, "{done:?}");
    // The first thread may have a sample. What is left out has a third of the time of the thread that is shown.
    let share = |line: &String| {
        let (_, sums) = line.strip_prefix("and ")?.split_once(" more: ")?;
        sums.split_once(" CPU %, ")?.0.parse::<f64>().ok()
    };
    let heavy = done.out.iter().find_map(|line| line.split_once(" heavy ")?.1.split_whitespace().next()?.parse().ok());
    let heavy: f64 = heavy.unwrap_or_else(|| panic!("{done:?}"));
    assert!(done.out.iter().filter_map(share).any(|share| share > heavy / 6.0), "{done:?}");
}

/// A script that starts scripts that start programs: all are children of the first script.
#[test]
fn short_lived_children_are_one_row_of_their_parent() {
    need_events!(alone);
    common::attempts(|| {
        let script = "for i in {1..150}; do sh -c '/bin/true; :'; done; echo";
        let done = run_over(&["profile", "--json", "-F", HZ], &["bash", "-c", script]);
        let tasks = rows(&done, "row", "tasks");
        let samples: u64 = tasks.iter().map(|row| number(row, "samples")).sum();
        assert_eq!(samples, number(&done.end(), "samples"), "{tasks:?}");
        let summed: Vec<&Value> = tasks.iter().filter(|row| row["children"].is_u64()).collect();
        let lossless = number(&done.end(), "lost_side") == 0;
        or_again(lossless, &[Again::RecordsLost(&done)], || format!("starts or ends of processes: {tasks:?}"))?;
        // One row for each name that has used much, one for the others, and the script.
        for row in &summed {
            assert!(row["parent"] == "bash" && row["pid"].is_null() && number(row, "samples") > 0, "{row}");
            assert!(["bash", "sh", "true"].iter().any(|name| row["comm"] == *name), "{row}");
        }
        assert_eq!(tasks.len(), summed.len() + 1, "{tasks:?}");
        assert!(summed.len() <= 4, "{tasks:?}");
        // A process that was sampled under two names is in two rows, and each is in one at least.
        let children: u64 = summed.iter().map(|row| number(row, "children")).sum();
        assert!(children <= 2 * 300 && (summed.len() > 1 || children == 300), "{tasks:?}");
        Ok(())
    });
}

/// A network in which the CPU `to` has the softirqs for packets that others send: bash sends such packets on `from`.
fn packets_from_another_cpu(from: u32, to: u32) -> Load {
    let script = format!(
        "mount -t sysfs none /sys && ip link set lo up && printf %x $((1 << {to})) >/sys/class/net/lo/queues/rx-0/rps_cpus \
         && echo ready && while :; do for i in {{1..99}}; do printf x; done >/dev/udp/127.0.0.1/9; done"
    );
    let mut command = Command::new("taskset");
    command.args(["-c", &from.to_string(), "unshare", "-n", "-m", "bash", "-c", &script]);
    Load::start(command)
}

/// A load in user mode on a CPU that receives what another CPU sends: the kernel counts the softirqs' time as its own.
#[test]
fn softirqs_are_told_from_the_work_of_tasks() {
    need_events!(alone);
    let &[from, to, ..] = &common::online_cpus()[..] else { skip!("one CPU alone is online") };
    let mut burn = Command::new("taskset");
    burn.args(["-c", &to.to_string(), &example("burn"), "-"]);
    let burn = Load::start(burn);
    let mut sender = packets_from_another_cpu(from, to);
    if sender.says() != "ready" {
        skip!("no network of its own, or no packet steering");
    }
    let folded = tempfile::NamedTempFile::with_suffix(".folded").expect("a file");
    let path = folded.path().to_str().expect("a path in UTF-8");
    let done = run(&["profile", "--json", "-F", HZ, "--for", "4", "-g", "--flame-graph", path]).code(0);
    let tasks = rows(&done, "row", "tasks");
    // The same samples by their stacks. Neither /proc/stat nor the softirqs' own events are a measure: on some virtual machines
    // the timer's interrupts come together with those that raise softirqs.
    let stacks = fs::read_to_string(folded.path()).expect("it was written");
    let weights = |is_counted: &dyn Fn(&str) -> bool| -> f64 {
        let of_burn = stacks.lines().filter(|line| line.starts_with("burn;") && is_counted(line));
        of_burn.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let in_softirqs = weights(&|line| line.contains(";handle_softirqs") || line.contains(";__do_softirq"));
    let shares = in_softirqs / weights(&|_| true);
    let of_burn = tasks.iter().find(|row| row["pid"] == burn.pid()).expect("it ran");
    let [all, user, kernel, softirq] = ["pct", "user_pct", "kernel_pct", "softirq_pct"].map(|key| pct(of_burn, key));
    assert!(softirq > 2.0 && kernel - softirq < 3.0 && user + softirq > all - 3.0, "no calls of its own: {of_burn}");
    assert!((softirq / all - shares).abs() < 0.02, "{shares} by stacks: {of_burn}");
}

/// Ticks of 10 ms in hard interrupts and softirqs, by CPU.
fn interrupts() -> Vec<(u64, [u64; 2])> {
    let text = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let cpu = |line: &str| {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let ticks: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((cpu.parse().ok()?, [ticks[5], ticks[6]]))
    };
    text.lines().filter_map(cpu).collect()
}

#[test]
fn interrupts_are_those_of_proc_stat() {
    need_events!(alone);
    let ended = AtomicBool::new(false);
    // Each datagram to oneself raises a softirq.
    let send = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("its address");
        while !ended.load(Ordering::Relaxed) {
            let _ = socket.send_to(&[0; 16], address);
        }
    };
    let watch = || {
        hurry(own_tid());
        let mut looks = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            looks.push((monotonic_ns(), interrupts()));
            thread::sleep(Duration::from_millis(5)); // a series in time
        }
        looks
    };
    let (done, looks) = thread::scope(|scope| {
        let (looks, _) = (scope.spawn(watch), scope.spawn(send));
        let done = run(&["profile", "--json", "--for", "2"]);
        ended.store(true, Ordering::Relaxed);
        (done.code(0), looks.join().expect("the looks"))
    });
    let interval = &done.of_type("interval")[0];
    let [start_ns, end_ns] = [number(interval, "start_ns"), number(interval, "end_ns")];
    let at = |ns: u64| looks.iter().min_by_key(|(time, _)| time.abs_diff(ns)).expect("it was looked at");
    let ((start_ns, before), (end_ns, after)) = (at(start_ns), at(end_ns));
    let mut any = false;
    for row in rows(&done, "row", "cpus") {
        let of =
            |look: &[(u64, [u64; 2])]| look.iter().find(|(cpu, _)| *cpu == number(&row, "cpu")).expect("the CPU").1;
        for (which, key) in ["irq_pct", "softirq_pct"].into_iter().enumerate() {
            let ticks = of(after)[which] - of(before)[which];
            let want = 100.0 * ticks as f64 * 1e7 / (end_ns - start_ns) as f64;
            any |= ticks > 0;
            assert!((pct(&row, key) - want).abs() <= 2.0, "{want} %: {row}");
        }
    }
    if !any {
        skip!("this kernel accounts for no interrupts");
    }
}
