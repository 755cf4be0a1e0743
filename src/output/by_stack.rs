//! Tables of places: rows whose stacks have equal frames become one.
//!
//! Two processes that run one file have stacks of their own, and so has one before and after it has mapped something. For
//! a reader they are the same place.

use std::cmp::Reverse;
use std::io::Write;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::escape::escape;
use crate::output::text;
use crate::stats::value::{ByStack, Column, Join, Table, Value};
use crate::symbol::names::Named;
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
    /// Frames that nobody knows, or that have no address.
    Stack(Option<StackId>),
    /// It has no stack to compare.
    Row(usize),
}

/// The rows by place, sorted.
pub fn join(rows: &[Vec<Value>], by: &ByStack, stacks: &Frames) -> Vec<Vec<Value>> {
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    for (index, row) in rows.iter().enumerate() {
        let stack = row.iter().find_map(|value| if let Value::Stack(id) = value { Some(*id) } else { None });
        let key = stack.map_or(Key::Row(index), |id| key(id, stacks));
        groups.entry(key).or_insert_with(|| Group::new(row, index)).add(row, by.joins);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    let weight = |group: &Group, column: usize| group.cells.get(column).map_or(0, number);
    groups.sort_by_key(|group| (Reverse((weight(group, 0), weight(group, 1))), group.first));
    groups.into_iter().map(|group| group.row(by.joins)).collect()
}

fn key(id: Option<StackId>, stacks: &Frames) -> Key {
    let place = |frame: &Frame| match frame {
        Frame::Kernel { addr, .. } => Some(Place::Kernel(*addr)),
        Frame::User { place: Ok((module, offset)), .. } => Some(Place::File(Arc::as_ptr(module) as usize, *offset)),
        Frame::User { addr, place: Err(_), .. } => Some(Place::Nowhere(*addr)),
        Frame::Named(_) => None,
        Frame::Truncated => Some(Place::Cut),
    };
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
}

impl Group {
    fn new(row: &[Value], first: usize) -> Group {
        Group { first, cells: row.to_vec(), names: FxHashMap::default(), rows: 0 }
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
        let joined = join(&rows, &by(9), &stacks);
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

    #[test]
    fn rows_without_stacks_stay_apart() {
        let names = ["a", "b", "a"];
        let rows: Vec<Vec<Value>> = names.iter().map(|name| row(7, 1, name, Value::None)).collect();
        assert_eq!(join(&rows, &by(9), &Frames::default()).len(), 3);
        assert!(join(&[], &by(9), &Frames::default()).is_empty());
    }
}
