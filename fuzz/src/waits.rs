//! Files in /proc of a thread that waits: its system call, and the files of its descriptors.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use perf_prof::host::Host;
use perf_prof::task::call::call;
use perf_prof::task::descriptor::Mounts;

const TID: i32 = 7;
/// Number of open descriptors.
const OPEN: i32 = 4;

thread_local! {
    static PROC: RefCell<Option<Proc>> = const { RefCell::new(None) };
}

/// A directory like /proc, with one thread in it.
struct Proc(PathBuf);

impl Proc {
    fn new() -> Proc {
        let name = format!("perf-prof-waits-{}-{:?}", std::process::id(), std::thread::current().id());
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let proc = Proc(parent.join(name));
        for dir in ["fd", "fdinfo"] {
            fs::create_dir_all(proc.file(dir)).expect("a directory");
        }
        proc
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{TID}/task/{TID}/{name}"))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A byte whose lowest bit selects the vector of a 64-bit program in place of the last text; then texts, each ended by
/// a NUL.
pub fn run(data: &[u8]) {
    PROC.with_borrow_mut(|proc| {
        let proc = proc.get_or_insert_with(Proc::new);
        let (first, rest) = data.split_first().unwrap_or((&0, &[]));
        let mut parts = rest.splitn(5, |&byte| byte == 0);
        let mut next = || parts.next().unwrap_or_default();
        let (line, path, info, mounts, vector) = (next(), next(), next(), next(), next());
        let native = [4_u64, 56, 0, 0].map(u64::to_ne_bytes).concat();
        let is_native = first & 1 == 1;
        for (name, bytes) in
            [("syscall", line), ("mountinfo", mounts), ("auxv", if is_native { &native } else { vector })]
        {
            fs::write(proc.file(name), bytes).expect("a file");
        }
        let mut link = Vec::new();
        for fd in 0..OPEN {
            let name = proc.file(&format!("fd/{fd}"));
            let _ = fs::remove_file(&name);
            if symlink(OsStr::from_bytes(path), name).is_ok() {
                link = path.to_vec();
            }
            fs::write(proc.file(&format!("fdinfo/{fd}")), info).expect("a file");
        }
        let host = Host { proc: proc.0.clone(), ..Host::default() };
        let found = call(&host, TID, &mut Mounts::default());
        assert_eq!(found, call(&host, TID, &mut Mounts::default()), "the same twice");
        let Some(found) = found else { return };
        assert!(!line.starts_with(b"-") && found.files.len() <= 2, "{found:?}");
        for descriptor in &found.files {
            assert!(descriptor.fd >= 0, "{descriptor:?}");
            let Some(file) = &descriptor.file else { continue };
            assert!(descriptor.fd < OPEN && file.path == link, "{descriptor:?}");
            // It is a word of the table, or what that stands for: escapes only get shorter.
            assert!(file.device.as_ref().is_none_or(|device| device.len() <= mounts.len()), "{descriptor:?}");
        }
    });
}
