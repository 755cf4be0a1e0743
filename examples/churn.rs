//! Short-lived processes that burn the CPU in a known function.
//!
//! `churn PER_S SECONDS`: PER_S times per second fork and exec of this program as `churn burn`, which spends 3 ms of
//! CPU time in `churn_burn` and exits. Prints `processes=N failed=N late=N wall_ns=N`: all processes that were started,
//! those that failed, and those that were started over 10 ms late because the machine could not keep up.

use std::{
    env,
    hint::black_box,
    process::{self, Child, Command},
    thread,
    time::{Duration, Instant},
};

const BURN_NS: u64 = 3_000_000;
const LATE: Duration = Duration::from_millis(10);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "burn") {
        churn_burn(BURN_NS);
        return;
    }
    let numbers: Option<Vec<f64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[per_s, seconds]) = numbers.as_deref().filter(|numbers| numbers.iter().all(|&n| n > 0.0 && n < 1e6))
    else {
        eprintln!("usage: churn PER_S SECONDS");
        process::exit(2);
    };
    let program = env::current_exe().expect("own path");
    let total = (per_s * seconds).round() as u64;
    let (mut failed, mut late) = (0_u64, 0_u64);
    let mut running: Vec<Child> = Vec::new();
    let start = Instant::now();
    for index in 0..total {
        let due = Duration::from_secs_f64(index as f64 / per_s);
        thread::sleep(due.saturating_sub(start.elapsed()));
        late += u64::from(start.elapsed() > due + LATE);
        running.push(Command::new(&program).arg("burn").spawn().expect("start churn burn"));
        running.retain_mut(|child| match child.try_wait().expect("wait") {
            Some(status) => {
                failed += u64::from(!status.success());
                false
            }
            None => true,
        });
    }
    for mut child in running {
        failed += u64::from(!child.wait().expect("wait").success());
    }
    println!("processes={total} failed={failed} late={late} wall_ns={}", start.elapsed().as_nanos());
}

/// Burns `cpu_ns` of this thread's CPU time. A profiler must find this name.
#[inline(never)]
#[unsafe(no_mangle)]
fn churn_burn(cpu_ns: u64) {
    let end_ns = thread_cpu_ns() + cpu_ns;
    let mut value = 1_u64;
    while thread_cpu_ns() < end_ns {
        // Long enough that the system call that reads the clock hardly shows in a profile.
        for _ in 0..50_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    black_box(value);
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
