//! Occurrences on their way to the output thread.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::EventId;
use crate::report::{OccurrenceLayout, OccurrenceSchema, Value};
use crate::stats::weights::Weighted;
use crate::symbol::{StackId, SymbolUpdate};
use crate::task::Comm;

/// The task, time and CPU of an occurrence.
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
pub enum OccurrenceBody {
    /// A tracepoint's record: `raw` is in the batch's bytes, `beside` is a value to show with it, if there is one.
    Event { event: EventId, raw: Span, beside: Span },
    /// An occurrence of a profiler's own kind.
    Detailed { layout: &'static OccurrenceLayout, values: Span },
    /// As `Detailed`, with the weights of many stacks.
    Weighted { layout: &'static OccurrenceLayout, values: Span, weights: Span },
}

impl OccurrenceBody {
    /// Identifies the kind of an occurrence: the event, or the address of the layout.
    fn kind(&self) -> (Option<EventId>, usize) {
        match self {
            OccurrenceBody::Event { event, .. } => (Some(*event), 0),
            OccurrenceBody::Detailed { layout, .. } | OccurrenceBody::Weighted { layout, .. } => {
                (None, std::ptr::from_ref(*layout).addr())
            }
        }
    }
}

/// A range of a batch's bytes or values. It is small, since there are many and they are sent to another thread.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// From `start` to the end of `all`. A batch ends long before 4 GiB; a span beyond that is empty.
    fn to_end<T>(start: usize, all: &[T]) -> Span {
        let [Ok(start), Ok(len)] = [start, all.len() - start].map(u32::try_from) else {
            return Span { start: 0, len: 0 };
        };
        Span { start, len }
    }

    /// Copies the elements of the span to another batch, and returns their span there.
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
    /// Index of the occurrence's view.
    pub view: u16,
    pub subject: Subject,
    pub body: OccurrenceBody,
    pub stack: Option<StackId>,
}

/// Occurrences on their way to the output thread. Its memory is reused.
#[derive(Debug, Default)]
pub struct Batch {
    /// The view of the occurrences that are added.
    view: u16,
    pub occurrences: Vec<Occurrence>,
    pub raw: Vec<u8>,
    pub values: Vec<Value>,
    /// Bytes that the values have on the heap.
    heap_bytes: usize,
    pub weights: Vec<Weighted>,
    /// Stacks and mappings that must be known before the occurrences are printed.
    updates: Vec<SymbolUpdate>,
    update_bytes: usize,
    /// Some of the updates must not wait: mappings, whose files may vanish.
    has_urgent_updates: bool,
}

impl Batch {
    /// Replaces this batch by an empty one. Returns this one.
    pub fn hand_over(&mut self, next: Batch) -> Batch {
        let next = Batch { view: self.view, ..next };
        std::mem::replace(self, next)
    }

    /// Occurrences that are added from now on are of this view.
    pub fn set_view(&mut self, view: u16) {
        self.view = view;
    }

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
        let body = OccurrenceBody::Event { event, raw, beside };
        self.occurrences.push(Occurrence { view: self.view, subject, body, stack });
    }

    /// Adds an occurrence of a profiler's own kind.
    pub fn add<O>(
        &mut self,
        schema: &'static OccurrenceSchema<O>,
        subject: Subject,
        occurrence: &O,
        stack: Option<StackId>,
    ) {
        let values = self.keep(schema.values(occurrence));
        let body = OccurrenceBody::Detailed { layout: schema.layout(), values };
        self.occurrences.push(Occurrence { view: self.view, subject, body, stack });
    }

    /// Adds an occurrence with the weights of the stacks that contributed to it.
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
        let body = OccurrenceBody::Weighted { layout: schema.layout(), values, weights };
        self.occurrences.push(Occurrence { view: self.view, subject, body, stack: None });
    }

    fn keep(&mut self, values: impl Iterator<Item = Value>) -> Span {
        let start = self.values.len();
        self.values.extend(values);
        self.heap_bytes += self.values[start..].iter().map(Value::heap_bytes).sum::<usize>();
        Span::to_end(start, &self.values)
    }

    /// Adds an update that must be known before later occurrences are printed.
    pub fn push_update(&mut self, update: SymbolUpdate) {
        self.update_bytes += update.bytes();
        self.has_urgent_updates |= !update.may_wait();
        self.updates.push(update);
    }

    pub fn take_updates(&mut self) -> impl Iterator<Item = SymbolUpdate> + '_ {
        self.update_bytes = 0;
        self.updates.drain(..)
    }

    pub fn update_bytes(&self) -> usize {
        self.update_bytes
    }

    /// Size of everything but the updates.
    pub fn bytes(&self) -> usize {
        self.raw.len()
            + self.occurrences.len() * size_of::<Occurrence>()
            + self.values.len() * size_of::<Value>()
            + self.heap_bytes
            + self.weights.len() * size_of::<Weighted>()
    }

    pub fn is_empty(&self) -> bool {
        self.occurrences.is_empty() && self.updates.is_empty()
    }

    /// Nothing in the batch is worth waking the output thread.
    pub fn may_wait(&self) -> bool {
        self.occurrences.is_empty() && !self.has_urgent_updates
    }

    pub fn clear(&mut self) {
        self.drop_occurrences();
        self.updates.clear();
        self.update_bytes = 0;
        self.has_urgent_updates = false;
    }

    /// Drops the occurrences, but keeps the updates: later occurrences may refer to them.
    pub fn drop_occurrences(&mut self) {
        self.occurrences.clear();
        self.raw.clear();
        self.values.clear();
        self.heap_bytes = 0;
        self.weights.clear();
    }

    /// Drops the frequent kinds of occurrences, so that rare ones are not lost among them. The rare kinds stay, rarest
    /// first, up to an eighth of all occurrences.
    pub fn thin(&mut self) {
        let mut counts: FxHashMap<_, usize> = FxHashMap::default();
        self.occurrences.iter().for_each(|occurrence| *counts.entry(occurrence.body.kind()).or_default() += 1);
        let mut kinds: Vec<_> = counts.into_iter().map(|(kind, count)| (count, kind)).collect();
        kinds.sort_unstable();
        let mut room = self.occurrences.len() / 8;
        let fits = |(count, kind)| {
            room = usize::checked_sub(room, count)?;
            Some(kind)
        };
        let rare: FxHashSet<_> = kinds.into_iter().map_while(fits).collect();
        let old = std::mem::take(self);
        (self.updates, self.update_bytes) = (old.updates, old.update_bytes);
        self.has_urgent_updates = old.has_urgent_updates;
        self.view = old.view;
        for Occurrence { view, subject, body, stack } in old.occurrences {
            if !rare.contains(&body.kind()) {
                continue;
            }
            let body = match body {
                OccurrenceBody::Event { event, raw, beside } => OccurrenceBody::Event {
                    event,
                    raw: raw.moved(&old.raw, &mut self.raw),
                    beside: beside.moved(&old.values, &mut self.values),
                },
                OccurrenceBody::Detailed { layout, values } => {
                    OccurrenceBody::Detailed { layout, values: values.moved(&old.values, &mut self.values) }
                }
                OccurrenceBody::Weighted { layout, values, weights } => OccurrenceBody::Weighted {
                    layout,
                    values: values.moved(&old.values, &mut self.values),
                    weights: weights.moved(&old.weights, &mut self.weights),
                },
            };
            self.occurrences.push(Occurrence { view, subject, body, stack });
        }
        self.heap_bytes = self.values.iter().map(Value::heap_bytes).sum();
    }

    /// Releases memory after a flood: no vector of an emptied batch keeps more than `part_bytes`.
    pub fn shrink(&mut self, part_bytes: usize) {
        fn shrink<T>(part: &mut Vec<T>, bytes: usize) {
            part.shrink_to(bytes / size_of::<T>());
        }
        shrink(&mut self.occurrences, part_bytes);
        shrink(&mut self.raw, part_bytes);
        shrink(&mut self.values, part_bytes);
        shrink(&mut self.weights, part_bytes);
        shrink(&mut self.updates, part_bytes);
    }
}
