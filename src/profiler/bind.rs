//! Resolves a selector: finds the events of a name or pattern, each with filter, expressions and attributes.

use std::sync::Arc;

use anyhow::{Result, bail};

use crate::cli::usage;
use crate::event::{BoundEvent, EventFilters, ExprFilter, Selector, SelectorHead};
use crate::expr::{ExprError, Program};
use crate::perf::evsel::SampleTest;
use crate::profiler::Setup;
use crate::profiler::probes::SelectedEvent;

/// The system of ftrace's own records, which have formats but no tracepoint.
const NO_TRACEPOINTS: &str = "ftrace:";

impl Setup<'_> {
    /// The events of a selector. `filter` is a condition on all events, besides the selector's own. A pattern selects
    /// only events that have the fields of the filters and attributes.
    ///
    /// # Errors
    /// As [`Setup::events`]; a filter or an expression that does not fit the event.
    pub fn bind(&self, selector: &Selector, filter: Option<&str>) -> Result<Vec<BoundEvent>> {
        let selector = &*self.with_full_name(selector)?;
        let pattern = selector.head.to_string();
        let is_pattern = selector.has_wildcard() && matches!(selector.head, SelectorHead::Tracepoint { .. });
        let events = if is_pattern { self.matching(&pattern)? } else { self.events(selector)? };
        let (mut bound, mut unfit) = (Vec::new(), Vec::new());
        for (evsel, format) in events {
            let EventFilters { kernel: filter, here } =
                match EventFilters::parse([selector.filter.as_deref(), filter], &format) {
                    Err(err) if is_pattern && err.is_unknown_field() => {
                        unfit.push(format.full_name());
                        continue;
                    }
                    filters => filters.map_err(|err| self.filter_error(err, &format))?,
                };
            let exprs = selector.attrs.expressions.iter();
            let compiled = exprs.map(|(name, expr)| Ok((name.clone(), expr.compile(&format)?)));
            let expressions: Vec<(String, Program)> = match compiled.collect::<Result<_, ExprError>>() {
                Ok(expressions) => expressions,
                Err(err) if is_pattern && err.is_unknown_field() => {
                    unfit.push(format.full_name());
                    continue;
                }
                Err(err) if err.is_unknown_field() => return Err(anyhow::Error::new(err)),
                Err(err) => return Err(usage(err)),
            };
            for text in here.iter().flat_map(ExprFilter::texts) {
                self.note(format!("{}: filter '{text}' is evaluated here, not in the kernel", format.full_name()));
            }
            let needs_abi = expressions.iter().any(|(_, program)| program.ty().needs_abi());
            let evsel = if needs_abi { evsel.with_abi() } else { evsel };
            let evsel = evsel.tested(here.map(|here| Arc::new(here) as Arc<dyn SampleTest>));
            let (evsel, attributes) = (evsel.optional(is_pattern), selector.attrs.clone());
            bound.push(BoundEvent { evsel, format, filter, expressions, attributes });
        }
        if bound.is_empty() {
            bail!("no event of {pattern:?} has the fields that its filter and attributes ask for");
        }
        if !unfit.is_empty() {
            self.warn(format!("left out of {pattern}, without the fields that are asked for: {}", unfit.join(" ")));
        }
        Ok(bound)
    }

    fn matching(&self, pattern: &str) -> Result<Vec<SelectedEvent>> {
        let mut names = self.tracefs.get()?.matching(pattern)?;
        names.retain(|name| !name.starts_with(NO_TRACEPOINTS));
        if names.is_empty() {
            bail!("no event matches {pattern:?}{}", self.tracefs.get()?.alternatives(pattern));
        }
        self.note(format!("{pattern} is {}", names.join(" ")));
        names.iter().map(|name| self.tracepoint(name)).collect()
    }
}
