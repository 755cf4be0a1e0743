//! `--detail`: which records around a slow pair are shown.

use crate::cli::values;

/// The value of `--detail`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetailArgs {
    /// Records up to this long before the start, ns.
    pub before_ns: Option<u64>,
    /// Records up to this long after the end, ns.
    pub after_ns: Option<u64>,
    pub same_cpu: bool,
    pub same_pid: bool,
    pub same_tid: bool,
    pub same_key: bool,
    /// Records are compared with the start only, or with the end only.
    pub only: Option<PairSide>,
    /// Records that follow the previous record within this time are hidden, ns.
    pub hide_ns: Option<u64>,
}

/// One of the two events of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairSide {
    Start,
    End,
}

/// The values by which records are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMarks {
    /// The CPU of the record, and the CPUs in its fields.
    pub cpus: [Option<u32>; MAX_MARKS],
    /// The process and the thread of the record, and the ids in its fields, which may be pids or tids.
    pub pid: i32,
    pub tid: i32,
    pub tasks: [Option<i32>; MAX_MARKS],
}

/// Most fields of a record that name CPUs, or tasks.
pub const MAX_MARKS: usize = 4;

const FORM: &str = "write a list of -10us, +10us, samecpu, samepid, sametid, samekey, 1, 2, hide<10us";

/// Parses the value of `--detail`.
///
/// # Errors
/// A word that is not allowed in the value.
pub fn parse(text: &str) -> Result<DetailArgs, String> {
    let mut args = DetailArgs::default();
    for word in text.split(',').map(str::trim) {
        let time =
            |text: &str| values::time_ns(text).map(|time| Some(time.0)).map_err(|err| format!("`{word}`: {err}"));
        match word {
            "" if text.is_empty() => {}
            "samecpu" => args.same_cpu = true,
            "samepid" => args.same_pid = true,
            "sametid" => args.same_tid = true,
            "samekey" => args.same_key = true,
            "1" => args.only = Some(PairSide::Start),
            "2" => args.only = Some(PairSide::End),
            _ => match (word.strip_prefix("hide<"), word.strip_prefix('-'), word.strip_prefix('+')) {
                (Some(length), ..) => args.hide_ns = time(length)?,
                (_, Some(length), _) => args.before_ns = time(length)?,
                (.., Some(length)) => args.after_ns = time(length)?,
                _ => return Err(format!("`{word}` is unknown, {FORM}")),
            },
        }
    }
    Ok(args)
}

impl DetailArgs {
    fn selects(&self) -> bool {
        self.same_cpu || self.same_pid || self.same_tid || self.same_key
    }

    /// Whether a record is shown with a pair that has these marks. `has_key`: the record has the key of the pair.
    /// `thread_cpus`: the CPUs of the thread that is the key, before and after the record.
    pub fn shows(
        &self,
        record: &RecordMarks,
        start: &RecordMarks,
        end: &RecordMarks,
        has_key: bool,
        thread_cpus: [Option<u32>; 2],
    ) -> bool {
        let is_there = || record.cpus.iter().any(|cpu| cpu.is_some() && thread_cpus.contains(cpu));
        if !self.selects() || self.same_key && has_key || self.same_cpu && is_there() {
            return true;
        }
        let sides = [(PairSide::Start, start), (PairSide::End, end)];
        sides.into_iter().filter(|(side, _)| self.only.is_none_or(|only| only == *side)).any(|(_, side)| {
            let is_cpu = |cpu: &Option<u32>| cpu.is_some() && side.cpus.contains(cpu);
            let is_task = |task: i32, of_side: i32| {
                task == of_side || record.tasks.contains(&Some(of_side)) || side.tasks.contains(&Some(task))
            };
            // The idle tasks of all CPUs have the tid 0.
            self.same_cpu && record.cpus.iter().any(is_cpu)
                || self.same_pid && side.pid > 0 && is_task(record.pid, side.pid)
                || self.same_tid && side.tid > 0 && is_task(record.tid, side.tid)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed() {
        let all = parse("-1us,+1.5ms, samecpu,samekey,2,hide<100").unwrap();
        let want = DetailArgs {
            before_ns: Some(1000),
            after_ns: Some(1_500_000),
            same_cpu: true,
            same_key: true,
            only: Some(PairSide::End),
            hide_ns: Some(100),
            ..DetailArgs::default()
        };
        assert_eq!(all, want);
        assert_eq!(parse("").unwrap(), DetailArgs::default());
        for (text, word) in [("samecpus", "samecpus"), ("samecpu,", ""), ("-x", "-x"), ("hide<", "hide<"), ("3", "3")] {
            let err = parse(text).unwrap_err();
            assert!(err.starts_with(&format!("`{word}`")), "{text}: {err}");
        }
    }

    fn marks(cpu: u32, pid: i32, tid: i32, other: Option<i32>) -> RecordMarks {
        RecordMarks { cpus: [Some(cpu), None, None, None], pid, tid, tasks: [other, None, None, None] }
    }

    #[test]
    fn records_are_selected_by_what_they_share() {
        let (start, end) = (marks(0, 10, 11, Some(20)), marks(1, 0, 0, None));
        let shows = |text: &str, record: &RecordMarks, has_key| {
            parse(text).unwrap().shows(record, &start, &end, has_key, [Some(9), None])
        };
        let other = marks(5, 70, 70, None);
        assert!(shows("", &other, false));
        assert!(!shows("samecpu,samepid,sametid,samekey", &other, false));
        assert!(shows("samekey", &other, true));
        let there = marks(9, 70, 70, None);
        assert!(shows("samecpu,1", &there, false) && !shows("samepid", &there, false), "where the thread was");
        assert!(shows("samecpu", &marks(1, 70, 70, None), false));
        assert!(
            !shows("samecpu,1", &marks(1, 70, 70, None), false) && shows("samecpu,1", &marks(0, 70, 70, None), false)
        );
        assert!(shows("samepid", &marks(5, 10, 12, None), false) && !shows("sametid", &marks(5, 10, 12, None), false));
        assert!(shows("sametid", &marks(5, 70, 70, Some(11)), false), "a field that names the thread");
        assert!(shows("sametid", &marks(5, 20, 20, None), false), "a field of the start names it");
        assert!(!shows("samepid", &marks(5, 0, 0, None), false), "the idle task is nobody");
    }
}
