//! Finds tracefs and reads its descriptions of tracepoints.
//!
//! Nothing is mounted here: [`Tracefs::at`] takes any root, such as a test directory.

pub mod check;
pub mod strings;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustc_hash::FxHashSet;

use crate::glob::{self, glob, is_glob};
use crate::sys;
use crate::sys::mounts::Mount;
use crate::tep::drift;
use crate::tep::format::{Format, FormatError, likeness};
use crate::tep::probe::events::ProbeGroup;

/// Usual mount points of tracefs. The second one exists only where debugfs is mounted.
pub const STANDARD_ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Limit of the bytes of a format: see `Format::parse`.
const MAX_FORMAT_BYTES: u64 = 1 << 20;

/// A mounted tracefs.
#[derive(Clone, Debug)]
pub struct Tracefs {
    root: PathBuf,
}

/// Why the format of a tracepoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("`{0}` is no event name: letters, digits, `_`, `-` and `.` only")]
    BadName(String),
    #[error("there is no event {event}{}", did_you_mean(.near))]
    NotFound { event: String, near: Vec<String> },
    #[error("may not read {path}: run as root, or have tracefs mounted readable", path = .path.display())]
    Permission { path: PathBuf },
    #[error("cannot read {path}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make sense of {path}", path = .path.display())]
    Format { path: PathBuf, source: FormatError },
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => "; `perf-prof list` shows what there is".to_owned(),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}

/// The mount points of tracefs among `mounts`.
pub fn mount_points(mounts: Vec<Mount>) -> impl Iterator<Item = PathBuf> {
    mounts.into_iter().filter(|mount| mount.kind == "tracefs").map(|mount| mount.dir)
}

impl Tracefs {
    /// The tracefs mounted at `root`. Nothing is read yet.
    pub fn at(root: impl Into<PathBuf>) -> Tracefs {
        Tracefs { root: root.into() }
    }

    /// The first of `roots` whose `events` directory can be listed.
    pub fn find_mounted(roots: impl IntoIterator<Item: Into<PathBuf>>) -> Option<Tracefs> {
        roots.into_iter().map(Tracefs::at).find(|tracefs| tracefs.list().is_ok())
    }

    /// The `events` directory.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn list(&self) -> io::Result<fs::ReadDir> {
        fs::read_dir(self.root.join("events"))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All events as `system:name`, sorted.
    ///
    /// # Errors
    /// The `events` directory cannot be listed.
    pub fn events(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        let systems = self
            .list()
            .with_context(|| format!("cannot list {}/events: run as root, or mount tracefs", self.root.display()))?;
        for system in systems.filter_map(Result::ok) {
            let Some(system_name) = system.file_name().to_str().filter(|name| is_name(name)).map(str::to_owned) else {
                continue;
            };
            // Leaves out probes of running perf-profs: no other process may hold them.
            if ProbeGroup::parse(&system_name).is_some() {
                continue;
            }
            let events = match fs::read_dir(system.path()) {
                Ok(events) => events,
                Err(err) if sys::lacks_descriptors(&err) => return Err(err).context("cannot list the events"),
                Err(_) => continue, // a file such as `enable`, or a system that was removed meanwhile
            };
            for event in events.filter_map(Result::ok) {
                if let Some(name) = event.file_name().to_str()
                    && is_name(name)
                    && event.path().join("id").exists()
                {
                    all.push(format!("{system_name}:{name}"));
                }
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The events whose `system:name` the glob matches: `sched:sched_*`, `*:*alloc*`.
    ///
    /// # Errors
    /// The pattern is no glob, or the events cannot be listed.
    pub fn matching(&self, pattern: &str) -> Result<Vec<String>> {
        check_pattern(pattern).map_err(anyhow::Error::msg)?;
        let mut events = self.events()?;
        events.retain(|event| glob(pattern.as_bytes(), event.as_bytes()));
        Ok(events)
    }

    /// The events with `text` somewhere in the system or the name; for `sched:` the events of that system. A `text`
    /// with a `:` or a wildcard is a pattern, as in [`Tracefs::matching`].
    ///
    /// # Errors
    /// As `matching`.
    pub fn search(&self, text: &str) -> Result<Vec<String>> {
        if text.ends_with(':') {
            return self.matching(&format!("{text}*"));
        }
        if text.contains(':') {
            return self.matching(text);
        }
        if is_glob(text) {
            let mut events = self.matching(&format!("*:{text}"))?;
            events.extend(self.matching(&format!("{text}:*"))?);
            events.sort_unstable();
            events.dedup();
            return Ok(events);
        }
        let mut events = self.events()?;
        events.retain(|event| event.split(':').any(|part| part.contains(text)));
        Ok(events)
    }

    /// The hint when no event matches `pattern`: the most similar names, or where to look.
    pub fn alternatives(&self, pattern: &str) -> String {
        let (system, name) = pattern.split_once(':').unwrap_or(("", pattern));
        did_you_mean(&nearest_events(system, name, &self.events().unwrap_or_default()))
    }

    /// Reads and parses the format of one event.
    ///
    /// # Errors
    /// The event is unknown (the error offers similar names), or tracefs is not readable.
    pub fn format(&self, system: &str, name: &str) -> Result<Format, EventError> {
        for part in [system, name] {
            if !is_name(part) {
                return Err(EventError::BadName(part.escape_default().to_string()));
            }
        }
        let path = self.root.join("events").join(system).join(name).join("format");
        match read_limited(&path) {
            Ok(text) => Format::parse(system, &text).map_err(|source| EventError::Format { path, source }),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => self.not_found(system, name),
                io::ErrorKind::PermissionDenied => EventError::Permission { path },
                _ => EventError::Io { path, source: error },
            }),
        }
    }

    /// True for an event that is defined in `uprobe_events`.
    pub fn is_uprobe(&self, system: &str, name: &str) -> bool {
        let list = read_limited(&self.root.join("uprobe_events")).unwrap_or_default();
        list.lines().any(|line| defined_event(line) == Some((system, name)))
    }

    /// The names of all events defined in `uprobe_events`, as `system:name`.
    ///
    /// # Errors
    /// The list cannot be read: only root may read it.
    pub fn uprobes(&self) -> io::Result<FxHashSet<String>> {
        let list = match read_limited(&self.root.join("uprobe_events")) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(FxHashSet::default()),
            list => list?,
        };
        Ok(list.lines().filter_map(defined_event).map(|(system, name)| format!("{system}:{name}")).collect())
    }

    /// The error for a format file that was not found. In a tracefs of mode 0700 no file is found; this is reported as
    /// missing permission.
    fn not_found(&self, system: &str, name: &str) -> EventError {
        if let Err(error) = self.list() {
            let path = self.root.join("events");
            return match error.kind() {
                io::ErrorKind::PermissionDenied => EventError::Permission { path },
                _ => EventError::Io { path, source: error },
            };
        }
        let event = format!("{system}:{name}");
        let near = nearest_events(system, name, &self.events().unwrap_or_default());
        EventError::NotFound { event, near }
    }
}

/// Checks a pattern for `system:name`.
///
/// # Errors
/// The pattern is no glob; the message says why.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    let fault = glob::fault(pattern).map(|fault| format!("`{pattern}` is no pattern for events: {fault}"));
    fault.map_or(Ok(()), Err)
}

/// Up to 3 of `events` that the user may have meant: the name in other kernels, then similar names.
fn nearest_events(system: &str, name: &str, events: &[String]) -> Vec<String> {
    let mut scored: Vec<(usize, &String)> = events
        .iter()
        .filter_map(|event| {
            let (its_system, its_name) = event.split_once(':')?;
            let score = likeness(name, its_name);
            // The right name in another system ranks with a misspelt name in the right system.
            let same = usize::from(its_system == system);
            (score > 0).then_some((2 * score + same, event))
        })
        .collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    if let Some(probe) = as_probe(system, name) {
        return vec![probe];
    }
    let wanted = format!("{system}:{name}");
    let mut near: Vec<String> =
        drift::other_names(&wanted).map(str::to_owned).filter(|other| events.contains(other)).collect();
    for (_, event) in scored {
        if !near.contains(event) {
            near.push(event.clone());
        }
    }
    near.truncate(3);
    near
}

/// The selector of a kernel function that was written as in other tools: `kprobe:vfs_read` for `func:vfs_read`.
fn as_probe(system: &str, name: &str) -> Option<String> {
    let kind = match system {
        "function" | "func" | "f" | "p" | "k" | "kfunc" | "fentry" => "kprobe",
        "r" | "kr" | "kretfunc" | "fexit" => "kretprobe",
        _ => return None,
    };
    is_name(name).then(|| format!("{kind}:{name}"))
}

/// Parses group and name of a probe definition, `p:GROUP/NAME PATH:OFFSET ARGS`. It may begin with `r` or `r32` in
/// place of `p`.
fn defined_event(line: &str) -> Option<(&str, &str)> {
    line.split_once(':').and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.split_once('/'))
}

/// Whether `name` may become part of a path.
fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= 255 && name.bytes().all(legal) && !name.contains("..") && name != "."
}

fn read_limited(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FORMAT_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mounts;

    const FORMAT: &str = "name: sched_switch\nID: 7\nformat:\n\nprint fmt: \"x\"\n";

    fn fixture() -> (tempfile::TempDir, Tracefs) {
        let dir = tempfile::tempdir().unwrap();
        for event in ["sched/sched_switch", "sched/sched_wakeup", "kmem/kmalloc", "kmem/kfree"] {
            let path = dir.path().join("events").join(event);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("id"), "7\n").unwrap();
            fs::write(path.join("format"), FORMAT).unwrap();
        }
        fs::create_dir_all(dir.path().join("events/ftrace/function")).unwrap(); // has no id
        fs::write(dir.path().join("events/enable"), "0\n").unwrap();
        let tracefs = Tracefs::at(dir.path());
        (dir, tracefs)
    }

    #[test]
    fn probes_in_programs_are_known_by_their_definition() {
        let lines = ["p:uprobes/alloc /bin/a:0x10 size=%di", "r32:mine/alloc /bin/a:0x10", "p:uprobes/free /b:0x1"];
        let is = |system, name| lines.iter().filter(|line| defined_event(line) == Some((system, name))).count();
        assert_eq!([is("uprobes", "alloc"), is("mine", "alloc"), is("uprobes", "all"), is("", "")], [1, 1, 0, 0]);
    }

    #[test]
    fn lists_and_matches() {
        let (_dir, tracefs) = fixture();
        assert_eq!(
            tracefs.events().unwrap(),
            ["kmem:kfree", "kmem:kmalloc", "sched:sched_switch", "sched:sched_wakeup"]
        );
        assert_eq!(tracefs.matching("sched:*").unwrap(), ["sched:sched_switch", "sched:sched_wakeup"]);
        assert_eq!(tracefs.matching("*:k[m]*").unwrap(), ["kmem:kmalloc"]);
        assert!(tracefs.matching("sched:[").is_err());
        let cases: [(&str, usize); 6] =
            [("sched", 2), ("free", 1), ("mem", 2), ("*switch", 1), ("kmem:*", 2), ("none", 0)];
        for (text, want) in cases {
            assert_eq!(tracefs.search(text).unwrap().len(), want, "{text}");
        }
    }

    #[test]
    fn a_missing_event_is_explained() {
        let (dir, tracefs) = fixture();
        assert_eq!(tracefs.format("sched", "sched_switch").unwrap().id, 7);
        let message = |system: &str, name: &str| tracefs.format(system, name).unwrap_err().to_string();
        assert_eq!(
            message("sched", "sched_swich"),
            "there is no event sched:sched_swich; did you mean sched:sched_switch?"
        );
        assert_eq!(message("sched", "kmalloc"), "there is no event sched:kmalloc; did you mean kmem:kmalloc?");
        assert_eq!(message("sched", "zzz"), "there is no event sched:zzz; `perf-prof list` shows what there is");
        for (system, want) in [("function", "kprobe"), ("kretfunc", "kretprobe")] {
            let want = format!("there is no event {system}:vfs_write; did you mean {want}:vfs_write?");
            assert_eq!(message(system, "vfs_write"), want);
        }
        for (system, name) in [("..", "x"), ("sched", "../x"), ("a/b", "c"), ("", "c"), (".", "c"), ("sched", "a\0b")] {
            assert!(matches!(tracefs.format(system, name), Err(EventError::BadName(_))), "{system}:{name}");
        }
        fs::write(dir.path().join("events/kmem/kfree/format"), "junk").unwrap();
        assert!(matches!(tracefs.format("kmem", "kfree"), Err(EventError::Format { .. })));
        let mounts = b"proc /proc proc rw 0 0\nnodev /a tracefs rw 0 0\ntracefs /b tracefsx rw\nt /c\\040d tracefs ro";
        assert!(mount_points(mounts::parse(mounts)).eq(["/a", "/c d"].map(PathBuf::from)));
        assert!(Tracefs::find_mounted(["/nonexistent"]).is_none());
        let root = dir.path().to_str().unwrap();
        assert_eq!(Tracefs::find_mounted(["/nonexistent", root]).unwrap().root(), dir.path());
    }
}
