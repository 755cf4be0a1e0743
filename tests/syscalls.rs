//! syscalls: counts, errors and lengths against programs whose calls are known.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::PipeWriter;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    Again, Attempted, Done, Prog, attempts, example, load_number, number, online_cpus, or_again, own_tid, run,
    run_over, start_watching, state_letter, until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The rows of a table.
fn table(done: &Done, name: &str) -> Vec<Value> {
    done.of_type("row").into_iter().filter(|row| row["table"] == name).collect()
}

/// The only row of a call.
#[track_caller]
fn row_of(done: &Done, name: &str, call: &str) -> Value {
    let rows: Vec<Value> = table(done, name).into_iter().filter(|row| row["call"] == call).collect();
    let [row] = &rows[..] else { panic!("one row of {call}: {rows:#?} in {done:#?}") };
    row.clone()
}

/// Fails to open a file that is not there.
fn open_nothing() {
    let path = CString::new("/nonexistent/file").unwrap();
    // SAFETY: the path is a C string that outlives the call.
    assert_eq!(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY) }, -1);
}

#[test]
fn every_call_counts_once() {
    need_events!();
    let done = run_over(&["syscalls", "--json", "-m", "4M"], &[&example("flood"), "10000"]);
    assert_eq!(number(&done.end(), "lost"), 0, "{}", done.end());
    let row = row_of(&done, "calls", "getppid");
    assert_eq!((number(&row, "count"), number(&row, "errors")), (load_number(&done.load, "calls"), 0), "{row}");
    assert_eq!(
        (row["verdict"].as_str(), row["no_start"].as_u64(), row["earlier"].as_u64()),
        (Some("exact"), Some(0), Some(0))
    );
    let of = |key: &str| number(&row, key);
    assert!(of("min_ns") > 0 && of("min_ns") <= of("p50_ns") && of("p50_ns") <= of("p99_ns"), "{row}");
    assert!(of("p99_ns") <= of("max_ns") && of("max_ns") <= of("total_ns"), "{row}");
    assert!(of("total_ns") <= load_number(&done.load, "wall_ns"), "calls of one thread do not overlap: {row}");
    assert_eq!((row["max_tid"].as_u64(), &row["max_comm"]), (Some(load_number(&done.load, "pid")), &"flood".into()));
    assert_eq!(number(&row_of(&done, "endings", "exit_group"), "count"), 1);
    assert!(table(&done, "open").is_empty(), "{done:#?}");
}

#[test]
fn intervals_add_up() {
    need_events!();
    let done = run_over(&["syscalls", "--json", "-i", "5", "-m", "16M"], &[&example("flood"), "20000"]);
    assert!(done.of_type("interval").len() > 1);
    let of = |kind: &str| {
        let rows = done.of_type(kind).into_iter().filter(|row| row["call"] == "getppid" && row["table"] == "calls");
        rows.map(|row| number(&row, "count")).sum::<u64>()
    };
    assert_eq!((of("row"), of("total")), (20_000, 20_000));
}

/// It begins as a call of the thread, and ends as one of the first thread.
#[test]
fn an_exec_by_another_thread_has_a_line() {
    need_events!();
    let options = ["syscalls", "--calls", "execve", "--than", "1us", "--json"];
    let done = run_over(&options, &[&example("takeover"), "1", "/bin/true"]);
    let row = row_of(&done, "calls", "execve");
    // That of the workload itself began before the run.
    assert_eq!((number(&row, "count"), number(&row, "no_start")), (1, 1), "{row}");
    let lines = done.of_type("event");
    let pid = load_number(&done.load, "pid");
    assert!(lines.iter().any(|line| line["tid"] == pid && line["ret"] == 0 && line["run_ns"].is_u64()), "{lines:#?}");
}

#[test]
fn errors_are_counted_by_name() {
    need_events!();
    const FAILED: u64 = 321;
    let tid = own_tid().to_string();
    let fail = || (0..FAILED).for_each(|_| open_nothing());
    let trace = start_watching(&["syscalls", "--errors", "-t", &tid]);
    fail();
    let done = trace.interrupt().code(0);
    let rows: Vec<Value> = table(&done, "errors").into_iter().filter(|row| row["call"] == "openat").collect();
    let [row] = &rows[..] else { panic!("{done:#?}") };
    assert_eq!((&row["error"], number(row, "count")), (&"ENOENT".into(), FAILED), "{row}");
    assert_eq!(number(row, "pid"), u64::from(std::process::id()), "{row}");
    assert!(number(row, "per_s") > 0 || done.of_type("interval").len() > 1, "{row}");
    assert!(done.of_type("row").iter().all(|row| row["table"] == "errors"), "nothing else was asked for");
    // The other tables have the same number.
    let trace = start_watching(&["syscalls", "--calls", "openat,getppid", "-t", &tid]);
    fail();
    common::getppid();
    let done = trace.interrupt().code(0);
    let openat = row_of(&done, "calls", "openat");
    assert_eq!((number(&openat, "count"), number(&openat, "errors")), (FAILED, FAILED), "{openat}");
    assert_eq!(number(&row_of(&done, "calls", "getppid"), "errors"), 0);
    assert_eq!(table(&done, "calls").len(), 2, "only these were asked for: {done:#?}");
}

/// connect returns EINPROGRESS and the program asks for the error later.
#[test]
fn the_error_of_a_connection_in_the_background_is_connects() {
    need_events!();
    const FAILED: usize = 7;
    let tid = own_tid().to_string();
    let trace = start_watching(&["syscalls", "--errors", "-t", &tid]);
    for _ in 0..FAILED {
        connect_in_background([127, 0, 0, 1], 9, Some(libc::ECONNREFUSED));
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    connect_in_background([127, 0, 0, 1], listener.local_addr().unwrap().port(), Some(0));
    let done = trace.interrupt().code(0);
    // The test waits for the run.
    let rows: Vec<Value> = table(&done, "errors").into_iter().filter(|row| row["call"] != "futex").collect();
    let [row] = &rows[..] else { panic!("{done:#?}") };
    assert_eq!((&row["call"], &row["error"]), (&"connect".into(), &"ECONNREFUSED".into()), "{row}");
    assert_eq!((&row["address"], number(row, "count")), (&"127.0.0.1:9".into(), FAILED as u64), "{row}");
    // In the table of all calls, where the outcome has no place.
    let trace = start_watching(&["syscalls", "--calls", "connect", "-t", &tid]);
    connect_in_background([127, 0, 0, 1], 9, None);
    let row = row_of(&trace.interrupt().code(0), "calls", "connect");
    assert_eq!((number(&row, "count"), number(&row, "errors")), (1, 0), "{row}");
}

/// A connection that is made or refused before this returns. `want`: what the program is told of it, if it asks.
fn connect_in_background(ip: [u8; 4], port: u16, want: Option<i32>) {
    // SAFETY: each call is given a descriptor of its own and memory of the size that is told with it.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        assert!(fd >= 0);
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
            sin_zero: [0; 8],
        };
        let size = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::connect(fd, (&raw const address).cast(), size), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINPROGRESS));
        let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        assert_eq!(libc::poll(&raw mut poll, 1, 10_000), 1);
        if let Some(want) = want {
            let (mut errno, mut size) = (-1, 4);
            let told = (&raw mut errno, &raw mut size);
            assert_eq!(libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, told.0.cast(), told.1), 0);
            assert_eq!(errno, want);
        }
        libc::close(fd);
    }
}

/// Asks for intervals until one has a row that is wanted.
fn await_row(trace: &mut Prog, wanted: impl Fn(&Value) -> bool) -> Value {
    trace.signal(Signal::SIGUSR1);
    loop {
        let object = trace.object(|object| object["type"] == "interval" || object["type"] == "row" && wanted(object));
        if object["type"] == "row" {
            return object;
        }
        trace.signal(Signal::SIGUSR1);
    }
}

/// A thread that reads a byte from a pipe when it is told to: its number, what tells it, and the other end.
fn reader_of_a_pipe() -> (i32, Sender<()>, PipeWriter, JoinHandle<usize>) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let ((tell, told), (go, gone)) = (channel(), channel::<()>());
    let thread = thread::spawn(move || {
        tell.send(own_tid()).expect("the test");
        gone.recv().expect("the test");
        std::io::Read::read(&mut reader, &mut [0]).expect("the pipe")
    });
    let tid = told.recv().expect("the thread");
    (tid, go, writer, thread)
}

#[test]
fn a_call_that_goes_on_has_a_row() {
    need_events!();
    let (tid, go, writer, thread) = reader_of_a_pipe();
    let mut trace = start_watching(&["syscalls", "-t", &tid.to_string()]);
    go.send(()).expect("the thread");
    let is_read = |row: &Value| row["table"] == "open" && row["call"] == "read";
    let first = await_row(&mut trace, is_read);
    let second = await_row(&mut trace, is_read);
    assert_eq!((number(&first, "tid"), number(&first, "pid")), (tid as u64, u64::from(std::process::id())), "{first}");
    assert!(number(&second, "age_ns") > number(&first, "age_ns"), "{first} {second}");
    assert_eq!(first["since_ns"], second["since_ns"]);
    drop(writer);
    thread.join().expect("the reader");
    let done = trace.interrupt().code(0);
    // It began in one interval and ended in another, which is told.
    let ended = table(&done, "calls").into_iter().find(|row| row["call"] == "read" && row["count"] == 1);
    let ended = ended.unwrap_or_else(|| panic!("{done:#?}"));
    assert_eq!(number(&ended, "earlier"), 1, "{ended}");
    assert!(number(&ended, "max_ns") >= number(&second, "age_ns"), "{ended}");
    let last = done.of_type("interval").pop().expect("an interval");
    assert_eq!(number(&last, "cut_off"), 0, "{last}");
}

#[test]
fn a_wait_by_design_is_told_apart() {
    need_events!();
    const SLEEP: Duration = Duration::from_millis(30);
    let tid = own_tid().to_string();
    let trace = start_watching(&["syscalls", "-t", &tid, "--than", "20ms"]);
    let start = Instant::now();
    for _ in 0..3 {
        thread::sleep(SLEEP); // the load: a sleep of known length
    }
    let slept = start.elapsed();
    let done = trace.interrupt().code(0);
    let row = row_of(&done, "waits", "clock_nanosleep");
    assert_eq!((number(&row, "count"), number(&row, "than")), (3, 3), "{row}");
    let total = u128::from(number(&row, "total_ns"));
    assert!(total >= 3 * SLEEP.as_nanos() && total <= slept.as_nanos(), "{row} {slept:?}");
    assert!(table(&done, "calls").iter().all(|row| row["call"] != "clock_nanosleep"), "{done:#?}");
}

/// The length of an event, and the sum of its parts.
fn parts_of(event: &Value) -> (u64, u64) {
    let parts = ["run_ns", "ready_ns", "sleep_ns", "disk_ns", "other_ns", "unseen_ns"];
    (number(event, "duration_ns"), parts.iter().map(|part| event[*part].as_u64().unwrap_or(0)).sum())
}

#[test]
fn a_slow_call_tells_where_its_time_went() {
    need_events!();
    attempts(try_a_slow_call);
}

fn try_a_slow_call() -> Attempted {
    const WAIT: Duration = Duration::from_millis(300);
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let ((tell, told), (go, gone)) = (channel(), channel::<()>());
    let thread = thread::spawn(move || {
        tell.send(own_tid()).expect("the test");
        gone.recv().expect("the test");
        let read = std::io::Read::read(&mut reader, &mut [0]).expect("the pipe");
        gone.recv().expect("the test"); // the descriptor stays open until then
        read
    });
    let tid = told.recv().expect("the thread");
    let mut trace = start_watching(&["syscalls", "--than", "50ms", "-t", &tid.to_string()]);
    go.send(()).expect("the thread");
    let is_read = |object: &Value| object["type"] == "event" && object["call"] == "read";
    let open = trace.object(|object| is_read(object) && object["still_open"] == true);
    thread::sleep(WAIT); // the load: the call lasts so long at least
    std::io::Write::write_all(&mut writer, b"x").expect("the pipe");
    let ended = trace.object(|object| is_read(object) && object["still_open"] == false);
    go.send(()).expect("the thread");
    assert_eq!(thread.join().expect("the reader"), 1);
    for event in [&open, &ended] {
        let (length, sum) = parts_of(event);
        assert_eq!(length, sum, "the parts add up: {event}");
        assert_eq!(number(event, "tid"), tid as u64, "{event}");
        let text = event["text"].as_str().expect("text");
        assert!(text.starts_with("read(") && text.contains("<pipe:["), "{event}");
    }
    assert!(number(&ended, "duration_ns") >= number(&open, "duration_ns") + WAIT.as_nanos() as u64, "{open} {ended}");
    assert!(ended["text"].as_str().is_some_and(|text| text.ends_with(", 1) = 1")), "{ended}");
    assert_eq!((&ended["ret"], &open["ret"]), (&1.into(), &Value::Null));
    let done = trace.interrupt().code(0);
    let row = row_of(&done, "calls", "read");
    assert_eq!((number(&row, "than"), row["than_pct"].as_f64()), (1, Some(100.0)), "{row}");
    // It was asleep when it was looked at. (How the sleep ended may go unseen while a CPU hides its idle task.)
    or_again(open["sleep_ns"].as_u64() > Some(100_000_000), &[Again::RecordsLost(&done)], || open.to_string())
}

/// A call that goes on while records are lost is still shown: /proc has it.
#[test]
fn a_call_that_outlives_a_loss_is_shown() {
    need_events!(alone); // the threads of other tests would cause losses of their own
    watch_a_call_over_a_loss(false);
}

/// So is one whose beginning is among them.
#[test]
fn a_call_that_began_in_a_loss_is_shown() {
    need_events!(alone);
    watch_a_call_over_a_loss(true);
}

/// So many calls on each CPU.
fn make_calls(number: u32) {
    let make = move || {
        for cpu in online_cpus() {
            let mut only = nix::sched::CpuSet::new();
            only.set(cpu as usize).expect("the number of a CPU");
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &only).expect("the CPU");
            for _ in 0..number {
                nix::unistd::getppid();
            }
        }
    };
    thread::spawn(make).join().expect("the thread");
}

fn watch_a_call_over_a_loss(begins_in_it: bool) {
    let (tid, go, mut writer, thread) = reader_of_a_pipe();
    let pid = std::process::id().to_string();
    let mut trace = start_watching(&["syscalls", "--than", "1s", "--calls", "read,getppid", "-m", "64", "-p", &pid]);
    let begin = || {
        go.send(()).expect("the thread");
        until("the thread reads", || {
            let call = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_read))
        });
    };
    if !begins_in_it {
        begin();
    }
    trace.stopped(|| {
        make_calls(50_000);
        if begins_in_it {
            begin();
        }
    });
    // The next record of each CPU tells of its loss: not that of the end of the call.
    make_calls(1);
    let is_read = |object: &Value| object["type"] == "event" && object["tid"] == tid;
    let open = trace.object(is_read);
    std::io::Write::write_all(&mut writer, b"x").expect("the pipe");
    let ended = trace.object(is_read);
    assert_eq!(thread.join().expect("the reader"), 1);
    for (event, still_open) in [(&open, true), (&ended, false)] {
        let (length, sum) = parts_of(event);
        assert!(length == sum && length >= 1_000_000_000, "the parts add up: {event}");
        assert_eq!((&event["since"], &event["still_open"]), (&"before_loss".into(), &still_open.into()), "{event}");
        assert_eq!(event["call"], "read", "{event}");
    }
    let done = trace.interrupt().code(0);
    assert!(number(&done.end(), "lost") > 0, "{done:?}");
}

/// The parent of a vfork is in D state until the child has executed a program.
#[test]
fn a_call_in_d_state_tells_at_which_function() {
    need_events!();
    let done =
        run_over(&["syscalls", "--json", "--than", "100ms", "--calls", "clone"], &[&example("dstate"), "1", "150"]);
    let events = done.of_type("event");
    let ended: Vec<&Value> = events.iter().filter(|event| event["still_open"] == false).collect();
    let [event] = ended[..] else { panic!("{done:#?}") };
    let (length, sum) = parts_of(event);
    assert!(length == sum && length >= 150_000_000, "{event}");
    assert!(number(event, "disk_ns") + event["unseen_ns"].as_u64().unwrap_or(0) >= 100_000_000, "{event}");
    let place = event["waits_at"].as_str().expect("a function of the kernel");
    assert!(!place.contains("schedule"), "not where every wait ends up: {event}");
}

#[test]
fn arguments_have_names() {
    need_events!();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a path in UTF-8");
    let tid = own_tid().to_string();
    let mut trace = start_watching(&["syscalls", "--lower", "1000s", "--calls", "openat,kill", "-t", &tid]);
    let opened = std::fs::File::open(path).expect("the file");
    // SAFETY: no process has this number.
    unsafe { libc::syscall(libc::SYS_kill, i32::MAX, libc::SIGTERM) };
    let openat = trace.object(|object| object["type"] == "event" && object["call"] == "openat");
    let kill = trace.object(|object| object["type"] == "event" && object["call"] == "kill");
    drop(opened);
    trace.interrupt().code(0);
    let text = openat["text"].as_str().expect("text");
    assert!(text.starts_with("openat(AT_FDCWD, ") && text.contains(", O_RDONLY|O_CLOEXEC) = "), "{openat}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("our mounts");
    let device = text.split_once(&format!("<{path}> on ")).map(|(_, device)| format!("{device} "));
    let is_mounted = |device: &String| mounts.lines().any(|mount| mount.starts_with(device));
    assert!(device.as_ref().is_some_and(is_mounted), "the descriptor leads to the file and its device: {openat}");
    assert_eq!((&kill["text"], &kill["error"]), (&"kill(2147483647, SIGTERM) = -1 ESRCH".into(), &"ESRCH".into()));
}

#[test]
fn waits_by_design_have_lines_if_they_are_named() {
    need_events!();
    let tid = own_tid().to_string();
    let shown = |options: &[&str]| {
        let trace = start_watching(&[&["syscalls", "-t", &tid, "--than", "5ms"], options].concat());
        thread::sleep(Duration::from_millis(10)); // the load
        let done = trace.interrupt().code(0);
        assert_eq!(number(&row_of(&done, "waits", "clock_nanosleep"), "than"), 1);
        done.of_type("event").iter().filter(|event| event["call"] == "clock_nanosleep").count()
    };
    assert_eq!(shown(&[]), 0);
    assert_eq!(shown(&["--calls", "clock_nanosleep"]), 1);
}

/// Each process ends with a call that never returns: the table of calls that go on stays empty.
#[test]
fn ends_of_tasks_leave_nothing_open() {
    need_events!();
    let script = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done";
    let done = run_over(&["syscalls", "--json", "-m", "4M"], &["sh", "-c", script]);
    assert_eq!(number(&done.end(), "lost"), 0, "{}", done.end());
    assert_eq!(number(&row_of(&done, "endings", "exit_group"), "count"), 301);
    assert!(table(&done, "open").is_empty(), "{done:#?}");
    // The exec of the shell began before the events were on; its children's were seen whole.
    let execve = row_of(&done, "calls", "execve");
    assert_eq!((number(&execve, "count"), number(&execve, "no_start")), (300, 1), "{execve}");
    let interval = done.of_type("interval").pop().expect("an interval");
    assert_eq!((number(&interval, "in_flight"), number(&interval, "cut_off")), (0, 0), "{interval}");
}

/// A call that has hung since before the run is in no event: /proc tells of it.
#[test]
fn a_call_that_hangs_already_is_seen() {
    need_events!();
    let mut load = common::Load::shell();
    load.tell("echo ready");
    load.says();
    let pid = load.pid();
    until("the shell reads", || state_letter(pid as u64) == Some('S'));
    let mut trace = start_watching(&["syscalls", "-p", &pid.to_string(), "--than", "1ms", "-i", "100"]);
    let is_its = |row: &Value| row["call"] == "read" && row["since"] == "before_start";
    let row = await_row(&mut trace, |row| row["table"] == "open" && is_its(row));
    assert_eq!((number(&row, "tid"), row.get("since_ns")), (pid as u64, None), "{row}");
    let line = trace.object(|object| object["type"] == "event" && is_its(object));
    assert_eq!(line["still_open"], true, "{line}");
    assert!(line["text"].as_str().is_some_and(|text| text.starts_with("read(0<pipe:")), "{line}");
    load.tell("echo on");
    load.says();
    let line = trace.object(|object| object["type"] == "event" && is_its(object) && object["still_open"] == false);
    assert_eq!(number(&line, "ret"), 8, "{line}");
    let done = trace.interrupt().code(0);
    assert_eq!(done.sum("no_start", |row| row["call"] == "read"), 1, "it has no length");
    let last = done.of_type("interval").pop().expect("an interval");
    let is_last = |row: &&Value| row["interval"] == last["interval"];
    assert!(!table(&done, "open").iter().filter(is_last).any(is_its), "{done:#?}");
    load.stop();
}

#[test]
fn a_task_that_is_killed_leaves_its_call() {
    need_events!();
    let mut load = common::Load::shell();
    let mut trace = start_watching(&["syscalls", "-p", &load.pid().to_string()]);
    load.tell("sleep 1000 & echo started");
    load.says();
    await_row(&mut trace, |row| row["table"] == "open" && row["comm"] == "sleep" && row["call"] == "clock_nanosleep");
    load.tell("kill -9 $!; wait; echo over");
    load.says();
    load.stop();
    let done = trace.interrupt().code(0);
    // The signal ends the call before it ends the task.
    let sleeps = |row: &Value| row["call"] == "clock_nanosleep";
    assert_eq!((done.sum("interrupted", sleeps), done.sum("errors", sleeps)), (1, 0));
    let last = done.of_type("interval").pop().expect("an interval");
    assert_eq!((number(&last, "in_flight"), number(&last, "cut_off")), (0, 0), "{last}");
}

/// The thread that executes a program takes the number of the first thread, while it is in the call.
#[test]
fn an_exec_by_another_thread_is_one_call() {
    need_events!();
    let script = "import os, threading; threading.Thread(target=lambda: os.execv('/bin/true', ['true'])).start()\n\
        while True: pass";
    if !Command::new("python3").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip!("no python3");
    }
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let python = String::from_utf8(python.stdout).expect("a path");
    let done = run_over(&["syscalls", "--json", "--calls", "execve"], &[python.trim(), "-c", script]);
    let execve = row_of(&done, "calls", "execve");
    assert_eq!((number(&execve, "count"), number(&execve, "no_start")), (1, 1), "{execve}");
}

#[test]
fn threads_have_rows_of_their_own() {
    need_events!();
    let script = "for i in 1 2; do sh -c 'kill -0 $$'; done";
    let done = run_over(&["syscalls", "--json", "--perins", "--calls", "kill"], &["sh", "-c", script]);
    let rows = table(&done, "calls");
    let tids: Vec<u64> = rows.iter().map(|row| number(row, "tid")).collect();
    assert!(rows.len() == 2 && tids[0] != tids[1] && rows.iter().all(|row| row["comm"] == "sh"), "{rows:#?}");
    assert!(rows.iter().all(|row| row["count"] == 1), "{rows:#?}");
}

/// strace counts the same calls and the same errors of the same process.
#[test]
fn strace_agrees() {
    need_events!();
    if !Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip!("no strace");
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a path in UTF-8");
    let load = ["strace", "-f", "-c", "-o", path, &example("flood"), "500"];
    let done = run_over(&["syscalls", "--json", "--perins", "-m", "4M"], &load);
    let text = std::fs::read_to_string(path).expect("the table of strace");
    let mut strace = counts_of_strace(&text);
    strace.retain(|call, _| call != "execve" && call != "exit_group");
    let rows = ["calls", "waits"].iter().flat_map(|name| table(&done, name)).filter(|row| row["comm"] == "flood");
    let counts = |row: &Value| (number(row, "count"), number(row, "errors"));
    let ours: BTreeMap<String, (u64, u64)> =
        rows.map(|row| (row["call"].as_str().expect("a name").to_owned(), counts(&row))).collect();
    assert_eq!(ours.get("getppid"), Some(&(500, 0)));
    assert_eq!(ours, strace, "{text}");
}

/// By name: calls and errors.
fn counts_of_strace(text: &str) -> BTreeMap<String, (u64, u64)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, calls, rest @ ..] = &words[..] else { return None };
        let (errors, name) = match rest {
            [name] => (0, name),
            [errors, name] => (errors.parse().ok()?, name),
            _ => return None,
        };
        (*name != "total").then_some((name.to_string(), (calls.parse().ok()?, errors)))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn losses_are_told() {
    need_events!();
    let mut load = common::Load::shell();
    let pid = load.pid().to_string();
    let trace = start_watching(&["syscalls", "-p", &pid, "-m", "1"]);
    let flood = example("flood");
    trace.stopped(|| {
        load.tell(&format!("{flood} 20000"));
        load.says();
    });
    load.stop();
    let done = trace.interrupt().code(0);
    let rows: Vec<Value> = table(&done, "calls").into_iter().filter(|row| row["call"] == "getppid").collect();
    let seen: u64 = rows.iter().map(|row| number(row, "count")).sum();
    assert!(seen < 20_000 && done.total("lost") > 0, "{seen}: {}", done.end());
    assert!(rows.iter().all(|row| row["verdict"] == "lower_bound"), "{rows:#?}");
}

#[test]
fn options_of_the_c_tool() {
    need_events!();
    let events = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"];
    let done = run_over(&[&["syscalls", "--json"], &events[..]].concat(), &[&example("flood"), "10"]);
    assert_eq!(number(&row_of(&done, "calls", "getppid"), "count"), 10);
    run(&["syscalls", "-e", "sched:sched_switch"]).code(2).says(&["raw_syscalls:sys_enter", "--calls"]);
    run(&["syscalls", "--calls", "nosuch"]).code(2).says(&["\"nosuch\""]);
    run(&["syscalls", "--errors", "--perins"]).code(2).says(&["cannot be used with"]);
}

/// Number 64 is getppid in a 32-bit program and semget in any other.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_32_bit_programs_have_their_own_names() {
    use std::os::unix::fs::PermissionsExt;
    need_events!();
    let mut code = vec![0xbe, 100, 0, 0, 0]; // mov esi, 100
    code.extend([0xb8, 64, 0, 0, 0, 0xcd, 0x80, 0x4e, 0x75, 0xf6]); // mov eax, 64; int 0x80; dec esi; jnz
    code.extend([0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80]); // mov eax, 1; xor ebx, ebx; int 0x80
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("getppid32");
    std::fs::write(&path, common::elf32(&code)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    if !Command::new(&path).status().is_ok_and(|status| status.success()) {
        skip!("no 32-bit programs here");
    }
    let done = run_over(&["syscalls", "--json"], &[path.to_str().unwrap()]);
    assert_eq!(number(&row_of(&done, "calls", "32-bit getppid"), "count"), 100);
    assert_eq!(number(&row_of(&done, "endings", "32-bit exit"), "count"), 1);
    // The same of the names that expressions give.
    const KEY: &str = "syscall_name(id)";
    let (keyed, plain) = (format!("raw_syscalls:sys_enter//key={KEY}/"), "raw_syscalls:sys_enter");
    let numbered = "raw_syscalls:sys_enter//num=id/";
    for (options, count) in [
        (&["top", "-e", &keyed][..], "sys_enter"),
        (&["top", "-k", KEY, "-e", plain], "sys_enter"),
        (&["num-dist", "--by", KEY, "-e", numbered], "count"),
    ] {
        let done = run_over(&[options, &["--json"]].concat(), &[path.to_str().unwrap()]);
        let counts = done.of_type("row").into_iter().filter(|row| row["key"] == "32-bit getppid");
        assert_eq!(counts.map(|row| number(&row, count)).sum::<u64>(), 100, "{options:?}: {done:#?}");
        assert!(done.of_type("row").iter().all(|row| row["key"] != "semget"), "{options:?}: {done:#?}");
    }
    let done = run_over(&["expr", "--json", "-N", "50", "-e", plain, KEY], &[path.to_str().unwrap()]);
    let of_call = |event: &Value| event["result"] == "32-bit getppid" && event["result_of"] == 64;
    assert!(done.of_type("event").iter().any(of_call), "{done:#?}");
}
