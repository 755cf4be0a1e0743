//! A process that is stopped for a moment, its registers and the bytes of its stack.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use perf_prof::unwind::UserRegs;

/// The innermost 64 KiB at most.
const WINDOW_BYTES: usize = 64 << 10;

pub struct StoppedStack {
    pub regs: UserRegs,
    pub stack: Vec<u8>,
}

/// Stops a thread and lets it go on. None: it has gone, or may not be stopped.
pub fn stop_once(tid: i32) -> Option<StoppedStack> {
    let thread = Pid::from_raw(tid);
    ptrace::attach(thread).ok()?;
    let stopped = loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => break seen(thread),
            // It runs another program.
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => ptrace::cont(thread, None).ok()?,
            // A signal that was on its way.
            Ok(WaitStatus::Stopped(_, signal)) => ptrace::cont(thread, signal).ok()?,
            _ => return None,
        }
    };
    ptrace::detach(thread, None).ok()?;
    stopped
}

fn seen(thread: Pid) -> Option<StoppedStack> {
    let regs = user_regs(thread)?;
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut stack = vec![0; WINDOW_BYTES];
    let len = memory.read_at(&mut stack, regs.sp).ok()?;
    stack.truncate(len);
    Some(StoppedStack { regs, stack })
}

#[cfg(target_arch = "x86_64")]
fn user_regs(thread: Pid) -> Option<UserRegs> {
    let regs = ptrace::getregs(thread).ok()?;
    let general = [
        regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8, regs.r9, regs.r10,
        regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
    ];
    let known = UserRegs::new(regs.rip, regs.rsp, regs.rbp, 0);
    Some((0..).zip(general).fold(known, |known, (number, value)| known.with_general(number, value)))
}

#[cfg(target_arch = "aarch64")]
fn user_regs(thread: Pid) -> Option<UserRegs> {
    let regs = ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(thread).ok()?;
    Some(UserRegs::new(regs.pc, regs.sp, regs.regs[29], regs.regs[30]))
}
