//! The events of the command line, prepared for the relation.

use std::sync::Arc;

use anyhow::Result;

use crate::event::{BoundEvent, KeyExpr};
use crate::expr::{ExprValue, NoResult, Program};
use crate::perf::evsel::Binding;
use crate::perf::{Evlist, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{Setup, ShownEvent};
use crate::profilers::multi_trace::detail::{MAX_MARKS, RecordMarks};
use crate::profilers::multi_trace::scheduling::Scheduling;
use crate::relation::Positions;
use crate::task::Watched;
use crate::tep::format::Format;
use crate::tep::format::field::Int32;

/// Fields that name a CPU, and fields that name a thread or a process.
const CPU_FIELDS: [&str; 5] = ["cpu", "target_cpu", "orig_cpu", "dest_cpu", "cpu_id"];
const TASK_FIELDS: [&str; 7] = ["pid", "tid", "prev_pid", "next_pid", "parent_pid", "child_pid", "newpid"];
const SWITCH: &str = "sched:sched_switch";
/// Events about another task than the current one, and the field that names that task. Bound to a task, they miss what
/// other tasks do to it.
const OTHER_TASK: [(&str, &str); 6] = [
    (SWITCH, "next_pid"),
    ("sched:sched_wakeup", "pid"),
    ("sched:sched_wakeup_new", "pid"),
    ("sched:sched_waking", "pid"),
    ("sched:sched_migrate_task", "pid"),
    ("sched:sched_process_free", "pid"),
];

/// An event of a position.
#[derive(Debug)]
pub struct RelatedEvent {
    pub shown: ShownEvent,
    /// The alias of the event, or its name.
    pub name: Arc<str>,
    pub positions: Positions,
    /// None: the CPU or the thread is the key.
    pub key: Option<KeyExpr>,
    role: Option<Program>,
    /// The event is only shown with slow pairs.
    pub is_untraced: bool,
    /// The event triggers a report.
    pub is_trigger: bool,
    /// The run is about some tasks, and the event about the task of this field: it is opened on all CPUs.
    other_task: Option<(&'static str, Int32)>,
    /// The event is a switch, and the task that it switches to is the key.
    pub is_switch_in: bool,
    /// Neither a filter nor a role drops any record of the event.
    pub is_whole: bool,
    cpu_fields: Vec<Int32>,
    task_fields: Vec<Int32>,
    pub scheduling: Scheduling,
}

/// The parts that an event may have in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairRole {
    pub starts: bool,
    pub ends: bool,
}

impl RelatedEvent {
    /// Adds an event to the list. `key`: the key of the event, or of the command line.
    ///
    /// # Errors
    /// More events than ids.
    pub fn add(
        mut bound: BoundEvent,
        positions: Positions,
        key: Option<KeyExpr>,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<RelatedEvent> {
        let format = bound.format.clone();
        let name = bound.attributes.alias.clone().unwrap_or_else(|| format.name.clone());
        let role = bound.expressions.iter().find(|(name, _)| name == "role").map(|(_, program)| program.clone());
        let [is_untraced, is_trigger] = ["untraced", "trigger"].map(|flag| bound.attributes.has(flag));
        let is_whole = bound.filter.is_none() && bound.evsel.test().is_none();
        let is_about_all = setup.watched.is_all();
        let other_task = key.as_ref().filter(|_| !is_about_all).and_then(|key| other_task(&format, key));
        if other_task.is_some() {
            bound.evsel = bound.evsel.binding(Binding::Cpu);
        }
        let sees_cpu = is_whole && (is_about_all || other_task.is_some());
        let is_switch_in =
            &*format.full_name() == SWITCH && key.as_ref().is_some_and(|key| key.heading() == "next_pid");
        let shown = ShownEvent::add_related(bound, setup.stacks, evlist)?;
        Ok(RelatedEvent {
            shown,
            name: name.into(),
            positions,
            key,
            is_switch_in: is_switch_in && !is_untraced && (is_about_all || other_task.is_some()),
            is_whole: is_whole && role.is_none(),
            role,
            is_untraced,
            is_trigger,
            other_task,
            cpu_fields: ints(&format, &CPU_FIELDS),
            task_fields: ints(&format, &TASK_FIELDS),
            scheduling: Scheduling::of(&format, sees_cpu),
        })
    }

    /// Has the kernel drop unwanted records.
    ///
    /// # Errors
    /// A filter that neither the kernel nor perf-prof can evaluate.
    pub fn narrow(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let tasks =
            self.other_task.and_then(|(field, _)| TaskMatch::new(None, setup).filter("", field, &self.shown.format));
        // Which task runs on a CPU follows only from the switches of all tasks.
        let tasks = tasks.filter(|_| !matches!(self.scheduling, Scheduling::Switch { .. }));
        self.shown.narrow(tasks, evlist, setup)
    }

    /// Whether the record is about a task that the run is about.
    #[inline]
    pub fn is_watched(&self, sample: &Sample<'_>, watched: &Watched) -> bool {
        match &self.other_task {
            None => true,
            Some((_, field)) => field.read(sample.raw).is_ok_and(|tid| watched.contains(tid)),
        }
    }

    /// Each record of the event may start or end a pair.
    pub fn is_paired_always(&self) -> bool {
        self.role.is_none() && !self.is_untraced && self.other_task.is_none()
    }

    /// # Errors
    /// The expression of the role has no value for this record.
    #[inline]
    pub fn role(&self, sample: &Sample<'_>) -> Result<PairRole, NoResult> {
        let Some(program) = &self.role else { return Ok(PairRole { starts: true, ends: true }) };
        let bits = match program.value(sample)? {
            ExprValue::Signed(bits) => bits as u64,
            ExprValue::Unsigned(bits) | ExprValue::Named(_, bits) => bits,
            ExprValue::Text(_) => 3,
        };
        Ok(PairRole { starts: bits & 1 != 0, ends: bits & 2 != 0 })
    }

    /// The values by which `--detail` compares the record.
    pub fn marks(&self, raw: &[u8], cpu: u32, pid: i32, tid: i32) -> RecordMarks {
        let mut marks = RecordMarks { pid, tid, ..RecordMarks::default() };
        marks.cpus[0] = Some(cpu);
        for (mark, field) in marks.cpus[1..].iter_mut().zip(&self.cpu_fields) {
            *mark = field.read(raw).ok().and_then(|cpu| u32::try_from(cpu).ok());
        }
        for (mark, field) in marks.tasks.iter_mut().zip(&self.task_fields) {
            *mark = field.read(raw).ok();
        }
        marks
    }
}

/// The field of the task that an event is about, if by its key this is not the current task.
fn other_task(format: &Format, key: &KeyExpr) -> Option<(&'static str, Int32)> {
    let event = format.full_name();
    let (_, field) = OTHER_TASK.into_iter().find(|(name, _)| *name == &*event)?;
    let int = format.field(field)?.int32().ok()?;
    key.reads(field).then_some((field, int))
}

fn ints(format: &Format, names: &[&str]) -> Vec<Int32> {
    let fields = names.iter().filter_map(|name| format.field(name));
    fields.filter_map(|field| field.int32().ok()).take(MAX_MARKS - 1).collect()
}
