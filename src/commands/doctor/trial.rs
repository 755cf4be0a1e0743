//! Whether a profiler can run here: its own events are opened, as it would open them, and released at once.

use anyhow::{Context, Result};
use nix::unistd::gettid;

use crate::bpf::attached::{self, Attached};
use crate::commands::doctor::machine;
use crate::host::{Host, online_cpus};
use crate::perf::Evlist;
use crate::perf::no_tracefs::NoTracefs;
use crate::perf::refusal::{Reason, Refused, locks_little};
use crate::perf::target::{Target, Tasks};
use crate::profiler::Trial;
use crate::profiler::{Profiler, Setup, TracefsFinder, Warning};
use crate::run::{default_ring_pages, side_ring_pages};
use crate::symbol::hidden::hidden;
use crate::sys;
use crate::task::Watched;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    Degraded,
    Impossible,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Degraded => "degraded",
            Verdict::Impossible => "impossible",
        }
    }
}

/// What a default run of a subcommand is like here.
#[derive(Debug)]
pub struct Judged {
    pub name: &'static str,
    pub verdict: Verdict,
    pub reasons: Vec<Reason>,
    pub cost: Option<Cost>,
}

impl Judged {
    pub fn new(name: &'static str, reasons: Vec<Reason>, cost: Option<Cost>) -> Judged {
        let verdict = if reasons.is_empty() { Verdict::Ok } else { Verdict::Degraded };
        Judged { name, verdict, reasons, cost }
    }

    pub fn impossible(name: &'static str, reason: Reason) -> Judged {
        Judged { name, verdict: Verdict::Impossible, reasons: vec![reason], cost: None }
    }
}

/// What a default run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Descriptors of perf events.
    pub descriptors: u64,
    /// Of all its ring buffers.
    pub locked_bytes: u64,
}

/// What all trials have in common.
pub struct Bench<'a> {
    pub host: &'a Host,
    pub tracefs: &'a TracefsFinder,
    /// Why tracefs cannot be read.
    pub tracefs_lack: Option<Reason>,
    /// Kept to the end: releasing a tracepoint is slow, and the next trial may want it again.
    opened: Vec<Evlist>,
    /// Attribute features that this kernel lacks.
    pub missing: Vec<&'static str>,
    /// What others have attached to the events.
    pub onlookers: Onlookers,
}

/// Programs of others on the events of all trials.
#[derive(Debug, Default)]
pub struct Onlookers {
    pub programs: Vec<Attached>,
    /// The kernel does not tell us.
    pub is_refused: bool,
}

impl Onlookers {
    /// Looks at the events of one trial. Returns what may hide some of them.
    fn look(&mut self, evlist: &Evlist) -> Vec<Attached> {
        let look = attached::look(evlist.tracepoints(&[]));
        self.is_refused |= look.is_refused;
        let found = look.attached();
        for program in &found {
            match self.programs.iter_mut().find(|known| known.id == program.id) {
                Some(known) => known.join(program),
                None => self.programs.push(program.clone()),
            }
        }
        found.into_iter().filter(|program| !program.hides_nothing).collect()
    }
}

/// A run that could be opened.
struct Opened {
    warnings: Vec<Warning>,
    /// What may hide some of its events.
    filters: Vec<Attached>,
    cost: Cost,
    /// Pages of the smallest ring, and as many as were wanted.
    pages: (usize, usize),
    addresses: bool,
}

impl<'a> Bench<'a> {
    pub fn new(host: &'a Host, tracefs: &'a TracefsFinder) -> Bench<'a> {
        let tracefs_lack = machine::tracefs_lack(tracefs);
        let (opened, missing, onlookers) = (Vec::new(), Vec::new(), Onlookers::default());
        Bench { host, tracefs, tracefs_lack, opened, missing, onlookers }
    }

    /// Opens what a default run of the profiler opens; when that is forbidden, what it opens for a task of our own.
    pub fn judge(&mut self, trial: &Trial) -> Judged {
        let err = match self.open(trial, &Target::everything()) {
            Ok(opened) => {
                let mut reasons = lacks(&opened);
                reasons.extend(self.nameless(&opened));
                return Judged::new(trial.name, reasons, Some(opened.cost));
            }
            Err(err) => err,
        };
        let refused = err.downcast_ref::<Refused>();
        let own = Target { wanted: None, tasks: Tasks::Threads(vec![gettid().as_raw()]) };
        if let Some(refused) = refused.filter(|refused| refused.is_forbidden())
            && let Ok(opened) = self.open(trial, &own)
        {
            let why = format!("your own processes only (-p, or a command): {}", refused.reason.why);
            let mut reasons = vec![Reason { why, cure: refused.reason.cure.clone() }];
            reasons.extend(lacks(&opened));
            return Judged::new(trial.name, reasons, None);
        }
        let reason = match err.downcast::<NoTracefs>() {
            Ok(none) => none.for_events(self.host).reason,
            Err(err) => self.tracefs.reason(&err),
        };
        Judged::impossible(trial.name, reason)
    }

    fn open(&mut self, trial: &Trial, target: &Target) -> Result<Opened> {
        let mut profiler = (trial.build)(trial.options)?;
        let mut evlist = Evlist::new();
        let mut opened = self.open_events(profiler.as_mut(), target, &mut evlist);
        if let Ok(opened) = &mut opened {
            opened.filters = self.onlookers.look(&evlist);
        }
        for name in evlist.missing() {
            if !self.missing.contains(&name) {
                self.missing.push(name);
            }
        }
        self.opened.push(evlist);
        opened
    }

    fn open_events(&self, profiler: &mut dyn Profiler, target: &Target, evlist: &mut Evlist) -> Result<Opened> {
        let watched = Watched::new(target, self.host);
        let setup = Setup::new(self.tracefs, target, self.host, &watched, [gettid().as_raw(); 2]);
        profiler.init(evlist, &setup)?;
        profiler.filter(evlist, &setup)?;
        setup.degrade_outsiders();
        let online = online_cpus(self.host)?;
        let first = online.first().copied().context("no CPU is online")?;
        evlist.plan(target, self.host, online.len(), 0)?;
        let wanted = default_ring_pages(online.len(), evlist.rings());
        // Where memory is not limited, one speaks for all.
        let limited = locks_little(self.host);
        let cpus = if limited { online.clone() } else { vec![first] };
        let mut pages = if limited { evlist.fitting_pages(&online, &[], wanted)? } else { wanted };
        let mut rings = Vec::new();
        for &cpu in &cpus {
            rings.extend(evlist.open_cpu(cpu, &mut pages)?);
        }
        for &cpu in &cpus {
            rings.extend(evlist.open_side_records(cpu, &mut side_ring_pages(pages))?);
        }
        let locked_pages: usize = rings.iter().map(|ring| ring.size() as usize / sys::page_size() + 1).sum();
        let locked_pages = if limited { locked_pages } else { locked_pages * online.len() };
        let cost = Cost {
            descriptors: evlist.events_on(online.len()) as u64,
            locked_bytes: (locked_pages * sys::page_size()) as u64,
        };
        let addresses = evlist.any_address();
        let filters = Vec::new();
        Ok(Opened { warnings: setup.warnings.take(), filters, cost, pages: (pages, wanted), addresses })
    }

    /// What will have no name. Own programs have theirs.
    fn nameless(&self, opened: &Opened) -> impl Iterator<Item = Reason> {
        let condition = if opened.addresses { "" } else { "with -g " };
        hidden(self.host).into_iter().map(move |reason| Reason { why: format!("{condition}{}", reason.why), ..reason })
    }
}

fn lacks(opened: &Opened) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = opened.warnings.iter().map(|warning| warning.reason.clone()).collect();
    let filtered = |program: &Attached| Reason::new(program.to_string(), "end what has attached the program");
    reasons.extend(opened.filters.iter().map(filtered));
    let (pages, wanted) = opened.pages;
    if pages < wanted {
        reasons.push(Reason::new(
            format!("ring buffers of {pages} pages per CPU instead of {wanted} (mlock limit)"),
            "CAP_IPC_LOCK, or raise `ulimit -l` or kernel.perf_event_mlock_kb",
        ));
    }
    reasons
}
