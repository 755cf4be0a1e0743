//! Why the formats of tracepoints cannot be read: tracefs is not mounted, not readable for this user, or locked down.

use std::fs;
use std::io;
use std::path::Path;

use crate::host::Host;
use crate::perf::refusal::{ForeseenRefusal, MachineFacts, Reason, foreseen, setcap};
use crate::sys::mounts::mounts;
use crate::sys::privileges::{Capability, Privileges};
use crate::tep::tracefs::mount_points;

/// No mounted tracefs can be read, and this process cannot mount one.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NoTracefs {
    pub reason: Reason,
    /// None: more privileges would not help.
    closed: Option<ClosedTracefs>,
}

impl NoTracefs {
    pub fn new(err: io::Error, host: &Host) -> NoTracefs {
        let errno = err.raw_os_error().unwrap_or(0);
        let mounted = mount_points(mounts(&host.proc)).next();
        let root = Privileges::of_self(&host.proc).uid == 0;
        let (reason, closed) = match why_unreadable(errno, mounted.as_deref(), &Lockdown::now(), root) {
            Obstacle::Closed(closed) => (closed.reason(), Some(closed)),
            Obstacle::Other(reason) => (reason, None),
        };
        NoTracefs { reason, closed }
    }

    /// The error for a user who also wants to open events: it adds the reason for which these would be refused next.
    pub fn for_events(self, host: &Host) -> NoTracefs {
        let next = self.closed.as_ref().and_then(|closed| Some((closed, foreseen(&MachineFacts::probe(host))?)));
        let Some((closed, foreseen)) = next else { return self };
        NoTracefs { reason: closed.reason_beside(&foreseen), closed: None }
    }

    /// The error for a user who is also refused something else that only root may do. `why`: the reason of that
    /// refusal.
    pub fn and_root_only(self, why: &str) -> NoTracefs {
        let Some(closed) = self.closed else { return self };
        let reason = Reason::new(format!("{}, and {why}", closed.why), "run as root");
        NoTracefs { reason, closed: None }
    }
}

/// The kernel's lockdown mode, kernel_lockdown(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    Confidentiality,
    /// No lockdown, or a mode that allows events and tracefs.
    Less,
}

impl Lockdown {
    pub fn now() -> Lockdown {
        Lockdown::parse(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())
    }

    fn parse(text: &str) -> Lockdown {
        if text.contains("[confidentiality]") { Lockdown::Confidentiality } else { Lockdown::Less }
    }
}

enum Obstacle {
    Closed(ClosedTracefs),
    Other(Reason),
}

/// A tracefs that only a user with more privileges can read.
#[derive(Debug)]
struct ClosedTracefs {
    why: String,
    /// The capabilities that reading needs.
    capabilities: Vec<Capability>,
    /// The command that makes tracefs readable for a group.
    mount: String,
}

impl ClosedTracefs {
    /// tracefs is mounted at `root`, where `path` cannot be read.
    fn unreadable(path: &Path, root: &Path) -> ClosedTracefs {
        ClosedTracefs {
            why: format!("tracefs is not readable ({})", path.display()),
            capabilities: vec![Capability::DacReadSearch],
            mount: format!("mount -o remount,gid=GROUP,mode=755 {}", shell_word(root)),
        }
    }

    /// tracefs is not mounted. Its files belong to root, who needs no capability to read them.
    fn not_mounted(root: bool) -> ClosedTracefs {
        let reads = (!root).then_some(Capability::DacReadSearch);
        ClosedTracefs {
            why: "tracefs is not mounted, and this process may not mount it and read it".to_owned(),
            capabilities: [Capability::SysAdmin].into_iter().chain(reads).collect(),
            mount: "mount -t tracefs -o gid=GROUP,mode=755 nodev /sys/kernel/tracing".to_owned(),
        }
    }

    fn reason(&self) -> Reason {
        let names: Vec<&str> = self.capabilities.iter().map(|capability| capability.name()).collect();
        let cure = format!("{}, or for a group of yours: {}, or run as root", names.join(" and "), self.mount);
        Reason::new(&self.why, cure)
    }

    fn reason_beside(&self, events: &ForeseenRefusal) -> Reason {
        let why = format!("{}; and {}", self.why, events.reason.why);
        let cure = match (&events.reason.cure, events.capability) {
            (_, Some(capability)) => {
                let mut all = self.capabilities.clone();
                if !all.contains(&capability) && !all.contains(&Capability::SysAdmin) {
                    all.insert(0, capability);
                }
                let (all, one) = (setcap(&all), capability.name());
                format!("{all}, or {one} and for a group of yours: {}, or run as root", self.mount)
            }
            (Some(cure), None) => format!("{cure}; and for tracefs {}", self.reason().cure.unwrap_or_default()),
            (None, None) => return Reason::incurable(why),
        };
        Reason::new(why, cure)
    }
}

/// A path as it can be pasted into a shell.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy().replace(char::is_control, "?");
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if text.bytes().all(is_harmless) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Why no mounted tracefs could be read, and none be mounted by perf-prof. `errno`: the kernel's answer.
fn why_unreadable(errno: i32, mounted: Option<&Path>, lockdown: &Lockdown, root: bool) -> Obstacle {
    match (mounted, errno) {
        (_, libc::EMFILE | libc::ENFILE) => {
            Obstacle::Other(Reason::new("no file descriptor is left for a look at tracefs", "raise `ulimit -n`"))
        }
        (None, libc::ENODEV) => Obstacle::Other(Reason::incurable("this kernel has no tracefs (CONFIG_TRACING)")),
        _ if *lockdown == Lockdown::Confidentiality => Obstacle::Other(locked_down()),
        (Some(at), _) => Obstacle::Closed(ClosedTracefs::unreadable(at, at)),
        (None, _) => Obstacle::Closed(ClosedTracefs::not_mounted(root)),
    }
}

/// Why `path` in the tracefs at `root` cannot be read.
pub fn unreadable(path: &Path, root: &Path, lockdown: &Lockdown) -> Reason {
    match lockdown {
        Lockdown::Confidentiality => locked_down(),
        Lockdown::Less => ClosedTracefs::unreadable(path, root).reason(),
    }
}

fn locked_down() -> Reason {
    Reason::new(
        "the kernel is locked down (confidentiality), and tracefs is closed to root, too",
        "boot with lockdown=integrity",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTED: Option<&str> = Some("/sys/kernel/tracing");

    #[test]
    fn every_obstacle_has_its_own_cure() {
        let less = Lockdown::parse("[none] integrity confidentiality\n");
        let locked = Lockdown::parse("none integrity [confidentiality]\n");
        let cases = [
            (libc::EPERM, MOUNTED, less, "is not readable (/sys/kernel/tracing)", Some("CAP_DAC_READ_SEARCH, or ")),
            (libc::EPERM, MOUNTED, locked, "locked down", Some("boot with lockdown=integrity")),
            (libc::EPERM, None, less, "is not mounted", Some("CAP_SYS_ADMIN, or ")),
            (libc::EPERM, None, locked, "locked down", Some("boot ")),
            (libc::ENODEV, None, less, "this kernel has no tracefs", None),
            (libc::EMFILE, MOUNTED, less, "no file descriptor", Some("raise `ulimit -n`")),
        ];
        for (errno, mounted, lockdown, why, cure) in cases {
            let reason = match why_unreadable(errno, mounted.map(Path::new), &lockdown, true) {
                Obstacle::Closed(closed) => closed.reason(),
                Obstacle::Other(reason) => reason,
            };
            assert!(reason.why.contains(why), "{reason}");
            assert_eq!(reason.cure.is_some(), cure.is_some(), "{reason}");
            assert!(reason.cure.iter().all(|text| text.starts_with(cure.unwrap())), "{reason}");
        }
    }

    fn closed(mounted: Option<&str>, root: bool) -> ClosedTracefs {
        let mounted = mounted.map(Path::new);
        let obstacle = why_unreadable(libc::EPERM, mounted, &Lockdown::Less, root);
        let Obstacle::Closed(closed) = obstacle else { panic!("{mounted:?}") };
        closed
    }

    #[test]
    fn paths_can_be_pasted() {
        for (path, want) in [("/a/b-1", "/a/b-1"), ("/a b;c", "'/a b;c'"), ("/it's\n", r"'/it'\''s?'")] {
            assert_eq!(shell_word(Path::new(path)), want);
        }
    }

    #[test]
    fn both_cures_are_named_where_both_are_needed() {
        let level = Reason::new("CAP_PERFMON is missing", "CAP_PERFMON, or run as root");
        let events = |capability| ForeseenRefusal { reason: level.clone(), capability };
        let perfmon = events(Some(Capability::Perfmon));
        let group = "mount -o remount,gid=GROUP,mode=755 /sys/kernel/tracing, or run as root";
        let reason = closed(MOUNTED, false).reason_beside(&perfmon);
        assert_eq!(reason.why, "tracefs is not readable (/sys/kernel/tracing); and CAP_PERFMON is missing");
        let one = "CAP_PERFMON and CAP_DAC_READ_SEARCH (setcap cap_perfmon,cap_dac_read_search+ep perf-prof), or ";
        assert_eq!(reason.cure, Some(format!("{one}CAP_PERFMON and for a group of yours: {group}")));
        // CAP_SYS_ADMIN, which mounting takes, also allows events; only the second way needs CAP_PERFMON besides.
        let cure = closed(None, false).reason_beside(&perfmon).cure.unwrap();
        let one = "CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH (setcap cap_sys_admin,cap_dac_read_search+ep perf-prof), or ";
        assert!(cure.starts_with(&format!("{one}CAP_PERFMON and for a group of yours: mount -t tracefs")), "{cure}");
        // Debian's kernels.
        let cure = closed(None, false).reason_beside(&events(Some(Capability::SysAdmin))).cure.unwrap();
        assert!(cure.starts_with(one) && cure.contains("or CAP_SYS_ADMIN and for a group"), "{cure}");
        // In a container, tracefs and events have separate cures.
        let cure = closed(None, true).reason_beside(&events(None)).cure.unwrap();
        assert!(cure.starts_with("CAP_PERFMON, or run as root; and for tracefs CAP_SYS_ADMIN, or for a "), "{cure}");
        let hopeless = ForeseenRefusal { reason: Reason::incurable("no perf events"), capability: None };
        assert_eq!(closed(None, true).reason_beside(&hopeless).cure, None);
    }
}
