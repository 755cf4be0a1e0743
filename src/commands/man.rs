//! `man`: the manual pages, made from the parser's own description of the options.

use anyhow::Result;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::cli::usage;
use crate::commands::{Cli, EXIT_CODES};
use crate::escape::escape;
use crate::output::sink::Sink;

/// Print a manual page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Read the main page:
    perf-prof man | man -l -
  Read that of a command:
    perf-prof man trace | man -l -
  Keep it where man finds it:
    perf-prof man > /usr/local/share/man/man1/perf-prof.1")]
pub struct ManArgs {
    /// The command that the page is about [default: perf-prof itself]
    command: Option<String>,
}

impl ManArgs {
    /// Prints the page. Returns the exit code.
    ///
    /// # Errors
    /// No such command; stdout does not take it.
    pub fn run(&self) -> Result<u8> {
        let mut main = Cli::command().disable_help_subcommand(true);
        main.build(); // gives each subcommand its full name
        let command = match &self.command {
            None => &main,
            Some(name) => main.find_subcommand(name).ok_or_else(|| {
                let all = main.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
                usage(format!("no command {:?}: there are {all}", escape(name.as_bytes())))
            })?,
        };
        let mut sink = Sink::stdout()?;
        page(command, &mut sink.buffer)?;
        sink.finish()
    }
}

fn page(command: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let man =
        Man::new(command.clone()).source(concat!("perf-prof ", env!("CARGO_PKG_VERSION"))).manual("perf-prof manual");
    man.render_title(out)?;
    man.render_name_section(out)?;
    let mut head = Roff::default();
    synopsis(command, &mut head);
    head.to_writer(out)?;
    man.render_description_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    man.render_options_section(out)?;
    let mut rest = Roff::default();
    if let Some(help) = command.get_after_help() {
        after_help(&help.to_string(), &mut rest);
    }
    exit_status(&mut rest);
    see_also(command, &mut rest);
    rest.to_writer(out)
}

/// Writes the synopsis: optional arguments in brackets, and `<COMMAND>` on the main page.
fn synopsis(command: &Command, page: &mut Roff) {
    page.control("SH", ["SYNOPSIS"]);
    let mut line = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    let (last, others): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| arg.is_last_set());
    for arg in others.into_iter().chain(last) {
        let (open, close) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        line.push(roman(open));
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        for (index, name) in short.iter().chain(&long).enumerate() {
            line.extend((index > 0).then(|| roman("|")));
            line.push(bold(name));
        }
        line.extend(value(arg));
        line.push(roman(close));
    }
    if command.has_subcommands() {
        line.push(roman(" <COMMAND>"));
    }
    page.text(line);
}

/// The value of an option, or a positional argument.
fn value(arg: &Arg) -> Vec<Inline> {
    if !arg.get_action().takes_values() {
        return Vec::new();
    }
    let name =
        arg.get_value_names().and_then(|names| names.first()).map_or(arg.get_id().as_str(), |name| name.as_str());
    let dots = if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
    let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    let (before, after) = match (arg.is_positional(), optional) {
        (true, _) if arg.is_last_set() => ("-- ", ""),
        (true, _) => ("", ""),
        (false, false) => (" ", ""),
        (false, true) if arg.is_require_equals_set() => ("[=", "]"),
        (false, true) => (" [", "]"),
    };
    vec![roman(before), italic(name), roman(dots), roman(after)]
}

/// Writes the text below the options in the help. `Heading:` with indented lines is a section whose lines are kept; all
/// else is a paragraph.
fn after_help(text: &str, page: &mut Roff) {
    for part in text.split("\n\n") {
        let mut lines = part.lines().peekable();
        if let Some(heading) = lines.next_if(|line| line.ends_with([':', '?']) && !line.contains('`')) {
            page.control("SH", [heading.trim_end_matches([':', '?']).to_uppercase().as_str()]);
            page.control("nf", []);
            for line in lines {
                page.text([roman(line)]);
            }
            page.control("fi", []);
        } else {
            page.control("PP", []);
            for line in lines {
                page.text([roman(line)]);
            }
        }
    }
}

fn exit_status(page: &mut Roff) {
    page.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        page.control("TP", []);
        page.text([bold(code.to_string())]);
        page.text([roman(meaning)]);
    }
}

fn see_also(command: &Command, page: &mut Roff) {
    page.control("SH", ["SEE ALSO"]);
    page.text(if command.has_subcommands() {
        [bold("perf_event_open"), roman("(2), "), bold("sched"), roman("(7)")]
    } else {
        [bold("perf-prof"), roman("(1), "), bold("perf_event_open"), roman("(2)")]
    });
}
