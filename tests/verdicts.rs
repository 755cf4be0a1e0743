//! Verdicts: every row says how exact its numbers are, in JSON by a word, in text by a mark.

#[macro_use]
mod common;

use common::{Done, Load, Prog, example, number, run, start_watching, start_watching_in_text};
use nix::sys::signal::Signal;
use serde_json::Value;

const MEANING: &str = ">= at least so much: records were lost or left out";

fn verdicts(done: &Done, wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let rows = done.of_type("row");
    assert!(!rows.is_empty(), "{done:#?}");
    let word = |row: &Value| row["verdict"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
    let mut words: Vec<String> = rows.iter().filter(|row| wanted(row)).map(word).collect();
    words.sort();
    words.dedup();
    words
}

#[test]
fn every_row_has_its_verdict() {
    need_events!();
    let calls = example("flood");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["task-state", "--perins"], &["exact", "estimate", "discarded"]),
        (&["signal"], &["exact"]),
        (&["kmemleak", "slab", "-m", "32M"], &["exact", "discarded"]),
        (&["profile", "-g"], &["estimate"]),
        (&["irq-off"], &["exact", "discarded"]),
    ];
    for (options, want) in cases {
        let kill = format!("trap : USR1; kill -USR1 $$; {calls} 2000000");
        let done = run(&[options, &["--json", "--", "/bin/sh", "-c", &kill]].concat()).code(0);
        let lost = done.total("lost") > 0; // others keep the machine busy
        // A CPU without samples of irq-off counts as not watched.
        let words = verdicts(&done, |row| row["samples"] != 0);
        let is_right = |word: &str| want.contains(&word) || lost && ["lower_bound", "unsure"].contains(&word);
        assert!(words.iter().all(|word| is_right(word)), "{options:?}: {words:?}");
        let interval = done.of_type("interval").pop().unwrap();
        let end = done.end();
        let exact = ["lost", "lost_side", "discarded", "late", "malformed"].iter().all(|key| number(&end, key) == 0);
        assert_eq!(interval["verdict"] == "exact", exact, "{interval}");
    }
}

/// Some events that are seen, then a certain loss: more events than the ring holds, while perf-prof is stopped.
fn lossy(run: &Prog, shell: &mut Load) {
    shell.tell("for _ in 1 2 3; do /bin/true; done; echo seen");
    shell.says();
    run.stopped(|| {
        shell.tell(&format!("{} 20000", example("pingpong")));
        shell.says();
    });
}

#[test]
fn what_was_lost_makes_counts_lower_bounds() {
    need_events!(alone);
    let mut shell = Load::shell();
    let states = ["task-state", "-m", "16"];
    let mut run = start_watching(&states);
    lossy(&run, &mut shell);
    run.signal(Signal::SIGUSR1);
    let interval = run.object(|object| object["type"] == "interval");
    assert!(number(&interval, "lost") > 0 && interval["verdict"] == "lower_bound", "{interval}");
    let json = run.interrupt().code(0);
    assert_eq!(verdicts(&json, |row| row["interval"] == interval["interval"]), ["lower_bound"]);

    let mut run = start_watching_in_text(&states);
    lossy(&run, &mut shell);
    run.signal(Signal::SIGUSR1);
    run.line(|line| line == MEANING);
    let text = run.interrupt().code(0);
    let table = text.out.split(|line| line.contains("task-state, interval ")).nth(2).expect("a second interval");
    let rows = table.iter().filter(|line| line.starts_with(">= ") && *line != MEANING).count();
    assert!(rows >= 2, "{text:#?}");
    assert_eq!(table.iter().filter(|line| *line == MEANING).count(), 1, "{text:#?}");

    // Objects that may have been freed unseen are marked row by row.
    let run = start_watching(&["kmemleak", "slab", "-m", "16"]);
    let kalloc = |total: &str| {
        let mut load = Load::of(&example("kalloc"), &[total, "500"]);
        load.says();
        load
    };
    let _seen = kalloc("500");
    let _unseen = run.stopped(|| kalloc("20500"));
    let json = run.interrupt().code(0);
    assert!(json.total("lost") > 0, "{json:#?}");
    let last = json.total("intervals");
    let sure = |row: &Value| row["interval"] == last && number(row, "unsure") == 0;
    assert_eq!(verdicts(&json, |row| row["interval"] == last && number(row, "unsure") > 0), ["unsure"]);
    assert!(verdicts(&json, sure).iter().all(|word| word == "lower_bound"), "{json:#?}");
    shell.stop();
}
