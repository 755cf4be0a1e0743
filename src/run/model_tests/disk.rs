//! blktrace: requests that are merged, split, given back, done in parts, and passed on by a device above.

use std::collections::BTreeMap;

use crate::report::{Value, Verdict};
use crate::run::model_tests::{Load, ModelTally, SeenTable, World, cell, common, number, play};

/// The fields that all events have, and those that some have behind them.
const FIELDS: &str = "
     dev_t dev 8 4 0
     sector_t sector 16 8 0
     unsigned int nr_sector 24 4 0
     char rwbs[8] 28 8 0";
const FORMATS: [(&str, &str); 10] = [
    ("block_bio_queue", ""),
    ("block_getrq", ""),
    ("block_rq_insert", ""),
    ("block_rq_issue", ""),
    ("block_rq_requeue", ""),
    ("block_rq_complete", "int error 36 4 1"),
    ("block_bio_backmerge", ""),
    ("block_bio_frontmerge", ""),
    ("block_split", "sector_t new_sector 40 8 0"),
    ("block_bio_remap", "dev_t old_dev 36 4 0\nsector_t old_sector 40 8 0"),
];
/// Numbers that no device of the machine has.
const DISK: u32 = 500 << 20;
const ABOVE: u32 = 501 << 20;

/// The stages of a request, by the event that ends each.
const EVENTS: [&str; 4] = ["block_getrq", "block_rq_insert", "block_rq_issue", "block_rq_complete"];

#[derive(Clone, Copy, Debug)]
struct ModelRequest {
    is_write: bool,
    sector: u64,
    sectors: u64,
    /// Done before, in parts.
    done: u64,
    submitter: i32,
    /// Another request is right behind it, or before it.
    is_part: bool,
    asked_ns: u64,
    /// Index in `EVENTS` of what comes next.
    stage: usize,
    stage_since: u64,
    spent_ns: [u64; 4],
}

/// Number, bytes, time, and time in each stage.
type RequestTotals = [u64; 7];

#[derive(Default)]
struct ModelDisk {
    requests: Vec<ModelRequest>,
    /// Where the next request begins: no two are for the same sectors.
    next_sector: u64,
    /// Done in this interval, by kind and by submitter.
    by_kind: BTreeMap<&'static str, RequestTotals>,
}

fn kind(is_write: bool) -> &'static str {
    if is_write { "sync write" } else { "read" }
}

/// Writes a record. `more`: what the event has behind `rwbs`.
fn raise(world: &mut World, event: &str, tid: i32, device: u32, request: (bool, u64, u64), more: &[u8]) {
    let (is_write, sector, sectors) = request;
    let mut raw = common(tid);
    raw.extend(device.to_ne_bytes());
    raw.extend([0; 4]);
    raw.extend(sector.to_ne_bytes());
    raw.extend((sectors as u32).to_ne_bytes());
    raw.extend(if is_write { b"WS\0\0\0\0\0\0" } else { b"R\0\0\0\0\0\0\0" });
    raw.extend(more);
    raw.resize(48, 0);
    // The device may interrupt any CPU; what one task does stays in order on its own.
    let of_task = tid as u32 % world.cpus();
    let cpu = if event.starts_with("block_rq") { world.random.below(world.cpus().into()) as u32 } else { of_task };
    world.event(&format!("block:{event}"), cpu, tid, &raw);
}

impl ModelDisk {
    /// A task asks for I/O, for the disk itself or through the device above.
    fn ask(&mut self, world: &mut World) {
        let (is_write, submitter) = (world.random.one_in(2), 10 + world.random.below(6) as i32);
        let (sector, sectors) = (self.next_sector, 8 * (2 + world.random.below(4)));
        self.next_sector += sectors + 64;
        let asked_ns = world.clock;
        if world.random.one_in(4) {
            raise(world, "block_bio_queue", submitter, ABOVE, (is_write, sector + 7, sectors), &[]);
            let mut above = ABOVE.to_ne_bytes().to_vec();
            above.extend((sector + 7).to_ne_bytes());
            // Another thread passes it on.
            raise(world, "block_bio_remap", submitter, DISK, (is_write, sector, sectors), &above);
        }
        raise(world, "block_bio_queue", submitter, DISK, (is_write, sector, sectors), &[]);
        let whole = ModelRequest {
            is_write,
            sector,
            sectors,
            done: 0,
            submitter,
            is_part: false,
            asked_ns,
            stage: 0,
            stage_since: asked_ns,
            spent_ns: [0; 4],
        };
        if world.random.one_in(5) {
            let mut more = vec![0; 4];
            more.extend((sector + 8).to_ne_bytes());
            raise(world, "block_split", submitter, DISK, (is_write, sector, 0), &more);
            self.requests.push(ModelRequest { sectors: 8, is_part: true, ..whole });
            self.requests.push(ModelRequest { sector: sector + 8, sectors: sectors - 8, is_part: true, ..whole });
        } else {
            self.requests.push(whole);
        }
    }

    /// More I/O joins a request that has not been issued.
    fn join(&mut self, index: usize, world: &mut World) {
        let request = &mut self.requests[index];
        let ModelRequest { is_write, sector, sectors, submitter, .. } = *request;
        let joined = if world.random.one_in(2) { sector + sectors } else { sector - 8 };
        raise(world, "block_bio_queue", submitter, DISK, (is_write, joined, 8), &[]);
        let event = if joined > sector { "block_bio_backmerge" } else { "block_bio_frontmerge" };
        raise(world, event, submitter, DISK, (is_write, joined, 8), &[]);
        (request.sector, request.sectors) = (sector.min(joined), sectors + 8);
    }

    /// A request goes on to its next stage.
    fn go_on(&mut self, index: usize, world: &mut World) {
        let request = &mut self.requests[index];
        let ModelRequest { is_write, sector, sectors, done, submitter, stage, .. } = *request;
        if stage == 3 && done == 0 && world.random.one_in(6) {
            raise(world, "block_rq_requeue", submitter, DISK, (is_write, sector, sectors), &[]);
            request.spent_ns[3] += world.clock - request.stage_since;
            (request.stage, request.stage_since) = (2, world.clock);
            return;
        }
        if stage == 3 && sectors - done > 8 && world.random.one_in(6) {
            raise(world, EVENTS[3], submitter, DISK, (is_write, sector + done, 8), &[]);
            request.done += 8;
            return;
        }
        request.spent_ns[stage] += world.clock - request.stage_since;
        (request.stage, request.stage_since) = (stage + 1, world.clock);
        // Some requests go to the device at once.
        let event = if stage == 1 && world.random.one_in(3) {
            request.stage = 3;
            EVENTS[2]
        } else {
            EVENTS[stage]
        };
        raise(world, event, submitter, DISK, (is_write, sector + done, sectors - done), &[]);
        if request.stage == 4 {
            let request = self.requests.swap_remove(index);
            let sum = self.by_kind.entry(kind(is_write)).or_default();
            let parts = [1, request.sectors * 512, world.clock - request.asked_ns].into_iter().chain(request.spent_ns);
            sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
    }
}

impl Load for ModelDisk {
    fn step(&mut self, world: &mut World) {
        if self.requests.is_empty() || world.random.one_in(4) {
            return self.ask(world);
        }
        let index = world.random.below(self.requests.len() as u64) as usize;
        let ModelRequest { stage, is_part, sectors, .. } = self.requests[index];
        if (1..3).contains(&stage) && !is_part && sectors < 48 && world.random.one_in(4) {
            return self.join(index, world);
        }
        self.go_on(index, world);
    }
}

#[test]
fn requests_of_a_disk() {
    let formats = FORMATS.map(|(event, more)| format!("block:{event}{FIELDS}\n{more}"));
    let formats = formats.each_ref().map(String::as_str);
    let mut shown = ModelTally::default();
    for seed in 0..300 {
        let mut world = World::new("blktrace", &[], &formats, seed);
        let mut disk = ModelDisk { next_sector: 1 << 20, ..ModelDisk::default() };
        play(&mut world, &mut disk, 5, &mut shown, |disk, played, shown| {
            let [requests, stages, _, submitters] = &played.report.tables[..] else { panic!("{}", played.what) };
            let done = std::mem::take(&mut disk.by_kind);
            let mut missed = 0;
            for row in &requests.rows {
                let told = |key| number(requests, row, key);
                // The device above never says that something is done.
                if cell(requests, row, "device") != &Value::Text("500,0".into()) {
                    continue;
                }
                shown.add(row.verdict);
                missed += told("no_start");
                let keys = ["count", "bytes", "total_ns", "entry_ns", "plug_ns", "queue_ns", "device_ns"];
                let Value::Word(kind) = *cell(requests, row, "kind") else { panic!("a kind") };
                let truth = done.get(kind).copied().unwrap_or_default();
                if row.verdict == Verdict::Exact {
                    let what = format!("{}, {kind}: {row:?}", played.what);
                    // A request whose start was lost may end in parts.
                    assert!(
                        told("count") <= truth[0] && told("count") + told("no_start") >= truth[0],
                        "{what}: {truth:?}"
                    );
                    assert!(told("no_start") > 0 || keys.map(told) == truth, "{what}: {truth:?}");
                }
            }
            if requests.verdict == Verdict::Exact && missed == 0 {
                let all = done.values().fold([0; 3], |sum, totals| [0, 1, 2].map(|index| sum[index] + totals[index]));
                let [count, _, total_ns] = all;
                let of = |table: &SeenTable, key| table.rows.iter().map(|row| number(table, row, key)).sum::<u64>();
                assert_eq!(of(stages, "total_ns"), total_ns, "{}", played.what);
                assert!(of(submitters, "requests") <= count, "{}: what was passed on is counted above", played.what);
            }
        });
    }
    shown.check(300);
}
