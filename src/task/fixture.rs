//! A fixture of /proc with one process, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use crate::host::Host;

/// A /proc with one process.
pub struct FixtureProcess {
    root: Arc<TempDir>,
    task: PathBuf,
}

impl FixtureProcess {
    pub fn new(pid: i32) -> FixtureProcess {
        FixtureProcess::within(Arc::new(tempfile::tempdir().unwrap()), pid)
    }

    /// A second process with the same files.
    pub fn another(&self, pid: i32) -> FixtureProcess {
        let other = FixtureProcess::within(self.root.clone(), pid);
        for entry in fs::read_dir(&self.task).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), other.path(&entry.file_name().to_string_lossy())).unwrap();
        }
        let status = fs::read_to_string(self.path("status")).unwrap();
        other.write("status", &status.replace("Tgid:\t", &format!("Tgid:\t{pid}")));
        other
    }

    fn within(root: Arc<TempDir>, pid: i32) -> FixtureProcess {
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
