//! The plan of every subcommand on the formats of eight kernels: each event and field that it needs is there, or the
//! error names what is missing. Differences between kernels are in one place, and never depend on versions.

#[macro_use]
mod common;
#[path = "common/corpus.rs"]
mod corpus;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use perf_prof::host::Host;
use perf_prof::perf::Evlist;
use perf_prof::perf::target::Target;
use perf_prof::profiler::Trial;
use perf_prof::profiler::{Setup, TracefsFinder};
use perf_prof::profilers::trials;
use perf_prof::task::Watched;
use perf_prof::tep::Tracefs;
use perf_prof::tep::drift::{self, DRIFTING_FIELDS};

/// Options besides those that each profiler is tried with.
const MORE: [(&str, &[&str]); 15] = [
    ("irq-off", &["--than", "10ms", "-g"]),
    ("kmemleak", &["page"]),
    ("kmemleak", &["percpu", "-g"]),
    ("kmemleak", &["vmalloc"]),
    ("profile", &["-g", "--than", "50"]),
    ("signal", &["-p", "1"]),
    ("task-state", &["-p", "1"]),
    ("task-state", &["-D", "--than", "10", "--filter", "a*,b"]),
    ("task-state", &["-S", "--than", "10"]),
    ("task-state", &["-R", "-S", "--than", "10", "-g", "--filter", "a*,b"]),
    ("trace", &["-e", "raw_syscalls:sys_enter/id==1/,raw_syscalls:sys_exit", "-g"]),
    ("trace", &["-e", "kmem:kmalloc/bytes_req>100/stack/,kmem:kfree"]),
    ("trace", &["-e", "sched:*", "--filter", "common_pid>1"]),
    ("trace", &["-e", "timer:hrtimer_start,timer:hrtimer_expire_entry,signal:signal_generate/sig==9/"]),
    ("trace", &["-e", "kmem:kmalloc_node"]),
];

/// Features that kernels lack: the options (empty: those of the trial), the kernels, and the words of the error.
const LACKING: [(&str, &[&str], &[&str], &str); 9] = [
    ("syscalls", &[], &["3.4.0-android", "3.10.40-android"], "there is no event raw_syscalls:sys_enter"),
    ("files", &[], &["3.4.0-android", "3.10.40-android"], "there is no event raw_syscalls:sys_enter"),
    ("kmemleak", &["page"], &["3.4.0-android", "3.10.40-android"], "kmem:mm_page_alloc has no field `pfn`"),
    (
        "kmemleak",
        &["percpu", "-g"],
        &["3.4.0-android", "3.10.40-android", "4.4.88-android"],
        "there is no event percpu:percpu_alloc_percpu",
    ),
    (
        "kmemleak",
        &["vmalloc"],
        &["3.4.0-android", "3.10.40-android", "4.4.88-android", "5.10.43-android", "6.1.0-56-cloud-amd64"],
        "on older ones put kprobes into --alloc and --free",
    ),
    (
        "trace",
        &["-e", "kmem:kmalloc_node"],
        &["6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64", "6.12.117+deb12-cloud-arm64", "6.18.44-amd64"],
        "there is no event kmem:kmalloc_node; did you mean kmem:kmalloc",
    ),
    (
        "trace",
        &["-e", "raw_syscalls:sys_enter/id==1/,raw_syscalls:sys_exit", "-g"],
        &["3.4.0-android", "3.10.40-android"],
        "there is no event raw_syscalls:sys_enter",
    ),
    // They have no events of futexes and of locked files either.
    (
        "locks",
        &[],
        &["3.4.0-android", "3.10.40-android", "4.4.88-android", "5.10.43-android"],
        "there is no event lock:contention_begin",
    ),
    ("net", &[], &["3.4.0-android", "3.10.40-android", "4.4.88-android"], "there is no event sock:inet_sock_set_state"),
];

static TREES: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    corpus::unpack(dir.path());
    dir
});

/// The trees: version and path.
fn kernels() -> Vec<(String, PathBuf)> {
    let dirs = fs::read_dir(TREES.path()).expect("trees").flatten();
    let mut kernels: Vec<_> = dirs.map(|dir| (dir.file_name().into_string().expect("UTF-8"), dir.path())).collect();
    kernels.sort();
    assert_eq!(kernels.len(), 8);
    kernels
}

/// Has the profiler choose its events and filters, as for a run on a kernel that has these formats.
fn plan(trial: &Trial, options: &[&str], tree: &Path) -> Result<usize, String> {
    let (host, target, tracefs) = (Host::default(), Target::everything(), TracefsFinder::at(Tracefs::at(tree)));
    let watched = Watched::new(&target, &host);
    let setup = Setup { stacks: options.contains(&"-g"), ..Setup::new(&tracefs, &target, &host, &watched, [1, 2]) };
    let mut profiler = (trial.build)(options).unwrap_or_else(|err| panic!("{} {options:?}: {err:#}", trial.name));
    let mut evlist = Evlist::new();
    let planned = profiler.init(&mut evlist, &setup).and_then(|()| profiler.filter(&mut evlist, &setup));
    planned.map(|()| evlist.events_on(1)).map_err(|err| format!("{err:#}"))
}

#[test]
fn every_plan_resolves_or_names_what_is_missing() {
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for trial in trials() {
        let more = MORE.iter().filter(|(name, _)| *name == trial.name).map(|(_, options)| *options);
        for options in std::iter::once(trial.options).chain(more) {
            for (kernel, tree) in kernels() {
                let lacks = LACKING.iter().position(|(name, of, kernels, _)| {
                    *name == trial.name && *of == options && kernels.contains(&kernel.as_str())
                });
                let what = format!("{} {options:?} on {kernel}", trial.name);
                match (plan(&trial, options, &tree), lacks) {
                    (Ok(events), None) if events > 0 => {}
                    (Err(err), Some(at)) if err.contains(LACKING[at].3) => drop(met.insert((at, kernel))),
                    (result, _) => wrong.push(format!("{what}: {result:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(met.len(), LACKING.iter().map(|lacking| lacking.2.len()).sum::<usize>(), "{met:?}");
}

#[test]
fn drifting_fields_are_found_or_done_without() {
    let mut renamed = BTreeSet::new();
    for drifting in &DRIFTING_FIELDS {
        let (system, event) = drifting.event.split_once(':').unwrap();
        let mut missing = BTreeSet::new();
        for (kernel, tree) in kernels() {
            let format = Tracefs::at(tree).format(system, event).ok();
            match format.as_ref().and_then(|format| drifting.find(format)) {
                Some(field) if field.name != drifting.names[0] => drop(renamed.insert((event.to_owned(), kernel))),
                Some(_) => {}
                None => drop(missing.insert(kernel)),
            }
        }
        let what = format!("{} {:?}: missing on {missing:?}", drifting.event, drifting.names);
        // No fallback is missing, and each is needed by a kernel.
        assert_eq!(drifting.without.is_some(), !missing.is_empty(), "{what}");
    }
    assert!(renamed.iter().any(|(event, _)| event == "percpu_alloc_percpu"), "{renamed:?}");
}

#[test]
fn task_states_come_from_each_kernels_own_table() {
    let mut seen = BTreeSet::new();
    for (kernel, tree) in kernels() {
        let format = Tracefs::at(tree).format("sched", "sched_switch").unwrap();
        let table = drift::task_states(&format).unwrap_or_else(|| panic!("{kernel}: no states"));
        let bit = |letter: &str| table.entries.iter().find(|(_, name)| name == letter).map(|(bit, _)| *bit);
        assert_eq!((bit("S"), bit("D"), bit("T"), bit("t")), (Some(1), Some(2), Some(4), Some(8)), "{kernel}");
        seen.insert((bit("X"), bit("Z"), bit("P")));
    }
    assert!(seen.len() > 1, "these kernels differ: {seen:?}");
}

#[test]
fn renamed_events_are_offered_under_their_other_name() {
    let events = |tree: &Path| Tracefs::at(tree).events().unwrap();
    let all: Vec<(String, Tracefs, Vec<String>)> =
        kernels().into_iter().map(|(kernel, tree)| (kernel, Tracefs::at(&tree), events(&tree))).collect();
    let names: BTreeSet<&str> = all.iter().flat_map(|(_, _, events)| events.iter().map(String::as_str)).collect();
    let mut offered = 0;
    for name in names {
        for other in drift::other_names(name) {
            assert!(all.iter().any(|(_, _, events)| events.iter().any(|event| event == other)), "{other} is nowhere");
            for (kernel, tracefs, events) in &all {
                let has = |wanted: &str| events.iter().any(|event| event == wanted);
                if !has(name) && has(other) {
                    let (system, event) = name.split_once(':').unwrap();
                    let err = tracefs.format(system, event).unwrap_err().to_string();
                    assert!(err.contains(&format!("no event {name}; did you mean {other}")), "{kernel}: {err}");
                    offered += 1;
                }
            }
        }
    }
    assert!(offered > 20, "{offered}");
}

/// Every file below `dir` with this suffix.
fn files(dir: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, suffix, found);
        } else if path.to_string_lossy().ends_with(suffix) {
            found.push(path);
        }
    }
}

#[test]
fn no_code_looks_at_versions() {
    let mut sources = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), ".rs", &mut sources);
    assert!(sources.len() > 50);
    let mut found = Vec::new();
    for path in sources {
        let text = fs::read_to_string(&path).expect("a source file");
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (at, line) in lines {
            let lower = line.to_lowercase();
            let asks = ["uname(", "utsname", "osrelease", "kernel_version", "/proc/version", "linux_version"];
            if asks.iter().any(|word| lower.contains(word)) {
                found.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    // Only `doctor` uses the version, to show it.
    found.retain(|line| !line.contains("doctor/machine.rs:") || !line.contains("kernel: read("));
    assert!(found.is_empty(), "{found:#?}");
}
