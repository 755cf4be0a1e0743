//! Results as plain data: typed values, tables of rows, and single occurrences. Nothing here is text yet.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::EventId;
use crate::stats::weights::Weighted;
use crate::symbol::{News, StackId};
use crate::task::Comm;
use crate::tep::context::Interruption;

/// One cell of a row or one key of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Not known: left out of JSON, blank in text.
    None,
    Unsigned(u64),
    Signed(i64),
    /// A duration.
    Ns(u64),
    /// How old something is, in ns: brief in text.
    Age(u64),
    /// Hundredths of a per cent.
    Pct(u32),
    Bool(bool),
    /// Hexadecimal.
    Address(u64),
    Word(&'static str),
    /// A word in JSON, a phrase in text.
    Phrase {
        word: &'static str,
        text: &'static str,
    },
    Comm(Comm),
    Text(Arc<str>),
    /// A path, or what stands in its place: whole in JSON, its end in text.
    Path(Arc<[u8]>),
    /// The innermost frame of a stack: its function.
    Place(StackId),
    /// An interrupt, by its kind and the stack of what it did: the output thread finds out what it is called.
    Interrupt(Interruption, Option<StackId>),
    /// A list of words, joined by blanks in text.
    Words(Arc<[String]>),
    /// A process and those that have made it, the next one first.
    Lineage(Arc<[Kin]>),
    /// Frames: `stack` in JSON, lines below its row in text. None: there was none, or it was not kept.
    Stack(Option<StackId>),
    /// So many stacks that break off, and differ only behind the first `frames`: in text a line below them says so.
    BrokenStacks {
        /// One of them.
        id: StackId,
        frames: usize,
        stacks: u64,
    },
}

impl Value {
    /// About as much memory as it takes beside its own.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Text(text) => OVERHEAD_BYTES + text.len(),
            Value::Words(words) => {
                OVERHEAD_BYTES + words.iter().map(|word| size_of_val(word) + word.len()).sum::<usize>()
            }
            Value::Path(path) => OVERHEAD_BYTES + path.len(),
            Value::Lineage(kin) => OVERHEAD_BYTES + size_of_val(&kin[..]),
            Value::None | Value::Unsigned(_) | Value::Signed(_) | Value::Ns(_) | Value::Age(_) | Value::Pct(_) => 0,
            Value::Bool(_) | Value::Address(_) | Value::Word(_) | Value::Phrase { .. } | Value::Comm(_) => 0,
            Value::Place(_) | Value::Stack(_) | Value::BrokenStacks { .. } | Value::Interrupt(..) => 0,
        }
    }
}

/// Of an allocator, for each piece of memory.
pub const OVERHEAD_BYTES: usize = 16;

/// One of a [`Value::Lineage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin {
    pub pid: i32,
    pub comm: Comm,
    pub command: Command,
}

/// What a process of the past executes now: the output thread finds out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Unasked,
    /// It has ended.
    Gone,
    /// It is a kernel thread, or nobody can tell.
    Unknown,
    Line(Arc<str>),
}

/// How far the numbers of a row can be trusted, the better first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing that belongs to it is missing.
    #[default]
    Exact,
    /// It is made of samples, as good as their number.
    Estimate,
    /// No record is missing, but pairs that contradicted what is known, or came too late, were thrown away.
    Discarded,
    /// Records are missing: counts and sums are at least so much.
    LowerBound,
    /// And some of what is counted may be over.
    Unsure,
}

impl Verdict {
    /// In JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Estimate => "estimate",
            Verdict::Discarded => "discarded",
            Verdict::LowerBound => "lower_bound",
            Verdict::Unsure => "unsure",
        }
    }

    /// In front of a row of text, and what it means.
    pub fn mark(self) -> Option<(&'static str, &'static str)> {
        match self {
            Verdict::Exact | Verdict::Estimate => None,
            Verdict::Discarded => Some((" ~", "but for pairs that were discarded or seen in part")),
            Verdict::LowerBound => Some((">=", "at least so much: records were lost or left out")),
            Verdict::Unsure => Some((" ?", "some of it may be gone: records were lost, or calls not seen")),
        }
    }

    /// Of something that `other` is said of too. Samples are not needed in particular.
    #[must_use]
    pub fn and(self, other: Verdict) -> Verdict {
        if self == Verdict::Estimate { self } else { self.max(other) }
    }
}

/// A column of a table: its JSON key and its heading, with the unit. Without a heading it is in JSON only, without a key in
/// text only.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub key: &'static str,
    pub heading: &'static str,
}

/// Rows of one interval.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What the rows are and of what their percentages are, when there are several tables.
    pub title: &'static str,
    pub columns: &'static [Column],
    pub rows: Vec<Vec<Value>>,
    pub by_stack: Option<ByStack>,
    pub verdict: Verdict,
    /// Its numbers come from elsewhere than the records: these may be lost or not.
    pub counted: bool,
    /// The column of what a row rests on: with 0 there it rests on nothing.
    pub basis: Option<usize>,
    pub doubts: Option<RowDoubts>,
    /// A line of text below the rows.
    pub below: Option<String>,
}

/// Columns that tell how much of a row is not exact, though nothing was lost: with a number in `estimate` the row is an
/// [`Verdict::Estimate`], with more than 0 in `discarded` it is [`Verdict::Discarded`].
#[derive(Clone, Copy, Debug)]
pub struct RowDoubts {
    pub estimate: usize,
    pub discarded: [usize; 2],
}

impl Table {
    /// How far one of its rows can be trusted.
    pub fn verdict_of(&self, row: &[Value]) -> Verdict {
        let has = |column: Option<usize>| matches!(column.and_then(|at| row.get(at)), Some(Value::Unsigned(1..)));
        if self.basis.is_some() && !has(self.basis) {
            return self.verdict.max(Verdict::LowerBound);
        }
        if let Some(doubts) = self.doubts {
            let of_row = match () {
                () if doubts.discarded.iter().any(|&at| has(Some(at))) => Verdict::Discarded,
                () if matches!(row.get(doubts.estimate), Some(Value::Unsigned(_))) => Verdict::Estimate,
                () => Verdict::Exact,
            };
            return self.verdict.max(of_row);
        }
        let Some(by) = &self.by_stack else { return self.verdict };
        if has(by.doubt) {
            self.verdict.max(Verdict::Unsure)
        } else if has(by.discarded) {
            self.verdict.max(Verdict::Discarded)
        } else {
            self.verdict
        }
    }
}

/// Of rows that say where something is: those whose stacks have equal frames become one. The columns come as they should
/// be sorted, by the first and then by the second, the greatest first.
#[derive(Clone, Debug)]
pub struct ByStack {
    /// By column.
    pub joins: &'static [Join],
    /// Rows shown in text; JSON has all.
    pub most: usize,
    /// Lines of text between the headline and the rows.
    pub lines: Vec<String>,
    /// The column that tells how much of a row may be gone.
    pub doubt: Option<usize>,
    /// The column that tells how many pairs of a row were discarded: those of other rows are no business of its.
    pub discarded: Option<usize>,
}

/// How the cells of a column become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Sum,
    Greatest,
    Least,
    /// The name that most of the first two columns belongs to.
    Heaviest,
    /// All such names, the heaviest first.
    Names,
    Stack,
}

/// How an occurrence of one kind is named in JSON and laid out in text.
#[derive(Debug)]
pub struct Shape {
    /// A key with a dot belongs to an object: `waker.tid`. Keys of one object are neighbours.
    pub keys: &'static [&'static str],
    pub line: &'static [Part],
    /// How a flood of them is put together in text. None: each of them is asked for.
    pub grouping: Option<Grouping>,
}

/// When occurrences of a shape are one line of text in a flood: they agree in some keys, and have equal stacks. Of the other
/// keys the line has those that are the same in all of them. Numbers name a value by its place in [`Shape::keys`].
#[derive(Debug)]
pub struct Grouping {
    /// What one of them is called.
    pub noun: &'static str,
    pub same: &'static [usize],
    /// Where it happened, of one without a stack. Without this either, only those of one name are put together.
    pub place: usize,
    /// How long each took, as [`Value::Ns`]: the line has the longest.
    pub duration: usize,
    /// True of what goes on: a sum would count the same time again and again.
    pub goes_on: usize,
}

/// A piece of a text line. Numbers name the value by its place in [`Shape::keys`].
#[derive(Debug)]
pub enum Part {
    Text(&'static str),
    /// Right-aligned in `width` columns.
    Value {
        key: usize,
        width: usize,
    },
    /// A duration in seconds.
    Seconds(usize),
    /// The subject: name, tid and CPU.
    Subject,
    /// The subject's CPU alone.
    Cpu,
    /// Printed when the value is known, and not false or 0 %.
    If(usize, &'static [Part]),
    IfNot(usize, &'static [Part]),
}

/// Who, when and where of an occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// ns, CLOCK_MONOTONIC.
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}

#[derive(Debug)]
pub enum What {
    /// A tracepoint's record, `raw` in the batch's bytes; in its values what is told beside it, if anything is.
    Event {
        event: EventId,
        raw: Span,
        beside: Span,
    },
    Shaped {
        shape: &'static Shape,
        values: Span,
    },
    /// The same, of many stacks.
    Weighted {
        shape: &'static Shape,
        values: Span,
        weights: Span,
    },
}

impl What {
    /// The same for what is of one kind: its event, or its shape.
    fn kind(&self) -> (Option<EventId>, usize) {
        match self {
            What::Event { event, .. } => (Some(*event), 0),
            What::Shaped { shape, .. } | What::Weighted { shape, .. } => (None, std::ptr::from_ref(*shape).addr()),
        }
    }
}

/// A range of a batch's bytes or values. Short: there are many, and they cross from thread to thread.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// From `start` to the end of `all`. A batch ends long before 4 GiB; what lies beyond is nothing.
    fn to_end<T>(start: usize, all: &[T]) -> Span {
        let [Ok(start), Ok(len)] = [start, all.len() - start].map(u32::try_from) else {
            return Span { start: 0, len: 0 };
        };
        Span { start, len }
    }

    /// The same in another batch.
    fn moved<T: Clone>(self, from: &[T], to: &mut Vec<T>) -> Span {
        let start = to.len();
        to.extend_from_slice(self.of(from));
        Span::to_end(start, to)
    }

    #[inline]
    pub fn of<T>(self, all: &[T]) -> &[T] {
        let start = self.start as usize;
        all.get(start..start + self.len as usize).unwrap_or_default()
    }
}

#[derive(Debug)]
pub struct Occurrence {
    pub subject: Subject,
    pub what: What,
    pub stack: Option<StackId>,
}

/// Occurrences on their way to the output thread; its memory is used again.
#[derive(Debug, Default)]
pub struct Batch {
    pub occurrences: Vec<Occurrence>,
    pub raw: Vec<u8>,
    pub values: Vec<Value>,
    /// What the values take beside their own size.
    heap_bytes: usize,
    pub weights: Vec<Weighted>,
    /// What must be known before the occurrences are printed.
    news: Vec<News>,
    news_bytes: usize,
}

impl Batch {
    pub fn event(
        &mut self,
        subject: Subject,
        event: EventId,
        raw: &[u8],
        beside: Option<Value>,
        stack: Option<StackId>,
    ) {
        let (start, first) = (self.raw.len(), self.values.len());
        self.raw.extend_from_slice(raw);
        if let Some(value) = beside {
            self.heap_bytes += value.heap_bytes();
            self.values.push(value);
        }
        let (raw, beside) = (Span::to_end(start, &self.raw), Span::to_end(first, &self.values));
        let what = What::Event { event, raw, beside };
        self.occurrences.push(Occurrence { subject, what, stack });
    }

    pub fn shaped<const N: usize>(
        &mut self,
        subject: Subject,
        shape: &'static Shape,
        values: [Value; N],
        stack: Option<StackId>,
    ) {
        let start = self.values.len();
        self.keep(values);
        let what = What::Shaped { shape, values: Span::to_end(start, &self.values) };
        self.occurrences.push(Occurrence { subject, what, stack });
    }

    /// An occurrence in which many stacks had a share.
    pub fn weighted<const N: usize>(
        &mut self,
        subject: Subject,
        shape: &'static Shape,
        values: [Value; N],
        weights: impl Iterator<Item = Weighted>,
    ) {
        let (start, first) = (self.values.len(), self.weights.len());
        self.keep(values);
        self.weights.extend(weights);
        let (values, weights) = (Span::to_end(start, &self.values), Span::to_end(first, &self.weights));
        self.occurrences.push(Occurrence { subject, what: What::Weighted { shape, values, weights }, stack: None });
    }

    fn keep<const N: usize>(&mut self, values: [Value; N]) {
        self.heap_bytes += values.iter().map(Value::heap_bytes).sum::<usize>();
        self.values.extend(values);
    }

    /// What must be known before what follows is printed.
    pub fn tell(&mut self, news: News) {
        self.news_bytes += news.bytes();
        self.news.push(news);
    }

    /// Takes the news out.
    pub fn take_news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.news_bytes = 0;
        self.news.drain(..)
    }

    pub fn news_bytes(&self) -> usize {
        self.news_bytes
    }

    /// Of all but the news.
    pub fn bytes(&self) -> usize {
        self.raw.len()
            + self.occurrences.len() * size_of::<Occurrence>()
            + self.values.len() * size_of::<Value>()
            + self.heap_bytes
            + self.weights.len() * size_of::<Weighted>()
    }

    pub fn is_empty(&self) -> bool {
        self.occurrences.is_empty() && self.news.is_empty()
    }

    pub fn clear(&mut self) {
        self.drop_occurrences();
        self.news.clear();
        self.news_bytes = 0;
    }

    /// What later ones may refer to stays.
    pub fn drop_occurrences(&mut self) {
        self.occurrences.clear();
        self.raw.clear();
        self.values.clear();
        self.heap_bytes = 0;
        self.weights.clear();
    }

    /// Drops what is frequent, so that what is rare is not lost among it: that may be an eighth of all.
    pub fn thin(&mut self) {
        let mut counts: FxHashMap<_, usize> = FxHashMap::default();
        self.occurrences.iter().for_each(|occurrence| *counts.entry(occurrence.what.kind()).or_default() += 1);
        let mut kinds: Vec<_> = counts.into_iter().map(|(kind, count)| (count, kind)).collect();
        kinds.sort_unstable();
        let mut room = self.occurrences.len() / 8;
        let fits = |(count, kind)| {
            room = usize::checked_sub(room, count)?;
            Some(kind)
        };
        let rare: FxHashSet<_> = kinds.into_iter().map_while(fits).collect();
        let old = std::mem::take(self);
        (self.news, self.news_bytes) = (old.news, old.news_bytes);
        for Occurrence { subject, what, stack } in old.occurrences {
            if !rare.contains(&what.kind()) {
                continue;
            }
            let what = match what {
                What::Event { event, raw, beside } => What::Event {
                    event,
                    raw: raw.moved(&old.raw, &mut self.raw),
                    beside: beside.moved(&old.values, &mut self.values),
                },
                What::Shaped { shape, values } => {
                    What::Shaped { shape, values: values.moved(&old.values, &mut self.values) }
                }
                What::Weighted { shape, values, weights } => What::Weighted {
                    shape,
                    values: values.moved(&old.values, &mut self.values),
                    weights: weights.moved(&old.weights, &mut self.weights),
                },
            };
            self.occurrences.push(Occurrence { subject, what, stack });
        }
        self.heap_bytes = self.values.iter().map(Value::heap_bytes).sum();
    }

    /// What a rush has made of it, once it is empty again: no part keeps more than so many bytes.
    pub fn shrink(&mut self, part_bytes: usize) {
        fn shrink<T>(part: &mut Vec<T>, bytes: usize) {
            part.shrink_to(bytes / size_of::<T>());
        }
        shrink(&mut self.occurrences, part_bytes);
        shrink(&mut self.raw, part_bytes);
        shrink(&mut self.values, part_bytes);
        shrink(&mut self.weights, part_bytes);
        shrink(&mut self.news, part_bytes);
    }
}
