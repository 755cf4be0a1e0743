//! Memory of the messages that wait for the output thread. It is bounded, since the reader of the output may stand
//! still.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::output::Message;
use crate::report::LateText;

/// Most bytes of occurrences in flight: those of two rings that were half full when they were read, and those that
/// arrive meanwhile.
pub const MAX_BYTES: usize = 24 << 20;
/// Bytes of tables and notes at which no more are accepted. They have a limit of their own, since they matter more than
/// single occurrences. The tables of one interval are accepted together, so they may exceed the limit.
const MAX_REPORT_BYTES: usize = 8 << 20;
/// Bytes of notes accepted beyond that limit.
const MAX_NOTE_BYTES: usize = 2 << 20;
/// Bytes of news at which mappings are left out. New stacks still are accepted: their table is bounded, and forgets none
/// while more than [`FEW_NEWS_BYTES`] are on their way.
pub const MAX_NEWS_BYTES: usize = 24 << 20;
/// Frames take six times as much as the news of them.
pub const FEW_NEWS_BYTES: usize = 4 << 20;

/// Bytes of the messages that are in the queue or wait for it.
#[derive(Debug, Default)]
pub struct InFlight {
    occurrences: AtomicUsize,
    /// Bytes of the news in batches.
    news: AtomicUsize,
    reports: AtomicUsize,
    /// Messages so far: sent, taken up by the output thread, and finished by it.
    sent: AtomicU64,
    taken: AtomicU64,
    done: AtomicU64,
}

impl InFlight {
    pub fn add(&self, message: &Message) {
        self.of(message).fetch_add(message.bytes(), Ordering::Relaxed);
        self.news.fetch_add(message.news_bytes(), Ordering::Relaxed);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// The output thread has taken the message up.
    pub fn take(&self, message: &Message) {
        self.of(message).fetch_sub(message.bytes(), Ordering::Relaxed);
        self.news.fetch_sub(message.news_bytes(), Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// The output thread has written, or stored, the content of the message.
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Messages that the output thread has taken up.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// True when a message waits for the output thread.
    pub fn any_waits(&self) -> bool {
        self.taken() < self.sent.load(Ordering::Relaxed)
    }

    /// True when the output thread has finished all messages.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.sent.load(Ordering::Relaxed)
    }

    fn of(&self, message: &Message) -> &AtomicUsize {
        if matches!(message, Message::Batch(_)) { &self.occurrences } else { &self.reports }
    }

    /// Bytes of occurrences in batches.
    pub fn occurrence_bytes(&self) -> usize {
        self.occurrences.load(Ordering::Relaxed)
    }

    /// Bytes of news in batches.
    pub fn news_bytes(&self) -> usize {
        self.news.load(Ordering::Relaxed)
    }

    /// Bytes of all other messages.
    pub fn report_bytes(&self) -> usize {
        self.reports.load(Ordering::Relaxed)
    }

    /// True when no more tables fit.
    pub fn is_full_of_reports(&self) -> bool {
        self.report_bytes() >= MAX_REPORT_BYTES
    }

    /// True when no more notes fit.
    pub fn is_full_of_notes(&self) -> bool {
        self.report_bytes() >= MAX_REPORT_BYTES + MAX_NOTE_BYTES
    }
}

impl Message {
    /// Memory of the message, about.
    fn bytes(&self) -> usize {
        match self {
            Message::Batch(batch) => batch.bytes(),
            Message::Table { table, .. } => size_of::<Message>() + table.bytes,
            Message::Note(text) => size_of::<Message>() + text.len(),
            Message::LookUps(texts) => size_of::<Message>() + texts.len() * size_of::<LateText>(),
            Message::Interval(end) => size_of::<Message>() + size_of_val(&end.lost_windows[..]),
            Message::Weights { rows, .. } => size_of::<Message>() + size_of_val(&rows[..]),
            // Few in a run, and one at a time.
            Message::Stacks(_) | Message::End(_) | Message::LivePids(_) => 0,
            Message::QuietSums { .. } | Message::Metrics(_) | Message::EndScreen => 0,
            #[cfg(test)]
            Message::Panic => 0,
        }
    }

    fn news_bytes(&self) -> usize {
        if let Message::Batch(batch) = self { batch.update_bytes() } else { 0 }
    }

    /// Number of lines that are missing if the message is dropped.
    pub fn lines(&self) -> u64 {
        match self {
            Message::Table { table, .. } => table.rows.len().max(1) as u64,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::output::IntervalEnd;
    use crate::output::tests::into_a_pipe;
    use crate::report::{Batch, Column, Report, Schema, Value};
    use crate::symbol::SymbolUpdate;
    use crate::symbol::spaces::maps_line::FileKey;
    use crate::symbol::spaces::space_keys::SpaceChange;

    static NUMBERS: Schema<u64> = Schema::new("numbers", &[Column::counter("n", "n", |row| row)]);
    static TEXTS: Schema<[u8; 1000]> = Schema::new(
        "texts",
        &[Column::derived("text", "text", |row, _| Value::Text(String::from_utf8_lossy(row).into()))],
    );

    #[test]
    fn taken_bytes_equal_added_bytes() {
        let in_flight = InFlight::default();
        let mut report = Report::default();
        report.delta(&NUMBERS, vec![1; 1000]);
        let table = report.tables.remove(0);
        let mut batch = Batch::default();
        batch.raw.resize(5000, 0);
        batch.push_update(SymbolUpdate::RereadMaps);
        let path: Box<[u8]> = vec![b'x'; 4000].into();
        let key = FileKey::Unknown;
        batch.push_update(SymbolUpdate::Space(SpaceChange::Map { pid: 5, start: 0, end: 1, offset: 0, path, key }));
        let messages = [
            Message::Table { table, interval: 1, time_ns: 0, span_ns: 0, is_quiet: false },
            Message::Note("a line".to_owned()),
            Message::Batch(batch),
            Message::LivePids(vec![1, 2]),
        ];
        assert_eq!(messages.each_ref().map(Message::lines), [1000, 1, 1, 1]);
        messages.iter().for_each(|message| in_flight.add(message));
        assert_eq!(in_flight.occurrence_bytes(), 5000);
        assert!((4000..4500).contains(&in_flight.news_bytes()), "{}", in_flight.news_bytes());
        assert!(in_flight.any_waits() && !in_flight.is_done());
        let least = 1000 * size_of::<u64>();
        assert!((least..3 * least).contains(&in_flight.report_bytes()), "{}", in_flight.report_bytes());
        assert!(!in_flight.is_full_of_reports());
        messages.iter().for_each(|message| in_flight.take(message));
        assert_eq!((in_flight.occurrence_bytes(), in_flight.report_bytes(), in_flight.news_bytes()), (0, 0, 0));
        assert!(!in_flight.any_waits() && !in_flight.is_done(), "the output is at the last one yet");
        messages.iter().for_each(|_| in_flight.finish());
        assert!(in_flight.is_done());
    }

    /// A blocked output accepts few tables. The accepted ones are printed, and so are those of the end of the run.
    #[test]
    fn a_blocked_output_takes_few_tables() {
        const ROWS: u64 = 100;
        let (mut output, reader) = into_a_pipe(true);
        let of_interval = |interval: u64| {
            let mut report = Report::default();
            for _ in 0..2 {
                report.delta(&TEXTS, (0..ROWS).map(|_| [b' '; 1000]).collect());
            }
            let message = |table| Message::Table { table, interval, time_ns: 0, span_ns: 0, is_quiet: false };
            let mut messages: Vec<Message> = report.tables.into_iter().map(message).collect();
            messages.push(Message::Interval(IntervalEnd { interval, ..IntervalEnd::default() }));
            messages
        };
        let mut taken = 0;
        while output.has_room_for_report() {
            taken += 1;
            of_interval(taken).into_iter().for_each(|message| output.send(message));
        }
        let bytes = output.in_flight.report_bytes();
        assert!((8 << 20..10 << 20).contains(&bytes), "{bytes} bytes under way");
        assert_eq!(output.dropped(), 0);
        output.note("a line for people");
        assert_eq!(output.dropped(), 0);
        // The output thread may take the first table only now, which makes room for one more.
        (0..4).for_each(|_| output.note(" ".repeat(1 << 20)));
        assert!((1..=2).contains(&output.dropped()), "{} notes found no room", output.dropped());
        let lines = std::thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect::<Vec<_>>());
        let in_flight = output.in_flight.clone();
        assert!(output.finish(of_interval(taken + 1), || 0).is_none());
        let lines = lines.join().unwrap();
        let mut rows = vec![0; taken as usize + 2];
        let mut ends = Vec::new();
        for line in &lines {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            let interval = object["interval"].as_u64().unwrap();
            match object["type"].as_str() {
                Some("row") => rows[interval as usize] += 1,
                _ => ends.push(interval),
            }
        }
        assert!(ends.into_iter().eq(1..=taken + 1));
        assert!(rows[1..].iter().all(|&rows| rows == 2 * ROWS), "{rows:?}");
        assert_eq!((in_flight.occurrence_bytes(), in_flight.report_bytes()), (0, 0));
    }
}
