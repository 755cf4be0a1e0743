//! The rings of a run: opened for each CPU at the start and as CPUs come online, closed as CPUs go offline.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use anyhow::{Result, bail};
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustc_hash::FxHashMap;

use crate::cli::values::RingSize;
use crate::host::{Host, cpu_ranges, memory_bytes, online_cpus};
use crate::perf::classes::Class;
use crate::perf::cpu_events::Lost;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::layout::Layout;
use crate::perf::record::record_type;
use crate::perf::refusal::{Refused, Shrunk, locks_little};
use crate::perf::target::{Target, Tasks};
use crate::profiler::LostWindow;
use crate::ringbuf::{DrainLimit, Drained, Item, Merge, RecordRun, RecordSink, RingBuf, Stamp};
use crate::run::dispatcher::Dispatcher;
use crate::run::loss::{RingUse, cure};
use crate::run::ring_sizes::{MAX_BYTES, default_ring_pages, most_pages, side_ring_pages};
use crate::sys;
use crate::sys::poll::Poller;

#[derive(Debug)]
struct RunRing {
    cpu: u32,
    class: Class,
    /// The ring's index in the merge.
    index: usize,
    pages: usize,
    /// The only ring of its CPU: events of that CPU are not wanted, but side records of the watched tasks are.
    side_alone: bool,
    /// The CPU is offline; the records in the ring are still being delivered.
    leaving: bool,
    /// Samples lost in this interval.
    lost: u64,
    /// Samples lost in the worst interval: a ring with room for this many more would have lost nothing.
    lost_at_worst: u64,
    /// A loss was counted, but no gap marked for it.
    unmarked: bool,
    /// In a replay, which has no kernel's counts: samples lost since the last count.
    lost_in_replay: u64,
}

impl RunRing {
    /// Reads what the kernel counted as lost since the last call.
    fn count_lost(&mut self, core: &mut Dispatcher) {
        let Lost { samples, side, switches } = core.evlist.take_lost(self.cpu, self.class);
        let of_replay = std::mem::take(&mut self.lost_in_replay);
        let samples = samples + if core.evlist.counts_lost() { of_replay } else { 0 };
        if core.evlist.holds_windows(self.class) {
            core.lost_windows += samples;
            return;
        }
        self.lost += samples;
        self.lost_at_worst = self.lost_at_worst.max(self.lost);
        core.count_lost(self.cpu, self.class, samples);
        core.count_side_lost(side);
        core.count_lost_switches(switches);
        self.unmarked |= samples > 0 || side > 0 || switches > 0;
    }

    /// The CPU is closed: the ring is removed once its records are delivered.
    fn leave(&mut self, merge: &mut Merge, core: &Dispatcher, poller: &Poller) {
        self.leaving = true;
        merge.remove(self.index);
        if let Some(owner) = core.evlist.ring_owner(self.cpu, self.class) {
            let _ = poller.remove(owner);
        }
    }
}

/// All rings and their merge.
#[derive(Default)]
pub struct Rings {
    merge: Merge,
    rings: Vec<RunRing>,
    /// CPU and class by index in the merge, which are needed for every record.
    places: Vec<(u32, Class)>,
    /// Data pages wanted for the largest rings.
    wanted_pages: usize,
    /// Data pages that the largest rings have.
    data_pages: usize,
    /// Clock of the last round.
    loaded_ns: u64,
    /// Clock of the round before, up to which all records were delivered.
    complete_ns: u64,
    /// When the list of CPUs was last read.
    looked_ns: u64,
    /// Inode of each CPU's directory in sysfs at that time: a CPU that was offline in between has a new inode.
    directories: FxHashMap<u32, u64>,
    pub filter_in_user: bool,
    /// CPUs that could not be opened when they came online: not tried again.
    refused: Vec<u32>,
    notes: Vec<String>,
}

impl Rings {
    /// Opens the events on every CPU of the target.
    ///
    /// # Errors
    /// No CPU is left, or the kernel refuses an event or even the smallest ring.
    pub fn open(
        evlist: &mut Evlist,
        target: &Target,
        host: &Host,
        size: Option<RingSize>,
        poller: &Poller,
    ) -> Result<Rings> {
        let online = online_cpus(host)?;
        let (cpus, absent) = target.cpus(&online);
        if cpus.is_empty() {
            bail!("none of the CPUs {} is online (online: {})", cpu_ranges(&absent), cpu_ranges(&online));
        }
        // A pair may begin on a CPU of the target and end on another one, so such events are opened on all CPUs.
        let cpus = if evlist.evsels.any_cpu_bound() { online.clone() } else { cpus };
        let alone: Vec<u32> = online.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
        let planned = evlist.plan(target, host, cpus.len(), online.len() - cpus.len())?;
        let mut rings = Rings {
            looked_ns: sys::monotonic_ns(),
            directories: online.iter().filter_map(|&cpu| Some((cpu, directory_of(host, cpu)?))).collect(),
            filter_in_user: planned.filter_in_user,
            notes: planned.notes,
            ..Rings::default()
        };
        if !absent.is_empty() {
            let present = cpu_ranges(&target.cpus(&online).0);
            rings.notes.push(format!("CPU {} is not online: watching {present} without it", cpu_ranges(&absent)));
        }
        rings.settle_size(size, cpus.len(), evlist, host);
        if locks_little(host) {
            let others: Vec<(u32, usize)> = alone.iter().map(|&cpu| (cpu, side_ring_pages(0))).collect();
            rings.data_pages = evlist.fitting_pages(&cpus, &others, rings.data_pages)?;
        }
        for &cpu in &cpus {
            rings.add(cpu, evlist, poller)?;
        }
        // First the CPUs whose side records need a ring of their own.
        for &cpu in &alone {
            rings.add_side(cpu, true, evlist, poller)?;
        }
        for &cpu in &cpus {
            rings.add_side(cpu, false, evlist, poller)?;
        }
        evlist.open_new_threads(target, host)?;
        rings.notes.extend(evlist.attach_string_copiers());
        rings.notes.extend(evlist.attach_idle_copiers());
        if !evlist.left_out().is_empty() {
            let names = evlist.left_out().join(" ");
            rings.notes.push(format!("left out, the kernel does not let them be sampled: {names}"));
        }
        if !evlist.any_open() {
            bail!(nothing_opened(evlist, &target.tasks, &cpus));
        }
        Ok(rings)
    }

    /// Settles how large the rings are to be on `cpus` CPUs.
    fn settle_size(&mut self, size: Option<RingSize>, cpus: usize, evlist: &mut Evlist, host: &Host) {
        let most = most_pages(cpus, evlist.rings());
        let asked = match size {
            Some(size) => size.pages(sys::page_size()),
            None => {
                let sizes = default_ring_pages(cpus, &evlist.ring_demands(), memory_bytes(host));
                let largest = sizes.iter().copied().max().unwrap_or(1);
                evlist.limit_rings(sizes);
                largest
            }
        };
        if size.is_some() && asked > most {
            self.notes.push(format!(
                "ring buffers are limited to {} MiB in total: {most} pages each instead of {asked}",
                MAX_BYTES >> 20
            ));
        }
        (self.wanted_pages, self.data_pages) = (asked.min(most), asked.min(most));
    }

    /// The rings of a replay, by CPU and class, with events that are not opened.
    ///
    /// # Errors
    /// As [`Evlist::plan`].
    pub fn of_replay(
        rings: Vec<(u32, Class, RingBuf)>,
        evlist: &mut Evlist,
        target: &Target,
        host: &Host,
        poller: &Poller,
    ) -> Result<Rings> {
        evlist.plan(target, host, rings.len(), 0)?;
        evlist.assign_ids();
        let data_pages = rings.iter().map(|(.., ring)| ring.size() as usize / sys::page_size()).max().unwrap_or(0);
        let mut all = Rings { wanted_pages: data_pages, data_pages, ..Rings::default() };
        rings.into_iter().try_for_each(|(cpu, class, ring)| all.take(cpu, class, ring, false, evlist, poller))?;
        Ok(all)
    }

    /// Counts samples that were lost in a ring of a replay.
    pub fn lose_in_replay(&mut self, index: usize, samples: u64) {
        self.rings.iter_mut().filter(|ring| ring.index == index).for_each(|ring| ring.lost_in_replay += samples);
    }

    /// Opens the events of one CPU. If the mlock limit makes a ring smaller, the following rings are smaller too.
    fn add(&mut self, cpu: u32, evlist: &mut Evlist, poller: &Poller) -> Result<()> {
        for (class, ring) in evlist.open_cpu(cpu, &mut self.data_pages)?.into_iter().enumerate() {
            self.take(cpu, Class::Events(class), ring, false, evlist, poller)?;
        }
        Ok(())
    }

    /// Opens the side records of a CPU.
    fn add_side(&mut self, cpu: u32, side_alone: bool, evlist: &mut Evlist, poller: &Poller) -> Result<()> {
        let mut pages = side_ring_pages(if side_alone { 0 } else { self.data_pages });
        match evlist.open_side_records(cpu, &mut pages)? {
            Some(ring) => self.take(cpu, Class::Side, ring, side_alone, evlist, poller),
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        cpu: u32,
        class: Class,
        ring: RingBuf,
        side_alone: bool,
        evlist: &Evlist,
        poller: &Poller,
    ) -> Result<()> {
        let pages = ring.size() as usize / sys::page_size();
        let index = self.merge.add(ring);
        if let Some(owner) = evlist.ring_owner(cpu, class) {
            poller.add_edge(owner, u64::from(cpu))?;
        }
        self.places.resize(self.places.len().max(index + 1), (cpu, class));
        self.places[index] = (cpu, class);
        self.rings.push(RunRing {
            cpu,
            class,
            index,
            pages,
            side_alone,
            leaving: false,
            lost: 0,
            lost_at_worst: 0,
            unmarked: false,
            lost_in_replay: 0,
        });
        Ok(())
    }

    /// Adds a note, once for all CPUs, if rings became smaller since the last note.
    pub fn note_shrunk(&mut self, evlist: &Evlist) {
        let (pages, wanted) = (self.data_pages, self.wanted_pages);
        if pages >= wanted {
            return;
        }
        self.wanted_pages = pages;
        let (who, cure) = why_shrunk(evlist);
        self.notes.push(format!("degraded: {who} {pages} pages per CPU instead of {wanted}; cure: {cure}"));
    }

    /// Opens CPUs that came online, and closes CPUs that went offline.
    pub fn follow_hotplug(&mut self, core: &mut Dispatcher, target: &Target, host: &Host, poller: &Poller) {
        let Ok(online) = online_cpus(host) else { return core.ctx.watched.refresh_in_time(target, host) };
        let before_ns = std::mem::replace(&mut self.looked_ns, sys::monotonic_ns());
        // The events of a CPU that was offline do not come back.
        let was_away = online.iter().copied().filter(|&cpu| self.was_away(cpu, host)).collect::<Vec<u32>>();
        let has_ring = |cpu: u32| self.rings.iter().any(|ring| !ring.leaving && ring.cpu == cpu);
        if !was_away.is_empty() || !online.iter().all(|&cpu| has_ring(cpu) || self.refused.contains(&cpu)) {
            // The events of a new CPU are opened for all present threads; some of these are only known from records
            // still in the rings.
            self.catch_up(core);
            core.ctx.watched.refresh(target, host);
        } else {
            core.ctx.watched.refresh_in_time(target, host);
        }
        self.rings.retain(|ring| !ring.leaving || self.merge.has(ring.index));
        self.leave_offline(&online, &was_away, before_ns, core, poller);
        self.refused.retain(|cpu| online.contains(cpu));
        self.open_online(&online, before_ns, core, target, host, poller);
        self.note_shrunk(&core.evlist);
    }

    /// Closes the CPUs that went offline, including those that are back online: their old events are dead.
    fn leave_offline(
        &mut self,
        online: &[u32],
        was_away: &[u32],
        before_ns: u64,
        core: &mut Dispatcher,
        poller: &Poller,
    ) {
        let mut gone: Vec<u32> = Vec::new();
        let is_gone = |cpu: u32| !online.contains(&cpu) || was_away.contains(&cpu);
        for ring in self.rings.iter_mut().filter(|ring| !ring.leaving && is_gone(ring.cpu)) {
            ring.count_lost(core);
            // No later record of this CPU will report the loss.
            if std::mem::take(&mut ring.unmarked) || was_away.contains(&ring.cpu) {
                let start_ns = self.complete_ns.min(before_ns);
                core.lost(LostWindow { cpu: ring.cpu, start_ns, end_ns: self.looked_ns, count: 0 }, ring.class);
            }
            ring.leave(&mut self.merge, core, poller);
            if !gone.contains(&ring.cpu) {
                gone.push(ring.cpu);
                if !ring.side_alone {
                    self.notes.push(format!("CPU {} went offline", ring.cpu));
                }
            }
        }
        if !gone.is_empty() {
            core.notify_counts(); // the counters are closed with their CPU
        }
        gone.into_iter().for_each(|cpu| core.evlist.close_cpu(cpu));
    }

    /// Opens the CPUs that came online.
    fn open_online(
        &mut self,
        online: &[u32],
        before_ns: u64,
        core: &mut Dispatcher,
        target: &Target,
        host: &Host,
        poller: &Poller,
    ) {
        let cpus = if core.evlist.evsels.any_cpu_bound() { online.to_vec() } else { target.cpus(online).0 };
        let mut failed: Vec<(String, Vec<u32>)> = Vec::new();
        for &cpu in online {
            if self.rings.iter().any(|ring| ring.cpu == cpu) || self.refused.contains(&cpu) {
                continue;
            }
            let side_alone = !cpus.contains(&cpu);
            self.was_away(cpu, host); // stores the inode of the new directory
            match self.open_one(cpu, side_alone, before_ns, core, poller) {
                Ok(()) if side_alone => {}
                Ok(()) => self.notes.push(format!("CPU {cpu} came online: watching it")),
                Err(err) => {
                    self.refused.push(cpu);
                    self.close_cpu(cpu, core, poller);
                    let why =
                        err.downcast_ref::<Refused>().map_or_else(|| format!("{err:#}"), |err| err.reason.to_string());
                    match failed.iter_mut().find(|(told, _)| *told == why) {
                        Some((_, cpus)) => cpus.push(cpu),
                        None => failed.push((why, vec![cpu])),
                    }
                }
            }
        }
        for (why, cpus) in failed {
            self.notes.push(format!("CPU {} came online and cannot be watched: {why}", cpu_ranges(&cpus)));
        }
    }

    /// Opens a CPU that came online. All its events until now count as lost.
    fn open_one(
        &mut self,
        cpu: u32,
        side_alone: bool,
        before_ns: u64,
        core: &mut Dispatcher,
        poller: &Poller,
    ) -> Result<()> {
        let evlist = &mut core.evlist;
        evlist.bind(core.ctx.watched.now());
        if !side_alone {
            self.add(cpu, evlist, poller)?;
        }
        self.add_side(cpu, side_alone, evlist, poller)?;
        evlist.enable_cpu(cpu)?;
        let window = LostWindow { cpu, start_ns: before_ns, end_ns: sys::monotonic_ns(), count: 0 };
        if side_alone {
            core.lost(window, Class::Side);
        } else {
            core.lost_to_all(window);
        }
        Ok(())
    }

    /// A loss window of unknown count on each CPU, between two times.
    pub fn unknown_loss(&self, start_ns: u64, end_ns: u64) -> Vec<LostWindow> {
        let rings = self.rings.iter().filter(|ring| !ring.leaving && ring.class == Class::Events(0));
        rings.map(|ring| LostWindow { cpu: ring.cpu, start_ns, end_ns, count: 0 }).collect()
    }

    /// Unmaps all rings. Returns how many data pages, at most `pages`, each ring of events could have instead.
    ///
    /// # Errors
    /// As [`Evlist::fitting_pages`].
    pub fn unmap_for(&mut self, pages: usize, evlist: &mut Evlist, host: &Host) -> Result<usize> {
        self.merge = Merge::new();
        let rings = std::mem::take(&mut self.rings);
        // Without a limit there is no need to try.
        if !locks_little(host) || sys::locked_memory() == u64::MAX {
            return Ok(pages);
        }
        let cpus: Vec<u32> = rings.iter().filter(|ring| ring.class == Class::Events(0)).map(|ring| ring.cpu).collect();
        let alone = rings.iter().filter(|ring| ring.side_alone).map(|ring| (ring.cpu, ring.pages));
        evlist.fitting_pages(&cpus, &alone.collect::<Vec<_>>(), pages)
    }

    /// Whether the CPU was offline since the last call.
    fn was_away(&mut self, cpu: u32, host: &Host) -> bool {
        let Some(now) = directory_of(host, cpu) else { return false };
        self.directories.insert(cpu, now).is_some_and(|before| before != now)
    }

    /// Closes a CPU whose events could not all be opened.
    fn close_cpu(&mut self, cpu: u32, core: &mut Dispatcher, poller: &Poller) {
        for ring in self.rings.iter_mut().filter(|ring| !ring.leaving && ring.cpu == cpu) {
            ring.leave(&mut self.merge, core, poller);
        }
        core.evlist.close_cpu(cpu);
    }

    /// Delivers all records that were stamped before this call.
    pub fn catch_up(&mut self, core: &mut Dispatcher) {
        // The horizon of the second round is the clock reading of the first.
        self.round(DrainLimit::Horizon, core);
        self.round(DrainLimit::Horizon, core);
    }

    /// One round: loads the heads, finds losses, delivers records up to the limit, and publishes the tails. True when
    /// records above the horizon remain.
    pub fn round(&mut self, limit: DrainLimit, core: &mut Dispatcher) -> bool {
        self.complete_ns = self.loaded_ns;
        self.loaded_ns = sys::monotonic_ns();
        self.merge.load(self.loaded_ns);
        let rings = &mut self.rings;
        mark_gaps(&mut self.merge, sys::monotonic_ns, |index| {
            let Some(ring) = rings.iter_mut().find(|ring| ring.index == index) else { return false };
            ring.count_lost(core);
            let lost = std::mem::take(&mut ring.unmarked);
            // If the kernel does not count lost samples, a full ring counts as a loss. Except for a ring of side
            // records, which is so small that it always counts as near full: its losses are known from LOST records.
            lost || ring.class != Class::Side && !core.evlist.counts_lost()
        });
        let place = |index: usize| self.places.get(index).copied().unwrap_or((0, Class::Events(0)));
        deliver(&mut self.merge, limit, core, place).held
    }

    /// Whether a ring is still so full that the next wake-up may come too late.
    pub fn is_backlogged(&self) -> bool {
        self.merge.is_backlogged()
    }

    /// The time up to which all records were delivered, except late ones.
    pub fn complete_to(&self) -> u64 {
        self.complete_ns
    }

    /// Reads the lost counters of all rings.
    pub fn read_lost(&mut self, core: &mut Dispatcher) {
        for ring in self.rings.iter_mut().filter(|ring| !ring.leaving) {
            ring.count_lost(core);
        }
        core.unseen.counts_were_read(&core.evlist);
    }

    /// The ring size that would have prevented the losses so far, as text. The next interval begins.
    pub fn cure(&mut self, mean_record_bytes: u64) -> String {
        let uses: Vec<RingUse> = self
            .rings
            .iter()
            .map(|ring| RingUse {
                lost: ring.lost_at_worst,
                backlog_peak_bytes: self.merge.backlog_peak(ring.index),
                mean_record_bytes,
            })
            .collect();
        self.rings.iter_mut().for_each(|ring| ring.lost = 0);
        let page = sys::page_size();
        let per_cpu = self.rings_per_cpu().max(1);
        cure(&uses, page as u64, per_cpu as u64, most_pages(self.cpus(), per_cpu) as u64)
    }

    /// Number of CPUs on which the events are open.
    pub fn cpus(&self) -> usize {
        self.rings.iter().filter(|ring| ring.class == Class::Events(0)).count()
    }

    fn rings_per_cpu(&self) -> usize {
        let number = |ring: &RunRing| if let Class::Events(class) = ring.class { class + 1 } else { 0 };
        self.rings.iter().map(number).max().unwrap_or(0)
    }

    /// Size of a ring of events in bytes.
    pub fn ring_bytes(&self) -> u64 {
        (self.data_pages * sys::page_size()) as u64
    }

    pub fn locked_bytes(&self) -> u64 {
        self.rings.iter().map(|ring| ((ring.pages + 1) * sys::page_size()) as u64).sum()
    }

    /// Peak bytes and size of the ring that was fullest.
    pub fn fullest(&self) -> (u64, u64) {
        let use_of = |ring: &RunRing| (self.merge.backlog_peak(ring.index), (ring.pages * sys::page_size()) as u64);
        // Compared by their share of the ring, since rings differ in size.
        let share = |(held, bytes): &(u64, u64)| u128::from(*held) * 1_000_000 / u128::from(*bytes).max(1);
        self.rings.iter().map(use_of).max_by_key(share).unwrap_or((0, 0))
    }

    /// Records that could not be decoded, beyond those that [`Dispatcher`] counts.
    pub fn undecodable(&self) -> u64 {
        self.merge.undecodable()
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub fn describe(&self) -> String {
        let of = |side_alone: bool| {
            let class = if side_alone { Class::Side } else { Class::Events(0) };
            let rings = self.rings.iter().filter(|ring| ring.class == class && ring.side_alone == side_alone);
            cpu_ranges(&rings.map(|ring| ring.cpu).collect::<Vec<u32>>())
        };
        let others = match of(true) {
            others if others.is_empty() => String::new(),
            others => format!("; CPUs {others}: only names, forks and exits"),
        };
        let events = self.rings.iter().filter(|ring| matches!(ring.class, Class::Events(_)));
        let first = self.rings.first().map(|ring| ring.cpu);
        let pages: Vec<usize> = events.filter(|ring| Some(ring.cpu) == first).map(|ring| ring.pages).collect();
        let buffers = match &pages[..] {
            [] | [_] => format!("a ring buffer of {} pages each", self.data_pages),
            [one, rest @ ..] if rest.iter().all(|pages| pages == one) => {
                format!("{} ring buffers of {one} pages each", pages.len())
            }
            sizes => {
                let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
                format!("{} ring buffers of {} pages", sizes.len(), sizes.join(", "))
            }
        };
        format!("CPUs {}: {buffers}{others}", of(false))
    }
}

/// Inode of a sysfs directory that is created when the CPU comes online (`topology_add_dev`, drivers/base/topology.c).
fn directory_of(host: &Host, cpu: u32) -> Option<u64> {
    fs::metadata(host.cpu.join(format!("cpu{cpu}/topology"))).ok().map(|directory| directory.ino())
}

/// Marks a gap in each near-full ring that has lost a record, by `has_lost`.
pub fn mark_gaps(merge: &mut Merge, clock: impl Fn() -> u64, mut has_lost: impl FnMut(usize) -> bool) {
    while let Some(index) = merge.next_near_full() {
        if has_lost(index) {
            merge.mark_gap(index, clock());
        }
    }
}

/// The consumer of the merge, which passes records to the dispatcher.
struct Delivery<'a, P> {
    layouts: Arc<[Layout]>,
    /// No profiler needs time order across threads.
    is_by_thread: bool,
    core: &'a mut Dispatcher,
    place: P,
}

impl<P: Fn(usize) -> (u32, Class)> RecordSink for Delivery<'_, P> {
    #[inline(always)]
    fn stamp(&self, ring: usize, record: &[u8]) -> Stamp {
        let class = if let (_, Class::Events(class)) = (self.place)(ring) { class } else { 0 };
        self.layouts.get(class).map_or(Stamp::Bad, |layout| Dispatcher::stamp(layout, record))
    }

    #[inline]
    fn order_keys(&self, ring: usize) -> impl Fn(&[u8]) -> Option<(u64, u64)> {
        let class = if let (_, Class::Events(class)) = (self.place)(ring) { class } else { 0 };
        let layout = self.layouts.get(class).filter(|_| self.is_by_thread);
        move |record| {
            let layout = layout.filter(|_| record_type(record) == PERF_RECORD_SAMPLE)?;
            layout.time_and_thread(record).map(|(time, tid)| (time, tid as u64))
        }
    }

    fn has_order_keys(&self) -> bool {
        self.is_by_thread
    }

    #[inline(always)]
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        self.core.take(&item, &self.place)
    }

    #[inline]
    fn take_run(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        self.core.take_samples(piece)
    }
}

/// Delivers the records of the rings up to the limit to the dispatcher, and returns their room to the kernel. `place`:
/// CPU and class of a ring.
pub fn deliver(
    merge: &mut Merge,
    limit: DrainLimit,
    core: &mut Dispatcher,
    place: impl Fn(usize) -> (u32, Class),
) -> Drained {
    let drained = if core.has_enough() {
        Drained { stopped: true, ..Drained::default() }
    } else {
        let is_by_thread = core.is_ordered_by_thread();
        merge.drain_into(limit, &mut Delivery { layouts: core.layouts.clone(), is_by_thread, core, place })
    };
    core.records.bytes += drained.bytes;
    core.records.late += drained.late;
    merge.publish();
    drained
}

/// The message for the case that no event is open on any of `cpus` although none was refused.
fn nothing_opened(evlist: &Evlist, tasks: &Tasks, cpus: &[u32]) -> String {
    let events = || evlist.iter().map(|(_, evsel)| evsel).filter(|evsel| evsel.is_opened_itself());
    let names: Vec<&str> = events().map(Evsel::name).take(3).collect();
    let is_left_out = |evsel: &Evsel| evlist.left_out().iter().any(|name| name == evsel.name());
    let is_elsewhere = |evsel: &Evsel| !cpus.iter().any(|&cpu| evsel.is_on(cpu));
    let why = if events().all(is_left_out) {
        "the kernel does not let them be sampled".to_owned()
    } else if events().all(|evsel| is_left_out(evsel) || is_elsewhere(evsel)) {
        format!("cpus= names no CPU that is watched (watched: {})", cpu_ranges(cpus))
    } else if matches!(tasks, Tasks::All) {
        "the CPUs have just gone offline".to_owned()
    } else {
        "the target has gone".to_owned()
    };
    format!("nothing could be opened of {}: {why}", names.join(", "))
}

/// Why rings are smaller than wanted, and the cure.
pub fn why_shrunk(evlist: &Evlist) -> (&'static str, &'static str) {
    match evlist.shrunk() {
        Some(Shrunk::Memory) => ("the kernel has memory for", "a smaller -m, or free memory"),
        _ => ("the mlock limit allows", "CAP_IPC_LOCK, or raise `ulimit -l` or kernel.perf_event_mlock_kb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Attr;

    #[test]
    fn what_could_not_be_opened_is_said_with_the_reason_that_applies() {
        let why = |cpus: &[Option<Vec<u32>>], tasks: Tasks| {
            let mut evlist = Evlist::new();
            for (number, cpus) in cpus.iter().enumerate() {
                evlist.add(Evsel::new(format!("event{number}"), Attr::dummy()).cpus(cpus.clone())).unwrap();
            }
            nothing_opened(&evlist, &tasks, &[0, 1])
        };
        let gone = "nothing could be opened of event0: the target has gone";
        assert_eq!(why(&[None], Tasks::Threads(vec![7])), gone);
        assert_eq!(why(&[Some(vec![1, 9])], Tasks::Processes(vec![7])), gone);
        let elsewhere = "nothing could be opened of event0, event1: cpus= names no CPU that is watched (watched: 0-1)";
        for tasks in [Tasks::All, Tasks::Threads(vec![7])] {
            assert_eq!(why(&[Some(vec![2]), Some(vec![9])], tasks), elsewhere);
        }
        assert!(why(&[None, Some(vec![9])], Tasks::All).ends_with(": the CPUs have just gone offline"));
    }
}
