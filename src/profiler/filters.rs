//! Kernel filters by task, for `signal` and `task-state`: what they drop costs no records.

use crate::cli::values::CommList;
use crate::profiler::Setup;
use crate::tep::Format;
use crate::tep::filter::{Filter, quote};

/// A condition on tasks: by name, by tid, or both.
#[derive(Debug, Default)]
pub struct TaskMatch<'a> {
    comms: Option<&'a CommList>,
    /// The wanted tids, sorted. None: all.
    tids: Option<Vec<i32>>,
}

impl<'a> TaskMatch<'a> {
    /// The watched tasks with a name of `--filter`. Warns of names that are longer than a comm.
    pub fn new(comms: Option<&'a CommList>, setup: &Setup<'_>) -> TaskMatch<'a> {
        for cut in comms.into_iter().flat_map(CommList::iter).filter(|pattern| pattern.is_cut()) {
            setup.warn(format!("{:?} is cut to the 15 bytes that the kernel keeps of a name", cut.typed()));
        }
        TaskMatch { comms, tids: setup.watched.fixed() }
    }

    pub fn is_all(&self) -> bool {
        self.comms.is_none() && self.tids.is_none()
    }

    /// The filter of an event of `format`, whose fields are called `comm` and `pid`. None: the filter language cannot
    /// express the condition.
    pub fn filter(&self, comm: &str, pid: &str, format: &Format) -> Option<Filter> {
        let parsed = |text: Option<String>| Filter::parse(&text?, format).ok();
        let by_name = self.comms.map(|comms| parsed(comm_text(comms, comm)));
        let by_tid = self.tids.as_ref().map(|tids| parsed(Some(tid_text(tids, pid))));
        match (by_name, by_tid) {
            (Some(None), _) | (_, Some(None)) => None,
            (by_name, by_tid) => Filter::all_of([by_name.flatten(), by_tid.flatten()]),
        }
    }
}

fn comm_text(comms: &CommList, field: &str) -> Option<String> {
    let mut tests = Vec::new();
    for pattern in comms.iter() {
        // Kernel patterns have no [^...]; and a name cut to 15 bytes may end inside a character.
        let text = std::str::from_utf8(pattern.bytes()).ok().filter(|text| !text.contains("[^"))?;
        let operator = if pattern.is_glob() { "~" } else { "==" };
        tests.push(format!("{field} {operator} {}", quote(text)?));
    }
    Some(tests.join(" || "))
}

/// `f==11 || (f>=20&&f<=27)`
fn tid_text(tids: &[i32], field: &str) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &tid in tids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == tid => *last = tid,
            _ => runs.push((tid, tid)),
        }
    }
    let run = |&(first, last): &(i32, i32)| {
        if first == last { format!("{field}=={first}") } else { format!("({field}>={first}&&{field}<={last})") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(" || ")
}

/// Notes that perf-prof evaluates a filter by task, which costs records.
pub fn note_too_long(setup: &Setup<'_>) {
    setup.note("the task filter is too long for the kernel: it is evaluated here".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values::comm_list;

    fn format() -> Format {
        let text = "name: sched_switch\nID: 1\nformat:\n\
            \tfield:char c[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:int p;\toffset:24;\tsize:4;\tsigned:1;\n\n\
            print fmt: \"x\"\n";
        Format::parse("sched", text).unwrap()
    }

    #[test]
    fn names_and_tids_become_filters() {
        let comms = comm_list("nginx,java*").unwrap();
        let tids = |tids: &[i32]| Some(tids.to_vec());
        let cases = [
            (TaskMatch { comms: Some(&comms), tids: None }, Some(r#"c == "nginx" || c ~ "java*""#)),
            (TaskMatch { comms: None, tids: tids(&[11, 20, 21, 22, 27]) }, Some("p==11 || (p>=20&&p<=22) || p==27")),
            (TaskMatch { comms: Some(&comms), tids: tids(&[1]) }, Some(r#"(c == "nginx" || c ~ "java*" ) && p==1"#)),
            (TaskMatch::default(), None),
        ];
        for (tasks, want) in cases {
            assert_eq!(tasks.filter("c", "p", &format()).as_ref().map(Filter::text), want);
        }
    }

    #[test]
    fn inexpressible_filters_are_left_to_us() {
        for text in ["[^a]b", "a\"b'c"] {
            let comms = comm_list(text).unwrap();
            for tids in [None, Some(vec![1])] {
                assert!(TaskMatch { comms: Some(&comms), tids }.filter("c", "p", &format()).is_none(), "{text}");
            }
        }
    }

    #[test]
    fn long_filters_are_left_to_us() {
        let even = TaskMatch { comms: None, tids: Some((0..2000).step_by(2).collect()) };
        assert!(!even.filter("c", "p", &format()).unwrap().is_short());
        assert!(even.filter("c", "pid", &format()).is_none(), "no such field");
    }
}
