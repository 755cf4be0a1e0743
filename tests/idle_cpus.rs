//! Requests of a disk: their ends come in interrupts, mostly of an idle task, which some virtual machines hide from events.
//! Each request is seen to end, or counted as unseen.

#[macro_use]
mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use common::seccomp::{Refusal, refused};
use common::{Done, Prog, command, number, start};
use nix::sys::signal::Signal;
use rustc_hash::FxHashMap;
use serde_json::Value;

const READS: u64 = 1000;
const READ_BYTES: usize = 4096;

/// A file that is read from the disk itself.
struct DiskFile {
    file: File,
    /// Major and minor number of its device.
    device: (u64, u64),
}

impl DiskFile {
    /// None: its file system is on no disk.
    fn new(name: &str) -> Option<DiskFile> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut file = File::create(&path).ok()?;
        file.write_all(&vec![7; READS as usize * READ_BYTES]).and_then(|()| file.sync_all()).ok()?;
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
        fs::remove_file(&path).ok()?;
        let file = file.ok()?;
        let device = file.metadata().ok()?.dev();
        let disk = DiskFile { file, device: (libc::major(device).into(), libc::minor(device).into()) };
        disk.requests().map(|_| disk)
    }

    /// Requests that the device has completed, and those that are in flight.
    fn requests(&self) -> Option<(u64, u64)> {
        let text = fs::read_to_string("/proc/diskstats").ok()?;
        let lines = text.lines().map(|line| line.split_whitespace().flat_map(str::parse).collect::<Vec<u64>>());
        // Without the name: major, minor, reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ...
        let of = lines.into_iter().find(|line| line.starts_with(&[self.device.0, self.device.1]) && line.len() > 10)?;
        let others = [12, 16].map(|at| of.get(at).copied().unwrap_or(0)); // discarded, flushed
        Some((of[2] + of[6] + others.iter().sum::<u64>(), of[10]))
    }

    /// Reads all of it, with one request at a time.
    fn read(&self) {
        let mut buffer = vec![0; 2 * READ_BYTES];
        let start = buffer.as_ptr().align_offset(READ_BYTES);
        for at in 0..READS {
            let page = &mut buffer[start..start + READ_BYTES];
            self.file.read_exact_at(page, at * READ_BYTES as u64).expect("a read");
        }
    }

    /// As a record has it: `MKDEV`, include/linux/kdev_t.h.
    fn in_record(&self) -> u64 {
        self.device.0 << 20 | self.device.1
    }
}

/// What a run has seen of the requests, and how many the disk has completed meanwhile.
fn watch(disk: &DiskFile, mut watch: Prog) -> (Done, u64) {
    watch.err_line(|line| line.contains("ring buffer"));
    watch.signal(Signal::SIGUSR1);
    watch.object(|object| object["type"] == "interval"); // the events are on
    let before = disk.requests().expect("a disk").0;
    disk.read();
    let after = disk.requests().expect("a disk").0;
    (watch.interrupt().code(0), after - before)
}

/// The requests of this thread that were not seen to end; how many there were; and how many ended while an idle task was
/// current.
fn unended(done: &Done, disk: &DiskFile) -> (u64, u64, u64) {
    let mut open: FxHashMap<u64, bool> = FxHashMap::default();
    let (mut issued, mut idle) = (0, 0);
    for event in done.of_type("event").iter().filter(|event| event["fields"]["dev"] == disk.in_record()) {
        let is_ours = event["tid"] == common::own_tid(); // -1: the interrupt came while a task exited
        let sector = number(&event["fields"], "sector");
        if event["event"] == "block:block_rq_issue" {
            issued += u64::from(is_ours);
            open.insert(sector, is_ours);
        } else {
            idle += u64::from(event["tid"] == 0);
            open.remove(&sector);
        }
    }
    (open.values().filter(|is_ours| **is_ours).count() as u64, issued, idle)
}

const EVENTS: [&str; 5] = ["trace", "-e", "block:block_rq_issue,block:block_rq_complete", "--json", "-v"];

fn check(done: &Done, disk: &DiskFile, completed: u64) {
    let (unended, issued, idle) = unended(done, disk);
    let unseen = number(&done.end(), "unseen");
    println!(
        "{issued} of {READS} requests issued here, {unended} not seen to end, {idle} ended under idle tasks, {unseen} unseen"
    );
    assert!(completed >= READS && issued <= completed, "{completed}: {done:?}");
    assert!(unended <= unseen, "{unended} requests have no end, {unseen} events are unseen");
    let is_exact = |interval: &Value| interval["verdict"] == "exact";
    assert!(unseen == 0 || !done.of_type("interval").iter().all(is_exact), "{unseen} are unseen");
}

#[test]
fn requests_that_end_on_idle_cpus_are_seen() {
    need_events!();
    let Some(disk) = DiskFile::new("idle_cpus") else { skip!("the build directory is on no disk") };
    let (done, completed) = watch(&disk, start(&EVENTS));
    check(&done, &disk, completed);
}

#[test]
fn what_is_unseen_without_a_program_is_counted() {
    need_events!();
    let Some(disk) = DiskFile::new("idle_cpus_refused") else { skip!("the build directory is on no disk") };
    let refused = refused(command(&EVENTS), &[Refusal::of(libc::SYS_bpf, libc::EPERM)]);
    let (done, completed) = watch(&disk, Prog::spawn(refused));
    check(&done, &disk, completed);
}
