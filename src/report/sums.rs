//! Rows added up by their names, whatever their type, in bounded memory.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::report::{Rows, Value};

/// Where a row is: the reader knows its frames.
pub trait RowSite: Clone + Eq + Hash {
    /// About as much memory as it takes beside its own.
    fn heap_bytes(&self) -> usize;
}

impl RowSite for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Rows by their labels and places.
#[derive(Debug)]
pub struct RowSums<P> {
    rows: Box<dyn Rows>,
    /// Of each row.
    places: Vec<P>,
    by_name: FxHashMap<(Vec<Value>, P), usize>,
    /// Of the labels and places.
    name_bytes: usize,
    most: usize,
    /// No more names when these take so much.
    most_bytes: usize,
    others: Option<Others>,
}

/// What found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Others {
    /// The row that it is added up in.
    pub at: usize,
    /// How many rows were added there.
    pub rows: u64,
}

impl<P: RowSite> RowSums<P> {
    /// No rows, of the schema of `like`.
    pub fn unbounded(like: &dyn Rows) -> RowSums<P> {
        RowSums::new(like, usize::MAX, usize::MAX)
    }

    /// The same, of up to `most` rows, whose names take `most_bytes`.
    pub fn new(like: &dyn Rows, most: usize, most_bytes: usize) -> RowSums<P> {
        let (rows, by_name) = (like.none(), FxHashMap::default());
        RowSums { rows, places: Vec::new(), by_name, name_bytes: 0, most, most_bytes, others: None }
    }

    /// Adds a row that is at `place`; gives its number here.
    pub fn add(&mut self, from: &mut dyn Rows, at: usize, place: P) -> usize {
        let name = (from.labels(at), place);
        if let Some(&known) = self.by_name.get(&name) {
            self.rows.add(known, from, at);
            return known;
        }
        let next = self.rows.len();
        if self.by_name.len() < self.most && self.name_bytes < self.most_bytes {
            self.name_bytes += bytes_of(&name.0, &name.1);
            self.push(from, at, name.1.clone());
            self.by_name.insert(name, next);
            return next;
        }
        match &mut self.others {
            Some(others) => {
                others.rows += 1;
                self.rows.add(others.at, from, at);
                others.at
            }
            None => {
                self.others = Some(Others { at: next, rows: 1 });
                self.push(from, at, name.1);
                next
            }
        }
    }

    fn push(&mut self, from: &dyn Rows, at: usize, place: P) {
        self.rows.push(from, at);
        self.places.push(place);
    }

    /// Of the table, in JSON.
    pub fn table(&self) -> &'static str {
        self.rows.table()
    }

    pub fn rows(&mut self) -> &mut dyn Rows {
        &mut *self.rows
    }

    pub fn place(&self, at: usize) -> Option<&P> {
        self.places.get(at)
    }

    pub fn others(&self) -> Option<Others> {
        self.others
    }

    /// Makes the rows ready to be read. What found no room says nothing of other rows.
    pub fn settle(&mut self) {
        let count = self.others.map_or(self.rows.len(), |others| others.at);
        self.rows.settle(count);
    }

    /// The places of the rows in the order of their schema; the others come last.
    pub fn order(&self) -> Vec<usize> {
        let mut order = self.rows.order();
        if let Some(others) = self.others {
            order.retain(|&at| at != others.at);
            order.push(others.at);
        }
        order
    }

    /// No more rows find room than there are.
    pub fn close(&mut self) {
        self.most = self.most.min(self.by_name.len());
    }

    /// Of the rows and their names.
    pub fn bytes(&mut self) -> usize {
        self.name_bytes + self.rows.bytes()
    }

    pub fn into_parts(self) -> (Box<dyn Rows>, Vec<P>) {
        (self.rows, self.places)
    }
}

/// A name is kept twice but for its labels, and what it has on the heap is shared.
fn bytes_of<P: RowSite>(labels: &[Value], place: &P) -> usize {
    let labels = size_of_val(labels) + labels.iter().map(Value::heap_bytes).sum::<usize>();
    labels + 2 * size_of::<P>() + place.heap_bytes()
}
