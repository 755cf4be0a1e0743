//! Weighs the samples on their way to the profiler.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::evlist::{Counted, Evlist};
use crate::perf::{EventId, Record, Sample};
use crate::profiler::{Context, LostWindow, Profiler, Report, Samples, Setup, Timestamp};
use crate::stats::weights::StackWeights;
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

/// What came across the scales.
#[derive(Debug, Default)]
pub struct Weights {
    /// By event.
    pub of: Vec<Weight>,
    /// Samples that nobody has taken yet, by CPU and event. None: counters tell how many there are.
    fresh: Option<FxHashMap<(u32, EventId), u64>>,
}

impl Weights {
    /// `alone`: no counter will be read.
    pub fn new(events: usize, alone: bool) -> Weights {
        Weights { of: vec![Weight::default(); events], fresh: alone.then(FxHashMap::default) }
    }

    /// The samples since the last time, by CPU and event.
    pub fn take_fresh(&mut self) -> Vec<(u32, EventId, u64)> {
        let fresh = self.fresh.iter_mut().flat_map(FxHashMap::drain);
        fresh.map(|((cpu, event), count)| (cpu, event, count)).collect()
    }

    fn add(&mut self, event: EventId, sample: &Sample<'_>) {
        if let Some(weight) = self.of.get_mut(event.index()) {
            weight.samples += 1;
            weight.bytes += sample.record_bytes() as u64;
            weight.periods = weight.periods.saturating_add(sample.period());
            weight.addresses += sample.callchain.len() as u64;
        }
        if let Some(fresh) = &mut self.fresh {
            *fresh.entry((sample.cpu, event)).or_default() += 1;
        }
    }
}

pub type Tally = Rc<RefCell<Weights>>;

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

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        self.tally.borrow_mut().add(event, sample);
        self.profiler.sample(event, sample, ctx)
    }

    /// They go the way that they would go in the run.
    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        let Weighed { profiler, tally } = self;
        let mut tally = tally.borrow_mut();
        samples.seen(|samples| profiler.samples(samples, ctx), |event, sample| tally.add(event, sample));
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.profiler.interval(now, report)
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.profiler.deinit(now, report)
    }

    fn started(&mut self, now: Timestamp, ctx: &mut Context) {
        self.profiler.started(now, ctx);
    }

    fn task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        self.profiler.task(record, time, cpu, ctx);
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) {
        self.profiler.tick(now, ctx);
    }

    fn stopped(&mut self, now: Timestamp, ctx: &mut Context) {
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

    fn weigh_samples(&mut self, weights: &mut StackWeights) {
        self.profiler.weigh_samples(weights);
    }

    fn weighs(&self) -> Option<&'static str> {
        self.profiler.weighs()
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        self.profiler.stacks_in_use(used);
    }

    fn lost(&mut self, window: &LostWindow) {
        self.profiler.lost(window);
    }
}
