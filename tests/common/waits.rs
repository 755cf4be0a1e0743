//! What the tests of task-state share: readings of its rows and events.

use serde_json::Value;

use super::{Done, number};

pub const MS: u64 = 1_000_000;

pub fn is_state(row: &Value, state: &str) -> bool {
    row["state"] == state
}

pub fn still_waiting(event: &Value) -> bool {
    event["still_waiting"] == true
}

/// When the run's first interval began.
pub fn start_of(ended: &Done) -> u64 {
    ended.of_type("interval").iter().map(|interval| number(interval, "start_ns")).min().expect("an interval")
}

/// No wait that is printed is longer than the run had lasted by then.
pub fn assert_within_window(ended: &Done) {
    let start = start_of(ended);
    for event in ended.of_type("event") {
        assert!(number(&event, "duration_ns") <= number(&event, "time_ns") - start, "{event}");
    }
    let end = ended.total("time_ns");
    for row in ended.of_type("row") {
        assert!(row["max_ns"].as_u64().is_none_or(|max| max <= end - start), "{row}");
    }
}
