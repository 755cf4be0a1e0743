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

/// What a run waits for.
pub(super) struct WakeSources {
    /// Has the rings, too.
    pub poller: Poller,
    /// The output wakes the run.
    pub waker: Arc<Waker>,
    signals: Signals,
    /// Ends intervals that are printed.
    ticker: Option<Ticker>,
    /// Ends quiet intervals. None: nobody wants tables more often than they are printed.
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
    /// `wanted`: these signals are blocked from now on, and wake the run.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn new(poller: Poller, waker: Arc<Waker>, wanted: &[Signal]) -> Result<WakeSources> {
        poller.add(&*waker, WAKER).context("cannot wait for the output")?;
        let signals = Signals::block(wanted).context("cannot receive signals")?;
        poller.add(&signals, SIGNALS).context("cannot wait for signals")?;
        Ok(WakeSources { poller, waker, signals, ticker: None, quiet_ticker: None })
    }

    /// Starts the interval timer. Not before the events are on: opening them may take longer than an interval.
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

    /// Sleeps until a ring is half full, a signal or timer comes, or the timeout is over.
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

    /// A signal that has come.
    pub fn take_signal(&self) -> Option<Signal> {
        self.signals.take()
    }
}
