//! irqs: the counts of /proc/softirqs and /proc/interrupts, and work that a load has queued.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use common::{Again, Done, attempts, number, online_cpus, or_again, run, start_watching};
use serde_json::Value;

/// Rows of a kind in a table.
fn rows(done: &Done, table: &str, kind: &str) -> Vec<Value> {
    let rows = done.of_type("row").into_iter();
    rows.filter(|row| row["table"] == table && row["kind"] == kind).collect()
}

/// The counts of the kernel by name and CPU. The name of a hard interrupt is its number.
fn kernel_counts(file: &str) -> BTreeMap<(String, usize), u64> {
    let text = fs::read_to_string(file).expect(file);
    let mut lines = text.lines();
    let cpus: Vec<usize> = lines.next().unwrap().split_whitespace().map(|cpu| cpu[3..].parse().unwrap()).collect();
    let mut counts = BTreeMap::new();
    for line in lines {
        let (name, rest) = line.split_once(':').unwrap();
        for (cpu, count) in cpus.iter().zip(rest.split_whitespace()) {
            counts.extend(count.parse().ok().map(|count: u64| ((name.trim().to_owned(), *cpu), count)));
        }
    }
    counts
}

/// Packets through the loopback device, each of which raises a softirq.
fn packets(count: usize) {
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let mut bytes = [0; 16];
    for _ in 0..count {
        from.send_to(&[1; 16], to.local_addr().unwrap()).expect("sent");
        to.recv(&mut bytes).expect("received");
    }
}

/// Writes to a disk, if there is one below the folder for temporary files.
fn writes(count: usize) {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    for _ in 0..count {
        file.write_all(&[7; 4096]).expect("written");
        file.sync_all().expect("synced");
    }
}

/// No count is greater than what the kernel counted from before the run until after it, and none is less than what it counted
/// while the run was watching.
#[test]
fn counts_are_those_of_the_kernel() {
    need_events!();
    attempts(|| {
        let read = || (kernel_counts("/proc/softirqs"), kernel_counts("/proc/interrupts"));
        let before = read();
        let watch = start_watching(&["irqs", "--kinds", "hardirqs,softirqs", "-m", "16M"]);
        let first = read();
        packets(500);
        writes(50);
        let last = read();
        let done = watch.interrupt().code(0);
        let after = read();
        let seen = |kind: &str, name: &str| {
            let mut seen: BTreeMap<(String, usize), u64> = BTreeMap::new();
            for row in rows(&done, "times", kind) {
                let name = row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
                *seen.entry((name, number(&row, "cpu") as usize)).or_default() += number(&row, "count");
            }
            seen
        };
        let (softirqs, hardirqs) = (seen("softirq", "name"), seen("hardirq", "irq"));
        for (seen, before, after) in [(&softirqs, &before.0, &after.0), (&hardirqs, &before.1, &after.1)] {
            for (key, count) in seen {
                // One more that was begun before the first reading.
                let most = after[key] - before[key] + 1;
                assert!(*count <= most, "{key:?}: {count} of {most}\n{done:#?}");
            }
        }
        let network = |counts: &BTreeMap<(String, usize), u64>| -> u64 {
            counts.iter().filter(|((name, _), _)| name == "NET_RX").map(|(_, count)| count).sum()
        };
        let least = network(&last.0) - network(&first.0);
        // Of those that come while a BPF program runs, ours or another one, the run says how many it has missed.
        let unseen = done.total("unseen");
        let lost = [Again::RecordsLost(&done)];
        let all = network(&softirqs);
        or_again(all + unseen + 1 >= least, &lost, || format!("{all} and {unseen} of {least} softirqs"))?;
        let total = |counts: &BTreeMap<(String, usize), u64>| -> u64 {
            hardirqs.keys().filter_map(|key| counts.get(key)).sum()
        };
        let (least, all) = (total(&last.1) - total(&first.1), hardirqs.values().sum::<u64>());
        or_again(all + unseen + 1 >= least, &lost, || format!("{all} and {unseen} of {least} hard interrupts"))?;
        Ok(())
    });
}

/// What runs on a CPU takes no more than all of its time.
#[test]
fn shares_are_those_of_a_cpu() {
    need_events!();
    let watch = start_watching(&["irqs", "-m", "16M"]);
    packets(2000);
    let done = watch.interrupt().code(0);
    for cpu in online_cpus() {
        let of_cpu = |row: &&Value| row["cpu"] == cpu && row["kind"] != "work" && row["table"] == "times";
        let rows = done.of_type("row");
        let shares: f64 = rows.iter().filter(of_cpu).filter_map(|row| row["cpu_pct"].as_f64()).sum();
        assert!((0.0..=100.0).contains(&shares), "CPU {cpu}: {shares}");
    }
    let interval = done.of_type("interval").pop().unwrap();
    let span_ns = number(&interval, "end_ns") - number(&interval, "start_ns");
    for row in rows(&done, "times", "softirq") {
        assert!(number(&row, "total_ns") <= span_ns && number(&row, "p50_ns") <= number(&row, "max_ns"), "{row}");
    }
    let works = rows(&done, "times", "work");
    assert!(works.iter().all(|row| row.get("cpu_pct").is_none() && row["function"].is_string()), "{works:#?}");
}

/// What is written to one side of a terminal goes through a work item to the other.
#[test]
fn work_is_counted_by_its_function() {
    need_events!();
    const LINES: u64 = 300;
    attempts(|| {
        let pty = nix::pty::openpty(None, None).expect("a terminal");
        let mut mode = nix::sys::termios::tcgetattr(pty.slave.as_fd()).expect("its mode");
        nix::sys::termios::cfmakeraw(&mut mode);
        nix::sys::termios::tcsetattr(pty.slave.as_fd(), nix::sys::termios::SetArg::TCSANOW, &mode).expect("a raw mode");
        let (mut one, mut other) = (File::from(pty.master), File::from(pty.slave));
        let watch = start_watching(&["irqs", "--kinds", "work", "-m", "16M"]);
        for _ in 0..LINES {
            one.write_all(b"x").expect("written");
            other.read_exact(&mut [0]).expect("read");
        }
        let done = watch.interrupt().code(0);
        for table in ["times", "delays"] {
            let rows = rows(&done, table, "work").into_iter();
            let flushes =
                rows.filter(|row| row["function"].as_str().is_some_and(|name| name.contains("flush_to_ldisc")));
            let count: u64 = flushes.map(|row| number(&row, "count")).sum();
            let unseen = done.total("unseen");
            let lost = [Again::RecordsLost(&done)];
            or_again(count + unseen >= LINES, &lost, || format!("{table}: {count} and {unseen} of {LINES}"))?;
        }
        Ok(())
    });
}

/// Each that is as long as the limit has a line, about whom it interrupted.
#[test]
fn long_ones_have_lines() {
    need_events!();
    let watch = start_watching(&["softirqs", "--than", "1ns", "-m", "16M"]);
    packets(200);
    let done = watch.interrupt().code(0);
    let lines = done.of_type("event").into_iter().filter(|event| event["still_open"] == false);
    let lines: Vec<Value> = lines.collect();
    assert!(lines.iter().all(|line| line["kind"] == "softirq"), "{lines:#?}");
    let than = |table: &str| rows(&done, table, "softirq").iter().map(|row| number(row, "than")).sum::<u64>();
    let count = |waited: bool| lines.iter().filter(|line| line["waited"] == waited).count() as u64;
    assert_eq!((count(false), count(true)), (than("times"), than("delays")));
    let own = std::process::id();
    let is_ours = |line: &&Value| line["pid"] == own && line["name"] == "NET_RX" && line["waited"] == false;
    assert!(lines.iter().any(|line| is_ours(&line)), "{lines:#?}");
    assert!(done.of_type("row").iter().all(|row| row["kind"] == "softirq"), "{done:#?}");
}

/// Two names of the command show a part of it, in a view, too.
#[test]
fn parts_have_names() {
    need_events!();
    let kinds = |args: &[&str]| {
        let watch = start_watching(args);
        packets(20);
        writes(2);
        let done = watch.interrupt().code(0);
        let kinds = done.of_type("row").into_iter().map(|row| row["kind"].as_str().unwrap().to_owned());
        kinds.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(kinds(&["hardirqs"]).iter().all(|kind| kind == "hardirq"));
    assert_eq!(kinds(&["softirqs"]).into_iter().collect::<Vec<_>>(), ["softirq"]);
    assert_eq!(kinds(&["run", "softirqs --top 1"]).into_iter().collect::<Vec<_>>(), ["softirq"]);
}

#[test]
fn bad_options_are_refused() {
    run(&["irqs", "--kinds", "all"]).code(2).says(&["--kinds", "hardirqs"]);
    run(&["irqs", "-p", "1"]).code(2).says(&["-p names tasks", "-C"]);
    run(&["softirqs", "--than", "x"]).code(2).says(&["--than"]);
}

#[test]
fn only_the_cpus_that_were_asked_for_have_rows() {
    need_events!();
    let cpu = online_cpus()[0];
    let done = run(&["irqs", "--json", "-C", &cpu.to_string(), "--for", "0.5"]).code(0);
    let rows = done.of_type("row");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["cpu"] == cpu), "{rows:#?}");
}
