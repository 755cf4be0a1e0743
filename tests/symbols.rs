//! Names of user frames: code in odd places, files that were replaced or are seen only by their process, tasks that are
//! gone.

#[macro_use]
mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Done, Load, command, example, number, run, run_over, start, state_letter, syscall, until};
use perf_prof::symbol::elf::file::ElfFile;
use perf_prof::symbol::functions::search::Search;
use serde_json::Value;

const CALL: &str = "syscalls:sys_enter_getppid";

/// The innermost user frame of every `event`.
#[track_caller]
fn innermost(done: &Done) -> Vec<Value> {
    let user = |frame: &&Value| {
        let addr = frame["addr"].as_str().and_then(|addr| u64::from_str_radix(addr.trim_start_matches("0x"), 16).ok());
        addr.is_some_and(|addr| addr < 1 << 56)
    };
    let frame = |event: &Value| {
        let stack = event["stack"].as_array().unwrap_or_else(|| panic!("no stack in {event}"));
        stack.iter().find(user).unwrap_or_else(|| panic!("no user frame in {event}")).clone()
    };
    done.of_type("event").iter().map(frame).collect()
}

/// The frames of a workload, which has exited before the last of them is printed.
#[track_caller]
fn frames_of(event: &str, load: &[&str]) -> Vec<Value> {
    innermost(&run_over(&["trace", "-e", event, "-g", "--json"], load))
}

#[track_caller]
fn assert_all(frames: &[Value], key: &str, want: &str) {
    assert!(!frames.is_empty());
    for frame in frames {
        assert!(frame[key].as_str().is_some_and(|text| text.contains(want)), "{key} {want:?} of {frame}");
    }
}

/// A C program. `Err`: why it cannot be built here.
fn built(dir: &Path, source: &str, option: &str) -> Result<String, String> {
    let (file, program) = (dir.join("program.c"), dir.join("program"));
    fs::write(&file, source).expect("a source");
    let done = Command::new("cc").args(["-O1", option, "-o"]).args([&program, &file]).output();
    let done = done.map_err(|err| format!("no C compiler: {err}"))?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(program.into_os_string().into_string().expect("UTF-8"))
}

/// The functions of the user's frames of each event, innermost first.
fn functions(done: &Done) -> Vec<Vec<String>> {
    let name = |frame: &Value| frame["symbol"].as_str().unwrap_or("?").to_owned();
    let frames = |event: &Value| event["stack"].as_array().expect("a stack").iter().map(name).collect();
    done.of_type("event").iter().map(frames).collect()
}

/// As is done to have code in large pages.
#[test]
fn code_that_a_program_copies_over_its_own_keeps_its_names() {
    need_events!();
    const COUNT: usize = 5;
    let dir = tempfile::tempdir().expect("a directory");
    let options = ["trace", "-e", CALL, "-g", "--no-kernel-callchain", "--json"];
    for option in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        let program = match built(dir.path(), include_str!("data/own_copy.c"), option) {
            Ok(program) => program,
            Err(why) => skip!("{why}"),
        };
        let stacks_are_right = |done: &Done, count: usize| {
            let stacks = functions(done);
            let right = |stack: &Vec<String>| stack.get(1..3).is_some_and(|frames| frames == ["copied", "main"]);
            assert_eq!(stacks.len(), count, "{stacks:#?}");
            assert!(stacks.iter().all(right), "{option}: {stacks:#?}");
            assert!(!done.err.iter().any(|line| line.contains("jit-no-map")), "{done:#?}");
        };
        stacks_are_right(&run_over(&options, &[&program, &COUNT.to_string()]), 2 * COUNT);
        // The copy was there before.
        let mut command = Command::new(&program);
        command.arg("5000");
        let load = Load::start(command);
        let maps = format!("/proc/{}/maps", load.pid());
        until("the copy is there", || {
            fs::read_to_string(&maps)
                .is_ok_and(|maps| maps.lines().any(|line| line.ends_with("r-xp 00000000 00:00 0 ")))
        });
        let pid = load.pid().to_string();
        stacks_are_right(&run(&[&options[..], &["-p", &pid, "-N", "3"]].concat()).code(0), 3);
    }
}

#[test]
fn code_in_odd_places_has_a_name_or_a_reason() {
    need_events!();
    let places = example("places");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("code");
    let file = file.to_str().expect("UTF-8");
    let library = dir.path().join("library.so");
    common::copy_program(&places, &library);
    let library = library.to_str().expect("UTF-8");
    let cases: [(&str, &[&str], &str); 6] = [
        ("own", &[], "call_from_own"),
        ("jit", &[], "jit-no-map"),
        ("perf-map", &["keep"], "call_from_jit"),
        ("file", &[file], "non-elf"),
        ("library", &[library], "call_from_own"),
        ("vdso", &[], "clock_gettime"),
    ];
    for (place, more, want) in cases {
        let event = if place == "vdso" { "syscalls:sys_enter_clock_gettime" } else { CALL };
        let key = if want.contains('-') { "reason" } else { "symbol" };
        let done = run_over(&["trace", "-e", event, "-g", "--json"], &[&[&*places, place, "20"], more].concat());
        let mut frames = innermost(&done);
        if place == "vdso" {
            frames.retain(|frame| frame["module"] == "[vdso]"); // a static libc has calls of its own
        }
        assert_eq!(frames.len(), 20, "{frames:?}");
        assert_all(&frames, key, want);
        if place == "perf-map" {
            let pid = done.of_type("event")[0]["pid"].as_u64().expect("a pid");
            fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("kept for us");
        }
    }
    let frames = frames_of(CALL, &[&places, "library", "1", library]);
    assert_eq!(frames[0]["module"], library);
}

#[test]
fn frames_before_and_after_an_exec_keep_their_names() {
    need_events!();
    let frames = frames_of(CALL, &[&example("places"), "exec", "10"]);
    assert_eq!(frames.len(), 20, "{frames:?}");
    assert_all(&frames[..10], "symbol", "call_from_own");
    assert_all(&frames[10..], "reason", "jit-no-map");
}

/// A copy of a program without section headers, which hold its symbols and its unwind tables.
fn strip_all(from: &Path, to: &Path) {
    write_changed(from, to, |bytes| {
        bytes[0x28..0x30].fill(0); // e_shoff
        bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    });
}

/// A copy of a program without its table of symbols, as strip(1) makes it.
fn strip(from: &Path, to: &Path) {
    const SYMTAB: u8 = 2;
    write_changed(from, to, |bytes| {
        let word =
            |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let (table, count) = (word(0x28, 8), word(0x3c, 2));
        let kinds: Vec<usize> =
            (0..count).map(|number| table + 64 * number + 4).filter(|at| bytes[*at] == SYMTAB).collect();
        kinds.into_iter().for_each(|at| bytes[at] = 0);
    });
}

fn write_changed(from: &Path, to: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(from).expect("read");
    assert_eq!(bytes[4], 2, "ELFCLASS64");
    change(&mut bytes);
    fs::write(to, bytes).expect("write");
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// The linker's address of the function with `name` in its name.
fn address_of(program: &Path, name: &str) -> u64 {
    let file = fs::File::open(program).expect("open");
    let elf = ElfFile::read(&file).expect("ELF");
    let (mut found, mut left) = (Vec::new(), usize::MAX);
    let is_whole = Search::within(1 << 30).each_symbol(
        &elf,
        &file,
        false,
        |symbol| symbol.is_defined,
        |symbol| {
            let text = symbol.name_within(4096, &mut left).map(String::from_utf8_lossy);
            if text.is_some_and(|text| text.contains(name)) {
                found.push(symbol.address);
            }
        },
    );
    let [address] = found[..] else { panic!("{name}: {found:x?}") };
    assert!(is_whole);
    address
}

#[test]
fn a_function_of_a_stripped_program_is_known_by_its_start() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, stripped) = (example("places"), dir.path().join("stripped"));
    strip(Path::new(&whole), &stripped);
    let program = stripped.to_str().expect("UTF-8");
    let start = address_of(Path::new(&whole), "call_from_own");
    let offset = frames_of(CALL, &[&whole, "own", "1"])[0]["offset"].as_u64().expect("a number");
    for mode in ["--call-graph=fp", "--call-graph=dwarf"] {
        let done = run_over(&["trace", "-e", CALL, mode, "--json"], &[program, "own", "5"]);
        let frames = innermost(&done);
        assert_eq!(frames.len(), 5, "{mode}");
        for frame in frames {
            assert_eq!((&frame["reason"], &frame["module"]), (&"stripped".into(), &program.into()), "{mode}: {frame}");
            assert_eq!(frame["function_addr"], format!("{start:#x}"), "{mode}: {frame}");
            assert_eq!(number(&frame, "offset"), offset, "{mode}: {frame}");
        }
    }
    let done = run_over(&["trace", "-e", CALL, "-g"], &[program, "own", "1"]);
    let want = format!(" stripped+{start:#x}+{offset:#x} (stripped)");
    assert!(done.out.iter().any(|line| line.ends_with(&want)), "no {want} in {:#?}", done.out);
}

/// Functions without names have their shares of the time, and frames of their own in graphs.
#[test]
fn functions_of_a_stripped_program_are_told_apart() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, stripped) = (example("parts"), dir.path().join("stripped"));
    strip(Path::new(&whole), &stripped);
    let graph = dir.path().join("out.folded");
    let options = ["profile", "--json", "-F", "997", "--flame-graph", graph.to_str().expect("UTF-8")];
    let done = run_over(&options, &[stripped.to_str().expect("UTF-8"), "1500"]);
    let (rows, graph) = (done.rows_and_lists(), fs::read_to_string(&graph).expect("folded lines"));
    let [three, one] = ["three_parts", "one_part"].map(|name| {
        let start = format!("{:#x}", address_of(Path::new(&whole), name));
        let of_it: Vec<&Value> =
            rows.iter().filter(|row| row["table"] == "functions" && row["function_addr"] == start).collect();
        assert_eq!(of_it.len(), 1, "{name} is {start}: {of_it:?}");
        assert_eq!(of_it[0]["reason"], "stripped");
        let weights =
            graph.lines().filter_map(|line| line.rsplit_once(&format!(";stripped+{start} "))?.1.parse::<u64>().ok());
        assert_eq!(weights.sum::<u64>(), number(of_it[0], "samples"), "{name} is {start}:\n{graph}");
        number(of_it[0], "samples")
    });
    let share = 100 * three / (three + one);
    assert!((65..=85).contains(&share), "{three} and {one} samples");
}

#[test]
fn a_stripped_program_says_so_and_a_debug_file_helps() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let stripped = dir.path().join("stripped");
    let whole = example("places");
    strip_all(Path::new(&whole), &stripped);
    let program = stripped.to_str().expect("UTF-8");
    let frames = frames_of(CALL, &[program, "own", "5"]);
    assert_all(&frames, "reason", "stripped");
    // Its unwind tables are found by the program headers.
    let start = format!("{:#x}", address_of(Path::new(&whole), "call_from_own"));
    assert!(frames.iter().all(|frame| frame["function_addr"] == start), "{start}: {frames:?}");

    let id = perf_prof::symbol::elf::file::build_id(&fs::File::open(&whole).expect("open"));
    let Some(id) = id else { skip!("the linker writes no build ids") };
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let cache = dir.path().join("cache");
    fs::create_dir_all(cache.join(&id)).expect("mkdir");
    fs::copy(&whole, cache.join(&id).join("debuginfo")).expect("copy");
    let out = dir.path().join("out");
    let mut prof =
        command(&["trace", "-e", CALL, "-g", "--json", "-o", out.to_str().expect("UTF-8"), "--", program, "own", "5"]);
    prof.env("DEBUGINFOD_CACHE_PATH", &cache);
    let mut done = common::Prog::spawn(prof).finish().code(0);
    done.out = fs::read_to_string(&out).expect("results").lines().map(str::to_owned).collect();
    assert_all(&innermost(&done), "symbol", "call_from_own");
}

/// Watches a running load, from its line on, until it has exited.
fn watch(mut load: Load) -> Done {
    let ready = load.says();
    let pid = ready.split("pid=").nth(1).expect("a pid").to_owned();
    let mut prof = start(&["trace", "-e", CALL, "-g", "--json", "-p", &pid]);
    prof.provoke(|| load.tell("go"), |line| line.contains(r#""type":"event""#));
    load.stop();
    prof.finish().code(0)
}

#[test]
fn a_replaced_program_is_named_from_the_file_that_runs() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("program");
    common::copy_program(example("places"), &path);
    let mut load = Command::new(&path);
    load.args(["own", "7"]).env("PLACES_GO", "stdin");
    let load = Load::start(load);
    // Another program takes its place: at the same offset it has another function.
    let other = dir.path().join("other");
    common::copy_program(example("flood"), &other);
    fs::rename(&other, &path).expect("rename");
    assert_all(&innermost(&watch(load)), "symbol", "call_from_own");
}

#[test]
fn a_path_may_hold_any_byte() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    for name in [&b"new\nline"[..], br"new\012line", b"not UTF-8 \xff"] {
        let path = dir.path().join(OsStr::from_bytes(name));
        common::copy_program(example("places"), &path);
        let mut load = Command::new(&path);
        load.args(["own", "7"]).env("PLACES_GO", "stdin");
        let frames = innermost(&watch(Load::start(load)));
        assert_all(&frames, "symbol", "call_from_own");
        let shown = perf_prof::escape::escape(String::from_utf8_lossy(name).as_bytes());
        assert_all(&frames, "module", &shown);
        if let Some(path) = path.to_str() {
            let frames = frames_of(CALL, &[path, "own", "5"]);
            assert_all(&frames, "symbol", "call_from_own");
            assert_all(&frames, "module", &shown);
        }
    }
}

#[test]
fn a_program_that_only_its_mount_namespace_has_is_named() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_str().expect("UTF-8");
    let script = format!("mount -t tmpfs none {at} && cp {} {at}/hidden && exec {at}/hidden own 7", example("places"));
    let mut load = Command::new("unshare");
    load.args(["-m", "sh", "-c", &script]).env("PLACES_GO", "stdin");
    let frames = innermost(&watch(Load::start(load)));
    assert!(!dir.path().join("hidden").exists());
    assert_all(&frames, "symbol", "call_from_own");
    assert_all(&frames, "module", "/hidden");
}

#[test]
fn a_perf_map_is_found_by_the_number_in_its_pid_namespace() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("in_namespace");
    common::copy_program(example("places"), &program);
    let mut load = Command::new("unshare");
    load.args(["-p", "-f", "--kill-child"]).arg(&program).args(["perf-map", "7"]).env("PLACES_GO", "stdin");
    let mut load = Load::start(load);
    assert_eq!(load.says(), "ready pid=1");
    let mut prof = start(&["trace", "-e", CALL, "-g", "--json", "-p", "in_namespace"]);
    prof.provoke(|| load.tell("go"), |line| line.contains(r#""type":"event""#));
    load.stop();
    assert_all(&innermost(&prof.finish().code(0)), "symbol", "call_from_jit");
}

/// Without root, with the right to trace but not to read files of others.
#[test]
fn a_file_that_may_not_be_opened_says_so() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    allow(dir.path(), 0o755);
    let prof = dir.path().join("perf-prof");
    common::copy_program(env!("CARGO_BIN_EXE_perf-prof"), &prof);
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).expect("mkdir");
    common::copy_program(example("parts"), closed.join("parts"));
    allow(&closed, 0o700);
    let cpu = common::online_cpus()[0].to_string();
    let mut load = Command::new("taskset");
    load.args(["-c", &cpu]).arg(closed.join("parts")).arg("3000");
    let load = Load::start(load);
    common::hurry(load.pid());
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    as_nobody.args(["--inh-caps", "+perfmon", "--ambient-caps", "+perfmon"]).arg(&prof);
    as_nobody.args(["profile", "-F", "199", "--for", "1", "-C", &cpu, "--json"]);
    let done = common::Prog::spawn(as_nobody).finish().code(0);
    let rows = done.rows_and_lists();
    let row = rows.iter().find(|row| row["module"].as_str().is_some_and(|module| module.ends_with("closed/parts")));
    assert_eq!(row.unwrap_or_else(|| panic!("{rows:?}"))["reason"], "no-perm");
    drop(load);
}

/// perf-prof as a user who may trace and inspect only processes of the same user; the load runs as that user, too.
#[test]
fn a_file_that_is_gone_says_so() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let (prof, parts) = (dir.path().join("perf-prof"), dir.path().join("parts"));
    common::copy_program(env!("CARGO_BIN_EXE_perf-prof"), &prof);
    common::copy_program(example("parts"), &parts);
    let cpu = common::online_cpus()[0].to_string();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    // The load says that it runs from the file, which is then removed.
    let script = format!("echo ready; exec taskset -c {cpu} {} 3000", parts.display());
    let mut load = Command::new("setpriv");
    load.args(nobody).args(["sh", "-c", &script]);
    let mut load = Load::start(load);
    assert_eq!(load.says(), "ready");
    let exe = format!("/proc/{}/exe", load.pid());
    let until = std::time::Instant::now() + common::GUARD;
    while !fs::read_link(&exe).is_ok_and(|path| path == parts) {
        assert!(std::time::Instant::now() < until, "it never ran");
        std::thread::yield_now();
    }
    fs::remove_file(&parts).expect("remove");
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(nobody).args(["--inh-caps", "+perfmon", "--ambient-caps", "+perfmon"]).arg(&prof);
    as_nobody.args(["profile", "-F", "199", "--for", "1", "-C", &cpu, "--json"]);
    let done = common::Prog::spawn(as_nobody).finish().code(0);
    let rows = done.rows_and_lists();
    let row = rows.iter().find(|row| row["module"].as_str().is_some_and(|module| Path::new(module) == parts));
    assert_eq!(row.unwrap_or_else(|| panic!("{rows:?}"))["reason"], "deleted");
    drop(load);
}

#[test]
fn a_process_that_went_before_its_file_was_opened_says_so() {
    use nix::sys::signal::Signal;
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_str().expect("UTF-8");
    let mut prof = start(&["trace", "-e", CALL, "-g", "--json"]);
    prof.provoke(common::getppid, |line| line.contains(r#""type":"event""#));
    prof.signal(Signal::SIGSTOP); // it sees nothing of the load until that is gone, with its mounts
    let script =
        format!("mount -t tmpfs none {at} && cp {} {at}/fleeting && exec {at}/fleeting own 7", example("places"));
    let ended = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("unshare");
    prof.signal(Signal::SIGCONT);
    assert!(ended.status.success(), "{ended:?}");
    prof.line(|line| line.contains(r#""comm":"fleeting""#));
    let mut done = prof.interrupt().code(0);
    done.out.retain(|line| line.contains(r#""comm":"fleeting""#));
    assert_all(&innermost(&done), "reason", "exited");
}

/// A 32-bit program that makes its calls through its vdso, which differs from perf-prof's own.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_vdso_of_a_32_bit_program_says_so() {
    need_events!();
    let mut code = vec![0x89, 0xe6, 0xad]; // mov esi, esp; lodsd: argc
    code.extend([0xad, 0x85, 0xc0, 0x75, 0xfb].repeat(2)); // up to the end of argv, then of envp
    code.extend([0xad, 0x89, 0xc1, 0xad, 0x83, 0xf9, 32, 0x75, 0xf7]); // the value of AT_SYSINFO
    code.extend([0x89, 0xc7, 0xbb, 7, 0, 0, 0]); // mov edi, eax; mov ebx, 7
    code.extend([0xb8, 64, 0, 0, 0, 0xff, 0xd7, 0x4b, 0x75, 0xf6]); // getppid by call edi, seven times
    code.extend([0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80]); // exit(0)
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("getppid32");
    fs::write(&path, common::elf32(&code)).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    if !Command::new(&path).status().is_ok_and(|status| status.success()) {
        skip!("no 32-bit programs here");
    }
    let frames = frames_of("raw_syscalls:sys_enter/id==64/", &[path.to_str().expect("UTF-8")]);
    assert_eq!(frames.len(), 7, "{frames:?}");
    assert_all(&frames, "module", "[vdso]");
    assert_all(&frames, "reason", "vdso");
}

#[test]
fn unused_stacks_are_forgotten() {
    need_events!();
    const CALLS: usize = 150_000; // twice as many as the table of stacks holds
    let dir = tempfile::tempdir().expect("a directory");
    let drawn = dir.path().join("all.folded");
    let options = ["trace", "-e", CALL, "--json", "-m", "64M", "--flame-graph", drawn.to_str().expect("UTF-8")];
    let done = run_over(&options, &[&example("places"), "many", &CALLS.to_string()]);
    let end = done.end();
    assert_eq!((number(&end, "samples"), number(&end, "lost_stacks")), (CALLS as u64, 0), "{end}");
    let rss = number(&end["self"], "rss_peak_bytes");
    assert!(rss < 100 << 20, "{rss}");
    let lines = fs::read_to_string(&drawn).expect("folded lines");
    let weight =
        |line: &str| line.rsplit(' ').next().and_then(|weight| weight.parse::<usize>().ok()).expect("a weight");
    assert_eq!(lines.lines().map(weight).sum::<usize>(), CALLS);
    assert!(!lines.contains("[no stack]"), "{lines}");
}

#[test]
fn short_lived_processes_are_named() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let drawn = dir.path().join("churn.folded");
    let options = ["profile", "-F", "499", "--flame-graph", drawn.to_str().expect("UTF-8")];
    let done = run_over(&options, &[&example("churn"), "300", "4"]);
    let (mut all, mut named, mut burnt) = (0, 0, 0);
    for line in fs::read_to_string(&drawn).expect("folded lines").lines().filter(|line| line.starts_with("churn;")) {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let weight: u64 = weight.parse().expect("a weight");
        let innermost = stack.rsplit(';').next().expect("a frame");
        all += weight;
        named += if innermost.starts_with('[') { 0 } else { weight };
        burnt += if stack.contains("churn_burn") { weight } else { 0 };
    }
    assert!(all > 100 && named * 100 >= all * 95, "{named} of {all}");
    // Each process spends 3 ms in that function; in a debug build, in functions called by it.
    let truth = 300.0 * 4.0 * 0.003 * 499.0;
    // The timer of the CPU clock may be delayed while tasks start and end.
    let by_clock = done.err().contains("no hardware counter") && burnt as f64 > truth / 2.0;
    assert!(by_clock || (burnt as f64 / truth - 1.0).abs() < 0.2, "{burnt} of {all}, {truth} are expected");
}

#[test]
fn a_name_is_shown_as_the_compiler_wrote_it_on_request() {
    need_events!();
    let places = example("places");
    for (option, is_mangled) in [(&[][..], false), (&["--no-demangle"], true)] {
        let options = [&["trace", "-e", CALL, "-g", "--json"], option].concat();
        for frame in innermost(&run_over(&options, &[&places, "rust", "3"])) {
            let symbol = frame["symbol"].as_str().unwrap_or_else(|| panic!("no symbol: {frame}"));
            assert!(symbol.contains("call_from_rust"), "{symbol}");
            assert_eq!(symbol == "places::call_from_rust", !is_mangled, "{symbol}");
        }
    }
}

#[test]
fn a_call_that_never_returns_is_named_after_its_caller() {
    need_events!();
    let done = run_over(&["trace", "-e", CALL, "-g", "--json"], &[&example("places"), "noreturn", "1"]);
    let events = done.of_type("event");
    assert_eq!(events.len(), 20, "{done:#?}");
    for event in events {
        let stack = event["stack"].as_array().expect("a stack");
        let symbols: Vec<&str> = stack.iter().filter_map(|frame| frame["symbol"].as_str()).collect();
        // The outermost frame is marked as the end.
        let want = ["never_returns", "call_into_noreturn", "start_thread", "start_thread"];
        assert!(symbols.ends_with(&want), "{symbols:?}");
        let caller = &stack[stack.len() - 3];
        let code = if cfg!(target_arch = "x86_64") { 9 } else { 12 };
        assert_eq!(number(caller, "offset"), code, "behind the call: {caller}");
        // The event's own function has called the tracepoint: the next one is in its caller.
        assert!(number(&stack[0], "offset") > 0, "{event}");
    }
}

// Quality of callchains

/// The C code of `places` has no unwind tables.
const FP: &str = "--call-graph=fp";

/// The `stacks` of the `end` object of a run over `places PLACE`, of 20 calls.
#[track_caller]
fn quality(event: &str, how: &str, place: &[&str]) -> Value {
    let places = example("places");
    let load = [&[places.as_str()], place].concat();
    let end = run_over(&["trace", "-e", event, how, "--json"], &load).end();
    assert_eq!(number(&end["stacks"], "taken"), 20, "{end}");
    end["stacks"].clone()
}

#[test]
fn whole_broken_and_cut_stacks_are_counted_separately() {
    need_events!();
    let cut = format!("{CALL}//max-stack=2/");
    for (event, place, want) in [
        (CALL, "own", "good"),
        (CALL, "rust", "good"),
        (CALL, "jit", "good"),
        (CALL, "nofp", "broken"),
        (&cut, "own", "truncated"),
    ] {
        let stacks = quality(event, FP, &[place, "20"]);
        assert_eq!(number(&stacks, want), 20, "{place}: {stacks}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let libc = dir.path().join("libc.so.6");
    common::copy_program(example("places"), &libc);
    let libc = libc.to_str().expect("UTF-8");
    let stacks = quality(CALL, FP, &["library", "20", libc]);
    assert_eq!(number(&stacks, "good"), 20, "it leads to the beginning: {stacks}");
    let stacks = quality(CALL, FP, &["nofp-library", "20", libc]);
    assert_eq!(number(&stacks, "broken_libc"), 20, "it does not: {stacks}");
    // Without callchains there is no quality.
    assert!(run_over(&["trace", "-e", CALL, "--json"], &[&example("places"), "own", "20"]).end()["stacks"].is_null());
}

#[test]
fn unwound_stacks_are_what_their_unwinder_says_by_program() {
    need_events!();
    let places = example("places");
    for (place, want) in [("own", "guessed"), ("nofp", "broken")] {
        let stacks = quality(CALL, "--call-graph=dwarf", &[place, "20"]);
        assert_eq!((number(&stacks, want), number(&stacks, "unwound")), (20, 20), "{place}: {stacks}");
        let program = &stacks["programs"][0];
        assert_eq!((&program["program"], number(program, want)), (&Value::from(places.as_str()), 20), "{stacks}");
        let help = program["help"].as_str().unwrap_or_default();
        assert_eq!(help.contains("-fasynchronous-unwind-tables"), want == "broken", "{stacks}");
    }
    let done = run_over(&["trace", "-v", "-e", CALL, "--call-graph=dwarf"], &[&places, "own", "20"]);
    done.says(&["unwinding: 20 copies of stacks; ", "made from tables"]);
    let end = run_over(&["trace", "--json", "-e", CALL, "--call-graph=dwarf"], &[&places, "own", "20"]).end();
    let unwinding = &end["unwinding"];
    assert_eq!((number(unwinding, "windows"), number(&end, "lost_unwind")), (20, 0), "{end}");
    assert_eq!(number(unwinding, "walked") + number(unwinding, "handed_on"), 20, "{end}");
    assert!(number(unwinding, "rules") >= 20 && number(unwinding, "rules_made") >= 1, "{end}");
    let end = run_over(&["trace", "--json", "-e", CALL, FP], &[&places, "own", "20"]).end();
    assert!(end["unwinding"].is_null() && number(&end, "lost_unwind") == 0, "{end}");
}

/// Its mappings are not read while it may hold their lock for long: each of its waits is short.
#[test]
fn a_process_that_waits_for_a_moment_all_the_time_has_names() {
    need_events!();
    let mut load = Load::of(&example("dstate"), &["100000", "4", "ts_moments", "0"]);
    load.says();
    load.tell("");
    let pid = load.pid().to_string();
    for _ in 0..4 {
        until("the load waits in D", || state_letter(load.pid() as u64) == Some('D'));
        let event = syscall(libc::SYS_wait4);
        let done = run(&["trace", "-g", "--json", "-N", "3", "-e", &event, "-p", &pid]).code(0);
        let events = done.of_type("event");
        let stacks = events.iter().filter(|event| event["pid"] == load.pid());
        let frames: Vec<&Value> = stacks.flat_map(|event| event["stack"].as_array().into_iter().flatten()).collect();
        assert!(
            frames.iter().any(|frame| frame["module"].as_str().is_some_and(|file| file.ends_with("dstate"))),
            "{done:#?}"
        );
        assert!(frames.iter().all(|frame| frame["reason"] != "not mapped when last seen"), "{frames:#?}");
    }
}

#[test]
fn stacks_that_end_early_are_told_of_without_being_asked() {
    need_events!();
    let places = example("places");
    let done = run_over(&["trace", "-e", CALL, FP], &[&places, "nofp", "20"]);
    let lines = [
        "stacks: 20 of 20 user stacks do not reach the start of their program".to_owned(),
        format!("  20 of them in {places} (-v: every program)"),
        format!("  mostly in {places}, by frame pointers"),
        "  --call-graph=dwarf unwinds them by tables".to_owned(),
    ];
    let told = done.err.iter().position(|line| line.starts_with("stacks: ")).expect("stacks are told of");
    assert_eq!(done.err[told..told + lines.len()], lines, "{done:#?}");
    let done = run_over(&["trace", "-e", CALL, FP], &[&places, "own", "20"]);
    assert!(!done.err.iter().any(|line| line.contains("user stacks do not reach")), "{done:#?}");
}

#[test]
fn verbose_shows_the_quality_of_stacks_and_names() {
    need_events!();
    let places = example("places");
    let done = run_over(&["trace", "-v", "-e", CALL, FP], &[&places, "nofp", "20"]);
    let shares =
        "0.0 % good, 0.0 % guessed, 0.0 % broken at libc, 100.0 % broken elsewhere, 0.0 % truncated, 0.0 % empty";
    done.says(&[
        &format!("stacks: 20 taken: {shares}"),
        &format!(
            "stacks: 20 in {places}: 0.0 % whole, 0.0 % guessed, 0.0 % truncated, 100.0 % broken; mostly in {places}"
        ),
        "symbols: 1 of 1 places",
    ]);
    let done = run_over(&["trace", "-v", "-e", CALL, FP], &[&places, "jit", "20"]);
    done.says(&["stacks: 20 taken: 100.0 % good", "1 of 1 without a name in //anon (jit-no-map)", "/tmp/perf-PID.map"]);
    let done = run_over(&["trace", "-e", CALL, "-g"], &[&places, "jit", "20"]);
    done.says(&["jit-no-map: places without a name: 1", "Compiler.perfmap", "--perf-basic-prof", "-X perf"]);
    let end = run_over(&["trace", "--json", "-e", CALL, "-g"], &[&places, "jit", "20"]).end();
    let anon = serde_json::json!({"module": "//anon", "named": 0, "unnamed": 1, "reason": "jit-no-map"});
    let symbols = &end["symbols"];
    assert_eq!(symbols["modules"], serde_json::json!([anon]), "{end}");
    assert!(
        number(symbols, "named") == 1 && number(symbols, "unnamed") == 1 && number(symbols, "nowhere") == 0,
        "{end}"
    );
}
