//! Results to text or JSON, on a thread of their own: a slow terminal or a closed pipe must not stop the reading.
//!
//! The reading side hands over `Message`s through a bounded channel and never waits for it in mid-run: occurrences
//! that find it full are dropped and counted. An interval whose tables find it full goes on instead. Names of addresses are looked up
//! here, on first print.

mod commands;
pub mod flame;
mod flood;
#[cfg(test)]
mod flood_tests;
mod fold;
pub mod forecast;
mod frames;
pub mod json;
mod messages;
mod patience;
pub mod sink;
mod stack_numbers;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod thread;
mod top;
mod under_way;
mod unsettled;
pub mod wall;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};

use crate::escape::{escape, escape_into};
use crate::host::Host;
use crate::output::flame::FlameWriter;
pub(crate) use crate::output::messages::Message;
pub use crate::output::messages::{IntervalEnd, LostSpan, RunEnd, StackReport};
use crate::output::patience::Patience;
use crate::output::sink::{Sink, Waits, tell_at_once};
use crate::output::thread::{Ending, write_all};
use crate::output::under_way::{MOST_BYTES, MOST_NEWS_BYTES, UnderWay};
use crate::output::writer::Writer;
use crate::report::Batch;
use crate::stats::weights::Weighted;
use crate::symbol::elf::SymbolOptions;
use crate::symbol::{CurrentStep, StackId, SymbolUpdate};
use crate::sys;
use crate::sys::poll::{Waker, block_signals};
use crate::tep::field::Field;
use crate::tep::format::Format;
use crate::tep::print_fmt::PrintFmt;
use crate::tep::strings::KernelStrings;
use crate::unwind::SpaceCode;

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

/// How the output came to its end.
#[derive(Debug)]
pub enum Closed {
    /// The reader has gone: a normal end.
    Pipe,
    FlameGraph(io::Error),
    Failed(io::Error),
    /// Not all was written: nobody wanted to wait for it any longer. With what the output was at, if it was no reader who
    /// kept it waiting.
    GivenUp(Option<String>),
}

/// The reading side's end of the channel.
#[derive(Debug)]
pub struct Output {
    tid: i32,
    sender: Option<Sender<Message>>,
    used: Receiver<Batch>,
    /// Code of address spaces that the output thread had to look at to unwind stacks.
    published: Receiver<(u32, Arc<SpaceCode>)>,
    thread: Option<JoinHandle<()>>,
    ending: Arc<Ending>,
    pub batch: Batch,
    /// In order, not yet in the queue.
    waiting: VecDeque<Message>,
    under_way: Arc<UnderWay>,
    waits: Waits,
    step: CurrentStep,
    standstill: Standstill,
    /// News are left out.
    gap: Option<NewsGap>,
    shown: bool,
    dropped: u64,
    dropped_stacks: u64,
}

/// The output thread takes nothing, though something waits for it.
#[derive(Debug, Default)]
struct Standstill {
    taken: u64,
    since_ns: Option<u64>,
    reader_told: bool,
    step_told: bool,
}

/// There was no room for news, and so there is none for those that follow: what an address means would be told wrongly.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewsGap {
    /// Of the stacks that the output was not told of. Later ones belong to them.
    pub first: Option<StackId>,
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
/// Address spaces published at most that nobody has taken yet: one that finds no room is published when it is asked for again.
const PUBLISHED: usize = 1024;
/// While there is no room under way, a batch grows to this before its occurrences are dropped.
const BATCH_MOST_BYTES: usize = 1024 * 1024;
/// Messages that wait for a blocked output at most.
const WAITING_MOST: usize = 4096;
/// How long the output thread may take nothing before that is said.
const STANDSTILL_NS: u64 = 2_000_000_000;

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
        let (publish, published) = bounded(PUBLISHED);
        let ending = Arc::new(Ending::new(waker));
        let under_way = Arc::new(UnderWay::default());
        let (waits, step) = (sink.waits(), CurrentStep::default());
        let (taken, ended, at) = (under_way.clone(), ending.clone(), step.clone());
        let work = move || {
            let _end = ended.clone().in_the_end();
            block_signals(); // they are the reading side's
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            let Ok(settings) = settings.recv() else { return };
            let mut writer = Writer::new(settings, sink, at, publish);
            write_all(&mut writer, &receiver, &give_back, &taken, &ended);
        };
        let thread =
            std::thread::Builder::new().name("output".into()).spawn(work).context("cannot start the output thread")?;
        let tid = tid.recv().context("the output thread ended at once")?;
        let output = Output {
            tid,
            sender: Some(sender),
            used,
            published,
            thread: Some(thread),
            ending,
            batch: Batch::default(),
            waiting: VecDeque::new(),
            under_way,
            waits,
            step,
            standstill: Standstill::default(),
            gap: None,
            shown: false,
            dropped: 0,
            dropped_stacks: 0,
        };
        Ok((output, Settle(settle)))
    }

    /// By number, the code of address spaces in which stacks were to be unwound.
    pub fn published(&self) -> &Receiver<(u32, Arc<SpaceCode>)> {
        &self.published
    }

    /// The output thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// True when the run need not go on: everything is written, or nobody reads.
    pub fn is_closed(&self) -> bool {
        self.ending.is_closed()
    }

    /// True when something that happened is on its way to the user.
    pub fn has_shown(&self) -> bool {
        self.shown
    }

    /// Occurrences, rows and notes dropped because the output could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Stacks that the output was not told of, because it could not keep up.
    pub fn dropped_stacks(&self) -> u64 {
        self.dropped_stacks
    }

    /// What must be known before the occurrences that follow are printed.
    pub fn tell(&mut self, news: impl Iterator<Item = SymbolUpdate>) {
        for one in news {
            let taken = self.under_way.news_bytes() + self.batch.update_bytes();
            let has_room = taken == 0 || taken + one.bytes() <= MOST_NEWS_BYTES;
            match &one {
                // They lead to other things: a stack that came before a gap means what it meant.
                SymbolUpdate::StackCounts { .. } | SymbolUpdate::Forget { .. } | SymbolUpdate::RereadMaps
                    if has_room =>
                {
                    self.batch.push_update(one)
                }
                SymbolUpdate::StackCounts { .. } | SymbolUpdate::Forget { .. } | SymbolUpdate::RereadMaps => {}
                SymbolUpdate::Stack(_) if self.gap.is_none() => self.batch.push_update(one),
                SymbolUpdate::Space(_) if has_room && self.gap.is_none() => self.batch.push_update(one),
                SymbolUpdate::Space(_) => drop(self.gap.get_or_insert_default()),
                SymbolUpdate::Stack(stack) => {
                    self.gap.get_or_insert_default().first.get_or_insert(stack.id);
                    self.dropped_stacks += 1;
                }
            }
        }
    }

    /// The gap in the news, if there is one and the output is done with all that came before it: then it ends here, and
    /// what each process has mapped is looked at anew.
    pub fn end_gap(&mut self) -> Option<NewsGap> {
        let gap = self.gap.take_if(|_| self.under_way.is_done())?;
        self.batch.push_update(SymbolUpdate::RereadMaps);
        Some(gap)
    }

    /// Says once that the output does not get on, and in what it is stuck.
    pub fn tell_standstill(&mut self, profiler: &str) {
        let (taken, known) = (self.under_way.taken(), &mut self.standstill);
        if !self.under_way.any_waits() || taken != known.taken {
            (known.taken, known.since_ns) = (taken, None);
            return;
        }
        let now = sys::monotonic_ns();
        if now.saturating_sub(*known.since_ns.get_or_insert(now)) < STANDSTILL_NS {
            return;
        }
        let line = if self.waits.for_nobody() {
            let is_told = std::mem::replace(&mut known.reader_told, true);
            (!is_told).then(|| {
                "nobody takes what it writes; lines that find no room meanwhile are dropped and counted".to_owned()
            })
        } else {
            let at = self.step.describe().filter(|_| !known.step_told);
            known.step_told |= at.is_some();
            at.map(|at| format!("it {}", escape(at.as_bytes())))
        };
        if let Some(line) = line {
            tell_at_once(&format!("{profiler}: the output has been at a standstill for 2 s: {line}"));
        }
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
        !self.batch.is_empty() && self.batch.bytes() + self.batch.update_bytes() >= BATCH_BYTES
    }

    /// Hands the batch over, behind what is still waiting.
    pub fn flush(&mut self) {
        if !self.batch.is_empty() {
            // While the output is blocked, the batch grows up to a limit.
            let large = self.batch.bytes() > BATCH_MOST_BYTES || self.batch.update_bytes() > BATCH_MOST_BYTES;
            let queued = (large || self.waiting.is_empty()) && self.queue_batch();
            if self.batch.bytes() > BATCH_MOST_BYTES && !queued {
                self.thin_batch();
            }
        }
        self.pump();
    }

    /// Puts the batch behind what waits, if there is room for it under way.
    fn queue_batch(&mut self) -> bool {
        let bytes = self.batch.bytes();
        let under_way = self.under_way.occurrence_bytes();
        let too_much = under_way > 0 && bytes > 0 && under_way.saturating_add(bytes) > MOST_BYTES;
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
        let before = self.batch.occurrences.len();
        if self.under_way.occurrence_bytes() > MOST_BYTES + MOST_BYTES / 3 {
            self.batch.drop_occurrences();
        } else {
            self.batch.thin();
        }
        self.dropped += (before - self.batch.occurrences.len()) as u64;
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
                Err(TrySendError::Disconnected(_)) => {} // it panicked, and the output is closed
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

    /// There is room for what an interval has to say. Else it had better go on: its sums would be missing for ever.
    pub fn takes_reports(&self) -> bool {
        !self.under_way.is_full_of_reports() && self.waiting.len() < WAITING_MOST / 2
    }

    /// What is on its way to the output.
    pub fn waiting_bytes(&self) -> u64 {
        (self.under_way.occurrence_bytes() + self.under_way.report_bytes()) as u64
    }

    /// A line for people on stderr.
    pub fn note(&mut self, text: impl Into<String>) {
        if self.under_way.is_full_of_notes() {
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

    /// Sends the last messages and waits for the thread, with patience. `told` says how often the run was told to end.
    pub(crate) fn finish(mut self, last: Vec<Message>, mut told: impl FnMut() -> usize) -> Option<Closed> {
        const STEP: Duration = Duration::from_millis(20);
        self.step.set_last_report();
        let mut patience = Patience::with(self.tid);
        let (waits, under_way, step) = (self.waits.clone(), self.under_way.clone(), self.step.clone());
        let mut lasts = || patience.lasts(told(), &waits, &under_way, &step);
        let batch = std::mem::take(&mut self.batch);
        for message in std::iter::once(Message::Batch(batch)).chain(last) {
            self.wait(message);
        }
        'messages: for message in std::mem::take(&mut self.waiting) {
            let mut message = Some(message);
            while let (Some(sender), Some(next)) = (&self.sender, message.take()) {
                match sender.send_timeout(next, STEP) {
                    Ok(()) => {}
                    Err(SendTimeoutError::Timeout(back)) if lasts() => message = Some(back),
                    Err(SendTimeoutError::Timeout(_)) => return Some(self.given_up()),
                    Err(SendTimeoutError::Disconnected(_)) => break 'messages,
                }
            }
        }
        self.sender = None; // the thread ends when it has written all
        while !self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            if !lasts() {
                return Some(self.given_up());
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Some(Closed::Failed(io::Error::other("the output thread panicked"))),
            _ => self.ending.take(),
        }
    }

    fn given_up(&self) -> Closed {
        let at = self.step.describe().map(|at| escape(at.as_bytes()));
        Closed::GivenUp(at.or_else(|| self.waits.since().is_none().then(|| "has not come to its end".to_owned())))
    }
}
