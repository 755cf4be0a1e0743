//! The processes or threads that a run was asked about by number or name: which of them have ended.

use crate::escape::escape;
use crate::host::Host;
use crate::perf::target::Tasks;
use crate::task::watched::living_threads;
use crate::task::{Comm, procfs};

/// One of them, as it was at the start.
#[derive(Debug)]
struct Asked {
    number: i32,
    comm: Option<Comm>,
    started: Option<u64>,
}

/// Those that have not ended as of the last look.
#[derive(Debug, Default)]
pub struct Targets {
    living: Vec<Asked>,
    threads: bool,
}

impl Targets {
    /// Those that `tasks` names. What it finds in other ways comes and goes without a word.
    pub fn new(tasks: &Tasks, host: &Host) -> Targets {
        let (numbers, threads) = match tasks {
            Tasks::Processes(pids) => (&pids[..], false),
            Tasks::Threads(tids) => (&tids[..], true),
            Tasks::All | Tasks::Cgroups(_) | Tasks::Workload(_) => (&[][..], false),
        };
        let asked = |&number: &i32| Asked {
            number,
            comm: procfs::comm(host, number),
            started: procfs::start_ticks(host, number),
        };
        Targets { living: numbers.iter().map(asked).collect(), threads }
    }

    /// One line for those that have ended since the last look.
    pub fn take_ended(&mut self, host: &Host) -> Option<String> {
        const NAMED: usize = 8;
        let threads = self.threads;
        let lives = |asked: &mut Asked| asked.lives(threads, host);
        let ended: Vec<Asked> = self.living.extract_if(.., |asked| !lives(asked)).collect();
        let named: Vec<String> = ended.iter().take(NAMED).map(Asked::name).collect();
        let more = ended.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!ended.is_empty()).then(|| format!("{}{more} exited", named.join(", ")))
    }
}

impl Asked {
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
}
