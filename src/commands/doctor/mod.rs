//! `doctor`: what works on this machine, what does not and why, and the smallest cure.
//!
//! `trial` opens the events of every profiler disabled and releases them at once: a verdict comes from this trial, not
//! from settings. `machine` has the facts that explain verdicts; `formats` checks whether events can be printed as the
//! kernel prints them.

mod formats;
mod machine;
mod trial;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::doctor::machine::{FieldMapping, MachineSummary, NamedLimit, ProbeEvents};
use crate::commands::doctor::trial::{ForeignPrograms, JudgedCommand, TrialBench};
use crate::escape::escape;
use crate::host::{Host, cpu_ranges};
use crate::json::Object;
use crate::output::json::{self, attached};
use crate::output::sink::Sink;
use crate::output::wall::WallClock;
use crate::perf::refusal::Reason;
use crate::profiler::TracefsFinder;
use crate::run::IdleCpus;
use crate::sys;
use crate::sys::privileges::{Capability, Privileges};
use crate::tep::tracefs::check::FormatCheck;

const WIDTH: usize = 80;

/// Say what works on this machine, what does not and why, and the smallest cure
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf-prof doctor                      each command: ok, degraded or impossible
  perf-prof doctor --formats trees/     event formats of saved trees
  perf-prof doctor --json | jq '.commands[] | select(.verdict != \"ok\")'")]
pub struct DoctorArgs {
    /// Check saved event formats instead of this machine: a copy of a tracefs, or a directory of copies
    #[arg(long, value_name = "DIR")]
    formats: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// List the texts that are complete but for something, too
    #[arg(short = 'v', long)]
    verbose: bool,
}

/// The whole report about this machine.
struct DoctorReport {
    commands: Vec<JudgedCommand>,
    machine: MachineSummary,
    /// Where tracefs is, or why it cannot be read.
    tracefs: Result<String, String>,
    missing: Vec<&'static str>,
    privileges: Privileges,
    limits: Vec<NamedLimit>,
    mappings: Vec<FieldMapping>,
    foreign_programs: ForeignPrograms,
    /// What events see of idle tasks, or why that is not known.
    idle: Result<IdleCpus, String>,
}

impl DoctorArgs {
    /// Checks and prints. Returns the exit code.
    ///
    /// # Errors
    /// The directory cannot be read or holds no format; the output cannot be written.
    pub fn run(&self) -> Result<u8> {
        sys::ignore_sigpipe()?;
        let host = Host::default();
        let finder = TracefsFinder::default();
        let mut bench = None; // its events are released after the report is out
        let (report, checked) = match &self.formats {
            Some(dir) => (None, formats::saved(dir)?),
            None => {
                let report = examine(bench.insert(TrialBench::new(&host, &finder)));
                (Some(report), formats::running(&finder).unwrap_or_else(|err| unreadable_formats(&err)))
            }
        };
        let mut sink = Sink::stdout()?;
        if self.json {
            json(report.as_ref(), &checked, &mut sink.buffer);
        } else {
            if let Some(report) = &report {
                print(report, self.verbose, &mut sink.buffer);
                sink.buffer.extend_from_slice(b"\nEvent formats\n");
            }
            formats::print(&checked, self.verbose, &mut sink.buffer);
        }
        sink.finish()
    }
}

/// Unreadable formats become a finding of the report: they must not prevent the rest of it.
fn unreadable_formats(err: &anyhow::Error) -> FormatCheck {
    let mut checked = FormatCheck::default();
    checked.troubles.push(format!("no event format was checked: {err:#}"));
    checked
}

fn examine(bench: &mut TrialBench<'_>) -> DoctorReport {
    // The limits are read before the trials raise some of them.
    let limits = machine::limits(bench.host);
    let mut commands: Vec<JudgedCommand> = crate::profilers::trials().iter().map(|trial| bench.judge(trial)).collect();
    commands.push(match &bench.tracefs_lack {
        None => JudgedCommand::new("list", Vec::new(), None),
        Some(lack) => JudgedCommand::impossible("list", lack.clone()),
    });
    DoctorReport {
        commands,
        machine: MachineSummary::gather(bench.host, bench.tracefs, bench.tracefs_lack.is_some()),
        tracefs: match &bench.tracefs_lack {
            None => Ok(bench.tracefs.describe().unwrap_or_default().trim_start_matches("tracefs: ").to_owned()),
            Some(lack) => Err(lack.why.clone()),
        },
        missing: bench.missing.clone(),
        privileges: Privileges::of_self(&bench.host.proc),
        limits,
        mappings: machine::mappings(bench.tracefs),
        foreign_programs: std::mem::take(&mut bench.foreign_programs),
        idle: IdleCpus::find(bench.host, bench.tracefs).map_err(|err| format!("{err:#}")),
    }
}

fn join_distinct(parts: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for part in parts {
        if !seen.contains(&part) {
            seen.push(part);
        }
    }
    seen.join("; ")
}

fn why(reasons: &[Reason]) -> String {
    join_distinct(reasons.iter().map(|reason| reason.why.clone()))
}

fn cure(reasons: &[Reason]) -> Option<String> {
    let cures = join_distinct(reasons.iter().filter_map(|reason| reason.cure.clone()));
    (!cures.is_empty()).then_some(cures)
}

/// `head`, then `text` in lines that fit, the later ones indented.
fn wrap(head: &str, text: &str, indent: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    let mut column = head.chars().count();
    for (at, word) in text.split(' ').enumerate() {
        let len = word.chars().count();
        if column + 1 + len > WIDTH && at > 0 {
            // Writing to a Vec cannot fail, here and below.
            let _ = write!(out, "\n{:indent$}{word}", "");
            column = indent + len;
        } else {
            let space = if column > 0 && !head.is_empty() || at > 0 { " " } else { "" };
            let _ = write!(out, "{space}{word}");
            column += space.len() + len;
        }
    }
    out.push(b'\n');
}

/// A line of a section: a label, and its value.
fn line(what: &str, value: &str, out: &mut Vec<u8>) {
    wrap(&format!("  {what:<34}"), &escape(value.as_bytes()), 37, out);
}

fn print(findings: &DoctorReport, verbose: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Commands\n");
    for command in &findings.commands {
        let said = match (command.verdict, why(&command.reasons)) {
            (trial::CommandVerdict::Ok, _) => "OK".to_owned(),
            (verdict, why) => format!("{}: {why}", verdict.name()),
        };
        wrap(&format!("  {:<11}", command.name), &escape(said.as_bytes()), 14, out);
        if let Some(cure) = cure(&command.reasons) {
            wrap(&format!("{:13}", ""), &escape(format!("cure: {cure}").as_bytes()), 20, out);
        }
    }
    print_machine(findings, verbose, out);
    print_limits(findings, out);
    if !findings.mappings.is_empty() {
        out.extend_from_slice(b"\nFields that differ among kernels, as they are here\n");
    }
    for mapping in &findings.mappings {
        let absent = || mapping.without.map_or("absent".to_owned(), |without| format!("absent: {without}"));
        let found = mapping.found.clone().unwrap_or_else(absent);
        let event = mapping.event.split_once(':').map_or(mapping.event, |(_, event)| event);
        line(&format!("{event} {}", mapping.field), &found, out);
    }
}

fn print_machine(findings: &DoctorReport, verbose: bool, out: &mut Vec<u8>) {
    let machine = &findings.machine;
    let yes = |is| if is { "yes" } else { "no" };
    out.extend_from_slice(b"\nMachine\n");
    line("kernel", &format!("{} {}", machine.kernel, std::env::consts::ARCH), out);
    line("CPUs", &format!("{} online, {} possible", machine.online, machine.possible), out);
    line("virtual", yes(machine.is_virtual), out);
    line("hardware cycles", if machine.pmu { "yes" } else { "no: cpu-clock in their place" }, out);
    match (&machine.kprobes, &machine.uprobes) {
        (ProbeEvents::Unknown, ProbeEvents::Unknown) => {
            line("kprobes, uprobes", "unknown: tracefs cannot be read", out);
        }
        (kernel, user) => [("kprobes", kernel), ("uprobes", user)].iter().for_each(|(what, probes)| match probes {
            ProbeEvents::Work => line(what, "yes", out),
            ProbeEvents::Refused(why) => line(what, &format!("no: {why}"), out),
            ProbeEvents::Unknown => line(what, "unknown", out),
        }),
    }
    line("tracefs", findings.tracefs.as_ref().unwrap_or_else(|why| why), out);
    line("clock of all records", "CLOCK_MONOTONIC", out);
    let missing = if findings.missing.is_empty() { "none".to_owned() } else { findings.missing.join("; ") };
    line("lacking perf attributes", &missing, out);
    line("idle tasks", &idle_text(&findings.idle), out);
    line("pid namespace", if machine.nested { "nested: task numbers differ" } else { "the machine's" }, out);
    print_foreign_programs(&findings.foreign_programs, verbose, out);
}

/// Whether events see what happens while CPUs are idle.
fn idle_text(idle: &Result<IdleCpus, String>) -> String {
    let IdleCpus { hidden, unknown } = match idle {
        Ok(idle) => idle,
        Err(why) => return format!("unknown: {why}"),
    };
    let on = |cpus: &[u32]| format!("CPU {}", cpu_ranges(cpus));
    match (&hidden[..], &unknown[..]) {
        ([], []) => "seen".to_owned(),
        ([], busy) => format!("seen, or unknown: {} was not idle", on(busy)),
        (hidden, []) => format!("hidden from events: {}", on(hidden)),
        (hidden, busy) => format!("hidden from events: {}; unknown: {} was not idle", on(hidden), on(busy)),
    }
}

fn print_foreign_programs(foreign_programs: &ForeignPrograms, verbose: bool, out: &mut Vec<u8>) {
    const WHAT: &str = "BPF programs on these events";
    let (hidden, shown): (Vec<_>, Vec<_>) =
        foreign_programs.programs.iter().partition(|program| program.hides_nothing() && !verbose);
    shown.iter().for_each(|program| line(WHAT, &program.to_string(), out));
    if foreign_programs.is_refused {
        line(WHAT, "unknown: CAP_PERFMON is missing", out);
    } else if shown.is_empty() {
        let more = if hidden.is_empty() { "none" } else { "none that may hide any (others: see -v)" };
        line(WHAT, more, out);
    }
}

fn print_limits(findings: &DoctorReport, out: &mut Vec<u8>) {
    let privileges = &findings.privileges;
    let names = |held: bool| {
        let of = Capability::ALL.iter().filter(|&&capability| privileges.holds(capability) == held);
        let names = of.map(|capability| capability.name()).collect::<Vec<_>>().join(" ");
        if names.is_empty() { "none".to_owned() } else { names }
    };
    out.extend_from_slice(b"\nPrivileges\n");
    line("effective user", &privileges.uid.to_string(), out);
    line("capabilities", &names(true), out);
    line("without", &names(false), out);
    line("seccomp filter", if privileges.seccomp { "yes" } else { "no" }, out);
    if privileges.user_namespace {
        line("user namespace", "nested: capabilities do not count for the machine", out);
    }
    out.extend_from_slice(b"\nLimits\n");
    for (name, value) in &findings.limits {
        let what = match *name {
            "nofile_soft" => "RLIMIT_NOFILE, soft".to_owned(),
            "nofile_hard" => "RLIMIT_NOFILE, hard".to_owned(),
            "memlock_bytes" => "RLIMIT_MEMLOCK, bytes".to_owned(),
            name => format!("kernel.{name}"),
        };
        line(&what, &value.map_or("not there".to_owned(), |value| value.to_string()), out);
    }
    for command in &findings.commands {
        if let Some(cost) = command.cost {
            let text = format!("{} descriptors, {} KiB of rings", cost.descriptors, cost.locked_bytes / 1024);
            line(&format!("a run of {}", command.name), &text, out);
        }
    }
}

fn json(findings: Option<&DoctorReport>, checked: &FormatCheck, out: &mut Vec<u8>) {
    let mut object = json::head(out, "doctor", "doctor", sys::monotonic_ns(), &mut WallClock::now());
    if let Some(findings) = findings {
        json_commands(&findings.commands, object.key("commands"));
        json_machine(findings, object.key("machine"));
        json_privileges(&findings.privileges, object.key("privileges"));
        let mut limits = Object::new(object.key("limits"));
        for &(name, value) in &findings.limits {
            value.into_iter().for_each(|value| limits.signed(name, value));
        }
        limits.end();
        formats::objects(findings.mappings.iter(), object.key("mapping"), |mapping, object| {
            object.text("event", mapping.event);
            object.text("field", mapping.field);
            mapping.found.iter().for_each(|found| object.text("found", found));
            mapping.without.iter().for_each(|without| object.text("without", without));
        });
    }
    formats::json(checked, &mut object);
    object.end();
    out.push(b'\n');
}

fn json_commands(commands: &[JudgedCommand], out: &mut Vec<u8>) {
    formats::objects(commands.iter(), out, |command, object| {
        object.text("name", command.name);
        object.text("verdict", command.verdict.name());
        if !command.reasons.is_empty() {
            object.text("why", &escape(why(&command.reasons).as_bytes()));
        }
        cure(&command.reasons).iter().for_each(|cure| object.text("cure", &escape(cure.as_bytes())));
        if let Some(cost) = command.cost {
            object.unsigned("descriptors", cost.descriptors);
            object.unsigned("locked_bytes", cost.locked_bytes);
        }
    });
}

fn json_machine(findings: &DoctorReport, out: &mut Vec<u8>) {
    let machine = &findings.machine;
    let mut object = Object::new(out);
    object.text("kernel", &escape(machine.kernel.as_bytes()));
    object.text("arch", std::env::consts::ARCH);
    object.unsigned("cpus_online", machine.online as u64);
    object.unsigned("cpus_possible", machine.possible as u64);
    json_bool(&mut object, "virtual", machine.is_virtual);
    json_bool(&mut object, "pmu", machine.pmu);
    for (key, no, probes) in [("kprobes", "no_kprobes", &machine.kprobes), ("uprobes", "no_uprobes", &machine.uprobes)]
    {
        match probes {
            ProbeEvents::Work => json_bool(&mut object, key, true),
            ProbeEvents::Refused(why) => {
                json_bool(&mut object, key, false);
                object.text(no, &escape(why.as_bytes()));
            }
            ProbeEvents::Unknown => {}
        }
    }
    json_bool(&mut object, "nested_pid_namespace", machine.nested);
    let (key, text) = match &findings.tracefs {
        Ok(place) => ("tracefs", place),
        Err(why) => ("tracefs_unreadable", why),
    };
    object.text(key, &escape(text.as_bytes()));
    object.text("clock", "CLOCK_MONOTONIC");
    object.text("lacking", &findings.missing.join("; "));
    if let Ok(IdleCpus { hidden, unknown }) = &findings.idle {
        for (key, cpus) in [("idle_hidden", hidden), ("idle_unknown", unknown)] {
            let list = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            object.key(key).extend_from_slice(format!("[{list}]").as_bytes());
        }
    }
    if !findings.foreign_programs.is_refused {
        attached(&findings.foreign_programs.programs, object.key("bpf_programs"));
    }
    object.end();
}

fn json_privileges(privileges: &Privileges, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object.unsigned("uid", privileges.uid.into());
    let held = Capability::ALL.iter().filter(|&&capability| privileges.holds(capability));
    object.text("capabilities", &held.map(|capability| capability.name()).collect::<Vec<_>>().join(" "));
    json_bool(&mut object, "seccomp", privileges.seccomp);
    json_bool(&mut object, "user_namespace", privileges.user_namespace);
    object.end();
}

fn json_bool(object: &mut Object<'_>, key: &str, value: bool) {
    object.key(key).extend_from_slice(if value { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_screen() {
        let long = "word ".repeat(60);
        let mut out = Vec::new();
        wrap("  profile    ", long.trim(), 14, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("              word")), "{text}");
    }

    #[test]
    fn idle_tasks_are_told_by_cpu() {
        let text = |hidden: &[u32], unknown: &[u32]| {
            idle_text(&Ok(IdleCpus { hidden: hidden.to_vec(), unknown: unknown.to_vec() }))
        };
        assert_eq!(text(&[], &[]), "seen");
        assert_eq!(text(&[1, 2, 5], &[]), "hidden from events: CPU 1-2,5");
        assert_eq!(text(&[1], &[0]), "hidden from events: CPU 1; unknown: CPU 0 was not idle");
        assert_eq!(text(&[], &[3]), "seen, or unknown: CPU 3 was not idle");
    }

    #[test]
    fn equal_reasons_are_printed_once() {
        let reasons = [Reason::new("a", "c"), Reason::new("b", "c"), Reason::incurable("a")];
        assert_eq!((why(&reasons), cure(&reasons)), ("a; b".to_owned(), Some("c".to_owned())));
        assert_eq!(cure(&reasons[2..]), None);
    }
}
