//! Paths that system calls are given, in `trace`: each next to its call, also of calls that fail and of processes that end at
//! once; and what is shown where a path cannot be read.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;

use common::seccomp::{Refusal, refused};
use common::{
    Again, Attempted, Done, Load, Prog, attempts, command, example, number, or_again, own_tid, run, run_over,
    start_watching, until,
};
use perf_prof::perf::Attr;
use perf_prof::perf::attr::MissingFeatures;
use perf_prof::profiler::TracefsFinder;
use perf_prof::sys::perf::{Watch, attached_programs};
use serde_json::Value;

const OPENAT: &str = "syscalls:sys_enter_openat";

struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> TestDir {
        let dir = std::env::temp_dir().join(format!("perf-prof-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        TestDir(dir)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn trace(options: &[&str], workload: &[&str]) -> Done {
    run_over(&[&["trace", "--json", "-m", "16M"], options].concat(), workload)
}

/// `Err` if records were lost.
fn lossless(done: &Done) -> Attempted {
    or_again(number(&done.end(), "lost") == 0, &[Again::RecordsLost(done)], || done.end().to_string())
}

fn fields(done: &Done) -> impl Iterator<Item = Value> {
    done.of_type("event").into_iter().map(|event| event["fields"].clone())
}

/// The ids of the programs on the event.
fn programs_on(event: &str) -> Vec<u32> {
    let (system, name) = event.split_once(':').expect("system:event");
    let finder = TracefsFinder::default();
    let format = finder.get().expect("tracefs").format(system, name).expect("a format");
    let watch = Watch::Cpu(common::online_cpus()[0]);
    let fd = MissingFeatures::default().open(&mut Attr::tracepoint(format.id), watch).expect("an event");
    attached_programs(fd.as_fd()).expect("a list of programs")
}

#[test]
fn each_path_is_next_to_its_call() {
    need_events!();
    const COUNT: u64 = 5000;
    attempts(|| {
        let dir = TestDir::new("paths");
        let done = trace(&["-e", OPENAT], &[&example("opens"), &COUNT.to_string(), dir.text()]);
        lossless(&done)?;
        let mut seen: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for fields in fields(&done) {
            // What the program opens before its `main` is in pages that it may not have touched yet.
            let Some(path) = fields["filename"].as_str().and_then(|path| path.strip_prefix(dir.text())) else {
                continue;
            };
            let (_, digits) = path.split_once('-').expect("a number");
            assert_eq!(fields["mode"].as_u64(), digits.parse().ok(), "the path of another call: {fields}");
            seen.entry(path.to_owned()).or_default().0 += 1;
        }
        assert_eq!(seen.len() as u64, COUNT + COUNT / 10);
        assert!(seen.values().all(|(count, _)| *count == 1), "{seen:?}");
        Ok(())
    });
}

#[test]
fn paths_of_processes_that_end_at_once() {
    need_events!();
    const SCRIPT: &str = "i=0; while [ $i -lt 100 ]; do cat /missing/$i 2>/dev/null; i=$((i+1)); done";
    attempts(|| {
        let done = trace(&["-e", OPENAT], &["sh", "-c", SCRIPT]);
        lossless(&done)?;
        let of = |wanted: &str| fields(&done).filter(|fields| fields["filename"] == wanted).count();
        for number in 0..100 {
            assert_eq!(of(&format!("/missing/{number}")), 1, "{number}");
        }
        Ok(())
    });
}

#[test]
fn several_strings_of_a_call() {
    need_events!();
    let events = "syscalls:sys_enter_rename*,syscalls:sys_enter_symlink*,syscalls:sys_enter_execve";
    let script = "mv /missing/a /missing/b; ln -s /missing/c /missing/d";
    let done = trace(&["-e", events], &["sh", "-c", script]);
    let texts: Vec<String> = done.of_type("event").iter().map(|event| event["text"].to_string()).collect();
    let has = |words: [&str; 2]| texts.iter().any(|text| words.iter().all(|word| text.contains(word)));
    assert!(has([r#"oldname: \"/missing/a\""#, r#"newname: \"/missing/b\""#]), "{texts:?}");
    assert!(has([r#"oldname: \"/missing/c\""#, r#"newname: \"/missing/d\""#]), "{texts:?}");
    let arguments = r#"mv\", argv: [\"mv\", \"/missing/a\", \"/missing/b\"], envp: 0x"#;
    assert!(has([r#"filename: \"/"#, arguments]), "{texts:?}");
}

#[test]
fn what_cannot_be_read_is_said_to_be_unread() {
    need_events!();
    let dir = TestDir::new("odd");
    let options = ["-e", &format!("{OPENAT}/flags==0x80000/")];
    let done = trace(&options, &[&example("opens"), "odd", dir.text()]);
    let by_mode: BTreeMap<u64, Value> = fields(&done)
        .filter(|fields| fields["filename_unread"] != Value::Null || fields["mode"] != 0)
        .map(|fields| (number(&fields, "mode"), fields))
        .collect();
    for mode in 0..6 {
        let fields = &by_mode[&mode];
        assert_eq!(
            (&fields["filename"], &fields["filename_unread"]),
            (&Value::Null, &"not in memory".into()),
            "{fields}"
        );
    }
    for (mode, bytes, cut) in [(4095, 4095, Value::Null), (4096, 4095, true.into()), (5000, 4095, true.into())] {
        let path = by_mode[&mode]["filename"].as_str().expect("a path");
        assert!(path.starts_with(dir.text()) && path.ends_with("aaa"), "{path}");
        assert_eq!((path.len(), &by_mode[&mode]["filename_cut"]), (bytes, &cut));
    }
    assert_eq!(by_mode[&10]["filename"], "");
    assert_eq!(by_mode[&11]["filename"], "\\x1b[31m\"\\x0a");
}

#[test]
fn without_bpf_the_reason_is_told() {
    need_events!();
    let options = ["trace", "-e", OPENAT, "--json", "--", "cat", "/missing/1"];
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
        let behind = refused(command(&options), &[Refusal::of(libc::SYS_bpf, errno)]);
        let done = Prog::spawn(behind).finish().code(0);
        let told: Vec<&String> = done.err.iter().filter(|line| line.contains("stay unread")).collect();
        assert!(told.len() == 1 && told[0].starts_with("degraded: paths and other strings"), "{done:?}");
        assert!(done.of_type("event").len() > 3, "{done:?}");
        // What lives when its line is written is read then.
        let is_honest = |fields: &Value| {
            let [unread, late] = ["filename_unread", "filename_late"].map(|key| &fields[key]);
            *unread == "copying is refused" && fields["filename"].is_null() || *late == true
        };
        assert!(fields(&done).all(|fields| is_honest(&fields)), "{done:?}");
    }
}

#[test]
fn without_bpf_what_lives_is_read_late() {
    need_events!();
    let tid = own_tid().to_string();
    let behind =
        refused(command(&["trace", "--json", "-e", OPENAT, "-t", &tid]), &[Refusal::of(libc::SYS_bpf, libc::EPERM)]);
    let mut trace = Prog::spawn(behind);
    trace.provoke(
        || drop(std::fs::File::open("/missing/late")),
        |line| line.contains(r#""filename":"/missing/late","filename_late":true"#),
    );
    trace.interrupt().code(0);
}

#[test]
fn paths_of_raw_events() {
    need_events!();
    attempts(|| {
        let done = trace(&["-e", "syscalls:*", "-v"], &["cat", "/missing/raw"]);
        lossless(&done)?;
        let of = |event: &str, key: &str, want: &str| {
            let events = done.of_type("event");
            let is_it = |object: &&Value| object["event"] == event && object["fields"][key] == want;
            events.iter().filter(is_it).count()
        };
        assert_eq!(of(OPENAT, "filename", "/missing/raw"), 1, "{done:?}");
        let text = done.out.iter().find(|line| line.contains(r#"filename: \"/missing/raw\""#));
        assert!(text.is_some_and(|line| line.contains(r#""text":"dfd: AT_FDCWD, filename: "#)), "{text:?}");
        done.says(&["are told by raw_syscalls:"]);
        Ok(())
    });
}

#[test]
fn addresses_alone_on_request() {
    need_events!();
    let done = trace(&["-e", OPENAT, "--no-paths"], &["cat", "/missing/none"]);
    assert!(
        fields(&done).all(|fields| fields["filename"].as_str().is_some_and(|text| text.starts_with("0x"))),
        "{done:?}"
    );
}

/// By call, error and path, how many calls failed.
fn failed_paths(done: &Done) -> BTreeMap<(String, String, String), u64> {
    let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "errors");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let key = |row: &Value| (text(row, "call"), text(row, "error"), text(row, "path"));
    rows.map(|row| (key(&row), number(&row, "count"))).collect()
}

#[test]
fn errors_by_path() {
    need_events!();
    const COUNT: u64 = 2000;
    attempts(|| {
        let dir = TestDir::new("errors");
        let options = ["syscalls", "--errors", "--json", "-m", "16M", "--top", "5000"];
        let done = run_over(&options, &[&example("opens"), &COUNT.to_string(), dir.text()]);
        lossless(&done)?;
        let failed = failed_paths(&done);
        for number in 0..COUNT {
            let path = format!("{}/missing-{number}", dir.text());
            assert_eq!(failed.get(&("openat".to_owned(), "ENOENT".to_owned(), path)), Some(&1), "{number}");
        }
        assert!(!failed.keys().any(|(_, _, path)| path.contains("/there-")), "a call that did not fail");
        Ok(())
    });
}

#[test]
fn errors_of_processes_that_end_at_once() {
    need_events!();
    const SCRIPT: &str =
        "i=0; while [ $i -lt 50 ]; do cat /missing/$((i % 5)) 2>/dev/null; i=$((i+1)); done; mv /missing/a /missing/b";
    attempts(|| {
        let done = run_over(&["syscalls", "--errors", "--json", "-m", "16M"], &["sh", "-c", SCRIPT]);
        lossless(&done)?;
        let rows = done.of_type("row");
        for path in ["/missing/0", "/missing/4"] {
            let of: Vec<&Value> = rows.iter().filter(|row| row["path"] == path && row["call"] == "openat").collect();
            assert_eq!(of.iter().map(|row| number(row, "count")).sum::<u64>(), 10, "{rows:?}");
            // One row, however many processes there were.
            assert_eq!((of.len(), of[0]["processes"].as_u64(), &of[0]["pid"]), (1, Some(10), &Value::Null), "{rows:?}");
        }
        assert!(rows.iter().any(|row| row["path"] == "/missing/a" && row["path2"] == "/missing/b"), "{rows:?}");
        Ok(())
    });
}

#[test]
fn slow_calls_have_their_paths() {
    need_events!();
    attempts(|| {
        let options = ["syscalls", "--than", "1ns", "--calls", "openat", "--json"];
        let done = run_over(&options, &["cat", "/missing/slow"]);
        lossless(&done)?;
        let texts: Vec<String> = done.of_type("event").iter().map(|event| event["text"].to_string()).collect();
        let of = |text: &&String| text.contains(r#"openat(AT_FDCWD, \"/missing/slow\", O_RDONLY"#);
        assert_eq!(texts.iter().filter(of).count(), 1, "{texts:?}");
        Ok(())
    });
}

#[test]
fn children_of_a_target_have_their_strings() {
    need_events!();
    let mut shell = Load::shell();
    let mut watched = start_watching(&["syscalls", "--errors", "-i", "100", "-p", &shell.pid().to_string()]);
    for path in ["/missing/child", "/missing/grandchild"] {
        shell.tell(&format!("(cat {path}; sh -c 'cat {path}') 2>/dev/null"));
        let is_it = |row: &Value| row["path"] == path && row["comm"] == "cat";
        let mut processes = 0;
        while processes < 2 {
            processes += watched.object(is_it)["processes"].as_u64().unwrap_or(1);
        }
        assert_eq!(processes, 2, "{path}");
    }
    watched.interrupt().code(0);
}

#[test]
fn relative_paths_have_their_directory() {
    need_events!();
    let dir = TestDir::new("relative");
    let mut shell = Load::shell();
    let mut watched = start_watching(&["syscalls", "--errors", "-i", "100", "-p", &shell.pid().to_string()]);
    shell.tell(&format!("cd {}", dir.text()));
    // It is looked up a little later: the interval may be over by then.
    until("a row with its directory", || {
        shell.tell("[ -e conf.d/x ]");
        let relative = watched.object(|row| row["path"] == "conf.d/x");
        assert!(relative["directory"].is_null() || relative["directory"] == dir.text(), "{relative}");
        relative["directory"].is_string()
    });
    shell.tell("[ -e /missing/absolute ]");
    let absolute = watched.object(|row| row["path"] == "/missing/absolute");
    assert_eq!(absolute["directory"], Value::Null, "{absolute}");
    watched.interrupt().code(0);
}

#[test]
fn relative_paths_begin_at_descriptors() {
    need_events!();
    let dir = TestDir::new("descriptor");
    let tid = own_tid().to_string();
    let open = std::fs::File::open(dir.text()).expect("the directory");
    let fails = || {
        let mode = nix::sys::stat::Mode::empty();
        nix::fcntl::openat(&open, "missing", nix::fcntl::OFlag::O_RDONLY, mode).expect_err("no such file");
    };
    let mut rows = start_watching(&["syscalls", "--errors", "-i", "100", "-t", &tid]);
    rows.provoke(fails, |line| line.contains(&format!(r#""path":"missing","directory":"{}""#, dir.text())));
    rows.interrupt().code(0);
    let mut lines = start_watching(&["syscalls", "--than", "1ns", "--calls", "openat", "-t", &tid]);
    lines.provoke(fails, |line| line.contains(&format!(r#"<{}>, \"missing\", O_RDONLY"#, dir.text())));
    lines.interrupt().code(0);
}

#[test]
fn without_bpf_paths_of_rows_and_lines_are_read_late() {
    need_events!();
    let tid = own_tid().to_string();
    let wanted = [
        (&["--errors", "-i", "100"][..], r#""path":"/missing/late","path_unread":"read late, once""#),
        (&["--than", "1ns", "--calls", "openat"], r#"openat(AT_FDCWD, \"/missing/late\" (read late), O_RDONLY"#),
    ];
    for (options, wanted) in wanted {
        let args = [&["syscalls", "--json", "-t", &tid], options].concat();
        let mut late = Prog::spawn(refused(command(&args), &[Refusal::of(libc::SYS_bpf, libc::EPERM)]));
        // The path is where it was: `File::open` would have it on the stack.
        let fails = || {
            let mode = nix::sys::stat::Mode::empty();
            nix::fcntl::open(c"/missing/late", nix::fcntl::OFlag::O_RDONLY, mode).expect_err("no such file");
        };
        late.provoke(fails, |line| line.contains(wanted));
        late.interrupt().code(0);
    }
}

#[test]
fn strings_of_a_thread() {
    need_events!();
    let tid = own_tid().to_string();
    let mut trace = start_watching(&["trace", "-e", OPENAT, "-t", &tid]);
    let path = format!("/missing/{tid}");
    trace.provoke(|| drop(std::fs::File::open(&path)), |line| line.contains(&format!(r#""filename":"{path}""#)));
    trace.interrupt().code(0);
}

/// Where the sockets lead, of calls that fail at once.
fn use_sockets(path: &str) {
    let _ = TcpStream::connect("127.0.0.1:9").expect_err("nobody listens");
    let _ = TcpStream::connect("[::1]:9").expect_err("nobody listens");
    let _ = UnixStream::connect(path).expect_err("nobody listens");
    let abstract_name = SocketAddr::from_abstract_name(b"perf-prof\0\xff").expect("a name");
    let _ = UnixStream::connect_addr(&abstract_name).expect_err("nobody listens");
    let _ = UdpSocket::bind("192.0.2.1:53").expect_err("not our address");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    udp.send_to(b"x", "127.0.0.1:9").expect("it is sent");
}

/// In text, in the errors of calls by address, and in lines.
#[test]
fn addresses_of_sockets() {
    need_events!();
    let tid = own_tid().to_string();
    let path = format!("/missing/{tid}");
    let unix = format!("\"{path}\"");
    let hidden = r#"@"perf-prof\x00\xff""#;
    let want: [(&str, &str); 6] = [
        ("connect", "127.0.0.1:9"),
        ("connect", "[::1]:9"),
        ("connect", &unix),
        ("connect", hidden),
        ("bind", "192.0.2.1:53"),
        ("sendto", "127.0.0.1:9"),
    ];
    let calls = "connect,bind,sendto";
    let trace = start_watching(&["trace", "-e", calls, "-t", &tid]);
    use_sockets(&path);
    let done = trace.interrupt().code(0);
    for (call, address) in want {
        let key =
            [("connect", "uservaddr"), ("bind", "umyaddr"), ("sendto", "addr")].iter().find(|(of, _)| *of == call);
        let is_it = |fields: &Value| key.is_some_and(|(_, key)| fields[*key] == address);
        assert_eq!(fields(&done).filter(is_it).count(), 1, "{call} {address}: {done:?}");
    }
    let lines = start_watching(&["syscalls", "--calls", calls, "--than", "1", "-t", &tid]);
    use_sockets(&path);
    let done = lines.interrupt().code(0);
    for (call, address) in want {
        let text = |event: &Value| event["text"].as_str().unwrap_or_default().to_owned();
        let is_it = |event: &Value| text(event).starts_with(call) && text(event).contains(&format!(", {address}, "));
        assert_eq!(done.of_type("event").iter().filter(|event| is_it(event)).count(), 1, "{call} {address}: {done:?}");
    }
    let errors = start_watching(&["syscalls", "--errors", "-t", &tid]);
    use_sockets(&path);
    let done = errors.interrupt().code(0);
    for (call, address) in &want[..5] {
        let is_it = |row: &&Value| row["call"] == *call && row["address"] == *address && row["count"] == 1;
        assert_eq!(done.of_type("row").iter().filter(is_it).count(), 1, "{call} {address}: {done:?}");
    }
}

/// Sends a message of one byte to a port of this machine; without one, to where the socket is connected. Returns the errno.
fn send_message(socket: &UdpSocket, port: Option<u16>) -> Option<i32> {
    let s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    let mut to = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.unwrap_or(0).to_be(),
        sin_addr: libc::in_addr { s_addr },
        sin_zero: [0; 8],
    };
    let mut part = libc::iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 };
    // SAFETY: null pointers and zeros are valid values of all fields.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if port.is_some() {
        (message.msg_name, message.msg_namelen) = ((&raw mut to).cast(), size_of_val(&to) as u32);
    }
    // SAFETY: the message, its address and its part live until the call returns.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    (sent < 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

/// Where messages go that are sent with sendmsg: the address is behind a pointer in the message.
#[test]
fn addresses_of_messages() {
    need_events!();
    let tid = own_tid().to_string();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let send = || {
        let errnos = [Some(9), Some(0), None].map(|port| send_message(&socket, port));
        assert_eq!(errnos, [None, Some(libc::EINVAL), Some(libc::EDESTADDRREQ)]);
    };
    let trace = start_watching(&["trace", "-e", "sendmsg", "-t", &tid]);
    send();
    let done = trace.interrupt().code(0);
    let to: Vec<Value> = fields(&done).map(|fields| fields["msg"].clone()).collect();
    let [nine, none, nowhere] = &to[..] else { panic!("{done:?}") };
    assert!(nine == "127.0.0.1:9" && none == "127.0.0.1:0", "{done:?}");
    assert!(
        nowhere.as_str().is_some_and(|address| address.starts_with("0x")),
        "it is where the socket leads: {done:?}"
    );
    let lines = start_watching(&["syscalls", "--calls", "sendmsg", "--than", "1", "-t", &tid]);
    send();
    let done = lines.interrupt().code(0);
    let texts: Vec<String> =
        done.of_type("event").iter().map(|event| event["text"].as_str().unwrap_or_default().to_owned()).collect();
    for (text, want) in texts.iter().zip([" to 127.0.0.1:9, 0) = 1", " to 127.0.0.1:0, 0) = -1 EINVAL"]) {
        assert!(text.starts_with("sendmsg(") && text.contains(want), "{done:?}");
    }
    assert!(texts.len() == 3 && !texts[2].contains(" to "), "{done:?}");
    let errors = start_watching(&["syscalls", "--errors", "--calls", "sendmsg", "-t", &tid]);
    send();
    let done = errors.interrupt().code(0);
    let rows = done.of_type("row");
    let of = |error: &str| rows.iter().find(|row| row["error"] == error).unwrap_or_else(|| panic!("{done:?}"));
    assert_eq!((&of("EINVAL")["address"], &of("EINVAL")["count"]), (&"127.0.0.1:0".into(), &1.into()));
    assert!(of("EDESTADDRREQ").get("address").is_none_or(Value::is_null), "{done:?}");
}

/// Receives a message with room for `room` bytes of the sender's address.
fn receive(socket: &UdpSocket, room: u32) {
    let (mut byte, mut from, mut length) = (0_u8, [0_u8; 128], room);
    // SAFETY: the buffers have the lengths that are given, and live until the call returns.
    let received = unsafe {
        libc::recvfrom(socket.as_raw_fd(), (&raw mut byte).cast(), 1, 0, from.as_mut_ptr().cast(), &raw mut length)
    };
    assert_eq!((received, length), (1, 16), "the kernel returns the whole length");
}

/// Who has connected, who has sent: in memory when the call ends.
#[test]
fn addresses_that_calls_return() {
    need_events!();
    let tid = own_tid().to_string();
    let calls = "accept,accept4,recvfrom,getpeername";
    let lines = start_watching(&["syscalls", "--calls", calls, "--than", "1", "-t", &tid]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let connect = || TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
    let client = connect();
    let (stream, from) = listener.accept().expect("a connection");
    assert_eq!(Ok(from), client.local_addr().map_err(drop));
    let to = client.peer_addr().expect("an address");
    let unnamed = connect();
    let without = nix::sys::socket::accept(listener.as_raw_fd()).expect("a connection");
    let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    for room in [16, 4] {
        sender.send_to(b"x", receiver.local_addr().expect("an address")).expect("it is sent");
        receive(&receiver, room);
    }
    let sent_from = sender.local_addr().expect("an address");
    let done = lines.interrupt().code(0);
    drop((stream, unnamed, nix::unistd::close(without)));
    let events = done.of_type("event");
    let texts: Vec<&str> = events.iter().filter_map(|event| event["text"].as_str()).collect();
    let want = [
        ("accept4(", format!(", {from}, 0x")),
        ("getpeername(", format!(", {to}, 0x")),
        ("accept(", ", NULL, NULL) = ".to_owned()),
        ("recvfrom(", format!(", 1, 0, {sent_from}, 0x")),
        ("recvfrom(", ", 1, 0, {AF_INET, 4 bytes}, 0x".to_owned()),
    ];
    assert_eq!(texts.len(), want.len(), "{done:?}");
    for (text, (call, part)) in texts.iter().zip(want) {
        assert!(text.starts_with(call) && text.contains(&part), "{call} {part}: {text}");
    }
}

/// Programs as they are executed: the words of each.
#[test]
fn arguments_of_programs() {
    need_events!();
    let done = trace(&["-e", "execve"], &["sh", "-c", "/bin/true 'a b' '' \"\\\"\"; /bin/true $(seq 1 40); :"]);
    let of: Vec<Value> = fields(&done).filter(|fields| fields["filename"] == "/bin/true").collect();
    let [few, many] = &of[..] else { panic!("{done:?}") };
    assert_eq!(few["argv"], serde_json::json!(["/bin/true", "a b", "", "\""]), "{few}");
    let words: Vec<String> =
        std::iter::once("/bin/true".to_owned()).chain((1..16).map(|word| word.to_string())).collect();
    assert_eq!((&many["argv"], &many["argv_cut"]), (&serde_json::json!(words), &true.into()), "{many}");
    let text = done.of_type("event").iter().find(|event| event["fields"] == *few).unwrap()["text"].to_string();
    assert!(text.contains(r#"argv: [\"/bin/true\", \"a b\", \"\", \"\\\"\"], envp: 0x"#), "{text}");
}

/// What other tasks are given is not copied: it would cost them time, and us room in the rings.
#[test]
fn strings_of_other_tasks_are_left_alone() {
    need_events!();
    let shell = Load::shell();
    let pid = shell.pid().to_string();
    let _others = Load::of("sh", &["-c", "while :; do cat /missing/other 2>/dev/null; done"]);
    let bytes_per_s = |target: &[&str]| {
        let options = ["syscalls", "--errors", "--calls", "openat", "--json", "--for", "0.5"];
        let end = run(&[&options, target].concat()).code(0).end();
        end["self"]["bytes_per_s"].as_f64().unwrap_or_else(|| panic!("{end}"))
    };
    let all = bytes_per_s(&[]);
    let of_shell = ["-p", "-t"].map(|option| bytes_per_s(&[option, &pid]));
    assert!(of_shell.iter().all(|few| few * 100.0 < all), "{of_shell:?} bytes a second of {all}");
}

#[test]
fn no_program_stays_behind() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_chroot"; // of no other test
    let count = || programs_on(EVENT).len();
    let before = count();
    let own = std::process::id().to_string();
    for target in [&[][..], &["-p", &own]] {
        let done = run(&[&["trace", "-e", EVENT, "-v", "--for", "0.01"], target].concat()).code(0);
        assert!(!done.err().contains("BPF prog"), "our own program is told as another's: {done:?}");
        assert_eq!(count(), before);
    }
}
