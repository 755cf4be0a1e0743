//! What wakes a run: its rings, signals, timers, and the output.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::sys::poll::{Poller, Signals, Ticker, Waker};

const SIGNALS: u64 = 1 << 32;
const TICKER: u64 = SIGNALS + 1;
const WAKER: u64 = SIGNALS + 2;
const QUIET_TICKER: u64 = SIGNALS + 3;

/// The sources of events that a run waits for.
pub(super) struct WakeSources {
    /// Polls the rings, too.
    pub poller: Poller,
    /// Lets the output thread wake the run.
    pub waker: Arc<Waker>,
    signals: Signals,
    /// Ends intervals that are printed.
    ticker: Option<Ticker>,
    /// Ends quiet intervals. None: no output wants tables more often than they are printed.
    quiet_ticker: Option<Ticker>,
}

/// What woke the loop, beside the rings.
#[derive(Default)]
pub(super) struct WakeReasons {
    pub signalled: bool,
    /// It is time for a report.
    pub ticked: bool,
    /// It is time for the tables of a quiet interval.
    pub ticked_quietly: bool,
}

impl WakeSources {
    /// `wanted`: signals that are blocked from now on, and wake the run.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn new(poller: Poller, waker: Arc<Waker>, wanted: &[Signal]) -> Result<WakeSources> {
        poller.add(&*waker, WAKER).context("cannot wait for the output")?;
        let signals = Signals::block(wanted).context("cannot receive signals")?;
        poller.add(&signals, SIGNALS).context("cannot wait for signals")?;
        Ok(WakeSources { poller, waker, signals, ticker: None, quiet_ticker: None })
    }

    /// Starts the interval timer. To be called once the events are enabled, since opening them may take longer than an
    /// interval.
    pub fn tick_every(&mut self, interval: Duration) -> Result<()> {
        let ticker = Ticker::every(interval).context("cannot start the interval timer")?;
        self.poller.add(&ticker, TICKER).context("cannot wait for the interval timer")?;
        self.ticker = Some(ticker);
        Ok(())
    }

    /// Starts the timer of quiet intervals.
    pub fn tick_quietly_every(&mut self, period: Duration) -> Result<()> {
        let ticker = Ticker::every(period).context("cannot start the timer of the tables")?;
        self.poller.add(&ticker, QUIET_TICKER).context("cannot wait for the timer of the tables")?;
        self.quiet_ticker = Some(ticker);
        Ok(())
    }

    /// Sleeps until a ring reaches its watermark, a signal or timer fires, or the timeout expires.
    pub fn wait(&mut self, timeout: Duration) -> Result<WakeReasons> {
        let mut woken = WakeReasons::default();
        for token in self.poller.wait(timeout).context("cannot wait for events")? {
            match token {
                SIGNALS => woken.signalled = true,
                TICKER => woken.ticked = self.ticker.as_ref().is_some_and(Ticker::expired),
                QUIET_TICKER => woken.ticked_quietly = self.quiet_ticker.as_ref().is_some_and(Ticker::expired),
                WAKER => self.waker.clear(),
                _ => {} // a ring
            }
        }
        Ok(woken)
    }

    /// Takes a pending signal.
    pub fn take_signal(&self) -> Option<Signal> {
        self.signals.take()
    }
}
