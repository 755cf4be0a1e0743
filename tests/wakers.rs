//! `task-state --than`: wakers of waits that an interrupt ends.

#[macro_use]
mod common;

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Done, example, own_tid, run_over, start_watching, stay_visible, until};
use serde_json::Value;

/// Wakers of the sleeps of tasks with this name, if the wake-up was seen.
fn wakers(done: &Done, comm: &str) -> Vec<Value> {
    let events = done.of_type("event").into_iter();
    let ended = events.filter(|event| event["comm"] == comm && event["state"] == "S");
    ended.map(|event| event["waker"].clone()).filter(Value::is_object).collect()
}

#[test]
fn a_timer_is_told_from_other_interrupts() {
    need_events!();
    // On a CPU with a hidden idle task, wake-ups in its interrupts are hidden, too.
    stay_visible();
    let sleeps = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.02; done";
    let alarms = format!("{} 1000 50 0 >/dev/null & {sleeps}; wait", example("alarms"));
    let done = run_over(&["task-state", "-S", "--than", "10", "--json"], &["sh", "-c", &alarms]).code(0);
    for (comm, source) in [("sleep", "timer"), ("alarms", "timer timerfd_tmrproc")] {
        let wakers = wakers(&done, comm);
        assert!(wakers.len() >= 15, "{comm}: {done:?}");
        for waker in wakers {
            let told = (&waker["interrupt"], &waker["source"], &waker["tid"], &waker["comm"]);
            assert_eq!(told, (&true.into(), &source.into(), &Value::Null, &Value::Null), "{comm}");
        }
    }
    // The shell waits for its children, which are tasks.
    let of_shell = wakers(&done, "sh");
    assert!(of_shell.iter().any(|waker| waker["comm"] == "sleep"), "{done:?}");
    assert!(of_shell.iter().all(|waker| waker["source"].is_null()), "{of_shell:?}");
    assert_eq!(done.total("lost_stacks"), 0);
    assert!(done.of_type("event").iter().all(|event| event["stack"].is_null()), "none was asked for");
}

#[test]
fn the_network_wakes_in_its_softirq() {
    need_events!();
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = receiver.local_addr().expect("an address");
    let packets = 20;
    let (tell, told) = mpsc::channel();
    let receives = thread::Builder::new().name("receiver".into()).spawn(move || {
        tell.send(own_tid()).expect("somebody listens");
        (0..packets).for_each(|_| assert_eq!(receiver.recv(&mut [0]).expect("a packet"), 1));
    });
    let tid = told.recv().expect("its tid");
    let sleeps =
        || std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).is_ok_and(|stat| stat.contains(") S "));
    let mut run = start_watching(&["task-state", "-S", "--than", "10", "-p", &std::process::id().to_string()]);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut seen = 0;
    for _ in 0..packets {
        until("it waits", sleeps);
        thread::sleep(Duration::from_millis(15)); // the load: so long, and longer than is asked for
        sender.send_to(&[1], to).expect("it is sent");
        let event = run.object(|event| event["comm"] == "receiver" && event["still_waiting"] == false);
        // On a virtual machine the waking may go unseen.
        if event["waker"].is_object() {
            assert_eq!(event["waker"], serde_json::json!({"interrupt": true, "source": "softirq NET_RX"}), "{event}");
            seen += 1;
        }
    }
    receives.expect("a thread").join().expect("it receives");
    assert!(seen > packets / 2, "{seen}");
    run.interrupt().code(0);
}
