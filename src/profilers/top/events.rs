//! The events of a run, each with its key, its name and the amounts that it adds.

use anyhow::{Result, bail};

use crate::cli::usage;
use crate::event::{BoundEvent, KeyExpr, PrintKey, Selector};
use crate::expr::{Expr, ExprError, ExprType, Naming, Program};
use crate::perf::Evlist;
use crate::profiler::{Setup, ShownEvent, key_of};
use crate::profilers::top::columns::{ValueColumn, places};

/// The user's wishes, from options and attributes.
#[derive(Debug)]
pub struct Wish {
    pub selectors: Vec<Selector>,
    /// `-k`
    pub default_key: Option<Expr>,
    pub only_names: bool,
    pub shows_stacks: bool,
}

/// An event, and how its samples are counted.
#[derive(Debug)]
pub struct AmountEvent {
    pub shown: ShownEvent,
    pub key: Option<KeyExpr>,
    /// `comm=`: text, or the name of a task.
    pub name: Option<Program>,
    pub amounts: Vec<EventAmount>,
    /// Index in `amounts` of the amount by which the event's stacks are weighed. None: each counts 1.
    pub weight: Option<usize>,
}

/// An amount that is added up.
#[derive(Debug)]
pub struct EventAmount {
    /// None: the samples are counted.
    pub program: Option<Program>,
    pub place: usize,
}

/// The events of a run, and the columns that they fill.
#[derive(Debug, Default)]
pub struct AmountEvents {
    pub events: Vec<AmountEvent>,
    pub columns: Vec<ValueColumn>,
    pub print: Option<PrintKey>,
    /// The heading of names, which the first `comm=` gives.
    pub name_heading: Option<String>,
    /// Rows are events: there is a pattern, and no key.
    pub by_event: bool,
    /// The amount by which stacks are weighed.
    pub weight: Option<String>,
}

impl AmountEvents {
    /// # Errors
    /// An event, field or function that does not exist; keys or names that only some events have.
    pub fn open(wish: &Wish, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<AmountEvents> {
        let bound = bind(wish, setup)?;
        let has_pattern = wish.selectors.iter().any(Selector::has_wildcard);
        let is_keyed = bound.iter().any(|(_, key)| key.is_some());
        let by_event = has_pattern && !is_keyed && !wish.only_names;
        let mut events = AmountEvents { by_event, ..AmountEvents::default() };
        let mut opened = Vec::new();
        for (event, key) in bound {
            let first = if by_event { 0 } else { events.columns.len() };
            let programs = events.add_columns(&event, first)?;
            let name = events.name(&event, key.is_some(), wish.only_names)?;
            events.print = events.print.take().or_else(|| event.attributes.print_key.clone());
            opened.push((event, key, name, first, programs));
        }
        let places = places(&events.columns);
        for (event, key, name, first, programs) in opened {
            let weight = event
                .attributes
                .expressions
                .iter()
                .filter(|(name, _)| is_amount(name))
                .position(|(name, _)| name == TOP_BY);
            let weight = weight.or_else(|| programs.iter().position(Option::is_some));
            let shown = ShownEvent::add(event, wish.shows_stacks, evlist, setup)?;
            let amounts = programs
                .into_iter()
                .enumerate()
                .filter_map(|(at, program)| Some(EventAmount { program, place: *places.get(first + at)? }));
            let amounts: Vec<EventAmount> = amounts.collect();
            if let Some(heading) = weight.and_then(|at| events.columns.get(first + at)) {
                events.weight.get_or_insert_with(|| heading.heading.clone());
            }
            events.events.push(AmountEvent { shown, key, name, amounts, weight });
        }
        Ok(events)
    }

    /// Adds the missing columns of an event, from column `first` on. Returns what the event adds to each column.
    fn add_columns(&mut self, event: &BoundEvent, first: usize) -> Result<Vec<Option<Program>>> {
        let mut programs = Vec::new();
        let exprs = event.attributes.expressions.iter().zip(&event.expressions);
        for ((name, expr), (_, program)) in exprs.filter(|((name, _), _)| is_amount(name)) {
            if !program.ty().is_number() {
                let (of, text, ty) = (event.format.full_name(), expr.text(), program.ty());
                return Err(usage(format!("{name}={text} of {of} is {ty}, and a number is needed")));
            }
            programs.push((Some(program.clone()), expr.text().to_owned(), name == TOP_BY));
        }
        if programs.is_empty() {
            let name = if self.by_event { COUNT.to_owned() } else { event.format.name.clone() };
            programs.push((None, name, false));
        }
        for (at, (_, heading, leads)) in programs.iter().enumerate() {
            let alias = event.attributes.alias.as_ref().filter(|_| at == 0);
            let column = ValueColumn { heading: alias.unwrap_or(heading).clone(), leads: *leads };
            match self.columns.get(first + at) {
                None => self.columns.push(column),
                // Several patterns share only the column of counts.
                Some(known) if *known == column => {}
                Some(known) => {
                    let (one, other) = (&known.heading, &column.heading);
                    return Err(usage(format!(
                        "{one} and {other} are different columns of rows that are events: give the events a key"
                    )));
                }
            }
        }
        Ok(programs.into_iter().map(|(program, ..)| program).collect())
    }

    /// The name that an event gives its rows.
    fn name(&mut self, event: &BoundEvent, is_keyed: bool, only_names: bool) -> Result<Option<Program>> {
        let full_name = event.format.full_name();
        let mut exprs = event.attributes.expressions.iter().zip(&event.expressions);
        let Some(((_, expr), (_, program))) = exprs.find(|((name, _), _)| name == "comm") else {
            if only_names && is_keyed {
                return Err(usage(format!(
                    "--only-comm needs a name from each event with a key: give {full_name} comm=EXPR"
                )));
            }
            return Ok(None);
        };
        if !matches!(program.ty(), ExprType::Text | ExprType::Named(Naming::Task)) {
            let (text, ty) = (expr.text(), program.ty());
            return Err(usage(format!("comm={text} of {full_name} is {ty}, and text is needed, or comm_get(TID)")));
        }
        self.name_heading.get_or_insert_with(|| expr.text().to_owned());
        Ok(Some(program.clone()))
    }
}

/// The events of the selectors, each with its key: either all have one, or none.
fn bind(wish: &Wish, setup: &Setup<'_>) -> Result<Vec<(BoundEvent, Option<KeyExpr>)>> {
    setup.find_functions(wish.selectors.iter().map(|selector| (selector, true)))?;
    let mut bound: Vec<(BoundEvent, Option<KeyExpr>)> = Vec::new();
    for selector in &wish.selectors {
        let mut unfit = Vec::new();
        for mut event in setup.bind(selector, None)? {
            match key_of(&mut event, wish.default_key.as_ref()) {
                Ok(key) => bound.push((event, key)),
                Err(err) if selector.has_wildcard() && lacks_field(&err) => unfit.push(event.format.full_name()),
                Err(err) => return Err(err),
            }
        }
        if !unfit.is_empty() {
            setup.warn(format!("left out of {}, without the fields of the key: {}", selector.head, unfit.join(" ")));
        }
    }
    if bound.is_empty() {
        bail!("no event has the fields of the key");
    }
    let keyed = bound.iter().filter(|(_, key)| key.is_some()).count();
    if let Some((event, _)) = bound.iter().find(|(_, key)| key.is_none()).filter(|_| keyed > 0) {
        let name = event.format.full_name();
        return Err(usage(format!("{name} has no key, and others have one: give it key=EXPR, or all of them -k EXPR")));
    }
    Ok(bound)
}

const TOP_BY: &str = "top-by";
const COUNT: &str = "count";

fn lacks_field(err: &anyhow::Error) -> bool {
    err.downcast_ref().is_some_and(ExprError::is_unknown_field)
}

fn is_amount(attribute: &str) -> bool {
    matches!(attribute, TOP_BY | "top-add")
}
