//! `completions`: a script for the shell, made from the parser's own description of the options, so that both always
//! agree.

use anyhow::Result;
use clap::{CommandFactory, ValueEnum};
use clap_complete::aot;

use crate::commands::Cli;
use crate::output::sink::Sink;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  For this shell, for now:
    . <(perf-prof completions bash)
  For every new shell:
    perf-prof completions bash > /etc/bash_completion.d/perf-prof
    perf-prof completions zsh > /usr/local/share/zsh/site-functions/_perf-prof
    perf-prof completions fish > /etc/fish/completions/perf-prof.fish")]
pub struct CompletionsArgs {
    /// The shell that will read them
    shell: Shell,
}

/// The shells in which the tests run the script.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionsArgs {
    /// Prints the script. Returns the exit code.
    ///
    /// # Errors
    /// stdout does not take it.
    pub fn run(&self) -> Result<u8> {
        let shell = match self.shell {
            Shell::Bash => aot::Shell::Bash,
            Shell::Zsh => aot::Shell::Zsh,
            Shell::Fish => aot::Shell::Fish,
        };
        let mut command = Cli::command();
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        aot::generate(shell, &mut command, name, &mut script);
        if matches!(self.shell, Shell::Bash) {
            script = with_one_spelling(&script);
        }
        let mut sink = Sink::stdout()?;
        sink.buffer = script;
        sink.finish()
    }
}

/// clap_complete 4.6 for bash spells the dash of `perf-prof` in two ways, so that the script never finds a subcommand.
fn with_one_spelling(script: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(script).replace("perf__subcmd__prof", "perf__prof").into_bytes()
}
