//! Programs whose chains of calls are known (`tests/data/known_chains.*`): the commands that show their stacks, and what is
//! wrong with what these show.
#![allow(dead_code)] // each test binary uses a part

use std::time::Duration;

use serde_json::Value;

use crate::common::{Again, Attempted, CpuWatch, Done, number, or_again};

/// Commands that show stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackView {
    /// Samples of a clock, at any instruction.
    Profile,
    /// Waits of a known number.
    Waits,
    /// Allocations that are left.
    Leaks,
    /// A probe in a function, its return, switches.
    Events,
}
use StackView::{Events, Leaks, Profile, Waits};

/// Functions that leaf() calls.
const BELOW_LEAF: [&str; 2] = ["tick", "probed"];
pub const WAITS: u64 = 20;
/// Their windows must find room until the tables of the program are loaded.
const ALLOCS: u64 = 60;
const CPU_MS: u64 = 300;

/// A built program, and what is wrong with its chains.
pub struct KnownProgram {
    pub path: String,
    pub mode: &'static str,
    /// Of the functions, innermost first. The first chain is that of leaf().
    pub chains: Vec<Vec<String>>,
    pub call_graph: &'static str,
    /// The end of a chain that does not fit.
    pub end: Option<&'static str>,
    pub faults: Vec<String>,
    pub hz: &'static str,
    /// A profile has as many samples of it.
    pub least_samples: u64,
    /// As many of [`WAITS`] are waits.
    pub least_waits: u64,
    /// Samples of the C++ runtime as it leaves functions that an exception goes through.
    leaving: u64,
}

impl KnownProgram {
    pub fn new(path: String, mode: &'static str, chains: Vec<Vec<String>>) -> KnownProgram {
        KnownProgram {
            path,
            mode,
            chains,
            call_graph: "-g",
            end: None,
            faults: Vec::new(),
            hz: "997",
            least_samples: CPU_MS / 3,
            least_waits: WAITS,
            leaving: 0,
        }
    }

    /// The words behind `--`: the program does something so many times.
    pub fn workload(&self, action: &str, times: u64) -> Vec<String> {
        vec![self.path.clone(), self.mode.to_owned(), action.to_owned(), times.to_string()]
    }

    /// The arguments of perf-prof for a view. `graph`: the file of a flame graph.
    pub fn args(&self, view: StackView, graph: &str) -> Vec<String> {
        let probes = format!("uprobe:probed@\"{0}\",uretprobe:probed@\"{0}\",sched:sched_switch", self.path);
        let (options, action, times): (&[&str], _, _) = match view {
            Profile => (&["profile", "-F", self.hz, "--flame-graph", graph], "busy", CPU_MS),
            Waits => (&["task-state", "-S", "--than", "1ms"], "sleep", WAITS),
            Leaks => (&["kmemleak", "malloc"], "malloc", ALLOCS),
            Events => (&["trace", "-e", &probes], "sleep", WAITS),
        };
        let words = [options, &[self.call_graph, "--json", "--"]].concat().into_iter().map(str::to_owned);
        words.chain(self.workload(action, times)).collect()
    }

    /// What a view has shown. `graph`: the flame graph. `watch`: as long as the run.
    pub fn look(&mut self, view: StackView, done: &Done, graph: &str, watch: &CpuWatch) -> Attempted {
        match view {
            Profile => self.profile(done, graph, watch),
            Waits => self.waits(done),
            Leaks => self.leaks(done),
            Events => self.events(done),
        }
    }

    /// Names of own functions in a chain, innermost first, without those that leaf() calls.
    pub fn own<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let is_own =
            |name: &String| BELOW_LEAF.contains(&name.as_str()) || self.chains.iter().any(|chain| chain.contains(name));
        let mut own: Vec<String> = names.map(short_name).filter(is_own).collect();
        if own.len() > 1 && BELOW_LEAF.contains(&own[0].as_str()) && own[1] == "leaf" {
            own.remove(0);
        }
        own
    }

    /// True for a chain from some own function to the outermost one.
    pub fn is_known(&self, own: &[String]) -> bool {
        self.chains.iter().any(|chain| match self.end {
            None => chain.ends_with(own),
            Some(_) => (0..chain.len()).any(|from| chain[from..].starts_with(own)),
        })
    }

    /// Counts a chain that is right and that of leaf().
    fn check(&mut self, view: StackView, names: &[&str], count: u64) -> u64 {
        let own = self.own(names.iter().copied());
        if own.is_empty() {
            return 0; // before main(), or behind it
        }
        let end = names.last().copied().unwrap_or_default();
        let is_end = self.end.is_none_or(|wanted| end == wanted) || own.last().is_some_and(|name| name == "main");
        if !self.is_known(&own) || !is_end {
            // It overwrites its own frame with that of the function where it ends.
            if view == Profile && names.iter().any(|name| name.starts_with("_Unwind_")) {
                self.leaving += count;
                return 0;
            }
            let names = if names.len() > 40 { &names[names.len() - 40..] } else { names };
            self.faults.push(format!("{view:?}: {count} x {names:?}"));
            return 0;
        }
        if own[0] == self.chains[0][0] { count } else { 0 }
    }

    /// Faults of the file of a flame graph, and how many samples were of the program's own.
    fn profile(&mut self, done: &Done, graph: &str, watch: &CpuWatch) -> Attempted {
        let mut seen = 0;
        let mut without = 0;
        for line in graph.lines() {
            let (stack, count) = line.rsplit_once(' ').expect("a weight");
            let count: u64 = count.parse().expect("a number");
            let mut names: Vec<&str> = stack.split(';').skip(1).collect();
            names.reverse();
            // The kernel may be half way through with giving the thread the registers of a signal handler, or its own back.
            let is_between = |name: &&&str| ["do_signal_[k]", "restore_sigframe_[k]"].contains(name);
            if !names.iter().any(|name| is_between(&name)) {
                self.check(Profile, &names, count);
            }
            let own = self.own(names.iter().copied());
            seen += count;
            let is_of_thread = names.last() == Some(&"clone3"); // before its routine, and behind it
            without += if own.is_empty() && !is_of_thread { count } else { 0 };
        }
        let leaving = std::mem::take(&mut self.leaving);
        if leaving > 2 + seen / 20 {
            self.faults.push(format!("{leaving} of {seen} samples inside of the C++ runtime\n{graph}"));
        }
        let busy = Again::CpuBusy(watch, Duration::from_millis(CPU_MS / 3));
        let reasons = [Again::RecordsLost(done), Again::NamesGivenUp(done), busy];
        or_again(seen >= self.least_samples && without <= 20 + seen / 50, &reasons, || {
            format!("{seen} samples, {without} of them without own functions: {:#?}\n{graph}", done.end())
        })
    }

    fn waits(&mut self, done: &Done) -> Attempted {
        let seen = self.check_events(Waits, &done.of_type("event"));
        assert!(seen <= WAITS, "{seen} of {WAITS} waits: {done:#?}");
        let reasons =
            [Again::RecordsLost(done), Again::Discarded(done), Again::IdleHidden(done), Again::NamesGivenUp(done)];
        or_again(seen >= self.least_waits, &reasons, || format!("{seen} of {WAITS} waits: {done:#?}"))
    }

    fn leaks(&mut self, done: &Done) -> Attempted {
        let mut seen = 0;
        for row in done.of_type("row") {
            seen += self.check(Leaks, &names(&row["stack"]), number(&row, "allocs"));
        }
        let reasons = [Again::RecordsLost(done), Again::NamesGivenUp(done)];
        or_again(seen == ALLOCS, &reasons, || format!("{seen} of {ALLOCS} allocations: {done:#?}"))
    }

    fn events(&mut self, done: &Done) -> Attempted {
        for (prefix, exact) in [("uprobe:", true), ("uretprobe:", true), ("sched:", false)] {
            let is_it = |event: &Value| event["event"].as_str().is_some_and(|name| name.starts_with(prefix));
            // Preempted before the kernel has done what the instruction under a probe does, a task is at none of its own.
            let is_at_probe = |event: &Value| names(&event["stack"]).contains(&"irqentry_exit_to_user_mode");
            let events = done.of_type("event").into_iter().filter(is_it);
            let of: Vec<Value> = events.filter(|event| exact || !is_at_probe(event)).collect();
            let seen = self.check_events(Events, &of);
            // Preempted it is switched out, too.
            let least = if exact { WAITS } else { self.least_waits };
            assert!(!exact || seen <= WAITS, "{seen} of {WAITS} {prefix} {done:#?}");
            let reasons = [Again::RecordsLost(done), Again::NamesGivenUp(done)];
            or_again(seen >= least, &reasons, || format!("{seen} of {WAITS} {prefix} {done:#?}"))?;
        }
        Ok(())
    }

    fn check_events(&mut self, view: StackView, events: &[Value]) -> u64 {
        events.iter().map(|event| self.check(view, &names(&event["stack"]), 1)).sum()
    }
}

/// The names of the frames, innermost first.
pub fn names(stack: &Value) -> Vec<&str> {
    let frames = stack.as_array().into_iter().flatten();
    frames.map(|frame| frame["symbol"].as_str().or(frame["reason"].as_str()).unwrap_or("?")).collect()
}

/// Without parameters, what it is a part of, and how often it was cloned.
fn short_name(name: &str) -> String {
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    let name = if name.starts_with("<known_chains::Guard") { "drop" } else { name };
    name.trim_start_matches("known_chains::").trim_end_matches(".cold").to_owned()
}
