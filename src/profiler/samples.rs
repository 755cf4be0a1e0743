//! Samples on their way to one profiler.

use anyhow::Result;
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use crate::perf::evlist::Evlist;
use crate::perf::evsel::EventId;
use crate::perf::layout::Shape;
use crate::perf::record::{Sample, record_type, sample_identifier};
use crate::perf::short::{Short, Start};
use crate::profiler::Context;
use crate::ringbuf::Piece;

/// The samples at the start of a piece that are of one profiler.
///
/// They are decoded where they are used: what a profiler does not look at is not even read.
pub struct Samples<'p, 'a> {
    piece: &'p mut Piece<'a>,
    evlist: &'p Evlist,
    owner: u32,
    taken: Taken,
    most: u64, // relevant ones
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Those that the profiler did not ignore.
    pub relevant: u64,
    pub ignored: u64,
    /// Of the relevant ones.
    pub malformed: u64,
}

/// What a sample was to its profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Relevant,
    /// None of the profiler's business after all: it does not count.
    Ignored,
    /// It lacks something that its event has. It counts, and the run goes on.
    Malformed,
}

impl<'p, 'a> Samples<'p, 'a> {
    /// Up to `most` that are relevant.
    pub fn new(piece: &'p mut Piece<'a>, evlist: &'p Evlist, owner: u32, most: u64) -> Samples<'p, 'a> {
        Samples { piece, evlist, owner, taken: Taken::default(), most }
    }

    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Gives them to `take`, one after the other. Ends early when something is to be done about the output.
    #[inline(always)]
    pub fn each(&mut self, ctx: &mut Context, take: impl FnMut(EventId, &Sample<'_>, &mut Context) -> Result<Use>) {
        self.up_to(u64::MAX, ctx, take);
    }

    /// Gives it one.
    #[inline(always)]
    pub fn one(&mut self, ctx: &mut Context, take: impl FnMut(EventId, &Sample<'_>, &mut Context) -> Result<Use>) {
        self.up_to(1, ctx, take);
    }

    /// Lets `take` have them, and then shows those that it took to `each`.
    pub fn seen(&mut self, take: impl FnOnce(&mut Self), mut each: impl FnMut(EventId, &Sample<'_>)) {
        self.piece.leave_trail();
        take(self);
        for piece in self.piece.take_trail() {
            let mut piece = Piece::of(piece, false);
            let mut samples = Samples::new(&mut piece, self.evlist, self.owner, u64::MAX);
            while let Some((event, sample)) = samples.next() {
                each(event, &sample);
            }
        }
    }

    /// Gives it those at the start that are short, and of events of the shape `Plain` or, with `ANY`, of any but `Other`. Ends
    /// early when new stacks are known. For a profiler that has no output to hand over meanwhile, nor stacks without `ANY`.
    #[inline(always)]
    pub fn each_short<const ANY: bool>(
        &mut self,
        ctx: &mut Context,
        mut take: impl FnMut(EventId, Short<'_>, &mut Context) -> Use,
    ) {
        /// Two cache lines: so much most tracepoints' records take at most without a callchain.
        const SHORT: usize = 128;
        let ids = self.evlist.near_ids();
        loop {
            let mut walk = self.piece.walk();
            let most = self.most - self.taken.relevant;
            let (mut relevant, mut ignored, mut malformed) = (0, 0, 0);
            while relevant < most
                && let Some(start) = Start::of(walk.rest())
                && let Some(route) = ids.get(start.identifier())
                && route.owner == self.owner
                && let Some(short) = match route.shape {
                    shape if ANY => start.shaped(shape, walk.rest()),
                    Shape::Plain => start.plain(SHORT),
                    _ => None,
                }
                && walk.take::<ANY>(short.bytes(), short.time())
            {
                match take(route.event, short, ctx) {
                    Use::Relevant => relevant += 1,
                    Use::Ignored => ignored += 1,
                    Use::Malformed => {
                        relevant += 1;
                        malformed += 1;
                    }
                }
                if ANY && ctx.stacks.is_changed() {
                    break;
                }
            }
            self.piece.follow(walk, relevant + ignored);
            self.taken.relevant += relevant;
            self.taken.ignored += ignored;
            self.taken.malformed += malformed;
            if !self.piece.turn() {
                break;
            }
        }
    }

    /// No more than so many, also of those that are ignored.
    #[inline(always)]
    fn up_to(
        &mut self,
        mut number: u64,
        ctx: &mut Context,
        mut take: impl FnMut(EventId, &Sample<'_>, &mut Context) -> Result<Use>,
    ) {
        let most = self.most - self.taken.relevant;
        let mut left = most;
        while left > 0
            && number > 0
            && let Some((event, sample)) = self.next()
        {
            number -= 1;
            match take(event, &sample, ctx) {
                Ok(Use::Relevant) => left -= 1,
                Ok(Use::Ignored) => self.taken.ignored += 1,
                Ok(Use::Malformed) | Err(_) => {
                    left -= 1;
                    self.taken.malformed += 1;
                }
            }
            if ctx.stacks.is_changed() || ctx.output.is_large() {
                break;
            }
        }
        self.taken.relevant += most - left;
    }

    /// Anything else than a sound sample of this profiler is left where it is.
    #[inline(always)]
    fn next(&mut self) -> Option<(EventId, Sample<'p>)> {
        loop {
            let next = self.piece.peek()?;
            let record = next.record();
            if record_type(record) != PERF_RECORD_SAMPLE {
                return None;
            }
            let route = self.evlist.route(sample_identifier(record)?).filter(|route| route.owner == self.owner)?;
            let layout = self.evlist.evsel(route.event).layout();
            let mut sample = layout.shaped_sample(route.shape, record).ok()?;
            match self.piece.take(next, sample.time) {
                Some(late) => {
                    sample.late = late;
                    return Some((route.event, sample));
                }
                None if self.piece.turn() => {}
                None => return None,
            }
        }
    }
}
