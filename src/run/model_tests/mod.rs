//! Rows marked exact are exact: many random runs over rings that are too small, compared with generators that know the
//! truth.
//!
//! A [`World`] writes records as the kernel does, drops what does not fit, and hands the rings to the merge, the decoder
//! and a real profiler. The tables of each interval are compared with what really happened.

mod calls;
mod disk;
mod memory;
mod signals;
mod stages;
mod stalls;
mod tasks;
mod turns;

use std::borrow::Cow;
use std::fs;
use std::sync::Arc;

use tempfile::TempDir;

use crate::host::Host;
use crate::output::sink::Sink;
use crate::output::{Output, SettingsSender};
use crate::perf::classes::Class;
use crate::perf::evlist::Evlist;
use crate::perf::sample_type::SampleType;
use crate::perf::target::Target;
use crate::profiler::{Report, Setup, TracefsFinder};
use crate::profilers::trials;
use crate::report::{Table, Value, Verdict};
use crate::ringbuf::sim::Producer;
use crate::ringbuf::{DrainLimit, Merge};
use crate::run::dispatcher::Dispatcher;
use crate::run::rings::{deliver, mark_gaps};
use crate::symbol::Stacks;
use crate::sys::poll::Waker;
use crate::task::Watched;
use crate::tep::tracefs::Tracefs;

/// Formats of the scheduler's events, for [`World::new`].
pub const SWITCH_FORMAT: &str = "sched:sched_switch
     char prev_comm[16] 8 16 0
     pid_t prev_pid 24 4 1
     int prev_prio 28 4 1
     long prev_state 32 8 1
     char next_comm[16] 40 16 0
     pid_t next_pid 56 4 1
     int next_prio 60 4 1
     print fmt: \"prev_state=%s\", (REC->prev_state & ((0x100 - 1))) ? __print_flags(REC->prev_state & ((0x100 - 1)), \"|\", { 1, \"S\" }, { 2, \"D\" }) : \"R\"";
pub const WAKEUP_FORMAT: &str = "sched:sched_wakeup
     char comm[16] 8 16 0
     pid_t pid 24 4 1
     int prio 28 4 1
     int target_cpu 32 4 1";

/// Numbers that look random, the same for the same seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }

    /// One in `number`.
    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Time, CPU and thread of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordOrigin {
    pub time: u64,
    pub cpu: u32,
    pub tid: i32,
}

/// The records of one CPU.
struct WorldCpu {
    events: Producer,
    side: Producer,
    /// Records dropped from each of the two rings, as of the last reading.
    counted: [u64; 2],
}

/// A run of one profiler over the rings of a simulated machine.
pub struct World {
    seed: u64,
    pub core: Dispatcher,
    pub clock: u64,
    pub random: Random,
    /// When a record was last dropped or came too late.
    pub last_trouble: u64,
    pub drops: u64,
    merge: Merge,
    cpus: Vec<WorldCpu>,
    loaded_ns: u64,
    complete_ns: u64,
    /// True: records may be inverted, an interrupt's record before the one that it interrupted.
    pub inverts: bool,
    held: Option<(usize, Vec<u8>)>,
    /// By CPU: the idle task is hidden from events. On such CPUs, and until this is known, SWITCH records report
    /// switch-ins.
    pub hides: Vec<bool>,
    pub tells_switches: Vec<bool>,
    /// Occurrences are handed over to an output that discards them.
    pub prints: bool,
    _settle: SettingsSender,
    _dir: TempDir,
}

/// The tables and the end of an interval.
pub struct Interval {
    pub end: u64,
    pub tables: Vec<SeenTable>,
    pub totals: Vec<(&'static str, Value)>,
}

/// A table as a reader sees it.
pub struct SeenTable {
    keys: Vec<Cow<'static, str>>,
    pub rows: Vec<SeenRow>,
    /// The best verdict that a row can have.
    pub verdict: Verdict,
}

#[derive(Debug, PartialEq)]
pub struct SeenRow {
    cells: Vec<Value>,
    pub verdict: Verdict,
}

impl SeenTable {
    fn of(mut table: Table, span_ns: u64) -> SeenTable {
        let (order, rows) = (table.rows.order(), &mut table.rows);
        let row = |index: usize| {
            let verdict = table.verdict.max(rows.verdict(index));
            SeenRow { cells: rows.cells(index, span_ns), verdict }
        };
        let rows = order.into_iter().map(row).collect();
        let keys = table.rows.columns().iter().map(|column| column.key.clone()).collect();
        SeenTable { keys, rows, verdict: table.verdict }
    }
}

/// The start of the simulated clock: far before the times in /proc, so that /proc has no influence.
const START: u64 = 1_000;

impl World {
    /// `formats`: see [`write_format`].
    pub fn new(profiler: &str, options: &[&str], formats: &[&str], seed: u64) -> World {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        formats.iter().for_each(|text| write_format(&dir, text));
        let host = Host { proc: dir.path().join("nowhere"), cpu: dir.path().join("cpu") };
        fs::create_dir(&host.cpu).unwrap();
        fs::write(host.cpu.join("online"), "0-2\n").unwrap();
        let (target, tracefs) = (Target::everything(), TracefsFinder::at(Tracefs::at(dir.path())));
        let watched = Watched::new(&target, &host);
        let setup = Setup::new(&tracefs, &target, &host, &watched, [1, 2]);
        let trial = trials().into_iter().find(|trial| trial.name == profiler).unwrap();
        let mut profiler = (trial.build)(options).unwrap();
        let mut evlist = Evlist::new();
        profiler.init(&mut evlist, &setup).unwrap();
        profiler.filter(&mut evlist, &setup).unwrap();
        evlist.assign_ids();
        let scope = setup.scope;
        let waker = Arc::new(Waker::new().unwrap());
        // The output thread waits for settings that never come, so it prints nothing.
        let (output, settle) = Output::start(Sink::file("/dev/null".as_ref()).unwrap(), waker).unwrap();
        let mut core = Dispatcher::new(evlist, vec![profiler], watched, scope, Stacks::new(1 << 20, 127), host, output);
        core.started(START);
        let mut merge = Merge::new();
        let bytes = random.of(&[512, 1024, 2048, 4096]);
        let number = 1 + random.below(3);
        let ring = |bytes| Producer::tiny(bytes).unwrap().with_lost_records(lost_record);
        let cpus: Vec<WorldCpu> =
            (0..number).map(|_| WorldCpu { events: ring(bytes), side: ring(4096), counted: [0; 2] }).collect();
        for cpu in &cpus {
            merge.add(cpu.events.ring().unwrap());
            merge.add(cpu.side.ring().unwrap());
        }
        World {
            seed,
            core,
            clock: START,
            random,
            last_trouble: 0,
            drops: 0,
            merge,
            cpus,
            loaded_ns: 0,
            complete_ns: 0,
            inverts: false,
            hides: vec![false; number as usize],
            tells_switches: vec![false; number as usize],
            held: None,
            prints: false,
            _settle: settle,
            _dir: dir,
        }
    }

    pub fn cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Reads ring by ring wherever possible, if the profiler allows it. False: in time order.
    pub fn read_by_ring(&mut self, by_ring: bool) {
        self.merge.read_by_ring();
        // A limit of samples requires time order, since the first samples are wanted.
        self.core.views.iter_mut().for_each(|view| view.limit = (!by_ring).then_some(u64::MAX));
    }

    /// Advances the clock; the reader may read the rings, with a chance of 1 in `look_one_in`.
    pub fn pass(&mut self, look_one_in: u64) {
        self.clock += 1 + self.random.below(1000);
        if self.random.one_in(look_one_in) {
            self.round(DrainLimit::Horizon);
            self.core.tick(self.complete_ns);
        }
    }

    /// Raises the event `name`, which is recorded if the profiler has it open.
    pub fn event(&mut self, name: &str, cpu: u32, tid: i32, raw: &[u8]) {
        let origin = RecordOrigin { time: self.clock, cpu, tid };
        let Some((event, evsel)) = self.core.evlist.iter().find(|(_, evsel)| evsel.name() == name) else { return };
        let record = sample(event.index() as u64 + 1, evsel.attr().sample_type(), origin, raw);
        let cpu = cpu as usize;
        if self.inverts && self.held.is_none() && self.random.one_in(16) {
            self.held = Some((cpu, record));
            return;
        }
        self.write(cpu, &record);
        if let Some((cpu, record)) = self.held.take_if(|held| held.0 == cpu) {
            self.write_late(cpu, &record);
        }
    }

    /// Writes the SWITCH records of a switch between two tasks on `cpu`; the sched_switch event is separate. Hidden
    /// tasks write none.
    pub fn switch_records(&mut self, cpu: u32, tids: [i32; 2], hidden: [bool; 2]) {
        const OUT: u16 = 1 << 13; // PERF_RECORD_MISC_SWITCH_OUT
        let [prev, next] = tids;
        for (tid, other, misc, is_hidden) in [(prev, next, OUT, hidden[0]), (next, prev, 0, hidden[1])] {
            if !self.tells_switches[cpu as usize] || is_hidden || self.hides[cpu as usize] && tid == 0 {
                continue;
            }
            let body = [other.to_ne_bytes(), other.to_ne_bytes()].concat();
            let mut record = side(15, &body, RecordOrigin { time: self.clock, cpu, tid }); // PERF_RECORD_SWITCH_CPU_WIDE
            record[4..6].copy_from_slice(&misc.to_ne_bytes());
            if let Some((cpu, held)) = self.held.take_if(|held| held.0 == cpu as usize) {
                self.write_late(cpu, &held);
            }
            self.write(cpu as usize, &record);
        }
    }

    /// Writes a record that may come too late, which is treated as lost.
    fn write_late(&mut self, cpu: usize, record: &[u8]) {
        self.write(cpu, record);
        self.last_trouble = self.clock;
    }

    fn write(&mut self, cpu: usize, record: &[u8]) {
        if !self.cpus[cpu].events.write(record, self.clock) {
            self.last_trouble = self.clock;
            self.drops += 1;
        }
    }

    /// Names a thread, which is the only one of its process.
    pub fn name(&mut self, cpu: u32, tid: i32, comm: &str) {
        let mut body = [tid.to_ne_bytes(), tid.to_ne_bytes()].concat();
        body.extend(text(comm));
        let record = side(3, &body, RecordOrigin { time: self.clock, cpu, tid });
        if !self.cpus[cpu as usize].side.write(&record, self.clock) {
            self.last_trouble = self.clock;
            self.drops += 1;
        }
    }

    fn round(&mut self, limit: DrainLimit) {
        if let Some((cpu, record)) = self.held.take() {
            self.write_late(cpu, &record);
        }
        self.clock += 1;
        self.complete_ns = self.loaded_ns;
        self.loaded_ns = self.clock;
        self.merge.load(self.loaded_ns);
        let World { merge, cpus, core, clock, .. } = self;
        mark_gaps(
            merge,
            || *clock,
            |index| {
                let (cpu, class) = place(index);
                count_lost(&mut cpus[cpu as usize], cpu, class, core) > 0
            },
        );
        deliver(merge, limit, core, place);
        if self.prints {
            core.ctx.output.flush();
        } else {
            core.ctx.output.batch.clear();
        }
    }

    /// Closes an interval, as a run does.
    pub fn report(&mut self, last: bool) -> Interval {
        if last {
            self.round(DrainLimit::All);
        } else {
            self.round(DrainLimit::Horizon);
            self.round(DrainLimit::Horizon);
        }
        let end = if last { self.clock } else { self.complete_ns };
        let World { cpus, core, merge, .. } = self;
        if last {
            core.stopped(end);
        }
        for (number, cpu) in cpus.iter_mut().enumerate() {
            for class in [Class::Events(0), Class::Side] {
                count_lost(cpu, number as u32, class, core);
            }
        }
        let mut report = Report::default();
        for view in core.views.iter_mut() {
            let profiler = &mut view.profiler;
            if last { profiler.deinit(end, &mut report) } else { profiler.interval(end, &mut report) }.unwrap();
        }
        core.judge(0, &mut report, merge.undecodable());
        core.loss.next_interval();
        let tables = report.tables.into_iter().map(|table| SeenTable::of(table, 1)).collect();
        Interval { end, tables, totals: report.totals }
    }
}

/// What happens in a world.
pub trait Load {
    /// Something does.
    fn step(&mut self, world: &mut World);
}

/// An interval that was played.
pub struct PlayedInterval {
    /// `seed 7, interval 3`
    pub what: String,
    pub begin: u64,
    /// When a record was dropped before it for the last time, or came too late.
    pub lost_before: u64,
    /// Up to its end.
    pub drops: u64,
    pub report: Interval,
}

/// Plays a load for some intervals of up to so many steps. The reader looks at the rings seldom or often. `check` compares each
/// interval with what happened.
pub fn play<L: Load>(
    world: &mut World,
    load: &mut L,
    intervals: u64,
    shown: &mut ModelTally,
    mut check: impl FnMut(&mut L, &PlayedInterval, &mut ModelTally),
) {
    let steps = 20 + world.random.below(80);
    let (mut begin, mut lost_before) = (0, 0);
    for interval in 1..=intervals {
        let look_one_in = world.random.of(&[1, 2, 8, 50]);
        for _ in 0..steps {
            world.pass(look_one_in);
            load.step(world);
        }
        let report = world.report(interval == intervals);
        let what = format!("seed {}, interval {interval}", world.seed);
        let played = PlayedInterval { what, begin, lost_before, drops: world.drops, report };
        check(load, &played, shown);
        (begin, lost_before) = (played.report.end, world.last_trouble);
    }
    shown.runs += 1;
    shown.drops += world.drops;
}

/// CPU and class of a ring.
fn place(index: usize) -> (u32, Class) {
    (index as u32 / 2, if index.is_multiple_of(2) { Class::Events(0) } else { Class::Side })
}

fn count_lost(cpu: &mut WorldCpu, number: u32, class: Class, core: &mut Dispatcher) -> u64 {
    let (ring, counted) = match class {
        Class::Events(_) => (&cpu.events, &mut cpu.counted[0]),
        Class::Side => (&cpu.side, &mut cpu.counted[1]),
    };
    let lost = ring.dropped() - *counted;
    *counted = ring.dropped();
    match class {
        Class::Events(_) => core.count_lost(number, class, lost),
        Class::Side => core.count_side_lost(lost),
    }
    lost
}

/// Sums over many model runs, which show that the runs covered the intended cases.
#[derive(Debug, Default)]
pub struct ModelTally {
    pub runs: u64,
    pub drops: u64,
    pub exact: u64,
    pub others: u64,
    /// Intervals with missing time.
    pub partly: u64,
}

impl ModelTally {
    pub fn add(&mut self, verdict: Verdict) {
        *(if verdict == Verdict::Exact { &mut self.exact } else { &mut self.others }) += 1;
    }

    pub fn check(&self, rows: u64) {
        assert!(self.drops > self.runs && self.exact > rows && self.others > rows, "{self:?}");
    }
}

/// A cell by the key of its column.
pub fn cell<'a>(table: &SeenTable, row: &'a SeenRow, key: &str) -> &'a Value {
    let index = table.keys.iter().position(|other| *other == key).unwrap();
    &row.cells[index]
}

/// The cell as a number; 0 if there is none.
pub fn number(table: &SeenTable, row: &SeenRow, key: &str) -> u64 {
    match cell(table, row, key) {
        Value::Unsigned(number) | Value::Ns(number) | Value::Us(number) => *number,
        Value::Signed(number) => *number as u64,
        Value::None => 0,
        other => panic!("{key} is {other:?}"),
    }
}

// Records as in kernel/events/core.c

/// `perf_output_sample` with the fields of `BASE`, a period, RAW, and the ABI.
fn sample(id: u64, has: SampleType, origin: RecordOrigin, raw: &[u8]) -> Vec<u8> {
    let known = SampleType::BASE.with(SampleType::PERIOD).with(SampleType::RAW).with(SampleType::REGS_USER);
    assert!(known.contains(has) && has.contains(SampleType::RAW), "{has:?}");
    let mut body = id.to_ne_bytes().to_vec();
    body.extend(who(origin));
    body.extend(origin.time.to_ne_bytes());
    body.extend(u64::from(origin.cpu).to_ne_bytes());
    if has.contains(SampleType::PERIOD) {
        body.extend(1_u64.to_ne_bytes());
    }
    let padded = (4 + raw.len()).next_multiple_of(8) - 4;
    body.extend((padded as u32).to_ne_bytes());
    body.extend(raw);
    body.resize(body.len() + padded - raw.len(), 0);
    if has.contains(SampleType::REGS_USER) {
        body.extend([2_u64, 0].map(u64::to_ne_bytes).concat()); // PERF_SAMPLE_REGS_ABI_64, and a register
    }
    record(9, &body)
}

/// A record that ends with `perf_event__output_id_sample`.
fn side(kind: u32, body: &[u8], origin: RecordOrigin) -> Vec<u8> {
    let mut body = body.to_vec();
    body.extend(who(origin));
    body.extend(origin.time.to_ne_bytes());
    body.extend(u64::from(origin.cpu).to_ne_bytes());
    body.extend(0_u64.to_ne_bytes());
    record(kind, &body)
}

fn lost_record(lost: u64, time: u64) -> Vec<u8> {
    side(2, &[0_u64.to_ne_bytes(), lost.to_ne_bytes()].concat(), RecordOrigin { time, cpu: 0, tid: 0 })
}

fn who(origin: RecordOrigin) -> Vec<u8> {
    [origin.tid.to_ne_bytes(), origin.tid.to_ne_bytes()].concat()
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut record = kind.to_ne_bytes().to_vec();
    record.extend(0_u16.to_ne_bytes());
    record.extend((8 + body.len() as u16).to_ne_bytes());
    record.extend(body);
    record
}

/// A name in 16 bytes, as the kernel stores it.
pub fn text(comm: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..comm.len()].copy_from_slice(comm.as_bytes());
    bytes
}

/// The common fields with which every tracepoint's data begins.
pub fn common(tid: i32) -> Vec<u8> {
    [[0; 4], tid.to_ne_bytes()].concat()
}

/// Writes a format file: `system:name`, then a line `type name offset size signed` per field, then the print format.
fn write_format(dir: &TempDir, text: &str) {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (system, name) = lines.next().unwrap().split_once(':').unwrap();
    let mut format = format!("name: {name}\nID: 7\nformat:\n");
    let common = ["unsigned short common_type 0 2 0", "unsigned char common_flags 2 1 0"];
    let more = ["unsigned char common_preempt_count 3 1 0", "int common_pid 4 4 1"];
    let (fields, print): (Vec<&str>, Vec<&str>) = lines.partition(|line| !line.starts_with("print fmt"));
    for (index, field) in common.into_iter().chain(more).chain(fields).enumerate() {
        let [signed, size, offset, declared] = *field.rsplitn(4, ' ').collect::<Vec<_>>() else { panic!("{field}") };
        let blank = if index == 4 { "\n" } else { "" };
        format += &format!("{blank}\tfield:{declared};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
    }
    format += &format!("\n{}\n", print.first().copied().unwrap_or("print fmt: \"\""));
    let path = dir.path().join("events").join(system).join(name);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("format"), format).unwrap();
}
