//! Intervals that are sent in parts and printed as one: some readers want tables more often than they are printed.

use std::io;

use crate::output::messages::SumsReach;
use crate::output::metrics::MetricEntry;
use crate::output::table::{PlacedRows, RowPlace};
use crate::output::writer::Writer;
use crate::report::{Book, BookEntry, Table};

/// The parts of the present interval, added up.
#[derive(Debug, Default)]
pub struct QuietParts {
    book: Book<RowPlace>,
    words: Vec<QuietWords>,
}

/// Lines of text that belong to a table.
#[derive(Debug)]
struct QuietWords {
    owner: usize,
    table: &'static str,
    title: &'static str,
    above: Vec<String>,
    below: Option<String>,
}

impl Writer {
    /// Adds a part of an interval, `span_ns` long, to the book and to what is printed when the interval ends.
    pub fn quiet_table(&mut self, table: Table, span_ns: u64) {
        if self.outlet.sink.is_over() || table.only_in_text && self.settings.json {
            return;
        }
        let Table { owner, rows, title, above, below, text_rows, in_text, verdict, is_snapshot, .. } = table;
        if is_snapshot {
            // Only the metrics have it.
            let mut placed = PlacedRows::new(rows, &self.stacks.frames, &mut self.stacks.names);
            return self.add_to_metrics(MetricEntry { owner, verdict, is_snapshot }, &mut placed);
        }
        let mut placed = self.kept_rows(rows);
        self.add_to_metrics(MetricEntry { owner, verdict, is_snapshot }, &mut placed);
        let entry = BookEntry { owner, title, verdict, span_ns, text_rows, in_text, is_quiet: true };
        self.sums.book.add(&mut *placed.rows, &placed.places, entry);
        self.sums.quiet.book.add(&mut *placed.rows, &placed.places, entry);
        let table = placed.rows.table();
        self.sums.quiet.words.retain(|words| (words.owner, words.table, words.title) != (owner, table, title));
        self.sums.quiet.words.push(QuietWords { owner, table, title, above, below });
    }

    /// Writes the tables of an interval that was sent in parts, those within `reach`.
    pub fn quiet_sums(&mut self, interval: u64, time_ns: u64, span_ns: u64, reach: SumsReach) -> io::Result<()> {
        let mut book = self.sums.quiet.book.take_through(reach.owner, reach.last);
        if self.outlet.sink.is_over() {
            return Ok(());
        }
        self.print_held()?;
        for table in book.tables() {
            self.sums.book.count_interval(table, span_ns);
            table.span_ns = span_ns;
            let of = (table.owner(), table.sums.table(), table.title);
            let words = &mut self.sums.quiet.words;
            let index = words.iter().position(|words| (words.owner, words.table, words.title) == of);
            let words = index.map(|index| words.swap_remove(index));
            let (above, below) = words.map_or_else(Default::default, |words| (words.above, words.below));
            if table.in_text || self.settings.json {
                self.block_of_sums(table, Some(interval), time_ns, above, below)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use crate::output::tests::into_a_pipe;
    use crate::output::{Message, RunEnd};
    use crate::report::{Column, Report, Schema, Table, Value};

    static RARE: Schema<(u8, u64)> = Schema::<(u8, u64)>::new(
        "rare",
        &[
            Column::label("name", "name", |row| Value::Unsigned(row.0.into())),
            Column::counter("count", "count", |row| &mut row.1),
        ],
    )
    .titled("what is rare")
    .ordered(|one, other| other.1.cmp(&one.1));
    static ALL: Schema<u64> = Schema::new("all", &[Column::counter("count", "count", |row| row)]);
    static NOW: Schema<Option<u64>> = Schema::new("now", &[Column::gauge("now", "now", |row| row)]).snapshot();
    static THEN: Schema<Option<u64>> = Schema::new("then", &[Column::gauge("then", "then", |row| row)]).snapshot();

    /// The tables of a part of an interval.
    fn part(rare: &[(u8, u64)], all: u64, below: Option<&str>) -> Report {
        let mut report = Report::default();
        if !rare.is_empty() {
            report.delta(&RARE, rare.to_vec()).text_rows(2);
        }
        report.delta(&ALL, vec![all]).below(below.map(str::to_owned));
        report.snapshot(&NOW, vec![Some(7)]).titled("what is now");
        report.delta(&ALL, vec![2 * all]).titled("all of it twice");
        report.snapshot(&THEN, vec![Some(8)]).titled("what is then");
        report
    }

    /// What is printed of intervals of 3 s, each sent in one message per table, or in parts of equal length.
    fn printed(json: bool, intervals: Vec<Vec<Report>>) -> String {
        const SPAN_NS: u64 = 3_000_000_000;
        let (mut output, mut reader) = into_a_pipe(json);
        let end = RunEnd { time_ns: intervals.len() as u64 * SPAN_NS, ..RunEnd::default() };
        for (interval, parts) in (1..).zip(intervals) {
            let (time_ns, span_ns, is_quiet) = (interval * SPAN_NS, SPAN_NS / parts.len() as u64, parts.len() > 1);
            let mut parts: Vec<Vec<Table>> = parts.into_iter().map(|report| report.tables).collect();
            let last = parts.pop_if(|_| is_quiet);
            for table in parts.into_iter().flatten() {
                output.send(Message::Table { table, interval, time_ns, span_ns, is_quiet });
            }
            let last = last.map(|tables| Message::last_part(tables, interval, time_ns, span_ns, SPAN_NS));
            last.into_iter().flatten().for_each(|message| output.send(message));
        }
        assert!(output.finish(vec![Message::End(end)], || 0).is_none());
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        // The offset of the wall clock is measured anew for each output.
        let line = |line: &str| match line.split_once(if json { "\"wall\":\"" } else { " test, " }) {
            Some((_, rest)) if !json => format!("{rest}\n"),
            Some((head, rest)) => format!("{head}{}\n", rest.split_once('"').unwrap().1),
            None => format!("{line}\n"),
        };
        // So is the memory of the process, which other tests use too.
        let steady = |line: String| match line.split_once("\"rss_peak_bytes\":") {
            Some((head, rest)) => format!("{head}{}", rest.trim_start_matches(|digit: char| digit.is_ascii_digit())),
            None => line,
        };
        text.lines().map(line).map(steady).collect()
    }

    #[test]
    fn an_interval_in_parts_is_printed_as_one() {
        let whole = || vec![part(&[(1, 7), (2, 9), (3, 1)], 60, Some("words"))];
        // The table that is rare is in the middle one alone.
        let parts =
            || vec![part(&[], 10, None), part(&[(1, 7), (3, 1), (2, 9)], 20, None), part(&[], 30, Some("words"))];
        for json in [false, true] {
            let want = printed(json, vec![whole()]);
            assert_eq!(printed(json, vec![parts()]), want);
            assert!(!want.contains("whole run"));
            assert_eq!(printed(json, vec![parts(), parts()]), printed(json, vec![whole(), whole()]));
        }
        let text = printed(false, vec![parts(), whole()]);
        assert!(text.contains("whole run, 6.000 s: what is rare\n") && text.contains(" 14"), "{text}");
        assert!(text.contains("and 1 more: 1 count\n"), "{text}");
        let offset = |title: &str| text.find(title).unwrap();
        let titles = ["what is rare", "what is now", "all of it twice", "what is then"];
        assert!(titles.map(offset).is_sorted(), "{text}");
    }
}
