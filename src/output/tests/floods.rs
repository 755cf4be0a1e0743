//! Floods through the whole output: which lines are printed, when, and before which other messages.

use std::io::{BufRead, BufReader, PipeReader};

use super::into_a_pipe;
use crate::output::tests::empty_table;
use crate::output::*;
use crate::perf::record::Innermost;
use crate::report::layout::{SUBJECT, detail, text};
use crate::report::{Detail, GroupBy, OccurrenceSchema, Subject, Value};
use crate::symbol::{SpaceKeys, Stacks};
use crate::task::Comm;

struct PipedWait {
    kind: u64,
    ms: u64,
}

static WAITS: OccurrenceSchema<PipedWait> = OccurrenceSchema::<PipedWait>::new(
    &[
        Detail::new("kind", |wait| Value::Unsigned(wait.kind)),
        Detail::new("duration_ns", |wait| Value::Ns(wait.ms * 1_000_000)),
        Detail::new("goes_on", |_| Value::Bool(false)),
    ],
    &[detail("kind"), text(" "), detail("duration_ns"), text(" ms "), SUBJECT],
)
.grouped(GroupBy {
    noun: "wait",
    same: &["kind", "goes_on"],
    place: "kind",
    duration: "duration_ns",
    goes_on: "goes_on",
});

pub fn wait(batch: &mut Batch, kind: u64, ms: u64, stack: Option<StackId>) {
    let subject = Subject { time: 0, cpu: 0, pid: 1, tid: 1, comm: Comm::new(b"task") };
    batch.add(&WAITS, subject, &PipedWait { kind, ms }, stack);
}

fn lines(reader: PipeReader) -> impl Iterator<Item = String> {
    BufReader::new(reader).lines().map(Result::unwrap)
}

/// The number of occurrences that a line counts.
fn count(line: &str) -> u64 {
    let number = |text: &str| text.split([' ', ':']).next().and_then(|word| word.parse().ok());
    let of = |before: &str| line.split_once(before).and_then(|(_, rest)| number(rest));
    let single = u64::from(line.contains(" task 1 [000]"));
    of("and ").filter(|_| line.contains(" more wait")).or_else(|| of("longest of ")).unwrap_or(single)
}

#[test]
fn a_flood_waits_for_no_other_message() {
    let (mut output, reader) = into_a_pipe(false);
    (0..100).for_each(|n| wait(&mut output.batch, n % 2, n, None));
    output.flush();
    let printed: Vec<String> = lines(reader).take(2).collect();
    assert!(printed[0].ends_with("1 99.000 ms longest of 50: task 1; 2500.000 ms in all"), "{printed:?}");
    assert!(printed[1].ends_with("0 98.000 ms longest of 50: task 1; 2450.000 ms in all"), "{printed:?}");
}

#[test]
fn every_occurrence_is_counted_once_and_before_later_messages() {
    for json in [false, true] {
        let (mut output, reader) = into_a_pipe(json);
        let read = std::thread::spawn(move || lines(reader).collect::<Vec<_>>());
        let table = || Message::Table { table: empty_table(), interval: 1, time_ns: 0, span_ns: 0, is_quiet: false };
        let counts = [3_u64, 2000, 17, 1];
        for (index, of_interval) in counts.into_iter().enumerate() {
            for n in 0..of_interval {
                wait(&mut output.batch, n % 40, n, None);
                if n % (100 + index as u64) == 99 {
                    output.flush();
                }
            }
            if index + 1 < counts.len() {
                output.send(table());
            }
        }
        assert!(output.finish(Vec::new(), || 0).is_none());
        let lines = read.join().unwrap();
        if json {
            assert_eq!(lines.len() as u64, counts.iter().sum::<u64>());
            continue;
        }
        let mut told = vec![0];
        for line in &lines {
            match line.contains(" test, interval 1") {
                true => told.push(0),
                false => *told.last_mut().unwrap() += count(line),
            }
        }
        assert_eq!(told, counts, "{lines:#?}");
        assert!(lines.len() < 200, "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains(" more wait")), "{lines:#?}");
    }
}

#[test]
fn a_stack_printed_above_is_referred_to_by_number() {
    let (mut output, reader) = into_a_pipe(false);
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let mut id = |ip| stacks.intern_address(ip, true, Innermost::Executed, 1, &mut keys).unwrap();
    let [one, other, last] = [1, 2, 3].map(|ip| id(1 << 63 | ip)); // addresses in no file
    output.tell(stacks.take_updates());
    for (kind, stack) in [(1, Some(one)), (2, Some(other)), (3, Some(one)), (4, None)] {
        wait(&mut output.batch, kind, 1, stack);
    }
    output.flush();
    for (ms, stack) in [(2, other), (1, last)] {
        (0..50).for_each(|_| wait(&mut output.batch, 5, ms, Some(stack)));
    }
    output.tell(std::iter::once(SymbolUpdate::Forget { last, kept: Default::default() }));
    output.flush();
    assert!(output.finish(Vec::new(), || 0).is_none());
    let told: Vec<String> = lines(reader)
        .map(|line| match line.split_once(" ms ") {
            Some((_, end)) => end.to_owned(),
            None => line.trim().split(' ').next().unwrap_or_default().to_owned(),
        })
        .collect();
    let want = [
        "task 1 [000], stack 1:",
        "8000000000000001",
        "task 1 [000], stack 2:",
        "8000000000000002",
        "task 1 [000], stack 1 above",
        "task 1 [000]",
        "longest of 50: task 1; 100.000 ms in all, stack 2 above",
        "longest of 50: task 1; 50.000 ms in all, stack 3:",
        "8000000000000003",
    ];
    assert_eq!(told, want);
}
