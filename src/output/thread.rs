//! The output thread: takes messages in order and writes what they say.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::output::flame::Unwritten;
use crate::output::under_way::UnderWay;
use crate::output::writer::Writer;
use crate::output::{Closed, Message};
use crate::report::Batch;
use crate::sys;
use crate::sys::poll::Waker;

/// Of each part of an empty batch: while the output was slow each in turn may have grown to many times what it needs.
pub(super) const KEPT_BYTES: usize = 2 * super::BATCH_BYTES;

/// How the output came to its end, for the reading side.
#[derive(Debug)]
pub(super) struct Ending {
    is_closed: AtomicBool,
    how: Mutex<Option<Closed>>,
    waker: Arc<Waker>,
}

impl Ending {
    pub fn new(waker: Arc<Waker>) -> Ending {
        Ending { is_closed: AtomicBool::new(false), how: Mutex::new(None), waker }
    }

    /// True when the run need not go on: everything is written, or nobody reads.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Option<Closed> {
        self.how.lock().ok()?.take()
    }

    /// Closes the output when that is dropped, also by a panic: a quiet run would go on for nobody.
    pub fn in_the_end(self: Arc<Ending>) -> InTheEnd {
        InTheEnd(self)
    }

    /// The reading side learns of it at once.
    fn close(&self, how: Option<Closed>) {
        if let (Some(how), Ok(mut ending)) = (how, self.how.lock()) {
            *ending = Some(how);
        }
        self.is_closed.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Closed {
    fn by(err: io::Error) -> Closed {
        match err.kind() {
            io::ErrorKind::BrokenPipe => Closed::Pipe,
            _ if err.get_ref().is_some_and(|inner| inner.is::<Unwritten>()) => Closed::FlameGraph(err),
            _ => Closed::Failed(err),
        }
    }
}

/// Closes the output with its thread.
pub(super) struct InTheEnd(Arc<Ending>);

impl Drop for InTheEnd {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

/// Writes all messages, until no more can come.
pub(super) fn write_all(
    writer: &mut Writer,
    messages: &Receiver<Message>,
    give_back: &Sender<Batch>,
    under_way: &UnderWay,
    ending: &Ending,
) {
    loop {
        let next = next(writer, messages);
        let is_last = matches!(next, Ok(None));
        let written = next.and_then(|message| match message {
            Some(message) => {
                under_way.take(&message);
                let written = write(writer, message, give_back).and_then(|()| writer.tell_given_up());
                under_way.finish();
                written
            }
            None => Ok(()),
        });
        if let Err(err) = written {
            let how = Closed::by(err);
            // Its reader has gone: what has another place is still written there.
            writer.end_results(matches!(how, Closed::Pipe));
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
        if let Ok(message) = messages.try_recv() {
            return Ok(Some(message));
        }
        writer.flush()?; // nothing waits, so neither should what was printed
        if writer.read_ahead() {
            continue;
        }
        let Some(until) = writer.held_until() else { return Ok(messages.recv().ok()) };
        match messages.recv_timeout(Duration::from_nanos(until.saturating_sub(sys::monotonic_ns()))) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return writer.print_held().and_then(|()| writer.flush()).map(|()| None);
            }
        }
    }
}

fn write(writer: &mut Writer, message: Message, give_back: &Sender<Batch>) -> io::Result<()> {
    writer.start(!matches!(message, Message::Batch(_) | Message::Note(_) | Message::Living(_)));
    match message {
        Message::Batch(mut batch) => {
            let written = writer.batch(&mut batch);
            batch.clear();
            batch.shrink(KEPT_BYTES);
            let _ = give_back.try_send(batch);
            written
        }
        Message::Table { table, interval, time_ns, span_ns } => writer.table(table, interval, time_ns, span_ns),
        Message::Stacks(report) => writer.stacks(&report),
        Message::Interval(end) => writer.interval(&end),
        Message::End(end) => writer.end(&end),
        Message::Note(text) => writer.note(&text),
        Message::Living(pids) => {
            writer.will_need(pids);
            Ok(())
        }
        Message::Weights(rows) => {
            let written = writer.flush(); // the tables need not wait for the names of what fell on stacks
            writer.weights(&rows);
            written
        }
        #[cfg(test)]
        Message::Panic => panic!("for a test"),
    }
}
