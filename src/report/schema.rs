//! What a table is: its columns, each with a key, a heading, a unit and a kind. The kind says how the cells of two intervals
//! become one, so that no profiler adds up rows itself.

use std::cmp::Ordering;

use crate::report::{Names, Value, Verdict};
use crate::stats::Distribution;
use crate::symbol::StackId;

/// What the rows of one table have in common. `R` is the profiler's own type of a row.
#[derive(Debug)]
pub struct Schema<R: 'static> {
    /// Of the table, in JSON.
    pub table: &'static str,
    /// What the rows are, in text, where a report has several tables.
    pub title: &'static str,
    pub columns: &'static [Column<R>],
    /// What the columns that somebody is shown mean, by their keys, for the documentation.
    pub meanings: &'static [(&'static str, &'static str)],
    /// The order of the rows. None: as they come.
    pub order: Option<fn(&R, &R) -> Ordering>,
    /// What rows say of several of them is worked out from all of them. It runs again when rows were added.
    pub settle: fn(&mut [R]),
    /// How far a row can be trusted by what is in it.
    pub verdict: fn(&R) -> Verdict,
    pub rests_on: Basis,
    /// Its rows are of what is now, and replace those of the interval before.
    pub is_snapshot: bool,
}

/// What a table rests on, and thus what a loss means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The records of its interval.
    Interval,
    /// Those of the whole run, with a stack each.
    Run,
    /// The same, and each row knows which of its pairs were discarded: those of others are no business of its.
    RunByRow,
    /// Numbers of the kernel, which come whether or not records do.
    Counters,
}

impl<R> Schema<R> {
    /// A table of what the records of an interval tell.
    pub const fn new(table: &'static str, columns: &'static [Column<R>]) -> Schema<R> {
        let (order, settle) = (None, no_settling as fn(&mut [R]));
        let (title, meanings) = ("", &[] as &[_]);
        let (verdict, rests_on): (fn(&R) -> Verdict, Basis) = (|_| Verdict::Exact, Basis::Interval);
        Schema { table, title, columns, meanings, order, settle, verdict, rests_on, is_snapshot: false }
    }

    /// What each key means, in a few words: `docs/json.md` has them.
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

    /// Rows come in this order, whoever reads them.
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

    /// A table for [`crate::report::Report::snapshot`].
    #[must_use]
    pub const fn of_now(mut self) -> Schema<R> {
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
    /// Pieces, samples, events.
    Count,
    Bytes,
    Hz,
    /// A duration, in text in ms.
    Ns,
    /// A duration in ns, in text as brief as can be.
    Age,
}

impl Unit {
    /// A number of it as a cell.
    pub fn value(self, number: u64) -> Value {
        match self {
            Unit::Count | Unit::Bytes | Unit::Hz => Value::Unsigned(number),
            Unit::Ns => Value::Ns(number),
            Unit::Age => Value::Age(number),
        }
    }
}

/// Who shows a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Everywhere,
    /// In text where a row has more than 0 in it.
    IfAny,
    Text,
    Json,
    /// It is what derived columns are made of.
    Nowhere,
}

/// One column of a table whose rows are `R`.
#[derive(Clone, Copy, Debug)]
pub struct Column<R: 'static> {
    /// In JSON; unique in its schema.
    pub key: &'static str,
    /// In text.
    pub heading: &'static str,
    pub unit: Unit,
    shown: Shown,
    pub(super) cell: Cell<R>,
}

/// The kind of a column, and where its number is in a row.
#[derive(Debug)]
pub(super) enum Cell<R: 'static> {
    /// A part of the name of the row.
    Label(fn(&R) -> Value),
    /// It adds up. The second: where nobody may know it.
    Counter(fn(&mut R) -> &mut u64),
    KnownCounter(fn(&mut R) -> &mut Option<u64>),
    /// What is now: the newest.
    Gauge(fn(&mut R) -> &mut Option<u64>),
    Greatest(fn(&mut R) -> &mut Option<u64>),
    Least(fn(&mut R) -> &mut Option<u64>),
    Distribution(fn(&mut R) -> &mut Distribution),
    Names(fn(&mut R) -> &mut Names),
    /// A part of the name of the row, by its frames.
    Stack(fn(&mut R) -> &mut Option<StackId>),
    /// The same, whose innermost function is a cell.
    Place(fn(&mut R) -> &mut Option<StackId>),
    /// It follows from other columns, and from the time that the table is about in ns.
    Derived(fn(&R, u64) -> Value),
}

// Whatever `R` is: a derived impl would ask for it to be `Copy`.
impl<R> Clone for Cell<R> {
    fn clone(&self) -> Cell<R> {
        *self
    }
}

impl<R> Copy for Cell<R> {}

impl<R> Column<R> {
    const fn new(key: &'static str, heading: &'static str, cell: Cell<R>) -> Column<R> {
        Column { key, heading, unit: Unit::Count, shown: Shown::Everywhere, cell }
    }

    /// A part of the name of the row.
    pub const fn label(key: &'static str, heading: &'static str, value: fn(&R) -> Value) -> Column<R> {
        Column::new(key, heading, Cell::Label(value))
    }

    /// It adds up.
    pub const fn counter(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut u64) -> Column<R> {
        Column::new(key, heading, Cell::Counter(field))
    }

    /// It adds up as far as it is known.
    pub const fn known_counter(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<u64>,
    ) -> Column<R> {
        Column::new(key, heading, Cell::KnownCounter(field))
    }

    /// What is now: of two, the newer one.
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

    /// Values that were counted into buckets. What is shown of it are columns that follow from it.
    pub const fn distribution(key: &'static str, field: fn(&mut R) -> &mut Distribution) -> Column<R> {
        Column { shown: Shown::Nowhere, ..Column::new(key, "", Cell::Distribution(field)) }
    }

    /// Who has a part in the row: the names that have most of it first.
    pub const fn names(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut Names) -> Column<R> {
        Column::new(key, heading, Cell::Names(field))
    }

    /// Where the row is: rows whose labels and frames are equal are one.
    pub const fn stack(field: fn(&mut R) -> &mut Option<StackId>) -> Column<R> {
        Column::new("stack", "", Cell::Stack(field))
    }

    /// The same; its innermost function is shown as the cell, and in text all of it where it has more frames than one.
    pub const fn place(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<StackId>,
    ) -> Column<R> {
        Column::new(key, heading, Cell::Place(field))
    }

    /// What follows from other columns, and from the time that the table is about in ns: shares, rates, percentiles.
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

    /// In text only where a row has something else than 0 there.
    #[must_use]
    pub const fn if_any(mut self) -> Column<R> {
        self.shown = Shown::IfAny;
        self
    }

    #[must_use]
    pub const fn text_only(mut self) -> Column<R> {
        self.shown = Shown::Text;
        self
    }

    #[must_use]
    pub const fn json_only(mut self) -> Column<R> {
        self.shown = Shown::Json;
        self
    }

    /// Neither in text nor in JSON: what derived columns are made of.
    #[must_use]
    pub const fn hidden(mut self) -> Column<R> {
        self.shown = Shown::Nowhere;
        self
    }
}

/// What a reader is told of a column whose type of row it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnHead {
    pub key: &'static str,
    pub heading: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub in_text: bool,
    /// In text only with something else than 0 in a row.
    pub if_any: bool,
    pub in_json: bool,
}

impl ColumnHead {
    /// One that is but shown.
    pub const fn plain(heading: &'static str) -> ColumnHead {
        let (kind, unit) = (Kind::Label, Unit::Count);
        ColumnHead { key: heading, heading, kind, unit, in_text: true, if_any: false, in_json: true }
    }
}

/// What a reader is told of a table whose type of row it does not know.
#[derive(Clone, Debug)]
pub struct TableHead {
    pub table: &'static str,
    pub columns: Vec<ColumnHead>,
    /// Of the columns, by their keys.
    pub meanings: &'static [(&'static str, &'static str)],
    pub is_snapshot: bool,
}

/// A schema, whatever its rows are.
pub trait TableSchema: Sync {
    fn head(&self) -> TableHead;
}

impl<R> TableSchema for Schema<R> {
    fn head(&self) -> TableHead {
        let columns = self.columns.iter().map(Column::head).collect();
        TableHead { table: self.table, columns, meanings: self.meanings, is_snapshot: self.is_snapshot }
    }
}

/// How the cells of a column become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Label,
    Counter,
    Gauge,
    Greatest,
    Least,
    Distribution,
    Names,
    Stack,
    /// As a stack, of which one function is shown.
    Place,
    Derived,
}

impl<R> Column<R> {
    pub fn head(&self) -> ColumnHead {
        let Column { key, heading, unit, .. } = *self;
        let kind = match self.cell {
            Cell::Label(_) => Kind::Label,
            Cell::Counter(_) | Cell::KnownCounter(_) => Kind::Counter,
            Cell::Gauge(_) => Kind::Gauge,
            Cell::Greatest(_) => Kind::Greatest,
            Cell::Least(_) => Kind::Least,
            Cell::Distribution(_) => Kind::Distribution,
            Cell::Names(_) => Kind::Names,
            Cell::Stack(_) => Kind::Stack,
            Cell::Place(_) => Kind::Place,
            Cell::Derived(_) => Kind::Derived,
        };
        ColumnHead {
            key,
            heading,
            kind,
            unit,
            in_text: matches!(self.shown, Shown::Everywhere | Shown::IfAny | Shown::Text),
            if_any: self.shown == Shown::IfAny,
            in_json: matches!(self.shown, Shown::Everywhere | Shown::IfAny | Shown::Json),
        }
    }

    /// The cell of a row in a table about `span_ns`.
    pub(super) fn value(&self, row: &mut R, span_ns: u64) -> Value {
        let known = |number: Option<u64>| number.map_or(Value::None, |number| self.unit.value(number));
        match self.cell {
            Cell::Label(value) => value(row),
            Cell::Counter(field) => self.unit.value(*field(row)),
            Cell::KnownCounter(field) | Cell::Gauge(field) | Cell::Greatest(field) | Cell::Least(field) => {
                known(*field(row))
            }
            Cell::Distribution(_) => Value::None,
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
            Cell::KnownCounter(field) => *field(row) = both(*field(row), *field(later), u64::saturating_add),
            Cell::Gauge(field) => *field(row) = *field(later),
            Cell::Greatest(field) => *field(row) = both(*field(row), *field(later), u64::max),
            Cell::Least(field) => *field(row) = both(*field(row), *field(later), u64::min),
            Cell::Distribution(field) => field(row).merge(field(later)),
            Cell::Names(field) => field(row).merge(field(later)),
        }
    }

    /// Of what is now nothing is known any more.
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
