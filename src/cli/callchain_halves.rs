//! `--no-kernel-callchain` and the like: which halves of callchains are shown.

use anyhow::Result;

use crate::cli::{CallGraph, usage};

/// Halves of callchains: the frames of programs, and those of the kernel
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct CallchainArgs {
    /// Stacks with the frames of programs, also where only the kernel's are usual
    #[arg(long, help_heading = "Output", overrides_with = "no_user_callchain")]
    user_callchain: bool,
    /// Stacks without the frames of programs
    #[arg(long, help_heading = "Output", overrides_with = "user_callchain")]
    no_user_callchain: bool,
    /// Stacks with the frames of the kernel, as is usual
    #[arg(long, help_heading = "Output", overrides_with = "no_kernel_callchain", hide = true)]
    kernel_callchain: bool,
    /// Stacks without the frames of the kernel
    #[arg(long, help_heading = "Output", overrides_with = "kernel_callchain")]
    no_kernel_callchain: bool,
}

impl CallchainArgs {
    /// Whether frames of programs are wanted. None: the profiler decides.
    pub fn user(self) -> Option<bool> {
        half(self.user_callchain, self.no_user_callchain)
    }

    /// Whether frames of the kernel are wanted. None: the profiler decides.
    pub fn kernel(self) -> Option<bool> {
        half(self.kernel_callchain, self.no_kernel_callchain)
    }

    /// Refuses options that leave out both halves, or that unwind the stacks of programs and leave them out.
    ///
    /// # Errors
    /// Such options were given.
    pub fn check(self, call_graph: Option<CallGraph>) -> Result<()> {
        if self.no_user_callchain && self.no_kernel_callchain {
            return Err(usage("--no-user-callchain and --no-kernel-callchain together leave no stacks: leave out -g"));
        }
        if self.no_user_callchain && matches!(call_graph, Some(CallGraph::Dwarf(_))) {
            return Err(usage(
                "--call-graph=dwarf unwinds the stacks of programs, which --no-user-callchain leaves out: leave out one of the two",
            ));
        }
        Ok(())
    }
}

fn half(wanted: bool, unwanted: bool) -> Option<bool> {
    (wanted || unwanted).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Halves {
        #[command(flatten)]
        halves: CallchainArgs,
    }

    #[test]
    fn the_last_word_counts() {
        let halves = |args: &[&str]| {
            let halves = Halves::try_parse_from([&["x"], args].concat()).unwrap().halves;
            (halves.user(), halves.kernel())
        };
        assert_eq!(halves(&[]), (None, None));
        assert_eq!(halves(&["--no-user-callchain"]), (Some(false), None));
        assert_eq!(halves(&["--no-user-callchain", "--user-callchain"]), (Some(true), None));
        assert_eq!(halves(&["--kernel-callchain", "--no-kernel-callchain"]), (None, Some(false)));
    }

    #[test]
    fn something_is_left() {
        let check = |args: &[&str], call_graph| {
            Halves::try_parse_from([&["x"], args].concat()).unwrap().halves.check(call_graph).is_ok()
        };
        assert!(check(&["--no-user-callchain"], Some(CallGraph::Auto)));
        assert!(check(&["--no-kernel-callchain"], Some(CallGraph::Dwarf(None))));
        assert!(!check(&["--no-user-callchain"], Some(CallGraph::Dwarf(None))));
        assert!(!check(&["--no-user-callchain", "--no-kernel-callchain"], None));
    }
}
