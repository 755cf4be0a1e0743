//! task-state: how much of the time of its tasks a table covers.

#[macro_use]
mod common;

use common::{Again, Attempted, Done, Load, attempts, example, number, or_again, run, start_watching, until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Length of the last interval.
fn lasted(done: &Done) -> u64 {
    let interval = done.of_type("interval").pop().expect("an interval");
    number(&interval, "end_ns") - number(&interval, "start_ns")
}

/// Rows of the last interval.
fn last_rows(done: &Done) -> Vec<Value> {
    let last = done.total("intervals");
    done.of_type("row").into_iter().filter(|row| row["interval"] == last).collect()
}

/// A load that switches all the time, watched with these options, and a loss.
fn lossy(options: &[&str]) -> (Done, i32) {
    let load = Load::of(&example("pingpong"), &["100000000"]);
    let pid = load.pid().to_string();
    let mut prof = start_watching(&[&["task-state", "-m", "16", "-p", &pid], options].concat());
    // The thread that awaits the two others has no event: the run asks /proc about it.
    until("all three threads are known", || {
        prof.signal(Signal::SIGUSR1);
        let interval = prof.object(|object| object["type"] == "interval");
        let span_ns = number(&interval, "end_ns") - number(&interval, "start_ns");
        match interval["of_ns"].as_u64() {
            Some(of_ns) => of_ns > 3 * span_ns / 100 * 95,
            None => prof.rows_of(&interval["interval"]).iter().map(|row| number(row, "ongoing")).sum::<u64>() == 3,
        }
    });
    prof.stopped(|| Load::of(&example("pingpong"), &["20000"]).says());
    let ended = prof.interrupt().code(0);
    assert!(ended.total("lost") > 0, "{ended:#?}");
    (ended, load.pid())
}

#[test]
fn a_thread_says_how_much_of_its_time_is_known() {
    need_events!(alone);
    let (ended, _) = lossy(&["--perins"]);
    let rows = last_rows(&ended);
    let lasted = lasted(&ended);
    let mut seen_of_all = 0;
    for name in ["ping", "pong"] {
        let of_thread: Vec<&Value> = rows.iter().filter(|row| row["comm"] == name).collect();
        assert!(!of_thread.is_empty(), "{rows:#?}");
        let [seen, of] = ["seen_ns", "of_ns"].map(|key| number(of_thread[0], key));
        assert!(
            of_thread.iter().all(|row| (number(row, "seen_ns"), number(row, "of_ns")) == (seen, of)),
            "{of_thread:#?}"
        );
        assert_eq!(seen, of_thread.iter().map(|row| number(row, "total_ns")).sum::<u64>(), "{of_thread:#?}");
        assert!(seen < of && of <= lasted && of > lasted / 100 * 95, "{seen} of {of}, {lasted}: {of_thread:#?}");
        seen_of_all += seen;
    }
    let interval = ended.of_type("interval").pop().expect("an interval");
    assert!(number(&interval, "seen_ns") >= seen_of_all, "{interval}");
    assert!(number(&interval, "seen_ns") < number(&interval, "of_ns"), "{interval}");
}

#[test]
fn a_table_of_all_says_of_which_state_time_is_missing() {
    need_events!(alone);
    let (ended, _) = lossy(&[]);
    let rows = last_rows(&ended);
    let partly: Vec<&Value> = rows.iter().filter(|row| row.get("of_ns").is_some()).collect();
    assert!(!partly.is_empty(), "{rows:#?}");
    for row in partly {
        assert!(
            number(row, "seen_ns") == number(row, "total_ns") && number(row, "seen_ns") < number(row, "of_ns"),
            "{row}"
        );
        assert_eq!(row["verdict"], "lower_bound", "{row}");
    }
    let interval = ended.of_type("interval").pop().expect("an interval");
    let (seen, of) = (number(&interval, "seen_ns"), number(&interval, "of_ns"));
    assert_eq!(seen, rows.iter().map(|row| number(row, "total_ns")).sum::<u64>(), "{rows:#?}");
    // Two threads, and the one that awaits them.
    let lasted = lasted(&ended);
    assert!(seen < of && of <= 3 * lasted && of > 3 * lasted / 100 * 95, "{seen} of {of}, {lasted}: {rows:#?}");
}

#[test]
fn a_complete_table_says_nothing_about_missing_time() {
    need_events!();
    attempts(try_nothing_is_missing);
}

fn try_nothing_is_missing() -> Attempted {
    let script = "sleep 0.05; for _ in 1 2 3; do /bin/true; done";
    for options in [&["--perins"][..], &[]] {
        let ended = run(&[&["task-state", "--json"], options, &["--", "sh", "-c", script]].concat()).code(0);
        let is_complete = ended.total("discarded") + ended.total("lost") == 0;
        or_again(is_complete, &[Again::Discarded(&ended), Again::RecordsLost(&ended)], || format!("{ended:#?}"))?;
        let says = |object: &Value| object.get("seen_ns").is_some() || object.get("of_ns").is_some();
        let objects = [ended.of_type("row"), ended.of_type("interval")].concat();
        // A hidden task does not show why it left its CPU.
        or_again(!objects.iter().any(says), &[Again::TaskHidden(&ended)], || format!("{ended:#?}"))?;
    }
    let text = run(&["task-state", "--perins", "--", "sh", "-c", script]).code(0);
    let says = |line: &String| line.contains("seen ");
    let is_exact = text.err().contains(" 0 lost") && !text.err().contains("discarded");
    if is_exact && !text.out.iter().any(|line| line.contains('~')) {
        assert!(!text.out.iter().any(says), "{text:#?}");
    }
    Ok(())
}
