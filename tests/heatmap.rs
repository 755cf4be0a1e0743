//! Heat maps against waits whose times are known: which columns there are, and what their cells add up to.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use common::waits::{MS, is_state, still_waiting};
use common::{Again, Attempted, CpuWatch, Done, Load, Prog, attempts, example, number, or_again, run, start_watching};

/// A column that has values in a panel.
#[derive(Debug)]
struct MapColumn {
    start_ns: u64,
    end_ns: u64,
    /// Number of values of each cell.
    counts: Vec<u64>,
}

/// The number behind `key="`.
fn attribute(text: &str, key: &str) -> u64 {
    let rest = text.split_once(&format!("{key}=\"")).unwrap_or_else(|| panic!("no {key} in {text}")).1;
    rest.split('"').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{key} in {text}"))
}

/// The panels of a map: the title of each, and its columns.
fn panels(svg: &str) -> Vec<(String, Vec<MapColumn>)> {
    let mut panels = Vec::new();
    let mut parts = svg.split("<g class=\"panel\">");
    let mut title = last_text(parts.next().unwrap_or_default());
    for part in parts {
        let columns = part.split("<g data-start-ns").skip(1).map(|group| {
            let group = format!("data-start-ns{group}");
            let cells = group.split("</g>").next().unwrap_or_default().split("<title>").skip(1);
            let count = |cell: &str| cell.split("</title>").next()?.rsplit(": ").next()?.parse().ok();
            let counts = cells.map(|cell| count(cell).unwrap_or_else(|| panic!("{cell}"))).collect();
            MapColumn { start_ns: attribute(&group, "data-start-ns"), end_ns: attribute(&group, "data-end-ns"), counts }
        });
        panels.push((title, columns.collect()));
        title = last_text(part);
    }
    panels
}

fn last_text(svg: &str) -> String {
    let text = svg.rsplit("<text ").next().and_then(|text| text.split_once('>')).map(|(_, rest)| rest);
    text.and_then(|rest| rest.split('<').next()).unwrap_or_default().to_owned()
}

fn sum(columns: &[MapColumn]) -> u64 {
    columns.iter().flat_map(|column| &column.counts).sum()
}

/// Ten stalls in a second are ten columns, and each has its stall.
#[test]
fn ten_stalls_in_a_second_are_ten_columns() {
    need_events!(alone);
    attempts(try_ten_stalls_in_a_second_are_ten_columns);
}

fn try_ten_stalls_in_a_second_are_ten_columns() -> Attempted {
    let steal = CpuWatch::of_account();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stalls.svg");
    let path = file.to_str().expect("UTF-8");
    let mut load = Load::of(&example("dstate"), &["10", "20", "hm_stalls", "80"]);
    load.says();
    let prof = start_watching(&["task-state", "-D", "--than", "15", "--filter", "hm_stalls", "--heatmap", path]);
    load.tell("");
    let truth = load.says();
    let done = prof.interrupt().code(0);
    let svg = fs::read_to_string(&file).expect("the map");
    let events = done.of_type("event");
    let is_unseen = [Again::Discarded(&done), Again::RecordsLost(&done), Again::IdleHidden(&done)];
    let is_seen = ["discarded", "lost"].iter().all(|key| done.total(key) == 0);
    // On a busy machine a stall may become so long that it is shown while it goes on.
    let is_long = Again::LoadAbove(&truth, "max_ns", 100 * MS);
    or_again(is_seen && events.len() >= 10, &is_unseen, || format!("ten whole waits: {done:#?}"))?;
    or_again(events.len() == 10 && !events.iter().any(still_waiting), &[is_long], || format!("{truth}: {done:#?}"))?;
    let panels = panels(&svg);
    let [(title, columns)] = &panels[..] else { panic!("one panel: {panels:?}") };
    let counted = done.sum("count", |row| is_state(row, "D"));
    assert_eq!(*title, format!("state D: {counted} values"), "{columns:?}");
    assert_eq!(sum(columns), counted, "{columns:?}");
    // Each wait is in the column of its end. Others, of the creation of a child, may be shorter than the limit.
    let of_column = |column: &MapColumn| {
        let ends = events.iter().map(|event| number(event, "time_ns"));
        ends.filter(|end| (column.start_ns + 1..=column.end_ns).contains(end)).count() as u64
    };
    let visible: Vec<&MapColumn> = columns.iter().filter(|column| of_column(column) > 0).collect();
    assert!(
        columns.iter().all(|column| column.counts.iter().sum::<u64>() >= of_column(column)),
        "{columns:?} {done:#?}"
    );
    assert_eq!(columns.iter().map(of_column).sum::<u64>(), 10, "{columns:?}: {events:#?}");
    assert!(columns.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "{columns:?}");
    // A run that gets no CPU has longer columns.
    let are_apart = visible.windows(2).all(|pair| pair[1].start_ns - pair[0].start_ns > 50 * MS);
    let reasons = [Again::CpuStolen(&steal, Duration::from_millis(20))];
    or_again(visible.len() == 10 && are_apart, &reasons, || format!("a column for each stall: {columns:?}"))?;
    assert_eq!(fs::metadata(&file).expect("the map").permissions().mode() & 0o777, 0o600);
    for word in ["<script", "@import", "href", "src=", "url("] {
        assert!(!svg.contains(word), "{word}: the file needs others");
    }
    Ok(())
}

/// A panel for each state. Printed intervals, and quiet ones, are columns like any others.
#[test]
fn the_cells_add_up_to_the_tables() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.svg");
    let path = file.to_str().expect("UTF-8");
    let load = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.03; true | true; done"];
    for options in [&[][..], &["-i", "100"], &["-i", "5"], &["--perins", "-i", "200"]] {
        let args = [&["task-state", "--json", "--heatmap", path], options, &["--"], &load].concat();
        let done = run(&args).code(0);
        let panels = panels(&fs::read_to_string(&file).expect("the map"));
        for state in ["R", "S", "D", "RD"] {
            let counted = done.sum("count", |row| is_state(row, state));
            let title = format!("state {state}: ");
            let drawn =
                panels.iter().find(|(words, _)| words.starts_with(&title)).map_or(0, |(_, columns)| sum(columns));
            assert_eq!(drawn, counted, "{state}, {options:?}: {panels:?}");
        }
        let heaviest = panels.iter().map(|(_, columns)| sum(columns)).collect::<Vec<u64>>();
        assert!(heaviest.is_sorted_by(|one, next| one >= next) && heaviest.len() <= 8, "{heaviest:?}");
    }
}

#[test]
fn a_map_may_be_text_below_the_tables() {
    need_events!();
    let done = run(&["task-state", "--heatmap", "-", "--", "sleep", "0.1"]).code(0);
    let at =
        done.out.iter().position(|line| line.contains(" task-state, heat map")).unwrap_or_else(|| panic!("{done:#?}"));
    let (tables, map) = done.out.split_at(at);
    assert!(tables[0].contains(" task-state, interval 1, "), "{done:#?}");
    assert!(map.iter().any(|line| line.starts_with("state S: ")), "{done:#?}");
    assert!(map.iter().any(|line| line.contains(['░', '▒', '▓', '█'])), "{done:#?}");
    assert!(map.iter().all(|line| line.chars().count() <= 80), "{done:#?}");
}

#[test]
fn what_cannot_be_drawn_is_said_at_the_start() {
    need_events!();
    let cases: [(&[&str], i32, &str); 8] = [
        (
            &["signal", "--heatmap", "a.svg"],
            2,
            "--heatmap draws distributions, and signal has none: blktrace, files, irqs",
        ),
        (&["trace", "-e", "sched:sched_switch", "--heatmap", "-"], 2, "and trace has none: blktrace, files, irqs"),
        (&["task-state", "--heatmap", "a.png"], 2, "the name must end with .svg, or be - for text"),
        (&["task-state", "--heatmap", "a.svg", "-o", "a.svg"], 2, "-o and --heatmap name the same file"),
        (
            &["task-state", "--heatmap", "a.svg", "--flame-graph", "a.svg"],
            2,
            "--flame-graph and --heatmap name the same",
        ),
        (&["task-state", "--heatmap", "-", "--json"], 2, "--json leaves no place for it: give it FILE.svg"),
        (&["task-state", "--heatmap", "/nosuch/a.svg"], 1, "cannot write the heat map to /nosuch/a.svg"),
        (&["task-state", "--heatmap", "/dev/null.svg/a.svg"], 1, "cannot write the heat map to /dev/null.svg/a.svg"),
    ];
    for (args, code, words) in cases {
        let done = run(args).code(code).says(&[words]);
        assert!(done.out.is_empty() && done.err.len() == 1, "{done:#?}");
    }
}

/// On a file system that is full from the start, the run goes on to its end, and fails there.
#[test]
fn a_full_disk_does_not_stop_the_run() {
    need_events!();
    const SCRIPT: &str = r#"dir=$1; shift; mount -t tmpfs -o size=64k none "$dir" || exit 99
        dd if=/dev/zero of="$dir/full" bs=1k count=1000 2>/dev/null; "$@"; code=$?; ls "$dir"; exit $code"#;
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let map = format!("{place}/a.svg");
    let args = ["task-state", "--heatmap", &map, "-i", "50", "--", "sleep", "0.5"];
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, "sh", place, env!("CARGO_BIN_EXE_perf-prof")]).args(args);
    let done: Done = Prog::spawn(command).finish().code(1);
    let told = |words: &str| done.err.iter().filter(|line| line.contains(words)).count();
    assert_eq!((told("it is tried again"), told("perf-prof: cannot write the heat map to ")), (1, 1), "{done:#?}");
    assert!(done.out.iter().any(|line| line.contains("whole run, ")), "it ran to its end: {done:#?}");
    assert_eq!(done.out.last().map(String::as_str), Some("full"), "nothing is left behind: {done:#?}");
}
