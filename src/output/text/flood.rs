//! A flood of occurrences as a few lines of text: equal occurrences become one line with their count, the longest
//! first.
//!
//! Up to some lines a second, each occurrence is printed at once on a line of its own. Occurrences beyond that are held
//! for a second at most and grouped as the [`Grouping`] of their kind says. Each occurrence is counted: in the line of
//! its group, or, for a group without a line, in the last line.

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::report::{Grouping, OccurrenceLayout, Subject, Value};
use crate::symbol::StackId;
use crate::symbol::stacks::key::StackKey;
use crate::task::Comm;

const SECOND_NS: u64 = 1_000_000_000;
/// Occurrences within a second that are printed on lines of their own.
const MAX_SINGLE: usize = 20;
/// Lines within a second that such occurrences have, with the frames of their stacks.
const MAX_SINGLE_LINES: u64 = 200;
/// How long the first occurrence of a flood waits for others: those of one cause seldom arrive at the same moment.
const GATHER_NS: u64 = 200_000_000;
/// How long a folded occurrence is held at most, where no table comes before: one that has ended, and one that goes on.
const FOLD_ENDED_NS: u64 = 10_000_000_000;
const FOLD_ONGOING_NS: u64 = 1_000_000_000;
/// Most groups held, and their bytes. Beyond either, the half with the shorter durations is only counted.
const MAX_GROUPS: usize = 1024;
const MAX_BYTES: usize = 2 << 20;
/// Comms counted separately in a group, and tids kept of each.
const MAX_NAMES: usize = 32;
const MAX_TIDS: usize = 256;

/// The occurrences of the last second, and the groups that are held.
#[derive(Debug, Default)]
pub struct Flood {
    /// Arrival time and number of lines of the last [`MAX_SINGLE`] occurrences.
    recent: VecDeque<(u64, u32)>,
    groups: FxHashMap<FloodKey, FloodGroup>,
    bytes: usize,
    rests: Vec<OmittedGroups>,
    held_since: Option<u64>,
    /// When groups were last taken to be printed.
    taken_at: Option<u64>,
    /// When folded occurrences are to be printed.
    folded_until: Option<u64>,
}

/// What the occurrences of a group have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloodKey {
    /// The address of the layout.
    layout: usize,
    same: Box<[Value]>,
    stack: StackKey,
    /// The comm, where neither a stack nor the place tells occurrences apart.
    comm: Option<Comm>,
}

/// Occurrences that share one line.
#[derive(Debug)]
pub struct FloodGroup {
    pub layout: &'static OccurrenceLayout,
    pub grouping: &'static Grouping,
    /// Subject of the longest occurrence.
    pub subject: Subject,
    /// The values that all have in common, and the longest duration.
    pub values: Vec<Value>,
    pub stack: Option<StackId>,
    pub stack_key: StackKey,
    pub count: u64,
    pub total_ns: u64,
    /// For each of [`Grouping::commonest`].
    commonest: Vec<CommonestValues>,
    names: FxHashMap<Comm, FloodName>,
    /// Occurrences of comms that are not in `names`.
    unnamed: u64,
    bytes: usize,
}

/// The occurrences of one comm in a group.
#[derive(Debug, Default)]
pub struct FloodName {
    pub count: u64,
    /// The first tids, `MAX_TIDS` of them at most, sorted.
    pub tids: Vec<i32>,
    /// There are more tids.
    pub is_crowd: bool,
}

/// How many occurrences of a group have the same values of some details.
#[derive(Debug, Default)]
struct CommonestValues(Vec<(Vec<Value>, u64)>);

impl CommonestValues {
    /// Adds the values of `count` occurrences. Returns how many bytes it takes more.
    fn add(&mut self, values: Vec<Value>, count: u64) -> usize {
        const LIMIT: usize = 32;
        let is_number = |value: &Value| matches!(value, Value::Signed(_) | Value::Ns(_) | Value::None);
        let are_alike = |(one, other): (&Value, &Value)| is_number(one) && is_number(other) || one == other;
        let known = self.0.iter_mut().find(|(known, _)| known.iter().zip(&values).all(are_alike));
        if let Some((known, times)) = known {
            *times += count;
            for (known, value) in known.iter_mut().zip(&values) {
                match (&mut *known, value) {
                    (Value::Ns(longest), Value::Ns(ns)) => *longest = (*longest).max(*ns),
                    (one, other) if one != other => *known = Value::None,
                    _ => {}
                }
            }
            return 0;
        }
        if self.0.len() >= LIMIT {
            return 0;
        }
        let bytes = values.iter().map(|value| size_of::<Value>() + value.heap_bytes()).sum();
        self.0.push((values, count));
        bytes
    }

    /// The commonest known values, with their number.
    fn into_commonest(self) -> Option<(Vec<Value>, u64)> {
        let is_known = |(values, _): &(Vec<Value>, u64)| values.iter().any(|value| *value != Value::None);
        // Of equal numbers the first.
        self.0.into_iter().rev().filter(is_known).max_by_key(|(_, count)| *count)
    }
}

/// Groups without a line of their own.
#[derive(Debug)]
pub struct OmittedGroups {
    pub grouping: &'static Grouping,
    /// Occurrences.
    pub count: u64,
    /// None: too many groups to keep count of.
    pub groups: Option<u64>,
    pub longest_ns: u64,
    /// They are held because they seldom matter.
    pub are_folded: bool,
}

/// The groups that were held.
#[derive(Debug, Default)]
pub struct HeldGroups {
    /// The longest first.
    pub groups: Vec<FloodGroup>,
    pub rests: Vec<OmittedGroups>,
}

/// An occurrence that may be grouped with others.
#[derive(Clone, Copy, Debug)]
pub struct Groupable<'a> {
    /// Index of its view.
    pub view: u16,
    pub subject: &'a Subject,
    pub layout: &'static OccurrenceLayout,
    pub grouping: &'static Grouping,
    pub values: &'a [Value],
    pub stack: Option<StackId>,
}

impl Groupable<'_> {
    /// Whether a detail is true.
    pub fn is(&self, detail: usize) -> bool {
        matches!(self.values.get(detail), Some(Value::Bool(true)))
    }
}

impl Flood {
    /// Whether the next occurrence is to be held, when `count` arrive at once.
    pub fn is_on(&mut self, now: u64, count: usize) -> bool {
        while self.recent.pop_front_if(|(came, _)| now.saturating_sub(*came) >= SECOND_NS).is_some() {}
        let lines: u64 = self.recent.iter().map(|(_, lines)| u64::from(*lines)).sum();
        self.is_holding() || self.recent.len() + count > MAX_SINGLE || lines >= MAX_SINGLE_LINES
    }

    /// Records the arrival of an occurrence that has, or would have, so many lines.
    pub fn record_arrival(&mut self, now: u64, lines: u32) {
        if self.recent.len() >= MAX_SINGLE {
            self.recent.pop_front();
        }
        self.recent.push_back((now, lines));
    }

    fn is_holding(&self) -> bool {
        self.held_since.is_some()
    }

    /// When the groups that are held are to be printed.
    pub fn due_at(&self) -> Option<u64> {
        let since = self.held_since?;
        if self.folded_until.is_some() {
            return self.folded_until;
        }
        // A second after the groups before, but no group is held for longer than a second.
        let next = self.taken_at.map_or(0, |taken| taken.saturating_add(SECOND_NS));
        Some(next.min(since.saturating_add(SECOND_NS)).max(since.saturating_add(GATHER_NS)))
    }

    /// Holds an occurrence that seldom matters: a flood of these alone.
    pub fn fold(&mut self, now: u64, one: Groupable<'_>, stack_key: StackKey) {
        let due = now.saturating_add(if one.is(one.grouping.goes_on) { FOLD_ONGOING_NS } else { FOLD_ENDED_NS });
        self.folded_until = Some(self.folded_until.map_or(due, |until| until.min(due)));
        self.hold(now, one, stack_key);
    }

    /// Holds an occurrence. True when it is the first of its group.
    pub fn hold(&mut self, now: u64, one: Groupable<'_>, stack_key: StackKey) -> bool {
        self.held_since.get_or_insert(now);
        let folding = one.grouping.folding.filter(|_| self.folded_until.is_some() && stack_key == StackKey::Absent);
        let place = folding.into_iter().flat_map(|folding| folding.place(one.values));
        let same = one.grouping.same(one.values).chain(place).cloned().collect();
        let has_place = !matches!(one.values.get(one.grouping.place), None | Some(Value::None));
        let comm = (stack_key == StackKey::Absent && !has_place).then_some(one.subject.comm);
        let key = FloodKey { layout: std::ptr::from_ref(one.layout).addr(), same, stack: stack_key, comm };
        if let Some(group) = self.groups.get_mut(&key) {
            let before = group.bytes;
            group.add(&one);
            self.bytes += group.bytes - before;
            return false;
        }
        let group = FloodGroup::new(&one, key.stack.clone());
        self.bytes += group.bytes;
        self.groups.insert(key, group);
        if self.groups.len() > MAX_GROUPS || self.bytes > MAX_BYTES {
            self.thin();
        }
        true
    }

    /// Makes room: the groups with shorter durations are only counted.
    fn thin(&mut self) {
        let mut groups: Vec<(FloodKey, FloodGroup)> = self.groups.drain().collect();
        groups.sort_unstable_by_key(|(_, group)| Reverse(group.longest_ns()));
        self.bytes = 0;
        for (key, group) in groups {
            if self.groups.len() < MAX_GROUPS / 2 && self.bytes + group.bytes <= MAX_BYTES / 2 {
                self.bytes += group.bytes;
                self.groups.insert(key, group);
            } else {
                omit(&mut self.rests, &group).groups = None; // an equal group may come again and would count twice
            }
        }
    }

    /// Takes the groups that are held, to be printed now.
    pub fn take(&mut self, now: u64) -> HeldGroups {
        if self.held_since.take().is_some() {
            self.taken_at = Some(now);
        }
        self.folded_until = None;
        self.bytes = 0;
        let mut groups: Vec<FloodGroup> = std::mem::take(&mut self.groups).into_values().collect();
        groups.sort_unstable_by_key(|group| (Reverse(group.longest_ns()), group.subject.time, group.subject.tid));
        HeldGroups { groups, rests: std::mem::take(&mut self.rests) }
    }
}

impl HeldGroups {
    pub fn are_folded(&self) -> bool {
        self.groups.iter().any(FloodGroup::is_folded)
    }

    /// Chooses the groups that have lines: by turns the one with the longest duration and the one with the greatest
    /// total, since many short waits may be worse than a long one. The others are only counted. `lines` is the number
    /// of lines that a group takes.
    pub fn choose(&mut self, most: usize, most_lines: u32, mut lines: impl FnMut(&FloodGroup) -> u32) {
        let mut by_total: Vec<usize> = (0..self.groups.len()).collect();
        by_total.sort_by_key(|at| Reverse(self.groups[*at].total_ns));
        let by_turns = by_total.into_iter().enumerate().flat_map(|(longest, greatest)| [longest, greatest]);
        let mut is_chosen = vec![false; self.groups.len()];
        let (mut chosen, mut taken) = (0, 0);
        for at in by_turns {
            if chosen >= most || taken >= most_lines {
                break;
            }
            if !std::mem::replace(&mut is_chosen[at], true) {
                chosen += 1;
                taken += lines(&self.groups[at]);
            }
        }
        let mut is_chosen = is_chosen.into_iter();
        for group in self.groups.extract_if(.., |_| is_chosen.next() == Some(false)) {
            omit(&mut self.rests, &group);
        }
    }
}

fn omit<'a>(rests: &'a mut Vec<OmittedGroups>, group: &FloodGroup) -> &'a mut OmittedGroups {
    let grouping = group.grouping;
    let at = rests.iter().position(|rest| std::ptr::eq(rest.grouping, grouping)).unwrap_or(rests.len());
    if at == rests.len() {
        rests.push(OmittedGroups { grouping, count: 0, groups: Some(0), longest_ns: 0, are_folded: group.is_folded() });
    }
    let rest = &mut rests[at];
    rest.count = rest.count.saturating_add(group.count);
    rest.groups = rest.groups.map(|groups| groups + 1);
    rest.longest_ns = rest.longest_ns.max(group.longest_ns());
    rest
}

impl FloodGroup {
    fn new(one: &Groupable<'_>, stack_key: StackKey) -> FloodGroup {
        let heap = one.values.iter().map(Value::heap_bytes).sum::<usize>();
        let values = 2 * (size_of_val(one.values) + heap); // the key holds some of them again
        let bytes = size_of::<FloodKey>() + size_of::<FloodGroup>() + stack_key.bytes() + values;
        let mut group = FloodGroup {
            layout: one.layout,
            grouping: one.grouping,
            subject: *one.subject,
            values: one.values.to_vec(),
            stack: one.stack,
            stack_key,
            count: 0,
            total_ns: 0,
            commonest: one.grouping.commonest().iter().map(|_| CommonestValues::default()).collect(),
            names: FxHashMap::default(),
            unnamed: 0,
            bytes,
        };
        group.add(one);
        group
    }

    fn add(&mut self, one: &Groupable<'_>) {
        let ns = duration(self.grouping, one.values);
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        if ns > self.longest_ns() {
            (self.subject, self.stack) = (*one.subject, one.stack);
        }
        for (at, (cell, value)) in self.values.iter_mut().zip(one.values).enumerate() {
            match (cell, value) {
                (Value::Ns(longest), Value::Ns(ns)) | (Value::Us(longest), Value::Us(ns))
                    if at == self.grouping.duration =>
                {
                    *longest = (*longest).max(*ns);
                }
                (cell, value) if cell != value => *cell = Value::None,
                _ => {}
            }
        }
        for (details, known) in self.grouping.commonest().iter().zip(&mut self.commonest) {
            let values = details.indexes().map(|index| one.values.get(index).cloned().unwrap_or(Value::None)).collect();
            self.bytes += known.add(values, 1);
        }
        if self.names.len() >= MAX_NAMES && !self.names.contains_key(&one.subject.comm) {
            self.unnamed += 1;
            return;
        }
        let name = self.names.entry(one.subject.comm).or_insert_with(|| {
            self.bytes += 2 * size_of::<(Comm, FloodName)>();
            FloodName::default()
        });
        name.count += 1;
        if let Err(at) = name.tids.binary_search(&one.subject.tid) {
            if name.tids.len() < MAX_TIDS {
                name.tids.insert(at, one.subject.tid);
                self.bytes += 2 * size_of::<i32>();
            } else {
                name.is_crowd = true;
            }
        }
    }

    /// The values for its line: those that all have in common, and the commonest ones of some details. `named` gives
    /// values their names, by which they are compared.
    pub fn told_values(&self, mut named: impl FnMut(&[Value]) -> Vec<Value>) -> Vec<Value> {
        let mut told = named(&self.values);
        for (details, known) in self.grouping.commonest().iter().zip(&self.commonest).filter(|_| self.count > 1) {
            let mut by_name = CommonestValues::default();
            for (values, count) in &known.0 {
                by_name.add(named(values), *count);
            }
            let Some((values, count)) = by_name.into_commonest().filter(|(_, count)| *count > 1) else { continue };
            for (index, value) in details.indexes().zip(values) {
                told[index] = value;
            }
            if count < self.count {
                told[details.times] = Value::Unsigned(count);
            }
        }
        told
    }

    pub fn longest_ns(&self) -> u64 {
        duration(self.grouping, &self.values)
    }

    /// Whether the occurrences are still going on: then their durations add up to no total.
    pub fn goes_on(&self) -> bool {
        matches!(self.values.get(self.grouping.goes_on), Some(Value::Bool(true)))
    }

    /// Whether the occurrences are held because they seldom matter.
    pub fn is_folded(&self) -> bool {
        let folded = self.grouping.folding.and_then(|folding| self.values.get(folding.folded));
        matches!(folded, Some(Value::Bool(true)))
    }

    /// Number of tasks. None: too many to keep apart.
    pub fn tasks(&self) -> Option<usize> {
        if self.unnamed > 0 || self.names.values().any(|name| name.is_crowd) {
            return None;
        }
        let mut tids: Vec<i32> = self.names.values().flat_map(|name| &name.tids).copied().collect();
        tids.sort_unstable();
        tids.dedup();
        Some(tids.len())
    }

    /// The `most` most frequent comms, and the number of occurrences of other comms.
    pub fn names(&self, most: usize) -> (Vec<(Comm, &FloodName)>, u64) {
        let mut names: Vec<(Comm, &FloodName)> = self.names.iter().map(|(comm, name)| (*comm, name)).collect();
        names.sort_unstable_by_key(|(comm, name)| (Reverse(name.count), *comm));
        names.truncate(most);
        let named: u64 = names.iter().map(|(_, name)| name.count).sum();
        (names, self.count - named)
    }
}

fn duration(grouping: &Grouping, values: &[Value]) -> u64 {
    if let Some(Value::Ns(ns) | Value::Us(ns)) = values.get(grouping.duration) { *ns } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Detail, GroupBy, OccurrenceSchema};
    use crate::symbol::stacks::key::FrameKey;

    const MS: u64 = 1_000_000;

    struct HeldWait {
        state: &'static str,
        ns: u64,
        waker: u64,
        wchan: Value,
    }

    static WAITS: OccurrenceSchema<HeldWait> = OccurrenceSchema::<HeldWait>::new(
        &[
            Detail::new("state", |wait| Value::Word(wait.state)),
            Detail::new("duration_ns", |wait| Value::Ns(wait.ns)),
            Detail::new("goes_on", |_| Value::Bool(false)),
            Detail::new("waker", |wait| Value::Unsigned(wait.waker)),
            Detail::new("wchan", |wait| wait.wchan.clone()),
        ],
        &[],
    )
    .grouped(GroupBy {
        noun: "wait",
        same: &["state", "goes_on", "wchan"],
        place: "wchan",
        duration: "duration_ns",
        goes_on: "goes_on",
    });

    fn subject(time: u64, tid: i32, comm: &str) -> Subject {
        Subject { time, cpu: 0, pid: tid, tid, comm: Comm::new(comm.as_bytes()) }
    }

    fn wait(state: &'static str, ns: u64, waker: u64) -> HeldWait {
        HeldWait { state, ns, waker, wchan: Value::None }
    }

    fn values(wait: &HeldWait) -> Vec<Value> {
        WAITS.values(wait).collect()
    }

    fn stack(addr: u64) -> StackKey {
        StackKey::Frames([FrameKey::Kernel(addr)].into())
    }

    fn hold(flood: &mut Flood, now: u64, subject: &Subject, wait: &HeldWait, stack_key: StackKey) -> bool {
        let (layout, values) = (WAITS.layout(), &values(wait)[..]);
        let grouping = layout.grouping.as_ref().unwrap();
        flood.hold(now, Groupable { view: 0, subject, layout, grouping, values, stack: None }, stack_key)
    }

    #[test]
    fn a_few_occurrences_a_second_have_lines_of_their_own() {
        let mut flood = Flood::default();
        for n in 0..MAX_SINGLE as u64 {
            assert!(!flood.is_on(n * MS, 1), "{n}");
            flood.record_arrival(n * MS, 2);
        }
        assert!(flood.is_on(999 * MS, 1));
        assert!(!flood.is_on(1000 * MS, 1) && flood.is_on(1000 * MS, 2), "the first came a second ago");
        assert!(!flood.is_on(1018 * MS, MAX_SINGLE - 1) && !flood.is_on(1019 * MS, MAX_SINGLE));
        assert!(flood.is_on(1019 * MS, MAX_SINGLE + 1), "many at once");
        flood.record_arrival(1019 * MS, MAX_SINGLE_LINES as u32 - 1);
        assert!(!flood.is_on(1020 * MS, 1));
        flood.record_arrival(1020 * MS, 1);
        assert!(flood.is_on(1020 * MS, 1), "long stacks");
        assert!(!flood.is_on(3000 * MS, 1) && flood.due_at().is_none());
        hold(&mut flood, 3000 * MS, &subject(1, 1, "a"), &wait("S", 1, 1), stack(1));
        assert!(flood.is_on(9000 * MS, 1), "it stays behind what came before it");
    }

    /// Whatever the arrival times, no occurrence waits for longer than a second, and groups are taken once a second at
    /// most.
    #[test]
    fn no_occurrence_is_held_for_more_than_a_second() {
        let (mut flood, mut random, mut now) = (Flood::default(), 12345_u64, 0);
        let mut takings: Vec<u64> = Vec::new();
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let next = now + (random >> 33) % (300 * MS);
            if let Some(due) = flood.due_at().filter(|due| *due <= next) {
                assert!(flood.held_since.is_some_and(|since| (GATHER_NS..=SECOND_NS).contains(&(due - since))));
                assert!(takings.last().is_none_or(|last| due - last >= SECOND_NS), "{due} behind {takings:?}");
                assert!(!flood.take(due).groups.is_empty());
                assert!(flood.due_at().is_none());
                takings.push(due);
            }
            now = next;
            hold(&mut flood, now, &subject(now, 1, "a"), &wait("S", 1, 1), stack(1));
        }
        assert!(takings.len() > 1000);
    }

    #[test]
    fn equal_occurrences_are_one_group() {
        let mut flood = Flood::default();
        let ones = [
            (3, "S", 5, 1, "a", stack(1)),
            (1, "S", 9, 2, "a", stack(1)),
            (2, "S", 7, 2, "b", stack(1)),
            (4, "D", 8, 1, "a", stack(1)),
            (5, "S", 4, 1, "a", stack(2)),
            (6, "S", 3, 1, "a", StackKey::Absent),
            (7, "S", 2, 1, "b", StackKey::Absent),
            (8, "S", 1, 3, "b", StackKey::Absent),
        ];
        let firsts: Vec<bool> = ones
            .into_iter()
            .map(|(time, state, ns, tid, comm, key)| {
                hold(&mut flood, 0, &subject(time, tid, comm), &wait(state, ns, tid as u64), key)
            })
            .collect();
        assert_eq!(firsts, [true, false, false, true, true, true, true, false]);
        for (tid, comm) in [(1, "a"), (2, "b")] {
            let wait = HeldWait { wchan: Value::Word("there"), ..wait("S", 0, 1) };
            assert_eq!(hold(&mut flood, 0, &subject(9, tid, comm), &wait, StackKey::Absent), tid == 1);
        }
        let held = flood.take(5);
        let brief = |group: &FloodGroup| {
            let names: Vec<String> =
                group.names(9).0.iter().map(|(comm, name)| format!("{comm:?} {}", name.count)).collect();
            let (longest, total, time) = (group.longest_ns(), group.total_ns, group.subject.time);
            format!("{} {longest} {total} at {time} of {:?}: {}", group.count, group.tasks(), names.join(" "))
        };
        let want = [
            "3 9 21 at 1 of Some(2): \"a\" 2 \"b\" 1",
            "1 8 8 at 4 of Some(1): \"a\" 1",
            "1 4 4 at 5 of Some(1): \"a\" 1",
            "1 3 3 at 6 of Some(1): \"a\" 1",
            "2 2 3 at 7 of Some(2): \"b\" 2",
            "2 0 0 at 9 of Some(2): \"a\" 1 \"b\" 1",
        ];
        assert_eq!(held.groups.iter().map(brief).collect::<Vec<_>>(), want);
        let common = [Value::Word("S"), Value::Ns(9), Value::Bool(false), Value::None, Value::None];
        assert_eq!(held.groups[0].values, common, "two tasks woke them");
        assert_eq!(held.groups[1].values, values(&wait("D", 8, 1)));
        assert!(held.rests.is_empty() && flood.take(6).groups.is_empty());
    }

    #[test]
    fn omitted_groups_are_counted() {
        let mut flood = Flood::default();
        for n in 0..100_u64 {
            let key = stack(n % 10);
            hold(&mut flood, 0, &subject(n, 1, "a"), &wait("S", n, 1), key);
        }
        let mut held = flood.take(1);
        held.choose(4, 100, |_| 1);
        assert_eq!(held.groups.iter().map(FloodGroup::longest_ns).collect::<Vec<_>>(), [99, 98, 97, 96]);
        let [rest] = &held.rests[..] else { panic!("{:?}", held.rests) };
        assert_eq!((rest.count, rest.groups, rest.longest_ns), (60, Some(6), 95));
    }

    #[test]
    fn many_short_waits_are_not_hidden_by_long_ones() {
        let held = || {
            let mut flood = Flood::default();
            for n in 0..10_000_u64 {
                let (ns, key) = if n < 50 { (100 + n, n) } else { (10 + n % 10, 1000 + n % 2) };
                hold(&mut flood, 0, &subject(n, 1, "a"), &wait("S", ns, 1), stack(key));
            }
            flood.take(1)
        };
        for (most, lines, want) in [
            (5, 100, vec![149, 148, 147, 19, 18]),
            (100, 4, vec![149, 148, 19, 18]),
            (1, 100, vec![149]),
            (100, 0, vec![]),
        ] {
            let mut held = held();
            held.choose(most, lines, |_| 1);
            assert_eq!(held.groups.iter().map(FloodGroup::longest_ns).collect::<Vec<_>>(), want);
            let counts = held.groups.iter().map(|group| group.count).chain(held.rests.iter().map(|rest| rest.count));
            assert_eq!(counts.sum::<u64>(), 10_000);
        }
        let mut held = held();
        held.choose(1000, 1000, |_| 1);
        assert!(held.groups.len() == 52 && held.rests.is_empty());
    }

    /// Whatever waits a task makes, memory is bounded, each wait is counted, and the longest waits have their groups.
    #[test]
    fn a_hostile_flood_takes_little_memory() {
        const COUNT: u64 = 30_000;
        let long: StackKey = StackKey::Frames((0..127).map(FrameKey::Kernel).collect());
        let text = |n: u64| Value::Text("x".repeat((n % 4096) as usize).into());
        let mut flood = Flood::default();
        for n in 0..COUNT {
            let of = subject(n, n as i32, &n.to_string());
            let ns = n.wrapping_mul(7919) % COUNT;
            let wchan = if n % 3 == 0 { Value::Unsigned(n) } else { text(n) };
            hold(
                &mut flood,
                0,
                &of,
                &HeldWait { wchan, ..wait("S", ns, n) },
                if n % 2 == 0 { long.clone() } else { stack(n) },
            );
            hold(&mut flood, 0, &of, &wait("D", 0, n), stack(0));
            assert!(flood.groups.len() <= MAX_GROUPS && flood.bytes <= MAX_BYTES);
            if n % 100 == 0 {
                assert_eq!(flood.bytes, flood.groups.values().map(|group| group.bytes).sum::<usize>());
            }
        }
        let held = flood.take(1);
        let longest: Vec<u64> = held.groups.iter().map(FloodGroup::longest_ns).take(20).collect();
        assert_eq!(longest, (COUNT - 20..COUNT).rev().collect::<Vec<_>>());
        let counted = held.groups.iter().map(|group| group.count).chain(held.rests.iter().map(|rest| rest.count));
        assert_eq!(counted.sum::<u64>(), 2 * COUNT);
        assert!(held.rests.iter().all(|rest| rest.groups.is_none()));
    }

    #[test]
    fn tasks_of_a_crowd_are_not_counted() {
        let mut flood = Flood::default();
        for tid in 0..MAX_TIDS as i32 + 5 {
            hold(&mut flood, 0, &subject(1, tid, "crowd"), &wait("S", 1, 1), stack(1));
        }
        for name in 0..MAX_NAMES + 5 {
            hold(&mut flood, 0, &subject(1, 7, &name.to_string()), &wait("S", 1, 1), stack(2));
        }
        let held = flood.take(1);
        assert_eq!(held.groups.iter().map(FloodGroup::tasks).collect::<Vec<_>>(), [None, None]);
        let of = |count: usize| held.groups.iter().find(|group| group.count == count as u64).unwrap().names(2);
        let (names, others) = of(MAX_TIDS + 5);
        assert!(others == 0 && names[0].1.is_crowd && names[0].1.tids.len() == MAX_TIDS);
        let (names, others) = of(MAX_NAMES + 5);
        assert_eq!((names.len(), others), (2, MAX_NAMES as u64 + 3));
    }

    struct ToldWait {
        waker: Option<(&'static str, i64)>,
        call: &'static str,
        still: bool,
    }

    static TOLD: OccurrenceSchema<ToldWait> = OccurrenceSchema::<ToldWait>::new(
        &[
            Detail::new("waker.comm", |wait| wait.waker.map_or(Value::None, |(comm, _)| Value::Word(comm))),
            Detail::new("waker.tid", |wait| wait.waker.map_or(Value::None, |(_, tid)| Value::Signed(tid))),
            Detail::text_only("waker.times", |_| Value::None),
            Detail::new("call", |wait| Value::Word(wait.call)),
            Detail::new("duration_ns", |_| Value::Ns(MS)),
            Detail::new("goes_on", |wait| Value::Bool(wait.still)),
            Detail::text_only("folded", |_| Value::Bool(true)),
            Detail::text_only("again", |_| Value::Bool(false)),
        ],
        &[],
    )
    .grouped(GroupBy {
        noun: "wait",
        same: &["goes_on", "folded"],
        place: "again",
        duration: "duration_ns",
        goes_on: "goes_on",
    })
    .telling_commonest(&["waker.comm", "waker.tid"], "waker.times")
    .folding("folded", "again", &["call"]);

    fn fold(flood: &mut Flood, now: u64, wait: &ToldWait) {
        let values: Vec<Value> = TOLD.values(wait).collect();
        let (layout, grouping) = (TOLD.layout(), TOLD.layout().grouping.as_ref().unwrap());
        let (subject, values) = (&subject(now, 7, "task"), &values[..]);
        flood.fold(now, Groupable { view: 0, subject, layout, grouping, values, stack: None }, StackKey::Absent);
    }

    #[test]
    fn the_commonest_values_are_told() {
        let told = |wakers: &[Option<(&'static str, i64)>]| {
            let mut flood = Flood::default();
            wakers
                .iter()
                .for_each(|waker| fold(&mut flood, 0, &ToldWait { waker: *waker, call: "futex", still: false }));
            flood.take(0).groups[0].told_values(<[Value]>::to_vec)[..3].to_vec()
        };
        let (a, b) = (|tid| Some(("a", tid)), Some(("b", 9)));
        assert_eq!(told(&[a(1), a(1)]), [Value::Word("a"), Value::Signed(1), Value::None]);
        assert_eq!(told(&[a(1), a(2)]), [Value::Word("a"), Value::None, Value::None]);
        assert_eq!(told(&[b, a(1), None, a(1), None, None]), [Value::Word("a"), Value::Signed(1), Value::Unsigned(2)]);
        assert_eq!(told(&[b, a(1), None]), [Value::None, Value::None, Value::None], "none is common");
        assert_eq!(told(&[b]), [Value::Word("b"), Value::Signed(9), Value::None]);
    }

    #[test]
    fn folded_occurrences_are_held_for_longer() {
        let mut flood = Flood::default();
        let wait = |call, still| ToldWait { waker: None, call, still };
        [wait("read", false), wait("read", false), wait("poll", false)].iter().for_each(|one| fold(&mut flood, 5, one));
        assert_eq!(flood.due_at(), Some(5 + FOLD_ENDED_NS));
        fold(&mut flood, 7, &wait("read", true));
        assert_eq!(flood.due_at(), Some(7 + FOLD_ONGOING_NS));
        let held = flood.take(9);
        let mut counts: Vec<u64> = held.groups.iter().map(|group| group.count).collect();
        counts.sort_unstable();
        assert!(held.are_folded() && counts == [1, 1, 2] && flood.due_at().is_none());
    }
}
