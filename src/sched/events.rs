//! The events of the scheduler, and their fields.

use std::ops::Range;

use anyhow::{Context as _, Result};

use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evsel, Sample};
use crate::profiler::Setup;
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::sched::cpus::Switch;
use crate::sched::history::CpuUse;
use crate::sched::states::{States, SwitchedOut};
use crate::sched::tasks::TaskEvent;
use crate::symbol::kernel::kallsyms;
use crate::task::Comm;
use crate::tep::{Field, Filter, Format, Int32, ReadError, drift};

pub const SWITCH: &str = "sched:sched_switch";

/// The open scheduler events.
#[derive(Debug)]
pub struct SchedulerEvents {
    /// Switches; where `runnable` is open, only those from idle tasks and from tasks that block.
    pub switch: EventId,
    /// Switches from tasks that stay runnable, with their stacks.
    runnable: Option<EventId>,
    wakeup: WokenFields,
    wakeup_new: WokenFields,
    /// Kernels before 4.3 lack it.
    waking: Option<WokenFields>,
    pub migrate: MigrateFields,
    fields: SwitchFields,
    left: LeftStates,
}

/// Whether the stacks of preempted and yielding tasks are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnableStacks {
    None,
    /// As many kernel frames as are needed to recognise a yield.
    Yields,
    Whole,
}

/// A decoded record.
#[derive(Clone, Copy, Debug)]
pub enum SchedRecord {
    Switch(Switch),
    /// The wake-up follows, and may go unseen.
    Waking(TaskEvent),
    Woken {
        seen: TaskEvent,
        is_new: bool,
    },
    Migrated {
        tid: i32,
        from: u32,
        to: u32,
    },
    /// A wake-up of a task that was awake, or no record of these events.
    Nothing,
}

/// The fields of a switch.
#[derive(Debug)]
pub struct SwitchFields {
    prev_pid: Int32,
    prev_comm: Field,
    prev_prio: Int32,
    prev_state: Field,
    next_pid: Int32,
    next_comm: Field,
    next_prio: Int32,
}

impl SwitchFields {
    /// # Errors
    /// The format lacks a field.
    pub fn of(switch: &Format) -> Result<SwitchFields> {
        let field = |name: &str| drift::require(switch, name).cloned();
        let number = |name: &str| -> Result<Int32> { Ok(drift::require(switch, name)?.int32()?) };
        Ok(SwitchFields {
            prev_pid: number("prev_pid")?,
            prev_comm: field("prev_comm")?,
            prev_prio: number("prev_prio")?,
            prev_state: field("prev_state")?,
            next_pid: number("next_pid")?,
            next_comm: field("next_comm")?,
            next_prio: number("next_prio")?,
        })
    }

    /// # Errors
    /// The record ends before its fields do.
    #[inline(always)]
    pub fn read(&self, sample: &Sample<'_>) -> Result<Switch, ReadError> {
        let raw = sample.raw;
        let (prev, next) = (self.prev_pid.read(raw)?, self.next_pid.read(raw)?);
        let prev_comm = Comm::of_task(self.prev_comm.bytes(raw)?);
        let next_comm = Comm::of_task(self.next_comm.bytes(raw)?);
        Ok(Switch {
            at_ns: sample.time,
            cpu: sample.cpu,
            prev: CpuUse::of(prev, prev_comm, self.prev_prio.read(raw)?),
            prev_state: self.prev_state.read_u64(raw)?,
            next: CpuUse::of(next, next_comm, self.next_prio.read(raw)?),
        })
    }
}

#[derive(Debug)]
struct WokenFields {
    event: EventId,
    pid: Int32,
    comm: Field,
    target_cpu: Int32,
    /// Zero when the task was awake already.
    success: Option<Field>,
}

#[derive(Debug)]
pub struct MigrateFields {
    pub event: EventId,
    pid: Int32,
    orig_cpu: Int32,
    dest_cpu: Int32,
}

impl WokenFields {
    /// False for a wake-up of a task that was awake.
    #[inline]
    fn happened(&self, raw: &[u8]) -> bool {
        self.success.as_ref().is_none_or(|success| success.read_u64(raw) != Ok(0))
    }

    #[inline(always)]
    fn read(&self, sample: &Sample<'_>) -> Result<TaskEvent, ReadError> {
        let raw = sample.raw;
        let (tid, comm) = (self.pid.read(raw)?, Comm::of_task(self.comm.bytes(raw)?));
        let cpu = self.target_cpu.read(raw)?.cast_unsigned();
        Ok(TaskEvent { at_ns: sample.time, cpu, tid, comm })
    }
}

/// How a task left its CPU, by `prev_state` and the kernel's functions in the stack of the switch.
#[derive(Debug)]
struct LeftStates {
    states: States,
    /// The functions in which a task yields. Empty: unknown.
    yields: Vec<Range<u64>>,
}

impl LeftStates {
    /// A task whose `prev_state` has no bit set is runnable. An additional bit says that it was preempted in the
    /// kernel. Without that bit it yielded, or was preempted on its way to user mode: only its stack tells which.
    #[inline]
    fn of(&mut self, prev_state: u64, sample: &Sample<'_>) -> SwitchedOut {
        let in_yield = |addr: u64| self.yields.iter().any(|function| function.contains(&addr));
        match self.states.decode(prev_state) {
            SwitchedOut::Runnable { .. } => {
                SwitchedOut::Runnable { yields: prev_state == 0 && sample.callchain.iter().any(in_yield) }
            }
            blocked_or_dead => blocked_or_dead,
        }
    }

    fn tells_yields(&self) -> bool {
        !self.yields.is_empty()
    }

    /// Switches from tasks that stay runnable; `all`: including those that were preempted in the kernel.
    fn runnable(&self, all: bool, switch: &Format) -> Option<Filter> {
        let parsed = |text: &str| Filter::parse(text, switch).ok();
        let runnable = match all {
            true => parsed(&format!("prev_state & {}", self.states.mask()))?.negated(),
            false => parsed("prev_state == 0")?,
        };
        Filter::all_of([Some(runnable), parsed("prev_pid != 0")])
    }
}

/// The kernel functions in which a task yields its CPU: sched_yield(2), and functions that drivers call.
fn yields(setup: &Setup<'_>) -> Vec<Range<u64>> {
    kallsyms::ranges_of(&setup.host.proc.join("kallsyms"), |name| {
        matches!(name, "do_sched_yield" | "yield" | "SyS_sched_yield") || name.ends_with("sys_sched_yield")
    })
}

impl SchedulerEvents {
    pub fn switches(&self) -> [EventId; 2] {
        [self.switch, self.runnable.unwrap_or(self.switch)]
    }

    /// Whether yields can be distinguished from preemptions.
    pub fn tells_yields(&self) -> bool {
        self.left.tells_yields()
    }

    /// # Errors
    /// The record ends before its fields do.
    #[inline(always)]
    pub fn read(&self, event: EventId, sample: &Sample<'_>) -> Result<SchedRecord, ReadError> {
        if event == self.switch || Some(event) == self.runnable {
            return Ok(SchedRecord::Switch(self.fields.read(sample)?));
        }
        let raw = sample.raw;
        if event == self.migrate.event {
            let MigrateFields { pid, orig_cpu, dest_cpu, .. } = &self.migrate;
            let cpu = |field: &Int32| Ok(field.read(raw)?.cast_unsigned());
            return Ok(SchedRecord::Migrated { tid: pid.read(raw)?, from: cpu(orig_cpu)?, to: cpu(dest_cpu)? });
        }
        let waking = self.waking.as_ref().filter(|waking| waking.event == event);
        let is_new = self.wakeup_new.event == event;
        let fields = waking.unwrap_or(if is_new { &self.wakeup_new } else { &self.wakeup });
        if fields.event != event || !fields.happened(raw) {
            return Ok(SchedRecord::Nothing);
        }
        let seen = fields.read(sample)?;
        Ok(if waking.is_some() { SchedRecord::Waking(seen) } else { SchedRecord::Woken { seen, is_new } })
    }

    /// How the task left its CPU in this switch; `sample` is the sample of the switch.
    #[inline(always)]
    pub fn left(&mut self, switch: &Switch, sample: &Sample<'_>) -> SwitchedOut {
        self.left.of(switch.prev_state, sample)
    }

    /// `of_migrations`: migrations are recorded with stacks.
    ///
    /// # Errors
    /// There is no such event here, or it lacks a field.
    pub fn open(
        wants: RunnableStacks,
        of_migrations: bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<SchedulerEvents> {
        /// Deep enough to reach the system call.
        const YIELD_DEPTH: u16 = 8;
        let add = |evlist: &mut Evlist, name: &str, change: &dyn Fn(Evsel) -> Evsel| -> Result<_> {
            let (evsel, format) = setup.tracepoint(name)?;
            Ok((evlist.add(change(evsel.binding(Binding::Cpu)))?, format))
        };
        let plain = |evsel: Evsel| evsel;
        let woken = |evlist: &mut Evlist, name: &str| -> Result<WokenFields> {
            let (event, format) = add(evlist, name, &plain)?;
            let field = |name: &str| drift::require(&format, name);
            Ok(WokenFields {
                event,
                pid: field("pid")?.int32()?,
                comm: field("comm")?.clone(),
                target_cpu: field("target_cpu")?.int32()?,
                success: drift::wakeup_success(&format).cloned(),
            })
        };
        let (switch, format) = add(evlist, SWITCH, &plain)?;
        let states =
            States::new(&format).context("sched:sched_switch does not tell the task states in its print format")?;
        let yields = if wants == RunnableStacks::None { Vec::new() } else { yields(setup) };
        let left = LeftStates { states, yields };
        let fields = SwitchFields::of(&format)?;
        let runnable = match (wants, left.tells_yields()) {
            (RunnableStacks::Whole, _) => Some(add(evlist, SWITCH, &|evsel| evsel.callchain_if(true, 0))?.0),
            (RunnableStacks::Yields, true) => Some(add(evlist, SWITCH, &|evsel| evsel.kernel_place(YIELD_DEPTH))?.0),
            (RunnableStacks::Yields, false) | (RunnableStacks::None, _) => None,
        };
        let wakeup = woken(evlist, "sched:sched_wakeup")?;
        let wakeup_new = woken(evlist, "sched:sched_wakeup_new")?;
        let waking = woken(evlist, "sched:sched_waking").ok();
        let (event, format) = add(evlist, "sched:sched_migrate_task", &|evsel| evsel.callchain_if(of_migrations, 0))?;
        let field = |name: &str| -> Result<Int32> { Ok(drift::require(&format, name)?.int32()?) };
        let migrate =
            MigrateFields { event, pid: field("pid")?, orig_cpu: field("orig_cpu")?, dest_cpu: field("dest_cpu")? };
        Ok(SchedulerEvents { switch, runnable, wakeup, wakeup_new, waking, migrate, fields, left })
    }

    /// Has the kernel take stacks only of the selected tasks, and, `without_queues`, drop the wake-ups of all other
    /// tasks.
    ///
    /// # Errors
    /// There is no such event here.
    pub fn narrow(
        &self,
        tasks: &TaskMatch<'_>,
        without_queues: bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        let switch = setup.format(SWITCH)?;
        if let Some(event) = self.runnable
            && let Some(runnable) = self.left.runnable(setup.stacks, &switch)
        {
            let ours = tasks.filter("prev_comm", "prev_pid", &switch);
            let of_ours = ours.map(|ours| runnable.clone().and(ours));
            // Each switch passes exactly one of the two filters.
            let with_stack = of_ours.filter(|filter| filter.clone().negated().is_short()).unwrap_or(runnable);
            evlist.narrow(self.switch, [Some(with_stack.clone().negated())]);
            evlist.narrow(event, [Some(with_stack)]);
        }
        if !without_queues {
            return Ok(());
        }
        if tasks.is_all() && !setup.watched.is_all() {
            setup.note("the watched tasks may grow: they are told apart here, not in the kernel".to_owned());
        }
        let waking = self.waking.as_ref().map(|waking| waking.event);
        let mut is_short = true;
        for event in [self.wakeup.event, self.wakeup_new.event, self.migrate.event].into_iter().chain(waking) {
            let format = setup.format_of(evlist.evsel(event))?;
            is_short &= evlist.narrow(event, [tasks.filter("comm", "pid", &format)]);
        }
        if !tasks.is_all() && !is_short {
            note_too_long(setup);
        }
        Ok(())
    }
}
