//! Side records: names, forks, exits and mappings of tasks, in a ring of their own where there is room for it.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};

use crate::perf::attr::{Attr, Source};
use crate::perf::classes::Class;
use crate::perf::cpu_events::{CpuEvents, SideFd};
use crate::perf::evlist::Evlist;
use crate::perf::evlist::layouts::shared_bits;
use crate::perf::opening::{is_gone, watch_error};
use crate::perf::plan::Watermark;
use crate::ringbuf::RingBuf;
use crate::sys;
use crate::sys::perf::Watch;

/// Name of these events in errors.
const SIDE_RECORDS: &str = "perf events";

impl Evlist {
    /// Opens the side records of `cpu` and maps a ring for them, once all events are open: it must not take locked
    /// memory from their rings. None: no memory is left, and side records go to the first ring of events.
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`]; and if no events are open, the ring cannot be mapped.
    pub fn open_side_records(&mut self, cpu: u32, data_pages: &mut usize) -> Result<Option<RingBuf>> {
        let half = Watermark::default().bytes(*data_pages)?;
        let watch = self.plan.watch_of_owner(cpu);
        let on_cpu = self.plan.side_on_cpu;
        // Otherwise the ring is owned by an event on a thread of perf-prof, which outlives every watched task.
        let mut attr = if on_cpu {
            self.side_attr(half, false)
        } else {
            Attr::dummy().with_sample_type(shared_bits(&self.evsels)).watermark(half)
        };
        let owner = self.open_side(&mut attr, watch)?;
        let mut cpus = std::mem::take(&mut self.cpus);
        let index = cpus.iter().position(|events| events.cpu == cpu).unwrap_or_else(|| {
            cpus.push(CpuEvents::new(cpu));
            cpus.len() - 1
        });
        let result = self.join_side_records(&mut cpus[index], owner, half, data_pages);
        self.cpus = cpus;
        result
    }

    fn join_side_records(
        &mut self,
        cpu: &mut CpuEvents,
        owner: OwnedFd,
        half: u32,
        data_pages: &mut usize,
    ) -> Result<Option<RingBuf>> {
        let ring = match cpu.owner(Class::Events(0)) {
            None => loop {
                match RingBuf::map(owner.as_fd(), *data_pages) {
                    Ok(ring) => break Some(ring),
                    Err(err) => self.shrink(err, data_pages)?,
                }
            },
            Some(events) => {
                let ring = RingBuf::map(owner.as_fd(), *data_pages).ok();
                if ring.is_none() {
                    sys::perf::set_output(owner.as_fd(), events).context("cannot share a ring buffer")?;
                }
                ring
            }
        };
        cpu.side_owner = Some(SideFd::new(owner));
        cpu.side_ring = ring.is_some();
        if cpu.side_ring {
            cpu.side_half = half;
        }
        self.join_side(cpu, &self.plan.watches(cpu.cpu))?;
        Ok(ring)
    }

    /// Opens the side records of tasks and redirects them to the ring of the CPU's side records.
    pub(super) fn join_side(&mut self, cpu: &mut CpuEvents, watches: &[Watch]) -> Result<()> {
        let Some(target) = cpu.side_target().filter(|_| !self.plan.side_on_cpu) else { return Ok(()) };
        let mut side = Vec::new();
        for &watch in watches {
            let mut attr = self.side_attr(cpu.side_half, self.plan.inherit);
            let fd = match self.missing.open(&mut attr, watch) {
                Ok(fd) => fd,
                Err(err) if is_gone(&err) => continue,
                Err(err) => return Err(watch_error(err, SIDE_RECORDS, &attr, watch)),
            };
            sys::perf::set_output(fd.as_fd(), target).context("cannot share a ring buffer")?;
            side.push(SideFd::new(fd));
        }
        cpu.side.append(&mut side);
        Ok(())
    }

    /// Opens an event that carries side records. It is opened first, so its refusal is explained by the event of the run that
    /// needs the most privilege: the cure for a dummy event alone would not be the cure for the run.
    pub(super) fn open_side(&mut self, attr: &mut Attr, watch: Watch) -> Result<OwnedFd> {
        self.missing.open(attr, watch).map_err(|err| {
            let mut needs_most = self.evsels.iter().filter(|evsel| evsel.is_opened()).map(|evsel| &evsel.attr);
            let tracepoint = needs_most.find(|attr| attr.source() == Source::Tracepoint);
            watch_error(err, SIDE_RECORDS, tracepoint.unwrap_or(attr), watch)
        })
    }

    fn side_attr(&self, half: u32, inherit: bool) -> Attr {
        Attr::dummy()
            .with_sample_type(shared_bits(&self.evsels))
            .side_records(self.plan.mappings)
            .watermark(half)
            .inherit(inherit)
            .enable_on_exec(inherit && self.plan.enable_on_exec)
    }
}
