//! What is counted of packets: those that were sent again, dropped or could not be queued, resets, and bytes.

use std::fmt::Debug;

use crate::profiler::{Context, Report};
use crate::profilers::net::endpoint::Ends;
use crate::profilers::net::events::NetEvents;
use crate::profilers::net::table::{
    DROPS, DropRow, DropsOf, FULL_QUEUES, FullQueueOf, RESETS, RETRANSMITS, ResetRow, ResetsOf, RetransmitsOf, TRAFFIC,
    TrafficOf, TrafficSums, reason_value,
};
use crate::report::Schema;
use crate::stats::KeyedSums;
use crate::symbol::StackId;

/// The sums of an interval.
#[derive(Debug, Default)]
pub struct PacketSums {
    pub retransmits: KeyedSums<RetransmitsOf, u64>,
    pub resets: KeyedSums<ResetsOf, u64>,
    drops: KeyedSums<DropsOf, u64>,
    full_queues: KeyedSums<FullQueueOf, u64>,
    pub traffic: KeyedSums<TrafficOf, TrafficSums>,
}

impl PacketSums {
    /// A packet was dropped.
    pub fn dropped(&mut self, [reason, location, protocol]: [Option<u64>; 3], ctx: &mut Context) {
        let place = location.and_then(|location| ctx.kernel_address(location, 0));
        let (reason, protocol) = (reason.map(|reason| reason as u32), protocol.unwrap_or(0) as u16);
        *self.drops.sum(DropsOf { reason, place, protocol }) += 1;
    }

    /// A socket could not take a datagram. `port`: as older kernels tell it, without an address.
    pub fn queue_full(&mut self, ends: Option<Ends>, [errno, port, _]: [Option<u64>; 3]) {
        let port = ends.map_or(port.unwrap_or(0) as u16, |ends| ends.peer.port);
        let of = FullQueueOf { port, address: ends.map(|ends| ends.peer.address), errno: errno.unwrap_or(0) as i32 };
        *self.full_queues.sum(of) += 1;
    }

    /// Reports the sums, and begins anew. `top`: most rows of a table in text.
    pub fn report(&mut self, events: &NetEvents, report: &mut Report, top: usize, in_text: bool) {
        let reason = |of: &ResetsOf| reason_value(of.reason, &events.reset_reasons);
        let resets = self.resets.drain().map(|(of, count)| ResetRow { of, reason: reason(&of), count });
        let reason = |of: &DropsOf| reason_value(of.reason, &events.drop_reasons);
        let drops = self.drops.drain().map(|(of, count)| DropRow { of, reason: reason(&of), count });
        add_table(report, &RETRANSMITS, self.retransmits.drain(), top, in_text);
        add_table(report, &RESETS, resets, top, in_text);
        add_table(report, &DROPS, drops, top, in_text);
        add_table(report, &FULL_QUEUES, self.full_queues.drain(), top, in_text);
        add_table(report, &TRAFFIC, self.traffic.drain(), top, in_text);
    }

    /// The places of dropped packets.
    pub fn places(&self) -> impl Iterator<Item = StackId> {
        self.drops.keys().filter_map(|of| of.place)
    }
}

/// Adds a table that text shows only if it has rows.
fn add_table<R: Clone + Debug + Send>(
    report: &mut Report,
    schema: &'static Schema<R>,
    rows: impl Iterator<Item = R>,
    top: usize,
    in_text: bool,
) {
    let rows: Vec<R> = rows.collect();
    let is_any = !rows.is_empty();
    report.delta(schema, rows).text_rows(top).in_text(in_text && is_any);
}
