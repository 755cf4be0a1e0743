//! Lays out messages as text or JSON lines.

mod ends;
mod heatmaps;
mod late_text;
mod metrics;
mod named_stacks;
mod occurrences;
mod outlet;
mod proc_look_ups;
mod quiet;
mod screen;
mod tables;
mod views;
mod weights;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use crate::output::metrics::MetricsRegistry;
use crate::output::settings::OutputSettings;
use crate::output::sink::Sink;
use crate::output::table::RowPlace;
use crate::output::text::frames;
use crate::output::text::stack_numbers::StackNumbers;
use crate::output::writer::named_stacks::NamedStacks;
use crate::output::writer::outlet::Outlet;
use crate::output::writer::proc_look_ups::ProcLookUps;
use crate::output::writer::quiet::QuietParts;
use crate::output::writer::views::WriterView;
use crate::report::{Batch, Book, CellLookUps, Command, LateText, Value};
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::time::CurrentStep;
use crate::symbol::{StackId, SymbolUpdate};
use crate::task::Comm;
use crate::task::call_parts::{CallPartsOf, PartSums};
use crate::task::descriptor::OpenFile;
use crate::unwind::SpaceCode;

pub struct Writer {
    settings: OutputSettings,
    views: Vec<WriterView>,
    pub outlet: Outlet,
    pub stacks: NamedStacks,
    look_ups: ProcLookUps,
    above: LinesAbove,
    sums: WriterSums,
}

/// What the lines above say, so that those below may refer to it.
#[derive(Default)]
struct LinesAbove {
    stack_numbers: StackNumbers,
    explained: tables::ExplainedMarks,
}

/// What the rows of all tables are added to.
struct WriterSums {
    /// Sums of the tables of all intervals.
    book: Book<RowPlace>,
    quiet: QuietParts,
    metrics: Option<MetricsRegistry>,
}

impl Writer {
    pub fn new(
        mut settings: OutputSettings,
        sink: Sink,
        step: CurrentStep,
        publish: Sender<(u32, Arc<SpaceCode>)>,
    ) -> Writer {
        let views = std::mem::take(&mut settings.views);
        let look_ups = ProcLookUps::new(settings.host.clone(), step.clone());
        let mut stacks = NamedStacks::new(&settings, step, publish);
        if settings.prompt && views.iter().any(|view| view.stacks) {
            stacks.names.read_kernel();
        }
        let metrics = settings.metrics.take().map(|snapshots| MetricsRegistry::new(snapshots, metrics::views(&views)));
        let sink = if settings.durable { sink.durable() } else { sink };
        let outlet = Outlet::new(sink, settings.screen.take(), &views);
        let count = views.len();
        Writer {
            settings,
            views: views.into_iter().map(|view| WriterView::new(view, count)).collect(),
            outlet,
            stacks,
            look_ups,
            above: LinesAbove::default(),
            sums: WriterSums { book: Book::default(), quiet: QuietParts::default(), metrics },
        }
    }

    /// Starts a message: one of a report, or a batch of occurrences. Its lines have the time of day by the wall clock
    /// as it is now.
    pub fn start(&mut self, is_report: bool) {
        self.outlet.wall.follow();
        self.stacks.names.start(is_report);
    }

    /// Writes a note that the lookup of names was given up, once a report at most.
    pub fn note_given_up_names(&mut self) -> io::Result<()> {
        match self.stacks.names.take_given_up() {
            Some(line) => self.outlet.tell(&line),
            None => Ok(()),
        }
    }

    /// Looks up what rows lack.
    pub fn look_up(&mut self, texts: &[Arc<LateText>]) {
        let now = Instant::now();
        texts.iter().for_each(|text| text.set(self.look_ups.late_text(text, now)));
    }

    pub fn batch(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut forget = None;
        for news in batch.take_updates() {
            if self.settings.callchains || !matches!(news, SymbolUpdate::StackCounts { .. }) {
                forget = self.stacks.apply(news).or(forget);
            }
        }
        self.occurrences(batch)?;
        let Some((last, kept)) = forget else {
            self.stacks.limit_spaces();
            return Ok(());
        };
        self.print_held()?; // held occurrences may have stacks that are forgotten below
        let is_kept = |id| id > last || kept.contains(&id);
        for view in &mut self.views {
            let forgotten = view.unsettled.take(|id| !is_kept(id));
            view.folded.extend(&forgotten, |id| self.stacks.name(id));
        }
        self.stacks.retain(is_kept);
        Ok(())
    }

    /// Writes a line to stderr, after everything from before it, held occurrences included.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.print_held()?;
        self.outlet.tell(text)
    }
}

/// The values, with each place replaced by its name, and each cell by what was looked up for it.
fn name_values<'v>(stacks: &mut NamedStacks, proc: &mut ProcLookUps, values: &'v [Value]) -> Cow<'v, [Value]> {
    let mut named = Cow::Borrowed(values);
    let mut look_ups = WriterLookUps { stacks, proc };
    for (index, value) in values.iter().enumerate() {
        let found = match value {
            Value::Place(id) => {
                let innermost = look_ups.frames(*id).into_iter().next();
                Some(Value::Text(innermost.map_or_else(|| "".into(), |frame| look_ups.place(&frame))))
            }
            Value::Cell(cell) => cell.looked_up(&mut look_ups),
            _ => None,
        };
        if let Some(found) = found {
            named.to_mut()[index] = found;
        }
    }
    named
}

/// What is looked up for the cells of one message.
struct WriterLookUps<'a> {
    stacks: &'a mut NamedStacks,
    proc: &'a mut ProcLookUps,
}

impl CellLookUps for WriterLookUps<'_> {
    fn frames(&mut self, stack: StackId) -> Vec<NamedFrame> {
        self.stacks.name(stack)
    }

    fn place(&self, frame: &NamedFrame) -> Arc<str> {
        frames::place(frame)
    }

    fn kernel_data(&mut self, address: u64) -> Option<Arc<str>> {
        let named = self.stacks.names.kernel_or_data(address);
        let name = named.symbol.ok()?;
        Some(if named.offset == 0 { name } else { format!("{name}+{:#x}", named.offset).into() })
    }

    fn command(&mut self, pid: i32, comm: Comm) -> Command {
        self.proc.command(pid, comm, Instant::now())
    }

    fn file(&mut self, tid: i32, fd: i32) -> Option<OpenFile> {
        self.proc.file(tid, fd, Instant::now())
    }

    fn part_sums(&mut self, question: &CallPartsOf) -> Option<PartSums> {
        self.proc.part_sums(question, Instant::now())
    }

    fn string(&mut self, tid: i32, address: u64) -> Option<Vec<u8>> {
        self.proc.string(tid, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::floods;
    use crate::perf::record::Innermost;
    use crate::stats::weights::{Weight, Weighted};
    use crate::symbol::stacks::key::StackKey;
    use crate::symbol::{SpaceKeys, Stacks};

    /// A writer that knows the stack of one function, and the step that it shows.
    fn writer_with_stack(function: fn()) -> (Writer, CurrentStep, Option<StackId>) {
        let sink = Sink::file("/dev/null".as_ref()).unwrap();
        let step = CurrentStep::default();
        let publish = crossbeam_channel::bounded(1).0;
        let mut writer = Writer::new(crate::output::tests::settings(false), sink, step.clone(), publish);
        let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
        let (ip, pid) = (function as *const () as u64, std::process::id() as i32);
        let id = stacks.intern_address(ip, true, Innermost::Executed, pid, &mut keys);
        let mut batch = Batch::default();
        stacks.take_updates().for_each(|news| batch.push_update(news));
        writer.batch(&mut batch).unwrap();
        (writer, step, id)
    }

    /// The weight of a stack whose names were given up is counted in the next report, with names.
    #[test]
    fn names_that_were_given_up_are_looked_for_again() {
        let (mut writer, step, id) = writer_with_stack(names_that_were_given_up_are_looked_for_again);
        let pid = std::process::id() as i32;
        let row = Weighted { pid, comm: Comm::new(b"test"), stack: id, weight: Weight { amount: 7, samples: 1 } };
        step.set_hurry();
        writer.weights(0, &[row]);
        assert_eq!((writer.views[0].folded.total().amount, writer.views[0].unsettled.rows()), (0, vec![row]));
        writer.weights(0, &[row]);
        assert_eq!(
            writer.views[0].unsettled.rows(),
            [Weighted { weight: Weight { amount: 14, samples: 2 }, ..row }],
            "still"
        );
        step.end_hurry();
        let again = writer.views[0].unsettled.take(|_| true);
        writer.weights(0, &again);
        assert!(writer.views[0].folded.total().amount == 14 && writer.views[0].unsettled.rows().is_empty());
        assert!(
            !writer.views[0].folded.lines().concat().contains("names given up"),
            "{:?}",
            writer.views[0].folded.lines()
        );
    }

    /// A stack is not referred to by its number until its frames were printed with all names that can be found.
    #[test]
    fn a_stack_without_its_names_is_printed_again() {
        let (mut writer, step, id) = writer_with_stack(a_stack_without_its_names_is_printed_again);
        let mut batch = Batch::default();
        step.set_hurry();
        for is_named in [false, false, true] {
            if is_named {
                step.end_hurry();
            }
            floods::wait(&mut batch, 1, 1, id);
            writer.batch(&mut batch).unwrap();
            batch.clear();
            assert_eq!(writer.above.stack_numbers.is_above(&StackKey::of(id, &writer.stacks.frames)), is_named);
        }
    }
}
