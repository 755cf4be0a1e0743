//! The screen thread: reads keys, and draws the board. It is separate from the output thread, which may be busy with
//! names of a large file, or blocked in a write.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::{Context, Result};
use crossbeam_channel::bounded;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui_core::layout::Size;
use ratatui_core::terminal::Terminal;

use crate::output::screen::backend::SequenceBackend;
use crate::output::screen::board::ScreenBoard;
use crate::output::screen::draw::draw;
use crate::output::screen::keyboard::Keyboard;
use crate::output::screen::keys::Key;
use crate::output::screen::model::KeyEffect;
use crate::output::screen::terminal::ScreenTerminal;
use crate::sys;
use crate::sys::poll::block_signals;

/// Least time between two frames.
const FRAME_NS: u64 = 50_000_000;
/// Frames take at most 1/SPARE of a CPU: for each frame a filter goes through all rows of a table.
const SPARE: u64 = 5;
/// How often the thread checks whether perf-prof is back in the foreground.
const AGAIN_NS: u64 = 500_000_000;

#[derive(Debug)]
struct ScreenThread {
    board: Arc<ScreenBoard>,
    shared: Arc<ScreenTerminal>,
    terminal: Terminal<SequenceBackend>,
    keyboard: Keyboard,
    colours: bool,
    drawn_ns: u64,
    /// The least time until the next frame.
    frame_ns: u64,
}

/// Starts the thread. Returns its tid. Nothing is drawn before the board is started.
///
/// # Errors
/// The thread cannot be started.
pub fn start(board: Arc<ScreenBoard>, shared: Arc<ScreenTerminal>, colours: bool) -> Result<i32> {
    let (tell_tid, tid) = bounded::<i32>(1);
    let (columns, lines) = shared.size();
    let terminal = Terminal::new(SequenceBackend::new(Size::new(columns, lines))).context("cannot draw")?;
    let mut thread = ScreenThread {
        board,
        shared,
        terminal,
        keyboard: Keyboard::default(),
        colours,
        drawn_ns: 0,
        frame_ns: FRAME_NS,
    };
    let work = move || {
        block_signals(); // the reading thread handles them
        let _ = tell_tid.send(nix::unistd::gettid().as_raw());
        let board = thread.board.clone();
        // A panic must restore the terminal, or no further results would be visible.
        let ended = catch_unwind(AssertUnwindSafe(|| thread.run()));
        board.content().failure = ended.unwrap_or_else(|_| Err(io::Error::other("the screen panicked"))).err();
    };
    std::thread::Builder::new().name("screen".into()).spawn(work).context("cannot start the thread of the screen")?;
    tid.recv().context("the thread of the screen ended at once")
}

impl ScreenThread {
    /// # Errors
    /// The terminal has hung up.
    fn run(&mut self) -> io::Result<()> {
        while !self.board.is_over() {
            let has_keys = self.wait()?;
            let keys = if has_keys { self.keyboard.read(&self.shared) } else { Vec::new() };
            for key in keys.into_iter().chain(self.keyboard.take_torn()) {
                self.obey(key)?;
            }
            if self.due_ns() <= sys::monotonic_ns() {
                self.draw()?;
            }
        }
        Ok(())
    }

    /// Waits until there is something to do. True: keys can be read.
    fn wait(&self) -> io::Result<bool> {
        let now_ns = sys::monotonic_ns();
        // While the screen is off, another process reads the keys.
        let takes_keys = self.shared.is_on() && self.keyboard.is_open(now_ns);
        let due_ns = self.due_ns().min(self.keyboard.due_ns(now_ns));
        let timeout = match due_ns.saturating_sub(now_ns).div_ceil(1_000_000) {
            _ if due_ns == u64::MAX => PollTimeout::NONE,
            millis => PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX)),
        };
        let mut fds = [
            PollFd::new(self.board.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.keys().as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds[..if takes_keys { 2 } else { 1 }], timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(err) => return Err(err.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        if is_ready(&fds[0]) {
            self.board.clear_waker();
        }
        Ok(takes_keys && is_ready(&fds[1]) && self.shared.is_on())
    }

    fn obey(&mut self, key: Key) -> io::Result<()> {
        match self.board.change(|content| content.model.press(key)) {
            KeyEffect::Nothing => {}
            KeyEffect::Redraw => self.terminal.clear()?,
            KeyEffect::Quit => kill(Pid::this(), Signal::SIGINT)?, // as Ctrl-C does
        }
        Ok(())
    }

    /// When the next frame is due, CLOCK_MONOTONIC in ns.
    fn due_ns(&self) -> u64 {
        let content = self.board.content();
        match (self.shared.is_on(), self.board.is_changed()) {
            _ if !content.is_started || self.shared.is_over() => u64::MAX,
            (false, _) => self.drawn_ns + AGAIN_NS,
            (true, true) => self.drawn_ns + self.frame_ns,
            (true, false) => content.slow_ns().max(self.drawn_ns + self.frame_ns),
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        self.drawn_ns = sys::monotonic_ns();
        if self.shared.enter()? {
            self.terminal.clear()?;
        } else if !self.shared.is_on() {
            return Ok(());
        }
        let cpu_ns = sys::thread_cpu_ns();
        let (columns, lines) = self.shared.size();
        self.terminal.backend_mut().size = Size::new(columns, lines);
        self.board.take_changes();
        let mut content = self.board.content();
        content.show_slow();
        let (model, colours) = (&content.model, self.colours);
        self.terminal.draw(|frame| draw(model, colours, frame.buffer_mut()))?;
        drop(content);
        self.frame_ns = sys::thread_cpu_ns().saturating_sub(cpu_ns).saturating_mul(SPARE).max(FRAME_NS);
        let frame = std::mem::take(&mut self.terminal.backend_mut().out);
        self.shared.write(frame.as_bytes())
    }
}
