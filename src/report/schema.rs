//! The schema of a table: its columns, each with a key, a heading, a unit and a kind. The kind says how the cells of
//! two intervals become one, so that no profiler adds up rows itself.

use std::cmp::Ordering;

use crate::report::{TaskNames, Value, Verdict};
use crate::stats::{Distribution, WorstCase};
use crate::symbol::StackId;

/// What the rows of one table have in common. `R` is the profiler's type of a row.
#[derive(Debug)]
pub struct Schema<R: 'static> {
    /// The name of the table in JSON.
    pub table: &'static str,
    /// The title in text, where a report has several tables.
    pub title: &'static str,
    pub columns: &'static [Column<R>],
    /// The meanings of the columns, by their keys, for the documentation and for metrics. A column that is not shown is among
    /// the metrics if it has one.
    pub meanings: &'static [(&'static str, &'static str)],
    /// The order of the rows. None: that in which they were handed over.
    pub order: Option<fn(&R, &R) -> Ordering>,
    /// Computes the fields of rows that depend on all of them. Called again when rows were added.
    pub settle: fn(&mut [R]),
    /// The verdict that follows from a row itself.
    pub verdict: fn(&R) -> Verdict,
    pub rests_on: Basis,
    /// The rows are about the present, and replace those of the interval before.
    pub is_snapshot: bool,
}

/// What a table rests on, which decides what a loss means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The records of its interval.
    Interval,
    /// The records of the whole run, each with a stack.
    Run,
    /// As `Run`, and each row knows which of its pairs were discarded: those of other rows do not concern it.
    RunByRow,
    /// Counters of the kernel, which are right even if records are lost.
    Counters,
}

impl<R> Schema<R> {
    /// A table that rests on the records of an interval.
    pub const fn new(table: &'static str, columns: &'static [Column<R>]) -> Schema<R> {
        let (order, settle) = (None, no_settling as fn(&mut [R]));
        let (title, meanings) = ("", &[] as &[_]);
        let (verdict, rests_on): (fn(&R) -> Verdict, Basis) = (|_| Verdict::Exact, Basis::Interval);
        Schema { table, title, columns, meanings, order, settle, verdict, rests_on, is_snapshot: false }
    }

    /// The meaning of each key, in a few words, for `docs/json.md`.
    #[must_use]
    pub const fn explained(mut self, meanings: &'static [(&'static str, &'static str)]) -> Schema<R> {
        self.meanings = meanings;
        self
    }

    #[must_use]
    pub const fn titled(mut self, title: &'static str) -> Schema<R> {
        self.title = title;
        self
    }

    /// The order of the rows, for every reader.
    #[must_use]
    pub const fn ordered(mut self, order: fn(&R, &R) -> Ordering) -> Schema<R> {
        self.order = Some(order);
        self
    }

    #[must_use]
    pub const fn settled(mut self, settle: fn(&mut [R])) -> Schema<R> {
        self.settle = settle;
        self
    }

    /// Makes it the schema of a table for [`crate::report::Report::snapshot`].
    #[must_use]
    pub const fn snapshot(mut self) -> Schema<R> {
        self.is_snapshot = true;
        self
    }

    #[must_use]
    pub const fn judged(mut self, verdict: fn(&R) -> Verdict) -> Schema<R> {
        self.verdict = verdict;
        self
    }

    #[must_use]
    pub const fn rests_on(mut self, basis: Basis) -> Schema<R> {
        self.rests_on = basis;
        self
    }
}

fn no_settling<R>(_: &mut [R]) {}

/// What the numbers of a column count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Number of objects, samples or events.
    Count,
    Bytes,
    Hz,
    /// A duration in ns, in text in ms.
    Ns,
    /// A duration in ns, in text in us.
    Us,
    /// A duration in ns, in text in its shortest form.
    Age,
}

impl Unit {
    /// The cell for a number in this unit.
    pub fn value(self, number: u64) -> Value {
        match self {
            Unit::Count | Unit::Bytes | Unit::Hz => Value::Unsigned(number),
            Unit::Ns => Value::Ns(number),
            Unit::Us => Value::Us(number),
            Unit::Age => Value::Age(number),
        }
    }
}

/// In which outputs a column is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    Everywhere,
    /// In JSON, and in text if a row has something else than 0 in it.
    IfAny,
    Text,
    Json,
    /// In none: derived columns are made of it.
    Nowhere,
}

/// One column of a table whose rows are `R`.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// The key in JSON, unique in its schema.
    pub key: &'static str,
    /// The heading in text.
    pub heading: &'static str,
    pub unit: Unit,
    /// See [`Column::additive`].
    is_additive: bool,
    visibility: Visibility,
    pub(super) cell: Cell<R>,
}

/// The kind of a column, and where its value is in a row.
#[derive(Debug)]
pub(super) enum Cell<R: 'static> {
    /// A part of the name of the row.
    Label(fn(&R) -> Value),
    /// A number that adds up. It may be unknown in a `KnownCounter`.
    Counter(fn(&mut R) -> &mut u64),
    KnownCounter(fn(&mut R) -> &mut Option<u64>),
    /// A sum that may be less than 0.
    SignedCounter(fn(&mut R) -> &mut i64),
    /// A number about the present: the newest counts.
    Gauge(fn(&mut R) -> &mut Option<u64>),
    Greatest(fn(&mut R) -> &mut Option<u64>),
    Least(fn(&mut R) -> &mut Option<u64>),
    Distribution(fn(&mut R) -> &mut Distribution),
    /// The greatest of the durations that a distribution counts.
    Worst(fn(&mut R) -> &mut Option<WorstCase>),
    Names(fn(&mut R) -> &mut TaskNames),
    /// A stack, whose frames are part of the name of the row.
    Stack(fn(&mut R) -> &mut Option<StackId>),
    /// As `Stack`, with the innermost function as a cell.
    Place(fn(&mut R) -> &mut Option<StackId>),
    /// A value that follows from other columns, and from the time that the table covers in ns.
    Derived(fn(&R, u64) -> Value),
}

// By hand, since a derived impl would ask for `R` to be `Copy`.
impl<R> Clone for Cell<R> {
    fn clone(&self) -> Cell<R> {
        *self
    }
}

impl<R> Copy for Cell<R> {}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Column<R> {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> Column<R> {
    const fn new(key: &'static str, heading: &'static str, cell: Cell<R>) -> Column<R> {
        Column { key, heading, unit: Unit::Count, is_additive: false, visibility: Visibility::Everywhere, cell }
    }

    /// A part of the name of the row.
    pub const fn label(key: &'static str, heading: &'static str, value: fn(&R) -> Value) -> Column<R> {
        Column::new(key, heading, Cell::Label(value))
    }

    /// A number that adds up.
    pub const fn counter(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut u64) -> Column<R> {
        Column::new(key, heading, Cell::Counter(field))
    }

    /// A number that adds up where it is known.
    pub const fn known_counter(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<u64>,
    ) -> Column<R> {
        Column::new(key, heading, Cell::KnownCounter(field))
    }

    /// A number that adds up, of summands that may be less than 0.
    pub const fn signed_counter(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut i64) -> Column<R> {
        Column::new(key, heading, Cell::SignedCounter(field))
    }

    /// A number about the present: of two, the newer one counts.
    pub const fn gauge(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut Option<u64>) -> Column<R> {
        Column::new(key, heading, Cell::Gauge(field))
    }

    pub const fn greatest(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<u64>,
    ) -> Column<R> {
        Column::new(key, heading, Cell::Greatest(field))
    }

    pub const fn least(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut Option<u64>) -> Column<R> {
        Column::new(key, heading, Cell::Least(field))
    }

    /// Values that were counted into buckets. It is not shown itself: derived columns follow from it.
    pub const fn distribution(key: &'static str, field: fn(&mut R) -> &mut Distribution) -> Column<R> {
        Column { visibility: Visibility::Nowhere, ..Column::new(key, "", Cell::Distribution(field)) }
    }

    /// The greatest duration of the row, with its time and task. It is not shown itself: derived columns follow from it.
    pub const fn worst(key: &'static str, field: fn(&mut R) -> &mut Option<WorstCase>) -> Column<R> {
        Column { visibility: Visibility::Nowhere, ..Column::new(key, "", Cell::Worst(field)) }
    }

    /// The tasks behind the row, those with the greatest amounts first.
    pub const fn names(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut TaskNames) -> Column<R> {
        Column::new(key, heading, Cell::Names(field))
    }

    /// The stack of the row: rows with equal labels and frames are one row.
    pub const fn stack(field: fn(&mut R) -> &mut Option<StackId>) -> Column<R> {
        Column::new("stack", "", Cell::Stack(field))
    }

    /// As [`Column::stack`], with the innermost function as the cell. Text has the whole stack where it has more than
    /// one frame.
    pub const fn place(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<StackId>,
    ) -> Column<R> {
        Column::new(key, heading, Cell::Place(field))
    }

    /// A value that follows from other columns, and from the time that the table covers in ns: a share, rate or
    /// percentile.
    pub const fn derived(key: &'static str, heading: &'static str, value: fn(&R, u64) -> Value) -> Column<R> {
        Column::new(key, heading, Cell::Derived(value))
    }

    #[must_use]
    pub const fn in_unit(mut self, unit: Unit) -> Column<R> {
        self.unit = unit;
        self
    }

    /// A duration, in text in ms.
    #[must_use]
    pub const fn ns(self) -> Column<R> {
        self.in_unit(Unit::Ns)
    }

    /// A duration, in text in us.
    #[must_use]
    pub const fn us(self) -> Column<R> {
        self.in_unit(Unit::Us)
    }

    /// The cells of several rows may be added, as counters and shares of one whole are: text has their sum for the rows
    /// that it leaves out.
    #[must_use]
    pub const fn additive(mut self) -> Column<R> {
        self.is_additive = true;
        self
    }

    /// In text only where a row has something else than 0 there.
    #[must_use]
    pub const fn if_any(mut self) -> Column<R> {
        self.visibility = Visibility::IfAny;
        self
    }

    #[must_use]
    pub const fn text_only(mut self) -> Column<R> {
        self.visibility = Visibility::Text;
        self
    }

    #[must_use]
    pub const fn json_only(mut self) -> Column<R> {
        self.visibility = Visibility::Json;
        self
    }

    /// Shows the column neither in text nor in JSON: derived columns are made of it.
    #[must_use]
    pub const fn hidden(mut self) -> Column<R> {
        self.visibility = Visibility::Nowhere;
        self
    }
}

/// A column without the type of its rows, for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnHead {
    pub key: &'static str,
    pub heading: &'static str,
    pub kind: ColumnKind,
    pub unit: Unit,
    /// The cells of several rows may be added.
    pub is_additive: bool,
    pub in_text: bool,
    /// In text only if a row has something else than 0 in it.
    pub if_any: bool,
    pub in_json: bool,
}

impl ColumnHead {
    /// A column that is only shown, never added up.
    pub const fn plain(heading: &'static str) -> ColumnHead {
        let (kind, unit) = (ColumnKind::Label, Unit::Count);
        ColumnHead {
            key: heading,
            heading,
            kind,
            unit,
            is_additive: false,
            in_text: true,
            if_any: false,
            in_json: true,
        }
    }
}

/// A schema without the type of its rows, for readers.
#[derive(Clone, Debug)]
pub struct TableHead {
    pub table: &'static str,
    pub columns: Vec<ColumnHead>,
    /// The meanings of the columns, by their keys.
    pub meanings: &'static [(&'static str, &'static str)],
    pub is_snapshot: bool,
}

/// A schema of rows of any type.
pub trait TableSchema: Sync {
    fn head(&self) -> TableHead;
}

impl<R> TableSchema for Schema<R> {
    fn head(&self) -> TableHead {
        let columns = self.columns.iter().map(Column::head).collect();
        TableHead { table: self.table, columns, meanings: self.meanings, is_snapshot: self.is_snapshot }
    }
}

/// How two cells of a column become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Label,
    Counter,
    Gauge,
    Greatest,
    Least,
    Distribution,
    Names,
    Stack,
    /// A stack of which one function is shown.
    Place,
    Derived,
}

impl<R> Column<R> {
    pub fn head(&self) -> ColumnHead {
        let Column { key, heading, unit, .. } = *self;
        let kind = match self.cell {
            Cell::Label(_) => ColumnKind::Label,
            Cell::Counter(_) | Cell::KnownCounter(_) | Cell::SignedCounter(_) => ColumnKind::Counter,
            Cell::Gauge(_) => ColumnKind::Gauge,
            Cell::Greatest(_) => ColumnKind::Greatest,
            Cell::Least(_) => ColumnKind::Least,
            Cell::Distribution(_) => ColumnKind::Distribution,
            Cell::Names(_) => ColumnKind::Names,
            Cell::Stack(_) => ColumnKind::Stack,
            Cell::Place(_) => ColumnKind::Place,
            Cell::Worst(_) | Cell::Derived(_) => ColumnKind::Derived,
        };
        ColumnHead {
            key,
            heading,
            kind,
            unit,
            is_additive: self.is_additive || kind == ColumnKind::Counter,
            in_text: matches!(self.visibility, Visibility::Everywhere | Visibility::IfAny | Visibility::Text),
            if_any: self.visibility == Visibility::IfAny,
            in_json: matches!(self.visibility, Visibility::Everywhere | Visibility::IfAny | Visibility::Json),
        }
    }

    /// The cell of a row in a table that covers `span_ns`.
    pub(super) fn value(&self, row: &mut R, span_ns: u64) -> Value {
        let known = |number: Option<u64>| number.map_or(Value::None, |number| self.unit.value(number));
        match self.cell {
            Cell::Label(value) => value(row),
            Cell::Counter(field) => self.unit.value(*field(row)),
            Cell::KnownCounter(field) | Cell::Gauge(field) | Cell::Greatest(field) | Cell::Least(field) => {
                known(*field(row))
            }
            Cell::SignedCounter(field) => Value::Signed(*field(row)),
            Cell::Distribution(_) | Cell::Worst(_) => Value::None,
            Cell::Names(field) => field(row).words(),
            Cell::Stack(field) | Cell::Place(field) => Value::Stack(*field(row)),
            Cell::Derived(value) => value(row, span_ns),
        }
    }

    /// Adds the cell of a later row.
    pub(super) fn add(&self, row: &mut R, later: &mut R) {
        let both = |one: Option<u64>, other: Option<u64>, join: fn(u64, u64) -> u64| match (one, other) {
            (Some(one), Some(other)) => Some(join(one, other)),
            (one, other) => one.or(other),
        };
        match self.cell {
            Cell::Label(_) | Cell::Stack(_) | Cell::Place(_) | Cell::Derived(_) => {}
            Cell::Counter(field) => *field(row) = field(row).saturating_add(*field(later)),
            Cell::SignedCounter(field) => *field(row) = field(row).saturating_add(*field(later)),
            Cell::KnownCounter(field) => *field(row) = both(*field(row), *field(later), u64::saturating_add),
            Cell::Gauge(field) => *field(row) = *field(later),
            Cell::Greatest(field) => *field(row) = both(*field(row), *field(later), u64::max),
            Cell::Least(field) => *field(row) = both(*field(row), *field(later), u64::min),
            Cell::Distribution(field) => field(row).merge(field(later)),
            Cell::Worst(field) => *field(row) = WorstCase::worse(*field(row), *field(later)),
            Cell::Names(field) => field(row).merge(field(later)),
        }
    }

    /// Makes a gauge unknown.
    pub(super) fn forget_gauge(&self, row: &mut R) {
        if let Cell::Gauge(field) = self.cell {
            *field(row) = None;
        }
    }

    pub(super) fn heap_bytes(&self, row: &mut R) -> usize {
        match self.cell {
            Cell::Distribution(field) => field(row).heap_bytes(),
            Cell::Names(field) => field(row).heap_bytes(),
            _ => 0,
        }
    }
}
