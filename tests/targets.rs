//! Targets, through `trace` and `task-state`: a workload, processes, threads, cgroups, CPUs, and targets that do not
//! exist.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Done, Load, Prog, command, example, load_number, number, own_tid, run, run_over, start, start_watching, syscall,
    until,
};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

const EXEC: &str = "sched:sched_process_exec";

// The workload

#[test]
fn a_workload_is_followed_with_its_children() {
    need_events!();
    let done = run(&["trace", "--json", "-e", EXEC, "--", "sh", "-c", "/bin/true; /bin/ls / >/dev/null"]).code(0);
    let names: Vec<Value> = done.of_type("event").iter().map(|event| event["fields"]["filename"].clone()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].as_str().unwrap().ends_with("/sh"), "{names:?}");
    assert_eq!(names[1..], ["/bin/true", "/bin/ls"]);
}

#[test]
fn a_workload_that_fails_is_still_a_run_that_ended() {
    need_events!();
    run(&["trace", "-e", EXEC, "--", "sh", "-c", "exit 7"]).code(0).says(&["trace: 1 event in "]);
    run(&["trace", "-e", EXEC, "--", "sh", "-c", "kill -9 $$"]).code(0);
}

const MARK: &str = "PERF_PROF_TEST_MARK";

/// Living processes that were started with this mark.
fn marked(mark: &str) -> Vec<i32> {
    let variable = format!("{MARK}={mark}");
    let mut all = perf_prof::host::processes(&Default::default());
    all.retain(|pid| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(); // empty for a zombie
        env.split(|&byte| byte == 0).any(|text| text == variable.as_bytes())
    });
    all
}

#[test]
fn a_workload_that_cannot_be_executed() {
    need_events!();
    let mark = format!("exec-failure-{}", std::process::id());
    for name in ["/nonexistent/command", "/", "no-such-command-anywhere"] {
        let mut command = command(&["trace", "-e", EXEC, "--", name]);
        command.env(MARK, &mark);
        Prog::spawn(command).finish().code(1).says(&["cannot execute", name]);
    }
    until("nothing is left behind", || marked(&mark).is_empty());
}

#[test]
fn the_end_of_the_run_ends_the_workload() {
    need_events!();
    let before = Instant::now();
    run(&["trace", "-e", EXEC, "-N", "1", "--", "sleep", "100"]).code(0);
    assert!(before.elapsed() < Duration::from_secs(20));
}

#[test]
fn the_end_of_the_run_ends_what_the_workload_started() {
    need_events!();
    let mark = format!("descendants-{}", std::process::id());
    // The first process leaves the process group. A shell that survived its last command would execute another.
    let shell = "setsid sleep 1001 >/dev/null 2>&1 & sleep 1002 & sh -c 'sleep 1003; sleep 1004'; sleep 1005";
    let mut command = command(&["trace", "--json", "-e", EXEC, "--", "sh", "-c", shell]);
    command.env(MARK, &mark);
    let mut trace = Prog::spawn(command);
    let sleepers = || -> BTreeSet<String> {
        let line = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        marked(&mark)
            .iter()
            .map(line)
            .filter_map(|line| Some(line.strip_prefix("sleep\0")?.trim_end_matches('\0').to_owned()))
            .collect()
    };
    let of = |numbers: &[&str]| numbers.iter().map(|number| (*number).to_owned()).collect::<BTreeSet<String>>();
    trace.line(|line| line.contains(EXEC));
    until("all sleep", || sleepers() == of(&["1001", "1002", "1003"]));
    trace.interrupt().code(0);
    until("one is left", || marked(&mark).len() == 1);
    let left = sleepers();
    marked(&mark)
        .iter()
        .for_each(|pid| nix::sys::signal::kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("it lives"));
    assert_eq!(left, of(&["1001"]));
}

// Targets

/// A thread that makes the system call `nr` on request.
struct Caller {
    tid: i32,
    go: Sender<()>,
    done: Receiver<()>,
}

impl Caller {
    fn start(nr: libc::c_long) -> Caller {
        let (go, told) = channel::<()>();
        let (says, done) = channel();
        let (tid_to, tid) = channel();
        thread::spawn(move || {
            tid_to.send(own_tid()).unwrap();
            while told.recv().is_ok() {
                // SAFETY: takes no arguments and touches no memory.
                unsafe { libc::syscall(nr) };
                if says.send(()).is_err() {
                    return;
                }
            }
        });
        Caller { tid: tid.recv().unwrap(), go, done }
    }

    fn call(&self) {
        self.go.send(()).unwrap();
        self.done.recv().unwrap();
    }
}

fn of_tid(done: &Done, tid: i32) -> usize {
    done.of_type("event").iter().filter(|event| event["tid"] == tid).count()
}

/// It goes on under the number of its process, which filters of the kernel pass then, too.
#[test]
fn a_thread_that_executes_a_program_is_followed() {
    need_events!();
    let kill = syscall(libc::SYS_kill);
    let runs: [&[&str]; 6] = [
        &["trace", "-e", &kill],
        &["top", "-e", &kill],
        &["syscalls", "--calls", "kill,execve", "--perins"],
        &["task-state", "--perins"],
        &["rundelay", "--perins"],
        &["signal"],
    ];
    for options in runs {
        let script = "for i in 1 2 3; do kill -WINCH $$; /bin/true; done";
        let mut load = Load::of(&example("takeover"), &["stdin", "/bin/sh", "-c", script]);
        let line = load.says();
        let [pid, tid] = ["pid", "tid"].map(|key| load_number(&line, key));
        let run = start_watching(&[options, &["-t", &tid.to_string()]].concat());
        load.tell("go");
        let done = run.finish().code(0); // with the thread
        assert!(!done.err().contains("exited"), "{done:#?}");
        let rows = [done.of_type("row"), done.of_type("event")].concat();
        let new: Vec<&Value> = rows.iter().filter(|row| row["tid"] == pid).collect();
        match options[0] {
            "trace" => assert_eq!(new.len(), 3, "{done:#?}"),
            "syscalls" => {
                let of = |call: &str, key| {
                    let rows = new.iter().filter(|row| row["table"] == "calls" && row["call"] == call);
                    rows.map(|row| number(row, key)).sum::<u64>()
                };
                assert_eq!(
                    (of("kill", "count"), of("execve", "count"), of("execve", "no_start")),
                    (3, 1, 0),
                    "{done:#?}"
                );
            }
            _ => assert!(!new.is_empty(), "{done:#?}"),
        }
    }
}

#[test]
fn a_process_is_its_threads_now_and_later() {
    need_events!();
    let nr = libc::SYS_getsid; // by nobody else in this process, nor by the shells that other tests start
    let pid = std::process::id().to_string();
    let (ready, old) = (Caller::start(nr), Caller::start(nr));
    let mut trace = start(&["trace", "--json", "-e", &syscall(nr), "-p", &pid]);
    trace.provoke(|| ready.call(), |line| line.contains("sys_enter"));
    let young = Caller::start(nr);
    (0..3).for_each(|_| young.call());
    (0..2).for_each(|_| old.call());
    let tid = format!("\"tid\":{},", old.tid);
    trace.line(|line| line.contains(&tid));
    let done = trace.interrupt().code(0);
    assert_eq!((of_tid(&done, old.tid), of_tid(&done, young.tid)), (2, 3), "{done:?}");
    assert!(done.of_type("event").iter().all(|event| event["pid"] == std::process::id()));
}

#[test]
fn a_process_is_its_children_too() {
    need_events!();
    let mut shell = Load::shell();
    let threads = example("threads");
    let event = format!(
        "raw_syscalls:sys_enter/id=={}||id=={}/alias=nap/,{EXEC}",
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep
    );
    let mut trace = start(&["trace", "--json", "-e", &event, "-p", &shell.pid().to_string()]);
    trace.provoke(|| shell.tell("/bin/true"), |line| line.contains(EXEC));
    shell.tell(&format!("{threads} 8 50"));
    let load = shell.says();
    shell.stop();
    let done = trace.finish().code(0); // the shell's end ends the run
    let naps: Vec<Value> =
        done.of_type("event").into_iter().filter(|event| event["event"] == "raw_syscalls:sys_enter").collect();
    assert_eq!(naps.len() as u64, load_number(&load, "sleeps"), "{load}");
    assert!(naps.iter().all(|nap| number(nap, "pid") == load_number(&load, "pid")), "{load}");
}

/// A child that lives before the run is watched if that is asked for; else it is counted.
#[test]
fn children_that_live_already_are_asked_for() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo").display().to_string();
    let mut shell = Load::shell();
    shell.tell(&format!("mkfifo {fifo}; exec 3<>{fifo}; cat <&3 >/dev/null & echo $!"));
    let child: i64 = shell.says().trim().parse().unwrap();
    let pid = shell.pid().to_string();
    let args = ["trace", "--json", "-e", &syscall(libc::SYS_write), "-p", &pid];
    let of_child = format!("\"pid\":{child},");
    let mut trace = start(&[&args[..], &["--children"]].concat());
    trace.provoke(|| shell.tell("echo >&3"), |line| line.contains(&of_child));
    trace.interrupt().code(0);
    let mut trace = start(&args);
    trace.provoke(|| shell.tell("echo >&3"), |line| line.contains(&format!("\"pid\":{pid},")));
    let done = trace.interrupt().code(0);
    assert!(done.of_type("event").iter().all(|event| event["pid"] != child), "{done:?}");
    let note = "-p: 1 child that lived before is not watched, only later ones: --children watches them, too";
    assert!(done.err().contains(note), "{done:?}");
    shell.tell("kill $!");
    shell.stop();
}

#[test]
fn a_thread_is_itself_alone() {
    need_events!();
    let nr = libc::SYS_getegid;
    let (one, other) = (Caller::start(nr), Caller::start(nr));
    let mut trace = start(&["trace", "--json", "-e", &syscall(nr), "-t", &one.tid.to_string()]);
    let both = || {
        other.call();
        one.call();
    };
    trace.provoke(both, |line| line.contains("sys_enter"));
    (0..5).for_each(|_| both());
    let done = trace.interrupt().code(0);
    assert_eq!(of_tid(&done, one.tid) as u64, done.shown());
    assert!(of_tid(&done, one.tid) >= 6, "{done:?}");
}

#[test]
fn the_end_of_a_thread_ends_the_run() {
    need_events!();
    let nr = libc::SYS_getegid;
    let caller = Caller::start(nr);
    let mut trace = start(&["trace", "--json", "-e", &syscall(nr), "-t", &caller.tid.to_string()]);
    trace.provoke(|| caller.call(), |line| line.contains("sys_enter"));
    drop(caller);
    trace.finish().code(0).end();
}

#[test]
fn a_target_that_ends_on_another_cpu_ends_the_run() {
    need_events!();
    let cpus = common::online_cpus();
    let &[watched, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let mut shell = Load::shell();
    let pin = |shell: &Load, cpu: u32| {
        let mut set = nix::sched::CpuSet::new();
        set.set(cpu as usize).unwrap();
        nix::sched::sched_setaffinity(Pid::from_raw(shell.pid()), &set).unwrap();
    };
    pin(&shell, watched);
    let (event, pid, cpu) = (syscall(libc::SYS_write), shell.pid().to_string(), watched.to_string());
    let mut trace = start(&["trace", "--json", "-e", &event, "-p", &pid, "-C", &cpu]);
    trace.provoke(|| shell.tell("echo"), |line| line.contains("sys_enter"));
    pin(&shell, other);
    shell.stop();
    let done = trace.finish().code(0);
    assert!(done.of_type("event").iter().all(|event| event["cpu"] == watched), "{done:?}");
}

#[test]
fn a_process_by_its_name() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let name = format!("h{}-name-of-16", std::process::id()); // the kernel keeps 15 bytes
    let path = dir.path().join(&name);
    std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
    let mut shell = Load::start(std::process::Command::new(&path));
    let mut trace = start(&["trace", "--json", "-e", &syscall(libc::SYS_write), "-p", &name]);
    trace.provoke(|| shell.tell("echo"), |line| line.contains("sys_enter"));
    let pid = shell.pid();
    shell.stop();
    let done = trace.finish().code(0);
    assert_eq!(of_tid(&done, pid) as u64, done.shown());
    assert_eq!(done.of_type("event")[0]["comm"], name[..name.len().min(15)]);
}

/// A shell under a name of this test's own.
fn shell_named(dir: &std::path::Path, name: &str) -> Load {
    let path = dir.join(name);
    if !path.exists() {
        std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
    }
    Load::start(std::process::Command::new(&path))
}

#[test]
fn processes_by_a_pattern_and_the_end_of_one() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let names = ["a", "b"].map(|letter| format!("p{}{letter}", std::process::id()));
    let [mut first, second] = names.each_ref().map(|name| shell_named(dir.path(), name));
    let pattern = format!("no-such-name,p{}[ab]", std::process::id());
    let mut trace = start(&["trace", "-e", &syscall(libc::SYS_write), "-p", &pattern]);
    trace.err_line(|line| line.contains("no process is named 'no-such-name'"));
    trace.provoke(|| first.tell("echo"), |line| line.contains("sys_enter"));
    let ended = format!("trace: {} {} exited", names[1], second.pid());
    second.stop();
    trace.err_line(|line| line == ended);
    trace.provoke(|| first.tell("echo"), |line| line.contains("sys_enter"));
    let last = format!("{} {} exited", names[0], first.pid());
    first.stop();
    let done = trace.finish().code(0);
    assert!(!done.err().contains(&last), "the end of the last is that of the run: {done:?}");
}

/// Python would do as well.
#[test]
fn processes_by_the_name_of_their_script() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let name = format!("jobd{}.script-with-a-long-name", std::process::id());
    let path = dir.path().join(&name);
    fs::write(&path, "while read line; do echo $line; done\n").unwrap();
    let start_script = || {
        let mut command = std::process::Command::new("sh");
        command.arg("-u").arg(&path);
        Load::start(command)
    };
    let mut shell = start_script();
    let mut trace = start(&["trace", "--json", "-e", &syscall(libc::SYS_write), "-p", &name]);
    trace.err_line(|line| line.contains(&format!("by the names of scripts: sh {} runs {name}", shell.pid())));
    trace.provoke(|| shell.tell("echo"), |line| line.contains("sys_enter"));
    // Another one takes its place.
    shell.stop();
    let mut next = start_script();
    trace.err_line(|line| line.contains(&format!("sh {} started: watched from now on", next.pid())));
    trace.provoke(|| next.tell("echo"), |line| line.contains("sys_enter"));
    next.stop();
    trace.finish().code(0);
}

/// The name of a thread alone is no process's.
#[test]
fn names_of_threads_are_refused_with_their_process() {
    let (told, end) = (channel(), channel::<()>());
    let name = format!("thr{}", std::process::id());
    let thread = thread::Builder::new().name(name.clone());
    let thread = thread.spawn(move || {
        told.0.send(own_tid()).unwrap();
        end.1.recv().unwrap_err();
    });
    let tid = told.1.recv().unwrap();
    let done = run(&["trace", "-e", "sched:sched_switch", "-p", &name]).code(1);
    let want = format!("it is the name of thread {tid} of ");
    assert!(
        done.err().contains(&want) && done.err().contains(&format!("use -t {tid}, or -p {}", std::process::id())),
        "{done:?}"
    );
    drop(end.0);
    thread.unwrap().join().unwrap();
}

/// Number of calls of write(2) with a line of four letters.
fn writes(done: &Done, is: impl Fn(&Value) -> bool) -> usize {
    let is_line = |event: &&Value| is(&event["pid"]) && event["fields"]["args"][2] == 5;
    done.of_type("event").iter().filter(is_line).count()
}

/// Each process of a name of `-p` is watched, as long as the run lasts.
#[test]
fn a_process_that_is_started_again_is_followed() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let name = format!("again{}", std::process::id());
    let mut first = shell_named(dir.path(), &name);
    for options in [&[][..], &["-i", "100"]] {
        let mut trace = start(
            &[&["trace", "--json", "-e", &syscall(libc::SYS_write), "-p", &name, "--for", "300"], options].concat(),
        );
        trace.provoke(|| first.tell("echo"), |line| line.contains("sys_enter"));
        let (old, ended) = (first.pid(), format!("trace: {name} {} exited", first.pid()));
        first.stop();
        let mut second = shell_named(dir.path(), &name);
        let pid = second.pid();
        trace.err_line(|line| line == ended);
        trace.err_line(|line| line == format!("trace: {name} {pid} started: watched from now on"));
        // The process and its child: once each.
        for _ in 0..20 {
            second.tell("echo abcd");
        }
        second.tell("sh -c 'echo abcd; echo abcd'; echo abcd");
        // Another process of that name, which is not a child.
        let mut third = shell_named(dir.path(), &name);
        trace.err_line(|line| line == format!("trace: {name} {} started: watched from now on", third.pid()));
        third.tell("echo abcd");
        assert_eq!(third.says(), "abcd");
        (0..23).for_each(|_| assert_eq!(second.says(), "abcd"));
        let done = trace.interrupt().code(0);
        assert_ne!(old, pid);
        let of = |wanted: i32| writes(&done, |pid| *pid == wanted);
        assert_eq!((of(pid), of(third.pid())), (21, 1), "{done:#?}");
        assert_eq!(writes(&done, |_| true), 24, "{done:#?}");
        third.stop();
        first = second;
    }
    first.stop();
}

#[test]
fn a_pid_does_not_match_later_processes() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let name = format!("once{}", std::process::id());
    let first = shell_named(dir.path(), &name);
    let mut trace = start(&["trace", "-v", "-e", &syscall(libc::SYS_write), "-p", &first.pid().to_string()]);
    trace.err_line(|line| line.contains("ring buffer"));
    first.stop();
    let second = shell_named(dir.path(), &name);
    let done = trace.finish().code(0);
    assert!(!done.err().contains("started"), "{done:?}");
    second.stop();
}

#[test]
fn one_cpu_of_two() {
    need_events!();
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let (one, other, pingpong) = (one.to_string(), other.to_string(), example("pingpong"));
    let event = syscall(libc::SYS_write);
    let done = run_over(&["trace", "--json", "-C", &one, "-e", &event], &[&pingpong, "2000", &one, &other]);
    assert!(done.of_type("event").iter().all(|event| event["cpu"] == cpus[0]));
    let of = |name: &str| done.of_type("event").iter().filter(|event| event["comm"] == name).count();
    assert_eq!((of("ping"), of("pong")), (2000, 0));
}

/// Events that a BPF program copies under idle tasks are open on the CPUs of the target, too, and nowhere else.
#[test]
fn scheduler_events_of_one_cpu_of_two() {
    need_events!();
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let (one, other, pingpong) = (one.to_string(), other.to_string(), example("pingpong"));
    for args in [&["trace", "-e", "sched:sched_wakeup"][..], &["top", "-e", "sched:sched_wakeup", "-k", "_cpu"]] {
        let watch = start_watching(&[args, &["-C", &one]].concat());
        assert!(
            std::process::Command::new(&pingpong).args(["2000", &one, &other]).status().is_ok_and(|end| end.success())
        );
        let done = watch.interrupt().code(0);
        let seen: BTreeSet<u64> = match args[0] {
            "trace" => done.of_type("event").iter().map(|event| number(event, "cpu")).collect(),
            _ => done.of_type("row").iter().map(|row| number(row, "key")).collect(),
        };
        assert_eq!(seen, BTreeSet::from([cpus[0].into()]), "{args:?}: {done:?}");
    }
}

/// A cgroup of our own, removed at the end.
struct OwnCgroup(std::path::PathBuf);

impl OwnCgroup {
    fn new(name: &str) -> Result<OwnCgroup, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let mount = mount.and_then(|line| line.split(' ').nth(1)).ok_or("no cgroup2 is mounted")?;
        let path = std::path::Path::new(mount).join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|err| format!("cannot create {}: {err}", path.display()))?;
        Ok(OwnCgroup(path))
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < until {
            thread::yield_now(); // until the last task has left it
        }
    }
}

#[test]
fn a_cgroup_is_those_in_it_and_below() {
    need_events!();
    let controllers = fs::read_to_string("/proc/cgroups").unwrap();
    if controllers.lines().any(|line| line.starts_with("perf_event\t") && !line.starts_with("perf_event\t0\t")) {
        skip!("the perf_event controller is in a v1 hierarchy, not in cgroup2");
    }
    let group = match OwnCgroup::new("perf-prof-test") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let inner = OwnCgroup(group.0.join("inner"));
    fs::create_dir(&inner.0).unwrap();
    let (mut inside, mut below, mut outside) = (Load::shell(), Load::shell(), Load::shell());
    group.take(inside.pid());
    inner.take(below.pid());
    let name = group.0.file_name().unwrap().to_str().unwrap();
    for target in [group.0.to_str().unwrap(), name] {
        let mut trace = start(&["trace", "--json", "-e", &syscall(libc::SYS_write), "--cgroups", target]);
        let tid = format!("\"tid\":{},", inside.pid());
        trace.provoke(
            || {
                outside.tell("echo");
                below.tell("echo");
                inside.tell("echo");
            },
            |line| line.contains(&tid),
        );
        let tid = format!("\"tid\":{},", below.pid());
        trace.provoke(|| below.tell("echo"), |line| line.contains(&tid));
        let done = trace.interrupt().code(0);
        let known = (of_tid(&done, inside.pid()) + of_tid(&done, below.pid())) as u64;
        assert_eq!(known, done.shown(), "{target}: {done:?}");
    }
    for shell in [inside, below, outside] {
        shell.stop();
    }
}

/// Ends the run when the target has no more events, and `waiting` of its tasks wait.
fn await_silence(mut states: Prog, waiting: u64) {
    let interval = states.object(|object| object["type"] == "interval" && object["samples"] == 0);
    // A wait that went on when its task left the target may be shown once more.
    let next = states.object(|object| {
        let is_later = object["interval"].as_u64() > interval["interval"].as_u64();
        object["type"] == "interval" && is_later && object["samples"] == 0
    });
    let rows = states.rows_of(&next["interval"]);
    let sum = |key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    assert_eq!((sum("count"), sum("ongoing")), (0, waiting), "{rows:#?}");
    states.interrupt().code(0);
}

#[test]
fn a_task_that_leaves_a_cgroup_does_not_count() {
    need_events!();
    let group = match OwnCgroup::new("perf-prof-moved") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let naps = Load::of(&example("flood"), &["1000000000", "100"]);
    group.take(naps.pid());
    let mut states = start(&["task-state", "--json", "-i", "600", "--cgroups", group.0.to_str().unwrap()]);
    states.object(|object| object["type"] == "interval" && number(object, "samples") > 100);
    fs::write(group.0.with_file_name("cgroup.procs"), naps.pid().to_string()).unwrap();
    await_silence(states, 0);
}

/// A thread that sleeps again and again, with the tid of a thread that has exited. None: this kernel does not let the
/// test choose a tid, or other threads were always faster.
fn namesake(tid: i32) -> Option<(Sender<()>, thread::JoinHandle<()>)> {
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        fs::write("/proc/sys/kernel/ns_last_pid", (tid - 1).to_string()).ok()?;
        let (goes_on, told) = channel();
        let (says, number) = channel();
        let thread = thread::spawn(move || {
            says.send(own_tid()).unwrap();
            if own_tid() == tid {
                let nap = Duration::from_millis(5);
                while told.recv_timeout(nap) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {}
            }
        });
        if number.recv().unwrap() == tid {
            return Some((goes_on, thread));
        }
        thread.join().unwrap();
    }
    None
}

#[test]
fn a_thread_with_a_reused_tid_does_not_count() {
    need_events!();
    let (one, other) = (Caller::start(libc::SYS_getegid), Caller::start(libc::SYS_getegid));
    let target = format!("{},{}", one.tid, other.tid);
    let mut states = start(&["task-state", "--json", "-i", "600", "-t", &target]);
    states.object(|object| object["type"] == "interval");
    let tid = one.tid;
    drop(one);
    until("it has gone", || !std::path::Path::new(&format!("/proc/{tid}")).exists());
    let Some((stop, thread)) = namesake(tid) else { skip!("no thread gets the number of another") };
    await_silence(states, 1);
    drop((stop, other));
    thread.join().unwrap();
}

// Targets that do not exist

#[test]
fn targets_that_do_not_exist() {
    need_events!();
    let cases: [(&[&str], &str); 7] = [
        (&["-C", "99999"], "99999"),
        (&["-p", "2147483647"], "2147483647"),
        (&["-t", "2147483647"], "2147483647"),
        (&["-p", "no-such-name"], "no-such-name"),
        (&["-p", "no-such-*"], "no-such-*"),
        (&["--cgroups", "no-such-group"], "no-such-group"),
        (&["--cgroups", "../.."], "../.."),
    ];
    for (target, named) in cases {
        let done = run(&[&["trace", "-e", EXEC], target].concat()).code(1).says(&["perf-prof: ", named]);
        assert_eq!(done.err.len(), 1, "{target:?}: {done:?}");
    }
}

#[test]
fn an_absent_cpu_beside_an_online_one() {
    need_events!();
    let cpu = common::online_cpus()[0];
    let done = run(&["trace", "-e", EXEC, "-C", &format!("{cpu},99999"), "--for", "1ms"]).code(0);
    let notes: Vec<&String> = done.err.iter().filter(|line| line.contains("99999")).collect();
    assert_eq!(notes.len(), 1, "{done:?}");
    assert!(notes[0].contains("not online"), "{done:?}");
}

#[test]
fn without_privilege_it_says_so() {
    need_events!();
    const NOBODY: u32 = 65534;
    // The build directory may be closed to nobody.
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let exe = dir.path().join("perf-prof");
    common::copy_program(env!("CARGO_BIN_EXE_perf-prof"), &exe);
    open(dir.path());
    open(&exe);
    for args in [&["trace", "-e", EXEC][..], &["list"]] {
        let mut command = std::process::Command::new(&exe);
        command.args(args).uid(NOBODY).gid(NOBODY);
        let done = Prog::spawn(command).finish().code(1).says(&["root"]);
        assert_eq!(done.err.len(), 1, "{done:?}");
    }
}
