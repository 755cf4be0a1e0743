//! `list`: the tracepoints of this kernel.

use std::io::Write;

use anyhow::{Result, bail};

use crate::output::sink::Sink;
use crate::profiler::TracefsFinder;

/// List the tracepoints of this kernel
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf-prof list                 every event
  perf-prof list 'sched:*wake*'  those that match a pattern
  perf-prof list signal          those whose name contains a word")]
pub struct ListArgs {
    /// A pattern over system:name, or a part of it
    pattern: Option<String>,
}

impl ListArgs {
    /// Prints the names. Returns the exit code.
    ///
    /// # Errors
    /// tracefs cannot be read; nothing matches.
    pub fn run(&self) -> Result<u8> {
        let tracefs = TracefsFinder::default();
        let tracefs = tracefs.get()?;
        let pattern = self.pattern.as_deref().unwrap_or("*:*");
        let names =
            if pattern.contains(['*', '?', '[']) { tracefs.matching(pattern)? } else { tracefs.search(pattern)? };
        if names.is_empty() {
            bail!("no event matches {pattern:?}");
        }
        let mut sink = Sink::stdout()?;
        for name in names {
            writeln!(sink.buffer, "{name}")?;
        }
        match sink.flush() {
            Err(err) if err.kind() != std::io::ErrorKind::BrokenPipe => Err(err.into()),
            _ => Ok(0),
        }
    }
}
