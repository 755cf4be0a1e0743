//! Who sent what to whom: the sums of an interval.

use crate::profilers::signal::names;
use crate::profilers::signal::pending::{Sender, Sent};
use crate::report::{Column, Value};
use crate::stats::{KeyedSums, SumKey};
use crate::task::Comm;

pub static COLUMNS: [Column; 13] = [
    Column { key: "signal", heading: "signal" },
    Column { key: "sender", heading: "sender" },
    Column { key: "target", heading: "target" },
    Column { key: "count", heading: "count" },
    Column { key: "delivered", heading: "delivered" },
    Column { key: "ignored", heading: "ignored" },
    Column { key: "already_pending", heading: "merged" },
    Column { key: "other", heading: "other" },
    Column { key: "pending", heading: "now" },
    Column { key: "max_delay_ns", heading: "max ms" },
    Column { key: "taken", heading: "" },
    Column { key: "overflow", heading: "" },
    Column { key: "target_ended", heading: "" },
];

/// Rows at most; what comes beyond is summed up in one per signal.
const MOST: usize = 10_000;

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Delivered {
        delay_ns: u64,
    },
    Ignored,
    AlreadyPending,
    /// The queue of real-time signals was full: the sender was told so.
    Overflow,
    /// By sigwait or a signalfd, or discarded: events tell of neither.
    Taken,
    /// It can only have been discarded.
    Gone,
    TargetEnded,
    /// Too many waited to follow it.
    Untracked,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Who {
    signo: u8,
    origin: Origin,
    sender: Comm,
    target: Comm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Origin {
    Task,
    /// It had lost its number already.
    Exited,
    Interrupt,
}

/// By signal, sender and target.
#[derive(Debug)]
pub struct Sums(KeyedSums<Who, Sum>);

impl SumKey for Who {
    fn others(&self) -> Who {
        let others = Comm::new(b"<others>");
        Who { signo: self.signo, origin: Origin::Task, sender: others, target: others }
    }
}

impl Default for Sums {
    fn default() -> Sums {
        Sums(KeyedSums::new(MOST))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    delivered: u64,
    ignored: u64,
    merged: u64,
    taken: u64,
    overflow: u64,
    ended: u64,
    rest: u64,
    pending: u64,
    max_delay_ns: Option<u64>,
}

impl Sums {
    fn of(&mut self, sent: &Sent) -> &mut Sum {
        let (origin, sender) = match sent.sender {
            Sender { interrupt: true, .. } => (Origin::Interrupt, Comm::default()),
            Sender { tid, comm, .. } if tid < 0 && comm.is_empty() => (Origin::Exited, comm),
            Sender { comm, .. } => (Origin::Task, comm),
        };
        self.0.sum(Who { signo: sent.signo, origin, sender, target: sent.target.comm })
    }

    pub fn sent(&mut self, sent: &Sent) {
        self.of(sent).count += 1;
    }

    pub fn ended(&mut self, sent: &Sent, fate: Fate) {
        let sum = self.of(sent);
        let field = match fate {
            Fate::Delivered { delay_ns } => {
                sum.max_delay_ns = sum.max_delay_ns.max(Some(delay_ns));
                &mut sum.delivered
            }
            Fate::Ignored => &mut sum.ignored,
            Fate::AlreadyPending => &mut sum.merged,
            Fate::Overflow => &mut sum.overflow,
            Fate::Taken => &mut sum.taken,
            Fate::TargetEnded => &mut sum.ended,
            Fate::Gone | Fate::Untracked | Fate::Unknown => &mut sum.rest,
        };
        *field += 1;
    }

    /// One that waits as the interval ends.
    pub fn waits(&mut self, sent: &Sent) {
        self.of(sent).pending += 1;
    }

    /// The rows, most frequent first. All sums begin anew.
    pub fn take_rows(&mut self) -> Vec<Vec<Value>> {
        let mut sums: Vec<(Who, Sum)> = self.0.drain().collect();
        sums.sort_unstable_by_key(|(who, sum)| (std::cmp::Reverse(sum.count), *who));
        sums.into_iter().map(|(who, sum)| row(who, &sum)).collect()
    }
}

fn row(who: Who, sum: &Sum) -> Vec<Value> {
    let comm = |comm: Comm| if comm.is_empty() { Value::Word("<gone>") } else { Value::Comm(comm) };
    vec![
        Value::Word(names::signal(who.signo)),
        match who.origin {
            Origin::Task => comm(who.sender),
            Origin::Exited => Value::Word("<exited>"),
            Origin::Interrupt => Value::Word("<interrupt>"),
        },
        comm(who.target),
        Value::Unsigned(sum.count),
        Value::Unsigned(sum.delivered),
        Value::Unsigned(sum.ignored),
        Value::Unsigned(sum.merged),
        Value::Unsigned(sum.taken + sum.overflow + sum.ended + sum.rest),
        Value::Unsigned(sum.pending),
        sum.max_delay_ns.map_or(Value::None, Value::Ns),
        Value::Unsigned(sum.taken),
        Value::Unsigned(sum.overflow),
        Value::Unsigned(sum.ended),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;

    const TO: (i32, i32, bool) = (7, 7, true);

    #[test]
    fn sums_up_by_signal_sender_and_target() {
        let mut sums = Sums::default();
        let (term, kill) = (sent(1, TO, 15, 0), sent(1, TO, 9, 0));
        let mut timer = sent(1, TO, 14, 0x80);
        timer.sender.interrupt = true;
        for (sent, fate) in [
            (&kill, Fate::Delivered { delay_ns: 3 }),
            (&term, Fate::Delivered { delay_ns: 9 }),
            (&term, Fate::Delivered { delay_ns: 5 }),
            (&term, Fate::Taken),
            (&term, Fate::Gone),
            (&term, Fate::Untracked),
            (&timer, Fate::Ignored),
            (&timer, Fate::AlreadyPending),
        ] {
            sums.sent(sent);
            sums.ended(sent, fate);
        }
        sums.waits(&kill);
        let rows = sums.take_rows();
        let expect = |row: &Vec<Value>, signal, sender: Value, numbers: [u64; 6], max| {
            assert_eq!(row[..2], [Value::Word(signal), sender]);
            assert_eq!(row[3..9], numbers.map(Value::Unsigned));
            assert_eq!(row[9], max);
        };
        let from = Value::Comm(Comm::new(b"from"));
        expect(&rows[0], "SIGTERM", from.clone(), [5, 2, 0, 0, 3, 0], Value::Ns(9));
        expect(&rows[1], "SIGALRM", Value::Word("<interrupt>"), [2, 0, 1, 1, 0, 0], Value::None);
        expect(&rows[2], "SIGKILL", from, [1, 1, 0, 0, 0, 1], Value::Ns(3));
        assert!(sums.take_rows().is_empty());
        let mut child = sent(1, TO, 17, 0);
        (child.sender.pid, child.sender.tid, child.sender.comm) = (-1, -1, Comm::default());
        sums.sent(&child);
        assert_eq!(sums.take_rows()[0][..2], [Value::Word("SIGCHLD"), Value::Word("<exited>")]);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
    }

    #[test]
    fn has_a_limited_number_of_rows() {
        let mut sums = Sums::default();
        for number in 0..MOST + 5 {
            let mut sent = sent(1, TO, 15, 0);
            sent.target.comm = Comm::new(number.to_string().as_bytes());
            sums.sent(&sent);
        }
        let rows = sums.take_rows();
        assert_eq!(rows.len(), MOST + 1);
        assert_eq!(rows[0][2..4], [Value::Comm(Comm::new(b"<others>")), Value::Unsigned(5)]);
    }
}
