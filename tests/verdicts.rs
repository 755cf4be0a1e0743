//! How far numbers can be trusted: every row says so, in JSON by a word, in text by a mark.

#[macro_use]
mod common;

use common::{Done, example, number, run};
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
    need_switches!();
    let calls = example("flood");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["task-state", "--perins"], &["exact", "discarded"]),
        (&["signal"], &["exact"]),
        (&["kmemleak", "slab", "-m", "32M"], &["exact", "discarded"]),
        (&["profile", "-g"], &["estimate"]),
        (&["irq-off"], &["exact", "discarded"]),
    ];
    for (options, want) in cases {
        let kill = format!("trap : USR1; kill -USR1 $$; {calls} 2000000");
        let done = run(&[options, &["--json", "--", "/bin/sh", "-c", &kill]].concat()).code(0);
        let lost = done.total("lost") > 0; // others keep the machine busy
        // A CPU of which irq-off has no sample was not watched.
        let words = verdicts(&done, |row| row["samples"] != 0);
        let is_right = |word: &str| want.contains(&word) || lost && ["lower_bound", "unsure"].contains(&word);
        assert!(words.iter().all(|word| is_right(word)), "{options:?}: {words:?}");
        let interval = done.of_type("interval").pop().unwrap();
        let end = done.end();
        let exact = ["lost", "lost_side", "discarded", "late", "malformed"].iter().all(|key| number(&end, key) == 0);
        assert_eq!(interval["verdict"] == "exact", exact, "{interval}");
    }
}

#[test]
fn what_was_lost_makes_counts_lower_bounds() {
    need_switches!();
    let pingpong = example("pingpong");
    let json = run(&["task-state", "-m", "1", "--json", "--", &pingpong, "200000"]).code(0);
    assert!(json.total("lost") > 0, "{json:#?}");
    assert_eq!(verdicts(&json, |_| true), ["lower_bound"]);
    assert_eq!(json.of_type("interval")[0]["verdict"], "lower_bound");
    let text = run(&["task-state", "-m", "1", "--", &pingpong, "200000"]).code(0);
    let rows = text.out.iter().filter(|line| line.starts_with(">= ") && *line != MEANING).count();
    assert!(rows >= 2, "{text:#?}");
    assert_eq!(text.out.iter().filter(|line| *line == MEANING).count(), 1, "{text:#?}");
    // What may have been freed unseen is told row by row.
    let json = run(&["kmemleak", "slab", "-m", "1", "--json", "--", &example("kalloc"), "20000", "5000", "--exit"]);
    assert!(json.total("lost") > 0, "{json:#?}");
    assert_eq!(verdicts(&json, |row| number(row, "unsure") > 0), ["unsure"]);
    assert!(verdicts(&json, |row| number(row, "unsure") == 0).iter().all(|word| word == "lower_bound"), "{json:#?}");
}
