//! String arguments of system calls: a BPF program writes them just before the record of the call, to an output event
//! in the same ring.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::strings::{PointerArgument, StringArguments, load_copier};
use crate::host::{Host, sysctl};
use crate::perf::attr::{Attr, MissingFeatures};
use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::event_copier::EventCopier;
use crate::perf::evlist::string_tasks::StringTasks;
use crate::perf::evsel::Evsel;
use crate::perf::refusal::Reason;
use crate::sys::privileges::{Capability, Privileges};

/// All programs of a run that copy strings.
#[derive(Debug, Default)]
pub struct StringCopiers {
    copied: Vec<EventCopier>,
    /// None: strings are copied for all tasks.
    pub(super) tasks: Option<StringTasks>,
}

impl StringCopiers {
    pub(super) fn add(&mut self, copied: EventCopier) {
        self.copied.push(copied);
    }

    /// What is written through the event `output` goes to the ring of `event`, on a CPU.
    pub(super) fn write_through(&mut self, output: EventId, cpu: u32, event: BorrowedFd<'_>) {
        self.copied.iter_mut().for_each(|copied| copied.write_through(output, cpu, event));
    }

    /// Attaches the programs on `cpu`. Returns a message for each event whose strings cannot be read.
    fn attach(&mut self, evsels: &[Evsel], missing: &mut MissingFeatures, cpu: u32) -> Vec<String> {
        let mut unread = Vec::new();
        for copied in &mut self.copied {
            let Some(evsel) = evsels.get(copied.of.index()) else { continue };
            if let Err(err) = copied.attach(evsel, missing, cpu) {
                unread.push(format!("degraded: the strings of {} stay unread: {err}", evsel.name));
            }
        }
        unread
    }

    /// The strings of a process that is watched from now on are copied, too.
    pub(super) fn add_process(&self, pid: i32) -> io::Result<()> {
        self.tasks.as_ref().map_or(Ok(()), |tasks| tasks.map.insert(pid))
    }

    fn programs(&self) -> impl Iterator<Item = u32> + '_ {
        let at_forks = self.tasks.iter().filter_map(|tasks| tasks.map.id());
        self.copied.iter().filter_map(|copied| copied.copier.id()).chain(at_forks)
    }

    /// Ends the programs. Returns the descriptor that keeps the fork program attached.
    pub(super) fn end(&mut self) -> Option<RawFd> {
        self.copied.clear();
        self.tasks.as_ref()?.forks.as_ref().map(AsRawFd::as_raw_fd)
    }
}

impl Evlist {
    /// Copies the strings of each call that the event `of` records. They come as samples of the returned event, which
    /// belongs to the same profiler.
    ///
    /// # Errors
    /// Why the kernel refuses the program.
    pub fn copy_strings(&mut self, of: EventId, arguments: &StringArguments, host: &Host) -> Result<EventId, Reason> {
        if self.with_counters {
            return Err(Reason::incurable("a forecast leaves them out"));
        }
        let cpus = possible_cpus(host);
        let copier = load_copier(arguments, cpus, self.strings.tasks.as_ref().map(|tasks| &tasks.map))
            .map_err(|refusal| explain(&refusal, host))?;
        let output = self.add_output(format!("strings of {}", self.evsel(of).name), of)?;
        self.strings.add(EventCopier::new(copier, of, output));
        Ok(output)
    }

    /// The lists of strings of the calls that begin with the tracepoint `enter` will come as samples of the returned event, which
    /// shares a ring with `beside`, of the same profiler; the calls of all tasks of the machine.
    ///
    /// # Errors
    /// As [`Evlist::copy_strings`].
    pub fn copy_words(
        &mut self,
        beside: EventId,
        enter: Evsel,
        words: Vec<PointerArgument>,
        host: &Host,
    ) -> Result<EventId, Reason> {
        let copier = load_copier(&StringArguments::OfCall(words), possible_cpus(host), None);
        let copier = copier.map_err(|refusal| explain(&refusal, host))?;
        let output = self.add_output(format!("strings of {}", enter.name), beside)?;
        let of = self.add(enter.unopened()).map_err(|err| Reason::incurable(err.to_string()))?;
        self.strings.add(EventCopier::new(copier, of, output));
        Ok(output)
    }

    /// Events are only counted.
    pub fn is_forecast(&self) -> bool {
        self.with_counters
    }

    /// An event that a program writes through, which belongs to the profiler of the event `beside` and shares a ring with that.
    pub(super) fn add_output(&mut self, name: String, beside: EventId) -> Result<EventId, Reason> {
        let evsel = self.evsel(beside);
        let mut output = Evsel::new(name, Attr::bpf_output()).cpus(evsel.cpus.clone());
        output.strings_of = Some(beside);
        let owner = std::mem::replace(&mut self.adding_for, self.evsels[beside.index()].owner);
        let output = self.add(output).map_err(|err| Reason::incurable(err.to_string()));
        self.adding_for = owner;
        output
    }

    /// What is shown of the records of `event` has strings behind it.
    pub fn show_strings(&mut self, event: EventId, shown: bool) {
        self.evsels[event.index()].shows_strings = shown;
    }

    /// Attaches the programs, once the events are open. Returns a message for each event whose strings cannot be read.
    pub fn attach_string_copiers(&mut self) -> Vec<String> {
        let with_events = self.cpus.iter().find(|cpu| !cpu.owners.is_empty()).map(|cpu| cpu.cpu);
        with_events.map_or_else(Vec::new, |cpu| self.strings.attach(&self.evsels, &mut self.missing, cpu))
    }

    /// The ids of perf-prof's own BPF programs.
    pub fn own_programs(&self) -> impl Iterator<Item = u32> + '_ {
        self.strings.programs().chain(self.idle_records.programs())
    }
}

/// Upper bound of CPU numbers, plus 1.
pub(super) fn possible_cpus(host: &Host) -> u32 {
    const LIMIT: u32 = 8192; // NR_CPUS at most
    let text = std::fs::read_to_string(host.cpu.join("possible")).unwrap_or_default();
    let last = crate::host::parse_cpus(text.trim()).ok().and_then(|cpus| cpus.last().copied());
    last.map_or(LIMIT, |last| last + 1)
}

pub(super) fn explain(refusal: &CopierRefusal, host: &Host) -> Reason {
    let why = format!("the kernel refuses {refusal}");
    let privileges = Privileges::of_self(&host.proc);
    let knows_bpf = sysctl(host, "cap_last_cap").is_some_and(|last| last > Capability::Perfmon as i64);
    let may = privileges.has(Capability::SysAdmin);
    match refusal.err.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !may && knows_bpf => Reason::new(why, "CAP_BPF and CAP_PERFMON"),
        Some(libc::EPERM | libc::EACCES) if !may => Reason::new(why, "CAP_SYS_ADMIN"),
        Some(libc::EPERM) if privileges.seccomp => Reason::new(why, "a seccomp filter that lets bpf(2) pass"),
        Some(libc::EPERM) if privileges.user_namespace => Reason::new(why, "run on the host"),
        Some(libc::EPERM) => Reason::new(why, "a larger `ulimit -l`, or a kernel that is not locked down"),
        Some(libc::ENOSYS) => Reason::incurable("this kernel has no bpf(2)"),
        Some(libc::EINVAL) => Reason::new(
            format!("{why}: it has no helper for them, or is locked down"),
            "see /sys/kernel/security/lockdown",
        ),
        _ => Reason::incurable(why),
    }
}
