//! What a profiler can use when it adds its events.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::cli::usage;
use crate::event::EventFilterError;
use crate::host::{Host, is_virtual};
use crate::outside;
use crate::perf::Attr;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::refusal::Reason;
use crate::perf::target::{Target, Tasks};
use crate::profiler::{RunScope, TracefsFinder};
use crate::task::{Watched, procfs};
use crate::tep::filter::Filter;
use crate::tep::format::Format;

/// The cure for a nested pid namespace.
const SEES_ALL_TASKS: &str = "run on the host, or in a container with --pid=host";

/// What a profiler is given before events are opened.
pub struct Setup<'a> {
    pub tracefs: &'a TracefsFinder,
    pub target: &'a Target,
    pub host: &'a Host,
    /// The watched tasks at this time.
    pub watched: &'a Watched,
    /// The command that the run will start.
    pub command: Option<&'a OsStr>,
    /// `-g`, or a flame graph.
    pub stacks: bool,
    /// A flame graph is wanted: see [`Context::weigh`](crate::profiler::Context::weigh).
    pub flame_graph: bool,
    /// `-i`.
    pub interval: Option<std::time::Duration>,
    pub scope: RunScope,
    /// The unit of the weights of stacks, if the profiler has set it: see [`Setup::weighs`].
    pub weight: Cell<Option<Arc<str>>>,
    pub notes: RefCell<Vec<String>>,
    pub warnings: RefCell<Vec<Warning>>,
}

/// A warning: something works less well, or differently, in this run.
#[derive(Debug)]
pub struct Warning {
    pub reason: Reason,
    pub kind: WarningKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// A part of the results will be missing.
    Degraded,
    /// The results are obtained in another way.
    OtherWay,
    /// Information about the results, which are complete.
    Information,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.kind == WarningKind::Degraded { "degraded: " } else { "" }, self.reason)
    }
}

impl<'a> Setup<'a> {
    /// The setup of a run without options. `own`: the reading thread and the output thread.
    pub fn new(
        tracefs: &'a TracefsFinder,
        target: &'a Target,
        host: &'a Host,
        watched: &'a Watched,
        own: [i32; 2],
    ) -> Setup<'a> {
        Setup {
            tracefs,
            target,
            host,
            watched,
            command: None,
            stacks: false,
            flame_graph: false,
            interval: None,
            scope: RunScope::new(target.wanted.as_deref(), own).with_workers(&outside::own_processes()),
            weight: Cell::default(),
            notes: RefCell::default(),
            warnings: RefCell::default(),
        }
    }
}

impl Setup<'_> {
    /// The format of `sys:name`.
    ///
    /// # Errors
    /// The kernel has no such event, or tracefs cannot be read.
    pub fn format(&self, name: &str) -> Result<Arc<Format>> {
        let (system, event) =
            name.split_once(':').with_context(|| format!("{name:?} is not of the form system:event"))?;
        Ok(Arc::new(self.tracefs.get()?.format(system, event)?))
    }

    /// The tracepoint `sys:name` as an event that is not yet in the list.
    ///
    /// # Errors
    /// As [`Setup::format`].
    pub fn tracepoint(&self, name: &str) -> Result<(Evsel, Arc<Format>)> {
        let format = self.format(name)?;
        Ok((Evsel::new(name, Attr::tracepoint(format.id)), format))
    }

    /// The format of an event of the list.
    ///
    /// # Errors
    /// As [`Setup::format`].
    pub fn format_of(&self, evsel: &Evsel) -> Result<Arc<Format>> {
        let of_probe = evsel.attr().tracepoint_id().and_then(|id| self.tracefs.format_of_probe(id));
        of_probe.map_or_else(|| self.format(evsel.name()), Ok)
    }

    /// Has the records of events during a hidden idle task copied, if the run may be about them. Only virtual machines
    /// are known to hide the idle task.
    pub fn copy_idle_records(&self, evlist: &mut Evlist) {
        if !is_virtual(self.host) {
            return;
        }
        let any_task = matches!(self.target.tasks, Tasks::All);
        for event in evlist.idle_candidates(any_task) {
            let Ok(format) = self.format_of(evlist.evsel(event)) else { continue };
            if let Err(reason) = evlist.copy_idle_records(event, &format, self.host) {
                self.note(format!("what happens on idle CPUs may be unseen: {reason}"));
                break;
            }
        }
    }

    /// The error for a filter of the user on events of `format`: text that does not parse, or a field that the event
    /// lacks.
    pub fn filter_error(&self, err: EventFilterError, format: &Format) -> anyhow::Error {
        // The error about an unknown field already names the event.
        if err.is_unknown_field() {
            anyhow::Error::msg(err)
        } else {
            usage(format!("filter of {}: {err}", format.full_name()))
        }
    }

    /// A filter that leaves out perf-prof's own threads, for events that concern only the current task.
    pub fn not_ourselves(&self, format: &Format) -> Option<Filter> {
        self.scope.not_own(format)
    }

    /// Adds a warning, which is always printed.
    pub fn warn(&self, text: String) {
        self.warnings.borrow_mut().push(Warning { reason: Reason::incurable(text), kind: WarningKind::OtherWay });
    }

    /// Adds a line of information about the results, which is always printed.
    pub fn inform(&self, text: String) {
        self.warnings.borrow_mut().push(Warning { reason: Reason::incurable(text), kind: WarningKind::Information });
    }

    /// Adds a warning about something that the results will lack.
    pub fn degrade(&self, reason: Reason) {
        self.warnings.borrow_mut().push(Warning { reason, kind: WarningKind::Degraded });
    }

    /// Warns that events of other CPUs are not seen, if pairs may involve these CPUs.
    pub fn degrade_pairs(&self) {
        self.degrade(Reason::incurable(
            "not all CPUs are watched: what goes to another CPU and comes back may seem to last until a later end than its own",
        ));
    }

    /// Warns, once, that the strings of system calls cannot be read.
    pub fn degrade_strings(&self, reason: Reason) {
        self.degrade_once("paths and other strings of system calls stay unread", reason);
    }

    /// Warns that it stays unknown how connections end that are made in the background.
    pub fn degrade_socket_errors(&self, reason: Reason) {
        self.degrade_once("how connections end that are made in the background stays unread", reason);
    }

    /// Warns that what processes that have ended had executed stays unknown.
    pub fn degrade_executed(&self, reason: Reason) {
        self.degrade_once("command lines of processes that have ended stay unknown", reason);
    }

    fn degrade_once(&self, what: &str, reason: Reason) {
        let why = format!("{what}: {}", reason.why);
        let warning = Warning { reason: Reason { why, ..reason }, kind: WarningKind::Degraded };
        if self.warnings.borrow().iter().all(|other| other.to_string() != warning.to_string()) {
            self.warnings.borrow_mut().push(warning);
        }
    }

    /// Warns of a nested pid namespace, in which the kernel reports all tasks outside of it as 0. The targets of `-p`
    /// and `-t` are inside of it.
    pub fn degrade_outsiders(&self) {
        if procfs::is_nested(self.host) && matches!(self.target.tasks, Tasks::All | Tasks::Cgroups(_)) {
            self.degrade(Reason::new(
                "tasks outside of this pid namespace have no numbers or names here: they are <outside>, number 0",
                SEES_ALL_TASKS,
            ));
        }
    }

    /// Refuses a nested pid namespace, in which the kernel's task numbers mean nothing. `why` says what needs them.
    ///
    /// # Errors
    /// perf-prof runs in a nested pid namespace.
    pub fn require_host_pids(&self, why: &str) -> Result<()> {
        if procfs::is_nested(self.host) {
            bail!("{why}: {SEES_ALL_TASKS}");
        }
        Ok(())
    }

    /// As [`Setup::require_host_pids`], for profilers that follow tasks by the scheduler's events.
    ///
    /// # Errors
    /// perf-prof runs in a nested pid namespace.
    pub fn require_scheduler_pids(&self) -> Result<()> {
        self.require_host_pids(
            "the scheduler's events carry the host's task numbers, which mean nothing in this pid namespace",
        )
    }

    /// Sets the unit of the weights of stacks, if it differs from
    /// [`ProfilerArgs::WEIGHT`](crate::profiler::ProfilerArgs::WEIGHT).
    pub fn weighs(&self, unit: impl Into<Arc<str>>) {
        self.weight.set(Some(unit.into()));
    }

    /// Adds a line for `-v`.
    pub fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_degraded_run_is_called_so() {
        let reason = Reason::incurable("no second witness");
        let kinds = [WarningKind::OtherWay, WarningKind::Degraded];
        let warnings = kinds.map(|kind| Warning { reason: reason.clone(), kind }.to_string());
        assert_eq!(warnings[1], format!("degraded: {}", warnings[0]));
    }
}
