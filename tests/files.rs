//! files: calls about files of a program that knows their numbers, bytes and times.

#[macro_use]
mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Again, Done, Load, attempts, example, load_number, number, or_again, run, start_watching};
use serde_json::Value;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Watches the program of one kind. Returns what it says at its end.
fn watch(dir: &Path, kind: &str, more: &[&str]) -> (String, Done) {
    let mut load = Load::of(&example("file_calls"), &[dir.to_str().expect("a path in UTF-8"), kind]);
    let pid = load_number(&load.says(), "pid").to_string();
    let prog = start_watching(&[&["files", "-p", &pid, "-m", "1024"], more].concat());
    load.tell("go");
    let said = load.says();
    (said, prog.interrupt().code(0))
}

/// Rows of files with this path.
fn of<'a>(path: &'a Path) -> impl Fn(&Value) -> bool + 'a {
    move |row| row["type"] == "row" && row["table"] == "files" && row["file"].as_str() == path.to_str()
}

fn rows<'a>(table: &'a str, key: &'a str, value: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |row| row["type"] == "row" && row["table"] == table && row[key] == value
}

fn nothing_lost(done: &Done) -> common::Attempted {
    or_again(done.total("lost") == 0, &[Again::RecordsLost(done)], || format!("{:#?}", done.err))
}

#[test]
fn calls_and_cache_are_those_of_the_program() {
    need_events!();
    let dir = folder();
    let data = dir.path().join("data");
    attempts(|| {
        let (said, done) = watch(dir.path(), "cache", &["--cache", "-i", "200"]);
        nothing_lost(&done)?;
        let directs = load_number(&said, "directs");
        let sum = |key: &str| done.sum(key, of(&data));
        assert_eq!([sum("reads"), sum("writes"), sum("syncs")], [64 + 256 + directs, 256, 2], "{done:#?}");
        let bytes = 4 << 20;
        assert_eq!([sum("read_bytes"), sum("written_bytes")], [2 * bytes + directs * (64 << 10), bytes], "{done:#?}");
        if said.contains("cold_ns") && has_event("readahead:page_cache_sync_ra") {
            assert_eq!([sum("cache_hits"), sum("cache_misses")], [256, 64], "direct reads are neither: {done:#?}");
        }
        assert_eq!(sum("pages_read"), 1024, "each page once: {done:#?}");
        assert_eq!(sum("errors"), 0, "{done:#?}");
        for (key, called) in [("write_ns", "write_ns"), ("sync_ns", "sync_ns")] {
            let (told, called) = (sum(key), load_number(&said, called));
            assert!(told > 0 && (key != "write_ns" || told < called), "{key} {told} of {called}: {done:#?}");
        }
        let of_process = |key: &str| done.sum(key, rows("processes", "comm", "file_calls"));
        assert_eq!(of_process("writes"), 256, "{done:#?}");
        assert_eq!(done.sum("count", rows("operations", "operation", "write")), 256, "no write to a pipe: {done:#?}");
        Ok(())
    });
}

fn has_event(event: &str) -> bool {
    let listed = run(&["list", event]);
    listed.out.iter().any(|line| line.contains(event))
}

#[test]
fn faults_of_mappings_are_counted() {
    need_events!();
    let dir = folder();
    let data = dir.path().join("data");
    attempts(|| {
        let (said, done) = watch(dir.path(), "map", &["--cache"]);
        nothing_lost(&done)?;
        let touched = load_number(&said, "touched");
        let sum = |key: &str| done.sum(key, of(&data));
        assert_eq!([sum("faults"), sum("pages_read"), sum("cache_misses")], [touched, touched, 0], "{done:#?}");
        Ok(())
    });
}

/// A file has one name, whether a call gives a path from the root, one below the current directory, or a descriptor
/// that was open before the run.
#[test]
fn files_have_their_names() {
    need_events!();
    let dir = folder();
    let [data, missing] = ["data", "missing"].map(|name| dir.path().join(name));
    attempts(|| {
        let (_, done) = watch(dir.path(), "names", &["-i", "100"]);
        nothing_lost(&done)?;
        let sum = |key: &str| done.sum(key, of(&data));
        assert_eq!(
            [sum("metadata"), sum("truncates"), sum("writes"), sum("written_bytes"), sum("errors")],
            [20, 5, 10, 1000, 0],
            "{done:#?}"
        );
        assert_eq!([done.sum("opens", of(&missing)), done.sum("errors", of(&missing))], [37, 37], "{done:#?}");
        assert_eq!([done.sum("opens", of(dir.path())), done.sum("lists", of(dir.path()))], [3, 6], "{done:#?}");
        let per_interval = |row: &Value| (row["interval"].as_u64(), row["file"].to_string());
        let mut rows: Vec<_> = done.json().into_iter().filter(rows("files", "table", "files")).collect();
        rows.sort_by_key(per_interval);
        assert!(rows.windows(2).all(|two| per_interval(&two[0]) != per_interval(&two[1])), "a row each: {rows:#?}");
        let named: Vec<Value> = done.json().into_iter().filter(of(&data)).collect();
        assert!(
            named.iter().all(|row| row["file_system"].as_str().is_some_and(|on| on.contains(" on /"))),
            "{named:#?}"
        );
        let others = done.json().into_iter().filter(|row| row["file"].as_str().is_some_and(|file| file.contains(':')));
        assert_eq!(others.count(), 0, "no pipe is a file: {done:#?}");
        let (_, done) = watch(dir.path(), "names", &["--sort", "errors"]);
        nothing_lost(&done)?;
        let first = done.json().into_iter().find(|row| row["table"] == "files" && row["type"] == "row").expect("a row");
        assert!(of(&missing)(&first) && number(&first, "errors") == 37, "the opens that fail: {first}");
        let (_, done) = watch(dir.path(), "names", &["--by", "directory"]);
        nothing_lost(&done)?;
        assert_eq!(done.sum("metadata", of(dir.path())), 20, "{done:#?}");
        Ok(())
    });
}

/// A thread reads a little all the time; another one writes a MiB now and then, which is what takes the time.
#[test]
fn an_intermittent_write_is_found() {
    need_events!();
    let dir = folder();
    let burst = dir.path().join("burst");
    attempts(|| {
        let (said, done) = watch(dir.path(), "lab", &["--than", "50us"]);
        nothing_lost(&done)?;
        let writes = load_number(&said, "writes");
        let sum = |key: &str| done.sum(key, of(&burst));
        assert_eq!([sum("writes"), sum("written_bytes"), sum("syncs")], [writes, writes << 20, writes], "{done:#?}");
        let small = done.sum("reads", of(&dir.path().join("small")));
        assert_eq!(small, load_number(&said, "reads"), "{done:#?}");
        let first = done.json().into_iter().find(|row| row["table"] == "files" && row["type"] == "row");
        assert_eq!(first.expect("a row")["file"].as_str(), burst.to_str(), "it took longest: {done:#?}");
        let by = done.json().into_iter().find(of(&burst)).expect("a row")["by"].to_string();
        assert!(by.contains("burst of file_calls"), "the thread: {by}");
        let lines = done.of_type("event");
        let of_write: Vec<&Value> = lines.iter().filter(|line| line["call"] == "write").collect();
        let offsets: Vec<u64> = of_write.iter().map(|line| number(line, "offset")).collect();
        assert_eq!(offsets, (0..writes).map(|write| write << 20).collect::<Vec<_>>(), "{lines:#?}");
        for line in &of_write {
            assert_eq!(
                (&line["comm"], line["file"].as_str(), number(line, "bytes")),
                (&"burst".into(), burst.to_str(), 1 << 20),
                "{line}"
            );
        }
        for line in &lines {
            let parts = ["run_ns", "ready_ns", "sleep_ns", "disk_ns", "other_ns", "unseen_ns"];
            let parts: u64 = parts.iter().filter_map(|key| line[key].as_u64()).sum();
            assert_eq!(parts, number(line, "duration_ns"), "the parts add up: {line}");
        }
        Ok(())
    });
}

/// File systems have their names, also in mount namespaces of their own.
#[test]
fn file_systems_are_told() {
    need_events!();
    let dir = folder();
    let script = "mount -t tmpfs none $1 && mkdir $1/a $1/b $1/w $1/o && \
                  mount -t overlay -o lowerdir=$1/a,upperdir=$1/b,workdir=$1/w none $1/o && echo ready && read line && \
                  for number in 1 2 3; do echo text > $1/o/over; echo text > $1/temporary; done; echo done; read line";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(dir.path());
    let mut load = Load::start(command);
    if load.says() != "ready" {
        skip!("no overlay file system can be mounted here");
    }
    let pid = load.pid().to_string();
    let prog = start_watching(&["files", "-p", &pid]);
    load.tell("go");
    assert_eq!(load.says(), "done");
    let done = prog.interrupt().code(0);
    for (file, want) in [("o/over", "overlay"), ("temporary", "tmpfs")] {
        let path = dir.path().join(file);
        let rows: Vec<Value> = done.json().into_iter().filter(of(&path)).collect();
        let [row] = &rows[..] else { panic!("one row of {path:?}: {done:#?}") };
        assert_eq!((row["file_system"].as_str(), number(row, "writes")), (Some(want), 3), "{row}");
    }
}

/// Calls that go on are listed with their files, also those since before the run.
#[test]
fn calls_that_hang_are_listed() {
    need_events!();
    let dir = folder();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
    // Open for reading, too, so that it does not wait for a reader, nor a reader for it.
    let _writer = fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
    let second = dir.path().join("second");
    nix::unistd::mkfifo(&second, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; read line < $1; read line; cat $2", "sh"]).args([&fifo, &second]);
    let mut load = Load::start(command);
    assert_eq!(load.says(), "ready");
    let pid = load.pid();
    common::until("it waits in a read", || {
        fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|text| text.starts_with("0 0x0 "))
    });
    let prog = start_watching(&["files", "-p", &pid.to_string(), "-i", "300"]);
    let hangs = |object: &Value, call: &str, path: &Path| {
        object["table"] == "open" && object["call"] == call && object["file"].as_str() == path.to_str()
    };
    let mut prog = prog;
    let row = prog.object(|object| hangs(object, "read", &fifo));
    assert_eq!((&row["since"], &row["comm"]), (&"before_start".into(), &"sh".into()), "{row}");
    assert!(number(&row, "age_ns") > 0, "{row}");
    fs::write(&fifo, "x\n").expect("it is read");
    load.tell("go");
    let row = prog.object(|object| hangs(object, "openat", &second));
    assert!(row["since"].is_null() && row["comm"] == "cat", "{row}");
    fs::write(&second, "").expect("it is opened");
    prog.interrupt().code(0);
    load.stop();
}

/// A reader that stands still loses records, and the rows say so.
#[test]
fn losses_are_marked() {
    need_events!();
    let dir = folder();
    let mut load = Load::of(&example("file_calls"), &[dir.path().to_str().expect("a path in UTF-8"), "cache"]);
    let pid = load_number(&load.says(), "pid").to_string();
    let prog = start_watching(&["files", "-p", &pid, "-m", "1"]);
    prog.stopped(|| {
        load.tell("go");
        load.says()
    });
    let done = prog.interrupt().code(0);
    assert!(done.total("lost") > 0, "{done:#?}");
    let tables = ["files", "processes", "operations"];
    let rows = done.json().into_iter().filter(|row| tables.iter().any(|table| row["table"] == *table));
    assert!(rows.filter(|row| row["type"] == "row").all(|row| row["verdict"] != "exact"), "{done:#?}");
}
