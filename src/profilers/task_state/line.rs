//! The line of one wait, and its keys in JSON.

use crate::profilers::task_state::machine::{Began, Waker};
use crate::profilers::task_state::states::State;
use crate::report::{Grouping, Part, Shape, Value};
use crate::task::asker::WaitSite;
use crate::task::call::Descriptor;

pub static SHAPE: Shape = Shape {
    keys: &[
        "state",
        "duration_ns",
        "still_waiting",
        "since",
        "waker.tid",
        "waker.comm",
        "waker.interrupt",
        "waker.source",
        "wchan",
        "syscall",
        "fd",
        "path",
        "device",
        "other.fd",
        "other.path",
        "other.device",
        "preempted",
    ],
    line: &[
        Part::Value { key: 0, width: 2 },
        Part::Text(" "),
        Part::Value { key: 1, width: 11 },
        Part::Text(" ms  "),
        Part::Subject,
        Part::If(2, &[Part::Text(" still waiting")]),
        Part::If(3, &[Part::Text(" (at least: "), Part::Value { key: 3, width: 0 }, Part::Text(")")]),
        // Of several waits only what they have in common may be there.
        Part::If(9, &[Part::Text(", in "), Part::Value { key: 9, width: 0 }]),
        Part::If(10, &[Part::Text("("), Part::Value { key: 10, width: 0 }]),
        Part::If(11, &[Part::If(10, &[Part::Text(", ")]), Part::IfNot(10, &[Part::Text("(")])]),
        Part::If(11, &[Part::Value { key: 11, width: 0 }]),
        Part::If(12, &[Part::Text(" on "), Part::Value { key: 12, width: 0 }]),
        Part::If(13, &[Part::Text(", "), Part::Value { key: 13, width: 0 }]),
        Part::If(14, &[Part::Text(", "), Part::Value { key: 14, width: 0 }]),
        Part::If(15, &[Part::Text(" on "), Part::Value { key: 15, width: 0 }]),
        Part::If(10, &[Part::Text(")")]),
        Part::IfNot(10, &[Part::If(11, &[Part::Text(")")])]),
        Part::If(8, &[Part::If(9, &[Part::Text(" at ")]), Part::IfNot(9, &[Part::Text(", in ")])]),
        Part::If(8, &[Part::Value { key: 8, width: 0 }]),
        Part::If(5, &[Part::Text(", woken by "), Part::Value { key: 5, width: 0 }]),
        Part::If(4, &[Part::Text(" "), Part::Value { key: 4, width: 0 }]),
        Part::If(6, &[Part::Text(", woken by an interrupt")]),
        Part::If(7, &[Part::Text(" ("), Part::Value { key: 7, width: 0 }, Part::Text(")")]),
        Part::If(16, &[Part::Text(", preempted")]),
    ],
    grouping: Some(Grouping { noun: "wait", same: &[0, 2, 3, 8], place: 8, duration: 1, goes_on: 2 }),
};

/// A wait that ended or goes on.
#[derive(Debug)]
pub struct Line<'a> {
    pub state: State,
    /// Its name.
    pub label: Value,
    pub duration_ns: u64,
    pub still_waiting: bool,
    pub began: Began,
    pub waker: Option<Waker>,
    /// Of run delay: the task lost its CPU, or gave way.
    pub preempted: bool,
    pub site: Option<&'a WaitSite>,
}

impl Line<'_> {
    /// In the order of the keys.
    pub fn values(self) -> [Value; SHAPE.keys.len()] {
        let [waker_tid, waker_comm, by_interrupt, source] = waker_values(self.waker);
        let [syscall, fd, path, device, other_fd, other_path, other_device] = call_values(self.site);
        let wchan = self.site.filter(|_| self.still_waiting).and_then(|site| site.wchan.as_deref());
        [
            self.label,
            Value::Ns(self.duration_ns),
            Value::Bool(self.still_waiting),
            since_text(self.began),
            waker_tid,
            waker_comm,
            by_interrupt,
            source,
            wchan.map_or(Value::None, |wchan| Value::Text(wchan.into())),
            syscall,
            fd,
            path,
            device,
            other_fd,
            other_path,
            other_device,
            if self.state == State::RUN_DELAY { Value::Bool(self.preempted) } else { Value::None },
        ]
    }
}

/// Of where a task waits: the call, and its first two descriptors with their paths and devices.
fn call_values(site: Option<&WaitSite>) -> [Value; 7] {
    let call = site.and_then(|site| site.call.as_ref());
    let file = |at: usize| {
        let Some(Descriptor { fd, file }) = call.and_then(|call| call.files.get(at)) else {
            return [Value::None, Value::None, Value::None];
        };
        let path = |bytes: &Vec<u8>| Value::Path(bytes.as_slice().into());
        let (name, device) =
            (file.as_ref().map(|file| &file.path), file.as_ref().and_then(|file| file.device.as_ref()));
        [Value::Signed(i64::from(*fd)), name.map_or(Value::None, path), device.map_or(Value::None, path)]
    };
    let ([fd, path, device], [other_fd, other_path, other_device]) = (file(0), file(1));
    let name = call.map_or(Value::None, |call| Value::Word(call.name));
    [name, fd, path, device, other_fd, other_path, other_device]
}

/// Who ended a wait: tid, comm, whether it was an interrupt, and which.
fn waker_values(waker: Option<Waker>) -> [Value; 4] {
    let none = || Value::None;
    match waker {
        None => [none(), none(), none(), none()],
        Some(Waker::Interrupt(kind, stack)) => [none(), none(), Value::Bool(true), Value::Interrupt(kind, stack)],
        // It had lost its number already.
        Some(Waker::Task { tid: ..0, .. }) => [none(), Value::Word("<exited>"), Value::Bool(false), none()],
        Some(Waker::Task { tid, comm }) => {
            [Value::Signed(tid.into()), Value::Comm(comm), Value::Bool(false), Value::None]
        }
    }
}

/// Why a duration is a lower bound.
fn since_text(began: Began) -> Value {
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
    use crate::symbol::interrupt;
    use crate::task::Comm;
    use crate::task::call::SystemCall;
    use crate::task::descriptor::OpenFile;
    use crate::tep::context::Interruption;

    /// As it is printed, without the values of some keys.
    fn text_without(line: Line<'_>, keys: &[usize]) -> String {
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"sleep") };
        // As the output thread names it.
        let named = |value| match value {
            Value::Interrupt(kind, _) => {
                interrupt::name(kind, &[]).map_or(Value::None, |name| Value::Text(name.into()))
            }
            value => value,
        };
        let mut values = line.values().map(named);
        keys.iter().for_each(|&key| values[key] = Value::None);
        let mut out = Vec::new();
        crate::output::text::shaped(&subject, &SHAPE, &values, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn text(line: Line<'_>) -> String {
        text_without(line, &[])
    }

    fn line(waker: Option<Waker>, site: Option<&WaitSite>) -> Line<'_> {
        let still_waiting = waker.is_none() && site.is_some();
        let (state, label, duration_ns) = (State::SLEEP, Value::Word("S"), 3_000_000);
        Line { state, label, duration_ns, still_waiting, began: Began::Exactly, waker, preempted: false, site }
    }

    const WAIT: &str = " S       3.000 ms  sleep 8 [001]";

    #[test]
    fn waits_at_one_place_are_a_group() {
        let Some(grouping) = &SHAPE.grouping else { panic!("they come in floods") };
        let same: Vec<&str> = grouping.same.iter().map(|key| SHAPE.keys[*key]).collect();
        assert_eq!(same, ["state", "still_waiting", "since", "wchan"]);
        let others = [grouping.place, grouping.duration, grouping.goes_on].map(|key| SHAPE.keys[key]);
        assert_eq!(others, ["wchan", "duration_ns", "still_waiting"]);
    }

    #[test]
    fn a_task_that_lost_its_cpu_was_preempted() {
        let delay = |preempted| Line { state: State::RUN_DELAY, preempted, ..line(None, None) };
        assert_eq!(text(delay(true)), format!("{WAIT}, preempted"));
        assert_eq!(text(delay(false)), WAIT);
        assert_eq!(SHAPE.keys.last(), Some(&"preempted"));
        let [of_delay, of_sleep] = [delay(false), line(None, None)].map(|line| line.values().last().cloned());
        assert_eq!((of_delay, of_sleep), (Some(Value::Bool(false)), Some(Value::None)));
    }

    #[test]
    fn a_waker_is_a_task_or_an_interrupt() {
        assert_eq!(text(line(None, None)), WAIT);
        let interrupt = Waker::Interrupt(Interruption::Hard, None);
        assert_eq!(text(line(Some(interrupt), None)), format!("{WAIT}, woken by an interrupt"));
        let softirq = Waker::Interrupt(Interruption::Soft, None);
        assert_eq!(text(line(Some(softirq), None)), format!("{WAIT}, woken by an interrupt (softirq)"));
        let task = Waker::Task { tid: 0, comm: Comm::new(b"swapper/1") };
        assert_eq!(text(line(Some(task), None)), format!("{WAIT}, woken by swapper/1 0"));
        let exited = Waker::Task { tid: -1, comm: Comm::default() };
        assert_eq!(text(line(Some(exited), None)), format!("{WAIT}, woken by <exited>"));
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
            assert_eq!(text(line(None, Some(&site))), format!("{WAIT} still waiting{want}"));
        }
        let long = site(None, "write", vec![file(7, &format!("/{}/end", "x".repeat(4000)), Some(&"y".repeat(4000)))]);
        let long = text(line(None, Some(&long)));
        assert!(long.len() < 350 && long.contains("(7, ...x") && long.contains("x/end on ...y"), "{long}");
        let long = text(line(None, Some(&site(None, "write", vec![file(7, &"€".repeat(50), None)]))));
        assert!(long.contains(&format!("(7, ...{})", "€".repeat(40))), "{long}");
        let long = text(line(None, Some(&site(None, "write", vec![file(7, &format!("{}x", "€".repeat(50)), None)]))));
        assert!(long.contains(&format!("(7, ...{}x)", "€".repeat(39))), "{long}");
    }

    #[test]
    fn what_several_waits_have_in_common() {
        let site = site(Some("sb_start_write"), "write", vec![file(7, "/x", Some("/dev/vdb"))]);
        let without = |keys: &[&str]| {
            let at = |key: &&str| SHAPE.keys.iter().position(|known| known == key).unwrap();
            let text = text_without(line(None, Some(&site)), &keys.iter().map(at).collect::<Vec<usize>>());
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
            text(line(Some(Waker::Interrupt(Interruption::Hard, None)), Some(&site))),
            format!("{WAIT}, in write(7, /x), woken by an interrupt")
        );
    }
}
