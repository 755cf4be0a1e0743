//! Events whose key is a number at a fixed offset of the record, in a run without stacks and without records around
//! pairs: the usual case.
//!
//! Paired events come up to a million times per second, so each step counts here: decisions that the general path makes
//! for each record are made once, and samples are not written to memory.

use anyhow::Result;

use crate::expr::NumberPlace;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Handler, Samples, Use};
use crate::profilers::multi_trace::event::RelatedEvent;
use crate::profilers::multi_trace::scheduling::{RunningFields, Scheduling};
use crate::profilers::multi_trace::{DelayEnd, DelayStart, MultiTrace};
use crate::relation::{Chain, EventMoment, PairPositions, RelationKey};

/// An event whose records need only the values below.
#[derive(Clone, Copy, Debug)]
pub struct PlainEvent {
    part: PairPositions,
    key: KeyPlace,
    running: RunningFields,
}

/// Where the key of a record is found.
#[derive(Clone, Copy, Debug)]
enum KeyPlace {
    Default,
    Field(NumberPlace),
}

impl PlainEvent {
    /// The plain form of all events. Empty: records of some events need the general path.
    pub fn all(events: &[RelatedEvent], chain: Chain) -> Vec<PlainEvent> {
        let plain = events.iter().map(|event| PlainEvent::of(event, chain.part(event.positions)));
        let mut plain: Vec<PlainEvent> = plain.collect::<Option<_>>().unwrap_or_default();
        // The current task of a CPU is needed at wake-ups, and where switches end pairs.
        let is_asked =
            |event: &RelatedEvent| event.is_switch_in || matches!(event.scheduling, Scheduling::Wakeup { .. });
        if !events.iter().any(is_asked) {
            plain.iter_mut().for_each(|event| event.running = RunningFields::Nothing);
        }
        plain
    }

    fn of(event: &RelatedEvent, part: PairPositions) -> Option<PlainEvent> {
        let is_plain = event.shown.passes_all() && event.is_paired_always() && !event.is_trigger;
        let key = match &event.key {
            None => KeyPlace::Default,
            Some(key) => KeyPlace::Field(key.number_place()?),
        };
        is_plain.then_some(PlainEvent { part, key, running: event.scheduling.running() })
    }
}

impl MultiTrace {
    /// Handles samples of plain events.
    pub(super) fn relate_plainly(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        let plain = std::mem::take(&mut self.plain);
        samples.each(&mut PlainRelation { plain: &plain, pairs: self }, ctx);
        self.plain = plain;
    }
}

struct PlainRelation<'a> {
    plain: &'a [PlainEvent],
    pairs: &'a mut MultiTrace,
}

impl Handler for PlainRelation<'_> {
    #[inline(always)]
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let pairs = &mut *self.pairs;
        let at = event.index().wrapping_sub(pairs.first);
        let Some(PlainEvent { part, key, running }) = self.plain.get(at) else { return Ok(Use::Ignored) };
        let Sample { raw, .. } = *sample;
        let moment @ EventMoment { time, cpu, tid, .. } = EventMoment::of(sample);
        let has_no_end = pairs.running.follow(*running, raw, time, cpu, tid);
        let key = match key {
            KeyPlace::Default => pairs.default_key.of(cpu, tid),
            KeyPlace::Field(place) => match place.read(raw) {
                Ok(number) => RelationKey::Number(number),
                Err(reason) => {
                    pairs.no_value.add(reason, 1);
                    return Ok(Use::Relevant);
                }
            },
        };
        let at = at as u16;
        let mut ended = None;
        if part.ends.is_any() {
            ended = pairs.end(key, moment, DelayEnd { event: at, part: *part, number: 0 }, ctx);
        }
        if !has_no_end && let Some(position) = part.start(ended) {
            pairs.starts += 1;
            let start = DelayStart { event: at, next: pairs.relation.declared.chain.next(position), number: 0 };
            pairs.relation.start(key, moment, ctx.tasks.comm(tid), None, start);
        }
        Ok(Use::Relevant)
    }
}
