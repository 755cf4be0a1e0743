//! Metrics: the tables of a run, added up since its start, for whoever scrapes them.
//!
//! The output thread adds deltas up by their labels (`registry`), and publishes a snapshot of plain data after each
//! interval (`family`), with numbers of the run itself (`run`), those of no row (`totals`) and names by the convention (`names`). The thread of the
//! server (`http`) encodes the newest one when a client asks (`answers`), as text (`openmetrics`) or protobuf
//! (`protobuf`); it never waits for the output, and has a limit on its CPU time (`allowance`).

mod allowance;
pub mod answers;
mod family;
pub mod http;
mod names;
mod openmetrics;
mod protobuf;
mod registry;
mod run;
mod totals;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::output::metrics::family::MetricsSnapshot;
pub use crate::output::metrics::registry::{MetricEntry, MetricsRegistry, RowFunction};
pub use crate::output::metrics::totals::{MeterTotal, TotalKind};
use crate::report::Verdict;

/// Where `--metrics` listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl MetricsAddress {
    /// # Errors
    /// The text is neither `ADDR:PORT` nor a port.
    pub fn parse(text: &str) -> Result<MetricsAddress, String> {
        let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
        let at_port = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = at_port.or_else(|_| text.parse::<SocketAddr>());
        address.map(MetricsAddress).map_err(|_| {
            "neither a port, as in 9100, nor an address with a port, as in 0.0.0.0:9100 or [::1]:9100".to_owned()
        })
    }
}

/// The newest snapshot: published by one thread, read by another.
#[derive(Clone, Debug, Default)]
pub struct SnapshotCell(Arc<Mutex<Arc<MetricsSnapshot>>>);

impl SnapshotCell {
    fn publish(&self, snapshot: MetricsSnapshot) {
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), Arc::new(snapshot));
        drop(old); // not under the lock
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
    /// Lines that were dropped because the output could not keep up, and stacks likewise or for lack of room.
    pub dropped_lines: u64,
    pub dropped_stacks: u64,
    /// Bytes that wait for the output.
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
    /// Of the interval.
    pub coverage: f64,
    pub verdict: Verdict,
    /// Numbers of its last report that belong to no row.
    pub totals: Vec<MeterTotal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_host() {
        let parsed = |text| MetricsAddress::parse(text).map(|MetricsAddress(address)| address.to_string()).ok();
        let cases = [
            ("9100", Some("127.0.0.1:9100")),
            (":9100", Some("127.0.0.1:9100")),
            ("0", Some("127.0.0.1:0")),
            ("0.0.0.0:9100", Some("0.0.0.0:9100")),
            ("[::]:9100", Some("[::]:9100")),
            ("127.0.0.1", None),
            ("localhost:9100", None),
            ("65536", None),
            ("", None),
            (":", None),
            ("::1:9100", None),
        ];
        for (text, want) in cases {
            assert_eq!(parsed(text).as_deref(), want, "{text:?}");
        }
    }
}
