//! A flood of occurrences as few lines of text: equal ones become one line with their number, the longest first.
//!
//! Up to some lines a second each occurrence has its own, at once. What comes beyond is held for a second at most and put
//! together as the [`Grouping`] of its shape says. Nothing is forgotten: what has no line of its own is counted in that of
//! its group, and a group that has none in the last line.

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::output::stack_key::StackKey;
use crate::stats::value::{Grouping, Shape, Subject, Value};
use crate::symbol::StackId;
use crate::task::Comm;

const SECOND_NS: u64 = 1_000_000_000;
/// Occurrences within a second that have lines of their own.
const MOST_SINGLE: usize = 20;
/// And lines, with those of their stacks.
const MOST_SINGLE_LINES: u64 = 200;
/// What comes together seldom comes in one piece: so long the first of a flood waits for others.
const GATHER_NS: u64 = 200_000_000;
/// Groups held at most, and their bytes. The shorter half is only counted then.
const MOST_GROUPS: usize = 1024;
const MOST_BYTES: usize = 2 << 20;
/// Names counted apart in a group, and numbers of tasks of each.
const MOST_NAMES: usize = 32;
const MOST_TIDS: usize = 256;

/// What came within the last second, and what of it is held.
#[derive(Debug, Default)]
pub struct Flood {
    /// When occurrences came, and their lines: the last [`MOST_SINGLE`] at most.
    recent: VecDeque<(u64, u32)>,
    groups: FxHashMap<FloodKey, FloodGroup>,
    bytes: usize,
    rests: Vec<Rest>,
    held_since: Option<u64>,
    /// When groups were taken last.
    taken_at: Option<u64>,
}

/// What is equal in a group.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloodKey {
    /// By its address.
    shape: usize,
    same: Box<[Value]>,
    stack: StackKey,
    /// Without a stack the name is the best hint at the place.
    comm: Option<Comm>,
}

/// Occurrences that are one line.
#[derive(Debug)]
pub struct FloodGroup {
    pub shape: &'static Shape,
    pub grouping: &'static Grouping,
    /// Of the longest.
    pub subject: Subject,
    /// What they have in common, and the longest duration.
    pub values: Vec<Value>,
    pub stack: Option<StackId>,
    pub stack_key: StackKey,
    pub count: u64,
    pub total_ns: u64,
    names: FxHashMap<Comm, FloodName>,
    /// Occurrences of other names.
    unnamed: u64,
    bytes: usize,
}

/// A name in a group.
#[derive(Debug, Default)]
pub struct FloodName {
    pub count: u64,
    /// Sorted, the first [`MOST_TIDS`].
    pub tids: Vec<i32>,
    /// There are more.
    pub is_crowd: bool,
}

/// Groups without a line of their own.
#[derive(Debug)]
pub struct Rest {
    pub grouping: &'static Grouping,
    /// Occurrences.
    pub count: u64,
    /// None: too many to be told apart.
    pub groups: Option<u64>,
    pub longest_ns: u64,
}

/// What was held.
#[derive(Debug, Default)]
pub struct Held {
    /// The longest first.
    pub groups: Vec<FloodGroup>,
    pub rests: Vec<Rest>,
}

/// An occurrence that may be held.
#[derive(Clone, Copy, Debug)]
pub struct Groupable<'a> {
    pub subject: &'a Subject,
    pub shape: &'static Shape,
    pub grouping: &'static Grouping,
    pub values: &'a [Value],
    pub stack: Option<StackId>,
}

impl Flood {
    /// Whether the next one is to be held, when so many come at once.
    pub fn is_on(&mut self, now: u64, count: usize) -> bool {
        while self.recent.pop_front_if(|(came, _)| now.saturating_sub(*came) >= SECOND_NS).is_some() {}
        let lines: u64 = self.recent.iter().map(|(_, lines)| u64::from(*lines)).sum();
        self.is_holding() || self.recent.len() + count > MOST_SINGLE || lines >= MOST_SINGLE_LINES
    }

    /// An occurrence came that has, or would have, so many lines.
    pub fn came(&mut self, now: u64, lines: u32) {
        if self.recent.len() >= MOST_SINGLE {
            self.recent.pop_front();
        }
        self.recent.push_back((now, lines));
    }

    fn is_holding(&self) -> bool {
        self.held_since.is_some()
    }

    /// When what is held is to be printed.
    pub fn due_at(&self) -> Option<u64> {
        let since = self.held_since?;
        // A second behind the last ones, which came before: none is held for longer.
        let next = self.taken_at.map_or(0, |taken| taken.saturating_add(SECOND_NS));
        Some(next.min(since.saturating_add(SECOND_NS)).max(since.saturating_add(GATHER_NS)))
    }

    /// Holds one. True when it is the first of its group.
    pub fn hold(&mut self, now: u64, one: Groupable<'_>, stack_key: StackKey) -> bool {
        self.held_since.get_or_insert(now);
        let same = one.grouping.same.iter().map(|key| one.values.get(*key).cloned().unwrap_or(Value::None)).collect();
        let comm = (stack_key == StackKey::Absent).then_some(one.subject.comm);
        let key = FloodKey { shape: std::ptr::from_ref(one.shape).addr(), same, stack: stack_key, comm };
        if let Some(group) = self.groups.get_mut(&key) {
            let before = group.bytes;
            group.add(&one);
            self.bytes += group.bytes - before;
            return false;
        }
        let group = FloodGroup::new(&one, key.stack.clone());
        self.bytes += group.bytes;
        self.groups.insert(key, group);
        if self.groups.len() > MOST_GROUPS || self.bytes > MOST_BYTES {
            self.thin();
        }
        true
    }

    /// Makes room: the shorter ones are only counted.
    fn thin(&mut self) {
        let mut groups: Vec<(FloodKey, FloodGroup)> = self.groups.drain().collect();
        groups.sort_unstable_by_key(|(_, group)| Reverse(group.longest_ns()));
        self.bytes = 0;
        for (key, group) in groups {
            if self.groups.len() < MOST_GROUPS / 2 && self.bytes + group.bytes <= MOST_BYTES / 2 {
                self.bytes += group.bytes;
                self.groups.insert(key, group);
            } else {
                leave_out(&mut self.rests, &group).groups = None; // another one like it may come
            }
        }
    }

    /// Takes what is held, to be printed now.
    pub fn take(&mut self, now: u64) -> Held {
        if self.held_since.take().is_some() {
            self.taken_at = Some(now);
        }
        self.bytes = 0;
        let mut groups: Vec<FloodGroup> = std::mem::take(&mut self.groups).into_values().collect();
        groups.sort_unstable_by_key(|group| (Reverse(group.longest_ns()), group.subject.time, group.subject.tid));
        Held { groups, rests: std::mem::take(&mut self.rests) }
    }
}

impl Held {
    /// Counts those that are left, behind the ones that were printed.
    pub fn leave_out(&mut self, printed: usize) {
        for group in self.groups.drain(printed..) {
            leave_out(&mut self.rests, &group);
        }
    }
}

fn leave_out<'a>(rests: &'a mut Vec<Rest>, group: &FloodGroup) -> &'a mut Rest {
    let grouping = group.grouping;
    let at = rests.iter().position(|rest| std::ptr::eq(rest.grouping, grouping)).unwrap_or(rests.len());
    if at == rests.len() {
        rests.push(Rest { grouping, count: 0, groups: Some(0), longest_ns: 0 });
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
        let values = 2 * (size_of_val(one.values) + heap); // the key has some of them, too
        let bytes = size_of::<FloodKey>() + size_of::<FloodGroup>() + stack_key.bytes() + values;
        let mut group = FloodGroup {
            shape: one.shape,
            grouping: one.grouping,
            subject: *one.subject,
            values: one.values.to_vec(),
            stack: one.stack,
            stack_key,
            count: 0,
            total_ns: 0,
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
                (Value::Ns(longest), Value::Ns(ns)) if at == self.grouping.duration => *longest = (*longest).max(*ns),
                (cell, value) if cell != value => *cell = Value::None,
                _ => {}
            }
        }
        if self.names.len() >= MOST_NAMES && !self.names.contains_key(&one.subject.comm) {
            self.unnamed += 1;
            return;
        }
        let name = self.names.entry(one.subject.comm).or_insert_with(|| {
            self.bytes += 2 * size_of::<(Comm, FloodName)>();
            FloodName::default()
        });
        name.count += 1;
        if let Err(at) = name.tids.binary_search(&one.subject.tid) {
            if name.tids.len() < MOST_TIDS {
                name.tids.insert(at, one.subject.tid);
                self.bytes += 2 * size_of::<i32>();
            } else {
                name.is_crowd = true;
            }
        }
    }

    pub fn longest_ns(&self) -> u64 {
        duration(self.grouping, &self.values)
    }

    /// Whether they go on: their time is no sum.
    pub fn goes_on(&self) -> bool {
        matches!(self.values.get(self.grouping.goes_on), Some(Value::Bool(true)))
    }

    /// Of how many tasks they are. None: too many to be told apart.
    pub fn tasks(&self) -> Option<usize> {
        if self.unnamed > 0 || self.names.values().any(|name| name.is_crowd) {
            return None;
        }
        let mut tids: Vec<i32> = self.names.values().flat_map(|name| &name.tids).copied().collect();
        tids.sort_unstable();
        tids.dedup();
        Some(tids.len())
    }

    /// The `most` most frequent names, and how many occurrences are of others.
    pub fn names(&self, most: usize) -> (Vec<(Comm, &FloodName)>, u64) {
        let mut names: Vec<(Comm, &FloodName)> = self.names.iter().map(|(comm, name)| (*comm, name)).collect();
        names.sort_unstable_by_key(|(comm, name)| (Reverse(name.count), *comm));
        names.truncate(most);
        let named: u64 = names.iter().map(|(_, name)| name.count).sum();
        (names, self.count - named)
    }
}

fn duration(grouping: &Grouping, values: &[Value]) -> u64 {
    if let Some(Value::Ns(ns)) = values.get(grouping.duration) { *ns } else { 0 }
}
