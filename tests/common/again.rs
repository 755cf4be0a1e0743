//! Why a scenario may be repeated. What it has provoked may not have happened, or the run may say itself that it has not seen
//! everything. Whatever else is wrong fails at once: a repetition would hide it.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perf_prof::sys::bpf::{BpfMap, MapKind};
use serde_json::Value;

use super::{Done, before_all_others, load_number, once_more, online_cpus, own_tid, pin, stolen_ns};

/// Runs of a scenario at most.
const ATTEMPTS: usize = 4;

/// What may excuse a shortfall. It does so only with its evidence, for which [`again`] looks itself.
#[derive(Clone, Copy, Debug)]
pub enum Again<'a> {
    /// The run has lost records, or BPF programs have hidden some, as it says.
    RecordsLost(&'a Done),
    /// The end of a run says that BPF programs, of another test that runs at the same time, have hidden records, or that the run has
    /// discarded what it could not pair.
    EndUnseen(&'a Value),
    /// The run has discarded what it could not pair, as it says.
    Discarded(&'a Done),
    /// The load has ended, and the run says that pairs go on: their ends were in no record.
    EndsUnseen(&'a Done),
    /// The run says of a CPU that it hides its idle task, or of a row that a wake-up was hidden. No excuse where perf-prof has
    /// another witness of what is hidden: see [`Again::refused`].
    IdleHidden(&'a Done),
    /// The run says of a row that a task hid why it has left its CPU.
    TaskHidden(&'a Done),
    /// The run has given up names of frames, as it says.
    NamesGivenUp(&'a Done),
    /// For so long at least a CPU did not run at all.
    CpuStolen(&'a CpuWatch, Duration),
    /// The line of the load has such a number above this: it has done its work too late, or too slowly.
    LoadAbove(&'a str, &'a str, u64),
    /// The line of the load has such a number below this: it has not done enough.
    LoadBelow(&'a str, &'a str, u64),
    /// The host has stopped the guest, as a line of the run in the guest says.
    GuestStopped(&'a Done),
    /// Some task of this machine waited for a CPU for so long, all in all: for guests and loads whose time goes on meanwhile, if
    /// they would have the CPU for themselves.
    CpuBusy(&'a CpuWatch, Duration),
}

/// A scenario that fell short for a reason. Only [`again`] makes one.
#[derive(Debug)]
pub struct Shortfall(String);

/// Right, or to be tried once more.
pub type Attempted = Result<(), Shortfall>;

/// `what` is missing or wrong. An `Err` if one of the reasons holds; else the test fails here.
#[track_caller]
pub fn again<T>(reasons: &[Again], what: impl Display) -> Result<T, Shortfall> {
    match reasons.iter().find(|reason| reason.holds() && !reason.refused()) {
        Some(reason) => Err(Shortfall(format!("{reason}: {what}"))),
        None if reasons.is_empty() => panic!("{what}"),
        None => {
            let none: Vec<String> = reasons.iter().map(|reason| format!("not so: {reason}")).collect();
            panic!("{what}\n{}", none.join("\n"))
        }
    }
}

/// [`again`] unless `holds`.
#[track_caller]
pub fn or_again(holds: bool, reasons: &[Again], what: impl FnOnce() -> String) -> Attempted {
    if holds { Ok(()) } else { again(reasons, what()) }
}

/// Repeats a scenario as long as it falls short for a reason, four times at most.
#[track_caller]
pub fn attempts(mut scenario: impl FnMut() -> Attempted) {
    for attempt in 1..=ATTEMPTS {
        match scenario() {
            Ok(()) => return,
            Err(Shortfall(why)) if attempt == ATTEMPTS => panic!("{ATTEMPTS} times: {why}"),
            Err(Shortfall(why)) => once_more(&why),
        }
    }
}

impl Again<'_> {
    /// Whether the evidence is there.
    fn holds(&self) -> bool {
        match *self {
            Again::RecordsLost(done) => {
                const WORDS: &str = "came while another BPF program ran";
                done.counts_any(&["lost", "lost_side", "lost_output", "lost_stacks", "lost_unwind"], " lost")
                    || done.of_type("end").iter().any(has_hidden)
                    || done.err.iter().chain(&done.out).any(|line| line.contains(WORDS))
            }
            Again::EndUnseen(end) => has_hidden(end) || end["discarded"].as_u64() > Some(0),
            Again::Discarded(done) => done.counts_any(&["discarded"], " discarded"),
            Again::EndsUnseen(done) => counts(done, "total", "now") || counts(done, "row", "now"),
            Again::IdleHidden(done) => hides_idle(done),
            Again::TaskHidden(done) => counts(done, "row", "unknown"),
            Again::NamesGivenUp(done) => done.err.iter().any(|line| line.contains("given up")),
            Again::CpuStolen(watch, least) => watch.stolen() >= least.max(LATE),
            Again::LoadAbove(line, key, limit) => load_number(line, key) > limit,
            Again::LoadBelow(line, key, limit) => load_number(line, key) < limit,
            Again::GuestStopped(done) => done
                .of_type("event")
                .iter()
                .any(|event| ["machine stopped", "stolen"].iter().any(|kind| event["kind"] == *kind)),
            Again::CpuBusy(watch, least) => watch.stolen().max(watch.waited()) >= least.max(LATE),
        }
    }

    /// Reasons that hold and excuse nothing on this machine: where BPF programs may be loaded, one is the witness of what a
    /// hidden idle task hides.
    fn refused(&self) -> bool {
        matches!(self, Again::IdleHidden(_)) && loads_programs()
    }
}

/// Whether bpf(2) gives us what a program needs.
pub fn loads_programs() -> bool {
    BpfMap::new(MapKind::Array, 4, 1).is_ok()
}

impl Display for Again<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Again::RecordsLost(_) => write!(f, "the run has lost records"),
            Again::EndUnseen(_) => {
                write!(f, "records were hidden from the run, or it has discarded what it could not pair")
            }
            Again::Discarded(_) => write!(f, "the run has discarded what it could not pair"),
            Again::EndsUnseen(_) => write!(f, "the run has not seen the ends of some"),
            Again::IdleHidden(_) => write!(f, "the run says that an idle task is hidden"),
            Again::TaskHidden(_) => write!(f, "the run says that a task is hidden"),
            Again::NamesGivenUp(_) => write!(f, "the run has given up names"),
            Again::CpuStolen(watch, least) => {
                write!(f, "a CPU stood still for {least:?} or longer (for {:?} at most)", watch.stolen())
            }
            Again::LoadAbove(line, key, limit) => write!(f, "{key} of the load is above {limit} ({line})"),
            Again::LoadBelow(line, key, limit) => write!(f, "{key} of the load is below {limit} ({line})"),
            Again::GuestStopped(_) => write!(f, "the host has stopped the guest"),
            Again::CpuBusy(watch, least) => {
                write!(f, "CPUs were busy for {least:?} or longer (for {:?} at most)", watch.waited())
            }
        }
    }
}

/// What the program says of wake-ups, and switches from idle, that no event has shown.
fn hides_idle(done: &Done) -> bool {
    const WORDS: [&str; 3] =
        ["hides its idle task from events", "hide their idle tasks from events", "its wake-up was not seen"];
    let in_words = |line: &String| WORDS.iter().any(|words| line.contains(words));
    { done.err.iter().chain(&done.out) }.any(in_words)
        || counts(done, "row", "unwoken")
        || counts(done, "interval", "hidden")
}

/// Whether the end of a run counts records that came while another BPF program ran.
fn has_hidden(end: &Value) -> bool {
    end["filtered_by"]
        .as_array()
        .is_some_and(|programs| programs.iter().any(|program| program["missed"].as_u64() > Some(0)))
}

/// Whether objects of JSON count some.
fn counts(done: &Done, kind: &str, key: &str) -> bool {
    done.of_type(kind).iter().any(|object| object[key].as_u64() > Some(0))
}

/// Whether the CPUs ran, since it was started.
#[derive(Debug)]
pub struct CpuWatch {
    stolen_ns: u64,
    waited: Duration,
    /// Of each CPU that is watched by the clock.
    late_ns: Vec<Arc<AtomicU64>>,
    ended: Arc<AtomicBool>,
}

/// Seldom enough to be no load.
const BEAT: Duration = Duration::from_millis(5);
/// Shorter delays have many causes.
const LATE: Duration = Duration::from_millis(2);

impl CpuWatch {
    /// By the hypervisor's account of the time that it took.
    pub fn of_account() -> CpuWatch {
        CpuWatch { stolen_ns: stolen_ns(), waited: waited(), late_ns: Vec::new(), ended: Arc::default() }
    }

    /// By the clock, too, for a host that keeps no account: a thread on each CPU, before all others there, sleeps again and again
    /// for [`BEAT`]. Only a CPU that stands still makes it late. Not for tests of idle CPUs: no CPU is idle for longer.
    pub fn by_clock() -> CpuWatch {
        let mut watch = CpuWatch::of_account();
        for cpu in online_cpus() {
            let (late_ns, ended) = (Arc::<AtomicU64>::default(), Arc::clone(&watch.ended));
            watch.late_ns.push(Arc::clone(&late_ns));
            thread::spawn(move || {
                let is_first = pin(cpu) && before_all_others(own_tid());
                while is_first && !ended.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    thread::sleep(BEAT);
                    let late = { start.elapsed() }.saturating_sub(BEAT);
                    late_ns.fetch_add(if late > LATE { late.as_nanos() as u64 } else { 0 }, Ordering::Relaxed);
                }
            });
        }
        watch
    }

    /// Time for which one CPU did not run, or all of them together.
    fn stolen(&self) -> Duration {
        let late = self.late_ns.iter().map(|ns| ns.load(Ordering::Relaxed)).max();
        Duration::from_nanos(late.unwrap_or(0).max(stolen_ns().saturating_sub(self.stolen_ns)))
    }

    /// Time in which some task waited for a CPU.
    fn waited(&self) -> Duration {
        waited().saturating_sub(self.waited)
    }
}

/// The same since boot. None without pressure stall information.
fn waited() -> Duration {
    let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = text.lines().next().and_then(|some| some.split_once("total=")?.1.trim().parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

impl Drop for CpuWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
