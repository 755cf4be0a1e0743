//! The target of a run: its CPUs and tasks.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::host::Host;
use crate::sys::mounts::{Mount, mounts};

/// The tasks of the target.
#[derive(Debug)]
pub enum Tasks {
    All,
    /// These threads and no others.
    Threads(Vec<i32>),
    /// These processes: their threads, later threads, and children.
    Processes(Vec<i32>),
    Cgroups(Vec<Cgroup>),
    /// A command that perf-prof starts, and its children. Until its exec the process runs only code of perf-prof.
    Workload(i32),
}

/// CPUs and tasks of a run.
#[derive(Debug)]
pub struct Target {
    /// The CPUs that the user selected; None: all CPUs.
    pub wanted: Option<Vec<u32>>,
    pub tasks: Tasks,
}

impl Target {
    pub fn everything() -> Target {
        Target { wanted: None, tasks: Tasks::All }
    }

    /// The CPUs of this target that are `online`, and the wanted CPUs that are not.
    pub fn cpus(&self, online: &[u32]) -> (Vec<u32>, Vec<u32>) {
        match &self.wanted {
            None => (online.to_vec(), Vec::new()),
            Some(wanted) => wanted.iter().partition(|cpu| online.contains(cpu)),
        }
    }
}

/// A cgroup directory, held open: its descriptor is what perf_event_open takes.
#[derive(Debug)]
pub struct Cgroup {
    pub path: PathBuf,
    dir: File,
}

impl Cgroup {
    pub fn fd(&self) -> RawFd {
        self.dir.as_raw_fd()
    }

    /// The threads in the cgroup and in the cgroups below it.
    pub fn threads(&self) -> Vec<i32> {
        let mut all = Vec::new();
        let mut pending = vec![self.path.clone()];
        while let Some(dir) = pending.pop() {
            // v2 calls the file cgroup.threads, v1 tasks.
            let text =
                fs::read_to_string(dir.join("cgroup.threads")).or_else(|_| fs::read_to_string(dir.join("tasks")));
            all.extend(text.unwrap_or_default().lines().filter_map(|line| line.parse::<i32>().ok()));
            pending.extend(children(&dir));
        }
        all
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(Result::ok).filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// Finds a cgroup by its path, by the name of a unit, or by the start of a container id, in every hierarchy that
/// perf events can follow (v2, and v1 with the perf_event controller).
///
/// # Errors
/// No such cgroup, several that match, or one that cannot be opened.
pub fn find_cgroup(host: &Host, name: &str) -> Result<Cgroup> {
    let mounts = cgroup_mounts(mounts(&host.proc));
    if mounts.is_empty() {
        bail!("no cgroup hierarchy that perf events can follow is mounted (cgroup2, or v1 with perf_event)");
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for mount in &mounts {
        let below = if Path::new(name).starts_with(mount) {
            PathBuf::from(name)
        } else {
            mount.join(name.trim_start_matches('/'))
        };
        let inside = !below.components().any(|part| part.as_os_str() == "..");
        if inside && below.is_dir() && (below != *mount || name == "/" || Path::new(name) == mount) {
            found.push(below);
        }
    }
    if found.is_empty() {
        for mount in &mounts {
            search(mount, &mut |dir| {
                let last = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                if names_cgroup(last, name) {
                    found.push(dir.to_path_buf());
                }
            });
        }
    }
    match found.as_slice() {
        [] => bail!(
            "no cgroup {name:?} below {}: write its path, a unit (nginx.service), or the start of a container id",
            list(&mounts)
        ),
        [path, rest @ ..] if rest.is_empty() || Path::new(name).is_absolute() => open_cgroup(path),
        several => bail!("{name:?} names {} cgroups: {}", several.len(), list(&several[..several.len().min(4)])),
    }
}

/// Whether `name` names the directory `last`: as a unit with or without suffix, or as the start of a container id.
fn names_cgroup(last: &str, name: &str) -> bool {
    const SHORTEST_ID: usize = 6;
    if last == name
        || last
            .rsplit_once('.')
            .is_some_and(|(stem, kind)| stem == name && matches!(kind, "service" | "scope" | "slice"))
    {
        return true;
    }
    // docker-ID.scope, cri-containerd-ID.scope, libpod-ID.scope, or the bare id
    let id = last.strip_suffix(".scope").unwrap_or(last).rsplit('-').next().unwrap_or(last);
    name.len() >= SHORTEST_ID && name.bytes().all(|b| b.is_ascii_hexdigit()) && id.len() >= 32 && id.starts_with(name)
}

fn open_cgroup(path: &Path) -> Result<Cgroup> {
    let dir = File::open(path).with_context(|| format!("cannot open cgroup {}", path.display()))?;
    Ok(Cgroup { path: path.to_path_buf(), dir })
}

/// Mount points of the hierarchies in which perf can follow a cgroup.
fn cgroup_mounts(mounts: Vec<Mount>) -> Vec<PathBuf> {
    let is_one = |mount: &Mount| mount.kind == "cgroup2" || mount.kind == "cgroup" && mount.has_option("perf_event");
    mounts.into_iter().filter(is_one).map(|mount| mount.dir).collect()
}

/// Calls `visit` for every directory below `dir`, at most `LIMIT` of them, since others make the tree.
fn search(dir: &Path, visit: &mut impl FnMut(&Path)) {
    const LIMIT: usize = 100_000;
    let mut pending = vec![dir.to_path_buf()];
    let mut seen = 0;
    while let Some(dir) = pending.pop() {
        for child in children(&dir) {
            seen += 1;
            if seen > LIMIT {
                return;
            }
            visit(&child);
            pending.push(child);
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mounts;

    #[test]
    fn splits_wanted_cpus() {
        let target = Target { wanted: Some(vec![0, 9]), tasks: Tasks::All };
        assert_eq!(target.cpus(&[0, 1]), (vec![0], vec![9]));
        assert_eq!(Target::everything().cpus(&[0, 1]), (vec![0, 1], vec![]));
    }

    #[test]
    fn finds_cgroup_mounts() {
        let text = b"cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                    cgroup /sys/fs/cgroup/perf cgroup rw,perf_event 0 0\n\
                    cgroup2 /sys/fs/cgroup/uni\\040fied cgroup2 rw 0 0\nbroken\n";
        assert_eq!(
            cgroup_mounts(mounts::parse(text)),
            [PathBuf::from("/sys/fs/cgroup/perf"), PathBuf::from("/sys/fs/cgroup/uni fied")]
        );
    }

    #[test]
    fn knows_what_users_call_a_cgroup() {
        let id = "4f1c8a2b".repeat(8);
        let cases = [
            ("nginx.service", "nginx", true),
            ("nginx.service", "nginx.service", true),
            ("nginx.service", "ngin", false),
            (id.as_str(), "4f1c8a2b4f", true),
            (id.as_str(), "4f1", false),
            ("user.slice", "user", true),
        ];
        for (dir, name, want) in cases {
            assert_eq!(names_cgroup(dir, name), want, "{dir} {name}");
        }
        assert!(names_cgroup(&format!("docker-{id}.scope"), "4f1c8a2b4f1c"));
    }

    #[test]
    fn finds_cgroups_in_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("cg");
        fs::create_dir_all(mount.join("system.slice/nginx.service/inner")).unwrap();
        fs::write(mount.join("system.slice/nginx.service/cgroup.threads"), "7\n9\n").unwrap();
        fs::write(mount.join("system.slice/nginx.service/inner/cgroup.threads"), "11\n").unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/self/mounts"), format!("cgroup2 {} cgroup2 rw 0 0\n", mount.display()))
            .unwrap();
        let host = Host { proc: dir.path().join("proc"), cpu: dir.path().into() };
        for name in ["nginx", "nginx.service", "/system.slice/nginx.service", "system.slice/nginx.service"] {
            let mut threads = find_cgroup(&host, name).unwrap().threads();
            threads.sort_unstable();
            assert_eq!(threads, [7, 9, 11], "{name}");
        }
        for name in ["nope", "../proc", "ngi"] {
            assert!(find_cgroup(&host, name).is_err(), "{name}");
        }
    }
}
