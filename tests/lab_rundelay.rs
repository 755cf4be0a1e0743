//! rundelay on other kernels: waits of a cgroup of version 2 with a CPU quota, against what the kernel counts.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{load_number, number};
use lab::{AMD64, Lab};

const MS: u64 = 1_000_000;

/// A shell that spins in a cgroup with a quota, and is stopped while numbers are read: these then stand still. First it
/// has the CPU for itself, then another shell spins beside it.
const SCRIPT: &str = r#"
    cgroup=/sys/fs/cgroup/batch
    grep -q cpu /sys/fs/cgroup/cgroup.subtree_control || echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
    mkdir $cgroup
    echo '20000 100000' >$cgroup/cpu.max
    is_stopped() { grep -q '^State:.T' /proc/$1/status; }
    counted() {
        read run delay times </proc/$spinner/schedstat
        while read key value; do
            case $key in
            nr_throttled) throttled=$value ;;
            throttled_usec) throttled_us=$value ;;
            esac
        done <$cgroup/cpu.stat
        echo "delay_ns=$delay times=$throttled throttled_us=$throttled_us"
    }
    intervals() { [ $(grep -c '"type":"interval"' /out/waits) -ge $1 ]; }
    reported() {
        kill -STOP $spinner
        await is_stopped $spinner
        kill -USR1 $(cat /tmp/waits.pid)
        await intervals $1
        counted
    }
    taskset 2 sh -c 'while :; do :; done' &
    spinner=$!
    echo $spinner >$cgroup/cgroup.procs
    watching waits rundelay -m 4096 -p $spinner
    sleep 0.5
    reported 2
    kill -CONT $spinner
    sleep 2
    reported 3
    taskset 2 sh -c 'while :; do :; done' &
    other=$!
    kill -CONT $spinner
    sleep 2
    reported 4
    kill -KILL $other $spinner
    stop waits"#;

/// Numbers of the kernel at one time.
struct Counted {
    delay_ns: u64,
    times: u64,
    throttled_ns: u64,
}

#[track_caller]
fn check(lab: Lab) {
    let version = lab.version();
    let output = lab.run(SCRIPT);
    let done = output.results("waits").code(0);
    let counted: Vec<Counted> = { output.done.out.iter() }
        .map(|line| Counted {
            delay_ns: load_number(line, "delay_ns"),
            times: load_number(line, "times"),
            throttled_ns: load_number(line, "throttled_us") * 1000,
        })
        .collect();
    assert_eq!((counted.len(), done.total("lost")), (3, 0), "{version}: {done:#?}");
    let rows = done.of_type("row");
    for (at, is_shared) in [(1, false), (2, true)] {
        let is_wanted = |row: &&serde_json::Value| row["table"] == "quotas" && row["interval"] == at + 2;
        let [row] = rows.iter().filter(is_wanted).collect::<Vec<_>>()[..] else {
            panic!("{version}: not one row of interval {}: {done:#?}", at + 2)
        };
        let [waited, throttled, queued, times] =
            ["waited_ns", "throttled_ns", "queued_ns", "times"].map(|key| number(row, key));
        let (before, after) = (&counted[at - 1], &counted[at]);
        let truth = (after.delay_ns - before.delay_ns, after.throttled_ns - before.throttled_ns);
        println!("{version}: waited {waited}, throttled {throttled}, queued {queued}, {times} times: {truth:?}");
        assert_eq!(
            (&row["cgroup"], number(row, "quota_ns"), number(row, "period_ns")),
            (&"/batch".into(), 20 * MS, 100 * MS)
        );
        // The kernel counts a period at its end.
        assert!(waited == throttled + queued && times.abs_diff(after.times - before.times) <= 1, "{version}: {row}");
        let is_close = |number: u64, truth: u64| number.abs_diff(truth) <= truth / 50 + 5 * MS;
        assert!(is_close(waited, truth.0) && is_close(throttled, truth.1), "{version}: {truth:?}: {row}");
        // Alone it waits for its quota and for nothing else.
        assert_eq!(queued > waited / 10, is_shared, "{version}: {row}");
    }
}

#[test]
fn throttled_is_not_queued() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}
