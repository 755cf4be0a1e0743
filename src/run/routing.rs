//! Routes samples to profilers: each sample goes to the view of its event, or to all views that share the event, unless
//! the run drops it; windows of user stacks are kept for the samples that follow them.

use std::ops::ControlFlow;

use crate::perf::event_id::{IDLE_OWNER, SHARED_OWNER, WINDOW_OWNER};
use crate::perf::evlist::Evlist;
use crate::perf::record::sample_identifier;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Gate, Samples, Use};
use crate::ringbuf::RecordRun;
use crate::run::dispatcher::Dispatcher;
use crate::run::meter::Meter;
use crate::run::task_filter::TaskFilter;
use crate::run::views::Views;

/// How a record that belongs to no single profiler was handled.
enum UnownedRecord {
    Nothing,
    Window,
    Sample,
}

/// The tests that a sample must pass before a profiler sees it, in runs that need tests.
struct SampleGate<'a> {
    evlist: &'a Evlist,
    filter: &'a mut TaskFilter,
    meter: &'a mut Option<Meter>,
    has_companions: bool,
    /// No sample passes.
    is_shut: bool,
}

impl<'a> SampleGate<'a> {
    #[inline]
    fn new(
        evlist: &'a Evlist,
        filter: &'a mut TaskFilter,
        meter: &'a mut Option<Meter>,
        ctx: &Context,
    ) -> SampleGate<'a> {
        let has_companions = ctx.user_stacks.has_companions();
        SampleGate { evlist, filter, meter, has_companions, is_shut: false }
    }

    /// True if some samples of the view may not pass.
    #[inline]
    fn is_needed(&self, owner: usize) -> bool {
        let is_of_run = self.filter.is_on() || self.meter.is_some() || self.has_companions;
        is_of_run || self.is_shut || self.evlist.evsels.tests_samples_of(owner)
    }

    fn admits(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> bool {
        if self.has_companions {
            ctx.user_stacks.comes(event, sample.cpu);
        }
        if self.filter.is_on() && !self.filter.admits(self.evlist.evsel(event), sample, &ctx.watched) {
            return false;
        }
        self.meter.iter_mut().for_each(|meter| meter.add(event, sample));
        !self.is_shut && self.evlist.evsel(event).test().is_none_or(|test| test.passes(sample))
    }
}

/// Gives a sample to each view that wants its event. Returns how many could not use it.
fn give(event: EventId, sample: &Sample<'_>, mut gate: SampleGate<'_>, views: &mut Views, ctx: &mut Context) -> u64 {
    let mut malformed = 0;
    if !gate.admits(event, sample, ctx) {
        return 0;
    }
    for (owner, event) in gate.evlist.evsels.subscribers(event) {
        let Some(view) = views.enter(owner, ctx).filter(|view| view.room() > 0) else { continue };
        let used = view.profiler.sample(event, sample, ctx);
        let is_relevant = !matches!(used, Ok(Use::Ignored));
        view.samples += u64::from(is_relevant);
        malformed += u64::from(!matches!(used, Ok(Use::Ignored | Use::Relevant)));
    }
    malformed
}

impl Dispatcher {
    /// Takes the samples at the start of a piece: a profiler gets consecutive samples in one call.
    #[inline]
    pub fn take_samples(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        loop {
            let Dispatcher { evlist, views, meter, ctx, filter, .. } = self;
            let route = piece.next_record().and_then(sample_identifier).and_then(|id| evlist.route(id));
            let Some(owner) = route.map(|route| route.owner as usize) else { break };
            if owner >= IDLE_OWNER {
                match self.take_unowned(piece, owner) {
                    UnownedRecord::Nothing => break,
                    UnownedRecord::Window => continue,
                    UnownedRecord::Sample => {}
                }
            } else {
                let Some(view) = views.enter(owner, ctx) else { break };
                let room = view.room();
                let mut gate = SampleGate::new(evlist, filter, meter, ctx);
                gate.is_shut = room == 0;
                let is_gated = gate.is_needed(owner);
                let most = if room == 0 { u64::MAX } else { room };
                let mut admits =
                    |event: EventId, sample: &Sample<'_>, ctx: &mut Context| gate.admits(event, sample, ctx);
                let gate: Option<Gate<'_>> = if is_gated { Some(&mut admits) } else { None };
                let mut samples = Samples::new(piece, evlist, owner as u32, most, gate);
                view.profiler.samples(&mut samples, ctx);
                let taken = samples.taken();
                view.samples += taken.relevant;
                self.records.samples += taken.all();
                self.records.malformed += taken.malformed;
                if taken.all() == 0 {
                    self.send_stacks();
                    self.ctx.output.flush_large();
                    break;
                }
            }
            self.send_stacks();
            self.ctx.output.flush_large();
            if self.has_enough() {
                self.ended_ns = Some(piece.last());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes a record that belongs to no single profiler.
    #[inline(never)]
    fn take_unowned(&mut self, piece: &mut RecordRun<'_>, owner: usize) -> UnownedRecord {
        match owner {
            WINDOW_OWNER if self.take_window(piece) => UnownedRecord::Window,
            SHARED_OWNER if self.take_shared(piece) => UnownedRecord::Sample,
            IDLE_OWNER if self.take_idle(piece) => UnownedRecord::Sample,
            _ => UnownedRecord::Nothing,
        }
    }

    /// Takes a sample of an event that several views share. False: no further record can be taken.
    fn take_shared(&mut self, piece: &mut RecordRun<'_>) -> bool {
        let Dispatcher { evlist, views, meter, ctx, filter, .. } = self;
        let Some(record) = piece.next_record() else { return false };
        let Some(route) = sample_identifier(record).and_then(|id| evlist.route(id)) else { return false };
        let Some(mut sample) = evlist.sample(route, record) else { return false };
        let Some(late) = piece.take(record.len(), sample.time) else { return piece.go_on() };
        sample.late = late;
        self.records.samples += 1;
        let gate = SampleGate::new(evlist, filter, meter, ctx);
        self.records.malformed += give(route.event, &sample, gate, views, ctx);
        true
    }

    /// Takes the copy of a record of an idle task, if the record has no sample of its own. False: no further record can
    /// be taken.
    fn take_idle(&mut self, piece: &mut RecordRun<'_>) -> bool {
        let Dispatcher { evlist, views, meter, ctx, filter, .. } = self;
        let Some(record) = piece.next_record() else { return false };
        let Some(route) = sample_identifier(record).and_then(|id| evlist.route(id)) else { return false };
        let Some(mut sample) = evlist.sample(route, record) else { return false };
        let Some(copied) = evlist.idle_records.copied(route.event) else { return false };
        let comes_twice = evlist.has_own_sample(copied, &sample, piece.records_behind());
        let Some(late) = piece.take(record.len(), sample.time) else { return piece.go_on() };
        (sample.late, sample.is_copy) = (late, true);
        if comes_twice {
            let cpu = sample.cpu;
            self.evlist.sees_idle(cpu);
            return true;
        }
        if copied.passes(&sample) {
            self.records.samples += 1;
            let gate = SampleGate::new(evlist, filter, meter, ctx);
            self.records.malformed += give(copied.of(), &sample, gate, views, ctx);
        }
        true
    }

    /// Takes the window of a user stack that comes before its sample. False: no further record can be taken.
    fn take_window(&mut self, piece: &mut RecordRun<'_>) -> bool {
        let Dispatcher { evlist, ctx, filter, meter, .. } = self;
        let Some(record) = piece.next_record() else { return false };
        let Some(route) = sample_identifier(record).and_then(|id| evlist.route(id)) else { return false };
        let Some(sample) = evlist.sample(route, record) else { return false };
        if piece.take(record.len(), sample.time).is_none() {
            return piece.go_on();
        }
        meter.iter_mut().for_each(|meter| meter.add(route.event, &sample));
        let evsel = evlist.evsel(route.event);
        if filter.wants(evsel, &sample, &ctx.watched) {
            let of = evsel.window_of().unwrap_or_default();
            ctx.user_stacks.companion(of, &sample, &mut ctx.spaces, ctx.output.published());
        }
        true
    }
}
