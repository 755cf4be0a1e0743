//! The names of the files that events tell of. A thread asks workers as soon as a file is seen, since it may be deleted
//! soon; rows look into what is known when they are printed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;

use crate::file::known::{KnownNames, MAX_KNOWN};
use crate::file::{FileAspect, FileCell, FileName, FoundBy, InodeKey, NamesOfInodes};
use crate::host::{BlockDevices, Host};
use crate::outside::{self, AskedOf, NoAnswer};
use crate::sys::{self, monotonic_ns, realtime_ns};

/// Most files that wait for their question.
const MAX_WAITING: usize = 4096;
/// Files in one question.
const MAX_AT_ONCE: usize = 64;
/// A file that is still seen after so long is asked about again: it may have got another name.
const ASK_AGAIN_NS: u64 = 2_000_000_000;
/// The shortest time between questions: 6,400 files a second at most.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(10);
/// After so many questions that hang, no more are asked.
const MAX_HANGS: usize = 3;

/// The files that events tell of: what the thread of the profiler has.
#[derive(Debug)]
pub struct FileNames {
    tid: i32,
    known: Arc<KnownNames>,
    questions: Sender<(InodeKey, u64)>,
    /// When each file was asked about last, ns.
    asked: FxHashMap<InodeKey, u64>,
}

impl FileNames {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host, devices: BlockDevices) -> Result<FileNames> {
        let (questions, to_ask) = bounded(MAX_WAITING);
        let known = Arc::new(KnownNames::new(devices));
        let (names, host) = (known.clone(), host.clone());
        let work = move || ask_all(&host, &to_ask, &names);
        let tid = sys::start_thread("file-names", work).context("cannot start the thread that asks for file names")?;
        Ok(FileNames { tid, known, questions, asked: FxHashMap::default() })
    }

    /// The tid of the thread that asks.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// An event at `time` tells of a file, whose name is asked for if it is not known.
    #[inline]
    pub fn seen(&mut self, key: InodeKey, time: u64) {
        if self.asked.get(&key).is_none_or(|asked| time.saturating_sub(*asked) > ASK_AGAIN_NS) {
            self.ask(key, time);
        }
    }

    #[cold]
    fn ask(&mut self, key: InodeKey, time: u64) {
        if self.asked.len() >= MAX_KNOWN {
            self.asked.clear();
        }
        // Without room among the questions, the next event of the file asks.
        if self.known.expect(key, time) && self.questions.try_send((key, time)).is_ok() {
            self.asked.insert(key, time);
        }
    }

    /// What a row has in place of the file.
    pub fn cell(&self, key: InodeKey, aspect: FileAspect) -> FileCell {
        FileCell::new(key, aspect, self.known.clone())
    }

    /// The name of a file, if the answer comes in time.
    pub fn name(&self, key: InodeKey) -> Arc<FileName> {
        self.known.name(key)
    }
}

/// Asks about all files that come, until the profiler has ended.
fn ask_all(host: &Host, to_ask: &Receiver<(InodeKey, u64)>, known: &KnownNames) {
    let mut hangs = 0;
    while let Ok(first) = to_ask.recv() {
        let mut asked = vec![first];
        asked.extend(to_ask.try_iter().take(MAX_AT_ONCE - 1));
        let to_realtime = |time: u64| realtime_ns().saturating_sub(monotonic_ns().saturating_sub(time));
        let question = NamesOfInodes(asked.iter().map(|(key, time)| (*key, to_realtime(*time))).collect());
        // Which user's file it is, and so who could make the worker hang, is not known.
        let answer = (hangs < MAX_HANGS).then(|| outside::ask(host, AskedOf::file_of_users(&[]), &question));
        hangs += usize::from(matches!(answer, Some(Err(NoAnswer::Late(_)))));
        let mut answers = answer.and_then(Result::ok).map(|answered| answered.value).unwrap_or_default().into_iter();
        for (key, _) in asked {
            known.tell(key, answers.next().unwrap_or_else(|| FileName::unknown(FoundBy::NoAnswer)));
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
}
