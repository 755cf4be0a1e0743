//! Asks for /proc/PID/maps of processes that were not seen from their beginning. Of a machine's processes most are kernel
//! threads, of which nothing is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::symbol::files::{CodeMapping, code_maps};
use crate::symbol::mappings::{Mapping, Mappings};
use crate::symbol::spaces::{AddressSpace, AddressSpaces};
use crate::task::procfs::{self, ProcessStatus};

/// The mappings of a process are read from /proc again no sooner than this.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// Those of which there was no answer.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl AddressSpaces {
    /// The mappings of a process that is seen for the first time, and its user.
    pub(super) fn first_maps(&mut self, pid: i32) -> (Mappings, Option<u32>) {
        let ProcessStatus { owner, has_no_memory } = procfs::process_status(&self.host, pid).unwrap_or_default();
        (if has_no_memory { Mappings::default() } else { self.read_maps(pid, owner).unwrap_or_default() }, owner)
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

    /// None: there is no answer.
    fn read_maps(&mut self, pid: i32, owner: Option<u32>) -> Option<Mappings> {
        let mut seen = Vec::new();
        for CodeMapping { start, end, offset, key, path } in code_maps(&self.host, pid)? {
            let module = self.module(pid, owner, (start, end), &path, key);
            seen.push(Mapping::new((start, end), offset, module));
        }
        // The kernel writes the list page by page: a mapping that was moved meanwhile may overlap others.
        Some(Mappings::of(seen))
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
            assert_eq!(spaces.first_maps(5).0.find(0x10001).is_some(), want, "{status}");
        }
    }
}
