//! Results as text or JSON, on a thread of their own: a slow terminal or a closed pipe must not stop the reading
//! thread.
//!
//! The reading thread hands over `Message`s through a bounded channel and never waits for it before the end of the run:
//! if the channel is full, occurrences are dropped and counted, and an interval is prolonged. The output thread
//! (`thread`) looks up the names of addresses when they are first printed.
//!
//! `writer` lays out each message, as `text`, as `json`, or for the `screen`; `table` lays out the rows for each of
//! these. `stack_weights` adds up stacks for lists and flame graphs, `drawing` writes the files of flame graphs and
//! heat maps, and `metrics` keeps the sums that are scraped.

pub mod drawing;
pub mod event_text;
pub mod forecast;
pub mod json;
mod messages;
pub mod metrics;
pub mod screen;
pub mod settings;
pub mod sink;
mod stack_weights;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod thread;
pub mod wall;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};

use crate::escape::escape;
pub(crate) use crate::output::messages::Message;
pub use crate::output::messages::{
    HeaviestEvent, IntervalEnd, OwnWeight, RecordingCost, RunEnd, StackReport, UnwindingSums, ViewEnd,
};
use crate::output::screen::ScreenHandle;
use crate::output::settings::OutputSettings;
use crate::output::sink::{Sink, SinkProgress, print_to_stderr_at_once};
use crate::output::thread::in_flight::{FEW_NEWS_BYTES, InFlight, MAX_BYTES, MAX_NEWS_BYTES};
use crate::output::thread::patience::Patience;
use crate::output::thread::{CloseSignal, write_all};
use crate::output::writer::Writer;
use crate::report::{Batch, LateText};
use crate::stats::weights::Weighted;
use crate::symbol::{CurrentStep, StackId, SymbolUpdate};
use crate::sys;
use crate::sys::poll::{Waker, block_signals};
use crate::unwind::SpaceCode;

/// Why the output ended.
#[derive(Debug)]
pub enum OutputClosed {
    /// The reader closed the pipe: a normal end.
    Pipe,
    Drawing(io::Error),
    Failed(io::Error),
    /// The run stopped waiting before everything was written. Holds what the output thread was doing; None if it was
    /// waiting for its reader.
    GivenUp(Option<String>),
}

/// The reading thread's end of the channel.
#[derive(Debug)]
pub struct Output {
    tid: i32,
    sender: Option<Sender<Message>>,
    used: Receiver<Batch>,
    /// Code of address spaces that the output thread has read in order to unwind stacks.
    published: Receiver<(u32, Arc<SpaceCode>)>,
    thread: Option<JoinHandle<()>>,
    close_signal: Arc<CloseSignal>,
    pub batch: Batch,
    /// Messages in order that are not in the queue yet.
    waiting: VecDeque<Message>,
    in_flight: Arc<InFlight>,
    waits: SinkProgress,
    step: CurrentStep,
    /// Restores the terminal when the run ends, even by a panic.
    pub screen: Option<ScreenHandle>,
    standstill: Standstill,
    /// When the batch began to wait for further occurrences, CLOCK_MONOTONIC in ns.
    held_since_ns: Option<u64>,
    /// Present while symbol updates are left out.
    gap: Option<NewsGap>,
    shown: bool,
    dropped: u64,
    dropped_stacks: u64,
}

/// Detects that the output thread takes no message although messages wait.
#[derive(Debug, Default)]
struct Standstill {
    taken: u64,
    since_ns: Option<u64>,
    reader_told: bool,
    step_told: bool,
}

/// Symbol updates (news) that were left out for lack of room. After the first one, all later ones are left out, too:
/// with half of the mappings, addresses would get wrong names.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewsGap {
    /// The first stack that was left out. All stacks with later ids were left out, too.
    pub first: Option<StackId>,
}

/// Sends the settings that the output thread waits for. When it is dropped unsent, the thread ends.
#[derive(Debug)]
pub struct SettingsSender(Sender<OutputSettings>);

impl SettingsSender {
    pub fn send(self, settings: OutputSettings) {
        let _ = self.0.send(settings);
    }
}

/// Capacity of the queue, in messages.
const QUEUE: usize = 512;
/// Size in bytes at which a batch is handed over before the end of a round.
const BATCH_BYTES: usize = 64 * 1024;
/// Limit of the empty batches kept for reuse: as many as a round usually hands over at once. A new batch would have to
/// grow first.
const USED: usize = (8 << 20) / BATCH_BYTES;
/// Limit of the published address spaces that the reading thread has not taken yet. One that finds no room is published
/// when it is needed again.
const PUBLISHED: usize = 64;
/// How long new stacks that nothing refers to stay with the reading thread.
const HELD_NS: u64 = 1_000_000_000;
/// Size in bytes to which a batch may grow while the output is blocked. Beyond it, occurrences are dropped.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Limit of the messages that wait outside of the queue while the output is blocked.
const MAX_WAITING: usize = 4096;
/// If the output thread takes no message for this long, a line on stderr says so.
const STANDSTILL_NS: u64 = 2_000_000_000;

impl Output {
    /// Starts the output thread, which then waits for its settings. It must start before the events are opened, since
    /// their filters may contain its tid. `waker` wakes the reading thread when the output is closed.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(sink: Sink, waker: Arc<Waker>) -> Result<(Output, SettingsSender)> {
        let (settle, settings) = bounded::<OutputSettings>(1);
        let (tell_tid, tid) = bounded::<i32>(1);
        let (sender, receiver) = bounded::<Message>(QUEUE);
        let (give_back, used) = bounded::<Batch>(USED);
        let (publish, published) = bounded(PUBLISHED);
        let close_signal = Arc::new(CloseSignal::new(waker));
        let in_flight = Arc::new(InFlight::default());
        let (waits, step) = (sink.waits(), CurrentStep::default());
        let (taken, ended, at) = (in_flight.clone(), close_signal.clone(), step.clone());
        let work = move || {
            let _end = ended.clone().close_on_drop();
            block_signals(); // the reading thread handles them
            let _ = tell_tid.send(sys::thread_id());
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
            close_signal,
            batch: Batch::default(),
            waiting: VecDeque::new(),
            in_flight,
            waits,
            step,
            screen: None,
            standstill: Standstill::default(),
            held_since_ns: None,
            gap: None,
            shown: false,
            dropped: 0,
            dropped_stacks: 0,
        };
        Ok((output, SettingsSender(settle)))
    }

    /// The code of address spaces in which the output thread unwinds stacks, each with the number of its address space.
    pub fn published(&self) -> &Receiver<(u32, Arc<SpaceCode>)> {
        &self.published
    }

    /// The tid of the output thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// True when the run may end: everything is written, or the reader has closed the output.
    pub fn is_closed(&self) -> bool {
        self.close_signal.is_closed()
    }

    /// True when at least one occurrence was queued for printing.
    pub fn has_shown(&self) -> bool {
        self.shown
    }

    /// Occurrences, rows and notes dropped because the output could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Stacks left out because the output could not keep up.
    pub fn dropped_stacks(&self) -> u64 {
        self.dropped_stacks
    }

    /// Adds news: stacks and mappings that the output thread needs before it prints the occurrences that follow.
    pub fn tell(&mut self, news: impl Iterator<Item = SymbolUpdate>) {
        for one in news {
            let taken = self.in_flight.news_bytes() + self.batch.update_bytes();
            let has_room = taken == 0 || taken + one.bytes() <= MAX_NEWS_BYTES;
            match &one {
                // These updates define no address, so stacks from before a gap are right without them.
                SymbolUpdate::StackCounts { .. } | SymbolUpdate::Forget { .. } | SymbolUpdate::RereadMaps
                    if has_room =>
                {
                    self.batch.push_update(one);
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

    /// Ends the gap in the news, if there is one and the output thread is done with all messages. The output thread
    /// then reads the mappings of each process again.
    pub fn end_gap(&mut self) -> Option<NewsGap> {
        let gap = self.gap.take_if(|_| self.in_flight.is_done())?;
        self.batch.push_update(SymbolUpdate::RereadMaps);
        Some(gap)
    }

    /// Reports once that the output is at a standstill, and what the output thread is doing.
    pub fn report_standstill(&mut self, profiler: &str) {
        let (taken, known) = (self.in_flight.taken(), &mut self.standstill);
        if !self.in_flight.any_waits() || taken != known.taken {
            (known.taken, known.since_ns) = (taken, None);
            return;
        }
        let now = sys::monotonic_ns();
        if now.saturating_sub(*known.since_ns.get_or_insert(now)) < STANDSTILL_NS {
            return;
        }
        let line = if self.waits.is_reader_stuck() {
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
            let line = format!("{profiler}: the output has been at a standstill for 2 s: {line}");
            if let Some(screen) = self.screen.as_ref().filter(|screen| screen.has_stderr()) {
                screen.show(&line);
                self.note(line); // repeated at the end of the run
            } else {
                print_to_stderr_at_once(&line);
            }
        }
    }

    /// Counts lines that were dropped before they became a message, because the output does not keep up.
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

    /// Whether the batch is large enough to be handed over.
    #[inline]
    pub fn is_large(&self) -> bool {
        // Most samples add nothing to the batch.
        !self.batch.is_empty() && self.batch.bytes() + self.batch.update_bytes() >= BATCH_BYTES
    }

    /// Hands the batch over at the end of a round. New stacks alone wait for occurrences: nothing refers to them yet,
    /// and each hand-over wakes the output thread.
    pub fn flush_round(&mut self, now: u64) {
        if self.batch.is_empty() || !self.batch.may_wait() {
            return self.flush();
        }
        if now.saturating_sub(*self.held_since_ns.get_or_insert(now)) >= HELD_NS {
            self.flush();
        }
    }

    /// Hands the batch over, behind the messages that still wait.
    pub fn flush(&mut self) {
        self.held_since_ns = None;
        if !self.batch.is_empty() {
            // While the output is blocked, the batch grows up to a limit.
            let large = self.batch.bytes() > MAX_BATCH_BYTES || self.batch.update_bytes() > MAX_BATCH_BYTES;
            let queued = (large || self.waiting.is_empty()) && self.queue_batch();
            if self.batch.bytes() > MAX_BATCH_BYTES && !queued {
                self.thin_batch();
            }
        }
        self.pump();
    }

    /// Puts the batch behind the waiting messages, if the memory in flight has room for it.
    fn queue_batch(&mut self) -> bool {
        let bytes = self.batch.bytes();
        let in_flight = self.in_flight.occurrence_bytes();
        let too_much = in_flight > 0 && bytes > 0 && in_flight.saturating_add(bytes) > MAX_BYTES;
        if too_much || self.waiting.len() >= MAX_WAITING {
            return false;
        }
        self.shown |= !self.batch.occurrences.is_empty();
        let next = self.used.try_recv().unwrap_or_default();
        let batch = self.batch.hand_over(next);
        self.wait(Message::Batch(batch));
        true
    }

    /// Puts a message behind the waiting messages.
    fn wait(&mut self, message: Message) {
        self.in_flight.add(&message);
        self.waiting.push_back(message);
    }

    /// Makes room in the batch: rare kinds of occurrences stay, unless too many of them are in flight already.
    fn thin_batch(&mut self) {
        let before = self.batch.occurrences.len();
        if self.in_flight.occurrence_bytes() > MAX_BYTES + MAX_BYTES / 3 {
            self.batch.drop_occurrences();
        } else {
            self.batch.thin();
        }
        self.dropped += (before - self.batch.occurrences.len()) as u64;
    }

    /// Moves waiting messages into the queue until it is full.
    fn pump(&mut self) {
        let Some(sender) = &self.sender else { return };
        while let Some(message) = self.waiting.pop_front() {
            match sender.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.waiting.push_front(message);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => {} // the output thread panicked, and the output is closed
            }
        }
    }

    /// Sends a table, the end of an interval or a note. While the output is blocked, the message waits.
    pub(crate) fn send(&mut self, message: Message) {
        // Occurrences from before the message are printed before it, or not at all.
        if !self.batch.is_empty() && !self.queue_batch() {
            self.thin_batch();
            // The message may refer to news in the batch, which must arrive first.
            if !self.batch.is_empty() && self.waiting.len() < MAX_WAITING {
                let news = self.batch.hand_over(Batch::default());
                self.wait(Message::Batch(news));
            }
        }
        if self.waiting.len() < MAX_WAITING {
            self.wait(message);
        } else {
            self.dropped += message.lines();
        }
        self.pump();
    }

    /// True when there is room for the tables of an interval. Without room the interval is prolonged: dropped sums
    /// would be missing in the whole run.
    pub fn has_room_for_report(&self) -> bool {
        !self.in_flight.is_full_of_reports() && self.waiting.len() < MAX_WAITING / 2
    }

    /// Bytes of occurrences and reports in flight.
    pub fn waiting_bytes(&self) -> u64 {
        (self.in_flight.occurrence_bytes() + self.in_flight.report_bytes()) as u64
    }

    /// Sends a line for stderr.
    pub fn note(&mut self, text: impl Into<String>) {
        if self.in_flight.is_full_of_notes() {
            self.dropped += 1;
        } else {
            self.send(Message::Note(text.into()));
        }
    }

    /// Hands over everything so far. False when the output is blocked.
    pub fn flush_all(&mut self) -> bool {
        self.flush();
        self.batch.is_empty() && self.waiting.is_empty()
    }

    /// True when the output thread has taken nearly all symbol updates. Stacks in flight take memory, even if nothing
    /// refers to them any more.
    pub fn has_taken_news(&self) -> bool {
        self.in_flight.news_bytes() + self.batch.update_bytes() <= FEW_NEWS_BYTES
    }

    /// For a replay: waits until the output thread is idle, before the clock of the replay advances.
    pub fn settle(&mut self) {
        const STEP: Duration = Duration::from_micros(50);
        self.flush();
        // The output thread prints what is due before it takes the second message.
        for _ in 0..2 {
            self.send_live_pids(Vec::new());
            while !self.in_flight.is_done() && !self.is_closed() {
                self.pump();
                std::thread::park_timeout(STEP);
            }
        }
    }

    /// Sends weights of stacks, which are added to those since the start of the run.
    pub fn weights(&mut self, view: usize, rows: Vec<Weighted>) {
        self.send(Message::Weights { view, rows });
    }

    /// Sends processes whose stacks may follow.
    pub fn send_live_pids(&mut self, pids: Vec<i32>) {
        self.send(Message::LivePids(pids));
    }

    /// Sends texts to be looked up. Those that find no room stay unknown.
    pub fn look_up(&mut self, texts: Vec<Arc<LateText>>) {
        if !texts.is_empty() && !self.in_flight.is_full_of_reports() {
            self.send(Message::LookUps(texts));
        }
    }

    /// Sends the last messages and waits until the thread has written everything, or `Patience` has run out.
    /// `stop_requests` counts how often the run was told to end.
    pub(crate) fn finish(
        mut self,
        last: Vec<Message>,
        mut stop_requests: impl FnMut() -> usize,
    ) -> Option<OutputClosed> {
        const STEP: Duration = Duration::from_millis(20);
        self.step.set_last_report();
        let mut patience = Patience::with(self.tid);
        let (waits, in_flight, step) = (self.waits.clone(), self.in_flight.clone(), self.step.clone());
        let mut keeps_waiting = || patience.keeps_waiting(stop_requests(), &waits, &in_flight, &step);
        let batch = std::mem::take(&mut self.batch);
        let end_screen = self.screen.is_some().then_some(Message::EndScreen);
        for message in end_screen.into_iter().chain([Message::Batch(batch)]).chain(last) {
            self.wait(message);
        }
        'messages: for message in std::mem::take(&mut self.waiting) {
            let mut message = Some(message);
            while let (Some(sender), Some(next)) = (&self.sender, message.take()) {
                match sender.send_timeout(next, STEP) {
                    Ok(()) => {}
                    Err(SendTimeoutError::Timeout(back)) if keeps_waiting() => message = Some(back),
                    Err(SendTimeoutError::Timeout(_)) => return Some(self.given_up()),
                    Err(SendTimeoutError::Disconnected(_)) => break 'messages,
                }
            }
        }
        self.sender = None; // the thread ends when it has written everything
        while !self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            if !keeps_waiting() {
                return Some(self.given_up());
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Some(OutputClosed::Failed(io::Error::other("the output thread panicked"))),
            _ => self.close_signal.take(),
        }
    }

    fn given_up(&self) -> OutputClosed {
        self.screen.iter().for_each(ScreenHandle::end); // the output thread, which should have ended it, is stuck
        let at = self.step.describe().map(|at| escape(at.as_bytes()));
        OutputClosed::GivenUp(at.or_else(|| self.waits.since().is_none().then(|| "has not come to its end".to_owned())))
    }
}
