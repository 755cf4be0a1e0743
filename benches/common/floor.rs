//! The floor: opens the same events as perf-prof and only walks their record headers.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use perf_prof::host::{Host, online_cpus};
use perf_prof::perf::attr::Sampling;
use perf_prof::perf::classes::Class;
use perf_prof::perf::evsel::Evsel;
use perf_prof::perf::record::record_type;
use perf_prof::perf::target::Target;
use perf_prof::perf::{Attr, Evlist};
use perf_prof::profiler::TracefsFinder;
use perf_prof::ringbuf::RingBuf;
use perf_prof::sys;
use perf_prof::sys::poll::{Poller, Signals};

/// Ring size per CPU, in bytes; perf-prof gets the same.
pub const RING: &str = "8M";
const RING_BYTES: usize = 8 << 20;

/// The longest time that a record waits, as in perf-prof.
const LATENCY: Duration = Duration::from_millis(100);
const SIGNALS: u64 = u64::MAX;

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    pub samples: u64,
    pub others: u64,
    pub bytes: u64,
    pub lost: u64,
    pub wakeups: u64,
}

/// One event from `sys:name`, or `profile@HZ` for what that profiler samples, either with `/g` behind it for
/// callchains.
fn evsel(text: &str, tracefs: &TracefsFinder, evlist: &mut Evlist, host: &Host) -> Result<Evsel> {
    let (name, stacks) = text.strip_suffix("/g").map_or((text, false), |name| (name, true));
    let attr = if let Some(hz) = name.strip_prefix("profile@") {
        let hz = hz.parse::<u64>().ok().filter(|hz| *hz > 0).with_context(|| format!("{name:?} has no frequency"))?;
        match evlist.cycles_per_s(host) {
            Some(per_s) => Attr::cycles(Sampling::Period(per_s / hz)),
            None => Attr::cpu_clock(Sampling::Frequency(hz)),
        }
    } else {
        let (system, event) = name.split_once(':').with_context(|| format!("{name:?} is no sys:name"))?;
        Attr::tracepoint(tracefs.get()?.format(system, event)?.id)
    };
    let evsel = Evsel::new(name, attr);
    Ok(if stacks { evsel.callchain(0) } else { evsel })
}

/// Reads `events` of all CPUs until SIGINT or SIGTERM, or for so long.
/// `filter` is the kernel filter of each event. `ahead`: prefetch memory, as perf-prof does.
///
/// # Errors
/// An event cannot be opened.
pub fn read(events: &[&str], filter: Option<&str>, ahead: bool, duration: Option<Duration>) -> Result<Read> {
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let host = Host::default();
    let tracefs = TracefsFinder::default();
    let mut evlist = Evlist::new();
    for name in events {
        let evsel = evsel(name, &tracefs, &mut evlist, &host)?;
        let id = evlist.add(evsel)?;
        if let Some(filter) = filter {
            evlist.set_filter(id, filter.to_owned())?;
        }
    }
    let cpus = online_cpus(&host)?;
    evlist.plan(&Target::everything(), &host, cpus.len(), 0)?;
    let mut poller = Poller::new()?;
    poller.add(&signals, SIGNALS)?;
    let mut rings = Vec::new();
    for &cpu in &cpus {
        rings.extend(evlist.open_cpu(cpu, &mut (RING_BYTES / sys::page_size()))?);
        if let Some(owner) = evlist.ring_owner(cpu, Class::Events(0)) {
            poller.add_edge(owner, u64::from(cpu))?;
        }
    }
    if !ahead {
        rings.iter_mut().for_each(RingBuf::disable_prefetch);
    }
    evlist.enable()?;
    let end_ns = duration.map(|duration| sys::monotonic_ns() + duration.as_nanos() as u64);
    let mut read = Read::default();
    let mut over = false;
    while !over {
        for token in poller.wait(LATENCY)? {
            read.wakeups += 1;
            over |= token == SIGNALS;
        }
        over |= end_ns.is_some_and(|end_ns| sys::monotonic_ns() >= end_ns);
        if over {
            sys::perf::disable_all()?;
        }
        rings.iter_mut().for_each(|ring| walk(ring, &mut read));
    }
    read.lost = cpus.iter().map(|&cpu| evlist.take_lost(cpu, Class::Events(0)).samples).sum();
    Ok(read)
}

fn walk(ring: &mut RingBuf, read: &mut Read) {
    ring.load();
    let mut passed = 0;
    while let Some(record) = ring.peek() {
        let len = record.len() as u64;
        if record_type(record) == PERF_RECORD_SAMPLE {
            read.samples += 1;
        } else {
            read.others += 1;
        }
        read.bytes += len;
        passed += len;
        ring.advance();
        if passed > ring.size() / 4 {
            ring.publish(); // as the merge does
            passed = 0;
        }
    }
    ring.publish();
}
