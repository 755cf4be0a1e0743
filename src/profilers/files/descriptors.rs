//! The descriptors of processes, as far as their calls tell: which file each is open on, and where its position is.

use rustc_hash::FxHashMap;

use crate::profilers::files::names::{FileNames, FileNumber};

/// Most known descriptors of all processes.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// Most descriptors that a new process has from its parent.
const MAX_INHERITED: usize = 1024;

/// An open file of a process.
#[derive(Clone, Copy, Debug)]
struct OpenDescriptor {
    file: FileNumber,
    closes_on_exec: bool,
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
    pub fn file(&mut self, pid: i32, tid: i32, fd: i32, names: &mut FileNames) -> FileNumber {
        if let Some(known) = self.processes.get(&pid).and_then(|of| of.get(&fd)) {
            names.uses(known.file);
            return known.file;
        }
        let file = names.by_descriptor(tid, fd);
        self.add(pid, fd, OpenDescriptor { file, closes_on_exec: false, position: None, moving: 0 });
        file
    }

    fn add(&mut self, pid: i32, fd: i32, open: OpenDescriptor) {
        if self.known >= MAX_DESCRIPTORS {
            self.clear();
        }
        self.known += usize::from(self.processes.entry(pid).or_default().insert(fd, open).is_none());
    }

    /// A file was opened. `position`: None if the position is not at its beginning.
    pub fn opened(&mut self, pid: i32, fd: i32, file: FileNumber, closes_on_exec: bool, position: Option<u64>) {
        self.add(pid, fd, OpenDescriptor { file, closes_on_exec, position, moving: 0 });
    }

    pub fn closed(&mut self, pid: i32, fd: i32, names: &mut FileNames) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.remove(&fd)) {
            self.known -= 1;
            names.closed(open.file);
        }
    }

    /// Descriptors from `first` to `last` are closed, or those of them that `closes` is true of.
    pub fn closed_where(&mut self, pid: i32, closes: impl Fn(i32, bool) -> bool, names: &mut FileNames) {
        let Some(of) = self.processes.get_mut(&pid) else { return };
        for (_, open) in of.extract_if(|fd, open| closes(*fd, open.closes_on_exec)) {
            self.known -= 1;
            names.closed(open.file);
        }
    }

    /// A descriptor has a second number, with which it shares its position.
    pub fn duplicated(&mut self, pid: i32, fd: i32, new: i32, closes_on_exec: bool, names: &mut FileNames) {
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

    /// A process has a child, which has its descriptors and shares their positions.
    pub fn forked(&mut self, parent: i32, child: i32) {
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

    pub fn exited(&mut self, pid: i32, names: &mut FileNames) {
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
        let (mut all, mut names) = (Descriptors::default(), FileNames::default());
        let [one, two] = [3, 4].map(|fd| names.by_descriptor(7, fd));
        all.opened(7, 3, one, true, Some(0));
        all.duplicated(7, 3, 5, false, &mut names);
        all.duplicated(7, 9, 3, false, &mut names); // 9 is not known, and 3 is another file now
        assert_eq!(all.file(7, 7, 5, &mut names), one);
        assert_ne!(all.file(7, 7, 3, &mut names), one);
        all.opened(7, 4, two, true, Some(0));
        all.forked(7, 8);
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
        let (mut all, mut names) = (Descriptors::default(), FileNames::default());
        let file = names.by_descriptor(7, 3);
        all.opened(7, 3, file, true, Some(0));
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
        all.forked(7, 8);
        assert_eq!(call(&mut all, 1), None, "the child may move it");
    }

    #[test]
    fn descriptors_are_bounded() {
        let (mut all, mut names) = (Descriptors::default(), FileNames::default());
        let file = names.by_descriptor(7, 3);
        (0..MAX_DESCRIPTORS as i32 + 10).for_each(|fd| all.opened(7, fd, file, false, None));
        assert_eq!(all.known, 10);
        (0..MAX_DESCRIPTORS as i32).for_each(|fd| all.opened(fd, 0, file, false, None));
        assert!(all.known <= MAX_DESCRIPTORS && all.known == all.files().count());
    }
}
