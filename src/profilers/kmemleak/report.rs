//! The report: rows by place, and the lines above them.

use crate::profilers::kmemleak::ledger::{AllocCounts, AllocOrigin, OutstandingSum, OutstandingSums};
use crate::report::{Basis, Column, Schema, TaskNames, Unit, Value, Verdict};
use crate::symbol::StackId;
use crate::task::Comm;

/// What is outstanding of one owner at one place.
#[derive(Clone, Debug)]
pub struct OutstandingRow {
    stack: Option<StackId>,
    sum: OutstandingSum,
    /// None: not known.
    bytes: Option<u64>,
    oldest_ns: Option<u64>,
    newest_ns: Option<u64>,
    owners: TaskNames,
}

const COLUMNS: &[Column<OutstandingRow>] = &[
    Column::<OutstandingRow>::known_counter("bytes", "bytes", |row| &mut row.bytes).in_unit(Unit::Bytes).if_any(),
    Column::counter("allocs", "allocs", |row| &mut row.sum.allocs),
    Column::<OutstandingRow>::greatest("oldest_ns", "oldest", |row| &mut row.oldest_ns).in_unit(Unit::Age),
    Column::<OutstandingRow>::least("newest_ns", "newest", |row| &mut row.newest_ns).in_unit(Unit::Age),
    Column::<OutstandingRow>::counter("exited", "exited", |row| &mut row.sum.exited).if_any(),
    Column::<OutstandingRow>::counter("unsure", "unsure", |row| &mut row.sum.unsure).if_any(),
    Column::<OutstandingRow>::derived("pid", "", |row, _| {
        row.owners.heaviest_pid().map_or(Value::None, |pid| Value::Signed(pid.into()))
    })
    .json_only(),
    Column::<OutstandingRow>::derived("comm", "", |row, _| row.owners.heaviest().map_or(Value::None, Value::Comm))
        .json_only(),
    Column::names("comms", "comm", |row| &mut row.owners),
    Column::<OutstandingRow>::counter("freed_unseen", "", |row| &mut row.sum.replaced).json_only(), // in text that is a mark
    Column::stack(|row| &mut row.stack),
];

/// By place.
pub static PLACES: Schema<OutstandingRow> = schema(COLUMNS);

/// For events without a stack or call site.
pub static OWNERS: Schema<OutstandingRow> = schema(COLUMNS.split_at(COLUMNS.len() - 1).0);

const fn schema(columns: &'static [Column<OutstandingRow>]) -> Schema<OutstandingRow> {
    Schema::<OutstandingRow>::new("outstanding", columns)
        .explained(MEANINGS)
        .snapshot()
        .ordered(|one, other| {
            let size = |row: &OutstandingRow| (row.bytes, row.sum.allocs);
            size(other).cmp(&size(one))
        })
        .judged(|row| match row.sum {
            OutstandingSum { unsure: 1.., .. } => Verdict::Unsure,
            OutstandingSum { replaced: 1.., .. } => Verdict::Discarded,
            _ => Verdict::Exact,
        })
        .rests_on(Basis::RunByRow)
}

const MEANINGS: &[(&str, &str)] = &[
    ("bytes", "outstanding at this place; absent where no event has a size"),
    ("allocs", "how many allocations are"),
    ("oldest_ns", "age of the oldest; of what a process left at its end, the age then"),
    ("newest_ns", "age of the newest"),
    ("exited", "left by a process that has ended, or has executed another program"),
    ("unsure", "allocated before events were lost: they may have been freed unseen"),
    ("pid", "process with the most of it, as `comm`"),
    ("comm", "who has most of it"),
    ("comms", "all who have some, those first that have most"),
    ("freed_unseen", "freed without an event, found out when their addresses were given out again; a mark in text"),
    ("stack", "where they were allocated; absent for events that do not tell"),
];

/// The rows, in no order. `sizes`: whether sizes are known.
pub fn rows(sums: &OutstandingSums, sizes: bool, task: impl Fn(u32) -> (Option<i32>, Comm)) -> Vec<OutstandingRow> {
    let row = |(&AllocOrigin { stack, owner }, &sum): (&AllocOrigin, &OutstandingSum)| {
        let (pid, comm) = task(owner);
        let bytes = sizes.then_some(sum.bytes);
        let owners = TaskNames::of(pid, comm, [bytes.unwrap_or(0), sum.allocs]);
        OutstandingRow { stack, sum, bytes, oldest_ns: Some(sum.oldest_ns), newest_ns: Some(sum.newest_ns), owners }
    };
    sums.iter().map(row).collect()
}

/// All that is outstanding: allocations, bytes.
pub fn outstanding(sums: &OutstandingSums) -> (u64, u64) {
    sums.values().fold((0, 0), |(allocs, bytes), sum| (allocs + sum.allocs, bytes.saturating_add(sum.bytes)))
}

/// `44000 bytes in 500 allocs`
pub fn amount((allocs, bytes): (u64, u64), sizes: bool) -> String {
    let many = if allocs == 1 { "" } else { "s" };
    if sizes { format!("{bytes} bytes in {allocs} alloc{many}") } else { format!("{allocs} alloc{many}") }
}

/// What was counted since the start, in lines.
pub fn balance(counts: AllocCounts) -> Vec<String> {
    let AllocCounts { allocs, frees, unmatched, replaced, out_of_reach, unfinished } = counts;
    let unseen = if replaced > 0 { format!(", {replaced} freed unseen") } else { String::new() };
    let mut lines = vec![format!("{allocs} allocated, {} of them freed{unseen}", frees.saturating_sub(unmatched))];
    if unmatched > 0 {
        lines.push(format!("{unmatched} frees of what was allocated before the start, or unseen"));
    }
    if out_of_reach > 0 {
        lines.push(format!("{out_of_reach} left out: posix_memalign stored them where no sample reaches"));
    }
    if unfinished > 0 {
        lines.push(format!("{unfinished} calls left out: their return may be among what was lost"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TableSchema, TypedRows};

    #[test]
    fn sizes_that_nobody_knows_are_absent() {
        let sum = OutstandingSum { allocs: 2, bytes: 0, oldest_ns: 9, newest_ns: 5, exited: 0, unsure: 1, replaced: 0 };
        let mut sums = OutstandingSums::new(1);
        *sums.sum(AllocOrigin { stack: None, owner: 1 }) = sum;
        let mut rows = TypedRows::new(&PLACES, rows(&sums, false, |_| (Some(7), Comm::new(b"a"))));
        let cells = rows.cells(0, 1);
        assert_eq!(cells[..3], [Value::None, Value::Unsigned(2), Value::Age(9)]);
        assert_eq!(cells[6..8], [Value::Signed(7), Value::Comm(Comm::new(b"a"))]);
        assert_eq!((rows.verdict(0), rows.stack(0)), (Verdict::Unsure, Some(None)));
        assert_eq!(amount(outstanding(&sums), false), "2 allocs");
        assert_eq!(amount((1, 64), true), "64 bytes in 1 alloc");
        assert_eq!(OWNERS.head().columns.len() + 1, PLACES.head().columns.len());
    }

    #[test]
    fn the_balance_is_told() {
        let counts =
            AllocCounts { allocs: 10, frees: 9, unmatched: 2, replaced: 1, unfinished: 3, ..AllocCounts::default() };
        let want = [
            "10 allocated, 7 of them freed, 1 freed unseen",
            "2 frees of what was allocated before the start, or unseen",
            "3 calls left out: their return may be among what was lost",
        ];
        assert_eq!(balance(counts), want);
        assert_eq!(balance(AllocCounts { allocs: 1, ..AllocCounts::default() }), ["1 allocated, 0 of them freed"]);
    }
}
