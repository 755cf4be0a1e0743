//! Number and size of the samples of a dry run, or of a moment of a run, measured before the profilers get them.

use rustc_hash::FxHashMap;

use crate::perf::{EventId, Sample};

/// The samples of one event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered {
    pub samples: u64,
    pub bytes: u64,
    /// Number of addresses in the samples' callchains.
    pub addresses: u64,
    /// Sum of the samples' periods.
    pub periods: u64,
}

/// The samples so far, by event.
#[derive(Debug, Default)]
pub struct Meter {
    by_event: Vec<Metered>,
    /// Samples since the last `take_fresh`, by CPU and event. None: counters give the number of samples.
    fresh: Option<FxHashMap<(u32, EventId), u64>>,
    is_of_dry_run: bool,
}

impl Meter {
    /// `alone`: no counters will be read, so the meter counts samples.
    pub fn new(events: usize, alone: bool) -> Meter {
        let (by_event, fresh) = (vec![Metered::default(); events], alone.then(FxHashMap::default));
        Meter { by_event, fresh, is_of_dry_run: true }
    }

    /// Counts samples for a moment of a run.
    pub fn of_moment() -> Meter {
        Meter { by_event: Vec::new(), fresh: Some(FxHashMap::default()), is_of_dry_run: false }
    }

    pub fn is_of_dry_run(&self) -> bool {
        self.is_of_dry_run
    }

    pub fn by_event(&self) -> &[Metered] {
        &self.by_event
    }

    /// The samples since the last call, by CPU and event.
    pub fn take_fresh(&mut self) -> Vec<(u32, EventId, u64)> {
        let fresh = self.fresh.iter_mut().flat_map(FxHashMap::drain);
        fresh.map(|((cpu, event), count)| (cpu, event, count)).collect()
    }

    pub fn add(&mut self, event: EventId, sample: &Sample<'_>) {
        if let Some(metered) = self.by_event.get_mut(event.index()) {
            metered.samples += 1;
            metered.bytes += sample.record().len() as u64;
            metered.periods = metered.periods.saturating_add(sample.period());
            metered.addresses += sample.callchain.len() as u64;
        }
        if let Some(fresh) = &mut self.fresh {
            *fresh.entry((sample.cpu, event)).or_default() += 1;
        }
    }
}
