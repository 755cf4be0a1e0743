//! Programs behind a seccomp filter that refuses some system calls, or leaves them waiting.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A system call that is answered with an errno.
#[derive(Clone, Copy)]
pub struct Refusal {
    pub nr: libc::c_long,
    pub errno: i32,
    /// Only if the lower half of each of these arguments matches.
    pub when: &'static [(u32, Arg)],
}

#[derive(Clone, Copy)]
pub enum Arg {
    AtLeast(u32),
    /// One of these bits.
    Has(u32),
}

impl Refusal {
    /// Whatever the arguments.
    pub fn of(nr: libc::c_long, errno: i32) -> Refusal {
        Refusal { nr, errno, when: &[] }
    }

    fn compile(&self) -> Vec<libc::sock_filter> {
        let load = |offset: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
        let mut tests = vec![(0, libc::BPF_JEQ, self.nr as u32)]; // seccomp_data.nr
        tests.extend(self.when.iter().map(|&(arg, test)| match test {
            Arg::AtLeast(least) => (16 + 8 * arg, libc::BPF_JGE, least), // seccomp_data.args, little endian
            Arg::Has(bits) => (16 + 8 * arg, libc::BPF_JSET, bits),
        }));
        let len = tests.len();
        let mut program = Vec::new();
        for (index, (offset, test, value)) in tests.into_iter().enumerate() {
            // Two steps for each test behind this one, and the return.
            let past = u8::try_from((len - index - 1) * 2 + 1).expect("a short program");
            program.extend([load(offset), step(libc::BPF_JMP | test | libc::BPF_K, 0, past, value)]);
        }
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | self.errno as u32));
        program
    }
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// `command` behind a filter.
pub fn refused(mut command: Command, refusals: &[Refusal]) -> Command {
    let mut program: Vec<libc::sock_filter> = refusals.iter().flat_map(Refusal::compile).collect();
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: both calls are async-signal-safe; the kernel copies the program, which lives here.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure calls prctl alone, and touches no memory but its own.
    unsafe { command.pre_exec(install) };
    command
}

/// `command`, whose threads wait for ever in this system call, as in a file whose server does not answer.
pub fn hangs(mut command: Command, nr: libc::c_long) -> Command {
    let allow = step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW);
    let mut program = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // seccomp_data.nr
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, nr as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        allow,
    ];
    let install = move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: all calls are async-signal-safe; the kernel copies the program, which lives here. The program itself
        // keeps the descriptor at which somebody could answer, and does not know of it.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let new = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            let listener =
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, new, &raw const filter) as i32;
            if listener < 0 { listener } else { libc::fcntl(listener, libc::F_SETFD, 0) }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes system calls alone, and touches no memory but its own.
    unsafe { command.pre_exec(install) };
    command
}
