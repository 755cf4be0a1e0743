//! task-state against threads that idle, threads that wait for a lock, and a thread that keeps the lock while it sleeps.

#[macro_use]
mod common;

use std::fs;
use std::process::Command;

use common::waits::{MS, is_state, still_waiting};
use common::{Again, Attempted, Done, Load, attempts, load_number, number, or_again, run};
use serde_json::Value;

/// `shop`: a thread `keeper` that sleeps in `back_off` with the lock for 120 ms of each 130; three `buyer`s that take the
/// lock, and sleep 10 ms; three of a `pool`, that wait on a condition that never comes; a `server` that reads from a pipe;
/// a `poller` that polls for 250 ms, again and again. `burst`: bursts of 60 ms of CPU time, each followed by a sleep,
/// while another thread wants the same CPU.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, of_pool = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int ends[2];
static volatile long sink, is_over;

static void rest(long ms)
{
    struct timespec time = { 0, ms * 1000000 };
    nanosleep(&time, NULL);
}

__attribute__((noinline)) void back_off(void)
{
    rest(120);
    sink++;
}

static void *keeper(void *arg)
{
    prctl(PR_SET_NAME, "keeper");
    *(volatile long *)arg = syscall(SYS_gettid);
    for (;;) {
        pthread_mutex_lock(&lock);
        back_off();
        pthread_mutex_unlock(&lock);
        rest(10);
    }
}

static void *buyer(void *arg)
{
    prctl(PR_SET_NAME, "buyer");
    for (;;) {
        pthread_mutex_lock(&lock);
        sink++;
        pthread_mutex_unlock(&lock);
        rest(10);
    }
}

static void *pool(void *arg)
{
    prctl(PR_SET_NAME, "pool");
    pthread_mutex_lock(&of_pool);
    for (;;)
        pthread_cond_wait(&never, &of_pool);
}

static void *server(void *arg)
{
    char byte;
    prctl(PR_SET_NAME, "server");
    for (;;)
        sink += read(ends[0], &byte, 1);
}

static void *poller(void *arg)
{
    prctl(PR_SET_NAME, "poller");
    for (;;)
        poll(NULL, 0, 250);
}

static void pin(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
}

static long ran_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void *rival(void *arg)
{
    prctl(PR_SET_NAME, "rival");
    while (!is_over)
        sink++;
    return NULL;
}

static int burst(void)
{
    pthread_t other;
    long longest = 0;
    pin();
    rest(50);
    pthread_create(&other, NULL, rival, NULL);
    prctl(PR_SET_NAME, "burst");
    for (int turn = 0; turn < 5; turn++) {
        long from = ran_us();
        while (ran_us() - from < 60000)
            sink++;
        if (ran_us() - from > longest)
            longest = ran_us() - from;
        rest(20);
    }
    is_over = 1;
    pthread_join(other, NULL);
    printf("tid=%d longest_us=%ld\n", getpid(), longest);
    return 0;
}

int main(int argc, char **argv)
{
    volatile long tid = 0;
    pthread_t thread;
    if (!strcmp(argv[1], "burst"))
        return burst();
    if (pipe(ends))
        return 1;
    pthread_create(&thread, NULL, keeper, (void *)&tid);
    while (!tid)
        rest(1);
    for (int n = 0; n < 3; n++) {
        pthread_create(&thread, NULL, buyer, NULL);
        pthread_create(&thread, NULL, pool, NULL);
    }
    pthread_create(&thread, NULL, server, NULL);
    pthread_create(&thread, NULL, poller, NULL);
    printf("keeper=%ld\n", (long)tid);
    fflush(stdout);
    rest(999);
    getchar();
    return 0;
}
"#;

struct Built {
    dir: tempfile::TempDir,
}

impl Built {
    fn new() -> Built {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("shop.c");
        fs::write(&source, PROGRAM).expect("a file");
        let built = Command::new("cc")
            .args(["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "-w", "-o"])
            .arg(dir.path().join("shop"))
            .arg(&source)
            .status();
        assert!(built.expect("cc").success());
        Built { dir }
    }

    fn program(&self) -> String {
        self.dir.path().join("shop").to_str().expect("UTF-8").to_owned()
    }

    /// The load, and the tid of the keeper.
    fn shop(&self) -> (Load, u64) {
        let mut load = Load::of(&self.program(), &["shop"]);
        let keeper = load_number(&load.says(), "keeper");
        (load, keeper)
    }
}

fn is_idle(event: &Value) -> bool {
    event["idle"] == true
}

fn watch(load: &Load, options: &[&str]) -> Done {
    run(&[&["task-state", "-S", "--than", "40", "-p", &load.pid().to_string()], options].concat()).code(0)
}

#[test]
fn waiters_of_a_lock_do_not_idle_and_their_keeper_is_told() {
    need_events!(alone);
    attempts(try_waiters_of_a_lock_do_not_idle_and_their_keeper_is_told);
}

fn try_waiters_of_a_lock_do_not_idle_and_their_keeper_is_told() -> Attempted {
    let built = Built::new();
    let (load, keeper) = built.shop();
    let done = watch(&load, &["-g", "--json", "--for", "6"]);
    let events = done.of_type("event");
    let of = |comm: &str| -> Vec<&Value> { events.iter().filter(|event| event["comm"] == comm).collect() };
    assert!(of("buyer").iter().chain(&of("keeper")).all(|event| !is_idle(event)), "{done:#?}");
    let buyers: Vec<&Value> = of("buyer").into_iter().filter(|event| !still_waiting(event)).collect();
    let behind: Vec<&&Value> = buyers.iter().filter(|event| event["behind"].is_object()).collect();
    let reasons = [Again::RecordsLost(&done), Again::IdleHidden(&done)];
    // Some 45 turns of three waits each; the first of each thread is not told, and a late turn is short.
    or_again(buyers.len() >= 60 && behind.len() * 10 >= buyers.len() * 8, &reasons, || {
        format!("{} of {} waits: {done:#?}", behind.len(), buyers.len())
    })?;
    for event in behind {
        let (of, length) = (&event["behind"], number(event, "duration_ns"));
        assert_eq!((number(of, "tid"), &of["comm"], &of["state"]), (keeper, &"keeper".into(), &"S".into()), "{event}");
        let held = number(of, "duration_ns");
        assert!(held <= length && held > length / 2, "{event}");
        assert!(of["place"].as_str().is_some_and(|place| place.contains("back_off")), "{event}");
        assert!(of["waker"].is_null() && event["folded"].is_null(), "only for text: {event}");
    }
    // Those that idle all the time say so; the poller after some waits.
    for comm in ["pool", "server"] {
        assert!(of(comm).len() >= 2 && of(comm).iter().all(|event| is_idle(event)), "{comm}: {done:#?}");
    }
    let polls: Vec<&Value> = of("poller").into_iter().filter(|event| !still_waiting(event)).collect();
    assert!(polls.iter().take(2).all(|event| !is_idle(event)), "{polls:#?}");
    or_again(polls.iter().any(|event| is_idle(event)), &reasons, || format!("{polls:#?}"))
}

/// Each wait is in one line, and the lines of idle threads are few.
#[test]
fn idle_threads_have_a_line_for_each_place() {
    need_events!(alone);
    attempts(try_idle_threads_have_a_line_for_each_place);
}

fn try_idle_threads_have_a_line_for_each_place() -> Attempted {
    let built = Built::new();
    let (load, keeper) = built.shop();
    let all = watch(&load, &["--for", "4500ms", "--all-waits"]);
    assert!(!all.out.iter().any(|line| line.contains("idle")), "{all:#?}");
    let of = |done: &Done, words: &[&str]| -> Vec<String> {
        done.out.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
    };
    let repeated = of(&all, &["server", "still waiting"]);
    assert!(repeated.len() >= 2, "after one second, two and four: {all:#?}");
    let done = watch(&load, &["--for", "6"]);
    let server = of(&done, &["server", "still waiting"]);
    assert_eq!(server.len(), 1, "{done:#?}");
    assert!(
        server[0].contains(" in read(") && server[0].ends_with(", idle there (--all-waits shows each)"),
        "{server:?}"
    );
    let pool = of(&done, &["longest of 3 tasks: pool (", "still waiting", "idle there"]);
    assert_eq!(pool.len(), 1, "{done:#?}");
    assert!(of(&done, &["buyer", "idle there"]).is_empty() && of(&done, &["keeper", "idle there"]).is_empty());
    // In groups, the commonest waker and the keeper of the lock are told.
    let groups =
        of(&done, &["longest of ", "buyer", "; ", "woken by ", &format!(", behind keeper {keeper}, which slept ")]);
    let reasons = [Again::RecordsLost(&done), Again::IdleHidden(&done)];
    or_again(groups.len() >= 2, &reasons, || format!("{done:#?}"))
}

#[test]
fn a_stretch_on_a_cpu_goes_on_while_the_thread_is_preempted() {
    need_events!(alone);
    attempts(try_a_stretch_on_a_cpu_goes_on_while_the_thread_is_preempted);
}

fn try_a_stretch_on_a_cpu_goes_on_while_the_thread_is_preempted() -> Attempted {
    let built = Built::new();
    let done = common::run_over(&["task-state", "--perins", "--json"], &[&built.program(), "burst"]);
    let (tid, longest_ns) = (load_number(&done.load, "tid"), load_number(&done.load, "longest_us") * 1000);
    let rows = done.of_type("row");
    let of_thread = |state| rows.iter().find(move |row| row["tid"] == tid && is_state(row, state));
    let row = of_thread("R").unwrap_or_else(|| panic!("{done:#?}"));
    let reasons = [Again::RecordsLost(&done), Again::Discarded(&done), Again::IdleHidden(&done)];
    let (stretch, longest_period) = (number(row, "stretch_ns"), number(row, "max_ns"));
    // The clock of the thread does not count interrupts that the switches do.
    or_again(stretch + MS >= longest_ns && stretch < longest_ns + 15 * MS, &reasons, || {
        format!("{stretch} ns of {longest_ns}: {done:#?}")
    })?;
    or_again(longest_period < stretch, &reasons, || format!("it was preempted: {done:#?}"))?;
    let others = rows.iter().filter(|row| !is_state(row, "R"));
    assert!(others.clone().count() > 0 && others.clone().all(|row| row["stretch_ns"].is_null()), "{done:#?}");
    Ok(())
}
