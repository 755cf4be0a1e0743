//! The sums of an interval, by signal, sender and target.

use std::cmp::Reverse;

use crate::profilers::signal::names;
use crate::profilers::signal::pending::{SentSignal, SignalSender};
use crate::report::{Column, Schema, Value};
use crate::stats::{KeyedSums, SumKey};
use crate::task::Comm;

pub static SIGNALS: Schema<SignalRow> = Schema::<SignalRow>::new(
    "signals",
    &[
        Column::label("signal", "signal", |row| Value::Word(names::signal(row.who.signo))),
        Column::label("sender", "sender", |row| match row.who.origin {
            SenderKind::Task => name(row.who.sender),
            SenderKind::Exited => Value::Word("<exited>"),
            SenderKind::Interrupt => Value::Word("<interrupt>"),
        }),
        Column::label("target", "target", |row| name(row.who.target)),
        Column::counter("count", "count", |row| &mut row.sum.count),
        Column::counter("delivered", "delivered", |row| &mut row.sum.delivered),
        Column::counter("ignored", "ignored", |row| &mut row.sum.ignored),
        Column::counter("merged", "merged", |row| &mut row.sum.merged),
        Column::derived("other", "other", |SignalRow { sum, .. }, _| {
            Value::Unsigned(sum.taken + sum.overflow + sum.ended + sum.unknown)
        }),
        Column::gauge("pending", "now", |row| &mut row.pending),
        Column::<SignalRow>::greatest("max_delay_ns", "max ms", |row| &mut row.sum.max_delay_ns).ns(),
        Column::<SignalRow>::counter("taken", "", |row| &mut row.sum.taken).json_only(),
        Column::<SignalRow>::counter("overflow", "", |row| &mut row.sum.overflow).json_only(),
        Column::<SignalRow>::counter("target_ended", "", |row| &mut row.sum.ended).json_only(),
        Column::<SignalRow>::counter("unknown", "", |row| &mut row.sum.unknown).hidden(),
    ],
)
.explained(&[
    ("signal", "its name"),
    (
        "sender",
        "name of the task that sent it; `<interrupt>`, `<exited>`, or `<gone>` where nobody knows the name any more",
    ),
    ("target", "name of the task it was for"),
    ("count", "sent in the interval"),
    ("delivered", "a thread of the target has taken it; like all fates also of what was sent in an earlier interval"),
    ("ignored", "the target ignores it, or its default is to do nothing"),
    ("merged", "an equal one waits already: there will be only one delivery"),
    ("other", "`taken`, `overflow`, `target_ended`, and those that nobody could follow"),
    ("pending", "signals that wait as the interval ends"),
    ("max_delay_ns", "the longest way to a delivery"),
    ("taken", "taken by `sigwait` or a signalfd, or discarded"),
    ("overflow", "refused: the queue of real-time signals is full"),
    ("target_ended", "not seen to arrive, the target has ended"),
])
.ordered(|one, other| (Reverse(one.sum.count), one.who).cmp(&(Reverse(other.sum.count), other.who)));

/// The fates of the signals of one number, from one sender to one target.
#[derive(Clone, Debug)]
pub struct SignalRow {
    who: SignalPair,
    sum: SignalSum,
    /// Number of signals that are pending at the end of the interval.
    pending: Option<u64>,
}

fn name(comm: Comm) -> Value {
    if comm.is_empty() { Value::Word("<gone>") } else { Value::Comm(comm) }
}

/// Limit of the rows; the others are summed up in one row per signal.
const LIMIT: usize = 10_000;

/// The fate of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalFate {
    Delivered {
        delay_ns: u64,
    },
    Ignored,
    /// A SIGKILL is pending: the kernel drops all other signals.
    Ending,
    AlreadyPending,
    /// The queue of real-time signals was full: the sender got an error.
    Overflow,
    /// Taken by sigwait or a signalfd, or discarded: there is no event for either.
    Taken,
    /// No longer pending; the signal can only have been discarded.
    Gone,
    TargetEnded,
    /// Not followed, since too many signals were pending.
    Untracked,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SignalPair {
    signo: u8,
    origin: SenderKind,
    sender: Comm,
    target: Comm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum SenderKind {
    Task,
    /// The sender has exited, and has no tid any more.
    Exited,
    Interrupt,
}

/// Sums by signal, sender and target.
#[derive(Debug)]
pub struct SignalSums(KeyedSums<SignalPair, SignalSum>);

impl SumKey for SignalPair {
    fn others(&self) -> SignalPair {
        let others = Comm::new(b"<others>");
        SignalPair { signo: self.signo, origin: SenderKind::Task, sender: others, target: others }
    }
}

impl Default for SignalSums {
    fn default() -> SignalSums {
        SignalSums(KeyedSums::new(LIMIT))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SignalSum {
    count: u64,
    delivered: u64,
    ignored: u64,
    merged: u64,
    taken: u64,
    overflow: u64,
    ended: u64,
    unknown: u64,
    pending: u64,
    max_delay_ns: Option<u64>,
}

impl SignalSums {
    fn of(&mut self, sent: &SentSignal) -> &mut SignalSum {
        let (origin, sender) = match sent.sender {
            SignalSender { interrupt: true, .. } => (SenderKind::Interrupt, Comm::default()),
            SignalSender { tid, comm, .. } if tid < 0 && comm.is_empty() => (SenderKind::Exited, comm),
            SignalSender { comm, .. } => (SenderKind::Task, comm),
        };
        self.0.sum(SignalPair { signo: sent.signo, origin, sender, target: sent.target.comm })
    }

    pub fn sent(&mut self, sent: &SentSignal) {
        self.of(sent).count += 1;
    }

    pub fn ended(&mut self, sent: &SentSignal, fate: SignalFate) {
        let sum = self.of(sent);
        let field = match fate {
            SignalFate::Delivered { delay_ns } => {
                sum.max_delay_ns = sum.max_delay_ns.max(Some(delay_ns));
                &mut sum.delivered
            }
            SignalFate::Ignored | SignalFate::Ending => &mut sum.ignored,
            SignalFate::AlreadyPending => &mut sum.merged,
            SignalFate::Overflow => &mut sum.overflow,
            SignalFate::Taken => &mut sum.taken,
            SignalFate::TargetEnded => &mut sum.ended,
            SignalFate::Gone | SignalFate::Untracked | SignalFate::Unknown => &mut sum.unknown,
        };
        *field += 1;
    }

    /// Counts a signal that is pending at the end of the interval.
    pub fn waits(&mut self, sent: &SentSignal) {
        self.of(sent).pending += 1;
    }

    /// Takes the rows out, in no order.
    pub fn take_rows(&mut self) -> Vec<SignalRow> {
        self.0.drain().map(|(who, sum)| SignalRow { who, pending: Some(sum.pending), sum }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;
    use crate::report::{Rows, TypedRows};

    const TO: (i32, i32, bool) = (7, 7, true);

    #[test]
    fn sums_up_by_signal_sender_and_target() {
        let mut sums = SignalSums::default();
        let (term, kill) = (sent(1, TO, 15, 0), sent(1, TO, 9, 0));
        let mut timer = sent(1, TO, 14, 0x80);
        timer.sender.interrupt = true;
        for (sent, fate) in [
            (&kill, SignalFate::Delivered { delay_ns: 3 }),
            (&term, SignalFate::Delivered { delay_ns: 9 }),
            (&term, SignalFate::Delivered { delay_ns: 5 }),
            (&term, SignalFate::Taken),
            (&term, SignalFate::Gone),
            (&term, SignalFate::Untracked),
            (&timer, SignalFate::Ignored),
            (&timer, SignalFate::AlreadyPending),
        ] {
            sums.sent(sent);
            sums.ended(sent, fate);
        }
        sums.waits(&kill);
        let mut rows = take(&mut sums);
        let mut expect = |at, signal, sender: Value, numbers: [u64; 6], max| {
            let cells = rows.cells(at, 1);
            assert_eq!(cells[..2], [Value::Word(signal), sender]);
            assert_eq!(cells[3..9], numbers.map(Value::Unsigned));
            assert_eq!(cells[9], max);
        };
        let from = Value::Comm(Comm::new(b"from"));
        expect(0, "SIGTERM", from.clone(), [5, 2, 0, 0, 3, 0], Value::Ns(9));
        expect(1, "SIGALRM", Value::Word("<interrupt>"), [2, 0, 1, 1, 0, 0], Value::None);
        expect(2, "SIGKILL", from, [1, 1, 0, 0, 0, 1], Value::Ns(3));
        assert!(sums.take_rows().is_empty());
        let mut child = sent(1, TO, 17, 0);
        (child.sender.pid, child.sender.tid, child.sender.comm) = (-1, -1, Comm::default());
        sums.sent(&child);
        assert_eq!(take(&mut sums).cells(0, 1)[..2], [Value::Word("SIGCHLD"), Value::Word("<exited>")]);
    }

    /// The rows in the order of the schema.
    fn take(sums: &mut SignalSums) -> TypedRows<SignalRow> {
        let rows = TypedRows::new(&SIGNALS, sums.take_rows());
        let mut ordered = TypedRows::new(&SIGNALS, Vec::new());
        rows.order().into_iter().for_each(|at| ordered.push(&rows, at));
        ordered
    }

    #[test]
    fn has_a_limited_number_of_rows() {
        let mut sums = SignalSums::default();
        for number in 0..LIMIT + 5 {
            let mut sent = sent(1, TO, 15, 0);
            sent.target.comm = Comm::new(number.to_string().as_bytes());
            sums.sent(&sent);
        }
        let mut rows = take(&mut sums);
        assert_eq!(rows.len(), LIMIT + 1);
        assert_eq!(rows.cells(0, 1)[2..4], [Value::Comm(Comm::new(b"<others>")), Value::Unsigned(5)]);
    }
}
