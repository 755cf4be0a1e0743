//! The processes or threads that a run was asked about by number or name: which of them have ended, and who has got such a
//! name since.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::escape::escape;
use crate::host::{Host, processes};
use crate::perf::target::Tasks;
use crate::task::watched::living_threads;
use crate::task::{Comm, procfs};

/// One of them, as it was at the start.
#[derive(Debug)]
struct Asked {
    number: i32,
    comm: Option<Comm>,
    started: Option<u64>,
    /// It came after the start.
    later: bool,
}

/// How long a name that nobody has any more may be taken up by somebody else: a service is started again within that.
const SUCCESSION_NS: u64 = 1_000_000_000;
/// How often it is looked for those, and how often after one has ended.
const LOOK_NS: u64 = 5_000_000_000;
const SOON_NS: u64 = 400_000_000;
/// Looks that are soon, after an end.
const SOON_LOOKS: u32 = 20;
/// Looks at the name of a process: it may execute another program soon after it was started.
const LOOKS_AT_NAME: u8 = 2;

/// Processes that came later and live, at most: anybody may give his own such a name.
const MOST_LATER: usize = 1000;

/// Those that have not ended as of the last look.
#[derive(Debug, Default)]
pub struct Targets {
    living: Vec<Asked>,
    threads: bool,
    /// Processes that had other names, and how often that was seen.
    strangers: FxHashMap<i32, u8>,
    next_look_ns: u64,
    soon: u32,
    /// When nobody was left.
    over_ns: Option<u64>,
}

impl Targets {
    /// Those that `tasks` names. What it finds in other ways comes and goes without a word.
    pub fn new(tasks: &Tasks, host: &Host) -> Targets {
        let (numbers, threads) = match tasks {
            Tasks::Processes(pids) => (&pids[..], false),
            Tasks::Threads(tids) => (&tids[..], true),
            Tasks::All | Tasks::Cgroups(_) | Tasks::Workload(_) => (&[][..], false),
        };
        let living = numbers.iter().map(|&number| Asked::now(number, host)).collect();
        Targets { living, threads, ..Targets::default() }
    }

    /// Processes that have got a name that was asked for since the last look, as /proc has it: some may be watched already.
    /// `is_over`: nobody else is left.
    pub fn find_started(
        &mut self,
        is_asked_for: impl Fn(&[u8]) -> bool,
        host: &Host,
        now_ns: u64,
        is_over: bool,
    ) -> Vec<i32> {
        if now_ns < self.next_look_ns && !is_over {
            return Vec::new();
        }
        self.next_look_ns = now_ns.saturating_add(if self.soon > 0 { SOON_NS } else { LOOK_NS });
        self.soon = self.soon.saturating_sub(1);
        let own = std::process::id() as i32;
        let all = processes(host);
        self.strangers.retain(|pid, _| all.binary_search(pid).is_ok());
        let known: FxHashSet<i32> = self.living.iter().map(|asked| asked.number).collect();
        let mut found = Vec::new();
        for pid in all.into_iter().filter(|&pid| pid != own) {
            let looks = self.strangers.entry(pid).or_default();
            if *looks >= LOOKS_AT_NAME && !is_over || known.contains(&pid) {
                continue;
            }
            let is_named = procfs::comm(host, pid).is_some_and(|comm| is_asked_for(comm.as_bytes()));
            if is_named && procfs::is_alive(host, pid) {
                found.push(pid);
            } else {
                *looks = looks.saturating_add(1);
            }
        }
        found
    }

    /// One that is watched from now on, as it is to be called.
    pub fn add(&mut self, pid: i32, host: &Host) -> String {
        self.over_ns = None;
        self.soon = 0;
        let asked = Asked { later: true, ..Asked::now(pid, host) };
        let name = asked.name();
        self.living.push(asked);
        name
    }

    /// Nobody is left. True while another of the same name may come.
    pub fn may_be_succeeded(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.over_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < SUCCESSION_NS
    }

    /// Leaves out those for whom there is no room; how many these are. They are not found again while others live.
    pub fn leave_out(&mut self, found: &mut Vec<i32>) -> usize {
        let later = self.living.iter().filter(|asked| asked.later).count();
        let left_out = found.split_off(found.len().min(MOST_LATER.saturating_sub(later)));
        self.strangers.extend(left_out.iter().map(|pid| (*pid, LOOKS_AT_NAME)));
        left_out.len()
    }

    /// One line for those that have ended since the last look.
    pub fn take_ended(&mut self, host: &Host) -> Option<String> {
        let threads = self.threads;
        let lives = |asked: &mut Asked| asked.lives(threads, host);
        let ended: Vec<Asked> = self.living.extract_if(.., |asked| !lives(asked)).collect();
        if !ended.is_empty() {
            (self.soon, self.next_look_ns) = (SOON_LOOKS, 0);
        }
        let names: Vec<String> = ended.iter().map(Asked::name).collect();
        (!ended.is_empty()).then(|| format!("{} exited", listed(&names)))
    }
}

/// The first names of a list, and how many more there are.
pub fn listed(names: &[String]) -> String {
    const NAMED: usize = 8;
    let (first, more) = names.split_at(names.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", first.join(", "))
}

impl Asked {
    fn now(number: i32, host: &Host) -> Asked {
        Asked { number, comm: procfs::comm(host, number), started: procfs::start_ticks(host, number), later: false }
    }

    /// Neither gone, nor is another under its number.
    fn lives(&self, threads: bool, host: &Host) -> bool {
        let is_there = match threads {
            true => procfs::is_alive(host, self.number),
            false => !living_threads(host, self.number).is_empty(),
        };
        let started = procfs::start_ticks(host, self.number);
        is_there && (self.started.is_none() || started.is_none() || self.started == started)
    }

    fn name(&self) -> String {
        let comm = self.comm.map(|comm| escape(comm.as_bytes())).unwrap_or_default();
        format!("{comm} {}", self.number).trim_start().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(host: &Host, pid: i32, state: char, start: u64) {
        let task = host.proc.join(format!("{pid}/task/{pid}"));
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("stat"), format!("{pid} (x) {state}{} {start} 0", " 0".repeat(18))).unwrap();
        std::fs::write(task.join("comm"), format!("job{pid}\n")).unwrap();
    }

    #[test]
    fn each_end_is_told_once() {
        for tasks in [Tasks::Processes(vec![7, 8, 9]), Tasks::Threads(vec![7, 8, 9])] {
            let dir = tempfile::tempdir().unwrap();
            let host = Host { proc: dir.path().to_owned(), ..Host::default() };
            [7, 8, 9].into_iter().for_each(|pid| put(&host, pid, 'S', 100));
            let mut targets = Targets::new(&tasks, &host);
            assert_eq!(targets.take_ended(&host), None);
            put(&host, 8, 'Z', 100);
            put(&host, 9, 'S', 200); // somebody else
            assert_eq!(targets.take_ended(&host).as_deref(), Some("job8 8, job9 9 exited"));
            assert_eq!(targets.take_ended(&host), None);
            std::fs::remove_dir_all(dir.path().join("7")).unwrap();
            assert_eq!(targets.take_ended(&host).as_deref(), Some("job7 7 exited"));
        }
        let none = Host { proc: "/nonexistent".into(), ..Host::default() };
        let mut many = Targets::new(&Tasks::Processes((1..=20).collect()), &none);
        assert_eq!(many.take_ended(&none).as_deref(), Some("1, 2, 3, 4, 5, 6, 7, 8 and 12 more exited"));
        assert_eq!(Targets::new(&Tasks::All, &none).take_ended(&none), None);
    }
    #[test]
    fn who_gets_the_name_later() {
        const SECOND: u64 = 1_000_000_000;
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        let rename = |pid: i32, name: &str| std::fs::write(dir.path().join(format!("{pid}/task/{pid}/comm")), name);
        [7, 8].into_iter().for_each(|pid| put(&host, pid, 'S', 100));
        let mut targets = Targets::new(&Tasks::Processes(vec![7]), &host);
        let find = |targets: &mut Targets, now_ns, is_over| {
            targets.find_started(|comm| comm.starts_with(b"job"), &host, now_ns, is_over)
        };
        assert_eq!(find(&mut targets, SECOND, false), [8], "it was not asked about, though so called");
        targets.add(8, &host);
        put(&host, 9, 'S', 200);
        rename(9, "sh\n").unwrap();
        assert!(find(&mut targets, 2 * SECOND, false).is_empty(), "too early to look");
        assert!(find(&mut targets, 7 * SECOND, false).is_empty(), "another name");
        rename(9, "job9\n").unwrap();
        assert!(find(&mut targets, 8 * SECOND, false).is_empty());
        put(&host, 7, 'Z', 100);
        assert_eq!(targets.take_ended(&host).as_deref(), Some("job7 7 exited"));
        assert_eq!(find(&mut targets, 8 * SECOND, false), [9], "soon after an end");
        assert_eq!(targets.add(9, &host), "job9 9");
        assert!(find(&mut targets, 60 * SECOND, false).is_empty());
        // Nobody is left: whoever comes within a second.
        assert!(targets.may_be_succeeded(60 * SECOND) && targets.may_be_succeeded(61 * SECOND - 1));
        assert!(!targets.may_be_succeeded(61 * SECOND));
        put(&host, 10, 'S', 300);
        assert_eq!(find(&mut targets, 60 * SECOND, true), [10]);
    }

    #[test]
    fn those_that_come_later_are_bounded() {
        let none = Host { proc: "/nonexistent".into(), ..Host::default() };
        let mut targets = Targets::new(&Tasks::Processes((1..=3000).collect()), &none);
        let mut found: Vec<i32> = (3001..=3001 + MOST_LATER as i32).collect();
        assert_eq!(targets.leave_out(&mut found), 1, "those of the start do not count");
        found.iter().for_each(|pid| drop(targets.add(*pid, &none)));
        assert_eq!((targets.leave_out(&mut found), found.len()), (MOST_LATER, 0));
    }
}
