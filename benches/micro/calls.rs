//! The cost of a system call's records by the number of busy CPUs: through the merge, the decoder and `syscalls`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use perf_prof::perf::classes::Class;
use perf_prof::profilers::trials;
use perf_prof::run::replay::Replay;

use super::common::Spread;
use super::merges::RingOrder;
use super::{TURNS, pair, with_header};

/// Bytes in a ring at a round, where all of them together have at most [`MAX_BYTES`]: half of a ring, when the reader is woken.
const RING_BYTES: u64 = 4 << 20;
/// More than the caches of a CPU hold.
const MAX_BYTES: u64 = 64 << 20;
/// ns between two records.
const PERIOD: u64 = 4;

const ENTER: &str = "\
name: sys_enter
ID: 348
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;
\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;

print fmt: \"\"
";
const EXIT: &str = "\
name: sys_exit
ID: 347
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;
\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;

print fmt: \"\"
";

/// A thread on each of `cpus` CPUs calls getppid, and their records lie between each other in time, `bunch` at a time.
pub fn calls(cpus: u64, bunch: u64) -> Result<()> {
    let tracefs = tempfile::tempdir()?;
    write_formats(tracefs.path())?;
    let trial = trials().into_iter().find(|trial| trial.name == "syscalls").context("no syscalls")?;
    let places = (0..cpus as u32).map(|cpu| (cpu, Class::Events(0))).collect();
    let mut replay = Replay::new((trial.build)(&[])?, tracefs.path(), false, places)?;
    let call_bytes = (record(0, 0, 0).len() + record(0, 0, 1).len()) as u64;
    let records = (cpus * RING_BYTES).min(MAX_BYTES) / call_bytes * 2;
    let order = RingOrder::new(records, cpus, bunch);
    let mut written = vec![0; cpus as usize];
    let mut now = 1;
    let mut times = Vec::new();
    replay.start(now);
    for turn in 0..=TURNS {
        let before = replay.played().samples;
        order.visit(|ring| {
            now += PERIOD;
            written[ring] += 1;
            replay.write(ring, &record(ring as u32, now, written[ring]))
        })?;
        let start = std::time::Instant::now();
        replay.replay_round(now, true);
        let time = start.elapsed().as_nanos() as f64;
        let events = replay.played().samples - before;
        ensure!(events == order.records(), "{:?}", replay.played());
        if turn > 0 {
            times.push(time / events as f64); // without the pages' first use
        }
    }
    ensure!(replay.played().late == 0, "{:?}", replay.played());
    println!("{:<40} {} ns", format!("calls on {cpus} CPUs, {bunch} records at a time"), Spread::of(&times));
    Ok(())
}

fn write_formats(tracefs: &Path) -> Result<()> {
    for (name, format) in [("sys_enter", ENTER), ("sys_exit", EXIT)] {
        let directory = tracefs.join("events/raw_syscalls").join(name);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("format"), format)?;
    }
    Ok(())
}

/// The start of a call, and the end after it.
fn record(cpu: u32, time: u64, number: u64) -> Vec<u8> {
    let (event, raw_bytes) = if number % 2 == 1 { (1_u64, 64) } else { (2, 24) };
    let tid = 1000 + cpu;
    let mut raw = vec![0_u8; raw_bytes];
    raw[4..8].copy_from_slice(&tid.to_ne_bytes());
    raw[8..16].copy_from_slice(&libc::SYS_getppid.to_ne_bytes());
    let mut body = Vec::new();
    for word in [event.to_ne_bytes(), pair(tid, tid), time.to_ne_bytes(), pair(cpu, 0)] {
        body.extend_from_slice(&word);
    }
    let mut record = with_header(&body, &raw);
    record.extend([2_u64, 0].map(u64::to_ne_bytes).concat()); // PERF_SAMPLE_REGS_ABI_64, and a register
    let size = record.len() as u16;
    record[6..8].copy_from_slice(&size.to_ne_bytes());
    record
}
