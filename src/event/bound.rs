//! An event that the user has selected, with the filter, expressions and attributes of the selector.

use std::sync::Arc;

use crate::event::attributes::SelectorAttrs;
use crate::expr::{Expr, ExprError, ExprInput, Program, SampleVariable};
use crate::perf::Sample;
use crate::perf::evsel::Evsel;
use crate::tep::filter::Filter;
use crate::tep::format::Format;
use crate::tep::syscalls::call_id::CallId;

/// One of the events that a selector stands for, not yet in the evlist.
#[derive(Debug)]
pub struct BoundEvent {
    pub evsel: Evsel,
    pub format: Arc<Format>,
    pub filter: Option<Filter>,
    /// [`SelectorAttrs::expressions`], compiled for the records of the event.
    pub expressions: Vec<(String, Program)>,
    pub attributes: SelectorAttrs,
}

impl BoundEvent {
    /// The evsel to open: a sample for each event, on the CPUs of the selector.
    pub fn into_evsel(self, stacks: bool) -> Evsel {
        let SelectorAttrs { cpus, max_stack, .. } = self.attributes;
        self.evsel.once().cpus(cpus).callchain_if(stacks, max_stack.unwrap_or(0))
    }

    /// The value called `name`: the expression that was given for it, else the first of `fields` that the event has.
    ///
    /// # Errors
    /// The value is no number.
    pub fn value(&self, name: &str, fields: &[&str]) -> Result<Option<Program>, ExprError> {
        if let Some((_, expr)) = self.attributes.expressions.iter().find(|(key, _)| key == name) {
            return expr.compile_number(&self.format).map(Some);
        }
        let field = fields.iter().find_map(|field| self.format.field(field));
        field.map(|field| Expr::parse(&field.name)?.compile_number(&self.format)).transpose()
    }
}

impl<'r> ExprInput<'r> for Sample<'r> {
    #[inline(always)]
    fn raw(&self) -> &'r [u8] {
        self.raw
    }

    fn variable(&self, variable: SampleVariable) -> Option<u64> {
        let signed = |number: i32| i64::from(number) as u64;
        Some(match variable {
            SampleVariable::Cpu => u64::from(self.cpu),
            SampleVariable::Pid => signed(self.pid),
            SampleVariable::Tid => signed(self.tid),
            SampleVariable::Time => self.time,
            SampleVariable::Period => self.period(),
            SampleVariable::CallMode => u64::from(self.is_compat()) * CallId::COMPAT,
        })
    }
}
