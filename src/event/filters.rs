//! The filters of an event: kernel filters, and expressions that perf-prof evaluates for each sample.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::expr::{Expr, ExprError, NoResult, NoResultCounts, Program};
use crate::perf::Sample;
use crate::perf::evsel::SampleTest;
use crate::tep::filter::{Filter, FilterError};
use crate::tep::format::Format;

/// The conditions on an event, all of which must hold.
#[derive(Debug, Default)]
pub struct EventFilters {
    pub kernel: Option<Filter>,
    /// The conditions that the kernel cannot evaluate.
    pub here: Option<ExprFilter>,
}

/// Conditions that perf-prof evaluates for each sample.
#[derive(Debug, Default)]
pub struct ExprFilter {
    conditions: Vec<(String, Program)>,
    /// Samples for which a condition had no value, by [`NoResult`].
    no_value: [AtomicU64; NoResult::ALL.len()],
}

/// A text that is neither a filter nor an expression over the event.
#[derive(Debug)]
pub enum EventFilterError {
    Filter(FilterError),
    Expr(ExprError),
}

impl EventFilters {
    /// The conjunction of the given texts. A text that is no kernel filter must be an expression, which perf-prof
    /// evaluates.
    ///
    /// # Errors
    /// A text is neither, or names a field that the event lacks.
    pub fn parse<'t>(
        texts: impl IntoIterator<Item = Option<&'t str>>,
        format: &Format,
    ) -> Result<EventFilters, EventFilterError> {
        let mut filters = EventFilters::default();
        for text in texts.into_iter().flatten() {
            match Filter::parse(text, format) {
                Ok(filter) => filters.kernel = Filter::all_of([filters.kernel.take(), Some(filter)]),
                Err(err) if err.is_out_of_range() => return Err(EventFilterError::Filter(err)),
                Err(err) => match condition(text, format, err)? {
                    Condition::Kernel(filter) => {
                        filters.kernel = Filter::all_of([filters.kernel.take(), Some(filter)]);
                    }
                    Condition::Here(program) => {
                        filters.here.get_or_insert_default().conditions.push((text.to_owned(), program));
                    }
                },
            }
        }
        Ok(filters)
    }
}

/// An expression as a condition on an event.
enum Condition {
    /// A condition that the kernel can evaluate.
    Kernel(Filter),
    Here(Program),
}

/// The condition as an expression. `refused`: why the kernel does not take it. If both parsers fail, the error further
/// back in the text is returned: the user meant that language.
fn condition(text: &str, format: &Format, refused: FilterError) -> Result<Condition, EventFilterError> {
    let condition = |expr: Expr| {
        let program = expr.compile_number(format)?;
        let filter = expr.kernel_filter(format).filter(Filter::is_short);
        Ok(filter.map_or(Condition::Here(program), Condition::Kernel))
    };
    Expr::parse(text).and_then(condition).map_err(|err: ExprError| {
        let is_unknown = err.is_unknown_field() && !refused.is_unknown_field();
        let is_meant = err.at() > refused.offset || err.at() == refused.offset && is_unknown;
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

    fn text(&self) -> String {
        self.texts().collect::<Vec<_>>().join(" && ")
    }

    fn not_judged(&self) -> Option<(u64, String)> {
        let mut counts = NoResultCounts::default();
        for (reason, count) in NoResult::ALL.into_iter().zip(&self.no_value) {
            counts.add(reason, count.load(Ordering::Relaxed));
        }
        (counts.total() > 0).then(|| (counts.total(), counts.to_string()))
    }
}

impl EventFilterError {
    /// The text is a condition on another event: it names a field that this event lacks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::fixture;

    fn format() -> Format {
        let fields = [
            ("char comm[16]", 8, 16, false),
            ("pid_t pid", 24, 4, true),
            ("int prio", 28, 4, true),
            ("unsigned long ip", 32, 8, false),
            ("long ret", 40, 8, true),
        ];
        fixture::format("s:e", &fields)
    }

    #[test]
    fn the_kernel_gets_what_it_can_evaluate() {
        // The kernel's filter, and whether a condition is left for user space.
        let cases: [(&str, Option<&str>, bool); 16] = [
            ("pid == 1", Some("pid == 1"), false),
            ("comm == bash", Some("comm == \"bash\""), false),
            ("ret == -ENOENT", Some("ret == -2"), false),
            ("-ENOENT >= ret", Some("ret <= -2"), false),
            ("ret == -ENOENT || !(pid & (1 << 2))", Some("ret == -2 || !(pid & 4 )"), false),
            ("prio == SIGKILL && comm ~ \"a*\"", Some("prio == 9 && comm ~ \"a*\""), false),
            ("prio == SIGKILL && comm == \"a\"", Some("prio == 9 && comm == \"a\""), false),
            ("prio == SIGKILL && comm ~ \"[^a]*\"", None, true),
            ("prio == SIGKILL && comm == \"\"", None, true),
            ("prio == SIGKILL && comm == \"0123456789abcdef\"", None, true),
            ("pid < prio", None, true),
            ("pid", None, true),
            ("ip == -ENOENT", None, true), // no number for the kernel's filter, but one for the expression
            ("(int)ip == 7", None, true),
            ("_cpu == 1", None, true),
            ("pid == 1/0", None, true),
        ];
        for (text, kernel, is_here) in cases {
            let filters = EventFilters::parse([Some(text), None], &format()).unwrap_or_else(|err| panic!("{err}"));
            assert_eq!(filters.kernel.as_ref().map(Filter::text), kernel, "{text}");
            assert_eq!(filters.here.is_some(), is_here, "{text}");
        }
        // Many conditions: they do not nest, and the last ones exceed the length of a kernel filter.
        for (conditions, is_here) in [(65, false), (130, false), (140, true)] {
            let text = vec!["ret != 1<<62"; conditions].join(" || ");
            let filters = EventFilters::parse([Some(&*text), None], &format()).unwrap();
            let want = vec!["ret != 4611686018427387904"; conditions].join(" || ");
            let kernel = filters.kernel.as_ref().map(Filter::text);
            assert_eq!((kernel, filters.here.is_some()), (Some(&*want).filter(|_| !is_here), is_here), "{conditions}");
        }
        let either = EventFilters::parse([Some("pid == EIO || pid == 1"), Some("prio == 1")], &format()).unwrap();
        assert_eq!(either.kernel.as_ref().map(Filter::text), Some("(pid == 5 || pid == 1 ) && prio == 1"));
        let both =
            EventFilters::parse([Some("pid < prio"), Some("pid == 1"), Some("prio == SIGHUP")], &format()).unwrap();
        assert_eq!(both.kernel.as_ref().map(Filter::text), Some("pid == 1 && prio == 1"));
        assert!(both.here.unwrap().texts().eq(["pid < prio"]));
    }

    #[test]
    fn the_error_is_that_of_the_language_that_was_meant() {
        let cases = [
            ("pidd == 1", true, "no field `pidd`; it has pid"),
            ("pid < prioo", true, "no field `prioo`; it has prio"),
            ("pid < prio + _cpuu", true, "did you mean _cpu?"),
            ("pid == 2147483648", false, "`pid` holds"),
            ("comm < 3", false, "is text"),
            ("pid < prio + comm", false, "this is text"),
            ("pid = 1", false, "one of == != "),
            ("", false, "empty"),
        ];
        for (text, is_unknown, message) in cases {
            let err = EventFilters::parse([Some(text)], &format()).unwrap_err();
            assert!(err.is_unknown_field() == is_unknown && err.to_string().contains(message), "{text:?}: {err}");
        }
    }
}
