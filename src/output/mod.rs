//! Results to text or JSON, on a thread of their own: a slow terminal or a closed pipe must not stop the reading.
//!
//! The reading side hands over `Message`s through a bounded channel and never waits for it in mid-run: occurrences
//! that find it full are dropped and counted, and so are tables, but never the last. Names of addresses are looked up
//! here, on first print.

mod by_stack;
pub mod escape;
pub mod flame;
mod fold;
pub mod forecast;
pub mod json;
pub mod sink;
#[cfg(test)]
mod tests;
pub mod text;
mod top;
mod under_way;
pub mod wall;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::bpf::attached::Attached;
use crate::output::escape::escape_into;
use crate::output::flame::{FlameWriter, Unwritten};
use crate::output::sink::{Sink, Waits};
pub use crate::output::top::Top;
use crate::output::under_way::{MOST_BYTES, UnderWay};
use crate::output::writer::Writer;
use crate::perf::target::Host;
use crate::stats::value::{Batch, Table, Value, Verdict};
use crate::stats::weights::Weighted;
use crate::symbol::elf::SymbolOptions;
use crate::sys::poll::{Waker, block_signals};
use crate::tep::field::Field;
use crate::tep::format::Format;
use crate::tep::print_fmt::PrintFmt;
use crate::tep::strings::KernelStrings;

/// How one event's records become text.
#[derive(Debug)]
pub struct EventText {
    pub format: Arc<Format>,
    /// None: the print format cannot be compiled, fields are shown as `name=value`.
    pub print: Option<PrintFmt>,
    flags: Option<Field>,
    preempt_count: Option<Field>,
    /// `name: `, or the alias, as it stands in every line.
    label: Vec<u8>,
    /// The same for JSON: `"event":"name","alias":"name"`.
    json_label: Vec<u8>,
    /// The own fields, with `"name":`.
    json_fields: Vec<(Vec<u8>, Field)>,
}

impl EventText {
    pub fn new(name: &str, alias: Option<&str>, format: Arc<Format>) -> EventText {
        let mut label = Vec::new();
        escape_into(alias.unwrap_or(name).as_bytes(), &mut label);
        label.extend_from_slice(b": ");
        EventText {
            label,
            json_label: json::event_label(name, alias),
            json_fields: format.user_fields().map(|field| (json::label(&field.name), field.clone())).collect(),
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
    /// What `const char *` fields of the events point to.
    pub strings: KernelStrings,
    pub host: Host,
    /// Occurrences carry stacks.
    pub stacks: bool,
    /// Samples hold callchains.
    pub callchains: bool,
    pub symbols: SymbolOptions,
    /// Say at the end how many frames got names.
    pub coverage: bool,
    /// Each line is written at once, before names are looked up, which takes its time.
    pub prompt: bool,
    /// What is written is to survive a crash of the machine.
    pub durable: bool,
    pub flame: Option<FlameWriter>,
}

/// A report of what fell on each stack from the start of the run up to an interval's end.
#[derive(Debug)]
pub struct StackReport {
    pub interval: u64,
    pub time_ns: u64,
    pub span_ns: u64,
    /// What is not in the sums yet, because it goes on.
    pub ongoing: Arc<Vec<Weighted>>,
    /// What is listed of it; None: it is for the flame graph alone.
    pub top: Option<Top>,
    /// The run ends with it.
    pub last: bool,
}

/// The end of an interval.
#[derive(Debug, Default)]
pub struct IntervalEnd {
    pub interval: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub samples: u64,
    pub lost: u64,
    pub lost_side: u64,
    pub lost_windows: Vec<LostSpan>,
    pub discarded: u64,
    pub coverage: f64,
    /// Of what its records make.
    pub verdict: Verdict,
    /// Programs of others that may have hidden events from us.
    pub filtered_by: Vec<Attached>,
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
    /// What was not followed because too much was followed already.
    pub lost_pairs: u64,
    /// Calls of probed functions.
    pub lost_calls: u64,
    /// Processes that the target started, in which calls of probed functions may have gone unseen.
    pub children_in_doubt: u64,
    pub malformed: u64,
    pub discarded: u64,
    pub late: u64,
    pub intervals: u64,
    pub cpu_ns: u64,
    pub rss_peak_bytes: u64,
    pub locked_bytes: u64,
    pub wakeups: u64,
    pub record_bytes: u64,
    pub totals: Vec<(&'static str, Value)>,
    /// Programs of others that may have hidden events from us.
    pub filtered_by: Vec<Attached>,
    /// Lines for people, on stderr.
    pub summary: Vec<String>,
}

impl RunEnd {
    /// A number of the whole run, per second.
    pub fn per_s(&self, number: u64) -> f64 {
        number as f64 / (self.duration_ns as f64 / 1e9).max(1e-9)
    }

    /// All that is missing from the results, whatever lost it.
    pub fn missing(&self) -> u64 {
        let losses = [self.lost, self.lost_output, self.lost_side, self.lost_stacks, self.lost_pairs, self.lost_calls];
        losses.into_iter().fold(self.malformed, u64::saturating_add)
    }
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
    Stacks(StackReport),
    Interval(IntervalEnd),
    End(RunEnd),
    Note(String),
    /// Processes whose stacks may come, and which may be gone by then.
    Living(Vec<i32>),
    /// What fell on stacks since the last time. They may be forgotten.
    Weights(Vec<Weighted>),
}

/// How the output came to its end.
#[derive(Debug)]
pub enum Closed {
    /// The reader has gone: a normal end.
    Pipe,
    FlameGraph(io::Error),
    Failed(io::Error),
    /// Not all was written: nobody wanted to wait for it any longer.
    GivenUp,
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
    under_way: Arc<UnderWay>,
    waits: Waits,
    shown: bool,
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
/// Empty batches kept for use again: as many as a round usually hands over at once, or each would grow anew.
const USED: usize = (8 << 20) / BATCH_BYTES;
/// Of each part of one: while the output was slow each in turn may have grown to many times what it needs.
const KEPT_BYTES: usize = 2 * BATCH_BYTES;
/// While there is no room under way, a batch grows to this before its occurrences are dropped.
const BATCH_MOST_BYTES: usize = 1024 * 1024;
/// Messages that wait for a blocked output at most.
const WAITING_MOST: usize = 4096;
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
        let (give_back, used) = bounded::<Batch>(USED);
        let closed = Arc::new(AtomicBool::new(false));
        let ending = Arc::new(Mutex::new(None));
        let under_way = Arc::new(UnderWay::default());
        let taken = under_way.clone();
        let (thread_closed, thread_ending) = (closed.clone(), ending.clone());
        let waits = sink.waits();
        let work = move || {
            block_signals(); // they are the reading side's
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            let Ok(settings) = settings.recv() else { return };
            let mut writer = Writer::new(settings, sink);
            let result = write_all(&mut writer, &receiver, &give_back, &taken);
            if let Err(err) = result {
                let how = match err.kind() {
                    io::ErrorKind::BrokenPipe => Closed::Pipe,
                    _ if err.get_ref().is_some_and(|inner| inner.is::<Unwritten>()) => Closed::FlameGraph(err),
                    _ => Closed::Failed(err),
                };
                if let Ok(mut ending) = thread_ending.lock() {
                    *ending = Some(how);
                }
            }
            thread_closed.store(true, Ordering::Release);
            waker.wake();
            // What still comes is taken and dropped, so that the reader never finds the queue full.
            receiver.into_iter().for_each(|message| taken.take(&message));
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
            under_way,
            waits,
            shown: false,
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

    /// True when something that happened is on its way to the user.
    pub fn has_shown(&self) -> bool {
        self.shown
    }

    /// Occurrences, rows and notes dropped because the output could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// So many lines were not even made, because the output does not keep up.
    pub fn skip(&mut self, lines: usize) {
        self.dropped += lines as u64;
    }

    /// Hands the batch over when it is large.
    #[inline]
    pub fn flush_large(&mut self) {
        if self.is_large() {
            self.flush();
        }
    }

    /// Whether the batch is to be handed over.
    #[inline]
    pub fn is_large(&self) -> bool {
        // Most samples are but counted.
        !self.batch.occurrences.is_empty() && self.batch.bytes() >= BATCH_BYTES
    }

    /// Hands the batch over, behind what is still waiting.
    pub fn flush(&mut self) {
        if !self.batch.is_empty() {
            // While the output is blocked, the batch grows up to a limit.
            let large = self.batch.bytes() > BATCH_MOST_BYTES || self.batch.news.len() > NEWS_MOST;
            let queued = (large || self.waiting.is_empty()) && self.queue_batch();
            if large && !queued {
                self.thin_batch();
            }
        }
        self.pump();
    }

    /// Puts the batch behind what waits, if there is room for it under way.
    fn queue_batch(&mut self) -> bool {
        let bytes = self.batch.bytes();
        let under_way = self.under_way.occurrence_bytes();
        let too_much = under_way > 0 && under_way.saturating_add(bytes) > MOST_BYTES;
        if too_much || self.waiting.len() >= WAITING_MOST {
            return false;
        }
        self.shown |= !self.batch.occurrences.is_empty();
        let next = self.used.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        self.wait(Message::Batch(batch));
        true
    }

    /// Puts a message behind what waits.
    fn wait(&mut self, message: Message) {
        self.under_way.add(&message);
        self.waiting.push_back(message);
    }

    /// Makes room in the batch: what is rare stays, unless there is too much of it under way already.
    fn thin_batch(&mut self) {
        let mut news = std::mem::take(&mut self.batch.news); // later occurrences refer to it
        if news.len() > NEWS_MOST {
            news.clear(); // some stacks will have no frames
        }
        let before = self.batch.occurrences.len();
        if self.under_way.occurrence_bytes() > MOST_BYTES + MOST_BYTES / 3 {
            self.batch.clear();
        } else {
            self.batch.thin();
        }
        self.dropped += (before - self.batch.occurrences.len()) as u64;
        self.batch.news = news;
    }

    /// Moves what waits into the queue, until that is full.
    fn pump(&mut self) {
        let Some(sender) = &self.sender else { return };
        while let Some(message) = self.waiting.pop_front() {
            match sender.try_send(message) {
                Ok(()) => {}
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
        // What happened before the message must come before it, or not at all.
        if !self.batch.is_empty() && !self.queue_batch() {
            self.thin_batch();
            // What the message refers to must come before it.
            if !self.batch.is_empty() && self.waiting.len() < WAITING_MOST {
                let news = std::mem::take(&mut self.batch);
                self.wait(Message::Batch(news));
            }
        }
        if self.waiting.len() < WAITING_MOST {
            self.wait(message);
        } else {
            self.dropped += message.lines();
        }
        self.pump();
    }

    /// Sends what an interval has to say. Its tables come all, or none of them when the output does not keep up.
    pub(crate) fn send_interval(&mut self, messages: Vec<Message>) {
        let is_full = self.under_way.is_full_of_reports();
        for message in messages {
            match message {
                Message::Table { .. } | Message::Note(_) if is_full => self.dropped += message.lines(),
                _ => self.send(message),
            }
        }
    }

    /// A line for people on stderr.
    pub fn note(&mut self, text: impl Into<String>) {
        if self.under_way.is_full_of_reports() {
            self.dropped += 1;
        } else {
            self.send(Message::Note(text.into()));
        }
    }

    /// Hands over all that there is so far. False when the output is blocked.
    pub fn flush_all(&mut self) -> bool {
        self.flush();
        self.batch.is_empty() && self.waiting.is_empty()
    }

    /// Adds to what fell on stacks from the start of the run.
    pub fn weights(&mut self, rows: Vec<Weighted>) {
        self.send(Message::Weights(rows));
    }

    /// Says whose stacks may come.
    pub fn living(&mut self, pids: Vec<i32>) {
        self.send(Message::Living(pids));
    }

    /// Sends the last messages and waits for the thread, as long as `keep_waiting` says so, which is told whether it is the
    /// results' reader who keeps us waiting.
    pub(crate) fn finish(mut self, last: Vec<Message>, mut keep_waiting: impl FnMut(bool) -> bool) -> Option<Closed> {
        use std::time::Duration;
        const STEP: Duration = Duration::from_millis(20);
        let batch = std::mem::take(&mut self.batch);
        for message in std::iter::once(Message::Batch(batch)).chain(last) {
            self.wait(message);
        }
        'messages: for message in std::mem::take(&mut self.waiting) {
            let mut message = Some(message);
            while let (Some(sender), Some(next)) = (&self.sender, message.take()) {
                match sender.send_timeout(next, STEP) {
                    Ok(()) => {}
                    Err(crossbeam_channel::SendTimeoutError::Timeout(back))
                        if keep_waiting(self.waits.for_nobody()) =>
                    {
                        message = Some(back);
                    }
                    Err(crossbeam_channel::SendTimeoutError::Timeout(_)) => return Some(Closed::GivenUp),
                    Err(crossbeam_channel::SendTimeoutError::Disconnected(_)) => break 'messages,
                }
            }
        }
        self.sender = None; // the thread ends when it has written all
        while !self.is_closed() && !self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            if !keep_waiting(self.waits.for_nobody()) {
                return Some(Closed::GivenUp);
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

fn write_all(
    writer: &mut Writer,
    messages: &Receiver<Message>,
    give_back: &Sender<Batch>,
    under_way: &UnderWay,
) -> io::Result<()> {
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(_) => {
                writer.flush()?; // nothing waits, so neither should what was printed
                if writer.read_ahead() {
                    continue;
                }
                match messages.recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(()),
                }
            }
        };
        writer.follow_wall_clock();
        under_way.take(&message);
        match message {
            Message::Batch(mut batch) => {
                writer.batch(&mut batch)?;
                batch.clear();
                batch.shrink(KEPT_BYTES);
                let _ = give_back.try_send(batch);
            }
            Message::Table { table, interval, time_ns, span_ns } => writer.table(&table, interval, time_ns, span_ns)?,
            Message::Stacks(report) => writer.stacks(&report)?,
            Message::Interval(end) => writer.interval(&end)?,
            Message::End(end) => writer.end(&end)?,
            Message::Note(text) => writer.note(&text)?,
            Message::Living(pids) => writer.will_need(pids),
            Message::Weights(rows) => writer.weights(&rows),
        }
    }
}
