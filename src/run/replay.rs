//! Recorded rings, played to a profiler again: no kernel, no clock, and the same instructions each time.
//!
//! For `benches/replay.rs`, which records them and has callgrind count.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::host::Host;
use crate::output::sink::Sink;
use crate::output::{Output, SettingsSender};
use crate::perf::classes::Class;
use crate::perf::evlist::Evlist;
use crate::perf::target::Target;
use crate::profiler::{Profiler, Setup, TracefsFinder};
use crate::ringbuf::sim::Producer;
use crate::ringbuf::{DrainLimit, Merge};
use crate::run::dispatcher::Dispatcher;
use crate::run::rings::deliver;
use crate::symbol::Stacks;
use crate::sys::poll::Waker;
use crate::task::Watched;
use crate::tep::tracefs::Tracefs;

/// Pages of a ring of events, as many as where they were recorded.
pub const RING_PAGES: usize = 2048;

/// A run of one profiler over rings that are written by hand.
pub struct Replay {
    core: Dispatcher,
    merge: Merge,
    rings: Vec<Producer>,
    /// CPU and class of each.
    places: Vec<(u32, Class)>,
    loaded_ns: u64,
    _settle: SettingsSender,
}

/// Numbers of samples, and of those that were malformed, late, discarded, or lost on the way to the output.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    pub samples: u64,
    pub malformed: u64,
    pub late: u64,
    pub discarded: u64,
    pub lost_output: u64,
}

impl Replay {
    /// `tracefs` has the formats of its events; samples of event N have the identifier N + 1. `stacks`: as in [`Setup`].
    ///
    /// # Errors
    /// An event is not in `tracefs`, or there is no memory for the rings.
    pub fn new(
        mut profiler: Box<dyn Profiler>,
        tracefs: &Path,
        stacks: bool,
        places: Vec<(u32, Class)>,
    ) -> Result<Replay> {
        let nowhere = tracefs.join("nowhere");
        let host = Host { proc: nowhere.clone(), cpu: nowhere };
        let (target, tracefs) = (Target::everything(), TracefsFinder::at(Tracefs::at(tracefs)));
        let watched = Watched::new(&target, &host);
        let mut setup = Setup::new(&tracefs, &target, &host, &watched, [i32::MAX - 1, i32::MAX]);
        setup.stacks = stacks;
        let mut evlist = Evlist::new();
        profiler.init(&mut evlist, &setup)?;
        profiler.filter(&mut evlist, &setup)?;
        evlist.assign_ids();
        let scope = setup.scope;
        // The output thread waits for its settings, so it prints nothing.
        let (output, settle) = Output::start(Sink::file("/dev/null".as_ref())?, Arc::new(Waker::new()?))?;
        let core = Dispatcher::new(evlist, vec![profiler], watched, scope, Stacks::new(64 << 20, 127), host, output);
        let mut merge = Merge::new();
        let rings: Vec<Producer> = places.iter().map(|_| Producer::new(RING_PAGES)).collect::<io::Result<_>>()?;
        for ring in &rings {
            merge.add(ring.ring()?);
        }
        Ok(Replay { core, merge, rings, places, loaded_ns: 0, _settle: settle })
    }

    /// Tells the profiler that its events are on.
    pub fn start(&mut self, now: u64) {
        self.core.ctx.started_ns = now;
        self.core.started(now);
    }

    /// Writes whole records into a ring.
    ///
    /// # Errors
    /// The records are not whole, or the ring has no room for them.
    pub fn write(&mut self, ring: usize, mut records: &[u8]) -> Result<()> {
        while let Some(header) = records.first_chunk::<8>() {
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            let written = size >= header.len()
                && records
                    .get(..size)
                    .is_some_and(|record| self.rings.get_mut(ring).is_some_and(|r| r.write(record, 0)));
            ensure!(written, "a record of {size} bytes that does not fit into ring {ring}");
            records = &records[size..];
        }
        Ok(())
    }

    /// One round, as in a run: the part whose instructions are counted.
    #[inline(never)]
    pub fn replay_round(&mut self, now: u64, is_last: bool) {
        self.merge.load(now);
        let limit = if is_last { DrainLimit::All } else { DrainLimit::Horizon };
        let Replay { core, merge, places, .. } = self;
        deliver(merge, limit, core, |ring| places.get(ring).copied().unwrap_or((0, Class::Side)));
    }

    /// Between rounds, as in a run.
    pub fn tick(&mut self, now: u64) {
        self.core.tick(self.loaded_ns);
        self.core.ctx.output.flush();
        self.loaded_ns = now;
    }

    pub fn played(&self) -> Played {
        let Dispatcher { malformed, late, .. } = self.core;
        let samples = self.core.samples();
        let lost_output = self.core.ctx.output.dropped();
        Played { samples, malformed, late, discarded: self.core.ctx.view.discarded, lost_output }
    }
}
