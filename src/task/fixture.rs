//! A /proc of one process, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::host::Host;

pub struct Process {
    root: TempDir,
    task: PathBuf,
}

impl Process {
    pub fn new(pid: i32) -> Process {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join(format!("{pid}/task/{pid}"));
        ["fd", "fdinfo"].iter().for_each(|dir| fs::create_dir_all(task.join(dir)).unwrap());
        Process { root, task }
    }

    pub fn host(&self) -> Host {
        Host { proc: self.root.path().into(), ..Host::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.task.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> &Process {
        fs::write(self.path(name), text).unwrap();
        self
    }

    /// The vector of a program whose headers have so many bytes each.
    pub fn auxv(&self, header_bytes: u64) -> &Process {
        let words = [6, 4096, 4, header_bytes, 0, 0].map(u64::to_ne_bytes);
        fs::write(self.path("auxv"), words.concat()).unwrap();
        self
    }

    pub fn descriptor(&self, fd: i32, path: &str, info: &str) -> &Process {
        let link = self.path(&format!("fd/{fd}"));
        let _ = fs::remove_file(&link);
        symlink(path, link).unwrap();
        self.write(&format!("fdinfo/{fd}"), info)
    }
}
