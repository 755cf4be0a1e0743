//! Where lines go: to the sink, or to the screen in place of it, and to stderr.

use std::io;

use crate::escape::escape;
use crate::output::screen::{Screen, ScreenPort};
use crate::output::settings::ViewSettings;
use crate::output::sink::Sink;
use crate::output::wall::WallClock;

pub struct Outlet {
    pub sink: Sink,
    /// The time of day of each line.
    pub wall: WallClock,
    /// Shows results in place of `sink`.
    pub screen: Option<Screen>,
    /// Nothing more is written to stderr either.
    is_quiet: bool,
}

impl Outlet {
    /// With a `port`, the screen is turned on, which shows what is written into `sink`.
    pub fn new(mut sink: Sink, port: Option<ScreenPort>, views: &[ViewSettings]) -> Outlet {
        let screen = port.map(|port| {
            sink.divert();
            Screen::new(port, views.iter().map(|view| view.name.clone()).collect())
        });
        Outlet { sink, wall: WallClock::now(), screen, is_quiet: false }
    }

    /// Writes no more results. Flame graphs and heat maps are still drawn, and notes are written to stderr unless the run ends with an error.
    pub fn end_results(&mut self, is_normal: bool) {
        self.sink.end();
        self.screen = None;
        self.is_quiet |= !is_normal;
    }

    /// Writes a line to stderr, after the lines printed before it.
    pub fn tell(&mut self, text: &str) -> io::Result<()> {
        self.sink.flush()?;
        if self.is_quiet {
            return Ok(());
        }
        let lines: Vec<String> = text.lines().map(|line| escape(line.as_bytes())).collect();
        if self.screen.as_mut().is_some_and(|screen| !screen.note(&lines)) {
            return Ok(());
        }
        self.sink.note(&lines.join("\n"));
        Ok(())
    }

    /// Shows the lines so far on the screen.
    ///
    /// # Errors
    /// The terminal has hung up.
    pub fn feed_screen(&mut self) -> io::Result<()> {
        let Some(screen) = &self.screen else { return Ok(()) };
        let lines = self.sink.take_diverted();
        if !lines.is_empty() {
            screen.lines(&lines);
        }
        screen.check()
    }
}
