//! blktrace: requests of a program that counts and times its own.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Again, Done, Load, attempts, example, load_number, number, or_again, run, start_watching};
use serde_json::Value;

const READS: u64 = 300;
const WRITES: u64 = 50;
const READ_BYTES: u64 = 4 << 10;
const WRITE_BYTES: u64 = 16 << 10;

/// A folder for files on a disk. None: the build's folder is on no block device.
fn on_disk() -> Option<(tempfile::TempDir, String)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let device = fs::metadata(dir.path()).expect("it is there").dev();
    let link = format!("/sys/dev/block/{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let path = fs::canonicalize(link).ok()?;
    let name = path.file_name()?.to_str()?.to_owned();
    Some((dir, name))
}

/// Rows of a table about one kind of request, or about all.
fn rows<'a>(table: &'a str, kind: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |row| row["type"] == "row" && row["table"] == table && (kind.is_empty() || row["kind"] == kind)
}

/// Watches the direct I/O of a program. Returns what it says at its end.
fn watch(dir: &Path, more: &[&str]) -> (String, Done) {
    let file = dir.join("file");
    let path = file.to_str().expect("a path in UTF-8");
    let mut load = Load::of(&example("direct_io"), &[path, &READS.to_string(), &WRITES.to_string()]);
    let pid = load_number(&load.says(), "pid").to_string();
    let prog = start_watching(&[&["blktrace", "-p", &pid, "-m", "1024"], more].concat());
    load.tell("go");
    let said = load.says();
    (said, prog.interrupt().code(0))
}

/// Why requests may be missing.
fn unseen(done: &Done) -> [Again<'_>; 3] {
    [Again::RecordsLost(done), Again::Discarded(done), Again::EndsUnseen(done)]
}

#[test]
fn requests_are_those_of_the_program() {
    need_events!();
    let Some((dir, _)) = on_disk() else { return };
    attempts(|| {
        let (said, done) = watch(dir.path(), &["-i", "200", "--than", "1ns"]);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let mut all_ns = 0;
        for (kind, count, bytes, call) in
            [("read", READS, READ_BYTES, "read_ns"), ("sync write", WRITES, WRITE_BYTES, "write_ns")]
        {
            let of_kind = |key: &str| done.sum(key, rows("requests", kind));
            // Requests that no record says are done are open, as the run says.
            or_again(of_kind("count") == count, &unseen(&done), || {
                format!("{} {kind} of {count}: {done:#?}", of_kind("count"))
            })?;
            assert_eq!((of_kind("bytes"), of_kind("no_start")), (bytes * count, 0), "{done:#?}");
            let lines = done.of_type("event").into_iter().filter(|line| line["kind"] == kind).count() as u64;
            assert_eq!(lines, count, "a line each: {done:#?}");
            let (told_ns, called_ns) = (of_kind("total_ns"), load_number(&said, call));
            assert!(told_ns < called_ns, "a request is within its call: {told_ns} of {called_ns}, {done:#?}");
            let stages = ["entry_ns", "plug_ns", "queue_ns", "device_ns"].map(of_kind);
            assert_eq!(stages.iter().sum::<u64>(), told_ns, "stages add up: {stages:?}, {done:#?}");
            assert!(stages[3] > 0, "{done:#?}");
            all_ns += told_ns;
        }
        let by_task = |key: &str| done.sum(key, rows("submitters", ""));
        assert_eq!(
            [by_task("requests"), by_task("bytes"), by_task("total_ns")],
            [READS + WRITES, READS * READ_BYTES + WRITES * WRITE_BYTES, all_ns],
            "{done:#?}"
        );
        assert_eq!(done.sum("total_ns", rows("stages", "")), all_ns, "{done:#?}");
        let comms: Vec<Value> = done.json().into_iter().filter(rows("submitters", "")).collect();
        assert!(comms.iter().all(|row| row["comm"] == "direct_io"), "the submitter, wherever it ends: {comms:#?}");
        Ok(())
    });
}

/// A disk is found by its name, by the path of a folder on it, and by its number; a file is none.
#[test]
fn a_disk_is_chosen_by_name_or_folder() {
    need_events!();
    let Some((dir, name)) = on_disk() else { return };
    let folder = dir.path().to_str().expect("a path in UTF-8");
    for disk in [name.as_str(), folder] {
        attempts(|| {
            let (_, done) = watch(dir.path(), &["-d", disk]);
            or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
            let reads = done.sum("count", rows("requests", "read"));
            or_again(reads == READS, &unseen(&done), || format!("{disk}: {reads} reads: {done:#?}"))
        });
    }
    let file = dir.path().join("plain");
    fs::write(&file, "text").expect("it is written");
    let done = run(&["blktrace", "-d", file.to_str().expect("a path in UTF-8")]).code(2);
    assert!(done.err().contains(&format!("name the disk with -d {name}")), "{done:#?}");
    run(&["blktrace", "-d", "nosuchdisk"]).code(2).says(&["there is no disk nosuchdisk", "disks are"]);
}

/// What is issued is done or goes on; and nothing is counted twice in intervals.
#[test]
fn requests_of_all_tasks_are_those_of_the_disk() {
    need_events!(alone);
    let Some((dir, name)) = on_disk() else { return };
    attempts(|| {
        // Reads and writes that the disk has done, and the sectors of them.
        let counts = || {
            let text = fs::read_to_string(format!("/sys/class/block/{name}/stat")).expect("its counters");
            let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            [numbers[0], numbers[2], numbers[4], numbers[6]]
        };
        let file = dir.path().join("file");
        let path = file.to_str().expect("a path in UTF-8");
        let mut load = Load::of(&example("direct_io"), &[path, "200", "20"]);
        load.says();
        let prog = start_watching(&["blktrace", "-d", &name, "-m", "1024", "-i", "100"]);
        let before = counts();
        load.tell("go");
        load.says();
        let after = counts();
        let done = prog.interrupt().code(0);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let kinds = |kinds: [&str; 2], key: &str| -> u64 {
            kinds.iter().map(|kind| done.sum(key, rows("requests", kind))).sum()
        };
        // The kernel's own counters, read at the start of the run and at each interval.
        let told = |key: &str| done.sum(key, |row| rows("disks", "")(row) && row["device"] == *name);
        assert!(told("busy_ns") <= told("span_ns") + 20_000_000, "{done:#?}");
        let counted = told("requests");
        assert!(counted >= after[0] - before[0] + after[2] - before[2], "{counted}: {done:#?}");
        let unknown = done.sum("no_start", rows("requests", ""));
        let reads = kinds(["read", "readahead"], "count");
        let writes = kinds(["write", "sync write"], "count");
        let bytes = [kinds(["read", "readahead"], "bytes"), kinds(["write", "sync write"], "bytes")];
        let truth: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
        // Requests that began before the run have no bytes. The disk serves others, too, before and after the counters are read.
        or_again(
            reads + unknown >= truth[0]
                && writes + unknown >= truth[2]
                && (unknown > 0 || bytes[0] >= truth[1] * 512 && bytes[1] >= truth[3] * 512),
            &unseen(&done),
            || format!("{reads} reads, {writes} writes, {bytes:?} bytes of {truth:?}: {done:#?}"),
        )?;
        assert!(number(&done.end(), "samples") > 0);
        Ok(())
    });
}

/// The bytes of each file that `file_shares` writes.
const SHARES: [(&str, u64); 3] = [("one", 8 * (256 << 10)), ("two", 16 * (256 << 10)), ("five", 40 * (256 << 10))];

/// Watches how a program writes three files.
fn watch_shares(dir: &Path, how: &str, of_program: bool, more: &[&str]) -> Done {
    let mut load = Load::of(&example("file_shares"), &[dir.to_str().expect("a path in UTF-8"), how]);
    let pid = load_number(&load.says(), "pid").to_string();
    let tasks: &[&str] = if of_program { &["-p", &pid] } else { &[] };
    let prog = start_watching(&[&["blktrace", "-m", "2048", "-i", "200"], tasks, more].concat());
    load.tell("go");
    load.says();
    let done = prog.interrupt().code(0);
    load.tell("end");
    done
}

/// Whether this machine finds a file by its inode.
fn has_file_names(dir: &Path) -> bool {
    use perf_prof::file::{FileNames, FoundBy, InodeKey};
    use perf_prof::host::{BlockDevice, BlockDevices, Host};
    let meta = fs::metadata(dir).expect("it is there");
    let key = InodeKey { device: BlockDevice::of(meta.dev()), inode: meta.ino() };
    let mut names = FileNames::start(&Host::default(), BlockDevices::default()).expect("a thread");
    names.seen(key, perf_prof::sys::monotonic_ns());
    names.name(key).found == FoundBy::Inode
}

/// Each file has its share of the bytes, whoever writes them and when.
#[test]
fn files_have_their_shares() {
    need_events!(alone);
    let Some((dir, _)) = on_disk() else { return };
    if !has_file_names(dir.path()) {
        skip!("no files are found by their inodes here");
    }
    for (how, of_program, purpose) in [
        ("direct", true, "direct"),
        ("deleted", true, "direct"),
        ("fsync", true, "sync"),
        ("later", false, "writeback"),
    ] {
        attempts(|| {
            let done = watch_shares(dir.path(), how, of_program, &["--by", "file"]);
            or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
            let mark = if how == "deleted" { " (deleted)" } else { "" };
            for (name, bytes) in SHARES {
                let path = format!("{}{mark}", dir.path().join(name).join("data").display());
                let is_row = |row: &Value| row["file"] == *path && row["use"] == purpose;
                let told = done.sum("bytes", |row| rows("files", "")(row) && is_row(row));
                // Beside its data, an fsync writes what the file system keeps of the file.
                let is_right = told >= bytes * 95 / 100 && told <= bytes * 105 / 100;
                or_again(is_right, &unseen(&done), || format!("{how} {name}: {told} of {bytes}: {done:#?}"))?;
                let json = done.json();
                let mut found = json.iter().filter(|row| row["table"] == "files" && is_row(row));
                assert!(found.all(|row| row["file_found"] == "inode"), "{done:#?}");
                if purpose == "writeback" {
                    let mut waits = json.iter().filter(|row| row["table"] == "files" && is_row(row));
                    assert!(waits.all(|row| row["total_ns"].is_null() && row["max_ns"].is_null()), "{done:#?}");
                }
            }
            Ok(())
        });
    }
}

#[test]
fn directories_have_the_shares_of_their_files() {
    need_events!(alone);
    let Some((dir, _)) = on_disk() else { return };
    if !has_file_names(dir.path()) {
        skip!("no files are found by their inodes here");
    }
    let parts = dir.path().iter().count() - 1;
    attempts(|| {
        let done = watch_shares(dir.path(), "direct", true, &["--by", "directory"]);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        for (name, bytes) in SHARES {
            let path = dir.path().join(name).display().to_string();
            let told = done.sum("bytes", |row| rows("files", "")(row) && row["file"] == *path);
            or_again(told == bytes, &unseen(&done), || format!("{name}: {told} of {bytes}: {done:#?}"))?;
        }
        // Of all files below it that are read or written alike, a directory has one row in an interval.
        let mut keys: Vec<String> = done
            .json()
            .iter()
            .filter(|row| rows("files", "")(row))
            .map(|row| format!("{} {} {}", row["interval"], row["use"], row["file"]))
            .collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
        let depth = parts.to_string();
        let done = watch_shares(dir.path(), "direct", true, &["--by", "directory", "--depth", &depth]);
        let path = dir.path().display().to_string();
        let told = done.sum("bytes", |row| rows("files", "")(row) && row["file"] == *path && row["use"] == "direct");
        let mut direct = done.json();
        direct.retain(|row| rows("files", "")(row) && row["use"] == "direct");
        let mut intervals: Vec<u64> = direct.iter().map(|row| number(row, "interval")).collect();
        intervals.dedup();
        assert_eq!(intervals.len(), direct.len(), "one row for all files: {direct:#?}");
        let all: u64 = SHARES.iter().map(|(_, bytes)| bytes).sum();
        or_again(told == all, &unseen(&done), || format!("{told} of {all}: {done:#?}"))
    });
}

/// The line of a slow request has its file.
#[test]
fn lines_have_files() {
    need_events!(alone);
    let Some((dir, _)) = on_disk() else { return };
    if !has_file_names(dir.path()) {
        skip!("no files are found by their inodes here");
    }
    attempts(|| {
        let (_, done) = watch(dir.path(), &["--than", "1ns"]);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let path = dir.path().join("file").display().to_string();
        let lines = done.of_type("event");
        let of_file = lines.iter().filter(|line| line["file"] == *path && line["use"] == "direct").count() as u64;
        or_again(of_file == READS + WRITES, &unseen(&done), || format!("{of_file} lines: {done:#?}"))
    });
}
