//! Makes an exact number of system calls, to compare counts with.
//!
//! `flood CALLS [RATE_PER_S] [SYSCALL]`: CALLS calls of SYSCALL, at RATE_PER_S if that is not 0, else at full speed.
//! SYSCALL is getppid (default), getuid, gettid or sched_yield; each is a real call, never cached. Prints `calls=N
//! syscall=NAME nr=N pid=N wall_ns=N`.

use std::{
    env, process,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

const SYSCALLS: [(&str, libc::c_long); 4] = [
    ("getppid", libc::SYS_getppid),
    ("getuid", libc::SYS_getuid),
    ("gettid", libc::SYS_gettid),
    ("sched_yield", libc::SYS_sched_yield),
];
/// A paced run sleeps this long while it is on schedule, so a high rate comes in small bursts.
const STEP: Duration = Duration::from_millis(1);

fn main() {
    let calls: u64 = arg(1, None);
    let per_s: u64 = arg(2, Some(0));
    let name: String = arg(3, Some("getppid".to_owned()));
    let Some(&(name, nr)) = SYSCALLS.iter().find(|(known, _)| *known == name) else {
        eprintln!("flood: unknown syscall {name}");
        process::exit(2);
    };
    let start = Instant::now();
    let mut made = 0;
    while made < calls {
        let due = match per_s {
            0 => calls,
            _ => u64::try_from(start.elapsed().as_nanos() * u128::from(per_s) / 1_000_000_000 + 1)
                .unwrap_or(calls)
                .min(calls),
        };
        if due <= made {
            thread::sleep(STEP);
        }
        for _ in made..due {
            // SAFETY: takes no arguments and touches no memory of ours.
            unsafe { libc::syscall(nr) };
        }
        made = made.max(due);
    }
    println!("calls={made} syscall={name} nr={nr} pid={} wall_ns={}", process::id(), start.elapsed().as_nanos());
}

fn arg<T: FromStr>(index: usize, default: Option<T>) -> T {
    let value = match env::args().nth(index) {
        Some(text) => text.parse().ok(),
        None => default,
    };
    value.unwrap_or_else(|| {
        eprintln!("usage: flood CALLS [RATE_PER_S] [SYSCALL]");
        process::exit(2);
    })
}
