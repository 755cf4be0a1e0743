//! The lines of slow calls. A line waits until its file is known, which takes a moment.

use anyhow::Result;

use crate::calls::call::CallingThread;
use crate::calls::sched::SchedEvents;
use crate::calls::where_time::{CallClocks, TimeParts};
use crate::cli::LatencyArgs;
use crate::perf::{Evlist, Sample};
use crate::profiler::{Context, Setup};
use crate::profilers::files::names::{CalledFiles, FileKind, FileNumber, NamedFile};
use crate::profilers::files::operations::FileOperation;
use crate::profilers::files::pairs::FileCall;
use crate::profilers::files::table::{SLOW, SlowFileCall, failure};
use crate::relation::OpenStart;
use crate::report::Subject;
use crate::symbol::StackId;

/// Most lines that wait for names; further ones have those that are known.
const MAX_WAITING: usize = 10_000;

/// What is needed for lines.
#[derive(Debug)]
pub struct SlowFileCalls {
    pub sched: SchedEvents,
    pub clocks: CallClocks,
    lengths: LatencyArgs,
    /// `-g`
    stacks: bool,
    waiting: Vec<WaitingLine>,
}

#[derive(Debug)]
struct WaitingLine {
    file: FileNumber,
    subject: Subject,
    slow: SlowFileCall,
    stack: Option<StackId>,
}

impl SlowFileCalls {
    /// None: no lines are wanted.
    ///
    /// # Errors
    /// As [`SchedEvents::open`].
    pub fn open(
        lengths: LatencyArgs,
        stacks: bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<Option<SlowFileCalls>> {
        if !lengths.shows_any() {
            return Ok(None);
        }
        let (sched, clocks) = (SchedEvents::open(stacks, evlist, setup)?, CallClocks::default());
        Ok(Some(SlowFileCalls { sched, clocks, lengths, stacks, waiting: Vec::new() }))
    }

    /// A call has ended, with its return value and the position in its file at which it began.
    pub fn ended(
        &mut self,
        start: &OpenStart<FileCall>,
        call: &FileCall,
        (ret, offset): (i64, Option<u64>),
        sample: &Sample<'_>,
        names: &CalledFiles,
        ctx: &mut Context,
    ) {
        let ns = sample.time.saturating_sub(start.since);
        let ended = self.clocks.exited(sample.tid, sample.time);
        let Some(operation) = call.used.operation.filter(|_| self.lengths.shows(ns)) else { return };
        let parts = ended.map_or(TimeParts { unseen: ns, ..TimeParts::default() }, |(_, parts)| parts);
        let (bytes, errno) = (call.bytes(ret), failure(ret));
        let slow = SlowFileCall { offset, bytes, errno, parts, ..self.slow_call(start, operation, ns) };
        self.add(start, slow, sample.time, sample.cpu);
        if self.waiting.len() >= MAX_WAITING {
            self.show_named(names, true, ctx);
        }
    }

    /// Lines for calls that go on.
    pub fn show_open(&mut self, due: &[(CallingThread, OpenStart<FileCall>)], now: u64, names: &CalledFiles) {
        for (CallingThread(tid), start) in due {
            let own = start.open.own;
            let Some(operation) = own.used.operation else { continue };
            if names.kind(own.file) == Some(FileKind::NoFile) {
                continue;
            }
            let ns = now.saturating_sub(start.since);
            let parts = self.clocks.get_mut(*tid, now).map(|clock| clock.so_far(now));
            let parts = parts.unwrap_or(TimeParts { unseen: ns, ..TimeParts::default() });
            let slow = SlowFileCall { parts, goes_on: true, ..self.slow_call(start, operation, ns) };
            self.add(start, slow, now, start.open.cpu);
        }
    }

    fn slow_call(&self, start: &OpenStart<FileCall>, operation: FileOperation, ns: u64) -> SlowFileCall {
        SlowFileCall {
            ns,
            call: start.open.own.call,
            operation,
            file: NamedFile::default(),
            offset: None,
            bytes: None,
            errno: None,
            parts: TimeParts::default(),
            goes_on: false,
        }
    }

    fn add(&mut self, start: &OpenStart<FileCall>, slow: SlowFileCall, time: u64, cpu: u32) {
        let OpenStart { open, .. } = start;
        let subject = Subject { time, cpu, pid: open.pid, tid: open.tid, comm: open.comm };
        let stack = slow.parts.wait_stack.or(open.stack).filter(|_| self.stacks);
        self.waiting.push(WaitingLine { file: open.own.file, subject, slow, stack });
    }

    /// Hands over the lines whose files are known, or all.
    pub fn show_named(&mut self, names: &CalledFiles, all: bool, ctx: &mut Context) {
        for line in self.waiting.extract_if(.., |line| all || !names.is_asked(line.file)) {
            if names.kind(line.file) == Some(FileKind::NoFile) {
                continue;
            }
            let slow = SlowFileCall { file: names.name(line.file), ..line.slow };
            ctx.emit(&SLOW, line.subject, &slow, line.stack);
        }
    }

    /// The stacks that may still be shown.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        let waiting = self.waiting.iter().flat_map(|line| [line.stack, line.slow.parts.wait_stack]).flatten();
        self.clocks.stacks().chain(waiting)
    }
}
