//! Lays out messages as text or JSON lines.

mod commands;
mod heatmaps;
mod late_text;
mod metrics;
mod occurrences;
mod quiet;
mod screen;
mod tables;
mod views;
mod weights;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use crate::escape::escape;
use crate::json::Object;
use crate::output::json::ViewLabel;
use crate::output::metrics::MetricsRegistry;
use crate::output::screen::Screen;
use crate::output::settings::OutputSettings;
use crate::output::sink::Sink;
use crate::output::stack_weights::fold::Folded;
use crate::output::table::RowPlace;
use crate::output::text::frames;
use crate::output::text::stack_numbers::StackNumbers;
use crate::output::wall::WallClock;
use crate::output::writer::commands::Commands;
use crate::output::writer::late_text::LateReader;
use crate::output::writer::quiet::QuietParts;
use crate::output::writer::views::WriterView;
use crate::output::{IntervalEnd, RunEnd, UnwindingSums, ViewEnd, json};
use crate::report::{Batch, Book, CellLookUps, Command, LateText, Value};
use crate::stats::weights::Weighted;
use crate::symbol::files::UnnamedReason;
use crate::symbol::names::NamedFrame;
use crate::symbol::quality::CallchainQuality;
use crate::symbol::quality_counts::{QualityCounts, UserStack};
use crate::symbol::stacks::NewStack;
use crate::symbol::unwinding::Unwinding;
use crate::symbol::{AddressSpaces, CurrentStep, Frame, FrameNames, Frames, StackId, SymbolUpdate};
use crate::sys;
use crate::task::Comm;
use crate::unwind::SpaceCode;

pub struct Writer {
    settings: OutputSettings,
    sink: Sink,
    wall: WallClock,
    names: FrameNames,
    spaces: AddressSpaces,
    unwinding: Unwinding,
    stacks: Frames,
    /// Processes whose mappings are to be read when there is time.
    unread: Vec<i32>,
    views: Vec<WriterView>,
    quality: QualityCounts,
    stack_numbers: StackNumbers,
    explained: tables::ExplainedMarks,
    /// Sums of the tables of all intervals.
    book: Book<RowPlace>,
    quiet: QuietParts,
    metrics: Option<MetricsRegistry>,
    step: CurrentStep,
    commands: Commands,
    late: LateReader,
    /// Nothing more is written to stderr either.
    is_quiet: bool,
    /// Shows results in place of `sink`.
    screen: Option<Screen>,
}

impl Writer {
    pub fn new(
        mut settings: OutputSettings,
        sink: Sink,
        step: CurrentStep,
        publish: Sender<(u32, Arc<SpaceCode>)>,
    ) -> Writer {
        let kallsyms = settings.host.proc.join("kallsyms");
        let mut names = FrameNames::observed(kallsyms, settings.symbols.clone(), step.clone());
        let views = std::mem::take(&mut settings.views);
        let count = views.len();
        let views: Vec<WriterView> = views.into_iter().map(|view| WriterView::new(view, count)).collect();
        if settings.prompt && views.iter().any(|view| view.settings.stacks) {
            names.read_kernel();
        }
        let spaces = AddressSpaces::new(settings.host.clone()).within(&settings.budget);
        let metrics = settings.metrics.take();
        let metrics = metrics.map(|snapshots| MetricsRegistry::new(snapshots, metrics::views(&views)));
        let mut sink = if settings.durable { sink.durable() } else { sink };
        let screen = settings.screen.take().map(|port| screen::start(port, &views, &mut sink));
        let commands = Commands::new(settings.host.clone(), step.clone());
        let late = LateReader::new(settings.host.clone());
        Writer {
            unwinding: Unwinding::new(settings.symbols.budget.clone(), publish),
            settings,
            sink,
            wall: WallClock::now(),
            names,
            spaces,
            stacks: Frames::default(),
            unread: Vec::new(),
            views,
            quality: QualityCounts::default(),
            stack_numbers: StackNumbers::default(),
            explained: tables::ExplainedMarks::default(),
            book: Book::default(),
            quiet: QuietParts::default(),
            metrics,
            step,
            commands,
            late,
            is_quiet: false,
            screen,
        }
    }

    /// Starts a message: one of a report, or a batch of occurrences. Its lines have the time of day by the wall clock
    /// as it is now.
    pub fn start(&mut self, is_report: bool) {
        self.wall.follow();
        self.names.start(is_report);
    }

    /// Writes no more results. The flame graph is still written, and so are notes on stderr unless the run ends with an
    /// error.
    pub fn end_results(&mut self, is_normal: bool) {
        self.sink.end();
        self.screen = None;
        self.is_quiet |= !is_normal;
    }

    /// Writes a note that the lookup of names was given up, once a report at most.
    pub fn note_given_up_names(&mut self) -> io::Result<()> {
        match self.names.take_given_up() {
            Some(line) => self.tell(&line),
            None => Ok(()),
        }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Prepares for stacks of these processes: the mappings of a few are read now, those of many when there is time.
    pub fn expect_stacks_of(&mut self, pids: Vec<i32>) {
        const FEW: usize = 64;
        let few = pids.len() <= FEW;
        self.unread = pids;
        while few && self.read_ahead() {}
    }

    /// Looks up what rows lack.
    pub fn look_up(&mut self, texts: &[Arc<LateText>]) {
        let now = Instant::now();
        texts.iter().for_each(|text| text.set(self.commands.late_text(text, now)));
    }

    /// Reads the mappings of one more process. False when there is none left.
    pub fn read_ahead(&mut self) -> bool {
        let next = self.unread.pop();
        next.inspect(|pid| self.step.in_process(*pid, || self.spaces.preload(*pid))).is_some()
    }

    pub fn batch(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut forget = None;
        for news in batch.take_updates() {
            match news {
                // Reading the mappings of a process may take long.
                SymbolUpdate::Space(_) | SymbolUpdate::Stack(_) if self.step.is_in_hurry() => {}
                SymbolUpdate::Space(change) => self.step.in_process(change.pid(), || self.spaces.apply(change)),
                SymbolUpdate::Stack(stack) => self.keep_stack(stack),
                SymbolUpdate::StackCounts { stacks, empty } => self.judge(&stacks, empty),
                SymbolUpdate::Forget { last, kept } => forget = Some((last, kept)),
                SymbolUpdate::RereadMaps => self.spaces.forget_processes(),
            }
        }
        self.occurrences(batch)?;
        if let Some((last, kept)) = forget {
            self.print_held()?; // held occurrences may have stacks that are forgotten below
            for view in &mut self.views {
                let forgotten = view.unsettled.take(|id| id <= last && !kept.contains(&id));
                view.folded.extend(&forgotten, |id| name_stack(&self.stacks, &mut self.names, id));
            }
            self.stacks.retain(|id| id > last || kept.contains(&id));
            self.names.forget_unused();
            self.spaces.forget_unused();
        } else if self.spaces.is_full() {
            self.names.forget_unused();
            self.spaces.forget_unused();
        }
        Ok(())
    }

    fn keep_stack(&mut self, stack: NewStack) {
        let (id, pid) = (stack.id, stack.pid);
        let (frames, user) = self.step.in_process(pid, || {
            let stack = self.unwinding.finish(stack, &mut self.spaces);
            let part = stack.user_part();
            let frames = stack.frames(&mut self.spaces);
            let has_user = frames.iter().any(|frame| matches!(frame, Frame::User { .. }));
            (frames, has_user.then(|| UserStack { part, program: self.spaces.program(pid) }))
        });
        self.stacks.insert(id, frames);
        user.into_iter().for_each(|user| self.stacks.set_user(id, user));
    }

    /// Counts callchains by quality.
    fn judge(&mut self, stacks: &[(StackId, u64)], empty: u64) {
        if !self.settings.callchains {
            return;
        }
        for (id, taken) in stacks {
            if let Some(frames) = self.stacks.get(*id) {
                let user = self.stacks.user(*id);
                let part = user.map(|user| user.part).unwrap_or_default();
                self.quality.add(&CallchainQuality::of(frames, part, &mut self.names), user, *taken);
            }
        }
        self.quality.add(&CallchainQuality::Empty, None, empty);
    }

    pub fn interval(&mut self, end: &IntervalEnd) -> io::Result<()> {
        if let Some(line) = &end.loss_line {
            self.note(line)?;
        }
        self.screen.iter().for_each(|screen| screen.interval(end));
        if !self.settings.json {
            return Ok(());
        }
        let out = &mut self.sink.buffer;
        let label = ViewLabel::of(&self.views, end.view);
        let mut object = json::head(out, "interval", label, end.end_ns, &mut self.wall);
        object.unsigned("interval", end.interval);
        object.unsigned("start_ns", end.start_ns);
        object.unsigned("end_ns", end.end_ns);
        object.unsigned("samples", end.samples);
        object.unsigned("lost", end.lost);
        object.unsigned("lost_side", end.lost_side);
        let windows = object.key("lost_windows");
        windows.push(b'[');
        for (index, span) in end.lost_windows.iter().enumerate() {
            if index > 0 {
                windows.push(b',');
            }
            let mut object = Object::new(windows);
            object.unsigned("cpu", u64::from(span.cpu));
            object.unsigned("start_ns", span.start_ns);
            object.unsigned("end_ns", span.end_ns);
            object.unsigned("count", span.count);
            object.end();
        }
        windows.push(b']');
        object.unsigned("discarded", end.discarded);
        object.value("verdict", &Value::Word(end.verdict.word()));
        let _ = write!(object.key("coverage"), "{:.6}", end.coverage);
        json::filtered_by(&mut object, &end.filtered_by);
        totals(&mut object, &end.totals);
        object.end();
        out.push(b'\n');
        self.sink.flush_large()
    }

    pub fn end(&mut self, end: &RunEnd) -> io::Result<()> {
        self.print_held()?;
        self.totals_of_run(usize::MAX, end.time_ns)?;
        self.print_heatmaps(end.time_ns)?;
        let unwinding = end.unwinding.map(|sums| {
            let here = self.unwinding.counts();
            UnwindingSums { rules: sums.rules + here.rules, rules_made: sums.rules_made + here.made, ..sums }
        });
        if self.settings.json {
            let out = &mut self.sink.buffer;
            let label = match &self.views[..] {
                [view] => view.label(),
                _ => ViewLabel::from(self.settings.name.as_str()),
            };
            let mut object = json::head(out, "end", label, end.time_ns, &mut self.wall);
            object.unsigned("samples", end.samples);
            object.unsigned("lost", end.lost);
            object.unsigned("lost_output", end.lost_output);
            object.unsigned("lost_side", end.lost_side);
            object.unsigned("lost_switches", end.lost_switches);
            object.unsigned("lost_stacks", end.lost_stacks);
            object.unsigned("lost_pairs", end.lost_pairs);
            object.unsigned("lost_calls", end.lost_calls);
            object.unsigned("unseen", end.unseen);
            object.unsigned("lost_unwind", end.lost_unwind);
            object.unsigned("children_in_doubt", end.children_in_doubt);
            object.unsigned("malformed", end.malformed);
            object.unsigned("discarded", end.discarded);
            object.unsigned("late", end.late);
            object.unsigned("intervals", end.intervals);
            json::filtered_by(&mut object, &end.filtered_by);
            totals(&mut object, &end.totals);
            views_at_end(&mut object, &self.views, &end.views);
            let mut own = Object::new(object.key("self"));
            own.unsigned("cpu_ns", end.cpu_ns);
            // The names of the last report are looked up after the run has told its cost.
            own.unsigned("rss_peak_bytes", sys::self_usage().1.max(end.rss_peak_bytes));
            own.unsigned("locked_bytes", end.locked_bytes);
            own.unsigned("wakeups", end.wakeups);
            own.decimal("events_per_s", end.per_s(end.samples));
            own.decimal("bytes_per_s", end.per_s(end.record_bytes));
            own.end();
            if self.settings.callchains {
                json::quality(&mut object, &self.quality);
            }
            unwinding.iter().for_each(|sums| json::unwinding(&mut object, sums));
            let coverage = self.names.coverage();
            if coverage.count.total() > 0 {
                json::coverage(&mut object, &coverage);
            }
            object.end();
            out.push(b'\n');
        }
        self.flush()?;
        let mut lines = Vec::new();
        if self.settings.coverage {
            lines = self.quality.describe();
            lines.extend(unwinding.map(|sums| sums.describe()));
            lines.append(&mut self.names.coverage().describe());
        } else if !self.settings.json {
            lines.extend(self.quality.warning());
            lines.extend(self.names.coverage().jit_cure());
        }
        for line in lines.iter().chain(&end.summary) {
            self.note(line)?;
        }
        Ok(())
    }

    /// Writes a line to stderr, after everything from before it, held occurrences included.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.print_held()?;
        self.tell(text)
    }

    /// Writes a line to stderr, after the lines printed before it.
    fn tell(&mut self, text: &str) -> io::Result<()> {
        self.flush()?;
        if self.is_quiet {
            return Ok(());
        }
        let lines: Vec<String> = text.lines().map(|line| escape(line.as_bytes())).collect();
        if self.screen.as_mut().is_some_and(|screen| !screen.note(&lines)) {
            return Ok(());
        }
        self.sink.note(&lines.join("\n"));
        Ok(())
    }
}

/// What is told of each of several views at the end.
fn views_at_end(object: &mut Object<'_>, views: &[WriterView], ends: &[ViewEnd]) {
    if ends.is_empty() {
        return;
    }
    let list = object.key("views");
    list.push(b'[');
    for (at, (view, end)) in views.iter().zip(ends).enumerate() {
        if at > 0 {
            list.push(b',');
        }
        let mut object = Object::new(list);
        object.text("view", &view.settings.name);
        object.text("profiler", view.settings.profiler);
        object.unsigned("samples", end.samples);
        object.unsigned("lost", end.lost);
        object.unsigned("lost_pairs", end.lost_pairs);
        object.unsigned("discarded", end.discarded);
        object.end();
    }
    list.push(b']');
}

fn totals(object: &mut Object<'_>, totals: &[(&'static str, Value)]) {
    for (key, value) in totals {
        object.value(key, value);
    }
}

/// The values, with each place replaced by its name, and each cell by what was looked up for it.
fn name_values<'v>(
    stacks: &Frames,
    names: &mut FrameNames,
    commands: &mut Commands,
    values: &'v [Value],
) -> Cow<'v, [Value]> {
    let mut named = Cow::Borrowed(values);
    let mut look_ups = WriterLookUps { stacks, names, commands };
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
    stacks: &'a Frames,
    names: &'a mut FrameNames,
    commands: &'a mut Commands,
}

impl CellLookUps for WriterLookUps<'_> {
    fn frames(&mut self, stack: StackId) -> Vec<NamedFrame> {
        name_stack(self.stacks, self.names, stack)
    }

    fn place(&self, frame: &NamedFrame) -> Arc<str> {
        let mut text = Vec::new();
        frames::place(frame, &mut text);
        String::from_utf8_lossy(&text).into()
    }

    fn command(&mut self, pid: i32, comm: Comm) -> Command {
        self.commands.command(pid, comm, Instant::now())
    }

    fn file(&mut self, tid: i32, fd: i32) -> Option<Vec<u8>> {
        self.commands.file(tid, fd, Instant::now())
    }

    fn string(&mut self, tid: i32, address: u64) -> Option<Vec<u8>> {
        self.commands.string(tid, address)
    }
}

/// The frames of a stack with their names. Names are cached by address, not by stack: there may be very many stacks.
fn name_stack(stacks: &Frames, names: &mut FrameNames, id: StackId) -> Vec<NamedFrame> {
    match stacks.get(id) {
        Some(frames) => names.stack(frames),
        None => vec![NamedFrame::new(Err(LEFT_OUT.into()), 0, None)],
    }
}

/// The reading thread left out the stack, or the mappings of its addresses.
const LEFT_OUT: UnnamedReason = "stack left out: the output could not keep up";

fn fold(stacks: &Frames, names: &mut FrameNames, rows: &[Weighted]) -> Folded {
    Folded::new(rows, |id| name_stack(stacks, names, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::floods;
    use crate::perf::record::Innermost;
    use crate::stats::weights::Weight;
    use crate::symbol::stack_key::StackKey;
    use crate::symbol::{SpaceKeys, Stacks};

    /// The weight of a stack whose names were given up is counted in the next report, with names.
    #[test]
    fn names_that_were_given_up_are_looked_for_again() {
        let sink = Sink::file("/dev/null".as_ref()).unwrap();
        let step = CurrentStep::default();
        let mut writer =
            Writer::new(crate::output::tests::settings(false), sink, step.clone(), crossbeam_channel::bounded(1).0);
        let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
        let pid = std::process::id() as i32;
        let ip = names_that_were_given_up_are_looked_for_again as *const () as u64;
        let id = stacks.intern_address(ip, true, Innermost::Executed, pid, &mut keys);
        let mut batch = Batch::default();
        stacks.take_updates().for_each(|news| batch.push_update(news));
        writer.batch(&mut batch).unwrap();
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
        let sink = Sink::file("/dev/null".as_ref()).unwrap();
        let step = CurrentStep::default();
        let mut writer =
            Writer::new(crate::output::tests::settings(false), sink, step.clone(), crossbeam_channel::bounded(1).0);
        let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
        let ip = a_stack_without_its_names_is_printed_again as *const () as u64;
        let id = stacks.intern_address(ip, true, Innermost::Executed, std::process::id() as i32, &mut keys);
        let mut batch = Batch::default();
        stacks.take_updates().for_each(|news| batch.push_update(news));
        writer.batch(&mut batch).unwrap();
        step.set_hurry();
        for is_named in [false, false, true] {
            if is_named {
                step.end_hurry();
            }
            floods::wait(&mut batch, 1, 1, id);
            writer.batch(&mut batch).unwrap();
            batch.clear();
            assert_eq!(writer.stack_numbers.is_above(&StackKey::of(id, &writer.stacks)), is_named);
        }
    }
}
