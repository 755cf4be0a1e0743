//! Instructions per event, counted by callgrind over recorded rings: the same for the same records, on any machine,
//! however busy. `cargo bench --bench replay` records the loads below if they are not recorded yet, which needs root,
//! and prints a table. `-- DIR ...` counts these recordings, and `-- --record DIR PROFILER [OPTION ...] -- LOAD ...`
//! makes one.
//!
//! A recording has the bytes of the rings as the reader found them, round by round, and the formats of the events. Only
//! the identifiers are those of [`Evlist::assign_ids`], and records of names tell who lived at the start. Records of
//! switches that stand in for hidden ones are left out.

mod common;

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perf_event_open_sys::bindings as b;

use perf_prof::host::{Host, online_cpus};
use perf_prof::perf::Evlist;
use perf_prof::perf::classes::Class;
use perf_prof::perf::record::{record_type, sample_identifier};
use perf_prof::perf::target::Target;
use perf_prof::profiler::{Profiler, Setup, TracefsFinder};
use perf_prof::profilers::trials;
use perf_prof::ringbuf::RingBuf;
use perf_prof::run::replay::{Played, RING_PAGES, Replay};
use perf_prof::sys;
use perf_prof::sys::poll::Poller;
use perf_prof::task::Watched;

/// Name, profiler with options, and the example that it watches with its arguments. `+`: and another example.
const LOADS: [(&str, &str, &str); 9] = [
    ("task-state", "task-state", "pingpong 100000 1 1"),
    ("task-state-turns", "task-state", "pingpong 60000 0 0 + pingpong 60000 1 1"),
    ("rundelay", "rundelay", "pingpong 60000 1 1"),
    ("kmemleak-slab-g", "kmemleak slab -g", "kalloc 30000 10 --exit"),
    ("trace", "trace -e sched:sched_switch,sched:sched_wakeup,sched:sched_stat_runtime", "pingpong 15000 1 1"),
    (
        "multi-trace",
        "multi-trace -e sched:sched_wakeup//key=pid/ -e sched:sched_switch//key=next_pid/",
        "pingpong 60000 1 1",
    ),
    ("multi-trace-cycle", "multi-trace -e sched:sched_switch --cycle", "pingpong 60000 1 1"),
    ("multi-trace-ptr", "multi-trace -e kmem:kmalloc -e kmem:kfree -k ptr", "kalloc 30000 10 --exit"),
    ("syscalls", "syscalls", "flood 100000"),
];

/// Names of the file with the profiler and its options, and of the file with the bytes.
const COMMAND: &str = "command";
const RINGS: &str = "rings";
/// In place of the number of a class.
const SIDE: u32 = u32::MAX;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--play", directory] => {
            println!("{:?}", play(directory.as_ref())?);
            Ok(())
        }
        ["--record", directory, command @ ..] => {
            let (command, load) = command.split_at(command.iter().position(|arg| *arg == "--").context("a load")?);
            record(directory.as_ref(), command, &load[1..])
        }
        _ if !common::can_run() => Ok(()),
        [] => {
            let mut directories = Vec::new();
            for (name, command, load) in LOADS {
                let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay").join(name);
                if !directory.join(RINGS).exists() {
                    let [command, load] = [command, load].map(|text| text.split(' ').collect::<Vec<_>>());
                    record(&directory, &command, &load)?;
                }
                directories.push(directory);
            }
            count(&directories)
        }
        directories => count(&directories.iter().map(PathBuf::from).collect::<Vec<_>>()),
    }
}

/// Has callgrind count the instructions of each recording.
fn count(directories: &[PathBuf]) -> Result<()> {
    println!("| recording | events | instructions per event |\n| --- | ---: | ---: |");
    for directory in directories {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*replay_round*"])
            .arg(format!("--callgrind-out-file={}", directory.join("callgrind.out").display()))
            .arg(env::current_exe()?)
            .arg("--play")
            .arg(directory)
            .output()
            .context("cannot start valgrind")?;
        let [said, counted] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let events = common::number_after(&said, "samples:").filter(|events| *events > 0);
        let counted_instructions = common::number_after(&counted, "Collected :");
        let (Some(events), Some(instructions)) = (events, counted_instructions) else {
            bail!("{}: {said}{counted}", directory.display());
        };
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        println!("| {name} | {events} | {:.1} |", instructions as f64 / events as f64);
    }
    Ok(())
}

fn build(command: &[&str]) -> Result<Box<dyn Profiler>> {
    let (name, options) = command.split_first().context("a profiler")?;
    let trial = trials().into_iter().find(|trial| trial.name == *name);
    (trial.with_context(|| format!("no profiler {name:?}"))?.build)(options)
}

/// Watches a load, and keeps all that the rings hold.
fn record(directory: &Path, command: &[&str], load: &[&str]) -> Result<()> {
    let mut profiler = build(command)?;
    let (host, target, tracefs) = (Host::default(), Target::everything(), TracefsFinder::default());
    let watched = Watched::new(&target, &host);
    let mut setup = Setup::new(&tracefs, &target, &host, &watched, [nix::unistd::gettid().as_raw(); 2]);
    setup.stacks = command.contains(&"-g");
    let mut evlist = Evlist::new();
    profiler.init(&mut evlist, &setup)?;
    profiler.filter(&mut evlist, &setup)?;
    for (_, evsel) in evlist.iter() {
        let (system, name) = evsel.name().split_once(':').context("an event without a format")?;
        let (from, to) =
            [tracefs.get()?.root(), directory].map(|root| root.join("events").join(system).join(name)).into();
        fs::create_dir_all(&to)?;
        fs::write(to.join("format"), fs::read(from.join("format"))?)?;
    }
    let cpus = online_cpus(&host)?;
    evlist.plan(&target, &host, cpus.len(), 0)?;
    let mut poller = Poller::new()?;
    let (mut rings, mut places) = (Vec::new(), Vec::new());
    for &cpu in &cpus {
        for (class, ring) in evlist.open_cpu(cpu, &mut { RING_PAGES })?.into_iter().enumerate() {
            rings.push(ring);
            places.push((cpu, Class::Events(class)));
        }
        if let Some(ring) = evlist.open_side_records(cpu, &mut { RING_PAGES })? {
            rings.push(ring);
            places.push((cpu, Class::Side));
        }
    }
    for &(cpu, class) in &places {
        if let Some(owner) = evlist.ring_owner(cpu, class) {
            poller.add_edge(owner, u64::from(cpu))?;
        }
    }
    fs::write(directory.join(COMMAND), command.join("\n"))?;
    let mut file = BufWriter::new(File::create(directory.join(RINGS))?);
    put(&mut file, rings.len() as u64)?;
    for &(cpu, class) in &places {
        let class = if let Class::Events(class) = class { class as u32 } else { SIDE };
        put(&mut file, u64::from(cpu) << 32 | u64::from(class))?;
    }
    let mut pieces = vec![Vec::new(); rings.len()];
    let side = places.iter().position(|place| place.1 == Class::Side).unwrap_or(0);
    pieces[side] = names(sys::monotonic_ns())?;
    evlist.enable()?;
    let start = |load: &[&str]| -> Result<_> {
        let (program, args) = load.split_first().context("a load")?;
        Ok(common::example_with(program, args)?.stdout(Stdio::null()).stdin(Stdio::null()).spawn()?)
    };
    let mut loads: Vec<_> = load.split(|arg| *arg == "+").map(start).collect::<Result<_>>()?;
    let mut follow_up = false;
    loop {
        // As in a run: a round that read records is followed by another one.
        let _ = poller.wait(Duration::from_millis(if follow_up { 2 } else { 100 }))?;
        let is_over = loads.iter_mut().map(std::process::Child::try_wait).collect::<Result<Vec<_>, _>>()?;
        let is_over = is_over.iter().all(Option::is_some);
        if is_over {
            sys::perf::disable_all()?;
        }
        let now = sys::monotonic_ns();
        rings.iter_mut().zip(&mut pieces).for_each(|(ring, piece)| take(ring, &evlist, piece));
        put(&mut file, now)?;
        follow_up = !follow_up && pieces.iter().any(|piece| !piece.is_empty());
        for piece in &mut pieces {
            put(&mut file, piece.len() as u64)?;
            file.write_all(piece)?;
            piece.clear();
        }
        if is_over {
            break;
        }
    }
    let lost: u64 = places.iter().map(|&(cpu, class)| evlist.take_lost(cpu, class).samples).sum();
    ensure!(lost == 0, "{lost} samples were lost: try a smaller load");
    Ok(file.flush()?)
}

fn put(file: &mut impl Write, word: u64) -> Result<()> {
    Ok(file.write_all(&word.to_ne_bytes())?)
}

/// Appends what a ring holds.
fn take(ring: &mut RingBuf, evlist: &Evlist, piece: &mut Vec<u8>) {
    ring.load();
    while let Some(record) = ring.peek() {
        let at = piece.len();
        let kind = record_type(record);
        if kind == b::PERF_RECORD_SAMPLE {
            piece.extend(record);
            let route = sample_identifier(record).and_then(|id| evlist.route(id));
            let number = route.map_or(0, |route| route.event.index() as u64 + 1);
            piece[at + 8..at + 16].copy_from_slice(&number.to_ne_bytes());
        } else if kind != b::PERF_RECORD_SWITCH && kind != b::PERF_RECORD_SWITCH_CPU_WIDE {
            piece.extend(record);
        }
        ring.advance();
    }
    ring.publish();
}

/// The COMM records of all threads that live.
fn names(now: u64) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().filter_map(Result::ok) {
            let Some(tid) = thread.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let name = fs::read(thread.path().join("comm")).unwrap_or_default();
            let mut comm = [0; 16];
            let length = name.len().saturating_sub(1).min(15); // without the line's end
            comm[..length].copy_from_slice(&name[..length]);
            let who = [pid.to_ne_bytes(), tid.to_ne_bytes()].concat();
            let trailer = [now, 0, 0].map(u64::to_ne_bytes).concat();
            let body = [who.as_slice(), &comm, &who, &trailer].concat();
            records.extend(b::PERF_RECORD_COMM.to_ne_bytes());
            records.extend(0_u16.to_ne_bytes());
            records.extend((8 + body.len() as u16).to_ne_bytes());
            records.extend(body);
        }
    }
    Ok(records)
}

/// Plays a recording.
fn play(directory: &Path) -> Result<Played> {
    let bytes = fs::read(directory.join(RINGS))?;
    let mut rest = bytes.as_slice();
    let mut places = Vec::new();
    for _ in 0..word(&mut rest)? {
        let place = word(&mut rest)?;
        let class = if place as u32 == SIDE { Class::Side } else { Class::Events(place as u32 as usize) };
        places.push(((place >> 32) as u32, class));
    }
    let rings = places.len();
    let command = fs::read_to_string(directory.join(COMMAND))?;
    let command: Vec<&str> = command.lines().collect();
    let mut replay = Replay::new(build(&command)?, directory, command.contains(&"-g"), places)?;
    let mut is_first = true;
    while !rest.is_empty() {
        let now = word(&mut rest)?;
        if std::mem::take(&mut is_first) {
            replay.start(now);
        }
        for ring in 0..rings {
            let length = usize::try_from(word(&mut rest)?)?;
            let (records, others) = rest.split_at_checked(length).context("the recording is cut")?;
            replay.write(ring, records)?;
            rest = others;
        }
        replay.replay_round(now, rest.is_empty());
        replay.tick(now);
    }
    Ok(replay.played())
}

fn word(rest: &mut &[u8]) -> Result<u64> {
    let (word, others) = rest.split_first_chunk().context("the recording is cut")?;
    *rest = others;
    Ok(u64::from_ne_bytes(*word))
}
