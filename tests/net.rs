//! net: connections and datagrams of a program that knows how each of them ends.

#[macro_use]
mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use common::{Again, Attempted, Done, Load, attempts, example, load_number, number, or_again, start_watching};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

const REFUSED: u64 = 300;
const ACCEPTED: u64 = 20;
const RESET: u64 = 5;
const DATAGRAMS: u64 = 500;
const DATAGRAM_BYTES: u64 = 100;
/// So long each connection waits for accept.
const IN_QUEUE_NS: u64 = 5_000_000;

/// Watches the load, of whose process `more` may have the number for `PID`. Returns what it says, and its pid.
fn watch(more: &[&str]) -> (String, u64, Done) {
    let numbers = [REFUSED, ACCEPTED, RESET, DATAGRAMS].map(|number| number.to_string());
    let mut load = Load::of(&example("connections"), &numbers.each_ref().map(String::as_str));
    let pid = load_number(&load.says(), "pid");
    let pid_text = pid.to_string();
    let more: Vec<&str> = more.iter().map(|arg| if *arg == "PID" { pid_text.as_str() } else { arg }).collect();
    let prog = start_watching(&[&["net", "-m", "1024"], &more[..]].concat());
    load.tell("go");
    let said = load.says();
    let done = prog.interrupt().code(0);
    load.tell("end");
    (said, pid, done)
}

/// Rows of a table about a port.
fn at<'a>(table: &'a str, direction: &'a str, port: u64) -> impl Fn(&Value) -> bool + 'a {
    move |row| {
        let is_its = row["table"] == table && row["port"] == port;
        row["type"] == "row" && is_its && (direction.is_empty() || row["direction"] == direction)
    }
}

fn lines(done: &Done, pid: u64, outcome: &str) -> u64 {
    let of_type = done.of_type("event");
    of_type.iter().filter(|line| line["pid"] == pid && line["outcome"] == outcome).count() as u64
}

/// No record is missing.
#[track_caller]
fn is_whole(done: &Done) -> Attempted {
    or_again(done.total("lost") == 0, &[Again::RecordsLost(done)], || format!("{:#?}", done.err))
}

#[test]
fn each_connection_ends_as_the_program_knows() {
    need_events!();
    attempts(|| {
        let (said, pid, done) = watch(&["--failures", "-i", "100"]);
        is_whole(&done)?;
        let [dead, port, full] = ["dead_port", "port", "full_port"].map(|key| load_number(&said, key));
        let unseen = [Again::Discarded(&done), Again::IdleHidden(&done)];
        let sums = |direction: &str, port: u64, keys: &[&str]| -> Vec<u64> {
            keys.iter().map(|key| done.sum(key, at("connections", direction, port))).collect()
        };
        // Over IPv6, too, there is one.
        let refused = sums("out", dead, &["refused", "count", "timed_out", "failed", "given_up"]);
        or_again(refused == [REFUSED + 1, 0, 0, 0, 0], &unseen, || format!("{refused:?}: {done:#?}"))?;
        let keys = ["count", "reset_by_peer", "reset", "closed", "refused", "never_accepted"];
        let made = sums("out", port, &keys);
        or_again(made == [ACCEPTED + RESET, RESET, 0, ACCEPTED, 0, 0], &unseen, || format!("{made:?}: {done:#?}"))?;
        let accepted = sums("in", port, &keys);
        let want = [ACCEPTED + RESET, 0, RESET, ACCEPTED, 0, 0];
        or_again(accepted == want, &unseen, || format!("{accepted:?}: {done:#?}"))?;
        let given_up = sums("out", full, &["count", "given_up", "timed_out", "failed", "refused"]);
        or_again(given_up == [2, 3, 1, 0, 0], &unseen, || format!("{given_up:?}: {done:#?}"))?;
        let rows: Vec<Value> = done.json().into_iter().filter(at("connections", "in", port)).collect();
        assert!(
            rows.iter().filter(|row| number(row, "count") > 0).all(|row| {
                row["pid"] == pid && row["comm"] == "connections" && number(row, "min_ns") >= IN_QUEUE_NS
            })
        );
        let waiting: Vec<Value> = done.json().into_iter().filter(at("connections", "in", full)).collect();
        assert!(waiting.last().is_some_and(|row| row["now"] == 2), "in the queue at the end: {waiting:#?}");
        let failures = [
            ("refused", REFUSED + 1),
            ("reset by peer", RESET),
            ("reset", RESET),
            ("given up", 3),
            ("timed out", 1),
            ("connected", 0),
        ];
        for (outcome, want) in failures {
            assert_eq!(lines(&done, pid, outcome), want, "{outcome}: {done:#?}");
        }
        Ok(())
    });
}

/// What is dropped since a queue for accept is full is counted by the kernel, and is sent again.
#[test]
fn a_full_queue_for_accept_is_named() {
    need_events!(alone); // the load counts what the machine drops
    attempts(|| {
        let (said, pid, done) = watch(&["-i", "100"]);
        is_whole(&done)?;
        let [full, dropped] = ["full_port", "dropped"].map(|key| load_number(&said, key));
        let rows: Vec<Value> = done.json().into_iter().filter(at("listeners", "", full)).collect();
        let told: u64 = rows.iter().map(|row| number(row, "dropped")).sum();
        assert_eq!(told, dropped, "{rows:#?}\n{done:#?}");
        assert!(rows.iter().all(|row| row["pid"] == pid && row["queued"] == 2 && row["backlog"] == 1), "{rows:#?}");
        let of_intervals: u64 = done.of_type("interval").iter().map(|interval| number(interval, "listen_drops")).sum();
        assert!(of_intervals >= dropped, "{of_intervals} of {dropped}: {done:#?}");
        let again = done.sum("packets", |row| at("retransmits", "out", full)(row) && row["state"] == "syn_sent");
        // Four connects, each asked at least once.
        or_again(again == dropped - 4, &[Again::IdleHidden(&done)], || format!("{again} of {dropped}: {done:#?}"))
    });
}

#[test]
fn datagrams_are_received_or_dropped() {
    need_events!();
    attempts(|| {
        let (said, pid, done) = watch(&["--bytes"]);
        is_whole(&done)?;
        let [udp, received] = ["udp_port", "received"].map(|key| load_number(&said, key));
        let dropped = DATAGRAMS - received;
        assert!(dropped > 0, "{said}");
        let full = done.sum("datagrams", at("full_queues", "", udp));
        or_again(full == dropped, &[Again::IdleHidden(&done)], || format!("{full} of {dropped}: {done:#?}"))?;
        let of_reason = |row: &Value| row["table"] == "drops" && row["reason"] == "SOCKET_RCVBUFF";
        assert!(done.sum("packets", of_reason) >= dropped, "{done:#?}");
        let traffic = |row: &Value| row["table"] == "traffic" && row["pid"] == pid && row["protocol"] == "UDP";
        let keys = ["sends", "sent_bytes", "receives", "received_bytes"];
        let want = [DATAGRAMS, DATAGRAMS * DATAGRAM_BYTES, received, received * DATAGRAM_BYTES];
        assert_eq!(keys.map(|key| done.sum(key, traffic)), want, "{done:#?}");
        Ok(())
    });
}

/// With `-p` the run is about that process alone; what belongs to none is left out, and the run says so.
#[test]
fn a_run_about_a_process_is_about_its_connections() {
    need_events!();
    attempts(|| {
        let (said, pid, done) = watch(&["-p", "PID", "--than", "5ms"]);
        is_whole(&done)?;
        let port = load_number(&said, "port");
        let rows = done.of_type("row");
        assert!(rows.iter().all(|row| row["pid"] == pid), "{rows:#?}");
        let accepted = done.sum("than", at("connections", "in", port));
        or_again(accepted == ACCEPTED + RESET, &[Again::Discarded(&done)], || format!("{accepted}: {done:#?}"))?;
        assert_eq!(lines(&done, pid, "accepted"), ACCEPTED + RESET, "{done:#?}");
        assert!(done.err().contains("belong to no task"), "{done:#?}");
        Ok(())
    });
}

const MESSAGES: u64 = 200;
const ASKED_BYTES: u64 = 100;
const ANSWERED_BYTES: u64 = 50;

/// The connections of one peer have a line for each step of their life, and all bytes that they carry.
#[test]
fn a_flow_has_its_life_and_its_bytes() {
    need_events!();
    attempts(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let prog = start_watching(&["net", "-m", "1024", "--flow", &address.to_string()]);
        let mut client = TcpStream::connect(address).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        let (mut asked, mut answered) = ([0; ASKED_BYTES as usize], [0; ANSWERED_BYTES as usize]);
        for _ in 0..MESSAGES {
            client.write_all(&asked).expect("sent");
            server.read_exact(&mut asked).expect("received");
            server.write_all(&answered).expect("sent");
            client.read_exact(&mut answered).expect("received");
        }
        drop(client);
        drop(server);
        let done = prog.interrupt().code(0);
        is_whole(&done)?;
        let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "flows").collect();
        assert_eq!(rows.len(), 2, "both ends are here: {rows:#?}");
        for (key, bytes) in [("local_port", ASKED_BYTES), ("peer_port", ANSWERED_BYTES)] {
            let own = rows.iter().find(|row| row[key] == address.port()).expect("a row");
            let packets = number(own, "packets");
            or_again(number(own, "bytes") == MESSAGES * bytes, &[Again::IdleHidden(&done)], || format!("{own}"))?;
            assert!(packets >= MESSAGES && number(own, "count") <= packets, "{own}");
            assert!(number(own, "p50_ns") > 0 && number(own, "p50_ns") <= number(own, "max_ns"), "{own}");
            assert!(number(own, "least_window") <= number(own, "window"), "{own}");
            assert!(number(own, "in_flight_bytes") >= ASKED_BYTES.min(ANSWERED_BYTES), "{own}");
        }
        let own = u64::from(std::process::id());
        let outcomes = [("connected", 1), ("accepted", 1), ("closed", 2)];
        let told = outcomes.map(|(outcome, _)| (outcome, lines(&done, own, outcome)));
        or_again(told == outcomes, &[Again::Discarded(&done)], || format!("{told:?}: {done:#?}"))
    });
}

/// Of a connection that is older than the run it is known whose it is, and who made it.
#[test]
fn an_older_connection_has_its_process() {
    need_events!();
    attempts(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let port = u64::from(listener.local_addr().expect("its address").port());
        let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let prog = start_watching(&["net", "-m", "1024"]);
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&server, sockopt::Linger, &linger).expect("linger");
        drop(server);
        drop(client);
        let done = prog.interrupt().code(0);
        is_whole(&done)?;
        let own = u64::from(std::process::id());
        for (direction, what) in [("in", "sent"), ("out", "received")] {
            let resets = done
                .sum("resets", |row| at("resets", direction, port)(row) && row["what"] == what && row["pid"] == own);
            or_again(resets == 1, &[Again::Discarded(&done)], || format!("{direction} {what}: {resets}: {done:#?}"))?;
        }
        Ok(())
    });
}
