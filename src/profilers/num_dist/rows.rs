//! The table: numbers by event and key.

use std::cmp::{Ordering, Reverse};

use rustc_hash::FxHashMap;

use crate::report::{Column, ColumnName, MadeColumn, Schema, Value};
use crate::stats::{SignedDistribution, WorstCase};
use crate::symbol::StackId;

/// The numbers of one event and key.
#[derive(Clone, Debug)]
pub struct NumberRow {
    /// The index of the event on the command line.
    pub index: usize,
    pub event: Value,
    /// The key for JSON; `text_key`: the key for text, if JSON has a number.
    pub key: Value,
    pub text_key: Value,
    pub instance: Option<i32>,
    pub numbers: SignedDistribution,
    /// The case with the greatest number, in the form of [`greatness`].
    pub greatest: Option<WorstCase>,
    pub stack: Option<StackId>,
}

/// What distinguishes rows.
#[derive(Clone, Copy, Debug)]
pub struct RowForm<'a> {
    pub key: Option<KeyForm<'a>>,
    /// A row for each CPU, or for each thread.
    pub instance: Option<Instance>,
    pub stacks: bool,
}

/// Keys: numbers or texts, with their heading.
#[derive(Clone, Copy, Debug)]
pub enum KeyForm<'a> {
    Number(&'a str),
    Text(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    Cpu,
    Thread,
}

type NumberColumn = Column<NumberRow>;

const NUMBERS_OF: [NumberColumn; 15] = [
    Column::<NumberRow>::derived("count", "count", |row, _| Value::Unsigned(row.numbers.count())).additive(),
    Column::<NumberRow>::derived("total", "total", |row, _| number(row.numbers.sum())).additive(),
    Column::<NumberRow>::derived("min", "min", |row, _| known(row.numbers.min())),
    Column::<NumberRow>::derived("mean", "mean", |row, _| known(row.numbers.mean())),
    Column::<NumberRow>::derived("p50", "p50", |row, _| known(row.numbers.quantile(0.50))),
    Column::<NumberRow>::derived("p95", "p95", |row, _| known(row.numbers.quantile(0.95))),
    Column::<NumberRow>::derived("p99", "p99", |row, _| known(row.numbers.quantile(0.99))),
    Column::<NumberRow>::derived("max", "max", |row, _| known(row.numbers.max())),
    Column::<NumberRow>::derived("stddev", "stddev", |row, _| {
        row.numbers.variance().map_or(Value::None, |variance| Value::Unsigned(variance.sqrt().round() as u64))
    }),
    Column::<NumberRow>::derived("max_time_ns", "at", |row, _| case(row, |case| Value::Moment(case.at_ns))).json_only(),
    Column::<NumberRow>::derived("max_cpu", "on", |row, _| case(row, |case| Value::Unsigned(case.cpu.into())))
        .json_only(),
    Column::<NumberRow>::derived("max_tid", "tid", |row, _| case(row, |case| Value::Signed(case.tid.into())))
        .json_only(),
    Column::<NumberRow>::derived("max_comm", "comm", |row, _| case(row, |case| Value::Comm(case.comm))).json_only(),
    Column::<NumberRow>::distribution("number", |row| &mut row.numbers.above),
    Column::<NumberRow>::distribution("below_zero", |row| &mut row.numbers.below),
];

const EVENT: NumberColumn = Column::label("event", "event", |row: &NumberRow| row.event.clone());
const CPU: NumberColumn = Column::label("cpu", "CPU", |row: &NumberRow| instance(row));
const TID: NumberColumn = Column::label("tid", "tid", |row: &NumberRow| instance(row));
const KEY: NumberColumn = Column::label("key", "key", |row: &NumberRow| row.key.clone());
const STACK: NumberColumn = Column::stack(|row: &mut NumberRow| &mut row.stack);
const GREATEST: NumberColumn = Column::worst("greatest", |row: &mut NumberRow| &mut row.greatest);

/// The table in general, for the documentation.
pub static NUMBERS: Schema<NumberRow> = Schema::<NumberRow>::new(
    "numbers",
    &[
        CPU,
        TID,
        KEY,
        EVENT,
        NUMBERS_OF[0],
        NUMBERS_OF[1],
        NUMBERS_OF[2],
        NUMBERS_OF[3],
        NUMBERS_OF[4],
        NUMBERS_OF[5],
        NUMBERS_OF[6],
        NUMBERS_OF[7],
        NUMBERS_OF[8],
        NUMBERS_OF[9],
        NUMBERS_OF[10],
        NUMBERS_OF[11],
        NUMBERS_OF[12],
        NUMBERS_OF[13],
        NUMBERS_OF[14],
        GREATEST,
        STACK,
    ],
)
.explained(&[
    ("cpu", "with `--perins`: the CPU of the event"),
    ("tid", "with `--perins` and a target: the thread of the event"),
    ("key", "value of `key=` or `--by`; text has the expression as its heading"),
    ("event", "the alias, or the name of the event"),
    ("count", "how many numbers"),
    ("total", "their sum"),
    ("min", "the least"),
    ("mean", "the average, rounded towards 0"),
    ("p50", "half of them are no greater; off by 2.2 % at most, as all percentiles"),
    ("p95", "95 of 100"),
    ("p99", "99 of 100"),
    ("max", "the greatest"),
    ("stddev", "the standard deviation: the root of the variance"),
    ("max_time_ns", "when the greatest was"),
    ("max_cpu", "on which CPU"),
    ("max_tid", "in which thread"),
    ("max_comm", "and its name"),
    ("number", "all numbers from 0 up"),
    ("below_zero", "all numbers below 0, without the sign"),
    ("stack", "with `-g` and without `--than`"),
])
.ordered(worst_first);

/// The schema of a table for one run.
pub fn schema(form: RowForm<'_>) -> Schema<NumberRow> {
    let mut columns: Vec<MadeColumn<NumberRow>> = Vec::new();
    columns.extend(form.instance.map(|instance| if instance == Instance::Cpu { CPU.into() } else { TID.into() }));
    if let Some(KeyForm::Number(heading)) = form.key {
        // The row of the others shows a word in text, and no key in JSON.
        columns.push(ColumnName::new("", heading).label(|row: &NumberRow| row.text_key.clone()).text_only());
        columns.push(KEY.json_only().into());
    }
    columns.push(EVENT.into());
    columns.extend(NUMBERS_OF.map(MadeColumn::from));
    columns.push(GREATEST.into());
    if let Some(KeyForm::Text(heading)) = form.key {
        // The key is the last column, since it may be long.
        columns.push(ColumnName::new("key", heading).label(|row: &NumberRow| row.key.clone()));
    }
    columns.extend(form.stacks.then(|| STACK.into()));
    Schema::made("numbers", columns).explained(NUMBERS.meanings).ordered(worst_first)
}

/// The greatest sum first, within each event.
fn worst_first(one: &NumberRow, other: &NumberRow) -> Ordering {
    let by = |row: &NumberRow| (row.index, Reverse(row.numbers.sum()), Reverse(row.numbers.count()));
    by(one).cmp(&by(other)).then_with(|| one.instance.cmp(&other.instance))
}

/// Maps a number to an unsigned one in the same order, up to 2^63 - 1; all greater numbers are equal.
pub fn greatness(number: i128) -> u64 {
    let number = i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX });
    (number as u64) ^ (1 << 63)
}

/// Merges rows with equal names and stacks.
pub fn merged(rows: Vec<NumberRow>) -> Vec<NumberRow> {
    let mut places: FxHashMap<(usize, Value, Option<i32>, Option<StackId>), usize> = FxHashMap::default();
    let mut merged: Vec<NumberRow> = Vec::with_capacity(rows.len());
    for row in rows {
        let place = *places.entry((row.index, row.text_key.clone(), row.instance, row.stack)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => {
                known.numbers.merge(&row.numbers);
                known.greatest = WorstCase::worse(known.greatest, row.greatest);
            }
            None => merged.push(row),
        }
    }
    merged
}

fn number(number: i128) -> Value {
    match (u64::try_from(number), i64::try_from(number)) {
        (Ok(number), _) => Value::Unsigned(number),
        (_, Ok(number)) => Value::Signed(number),
        _ if number < 0 => Value::Signed(i64::MIN),
        _ => Value::Unsigned(u64::MAX),
    }
}

fn known(of: Option<i128>) -> Value {
    of.map_or(Value::None, number)
}

fn case(row: &NumberRow, value: fn(&WorstCase) -> Value) -> Value {
    row.greatest.as_ref().map_or(Value::None, value)
}

fn instance(row: &NumberRow) -> Value {
    row.instance.map_or(Value::None, |instance| Value::Signed(instance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TypedRows};
    use crate::task::Comm;

    fn row(at: usize, key: i64, numbers: &[i64]) -> NumberRow {
        let mut of = SignedDistribution::default();
        numbers.iter().for_each(|number| of.record(*number));
        let key = Value::Signed(key);
        let ns = greatness(of.max().unwrap_or(0));
        let greatest = Some(WorstCase { ns, at_ns: 7, cpu: 1, tid: 2, comm: Comm::new(b"a"), stack: None });
        let event = Value::Word("e");
        NumberRow { index: at, event, text_key: key.clone(), key, instance: None, numbers: of, greatest, stack: None }
    }

    #[test]
    fn the_order_of_numbers_is_that_of_their_greatness() {
        let numbers = [i128::MIN, -(1 << 63), -2, -1, 0, 1, 4, 5, (1 << 63) - 1, 1 << 63];
        let greatness = numbers.map(greatness);
        assert!(greatness[1..9].is_sorted_by(|one, other| one < other), "{greatness:?}");
        assert!(greatness[0] == greatness[1] && greatness[8] == greatness[9]);
    }

    #[test]
    fn rows_are_ordered_by_their_sums_within_each_event() {
        let form = RowForm { key: Some(KeyForm::Number("fd")), instance: None, stacks: false };
        let rows = vec![row(1, 10, &[9]), row(0, 11, &[-8, 5]), row(0, 12, &[2, 1])];
        let mut rows = TypedRows::new(&schema(form), rows);
        let order = rows.order();
        assert_eq!(order, [2, 1, 0]);
        let cells = rows.cells(order[1], 1);
        let want = [2_u64, 0, 0, 0, 0, 0, 0, 5, 7].map(Value::Unsigned);
        assert_eq!([&cells[3], &cells[10], &cells[11]], [&want[0], &want[7], &want[8]]);
        assert_eq!([&cells[4], &cells[5], &cells[6]], [&Value::Signed(-3), &Value::Signed(-8), &Value::Signed(-1)]);
        assert_eq!([&cells[12], &cells[15]], [&Value::Moment(7), &Value::Comm(Comm::new(b"a"))]);
    }

    #[test]
    fn rows_that_look_alike_are_one() {
        let rows = merged(vec![row(0, 1, &[1, -4]), row(1, 1, &[9]), row(0, 1, &[3])]);
        let sums: Vec<(u64, i128, Option<u64>)> =
            rows.iter().map(|row| (row.numbers.count(), row.numbers.sum(), row.greatest.map(|case| case.ns))).collect();
        assert_eq!(sums, [(3, 0, Some(greatness(3))), (1, 9, Some(greatness(9)))]);
    }
}
