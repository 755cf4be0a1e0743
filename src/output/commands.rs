//! The command lines of processes that others lead back to. A flood of signals has the same senders: each is asked of /proc
//! once a second.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::stats::value::{Command, Kin};
use crate::symbol::naming::CurrentStep;
use crate::task::{Comm, procfs};

/// How long an answer is good enough.
const KEEP: Duration = Duration::from_secs(1);
/// Answers kept.
const MOST: usize = 1024;

#[derive(Debug)]
pub struct Commands {
    host: Host,
    step: CurrentStep,
    known: FxHashMap<(i32, Comm), (Instant, Command)>,
}

impl Commands {
    pub fn new(host: Host, step: CurrentStep) -> Commands {
        Commands { host, step, known: FxHashMap::default() }
    }

    /// What a process executes, if it is still the one of that name: its number may be another's by now.
    pub fn with_command(&mut self, kin: &Kin, now: Instant) -> Kin {
        let key = (kin.pid, kin.comm);
        let fresh = self.known.get(&key).filter(|(asked, _)| now.saturating_duration_since(*asked) < KEEP);
        let command = fresh.map(|(_, command)| command.clone()).unwrap_or_else(|| {
            let command = self.ask(kin);
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(key, (now, command.clone()));
            command
        });
        Kin { command, ..kin.clone() }
    }

    fn ask(&self, kin: &Kin) -> Command {
        let lives = procfs::stat(&self.host, kin.pid).is_some_and(|stat| stat.is_alive() && stat.comm == kin.comm);
        if !lives {
            return Command::Gone;
        }
        let line = self.step.in_process(kin.pid, || procfs::command_line(&self.host, kin.pid));
        line.map_or(Command::Unknown, |line| Command::Line(line.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_is_asked_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("5/task/5");
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("stat"), "5 (cron) S 1 5").unwrap();
        fs::write(task.join("cmdline"), "/usr/sbin/cron\0-f\0").unwrap();
        let host = Host { proc: dir.path().into(), ..Host::default() };
        let mut commands = Commands::new(host, CurrentStep::default());
        let kin = |name: &[u8]| Kin { pid: 5, comm: Comm::new(name), command: Command::Unasked };
        let mut command = |name: &[u8], now| commands.with_command(&kin(name), now).command;
        let start = Instant::now();
        assert_eq!(command(b"cron", start), Command::Line("/usr/sbin/cron -f".into()));
        assert_eq!(command(b"other", start), Command::Gone, "the number is another's");
        fs::remove_dir_all(task).unwrap();
        assert!(matches!(command(b"cron", start + KEEP / 2), Command::Line(_)));
        assert_eq!(command(b"cron", start + KEEP), Command::Gone);
    }
}
