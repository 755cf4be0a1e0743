//! `list`: the tracepoints of this kernel, and what they record.

use std::io::Write;

use anyhow::{Result, bail};

use crate::cli::usage;
use crate::escape::escape;
use crate::glob::is_glob;
use crate::json::Object;
use crate::output::json;
use crate::output::sink::Sink;
use crate::output::wall::WallClock;
use crate::profiler::TracefsFinder;
use crate::sys;
use crate::tep::filter::Comparison;
use crate::tep::format::Format;
use crate::tep::tracefs::{Tracefs, check_pattern};

/// List the tracepoints of this kernel
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf-prof list                        every event
  perf-prof list 'sched:*wake*'         those that match a pattern
  perf-prof list signal                 those whose name contains a word
  perf-prof list sched:                 those of a system
  perf-prof list -v sched:sched_switch  its fields, and how to filter on them
  perf-prof list -v sched_switch kfree  those of several")]
pub struct ListArgs {
    /// Patterns over system:name, or parts of it
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The fields of each event, and how to filter on them
    #[arg(short = 'v', long)]
    verbose: bool,
    /// One JSON object per event
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    /// Prints the events. Returns the exit code.
    ///
    /// # Errors
    /// A pattern is no glob or matches nothing; tracefs cannot be read.
    pub fn run(&self) -> Result<u8> {
        let everything = ["*:*".to_owned()];
        let patterns = if self.patterns.is_empty() { &everything[..] } else { &self.patterns };
        for pattern in patterns.iter().filter(|pattern| is_glob(pattern)) {
            check_pattern(pattern).map_err(usage)?;
        }
        let tracefs = TracefsFinder::default();
        let tracefs = tracefs.get()?;
        let mut names = Vec::new();
        for pattern in patterns {
            let matching = if is_glob(pattern) { tracefs.matching(pattern)? } else { tracefs.search(pattern)? };
            if matching.is_empty() {
                bail!("no event matches {pattern:?}{}", tracefs.alternatives(pattern));
            }
            names.extend(matching);
        }
        names.sort_unstable();
        names.dedup();
        let mut sink = Sink::stdout()?;
        match self.print(tracefs, &names, &mut sink) {
            Ok(()) => sink.finish(),
            Err(err) if err.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
            Err(err) => Err(anyhow::Error::new(err).context("cannot write to stdout")),
        }
    }

    fn print(&self, tracefs: &Tracefs, names: &[String], sink: &mut Sink) -> std::io::Result<()> {
        let mut wall = WallClock::now();
        for name in names {
            // An event may have been removed meanwhile; then only its name is printed.
            let format = match name.split_once(':').filter(|_| self.verbose) {
                Some((system, event)) => tracefs.format(system, event).ok(),
                None => None,
            };
            let out = &mut sink.buffer;
            if self.json {
                let mut object = json::head(out, "row", "list", sys::monotonic_ns(), &mut wall);
                object.text("event", name);
                if let Some(format) = &format {
                    fields_as_json(format, object.key("fields"));
                }
                object.end();
                out.push(b'\n');
            } else {
                writeln!(out, "{name}")?;
                if let Some(format) = &format {
                    fields_as_text(format, out)?;
                }
            }
            sink.flush_large()?;
        }
        Ok(())
    }
}

/// `  prev_pid  pid_t  4  == != < <= > >= &`, aligned; nothing is cut.
fn fields_as_text(format: &Format, out: &mut Vec<u8>) -> std::io::Result<()> {
    let cell = |text: &str| escape(text.as_bytes());
    let rows: Vec<_> = format
        .user_fields()
        .map(|field| (cell(&field.name), cell(&field.declared), field.size, Comparison::of(field).operators()))
        .collect();
    // One long type must not push the other columns off the screen.
    const LIMIT: usize = 28;
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.filter(|&len| len <= LIMIT).max().unwrap_or(0);
    let names = width(&mut rows.iter().map(|row| row.0.chars().count()));
    let types = width(&mut rows.iter().map(|row| row.1.chars().count()));
    for (name, ty, size, operators) in rows {
        let line = format!("  {name:<names$}  {ty:<types$}  {size:>4}  {operators}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn fields_as_json(format: &Format, out: &mut Vec<u8>) {
    out.push(b'[');
    for (at, field) in format.user_fields().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        let mut object = Object::new(out);
        object.text("name", &escape(field.name.as_bytes()));
        object.text("type", &escape(field.declared.as_bytes()));
        object.unsigned("size", field.size as u64);
        object.text("filter", Comparison::of(field).word());
        object.end();
    }
    out.push(b']');
}
