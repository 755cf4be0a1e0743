//! The files that major faults read: the mapping at the address of each fault, which its process tells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::report::{Column, Schema, Value};
use crate::stats::KeyedSums;
use crate::stats::keyed::SumKey;
use crate::symbol::spaces::mapped_files::{FileOnDevice, MAX_ADDRESSES, MappedFile, MappingReader, ToldMappings};
use crate::task::Comm;

/// Limit of the processes whose mappings are remembered in an interval.
const MAX_PROCESSES: usize = 4096;
/// Limit of the faults of all processes that wait for an answer.
const MAX_PENDING: usize = 1 << 16;
/// How long an interval waits for answers; the rings are not read meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long the end of the run waits for them.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// The source of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum PageSource {
    File(Arc<FileOnDevice>),
    /// Memory without a file: its pages are read from swap.
    Swap,
    /// The process has ended, or did not answer, before it was asked.
    Gone,
    /// Nothing is mapped there any more.
    Unmapped,
    /// Too many faults are waiting, or processes.
    NotAsked,
    Others,
}

/// A task and what its faults read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultedFile {
    pid: i32,
    comm: Comm,
    source: PageSource,
}

impl SumKey for FaultedFile {
    fn others(&self) -> FaultedFile {
        FaultedFile { pid: 0, comm: Comm::new(b"<others>"), source: PageSource::Others }
    }
}

impl FaultedFile {
    fn path(&self) -> Value {
        match &self.source {
            PageSource::File(file) => Value::Path(file.path.as_slice().into()),
            PageSource::Swap => Value::Word("<swap>"),
            PageSource::Gone => Value::Word("<gone>"),
            PageSource::Unmapped => Value::Word("<unmapped>"),
            PageSource::NotAsked => Value::Word("<not asked>"),
            PageSource::Others => Value::Word("<others>"),
        }
    }

    fn device(&self) -> Value {
        match &self.source {
            PageSource::File(file) => {
                file.device.as_ref().map_or(Value::None, |device| Value::Path(device.as_slice().into()))
            }
            _ => Value::None,
        }
    }
}

pub static FILES: Schema<(FaultedFile, u64)> = Schema::<(FaultedFile, u64)>::new(
    "files",
    &[
        Column::counter("faults", "major", |(_, faults)| faults),
        Column::label("pid", "pid", |(task, _)| Value::Signed(task.pid.into())),
        Column::label("comm", "comm", |(task, _)| Value::Comm(task.comm)),
        Column::label("device", "device", |(task, _)| task.device()),
        Column::label("file", "file", |(task, _)| task.path()),
    ],
)
.titled("the files of major faults")
.explained(&[
    ("faults", "major faults: those that waited for a read"),
    ("device", "the device, or the directory of a server, that is mounted where the file is"),
    (
        "file",
        "what is mapped at the address of the fault; `<swap>`: memory without a file; `<gone>`: the process ended before \
         it was asked",
    ),
])
.ordered(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));

/// What is known of the mappings of a process in this interval.
#[derive(Debug, Default)]
struct FaultingProcess {
    /// Sorted, without overlaps.
    known: Vec<(MappedFile, PageSource)>,
    /// Faults at addresses that are in no known mapping.
    pending: Vec<(Comm, u64)>,
    /// The first so many of them are asked about.
    asked: usize,
}

impl FaultingProcess {
    fn find(&self, address: u64) -> Option<&PageSource> {
        let index = self.known.partition_point(|(mapping, _)| mapping.start <= address).checked_sub(1)?;
        self.known.get(index).filter(|(mapping, _)| address < mapping.end).map(|(_, source)| source)
    }

    fn learn(&mut self, mappings: Vec<MappedFile>) {
        for mapping in mappings {
            self.known.retain(|(known, _)| known.end <= mapping.start || known.start >= mapping.end);
            let source = mapping.file.clone().map_or(PageSource::Swap, |file| PageSource::File(Arc::new(file)));
            self.known.push((mapping, source));
        }
        self.known.sort_unstable_by_key(|(mapping, _)| mapping.start);
    }
}

/// Major faults by file.
#[derive(Debug)]
pub struct FaultedFiles {
    reader: MappingReader,
    processes: FxHashMap<i32, FaultingProcess>,
    pending: usize,
    sums: KeyedSums<FaultedFile, u64>,
    /// There was a major fault.
    any: bool,
}

impl FaultedFiles {
    /// # Errors
    /// No thread can be started.
    pub fn new(host: &Host) -> Result<FaultedFiles> {
        Ok(FaultedFiles {
            reader: MappingReader::start(host.clone())?,
            processes: FxHashMap::default(),
            pending: 0,
            sums: KeyedSums::default(),
            any: false,
        })
    }

    /// The thread that asks.
    pub fn thread(&self) -> i32 {
        self.reader.tid()
    }

    /// Counts a major fault.
    pub fn add(&mut self, pid: i32, comm: Comm, address: u64) {
        self.any = true;
        let has_room = self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&pid);
        let source = if has_room && self.pending < MAX_PENDING {
            let process = self.processes.entry(pid).or_default();
            let Some(source) = process.find(address) else {
                process.pending.push((comm, address));
                self.pending += 1;
                return;
            };
            source.clone()
        } else {
            PageSource::NotAsked
        };
        *self.sums.sum(FaultedFile { pid, comm, source }) += 1;
    }

    /// Takes answers, and asks about the faults that none is about. True while some are pending.
    pub fn ask(&mut self) -> bool {
        let answers: Vec<ToldMappings> = self.reader.answers().collect();
        answers.into_iter().for_each(|told| self.take(told));
        if self.pending > 0 {
            for (pid, process) in self.processes.iter_mut().filter(|(_, process)| process.asked == 0) {
                let asked = process.pending.len().min(MAX_ADDRESSES);
                if asked > 0 && self.reader.ask(*pid, process.pending.iter().map(|(_, address)| *address)) {
                    process.asked = asked;
                }
            }
        }
        self.pending > 0
    }

    fn take(&mut self, ToldMappings { pid, mappings }: ToldMappings) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let missing = if mappings.is_some() { PageSource::Unmapped } else { PageSource::Gone };
        // The faults behind those that were asked about may be in the same mappings; a process that has ended does not
        // answer later either.
        let asked = if mappings.is_some() { process.asked } else { process.pending.len() };
        process.asked = 0;
        process.learn(mappings.unwrap_or_default());
        for (index, (comm, address)) in std::mem::take(&mut process.pending).into_iter().enumerate() {
            let source = match process.find(address) {
                Some(source) => source.clone(),
                None if index < asked => missing.clone(),
                None => {
                    process.pending.push((comm, address));
                    continue;
                }
            };
            self.pending -= 1;
            *self.sums.sum(FaultedFile { pid, comm, source }) += 1;
        }
    }

    /// Waits for answers while some faults are pending.
    fn await_answers(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.ask() {
            let Some(told) = self.reader.answer_by(deadline) else { break };
            self.take(told);
        }
    }

    /// Waits for the last answers. Faults that are still pending count without a file.
    pub fn settle(&mut self) {
        self.await_answers(LAST_PATIENCE);
        for (pid, process) in self.processes.drain() {
            for (comm, _) in process.pending {
                *self.sums.sum(FaultedFile { pid, comm, source: PageSource::NotAsked }) += 1;
            }
        }
        self.pending = 0;
    }

    /// The sums since the last call. Most answers come within a millisecond: they are awaited, so that an interval has the
    /// files of its own faults. None: there was no major fault so far. What processes have mapped may change, so it is asked again.
    pub fn take_sums(&mut self) -> Option<Vec<(FaultedFile, u64)>> {
        self.await_answers(PATIENCE);
        self.processes.retain(|_, process| !process.pending.is_empty());
        self.processes.values_mut().for_each(|process| process.known.clear());
        self.any.then(|| self.sums.drain().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn faults_of(lines: &str) -> (tempfile::TempDir, FaultedFiles) {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("5")).unwrap();
        fs::write(proc.path().join("5/maps"), lines).unwrap();
        let files = FaultedFiles::new(&Host { proc: proc.path().into(), cpu: "/nonexistent".into() }).unwrap();
        (proc, files)
    }

    fn sums(files: &mut FaultedFiles) -> Vec<(i32, String, u64)> {
        files.settle();
        let mut sums = files.take_sums().unwrap_or_default();
        sums.sort();
        let text = |file: &FaultedFile| match &file.source {
            PageSource::File(file) => String::from_utf8(file.path.clone()).unwrap(),
            other => format!("{other:?}"),
        };
        sums.iter().map(|(file, count)| (file.pid, text(file), *count)).collect()
    }

    #[test]
    fn each_fault_is_one_of_a_file() {
        let (_proc, mut files) = faults_of("1000-9000 r--s 0 0:1 1 /a\n9000-a000 rw-p 0 0:0 0 [heap]\n");
        assert_eq!(files.take_sums(), None, "there is no table without a fault");
        let comm = Comm::new(b"x");
        (0..MAX_ADDRESSES as u64 + 10).for_each(|number| files.add(5, comm, 0x1000 + number));
        [0x9000, 0x9fff, 0xa000].into_iter().for_each(|address| files.add(5, comm, address));
        files.add(6, comm, 0x1000);
        assert!(files.ask(), "they are pending");
        let want = [
            (5, "/a".to_owned(), MAX_ADDRESSES as u64 + 10),
            (5, "Swap".to_owned(), 2),
            (5, "Unmapped".to_owned(), 1),
            (6, "Gone".to_owned(), 1),
        ];
        assert_eq!(sums(&mut files), want);
        assert!(!files.ask());
        assert_eq!(files.take_sums(), Some(Vec::new()), "the last table of the run is of the whole run, too");
    }

    #[test]
    fn too_many_are_counted_all_the_same() {
        let (_proc, mut files) = faults_of("1000-9000 r--s 0 0:1 1 /a\n");
        let comm = Comm::new(b"x");
        (0..MAX_PENDING as u64 + 7).for_each(|_| files.add(5, comm, 0x1000));
        let all: u64 = sums(&mut files).iter().map(|(.., count)| count).sum();
        assert_eq!(all, MAX_PENDING as u64 + 7);
        for pid in 0..MAX_PROCESSES as i32 + 5 {
            files.add(pid, comm, 0x1000);
        }
        let all: u64 = sums(&mut files).iter().map(|(.., count)| count).sum();
        assert_eq!(all, MAX_PROCESSES as u64 + 5);
    }
}
