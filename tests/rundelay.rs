//! rundelay: waits for a CPU and whom they were behind, against the scheduler's own accounting and loads that are known.

#[macro_use]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Again, Attempted, CpuWatch, Done, Load, Prog, attempts, becomes_real_time, copy_program, example, load_number,
    number, online_cpus, or_again, own_tid, pin, run, run_over, start_watching, state_letter, until,
};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// Run delay of the calling thread, by the scheduler.
fn delay_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').nth(1).and_then(|delay| delay.parse().ok()).expect("a number")
}

/// How often the calling thread has left its CPU without a wait.
fn switches() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/status").expect("status");
    let count = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("a number")
}

fn work(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// rundelay on the threads of this process.
fn watch(options: &[&str]) -> Prog {
    let pid = std::process::id().to_string();
    start_watching(&[&["rundelay", "-p", &pid, "-m", "8192"], options].concat())
}

#[track_caller]
fn check(what: &str, sum: u64, truth: u64, done: &Done) {
    let is_right = sum.abs_diff(truth) <= truth / 25 + 8 * MS;
    assert!(is_right, "{what}: {sum} ns, but the scheduler says {truth}: {done:#?}");
}

fn is_table(row: &Value, table: &str) -> bool {
    row["table"] == table
}

/// Nothing was lost: else the attempt is in vain.
fn all_seen(done: &Done) -> Attempted {
    or_again(done.total("lost") == 0, &[Again::RecordsLost(done)], || format!("{:#?}", done.err))
}

#[test]
fn waits_are_what_the_scheduler_says() {
    need_events!(alone);
    attempts(|| {
        let cpu = online_cpus().last().expect("a CPU").to_string();
        let queue = example("queue");
        let options = ["rundelay", "--json", "--perins", "--than", "1.5ms", "-m", "8192", "--", &queue, "500", &cpu];
        let done = run(&options).code(0);
        all_seen(&done)?;
        let truth = done.line_with("hog-a_tid").to_owned();
        let told = |name: &str| {
            (load_number(&truth, &format!("{name}_tid")), load_number(&truth, &format!("{name}_delay_ns")))
        };
        for name in ["hog-a", "hog-b", "yields", "serves"] {
            let (tid, delay_ns) = told(name);
            check(name, done.sum("total_ns", |row| is_table(row, "threads") && row["tid"] == tid), delay_ns, &done);
        }
        let count = |name: &str, kind: &str| {
            let tid = told(name).0;
            done.sum("count", |row| is_table(row, "threads") && row["tid"] == tid && row["kind"] == kind)
        };
        let yields = ["yielded", "preempted"].map(|kind| count("yields", kind));
        let hog = ["yielded", "preempted"].map(|kind| count("hog-a", kind));
        let serves = ["woken", "preempted"].map(|kind| count("serves", kind));
        assert_eq!(hog[0], 0, "it never yields: {done:#?}");
        // On a busy machine few of them: the one that serves is then never done.
        let few = [
            Again::LoadBelow(&truth, "yields_nivcsw", 50),
            Again::LoadBelow(&truth, "hog-a_nivcsw", 5),
            Again::LoadBelow(&truth, "serves_nvcsw", 2),
        ];
        or_again(yields[0] >= 10 * yields[1].max(1) && hog[1] >= 5 && serves[0] > 0, &few, || {
            format!("yields {yields:?}, hog-a {hog:?}, serves {serves:?}: {done:#?}")
        })?;
        each_long_wait_has_a_line(&done);
        the_time_of_all_waits_has_a_task(&done);
        threads_have_their_process(&done);
        Ok(())
    });
}

/// In the rows of waits, in the lines, and where others were behind them.
fn threads_have_their_process(done: &Done) {
    let rows = done.of_type("row");
    let mut of_hogs = rows.iter().filter(|row| row["comm"].as_str().is_some_and(|comm| comm.starts_with("hog-")));
    let pid = of_hogs.clone().next().expect("a hog")["pid"].clone();
    assert!(pid.is_u64() && of_hogs.all(|row| row["pid"] == pid && row["process"] == "queue"), "{rows:#?}");
    for table in ["threads", "behind", "longest"] {
        assert!(rows.iter().any(|row| is_table(row, table) && row["process"] == "queue"), "{table}: {rows:#?}");
    }
    let lines = done.of_type("event");
    let runners: Vec<&Value> = lines.iter().flat_map(|line| line["ran"].as_array().expect("somebody ran")).collect();
    for (comm, other) in [("hog-a", "hog-b"), ("hog-b", "hog-a")] {
        let is_of = |task: &&Value| task["comm"] == comm;
        let [mut waits, mut runs] =
            [lines.iter().filter(is_of).count(), runners.iter().filter(|task| is_of(task)).count()];
        assert!(waits > 0 && runs > 0, "{comm} waits behind {other}: {lines:#?}");
        waits -= lines.iter().filter(is_of).filter(|line| line["pid"] == pid && line["process"] == "queue").count();
        runs -= runners.iter().filter(|task| is_of(task) && task["pid"] == pid && task["process"] == "queue").count();
        assert_eq!([waits, runs], [0, 0], "without a process: {lines:#?}");
    }
    assert!(rows.iter().all(|row| row["pid"] != row["tid"] || row["pid"].is_null()), "its own first thread: {rows:#?}");
}

/// Many short-lived processes wait for each other on one CPU: they are one row of those that others were behind.
#[test]
fn waits_behind_short_lived_processes_are_one_row() {
    need_events!();
    const SCRIPT: &str = "for i in {1..30}; do /bin/true & done; wait; echo";
    attempts(|| {
        let cpu = online_cpus().last().expect("a CPU").to_string();
        let load = ["taskset", "-c", &cpu, "bash", "-c", SCRIPT];
        let done = run_over(&["rundelay", "--json", "-m", "8192"], &load);
        all_seen(&done)?;
        let known = number(&done.end(), "lost_side") == 0;
        or_again(known, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let rows = done.of_type("row");
        let behind: Vec<&Value> = rows.iter().filter(|row| is_table(row, "behind")).collect();
        let of_true: Vec<&&Value> = behind.iter().filter(|row| row["comm"] == "true").collect();
        let [of_true] = of_true[..] else { panic!("one row: {behind:#?}") };
        assert!(of_true["parent"] == "bash" && of_true["tid"].is_null(), "{of_true}");
        assert!((2..=30).contains(&number(of_true, "children")), "{of_true}");
        let waited: u64 = rows.iter().filter(|row| is_table(row, "delays")).map(|row| number(row, "total_ns")).sum();
        let told: u64 = behind.iter().map(|row| number(row, "waited_ns")).sum();
        // A wait that began before the command was executed has no row.
        assert!(told.abs_diff(waited) <= waited / 100 + MS, "{told} of {waited}: {behind:#?}");
        Ok(())
    });
}

/// `than` counts the lines, and the shares of a line add up to it.
fn each_long_wait_has_a_line(done: &Done) {
    let lines = done.of_type("event");
    let ended: Vec<&Value> = lines.iter().filter(|line| line["still_waiting"] == false).collect();
    assert_eq!(ended.len() as u64, done.sum("than", |row| is_table(row, "threads")), "{done:#?}");
    assert!(!ended.is_empty(), "{done:#?}");
    for line in lines {
        let ns = number(&line, "duration_ns");
        let ran = line["ran"].as_array().expect("somebody ran");
        assert_eq!(ran.iter().map(|runner| number(runner, "ran_ns")).sum::<u64>(), ns, "{line:#?}");
        assert!(ns >= 1_500_000, "{line:#?}");
        assert!(ran.iter().all(|runner| runner["tid"] != line["tid"]), "behind itself: {line:#?}");
    }
}

/// The sums by whom the waits were behind add up to all waits.
#[track_caller]
fn the_time_of_all_waits_has_a_task(done: &Done) {
    let waits = done.sum("total_ns", |row| is_table(row, "threads"));
    let behind = done.sum("waited_ns", |row| is_table(row, "behind"));
    // A wait that began before the command was executed has no row.
    assert!(behind.abs_diff(waits) <= waits / 100 + MS, "{behind} ns behind others of {waits}: {done:#?}");
}

/// Waits are the same, and so are those whom they were behind, if the kernel drops the wake-ups of all others.
#[test]
fn without_queues_other_tasks_cost_less() {
    need_events!(alone);
    attempts(|| {
        let cpu = online_cpus().last().expect("a CPU").to_string();
        let (queue, filter) = (example("queue"), "--filter=hog-?,serves");
        let options = ["rundelay", "--json", "-v", "--perins", "--no-queues", filter, "-m", "8192", "--", &queue];
        let done = run(&[&options[..], &["500", &cpu]].concat()).code(0);
        let done = done.says(&["kernel filter of sched:sched_wakeup, ", ": comm ~ \"hog-?\" || comm == \"serves\""]);
        all_seen(&done)?;
        let truth = done.line_with("hog-a_tid").to_owned();
        for name in ["hog-a", "hog-b", "serves"] {
            let [tid, delay_ns] = ["tid", "delay_ns"].map(|key| load_number(&truth, &format!("{name}_{key}")));
            check(name, done.sum("total_ns", |row| is_table(row, "threads") && row["tid"] == tid), delay_ns, &done);
        }
        let yields = load_number(&truth, "yields_tid");
        let rows = done.of_type("row");
        assert!(rows.iter().all(|row| !is_table(row, "queue")), "{done:#?}");
        assert!(rows.iter().all(|row| !is_table(row, "threads") || row["tid"] != yields), "{done:#?}");
        // It has the CPU for moments only.
        let behind_it = done.sum("waited_ns", |row| is_table(row, "behind") && row["tid"] == yields);
        or_again(behind_it > 0, &[Again::LoadBelow(&truth, "yields_nivcsw", 50)], || {
            format!("no wait was behind the one that yields: {done:#?}")
        })?;
        the_time_of_all_waits_has_a_task(&done);
        Ok(())
    });
}

#[test]
fn two_loops_that_yield_wait_half_of_the_time() {
    need_events!(alone);
    attempts(|| {
        let cpu = *online_cpus().last().expect("a CPU");
        let watching = watch(&["--perins"]);
        let threads = [0, 1].map(|_| {
            thread::spawn(move || {
                assert!(pin(cpu));
                let (start, before) = (Instant::now(), delay_ns());
                while start.elapsed() < Duration::from_millis(500) {
                    thread::yield_now();
                    work(Duration::from_micros(50));
                }
                let truth = delay_ns() - before;
                (own_tid(), truth, format!("switches={} delay_ns={truth}", switches()))
            })
        });
        let threads = threads.map(|thread| thread.join().expect("it yields"));
        let done = watching.interrupt().code(0);
        all_seen(&done)?;
        for (tid, truth, line) in threads {
            let of_thread = |row: &Value| is_table(row, "threads") && row["tid"] == tid;
            check("yields", done.sum("total_ns", of_thread), truth, &done);
            let yields = done.sum("count", |row| of_thread(row) && row["kind"] == "yielded");
            // On a busy machine each has its turn less often.
            let few = [Again::LoadBelow(&line, "switches", 550), Again::LoadBelow(&line, "delay_ns", 150 * MS)];
            or_again(yields >= 500 && truth >= 150 * MS, &few, || format!("{yields} yields, {line}: {done:#?}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_hog_is_named_with_its_share() {
    need_events!(alone);
    let permitted = thread::spawn(|| becomes_real_time(0, 1)).join().expect("it asks");
    if !permitted {
        skip!("SCHED_FIFO is not permitted");
    }
    attempts(|| {
        let cpu = *online_cpus().last().expect("a CPU");
        let steal = CpuWatch::of_account();
        let watching = watch(&["--than", "100ms", "-i", "100"]);
        let both = Barrier::new(2);
        let (victim, hog) = thread::scope(|scope| {
            let victim = scope.spawn(|| {
                assert!(pin(cpu));
                both.wait();
                work(Duration::from_millis(900));
                own_tid()
            });
            let hog = scope.spawn(|| {
                assert!(pin(cpu));
                both.wait();
                assert!(becomes_real_time(0, 50), "it was permitted before");
                // The victim works before it is interrupted.
                thread::sleep(Duration::from_millis(50));
                work(Duration::from_millis(600));
                own_tid()
            });
            (victim.join().expect("it works"), hog.join().expect("it works"))
        });
        let done = watching.interrupt().code(0);
        all_seen(&done)?;
        let lines: Vec<Value> = done.of_type("event").into_iter().filter(|line| line["tid"] == victim).collect();
        let is_behind_hog = |line: &&Value| {
            let first = &line["ran"][0];
            first["tid"] == hog && first["policy"] == "FIFO" && first["priority"] == 50 && line["behind"]["tid"] == hog
        };
        let went_on = lines.iter().filter(|line| line["still_waiting"] == true).filter(is_behind_hog);
        let ended = lines.iter().filter(|line| line["still_waiting"] == false).filter(is_behind_hog);
        let longest = ended.map(|line| number(line, "duration_ns")).max().unwrap_or(0);
        let waiting = |row: &Value| is_table(row, "waiting") && row["tid"] == victim && row["ran"][0]["tid"] == hog;
        let seen_waiting = done.of_type("row").into_iter().filter(waiting).count();
        let reasons = [Again::CpuStolen(&steal, Duration::from_millis(100))];
        or_again(went_on.count() > 0 && longest >= 300 * MS && seen_waiting > 0, &reasons, || {
            format!("longest {longest}, {seen_waiting} rows of waiting: {lines:#?}")
        })?;
        let began_before = done.sum("earlier", |row| is_table(row, "delays") && row["kind"] == "preempted");
        assert!(began_before > 0, "it began in an earlier interval: {done:#?}");
        Ok(())
    });
}

/// A process that spins on `cpu`, stopped at first, in a cgroup if there is one.
struct Spinner(Load);

impl Spinner {
    fn start(name: &Path, cpu: u32, cgroup: Option<&CpuCgroup>) -> Spinner {
        copy_program("/bin/sh", name);
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(name).args(["-c", "kill -STOP $$; while :; do :; done"]);
        let spinner = Spinner(Load::start(command));
        spinner.is_stopped();
        if let Some(cgroup) = cgroup {
            cgroup.take_in(spinner.pid());
        }
        spinner
    }

    fn pid(&self) -> i32 {
        self.0.pid()
    }

    fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(Pid::from_raw(self.pid()), signal).expect("it lives");
    }

    fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        self.is_stopped();
    }

    fn is_stopped(&self) {
        until("it is stopped", || state_letter(self.pid() as u64) == Some('T'));
    }

    /// Its time on a CPU, by the scheduler.
    fn run_ns(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).expect("schedstat");
        text.split(' ').next().and_then(|run| run.parse().ok()).expect("a number")
    }
}

/// Four processes in two cgroups. While one of them wants to go on, whatever another one runs is its wait.
#[test]
fn of_four_processes_that_spin_three_wait() {
    need_events!(alone);
    let dir = tempfile::tempdir().expect("a directory");
    let cgroups = ["one", "other"].map(|name| CpuCgroup::new(name, None));
    attempts(|| {
        let cpu = *online_cpus().last().expect("a CPU");
        let start = |at: usize| Spinner::start(&dir.path().join(format!("spin-{at}")), cpu, cgroups[at % 2].as_ref());
        let spinners = [0, 1, 2, 3].map(start);
        let [victim, others @ ..] = &spinners;
        let before = [0, 1, 2].map(|at: usize| others[at].run_ns());
        let options = ["rundelay", "-m", "8192", "-i", "100", "--top", "1", "-p", &victim.pid().to_string()];
        let steal = CpuWatch::of_account();
        let of_victim = start_watching(&options);
        let of_all = start_watching(&["rundelay", "-m", "8192", "-i", "100", "-C", &cpu.to_string()]);
        spinners.iter().for_each(|spinner| spinner.signal(Signal::SIGCONT));
        thread::sleep(Duration::from_millis(1200));
        others.iter().for_each(Spinner::stop);
        let ran = [0, 1, 2].map(|at| others[at].run_ns() - before[at]);
        let (of_victim, of_all) = (of_victim.interrupt().code(0), of_all.interrupt().code(0));
        all_seen(&of_victim)?;
        all_seen(&of_all)?;
        for (spinner, ran) in others.iter().zip(ran) {
            let is_behind = |row: &Value| is_table(row, "behind") && row["tid"] == spinner.pid();
            check("behind", of_victim.sum("waited_ns", is_behind), ran, &of_victim);
            let line = format!("ran_ns={ran}");
            or_again(ran >= 100 * MS, &[Again::LoadBelow(&line, "ran_ns", 100 * MS)], || "little work".to_owned())?;
        }
        three_wait(&of_all, &[0, 1, 2, 3].map(|at: usize| spinners[at].pid()), cpu, &steal)
    });
}

/// Three of the four wait and one runs, or all of them while another task runs. Others may wait, too; those of perf-prof
/// have no rows.
fn three_wait(done: &Done, tids: &[i32], cpu: u32, steal: &CpuWatch) -> Attempted {
    let rows = done.of_type("row");
    let queue: Vec<&Value> = rows.iter().filter(|row| is_table(row, "queue")).collect();
    assert!(!queue.is_empty() && queue.iter().all(|row| row["cpu"] == cpu), "{queue:#?}");
    let is_right = |row: &&&Value| {
        let waiting = rows.iter().filter(|other| is_table(other, "waiting") && other["interval"] == row["interval"]);
        let (ours, strangers): (Vec<&Value>, Vec<&Value>) =
            waiting.partition(|row| tids.iter().any(|tid| row["tid"] == *tid));
        let without_rows = number(row, "waiting").checked_sub((ours.len() + strangers.len()) as u64);
        (3..=4).contains(&ours.len()) && without_rows.is_some_and(|others| others <= 2)
    };
    let right = queue.iter().filter(is_right).count();
    let averages = queue.iter().filter_map(|row| row["average"].as_f64());
    let at_least_three = averages.filter(|average| *average > 2.9).count();
    let reasons = [Again::CpuStolen(steal, Duration::from_millis(300))];
    or_again(right >= 5 && at_least_three >= 3, &reasons, || {
        format!("{right} times 3 tasks, {at_least_three} times on average: {queue:#?}")
    })
}

#[test]
fn a_loss_is_told() {
    need_events!(alone);
    let cpu = *online_cpus().last().expect("a CPU");
    let pid = std::process::id().to_string();
    let watching = start_watching(&["rundelay", "-p", &pid, "-m", "1"]);
    let spin = || {
        let threads = [0, 1].map(|_| {
            thread::spawn(move || {
                assert!(pin(cpu));
                (0..20_000).for_each(|_| thread::yield_now());
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("it yields"));
    };
    watching.stopped(spin);
    let done = watching.interrupt().code(0);
    assert!(done.total("lost") > 0, "{done:#?}");
    let rows = done.of_type("row");
    let last = done.of_type("interval").pop().expect("an interval")["interval"].clone();
    let mut of_waits = rows.iter().filter(|row| is_table(row, "delays") && row["interval"] == last);
    assert!(of_waits.all(|row| row["verdict"] != "exact"), "{rows:#?}");
}

#[test]
fn a_line_says_behind_whom() {
    need_events!();
    let cpu = online_cpus().last().expect("a CPU").to_string();
    let queue = example("queue");
    let options = ["rundelay", "--filter", "hog-?", "--than", "1us", "-e", "sched:sched_wakeup*,sched:sched_switch"];
    let options = [&options[..], &["-e", "sched:sched_switch", "-m", "4096", "--", &queue, "100", &cpu]].concat();
    let done = run(&options).code(0);
    let is_line = |line: &&String| line.contains(" RD ") && line.contains("hog-") && line.contains(", behind ");
    assert!(done.out.iter().any(|line| is_line(&line)), "{done:#?}");
    for table in ["waits for a CPU", "behind whom", "run queues", "longest waits so far"] {
        assert!(done.out.iter().any(|line| line.contains(table)), "{table}: {done:#?}");
    }
    run(&["rundelay", "-e", "sched:sched_stat_wait"]).code(2).says(&["sched:sched_stat_wait", "perf-prof trace"]);
    run(&["rundelay", "-g"]).code(2).says(&["--than"]);
    run(&["rundelay", "--than", "1.5xs"]).code(2).says(&["xs", "ms"]);
}

/// A cgroup of version 1 or 2 where CPU time is shared; removed when dropped, after its tasks.
struct CpuCgroup(PathBuf);

impl CpuCgroup {
    /// `quota_us`: the time that it may use of 100 ms.
    fn new(name: &str, quota_us: Option<u64>) -> Option<CpuCgroup> {
        let name = format!("perf-prof-{name}-{}", std::process::id());
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let is_cpu = |mount: &&str| {
            let words: Vec<&str> = mount.split(' ').collect();
            words[2] == "cgroup2" || words[2] == "cgroup" && words[3].split(',').any(|option| option == "cpu")
        };
        mounts.lines().filter(is_cpu).find_map(|mount| {
            let dir = Path::new(mount.split(' ').nth(1)?).join(&name);
            fs::create_dir(&dir).ok()?;
            let cgroup = CpuCgroup(dir);
            let write = |file: &str, text: String| fs::write(cgroup.0.join(file), text).is_ok();
            let is_limited = quota_us
                .is_none_or(|us| write("cpu.cfs_quota_us", us.to_string()) || write("cpu.max", format!("{us} 100000")));
            is_limited.then_some(cgroup)
        })
    }

    fn take_in(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it joins");
    }

    fn throttled_ns(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).expect("it has a quota");
        let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        number("throttled_time ").or_else(|| Some(number("throttled_usec ")? * 1000)).expect("it counts")
    }
}

impl Drop for CpuCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn throttled_is_not_queued() {
    need_events!(alone);
    let Some(cgroup) = CpuCgroup::new("quota", Some(20_000)) else {
        skip!("no CPU controller in which to make a cgroup")
    };
    attempts(|| {
        let cpu = *online_cpus().last().expect("a CPU");
        let load = Load::of(&example("queue"), &["3000", &cpu.to_string()]);
        cgroup.take_in(load.pid());
        let watching = start_watching(&["rundelay", "-m", "8192", "-p", &load.pid().to_string()]);
        // The cgroup becomes known with the first wait.
        thread::sleep(Duration::from_millis(300));
        watching.signal(Signal::SIGUSR1);
        let before = cgroup.throttled_ns();
        thread::sleep(Duration::from_millis(1500));
        let throttled = cgroup.throttled_ns() - before;
        let done = watching.interrupt();
        drop(load);
        all_seen(&done)?;
        let name = cgroup.0.file_name().expect("a name").to_str().expect("ASCII").to_owned();
        let last = done.of_type("interval").pop().expect("an interval")["interval"].clone();
        let rows = done.of_type("row");
        let is_ours = |row: &&Value| {
            is_table(row, "quotas")
                && row["interval"] == last
                && row["cgroup"].as_str().is_some_and(|cgroup| cgroup.ends_with(&name))
        };
        let row = rows.iter().find(is_ours).unwrap_or_else(|| panic!("no row: {rows:#?}"));
        let [waited, part, queued] = ["waited_ns", "throttled_ns", "queued_ns"].map(|key| number(row, key));
        assert_eq!(waited, part + queued, "{row:#?}");
        assert_eq!((number(row, "quota_ns"), number(row, "period_ns")), (20 * MS, 100 * MS), "{row:#?}");
        // At least three of its four tasks wait for all of that time.
        let line = format!("throttled_ns={throttled}");
        or_again(throttled >= 500 * MS, &[Again::LoadBelow(&line, "throttled_ns", 500 * MS)], || row.to_string())?;
        let parts = 2 * throttled..=4 * throttled + 100 * MS;
        assert!(parts.contains(&part) && queued > 0, "throttled for {throttled} ns: {row:#?}");
        Ok(())
    });
}
