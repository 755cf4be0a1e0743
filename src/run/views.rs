//! The views of a run: each is a profiler with its own counts, losses and limit.

use crate::perf::classes::Class;
use crate::perf::evlist::Evlist;
use crate::profiler::{Context, Profiler, ViewSums};
use crate::report::{Basis, Verdict};
use crate::run::loss::LossBook;

/// One profiler of a run.
pub struct View {
    pub profiler: Box<dyn Profiler>,
    /// The view's sums; while its profiler is called, they are in the context.
    sums: ViewSums,
    /// `-N`
    pub limit: Option<u64>,
    /// Samples that the profiler did not ignore.
    pub samples: u64,
    /// Losses in the rings of the view's events.
    pub loss: LossBook,
    /// The counts at the end of the last interval.
    before: ViewCounts,
}

/// Counts of a view.
#[derive(Clone, Copy, Debug, Default)]
struct ViewCounts {
    samples: u64,
    missing: MissingCounts,
}

/// Counts of data missing from the results, by the effect on the verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissingCounts {
    pub lost: u64,
    pub untracked: u64,
    pub stacks: u64,
    pub discarded: u64,
    pub late: u64,
}

impl MissingCounts {
    pub fn since(self, before: MissingCounts) -> MissingCounts {
        MissingCounts {
            lost: self.lost.saturating_sub(before.lost),
            untracked: self.untracked.saturating_sub(before.untracked),
            stacks: self.stacks.saturating_sub(before.stacks),
            discarded: self.discarded.saturating_sub(before.discarded),
            late: self.late.saturating_sub(before.late),
        }
    }

    /// `by_stack`: rows have stacks, so a sample without its stack is missing from its row.
    pub fn verdict(self, by_stack: bool) -> Verdict {
        if self.lost > 0 || self.untracked > 0 || by_stack && self.stacks > 0 {
            Verdict::LowerBound
        } else if self.discarded > 0 || self.late > 0 {
            Verdict::Discarded
        } else {
            Verdict::Exact
        }
    }

    /// The verdict on a table. `before`: the counts at the start of its interval. None: the table is made of counters.
    pub fn verdict_on(self, basis: Basis, before: MissingCounts) -> Option<Verdict> {
        match basis {
            Basis::Counters => None,
            Basis::Interval => Some(self.since(before).verdict(false)),
            Basis::Run => Some(self.verdict(true)),
            Basis::RunByRow => Some(MissingCounts { discarded: 0, ..self }.verdict(true)),
        }
    }
}

impl View {
    fn new(profiler: Box<dyn Profiler>) -> View {
        View {
            profiler,
            sums: ViewSums::default(),
            limit: None,
            samples: 0,
            loss: LossBook::default(),
            before: ViewCounts::default(),
        }
    }

    /// Number of samples that the view still takes.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.samples))
    }

    /// Starts the next interval. Returns the samples in the interval that ended, and what was missing before it.
    pub fn next_interval(&mut self, missing: MissingCounts) -> (u64, MissingCounts) {
        let before = std::mem::replace(&mut self.before, ViewCounts { samples: self.samples, missing });
        (self.samples - before.samples, before.missing)
    }
}

/// All views of a run.
pub struct Views {
    all: Vec<View>,
    /// Index of the view whose sums are in the context.
    current: usize,
}

impl Views {
    /// The context must be new, since it has the sums of the first view.
    pub fn new(profilers: Vec<Box<dyn Profiler>>) -> Views {
        Views { all: profilers.into_iter().map(View::new).collect(), current: 0 }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &View> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut View> {
        self.all.iter_mut()
    }

    /// Makes `index` the view whose profiler is called next: the context counts for this view from now on.
    #[inline]
    pub fn enter(&mut self, index: usize, ctx: &mut Context) -> Option<&mut View> {
        if index != self.current {
            self.switch_to(index, ctx);
        }
        self.all.get_mut(index)
    }

    #[inline(never)]
    fn switch_to(&mut self, index: usize, ctx: &mut Context) {
        let Some(number) = u16::try_from(index).ok().filter(|_| index < self.all.len()) else { return };
        std::mem::swap(&mut self.all[self.current].sums, &mut ctx.view);
        std::mem::swap(&mut self.all[index].sums, &mut ctx.view);
        self.current = index;
        ctx.output.batch.set_view(number);
    }

    /// The sums of a view.
    pub fn sums<'a>(&'a self, index: usize, ctx: &'a Context) -> Option<&'a ViewSums> {
        if index == self.current { Some(&ctx.view) } else { self.all.get(index).map(|view| &view.sums) }
    }

    /// The sum of a count over all views.
    pub fn sum(&self, ctx: &Context, count: impl Fn(&ViewSums) -> u64) -> u64 {
        (0..self.len()).filter_map(|index| self.sums(index, ctx)).map(count).sum()
    }

    /// Whether all views have reached their limits of samples.
    #[inline]
    pub fn have_enough(&self) -> bool {
        self.all.iter().all(|view| view.room() == 0)
    }

    /// The views with events in rings of `class`, which a loss there concerns.
    pub fn in_class(&self, class: Class, evlist: &Evlist) -> Vec<usize> {
        (0..self.len()).filter(|&view| self.len() == 1 || evlist.is_in(class, view)).collect()
    }

    /// Enters a loss in the book of a view.
    pub fn count_loss(&mut self, index: usize, count: impl FnOnce(&mut LossBook)) {
        if let Some(view) = self.all.get_mut(index) {
            count(&mut view.loss);
        }
    }
}
