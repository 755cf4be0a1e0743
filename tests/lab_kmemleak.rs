//! kmemleak on other kernels: a module keeps a known number of objects of each allocator.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, number};
use lab::{AMD64, Lab};
use serde_json::Value;

/// Rows of the last interval that the module has a part in, as objects and bytes; bytes are None where nothing tells.
fn kept(done: &Done) -> (u64, Option<u64>) {
    let last = done.total("intervals");
    let of_module = |row: &&Value| {
        let frames = row["stack"].as_array().into_iter().flatten();
        let symbols: Vec<&str> = frames.filter_map(|frame| frame["symbol"].as_str()).collect();
        row["interval"] == last && symbols.contains(&"ppfault_keep")
    };
    let rows = done.of_type("row");
    let rows: Vec<&Value> = rows.iter().filter(of_module).collect();
    let bytes: Option<u64> = rows.iter().map(|row| row["bytes"].as_u64()).sum();
    (rows.iter().map(|row| number(row, "allocs")).sum(), bytes.filter(|_| !rows.is_empty()))
}

/// What is kept of an allocator, as the module is told, and what of it is seen while it is kept and after.
#[track_caller]
fn check(series: &str, before: &str, options: &str, fault: &str, want: (u64, Option<u64>)) {
    let lab = Lab::new(series);
    let version = lab.version();
    let script = format!(
        "{before}
         watching kept kmemleak {options} -g -m 8
         watching freed kmemleak {options} -g -m 8
         echo {fault} >/proc/ppfault
         stop kept
         echo free >/proc/ppfault
         stop freed"
    );
    let output = lab.ppfault().run(&script);
    let done = output.results("kept").code(0);
    println!("{version}: {options}: {:?}", kept(&done));
    assert_eq!(kept(&done), want, "{version}: {options}: {done:#?}");
    assert_eq!((done.total("lost"), done.total("malformed")), (0, 0), "{version}");
    let done = output.results("freed").code(0);
    assert_eq!(kept(&done).0, 0, "{version}: {options}: {done:#?}");
}

#[test]
fn by_preset() {
    need_lab!();
    for series in AMD64 {
        check(series, "", "page", "pages 100 2", (100, Some(100 * 4 * 4096)));
        check(series, "", "percpu", "percpu 300 64", (300, Some(300 * 64)));
        // Each object has a record of the module's own beside it, in a cache of 64 bytes.
        check(series, "", "slab", "kmalloc 500 1000", (1000, Some(500 * (1024 + 64))));
    }
}

/// As people type it who define their own events.
#[test]
fn by_their_own_kprobes() {
    need_lab!();
    const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
    for (series, function) in [("6.1", "pcpu_alloc"), ("6.12", "pcpu_alloc_noprof")] {
        let before = format!(
            "echo 'r:alloc_percpu {function} ptr=$retval' >>{EVENTS}
             echo 'p:free_percpu free_percpu ptr=%di' >>{EVENTS}"
        );
        let options = "--alloc kprobes:alloc_percpu --free kprobes:free_percpu";
        check(series, &before, options, "percpu 300 64", (300, None));
    }
}

#[test]
fn by_kprobes_of_ours() {
    need_lab!();
    for (series, function) in [("6.1", "pcpu_alloc"), ("6.12", "pcpu_alloc_noprof")] {
        let options = format!(
            "--alloc \"kprobe:{function}//args='size=\\$arg1'/,kretprobe:{function}//args='ptr=\\$retval'/\" \
             --free \"kprobe:free_percpu//args='ptr=\\$arg1'/\""
        );
        check(series, "", &options, "percpu 300 64", (300, Some(300 * 64)));
    }
}

#[test]
fn ranges_of_virtual_memory() {
    need_lab!();
    // A page lies behind each range as a guard.
    check("6.12", "", "vmalloc", "vmalloc 50 8192", (50, Some(50 * 3 * 4096)));
    let output = Lab::new("6.1").run("prof refused kmemleak vmalloc --for 1ms");
    output.results("refused").code(1).says(&["vmalloc:alloc_vmap_area"]);
}
