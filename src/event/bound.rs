//! An event that somebody has named, with all that was asked of it.

use std::sync::Arc;

use anyhow::Result;

use crate::event::selector::SelectorAttrs;
use crate::expr::{Expr, Program};
use crate::perf::evsel::Evsel;
use crate::tep::filter::Filter;
use crate::tep::format::Format;

/// One of the events that a selector stands for, not yet in the list.
#[derive(Debug)]
pub struct BoundEvent {
    pub evsel: Evsel,
    pub format: Arc<Format>,
    pub filter: Option<Filter>,
    /// Those of [`SelectorAttrs::expressions`], over its records.
    pub expressions: Vec<(String, Program)>,
    pub attributes: SelectorAttrs,
}

impl BoundEvent {
    /// What is opened: a sample for each event, on the CPUs that were asked for.
    pub fn into_evsel(self, stacks: bool) -> Evsel {
        let SelectorAttrs { cpus, max_stack, .. } = self.attributes;
        self.evsel.once().cpus(cpus).callchain_if(stacks, max_stack.unwrap_or(0))
    }

    /// The value that is called `name`: an expression if one was given, else the first of `fields` that there is.
    ///
    /// # Errors
    /// That field is no number.
    pub fn value(&self, name: &str, fields: &[&str]) -> Result<Option<Program>> {
        if let Some((_, program)) = self.expressions.iter().find(|(key, _)| key == name) {
            return Ok(Some(program.clone()));
        }
        let field = fields.iter().find_map(|field| self.format.field(field));
        Ok(field.map(|field| Expr::parse(&field.name)?.compile(&self.format)).transpose()?)
    }
}
