//! The report: rows by place, and the lines above them.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::digits::format_ns;
use crate::profilers::kmemleak::ages::{AGES, AgeAmounts};
use crate::profilers::kmemleak::flows::{FIRST_PART_NS, FlowKey, FlowSpan, PlaceFlow, TREND_PARTS};
use crate::profilers::kmemleak::ledger::{AllocCounts, OutstandingSum, OutstandingSums};
use crate::profilers::kmemleak::trend::Trend;
use crate::report::{Basis, Cell, Column, Schema, TaskNames, TaskOfRow, Unit, Value, Verdict};
use crate::symbol::StackId;

/// The outstanding allocations of one place; or of one owner, where events have no place.
#[derive(Clone, Debug)]
pub struct OutstandingRow {
    stack: Option<StackId>,
    sum: OutstandingSum,
    /// None: not known.
    bytes: Option<u64>,
    oldest_ns: Option<u64>,
    newest_ns: Option<u64>,
    owners: TaskNames,
    flow: PlaceFlow,
    span: FlowSpan,
}

/// Properties that all rows of a report share.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingTerms {
    pub has_sizes: bool,
    pub span: FlowSpan,
}

impl OutstandingRow {
    /// The minima of the last parts of the time, the oldest first.
    fn least(&self) -> &[u64] {
        self.flow.least.get(..self.span.parts).unwrap_or_default()
    }

    fn trend(&self) -> Trend {
        Trend::of(self.least())
    }

    /// The growth of the outstanding amount per second: from the later half of the minima, or from all that stayed
    /// while there are too few minima.
    fn kept_per_s(&self) -> i64 {
        const HALF: usize = TREND_PARTS / 2;
        let FlowSpan { span_ns, part_ns, parts } = self.span;
        let (more, ns) = if parts == TREND_PARTS {
            let [before, last] = [HALF - 1, TREND_PARTS - 1].map(|part| i128::from(self.flow.least[part]));
            (last - before, part_ns.saturating_mul(HALF as u64))
        } else {
            (self.bytes.unwrap_or(self.sum.allocs).into(), span_ns)
        };
        i64::try_from(per_s(more, ns)).unwrap_or(i64::MAX)
    }

    /// Growing rows come first, the fastest in front; then the rows with the greatest amounts, of equal ones the oldest.
    fn rank(&self) -> impl Ord + use<> {
        let growth = (self.trend() == Trend::Growing).then(|| self.kept_per_s());
        (growth, self.bytes, self.sum.allocs, self.oldest_ns)
    }
}

/// The amount per second, rounded to the nearest integer.
fn per_s(amount: i128, span_ns: u64) -> i128 {
    let span_ns = i128::from(span_ns.max(1));
    (amount * 2_000_000_000 + span_ns).div_euclid(2 * span_ns)
}

/// A hidden column with the amount of one age.
const fn age<const AGE: usize>() -> Column<OutstandingRow> {
    Column::<OutstandingRow>::counter("", "", |row| &mut row.sum.ages.0[AGE]).hidden()
}

/// A hidden column with the minimum of one part, from which visible columns are derived.
const fn least<const PART: usize>() -> Column<OutstandingRow> {
    Column::<OutstandingRow>::counter("", "", |row| &mut row.flow.least[PART]).hidden()
}

const COLUMNS: &[Column<OutstandingRow>] = &[
    Column::derived("trend", "trend", |row, _| match row.trend() {
        Trend::Growing => Value::Word("growing"),
        Trend::TooEarly => Value::Phrase { word: "too_early", text: "early" },
        Trend::Plateau => Value::Word("plateau"),
    }),
    Column::<OutstandingRow>::derived("bytes_per_s", "bytes/s", |row, _| {
        row.bytes.map_or(Value::None, |_| Value::Signed(row.kept_per_s()))
    })
    .if_any(),
    Column::<OutstandingRow>::derived("kept_per_s", "kept/s", |row, _| match row.bytes {
        None => Value::Signed(row.kept_per_s()),
        Some(_) => Value::None,
    })
    .if_any(),
    Column::<OutstandingRow>::known_counter("bytes", "bytes", |row| &mut row.bytes).in_unit(Unit::Bytes).if_any(),
    Column::counter("allocs", "allocs", |row| &mut row.sum.allocs),
    Column::<OutstandingRow>::derived("allocs_per_s", "alloc/s", |row, _| rate(row.flow.allocs, row.span)),
    Column::<OutstandingRow>::derived("frees_per_s", "free/s", |row, _| rate(row.flow.frees, row.span)),
    Column::<OutstandingRow>::derived("freed_pct", "freed%", |row, _| {
        Value::share(row.flow.all_frees, row.flow.all_allocs)
    }),
    Column::<OutstandingRow>::greatest("oldest_ns", "oldest", |row| &mut row.oldest_ns).in_unit(Unit::Age),
    Column::<OutstandingRow>::least("newest_ns", "newest", |row| &mut row.newest_ns).in_unit(Unit::Age).json_only(),
    Column::<OutstandingRow>::counter("exited", "exited", |row| &mut row.sum.exited).if_any(),
    Column::<OutstandingRow>::counter("unsure", "unsure", |row| &mut row.sum.unsure).if_any(),
    Column::<OutstandingRow>::derived("pid", "", |row, _| {
        let pid = row.owners.heaviest_task().and_then(|task| task.pid);
        pid.map_or(Value::None, |pid| Value::Signed(pid.into()))
    })
    .json_only(),
    Column::<OutstandingRow>::derived("process", "", |row, _| {
        let process = row.owners.heaviest_task().map(|task| task.process).filter(|process| !process.is_empty());
        process.map_or(Value::None, Value::Comm)
    })
    .json_only(),
    Column::<OutstandingRow>::derived("comm", "", |row, _| row.owners.heaviest().map_or(Value::None, Value::Comm))
        .json_only(),
    Column::<OutstandingRow>::names("comms", "", |row| &mut row.owners).json_only(),
    Column::<OutstandingRow>::derived("tasks", "comm", |row, _| Value::Text(row.owners.with_process().into()))
        .text_only(),
    Column::<OutstandingRow>::words("caches", "cache", |row| &mut row.flow.caches).if_any(),
    Column::<OutstandingRow>::counter("freed_unseen", "", |row| &mut row.sum.replaced).json_only(), // in text: a mark
    Column::<OutstandingRow>::counter("allocated", "", |row| &mut row.flow.all_allocs).json_only(),
    Column::<OutstandingRow>::counter("freed", "", |row| &mut row.flow.all_frees).json_only(),
    Column::<OutstandingRow>::counter("recent_allocs", "", |row| &mut row.flow.allocs).json_only(),
    Column::<OutstandingRow>::counter("recent_frees", "", |row| &mut row.flow.frees).json_only(),
    Column::<OutstandingRow>::derived("recent_ns", "", |row, _| Value::Ns(row.span.span_ns)).json_only(),
    Column::<OutstandingRow>::derived("least", "", |row, _| Value::cell(LeastAmounts(row.least().into()))).json_only(),
    Column::<OutstandingRow>::derived("least_ns", "", |row, _| Value::Ns(row.span.part_ns)).json_only(),
    Column::<OutstandingRow>::derived("ages", "age", |row, _| Value::cell(row.sum.ages)).below_row(),
    least::<0>(),
    least::<1>(),
    least::<2>(),
    least::<3>(),
    least::<4>(),
    least::<5>(),
    least::<6>(),
    least::<7>(),
    age::<0>(),
    age::<1>(),
    age::<2>(),
    age::<3>(),
    age::<4>(),
    age::<5>(),
    Column::stack(|row| &mut row.stack),
];

fn rate(count: u64, span: FlowSpan) -> Value {
    Value::Unsigned(u64::try_from(per_s(count.into(), span.span_ns)).unwrap_or(u64::MAX))
}

/// The minima of the parts by which a trend is judged.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LeastAmounts(Box<[u64]>);

impl Cell for LeastAmounts {
    fn json(&self, out: &mut Vec<u8>) {
        let amounts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        out.extend_from_slice(format!("[{}]", amounts.join(",")).as_bytes());
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

const _: () = assert!(AGES == 6, "a hidden column for each");

/// Rows by place.
pub static PLACES: Schema<OutstandingRow> = schema(COLUMNS);

/// Rows by owner, for events without a stack or call site.
pub static OWNERS: Schema<OutstandingRow> = schema(COLUMNS.split_at(COLUMNS.len() - 1).0);

const fn schema(columns: &'static [Column<OutstandingRow>]) -> Schema<OutstandingRow> {
    Schema::<OutstandingRow>::new("outstanding", columns)
        .explained(MEANINGS)
        .snapshot()
        .ordered(|one, other| other.rank().cmp(&one.rank()))
        .judged(|row| match row.sum {
            OutstandingSum { unsure: 1.., .. } => Verdict::Unsure,
            OutstandingSum { replaced: 1.., .. } => Verdict::Discarded,
            _ => Verdict::Exact,
        })
        .rests_on(Basis::RunByRow)
}

const MEANINGS: &[(&str, &str)] = &[
    ("trend", "`growing`, `plateau` or `too_early` to tell: whether what stays grows, by `least`"),
    (
        "bytes_per_s",
        "how many more bytes stay each second: by the later half of `least`, or if that has fewer than 8 parts by `bytes`",
    ),
    ("kept_per_s", "the same in allocations, where no event has a size"),
    ("bytes", "outstanding at this place; absent where no event has a size"),
    ("allocs", "how many allocations are"),
    ("allocs_per_s", "allocations at this place, per second of `recent_ns`"),
    ("frees_per_s", "frees of what was allocated there"),
    ("freed_pct", "`freed` of `allocated`"),
    ("oldest_ns", "age of the oldest; of what a process left at its end, the age then"),
    ("newest_ns", "age of the newest"),
    ("exited", "left by a process that has ended, or has executed another program"),
    ("unsure", "allocated before events were lost: they may have been freed unseen"),
    ("pid", "process with the most of it, as `comm`"),
    ("process", "name of that process"),
    ("comm", "who has most of it"),
    ("comms", "all who have some, those first that have most"),
    ("tasks", "in text the first of them with its process: `nginx 7`, `worker of java 8`, `sh ×3` of three processes"),
    ("caches", "caches of the kernel's that it is from, where the event tells"),
    ("freed_unseen", "freed without an event, found out when their addresses were given out again; a mark in text"),
    ("allocated", "all allocations at this place, of any age"),
    ("freed", "how many of them were freed, seen or not"),
    ("recent_allocs", "allocations in the last `recent_ns`"),
    ("recent_frees", "frees in that time"),
    (
        "recent_ns",
        "the time of the rates: since the start, or if there are 8 parts of `least`, since the first of them began",
    ),
    (
        "least",
        "the least bytes (allocations, without sizes) outstanding in each of the last parts of the run, 8 at most",
    ),
    ("least_ns", "length of such a part"),
    (
        "ages",
        "how old it is: `amount`, bytes (allocations, without sizes) of an age `below_ns` and not below that of the element before; ages without any are left out, the last one, of over an hour, has no `below_ns`",
    ),
    ("stack", "where they were allocated; absent for events that do not tell"),
];

/// The rows, in no order.
pub fn rows(
    sums: &OutstandingSums,
    kind: OutstandingTerms,
    task: impl Fn(u32) -> TaskOfRow,
    flow: impl Fn(FlowKey) -> PlaceFlow,
) -> Vec<OutstandingRow> {
    let OutstandingTerms { has_sizes, span } = kind;
    let mut rows: FxHashMap<FlowKey, OutstandingRow> = FxHashMap::default();
    for (&origin, &sum) in sums.iter() {
        let amount = [if has_sizes { sum.bytes } else { 0 }, sum.allocs];
        let owners = TaskNames::of(task(origin.owner), amount);
        match rows.entry(origin.flow_key()) {
            Entry::Occupied(known) => {
                let row = known.into_mut();
                row.sum.add(sum);
                row.owners.merge(&owners);
            }
            Entry::Vacant(place) => {
                let (bytes, oldest_ns, newest_ns) = Default::default();
                let (stack, flow) = (origin.stack, flow(origin.flow_key()));
                place.insert(OutstandingRow { stack, sum, bytes, oldest_ns, newest_ns, owners, flow, span });
            }
        }
    }
    let finish = |row: OutstandingRow| {
        let OutstandingSum { bytes, oldest_ns, newest_ns, .. } = row.sum;
        let bytes = has_sizes.then_some(bytes);
        OutstandingRow { bytes, oldest_ns: Some(oldest_ns), newest_ns: Some(newest_ns), ..row }
    };
    rows.into_values().map(finish).collect()
}

/// The span that the rates and trends of the rows are about.
pub fn span_line(span: FlowSpan) -> String {
    let FlowSpan { span_ns, part_ns, parts } = span;
    if parts < TREND_PARTS {
        let needed_ns = FIRST_PART_NS * TREND_PARTS as u64;
        return format!("per second: since the start; trend: too early to tell before {}", format_ns(needed_ns));
    }
    let [span, part] = [span_ns, part_ns].map(format_ns);
    format!("per second: of the last {span}; trend: of the least kept in each {part} of it")
}

/// How old all of it is. None: of one age.
pub fn age_line(sums: &OutstandingSums) -> Option<String> {
    let mut ages = AgeAmounts::default();
    sums.values().for_each(|sum| ages.add(sum.ages));
    Some(ages.shares()).filter(|shares| !shares.is_empty()).map(|shares| format!("age of all: {shares}"))
}

/// The sum of all outstanding allocations: their number, and bytes.
pub fn outstanding(sums: &OutstandingSums) -> (u64, u64) {
    sums.values().fold((0, 0), |(allocs, bytes), sum| (allocs + sum.allocs, bytes.saturating_add(sum.bytes)))
}

/// `44000 bytes in 500 allocs`
pub fn amount((allocs, bytes): (u64, u64), sizes: bool) -> String {
    let many = if allocs == 1 { "" } else { "s" };
    if sizes { format!("{bytes} bytes in {allocs} alloc{many}") } else { format!("{allocs} alloc{many}") }
}

/// The counts since the start, as lines of text.
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
    use crate::profilers::kmemleak::ledger::AllocOrigin;
    use crate::report::{Rows, TableSchema, TypedRows};
    use crate::task::Comm;

    #[test]
    fn sizes_that_nobody_knows_are_absent() {
        let sum = OutstandingSum { allocs: 2, oldest_ns: 9, newest_ns: 5, unsure: 1, ..OutstandingSum::default() };
        let mut sums = OutstandingSums::new(1);
        *sums.sum(AllocOrigin { stack: None, owner: 1 }) = sum;
        let task = |_| TaskOfRow { pid: Some(7), comm: Comm::new(b"a"), process: Comm::new(b"b") };
        let kind =
            OutstandingTerms { has_sizes: false, span: FlowSpan { span_ns: 1_000_000_000, part_ns: 1, parts: 0 } };
        let mut rows = TypedRows::new(&PLACES, rows(&sums, kind, task, |_| PlaceFlow::default()));
        let cells = rows.cells(0, 1);
        let cell = |key: &str| {
            let index = PLACES.head().columns.iter().position(|column| column.key == key).unwrap();
            cells[index].clone()
        };
        let found = ["bytes", "bytes_per_s", "kept_per_s", "allocs", "oldest_ns"].map(cell);
        assert_eq!(found, [Value::None, Value::None, Value::Signed(2), Value::Unsigned(2), Value::Age(9)]);
        let [a, b] = [b"a", b"b"].map(|name| Value::Comm(Comm::new(name)));
        assert_eq!(["pid", "comm", "process"].map(cell), [Value::Signed(7), a, b]);
        assert_eq!(cell("tasks"), Value::Text("a of b 7".into()));
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
