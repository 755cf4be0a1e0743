//! What the descriptors of threads are open on, and on which file systems paths lie. A thread asks workers, which may
//! hang in /proc, while the caller goes on. No file is opened or examined, since it may be on a dead server: the links
//! in /proc/TID/fd have paths as the kernel knows them, and /proc/TID/mountinfo has the mount points.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext};
use crate::sys::mounts::unescaped;
use crate::sys::{self, monotonic_ns};
use crate::task::procfs::{file, read_start};

/// Most files in one question: each takes some µs.
pub const MAX_FILES: usize = 16;
/// Most questions that wait for the thread, and most answers that were not taken yet.
const MAX_WAITING: usize = 64;
/// Longest path: `MAX_FILES` of them fit into a message. Longer ones are cut.
const MAX_PATH_BYTES: usize = 2048;
/// Longest name of a file system and of its source.
const MAX_NAME_BYTES: usize = 64;

/// What a file is asked by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskedFile {
    /// A descriptor; of `AT_FDCWD` the current directory.
    Descriptor(i32),
    /// An absolute path, of which only the file system is asked.
    Path(Vec<u8>),
}

/// A file system, as mountinfo names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileSystem {
    /// `ext4`, `nfs4`, `fuse.sshfs`
    pub kind: Vec<u8>,
    /// The device, or the directory of a server; empty if it has none.
    pub source: Vec<u8>,
}

/// What was found of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldFile {
    /// The path, with ` (deleted)` behind that of a deleted file, or `socket:[1]`, `pipe:[2]`, `anon_inode:[eventpoll]`.
    pub path: Vec<u8>,
    pub file_system: Option<FileSystem>,
    /// With which it was opened; 0 if that is not known.
    pub flags: i32,
}

/// Asks for files of a thread.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesOfThread {
    tid: i32,
    files: Vec<AskedFile>,
}

impl Question for FilesOfThread {
    /// The files, in order. None: the descriptor is closed, or the thread has ended.
    type Answer = Vec<Option<ToldFile>>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<Option<ToldFile>> {
        const MAX_INFO_BYTES: u32 = 256;
        let host = context.host.clone();
        let link = |name: &str| fs::read_link(file(&host, self.tid, name)).ok().map(OsString::from);
        let mounts = context.remembered::<KnownMounts>();
        let tell = |asked: &AskedFile| {
            let mut path = match asked {
                AskedFile::Descriptor(libc::AT_FDCWD) => link("cwd")?.into_vec(),
                AskedFile::Descriptor(fd) => link(&format!("fd/{fd}"))?.into_vec(),
                AskedFile::Path(path) => path.clone(),
            };
            let file_system = mounts.of(&host, self.tid, &path);
            cut(&mut path);
            // A driver adds lines of its own about a device, and may wait for locks.
            let flags = match asked {
                AskedFile::Descriptor(fd @ 0..) if path.starts_with(b"/") && !path.starts_with(b"/dev/") => {
                    let info = read_start(&host, self.tid, &format!("fdinfo/{fd}"), MAX_INFO_BYTES);
                    info.as_deref().and_then(open_flags)
                }
                _ => None,
            };
            Some(ToldFile { path, file_system, flags: flags.unwrap_or(0) })
        };
        self.files.iter().map(tell).collect()
    }
}

/// The mounts of the thread that was asked about last.
#[derive(Debug, Default)]
struct KnownMounts {
    tid: i32,
    read_ns: u64,
    /// Mount points and their file systems; of those at the same place the last one is visible.
    mounts: FxHashMap<Vec<u8>, FileSystem>,
}

impl KnownMounts {
    /// The file system at an absolute path in the mount namespace of a thread, by the text of the path.
    fn of(&mut self, host: &Host, tid: i32, path: &[u8]) -> Option<FileSystem> {
        const KEEP_NS: u64 = 1_000_000_000;
        let now = monotonic_ns();
        if (self.tid, self.mounts.is_empty()) != (tid, false) || now.saturating_sub(self.read_ns) > KEEP_NS {
            let mounts = fs::File::open(file(host, tid, "mountinfo")).map(parse_mounts).unwrap_or_default();
            *self = KnownMounts { tid, read_ns: now, mounts };
        }
        if !path.starts_with(b"/") {
            return None;
        }
        let mut part = path;
        loop {
            let at: &[u8] = if part.is_empty() { b"/" } else { part };
            if let Some(found) = self.mounts.get(at) {
                return Some(found.clone());
            }
            let slash = part.iter().rposition(|byte| *byte == b'/')?;
            part = &part[..slash];
        }
    }
}

/// The flags in fdinfo, which are octal.
fn open_flags(fdinfo: &[u8]) -> Option<i32> {
    let value = fdinfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"flags:"))?;
    i32::from_str_radix(std::str::from_utf8(value).ok()?.trim(), 8).ok()
}

/// Shortens a path that is too long for a message.
fn cut(path: &mut Vec<u8>) {
    if path.len() > MAX_PATH_BYTES {
        path.truncate(MAX_PATH_BYTES);
        path.extend_from_slice(b"...");
    }
}

/// The mount points of a text in the form of mountinfo.
fn parse_mounts(mountinfo: impl Read) -> FxHashMap<Vec<u8>, FileSystem> {
    const MAX_BYTES: u64 = 4 << 20; // containers have thousands of lines
    let lines = BufReader::new(mountinfo.take(MAX_BYTES)).split(b'\n').map_while(Result::ok);
    let parsed = lines.filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let at = words.nth(4)?; // id, parent, device and root are before it
        words.by_ref().skip(1).find(|word| *word == b"-")?; // behind the options are optional fields
        let (kind, source) = (words.next()?, words.next().unwrap_or_default());
        let name = |text: &[u8]| {
            let mut name = unescaped(text);
            name.truncate(MAX_NAME_BYTES);
            name
        };
        let source = if matches!(source, b"none") || source == kind { Vec::new() } else { name(source) };
        Some((unescaped(at), FileSystem { kind: name(kind), source }))
    });
    parsed.collect()
}

/// An answer.
#[derive(Debug)]
pub struct ToldFiles<K> {
    /// When all of it had been read, by the clock of the records, ns.
    pub at_ns: u64,
    /// Each file that was asked, by the caller's key.
    pub files: Vec<(K, Option<ToldFile>)>,
}

/// Handle of the thread that asks, which ends when this is dropped. The caller knows its questions by `K`.
#[derive(Debug)]
pub struct FileReader<K> {
    tid: i32,
    questions: Sender<(Vec<K>, FilesOfThread)>,
    answers: Receiver<ToldFiles<K>>,
}

impl<K: Send + 'static> FileReader<K> {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host) -> Result<FileReader<K>> {
        let (questions, to_ask) = bounded::<(Vec<K>, FilesOfThread)>(MAX_WAITING);
        let (give, answers) = bounded(MAX_WAITING);
        let work = move || {
            for (keys, question) in to_ask {
                let answered = outside::ask(&host, AskedOf::process(question.tid), &question).ok();
                let told = answered.map(|answered| answered.value).unwrap_or_default();
                let files = keys.into_iter().zip(told.into_iter().chain(std::iter::repeat(None))).collect();
                if give.send(ToldFiles { at_ns: monotonic_ns(), files }).is_err() {
                    return;
                }
            }
        };
        let tid = sys::start_thread("file-reader", work).context("cannot start the thread that asks about files")?;
        Ok(FileReader { tid, questions, answers })
    }

    /// The tid of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Asks about up to [`MAX_FILES`] files of a thread. False when too many questions are pending.
    pub fn ask(&self, tid: i32, asked: Vec<(K, AskedFile)>) -> bool {
        let (keys, mut files): (Vec<K>, Vec<AskedFile>) = asked.into_iter().take(MAX_FILES).unzip();
        for file in &mut files {
            if let AskedFile::Path(path) = file {
                cut(path);
            }
        }
        self.questions.try_send((keys, FilesOfThread { tid, files })).is_ok()
    }

    /// The answers since the last call.
    pub fn answers(&self) -> impl Iterator<Item = ToldFiles<K>> + '_ {
        self.answers.try_iter()
    }

    /// The next answer, which is awaited until `deadline` at most.
    pub fn answer_by(&self, deadline: Instant) -> Option<ToldFiles<K>> {
        self.answers.recv_deadline(deadline).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::task::fixture::FixtureProcess;

    const MOUNTS: &str = "\
        27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n\
        40 27 7:0 / /mnt/a\\040b rw - xfs /dev/loop0 rw\n\
        41 27 0:50 / /srv rw - nfs4 filer:/vol\\0401 rw,vers=4.2\n\
        42 27 0:51 / /tmp rw - tmpfs none rw\n\
        43 27 0:52 / /tmp rw - fuse.sshfs host:/x rw\n\
        44 27 0:53 / /odd - 46 rw\n\
        x y\n";

    #[test]
    fn a_path_is_on_the_mount_around_it() {
        let mounts = parse_mounts(MOUNTS.as_bytes());
        let process = FixtureProcess::new(5);
        process.write("mountinfo", MOUNTS);
        let mut known = KnownMounts::default();
        let cases = [
            ("/", "ext4 /dev/vda"),
            ("/srv", "nfs4 filer:/vol 1"),
            ("/srv/a/b", "nfs4 filer:/vol 1"),
            ("/srvx", "ext4 /dev/vda"),
            ("/mnt/a b/c", "xfs /dev/loop0"),
            ("/tmp/x", "fuse.sshfs host:/x"),
            ("pipe:[3]", ""),
            ("", ""),
        ];
        for (path, want) in cases {
            let found = known.of(&process.host(), 5, path.as_bytes());
            let text = found.map_or(String::new(), |FileSystem { kind, source }| {
                format!("{} {}", String::from_utf8_lossy(&kind), String::from_utf8_lossy(&source))
            });
            assert_eq!(text, want, "{path:?}");
        }
        assert_eq!(mounts.len(), 4, "{mounts:?}");
        for cut in 0..MOUNTS.len() {
            parse_mounts(&MOUNTS.as_bytes()[..cut]);
        }
        assert_eq!(known.of(&process.host(), 6, b"/srv"), None, "it has ended");
    }

    #[test]
    fn descriptors_and_directories_are_told() {
        let process = FixtureProcess::new(5);
        process.write("mountinfo", MOUNTS).descriptor(3, "/srv/x (deleted)", "pos:\t0\nflags:\t0140002\n").descriptor(
            4,
            "socket:[7]",
            "",
        );
        let reader = FileReader::start(process.host()).unwrap();
        let asked = [3, 4, 9].map(|fd| (fd, AskedFile::Descriptor(fd)));
        assert!(reader.ask(5, asked.into_iter().chain([(10, AskedFile::Path(b"/a".to_vec()))]).collect()));
        let told = reader.answer_by(Instant::now() + Duration::from_secs(60)).unwrap();
        assert_eq!(told.files[0].1.as_ref().map(|file| file.flags), Some(0o140_002));
        let paths: Vec<(i32, Option<Vec<u8>>)> =
            told.files.into_iter().map(|(key, file)| (key, file.map(|file| file.path))).collect();
        let want: [(i32, Option<&[u8]>); 4] =
            [(3, Some(b"/srv/x (deleted)")), (4, Some(b"socket:[7]")), (9, None), (10, Some(b"/a"))];
        assert_eq!(paths, want.map(|(key, path)| (key, path.map(<[u8]>::to_vec))));
    }
}
