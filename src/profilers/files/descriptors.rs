//! The descriptors of processes, as far as their calls tell: which file each is open on, and where its position is.

use rustc_hash::FxHashMap;

use crate::profilers::files::names::{CalledFiles, FileNumber};

/// Most known descriptors of all processes.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// Most descriptors that a new process has from its parent.
const MAX_INHERITED: usize = 1024;

/// An open file of a process.
#[derive(Clone, Copy, Debug)]
struct OpenDescriptor {
    file: FileNumber,
    closes_on_exec: bool,
    /// It bypasses the page cache.
    is_direct: bool,
    /// None: it is not known.
    position: Option<u64>,
    /// Calls that move the position and go on.
    moving: u32,
}

/// The known descriptors, by process. That with the number `AT_FDCWD` is the current directory.
#[derive(Debug, Default)]
pub struct Descriptors {
    processes: FxHashMap<i32, FxHashMap<i32, OpenDescriptor>>,
    known: usize,
}

impl Descriptors {
    /// The file of a descriptor; one that is not known is asked.
    pub fn file(&mut self, pid: i32, tid: i32, fd: i32, names: &mut CalledFiles) -> FileNumber {
        if let Some(known) = self.processes.get(&pid).and_then(|of| of.get(&fd)) {
            names.uses(known.file);
            return known.file;
        }
        let file = names.by_descriptor(tid, fd);
        self.add(pid, fd, OpenDescriptor { file, closes_on_exec: false, is_direct: false, position: None, moving: 0 });
        file
    }

    fn add(&mut self, pid: i32, fd: i32, open: OpenDescriptor) {
        if self.known >= MAX_DESCRIPTORS {
            self.clear();
        }
        self.known += usize::from(self.processes.entry(pid).or_default().insert(fd, open).is_none());
    }

    /// A file was opened with these flags; None: they are not known.
    pub fn opened(&mut self, pid: i32, fd: i32, file: FileNumber, flags: Option<i32>) {
        let has = |flag: i32| flags.is_none_or(|flags| flags & flag != 0);
        let position = (!has(libc::O_APPEND)).then_some(0);
        let (closes_on_exec, is_direct) = (has(libc::O_CLOEXEC), flags.is_some() && has(libc::O_DIRECT));
        self.add(pid, fd, OpenDescriptor { file, closes_on_exec, is_direct, position, moving: 0 });
    }

    pub fn is_direct(&self, pid: i32, fd: i32) -> bool {
        self.processes.get(&pid).and_then(|of| of.get(&fd)).is_some_and(|open| open.is_direct)
    }

    pub fn set_direct(&mut self, pid: i32, fd: i32, is_direct: bool) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.is_direct = is_direct;
        }
    }

    pub fn closed(&mut self, pid: i32, fd: i32, names: &mut CalledFiles) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.remove(&fd)) {
            self.known -= 1;
            names.closed(open.file);
        }
    }

    /// Descriptors from `first` to `last` are closed, or those of them that `closes` is true of.
    pub fn closed_where(&mut self, pid: i32, closes: impl Fn(i32, bool) -> bool, names: &mut CalledFiles) {
        let Some(of) = self.processes.get_mut(&pid) else { return };
        for (_, open) in of.extract_if(|fd, open| closes(*fd, open.closes_on_exec)) {
            self.known -= 1;
            names.closed(open.file);
        }
    }

    /// A descriptor has a second number, with which it shares its position.
    pub fn duplicated(&mut self, pid: i32, fd: i32, new: i32, closes_on_exec: bool, names: &mut CalledFiles) {
        if fd == new {
            return;
        }
        self.closed(pid, new, names);
        let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) else { return };
        open.position = None;
        let copy = OpenDescriptor { closes_on_exec, ..*open };
        self.add(pid, new, copy);
    }

    pub fn set_closes_on_exec(&mut self, pid: i32, fd: i32, closes_on_exec: bool) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.closes_on_exec = closes_on_exec;
        }
    }

    pub fn seeked(&mut self, pid: i32, fd: i32, position: Option<u64>) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.position = position.filter(|_| open.moving == 0);
        }
    }

    /// A call that moves the position begins. With another one under way, the order of both is not known.
    pub fn moves(&mut self, pid: i32, fd: i32) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.position = open.position.filter(|_| open.moving == 0);
            open.moving += 1;
        }
    }

    /// Such a call ends. Returns the position where it began.
    pub fn moved(&mut self, pid: i32, fd: i32, bytes: u64) -> Option<u64> {
        let open = self.processes.get_mut(&pid)?.get_mut(&fd)?;
        open.moving = open.moving.saturating_sub(1);
        let began = open.position;
        open.position = began.map(|began| began.saturating_add(bytes));
        began
    }

    /// The current directory is another one.
    pub fn changed_directory(&mut self, pid: i32, directory: Option<FileNumber>, names: &mut CalledFiles) {
        self.closed(pid, libc::AT_FDCWD, names);
        if let Some(directory) = directory {
            self.opened(pid, libc::AT_FDCWD, directory, Some(0));
        }
    }

    /// A process has a child, which has its descriptors and shares their positions. The parent is asked what most
    /// children use, since the child may end soon.
    pub fn forked(&mut self, parent: i32, child: i32, names: &mut CalledFiles) {
        for fd in [libc::AT_FDCWD, 0, 1, 2] {
            self.file(parent, parent, fd, names);
        }
        let Some(of) = self.processes.get_mut(&parent) else { return };
        let mut inherited = FxHashMap::default();
        for (fd, open) in of.iter_mut().take(MAX_INHERITED) {
            open.position = None;
            inherited.insert(*fd, OpenDescriptor { moving: 0, ..*open });
        }
        if self.known + inherited.len() > MAX_DESCRIPTORS {
            return; // they are asked
        }
        self.known += inherited.len();
        let replaced = self.processes.insert(child, inherited);
        self.known -= replaced.map_or(0, |replaced| replaced.len());
    }

    pub fn exited(&mut self, pid: i32, names: &mut CalledFiles) {
        self.closed_where(pid, |_, _| true, names);
        self.processes.remove(&pid);
    }

    /// Records were lost: any descriptor may be open on another file.
    pub fn clear(&mut self) {
        self.processes.clear();
        self.known = 0;
    }

    pub fn files(&self) -> impl Iterator<Item = FileNumber> + '_ {
        self.processes.values().flat_map(|of| of.values().map(|open| open.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_followed() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let [one, two] = [3, 4].map(|fd| names.by_descriptor(7, fd));
        all.opened(7, 3, one, Some(libc::O_CLOEXEC));
        all.duplicated(7, 3, 5, false, &mut names);
        all.duplicated(7, 9, 3, false, &mut names); // 9 is not known, and 3 is another file now
        assert_eq!(all.file(7, 7, 5, &mut names), one);
        assert_ne!(all.file(7, 7, 3, &mut names), one);
        all.opened(7, 4, two, Some(libc::O_CLOEXEC));
        all.forked(7, 8, &mut names);
        all.closed_where(7, |_, closes_on_exec| closes_on_exec, &mut names);
        assert_eq!((all.file(8, 8, 4, &mut names), all.file(8, 8, 5, &mut names)), (two, one));
        assert_ne!(all.file(7, 7, 4, &mut names), two, "an exec closed it");
        all.closed_where(8, |fd, _| (5..9).contains(&fd), &mut names);
        assert_ne!(all.file(8, 8, 5, &mut names), one);
        all.exited(7, &mut names);
        all.exited(8, &mut names);
        assert_eq!((all.known, all.processes.len()), (0, 0));
    }

    #[test]
    fn a_position_is_known_or_not() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let file = names.by_descriptor(7, 3);
        all.opened(7, 3, file, Some(0));
        let call = |all: &mut Descriptors, bytes| {
            all.moves(7, 3);
            all.moved(7, 3, bytes)
        };
        assert_eq!((call(&mut all, 100), call(&mut all, 50)), (Some(0), Some(100)));
        all.seeked(7, 3, Some(4096));
        assert_eq!(call(&mut all, 1), Some(4096));
        all.moves(7, 3);
        assert_eq!((call(&mut all, 1), all.moved(7, 3, 1)), (None, None), "two at a time");
        all.seeked(7, 3, Some(8));
        all.forked(7, 8, &mut names);
        assert_eq!(call(&mut all, 1), None, "the child may move it");
    }

    #[test]
    fn descriptors_are_bounded() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let file = names.by_descriptor(7, 3);
        (0..MAX_DESCRIPTORS as i32 + 10).for_each(|fd| all.opened(7, fd, file, Some(0)));
        assert_eq!(all.known, 10);
        (0..MAX_DESCRIPTORS as i32).for_each(|fd| all.opened(fd, 0, file, Some(0)));
        assert!(all.known <= MAX_DESCRIPTORS && all.known == all.files().count());
    }
}
