//! perf-prof's text of an event against the kernel's own, for every tracepoint that a load can fire: an instance of
//! tracefs and `trace` watch the same rounds of examples/everything, and what we print must be what the kernel prints,
//! line by line.
//!
//! Known exceptions: those of `common/kernel_text.rs`, and `syscalls:*`, for which the kernel prints a form of its own;
//! there it is the names and values that must be the same.

#[macro_use]
mod common;
#[path = "common/kernel_text.rs"]
mod kernel_text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::seccomp::{Refusal, refused};
use common::{Load, Prog, command, example, run, stay_visible, until};
use kernel_text::{Compared, Trace};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use perf_prof::sys::mount::{PrivateTracefs, private_tracefs};

/// Least number of events that must fire, without system calls, which are all alike.
const LEAST_EVENTS: usize = 250;

/// Events that the kernel does not let be sampled.
const REFUSED: [&str; 1] = ["irq_vectors:irq_work_exit"];

/// Events compared on whole CPUs only: at the exit of a task, perf and the kernel's tracer stop following it at
/// different moments, since perf waits for a lock.
const OF_THE_CPUS: [&str; 2] = ["lock:contention_begin", "lock:contention_end"];

/// A room compared on whole CPUs only: the kernel's tracer does not follow the workers that io_uring makes for a task.
const ROOM_OF_THE_CPUS: &str = "uring";

/// Prefix of the names of this test's instances; the pid follows.
const NAME: &str = "perf-prof-oracle-";

/// An instance of tracefs: buffers of its own, gone with this.
struct Instance {
    path: PathBuf,
    _tracefs: PrivateTracefs,
}

impl Instance {
    fn new() -> Instance {
        let tracefs = private_tracefs().expect("tracefs");
        let all = tracefs.root().join("instances");
        for entry in fs::read_dir(&all).expect("instances").flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse().ok());
            if owner.is_some_and(|owner| kill(Pid::from_raw(owner), None) == Err(Errno::ESRCH)) {
                remove(&entry.path()); // of one that was killed
            }
        }
        let path = all.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&path).expect("an instance");
        let instance = Instance { path, _tracefs: tracefs };
        instance.set("options/hash-ptr", "0");
        instance.set("trace_clock", "mono");
        instance.set("buffer_size_kb", "65536");
        instance
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.path.join(file), text).unwrap_or_else(|err| panic!("{file}: {err}"));
    }

    fn enable(&self, events: &[String]) {
        for event in events {
            self.set(&format!("events/{}/enable", event.replace(':', "/")), "1");
        }
    }

    /// Stops the instance and returns its trace.
    fn trace(&self) -> Trace {
        self.set("tracing_on", "0");
        for cpu in fs::read_dir(self.path.join("per_cpu")).expect("per_cpu").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("stats");
            assert!(stats.lines().any(|line| line == "overrun: 0"), "the instance lost events: {stats}");
        }
        Trace::of(&fs::read(self.path.join("trace")).expect("trace"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(instance: &Path) {
    let _ = fs::write(instance.join("events/enable"), "0");
    let _ = fs::remove_dir(instance); // removes what is in it, too
}

/// Removes what a load that was ended in the middle of a round has left, when it is dropped.
struct Clean;

impl Drop for Clean {
    fn drop(&mut self) {
        let _ = Command::new(example("everything")).arg("--clean").status();
    }
}

/// The load and how it is watched.
struct Oracle {
    load: Load,
    _clean: Clean, // dropped behind the load
    /// Watches the load's own tasks, not whole CPUs.
    own: bool,
}

impl Oracle {
    fn instance(&self) -> Instance {
        let instance = Instance::new();
        if self.own {
            instance.set("options/event-fork", "1");
            instance.set("set_event_pid", &self.load.pid().to_string());
        }
        instance
    }

    /// The candidates that fire during a round.
    fn fired(&mut self, candidates: &[String]) -> Vec<String> {
        let instance = self.instance();
        instance.enable(candidates);
        self.load.tell("go");
        assert_eq!(self.load.says(), "done");
        let trace = instance.trace();
        let fired = trace.events();
        let has_fired = |name: &&String| name.split_once(':').is_some_and(|(_, event)| fired.contains(event));
        candidates.iter().filter(has_fired).cloned().collect()
    }

    /// A round under both tracers.
    fn compare(&mut self, events: &[String], compared: &mut Compared) {
        let instance = self.instance();
        instance.enable(events);
        let dir = tempfile::tempdir().expect("a directory");
        let output = dir.path().join("events.json");
        let (calls, others): (Vec<&str>, Vec<&str>) =
            events.iter().map(String::as_str).partition(|event| event.starts_with("syscalls:"));
        let lists = [others.join(","), calls.join(",")];
        let pid = self.load.pid().to_string();
        let mut args = vec!["trace", "--json", "-v", "--no-paths", "-m", "32M", "-o", output.to_str().expect("UTF-8")];
        lists.iter().filter(|list| !list.is_empty()).for_each(|list| args.extend(["-e", list]));
        args.extend(["-p", &pid].iter().filter(|_| self.own));
        // The kernel's text does not tell what a hidden idle task hides: nor do we without a program that copies it.
        let mut ours = Prog::spawn(refused(command(&args), &[Refusal::of(libc::SYS_bpf, libc::EPERM)]));
        // The signal is blocked by then, and stays pending until it is read.
        ours.err_line(|line| line.contains("ring buffer"));
        ours.signal(Signal::SIGUSR1);
        let closed = || fs::read_to_string(&output).map_or(0, |text| text.matches(r#"{"type":"interval""#).count());
        until("events on", || closed() == 1);
        for (at, room) in rooms().iter().filter(|room| !self.own || *room != ROOM_OF_THE_CPUS).enumerate() {
            self.load.tell(room);
            assert_eq!(self.load.says(), "done");
            ours.signal(Signal::SIGUSR1); // its output must not fall behind
            until("an interval", || closed() == at + 2);
        }
        ours.interrupt().code(0);
        let unseen = compared.add(&fs::read_to_string(&output).expect("our events"), instance.trace());
        assert!(unseen.is_empty() || !self.own, "only the kernel shows {unseen:?}");
    }
}

fn rooms() -> Vec<String> {
    let output = Command::new(example("everything")).arg("--rooms").output().expect("the rooms");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn our_text_is_the_kernels() {
    need_events!();
    stay_visible();
    let is_tracepoint = |name: &String| !REFUSED.contains(&name.as_str()) && !name.starts_with("ftrace:");
    let all: Vec<String> = run(&["list"]).code(0).out.into_iter().filter(is_tracepoint).collect();
    let load = Load::start(Command::new(example("everything")));
    let mut oracle = Oracle { load, _clean: Clean, own: true };
    let mut compared = Compared::default();
    let of_tasks: Vec<String> = all.iter().filter(|name| !OF_THE_CPUS.contains(&name.as_str())).cloned().collect();
    let fired = oracle.fired(&of_tasks);
    oracle.compare(&fired, &mut compared);
    let of_the_load = compared.events.len();
    // The remaining events fire in kernel threads, interrupts and idle tasks.
    oracle.own = false;
    let left: Vec<String> = all.into_iter().filter(|name| !compared.events.contains_key(name)).collect();
    let fired = oracle.fired(&left);
    oracle.compare(&fired, &mut compared);
    println!("{of_the_load} events of the load itself");
    let wrong = compared.wrong();
    if !wrong.is_empty() {
        let mut again = Compared::default();
        oracle.compare(&wrong, &mut again);
        compared.confirm(&again);
    }
    let (_, of_the_kernel) = compared.check();
    assert!(of_the_kernel >= LEAST_EVENTS, "only {of_the_kernel} events");
}

/// The load is killed in the middle of a round.
#[test]
fn a_round_that_is_cut_off_leaves_nothing_behind() {
    need_events!();
    for room in ["cgroups", "mounts"] {
        let clean = Clean;
        let mut load = Load::start(Command::new(example("everything")));
        let owner = load.pid();
        load.tell(room);
        until("a round", || !left_by(owner).is_empty());
        drop(load);
        drop(clean);
        assert_eq!(left_by(owner), [""; 0], "{room}");
    }
}

/// The directory and the cgroups of a load, and the files behind loop devices.
fn left_by(owner: i32) -> Vec<String> {
    let name = format!("everything-{owner}");
    let groups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let places = groups.chain([std::env::temp_dir(), PathBuf::from("/sys/fs/cgroup")]);
    let mut left: Vec<String> = places
        .map(|place| place.join(&name))
        .filter(|path| path.exists())
        .map(|path| path.display().to_string())
        .collect();
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    left.extend(files.filter(|file| file.contains(&name)));
    left
}
