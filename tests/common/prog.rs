//! perf-prof as a user would run it: its lines as they come, its end, its JSON.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{GUARD, ends_within};

/// Time between two provocations of an event that was not seen yet.
const AGAIN: Duration = Duration::from_millis(10);

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

/// The exit status and the whole output.
#[derive(Debug)]
pub struct Done {
    what: String,
    pub status: ExitStatus,
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

/// perf-prof with `--json -v`, started, and its events on: it has answered a SIGUSR1 with an interval.
pub fn start_watching(args: &[&str]) -> Prog {
    let mut run = start(&[args, &["--json", "-v"]].concat());
    // The signal is blocked by then, and stays pending until it is read.
    run.err_line(|line| line.contains("ring buffer"));
    run.signal(Signal::SIGUSR1);
    run.object(|object| object["type"] == "interval");
    run
}

/// The same with results in text: it has answered with a first table.
pub fn start_watching_in_text(args: &[&str]) -> Prog {
    let mut run = start(&[args, &["-v"]].concat());
    run.err_line(|line| line.contains("ring buffer"));
    run.signal(Signal::SIGUSR1);
    run.line(|line| line.contains(", interval 1, "));
    run
}

/// The children of a process with one thread, those among them that nobody has reaped.
pub fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// perf-prof, from its start to its end.
pub fn run(args: &[&str]) -> Done {
    start(args).finish()
}

/// perf-prof over a workload with a stdout of its own: its output cannot end up inside a line of results.
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
        let until = Instant::now() + GUARD;
        let mut child = loop {
            match command.spawn() {
                // A child of another test has the copy open for writing until its exec.
                Err(err) if err.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                    thread::yield_now();
                }
                spawned => break spawned.unwrap_or_else(|err| panic!("{what}: {err}")),
            }
        };
        let (sender, lines) = channel();
        follow(child.stdout.take().expect("piped"), Line::Out, sender.clone());
        follow(child.stderr.take().expect("piped"), Line::Err, sender);
        Prog { what, child, lines, out: Vec::new(), err: Vec::new(), until }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The processes of a run that ask about others: the one that forks them, and its children.
    pub fn helpers(&self) -> BTreeSet<i32> {
        let forks = children(self.pid());
        forks.iter().copied().chain(forks.iter().flat_map(|pid| children(*pid))).collect()
    }

    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("signal");
    }

    /// Runs `load` while the program is stopped and reads nothing.
    pub fn stopped<T>(&self, load: impl FnOnce() -> T) -> T {
        self.signal(Signal::SIGSTOP);
        super::until("it is stopped", || super::state_letter(self.pid() as u64) == Some('T'));
        let result = load();
        self.signal(Signal::SIGCONT);
        result
    }

    /// The next line of stdout for which `wanted` is true.
    pub fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.provoke(|| {}, wanted)
    }

    /// Repeats `event` until a line of stdout for which `wanted` is true has come.
    pub fn provoke(&mut self, event: impl FnMut(), wanted: impl Fn(&str) -> bool) -> String {
        self.next(event, |line| match line {
            Line::Out(line) => wanted(line),
            Line::Err(_) => false,
        })
    }

    /// The next object for which `wanted` is true.
    pub fn object(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let is_wanted = |line: &str| serde_json::from_str(line).is_ok_and(|object| wanted(&object));
        let line = self.line(is_wanted);
        serde_json::from_str(&line).expect("JSON")
    }

    /// The same, if it comes in time.
    pub fn object_within(&mut self, time: Duration, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let start = Instant::now();
        loop {
            let line = self.lines.recv_timeout(time.saturating_sub(start.elapsed())).ok()?;
            let is_out = matches!(line, Line::Out(_));
            let line = self.keep(line);
            let object = serde_json::from_str(&line).ok().filter(|object| is_out && wanted(object));
            if object.is_some() {
                return object;
            }
        }
    }

    /// The rows of an interval that was closed.
    pub fn rows_of(&self, interval: &Value) -> Vec<Value> {
        let objects = self.out.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["type"] == "row" && object["interval"] == *interval).collect()
    }

    /// The next line of stderr for which `wanted` is true.
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
        self.signal(Signal::SIGINT);
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

impl Done {
    /// Output of a program that ran elsewhere.
    pub fn of(what: String, status: ExitStatus, out: &[u8], err: &[u8]) -> Done {
        let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
        Done { what, status, out: lines(out), err: lines(err), load: String::new() }
    }

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

    /// The signal that has killed it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
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

    /// Rows of intervals, and of the lists of functions and stacks, which are of the whole run.
    pub fn rows_and_lists(&self) -> Vec<Value> {
        let is_list = |object: &Value| object["table"] == "functions" || object["table"] == "stacks";
        let is_wanted = |object: &Value| object["type"] == "row" || object["type"] == "total" && is_list(object);
        self.json().into_iter().filter(is_wanted).collect()
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        self.out
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{}: {err}: {line}", self.what)))
            .collect()
    }

    /// The objects of one type; a workload may have printed lines of its own among them.
    #[track_caller]
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        let lines = self.out.iter().filter(|line| line.starts_with('{'));
        let objects =
            lines.map(|line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{}: {err}: {line}", self.what)));
        objects.filter(|object: &Value| object["type"] == kind).collect()
    }

    /// Number of events shown.
    pub fn shown(&self) -> u64 {
        self.out.iter().filter(|line| line.starts_with(r#"{"type":"event""#)).count() as u64
    }

    /// A number of the last line.
    #[track_caller]
    pub fn total(&self, key: &str) -> u64 {
        super::number(&self.end(), key)
    }

    /// Whether one of these counts of JSON is above 0, or the number before these words in a summary.
    pub fn counts_any(&self, keys: &[&str], words: &str) -> bool {
        let is_counted = |object: &Value| keys.iter().any(|key| object[key].as_u64() > Some(0));
        let in_words = |part: &str| {
            part.contains(words) && part.split(' ').next().and_then(|number| number.parse::<u64>().ok()) > Some(0)
        };
        ["interval", "end"].iter().any(|kind| self.of_type(kind).iter().any(is_counted))
            || self.err.iter().any(|line| line.split(", ").any(in_words))
    }

    /// Sum of a column over all rows for which `wanted` is true.
    pub fn sum(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> u64 {
        self.of_type("row").iter().filter(|row| wanted(row)).filter_map(|row| row[key].as_u64()).sum()
    }

    /// The line of a workload that holds `key=`.
    #[track_caller]
    pub fn line_with(&self, key: &str) -> &str {
        let text = format!("{key}=");
        self.out.iter().find(|line| line.contains(&text)).unwrap_or_else(|| panic!("no {key} in {self:#?}"))
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
