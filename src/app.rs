//! The program: parses the command line, runs the command, and turns an error into an exit code.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::cli::UsageError;
use crate::commands::{Cli, faults};
use crate::sys;

/// Parses, runs, and returns the exit code.
pub fn main() -> u8 {
    sys::poll::obey_ending_signals();
    let args: Vec<OsString> = std::env::args_os().collect();
    let cli: Cli = match faults::parse(Cli::command(), &args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.command.run() {
        Ok(code) => code,
        Err(err) => {
            faults::print(&message(&err));
            u8::from(err.chain().any(|cause| cause.is::<UsageError>())) + 1
        }
    }
}

/// What failed and why, once each: a context often ends with its cause already.
fn message(err: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in err.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    // The hint is added here, so that the many functions that open files need not add it.
    if err.chain().any(lacks_descriptors) && !text.contains("ulimit -n") {
        text = format!("{text}; cure: raise `ulimit -n` (it is {})", sys::open_files().0);
    }
    text
}

fn lacks_descriptors(cause: &(dyn std::error::Error + 'static)) -> bool {
    let errno = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    errno == Some(libc::EMFILE) || cause.downcast_ref() == Some(&nix::errno::Errno::EMFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_repeat_themselves() {
        let err = anyhow::anyhow!("no such file").context("cannot open x");
        assert_eq!(message(&err), "cannot open x: no such file");
        let err = anyhow::anyhow!("y").context("x: y");
        assert_eq!(message(&err), "x: y");
        let err = anyhow::Error::new(std::io::Error::from_raw_os_error(libc::EMFILE)).context("cannot read x");
        assert!(message(&err).starts_with("cannot read x: ") && message(&err).contains("raise `ulimit -n`"));
    }
}
