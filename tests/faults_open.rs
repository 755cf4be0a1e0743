//! Faults while a run is set up: rings refused, no descriptors left, system calls refused, no tracefs, few
//! capabilities. Each is an error of one sentence with the cure, or a degradation that is announced once.

#[macro_use]
mod common;

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use common::seccomp::{Arg, Refusal, refused};
use common::user::{Copy, PERFMON, turn};
use common::{Again, CpuWatch, Done, Load, Prog, attempts, command, example, number, or_again, syscall};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

const EXEC: &str = "sched:sched_process_exec";
const UID: u32 = 1000;
/// MAP_SHARED in the flags of mmap: of all that perf-prof maps, rings alone have it.
const SHARED: (u32, Arg) = (3, Arg::Has(libc::MAP_SHARED as u32));
/// The length.
const MIB: (u32, Arg) = (1, Arg::AtLeast(1 << 20));

/// One line on stderr, and nothing on stdout.
#[track_caller]
fn one_sentence(done: Done, words: &[&str]) {
    let done = done.code(1);
    assert!(done.out.is_empty() && done.err.len() == 1, "{done:#?}");
    done.says(&["perf-prof: "]).says(words);
}

#[track_caller]
fn degraded<'a>(done: &'a Done, text: &str) -> Vec<&'a String> {
    done.err.iter().filter(|line| line.starts_with("degraded: ") && line.contains(text)).collect()
}

fn behind(refusals: &[Refusal], args: &[&str]) -> Done {
    Prog::spawn(refused(command(args), refusals)).finish()
}

// Rings

#[test]
fn rings_for_which_there_is_no_memory_become_smaller() {
    need_events!();
    let ring = |when, errno| Refusal { nr: libc::SYS_mmap, errno, when };
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    let args = ["trace", "--json", "-v", "-e", &event, "-o", "/dev/null", "--", &flood, "2000", "50000"];
    for (errno, why, cure) in [
        (libc::ENOMEM, "the kernel has memory for 128 pages per CPU instead of 2048", "a smaller -m"),
        (libc::EPERM, "the mlock limit allows 128 pages per CPU instead of 2048", "CAP_IPC_LOCK"),
    ] {
        let large = ring(&[SHARED, MIB], errno);
        let done = behind(&[large], &args).code(0);
        // 1 MiB and the mmap page are too much, so the ring has 512 KiB, in pages of 4 KiB.
        let told = degraded(&done, why);
        assert!(told.len() == 1 && told[0].contains(cure), "{done:#?}");
        done.says(&["a ring buffer of 128 pages each"]);
    }
    for (errno, why) in [(libc::ENOMEM, "no memory left"), (libc::EPERM, "a seccomp filter refuses to map it")] {
        let done = behind(&[ring(&[SHARED], errno)], &["task-state", "--for", "1ms"]);
        one_sentence(done, &["cannot map a ring buffer of 4 KiB", why, "cure: "]);
    }
    let done = behind(&[ring(&[SHARED], libc::EACCES)], &["task-state", "--for", "1ms"]);
    one_sentence(done, &["cannot map a ring buffer of 8192 KiB", "a seccomp filter refuses to map it"]);
}

/// perf-prof as a user who may monitor, in a shell that has lowered the limit of locked memory first.
fn locking(copy: &Copy, kib: u64, args: &[&str]) -> Done {
    let limit = format!(r#"ulimit -l {kib} && exec "$0" "$@""#);
    copy.with_tracefs_behind(&turn(), &PERFMON, &["sh", "-c", &limit], args)
}

fn mlock_kib() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").expect("perf_event_mlock_kb");
    text.trim().parse().expect("a number")
}

#[test]
fn all_cpus_get_their_share_of_the_memory_that_may_be_locked() {
    need_events!();
    let (copy, cpus) = (Copy::of(UID), common::online_cpus().len() as u64);
    let page_kib = perf_prof::sys::page_size() as u64 / 1024;
    // Enough for one ring of 8 MiB and for small ones on the other CPUs, without an allowance beyond the mlock limit.
    for kib in [8192, 0] {
        let done = locking(&copy, kib, &["task-state", "--json", "--for", "50ms"]).code(0);
        let locked_kib = number(&done.end()["self"], "locked_bytes") / 1024;
        let allowed_kib = mlock_kib() * cpus + kib;
        let told = degraded(&done, "mlock limit allows ");
        assert!(told.len() == 1, "{done:#?}");
        let pages = told[0].split("allows ").nth(1).and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let pages = pages.unwrap_or_else(|| panic!("{told:?}"));
        // Each ring has one page more, and there are small rings, too; rings of twice the size do not fit.
        let all_kib = |pages: u64| (pages + 1) * cpus * page_kib;
        assert!(all_kib(pages) <= locked_kib && locked_kib <= allowed_kib, "{kib}: {pages}: {done:#?}");
        assert!(all_kib(2 * pages) > allowed_kib, "{kib}: {pages}: {done:#?}");
    }
    // A size that the user chose is no degradation.
    let done = locking(&copy, 0, &["task-state", "--json", "-m", "8", "--for", "1ms"]).code(0);
    assert!(degraded(&done, "mlock limit").is_empty(), "{done:#?}");
}

/// perf-prof and its children with a real-time priority, if the machine allows that.
fn before_others(args: &[&str]) -> Command {
    let mut command = command(args);
    let first = || {
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: the kernel reads the struct, which lives here; the call is async-signal-safe.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
        Ok(())
    };
    // SAFETY: the closure calls sched_setscheduler alone.
    unsafe { command.pre_exec(first) };
    command
}

#[test]
fn a_ring_that_became_smaller_wakes_its_reader_in_time() {
    need_events!();
    let copy = Copy::of(UID);
    let (flood, event) = (copy.with_file("flood", &example("flood")), syscall(libc::SYS_getppid));
    let first = common::online_cpus()[0].to_string();
    let (calls, per_s) = ("12000", "20000");
    // Some 2 MB a second: more than the ring holds in the 100 ms after which the reader wakes anyway.
    let allowed = Refusal { nr: libc::SYS_mmap, errno: libc::ENOMEM, when: &[SHARED, (1, Arg::AtLeast(0x21001))] };
    attempts(|| {
        let watch = CpuWatch::by_clock();
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("UTF-8");
        let args = ["trace", "--json", "-e", &event, "-o", path, "--", "taskset", "-c", &first, &flood, calls, per_s];
        let done = Prog::spawn(refused(before_others(&args), &[allowed])).finish().code(0);
        assert!(degraded(&done, "memory for 32 pages").len() == 1, "{done:#?}");
        let text = fs::read_to_string(path).expect("the results");
        let end: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!(number(&end, "samples") + number(&end, "lost"), 12_000, "{end}");
        // 128 KiB are full after some 60 ms.
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(20))];
        or_again(number(&end, "lost") == 0, &reasons, || format!("lost some: {end}"))
    });
}

// Descriptors

/// perf-prof with a limit of `count` descriptors, three of which it inherits.
fn with_descriptors(count: u64, args: &[&str]) -> Done {
    let mut command = command(args);
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    let set = move || {
        // SAFETY: setrlimit reads the struct, which lives here, and is async-signal-safe.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure calls setrlimit alone.
    unsafe { command.pre_exec(set) };
    Prog::spawn(command).finish()
}

#[test]
fn without_descriptors_each_step_says_so() {
    need_events!();
    // The first file that cannot be opened may be one of the start, of tracefs, of the machine's description, or an
    // event.
    for args in [&["trace", "-e", EXEC, "--for", "1ms"][..], &["task-state", "--for", "1ms"], &["list", "sched:*"]] {
        let mut told = 0;
        for count in (4..70).step_by(if args[0] == "list" { 1 } else { 3 }) {
            let done = with_descriptors(count, args);
            if done.err().contains("shared libraries") || args[0] == "list" && done.err().is_empty() {
                continue;
            }
            one_sentence(done, &["ulimit -n"]);
            told += 1;
        }
        assert!(told > if args[0] == "list" { 0 } else { 15 }, "{args:?}: {told}");
    }
}

#[test]
fn a_low_soft_limit_is_raised_before_anything_is_opened() {
    need_events!();
    let mut shell = Command::new("sh");
    let line = format!(r#"ulimit -S -n 8 && exec "$0" trace -e {EXEC} -- sh -c 'exec sh -c "ulimit -S -n"'"#);
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_perf-prof")]);
    let done = Prog::spawn(shell).finish().code(0).says(&["trace: 2 events"]);
    assert!(done.out.contains(&"8".to_owned()), "the command keeps its limit: {done:#?}");
}

#[test]
fn files_that_cannot_be_opened_any_more_are_not_called_deleted() {
    need_events!();
    const MAPPED: usize = 200;
    let dir = tempfile::tempdir().expect("a directory");
    let mut load = Load::of(&example("mappings"), &[dir.path().to_str().expect("UTF-8"), &MAPPED.to_string(), "elf"]);
    load.says();
    let pid = load.pid().to_string();
    // Enough for the events, not for the files of the target, whose program is mapped last.
    let args = ["trace", "-g", "--json", "-e", &syscall(libc::SYS_getppid), "-p", &pid, "--for", "1500ms"];
    let done = with_descriptors(90, &args).code(0);
    let interval = &done.of_type("interval")[0];
    let span_ns = number(interval, "end_ns") - number(interval, "start_ns");
    assert!(span_ns >= 1_400_000_000, "the target is taken for gone: {interval}");
    let frames: Vec<serde_json::Value> = done
        .of_type("event")
        .iter()
        .flat_map(|event| event["stack"].as_array().cloned().unwrap_or_default())
        .filter(|frame| frame["module"].as_str().is_some_and(|module| module.contains("/mapped-")))
        .collect();
    assert!(frames.len() as u64 == done.shown() && frames.len() > 50, "{} of {}", frames.len(), done.shown());
    let without = |reason: &str| frames.iter().filter(|frame| frame["reason"] == reason).count();
    assert_eq!(without("deleted") + without("exited") + without("too many symbols"), 0, "{frames:#?}");
    assert!(without("too many files are mapped: a larger `ulimit -n` helps") > 0, "{frames:#?}");
}

// System calls that are refused

#[test]
fn every_profiler_recognizes_a_filter_on_perf_event_open() {
    need_events!();
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        let refusal = Refusal::of(libc::SYS_perf_event_open, errno);
        for args in [
            &["profile"][..],
            &["trace", "-e", EXEC],
            &["task-state"],
            &["signal"],
            &["irq-off"],
            &["watchdog"],
            &["kmemleak", "slab"],
            &["split-lock", "--event", "page-faults"],
        ] {
            let done = behind(&[refusal], &[args, &["--for", "1ms"]].concat());
            one_sentence(done, &["a seccomp filter refuses perf_event_open", "cure: "]);
        }
    }
}

/// perf-prof in a mount namespace in which no tracefs is mounted.
fn without_tracefs(args: &[&str]) -> Command {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let of_tracefs = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("tracefs"));
    let places: Vec<CString> = of_tracefs.filter_map(|line| CString::new(line.split(' ').nth(1)?).ok()).rev().collect();
    let hide = move || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&CStr>;
        mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        places.iter().try_for_each(|place| umount2(place.as_c_str(), MntFlags::MNT_DETACH)).map_err(Into::into)
    };
    let mut command = command(args);
    // SAFETY: the closure makes system calls alone, with texts that end with 0 already.
    unsafe { command.pre_exec(hide) };
    command
}

#[test]
fn without_tracefs_only_profilers_that_need_it_are_refused() {
    need_events!();
    let refusals = [libc::SYS_fsopen, libc::SYS_mount, libc::SYS_unshare].map(|nr| Refusal::of(nr, libc::EPERM));
    for args in [&["trace", "-e", EXEC][..], &["task-state"], &["signal"], &["kmemleak", "slab"], &["list"]] {
        let args = if args[0] == "list" { args.to_vec() } else { [args, &["--for", "1ms"]].concat() };
        let done = Prog::spawn(refused(without_tracefs(&args), &refusals)).finish();
        one_sentence(done, &["tracefs is not mounted", "may not mount it", "mount -t tracefs"]);
    }
    // Hardware counters and the CPU clock need no tracefs.
    let profile = without_tracefs(&["profile", "--json", "--for", "50ms"]);
    Prog::spawn(refused(profile, &refusals)).finish().code(0).end();
    // ENOSYS is an old kernel's answer to fsopen: a mount namespace of our own is the next best.
    let old = Refusal::of(libc::SYS_fsopen, libc::ENOSYS);
    let trace = without_tracefs(&["trace", "-e", EXEC, "--", "true"]);
    Prog::spawn(refused(trace, &[old])).finish().code(0).says(&["1 event in "]);
}

/// The capabilities that an error advises to set on the file of the program, for setpriv(1).
fn setcap(done: &Done) -> String {
    let told = done.err.iter().find_map(|line| line.split("(setcap ").nth(1)?.split("+ep").next());
    let told = told.unwrap_or_else(|| panic!("no capabilities are told: {done:#?}"));
    told.split(',').map(|name| format!("+{}", name.trim_start_matches("cap_"))).collect::<Vec<_>>().join(",")
}

#[test]
fn an_error_names_both_of_two_missing_privileges() {
    need_events!();
    let level: i64 = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap();
    if level < 0 {
        skip!("kernel.perf_event_paranoid is below 0");
    }
    let (copy, turn) = (Copy::of(UID), turn());
    for args in [&["trace", "-e", EXEC][..], &["task-state"], &["signal"], &["kmemleak", "slab"]] {
        let args = [args, &["--for", "1ms"]].concat();
        let done = copy.run(&turn, &[], &args);
        let cure = setcap(&done);
        one_sentence(
            done,
            &["tracefs is not ", " is missing; cure: CAP_", " and for a group of yours: mount ", "as root"],
        );
        // With these it works.
        copy.run(&turn, &["--inh-caps", &cure, "--ambient-caps", &cure], &args).code(0);
        // With a part of them it does not.
        let (first, second) = cure.split_once(',').unwrap_or_else(|| panic!("one capability: {cure}"));
        for part in [first, second] {
            let done = copy.run(&turn, &["--inh-caps", part, "--ambient-caps", part], &args);
            one_sentence(done, &["cure: "]);
        }
    }
    // Formats alone need no events.
    let list = copy.run(&turn, &[], &["list"]);
    assert!(!list.err().contains("paranoid"), "{list:#?}");
    one_sentence(list, &["tracefs is not ", "cure: CAP_"]);
    // The capability for events alone is not enough.
    let told = "tracefs is not ";
    let probe = copy.run(&turn, &[], &["kmemleak", "malloc", "--for", "1ms", "--", "true"]);
    one_sentence(probe, &[told, "only root may define probes; cure: run as root"]);
    let watchdog = copy.run(&turn, &[], &["watchdog", "--for", "1ms"]);
    one_sentence(watchdog, &[told, "kernel addresses are hidden; cure: run as root"]);
}

#[test]
fn a_tracefs_that_is_mounted_elsewhere_is_found() {
    need_events!();
    let level: i64 = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap();
    if level > 2 {
        skip!("kernel.perf_event_paranoid is above 2");
    }
    let (copy, dir) = (Copy::of(UID), tempfile::tempdir().unwrap());
    let at = dir.path().to_str().unwrap();
    let some = ["--inh-caps", "+perfmon,+dac_read_search", "--ambient-caps", "+perfmon,+dac_read_search"];
    let done = copy.with_tracefs_at(at, &some, &["trace", "-v", "-e", EXEC, "--", "true"]).code(0);
    done.says(&[&format!("tracefs: {at}"), "1 event in "]);
    // A tracefs that the user may not read does not help.
    let turn = turn();
    let refused = copy.with_tracefs_at(at, &PERFMON, &["trace", "-e", EXEC, "--", "true"]);
    drop(turn);
    // Where the machine has one, that is named: it is in the list of mounts, and before this.
    one_sentence(refused, &["tracefs is not readable (/", "cure: CAP_DAC_READ_SEARCH, or "]);
}
