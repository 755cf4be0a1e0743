//! Bare names in `-e`: `sched_switch`, `openat`, and perf's own events such as `page-faults`.

use std::borrow::Cow;
use std::cmp::Reverse;

use anyhow::Result;

use crate::caret::caret;
use crate::cli::usage;
use crate::event::counter;
use crate::event::head::{EVENT_FORM, SelectorHead};
use crate::event::selector::Selector;
use crate::profiler::Setup;
use crate::stats::TopK;
use crate::symbol::kernel::kallsyms::each_function;
use crate::tep::format::likeness;
use crate::tep::syscalls;

/// What a bare name stands for.
#[derive(Debug, PartialEq, Eq)]
enum BareName {
    /// `system:name`
    Event(String),
    /// No event. The text follows "is not an event" in the message.
    Nothing(String),
}

impl Setup<'_> {
    /// The selector with the full name of its event. If a bare name was typed, a warning says which event it is.
    ///
    /// # Errors
    /// No event has the name, or several have it.
    pub fn with_full_name<'s>(&self, selector: &'s Selector) -> Result<Cow<'s, Selector>> {
        let SelectorHead::Bare(name) = &selector.head else { return Ok(Cow::Borrowed(selector)) };
        let refused = |why: String| usage(format!("{why}{}", caret(&selector.text, 0, 2)));
        let Ok(events) = self.tracefs.get().and_then(|tracefs| tracefs.events()) else {
            return Err(refused(format!(
                "`{name}` is not an event in full, {EVENT_FORM}: only root may look for its system"
            )));
        };
        let full = match resolve(name, &events) {
            BareName::Event(full) => full,
            BareName::Nothing(why) if why.is_empty() && self.is_kernel_function(name) => {
                return Err(refused(format!("`{name}` is not an event but a function: did you mean kprobe:{name}?")));
            }
            BareName::Nothing(why) if why.is_empty() => {
                return Err(refused(format!(
                    "`{name}` is not an event, {EVENT_FORM}{}",
                    did_you_mean_event(name, &events)
                )));
            }
            BareName::Nothing(why) => return Err(refused(format!("`{name}` is not an event{why}"))),
        };
        let line = format!("{name}: {full}");
        if !self.warnings.borrow().iter().any(|warning| warning.to_string() == line) {
            self.warn(line);
        }
        let (system, event) = full.split_once(':').unwrap_or(("", &full));
        let head = SelectorHead::Tracepoint { system: system.to_owned(), name: event.to_owned() };
        Ok(Cow::Owned(Selector { head, ..selector.clone() }))
    }

    fn is_kernel_function(&self, name: &str) -> bool {
        let mut found = false;
        each_function(&self.host.proc.join("kallsyms"), |function, _| found |= function == name);
        found
    }
}

/// Resolves a name: first as a tracepoint, then as a system call, then as an event of perf's own.
fn resolve(name: &str, events: &[String]) -> BareName {
    let of_that_name: Vec<&str> = events
        .iter()
        .filter(|event| event.split_once(':').is_some_and(|(_, its)| its == name))
        .map(String::as_str)
        .collect();
    match of_that_name.as_slice() {
        [] => {}
        [only] => return BareName::Event((*only).to_owned()),
        several => {
            return BareName::Nothing(format!(" but the name of {}: write {}", several.len(), several.join(" or ")));
        }
    }
    if let Some(entry) = syscalls::entries(name).find(|entry| events.contains(entry)) {
        return BareName::Event(entry);
    }
    if let Some(hint) = perf_event_hint(name, events) {
        return BareName::Nothing(hint);
    }
    let prefix = format!("{name}:");
    if events.iter().any(|event| event.starts_with(&prefix)) {
        return BareName::Nothing(format!(" but a system of events, write SYSTEM:NAME, or {name}:* for all of them"));
    }
    BareName::Nothing(String::new())
}

/// What to use in place of an event of perf's own, which is no tracepoint.
fn perf_event_hint(name: &str, events: &[String]) -> Option<String> {
    const ALIASES: [(&str, &str); 7] = [
        ("faults", "page-faults"),
        ("cs", "context-switches"),
        ("migrations", "cpu-migrations"),
        ("cpu-cycles", "cycles"),
        ("cpu_cycles", "cycles"),
        ("branch-instructions", "branches"),
        ("stalled-cycles", "stalled-cycles-backend"),
    ];
    // Prefixes of the many names of cache events.
    const CACHES: [&str; 6] = ["L1-", "LLC-", "dTLB-", "iTLB-", "node-", "branch-load"];
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    let tracepoints: &[&str] = match name {
        "page-faults" | "minor-faults" | "major-faults" => {
            &["exceptions:page_fault_user", "exceptions:page_fault_kernel"]
        }
        "context-switches" => &["sched:sched_switch"],
        "cpu-migrations" => &["sched:sched_migrate_task"],
        _ => &[],
    };
    let mut ways: Vec<String> = tracepoints
        .iter()
        .filter(|event| events.iter().any(|other| other == *event))
        .map(|&event| event.to_owned())
        .collect();
    if matches!(name, "cycles" | "cpu-clock" | "task-clock") {
        ways.push("`perf-prof profile`, which samples it".to_owned());
    }
    // `r` with a hex number is a raw event of the CPU. `read` has that form, too, but means the system call.
    if counter::parse(name).is_ok()
        && (name.contains('-') || !name.starts_with('r') || name.contains(|c: char| c.is_ascii_digit()))
    {
        ways.push(format!("`perf-prof split-lock --event {name}`, which counts it"));
    }
    if CACHES.iter().any(|cache| name.starts_with(cache)) {
        ways.push("`perf-prof split-lock --event cache-misses`, which counts those of all caches".to_owned());
    }
    (!ways.is_empty()).then(|| format!(" but perf's name of no tracepoint; there is {}", ways.join(", or ")))
}

/// Suggests the events with names most similar to an unknown one. System calls are compared by their own names.
fn did_you_mean_event(name: &str, events: &[String]) -> String {
    const OFFERED: usize = 3;
    let score = |event: &str| {
        let its_name = event.split_once(':').map_or(event, |(_, name)| name);
        likeness(name, its_name).max(syscalls::entered_call(event).map_or(0, |call| likeness(name, call)))
    };
    let scored = events.iter().map(|event| (score(event), event.as_str())).filter(|(score, _)| *score > 0);
    let near = TopK::of(OFFERED, scored.map(|(score, event)| ((score, Reverse(event)), event))).into_sorted();
    let near: Vec<&str> = near.into_iter().map(|(_, event)| event).collect();
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [&str; 9] = [
        "exceptions:page_fault_user",
        "kmem:kfree",
        "net:twin",
        "sched:sched_switch",
        "sock:twin",
        "syscalls:sys_enter_newstat",
        "syscalls:sys_enter_openat",
        "syscalls:sys_enter_read",
        "syscalls:sys_exit_openat",
    ];

    fn events() -> Vec<String> {
        EVENTS.map(str::to_owned).to_vec()
    }

    #[test]
    fn one_tracepoint_or_system_call_is_meant() {
        let cases = [
            ("sched_switch", "sched:sched_switch"),
            ("kfree", "kmem:kfree"),
            ("sys_enter_openat", "syscalls:sys_enter_openat"),
            ("openat", "syscalls:sys_enter_openat"),
            ("stat", "syscalls:sys_enter_newstat"),
            ("read", "syscalls:sys_enter_read"), // to perf also a raw event in hex
        ];
        for (name, want) in cases {
            assert_eq!(resolve(name, &events()), BareName::Event(want.to_owned()), "{name}");
        }
    }

    #[test]
    fn what_is_no_event_gets_the_nearest_thing() {
        let cases: [(&str, &[&str]); 9] = [
            ("twin", &["the name of 2", "net:twin or sock:twin"]),
            ("sched", &["a system of events", "sched:*"]),
            ("cycles", &["profile", "split-lock --event cycles"]),
            ("cpu-clock", &["profile"]),
            ("faults", &["exceptions:page_fault_user", "split-lock --event page-faults"]),
            ("major-faults", &["split-lock --event major-faults"]),
            ("cs", &["sched:sched_switch", "--event context-switches"]),
            ("LLC-load-misses", &["--event cache-misses"]),
            ("r10f4", &["split-lock --event r10f4"]),
        ];
        for (name, words) in cases {
            let BareName::Nothing(why) = resolve(name, &events()) else { panic!("{name}") };
            assert!(words.iter().all(|word| why.contains(word)), "{name}: {why}");
        }
        assert!(!perf_event_hint("faults", &[]).unwrap().contains("exceptions"), "this kernel has it not");
        for name in ["readd", "rea", "vfs_write", "r"] {
            assert_eq!(resolve(name, &events()), BareName::Nothing(String::new()), "{name}");
        }
        assert_eq!(did_you_mean_event("opnat", &events()), "; did you mean syscalls:sys_enter_openat?");
        assert_eq!(did_you_mean_event("qqqqqqqq", &events()), "");
    }
}
