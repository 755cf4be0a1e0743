//! Signals: sent in every way, ignored, handled, waited for, and stopping a process.

use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, raise, signal, sigprocmask};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::sys::{at, at_mut, call, child, close};

pub fn all(_dir: &Path) {
    let _ = handled();
    let _ = awaited();
    let _ = stopped();
}

extern "C" fn nothing(_: libc::c_int) {}

fn handled() -> nix::Result<()> {
    // SAFETY: the handler does nothing.
    unsafe {
        signal(Signal::SIGUSR1, SigHandler::Handler(nothing))?;
        signal(Signal::SIGUSR2, SigHandler::SigIgn)?;
    }
    raise(Signal::SIGUSR1)?;
    raise(Signal::SIGUSR2)?;
    kill(Pid::this(), Signal::SIGUSR1)?;
    let own = std::process::id() as usize;
    call(libc::SYS_tkill, [own, libc::SIGUSR1 as usize]);
    call(libc::SYS_tgkill, [own, own, libc::SIGUSR1 as usize]);
    let mut info = [0i32; 32];
    info[0] = libc::SIGUSR1;
    info[2] = libc::SI_QUEUE;
    call(libc::SYS_rt_sigqueueinfo, [own, libc::SIGUSR1 as usize, at(&info)]);
    call(libc::SYS_rt_tgsigqueueinfo, [own, own, libc::SIGUSR1 as usize, at(&info)]);
    call(libc::SYS_sigaltstack, [0, at_mut(&mut [0usize; 3])]);
    Ok(())
}

fn awaited() -> nix::Result<()> {
    let set = SigSet::from(Signal::SIGUSR1);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    let mask = 1u64 << (libc::SIGUSR1 - 1);
    let fd = call(libc::SYS_signalfd4, [usize::MAX, at(&mask), 8, libc::O_NONBLOCK as usize]);
    raise(Signal::SIGUSR1)?;
    raise(Signal::SIGUSR1)?; // pending already
    call(libc::SYS_rt_sigpending, [at_mut(&mut 0u64), 8]);
    call(libc::SYS_read, [fd as usize, at_mut(&mut [0u8; 128]), 128]);
    close(fd);
    raise(Signal::SIGUSR1)?;
    let soon = [0u64, 1_000_000];
    call(libc::SYS_rt_sigtimedwait, [at(&mask), 0, at(&soon), 8]);
    call(libc::SYS_rt_sigtimedwait, [at(&mask), 0, at(&soon), 8]);
    sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None)
}

fn stopped() -> nix::Result<()> {
    let child = child(|| thread::sleep(Duration::MAX)).ok_or(Errno::EAGAIN)?;
    kill(child, Signal::SIGSTOP)?;
    waitpid(child, Some(WaitPidFlag::WUNTRACED))?;
    kill(child, Signal::SIGCONT)?;
    waitpid(child, Some(WaitPidFlag::WCONTINUED))?;
    kill(child, Signal::SIGTERM)?;
    waitpid(child, None).map(drop)
}
