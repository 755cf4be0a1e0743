//! Weighs the samples on their way to the profiler.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::perf::evlist::{Counted, Evlist};
use crate::perf::{EventId, Record, Sample};
use crate::profiler::{Context, LostWindow, Profiler, Report, Setup, Timestamp};
use crate::symbol::StackId;

/// The samples of one event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    pub samples: u64,
    pub bytes: u64,
    /// In their callchains.
    pub addresses: u64,
    /// What they stand for.
    pub periods: u64,
}

/// By event.
pub type Tally = Rc<RefCell<Vec<Weight>>>;

/// A profiler whose samples are weighed.
pub struct Weighed {
    pub profiler: Box<dyn Profiler>,
    pub tally: Tally,
}

impl Profiler for Weighed {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.profiler.init(evlist, setup)
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.profiler.filter(evlist, setup)
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context<'_>) -> Result<()> {
        if let Some(weight) = self.tally.borrow_mut().get_mut(event.index()) {
            weight.samples += 1;
            weight.bytes += sample.record_bytes() as u64;
            weight.periods = weight.periods.saturating_add(sample.period());
            weight.addresses += sample.callchain.len() as u64;
        }
        self.profiler.sample(event, sample, ctx)
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.profiler.interval(now, report)
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.profiler.deinit(now, report)
    }

    fn started(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        self.profiler.started(now, ctx);
    }

    fn task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &mut Context<'_>) {
        self.profiler.task(record, time, cpu, ctx);
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        self.profiler.tick(now, ctx);
    }

    fn stopped(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        self.profiler.stopped(now, ctx);
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new() // of a run, which this is not
    }

    fn suspects(&self) -> &[u32] {
        self.profiler.suspects()
    }

    fn throttled(&mut self, cpu: u32) {
        self.profiler.throttled(cpu);
    }

    fn counted(&mut self, event: EventId, cpu: u32, counted: &Counted) {
        self.profiler.counted(event, cpu, counted);
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        self.profiler.stacks_in_use(used);
    }

    fn lost(&mut self, window: &LostWindow) {
        self.profiler.lost(window);
    }
}
