//! Tests of the queue to the output thread: its bounds, and its counts of dropped messages.

mod cells;
pub mod floods;

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

use super::*;
use crate::host::Host;
use crate::output::settings::ViewSettings;
use crate::output::thread::KEPT_BYTES;
use crate::perf::record::Innermost;
use crate::report::layout::{detail, text};
use crate::report::{Column, Detail, Occurrence, OccurrenceSchema, Report, Schema, Subject, Table, Value};
use crate::symbol::budget::{Budget, RunBudget};
use crate::symbol::elf::symbols::SymbolOptions;
use crate::symbol::spaces::space_keys::SpaceChange;
use crate::symbol::{SpaceKeys, Stacks};
use crate::task::Comm;
use crate::tep::tracefs::strings::KernelStrings;

static NUMBERS: OccurrenceSchema<u64> =
    OccurrenceSchema::new(&[Detail::new("n", |n| Value::Unsigned(*n))], &[detail("n").wide(9)]);

/// An output that writes into a pipe, and the reading end of the pipe.
pub fn into_a_pipe(json: bool) -> (Output, io::PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let sink = Sink::file(path.as_ref()).unwrap();
    let (output, settle) = Output::start(sink, Arc::new(Waker::new().unwrap())).unwrap();
    settle.send(settings(json));
    (output, reader)
}

pub fn settings(json: bool) -> OutputSettings {
    let symbols = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Budget::new(0) };
    OutputSettings {
        name: "test".to_owned(),
        views: vec![ViewSettings {
            name: "test".to_owned(),
            profiler: "test",
            stacks: false,
            flame: None,
            heatmap: None,
            main_table: "all",
        }],
        json,
        events: Vec::new(),
        strings: KernelStrings::default(),
        host: Host::default(),
        callchains: false,
        budget: RunBudget::new(0).whole,
        symbols,
        coverage: false,
        prompt: false,
        durable: false,
        metrics: None,
        screen: None,
    }
}

#[test]
fn memory_that_grew_in_a_rush_is_freed() {
    const MANY: u64 = 20_000;
    let (mut output, reader) = into_a_pipe(false);
    let read = std::thread::spawn(move || BufReader::new(reader).lines().count());
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    (0..MANY).for_each(|n| output.batch.add(&NUMBERS, subject, &n, None));
    assert!(output.batch.occurrences.capacity() * size_of::<Occurrence>() > 8 * KEPT_BYTES);
    output.flush();
    let used = output.used.recv().unwrap();
    assert!((1..=KEPT_BYTES).contains(&(used.occurrences.capacity() * size_of::<Occurrence>())));
    assert!((1..=KEPT_BYTES).contains(&(used.values.capacity() * size_of::<Value>())));
    assert!(output.finish(Vec::new(), || 0).is_none());
    assert_eq!(read.join().unwrap() as u64, MANY);
}

/// New stacks alone do not wake the output thread each round; occurrences that refer to them, and mappings, do.
#[test]
fn new_stacks_wait_for_company() {
    const S: u64 = 1_000_000_000;
    let (mut output, _reader) = into_a_pipe(false);
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let mut stack = |output: &mut Output, ip: u64| {
        stacks.intern_address(ip, true, Innermost::Executed, 1, &mut keys).unwrap();
        output.tell(stacks.take_updates());
    };
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    let round = |output: &mut Output, now: u64| {
        output.flush_round(now);
        output.batch.is_empty()
    };
    assert!(round(&mut output, 1), "there is nothing");
    stack(&mut output, 0);
    assert!(!round(&mut output, S));
    stack(&mut output, 1);
    assert!(!round(&mut output, 2 * S - 1));
    assert!(round(&mut output, 2 * S), "the first one has waited long enough");
    stack(&mut output, 2);
    assert!(!round(&mut output, 3 * S), "it waits from now on");
    output.batch.add(&NUMBERS, subject, &1, None);
    assert!(round(&mut output, 3 * S));
    stack(&mut output, 3);
    output.tell(std::iter::once(SymbolUpdate::Space(SpaceChange::Exec { pid: 1 })));
    assert!(round(&mut output, 3 * S));
    assert!(output.finish(Vec::new(), || 0).is_none());
}

/// A flood of one kind does not cause occurrences of a rare kind to be dropped.
#[test]
fn a_flood_drops_nothing_rare() {
    static RARE: OccurrenceSchema<u64> = OccurrenceSchema::new(
        &[Detail::new("rare", |n| Value::Unsigned(*n))],
        &[text("rare "), detail("rare").wide(9)],
    );
    const ROUNDS: u64 = 500;
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    let (mut output, reader) = into_a_pipe(true);
    for round in 0..ROUNDS {
        for n in 0..1000 {
            output.batch.add(&NUMBERS, subject, &n, None);
            output.flush_large();
        }
        output.batch.add(&RARE, subject, &round, None);
        assert!(output.batch.bytes() <= MAX_BATCH_BYTES + BATCH_BYTES);
    }
    let dropped = output.dropped();
    assert!(dropped > ROUNDS);
    let lines = std::thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect::<Vec<_>>());
    assert!(output.finish(Vec::new(), || 0).is_none());
    let lines = lines.join().unwrap();
    let number = |line: &String| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["rare"].as_u64()
    };
    assert!(lines.iter().filter_map(number).eq(0..ROUNDS));
    assert_eq!(lines.len() as u64 + dropped, ROUNDS * 1001);
}

/// A batch of many kinds, none of which is rare, can be thinned until it is empty.
#[test]
fn a_batch_of_many_kinds_gets_smaller() {
    static DETAILS: [Detail<u64>; 1] = [Detail::new("n", |n| Value::Unsigned(*n))];
    static KINDS: [OccurrenceSchema<u64>; 4] = [const { OccurrenceSchema::new(&DETAILS, &[]) }; 4];
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    let mut batch = Batch::default();
    for n in 0..800 {
        let kind = &KINDS[if n % 16 == 0 { 0 } else { 1 + n % 3 }];
        batch.add(kind, subject, &(n as u64), None);
    }
    batch.thin();
    assert_eq!((batch.occurrences.len(), batch.values.len()), (50, 50));
    batch.thin();
    assert_eq!(batch.bytes(), 0, "alone it is not rare");
}

/// While the output is blocked, memory is bounded, and every occurrence is printed or counted as dropped.
#[test]
fn a_blocked_output_loses_no_count() {
    const EACH: u64 = 1000;
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    let (mut output, reader) = into_a_pipe(false);
    let mut sent = 0;
    for round in 0..1000 {
        for n in sent..sent + EACH {
            output.batch.add(&NUMBERS, subject, &n, None);
            output.flush_large();
        }
        sent += EACH;
        output.flush();
        if round % 10 == 0 {
            output.send(Message::Table { table: empty_table(), interval: 1, time_ns: 0, span_ns: 0, is_quiet: false });
        }
        let in_flight = output.in_flight.occurrence_bytes();
        assert!(in_flight <= MAX_BYTES, "{in_flight} bytes under way");
        assert!(output.batch.bytes() <= MAX_BATCH_BYTES + BATCH_BYTES);
    }
    let dropped = output.dropped();
    assert!(dropped > 0);
    let lines = std::thread::spawn(move || {
        let numbers = BufReader::new(reader)
            .lines()
            .filter_map(|line| line.unwrap().split_ascii_whitespace().nth(2).and_then(|word| word.parse::<u64>().ok()));
        numbers.collect::<Vec<u64>>()
    });
    let in_flight = output.in_flight.clone();
    assert!(output.finish(Vec::new(), || 0).is_none());
    let lines = lines.join().unwrap();
    assert!(lines.is_sorted());
    assert_eq!(lines.len() as u64 + dropped, sent);
    assert_eq!((in_flight.occurrence_bytes(), in_flight.report_bytes()), (0, 0));
}

/// The reading thread of a quiet run learns that the output thread has ended.
#[test]
fn the_end_of_the_thread_is_noticed() {
    let (_reader, writer) = io::pipe().unwrap();
    let sink = Sink::file(format!("/proc/self/fd/{}", writer.as_raw_fd()).as_ref()).unwrap();
    let waker = Arc::new(Waker::new().unwrap());
    let (mut output, settle) = Output::start(sink, waker.clone()).unwrap();
    settle.send(settings(false));
    assert!(!output.is_closed());
    output.send(Message::Panic);
    let mut poller = sys::poll::Poller::new().unwrap();
    poller.add(&*waker, 7).unwrap();
    assert!(poller.wait(Duration::from_secs(60)).unwrap().eq([7]), "the reading side was not woken");
    assert!(output.is_closed());
    let ending = output.finish(Vec::new(), || 0);
    assert!(matches!(&ending, Some(OutputClosed::Failed(err)) if err.to_string().contains("panicked")), "{ending:?}");
}

/// A table without rows.
pub fn empty_table() -> Table {
    static NUMBERS: Schema<u64> = Schema::new("numbers", &[Column::counter("n", "n", |row| row)]);
    let mut report = Report::default();
    report.delta(&NUMBERS, Vec::new());
    report.tables.remove(0)
}

fn mapping(pid: i32, n: u64) -> SymbolUpdate {
    let (path, key) = (vec![b'x'; 1000].into(), crate::symbol::spaces::maps_line::FileKey::Unknown);
    SymbolUpdate::Space(SpaceChange::Map { pid, start: n << 12, end: (n + 1) << 12, offset: 0, path, key })
}

/// Mappings of processes take bounded memory while the output is blocked, however many there are. Afterwards no stack
/// gets names from mappings from before the gap.
#[test]
fn a_blocked_output_keeps_few_news() {
    const STORM: u64 = 100_000;
    let (mut output, reader) = into_a_pipe(true);
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::default() };
    let mut take = |output: &mut Output, ip: u64| {
        let id = stacks.intern_address(ip, true, Innermost::Executed, 1, &mut keys).unwrap();
        output.tell(stacks.take_updates());
        output.batch.add(&NUMBERS, subject, &ip, Some(id));
        id
    };
    let before = take(&mut output, 1);
    // More than fits in the pipe.
    (0..20_000).for_each(|n| output.batch.add(&NUMBERS, subject, &n, None));
    output.flush();
    for n in 0..STORM {
        output.tell(std::iter::once(mapping(1, n)));
        output.flush_large();
        let bytes = output.in_flight.news_bytes() + output.batch.update_bytes();
        assert!(bytes <= MAX_NEWS_BYTES, "{bytes} bytes");
    }
    assert!(output.end_gap().is_none(), "it is blocked still");
    let left_out = take(&mut output, 2);
    assert_eq!(output.dropped_stacks(), 1);
    output.flush();
    let lines = std::thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect::<Vec<_>>());
    let gap = loop {
        output.flush();
        if let Some(gap) = output.end_gap() {
            break gap;
        }
        std::thread::yield_now();
    };
    assert_eq!(gap.first, Some(left_out));
    assert!(before < left_out);
    stacks.forget_from(left_out);
    let again = stacks.intern_address(2, true, Innermost::Executed, 1, &mut keys).unwrap();
    assert_ne!(again, left_out, "the output gets it as a new stack");
    output.tell(stacks.take_updates());
    output.batch.add(&NUMBERS, subject, &3, Some(again));
    let dropped = output.dropped();
    assert!(output.finish(Vec::new(), || 0).is_none());
    let lines = lines.join().unwrap();
    assert_eq!((lines.len() as u64, dropped), (20_003, 0), "lines have room of their own");
    let stacks_of = |n: usize| serde_json::from_str::<serde_json::Value>(&lines[n]).unwrap()["stack"][0].clone();
    assert_eq!(stacks_of(0)["addr"], "0x1");
    assert_eq!(stacks_of(20_001)["reason"], "stack left out: the output could not keep up");
    assert_eq!(stacks_of(20_002)["addr"], "0x2");
}
