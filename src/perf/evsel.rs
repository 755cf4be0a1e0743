//! One event of a run: its attr, where it is opened, and where its records go.

use std::fmt;
use std::sync::Arc;

use crate::perf::Sample;
use crate::perf::attr::{Attr, Exclude};
use crate::perf::event_id::{EventId, IDLE_OWNER, SHARED_OWNER};
use crate::perf::record::{ChainForm, Innermost};
use crate::perf::sample_type::SampleType;

/// How an event relates to the tasks of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Opened on the target's tasks (or cgroup): right if the event concerns only the current task.
    Task,
    /// Opened on whole CPUs; a filter or the profiler selects the target's tasks. A task-bound sched event sees only
    /// the switches away from the task and the wake-ups that it performs.
    Cpu,
}

/// A probe in a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramProbe {
    /// Inode of the file, if known.
    pub inode: Option<u64>,
    pub keeping: ProbeKeeping,
}

/// What keeps a probe's breakpoint in the memory of the tasks that inherit its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKeeping {
    /// The kernel does not swap the events of tasks.
    Apart,
    /// The breakpoint is in every process that maps the file.
    Everywhere,
    /// Nothing: calls may go unseen.
    InDoubt,
}

/// An event of the run, with its attr and how it is opened.
#[derive(Debug)]
pub struct Evsel {
    pub(in crate::perf) name: String,
    pub(in crate::perf) attr: Attr,
    pub(in crate::perf) binding: Binding,
    pub(in crate::perf) cpus: Option<Vec<u32>>,
    pub(in crate::perf) filter: Option<String>,
    /// Set if the event's records are shown as text: the alias in front of the text, if there is one.
    printed: Option<Option<String>>,
    /// The event is left out when the kernel refuses it, as one of many that a pattern stands for.
    pub(super) optional: bool,
    /// False: the profiler finds the event's records among those of another event.
    opened: bool,
    /// The equal event of another view, whose samples are for this one, too.
    pub(super) shared_with: Option<EventId>,
    /// The events of other views that get the samples of this event.
    pub(super) sharers: Vec<EventId>,
    /// The event of a probe that this run defined.
    pub(super) is_probe: bool,
    innermost: Innermost,
    /// The event of a probe in a program, which this run or somebody else defined.
    pub(super) in_program: Option<ProgramProbe>,
    /// The event's records are not paired with those of other events.
    pub(super) is_unpaired: bool,
    /// The user wants only some of the event's records.
    pub(super) is_filtered: bool,
    /// The event's samples need no time order across threads.
    pub(super) is_ordered_by_thread: bool,
    pub(super) chain_use: ChainUse,
    /// It comes as often as programs allocate memory: copies of their stacks are small unless the user has said how large.
    pub(super) has_small_copies: bool,
    /// The profiler wants the event's counts.
    pub(super) is_counted: bool,
    /// Set for a companion: the event for which its samples hold windows of the user stack.
    pub(super) window_of: Option<EventId>,
    /// The event whose strings a BPF program writes through this one.
    pub(super) strings_of: Option<EventId>,
    /// The event whose records a BPF program writes through this one, where the idle task is current.
    pub(super) idle_of: Option<EventId>,
    /// The texts of the event's records show strings in place of addresses.
    pub(super) shows_strings: bool,
    /// The test that the event's samples must pass before the profiler gets them.
    pub(super) test: Option<Arc<dyn SampleTest>>,
    /// Index of the profiler that the event belongs to.
    pub(in crate::perf) owner: usize,
}

/// A test of samples in place of a kernel filter.
pub trait SampleTest: fmt::Debug + Send + Sync {
    /// False: the sample is dropped before the profiler.
    fn passes(&self, sample: &Sample<'_>) -> bool;

    /// The condition as the user has typed it.
    fn text(&self) -> String;

    /// Number of samples that were dropped because the test could not judge them, and why.
    fn not_judged(&self) -> Option<(u64, String)>;
}

/// What the callchains of an event are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainUse {
    Shown,
    /// The callchain shows only where in user code a task is.
    ProgramPlace,
    /// The callchain shows only where in the kernel a task is.
    KernelPlace,
}

impl Evsel {
    pub fn new(name: impl Into<String>, attr: Attr) -> Evsel {
        let is_tracepoint = attr.tracepoint_id().is_some();
        Evsel {
            name: name.into(),
            innermost: if is_tracepoint { Innermost::BehindTracepoint } else { Innermost::Executed },
            attr,
            binding: Binding::Task,
            cpus: None,
            filter: None,
            printed: None,
            optional: false,
            opened: true,
            shared_with: None,
            sharers: Vec::new(),
            is_probe: false,
            in_program: None,
            is_unpaired: false,
            is_filtered: false,
            is_ordered_by_thread: false,
            chain_use: ChainUse::Shown,
            has_small_copies: false,
            is_counted: false,
            window_of: None,
            strings_of: None,
            idle_of: None,
            shows_strings: false,
            test: None,
            owner: 0,
        }
    }

    /// The profiler gets the event's counts, too: those of the target's tasks, or none.
    #[must_use]
    pub fn counted(mut self) -> Evsel {
        self.is_counted = true;
        self
    }

    /// One sample per event, even if the event counts more than 1 each time: `sched:sched_stat_runtime` counts ns.
    #[must_use]
    pub fn once(mut self) -> Evsel {
        // perf_swevent_event, kernel/events/core.c: without PERIOD there is a sample for each count.
        self.attr.add_sample_type(SampleType::PERIOD);
        self
    }

    /// Each sample says whether its task is in 32-bit mode.
    #[must_use]
    pub fn with_abi(mut self) -> Evsel {
        self.add_abi();
        self
    }

    /// As [`Evsel::with_abi`].
    pub fn add_abi(&mut self) {
        self.attr = self.attr.clone().with_abi();
    }

    #[must_use]
    pub fn binding(mut self, binding: Binding) -> Evsel {
        self.binding = binding;
        self
    }

    /// Opened on these CPUs only.
    #[must_use]
    pub fn cpus(mut self, cpus: Option<Vec<u32>>) -> Evsel {
        self.cpus = cpus;
        self
    }

    /// Whether [`Evsel::cpus`] allows opening the event on `cpu`.
    pub fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    #[must_use]
    pub fn exclude(mut self, exclude: Exclude) -> Evsel {
        self.attr = self.attr.exclude(exclude);
        self
    }

    /// No samples of the idle task: see [`Attr::exclude_idle`].
    #[must_use]
    pub fn exclude_idle(mut self) -> Evsel {
        self.attr = self.attr.exclude_idle();
        self
    }

    /// Callchains with each sample; `depth` 0 is the kernel's limit.
    #[must_use]
    pub fn callchain(mut self, depth: u16) -> Evsel {
        self.attr = self.attr.callchain(depth);
        self
    }

    /// [`Evsel::callchain`], if `wanted`.
    #[must_use]
    pub fn callchain_if(self, wanted: bool, depth: u16) -> Evsel {
        if wanted { self.callchain(depth) } else { self }
    }

    /// Each sample holds `bytes` of the current task's user stack.
    #[must_use]
    pub fn user_stack(mut self, bytes: u32) -> Evsel {
        self.attr = self.attr.user_stack(bytes);
        self
    }

    /// As `has_small_copies` says.
    #[must_use]
    pub fn small_copies(mut self) -> Evsel {
        self.has_small_copies = true;
        self
    }

    /// Each sample holds the address at which its task left user mode.
    #[must_use]
    pub fn user_place(mut self) -> Evsel {
        self.chain_use = ChainUse::ProgramPlace;
        self.callchain(1).user_callchain()
    }

    /// Each sample holds the `depth` innermost functions of the kernel, which show what the task was doing.
    #[must_use]
    pub fn kernel_place(mut self, depth: u16) -> Evsel {
        self.chain_use = ChainUse::KernelPlace;
        self.callchain(depth).kernel_callchain()
    }

    /// Callchains without the frames of the kernel.
    #[must_use]
    pub fn user_callchain(mut self) -> Evsel {
        self.attr = self.attr.user_callchain();
        self
    }

    /// Callchains without the frames of programs.
    #[must_use]
    pub fn kernel_callchain(mut self) -> Evsel {
        self.attr = self.attr.kernel_callchain();
        self
    }

    /// The event's samples must pass this test, which is no kernel filter.
    #[must_use]
    pub fn tested(mut self, test: Option<Arc<dyn SampleTest>>) -> Evsel {
        self.test = test;
        self
    }

    /// The event's records will be shown as text, so the output thread needs its format; `alias` goes in front of the
    /// text.
    #[must_use]
    pub fn printed(mut self, alias: Option<String>) -> Evsel {
        self.printed = Some(alias);
        self
    }

    /// See [`Evlist::show_strings`](crate::perf::Evlist::show_strings).
    pub fn has_strings(&self) -> bool {
        self.shows_strings
    }

    /// The run goes on without the event when the kernel refuses it even to root, as it does
    /// `irq_vectors:irq_work_exit`, which would sample itself.
    #[must_use]
    pub fn optional(mut self, optional: bool) -> Evsel {
        self.optional = optional;
        self
    }

    /// The event is never opened: the profiler finds its records among those of another event, and shows them under
    /// this event's id.
    #[must_use]
    pub fn unopened(mut self) -> Evsel {
        self.opened = false;
        self
    }

    /// The event's records are not paired with those of other events, so it may have a ring of its own. `filtered`:
    /// only some of the records are wanted.
    #[must_use]
    pub fn unpaired(mut self, filtered: bool) -> Evsel {
        self.is_unpaired = true;
        self.is_filtered = filtered;
        self
    }

    /// The event of a probe that this run defined. The probe cannot be removed while the event is open anywhere.
    /// `returns`: the probe is hit when its function returns.
    #[must_use]
    pub fn probe(mut self, returns: bool) -> Evsel {
        self.is_probe = true;
        self.innermost = if returns { Innermost::BehindCall } else { Innermost::Executed };
        self
    }

    /// See [`ChainForm`].
    pub fn chain_form(&self) -> ChainForm {
        ChainForm { depth: self.attr.max_stack(), innermost: self.innermost, ..ChainForm::default() }
    }

    /// The event of a uprobe. `inode`: the inode of the program's file, if known.
    #[must_use]
    pub fn in_program(mut self, inode: Option<u64>) -> Evsel {
        self.mark_in_program(inode);
        self
    }

    pub(super) fn mark_in_program(&mut self, inode: Option<u64>) {
        self.in_program = Some(ProgramProbe { inode, keeping: ProbeKeeping::Apart });
    }

    pub fn is_opened(&self) -> bool {
        self.opened && self.shared_with.is_none()
    }

    /// The event is opened, and is no output event of a BPF program.
    pub fn is_opened_itself(&self) -> bool {
        self.is_opened() && !self.is_of_program()
    }

    /// The event takes the output of a BPF program that belongs to another event.
    pub fn is_of_program(&self) -> bool {
        self.program_of().is_some()
    }

    /// A tracepoint whose count is the number of its samples, taken and lost.
    pub(super) fn is_sampled_each_time(&self) -> bool {
        /// Tracepoints that count ns.
        const COUNT_MORE: &str = "sched:sched_stat_";
        let is_plain = self.attr.is_sampled_each_time() && !self.name.starts_with(COUNT_MORE);
        is_plain && self.is_opened_itself() && !self.is_window()
    }

    /// For an output event: the event whose BPF program writes to it.
    pub(super) fn program_of(&self) -> Option<EventId> {
        self.strings_of.or(self.idle_of)
    }

    /// Samples come under this event's id: it is opened, or shares the samples of an event that is.
    pub fn is_wanted(&self) -> bool {
        self.opened
    }

    /// None: the event's records are not shown. Otherwise the alias in front of their text, if there is one.
    pub fn shown_as(&self) -> Option<Option<&str>> {
        self.printed.as_ref().map(Option::as_deref)
    }

    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// See [`Evsel::tested`].
    pub fn test(&self) -> Option<&dyn SampleTest> {
        self.test.as_deref()
    }

    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    pub fn owner(&self) -> usize {
        self.owner
    }

    /// The owner that gets the event's samples.
    pub(in crate::perf) fn owner_of_samples(&self) -> usize {
        match self.idle_of {
            Some(_) => IDLE_OWNER,
            None if self.sharers.is_empty() => self.owner,
            None => SHARED_OWNER,
        }
    }

    /// The event is opened on the target's tasks, so that no filter by task is needed.
    pub fn is_task_bound(&self) -> bool {
        self.binding == Binding::Task
    }

    /// Samples hold user addresses, which mean nothing without the mappings of the process.
    pub(in crate::perf) fn has_address(&self) -> bool {
        self.has_callchain() && self.chain_use != ChainUse::KernelPlace
            || self.attr.sample_type().contains(SampleType::IP)
    }

    pub fn has_callchain(&self) -> bool {
        self.attr.sample_type().contains(SampleType::CALLCHAIN)
    }
}
