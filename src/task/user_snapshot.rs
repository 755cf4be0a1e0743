//! The user part of the stack of a waiting thread: where it left user mode, and a copy of its stack from there on.
//!
//! The thread is not stopped, so a snapshot counts only if the thread was in the same wait before and after the
//! reading. Reading the memory of another process may hang: a worker answers [`WaitSnapshot`].

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{Question, WorkerContext, as_bytes};
use crate::sys::monotonic_ns;
use crate::task::call::is_native;
use crate::task::memory::ProcessMemory;
use crate::task::procfs::{self, read_start, status_value};
use crate::task::python::{self, PythonFrame, PythonRuntimes, PythonStack};
use crate::task::snapshots::SnapshotTicket;

/// Most bytes of a stack that are copied, from the stack pointer upwards.
pub const WINDOW_BYTES: usize = 32 << 10;

/// The user-mode state of a waiting thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSnapshot {
    /// The process.
    pub pid: i32,
    /// The instruction after the system call, or the one that caused an exception.
    pub pc: u64,
    pub sp: u64,
    /// The stack from `sp` upwards. If there are fewer than [`WINDOW_BYTES`], the mapping ends there.
    #[serde(with = "as_bytes")]
    pub stack: Box<[u8]>,
    pub python: Option<PythonStack>,
    /// When the reading was done, by the clock of the records.
    pub taken_ns: u64,
    /// Counts the existing snapshots, in the process that keeps them.
    #[serde(skip)]
    pub ticket: SnapshotTicket,
}

/// Asks for the user-mode state of a waiting thread that has used this CPU time.
#[derive(Debug, Serialize, Deserialize)]
pub struct WaitSnapshot {
    pub tid: i32,
    pub ran_ns: Option<u64>,
}

impl Question for WaitSnapshot {
    type Answer = Option<UserSnapshot>;

    fn answer(&self, context: &mut WorkerContext) -> Option<UserSnapshot> {
        let host = context.host.clone();
        read(&host, self, context.remembered())
    }
}

impl UserSnapshot {
    /// Approximate memory of the snapshot, in bytes.
    pub fn bytes(&self) -> usize {
        let python = self.python.as_ref().map_or(0, |python| python.frames.iter().map(PythonFrame::bytes).sum());
        size_of::<UserSnapshot>() + self.stack.len() + python
    }
}

/// Identifies a wait: these values change if the thread runs in between.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    state: u8,
    ran_ns: Option<u64>,
    status: ThreadStatus,
    registers: Registers,
}

/// Fields of /proc/TID/status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadStatus {
    pid: i32,
    /// The tid in the innermost pid namespace, which `gettid` returns to the thread.
    own_tid: i32,
    /// Voluntary and involuntary context switches.
    switches: [u64; 2],
}

/// Where a thread left user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registers {
    /// The number of the system call. None: an exception, such as a page fault.
    call: Option<u64>,
    sp: u64,
    pc: u64,
}

/// Reads a snapshot. None if the thread has no user mode, or not the native ABI, has exited, may not be read, or left
/// the wanted wait meanwhile.
fn read(host: &Host, wanted: &WaitSnapshot, runtimes: &mut PythonRuntimes) -> Option<UserSnapshot> {
    let tid = wanted.tid;
    let before = wait(host, tid).filter(|wait| wait.ran_ns == wanted.ran_ns)?;
    if !is_native(host, tid) {
        return None;
    }
    let mut memory = ProcessMemory::open(host, tid).ok()?;
    let Registers { pc, sp, .. } = before.registers;
    let stack = memory.up_to(sp, WINDOW_BYTES).into_boxed_slice();
    let ThreadStatus { pid, own_tid, .. } = before.status;
    let python = python::stack(host, pid, own_tid, &mut memory, runtimes);
    let (taken_ns, ticket) = (monotonic_ns(), SnapshotTicket::default());
    let snapshot = UserSnapshot { pid, pc, sp, stack, python, taken_ns, ticket };
    (wait(host, tid)? == before).then_some(snapshot)
}

fn wait(host: &Host, tid: i32) -> Option<Wait> {
    const MAX_BYTES: u32 = 512;
    let text = |name, max_bytes| Some(String::from_utf8_lossy(&read_start(host, tid, name, max_bytes)?).into_owned());
    let state = procfs::read_stat(host, tid)?.state;
    if !matches!(state, b'S' | b'D') {
        return None;
    }
    let registers = parse_registers(&text("syscall", MAX_BYTES)?)?;
    let status = parse_status(&text("status", 128 * MAX_BYTES)?)?;
    Some(Wait { state, ran_ns: procfs::ran_ns(host, tid), status, registers })
}

/// The line of /proc/TID/syscall (`proc_pid_syscall`, fs/proc/base.c): the number of a call, six arguments, stack
/// pointer and program counter; outside of calls -1, stack pointer and program counter; or `running`. For a thread that
/// was never in user mode the values are 0.
fn parse_registers(line: &str) -> Option<Registers> {
    const ARGS: usize = 6;
    let mut words = line.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let call = u64::try_from(number).ok();
    let mut words = words.skip(if call.is_some() { ARGS } else { 0 });
    let mut register = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (sp, pc) = (register()?, register()?);
    (sp != 0 && pc != 0 && words.next().is_none()).then_some(Registers { call, sp, pc })
}

fn parse_status(text: &str) -> Option<ThreadStatus> {
    let words = |key: &str| Some(status_value(text, key)?.split_ascii_whitespace());
    let number = |key: &str| words(key)?.next()?.parse().ok();
    let own_tid = words("NSpid").and_then(Iterator::last).or_else(|| words("Pid")?.next())?;
    Some(ThreadStatus {
        pid: i32::try_from(number("Tgid")?).ok()?,
        own_tid: own_tid.parse().ok()?,
        switches: [number("voluntary_ctxt_switches")?, number("nonvoluntary_ctxt_switches")?],
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn registers_of_those_who_wait() {
        let in_call = |sp, pc, call| Some(Registers { call: Some(call), sp, pc });
        let cases = [
            ("0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", in_call(0x7ffc, 0x7ff2, 0)),
            ("270 0xffffffffffffff9c 0x1 0x2 0x3 0x4 0x5 0x1 0x2", in_call(1, 2, 270)),
            ("-1 0x7ffc 0x7ff2\n", Some(Registers { call: None, sp: 0x7ffc, pc: 0x7ff2 })),
            ("running\n", None),
            ("0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", None),
            ("-1 0x0 0x0\n", None),
            ("-1 0x0 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc\n", None),
            ("0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 7ff2\n", None),
            ("99999999999999999999 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(parse_registers(line), want, "{line:?}");
        }
    }

    const STATUS: &str = "Name:\tx\nTgid:\t4\nPid:\t5\nNSpid:\t5\t2\nvoluntary_ctxt_switches:\t7\n\
                          nonvoluntary_ctxt_switches:\t8\n";

    #[test]
    fn a_thread_has_two_numbers() {
        let got = parse_status(STATUS);
        assert_eq!(got, Some(ThreadStatus { pid: 4, own_tid: 2, switches: [7, 8] }));
        let before = STATUS.replace("NSpid:\t5\t2\n", ""); // kernels before 4.1
        assert_eq!(parse_status(&before).map(|status| status.own_tid), Some(5));
        for key in ["Tgid", "Pid:\t5\nNSpid", "voluntary_ctxt", "nonvoluntary"] {
            assert_eq!(parse_status(&STATUS.replace(key, "X")), None, "{key}");
        }
    }

    /// In a system call, with a stack of 8 words.
    pub fn waiting() -> FixtureProcess {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) D 1 5").write("schedstat", "77 0 1\n").write("status", STATUS).auxv(56);
        process.write("syscall", "0 0x7 0x1 0x2 0x3 0x4 0x5 0x2000 0x7ff2\n").write("mem", &"x".repeat(0x2040));
        process.write("maps", "00400000-00401000 r-xp 0 0:0 1 /a\n00401000-00402000 r--p 0 0:0 1 /a\n");
        process
    }

    #[test]
    fn a_user_snapshot_is_of_one_wait() {
        let process = waiting();
        let wanted = WaitSnapshot { tid: 5, ran_ns: Some(77) };
        let read = || read(&process.host(), &wanted, &mut PythonRuntimes::default());
        let part = read().unwrap();
        assert_eq!((part.pid, part.pc, part.sp, &*part.stack), (4, 0x7ff2, 0x2000, &[b'x'; 0x40][..]));
        assert!(part.python.is_none() && part.bytes() > 0x40);
        process.write("schedstat", "78 0 1\n");
        assert_eq!(read(), None, "it has run since");
        process.write("schedstat", "77 0 1\n");
        process.auxv(32);
        assert_eq!(read(), None, "of another ABI");
        process.auxv(56).write("stat", "5 (x) R 1 5");
        assert_eq!(read(), None, "it runs");
        process.write("stat", "5 (x) S 1 5").write("syscall", "running\n");
        assert_eq!(read(), None);
    }

    /// A child that has announced that it is about to wait, and does wait.
    struct Sleeper(Child);

    impl Sleeper {
        fn start(mut command: Command) -> Option<Sleeper> {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
            let mut line = String::new();
            BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
            let sleeper = Sleeper(child);
            if line != "ready\n" {
                return None;
            }
            while procfs::wchan(&Host::default(), sleeper.tid()).is_none_or(|place| !place.contains("pipe")) {
                std::thread::yield_now();
            }
            Some(sleeper)
        }

        fn tid(&self) -> i32 {
            self.0.id() as i32
        }

        fn snapshot(&self) -> Option<UserSnapshot> {
            let wanted = WaitSnapshot { tid: self.tid(), ran_ns: procfs::ran_ns(&Host::default(), self.tid()) };
            read(&Host::default(), &wanted, &mut PythonRuntimes::default())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_child_that_reads_has_a_stack() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read -r line"]);
        let sleeper = Sleeper::start(command).expect("a shell");
        let part = sleeper.snapshot().expect("it waits, and is ours");
        assert_eq!(part.pid, sleeper.tid());
        let maps = fs::read(format!("/proc/{}/maps", part.pid)).unwrap();
        let is_code =
            |line: &&[u8]| line.split(|&byte| byte == b' ').nth(1).is_some_and(|may| may.get(2) == Some(&b'x'));
        let code = maps.split(|&byte| byte == b'\n').filter(is_code).filter_map(procfs::mapped_range);
        let code: Vec<(u64, u64)> = code.collect();
        let is_code = |addr: u64| code.iter().any(|(start, end)| (*start..*end).contains(&addr));
        let (words, _) = part.stack.as_chunks::<8>();
        assert!(is_code(part.pc) && words.iter().any(|word| is_code(u64::from_ne_bytes(*word))), "{:#x}", part.pc);
        assert!(part.python.is_none());
    }

    const PROGRAM: &str = "
import sys, os
class Waiter:
    def inner(self, n):
        if n:
            return self.inner(n - 1)
        return os.read(0, 1)
def by_c(n):
    w = Waiter()
    return max([1], key=lambda x: w.inner(n))
def générateur():
    yield by_c(3)
print('ready', flush=True)
for _ in générateur(): pass
";

    /// For each supported interpreter that is installed; the `python3` of a machine may be another version, or missing.
    #[test]
    fn python_has_functions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("wait.py");
        fs::write(&file, PROGRAM).unwrap();
        for name in ["python3.11", "python3.12", "python3.13"] {
            let mut command = Command::new(name);
            command.arg(&file);
            let Some(sleeper) = Sleeper::start(command) else {
                skip_part!("no {name}");
                continue;
            };
            let part = sleeper.snapshot().expect("it waits, and is ours");
            let python = part.python.unwrap_or_else(|| panic!("{name} is not known"));
            let shown =
                |frame: &PythonFrame| format!("{}:{} {}", frame.function, frame.line.unwrap_or(0), frame.ends_call);
            let got: Vec<String> = python.frames.iter().map(shown).collect();
            let want = [
                "Waiter.inner:7 false",
                "Waiter.inner:6 false",
                "Waiter.inner:6 false",
                "Waiter.inner:6 false",
                "by_c.<locals>.<lambda>:10 true",
                "by_c:10 false",
                "générateur:12 true",
                "<module>:14 true",
            ];
            assert_eq!(got, want, "{name}");
            assert!(!python.cut && python.frames.iter().all(|frame| *frame.file == *file.to_string_lossy()));
            assert!(python.interpreter.end - python.interpreter.start > 1000);
        }
    }
}
