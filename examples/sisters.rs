//! Two children whose events the kernel may swap.
//!
//! `sisters COMMAND [ARG]...`: two children on CPU 0, with real-time priority where that is allowed, so that no other
//! task runs between them. The elder child wakes the younger twice with a byte, and sleeps; then the younger exits, and
//! the elder executes the command. The kernel swaps the events of two such tasks when one follows the other on a CPU.
//! Prints the output of the command, and fails if the command fails.

use std::io::{Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::time::Duration;
use std::{env, thread};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

const PRIORITY: i32 = 10;
/// Long enough for the other child to block.
const PAUSE: Duration = Duration::from_millis(10);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some((program, args)) = args.split_first() else {
        eprintln!("usage: sisters COMMAND [ARG]...");
        process::exit(2);
    };
    let mut cpu = CpuSet::new();
    cpu.set(0).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpu)).expect("CPU 0");
    // SAFETY: a structure of integers, of which the kernel reads the first; C libraries add others after it.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: the call reads `parameters`, which outlives it.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    let (mut hears, mut tells) = pipe().expect("a pipe");
    let younger = child(|| hears.read_exact(&mut [0; 2]).expect("two bytes"));
    let elder = child(|| {
        for _ in 0..2 {
            thread::sleep(PAUSE);
            tells.write_all(&[1]).expect("a sister who reads");
        }
        thread::sleep(PAUSE);
        panic!("{program}: {}", Command::new(program).args(args).exec());
    });
    let ends: Vec<WaitStatus> = [younger, elder].map(|child| waitpid(child, None).expect("a child")).to_vec();
    let is_well = |end: &WaitStatus| matches!(end, WaitStatus::Exited(_, 0));
    process::exit(i32::from(!ends.iter().all(is_well)));
}

fn child(does: impl FnOnce()) -> Pid {
    // SAFETY: there is no other thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            does();
            process::exit(0);
        }
    }
}
