//! Opens the events of a run. `plan` decides how the events of a CPU are opened, `opening` explains a refusal,
//! `cpu_events` reads the descriptors. `side` opens side records; `counters` counts the events for a forecast;
//! `strings` copies the strings of system calls, for the tasks in `string_tasks`; `socket_errors` copies the errors of
//! sockets that calls return; `idle` watches idle tasks, `idle_records` copies the records that they hide; `inherited`
//! keeps uprobes working in children of the target; `later` opens events for threads that appear later; `layouts` has
//! the layouts of records; `cycles` measures the frequency of a CPU.

pub mod counters;
mod cycles;
mod event_copier;
pub mod idle;
pub mod idle_records;
mod inherited;
mod later;
mod layouts;
mod returned_addresses;
mod side;
mod socket_errors;
pub mod string_tasks;
mod strings;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashSet;

use crate::host::Host;
use crate::perf::attr::{Attr, MissingFeatures};
use crate::perf::classes::{self, Class, RingLoad};
pub use crate::perf::cpu_events::Counted;
use crate::perf::cpu_events::{CpuEvents, EventFd, Lost};
use crate::perf::event_id::EventId;
use crate::perf::evlist::idle::{IdleTask, IdleWatches};
use crate::perf::evlist::idle_records::IdleRecords;
use crate::perf::evlist::inherited::InheritedGuards;
use crate::perf::evlist::layouts::shared_bits;
use crate::perf::evlist::strings::StringCopiers;
use crate::perf::evsel::{Binding, Evsel};
use crate::perf::evsels::Evsels;
use crate::perf::ids::{Ids, Route, Routes};
use crate::perf::layout::Layout;
use crate::perf::opening::{is_gone, is_refused, watch_error};
use crate::perf::plan::{BoundTo, OpenPlan, watches_of};
pub use crate::perf::plan::{PlanOutcome, Watermark};
use crate::perf::refusal::{Refused, Shrunk};
use crate::perf::sample::{LayoutOf, Sample};
use crate::perf::target::{Target, Tasks};
use crate::ringbuf::RingBuf;
use crate::sys;
use crate::sys::perf::Watch;
use crate::sys::process::hand_over;
use crate::tep::filter::{FILTER_MAX, Filter};

/// All events of a run and, once open, their descriptors by CPU.
#[derive(Debug, Default)]
pub struct Evlist {
    pub evsels: Evsels,
    /// The layout of each event's samples.
    layouts: Vec<Layout>,
    missing: MissingFeatures,
    cpus: Vec<CpuEvents>,
    ids: Ids,
    plan: OpenPlan,
    adding_for: usize,
    left_out: Vec<String>,
    /// See [`Evlist::watch_all_tasks`].
    all_tasks: bool,
    /// Counters are never read: see [`Evlist::leave_unread`].
    unread: bool,
    /// The counters of some CPU were closed, so totals are incomplete.
    lacks_counts: bool,
    /// A counter will be opened beside each event.
    with_counters: bool,
    guards: InheritedGuards,
    pub idle: IdleWatches,
    /// When the rings of events wake the reader.
    pub watermark: Watermark,
    /// Why some ring is smaller than was asked for.
    shrunk: Option<Shrunk>,
    strings: StringCopiers,
    pub idle_records: IdleRecords,
}

impl Evlist {
    pub fn new() -> Evlist {
        Evlist::default()
    }

    /// From now on no counter is read, and losses are known from LOST records alone. Reading a counter interrupts its
    /// CPU and waits for the answer (`perf_event_read`, kernel/events/core.c), which a stuck CPU never gives.
    pub fn leave_unread(&mut self) {
        self.unread = true;
    }

    /// Asks for side records of all tasks, not only of the target's.
    pub fn watch_all_tasks(&mut self) {
        self.all_tasks = true;
    }

    /// Events added from now on belong to the profiler `owner`.
    pub fn adding_for(&mut self, owner: usize) {
        self.adding_for = owner;
    }

    /// # Errors
    /// The run has more events than an [`EventId`] can number.
    pub fn add(&mut self, mut evsel: Evsel) -> Result<EventId> {
        evsel.owner = self.adding_for;
        self.evsels.push(evsel)
    }

    /// The profiler needs the samples of these events in time order within each thread, but not across threads.
    pub fn order_by_thread(&mut self, events: impl IntoIterator<Item = EventId>) {
        for event in events {
            if let Some(evsel) = self.evsels.get_mut(event.index()) {
                evsel.is_ordered_by_thread = true;
            }
        }
    }

    /// Sets the event's kernel filter. It is passed to the kernel when the event is opened, since the kernel takes one
    /// filter per event, once.
    ///
    /// # Errors
    /// The text is longer than the kernel takes.
    pub fn set_filter(&mut self, event: EventId, text: impl Into<String>) -> Result<()> {
        let text = text.into();
        let evsel = &mut self.evsels[event.index()];
        if text.len() > FILTER_MAX {
            bail!("the filter of {} has {} bytes, the kernel takes {FILTER_MAX}", evsel.name, text.len());
        }
        evsel.filter = Some(text);
        Ok(())
    }

    /// Sets the first of `filters` that is short enough for the kernel. False: none is.
    pub fn narrow(&mut self, event: EventId, filters: impl IntoIterator<Item = Option<Filter>>) -> bool {
        let taken = filters.into_iter().flatten().find(Filter::is_short);
        let is_narrowed = taken.is_some();
        self.evsels[event.index()].filter = taken.map(|filter| filter.text().to_owned());
        is_narrowed
    }

    pub fn evsel(&self, event: EventId) -> &Evsel {
        &self.evsels[event.index()]
    }

    /// All events, even those that are never opened, but no companions.
    pub fn iter(&self) -> impl Iterator<Item = (EventId, &Evsel)> {
        self.iter_with_windows().filter(|(_, evsel)| !evsel.is_window())
    }

    /// All events, including the companions, which only hold windows of user stacks.
    pub fn iter_with_windows(&self) -> impl Iterator<Item = (EventId, &Evsel)> {
        self.evsels.iter().enumerate().map(|(index, evsel)| (EventId(index as u16), evsel))
    }

    pub fn is_empty(&self) -> bool {
        self.evsels.is_empty()
    }

    /// Some event is opened on each watched thread, and threads that it creates inherit the event.
    pub fn any_inherited(&self) -> bool {
        self.plan.bound.is_some() && self.plan.inherit && self.evsels.iter().any(|evsel| evsel.binding == Binding::Task)
    }

    /// Attribute features that this kernel lacks.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.missing.names()
    }

    /// The kernel's counts of lost samples are read. False after [`Evlist::leave_unread`] and on kernels before 6.0:
    /// then the counts come from LOST records and include side records.
    pub fn counts_lost(&self) -> bool {
        !self.unread && self.evsels.iter().filter(|evsel| evsel.is_opened()).all(|evsel| evsel.attr.counts_lost())
    }

    /// Decides how the events will be opened on `cpus` CPUs, and side records alone on `others` more CPUs.
    ///
    /// # Errors
    /// The run needs more descriptors than this process may have; a process of the target has exited.
    pub fn plan(&mut self, target: &Target, host: &Host, cpus: usize, others: usize) -> Result<PlanOutcome> {
        let mut outcome = PlanOutcome::default();
        (self.plan.classes, self.plan.rings, self.plan.windows) = classes::of(&self.evsels);
        let bound = self.fit_descriptors(target, host, [cpus, others], &mut outcome)?;
        let any_cpu = bound.is_none() || self.evsels.iter().any(|evsel| evsel.binding == Binding::Cpu);
        self.plan = OpenPlan {
            side_on_cpu: any_cpu || self.all_tasks,
            enable_on_exec: matches!(target.tasks, Tasks::Workload(_)) && bound.is_some(),
            inherit: matches!(target.tasks, Tasks::Workload(_) | Tasks::Processes(_)),
            mappings: self.evsels.any_address(),
            bound,
            classes: std::mem::take(&mut self.plan.classes),
            rings: self.plan.rings,
            most_pages: Vec::new(),
            windows: self.plan.windows,
        };
        self.share_layout();
        self.open_guards()?;
        outcome.notes.extend(self.doubt());
        Ok(outcome)
    }

    /// What task-bound events are opened on, such that the descriptors suffice for all events on `cpus` CPUs and for
    /// side records on `others`. Optional events are left out if necessary.
    fn fit_descriptors(
        &mut self,
        target: &Target,
        host: &Host,
        [cpus, others]: [usize; 2],
        outcome: &mut PlanOutcome,
    ) -> Result<Option<BoundTo>> {
        let mut bound = BoundTo::of(target, host);
        let limit = sys::raise_open_files();
        let needed = |evlist: &Evlist, bound: Option<&BoundTo>| {
            evlist.descriptors(bound, cpus, others) + evlist.guard_descriptors(target, bound)
        };
        let mut need = needed(self, bound.as_ref());
        if need > limit && self.leave_out_idle_records() {
            let without = "what happens on idle CPUs may be unseen: it takes more file descriptors than are allowed";
            outcome.notes.push(format!("degraded: {without}; cure: raise `ulimit -n`"));
            need = needed(self, bound.as_ref());
        }
        if need > limit && self.idle.leave_out() {
            // The run can do without the switches from hidden idle tasks.
            need = needed(self, bound.as_ref());
        }
        if need > limit && bound.is_some() {
            // The counter of a whole CPU cannot tell tasks apart.
            if let Some(evsel) = self.evsels.iter().find(|evsel| evsel.is_opened() && evsel.is_counted) {
                bail!(
                    "counting {} of each task takes {need} file descriptors, {limit} are allowed: raise `ulimit -n`, or \
                     leave out the tasks and count on whole CPUs",
                    evsel.name
                );
            }
            outcome.filter_in_user = true;
            outcome.notes.push(format!(
                "degraded: opening each task's events takes {need} file descriptors, {limit} are allowed: watching whole \
                 CPUs and dropping what is of other tasks; cure: raise `ulimit -n`"
            ));
            bound = None;
            need = needed(self, None);
        }
        if need > limit {
            bail!(
                "{need} file descriptors are needed, {limit} are allowed: raise `ulimit -n`, select fewer events, or watch fewer CPUs with -C"
            );
        }
        let twice = need + self.event_descriptors(bound.as_ref()) * cpus as u64;
        if self.with_counters && twice > limit {
            bail!(
                "--dry-run opens each event twice: {twice} file descriptors are needed, {limit} are allowed: raise `ulimit -n`, select fewer events, or watch fewer CPUs with -C"
            );
        }
        Ok(bound)
    }

    /// Descriptors of events that a run on `cpus` whole CPUs has open.
    pub fn events_on(&self, cpus: usize) -> usize {
        let opened = self.evsels.iter().filter(|evsel| evsel.is_opened()).count();
        let of_cpu = opened + self.plan.rings + 1 + self.idle.descriptors_per_cpu() as usize; // 1: side records
        of_cpu * cpus + self.idle_records.programs().count() // each program is attached by an event on one CPU
    }

    fn descriptors(&self, bound: Option<&BoundTo>, cpus: usize, others: usize) -> u64 {
        const OURS: u64 = 64; // perf-prof's other files: output, timers, tracefs, symbol files
        let of_cpu = self.event_descriptors(bound) + self.plan.rings as u64 + self.idle.descriptors_per_cpu();
        OURS + of_cpu * cpus as u64 + (watches_of(bound) + 1) * (cpus + others) as u64
    }

    /// Descriptors of the events of one CPU.
    fn event_descriptors(&self, bound: Option<&BoundTo>) -> u64 {
        let is_of_task = |evsel: &Evsel| evsel.binding == Binding::Task && !evsel.is_of_program();
        let of = |evsel: &Evsel| if is_of_task(evsel) { watches_of(bound) } else { 1 };
        self.evsels.iter().filter(|evsel| evsel.is_opened()).map(of).sum()
    }

    /// Opens every event on `cpu` and maps their rings, by class. `data_pages`, the pages of the largest ring, is
    /// halved until the mlock limit allows the rings.
    ///
    /// # Errors
    /// What the kernel refused, on which event, and what to do.
    pub fn open_cpu(&mut self, cpu: u32, data_pages: &mut usize) -> Result<Vec<RingBuf>> {
        let mut events = CpuEvents::new(cpu);
        let mut rings = Vec::new();
        for number in 0..self.plan.rings {
            // The watermark depends on the final size of the ring: with the watermark of a larger one the ring would be
            // full before it wakes the reader.
            let (owner, ring, watermark) = loop {
                let pages = self.plan.pages(number, *data_pages);
                let watermark = self.watermark.bytes(pages)?;
                let owner = self.open_owner(cpu, watermark)?;
                match RingBuf::map(owner.as_fd(), pages) {
                    Ok(ring) => break (owner, ring, watermark),
                    Err(err) => self.shrink(err, data_pages)?,
                }
            };
            rings.push(ring);
            events.owners.push(owner);
            events.watermarks.push(watermark);
        }
        let watches = self.plan.watches(cpu);
        let joined = self.join(&mut events, &watches, true);
        if joined.is_ok() {
            self.open_idle_watch(&events);
        }
        self.cpus.push(events); // also after an error: `drop` leaves the slow release to another process
        joined?;
        Ok(rings)
    }

    /// The largest number of data pages, at most `data_pages`, with which the event rings of all `cpus` fit in the
    /// mlock limit, together with a ring of the given size on each of `others`. If each CPU took as much as possible,
    /// nothing would be left for the last CPUs.
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`].
    pub fn fitting_pages(&mut self, cpus: &[u32], others: &[(u32, usize)], mut data_pages: usize) -> Result<usize> {
        'sizes: loop {
            let mut rings = Vec::new();
            let sizes: Vec<usize> = (0..self.plan.rings).map(|ring| self.plan.pages(ring, data_pages)).collect();
            let events = cpus.iter().flat_map(|&cpu| sizes.iter().map(move |&pages| (cpu, pages)));
            for (cpu, pages) in events.chain(others.iter().copied()) {
                let owner = self.open_owner(cpu, 0)?;
                match RingBuf::map(owner.as_fd(), pages) {
                    Ok(ring) => rings.push((ring, owner)),
                    Err(err) => {
                        self.shrink(err, &mut data_pages)?;
                        continue 'sizes;
                    }
                }
            }
            return Ok(data_pages);
        }
    }

    /// Opens the dummy event that owns a ring of `cpu`.
    fn open_owner(&mut self, cpu: u32, watermark: u32) -> Result<OwnedFd> {
        let mut attr = Attr::dummy().with_sample_type(shared_bits(&self.evsels)).watermark(watermark);
        self.open_side(&mut attr, self.plan.watch_of_owner(cpu))
    }

    /// Halves the size of a ring, if the kernel refused it for its size.
    fn shrink(&mut self, err: io::Error, data_pages: &mut usize) -> Result<()> {
        match Shrunk::by(&err) {
            Some(why) if *data_pages > 1 => self.shrunk = Some(why),
            _ => return Err(Refused::ring(err, *data_pages * sys::page_size()).into()),
        }
        *data_pages /= 2;
        Ok(())
    }

    /// Opens the events of `watches` and sends their records into the CPU's rings, which must be mapped before. `all`:
    /// also the events that are bound to the CPU.
    fn join(&mut self, cpu: &mut CpuEvents, watches: &[Watch], all: bool) -> Result<()> {
        let events = if cpu.owners.is_empty() { 0 } else { self.evsels.len() };
        // Events are enabled in the order in which they were opened. BPF output events come first, else the first calls
        // would have no strings.
        for (of_program, index) in
            [true, false].into_iter().flat_map(|first| (0..events).map(move |index| (first, index)))
        {
            let evsel = &self.evsels[index];
            let is_joining = all || evsel.binding == Binding::Task && !of_program;
            if evsel.is_of_program() == of_program && is_joining {
                self.open_evsel(index, cpu, watches)?;
            }
        }
        Ok(())
    }

    fn open_evsel(&mut self, index: usize, cpu: &mut CpuEvents, watches: &[Watch]) -> Result<()> {
        let event = EventId(index as u16);
        let route = self.route_of(event);
        let evsel = &mut self.evsels[index];
        if !evsel.is_opened() || !evsel.is_on(cpu.cpu) {
            return Ok(());
        }
        let whole = [Watch::Cpu(cpu.cpu)];
        let task_bound = evsel.binding == Binding::Task && self.plan.bound.is_some() && !evsel.is_of_program();
        let watches = if task_bound { watches } else { &whole };
        let class = self.plan.classes.get(index).copied().unwrap_or(0);
        evsel.attr = evsel
            .attr
            .clone()
            .watermark(cpu.watermark_of(class))
            .inherit(task_bound && self.plan.inherit)
            .enable_on_exec(task_bound && self.plan.enable_on_exec);
        for &watch in watches {
            let fd = match self.missing.open(&mut evsel.attr, watch) {
                Ok(fd) => fd,
                Err(err) if is_gone(&err) => continue,
                Err(err) if evsel.optional && is_refused(&err) && sys::is_root() => {
                    if !self.left_out.contains(&evsel.name) {
                        self.left_out.push(evsel.name.clone());
                    }
                    return Ok(());
                }
                Err(err) => return Err(watch_error(err, &evsel.name, &evsel.attr, watch)),
            };
            if let Some(filter) = &evsel.filter {
                sys::perf::set_filter(fd.as_fd(), filter)
                    .with_context(|| format!("the kernel refuses the filter of {}: {filter}", evsel.name))?;
            }
            let owner = cpu.owner(Class::Events(class)).context("a CPU without its rings")?;
            sys::perf::set_output(fd.as_fd(), owner)
                .with_context(|| format!("{} cannot share the ring buffer of CPU {}", evsel.name, cpu.cpu))?;
            let id = sys::perf::id(fd.as_fd())?;
            self.strings.write_through(event, cpu.cpu, fd.as_fd());
            self.idle_records.write_through(event, cpu.cpu, fd.as_fd());
            self.ids.insert(id, route);
            cpu.events.push(EventFd::new(fd, event, class));
        }
        Ok(())
    }

    /// Gives event N the id N + 1 without opening it, for synthetic or recorded records.
    pub fn assign_ids(&mut self) {
        self.share_layout();
        for index in 0..self.evsels.len() {
            self.ids.insert(index as u64 + 1, self.route_of(EventId(index as u16)));
        }
    }

    /// Side records come from all tasks of the CPUs, not only from the target's.
    pub fn sees_all_exits(&self) -> bool {
        self.plan.side_on_cpu
    }

    /// Starts all events, except those that wait for the workload's exec.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn enable(&mut self) -> Result<()> {
        self.cpus.iter_mut().flat_map(|cpu| &mut cpu.events).for_each(EventFd::begin);
        if !self.plan.enable_on_exec {
            return sys::perf::enable_all().context("cannot enable the events");
        }
        for cpu in &self.cpus {
            if let Some(owner) = cpu.side_owner.as_ref().filter(|_| self.plan.side_on_cpu) {
                sys::perf::enable(owner.fd.as_fd()).context("cannot enable side records")?;
            }
            let is_of_cpu = |evsel: &Evsel| evsel.binding == Binding::Cpu || evsel.is_of_program();
            for event in cpu.events.iter().filter(|event| is_of_cpu(&self.evsels[event.event.index()])) {
                sys::perf::enable(event.fd.as_fd()).context("cannot enable the events")?;
            }
            self.idle.enable(cpu.cpu);
        }
        Ok(())
    }

    /// Starts the events of a CPU that came online during the run.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn enable_cpu(&mut self, cpu: u32) -> Result<()> {
        for events in self.cpus.iter_mut().filter(|events| events.cpu == cpu) {
            events.events.iter_mut().for_each(EventFd::begin);
            for fd in events.all().chain(self.idle.fds(Some(cpu))) {
                sys::perf::enable(fd.as_fd()).with_context(|| format!("cannot enable the events of CPU {cpu}"))?;
            }
        }
        Ok(())
    }

    /// Closes the events of a CPU that went offline.
    pub fn close_cpu(&mut self, cpu: u32) {
        self.lacks_counts = true;
        let mut gone: Vec<CpuEvents> = self.cpus.extract_if(.., |events| events.cpu == cpu).collect();
        gone.iter_mut().for_each(|events| events.close_probes(&self.evsels));
        let idle = self.idle.take(cpu);
        let fds = gone.iter().flat_map(CpuEvents::all).chain(idle.iter().flat_map(IdleTask::fds));
        hand_over(&fds.map(AsRawFd::as_raw_fd).collect::<Vec<_>>());
    }

    /// Closes the events of probes that this run has defined, so that the probes can be removed.
    pub fn close_probes(&mut self) {
        self.guards.close_probes();
        self.cpus.iter_mut().for_each(|events| events.close_probes(&self.evsels));
    }

    /// The descriptor that owns a ring of `cpu`, for poll(2).
    pub fn ring_owner(&self, cpu: u32, class: Class) -> Option<BorrowedFd<'_>> {
        self.cpus.iter().find(|events| events.cpu == cpu)?.owner(class)
    }

    /// The name of each tracepoint that is open, with one of its descriptors, none of a CPU in `avoid`.
    pub fn tracepoints(&self, avoid: &[u32]) -> Vec<(&str, BorrowedFd<'_>)> {
        let id_of = |evsel: &Evsel| evsel.attr.tracepoint_id().filter(|_| evsel.is_opened());
        let all = self.evsels.iter().filter_map(id_of).collect::<FxHashSet<u32>>().len();
        let mut seen = FxHashSet::default();
        let cpus = self.cpus.iter().filter(|cpu| !avoid.contains(&cpu.cpu));
        let events = cpus.flat_map(|cpu| &cpu.events).filter_map(|event| {
            let evsel = &self.evsels[event.event.index()];
            seen.insert(id_of(evsel)?).then(|| (evsel.name(), event.fd.as_fd()))
        });
        events.take(all).collect()
    }

    /// Whether a ring is for companions' windows of user stacks.
    pub fn holds_windows(&self, class: Class) -> bool {
        self.plan.windows.map(Class::Events) == Some(class)
    }

    /// The number of the ring of a CPU that holds these windows.
    pub fn window_rings(&self) -> Option<usize> {
        self.plan.windows
    }

    /// Enables or disables the companions only.
    pub fn turn_windows(&self, on: bool) {
        let turn = if on { sys::perf::enable } else { sys::perf::disable };
        for event in self.cpus.iter().flat_map(|cpu| &cpu.events) {
            if self.evsels.get(event.event.index()).is_some_and(Evsel::is_window) {
                let _ = turn(event.fd.as_fd()); // fails if the task has exited
            }
        }
    }

    /// Whether an event of view `owner` writes to a ring of `class`.
    pub fn is_in(&self, class: Class, owner: usize) -> bool {
        let Class::Events(ring) = class else { return true };
        let in_ring = |(index, evsel): (usize, &Evsel)| {
            let first = evsel.shared_with.map_or(index, EventId::index);
            evsel.owner == owner && evsel.is_wanted() && self.plan.classes.get(first).copied().unwrap_or(0) == ring
        };
        self.evsels.iter().enumerate().any(in_ring)
    }

    /// Number of rings of the events of a CPU.
    pub fn rings(&self) -> usize {
        self.plan.rings
    }

    /// By ring of a CPU, what the ring has to hold.
    pub fn ring_demands(&self) -> Vec<RingLoad> {
        classes::demands(&self.evsels, &self.plan.classes, self.plan.rings)
    }

    /// Sets, by ring, the limit of its data pages.
    pub fn limit_rings(&mut self, most_pages: Vec<usize>) {
        self.plan.most_pages = most_pages;
    }

    /// Why a ring is smaller than was asked for. None: no ring is.
    pub fn shrunk(&self) -> Option<Shrunk> {
        self.shrunk
    }

    /// At least one event is open.
    pub fn any_open(&self) -> bool {
        self.cpus.iter().any(|cpu| !cpu.events.is_empty())
    }

    /// Optional events that the kernel refused.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Records that a ring of `cpu` has lost since the last call, as the kernel counts them.
    pub fn take_lost(&mut self, cpu: u32, class: Class) -> Lost {
        let Evlist { cpus, evsels, unread, idle, .. } = self;
        let of_cpu = cpus.iter_mut().find(|events| events.cpu == cpu && !*unread);
        of_cpu.map_or_else(Lost::default, |events| Lost {
            switches: idle.take_lost(cpu, class),
            ..events.take_lost(class, evsels)
        })
    }

    /// By CPU and event, counts and times from the last call to the last [`Evlist::take_lost`]. The times of task-bound
    /// events are those in which their tasks ran.
    pub fn take_counted(&mut self) -> Vec<(u32, EventId, Counted)> {
        self.cpus.iter_mut().flat_map(CpuEvents::take_counted).collect()
    }

    /// The kernel's count of all events, and the time at which it was read. None: some event does not write a sample
    /// each time, is bound to tasks, or is no longer counted.
    pub fn happened(&self) -> Option<(u64, u64)> {
        let is_counted = |evsel: &Evsel| !evsel.attr.samples() || evsel.is_of_program() || evsel.is_window();
        let mut opened = self.evsels.iter().filter(|evsel| evsel.is_opened() && !is_counted(evsel));
        let is_of_cpu = |evsel: &Evsel| evsel.binding == Binding::Cpu || self.plan.bound.is_none();
        if self.unread || self.lacks_counts || !opened.all(|evsel| evsel.is_sampled_each_time() && is_of_cpu(evsel)) {
            return None;
        }
        let read = self.cpus.iter().map(|cpu| cpu.happened(&self.evsels));
        Some(read.fold((0, 0), |(all, last), (count, told_ns)| (all + count, last.max(told_ns))))
    }

    /// Tries whether the machine has an event: on a whole CPU or, for users who may not open that, on a thread of
    /// perf-prof. A whole CPU is preferred: after the first event of a thread, and a second after the last, the kernel
    /// patches its own code (`perf_sched_events`), for which it stops all CPUs, and hangs if one of them takes no
    /// interrupts.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn probe(&mut self, attr: &Attr, cpu: u32) -> io::Result<()> {
        match self.probe_on_cpu(attr, cpu) {
            Err(err) if is_refused(&err) => {
                let watch = Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu };
                self.missing.open(&mut attr.clone(), watch).map(drop)
            }
            opened => opened,
        }
    }

    /// Tries an event on a whole CPU only.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn probe_on_cpu(&mut self, attr: &Attr, cpu: u32) -> io::Result<()> {
        self.missing.open(&mut attr.clone(), Watch::Cpu(cpu)).map(drop)
    }

    /// The route of the event that writes `id` into its samples.
    #[inline]
    pub fn route(&self, id: u64) -> Option<&Route> {
        self.ids.routes().get(id)
    }

    /// The routes of all events.
    #[inline(always)]
    pub fn routes(&self) -> Routes<'_> {
        self.ids.routes()
    }

    /// Decodes the sample in a record. None: an error of [`crate::perf::layout::Layout::sample`].
    pub fn sample<'a>(&'a self, route: &Route, record: &'a [u8]) -> Option<Sample<'a>> {
        Sample::decode(LayoutOf::Event(&self.layouts, route.event), route.kind, record)
    }

    /// The sample at the start of `rest` and the bytes behind it: see `Sample::decode_fast`.
    #[inline(always)]
    pub fn decode_fast<'a, 'r: 'a>(&'a self, route: &Route, rest: &'r [u8]) -> Option<(Sample<'a>, &'r [u8])> {
        Sample::decode_fast(LayoutOf::Event(&self.layouts, route.event), route.kind, rest)
    }
}

impl Drop for Evlist {
    /// Releasing tracepoints is slow, so another process does it, and the shell prompt returns at once.
    fn drop(&mut self) {
        self.close_probes(); // the other process must not keep them open
        let at_forks = self.strings.end();
        let fds = self.cpus.iter().flat_map(CpuEvents::all).chain(self.idle.fds(None));
        let mut open: Vec<RawFd> = fds.map(AsRawFd::as_raw_fd).collect();
        open.extend(self.idle_records.attached());
        open.extend(at_forks);
        if !open.is_empty() {
            hand_over(&open);
        }
    }
}

#[cfg(test)]
#[path = "evlist_tests.rs"]
mod tests;
