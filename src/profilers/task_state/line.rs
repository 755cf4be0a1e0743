//! The line of one wait, and its JSON keys.

use crate::profilers::task_state::cells::{Callers, WakingInterrupt};
use crate::profilers::task_state::notes::WaitWaker;
use crate::profilers::task_state::stays::{Holder, Stay};
use crate::report::layout::{SUBJECT, detail, text, unless, when};
use crate::report::{Detail, GroupBy, OccurrenceSchema, Value};
use crate::sched::SchedState;
use crate::stats::Began;
use crate::task::asker::WaitSite;
use crate::task::call::{Descriptor, SystemCall};
use crate::task::descriptor::OpenFile;

/// A wait that has ended or goes on, as its line shows it.
#[derive(Debug)]
pub struct ShownWait {
    pub state: SchedState,
    /// Name of the waiting task.
    pub label: Value,
    pub duration_ns: u64,
    pub still_waiting: bool,
    pub began: Began,
    pub waker: Option<WaitWaker>,
    /// For run delay: the task was preempted, or yielded its CPU.
    pub preempted: bool,
    pub site: Option<WaitSite>,
    /// The user part of the stack was read from memory while the task waited; it is not from a record.
    pub has_user_stack_of_now: bool,
    /// Whom the task waited behind.
    pub behind: Option<Holder>,
    /// The thread idles at this place.
    pub is_idle: bool,
    /// Text folds the wait with others at its place.
    pub is_folded: bool,
    /// An earlier line has said that the thread idles.
    pub is_again: bool,
}

pub static WAITS: OccurrenceSchema<ShownWait> = OccurrenceSchema::<ShownWait>::new(
    &[
        Detail::new("state", |wait| wait.label.clone()),
        Detail::new("duration_ns", |wait| Value::Ns(wait.duration_ns)),
        Detail::new("still_waiting", |wait| Value::Bool(wait.still_waiting)),
        Detail::new("since", |wait| since(wait.began)),
        Detail::new("waker.tid", |wait| match wait.waker {
            Some(WaitWaker::Task { tid: tid @ 0.., .. }) => Value::Signed(tid.into()),
            _ => Value::None,
        }),
        Detail::new("waker.comm", |wait| match wait.waker {
            Some(WaitWaker::Task { tid: ..0, .. }) => Value::Word("<exited>"), // it had no tid any more
            Some(WaitWaker::Task { comm, .. }) => Value::Comm(comm),
            _ => Value::None,
        }),
        Detail::new("waker.interrupt", |wait| {
            wait.waker.map_or(Value::None, |waker| Value::Bool(matches!(waker, WaitWaker::Interrupt(..))))
        }),
        Detail::new("waker.source", |wait| match wait.waker {
            Some(WaitWaker::Interrupt(kind, stack)) => Value::cell(WakingInterrupt(kind, stack)),
            _ => Value::None,
        }),
        Detail::text_only("waker.times", |_| Value::None),
        Detail::new("wchan", |wait| {
            let site = wait.site.as_ref().filter(|_| wait.still_waiting);
            site.and_then(|site| site.wchan.as_deref()).map_or(Value::None, |wchan| Value::Text(wchan.into()))
        }),
        Detail::new("syscall", |wait| call(wait).map_or(Value::None, |call| Value::Word(call.name))),
        Detail::new("fd", |wait| fd(wait, 0)),
        Detail::new("path", |wait| path(wait, 0)),
        Detail::new("device", |wait| device(wait, 0)),
        Detail::new("other.fd", |wait| fd(wait, 1)),
        Detail::new("other.path", |wait| path(wait, 1)),
        Detail::new("other.device", |wait| device(wait, 1)),
        Detail::new("behind.tid", |wait| of_holder(wait, |holder| Value::Signed(holder.tid.into()))),
        Detail::new("behind.comm", |wait| of_holder(wait, |holder| Value::Comm(holder.comm))),
        Detail::new("behind.state", |wait| of_holder(wait, |holder| did(holder.stay.state))),
        Detail::new("behind.duration_ns", |wait| of_holder(wait, |holder| Value::Ns(holder.held_ns))),
        Detail::new("behind.syscall", |wait| {
            let call = |stay: Stay| stay.call.filter(|_| stay.stack.is_none());
            wait.behind.and_then(|holder| call(holder.stay)).map_or(Value::None, Value::Word)
        }),
        Detail::new("behind.place", |wait| {
            of_holder(wait, |holder| holder.stay.stack.map_or(Value::None, |stack| Value::cell(Callers(stack))))
        }),
        Detail::text_only("behind.waker", |wait| of_holder(wait, |holder| Value::Bool(holder.is_waker))),
        Detail::text_only("behind.times", |_| Value::None),
        Detail::new("idle", |wait| if wait.is_idle { Value::Bool(true) } else { Value::None }),
        Detail::text_only("folded", |wait| Value::Bool(wait.is_folded)),
        Detail::text_only("again", |wait| Value::Bool(wait.is_again)),
        Detail::new("preempted", |wait| match wait.state {
            SchedState::RUN_DELAY => Value::Bool(wait.preempted),
            _ => Value::None,
        }),
        Detail::new("user_stack", |wait| match wait.has_user_stack_of_now {
            true => Value::Phrase { word: "as_of_now", text: "user stack as of now" },
            false => Value::None,
        }),
    ],
    &[
        detail("state").wide(2),
        text(" "),
        detail("duration_ns").wide(11),
        text(" ms  "),
        SUBJECT,
        when("still_waiting", &[text(" still waiting")]),
        detail("since").between(" (at least: ", ")"),
        // A line for several waits shows only the values that these have in common.
        detail("syscall").after(", in "),
        detail("fd").after("("),
        when("path", &[when("fd", &[text(", ")]), unless("fd", &[text("(")]), detail("path")]),
        detail("device").after(" on "),
        detail("other.fd").after(", "),
        detail("other.path").after(", "),
        detail("other.device").after(" on "),
        when("fd", &[text(")")]),
        unless("fd", &[when("path", &[text(")")])]),
        when("wchan", &[when("syscall", &[text(" at ")]), unless("syscall", &[text(", in ")]), detail("wchan")]),
        detail("waker.comm").after(", woken by "),
        detail("waker.tid").after(" "),
        when("waker.interrupt", &[text(", woken by an interrupt")]),
        detail("waker.source").between(" (", ")"),
        detail("waker.times").after(" × "),
        unless("behind.waker", &[detail("behind.comm").after(", behind "), detail("behind.tid").after(" ")]),
        detail("behind.state").after(", which "),
        detail("behind.duration_ns").between(" ", " ms meanwhile"),
        detail("behind.syscall").after(" in "),
        detail("behind.place").after(" at "),
        detail("behind.times").between(" (", " of them)"),
        when("preempted", &[text(", preempted")]),
        detail("user_stack").after(", "),
        when("folded", &[text(", idle there (--all-waits shows each)")]),
    ],
)
.grouped(GroupBy {
    noun: "wait",
    same: &["state", "still_waiting", "since", "wchan", "folded"],
    place: "wchan",
    duration: "duration_ns",
    goes_on: "still_waiting",
})
.telling_commonest(&["waker.tid", "waker.comm", "waker.interrupt", "waker.source"], "waker.times")
.telling_commonest(
    &["behind.tid", "behind.comm", "behind.state", "behind.duration_ns", "behind.syscall", "behind.place"],
    "behind.times",
)
.folding("folded", "again", &["syscall", "fd", "path"]);

/// The system call that a task waits in.
fn call(wait: &ShownWait) -> Option<&SystemCall> {
    wait.site.as_ref()?.call.as_ref()
}

/// A descriptor among the arguments of the call.
fn descriptor(wait: &ShownWait, at: usize) -> Option<&Descriptor> {
    call(wait)?.files.get(at)
}

fn open_file(wait: &ShownWait, at: usize) -> Option<&OpenFile> {
    descriptor(wait, at)?.file.as_ref()
}

fn fd(wait: &ShownWait, at: usize) -> Value {
    descriptor(wait, at).map_or(Value::None, |descriptor| Value::Signed(descriptor.fd.into()))
}

fn path(wait: &ShownWait, at: usize) -> Value {
    open_file(wait, at).map_or(Value::None, |file| Value::Path(file.path.as_slice().into()))
}

fn device(wait: &ShownWait, at: usize) -> Value {
    let device = open_file(wait, at).and_then(|file| file.device.as_deref());
    device.map_or(Value::None, |device| Value::Path(device.into()))
}

fn of_holder(wait: &ShownWait, value: fn(Holder) -> Value) -> Value {
    wait.behind.map_or(Value::None, value)
}

/// What a task did in a state.
fn did(state: SchedState) -> Value {
    let (word, text) = match state {
        SchedState::RUNNING => ("R", "ran"),
        SchedState::SLEEP => ("S", "slept"),
        SchedState::DISK => ("D", "waited in D"),
        SchedState::RUN_DELAY => ("RD", "waited for a CPU"),
        _ => ("other", "did not run for"),
    };
    Value::Phrase { word, text }
}

/// Why a duration is a lower bound.
fn since(began: Began) -> Value {
    match began {
        Began::Exactly => Value::None,
        Began::BeforeStart => Value::Phrase { word: "before_start", text: "it began before the start" },
        Began::BeforeLoss => Value::Phrase { word: "before_loss", text: "records were lost" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Subject;
    use crate::task::Comm;
    use crate::tep::context::Interruption;

    /// The printed line, without some details.
    fn text_without(wait: &ShownWait, names: &[&str]) -> String {
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"sleep") };
        let details = WAITS.layout().details();
        assert!(names.iter().all(|name| details.iter().any(|detail| detail.name == *name)));
        let values = details.iter().zip(WAITS.values(wait));
        let values = values
            .map(|(detail, value)| if names.contains(&detail.name) { Value::None } else { value.without_look_ups() });
        let mut out = Vec::new();
        crate::output::text::occurrence(&subject, WAITS.layout(), &values.collect::<Vec<_>>(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn text(wait: ShownWait) -> String {
        text_without(&wait, &[])
    }

    fn wait(waker: Option<WaitWaker>, site: Option<&WaitSite>) -> ShownWait {
        let still_waiting = waker.is_none() && site.is_some();
        let (state, label, duration_ns, site) = (SchedState::SLEEP, Value::Word("S"), 3_000_000, site.cloned());
        let (began, preempted, has_user_stack_of_now) = (Began::Exactly, false, false);
        ShownWait {
            state,
            label,
            duration_ns,
            still_waiting,
            began,
            waker,
            preempted,
            site,
            has_user_stack_of_now,
            behind: None,
            is_idle: false,
            is_folded: false,
            is_again: false,
        }
    }

    const WAIT: &str = " S       3.000 ms  sleep 8 [001]";

    #[test]
    fn waits_at_one_place_are_a_group() {
        let Some(grouping) = WAITS.layout().grouping else { panic!("they come in floods") };
        let same = |one: &ShownWait, other: &ShownWait| {
            let [one, other] = [one, other].map(|wait| WAITS.values(wait).collect::<Vec<_>>());
            grouping.same(&one).eq(grouping.same(&other))
        };
        let [one, other] =
            ["futex_wait", "pipe_read"].map(|wchan| wait(None, Some(&site(Some(wchan), "read", vec![]))));
        let longer = ShownWait { duration_ns: 4_000_000, site: one.site.clone(), ..wait(None, None) };
        assert!(same(&one, &ShownWait { still_waiting: true, ..longer }));
        assert!(
            !same(&one, &other) && !same(&one, &ShownWait { still_waiting: false, ..wait(None, one.site.as_ref()) })
        );
    }

    #[test]
    fn a_task_that_lost_its_cpu_was_preempted() {
        let details = WAITS.layout().details();
        let at = details.iter().position(|detail| detail.name == "preempted").unwrap();
        let delay = |preempted| ShownWait { state: SchedState::RUN_DELAY, preempted, ..wait(None, None) };
        assert_eq!(text(delay(true)), format!("{WAIT}, preempted"));
        assert_eq!(text(delay(false)), WAIT);
        let [of_delay, of_sleep] = [delay(false), wait(None, None)].map(|wait| WAITS.values(&wait).nth(at));
        assert_eq!((of_delay, of_sleep), (Some(Value::Bool(false)), Some(Value::None)));
    }

    #[test]
    fn a_stack_is_of_now() {
        let waits = ShownWait { has_user_stack_of_now: true, still_waiting: true, ..wait(None, None) };
        assert_eq!(text(waits), format!("{WAIT} still waiting, user stack as of now"));
    }

    #[test]
    fn a_waker_is_a_task_or_an_interrupt() {
        assert_eq!(text(wait(None, None)), WAIT);
        let interrupt = WaitWaker::Interrupt(Interruption::Hard, None);
        assert_eq!(text(wait(Some(interrupt), None)), format!("{WAIT}, woken by an interrupt"));
        let softirq = WaitWaker::Interrupt(Interruption::Soft, None);
        assert_eq!(text(wait(Some(softirq), None)), format!("{WAIT}, woken by an interrupt (softirq)"));
        let task = WaitWaker::Task { tid: 0, comm: Comm::new(b"swapper/1") };
        assert_eq!(text(wait(Some(task), None)), format!("{WAIT}, woken by swapper/1 0"));
        let exited = WaitWaker::Task { tid: -1, comm: Comm::default() };
        assert_eq!(text(wait(Some(exited), None)), format!("{WAIT}, woken by <exited>"));
    }

    fn file(fd: i32, path: &str, device: Option<&str>) -> Descriptor {
        let device = device.map(|device| device.as_bytes().to_vec());
        Descriptor { fd, file: Some(OpenFile { path: path.as_bytes().to_vec(), device }) }
    }

    fn site(wchan: Option<&str>, name: &'static str, files: Vec<Descriptor>) -> WaitSite {
        let call = (!name.is_empty()).then_some(SystemCall { name, files });
        WaitSite { wchan: wchan.map(str::to_owned), call, ..WaitSite::default() }
    }

    #[test]
    fn where_a_task_waits() {
        let cases = [
            (site(None, "", vec![]), ""),
            (site(Some("kernel_clone"), "", vec![]), ", in kernel_clone"),
            (site(None, "vfork", vec![]), ", in vfork"),
            (site(Some("futex_wait"), "futex", vec![]), ", in futex at futex_wait"),
            (site(None, "read", vec![Descriptor { fd: 0, file: None }]), ", in read(0)"),
            (site(None, "accept4", vec![file(3, "socket:[5]", None)]), ", in accept4(3, socket:[5])"),
            (
                site(Some("sb_start_write"), "write", vec![file(7, "/var/log/x (deleted)", Some("/dev/vdb"))]),
                ", in write(7, /var/log/x (deleted) on /dev/vdb) at sb_start_write",
            ),
            (
                site(None, "splice", vec![file(3, "/a", Some("filer:/a b")), file(4, "pipe:[6]", None)]),
                ", in splice(3, /a on filer:/a b, 4, pipe:[6])",
            ),
            (
                site(None, "write", vec![file(7, "/\n\x1b[2JD 9 ms", Some("a\nb"))]),
                ", in write(7, /\\x0a\\x1b[2JD 9 ms on a\\x0ab)",
            ),
        ];
        for (site, want) in cases {
            assert_eq!(text(wait(None, Some(&site))), format!("{WAIT} still waiting{want}"));
        }
        let long = site(None, "write", vec![file(7, &format!("/{}/end", "x".repeat(4000)), Some(&"y".repeat(4000)))]);
        let long = text(wait(None, Some(&long)));
        assert!(long.len() < 350 && long.contains("(7, ...x") && long.contains("x/end on ...y"), "{long}");
        let long = text(wait(None, Some(&site(None, "write", vec![file(7, &"€".repeat(50), None)]))));
        assert!(long.contains(&format!("(7, ...{})", "€".repeat(40))), "{long}");
        let long = text(wait(None, Some(&site(None, "write", vec![file(7, &format!("{}x", "€".repeat(50)), None)]))));
        assert!(long.contains(&format!("(7, ...{}x)", "€".repeat(39))), "{long}");
    }

    #[test]
    fn what_several_waits_have_in_common() {
        let site = site(Some("sb_start_write"), "write", vec![file(7, "/x", Some("/dev/vdb"))]);
        let without = |names: &[&str]| {
            let text = text_without(&wait(None, Some(&site)), names);
            text.split_once(" still waiting, ").unwrap().1.to_owned()
        };
        assert_eq!(without(&["fd"]), "in write(/x on /dev/vdb) at sb_start_write");
        assert_eq!(without(&["fd", "path"]), "in write on /dev/vdb at sb_start_write");
        assert_eq!(without(&["path", "device", "wchan"]), "in write(7)");
        assert_eq!(without(&["syscall", "fd", "path", "device"]), "in sb_start_write");
    }

    #[test]
    fn a_wait_that_ended_tells_what_it_was_in() {
        let site = site(Some("sb_start_write"), "write", vec![file(7, "/x", None)]);
        assert_eq!(
            text(wait(Some(WaitWaker::Interrupt(Interruption::Hard, None)), Some(&site))),
            format!("{WAIT}, in write(7, /x), woken by an interrupt")
        );
    }
}
