//! What a profiler has at hand while samples come.

use std::sync::Arc;

use perf_event_open_sys::bindings::{PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER};

use crate::host::Host;
use crate::output::Output;
use crate::perf::Sample;
use crate::perf::evsel::EventId;
use crate::perf::record::Innermost;
use crate::profiler::user_stacks::UserStacks;
use crate::profiler::{Scope, Timestamp};
use crate::report::{Command, LineageProcess, OccurrenceSchema, Subject, Value};
use crate::stats::TaskStack;
use crate::stats::weights::{StackWeights, Weighted};
use crate::symbol::{SpaceKeys, StackId, Stacks};
use crate::task::{Ancestor, Comm, TaskTable, Watched, procfs};

/// What a profiler has at hand while samples come.
pub struct Context {
    pub tasks: TaskTable,
    pub watched: Watched,
    pub scope: Scope,
    pub spaces: SpaceKeys,
    pub stacks: Stacks,
    /// Where events carry windows of user stacks.
    pub user_stacks: UserStacks,
    pub weights: StackWeights,
    pub host: Host,
    /// No event is older than the run: it began just before they were enabled.
    pub started_ns: Timestamp,
    /// What is emitted goes there.
    pub(crate) output: Output,
    /// Pairs that were thrown away because an end of theirs may not have been seen.
    pub discarded: u64,
    /// What could not be followed because too much is followed already.
    pub untracked: u64,
    /// What people should hear on stderr, until after the next tick.
    pub(crate) notes: Vec<String>,
}

impl Context {
    /// True for a task of the answer.
    #[inline]
    pub fn is_ours(&self, tid: i32) -> bool {
        self.watched.contains(tid) && !self.scope.is_own(tid)
    }

    /// Where and when a sample was, and of which task.
    #[inline]
    pub fn subject(&mut self, sample: &Sample<'_>) -> Subject {
        let Sample { time, cpu, pid, tid, .. } = *sample;
        Subject { time, cpu, pid, tid, comm: self.tasks.comm(tid) }
    }

    /// Hands over a tracepoint's record to be printed as it is, and a lineage to be told beside it.
    pub fn emit_event(
        &mut self,
        subject: Subject,
        event: EventId,
        raw: &[u8],
        lineage: Option<Arc<[LineageProcess]>>,
        stack: Option<StackId>,
    ) {
        self.output.batch.event(subject, event, raw, lineage.map(Value::Lineage), stack);
    }

    /// A process and those that have made it, as of now: see [`TaskTable::follow_ancestry`].
    pub fn lineage(&mut self, pid: i32) -> Arc<[LineageProcess]> {
        let kin = |Ancestor { pid, comm }| LineageProcess { pid, comm, command: Command::Unasked };
        self.tasks.lineage(pid).into_iter().map(kin).collect()
    }

    /// Hands over an occurrence of a profiler's own kind.
    pub fn emit<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        stack: Option<StackId>,
    ) {
        self.output.batch.add(schema, subject, occurrence, stack);
    }

    /// The sample's callchain, interned. None without one.
    #[inline(always)]
    pub fn stack(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        if self.user_stacks.is_on() {
            return self.user_stacks.intern(sample, &mut self.stacks, &mut self.spaces, self.output.published());
        }
        self.stacks.intern(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's task, with its callchain or, where that is not wanted, with the instruction.
    pub fn task_stack(&mut self, sample: &Sample<'_>, callchain: bool) -> TaskStack {
        let stack = if callchain { self.stack(sample) } else { self.address(sample) };
        TaskStack { pid: sample.pid, comm: self.tasks.comm(sample.tid), stack }
    }

    /// The sample's callchain in the kernel, where its event has it for nothing but the place.
    pub fn kernel_place(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        self.stacks.intern_uncounted(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's address as a stack of its own. None: it is one of a guest's, which means nothing here.
    pub fn address(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        let is_user = match u32::from(sample.misc()) & PERF_RECORD_MISC_CPUMODE_MASK {
            PERF_RECORD_MISC_USER => true,
            PERF_RECORD_MISC_KERNEL => false,
            _ => return None,
        };
        self.stacks.intern_address(sample.ip(), is_user, Innermost::Executed, sample.pid, &mut self.spaces)
    }

    /// An address in the code of a process as a stack of its own, where the events of the run hold addresses.
    pub fn user_address(&mut self, addr: u64, pid: i32) -> Option<StackId> {
        self.stacks.intern_address(addr, true, Innermost::Executed, pid, &mut self.spaces)
    }

    /// Adds to what fell on a stack of a task, for the flame graph and the lists of functions.
    #[inline]
    pub fn weigh(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.weights.add(pid, comm, stack, weight);
    }

    /// The same of a sample that is weighed later: see [`Event::WeighSamples`](crate::profiler::Event::WeighSamples).
    #[inline]
    pub fn weigh_later(&mut self, pid: i32, comm: Comm, stack: Option<StackId>) {
        self.weights.add_unweighed(pid, comm, stack);
    }

    /// Hands over an occurrence in which many stacks had a share.
    pub fn emit_weighted<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        weights: impl Iterator<Item = Weighted>,
    ) {
        self.output.batch.add_weighted(schema, subject, occurrence, weights);
    }

    /// Something that people should hear on stderr, after the next tick.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// What a waiting thread is waiting in, from /proc, now.
    pub fn wait_channel(&self, tid: i32) -> Option<String> {
        procfs::wchan(&self.host, tid)
    }

    /// CPU time that a thread has used, from /proc, now. None when the kernel does not tell.
    pub fn ran_ns_from_proc(&self, tid: i32) -> Option<u64> {
        procfs::ran_ns(&self.host, tid)
    }

    /// The signals that wait for a thread, from /proc, now.
    pub fn signals_from_proc(&self, tid: i32) -> Option<procfs::SignalState> {
        procfs::signals(&self.host, tid)
    }

    /// The signals that wait for a process, as one of its living threads tells. None when it has none.
    pub fn process_signals_from_proc(&self, pid: i32) -> Option<procfs::SignalState> {
        procfs::process_signals(&self.host, pid)
    }

    /// State, name and CPU of a thread, from /proc, now.
    pub fn state_from_proc(&self, tid: i32) -> Option<procfs::Stat> {
        procfs::stat(&self.host, tid)
    }
}
