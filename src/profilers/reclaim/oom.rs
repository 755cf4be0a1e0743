//! OOM kills: who is killed, on whose behalf and on whose limit.
//!
//! The event has the victim, and the current task is the one whose allocation failed. For the rest the kernel's log is
//! read; programs may write to it, so no more is believed than the text of a line.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::host::KernelLog;
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{Context, Setup, Use};
use crate::profilers::reclaim::table::named;
use crate::report::layout::{SUBJECT, detail, text};
use crate::report::{Detail, OccurrenceSchema, Subject, Value};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::{Field, Format};

/// The OOM kills of the run.
#[derive(Debug, Default)]
pub struct OomKills {
    /// None: this kernel has no such event.
    event: Option<(EventId, OomFields)>,
    log: OomLog,
    seen: Vec<SeenKill>,
    /// The last victims, and the tasks whose allocations failed.
    triggers: VecDeque<(i32, i32)>,
    /// Kills for which there was no room.
    left_out: u64,
}

/// A kill that gets a line as soon as the kernel's log tells of it.
#[derive(Clone, Copy, Debug)]
struct SeenKill {
    subject: Subject,
    victim: OomVictim,
    stack: Option<StackId>,
}

impl OomKills {
    /// Adds the event, if this kernel has it.
    pub fn add_event(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Ok((evsel, format)) = setup.tracepoint("oom:mark_victim") else { return Ok(()) };
        let event = evlist.add(evsel.binding(Binding::Cpu).callchain_if(setup.stacks, 0))?;
        self.event = Some((event, OomFields::of(&format)?));
        self.log = OomLog::open(Path::new("/dev/kmsg"));
        Ok(())
    }

    /// A task is killed, since the current one gets no memory.
    pub fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some((_, fields)) = self.event.as_ref().filter(|(of, _)| *of == event) else { return Ok(Use::Ignored) };
        let victim = fields.victim(sample.raw, |pid| ctx.tasks.comm(pid))?;
        let is_ours = ctx.watched.is_all() || ctx.is_ours(sample.tid) || ctx.is_ours(victim.pid);
        if self.triggers.len() >= MAX_KILLS {
            self.triggers.pop_front();
        }
        self.triggers.push_back((victim.pid, sample.tid));
        if !is_ours {
            return Ok(Use::Ignored);
        }
        if self.seen.len() >= MAX_KILLS {
            self.left_out += 1;
            return Ok(Use::Relevant);
        }
        let (subject, stack) = (ctx.subject(sample), ctx.stack(sample));
        self.seen.push(SeenKill { subject, victim, stack });
        Ok(Use::Relevant)
    }

    /// Hands over the occurrences of the kills of which the log tells. `is_last`: of all.
    pub fn show(&mut self, now: u64, is_last: bool, page_bytes: u64, ctx: &mut Context) {
        /// How long the kernel may take to log a kill: a console can be slow.
        const LOGGED_WITHIN_NS: u64 = 1_000_000_000;
        for kill in std::mem::take(&mut self.seen) {
            let is_last = is_last || now.saturating_sub(kill.subject.time) >= LOGGED_WITHIN_NS;
            let of_one_task = |first: i32| {
                let trigger = self.triggers.iter().rev().find(|(victim, _)| *victim == first);
                trigger.is_some_and(|(_, trigger)| *trigger == kill.subject.tid)
            };
            match self.log.describe(kill.victim, of_one_task, page_bytes, is_last) {
                Some(told) => ctx.emit(&OOM_KILLS, kill.subject, &told, kill.stack),
                None => self.seen.push(kill),
            }
        }
    }

    /// Number of kills that were left out since the last call, because there was no room.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.seen.iter().filter_map(|kill| kill.stack)
    }
}

/// The fields of `oom:mark_victim`. Older kernels have the pid alone.
#[derive(Debug)]
struct OomFields {
    pid: Field,
    comm: Option<Field>,
    anon: Option<Field>,
    file: Option<Field>,
    shmem: Option<Field>,
}

/// The victim of an OOM kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OomVictim {
    pid: i32,
    comm: Comm,
    sizes: VictimSizes,
}

/// What a victim had in memory. None: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VictimSizes {
    anon_bytes: Option<u64>,
    file_bytes: Option<u64>,
    shmem_bytes: Option<u64>,
}

impl OomFields {
    fn of(format: &Format) -> Result<OomFields> {
        let optional = |name: &str| format.field(name).cloned();
        Ok(OomFields {
            pid: format.require("pid")?.clone(),
            comm: optional("comm"),
            anon: optional("anon_rss"),
            file: optional("file_rss"),
            shmem: optional("shmem_rss"),
        })
    }

    /// The victim. `known`: the name of a task, for kernels whose event has none.
    fn victim(&self, raw: &[u8], known: impl FnOnce(i32) -> Comm) -> Result<OomVictim> {
        let pid = self.pid.read_i32(raw)?;
        let comm = match &self.comm {
            Some(comm) => Comm::of_task(comm.text(raw)?),
            None => known(pid),
        };
        // In KiB.
        let bytes = |field: &Option<Field>| {
            let read = |field: &Field| Ok(field.read_u64(raw)?.saturating_mul(1024));
            field.as_ref().map(read).transpose()
        };
        let (anon_bytes, file_bytes) = (bytes(&self.anon)?, bytes(&self.file)?);
        let shmem_bytes: Result<Option<u64>> = bytes(&self.shmem);
        Ok(OomVictim { pid, comm, sizes: VictimSizes { anon_bytes, file_bytes, shmem_bytes: shmem_bytes? } })
    }
}

/// What the log says of one OOM kill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OomReport {
    pid: i32,
    /// The first victim of the cgroup whose tasks are killed together (`memory.oom.group`), which the lines before this
    /// one are about.
    first: Option<i32>,
    constraint: Option<&'static str>,
    cgroup: Option<Arc<str>>,
    used_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    sizes: VictimSizes,
    /// The largest tasks that could have been killed.
    neighbours: Vec<OomCandidate>,
}

/// A task that could have been killed, with its pages in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OomCandidate {
    pages: u64,
    pid: i32,
    name: String,
}

/// The kernel's log, and what it said of OOM kills whose event has not come yet.
#[derive(Debug, Default)]
struct OomLog {
    log: KernelLog,
    /// What the lines since the last kill said; of a cgroup whose tasks are killed together, since its first.
    current: OomReport,
    /// The last kill: maybe it is the first of a cgroup.
    last: OomReport,
    reports: Vec<OomReport>,
}

/// Kills that wait for their lines, reports of kills that wait for their event, and tasks named beside a victim.
const MAX_KILLS: usize = 100;
const MAX_REPORTS: usize = 100;
const MAX_NEIGHBOURS: usize = 3;

impl OomLog {
    fn open(path: &Path) -> OomLog {
        OomLog { log: KernelLog::open(path), ..OomLog::default() }
    }

    /// The line of a kill. None: the log does not tell of it yet. `is_last`: nor will it be asked again. `of_one_task`:
    /// whether a kill was for the allocation of the same task. The kernel does not tell the limit of each kill when
    /// there are many, so the lines before may be about another one.
    fn describe(
        &mut self,
        victim: OomVictim,
        of_one_task: impl Fn(i32) -> bool,
        page_bytes: u64,
        is_last: bool,
    ) -> Option<OomKill> {
        let mut log = std::mem::take(&mut self.log);
        log.read_new(|line| self.take_line(line));
        self.log = log;
        let OomLog { log, reports, .. } = self;
        let found = reports.iter().rposition(|report| report.pid == victim.pid).map(|index| reports.remove(index));
        if found.is_none() && log.is_readable() && !is_last {
            return None;
        }
        let found = found.unwrap_or_default();
        let OomReport { constraint, cgroup, used_bytes, limit_bytes, sizes, neighbours, .. } = match found.first {
            Some(first) if !of_one_task(first) => OomReport { sizes: found.sizes, ..OomReport::default() },
            _ => found,
        };
        let others = neighbours.iter().filter(|other| other.pid != victim.pid).map(|other| {
            let mib = other.pages.saturating_mul(page_bytes) >> 20;
            format!("{} {} ({mib} MiB)", other.name, other.pid)
        });
        let others: Vec<String> = others.take(MAX_NEIGHBOURS).collect();
        let sizes = VictimSizes {
            anon_bytes: victim.sizes.anon_bytes.or(sizes.anon_bytes),
            file_bytes: victim.sizes.file_bytes.or(sizes.file_bytes),
            shmem_bytes: victim.sizes.shmem_bytes.or(sizes.shmem_bytes),
        };
        let victim = OomVictim { sizes, ..victim };
        let neighbours = (!others.is_empty()).then(|| others.join(", ").into());
        Some(OomKill { victim, constraint, cgroup, used_bytes, limit_bytes, neighbours })
    }

    fn take_line(&mut self, line: &str) {
        // All tasks of the cgroup of the last kill follow.
        if line.starts_with("Tasks in ") && line.ends_with(" are going to be killed due to memory.oom.group set") {
            let first = self.last.first.or(Some(self.last.pid));
            self.current = OomReport { first, ..std::mem::take(&mut self.last) };
        } else if self.current.take_line(line) {
            if self.reports.len() >= MAX_REPORTS {
                self.reports.remove(0);
            }
            self.reports.push(self.current.clone());
            if self.current.first.is_none() {
                self.last = std::mem::take(&mut self.current);
            }
        }
    }
}

impl OomReport {
    /// Takes a line of the log. True: it is the last one about a kill.
    fn take_line(&mut self, line: &str) -> bool {
        if line.contains(" invoked oom-killer: ") {
            *self = OomReport::default();
        } else if let Some(rest) = line.strip_prefix("memory: usage ") {
            self.take_usage(rest);
        } else if let Some(rest) = line.strip_prefix("oom-kill:constraint=") {
            self.take_constraint(rest);
        } else if let Some((_, killed)) = line.split_once(": Killed process ") {
            return self.take_victim(killed);
        } else if let Some(candidate) = OomCandidate::parse(line) {
            self.neighbours.push(candidate);
            self.neighbours.sort_by_key(|candidate| Reverse(candidate.pages));
            self.neighbours.truncate(MAX_NEIGHBOURS + 1); // the victim is one of them
        }
        false
    }

    /// `33024kB, limit 32768kB, failcnt 59`
    fn take_usage(&mut self, text: &str) {
        let mut parts = text.split(", ");
        self.used_bytes = parts.next().and_then(kib);
        self.limit_bytes = parts.next().and_then(|part| kib(part.strip_prefix("limit ")?));
    }

    /// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=comm,pid=7,uid=0`
    fn take_constraint(&mut self, text: &str) {
        let word = text.split(',').next().unwrap_or("");
        self.constraint = ["none", "cpuset", "memory_policy", "memcg"]
            .into_iter()
            .find(|known| word.strip_prefix("CONSTRAINT_").is_some_and(|word| word.eq_ignore_ascii_case(known)));
        // Of a kill for the machine only `global_oom`.
        let path = text.split_once(",oom_memcg=").and_then(|(_, rest)| rest.rsplit_once(",task_memcg="));
        self.cgroup = path.map(|(path, _)| path.into());
    }

    /// `7 (comm) total-vm:42264kB, anon-rss:32384kB, file-rss:6612kB, shmem-rss:0kB, UID:0 pgtables:128kB`
    fn take_victim(&mut self, text: &str) -> bool {
        let Some(pid) = text.split(' ').next().and_then(|pid| pid.parse().ok()) else { return false };
        self.pid = pid;
        // The name before may be anything, so the sizes are found from the end.
        let bytes = |key: &str| text.rsplit_once(key).and_then(|(_, rest)| kib(rest.split(',').next()?));
        self.sizes = VictimSizes {
            anon_bytes: bytes(" anon-rss:"),
            file_bytes: bytes(" file-rss:"),
            shmem_bytes: bytes(" shmem-rss:"),
        };
        true
    }
}

impl OomCandidate {
    /// `[  14342]     0 14342    10566     9749  ...   0 python3`: pid, user, process, pages of addresses and of memory.
    fn parse(line: &str) -> Option<OomCandidate> {
        let (pid, rest) = line.strip_prefix('[')?.split_once(']')?;
        let mut words = rest.split_ascii_whitespace();
        let pages = words.nth(3)?.parse().ok()?;
        // Names have blanks at times: the last number is `oom_score_adj`.
        let mut name: Vec<&str> = words.skip_while(|word| word.parse::<i64>().is_ok()).collect();
        name.truncate(4);
        Some(OomCandidate { pages, pid: pid.trim().parse().ok()?, name: name.join(" ") })
    }
}

/// `33024kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The occurrence of an OOM kill. Its subject is the task whose allocation failed.
#[derive(Debug, PartialEq, Eq)]
struct OomKill {
    victim: OomVictim,
    constraint: Option<&'static str>,
    cgroup: Option<Arc<str>>,
    used_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    neighbours: Option<Arc<str>>,
}

fn number(number: Option<u64>) -> Value {
    number.map_or(Value::None, Value::Unsigned)
}

static OOM_KILLS: OccurrenceSchema<OomKill> = OccurrenceSchema::<OomKill>::new(
    &[
        Detail::new("kind", |_| Value::Word("oom kill")),
        Detail::new("victim.pid", |kill| Value::Signed(kill.victim.pid.into())),
        Detail::new("victim.comm", |kill| Value::Comm(kill.victim.comm)),
        Detail::new("anon_bytes", |kill| number(kill.victim.sizes.anon_bytes)),
        Detail::new("file_bytes", |kill| number(kill.victim.sizes.file_bytes)),
        Detail::new("shmem_bytes", |kill| number(kill.victim.sizes.shmem_bytes)),
        Detail::new("constraint", |kill| kill.constraint.map_or(Value::None, Value::Word)),
        Detail::new("cgroup", |kill| named(&kill.cgroup)),
        Detail::new("used_bytes", |kill| number(kill.used_bytes)),
        Detail::new("limit_bytes", |kill| number(kill.limit_bytes)),
        Detail::new("neighbours", |kill| kill.neighbours.clone().map_or(Value::None, Value::Text)),
    ],
    &[
        text("    OOM kill    "),
        SUBJECT,
        text("  killed"),
        detail("victim.comm").after(" "),
        detail("victim.pid").after(" "),
        detail("anon_bytes").between(", ", " bytes anonymous"),
        detail("file_bytes").between(", ", " of files"),
        detail("shmem_bytes").between(", ", " shared"),
        detail("constraint").after("; constraint "),
        detail("cgroup").after(", cgroup "),
        detail("limit_bytes").after(", limit "),
        detail("used_bytes").after(", used "),
        detail("neighbours").after("; beside it "),
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 9] = [
        "dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "memory: usage 32768kB, limit 32768kB, failcnt 45",
        "Tasks state (memory values in pages):",
        "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
        "[  14341]     0 14341      732      425        0      425         0    40960        0             0 timeout",
        "[  14342]     0 14342    10566     9749     8096     1653         0   131072        0             0 a, b=c",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,b,task_memcg=/a,b/c,\
         task=a, b=c,pid=14342,uid=0",
        "Memory cgroup out of memory: Killed process 14342 (a, anon-rss:1kB) total-vm:42264kB, anon-rss:32384kB, \
         file-rss:6612kB, shmem-rss:0kB, UID:0 pgtables:128kB oom_score_adj:0",
        "oom_reaper: reaped process 14342 (x), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ];

    fn read(lines: &[&str]) -> Vec<OomReport> {
        let (mut current, mut reports) = (OomReport::default(), Vec::new());
        for line in lines {
            if current.take_line(line) {
                reports.push(std::mem::take(&mut current));
            }
        }
        reports
    }

    fn log(lines: &[&str]) -> OomLog {
        let mut log = OomLog::default();
        lines.iter().for_each(|line| log.take_line(line));
        log
    }

    fn describe(log: &mut OomLog, pid: i32) -> OomKill {
        log.describe(OomVictim { pid, ..OomVictim::default() }, |first| first == 14342, 4096, true).unwrap()
    }

    #[test]
    fn the_log_tells_whose_limit_it_was() {
        let mut log = log(&LINES);
        let kill = describe(&mut log, 14342);
        assert_eq!((kill.constraint, kill.cgroup.as_deref()), (Some("memcg"), Some("/a,b")));
        assert_eq!((kill.used_bytes, kill.limit_bytes), (Some(32 << 20), Some(32 << 20)));
        let sizes = [Some(32_384 << 10), Some(6612 << 10), Some(0)];
        assert_eq!([kill.victim.sizes.anon_bytes, kill.victim.sizes.file_bytes, kill.victim.sizes.shmem_bytes], sizes);
        assert_eq!(kill.neighbours.as_deref(), Some("timeout 14341 (1 MiB)"));
        let again = describe(&mut log, 14342);
        assert_eq!((again.constraint, again.cgroup, again.neighbours), (None, None, None), "once");
    }

    /// The kernel tells the limit of a cgroup whose tasks are killed together before the first of them alone.
    #[test]
    fn victims_of_one_kill_share_its_limit() {
        let killed =
            |pid: i32| format!("Memory cgroup out of memory: Killed process {pid} (x) total-vm:9kB, anon-rss:{pid}kB");
        let together = "Tasks in /a,b/c are going to be killed due to memory.oom.group set";
        let (five, six, seven) = (killed(5), killed(6), killed(7));
        let mut group = log(&[&LINES[..8], &[together, &five, LINES[8], &six, LINES[0], &seven]].concat());
        for pid in [6, 5, 14342] {
            let kill = describe(&mut group, pid);
            assert_eq!((kill.constraint, kill.cgroup.as_deref()), (Some("memcg"), Some("/a,b")), "{pid}");
            assert_eq!(kill.limit_bytes, Some(32 << 20));
            assert!(pid == 14342 || kill.victim.sizes.anon_bytes == Some(pid as u64 * 1024), "its own: {kill:?}");
        }
        assert_eq!(describe(&mut group, 7).constraint, None, "another kill, whose limit the kernel did not tell");
        let mut alone = log(&[&LINES[..8], &[&five]].concat());
        assert_eq!((describe(&mut alone, 5).constraint, describe(&mut alone, 14342).constraint), (None, Some("memcg")));
        let mut of_others = log(&[&LINES[..8], &[together, &five]].concat());
        let victim = OomVictim { pid: 5, ..OomVictim::default() };
        let kill = of_others.describe(victim, |_| false, 4096, true).unwrap();
        assert_eq!((kill.constraint, kill.limit_bytes), (None, None), "for another task: {kill:?}");
    }

    /// A part of the log, in any order, never tells of another kill.
    #[test]
    fn lines_may_be_missing() {
        for first in 0..LINES.len() {
            for last in first..LINES.len() {
                let reports = read(&LINES[first..last]);
                assert_eq!(reports.len(), usize::from(first <= 7 && last > 7));
                assert!(reports.iter().all(|report| report.pid == 14342));
            }
        }
        for line in [
            "",
            "[",
            "[]",
            "[1] x",
            "[1] 1 2 3",
            "memory: usage",
            "memory: usage x, limit",
            ": Killed process x",
            "oom-kill:constraint=",
            "oom-kill:constraint=,oom_memcg=",
            "[9] 0 9 1 18446744073709551616 0 x",
        ] {
            assert!(read(&[line]).is_empty(), "{line}");
        }
    }

    #[test]
    fn reports_of_others_stay() {
        let mut log = log(&LINES);
        assert_eq!(describe(&mut log, 5).constraint, None);
        assert_eq!(describe(&mut log, 14342).constraint, Some("memcg"));
    }
}
