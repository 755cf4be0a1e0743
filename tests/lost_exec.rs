//! A command whose exec record is lost. One test in a binary of its own: its noise would disturb others.

#[macro_use]
mod common;

use common::{Load, example, load_number, run};

#[test]
fn a_command_is_watched_even_if_its_exec_was_lost() {
    need_events!();
    let _noise = [(); 2].map(|()| Load::of(&example("pingpong"), &["100000000"]));
    for _ in 0..4 {
        let ended = run(&["task-state", "-m", "1", "--perins", "--json", "--", &example("pingpong"), "200000"]).code(0);
        let tid = load_number(ended.line_with("switch_pairs"), "ping_tid");
        assert!(ended.of_type("row").iter().any(|row| row["tid"] == tid), "{ended:#?}");
    }
}
