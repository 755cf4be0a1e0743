//! reclaim on a machine with cgroups of version 2 and swap: stalls against the pressure that the kernel measures, and
//! a kill when there is neither swap nor memory left in a cgroup; and a machine that is short of memory itself.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::load_number;
use lab::{AMD64, Lab};
use serde_json::Value;

/// A process touches three times as much memory as its cgroup may have, first with swap, then without.
const SCRIPT: &str = r#"
    mkfifo /tmp/go
    hog() {
        watching $1 reclaim -m 1024 -i 200 --by $2
        memory_hog 32 touch 96 1 </tmp/go >/out/said_$1 &
        exec 3>/tmp/go
        await grep -q cgroup= /out/said_$1
        echo go >&3
        wait $!
        stop $1
    }
    mkswap /dev/nullb0 >/dev/null
    swapon /dev/nullb0
    hog swaps process
    swapoff /dev/nullb0
    hog kills cgroup"#;

#[track_caller]
fn check(series: &str) {
    let lab = Lab::new(series).example("memory_hog").module("null_blk:memory_backed=1,gb=1,irqmode=0");
    let version = lab.version();
    let output = lab.run(SCRIPT);
    let said = |name: &str| -> (String, u64, u64) {
        let text = output.file(name);
        let cgroup = text.lines().next().and_then(|line| line.strip_prefix("cgroup=")).expect("its cgroup");
        let end = text.lines().last().expect("what it says at its end");
        (cgroup.to_owned(), load_number(end, "psi_ns"), load_number(end, "killed"))
    };
    let (cgroup, truth_ns, killed) = said("said_swaps");
    let done = output.results("swaps").code(0);
    assert_eq!((killed, done.total("lost")), (0, 0), "{version}: {done:#?}");
    let of_hog = |row: &Value| row["table"] == "pressure" && row["cgroup"] == cgroup.as_str();
    let is_row = |row: &Value| row["type"] == "row" && of_hog(row);
    let stalled_ns = done.sum("stalled_ns", is_row);
    println!("{version}: {stalled_ns} ns of {truth_ns}");
    assert!(stalled_ns.abs_diff(truth_ns) * 20 <= truth_ns, "{version}: {stalled_ns} of {truth_ns}: {done:#?}");
    // The kernel's own numbers are those of intervals at whose end there was the cgroup.
    let some_ns = done.sum("some_ns", is_row);
    assert!(some_ns > 0 && some_ns <= truth_ns, "{version}: {some_ns} of {truth_ns}: {done:#?}");
    assert!(done.json().iter().any(|row| is_row(row) && row["limit_bytes"] == 32 << 20), "{version}: {done:#?}");

    let (cgroup, _, killed) = said("said_kills");
    let done = output.results("kills").code(0);
    let kills: Vec<Value> = done.of_type("event").into_iter().filter(|line| line["kind"] == "oom kill").collect();
    let [kill] = &kills[..] else { panic!("{version}: not one kill: {done:#?}") };
    assert_eq!((killed, &kill["cgroup"]), (1, &cgroup.as_str().into()), "{version}: {kill}");
    assert_eq!((&kill["constraint"], &kill["limit_bytes"]), (&"memcg".into(), &(32 << 20).into()), "{version}: {kill}");
    assert_eq!((&kill["victim"]["pid"], &kill["victim"]["comm"]), (&kill["pid"], &"memory_hog".into()), "{version}");
    assert!(kill["anon_bytes"].as_u64().is_some_and(|bytes| bytes > 20 << 20), "{version}: {kill}");
}

#[test]
fn a_cgroup_of_version_2_stalls_as_the_kernel_says() {
    need_lab!();
    AMD64.into_iter().for_each(check);
}

/// Readers of files without blocks fill the memory of the machine with pages that are free for the taking.
const READERS: &str = r#"
    mke2fs /dev/nullb0 >/dev/null 2>&1
    mkdir /tmp/disk
    mount -t ext4 /dev/nullb0 /tmp/disk
    for file in a b c; do truncate -s 4G /tmp/disk/$file; done
    watching stalls reclaim -m 1024
    for file in a b c; do timeout 5 dd if=/tmp/disk/$file of=/dev/null bs=64k 2>/dev/null & done
    sleep 6
    echo 1 >/proc/sys/vm/compact_memory
    stop stalls"#;

/// What tasks freed themselves is what the kernel has counted; its threads have done the rest.
#[track_caller]
fn check_machine(series: &str) {
    let lab = Lab::new(series).module("null_blk:memory_backed=1,gb=1,irqmode=0").module("ext4").append("mem=320M");
    let version = lab.version();
    let done = lab.run(READERS).results("stalls").code(0);
    assert_eq!(done.total("lost"), 0, "{version}: {done:#?}");
    let of = |table: &'static str, key: &'static str, word: &'static str| {
        move |row: &Value| row["type"] == "row" && row["table"] == table && row[key] == word
    };
    let told = done.sum("reclaimed_bytes", of("stalls", "kind", "direct reclaim"));
    let counted = done.sum("reclaimed_bytes", of("workers", "worker", "direct reclaim"));
    println!("{version}: {told} bytes of {counted}");
    // perf-prof has no row, but it needs memory, too.
    let is_all = told <= counted && (counted - told) * 20 <= counted;
    assert!(told > 1 << 20 && is_all, "{version}: {told} bytes of {counted}: {done:#?}");
    let by_kswapd = done.sum("reclaimed_bytes", of("workers", "worker", "kswapd"));
    let cpu_ns = done.sum("cpu_ns", of("workers", "worker", "kswapd"));
    assert!(by_kswapd > told && cpu_ns > 0, "{version}: {by_kswapd} in {cpu_ns} ns: {done:#?}");
    assert!(done.sum("count", of("stalls", "kind", "compaction")) > 0, "{version}: {done:#?}");
    let comms: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "stalls").collect();
    assert!(!comms.iter().any(|row| row["comm"] == "kcompactd0"), "{version}: nobody waits for it: {comms:#?}");
}

#[test]
fn direct_reclaim_is_what_the_kernel_counts() {
    need_lab!();
    AMD64.into_iter().for_each(check_machine);
}
