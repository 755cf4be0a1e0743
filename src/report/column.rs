//! A column of a table: its key, heading, unit and kind, and the access to its value in a row.

use std::borrow::Cow;
use std::fmt;

use crate::report::{TaskNames, Value, WordSet};
use crate::stats::{Distribution, WorstCase};
use crate::symbol::StackId;

/// The unit of the numbers of a column.
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
    /// In JSON, and in text if the value of some row is not 0.
    IfAny,
    Text,
    Json,
    /// In JSON, and in text as a line below the row, unless that is empty.
    Below,
    /// In no output: the input of derived columns.
    Nowhere,
}

/// How the names and functions of a column are stored.
pub trait ColumnStorage {
    type Name: Clone + Into<Cow<'static, str>> + Send + Sync;
    /// The function that finds the field of a row.
    type Field<R: 'static, T: 'static>: Fn(&mut R) -> &mut T + Send + Sync;
    type Label<R: 'static>: Fn(&R) -> Value + Send + Sync;
    type Derived<R: 'static>: Fn(&R, u64) -> Value + Send + Sync;
}

/// Columns of static schemas: static names, plain functions.
#[derive(Clone, Copy, Debug)]
pub enum AtCompileTime {}

impl ColumnStorage for AtCompileTime {
    type Name = &'static str;
    type Field<R: 'static, T: 'static> = fn(&mut R) -> &mut T;
    type Label<R: 'static> = fn(&R) -> Value;
    type Derived<R: 'static> = fn(&R, u64) -> Value;
}

type MadeField<R, T> = Box<dyn Fn(&mut R) -> &mut T + Send + Sync>;
type MadeLabel<R> = Box<dyn Fn(&R) -> Value + Send + Sync>;
type MadeDerived<R> = Box<dyn Fn(&R, u64) -> Value + Send + Sync>;

fn boxed<R, T>(field: impl Fn(&mut R) -> &mut T + Send + Sync + 'static) -> MadeField<R, T> {
    Box::new(field)
}

/// Columns of schemas made for one run: owned names, and closures.
#[derive(Clone, Copy, Debug)]
pub enum AtRunTime {}

impl ColumnStorage for AtRunTime {
    type Name = String;
    type Field<R: 'static, T: 'static> = MadeField<R, T>;
    type Label<R: 'static> = MadeLabel<R>;
    type Derived<R: 'static> = MadeDerived<R>;
}

/// One column of a table whose rows are `R`.
pub struct Column<R: 'static, S: ColumnStorage = AtCompileTime> {
    /// The key in JSON, unique in its schema.
    key: S::Name,
    /// The heading in text.
    heading: S::Name,
    unit: Unit,
    /// See [`Column::additive`].
    is_additive: bool,
    visibility: Visibility,
    cell: CellAccess<R, S>,
}

/// A column made at run time: see [`ColumnName`]. A [`Column`] of a static schema can be converted to one.
pub type MadeColumn<R> = Column<R, AtRunTime>;

impl<R, S: ColumnStorage> fmt::Debug for Column<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().fmt(f)
    }
}

/// The kind of a column, and the function that accesses its value in a row.
enum CellAccess<R: 'static, S: ColumnStorage> {
    /// A part of the name of the row.
    Label(S::Label<R>),
    /// A number that adds up. In a `KnownCounter` it may be unknown.
    Counter(S::Field<R, u64>),
    KnownCounter(S::Field<R, Option<u64>>),
    /// A sum that may be less than 0.
    SignedCounter(S::Field<R, i64>),
    /// A number about the present: the newest one is shown.
    Gauge(S::Field<R, Option<u64>>),
    Greatest(S::Field<R, Option<u64>>),
    Least(S::Field<R, Option<u64>>),
    Distribution(S::Field<R, Distribution>),
    /// The greatest of the durations that a distribution counts.
    Worst(S::Field<R, Option<WorstCase>>),
    Names(S::Field<R, TaskNames>),
    Words(S::Field<R, WordSet>),
    /// A stack, whose frames are part of the name of the row.
    Stack(S::Field<R, Option<StackId>>),
    /// As `Stack`, with the innermost function as a cell.
    Place(S::Field<R, Option<StackId>>),
    /// A value derived from the row, and from the time in ns that the table covers.
    Derived(S::Derived<R>),
}

// By hand, since a derived impl would ask for `R` to be `Copy`.
impl<R> Clone for CellAccess<R, AtCompileTime> {
    fn clone(&self) -> CellAccess<R, AtCompileTime> {
        *self
    }
}

impl<R> Copy for CellAccess<R, AtCompileTime> {}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Column<R> {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> From<Column<R>> for MadeColumn<R> {
    fn from(column: Column<R>) -> MadeColumn<R> {
        let Column { key, heading, unit, is_additive, visibility, cell } = column;
        let cell = match cell {
            CellAccess::Label(value) => CellAccess::Label(Box::new(value) as MadeLabel<R>),
            CellAccess::Counter(field) => CellAccess::Counter(boxed(field)),
            CellAccess::KnownCounter(field) => CellAccess::KnownCounter(boxed(field)),
            CellAccess::SignedCounter(field) => CellAccess::SignedCounter(boxed(field)),
            CellAccess::Gauge(field) => CellAccess::Gauge(boxed(field)),
            CellAccess::Greatest(field) => CellAccess::Greatest(boxed(field)),
            CellAccess::Least(field) => CellAccess::Least(boxed(field)),
            CellAccess::Distribution(field) => CellAccess::Distribution(boxed(field)),
            CellAccess::Worst(field) => CellAccess::Worst(boxed(field)),
            CellAccess::Names(field) => CellAccess::Names(boxed(field)),
            CellAccess::Words(field) => CellAccess::Words(boxed(field)),
            CellAccess::Stack(field) => CellAccess::Stack(boxed(field)),
            CellAccess::Place(field) => CellAccess::Place(boxed(field)),
            CellAccess::Derived(value) => CellAccess::Derived(Box::new(value) as MadeDerived<R>),
        };
        Column { key: key.to_owned(), heading: heading.to_owned(), unit, is_additive, visibility, cell }
    }
}

/// The names of a column that is made at run time. Its methods make the column, as those of [`Column`] do for statics.
#[derive(Clone, Debug)]
pub struct ColumnName {
    key: String,
    heading: String,
}

impl ColumnName {
    pub fn new(key: impl Into<String>, heading: impl Into<String>) -> ColumnName {
        ColumnName { key: key.into(), heading: heading.into() }
    }

    /// See [`Column::label`].
    pub fn label<R>(self, value: impl Fn(&R) -> Value + Send + Sync + 'static) -> MadeColumn<R> {
        let value: MadeLabel<R> = Box::new(value);
        self.column(CellAccess::Label(value))
    }

    /// See [`Column::signed_counter`].
    pub fn signed_counter<R>(self, field: impl Fn(&mut R) -> &mut i64 + Send + Sync + 'static) -> MadeColumn<R> {
        self.column(CellAccess::SignedCounter(boxed(field)))
    }

    /// See [`Column::derived`].
    pub fn derived<R>(self, value: impl Fn(&R, u64) -> Value + Send + Sync + 'static) -> MadeColumn<R> {
        let value: MadeDerived<R> = Box::new(value);
        self.column(CellAccess::Derived(value))
    }

    fn column<R>(self, cell: CellAccess<R, AtRunTime>) -> MadeColumn<R> {
        let ColumnName { key, heading } = self;
        Column { key, heading, unit: Unit::Count, is_additive: false, visibility: Visibility::Everywhere, cell }
    }
}

impl<R> Column<R> {
    const fn new(key: &'static str, heading: &'static str, cell: CellAccess<R, AtCompileTime>) -> Column<R> {
        Column { key, heading, unit: Unit::Count, is_additive: false, visibility: Visibility::Everywhere, cell }
    }

    /// A part of the name of the row.
    pub const fn label(key: &'static str, heading: &'static str, value: fn(&R) -> Value) -> Column<R> {
        Column::new(key, heading, CellAccess::Label(value))
    }

    /// A number that adds up.
    pub const fn counter(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut u64) -> Column<R> {
        Column::new(key, heading, CellAccess::Counter(field))
    }

    /// A number that adds up where it is known.
    pub const fn known_counter(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<u64>,
    ) -> Column<R> {
        Column::new(key, heading, CellAccess::KnownCounter(field))
    }

    /// A number that adds up, of summands that may be less than 0.
    pub const fn signed_counter(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut i64) -> Column<R> {
        Column::new(key, heading, CellAccess::SignedCounter(field))
    }

    /// A number about the present: of two, the newer one is kept.
    pub const fn gauge(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut Option<u64>) -> Column<R> {
        Column::new(key, heading, CellAccess::Gauge(field))
    }

    pub const fn greatest(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<u64>,
    ) -> Column<R> {
        Column::new(key, heading, CellAccess::Greatest(field))
    }

    pub const fn least(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut Option<u64>) -> Column<R> {
        Column::new(key, heading, CellAccess::Least(field))
    }

    /// Values that were counted into buckets. The column itself is not shown: columns are derived from it.
    pub const fn distribution(key: &'static str, field: fn(&mut R) -> &mut Distribution) -> Column<R> {
        Column { visibility: Visibility::Nowhere, ..Column::new(key, "", CellAccess::Distribution(field)) }
    }

    /// The greatest duration of the row, with its time and task. The column itself is not shown: columns are derived
    /// from it.
    pub const fn worst(key: &'static str, field: fn(&mut R) -> &mut Option<WorstCase>) -> Column<R> {
        Column { visibility: Visibility::Nowhere, ..Column::new(key, "", CellAccess::Worst(field)) }
    }

    /// The tasks behind the row, those with the greatest amounts first.
    pub const fn names(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut TaskNames) -> Column<R> {
        Column::new(key, heading, CellAccess::Names(field))
    }

    /// A few different words about the row.
    pub const fn words(key: &'static str, heading: &'static str, field: fn(&mut R) -> &mut WordSet) -> Column<R> {
        Column::new(key, heading, CellAccess::Words(field))
    }

    /// The stack of the row: rows with equal labels and frames are one row.
    pub const fn stack(field: fn(&mut R) -> &mut Option<StackId>) -> Column<R> {
        Column::new("stack", "", CellAccess::Stack(field))
    }

    /// As [`Column::stack`], with the innermost function as the cell. Text shows the whole stack if it has more than
    /// one frame.
    pub const fn place(
        key: &'static str,
        heading: &'static str,
        field: fn(&mut R) -> &mut Option<StackId>,
    ) -> Column<R> {
        Column::new(key, heading, CellAccess::Place(field))
    }

    /// A value derived from the row, and from the time in ns that the table covers: a share, rate or percentile.
    pub const fn derived(key: &'static str, heading: &'static str, value: fn(&R, u64) -> Value) -> Column<R> {
        Column::new(key, heading, CellAccess::Derived(value))
    }
}

impl<R, S: ColumnStorage> Column<R, S> {
    #[must_use]
    pub const fn in_unit(mut self, unit: Unit) -> Column<R, S> {
        self.unit = unit;
        self
    }

    /// Sets the unit: a duration in ns, in text in ms.
    #[must_use]
    pub const fn ns(self) -> Column<R, S> {
        self.in_unit(Unit::Ns)
    }

    /// Sets the unit: a duration in ns, in text in us.
    #[must_use]
    pub const fn us(self) -> Column<R, S> {
        self.in_unit(Unit::Us)
    }

    /// Cells of several rows may be added, as with counters and shares of one whole: text shows their sum for the rows
    /// that it leaves out.
    #[must_use]
    pub const fn additive(mut self) -> Column<R, S> {
        self.is_additive = true;
        self
    }

    /// Shown in text only if the value of some row is not 0.
    #[must_use]
    pub const fn if_any(mut self) -> Column<R, S> {
        self.visibility = Visibility::IfAny;
        self
    }

    #[must_use]
    pub const fn text_only(mut self) -> Column<R, S> {
        self.visibility = Visibility::Text;
        self
    }

    #[must_use]
    pub const fn json_only(mut self) -> Column<R, S> {
        self.visibility = Visibility::Json;
        self
    }

    /// In text the cell is no part of a column but a line below the row, with the heading in front.
    #[must_use]
    pub const fn below_row(mut self) -> Column<R, S> {
        self.visibility = Visibility::Below;
        self
    }

    /// Shows the column neither in text nor in JSON: it is the input of derived columns.
    #[must_use]
    pub const fn hidden(mut self) -> Column<R, S> {
        self.visibility = Visibility::Nowhere;
        self
    }
}

/// A column without the type of its rows, for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnHead {
    pub key: Cow<'static, str>,
    pub heading: Cow<'static, str>,
    pub kind: ColumnKind,
    pub unit: Unit,
    /// Cells of several rows may be added.
    pub is_additive: bool,
    pub in_text: bool,
    /// Shown in text only if the value of some row is not 0.
    pub if_any: bool,
    /// Shown in text as a line below the row.
    pub is_below: bool,
    pub in_json: bool,
}

impl ColumnHead {
    /// A column that is only shown, and never added up.
    pub const fn plain(heading: &'static str) -> ColumnHead {
        let (kind, unit) = (ColumnKind::Label, Unit::Count);
        ColumnHead {
            key: Cow::Borrowed(heading),
            heading: Cow::Borrowed(heading),
            kind,
            unit,
            is_additive: false,
            in_text: true,
            if_any: false,
            is_below: false,
            in_json: true,
        }
    }
}

/// The kind of a column, which says how two of its cells become one.
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

/// Access to the cells of a column, static or made at run time.
pub(super) trait ColumnCells<R> {
    fn head(&self) -> ColumnHead;

    /// The cell of a row in a table that covers `span_ns`.
    fn value(&self, row: &mut R, span_ns: u64) -> Value;

    /// The cell, if it is a part of the name of the row.
    fn label(&self, row: &R) -> Option<Value>;

    /// The stack of the row, if this is its column.
    fn stack(&self, row: &mut R) -> Option<Option<StackId>>;

    fn distribution<'r>(&self, row: &'r mut R) -> Option<&'r mut Distribution>;

    /// Adds the cell of a later row.
    fn add(&self, row: &mut R, later: &mut R);

    /// Makes a gauge unknown.
    fn forget_gauge(&self, row: &mut R);

    fn heap_bytes(&self, row: &mut R) -> usize;
}

impl<R, S: ColumnStorage> ColumnCells<R> for Column<R, S> {
    fn head(&self) -> ColumnHead {
        let kind = match self.cell {
            CellAccess::Label(_) => ColumnKind::Label,
            CellAccess::Counter(_) | CellAccess::KnownCounter(_) | CellAccess::SignedCounter(_) => ColumnKind::Counter,
            CellAccess::Gauge(_) => ColumnKind::Gauge,
            CellAccess::Greatest(_) => ColumnKind::Greatest,
            CellAccess::Least(_) => ColumnKind::Least,
            CellAccess::Distribution(_) => ColumnKind::Distribution,
            CellAccess::Names(_) | CellAccess::Words(_) => ColumnKind::Names,
            CellAccess::Stack(_) => ColumnKind::Stack,
            CellAccess::Place(_) => ColumnKind::Place,
            CellAccess::Worst(_) | CellAccess::Derived(_) => ColumnKind::Derived,
        };
        ColumnHead {
            key: self.key.clone().into(),
            heading: self.heading.clone().into(),
            kind,
            unit: self.unit,
            is_additive: self.is_additive || kind == ColumnKind::Counter,
            in_text: matches!(self.visibility, Visibility::Everywhere | Visibility::IfAny | Visibility::Text),
            if_any: self.visibility == Visibility::IfAny,
            is_below: self.visibility == Visibility::Below,
            in_json: !matches!(self.visibility, Visibility::Text | Visibility::Nowhere),
        }
    }

    fn value(&self, row: &mut R, span_ns: u64) -> Value {
        let known = |number: Option<u64>| number.map_or(Value::None, |number| self.unit.value(number));
        match &self.cell {
            CellAccess::Label(value) => value(row),
            CellAccess::Counter(field) => self.unit.value(*field(row)),
            CellAccess::KnownCounter(field)
            | CellAccess::Gauge(field)
            | CellAccess::Greatest(field)
            | CellAccess::Least(field) => known(*field(row)),
            CellAccess::SignedCounter(field) => Value::Signed(*field(row)),
            CellAccess::Distribution(_) | CellAccess::Worst(_) => Value::None,
            CellAccess::Names(field) => field(row).words(),
            CellAccess::Words(field) => field(row).value(),
            CellAccess::Stack(field) | CellAccess::Place(field) => Value::Stack(*field(row)),
            CellAccess::Derived(value) => value(row, span_ns),
        }
    }

    fn label(&self, row: &R) -> Option<Value> {
        if let CellAccess::Label(value) = &self.cell { Some(value(row)) } else { None }
    }

    fn stack(&self, row: &mut R) -> Option<Option<StackId>> {
        match &self.cell {
            CellAccess::Stack(field) | CellAccess::Place(field) => Some(*field(row)),
            _ => None,
        }
    }

    fn distribution<'r>(&self, row: &'r mut R) -> Option<&'r mut Distribution> {
        if let CellAccess::Distribution(field) = &self.cell { Some(field(row)) } else { None }
    }

    fn add(&self, row: &mut R, later: &mut R) {
        let both = |one: Option<u64>, other: Option<u64>, join: fn(u64, u64) -> u64| match (one, other) {
            (Some(one), Some(other)) => Some(join(one, other)),
            (one, other) => one.or(other),
        };
        match &self.cell {
            CellAccess::Label(_) | CellAccess::Stack(_) | CellAccess::Place(_) | CellAccess::Derived(_) => {}
            CellAccess::Counter(field) => *field(row) = field(row).saturating_add(*field(later)),
            CellAccess::SignedCounter(field) => *field(row) = field(row).saturating_add(*field(later)),
            CellAccess::KnownCounter(field) => *field(row) = both(*field(row), *field(later), u64::saturating_add),
            CellAccess::Gauge(field) => *field(row) = *field(later),
            CellAccess::Greatest(field) => *field(row) = both(*field(row), *field(later), u64::max),
            CellAccess::Least(field) => *field(row) = both(*field(row), *field(later), u64::min),
            CellAccess::Distribution(field) => field(row).merge(field(later)),
            CellAccess::Worst(field) => *field(row) = WorstCase::worse(*field(row), *field(later)),
            CellAccess::Names(field) => field(row).merge(field(later)),
            CellAccess::Words(field) => field(row).merge(field(later)),
        }
    }

    fn forget_gauge(&self, row: &mut R) {
        if let CellAccess::Gauge(field) = &self.cell {
            *field(row) = None;
        }
    }

    fn heap_bytes(&self, row: &mut R) -> usize {
        match &self.cell {
            CellAccess::Distribution(field) => field(row).heap_bytes(),
            CellAccess::Names(field) => field(row).heap_bytes(),
            CellAccess::Words(field) => field(row).heap_bytes(),
            _ => 0,
        }
    }
}
