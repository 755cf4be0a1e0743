//! The output thread: takes messages in order and writes them.

pub mod in_flight;
pub mod patience;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::output::drawing::DrawingWriteError;
use crate::output::thread::in_flight::InFlight;
use crate::output::writer::Writer;
use crate::output::{Message, OutputClosed};
use crate::report::Batch;
use crate::sys;
use crate::sys::poll::Waker;

/// Bytes kept of each part of an empty batch: while the output was slow, each may have grown to many times its usual
/// size.
pub(super) const KEPT_BYTES: usize = 2 * super::BATCH_BYTES;

/// Tells the reading thread that the output is closed, and why.
#[derive(Debug)]
pub(super) struct CloseSignal {
    is_closed: AtomicBool,
    how: Mutex<Option<OutputClosed>>,
    waker: Arc<Waker>,
}

impl CloseSignal {
    pub fn new(waker: Arc<Waker>) -> CloseSignal {
        CloseSignal { is_closed: AtomicBool::new(false), how: Mutex::new(None), waker }
    }

    /// True when the run need not go on: everything is written, or nobody reads.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Option<OutputClosed> {
        self.how.lock().ok()?.take()
    }

    /// Closes the output when the returned value is dropped, also by a panic. Otherwise a quiet run would go on for
    /// ever.
    pub fn close_on_drop(self: Arc<CloseSignal>) -> CloseOnDrop {
        CloseOnDrop(self)
    }

    /// Closes the output and wakes the reading thread.
    fn close(&self, how: Option<OutputClosed>) {
        if let (Some(how), Ok(mut ending)) = (how, self.how.lock()) {
            *ending = Some(how);
        }
        self.is_closed.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl OutputClosed {
    fn by(err: io::Error) -> OutputClosed {
        match err.kind() {
            io::ErrorKind::BrokenPipe => OutputClosed::Pipe,
            _ if err.get_ref().is_some_and(|inner| inner.is::<DrawingWriteError>()) => OutputClosed::Drawing(err),
            _ => OutputClosed::Failed(err),
        }
    }
}

/// Closes the output when it is dropped, at the end of the thread.
pub(super) struct CloseOnDrop(Arc<CloseSignal>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

/// Writes all messages, until no more can come.
pub(super) fn write_all(
    writer: &mut Writer,
    messages: &Receiver<Message>,
    give_back: &Sender<Batch>,
    in_flight: &InFlight,
    ending: &CloseSignal,
) {
    loop {
        let next = next(writer, messages);
        let is_last = matches!(next, Ok(None));
        let written = next.and_then(|message| match message {
            Some(message) => {
                in_flight.take(&message);
                let written = write(writer, message, give_back).and_then(|()| writer.note_given_up_names());
                in_flight.finish();
                written
            }
            None => Ok(()),
        });
        if let Err(err) = written {
            let how = OutputClosed::by(err);
            // Results have no reader any more; the flame graph and stderr are still written.
            writer.outlet.end_results(matches!(how, OutputClosed::Pipe));
            ending.close(Some(how));
        }
        if is_last {
            return;
        }
    }
}

/// The next message; None: there will be no more.
fn next(writer: &mut Writer, messages: &Receiver<Message>) -> io::Result<Option<Message>> {
    loop {
        writer.print_due()?;
        writer.outlet.feed_screen()?;
        if let Ok(message) = messages.try_recv() {
            return Ok(Some(message));
        }
        writer.outlet.sink.flush()?; // no message waits, so the printed lines should not wait either
        if writer.stacks.read_ahead() {
            continue;
        }
        writer.outlet.feed_screen()?;
        let next = match writer.held_until() {
            Some(until) => messages.recv_timeout(Duration::from_nanos(until.saturating_sub(sys::monotonic_ns()))),
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                writer.end_screen()?;
                return writer.print_held().and_then(|()| writer.outlet.sink.flush()).map(|()| None);
            }
        }
    }
}

fn write(writer: &mut Writer, mut message: Message, give_back: &Sender<Batch>) -> io::Result<()> {
    let is_no_report = matches!(message, Message::Batch(_) | Message::Note(_) | Message::Metrics(_));
    writer.start(!is_no_report && !matches!(message, Message::LivePids(_) | Message::LookUps(_)));
    if let Message::Table { table, time_ns, span_ns, .. } = &mut message {
        writer.map_values(table, *time_ns, *span_ns);
    }
    match message {
        Message::Batch(mut batch) => {
            let written = writer.batch(&mut batch);
            batch.clear();
            batch.shrink(KEPT_BYTES);
            let _ = give_back.try_send(batch);
            written
        }
        Message::Table { table, span_ns, is_quiet: true, .. } => {
            writer.quiet_table(table, span_ns);
            Ok(())
        }
        Message::Table { table, interval, time_ns, span_ns, .. } => writer.table(table, interval, time_ns, span_ns),
        Message::QuietSums { interval, time_ns, span_ns, reach } => {
            writer.quiet_sums(interval, time_ns, span_ns, reach)
        }
        Message::Stacks(report) => writer.stacks(&report),
        Message::Interval(end) => writer.interval(&end).and(writer.map_interval(&end)),
        Message::End(end) => writer.end(&end).and(writer.draw_heatmaps()),
        Message::Note(text) => writer.note(&text),
        Message::Metrics(meters) => {
            writer.publish(&meters);
            Ok(())
        }
        Message::LivePids(pids) => {
            writer.stacks.expect(pids);
            Ok(())
        }
        Message::LookUps(texts) => {
            writer.look_up(&texts);
            Ok(())
        }
        Message::EndScreen => writer.end_screen(),
        Message::Weights { view, rows } => {
            let written = writer.outlet.sink.flush(); // the tables need not wait for the names of the stacks
            writer.weights(view, &rows);
            written
        }
        #[cfg(test)]
        Message::Panic => panic!("for a test"),
    }
}
