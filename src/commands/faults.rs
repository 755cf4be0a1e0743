//! What is wrong with a command line, in one sentence that names the culprit and the cure.
//!
//! clap's own reports take up to six lines, offer `-- -1` as the cure for `-C -1`, and do not say which argument is no
//! UTF-8.

use std::error::Error as _;
use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use crate::cli::usage;
use crate::commands::older;
use crate::escape::escape;
use crate::output::sink::STDOUT_IS_CLOSED;
use crate::sys;
use crate::tep::format::{likeness, nearest};

/// Further names of commands, each for one part of the command, with the option that selects this part.
const PARTS: [(&str, &str); 2] = [("hardirqs", "--kinds=hardirqs"), ("softirqs", "--kinds=softirqs")];

/// Parses the command line. Help and faults are printed here; the error is the exit code.
pub fn parse<T: FromArgMatches>(command: Command, args: &[OsString]) -> std::result::Result<T, u8> {
    let mut command = command.mut_subcommands(|command| command.mut_args(takes_negative_numbers));
    let args = &with_part(args);
    let matches = command.try_get_matches_from_mut(args);
    if let Some(fault) = matches.as_ref().ok().and_then(older::profiler_as_event) {
        print(&fault);
        return Err(2);
    }
    let matches = matches.and_then(|matches: ArgMatches| T::from_arg_matches(&matches));
    matches.map_err(|err| match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            if sys::stdio::stdout_was_closed() {
                print(STDOUT_IS_CLOSED);
                return 1;
            }
            match err.print() {
                Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
                    print(&format!("cannot write the help: {err}"));
                    1
                }
                _ => err.exit_code() as u8,
            }
        }
        _ => {
            print(&escape(sentence(&err, &command, args).as_bytes()));
            2
        }
    })
}

/// Parses a command line that is the value of an argument. The error is one sentence.
///
/// # Errors
/// It does not parse, or asks for help.
pub fn parse_inner(command: Command, args: &[OsString]) -> Result<ArgMatches> {
    let mut command = command.mut_subcommands(|command| command.mut_args(takes_negative_numbers));
    let args = &with_part(args);
    let matches = command.try_get_matches_from_mut(args).map_err(|err| match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => usage("help is not given here"),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => usage("the name of a profiler is missing"),
        _ => usage(sentence(&err, &command, args)),
    })?;
    older::profiler_as_event(&matches).map_or(Ok(matches), |fault| Err(usage(fault)))
}

/// Prints a message on stderr. If stderr is closed or full, only the exit code shows the failure.
pub fn print(message: &str) {
    let text: Vec<String> = message.lines().map(|line| shorten_words(&escape(line.as_bytes()))).collect();
    let _ = writeln!(io::stderr(), "perf-prof: {}", text.join("\n"));
}

/// The command line; a name of `PARTS` is followed by the option that selects the part.
fn with_part(args: &[OsString]) -> Vec<OsString> {
    let mut args = args.to_vec();
    let is_named = |(name, _): &&(&str, &str)| args.get(1).is_some_and(|command| command == name);
    if let Some((_, option)) = PARTS.iter().find(is_named) {
        args.insert(2, option.into());
    }
    args
}

/// Makes `-1` behind an option the (wrong) value of this option, not another option.
fn takes_negative_numbers(arg: Arg) -> Arg {
    let is_option = arg.get_action().takes_values() && !arg.is_positional();
    if is_option { arg.allow_negative_numbers(true) } else { arg }
}

/// Cuts the middle out of words that would fill the screen, such as an accidental paste.
fn shorten_words(line: &str) -> String {
    const LONGEST: usize = 200;
    const KEPT: usize = 60;
    let words = line.split(' ').map(|word| {
        let len = word.chars().count();
        if len <= LONGEST {
            return word.to_owned();
        }
        let head: String = word.chars().take(KEPT).collect();
        let tail: String = word.chars().skip(len - KEPT).collect();
        format!("{head}...{tail}")
    });
    words.collect::<Vec<_>>().join(" ")
}

fn sentence(err: &clap::Error, command: &Command, args: &[OsString]) -> String {
    let text = |kind| match err.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(list)) => list.join(", "),
        _ => String::new(),
    };
    let (argument, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let chosen = args.get(1).and_then(|name| command.find_subcommand(name));
    let help = match chosen {
        Some(chosen) => format!("see `perf-prof {} --help`", chosen.get_name()),
        None => "see `perf-prof --help`".to_owned(),
    };
    match err.kind() {
        ErrorKind::InvalidSubcommand => {
            let wanted = text(ContextKind::InvalidSubcommand);
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let cure = nearest_to_tool(&wanted)
                .map_or_else(|| suggestion(&wanted, &names), |line| format!("`perf-prof {line}` is nearest"));
            format!("there is no subcommand '{wanted}'; {cure}")
        }
        ErrorKind::UnknownArgument => unknown_argument(&argument, chosen, command, &help),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if !value.is_empty() || err.source().is_some() => {
            let values = text(ContextKind::ValidValue);
            let other = if values.is_empty() { help.clone() } else { format!("it is one of {values}") };
            let why = err.source().map_or(other, ToString::to_string);
            format!("invalid value '{value}' for '{argument}': {why}")
        }
        ErrorKind::InvalidValue => format!("a value is missing behind '{argument}'; {help}"),
        ErrorKind::TooManyValues => format!("'{argument}' takes no value, but got '{value}'"),
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing; {help}"),
        ErrorKind::ArgumentConflict => match text(ContextKind::PriorArg) {
            other if other == argument => format!("'{argument}' is given twice: once is enough"),
            other => format!("'{argument}' cannot be used with '{other}': choose one"),
        },
        ErrorKind::InvalidUtf8 => {
            let culprit = args.iter().find(|arg| arg.to_str().is_none()).cloned().unwrap_or_default();
            let bytes = std::os::unix::ffi::OsStringExt::into_vec(culprit);
            format!("the argument '{}' is not UTF-8: only the command behind -- may be anything", escape(&bytes))
        }
        _ => {
            let shown = err.render().to_string();
            shown.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// Why `argument` is not one of `chosen`, a subcommand of `command`.
fn unknown_argument(argument: &str, chosen: Option<&Command>, command: &Command, help: &str) -> String {
    if chosen.is_some_and(|chosen| chosen.get_name() == "run")
        && command.get_subcommands().any(|command| has_option(command, argument))
    {
        return format!("{argument} belongs to a view: `perf-prof run 'PROFILER {argument} ...'`");
    }
    if let Some(refusal) = chosen.and_then(|chosen| older::refusal(chosen, argument)) {
        return refusal;
    }
    if argument.starts_with('-') {
        let of_command = chosen.map(|chosen| format!(" of {}", chosen.get_name())).unwrap_or_default();
        let options = chosen.into_iter().flat_map(Command::get_arguments).filter_map(Arg::get_long);
        let options: Vec<String> = options.map(|name| format!("--{name}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        return match nearest(argument, options.into_iter(), 1).as_slice() {
            [one] if likeness(argument, one) > 0 && argument.starts_with("--") => {
                format!("there is no option {argument}{of_command}; did you mean {one}?")
            }
            _ => format!("there is no option {argument}{of_command}; {help}"),
        };
    }
    if chosen.is_some_and(takes_workload) {
        return format!("'{argument}' belongs to no option; a command to run goes behind --, as in `-- {argument}`");
    }
    format!("'{argument}' is one argument too many; {help}")
}

/// Names of other tools, each with the nearest perf-prof command line.
const TOOLS: [(&str, &str); 49] = [
    ("biolatency", "blktrace -i 1000"),
    ("biosnoop", "blktrace --than 1ns"),
    ("biotop", "blktrace -i 1000"),
    ("compactsnoop", "reclaim --than 1ns"),
    ("cpudist", "oncpu"),
    ("drsnoop", "reclaim --than 1ns"),
    ("dropwatch", "net"),
    ("execsnoop", "trace -e sched:sched_process_exec"),
    ("exitsnoop", "trace -e sched:sched_process_exit"),
    ("ext4dist", "files -i 1000"),
    ("ext4slower", "files --than 10ms"),
    ("fileslower", "files --than 10ms"),
    ("fsdist", "files -i 1000"),
    ("fsslower", "files --than 10ms"),
    ("iostat", "blktrace -i 1000"),
    ("killsnoop", "signal"),
    ("klockstat", "locks --kinds sleep --addresses -i 1000"),
    ("lock", "locks -i 1000"),
    ("memleak", "kmemleak slab -g"),
    ("netstat", "net -i 1000"),
    ("nfsslower", "files --than 10ms"),
    ("offcputime", "task-state -S -D --flame-graph off-cpu.svg"),
    ("offwaketime", "task-state -S -D -g --than 10"),
    ("oomkill", "reclaim"),
    ("opensnoop", "trace -e syscalls:sys_enter_openat"),
    ("record", "profile -g --flame-graph cpu.svg"),
    ("runqlat", "rundelay"),
    ("runqslower", "rundelay --than 10ms"),
    ("sched", "task-state --perins"),
    ("sockstat", "net -i 1000"),
    ("ss", "net -i 1000"),
    ("stat", "profile"),
    ("statsnoop", "trace -e syscalls:sys_enter_newfstatat"),
    ("strace", "trace -e syscalls:sys_enter_openat"),
    ("syncsnoop", "trace -e syscalls:sys_enter_fsync"),
    ("syscount", "syscalls"),
    ("tcpaccept", "net --than 1ns"),
    ("tcpconnect", "net --than 1ns"),
    ("tcpconnlat", "net --than 1ms"),
    ("tcpdrop", "net -i 1000"),
    ("tcplife", "net --failures"),
    ("tcpretrans", "net -i 1000"),
    ("tcpstates", "net --failures"),
    ("tcptop", "net --bytes -i 1000"),
    ("timehist", "task-state --perins"),
    ("top", "profile -i 1000"),
    ("tracepoint", "list"),
    ("wakeuptime", "task-state -S -g --than 10"),
    ("xfsslower", "files --than 10ms"),
];

fn nearest_to_tool(tool: &str) -> Option<&'static str> {
    TOOLS.iter().find(|(name, _)| *name == tool).map(|(_, line)| *line)
}

/// Whether a command has the option that is spelled so: `-g`, `--than`.
fn has_option(command: &Command, spelling: &str) -> bool {
    command.get_arguments().any(|arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        [short, long].iter().flatten().any(|own| own == spelling)
    })
}

fn takes_workload(command: &Command) -> bool {
    command.get_arguments().any(Arg::is_last_set)
}

/// Suggests the names that are most like `wanted`, else lists all.
fn suggestion(wanted: &str, names: &[&str]) -> String {
    if let Some(same) = names.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
        return format!("did you mean {same}?");
    }
    let alike: Vec<&str> = names.iter().copied().filter(|name| likeness(wanted, name) > 0).collect();
    match nearest(wanted, alike.into_iter(), 2).as_slice() {
        [] => format!("there are {}", names.join(", ")),
        near => format!("did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    fn fault(args: &[&str]) -> String {
        let args: Vec<OsString> = std::iter::once(&"perf-prof").chain(args).map(OsString::from).collect();
        let mut command = Cli::command().mut_subcommands(|command| command.mut_args(takes_negative_numbers));
        let err = command.try_get_matches_from_mut(&args).expect_err("a fault");
        sentence(&err, &command, &args)
    }

    #[test]
    fn one_sentence_each() {
        let cases: [(&[&str], &str); 14] = [
            (&["run", "profile", "-N", "5"], "-N belongs to a view: `perf-prof run 'PROFILER -N ...'`"),
            (&["run", "profile", "--than", "5"], "--than belongs to a view: `perf-prof run 'PROFILER --than ...'`"),
            (&["run", "profile", "--jsn"], "there is no option --jsn of run; did you mean --json?"),
            (&["tarce"], "there is no subcommand 'tarce'; did you mean trace?"),
            (&["TASKSTATE"], "there is no subcommand 'TASKSTATE'; did you mean task-state?"),
            (&["trace", "--fro"], "there is no option --fro of trace; did you mean --for?"),
            (&["profile", "-e"], "there is no option -e of profile; see `perf-prof profile --help`"),
            (&["profile", "x"], "'x' belongs to no option; a command to run goes behind --, as in `-- x`"),
            (&["doctor", "a"], "'a' is one argument too many; see `perf-prof doctor --help`"),
            (&["trace"], "--event <EVENT,...> is missing; see `perf-prof trace --help`"),
            (&["profile", "-v", "-v"], "'--verbose' is given twice: once is enough"),
            (&["completions", "bsh"], "invalid value 'bsh' for '<SHELL>': it is one of bash, zsh, fish"),
            (&["profile", "--verbose=x"], "'--verbose' takes no value, but got 'x'"),
            (
                &["profile", "-p", "-1"],
                "invalid value '-1' for '--pids <PID|NAME,...>': `-1` is not an id, ids run from 1 to 2147483647, as in 1,22",
            ),
        ];
        for (args, want) in cases {
            assert_eq!(fault(args), want, "{args:?}");
        }
        let near = "there is no subcommand 'opensnoop'; `perf-prof trace -e syscalls:sys_enter_openat` is nearest";
        assert_eq!(fault(&["opensnoop"]), near);
        for (tool, line) in TOOLS {
            let args = std::iter::once("perf-prof").chain(line.split(' '));
            assert!(Cli::command().try_get_matches_from(args).is_ok(), "{tool}: {line}");
        }
        assert!(fault(&["zzz"]).starts_with("there is no subcommand 'zzz'; there are "));
    }

    #[test]
    fn long_words_lose_their_middle() {
        assert_eq!(shorten_words("a b"), "a b");
        let long = shorten_words(&format!("no {}z here", "y".repeat(5000)));
        assert!(long.len() < 140 && long.starts_with("no yyy") && long.ends_with("yz here"), "{long}");
    }
}
