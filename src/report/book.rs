//! The book: the sums of the intervals of a run, table by table.

use crate::report::{RowSite, RowSums, Rows, Verdict};

/// Limit of the separate rows of a table.
const MAX_ROWS: usize = 10_000;
/// Size of all tables' rows and names from which on new rows of a table are added up in one row.
const MAX_BYTES: usize = 32 << 20;

/// All delta tables, summed up since the start of the run. `S`: the site of a row.
#[derive(Debug)]
pub struct Book<S> {
    tables: Vec<BookTable<S>>,
}

/// One table, summed up since the start of the run.
#[derive(Debug)]
pub struct BookTable<S> {
    owner: usize,
    pub sums: RowSums<S>,
    /// Size of the sums when rows were last added.
    bytes: usize,
    pub title: &'static str,
    /// The worst verdict of the table's intervals.
    pub verdict: Verdict,
    /// Total length of the table's intervals.
    pub span_ns: u64,
    pub intervals: u64,
    /// Limit of the rows shown in text.
    pub text_rows: Option<usize>,
    /// The table was shown in text in some interval.
    pub in_text: bool,
}

/// What applies to all rows of an interval.
#[derive(Clone, Copy, Debug)]
pub struct BookEntry {
    /// Index of the profiler that owns the table: two profilers may have tables of one name.
    pub owner: usize,
    pub title: &'static str,
    /// The best verdict that a row can have.
    pub verdict: Verdict,
    pub span_ns: u64,
    /// Limit of the rows shown in text.
    pub text_rows: Option<usize>,
    /// Whether the table is shown in text.
    pub in_text: bool,
    /// The rows are a part of an interval, which [`Book::count_interval`] counts when it ends.
    pub is_quiet: bool,
}

impl<S> Default for Book<S> {
    fn default() -> Book<S> {
        Book { tables: Vec::new() }
    }
}

impl<S: RowSite> Book<S> {
    /// Adds the rows of an interval, each with its site.
    pub fn add(&mut self, rows: &mut dyn Rows, sites: &[S], entry: BookEntry) {
        let BookEntry { owner, title, verdict, span_ns, text_rows, in_text, is_quiet } = entry;
        let known = self.tables.iter().position(|table| table.is_of(owner, rows, title));
        let table = match known.map(|index| self.tables.remove(index)) {
            Some(table) => table,
            None => {
                let sums = RowSums::new(rows, MAX_ROWS, MAX_BYTES);
                BookTable { owner, sums, bytes: 0, title, verdict, span_ns: 0, intervals: 0, text_rows, in_text }
            }
        };
        let bytes_of_others: usize = self.tables.iter().map(|table| table.bytes).sum();
        // Tables are in the order of the last interval, so that a table that only some intervals have keeps its place.
        let index = self.tables.partition_point(|table| table.owner <= owner);
        let table = self.tables.insert_mut(index, table);
        table.span_ns = table.span_ns.saturating_add(span_ns);
        table.verdict = table.verdict.max(verdict);
        table.intervals += u64::from(!is_quiet);
        table.in_text |= in_text;
        table.sums.rows().forget_gauges();
        table.sums.limit_names(MAX_BYTES.saturating_sub(bytes_of_others));
        for (index, site) in sites.iter().enumerate() {
            table.sums.add(rows, index, site.clone());
        }
        table.bytes = table.sums.bytes();
        if bytes_of_others + table.bytes > MAX_BYTES {
            table.sums.close();
        }
    }

    /// Takes the tables of all views up to `last` out of the book, in the order of views.
    pub fn take_up_to(&mut self, last: usize) -> Book<S> {
        let mut tables: Vec<BookTable<S>> = self.tables.extract_if(.., |table| table.owner <= last).collect();
        tables.sort_by_key(|table| table.owner);
        Book { tables }
    }

    /// Takes the tables of the views before `owner` out of the book, and the tables of `owner` up to the last one with
    /// the name and title in `last`.
    pub fn take_through(&mut self, owner: usize, last: Option<(&str, &str)>) -> Book<S> {
        let is_last = |table: &BookTable<S>| {
            table.owner == owner && last.is_some_and(|last| last == (table.sums.table(), table.title))
        };
        let end = match self.tables.iter().position(is_last) {
            Some(index) => index + 1,
            None => self.tables.partition_point(|table| table.owner < owner),
        };
        Book { tables: self.tables.drain(..end).collect() }
    }

    /// Counts an interval of `span_ns` for the table that matches `of`, whose parts were added before. Some parts may
    /// have been without the table.
    pub fn count_interval(&mut self, of: &mut BookTable<S>, span_ns: u64) {
        let (owner, title) = (of.owner, of.title);
        let span_of_parts_ns = of.span_ns;
        let rows = &*of.sums.rows();
        let table = self.tables.iter_mut().find(|table| table.is_of(owner, rows, title));
        if let Some(table) = table {
            table.intervals += 1;
            table.span_ns = table.span_ns.saturating_add(span_ns.saturating_sub(span_of_parts_ns));
        }
    }

    pub fn tables(&mut self) -> impl Iterator<Item = &mut BookTable<S>> {
        self.tables.iter_mut()
    }
}

impl<S: RowSite> BookTable<S> {
    /// Index of the table's view.
    pub fn owner(&self) -> usize {
        self.owner
    }

    fn is_of(&self, owner: usize, rows: &dyn Rows, title: &'static str) -> bool {
        self.owner == owner && self.title == title && self.sums.table() == rows.table()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::report::{Column, Schema, TypedRows, Value};
    use crate::stats::Distribution;

    #[derive(Clone, Debug)]
    struct BookRow {
        name: u8,
        count: u64,
        known: Option<u64>,
        now: Option<u64>,
        greatest: Option<u64>,
        least: Option<u64>,
        values: Distribution,
    }

    static ROWS: Schema<BookRow> = Schema::<BookRow>::new(
        "rows",
        &[
            Column::label("name", "name", |row| Value::Unsigned(row.name.into())),
            Column::counter("count", "count", |row| &mut row.count),
            Column::known_counter("known", "known", |row| &mut row.known),
            Column::gauge("now", "now", |row| &mut row.now),
            Column::greatest("greatest", "greatest", |row| &mut row.greatest),
            Column::least("least", "least", |row| &mut row.least),
            Column::distribution("values", |row| &mut row.values),
            Column::derived("rate", "rate", |row, span_ns| Value::Unsigned(row.count * 1000 / span_ns)),
        ],
    )
    .ordered(|one, other| one.name.cmp(&other.name));

    fn row(name: u8, number: Option<u64>) -> BookRow {
        let mut values = Distribution::new();
        number.iter().for_each(|number| values.record(*number));
        let count = number.unwrap_or(0);
        BookRow { name, count, known: number, now: number, greatest: number, least: number, values }
    }

    proptest! {
        /// Compared with plain lists of the numbers of each interval.
        #[test]
        fn the_whole_run_is_what_its_intervals_add_up_to(
            intervals in prop::collection::vec(
                prop::collection::btree_map(0_u8..6, prop::option::of(0_u64..1000), 0..6),
                1..6,
            ),
        ) {
            let mut book: Book<()> = Book::default();
            let mut told: BTreeMap<u8, Vec<Option<u64>>> = BTreeMap::new();
            for interval in &intervals {
                let rows: Vec<BookRow> = interval.iter().map(|(name, number)| row(*name, *number)).collect();
                let sites = vec![(); rows.len()];
                let verdict = Verdict::Exact;
                let entry = BookEntry { owner: 0, title: "", verdict, span_ns: 10, text_rows: None, in_text: true, is_quiet: false };
                book.add(&mut TypedRows::new(&ROWS, rows), &sites, entry);
                interval.iter().for_each(|(name, number)| told.entry(*name).or_default().push(*number));
            }
            let mut tables = book.tables();
            let table = tables.next().unwrap();
            prop_assert!(tables.next().is_none());
            prop_assert_eq!(table.span_ns, 10 * intervals.len() as u64);
            let newest = intervals.last().unwrap();
            let order = table.sums.order();
            prop_assert_eq!(order.len(), told.len());
            for (index, (name, numbers)) in order.into_iter().zip(told) {
                let seen: Vec<u64> = numbers.iter().copied().flatten().collect();
                let known = |number: Option<u64>| number.map_or(Value::None, Value::Unsigned);
                let sum = seen.iter().sum::<u64>();
                let want = [
                    Value::Unsigned(name.into()),
                    Value::Unsigned(sum),
                    known((!seen.is_empty()).then_some(sum)),
                    known(newest.get(&name).copied().flatten()),
                    known(seen.iter().copied().max()),
                    known(seen.iter().copied().min()),
                    Value::None,
                    Value::Unsigned(sum * 1000 / table.span_ns),
                ];
                let span_ns = table.span_ns;
                prop_assert_eq!(table.sums.rows().cells(index, span_ns), want);
                let values = table.sums.rows().distribution(index, 6).unwrap();
                prop_assert_eq!((values.count(), values.sum()), (seen.len() as u64, u128::from(sum)));
            }
        }
    }

    #[test]
    fn tables_of_one_name_are_kept_apart_by_their_owner() {
        let mut book: Book<()> = Book::default();
        for (owner, number) in [(0, 1), (1, 20), (0, 300)] {
            let (verdict, title) = (Verdict::Exact, "");
            let entry =
                BookEntry { owner, title, verdict, span_ns: 10, text_rows: None, in_text: true, is_quiet: false };
            book.add(&mut TypedRows::new(&ROWS, vec![row(7, Some(number))]), &[()], entry);
        }
        let sums: Vec<Value> = book.tables().map(|table| table.sums.rows().cells(0, 1)[1].clone()).collect();
        assert_eq!(sums, [Value::Unsigned(301), Value::Unsigned(20)]);
    }

    #[test]
    fn what_finds_no_room_is_added_up_in_one_row() {
        let mut sums: RowSums<()> = RowSums::new(&TypedRows::new(&ROWS, Vec::new()), 2, usize::MAX);
        for name in [1, 2, 3, 4, 1, 3] {
            sums.add(&mut TypedRows::new(&ROWS, vec![row(name, Some(10))]), 0, ());
        }
        let others = sums.others().unwrap();
        assert_eq!((others.rows, sums.order().last()), (3, Some(&others.index)));
        let counts: Vec<Value> = sums.order().into_iter().map(|index| sums.rows().cells(index, 1)[1].clone()).collect();
        assert_eq!(counts, [20, 10, 30].map(Value::Unsigned));
    }

    /// A site that says more about a row replaces an equal site.
    #[test]
    fn the_site_that_says_most_stays() {
        #[derive(Clone, Debug)]
        struct ToldSite(&'static str);
        impl PartialEq for ToldSite {
            fn eq(&self, _: &ToldSite) -> bool {
                true
            }
        }
        impl Eq for ToldSite {}
        impl std::hash::Hash for ToldSite {
            fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
        }
        impl RowSite for ToldSite {
            fn heap_bytes(&self) -> usize {
                0
            }
            fn improves(&self, other: &ToldSite) -> bool {
                self.0.len() > other.0.len()
            }
        }
        let mut sums = RowSums::unbounded(&TypedRows::new(&ROWS, Vec::new()));
        for told in ["", "name", "x"] {
            sums.add(&mut TypedRows::new(&ROWS, vec![row(1, Some(1))]), 0, ToldSite(told));
        }
        assert_eq!((sums.rows().len(), sums.site(0).map(|site| site.0)), (1, Some("name")));
    }

    /// A site that takes much memory.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct LargeSite(u64);

    impl RowSite for LargeSite {
        fn heap_bytes(&self) -> usize {
            10_000
        }
    }

    #[test]
    fn all_tables_share_the_bytes() {
        let mut book: Book<LargeSite> = Book::default();
        let (verdict, title) = (Verdict::Exact, "");
        for (owner, sites) in [(0, 0..1500), (1, 0..1500), (2, 0..1500), (0, 1500..3000), (1, 1500..3000)] {
            let entry =
                BookEntry { owner, title, verdict, span_ns: 10, text_rows: None, in_text: true, is_quiet: false };
            let sites: Vec<LargeSite> = sites.map(LargeSite).collect();
            let rows = vec![row(1, Some(1)); sites.len()];
            book.add(&mut TypedRows::new(&ROWS, rows), &sites, entry);
        }
        let rows = |table: &mut BookTable<LargeSite>| (table.owner, table.sums.rows().len());
        let rows: Vec<(usize, usize)> = book.tables().map(rows).collect();
        assert!(
            matches!(rows[..], [(0, 1501..1600), (1, 1501..1600), (2, 100..400)]),
            "a row stands for all others: {rows:?}"
        );
        assert!(book.tables().map(|table| table.sums.bytes()).sum::<usize>() < MAX_BYTES + (1 << 20));
    }

    #[test]
    fn the_bytes_of_names_are_limited() {
        let mut sums: RowSums<LargeSite> = RowSums::new(&TypedRows::new(&ROWS, Vec::new()), 1000, 100_000);
        for number in 0..1000 {
            sums.add(&mut TypedRows::new(&ROWS, vec![row(1, Some(1))]), 0, LargeSite(number));
        }
        let others = sums.others().unwrap();
        assert!((9..=10).contains(&others.index), "{others:?}");
        assert_eq!(others.rows + others.index as u64, 1000);
        assert!((100_000..200_000).contains(&sums.bytes()), "{}", sums.bytes());
    }
}
