//! Control groups: created, entered, frozen, limited, left, removed; and a small memory limit.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;

use crate::file;
use crate::sys::{call, child, pages, touch, unmap};

/// State file of version 1.
const STATE: &str = "freezer.state";

const LIMIT: usize = 3 << 20;

/// Mount points of hierarchies of both versions.
const ROOTS: [&str; 6] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/freezer",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/pids",
];

pub fn all(dir: &Path) {
    let name = crate::place(nix::unistd::getppid().as_raw() as u32);
    for root in roots() {
        let group = root.join(&name);
        if fs::create_dir(&group).is_err() {
            continue;
        }
        let inner = group.join("inner");
        let _ = fs::create_dir(&inner);
        frozen(&inner);
        let _ = fs::rename(&inner, group.join("renamed")); // version 1
        limited(&group, dir);
        remove(&group);
    }
}

fn roots() -> impl Iterator<Item = PathBuf> {
    ROOTS.iter().map(PathBuf::from).filter(|root| root.join("cgroup.procs").exists())
}

fn remove(group: &Path) {
    for inner in ["inner", "renamed", ""].map(|name| group.join(name)) {
        if inner.join(STATE).exists() {
            let _ = fs::write(inner.join(STATE), "THAWED"); // a frozen process of version 1 cannot be killed
        }
        let _ = fs::remove_dir(inner);
    }
}

/// Removes the cgroups of interrupted rounds. Their processes end on their own within a moment.
pub fn clean() {
    for root in roots() {
        crate::left_in(&root, |group| {
            for _ in 0..1000 {
                remove(group);
                if !group.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

/// A child enters, is frozen for a moment, and leaves when it ends.
fn frozen(group: &Path) {
    let Some(child) = child(|| thread::sleep(Duration::MAX)) else { return };
    let _ = fs::write(group.join("cgroup.procs"), child.to_string());
    for (file, freeze, thaw) in [("cgroup.freeze", "1", "0"), (STATE, "FROZEN", "THAWED")] {
        if group.join(file).exists() {
            let _ = fs::write(group.join(file), freeze);
            thread::sleep(Duration::from_millis(2));
            let _ = fs::write(group.join(file), thaw);
        }
    }
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
}

/// A child writes more than the limit: the kernel must reclaim pages. This has no effect if version 2 does not control
/// memory, which is a setting of the machine.
fn limited(group: &Path, dir: &Path) {
    let limit = |name: &str| fs::write(group.join(name), LIMIT.to_string()).is_ok();
    if !limit("memory.max") && !limit("memory.limit_in_bytes") {
        return;
    }
    let _ = fs::write(group.join("memory.swap.max"), "0");
    let child = child(|| {
        if fs::write(group.join("cgroup.procs"), std::process::id().to_string()).is_ok() {
            fill(&file(dir, "big"));
        }
    });
    let _ = child.map(|child| waitpid(child, None));
    let _ = fs::write(group.join("memory.force_empty"), "0");
    let _ = fs::write(group.join("memory.reclaim"), "4M");
}

fn fill(name: &Path) {
    let Ok(mut file) = File::create(name) else { return };
    for part in 0..(2 * LIMIT) >> 16 {
        let _ = file.write_all(&[part as u8; 1 << 16]);
        if part % 16 == 15 {
            call(libc::SYS_sync_file_range, [file.as_raw_fd() as usize, 0, 0, 2]);
        }
    }
    let _ = file.sync_all();
    if let Some(start) = pages(LIMIT / 8) {
        touch(start, LIMIT / 8);
        unmap(start, LIMIT / 8);
    }
    let _ = File::open(name).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    let _ = fs::remove_file(name);
}
