//! The columns of a run's table: they depend on the events and their expressions, and are made once, at the start of
//! the run.

use std::cmp::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::{Column, ColumnName, MadeColumn, OVERHEAD_BYTES, Schema, Value};
use crate::symbol::StackId;

/// A row: the sums of a key.
#[derive(Clone, Debug)]
pub struct AmountRow {
    /// The key for JSON; `text_key`: the key for text, if JSON has a number.
    pub key: Value,
    pub text_key: Value,
    pub name: Value,
    pub stack: Option<StackId>,
    /// The sums; those by which the rows are ordered come first.
    pub amounts: Box<[i64]>,
    /// The sum of the first amounts of all rows, if none is negative.
    pub whole: Option<u64>,
    /// The same sum of the rows with this key and name, which differ in their stacks.
    pub of_key: Option<u64>,
}

/// The kind of the rows' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind<'a> {
    /// Threads, with their names.
    Threads,
    /// The events of patterns.
    Events,
    /// Keys, as numbers or as text; the heading.
    Numbers(&'a str),
    Texts(&'a str),
    /// Only names; the heading.
    Names(&'a str),
}

/// A column of values, in the order of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueColumn {
    pub heading: String,
    /// The rows are ordered by this column, so it stands before the others.
    pub leads: bool,
}

/// The parts of a table besides its value columns.
#[derive(Clone, Copy, Debug)]
pub struct TableForm<'a> {
    pub rows: RowKind<'a>,
    /// The heading of a name beside each key.
    pub name: Option<&'a str>,
    /// Amounts are shown per second.
    pub rates: bool,
    pub stacks: bool,
}

/// For each column its index among the amounts of a row.
pub fn places(values: &[ValueColumn]) -> Vec<usize> {
    let leaders = values.iter().filter(|value| value.leads).count();
    let (mut leading, mut following) = (0..leaders, leaders..values.len());
    values.iter().filter_map(|value| if value.leads { leading.next() } else { following.next() }).collect()
}

/// The schema of a table for one run.
pub fn schema(form: TableForm<'_>, values: &[ValueColumn]) -> Schema<AmountRow> {
    let mut columns: Vec<MadeColumn<AmountRow>> = Vec::new();
    match form.rows {
        RowKind::Threads => columns.extend(numbers("tid", "tid")),
        RowKind::Numbers(heading) => columns.extend(numbers("key", heading)),
        RowKind::Events | RowKind::Texts(_) | RowKind::Names(_) => {}
    }
    let mut used: FxHashSet<String> = RESERVED.iter().map(|key| (*key).to_owned()).collect();
    for (ValueColumn { heading, .. }, index) in values.iter().zip(places(values)) {
        let key = json_key(heading, &mut used);
        if form.rates {
            let name = ColumnName::new(format!("{key}_per_s"), format!("{heading}/s"));
            columns.push(name.derived(move |row, span_ns| rate(row, index, span_ns)).additive());
        }
        let amount = ColumnName::new(key, heading).signed_counter(move |row: &mut AmountRow| &mut row.amounts[index]);
        columns.push(if form.rates { amount.json_only() } else { amount });
    }
    columns.push(PCT.into());
    columns.extend(form.stacks.then(|| KEY_PCT.into()));
    // Texts come last: they may be long.
    match form.rows {
        RowKind::Threads | RowKind::Numbers(_) => {}
        RowKind::Texts(heading) => columns.push(ColumnName::new("key", heading).label(key)),
        RowKind::Events => columns.push(ColumnName::new("event", "event").label(key)),
        RowKind::Names(heading) => columns.push(ColumnName::new("comm", heading).label(key)),
    }
    columns.extend(form.name.map(|heading| ColumnName::new("comm", heading).label(|row: &AmountRow| row.name.clone())));
    columns.extend(form.stacks.then(|| STACK.into()));
    Schema::made("keys", columns)
        .ordered(worst_first)
        .settled(find_whole)
        .with_heap(|row| size_of_val(&row.amounts[..]) + OVERHEAD_BYTES)
}

/// The table in general, for the documentation.
pub static KEYS: Schema<AmountRow> = Schema::<AmountRow>::new(
    "keys",
    &[
        Column::label("key", "its expression", key),
        Column::label("tid", "tid", key),
        Column::label("event", "event", key),
        Column::signed_counter("VALUE", "alias, expression or event", |row| &mut row.amounts[0]),
        Column::derived("VALUE_per_s", "VALUE/s", |row, span_ns| rate(row, 0, span_ns)),
        PCT,
        KEY_PCT,
        Column::label("comm", "comm", |row| row.name.clone()),
        STACK,
    ],
)
.explained(&[
    ("key", "value of `key=` or `-k`: a number, or text where it is text, or `printkey=` or the event shows it so"),
    ("tid", "without a key: the thread that the event happened in"),
    ("event", "of a pattern of events without a key: the event"),
    ("VALUE", "one for each `top-by`, `top-add`, or for an event without both, which counts; the key is the heading, with `_` for all but letters and digits"),
    ("VALUE_per_s", "the same by the second, with `--rate`"),
    ("pct", "share of the row in the first column that the rows are ordered by; absent where something was less than 0"),
    ("key_pct", "with stacks: the share of all rows with this key and name, each of which has a stack of its own"),
    ("comm", "name of the thread, or what `comm=` gave last"),
    ("stack", "of the events that have one: `-g`, or the attribute `stack`"),
])
.ordered(worst_first)
.settled(find_whole);

const PCT: Column<AmountRow> = Column::derived("pct", "%", |row: &AmountRow, _| share(row)).additive();
const KEY_PCT: Column<AmountRow> =
    Column::derived("key_pct", "key %", |row: &AmountRow, _| part_of(row.of_key, row.whole));
const STACK: Column<AmountRow> = Column::stack(|row: &mut AmountRow| &mut row.stack);

/// JSON keys that every row has already.
const RESERVED: [&str; 18] = [
    "type", "view", "profiler", "time_ns", "wall", "table", "interval", "snapshot", "verdict", "key", "tid", "event",
    "pct", "key_pct", "comm", "stack", "others", "cpu",
];

/// Two columns with the key: as a number for JSON, and as text.
fn numbers(json_key: &str, heading: &str) -> [MadeColumn<AmountRow>; 2] {
    let shown = ColumnName::new("", heading).label(|row: &AmountRow| row.text_key.clone()).text_only();
    [shown, ColumnName::new(json_key, heading).label(key).json_only()]
}

/// The heading as a JSON key that no other column has.
fn json_key(heading: &str, used: &mut FxHashSet<String>) -> String {
    let mut key = String::new();
    for word in heading.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        key.extend((!key.is_empty()).then_some('_'));
        key.push_str(&word.to_ascii_lowercase());
    }
    let key = if key.is_empty() { "value".to_owned() } else { key };
    let numbered = (2..).map(|number| format!("{key}_{number}"));
    let free = std::iter::once(key.clone()).chain(numbered).find(|key| !used.contains(key)).unwrap_or(key);
    used.insert(free.clone());
    free
}

/// Descending by the amounts, leading columns first; equal rows ascending by the key.
fn worst_first(one: &AmountRow, other: &AmountRow) -> Ordering {
    let by_key = || match (&one.key, &other.key) {
        (Value::Signed(one), Value::Signed(other)) => one.cmp(other),
        (Value::Unsigned(one), Value::Unsigned(other)) => one.cmp(other),
        (Value::Path(one), Value::Path(other)) => one.cmp(other),
        (Value::Text(one), Value::Text(other)) => one.cmp(other),
        (Value::Word(one), Value::Word(other)) => one.cmp(other),
        _ => Ordering::Equal,
    };
    other.amounts.cmp(&one.amounts).then_with(by_key)
}

/// Computes the whole of which rows show their shares, and the sums of keys with several stacks.
fn find_whole(rows: &mut [AmountRow]) {
    let first = |row: &AmountRow| u64::try_from(row.amounts[0]).ok();
    let whole = rows.iter().try_fold(0_u64, |sum, row| first(row).map(|amount| sum.saturating_add(amount)));
    rows.iter_mut().for_each(|row| row.whole = whole);
    if rows.iter().any(|row| row.stack.is_some()) {
        let mut of_keys: FxHashMap<(Value, Value), Option<u64>> = FxHashMap::default();
        for row in rows.iter() {
            let sum = of_keys.entry((row.text_key.clone(), row.name.clone())).or_insert(Some(0));
            *sum = sum.zip(first(row)).map(|(sum, amount)| sum.saturating_add(amount));
        }
        for row in rows {
            row.of_key = of_keys.get(&(row.text_key.clone(), row.name.clone())).copied().flatten();
        }
    }
}

/// The share of the first amount.
fn share(row: &AmountRow) -> Value {
    part_of(u64::try_from(row.amounts[0]).ok(), row.whole)
}

fn part_of(amount: Option<u64>, whole: Option<u64>) -> Value {
    let (Some(amount), Some(whole)) = (amount, whole) else { return Value::None };
    if amount > whole { Value::None } else { Value::share(amount, whole) }
}

/// Merges rows with equal names and stacks.
pub fn merged(rows: Vec<AmountRow>) -> Vec<AmountRow> {
    let mut places: FxHashMap<(Value, Value, Option<StackId>), usize> = FxHashMap::default();
    let mut merged: Vec<AmountRow> = Vec::with_capacity(rows.len());
    for row in rows {
        let place = *places.entry((row.text_key.clone(), row.name.clone(), row.stack)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => add(&mut known.amounts, &row.amounts),
            None => merged.push(row),
        }
    }
    merged
}

fn add(amounts: &mut [i64], others: &[i64]) {
    amounts.iter_mut().zip(others).for_each(|(amount, other)| *amount = amount.saturating_add(*other));
}

fn key(row: &AmountRow) -> Value {
    row.key.clone()
}

fn rate(row: &AmountRow, index: usize, span_ns: u64) -> Value {
    let per_second = i128::from(row.amounts[index]) * 1_000_000_000 / i128::from(span_ns.max(1));
    Value::Signed(i64::try_from(per_second).unwrap_or(if per_second < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TableSchema, TypedRows};

    fn value(heading: &str, leads: bool) -> ValueColumn {
        ValueColumn { heading: heading.to_owned(), leads }
    }

    fn row(key: i64, first: &[i64]) -> AmountRow {
        let mut amounts: Box<[i64]> = [0; 4].into();
        amounts[..first.len()].copy_from_slice(first);
        let key = Value::Signed(key);
        AmountRow { text_key: key.clone(), key, name: Value::None, stack: None, amounts, whole: None, of_key: None }
    }

    const PLAIN: TableForm<'static> =
        TableForm { rows: RowKind::Numbers("pid"), name: None, rates: false, stacks: false };

    #[test]
    fn columns_that_lead_come_first_in_the_order_of_rows_alone() {
        let values = [value("switch", false), value("4096<<order", true), value("Switch", false), value("key", true)];
        assert_eq!(places(&values), [2, 0, 3, 1]);
        let schema = schema(PLAIN, &values);
        let columns = schema.head().columns;
        let keys: Vec<(&str, &str)> = columns.iter().map(|column| (&*column.key, &*column.heading)).collect();
        let want = [
            ("", "pid"),
            ("key", "pid"),
            ("switch", "switch"),
            ("4096_order", "4096<<order"),
            ("switch_2", "Switch"),
            ("key_2", "key"),
            ("pct", "%"),
        ];
        assert_eq!(keys, want);
        let mut rows =
            TypedRows::new(&schema, vec![row(1, &[10, 5]), row(2, &[30, 0, 7]), row(4, &[10, 5]), row(3, &[10, 6])]);
        let order = rows.order();
        let cells: Vec<Vec<Value>> = order.iter().map(|at| rows.cells(*at, 1)[1..].to_vec()).collect();
        let number = Value::Signed;
        assert_eq!(cells[0], [number(2), number(7), number(30), number(0), number(0), Value::Pct(5000)]);
        assert_eq!([&cells[1][0], &cells[2][0], &cells[3][0]], [&number(3), &number(1), &number(4)]);
    }

    #[test]
    fn shares_need_amounts_that_are_none_below_zero() {
        let shares = |amounts: &[i64]| {
            let mut rows: Vec<AmountRow> = amounts.iter().map(|amount| row(1, &[*amount])).collect();
            find_whole(&mut rows);
            rows.iter().map(share).collect::<Vec<_>>()
        };
        assert_eq!(shares(&[-1, 3]), [Value::None, Value::None]);
        assert_eq!(shares(&[i64::MAX, i64::MAX]), [Value::Pct(5000), Value::Pct(5000)]);
        assert_eq!(shares(&[0]), [Value::None]);
    }

    /// Text has the sum of the rows that it leaves out.
    #[test]
    fn shares_of_rows_that_are_added_up_are_added_up() {
        let mut rows =
            TypedRows::new(&schema(PLAIN, &[value("n", false)]), (0..10_000).map(|key| row(key, &[1])).collect());
        for at in 1..5000 {
            let mut others = TypedRows::new(&schema(PLAIN, &[value("n", false)]), vec![row(at, &[1])]);
            rows.add(0, &mut others, 0);
        }
        assert_eq!(rows.cells(0, 1)[2..], [Value::Signed(5000), Value::Pct(5000)]);
    }

    /// Each column knows its own amount, however many there are.
    #[test]
    fn a_table_may_have_many_columns() {
        let values: Vec<ValueColumn> = (0..20).map(|number| value(&format!("n{number}"), number == 19)).collect();
        let amounts: Box<[i64]> = (100..120).collect();
        let rows = vec![AmountRow { amounts: amounts.clone(), ..row(1, &[]) }, AmountRow { amounts, ..row(2, &[]) }];
        let mut rows = TypedRows::new(&schema(PLAIN, &values), rows);
        let mut later = rows.none();
        later.push(&rows, 1);
        rows.add(0, &mut *later, 0);
        let want: Vec<Value> = (101..120).chain([100]).map(|amount| Value::Signed(2 * amount)).collect();
        assert_eq!(rows.cells(0, 1)[2..22], want[..], "the one that leads has the first amount");
        assert_eq!(rows.columns()[21].key, "n19");
        assert!(rows.bytes() >= 2 * 20 * size_of::<i64>());
    }

    #[test]
    fn rates_are_by_the_second() {
        let schema = schema(TableForm { rates: true, ..PLAIN }, &[value("n", false)]);
        let cells = TypedRows::new(&schema, vec![row(1, &[-30])]).cells(0, 2_000_000_000);
        assert_eq!(cells[2..4], [Value::Signed(-15), Value::Signed(-30)]);
        assert_eq!(schema.head().columns[2].key, "n_per_s");
    }

    #[test]
    fn rows_that_look_alike_are_one() {
        let rows = merged(vec![row(1, &[10]), row(2, &[1]), row(1, &[-3, 4])]);
        assert_eq!(rows.iter().map(|row| row.amounts[..2].to_vec()).collect::<Vec<_>>(), [[7, 4], [1, 0]]);
    }
}
