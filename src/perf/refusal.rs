//! Why the kernel refused an event: found by probing the machine, so that the suggested cure works.
//!
//! [`MachineFacts::probe`] probes once something was refused; [`explain`] and [`explain_ring`] only decide.

use std::io;

use nix::errno::Errno;

use crate::host::{Host, online_cpus, sysctl};
use crate::perf::attr::{Attr, Exclude, MissingFeatures, Source};
use crate::sys::open_files;
use crate::sys::perf::Watch;
use crate::sys::privileges::{Capability, Privileges};

/// The cause of a refusal, and its smallest cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub why: String,
    pub cure: Option<String>,
}

impl Reason {
    pub fn new(why: impl Into<String>, cure: impl Into<String>) -> Reason {
        Reason { why: why.into(), cure: Some(cure.into()) }
    }

    /// A reason without a cure.
    pub fn incurable(why: impl Into<String>) -> Reason {
        Reason { why: why.into(), cure: None }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)?;
        self.cure.iter().try_for_each(|cure| write!(f, "; cure: {cure}"))
    }
}

/// The kernel refused an event or its ring buffer.
#[derive(Debug, thiserror::Error)]
#[error("{what} ({errno:?}): {reason}")]
pub struct Refused {
    /// For example `cannot open cycles on CPU 0`.
    what: String,
    pub reason: Reason,
    errno: Errno,
}

impl Refused {
    /// Probes why `event` was refused.
    pub fn event(err: io::Error, event: &str, attr: &Attr, watch: Watch) -> Refused {
        let place = watch.cpu().map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        let request = OpenRequest { source: attr.source(), watch, kernel: attr.sees_kernel() };
        let errno = err.raw_os_error().unwrap_or(0);
        let reason = explain(errno, request, &MachineFacts::probe(&Host::default()));
        Refused { what: format!("cannot open {event}{place}"), reason, errno: Errno::from_raw(errno) }
    }

    /// Probes why a ring buffer of `bytes` was refused.
    pub fn ring(err: io::Error, bytes: usize) -> Refused {
        let errno = err.raw_os_error().unwrap_or(0);
        let reason = explain_ring(errno, &MachineFacts::probe(&Host::default()));
        let what = format!("cannot map a ring buffer of {} KiB", bytes / 1024);
        Refused { what, reason, errno: Errno::from_raw(errno) }
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self.errno, Errno::EPERM | Errno::EACCES)
    }
}

/// The event that was refused.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    pub source: Source,
    pub watch: Watch,
    /// The event counts in the kernel, not only in user code.
    pub kernel: bool,
}

/// The facts of the machine that decide whether an event is refused.
#[derive(Clone, Debug, Default)]
pub struct MachineFacts {
    pub privileges: Privileges,
    /// kernel.perf_event_paranoid; None without perf events.
    pub paranoid: Option<i32>,
    /// The errno of opening a harmless event: a dummy, user mode only, on a thread of perf-prof. None: the kernel opens
    /// it.
    pub harmless: Option<i32>,
    /// The kernel has CAP_PERFMON: 5.8 and newer.
    pub knows_perfmon: bool,
    /// RLIMIT_NOFILE: soft and hard.
    pub open_files: (u64, u64),
    pub online: Vec<u32>,
    /// The NMI watchdog has taken a hardware counter of each CPU.
    pub nmi_watchdog: bool,
    /// There is a driver for the CPU's counters.
    pub has_pmu: bool,
}

impl MachineFacts {
    /// Probes the machine.
    pub fn probe(host: &Host) -> MachineFacts {
        let number = |name: &str| sysctl(host, name);
        let online = online_cpus(host).unwrap_or_default();
        let watch = Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu: online.first().copied().unwrap_or(0) };
        MachineFacts {
            privileges: Privileges::of_self(&host.proc),
            paranoid: number("perf_event_paranoid").and_then(|level| level.try_into().ok()),
            harmless: harmless(watch),
            knows_perfmon: number("cap_last_cap").is_some_and(|last| last >= Capability::Perfmon as i64),
            open_files: open_files(),
            online,
            nmi_watchdog: number("nmi_watchdog").is_some_and(|on| on != 0),
            has_pmu: has_pmu(),
        }
    }

    /// kernel.perf_event_paranoid; the kernel's own default where it cannot be read.
    fn level(&self) -> i32 {
        self.paranoid.unwrap_or(2)
    }

    /// kernel.perf_event_paranoid of 3 and above are levels of distributions, which answer EACCES: Debian's kernels refuse everybody
    /// without CAP_SYS_ADMIN.
    fn is_shut(&self) -> bool {
        let level = self.paranoid.is_some_and(|level| level >= 3);
        level && self.harmless == Some(libc::EACCES) && !self.privileges.has(Capability::SysAdmin)
    }

    /// The capability that the cure names.
    fn capability(&self) -> Capability {
        if self.knows_perfmon && !self.is_shut() { Capability::Perfmon } else { Capability::SysAdmin }
    }

    /// The cure: the smallest sufficient privilege first, then wider ones. `paranoid`: the level that suffices.
    fn cure(&self, paranoid: i32) -> String {
        let sysctl = format!("sysctl kernel.perf_event_paranoid={paranoid}");
        match (self.privileges.user_namespace, self.privileges.uid) {
            (true, _) => format!("run on the host, or {sysctl} there"),
            (false, 0) => self.capability_cure(),
            _ => format!("{}, or run as root, or {sysctl}", self.capability_cure()),
        }
    }

    fn capability_cure(&self) -> String {
        let capability = self.capability();
        if self.privileges.uid == 0 {
            let name = capability.name();
            return format!("start the container with {name} (--cap-add {})", name.trim_start_matches("CAP_"));
        }
        setcap(&[capability])
    }

    /// The cure for a thread of another user: there not kernel.perf_event_paranoid decides, but permission to ptrace.
    /// See perf_event_open, kernel/events/core.c.
    fn cure_for_others(&self) -> String {
        match (self.privileges.user_namespace, self.privileges.uid) {
            (true, _) => "run on the host, or as the user of the thread".to_owned(),
            (false, 0) => self.capability_cure(),
            _ => format!("{}, or run as root, or as the user of the thread", self.capability_cure()),
        }
    }
}

/// Text with capabilities and the command that gives them to the program.
pub fn setcap(capabilities: &[Capability]) -> String {
    let names: Vec<&str> = capabilities.iter().map(|capability| capability.name()).collect();
    format!("{} (setcap {}+ep perf-prof)", names.join(" and "), names.join(",").to_ascii_lowercase())
}

/// Ring buffers of this process count against the limit of locked memory: perf_mmap, kernel/events/core.c.
pub fn locks_little(host: &Host) -> bool {
    let paranoid = sysctl(host, "perf_event_paranoid").is_none_or(|level| level > -1);
    paranoid && !Privileges::of_self(&host.proc).has(Capability::IpcLock)
}

fn harmless(watch: Watch) -> Option<i32> {
    let attr = Attr::dummy().exclude(Exclude { kernel: true, ..Exclude::default() });
    let opened = MissingFeatures::default().open(&mut attr.clone(), watch);
    opened.err().map(|err| err.raw_os_error().unwrap_or(libc::EIO))
}

/// Whether there is a core PMU: `cpu`, `cpu_core`, `armv8_pmuv3_0`. They differ from software PMUs by their type.
fn has_pmu() -> bool {
    let Ok(entries) = std::fs::read_dir("/sys/bus/event_source/devices") else { return false };
    let is_core = |name: &str| name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv");
    entries.filter_map(Result::ok).any(|entry| entry.file_name().to_str().is_some_and(is_core))
}

/// Why a ring was made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrunk {
    MlockLimit,
    Memory,
}

impl Shrunk {
    /// None: the kernel did not refuse the ring for its size. perf_mmap, kernel/events/core.c.
    pub fn by(err: &io::Error) -> Option<Shrunk> {
        match err.raw_os_error() {
            Some(libc::EPERM) => Some(Shrunk::MlockLimit),
            Some(libc::ENOMEM) => Some(Shrunk::Memory),
            _ => None,
        }
    }
}

/// Why perf_event_open(2) failed with `errno`.
pub fn explain(errno: i32, request: OpenRequest, facts: &MachineFacts) -> Reason {
    let offline = request.watch.cpu().filter(|cpu| !facts.online.is_empty() && !facts.online.contains(cpu));
    match errno {
        libc::EACCES | libc::EPERM | libc::ENOSYS => forbidden(errno, request, facts),
        libc::EMFILE => {
            let (soft, hard) = facts.open_files;
            let why = format!("all {soft} file descriptors that this process may have are in use");
            Reason::new(why, format!("raise `ulimit -n` (its hard limit is {hard}), or watch fewer CPUs with -C"))
        }
        libc::ENFILE => Reason::new("the machine has no file descriptor left", "sysctl fs.file-max=N with a larger N"),
        libc::EBUSY if facts.nmi_watchdog => {
            Reason::new("the NMI watchdog or another tool holds the counters", "sysctl kernel.nmi_watchdog=0")
        }
        libc::EBUSY => Reason::new("another tool holds the counters", "stop it, or try again when it has ended"),
        libc::ENODEV | libc::EINVAL | libc::ENXIO if let Some(cpu) = offline => {
            Reason::new(format!("CPU {cpu} has just gone offline"), "start again")
        }
        libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV => absent(request, facts),
        libc::EINVAL => match request.source {
            Source::Tracepoint => Reason::new("this tracepoint has just gone, with its module perhaps", "start again"),
            _ => Reason::incurable("this kernel does not know some attribute of the event"),
        },
        libc::E2BIG => Reason::incurable("this kernel is older than the attributes of the event"),
        libc::EOVERFLOW => Reason::new(
            "more frames are asked for than kernel.perf_event_max_stack",
            "a smaller max-stack= or --max-stack",
        ),
        libc::ENOMEM => Reason::new("the kernel has no memory left for it", "watch fewer CPUs with -C"),
        libc::ESRCH => Reason::incurable("the task has gone"),
        _ => Reason::incurable("see perf_event_open(2)"),
    }
}

/// Finds which check answered EACCES, EPERM or ENOSYS.
fn forbidden(errno: i32, request: OpenRequest, facts: &MachineFacts) -> Reason {
    if let Some(reason) = why_all_are_refused(request, facts) {
        return reason;
    }
    if errno == libc::ENOSYS {
        return by_seccomp(); // the harmless event opens, so a seccomp filter that checks arguments refused this one
    }
    if is_paranoid(request, facts) {
        return paranoid(request, facts);
    }
    if let Watch::Task { tid, .. } | Watch::Thread { tid } = request.watch
        && !facts.privileges.may_monitor()
    {
        let why = format!("thread {tid} belongs to another user");
        return Reason::new(why, facts.cure_for_others());
    }
    Reason::incurable("the kernel, or a security module, lets nobody sample this event")
}

/// Why even the harmless event is refused. None: it is not.
fn why_all_are_refused(request: OpenRequest, facts: &MachineFacts) -> Option<Reason> {
    match facts.harmless {
        Some(libc::ENOSYS) if facts.paranoid.is_none() => {
            Some(Reason::incurable("this kernel has no perf events (CONFIG_PERF_EVENTS)"))
        }
        Some(libc::EACCES) if facts.is_shut() => Some(paranoid(request, facts)),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) if facts.privileges.seccomp => Some(by_seccomp()),
        Some(libc::EPERM | libc::EACCES) => Some(Reason::new(
            "a security module (SELinux, for one) refuses even a harmless event of our own",
            "allow perf_event in its policy; `ausearch -m avc` or the kernel's log names the rule",
        )),
        Some(libc::ENOSYS) => {
            Some(Reason::new("perf_event_open is not there for this process (a sandbox?)", "run outside of it"))
        }
        _ => None,
    }
}

fn by_seccomp() -> Reason {
    Reason::new(
        "a seccomp filter refuses perf_event_open, even for a harmless event of our own",
        "start the container or service with a filter that allows it (--security-opt seccomp=FILE), or run outside",
    )
}

/// Why events of tracepoints will be refused, known before an event can be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeseenRefusal {
    pub reason: Reason,
    /// The capability that suffices when the program's file has it.
    pub capability: Option<Capability>,
}

/// Predicts the refusal of tracepoint events. None: no reason for a refusal is known.
pub fn foreseen(facts: &MachineFacts) -> Option<ForeseenRefusal> {
    let cpu = facts.online.first().copied().unwrap_or(0);
    let request = OpenRequest { source: Source::Tracepoint, watch: Watch::Cpu(cpu), kernel: true };
    let reason = why_all_are_refused(request, facts)
        .or_else(|| is_paranoid(request, facts).then(|| paranoid(request, facts)))?;
    let privileges = &facts.privileges;
    let counts = privileges.uid != 0 && !privileges.user_namespace && (facts.harmless.is_none() || facts.is_shut());
    Some(ForeseenRefusal { reason, capability: counts.then(|| facts.capability()) })
}

/// kernel.perf_event_paranoid refuses the event.
fn is_paranoid(request: OpenRequest, facts: &MachineFacts) -> bool {
    !facts.privileges.may_monitor() && highest_level(request) < facts.level()
}

/// The highest level of kernel.perf_event_paranoid at which the event needs no privileges:
/// Documentation/admin-guide/perf-security.
fn highest_level(request: OpenRequest) -> i32 {
    match request {
        OpenRequest { source: Source::Tracepoint, .. } => -1, // for raw data of tracepoints
        OpenRequest { watch: Watch::Cpu(_) | Watch::Cgroup { .. }, .. } => 0,
        OpenRequest { kernel: true, .. } => 1,
        _ => 2,
    }
}

fn paranoid(request: OpenRequest, facts: &MachineFacts) -> Reason {
    // With CAP_PERFMON only a level that a distribution added can refuse the event.
    let needed = if facts.privileges.may_monitor() { 2 } else { highest_level(request) };
    let whose = if facts.privileges.user_namespace {
        "the capabilities of this user namespace do not count".to_owned()
    } else {
        format!("{} is missing", facts.capability().name())
    };
    Reason::new(format!("kernel.perf_event_paranoid is {} and {whose}", facts.level()), facts.cure(needed))
}

fn absent(request: OpenRequest, facts: &MachineFacts) -> Reason {
    match request.source {
        Source::Hardware if facts.has_pmu => {
            Reason::incurable("the CPU's counters do not know this event, or cannot sample it")
        }
        Source::Hardware => Reason::new(
            "there is no hardware counter (no PMU, usual in virtual machines)",
            "let the virtual machine have one (QEMU: -cpu host,pmu=on)",
        ),
        Source::Tracepoint => Reason::new("this tracepoint has just gone, with its module perhaps", "start again"),
        Source::Other => Reason::incurable("this machine lacks the event"),
    }
}

/// Why the mmap(2) of a ring buffer failed with `errno`.
pub fn explain_ring(errno: i32, facts: &MachineFacts) -> Reason {
    match errno {
        libc::EPERM if !facts.privileges.has(Capability::IpcLock) => Reason::new(
            "kernel.perf_event_mlock_kb and `ulimit -l` are used up, and CAP_IPC_LOCK is missing",
            "CAP_IPC_LOCK, or raise `ulimit -l`, or raise kernel.perf_event_mlock_kb",
        ),
        libc::ENOMEM => Reason::new("the kernel has no memory left for it", "a smaller -m"),
        libc::EPERM | libc::EACCES | libc::ENOSYS if facts.privileges.seccomp => Reason::new(
            "a seccomp filter refuses to map it",
            "start the container or service with a filter that allows it (--security-opt seccomp=FILE), or run outside",
        ),
        libc::EPERM | libc::EACCES => Reason::incurable("a security module refuses to map it"),
        _ => Reason::incurable("see perf_event_open(2)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: OpenRequest = OpenRequest { source: Source::Other, watch: Watch::Cpu(0), kernel: true };
    const TRACEPOINT: OpenRequest = OpenRequest { source: Source::Tracepoint, watch: Watch::Cpu(0), kernel: true };
    const CYCLES: OpenRequest = OpenRequest { source: Source::Hardware, watch: Watch::Cpu(0), kernel: true };
    const OWN_KERNEL: OpenRequest =
        OpenRequest { source: Source::Other, watch: Watch::Task { tid: 1, cpu: 0 }, kernel: true };
    const OWN_USER: OpenRequest =
        OpenRequest { source: Source::Other, watch: Watch::Task { tid: 1, cpu: 0 }, kernel: false };

    fn facts(uid: u32, capabilities: &[Capability], level: i32, harmless: Option<i32>) -> MachineFacts {
        let effective = capabilities.iter().fold(0, |bits, &capability| bits | 1 << capability as u32);
        MachineFacts {
            privileges: Privileges { uid, effective, ..Privileges::default() },
            paranoid: Some(level),
            harmless,
            knows_perfmon: true,
            open_files: (64, 128),
            online: vec![0, 1],
            ..MachineFacts::default()
        }
    }

    #[test]
    fn no_level_lets_others_be_sampled() {
        for (uid, may_sudo) in [(1000, true), (0, false)] {
            let cure = explain(libc::EACCES, OWN_USER, &facts(uid, &[], 2, None)).cure.unwrap();
            assert!(cure.contains("CAP_PERFMON") && !cure.contains("paranoid"), "{cure}");
            assert_eq!(cure.contains("as the user of the thread"), may_sudo, "{cure}");
        }
    }

    #[test]
    fn an_error_number_stands_in_front() {
        let err = io::Error::from_raw_os_error(libc::EPERM);
        let attr = Attr::cpu_clock(crate::perf::attr::Sampling::Frequency(99));
        let refused = Refused::event(err, "cpu-clock", &attr, Watch::Cpu(0));
        assert!(refused.is_forbidden());
        let text = format!("{:#}", anyhow::Error::from(refused));
        assert!(text.starts_with("cannot open cpu-clock on CPU 0 (EPERM): ") && !text.contains("os error"), "{text}");
    }

    #[test]
    fn the_paranoid_level_is_blamed_when_it_is_the_culprit() {
        for (request, most) in [(TRACEPOINT, -1), (WIDE, 0), (OWN_KERNEL, 1), (OWN_USER, 2)] {
            for level in -1..=4 {
                // Kernels with a level 3 refuse even the harmless event at that level.
                let facts = facts(1000, &[], level, (level >= 3).then_some(libc::EACCES));
                let reason = explain(libc::EACCES, request, &facts);
                let (capability, file) =
                    if level >= 3 { ("CAP_SYS_ADMIN", "cap_sys_admin") } else { ("CAP_PERFMON", "cap_perfmon") };
                let blamed = reason.why == format!("kernel.perf_event_paranoid is {level} and {capability} is missing");
                assert_eq!(blamed, level > most, "{request:?} {level}: {reason}");
                if blamed {
                    let cure = reason.cure.unwrap();
                    assert!(cure.starts_with(&format!("{capability} (setcap {file}+ep")), "the smallest first: {cure}");
                    assert!(cure.ends_with(&format!("sysctl kernel.perf_event_paranoid={most}")), "{cure}");
                }
            }
        }
    }

    #[test]
    fn distributions_have_levels_of_their_own() {
        let with_perfmon = |level| facts(1000, &[Capability::Perfmon], level, Some(libc::EACCES));
        for request in [TRACEPOINT, WIDE, OWN_USER] {
            let reason = explain(libc::EACCES, request, &with_perfmon(4));
            assert_eq!(reason.why, "kernel.perf_event_paranoid is 4 and CAP_SYS_ADMIN is missing");
            assert!(reason.cure.unwrap().ends_with("sysctl kernel.perf_event_paranoid=2"));
            // CAP_PERFMON suffices up to level 2, CAP_SYS_ADMIN at any level: then a security module has refused the
            // event.
            let admin = facts(1000, &[Capability::SysAdmin], 4, Some(libc::EACCES));
            for other in [with_perfmon(2), admin] {
                assert!(explain(libc::EACCES, request, &other).why.contains("a security module"));
            }
        }
    }

    #[test]
    fn who_may_monitor_is_refused_by_something_else() {
        for capabilities in [&[Capability::Perfmon][..], &[Capability::SysAdmin]] {
            for (uid, level) in (-1..=4).flat_map(|level| [(0, level), (1000, level)]) {
                let facts = facts(uid, capabilities, level, None);
                let reason = explain(libc::EPERM, TRACEPOINT, &facts);
                assert!(reason.why.contains("lets nobody sample"), "{reason}");
            }
        }
        // Neither of these is about perf events.
        let facts = facts(1000, &[Capability::Syslog, Capability::IpcLock], 2, None);
        assert!(explain(libc::EACCES, WIDE, &facts).why.contains("CAP_PERFMON is missing"));
    }

    #[test]
    fn the_capability_is_one_that_the_kernel_has() {
        let old = MachineFacts { knows_perfmon: false, ..facts(1000, &[], 2, None) };
        let reason = explain(libc::EACCES, WIDE, &old);
        assert!(reason.why.contains("CAP_SYS_ADMIN") && !reason.to_string().contains("PERFMON"), "{reason}");
    }

    #[test]
    fn containers() {
        let root_without = facts(0, &[], 2, None);
        assert!(explain(libc::EACCES, WIDE, &root_without).cure.unwrap().contains("--cap-add PERFMON"));
        let mut nested = facts(0, &[Capability::Perfmon, Capability::SysAdmin], 2, None);
        nested.privileges.user_namespace = true;
        let reason = explain(libc::EACCES, TRACEPOINT, &nested);
        assert!(reason.why.contains("of this user namespace do not count"), "{reason}");
        assert_eq!(reason.cure.as_deref(), Some("run on the host, or sysctl kernel.perf_event_paranoid=-1 there"));
    }

    #[test]
    fn what_refuses_tracepoints_is_foreseen() {
        let capability = |facts: &MachineFacts| foreseen(facts).map(|foreseen| foreseen.capability);
        assert_eq!(capability(&facts(1000, &[], 2, None)), Some(Some(Capability::Perfmon)));
        assert_eq!(capability(&facts(1000, &[], -1, None)), None);
        assert_eq!(capability(&facts(1000, &[Capability::Perfmon], 2, None)), None);
        // Levels above 2, which distributions added.
        for held in [&[][..], &[Capability::Perfmon]] {
            assert_eq!(capability(&facts(1000, held, 4, Some(libc::EACCES))), Some(Some(Capability::SysAdmin)));
        }
        // There capabilities of the file would not help.
        assert_eq!(capability(&facts(0, &[], 2, None)), Some(None));
        assert_eq!(capability(&facts(1000, &[], 2, Some(libc::EPERM))), Some(None));
        let nested = Privileges { uid: 1000, user_namespace: true, ..Privileges::default() };
        assert_eq!(capability(&MachineFacts { privileges: nested, ..facts(1000, &[], 2, None) }), Some(None));
    }

    #[test]
    fn filters_and_security_modules() {
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            for (uid, capabilities) in [(0, &[Capability::SysAdmin][..]), (1000, &[])] {
                let mut facts = facts(uid, capabilities, 2, Some(errno));
                facts.privileges.seccomp = true;
                assert!(explain(errno, WIDE, &facts).why.starts_with("a seccomp filter"), "{errno} {uid}");
                facts.privileges.seccomp = false;
                let why = explain(errno, WIDE, &facts).why;
                let want = if errno == libc::ENOSYS { "not there for this process" } else { "a security module" };
                assert!(why.contains(want), "{errno} {uid}: {why}");
            }
        }
        // The filter checks arguments: the harmless event passes.
        assert!(explain(libc::ENOSYS, WIDE, &facts(0, &[], 2, None)).why.starts_with("a seccomp filter"));
        let none = MachineFacts { paranoid: None, ..facts(0, &[], 2, Some(libc::ENOSYS)) };
        assert!(explain(libc::ENOSYS, WIDE, &none).why.contains("CONFIG_PERF_EVENTS"));
        // EACCES comes from level 3, not from the seccomp filter that is also there.
        let mut both = facts(1000, &[], 3, Some(libc::EACCES));
        both.privileges.seccomp = true;
        assert!(explain(libc::EACCES, WIDE, &both).why.contains("perf_event_paranoid is 3"));
    }

    #[test]
    fn limits_and_lacks() {
        let root = facts(0, &[Capability::SysAdmin], 2, None);
        let watchdog = MachineFacts { nmi_watchdog: true, ..root.clone() };
        let with_pmu = MachineFacts { has_pmu: true, ..root.clone() };
        let gone = OpenRequest { watch: Watch::Cpu(7), ..WIDE };
        let cases = [
            (libc::EMFILE, WIDE, &root, "all 64 file descriptors", Some("its hard limit is 128")),
            (libc::ENFILE, WIDE, &root, "the machine has no", Some("fs.file-max")),
            (libc::EBUSY, CYCLES, &watchdog, "NMI watchdog", Some("kernel.nmi_watchdog=0")),
            (libc::EBUSY, CYCLES, &root, "another tool", Some("stop it")),
            (libc::ENODEV, gone, &root, "CPU 7 has just gone offline", Some("again")),
            (libc::EINVAL, gone, &root, "CPU 7 has just gone offline", Some("again")),
            (libc::ENOENT, CYCLES, &root, "no PMU", Some("pmu=on")),
            (libc::EOPNOTSUPP, CYCLES, &with_pmu, "do not know this event", None),
            (libc::ENODEV, WIDE, &root, "this machine lacks the event", None),
            (libc::EINVAL, TRACEPOINT, &root, "has just gone", Some("again")),
            (libc::EINVAL, WIDE, &root, "does not know some attribute", None),
            (libc::EOVERFLOW, WIDE, &root, "perf_event_max_stack", Some("--max-stack")),
            (9999, WIDE, &root, "see perf_event_open(2)", None),
        ];
        for (errno, request, facts, why, cure) in cases {
            let reason = explain(errno, request, facts);
            assert!(reason.why.contains(why), "{errno}: {reason}");
            assert_eq!(reason.cure.is_some(), cure.is_some(), "{errno}: {reason}");
            assert!(reason.cure.iter().all(|text| text.contains(cure.unwrap())), "{errno}: {reason}");
        }
    }

    #[test]
    fn rings() {
        let without = facts(1000, &[Capability::Perfmon], 2, None);
        let reason = explain_ring(libc::EPERM, &without);
        assert!(reason.why.contains("CAP_IPC_LOCK") && reason.cure.unwrap().starts_with("CAP_IPC_LOCK"));
        let with = facts(1000, &[Capability::IpcLock], 2, None);
        assert!(explain_ring(libc::EPERM, &with).why.contains("security module"));
        assert_eq!(explain_ring(libc::ENOMEM, &with).cure.as_deref(), Some("a smaller -m"));
    }
}
