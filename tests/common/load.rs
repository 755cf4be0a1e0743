//! Programs with known behaviour that run beside perf-prof.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::{GUARD, ends_within};

/// A load of ours that ends with the test.
pub struct Load(Child);

impl Load {
    pub fn start(mut command: Command) -> Load {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: prctl(2) with integers is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let what = format!("{command:?}");
        Load(command.spawn().unwrap_or_else(|err| panic!("{what}: {err}")))
    }

    /// A program with arguments. examples/dstate awaits a line before it goes.
    pub fn of(program: &str, args: &[&str]) -> Load {
        let mut command = Command::new(program);
        command.args(args).env("DSTATE_GO", "stdin");
        Load::start(command)
    }

    /// A shell that runs the lines that it is sent.
    pub fn shell() -> Load {
        Load::start(Command::new("sh"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) {
        use std::io::Write;
        let stdin = self.0.stdin.as_mut().expect("piped");
        // One write, which one read of the load gets.
        stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).expect("the load has gone");
    }

    /// The next line of its output.
    pub fn says(&mut self) -> String {
        use std::io::Read;
        let mut line = Vec::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        let mut byte = [0];
        while stdout.read(&mut byte).is_ok_and(|len| len == 1) && byte != *b"\n" {
            line.push(byte[0]);
        }
        assert!(byte == *b"\n" || !line.is_empty(), "the load has ended");
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Closes its stdin, which ends a shell, and waits for it.
    pub fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(ends_within(self.pid(), GUARD), "the load hangs");
        let _ = self.0.wait();
    }
}

/// Gives a process a real-time priority, so that its timed work is on time on a busy machine.
pub fn hurry(pid: i32) {
    becomes_real_time(pid, 1);
}

/// The highest one. False: not permitted.
pub fn before_all_others(tid: i32) -> bool {
    becomes_real_time(tid, 99)
}

/// SCHED_FIFO for a thread; 0 is the calling one. False: not permitted.
pub fn becomes_real_time(tid: i32, priority: libc::c_int) -> bool {
    // SAFETY: the kernel reads one int: that is all of a `sched_param` that it knows.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, libc::SCHED_FIFO, &raw const priority) == 0 }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
