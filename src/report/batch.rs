//! Occurrences on their way to the output thread.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::EventId;
use crate::report::{OccurrenceLayout, OccurrenceSchema, Value};
use crate::stats::weights::Weighted;
use crate::symbol::{StackId, SymbolUpdate};
use crate::task::Comm;

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
    Event { event: EventId, raw: Span, beside: Span },
    /// One of a profiler's own kind.
    Detailed { layout: &'static OccurrenceLayout, values: Span },
    /// The same, of many stacks.
    Weighted { layout: &'static OccurrenceLayout, values: Span, weights: Span },
}

impl What {
    /// The same for what is of one kind: its event, or its layout.
    fn kind(&self) -> (Option<EventId>, usize) {
        match self {
            What::Event { event, .. } => (Some(*event), 0),
            What::Detailed { layout, .. } | What::Weighted { layout, .. } => (None, std::ptr::from_ref(*layout).addr()),
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
    news: Vec<SymbolUpdate>,
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
        let start = self.raw.len();
        self.raw.extend_from_slice(raw);
        let (raw, beside) = (Span::to_end(start, &self.raw), self.keep(beside.into_iter()));
        let what = What::Event { event, raw, beside };
        self.occurrences.push(Occurrence { subject, what, stack });
    }

    /// An occurrence of a profiler's own kind.
    pub fn add<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        stack: Option<StackId>,
    ) {
        let values = self.keep(schema.values(occurrence));
        let what = What::Detailed { layout: schema.layout(), values };
        self.occurrences.push(Occurrence { subject, what, stack });
    }

    /// One in which many stacks had a share.
    pub fn add_weighted<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        weights: impl Iterator<Item = Weighted>,
    ) {
        let values = self.keep(schema.values(occurrence));
        let first = self.weights.len();
        self.weights.extend(weights);
        let weights = Span::to_end(first, &self.weights);
        let what = What::Weighted { layout: schema.layout(), values, weights };
        self.occurrences.push(Occurrence { subject, what, stack: None });
    }

    fn keep(&mut self, values: impl Iterator<Item = Value>) -> Span {
        let start = self.values.len();
        self.values.extend(values);
        self.heap_bytes += self.values[start..].iter().map(Value::heap_bytes).sum::<usize>();
        Span::to_end(start, &self.values)
    }

    /// What must be known before what follows is printed.
    pub fn tell(&mut self, news: SymbolUpdate) {
        self.news_bytes += news.bytes();
        self.news.push(news);
    }

    /// Takes the news out.
    pub fn take_news(&mut self) -> impl Iterator<Item = SymbolUpdate> + '_ {
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
                What::Detailed { layout, values } => {
                    What::Detailed { layout, values: values.moved(&old.values, &mut self.values) }
                }
                What::Weighted { layout, values, weights } => What::Weighted {
                    layout,
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
