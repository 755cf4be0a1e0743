//! Results to text or JSON, on a thread of their own: a slow terminal or a closed pipe must not stop the reading.
//!
//! The reading side hands over `Message`s through a bounded channel and never waits for it in mid-run: occurrences
//! that find it full are dropped and counted. Names of addresses are looked up here, on first print.

pub mod escape;
pub mod json;
pub mod sink;
pub mod text;
pub mod wall;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::output::sink::Sink;
use crate::output::writer::Writer;
use crate::perf::target::Host;
use crate::stats::value::{Batch, Table, Value};
use crate::sys::poll::{Waker, block_signals};
use crate::tep::field::Field;
use crate::tep::format::Format;
use crate::tep::print_fmt::PrintFmt;

/// How one event's records become text.
#[derive(Debug)]
pub struct EventText {
    pub name: String,
    pub alias: Option<String>,
    pub format: Arc<Format>,
    /// None: the print format cannot be compiled, fields are shown as `name=value`.
    pub print: Option<PrintFmt>,
    pub(crate) flags: Option<Field>,
    pub(crate) preempt_count: Option<Field>,
}

impl EventText {
    pub fn new(name: &str, alias: Option<&str>, format: Arc<Format>) -> EventText {
        EventText {
            name: name.to_owned(),
            alias: alias.map(str::to_owned),
            print: PrintFmt::compile(&format).ok(),
            flags: format.field("common_flags").cloned(),
            preempt_count: format.field("common_preempt_count").cloned(),
            format,
        }
    }
}

/// What the output thread is told once.
#[derive(Debug)]
pub struct Settings {
    pub profiler: &'static str,
    pub json: bool,
    /// By event index; None for events that are never printed.
    pub events: Vec<Option<EventText>>,
    pub host: Host,
    /// Occurrences carry stacks.
    pub stacks: bool,
}

/// The end of an interval.
#[derive(Debug)]
pub struct IntervalEnd {
    pub interval: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub samples: u64,
    pub lost: u64,
    pub lost_windows: Vec<LostSpan>,
    pub discarded: u64,
    pub coverage: f64,
    /// What loss means and what would cure it, for text.
    pub loss_line: Option<String>,
    pub totals: Vec<(&'static str, Value)>,
}

/// Records of one CPU were lost between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostSpan {
    pub cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Records that a LOST record told of; side records among them.
    pub count: u64,
}

/// The end of a run.
#[derive(Debug)]
pub struct RunEnd {
    pub time_ns: u64,
    pub duration_ns: u64,
    pub samples: u64,
    pub lost: u64,
    /// Occurrences dropped because the output could not keep up.
    pub lost_output: u64,
    /// COMM, FORK, EXIT and MMAP2 records lost.
    pub lost_side: u64,
    /// Stacks that found their table full.
    pub lost_stacks: u64,
    pub malformed: u64,
    pub discarded: u64,
    pub late: u64,
    pub intervals: u64,
    pub cpu_ns: u64,
    pub rss_peak_bytes: u64,
    pub locked_bytes: u64,
    pub wakeups: u64,
    pub totals: Vec<(&'static str, Value)>,
    /// Lines for people, on stderr.
    pub summary: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    /// Rows of interval N that ended at a time.
    Table {
        table: Table,
        interval: u64,
        time_ns: u64,
        span_ns: u64,
    },
    Interval(IntervalEnd),
    End(RunEnd),
    Note(String),
}

/// How the output came to its end.
#[derive(Debug)]
pub enum Closed {
    /// The reader has gone: a normal end.
    Pipe,
    Failed(io::Error),
}

/// The reading side's end of the channel.
#[derive(Debug)]
pub struct Output {
    tid: i32,
    sender: Option<Sender<Message>>,
    used: Receiver<Batch>,
    thread: Option<JoinHandle<()>>,
    closed: Arc<AtomicBool>,
    ending: Arc<Mutex<Option<Closed>>>,
    pub batch: Batch,
    /// In order, not yet in the queue.
    waiting: VecDeque<Message>,
    /// Of the batches among them.
    waiting_bytes: usize,
    dropped: u64,
}

/// Gives the output thread what it waits for. Dropped without, the thread ends.
#[derive(Debug)]
pub struct Settle(Sender<Settings>);

impl Settle {
    pub fn send(self, settings: Settings) {
        let _ = self.0.send(settings);
    }
}

/// Messages under way at most.
const QUEUE: usize = 512;
/// A batch is handed over when it has this many bytes, and always at the end of a round.
const BATCH_BYTES: usize = 64 * 1024;
/// While the queue is full, a batch grows to this before its occurrences are dropped.
const BATCH_MOST_BYTES: usize = 1024 * 1024;
/// Messages that wait for a blocked output at most, and the bytes of the batches among them.
const WAITING_MOST: usize = 4096;
const WAITING_MOST_BYTES: usize = 8 << 20;
/// Stacks and mappings that wait with a batch at most.
const NEWS_MOST: usize = 200_000;

impl Output {
    /// Starts the thread, before the events are opened: their filters may name it. It waits for its settings.
    /// `waker` ends the reader's wait when the output is closed.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(sink: Sink, waker: Arc<Waker>) -> Result<(Output, Settle)> {
        let (settle, settings) = bounded::<Settings>(1);
        let (tell_tid, tid) = bounded::<i32>(1);
        let (sender, receiver) = bounded::<Message>(QUEUE);
        let (give_back, used) = bounded::<Batch>(QUEUE);
        let closed = Arc::new(AtomicBool::new(false));
        let ending = Arc::new(Mutex::new(None));
        let (thread_closed, thread_ending) = (closed.clone(), ending.clone());
        let work = move || {
            block_signals(); // they are the reading side's
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            let Ok(settings) = settings.recv() else { return };
            let mut writer = Writer::new(settings, sink);
            let result = write_all(&mut writer, &receiver, &give_back);
            if let Err(err) = result {
                let how = if err.kind() == io::ErrorKind::BrokenPipe { Closed::Pipe } else { Closed::Failed(err) };
                if let Ok(mut ending) = thread_ending.lock() {
                    *ending = Some(how);
                }
            }
            thread_closed.store(true, Ordering::Release);
            waker.wake();
            // What still comes is taken and dropped, so that the reader never finds the queue full.
            receiver.into_iter().for_each(drop);
        };
        let thread =
            std::thread::Builder::new().name("output".into()).spawn(work).context("cannot start the output thread")?;
        let tid = tid.recv().context("the output thread ended at once")?;
        let output = Output {
            tid,
            sender: Some(sender),
            used,
            thread: Some(thread),
            closed,
            ending,
            batch: Batch::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
        };
        Ok((output, Settle(settle)))
    }

    /// The output thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// True when the thread has ended: everything is written, or nobody reads.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Occurrences dropped because the output could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Hands the batch over when it is large.
    pub fn flush_large(&mut self) {
        if self.batch.bytes() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands the batch over, behind what is still waiting.
    pub fn flush(&mut self) {
        // While the output is blocked, the batch grows up to a limit.
        if !self.batch.is_empty() && (self.waiting.is_empty() || self.batch.bytes() > BATCH_MOST_BYTES) {
            self.queue_batch();
        }
        self.pump();
    }

    /// Puts the batch behind what waits. When too much waits, its occurrences are dropped.
    fn queue_batch(&mut self) {
        let bytes = self.batch.bytes();
        if self.waiting_bytes + bytes > WAITING_MOST_BYTES {
            self.dropped += self.batch.occurrences.len() as u64;
            let mut news = std::mem::take(&mut self.batch.news); // later occurrences refer to it
            if news.len() > NEWS_MOST {
                news.clear(); // some stacks will have no frames
            }
            self.batch.clear();
            self.batch.news = news;
            return;
        }
        let next = self.used.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        self.waiting_bytes += bytes;
        self.waiting.push_back(Message::Batch(batch));
    }

    /// Moves what waits into the queue, until that is full.
    fn pump(&mut self) {
        let Some(sender) = &self.sender else { return };
        while let Some(message) = self.waiting.pop_front() {
            let bytes = if let Message::Batch(batch) = &message { batch.bytes() } else { 0 };
            match sender.try_send(message) {
                Ok(()) => self.waiting_bytes -= bytes,
                Err(TrySendError::Full(message)) => {
                    self.waiting.push_front(message);
                    return;
                }
                // The thread has ended without saying so: it panicked.
                Err(TrySendError::Disconnected(_)) => self.closed.store(true, Ordering::Release),
            }
        }
    }

    /// Sends a table, an interval's end or a note. They wait their turn when the output is blocked.
    pub(crate) fn send(&mut self, message: Message) {
        // What happened before the message must come before it.
        if !self.batch.is_empty() {
            self.queue_batch();
        }
        if self.waiting.len() < WAITING_MOST {
            self.waiting.push_back(message);
        } else {
            self.dropped += 1;
        }
        self.pump();
    }

    /// A line for people on stderr.
    pub fn note(&mut self, text: impl Into<String>) {
        self.send(Message::Note(text.into()));
    }

    /// Sends the last messages and waits for the thread, as long as `keep_waiting` says so.
    pub(crate) fn finish(mut self, last: Vec<Message>, mut keep_waiting: impl FnMut() -> bool) -> Option<Closed> {
        use std::time::Duration;
        const STEP: Duration = Duration::from_millis(20);
        let batch = std::mem::take(&mut self.batch);
        let waiting = std::mem::take(&mut self.waiting);
        for message in waiting.into_iter().chain([Message::Batch(batch)]).chain(last) {
            let mut message = Some(message);
            while let (Some(sender), Some(next)) = (&self.sender, message.take()) {
                match sender.send_timeout(next, STEP) {
                    Ok(()) => {}
                    Err(crossbeam_channel::SendTimeoutError::Timeout(back)) if keep_waiting() => message = Some(back),
                    Err(_) => return self.ending(),
                }
            }
        }
        self.sender = None; // the thread ends when it has written all
        while !self.is_closed() && !self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            if !keep_waiting() {
                return self.ending();
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Some(Closed::Failed(io::Error::other("the output thread panicked"))),
            _ => self.ending(),
        }
    }

    fn ending(&self) -> Option<Closed> {
        self.ending.lock().ok()?.take()
    }
}

fn write_all(writer: &mut Writer, messages: &Receiver<Message>, give_back: &Sender<Batch>) -> io::Result<()> {
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(_) => {
                writer.flush()?; // nothing waits, so neither should what was printed
                match messages.recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(()),
                }
            }
        };
        match message {
            Message::Batch(mut batch) => {
                writer.batch(&mut batch)?;
                batch.clear();
                let _ = give_back.try_send(batch);
            }
            Message::Table { table, interval, time_ns, span_ns } => writer.table(&table, interval, time_ns, span_ns)?,
            Message::Interval(end) => writer.interval(&end)?,
            Message::End(end) => writer.end(&end)?,
            Message::Note(text) => writer.note(&text)?,
        }
    }
}
