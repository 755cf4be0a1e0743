//! Instructions per event, counted by callgrind over recorded rings: the same for the same records, on any machine,
//! however busy. `cargo bench --bench replay` records the loads below if they are not recorded yet, which needs root,
//! and prints a table. `-- DIR ...` counts these recordings, and `-- --record DIR PROFILER [OPTION ...] -- LOAD ...`
//! makes one. `-- --pack DIR FILE NAME ...` makes a small file of it for `tests/snapshots.rs`, as
//! `tests/data/recordings/record.sh` does.
//!
//! A recording has the bytes of the rings as the reader found them, round by round, and the formats of the events. Only
//! the identifiers are those of [`Evlist::assign_ids`], and records of names tell who lived at the start. Records of
//! switches that stand in for hidden ones are left out.

mod common;
#[path = "../tests/common/recordings.rs"]
mod recordings;

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perf_event_open_sys::bindings as b;

use perf_prof::commands::parse_run;
use perf_prof::host::{Host, cpu_ranges, online_cpus};
use perf_prof::perf::Evlist;
use perf_prof::perf::classes::Class;
use perf_prof::perf::record::{record_type, sample_identifier};
use perf_prof::perf::target::Target;
use perf_prof::profiler::{Profiler, Setup, TracefsFinder};
use perf_prof::profilers::trials;
use perf_prof::ringbuf::RingBuf;
use perf_prof::run::replay::{Played, RING_PAGES, RecordedRound, Recording, Replay, split_record};
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
/// Settings of the kernel that profilers read.
const SETTINGS: [&str; 7] = [
    "perf_event_max_sample_rate",
    "perf_event_max_stack",
    "nmi_watchdog",
    "watchdog",
    "soft_watchdog",
    "watchdog_cpumask",
    "watchdog_thresh",
];
/// Functions that profilers look for.
const FUNCTIONS: [&str; 5] =
    ["watchdog_timer_fn", "do_sched_yield", "yield", "__x64_sys_sched_yield", "__ia32_sys_sched_yield"];

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
        ["--pack", directory, file, names @ ..] => pack(directory.as_ref(), file.as_ref(), names),
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
    let (options, mut profilers) = parse_run(command)?;
    let (host, target, tracefs) = (Host::default(), Target::everything(), TracefsFinder::default());
    let watched = Watched::new(&target, &host);
    let mut setup = Setup::new(&tracefs, &target, &host, &watched, [nix::unistd::gettid().as_raw(); 2]);
    let mut evlist = Evlist::new();
    for (index, (profiler, view)) in profilers.iter_mut().zip(&options.views).enumerate() {
        evlist.adding_for(index);
        setup.stacks = view.stacks();
        profiler.init(&mut evlist, &setup)?;
    }
    profilers.iter_mut().try_for_each(|profiler| profiler.filter(&mut evlist, &setup))?;
    evlist.evsels.share();
    for (system, name) in evlist.iter().filter_map(|(_, evsel)| evsel.name().split_once(':')) {
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
    fs::create_dir_all(directory)?;
    fs::write(directory.join(COMMAND), command.join("\n"))?;
    let side = places.iter().position(|place| place.1 == Class::Side).unwrap_or(0);
    let mut first = RecordedRound { now_ns: sys::monotonic_ns(), records: vec![Vec::new(); rings.len()] };
    first.records[side] = names(first.now_ns)?;
    let mut recording = Recording { places: places.clone(), rounds: vec![first] };
    // Of what the profilers read of /proc in mid-run, only this is recorded.
    let reads_stat = command.contains(&"profile");
    if reads_stat {
        fs::create_dir_all(directory.join("stat"))?;
        save_stat(&directory.join("stat/0"))?;
    }
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
        let mut round = RecordedRound { now_ns: sys::monotonic_ns(), records: vec![Vec::new(); rings.len()] };
        rings.iter_mut().zip(&mut round.records).for_each(|(ring, records)| take(ring, &evlist, records));
        follow_up = !follow_up && round.records.iter().any(|records| !records.is_empty());
        if reads_stat {
            save_stat(&directory.join("stat").join(recording.rounds.len().to_string()))?;
        }
        recording.rounds.push(round);
        if is_over {
            break;
        }
    }
    let lost: u64 = places.iter().map(|&(cpu, class)| evlist.take_lost(cpu, class).samples).sum();
    ensure!(lost == 0, "{lost} samples were lost: try a smaller load");
    save_machine(directory, &recording, &cpus)?;
    Ok(fs::write(directory.join(RINGS), recording.bytes())?)
}

/// Saves the CPU times in /proc/stat.
fn save_stat(path: &Path) -> Result<()> {
    let text = fs::read_to_string("/proc/stat")?;
    let lines = text.lines().filter(|line| line.starts_with("cpu"));
    Ok(fs::write(path, lines.map(|line| format!("{line}\n")).collect::<String>())?)
}

/// Saves what a replay is to know of the machine.
fn save_machine(directory: &Path, recording: &Recording, cpus: &[u32]) -> Result<()> {
    let (cpu, settings) = (directory.join("cpu"), directory.join("proc/sys/kernel"));
    fs::create_dir_all(&cpu)?;
    fs::create_dir_all(&settings)?;
    fs::write(cpu.join("online"), cpu_ranges(cpus))?;
    for name in SETTINGS {
        if let Ok(text) = fs::read(Path::new("/proc/sys/kernel").join(name)) {
            fs::write(settings.join(name), text)?;
        }
    }
    fs::write(directory.join("proc/kallsyms"), symbols_of(&numbers_of(recording))?)?;
    Ok(())
}

/// All words of 8 bytes in records, some of which are addresses. The data of a tracepoint begins in the middle of one.
fn numbers_of(recording: &Recording) -> HashSet<u64> {
    let records = recording.rounds.iter().flat_map(|round| &round.records);
    let words =
        records.flat_map(|records| (0..records.len()).step_by(4).filter_map(|start| records.get(start..start + 8)));
    words.filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?))).collect()
}

/// The symbols of the kernel that addresses lie in, each with the one that ends it.
fn symbols_of(addresses: &HashSet<u64>) -> Result<String> {
    let text = fs::read_to_string("/proc/kallsyms")?;
    let address = |line: &str| u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap_or(0);
    let mut lines: Vec<(u64, &str)> = text.lines().map(|line| (address(line), line)).collect();
    lines.sort_by_key(|(address, _)| *address); // several of one address stay in order
    let mut wanted: HashSet<u64> = HashSet::new();
    let first = lines.iter().map(|(address, _)| *address).find(|address| *address >> 63 == 1).unwrap_or(u64::MAX);
    for &address in addresses.iter().filter(|address| **address >= first) {
        let next = lines.partition_point(|(start, _)| *start <= address);
        wanted.extend(lines[next.saturating_sub(1)..].iter().take(2).map(|(address, _)| address));
    }
    for name in FUNCTIONS {
        let index = lines.iter().position(|(_, line)| line.split(' ').nth(2) == Some(name));
        wanted.extend(index.into_iter().flat_map(|index| &lines[index..]).take(2).map(|(address, _)| address));
    }
    let lines = lines.iter().filter(|(address, line)| wanted.contains(address) || line.ends_with(" _etext"));
    Ok(lines.map(|(_, line)| format!("{line}\n")).collect())
}

/// Makes a file of a recording without names of other programs than `names` and the kernel's threads, and without tasks
/// that no sample speaks of.
fn pack(directory: &Path, file: &Path, names: &[&str]) -> Result<()> {
    let mut recording = Recording::parse(&fs::read(directory.join(RINGS))?)?;
    let spoken_of = tasks_of(&recording);
    let mut others: Vec<Vec<u8>> = Vec::new();
    for records in recording.rounds.iter_mut().flat_map(|round| &mut round.records) {
        let mut kept = Vec::new();
        let mut rest = &records[..];
        while !rest.is_empty() {
            let (record, behind) = split_record(rest)?;
            rest = behind;
            let tid = record.get(12..16).map_or(0, |tid| u32::from_ne_bytes([tid[0], tid[1], tid[2], tid[3]]));
            let kind = record_type(record);
            if kind != b::PERF_RECORD_SAMPLE && !spoken_of.contains(&tid) {
                continue;
            }
            if kind == b::PERF_RECORD_COMM {
                let name: Vec<u8> = record[16..].iter().copied().take_while(|byte| *byte != 0).collect();
                if !is_kept(&name, names) && !others.contains(&name) {
                    others.push(name);
                }
            }
            kept.extend(record);
        }
        *records = kept;
    }
    others.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for (number, name) in others.iter().enumerate() {
        let mut alias = format!("other-{number}").into_bytes();
        alias.truncate(name.len());
        alias.resize(name.len(), 0);
        let records = recording.rounds.iter_mut().flat_map(|round| &mut round.records);
        records.for_each(|records| replace(records, &[name, &b"\0"[..]].concat(), &alias));
        println!("{} is {}", String::from_utf8_lossy(name), String::from_utf8_lossy(&alias));
    }
    let records = recording.rounds.iter_mut().flat_map(|round| &mut round.records);
    records.for_each(|records| rename_files(records));
    let packed = directory.with_extension("packed");
    let _ = fs::remove_dir_all(&packed);
    copy(directory, &packed)?;
    fs::write(packed.join(RINGS), recording.bytes())?;
    recordings::pack(&packed, file)?;
    println!("{}: {} bytes", file.display(), fs::metadata(file)?.len());
    Ok(fs::remove_dir_all(&packed)?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.filter_map(Result::ok) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            let _ = fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// All words of 4 bytes in samples: the tids among them are those of the tasks that samples speak of.
fn tasks_of(recording: &Recording) -> HashSet<u32> {
    let mut all = HashSet::new();
    for records in recording.rounds.iter().flat_map(|round| &round.records) {
        let mut rest = &records[..];
        while let Ok((record, behind)) = split_record(rest) {
            if record_type(record) == b::PERF_RECORD_SAMPLE {
                all.extend(
                    record[8..].chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])),
                );
            }
            rest = behind;
        }
    }
    all
}

/// Short names are those of shells and of common tools.
fn is_kept(name: &[u8], names: &[&str]) -> bool {
    const OF_KERNEL: [&str; 15] = [
        "swapper",
        "kworker/",
        "pool_workqueue_",
        "rcu",
        "ksoftirqd/",
        "migration/",
        "kcompactd",
        "khugepaged",
        "kswapd",
        "kthreadd",
        "cpuhp/",
        "jbd2/",
        "watchdogd",
        "hwrng",
        "kdevtmpfs",
    ];
    name.len() < 5 || OF_KERNEL.iter().chain(names).any(|kept| name.starts_with(kept.as_bytes()))
}

/// Renames files that programs have mapped, to names of the same length that no machine has: a replay is to find none.
fn rename_files(records: &mut [u8]) {
    const PATH_OFFSET: [(u32, usize); 2] = [(b::PERF_RECORD_MMAP, 40), (b::PERF_RECORD_MMAP2, 72)];
    let mut start = 0;
    while let Ok((record, _)) = split_record(&records[start..]) {
        let (kind, end) = (record_type(record), start + record.len());
        let offset = PATH_OFFSET.iter().find(|(of, _)| *of == kind).map(|(_, offset)| start + offset);
        if let Some(path) = offset.and_then(|offset| records.get_mut(offset..end)) {
            let length = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            let path = &mut path[..length];
            // Programs of others are nobody's business, and of ours only what is below the package.
            let own = path.starts_with(env!("CARGO_MANIFEST_DIR").as_bytes());
            let is_library = path.starts_with(b"/usr/lib/") || path.starts_with(b"/lib/");
            let is_file = path.starts_with(b"/") && !path.starts_with(b"//");
            let hidden = match path.iter().skip(1).position(|byte| *byte == b'/') {
                _ if !is_file => 0,
                _ if own => env!("CARGO_MANIFEST_DIR").len(),
                Some(first) if is_library => 1 + first,
                _ => path.len(),
            };
            path[..hidden].iter_mut().filter(|byte| **byte != b'/').for_each(|byte| *byte = b'x');
        }
        start = end;
    }
}

/// Replaces what has the same length, or one byte less.
fn replace(records: &mut [u8], from: &[u8], to: &[u8]) {
    for start in 0..records.len().saturating_sub(from.len() - 1) {
        if records[start..].starts_with(from) {
            records[start..start + to.len()].copy_from_slice(to);
        }
    }
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
    let Recording { places, rounds } = Recording::parse(&fs::read(directory.join(RINGS))?)?;
    let command = fs::read_to_string(directory.join(COMMAND))?;
    let command: Vec<&str> = command.lines().collect();
    let mut replay = Replay::new(build(&command)?, directory, command.contains(&"-g"), places)?;
    for (index, RecordedRound { now_ns, records }) in rounds.iter().enumerate() {
        if index == 0 {
            replay.start(*now_ns);
        }
        records.iter().enumerate().try_for_each(|(ring, records)| replay.write(ring, records))?;
        replay.replay_round(*now_ns, index + 1 == rounds.len());
        replay.tick(*now_ns);
    }
    Ok(replay.played())
}
