//! How busy disks are: the kernel's own counters, beside the requests of the events.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::{BlockDevice, DiskCounters, Host, disk_counters};
use crate::report::{Column, Schema, Value};
use crate::sys::monotonic_ns;

/// A disk in an interval.
#[derive(Clone, Debug)]
pub struct DiskRow {
    pub device: Arc<str>,
    counters: DiskCounters,
    /// The time between two readings of the counters, ns.
    span_ns: u64,
    /// Most requests that the device had at once.
    most: Option<u64>,
}

pub static DISKS: Schema<DiskRow> = Schema::<DiskRow>::new(
    "disks",
    &[
        Column::label("device", "device", |row| Value::Text(row.device.clone())),
        Column::derived("busy_pct", "busy %", |row, _| Value::share(row.counters.busy_ns, row.span_ns)),
        // A number with decimals.
        Column::derived("depth", "depth", |row, _| {
            Value::share(row.counters.queued_ns, row.span_ns.saturating_mul(100))
        }),
        Column::greatest("most", "most", |row| &mut row.most),
        Column::counter("requests", "requests", |row| &mut row.counters.requests),
        Column::<DiskRow>::counter("busy_ns", "", |row| &mut row.counters.busy_ns).ns().json_only(),
        Column::<DiskRow>::counter("queued_ns", "", |row| &mut row.counters.queued_ns).ns().json_only(),
        Column::<DiskRow>::counter("span_ns", "", |row| &mut row.span_ns).ns().json_only(),
    ],
)
.explained(&[
    ("device", "the disk, or a device above disks"),
    (
        "busy_pct",
        "the share of the time in which it had requests. A disk that serves many at once may be far from full",
    ),
    ("depth", "requests that were queued or in the device at once, on average"),
    ("most", "most requests that were in the device at once, of those that the run saw"),
    ("requests", "reads, writes, discards and flushes that the kernel counts as done, of all tasks"),
    ("busy_ns", "the time in which it had requests, in steps of a tick"),
    ("queued_ns", "the time of all requests together"),
    ("span_ns", "the time between the readings of the counters"),
])
.titled("the disks, as the kernel counts, whoever uses them")
.ordered(|one, other| one.device.cmp(&other.device));

/// The requests that a device has now, and most of them in this interval.
#[derive(Clone, Copy, Debug, Default)]
struct IssuedCount {
    now: u64,
    most: u64,
}

/// What disks have in hand, by the events of the run and by the kernel's counters.
#[derive(Debug, Default)]
pub struct Disks {
    host: Host,
    issued: FxHashMap<BlockDevice, IssuedCount>,
    /// The counters as of the last reading, and when that was, ns.
    last: Option<(u64, FxHashMap<BlockDevice, DiskCounters>)>,
}

impl Disks {
    /// Reads the counters with which the run begins.
    pub fn start(host: &Host) -> Disks {
        let last = Some((monotonic_ns(), disk_counters(host)));
        Disks { host: host.clone(), issued: FxHashMap::default(), last }
    }

    /// A device gets a request.
    pub fn issued(&mut self, device: BlockDevice) {
        let count = self.issued.entry(device).or_default();
        count.now += 1;
        count.most = count.most.max(count.now);
    }

    /// A request is done, or given back.
    pub fn ended(&mut self, device: BlockDevice) {
        self.issued.entry(device).and_modify(|count| count.now = count.now.saturating_sub(1));
    }

    /// Requests that the device has now.
    pub fn now(&self, device: BlockDevice) -> u64 {
        self.issued.get(&device).map_or(0, |count| count.now)
    }

    /// Records were lost.
    pub fn forget(&mut self) {
        self.issued.clear();
    }

    /// The rows of devices since the last reading.
    pub fn take_rows(&mut self, devices: &FxHashMap<BlockDevice, Arc<str>>) -> Vec<DiskRow> {
        let (now_ns, counters) = (monotonic_ns(), disk_counters(&self.host));
        let (before_ns, before) = self.last.take().unwrap_or_default();
        let mut rows = Vec::new();
        for (device, name) in devices {
            let (Some(now), Some(before)) = (counters.get(device), before.get(device)) else { continue };
            let count = self.issued.get_mut(device);
            let most = count.map(|count| std::mem::replace(&mut count.most, count.now));
            let span_ns = now_ns.saturating_sub(before_ns);
            rows.push(DiskRow { device: name.clone(), counters: now.since(before), span_ns, most });
        }
        self.last = Some((now_ns, counters));
        rows
    }
}
