//! `-S`, `-D`, `-R`: which states of tasks are wanted.

/// Which states are wanted
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WaitStateArgs {
    /// Only interruptible sleep (S)
    #[arg(short = 'S', long, overrides_with = "no_interruptible")]
    pub interruptible: bool,
    /// Everything but interruptible sleep
    #[arg(long, overrides_with = "interruptible")]
    pub no_interruptible: bool,
    /// Only uninterruptible waits (D)
    #[arg(short = 'D', long)]
    pub uninterruptible: bool,
    /// Only waits for a CPU, when ready to run (RD)
    #[arg(short = 'R', long)]
    pub run_delay: bool,
}

impl WaitStateArgs {
    /// `-S`, `-D` or `-R` was given: only waits in these states are wanted.
    pub fn names_any(self) -> bool {
        self.interruptible || self.uninterruptible || self.run_delay
    }

    /// Some states are not wanted.
    pub fn leaves_out_any(self) -> bool {
        self.names_any() || self.no_interruptible
    }

    /// `-S` or `-D` was given without `-R`: tasks that are not blocked need not be followed.
    ///
    /// With `-R` all tasks are followed: a task may also be woken before it has left its CPU, and then does not wait
    /// for a CPU.
    pub fn blocked_only(self) -> bool {
        self.names_any() && !self.run_delay
    }
}
