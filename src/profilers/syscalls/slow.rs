//! Calls that have a line of their own: calls over the limit, also while they are in progress.

use std::sync::Arc;

use anyhow::Result;

use crate::calls::call::CallInFlight;
use crate::calls::kinds::CallKind;
use crate::calls::paths::{CallPaths, PathOfCall};
use crate::calls::sched::SchedEvents;
use crate::calls::where_time::{CallClock, CallClocks, TimeParts};
use crate::cli::LatencyArgs;
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, ReturnedAddresses, Setup};
use crate::profilers::syscalls::args::SyscallsArgs;
use crate::profilers::syscalls::line::{SLOW, SlowCall};
use crate::relation::{EventMoment, OpenStart, PairStart};
use crate::report::Subject;
use crate::sched::{SchedState, TaskEvent};
use crate::stats::Began;
use crate::symbol::StackId;
use crate::tep::syscalls::call_text::MadeCall;

/// A call in progress has no line before it has lasted this long, ns: a call that ends soon gets a single line.
const FIRST_NS: u64 = 200_000_000;

/// What is needed for lines.
#[derive(Debug)]
pub struct SlowCalls {
    sched: SchedEvents,
    /// Present if the user named calls that return addresses: these mostly wait by design, and a copy costs each of them.
    addresses: Option<ReturnedAddresses>,
    clocks: CallClocks,
    lengths: LatencyArgs,
    /// Calls that wait by design have lines: the user named them.
    waits_too: bool,
    /// `-g`
    stacks: bool,
}

impl SlowCalls {
    /// None: no lines are wanted.
    ///
    /// # Errors
    /// As [`SchedEvents::open`].
    pub fn open(
        args: &SyscallsArgs,
        exit: EventId,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<Option<SlowCalls>> {
        if !args.lengths.shows_any() {
            return Ok(None);
        }
        let stacks = args.common.stacks();
        let wanted = |number| !args.no_paths && args.calls.as_ref().is_some_and(|calls| calls.contains(number));
        Ok(Some(SlowCalls {
            addresses: ReturnedAddresses::ask(exit, wanted, evlist, setup)?,
            sched: SchedEvents::open(stacks, evlist, setup)?,
            clocks: CallClocks::default(),
            lengths: args.lengths,
            waits_too: args.calls.is_some(),
            stacks,
        }))
    }

    /// # Errors
    /// As [`SchedEvents::filter`].
    pub fn filter(&self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.sched.filter(evlist, setup)
    }

    /// As [`SchedEvents::sample`].
    ///
    /// # Errors
    /// As there.
    pub fn sched(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<bool> {
        if let Some(addresses) = self.addresses.as_mut().filter(|addresses| addresses.event == event) {
            addresses.take(sample);
            return Ok(false);
        }
        self.sched.sample(event, sample, &mut self.clocks, ctx)
    }

    pub fn entered(&mut self, seen: TaskEvent, args: [u64; 6]) {
        self.clocks.entered(seen, args);
    }

    /// A thread was found in a call. `since`: the start of the run, or the end of a loss.
    pub fn found(&mut self, tid: i32, since: u64, args: [u64; 6], state: SchedState) {
        self.clocks.found(tid, since, args, state);
    }

    /// A SWITCH record says that the thread got a CPU.
    pub fn came(&mut self, seen: TaskEvent) {
        self.clocks.came(seen);
    }

    /// States of threads may have changed unseen until `end`.
    pub fn lost(&mut self, end: u64) {
        self.clocks.lost(end);
    }

    pub fn forget(&mut self, tid: i32) {
        self.clocks.forget(tid);
    }

    /// A thread gets another tid.
    pub fn took_over(&mut self, old: i32, new: i32) {
        self.clocks.took_over(old, new);
    }

    /// Forgets the threads that have exited.
    pub fn retain(&mut self, lives: impl FnMut(i32) -> bool) {
        self.clocks.retain(lives);
    }

    pub fn stacks_in_use(&self) -> impl Iterator<Item = StackId> {
        self.clocks.stacks()
    }

    /// A call ends: the address that it returns was read before, if it returns one.
    pub fn call_ends(&mut self, end: &Sample<'_>) {
        self.addresses.iter_mut().for_each(|addresses| addresses.ended(end));
    }

    /// Records of a CPU were lost.
    pub fn forget_address(&mut self, cpu: u32) {
        self.addresses.iter_mut().for_each(|addresses| addresses.forget(cpu));
    }

    /// Shows the call that has ended, if options ask for it. `ret`: its return value.
    pub fn ended(
        &mut self,
        pair: &OpenStart<CallInFlight>,
        kind: CallKind,
        moment: EventMoment,
        (ret, mut paths): (i64, [PathOfCall; 2]),
        ctx: &mut Context,
    ) {
        if let Some(address) = self.addresses.as_mut().and_then(ReturnedAddresses::returned) {
            paths[0] = PathOfCall::Socket(address);
        }
        let EventMoment { time, cpu, pid, tid } = moment;
        let Some((clock, parts)) = self.clocks.exited(tid, time) else { return };
        let ns = time.saturating_sub(pair.since);
        // If the call began unseen, its whole length is unknown.
        let is_whole = pair.open.own.began == Began::Exactly;
        let shows = if is_whole { self.lengths.shows(ns) } else { self.lengths.is_over(ns) };
        let is_wanted = shows && self.has_lines(kind);
        if is_wanted || clock.is_shown {
            let subject = Subject { time, cpu, pid, tid, comm: pair.open.comm };
            self.emit(pair, &clock, parts, (Some(ret), paths), subject, ctx);
        }
    }

    /// Shows calls that have been in progress for long, each once.
    pub fn show_open<'a>(
        &mut self,
        open: impl Iterator<Item = (i32, &'a OpenStart<CallInFlight>)>,
        kind: impl Fn(&CallInFlight) -> CallKind,
        paths: Option<&CallPaths>,
        now: u64,
        ctx: &mut Context,
    ) {
        let Some(first) = self.lengths.than_ns().map(|limit| limit.max(FIRST_NS)) else { return };
        for (tid, pair) in open {
            if now.saturating_sub(pair.since) < first || !self.has_lines(kind(&pair.open.own)) {
                continue;
            }
            let Some(clock) = self.clocks.get_mut(tid, now).filter(|clock| !clock.is_shown) else { continue };
            clock.is_shown = true;
            let (clock, parts) = (clock.clone(), clock.so_far(now));
            let PairStart { pid, comm, cpu, .. } = pair.open;
            let paths = paths.map_or_else(Default::default, |paths| paths.of(tid, pair.open.own.call));
            self.emit(pair, &clock, parts, (None, paths), Subject { time: now, cpu, pid, tid, comm }, ctx);
        }
    }

    fn has_lines(&self, kind: CallKind) -> bool {
        kind != CallKind::Waits || self.waits_too
    }

    fn emit(
        &self,
        pair: &OpenStart<CallInFlight>,
        clock: &CallClock,
        parts: TimeParts,
        (ret, paths): (Option<i64>, [PathOfCall; 2]),
        subject: Subject,
        ctx: &mut Context,
    ) {
        let call = pair.open.own.call;
        let made = MadeCall {
            number: call.number,
            is_compat: call.is_compat,
            tid: subject.tid,
            args: clock.args,
            ret,
            paths: paths.each_ref().map(PathOfCall::text),
        };
        let slow = SlowCall {
            call,
            duration_ns: subject.time.saturating_sub(pair.since),
            made: Arc::new(made),
            still_open: ret.is_none(),
            began: pair.open.own.began,
            parts,
        };
        let stack = parts.wait_stack.or(pair.open.stack).filter(|_| self.stacks);
        ctx.emit(&SLOW, subject, &slow, stack);
    }
}
