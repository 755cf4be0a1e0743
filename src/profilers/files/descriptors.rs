//! The descriptors of processes, as far as their calls tell: which file each is open on, and where its position is.

use rustc_hash::FxHashMap;

use crate::profilers::files::names::{CalledFiles, FileNumber};

/// Most known descriptors of all processes.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// How often an open descriptor is asked once more after /proc has told nothing of it.
const MAX_ASKED_AGAIN: u8 = 3;
/// Most descriptors that a new process has from its parent.
const MAX_INHERITED: usize = 1024;

/// An open file of a process.
#[derive(Clone, Copy, Debug, Default)]
struct OpenDescriptor {
    file: FileNumber,
    /// None: what /proc tells.
    closes_on_exec: Option<bool>,
    /// It bypasses the page cache.
    is_direct: bool,
    /// None: it is not known.
    position: Option<u64>,
    /// The position is never known: another descriptor shares it, or writes go to the end of the file.
    is_untracked: bool,
    /// Calls that move the position and go on.
    moving: u32,
    /// How often it was asked once more.
    asked_again: u8,
}

impl OpenDescriptor {
    fn stop_tracking(&mut self) {
        (self.position, self.is_untracked) = (None, true);
    }
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
        if let Some(known) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            if names.uses(known.file) && known.asked_again < MAX_ASKED_AGAIN {
                known.file = names.by_descriptor(pid, tid, fd);
                known.asked_again += 1;
            }
            return known.file;
        }
        let file = names.by_descriptor(pid, tid, fd);
        self.add(pid, fd, OpenDescriptor { file, ..OpenDescriptor::default() }, names);
        file
    }

    fn add(&mut self, pid: i32, fd: i32, open: OpenDescriptor, names: &mut CalledFiles) {
        if self.known >= MAX_DESCRIPTORS {
            self.clear(names);
        }
        match self.processes.entry(pid).or_default().insert(fd, open) {
            // It was closed in a way that no call tells.
            Some(replaced) => names.closed(replaced.file, pid, fd),
            None => self.known += 1,
        }
    }

    /// A file was opened with these flags; None: they are not known.
    pub fn opened(&mut self, pid: i32, fd: i32, file: FileNumber, flags: Option<i32>, names: &mut CalledFiles) {
        let has = |flag: i32| flags.is_none_or(|flags| flags & flag != 0);
        let is_untracked = has(libc::O_APPEND);
        let position = (!is_untracked).then_some(0);
        let (closes_on_exec, is_direct) = (Some(has(libc::O_CLOEXEC)), flags.is_some() && has(libc::O_DIRECT));
        let open =
            OpenDescriptor { file, closes_on_exec, is_direct, position, is_untracked, ..OpenDescriptor::default() };
        self.add(pid, fd, open, names);
    }

    pub fn is_direct(&self, pid: i32, fd: i32) -> bool {
        self.processes.get(&pid).and_then(|of| of.get(&fd)).is_some_and(|open| open.is_direct)
    }

    /// A descriptor has other flags.
    pub fn set_flags(&mut self, pid: i32, fd: i32, flags: i32) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.is_direct = flags & libc::O_DIRECT != 0;
            if flags & libc::O_APPEND != 0 {
                open.stop_tracking();
            }
        }
    }

    pub fn closed(&mut self, pid: i32, fd: i32, names: &mut CalledFiles) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.remove(&fd)) {
            self.known -= 1;
            names.closed(open.file, pid, fd);
        }
    }

    /// The descriptors that `closes` is true of are closed.
    pub fn closed_where(&mut self, pid: i32, closes: impl Fn(i32) -> bool, names: &mut CalledFiles) {
        let Some(of) = self.processes.get_mut(&pid) else { return };
        for (fd, open) in of.extract_if(|fd, _| closes(*fd)) {
            self.known -= 1;
            names.closed(open.file, pid, fd);
        }
    }

    /// A process executes another program. Of a descriptor that was open before the run /proc has told whether it is
    /// closed; one that nothing is known of, other than those that programs are started with, is asked again.
    pub fn executed(&mut self, pid: i32, names: &mut CalledFiles) {
        let Some(of) = self.processes.get(&pid) else { return };
        let closes = |fd: i32, open: &OpenDescriptor| {
            open.closes_on_exec.or_else(|| names.flag(open.file, libc::O_CLOEXEC)).unwrap_or(fd > libc::STDERR_FILENO)
        };
        let closed = of.iter().filter(|(fd, open)| closes(**fd, open)).map(|(fd, _)| *fd);
        let closed: Vec<i32> = closed.collect();
        closed.into_iter().for_each(|fd| self.closed(pid, fd, names));
    }

    /// The descriptors in a range are to be closed as the process executes another program.
    pub fn close_on_exec(&mut self, pid: i32, is_within: impl Fn(i32) -> bool) {
        let of = self.processes.get_mut(&pid).into_iter().flatten();
        of.filter(|(fd, _)| is_within(**fd)).for_each(|(_, open)| open.closes_on_exec = Some(true));
    }

    /// A descriptor has a second number, with which it shares its position. One that is not known is asked by its first
    /// number: a shell closes the second one soon.
    pub fn duplicated(&mut self, (pid, tid): (i32, i32), fd: i32, new: (i32, bool), names: &mut CalledFiles) {
        let (new, closes_on_exec) = new;
        if fd == new {
            return;
        }
        self.closed(pid, new, names);
        self.file(pid, tid, fd, names);
        let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) else { return };
        open.stop_tracking();
        let copy = OpenDescriptor { closes_on_exec: Some(closes_on_exec), ..*open };
        self.add(pid, new, copy, names);
    }

    pub fn set_closes_on_exec(&mut self, pid: i32, fd: i32, closes_on_exec: bool) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.closes_on_exec = Some(closes_on_exec);
        }
    }

    pub fn seeked(&mut self, pid: i32, fd: i32, position: Option<u64>) {
        if let Some(open) = self.processes.get_mut(&pid).and_then(|of| of.get_mut(&fd)) {
            open.position = position.filter(|_| open.moving == 0 && !open.is_untracked);
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
            self.opened(pid, libc::AT_FDCWD, directory, Some(0), names);
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
            open.stop_tracking();
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
        self.closed_where(pid, |_| true, names);
        self.processes.remove(&pid);
    }

    /// Records were lost: any descriptor may be open on another file, also before /proc tells.
    pub fn clear(&mut self, names: &mut CalledFiles) {
        names.forget_questions();
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
        let [one, two] = [b"/1", b"/2"].map(|path| names.by_path(7, None, &std::sync::Arc::from(&path[..])));
        all.opened(7, 3, one, Some(libc::O_CLOEXEC), &mut names);
        all.duplicated((7, 7), 3, (5, false), &mut names);
        all.duplicated((7, 7), 9, (3, false), &mut names); // 9 is not known, and 3 is another file now
        assert_eq!(all.file(7, 7, 3, &mut names), all.file(7, 7, 9, &mut names));
        assert_eq!(all.file(7, 7, 5, &mut names), one);
        assert_ne!(all.file(7, 7, 3, &mut names), one);
        all.opened(7, 4, two, Some(libc::O_CLOEXEC), &mut names);
        all.forked(7, 8, &mut names);
        all.executed(7, &mut names);
        assert_eq!((all.file(8, 8, 4, &mut names), all.file(8, 8, 5, &mut names)), (two, one));
        assert_ne!(all.file(7, 7, 4, &mut names), two, "an exec closed it");
        all.opened(8, 6, one, Some(0), &mut names);
        let earlier = all.file(8, 8, 10, &mut names);
        all.close_on_exec(8, |fd| (6..9).contains(&fd));
        all.executed(8, &mut names);
        assert_eq!(all.file(8, 8, 5, &mut names), one, "it stays open");
        assert_ne!(all.file(8, 8, 6, &mut names), one, "the range is closed");
        assert_ne!(all.file(8, 8, 10, &mut names), earlier, "it may be closed");
        all.closed_where(8, |fd| (5..9).contains(&fd), &mut names);
        assert_ne!(all.file(8, 8, 5, &mut names), one);
        all.exited(7, &mut names);
        all.exited(8, &mut names);
        assert_eq!((all.known, all.processes.len()), (0, 0));
    }

    /// The number that was asked is closed before /proc tells, while a copy of the descriptor is open.
    #[test]
    fn an_open_descriptor_is_asked_again() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let first = all.file(7, 7, 3, &mut names);
        all.duplicated((7, 7), 3, (1, false), &mut names);
        all.closed(7, 3, &mut names);
        let again = all.file(7, 7, 1, &mut names);
        assert_ne!(again, first);
        assert_eq!(all.file(7, 7, 1, &mut names), again, "it is asked");
        for _ in 0..10 {
            let asked = all.file(7, 7, 1, &mut names);
            names.closed(asked, 7, 1);
        }
        assert_eq!(all.file(7, 7, 1, &mut names), all.file(7, 7, 1, &mut names), "no more");
    }

    #[test]
    fn a_position_is_known_or_not() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let file = names.by_descriptor(7, 7, 3);
        all.opened(7, 3, file, Some(0), &mut names);
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
        all.seeked(7, 3, Some(8));
        assert_eq!(call(&mut all, 1), None, "the child may move it");
        all.opened(7, 3, file, Some(libc::O_APPEND), &mut names);
        all.seeked(7, 3, Some(0));
        assert_eq!(call(&mut all, 1), None, "at the end");
        all.opened(7, 3, file, Some(0), &mut names);
        all.duplicated((7, 7), 3, (4, false), &mut names);
        all.seeked(7, 4, Some(0));
        assert_eq!((call(&mut all, 1), all.moved(7, 4, 1)), (None, None), "they share it");
        all.opened(7, 3, file, Some(0), &mut names);
        all.set_flags(7, 3, libc::O_APPEND);
        assert_eq!(call(&mut all, 1), None);
    }

    #[test]
    fn descriptors_are_bounded() {
        let (mut all, mut names) = (Descriptors::default(), CalledFiles::default());
        let file = names.by_descriptor(7, 7, 3);
        (0..MAX_DESCRIPTORS as i32 + 10).for_each(|fd| all.opened(7, fd, file, Some(0), &mut names));
        assert_eq!(all.known, 10);
        (0..MAX_DESCRIPTORS as i32).for_each(|fd| all.opened(fd, 0, file, Some(0), &mut names));
        assert!(all.known <= MAX_DESCRIPTORS && all.known == all.files().count());
    }
}
