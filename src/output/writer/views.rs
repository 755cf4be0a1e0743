//! What the writer keeps for each view of the run.

use crate::output::json::ViewLabel;
use crate::output::settings::ViewSettings;
use crate::output::stack_weights::fold::Folded;
use crate::output::stack_weights::unsettled::Unsettled;
use crate::output::text::flood::Flood;

pub(super) struct WriterView {
    pub settings: ViewSettings,
    /// Weights of stacks since the start of the run, except those in `unsettled`.
    pub folded: Folded,
    pub unsettled: Unsettled,
    pub flood: Flood,
    /// Occurrences that seldom matter.
    pub folded_waits: Flood,
}

impl WriterView {
    /// One of `count` views.
    pub fn new(settings: ViewSettings, count: usize) -> WriterView {
        WriterView {
            settings,
            folded: Folded::of_one_of(count),
            unsettled: Unsettled::default(),
            flood: Flood::default(),
            folded_waits: Flood::default(),
        }
    }

    pub fn floods_mut(&mut self) -> [&mut Flood; 2] {
        [&mut self.flood, &mut self.folded_waits]
    }

    pub fn label(&self) -> ViewLabel<'_> {
        ViewLabel { view: &self.settings.name, profiler: self.settings.profiler }
    }
}

impl<'a> ViewLabel<'a> {
    /// The label of the view at an index.
    pub(super) fn of(views: &'a [WriterView], index: usize) -> ViewLabel<'a> {
        views.get(index).map_or(ViewLabel { view: "", profiler: "" }, WriterView::label)
    }
}
