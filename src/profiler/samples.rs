//! Passes samples to one profiler.

use anyhow::Result;

use crate::perf::evlist::Evlist;
use crate::perf::record::sample_identifier;
use crate::perf::sample::FAST_MIN_BYTES;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Profiler};
use crate::ringbuf::RecordRun;

/// The samples of one profiler at the start of a run of records.
///
/// They are decoded only when a field is used.
pub struct Samples<'p, 'a> {
    run: &'p mut RecordRun<'a>,
    evlist: &'p Evlist,
    owner: u32,
    most: u64, // limit of the relevant samples
    gate: Option<Gate<'p>>,
    taken: SampleCounts,
}

/// A function that sees each sample before the profiler does, in the few runs that need one. False: the profiler does
/// not get the sample.
pub type Gate<'p> = &'p mut dyn FnMut(EventId, &Sample<'_>, &mut Context) -> bool;

/// Numbers of samples, by how they were used.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleCounts {
    /// Samples that the profiler did not ignore.
    pub relevant: u64,
    pub ignored: u64,
    /// Malformed samples, which are included in `relevant`.
    pub malformed: u64,
    /// Samples that the gate kept out.
    pub kept_out: u64,
}

impl SampleCounts {
    pub fn all(&self) -> u64 {
        self.relevant + self.ignored + self.kept_out
    }
}

/// How a profiler used a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Relevant,
    /// The sample does not concern the profiler, and does not count.
    Ignored,
    /// The sample lacks a field of its event. It counts, and the run goes on.
    Malformed,
}

/// A consumer of samples. It is no closure, because [`Samples::each`] calls it in two places, of which only one must be
/// inlined.
pub trait Handler {
    /// As [`Profiler::sample`].
    ///
    /// # Errors
    /// As [`Profiler::sample`].
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use>;
}

impl<P: Profiler + ?Sized> Handler for P {
    #[inline(always)]
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        Profiler::sample(self, event, sample, ctx)
    }
}

impl<'p, 'a> Samples<'p, 'a> {
    /// Samples up to a limit of `most` relevant ones.
    pub fn new(
        run: &'p mut RecordRun<'a>,
        evlist: &'p Evlist,
        owner: u32,
        most: u64,
        gate: Option<Gate<'p>>,
    ) -> Samples<'p, 'a> {
        Samples { run, evlist, owner, most, gate, taken: SampleCounts::default() }
    }

    pub fn taken(&self) -> SampleCounts {
        self.taken
    }

    /// Passes the samples to the handler, one after the other. Ends early if the output needs attention, and at the
    /// first record that is no valid sample of this profiler.
    #[inline(always)]
    pub fn each(&mut self, handler: &mut (impl Handler + ?Sized), ctx: &mut Context) {
        /// Number of samples between two checks of the output: more checks would cost too much.
        const AT_ONCE: u64 = 64;
        let (routes, owner) = (self.evlist.routes(), self.owner);
        loop {
            let mut walk = self.run.walk();
            let most = if self.gate.is_none() { AT_ONCE.min(self.most - self.taken.relevant) } else { 0 };
            let (mut left, mut ignored, mut malformed) = (most, 0, 0);
            // Nearly all samples are decoded here. By measurement, handling other samples in this loop makes it take
            // 1.5 times as long.
            while left > 0
                && walk.rest().len() >= FAST_MIN_BYTES // later code need not check the length again
                && let Some(route) = sample_identifier(walk.rest()).and_then(|id| routes.get_of(id, owner))
                && let Some((sample, behind)) = self.evlist.decode_fast(route, walk.rest())
                && walk.take(behind, sample.time)
            {
                left -= 1;
                match handler.sample(route.event, &sample, ctx) {
                    Ok(Use::Relevant) => {}
                    Ok(Use::Ignored) => ignored += 1,
                    Ok(Use::Malformed) | Err(_) => malformed += 1,
                }
            }
            self.run.follow(walk, most - left);
            self.taken.relevant += most - left - ignored;
            self.taken.ignored += ignored;
            self.taken.malformed += malformed;
            // An output at a standstill needs attention at any time: one sample is taken all the same.
            let needs_attention = ctx.stacks.is_changed() || ctx.output.is_large();
            if self.taken.relevant == self.most || needs_attention && self.taken.all() > 0 {
                break;
            }
            if (left > 0 || most == 0) && !self.run.go_on() && !self.one(handler, ctx) {
                break;
            }
        }
    }

    /// Passes the next sample, of any layout, to the handler. Not inlined, to keep this second copy of the profiler's
    /// code out of the loop.
    #[cold]
    #[inline(never)]
    fn one(&mut self, handler: &mut (impl Handler + ?Sized), ctx: &mut Context) -> bool {
        let Some(record) = self.run.next_record() else { return false };
        let Some(route) = sample_identifier(record).and_then(|id| self.evlist.routes().get_of(id, self.owner)) else {
            return false;
        };
        let Some(mut sample) = self.evlist.sample(route, record) else { return false };
        let Some(late) = self.run.take(record.len(), sample.time) else { return self.run.go_on() };
        sample.late = late;
        if self.gate.as_mut().is_some_and(|gate| !gate(route.event, &sample, ctx)) {
            self.taken.kept_out += 1;
            return true;
        }
        match handler.sample(route.event, &sample, ctx) {
            Ok(Use::Relevant) => self.taken.relevant += 1,
            Ok(Use::Ignored) => self.taken.ignored += 1,
            Ok(Use::Malformed) | Err(_) => {
                self.taken.relevant += 1;
                self.taken.malformed += 1;
            }
        }
        true
    }
}
