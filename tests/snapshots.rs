//! Whole outputs in review: what each profiler prints of recorded rings, as text, JSON, on a screen and for a scrape, is in
//! `tests/snapshots`. The recordings are in `tests/data/recordings`, whose README tells how they are made, and how the
//! snapshots of changed outputs are accepted.

#[path = "common/recordings.rs"]
mod recordings;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use insta::{Settings, assert_snapshot};
use perf_prof::commands::parse_run;
use perf_prof::run::replay::{Recording, ReplayOutput, RunReplay};
use tempfile::TempDir;

/// Holds all records of each recording between two rounds.
const RING_BYTES: usize = 1 << 20;
/// A usual terminal.
const SCREEN: (u16, u16) = (80, 24);

/// A recording, and the command line that it was made with.
struct Recorded {
    name: &'static str,
    command: Vec<String>,
    recording: Recording,
    directory: TempDir,
}

impl Recorded {
    fn open(name: &'static str) -> Recorded {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recordings").join(format!("{name}.xz"));
        let directory = tempfile::tempdir().unwrap();
        recordings::unpack(&file, directory.path()).unwrap();
        let command = fs::read_to_string(directory.path().join("command")).unwrap();
        let recording = Recording::parse(&fs::read(directory.path().join("rings")).unwrap()).unwrap();
        Recorded { name, command: command.lines().map(str::to_owned).collect(), recording, directory }
    }

    fn play(&self, more: &[&str], ring_bytes: usize, screen: Option<(u16, u16)>) -> ReplayOutput {
        let args: Vec<&str> = self.command.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let replay = RunReplay { recording: &self.recording, directory: self.directory.path(), ring_bytes, screen };
        let (options, profilers) = parse_run(&args).unwrap();
        let mut shown = replay.play(options, profilers).unwrap();
        shown.printed = shown.printed.replace(&*self.directory.path().to_string_lossy(), "DIRECTORY");
        shown
    }

    /// Compares what was shown with the snapshot `NAME.WHAT`.
    fn compare(&self, what: &str, shown: &str) {
        let mut settings = Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_description(format!("perf-prof {}", self.command.join(" ")));
        settings.bind(|| assert_snapshot!(format!("{}.{what}", self.name), shown));
    }

    /// All outputs of a profiler with tables: what it prints, the screen in mid-run, and the page for a scrape at the end.
    fn compare_tables(&self, lossy_ring_bytes: usize) {
        self.compare_lines(lossy_ring_bytes);
        let shown = self.play(&["--metrics", "9100"], RING_BYTES, Some(SCREEN));
        self.compare("screen", &shown.screen.join("\n"));
        // The numbers of the run itself are the same for all profilers: one snapshot has them.
        let is_shown = |line: &&str| self.name == "task-state" || !line.contains("perf_prof_run_");
        let lines: Vec<&str> = shown.metrics.lines().filter(is_shown).collect();
        self.compare("metrics", &first_of_each(&lines.join("\n"), metric));
    }

    /// What is printed, as text, as JSON, and with rings that are too small.
    fn compare_lines(&self, lossy_ring_bytes: usize) {
        self.compare("text", &self.play(&[], RING_BYTES, None).printed);
        let shown = self.play(&["--json"], RING_BYTES, None).printed;
        self.compare("json", &first_of_each(&shown, table));
        self.compare("lossy", &self.play(&[], lossy_ring_bytes, None).printed);
    }
}

/// The lines of a text but for those of a kind that has had several lines, which are counted.
fn first_of_each(text: &str, kind: fn(&str) -> &str) -> String {
    const SHOWN: usize = 4;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = String::new();
    for line in text.lines() {
        let count = seen.entry(kind(line)).or_default();
        *count += 1;
        if *count <= SHOWN {
            shown += &format!("{line}\n");
        }
    }
    for (kind, count) in seen.into_iter().filter(|(_, count)| *count > SHOWN) {
        shown += &format!("... and {} more lines: {kind}\n", count - SHOWN);
    }
    shown
}

/// What kind of a JSON line it is, and of which table.
fn table(line: &str) -> &str {
    let kind = line.split_once(",\"").map_or(line, |(kind, _)| kind);
    line.split_once("\"table\":")
        .and_then(|(_, rest)| rest.split(',').next())
        .filter(|_| kind.contains("row"))
        .unwrap_or(kind)
}

/// The name of the metric of a line.
fn metric(line: &str) -> &str {
    if line.starts_with('#') { line } else { line.split(['{', ' ']).next().unwrap_or(line) }
}

/// A test for each recording.
macro_rules! recordings {
    ($($test:ident: $name:literal, $compare:ident($lossy_ring_bytes:literal);)*) => {
        $(#[test]
        fn $test() {
            Recorded::open($name).$compare($lossy_ring_bytes);
        })*
    };
}

/// Rows by thread.
#[test]
fn rows_by_thread() {
    for name in ["task-state", "rundelay"] {
        let recorded = Recorded::open(name);
        recorded.compare("perins", &recorded.play(&["--perins"], RING_BYTES, None).printed);
    }
}

recordings! {
    blktrace: "blktrace", compare_tables(4096);
    expr: "expr", compare_lines(1024);
    files: "files", compare_tables(4096);
    irq_off: "irq-off", compare_tables(4096);
    irqs: "irqs", compare_tables(4096);
    kmemleak: "kmemleak", compare_tables(131072);
    locks: "locks", compare_tables(4096);
    multi_trace: "multi-trace", compare_tables(4096);
    net: "net", compare_tables(4096);
    num_dist: "num-dist", compare_tables(4096);
    oncpu: "oncpu", compare_tables(16384);
    page_faults: "page-faults", compare_tables(8192);
    profile: "profile", compare_tables(1024);
    reclaim: "reclaim", compare_tables(4096);
    run: "run", compare_tables(4096);
    rundelay: "rundelay", compare_tables(16384);
    sched_migrate: "sched-migrate", compare_tables(1024);
    signal: "signal", compare_tables(4096);
    split_lock: "split-lock", compare_tables(1024);
    syscalls: "syscalls", compare_tables(8192);
    task_state: "task-state", compare_tables(512);
    task_state_waits: "task-state-waits", compare_tables(1024);
    top: "top", compare_tables(4096);
    trace: "trace", compare_lines(1024);
    watchdog: "watchdog", compare_tables(512);
}
