//! The events of task-state, and their fields.

use crate::profilers::task_state::notes::WaitWaker;
use crate::sched::States;
use anyhow::{Context as _, Result};

use crate::host::{Host, sysctl};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Setup};
use crate::task::Comm;
use crate::tep::context::ContextFlags;
use crate::tep::{Field, Format, Int32, Int64, ReadError, drift};

const WAKING: &str = "sched:sched_waking";

/// The events that are wanted besides switches and wake-ups.
#[derive(Clone, Copy, Debug)]
pub struct WantedEvents {
    /// Callchains of switches.
    pub stacks: bool,
    pub new_tasks: bool,
    /// `sched_waking`, in the context of the waker; kernels before 4.3 lack it.
    pub wakings: bool,
    /// `sched_waking` in interrupts, with the kernel stack.
    pub interrupts: bool,
    /// The priorities of tasks.
    pub priorities: bool,
    /// See [`TaskStateEvents::other`].
    pub other: bool,
}

/// The open events.
#[derive(Debug)]
pub struct TaskStateEvents {
    pub switch: EventId,
    /// With -S or -D, the other switches that show the end of a wait whose waking goes unseen: into the state that
    /// options do not ask for, and, where the kernel filters tasks, back to the CPU.
    pub other: Option<EventId>,
    pub fields: SchedFields,
    pub states: States,
}

impl TaskStateEvents {
    pub fn switches(&self) -> Vec<EventId> {
        std::iter::once(self.switch).chain(self.other).collect()
    }
}

/// The fields of the events, resolved once.
#[derive(Debug)]
pub struct SchedFields {
    pub prev_pid: Int32,
    pub prev_comm: Field,
    pub prev_prio: Option<Int32>,
    pub prev_state: PrevState,
    pub next_pid: Int32,
    pub next_comm: Field,
    pub next_prio: Option<Int32>,
    pub wakeup: WakeupFields,
    pub wakeup_new: Option<WakeupFields>,
    pub waking: Option<WakeupFields>,
    /// A second `sched_waking`, with the kernel stack, filtered to wakings in interrupts. `waking` has the remaining
    /// ones.
    pub waking_interrupt: Option<EventId>,
}

/// The field `prev_state` of a switch: the state in which the task leaves. One word on a 64-bit kernel.
#[derive(Debug)]
pub enum PrevState {
    Word(Int64),
    Other(Field),
}

impl PrevState {
    fn of(field: Field) -> PrevState {
        field.int64().map_or(PrevState::Other(field), PrevState::Word)
    }

    /// # Errors
    /// As [`Field::read_u64`].
    #[inline(always)]
    pub fn read(&self, raw: &[u8]) -> Result<u64, ReadError> {
        match self {
            PrevState::Word(word) => word.read(raw),
            PrevState::Other(field) => read_other(field, raw),
        }
    }
}

/// Cold: no current kernel needs it.
#[cold]
#[inline(never)]
fn read_other(field: &Field, raw: &[u8]) -> Result<u64, ReadError> {
    field.read_u64(raw)
}

/// The fields of a wake-up event.
#[derive(Debug)]
pub struct WakeupFields {
    pub event: EventId,
    pub pid: Int32,
    pub comm: Field,
    pub prio: Option<Int32>,
    context: ContextFlags,
    /// Zero when the task was awake already.
    success: Option<Field>,
}

impl TaskStateEvents {
    /// # Errors
    /// There is no such event here, or it lacks a field.
    pub fn open(wanted: WantedEvents, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<TaskStateEvents> {
        let add = |evlist: &mut Evlist, name: &str, stacks: bool| -> Result<_> {
            let (evsel, format) = setup.tracepoint(name)?;
            let evsel = evsel.binding(Binding::Cpu);
            Ok((evlist.add(evsel.callchain_if(stacks, 0))?, format))
        };
        let priority = |format: &Format, name: &str| -> Result<Option<Int32>> {
            if !wanted.priorities {
                return Ok(None);
            }
            Ok(Some(drift::require(format, name)?.int32()?))
        };
        let woken = |evlist: &mut Evlist, name: &str| -> Result<WakeupFields> {
            let (event, format) = add(evlist, name, false)?;
            Ok(WakeupFields {
                event,
                pid: drift::require(&format, "pid")?.int32()?,
                comm: drift::require(&format, "comm")?.clone(),
                prio: priority(&format, "prio")?,
                context: ContextFlags::of(&format),
                success: drift::wakeup_success(&format).cloned(),
            })
        };
        let waking = if wanted.wakings { woken(evlist, WAKING).ok() } else { None };
        let in_interrupt = |evlist: &mut Evlist| -> Result<EventId> {
            let (evsel, _) = setup.tracepoint(WAKING)?;
            evlist.add(evsel.binding(Binding::Cpu).kernel_place(interrupt_depth(setup.host)))
        };
        let waking_interrupt = match &waking {
            Some(waking) if wanted.interrupts && waking.context.is_known() => Some(in_interrupt(evlist)?),
            _ => None,
        };
        let (switch, format) = add(evlist, "sched:sched_switch", wanted.stacks)?;
        let states =
            States::new(&format).context("sched:sched_switch does not tell the task states in its print format")?;
        let field = |name: &str| drift::require(&format, name).cloned();
        let fields = SchedFields {
            prev_pid: field("prev_pid")?.int32()?,
            prev_comm: field("prev_comm")?,
            prev_prio: priority(&format, "prev_prio")?,
            prev_state: PrevState::of(field("prev_state")?),
            next_pid: field("next_pid")?.int32()?,
            next_comm: field("next_comm")?,
            next_prio: priority(&format, "next_prio")?,
            wakeup: woken(evlist, "sched:sched_wakeup")?,
            wakeup_new: if wanted.new_tasks { Some(woken(evlist, "sched:sched_wakeup_new")?) } else { None },
            waking,
            waking_interrupt,
        };
        let other = if wanted.other { Some(add(evlist, "sched:sched_switch", false)?.0) } else { None };
        Ok(TaskStateEvents { switch, other, fields, states })
    }
}

/// Frames of an interrupt's stack: between the network softirq and the waking of a task that waits for a packet there
/// are some thirty.
fn interrupt_depth(host: &Host) -> u16 {
    const LIMIT: u16 = 32;
    let limit = sysctl(host, "perf_event_max_stack").and_then(|limit| u16::try_from(limit).ok());
    limit.map_or(LIMIT, |limit| LIMIT.min(limit))
}

impl WakeupFields {
    /// False for a wake-up of a task that was awake.
    #[inline]
    pub fn happened(&self, raw: &[u8]) -> bool {
        self.success.as_ref().is_none_or(|success| success.read_u64(raw) != Ok(0))
    }
}

/// The name of a task in a record, where names are needed.
#[inline(always)]
pub fn name(needed: bool, field: &Field, raw: &[u8]) -> Result<Comm, ReadError> {
    if needed { read_name(field, raw) } else { Ok(Comm::default()) }
}

/// Not inlined: the code that cuts a name would be copied to every caller, also to those that need no name.
#[inline(never)]
fn read_name(field: &Field, raw: &[u8]) -> Result<Comm, ReadError> {
    field.bytes(raw).map(Comm::of_task)
}

/// Like `waker`, without the kind of interrupt.
#[inline(never)]
pub fn brief_waker(sample: &Sample<'_>, fields: &WakeupFields, ctx: &mut Context) -> WaitWaker {
    match fields.context.interruption(sample.raw) {
        Some(interruption) => WaitWaker::Interrupt(interruption, None),
        None => WaitWaker::Task { tid: sample.tid, comm: ctx.tasks.comm(sample.tid) },
    }
}

/// The task or interrupt that performs a wake-up.
#[inline(never)]
pub fn waker(sample: &Sample<'_>, fields: &WakeupFields, ctx: &mut Context) -> WaitWaker {
    if let Some(interruption) = fields.context.interruption(sample.raw) {
        return WaitWaker::Interrupt(interruption, ctx.kernel_place(sample));
    }
    WaitWaker::Task { tid: sample.tid, comm: ctx.tasks.comm(sample.tid) }
}
