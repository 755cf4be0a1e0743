//! The rooms of the package: which one may use which, and where `unsafe` is.

#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sources::sources as all_sources;

/// Each room with those that it uses. A room stands below all that it uses, so there is no circle.
const ROOMS: [(&str, &[&str]); 31] = [
    ("caret", &[]),
    ("destination", &[]),
    ("digits", &[]),
    ("glob", &[]),
    ("host", &[]),
    ("ringbuf", &[]),
    ("sys", &[]),
    ("unwind", &[]),
    ("outside", &["host", "sys"]),
    ("escape", &["digits"]),
    ("json", &["digits", "escape"]),
    ("bpf", &["sys"]),
    ("tep", &["caret", "digits", "glob", "sys"]),
    ("perf", &["bpf", "host", "ringbuf", "sys", "tep"]),
    ("expr", &["caret", "glob", "tep"]),
    ("event", &["caret", "expr", "glob", "host", "perf", "tep"]),
    ("task", &["escape", "host", "outside", "perf", "sys", "tep"]),
    ("symbol", &["escape", "glob", "host", "outside", "perf", "sys", "task", "tep", "unwind"]),
    ("stats", &["symbol", "task"]),
    ("report", &["digits", "escape", "json", "perf", "stats", "symbol", "task"]),
    ("file", &["host", "outside", "report", "sys"]),
    (
        "output",
        &[
            "bpf",
            "destination",
            "digits",
            "escape",
            "host",
            "json",
            "outside",
            "report",
            "stats",
            "symbol",
            "sys",
            "task",
            "tep",
            "unwind",
        ],
    ),
    ("cli", &["destination", "glob", "host"]),
    (
        "profiler",
        &[
            "bpf", "caret", "cli", "digits", "escape", "event", "expr", "host", "json", "output", "outside", "perf",
            "report", "ringbuf", "stats", "symbol", "sys", "task", "tep", "unwind",
        ],
    ),
    ("sched", &["perf", "profiler", "report", "stats", "symbol", "sys", "task", "tep"]),
    ("relation", &["cli", "event", "perf", "profiler", "report", "stats", "symbol", "task"]),
    ("calls", &["cli", "perf", "profiler", "relation", "report", "sched", "stats", "symbol", "task", "tep"]),
    (
        "profilers",
        &[
            "calls", "cli", "digits", "escape", "event", "expr", "file", "host", "json", "perf", "profiler",
            "relation", "report", "sched", "stats", "symbol", "sys", "task", "tep",
        ],
    ),
    (
        "run",
        &[
            "bpf",
            "cli",
            "destination",
            "digits",
            "escape",
            "host",
            "output",
            "outside",
            "perf",
            "profiler",
            "report",
            "ringbuf",
            "stats",
            "symbol",
            "sys",
            "task",
            "tep",
        ],
    ),
    (
        "commands",
        &[
            "bpf",
            "cli",
            "escape",
            "file",
            "glob",
            "host",
            "json",
            "output",
            "outside",
            "perf",
            "profiler",
            "profilers",
            "report",
            "run",
            "symbol",
            "sys",
            "task",
            "tep",
        ],
    ),
    ("app", &["cli", "commands", "sys"]),
];

/// All Rust files of the package except tests, each with its room and its text without comments.
fn sources() -> Vec<(String, PathBuf, String)> {
    let mut sources = Vec::new();
    for (inside, text) in all_sources("src") {
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if ["lib", "main"].contains(&&*room) || is_test(&inside) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned() + &after_tests(&text);
        let without_comments = code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
        sources.push((room, inside, without_comments));
    }
    sources
}

/// The text behind the declaration of a test module that has a file of its own.
fn after_tests(text: &str) -> String {
    let parts = text.split("#[cfg(test)]\nmod ").skip(1);
    let rest =
        |part: &str| part.split_once('\n').filter(|(line, _)| line.ends_with(';')).map(|(_, rest)| rest.to_owned());
    parts.filter_map(rest).collect()
}

fn is_test(path: &Path) -> bool {
    let is_test =
        |name: &str| name == "tests" || name == "model_tests" || name.ends_with("_tests.rs") || name == "tests.rs";
    path.iter().any(|part| is_test(part.to_str().unwrap()))
}

/// The rooms named behind `crate::`; that of a list in braces is empty, so that it is found.
fn used(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn a_room_uses_only_what_is_below_it() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (room, _, code) in sources() {
        let uses = found.entry(room.clone()).or_default();
        uses.extend(used(&code).filter(|other| *other != room).map(str::to_owned));
    }
    let (mut below, mut faults): (Vec<&str>, Vec<String>) = Default::default();
    for (room, allowed) in ROOMS {
        let upwards = allowed.iter().filter(|other| !below.contains(other));
        faults.extend(upwards.map(|other| format!("{room} stands below {other}")));
        let uses = found.remove(room).unwrap_or_default();
        if !uses.iter().eq(allowed) {
            faults.push(format!("{room} uses {uses:?}"));
        }
        below.push(room);
    }
    faults.extend(found.keys().map(|room| format!("{room} is not in the table")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn unsafe_code_is_in_two_rooms() {
    let mut seen = BTreeSet::new();
    for (room, path, code) in sources() {
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.into_iter().any(|word| word == "unsafe") {
            assert!(room == "sys" || room == "ringbuf", "{}: {room} has no business with it", path.display());
            seen.insert(room);
        }
    }
    assert_eq!(seen.len(), 2);
}

/// Files that speak of what others have in hand, and why they may: in a worker, or of what never hangs.
const OF_OTHERS: [(&str, &str); 17] = [
    ("file/mounted.rs", "mount tables and roots of other processes, in a worker"),
    ("file/open_files.rs", "descriptors and mappings, in a worker"),
    // The kernel lists numbers, and takes no lock of a process.
    ("host.rs", "lists of processes and threads"),
    // Of others the owner in status, of which the kernel keeps a copy; of our workers more, which hold none of their own locks.
    ("outside/pool.rs", "status, which never hangs"),
    ("symbol/elf/questions.rs", "in a worker"),
    // Opens and reads in answers to questions; a place is closed without telling the file's server.
    ("symbol/spaces/files.rs", "in a worker; places (O_PATH) only in this process"),
    ("symbol/spaces/mapped_files.rs", "in a worker"),
    ("symbol/spaces/remapped.rs", "in a worker"),
    ("symbol/opening.rs", "in a worker; places (O_PATH) only in this process"),
    // Called by the search alone: profiler/function_search.rs asks for it.
    ("symbol/functions/binary.rs", "the search for functions, in a worker"),
    ("symbol/elf/debug_files.rs", "separate debug files, in a worker"),
    ("symbol/perf_map/content.rs", "in a worker"),
    ("symbol/perf_map/file.rs", "in a worker"),
    // stat(2) of /proc/PID.
    ("symbol/spaces/address_spaces.rs", "whether a process exists"),
    // What may hang is asked for there; comm, status, schedstat, sched, cgroup and children take no lock that a process can hold.
    ("task/procfs.rs", "in a worker, or files that never hang"),
    ("task/python/mod.rs", "in a worker"),
    // Of the files that a path can be made to there, the same ones are read in this process.
    ("task", "paths from task/procfs.rs, in a worker, or files that never hang"),
];

/// A read of what others have in hand may never return: see `src/outside/`.
#[test]
fn only_a_few_files_touch_what_others_have_in_hand() {
    // A path below /proc that is not a literal has the number of a process.
    const WORDS: [&str; 7] = [
        "proc.join(format!",
        "proc.join(pid",
        "proc.join(task",
        "proc.join(self",
        "open_here(",
        "reopen(",
        "open_regular",
    ];
    let is_known = |path: &Path| OF_OTHERS.iter().any(|(known, _)| path == Path::new(known));
    let mut found = BTreeSet::new();
    for (_, path, code) in sources() {
        let of_thread = path.starts_with("task") && code.contains("procfs::{self, Stat, file}")
            || code.contains("procfs::file;")
            || code.contains("procfs::{self, file}");
        if of_thread {
            assert!(path.starts_with("task"), "{}: files of threads", path.display());
            found.insert(PathBuf::from("task"));
        }
        if WORDS.iter().any(|word| code.contains(word)) {
            assert!(is_known(&path), "{} touches what others have in hand: ask a worker", path.display());
            found.insert(path);
        }
    }
    let unused: Vec<&str> =
        OF_OTHERS.iter().map(|(path, _)| *path).filter(|path| !found.contains(Path::new(path))).collect();
    assert!(unused.is_empty(), "{unused:?} need no place in the list");
}

/// What all readers know. A kind of value of one profiler is a `Cell` of that profiler, which describes itself.
#[test]
fn no_kind_of_value_is_of_one_profiler() {
    const KINDS: [&str; 19] = [
        "None", "Unsigned", "Signed", "Ns", "Us", "Moment", "Age", "Pct", "Bool", "Address", "Word", "Phrase", "Comm",
        "Text", "Path", "Place", "Words", "Cell", "Stack",
    ];
    let (_, _, code) = sources().into_iter().find(|(_, path, _)| path == Path::new("report/value/mod.rs")).unwrap();
    let (_, kinds) = code.split_once("pub enum Value {").unwrap();
    let (kinds, _) = kinds.split_once("\n}").unwrap();
    let kinds =
        kinds.lines().filter_map(|line| line.strip_prefix("    ").filter(|line| line.starts_with(char::is_uppercase)));
    let kinds: Vec<&str> = kinds.map(|kind| kind.split([',', '(', ' ']).next().unwrap()).collect();
    assert_eq!(kinds, KINDS);
}
