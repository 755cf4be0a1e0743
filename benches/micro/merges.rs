//! The cost of the merge by the number of rings, next to the cost of walking the same records without a merge.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Result, ensure};

use perf_prof::perf::layout::Layout;
use perf_prof::ringbuf::sim::Producer;
use perf_prof::ringbuf::{DrainLimit, Item, ItemKind, Merge, RingBuf, Stamp};

use super::common::Spread;
use super::{TURNS, sched_switch};

/// Records in all rings together, 14 MiB: more than the nearer caches hold.
pub const RECORDS: u64 = 1 << 17;
/// 112 MiB.
pub const MANY_RECORDS: u64 = 1 << 20;
/// ns between two records.
const PERIOD: u64 = 4;

/// Rings that are filled again and again. Each way to read them maps them for itself.
struct Rings {
    producers: Vec<Producer>,
    merge: Merge,
    walked: [Vec<RingBuf>; 2],
    order: RingOrder,
    now: u64,
}

/// The rings in the order of their records: all rings one after the other, in another order every time, so that the
/// CPU cannot predict it in favour of the merge.
pub struct RingOrder {
    rings: Vec<usize>,
    /// Records of a ring in each of its turns.
    bunch: u64,
}

/// ns per record, of several turns.
#[derive(Default)]
struct Times {
    merged: Vec<f64>,
    in_time: Vec<f64>,
    in_rings: Vec<f64>,
}

/// Merges `rings` rings whose `records` lie between each other in time, `bunch` at a time.
pub fn merge(rings: u64, bunch: u64, records: u64, layout: &Layout) -> Result<()> {
    let mut rings = Rings::new(rings, bunch, records)?;
    let mut times = Times::default();
    for turn in 0..3 * TURNS {
        rings.fill()?;
        // No way always finds the caches filled by another.
        for way in [turn, turn + 1, turn + 2] {
            match way % 3 {
                0 => times.in_rings.push(rings.walk_rings(layout)),
                1 => times.in_time.push(rings.walk_time(layout)?),
                _ => times.merged.push(rings.merge(layout)?),
            }
        }
    }
    let [merged, in_time, in_rings] = [&times.merged, &times.in_time, &times.in_rings].map(|times| Spread::of(times));
    let size = if records == RECORDS { "" } else { ", far memory" };
    let what = format!("merge {} rings, {bunch} at a time{size}", rings.producers.len());
    println!(
        "{what:<40} {merged} ns; {:.2} x a walk in time order, {:.2} ns; ring by ring {:.2} ns",
        merged.min / in_time.min,
        in_time.min,
        in_rings.min
    );
    Ok(())
}

impl Rings {
    fn new(rings: u64, bunch: u64, records: u64) -> Result<Rings> {
        let bytes = (records / rings) as usize * sched_switch(0, 0).len();
        let pages = bytes.div_ceil(4096).next_power_of_two() * 2;
        let producers = (0..rings).map(|_| Producer::new(pages)).collect::<Result<Vec<_>, _>>()?;
        let mut merge = Merge::new();
        for producer in &producers {
            merge.add(producer.ring()?);
        }
        let map = || producers.iter().map(Producer::ring).collect::<Result<Vec<_>, _>>();
        let walked = [map()?, map()?];
        Ok(Rings { producers, merge, walked, order: RingOrder::new(records, rings, bunch), now: 0 })
    }

    fn fill(&mut self) -> Result<()> {
        let (producers, now) = (&mut self.producers, &mut self.now);
        self.order.visit(|ring| {
            *now += PERIOD;
            ensure!(producers[ring].write(&sched_switch(ring as i32, *now), *now), "the ring is full");
            Ok(())
        })
    }

    /// The minimum: one ring after the other, out of time order.
    fn walk_rings(&mut self, layout: &Layout) -> f64 {
        let rings = &mut self.walked[0];
        let start = Instant::now();
        rings.iter_mut().for_each(|ring| _ = ring.load());
        for ring in &mut *rings {
            while take(ring, layout) {}
            ring.publish();
        }
        self.per_record(start)
    }

    /// As the merge, with the order of the rings known before.
    fn walk_time(&mut self, layout: &Layout) -> Result<f64> {
        let rings = &mut self.walked[1];
        let start = Instant::now();
        rings.iter_mut().for_each(|ring| _ = ring.load());
        self.order.visit(|ring| {
            ensure!(take(&mut rings[ring], layout), "a record is missing");
            Ok(())
        })?;
        rings.iter_mut().for_each(|ring| _ = ring.publish());
        Ok(self.per_record(start))
    }

    fn merge(&mut self, layout: &Layout) -> Result<f64> {
        let start = Instant::now();
        self.merge.load(self.now);
        let stamp = |record: &[u8]| layout.sample_time(record).map_or(Stamp::Bad, Stamp::At);
        let drained = self.merge.drain(DrainLimit::All, stamp, |item: Item<'_>| {
            if let ItemKind::Record(record) = item.kind {
                use_record(record);
            }
            ControlFlow::Continue(())
        });
        self.merge.publish();
        let time = self.per_record(start);
        ensure!((drained.records, drained.late) == (self.order.records(), 0), "{drained:?}");
        Ok(time)
    }

    fn per_record(&self, start: Instant) -> f64 {
        start.elapsed().as_nanos() as f64 / self.order.records() as f64
    }
}

impl RingOrder {
    pub fn new(records: u64, rings: u64, bunch: u64) -> RingOrder {
        let mut random = 1_u64;
        let mut order: Vec<usize> = (0..records / bunch).map(|turn| (turn % rings) as usize).collect();
        for turn in order.chunks_mut(rings as usize) {
            for last in (1..turn.len()).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                turn.swap(last, (random % (last as u64 + 1)) as usize);
            }
        }
        RingOrder { rings: order, bunch }
    }

    pub fn records(&self) -> u64 {
        self.rings.len() as u64 * self.bunch
    }

    #[inline]
    pub fn visit(&self, mut each: impl FnMut(usize) -> Result<()>) -> Result<()> {
        for &ring in &self.rings {
            for _ in 0..self.bunch {
                each(ring)?;
            }
        }
        Ok(())
    }
}

/// Reads the next record as the merge does.
#[inline]
fn take(ring: &mut RingBuf, layout: &Layout) -> bool {
    let Some(record) = ring.peek() else { return false };
    black_box(layout.sample_time(record));
    use_record(record);
    ring.advance();
    true
}

/// The consumer reads each record to its end.
#[inline]
fn use_record(record: &[u8]) {
    black_box(record.last_chunk::<8>().copied());
}
