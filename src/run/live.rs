//! Whether a run has a screen.

use std::io::{IsTerminal, stderr, stdin, stdout};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::output::Output;
use crate::output::screen::{self, ScreenHandle, ScreenPort};
use crate::run::options::{LiveWish, Options};
use crate::sys::terminal::is_in_foreground;

/// Facts that decide on the screen, besides the user's options.
#[derive(Clone, Copy, Debug)]
struct LiveFacts {
    /// Why there can be no screen here.
    obstacle: Option<&'static str>,
    /// Each interval has tables, which go to the terminal.
    has_tables: bool,
    /// A command needs the terminal for itself.
    runs_command: bool,
}

fn is_wanted(wish: LiveWish, facts: LiveFacts) -> Result<bool> {
    let LiveFacts { obstacle, has_tables, runs_command } = facts;
    match (wish, obstacle) {
        (LiveWish::Never, _) => Ok(false),
        (LiveWish::Always, Some(obstacle)) => bail!("--live: {obstacle}"),
        (LiveWish::Always, None) => Ok(true),
        (LiveWish::Fitting, obstacle) => Ok(obstacle.is_none() && has_tables && !runs_command),
    }
}

/// Prepares the screen of a run, if it gets one.
///
/// # Errors
/// `--live` was given, but there can be no screen.
pub fn open(options: &Options) -> Result<Option<(ScreenHandle, ScreenPort)>> {
    let goes_to_stdout = options.output.is_none() && !options.json && !options.dry_run && !options.draws_to_stdout();
    let facts = LiveFacts {
        obstacle: if options.paced { Some("this profiler must go on while the terminal does not") } else { obstacle() },
        has_tables: options.interval.is_some() && goes_to_stdout && options.views.iter().any(|view| view.reports),
        runs_command: !options.workload.is_empty(),
    };
    if !is_wanted(options.live, facts)? {
        return Ok(None);
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    screen::open(colours, !stderr().is_terminal()).map(Some)
}

/// The signals that concern a screen.
pub fn signals(output: &Output) -> impl Iterator<Item = Signal> + use<> {
    let list: &[Signal] =
        if output.screen.is_some() { &[Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGWINCH] } else { &[] };
    list.iter().copied()
}

/// Handles one of these signals: Ctrl-Z restores the terminal and stops the process.
pub fn obey(signal: Signal, output: &Output) {
    let Some(screen) = &output.screen else { return };
    match signal {
        Signal::SIGTSTP => screen.stop(),
        Signal::SIGCONT => screen.continued(),
        _ => screen.look(),
    }
}

fn obstacle() -> Option<&'static str> {
    let term = std::env::var_os("TERM").unwrap_or_default();
    if !stdout().is_terminal() {
        Some("stdout is no terminal")
    } else if !stdin().is_terminal() {
        Some("stdin is no terminal, so there are no keys")
    } else if term.is_empty() || term == "dumb" {
        Some("the terminal can only print lines, says TERM")
    } else if !is_in_foreground(stdin()) {
        Some("it runs in the background of its terminal")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_where_it_is_of_use() {
        let fitting = LiveFacts { obstacle: None, has_tables: true, runs_command: false };
        let dumb = LiveFacts { obstacle: Some("no terminal"), ..fitting };
        let command = LiveFacts { runs_command: true, ..fitting };
        let once = LiveFacts { has_tables: false, ..fitting };
        let cases = [
            (LiveWish::Fitting, fitting, Some(true)),
            (LiveWish::Fitting, dumb, Some(false)),
            (LiveWish::Fitting, command, Some(false)),
            (LiveWish::Fitting, once, Some(false)),
            (LiveWish::Always, fitting, Some(true)),
            (LiveWish::Always, command, Some(true)),
            (LiveWish::Always, dumb, None),
            (LiveWish::Never, fitting, Some(false)),
            (LiveWish::Never, dumb, Some(false)),
        ];
        for (wish, facts, want) in cases {
            assert_eq!(is_wanted(wish, facts).ok(), want, "{wish:?} {facts:?}");
        }
        let told = is_wanted(LiveWish::Always, dumb).unwrap_err().to_string();
        assert_eq!(told, "--live: no terminal");
    }
}
