//! A slow disk of a known delay: what multi-trace and blktrace say of its requests, and syscalls of the calls that wait for them.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, load_number, number};
use lab::{AMD64, Lab};
use serde_json::Value;

const MS: u64 = 1_000_000;
const FSYNCS: u64 = 25;
/// The delay of the slow disk. It counts ticks of the kernel, which come late on a busy host. For delays of up to 50 ms
/// 6.12 has a thread that spins, and keeps others from their CPU.
const DELAY_MS: u64 = 60;
/// That of the disk below it, by a timer: a request never takes less.
const BELOW_MS: u64 = 8;
/// At least so long is a delay of both.
const LEAST_NS: u64 = (DELAY_MS / 2 + BELOW_MS) * MS;

/// In block events a device is its major number, shifted by 20, and its minor number.
fn script() -> String {
    format!(
        r#"
    mkfifo /tmp/go
    slow_disk /dev/nullb0 {DELAY_MS} {FSYNCS} </tmp/go >/out/load &
    exec 3>/tmp/go
    await grep -q device= /out/load
    number() {{ sed 's/.*[= ]\([0-9]*\):\([0-9]*\).*/\1 * 1048576 + \2/'; }}
    slow=$(($(number </out/load | head -n 1)))
    below=$(($(sed 's/^/=/' /sys/block/nullb0/dev | number)))
    pid=$(sed -n 's/.* pid=//p' /out/load)
    watching bios multi-trace -e "block:block_bio_queue/dev==$slow/key=sector/" \
        -e "block:block_bio_complete/dev==$slow/key=sector/" --than 10ms
    watching requests multi-trace -e "block:block_rq_issue/dev==$below/key=sector/" \
        -e "block:block_rq_complete/dev==$below/key=sector/"
    watching disks blktrace -p $pid --than 10ms
    watching calls syscalls -p $pid --calls fsync --than 10ms -g
    echo go >&3
    wait %1
    ended calls
    ended disks
    stop bios
    stop requests"#
    )
}

#[track_caller]
fn only_row(done: &Done, table: &str) -> Value {
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == table).collect();
    let [row] = &rows[..] else { panic!("not one row: {done:#?}") };
    row.clone()
}

/// All requests have their pair. Returns the sum and the bounds of their lengths.
#[track_caller]
fn check_pairs(done: &Done) -> [u64; 3] {
    let row = only_row(done, "delays");
    assert_eq!((number(&row, "count"), done.total("lost")), (FSYNCS, 0), "{row}");
    ["total_ns", "min_ns", "max_ns"].map(|key| number(&row, key))
}

/// What is measured around something is a little longer than it.
fn is_most_of(part: u64, whole: u64) -> bool {
    part <= whole && part >= whole / 10 * 8
}

/// Each call is as long as its delay, and waits for it in D state.
#[track_caller]
fn check_calls(done: &Done, measured_ns: u64) {
    let row = only_row(done, "calls");
    assert_eq!((number(&row, "count"), number(&row, "errors")), (FSYNCS, 0), "{row}");
    assert!(is_most_of(number(&row, "total_ns"), measured_ns), "{row}: {measured_ns}");
    let lines: Vec<Value> = done.of_type("event").into_iter().filter(|line| line["still_open"] != true).collect();
    assert_eq!(lines.len() as u64, FSYNCS, "{lines:#?}");
    for line in lines {
        let part = |key: &str| line[key].as_u64().unwrap_or(0);
        let parts = ["run_ns", "ready_ns", "sleep_ns", "disk_ns", "other_ns", "unseen_ns"].map(part);
        assert_eq!(parts.iter().sum::<u64>(), part("duration_ns"), "{line}");
        // On a busy host it may get no CPU for a moment before it waits.
        assert!(part("duration_ns") >= LEAST_NS && part("disk_ns") >= part("duration_ns") / 2, "{line}");
        assert!(line["waits_at"].as_str().is_some_and(|place| place.contains("folio_wait")), "{line}");
        let frames = line["stack"].as_array().expect("a stack");
        assert!(frames.iter().any(|frame| frame["symbol"] == "blkdev_fsync"), "{line}");
    }
}

/// Both disks have each request, and both times it is the program's, though a thread of the kernel passes it on.
#[track_caller]
fn check_disks(done: &Done, [total_ns, below_ns]: [u64; 2]) {
    let rows = |table: &str, device: &str| {
        let rows = done.of_type("row").into_iter();
        rows.filter(|row| row["table"] == table && (device.is_empty() || row["device"] == device)).collect::<Vec<_>>()
    };
    let sum = |rows: &[Value], key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    let slow: Vec<Value> = rows("requests", "dm-0");
    let below = rows("requests", "nullb0");
    for (rows, truth_ns) in [(&slow, total_ns), (&below, below_ns)] {
        assert_eq!((sum(rows, "count"), sum(rows, "bytes")), (FSYNCS, FSYNCS * 4096), "{rows:#?}");
        // The pairs of multi-trace below begin as the request is issued.
        assert!(sum(rows, "total_ns").abs_diff(truth_ns) <= truth_ns / 20, "{truth_ns}: {rows:#?}");
    }
    assert!(sum(&below, "device_ns") >= FSYNCS * BELOW_MS * MS, "{below:#?}");
    let [submitter] = &rows("submitters", "")[..] else { panic!("not one submitter: {done:#?}") };
    assert_eq!((&submitter["comm"], number(submitter, "requests")), (&"slow_disk".into(), FSYNCS), "{submitter}");
    let lines = done.of_type("event").into_iter().filter(|line| line["still_open"] != true);
    assert_eq!(lines.filter(|line| line["device"] == "dm-0" && line["comm"] == "slow_disk").count() as u64, FSYNCS);
}

fn check(lab: Lab) {
    let version = lab.version();
    let below = format!("null_blk:irqmode=2,completion_nsec={}", BELOW_MS * MS);
    let output = lab.module(&below).module("dm-delay").example("slow_disk").run(&script());
    let load = output.file("load");
    let measured = load.lines().last().expect("a line");
    let [measured_ns, longest_ns] = ["total_ns", "longest_ns"].map(|key| load_number(measured, key));
    let [total, min, max] = check_pairs(&output.results("bios").code(0));
    let [total_below, min_below, _] = check_pairs(&output.results("requests").code(0));
    println!("{version}: {measured}, requests of {total} ns, from {min} to {max}, {total_below} ns below");
    assert!(is_most_of(total, measured_ns) && min >= LEAST_NS && max <= longest_ns, "{version}");
    // A request of the disk below is a part of that.
    assert!(min_below >= BELOW_MS * MS && total_below <= total - FSYNCS * (DELAY_MS / 2) * MS, "{version}");
    check_disks(&output.results("disks").code(0), [total, total_below]);
    check_calls(&output.results("calls").code(0), measured_ns);
}

#[test]
fn fsyncs_wait_for_a_slow_disk() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

/// Requests to a partition are those that begin in it, whichever device the kernel names.
#[test]
fn a_partition_is_a_part_of_its_disk() {
    need_lab!();
    // A table with one partition: 2048 sectors from sector 2048 on.
    let script = r"
    printf '\203\0\0\0\0\10\0\0\0\10\0\0' | dd of=/dev/nullb0 bs=1 seek=450 2>/dev/null
    printf '\125\252' | dd of=/dev/nullb0 bs=1 seek=510 2>/dev/null
    sync
    blockdev --rereadpt /dev/nullb0
    await [ -b /dev/nullb0p1 ]
    watching part blktrace -d /dev/nullb0p1
    dd if=/dev/zero of=/dev/nullb0p1 bs=4k count=5 oflag=direct 2>/dev/null
    dd if=/dev/zero of=/dev/nullb0 bs=4k count=7 seek=1000 oflag=direct 2>/dev/null
    stop part";
    for series in AMD64 {
        let done = Lab::new(series).module("null_blk:memory_backed=1,gb=1").run(script).results("part").code(0);
        let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "requests");
        let writes: Vec<Value> = rows.filter(|row| row["kind"] == "sync write").collect();
        let [row] = &writes[..] else { panic!("not one row: {done:#?}") };
        assert_eq!(
            (&row["device"], number(row, "count"), number(row, "bytes")),
            (&"nullb0".into(), 5, 5 * 4096),
            "{row}"
        );
    }
}
