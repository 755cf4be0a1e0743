//! Where cgroups are mounted, and which one a task is in.

use std::path::{Component, Path, PathBuf};

use crate::host::Host;
use crate::sys::mounts::{Mount, mounts};

/// The hierarchies in which cgroups may have a controller.
#[derive(Debug, Default)]
pub struct CgroupMounts {
    /// The version 1 hierarchy of the controller.
    pub v1: Option<PathBuf>,
    pub v2: Option<PathBuf>,
}

impl CgroupMounts {
    pub fn of_controller(controller: &str, host: &Host) -> CgroupMounts {
        let mounts = mounts(&host.proc);
        let dir = |kind: &str, option: Option<&str>| {
            let is_one = |mount: &&Mount| mount.kind == kind && option.is_none_or(|option| mount.has_option(option));
            mounts.iter().find(is_one).map(|mount| mount.dir.clone())
        };
        CgroupMounts { v1: dir("cgroup", Some(controller)), v2: dir("cgroup2", None) }
    }
}

/// The path of the task's cgroup, from the text of /proc/TID/cgroup. `controller`: that of a version 1 hierarchy.
pub fn cgroup_in<'t>(text: &'t str, controller: Option<&str>) -> Option<&'t Path> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_one = match controller {
            Some(controller) => controllers.split(',').any(|name| name == controller),
            None => controllers.is_empty(),
        };
        is_one.then_some(Path::new(path))
    })
}

/// The directory of a cgroup. None: the path leads out of the mount, since the cgroup is outside of our namespace.
pub fn cgroup_dir(mount: &Path, path: &Path) -> Option<PathBuf> {
    let is_inside = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_inside.then(|| mount.join(path.strip_prefix("/").unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_in_a_cgroup_of_each_hierarchy() {
        let text = "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/b/c:d\nbroken\n1:x\n";
        let paths = [Some("cpuacct"), Some("cpuset"), None, Some("memory")].map(|name| cgroup_in(text, name));
        assert_eq!(paths, [Some("/a"), Some("/x"), Some("/b/c:d"), None].map(|path| path.map(Path::new)));
    }

    #[test]
    fn paths_stay_below_the_mount() {
        let dir = |path: &str| cgroup_dir(Path::new("/m"), Path::new(path));
        assert_eq!(dir("/a/b"), Some("/m/a/b".into()));
        assert_eq!(dir("/"), Some("/m".into()));
        assert_eq!(dir("/../../etc"), None);
    }
}
