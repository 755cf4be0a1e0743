//! Two threads pass one byte back and forth through a pair of pipes: a known number of wake-ups and switches.
//!
//! `pingpong ROUNDS [CPU_A CPU_B]`: thread `ping` on CPU_A, `pong` on CPU_B; both on the first allowed CPU by default.
//! On one CPU both are SCHED_BATCH, so that a wake-up never preempts the waker: in each round, each thread waits once
//! and wakes the other once, which is one pair of switches. On two CPUs a thread may find its byte already there, and
//! not wait. Prints `switch_pairs=N rounds=N ping_tid=N pong_tid=N ping_nvcsw=N ping_nivcsw=N pong_nvcsw=N
//! pong_nivcsw=N max_round_ns=N wall_ns=N`. `switch_pairs` is ROUNDS; nvcsw and nivcsw are the voluntary and
//! involuntary switches that the kernel counted in the rounds; no latency in the rounds is above `max_round_ns`.

use std::{
    env,
    io::{Read, Write, pipe},
    mem, process, thread,
    time::Instant,
};

struct Side {
    tid: libc::c_long,
    nvcsw: libc::c_long,
    nivcsw: libc::c_long,
    max_round_ns: u128,
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let (rounds, cpus) = match numbers.as_deref() {
        Some(&[rounds]) => (rounds, [first_allowed_cpu(); 2]),
        Some(&[rounds, a, b]) => (rounds, [a, b]),
        _ => {
            eprintln!("usage: pingpong ROUNDS [CPU_A CPU_B]");
            process::exit(2);
        }
    };
    let same_cpu = cpus[0] == cpus[1];
    let (mut ping_in, mut pong_out) = pipe().expect("pipe");
    let (mut pong_in, mut ping_out) = pipe().expect("pipe");
    let start = Instant::now();
    let ping = thread::Builder::new().name("ping".to_owned()).spawn(move || {
        side(cpus[0], same_cpu, || {
            (0..rounds)
                .map(|_| {
                    let round = Instant::now();
                    ping_out.write_all(&[1]).expect("write");
                    ping_in.read_exact(&mut [0]).expect("read");
                    round.elapsed().as_nanos()
                })
                .max()
                .unwrap_or(0)
        })
    });
    let pong = thread::Builder::new().name("pong".to_owned()).spawn(move || {
        side(cpus[1], same_cpu, || {
            for _ in 0..rounds {
                pong_in.read_exact(&mut [0]).expect("read");
                pong_out.write_all(&[1]).expect("write");
            }
            0
        })
    });
    let [ping, pong] = [ping, pong].map(|thread| thread.expect("spawn").join().expect("a side failed"));
    let wall_ns = start.elapsed().as_nanos();
    print!("switch_pairs={rounds} rounds={rounds} ping_tid={} pong_tid={} ", ping.tid, pong.tid);
    print!("ping_nvcsw={} ping_nivcsw={} ", ping.nvcsw, ping.nivcsw);
    print!("pong_nvcsw={} pong_nivcsw={} ", pong.nvcsw, pong.nivcsw);
    println!("max_round_ns={} wall_ns={wall_ns}", ping.max_round_ns);
}

/// Runs `rounds` on `cpu`.
fn side(cpu: usize, same_cpu: bool, rounds: impl FnOnce() -> u128) -> Side {
    pin(cpu);
    if same_cpu {
        never_preempt();
    }
    let before = usage();
    let max_round_ns = rounds();
    let after = usage();
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    let nvcsw = after.ru_nvcsw - before.ru_nvcsw;
    let nivcsw = after.ru_nivcsw - before.ru_nivcsw;
    Side { tid, nvcsw, nivcsw, max_round_ns }
}

/// Makes the thread SCHED_BATCH: its wake-ups preempt no task. Needs no privilege.
fn never_preempt() {
    let param: libc::c_int = 0; // the only field of `sched_param` that the kernel reads
    // SAFETY: the kernel reads one int. The raw call, as musl's wrapper always fails.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const param) };
    assert_eq!(result, 0, "cannot become SCHED_BATCH");
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

/// Voluntary and involuntary switches of this thread.
fn usage() -> libc::rusage {
    // SAFETY: an `rusage` is plain numbers, all of which the kernel fills in.
    unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}
