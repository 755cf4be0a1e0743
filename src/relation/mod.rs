//! Pairs of events: an event that starts one, and the event that ends it, under the same key.
//!
//! A profiler declares what its pairs are ([`Declaration`]): their key, what is kept of a start, the row that counts a pair.
//! [`Relation`] finds the pairs, adds them up, and knows what waits, what was in no pair, and what a loss made doubtful.
//! The profiler hands over starts and ends, and shows what comes back.
//!
//! `key` has the usual keys, `positions` the chains of several events, `rows` the sums, `worst` the worst cases of a run,
//! `open` starts without an end, `unpaired` the counts of what was in no pair.

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
    /// What the two events of a pair have in common.
    type Key: PairKey;
    /// What is kept of a start besides its time and task.
    type Start: Copy;
    /// What is known of an end besides its time and task.
    type End;
    /// What pairs are added up by.
    type Row: RowKey;
    /// What is added up for a row besides lengths.
    type Sums: Clone + Default;

    /// The row that counts a pair.
    fn row(&self, key: &Self::Key, start: &OpenStart<Self::Start>, end: &PairEnd<Self::End>) -> Self::Row;

    /// Whether the end is one of this start. If not, neither of them is in a pair.
    #[inline(always)]
    fn fits(&self, start: &Self::Start, end: &Self::End) -> bool {
        let _ = (start, end);
        true
    }

    /// Whether an end without a start may be the first event of its key: then nothing is missing.
    #[inline(always)]
    fn may_be_first(&self, key: &Self::Key, end: &Self::End) -> bool {
        let _ = (key, end);
        false
    }

    /// Adds up what a row has besides lengths.
    #[inline(always)]
    fn add(&self, sums: &mut Self::Sums, start: &OpenStart<Self::Start>, end: &PairEnd<Self::End>) {
        let _ = (sums, start, end);
    }

    /// Whether a start without an end still waits for it. If not, it may have been given up without an event.
    fn waits_on(&self, key: &Self::Key) -> bool {
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

/// What is kept of an event that starts a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStart<S> {
    pub cpu: u32,
    /// The task that was current.
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub stack: Option<StackId>,
    /// What the profiler keeps.
    pub own: S,
}

/// An event that may end a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairEnd<E> {
    pub moment: EventMoment,
    /// What the profiler knows of it.
    pub own: E,
}

/// A start with its time.
pub type OpenStart<S> = OpenPair<PairStart<S>>;

/// What [`Relation::end`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOutcome<'a, S> {
    /// A pair, which was counted.
    Ended(&'a OpenStart<S>),
    /// The start under this key is none of this end.
    Unfit,
    /// No start waits under this key.
    NoStart,
    /// A start from before a loss: it may have ended and begun anew unseen.
    Doubtful,
}

/// The pairs of a profiler. See [`Declaration`].
#[derive(Debug)]
pub struct Relation<D: Declaration> {
    pub declared: D,
    /// Which pairs have lines.
    pub lengths: LatencyArgs,
    pairs: Pairs<D::Key, PairStart<D::Start>>,
    pub rows: PairRows<D::Row, D::Sums>,
    /// Pairs that take as long count as over the limit.
    than_ns: u64,
    /// Stacks of starts have the length of their pairs as weights.
    draws_stacks: bool,
    /// The end of the last interval that was printed.
    interval_start: Timestamp,
    /// Ends without a start that start a pair themselves.
    only_started: u64,
    skipped: u64,
    hidden: u64,
    /// Of the interval.
    unpaired: Unpaired,
    /// Records were lost since starts that are in doubt were dropped.
    has_lost: bool,
    open_lines: OpenLines<D::Key>,
}

/// What a relation is made with.
#[derive(Clone, Copy, Debug)]
pub struct RelationTerms {
    pub lengths: LatencyArgs,
    pub draws_stacks: bool,
    /// Memory for starts without an end.
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

    /// An event that starts a pair.
    #[inline(always)]
    pub fn start(&mut self, key: D::Key, at: EventMoment, comm: Comm, stack: Option<StackId>, own: D::Start) {
        let EventMoment { time, cpu, pid, tid } = at;
        self.pairs.open(key, time, PairStart { cpu, pid, tid, comm, stack, own });
    }

    /// An event that may end a pair.
    #[inline(always)]
    pub fn end(&mut self, key: D::Key, end: &PairEnd<D::End>, ctx: &mut Context) -> PairOutcome<'_, D::Start> {
        let draws_stacks = self.draws_stacks;
        let outcome = self.count(key, end);
        if draws_stacks && let PairOutcome::Ended(OpenPair { since, open }) = outcome {
            ctx.weigh(open.pid, open.comm, open.stack, end.moment.time.saturating_sub(*since) / 1000);
        }
        outcome
    }

    // The start may have been written just before: only what is needed is read of it, as it was written.
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

    /// Records of a CPU were lost.
    pub fn lost(&mut self, window: &LostWindow) {
        self.pairs.lost(window.cpu, window.end_ns);
        self.has_lost = true;
    }

    /// Takes what concerns all relations: the start of the run, and losses.
    pub fn on(&mut self, event: &Event<'_>, ctx: &Context) {
        match event {
            Event::Started { .. } => self.interval_start = ctx.started_ns,
            Event::Lost(window, _) => self.lost(window),
            _ => {}
        }
    }

    /// When the start that waits under a key happened.
    pub fn since(&self, key: D::Key) -> Option<u64> {
        self.pairs.since(key)
    }

    /// An event under this key was not seen: the start that waits is in no pair with a later one.
    pub fn hide(&mut self, key: D::Key) {
        self.hidden += u64::from(self.pairs.forget(key).is_some());
    }

    /// Nothing ends the pair that waits under this key: its task has exited, say.
    pub fn forget(&mut self, key: D::Key) -> Option<OpenStart<D::Start>> {
        self.pairs.forget(key)
    }

    /// A start goes on under another key, and its thread under the number `tid`.
    pub fn renumber(&mut self, old: D::Key, new: D::Key, tid: i32) {
        if let Some(OpenPair { since, open }) = self.pairs.forget(old) {
            self.pairs.open(new, since, PairStart { tid, ..open });
        }
    }

    /// The starts that wait for their ends at `now`. Those in doubt and those that have expired are dropped and counted.
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

    /// Between samples: counts what was in no pair since the last call, up to `now`, and returns the starts that wait and have a
    /// line now: see `Relation::open_lines`.
    pub fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> Vec<(D::Key, OpenStart<D::Start>)> {
        self.drop_doubtful(now, ctx);
        self.open_lines(now)
    }

    /// Drops the starts that losses have made doubtful, and counts what was in no pair.
    fn drop_doubtful(&mut self, now: Timestamp, ctx: &mut Context) {
        if std::mem::take(&mut self.has_lost) {
            drop(self.pairs.still_open(now));
        }
        self.count_unpaired(ctx);
    }

    /// Counts what was in no pair since the last call, and returns it.
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

    /// An interval ends. Returns what was in no pair in it.
    pub fn end_interval(&mut self, now: Timestamp, report: &Report) -> Unpaired {
        self.begin_interval(now, report);
        let new = self.new_unpaired(); // those that have expired
        let unpaired = std::mem::take(&mut self.unpaired).and(new);
        if report.is_quiet {
            self.unpaired = unpaired; // the interval that is printed has them, too
        }
        unpaired
    }

    /// An interval ends, for a profiler that takes what [`Relation::count_unpaired`] returns.
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
