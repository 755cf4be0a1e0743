//! Rows of any type, added up by their names, in bounded memory.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::report::{Rows, Value};

/// The site of a row: the frames that its stack stands for.
pub trait RowSite: Clone + Eq + Hash {
    /// Approximate number of bytes on the heap.
    fn heap_bytes(&self) -> usize;

    /// True if this site says more than `other`, which is equal.
    fn improves(&self, _other: &Self) -> bool {
        false
    }
}

impl RowSite for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Rows by their labels and sites.
#[derive(Debug)]
pub struct RowSums<S> {
    rows: Box<dyn Rows>,
    /// The site of each row.
    sites: Vec<S>,
    by_name: FxHashMap<(Vec<Value>, S), usize>,
    /// Size of all labels and sites.
    name_bytes: usize,
    /// Limit of the rows with a name of their own.
    most: usize,
    /// Size of all names from which on new names find no room.
    most_bytes: usize,
    others: Option<OthersRow>,
}

/// The row that sums up the rows that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OthersRow {
    /// Index of the row.
    pub index: usize,
    /// Number of rows that were added up in it.
    pub rows: u64,
}

impl<S: RowSite> RowSums<S> {
    /// Empty sums of the schema of `like`, without a limit.
    pub fn unbounded(like: &dyn Rows) -> RowSums<S> {
        RowSums::new(like, usize::MAX, usize::MAX)
    }

    /// Empty sums of the schema of `like`, for up to `most` rows whose names take up to `most_bytes`.
    pub fn new(like: &dyn Rows, most: usize, most_bytes: usize) -> RowSums<S> {
        let (rows, by_name) = (like.none(), FxHashMap::default());
        RowSums { rows, sites: Vec::new(), by_name, name_bytes: 0, most, most_bytes, others: None }
    }

    /// Adds row `index` of `from`, whose site is `site`; returns the index of its sum.
    pub fn add(&mut self, from: &mut dyn Rows, index: usize, site: S) -> usize {
        let name = (from.labels(index), site);
        if let Some(&known) = self.by_name.get(&name) {
            self.rows.add(known, from, index);
            if let Some(site) = self.sites.get_mut(known).filter(|site| name.1.improves(site)) {
                *site = name.1;
            }
            return known;
        }
        let next = self.rows.len();
        if self.by_name.len() < self.most && self.name_bytes < self.most_bytes {
            self.name_bytes += bytes_of(&name.0, &name.1);
            self.push(from, index, name.1.clone());
            self.by_name.insert(name, next);
            return next;
        }
        match &mut self.others {
            Some(others) => {
                others.rows += 1;
                self.rows.add(others.index, from, index);
                others.index
            }
            None => {
                self.others = Some(OthersRow { index: next, rows: 1 });
                self.push(from, index, name.1);
                next
            }
        }
    }

    fn push(&mut self, from: &dyn Rows, index: usize, site: S) {
        self.rows.push(from, index);
        self.sites.push(site);
    }

    /// The name of the table in JSON.
    pub fn table(&self) -> &'static str {
        self.rows.table()
    }

    pub fn rows(&mut self) -> &mut dyn Rows {
        &mut *self.rows
    }

    pub fn site(&self, index: usize) -> Option<&S> {
        self.sites.get(index)
    }

    pub fn others(&self) -> Option<OthersRow> {
        self.others
    }

    /// Computes the cells that depend on all rows (see [`Rows::settle`]), without the row of the others.
    pub fn settle(&mut self) {
        let count = self.others.map_or(self.rows.len(), |others| others.index);
        self.rows.settle(count);
    }

    /// The indexes of the rows in the order of their schema; the row of the others comes last.
    pub fn order(&self) -> Vec<usize> {
        let mut order = self.rows.order();
        if let Some(others) = self.others {
            order.retain(|&index| index != others.index);
            order.push(others.index);
        }
        order
    }

    /// Sets the size of all names from which on new names find no room.
    pub fn limit_names(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// From now on no new name finds room.
    pub fn close(&mut self) {
        self.most = self.most.min(self.by_name.len());
    }

    /// Size of the rows and their names.
    pub fn bytes(&mut self) -> usize {
        self.name_bytes + self.rows.bytes()
    }

    pub fn into_parts(self) -> (Box<dyn Rows>, Vec<S>) {
        (self.rows, self.sites)
    }
}

/// Size of a name. The site is stored twice, sharing its heap memory; the labels are stored once.
fn bytes_of<S: RowSite>(labels: &[Value], site: &S) -> usize {
    let labels = size_of_val(labels) + labels.iter().map(Value::heap_bytes).sum::<usize>();
    labels + 2 * size_of::<S>() + site.heap_bytes()
}
