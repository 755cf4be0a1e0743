//! What processes have mapped at single addresses, data as well as code: the files that faults read. A thread asks
//! workers, which may hang in /proc/PID/maps of a stuck process, while the caller goes on.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext};
use crate::symbol::spaces::files::path_of_line;
use crate::symbol::spaces::maps_line::{FileKey, MAX_LINE_BYTES, parse_mapping};
use crate::symbol::spaces::module::is_anonymous;
use crate::sys;
use crate::task::descriptor::device_source;
use crate::task::procfs::mapped_range;

/// Addresses in one question.
pub const MAX_ADDRESSES: usize = 256;
/// Most pending questions, and most answers that were not taken yet.
const MAX_WAITING: usize = 64;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFile {
    pub start: u64,
    pub end: u64,
    /// None: memory without a file.
    pub file: Option<FileOnDevice>,
}

/// A file and where it is. Other users choose path and device, which may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileOnDevice {
    /// As the process sees it, with ` (deleted)` appended if the file is deleted.
    pub path: Vec<u8>,
    /// The source of the mount: a device or a directory of a server.
    pub device: Option<Vec<u8>>,
}

/// Asks for the mappings at these addresses.
#[derive(Debug, Serialize, Deserialize)]
pub struct MappingsAt {
    pid: i32,
    /// Sorted.
    addresses: Vec<u64>,
}

impl Question for MappingsAt {
    /// The mappings in order. None: the process has ended.
    type Answer = Option<Vec<MappedFile>>;

    fn answer(&self, context: &mut WorkerContext) -> Option<Vec<MappedFile>> {
        let host = &context.host;
        let maps = File::open(host.proc.join(self.pid.to_string()).join("maps")).ok()?;
        let mut devices = FxHashMap::default();
        let mut device = |key: &FileKey| {
            let FileKey::Inode { major, minor, .. } = *key else { return None };
            let source = || device_source(host, self.pid, (major, minor));
            devices.entry((major, minor)).or_insert_with(source).clone()
        };
        let found = self.read(host, maps, &mut device);
        (!found.is_empty() || host.proc.join(self.pid.to_string()).exists()).then_some(found)
    }
}

impl MappingsAt {
    fn read(&self, host: &Host, maps: File, device: &mut dyn FnMut(&FileKey) -> Option<Vec<u8>>) -> Vec<MappedFile> {
        const MAX_CPU_NS: u64 = 300_000_000; // 200,000 lines take less
        const LINES_PER_CLOCK_READ: u32 = 256;
        let until_ns = sys::thread_cpu_ns().saturating_add(MAX_CPU_NS);
        let (mut lines, mut line) = (BufReader::with_capacity(64 << 10, maps), Vec::new());
        let (mut found, mut addresses) = (Vec::new(), &self.addresses[..]);
        for number in 1_u32.. {
            line.clear();
            let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let is_late = number.is_multiple_of(LINES_PER_CLOCK_READ) && sys::thread_cpu_ns() >= until_ns;
            if addresses.is_empty() || is_late || !read.is_ok_and(|bytes| bytes > 0) {
                break;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let Some((start, end)) = mapped_range(line) else { continue };
            addresses = &addresses[addresses.partition_point(|address| *address < start)..];
            if addresses.first().is_none_or(|address| *address >= end) {
                continue;
            }
            let Some(mapping) = parse_mapping(line) else { continue };
            let has_file = mapping.path.starts_with(b"/") && !is_anonymous(&String::from_utf8_lossy(mapping.path));
            let file = has_file.then(|| FileOnDevice {
                path: path_of_line(host, self.pid, &mapping).into_owned(),
                device: device(&mapping.key),
            });
            found.push(MappedFile { start, end, file });
        }
        found
    }
}

/// Handle of the thread that asks, which ends when this is dropped.
#[derive(Debug)]
pub struct MappingReader {
    tid: i32,
    questions: Sender<MappingsAt>,
    answers: Receiver<ToldMappings>,
}

/// The answer to a question.
#[derive(Debug)]
pub struct ToldMappings {
    pub pid: i32,
    /// None: the process has ended, or there was no answer in time.
    pub mappings: Option<Vec<MappedFile>>,
}

impl MappingReader {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host) -> Result<MappingReader> {
        let (questions, to_ask) = bounded::<MappingsAt>(MAX_WAITING);
        let (give, answers) = bounded(MAX_WAITING);
        let work = move || {
            for question in to_ask {
                let pid = question.pid;
                let answered = outside::ask(&host, AskedOf::process(pid), &question).ok();
                if give.send(ToldMappings { pid, mappings: answered.and_then(|answered| answered.value) }).is_err() {
                    return;
                }
            }
        };
        let tid = sys::start_thread("map-reader", work).context("cannot start the thread that asks about mappings")?;
        Ok(MappingReader { tid, questions, answers })
    }

    /// The tid of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Asks about the first [`MAX_ADDRESSES`] of some addresses. False when too many questions are pending.
    pub fn ask(&self, pid: i32, addresses: impl Iterator<Item = u64>) -> bool {
        let mut addresses: Vec<u64> = addresses.take(MAX_ADDRESSES).collect();
        addresses.sort_unstable();
        self.questions.try_send(MappingsAt { pid, addresses }).is_ok()
    }

    /// The next answer, which is awaited until `deadline` at most.
    pub fn answer_by(&self, deadline: std::time::Instant) -> Option<ToldMappings> {
        self.answers.recv_deadline(deadline).ok()
    }

    /// The answers since the last call.
    pub fn answers(&self) -> impl Iterator<Item = ToldMappings> + '_ {
        self.answers.try_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    const MAPS: &str = "\
        1000-2000 r-xp 00000000 fe:00 7 /bin/a\n\
        2000-4000 rw-p 00000000 00:00 0 \n\
        4000-5000 rw-p 00000000 00:00 0 [heap]\n\
        6000-9000 r--s 00000000 07:01 8 /srv/a b (deleted)\n\
        9000-a000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\
        a000-b000 r--p 00000000 00:30 9 /net/x\n";
    const MOUNTS: &str = "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 7:1 / /srv rw - ext4 /dev/loop1 rw\n";

    fn ask(process: &FixtureProcess, addresses: &[u64]) -> Option<Vec<MappedFile>> {
        let reader = MappingReader::start(process.host()).unwrap();
        assert!(reader.ask(5, addresses.iter().copied()));
        let told = reader.answer_by(std::time::Instant::now() + std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(told.pid, 5);
        told.mappings
    }

    #[test]
    fn an_address_is_in_a_file_or_in_memory_without_one() {
        let process = FixtureProcess::new(5);
        process.write("maps", MAPS).write("mountinfo", MOUNTS);
        std::fs::write(process.host().proc.join("5/maps"), MAPS).unwrap();
        let file = |start, end, path: &str, device: Option<&str>| MappedFile {
            start,
            end,
            file: Some(FileOnDevice { path: path.into(), device: device.map(Into::into) }),
        };
        let memory = |start, end| MappedFile { start, end, file: None };
        let cases: [(&[u64], &[MappedFile]); 7] = [
            (&[0x1fff], &[file(0x1000, 0x2000, "/bin/a", Some("/dev/vda"))]),
            (&[0x2000, 0x4010], &[memory(0x2000, 0x4000), memory(0x4000, 0x5000)]),
            (&[0x8fff, 0x6000, 0x7000], &[file(0x6000, 0x9000, "/srv/a b (deleted)", Some("/dev/loop1"))]),
            (&[0x9000], &[memory(0x9000, 0xa000)]),
            (&[0xa000], &[file(0xa000, 0xb000, "/net/x", None)]),
            (&[0, 0x5000, 0xb000], &[]),
            (&[], &[]),
        ];
        for (addresses, want) in cases {
            assert_eq!(ask(&process, addresses).as_deref(), Some(want), "{addresses:x?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_has_no_mappings() {
        assert_eq!(ask(&FixtureProcess::new(7), &[0x1000]), None);
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let process = FixtureProcess::new(5);
        for lines in
            ["", "\n\n", "9000-1000 r--p 0 0:0 1 /x\n", "1000-2000", "1000-2000 r--p z 0:0 1 /x\n", "\u{ff}-\n"]
        {
            std::fs::write(process.host().proc.join("5/maps"), lines).unwrap();
            assert_eq!(ask(&process, &[0x1800]), Some(Vec::new()), "{lines:?}");
        }
    }
}
