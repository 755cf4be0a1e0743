//! The target of a run: its CPUs and tasks.

use std::fs::{self, File};
use std::io::Read;
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

/// Finds a cgroup by its path, by the name of a unit or a container, or by the start of a container id, in every
/// hierarchy that perf events can follow (v2, and v1 with the perf_event controller).
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
        several if is_one_path(several, &mounts) => {
            let cgroups: Result<Vec<Cgroup>> = several.iter().map(|path| open_cgroup(path)).collect();
            let mut cgroups = cgroups?;
            let inhabited = cgroups.iter().position(|cgroup| !cgroup.threads().is_empty()).unwrap_or(0);
            Ok(cgroups.swap_remove(inhabited))
        }
        several => bail!("{name:?} names {} cgroups: {}", several.len(), list(&several[..several.len().min(4)])),
    }
}

/// Whether these are the same path in several hierarchies.
fn is_one_path(paths: &[PathBuf], mounts: &[PathBuf]) -> bool {
    let below = |path: &PathBuf| mounts.iter().find_map(|mount| path.strip_prefix(mount).ok().map(Path::to_owned));
    let mut all = paths.iter().map(below);
    all.next().flatten().is_some_and(|first| all.all(|path| path.as_ref() == Some(&first)))
}

/// Whether the directory `last` is what a user calls `name`: a unit with or without its ending, a container's name, or
/// the start of a container's id.
fn names_cgroup(last: &str, name: &str) -> bool {
    const SHORTEST_ID: usize = 6;
    let (stem, kind) = last.rsplit_once('.').unwrap_or((last, ""));
    let is_unit = matches!(kind, "service" | "scope" | "slice");
    if last == name
        || is_unit && stem == name
        || container_name(last).is_some_and(|container| container == name.as_bytes())
    {
        return true;
    }
    name.len() >= SHORTEST_ID
        && name.bytes().all(|b| b.is_ascii_hexdigit())
        && container_id(last).is_some_and(|id| id.starts_with(name))
}

/// The id of the container whose cgroup this is: docker-ID.scope, POD.slice:cri-containerd:ID,
/// machine-libpod_pod_ID.slice, or the bare id. `crio-conmon-ID` is the container's monitor.
fn container_id(last: &str) -> Option<&str> {
    const LEAST_DIGITS: usize = 32;
    let stem = last.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "service" | "scope" | "slice"));
    let mut parts = stem.map_or(last, |(stem, _)| stem).rsplit(['-', ':', '_']);
    let id = parts.next().filter(|id| id.len() >= LEAST_DIGITS)?;
    parts.all(|part| part != "conmon").then_some(id)
}

/// The container of a process, if perf-prof is in another one or in none: the start of its id, or its name. For workers
/// only.
pub fn other_container(host: &Host, pid: i32) -> Option<String> {
    container_of(host, &pid.to_string()).filter(|name| container_of(host, "self").as_ref() != Some(name))
}

/// The container of a process by its cgroups.
fn container_of(host: &Host, process: &str) -> Option<String> {
    const MAX_BYTES: u64 = 16 << 10;
    const SHOWN_DIGITS: usize = 12;
    let mut text = String::new();
    let file = File::open(host.proc.join(process).join("cgroup")).ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    // `4:perf_event:/docker/ID`, `0::/system.slice/docker-ID.scope`
    let directories = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).flat_map(|path| path.rsplit('/'));
    let name = |last: &str| {
        let id = container_id(last).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match id {
            Some(id) => Some(id[..SHOWN_DIGITS].to_owned()),
            None => Some(String::from_utf8_lossy(&container_name(last)?).into_owned()),
        }
    };
    directories.into_iter().find_map(name)
}

/// The name of the container of LXC or of the machine of systemd whose cgroup this is. systemd writes `-` as `\x2d` in
/// units.
fn container_name(last: &str) -> Option<Vec<u8>> {
    let machine = || last.strip_prefix("machine-")?.strip_suffix(".scope");
    let nspawn = || last.strip_prefix("systemd-nspawn@")?.strip_suffix(".service");
    if let Some(name) = last.strip_prefix("lxc.payload.") {
        return Some(name.into());
    }
    let mut parts = machine().or_else(nspawn)?.split("\\x");
    let mut name = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        name.push(u8::from_str_radix(code, 16).ok()?);
        name.extend_from_slice(rest.as_bytes());
    }
    Some(name)
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

    /// Paths as engines make them, with the cgroup driver that does.
    #[test]
    fn a_process_is_in_the_container_of_its_cgroups() {
        let id = "1753b7cb8d93f0f9b3c2a1d0e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d";
        let cases = [
            (format!("0::/system.slice/docker-{id}.scope\n"), Some("1753b7cb8d93")),
            (format!("0::/kubepods.slice/pod.slice/cri-containerd-{id}.scope/inner\n"), Some("1753b7cb8d93")),
            (format!("5:cpu:/\n4:perf_event:/docker/{id}\n0::/\n"), Some("1753b7cb8d93")),
            ("0::/lxc.payload.web\n".to_owned(), Some("web")),
            ("0::/machine.slice/machine-a\\x2db.scope\n".to_owned(), Some("a-b")),
            ("0::/user.slice/user-0.slice/session-1.scope\n".to_owned(), None),
            (format!("0::/crio-conmon-{id}.scope\n"), None),
            ("0::/x-ööööööööööööööööööööööööööööööööö.scope\n0::\nx\n".to_owned(), None),
            (String::new(), None),
        ];
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("5")).unwrap();
        let host = Host { proc: proc.path().into(), ..Host::default() };
        for (text, want) in cases {
            fs::write(proc.path().join("5/cgroup"), &text).unwrap();
            assert_eq!(other_container(&host, 5).as_deref(), want, "{text}");
            fs::create_dir_all(proc.path().join("self")).unwrap();
            fs::write(proc.path().join("self/cgroup"), &text).unwrap();
            assert_eq!(other_container(&host, 5), None, "perf-prof is in the same one");
            fs::remove_file(proc.path().join("self/cgroup")).unwrap();
        }
        assert_eq!(other_container(&host, 6), None);
    }

    #[test]
    fn knows_the_containers_of_each_engine() {
        const ID: &str = "1753b7cbbf62734d812936961224d5bc0cf8f45214e0d5cdd1a781a053e7c48f";
        const POD: &str = "pod4c4b1b3e_7f50_4ae6_9f0b_2d1f0c5a7e11";
        let found = [
            // Docker: cgroupfs, systemd, rootless, and below the kubelet.
            "docker/ID",
            "system.slice/docker-ID.scope",
            "user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-POD.slice/docker-ID.scope",
            "kubepods/burstable/pod4c4b1b3e-7f50-4ae6-9f0b-2d1f0c5a7e11/ID",
            // Podman: systemd, rootless, cgroupfs, split within a service; a pod.
            "machine.slice/libpod-ID.scope",
            "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            "libpod_parent/libpod-ID",
            "system.slice/web.service/libpod-payload-ID",
            "machine.slice/machine-libpod_pod_ID.slice",
            // CRI-O: systemd and cgroupfs.
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-POD.slice/crio-ID.scope",
            "kubepods/besteffort/pod4c4b1b3e-7f50-4ae6-9f0b-2d1f0c5a7e11/crio-ID",
            // containerd: systemd, cgroupfs with a path for systemd, nerdctl.
            "kubepods.slice/kubepods-POD.slice/cri-containerd-ID.scope",
            "system.slice/containerd.service/kubepods-burstable-POD.slice:cri-containerd:ID",
            "system.slice/nerdctl-ID.scope",
        ];
        let last = |path: &str| path.replace("ID", ID).replace("POD", POD).rsplit('/').next().unwrap().to_owned();
        for path in found {
            for (name, want) in [(ID, true), (&ID[..12], true), (&ID[..5], false), (&ID[1..13], false)] {
                assert_eq!(names_cgroup(&last(path), name), want, "{path} {name}");
            }
        }
        let monitors = [
            "machine.slice/libpod-conmon-ID.scope",
            "kubepods.slice/kubepods-POD.slice/crio-conmon-ID.scope",
            "kubepods/besteffort/pod4c4b1b3e-7f50-4ae6-9f0b-2d1f0c5a7e11/crio-conmon-ID",
        ];
        for path in monitors {
            assert!(!names_cgroup(&last(path), &ID[..12]), "{path}");
        }
        let named = [
            ("lxc.payload.web-1", "web-1", true), // LXC 4
            ("lxc.monitor.web-1", "web-1", false),
            ("web-1", "web-1", true),                            // lxc/web-1, LXC 3
            ("systemd-nspawn@web\\x2d1.service", "web-1", true), // machinectl start
            ("systemd-nspawn@web\\x2d1.service", "systemd-nspawn@web", false), // another instance
            ("machine-web\\x2d1.scope", "web-1", true),          // systemd-nspawn -M
            ("machine-qemu\\x2d3\\x2dvm.scope", "qemu-3-vm", true), // libvirt
            ("machine-web\\x.scope", "web", false),
            ("machine-a\\xc3\\xbfb.scope", "aÿb", true),
            ("machine.slice", "machine", true),
        ];
        for (dir, name, want) in named {
            assert_eq!(names_cgroup(dir, name), want, "{dir} {name}");
        }
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
        // The same cgroup in another hierarchy, which has the tasks.
        let other = dir.path().join("perf");
        fs::create_dir_all(other.join("system.slice/nginx.service")).unwrap();
        fs::write(other.join("system.slice/nginx.service/tasks"), "5\n").unwrap();
        fs::write(mount.join("system.slice/nginx.service/cgroup.threads"), "").unwrap();
        fs::write(mount.join("system.slice/nginx.service/inner/cgroup.threads"), "").unwrap();
        let mounts = [("cgroup2", &mount, "rw"), ("cgroup", &other, "rw,perf_event")];
        let text = mounts.map(|(kind, mount, options)| format!("{kind} {} {kind} {options} 0 0\n", mount.display()));
        fs::write(dir.path().join("proc/self/mounts"), text.concat()).unwrap();
        for name in ["nginx", "system.slice/nginx.service"] {
            assert_eq!(find_cgroup(&host, name).unwrap().threads(), [5], "{name}");
        }
    }
}
