//! `--metrics`: a scrape has the numbers of the tables, whatever the output does, and Prometheus reads the same.

#[macro_use]
mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Done, GUARD, Load, Prog, command, example, load_number, number, run, start};
use serde_json::Value;

const FAULTS: u64 = 3000;
const SLEEPS: u64 = 200;

/// The port that a run says it serves on.
fn port(run: &mut Prog) -> u16 {
    let line = run.err_line(|line| line.contains(": metrics at http://127.0.0.1:"));
    let port = line.rsplit(':').next().and_then(|rest| rest.strip_suffix("/metrics"));
    port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// The body of an answer.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    body.to_owned()
}

/// The series of a scrape whose names and labels have all the words, with their values.
fn series(text: &str, words: &[&str]) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = lines.filter_map(|line| line.rsplit_once(' '));
    let wanted = split.filter(|(name, _)| words.iter().all(|word| name.contains(word)));
    wanted.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

fn sum(text: &str, words: &[&str]) -> f64 {
    series(text, words).iter().map(|(_, value)| value).sum()
}

/// Scrapes until what was scraped is as wanted.
fn scrape_until(port: u16, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    common::until(what, || {
        text = get(port, "/metrics");
        wanted(&text)
    });
    text
}

/// A run that has seen so many page faults of a load, which now waits, as a scrape says.
fn scraped_faults(options: &[&str]) -> (Prog, Load, String, u64) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file");
    let path = file.path().to_str().expect("a path in UTF-8");
    let mut load = Load::of(&example("faults"), &[&FAULTS.to_string(), "1", path]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let mut run = start(&[&["page-faults", "-p", &pid, "--json", "--metrics", "0", "-v"], options].concat());
    let port = port(&mut run);
    scrape_until(port, "the events are on", |text| sum(text, &["run_duration_seconds"]) > 0.0);
    load.tell("");
    let minor = load_number(&load.says(), "minor");
    let has_all = |text: &str| sum(text, &["perf_prof_page_faults_minor_total"]) >= minor as f64;
    let text = scrape_until(port, "all faults are in a scrape", has_all);
    (run, load, text, minor)
}

/// Whether a row is one of the table of places: that of files has no minor faults.
fn is_place(row: &Value) -> bool {
    row["table"] == "places"
}

/// The number of minor faults by function, of rows or totals.
fn by_function(rows: &[Value]) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for row in rows.iter().filter(|row| is_place(row)) {
        let place = row["place"].as_str().expect("a place");
        let function = place.split_once("+0x").map_or(place, |(function, _)| function);
        match all.iter_mut().find(|(known, _)| known == function) {
            Some((_, count)) => *count += number(row, "minor"),
            None => all.push((function.to_owned(), number(row, "minor"))),
        }
    }
    all
}

/// Without `-i` the numbers come every second, and yet the run prints one interval, with every row once.
#[test]
fn a_scrape_has_the_numbers_of_the_report() {
    need_events!();
    let (run, _load, text, minor) = scraped_faults(&[]);
    assert_eq!(sum(&text, &["perf_prof_page_faults_minor_total"]), minor as f64);
    let touched =
        series(&text, &["perf_prof_page_faults_minor_total", "function=\"faults::touch\"", "comm=\"faults\""]);
    assert_eq!(touched.iter().map(|(_, count)| *count as u64).collect::<Vec<_>>(), [FAULTS]);
    assert_eq!(sum(&text, &["perf_prof_run_lost_total"]), 0.0);
    assert_eq!(sum(&text, &["perf_prof_run_table_verdict", "table=\"places\"", "verdict=\"exact\""]), 1.0);
    assert!(text.contains("# TYPE perf_prof_page_faults_minor counter\n") && text.ends_with("# EOF\n"), "{text}");
    assert!(sum(&text, &["run_duration_seconds"]) > 1.0, "it is not the first publication");
    let done = run.interrupt().code(0);
    let [interval] = &done.of_type("interval")[..] else { panic!("one interval: {done:#?}") };
    assert_eq!((number(interval, "interval"), number(interval, "samples")), (1, done.total("samples")));
    assert!(done.of_type("total").is_empty(), "the interval is the whole run");
    let rows = done.of_type("row");
    assert_eq!(done.sum("minor", is_place), minor);
    let mut places: Vec<&str> = rows.iter().filter_map(|row| row["place"].as_str()).collect();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count, "each row once: {rows:#?}");
    for (function, count) in by_function(&rows) {
        let told = sum(&text, &["minor_total", &format!("function=\"{function}\"")]);
        assert!(told == count as f64 || function.starts_with('('), "{function}: {told}, not {count}");
    }
    assert_eq!(number(&done.end(), "intervals"), 1);
}

#[test]
fn intervals_are_published_as_they_are_printed() {
    need_events!();
    let (run, _load, text, minor) = scraped_faults(&["-i", "50"]);
    let done = run.interrupt().code(0);
    assert!(number(&done.end(), "intervals") > 1);
    let of_run: u64 = done.of_type("total").iter().filter(|row| is_place(row)).map(|row| number(row, "minor")).sum();
    assert_eq!((of_run, sum(&text, &["page_faults_minor_total"])), (minor, minor as f64));
}

/// What belongs to no row is told, too, and no scrape is ahead of the end.
/// Metrics take the tables of an interval in parts, which changes nothing of what is printed.
#[test]
fn tables_are_printed_in_the_same_order() {
    need_events!();
    for metrics in [&[][..], &["--metrics", "127.0.0.1:0"]] {
        let done = run(&[&["rundelay", "-i", "1500", "--for", "2"], metrics].concat()).code(0);
        let heads = done.out.iter().filter(|line| line.contains(", interval 1, "));
        let titles: Vec<&str> = heads.filter_map(|line| line.rsplit(": ").next()).collect();
        // Sums, and below them a snapshot.
        let wanted = ["waits for a CPU", "run queues", "longest waits so far"];
        let places = wanted.map(|wanted| titles.iter().position(|title| *title == wanted));
        assert!(places.is_sorted() && !places.contains(&None), "{metrics:?}: {titles:?}");
    }
}

#[test]
fn totals_are_published() {
    need_events!();
    let mut run = start(&["kmemleak", "slab", "--json", "-i", "50", "--metrics", "0"]);
    let port = port(&mut run);
    let allocs = "perf_prof_kmemleak_run_allocs_total";
    let text = scrape_until(port, "allocations", |text| sum(text, &[allocs]) > 0.0);
    let later = scrape_until(port, "more of them", |later| sum(later, &[allocs]) > sum(&text, &[allocs]));
    for word in ["run_frees_total", "run_unmatched_frees_total", "run_outstanding ", "run_outstanding_bytes "] {
        assert!(later.contains(word), "{word}: {later}");
    }
    let done = run.interrupt().code(0);
    assert!(number(&done.end(), "total_allocs") as f64 >= sum(&later, &[allocs]), "{done:?}");
}

/// A report on SIGUSR1 has what came before it, and the next one what came after; the whole run has both.
#[test]
fn a_report_in_mid_run_is_a_part_of_the_whole() {
    need_events!();
    let (mut run, mut load, _, minor) = scraped_faults(&[]);
    run.signal(nix::sys::signal::Signal::SIGUSR1);
    let first = run.object(|object| object["type"] == "interval");
    load.tell("");
    let done = run.finish().code(0); // the load ends, and so does the run
    let minor_of = |kind: &str, interval: Option<u64>| -> u64 {
        let rows = done.of_type(kind).into_iter().filter(is_place);
        rows.filter(|row| row["interval"].as_u64() == interval).map(|row| number(&row, "minor")).sum()
    };
    let intervals = done.of_type("interval");
    assert_eq!((number(&first, "interval"), intervals.len()), (1, 2), "{done:#?}");
    assert_eq!(intervals[0]["end_ns"], intervals[1]["start_ns"]);
    assert_eq!(minor_of("row", Some(1)), minor);
    assert_eq!(minor_of("total", None), minor + minor_of("row", Some(2)));
}

/// Nobody reads the output, and a scrape is answered from what was published last.
#[test]
fn a_blocked_output_blocks_no_scrape() {
    need_events!();
    let mut trace =
        command(&["run", "--json", "-i", "20", "--metrics", "0", "trace -e raw_syscalls:sys_enter", "task-state"]);
    let (unread, pipe) = std::io::pipe().expect("a pipe");
    let errors = tempfile::NamedTempFile::new().expect("a file");
    trace.stdin(Stdio::null()).stdout(pipe).stderr(errors.reopen().expect("the file"));
    let mut child = Killed(trace.spawn().expect("perf-prof"));
    drop(trace);
    let said = || std::fs::read_to_string(errors.path()).expect("the file");
    common::until("the output stands still", || said().contains("the output has been at a standstill"));
    let line = said().lines().find(|line| line.contains("metrics at")).map(str::to_owned).expect("a port");
    let port = line.trim_end_matches("/metrics").rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    for _ in 0..20 {
        let text = get(port, "/metrics");
        assert!(text.ends_with("# EOF\n") && text.contains("perf_prof_run_samples_total{view=\"trace\"}"), "{text}");
        assert_eq!(get(port, "/healthz"), "ok\n");
    }
    drop(unread);
    assert!(common::ends_within(child.0.id() as i32, GUARD), "the reader has gone");
    child.0.wait().expect("wait");
}

/// Ended with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_address_that_cannot_be_used_is_an_error() {
    need_events!();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let done = run(&["page-faults", "--for", "1", "--metrics", &port]).code(1);
    let [line] = &done.err[..] else { panic!("one sentence: {done:#?}") };
    assert!(line.contains(&format!("cannot listen on 127.0.0.1:{port} for --metrics: ")), "{line}");
    for text in ["x", "127.0.0.1", "localhost:80", "70000"] {
        run(&["page-faults", "--metrics", text]).code(2).says(&["--metrics", "0.0.0.0:9100"]);
    }
}

/// A task that sleeps so many times and waits then; the run over it, and a scrape that has all the sleeps.
fn scraped_sleeps() -> (Prog, Load, u16, String) {
    let mut load = Load::shell();
    load.tell("echo ready");
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let mut run = start(&["task-state", "-t", &pid, "--json", "--metrics", "0", "-v"]);
    let port = port(&mut run);
    scrape_until(port, "the events are on", |text| sum(text, &["run_duration_seconds"]) > 0.0);
    for _ in 0..SLEEPS {
        load.tell("echo done"); // it sleeps until that line comes
        assert_eq!(load.says(), "done");
    }
    let counted = |text: &str| sum(text, &["task_state_seconds_count"]);
    common::until("it waits for a line", || common::state_letter(load.pid() as u64) == Some('S'));
    // Two publications with equal numbers: they do not change any more.
    let mut last = -1.0;
    common::until("all its sleeps are counted", || {
        let text = get(port, "/metrics");
        let (before, published) = (last, sum(&text, &["run_duration_seconds"]));
        last = counted(&text) + published / 1e9;
        before.floor() == last.floor() && before != last && counted(&text) > 0.0
    });
    let text = get(port, "/metrics");
    (run, load, port, text)
}

/// Count, sum and buckets of a distribution are those of the report.
#[test]
fn distributions_are_exact() {
    need_events!();
    let (run, _load, _, text) = scraped_sleeps();
    let done = run.interrupt().code(0);
    let rows = done.of_type("row");
    assert!(!rows.is_empty());
    for row in rows.iter().filter(|row| number(row, "count") > 0) {
        let state = format!("state=\"{}\"", row["state"].as_str().expect("a state"));
        let of = |words: &[&str]| sum(&text, &[words, &[&state]].concat());
        let count = of(&["task_state_seconds_count"]);
        assert_eq!(count, number(row, "count") as f64, "{row}");
        assert_eq!(of(&["task_state_seconds_bucket", "le=\"+Inf\""]), count);
        let buckets = series(&text, &["task_state_seconds_bucket", &state]);
        assert!(buckets.is_sorted_by(|one, other| one.1 <= other.1), "{buckets:?}");
        let bound = |name: &str| name.split("le=\"").nth(1).and_then(|le| le.split('"').next()?.parse::<f64>().ok());
        // The median is in the bucket where half of the values are reached.
        let median = number(row, "p50_ns") as f64 / 1e9;
        let reached = buckets.iter().find(|(_, below)| *below >= (count / 2.0).ceil()).expect("a bucket");
        assert!(bound(&reached.0).expect("a bound") >= median * (1.0 - 0.023), "{row}: {reached:?}");
        let mean = of(&["task_state_seconds_sum"]) / count;
        let least = number(row, "min_ns") as f64 / 1e9;
        assert!(least <= mean * (1.0 + 1e-9), "{row}: {mean}");
    }
}

/// Debian's Prometheus scrapes a run, and has its numbers; native histograms too.
#[test]
fn prometheus_has_our_numbers() {
    need_events!();
    if !Path::new("/usr/bin/prometheus").exists() {
        skip!("no prometheus");
    }
    let (run, _load, port, text) = scraped_sleeps();
    let prometheus = Prometheus::scraping(port);
    let state = series(&text, &["task_state_seconds_count"]);
    let (name, count) = state.iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("a state");
    let labels = &name[name.find('{').expect("labels")..];
    let told = |query: String| prometheus.number(&query);
    let native = format!("perf_prof_task_state_nanoseconds{labels}");
    prometheus.until(&format!("histogram_count({native})"), *count);
    let sum_s = sum(&text, &["task_state_seconds_sum", labels.trim_matches(['{', '}'])]);
    let near = |one: f64, other: f64| (one - other).abs() <= other.abs() * 1e-12;
    let sum_ns = told(format!("histogram_sum({native})")).expect("a sum");
    assert!(near(sum_ns / 1e9, sum_s), "{sum_ns} ns, not {sum_s} s");
    assert_eq!(told(format!("perf_prof_task_state_seconds_count{labels}")), Some(*count));
    assert!(near(told(format!("perf_prof_task_state_seconds_sum{labels}")).expect("a sum"), sum_s));
    let bucket = series(&text, &["task_state_seconds_bucket", labels.trim_matches(['{', '}']), "le=\"0.001048576\""]);
    let query =
        format!("perf_prof_task_state_seconds_bucket{}", &bucket[0].0[bucket[0].0.find('{').expect("labels")..]);
    assert_eq!(told(query), Some(bucket[0].1));
    let samples = sum(&text, &["run_samples_total"]);
    assert_eq!(told("perf_prof_run_samples_total".to_owned()), Some(samples));
    let median_ns = told(format!("histogram_quantile(0.5, {native})")).expect("a quantile");
    let done: Done = run.interrupt().code(0);
    let letter = labels.split('"').nth(1).expect("a state");
    let row = done.of_type("row").into_iter().find(|row| row["state"] == letter).expect("a row");
    assert_eq!(number(&row, "count") as f64, *count);
    // Both are somewhere in the same bucket.
    let ours_ns = number(&row, "p50_ns") as f64;
    assert!((median_ns - ours_ns).abs() <= ours_ns * 0.046, "{median_ns}, not {ours_ns}");
    println!("{native}: count {count}, sum {sum_ns} ns, median {median_ns} ns, ours {ours_ns} ns");
}

/// A Prometheus of its own, in a directory of its own.
struct Prometheus {
    process: Killed,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn scraping(target: u16) -> Prometheus {
        let dir = tempfile::tempdir().expect("a directory");
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: test\n    static_configs:\n      - targets: \
             [\"127.0.0.1:{target}\"]\n"
        );
        std::fs::write(dir.path().join("prometheus.yml"), config).expect("written");
        // It cannot choose a port itself.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let mut command = Command::new("/usr/bin/prometheus");
        command.current_dir(dir.path()).args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--enable-feature=native-histograms",
            &format!("--web.listen-address={free}"),
        ]);
        let log = std::fs::File::create(dir.path().join("log")).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Killed(command.spawn().expect("prometheus"));
        Prometheus { process, port: free.port(), _dir: dir }
    }

    /// The value of a query with one result. None: there is none yet.
    fn number(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let object: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        object["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    fn until(&self, query: &str, wanted: f64) {
        let until = Instant::now() + GUARD;
        let mut last = None;
        while last != Some(wanted) {
            assert!(Instant::now() < until, "{query}: {last:?}, not {wanted}");
            assert!(Path::new(&format!("/proc/{}", self.process.0.id())).exists(), "Prometheus has ended");
            std::thread::sleep(Duration::from_millis(100)); // between two looks
            last = self.number(query);
        }
    }
}
