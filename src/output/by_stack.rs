//! Tables of places: rows whose stacks have equal frames become one.
//!
//! Two processes that run one file have stacks of their own, and so has one before and after it has mapped something. For
//! a reader they are the same place. So are stacks that break off and agree in all that is known of them: behind that is
//! whatever lay where a frame pointer should have been, and hardly two are equal.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::escape::escape;
use crate::output::text;
use crate::report::{ByStack, Column, Join, Table, Value};
use crate::symbol::names::{Named, Names};
use crate::symbol::naming::GIVEN_UP;
use crate::symbol::quality::Quality;
use crate::symbol::{Frame, Frames, StackId};
use crate::task::Comm;

/// Names listed of one place.
const NAMES: usize = 2;

/// What makes two frames equal: the place in a file rather than the address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Kernel(u64),
    /// A module by its address in memory, and the offset in its file.
    File(usize, u64),
    Nowhere(u64),
    Cut,
}

/// The rows that become one have equal ones.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Places(Vec<Place>),
    /// What is known of stacks that are broken.
    Broken(Vec<Known>),
    /// Frames that nobody knows, or that have no address.
    Stack(Option<StackId>),
    /// It has no stack to compare.
    Row(usize),
}

/// A frame of a broken stack that its caller did not make up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    Kernel(u64),
    /// A function, wherever in it, and its module.
    Function(Arc<str>, Option<Arc<str>>),
    /// Where the program was, if nobody knows in which function.
    Unnamed(Place),
    /// And if nobody knows that either.
    Nowhere(&'static str),
}

/// The rows by place, sorted.
pub fn join(rows: &[Vec<Value>], by: &ByStack, stacks: &Frames, names: &mut Names) -> Vec<Vec<Value>> {
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    for (index, row) in rows.iter().enumerate() {
        let key = stack_of(row).map_or(Key::Row(index), |id| key(id, stacks));
        groups.entry(key).or_insert_with(|| Group::new(row, index)).add(row, by.joins);
    }
    let groups = join_broken(sorted(groups), by, stacks, names);
    groups.into_iter().map(|group| group.row(by.joins)).collect()
}

/// The greatest first: they have their names before time is up.
fn sorted(groups: FxHashMap<Key, Group>) -> Vec<(Key, Group)> {
    let weight = |group: &Group, column: usize| group.cells.get(column).map_or(0, number);
    let mut groups: Vec<(Key, Group)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| (Reverse((weight(group, 0), weight(group, 1))), group.first));
    groups
}

/// Groups of stacks that are broken and have the same known frames become one.
fn join_broken(groups: Vec<(Key, Group)>, by: &ByStack, stacks: &Frames, names: &mut Names) -> Vec<Group> {
    let mut joined: FxHashMap<Key, Group> = FxHashMap::default();
    for (key, group) in groups {
        let frames = stack_of(&group.cells).flatten().and_then(|id| stacks.get(id));
        let known = frames.and_then(|frames| known(frames, names));
        let key = known.map_or(key, Key::Broken);
        match joined.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(group)),
            Entry::Occupied(mut entry) => entry.get_mut().join(group, by.joins),
        }
    }
    let broken = |(key, group): (Key, Group)| match key {
        Key::Broken(known) => group.broken(known.len()),
        _ => group,
    };
    sorted(joined).into_iter().map(broken).collect()
}

/// The stack in a row; None: it has none to show.
fn stack_of(row: &[Value]) -> Option<Option<StackId>> {
    row.iter().find_map(|value| if let Value::Stack(id) = value { Some(*id) } else { None })
}

/// What is known of a broken stack, innermost first: where the program was, and the functions that called it up to the first
/// frame that is in none. None: the stack is whole, or there was no time to find out.
fn known(frames: &[Frame], names: &mut Names) -> Option<Vec<Known>> {
    if !matches!(Quality::of(frames, names), Quality::Broken(_) | Quality::BrokenLibc(_)) {
        return None;
    }
    // A frame that would have shown that it is whole may be among those without a name for lack of time.
    let ends = frames.iter().rev().take(2).map(|frame| names.frame(frame));
    if ends.into_iter().any(|named| named.is_given_up()) {
        return None;
    }
    let mut known = Vec::new();
    let mut is_innermost = true;
    for frame in frames {
        if let Frame::Kernel { addr, .. } = frame {
            known.push(Known::Kernel(*addr));
            continue;
        }
        let named = names.frame(frame);
        match (named.symbol, place(frame)) {
            _ if named.addr.is_none() => break,
            (Ok(symbol), _) => known.push(Known::Function(symbol, named.module)),
            (Err(GIVEN_UP), _) => return None,
            (Err(_), Some(place @ Place::File(..))) if is_innermost => known.push(Known::Unnamed(place)),
            (Err(reason), _) if is_innermost => known.push(Known::Nowhere(reason)),
            (Err(_), _) => break,
        }
        is_innermost = false;
    }
    Some(known)
}

fn place(frame: &Frame) -> Option<Place> {
    match frame {
        Frame::Kernel { addr, .. } => Some(Place::Kernel(*addr)),
        Frame::User { place: Ok((module, offset)), .. } => Some(Place::File(Arc::as_ptr(module) as usize, *offset)),
        Frame::User { addr, place: Err(_), .. } => Some(Place::Nowhere(*addr)),
        Frame::Named(_) => None,
        Frame::Truncated => Some(Place::Cut),
    }
}

fn key(id: Option<StackId>, stacks: &Frames) -> Key {
    let frames = id.and_then(|id| stacks.get(id));
    let places = frames.and_then(|frames| frames.iter().map(place).collect());
    places.map_or(Key::Stack(id), Key::Places)
}

/// Rows that are becoming one.
struct Group {
    first: usize,
    cells: Vec<Value>,
    names: FxHashMap<Comm, (u64, u64)>,
    rows: usize,
    /// Different ones, all broken.
    stacks: u64,
}

impl Group {
    fn new(row: &[Value], first: usize) -> Group {
        Group { first, cells: row.to_vec(), names: FxHashMap::default(), rows: 0, stacks: 1 }
    }

    fn add(&mut self, row: &[Value], joins: &[Join]) {
        self.rows += 1;
        let weight = |column: usize| row.get(column).map_or(0, number);
        for ((cell, value), join) in self.cells.iter_mut().zip(row).zip(joins) {
            if let (Join::Heaviest, Value::Comm(comm)) = (join, value) {
                let sums = self.names.entry(*comm).or_default();
                *sums = (sums.0.saturating_add(weight(0)), sums.1.saturating_add(weight(1)));
            }
            if self.rows > 1 && *value != Value::None {
                *cell = joined(*join, cell, value);
            }
        }
    }

    /// Takes in a group of another stack, of which no more is known.
    fn join(&mut self, other: Group, joins: &[Join]) {
        for ((cell, value), join) in self.cells.iter_mut().zip(&other.cells).zip(joins) {
            if *value != Value::None {
                *cell = joined(*join, cell, value);
            }
        }
        for (comm, more) in other.names {
            let sums = self.names.entry(comm).or_default();
            *sums = (sums.0.saturating_add(more.0), sums.1.saturating_add(more.1));
        }
        self.rows += other.rows;
        self.stacks += other.stacks;
        self.first = self.first.min(other.first);
    }

    /// Of several stacks that are broken only the first frames are known.
    fn broken(mut self, frames: usize) -> Group {
        let stacks = self.stacks;
        for cell in self.cells.iter_mut().filter(|_| stacks > 1) {
            if let Value::Stack(Some(id)) = *cell {
                *cell = Value::BrokenStacks { id, frames, stacks };
            }
        }
        self
    }

    fn row(self, joins: &[Join]) -> Vec<Value> {
        let mut names: Vec<(Comm, (u64, u64))> = self.names.into_iter().collect();
        names.sort_by_key(|(comm, weight)| (Reverse(*weight), comm.as_bytes().to_vec()));
        let mut words: Vec<String> = names.iter().take(NAMES).map(|(comm, _)| spelt(*comm)).collect();
        words.extend((names.len() > NAMES).then(|| format!("+{}", names.len() - NAMES)));
        let cell = |(cell, join): (Value, &Join)| match join {
            Join::Heaviest => names.first().map_or(cell, |(comm, _)| Value::Comm(*comm)),
            Join::Names => Value::Words(words.clone().into()),
            _ => cell,
        };
        self.cells.into_iter().zip(joins).map(cell).collect()
    }
}

fn spelt(comm: Comm) -> String {
    if comm.is_empty() { "<gone>".to_owned() } else { escape(comm.as_bytes()) }
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Unsigned(value) | Value::Ns(value) | Value::Age(value) => *value,
        _ => 0,
    }
}

fn joined(join: Join, one: &Value, other: &Value) -> Value {
    let (a, b) = (number(one), number(other));
    let result = match join {
        Join::Sum => a.saturating_add(b),
        Join::Greatest => a.max(b),
        Join::Least => a.min(b),
        Join::Heaviest | Join::Names | Join::Stack => return one.clone(),
    };
    match other {
        Value::Ns(_) => Value::Ns(result),
        Value::Age(_) => Value::Age(result),
        _ => Value::Unsigned(result),
    }
}

/// Appends the first rows, each with its frames, and what the others sum up to.
pub fn text(
    table: &Table,
    rows: &[Vec<Value>],
    by: &ByStack,
    name: impl FnMut(StackId) -> Vec<Named>,
    out: &mut Vec<u8>,
) {
    let columns = table.columns;
    by.lines.iter().for_each(|line| drop(writeln!(out, "{line}")));
    let (shown, others) = rows.split_at(by.most.min(rows.len()));
    if !shown.is_empty() {
        text::table(columns, shown, |row| table.verdict_of(row), name, out);
    }
    if others.is_empty() {
        return;
    }
    let sums = columns.iter().zip(by.joins).enumerate().filter(|(_, (column, join))| {
        **join == Join::Sum && !column.heading.is_empty() //
    });
    let sum = |(at, (column, _)): (usize, (&Column, &Join))| {
        let values = others.iter().filter_map(|row| row.get(at)).map(number);
        format!("{} {}", values.fold(0, u64::saturating_add), column.heading)
    };
    let _ = writeln!(out, "and {} more: {}", others.len(), sums.map(sum).collect::<Vec<_>>().join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::SymbolOptions;
    use crate::symbol::mappings::{Content, Module};
    use crate::symbol::perf_map_file::JIT_NO_MAP;
    use crate::symbol::spaces::NOT_MAPPED;

    static COLUMNS: [Column; 6] = [
        Column { key: "bytes", heading: "bytes" },
        Column { key: "allocs", heading: "objects" },
        Column { key: "oldest_ns", heading: "oldest" },
        Column { key: "comm", heading: "" },
        Column { key: "comms", heading: "comm" },
        Column { key: "stack", heading: "" },
    ];
    static JOINS: [Join; 6] = [Join::Sum, Join::Sum, Join::Greatest, Join::Heaviest, Join::Names, Join::Stack];

    fn row(bytes: u64, age: u64, comm: &str, stack: Value) -> Vec<Value> {
        let comm = Value::Comm(Comm::new(comm.as_bytes()));
        vec![Value::Unsigned(bytes), Value::Unsigned(1), Value::Age(age), comm, Value::None, stack]
    }

    fn by(most: usize) -> ByStack {
        ByStack { joins: &JOINS, most, lines: vec!["a line".to_owned()], doubt: None, discarded: None }
    }

    #[test]
    fn equal_frames_are_one_row() {
        let (mut interned, mut keys) = (crate::symbol::Stacks::new(1 << 20, 127), Default::default());
        let ids: Vec<StackId> =
            (1..=3).filter_map(|ip| interned.address(ip, false, Default::default(), 0, &mut keys)).collect();
        let frames = [(ids[0], 5), (ids[1], 5), (ids[2], 6)];
        let mut stacks = Frames::default();
        frames.into_iter().for_each(|(id, addr)| stacks.insert(id, [Frame::Kernel { addr, behind_call: false }]));
        let stack = |index: usize| Value::Stack(Some(ids[index]));
        let rows = [
            row(10, 5, "b", stack(0)),
            row(20, 3, "a", stack(1)),
            row(25, 1, "c", stack(2)),
            row(1, 1, "d", Value::Stack(None)),
            row(2, 1, "d", Value::Stack(None)),
        ];
        let joined = join(&rows, &by(9), &stacks, &mut nameless());
        let brief: Vec<(u64, u64, u64, Value, Value)> = joined
            .iter()
            .map(|row| (number(&row[0]), number(&row[1]), number(&row[2]), row[3].clone(), row[4].clone()))
            .collect();
        let comm = |comm: &str| Value::Comm(Comm::new(comm.as_bytes()));
        let words = |words: &[&str]| Value::Words(words.iter().map(|word| (*word).to_owned()).collect());
        let want = [
            (30, 2, 5, comm("a"), words(&["a", "b"])),
            (25, 1, 1, comm("c"), words(&["c"])),
            (3, 2, 1, comm("d"), words(&["d"])),
        ];
        assert_eq!(brief, want);
        let mut out = Vec::new();
        let table = Table { columns: &COLUMNS, ..Table::default() };
        text(&table, &joined, &by(1), |_| Vec::new(), &mut out);
        let want = "a line\nbytes objects oldest comm\n   30       2    5ns a b\nand 2 more: 28 bytes, 3 objects\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    fn nameless() -> Names {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        Names::new("/nonexistent", options)
    }

    #[test]
    fn broken_stacks_are_one_row_if_what_is_known_of_them_is_equal() {
        let (mut interned, mut keys) = (crate::symbol::Stacks::new(1 << 20, 127), Default::default());
        let module = |path: &str| Arc::new(Module::new(path, Content::Unnamed { reason: JIT_NO_MAP, map: None }));
        let (one, other) = (module("/one"), module("/other"));
        let user = |module: &Arc<Module>, offset: u64| Frame::User {
            addr: 7,
            behind_call: true,
            place: Ok((module.clone(), offset)),
        };
        let nowhere = |addr: u64| Frame::User { addr, behind_call: true, place: Err(NOT_MAPPED) };
        let kernel = |addr: u64| Frame::Kernel { addr, behind_call: false };
        let cases = [
            (10, vec![user(&one, 3), nowhere(20)]), // the first three are one
            (11, vec![user(&one, 3), nowhere(21), user(&other, 5)]),
            (12, vec![user(&one, 3)]),
            (1, vec![user(&one, 4), nowhere(20)]), // another place
            (2, vec![user(&other, 3), nowhere(20)]),
            (3, vec![kernel(1), user(&one, 3), nowhere(20)]), // these two are one
            (4, vec![kernel(1), user(&one, 3), nowhere(22)]),
            (5, vec![kernel(2), user(&one, 3), nowhere(20)]), // called by other places in the kernel
            (60, vec![kernel(1), kernel(2)]),                 // whole
            (61, vec![kernel(1), kernel(3)]),
            (40, vec![user(&one, 3), nowhere(20), Frame::Truncated]),
            (41, vec![user(&one, 3), nowhere(21), Frame::Truncated]),
        ];
        let mut stacks = Frames::default();
        let mut rows = Vec::new();
        for (n, (bytes, frames)) in cases.into_iter().enumerate() {
            let id = interned.address(n as u64 + 1, false, Default::default(), 0, &mut keys).unwrap();
            stacks.insert(id, frames);
            rows.push(row(bytes, bytes, "a", Value::Stack(Some(id))));
        }
        let joined = join(&rows, &by(99), &stacks, &mut nameless());
        let of_row = |row: &Vec<Value>| match row[5] {
            Value::BrokenStacks { frames, stacks, .. } => (number(&row[0]), number(&row[1]), frames, stacks),
            _ => (number(&row[0]), number(&row[1]), 0, 1),
        };
        let want = [
            (61, 1, 0, 1),
            (60, 1, 0, 1),
            (41, 1, 0, 1),
            (40, 1, 0, 1),
            (33, 3, 1, 3),
            (7, 2, 2, 2),
            (5, 1, 0, 1),
            (2, 1, 0, 1),
            (1, 1, 0, 1),
        ];
        assert_eq!(joined.iter().map(of_row).collect::<Vec<_>>(), want);
        assert_eq!(number(&joined[4][2]), 12, "the oldest of all");
        let sum = |rows: &[Vec<Value>]| rows.iter().map(|row| number(&row[0])).sum::<u64>();
        assert_eq!(sum(&joined), sum(&rows));
        let mut out = Vec::new();
        let table = Table { columns: &COLUMNS, ..Table::default() };
        let name = |id| nameless().stack(stacks.get(id).unwrap());
        text(&table, &joined[4..5], &by(1), name, &mut out);
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().skip(3).collect();
        let want = "    (3 broken stacks: what follows differs, and leads nowhere)";
        assert!(lines.len() == 2 && lines[0].contains(" one+0x4 (") && lines[1] == want, "{out}");
    }

    #[test]
    fn rows_without_stacks_stay_apart() {
        let names = ["a", "b", "a"];
        let rows: Vec<Vec<Value>> = names.iter().map(|name| row(7, 1, name, Value::None)).collect();
        let names = &mut nameless();
        assert_eq!(join(&rows, &by(9), &Frames::default(), names).len(), 3);
        assert!(join(&[], &by(9), &Frames::default(), names).is_empty());
    }
}
