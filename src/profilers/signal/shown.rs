//! The line of a signal: who sent it to whom, and what became of it.

use crate::profilers::signal::names::{self, DefaultAction, Origin};
use crate::profilers::signal::pending::Sent;
use crate::profilers::signal::table::Fate;
use crate::report::{Part, Shape, Value};

pub static SHAPE: Shape = Shape {
    keys: &[
        "signo",
        "signal",
        "code",
        "from",
        "interrupt",
        "target.tid",
        "target.pid",
        "target.comm",
        "group",
        "result",
        "why",
        "delay_ns",
        "action",
        "handler",
        "receiver_tid",
        "info_lost",
        "function",
        "lineage",
    ],
    line: &[
        Part::Value { key: 1, width: 11 },
        Part::Text("  "),
        // The task that it interrupted has no part in it.
        Part::If(4, &[Part::Text("an interrupt on CPU "), Part::Cpu]),
        Part::IfNot(4, &[Part::Subject]),
        Part::Text(" -> "),
        Part::Value { key: 7, width: 0 },
        Part::Text(" "),
        Part::Value { key: 5, width: 0 },
        Part::IfNot(8, &[Part::Text(" (thread)")]),
        Part::Text(", "),
        Part::Value { key: 2, width: 0 },
        Part::Text(": "),
        Part::Value { key: 9, width: 0 },
        Part::If(10, &[Part::Text(": "), Part::Value { key: 10, width: 0 }]),
        Part::If(11, &[Part::Text(" after "), Part::Value { key: 11, width: 0 }, Part::Text(" ms")]),
        Part::If(14, &[Part::Text(" to thread "), Part::Value { key: 14, width: 0 }]),
        Part::If(12, &[Part::Text(", "), Part::Value { key: 12, width: 0 }]),
        Part::If(13, &[Part::Text(" "), Part::Value { key: 13, width: 0 }]),
        Part::If(16, &[Part::Text(" "), Part::Value { key: 16, width: 0 }]),
        Part::If(15, &[Part::Text(", without its details")]),
        Part::If(17, &[Part::Text("\n    sent by "), Part::Value { key: 17, width: 0 }]),
    ],
    grouping: None,
};

/// How a signal is shown.
pub struct Shown {
    pub result: Value,
    pub why: Value,
    pub delay: Value,
    pub action: Value,
    pub handler: Value,
    pub function: Value,
    pub receiver: Value,
}

impl Shown {
    pub fn new(result: Value) -> Shown {
        let none = || Value::None;
        let (why, delay, action, handler, function, receiver) = (none(), none(), none(), none(), none(), none());
        Shown { result, why, delay, action, handler, function, receiver }
    }

    /// As [`SHAPE`] orders them.
    pub fn values(self, sent: &Sent) -> [Value; 18] {
        let code = names::code(sent.signo, sent.code);
        [
            Value::Unsigned(sent.signo.into()),
            Value::Word(names::signal(sent.signo)),
            code.map_or(Value::Signed(sent.code.into()), Value::Word),
            Value::Word(Origin::of(sent.code).word()),
            Value::Bool(sent.sender.interrupt),
            Value::Signed(sent.target.tid.into()),
            Value::Signed(sent.target.pid.into()),
            Value::Comm(sent.target.comm),
            Value::Bool(sent.target.group),
            self.result,
            self.why,
            self.delay,
            self.action,
            self.handler,
            self.receiver,
            if sent.info_lost { Value::Bool(true) } else { Value::None },
            self.function,
            sent.lineage.clone().map_or(Value::None, Value::Lineage),
        ]
    }
}

/// What became of a signal that was not seen to be delivered.
pub fn result(fate: Fate, signo: u8) -> Value {
    let phrase = |word, text| Value::Phrase { word, text };
    match fate {
        Fate::Ignored if DefaultAction::of(signo) == DefaultAction::Continues => {
            phrase("ignored", "ignored, but resumed if it was stopped")
        }
        Fate::Ignored => Value::Word("ignored"),
        Fate::AlreadyPending => phrase("already_pending", "merged into an equal one that waits already"),
        Fate::Overflow => phrase("overflow", "refused, the queue of the target's user is full"),
        Fate::Taken => phrase("taken", "gone without a delivery: taken by sigwait or a signalfd, or discarded"),
        Fate::Gone => phrase("gone", "gone without a delivery: discarded"),
        Fate::TargetEnded => phrase("target_ended", "not seen to arrive, the target has ended"),
        Fate::Untracked => phrase("untracked", "not followed, too many signals wait"),
        Fate::Unknown | Fate::Delivered { .. } => phrase("unknown", "nobody knows, records were lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Subject;
    use crate::task::Comm;

    #[test]
    fn no_more_is_claimed_than_is_known() {
        let told = |fate, signo| match result(fate, signo) {
            Value::Phrase { word, text } => (word, text),
            other => panic!("{other:?}"),
        };
        let (word, text) = told(Fate::Taken, 15);
        assert!(word == "taken" && text.contains("sigwait") && text.contains("or discarded"), "{text}");
        let (word, text) = told(Fate::Gone, 9);
        assert!(word == "gone" && !text.contains("sigwait"), "{text}");
        assert_ne!(told(Fate::Untracked, 15), told(Fate::Unknown, 15), "nothing was lost");
    }

    #[test]
    fn whom_an_interrupt_hit_is_not_called_the_sender() {
        let line = |interrupt| {
            let mut values = vec![Value::None; SHAPE.keys.len()];
            values[1] = Value::Word("SIGALRM");
            values[4] = Value::Bool(interrupt);
            let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"other") };
            let mut out = Vec::new();
            crate::output::text::shaped(&subject, &SHAPE, &values, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(line(true).starts_with("    SIGALRM  an interrupt on CPU 1 -> "), "{}", line(true));
        assert!(line(false).starts_with("    SIGALRM  other 8 [001] -> "), "{}", line(false));
    }
}
