//! The screen: the tables of a run in place on a terminal, the newest interval or a past one, with occurrences in a
//! pane below.
//!
//! The output thread puts tables and lines on a board instead of writing them. The screen thread reads keys, and draws
//! after a change, at most 20 times a second, so keys are answered while the output thread looks up names. The reading
//! thread has a [`ScreenHandle`] to restore the terminal.

mod backend;
mod board;
mod draw;
mod fit;
mod keyboard;
mod keys;
mod model;
mod pane;
pub(super) mod tables;
mod terminal;
mod thread;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::Result;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::output::IntervalEnd;
use crate::output::screen::board::ScreenBoard;
use crate::output::screen::model::{PageKey, ScreenModel, ScreenTable, ScreenTrust};
use crate::output::screen::terminal::ScreenTerminal;
use crate::sys;

/// Limit of the lines for stderr that are kept for the end.
const MAX_KEPT: usize = 200;

/// The reading thread's side of the screen. Dropping it restores the terminal.
#[derive(Debug)]
pub struct ScreenHandle {
    terminal: Arc<ScreenTerminal>,
    board: Arc<ScreenBoard>,
    /// The tid of the screen thread.
    pub tid: i32,
}

/// The parts from which the output thread makes its [`Screen`].
#[derive(Debug)]
pub struct ScreenPort {
    /// None: a replay draws the screen.
    terminal: Option<Arc<ScreenTerminal>>,
    board: Arc<ScreenBoard>,
    /// stderr is no terminal: lines for stderr are also written there.
    has_other_stderr: bool,
}

/// Prepares a screen on the terminal of stdin and stdout. Nothing is written yet.
///
/// # Errors
/// There is no terminal.
pub fn open(colours: bool, has_other_stderr: bool) -> Result<(ScreenHandle, ScreenPort)> {
    let terminal = ScreenTerminal::open()?;
    let board = Arc::new(ScreenBoard::new()?);
    let tid = thread::start(board.clone(), terminal.clone(), colours)?;
    let handle = ScreenHandle { terminal: terminal.clone(), board: board.clone(), tid };
    Ok((handle, ScreenPort { terminal: Some(terminal), board, has_other_stderr }))
}

/// A screen without a terminal, for a replay.
#[derive(Debug)]
pub struct ScreenFrames(Arc<ScreenBoard>);

impl ScreenFrames {
    /// # Errors
    /// EMFILE: no descriptor is left.
    pub fn open() -> Result<(ScreenFrames, ScreenPort)> {
        let board = Arc::new(ScreenBoard::new()?);
        let port = ScreenPort { terminal: None, board: board.clone(), has_other_stderr: true };
        Ok((ScreenFrames(board), port))
    }

    /// The screen on a terminal of this size, as text.
    pub fn lines(&self, columns: u16, lines: u16) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
        draw::draw(&self.0.content().model, false, &mut buffer);
        text_of(&buffer)
    }
}

/// The lines of a screen, without colours and without blanks at their ends.
fn text_of(buffer: &Buffer) -> Vec<String> {
    let line = |y: u16| {
        let (mut line, mut covered) = (String::new(), 0);
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if covered == 0 {
                line.push_str(symbol);
                covered = symbol.width().max(1);
            }
            covered -= 1;
        }
        line.trim_end().to_owned()
    };
    (0..buffer.area.height).map(line).collect()
}

impl ScreenHandle {
    /// The size of the terminal has changed.
    pub fn look(&self) {
        self.board.look();
    }

    /// The process was continued after a stop: the screen must be entered and drawn again.
    pub fn continued(&self) {
        self.terminal.forget();
        self.look();
    }

    /// Restores the terminal and stops the process until it is continued.
    pub fn stop(&self) {
        self.terminal.leave();
        sys::terminal::stop_self();
        self.continued();
    }

    /// Whether lines for stderr go to the screen.
    pub fn has_stderr(&self) -> bool {
        self.terminal.is_on() && io::stderr().is_terminal()
    }

    /// Shows a line for stderr, even if the output thread is stuck.
    pub fn show(&self, line: &str) {
        self.board.change(|content| content.model.note(line.to_owned()));
    }

    /// Restores the terminal for good.
    pub fn end(&self) {
        self.terminal.end();
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.board.end();
        self.end();
    }
}

/// The output thread's side of the screen.
#[derive(Debug)]
pub struct Screen {
    board: Arc<ScreenBoard>,
    terminal: Option<Arc<ScreenTerminal>>,
    has_other_stderr: bool,
    started_ns: u64,
    /// Lines for stderr, to be printed at the end.
    kept: Vec<String>,
    kept_more: usize,
}

impl Screen {
    /// Turns the screen on. `views`: the names of the views.
    pub fn new(port: ScreenPort, views: Vec<String>) -> Screen {
        port.board.change(|content| {
            content.model = ScreenModel::new(views);
            content.is_started = true;
        });
        Screen {
            board: port.board,
            terminal: port.terminal,
            has_other_stderr: port.has_other_stderr,
            started_ns: sys::monotonic_ns(),
            kept: Vec::new(),
            kept_more: 0,
        }
    }

    /// # Errors
    /// The terminal has hung up.
    pub fn check(&self) -> io::Result<()> {
        self.board.content().failure.take().map_or(Ok(()), Err)
    }

    /// Shows a table, or replaces one that is shown with fewer names.
    pub(super) fn table(&self, key: PageKey, table: ScreenTable) {
        self.board.change(|content| content.table(key, table));
    }

    /// Shows a table before its names are looked up: at once if its page shows nothing yet, otherwise only if the
    /// lookup takes long.
    pub(super) fn preview(&self, key: PageKey, table: ScreenTable) {
        self.board.change(|content| content.preview(key, table));
    }

    /// The number of the interval that a view is reporting.
    pub(super) fn interval_of(&self, view: usize) -> u64 {
        self.board.content().model.trust.get(view).map_or(1, |trust| trust.intervals + 1)
    }

    /// Adds lines of text about occurrences.
    pub fn lines(&self, text: &[u8]) {
        self.board.change(|content| content.model.add_lines(text));
    }

    pub fn interval(&self, end: &IntervalEnd) {
        let IntervalEnd { samples, lost, discarded, coverage, verdict, .. } = *end;
        let (cpu_ns, _) = sys::self_usage();
        let passed_ns = sys::monotonic_ns().saturating_sub(self.started_ns).max(1);
        let hundredths = u128::from(cpu_ns) * 10_000 / u128::from(passed_ns);
        self.board.change(|content| {
            content.model.set_trust(end.view, ScreenTrust { samples, lost, discarded, coverage, verdict });
            content.model.own_cpu = u32::try_from(hundredths).ok();
        });
    }

    /// Shows lines for stderr. True when they must also be written to stderr.
    pub fn note(&mut self, lines: &[String]) -> bool {
        self.board.change(|content| lines.iter().for_each(|line| content.model.note(line.clone())));
        for line in lines.iter().filter(|_| !self.has_other_stderr) {
            if self.kept.len() < MAX_KEPT {
                self.kept.push(line.clone());
            } else {
                self.kept_more += 1;
            }
        }
        self.has_other_stderr
    }

    /// Restores the terminal. Returns the lines that were for stderr.
    pub fn end(mut self) -> Vec<String> {
        self.end_terminal();
        if self.kept_more > 0 {
            self.kept.push(format!("and {} more lines", self.kept_more));
        }
        std::mem::take(&mut self.kept)
    }

    fn end_terminal(&self) {
        self.terminal.iter().for_each(|terminal| terminal.end());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end_terminal();
    }
}
