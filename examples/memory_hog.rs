//! Processes that use more memory than their cgroup may have: they stall for it, or one of them is killed.
//!
//! `memory_hog LIMIT_MIB dirty DIRECTORY PROCESSES MIB`: makes a memory cgroup with that limit, prints `cgroup=NAME`, and
//! waits for a line on stdin. Then so many processes in it, all on CPU 0, each write a file of so many MiB in the
//! directory. At the end prints `psi_ns=N`, for how long the kernel says that some of them stalled, or `psi_ns=none`.
//!
//! `memory_hog LIMIT_MIB touch MIB PROCESSES`: each of them touches so much memory of its own, and is killed if that is
//! more than the limit and there is no swap. At the end prints `killed=N` too.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command};
use std::{env, hint, thread, time};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const PIECE: usize = 64 << 10;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "child"
    {
        return child(rest);
    }
    let [limit, action, what, processes, ..] = &args[..] else { usage() };
    let (Ok(limit), Ok(processes)) = (limit.parse::<u64>(), processes.parse::<u64>()) else { usage() };
    let cgroup = HogCgroup::make(limit << 20);
    println!("cgroup=/{}", cgroup.name);
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");
    let start = |number: u64| -> Child {
        let mut command = Command::new(env::current_exe().expect("its path"));
        command.arg("child").args(&cgroup.dirs).arg("--");
        match action.as_str() {
            "dirty" => command.args(["dirty", &format!("{what}/hog-{number}"), args.get(4).unwrap_or_else(|| usage())]),
            "touch" => command.args(["touch", what]),
            _ => usage(),
        };
        command.spawn().expect("it starts")
    };
    let children: Vec<Child> = (0..processes).map(start).collect();
    let killed = children.into_iter().map(|mut child| child.wait().expect("it ends")).filter(|end| !end.success());
    println!("killed={} psi_ns={}", killed.count(), cgroup.pressure_ns().map_or("none".into(), |ns| ns.to_string()));
}

/// `child CGROUP... -- dirty PATH MIB` or `child CGROUP... -- touch MIB`
fn child(args: &[String]) {
    let mut parts = args.split(|arg| arg == "--");
    let (Some(dirs), Some(action)) = (parts.next(), parts.next()) else { usage() };
    for dir in dirs {
        fs::write(Path::new(dir).join("cgroup.procs"), process::id().to_string()).expect("it joins the cgroup");
    }
    let mut cpu = CpuSet::new();
    cpu.set(0).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpu)).expect("CPU 0");
    match action {
        [what, path, mib] if what == "dirty" => {
            let mut file = File::create(path).expect("a file");
            for _ in 0..mib.parse::<usize>().expect("a number") * ((1 << 20) / PIECE) {
                file.write_all(&[b'x'; PIECE]).expect("it is written");
            }
            drop(file);
            fs::remove_file(path).expect("it is removed");
        }
        [what, mib] if what == "touch" => {
            // A moment in which a watcher may see the process while it lives.
            thread::sleep(time::Duration::from_millis(50));
            let memory = vec![b'x'; mib.parse::<usize>().expect("a number") << 20];
            hint::black_box(&memory);
        }
        _ => usage(),
    }
}

/// A cgroup with a limit of memory. If that is of version 1, it has a twin of version 2 that measures pressure.
struct HogCgroup {
    name: String,
    dirs: Vec<PathBuf>,
}

impl HogCgroup {
    fn make(limit_bytes: u64) -> HogCgroup {
        let name = format!("perf-prof-hog-{}", process::id());
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mount = |kind: &str, option: &str| {
            let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            lines
                .filter(|line| line[2] == kind && (option.is_empty() || line[3].split(',').any(|one| one == option)))
                .map(|line| PathBuf::from(line[1]))
                .next()
        };
        let (v1, v2) = (mount("cgroup", "memory"), mount("cgroup2", ""));
        let cgroup = HogCgroup { dirs: v1.iter().chain(&v2).map(|mount| mount.join(&name)).collect(), name };
        if let (None, Some(v2)) = (&v1, &v2) {
            fs::write(v2.join("cgroup.subtree_control"), "+memory").expect("cgroups with limits of memory");
        }
        for dir in &cgroup.dirs {
            fs::create_dir(dir).expect("a cgroup");
        }
        let limit = if v1.is_some() { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(cgroup.dirs[0].join(limit), limit_bytes.to_string()).expect("a limit");
        cgroup
    }

    fn pressure_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(self.dirs.last()?.join("memory.pressure")).ok()?;
        let total = text.lines().next()?.rsplit_once("total=")?.1;
        Some(total.parse::<u64>().ok()? * 1000)
    }
}

impl Drop for HogCgroup {
    fn drop(&mut self) {
        for dir in &self.dirs {
            fs::write(dir.join("memory.force_empty"), "0").ok(); // only version 1 has it
            // Tasks that have ended leave their cgroup a moment later.
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() {
                    break;
                }
                thread::sleep(time::Duration::from_millis(20));
            }
        }
    }
}

fn usage() -> ! {
    eprintln!("usage: memory_hog LIMIT_MIB dirty DIRECTORY PROCESSES MIB | LIMIT_MIB touch MIB PROCESSES");
    process::exit(2)
}
