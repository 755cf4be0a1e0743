//! Metrics: the tables of a run, added up since its start, for clients that scrape them.
//!
//! The output thread adds up deltas by their labels (`registry`, one `table` for each table), and after each interval
//! publishes a snapshot of plain data (`family`), with numbers of the run itself (`run`), numbers that belong to no row
//! (`totals`), and names by the convention (`names`). The server thread (`http`) encodes the newest snapshot when a
//! client asks (`answers`), as text (`openmetrics`) or protobuf (`protobuf`); it never waits for the output thread, and
//! its CPU time is limited (`allowance`).

mod allowance;
pub mod answers;
mod family;
pub mod http;
pub mod names;
mod openmetrics;
mod protobuf;
mod registry;
mod run;
pub mod table;
mod totals;

use std::sync::{Arc, Mutex, PoisonError};

use crate::output::metrics::family::MetricsSnapshot;
pub use crate::output::metrics::registry::MetricsRegistry;
pub use crate::output::metrics::table::{MetricEntry, RowFunction};
pub use crate::output::metrics::totals::{MeterTotal, TotalKind};
use crate::report::Verdict;

/// The newest snapshot: published by one thread, read by another.
#[derive(Clone, Debug, Default)]
pub struct SnapshotCell(Arc<Mutex<Arc<MetricsSnapshot>>>);

impl SnapshotCell {
    fn publish(&self, snapshot: MetricsSnapshot) {
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), Arc::new(snapshot));
        drop(old); // dropped without holding the lock
    }

    pub(super) fn get(&self) -> Arc<MetricsSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Numbers of the run itself, as of the end of an interval.
#[derive(Clone, Debug, Default)]
pub struct RunMeters {
    pub start_ns: u64,
    pub time_ns: u64,
    pub cpu_ns: u64,
    pub rss_peak_bytes: u64,
    pub locked_bytes: u64,
    pub wakeups: u64,
    pub malformed: u64,
    pub late: u64,
    /// Lines that were dropped because the output could not keep up; `dropped_stacks`: stacks dropped for that reason
    /// or for lack of room.
    pub dropped_lines: u64,
    pub dropped_stacks: u64,
    /// Bytes that wait for the output thread.
    pub waiting_bytes: u64,
    pub views: Vec<ViewMeters>,
}

/// Numbers of a view since the start of the run.
#[derive(Clone, Debug, Default)]
pub struct ViewMeters {
    pub samples: u64,
    pub lost: u64,
    pub lost_side: u64,
    pub untracked: u64,
    pub discarded: u64,
    /// The coverage of the last interval.
    pub coverage: f64,
    pub verdict: Verdict,
    /// Numbers of the view's last report that belong to no row.
    pub totals: Vec<MeterTotal>,
}
