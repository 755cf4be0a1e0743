//! `top`: amounts by key, over loads whose numbers are known.

#[macro_use]
mod common;
#[path = "common/netns.rs"]
mod netns;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;

use common::{Done, copy_program, own_tid, run, run_over, start_watching, syscall};
use serde_json::Value;

const EXEC: &str = "sched:sched_process_exec";
/// One interval is all of a run.
const WHOLE: [&str; 3] = ["top", "-i", "600s"];

/// What the rows of all intervals add up to, by a label.
fn sums(done: &Done, label: &str, value: &str) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for row in done.of_type("row") {
        let key = row[label].as_str().map_or_else(|| row[label].to_string(), str::to_owned);
        *sums.entry(key).or_default() += row[value].as_i64().unwrap_or_else(|| panic!("{value} in {row}"));
    }
    sums
}

/// Closes descriptors that are none, so that each number is the argument of a call that does nothing.
fn close_all(fds: std::ops::Range<i64>) {
    for fd in fds {
        // SAFETY: no descriptor has such a number, so nothing is closed.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

/// Numbers that no descriptor has.
const NO_FDS: i64 = 100_000;

/// A run over calls of this thread.
fn over_own_calls(options: &[&str], load: impl FnOnce()) -> Done {
    let tid = own_tid().to_string();
    let run = start_watching(&[&WHOLE[..], &["-m", "4M", "-t", &tid], options].concat());
    load();
    run.interrupt().code(0)
}

#[test]
fn programs_are_counted_by_their_path() {
    need_events!();
    let load = ["sh", "-c", "for i in 1 2 3 4 5 6 7; do /bin/true; done; /bin/false; exit 0"];
    let done = run_over(&["top", "--json", "-e", "sched:sched_process_exec//key=filename/alias=started/"], &load);
    let counts = sums(&done, "key", "started");
    assert_eq!((counts["/bin/true"], counts["/bin/false"], counts.values().sum()), (7, 1, 9), "{done:?}");
    assert!(done.of_type("row").iter().all(|row| row["verdict"] == "exact"), "{done:?}");
}

#[test]
fn bytes_of_writes_add_up() {
    need_events!();
    let event = "syscalls:sys_enter_write//top-by=count/alias=bytes/top_add=1/";
    let load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4096", "count=1000", "status=none"];
    let done = run_over(&[&WHOLE[..], &["--json", "-e", event]].concat(), &load);
    let rows = done.of_type("row");
    let [row] = &rows[..] else { panic!("one thread: {done:?}") };
    assert_eq!(
        (&row["bytes"], &row["1"], &row["comm"], &row["pct"]),
        (&4_096_000.into(), &1000.into(), &"dd".into(), &100.0.into()),
        "{row}"
    );
}

/// Two events in two columns of one row; the one that leads orders the rows.
#[test]
fn events_are_joined_by_their_key() {
    need_events!();
    let events = "syscalls:sys_enter_close//key=fd/,syscalls:sys_exit_close//key=ret/top-by=(ret*-2)/alias=errors/";
    let done = over_own_calls(&["-e", events], || close_all(NO_FDS..NO_FDS + 10));
    let (closed, errors) = (sums(&done, "key", "sys_enter_close"), sums(&done, "key", "errors"));
    assert_eq!((closed["100009"], errors["100009"]), (1, 0), "{done:?}");
    let error = (-libc::EBADF).to_string();
    assert_eq!((closed[&error], errors[&error]), (0, i64::from(libc::EBADF) * 20), "{done:?}");
    let first = &done.of_type("row")[0];
    assert_eq!((&first["key"], &first["pct"]), (&(-libc::EBADF).into(), &100.0.into()), "{first}");
}

/// As many columns as were asked for.
#[test]
fn a_table_has_a_column_for_each_amount() {
    need_events!();
    let amounts: Vec<String> = (1..=20).map(|number| format!("top-add={number}/")).collect();
    let event = format!("syscalls:sys_enter_close//key=fd/{}", amounts.concat());
    let done = over_own_calls(&["-e", &event], || (0..3).for_each(|_| close_all(NO_FDS..NO_FDS + 1)));
    for number in 1..=20 {
        assert_eq!(sums(&done, "key", &number.to_string())[&NO_FDS.to_string()], 3 * number, "{done:?}");
    }
}

#[test]
fn negative_keys_and_amounts_are_negative() {
    need_events!();
    let event = "syscalls:sys_enter_close//key=((int)fd-100003)/top-by=(100001-(int)fd)/alias=below/";
    let done = over_own_calls(&["-e", event], || close_all(NO_FDS..NO_FDS + 5));
    let below = sums(&done, "key", "below");
    let want = [("-3", 1), ("-2", 0), ("-1", -1), ("0", -2), ("1", -3)].map(|(key, sum)| (key.to_owned(), sum));
    let ours: BTreeMap<String, i64> = below.into_iter().filter(|(key, _)| key.len() < 3).collect();
    assert_eq!(ours, BTreeMap::from(want), "{done:?}");
    assert!(done.of_type("row").iter().all(|row| row["pct"].is_null()), "a share of what is below 0: {done:?}");
}

/// More keys than there are rows: the first are exact, and the sum of the others is, too.
#[test]
fn keys_without_room_are_counted_together() {
    need_events!();
    let many = 12_000;
    let done =
        over_own_calls(&["-e", "syscalls:sys_enter_close//key=fd/alias=closed/"], || close_all(NO_FDS..NO_FDS + many));
    let rows = done.of_type("row");
    let sum: i64 = rows.iter().map(|row| row["closed"].as_i64().expect("a number")).sum();
    assert!(sum as u64 == done.total("samples") && sum >= many, "{sum}, {:?}", done.end());
    let others: Vec<&Value> = rows.iter().filter(|row| row["key"].is_null()).collect();
    let [others] = &others[..] else { panic!("one row of others: {}", others.len()) };
    assert_eq!(others["closed"], sum - 10_000, "{others}");
    assert!(rows.iter().all(|row| row["key"].is_null() || row["closed"] == 1 || row["key"].as_i64() < Some(NO_FDS)));
}

#[test]
fn printed_keys_are_text_and_rows_that_look_alike_are_one() {
    need_events!();
    let event = r#"syscalls:sys_enter_close//key=fd/alias=closed/printkey=(printf("fd %03d..", (int)key/10*10))/"#;
    let event = event.replace("(printf", "printf").replace("*10))/", "*10)/");
    let done = over_own_calls(&["-e", &event], || close_all(NO_FDS..NO_FDS + 25));
    let closed = sums(&done, "key", "closed");
    assert_eq!((closed["fd 100000.."], closed["fd 100010.."], closed["fd 100020.."]), (10, 10, 5), "{done:?}");
}

/// A name is that of the thread itself, in a row of its own before and after an exec.
#[test]
fn threads_have_their_own_names() {
    need_events!();
    let load = ["sh", "-c", "/bin/true; exec true"];
    let done =
        run_over(&[&WHOLE[..], &["--json", "-e", "sched:sched_process_exit,sched:sched_process_exec"]].concat(), &load);
    let rows = done.of_type("row");
    let exits: Vec<&str> =
        rows.iter().filter(|row| row["sched_process_exit"] == 1).filter_map(|row| row["comm"].as_str()).collect();
    assert_eq!(exits, ["true", "true"], "{done:?}");
    let done = run_over(&[&WHOLE[..], &["--only-comm", "--json", "-e", "sched:sched_process_exit"]].concat(), &load);
    assert_eq!(sums(&done, "comm", "sched_process_exit"), BTreeMap::from([("true".to_owned(), 2)]), "{done:?}");
}

/// The wakee's name belongs to the wakee's number.
#[test]
fn names_are_those_of_their_keys() {
    need_events!();
    let event = "sched:sched_process_fork//key=child_pid/comm=child_comm/alias=born/";
    let done =
        run_over(&[&WHOLE[..], &["--json", "-e", event]].concat(), &["sh", "-c", "/bin/true; /bin/true; exit 0"]);
    let rows = done.of_type("row");
    assert!(rows.len() == 2 && rows.iter().all(|row| row["comm"] == "sh" && row["born"] == 1), "{done:?}");
    let event = "sched:sched_process_exec//comm=filename/alias=num/";
    let done = run_over(
        &[&WHOLE[..], &["--only-comm", "--json", "-e", event]].concat(),
        &["sh", "-c", "/bin/true; /bin/true"],
    );
    assert_eq!(sums(&done, "comm", "num")["/bin/true"], 2, "{done:?}");
}

#[test]
fn events_of_a_pattern_are_rows() {
    need_events!();
    let done = over_own_calls(&["-e", "syscalls:sys_enter_get*id"], || (0..50).for_each(|_| common::getppid()));
    assert_eq!(sums(&done, "event", "count")["syscalls:sys_enter_getppid"], 50, "{done:?}");
}

#[test]
fn system_calls_have_their_names() {
    need_events!();
    let done = over_own_calls(&["-e", "raw_syscalls:sys_enter//key=syscall_name(id)/"], || {
        (0..50).for_each(|_| common::getppid());
    });
    assert_eq!(sums(&done, "key", "sys_enter")["getppid"], 50, "{done:?}");
    let event = syscall(libc::SYS_getppid);
    let done = over_own_calls(&["-k", "syscall_name(id)", "-e", &event], || (0..50).for_each(|_| common::getppid()));
    assert_eq!(sums(&done, "key", "sys_enter"), BTreeMap::from([("getppid".to_owned(), 50)]), "{done:?}");
}

/// A name with control characters and quotes reaches the terminal escaped, and JSON whole.
#[test]
fn hostile_names_are_escaped() {
    need_events!();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let name = "a\u{1b}[31m\"\\\n\u{202e}";
    copy_program("/bin/true", dir.path().join(name));
    let script = "\"$0\"; \"$0\"; exit 0";
    let path = dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let event = "sched:sched_process_exec//key=filename/alias=started/";
    let options = [&WHOLE[..], &["-e", event]].concat();
    let load = ["--", "sh", "-c", script, &path];
    let json = run(&[&options[..], &["--json"], &load].concat()).code(0);
    let row = json.of_type("row").into_iter().find(|row| row["started"] == 2).unwrap_or_else(|| panic!("{json:?}"));
    let key = row["key"].as_str().expect("text");
    assert!(key.contains(Path::new(&path).parent().and_then(Path::to_str).expect("UTF-8")), "{row}");
    let text = run(&[&options[..], &load].concat()).code(0);
    let line = text.out.iter().find(|line| line.contains("[31m")).unwrap_or_else(|| panic!("{text:?}"));
    assert!(line.contains("\\x1b[31m") && !line.contains('\u{1b}') && !line.contains('\u{202e}'), "{line:?}");
}

/// The flame graph is as wide as the amounts are large.
#[test]
fn stacks_are_weighed_by_the_amount() {
    need_events!();
    let event = "syscalls:sys_enter_write//top-by=count/";
    let load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=5000", "count=100", "status=none"];
    let file = tempfile::Builder::new().suffix(".folded").tempfile().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    run(&[&WHOLE[..], &["-e", event, "--flame-graph", path, "--"], &load].concat()).code(0);
    let folded = std::fs::read_to_string(path).expect("the graph");
    let weight = |line: &str| line.rsplit(' ').next().and_then(|weight| weight.parse::<u64>().ok());
    assert_eq!(folded.lines().filter_map(weight).sum::<u64>(), 500_000, "{folded}");
    let done = run_over(&[&WHOLE[..], &["--json", "-g", "-e", event]].concat(), &load);
    let rows = done.of_type("row");
    assert_eq!(rows.iter().filter_map(|row| row["count"].as_i64()).sum::<i64>(), 500_000, "{done:?}");
    assert!(rows.iter().all(|row| row["stack"].is_array()), "{done:?}");
}

#[inline(never)]
fn close_even(fds: std::ops::Range<i64>) {
    fds.filter(|fd| fd % 2 == 0).for_each(|fd| close_all(fd..fd + 1));
}

/// A key has a row for each of its stacks: nine even numbers from two places, five odd ones from one.
#[test]
fn rows_with_stacks_have_the_share_of_their_key() {
    need_events!();
    let event = format!("syscalls:sys_enter_close/fd>={NO_FDS}/key=\"fd & 1\"/alias=n/");
    let done = over_own_calls(&["-g", "-e", &event], || {
        close_all(NO_FDS..NO_FDS + 10);
        close_even(NO_FDS..NO_FDS + 8);
    });
    // The compiler may make a call of each round of a loop, so that there are more stacks than two.
    for (key, count, key_pct) in [(0, 9, 64.29), (1, 5, 35.71)] {
        let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["key"] == key).collect();
        assert_eq!(rows.iter().map(|row| common::number(row, "n")).sum::<u64>(), count, "{done:?}");
        assert!(key != 0 || rows.len() > 1, "two places at least: {done:?}");
        for row in rows {
            let pct = common::number(&row, "n") as f64 * 100.0 / 14.0;
            assert!((row["pct"].as_f64().expect("a share") - pct).abs() < 0.01, "{row}");
            assert_eq!(row["key_pct"].as_f64(), Some(key_pct), "{row}");
        }
    }
}

#[test]
fn amounts_by_the_second() {
    need_events!();
    let done =
        run_over(&["top", "--json", "--rate", "-i", "600s", "-e", EXEC], &["sh", "-c", "/bin/true; exec sleep 0.2"]);
    let interval = &done.of_type("interval")[0];
    let seconds = (common::number(interval, "end_ns") - common::number(interval, "start_ns")) as f64 / 1e9;
    for row in done.of_type("row") {
        let (count, rate) =
            (common::number(&row, "sched_process_exec") as f64, common::number(&row, "sched_process_exec_per_s"));
        assert!((count / seconds - rate as f64).abs() < 2.0, "{row} in {seconds} s");
    }
}

#[test]
fn expressions_without_a_value_are_counted() {
    need_events!();
    let done = over_own_calls(&["-e", "syscalls:sys_enter_close//key=fd/top-by=(1/((int)fd-100000))/alias=x/"], || {
        close_all(NO_FDS..NO_FDS + 3);
    });
    assert_eq!((done.end()["no_value"].as_u64(), sums(&done, "key", "x")["100001"]), (Some(1), 1), "{done:?}");
    assert!(done.err().contains("no value for 1 expressions: division by zero 1"), "{done:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    need_events!();
    let both = |one: &str, other: &str| format!("{EXEC}//{one}/,sched:sched_process_exit//{other}/");
    let of_exec = |attrs: &str| format!("{EXEC}//{attrs}/");
    let cases: [(&[&str], i32, &[&str]); 11] = [
        (&["-e", &both("key=filename", "key=pid")], 2, &["key filename is text", "never equal"]),
        (&["-e", &both("key=pid", "stack")], 2, &["sched:sched_process_exit has no key", "-k EXPR"]),
        (&["-e", &of_exec("num=pid")], 2, &["attribute num is for num-dist", "known here", "top-by=EXPR", "^"]),
        (&["-e", &of_exec("key=pidd")], 1, &["pidd", "pid"]),
        (&["-e", EXEC, "-k", "nofield"], 1, &["-k: sched:sched_process_exec has no such key", "nofield"]),
        (&["-e", EXEC, "-k", "pid +"], 2, &["-k: ", "^"]),
        (&["-e", &of_exec("top-by=filename")], 2, &["top-by=filename of sched:sched_process_exec is text", "number"]),
        (&["-e", &of_exec("comm=pid")], 2, &["comm=pid", "is a number"]),
        (&["-e", &of_exec("key=filename/printkey=key")], 2, &["printkey=key is for keys that are numbers"]),
        (&["-e", &of_exec("key=pid/printkey=pid")], 2, &["the one variable is `key`", "^"]),
        (&["-e", &of_exec("key=pid"), "--only-comm"], 2, &["--only-comm needs a name", "comm=EXPR"]),
    ];
    for (options, code, words) in cases {
        run(&[&["top", "--for", "1ms"], options].concat()).code(code).says(words);
    }
}

/// Sends datagrams of so many bytes to `to`, from a thread of this name.
fn send(name: &str, number: u64, bytes: usize, to: &UdpSocket) {
    let to = to.local_addr().expect("it is bound");
    let sends = move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        (0..number).for_each(|_| assert_eq!(socket.send_to(&vec![7; bytes], to).expect("it is sent"), bytes));
    };
    thread::Builder::new().name(name.to_owned()).spawn(sends).expect("a thread").join().expect("it sends");
}

/// Packets and bytes, by device and by task, are what the device has counted, and what the tasks have sent.
#[test]
fn packets_and_bytes_are_those_of_the_device() {
    need_events!();
    let in_own_network = || -> Result<(String, netns::DeviceCounts, [Done; 3]), String> {
        let device = netns::own_network().map_err(|err| format!("no network of its own: {err}"))?;
        let to = UdpSocket::bind("127.0.0.1:0").expect("an address");
        let before = netns::sent(&device);
        let watch = |event: &str, attributes: &str, more: &[&str]| {
            let event = format!("net:{event}/name==\"{device}\"/{attributes}top-by=len/alias=bytes/top-add=1/");
            start_watching(&[&WHOLE[..], &["-m", "1M", "-e", &event], more].concat())
        };
        let runs = [
            watch("net_dev_queue", "key=name/", &[]),
            watch("net_dev_queue", "", &["--only-comm"]),
            watch("netif_rx", "key=name/", &[]),
        ];
        send("sends-300", 300, 100, &to);
        send("sends-200", 200, 1000, &to);
        let after = netns::sent(&device);
        let sent = netns::DeviceCounts { bytes: after.bytes - before.bytes, packets: after.packets - before.packets };
        Ok((device, sent, runs.map(|run| run.interrupt().code(0))))
    };
    // The test's own thread keeps its network.
    let (device, sent, [by_device, by_task, received]) = match thread::spawn(in_own_network).join().expect("it sends") {
        Ok(told) => told,
        Err(why) => skip!("{why}"),
    };
    /// The headers of IPv4 and UDP, and of Ethernet, which the loopback device does not count.
    const HEADERS: u64 = 20 + 8;
    const ETHERNET: u64 = 14;
    assert_eq!((sent.packets, sent.bytes), (500, 300 * (100 + HEADERS) + 200 * (1000 + HEADERS)));
    let number = |done: &Done, label: &str, column: &str, key: &str| sums(done, label, column)[key] as u64;
    assert_eq!(number(&by_device, "key", "1", &device), sent.packets, "{by_device:?}");
    assert_eq!(number(&by_device, "key", "bytes", &device), sent.bytes + sent.packets * ETHERNET, "{by_device:?}");
    assert_eq!(number(&received, "key", "bytes", &device), sent.bytes, "{received:?}");
    for (name, packets, bytes) in [("sends-300", 300, 100), ("sends-200", 200, 1000)] {
        let told = (number(&by_task, "comm", "1", name), number(&by_task, "comm", "bytes", name));
        assert_eq!(told, (packets, packets * (bytes + HEADERS + ETHERNET)), "{name}: {by_task:?}");
    }
}

#[test]
fn losses_are_marked() {
    need_events!();
    let tid = own_tid().to_string();
    let run = start_watching(&["top", "-i", "600s", "-m", "1", "-t", &tid, "-e", "syscalls:sys_enter_close//key=fd/"]);
    run.stopped(|| close_all(NO_FDS..NO_FDS + 5000));
    let done = run.interrupt().code(0);
    assert!(done.total("lost") > 0, "{:?}", done.end());
    assert!(done.of_type("row").iter().all(|row| row["verdict"] == "lower_bound"), "{done:?}");
}
