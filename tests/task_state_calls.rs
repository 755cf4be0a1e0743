//! task-state against waits that go on: when they are shown, how often, and with which call and file.

#[macro_use]
mod common;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::waits::{MS, is_state, still_waiting};
use common::{Load, example, load_number, number, run, start, start_watching, state_letter, until};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

const FIRST_NS: u64 = 200 * MS;

/// A `cat` that reads from a fifo into which nobody writes.
struct Reader {
    cat: Child,
    fifo: PathBuf,
    _writer: File,
    _dir: tempfile::TempDir,
}

impl Reader {
    fn new(name: &str) -> Reader {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join(name);
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).expect("a fifo");
        let writer = OpenOptions::new().read(true).write(true).open(&fifo).expect("a fifo");
        let input = File::open(&fifo).expect("a fifo");
        let cat = Command::new("cat").stdin(input).stdout(Stdio::null()).spawn().expect("cat");
        let stat = format!("/proc/{}/wchan", cat.id());
        until("cat reads", || fs::read_to_string(&stat).is_ok_and(|place| place.contains("pipe")));
        Reader { cat, fifo, _writer: writer, _dir: dir }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.cat.kill();
        let _ = self.cat.wait();
    }
}

#[test]
fn a_reader_of_a_fifo_is_in_read() {
    need_events!();
    let reader = Reader::new("a fifo");
    let pid = reader.cat.id().to_string();
    let shown = |event: &Value| event["type"] == "event" && still_waiting(event);
    let mut prof = start(&["task-state", "--than", "100", "-p", &pid, "--json"]);
    let event = prof.object(|event| shown(event) && !event["syscall"].is_null());
    let ended = prof.interrupt().code(0);
    assert_eq!((&event["state"], &event["since"]), (&"S".into(), &"before_start".into()), "{event}");
    assert_eq!((&event["syscall"], number(&event, "fd")), (&"read".into(), 0), "{event}");
    assert_eq!(event["path"], reader.fifo.to_str().expect("UTF-8"), "{event}");
    assert!(event["device"].is_string() && event["other"].is_null(), "{event}");
    assert!(event["wchan"].as_str().is_some_and(|place| place.contains("pipe")), "{event}");
    assert!(ended.of_type("event").iter().all(still_waiting), "{ended:#?}");
    // In text, for another path.
    let reader = Reader::new("b\n\x1b[31m S 9 ms");
    let mut prof = start(&["task-state", "--than", "100", "-p", &reader.cat.id().to_string()]);
    let line = prof.line(|line| line.contains(" in read(0, "));
    assert!(line.contains("b\\x0a\\x1b[31m S 9 ms on ") && line.contains(") at "), "{line}");
    prof.interrupt().code(0);
}

#[test]
fn sleeps_are_shown_less_and_less_often() {
    need_events!(alone);
    let reader = Reader::new("fifo");
    let ended = run(&["task-state", "--than", "10", "-p", &reader.cat.id().to_string(), "--for", "3600ms", "--json"]);
    let events = ended.code(0).of_type("event");
    let lengths: Vec<u64> = events.iter().map(|event| number(event, "duration_ns")).collect();
    assert!(lengths.len() >= 2 && lengths.len() <= 4, "{lengths:?}");
    for pair in lengths.windows(2) {
        assert!(pair[1] - pair[0] >= pair[0].max(1000 * MS), "{lengths:?}");
    }
}

#[test]
fn a_vfork_parent_is_in_its_call() {
    need_events!(alone);
    let mut load = Load::of(&example("dstate"), &["1", "0", "ts_vfork"]);
    load.says();
    let mut prof = start_watching(&["task-state", "-D", "--than", "100", "--filter", "ts_vfork", "-i", "100", "-g"]);
    load.tell(""); // it begins
    (0..3).for_each(|_| drop(prof.object(|event| event["type"] == "event" && still_waiting(event))));
    load.tell("");
    let truth = load.says();
    prof.object(|event| event["type"] == "event" && !still_waiting(event));
    let ended = prof.interrupt().code(0);
    let events = ended.of_type("event");
    let (last, before) = events.split_last().expect("events");
    assert!(!still_waiting(last) && before.len() >= 3, "{ended:#?}");
    // At once, then once a second, whatever the interval.
    assert!(before.len() as u64 <= load_number(&truth, "max_ns") / (1000 * MS) + 1, "{truth}, {ended:#?}");
    let lengths: Vec<u64> = before.iter().map(|event| number(event, "duration_ns")).collect();
    assert!(lengths[0] >= FIRST_NS && lengths.windows(2).all(|pair| pair[1] - pair[0] >= 1000 * MS), "{lengths:?}");
    for event in &events {
        let call = event["syscall"].as_str().expect("a call");
        assert!(["vfork", "clone", "clone3"].contains(&call) && event["fd"].is_null(), "{event}");
        assert_eq!(event["wchan"].is_string(), still_waiting(event), "{event}");
    }
    // Each line has the stack.
    let with_stack: Vec<bool> =
        events.iter().map(|event| event["stack"].as_array().is_some_and(|stack| !stack.is_empty())).collect();
    assert!(with_stack.iter().all(|with_stack| *with_stack), "{ended:#?}");
}

#[test]
fn a_short_wait_has_one_line() {
    need_events!(alone);
    let mut prof = start_watching(&["task-state", "-S", "--than", "1", "--filter", "thread-*"]);
    let load = Load::of(&example("threads"), &["20", "50"]);
    let ends = |event: &Value| event["type"] == "event" && !still_waiting(event);
    prof.object(ends);
    load.stop();
    let ended = prof.interrupt().code(0);
    let events = ended.of_type("event");
    assert!(events.iter().filter(|event| ends(event)).count() >= 20, "{ended:#?}");
    for event in events.iter().filter(|event| still_waiting(event)) {
        assert!(number(event, "duration_ns") >= FIRST_NS, "the machine stood still, but: {event}");
    }
}

/// Far more waiting threads than lines are allowed.
#[test]
fn a_flood_of_waits_is_bounded_and_says_what_is_left_out() {
    need_events!(alone);
    let mut prof = start_watching(&["task-state", "-S", "--than", "10", "--filter", "thread-*"]);
    let load = Load::of(&example("threads"), &["900", "60000"]);
    let pid = load.pid();
    let note = prof.err_line(|line| line.contains("more waits go on that are not shown"));
    let ended = prof.interrupt().code(0);
    assert!(note.contains("at most 128 a second"), "{note}");
    let lines: Vec<Value> = ended.of_type("event").into_iter().filter(|event| event["pid"] == pid).collect();
    let waits: Vec<&Value> = lines.iter().filter(|event| still_waiting(event)).collect();
    let span = number(waits[waits.len() - 1], "time_ns") - number(waits[0], "time_ns");
    let most = 256 + 128 * span.div_ceil(1000 * MS) + 128;
    assert!(waits.len() > 200 && waits.len() as u64 <= most, "{} lines in {span} ns", waits.len());
    let named = waits.iter().filter(|event| !event["syscall"].is_null()).count();
    assert!(named > 0 && named < waits.len(), "questions are bounded too: {named} of {}", waits.len());
}

/// A file system of its own in a file, frozen as long as this lives.
struct Frozen {
    mount: PathBuf,
    root: Option<File>,
    _dir: tempfile::TempDir,
}

const FIFREEZE: libc::c_ulong = 0xc004_5877; // _IOWR('X', 119, int), linux/fs.h
const FITHAW: libc::c_ulong = 0xc004_5878;

fn does(command: &mut Command) -> Result<(), String> {
    let done =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).output().map_err(|err| format!("{command:?}: {err}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

impl Frozen {
    /// Mounts a file system, not yet frozen. `Err`: why that is not possible.
    fn mounted() -> Result<Frozen, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, mount) = (dir.path().join("image"), dir.path().join("mnt"));
        File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
        fs::create_dir(&mount).expect("a directory");
        does(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        does(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(&mount))?;
        Ok(Frozen { mount, root: None, _dir: dir })
    }

    fn freeze(&mut self) -> Result<(), String> {
        let root = File::open(&self.mount).expect("the mount");
        // SAFETY: an ioctl whose argument is not looked at.
        if unsafe { libc::ioctl(root.as_raw_fd(), FIFREEZE as _, 0) } != 0 {
            return Err(format!("freeze: {}", std::io::Error::last_os_error()));
        }
        self.root = Some(root);
        Ok(())
    }

    fn thaw(&mut self) {
        if let Some(root) = self.root.take() {
            // SAFETY: as above.
            unsafe { libc::ioctl(root.as_raw_fd(), FITHAW as _, 0) };
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

fn device_of(mount: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mut lines = mounts.lines().filter_map(|line| line.split_once(' '));
    let line = lines.find(|(_, rest)| rest.starts_with(mount.to_str().expect("UTF-8")));
    line.expect("it is mounted").0.to_owned()
}

#[test]
fn a_writer_on_a_frozen_file_system_is_in_write() {
    need_events!(alone);
    let mut frozen = match Frozen::mounted() {
        Ok(frozen) => frozen,
        Err(why) => skip!("no file system of our own: {why}"),
    };
    let path = frozen.mount.join("access.log");
    let mut shell = Load::shell();
    let pid = shell.pid() as u64;
    shell.tell(&format!("exec 7>{}; echo ready", path.display()));
    shell.says();
    if let Err(why) = frozen.freeze() {
        skip!("{why}");
    }
    let mut prof = start_watching(&["task-state", "-D", "--than", "100", "-p", &pid.to_string(), "-g"]);
    shell.tell("echo hi >&7; echo done");
    until("the write is stuck", || state_letter(pid) == Some('D'));
    let of_load = |event: &Value| event["type"] == "event" && event["tid"] == pid;
    let event = prof.object(|event| of_load(event) && !event["syscall"].is_null());
    frozen.thaw();
    assert_eq!(shell.says(), "done");
    let last = prof.object(|event| of_load(event) && !still_waiting(event));
    prof.interrupt().code(0);
    assert!(is_state(&event, "D") && still_waiting(&event) && event["since"].is_null(), "{event}");
    for event in [&event, &last] {
        assert_eq!(event["syscall"], "write", "{event}");
        assert_eq!(event["path"], path.to_str().expect("UTF-8"), "{event}");
        assert_eq!(event["device"], device_of(&frozen.mount), "{event}");
    }
    assert!(last["wchan"].is_null() && last["waker"].is_object(), "{last}");
}
