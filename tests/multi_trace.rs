//! multi-trace: pairs whose number and lengths are known otherwise.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/uprobes.rs"]
mod uprobes;

use common::{
    Again, Done, Load, attempts, example, load_number, number, online_cpus, or_again, run, run_over, start_watching,
};
use serde_json::Value;
use uprobes::probe;

const ENTER: &str = "syscalls:sys_enter_clock_nanosleep";
const EXIT: &str = "syscalls:sys_exit_clock_nanosleep";

/// The one row of the interval.
fn only_row(done: &Done) -> Value {
    let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "delays").collect::<Vec<_>>();
    let [row] = &rows[..] else { panic!("one row: {rows:#?}\n{done:#?}") };
    row.clone()
}

/// A row by its two events.
fn between<'r>(rows: &'r [Value], start: &str, end: &str) -> &'r Value {
    let is_it = |row: &&Value| row["start"] == start && row["end"] == end;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("{start} => {end} in {rows:#?}"))
}

#[test]
fn delays_are_those_that_a_program_measures() {
    need_events!();
    let than = "--than=5ms";
    let done = run_over(&["multi-trace", "-e", ENTER, "-e", EXIT, than, "--json"], &[&example("delays"), "60", "2"]);
    let row = only_row(&done);
    let told = |key: &str| load_number(&done.load, key);
    assert_eq!((number(&row, "count"), &row["verdict"]), (60, &"exact".into()), "{row}");
    let total = number(&row, "total_ns");
    assert!(told("asked_ns") <= total && total <= told("total_ns"), "{row}, {}", done.load);
    assert!(number(&row, "min_ns") >= 2_000_000 && number(&row, "max_ns") <= told("longest_ns"), "{row}");
    assert_eq!(number(&row, "max_tid"), told("pid"));
    assert_eq!(row["max_comm"], "delays");
    // Those of 6 ms, and others that the machine was late with. One that is late has another line while it lasts.
    let ended = done.of_type("event").into_iter().filter(|event| event["still_open"] == false);
    let long: Vec<Value> = ended.collect();
    assert_eq!(number(&row, "than"), long.len() as u64);
    assert!(long.len() >= 20, "{row}");
    let lengths: Vec<u64> = long.iter().map(|event| number(event, "delay_ns")).collect();
    assert!(lengths.iter().all(|ns| *ns >= 5_000_000), "{lengths:?}");
    assert_eq!(lengths.iter().max(), Some(&number(&row, "max_ns")));
    let worst = long.iter().find(|event| event["delay_ns"] == row["max_ns"]).unwrap();
    assert_eq!(worst["time_ns"], row["max_time_ns"]);
}

/// Three positions, each call with a key of its own: the pairs of neighbours, and none else.
#[test]
fn a_chain_has_rows_for_neighbours() {
    need_uprobes!();
    const CALLS: u64 = 500;
    let chain = [
        probe("uprobe", "calls_add", "//args='a=$arg1:u64'/key=a/alias=add/"),
        probe("uprobe", "calls_many", "//args='a=$arg1:u64'/key=a/alias=many/"),
    ];
    let text = probe("uprobe", "calls_text", "//args='n=$arg2:s32'/key=n/alias=text/");
    let options = ["multi-trace", "-e", &chain[0], "-e", &text, "-e", &chain[1], "--json", "--worst"];
    let done = run_over(&options, &[&*example("calls"), &CALLS.to_string()]);
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "delays").collect();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for (start, end) in [("add", "text"), ("text", "many")] {
        let row = between(&rows, start, end);
        assert_eq!((number(row, "count"), &row["verdict"]), (CALLS, &"exact".into()), "{row}");
        let worst = done.of_type("row").into_iter().filter(|row| row["table"] == "worst").collect::<Vec<_>>();
        assert_eq!(between(&worst, start, end)["max_ns"], row["max_ns"]);
    }
    let end = done.of_type("interval").pop().unwrap();
    for key in ["ends_alone", "starts_again", "skipped", "expired", "no_room", "doubtful"] {
        assert_eq!(number(&end, key), 0, "{key}: {end}");
    }
    // A row for each key, and one of those without room.
    let done = run_over(&[&options[..], &["--perins"]].concat(), &[&*example("calls"), "7"]);
    let mut keys: Vec<u64> = done
        .of_type("row")
        .iter()
        .filter(|row| row["start"] == "add" && row["table"] == "delays")
        .map(|row| number(row, "key"))
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6]);
}

/// An event that follows itself, by cycle or in two positions, and one that only may start, or end.
#[test]
fn cycles_and_roles() {
    need_uprobes!();
    const CALLS: u64 = 300;
    let add = probe("uprobe", "calls_add", "//args='a=$arg1:u64'/");
    let (program, count) = (example("calls"), CALLS.to_string());
    let workload = [&*program, &*count];
    for options in [&["-e", &add, "--cycle"][..], &["-e", &add, "-e", &add]] {
        let done = run_over(&[&["multi-trace", "--json"], options].concat(), &workload);
        let row = only_row(&done);
        assert_eq!((number(&row, "count"), &row["verdict"]), (CALLS - 1, &"exact".into()), "{options:?}: {row}");
    }
    // Even numbers may start, those that 3 divides may end a pair: 0 to 3, 4 to 6, 8 to 9, 10 to 12, ...
    let by_role = add.replace("'/", "'/role=(a % 2 == 0) + (a % 3 == 0) * 2/");
    let done = run_over(&["multi-trace", "--json", "-e", &by_role, "--cycle"], &workload);
    let mut open = None;
    let pairs = (0..CALLS).filter(|a| {
        let is_pair = a % 3 == 0 && open.take().is_some();
        if a % 2 == 0 {
            open = Some(*a);
        }
        is_pair
    });
    assert_eq!(number(&only_row(&done), "count"), pairs.count() as u64);
}

#[test]
fn pairs_are_counted() {
    need_events!();
    let done = run_over(
        &["multi-trace", "--impl", "pair", "-e", ENTER, "-e", EXIT, "--json"],
        &[&example("delays"), "9", "1"],
    );
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "pairs").collect();
    assert_eq!(rows.iter().map(|row| number(row, "paired")).collect::<Vec<_>>(), [9], "{rows:#?}");
}

/// What waits is shown while it does, and what began before an interval is told apart.
#[test]
fn waits_are_shown_while_they_last() {
    need_events!();
    let mut load = Load::of(&example("delays"), &["1", "1", "--wait"]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let read = ["syscalls:sys_enter_read", "syscalls:sys_exit_read"];
    let run_of = ["multi-trace", "-e", read[0], "-e", read[1], "-p", &pid, "-i", "200"];
    let mut watch = start_watching(&run_of);
    load.tell(""); // it reads again, after its sleep
    load.says();
    let waiting = watch.object(|object| object["table"] == "waiting" && number(object, "oldest_ns") > 500_000_000);
    assert_eq!((number(&waiting, "open"), number(&waiting, "tid")), (1, load.pid() as u64), "{waiting}");
    assert_eq!((&waiting["start"], &waiting["comm"]), (&"sys_enter_read".into(), &"delays".into()));
    load.tell("");
    let ended = watch.object(|object| object["table"] == "delays" && object["start"] == "sys_enter_read");
    assert_eq!((number(&ended, "count"), number(&ended, "before")), (1, 1), "{ended}");
    assert!(number(&ended, "max_ns") > 500_000_000, "longer than its interval: {ended}");
    watch.interrupt().code(0);
}

/// The records between the two, with the time since the start.
#[test]
fn records_between_are_shown() {
    need_uprobes!();
    let add = probe("uprobe", "calls_add", "//args='a=$arg1:u64'/key=a/alias=add/");
    let many = probe("uprobe", "calls_many", "//args='a=$arg1:u64'/key=a/alias=many/");
    let text = probe("uprobe", "calls_text", "//args='n=$arg2:s32'/untraced/key=n/alias=text/");
    let options = ["multi-trace", "-e", &add, "-e", &format!("{many},{text}"), "--than", "1ns", "--json"];
    let names = |done: &Done| -> Vec<String> {
        let of = |event: &Value| event["alias"].as_str().unwrap_or("pair").to_owned();
        done.of_type("event").iter().map(of).collect()
    };
    let program = example("calls");
    let workload = [&*program, "3"];
    let done = run_over(&[&options[..], &["--detail=samekey"]].concat(), &workload);
    assert_eq!(names(&done), ["pair", "add", "text", "many"].repeat(3), "{done:#?}");
    for events in done.of_type("event").chunks(4) {
        let offsets: Vec<i64> = events[1..].iter().map(|event| event["offset_ns"].as_i64().unwrap()).collect();
        assert!(offsets.is_sorted() && offsets[0] == 0, "{offsets:?}");
        assert_eq!(events[0]["delay_ns"].as_i64(), Some(offsets[2]));
    }
    // The last text of each pair is before the next one's start.
    let done = run_over(&[&options[..], &["--detail=-10s"]].concat(), &workload);
    assert_eq!(names(&done).iter().filter(|name| *name == "pair").count(), 3);
    assert_eq!(names(&done).len(), 3 + 3 + 6 + 9, "{:#?}", names(&done));
    let done = run_over(&[&options[..], &["--detail=+10s,samekey"]].concat(), &workload);
    assert_eq!(names(&done), ["pair", "add", "text", "many"].repeat(3), "{done:#?}");
}

/// A thread that waits for its CPU behind others: where it is after each record, and how long those ran that left the CPU.
#[test]
fn the_way_of_a_thread_is_shown() {
    need_events!();
    attempts(|| {
        let cpu = *online_cpus().last().expect("a CPU");
        let pair = [r#"sched:sched_wakeup/comm=="serves"/key=pid/"#, "sched:sched_switch//key=next_pid/"];
        let options = ["multi-trace", "-e", pair[0], "-e", pair[1], "--than", "1ms", "--detail=samecpu", "-m", "4096"];
        let watch = start_watching(&options);
        let mut load = Load::of(&example("queue"), &["300", &cpu.to_string()]);
        let told = load.says();
        let tid = load_number(&told, "serves_tid");
        let done = watch.interrupt().code(0);
        let events = done.of_type("event");
        let heads: Vec<usize> = (0..events.len()).filter(|at| events[*at].get("delay_ns").is_some()).collect();
        let (mut pairs, mut switches) = (0, 0);
        for (at, head) in heads.iter().enumerate() {
            let records = &events[head + 1..heads.get(at + 1).copied().unwrap_or(events.len())];
            let head = &events[*head];
            if head["key"] != tid || head["still_open"] == true || head.get("truncated").is_some() {
                continue;
            }
            pairs += 1;
            // Where no event sees the idle task, a switch from it has no record.
            let is_end_seen = head["ended_by"]["tid"] != 0;
            let (until_end, end) = records.split_at(records.len() - usize::from(is_end_seen));
            assert!(until_end.iter().all(|record| record["thread"] == "woken"), "{records:#?}");
            assert!(end.iter().all(|record| record["thread"] == "running"), "{records:#?}");
            switches += ran_between_switches(records);
        }
        // On a busy machine the thread is done less often.
        let few = [Again::RecordsLost(&done), Again::LoadBelow(&told, "serves_nvcsw", 10)];
        or_again(pairs > 0 && switches > 0, &few, || format!("{pairs} pairs, {switches} switches: {:#?}", done.end()))
    });
}

/// Each task has run since the switch to it, if that is among the records; where switches in between have none, less. Returns
/// the number of tasks that ran all the time.
fn ran_between_switches(records: &[Value]) -> usize {
    let of_cpu: Vec<&Value> = records.iter().filter(|record| record["event"] == "sched:sched_switch").collect();
    let is_one_task = |two: &&[&Value]| {
        let (came, left) = (&two[0]["fields"]["next_pid"], &two[1]["fields"]["prev_pid"]);
        two[0]["cpu"] == two[1]["cpu"] && came == left && *came != 0
    };
    let ran = of_cpu.windows(2).filter(is_one_task).filter(|two| {
        let between = two[1]["offset_ns"].as_i64().unwrap() - two[0]["offset_ns"].as_i64().unwrap();
        let ran_ns = two[1]["prev_ran_ns"].as_i64().unwrap_or_default();
        assert!(ran_ns <= between, "{two:#?}");
        ran_ns == between
    });
    ran.count()
}

/// A start that waits has lines while it does: the first when it is late, then each time that its age has doubled.
#[test]
fn late_starts_have_lines() {
    need_events!();
    let mut load = Load::of(&example("delays"), &["1", "1", "--wait"]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let read = ["syscalls:sys_enter_read", "syscalls:sys_exit_read"];
    let mut watch = start_watching(&["multi-trace", "-e", read[0], "-e", read[1], "-p", &pid, "--than", "100ms"]);
    load.tell(""); // it reads again, after its sleep
    load.says();
    let is_open = |object: &Value| object["still_open"] == true;
    let ages: Vec<u64> = (0..2).map(|_| number(&watch.object(is_open), "delay_ns")).collect();
    assert!(ages[0] >= 100_000_000 && ages[1] >= 2 * ages[0], "{ages:?}");
    load.tell("");
    let ended = watch.object(|object| object.get("ended_by").is_some());
    assert!(number(&ended, "delay_ns") >= ages[1], "{ended}");
    let events = watch.interrupt().code(0).of_type("event");
    assert!(events.last().is_some_and(|event| event.get("ended_by").is_some()), "it has had its lines: {events:#?}");
}

/// Rings of one page under a flood: what is lost is told, and no pair is longer than the flood.
#[test]
fn losses_are_told() {
    need_events!();
    let options = [
        "multi-trace",
        "-e",
        "syscalls:sys_enter_getppid",
        "-e",
        "syscalls:sys_exit_getppid",
        "-m",
        "1",
        "--json",
        "-i",
        "20",
    ];
    let done = run_over(&options, &[&example("flood"), "400000"]);
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "delays").collect();
    let pairs: u64 = rows.iter().map(|row| number(row, "count")).sum();
    assert!(pairs <= 400_000);
    if pairs < 400_000 {
        assert!(done.total("lost") > 0, "{:#?}", done.end());
    }
    let exact = rows.iter().filter(|row| row["verdict"] == "exact");
    for row in exact {
        assert!(number(row, "max_ns") < load_number(&done.load, "wall_ns"), "{row}");
    }
    // Every interval with a loss says so in its rows.
    let intervals = done.of_type("interval");
    for interval in intervals.iter().filter(|interval| number(interval, "lost") > 0) {
        let of = rows.iter().filter(|row| row["interval"] == interval["interval"]);
        assert!(of.clone().all(|row| row["verdict"] != "exact"), "{interval}: {:#?}", of.collect::<Vec<_>>());
    }
}

/// Starts without ends fill the table, not the memory.
#[test]
fn starts_without_ends_are_bounded() {
    need_events!();
    let start = "syscalls:sys_enter_getppid//key=_time/";
    let end = "syscalls:sys_enter_getuid//key=_time/";
    let options = ["multi-trace", "-e", start, "-e", end, "-m", "16M", "--json"];
    let done = run_over(&options, &[&example("flood"), "600000", "400000"]);
    let last = done.of_type("interval").pop().unwrap();
    let waiting = done.of_type("row").into_iter().filter(|row| row["table"] == "waiting").collect::<Vec<_>>();
    let open: u64 = waiting.iter().map(|row| number(row, "open")).sum();
    let dropped = number(&last, "no_room") + number(&last, "doubtful");
    assert_eq!(done.total("samples"), dropped + open, "{last}");
    assert!(dropped > 100_000 && open <= 1 << 18, "{open} {last}");
    let rss = number(&done.end()["self"], "rss_peak_bytes");
    assert!(rss < 120 << 20, "{rss}");
}

/// What is done to the tasks of a command counts, whoever does it and from whichever CPU.
#[test]
fn wake_ups_of_a_command_meet_the_switches_to_it() {
    need_events!();
    let [one, two, ..] = online_cpus()[..] else { skip!("needs two CPUs") };
    let (wakeup, switch) = ("sched:sched_wakeup//key=pid/", "sched:sched_switch//key=next_pid/");
    let load = [&example("pingpong"), "3000", &one.to_string(), &two.to_string()];
    attempts(|| {
        let done = run_over(&["multi-trace", "-e", wakeup, "-e", switch, "-m", "16M", "--perins", "--json"], &load);
        let sides = ["ping_tid", "pong_tid"].map(|key| load_number(&done.load, key).to_string());
        let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "delays");
        let rows: Vec<Value> = rows.filter(|row| sides.contains(&row["key"].to_string())).collect();
        let pairs: u64 = rows.iter().map(|row| number(row, "count")).sum();
        let last = done.of_type("interval").pop().unwrap();
        or_again(number(&done.end(), "lost") == 0, &[Again::RecordsLost(&done)], || last.to_string())?;
        assert!(rows.iter().all(|row| row["verdict"] == "exact"), "{rows:#?}");
        // A switch that is not seen leaves its start behind, which the next wake-up replaces.
        assert!(pairs > 0 && number(&last, "starts_again") * 20 <= pairs, "{pairs} pairs, {last}\n{}", done.load);
        Ok(())
    });
}

/// Where a task may go to a CPU that is not watched, no pair is called exact.
#[test]
fn pairs_that_may_go_elsewhere_are_marked() {
    need_events!();
    let [cpu, _, ..] = online_cpus()[..] else { skip!("needs two CPUs") };
    let (cpu, load) = (cpu.to_string(), [example("delays"), "10".to_owned(), "2".to_owned()]);
    let load: Vec<&str> = load.iter().map(String::as_str).collect();
    let pairs = ["multi-trace", "-e", ENTER, "-e", EXIT, "--json"];
    for (more, marked) in [(vec!["-C", &cpu], true), (vec![], false), (vec!["-k", "_cpu", "-C", &cpu], false)] {
        let done = run_over(&[&pairs[..], &more].concat(), &load);
        let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "delays");
        let want = if marked { "unsure" } else { "exact" };
        assert!(rows.into_iter().all(|row| row["verdict"] == want), "{more:?} {done:#?}");
        let is_told = done.err.iter().any(|line| line.contains("not all CPUs are watched"));
        assert_eq!(is_told, marked, "{more:?} {done:#?}");
    }
}

/// A trigger makes a report when it comes.
#[test]
fn a_trigger_reports() {
    need_events!();
    let trigger = format!("{EXIT},syscalls:sys_enter_getuid//untraced/trigger/");
    let pid = std::process::id().to_string();
    let mut watch = start_watching(&["multi-trace", "-e", ENTER, "-e", &trigger, "-p", &pid]);
    std::thread::sleep(std::time::Duration::from_millis(1)); // the pair
    common::getuid();
    let row = watch.object(|object| object["table"] == "delays");
    assert!(number(&row, "count") >= 1, "{row}");
    watch.interrupt().code(0);
}

#[test]
fn bad_options_are_refused() {
    let refused = |args: &[&str], words: &[&str]| {
        run(&[&["multi-trace"], args].concat()).code(2).says(words);
    };
    refused(&["-e", ENTER], &["one position has no pairs", "--cycle"]);
    refused(&["-e", ENTER, "-e", EXIT, "--detail=samecpu"], &["--detail: of which pairs?"]);
    refused(&["-e", ENTER, "-e", EXIT, "--than", "1", "--detail=x"], &["`x` is unknown"]);
    refused(&["-e", "a:b//untraced/", "-e", EXIT], &["nothing is left to pair"]);
    refused(&["-e", ENTER, "-e", EXIT, "--impl", "syscalls"], &["use `perf-prof syscalls`"]);
    refused(&["-e", ENTER, "-e", EXIT, "-k", "pid +"], &["-k:", "^"]);
    need_events!();
    let mixed = "sched:sched_wakeup//key=pid/";
    refused(&["-e", mixed, "-e", "sched:sched_switch"], &["has a key, and", "has none"]);
    run(&["multi-trace", "-e", mixed, "-e", "sched:sched_switch", "-k", "pid"]).code(1).says(&["sched:sched_switch"]);
}
