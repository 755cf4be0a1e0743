//! `page-faults`: which tasks take page faults, in which code, and which of these wait for a read.
//!
//! Events: the kernel's software events of minor and of major faults, period 1, on the tasks of the answer;
//! getrusage(2) has the same counts. The tracepoints of `exceptions` do not tell the two kinds apart, and include
//! failed tries. Cost: one record per fault.
//!
//! A major fault has its address, too: what its process has mapped there (`files`) is what it reads.

mod files;

use anyhow::Result;
use perf_event_open_sys::bindings::{PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN};
use rustc_hash::FxHashSet;

use crate::cli::{CommonArgs, values};
use crate::perf::sample_type::SampleType;
use crate::perf::{Attr, Counter, EventId, Evlist, Evsel, Sample};
use crate::profiler::sampling::ExcludeModeArgs;
use crate::profiler::{Context, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::page_faults::files::{FILES, FaultedFiles};
use crate::report::{Column, Schema, TableSchema, Value};
use crate::stats::{KeyedSums, TaskStack};
use crate::symbol::StackId;

/// Who takes page faults, where in the code, and which of them wait for a read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who takes page faults, and where, every second:
    perf-prof page-faults -i 1000
  The faults of a command, each place with its stack:
    perf-prof page-faults -g -- ./job
  Where a process waits for pages that have to be read:
    perf-prof page-faults --major -p nginx -g --for 10

A minor fault finds its page in memory, or takes a new one. A major fault waits
until the page was read from a file or from swap.")]
pub struct PageFaultsArgs {
    /// Only major ones: few, so this costs little
    #[arg(long)]
    major: bool,
    /// So many rows at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    exclude: ExcludeModeArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for PageFaultsArgs {
    const NAME: &'static str = "page-faults";
    const TABLES: &'static [&'static dyn TableSchema] = &[&PLACES, &FILES];
    const WEIGHT: &'static str = "faults";

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(PageFaults { args: self, major_faults: None, sums: KeyedSums::default(), files: None }))
    }
}

#[derive(Clone, Debug, Default)]
struct Faults {
    minor: u64,
    major: u64,
}

static PLACES: Schema<(TaskStack, Faults)> = Schema::<(TaskStack, Faults)>::new(
    "places",
    &[
        Column::counter("minor", "minor", |(_, faults)| &mut faults.minor),
        Column::counter("major", "major", |(_, faults)| &mut faults.major),
        Column::label("pid", "pid", |(task, _)| Value::Signed(task.pid.into())),
        Column::label("comm", "comm", |(task, _)| Value::Comm(task.comm)),
        Column::place("place", "function", |(task, _)| &mut task.stack),
    ],
)
.explained(&[
    ("minor", "faults whose page was in memory, or a new one"),
    ("major", "faults that waited for a read, from a file or from swap"),
])
.ordered(|(one, few), (other, many)| (many.minor + many.major).cmp(&(few.minor + few.major)).then(one.cmp(other)));

/// The profiler behind [`PageFaultsArgs`].
#[derive(Debug)]
struct PageFaults {
    args: PageFaultsArgs,
    major_faults: Option<EventId>,
    sums: KeyedSums<TaskStack, Faults>,
    files: Option<FaultedFiles>,
}

impl Profiler for PageFaults {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let mut add = |name, counter: u32, more: SampleType| {
            let attr = Attr::counter(Counter::Software(counter.into()), 1).with_sample_type(more);
            let evsel = Evsel::new(name, attr).exclude(self.args.exclude.exclude());
            evlist.add(evsel.callchain_if(setup.stacks, 0))
        };
        self.major_faults = Some(add("major-faults", PERF_COUNT_SW_PAGE_FAULTS_MAJ, SampleType::ADDR)?);
        if !self.args.major {
            add("minor-faults", PERF_COUNT_SW_PAGE_FAULTS_MIN, SampleType::IP)?;
        }
        self.files = Some(FaultedFiles::new(setup.host)?);
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if ctx.scope.is_own(sample.tid) || self.files.as_ref().is_some_and(|files| files.thread() == sample.tid) {
            return Ok(Use::Ignored);
        }
        let is_major = self.major_faults == Some(event);
        if let Some(files) = self.files.as_mut().filter(|_| is_major) {
            files.add(sample.pid, ctx.tasks.comm(sample.tid), sample.addr());
        }
        if self.args.common.draws_stacks() {
            let TaskStack { pid, comm, stack } = ctx.task_stack(sample, true);
            ctx.weigh(pid, comm, stack, 1);
        }
        let faults = self.sums.sum(ctx.task_stack(sample, self.args.common.stacks()));
        *(if is_major { &mut faults.major } else { &mut faults.minor }) += 1;
        Ok(Use::Relevant)
    }

    fn tick(&mut self, _now: Timestamp, _ctx: &mut Context) -> TickOutcome {
        let is_urgent = self.files.as_mut().is_some_and(FaultedFiles::ask);
        TickOutcome { is_urgent, ..TickOutcome::default() }
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        report.delta(&PLACES, self.sums.drain().collect()).text_rows(self.args.top as usize);
        if let Some(files) = self.files.as_mut().and_then(FaultedFiles::take_sums) {
            report.delta(&FILES, files).text_rows(self.args.top as usize);
        }
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.files.iter_mut().for_each(FaultedFiles::settle);
        self.interval(now, report)
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.sums.keys().filter_map(|task| task.stack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TypedRows};
    use crate::task::Comm;

    #[test]
    fn who_faults_most_comes_first() {
        let row = |pid, minor, major| (TaskStack { pid, comm: Comm::new(b"a"), stack: None }, Faults { minor, major });
        let rows = TypedRows::new(&PLACES, vec![row(1, 2, 0), row(4, 1, 9), row(3, 10, 0), row(2, 0, 3)]);
        let pids: Vec<i32> = rows.order().into_iter().map(|at| rows.rows()[at].0.pid).collect();
        assert_eq!(pids, [3, 4, 2, 1]);
    }
}
