//! What a profiler can use while it handles samples.

use std::sync::Arc;

use perf_event_open_sys::bindings::{PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER};

use crate::host::Host;
use crate::output::Output;
use crate::perf::record::Innermost;
use crate::perf::{EventId, Sample};
use crate::profiler::lineage::{Lineage, LineageProcess};
use crate::profiler::user_stacks::UserStacks;
use crate::profiler::{RunScope, Timestamp};
use crate::report::{Command, LateText, OccurrenceSchema, Subject, Value};
use crate::stats::TaskStack;
use crate::stats::weights::{StackWeights, Weighted};
use crate::symbol::{SpaceKeys, StackId, Stacks};
use crate::sys::scheduling_policy;
use crate::task::{Ancestor, Comm, TaskTable, Watched, procfs};

/// What a profiler can use while it handles samples.
pub struct Context {
    pub tasks: TaskTable,
    pub watched: Watched,
    pub scope: RunScope,
    pub spaces: SpaceKeys,
    pub stacks: Stacks,
    /// Unwinds user stacks, if events carry windows.
    pub user_stacks: UserStacks,
    /// The sums of the view whose profiler is called.
    pub view: ViewSums,
    pub host: Host,
    /// The start of the run, just before events were enabled: no record is older.
    pub started_ns: Timestamp,
    /// Takes the occurrences.
    pub(crate) output: Output,
    /// Lines for stderr, printed after the next tick.
    pub(crate) notes: Vec<String>,
}

/// The sums of one view of a run.
#[derive(Debug, Default)]
pub struct ViewSums {
    pub weights: StackWeights,
    /// Number of pairs that were discarded because one of their events may have been missed.
    pub discarded: u64,
    /// Number of objects that could not be followed because a table was full.
    pub untracked: u64,
}

impl Context {
    /// True for a task of the target.
    #[inline]
    pub fn is_ours(&self, tid: i32) -> bool {
        self.watched.contains(tid) && !self.scope.is_own(tid)
    }

    /// The task, time and CPU of a sample.
    #[inline]
    pub fn subject(&mut self, sample: &Sample<'_>) -> Subject {
        let Sample { time, cpu, pid, tid, .. } = *sample;
        Subject { time, cpu, pid, tid, comm: self.tasks.comm(tid) }
    }

    /// Hands over a tracepoint's record to be printed as it is, with a value to show beside it.
    pub fn emit_event(
        &mut self,
        subject: Subject,
        event: EventId,
        raw: &[u8],
        beside: Option<Value>,
        stack: Option<StackId>,
    ) {
        self.output.batch.event(subject, event, raw, beside, stack);
    }

    /// A process and its ancestors, as of now: see [`TaskTable::follow_ancestry`].
    pub fn lineage(&mut self, pid: i32) -> Lineage {
        let kin = |Ancestor { pid, comm, executed }| {
            let command = Command::Unasked;
            LineageProcess { pid, comm, command, executed }
        };
        Lineage(self.tasks.lineage(pid).into_iter().map(kin).collect())
    }

    /// Has the missing texts of rows looked up as soon as possible, since their processes may change or exit.
    pub fn look_up(&mut self, texts: Vec<Arc<LateText>>) {
        self.output.look_up(texts);
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

    /// The sample's callchain, interned. None: the sample has no callchain.
    #[inline(always)]
    pub fn stack(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        if self.user_stacks.is_on() {
            return self.user_stacks.intern(sample, &mut self.stacks, &mut self.spaces, self.output.published());
        }
        self.stacks.intern(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's task with its callchain or, if `callchain` is false, with the address of its instruction.
    pub fn task_stack(&mut self, sample: &Sample<'_>, callchain: bool) -> TaskStack {
        let stack = if callchain { self.stack(sample) } else { self.address(sample) };
        TaskStack { pid: sample.pid, comm: self.tasks.comm(sample.tid), stack }
    }

    /// The sample's kernel callchain, for an event that has it only for [`Value::Place`].
    pub fn kernel_place(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        self.stacks.intern_uncounted(sample.callchain, sample.chain_form(), sample.pid, &mut self.spaces)
    }

    /// The sample's address as a stack of its own. None: the address belongs to a guest, and cannot be named.
    pub fn address(&mut self, sample: &Sample<'_>) -> Option<StackId> {
        let is_user = match u32::from(sample.misc()) & PERF_RECORD_MISC_CPUMODE_MASK {
            PERF_RECORD_MISC_USER => true,
            PERF_RECORD_MISC_KERNEL => false,
            _ => return None,
        };
        self.stacks.intern_address(sample.ip(), is_user, Innermost::Executed, sample.pid, &mut self.spaces)
    }

    /// As [`Context::kernel_address`], of the instruction behind a call.
    pub fn kernel_caller(&mut self, addr: u64) -> Option<StackId> {
        self.stacks.intern_address(addr, false, Innermost::BehindCall, 0, &mut self.spaces)
    }

    /// An address of the kernel as a stack of its own.
    pub fn kernel_address(&mut self, addr: u64, pid: i32) -> Option<StackId> {
        self.stacks.intern_address(addr, false, Innermost::Executed, pid, &mut self.spaces)
    }

    /// An address in the code of a process as a stack of its own, in a run whose events hold addresses.
    pub fn user_address(&mut self, addr: u64, pid: i32) -> Option<StackId> {
        self.stacks.intern_address(addr, true, Innermost::Executed, pid, &mut self.spaces)
    }

    /// Adds to the weight of a stack of a task, for the flame graph and the lists of functions.
    #[inline]
    pub fn weigh(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.view.weights.add(pid, comm, stack, weight);
    }

    /// As [`Context::weigh`], for a sample whose weight is not known yet: see
    /// [`Event::WeighSamples`](crate::profiler::Event::WeighSamples).
    #[inline]
    pub fn weigh_later(&mut self, pid: i32, comm: Comm, stack: Option<StackId>) {
        self.view.weights.add_unweighed(pid, comm, stack);
    }

    /// Hands over an occurrence with the weights of the stacks that contributed to it.
    pub fn emit_weighted<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        weights: impl Iterator<Item = Weighted>,
    ) {
        self.output.batch.add_weighted(schema, subject, occurrence, weights);
    }

    /// Adds a line for stderr, printed after the next tick.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// CPU time that a thread has used, read from /proc. None: it cannot be read.
    pub fn ran_ns_from_proc(&self, tid: i32) -> Option<u64> {
        procfs::ran_ns(&self.host, tid)
    }

    /// The signals that are pending for a thread, read from /proc.
    pub fn signals_from_proc(&self, tid: i32) -> Option<procfs::SignalState> {
        procfs::signals(&self.host, tid)
    }

    /// The signals that are pending for a process, from one of its living threads. None: the process has no living
    /// thread.
    pub fn process_signals_from_proc(&self, pid: i32) -> Option<procfs::SignalState> {
        procfs::process_signals(&self.host, pid)
    }

    /// The scheduling policy of a thread, now.
    pub fn policy(&self, tid: i32) -> Option<u32> {
        scheduling_policy(tid)
    }

    /// The threads that live and are watched, without our own.
    pub fn watched_threads(&self) -> impl Iterator<Item = i32> {
        let living = self.tasks.living().map(|(tid, _)| tid);
        living.filter(|&tid| self.watched.contains(tid) && !self.scope.is_own(tid))
    }

    /// State and name of a thread, read from /proc.
    pub fn state_from_proc(&self, tid: i32) -> Option<procfs::BriefStatus> {
        procfs::brief(&self.host, tid)
    }
}
