//! Pairs of events: an event that starts one, and the event that ends it, under the same key.
//!
//! A profiler declares what its pairs are ([`Declaration`]): their key, what is kept of a start, the row that counts a
//! pair. [`Relation`] finds the pairs, adds them up, and knows which starts wait, how many events were in no pair, and
//! which starts a loss made doubtful. The profiler hands over starts and ends, and shows the results.
//!
//! `key` has the usual keys, `positions` the chains of several events, `rows` the sums, `worst` the worst cases of a
//! run, `open` the starts without an end, `unpaired` the counts of events that were in no pair.

mod key;
mod open;
mod positions;
mod rows;
mod unpaired;
mod worst;

pub use key::RelationKey;
pub use open::WaitingStarts;
pub use positions::{Chain, PairPositions, Positions};
pub use rows::{PairRows, PairSums, RowKey};
pub use unpaired::Unpaired;
pub use worst::WorstCases;

use crate::cli::LatencyArgs;
use crate::perf::Sample;
use crate::profiler::{Context, Event, LostWindow, Timestamp};
use crate::relation::open::OpenLines;
use crate::report::Report;
use crate::stats::{CloseOutcome, OpenPair, PairKey, Pairs, WorstCase};
use crate::symbol::StackId;
use crate::task::Comm;

/// What the pairs of a profiler are.
pub trait Declaration {
    /// The common key of the two events of a pair.
    type Key: PairKey;
    /// What is stored of a start besides its time and task.
    type Start: Copy;
    /// What is known of an end besides its time and task.
    type End;
    /// The key of the rows in which pairs are added up.
    type Row: RowKey;
    /// The sums of a row besides lengths.
    type Sums: Clone + Default;

    /// The row that counts a pair.
    fn row(&self, key: &Self::Key, start: &OpenStart<Self::Start>, end: &PairEnd<Self::End>) -> Self::Row;

    /// Whether the end belongs to this start. If not, neither of them is in a pair.
    #[inline(always)]
    fn fits(&self, start: &Self::Start, end: &Self::End) -> bool {
        let _ = (start, end);
        true
    }

    /// Whether an end without a start may be the first event of its key, so that no start is missing.
    #[inline(always)]
    fn may_be_first(&self, key: &Self::Key, end: &Self::End) -> bool {
        let _ = (key, end);
        false
    }

    /// Adds a pair to the sums of its row, besides lengths.
    #[inline(always)]
    fn add(&self, sums: &mut Self::Sums, start: &OpenStart<Self::Start>, end: &PairEnd<Self::End>) {
        let _ = (sums, start, end);
    }

    /// Whether a start under this key surely still waits for its end. If not, the wait may have been given up without
    /// an event.
    fn waits_on(&self, key: &Self::Key) -> bool {
        let _ = key;
        true
    }

    /// Whether a flame graph has the pairs under this key, on the stacks of their starts.
    #[inline(always)]
    fn is_drawn(&self, key: &Self::Key) -> bool {
        let _ = key;
        true
    }
}

/// When and where an event happened, and which task was current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMoment {
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
}

impl EventMoment {
    #[inline(always)]
    pub fn of(sample: &Sample<'_>) -> EventMoment {
        EventMoment { time: sample.time, cpu: sample.cpu, pid: sample.pid, tid: sample.tid }
    }
}

/// What is stored of an event that starts a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStart<S> {
    pub cpu: u32,
    /// The task that was current.
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub stack: Option<StackId>,
    /// The profiler's own data of the start.
    pub own: S,
}

/// An event that may end a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairEnd<E> {
    pub moment: EventMoment,
    /// The profiler's own data of the end.
    pub own: E,
}

/// A start with its time.
pub type OpenStart<S> = OpenPair<PairStart<S>>;

/// What [`Relation::end`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOutcome<'a, S> {
    /// A pair, which was counted.
    Ended(&'a OpenStart<S>),
    /// The start under this key does not belong to this end.
    Unfit,
    /// No start waits under this key.
    NoStart,
    /// The start is from before a loss: its pair may have ended and begun anew unseen.
    Doubtful,
}

/// The pairs of a profiler. See [`Declaration`].
#[derive(Debug)]
pub struct Relation<D: Declaration> {
    pub declared: D,
    /// Which pairs have lines of their own.
    pub lengths: LatencyArgs,
    pairs: Pairs<D::Key, PairStart<D::Start>>,
    pub rows: PairRows<D::Row, D::Sums>,
    /// Pairs that take as long count as over the limit.
    than_ns: u64,
    /// The stack of a start gets the length of its pair as weight.
    draws_stacks: bool,
    /// The end of the last interval that was printed.
    interval_start: Timestamp,
    /// Ends without a start that are starts of pairs themselves.
    only_started: u64,
    skipped: u64,
    hidden: u64,
    /// Events in no pair in this interval.
    unpaired: Unpaired,
    /// Records were lost since doubtful starts were last dropped.
    has_lost: bool,
    open_lines: OpenLines<D::Key>,
}

/// The settings of a relation.
#[derive(Clone, Copy, Debug)]
pub struct RelationTerms {
    pub lengths: LatencyArgs,
    pub draws_stacks: bool,
    /// Limit of the memory for starts without an end.
    pub start_bytes: usize,
    /// The age at which starts expire. None: they never do.
    pub longest_ns: Option<u64>,
}

impl Default for RelationTerms {
    fn default() -> RelationTerms {
        RelationTerms { lengths: LatencyArgs::default(), draws_stacks: false, start_bytes: 32 << 20, longest_ns: None }
    }
}

impl<D: Declaration + Default> Default for Relation<D> {
    fn default() -> Relation<D> {
        Relation::new(D::default(), RelationTerms::default())
    }
}

impl<D: Declaration> Relation<D> {
    pub fn new(declared: D, terms: RelationTerms) -> Relation<D> {
        let RelationTerms { lengths, draws_stacks, start_bytes, longest_ns } = terms;
        Relation {
            declared,
            lengths,
            pairs: Pairs::new(start_bytes, longest_ns),
            rows: PairRows::default(),
            than_ns: lengths.than_ns().unwrap_or(u64::MAX),
            draws_stacks,
            interval_start: 0,
            only_started: 0,
            skipped: 0,
            hidden: 0,
            unpaired: Unpaired::default(),
            has_lost: false,
            open_lines: OpenLines::default(),
        }
    }

    /// Handles an event that starts a pair.
    #[inline(always)]
    pub fn start(&mut self, key: D::Key, at: EventMoment, comm: Comm, stack: Option<StackId>, own: D::Start) {
        let EventMoment { time, cpu, pid, tid } = at;
        self.pairs.open(key, time, PairStart { cpu, pid, tid, comm, stack, own });
    }

    /// Handles an event that may end a pair.
    #[inline(always)]
    pub fn end(&mut self, key: D::Key, end: &PairEnd<D::End>, ctx: &mut Context) -> PairOutcome<'_, D::Start> {
        let draws_stacks = self.draws_stacks && self.declared.is_drawn(&key);
        let outcome = self.count(key, end);
        if draws_stacks && let PairOutcome::Ended(OpenPair { since, open }) = outcome {
            ctx.weigh(open.pid, open.comm, open.stack, end.moment.time.saturating_sub(*since) / 1000);
        }
        outcome
    }

    // The start may have been written just before: only the needed fields are read, each with the width of its store,
    // so that store forwarding works.
    #[inline(always)]
    fn count(&mut self, key: D::Key, end: &PairEnd<D::End>) -> PairOutcome<'_, D::Start> {
        let at = &end.moment;
        let pair = match self.pairs.close(key, at.time) {
            CloseOutcome::Pair(pair) => pair,
            CloseOutcome::Unmatched => {
                self.only_started += u64::from(self.declared.may_be_first(&key, &end.own));
                return PairOutcome::NoStart;
            }
            CloseOutcome::Doubtful => return PairOutcome::Doubtful,
        };
        let OpenPair { since, open } = pair;
        if !self.declared.fits(&open.own, &end.own) {
            self.skipped += 1;
            return PairOutcome::Unfit;
        }
        let ns = at.time.saturating_sub(*since);
        let sums = self.rows.sum(self.declared.row(&key, pair, end));
        let case = || WorstCase { ns, at_ns: at.time, cpu: at.cpu, tid: open.tid, comm: open.comm, stack: open.stack };
        sums.latency.record(ns, at.time, case);
        sums.than += u64::from(ns >= self.than_ns);
        sums.before += u64::from(*since < self.interval_start);
        self.declared.add(&mut sums.own, pair, end);
        PairOutcome::Ended(pair)
    }

    /// Notes that records of a CPU were lost.
    pub fn lost(&mut self, window: &LostWindow) {
        self.pairs.lost(window.cpu, window.end_ns);
        self.has_lost = true;
    }

    /// Handles the events that concern all relations: the start of the run, and losses.
    pub fn on(&mut self, event: &Event<'_>, ctx: &Context) {
        match event {
            Event::Started { .. } => self.interval_start = ctx.started_ns,
            Event::Lost(window, _) => self.lost(window),
            _ => {}
        }
    }

    /// The time of the start that waits under a key.
    pub fn since(&self, key: D::Key) -> Option<u64> {
        self.pairs.since(key)
    }

    /// Notes that an event under this key was not seen: the waiting start is in no pair with a later event.
    pub fn hide(&mut self, key: D::Key) {
        self.hidden += u64::from(self.pairs.forget(key).is_some());
    }

    /// Removes the start that waits under this key, whose end will not come: its task has exited, for example.
    pub fn forget(&mut self, key: D::Key) -> Option<OpenStart<D::Start>> {
        self.pairs.forget(key)
    }

    /// The start that waits under a key.
    pub fn get(&self, key: D::Key) -> Option<&OpenStart<D::Start>> {
        self.pairs.get(&key)
    }

    /// Moves a start to another key, or to the same, and changes it. False: no start waits under `old`.
    pub fn move_start(&mut self, old: D::Key, new: D::Key, change: impl FnOnce(&mut PairStart<D::Start>)) -> bool {
        let start = self.pairs.forget(old);
        if let Some(OpenPair { since, mut open }) = start {
            change(&mut open);
            self.pairs.open(new, since, open);
        }
        start.is_some()
    }

    /// Adds a start that belongs to the same cause as another one.
    pub fn add_start(&mut self, key: D::Key, start: OpenStart<D::Start>) {
        self.pairs.open(key, start.since, start.open);
    }

    /// The starts that wait for their ends at `now`. Doubtful and expired starts are dropped and counted.
    pub fn waiting(&mut self, now: Timestamp) -> impl Iterator<Item = (&D::Key, &OpenStart<D::Start>)> {
        self.pairs.still_open(now)
    }

    /// The starts that no loss has made doubtful. Nothing is dropped.
    pub fn iter(&self) -> impl Iterator<Item = (&D::Key, &OpenStart<D::Start>)> {
        self.pairs.iter()
    }

    /// Drops the starts that a loss has made doubtful, and counts them.
    pub fn forget_doubtful(&mut self) {
        self.pairs.forget_doubtful();
    }

    /// To be called between samples: counts the events in no pair since the last call, up to `now`, and returns the
    /// waiting starts that get a line now: see `Relation::open_lines`.
    pub fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> Vec<(D::Key, OpenStart<D::Start>)> {
        self.drop_doubtful(now, ctx);
        self.open_lines(now)
    }

    /// Drops the starts that losses have made doubtful, and counts the events that were in no pair.
    fn drop_doubtful(&mut self, now: Timestamp, ctx: &mut Context) {
        if std::mem::take(&mut self.has_lost) {
            drop(self.pairs.still_open(now));
        }
        self.count_unpaired(ctx);
    }

    /// Counts the events that were in no pair since the last call, and returns these counts.
    pub fn count_unpaired(&mut self, ctx: &mut Context) -> Unpaired {
        let new = self.new_unpaired();
        ctx.view.discarded += new.pairs.doubtful;
        ctx.view.untracked += new.pairs.no_room;
        self.unpaired = self.unpaired.and(new);
        new
    }

    fn new_unpaired(&mut self) -> Unpaired {
        let mut pairs = self.pairs.take_counts();
        pairs.unmatched = pairs.unmatched.saturating_sub(std::mem::take(&mut self.only_started));
        Unpaired { pairs, skipped: std::mem::take(&mut self.skipped), hidden: std::mem::take(&mut self.hidden) }
    }

    /// Ends an interval. Returns the counts of its events that were in no pair.
    pub fn end_interval(&mut self, now: Timestamp, report: &Report) -> Unpaired {
        self.begin_interval(now, report);
        let new = self.new_unpaired(); // starts that have expired
        let unpaired = std::mem::take(&mut self.unpaired).and(new);
        if report.is_quiet {
            self.unpaired = unpaired; // the printed interval includes those of its quiet parts
        }
        unpaired
    }

    /// Ends an interval, for a profiler that uses the counts of [`Relation::count_unpaired`] itself.
    pub fn begin_interval(&mut self, now: Timestamp, report: &Report) {
        if !report.is_quiet {
            self.interval_start = now;
        }
    }

    /// The stacks of all starts and of the worst cases.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.pairs.opened().filter_map(|start| start.open.stack).chain(self.rows.stacks())
    }
}
