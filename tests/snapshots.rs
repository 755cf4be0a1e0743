//! Whole outputs in review: what each profiler prints of recorded rings, as text, JSON, on a screen and for a scrape, is in
//! `tests/snapshots`. The recordings are in `tests/data/recordings`, whose README tells how they are made, and how the
//! snapshots of changed outputs are accepted.

#[path = "common/recordings.rs"]
mod recordings;

use std::fs;
use std::path::Path;

use insta::{Settings, assert_snapshot};
use perf_prof::commands;
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
        commands::replay(&args, &replay).unwrap()
    }

    /// Compares what was shown with the snapshot `NAME.what`.
    fn compare(&self, what: &str, shown: &str) {
        let mut settings = Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_description(format!("perf-prof {}", self.command.join(" ")));
        settings.bind(|| assert_snapshot!(format!("{}.{what}", self.name), shown));
    }

    fn text(&self) {
        self.compare("text", &self.play(&[], RING_BYTES, None).printed);
    }

    fn json(&self) {
        self.compare("json", &self.play(&["--json"], RING_BYTES, None).printed);
    }

    /// The screen in mid-run, and the page of metrics at the end.
    fn tables(&self) {
        let shown = self.play(&["--metrics", "9100"], RING_BYTES, Some(SCREEN));
        self.compare("screen", &shown.screen.join("\n"));
        self.compare("metrics", &shown.metrics);
    }

    /// With rings that are too small.
    fn lossy(&self, ring_bytes: usize) {
        let shown = self.play(&[], ring_bytes, None).printed;
        assert!(shown.contains("lost"), "{shown}");
        self.compare("lossy", &shown);
    }
}

#[test]
fn task_state() {
    let recorded = Recorded::open("task-state");
    recorded.text();
    recorded.json();
    recorded.tables();
    recorded.lossy(512);
}
