//! Threads that wait for the same CPU, each for a different reason.
//!
//! `queue MS [CPU]`: on CPU, the first allowed one by default, `hog-a` and `hog-b` never stop, `yields` yields
//! repeatedly, and `serves` works for 1 ms whenever `asks`, which may run on any CPU, wakes it: every 3 ms. After MS
//! prints for each `NAME_tid=N NAME_delay_ns=N NAME_nvcsw=N NAME_nivcsw=N`, all on one line: its run delay by the
//! scheduler's accounting, and its voluntary and involuntary context switches.

use std::{
    env, fs,
    io::{Read, Write, pipe},
    mem, process, thread,
    time::{Duration, Instant},
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let (time, cpu) = match numbers.as_deref() {
        Some(&[ms]) => (ms, first_allowed_cpu()),
        Some(&[ms, cpu]) => (ms, cpu as usize),
        _ => {
            eprintln!("usage: queue MS [CPU]");
            process::exit(2);
        }
    };
    let end = Instant::now() + Duration::from_millis(time);
    let on_cpu = |name: &'static str, does: Box<dyn FnOnce() + Send>| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            pin(cpu);
            does();
            (name, tid(), delay_ns(), [switches("voluntary_ctxt_switches:"), switches("nonvoluntary_ctxt_switches:")])
        });
        thread.expect("spawn")
    };
    let (mut requests, mut asks) = pipe().expect("pipe");
    let threads = [
        on_cpu("hog-a", Box::new(move || work_until(end))),
        on_cpu("hog-b", Box::new(move || work_until(end))),
        on_cpu(
            "yields",
            Box::new(move || {
                while Instant::now() < end {
                    thread::yield_now();
                }
            }),
        ),
        on_cpu(
            "serves",
            Box::new(move || {
                while requests.read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
                    work_until(Instant::now() + Duration::from_millis(1));
                }
            }),
        ),
    ];
    let client = thread::Builder::new().name("asks".to_owned()).spawn(move || {
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(3));
            asks.write_all(&[1]).expect("write");
        }
    });
    client.expect("spawn").join().expect("it asks");
    let told = threads.map(|thread| {
        let (name, tid, delay_ns, [nvcsw, nivcsw]) = thread.join().expect("a thread failed");
        format!("{name}_tid={tid} {name}_delay_ns={delay_ns} {name}_nvcsw={nvcsw} {name}_nivcsw={nivcsw}")
    });
    println!("{}", told.join(" "));
}

fn work_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn tid() -> libc::c_long {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Run delay of the calling thread.
fn delay_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').nth(1).and_then(|delay| delay.parse().ok()).expect("a number")
}

/// A counter in the status file of the calling thread.
fn switches(head: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/status").expect("status");
    text.lines().find_map(|line| line.strip_prefix(head)?.trim().parse().ok()).expect("a number")
}

fn pin(cpu: usize) {
    assert!(cpu < libc::CPU_SETSIZE as usize, "CPU {cpu} is out of range");
    // SAFETY: a `cpu_set_t` is plain bits; `cpu` is within it, as asserted; the kernel only reads the set.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(result, 0, "cannot run on CPU {cpu}");
}

fn first_allowed_cpu() -> usize {
    // SAFETY: a `cpu_set_t` is plain bits, and the kernel writes no more than its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    // SAFETY: `cpu` is within the set.
    (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).unwrap_or(0)
}
