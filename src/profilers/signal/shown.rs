//! The line of a signal: its sender, its target, and its fate.

use crate::profilers::signal::names::{self, DefaultAction, SignalOrigin};
use crate::profilers::signal::pending::SentSignal;
use crate::profilers::signal::table::SignalFate;
use crate::report::layout::{CPU, SUBJECT, detail, text, unless, when};
use crate::report::{Detail, OccurrenceSchema, Value};
use crate::symbol::StackId;

/// The occurrence that reports a signal.
pub struct ShownSignal {
    pub sent: SentSignal,
    pub result: Value,
    /// Why the signal is pending.
    pub why: Value,
    pub delivery: Option<SignalDelivery>,
}

pub struct SignalDelivery {
    pub delay_ns: u64,
    /// The thread that took the signal.
    pub tid: i32,
    /// The address of the handler. 0: the default action. 1: ignored on delivery.
    pub handler: u64,
    pub function: Option<StackId>,
}

impl ShownSignal {
    pub fn new(sent: &SentSignal, result: Value) -> ShownSignal {
        ShownSignal { sent: sent.clone(), result, why: Value::None, delivery: None }
    }
}

impl SignalDelivery {
    fn action(&self, signo: u8) -> Value {
        match self.handler {
            0 => Value::Phrase { word: "default", text: DefaultAction::of(signo).text() },
            1 => Value::Phrase { word: "ignore", text: "ignored there" },
            _ => Value::Word("handler"),
        }
    }
}

pub static SENT: OccurrenceSchema<ShownSignal> = OccurrenceSchema::new(
    &[
        Detail::new("signo", |shown| Value::Unsigned(shown.sent.signo.into())),
        Detail::new("signal", |shown| Value::Word(names::signal(shown.sent.signo))),
        Detail::new("code", |ShownSignal { sent, .. }| {
            names::code(sent.signo, sent.code).map_or(Value::Signed(sent.code.into()), Value::Word)
        }),
        Detail::new("from", |shown| Value::Word(SignalOrigin::of(shown.sent.code).word())),
        Detail::new("interrupt", |shown| Value::Bool(shown.sent.sender.interrupt)),
        Detail::new("target.tid", |shown| Value::Signed(shown.sent.target.tid.into())),
        Detail::new("target.pid", |shown| Value::Signed(shown.sent.target.pid.into())),
        Detail::new("target.comm", |shown| Value::Comm(shown.sent.target.comm)),
        Detail::new("group", |shown| Value::Bool(shown.sent.target.group)),
        Detail::new("result", |shown| shown.result.clone()),
        Detail::new("why", |shown| shown.why.clone()),
        Detail::aliased("duration_ns", "delay_ns", |shown| {
            shown.delivery.as_ref().map_or(Value::None, |delivery| Value::Ns(delivery.delay_ns))
        }),
        Detail::new("action", |shown| {
            shown.delivery.as_ref().map_or(Value::None, |delivery| delivery.action(shown.sent.signo))
        }),
        Detail::new("handler", |shown| match shown.delivery {
            Some(SignalDelivery { handler: handler @ 2.., .. }) => Value::Address(handler),
            _ => Value::None,
        }),
        Detail::new("receiver_tid", |shown| match shown.delivery {
            Some(SignalDelivery { tid, .. }) if tid != shown.sent.target.tid => Value::Signed(tid.into()),
            _ => Value::None,
        }),
        Detail::new("info_lost", |shown| if shown.sent.info_lost { Value::Bool(true) } else { Value::None }),
        Detail::new("function", |shown| match shown.delivery {
            Some(SignalDelivery { function: Some(function), .. }) => Value::Place(function),
            _ => Value::None,
        }),
        Detail::new("lineage", |shown| shown.sent.lineage.clone().map_or(Value::None, Value::cell)),
    ],
    &[
        detail("signal").wide(11),
        text("  "),
        // The interrupted task is not the sender.
        when("interrupt", &[text("an interrupt on CPU "), CPU]),
        unless("interrupt", &[SUBJECT]),
        text(" -> "),
        detail("target.comm"),
        text(" "),
        detail("target.tid"),
        unless("group", &[text(" (thread)")]),
        text(", "),
        detail("code"),
        text(": "),
        detail("result"),
        detail("why").after(": "),
        detail("duration_ns").between(" after ", " ms"),
        detail("receiver_tid").after(" to thread "),
        detail("action").after(", "),
        detail("handler").after(" "),
        detail("function").after(" "),
        when("info_lost", &[text(", without its details")]),
        detail("lineage").after("\n    sent by "),
    ],
);

/// The fate of a signal that was not seen to be delivered, as a word and a phrase.
pub fn result(fate: SignalFate, signo: u8) -> Value {
    let phrase = |word, text| Value::Phrase { word, text };
    match fate {
        SignalFate::Ignored if DefaultAction::of(signo) == DefaultAction::Continues => {
            phrase("ignored", "ignored, but resumed if it was stopped")
        }
        // The target is exiting (`prepare_signal`, kernel/signal.c), a kernel thread, or the init of a pid namespace.
        SignalFate::Ignored if names::is_absolute(signo) => {
            phrase("ignored", "without effect, the target is ending or not to be killed")
        }
        SignalFate::Ending => phrase("ignored", "without effect, the target is ending"),
        SignalFate::Ignored => Value::Word("ignored"),
        SignalFate::AlreadyPending => phrase("merged", "merged into an equal one that waits already"),
        SignalFate::Overflow => phrase("overflow", "refused, the queue of the target's user is full"),
        SignalFate::Taken => phrase("taken", "gone without a delivery: taken by sigwait or a signalfd, or discarded"),
        SignalFate::Gone => phrase("gone", "gone without a delivery: discarded"),
        SignalFate::TargetEnded => phrase("target_ended", "not seen to arrive, the target has ended"),
        SignalFate::Untracked => phrase("untracked", "not followed, too many signals wait"),
        SignalFate::Unknown | SignalFate::Delivered { .. } => phrase("unknown", "nobody knows, records were lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;
    use crate::report::Subject;
    use crate::task::Comm;

    #[test]
    fn no_more_is_claimed_than_is_known() {
        let told = |fate, signo| match result(fate, signo) {
            Value::Phrase { word, text } => (word, text),
            other => panic!("{other:?}"),
        };
        let (word, text) = told(SignalFate::Taken, 15);
        assert!(word == "taken" && text.contains("sigwait") && text.contains("or discarded"), "{text}");
        let (word, text) = told(SignalFate::Gone, 9);
        assert!(word == "gone" && !text.contains("sigwait"), "{text}");
        let (word, text) = told(SignalFate::Ignored, 9);
        assert!(word == "ignored" && text.contains("ending"), "{text}");
        assert_eq!(result(SignalFate::Ignored, 15), Value::Word("ignored"));
        assert_ne!(told(SignalFate::Untracked, 15), told(SignalFate::Unknown, 15), "nothing was lost");
    }

    #[test]
    fn an_interrupted_task_is_not_called_the_sender() {
        let line = |interrupt| {
            let mut shown = ShownSignal::new(&sent(1, (7, 7, true), 14, 0x80), Value::Word("ignored"));
            shown.sent.sender.interrupt = interrupt;
            let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"other") };
            let mut out = Vec::new();
            crate::output::text::occurrence(
                &subject,
                SENT.layout(),
                &SENT.values(&shown).collect::<Vec<_>>(),
                &mut out,
            );
            String::from_utf8(out).unwrap()
        };
        assert!(line(true).starts_with("    SIGALRM  an interrupt on CPU 1 -> "), "{}", line(true));
        assert!(line(false).starts_with("    SIGALRM  other 8 [001] -> "), "{}", line(false));
    }
}
