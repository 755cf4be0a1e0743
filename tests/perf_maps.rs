//! Perf maps of code generated at run time: which of them are used.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::user::NOBODY;
use common::{Done, Load, number, start};
use serde_json::Value;

const CALL: &str = "syscalls:sys_enter_getppid";
/// A perf map with one symbol that covers every address of a process.
const MAP: &str = "10000 7fffffff0000 call_from_jit\n";

/// A load of the user `nobody` that calls from code without a file, and the path of its perf map.
struct Jit {
    load: Load,
    map: PathBuf,
    _dir: tempfile::TempDir,
}

impl Jit {
    fn start() -> Jit {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let places = dir.path().join("places");
        common::copy_program(common::example("places"), &places);
        let id = NOBODY.to_string();
        let mut load = Command::new("setpriv");
        load.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(places).args(["jit", "3"]);
        load.env("PLACES_GO", "stdin");
        let mut load = Load::start(load);
        let ready = load.says();
        let pid: i32 = ready.split("pid=").nth(1).and_then(|pid| pid.parse().ok()).expect("a pid");
        Jit { load, map: format!("/tmp/perf-{pid}.map").into(), _dir: dir }
    }

    fn write_map(&self, owner: u32, mode: u32) {
        write(&self.map, owner, mode);
    }

    /// Traces its calls.
    fn watch(mut self) -> Done {
        let pid = self.load.pid().to_string();
        let mut prof = start(&["trace", "-e", CALL, "-g", "--json", "-p", &pid]);
        prof.provoke(|| self.load.tell("go"), |line| line.contains(r#""type":"event""#));
        let _ = fs::remove_file(&self.map);
        drop(self);
        prof.finish().code(0)
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.map);
    }
}

fn write(path: &Path, owner: u32, mode: u32) {
    fs::write(path, MAP).expect("a map");
    chown(path, Some(owner), None).expect("chown");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// The frames in code without a file.
fn anonymous(done: &Done) -> Vec<Value> {
    let stack = |event: &Value| event["stack"].as_array().cloned().unwrap_or_default();
    let mut frames: Vec<Value> = done.of_type("event").iter().flat_map(stack).collect();
    frames.retain(|frame| frame["module"] == "//anon");
    frames
}

#[test]
fn only_a_map_of_the_process_itself_is_read() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let secret = dir.path().join("secret");
    write(&secret, 0, 0o600);
    let cases = [
        ("its own", "symbol", "call_from_jit"),
        ("none", "reason", "jit-no-map"),
        ("root's", "reason", "perf map of another user"),
        ("everybody's", "reason", "perf map that others may write"),
        ("a link", "reason", "perf map behind a link"),
    ];
    for (what, key, want) in cases {
        let jit = Jit::start();
        match what {
            "its own" => jit.write_map(NOBODY, 0o644),
            "root's" => jit.write_map(0, 0o644),
            "everybody's" => jit.write_map(NOBODY, 0o666),
            "a link" => symlink(&secret, &jit.map).expect("a link"),
            _ => {}
        }
        let frames = anonymous(&jit.watch());
        assert!(!frames.is_empty(), "{what}");
        for frame in frames {
            assert_eq!(frame[key], want, "{what}: {frame}");
        }
    }
}

#[test]
fn a_map_written_during_the_run_names_earlier_frames() {
    need_events!();
    let mut jit = Jit::start();
    let pid = jit.load.pid().to_string();
    let mut prof = start(&["trace", "-e", CALL, "-g", "--json", "-p", &pid]);
    let calls = |line: &str| line.contains(r#""type":"event""#);
    let unnamed = prof.provoke(|| jit.load.tell("go"), |line| calls(line));
    assert!(unnamed.contains("jit-no-map"), "{unnamed}");
    jit.write_map(NOBODY, 0o644);
    prof.provoke(|| jit.load.tell("go"), |line| calls(line) && line.contains("call_from_jit"));
    drop(jit);
    prof.finish().code(0);
}

#[test]
fn sums_of_the_run_have_the_names_of_their_report() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let drawn = dir.path().join("drawn.folded");
    let mut load = Load::of(&common::example("burn"), &["-"]);
    load.says();
    let map = PathBuf::from(format!("/tmp/perf-{}.map", load.pid()));
    let pid = load.pid().to_string();
    let drawing = drawn.to_str().expect("UTF-8");
    let mut prof = start(&["profile", "-F", "199", "-g", "--json", "-i", "300", "--flame-graph", drawing, "-p", &pid]);
    let is_later = |object: &Value, than: u64| object["type"] == "interval" && number(object, "end_ns") > than;
    prof.object(|object| is_later(object, 0) && number(object, "samples") > 10);
    common::until("it is drawn", || fs::read_to_string(&drawn).is_ok_and(|lines| lines.contains("jit-no-map")));
    write(&map, 0, 0o644);
    // The map is looked for once a second.
    let written = perf_prof::sys::monotonic_ns();
    prof.object(|object| is_later(object, written + 1_200_000_000));
    let done = prof.interrupt().code(0);
    let _ = fs::remove_file(&map);
    drop(load);
    let functions = done.rows_and_lists().into_iter().filter(|row| row["module"] == "//anon");
    let functions: Vec<Value> = functions.filter(|row| row["stack"].is_null()).collect();
    assert!(functions.iter().any(|row| row["symbol"] == "call_from_jit"), "{functions:?}");
    assert!(functions.iter().all(|row| row["reason"].is_null()), "{functions:?}");
    let lines = fs::read_to_string(&drawn).expect("a flame graph");
    assert!(lines.contains("call_from_jit") && !lines.contains("jit-no-map"), "{lines}");
}
