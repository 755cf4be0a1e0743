//! Handles the samples for the tables of calls: no lines, no paths, no stacks.
//!
//! A program can make millions of system calls per second, so each step counts here: what `Syscalls::sample` decides
//! for each record is decided in advance, and samples are not written to memory.

use anyhow::Result;

use crate::calls::call::EndedCall;
use crate::calls::events::ExitFields;
use crate::calls::kinds::CallNumber;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Handler, Samples, Use};
use crate::profilers::syscalls::Syscalls;
use crate::relation::EventMoment;
use crate::tep::Int64;

struct PlainCalls<'a> {
    calls: &'a mut Syscalls,
    enter: EventId,
    entered_id: Int64,
    exit: EventId,
    exited: ExitFields,
}

impl Syscalls {
    /// Only tables without stacks are wanted.
    pub(super) fn is_plain(&self) -> bool {
        !self.args.errors && self.slow.is_none() && self.paths.is_none() && !self.takes_stacks()
    }

    /// Counts the calls of `samples`.
    pub(super) fn count_plainly(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        let Some(events) = &self.events else { return };
        let Some((enter, fields)) = &events.enter else { return };
        let (enter, entered_id, exit, exited) = (*enter, fields.id, events.exit, events.exited);
        samples.each(&mut PlainCalls { calls: self, enter, entered_id, exit, exited }, ctx);
    }
}

impl Handler for PlainCalls<'_> {
    #[inline(always)]
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let (raw, at) = (sample.raw, EventMoment::of(sample));
        let is_compat = sample.is_compat_at_end();
        if event == self.enter {
            let id = self.entered_id.read(raw)?.cast_signed();
            return Ok(self.calls.entered(at, CallNumber::new(id, is_compat), None, ctx));
        }
        if event != self.exit {
            return Ok(Use::Ignored);
        }
        let (id, ret) = (self.exited.id.read(raw)?.cast_signed(), self.exited.ret.read(raw)?.cast_signed());
        Ok(self.calls.exited(at, EndedCall::of(id, is_compat, ret), ctx))
    }
}
