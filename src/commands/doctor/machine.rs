//! Facts about the machine: hardware, limits, tracefs, and the fields of events that differ among kernels.

use std::fs;
use std::path::Path;

use crate::host::{Host, is_virtual, online_cpus, parse_cpus, sysctl};
use crate::perf::attr::{Attr, Exclude, MissingFeatures, Sampling};
use crate::perf::no_tracefs::{Lockdown, NoTracefs, unreadable};
use crate::perf::refusal::Reason;
use crate::profiler::TracefsFinder;
use crate::sys;
use crate::sys::perf::Watch;
use crate::task::procfs;
use crate::tep::drift::{self, DRIFTING_FIELDS, DriftingField};
use crate::tep::{EventError, Format};

/// Kernel and hardware of the machine.
#[derive(Debug, Default)]
pub struct MachineSummary {
    pub kernel: String,
    pub online: usize,
    pub possible: usize,
    pub is_virtual: bool,
    /// Hardware cycles can be sampled.
    pub pmu: bool,
    pub kprobes: ProbeEvents,
    pub uprobes: ProbeEvents,
    /// This process lives in a pid namespace below the machine's.
    pub nested: bool,
}

/// Whether events of one kind of probe (kprobe, uprobe) can be defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProbeEvents {
    Work,
    /// They cannot be defined, and why.
    Refused(String),
    /// tracefs cannot be read.
    #[default]
    Unknown,
}

impl ProbeEvents {
    fn try_out(host: &Host, tracefs: &TracefsFinder, user: bool) -> ProbeEvents {
        match tracefs.try_probe(host, user) {
            Ok(()) => ProbeEvents::Work,
            Err(err) => ProbeEvents::Refused(format!("{err:#}")),
        }
    }
}

impl MachineSummary {
    /// Gathers the facts. `lack`: true if tracefs cannot be read.
    pub fn gather(host: &Host, tracefs: &TracefsFinder, lack: bool) -> MachineSummary {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let online = online_cpus(host).unwrap_or_default();
        let possible = parse_cpus(read(&host.cpu.join("possible")).trim()).map_or(0, |cpus| cpus.len());
        let probes = |user| if lack { ProbeEvents::Unknown } else { ProbeEvents::try_out(host, tracefs, user) };
        let watch = Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu: online.first().copied().unwrap_or(0) };
        let user_code = Exclude { kernel: true, ..Default::default() };
        MachineSummary {
            kernel: read(&host.proc.join("sys/kernel/osrelease")).trim().to_owned(),
            online: online.len(),
            possible,
            is_virtual: is_virtual(host),
            pmu: MissingFeatures::default()
                .open(&mut Attr::cycles(Sampling::Frequency(99)).exclude(user_code), watch)
                .is_ok(),
            kprobes: probes(false),
            uprobes: probes(true),
            nested: procfs::is_nested(host),
        }
    }
}

/// A limit by its usual name; None where it cannot be read.
pub type NamedLimit = (&'static str, Option<i64>);

/// Limits of the kernel and of this process that may refuse a run.
pub fn limits(host: &Host) -> Vec<NamedLimit> {
    const SYSCTLS: [&str; 5] = [
        "perf_event_paranoid",
        "kptr_restrict",
        "perf_event_mlock_kb",
        "perf_event_max_sample_rate",
        "perf_event_max_stack",
    ];
    let (soft, hard) = sys::open_files();
    let number = |value: u64| i64::try_from(value).ok();
    let mut limits: Vec<NamedLimit> = SYSCTLS.iter().map(|&name| (name, sysctl(host, name))).collect();
    limits.push(("nofile_soft", number(soft)));
    limits.push(("nofile_hard", number(hard)));
    limits.push(("memlock_bytes", number(sys::locked_memory())));
    limits
}

/// Why tracefs cannot be read. None: it can.
pub fn tracefs_lack(finder: &TracefsFinder) -> Option<Reason> {
    match finder.get() {
        Ok(tracefs) => match tracefs.format("sched", "sched_switch") {
            Err(EventError::Permission { path }) => Some(unreadable(&path, tracefs.root(), &Lockdown::now())),
            _ => None,
        },
        Err(err) => Some(match err.downcast::<NoTracefs>() {
            Ok(none) => none.reason,
            Err(err) => Reason::incurable(format!("{err:#}")),
        }),
    }
}

/// A field that differs among kernels, as the running kernel has it.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldMapping {
    pub event: &'static str,
    pub field: &'static str,
    /// None where the event or the field does not exist.
    pub found: Option<String>,
    /// What profilers do if the field is missing.
    pub without: Option<&'static str>,
}

/// The fields of [`DRIFTING_FIELDS`], as the running kernel has them.
pub fn mappings(finder: &TracefsFinder) -> Vec<FieldMapping> {
    let Ok(tracefs) = finder.get() else { return Vec::new() };
    let format = |name: &str| name.split_once(':').and_then(|(system, event)| tracefs.format(system, event).ok());
    let mapping = |drifting: &'static DriftingField| FieldMapping {
        event: drifting.event,
        field: drifting.names.first().copied().unwrap_or_default(),
        found: format(drifting.event).and_then(|format| described(&format, drifting)),
        without: drifting.without,
    };
    DRIFTING_FIELDS.iter().map(mapping).collect()
}

fn described(format: &Format, drifting: &DriftingField) -> Option<String> {
    let field = drifting.find(format)?;
    let letters = if field.name == "prev_state" { state_letters(format) } else { None };
    let letters = letters.map_or(String::new(), |letters| format!(": {letters}"));
    let renamed = drifting.names.first().is_some_and(|name| *name != field.name);
    let name = if renamed { format!("{}: ", field.name) } else { String::new() };
    Some(format!("{name}{}, {} bytes at {}{letters}", field.declared, field.size, field.offset))
}

/// `S=1 D=2`, from the `print fmt` of the event.
fn state_letters(format: &Format) -> Option<String> {
    let table = drift::task_states(format)?;
    let entry = |(value, letter): &(u64, String)| format!("{letter}={value}");
    Some(table.entries.iter().map(entry).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_described_as_they_are_stored() {
        let text = "name: sched_switch\nID: 3\nformat:\n\
            \tfield:__data_loc char[] prev_comm;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\n\
            print fmt: \"%s\", __print_flags(REC->prev_state & 3, \"|\", { 1, \"S\" }, { 2, \"D\" })\n";
        let format = Format::parse("sched", text).unwrap();
        let described =
            |names| described(&format, &DriftingField { event: "sched:sched_switch", names, without: None });
        assert_eq!(described(&["prev_comm"]).as_deref(), Some("__data_loc char[], 4 bytes at 8"));
        assert_eq!(described(&["state", "prev_state"]).as_deref(), Some("prev_state: long, 8 bytes at 16: S=1 D=2"));
        assert_eq!(described(&["success"]), None);
    }
}
