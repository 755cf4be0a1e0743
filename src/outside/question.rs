//! The questions to workers: values with the code that answers them in a worker.

use std::any::{Any, TypeId};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Host;
use crate::sys;
use crate::sys::packets::{MAX_DESCRIPTORS, MAX_MESSAGE_BYTES, Packet, read_sealed, sealed};

/// A question to a worker. Question and answer own their data, since they are sent through a socket.
pub trait Question: Serialize + DeserializeOwned + 'static {
    type Answer: Serialize + DeserializeOwned;

    /// Finds the answer. This may hang.
    fn answer(&self, context: &mut WorkerContext) -> Self::Answer;
}

/// An answer, with the files that came with it: sealed copies in memory, or descriptors that only name a file (O_PATH).
#[derive(Debug)]
pub struct Answered<A> {
    pub value: A,
    pub files: Vec<File>,
}

/// What a question is answered with: the machine, the files of the question and of the answer, and the values that the
/// worker keeps between questions.
pub struct WorkerContext {
    pub host: Host,
    files: Vec<File>,
    given: Vec<File>,
    memory: FxHashMap<TypeId, Box<dyn Any>>,
    is_worker: bool,
}

/// The name of a worker while it reads a process or thread: this text in front of the number.
pub(super) const ABOUT: &str = "asks ";

impl WorkerContext {
    /// For a worker process.
    pub(super) fn of_worker(host: Host) -> WorkerContext {
        WorkerContext { is_worker: true, ..WorkerContext::new(host) }
    }

    /// For answers in this process.
    pub fn new(host: Host) -> WorkerContext {
        WorkerContext { host, files: Vec::new(), given: Vec::new(), memory: FxHashMap::default(), is_worker: false }
    }

    /// Sets the worker's name to the process or thread that is read next: if that read hangs, the asking process learns
    /// which one it was.
    pub fn about(&self, pid: i32) {
        if self.is_worker {
            sys::set_thread_name(&format!("{ABOUT}{pid}"));
        }
    }

    /// For the answer to [`ask_long`](crate::outside::ask_long).
    pub fn place(&self) -> WorkerPlace {
        let note = self.files.last().filter(|_| self.is_worker).and_then(|note| note.try_clone().ok());
        WorkerPlace { note, is_worker: self.is_worker }
    }

    /// A file that came with the question.
    pub fn file(&self, index: usize) -> Option<&File> {
        self.files.get(index)
    }

    /// Sends a file with the answer. Files beyond the limit of a message are left out.
    pub fn give(&mut self, file: File) {
        if self.given.len() < MAX_DESCRIPTORS - 1 {
            self.given.push(file);
        }
    }

    /// A value that the worker keeps between questions, one per type.
    pub fn remembered<T: Default + 'static>(&mut self) -> &mut T {
        let kept = self.memory.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        kept.downcast_mut().unwrap_or_else(|| unreachable!("the key is its type"))
    }
}

/// The process and the file that a worker reads for a long answer, for the message if the read hangs. Outside of a
/// worker nothing is recorded.
#[derive(Debug, Default)]
pub struct WorkerPlace {
    /// The path, in memory that the asking process has open too.
    note: Option<File>,
    is_worker: bool,
}

impl WorkerPlace {
    /// Records the process that is read next, and the file. Pid 0: the file belongs to no process.
    pub fn tell(&self, pid: i32, path: &Path) {
        if self.is_worker {
            sys::set_thread_name(&format!("{ABOUT}{pid}"));
        }
        if let Some(note) = &self.note {
            let path = path.as_os_str().as_bytes();
            // If this fails, a message is less precise.
            let _ = note.set_len(path.len() as u64).and_then(|()| note.write_all_at(path, 0));
        }
    }
}

/// The path that a worker has recorded last.
pub(super) fn told_path(note: &File) -> PathBuf {
    let mut path = vec![0; note.metadata().map_or(0, |meta| meta.len() as usize)];
    let is_read = note.read_exact_at(&mut path, 0).is_ok();
    PathBuf::from(OsStr::from_bytes(if is_read { &path } else { &[] }))
}

/// Decodes one kind of question and encodes its answer.
#[derive(Clone, Copy)]
pub struct QuestionHandler {
    kind: fn() -> TypeId,
    answer: fn(&[u8], &mut WorkerContext) -> Option<Vec<u8>>,
}

impl std::fmt::Debug for QuestionHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuestionHandler")
    }
}

impl QuestionHandler {
    pub const fn of<Q: Question>() -> QuestionHandler {
        QuestionHandler {
            kind: TypeId::of::<Q>,
            answer: |bytes, context| {
                let question: Q = postcard::from_bytes(bytes).ok()?;
                postcard::to_allocvec(&question.answer(context)).ok()
            },
        }
    }
}

/// All kinds of questions that a worker knows.
pub type QuestionHandlers = &'static [&'static [QuestionHandler]];

/// Index of a kind of question among all handlers, counted through the lists in order.
fn index_of<Q: Question>(handlers: QuestionHandlers) -> Option<u16> {
    let position = handlers.iter().copied().flatten().position(|handler| (handler.kind)() == TypeId::of::<Q>())?;
    u16::try_from(position).ok()
}

/// Most bytes of an answer that is too long for a message.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// First byte of an answer: what follows is the answer, or it is in the last file.
const INLINE: u8 = 0;
const IN_FILE: u8 = 1;

/// The message of a question. None: no worker knows it, or it is too long.
pub(super) fn encode<Q: Question>(handlers: QuestionHandlers, question: &Q) -> Option<Vec<u8>> {
    let mut message = index_of::<Q>(handlers)?.to_ne_bytes().to_vec();
    message.extend(postcard::to_allocvec(question).ok()?);
    (message.len() <= MAX_MESSAGE_BYTES).then_some(message)
}

/// The message that answers a question, and its files. None: the question is not understood, or memory is short.
pub(super) fn reply(
    handlers: QuestionHandlers,
    question: Packet,
    context: &mut WorkerContext,
) -> Option<(Vec<u8>, Vec<File>)> {
    let (index, bytes) = question.bytes.split_first_chunk()?;
    let handler = handlers.iter().copied().flatten().nth(usize::from(u16::from_ne_bytes(*index)))?;
    context.files = question.files.into_iter().map(File::from).collect();
    let answer = (handler.answer)(bytes, context);
    context.files.clear();
    let mut files = std::mem::take(&mut context.given);
    let answer = answer?;
    if answer.len() < MAX_MESSAGE_BYTES {
        return Some(([&[INLINE], &answer[..]].concat(), files));
    }
    files.push(sealed(&answer).ok()?);
    Some((vec![IN_FILE], files))
}

/// The answer in a message.
pub(super) fn decode<A: DeserializeOwned>(reply: Packet) -> Option<Answered<A>> {
    let mut files: Vec<File> = reply.files.into_iter().map(File::from).collect();
    let value = match reply.bytes.split_first()? {
        (&INLINE, bytes) => postcard::from_bytes(bytes).ok()?,
        _ => postcard::from_bytes(&read_sealed(&files.pop()?, MAX_ANSWER_BYTES).ok()?).ok()?,
    };
    Some(Answered { value, files })
}

/// Answers in this process.
pub(super) fn answer_here<Q: Question>(host: &Host, question: &Q, files: &[&dyn AsFd]) -> Answered<Q::Answer> {
    let copy = |file: &&dyn AsFd| file.as_fd().try_clone_to_owned().ok();
    let files: Vec<OwnedFd> = files.iter().filter_map(copy).collect();
    let mut context = WorkerContext::new(host.clone());
    context.files = files.into_iter().map(File::from).collect();
    let value = question.answer(&mut context);
    Answered { value, files: context.given }
}

/// For `#[serde(with = "as_bytes")]`: writes bytes at once, where serde by itself would write them one by one.
pub mod as_bytes {
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    /// # Errors
    /// As the deserializer.
    pub fn deserialize<'d, D: Deserializer<'d>, B: From<Vec<u8>>>(from: D) -> Result<B, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        from.deserialize_bytes(BytesVisitor).map(B::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::packets::memory_file;

    #[test]
    fn the_place_that_was_told_last_counts() {
        let note = memory_file().unwrap();
        let place = WorkerPlace { note: note.try_clone().ok(), is_worker: false };
        assert_eq!(told_path(&note), PathBuf::new());
        for path in ["/a/long/path", "/b", ""] {
            place.tell(7, Path::new(path));
            assert_eq!(told_path(&note), Path::new(path));
        }
    }
}
