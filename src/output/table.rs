//! Tables as they are printed: rows in order, each with its cells, verdict and stack. Rows whose stacks have equal
//! frames are merged.
//!
//! Two processes that run the same file have different stack ids, and so has one process before and after it has mapped
//! something. For a reader these are the same place. So are broken stacks that agree in all known frames: the frames
//! behind these come from memory that was wrongly taken for frame pointers, and hardly two of them are equal.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::report::{ColumnHead, ColumnKind, RowSite, RowSums, Rows, Value, Verdict};
use crate::symbol::naming::name_cache::FunctionName;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::FrameNames;
use crate::symbol::quality::chain::CallchainQuality;
use crate::symbol::stacks::key::{FrameKey, StackKey};
use crate::symbol::unnamed::{GIVEN_UP, Unnamed};
use crate::symbol::{Frame, Frames, StackId};

/// The place of a row. Rows with equal keys are merged.
#[derive(Clone, Debug)]
pub struct RowPlace {
    key: PlaceKey,
    pub stack: RowStack,
    /// Broken stacks that are shown as one.
    pub broken: Option<BrokenStacks>,
}

impl PartialEq for RowPlace {
    fn eq(&self, other: &RowPlace) -> bool {
        self.key == other.key
    }
}

impl Eq for RowPlace {}

impl Hash for RowPlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl RowSite for RowPlace {
    fn heap_bytes(&self) -> usize {
        let key = match &self.key {
            PlaceKey::Nowhere => 0,
            PlaceKey::Whole(stack) => stack.bytes(),
            PlaceKey::Broken(known) => size_of_val(&known[..]),
        };
        // Names of functions do not count: they are shared, and no more than the functions of programs.
        key + if let RowStack::Kept(frames) = &self.stack { size_of_val(&frames[..]) } else { 0 }
    }

    fn improves(&self, other: &RowPlace) -> bool {
        match (&self.stack, &other.stack) {
            (RowStack::Kept(frames), RowStack::Kept(old)) => {
                old.iter().any(NamedFrame::is_given_up) && !frames.iter().any(NamedFrame::is_given_up)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PlaceKey {
    /// The table has no stacks.
    Nowhere,
    Whole(StackKey),
    /// The known frames of broken stacks.
    Broken(Arc<[KnownFrame]>),
}

/// The frames to show.
#[derive(Clone, Debug)]
pub enum RowStack {
    /// The table has no stacks.
    Nowhere,
    /// None: there was no stack, or it was not kept.
    Of(Option<StackId>),
    /// Frames of a stack that may have been forgotten since.
    Kept(Arc<[NamedFrame]>),
}

/// Broken stacks that differ only behind the first `frames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenStacks {
    pub frames: usize,
    pub stacks: u64,
}

/// A certain frame of a broken stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum KnownFrame {
    Kernel(u64),
    /// A function at any offset: it has a name, or its start is known.
    Function(FunctionName),
    /// The current instruction of the program, if its function is not known.
    Unnamed(FrameKey),
    /// The reason why the current instruction is not known.
    Nowhere(&'static str),
}

impl RowPlace {
    /// The place of a row in a table without stacks.
    pub fn nowhere() -> RowPlace {
        RowPlace { key: PlaceKey::Nowhere, stack: RowStack::Nowhere, broken: None }
    }

    fn of(id: Option<StackId>, stacks: &Frames) -> RowPlace {
        RowPlace { key: PlaceKey::Whole(StackKey::exact(id, stacks)), stack: RowStack::Of(id), broken: None }
    }

    /// The frames with their names. None: the table has no stacks.
    pub fn named(&self, mut name: impl FnMut(StackId) -> Vec<NamedFrame>) -> Option<Vec<NamedFrame>> {
        let mut frames = match &self.stack {
            RowStack::Nowhere => return None,
            RowStack::Of(id) => id.map_or_else(Vec::new, &mut name),
            RowStack::Kept(frames) => frames.to_vec(),
        };
        if let Some(broken) = self.broken {
            frames.truncate(broken.frames);
        }
        Some(frames)
    }

    /// The innermost `most` frames; empty: there was no stack.
    pub fn innermost(&self, most: usize, name: impl FnOnce(StackId) -> Vec<NamedFrame>) -> Vec<NamedFrame> {
        match &self.stack {
            RowStack::Nowhere | RowStack::Of(None) => Vec::new(),
            RowStack::Of(Some(id)) => name(*id).into_iter().take(most).collect(),
            RowStack::Kept(frames) => frames.iter().take(most).cloned().collect(),
        }
    }

    /// True in a table of stacks.
    pub fn is_somewhere(&self) -> bool {
        !matches!(self.stack, RowStack::Nowhere)
    }

    /// The same place with a copy of the frames, which remains when the stack is forgotten.
    pub fn kept(&self, name: impl FnMut(StackId) -> Vec<NamedFrame>) -> RowPlace {
        let stack = self.named(name).map_or(RowStack::Nowhere, |frames| RowStack::Kept(frames.into()));
        RowPlace { stack, ..self.clone() }
    }

    /// True when there was a stack.
    pub fn has_stack(&self) -> bool {
        match &self.stack {
            RowStack::Nowhere => false,
            RowStack::Of(id) => id.is_some(),
            RowStack::Kept(frames) => !frames.is_empty(),
        }
    }
}

/// Rows in no order, at most one per name and place.
pub struct PlacedRows {
    pub rows: Box<dyn Rows>,
    pub places: Vec<RowPlace>,
}

impl PlacedRows {
    /// Merges the rows of a report by place.
    pub fn new(mut rows: Box<dyn Rows>, stacks: &Frames, names: &mut FrameNames) -> PlacedRows {
        let has_stacks =
            rows.columns().iter().any(|column| matches!(column.kind, ColumnKind::Stack | ColumnKind::Place));
        if !has_stacks {
            let places = vec![RowPlace::nowhere(); rows.len()];
            return PlacedRows { rows, places };
        }
        let mut sums = RowSums::unbounded(&*rows);
        for index in 0..rows.len() {
            let id = rows.stack(index).flatten();
            sums.add(&mut *rows, index, RowPlace::of(id, stacks));
        }
        let order = sums.order(); // the greatest rows get names first, before the time for names is used up
        let (rows, places) = sums.into_parts();
        join_broken(PlacedRows { rows, places }, &order, stacks, names)
    }
}

/// Merges rows of broken stacks that have the same known frames.
fn join_broken(mut placed: PlacedRows, order: &[usize], stacks: &Frames, names: &mut FrameNames) -> PlacedRows {
    let mut sums = RowSums::unbounded(&*placed.rows);
    let mut counts: FxHashMap<usize, u64> = FxHashMap::default();
    for &index in order {
        let Some(place) = placed.places.get(index) else { continue };
        let id = if let RowStack::Of(id) = place.stack { id } else { None };
        let known = id.and_then(|id| known(id, stacks, names));
        let place = match known {
            Some(known) => RowPlace { key: PlaceKey::Broken(known.into()), ..place.clone() },
            None => place.clone(),
        };
        *counts.entry(sums.add(&mut *placed.rows, index, place)).or_default() += 1;
    }
    let (rows, mut places) = sums.into_parts();
    for (index, place) in places.iter_mut().enumerate() {
        let stacks = counts.get(&index).copied().unwrap_or(1);
        if let PlaceKey::Broken(known) = &place.key {
            place.broken = (stacks > 1).then_some(BrokenStacks { frames: known.len(), stacks });
        }
    }
    PlacedRows { rows, places }
}

/// The known frames of a broken stack, innermost first: the current instruction, and its callers up to the first frame
/// that is in no function. None: the stack is whole, or there was no time to look at it.
fn known(id: StackId, stacks: &Frames, names: &mut FrameNames) -> Option<Vec<KnownFrame>> {
    let frames = stacks.get(id)?;
    let part = stacks.user(id).map(|user| user.part).unwrap_or_default();
    let quality = CallchainQuality::of(frames, part, names);
    if !matches!(quality, CallchainQuality::Broken(_) | CallchainQuality::BrokenLibc(_)) {
        return None;
    }
    let mut known = Vec::new();
    let mut is_innermost = true;
    for frame in frames {
        if let Frame::Kernel { addr, .. } = frame {
            known.push(KnownFrame::Kernel(*addr));
            continue;
        }
        let named = names.frame(frame);
        match (&named.symbol, FrameKey::exact(frame)) {
            _ if named.addr.is_none() => break,
            (Ok(_) | Err(Unnamed { function: Some(_), .. }), _) => known.push(KnownFrame::Function(named.function())),
            (Err(Unnamed { reason: GIVEN_UP, .. }), _) => return None,
            (Err(_), key @ FrameKey::File(..)) if is_innermost => known.push(KnownFrame::Unnamed(key)),
            (Err(unnamed), _) if is_innermost => known.push(KnownFrame::Nowhere(unnamed.reason)),
            (Err(_), _) => break,
        }
        is_innermost = false;
    }
    Some(known)
}

/// A row of a table as it is printed.
pub struct TableLine {
    /// One cell per column.
    pub cells: Vec<Value>,
    pub verdict: Verdict,
    pub place: RowPlace,
    /// Number of rows that this row sums up, for which there was no room.
    pub others: Option<u64>,
}

impl TableLine {
    /// An exact row without a place.
    pub fn plain(cells: Vec<Value>) -> TableLine {
        TableLine { cells, verdict: Verdict::Exact, place: RowPlace::nowhere(), others: None }
    }
}

/// Lays out the rows of a report in their order.
pub fn lines(placed: &mut PlacedRows, verdict: Verdict, span_ns: u64) -> Vec<TableLine> {
    let PlacedRows { rows, places } = placed;
    let order = rows.order();
    let line = |index: usize| TableLine {
        cells: rows.cells(index, span_ns),
        verdict: verdict.max(rows.verdict(index)),
        place: places.get(index).cloned().unwrap_or_else(RowPlace::nowhere),
        others: None,
    };
    order.into_iter().map(line).collect()
}

/// Lays out the rows of sums in their order.
pub fn lines_of_sums(sums: &mut RowSums<RowPlace>, verdict: Verdict, span_ns: u64) -> Vec<TableLine> {
    sums.settle();
    let (columns, order) = (sums.rows().columns(), sums.order());
    let line = |index: usize| {
        let others = sums.others().filter(|others| others.index == index).map(|others| others.rows);
        let mut cells = sums.rows().cells(index, span_ns);
        let mut place = sums.site(index).cloned().unwrap_or_else(RowPlace::nowhere);
        if others.is_some() {
            for (cell, _) in cells.iter_mut().zip(&columns).filter(|(_, column)| column.kind == ColumnKind::Label) {
                *cell = if is_text(cell) { Value::Word("<others>") } else { Value::None };
            }
            place = RowPlace::nowhere();
        }
        TableLine { cells, verdict: verdict.max(sums.rows().verdict(index)), place, others }
    };
    order.into_iter().map(line).collect()
}

/// True for a cell of text. In the row of the others only such a cell becomes the word `<others>`: programs expect
/// numbers in all other cells.
fn is_text(cell: &Value) -> bool {
    matches!(cell, Value::Word(_) | Value::Comm(_) | Value::Text(_) | Value::Path(_))
}

/// The cells of the sum of the rows at `places`; no cells if there are no rows.
pub fn sum_of_rows(rows: &mut dyn Rows, places: &[usize], span_ns: u64) -> Vec<Value> {
    let Some((&first, others)) = places.split_first() else { return Vec::new() };
    let mut sum = rows.none();
    sum.push(rows, first);
    others.iter().for_each(|&index| sum.add(0, rows, index));
    sum.cells(0, span_ns)
}

/// The sums that text shows for `rest`, the lines of `all` that it leaves out: the additive columns of `sum`, the sum
/// of these lines. A share that is unknown in one of the lines is left out.
pub fn sums_of_rest<'a>(
    columns: &'a [ColumnHead],
    all: &'a [TableLine],
    rest: &'a [TableLine],
    sum: &'a [Value],
) -> impl Iterator<Item = (&'a Value, &'a str)> + 'a {
    let is_known = |index: usize, column: &ColumnHead| {
        column.kind == ColumnKind::Counter || rest.iter().all(|line| line.cells.get(index) != Some(&Value::None))
    };
    columns.iter().enumerate().zip(sum).filter_map(move |((index, column), cell)| {
        let is_told = column.is_additive && is_in_text(column, index, all) && is_known(index, column);
        is_told.then_some((cell, &*column.heading))
    })
}

/// Whether text shows a column.
pub fn is_in_text(column: &ColumnHead, index: usize, lines: &[TableLine]) -> bool {
    let says = |line: &TableLine| {
        !matches!(line.cells.get(index), None | Some(Value::None | Value::Unsigned(0) | Value::Pct(0) | Value::Us(0)))
    };
    column.in_text && column.kind != ColumnKind::Stack && (!column.if_any || lines.iter().any(says))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::text;
    use crate::report::{Book, BookEntry, Column, Schema, TaskNames as Tasks, TaskOfRow, TypedRows, Unit, value_text};
    use crate::symbol::elf::symbols::SymbolOptions;
    use crate::symbol::naming::fixture;
    use crate::symbol::spaces::module::{Content, Module};
    use crate::symbol::stacks::frame::StackCut;
    use crate::symbol::unnamed::{JIT_NO_MAP, NOT_MAPPED};
    use crate::task::Comm;

    fn number(value: &Value) -> u64 {
        match value {
            Value::Unsigned(value) | Value::Age(value) => *value,
            _ => 0,
        }
    }

    #[derive(Clone, Debug)]
    struct SiteRow {
        bytes: u64,
        allocs: u64,
        oldest_ns: Option<u64>,
        owners: Tasks,
        stack: Option<StackId>,
    }

    static PLACES: Schema<SiteRow> = Schema::<SiteRow>::new(
        "places",
        &[
            Column::<SiteRow>::counter("bytes", "bytes", |row| &mut row.bytes).in_unit(Unit::Bytes),
            Column::counter("allocs", "allocs", |row| &mut row.allocs),
            Column::<SiteRow>::greatest("oldest_ns", "oldest", |row| &mut row.oldest_ns).in_unit(Unit::Age),
            Column::names("comms", "comm", |row| &mut row.owners),
            Column::stack(|row| &mut row.stack),
        ],
    )
    .ordered(|one, other| (other.bytes, other.allocs).cmp(&(one.bytes, one.allocs)));

    fn row(bytes: u64, age: u64, comm: &str, stack: Option<StackId>) -> SiteRow {
        let task = TaskOfRow { pid: Some(1), comm: Comm::new(comm.as_bytes()), process: Comm::default() };
        let owners = Tasks::of(task, [bytes, 1]);
        SiteRow { bytes, allocs: 1, oldest_ns: Some(age), owners, stack }
    }

    fn nameless() -> FrameNames {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        FrameNames::new("/nonexistent", options)
    }

    fn placed(rows: Vec<SiteRow>, stacks: &Frames) -> PlacedRows {
        PlacedRows::new(Box::new(TypedRows::new(&PLACES, rows)), stacks, &mut nameless())
    }

    fn text_of(columns: &[ColumnHead], lines: &[TableLine], stacks: &Frames) -> String {
        let mut out = Vec::new();
        text::table(columns, lines, |id| nameless().stack(stacks.get(id).unwrap()), &mut Vec::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn ids(count: u64) -> Vec<StackId> {
        let (mut interned, mut keys) = (crate::symbol::Stacks::new(1 << 20, 127), Default::default());
        (1..=count).filter_map(|ip| interned.intern_address(ip, false, Default::default(), 0, &mut keys)).collect()
    }

    #[test]
    fn equal_frames_are_one_row() {
        let ids = ids(3);
        let mut stacks = Frames::default();
        for (id, addr) in [(ids[0], 5), (ids[1], 5), (ids[2], 6)] {
            stacks.insert(id, [Frame::Kernel { addr, behind_call: false }]);
        }
        let rows = vec![
            row(10, 5, "b", Some(ids[0])),
            row(20, 3, "a", Some(ids[1])),
            row(25, 1, "c", Some(ids[2])),
            row(1, 1, "d", None),
            row(2, 1, "d", None),
        ];
        let mut placed = placed(rows, &stacks);
        let columns = placed.rows.columns();
        let mut lines = lines(&mut placed, Verdict::Exact, 1);
        let brief = |line: &TableLine| -> Vec<Value> { line.cells[..4].to_vec() };
        let want = |bytes, allocs, age, words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            vec![Value::Unsigned(bytes), Value::Unsigned(allocs), Value::Age(age), Value::Words(words)]
        };
        let all = [want(30, 2, 5, &["a", "b"]), want(25, 1, 1, &["c"]), want(3, 2, 1, &["d"])];
        assert_eq!(lines.iter().map(brief).collect::<Vec<_>>(), all);
        let order = placed.rows.order();
        let sum = sum_of_rows(&mut *placed.rows, &order[1..], 1);
        let sums: Vec<_> = sums_of_rest(&columns, &lines, &lines[1..], &sum).collect();
        assert_eq!(sums, [(&Value::Unsigned(28), "bytes"), (&Value::Unsigned(3), "allocs")]);
        let shown = text_of(&columns, &lines.split_off(2), &stacks);
        assert_eq!(shown, "bytes allocs oldest comm\n    3      2    1ns d\n    (no stack)\n");
    }

    /// Rows that text leaves out have a share of the time together, even if each of them rounds to 0.
    #[test]
    fn the_rest_has_its_share() {
        #[derive(Clone, Debug)]
        struct ShareRow {
            ns: Option<u64>,
            samples: u64,
        }
        fn pct(row: &ShareRow, span_ns: u64) -> Value {
            row.ns.map_or(Value::None, |ns| Value::Pct((ns * 10_000 / span_ns) as u32))
        }
        static SHARES: Schema<ShareRow> = Schema::<ShareRow>::new(
            "shares",
            &[
                Column::<ShareRow>::derived("pct", "CPU %", pct).additive(),
                Column::derived("greatest", "samples at most", |row, _| Value::Unsigned(row.samples)),
                Column::counter("samples", "samples", |row| &mut row.samples),
                Column::<ShareRow>::known_counter("cpu_ns", "", |row| &mut row.ns).json_only(),
            ],
        );
        let rest = |rows: &[(Option<u64>, u64)]| {
            let rows = rows.iter().map(|&(ns, samples)| ShareRow { ns, samples }).collect();
            let mut placed =
                PlacedRows::new(Box::new(TypedRows::new(&SHARES, rows)), &Frames::default(), &mut nameless());
            let (columns, lines) = (placed.rows.columns(), lines(&mut placed, Verdict::Exact, 1_000_000));
            let order = placed.rows.order();
            let sum = sum_of_rows(&mut *placed.rows, &order[1..], 1_000_000);
            let sums = sums_of_rest(&columns, &lines, &lines[1..], &sum);
            sums.map(|(sum, heading)| format!("{} {heading}", value_text::cell(sum))).collect::<Vec<_>>()
        };
        let little = [(Some(90), 1); 1000];
        assert_eq!(rest(&little), ["9.0 CPU %", "999 samples"]);
        assert_eq!(rest(&[(Some(9), 9), (None, 2), (Some(25), 1)]), ["3 samples"]);
        assert!(rest(&little[..1]).is_empty());
    }

    /// Two intervals; the stacks of the first are forgotten before the second.
    #[test]
    fn places_add_up_over_intervals() {
        let ids = ids(2);
        let mut book: Book<RowPlace> = Book::default();
        for id in ids {
            let mut stacks = Frames::default();
            stacks.insert(id, [Frame::Kernel { addr: 5, behind_call: false }]);
            let mut placed = placed(vec![row(10, 5, "a", Some(id)), row(1, 1, "d", None)], &stacks);
            let name = |id| nameless().stack(stacks.get(id).unwrap());
            placed.places = placed.places.iter().map(|place| place.kept(name)).collect();
            let entry = BookEntry {
                owner: 0,
                title: "",
                verdict: Verdict::Exact,
                span_ns: 7,
                text_rows: None,
                in_text: true,
                is_quiet: false,
            };
            book.add(&mut *placed.rows, &placed.places, entry);
        }
        let [table] = &mut book.tables().collect::<Vec<_>>()[..] else { panic!("one table") };
        assert_eq!((table.span_ns, table.intervals), (14, 2));
        let columns = table.sums.rows().columns();
        let lines = lines_of_sums(&mut table.sums, Verdict::Exact, 14);
        let shown = text_of(&columns, &lines, &Frames::default());
        let want = "bytes allocs oldest comm\n   20      2    5ns a\n    0000000000000005 [kernel]";
        assert!(shown.starts_with(want) && shown.contains("    2      2    1ns d\n    (no stack)\n"), "{shown}");
    }

    #[test]
    fn broken_stacks_with_equal_known_frames_are_one_row() {
        let module = |path: &str| Arc::new(Module::new(path, Content::Unnamed { reason: JIT_NO_MAP, map: None }));
        let (one, other) = (module("/one"), module("/other"));
        let user = |module: &Arc<Module>, offset: u64| Frame::User {
            addr: 7,
            behind_call: true,
            guessed: false,
            place: Ok((module.clone(), offset)),
        };
        let nowhere = |addr: u64| Frame::User { addr, behind_call: true, guessed: false, place: Err(NOT_MAPPED) };
        let kernel = |addr: u64| Frame::Kernel { addr, behind_call: false };
        let cases = [
            (10, vec![user(&one, 3), nowhere(20)]), // the first three are merged
            (11, vec![user(&one, 3), nowhere(21), user(&other, 5)]),
            (12, vec![user(&one, 3)]),
            (1, vec![user(&one, 4), nowhere(20)]), // another place, not merged
            (2, vec![user(&other, 3), nowhere(20)]),
            (3, vec![kernel(1), user(&one, 3), nowhere(20)]), // merged with the next one
            (4, vec![kernel(1), user(&one, 3), nowhere(22)]),
            (5, vec![kernel(2), user(&one, 3), nowhere(20)]), // other kernel frames: not merged
            (60, vec![kernel(1), kernel(2)]),                 // a whole stack
            (61, vec![kernel(1), kernel(3)]),
            (40, vec![user(&one, 3), nowhere(20), Frame::Truncated(StackCut::DepthLimit)]),
            (41, vec![user(&one, 3), nowhere(21), Frame::Truncated(StackCut::DepthLimit)]),
        ];
        let mut stacks = Frames::default();
        let mut rows = Vec::new();
        let all: u64 = cases.iter().map(|(bytes, _)| bytes).sum();
        for ((bytes, frames), id) in cases.into_iter().zip(ids(12)) {
            stacks.insert(id, frames);
            rows.push(row(bytes, bytes, "a", Some(id)));
        }
        let mut placed = placed(rows, &stacks);
        let columns = placed.rows.columns();
        let lines = lines(&mut placed, Verdict::Exact, 1);
        let brief = |line: &TableLine| {
            let broken = line.place.broken.map_or((0, 1), |broken| (broken.frames, broken.stacks));
            (number(&line.cells[0]), number(&line.cells[1]), broken.0, broken.1)
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
        assert_eq!(lines.iter().map(brief).collect::<Vec<_>>(), want);
        assert_eq!(number(&lines[4].cells[2]), 12, "the oldest of all");
        assert_eq!(lines.iter().map(|line| number(&line.cells[0])).sum::<u64>(), all);
        let out = text_of(&columns, &lines[4..5], &stacks);
        let shown: Vec<&str> = out.lines().skip(2).collect();
        let want = "    (3 broken stacks: what follows differs, and leads nowhere)";
        assert!(shown.len() == 2 && shown[0].contains(" one+0x4 (") && shown[1] == want, "{out}");
    }

    #[test]
    fn functions_without_a_name_are_known_frames_of_broken_stacks() {
        let (file, [one, other]) = (fixture::stripped_file(), fixture::functions());
        let user =
            |offset: u64| Frame::User { addr: 7, behind_call: true, guessed: false, place: Ok((file.clone(), offset)) };
        let nowhere = |addr: u64| Frame::User { addr, behind_call: true, guessed: false, place: Err(NOT_MAPPED) };
        let cases = [
            (1, vec![user(one), user(other + 1), nowhere(20)]),
            (2, vec![user(one + 4), user(other + 2), nowhere(21), user(one)]),
            (8, vec![user(other), nowhere(20)]),
            (16, vec![user(one), user(one), nowhere(20)]),
        ];
        let mut stacks = Frames::default();
        let mut rows = Vec::new();
        for ((bytes, frames), id) in cases.into_iter().zip(ids(4)) {
            stacks.insert(id, frames);
            rows.push(row(bytes, bytes, "a", Some(id)));
        }
        let lines = lines(&mut placed(rows, &stacks), Verdict::Exact, 1);
        let brief = |line: &TableLine| (number(&line.cells[0]), line.place.broken);
        let merged = Some(BrokenStacks { frames: 2, stacks: 2 });
        assert_eq!(lines.iter().map(brief).collect::<Vec<_>>(), [(16, None), (8, None), (3, merged)]);
    }

    /// In the row of the others a numeric key is left out rather than replaced by a word.
    #[test]
    fn others_are_named_where_names_are() {
        static TASKS: Schema<(i32, u64)> = Schema::<(i32, u64)>::new(
            "tasks",
            &[
                Column::label("pid", "pid", |row| Value::Signed(row.0.into())),
                Column::label("comm", "comm", |_| Value::Comm(Comm::new(b"a"))),
                Column::counter("count", "count", |row| &mut row.1),
            ],
        );
        let mut rows = TypedRows::new(&TASKS, vec![(1, 5), (2, 6), (3, 7)]);
        let mut sums = RowSums::new(&rows, 1, usize::MAX);
        for index in 0..3 {
            sums.add(&mut rows, index, RowPlace::nowhere());
        }
        let lines = lines_of_sums(&mut sums, Verdict::Exact, 1);
        assert_eq!(lines[1].cells, [Value::None, Value::Word("<others>"), Value::Unsigned(13)]);
        assert_eq!(lines.iter().map(|line| line.others).collect::<Vec<_>>(), [None, Some(2)]);
    }
}
