//! Raises as many different events as the machine allows: hundreds of tracepoints, all system calls.
//!
//! `everything`: for each line of stdin, runs the rooms that it names, or all rooms for `go`, and then prints `done`.
//! `everything --rooms` lists the rooms. With `EVERYTHING_SAY=1` the result of each room is printed on stderr.
//! `everything --clean` removes the remains of a killed run; so does the next run.
//!
//! Needs no other program and no special machine: anything that is refused or missing is skipped. It leaves nothing
//! behind: each room is a process of its own, in a mount, network and IPC namespace of its own where it changes one of
//! these, and its children end with it; files are in a directory that is removed, and cgroups are removed, too.

mod calls;
mod cgroups;
mod devices;
mod files;
mod ipc;
mod memory;
mod mounts;
mod netlink;
mod network;
mod signals;
mod sys;
mod tasks;
mod timers;
mod uring;

use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, alarm};

/// Time after which a room counts as hanging, and is killed, s.
const MAX_SECONDS: libc::c_uint = 60;

type Room = (&'static str, fn(&Path));

const ROOMS: [Room; 13] = [
    ("files", files::all),
    ("memory", memory::all),
    ("tasks", tasks::all),
    ("signals", signals::all),
    ("timers", timers::all),
    ("ipc", ipc::all),
    ("network", network::all),
    ("netns", network::namespace),
    ("mounts", mounts::all),
    ("uring", uring::all),
    ("cgroups", cgroups::all),
    ("devices", devices::all),
    ("calls", calls::all),
];

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some(tasks::CHILD) => return Ok(()), // a process that a room has started
        Some("--rooms") => ROOMS.iter().for_each(|(name, _)| println!("{name}")),
        Some("--clean") => clean(),
        _ => {
            clean();
            for line in io::stdin().lock().lines() {
                round(&line?)?;
                println!("done");
            }
        }
    }
    Ok(())
}

fn round(wanted: &str) -> io::Result<()> {
    let dir = std::env::temp_dir().join(place(process::id()));
    for (name, room) in ROOMS {
        if wanted == "go" || wanted.split(' ').any(|wanted| wanted == name) {
            fs::create_dir_all(&dir)?;
            apart(name, || room(&dir));
            fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

/// Runs a room as a process of its own, so that its changes to itself end with it.
fn apart(name: &str, room: impl FnOnce()) {
    let child = sys::child(|| {
        alarm::set(MAX_SECONDS);
        room();
    });
    let ended = child.map(|child| waitpid(child, None));
    if std::env::var_os("EVERYTHING_SAY").is_some() {
        eprintln!("{name}: {ended:?}");
    }
}

/// Directory for the files of a round. The pid of its owner is in the names of the directory and of the cgroups.
fn place(owner: u32) -> String {
    format!("everything-{owner}")
}

/// Calls `remove` with each entry of `dir` that has such a name and was left behind by a killed run.
fn left_in(dir: &Path, remove: impl Fn(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix("everything-")?.parse::<i32>().ok());
        if owner.is_some_and(|owner| kill(Pid::from_raw(owner), None) == Err(Errno::ESRCH)) {
            remove(&entry.path());
        }
    }
}

fn clean() {
    left_in(&std::env::temp_dir(), |dir| drop(fs::remove_dir_all(dir)));
    cgroups::clean();
}

/// A file of the room's directory.
fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
