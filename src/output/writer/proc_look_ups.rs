//! Command lines of the ancestors of tasks from /proc, and what system calls were about: the files behind their
//! descriptors, their current directory, strings that were not copied in time.
//!
//! A flood of signals comes from the same few senders: each is read from /proc once a second. A flood of new processes
//! has new ancestors all the time: the number of reads is limited, and the other ancestors have their comm alone.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::output::writer::late_text::LateReader;
use crate::report::{Command, LateSource, LateText};
use crate::symbol::naming::time::CurrentStep;
use crate::task::call_parts::{self, CallPartsOf, PartSums};
use crate::task::descriptor::{self, OpenFile};
use crate::task::{Comm, procfs};

/// How long a command line from /proc is used again.
const KEEP: Duration = Duration::from_secs(1);
/// Most processes read from /proc within `SPAN`.
const MAX_ASKED: u32 = 100;
/// The same of descriptors, each of which takes some µs.
const MAX_FILES: u32 = 1000;
const SPAN: Duration = Duration::from_millis(100);
/// Bytes kept of a command line, about. A line of JSON has up to nine command lines.
const MAX_BYTES: usize = 512;
/// Cached command lines. Fresh ones are always fewer: at most `MAX_ASKED` in each `SPAN` of `KEEP`.
const LIMIT: usize = 2048;

/// What is looked up in /proc and in the memory of processes, each with a limit.
#[derive(Debug)]
pub struct ProcLookUps {
    host: Host,
    step: CurrentStep,
    known: FxHashMap<(i32, Comm), (Instant, Command)>,
    /// Start of the current `SPAN`, and processes read since then.
    asked: (Option<Instant>, u32),
    /// The same of descriptors.
    files_asked: (Option<Instant>, u32),
    strings: LateReader,
    /// The strings of records.
    pub record_strings: LateReader,
}

impl ProcLookUps {
    pub fn new(host: Host, step: CurrentStep) -> ProcLookUps {
        ProcLookUps {
            strings: LateReader::new(host.clone()),
            record_strings: LateReader::new(host.clone()),
            host,
            step,
            known: FxHashMap::default(),
            asked: (None, 0),
            files_asked: (None, 0),
        }
    }

    /// What a process executes, if it is still the one of that name: its number may be another's by now.
    pub fn command(&mut self, pid: i32, comm: Comm, now: Instant) -> Command {
        let key = (pid, comm);
        let is_fresh = |asked: Instant| now.saturating_duration_since(asked) < KEEP;
        if let Some((_, command)) = self.known.get(&key).filter(|(asked, _)| is_fresh(*asked)) {
            return command.clone();
        }
        if !may_ask(&mut self.asked, MAX_ASKED, now) {
            return Command::Unasked;
        }
        let command = self.ask(pid, comm);
        if self.known.len() >= LIMIT {
            self.known.retain(|_, (asked, _)| is_fresh(*asked));
        }
        self.known.insert(key, (now, command.clone()));
        command
    }

    /// What the text is of, if its thread still has the same name.
    pub fn late_text(&mut self, text: &LateText, now: Instant) -> Option<Vec<u8>> {
        if procfs::comm(&self.host, text.tid) != Some(text.comm) {
            return None;
        }
        match text.source {
            LateSource::Directory(fd) => self.file(text.tid, fd, now).map(|file| file.path),
            LateSource::String(address) => self.string(text.tid, address),
        }
    }

    /// The string at an address of a thread's memory, if it reads as a path does: the program may have used the memory
    /// again.
    pub fn string(&mut self, tid: i32, address: u64) -> Option<Vec<u8>> {
        let ProcLookUps { step, strings, .. } = self;
        let text = step.in_process(tid, || strings.string(tid, address))?;
        let is_path = std::str::from_utf8(&text).is_ok_and(|text| !text.is_empty() && !text.contains(char::is_control));
        is_path.then_some(text)
    }

    /// The sums of the parts of a call that a thread is in.
    pub fn part_sums(&mut self, question: &CallPartsOf, now: Instant) -> Option<PartSums> {
        if !may_ask(&mut self.files_asked, MAX_FILES, now) {
            return None;
        }
        self.step.in_process(question.tid, || call_parts::part_sums(&self.host, question))
    }

    /// The file that a descriptor of a thread is open on now, or its current directory, without its device. The file itself
    /// is never touched.
    pub fn file(&mut self, tid: i32, fd: i32, now: Instant) -> Option<OpenFile> {
        if !may_ask(&mut self.files_asked, MAX_FILES, now) {
            return None;
        }
        self.step.in_process(tid, || match fd {
            libc::AT_FDCWD => {
                let path = procfs::current_directory(&self.host, tid)?;
                Some(OpenFile { path, device: None })
            }
            fd => descriptor::open_file(&self.host, tid, fd),
        })
    }

    fn ask(&self, pid: i32, comm: Comm) -> Command {
        match procfs::brief(&self.host, pid).filter(procfs::BriefStatus::is_alive) {
            Some(brief) if brief.comm == comm => {}
            // It has executed another program since, most likely. Or its number is another's.
            Some(_) if procfs::start_ticks(&self.host, pid).is_some() => return Command::Unknown,
            _ => return Command::Gone,
        }
        let line = self.step.in_process(pid, || procfs::command_line(&self.host, pid));
        line.map_or(Command::Unknown, |line| Command::Line(shortened(line).into()))
    }
}

/// Counts a read from /proc. False: there were too many within the span.
fn may_ask((since, asked): &mut (Option<Instant>, u32), most: u32, now: Instant) -> bool {
    if since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
        (*since, *asked) = (Some(now), 0);
    }
    *asked += 1;
    *asked <= most
}

/// Cuts a command line that is too long.
fn shortened(mut line: String) -> String {
    if line.len() > MAX_BYTES {
        line.truncate(line.floor_char_boundary(MAX_BYTES));
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::task::fixture::write_stat;

    #[test]
    fn a_command_line_is_read_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("5/task/5");
        fs::create_dir_all(&task).unwrap();
        write_stat(&task, "5 (cron) S 1 5");
        fs::write(task.join("cmdline"), "/usr/sbin/cron\0-f\0").unwrap();
        let host = Host { proc: dir.path().into(), ..Host::default() };
        let mut commands = ProcLookUps::new(host, CurrentStep::default());
        let mut command = |name: &[u8], now| commands.command(5, Comm::new(name), now);
        let start = Instant::now();
        assert_eq!(command(b"cron", start), Command::Line("/usr/sbin/cron -f".into()));
        assert_eq!(command(b"other", start), Command::Gone, "the number is another's");
        let long = "\u{e4}".repeat(MAX_BYTES);
        assert_eq!(shortened(format!("x{long}")).len(), MAX_BYTES - 1 + "...".len(), "no character is cut");
        fs::remove_dir_all(task).unwrap();
        assert!(matches!(command(b"cron", start + KEEP / 2), Command::Line(_)));
        assert_eq!(command(b"cron", start + KEEP), Command::Gone);
    }

    #[test]
    fn a_process_that_executes_a_program_is_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("5/task/5");
        fs::create_dir_all(&task).unwrap();
        write_stat(&task, &format!("5 (sleep) S 1 5 {}77 0", "0 ".repeat(16)));
        let host = Host { proc: dir.path().into(), ..Host::default() };
        let mut commands = ProcLookUps::new(host, CurrentStep::default());
        assert_eq!(commands.command(5, Comm::new(b"sh"), Instant::now()), Command::Unknown);
    }

    #[test]
    fn a_flood_of_processes_causes_few_reads() {
        let host = Host { proc: "/nonexistent".into(), ..Host::default() };
        let mut commands = ProcLookUps::new(host, CurrentStep::default());
        let start = Instant::now();
        let mut gone = |pids: std::ops::Range<i32>, now| {
            let commands = pids.map(|pid| commands.command(pid, Comm::new(b"true"), now));
            commands.filter(|command| *command == Command::Gone).count()
        };
        let most = MAX_ASKED as i32;
        assert_eq!(gone(0..most + 50, start), MAX_ASKED as usize);
        assert_eq!(gone(0..most, start + SPAN / 2), MAX_ASKED as usize, "these are known");
        assert_eq!(gone(most..most + 50, start + SPAN), 50);
        for span in 0..100 {
            gone(1000 * span..1000 * span + most, start + KEEP + span as u32 * SPAN);
        }
        assert!(commands.known.len() <= LIMIT);
    }
}
