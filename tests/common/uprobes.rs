//! Probes in the functions of examples/calls, and what the kernel knows of them.
#![allow(dead_code)] // each test binary uses a part

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use perf_prof::event::ProbePoint;
use perf_prof::profiler::code::{self, CodeLocation, WantedFunctions};
use perf_prof::symbol::functions::search::{MAX_OF_FILE_BYTES, Search};
use perf_prof::sys::mount::{PrivateTracefs, private_tracefs};
use serde_json::Value;

use crate::common::{Done, example, run_over, until};

/// The kernel's lists of dynamic events.
pub struct Kernel(PrivateTracefs);

impl Kernel {
    pub fn new() -> Kernel {
        Kernel(private_tracefs().expect("a tracefs of our own"))
    }

    pub fn file(&self) -> PathBuf {
        self.0.root().join("uprobe_events")
    }

    pub fn probes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file()).expect("uprobe_events");
        text.lines().map(str::to_owned).collect()
    }

    /// Events of a run, by its pid.
    pub fn probes_of(&self, pid: i32) -> usize {
        let group = format!("perf_prof_{pid}_");
        self.probes().iter().filter(|line| line.contains(&group)).count()
    }

    /// The kernel returns the list in parts: while others remove events, one may be missing.
    pub fn has_of(&self, pid: i32, count: usize) {
        until("the probes are there", || self.asked_for_by(pid) == count);
    }

    /// The kernel takes a moment to release them.
    pub fn has_none_of(&self, pid: i32) {
        until("the probes are gone", || self.probes_of(pid) == 0);
    }

    /// The same without the probes that measure the cost of a hit.
    pub fn asked_for_by(&self, pid: i32) -> usize {
        let group = format!("perf_prof_{pid}_");
        let probes = self.probes();
        probes.iter().filter(|line| line.contains(&group) && !line.contains("/cost_of_a_hit_")).count()
    }

    pub fn tell(&self, line: &str) -> std::io::Result<()> {
        OpenOptions::new().append(true).open(self.file())?.write_all(format!("{line}\n").as_bytes())
    }
}

/// The only place of a function in a file.
pub fn in_file(place: &ProbePoint, path: &str) -> CodeLocation {
    let search = Search::within(MAX_OF_FILE_BYTES);
    code::in_file(WantedFunctions { place, most: 1 }, path, &search).expect("the function").remove(0)
}

/// Skips the test if programs cannot be probed.
macro_rules! need_uprobes {
    () => {{
        need_events!();
        let kernel = $crate::uprobes::Kernel::new();
        if !kernel.file().exists() {
            skip!("this kernel has no uprobes");
        }
        kernel
    }};
}

/// `uprobe:FUNCTION@"examples/calls"REST`
pub fn probe(kind: &str, function: &str, rest: &str) -> String {
    format!("{kind}:{function}@\"{}\"{rest}", example("calls"))
}

/// The events of a function, in their order.
pub fn fields(done: &Done, name: &str) -> Vec<Value> {
    let events = done.of_type("event").into_iter().filter(|event| event["event"] == name);
    events.map(|event| event["fields"].clone()).collect()
}

/// trace over examples/calls.
pub fn calls(selectors: &[&str], count: u64) -> Done {
    let options: Vec<&str> = selectors.iter().flat_map(|selector| ["-e", selector]).collect();
    run_over(&[&["trace", "--json"], options.as_slice()].concat(), &[&example("calls"), &count.to_string()])
}
