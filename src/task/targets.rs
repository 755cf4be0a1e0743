//! The tasks that a run was given by pid or name: which of them have ended, and which new processes have such a name.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::escape::escape;
use crate::host::{Host, processes};
use crate::perf::target::Tasks;
use crate::task::watched::living_threads;
use crate::task::{Comm, Watched, procfs};

/// A task that the run is about, as it was at the start.
#[derive(Debug)]
struct TargetTask {
    /// Pid or tid.
    id: i32,
    comm: Option<Comm>,
    started: Option<u64>,
    /// The process was started after the run, and has a wanted name.
    is_successor: bool,
}

/// How long a run without a living task waits for a new process of a wanted name, ns: a service is restarted within
/// that time.
const SUCCESSOR_NS: u64 = 1_000_000_000;
/// Time between two searches for new processes, ns; the second one after a task has ended.
const SEARCH_NS: u64 = 5_000_000_000;
const SOON_SEARCH_NS: u64 = 400_000_000;
/// Frequent searches after a task has ended.
const SOON_SEARCHES: u32 = 20;
/// How often the name of a process is read: it may execute another program soon after its start.
const NAME_CHECKS: u8 = 2;

/// Most living successors: any user can give a process such a name.
const MAX_SUCCESSORS: usize = 1000;

/// The tasks that had not ended at the last check.
#[derive(Debug, Default)]
pub struct Targets {
    living: Vec<TargetTask>,
    threads: bool,
    /// Processes with other names, and how often these were read.
    other_names: FxHashMap<i32, u8>,
    search_at_ns: u64,
    soon_searches: u32,
    /// Since when no task has been left.
    empty_since_ns: Option<u64>,
}

impl Targets {
    /// The tasks listed in `tasks`. The end of tasks that are selected in other ways is not reported.
    pub fn new(tasks: &Tasks, host: &Host) -> Targets {
        let (numbers, threads) = match tasks {
            Tasks::Processes(pids) => (&pids[..], false),
            Tasks::Threads(tids) => (&tids[..], true),
            Tasks::All | Tasks::Cgroups(_) | Tasks::Workload(_) => (&[][..], false),
        };
        let living = numbers.iter().map(|&id| TargetTask::now(id, host)).collect();
        Targets { living, threads, ..Targets::default() }
    }

    /// Processes in /proc that have got a wanted name since the last search; some may be watched already. `is_over`: no
    /// task is left.
    pub fn find_started(
        &mut self,
        is_asked_for: impl Fn(i32, Comm) -> bool,
        host: &Host,
        now_ns: u64,
        is_over: bool,
    ) -> Vec<i32> {
        if now_ns < self.search_at_ns && !is_over {
            return Vec::new();
        }
        self.search_at_ns = now_ns.saturating_add(if self.soon_searches > 0 { SOON_SEARCH_NS } else { SEARCH_NS });
        self.soon_searches = self.soon_searches.saturating_sub(1);
        let own = std::process::id() as i32;
        let all = processes(host);
        self.other_names.retain(|pid, _| all.binary_search(pid).is_ok());
        let known: FxHashSet<i32> = self.living.iter().map(|asked| asked.id).collect();
        let mut found = Vec::new();
        for pid in all.into_iter().filter(|&pid| pid != own) {
            let checks = self.other_names.entry(pid).or_default();
            if *checks >= NAME_CHECKS && !is_over || known.contains(&pid) {
                continue;
            }
            let is_named = procfs::comm(host, pid).is_some_and(|comm| is_asked_for(pid, comm));
            if is_named && procfs::is_alive(host, pid) {
                found.push(pid);
            } else {
                *checks = checks.saturating_add(1);
            }
        }
        found
    }

    /// Adds a process that is watched from now on. Returns the name that is shown.
    pub fn add(&mut self, pid: i32, host: &Host) -> String {
        self.empty_since_ns = None;
        self.soon_searches = 0;
        let asked = TargetTask { is_successor: true, ..TargetTask::now(pid, host) };
        let name = asked.name();
        self.living.push(asked);
        name
    }

    /// Called when no task is left. True while a process of the same name may still be started.
    pub fn may_be_succeeded(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.empty_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < SUCCESSOR_NS
    }

    /// Removes the processes from `found` that exceed the limit, and returns their number. They are not found again
    /// while other successors live.
    pub fn leave_out(&mut self, found: &mut Vec<i32>) -> usize {
        let is_successor = self.living.iter().filter(|asked| asked.is_successor).count();
        let left_out = found.split_off(found.len().min(MAX_SUCCESSORS.saturating_sub(is_successor)));
        self.other_names.extend(left_out.iter().map(|pid| (*pid, NAME_CHECKS)));
        left_out.len()
    }

    /// The message on the tasks that have ended since the last call. For a thread that is `watched`, records decide
    /// when it has ended: a thread that executes a program continues under another tid.
    pub fn take_ended(&mut self, watched: &Watched, host: &Host) -> Option<String> {
        let threads = self.threads;
        let lives = |asked: &mut TargetTask| {
            if threads && watched.number_of(asked.id) != asked.id {
                *asked = TargetTask::now(watched.number_of(asked.id), host);
            }
            asked.lives(threads, host) || threads && watched.is_living(asked.id)
        };
        let ended: Vec<TargetTask> = self.living.extract_if(.., |asked| !lives(asked)).collect();
        if !ended.is_empty() {
            (self.soon_searches, self.search_at_ns) = (SOON_SEARCHES, 0);
        }
        let names: Vec<String> = ended.iter().map(TargetTask::name).collect();
        (!ended.is_empty()).then(|| format!("{} exited", listed(&names)))
    }
}

/// The first names of a list, and the number of the remaining ones.
pub fn listed(names: &[String]) -> String {
    const NAMED: usize = 8;
    let (first, more) = names.split_at(names.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", first.join(", "))
}

impl TargetTask {
    fn now(id: i32, host: &Host) -> TargetTask {
        TargetTask { id, comm: procfs::comm(host, id), started: procfs::start_ticks(host, id), is_successor: false }
    }

    /// False when the task has exited, or its id is reused.
    fn lives(&self, threads: bool, host: &Host) -> bool {
        let is_there = match threads {
            true => procfs::is_alive(host, self.id),
            false => !living_threads(host, self.id).is_empty(),
        };
        let started = procfs::start_ticks(host, self.id);
        is_there && (self.started.is_none() || started.is_none() || self.started == started)
    }

    fn name(&self) -> String {
        let comm = self.comm.map(|comm| escape(comm.as_bytes())).unwrap_or_default();
        format!("{comm} {}", self.id).trim_start().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::write_stat;

    fn put(host: &Host, pid: i32, state: char, start: u64) {
        let task = host.proc.join(format!("{pid}/task/{pid}"));
        std::fs::create_dir_all(&task).unwrap();
        write_stat(&task, &format!("{pid} (x) {state}{} {start} 0", " 0".repeat(18)));
        std::fs::write(task.join("comm"), format!("job{pid}\n")).unwrap();
    }

    #[test]
    fn each_end_is_reported_once() {
        for tasks in [Tasks::Processes(vec![7, 8, 9]), Tasks::Threads(vec![7, 8, 9])] {
            let dir = tempfile::tempdir().unwrap();
            let host = Host { proc: dir.path().to_owned(), ..Host::default() };
            [7, 8, 9].into_iter().for_each(|pid| put(&host, pid, 'S', 100));
            let mut targets = Targets::new(&tasks, &host);
            assert_eq!(targets.take_ended(&Watched::All, &host), None);
            put(&host, 8, 'Z', 100);
            put(&host, 9, 'S', 200); // another process
            assert_eq!(targets.take_ended(&Watched::All, &host).as_deref(), Some("job8 8, job9 9 exited"));
            assert_eq!(targets.take_ended(&Watched::All, &host), None);
            std::fs::remove_dir_all(dir.path().join("7")).unwrap();
            assert_eq!(targets.take_ended(&Watched::All, &host).as_deref(), Some("job7 7 exited"));
        }
        let none = Host { proc: "/nonexistent".into(), ..Host::default() };
        let mut many = Targets::new(&Tasks::Processes((1..=20).collect()), &none);
        assert_eq!(many.take_ended(&Watched::All, &none).as_deref(), Some("1, 2, 3, 4, 5, 6, 7, 8 and 12 more exited"));
        assert_eq!(Targets::new(&Tasks::All, &none).take_ended(&Watched::All, &none), None);
    }
    #[test]
    fn a_successor_is_found_by_its_name() {
        const SECOND: u64 = 1_000_000_000;
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        let rename = |pid: i32, name: &str| std::fs::write(dir.path().join(format!("{pid}/task/{pid}/comm")), name);
        [7, 8].into_iter().for_each(|pid| put(&host, pid, 'S', 100));
        let mut targets = Targets::new(&Tasks::Processes(vec![7]), &host);
        let find = |targets: &mut Targets, now_ns, is_over| {
            targets.find_started(|_, comm| comm.as_bytes().starts_with(b"job"), &host, now_ns, is_over)
        };
        assert_eq!(find(&mut targets, SECOND, false), [8], "it has the name, but is not in the list");
        targets.add(8, &host);
        put(&host, 9, 'S', 200);
        rename(9, "sh\n").unwrap();
        assert!(find(&mut targets, 2 * SECOND, false).is_empty(), "too early to search");
        assert!(find(&mut targets, 7 * SECOND, false).is_empty(), "another name");
        rename(9, "job9\n").unwrap();
        assert!(find(&mut targets, 8 * SECOND, false).is_empty());
        put(&host, 7, 'Z', 100);
        assert_eq!(targets.take_ended(&Watched::All, &host).as_deref(), Some("job7 7 exited"));
        assert_eq!(find(&mut targets, 8 * SECOND, false), [9], "soon after an end");
        assert_eq!(targets.add(9, &host), "job9 9");
        assert!(find(&mut targets, 60 * SECOND, false).is_empty());
        // No task is left: a successor may come within a second.
        assert!(targets.may_be_succeeded(60 * SECOND) && targets.may_be_succeeded(61 * SECOND - 1));
        assert!(!targets.may_be_succeeded(61 * SECOND));
        put(&host, 10, 'S', 300);
        assert_eq!(find(&mut targets, 60 * SECOND, true), [10]);
    }

    #[test]
    fn the_number_of_successors_is_bounded() {
        let none = Host { proc: "/nonexistent".into(), ..Host::default() };
        let mut targets = Targets::new(&Tasks::Processes((1..=3000).collect()), &none);
        let mut found: Vec<i32> = (3001..=3001 + MAX_SUCCESSORS as i32).collect();
        assert_eq!(targets.leave_out(&mut found), 1, "tasks of the start do not count");
        found.iter().for_each(|pid| drop(targets.add(*pid, &none)));
        assert_eq!((targets.leave_out(&mut found), found.len()), (MAX_SUCCESSORS, 0));
    }
}
