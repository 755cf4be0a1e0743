//! Faults of the whole machine, in guests that live for one test: the clock is set back, a CPU goes and comes back, the
//! kernel is told to hide addresses and to refuse events.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::path::Path;

use common::number;
use lab::{AMD64, Lab};
use serde_json::Value;

/// getppid of examples/flood, by its number on x86_64.
const CALL: &str = "raw_syscalls:sys_enter/id==110/";

/// An event on all CPUs that needs neither tracefs nor names.
const COUNT: &str = "split-lock --event page-faults --json --for 100ms";

#[test]
fn a_clock_that_is_set_back() {
    need_lab!();
    for kernel in AMD64 {
        let output = Lab::new(kernel).example("flood").run(&format!(
            "seen() {{ flood 1 >/dev/null; grep -q \"$1\" /out/$2; }}
             watching json trace -e '{CALL}' -i 100
             started text trace -e '{CALL}'
             await seen sys_enter text
             date -s '2001-02-03 04:05:06' >/dev/null
             await seen '\"wall\":\"2001-02-03T04:05:' json
             await seen '^2001-02-03 04:05:' text
             stop json
             stop text
             # A time to run is no time of day.
             started timed trace -e '{CALL}' --for 3 -i 500 --json
             await grep -q '\"type\":\"interval\"' /out/timed
             date -s '2000-01-01 00:00:00' >/dev/null
             ended timed"
        ));
        let done = output.results("json").code(0);
        let objects = done.json();
        let times: Vec<u64> = objects.iter().map(|object| number(object, "time_ns")).collect();
        assert!(times.is_sorted(), "{kernel}: what is sorted by runs on: {done:#?}");
        // Up to the moment one day, from then on the other.
        let is_back: Vec<bool> = objects
            .iter()
            .map(|object| object["wall"].as_str().is_some_and(|wall| wall.starts_with("2001-02-03")))
            .collect();
        assert!(is_back.is_sorted() && !is_back[0] && is_back[is_back.len() - 1], "{kernel}: {done:#?}");
        let intervals = done.of_type("interval");
        assert!(intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]), "{kernel}: {intervals:?}");
        assert!(intervals.iter().all(|interval| number(interval, "end_ns") > number(interval, "start_ns")));
        assert_eq!((done.shown(), done.total("lost")), (done.total("samples"), 0));
        // In text, the lines of one day come before those of the other.
        let text = output.results("text").code(0);
        let days: Vec<bool> = text.out.iter().map(|line| line.starts_with("2001-02-03")).collect();
        assert!(days.is_sorted() && !days[0] && days[days.len() - 1], "{kernel}: {text:#?}");
        let timed = output.results("timed").code(0);
        let intervals = timed.of_type("interval");
        let span_ns = number(&intervals[intervals.len() - 1], "end_ns") - number(&intervals[0], "start_ns");
        assert!(span_ns >= 3_000_000_000 && intervals.len() >= 2, "{kernel}: {intervals:?}");
    }
}

#[test]
fn a_cpu_that_goes_and_comes_back() {
    need_lab!();
    for kernel in AMD64 {
        let output = Lab::new(kernel).example("flood").run(&format!(
            "online=/sys/devices/system/cpu/cpu1/online
             watching trace trace -e '{CALL}'
             watching states task-state -S --perins --filter 'flood'
             taskset 2 flood 5 >/dev/null
             echo 0 >$online
             await grep -q '^CPU 1 went offline$' /out/trace.err
             await grep -q '^CPU 1 went offline$' /out/states.err
             taskset 1 flood 7 >/dev/null
             echo 1 >$online
             await grep -q '^CPU 1 came online: watching it$' /out/trace.err
             await grep -q '^CPU 1 came online: watching it$' /out/states.err
             taskset 2 flood 11 >/dev/null
             stop trace
             stop states
             # Started without it.
             echo 0 >$online
             watching later trace -e '{CALL}'
             taskset 1 flood 3 >/dev/null
             echo 1 >$online
             await grep -q '^CPU 1 came online: watching it$' /out/later.err
             taskset 2 flood 13 >/dev/null
             stop later
             # Away for a moment.
             watching moment trace -e '{CALL}'
             taskset 2 flood 2 >/dev/null
             echo 0 >$online
             echo 1 >$online
             await grep -q '^CPU 1 came online: watching it$' /out/moment.err
             taskset 2 flood 17 >/dev/null
             stop moment"
        ));
        for (run, on) in [("trace", [7, 16]), ("later", [3, 13]), ("moment", [0, 19])] {
            let done = output.results(run).code(0);
            let calls = done.of_type("event");
            let on_cpu =
                |cpu: u64| calls.iter().filter(|event| event["comm"] == "flood" && event["cpu"] == cpu).count();
            assert_eq!([on_cpu(0), on_cpu(1)], on, "{kernel}: {run}: {done:#?}");
            assert_eq!(done.total("lost"), 0, "{kernel}: {run}: {done:#?}");
            // From when the CPU came online to when its events were enabled, it was not watched.
            let is_told = done.of_type("interval").iter().any(|interval| interval["verdict"] == "lower_bound");
            assert!(is_told, "{kernel}: {run}: {done:#?}");
        }
        let done = output.results("states").code(0);
        assert!(done.total("lost") == 0, "{kernel}: {done:#?}");
    }
}

/// Children that a command and a process started after the start of the run and before the CPU came online. perf-prof
/// is stopped meanwhile: records of the children are still unread when it finds the CPU.
#[test]
fn a_cpu_that_comes_is_watched_for_all_that_live() {
    need_lab!();
    for kernel in AMD64 {
        let output = Lab::new(kernel).example("flood").run(&format!(
            "online=/sys/devices/system/cpu/cpu1/online
             # Says that it is there, waits for the word, goes.
             echo 'touch /there.$1; while [ ! -e /go ]; do sleep 0.1; done; exec taskset 2 flood $2 >/dev/null' >child
             # Is told when to make it.
             echo 'while [ ! -e /make ]; do sleep 0.1; done; sh child $1 $2 & wait' >parent
             sh parent process 19 &
             process=$!
             started command trace -e '{CALL}' --json -v -- sh parent command 17
             await is_on command 'ring buffer' /out/command.err
             watching process trace -e '{CALL}' -p $process
             echo 0 >$online
             await grep -q '^CPU 1 went offline$' /out/command.err
             await grep -q '^CPU 1 went offline$' /out/process.err
             both=\"$(cat /tmp/command.pid /tmp/process.pid)\"
             kill -STOP $both
             touch /make
             await test -e /there.command
             await test -e /there.process
             echo 1 >$online
             kill -CONT $both
             await grep -q '^CPU 1 came online: watching it$' /out/command.err
             await grep -q '^CPU 1 came online: watching it$' /out/process.err
             touch /go
             ended command
             ended process"
        ));
        for (run, calls) in [("command", 17), ("process", 19)] {
            let done = output.results(run).code(0);
            let mut events = done.of_type("event");
            events.retain(|event| event["comm"] == "flood");
            assert!(events.iter().all(|event| event["cpu"] == 1), "{kernel}: {run}: {done:#?}");
            assert_eq!((events.len(), done.total("lost")), (calls, 0), "{kernel}: {run}: {done:#?}");
        }
    }
}

#[test]
fn a_kernel_that_hides_and_refuses() {
    need_lab!();
    for kernel in AMD64 {
        // 3 is Debian's own level: every event needs CAP_SYS_ADMIN.
        let lab = Lab::new(kernel).example("places").file(Path::new("/usr/bin/setpriv"));
        let output = lab.run(&format!(
            "cd /proc/sys/kernel
             echo 2 >kptr_restrict
             prof hidden trace -g --json -e '{CALL}' -- places own 3
             echo 0 >kptr_restrict
             prof shown trace -g --json -e '{CALL}' -- places own 3
             as() {{
                 name=$1 code=0
                 shift
                 /guest/setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\" >/out/$name 2>/out/$name.err || code=$?
                 echo $code >/out/$name.code
             }}
             for level in 2 3; do
                 echo $level >perf_event_paranoid
                 as nobody$level perf-prof {COUNT}
                 as perfmon$level --inh-caps +perfmon --ambient-caps +perfmon perf-prof {COUNT}
                 as admin$level --inh-caps +sys_admin --ambient-caps +sys_admin perf-prof {COUNT}
             done"
        ));
        let in_kernel = |name: &str| -> Vec<Value> {
            let stack = |event: &Value| event["stack"].as_array().cloned().unwrap_or_default();
            let frames = output.results(name).code(0).of_type("event").iter().flat_map(stack).collect::<Vec<_>>();
            frames.into_iter().filter(|frame| frame["module"] == "[kernel]").collect()
        };
        let (hidden, shown) = (in_kernel("hidden"), in_kernel("shown"));
        assert!(!hidden.is_empty() && !shown.is_empty(), "{kernel}");
        let why = "no-perm: kernel.kptr_restrict hides addresses";
        assert!(hidden.iter().all(|frame| frame["reason"] == why), "{kernel}: {hidden:?}");
        assert!(shown.iter().all(|frame| frame["symbol"].is_string()), "{kernel}: {shown:?}");
        output.results("hidden").says(&["degraded: no names for kernel functions (kernel.kptr_restrict is 2); cure: "]);
        for name in ["nobody3", "perfmon3"] {
            let refused = output.results(name).code(1);
            assert!(refused.out.is_empty() && refused.err.len() == 1, "{kernel}: {refused:?}");
            refused.says(&["kernel.perf_event_paranoid is 3 and CAP_SYS_ADMIN is missing; cure: CAP_SYS_ADMIN"]);
        }
        let refused = output.results("nobody2").code(1);
        refused.says(&["kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; cure: CAP_PERFMON"]);
        // The cure of the message works.
        for name in ["perfmon2", "admin2", "admin3"] {
            output.results(name).code(0).end();
        }
    }
}
