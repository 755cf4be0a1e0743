//! Reads /proc/PID/maps of processes that were not seen from their beginning. Of a machine's processes most are kernel
//! threads, and of the others most have one thread: these cost one file and two.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::host::threads;
use crate::symbol::files::path_of_line;
use crate::symbol::mappings::{MOST_MAPPINGS, Mapping, Mappings, MapsLine, leave_last_of_each, parse_maps_line};
use crate::symbol::shared_maps::SharedMappings;
use crate::symbol::spaces::{AddressSpace, AddressSpaces, payer};
use crate::task::procfs::{self, ProcessStatus};

/// The mappings of a process are read from /proc again no sooner than this.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// Of /proc/PID/maps. The 65,530 mappings that a process may have by default take 7 MiB, unless it gives them long paths.
const MOST_MAPS_BYTES: u64 = 32 << 20;
/// State of a thread that waits for a device or a lock.
const STUCK: u8 = b'D';

impl AddressSpaces {
    /// The mappings of a process that is seen for the first time, and its user.
    pub(super) fn first_maps(&mut self, pid: i32) -> (SharedMappings, Option<u32>) {
        let status = procfs::process_status(&self.host, pid).unwrap_or_default();
        let owner = status.owner;
        let maps = match status {
            ProcessStatus { has_no_memory: true, .. } => Mappings::default(),
            // As it is the only one, no other thread holds the lock of the mappings.
            ProcessStatus { only_state: Some(state), .. } if state != STUCK => self.read_maps_now(pid, owner),
            _ => self.read_maps(pid, owner),
        };
        let mut shared = SharedMappings::default();
        shared.change(&self.budget, payer(owner), |empty| *empty = maps);
        (shared, owner)
    }

    /// Adds mappings from /proc whose records may have been lost. False when it is too early to read them again.
    pub(in crate::symbol) fn reread_maps(&mut self, pid: i32) -> bool {
        // The pid of an exited process may belong to another one by now.
        let now = Instant::now();
        let may_reread = |space: &&mut AddressSpace| {
            let is_time = space.exited_at.is_none() && space.reread_at.is_none_or(|next| now >= next);
            is_time && space.maps.may_fit(&self.budget, payer(space.owner))
        };
        let Some(space) = self.spaces.get_mut(&pid).filter(may_reread) else { return false };
        space.reread_at = Some(now + REREAD_AFTER);
        let owner = space.owner;
        let seen = self.read_maps(pid, owner);
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.maps.change(&self.budget, payer(owner), |maps| maps.fill(seen));
        }
        true
    }

    fn read_maps(&mut self, pid: i32, owner: Option<u32>) -> Mappings {
        // A thread that waits for a page of a dead file server holds the lock of the mappings: reading them would wait,
        // too.
        const MAX_THREADS: usize = 256;
        let is_stuck = |tid: &i32| procfs::stat(&self.host, *tid).is_some_and(|stat| stat.state == STUCK);
        if threads(&self.host, pid).iter().take(MAX_THREADS).any(is_stuck) {
            return Mappings::default(); // read again when an address is not found
        }
        self.read_maps_now(pid, owner)
    }

    fn read_maps_now(&mut self, pid: i32, owner: Option<u32>) -> Mappings {
        let mut text = Vec::new();
        let file = File::open(self.host.proc.join(pid.to_string()).join("maps"));
        let is_read = file.is_ok_and(|file| file.take(MOST_MAPS_BYTES).read_to_end(&mut text).is_ok());
        if is_read { self.parse_maps(pid, owner, &text) } else { Mappings::default() }
    }

    /// Uses lines of /proc/PID/maps that a thread that may block has read, for a process whose mappings must not be read here.
    /// That thread has read from the mapped files, too.
    pub(in crate::symbol) fn take_maps(&mut self, pid: i32, text: &[u8]) {
        if !self.space(pid).maps.get().is_empty() {
            return; // records tell what is new
        }
        let owner = self.space(pid).owner;
        let maps = self.parse_maps(pid, owner, text);
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.maps.change(&self.budget, payer(owner), |empty| *empty = maps);
        }
    }

    fn parse_maps(&mut self, pid: i32, owner: Option<u32>, text: &[u8]) -> Mappings {
        let mut lines: Vec<MapsLine<'_>> = text.split(|&byte| byte == b'\n').filter_map(parse_maps_line).collect();
        let is_partial = lines.len() > MOST_MAPPINGS || text.len() as u64 == MOST_MAPS_BYTES;
        leave_last_of_each(&mut lines, MOST_MAPPINGS, |line| line.path);
        let mut seen = Vec::with_capacity(lines.len());
        for line in lines {
            let path = path_of_line(&self.host, pid, &line);
            let module = self.module(pid, owner, (line.start, line.end), &path, line.key);
            seen.push(Mapping::new((line.start, line.end), line.offset, module));
        }
        // The kernel writes the list page by page: a mapping that was moved meanwhile may overlap others.
        let mut maps = Mappings::of(seen);
        if is_partial {
            maps.set_partial();
        }
        maps
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::Host;

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
            assert_eq!(spaces.first_maps(5).0.get().find(0x10001).is_some(), want, "{status} {state}");
        }
    }
    /// As of a runtime that maps each page of its code by itself.
    #[test]
    fn what_is_mapped_once_is_kept_among_many() {
        let dir = tempfile::tempdir().unwrap();
        let page = |number: usize| format!("{number:x}000-{number:x}fff r-xp 0 0:1 7 /memfd:made (deleted)\n");
        let many: String = (0x10..0x10 + MOST_MAPPINGS + 3000).map(page).collect();
        fs::create_dir(dir.path().join("5")).unwrap();
        let lines =
            format!("1000-2000 r-xp 0 1:2 3 /no/program\n{many}7f0000000000-7f0000001000 r-xp 0 1:2 4 /no/libc.so\n");
        fs::write(dir.path().join("5/maps"), lines).unwrap();
        let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        let maps = spaces.first_maps(5).0;
        let path = |address| maps.get().find(address).map(|(module, _)| module.path.to_string());
        assert_eq!(path(0x1000).as_deref(), Some("/no/program"));
        assert_eq!(path(0x7f00_0000_0000).as_deref(), Some("/no/libc.so"));
        let made = (0x10..0x10 + MOST_MAPPINGS + 3000).filter(|page| path((*page as u64) << 12).is_some());
        assert_eq!(made.count(), MOST_MAPPINGS - 2);
        assert!(maps.why_missing().is_some());
    }
}
