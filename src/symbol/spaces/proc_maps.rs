//! Reads /proc/PID/maps of processes that were not seen from their beginning. Of a machine's processes most are kernel
//! threads, and of the others most have one thread: these cost one file and two.
//!
//! A thread that waits for a page of a dead file server holds the lock of the mappings: reading them would wait, too. But most
//! threads in D state wait for a moment, and a process that reads from a disk has one all the time. Only threads that do not
//! move count as stuck.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::threads;
use crate::symbol::files::path_of_line;
use crate::symbol::mappings::{MOST_MAPPINGS, Mapping, Mappings, parse_maps_line};
use crate::symbol::spaces::{AddressSpace, AddressSpaces};
use crate::task::procfs::{self, ProcessStatus};

/// The mappings of a process are read from /proc again no sooner than this.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// Those that could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// State of a thread that waits for a device or a lock.
const WAITS: u8 = b'D';
/// Most threads of a process that are looked at.
const MAX_THREADS: usize = 256;
/// How long it is awaited that a thread moves.
const PATIENCE: Duration = Duration::from_millis(60);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long is waited in all, in [`REREAD_AFTER`]: there may be many processes that are stuck.
const MOST_PATIENCE: Duration = Duration::from_millis(240);

/// The time that is left for waiting.
#[derive(Debug, Default)]
pub(super) struct ReadPatience {
    spent: Duration,
    renewed_at: Option<Instant>,
}

impl ReadPatience {
    /// Calls `is_over` again and again, until it holds or the time is spent.
    fn wait(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        if self.renewed_at.is_none_or(|at| start >= at + REREAD_AFTER) {
            (self.spent, self.renewed_at) = (Duration::ZERO, Some(start));
        }
        let most = PATIENCE.min(MOST_PATIENCE.saturating_sub(self.spent));
        let is_over = loop {
            if is_over() {
                break true;
            }
            if start.elapsed() >= most {
                break false;
            }
            std::thread::sleep(PAUSE);
        };
        self.spent += start.elapsed();
        is_over
    }
}

/// Threads in D state that have not moved so far, each with the CPU time that it had used.
#[derive(Debug)]
struct WaitingThreads(Vec<(i32, Option<u64>)>);

impl WaitingThreads {
    /// Drops those that have moved. True: there are none left. `look`: whether a thread is in D state, and its CPU time.
    fn have_moved(&mut self, mut look: impl FnMut(i32) -> (bool, Option<u64>)) -> bool {
        self.0.retain(|(tid, ran_ns)| {
            let (waits, now_ns) = look(*tid);
            waits && *ran_ns == now_ns
        });
        self.0.is_empty()
    }
}

impl AddressSpaces {
    /// The mappings of a process that is seen for the first time, and its user.
    pub(super) fn first_maps(&mut self, pid: i32) -> (Mappings, Option<u32>) {
        let status = procfs::process_status(&self.host, pid).unwrap_or_default();
        let owner = status.owner;
        let maps = match status {
            ProcessStatus { has_no_memory: true, .. } => Mappings::default(),
            // As it is the only one, no other thread holds the lock of the mappings.
            ProcessStatus { only_state: Some(state), .. } if state != WAITS => self.read_maps_now(pid, owner),
            _ => self.read_maps(pid, owner).unwrap_or_default(), // read again when an address is not found
        };
        (maps, owner)
    }

    /// Adds mappings from /proc whose records may have been lost. False when it is too early to read them again.
    pub(in crate::symbol) fn reread_maps(&mut self, pid: i32) -> bool {
        // The pid of an exited process may belong to another one by now.
        let now = Instant::now();
        let may_reread =
            |space: &&mut AddressSpace| space.exited_at.is_none() && space.reread_at.is_none_or(|next| now >= next);
        let Some(space) = self.spaces.get_mut(&pid).filter(may_reread) else { return false };
        let owner = space.owner;
        let seen = self.read_maps(pid, owner);
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.reread_at = Some(now + if seen.is_some() { REREAD_AFTER } else { RETRY_AFTER });
            seen.into_iter().for_each(|seen| Arc::make_mut(&mut space.maps).fill(seen));
        }
        true
    }

    /// None: the process has a thread that is stuck.
    fn read_maps(&mut self, pid: i32, owner: Option<u32>) -> Option<Mappings> {
        let host = &self.host;
        let look = |tid| {
            let waits = procfs::stat(host, tid).is_some_and(|stat| stat.state == WAITS);
            (waits, if waits { procfs::ran_ns(host, tid) } else { None })
        };
        let looked_at = threads(host, pid).into_iter().take(MAX_THREADS).map(|tid| (tid, look(tid)));
        let waiting = looked_at.filter(|(_, (waits, _))| *waits).map(|(tid, (_, ran_ns))| (tid, ran_ns)).collect();
        let mut waiting = WaitingThreads(waiting);
        let have_moved = waiting.0.is_empty() || self.patience.wait(|| waiting.have_moved(look));
        have_moved.then(|| self.read_maps_now(pid, owner))
    }

    fn read_maps_now(&mut self, pid: i32, owner: Option<u32>) -> Mappings {
        let text = fs::read(self.host.proc.join(pid.to_string()).join("maps")).unwrap_or_default();
        self.parse_maps(pid, owner, &text)
    }

    /// Uses lines of /proc/PID/maps that a thread that may block has read, for a process whose mappings must not be read here.
    /// That thread has read from the mapped files, too.
    pub(in crate::symbol) fn take_maps(&mut self, pid: i32, text: &[u8]) {
        if !self.space(pid).maps.is_empty() {
            return; // records tell what is new
        }
        let owner = self.space(pid).owner;
        let maps = Arc::new(self.parse_maps(pid, owner, text));
        self.spaces.get_mut(&pid).into_iter().for_each(|space| space.maps = maps.clone());
    }

    fn parse_maps(&mut self, pid: i32, owner: Option<u32>, text: &[u8]) -> Mappings {
        let mut seen = Vec::new();
        for line in text.split(|&byte| byte == b'\n').filter_map(parse_maps_line).take(MOST_MAPPINGS) {
            let path = path_of_line(&self.host, pid, &line);
            let module = self.module(pid, owner, (line.start, line.end), &path, line.key);
            seen.push(Mapping::new((line.start, line.end), line.offset, module));
        }
        // The kernel writes the list page by page: a mapping that was moved meanwhile may overlap others.
        Mappings::of(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    #[test]
    fn a_thread_that_moves_is_not_stuck() {
        let all = |waits: &[(i32, Option<u64>)]| WaitingThreads(waits.to_vec());
        let mut waiting = all(&[(5, Some(10)), (6, Some(20)), (7, None), (8, None)]);
        assert!(!waiting.have_moved(|_| (true, Some(10))), "5 is in the same wait");
        assert_eq!(waiting.0, [(5, Some(10))]);
        assert!(waiting.have_moved(|_| (true, Some(11))), "in another one");
        assert!(all(&[(5, Some(10))]).have_moved(|_| (false, None)), "it runs, or has gone");
        assert!(!all(&[(5, None)]).have_moved(|_| (true, None)), "this kernel does not tell CPU times");
    }

    #[test]
    fn patience_has_an_end() {
        let mut patience = ReadPatience::default();
        let mut looks = 0;
        let third = || {
            looks += 1;
            looks == 3
        };
        assert!(patience.wait(third));
        let start = Instant::now();
        (0..1000).for_each(|_| assert!(!patience.wait(|| false)));
        assert!(patience.spent >= MOST_PATIENCE || start.elapsed() >= REREAD_AFTER);
    }

    /// What is read of a process depends on what its status says.
    #[test]
    fn mappings_are_read_where_there_may_be_some() {
        let line = "10000-20000 r-xp 0 0:0 1 /no/a\n";
        let program = |state: &str, threads: &str| format!("State:\t{state}\nVmSize:\t1 kB\nThreads:\t{threads}\n");
        let kernel_thread = "State:\tS (sleeping)\nThreads:\t1\n".to_owned();
        // The state of the second thread.
        let cases = [
            (program("S (sleeping)", "1"), "S", true),
            (program("D (disk sleep)", "1"), "S", true), // no longer
            (program("S (sleeping)", "2"), "S", true),
            (program("S (sleeping)", "2"), "D", false),
            (kernel_thread, "S", false),
        ];
        for (status, state, want) in cases {
            let dir = tempfile::tempdir().unwrap();
            // As the files of a thread are below its own number.
            for tid in [5, 6] {
                let own = dir.path().join(format!("{tid}/task/{tid}"));
                fs::create_dir_all(&own).unwrap();
                fs::create_dir_all(dir.path().join(format!("5/task/{tid}"))).unwrap();
                fs::write(own.join("stat"), format!("{tid} (x) {} 1 5", if tid == 6 { state } else { "S" })).unwrap();
            }
            fs::write(dir.path().join("5/maps"), line).unwrap();
            fs::write(dir.path().join("5/status"), &status).unwrap();
            let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
            assert_eq!(spaces.first_maps(5).0.find(0x10001).is_some(), want, "{status} {state}");
        }
    }
}
