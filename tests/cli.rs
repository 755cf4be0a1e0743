//! Help, completions and manual pages: complete, up to date and readable.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use common::shell::{calls, check};
use common::{command, run};
use perf_prof::commands::Cli;

/// The command with everything that clap adds to it.
fn built() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

fn subcommands() -> Vec<clap::Command> {
    built().get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
}

fn long_options(command: &clap::Command) -> Vec<String> {
    command.get_arguments().filter_map(clap::Arg::get_long).map(|long| format!("--{long}")).collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect()
}

/// stdout of a shell that reads `script`. `Err`: the shell is not installed.
fn shell(name: &str, args: &[&str], script: &str) -> Result<String, String> {
    let mut shell = Command::new(name);
    shell.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().map_err(|_| format!("no {name}"))?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && err.is_empty(), "{name} {args:?}: {err}");
    Ok(String::from_utf8(done.stdout).unwrap())
}

fn completions(of: &str) -> String {
    run(&["completions", of]).code(0).out.join("\n") + "\n"
}

#[test]
fn every_help_is_readable_and_its_examples_are_right() {
    let mut pages = vec![(vec!["-h"], "perf-prof".to_owned())];
    let subcommands = subcommands();
    pages.extend(subcommands.iter().map(|command| (vec![command.get_name(), "-h"], command.get_name().to_owned())));
    for (args, name) in pages {
        let done = run(&args).code(0);
        for line in &done.out {
            assert!(line.chars().count() <= 80, "{name}: {line:?}");
        }
        let text = done.out.join("\n");
        let (_, after) = text.split_once("-h, --help").expect("the option for help");
        let examples = calls(after);
        assert!(examples.len() >= 2, "{name} has {examples:?}");
        for example in &examples {
            check(example).unwrap_or_else(|err| panic!("{name}: {err}"));
        }
        assert!(examples.iter().all(|words| name == "perf-prof" || words[1] == name), "{name} has {examples:?}");
    }
}

#[test]
fn all_ways_to_ask_for_help_print_the_same() {
    let help = run(&["-h"]).code(0).out;
    assert_eq!(run(&["--help"]).code(0).out, help);
    assert_eq!(run(&["help"]).code(0).out, help);
    assert_eq!(run(&["help", "trace"]).code(0).out, run(&["trace", "-h"]).code(0).out);
    let bare = run(&[]).code(2);
    assert_eq!((bare.out.len(), &bare.err), (0, &help));
}

#[test]
fn a_misspelt_command_gets_the_nearest() {
    run(&["tsak-state"]).code(2).says(&["'tsak-state'", "task-state"]);
    run(&["man", "tarce"]).code(2).says(&["no command", "tarce", "trace"]);
    run(&["completions", "bsh"]).code(2).says(&["bash, zsh, fish"]);
}

#[test]
fn completions_have_every_command_and_option() {
    let (bash, zsh, fish) = (completions("bash"), completions("zsh"), completions("fish"));
    for command in subcommands() {
        let name = command.get_name();
        let label = format!("\n        perf__prof__subcmd__{})\n", name.replace('-', "__subcmd__"));
        let own = bash.split_once(&label).unwrap_or_else(|| panic!("bash knows no {name}")).1;
        let own = words(own.lines().next().unwrap());
        let of_fish: String = fish.lines().filter(|line| line.contains(&format!("_subcommand {name}\""))).collect();
        assert!(words(&zsh).contains(name) && fish.contains(&format!("-a \"{name}\"")), "{name}");
        for long in long_options(&command) {
            assert!(own.contains(long.as_str()), "bash: {name} {long}");
            assert!(words(&zsh).contains(long.as_str()), "zsh: {name} {long}");
            assert!(words(&of_fish).contains(&long[2..]), "fish: {name} {long}");
        }
    }
}

#[test]
fn shells_take_the_completions() {
    for name in ["bash", "zsh", "fish"] {
        if let Err(why) = shell(name, &["-n"], &completions(name)) {
            skip_part!("{why}");
        }
    }
    let ask = "\nread -r _ _ function _ < <(complete -p perf-prof | sed 's/.*-F/x x/')\n\
        for words in 'perf-prof tas' 'perf-prof task-state --perin' 'perf-prof man --'; do\n\
        COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n\
        $function perf-prof \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[*]}\"\n\
        done\n";
    if let Ok(answers) = shell("bash", &["--norc"], &(completions("bash") + ask)) {
        assert_eq!(answers.lines().collect::<Vec<_>>(), ["task-state", "--perins", "--help"]);
    }
    let ask = "\ncomplete -C 'perf-prof tas'; complete -C 'perf-prof task-state --perin'\n";
    if let Ok(answers) = shell("fish", &["--no-config"], &(completions("fish") + ask)) {
        let answers: Vec<_> = answers.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(answers, ["task-state", "--perins"]);
    }
}

#[test]
fn manual_pages_have_every_option() {
    let main = run(&["man"]).code(0).out.join("\n").replace('\\', "");
    for command in subcommands() {
        let name = command.get_name();
        assert!(main.contains(&format!("perf-prof-{name}(1)")), "{name} is missing in the main page");
        let page = run(&["man", name]).code(0).out.join("\n").replace('\\', "");
        assert!(page.contains(&format!(".TH perf-prof-{name} 1")), "{page}");
        assert!(page.contains(&format!(".SH SYNOPSIS\nfBperf-prof {name}fR")), "{page}");
        let synopsis = page.split_once(".SH SYNOPSIS\n").and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
        assert!(!synopsis.contains("fB--interval") || synopsis.contains("fB--intervalfR fITIMEfR]"), "{synopsis}");
        let profiles = synopsis.contains("fB--interval");
        assert_eq!(synopsis.ends_with(" [-- fICOMMANDfR...]"), profiles, "{synopsis}");
        for section in ["NAME", "DESCRIPTION", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{name}: {section}");
        }
        // Options that change nothing are in no help, and in no manual.
        let hidden: Vec<String> = command
            .get_arguments()
            .filter(|arg| arg.is_hide_set())
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        for long in long_options(&command).into_iter().filter(|long| !hidden.contains(long)) {
            assert!(
                page.contains(&format!("\nfB{long}fR")) || page.contains(&format!(", fB{long}fR")),
                "{name} {long}"
            );
        }
    }
    for word in ["fBperf-proffR", "WHICH QUESTION", "EXIT STATUS", "fB3fR\nWith --strict-loss"] {
        assert!(main.contains(word), "{word} is missing in {main}");
    }
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    for args in [["completions", "zsh"], ["man", "trace"]] {
        let mut child = command(&args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = command(&args).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("No space left"), "{done:?}");
    }
}
