//! The screen, in a terminal of the test's own: keys go in, and what is on it is read. The load is examples/threads.

#[macro_use]
mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::pty::Pty;
use common::seccomp::hangs;
use common::{Load, command, example, until};
use perf_prof::output::screen::{self, Screen};

/// perf-prof on a terminal.
fn on_terminal(args: &[&str], columns: u16, rows: u16) -> Pty {
    Pty::start(command(args), columns, rows)
}

/// A run whose screen has shown an interval.
fn shown(args: &[&str]) -> Pty {
    let mut run = on_terminal(args, 80, 24);
    run.wait("a table", |lines| lines[0].contains("interval ") && has(lines, "state "));
    assert!(run.is_alternate() && !run.is_restored());
    run
}

fn has(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

/// The interval that the head of the screen names.
fn interval(lines: &[String]) -> Option<u64> {
    let (_, rest) = lines[0].split_once("interval ")?;
    rest.split(',').next()?.parse().ok()
}

const TABLE: [&str; 3] = ["task-state", "-i", "200"];

#[test]
fn a_table_is_drawn_in_place_in_any_size() {
    need_events!();
    let mut run = on_terminal(&TABLE, 80, 24);
    let lines = run.wait("the second interval", |lines| interval(lines) >= Some(2));
    assert!(!has(&lines, "interval 1,"), "{lines:#?}");
    assert!(lines[0].starts_with("task-state  "), "{lines:#?}");
    let trust = run.wait("the line of trust", |lines| lines[22].contains("lost 0"));
    assert!(trust[22].contains("own CPU ") && trust[22].contains("coverage 100.0 %"), "{trust:#?}");
    run.resize(200, 50);
    run.wait("the larger screen", |lines| lines.len() == 50 && lines[48].contains("lost "));
    run.resize(40, 6);
    run.wait("the smaller screen", |lines| lines.len() == 6 && lines[5].contains("samples "));
    run.press("q");
    let done = run.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.text());
    assert!(done.is_restored);
    let text = done.text();
    for word in ["task-state, interval ", "task-state, whole run, ", "state ", " lost"] {
        assert!(text.contains(word), "{word:?} is not in the last report:\n{text}");
    }
    assert!(!text.contains("interval 1,"), "only the last one:\n{text}");
}

#[test]
fn keys_order_filter_and_freeze() {
    need_events!();
    let mut run = shown(&TABLE);
    // By the name of the state, which the report does not do.
    let first = |lines: &[String]| -> Vec<String> {
        // A row that is not exact has a mark in front.
        let is_mark = |word: &str| ["~", ">=", "?"].contains(&word);
        let head = lines.iter().position(|line| line.trim_start().starts_with("state ")).unwrap_or(0);
        let rows = lines[head + 1..].iter().take_while(|line| !line.is_empty());
        rows.filter_map(|line| line.split_whitespace().find(|word| !is_mark(word))).map(str::to_owned).collect()
    };
    run.press("1r");
    run.wait("the order by name, the last first", |lines| {
        let names = first(lines);
        names.len() > 1 && names.is_sorted_by(|one, other| one >= other)
    });
    run.press("0 ");
    let frozen = run.wait("the screen is frozen", |lines| lines[0].contains("frozen -0."));
    let at = interval(&frozen).expect("an interval");
    run.wait("time goes on, the table does not", |lines| !lines[0].contains("-0.0 s") && interval(lines) == Some(at));
    run.press(" ");
    run.wait("it goes on", |lines| interval(lines) > Some(at.max(5)) && lines[0].contains("? help"));
    run.press("[");
    let past = run.wait("the past", |lines| lines[0].contains("past -"));
    let at = interval(&past).expect("an interval");
    run.press("[");
    run.wait("one more interval back", |lines| interval(lines) == Some(at - 1));
    run.press("]");
    run.wait("one interval on", |lines| interval(lines) == Some(at));
    run.press(" ");
    run.wait("the present", |lines| lines[0].contains("? help"));
    run.press("/RD");
    run.wait("the filter", |lines| lines[0].contains("/RD_") && first(lines).iter().all(|state| state == "RD"));
    run.press("\r");
    run.wait("the filter stays", |lines| lines[0].ends_with("/RD"));
    run.press("\x1b");
    run.wait("the filter is gone", |lines| !lines[0].contains("/RD") && first(lines).len() > 1);
    run.press("?");
    run.wait("the help", |lines| has(lines, "one interval back"));
    run.press("?");
    run.wait("the table again", |lines| has(lines, "state "));
    run.press("q");
    assert_eq!(run.finish().status.code(), Some(0));
}

#[test]
fn ctrl_c_ends_it_like_q() {
    need_events!();
    let mut run = shown(&TABLE);
    run.press("\x03");
    let done = run.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.text());
    assert!(done.is_restored && done.text().contains("whole run") && done.text().contains(" lost"));
}

#[test]
fn several_tables_have_tabs() {
    need_events!();
    let mut run = on_terminal(&["profile", "-i", "200"], 100, 30);
    let lines = run.wait("tabs", |lines| lines[1].contains(" profile cpus ") && lines[1].contains(" profile tasks"));
    assert!(!has(&lines, "waiting for"));
    run.wait("the load of CPUs", |lines| has(lines, "user"));
    let name = |lines: &[String]| lines[0].split("  ").next().unwrap_or_default().to_owned();
    let first = name(&run.lines());
    run.press("\t");
    run.wait("the next one", |lines| name(lines) != first);
    run.press("\x1b[Z");
    run.wait("the first one again", |lines| name(lines) == first);
    run.press("q");
    assert_eq!(run.finish().status.code(), Some(0));
}

#[test]
fn occurrences_scroll_below_the_table() {
    need_events!();
    let load = Load::of(&example("threads"), &["3", "600000"]);
    let pid = load.pid().to_string();
    let mut run = on_terminal(&["task-state", "-S", "--than", "1", "--all-waits", "-p", &pid, "-i", "200"], 80, 24);
    let lines = run.wait("occurrences", |lines| has(lines, "── occurrences: ") && has(lines, " ms  "));
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    run.wait("more of them", |lines| lines.iter().filter(|line| line.contains(" ms  ")).count() >= 3);
    run.press("\x1b[5~");
    run.wait("older ones", |lines| has(lines, " below "));
    run.press("q");
    assert_eq!(run.finish().status.code(), Some(0));
}

/// Ctrl-Z gives the terminal back, and `fg` draws everything again.
#[test]
fn ctrl_z_stops_it_with_a_sane_terminal() {
    need_events!();
    let mut shell = Command::new("bash");
    // The shell has job control, as an interactive one.
    let script = r#""$0" task-state -i 200; echo "stopped:"; stty -a; fg >/dev/null; echo "ended: $?""#;
    shell.args(["-m", "-c", script, env!("CARGO_BIN_EXE_perf-prof")]);
    let mut run = Pty::start(shell, 80, 24);
    run.wait("a table", |lines| interval(lines).is_some() && has(lines, "state "));
    run.press("\x1a");
    run.wait_for("the shell goes on", |run| String::from_utf8_lossy(&run.raw).contains("stopped:"));
    run.wait_for("the table is back", |run| {
        let raw = String::from_utf8_lossy(&run.raw);
        let since = raw.rsplit("stopped:").next().unwrap_or_default();
        since.contains("icanon") && since.contains("\x1b[?1049h") && run.is_alternate()
    });
    run.wait("a table", |lines| interval(lines).is_some() && has(lines, "state "));
    let raw = String::from_utf8_lossy(&run.raw).into_owned();
    let stty = raw.rsplit("stopped:").next().unwrap_or_default();
    let stty = stty.split("\x1b[?1049h").next().unwrap_or_default();
    assert!(!stty.contains("-icanon") && !stty.contains("-echo ") && stty.contains(" echo "), "{stty}");
    run.press("q");
    let done = run.finish();
    assert!(done.text().contains("ended: 0") && done.text().contains("whole run"), "{}", done.text());
}

#[test]
fn a_signal_leaves_a_sane_terminal() {
    need_events!();
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGHUP] {
        let run = shown(&TABLE);
        run.signal(signal);
        let done = run.finish();
        assert_eq!(done.status.code(), Some(0), "{signal}");
        assert!(done.is_restored && done.text().contains("whole run"), "{signal}: {}", done.text());
    }
}

/// Ctrl-C again does not wait for results that nobody takes, and the terminal is restored all the same.
#[test]
fn a_second_ctrl_c_leaves_a_sane_terminal() {
    need_events!();
    let mut run = shown(&TABLE);
    run.press("\x03\x03");
    let done = run.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.text());
    assert!(done.is_restored && done.left_screen(), "{}", done.text());
}

/// Names that never come keep neither keys nor lines for people from the screen.
#[test]
fn keys_are_answered_while_the_output_stands_still() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let mut load = Load::of(&example("mappings"), &[dir.path().to_str().expect("UTF-8"), "1", "elf"]);
    load.says();
    let pid = load.pid().to_string();
    let args = ["task-state", "-S", "--than", "1us", "-g", "-p", &pid, "-i", "200"];
    // The output copies the tables of each file, with this system call.
    let mut run = Pty::start(hangs(command(&args), libc::SYS_memfd_create), 120, 24);
    run.wait("the standstill", |lines| {
        has(lines, "the output has been at a standstill for 2 s: it looks for names in ")
    });
    run.press("?");
    run.wait("the help", |lines| has(lines, "one interval back"));
    run.press("?");
    run.wait("no help", |lines| !has(lines, "one interval back"));
    run.press("q");
    let done = run.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.text());
    assert!(done.is_restored && done.left_screen(), "{}", done.text());
    assert!(done.text().contains("(its file does not answer)"), "{}", done.text());
}

/// A panic in any thread restores the terminal before its message is printed.
#[test]
fn a_panic_leaves_a_sane_terminal() {
    const TOLD: &str = "PERF_PROF_TEST_PANICS_WHEN_THIS_FILE_IS_THERE";
    if let Some(told) = std::env::var_os(TOLD) {
        panics_behind_a_screen(told.as_ref());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let told = dir.path().join("told");
    let mut program = Command::new(std::env::current_exe().expect("its path"));
    program.args(["--exact", "a_panic_leaves_a_sane_terminal", "--nocapture"]).env(TOLD, &told);
    let mut run = Pty::start(program, 80, 24);
    run.wait("the screen", |lines| has(lines, "the only view"));
    assert!(run.is_alternate() && !run.is_restored());
    std::fs::write(&told, "").expect("a file");
    let done = run.finish();
    assert_eq!(done.status.code(), Some(3), "{}", done.text());
    assert!(done.is_restored && done.left_screen(), "{}", done.text());
    assert!(done.text().contains("on purpose"), "{}", done.text());
}

/// The program of the test above.
fn panics_behind_a_screen(told: &Path) -> ! {
    let (handle, port) = screen::open(true, false).expect("a terminal");
    let shown = Screen::new(port, vec!["the only view".to_owned()]);
    until("it is told to", || told.exists());
    std::mem::forget((handle, shown)); // else their end would restore the terminal
    let panicked = std::thread::spawn(|| panic!("on purpose")).join();
    std::process::exit(if panicked.is_err() { 3 } else { 4 });
}

#[test]
fn a_terminal_that_stands_still_is_restored() {
    need_events!();
    let mut run = shown(&TABLE);
    run.stand_still();
    until("it ends", || {
        run.signal(nix::sys::signal::Signal::SIGTERM); // one that has not been taken yet is not counted twice
        !matches!(common::state_letter(run.pid() as u64), Some('R' | 'S' | 'D' | 'T'))
    });
    run.go_on();
    assert!(run.finish().is_restored);
}

/// The shell is killed, and with it its terminal: the run ends.
#[test]
fn it_ends_with_its_terminal() {
    need_events!();
    let mut shell = Command::new("sh");
    let script = r#""$0" task-state -i 200; exit 7"#;
    shell.args(["-c", script, env!("CARGO_BIN_EXE_perf-prof")]);
    let mut run = Pty::start(shell, 80, 24);
    run.wait("a table", |lines| interval(lines).is_some() && has(lines, "state "));
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid())).expect("children");
    let child: u64 = children.trim().parse().expect("one child");
    run.signal(nix::sys::signal::Signal::SIGKILL);
    until("it ends", || !matches!(common::state_letter(child), Some('R' | 'S' | 'D' | 'T')));
}

#[test]
fn it_is_off_where_it_is_of_no_use() {
    need_events!();
    const BLOCK: &str = "task-state, interval 2, ";
    let blocks = |mut command: Command, env: (&str, &str)| {
        command.env(env.0, env.1);
        let mut run = Pty::start(command, 80, 24);
        run.wait_for("blocks", |run| String::from_utf8_lossy(&run.raw).contains(BLOCK));
        assert!(run.is_restored());
        run.press("\x03");
        let done = run.finish();
        // The shell of a pipe dies of the Ctrl-C.
        assert!(done.status.code().is_none_or(|code| code == 0), "{:?}", done.status);
        assert!(!done.raw.contains(&0x1b), "{}", done.text());
    };
    blocks(command(&TABLE), ("TERM", "dumb"));
    blocks(command(&TABLE), ("TERM", ""));
    blocks(command(&["task-state", "-i", "200", "--no-live"]), ("A", "b"));
    // The output of a command needs the terminal.
    blocks(command(&["task-state", "-i", "200", "--", "sleep", "600"]), ("A", "b"));
    // A pipe.
    let mut piped = Command::new("sh");
    piped.args(["-c", r#""$0" task-state -i 200 | cat"#, env!("CARGO_BIN_EXE_perf-prof")]);
    blocks(piped, ("A", "b"));
    // stdin that is a file.
    let mut from_file = Command::new("sh");
    from_file.args(["-c", r#"exec "$0" task-state -i 200 </dev/null"#, env!("CARGO_BIN_EXE_perf-prof")]);
    blocks(from_file, ("A", "b"));
}

#[test]
fn a_command_may_have_it() {
    need_events!();
    let mut run = on_terminal(&["task-state", "-i", "200", "--live", "--", "sleep", "600"], 80, 24);
    run.wait("a table", |lines| interval(lines).is_some());
    run.press("q");
    assert_eq!(run.finish().status.code(), Some(0));
}

#[test]
fn no_color_has_no_colours() {
    need_events!();
    // SGR 30 to 37 and 90 to 97.
    let has_colours = |raw: &[u8]| {
        let raw = String::from_utf8_lossy(raw).into_owned();
        let sequences = raw.split("\x1b[").skip(1).filter_map(|part| part.split_once('m'));
        sequences
            .filter(|(codes, _)| codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
            .any(|(codes, _)| codes.split(';').any(|code| code.len() == 2 && matches!(code.as_bytes()[0], b'3' | b'9')))
    };
    for (value, want) in [("1", false), ("", true)] {
        let mut command = command(&TABLE);
        command.env("NO_COLOR", value);
        let mut run = Pty::start(command, 80, 24);
        run.wait("two intervals", |lines| interval(lines) >= Some(2));
        run.press("q");
        assert_eq!(has_colours(&run.finish().raw), want, "NO_COLOR={value:?}");
    }
}

#[test]
fn live_says_why_it_cannot_be() {
    let refused = |args: &[&str], code: i32, words: &str| {
        let output = command(args).stdin(Stdio::null()).output().expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    };
    refused(&["task-state", "--live"], 2, "-i 1000");
    refused(&["task-state", "-i", "200", "--live", "--json"], 2, "--json");
    refused(&["task-state", "-i", "200", "--live", "-o", "x"], 2, "-o");
    refused(&["task-state", "-i", "200", "--live", "--no-live"], 2, "--no-live");
    need_events!();
    refused(&["task-state", "-i", "200", "--live"], 1, "--live: stdout is no terminal");
    refused(&["watchdog", "-i", "200", "--live"], 1, "must go on");
}
