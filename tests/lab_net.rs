//! net on other kernels, with a network that loses packets.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::path::Path;

use common::{Done, load_number};
use lab::{AMD64, Lab};
use serde_json::Value;

const REFUSED: u64 = 4;
const ACCEPTED: u64 = 12;
const TC: &str = "/usr/sbin/tc";

/// What the kernel has sent again is what the run says, and each connection ends as the program knows.
fn check(series: &str) {
    let lab = Lab::new(series).module("sch_netem").example("connections").file(Path::new(TC));
    let version = lab.version();
    let output = lab.run(&format!(
        r#"
    ip link set lo up
    /guest/tc qdisc add dev lo root netem loss 10%
    sent_again() {{ awk '/^Tcp: [0-9]/ {{ print "sent_again=" $13 }}' /proc/net/snmp; }}
    mkfifo /tmp/go
    connections {REFUSED} {ACCEPTED} 0 0 </tmp/go >/out/load &
    exec 3>/tmp/go
    await grep -q pid= /out/load
    sent_again >/out/first
    watching net net -m 1024
    sent_again >/out/before
    echo go >&3
    await grep -q dead_port= /out/load
    sent_again >/out/after
    stop net
    sent_again >/out/last
    echo end >&3
    wait %1"#
    ));
    let done = output.results("net").code(0);
    let load = output.file("load");
    let said = load.lines().last().expect("a line");
    let counts = ["first", "before", "after", "last"].map(|name| load_number(output.file(name).trim(), "sent_again"));
    let [first, before, after, last] = counts;
    let rows = |table: &'static str| move |row: &Value| row["type"] == "row" && row["table"] == table;
    let told = done.sum("packets", rows("retransmits"));
    println!("{version}: {counts:?}, {told} told");
    // What is not acknowledged is sent again while the run ends, too.
    let is_right = (after - before..=last - first).contains(&told);
    assert!(is_right && done.total("lost") == 0, "{version}: {counts:?}, {told}: {done:#?}");
    assert!(told > 0, "{version}: the socket that never accepts drops some");
    let sum = |done: &Done, port: &str, key: &str| {
        done.sum(key, |row| {
            rows("connections")(row) && row["direction"] == "out" && row["port"] == load_number(said, port)
        })
    };
    // Over IPv6, too, there is one.
    assert_eq!(sum(&done, "dead_port", "refused"), REFUSED + 1, "{version}: {done:#?}");
    assert_eq!(sum(&done, "port", "count"), ACCEPTED, "{version}: {done:#?}");
    // Where the last packet of a handshake is lost, the queue has room for one more.
    let of_full = ["count", "given_up", "timed_out"].map(|key| sum(&done, "full_port", key));
    assert_eq!(of_full.iter().sum::<u64>(), 6, "{version}: {of_full:?}, {done:#?}");
}

#[test]
fn what_is_lost_is_sent_again() {
    need_lab!();
    AMD64.into_iter().for_each(check);
}
