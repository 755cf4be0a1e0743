//! Runs perf-prof as a user would and waits for what it prints.
//!
//! Nothing sleeps: a test waits for a line, for the end of a process, or repeats a provocation until it was seen. Whatever takes
//! longer than [`GUARD`] is killed and fails.
#![allow(dead_code)] // each test binary uses a part

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use perf_prof::perf::Attr;
use perf_prof::perf::attr::Missing;
use perf_prof::sys;
use perf_prof::sys::perf::Watch;
use serde_json::Value;

/// Far beyond anything but a hang.
pub const GUARD: Duration = Duration::from_secs(30);
/// Between two provocations of an event that was not seen yet.
const AGAIN: Duration = Duration::from_millis(10);

/// Leaves the test when this machine does not let us trace.
#[macro_export]
macro_rules! need_events {
    () => {
        if !$crate::common::can_trace() {
            return;
        }
    };
}

/// Leaves the test for want of something that this machine may lack.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("skipped: {}", format_args!($($why)*));
        return;
    }};
}

/// False, with the reason on stdout, without root or perf events. PERF_PROF_TESTS=strict says that both are there.
pub fn can_trace() -> bool {
    let why = if !sys::is_root() {
        "needs root".to_owned()
    } else {
        let tid = nix::unistd::gettid().as_raw();
        let cpu = online_cpus()[0];
        match Missing::default().open(&mut Attr::dummy(), Watch::Task { tid, cpu }) {
            Ok(_) => return true,
            Err(err) => format!("perf_event_open: {err}"),
        }
    };
    assert!(!strict(), "PERF_PROF_TESTS=strict, but {why}");
    println!("skipped: {why}");
    false
}

pub fn strict() -> bool {
    std::env::var("PERF_PROF_TESTS").is_ok_and(|value| value == "strict")
}

pub fn online_cpus() -> Vec<u32> {
    perf_prof::perf::target::online_cpus(&Default::default()).expect("online CPUs")
}

/// A program of examples/, which cargo builds for its tests.
pub fn example(name: &str) -> String {
    let exe = std::env::current_exe().expect("own path");
    let path: PathBuf = exe.ancestors().nth(2).expect("target/PROFILE/deps").join("examples").join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// The calling thread.
pub fn own_tid() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// One system call that nothing else in a test makes.
pub fn getppid() {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Another one.
pub fn getuid() {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getuid) };
}

/// The selector of a system call.
pub fn syscall(nr: libc::c_long) -> String {
    format!("raw_syscalls:sys_enter/id=={nr}/")
}

#[derive(Debug)]
enum Line {
    Out(String),
    Err(String),
}

/// A running program whose output is read as it comes.
pub struct Prog {
    what: String,
    child: Child,
    lines: Receiver<Line>,
    pub out: Vec<String>,
    pub err: Vec<String>,
    until: Instant,
}

/// How it ended and all that it printed.
#[derive(Debug)]
pub struct Done {
    what: String,
    status: ExitStatus,
    pub out: Vec<String>,
    pub err: Vec<String>,
    /// The last line of the workload, of [`run_over`].
    pub load: String,
}

/// perf-prof with these arguments.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.args(args);
    command
}

/// perf-prof, started.
pub fn start(args: &[&str]) -> Prog {
    Prog::spawn(command(args))
}

/// perf-prof, from its start to its end.
pub fn run(args: &[&str]) -> Done {
    start(args).finish()
}

/// perf-prof over a workload that has a stdout of its own: what it prints cannot end up inside a line of ours.
#[track_caller]
pub fn run_over(options: &[&str], workload: &[&str]) -> Done {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a path in UTF-8");
    let mut done = run(&[options, &["-o", path, "--"], workload].concat()).code(0);
    done.load = std::mem::take(&mut done.out).pop().unwrap_or_default();
    done.out = std::fs::read_to_string(path).expect("the results").lines().map(str::to_owned).collect();
    done
}

impl Prog {
    pub fn spawn(mut command: Command) -> Prog {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|err| panic!("{what}: {err}"));
        let (sender, lines) = channel();
        follow(child.stdout.take().expect("piped"), Line::Out, sender.clone());
        follow(child.stderr.take().expect("piped"), Line::Err, sender);
        Prog { what, child, lines, out: Vec::new(), err: Vec::new(), until: Instant::now() + GUARD }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("signal");
    }

    /// The next line of stdout that `wanted` likes.
    pub fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.provoke(|| {}, wanted)
    }

    /// Repeats `event` until a line of stdout that `wanted` likes has come.
    pub fn provoke(&mut self, event: impl FnMut(), wanted: impl Fn(&str) -> bool) -> String {
        self.next(event, |line| match line {
            Line::Out(line) => wanted(line),
            Line::Err(_) => false,
        })
    }

    /// The next line of stderr that `wanted` likes.
    pub fn err_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.next(
            || {},
            |line| match line {
                Line::Out(_) => false,
                Line::Err(line) => wanted(line),
            },
        )
    }

    fn next(&mut self, mut event: impl FnMut(), wanted: impl Fn(&Line) -> bool) -> String {
        loop {
            event();
            match self.receive(AGAIN) {
                Ok(line) if wanted(&line) => return self.keep(line),
                Ok(line) => drop(self.keep(line)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.fail("ended before it printed what was waited for"),
            }
        }
    }

    fn receive(&mut self, most: Duration) -> Result<Line, RecvTimeoutError> {
        if Instant::now() >= self.until {
            self.fail("hangs");
        }
        self.lines.recv_timeout(most)
    }

    fn keep(&mut self, line: Line) -> String {
        let (list, line) = match line {
            Line::Out(line) => (&mut self.out, line),
            Line::Err(line) => (&mut self.err, line),
        };
        list.push(line.clone());
        line
    }

    fn fail(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        let tail = |lines: &[String]| lines[lines.len().saturating_sub(20)..].join("\n");
        panic!("{}: {why}\nstdout:\n{}\nstderr:\n{}", self.what, tail(&self.out), tail(&self.err));
    }

    /// Reads to the end of the output and waits for the exit.
    pub fn finish(mut self) -> Done {
        loop {
            match self.receive(Duration::from_millis(500)) {
                Ok(line) => drop(self.keep(line)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let left = self.until.saturating_duration_since(Instant::now());
        if !ends_within(self.pid(), left) {
            self.fail("closed its output and hangs");
        }
        let status = self.child.wait().expect("wait");
        let (what, out, err) = (self.what.clone(), std::mem::take(&mut self.out), std::mem::take(&mut self.err));
        Done { what, status, out, err, load: String::new() }
    }

    /// Ctrl-C, then [`Prog::finish`].
    pub fn interrupt(self) -> Done {
        self.signal(nix::sys::signal::Signal::SIGINT);
        self.finish()
    }
}

impl Drop for Prog {
    fn drop(&mut self) {
        let _ = self.child.kill(); // after a panic; else it has ended
        let _ = self.child.wait();
    }
}

fn follow(from: impl std::io::Read + Send + 'static, wrap: fn(String) -> Line, to: Sender<Line>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            if to.send(wrap(text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}

/// True when a process that we may wait for ends in time.
pub fn ends_within(pid: i32, most: Duration) -> bool {
    let Ok(fd) = sys::poll::pidfd(pid) else { return true };
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let most = PollTimeout::try_from(most).expect("a timeout");
    poll(&mut fds, most).is_ok_and(|ready| ready > 0)
}

impl Done {
    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, want: i32) -> Done {
        let how = match self.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => "its code".to_owned(),
        };
        assert_eq!(self.status.code(), Some(want), "{}: {how}; stderr:\n{}", self.what, self.err());
        self
    }

    pub fn err(&self) -> String {
        self.err.join("\n")
    }

    /// Asserts that stderr has each of these.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Done {
        let err = self.err();
        for word in words {
            assert!(err.contains(word), "{}: {word:?} is not in stderr:\n{err}", self.what);
        }
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        self.out
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{}: {err}: {line}", self.what)))
            .collect()
    }

    /// The objects of one type.
    #[track_caller]
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        self.json().into_iter().filter(|object| object["type"] == kind).collect()
    }

    /// The last line, which must be the `end` object, and the only one.
    #[track_caller]
    pub fn end(&self) -> Value {
        let last = self.out.last().unwrap_or_else(|| panic!("{}: no output; stderr:\n{}", self.what, self.err()));
        let end: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(end["type"], "end", "{}: {last}", self.what);
        let ends = self.out.iter().filter(|line| line.starts_with(r#"{"type":"end""#)).count();
        assert_eq!(ends, 1, "{}", self.what);
        end
    }
}

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

    /// A shell that runs each line it is told to.
    pub fn shell() -> Load {
        Load::start(Command::new("sh"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Hands a shell a line.
    pub fn tell(&mut self, line: &str) {
        use std::io::Write;
        let stdin = self.0.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("the shell has gone");
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
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Closes its stdin, which ends a shell, and waits for it.
    pub fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(ends_within(self.pid(), GUARD), "the load hangs");
        let _ = self.0.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number behind `key` in an object.
#[track_caller]
pub fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {object}"))
}

/// `key=N` of the line that a load prints at its end.
#[track_caller]
pub fn load_number(line: &str, key: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key}= in {line:?}"))
}
