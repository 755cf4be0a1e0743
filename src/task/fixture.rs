//! A fixture of /proc with one process, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::host::Host;

/// Writes the files of a thread that describe it: `stat`, and the same values in `status` and `comm`.
pub fn write_stat(task: &Path, stat: &str) {
    let (name, behind) = stat.split_once(" (").and_then(|(_, rest)| rest.rsplit_once(") ")).unwrap_or(("", ""));
    let mut words = behind.split(' ');
    let (state, parent) = (words.next().unwrap_or("X"), words.next().unwrap_or("0"));
    fs::write(task.join("stat"), stat).unwrap();
    fs::write(task.join("status"), format!("Name:\t{name}\nState:\t{state}\nPPid:\t{parent}\n")).unwrap();
    fs::write(task.join("comm"), format!("{name}\n")).unwrap();
}

/// A /proc with one process.
pub struct FixtureProcess {
    root: TempDir,
    task: PathBuf,
}

impl FixtureProcess {
    pub fn new(pid: i32) -> FixtureProcess {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join(format!("{pid}/task/{pid}"));
        ["fd", "fdinfo"].iter().for_each(|dir| fs::create_dir_all(task.join(dir)).unwrap());
        FixtureProcess { root, task }
    }

    pub fn host(&self) -> Host {
        Host { proc: self.root.path().into(), ..Host::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.task.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> &FixtureProcess {
        fs::write(self.path(name), text).unwrap();
        self
    }

    /// Writes the auxiliary vector of a program with program headers of `header_bytes`.
    pub fn auxv(&self, header_bytes: u64) -> &FixtureProcess {
        let words = [6, 4096, 4, header_bytes, 0, 0].map(u64::to_ne_bytes);
        fs::write(self.path("auxv"), words.concat()).unwrap();
        self
    }

    pub fn descriptor(&self, fd: i32, path: &str, info: &str) -> &FixtureProcess {
        let link = self.path(&format!("fd/{fd}"));
        let _ = fs::remove_file(&link);
        symlink(path, link).unwrap();
        self.write(&format!("fdinfo/{fd}"), info)
    }
}
