//! Options of older versions that this version lacks: each is refused with the reason, and with what to use instead.

use clap::{ArgMatches, Command};

use crate::profilers;

/// Removed options, each with the reason that its refusal gives.
const REFUSED: [(&str, &str); 22] = [
    ("--tsc", "times are ns of CLOCK_MONOTONIC, with the wall time beside them: leave it out"),
    ("--kvmclock", "no times of a virtual machine are shown: run perf-prof inside it, and compare the wall times"),
    ("--clock-offset", "times are shown as the kernel gives them: add the offset to `time_ns` of --json"),
    ("--perfeval-cpus", "-v tells the events per second, and --dry-run those of each event beforehand: leave it out"),
    ("--perfeval-pids", "-v tells the events per second, and --dry-run those of each event beforehand: leave it out"),
    ("--sampling-limit", "no run ends for its rate: --dry-run tells the cost beforehand, -N and --for bound it"),
    ("--usage-self", "-v tells at the end what the run cost, and `kill -USR2` at any time: leave it out"),
    ("--ptrace", "children of -p and of a command are followed without stopping them: leave it out"),
    ("--inherit", "children of -p and of a command are followed always: leave it out"),
    ("--overwrite", "no record overwrites another, and lost ones are counted: a larger -m holds more"),
    ("--python-callchain", "task-state -g shows the functions of Python in waits that go on: leave it out"),
    ("--irqs_disabled", "no sample is filtered by registers: irq-off finds the CPUs that take no interrupts"),
    ("--tif_need_resched", "no sample is filtered by that flag: `task-state -R --than 5` finds who waits for a CPU"),
    ("--exclude_pid", "no process is left out of samples: choose those to watch with -p"),
    ("--nr_running_min", "no sample is filtered by the run queue: `task-state -R --than 5` finds who waits for a CPU"),
    ("--nr_running_max", "no sample is filtered by the run queue: `task-state -R --than 5` finds who waits for a CPU"),
    ("--sched_policy", "no sample is filtered by policy: -t takes the threads that `ps -eLo tid,cls` lists"),
    (
        "--prio",
        "its events carry no priority: task-state has --prio, and -t takes the threads that `ps -eLo tid,pri` lists",
    ),
    ("--exclude-user", NOT_SAMPLED),
    ("--exclude-kernel", NOT_SAMPLED),
    ("--exclude-guest", NOT_SAMPLED),
    ("--exclude-host", NOT_SAMPLED),
];

/// Removed options of single profilers, each with the reason that its refusal gives.
const REFUSED_OF_ONE: [(&str, &str, &str); 4] = [
    (
        "rundelay",
        "--detail",
        "each line says who had the CPU meanwhile; the records in between: \
         `perf-prof multi-trace -e sched_wakeup//key=pid/ -e sched_switch//key=next_pid/ --than 5ms --detail`",
    ),
    ("rundelay", "-k", "its key is the thread: leave it out"),
    ("syscalls", "-k", "its key is the thread: leave it out"),
    ("syscalls", "--detail", "each line says where the time went: --than 5ms"),
];

const NOT_SAMPLED: &str = "it is for samples of code, in profile, page-faults and split-lock: leave it out";

/// Profilers whose name is also the name of a perf event.
const EVENTS_TOO: [&str; 1] = ["page-faults"];

/// Why a profiler lacks an option of older versions. None: older versions had no such option, or the command is no
/// profiler.
pub fn refusal(command: &Command, option: &str) -> Option<String> {
    let name = command.get_name();
    if name != "run" && profilers::trials().iter().all(|trial| trial.name != name) {
        return None;
    }
    let option_of = |other: &str| option == other || other == "-k" && option == "--key";
    if let Some((.., why)) = REFUSED_OF_ONE.iter().find(|(of, other, _)| *of == name && option_of(other)) {
        return Some(format!("{name} has no {option}: {why}"));
    }
    let long = if option == "-G" { "--exclude-host" } else { option };
    let (_, why) = REFUSED.iter().find(|(refused, _)| *refused == long)?;
    Some(format!("{name} has no {option}: {why}"))
}

/// Refuses a profiler given as an event, `-e profile/-F 99/`. The message shows the `run` command line that has both.
pub fn profiler_as_event(matches: &ArgMatches) -> Option<String> {
    let (name, matches) = matches.subcommand()?;
    let lists = matches.try_get_many::<String>("events").ok()??;
    let profilers: Vec<&str> = profilers::trials().iter().map(|trial| trial.name).collect();
    let (mut events, mut views) = (Vec::new(), Vec::new());
    for list in lists {
        for event in elements(list) {
            let (head, options) = event.split_once('/').map_or((event, ""), |(head, rest)| (head, rest));
            let is_profiler = profilers.contains(&head.trim()) && !EVENTS_TOO.contains(&event.trim());
            match is_profiler {
                true => views.push((head.trim(), options.split('/').next().unwrap_or("").trim())),
                false => events.push(event.trim()),
            }
        }
    }
    let (first, _) = views.first()?;
    let command = |(name, options): &(&str, &str)| format!("{name} {options}").trim_end().to_owned();
    let others: Vec<String> = views.iter().map(command).collect();
    let own = (!events.is_empty()).then(|| format!("{name} -e {}", events.join(",")));
    let how = match (own, others.as_slice()) {
        (None, [only]) => format!("run it as `perf-prof {only}`"),
        (own, others) => {
            let quoted = own.iter().chain(others).map(|view| quoted(view));
            format!("they run at once as `perf-prof run {}`", quoted.collect::<Vec<_>>().join(" "))
        }
    };
    Some(format!("{first} is a profiler and no event: {how}"))
}

/// A command line as one word of a shell.
fn quoted(view: &str) -> String {
    if view.contains('\'') { format!("\"{view}\"") } else { format!("'{view}'") }
}

/// The elements of a list of events. Commas in quotes or parentheses separate nothing.
fn elements(list: &str) -> Vec<&str> {
    let (mut elements, mut start, mut quote, mut depth) = (Vec::new(), 0, None, 0_u32);
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                elements.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    elements.push(&list[start..]);
    elements
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn no_profiler_has_what_is_refused_everywhere() {
        let command = Cli::command();
        let has = |option: &str| {
            let mut options = command.get_subcommands().flat_map(Command::get_arguments);
            options.any(|arg| arg.get_long() == option.strip_prefix("--"))
        };
        for (option, why) in REFUSED {
            let elsewhere = why == NOT_SAMPLED || option == "--prio";
            assert_eq!(has(option), elsewhere, "{option}");
            let trace = command.find_subcommand("trace").unwrap();
            assert!(refusal(trace, option).is_some_and(|text| text.len() < 160), "{option}");
        }
        for (profiler, option, why) in REFUSED_OF_ONE {
            let command = command.find_subcommand(profiler).unwrap();
            let has = |arg: &clap::Arg| match option.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_short() == option.chars().nth(1),
            };
            assert!(!command.get_arguments().any(has), "{profiler} {option}");
            assert_eq!(refusal(command, option), Some(format!("{profiler} has no {option}: {why}")));
        }
        assert!(refusal(command.find_subcommand("syscalls").unwrap(), "--key").is_some());
        let list = command.find_subcommand("list").unwrap();
        assert_eq!((refusal(list, "--tsc"), refusal(command.find_subcommand("run").unwrap(), "--json")), (None, None));
    }

    #[test]
    fn a_profiler_among_events_gets_a_view() {
        let told = |args: &[&str]| {
            let matches = Cli::command().try_get_matches_from([&["perf-prof"], args].concat()).unwrap();
            profiler_as_event(&matches).unwrap_or_default()
        };
        assert_eq!(
            told(&["trace", "-e", "sched:sched_switch/prev_comm==\"a,b\"/,profile/-F 99/"]),
            "profile is a profiler and no event: they run at once as \
             `perf-prof run 'trace -e sched:sched_switch/prev_comm==\"a,b\"/' 'profile -F 99'`"
        );
        assert!(told(&["trace", "-e", "profile/-F 99/untraced/"]).ends_with("run it as `perf-prof profile -F 99`"));
        assert!(told(&["trace", "-e", "task-state"]).ends_with("run it as `perf-prof task-state`"));
        let both = told(&["trace", "-e", "a:b/x=='y'/", "-e", "profile,page-faults//"]);
        assert!(both.ends_with("`perf-prof run \"trace -e a:b/x=='y'/\" 'profile' 'page-faults'`"), "{both}");
        for args in [
            ["trace", "-e", "page-faults"],
            ["trace", "-e", "sched:profile"],
            ["trace", "-e", "kprobe:profile"],
            ["profile", "-F", "99"],
        ] {
            assert_eq!(told(&args), "");
        }
    }
}
