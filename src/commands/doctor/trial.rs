//! Whether a profiler can run on this machine: the trial opens the profiler's events as a run would, and releases them
//! at once.

use anyhow::{Context, Result};
use nix::unistd::gettid;

use crate::bpf::attached::{self, AttachedProgram};
use crate::commands::doctor::machine;
use crate::host::{Host, memory_bytes, online_cpus};
use crate::perf::Evlist;
use crate::perf::no_tracefs::NoTracefs;
use crate::perf::refusal::{Reason, Refused, locks_little};
use crate::perf::target::{Target, Tasks};
use crate::profiler::{Profiler, Setup, TracefsFinder, Trial, Warning, WarningKind};
use crate::run::{default_ring_pages, side_ring_pages};
use crate::symbol::kernel::hidden::hidden;
use crate::sys;
use crate::task::Watched;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandVerdict {
    Ok,
    Degraded,
    Impossible,
}

impl CommandVerdict {
    pub fn name(self) -> &'static str {
        match self {
            CommandVerdict::Ok => "ok",
            CommandVerdict::Degraded => "degraded",
            CommandVerdict::Impossible => "impossible",
        }
    }
}

/// Whether a default run of a subcommand works on this machine, and which resources it takes.
#[derive(Debug)]
pub struct JudgedCommand {
    pub name: &'static str,
    pub verdict: CommandVerdict,
    pub reasons: Vec<Reason>,
    pub cost: Option<TrialCost>,
}

impl JudgedCommand {
    pub fn new(name: &'static str, reasons: Vec<Reason>, cost: Option<TrialCost>) -> JudgedCommand {
        let verdict = if reasons.is_empty() { CommandVerdict::Ok } else { CommandVerdict::Degraded };
        JudgedCommand { name, verdict, reasons, cost }
    }

    pub fn impossible(name: &'static str, reason: Reason) -> JudgedCommand {
        JudgedCommand { name, verdict: CommandVerdict::Impossible, reasons: vec![reason], cost: None }
    }
}

/// The resources that a default run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialCost {
    /// File descriptors of perf events.
    pub descriptors: u64,
    /// Memory of all ring buffers.
    pub locked_bytes: u64,
}

/// The state that all trials share.
pub struct TrialBench<'a> {
    pub host: &'a Host,
    pub tracefs: &'a TracefsFinder,
    /// Why tracefs cannot be read.
    pub tracefs_lack: Option<Reason>,
    /// The events of all trials, kept to the end: releasing a tracepoint is slow, and the next trial may need the same
    /// one.
    opened: Vec<Evlist>,
    /// Attribute features that this kernel lacks.
    pub missing: Vec<&'static str>,
    /// BPF programs of other tools on the events.
    pub foreign_programs: ForeignPrograms,
}

/// BPF programs of other tools on the events of all trials.
#[derive(Debug, Default)]
pub struct ForeignPrograms {
    pub programs: Vec<AttachedProgram>,
    /// The kernel refused the query.
    pub is_refused: bool,
}

impl ForeignPrograms {
    /// Queries the events of one trial. Returns the programs that may hide some of them.
    fn query(&mut self, evlist: &Evlist) -> Vec<AttachedProgram> {
        let query = attached::query(evlist.tracepoints(&[]));
        self.is_refused |= query.is_refused;
        let found = query.attached();
        for program in &found {
            match self.programs.iter_mut().find(|known| known.id == program.id) {
                Some(known) => known.join(program),
                None => self.programs.push(program.clone()),
            }
        }
        found.into_iter().filter(|program| !program.hides_nothing()).collect()
    }
}

/// A run that could be opened.
struct OpenedTrial {
    warnings: Vec<Warning>,
    /// BPF programs that may hide some events of the trial.
    filters: Vec<AttachedProgram>,
    cost: TrialCost,
    /// Pages of the smallest ring that was opened, and pages that were asked for.
    pages: (usize, usize),
    /// Samples have addresses even without `-g`.
    addresses: bool,
}

impl<'a> TrialBench<'a> {
    pub fn new(host: &'a Host, tracefs: &'a TracefsFinder) -> TrialBench<'a> {
        let tracefs_lack = machine::tracefs_lack(tracefs);
        let (opened, missing, foreign_programs) = (Vec::new(), Vec::new(), ForeignPrograms::default());
        TrialBench { host, tracefs, tracefs_lack, opened, missing, foreign_programs }
    }

    /// Opens the events of a default run of the profiler; if that is forbidden, those of a run that watches only its
    /// own thread.
    pub fn judge(&mut self, trial: &Trial) -> JudgedCommand {
        let err = match self.open(trial, &Target::everything()) {
            Ok(opened) => {
                let mut reasons = degradations(&opened);
                reasons.extend(self.missing_names(&opened));
                return JudgedCommand::new(trial.name, reasons, Some(opened.cost));
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
            reasons.extend(degradations(&opened));
            return JudgedCommand::new(trial.name, reasons, None);
        }
        let reason = match err.downcast::<NoTracefs>() {
            Ok(none) => none.for_events(self.host).reason,
            Err(err) => self.tracefs.reason(&err),
        };
        JudgedCommand::impossible(trial.name, reason)
    }

    fn open(&mut self, trial: &Trial, target: &Target) -> Result<OpenedTrial> {
        let mut profiler = (trial.build)(trial.options)?;
        let mut evlist = Evlist::new();
        let mut opened = self.open_events(profiler.as_mut(), target, &mut evlist);
        if let Ok(opened) = &mut opened {
            opened.filters = self.foreign_programs.query(&evlist);
        }
        for name in evlist.missing() {
            if !self.missing.contains(&name) {
                self.missing.push(name);
            }
        }
        self.opened.push(evlist);
        opened
    }

    fn open_events(&self, profiler: &mut dyn Profiler, target: &Target, evlist: &mut Evlist) -> Result<OpenedTrial> {
        let watched = Watched::new(target, self.host);
        let setup = Setup::new(self.tracefs, target, self.host, &watched, [gettid().as_raw(); 2]);
        profiler.init(evlist, &setup)?;
        profiler.filter(evlist, &setup)?;
        setup.copy_idle_records(evlist);
        setup.degrade_outsiders();
        let online = online_cpus(self.host)?;
        let first = online.first().copied().context("no CPU is online")?;
        evlist.plan(target, self.host, online.len(), 0)?;
        let sizes = default_ring_pages(online.len(), &evlist.ring_demands(), memory_bytes(self.host));
        let wanted = sizes.iter().copied().max().unwrap_or(1);
        evlist.limit_rings(sizes);
        // If locked memory is not limited, the first CPU stands for all CPUs.
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
        let cost = TrialCost {
            descriptors: evlist.events_on(online.len()) as u64,
            locked_bytes: (locked_pages * sys::page_size()) as u64,
        };
        let addresses = evlist.evsels.any_address();
        let filters = Vec::new();
        Ok(OpenedTrial { warnings: setup.warnings.take(), filters, cost, pages: (pages, wanted), addresses })
    }

    /// Reasons why some functions will have no names.
    fn missing_names(&self, opened: &OpenedTrial) -> impl Iterator<Item = Reason> {
        let condition = if opened.addresses { "" } else { "with -g " };
        hidden(self.host).into_iter().map(move |reason| Reason { why: format!("{condition}{}", reason.why), ..reason })
    }
}

fn degradations(opened: &OpenedTrial) -> Vec<Reason> {
    let limits = opened.warnings.iter().filter(|warning| warning.kind != WarningKind::Information);
    let mut reasons: Vec<Reason> = limits.map(|warning| warning.reason.clone()).collect();
    let filtered = |program: &AttachedProgram| Reason::new(program.to_string(), "end what has attached the program");
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
