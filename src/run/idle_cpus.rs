//! Which CPUs hide their idle tasks from events: a short test for `doctor`. Runs test it themselves.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::unistd::gettid;

use crate::host::{Host, online_cpus};
use crate::perf::Record;
use crate::perf::decode::decode;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::layout::Layout;
use crate::perf::target::Target;
use crate::profiler::{Setup, TracefsFinder};
use crate::ringbuf::RingBuf;
use crate::sys::affinity::CpuMask;
use crate::task::Watched;
use crate::tep::filter::Filter;

/// Data pages of a ring: more switches than fit in them are not needed.
const RING_PAGES: usize = 16;
/// How often a task sleeps on each CPU. The CPU is then idle, if no other task is ready.
const SLEEPS: u32 = 20;
const SLEEP: Duration = Duration::from_millis(2);
/// How often the test is repeated if a CPU was busy.
const ROUNDS: u32 = 5;

/// Whether events see idle tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleCpus {
    /// CPUs whose idle tasks are hidden: events in their interrupts have no samples.
    pub hidden: Vec<u32>,
    /// CPUs that were not idle, or that perf-prof may not run on.
    pub unknown: Vec<u32>,
}

impl IdleCpus {
    /// Lets each CPU be idle for a moment.
    ///
    /// # Errors
    /// Events of whole CPUs cannot be opened.
    pub fn find(host: &Host, tracefs: &TracefsFinder) -> Result<IdleCpus> {
        let (target, online) = (Target::everything(), online_cpus(host)?);
        let watched = Watched::new(&target, host);
        let setup = Setup::new(tracefs, &target, host, &watched, [gettid().as_raw(); 2]);
        let mut evlist = Evlist::new();
        let (switch, format) = setup.tracepoint("sched:sched_switch")?;
        let switch = evlist.add(switch.binding(Binding::Cpu))?;
        evlist.narrow(switch, [Filter::parse("prev_pid == -1", &format).ok()]); // its samples are not needed
        evlist.watch_idle(switch);
        evlist.plan(&target, host, online.len(), 0)?;
        let mut rings = Vec::new();
        for &cpu in &online {
            rings.extend(evlist.open_cpu(cpu, &mut RING_PAGES.clone())?.into_iter().map(|ring| (cpu, ring)));
        }
        evlist.enable()?;
        let layouts = evlist.shared_layouts();
        let layout = layouts.first().unwrap_or(&Layout::NONE);
        let mut idle = IdleCpus::default();
        for _ in 0..ROUNDS {
            thread::scope(|sleepers| online.iter().for_each(|&cpu| drop(sleepers.spawn(move || sleep_on(cpu)))));
            for (cpu, ring) in &mut rings {
                count_switches(ring, layout, |from_idle| evlist.idle.count_switch_in(*cpu, from_idle));
            }
            if !evlist.idle.tests_any() && idle.hidden.is_empty() {
                bail!("the kernel has no SWITCH records");
            }
            idle.hidden.extend(evlist.idle.judge());
            idle.unknown = evlist.idle.untested().collect();
            if idle.unknown.is_empty() {
                break;
            }
        }
        idle.hidden.sort_unstable();
        Ok(idle)
    }
}

/// Sleeps on a CPU. The switch that ends a sleep comes from the idle task, or shows that another task was running.
fn sleep_on(cpu: u32) {
    if CpuMask::none().with(cpu).apply(0).is_ok() {
        (0..SLEEPS).for_each(|_| thread::sleep(SLEEP));
    }
}

fn count_switches(ring: &mut RingBuf, layout: &Layout, mut count: impl FnMut(bool)) {
    ring.load();
    while let Some(record) = ring.peek() {
        if let Ok((Record::Switch { out: false, other, .. }, _)) = decode(record, layout) {
            count(other == Some(0));
        }
        ring.advance();
    }
    ring.publish();
}
