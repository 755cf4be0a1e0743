//! Asks for /proc/PID/maps of processes that were not seen from their beginning. Most processes of a machine are kernel
//! threads, about which nothing is asked.

use std::time::{Duration, Instant};

use crate::symbol::spaces::address_spaces::{AddressSpace, AddressSpaces, payer};
use crate::symbol::spaces::files::{CodeMapList, CodeMapping, code_maps};
use crate::symbol::spaces::mappings::{Mapping, Mappings};
use crate::symbol::spaces::remapped::FindRemapped;
use crate::symbol::spaces::shared_maps::SharedMappings;
use crate::task::procfs::{self, ProcessStatus};

/// The mappings of a process are read from /proc again no sooner than this.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// Without an answer, the mappings are asked for again no sooner than this.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Searches without a result, after which no mapping of the process is taken for a copy of code any more.
const MAX_MISSED: u8 = 3;

impl AddressSpaces {
    /// The mappings of a process that is seen for the first time, and its user.
    pub(super) fn first_maps(&mut self, pid: i32) -> (SharedMappings, Option<u32>) {
        let ProcessStatus { owner, has_no_memory } = procfs::process_status(&self.host, pid).unwrap_or_default();
        let maps = if has_no_memory { None } else { self.read_maps(pid, owner) };
        let mut shared = SharedMappings::default();
        shared.change(&self.budget, payer(owner), |empty| *empty = maps.unwrap_or_default());
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
        let owner = space.owner;
        let seen = self.read_maps(pid, owner);
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.reread_at = Some(now + if seen.is_some() { REREAD_AFTER } else { RETRY_AFTER });
            if let Some(seen) = seen {
                space.maps.change(&self.budget, payer(owner), |maps| maps.fill(seen));
            }
        }
        true
    }

    /// Finds the copies that a program has made of its code, at the same addresses, so that the program's file names
    /// them. Called when the process runs at an address that may be in a copy. False where nothing has changed.
    pub(in crate::symbol) fn find_copies(&mut self, pid: i32) -> bool {
        let now = Instant::now();
        let may_have_some = |space: &&mut AddressSpace| {
            space.maps.get().may_have_copies() && space.find_copies_at.is_none_or(|next| now >= next)
        };
        let Some(owner) = self.spaces.get_mut(&pid).filter(may_have_some).map(|space| space.owner) else {
            return false;
        };
        let mut copies = Vec::new();
        for CodeMapping { start, end, offset, key, path, .. } in FindRemapped::ask(&self.host, pid) {
            let module = self.module(pid, owner, (start, end), &path, key);
            copies.push(Mapping::new((start, end), offset, module));
        }
        let Some(space) = self.spaces.get_mut(&pid) else { return false };
        let has_found = !copies.is_empty();
        space.copies_missed = if has_found { 0 } else { space.copies_missed.saturating_add(1) };
        space.find_copies_at = Some(now + REREAD_AFTER);
        if has_found || space.copies_missed >= MAX_MISSED {
            space.maps.change(&self.budget, payer(owner), |maps| {
                copies.into_iter().for_each(|copy| maps.insert(copy));
                maps.copies_are_known();
            });
        }
        has_found
    }

    /// None: there is no answer.
    fn read_maps(&mut self, pid: i32, owner: Option<u32>) -> Option<Mappings> {
        let CodeMapList { mappings, is_partial } = code_maps(&self.host, pid)?;
        let mut seen = Vec::with_capacity(mappings.len());
        for CodeMapping { start, end, offset, key, path, is_beside_file } in mappings {
            let module = self.module(pid, owner, (start, end), &path, key);
            seen.push(Mapping::new((start, end), offset, module).beside_file(is_beside_file));
        }
        // The kernel writes the list page by page: a mapping that was moved meanwhile may overlap another one.
        Some(Mappings::of(seen, is_partial))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::Host;
    use crate::symbol::spaces::maps_line::MAX_MAPPINGS;

    /// What is read of a process depends on what its status says.
    #[test]
    fn mappings_are_read_where_there_may_be_some() {
        let line = "10000-20000 r-xp 0 0:0 1 /no/a\n";
        let cases = [
            ("State:\tS (sleeping)\nVmSize:\t1 kB\nThreads:\t1\n", true),
            ("State:\tD (disk sleep)\nVmSize:\t1 kB\nThreads:\t2\n", true),
            ("State:\tS (sleeping)\nThreads:\t1\n", false), // a kernel thread
        ];
        for (status, want) in cases {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("5")).unwrap();
            fs::write(dir.path().join("5/maps"), line).unwrap();
            fs::write(dir.path().join("5/status"), status).unwrap();
            let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
            assert_eq!(spaces.first_maps(5).0.get().find(0x10001).is_some(), want, "{status}");
        }
    }
    /// A runtime may map each page of its code by itself.
    #[test]
    fn what_is_mapped_once_is_kept_among_many() {
        let dir = tempfile::tempdir().unwrap();
        let page = |number: usize| format!("{number:x}000-{number:x}fff r-xp 0 0:1 7 /memfd:made (deleted)\n");
        let many: String = (0x10..0x10 + MAX_MAPPINGS + 3000).map(page).collect();
        fs::create_dir(dir.path().join("5")).unwrap();
        let lines =
            format!("1000-2000 r-xp 0 1:2 3 /no/program\n{many}7f0000000000-7f0000001000 r-xp 0 1:2 4 /no/libc.so\n");
        fs::write(dir.path().join("5/maps"), lines).unwrap();
        let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        let maps = spaces.first_maps(5).0;
        let path = |address| maps.get().find(address).map(|(module, _)| module.path.to_string());
        assert_eq!(path(0x1000).as_deref(), Some("/no/program"));
        assert_eq!(path(0x7f00_0000_0000).as_deref(), Some("/no/libc.so"));
        let made = (0x10..0x10 + MAX_MAPPINGS + 3000).filter(|page| path((*page as u64) << 12).is_some());
        assert_eq!(made.count(), MAX_MAPPINGS - 2);
        assert!(maps.why_missing().is_some());
    }

    /// A search engine may map thousands of files as data, below its libraries.
    #[test]
    fn what_is_mapped_as_data_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let name = "x".repeat(400);
        let line =
            |number: usize| format!("{number:x}000-{number:x}fff r--s 0 1:2 {number} /index/{name}/{number:08}\n");
        let data: String = (0x10..0x10 + 40_000).map(line).collect();
        assert!(data.len() > 16 << 20);
        fs::create_dir(dir.path().join("5")).unwrap();
        fs::write(dir.path().join("5/maps"), data + "7f0000000000-7f0000001000 r-xp 0 1:2 4 /no/libc.so").unwrap();
        let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        let maps = spaces.first_maps(5).0;
        let (module, _) = maps.get().find(0x7f00_0000_0000).expect("the last line, which does not end");
        assert_eq!((&*module.path, maps.why_missing()), ("/no/libc.so", None));
    }
}
