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
    /// `-S`, `-D` or `-R`: only these waits.
    pub fn names_any(self) -> bool {
        self.interruptible || self.uninterruptible || self.run_delay
    }

    /// Some states are not wanted.
    pub fn leaves_out_any(self) -> bool {
        self.names_any() || self.no_interruptible
    }

    /// Only waits of blocked tasks, `-S` or `-D`: a task that does anything else need not be followed.
    ///
    /// With `-R` all are followed. A task that has not left its CPU yet may be woken too, and then does not wait for one.
    pub fn blocked_only(self) -> bool {
        self.names_any() && !self.run_delay
    }
}
