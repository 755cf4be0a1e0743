//! The options of `signal`.

use crate::cli::CommonArgs;
use crate::cli::values::{self, CommList};
use crate::profilers::signal::names;

/// Who sends which signal to whom, and whether it arrives
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  SignalPair kills nginx, and who has started that?
    perf-prof signal --filter nginx --signal KILL,TERM
  Every signal to one process, with the stack of its sender:
    perf-prof signal -p nginx -g
  Only a table per second of who sends what to whom:
    perf-prof signal -i 1000 | grep -v ' -> '
  All that a command and its children get:
    perf-prof signal -- ./job

A line per signal, once it is known what became of it: it is delivered, ignored,
or merged into an equal one that waits already. One that does not arrive within
a moment is shown with the reason, and once more when it does.")]
pub struct SignalArgs {
    /// Only signals sent to tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    pub(super) filter: Option<CommList>,
    /// Only these signals: KILL,SIGTERM,9
    #[arg(long = "signal", value_name = "NAME|N,...", value_parser = SignalList::parse)]
    pub(super) signals: Option<SignalList>,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Numbers of signals.
#[derive(Clone, Debug)]
pub struct SignalList(pub(super) Vec<u8>);

impl SignalList {
    fn parse(text: &str) -> Result<SignalList, String> {
        let number = |word: String| {
            names::number(&word).ok_or_else(|| format!("`{word}` is no signal, write names or numbers, as in KILL,15"))
        };
        values::list(text)?.into_iter().map(number).collect::<Result<_, _>>().map(SignalList)
    }

    /// The text of a filter on an event whose field is called `sig`.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|signo| format!("sig=={signo}")).collect::<Vec<_>>().join(" || ")
    }
}
