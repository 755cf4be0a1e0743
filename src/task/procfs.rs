//! Reads files of one thread in /proc. Any of them may vanish at any moment, so a missing one is no error.
//!
//! Reading some files takes a lock that a stuck exec of the thread may hold for ever: `stat`, `exe`, `cwd`, `fd`,
//! `fdinfo`, `ns`, `wchan`, `stack`, `syscall`, `environ`, `cmdline`, `maps`, `map_files`, `mem`. A worker reads these
//! ([`crate::outside`]). `comm`, `status`, `schedstat`, `sched`, `cgroup`, `children` and the list of threads never
//! hang, and every user may read them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::{Host, processes, threads};
use crate::outside::{self, AskedOf, Question, WorkerContext, as_bytes};
use crate::sys::TimeOffsets;
use crate::task::comm::Comm;

/// A tick of the times in /proc: USER_HZ is 100.
const TICK_NS: i64 = 10_000_000;

/// A few fields of /proc/TID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub comm: Comm,
    /// R S D T t X Z P I, as in proc(5).
    pub state: u8,
    /// The parent process.
    pub parent: i32,
    /// The process group.
    pub group: i32,
    /// The priority in the numbering of the kernel's events: 0 to 98 real-time, 100 to 139 nice -20 to 19.
    pub priority: i32,
    /// The CPU on which it runs, or ran last.
    pub cpu: u32,
}

/// A frame of /proc/TID/stack: `symbol+0xoff/0xsize [module]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelFrame {
    pub symbol: String,
    pub offset: u64,
    pub module: Option<String>,
}

/// Path of a file of one thread. The files of /proc/TID itself sum over the whole process, and take longer with each
/// thread.
pub(super) fn file(host: &Host, tid: i32, name: &str) -> PathBuf {
    host.proc.join(format!("{tid}/task/{tid}/{name}"))
}

/// The first bytes of a file of one thread. For workers only, where the file may hang.
pub(super) fn read_start(host: &Host, tid: i32, name: &str, max_bytes: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file(host, tid, name)).ok()?.take(max_bytes.into()).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The value of a line of /proc/TID/status.
pub(super) fn status_value<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// The start of a file of one thread.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadFile {
    tid: i32,
    name: String,
    max_bytes: u32,
}

/// A text or path that other users choose: any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignBytes(#[serde(with = "as_bytes")] Vec<u8>);

impl Question for ThreadFile {
    type Answer = Option<ForeignBytes>;

    fn answer(&self, context: &mut WorkerContext) -> Option<ForeignBytes> {
        read_start(&context.host, self.tid, &self.name, self.max_bytes).map(ForeignBytes)
    }
}

/// The target of a link of one thread.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadLink {
    tid: i32,
    name: String,
}

/// What a link of a thread leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkTarget {
    Path(#[serde(with = "as_bytes")] Vec<u8>),
    /// There is no such link, or no such thread.
    Missing,
    /// The link may not be read.
    Refused,
}

impl Question for ThreadLink {
    type Answer = LinkTarget;

    fn answer(&self, context: &mut WorkerContext) -> LinkTarget {
        match fs::read_link(file(&context.host, self.tid, &self.name)) {
            Ok(path) => LinkTarget::Path(path.into_os_string().into_vec()),
            Err(err) if err.kind() == ErrorKind::NotFound => LinkTarget::Missing,
            Err(_) => LinkTarget::Refused,
        }
    }
}

/// Asks a worker for the first bytes of a file of a thread that may hang.
fn ask_file(host: &Host, tid: i32, name: &str, max_bytes: u32) -> Option<Vec<u8>> {
    let question = ThreadFile { tid, name: name.to_owned(), max_bytes };
    Some(outside::ask(host, AskedOf::process(tid), &question).ok()?.value?.0)
}

fn ask_link(host: &Host, tid: i32, name: &str) -> Option<LinkTarget> {
    let question = ThreadLink { tid, name: name.to_owned() };
    Some(outside::ask(host, AskedOf::process(tid), &question).ok()?.value)
}

fn ask_path(host: &Host, tid: i32, name: &str) -> Option<Vec<u8>> {
    match ask_link(host, tid, name)? {
        LinkTarget::Path(path) => Some(path),
        _ => None,
    }
}

/// The current directory of a thread.
pub fn current_directory(host: &Host, tid: i32) -> Option<Vec<u8>> {
    ask_path(host, tid, "cwd")
}

/// The name of a thread.
pub fn comm(host: &Host, tid: i32) -> Option<Comm> {
    read_short(&file(host, tid, "comm"), |text| Some(Comm::of_task(text.strip_suffix(b"\n").unwrap_or(text))))
}

/// Most bytes of /proc/TID/stat: 52 numbers, most of them small.
const MAX_STAT_BYTES: u32 = 2048;

/// Asks a worker for /proc/TID/stat of a thread.
pub fn stat(host: &Host, tid: i32) -> Option<Stat> {
    let stat = parse_stat(&stat_text(host, tid)?)?;
    Some(Stat { comm: Comm::of_task(stat.comm.as_bytes()), ..stat })
}

fn stat_text(host: &Host, tid: i32) -> Option<Vec<u8>> {
    ask_file(host, tid, "stat", MAX_STAT_BYTES)
}

/// Reads /proc/TID/stat. The read may hang: for workers only.
pub(super) fn read_stat(host: &Host, tid: i32) -> Option<Stat> {
    read_short(&file(host, tid, "stat"), parse_stat)
}

/// Parses a short file, whose whole text the kernel returns in one read: neither its size is queried first, nor its end
/// read. At the start of a run this is done for each thread of the machine.
fn read_short<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut text = [0; MAX_STAT_BYTES as usize];
    let len = File::open(path).ok()?.read(&mut text).ok()?;
    parse(text.get(..len)?)
}

/// False when a thread does not exist, or has exited and waits to be reaped.
pub fn is_alive(host: &Host, tid: i32) -> bool {
    brief(host, tid).is_some_and(|brief| brief.is_alive())
}

/// The fields of [`Stat`] that /proc/TID/status has, too: this file never hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefStatus {
    pub comm: Comm,
    /// R S D T t X Z P I, as in proc(5).
    pub state: u8,
    /// The parent process.
    pub parent: i32,
}

/// Reads /proc/TID/status of a thread.
pub fn brief(host: &Host, tid: i32) -> Option<BriefStatus> {
    let status = parse_brief(&fs::read(file(host, tid, "status")).ok()?)?;
    Some(BriefStatus { comm: Comm::of_task(status.comm.as_bytes()), ..status })
}

fn parse_brief(text: &[u8]) -> Option<BriefStatus> {
    let value = |key: &[u8]| text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key));
    let parent = std::str::from_utf8(value(b"PPid:\t")?).ok()?;
    Some(BriefStatus {
        comm: unescaped_name(value(b"Name:\t")?),
        state: *value(b"State:\t")?.first()?,
        parent: parent.parse().ok()?,
    })
}

/// A name in which newlines and backslashes are escaped (`proc_task_name`, fs/proc/array.c).
fn unescaped_name(written: &[u8]) -> Comm {
    let mut name = Vec::with_capacity(written.len());
    let mut rest = written.iter();
    while let Some(&byte) = rest.next() {
        name.push(match byte {
            b'\\' if rest.next() == Some(&b'n') => b'\n',
            _ => byte,
        });
    }
    Comm::new(&name)
}

impl BriefStatus {
    /// False for a thread that has exited and waits to be reaped.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name may contain blanks and parentheses: it ends at the last `)`.
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let state = *text.get(close + 2)?;
    // Fields 4, 5, 18 and 39, counted from the state, which is field 3.
    const PARENT: usize = 4 - 3;
    const GROUP: usize = 5 - 3;
    const PRIORITY: usize = 18 - 3;
    const PROCESSOR: usize = 39 - 3;
    let mut behind = text.get(close + 2..)?.split(|&byte| byte == b' ');
    let mut number = |skip: usize| std::str::from_utf8(behind.nth(skip)?).ok()?.parse::<i32>().ok();
    let parent = number(PARENT).unwrap_or(0);
    let group = number(GROUP - PARENT - 1).unwrap_or(0);
    // task_prio, kernel/sched/syscalls.c, subtracts the number of real-time priorities.
    let priority = number(PRIORITY - GROUP - 1).unwrap_or(20).saturating_add(100);
    let cpu = number(PROCESSOR - PRIORITY - 1).and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(0);
    Some(Stat { comm: Comm::new(text.get(open + 1..close)?), state, parent, group, priority, cpu })
}

/// Bytes of a command line that are read.
const MAX_COMMAND_BYTES: u32 = 4096;

/// The command line of a process, up to 4 KiB, words joined by blanks. None for a kernel thread, an exited process, and
/// a process whose memory does not respond.
pub fn command_line(host: &Host, pid: i32) -> Option<String> {
    let text = ask_file(host, pid, "cmdline", MAX_COMMAND_BYTES)?;
    let words = String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ");
    (!words.is_empty()).then_some(words)
}

/// The words of the command line of a process, see `command_line`.
pub fn command_words(host: &Host, pid: i32) -> Option<Vec<Vec<u8>>> {
    let text = ask_file(host, pid, "cmdline", MAX_COMMAND_BYTES)?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|byte| *byte == 0);
    Some(words.map(<[u8]>::to_vec).collect())
}

/// The descendants of a process in its process group, each after its parent. Descendants that left the group, or whose
/// parent has exited, are not included. Empty on a kernel without CONFIG_PROC_CHILDREN.
pub fn descendants(host: &Host, pid: i32) -> Vec<i32> {
    let Some(group) = stat(host, pid).map(|stat| stat.group) else { return Vec::new() };
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        at += 1;
        for tid in threads(host, parent) {
            let children = fs::read_to_string(host.proc.join(format!("{parent}/task/{tid}/children")));
            let children = children.unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if !family.contains(&child) && stat(host, child).is_some_and(|stat| stat.group == group) {
                    family.push(child);
                }
            }
        }
    }
    family.split_off(1)
}

/// Start time of a thread, in ticks since the boot of the machine, whatever time namespace perf-prof is in. Together
/// with the tid it identifies the thread, although tids are reused.
pub fn start_ticks(host: &Host, tid: i32) -> Option<u64> {
    let text = stat_text(host, tid)?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    // Field 22, counted from the state, which is field 3.
    let word = text.get(close + 2..)?.split(|&byte| byte == b' ').nth(22 - 3)?;
    let ticks: u64 = std::str::from_utf8(word).ok()?.trim().parse().ok()?;
    Some(ticks.saturating_sub_signed(TimeOffsets::own().boottime_ns.div_euclid(TICK_NS)))
}

/// The pid namespace of a process, by its inode.
pub fn pid_namespace(host: &Host, pid: i32) -> Option<u64> {
    namespace(&ask_path(host, pid, "ns/pid")?)
}

/// The pid namespace of this process, by its inode.
pub fn own_pid_namespace(host: &Host) -> Option<u64> {
    namespace(&fs::read_link(host.proc.join("self/ns/pid")).ok()?.into_os_string().into_vec())
}

fn namespace(link: &[u8]) -> Option<u64> {
    std::str::from_utf8(link).ok()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// A runnable thread: it runs, or waits for its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runnable {
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}

/// The runnable threads among the first `most` threads of the machine, without the process `but`; and whether the
/// machine has more threads.
pub fn runnable(host: &Host, but: i32, most: usize) -> (Vec<Runnable>, bool) {
    // Not asked of a worker, whose CPU may be the one that is stuck. A running thread is in no exec that hangs.
    let others = processes(host).into_iter().filter(|&pid| pid != but);
    let mut all = others.flat_map(|pid| threads(host, pid).into_iter().map(move |tid| (pid, tid)));
    let runnable = |(pid, tid)| {
        brief(host, tid).filter(|brief| brief.state == b'R')?;
        let Stat { comm, cpu, .. } = read_stat(host, tid).filter(|stat| stat.state == b'R')?;
        Some(Runnable { cpu, pid, tid, comm })
    };
    let found = all.by_ref().take(most).filter_map(runnable).collect();
    (found, all.next().is_some())
}

/// The threads of `runnable` on `cpu`, the latest to run first: on a kernel with CONFIG_SCHED_DEBUG that is the running
/// one.
pub fn latest_run_first(host: &Host, runnable: &[Runnable], cpu: u32) -> Vec<(i32, Comm)> {
    const LIMIT: usize = 64; // nobody would read more of them
    let here = runnable.iter().filter(|task| task.cpu == cpu).map(|task| (task.tid, task.comm));
    let mut here: Vec<(i32, Comm)> = here.take(LIMIT).collect();
    if here.len() > 1 {
        here.sort_by_cached_key(|(tid, _)| std::cmp::Reverse(exec_start(host, *tid)));
    }
    here
}

/// When a thread last got its CPU, or was last accounted for, in ns of the scheduler's clock. The running thread has
/// the latest of these times on its CPU.
fn exec_start(host: &Host, tid: i32) -> Option<u64> {
    let text = fs::read_to_string(file(host, tid, "sched")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("se.exec_start"))?.split(':').next_back()?.trim();
    let (ms, fraction) = value.split_once('.')?;
    ms.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?) // six digits
}

/// The effective user of a process.
pub fn owner(host: &Host, pid: i32) -> Option<u32> {
    process_status(host, pid)?.owner
}

/// The path of the program that a process executes.
pub fn program(host: &Host, pid: i32) -> Option<PathBuf> {
    Some(OsString::from_vec(ask_path(host, pid, "exe")?).into())
}

/// True for a process whose mappings this process may not read.
pub fn is_closed_to_us(host: &Host, pid: i32) -> bool {
    ask_link(host, pid, "exe") == Some(LinkTarget::Refused) // reading `exe` takes the same right
}

/// True for a kernel thread, or a process that has exited.
pub fn has_no_program(host: &Host, pid: i32) -> bool {
    ask_link(host, pid, "exe") == Some(LinkTarget::Missing)
}

/// A few lines of /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The effective user.
    pub owner: Option<u32>,
    /// True for a kernel thread, or a process that has exited: nothing is mapped.
    pub has_no_memory: bool,
}

/// Reads /proc/PID/status of a process.
pub fn process_status(host: &Host, pid: i32) -> Option<ProcessStatus> {
    Some(parse_process_status(&fs::read_to_string(host.proc.join(format!("{pid}/status"))).ok()?))
}

fn parse_process_status(text: &str) -> ProcessStatus {
    let value = |key: &str| status_value(text, key);
    let threads: Option<u32> = value("Threads").and_then(|count| count.parse().ok());
    ProcessStatus {
        owner: value("Uid").and_then(|users| users.split_ascii_whitespace().nth(1)?.parse().ok()),
        // The kernel writes VmSize before Threads for every task with memory (`task_mem`, fs/proc/task_mmu.c).
        has_no_memory: threads.is_some() && value("VmSize").is_none(),
    }
}

/// CPU time of a thread, ns. None when it is 0, or the kernel has no schedstat.
pub fn ran_ns(host: &Host, tid: i32) -> Option<u64> {
    let text = fs::read_to_string(file(host, tid, "schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().filter(|&ns| ns > 0)
}

/// The process of a thread.
pub fn pid_of(host: &Host, tid: i32) -> Option<i32> {
    let text = fs::read_to_string(file(host, tid, "status")).ok()?;
    status_value(&text, "Tgid")?.parse().ok()
}

/// Signals of a thread from /proc/TID/status, as masks: bit 0 is signal 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalState {
    /// R S D T t X Z P I, as in proc(5).
    pub state: u8,
    /// Pending for the thread.
    pub pending: u64,
    /// Pending for its process.
    pub shared: u64,
    pub blocked: u64,
}

impl SignalState {
    pub fn has(mask: u64, signo: u8) -> bool {
        u32::from(signo).checked_sub(1).and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 != 0)
    }

    /// False for a thread that has exited and waits to be reaped.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// Reads the signals of a thread.
pub fn signals(host: &Host, tid: i32) -> Option<SignalState> {
    parse_signals(&fs::read_to_string(file(host, tid, "status")).ok()?)
}

/// Reads the signals of a process from its first thread, or from another thread if the first one has exited. None
/// without a living thread.
pub fn process_signals(host: &Host, pid: i32) -> Option<SignalState> {
    let living = |tid: i32| signals(host, tid).filter(SignalState::is_alive);
    living(pid).or_else(|| threads(host, pid).into_iter().filter(|&tid| tid != pid).find_map(living))
}

fn parse_signals(text: &str) -> Option<SignalState> {
    let value = |key: &str| status_value(text, key);
    let mask = |key: &str| u64::from_str_radix(value(key)?, 16).ok();
    Some(SignalState {
        state: *value("State")?.as_bytes().first()?,
        pending: mask("SigPnd")?,
        shared: mask("ShdPnd")?,
        blocked: mask("SigBlk")?,
    })
}

/// The addresses of a line of /proc/PID/maps.
pub fn mapped_range(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// True when this process is in a nested pid namespace: tracepoints then have other pids than the /proc of this
/// namespace.
pub fn is_nested(host: &Host) -> bool {
    const INITIAL: &str = "pid:[4026531836]"; // PROC_PID_INIT_INO, include/linux/proc_ns.h
    fs::read_link(host.proc.join("self/ns/pid")).is_ok_and(|link| link.as_os_str() != INITIAL)
}

/// The kernel function that a thread sleeps in, if the kernel shows it. The read may hang: for workers only.
pub(super) fn wchan(host: &Host, tid: i32) -> Option<String> {
    let text = fs::read_to_string(file(host, tid, "wchan")).ok()?;
    (!text.is_empty() && text != "0").then_some(text)
}

/// The kernel stack of a sleeping thread, innermost first. Root only. The read may hang: for workers only.
pub fn stack(host: &Host, tid: i32) -> Vec<KernelFrame> {
    parse_stack(&fs::read_to_string(file(host, tid, "stack")).unwrap_or_default())
}

fn parse_stack(text: &str) -> Vec<KernelFrame> {
    const LIMIT: usize = 256;
    let frame = |line: &str| {
        let (_, place) = line.split_once("] ")?; // [<0>]
        let (place, module) = match place.split_once(" [") {
            Some((place, module)) => (place, Some(module.trim_end_matches(']').to_owned())),
            None => (place, None),
        };
        let (symbol, at) = place.trim().split_once("+0x")?;
        let offset = u64::from_str_radix(at.split('/').next()?, 16).ok()?;
        Some(KernelFrame { symbol: symbol.to_owned(), offset, module })
    };
    text.lines().filter_map(frame).take(LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::write_stat;

    #[test]
    fn a_process_outlives_its_first_thread() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().into(), ..Host::default() };
        let thread = |tid: i32, state: &str, shared: &str| {
            let own = dir.path().join(format!("{tid}/task/{tid}"));
            fs::create_dir_all(dir.path().join(format!("7/task/{tid}"))).unwrap();
            fs::create_dir_all(&own).unwrap();
            let text = format!("State:\t{state}\nSigPnd:\t0\nShdPnd:\t{shared}\nSigBlk:\t0\n");
            fs::write(own.join("status"), text).unwrap();
        };
        assert_eq!(process_signals(&host, 7), None);
        for (threads, want) in [
            (&[(7, "Z (zombie)", "0")][..], None),
            (&[(8, "X (dead)", "0"), (9, "S (sleeping)", "4000")], Some(0x4000)),
            (&[(7, "R (running)", "8000")], Some(0x8000)),
        ] {
            threads.iter().for_each(|&(tid, state, shared)| thread(tid, state, shared));
            assert_eq!(process_signals(&host, 7).map(|state| state.shared), want, "{threads:?}");
        }
    }

    #[test]
    fn parses_stat() {
        type Want = Option<(&'static [u8], u8)>;
        let cases: [(&[u8], Want); 5] = [
            (b"12 (nginx) S 1 2", Some((b"nginx", b'S'))),
            (b"12 (a) b) D 1 2", Some((b"a) b", b'D'))),
            (b"12 () R", Some((b"", b'R'))),
            (b"12 (x)", None),
            (b"", None),
        ];
        for (text, want) in cases {
            let got = parse_stat(text);
            assert_eq!(got.as_ref().map(|s| (s.comm.as_bytes(), s.state)), want, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn parses_the_status_of_a_process() {
        let program = "Name:\tx\nState:\tD (disk sleep)\nUid:\t1\t1000\t2\t3\nVmSize:\t 9 kB\nThreads:\t1\n";
        let whole = ProcessStatus { owner: Some(1000), has_no_memory: false };
        let kernel_thread = "Name:\tkworker\nState:\tI (idle)\nUid:\t0\t0\t0\t0\nThreads:\t1\n";
        let cases = [
            (program, whole),
            (kernel_thread, ProcessStatus { owner: Some(0), has_no_memory: true }),
            ("", ProcessStatus::default()),
        ];
        for (text, want) in cases {
            assert_eq!(parse_process_status(text), want, "{text:?}");
        }
        for cut in 0..program.len() {
            assert!(!parse_process_status(&program[..cut]).has_no_memory, "{cut}"); // must not panic
        }
    }

    #[test]
    fn names_in_a_status_are_escaped() {
        let brief = |name: &str| parse_brief(format!("Name:\t{name}\nState:\tD (disk sleep)\nPPid:\t4\n").as_bytes());
        for (written, name) in [("x", &b"x"[..]), ("a b", b"a b"), ("a\\nb", b"a\nb"), ("\\\\n", b"\\n"), ("", b"")] {
            let want = BriefStatus { comm: Comm::new(name), state: b'D', parent: 4 };
            assert_eq!(brief(written), Some(want), "{written:?}");
        }
        assert!(brief("x").unwrap().is_alive() && parse_brief(b"Name:\tx\nState:\tZ").is_none());
    }

    #[test]
    fn parses_signals() {
        let text = "Name:\tx\nState:\tT (stopped)\nTgid:\t5\nSigQ:\t1/7\nSigPnd:\t0000000000000001\n\
            ShdPnd:\t8000000000000200\nSigBlk:\t0000000000000200\nSigIgn:\t0000000000000000\n";
        let got = parse_signals(text).unwrap();
        assert_eq!(got, SignalState { state: b'T', pending: 1, shared: 1 << 63 | 1 << 9, blocked: 1 << 9 });
        let cases = [(1, false), (10, true), (64, true), (0, false), (65, false), (255, false)];
        for (signo, want) in cases {
            assert_eq!(SignalState::has(got.shared, signo), want, "{signo}");
        }
        for cut in 0..text.find("SigIgn").unwrap() - 1 {
            let _ = parse_signals(&text[..cut]); // must not panic
        }
        assert_eq!(parse_signals("State:\tT\nSigPnd:\tx\nShdPnd:\t0\nSigBlk:\t0\n"), None);
    }

    #[test]
    fn finds_the_cpu() {
        let fields: Vec<String> = (4..=52).map(|field| format!("{field}")).collect();
        let text = format!("12 (a b) D {}", fields.join(" "));
        let stat = parse_stat(text.as_bytes()).unwrap();
        assert_eq!((stat.group, stat.cpu), (5, 39));
    }

    #[test]
    fn the_running_thread_of_a_cpu_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let others: Vec<String> = (4..39).map(|field| field.to_string()).collect();
        // tid, state, CPU, se.exec_start
        let tasks = [
            (10, "R", 3, "5.000001"),
            (11, "R", 3, "5.000002"),
            (12, "S", 3, "9.0"),
            (13, "R", 1, "9.0"),
            (14, "R", 3, "x"),
            (15, "R", 3, "7.0"),
        ];
        for (tid, state, cpu, start) in tasks {
            let task = dir.path().join(format!("{tid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            write_stat(&task, &format!("{tid} (t{tid}) {state} {} {cpu} 0 0", others.join(" ")));
            fs::write(
                task.join("sched"),
                format!("t{tid} ({tid}, #threads: 1)\nse.exec_start    :    {start}\nse.vruntime : 1.0\n"),
            )
            .unwrap();
        }
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        let found = |cpu, but| {
            latest_run_first(&host, &runnable(&host, but, 100).0, cpu)
                .into_iter()
                .map(|(tid, _)| tid)
                .collect::<Vec<i32>>()
        };
        assert_eq!(found(3, 15), [11, 10, 14]);
        assert_eq!((found(1, 0), found(7, 0)), (vec![13], vec![]));
    }

    #[test]
    fn finds_descendants() {
        let dir = tempfile::tempdir().unwrap();
        // pid, process group, children; 15 claims its own grandparent.
        let processes = [
            (10, 10, "11 12 13 99 x"),
            (11, 10, "14"),
            (12, 12, "16"),
            (13, 10, ""),
            (14, 10, "15"),
            (15, 10, "10"),
            (16, 10, ""),
        ];
        for (pid, group, children) in processes {
            let task = dir.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&task).unwrap();
            write_stat(&task, &format!("{pid} (x) S 1 {group} 1"));
            fs::write(task.join("children"), children).unwrap();
        }
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        assert_eq!(descendants(&host, 10), [11, 13, 14, 15]);
        assert!(descendants(&host, 13).is_empty());
        assert!(descendants(&host, 77).is_empty());
    }

    #[test]
    fn parses_stack() {
        let text = "[<0>] folio_wait_bit+0x12b/0x290\n[<0>] jbd2_log+0x10/0x20 [jbd2]\nnonsense\n[<0>] x+0xzz/0x1\n";
        let got = parse_stack(text);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].symbol.as_str(), got[0].offset, got[0].module.as_deref()), ("folio_wait_bit", 0x12b, None));
        assert_eq!((got[1].symbol.as_str(), got[1].offset, got[1].module.as_deref()), ("jbd2_log", 0x10, Some("jbd2")));
    }
}
