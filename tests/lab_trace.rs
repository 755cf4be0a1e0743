//! trace on other kernels: our text of events against the kernel's own, and system calls by their names.
//!
//! Not compared: what `tests/oracle.rs` leaves out, and `neigh:neigh_create`, whose bytes the kernel leaves unset, too.
//! `no_hash_pointers` makes the kernel print addresses; the trace option `hash-ptr` does so, too, but takes away texts on 6.1.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;
#[path = "common/kernel_text.rs"]
mod kernel_text;

use common::{load_number, number};
use lab::{AMD64, Lab};

/// Fewer would prove little: the load alone makes more.
const LEAST_EVENTS: usize = 60;

const SCRIPT: &str = "
    systems='avc block capability cgroup exceptions filelock filemap hrtimer icmp initcall ipi irq irq_vectors kmem
        maple_tree mmap mmap_lock module msr napi net oom page_pool pagemap percpu power printk raw_syscalls rcu regmap
        rpm sched signal skb sock task tcp timer tlb udp vmalloc vmscan workqueue writeback x86_fpu'
    tracing=/sys/kernel/tracing
    instance=$tracing/instances/oracle
    mkdir $instance
    echo 16384 >$instance/buffer_size_kb

    mkfifo /tmp/go
    many_events </tmp/go >/tmp/said &
    load=$!
    exec 3>/tmp/go
    echo 1 >$instance/options/event-fork
    echo $load >$instance/set_event_pid
    list=
    for system in $systems; do
        [ -d $tracing/events/$system ] || continue
        echo 1 >$instance/events/$system/enable
        list=$list${list:+,}$system:'*'
    done

    watching ours trace -m 4M -e $list -p $load
    for round in 1 2; do
        echo go >&3
        rounds_are() { [ $(grep -c done /tmp/said) = $1 ]; }
        await rounds_are $round
    done
    stop ours
    echo 0 >$instance/tracing_on
    cat $instance/per_cpu/*/stats >/out/stats
    cat $instance/trace >/out/theirs
    exec 3>&-

    prof calls trace --json -m 4M -e 'syscalls:*' -o /out/called -- flood 1000";

fn check(lab: Lab) {
    let version = lab.version();
    let output = lab.append("no_hash_pointers").example("many_events").example("flood").run(SCRIPT);
    let ours = output.results("ours").code(0);
    assert!(output.file("stats").lines().all(|line| !line.starts_with("overrun") || line == "overrun: 0"));
    let lines: Vec<&str> = ours.out.iter().map(String::as_str).filter(|line| !has_unset_bytes(line)).collect();
    let compared = kernel_text::compare(&lines.join("\n"), kernel_text::texts(output.file("theirs").as_bytes()));
    println!("{version}: {} different events: {compared:?}", compared.len());
    assert!(compared.len() >= LEAST_EVENTS, "{version}: only {compared:?}");

    let flood = output.results("calls").code(0);
    let called = output.file("called");
    let objects: Vec<serde_json::Value> =
        called.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let end = objects.last().expect("an end");
    assert_eq!((&end["type"], number(end, "lost")), (&"end".into(), 0), "{version}: {end}");
    let count = |name: &str| objects.iter().filter(|object| object["event"] == name).count() as u64;
    let calls = load_number(flood.line_with("calls"), "calls");
    assert_eq!((count("syscalls:sys_enter_getppid"), count("syscalls:sys_exit_getppid")), (calls, calls), "{version}");
    assert_eq!((count("syscalls:sys_exit_execve"), count("syscalls:sys_enter_exit_group")), (1, 1), "{version}");
}

/// See tests/oracle.rs.
fn has_unset_bytes(line: &str) -> bool {
    [r#""event":"writeback:writeback_single_inode"#, r#""event":"neigh:neigh_create"#]
        .iter()
        .any(|event| line.contains(event))
}

#[test]
fn texts_and_system_calls() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

#[test]
fn texts_and_system_calls_on_arm64() {
    need_lab!();
    check(Lab::arm64("6.12"));
}
