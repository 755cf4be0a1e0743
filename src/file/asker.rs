//! Asks workers for the names of files: first for those that the file systems tell, then for those that processes have
//! open. A process that does not answer is left out, and costs the names of no other file.

use crate::file::by_inode::NamesOfInodes;
use crate::file::mounted::other_namespaces;
use crate::file::{FileName, FoundBy, InodeKey, open_files};
use crate::host::Host;
use crate::outside::{self, AskedOf, NoAnswer};
use crate::sys::{monotonic_ns, realtime_ns};

/// Which processes are asked about, and which questions were not answered.
#[derive(Debug)]
pub(super) struct FileAsker {
    host: Host,
    /// A process of each other mount namespace.
    namespaces: Vec<i32>,
    namespaces_next: NextSearch,
    open_files_next: NextSearch,
    /// Questions in a row to which a disk did not answer.
    slow_disks: usize,
    /// Until then nothing is asked, ns.
    pause_ends_ns: u64,
    /// Hangs at processes of other mount namespaces.
    hung_namespaces: usize,
}

/// When processes may be searched again, ns.
#[derive(Debug, Default)]
struct NextSearch(u64);

/// Other mount namespaces are searched that often at most.
const NAMESPACES_NS: u64 = 2_000_000_000;
/// Open files of all processes are searched that often at most.
const OPEN_FILES_NS: u64 = 5_000_000_000;
/// After so many questions in a row that a disk did not answer, no more are asked.
const MAX_SLOW_DISKS: usize = 3;
/// The pause after one, in which the disk may recover.
const PAUSE_NS: u64 = 5_000_000_000;
/// After so many hangs, other mount namespaces are left out.
const MAX_HUNG_NAMESPACES: usize = 3;

impl NextSearch {
    /// Whether it is time to search. The next time is `between_ns` later.
    fn is_now(&mut self, between_ns: u64) -> bool {
        let now_ns = monotonic_ns();
        let is_now = now_ns >= self.0;
        if is_now {
            self.0 = now_ns.saturating_add(between_ns);
        }
        is_now
    }
}

impl FileAsker {
    pub fn new(host: Host) -> FileAsker {
        FileAsker {
            host,
            namespaces: Vec::new(),
            namespaces_next: NextSearch::default(),
            open_files_next: NextSearch::default(),
            slow_disks: 0,
            pause_ends_ns: 0,
            hung_namespaces: 0,
        }
    }

    /// The names of files, each asked about with the time of an event, ns.
    pub fn names(&mut self, asked: &[(InodeKey, u64)]) -> Vec<FileName> {
        let (now_ns, wall_ns) = (monotonic_ns(), realtime_ns());
        let to_realtime = |time: u64| wall_ns.saturating_sub(now_ns.saturating_sub(time));
        let files: Vec<(InodeKey, u64)> = asked.iter().map(|(key, time)| (*key, to_realtime(*time))).collect();
        let mut names = self.by_inode(&files);
        let is_elsewhere = |((key, _), name): (&(InodeKey, u64), &FileName)| {
            name.found == FoundBy::NoMount && !key.device.is_anonymous()
        };
        if files.iter().zip(&names).any(is_elsewhere)
            && self.hung_namespaces < MAX_HUNG_NAMESPACES
            && self.namespaces_next.is_now(NAMESPACES_NS)
        {
            let namespaces = other_namespaces(&self.host);
            if namespaces != self.namespaces {
                self.namespaces = namespaces;
                names = self.by_inode(&files);
            }
        }
        let unnamed = files.iter().zip(&names).filter(|(_, name)| name.found.may_be_open());
        let wanted: Vec<InodeKey> = unnamed.map(|((key, _), _)| *key).collect();
        if !wanted.is_empty() && self.open_files_next.is_now(OPEN_FILES_NS) {
            let mut open = open_files::find(&self.host, &wanted);
            for ((key, _), name) in files.iter().zip(&mut names) {
                *name = open.remove(key).unwrap_or_else(|| name.clone());
            }
        }
        names
    }

    /// What the file systems tell.
    fn by_inode(&mut self, files: &[(InodeKey, u64)]) -> Vec<FileName> {
        let unanswered = || vec![FileName::unknown(FoundBy::NoAnswer); files.len()];
        if self.slow_disks >= MAX_SLOW_DISKS || monotonic_ns() < self.pause_ends_ns {
            return unanswered();
        }
        loop {
            self.namespaces = outside::askable(&self.host, std::mem::take(&mut self.namespaces));
            let question = NamesOfInodes { files: files.to_vec(), namespaces: self.namespaces.clone() };
            // Which user's file it is, and so who could make the worker hang, is not known.
            match outside::ask(&self.host, AskedOf::file_of_users(&[]), &question) {
                Ok(answered) if answered.value.len() == files.len() => {
                    self.slow_disks = 0;
                    return answered.value;
                }
                Err(NoAnswer::Late(pid)) if self.namespaces.contains(&pid) => self.without_namespace(pid),
                Err(NoAnswer::Late(_)) => {
                    self.slow_disks += 1;
                    self.pause_ends_ns = monotonic_ns().saturating_add(PAUSE_NS);
                    return unanswered();
                }
                _ => return unanswered(),
            }
        }
    }

    /// Leaves out a namespace whose process did not answer, and after several all of them.
    fn without_namespace(&mut self, pid: i32) {
        self.hung_namespaces += 1;
        self.namespaces.retain(|other| *other != pid && self.hung_namespaces < MAX_HUNG_NAMESPACES);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::file::FilePath;
    use crate::host::BlockDevice;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn open_files_are_searched_now_and_then() {
        let process = FixtureProcess::new(5);
        let root = process.host().proc.join("5");
        [root.join("fd"), root.join("fdinfo")].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        symlink("/srv/a", root.join("fd/3")).unwrap();
        fs::write(root.join("fdinfo/3"), "mnt_id:\t40\nino:\t11\n").unwrap();
        fs::write(root.join("mountinfo"), "40 1 8:1 / /srv rw - btrfs /dev/sda1 rw\n").unwrap();
        let key = |inode| InodeKey { device: BlockDevice(8 << 20 | 1), inode };
        let mut asker = FileAsker::new(process.host());
        let path = |name: &FileName| name.path.as_ref().map(|FilePath(path)| path.clone());
        let [first, second] = &asker.names(&[(key(11), 1), (key(12), 1)])[..] else { panic!("two names") };
        assert_eq!((path(first).as_deref(), first.found), (Some(&b"/srv/a"[..]), FoundBy::Descriptor(5)));
        assert_eq!((path(second), second.found), (None, FoundBy::NoMount));
        assert_eq!(asker.names(&[(key(11), 1)])[0].found, FoundBy::NoMount, "searched a moment ago");
        asker.open_files_next = NextSearch::default();
        assert_eq!(asker.names(&[(key(11), 1)])[0].found, FoundBy::Descriptor(5));
    }

    #[test]
    fn namespaces_that_hang_are_left_out() {
        let mut asker = FileAsker { namespaces: vec![5, 6, 7, 8], ..FileAsker::new(Host::default()) };
        asker.without_namespace(6);
        assert_eq!(asker.namespaces, [5, 7, 8]);
        asker.without_namespace(8);
        asker.without_namespace(5);
        assert_eq!(asker.namespaces, [0; 0], "none is asked about any more");
    }
}
