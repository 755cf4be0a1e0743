//! The screen: the tables of a run in place on a terminal, the newest interval or one of the past, with its occurrences in a
//! pane below.
//!
//! It belongs to the output thread, which hands it tables and lines instead of writing them, and draws when something has
//! changed, a few times a second at most. Keys come from a thread of their own. The reading thread has a
//! [`ScreenHandle`] to restore the terminal.

mod backend;
mod draw;
mod fit;
mod keyboard;
mod keys;
mod model;
mod pane;
pub(super) mod tables;
mod terminal;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::Result;
use crossbeam_channel::{Receiver, Sender, bounded, never};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui_core::layout::Size;
use ratatui_core::terminal::Terminal;

use crate::output::screen::backend::SequenceBackend;
use crate::output::screen::draw::draw;
use crate::output::screen::keys::Key;
use crate::output::screen::model::{KeyEffect, PageKey, ScreenModel, ScreenTable, ScreenTrust};
use crate::output::screen::terminal::ScreenTerminal;
use crate::output::{IntervalEnd, sink::SinkProgress};
use crate::sys;
use crate::sys::poll::Waker;

/// Least time between two frames.
const FRAME_NS: u64 = 50_000_000;
/// Frames take at most 1/SPARE of a CPU: a filter goes through all rows of a table for each.
const SPARE: u64 = 5;
/// Time for the names of a table after which it is shown without them.
const SLOW_NS: u64 = 200_000_000;
/// How often it looks whether the terminal has become ours, while it is not.
const AGAIN_NS: u64 = 500_000_000;
/// Keys that wait.
const MOST_EVENTS: usize = 256;
/// Lines for people that are kept for the end.
const MOST_KEPT: usize = 200;

/// What the screen is told by other threads.
#[derive(Clone, Copy, Debug)]
pub enum ScreenEvent {
    Key(Key),
    /// The terminal may have another size, or have become ours again.
    Look,
}

/// The reading thread's side of the screen. The terminal is restored when it is dropped.
#[derive(Debug)]
pub struct ScreenHandle {
    terminal: Arc<ScreenTerminal>,
    events: Sender<ScreenEvent>,
    stop: Arc<Waker>,
    /// Of the thread that reads keys.
    pub tid: i32,
}

/// What the output thread makes its screen of.
#[derive(Debug)]
pub struct ScreenPort {
    terminal: Arc<ScreenTerminal>,
    events: Receiver<ScreenEvent>,
    colours: bool,
    /// Lines for people go elsewhere, too.
    has_other_stderr: bool,
}

/// Prepares a screen on the terminal of stdin and stdout. Nothing is written yet.
///
/// # Errors
/// There is no terminal.
pub fn open(colours: bool, has_other_stderr: bool) -> Result<(ScreenHandle, ScreenPort)> {
    let terminal = ScreenTerminal::open()?;
    let (sender, events) = bounded(MOST_EVENTS);
    let stop = Arc::new(Waker::new()?);
    let tid = keyboard::start(terminal.clone(), sender.clone(), stop.clone())?;
    let handle = ScreenHandle { terminal: terminal.clone(), events: sender, stop, tid };
    Ok((handle, ScreenPort { terminal, events, colours, has_other_stderr }))
}

impl ScreenHandle {
    /// The terminal has another size, or the process went on after it was stopped.
    pub fn look(&self) {
        let _ = self.events.try_send(ScreenEvent::Look); // full: it is about to draw anyway
    }

    /// The process was continued: what is on the terminal is not ours any more.
    pub fn continued(&self) {
        self.terminal.forget();
        self.look();
    }

    /// Stops the process, with the terminal as it was before, until it is continued.
    pub fn stop(&self) {
        self.terminal.leave();
        sys::terminal::stop_self();
        self.continued();
    }

    /// What is written to stderr goes to the screen.
    pub fn has_stderr(&self) -> bool {
        self.terminal.is_on() && io::stderr().is_terminal()
    }

    /// Restores the terminal for good.
    pub fn end(&self) {
        self.terminal.end();
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.stop.wake();
        self.end();
    }
}

/// The output thread's side.
pub struct Screen {
    model: ScreenModel,
    shared: Arc<ScreenTerminal>,
    events: Receiver<ScreenEvent>,
    terminal: Terminal<SequenceBackend>,
    waits: SinkProgress,
    colours: bool,
    has_other_stderr: bool,
    /// A table whose names are being looked up, and since when.
    unnamed: Option<(PageKey, ScreenTable, u64)>,
    is_changed: bool,
    drawn_ns: u64,
    /// Time to pass until the next frame.
    frame_ns: u64,
    started_ns: u64,
    /// Lines for people, to be printed at the end.
    kept: Vec<String>,
    kept_more: usize,
}

impl Screen {
    /// Turns the screen on. `views`: their names. None: the terminal has gone.
    pub fn new(port: ScreenPort, views: Vec<String>, waits: SinkProgress) -> Option<Screen> {
        let (columns, lines) = port.terminal.size();
        let terminal = Terminal::new(SequenceBackend::new(Size::new(columns, lines))).ok()?;
        let mut screen = Screen {
            model: ScreenModel::new(views),
            shared: port.terminal,
            events: port.events,
            terminal,
            waits,
            colours: port.colours,
            has_other_stderr: port.has_other_stderr,
            unnamed: None,
            is_changed: true,
            drawn_ns: 0,
            frame_ns: FRAME_NS,
            started_ns: sys::monotonic_ns(),
            kept: Vec::new(),
            kept_more: 0,
        };
        screen.draw().ok()?;
        Some(screen)
    }

    pub fn events(&self) -> &Receiver<ScreenEvent> {
        &self.events
    }

    /// Obeys an event. `None`: there are no more.
    pub fn obey(&mut self, event: Option<ScreenEvent>) -> io::Result<()> {
        match event {
            None => self.events = never(),
            Some(ScreenEvent::Look) => self.is_changed = true,
            Some(ScreenEvent::Key(key)) => {
                self.is_changed = true;
                match self.model.press(key) {
                    KeyEffect::Nothing => {}
                    KeyEffect::Redraw => self.terminal.clear()?,
                    // As Ctrl-C.
                    KeyEffect::Quit => drop(kill(Pid::this(), Signal::SIGINT)),
                }
            }
        }
        Ok(())
    }

    /// Obeys what has come, and draws if it is time to.
    ///
    /// # Errors
    /// The terminal has hung up.
    pub fn follow(&mut self) -> io::Result<()> {
        // No more than there is room for: keys that come without end must not keep the thread from results.
        for _ in 0..MOST_EVENTS {
            let Ok(event) = self.events.try_recv() else { break };
            self.obey(Some(event))?;
        }
        if self.due_ns() <= sys::monotonic_ns() { self.draw() } else { Ok(()) }
    }

    /// When it is to be drawn, CLOCK_MONOTONIC in ns.
    pub fn due_ns(&self) -> u64 {
        match (self.shared.is_on(), self.is_changed) {
            (false, _) => self.drawn_ns + AGAIN_NS,
            (true, true) => self.drawn_ns + self.frame_ns,
            (true, false) => u64::MAX,
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        self.drawn_ns = sys::monotonic_ns();
        let waits = self.waits.clone();
        if waits.during(|| self.shared.enter())? {
            self.terminal.clear()?;
        } else if !self.shared.is_on() {
            return Ok(());
        }
        let cpu_ns = sys::thread_cpu_ns();
        let (columns, lines) = self.shared.size();
        self.terminal.backend_mut().size = Size::new(columns, lines);
        let (model, colours) = (&self.model, self.colours);
        self.terminal.draw(|frame| draw(model, colours, frame.buffer_mut()))?;
        self.is_changed = false;
        self.frame_ns = sys::thread_cpu_ns().saturating_sub(cpu_ns).saturating_mul(SPARE).max(FRAME_NS);
        let frame = std::mem::take(&mut self.terminal.backend_mut().out);
        waits.during(|| self.shared.write(frame.as_bytes()))
    }

    /// Shows a table, or one that is shown already with more names.
    pub(super) fn table(&mut self, key: PageKey, table: ScreenTable) -> io::Result<()> {
        self.unnamed = None;
        self.model.add(key, table);
        self.is_changed = true;
        self.follow()
    }

    /// Shows a table before its names are looked up, if its page shows nothing yet. Else it is kept for
    /// [`Screen::show_if_slow`], since what is there says more.
    pub(super) fn preview(&mut self, key: PageKey, table: ScreenTable) -> io::Result<()> {
        if self.model.pages.iter().any(|page| page.key == key) {
            self.unnamed = Some((key, table, sys::monotonic_ns()));
            return Ok(());
        }
        self.table(key, table)
    }

    /// Shows the table without names, if their lookup takes long.
    pub fn show_if_slow(&mut self) {
        let is_slow = |since_ns: u64| sys::monotonic_ns().saturating_sub(since_ns) >= SLOW_NS;
        if let Some((key, table, _)) = self.unnamed.take_if(|(.., since_ns)| is_slow(*since_ns)) {
            let _ = self.table(key, table); // that the terminal has hung up is found again
        }
    }

    /// The number of the interval that a view is reporting.
    pub(super) fn interval_of(&self, view: usize) -> u64 {
        self.model.trust.get(view).map_or(1, |trust| trust.intervals + 1)
    }

    /// Adds occurrences, lines of text.
    pub fn lines(&mut self, text: &[u8]) {
        self.model.add_lines(text);
        self.is_changed = true;
    }

    pub fn interval(&mut self, end: &IntervalEnd) {
        let IntervalEnd { samples, lost, discarded, coverage, verdict, .. } = *end;
        self.model.set_trust(end.view, ScreenTrust { samples, lost, discarded, coverage, verdict });
        let (cpu_ns, _) = sys::self_usage();
        let passed_ns = sys::monotonic_ns().saturating_sub(self.started_ns).max(1);
        let hundredths = u128::from(cpu_ns) * 10_000 / u128::from(passed_ns);
        self.model.own_cpu = u32::try_from(hundredths).ok();
        self.is_changed = true;
    }

    /// Shows lines for people. True when they are to be written to stderr, too.
    pub fn note(&mut self, lines: &[String]) -> bool {
        self.is_changed = true;
        for line in lines {
            self.model.note(line.clone());
            if self.has_other_stderr {
            } else if self.kept.len() < MOST_KEPT {
                self.kept.push(line.clone());
            } else {
                self.kept_more += 1;
            }
        }
        self.has_other_stderr
    }

    /// Restores the terminal. Returns the lines that were for stderr.
    pub fn end(mut self) -> Vec<String> {
        self.shared.end();
        if self.kept_more > 0 {
            self.kept.push(format!("and {} more lines", self.kept_more));
        }
        std::mem::take(&mut self.kept)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.shared.end();
    }
}
