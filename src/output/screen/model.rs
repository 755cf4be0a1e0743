//! The model of the screen: pages with tables and their history, the occurrences in the pane, and the user's settings.
//! It is independent of the terminal.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::output::screen::keys::Key;
use crate::output::screen::pane::Pane;
use crate::report::Verdict;

/// Limit of the bytes of all kept tables.
const MAX_BYTES: usize = 16 << 20;
/// Limit of the bytes of one table. Rows beyond it are only counted.
const MAX_TABLE_BYTES: usize = 2 << 20;
/// How long a table is kept.
const KEPT_NS: u64 = 600_000_000_000;
/// The time that the spark line covers.
pub const SPARK_NS: u64 = 60_000_000_000;
/// Limit of the values of a spark line: intervals may be very short.
const MAX_SPARKS: usize = 4096;
/// Limit of the characters of a filter.
const MAX_FILTER: usize = 200;
/// Limit of the notes that are kept.
const MAX_NOTES: usize = 100;

/// A column of a table on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenColumn {
    pub heading: String,
    /// The column's cells are part of the rows' names.
    pub is_name: bool,
    /// The column's cells are left-aligned, since some are no numbers.
    pub is_left: bool,
}

/// A cell: its text, and the number that it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenCell {
    pub text: Box<str>,
    pub number: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenRow {
    pub cells: Box<[ScreenCell]>,
    pub verdict: Verdict,
}

impl ScreenRow {
    fn bytes(&self) -> usize {
        const OVERHEAD: usize = 16;
        let text: usize = self.cells.iter().map(|cell| cell.text.len() + OVERHEAD).sum();
        size_of::<ScreenRow>() + OVERHEAD + size_of_val(&self.cells[..]) + text
    }

    /// Whether some cell contains `text`, which is in lower case.
    fn has(&self, text: &str) -> bool {
        self.cells.iter().any(|cell| cell.text.to_lowercase().contains(text))
    }
}

/// A table at the end of an interval.
#[derive(Clone, Debug, Default)]
pub struct ScreenTable {
    pub interval: u64,
    pub time_ns: u64,
    pub span_ns: u64,
    /// The time of day.
    pub wall: String,
    pub title: String,
    pub columns: Vec<ScreenColumn>,
    /// The rows in the order of the report.
    pub rows: Vec<ScreenRow>,
    /// Rows that were not kept.
    pub rows_left_out: usize,
    /// Lines above and below the table.
    pub above: Vec<String>,
    pub below: Option<String>,
    /// The heading of the main column, and the sum of its cells.
    pub main: Option<(String, u64)>,
    /// Approximate memory of the table; set when it is added to the model.
    pub bytes: usize,
}

impl ScreenTable {
    /// Drops and counts rows beyond `MAX_TABLE_BYTES`.
    fn bound(&mut self) {
        let mut bytes = 0;
        let kept = self.rows.iter().take_while(|row| {
            bytes += row.bytes();
            bytes <= MAX_TABLE_BYTES
        });
        let kept = kept.count();
        self.rows_left_out += self.rows.len() - kept;
        self.rows.truncate(kept);
        self.bytes = self.bytes_without_rows() + self.rows.iter().map(ScreenRow::bytes).sum::<usize>();
    }

    /// With very short intervals there are more tables than rows.
    fn bytes_without_rows(&self) -> usize {
        const OVERHEAD: usize = 16;
        let heads = self.columns.iter().map(|column| size_of::<ScreenColumn>() + column.heading.len() + OVERHEAD);
        let above = self.above.iter().map(|line| size_of::<String>() + line.len() + OVERHEAD);
        let main = self.main.iter().map(|(heading, _)| heading);
        let texts = [&self.wall, &self.title].into_iter().chain(&self.below).chain(main);
        let texts = texts.map(|text| text.len() + OVERHEAD);
        size_of::<ScreenTable>() + heads.chain(above).chain(texts).sum::<usize>()
    }
}

/// Which table of which view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey {
    pub view: usize,
    pub table: &'static str,
}

/// The tables of one page, with their history.
#[derive(Debug)]
pub struct Page {
    pub key: PageKey,
    /// The oldest table first; at least one.
    history: VecDeque<ScreenTable>,
    /// The bytes of all tables in the history.
    bytes: usize,
    /// Sums of the main column, with their times.
    sparks: VecDeque<(u64, u64)>,
    pub sort: Option<SortBy>,
    /// The first row that is shown. Drawing moves it back if there is room for more rows.
    pub first_row: Cell<usize>,
    /// Number of number columns that the user has scrolled past.
    pub first_column: usize,
}

/// The order of the rows that the user has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortBy {
    pub column: usize,
    /// The reverse of the column's usual order.
    pub is_reversed: bool,
}

impl Page {
    fn newest_ns(&self) -> u64 {
        self.history.back().map_or(0, |table| table.time_ns)
    }

    /// The table at a time. None: the newest.
    pub fn table(&self, at_ns: Option<u64>) -> Option<&ScreenTable> {
        let Some(at_ns) = at_ns else { return self.history.back() };
        let after = self.history.partition_point(|table| table.time_ns <= at_ns);
        self.history.get(after.saturating_sub(1))
    }

    /// Sums of the main column of the last minute before the time of `table`.
    pub fn sparks(&self, table: &ScreenTable) -> impl Iterator<Item = (u64, u64)> + '_ {
        let until = table.time_ns;
        self.sparks.iter().copied().filter(move |(time_ns, _)| *time_ns <= until && time_ns + SPARK_NS > until)
    }

    fn add(&mut self, table: ScreenTable) {
        if self.history.back().is_some_and(|newest| newest.interval == table.interval) {
            self.bytes -= self.history.pop_back().map_or(0, |table| table.bytes); // replaced: it has more names
            self.sparks.pop_back_if(|(time_ns, _)| *time_ns == table.time_ns);
        }
        if let Some((_, sum)) = table.main {
            self.sparks.push_back((table.time_ns, sum));
        }
        while self.sparks.len() > MAX_SPARKS
            || self.sparks.front().is_some_and(|(time_ns, _)| time_ns + KEPT_NS + SPARK_NS < table.time_ns)
        {
            self.sparks.pop_front();
        }
        self.bytes += table.bytes;
        self.history.push_back(table);
    }

    fn forget_oldest(&mut self) {
        self.bytes -= self.history.pop_front().map_or(0, |table| table.bytes);
    }
}

/// What was lost and missing in an interval of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScreenTrust {
    pub samples: u64,
    pub lost: u64,
    pub discarded: u64,
    pub coverage: f64,
    pub verdict: Verdict,
}

/// What was lost and missing in a view so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ViewTrust {
    pub newest: ScreenTrust,
    pub intervals: u64,
    /// Records lost in all intervals.
    pub lost: u64,
    pub discarded: u64,
}

#[derive(Debug, Default)]
pub struct ScreenModel {
    /// The names of the views.
    pub views: Vec<String>,
    pub pages: Vec<Page>,
    pub current: usize,
    /// The moment that is shown, CLOCK_MONOTONIC in ns. None: now.
    pub at_ns: Option<u64>,
    /// True: the user went back in time. False: the screen is frozen.
    pub is_past: bool,
    pub filter: String,
    /// The user types the filter.
    pub is_typing: bool,
    pub shows_help: bool,
    pub pane: Pane,
    pub notes: VecDeque<String>,
    /// What was lost and missing, by view.
    pub trust: Vec<ViewTrust>,
    /// CPU use of the run itself, in hundredths of a per cent of one CPU.
    pub own_cpu: Option<u32>,
}

/// What a key asks for that the model cannot do itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    Nothing,
    /// Draw everything again.
    Redraw,
    /// End the run.
    Quit,
}

impl ScreenModel {
    pub fn new(views: Vec<String>) -> ScreenModel {
        let trust = vec![Default::default(); views.len()];
        ScreenModel { views, trust, ..ScreenModel::default() }
    }

    pub fn page(&self) -> Option<&Page> {
        self.pages.get(self.current)
    }

    fn page_mut(&mut self) -> Option<&mut Page> {
        self.pages.get_mut(self.current)
    }

    /// The table that is shown.
    pub fn table(&self) -> Option<&ScreenTable> {
        self.page()?.table(self.at_ns)
    }

    /// The name of a page: the name of its view, and the name of the table if the view has several.
    pub fn page_name(&self, page: &Page) -> String {
        let view = self.views.get(page.key.view).map_or("", String::as_str);
        let is_alone = self.pages.iter().filter(|other| other.key.view == page.key.view).count() == 1;
        if is_alone { view.to_owned() } else { format!("{view} {}", page.key.table) }
    }

    /// Adds a table of an interval, or replaces the one that was added with fewer names.
    pub fn add(&mut self, key: PageKey, mut table: ScreenTable) {
        table.bound();
        let at = self.pages.iter().position(|page| page.key == key).unwrap_or_else(|| {
            let page = Page {
                key,
                history: VecDeque::new(),
                bytes: 0,
                sparks: VecDeque::new(),
                sort: None,
                first_row: Cell::default(),
                first_column: 0,
            };
            // Pages of a view are adjacent.
            let at = self.pages.partition_point(|other| other.key.view <= key.view);
            self.pages.insert(at, page);
            if at <= self.current && self.pages.len() > 1 {
                self.current += 1;
            }
            at
        });
        let now_ns = table.time_ns;
        self.pages[at].add(table);
        self.forget_old(now_ns);
    }

    /// Forgets tables of more than ten minutes ago, and the oldest ones beyond the limit of memory. The newest table of
    /// each page stays.
    fn forget_old(&mut self, now_ns: u64) {
        loop {
            let bytes: usize = self.pages.iter().map(|page| page.bytes).sum();
            let with_past = self.pages.iter_mut().filter(|page| page.history.len() > 1);
            let oldest = with_past.min_by_key(|page| page.history.front().map(|table| table.time_ns));
            let Some(page) = oldest else { return };
            let is_old = page.history.front().is_some_and(|table| table.time_ns + KEPT_NS < now_ns);
            if !is_old && bytes <= MAX_BYTES {
                return;
            }
            page.forget_oldest();
        }
    }

    /// Shows a line for stderr. It may arrive twice, the first time from the reading thread.
    pub fn note(&mut self, line: String) {
        if self.notes.back() == Some(&line) {
            return;
        }
        self.notes.push_back(line);
        if self.notes.len() > MAX_NOTES {
            self.notes.pop_front();
        }
    }

    /// Adds lines of text about occurrences.
    pub fn add_lines(&mut self, text: &[u8]) {
        self.pane.add(text, self.at_ns.is_some());
    }

    /// Sets what was lost and missing in the newest interval of a view.
    pub fn set_trust(&mut self, view: usize, interval: ScreenTrust) {
        let Some(trust) = self.trust.get_mut(view) else { return };
        trust.newest = interval;
        trust.intervals += 1;
        trust.lost += interval.lost;
        trust.discarded += interval.discarded;
    }

    /// The rows of a table that the filter lets through, in the order that was asked for.
    pub fn rows<'a>(&self, page: &Page, table: &'a ScreenTable) -> Vec<&'a ScreenRow> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<&ScreenRow> = table.rows.iter().filter(|row| filter.is_empty() || row.has(&filter)).collect();
        if let Some(sort) = page.sort {
            rows.sort_by(|one, other| {
                let order = compare(one.cells.get(sort.column), other.cells.get(sort.column));
                if sort.is_reversed { order.reverse() } else { order }
            });
        }
        rows
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> KeyEffect {
        if self.is_typing {
            self.type_filter(key);
            return KeyEffect::Nothing;
        }
        let was_help = std::mem::take(&mut self.shows_help);
        match key {
            Key::Char('q') => return KeyEffect::Quit,
            Key::Redraw => return KeyEffect::Redraw,
            Key::Char('?' | 'h') => self.shows_help = !was_help,
            Key::Char('/') => self.is_typing = true,
            Key::Esc if was_help => {}
            Key::Esc => self.filter.clear(),
            Key::Char(' ') => self.freeze(),
            Key::Char('[') => self.step_back(),
            Key::Char(']') => self.step_on(),
            Key::Tab => self.turn_page(1),
            Key::BackTab => self.turn_page(self.pages.len().saturating_sub(1)),
            Key::PageUp => self.pane.scroll_back(),
            Key::PageDown => self.pane.scroll_on(),
            _ => self.press_on_page(key),
        }
        KeyEffect::Nothing
    }

    /// Handles a key that concerns only the current page.
    fn press_on_page(&mut self, key: Key) {
        let at_ns = self.at_ns;
        let Some(page) = self.page_mut() else { return };
        let columns = page.table(at_ns).map_or(0, |table| table.columns.len());
        let rows = page.table(at_ns).map_or(0, |table| table.rows.len());
        let first_row = page.first_row.get();
        match key {
            Key::Char('>' | 's') => page.sort_by_next(columns, true),
            Key::Char('<') => page.sort_by_next(columns, false),
            Key::Char('r') => page.reverse(),
            Key::Char('0') => page.sort = None,
            Key::Char(digit @ '1'..='9') => {
                let column = digit as usize - '1' as usize;
                if column < columns {
                    page.sort = Some(SortBy { column, is_reversed: false });
                }
            }
            Key::Up | Key::Char('k') => page.first_row.set(first_row.saturating_sub(1)),
            Key::Down | Key::Char('j') => page.first_row.set((first_row + 1).min(rows.saturating_sub(1))),
            Key::Home | Key::Char('g') => page.first_row.set(0),
            Key::End | Key::Char('G') => page.first_row.set(rows.saturating_sub(1)),
            Key::Left => page.first_column = page.first_column.saturating_sub(1),
            Key::Right => page.first_column = (page.first_column + 1).min(columns.saturating_sub(1)),
            _ => {}
        }
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(one) if self.filter.chars().count() < MAX_FILTER => self.filter.push(one),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.is_typing = false,
            Key::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        if let Some(page) = self.page_mut() {
            page.first_row.set(0);
        }
    }

    fn freeze(&mut self) {
        let newest = self.pages.iter().map(Page::newest_ns).max();
        self.at_ns = if self.at_ns.is_some() { None } else { newest };
        self.is_past = false;
    }

    fn step_back(&mut self) {
        let Some(page) = self.page() else { return };
        let shown_ns = page.table(self.at_ns).map_or(0, |table| table.time_ns);
        let earlier = page.history.iter().rev().find(|table| table.time_ns < shown_ns);
        if let Some(earlier) = earlier {
            self.at_ns = Some(earlier.time_ns);
            self.is_past = true;
        }
    }

    /// Goes one interval forward; from the newest one to the present.
    fn step_on(&mut self) {
        let (Some(page), true) = (self.page(), self.at_ns.is_some()) else { return };
        let shown_ns = page.table(self.at_ns).map_or(0, |table| table.time_ns);
        let later = page.history.iter().find(|table| table.time_ns > shown_ns);
        self.at_ns = later.map(|table| table.time_ns).filter(|time_ns| *time_ns < page.newest_ns());
        self.is_past = self.at_ns.is_some();
    }

    fn turn_page(&mut self, by: usize) {
        self.current = (self.current + by) % self.pages.len().max(1);
    }
}

impl Page {
    /// Selects the next sort order: that of the report, then each column.
    fn sort_by_next(&mut self, columns: usize, is_on: bool) {
        // 0: the order of the report.
        let at = self.sort.map_or(0, |sort| sort.column + 1);
        let next = (at + if is_on { 1 } else { columns }) % (columns + 1);
        self.sort = next.checked_sub(1).map(|column| SortBy { column, is_reversed: false });
        self.first_row.set(0);
    }

    fn reverse(&mut self) {
        if let Some(sort) = &mut self.sort {
            sort.is_reversed = !sort.is_reversed;
        }
    }
}

/// The order of two cells: greater numbers first, text alphabetically, cells without a value last.
fn compare(one: Option<&ScreenCell>, other: Option<&ScreenCell>) -> Ordering {
    let (Some(one), Some(other)) = (one, other) else { return Ordering::Equal };
    match (one.number, other.number) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.text.is_empty().cmp(&other.text.is_empty()).then_with(|| one.text.cmp(&other.text)),
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
pub mod model_tests;
