//! Rows of any type, for readers that do not know it.

use std::any::Any;
use std::fmt::Debug;

use crate::report::{Basis, ColumnHead, Schema, Value, Verdict};
use crate::stats::Distribution;
use crate::symbol::StackId;

/// The rows of one table. A row whose index is out of range has no cells, and adds nothing.
pub trait Rows: Any + Debug + Send {
    /// The name of the table in JSON.
    fn table(&self) -> &'static str;
    fn title(&self) -> &'static str;
    fn basis(&self) -> Basis;
    fn columns(&self) -> Vec<ColumnHead>;
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells of a row, one for each column, in a table that covers `span_ns`.
    fn cells(&mut self, index: usize, span_ns: u64) -> Vec<Value>;

    /// One cell of a row.
    fn cell(&mut self, index: usize, column: usize, span_ns: u64) -> Value;

    /// The meaning of the column of this key.
    fn meaning(&self, key: &str) -> Option<&'static str>;

    /// The name of a row without its stack.
    fn labels(&self, index: usize) -> Vec<Value>;

    /// The stack of a row. None: the table has no column of stacks.
    fn stack(&mut self, index: usize) -> Option<Option<StackId>>;

    fn distribution(&mut self, index: usize, column: usize) -> Option<&mut Distribution>;

    /// The verdict that follows from the row's own values.
    fn verdict(&self, index: usize) -> Verdict;

    /// To be called after rows were added: computes those cells of the first `count` rows that depend on all of these
    /// rows.
    fn settle(&mut self, count: usize);

    /// The indexes of the rows in the order of their schema.
    fn order(&self) -> Vec<usize>;

    /// An empty table of the same schema.
    fn none(&self) -> Box<dyn Rows>;

    /// Appends a copy of row `index` of `from`, of the same schema.
    fn push(&mut self, from: &dyn Rows, index: usize);

    /// Adds row `index` of `from`, a later row of the same schema, to row `to`.
    fn add(&mut self, to: usize, from: &mut dyn Rows, index: usize);

    /// Makes all gauges unknown.
    fn forget_gauges(&mut self);

    /// Approximate size of the rows.
    fn bytes(&mut self) -> usize;

    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Rows of one type.
#[derive(Debug)]
pub struct TypedRows<R: 'static> {
    schema: Schema<R>,
    rows: Vec<R>,
}

impl<R: Clone> TypedRows<R> {
    pub fn new(schema: &Schema<R>, mut rows: Vec<R>) -> TypedRows<R> {
        (schema.settle)(&mut rows);
        TypedRows { schema: schema.clone(), rows }
    }

    /// The rows, in the order in which they were added.
    #[cfg(test)]
    pub fn rows(&self) -> &[R] {
        &self.rows
    }
}

impl<R: Clone + Debug + Send + 'static> Rows for TypedRows<R> {
    fn table(&self) -> &'static str {
        self.schema.table
    }

    fn title(&self) -> &'static str {
        self.schema.title
    }

    fn basis(&self) -> Basis {
        self.schema.rests_on
    }

    fn columns(&self) -> Vec<ColumnHead> {
        self.schema.columns().map(|column| column.head()).collect()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn cells(&mut self, index: usize, span_ns: u64) -> Vec<Value> {
        let Some(row) = self.rows.get_mut(index) else { return Vec::new() };
        self.schema.columns().map(|column| column.value(row, span_ns)).collect()
    }

    fn cell(&mut self, index: usize, column: usize, span_ns: u64) -> Value {
        let row = self.rows.get_mut(index);
        row.zip(self.schema.columns().nth(column)).map_or(Value::None, |(row, column)| column.value(row, span_ns))
    }

    fn meaning(&self, key: &str) -> Option<&'static str> {
        self.schema.all_meanings().find(|(of, _)| *of == key).map(|(_, meaning)| *meaning)
    }

    fn labels(&self, index: usize) -> Vec<Value> {
        let Some(row) = self.rows.get(index) else { return Vec::new() };
        self.schema.columns().filter_map(|column| column.label(row)).collect()
    }

    fn stack(&mut self, index: usize) -> Option<Option<StackId>> {
        let row = self.rows.get_mut(index)?;
        self.schema.columns().find_map(|column| column.stack(row))
    }

    fn distribution(&mut self, index: usize, column: usize) -> Option<&mut Distribution> {
        let row = self.rows.get_mut(index)?;
        self.schema.columns().nth(column)?.distribution(row)
    }

    fn verdict(&self, index: usize) -> Verdict {
        self.rows.get(index).map_or(Verdict::Exact, self.schema.verdict)
    }

    fn settle(&mut self, count: usize) {
        let count = count.min(self.rows.len());
        (self.schema.settle)(&mut self.rows[..count]);
    }

    fn order(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.rows.len()).collect();
        if let Some(order) = self.schema.order {
            places.sort_by(|one, other| order(&self.rows[*one], &self.rows[*other]));
        }
        places
    }

    fn none(&self) -> Box<dyn Rows> {
        Box::new(TypedRows { schema: self.schema.clone(), rows: Vec::new() })
    }

    fn push(&mut self, from: &dyn Rows, index: usize) {
        if let Some(row) = of_same::<R>(from).and_then(|from| from.rows.get(index)) {
            self.rows.push(row.clone());
        }
    }

    fn add(&mut self, to: usize, from: &mut dyn Rows, index: usize) {
        let from = from.as_any_mut().downcast_mut::<TypedRows<R>>();
        let later = from.and_then(|from| from.rows.get_mut(index));
        if let (Some(row), Some(later)) = (self.rows.get_mut(to), later) {
            self.schema.columns().for_each(|column| column.add(row, later));
        }
    }

    fn forget_gauges(&mut self) {
        for row in &mut self.rows {
            self.schema.columns().for_each(|column| column.forget_gauge(row));
        }
    }

    fn bytes(&mut self) -> usize {
        let heap: usize = self.rows.iter_mut().map(|row| self.schema.heap_bytes(row)).sum();
        self.rows.capacity() * size_of::<R>() + heap
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn of_same<R: 'static>(rows: &dyn Rows) -> Option<&TypedRows<R>> {
    rows.as_any().downcast_ref()
}
