//! CPUs that go and come back in mid-run. One test in a binary of its own: no other may run beside it.

#[macro_use]
mod common;

use std::fs;
use std::path::PathBuf;

use common::{getppid, own_tid, pin, start};

/// A CPU that is put back online when this is dropped.
struct Switch(PathBuf);

impl Switch {
    fn set(&self, on: bool) -> std::io::Result<()> {
        fs::write(&self.0, if on { "1" } else { "0" })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.set(true).expect("the CPU comes back");
    }
}

#[test]
fn a_cpu_goes_and_comes_back() {
    need_events!();
    if std::env::var_os("PERF_PROF_TESTS_HOTPLUG").is_none() {
        // Not for a machine that others use, nor for one that is used again: on some virtual machines the idle task of
        // a CPU that was offline is hidden from tracing ever after.
        skip!("takes a CPU offline; PERF_PROF_TESTS_HOTPLUG=1 allows it");
    }
    let Some(&cpu) = common::online_cpus().iter().rfind(|&&cpu| cpu != 0) else { skip!("needs two CPUs") };
    let switch = Switch(format!("/sys/devices/system/cpu/cpu{cpu}/online").into());
    if let Err(err) = switch.set(true) {
        std::mem::forget(switch);
        skip!("CPU {cpu} cannot be taken offline: {err}");
    }
    let tid = own_tid().to_string();
    let event = format!("raw_syscalls:sys_enter/id=={} && common_pid=={tid}/", libc::SYS_getppid);
    let on_it = format!("\"cpu\":{cpu},");
    for target in [&["-t", &tid][..], &[]] {
        assert!(pin(cpu));
        let mut trace = start(&[&["trace", "--json", "-e", &event], target].concat());
        trace.provoke(getppid, |line| line.contains(&on_it));

        if let Err(err) = switch.set(false) {
            skip!("CPU {cpu} cannot be taken offline: {err}"); // the last one, or held by something
        }
        trace.err_line(|line| line == format!("CPU {cpu} went offline"));
        trace.provoke(getppid, |line| line.contains("sys_enter") && !line.contains(&on_it));

        switch.set(true).unwrap();
        trace.err_line(|line| line == format!("CPU {cpu} came online: watching it"));
        assert!(pin(cpu));
        trace.provoke(getppid, |line| line.contains(&on_it));
        trace.interrupt().code(0).end();

        // A run that starts while the CPU is offline.
        switch.set(false).unwrap();
        let mut trace = start(&[&["trace", "--json", "-e", &event], target].concat());
        trace.provoke(getppid, |line| line.contains("sys_enter"));
        switch.set(true).unwrap();
        assert!(pin(cpu));
        trace.provoke(getppid, |line| line.contains(&on_it));
        trace.interrupt().code(0).end();
    }

    // Strings of calls are copied on a CPU that comes while they are asked for, whether it was there at the start or not.
    let path = "/etc/perf-prof-hotplug";
    let event = format!("syscalls:sys_enter_openat/common_pid=={tid}/");
    for was_there in [true, false] {
        switch.set(was_there).unwrap();
        let mut trace = start(&["trace", "--json", "-e", &event]);
        let opens = || drop(fs::File::open(path));
        trace.provoke(opens, |line| line.contains(path));
        switch.set(false).unwrap();
        switch.set(true).unwrap();
        trace.err_line(|line| line == format!("CPU {cpu} came online: watching it"));
        assert!(pin(cpu));
        trace.provoke(opens, |line| line.contains(&on_it) && line.contains(path));
        trace.interrupt().code(0).end();
    }
}
