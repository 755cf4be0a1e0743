//! Dynamic events: `kprobe_events` and `uprobe_events` in tracefs, in a group of the run's own.
//!
//! Documentation/trace/kprobetrace.rst and uprobetracer.rst. The files are only ever appended to: opening one to
//! truncate it would remove everybody's probes. A group is named after its process, so that the next run can tell what
//! one that was killed has left behind.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::address::ProbeAddress;
use super::error_log::{LoggedError, last_error};
use super::fetch::FetchArg;
use super::step::is_stepped;
use crate::sys::process::{HeldProbe, hand_over_probes};

const KPROBES: &str = "kprobe_events";
const UPROBES: &str = "uprobe_events";
const PREFIX: &str = "perf_prof_";
/// MAX_EVENT_NAME_LEN, kernel/trace/trace_probe.h, is 64 with the NUL. Two numbers are appended to the name.
const MAX_NAME_BYTES: usize = 40;
/// Most of a list of probes or a log of errors that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Calls of one function whose returns may be pending at a time. Further calls are missed, as with the kernel's default
/// of ten or two per CPU.
const PENDING_RETURNS: u32 = 1024;
/// How long a probe may still be held by an event that is being released.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// A probe to be defined.
#[derive(Clone, Debug)]
pub struct ProbeDefinition {
    pub address: ProbeAddress,
    pub ret: bool,
    /// Becomes part of the event's name.
    pub name: String,
    pub args: Vec<FetchArg>,
}

/// Why a probe was not defined.
#[derive(Debug)]
pub struct ProbeRefusal {
    pub error: io::Error,
    /// The kernel's message, and the part of the definition that it is about.
    pub logged: Option<(LoggedError, DefinitionPart)>,
}

/// A part of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionPart {
    Place,
    /// Number of an argument, and a byte offset in its text.
    Arg(usize, usize),
}

/// The probes that this run has defined. They are removed on drop.
#[derive(Debug)]
pub struct Probes {
    root: PathBuf,
    group: ProbeGroup,
    made: RefCell<Vec<DefinedProbe>>,
}

#[derive(Debug)]
struct DefinedProbe {
    file: &'static str,
    name: String,
    /// The selector as the user typed it; empty for a probe that the user did not ask for.
    shown: String,
    is_stepped: bool,
    /// Id of its event, when it is known.
    id: Option<u32>,
    /// An open event of the probe, closed when the probe is removed.
    held: Option<OwnedFd>,
}

/// How often a probe in a program was hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeHits {
    /// The selector as the user typed it.
    pub shown: String,
    pub count: u64,
    /// Each hit took a second trap.
    pub is_stepped: bool,
}

impl DefinedProbe {
    fn is_in_program(&self) -> bool {
        self.file == UPROBES && !self.shown.is_empty()
    }

    fn hit(&self, count: u64) -> ProbeHits {
        ProbeHits { shown: self.shown.clone(), count, is_stepped: self.is_stepped }
    }
}

/// The process whose probes a group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeGroup {
    pub pid: i32,
    /// Start of the process, in ticks since boot.
    pub start: u64,
    /// The pid namespace in which `pid` is its number; None for the machine's.
    pub namespace: Option<u64>,
}

impl fmt::Display for ProbeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.pid, self.start)?;
        self.namespace.map_or(Ok(()), |namespace| write!(f, "_{namespace}"))
    }
}

impl ProbeGroup {
    /// None for a group that is not of a run.
    pub fn parse(name: &str) -> Option<ProbeGroup> {
        let mut numbers = name.strip_prefix(PREFIX)?.split('_').map(|word| {
            let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
            word.parse::<u64>().ok().filter(|_| is_plain)
        });
        let (pid, start) = (i32::try_from(numbers.next()??).ok()?, numbers.next()??);
        let namespace = match numbers.next() {
            Some(number) => Some(number?),
            None => None,
        };
        numbers.next().is_none().then_some(ProbeGroup { pid, start, namespace })
    }
}

impl Probes {
    pub fn new(root: &Path, group: ProbeGroup) -> Probes {
        Probes { root: root.to_owned(), group, made: RefCell::default() }
    }

    /// Defines a probe in the kernel; `shown` is its selector as typed. Returns system and name of the new event.
    ///
    /// # Errors
    /// The kernel refuses the definition.
    pub fn define(&self, definition: &ProbeDefinition, shown: &str) -> Result<(String, String), ProbeRefusal> {
        let (system, name) = (self.group.to_string(), self.name(&definition.name));
        let (command, starts) = definition.command(&system, &name);
        let file = definition.file();
        let written = append(&self.root.join(file), &command);
        if let Err(error) = written {
            let log = read_limited(&self.root.join("error_log")).unwrap_or_default();
            let logged = last_error(&log, &command).map(|said| {
                let part = match starts.iter().rposition(|&start| start <= said.offset) {
                    Some(arg) => DefinitionPart::Arg(arg, said.offset - starts[arg]),
                    None => DefinitionPart::Place,
                };
                (said, part)
            });
            return Err(ProbeRefusal { error, logged });
        }
        let is_stepped = is_stepped(&definition.address);
        self.made.borrow_mut().push(DefinedProbe {
            file,
            name: name.clone(),
            shown: shown.to_owned(),
            is_stepped,
            id: None,
            held: None,
        });
        Ok((system, name))
    }

    /// A unique name for an event, made of the letters of `wanted`.
    fn name(&self, wanted: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let word: String = wanted.chars().map(letter).take(MAX_NAME_BYTES).collect();
        let word = word.trim_matches('_');
        let first = if word.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "at_" };
        // The names are unique in all groups: `kprobe_profile` and `uprobe_profile` do not list the group.
        format!("{first}{word}_{}_{}", self.group.pid, self.made.borrow().len())
    }

    /// The probes in the kernel that have missed calls, with the number of these calls so far.
    pub fn missed(&self) -> Vec<(String, u64)> {
        let profile = read_limited(&self.root.join("kprobe_profile")).unwrap_or_default();
        let counts = |made: &DefinedProbe| {
            // The list has no groups: if two probes have this name, it does not say which count is ours.
            let mut lines = profile.lines().filter(|line| line.split_ascii_whitespace().next() == Some(&made.name));
            let (line, other) = (lines.next()?, lines.next());
            let count = line.split_ascii_whitespace().nth(2)?.parse().ok()?;
            (other.is_none() && count > 0).then(|| (made.shown.clone(), count))
        };
        self.made.borrow().iter().filter_map(counts).collect()
    }

    /// Keeps `event`, of the probe that was defined last, open until that probe is removed.
    pub fn hold(&self, event: OwnedFd) {
        if let Some(made) = self.made.borrow_mut().last_mut() {
            made.held = Some(event);
        }
    }

    /// Sets the id of the event of the probe that was defined last.
    pub fn set_id(&self, id: u32) {
        if let Some(made) = self.made.borrow_mut().last_mut() {
            made.id = Some(id);
        }
    }

    /// Opens an event of each probe that has none held. Other events of these probes are then closed quickly: only the
    /// release of the last one takes the kernel long.
    ///
    /// # Errors
    /// An event cannot be opened.
    pub fn hold_all(&self, open: impl Fn(u32) -> io::Result<OwnedFd>) -> io::Result<()> {
        for made in self.made.borrow_mut().iter_mut().filter(|made| made.held.is_none()) {
            made.held = Some(open(made.id.ok_or(io::ErrorKind::NotFound)?)?);
        }
        Ok(())
    }

    /// Hands all probes and their held events to a child process, which removes them after this process has ended.
    /// False when an event is not held, or there is no such process.
    pub fn remove_later(&self) -> bool {
        let made = self.made.borrow();
        let open = |file: &str| OpenOptions::new().append(true).open(self.root.join(file)).ok();
        let lists = [KPROBES, UPROBES]
            .map(|file| (file, made.iter().any(|made| made.file == file).then(|| open(file)).flatten()));
        let lines: Vec<String> = made.iter().map(|made| format!("{}\n", removal(&self.group, &made.name))).collect();
        let held: Option<Vec<HeldProbe<'_>>> = made
            .iter()
            .zip(&lines)
            .map(|(made, line)| {
                let list = lists.iter().find(|(file, _)| *file == made.file)?.1.as_ref()?.as_fd();
                Some(HeldProbe { event: made.held.as_ref()?.as_fd(), list, line: line.as_bytes() })
            })
            .collect();
        let holder = held.and_then(|held| hand_over_probes(&held));
        drop(made);
        if holder.is_some() {
            self.made.borrow_mut().clear();
        }
        holder.is_some()
    }

    /// The probes in programs that the user asked for, each with no hits.
    pub fn in_programs(&self) -> Vec<ProbeHits> {
        self.made.borrow().iter().filter(|made| made.is_in_program()).map(|made| made.hit(0)).collect()
    }

    /// The hits of each probe of [`Probes::in_programs`], by any process. None: the kernel does not list them, or a
    /// probe of another group has the same name.
    pub fn hits(&self) -> Option<Vec<ProbeHits>> {
        /// The list is read in parts: while other probes are removed from it, a probe of this run may be missing.
        const TRIES: usize = 3;
        (0..TRIES).find_map(|_| self.hits_of_list())
    }

    fn hits_of_list(&self) -> Option<Vec<ProbeHits>> {
        let profile = read_limited(&self.root.join("uprobe_profile")).unwrap_or_default();
        // `  /proc/self/fd/7   name_0      12`; a path may hold blanks
        let counts = |made: &DefinedProbe| {
            let words = |line: &str| {
                let mut words = line.split_ascii_whitespace().rev();
                let count = words.next()?.parse::<u64>().ok()?;
                (words.next()? == made.name).then_some(count)
            };
            let mut found = profile.lines().filter_map(words);
            let (count, other) = (found.next()?, found.next());
            other.is_none().then(|| made.hit(count))
        };
        self.made.borrow().iter().filter(|made| made.is_in_program()).map(counts).collect()
    }

    /// Removes all probes, except those that an event of another process still holds.
    ///
    /// # Errors
    /// The last reason why a probe was not removed.
    pub fn remove(&self) -> io::Result<()> {
        let group = self.group.to_string();
        let start = Instant::now();
        let mut result = Ok(());
        self.made.borrow_mut().retain_mut(|made| {
            made.held = None;
            let removed = remove(&self.root.join(made.file), &removal(&group, &made.name), start + BUSY_TIMEOUT);
            let left = removed.is_err();
            if left {
                result = removed;
            }
            left
        });
        result
    }

    /// Removes the probes of runs whose process is gone, as `is_gone` tells. Returns the number of removed probes.
    pub fn sweep(root: &Path, is_gone: impl Fn(&ProbeGroup) -> bool) -> usize {
        let mut removed = 0;
        for file in [KPROBES, UPROBES] {
            let path = root.join(file);
            let list = read_limited(&path).unwrap_or_default();
            for (group, name) in list.lines().filter_map(event_of) {
                if ProbeGroup::parse(group).is_some_and(|group| is_gone(&group)) {
                    removed += usize::from(remove(&path, &removal(&group, name), Instant::now()).is_ok());
                }
            }
        }
        removed
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = self.remove(); // the next run sweeps what is left
    }
}

impl ProbeDefinition {
    pub fn file(&self) -> &'static str {
        match self.address {
            ProbeAddress::Kernel { .. } => KPROBES,
            ProbeAddress::User { .. } => UPROBES,
        }
    }

    /// The line that defines the probe, and the offset of each argument in it.
    fn command(&self, system: &str, name: &str) -> (String, Vec<usize>) {
        let is_kernel = matches!(self.address, ProbeAddress::Kernel { .. });
        let kind = match self.ret {
            true if is_kernel => format!("r{PENDING_RETURNS}"),
            true => "r".to_owned(),
            false => "p".to_owned(),
        };
        let mut command = format!("{kind}:{system}/{name} ");
        // Writing to a String cannot fail.
        let _ = match &self.address {
            ProbeAddress::Kernel { function, offset: 0 } => write!(command, "{function}"),
            ProbeAddress::Kernel { function, offset } => write!(command, "{function}+{offset}"),
            ProbeAddress::User { fd, offset } => write!(command, "/proc/self/fd/{fd}:{offset:#x}"),
        };
        let mut starts = Vec::new();
        for arg in &self.args {
            starts.push(command.len() + 1);
            let _ = write!(command, " {}", arg.text);
        }
        (command, starts)
    }
}

/// `p:GROUP/NAME PLACE ...`, `r64:GROUP/NAME PLACE ...`
fn event_of(line: &str) -> Option<(&str, &str)> {
    let (kind, rest) = line.split_once(':')?;
    let (group, name) = rest.split(' ').next()?.split_once('/')?;
    kind.starts_with(['p', 'r']).then_some((group, name))
}

/// The line that removes a probe.
fn removal(group: &dyn fmt::Display, name: &str) -> String {
    format!("-:{group}/{name}")
}

/// Removes a probe. The kernel refuses while an event holds it, and an event that was just closed may still do so:
/// tries again until `until`.
fn remove(file: &Path, removal: &str, until: Instant) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        match append(file, removal) {
            Err(err) if err.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => thread::sleep(PAUSE),
            Err(err) if err.raw_os_error() == Some(libc::ENOENT) => return Ok(()), // somebody else has removed it
            result => return result,
        }
    }
}

/// Appends one line in one write, as the kernel requires.
fn append(file: &Path, line: &str) -> io::Result<()> {
    if line.contains(['\n', '\0', '#', ';']) {
        return Err(io::ErrorKind::InvalidInput.into()); // it would be two definitions, or half of one
    }
    let line = format!("{line}\n");
    let written = OpenOptions::new().append(true).open(file)?.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn read_limited(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the kernel supports kprobes.
pub fn has_kprobes(root: &Path) -> bool {
    fs::metadata(root.join(KPROBES)).is_ok()
}

/// Whether the kernel supports uprobes.
pub fn has_uprobes(root: &Path) -> bool {
    fs::metadata(root.join(UPROBES)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: ProbeGroup = ProbeGroup { pid: 7, start: 99, namespace: None };

    #[test]
    fn parses_groups() {
        let cases = [
            ("perf_prof_7_99", Some(GROUP)),
            ("perf_prof_7_99_4026532000", Some(ProbeGroup { namespace: Some(4_026_532_000), ..GROUP })),
            ("perf_prof_7", None),
            ("perf_prof_7_", None),
            ("perf_prof_x_99", None),
            ("perf_prof_+7_99", None),
            ("perf_prof_7_99_1_2", None),
            ("perf_prof_7_99_x", None),
            ("perf_prof_99999999999_1", None),
            ("kprobes", None),
            ("perf_prof", None),
        ];
        for (name, want) in cases {
            assert_eq!(ProbeGroup::parse(name), want, "{name}");
            assert!(want.is_none_or(|group| group.to_string() == name));
        }
    }

    fn definition(address: ProbeAddress, ret: bool, args: &[&str]) -> ProbeDefinition {
        let site = super::super::ProbeSite { user: true, ret, entry: true, machine: super::super::Machine::X86_64 };
        let args = args.iter().flat_map(|text| super::super::fetch::parse(text, &site).unwrap()).collect();
        ProbeDefinition { address, ret, name: "f".to_owned(), args }
    }

    #[test]
    fn a_definition_is_one_line() {
        let kernel = |offset| ProbeAddress::Kernel { function: "vfs_read".to_owned(), offset };
        let user = ProbeAddress::User { fd: 3, offset: 0x9d650 };
        let cases = [
            (definition(kernel(0), false, &[]), "p:g/e vfs_read", vec![]),
            (definition(kernel(16), false, &["a=%di"]), "p:g/e vfs_read+16 a=%di", vec![18]),
            (definition(kernel(0), true, &["$retval"]), "r1024:g/e vfs_read retval=$retval", vec![19]),
            (
                definition(user.clone(), false, &["a=%di", "b=%si"]),
                "p:g/e /proc/self/fd/3:0x9d650 a=%di b=%si",
                vec![30, 36],
            ),
            (definition(user, true, &[]), "r:g/e /proc/self/fd/3:0x9d650", vec![]),
        ];
        for (definition, command, starts) in cases {
            assert_eq!(definition.command("g", "e"), (command.to_owned(), starts));
        }
    }

    /// A tracefs that only collects the lines written to it.
    fn fixture(kprobes: &str, uprobes: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(KPROBES), kprobes).unwrap();
        fs::write(dir.path().join(UPROBES), uprobes).unwrap();
        dir
    }

    #[test]
    fn names_are_valid_and_unique() {
        let dir = fixture("", "");
        let probes = Probes::new(dir.path(), GROUP);
        let mut names = Vec::new();
        for name in ["malloc", "_ZN4core3fmt5Write9write_str17h0123456789abcdefE", "0x12", "::", "é", &"x".repeat(300)]
        {
            let definition = ProbeDefinition {
                name: name.to_owned(),
                ..definition(ProbeAddress::User { fd: 3, offset: 1 }, false, &[])
            };
            names.push(probes.define(&definition, "x").unwrap().1);
        }
        assert_eq!(names[0], "malloc_7_0");
        assert_eq!(names[2..5], ["at_0x12_7_2", "at__7_3", "at__7_4"]);
        let is_good = |name: &String| {
            name.len() < 64
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && !name.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        };
        assert!(names.iter().all(is_good), "{names:?}");
    }

    #[test]
    fn only_own_probes_are_removed() {
        let dir = fixture("", "p:others/x /bin/true:0x1\n");
        let probes = Probes::new(dir.path(), GROUP);
        let made = probes.define(&definition(ProbeAddress::User { fd: 3, offset: 1 }, false, &[]), "x").unwrap();
        assert_eq!(made, ("perf_prof_7_99".to_owned(), "f_7_0".to_owned()));
        drop(probes);
        let told = fs::read_to_string(dir.path().join(UPROBES)).unwrap();
        let want = "p:others/x /bin/true:0x1\np:perf_prof_7_99/f_7_0 /proc/self/fd/3:0x1\n-:perf_prof_7_99/f_7_0\n";
        assert_eq!(told, want);
        assert_eq!(fs::read_to_string(dir.path().join(KPROBES)).unwrap(), "");
    }

    #[test]
    fn the_sweep_removes_only_probes_of_ended_runs() {
        let kprobes = "p:kprobes/mine vfs_read\nr1024:perf_prof_7_99/vfs_read_0 vfs_read a=$retval\n";
        let uprobes =
            "p:perf_prof_8_1/live_0 /bin/true:0x1\np:perf_prof_7_99/f_1 /bin/true:0x1\np:perf_prof_7/x /bin/true:0x2\n";
        let dir = fixture(kprobes, uprobes);
        assert_eq!(Probes::sweep(dir.path(), |group| group.pid == 7), 2);
        let told =
            |file, before| fs::read_to_string(dir.path().join(file)).unwrap().strip_prefix(before).unwrap().to_owned();
        assert_eq!(told(KPROBES, kprobes), "-:perf_prof_7_99/vfs_read_0\n");
        assert_eq!(told(UPROBES, uprobes), "-:perf_prof_7_99/f_1\n");
        assert_eq!(Probes::sweep(Path::new("/nonexistent"), |_| true), 0);
    }

    #[test]
    fn missed_calls_are_counted() {
        let dir = fixture("", "");
        let probes = Probes::new(dir.path(), GROUP);
        for shown in ["kprobe:a", "kretprobe:b", "kprobe:c"] {
            let name = shown.rsplit(':').next().unwrap().to_owned();
            let address = ProbeAddress::Kernel { function: name.clone(), offset: 0 };
            probes.define(&ProbeDefinition { name, ..definition(address, false, &[]) }, shown).unwrap();
        }
        let profile = "  a_7_0      12     0\n  b_7_1    1000     7\n  c_7_2   1   1\n  c_7_2  1  0\n";
        fs::write(dir.path().join("kprobe_profile"), profile).unwrap();
        assert_eq!(probes.missed(), [("kretprobe:b".to_owned(), 7)]);
    }

    #[test]
    fn hits_are_those_of_selected_probes() {
        let dir = fixture("", "");
        let probes = Probes::new(dir.path(), GROUP);
        assert_eq!(probes.hits(), Some(Vec::new()));
        for shown in ["uprobe:a", "uretprobe:b", ""] {
            let name = shown.rsplit(':').next().unwrap().to_owned();
            let address = ProbeAddress::User { fd: -1, offset: 64 };
            probes.define(&ProbeDefinition { name, ..definition(address, false, &[]) }, shown).unwrap();
        }
        let address = ProbeAddress::Kernel { function: "d".to_owned(), offset: 0 };
        probes
            .define(&ProbeDefinition { name: "d".to_owned(), ..definition(address, false, &[]) }, "kprobe:d")
            .unwrap();
        let hit = |shown: &str, count| ProbeHits { shown: shown.to_owned(), count, is_stepped: true };
        assert_eq!(probes.in_programs(), [hit("uprobe:a", 0), hit("uretprobe:b", 0)]);
        assert_eq!(probes.hits(), None, "the kernel has no list");
        let tell = |text: &str| fs::write(dir.path().join("uprobe_profile"), text).unwrap();
        let profile = "  /a b/c 9   a_7_0   12\n  /x   b_7_1    1000\n  /x  at__7_2  5\n  /x  c_8_3  1\n";
        tell(profile);
        assert_eq!(probes.hits(), Some(vec![hit("uprobe:a", 12), hit("uretprobe:b", 1000)]));
        tell(&format!("{profile}  /y  a_7_0  1\n"));
        assert_eq!(probes.hits(), None, "another has the name, too");
    }

    #[test]
    fn a_second_line_is_refused() {
        let dir = fixture("", "");
        let address = ProbeAddress::Kernel { function: "a\np:x/y vfs_read".to_owned(), offset: 0 };
        let probes = Probes::new(dir.path(), GROUP);
        assert!(probes.define(&definition(address, false, &[]), "x").is_err());
        assert_eq!(fs::read_to_string(dir.path().join(KPROBES)).unwrap(), "");
    }
}
