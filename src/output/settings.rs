//! What the output thread receives before the first message.

use crate::host::Host;
use crate::output::drawing::flame::FlameWriter;
use crate::output::drawing::heatmap::HeatmapWriter;
use crate::output::event_text::EventText;
use crate::output::metrics::SnapshotCell;
use crate::output::screen::ScreenPort;
use crate::symbol::budget::Budget;
use crate::symbol::elf::symbols::SymbolOptions;
use crate::tep::tracefs::strings::KernelStrings;

/// Settings of the output thread, which it receives once.
#[derive(Debug)]
pub struct OutputSettings {
    /// What lines about the whole run begin with.
    pub name: String,
    pub views: Vec<ViewSettings>,
    pub json: bool,
    /// How events become text, by event index; None for events that are never printed.
    pub events: Vec<Option<EventText>>,
    /// Kernel strings that `const char *` fields of the events point to.
    pub strings: KernelStrings,
    pub host: Host,
    /// Samples hold callchains.
    pub callchains: bool,
    pub symbols: SymbolOptions,
    /// Memory limits for data whose size traced programs decide, such as symbols.
    pub budget: Budget,
    /// At the end of the run, say how many frames have names.
    pub coverage: bool,
    /// Each line is written at once, even before names are looked up, which may take long.
    pub prompt: bool,
    /// The output is synced to the disk after each write, so that it survives a crash of the machine.
    pub durable: bool,
    /// The cell in which metrics are published. None: no metrics.
    pub metrics: Option<SnapshotCell>,
    /// Results are shown on a screen while the run goes on.
    pub screen: Option<ScreenPort>,
}

/// Settings of the output of one view.
#[derive(Debug)]
pub struct ViewSettings {
    /// The view's name for the user.
    pub name: String,
    pub profiler: &'static str,
    /// Occurrences carry stacks.
    pub stacks: bool,
    pub flame: Option<FlameWriter>,
    pub heatmap: Option<HeatmapWriter>,
    /// The profiler's first table, whose name is left out of metric names.
    pub main_table: &'static str,
}
