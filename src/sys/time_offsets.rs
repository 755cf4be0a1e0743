//! How far a time namespace shifts the clocks that this process reads, time_namespaces(7). The times of records and of the
//! kernel's events are never shifted.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// How far each clock of the namespace is ahead of the machine's clock, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeOffsets {
    pub monotonic_ns: i64,
    pub boottime_ns: i64,
}

impl TimeOffsets {
    /// The offsets of this process, read once.
    pub fn own() -> TimeOffsets {
        static OWN: OnceLock<TimeOffsets> = OnceLock::new();
        *OWN.get_or_init(|| TimeOffsets::of(Path::new("/proc/self")))
    }

    /// `process`: the process's directory in /proc. Without one, or before Linux 5.5, the offsets are 0.
    fn of(process: &Path) -> TimeOffsets {
        let namespace = |name: &str| fs::read_link(process.join("ns").join(name)).ok();
        // The file has the offsets of the namespace for children, which until 6.0 an exec did not enter.
        if namespace("time") != namespace("time_for_children") {
            return TimeOffsets::default();
        }
        TimeOffsets::parse(&fs::read_to_string(process.join("timens_offsets")).unwrap_or_default())
    }

    /// `proc_timens_show_offsets`, kernel/time/namespace.c: `monotonic  86400  0`. Before 5.7 a clock is a number.
    fn parse(text: &str) -> TimeOffsets {
        let mut offsets = TimeOffsets::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [clock, seconds, ns] = words[..] else { continue };
            let (Ok(seconds), Ok(ns)) = (seconds.parse::<i64>(), ns.parse::<i64>()) else { continue };
            let ns = seconds.saturating_mul(1_000_000_000).saturating_add(ns);
            match clock {
                "monotonic" | "1" => offsets.monotonic_ns = ns,
                "boottime" | "7" => offsets.boottime_ns = ns,
                _ => {}
            }
        }
        offsets
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn offsets_are_parsed() {
        let cases = [
            ("monotonic           0         0\nboottime            0         0\n", (0, 0)),
            (
                "monotonic       86400         0\nboottime         -500   5000000\n",
                (86_400_000_000_000, -499_995_000_000),
            ),
            ("1 -1 500000000\n7 2 0\n", (-500_000_000, 2_000_000_000)),
            ("monotonic 9223372036854775807 0\nboottime x 0\n", (i64::MAX, 0)),
            ("monotonic 5\nrealtime 1 1\n", (0, 0)),
            ("", (0, 0)),
        ];
        for (text, (monotonic_ns, boottime_ns)) in cases {
            assert_eq!(TimeOffsets::parse(text), TimeOffsets { monotonic_ns, boottime_ns }, "{text:?}");
        }
    }

    #[test]
    fn offsets_for_children_are_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let own = || TimeOffsets::of(dir.path()).monotonic_ns;
        assert_eq!(own(), 0, "no such process");
        fs::write(dir.path().join("timens_offsets"), "monotonic 5 0\n").unwrap();
        fs::create_dir(dir.path().join("ns")).unwrap();
        symlink("time:[7]", dir.path().join("ns/time")).unwrap();
        symlink("time:[7]", dir.path().join("ns/time_for_children")).unwrap();
        assert_eq!(own(), 5_000_000_000);
        fs::remove_file(dir.path().join("ns/time")).unwrap();
        symlink("time:[6]", dir.path().join("ns/time")).unwrap();
        assert_eq!(own(), 0);
    }
}
