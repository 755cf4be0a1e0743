//! The names of the files that events tell of. A thread asks workers as soon as a file is seen, since it may be deleted
//! soon; rows look into what is known when they are printed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;

use crate::file::asker::FileAsker;
use crate::file::known::{KnownNames, MAX_KNOWN};
use crate::file::{FileAspect, FileCell, FileName, FoundBy, InodeKey};
use crate::host::{BlockDevices, Host};
use crate::sys::{self, monotonic_ns, replayed};

/// Most files that wait for their question.
const MAX_WAITING: usize = 4096;
/// Files in one question.
const MAX_AT_ONCE: usize = 64;
/// A file that is still seen after so long is asked about again: it may have got another name.
const ASK_AGAIN_NS: u64 = 2_000_000_000;
/// The shortest time between questions: 6,400 files a second at most.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(10);

/// The files that events tell of: what the thread of the profiler has.
#[derive(Debug)]
pub struct FileNames {
    tid: i32,
    known: Arc<KnownNames>,
    /// None in a replay: the files of a recording are on another machine.
    questions: Option<Sender<(InodeKey, u64)>>,
    /// When each file was asked about last, ns.
    asked: FxHashMap<InodeKey, u64>,
}

impl FileNames {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host, devices: BlockDevices) -> Result<FileNames> {
        let known = Arc::new(KnownNames::new(devices));
        if replayed::is_on() {
            return Ok(FileNames { tid: replayed::THREAD_ID, known, questions: None, asked: FxHashMap::default() });
        }
        let (questions, to_ask) = bounded(MAX_WAITING);
        let (names, host) = (known.clone(), host.clone());
        let work = move || ask_all(&host, &to_ask, &names);
        let tid = sys::start_thread("file-names", work).context("cannot start the thread that asks for file names")?;
        Ok(FileNames { tid, known, questions: Some(questions), asked: FxHashMap::default() })
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

    /// A file that cannot be asked about is entered, too, so that its next events cost no more than a look.
    #[cold]
    fn ask(&mut self, key: InodeKey, time: u64) {
        if self.asked.len() >= MAX_KNOWN {
            self.asked.retain(|_, asked| time.saturating_sub(*asked) <= ASK_AGAIN_NS);
            if self.asked.len() > MAX_KNOWN / 2 {
                self.asked.clear();
            }
        }
        self.asked.insert(key, time);
        let Some(questions) = self.questions.as_ref().filter(|questions| !questions.is_full()) else { return };
        self.known.expect(key);
        if questions.try_send((key, time)).is_err() {
            self.known.tell(key, FileName::unknown(FoundBy::NoAnswer));
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

    /// The name of a file, if the answer comes until a [`FileNames::deadline`].
    pub fn name_by(&self, key: InodeKey, deadline_ns: u64) -> Arc<FileName> {
        self.known.name_by(key, deadline_ns)
    }

    /// The end of a wait for several names that begins now, ns.
    pub fn deadline(&self, patience: Duration) -> u64 {
        monotonic_ns().saturating_add(patience.as_nanos().try_into().unwrap_or(u64::MAX))
    }
}

/// Asks about all files that come, until the profiler has ended.
fn ask_all(host: &Host, to_ask: &Receiver<(InodeKey, u64)>, known: &KnownNames) {
    let mut asker = FileAsker::new(host.clone());
    while let Ok(first) = to_ask.recv() {
        let mut asked = vec![first];
        asked.extend(to_ask.try_iter().take(MAX_AT_ONCE - 1));
        for ((key, _), name) in asked.iter().zip(asker.names(&asked)) {
            known.tell(*key, name);
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::host::BlockDevice;

    /// Longer than anything but a hang.
    const GUARD: Duration = Duration::from_secs(60);

    /// The questions of a test, which has no thread that answers them.
    fn unanswered(limit: usize) -> (FileNames, Receiver<(InodeKey, u64)>) {
        let (questions, to_ask) = bounded(limit);
        let known = Arc::new(KnownNames::new(BlockDevices::default()));
        (FileNames { tid: 0, known, questions: Some(questions), asked: FxHashMap::default() }, to_ask)
    }

    fn key(inode: usize) -> InodeKey {
        InodeKey { device: BlockDevice(8 << 20), inode: inode as u64 }
    }

    #[test]
    fn files_that_cannot_be_asked_about_cost_a_look() {
        let (mut names, to_ask) = unanswered(1);
        (0..3).for_each(|inode| names.seen(key(inode), 1));
        let asked =
            |to_ask: &Receiver<(InodeKey, u64)>| to_ask.try_iter().map(|(key, _)| key.inode).collect::<Vec<_>>();
        assert_eq!(asked(&to_ask), [0]);
        (0..3).for_each(|inode| names.seen(key(inode), 2));
        assert_eq!(asked(&to_ask), [0; 0], "not again at once");
        assert_eq!(names.name(key(1)).found, FoundBy::NotAsked);
        names.seen(key(1), 2 + ASK_AGAIN_NS);
        assert_eq!(asked(&to_ask), [1], "but later");
    }

    #[test]
    fn many_files_are_asked_about_once() {
        let (mut names, to_ask) = unanswered(4 * MAX_KNOWN);
        (0..2 * MAX_KNOWN).for_each(|inode| names.seen(key(inode), inode as u64 * ASK_AGAIN_NS / 1000));
        assert!(names.asked.len() <= MAX_KNOWN);
        let old = to_ask.try_iter().count();
        assert_eq!(old, 2 * MAX_KNOWN);
        let newest = 2 * MAX_KNOWN - 1000..2 * MAX_KNOWN;
        let now = 2 * MAX_KNOWN as u64 * ASK_AGAIN_NS / 1000;
        newest.for_each(|inode| names.seen(key(inode), now));
        assert_eq!(to_ask.try_iter().count(), 0, "the newest are not forgotten");
    }

    /// An event may be stamped far ahead, and a question may stay without an answer.
    #[test]
    fn no_wait_is_longer_than_the_patience() {
        let (mut names, _to_ask) = unanswered(9);
        let start = Instant::now();
        names.seen(key(1), u64::MAX);
        assert_eq!(names.name(key(1)).found, FoundBy::NoAnswer);
        assert!(start.elapsed() < GUARD, "the time of the event is not waited for");
    }

    #[test]
    fn what_is_not_asked_about_is_not_waited_for() {
        let (mut names, _) = unanswered(9);
        names.questions = None; // as in a replay
        names.seen(key(1), 1);
        assert_eq!(names.name_by(key(1), u64::MAX).found, FoundBy::NotAsked);
    }
}
