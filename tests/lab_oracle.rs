//! perf-prof's text of events against the kernel's own, as in `tests/oracle.rs`, on other kernels.
//!
//! First a round of the load tells which events fire. Events that fire very often are compared in a short room
//! only: an emulated machine takes its time for each. `no_hash_pointers` makes the kernel print addresses; the trace
//! option `hash-ptr` does so, too, but takes away texts on 6.1.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;
#[path = "common/kernel_text.rs"]
mod kernel_text;

use kernel_text::{Compared, Trace};
use lab::{AMD64, Lab};

/// Of these kernels, without those of system calls: fewer are a fault of the load, or of ours. 6.1 has 197 each time,
/// and up to eleven more that depend on what the kernel had to do just then.
const LEAST_EVENTS: usize = 190;
/// Of system calls: the call and the return of nearly all that there are.
const LEAST_CALLS: usize = 500;

const SCRIPT: &str = r#"
    tracing=/sys/kernel/tracing
    mke2fs /dev/nullb0 >/dev/null
    mkdir -p /tmp /files
    mount -t ext4 /dev/nullb0 /files
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    mkfifo /tmp/go
    TMPDIR=/files everything </tmp/go >/tmp/said &
    load=$!
    exec 3>/tmp/go
    told=0
    said() { [ $(grep -c done /tmp/said) = $told ]; }
    tell() {
        told=$((told + 1))
        echo $1 >&3
        await said
    }
    instance() {
        instance=$tracing/instances/$1
        mkdir $instance
        echo 40000 >$instance/buffer_size_kb
        echo mono >$instance/trace_clock
        echo 1 >$instance/options/event-fork
        echo $load >$instance/set_event_pid
    }
    taken() {
        echo 0 >$instance/tracing_on
        cat $instance/per_cpu/*/stats >/out/$1.stats
        cat $instance/trace
        rmdir $instance
    }

    instance fired
    echo 1 >$instance/events/enable
    tell go
    echo 1 >$instance/options/raw
    for place in $tracing/events/*/*/id; do
        read id <$place
        place=${place#$tracing/events/}
        echo $id ${place%/id}
    done >/tmp/ids
    taken fired | awk -v often=100 '
        FILENAME != "-" { name[$1] = $2; next }
        { fired[$NF]++ }
        END { for (id in fired) if (id in name) print name[id] >("/tmp/events." (fired[id] > often)) }' /tmp/ids -
    for often in 0 1; do
        grep -v -e ^ftrace/ -e ^lock/contention_ -e /irq_work_exit /tmp/events.$often >/tmp/wanted.$often
    done

    compare() {
        name=$1 events=$2
        shift 2
        instance $name
        list=
        while read place; do
            echo 1 >$instance/events/$place/enable
            list=$list${list:+,}${place%/*}:${place#*/}
        done <$events
        watching $name trace --no-paths -m 8M -e $list -p $load
        closed=1
        is_closed() { tail -c 600 /out/$name | grep -q "\"type\":\"interval\".*\"interval\":$closed,"; }
        for room; do
            tell $room
            closed=$((closed + 1))
            kill -USR1 $(cat /tmp/$name.pid)
            await is_closed
        done
        stop $name
        taken $name >/out/$name.theirs
    }
    compare seldom /tmp/wanted.0 $(everything --rooms | grep -v uring)
    compare often /tmp/wanted.1 signals
    exec 3>&-"#;

fn check(lab: impl Fn() -> Lab) {
    let version = lab().version();
    let mut compared = compare(lab());
    // What the kernel does beside the load depends on how long all takes, and an event that comes more often where that is
    // long is looked for in one room only: another boot has others.
    let is_enough = |(calls, others): (usize, usize)| calls >= LEAST_CALLS && others >= LEAST_EVENTS;
    if !compared.wrong().is_empty() || !is_enough(compared.kinds()) {
        let mut again = compare(lab());
        compared.confirm(&again);
        again.confirm(&compared);
        compared.join(again);
    }
    println!("{version}:");
    let (calls, others) = compared.check();
    assert!(is_enough((calls, others)), "{version}: {others} events, {calls} of system calls");
}

/// One boot.
fn compare(lab: Lab) -> Compared {
    let version = lab.version();
    let modules = ["loop", "veth", "dummy", "bridge", "overlay", "null_blk:memory_backed=1,gb=1"];
    let lab = modules.iter().fold(lab, |lab, module| lab.module(module));
    let output = lab.append("no_hash_pointers").example("everything").run(SCRIPT);
    let mut compared = Compared::default();
    for name in ["fired", "seldom", "often"] {
        let stats = output.file(&format!("{name}.stats"));
        assert!(stats.lines().all(|line| !line.starts_with("overrun") || line == "overrun: 0"), "{name}: {stats}");
    }
    for name in ["seldom", "often"] {
        let ours = output.results(name).code(0);
        let theirs = Trace::of(output.file(&format!("{name}.theirs")).as_bytes());
        let unseen = compared.add(&ours.out.join("\n"), theirs);
        assert!(unseen.is_empty(), "{version}: only the kernel shows {unseen:?}");
    }
    compared
}

#[test]
fn our_text_is_the_kernels() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(|| Lab::new(series).by_turns()));
}

#[test]
fn our_text_is_the_kernels_on_arm64() {
    need_lab!();
    check(|| Lab::arm64("6.12"));
}
