//! The files of mappings: opened while they can be reached, and checked to be the ones that were mapped. Workers do
//! that: this process holds only places (O_PATH), since opening, reading and even closing other users' files may hang.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, Answered, AskedOf, Question, WorkerContext, as_bytes};
use crate::perf::target::other_container;
use crate::symbol::elf::file::{build_id, is_elf};
use crate::symbol::opening::{is_on_overlay, open_regular, place_of};
use crate::symbol::spaces::maps_line::{
    FileKey, MAX_LINE_BYTES, MAX_MAPPINGS, MapsLine, is_of_kernel, leave_last_of_each, parse_maps_line,
};
use crate::symbol::unnamed::{DELETED, EXITED, NO_ANSWER, NO_PERM, NO_ROOM, UnnamedReason};
use crate::sys;
use crate::task::procfs::mapped_range;

/// Number of files that this process may still open.
pub fn room_for_files(host: &Host) -> usize {
    let taken = fs::read_dir(host.proc.join("self/fd")).map_or(0, Iterator::count);
    usize::try_from(sys::open_files().0).unwrap_or(usize::MAX).saturating_sub(taken)
}

/// A mapping whose file is to be opened.
#[derive(Debug)]
pub struct WantedFile<'a> {
    pub pid: i32,
    pub start: u64,
    pub end: u64,
    /// The path, as the process sees it, without [`DELETED_MARK`].
    pub path: &'a Path,
    pub key: &'a FileKey,
    /// Parent, grandparent and so on: they may outlive the process, and mostly see the same files.
    pub ancestors: &'a [i32],
}

/// A [`WantedFile`], to be opened by a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenMapped {
    pid: i32,
    start: u64,
    end: u64,
    #[serde(with = "as_bytes")]
    path: Vec<u8>,
    key: FileKey,
    ancestors: Vec<i32>,
}

/// What a worker says of a file that it has opened. Its place comes with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenedFile {
    pub is_elf: bool,
    /// The uid of the file's owner.
    pub owner: Option<u32>,
    /// None: its path leads to it here, too, or nothing does.
    pub reach: Option<FileReach>,
}

/// How a file is reached from here whose path leads elsewhere, since the process that has mapped it is in another mount
/// namespace. (A path below the root of a process with another root directory is told from our own root.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReach {
    /// `/proc/PID/root/...`
    pub path: String,
    /// The container of that process, if perf-prof is in another one or in none.
    pub container: Option<String>,
}

/// Why a file could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotOpened {
    Deleted,
    NoPermission,
    Exited,
    NoDescriptor,
}

impl From<NotOpened> for UnnamedReason {
    fn from(why: NotOpened) -> UnnamedReason {
        match why {
            NotOpened::Deleted => DELETED,
            NotOpened::NoPermission => NO_PERM,
            NotOpened::Exited => EXITED,
            NotOpened::NoDescriptor => NO_ROOM,
        }
    }
}

impl Question for OpenMapped {
    type Answer = Result<OpenedFile, NotOpened>;

    fn answer(&self, context: &mut WorkerContext) -> Result<OpenedFile, NotOpened> {
        let OpenMapped { pid, start, end, path, key, ancestors } = self;
        let path = Path::new(OsStr::from_bytes(path));
        let wanted = WantedFile { pid: *pid, start: *start, end: *end, path, key, ancestors };
        let file = wanted.open_here(&context.host)?;
        let owner = file.metadata().ok().map(|metadata| metadata.uid());
        let opened = OpenedFile { is_elf: is_elf(&file), owner, reach: wanted.reach(&context.host, &file) };
        context.give(place_of(&file).map_err(|_| NotOpened::NoDescriptor)?);
        Ok(opened)
    }
}

impl WantedFile<'_> {
    /// Has a worker open the file, as [`WantedFile::open_here`] does. Returns its place (O_PATH).
    ///
    /// # Errors
    /// The file cannot be reached any more, another file is at its path, or it does not answer.
    pub fn open(&self, host: &Host) -> Result<(File, OpenedFile), UnnamedReason> {
        let WantedFile { pid, start, end, path, key, ancestors } = *self;
        let (path, key, ancestors) = (path.as_os_str().as_bytes().to_vec(), key.clone(), ancestors.to_vec());
        let question = OpenMapped { pid, start, end, path, key, ancestors };
        let answered = outside::ask(host, AskedOf::file_of(pid), &question).map_err(|_| NO_ANSWER)?;
        let Answered { value, mut files } = answered;
        let opened = value?;
        Ok((files.pop().ok_or(NO_ROOM)?, opened))
    }

    /// Opens the file: through `map_files`, which is right even if the path leads elsewhere by now, else by its path as
    /// the process, or the nearest living ancestor, sees it.
    ///
    /// # Errors
    /// The file cannot be reached any more, or another file is at its path.
    pub fn open_here(&self, host: &Host) -> Result<File, NotOpened> {
        let process = host.proc.join(self.pid.to_string());
        let by_mapping = process.join(format!("map_files/{:x}-{:x}", self.start, self.end));
        if self.links_to_path(&by_mapping)
            && let Ok(file) = open_regular(&by_mapping)
        {
            return Ok(file);
        }
        let tail = self.path.strip_prefix("/").unwrap_or(self.path);
        let roots = std::iter::once(self.pid).chain(self.ancestors.iter().copied());
        let mut paths: Vec<PathBuf> =
            roots.map(|pid| host.proc.join(pid.to_string()).join("root").join(tail)).collect();
        paths.push(self.path.to_owned());
        let mut reason = if process.exists() { NotOpened::Deleted } else { NotOpened::Exited };
        for path in paths {
            match open_regular(&path) {
                Ok(file) if self.is_same(&file) => return Ok(file),
                Ok(_) => reason = NotOpened::Deleted, // another file has taken its place
                Err(err) if sys::lacks_descriptors(&err) => return Err(NotOpened::NoDescriptor),
                Err(err) if err.kind() == io::ErrorKind::PermissionDenied => reason = NotOpened::NoPermission,
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// How the opened file is reached from here, if its path leads elsewhere.
    fn reach(&self, host: &Host, file: &File) -> Option<FileReach> {
        let opened = file.metadata().ok()?;
        let leads_there = |path: &Path| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (opened.dev(), opened.ino()))
        };
        if leads_there(self.path) {
            return None;
        }
        let tail = self.path.strip_prefix("/").unwrap_or(self.path);
        let through = |pid: i32| host.proc.join(format!("{pid}/root")).join(tail);
        let mut processes = std::iter::once(self.pid).chain(self.ancestors.iter().copied());
        let pid = processes.find(|pid| leads_there(&through(*pid)))?;
        Some(FileReach { path: through(pid).to_string_lossy().into_owned(), container: other_container(host, pid) })
    }

    /// Whether a `map_files` link leads to the wanted path: another mapping may be at these addresses by now.
    fn links_to_path(&self, link: &Path) -> bool {
        fs::read_link(link).is_ok_and(|target| {
            let target = target.as_os_str().as_bytes();
            target.strip_suffix(DELETED_MARK).unwrap_or(target) == self.path.as_os_str().as_bytes()
        })
    }

    fn is_same(&self, file: &File) -> bool {
        match self.key {
            FileKey::Unknown => true,
            FileKey::BuildId(id) => build_id(file).is_some_and(|own| own == **id),
            FileKey::Inode { major, minor, inode } => file.metadata().is_ok_and(|meta| {
                let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
                // A layered file system (overlay, btrfs) reports different devices in stat and in mappings.
                let is_layered = || device.0 == 0 || is_on_overlay(file);
                meta.ino() == *inode && (device == (*major, *minor) || is_layered())
            }),
        }
    }
}

/// The path in a line of /proc/PID/maps. The kernel writes a newline as `\012`, but a backslash as itself
/// (show_map_vma() in fs/proc/task_mmu.c). The `map_files` link tells the two apart; without it, the path at which the
/// file is found.
pub fn path_of_line<'a>(host: &Host, pid: i32, line: &MapsLine<'a>) -> Cow<'a, [u8]> {
    const NEWLINE: &[u8] = b"\\012";
    if !line.path.windows(NEWLINE.len()).any(|bytes| bytes == NEWLINE) {
        return line.path.into();
    }
    let link = host.proc.join(format!("{pid}/map_files/{:x}-{:x}", line.start, line.end));
    if let Ok(target) = fs::read_link(link) {
        let target = target.into_os_string().into_vec();
        let written: Vec<&[u8]> = target.split(|&byte| byte == b'\n').collect();
        if written.join(NEWLINE) == line.path {
            return target.into();
        }
    }
    let mut path = Vec::with_capacity(line.path.len());
    let mut rest = line.path;
    while let [first, behind @ ..] = rest {
        let is_newline = rest.starts_with(NEWLINE);
        path.push(if is_newline { b'\n' } else { *first });
        rest = if is_newline { &rest[NEWLINE.len()..] } else { behind };
    }
    let own = Path::new(OsStr::from_bytes(path.strip_suffix(DELETED_MARK).unwrap_or(&path)));
    let wanted = WantedFile { pid, start: line.start, end: line.end, path: own, key: &line.key, ancestors: &[] };
    if wanted.open_here(host).is_ok() { path.into() } else { line.path.into() }
}

/// Appended to the path of a deleted file, d_path() in fs/d_path.c.
pub const DELETED_MARK: &[u8] = b" (deleted)";

/// An executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMapping {
    pub start: u64,
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    pub key: FileKey,
    #[serde(with = "as_bytes")]
    pub path: Vec<u8>,
    /// The mapping has no file, and touches mappings of a file: it may be a copy of the file's code.
    pub is_beside_file: bool,
}

/// The executable mappings in /proc/PID/maps of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct CodeMaps {
    pid: i32,
}

/// 16,384 at most, see `MAX_MAPPINGS`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CodeMapList {
    pub mappings: Vec<CodeMapping>,
    /// There were more.
    pub is_partial: bool,
}

impl Question for CodeMaps {
    type Answer = CodeMapList;

    fn answer(&self, context: &mut WorkerContext) -> CodeMapList {
        let file = File::open(context.host.proc.join(self.pid.to_string()).join("maps"));
        file.map_or_else(|_| CodeMapList::default(), |file| self.read(&context.host, file))
    }
}

impl CodeMaps {
    /// Line by line: libraries are at the end, and what is mapped as data before them may take any number of lines.
    fn read(&self, host: &Host, file: File) -> CodeMapList {
        const MAX_PATHS_BYTES: usize = 12 << 20; // the asking process has them twice for a moment, beside its budget
        const MAX_CPU_NS: u64 = 300_000_000; // the asking process does not wait much longer; 200,000 lines take less
        const LINES_PER_CLOCK_READ: u32 = 256;
        let until_ns = sys::thread_cpu_ns().saturating_add(MAX_CPU_NS);
        let (mut lines, mut line) = (BufReader::with_capacity(64 << 10, file), Vec::new());
        let (mut found, mut paths_bytes, mut is_partial) = (Vec::new(), 0, false);
        let (mut end_before, mut is_beside) = (0, false);
        for number in 1_u32.. {
            line.clear();
            match lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if number.is_multiple_of(LINES_PER_CLOCK_READ) && sys::thread_cpu_ns() >= until_ns => {
                    is_partial = true;
                    break;
                }
                Ok(_) => {}
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let Some((start, end)) = mapped_range(line) else { continue };
            is_beside &= start == end_before;
            end_before = end;
            let code = parse_maps_line(line);
            let is_file = line.contains(&b'/');
            let was_beside = is_beside;
            is_beside |= is_file;
            let Some(code) = code else { continue };
            let is_beside_file = was_beside && !is_file && !is_of_kernel(code.path);
            paths_bytes += code.path.len();
            found.push((FxBuildHasher.hash_one(code.path), CodeMapping { is_beside_file, ..CodeMapping::of(&code) }));
            if found.len() >= 2 * MAX_MAPPINGS || paths_bytes > MAX_PATHS_BYTES {
                is_partial = true;
                let most = MAX_MAPPINGS.min(found.len() / 2);
                leave_last_of_each(&mut found, most, |(kind, _)| *kind);
                found.sort_by_key(|(_, mapping)| mapping.start);
                paths_bytes = found.iter().map(|(_, mapping)| mapping.path.len()).sum();
            }
        }
        is_partial |= found.len() > MAX_MAPPINGS;
        leave_last_of_each(&mut found, MAX_MAPPINGS, |(kind, _)| *kind);
        let mapping = |(_, mapping): (u64, CodeMapping)| {
            let CodeMapping { start, end, offset, key, path, .. } = mapping.clone();
            let line = MapsLine { start, end, offset, key, path: &path };
            CodeMapping { path: path_of_line(host, self.pid, &line).into_owned(), ..mapping }
        };
        CodeMapList { mappings: found.into_iter().map(mapping).collect(), is_partial }
    }
}

impl CodeMapping {
    pub(super) fn of(line: &MapsLine<'_>) -> CodeMapping {
        CodeMapping {
            start: line.start,
            end: line.end,
            offset: line.offset,
            key: line.key.clone(),
            path: line.path.to_vec(),
            is_beside_file: false,
        }
    }
}

/// Asks what a process has mapped executable. None: there is no answer.
pub fn code_maps(host: &Host, pid: i32) -> Option<CodeMapList> {
    Some(outside::ask(host, AskedOf::process(pid), &CodeMaps { pid }).ok()?.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::spaces::maps_line::parse_maps_line;

    fn key_of(path: &Path) -> FileKey {
        let meta = fs::metadata(path).unwrap();
        FileKey::Inode { major: libc::major(meta.dev()), minor: libc::minor(meta.dev()), inode: meta.ino() }
    }

    #[test]
    fn a_file_that_replaced_the_mapped_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        fs::write(&path, "old").unwrap();
        let key = key_of(&path);
        let wanted = WantedFile { pid: -1, start: 0, end: 1, path: &path, key: &key, ancestors: &[] };
        let host = Host::default();
        assert!(wanted.open(&host).is_ok());
        let kept = File::open(&path).unwrap(); // keeps its inode number in use
        fs::remove_file(&path).unwrap();
        assert_eq!(wanted.open(&host).err(), Some(EXITED));
        fs::write(&path, "new").unwrap();
        assert_eq!(wanted.open(&host).err(), Some(DELETED));
        assert!(WantedFile { key: &FileKey::Unknown, ..wanted }.open(&host).is_ok());
        drop(kept);
    }

    #[test]
    fn the_root_of_an_ancestor_is_tried() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        let file = proc.join("7/root/only/in/there");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        let host = Host { proc, ..Host::default() };
        let key = key_of(&file);
        let wanted =
            WantedFile { pid: 9, start: 0, end: 1, path: Path::new("/only/in/there"), key: &key, ancestors: &[8, 7] };
        assert!(wanted.open(&host).is_ok());
        assert_eq!(WantedFile { ancestors: &[8], ..wanted }.open(&host).err(), Some(EXITED));
    }

    #[test]
    fn a_file_of_another_namespace_is_reached_through_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        let inside = proc.join("9/root/only/in/there");
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::write(&inside, "x").unwrap();
        fs::write(proc.join("9/cgroup"), "0::/lxc.payload.web\n").unwrap();
        let outside = dir.path().join("here");
        fs::write(&outside, "x").unwrap();
        let host = Host { proc, ..Host::default() };
        let reach = |path: &Path, opened: &Path, ancestors: &[i32]| {
            let wanted = WantedFile { pid: 5, start: 0, end: 1, path, key: &FileKey::Unknown, ancestors };
            wanted.reach(&host, &File::open(opened).unwrap())
        };
        let there = Path::new("/only/in/there");
        let path = inside.to_str().unwrap().to_owned();
        assert_eq!(reach(there, &inside, &[9]), Some(FileReach { path, container: Some("web".to_owned()) }));
        assert_eq!(reach(there, &inside, &[8]), None, "its process has gone");
        assert_eq!(reach(there, &outside, &[9]), None, "another file is there");
        assert_eq!(reach(&outside, &outside, &[9]), None, "its path leads to it");
    }

    #[test]
    fn a_newline_in_a_path_is_told_from_its_octal_code() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        let links = proc.join("7/map_files");
        fs::create_dir_all(&links).unwrap();
        let host = Host { proc, ..Host::default() };
        let path_of = |name: &str| dir.path().join(name).into_os_string().into_vec();
        let (newline, number) = (path_of("a\nb.so"), path_of("a\\012b.so"));
        let as_written = format!("1000-2000 r-xp 0 1:2 3 {}", String::from_utf8(number.clone()).unwrap());
        let seen = |text: &str| path_of_line(&host, 7, &parse_maps_line(text.as_bytes()).unwrap()).into_owned();
        assert_eq!(seen("1000-2000 r-xp 0 1:2 3 /a b\\011c\\"), b"/a b\\011c\\");
        assert_eq!(seen(&as_written), number, "neither file exists");
        for file in [&newline, &number] {
            let link = links.join("1000-2000");
            std::os::unix::fs::symlink(Path::new(OsStr::from_bytes(file)), &link).unwrap();
            assert_eq!(seen(&as_written), *file, "its link tells");
            fs::remove_file(link).unwrap();
        }
        for file in [&number, &newline] {
            let file = Path::new(OsStr::from_bytes(file));
            fs::write(file, "x").unwrap();
            let FileKey::Inode { major, minor, inode } = key_of(file) else { panic!() };
            let text = as_written.replace(" 1:2 3 ", &format!(" {major:x}:{minor:x} {inode} "));
            assert_eq!(seen(&text), file.as_os_str().as_bytes(), "the file tells");
        }
        let text = as_written.clone() + " (deleted)";
        std::os::unix::fs::symlink(OsStr::from_bytes(&[&newline[..], DELETED_MARK].concat()), links.join("1000-2000"))
            .unwrap();
        assert_eq!(seen(&text), [&newline[..], DELETED_MARK].concat());
    }
}
