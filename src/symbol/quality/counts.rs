//! Numbers of callchains of a run by quality, in all and by program; and what would make more of them whole.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::perf::record::UserPart;
use crate::symbol::quality::chain::{BreakCause, BreakPlace, CallchainQuality, ChainLimit};
use crate::symbol::stacks::frames::UserStack;
use crate::unwind::MAX_FRAMES;

/// Numbers of callchains of a run, by quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QualityCounts {
    pub good: u64,
    pub guessed: u64,
    pub broken_libc: u64,
    pub broken: u64,
    pub truncated: u64,
    pub empty: u64,
    pub unjudged: u64,
    /// With a user part found by unwind tables.
    pub unwound: u64,
    programs: FxHashMap<Option<Arc<str>>, ProgramQuality>,
}

/// The user stacks of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramQuality {
    /// The path of the program's file. None: the sum of programs whose file is not known, or that are beyond the limit.
    pub program: Option<Arc<str>>,
    pub whole: u64,
    pub guessed: u64,
    pub truncated: u64,
    pub broken: u64,
    /// Found by unwind tables.
    unwound: u64,
    /// Number of stacks that do not reach the start, by where and why they end.
    ends: FxHashMap<StackEnd, u64>,
    /// A process with stacks that are larger than their copies: that with more than half of them, if there is one.
    outgrowing: Option<(i32, u64)>,
}

/// Why stacks are not whole.
struct StackHelp {
    /// The most frequent reason.
    why: String,
    /// The one thing that would help.
    cure: Option<String>,
}

/// Why a user stack ends before the start of its thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum StackEnd {
    Cut(ChainLimit),
    Broken(BreakPlace),
}

/// Most programs that are counted apart: users decide how many files they execute.
const MAX_PROGRAMS: usize = 1024;
/// Most ends that are counted apart for the stacks of one program.
const MAX_ENDS: usize = 64;
/// Programs that are listed in text.
const LISTED: usize = 5;
/// Share of user stacks that may end early without a word, in per cent.
const QUIET_PCT: u64 = 5;
/// The largest copy of a stack, about: sizes of records have 16 bits.
const LARGEST_KIB: u8 = 64;

impl QualityCounts {
    /// Adds a stack that was sampled `taken` times. `user`: its user part, if it has frames of a program.
    pub fn add(&mut self, quality: &CallchainQuality, user: Option<&UserStack>, taken: u64) {
        *match quality {
            CallchainQuality::Good => &mut self.good,
            CallchainQuality::Guessed => &mut self.guessed,
            CallchainQuality::BrokenLibc(_) => &mut self.broken_libc,
            CallchainQuality::Broken(_) => &mut self.broken,
            CallchainQuality::Truncated(_) => &mut self.truncated,
            CallchainQuality::Empty => &mut self.empty,
            CallchainQuality::Unjudged => &mut self.unjudged,
        } += taken;
        let Some(user) = user else { return };
        let unwound = if user.part == UserPart::FramePointers { 0 } else { taken };
        self.unwound += unwound;
        let is_known = self.programs.contains_key(&user.program) || self.programs.len() < MAX_PROGRAMS;
        let program = user.program.clone().filter(|_| is_known);
        let entry = self
            .programs
            .entry(program)
            .or_insert_with_key(|program| ProgramQuality { program: program.clone(), ..ProgramQuality::default() });
        entry.unwound += unwound;
        entry.add(quality, user.pid, taken);
    }

    pub fn total(&self) -> u64 {
        let whole = self.good + self.guessed;
        whole + self.broken_libc + self.broken + self.truncated + self.empty + self.unjudged
    }

    /// The programs, those with most stacks that do not reach the start first.
    pub fn programs(&self) -> Vec<&ProgramQuality> {
        let mut programs: Vec<&ProgramQuality> = self.programs.values().filter(|program| program.taken() > 0).collect();
        programs.sort_by_key(|program| (Reverse(program.early()), Reverse(program.taken()), program.program.clone()));
        programs
    }

    /// For `-v`: the shares, and the worst programs with what would help.
    pub fn describe(&self) -> Vec<String> {
        let total = self.total();
        if total == 0 {
            return Vec::new();
        }
        let mut shares = vec![
            (self.good, "good"),
            (self.guessed, "guessed"),
            (self.broken_libc, "broken at libc"),
            (self.broken, "broken elsewhere"),
            (self.truncated, "truncated"),
            (self.empty, "empty"),
        ];
        shares.extend((self.unjudged > 0).then_some((self.unjudged, "not judged: names were given up")));
        let mut lines = vec![format!("stacks: {total} taken: {}", join_shares(&shares, total))];
        let programs = self.programs();
        lines.extend(programs.iter().take(LISTED).map(|program| program.line()));
        if let Some(more) = programs.len().checked_sub(LISTED).filter(|more| *more > 0) {
            let early = programs.iter().skip(LISTED).filter(|program| program.early() > 0).count();
            let rest =
                if early == 0 { "all whole".to_owned() } else { format!("{early} with stacks that are not whole") };
            lines.push(format!("stacks: {more} more programs, {rest}"));
        }
        lines
    }

    /// Without `-v`: a few short lines if too many user stacks do not reach the start. `lives`: whether a process still
    /// runs.
    pub fn warning(&self, lives: impl FnOnce(i32) -> bool) -> Vec<String> {
        let programs = self.programs();
        let taken: u64 = programs.iter().map(|program| program.taken()).sum();
        let early: u64 = programs.iter().map(|program| program.early()).sum();
        let Some(worst) = programs.first().filter(|_| early * 100 > taken * QUIET_PCT) else { return Vec::new() };
        let many = worst.early();
        let mut lines = vec![
            format!("stacks: {early} of {taken} user stacks do not reach the start of their program"),
            format!("  {many} of them in {} (-v: every program)", worst.name()),
        ];
        // Larger copies of one process alone cost the others nothing.
        let alone = worst.outgrowing.filter(|_| programs.len() > 1 && worst.is_outgrown()).map(|(pid, _)| pid);
        if let Some(StackHelp { why, cure }) = worst.stack_help() {
            let cure = match alone.filter(|pid| lives(*pid)) {
                Some(pid) => cure.map(|cure| format!("-p {pid} {cure}, for that process alone")),
                None => cure,
            };
            lines.push(format!("  {why}"));
            lines.extend(cure.map(|cure| format!("  {cure}")));
        }
        lines
    }
}

impl ProgramQuality {
    fn add(&mut self, quality: &CallchainQuality, pid: i32, taken: u64) {
        let (sum, end) = match quality {
            CallchainQuality::Good => (&mut self.whole, None),
            CallchainQuality::Guessed => (&mut self.guessed, None),
            CallchainQuality::Truncated(limit) => (&mut self.truncated, Some(StackEnd::Cut(*limit))),
            CallchainQuality::BrokenLibc(place) | CallchainQuality::Broken(place) => {
                (&mut self.broken, Some(StackEnd::Broken(place.clone())))
            }
            CallchainQuality::Empty | CallchainQuality::Unjudged => return,
        };
        *sum += taken;
        let Some(end) = end else { return };
        if matches!(end, StackEnd::Cut(ChainLimit::Window { .. })) {
            self.outgrows(pid, taken);
        }
        if let Some(count) = self.ends.get_mut(&end) {
            *count += taken;
        } else if self.ends.len() < MAX_ENDS {
            self.ends.insert(end, taken);
        }
    }

    /// Stacks of a process are larger than their copies. Of many processes the one with the majority stays: the vote of
    /// Boyer and Moore.
    fn outgrows(&mut self, pid: i32, taken: u64) {
        self.outgrowing = Some(match self.outgrowing {
            Some((known, votes)) if known == pid => (pid, votes + taken),
            Some((known, votes)) if votes >= taken => (known, votes - taken),
            Some((_, votes)) => (pid, taken - votes),
            None => (pid, taken),
        });
    }

    pub fn taken(&self) -> u64 {
        self.whole + self.guessed + self.early()
    }

    /// Number of stacks that do not reach the start.
    fn early(&self) -> u64 {
        self.truncated + self.broken
    }

    fn name(&self) -> &str {
        self.program.as_deref().unwrap_or("programs that had gone")
    }

    /// The most frequent reason why stacks are not whole, and the one thing that would help, as one text.
    pub fn help(&self) -> Option<String> {
        self.stack_help().map(|StackHelp { why, cure }| cure.map_or(why.clone(), |cure| format!("{why}: {cure}")))
    }

    /// Where most of the stacks that are not whole end.
    fn main_end(&self) -> Option<&StackEnd> {
        let rank = |end: &StackEnd| match end {
            StackEnd::Cut(_) => None,
            StackEnd::Broken(place) => Some(place.path.clone()),
        };
        // Equal counts: always the same one.
        self.ends.iter().max_by_key(|(end, count)| (**count, Reverse(rank(end)))).map(|(end, _)| end)
    }

    /// Most of the stacks that are not whole are larger than their copies, and larger copies are possible.
    fn is_outgrown(&self) -> bool {
        matches!(self.main_end(), Some(StackEnd::Cut(ChainLimit::Window { kib })) if *kib < LARGEST_KIB)
    }

    /// None: all stacks are whole, or nothing is known of the rest.
    fn stack_help(&self) -> Option<StackHelp> {
        let (why, cure) = match self.main_end()? {
            StackEnd::Cut(ChainLimit::Window { kib }) => match kib.saturating_mul(2).min(LARGEST_KIB) {
                _ if *kib >= LARGEST_KIB => (
                    "mostly larger than the largest copy".to_owned(),
                    Some("--call-graph=fp goes on where frame pointers are kept".to_owned()),
                ),
                larger => {
                    (format!("mostly larger than copies of {kib} KiB"), Some(format!("--call-graph=dwarf,{larger}K")))
                }
            },
            StackEnd::Cut(ChainLimit::Depth) => (
                "mostly cut at the depth limit".to_owned(),
                Some("a larger max-stack=, or kernel.perf_event_max_stack, keeps them whole".to_owned()),
            ),
            StackEnd::Cut(ChainLimit::UnwoundFrames) => {
                (format!("mostly more than {MAX_FRAMES} frames, and no more are followed"), None)
            }
            StackEnd::Broken(BreakPlace { cause, path }) => return self.break_help(*cause, path.as_deref()),
        };
        Some(StackHelp { why, cure })
    }

    /// What is told of stacks that break off in a file.
    fn break_help(&self, cause: BreakCause, path: Option<&str>) -> Option<StackHelp> {
        let (why, cure) = match (cause, path) {
            (BreakCause::MadeAtRunTime, _) => (
                "mostly in code made at run time".to_owned(),
                Some(format!("{} keeps frame pointers there", self.runtime_option())),
            ),
            (BreakCause::NoFramePointers, path) => {
                let why = format!("mostly in {}, by frame pointers", path.unwrap_or("no file"));
                match self.unwound {
                    0 => (why, Some("--call-graph=dwarf unwinds them by tables".to_owned())),
                    _ => (why + ", since no copy of their stack came", None),
                }
            }
            (BreakCause::ReturnProbe, _) => (
                "mostly at a return probe, which has taken the place of a return address".to_owned(),
                Some("code with frame pointers (-fno-omit-frame-pointer) is followed behind it".to_owned()),
            ),
            (BreakCause::NoTables, Some(path)) => (
                format!("mostly in {path}"),
                Some(
                    "built with -fno-omit-frame-pointer or -fasynchronous-unwind-tables it would not cut them"
                        .to_owned(),
                ),
            ),
            (BreakCause::InExec, _) => {
                ("mostly within exec, when the program before is gone and the next one has not begun".to_owned(), None)
            }
            (BreakCause::NoTables, None) => return None,
        };
        Some(StackHelp { why, cure })
    }

    fn runtime_option(&self) -> &'static str {
        let name = self.program.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        if name.starts_with("java") { "-XX:+PreserveFramePointer" } else { "an option of its run time" }
    }

    fn line(&self) -> String {
        let shares =
            [(self.whole, "whole"), (self.guessed, "guessed"), (self.truncated, "truncated"), (self.broken, "broken")];
        let taken = self.taken();
        let help = self.help().map(|help| format!("; {help}")).unwrap_or_default();
        format!("stacks: {taken} in {}: {}{help}", self.name(), join_shares(&shares, taken))
    }
}

/// The counts in per cent of `total`, which is not 0.
fn join_shares(shares: &[(u64, &str)], total: u64) -> String {
    let share = |(count, what): &(u64, &str)| format!("{:.1} % {what}", *count as f64 * 100.0 / total as f64);
    shares.iter().map(share).collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(part: UserPart, program: &str) -> Option<UserStack> {
        Some(UserStack { part, program: Some(program.into()), pid: 7 })
    }

    fn broken(path: &str, cause: BreakCause) -> CallchainQuality {
        CallchainQuality::Broken(BreakPlace { path: Some(path.into()), cause })
    }

    fn truncated(kib: u8) -> CallchainQuality {
        CallchainQuality::Truncated(ChainLimit::Window { kib })
    }

    #[test]
    fn describes_shares_and_programs() {
        let mut stacks = QualityCounts::default();
        assert!(stacks.describe().is_empty() && stacks.warning(|_| true).is_empty());
        let libc = CallchainQuality::BrokenLibc(BreakPlace {
            path: Some("/l/libc.so.6".into()),
            cause: BreakCause::NoFramePointers,
        });
        for (quality, user, taken) in [
            (CallchainQuality::Good, None, 30),
            (CallchainQuality::Good, user(UserPart::Whole, "/bin/a"), 18),
            (CallchainQuality::Guessed, user(UserPart::Guessed, "/bin/a"), 2),
            (libc, user(UserPart::FramePointers, "/bin/b"), 20),
            (broken("/bin/b", BreakCause::NoFramePointers), user(UserPart::FramePointers, "/bin/b"), 10),
            (truncated(8), user(UserPart::Truncated { kib: 8 }, "/bin/a"), 12),
            (CallchainQuality::Empty, None, 8),
        ] {
            stacks.add(&quality, user.as_ref(), taken);
        }
        let shares = "48.0 % good, 2.0 % guessed, 20.0 % broken at libc, 10.0 % broken elsewhere, 12.0 % truncated, \
                      8.0 % empty";
        let want = [
            format!("stacks: 100 taken: {shares}"),
            "stacks: 30 in /bin/b: 0.0 % whole, 0.0 % guessed, 0.0 % truncated, 100.0 % broken; mostly in \
             /l/libc.so.6, by frame pointers: --call-graph=dwarf unwinds them by tables"
                .to_owned(),
            "stacks: 32 in /bin/a: 56.2 % whole, 6.2 % guessed, 37.5 % truncated, 0.0 % broken; mostly \
             larger than copies of 8 KiB: --call-graph=dwarf,16K"
                .to_owned(),
        ];
        assert_eq!((stacks.total(), stacks.unwound), (100, 32));
        assert_eq!(stacks.describe(), want);
        let want = [
            "stacks: 42 of 62 user stacks do not reach the start of their program",
            "  30 of them in /bin/b (-v: every program)",
            "  mostly in /l/libc.so.6, by frame pointers",
            "  --call-graph=dwarf unwinds them by tables",
        ];
        assert_eq!(stacks.warning(|_| true), want);
        stacks.add(&CallchainQuality::Unjudged, user(UserPart::FramePointers, "/bin/c").as_ref(), 100);
        assert!(stacks.describe()[0].ends_with(", 50.0 % not judged: names were given up"), "{:?}", stacks.describe());
        assert_eq!(stacks.programs().len(), 2, "nothing is known of that one");
    }

    #[test]
    fn a_few_lines_if_more_than_a_twentieth_ends_early() {
        let mut stacks = QualityCounts::default();
        stacks.add(&CallchainQuality::Good, None, 1_000_000); // of the kernel alone
        stacks.add(&CallchainQuality::Good, user(UserPart::Whole, "/a").as_ref(), 80);
        stacks.add(&CallchainQuality::Guessed, user(UserPart::Guessed, "/a").as_ref(), 15);
        stacks.add(&truncated(1), user(UserPart::Truncated { kib: 1 }, "/a").as_ref(), 5);
        assert!(stacks.warning(|_| true).is_empty());
        stacks.add(&truncated(1), user(UserPart::Truncated { kib: 1 }, "/a").as_ref(), 1);
        let lines = stacks.warning(|_| true);
        assert!(lines[0].contains("6 of 101 user stacks"), "{lines:?}");
        assert_eq!(lines[2..4], ["  mostly larger than copies of 1 KiB", "  --call-graph=dwarf,2K"]);
    }

    /// Where other programs are watched, too, larger copies are advised for the process that needs them.
    #[test]
    fn larger_copies_are_for_one_process() {
        let mut stacks = QualityCounts::default();
        let python = |pid| UserStack { pid, ..user(UserPart::Truncated { kib: 32 }, "/bin/python3").unwrap() };
        for (pid, taken) in [(11, 3), (12, 5), (13, 1), (12, 4)] {
            stacks.add(&truncated(32), Some(&python(pid)), taken);
        }
        let cure = |stacks: &QualityCounts, lives: bool| stacks.warning(|pid| lives && pid == 12)[3].clone();
        assert_eq!(cure(&stacks, true), "  --call-graph=dwarf,64K", "no other program is watched");
        stacks.add(&CallchainQuality::Good, user(UserPart::Whole, "/bin/sh").as_ref(), 40);
        assert_eq!(cure(&stacks, true), "  -p 12 --call-graph=dwarf,64K, for that process alone");
        assert_eq!(cure(&stacks, false), "  --call-graph=dwarf,64K", "the process has ended");
        stacks.add(&truncated(64), Some(&python(12)), 40);
        assert!(cure(&stacks, true).starts_with("  --call-graph=fp"), "no copy is larger");
    }

    #[test]
    fn what_would_help() {
        let help = |quality: CallchainQuality, program: &str| {
            let mut stacks = QualityCounts::default();
            stacks.add(&quality, user(UserPart::Broken, program).as_ref(), 3);
            stacks.programs()[0].help().unwrap_or_default()
        };
        let limit = CallchainQuality::Truncated;
        let nowhere = CallchainQuality::Broken(BreakPlace { path: None, cause: BreakCause::NoTables });
        let in_exec = CallchainQuality::Broken(BreakPlace { path: None, cause: BreakCause::InExec });
        let cases = [
            (truncated(8), "/a", "dwarf,16K"),
            (truncated(48), "/a", "dwarf,64K"),
            (truncated(64), "/a", "--call-graph=fp"),
            (limit(ChainLimit::Depth), "/a", "kernel.perf_event_max_stack"),
            (limit(ChainLimit::UnwoundFrames), "/a", "more than 512 frames"),
            (broken("//anon", BreakCause::MadeAtRunTime), "/usr/bin/java", "-XX:+PreserveFramePointer"),
            (broken("//anon", BreakCause::MadeAtRunTime), "/usr/bin/luajit", "an option of its run time"),
            (broken("/a", BreakCause::NoTables), "/a", "-fasynchronous-unwind-tables"),
            (broken("/a", BreakCause::NoFramePointers), "/a", "no copy of their stack came"),
            (nowhere, "/a", ""),
            (in_exec, "/a", "within exec"),
            (CallchainQuality::Good, "/a", ""),
        ];
        for (quality, program, want) in cases {
            let text = help(quality.clone(), program);
            assert!(text.contains(want) && text.is_empty() == want.is_empty(), "{quality:?}: {text}");
        }
    }

    /// Users choose what runs, and how it is called.
    #[test]
    fn programs_and_ends_beyond_a_number_are_summed() {
        let mut stacks = QualityCounts::default();
        let most = MAX_PROGRAMS + 10;
        for number in 0..most {
            let quality = broken(&format!("/end/{number}"), BreakCause::NoTables);
            stacks.add(&quality, user(UserPart::Broken, &format!("/p/{number}")).as_ref(), 1);
            stacks.add(&quality, user(UserPart::Broken, "/p/0").as_ref(), 1);
        }
        let programs = stacks.programs();
        assert_eq!(programs.len(), MAX_PROGRAMS + 1);
        assert_eq!(programs.iter().map(|program| program.broken).sum::<u64>(), 2 * most as u64);
        assert_eq!((programs[0].broken, programs[0].ends.len()), (most as u64 + 1, MAX_ENDS));
        assert_eq!((programs[1].name(), programs[1].broken), ("programs that had gone", 10));
        let lines = stacks.describe();
        assert_eq!(lines.len(), 1 + LISTED + 1);
        assert_eq!(
            lines[LISTED + 1],
            format!("stacks: {0} more programs, {0} with stacks that are not whole", MAX_PROGRAMS + 1 - LISTED)
        );
    }
}
