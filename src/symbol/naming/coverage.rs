//! Share of the places that have a name, and why the others have none.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::escape::escape;
use crate::symbol::perf_map::file::Runtime;
use crate::symbol::spaces::files::FileReach;
use crate::symbol::unnamed::{DELETED, EXITED, HIDDEN, JIT_NO_MAP, NO_PERM, STRIPPED, UnnamedReason};

/// Numbers of distinct places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    pub named: u64,
    pub unnamed: u64,
}

impl PlaceCounts {
    fn add(&mut self, named: bool) {
        *self.of(named) += 1;
    }

    fn of(&mut self, named: bool) -> &mut u64 {
        if named { &mut self.named } else { &mut self.unnamed }
    }

    pub fn total(&self) -> u64 {
        self.named + self.unnamed
    }
}

/// Counter of places that may be looked up several times, with different results.
#[derive(Debug, Default)]
pub struct PlaceTally {
    pub count: PlaceCounts,
    /// Places that may be looked up again, and whether they had a name last time.
    unsettled: FxHashMap<u64, bool>,
}

/// Most unsettled places. Beyond that, each look-up counts as a place.
const MAX_UNSETTLED: usize = 1 << 16;

impl PlaceTally {
    /// Counts a look-up. A settled place is not looked up again.
    pub fn add(&mut self, place: u64, named: bool, settled: bool) {
        if let Some(before) = self.unsettled.remove(&place) {
            *self.count.of(before) -= 1;
        }
        self.count.add(named);
        if !settled && self.unsettled.len() < MAX_UNSETTLED {
            self.unsettled.insert(place, named);
        }
    }
}

/// The places of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCoverage {
    pub module: String,
    pub count: PlaceCounts,
    /// Why some places have no name.
    pub reason: UnnamedReason,
    /// The run-time compilers of the processes, for generated code.
    pub runtimes: Vec<Runtime>,
    /// How its file is reached, if its own path leads elsewhere here.
    pub reach: Option<Arc<FileReach>>,
}

/// The places of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub count: PlaceCounts,
    /// Unnamed places in no module; included in `count`.
    pub nowhere: u64,
    /// Modules with unnamed places, those with most first.
    pub modules: Vec<ModuleCoverage>,
    /// How files with places are reached whose paths lead elsewhere here, those with most places first.
    pub elsewhere: Vec<Arc<FileReach>>,
    /// Number of such files.
    files_elsewhere: usize,
}

/// Most modules that are listed.
const LIMIT: usize = 5;

impl Coverage {
    /// Sums up modules. `nowhere`: places in no module.
    pub fn of(mut modules: Vec<ModuleCoverage>, nowhere: u64) -> Coverage {
        let mut count = PlaceCounts { named: 0, unnamed: nowhere };
        for module in &modules {
            count.named += module.count.named;
            count.unnamed += module.count.unnamed;
        }
        let (elsewhere, files_elsewhere) = reaches(&modules);
        modules.retain(|module| module.count.unnamed > 0);
        // Generated code has a module per process.
        modules.sort_by(|a, b| (&a.module, a.reason).cmp(&(&b.module, b.reason)));
        modules.dedup_by(|other, one| {
            let is_same = (&one.module, one.reason) == (&other.module, other.reason);
            if is_same {
                one.count.named += other.count.named;
                one.count.unnamed += other.count.unnamed;
                one.runtimes.append(&mut other.runtimes);
            }
            is_same
        });
        modules.sort_by(|a, b| b.count.unnamed.cmp(&a.count.unnamed).then_with(|| a.module.cmp(&b.module)));
        modules.truncate(LIMIT);
        Coverage { count, nowhere, modules, elsewhere, files_elsewhere }
    }

    /// Where files are whose paths lead elsewhere here.
    pub fn reach_line(&self) -> Option<String> {
        let named: Vec<String> = self.elsewhere.iter().map(|reach| reach_text(reach)).collect();
        let more = match self.files_elsewhere - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| format!("files of other mount namespaces: {}{more}", named.join(", ")))
    }

    /// What would name generated code, if any has no name. Printed without `-v`.
    pub fn jit_cure(&self) -> Option<String> {
        let code = self.modules.iter().filter(|module| module.reason == JIT_NO_MAP);
        let (unnamed, runtimes) = code.fold((0, Vec::new()), |(unnamed, mut runtimes), module| {
            runtimes.extend_from_slice(&module.runtimes);
            (unnamed + module.count.unnamed, runtimes)
        });
        (unnamed > 0).then(|| format!("jit-no-map: places without a name: {unnamed}; {}", jit_cure(&runtimes)))
    }

    /// The lines for `-v`.
    pub fn describe(&self) -> Vec<String> {
        let (named, all) = (self.count.named, self.count.total());
        if all == 0 {
            return Vec::new();
        }
        let mut lines = vec![format!("symbols: {named} of {all} places named ({} %)", named * 100 / all)];
        lines.extend(self.modules.iter().map(|ModuleCoverage { module, count, reason, runtimes, .. }| {
            let cure = match *reason {
                JIT_NO_MAP => format!("; {}", jit_cure(runtimes)),
                reason => cure(reason).map(|cure| format!("; {cure}")).unwrap_or_default(),
            };
            format!("symbols: {} of {} without a name in {module} ({reason}){cure}", count.unnamed, count.total())
        }));
        if self.nowhere > 0 {
            lines.push(format!("symbols: {} frames in no module: wrong frame pointers, or gone", self.nowhere));
        }
        lines.extend(self.reach_line());
        lines
    }
}

/// How files of modules are reached whose paths lead elsewhere, the first of those with most places; and their number.
fn reaches(modules: &[ModuleCoverage]) -> (Vec<Arc<FileReach>>, usize) {
    let reached = modules.iter().filter(|module| module.count.total() > 0);
    let mut reached: Vec<(u64, &Arc<FileReach>)> =
        reached.filter_map(|module| Some((module.count.total(), module.reach.as_ref()?))).collect();
    reached.sort_by(|(few, one), (many, other)| many.cmp(few).then_with(|| one.path.cmp(&other.path)));
    (reached.iter().take(LIMIT).map(|(_, reach)| Arc::clone(reach)).collect(), reached.len())
}

/// `/proc/4711/root/opt/libwork.so (container 1753b7cb8d93)`
fn reach_text(reach: &FileReach) -> String {
    let container = reach.container.as_ref().map(|name| format!(" (container {})", escape(name.as_bytes())));
    format!("{}{}", escape(reach.path.as_bytes()), container.unwrap_or_default())
}

/// What would name generated code.
fn jit_cure(runtimes: &[Runtime]) -> String {
    let known = Runtime::ALL.into_iter().filter(|runtime| runtimes.contains(runtime));
    let known: Vec<&str> = known.map(Runtime::cure).collect();
    let cures = if known.is_empty() { Runtime::ALL.map(Runtime::cure).to_vec() } else { known };
    format!("it is named in /tmp/perf-PID.map, which is written by {}", cures.join(", "))
}

/// What would name the places of a module.
fn cure(reason: UnnamedReason) -> Option<&'static str> {
    match reason {
        STRIPPED => Some("its debug file in /usr/lib/debug/.build-id would help"),
        NO_PERM => Some("root may open it"),
        DELETED => Some("start perf-prof before the file is replaced"),
        EXITED => Some("start perf-prof before the process"),
        HIDDEN => Some("root sees them, or all with kernel.kptr_restrict=0"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_once_however_often_it_is_looked_up() {
        let mut tally = PlaceTally::default();
        let steps = [
            ((1, false, false), (0, 1)),
            ((1, false, false), (0, 1)),
            ((2, true, true), (1, 1)),
            ((3, true, false), (2, 1)),
            ((3, true, false), (2, 1)),
            ((3, false, false), (1, 2)), // a process has written another perf map
            ((1, true, true), (2, 1)),   // a module was loaded
        ];
        for ((place, named, settled), (with, without)) in steps {
            tally.add(place, named, settled);
            assert_eq!(tally.count, PlaceCounts { named: with, unnamed: without }, "{place} {named}");
        }
        for place in 0..2 * MAX_UNSETTLED as u64 {
            tally.add(place, false, false);
        }
        assert!(tally.unsettled.len() <= MAX_UNSETTLED);
    }

    #[test]
    fn the_worst_modules_come_first_with_their_cure() {
        assert!(Coverage::default().describe().is_empty());
        let module = |module: &str, named, unnamed, reason| ModuleCoverage {
            module: module.to_owned(),
            count: PlaceCounts { named, unnamed },
            reason,
            reach: None,
            runtimes: Vec::new(),
        };
        let mut modules = vec![
            module("/bin/whole", 40, 0, ""),
            module("/bin/b", 1, 2, STRIPPED),
            module("/bin/a", 0, 2, EXITED),
            module("//anon", 0, 3, JIT_NO_MAP),
            ModuleCoverage { runtimes: vec![Runtime::Node], ..module("[heap]", 0, 0, JIT_NO_MAP) },
            module("//anon", 0, 4, JIT_NO_MAP),
        ];
        modules.extend((0..4).map(|index| module(&format!("/odd/{index}"), 0, 1, "odd")));
        let coverage = Coverage::of(modules, 3);
        assert_eq!(coverage.count, PlaceCounts { named: 41, unnamed: 18 });
        let names: Vec<&str> = coverage.modules.iter().map(|module| module.module.as_str()).collect();
        assert_eq!(names, ["//anon", "/bin/a", "/bin/b", "/odd/0", "/odd/1"]);
        let lines = coverage.describe();
        assert_eq!(lines[0], "symbols: 41 of 59 places named (69 %)");
        let anon = "symbols: 7 of 7 without a name in //anon (jit-no-map); it is named in /tmp/perf-PID.map, which is written by `jcmd";
        assert!(lines[1].starts_with(anon), "{lines:?}");
        assert!(
            lines[3].starts_with("symbols: 2 of 3 without a name in /bin/b (stripped); its debug file"),
            "{lines:?}"
        );
        assert_eq!(lines[4], "symbols: 1 of 1 without a name in /odd/0 (odd)");
        assert_eq!(lines[6], "symbols: 3 frames in no module: wrong frame pointers, or gone");
        assert_eq!(lines.len(), 7);
        assert!(jit_cure(&[Runtime::Node, Runtime::Node]).ends_with("written by `node --perf-basic-prof`"));
        assert_eq!(jit_cure(&[]), jit_cure(&Runtime::ALL));
    }

    #[test]
    fn files_that_their_paths_do_not_lead_to_are_told() {
        let module = |number: u64| ModuleCoverage {
            module: format!("/proc/{number}/root/lib"),
            count: PlaceCounts { named: number, unnamed: 0 },
            reason: "",
            runtimes: Vec::new(),
            reach: Some(Arc::new(FileReach {
                path: format!("/proc/{number}/root/lib"),
                container: (number == 3).then(|| "we\x1bb".to_owned()),
            })),
        };
        let here = ModuleCoverage { reach: None, ..module(9) };
        assert_eq!(Coverage::of(vec![here.clone()], 0).reach_line(), None);
        let told = |most| Coverage::of((0..=most).map(module).chain([here.clone()]).collect(), 0).reach_line().unwrap();
        assert_eq!(told(1), "files of other mount namespaces: /proc/1/root/lib");
        let three = "/proc/3/root/lib (container we\\x1bb), /proc/2/root/lib, /proc/1/root/lib";
        assert_eq!(told(3), format!("files of other mount namespaces: {three}"));
        assert!(told(8).ends_with("/proc/5/root/lib, /proc/4/root/lib and 3 more"), "{}", told(8));
    }
}
