//! The filters of an event: those that the kernel takes, and expressions that are evaluated here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::expr::{Expr, ExprError, NoValue, NoValueCounts, Program};
use crate::perf::Sample;
use crate::perf::evsel::SampleTest;
use crate::tep::filter::{Filter, FilterError};
use crate::tep::format::Format;

/// The conditions on an event, all of which must hold.
#[derive(Debug, Default)]
pub struct EventFilters {
    pub kernel: Option<Filter>,
    /// The others, which the kernel does not know.
    pub here: Option<ExprFilter>,
}

/// Conditions that are evaluated for each sample.
#[derive(Debug, Default)]
pub struct ExprFilter {
    conditions: Vec<(String, Program)>,
    /// Samples for which a condition had no value, by [`NoValue`].
    no_value: [AtomicU64; NoValue::ALL.len()],
}

/// A text that is neither a filter nor an expression over the event.
#[derive(Debug)]
pub enum EventFilterError {
    Filter(FilterError),
    Expr(ExprError),
}

impl EventFilters {
    /// The conjunction of the texts given. One that is no filter of the kernel, but an expression, is evaluated here.
    ///
    /// # Errors
    /// A text that is neither of both, or names a field that the event lacks.
    pub fn parse<'t>(
        texts: impl IntoIterator<Item = Option<&'t str>>,
        format: &Format,
    ) -> Result<EventFilters, EventFilterError> {
        let mut filters = EventFilters::default();
        for text in texts.into_iter().flatten() {
            match Filter::parse(text, format) {
                Ok(filter) => filters.kernel = Filter::all_of([filters.kernel.take(), Some(filter)]),
                Err(err) if err.is_out_of_range() => return Err(EventFilterError::Filter(err)),
                Err(err) => {
                    let program = condition(text, format, err)?;
                    filters.here.get_or_insert_default().conditions.push((text.to_owned(), program));
                }
            }
        }
        Ok(filters)
    }
}

/// The condition as an expression. `refused`: why the kernel does not take it. Of the two errors the one is told that
/// came later in the text: that language was meant.
fn condition(text: &str, format: &Format, refused: FilterError) -> Result<Program, EventFilterError> {
    Expr::parse(text).and_then(|expr| expr.compile_number(format)).map_err(|err| {
        let is_unknown = err.is_unknown_field() && !refused.is_unknown_field();
        let is_meant = err.at() > refused.at || err.at() == refused.at && is_unknown;
        if is_meant { EventFilterError::Expr(err) } else { EventFilterError::Filter(refused) }
    })
}

impl ExprFilter {
    /// The conditions as typed.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|(text, _)| text.as_str())
    }
}

impl SampleTest for ExprFilter {
    fn passes(&self, sample: &Sample<'_>) -> bool {
        self.conditions.iter().all(|(_, program)| match program.holds(sample) {
            Ok(holds) => holds,
            Err(reason) => {
                self.no_value[reason as usize].fetch_add(1, Ordering::Relaxed);
                false
            }
        })
    }

    fn not_judged(&self) -> Option<(u64, String)> {
        let mut counts = NoValueCounts::default();
        for (reason, count) in NoValue::ALL.into_iter().zip(&self.no_value) {
            counts.add(reason, count.load(Ordering::Relaxed));
        }
        (counts.total() > 0).then(|| (counts.total(), counts.to_string()))
    }
}

impl EventFilterError {
    /// The text is a condition, but on another event: it names a field that this one lacks.
    pub fn is_unknown_field(&self) -> bool {
        match self {
            EventFilterError::Filter(err) => err.is_unknown_field(),
            EventFilterError::Expr(err) => err.is_unknown_field(),
        }
    }
}

impl fmt::Display for EventFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventFilterError::Filter(err) => err.fmt(f),
            EventFilterError::Expr(err) => err.fmt(f),
        }
    }
}

impl std::error::Error for EventFilterError {}
