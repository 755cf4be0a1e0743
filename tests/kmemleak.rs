//! `kmemleak`: outstanding and freed allocations, against loads with known numbers of both.

#[macro_use]
mod common;

use nix::sys::signal::Signal;

use common::{
    Again, Done, Load, Prog, attempts, example, load_number, number, or_again, run, start_watching,
    start_watching_in_text,
};
use serde_json::Value;

const KMALLOC: &[&str] = &["--alloc", "kmem:kmalloc", "--free", "kmem:kfree"];
/// Bytes of an eventfd's own object: its size class.
const EVENTFD: u64 = 64;

/// Ring size that holds the events of a test's load and of other tasks.
const LARGE: &[&str] = &["-m", "32M"];

/// `kmemleak` with these options, started before the load begins.
#[track_caller]
fn watching(options: &[&str]) -> Prog {
    let large = if options.contains(&"-m") { &[] } else { LARGE };
    start_watching(&[&["kmemleak"], options, large].concat())
}

/// Opens 20,500 eventfds and keeps 500 of them, on a CPU that is traced.
fn eventfds() -> (Load, String) {
    let mut load = Load::of(&example("kalloc"), &["20500", "500"]);
    let line = load.says();
    (load, line)
}

fn symbols(row: &Value) -> Vec<&str> {
    let frames = row["stack"].as_array().into_iter().flatten();
    frames.filter_map(|frame| frame["symbol"].as_str()).filter(|symbol| !is_of_the_tracepoint(symbol)).collect()
}

/// While another tracer uses the same event, the kernel calls both from a function of the tracepoint.
fn is_of_the_tracepoint(symbol: &str) -> bool {
    symbol.starts_with("__traceiter_")
}

/// The rows of the eventfd's own object: the system call is the caller of kmalloc.
fn of_eventfd(rows: &[Value]) -> Vec<Value> {
    let is = |row: &&Value| symbols(row).get(1).is_some_and(|symbol| symbol.contains("eventfd"));
    rows.iter().filter(is).cloned().collect()
}

/// Rows of the last interval.
fn last_rows(done: &Done) -> Vec<Value> {
    let last = done.total("intervals");
    done.of_type("row").into_iter().filter(|row| row["interval"] == last).collect()
}

/// Outstanding allocations are all allocations minus those that were freed.
#[track_caller]
fn balances(totals: &Value) {
    let [allocs, frees, unmatched, outstanding] =
        ["total_allocs", "total_frees", "unmatched_frees", "outstanding"].map(|key| number(totals, key));
    let discarded = number(totals, "discarded");
    assert_eq!(allocs + unmatched, frees + outstanding + discarded, "{totals}");
}

#[track_caller]
fn is_500(row: &Value, end: &Value) {
    let allocs = number(row, "allocs");
    assert!((500..=520).contains(&allocs), "{row}");
    assert_eq!((number(row, "bytes"), row["comm"].as_str()), (allocs * EVENTFD, Some("kalloc")), "{row}");
    // The kernel frees some objects of others without an event, but none of these.
    assert_eq!(number(row, "freed_unseen"), 0, "{row}");
    // Nor are frees hidden, unless the run counts what it has not seen of others, or what came while another program ran.
    let has_missed = end["filtered_by"].as_array().is_some_and(|by| by.iter().any(|by| number(by, "missed") > 0));
    let excused = [("lower_bound", end["unseen"].as_u64() > Some(0)), ("unsure", has_missed)];
    let verdict = row["verdict"].as_str().expect("a verdict");
    assert!(verdict == "exact" || excused.contains(&(verdict, true)), "{row} {end}");
    let (oldest, newest) = (number(row, "oldest_ns"), number(row, "newest_ns"));
    assert!(newest > 0 && newest < oldest, "{row}");
}

#[test]
fn eventfds_that_are_kept() {
    need_events!(alone);
    let mut run = watching(&[KMALLOC, &["-g"]].concat());
    let (load, line) = eventfds();
    assert_eq!((load_number(&line, "opened"), load_number(&line, "kept")), (20_500, 500));
    // The report on a signal.
    run.signal(Signal::SIGUSR1);
    let interval = run.object(|object| object["type"] == "interval");
    let rows = run.rows_of(&interval["interval"]);
    let [first] = &of_eventfd(&rows)[..] else { panic!("not one place: {rows:?}") };
    let (first, row) = (first.clone(), first);
    assert_eq!(symbols(row).first().map(|symbol| symbol.contains("kmalloc")), Some(true), "{row}");
    // The report at the end.
    let done = run.interrupt().code(0);
    let [row] = &of_eventfd(&last_rows(&done))[..] else { panic!("not one place: {done:?}") };
    let end = done.end();
    [&first, row].into_iter().for_each(|row| is_500(row, &end));
    assert_eq!((number(&end, "lost"), number(&end, "lost_stacks")), (0, 0), "{end}");
    assert!(number(&end, "total_allocs") >= 20_500 && number(&end, "total_frees") >= 20_000, "{end}");
    balances(&end);
    load.stop();
}

#[test]
fn freed_objects_are_not_outstanding() {
    need_events!(alone);
    let mut run = watching(&[KMALLOC, &["-g", "-i", "100"]].concat());
    let (load, _) = eventfds();
    let kept = |run: &mut Prog, wanted: fn(u64) -> bool| loop {
        let interval = run.object(|object| object["type"] == "interval");
        let rows = run.rows_of(&interval["interval"]);
        let sum: u64 = of_eventfd(&rows).iter().map(|row| number(row, "allocs")).sum();
        if wanted(sum) {
            return;
        }
    };
    kept(&mut run, |sum| (500..=520).contains(&sum));
    load.stop();
    kept(&mut run, |sum| sum <= 20);
    let end = run.interrupt().code(0).end();
    assert_eq!(number(&end, "lost"), 0, "{end}");
    balances(&end);
}

#[test]
fn callers_without_callchains() {
    need_events!(alone);
    let run = watching(KMALLOC);
    let (load, _) = eventfds();
    let done = run.interrupt().code(0);
    let rows = last_rows(&done);
    let is = |row: &&Value| symbols(row).first().is_some_and(|symbol| symbol.contains("eventfd"));
    let [row] = &rows.iter().filter(is).collect::<Vec<_>>()[..] else { panic!("not one place: {rows:?}") };
    is_500(row, &done.end());
    assert_eq!(row["stack"].as_array().map(Vec::len), Some(1), "{row}");
    load.stop();
}

#[test]
fn many_events_on_each_side() {
    need_events!(alone);
    // A list, an option given twice, names and sizes as expressions.
    let options = [
        "--alloc",
        "kmem:kmalloc//ptr=(ptr|0)/size=bytes_alloc*2/",
        "--alloc",
        "kmem:kmem_cache_alloc",
        "--free",
        "kmem:kmem_cache_free,kmem:kfree//ptr=ptr/",
        "-g",
    ];
    let run = watching(&options);
    let (load, _) = eventfds();
    let done = run.interrupt().code(0);
    let rows = last_rows(&done);
    let [row] = &of_eventfd(&rows)[..] else { panic!("not one place: {rows:?}") };
    assert_eq!(number(row, "bytes"), number(row, "allocs") * EVENTFD * 2, "{row}");
    // Each eventfd has a file and a directory entry, from caches.
    for caller in ["alloc_empty_file", "__d_alloc"] {
        let of_kalloc = rows.iter().filter(|row| row["comm"] == "kalloc" && symbols(row).get(1) == Some(&caller));
        let allocs: u64 = of_kalloc.map(|row| number(row, "allocs")).sum();
        assert!((500..600).contains(&allocs), "{allocs} of {caller}");
    }
    balances(&done.end());
    load.stop();
}

#[test]
fn allocations_without_a_size_field() {
    need_events!(alone);
    // No size, no stack, only half of the eventfds by a filter that the kernel evaluates.
    let run = watching(&["--alloc", "kmem:kmalloc/bytes_req==56/size=(1/0)/", "--free", "kmem:kfree"]);
    let done = run.interrupt().code(0);
    assert!(number(&done.end(), "malformed") == number(&done.end(), "samples") || done.total("total_allocs") == 0);
    let run = watching(&["--alloc", "kmem:mm_page_alloc//ptr=pfn+1/", "--free", "kmem:mm_page_free//ptr=pfn+1/"]);
    let mut load = Load::of(&example("kalloc"), &["2000", "2000"]);
    load.says();
    let done = run.interrupt().code(0);
    let rows = last_rows(&done);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["bytes"].is_null() && row["stack"].is_null()), "{rows:?}");
    let kalloc: u64 = rows.iter().filter(|row| row["comm"] == "kalloc").map(|row| number(row, "allocs")).sum();
    assert!(kalloc > 50, "2000 eventfds take pages: {rows:?}");
    load.stop();
}

#[test]
fn only_old_allocations() {
    need_events!(alone);
    let run = watching(&[KMALLOC, &["-g", "--than", "60"]].concat());
    let (load, _) = eventfds();
    let done = run.interrupt().code(0);
    assert!(last_rows(&done).is_empty(), "{done:?}");
    assert!(number(&done.end(), "total_allocs") >= 20_500 && number(&done.end(), "outstanding") == 0, "{done:?}");
    load.stop();
    // The first eventfds are older than the last ones: an age limit separates them.
    let mut run = watching(&[KMALLOC, &["-g", "--than", "300ms", "-i", "20"]].concat());
    let (load, _) = eventfds();
    let mut sums: Vec<u64> = Vec::new();
    while sums.last().is_none_or(|sum| *sum < 500) {
        let interval = run.object(|object| object["type"] == "interval");
        let rows = of_eventfd(&run.rows_of(&interval["interval"]));
        assert!(rows.iter().all(|row| number(row, "newest_ns") >= 300_000_000), "{rows:?}");
        sums.push(rows.iter().map(|row| number(row, "allocs")).sum());
    }
    assert!(sums.first().is_some_and(|sum| *sum < 500), "{sums:?}");
    run.interrupt().code(0);
    load.stop();
}

/// What a thread allocates before it changes its name and afterwards is told apart.
#[test]
fn a_thread_that_changes_its_name() {
    need_events!(alone);
    let pid = std::process::id().to_string();
    let run = watching(&[KMALLOC, &["-g", "--no-user-callchain", "-p", &pid]].concat());
    let renames = || {
        let mut kept = Vec::new();
        for (name, many) in [(c"mem-before", 300), (c"mem-after", 200), (c"mem-last", 100)] {
            nix::sys::prctl::set_name(name).expect("a name");
            kept.extend((0..many).map(|_| nix::sys::eventfd::EventFd::new().expect("an eventfd")));
        }
        kept
    };
    let kept = std::thread::spawn(renames).join().expect("it ends");
    let rows = last_rows(&run.interrupt().code(0));
    drop(kept);
    let [row] = &of_eventfd(&rows)[..] else { panic!("not one place: {rows:?}") };
    assert_eq!(number(row, "allocs"), 600, "{row}");
    // Those with most of it first.
    assert_eq!(row["comms"], serde_json::json!(["mem-before", "mem-after", "+1"]), "{row}");
}

#[test]
fn allocations_of_the_target() {
    need_events!(alone);
    // With a command: allocations of its threads, whichever task frees them.
    let done = common::run_over(
        &["kmemleak", "slab", "-g", "--json", "-m", "32M"],
        &[&example("kalloc"), "3000", "300", "--exit"],
    );
    let rows = last_rows(&done);
    assert!(!rows.is_empty(), "{done:?}");
    assert!(rows.iter().all(|row| row["comm"] == "kalloc" || row["comm"] == "perf-prof"), "{rows:?}");
    // It has ended, and its files with it.
    let left: u64 = of_eventfd(&rows).iter().map(|row| number(row, "allocs")).sum();
    assert!(left <= 20, "{rows:?}");
    balances(&done.end());
    // User frames say where a watched process is.
    let mut load = Load::shell();
    let pid = load.pid().to_string();
    let run = watching(&["slab", "-g", "-p", &pid]);
    load.tell("exec 7</dev/null; echo opened");
    load.says();
    let done = run.interrupt().code(0);
    let rows = last_rows(&done);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["comm"] == "sh"), "{rows:?}");
    let modules: Vec<&Value> = rows
        .iter()
        .flat_map(|row| row["stack"].as_array().into_iter().flatten())
        .map(|frame| &frame["module"])
        .collect();
    assert!(modules.iter().any(|module| *module != "[kernel]"), "{rows:?}");
    load.stop();
}

#[test]
fn losses_are_marked() {
    need_events!(alone);
    let run = watching(&[KMALLOC, &["-g", "-m", "1"]].concat());
    let (load, _) = run.stopped(eventfds);
    let (again, _) = eventfds();
    let done = run.interrupt().code(0);
    let end = done.end();
    assert!(number(&end, "lost") > 0, "41,000 records fit one page? {end}");
    let interval = done.of_type("interval").pop().unwrap();
    let windows = interval["lost_windows"].as_array().unwrap();
    let until = windows.iter().map(|window| number(window, "end_ns")).max().unwrap();
    let now = number(&interval, "end_ns");
    for row in last_rows(&done) {
        let (allocs, unsure) = (number(&row, "allocs"), number(&row, "unsure"));
        let [oldest, newest] = ["oldest_ns", "newest_ns"].map(|key| now - number(&row, key));
        // Rows that are older than the last loss, and no others.
        assert_eq!(unsure > 0, oldest < until, "{row} {until}");
        assert_eq!(unsure < allocs, newest >= until, "{row} {until}");
    }
    let rows = last_rows(&done);
    assert!(rows.iter().any(|row| number(row, "unsure") > 0), "{rows:?}");
    balances(&end);
    // Text says in words that events were lost.
    load.stop();
    again.stop();
    let run = start_watching_in_text(&["kmemleak", "slab", "-g", "-m", "1"]);
    let (load, _) = eventfds(); // some of what it keeps is seen
    let (again, _) = run.stopped(eventfds);
    let done = run.interrupt().code(0);
    let text = done.out.join("\n");
    assert!(text.contains("unsure: allocated before events were lost") && text.contains(" unsure "), "{text}");
    load.stop();
    again.stop();
}

#[test]
fn text_for_people() {
    need_events!(alone);
    let mut run = start_watching_in_text(&[&["kmemleak", "-g"], KMALLOC, LARGE].concat());
    let (load, _) = eventfds();
    run.signal(Signal::SIGUSR1);
    run.line(|line| line.ends_with(": outstanding so far"));
    let done = run.interrupt().code(0);
    load.stop();
    let at = done.out.iter().rposition(|line| line.ends_with(": outstanding")).unwrap_or_else(|| panic!("{done:?}"));
    let last = &done.out[at..];
    assert!(last[1].contains(" bytes in ") && last[1].ends_with(" allocs"), "{last:?}");
    assert!(last[2].contains(" allocated, ") && last[2].contains(" of them freed"), "{last:?}");
    let head = last.iter().position(|line| line.trim_start().starts_with("trend ")).unwrap();
    let headings = ["trend", "bytes/s", "bytes", "allocs", "alloc/s", "free/s", "freed%", "oldest", "comm"];
    assert_eq!(last[head].split_whitespace().collect::<Vec<_>>(), headings);
    let of_kalloc = |line: &&String| {
        // The numbers follow the mark of rows that are not exact, and the trend.
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<i64>().ok());
        numbers.nth(1).is_some_and(|bytes| bytes >= 500 * EVENTFD as i64) && line.contains(" kalloc")
    };
    let row = last.iter().position(|line| of_kalloc(&line)).unwrap_or_else(|| panic!("{last:?}"));
    assert!(last[row + 1].starts_with("    ffff") && last[row + 1].contains("kmalloc"), "{last:?}");
    // The name of a process beside that of its thread may be too much.
    assert!(last.iter().all(|line| line.starts_with("    ") || line.len() <= 80 || line.contains(" of ")), "{last:?}");
    assert!(last.iter().any(|line| line.starts_with("per second: ")), "{last:?}");
    // 20 places at most, unless others are asked for.
    let places =
        last.iter().skip(head + 1).filter(|line| !line.starts_with("    ") && !line.contains("pairs that")).count();
    assert!(places <= 21, "{last:?}");
    let run = start_watching_in_text(&[&["kmemleak", "--top", "2"], KMALLOC, LARGE].concat());
    let (load, _) = eventfds();
    let done = run.interrupt().code(0);
    load.stop();
    // The report by which the run was awaited may have a table, too.
    let head = done.out.iter().rposition(|line| line.trim_start().starts_with("trend ")).expect("a table");
    let rows = done.out[head + 1..].iter().take_while(|line| !line.starts_with("and "));
    assert_eq!(rows.filter(|line| line.ends_with(|c: char| c.is_ascii_digit())).count(), 2, "{done:?}");
}

/// Most of what is outstanding is a cache that does not grow; a 99th part is a leak that does.
#[test]
fn a_slow_leak_beside_a_large_cache() {
    need_events!(alone);
    const SIGNALFD: u64 = 8;
    attempts(|| {
        let mut run = watching(&[KMALLOC, &["-g"]].concat());
        let mut load = Load::of(&example("hoard"), &["3000", "800", "296"]);
        let line = load.says();
        run.signal(Signal::SIGUSR1);
        let interval = run.object(|object| object["type"] == "interval");
        let rows = run.rows_of(&interval["interval"]);
        let done = run.interrupt().code(0);
        load.stop();
        let late = Again::LoadAbove(&line, "ms", 8_100);
        or_again(load_number(&line, "ms") <= 8_100, &[late], || line.clone())?;
        let place = |function: &str| {
            let is = |row: &Value| symbols(row).get(1).is_some_and(|symbol| symbol.contains(function));
            rows.iter().position(is).unwrap_or_else(|| panic!("{function}: {rows:?}"))
        };
        let [leak, cache] = ["signalfd", "eventfd"].map(place);
        assert!(leak < cache, "what grows comes first: {rows:?}");
        let [leak, cache] = [&rows[leak], &rows[cache]];
        let numbers = |row: &Value| ["bytes", "allocs", "allocated", "freed"].map(|key| number(row, key));
        let turned = load_number(&line, "turned");
        for (row, want) in
            [(leak, [296 * SIGNALFD, 296, 8000, 8000 - 296]), (cache, [3000 * EVENTFD, 3000, 3000 + turned, turned])]
        {
            or_again(numbers(row) == want, &[Again::RecordsLost(&done)], || format!("{row} {want:?}"))?;
        }
        assert_eq!(
            [leak, cache].map(|row| row["trend"].as_str()),
            [Some("growing"), Some("plateau")],
            "{leak} {cache}"
        );
        keeps_37_a_second(leak, SIGNALFD);
        assert_eq!(cache["bytes_per_s"].as_i64(), Some(0), "{cache}");
        // Of the last second, less what has passed since the load ended; 10 more turns of it may be late.
        is_younger_than_a_second(leak, 37 * SIGNALFD, 4 * SIGNALFD);
        is_younger_than_a_second(cache, 2000 * EVENTFD, 200 * EVENTFD);
        assert_eq!((leak["comm"].as_str(), leak["process"].as_str()), (Some("hoarder"), Some("hoard")), "{leak}");
        assert_eq!(number(leak, "pid"), load_number(&line, "pid"), "{leak}");
        Ok(())
    });
}

/// The bytes by age sum up to all, and those of the last second are `per_s`, give or take some.
#[track_caller]
fn is_younger_than_a_second(row: &Value, per_s: u64, give: u64) {
    let ages = row["ages"].as_array().unwrap_or_else(|| panic!("{row}"));
    assert_eq!(ages.iter().map(|age| number(age, "amount")).sum::<u64>(), number(row, "bytes"), "{row}");
    let ends: Vec<u64> = ages.iter().map(|age| number(age, "below_ns")).collect();
    assert_eq!(ends, [1_000_000_000, 10_000_000_000], "{row}");
    let want = per_s as f64 * (1.0 - number(row, "newest_ns") as f64 / 1e9);
    assert!((number(&ages[0], "amount") as f64 - want).abs() <= give as f64, "{want}: {row}");
}

/// 37 of 1000 objects a second stay.
#[track_caller]
fn keeps_37_a_second(row: &Value, bytes: u64) {
    // The times of the load and of the parts differ by less than a turn of the load, 10 ms of 4 s.
    let rate = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
    assert!((rate("bytes_per_s") - (37 * bytes) as f64).abs() <= 2.0 * bytes as f64, "{row}");
    let recent_s = rate("recent_ns") / 1e9;
    for (count, per_s) in [("recent_allocs", "allocs_per_s"), ("recent_frees", "frees_per_s")] {
        assert!((rate(per_s) - rate(count) / recent_s).abs() <= 0.5, "{per_s}: {row}");
    }
    // The run began before the load, and ended after it.
    assert!((850.0..=1002.0).contains(&rate("allocs_per_s")), "{row}");
    assert_eq!((rate("freed_pct"), row["least"].as_array().map(Vec::len)), (96.3, Some(8)), "{row}");
}

/// Objects from caches of the kernel's have the names of these, where its events have them.
#[test]
fn objects_of_caches() {
    need_events!(alone);
    let format = std::fs::read_to_string("/sys/kernel/tracing/events/kmem/kmem_cache_alloc/format").unwrap_or_default();
    if !format.contains("char[] name;") {
        skip!("kmem:kmem_cache_alloc has no name");
    }
    let run = watching(&["slab", "-g"]);
    let (load, _) = eventfds();
    let rows = last_rows(&run.interrupt().code(0));
    load.stop();
    for (caller, cache) in [("alloc_empty_file", "filp"), ("__d_alloc", "dentry")] {
        let is = |row: &&Value| row["comm"] == "kalloc" && symbols(row).get(1) == Some(&caller);
        let found: Vec<&Value> = rows.iter().filter(is).map(|row| &row["caches"][0]).collect();
        assert!(!found.is_empty() && found.iter().all(|found| *found == cache), "{caller}: {found:?}");
    }
    assert!(of_eventfd(&rows).iter().all(|row| row["caches"].is_null()), "{rows:?}");
}

#[test]
fn a_flame_graph_of_outstanding_bytes() {
    need_events!(alone);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kept.folded");
    let run = watching(&[KMALLOC, &["--flame-graph", path.to_str().unwrap()]].concat());
    let (load, _) = eventfds();
    run.interrupt().code(0);
    load.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    let of_eventfd = |line: &&str| {
        let frames = line.rsplit_once(' ').unwrap().0.rsplit(';');
        let frames: Vec<&str> = frames.filter(|frame| !is_of_the_tracepoint(frame)).collect();
        line.starts_with("kalloc;") && frames.get(1).is_some_and(|frame| frame.contains("eventfd"))
    };
    let weights = text.lines().filter(of_eventfd).map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    let bytes: u64 = weights.sum();
    assert!((500 * EVENTFD..=520 * EVENTFD).contains(&bytes), "{text}");
}

// Programs

/// Outstanding allocations and bytes of the innermost function of this name.
fn left_by(rows: &[Value], function: &str) -> (u64, u64) {
    let is = |row: &&Value| symbols(row).first().is_some_and(|symbol| symbol.ends_with(&format!("::{function}")));
    let rows: Vec<&Value> = rows.iter().filter(is).collect();
    (rows.iter().map(|row| number(row, "allocs")).sum(), rows.iter().map(|row| number(row, "bytes")).sum())
}

/// Skips the test if programs cannot be probed.
macro_rules! need_uprobes {
    ($turn:ident) => {
        need_events!($turn);
        let done = run(&["kmemleak", "malloc", "-p", &std::process::id().to_string(), "--for", "1ms"]);
        if done.err().contains("no uprobes") {
            skip!("{}", done.err());
        }
    };
}

#[test]
fn a_program_that_leaks() {
    need_uprobes!(alone);
    // It has exited when the report is made.
    let args = ["kmemleak", "malloc", "--call-graph=fp", "--json", "-m", "32M"];
    let done = common::run_over(&args, &[&example("uleak"), "300", "100", "20000"]);
    assert_eq!(load_number(&done.load, "bytes"), 30_000);
    let rows = last_rows(&done);
    assert_eq!(left_by(&rows, "leaky"), (300, 30_000), "{rows:?}");
    assert_eq!(left_by(&rows, "clean"), (0, 0), "{rows:?}");
    let row = rows.iter().find(|row| symbols(row).first().is_some_and(|symbol| symbol.ends_with("::leaky"))).unwrap();
    assert_eq!((number(row, "exited"), row["comm"].as_str()), (300, Some("uleak")), "{row}");
    let end = done.end();
    assert!(number(&end, "total_allocs") >= 20_300 && number(&end, "total_frees") >= 20_000, "{end}");
    assert_eq!((number(&end, "lost"), number(&end, "discarded")), (0, 0), "{end}");
    balances(&end);
}

#[test]
fn every_allocator_of_the_c_library() {
    need_uprobes!(alone);
    let args = ["kmemleak", "malloc", "-g", "--json", "-m", "32M"];
    let done = common::run_over(&args, &[&example("uleak"), "50", "100", "1000", "--all"]);
    let rows = last_rows(&done);
    for (name, bytes) in
        [("", 5000), ("_calloc", 5000), ("_realloc", 5000), ("_memalign", 5000), ("_aligned", 50 * 128)]
    {
        assert_eq!(left_by(&rows, &format!("leaky{name}")), (50, bytes), "{name}: {rows:?}");
        assert_eq!(left_by(&rows, &format!("clean{name}")), (0, 0), "{name}: {rows:?}");
    }
    balances(&done.end());
}

/// Results of posix_memalign that no sample holds: the number outstanding is not known, so no row is exact.
#[test]
fn results_out_of_reach() {
    need_uprobes!(alone);
    let args = ["kmemleak", "malloc", "-g", "--json", "-m", "32M"];
    let done = common::run_over(&args, &[&example("uleak"), "50", "100", "1000", "--far"]);
    let (rows, end) = (last_rows(&done), done.end());
    assert_eq!((left_by(&rows, "leaky_far"), left_by(&rows, "clean_far")), ((0, 0), (0, 0)), "{rows:?}");
    assert!(rows.iter().all(|row| row["verdict"] == "lower_bound") && !rows.is_empty(), "{rows:?}");
    assert_eq!((number(&end, "out_of_reach"), number(&end, "lost")), (1050, 0), "{end}");
    assert!(number(&end, "unmatched_frees") >= 1000, "{end}");
    let intervals = done.of_type("interval");
    assert_eq!(number(intervals.last().expect("an interval"), "out_of_reach"), 1050);
    balances(&end);
}

#[test]
fn two_copies_that_live() {
    need_uprobes!(alone);
    // Without randomization both have the same addresses.
    let copy = || {
        let mut command = std::process::Command::new("setarch");
        command.args(["-R", &example("uleak"), "300", "100", "2000", "--wait"]);
        Load::start(command)
    };
    let mut copies = [copy(), copy()];
    // The number of a process does not change when it executes another program.
    let comm = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    common::until("uleak", || copies.iter().all(|copy| comm(copy.pid()) == "uleak\n"));
    let pids = copies.each_ref().map(|copy| copy.pid().to_string()).join(",");
    let run = watching(&["malloc", "-g", "-p", &pids]);
    for copy in &mut copies {
        copy.tell("go");
        assert_eq!(load_number(&copy.says(), "leaked"), 300);
    }
    let done = run.interrupt().code(0);
    let rows = last_rows(&done);
    assert_eq!(left_by(&rows, "leaky"), (600, 60_000), "{rows:?}");
    assert_eq!(left_by(&rows, "clean"), (0, 0), "{rows:?}");
    let of_leaky = |row: &&Value| symbols(row).first().is_some_and(|symbol| symbol.ends_with("::leaky"));
    let places: Vec<&Value> = rows.iter().filter(of_leaky).collect();
    assert!(places.len() == 1 && number(places[0], "exited") == 0, "one place in one program: {places:?}");
    assert_eq!(done.total("discarded"), 0);
}

/// 400 allocations by `leaky`, each with another address where its caller's frame would be, and 10 by `other`.
const FRAMELESS: &str = r#"
#include <stdlib.h>
struct frame { void *next; long returns_to; void *kept; };
__attribute__((noinline)) void *leaky(void) { char *p = malloc(64); if (p) p[0] = 1; return p; }
__attribute__((noinline)) void *other(void) { char *p = malloc(32); if (p) p[0] = 1; return p; }
int main(void) {
    static struct frame frames[400];
    for (long i = 0; i < 400; i++) {
        frames[i].returns_to = 0x10000000 + 16 * i;
        register struct frame *frame __asm__("rbp") = &frames[i];
        __asm__ volatile("" : "+r"(frame));
        void *kept = leaky();
        __asm__ volatile("" : "+r"(frame));
        frame->kept = kept;
        if (i % 40 == 0 && !other()) return 1;
    }
    return 0;
}
"#;

#[test]
fn stacks_that_break_off_are_one_place() {
    need_uprobes!(alone);
    if !cfg!(target_arch = "x86_64") || !std::path::Path::new("/usr/bin/cc").exists() {
        skip!("needs x86_64 and a C compiler");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("a.c"), dir.path().join("frameless"));
    std::fs::write(&source, FRAMELESS).expect("a source");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-o"]).args([&program, &source]);
    let built = compiler.output().expect("cc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = program.to_str().expect("UTF-8");
    let done = run(&["kmemleak", "malloc", "--call-graph=fp", "--json", "-m", "32M", "--", program]).code(0);
    let rows = last_rows(&done);
    let of = |name: &str| -> Vec<&Value> { rows.iter().filter(|row| symbols(row).first() == Some(&name)).collect() };
    let leaky = of("leaky");
    assert_eq!(leaky.len(), 1, "{rows:#?}");
    assert_eq!((number(leaky[0], "allocs"), number(leaky[0], "bytes")), (400, 400 * 64), "{leaky:#?}");
    assert_eq!(number(leaky[0], "broken_stacks"), 400, "{leaky:#?}");
    assert_eq!(leaky[0]["stack"].as_array().map(Vec::len), Some(1), "{leaky:#?}");
    let other: u64 = of("other").iter().map(|row| number(row, "allocs")).sum();
    assert_eq!(other, 10, "{rows:#?}");
    let sum = |key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    assert_eq!((sum("allocs"), sum("bytes")), (done.total("outstanding"), done.total("outstanding_bytes")));
    balances(&done.end());
    let text = run(&["kmemleak", "malloc", "--call-graph=fp", "-m", "32M", "--", program]).code(0);
    let says = |words: &str| text.out.iter().any(|line| line.contains(words));
    assert!(says("(400 broken stacks: ") && !says(" more: "), "{text:#?}");
}
