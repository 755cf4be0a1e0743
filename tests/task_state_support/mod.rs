//! Runs of perf-prof beside loads whose numbers are known.

#[path = "../common/visible.rs"]
mod visible;

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Whatever is not over by then hangs.
const GUARD: Duration = Duration::from_secs(60);

/// True when this machine lets us trace; else says why the test is skipped.
pub fn can_trace() -> bool {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return false;
    }
    if let Err(err) = open_dummy() {
        println!("skipped: perf events do not work here: {err}");
        return false;
    }
    true
}

/// Skips for want of something else. Where events work, a strict run takes that for a failure.
pub fn skip(why: &str) {
    assert!(env::var_os("PERF_PROF_TESTS").is_none_or(|value| value != "strict"), "skipped: {why}");
    println!("skipped: {why}");
}

/// How many CPUs the machine has, wherever this thread may run.
pub fn online_cpus() -> usize {
    use perf_prof::perf::target::{Host, online_cpus};
    online_cpus(&Host::default()).map_or(1, |cpus| cpus.len())
}

/// Opens an event that counts nothing on CPU 0.
fn open_dummy() -> std::io::Result<()> {
    use perf_event_open_sys::bindings::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, perf_event_attr};
    let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, ..Default::default() };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.config = PERF_COUNT_SW_DUMMY as u64;
    // SAFETY: `attr` is a valid attribute of the size it names, which the kernel only reads.
    let fd = unsafe { perf_event_open_sys::perf_event_open(&mut attr, -1, 0, -1, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened, and belongs to nobody else.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    Ok(())
}

/// The path of an example.
pub fn example(name: &str) -> String {
    let test = env::current_exe().expect("own path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("deps is in target");
    let path: PathBuf = target.join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// The value of `key=` in an example's line.
pub fn number(line: &str, key: &str) -> u64 {
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {line:?}"))
}

/// The state letter of a thread, None when it has gone.
pub fn state_letter(tid: u64) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    text.get(text.rfind(')')? + 2..)?.chars().next()
}

/// Waits for what only looking can tell.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < GUARD, "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A load; it ends with us.
pub struct Load {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Load {
    /// Starts a command. `DSTATE_GO=stdin` is set for it.
    pub fn start(command: &str, args: &[&str]) -> Load {
        visible::stay_visible();
        let mut command = Command::new(command);
        command.args(args).env("DSTATE_GO", "stdin").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|err| panic!("{command:?}: {err}"));
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Load { child, out }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read from the load");
        assert!(!line.is_empty(), "the load has ended");
        line
    }

    /// Lets a load go that waits for its stdin.
    pub fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("write to the load");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Line {
    Out(String),
    Err(String),
    End,
}

/// perf-prof, running.
pub struct PerfProf {
    child: Child,
    lines: Receiver<Line>,
    open: u32,
    out: Vec<String>,
    err: Vec<String>,
    started: Instant,
    text: String,
}

/// What a run left.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: Vec<String>,
    pub err: Vec<String>,
}

impl PerfProf {
    pub fn start(args: &[&str]) -> PerfProf {
        visible::stay_visible();
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("DSTATE_GO", "");
        let mut child = command.spawn().expect("perf-prof starts");
        let (sender, lines) = channel();
        forward(child.stdout.take().expect("piped"), sender.clone(), Line::Out);
        forward(child.stderr.take().expect("piped"), sender, Line::Err);
        let text = format!("perf-prof {}", args.join(" "));
        PerfProf { child, lines, open: 2, out: Vec::new(), err: Vec::new(), started: Instant::now(), text }
    }

    /// Starts with `--json -v`, and returns when its events are on: it has answered a SIGUSR1 with an interval.
    pub fn start_and_watch(args: &[&str]) -> PerfProf {
        let mut all = args.to_vec();
        all.extend(["--json", "-v"]);
        let mut run = PerfProf::start(&all);
        // The signal is blocked by then, and kept until somebody looks for it.
        while !run.err.iter().any(|line| line.contains("ring buffer")) {
            assert!(run.read(), "{} has ended: {:?}", run.text, run.err);
        }
        run.signal(Signal::SIGUSR1);
        run.wait(|object| object["type"] == "interval");
        run
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("perf-prof is alive");
    }

    /// Reads a line. False at the end of both streams.
    fn read(&mut self) -> bool {
        let left = GUARD.saturating_sub(self.started.elapsed());
        match self.lines.recv_timeout(left) {
            Ok(line) => self.take(line),
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("{} hangs:\n{:#?}\n{:#?}", self.text, self.out, self.err),
        }
    }

    fn take(&mut self, line: Line) -> bool {
        match line {
            Line::Out(line) => self.out.push(line),
            Line::Err(line) => self.err.push(line),
            Line::End => self.open -= 1,
        }
        self.open > 0
    }

    /// The next object printed that is as wanted.
    pub fn wait(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let left = GUARD.saturating_sub(self.started.elapsed());
        self.wait_for(left, wanted).unwrap_or_else(|| panic!("{}:\n{:#?}\n{:#?}", self.text, self.out, self.err))
    }

    /// The next object printed that is as wanted, if it comes in time.
    pub fn wait_for(&mut self, time: Duration, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let start = Instant::now();
        loop {
            let known = self.out.len();
            let line = self.lines.recv_timeout(time.saturating_sub(start.elapsed())).ok()?;
            if !self.take(line) {
                return None;
            }
            if let Some(object) = self.out.get(known).and_then(|line| serde_json::from_str(line).ok())
                && wanted(&object)
            {
                return Some(object);
            }
        }
    }

    /// The rows of an interval that was closed.
    pub fn rows_of(&self, interval: &Value) -> Vec<Value> {
        let objects = self.out.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["type"] == "row" && object["interval"] == *interval).collect()
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Ended {
        self.signal(Signal::SIGINT);
        self.end()
    }

    /// Awaits its own end.
    pub fn end(mut self) -> Ended {
        while self.read() {}
        let status = self.child.wait().expect("wait for perf-prof");
        Ended { status, out: std::mem::take(&mut self.out), err: std::mem::take(&mut self.err) }
    }
}

impl Drop for PerfProf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn forward(stream: impl Read + Send + 'static, to: Sender<Line>, kind: fn(String) -> Line) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let _ = to.send(kind(String::from_utf8_lossy(&line).into_owned()));
        }
        let _ = to.send(Line::End);
    });
}

/// Tries up to four times: an event raised while a task is current that events do not see is not delivered, and what it
/// would have told is then missing. `Err` says what; what is there but wrong panics at once.
pub fn attempts(mut scenario: impl FnMut() -> Result<(), String>) {
    for attempt in 1..=4 {
        match scenario() {
            Ok(()) => return,
            Err(missing) if attempt == 4 => panic!("{missing}"),
            Err(missing) => println!("once more: {missing}"),
        }
    }
}

/// Runs perf-prof to its end.
pub fn run(args: &[&str]) -> Ended {
    PerfProf::start(args).end()
}

impl Ended {
    /// All objects of a type.
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        let objects = self.out.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["type"] == kind).collect()
    }

    pub fn events(&self) -> Vec<Value> {
        self.of_type("event")
    }

    /// A number of the last line.
    pub fn total(&self, key: &str) -> u64 {
        let end = self.of_type("end");
        end.first().and_then(|end| end[key].as_u64()).unwrap_or_else(|| panic!("no {key} at the end of {self:#?}"))
    }

    /// A column, summed over all rows that are as wanted.
    pub fn sum(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> u64 {
        self.of_type("row").iter().filter(|row| wanted(row)).filter_map(|row| row[key].as_u64()).sum()
    }

    /// The line of a workload that holds `key=`.
    pub fn line_with(&self, key: &str) -> &str {
        let text = format!("{key}=");
        self.out.iter().find(|line| line.contains(&text)).unwrap_or_else(|| panic!("no {key} in {self:#?}"))
    }

    pub fn assert_success(&self) {
        assert_eq!(self.status.code(), Some(0), "{self:#?}");
    }
}
