//! The connections of one peer, or at one of our own addresses, in detail: round trips and windows as each packet that is
//! received leaves them.

use std::net::SocketAddr;

use anyhow::Result;

use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::Setup;
use crate::profilers::net::endpoint::{Endpoint, Ends, EndsFields, address_value, port_value};
use crate::report::{Column, LatencyRow, Report, Schema, Unit};
use crate::stats::{KeyedSums, Latency, SumKey, WorstCase};
use crate::task::Comm;
use crate::tep::{Field, drift};

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowOf(Option<Ends>);

impl SumKey for FlowOf {
    fn others(&self) -> FlowOf {
        FlowOf(None)
    }
}

/// What packets that were received tell of a connection.
#[derive(Clone, Debug, Default)]
pub struct FlowPackets {
    /// Round trips, smoothed, as they were after each packet.
    round_trips: Latency,
    packets: u64,
    bytes: u64,
    least_window: Option<u64>,
    window: Option<u64>,
    least_peer_window: Option<u64>,
    most_in_flight: Option<u64>,
}

type FlowRow = (FlowOf, FlowPackets);

impl LatencyRow for FlowRow {
    fn latency(&self) -> &Latency {
        &self.1.round_trips
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.1.round_trips
    }
}

pub static FLOWS: Schema<FlowRow> = Schema::<FlowRow>::new(
    "flows",
    &[
        Column::label("peer", "peer", |(of, _)| address_value(of.0.map(|ends| ends.peer.address))),
        Column::label("peer_port", "port", |(of, _)| port_value(of.0.map_or(0, |ends| ends.peer.port))),
        Column::label("local_port", "own port", |(of, _)| port_value(of.0.map_or(0, |ends| ends.local.port))),
        Column::counter("packets", "packets", |(_, sums)| &mut sums.packets),
        Column::<FlowRow>::counter("bytes", "bytes", |(_, sums)| &mut sums.bytes).in_unit(Unit::Bytes),
        Column::<FlowRow>::latency_count("").json_only(),
        Column::<FlowRow>::latency_total().json_only(),
        Column::latency_min(),
        Column::<FlowRow>::latency_mean().json_only(),
        Column::<FlowRow>::latency_stddev().json_only(),
        Column::latency_p50(),
        Column::<FlowRow>::latency_p95().json_only(),
        Column::<FlowRow>::latency_p99().json_only(),
        Column::latency_max(),
        Column::least("least_window", "least cwnd", |(_, sums)| &mut sums.least_window),
        Column::gauge("window", "cwnd", |(_, sums)| &mut sums.window),
        Column::<FlowRow>::least("least_peer_window_bytes", "peer window", |(_, sums)| &mut sums.least_peer_window)
            .in_unit(Unit::Bytes),
        Column::<FlowRow>::greatest("in_flight_bytes", "in flight", |(_, sums)| &mut sums.most_in_flight)
            .in_unit(Unit::Bytes),
    ],
)
.latencies()
.explained(&[
    ("peer", "the address of the peer"),
    ("peer_port", "its port"),
    ("local_port", "our own port"),
    ("packets", "packets that were received, acknowledgements among them"),
    ("bytes", "the data in them"),
    ("count", "packets after which a round trip was known"),
    ("least_window", "the least congestion window, in packets"),
    ("window", "the congestion window after the last packet"),
    ("least_peer_window_bytes", "the least room in the peer's receive window: 0 if its program did not read"),
    ("in_flight_bytes", "most bytes that were sent and not acknowledged"),
    ("duration_ns", "round trips, smoothed by the kernel, as they were after each packet"),
])
.titled("round trips and windows")
.ordered(|(one, few), (other, many)| many.packets.cmp(&few.packets).then(one.cmp(other)));

/// The connections asked for with `--flow`.
#[derive(Debug)]
pub struct Flow {
    of: Endpoint,
    event: EventId,
    ends: EndsFields,
    /// `data_len`, `snd_nxt`, `snd_una`, `snd_cwnd`, `snd_wnd`, `srtt`.
    numbers: [Field; 6],
    sums: KeyedSums<FlowOf, FlowPackets>,
}

impl Flow {
    /// # Errors
    /// The kernel has no such event.
    pub fn open(of: SocketAddr, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Flow> {
        let (evsel, format) = setup.tracepoint("tcp:tcp_probe")?;
        let event = evlist.add(evsel.binding(Binding::Cpu))?;
        evlist.set_filter(event, format!("sport == {0} || dport == {0}", of.port()))?;
        let field = |name: &str| Ok::<_, anyhow::Error>(drift::require(&format, name)?.clone());
        let numbers = [
            field("data_len")?,
            field("snd_nxt")?,
            field("snd_una")?,
            field("snd_cwnd")?,
            field("snd_wnd")?,
            field("srtt")?,
        ];
        let of = Endpoint { address: of.ip().to_canonical(), port: of.port() };
        Ok(Flow { of, event, ends: EndsFields::find(&format)?, numbers, sums: KeyedSums::default() })
    }

    /// Whether a connection with these ends was asked for.
    pub fn is_of(&self, ends: &Ends) -> bool {
        ends.peer == self.of || ends.local == self.of
    }

    /// Takes the sample of a packet that was received. False: the event is another one.
    ///
    /// # Errors
    /// The record is too short.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> Result<bool> {
        if event != self.event {
            return Ok(false);
        }
        let Some(ends) = self.ends.read(sample.raw).filter(|ends| self.is_of(ends)) else { return Ok(true) };
        let mut numbers = [0; 6];
        for (number, field) in numbers.iter_mut().zip(&self.numbers) {
            *number = field.read_u64(sample.raw)?;
        }
        let [bytes, next, unacknowledged, window, peer_window, round_trip_us] = numbers;
        let sums = self.sums.sum(FlowOf(Some(ends)));
        if round_trip_us > 0 {
            let (ns, at_ns) = (round_trip_us.saturating_mul(1000), sample.time);
            let (tid, comm) = (0, Comm::default());
            let case = || WorstCase { ns, at_ns, cpu: sample.cpu, tid, comm, stack: None };
            sums.round_trips.record(ns, at_ns, case);
        }
        sums.packets += 1;
        sums.bytes += bytes;
        let least = |known: Option<u64>, new: u64| Some(known.map_or(new, |known| known.min(new)));
        sums.least_window = least(sums.least_window, window);
        sums.window = Some(window);
        sums.least_peer_window = least(sums.least_peer_window, peer_window);
        // Numbers of bytes wrap.
        let in_flight = (next as u32).wrapping_sub(unacknowledged as u32);
        sums.most_in_flight = sums.most_in_flight.max(Some(in_flight.into()));
        Ok(true)
    }

    /// Reports the sums, and begins anew. `top`: most rows in text.
    pub fn report(&mut self, report: &mut Report, top: usize) {
        report.delta(&FLOWS, self.sums.drain().collect()).text_rows(top);
    }
}
