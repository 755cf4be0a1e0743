//! Which tasks had a CPU during a wait, each with its time: as text, or as a list of objects.

use std::io::Write;
use std::sync::Arc;

use crate::digits::push_signed;
use crate::escape::escape_into;
use crate::json::{Object, push_list};
use crate::report::{Cell, Value, value_text};
use crate::task::{Comm, TaskTable};

/// A task that had the CPU while another one waited, or why no task had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuRunner {
    pub who: RunnerKind,
    pub ran_ns: u64,
    /// Hundredths of a per cent of the wait.
    pub share: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunnerKind {
    Task {
        tid: i32,
        comm: Comm,
        /// None also where no process is to be named beside the thread.
        process: Option<ThreadProcess>,
        priority: TaskPriority,
    },
    /// The CPU was idle.
    Idle,
    /// Which task ran is not known.
    Unseen,
    /// The sum of this many further tasks.
    Others(u32),
}

impl RunnerKind {
    pub fn process(self) -> Option<ThreadProcess> {
        if let RunnerKind::Task { process, .. } = self { process } else { None }
    }
}

/// The process of a thread that is not its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadProcess {
    pub pid: i32,
    pub comm: Comm,
}

impl ThreadProcess {
    /// None: `tid` is the first thread of its process, or unknown.
    pub fn of(tid: i32, tasks: &mut TaskTable) -> Option<ThreadProcess> {
        let pid = tasks.pid(tid);
        (tid > 0 && pid != tid).then(|| ThreadProcess { pid, comm: tasks.comm(pid) })
    }

    /// Appends `java 15490`.
    pub fn push_text(self, out: &mut Vec<u8>) {
        escape_into(if self.comm.is_empty() { b"<unnamed>" } else { self.comm.as_bytes() }, out);
        out.push(b' ');
        push_signed(i64::from(self.pid), out);
    }
}

/// How a task competes for its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskPriority {
    /// The priority under SCHED_OTHER, SCHED_BATCH and SCHED_IDLE, -20 to 19.
    Nice(i32),
    /// Policy FIFO, RR, or RT if it is not known which of the two; priority 1 to 99.
    RealTime(&'static str, i32),
    Deadline,
}

impl CpuRunner {
    /// The share of `ran_ns` in a wait of `wait_ns`.
    pub fn new(who: RunnerKind, ran_ns: u64, wait_ns: u64) -> CpuRunner {
        let share = u128::from(ran_ns) * 10_000 / u128::from(wait_ns.max(1));
        CpuRunner { who, ran_ns, share: u32::try_from(share).unwrap_or(u32::MAX) }
    }
}

impl TaskPriority {
    /// Converts the kernel's internal priority, in which less is more urgent (include/linux/sched/prio.h).
    pub fn of_kernel(prio: i32, policy: Option<u32>) -> TaskPriority {
        const SCHED_FIFO: u32 = 1;
        const SCHED_RR: u32 = 2;
        match prio {
            ..0 => TaskPriority::Deadline,
            0..100 => {
                let name = match policy {
                    Some(SCHED_FIFO) => "FIFO",
                    Some(SCHED_RR) => "RR",
                    _ => "RT",
                };
                TaskPriority::RealTime(name, 99 - prio)
            }
            _ => TaskPriority::Nice(prio.saturating_sub(120)),
        }
    }
}

/// The tasks that had the CPU during a wait, the longest time first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Runners(pub Arc<[CpuRunner]>);

impl Cell for Runners {
    fn text(&self, out: &mut Vec<u8>) {
        push_text(&self.0, 3, out);
    }

    fn brief(&self, out: &mut Vec<u8>) {
        push_text(&self.0, 1, out);
    }

    fn json(&self, out: &mut Vec<u8>) {
        push_json(&self.0, out);
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// Appends `audio-rt 21339 (FIFO 50) ran 99.000 ms (100.0 %), 2 more tasks ran 0.010 ms (0.0 %)`: the first `most`, and
/// the rest together.
fn push_text(runners: &[CpuRunner], most: usize, out: &mut Vec<u8>) {
    let most = if runners.len() == most + 1 { runners.len() } else { most.min(runners.len()) };
    let (listed, rest) = runners.split_at(most);
    for (index, runner) in listed.iter().chain(&sum(rest)).enumerate() {
        out.extend_from_slice(if index > 0 { b", " } else { b"" });
        match runner.who {
            RunnerKind::Task { tid, comm, process, priority } => {
                if comm.is_empty() {
                    out.extend_from_slice(b"<unnamed>");
                }
                escape_into(comm.as_bytes(), out);
                out.push(b' ');
                push_signed(i64::from(tid), out);
                if let Some(process) = process {
                    out.extend_from_slice(b" of ");
                    process.push_text(out);
                }
                let _ = match priority {
                    TaskPriority::Nice(0) => Ok(()),
                    TaskPriority::Nice(nice) => write!(out, " (nice {nice})"),
                    TaskPriority::RealTime(policy, priority) => write!(out, " ({policy} {priority})"),
                    TaskPriority::Deadline => write!(out, " (DEADLINE)"),
                };
                out.extend_from_slice(b" ran");
            }
            RunnerKind::Idle => out.extend_from_slice(b"the CPU was idle"),
            RunnerKind::Unseen => out.extend_from_slice(b"not seen who ran"),
            RunnerKind::Others(1) => out.extend_from_slice(b"1 more task ran"),
            RunnerKind::Others(count) => drop(write!(out, "{count} more tasks ran")),
        }
        out.push(b' ');
        value_text::push_value(&Value::Ns(runner.ran_ns), out);
        out.extend_from_slice(b" ms (");
        value_text::push_value(&Value::Pct(runner.share), out);
        out.extend_from_slice(b" %)");
    }
}

/// Several runners as one.
fn sum(runners: &[CpuRunner]) -> Option<CpuRunner> {
    let tasks = |runner: &CpuRunner| if let RunnerKind::Others(tasks) = runner.who { tasks } else { 1 };
    let sum = |one: CpuRunner, other: &CpuRunner| CpuRunner {
        who: RunnerKind::Others(tasks(&one).saturating_add(tasks(other))),
        ran_ns: one.ran_ns.saturating_add(other.ran_ns),
        share: one.share.saturating_add(other.share),
    };
    runners.split_first().map(|(first, rest)| rest.iter().fold(*first, sum))
}

/// Appends a list of objects.
fn push_json(runners: &[CpuRunner], out: &mut Vec<u8>) {
    push_list(runners.iter(), out, |runner, out| {
        let mut object = Object::new(out);
        match runner.who {
            RunnerKind::Task { tid, comm, process, priority } => {
                object.signed("tid", i64::from(tid));
                object.value("comm", &Value::Comm(comm));
                object.value("pid", &process.map_or(Value::None, |process| Value::Signed(process.pid.into())));
                object.value("process", &process.map_or(Value::None, |process| Value::Comm(process.comm)));
                let (policy, number) = match priority {
                    TaskPriority::Nice(nice) => ("nice", Some(nice)),
                    TaskPriority::RealTime(policy, priority) => (policy, Some(priority)),
                    TaskPriority::Deadline => ("DEADLINE", None),
                };
                object.value("policy", &Value::Word(policy));
                object.value("priority", &number.map_or(Value::None, |number| Value::Signed(number.into())));
            }
            RunnerKind::Idle => object.value("who", &Value::Word("idle")),
            RunnerKind::Unseen => object.value("who", &Value::Word("unseen")),
            RunnerKind::Others(count) => {
                object.value("who", &Value::Word("others"));
                object.value("tasks", &Value::Unsigned(count.into()));
            }
        }
        object.value("ran_ns", &Value::Ns(runner.ran_ns));
        object.value("share_pct", &Value::Pct(runner.share));
        object.end();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(comm: &[u8], prio: i32, policy: Option<u32>) -> RunnerKind {
        let priority = TaskPriority::of_kernel(prio, policy);
        RunnerKind::Task { tid: 7, comm: Comm::new(comm), process: None, priority }
    }

    #[test]
    fn each_has_its_share() {
        const MS: u64 = 1_000_000;
        let cases = [
            (
                task(b"audio-rt", 49, Some(1)),
                "audio-rt 7 (FIFO 50)",
                r#""comm":"audio-rt","policy":"FIFO","priority":50"#,
            ),
            (task(b"rr", 98, Some(2)), "rr 7 (RR 1)", r#""policy":"RR","priority":1"#),
            (task(b"rt", 0, None), "rt 7 (RT 99)", r#""policy":"RT","priority":99"#),
            (task(b"dl", -1, None), "dl 7 (DEADLINE)", r#""policy":"DEADLINE","ran_ns""#),
            (task(b"a\x1b", 120, None), "a\\x1b 7", r#""policy":"nice","priority":0"#),
            (task(b"b", 101, None), "b 7 (nice -19)", r#""policy":"nice","priority":-19"#),
            (task(b"", 139, Some(0)), "<unnamed> 7 (nice 19)", r#""tid":7"#),
        ];
        for (who, name, keys) in cases {
            let runners = [CpuRunner::new(who, 30 * MS, 40 * MS), CpuRunner::new(RunnerKind::Idle, 10 * MS, 40 * MS)];
            let (mut line, mut object) = (Vec::new(), Vec::new());
            push_text(&runners, 1, &mut line);
            push_json(&runners, &mut object);
            let (line, object) = (String::from_utf8(line).unwrap(), String::from_utf8(object).unwrap());
            assert_eq!(line, format!("{name} ran 30.000 ms (75.0 %), the CPU was idle 10.000 ms (25.0 %)"));
            assert!(object.contains(keys) && object.contains(r#""ran_ns":30000000,"share_pct":75.00"#), "{object}");
            assert!(object.ends_with(r#"{"who":"idle","ran_ns":10000000,"share_pct":25.00}]"#), "{object}");
        }
        let of_java = RunnerKind::Task {
            tid: 9,
            comm: Comm::new(b"GC"),
            process: Some(ThreadProcess { pid: 8, comm: Comm::new(b"ja\x1bva") }),
            priority: TaskPriority::Nice(5),
        };
        let (mut line, mut object) = (Vec::new(), Vec::new());
        push_text(&[CpuRunner::new(of_java, 1, 1)], 1, &mut line);
        push_json(&[CpuRunner::new(of_java, 1, 1)], &mut object);
        let (line, object) = (String::from_utf8(line).unwrap(), String::from_utf8(object).unwrap());
        assert!(line.starts_with("GC 9 of ja\\x1bva 8 (nice 5) ran"), "{line}");
        assert!(object.contains(r#""tid":9,"comm":"GC","pid":8,"process":"ja\\x1bva","policy""#), "{object}");
        let mut line = Vec::new();
        let rest = [RunnerKind::Others(2), RunnerKind::Others(1), RunnerKind::Unseen];
        push_text(&rest.map(|who| CpuRunner::new(who, 0, 0)), 3, &mut line);
        let zero = "0.000 ms (0.0 %)";
        let want = format!("2 more tasks ran {zero}, 1 more task ran {zero}, not seen who ran {zero}");
        assert_eq!(String::from_utf8(line).unwrap(), want);
        let [mut few, mut many] = [Vec::new(), Vec::new()];
        let who = [task(b"a", 120, None), RunnerKind::Idle, task(b"b", 120, None), RunnerKind::Others(2)];
        push_text(&who.map(|who| CpuRunner::new(who, 25, 100)), 1, &mut few);
        push_text(&who.map(|who| CpuRunner::new(who, 25, 100)), 3, &mut many);
        let [few, many] = [few, many].map(|line| String::from_utf8(line).unwrap());
        assert!(few.starts_with("a 7 ran") && few.ends_with(", 4 more tasks ran 0.000 ms (75.0 %)"), "{few}");
        assert!(many.contains("b 7 ran") && many.ends_with(", 2 more tasks ran 0.000 ms (25.0 %)"), "{many}");
    }
}
