//! What is counted of a call that has ended.

use crate::profiler::{Context, Timestamp};
use crate::profilers::syscalls::table::{CallSums, CallThread};
use crate::profilers::syscalls::{CallInFlight, CallMoment, EndedCall};
use crate::stats::{OpenPair, WorstCase};
use crate::tep::errnos;

/// What a call counts as.
#[derive(Clone, Copy, Debug)]
pub struct CountRules {
    /// Calls that are as long count as over the limit.
    pub limit_ns: u64,
    /// The end of the last interval that was printed.
    pub printed_until: Timestamp,
    /// Rows are by thread, too.
    pub by_thread: bool,
    /// Stacks have the time of their calls as weights.
    pub draws_stacks: bool,
}

impl CountRules {
    /// Counts a call that has ended.
    // The start may have been written just before: only what is needed is read of it, as it was written.
    #[inline(always)]
    pub fn count(
        self,
        sums: &mut CallSums,
        pair: &OpenPair<CallInFlight>,
        ended: EndedCall,
        at: CallMoment,
        ctx: &mut Context,
    ) {
        let OpenPair { since, open } = pair;
        let CallMoment { time, cpu, tid, .. } = at;
        let ns = time - since; // Pairs has compared them
        let thread = if self.by_thread { Some(CallThread { tid, comm: open.comm }) } else { None };
        let sum = sums.of(open.call, thread);
        let case = || WorstCase { ns, at: time, cpu, tid, comm: open.comm, stack: open.stack };
        sum.latency.record(ns, time, case);
        if let Some(errno) = ended.errno {
            *(if errnos::is_restart(errno) { &mut sum.interrupted } else { &mut sum.errors }) += 1;
        }
        sum.earlier += u64::from(*since < self.printed_until);
        sum.than += u64::from(ns >= self.limit_ns);
        if self.draws_stacks {
            ctx.weigh(at.pid, open.comm, open.stack, ns / 1000);
        }
    }
}
