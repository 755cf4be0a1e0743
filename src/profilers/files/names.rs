//! The files of calls by number, and what is known of each: its path, and the file system that it is on.
//!
//! A file is known by the path that a call was given, or by a descriptor that was open before. What that is open on
//! /proc tells; an answer counts if the records up to its time show that the descriptor was not closed before.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::file::{FileAspect, FileCell, FileNames, InodeKey};
use crate::host::{BlockDevices, Host};
use crate::task::file_reader::{AskedFile, FileReader, FileSystem, MAX_FILES, ToldFile, ToldFiles};

/// Most files that are known at a time.
const MAX_KNOWN: usize = 65_536;
/// Most files that wait for a question.
const MAX_PENDING: usize = 8192;
/// How long an interval waits for answers; the rings are not read meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a path may be that begins at known directories.
const MAX_DEPTH: usize = 16;

/// The number of a file in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(u32);

impl FileNumber {
    /// Stands for all files without a number of their own.
    pub const OTHERS: FileNumber = FileNumber(0);
    /// Stands for the files whose paths could not be read.
    pub const UNREAD: FileNumber = FileNumber(1);
}

/// What a descriptor is open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A file or directory with a path.
    Path,
    /// A pipe, a socket, or something else that is no file.
    NoFile,
    /// It was closed, or its process had ended, before it was asked.
    Unknown,
}

#[derive(Clone, Debug)]
enum FileOrigin {
    Descriptor(i32),
    /// A path as the program gave it, and the directory that it begins at.
    Path {
        directory: Option<FileNumber>,
        path: Arc<[u8]>,
    },
    /// What an event of the page cache tells.
    Inode(InodeKey),
}

#[derive(Clone, Debug)]
enum NameState {
    Unasked,
    Asked,
    Told(Arc<ToldFile>),
    /// There is no answer.
    Untold,
}

#[derive(Clone, Debug)]
struct KnownFile {
    /// A thread of its process.
    tid: i32,
    origin: FileOrigin,
    state: NameState,
    /// A call was about it since the last interval.
    is_used: bool,
}

/// A file as a row shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedFile {
    /// None: it is not known.
    pub path: Option<Arc<[u8]>>,
    /// In place of the path, for a file that only events of the page cache tell of.
    pub inode: Option<FileCell>,
    pub file_system: Option<FileSystem>,
}

/// The files of a run.
#[derive(Debug, Default)]
pub struct CalledFiles {
    reader: Option<FileReader<FileNumber>>,
    files: FxHashMap<FileNumber, KnownFile>,
    by_path: FxHashMap<(Option<FileNumber>, Arc<[u8]>), FileNumber>,
    by_inode: FxHashMap<InodeKey, FileNumber>,
    inodes: Option<FileNames>,
    threads: Vec<i32>,
    last: u32,
    pending: Vec<FileNumber>,
    /// Questions without an answer.
    asked: usize,
    /// Answers whose time the records have not reached yet.
    early: Vec<ToldFiles<FileNumber>>,
}

impl CalledFiles {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host) -> Result<CalledFiles> {
        let last = FileNumber::UNREAD.0;
        let inodes = FileNames::start(host, BlockDevices::read(Path::new("/sys/dev/block")))?;
        let reader = FileReader::start(host.clone())?;
        let threads = vec![reader.tid(), inodes.tid()];
        Ok(CalledFiles { reader: Some(reader), inodes: Some(inodes), threads, last, ..CalledFiles::default() })
    }

    /// The tids of the threads that ask.
    pub fn threads(&self) -> &[i32] {
        &self.threads
    }

    pub fn asks(&self, tid: i32) -> bool {
        self.threads.contains(&tid)
    }

    /// The file of an inode, of which an event at `time` tells.
    pub fn by_inode(&mut self, tid: i32, key: InodeKey, time: u64) -> FileNumber {
        if let Some(known) = self.by_inode.get(&key) {
            let known = *known;
            self.uses(known);
            return known;
        }
        self.inodes.iter_mut().for_each(|inodes| inodes.seen(key, time));
        let number = self.add(tid, FileOrigin::Inode(key));
        self.is_inode(number, key);
        number
    }

    /// A call about a file shows its inode.
    pub fn is_inode(&mut self, number: FileNumber, key: InodeKey) {
        if ![FileNumber::OTHERS, FileNumber::UNREAD].contains(&number) && self.by_inode.len() < MAX_KNOWN {
            self.by_inode.entry(key).or_insert(number);
        }
    }

    /// The file that a descriptor of a thread is open on, which is to be asked.
    pub fn by_descriptor(&mut self, tid: i32, fd: i32) -> FileNumber {
        self.add(tid, FileOrigin::Descriptor(fd))
    }

    /// The file at a path that a thread has given.
    pub fn by_path(&mut self, tid: i32, directory: Option<FileNumber>, path: &Arc<[u8]>) -> FileNumber {
        if let Some(known) = self.by_path.get(&(directory, path.clone())) {
            let known = *known;
            self.uses_again(known, tid);
            return known;
        }
        let number = self.add(tid, FileOrigin::Path { directory, path: path.clone() });
        if number != FileNumber::OTHERS {
            self.by_path.insert((directory, path.clone()), number);
        }
        number
    }

    /// Another thread gives a path: it is asked for the file system if the first one has ended before it answered.
    fn uses_again(&mut self, number: FileNumber, tid: i32) {
        let Some(file) = self.files.get_mut(&number) else { return };
        file.is_used = true;
        let is_absolute = matches!(file.origin, FileOrigin::Path { directory: None, .. });
        if is_absolute && file.tid != tid && matches!(file.state, NameState::Untold) && self.pending.len() < MAX_PENDING
        {
            (file.tid, file.state) = (tid, NameState::Unasked);
            self.pending.push(number);
        }
    }

    fn add(&mut self, tid: i32, origin: FileOrigin) -> FileNumber {
        if self.files.len() >= MAX_KNOWN {
            return FileNumber::OTHERS;
        }
        self.last = self.last.wrapping_add(1).max(FileNumber::UNREAD.0 + 1);
        let number = FileNumber(self.last);
        // What lies below a known directory is on its file system.
        let is_told = matches!(origin, FileOrigin::Path { directory: Some(_), .. } | FileOrigin::Inode(_));
        let is_asked = !is_told && self.pending.len() < MAX_PENDING;
        let state = if is_asked { NameState::Unasked } else { NameState::Untold };
        if is_asked {
            self.pending.push(number);
        }
        self.files.insert(number, KnownFile { tid, origin, state, is_used: true });
        number
    }

    pub fn uses(&mut self, number: FileNumber) {
        self.files.entry(number).and_modify(|file| file.is_used = true);
    }

    /// A descriptor is closed: what it was open on cannot be asked any more.
    pub fn closed(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let is_unknown = matches!(file.state, NameState::Unasked | NameState::Asked);
        if is_unknown && matches!(file.origin, FileOrigin::Descriptor(_)) {
            file.state = NameState::Untold;
        }
    }

    /// Asks about files, and takes the answers up to whose time all records were seen. True while some are pending.
    pub fn tick(&mut self, now: u64) -> bool {
        let CalledFiles { reader: Some(reader), early, .. } = self else { return false };
        early.extend(reader.answers());
        self.take_until(now);
        self.ask();
        self.asked > 0 || !self.pending.is_empty()
    }

    /// Waits a moment for the answers that are pending. All records up to `now` were seen, and later ones do not count:
    /// answers of this moment are taken as if none came.
    pub fn settle(&mut self, now: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.tick(now) {
            let Some(told) = self.reader.as_ref().and_then(|reader| reader.answer_by(deadline)) else { break };
            self.early.push(told);
            self.take_until(u64::MAX);
        }
    }

    fn take_until(&mut self, now: u64) {
        let CalledFiles { files, early, asked, .. } = self;
        for told in early.extract_if(.., |told| told.at_ns <= now) {
            *asked = asked.saturating_sub(1);
            for (number, told) in told.files {
                if let Some(file) = files.get_mut(&number).filter(|file| matches!(file.state, NameState::Asked)) {
                    file.state = told.map_or(NameState::Untold, |told| NameState::Told(Arc::new(told)));
                }
            }
        }
    }

    fn ask(&mut self) {
        let CalledFiles { reader: Some(reader), files, pending, asked, .. } = self else { return };
        let mut by_thread: FxHashMap<i32, Vec<(FileNumber, AskedFile)>> = FxHashMap::default();
        for number in pending.drain(..) {
            let Some(file) = files.get(&number).filter(|file| matches!(file.state, NameState::Unasked)) else {
                continue;
            };
            let question = match &file.origin {
                FileOrigin::Descriptor(fd) => AskedFile::Descriptor(*fd),
                FileOrigin::Path { path, .. } => AskedFile::Path(path.to_vec()),
                FileOrigin::Inode(_) => continue,
            };
            by_thread.entry(file.tid).or_default().push((number, question));
        }
        for (tid, questions) in by_thread {
            for questions in questions.chunks(MAX_FILES) {
                let is_sent = reader.ask(tid, questions.to_vec());
                *asked += usize::from(is_sent);
                for (number, _) in questions {
                    match files.get_mut(number) {
                        Some(file) if is_sent => file.state = NameState::Asked,
                        _ => pending.push(*number),
                    }
                }
            }
        }
    }

    /// A descriptor that was open before the run bypasses the page cache.
    pub fn is_direct(&self, number: FileNumber) -> bool {
        self.files.get(&number).is_some_and(|file| match &file.state {
            NameState::Told(told) => told.flags & libc::O_DIRECT != 0,
            _ => false,
        })
    }

    /// What the file is. None: it is asked.
    pub fn kind(&self, number: FileNumber) -> Option<FileKind> {
        let Some(file) = self.files.get(&number) else { return Some(FileKind::Path) };
        match (&file.origin, &file.state) {
            (FileOrigin::Path { .. } | FileOrigin::Inode(_), _) => Some(FileKind::Path),
            (_, NameState::Told(told)) if told.path.starts_with(b"/") => Some(FileKind::Path),
            (_, NameState::Told(_)) => Some(FileKind::NoFile),
            (_, NameState::Untold) => Some(FileKind::Unknown),
            (_, NameState::Unasked | NameState::Asked) => None,
        }
    }

    /// Whether more may be known of a file soon.
    pub fn is_asked(&self, number: FileNumber) -> bool {
        let mut next = Some(number);
        for _ in 0..=MAX_DEPTH {
            let Some(file) = next.and_then(|number| self.files.get(&number)) else { return false };
            if matches!(file.state, NameState::Unasked | NameState::Asked) {
                return true;
            }
            next = if let FileOrigin::Path { directory, .. } = file.origin { directory } else { None };
        }
        false
    }

    /// The file as far as it is known now.
    pub fn name(&self, number: FileNumber) -> NamedFile {
        self.named_below(number, MAX_DEPTH)
    }

    fn named_below(&self, number: FileNumber, depth: usize) -> NamedFile {
        let word = |text: &str| NamedFile { path: Some(Arc::from(text.as_bytes())), ..NamedFile::default() };
        match number {
            FileNumber::OTHERS => return word("<others>"),
            FileNumber::UNREAD => return word("<path unread>"),
            _ => {}
        }
        let Some(file) = self.files.get(&number) else { return NamedFile::default() };
        let told = if let NameState::Told(told) = &file.state { Some(told) } else { None };
        match &file.origin {
            FileOrigin::Descriptor(_) => {
                let path = told.map(|told| Arc::from(told.path.as_slice()));
                NamedFile { path, file_system: told.and_then(|told| told.file_system.clone()), inode: None }
            }
            FileOrigin::Path { directory: None, path } => {
                let file_system = told.and_then(|told| told.file_system.clone());
                NamedFile { path: Some(path.clone()), file_system, inode: None }
            }
            FileOrigin::Inode(key) => {
                let inode = self.inodes.as_ref().map(|inodes| inodes.cell(*key, FileAspect::Path));
                NamedFile { inode, ..NamedFile::default() }
            }
            FileOrigin::Path { directory: Some(directory), path } => {
                let above = if depth > 0 { self.named_below(*directory, depth - 1) } else { NamedFile::default() };
                let path = above.path.map_or_else(|| path.clone(), |above| joined(&above, path));
                NamedFile { path: Some(path), ..above }
            }
        }
    }

    /// Forgets files that no call was about in this interval. `open`: those of known descriptors.
    pub fn end_interval(&mut self, open: impl Iterator<Item = FileNumber>) {
        if self.files.len() > MAX_KNOWN / 2 {
            let open: FxHashSet<FileNumber> = open.collect();
            let above = |file: &KnownFile| match file.origin {
                FileOrigin::Path { directory, .. } => directory,
                FileOrigin::Descriptor(_) | FileOrigin::Inode(_) => None,
            };
            let used = |(number, file): &(&FileNumber, &KnownFile)| file.is_used || open.contains(number);
            let mut kept: FxHashSet<FileNumber> = FxHashSet::default();
            for (number, file) in self.files.iter().filter(used) {
                let mut next = Some((*number, file));
                while let Some((number, file)) = next.filter(|(number, _)| kept.insert(*number)) {
                    let _ = number;
                    next = above(file).and_then(|above| Some((above, self.files.get(&above)?)));
                }
            }
            self.files.retain(|number, _| kept.contains(number));
            self.by_path.retain(|_, number| kept.contains(number));
            self.by_inode.retain(|_, number| kept.contains(number));
        }
        self.files.values_mut().for_each(|file| file.is_used = false);
    }
}

/// File systems whose files have no pages that a read could miss.
const WITHOUT_CACHE: [&str; 14] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "tracefs",
    "debugfs",
    "devtmpfs",
    "devpts",
    "securityfs",
    "configfs",
    "bpf",
    "mqueue",
    "pstore",
    "efivarfs",
];

impl NamedFile {
    /// Whether reads of the file look into the page cache first, as far as its path and file system tell.
    pub fn has_page_cache(&self) -> bool {
        let path = self.path.as_deref().unwrap_or_default();
        match &self.file_system {
            Some(FileSystem { kind, .. }) => !WITHOUT_CACHE.iter().any(|name| name.as_bytes() == kind),
            None => !["/proc/", "/sys/", "/dev/"].iter().any(|start| path.starts_with(start.as_bytes())),
        }
    }
}

/// A path below a directory, without needless `/` and `.`.
fn joined(directory: &[u8], path: &[u8]) -> Arc<[u8]> {
    let mut joined = directory.to_vec();
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if joined.last() != Some(&b'/') {
            joined.push(b'/');
        }
        joined.extend_from_slice(part);
    }
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    fn path(text: &str) -> Arc<[u8]> {
        Arc::from(text.as_bytes())
    }

    fn text(names: &CalledFiles, number: FileNumber) -> String {
        let NamedFile { path, file_system, .. } = names.name(number);
        let path = path.map_or("-".into(), |path| String::from_utf8_lossy(&path).into_owned());
        let kind = file_system.map_or(String::new(), |system| String::from_utf8_lossy(&system.kind).into_owned());
        format!("{path} {kind}")
    }

    fn process() -> FixtureProcess {
        let process = FixtureProcess::new(5);
        process.write("mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 1 0:9 / /srv rw - nfs4 host:/x rw\n");
        process.descriptor(3, "/srv/dir", "").descriptor(4, "pipe:[7]", "");
        process
    }

    #[test]
    fn a_file_is_named_by_descriptor_or_path() {
        let process = process();
        let mut names = CalledFiles::start(&process.host()).unwrap();
        let [directory, pipe, closed] = [3, 4, 9].map(|fd| names.by_descriptor(5, fd));
        let absolute = names.by_path(5, None, &path("/etc/x"));
        let below = names.by_path(5, Some(directory), &path("./a//b"));
        assert_eq!((names.kind(directory), names.kind(absolute)), (None, Some(FileKind::Path)));
        names.settle(0);
        let kinds = [directory, pipe, closed, below].map(|number| names.kind(number));
        let [file, none, unknown] = [FileKind::Path, FileKind::NoFile, FileKind::Unknown].map(Some);
        assert_eq!(kinds, [file, none, unknown, file]);
        let texts = [directory, absolute, below, closed, FileNumber::OTHERS].map(|number| text(&names, number));
        assert_eq!(texts, ["/srv/dir nfs4", "/etc/x ext4", "/srv/dir/a/b nfs4", "- ", "<others> "]);
        assert_eq!(names.by_path(5, None, &path("/etc/x")), absolute);
    }

    /// The answer may be about a file that has the descriptor since.
    #[test]
    fn a_descriptor_that_is_closed_has_no_name() {
        let process = process();
        let mut names = CalledFiles::start(&process.host()).unwrap();
        let number = names.by_descriptor(5, 3);
        assert!(names.tick(0));
        names.closed(number);
        names.settle(0);
        assert_eq!((names.kind(number), text(&names, number)), (Some(FileKind::Unknown), "- ".to_owned()));
    }

    #[test]
    fn files_are_bounded() {
        let mut names = CalledFiles::default();
        let directory = names.by_path(5, None, &path("/d"));
        let kept = names.by_path(5, Some(directory), &path("kept"));
        names.end_interval(std::iter::empty());
        let last = (0..MAX_KNOWN + 5).map(|number| names.by_path(5, None, &path(&format!("/{number}")))).last();
        assert_eq!((last, names.files.len()), (Some(FileNumber::OTHERS), MAX_KNOWN));
        names.end_interval([kept].into_iter());
        assert_eq!(names.files.len(), MAX_KNOWN, "these were used");
        names.end_interval([kept].into_iter());
        assert_eq!((names.files.len(), names.by_path.len()), (2, 2));
        assert_eq!(text(&names, kept), "/d/kept ");
        assert!(names.pending.len() <= MAX_PENDING);
    }
}
