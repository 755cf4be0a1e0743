//! Messages from the reading thread to the output thread.

use std::sync::Arc;

use crate::bpf::attached::AttachedProgram;
use crate::output::metrics::RunMeters;
use crate::report::{Batch, LateText, Table, Top, Value, Verdict};
use crate::stats::LostWindow;
use crate::stats::weights::Weighted;

/// A report of the weights of stacks, from the start of the run up to the end of an interval.
#[derive(Debug)]
pub struct StackReport {
    /// Index of the view.
    pub view: usize,
    pub time_ns: u64,
    pub span_ns: u64,
    /// Weights of periods that still go on, which are not in the sums yet.
    pub ongoing: Arc<Vec<Weighted>>,
    /// The lists to print. None: the report is for the flame graph alone.
    pub top: Option<Top>,
    /// This is the last report of the run.
    pub last: bool,
}

/// The end of an interval.
#[derive(Debug, Default)]
pub struct IntervalEnd {
    /// Index of the view.
    pub view: usize,
    pub interval: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub samples: u64,
    pub lost: u64,
    pub lost_side: u64,
    pub lost_windows: Vec<LostWindow>,
    pub discarded: u64,
    pub coverage: f64,
    /// Verdict on all tables of the interval.
    pub verdict: Verdict,
    /// BPF programs of other tools that may have hidden events.
    pub filtered_by: Vec<AttachedProgram>,
    /// The line of text that says what the loss means and how to avoid it.
    pub loss_line: Option<String>,
    pub totals: Vec<(&'static str, Value)>,
}

/// Counts of unwinding from copies of stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindingSums {
    /// Copies that arrived.
    pub windows: u64,
    /// Copies lost because their ring was full.
    pub lost_windows: u64,
    /// Copies unwound by the reading thread, in the ring.
    pub walked: u64,
    /// Copies unwound by the output thread.
    pub handed_on: u64,
    /// Unwind rules that were looked up; the output thread adds its own.
    pub rules: u64,
    /// Rules among these that were made from unwind tables.
    pub rules_made: u64,
}

impl UnwindingSums {
    /// The line for `-v`.
    pub fn describe(&self) -> String {
        let lost = match self.lost_windows {
            0 => String::new(),
            lost => format!(", {lost} more found their rings full"),
        };
        format!(
            "unwinding: {} copies of stacks{lost}; {} walked in the ring, {} by the output thread; {} rules looked up, {} of \
             them made from tables",
            self.windows, self.walked, self.handed_on, self.rules, self.rules_made
        )
    }
}

/// What a run of several views reports of each view at its end.
#[derive(Clone, Debug, Default)]
pub struct ViewEnd {
    pub samples: u64,
    pub lost: u64,
    pub lost_pairs: u64,
    pub discarded: u64,
}

/// What a run has weighed for a while.
#[derive(Clone, Debug)]
pub struct OwnWeight {
    /// CPU time of perf-prof itself, in per cent of a CPU.
    pub cpu_pct: f64,
    pub events_per_s: f64,
    /// None: it is not known which events were written, or they explain little of the CPU time.
    pub heaviest: Option<HeaviestEvent>,
    /// None: writing the records cost little.
    pub recording: Option<RecordingCost>,
}

/// The event that has written most samples, or several that have written about as many.
#[derive(Clone, Debug)]
pub struct HeaviestEvent {
    pub names: Vec<String>,
    /// Their share of all samples.
    pub pct: f64,
    /// The views that want the event, each with options that would make the kernel write fewer samples.
    pub views: Vec<(String, Vec<&'static str>)>,
}

/// What writing records takes from the tasks of a CPU.
#[derive(Clone, Debug)]
pub struct RecordingCost {
    /// The CPU that writes most of them.
    pub cpu: u32,
    /// The share of the CPU's time.
    pub pct: f64,
    pub per_s: f64,
    /// What one record usually costs.
    pub record_ns: u64,
}

/// The end of a run.
#[derive(Debug, Default)]
pub struct RunEnd {
    pub time_ns: u64,
    pub duration_ns: u64,
    pub samples: u64,
    pub lost: u64,
    /// Occurrences dropped because the output could not keep up.
    pub lost_output: u64,
    /// COMM, FORK, EXIT and MMAP2 records lost.
    pub lost_side: u64,
    /// SWITCH records lost, which stand in for the events that a hidden task suppresses.
    pub lost_switches: u64,
    /// Stacks dropped because their table was full.
    pub lost_stacks: u64,
    /// Pairs not followed because too many were open.
    pub lost_pairs: u64,
    /// Calls of probed functions lost.
    pub lost_calls: u64,
    /// Lower bound of the events that the kernel has counted and a hidden task has suppressed.
    pub unseen: u64,
    /// User stacks found by frame pointers, because no copy of the stack arrived or fitted. No record is missing.
    pub lost_unwind: u64,
    /// Copies of stacks were too frequent, and were turned off.
    pub windows_ended: bool,
    /// None: no event had copies of stacks.
    pub unwinding: Option<UnwindingSums>,
    /// Processes started by the target in which calls of probed functions may have gone unseen.
    pub children_in_doubt: u64,
    pub malformed: u64,
    pub discarded: u64,
    pub late: u64,
    pub intervals: u64,
    pub cpu_ns: u64,
    pub rss_peak_bytes: u64,
    pub locked_bytes: u64,
    pub wakeups: u64,
    pub record_bytes: u64,
    /// None: the run was light.
    pub weight: Option<Box<OwnWeight>>,
    pub totals: Vec<(&'static str, Value)>,
    /// BPF programs of other tools that may have hidden events.
    pub filtered_by: Vec<AttachedProgram>,
    /// One entry per view, if there are several views.
    pub views: Vec<ViewEnd>,
    /// The lines of the summary, for stderr.
    pub summary: Vec<String>,
}

impl RunEnd {
    /// A count of the whole run, per second.
    pub fn per_s(&self, number: u64) -> f64 {
        number as f64 / (self.duration_ns as f64 / 1e9).max(1e-9)
    }

    /// Number of all records and results that are missing, whatever the cause.
    pub fn missing(&self) -> u64 {
        let records = [self.lost, self.lost_side, self.lost_switches, self.lost_calls, self.unseen];
        let results = [self.lost_output, self.lost_stacks, self.lost_pairs];
        records.into_iter().chain(results).fold(self.malformed, u64::saturating_add)
    }
}

/// How far sums are printed: the tables of the views before `owner`, and those of `owner` up to the last one with this
/// name and title.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumsReach {
    pub owner: usize,
    pub last: Option<(&'static str, &'static str)>,
}

impl SumsReach {
    pub const ALL: SumsReach = SumsReach { owner: usize::MAX, last: None };

    /// The sums to print before a snapshot of the same report.
    fn before(snapshot: usize, tables: &[Table]) -> SumsReach {
        let owner = tables[snapshot].owner;
        let before = tables[..snapshot].iter().rfind(|table| table.owner == owner && !table.is_snapshot);
        SumsReach { owner, last: before.map(|table| (table.rows.table(), table.title)) }
    }
}

#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    /// The table of an interval that ended at `time_ns`.
    Table {
        table: Table,
        interval: u64,
        time_ns: u64,
        span_ns: u64,
        /// The table is a part of an interval that `QuietSums` prints later.
        is_quiet: bool,
    },
    /// Prints the tables of an interval that ended at `time_ns`, whose parts were sent before, as far as `reach`.
    QuietSums {
        interval: u64,
        time_ns: u64,
        span_ns: u64,
        reach: SumsReach,
    },
    Stacks(StackReport),
    Interval(IntervalEnd),
    End(RunEnd),
    Note(String),
    /// Publishes the metrics, with these numbers of the run itself.
    Metrics(RunMeters),
    /// Processes whose stacks may follow. Their mappings are read now, since the processes may exit before.
    LivePids(Vec<i32>),
    /// Texts that rows need, to be looked up at once.
    LookUps(Vec<Arc<LateText>>),
    /// Weights of stacks since the last message of this kind. The stacks may be forgotten after it.
    Weights {
        view: usize,
        rows: Vec<Weighted>,
    },
    /// Ends the screen: later output is printed below what was on the terminal before the run.
    EndScreen,
    #[cfg(test)]
    Panic,
}

impl Message {
    /// The tables of the last part of an interval, `part_ns` long, and the sums of all parts. Snapshots are printed at
    /// their place in the report.
    pub(crate) fn last_part(
        tables: Vec<Table>,
        interval: u64,
        time_ns: u64,
        part_ns: u64,
        span_ns: u64,
    ) -> Vec<Message> {
        let is_snapshot = |at: &usize| tables[*at].is_snapshot;
        let reaches: Vec<SumsReach> =
            (0..tables.len()).filter(is_snapshot).map(|at| SumsReach::before(at, &tables)).collect();
        let (snapshots, deltas) = tables.into_iter().partition::<Vec<Table>, _>(|table| table.is_snapshot);
        let sums = |reach| Message::QuietSums { interval, time_ns, span_ns, reach };
        let part = |table| Message::Table { table, interval, time_ns, span_ns: part_ns, is_quiet: true };
        let mut messages: Vec<Message> = deltas.into_iter().map(part).collect();
        for (table, reach) in snapshots.into_iter().zip(reaches) {
            messages.push(sums(reach));
            messages.push(Message::Table { table, interval, time_ns, span_ns, is_quiet: false });
        }
        messages.push(sums(SumsReach::ALL));
        messages
    }
}
