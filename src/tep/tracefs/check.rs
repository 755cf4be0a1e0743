//! Checks which formats of a tracefs, or of saved copies of one (trees), can be parsed, and whether their `print fmt`
//! can be compiled.
//!
//! The trees may come from anyone, contain anything, or be endless. Links are not followed, only regular files are
//! read, and the number of entries is limited.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use crate::tep::format::Format;
use crate::tep::print_fmt::PrintFmt;
use crate::tep::tracefs::read_limited;

/// `DIR/VERSION/events/SYSTEM/NAME`: not deeper, since instances of a tracefs must not be counted.
const MAX_DEPTH: usize = 4;
/// Limit of formats: those of about forty kernels.
const MAX_FORMATS: usize = 100_000;
/// Limit of files and directories; a tracefs has about ten per event.
const MAX_ENTRIES: usize = 500_000;
/// Limit of troubles that are reported.
const MAX_TROUBLES: usize = 100;

/// The check of all formats below a directory.
#[derive(Debug, Default)]
pub struct FormatCheck {
    pub trees: Vec<FormatTree>,
    /// What was not checked, and why: texts for the user.
    pub troubles: Vec<String>,
    entries: usize,
    formats: usize,
    links: usize,
}

/// The formats of one kernel.
#[derive(Debug, Default)]
pub struct FormatTree {
    /// Path of the tree below the checked directory; empty for that directory itself.
    pub name: String,
    pub formats: usize,
    pub parsed: usize,
    pub compiled: usize,
    pub findings: Vec<FormatFinding>,
}

/// A fault in the format of one event, or a gap in its compiled text.
#[derive(Debug)]
pub struct FormatFinding {
    /// `system:name`, from the names of the event's directories.
    pub event: String,
    pub kind: FormatFindingKind,
    /// The reasons; for `Incomplete`, one per gap.
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatFindingKind {
    /// The format cannot be read or parsed.
    Unparsed,
    /// The `print fmt` does not compile: fields are shown as `name=value`.
    Fallback,
    /// The `print fmt` compiles with gaps, see [`PrintFmt::gaps`].
    Incomplete,
}

/// Checks every format below `dir`: a saved tree, the `events` directory of one, a directory of several, or a tracefs.
///
/// # Errors
/// `dir` cannot be listed.
pub fn check_formats(dir: &Path) -> io::Result<FormatCheck> {
    let mut checked = FormatCheck::default();
    checked.walk(dir, dir, 0)?;
    if checked.links > 0 {
        checked.trouble(format!("{} symbolic links were not followed", checked.links));
    }
    Ok(checked)
}

impl FormatCheck {
    pub fn formats(&self) -> usize {
        self.trees.iter().map(|tree| tree.formats).sum()
    }

    fn walk(&mut self, root: &Path, dir: &Path, depth: usize) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            if self.is_full() {
                return Ok(());
            }
            self.entries += 1;
            entries.push(entry?);
        }
        entries.sort_by_key(DirEntry::file_name);
        let is_format = |entry: &&DirEntry| entry.file_name() == "format" && !is_directory(entry);
        if let Some(format) = entries.iter().find(is_format) {
            self.check(root, dir, format);
            return Ok(());
        }
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => self.links += 1,
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => {
                    let path = entry.path();
                    if let Err(error) = self.walk(root, &path, depth + 1)
                        && error.kind() != io::ErrorKind::NotFound
                    {
                        // A missing directory was removed meanwhile, such as that of a run's probe.
                        self.trouble(format!("cannot list {}: {error}", path.display()));
                    }
                }
                _ => {}
            }
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    /// Checks the format of the event whose directory is `dir`.
    fn check(&mut self, root: &Path, dir: &Path, file: &DirEntry) {
        self.formats += 1;
        if self.is_full() {
            self.trouble(format!("stopped after {} formats", self.formats));
        }
        let name = |path: Option<&Path>| {
            path.and_then(Path::file_name).map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
        };
        let (system, event) = (name(dir.parent()), name(Some(dir)));
        let mut found = parsed(&system, file);
        if let Ok(format) = &mut found {
            event.clone_into(&mut format.name); // the format text may have another name
        }
        self.tree(tree_name(root, dir)).add(format!("{system}:{event}"), found);
    }

    fn tree(&mut self, name: String) -> &mut FormatTree {
        // The entries of a tree are adjacent, since a tree is walked completely before the next one.
        if self.trees.last().is_none_or(|tree| tree.name != name) {
            self.trees.push(FormatTree { name, ..FormatTree::default() });
        }
        let last = self.trees.len() - 1;
        &mut self.trees[last]
    }

    fn is_full(&mut self) -> bool {
        if self.entries >= MAX_ENTRIES && self.troubles.iter().all(|trouble| !trouble.starts_with("stopped")) {
            self.trouble(format!("stopped after {MAX_ENTRIES} files and directories"));
        }
        self.entries >= MAX_ENTRIES || self.formats >= MAX_FORMATS
    }

    fn trouble(&mut self, text: String) {
        if self.troubles.len() < MAX_TROUBLES {
            self.troubles.push(text);
        }
    }
}

impl FormatTree {
    fn add(&mut self, event: String, format: Result<Format, String>) {
        self.formats += 1;
        let (kind, reasons) = match format.map(|format| PrintFmt::compile(&format)) {
            Err(reason) => (FormatFindingKind::Unparsed, vec![reason]),
            Ok(Err(unsupported)) => {
                self.parsed += 1;
                (FormatFindingKind::Fallback, vec![unsupported.reason])
            }
            Ok(Ok(print_fmt)) => {
                self.parsed += 1;
                self.compiled += 1;
                if print_fmt.gaps().is_empty() {
                    return;
                }
                (FormatFindingKind::Incomplete, print_fmt.gaps().to_vec())
            }
        };
        self.findings.push(FormatFinding { event, kind, reasons });
    }

    pub fn count(&self, kind: FormatFindingKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }
}

fn is_directory(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Reads a regular file: reading a pipe of that name would never end.
fn parsed(system: &str, file: &DirEntry) -> Result<Format, String> {
    match file.file_type() {
        Ok(kind) if kind.is_file() => {}
        Ok(_) => return Err("not a regular file".to_owned()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    let text = read_limited(&file.path()).map_err(|error| format!("cannot be read: {error}"))?;
    Format::parse(system, &text).map_err(|error| error.to_string())
}

/// The path of the tree that has the event at `dir`: without `events/SYSTEM/NAME`.
fn tree_name(root: &Path, dir: &Path) -> String {
    let below: PathBuf = dir.strip_prefix(root).unwrap_or(dir).iter().collect();
    let tree = below.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let tree = if tree.ends_with("events") { tree.parent().unwrap_or(tree) } else { tree };
    tree.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(dir: &Path, event: &str, format: impl AsRef<[u8]>) {
        let path = dir.join(event);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("format"), format).unwrap();
    }

    fn format(print_fmt: &str) -> String {
        format!("name: x\nID: 1\nformat:\n\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: {print_fmt}\n")
    }

    fn summary(dir: &Path) -> Vec<(String, [usize; 3], Vec<String>)> {
        let line =
            |finding: &FormatFinding| format!("{:?} {} {}", finding.kind, finding.event, finding.reasons.join(", "));
        let checked = check_formats(dir).unwrap();
        let tree = |tree: &FormatTree| {
            let counts = [tree.formats, tree.parsed, tree.compiled];
            (tree.name.clone(), counts, tree.findings.iter().map(line).collect())
        };
        checked.trees.iter().map(tree).collect()
    }

    #[test]
    fn finds_trees_wherever_they_begin() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["1.0", "2.0"] {
            let events = dir.path().join(version).join("events");
            put(&events, "s/good", format("\"%d\", REC->a"));
            put(&events, "s/gap", format("\"%d\", HZ / JIFFIES"));
            put(&events, "t/bad", format("\"%d\""));
            fs::write(events.join("enable"), "0\n").unwrap();
        }
        let want = |name: &str| {
            let findings = vec![
                "Incomplete s:gap name HZ".to_owned(),
                "Fallback t:bad syntax: fewer arguments than conversions".to_owned(),
            ];
            (name.to_owned(), [3, 3, 2], findings)
        };
        assert_eq!(summary(dir.path()), [want("1.0"), want("2.0")]);
        assert_eq!(summary(&dir.path().join("2.0")), [want("")]);
        assert_eq!(summary(&dir.path().join("2.0/events")), [want("")]);
        assert_eq!(summary(&dir.path().join("2.0/events/s"))[0].1, [2, 2, 2]);
        assert_eq!(summary(&dir.path().join("2.0/events/s/good"))[0].1, [1, 1, 1]);
        assert!(check_formats(&dir.path().join("3.0")).is_err());
        assert!(check_formats(&dir.path().join("1.0/events/enable")).is_err());
    }

    #[test]
    fn meets_hostile_trees() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "s/rubbish", [0xff, 0, 0x80, b'\n', 0xfe]);
        put(root, "s/huge", vec![b'x'; 3 << 20]);
        put(root, "s/empty", "");
        put(root, "s/liar", format("\"%d\", REC->a").replace("name: x", "name: ../../etc"));
        fs::create_dir_all(root.join("s/directory/format")).unwrap();
        fs::create_dir_all(root.join("s/linked")).unwrap();
        symlink("/dev/zero", root.join("s/linked/format")).unwrap();
        fs::create_dir_all(root.join("s/pipe")).unwrap();
        nix::unistd::mkfifo(&root.join("s/pipe/format"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink(root, root.join("loop")).unwrap();
        symlink("s", root.join("again")).unwrap();
        put(root, "1/2/3/4/deep", format("\"\""));
        let checked = check_formats(root).unwrap();
        let tree = checked.trees.iter().find(|tree| tree.name.is_empty()).unwrap();
        assert_eq!((tree.formats, tree.parsed, tree.compiled), (6, 1, 1));
        let unparsed: Vec<_> = tree.findings.iter().map(|finding| finding.event.as_str()).collect();
        assert_eq!(unparsed, ["s:empty", "s:huge", "s:linked", "s:pipe", "s:rubbish"]);
        assert!(tree.findings.iter().all(|finding| finding.kind == FormatFindingKind::Unparsed));
        assert_eq!(checked.trees.len(), 1, "too deep");
        assert_eq!(checked.troubles, ["2 symbolic links were not followed"]);
    }
}
