//! Hostile files of an unprivileged user whose processes are profiled: tables with false sizes, names without an end,
//! sections that decompress to gigabytes. The report comes, in bounded memory and time.

#[macro_use]
mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::user::NOBODY;
use common::{Done, Load, Prog, example, number, run};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use perf_prof::sys::mount::private_tracefs;

const MIB: u64 = 1 << 20;
/// Memory limit of perf-prof, rings included.
const MAX_RSS_BYTES: u64 = 150 * MIB;
/// CPU time limit of perf-prof; without bounds it takes minutes.
const MAX_CPU_NS: u64 = 20_000_000_000;

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
/// Offsets of the names of sections, of the table with one symbol, and of parts that only some files have.
const NAMES_AT: u64 = 8192;
const SYMBOL_AT: u64 = 8448;
const MORE_AT: u64 = 16384;
const SECTION_NAMES: &[u8] = b"\0.symtab\0.strtab\0.gnu_debugdata\0.eh_frame\0";

#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0xb9, 0, 0, 0, 1, 0xff, 0xc9, 0x75, 0xfc, 0xc3]; // see examples/burn.rs
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[0, 0x20, 0xa0, 0xd2, 0, 4, 0, 0x71, 0xe1, 0xff, 0xff, 0x54, 0xc0, 3, 0x5f, 0xd6];

/// Skips the test if programs cannot be probed.
macro_rules! need_uprobes {
    () => {
        if !has_uprobes() {
            skip!("this kernel has no uprobes");
        }
    };
}

fn has_uprobes() -> bool {
    let tracefs = private_tracefs().expect("a tracefs of our own");
    tracefs.root().join("uprobe_events").exists()
}

/// A section: name, type, offset, length, link, length of an entry.
#[derive(Clone, Copy)]
struct Section(u32, u32, u64, u64, u32, u64);

/// The names of sections, as the last section.
const NAMES: Section = Section(0, STRTAB, NAMES_AT, 64, 0, 0);

fn header(section: &Section) -> Vec<u8> {
    let Section(name, kind, offset, len, link, entry) = *section;
    let mut bytes = [name, kind].map(u32::to_le_bytes).concat();
    bytes.extend([0, 0, offset, len].map(u64::to_le_bytes).concat());
    bytes.extend([link, 0].map(u32::to_le_bytes).concat());
    bytes.extend([1, entry].map(u64::to_le_bytes).concat());
    bytes
}

/// A file of `len` bytes, mostly holes, with these sections, and code in its second page: `victim` in a table of
/// symbols.
fn write(path: &Path, sections: &[Section], sections_at: u64, len: u64, parts: &[(u64, &[u8])]) {
    let file = File::create(path).expect("a file");
    file.set_len(len).expect("room for holes");
    let half = |number: u64| (number as u16).to_le_bytes();
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(16, 0);
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    head.extend([half(3), half(machine)].concat());
    head.extend(1_u32.to_le_bytes());
    head.extend([0, 64, sections_at].map(u64::to_le_bytes).concat());
    head.extend(0_u32.to_le_bytes());
    let count = sections.len() as u64 + 1;
    head.extend([64, 56, 1, 64, count, count - 1].map(half).concat());
    head.extend([1, 5].map(u32::to_le_bytes).concat()); // PT_LOAD, read and execute
    head.extend([0, 0, 0, 12288, 12288, 4096].map(u64::to_le_bytes).concat());
    let table: Vec<u8> = std::iter::repeat_n(0, 64).chain(sections.iter().flat_map(header)).collect();
    let mut symbol = vec![0; 24];
    symbol.extend(1_u32.to_le_bytes());
    symbol.extend([18, 0, 1, 0]); // a global function of the first section
    symbol.extend([4096_u64, 99].map(u64::to_le_bytes).concat());
    symbol.extend(b"\0victim\0");
    let own: [(u64, &[u8]); 5] =
        [(0, &head), (4096, CODE), (NAMES_AT, SECTION_NAMES), (SYMBOL_AT, &symbol), (sections_at, &table)];
    own.iter().chain(parts).for_each(|(at, bytes)| file.write_all_at(bytes, *at).expect("writes"));
}

/// Unwind tables of about so many bytes: very many entries for the code.
fn unwind_entries(len: u64) -> Vec<u8> {
    const ENTRY_BYTES: u32 = 24;
    // Version 1, no augmentation, factors 1 and -8, the register of return addresses, padding.
    let mut bytes = [12_u32, 0].map(u32::to_le_bytes).concat();
    bytes.extend([1, 0, 1, 0x78, 16, 0, 0, 0]);
    while (bytes.len() as u64) < len {
        let back_to_first = bytes.len() as u32 + 4;
        bytes.extend([ENTRY_BYTES - 4, back_to_first].map(u32::to_le_bytes).concat());
        bytes.extend([4096_u64, 4096].map(u64::to_le_bytes).concat());
    }
    bytes
}

/// A directory whose files the user `nobody` may only read.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    common::copy_program(example("burn"), dir.path().join("burn"));
    dir
}

fn burn_as_nobody(dir: &Path, files: &[PathBuf]) -> Load {
    burn_as(NOBODY, dir, files)
}

fn burn_as(user: u32, dir: &Path, files: &[PathBuf]) -> Load {
    let id = user.to_string();
    let program = dir.join("burn").into_os_string().into_string().expect("UTF-8");
    let files: Vec<&str> = files.iter().map(|file| file.to_str().expect("UTF-8")).collect();
    let words = [&["--reuid", &id, "--regid", &id, "--clear-groups", &program], &files[..]].concat();
    let mut load = Load::of("setpriv", &words);
    load.says();
    load
}

/// Profiles these processes, and checks that memory and time stay within their bounds.
fn profile(pids: &str, options: &[&str]) -> Done {
    let args = [&["profile", "--json", "-F", "997", "-g", "-p", pids, "--for", "1"], options].concat();
    let done = run(&args).code(0);
    let own = done.end()["self"].clone();
    assert!(number(&own, "rss_peak_bytes") < MAX_RSS_BYTES, "{own}");
    assert!(number(&own, "cpu_ns") < MAX_CPU_NS, "{own}");
    assert!(!done.rows_and_lists().is_empty(), "{done:#?}");
    done
}

/// The names, or reasons for having none, of frames in these files.
fn frames_in(done: &Done, dir: &Path) -> Vec<String> {
    let at = format!("{}/f", dir.display());
    let stacks = done.rows_and_lists().into_iter().filter_map(|row| row["stack"].as_array().cloned());
    let frames =
        stacks.flatten().filter(|frame| frame["module"].as_str().is_some_and(|module| module.starts_with(&at)));
    let mut words: Vec<String> =
        frames.filter_map(|frame| Some(frame["symbol"].as_str().or(frame["reason"].as_str())?.to_owned())).collect();
    words.sort();
    words.dedup();
    words
}

/// A kind of file: description, number of files, how one is made, and the reasons of its frames.
type Case<'a> = (&'a str, usize, &'a dyn Fn(&Path), &'a [&'a str]);

/// On a slow machine, or in a debug build, the time is too short for all files.
const GIVEN_UP: &str = "names given up";

#[test]
fn tables_that_lie_are_survived() {
    need_events!();
    let names: Vec<u8> = std::iter::repeat_n(b'A', MIB as usize - 1).chain([0]).collect();
    let symbols = Section(1, SYMTAB, SYMBOL_AT, 48, 2, 24);
    let names_of_symbols = Section(9, STRTAB, SYMBOL_AT + 48, 8, 0, 0);
    // Very many symbols at one address, each of which is a candidate for the name, and a million at addresses of their own.
    let symbol = |address: u64| {
        let mut symbol = [1_u32.to_le_bytes(), [18, 0, 1, 0]].concat();
        symbol.extend([address, 1].map(u64::to_le_bytes).concat());
        symbol
    };
    let same = symbol(16).repeat(8 * MIB as usize / 24);
    let many: Vec<u8> = (0..MIB).flat_map(|number| symbol((number * 5_800_003) % (1 << 40))).collect();
    let entries = unwind_entries(8 * MIB);
    let cases: [Case<'_>; 8] = [
        // Holes in a section with the name of a symbol table, but another type.
        (
            "a table by name",
            3,
            &|path| write(path, &[Section(1, PROGBITS, MORE_AT, 8 << 36, 0, 24), NAMES], 12288, 8 << 37, &[]),
            &["stripped"],
        ),
        // Symbol tables by their type, too: larger than the budget, and as large as the budget of one file.
        (
            "a table of 64 GiB",
            3,
            &|path| write(path, &[Section(1, SYMTAB, MORE_AT, 64 << 30, 2, 24), NAMES], 12288, 65 << 30, &[]),
            &["too many symbols: a larger `--symbol-memory` helps"],
        ),
        (
            "a table of one address",
            9,
            &|path| {
                let table = Section(1, SYMTAB, MORE_AT, same.len() as u64, 2, 24);
                write(path, &[table, names_of_symbols, NAMES], 12288, 9 * MIB, &[(MORE_AT, &same)]);
            },
            &["between symbols"],
        ),
        (
            "more tables than one user may have",
            5,
            &|path| {
                let table = Section(1, SYMTAB, MORE_AT, many.len() as u64, 2, 24);
                write(path, &[table, names_of_symbols, NAMES], 12288, 25 * MIB, &[(MORE_AT, &many)]);
            },
            &["between symbols", "too many symbols: a larger `--symbol-memory` helps"],
        ),
        (
            "compressed holes",
            20,
            &|path| {
                let debugdata = Section(17, PROGBITS, MORE_AT, 32 * MIB, 0, 0);
                write(path, &[symbols, names_of_symbols, debugdata, NAMES], 12288, MORE_AT + 32 * MIB, &[]);
            },
            &["victim"],
        ),
        (
            "names without an end",
            3,
            &|path| {
                let mut sections = vec![Section(0, PROGBITS, 0, 0, 0, 0); 65_533];
                sections.push(Section(0, STRTAB, MORE_AT, MIB, 0, 0));
                let at = MORE_AT + MIB;
                write(path, &sections, at, at + 64 * 65_536, &[(MORE_AT, &names)]);
            },
            &["stripped"],
        ),
        (
            "unwind tables of 64 GiB",
            3,
            &|path| write(path, &[Section(32, PROGBITS, MORE_AT, 64 << 30, 0, 0), NAMES], 12288, 65 << 30, &[]),
            &["stripped"],
        ),
        (
            "more unwind tables than one user may have",
            9,
            &|path| {
                let table = Section(32, PROGBITS, MORE_AT, entries.len() as u64, 0, 0);
                write(path, &[table, NAMES], 12288, 9 * MIB, &[(MORE_AT, &entries)]);
            },
            &["stripped"],
        ),
    ];
    for (what, count, make, want) in cases {
        let dir = directory();
        let files: Vec<PathBuf> = (0..count).map(|index| dir.path().join(format!("f{index}"))).collect();
        files.iter().for_each(|file| make(file));
        let load = burn_as_nobody(dir.path(), &files);
        let done = profile(&load.pid().to_string(), &[]);
        let mut found = frames_in(&done, dir.path());
        let count = found.len();
        found.retain(|word| word != GIVEN_UP);
        let is_whole = found.len() == count;
        assert!(!is_whole || want.iter().all(|word| found.iter().any(|other| other == word)), "{what}: {found:?}");
        assert!(found.iter().all(|word| want.contains(&word.as_str())), "{what}: {found:?}");
    }
}

#[test]
fn sections_that_decompress_to_more_than_the_budget() {
    need_events!();
    let dir = directory();
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).expect("xz");
    let zeros = vec![0; MIB as usize];
    for _ in 0..48 {
        writer.write_all(&zeros).expect("xz");
    }
    let xz = writer.finish().expect("xz");
    let files: Vec<PathBuf> = (0..4).map(|index| dir.path().join(format!("f{index}"))).collect();
    for file in &files {
        let debugdata = Section(17, PROGBITS, MORE_AT, xz.len() as u64, 0, 0);
        write(file, &[debugdata, NAMES], 12288, MORE_AT + xz.len() as u64, &[(MORE_AT, &xz)]);
    }
    let load = burn_as_nobody(dir.path(), &files);
    let done = profile(&load.pid().to_string(), &[]);
    let mut found = frames_in(&done, dir.path());
    found.retain(|word| word != GIVEN_UP);
    assert_eq!(found, ["stripped"]);
}

/// /tmp/perf-PID.map, removed at the end.
struct PerfMap(PathBuf);

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn perf_maps_of_one_user_share_a_budget() {
    need_events!();
    const NAME_BYTES: usize = 500;
    let dir = directory();
    let loads = [(); 6].map(|()| burn_as_nobody(dir.path(), &["-".into()]));
    let lines: String = (0..60_000).map(|n| format!("{n:x}000 10 {}\n", "x".repeat(NAME_BYTES))).collect();
    let maps = loads.each_ref().map(|load| PerfMap(format!("/tmp/perf-{}.map", load.pid()).into()));
    for map in &maps {
        fs::write(&map.0, &lines).expect("a perf map");
        chown(&map.0, Some(NOBODY), Some(NOBODY)).expect("chown");
    }
    let pids = loads.each_ref().map(|load| load.pid().to_string()).join(",");
    let reasons = |done: &Done| {
        let stacks = done.rows_and_lists().into_iter().filter_map(|row| row["stack"].as_array().cloned());
        let mut reasons: Vec<String> =
            stacks.flatten().filter_map(|frame| Some(frame["reason"].as_str()?.to_owned())).collect();
        reasons.sort();
        reasons.dedup();
        reasons
    };
    let few = reasons(&profile(&pids, &[]));
    assert!(few.iter().any(|reason| reason.starts_with("perf map too large")), "{few:?}");
    assert!(few.iter().any(|reason| reason == "not in its perf map"), "one of them has room: {few:?}");
    let args = ["profile", "--json", "-g", "-p", &pids, "--for", "1", "--symbol-memory", "4G"];
    let all = reasons(&run(&args).code(0));
    assert!(all.iter().all(|reason| !reason.starts_with("perf map too large")), "{all:?}");
}

/// Each user has a share, and all users together have no more than the budget. In a debug build the time for names is too short to fill
/// it.
#[test]
fn files_of_many_users_share_a_budget() {
    need_events!();
    const USERS: u32 = 5;
    const MAPS_EACH: u32 = 2;
    const WHOLE_BYTES: u64 = 256 * MIB;
    let dir = directory();
    let users: Vec<u32> = (0..USERS * MAPS_EACH).map(|index| 61_000 + index / MAPS_EACH).collect();
    let loads: Vec<Load> = users.iter().map(|user| burn_as(*user, dir.path(), &["-".into()])).collect();
    let lines: String = (0..55_000).map(|n| format!("{n:x}000 10 {}\n", "x".repeat(500))).collect();
    let map = |(load, user): (&Load, &u32)| {
        let map = PerfMap(format!("/tmp/perf-{}.map", load.pid()).into());
        fs::write(&map.0, &lines).expect("a perf map");
        chown(&map.0, Some(*user), Some(*user)).expect("chown");
        map
    };
    let _maps: Vec<PerfMap> = loads.iter().zip(&users).map(map).collect();
    let pids: Vec<String> = loads.iter().map(|load| load.pid().to_string()).collect();
    let args = ["profile", "--json", "-F", "997", "-g", "-p", &pids.join(","), "--for", "2"];
    let done = run(&args).code(0);
    let peak = number(&done.end()["self"], "rss_peak_bytes");
    assert!(peak < WHOLE_BYTES, "{} MiB", peak / MIB);
}

#[test]
fn an_invalid_size_is_an_error_with_an_example() {
    let args = |size: &'static str| ["trace", "-e", "sched:sched_switch", "--symbol-memory", size];
    for size in ["1", "0M", "x", "1T", "99999999999G"] {
        let status = Command::new(env!("CARGO_BIN_EXE_perf-prof")).args(args(size)).output().expect("perf-prof").status;
        assert_eq!(status.code(), Some(2), "{size}");
    }
}

/// Files whose exported names are holes of 100 MiB each, and some with more sections than a program has.
fn large_tables(dir: &Path) -> Vec<PathBuf> {
    const DYNSYM: u32 = 11;
    let files: Vec<PathBuf> = (0..48).map(|index| dir.join(format!("f{index}"))).collect();
    for (index, file) in files.iter().enumerate() {
        let mut sections = vec![Section(0, DYNSYM, SYMBOL_AT, 48, 2, 24), Section(0, STRTAB, MORE_AT, 100 * MIB, 0, 0)];
        sections.resize(if index % 6 == 0 { 60_000 } else { 2 }, Section(0, PROGBITS, 0, 0, 0, 0));
        sections.push(NAMES);
        let at = MORE_AT + 100 * MIB;
        write(file, &sections, at, at + 64 * 65_536, &[]);
    }
    files
}

#[test]
fn functions_are_found_beside_files_that_are_too_large() {
    need_events!();
    need_uprobes!();
    let dir = directory();
    let load = burn_as_nobody(dir.path(), &large_tables(dir.path()));
    let done = run(&["kmemleak", "malloc", "--json", "--for", "1ms", "-p", &load.pid().to_string()]).code(0);
    let own = done.end()["self"].clone();
    assert!(number(&own, "rss_peak_bytes") < MAX_RSS_BYTES && number(&own, "cpu_ns") < MAX_CPU_NS, "{own}");
    done.says(&["uprobe:malloc: not searched for want of room: ", " more"]);
}

#[test]
fn a_search_for_functions_can_be_ended() {
    search_can_be_ended("");
}

/// As a shell without job control starts its background jobs.
#[test]
fn a_search_can_be_ended_where_the_signal_was_ignored() {
    search_can_be_ended("trap '' INT TERM; ");
}

fn search_can_be_ended(before: &str) {
    need_events!();
    need_uprobes!();
    let dir = directory();
    let load = burn_as_nobody(dir.path(), &large_tables(dir.path()));
    let pid = load.pid().to_string();
    let names = ["uprobe:malloc"; 60].join(",");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"{before}exec "$0" "$@""#), env!("CARGO_BIN_EXE_perf-prof")]);
    shell.args(["trace", "-e", &names, "-p", &pid]);
    let prof = Prog::spawn(shell);
    let number = |pid: &i32, file: &str, key: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let number = |line: &str| line.strip_prefix(key)?.trim().trim_end_matches(" kB").parse::<u64>().ok();
        text.lines().find_map(number).unwrap_or(0)
    };
    let all = || std::iter::once(prof.pid()).chain(prof.helpers());
    common::until("it searches", || all().map(|pid| number(&pid, "io", "rchar:")).sum::<u64>() > 300 * MIB);
    let helpers = prof.helpers();
    let peaks: Vec<u64> = all().map(|pid| number(&pid, "status", "VmHWM:") << 10).collect();
    assert!(peaks.len() > 1 && peaks.iter().sum::<u64>() < MAX_RSS_BYTES, "{peaks:?}");
    let done = prof.interrupt();
    assert_eq!(done.signal(), Some(libc::SIGINT), "the first one: {done:#?}");
    let is_there = |pid: &i32| common::state_letter(*pid as u64).is_some_and(|state| !matches!(state, 'Z' | 'X'));
    common::until("the worker ends too", || !helpers.iter().any(is_there));
}

/// Some files of each kind, for [`every_profiler_with_stacks`].
fn some_of_each_kind(dir: &Path) -> Vec<PathBuf> {
    let entries = unwind_entries(4 * MIB);
    let names: Vec<u8> = std::iter::repeat_n(b'A', MIB as usize - 1).chain([0]).collect();
    let (symbols, text) = (Section(1, SYMTAB, SYMBOL_AT, 48, 2, 24), Section(9, STRTAB, SYMBOL_AT + 48, 8, 0, 0));
    let many: Vec<Section> = std::iter::repeat_n(Section(0, PROGBITS, 0, 0, 0, 0), 65_533)
        .chain([Section(0, STRTAB, MORE_AT, MIB, 0, 0)])
        .collect();
    // Sections, where their table is, the length of the file, and what is at MORE_AT.
    type Kind<'a> = (&'a [Section], u64, u64, &'a [u8]);
    let kinds: [Kind<'_>; 7] = [
        (&[Section(1, PROGBITS, MORE_AT, 8 << 36, 0, 24), NAMES], 12288, 8 << 37, &[]),
        (&[Section(1, SYMTAB, MORE_AT, 64 << 30, 2, 24), NAMES], 12288, 65 << 30, &[]),
        (&[symbols, text, Section(17, PROGBITS, MORE_AT, 32 * MIB, 0, 0), NAMES], 12288, MORE_AT + 32 * MIB, &[]),
        (&many, MORE_AT + MIB, MORE_AT + MIB + 64 * 65_536, &names),
        (&[Section(32, PROGBITS, MORE_AT, 64 << 30, 0, 0), NAMES], 12288, 65 << 30, &[]),
        (&[Section(32, PROGBITS, MORE_AT, entries.len() as u64, 0, 0), NAMES], 12288, 9 * MIB, &entries),
        (&[], 12288, MORE_AT, &[]), // neither sections nor a segment of unwind tables
    ];
    let file = |(index, (sections, at, len, more)): (usize, Kind<'_>)| {
        let path = dir.join(format!("f{index}"));
        write(&path, sections, at, len, &[(MORE_AT, more)]);
        path
    };
    kinds.into_iter().cycle().take(2 * kinds.len()).enumerate().map(file).collect()
}

/// Two processes of the same CPU, whose code is in such files: each is sampled, and switched out, in all of them.
#[test]
fn every_profiler_with_stacks() {
    need_events!();
    let dir = directory();
    let files = some_of_each_kind(dir.path());
    let loads = [(); 2].map(|()| burn_as_nobody(dir.path(), &files));
    let mut cpu = CpuSet::new();
    cpu.set(common::online_cpus()[0] as usize).expect("a CPU");
    loads.iter().for_each(|load| sched_setaffinity(Pid::from_raw(load.pid()), &cpu).expect("the CPU"));
    let pids = loads.each_ref().map(|load| load.pid().to_string()).join(",");
    let views: [&[&str]; 6] = [
        &["profile", "-F", "997"],
        &["trace", "-e", "sched:sched_switch"],
        &["task-state", "-R", "--than", "1us"],
        &["page-faults"],
        &["signal"],
        &["kmemleak", "page"],
    ];
    for view in views {
        let done = run(&[view, &["--call-graph=dwarf", "--json", "--for", "1", "-p", &pids]].concat()).code(0);
        let own = done.end()["self"].clone();
        let is_bounded = number(&own, "rss_peak_bytes") < MAX_RSS_BYTES && number(&own, "cpu_ns") < MAX_CPU_NS;
        assert!(is_bounded, "{view:?}: {own}");
        let in_files = || done.out.iter().filter(|line| line.contains(&format!("{}/f", dir.path().display()))).count();
        let is_seen = !["profile", "trace", "task-state"].contains(&view[0]) || in_files() > 0;
        assert!(is_seen, "{view:?}: {done:#?}");
    }
}
