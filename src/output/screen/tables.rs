//! Converts tables of a report to [`ScreenTable`]s.

use crate::escape::escape_into;
pub use crate::output::screen::model::{PageKey, ScreenTable};
use crate::output::screen::model::{ScreenCell, ScreenColumn, ScreenRow};
use crate::output::table::{TableLine, is_in_text};
use crate::output::text::frames;
use crate::report::{ColumnHead, ColumnKind, Unit, Value, Verdict, value_text};
use crate::symbol::naming::named_frame::NamedFrame;

/// Limit of the frames in a cell.
const MAX_FRAMES: usize = 8;

/// The columns and rows of a table. `frames`: the frames of a line's stack, innermost first; None if the line has no
/// stack.
pub fn table(
    columns: &[ColumnHead],
    lines: &[TableLine],
    mut frames: impl FnMut(&TableLine) -> Option<Vec<NamedFrame>>,
) -> ScreenTable {
    let shown: Vec<usize> = (0..columns.len()).filter(|&index| is_in_text(&columns[index], index, lines)).collect();
    let mut heads: Vec<ScreenColumn> = shown
        .iter()
        .map(|&index| {
            let is_left = lines.iter().any(|line| is_text(line, index));
            ScreenColumn {
                heading: columns[index].heading.to_string(),
                is_name: is_left || tells_apart(&columns[index]),
                is_left,
            }
        })
        .collect();
    let stacks: Vec<Option<String>> = lines.iter().map(|line| frames(line).map(|frames| stack(&frames))).collect();
    let has_stacks = stacks.iter().any(Option::is_some);
    if has_stacks {
        heads.push(ScreenColumn { heading: "stack".to_owned(), is_name: true, is_left: true });
    }
    let rows = lines.iter().zip(stacks).map(|(line, stack)| {
        let cells = shown.iter().map(|&index| line.cells.get(index).map_or_else(ScreenCell::default, cell));
        let stack = has_stacks.then(|| ScreenCell { text: stack.unwrap_or_default().into(), number: None });
        ScreenRow { cells: cells.chain(stack).collect(), verdict: line.verdict }
    });
    ScreenTable { columns: heads, rows: rows.collect(), main: main(columns, lines), ..ScreenTable::default() }
}

/// Lines of text as a table: the first line is its headline.
pub fn of_text(text: &[u8]) -> ScreenTable {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let headline = lines.next().unwrap_or_default().trim_start_matches(": ").to_owned();
    let row = |line: &str| ScreenRow {
        cells: Box::new([ScreenCell { text: line.into(), number: None }]),
        verdict: Verdict::Estimate,
    };
    ScreenTable {
        title: headline,
        columns: vec![ScreenColumn { heading: String::new(), is_name: true, is_left: true }],
        rows: lines.map(row).collect(),
        ..ScreenTable::default()
    }
}

fn cell(value: &Value) -> ScreenCell {
    ScreenCell { text: value_text::cell(value).into(), number: number(value) }
}

/// The number that a cell shows.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Unsigned(number)
        | Value::Ns(number)
        | Value::Us(number)
        | Value::Age(number)
        | Value::Address(number) => Some(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Signed(number) => Some(*number),
        Value::Pct(hundredths) => Some(i64::from(*hundredths)),
        _ => None,
    }
}

/// The cell is neither a number nor empty.
fn is_text(line: &TableLine, index: usize) -> bool {
    line.cells.get(index).is_some_and(|cell| *cell != Value::None && number(cell).is_none())
}

fn tells_apart(column: &ColumnHead) -> bool {
    matches!(column.kind, ColumnKind::Label | ColumnKind::Names | ColumnKind::Place | ColumnKind::Stack)
}

/// The names of the frames in one line.
fn stack(frames: &[NamedFrame]) -> String {
    let mut out = Vec::new();
    for (index, frame) in frames.iter().take(MAX_FRAMES).enumerate() {
        out.extend_from_slice(if index > 0 { b" < " } else { b"" });
        match &frame.symbol {
            Ok(symbol) => escape_into(symbol.as_bytes(), &mut out),
            Err(_) => out.extend_from_slice(frames::place(frame).as_bytes()),
        }
    }
    if frames.len() > MAX_FRAMES {
        out.extend_from_slice(" < …".as_bytes());
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The main column: the first one of durations that add up, otherwise the first one of numbers. Gives its heading and
/// the sum of its cells.
fn main(columns: &[ColumnHead], lines: &[TableLine]) -> Option<(String, u64)> {
    let counters = || columns.iter().enumerate().filter(|(_, column)| column.is_additive && column.in_text);
    let in_time = counters().find(|(_, column)| matches!(column.unit, Unit::Ns | Unit::Us | Unit::Age));
    let (index, column) = in_time.or_else(|| counters().next())?;
    let numbers = lines.iter().filter_map(|line| line.cells.get(index).and_then(number));
    let sum = numbers.fold(0_u64, |sum, number| sum.saturating_add(u64::try_from(number).unwrap_or(0)));
    // In the unit that text shows.
    let is_share = lines.iter().any(|line| matches!(line.cells.get(index), Some(Value::Pct(_))));
    let sum = match column.unit {
        _ if is_share => sum / 100,
        Unit::Ns => sum / 1_000_000,
        Unit::Us => sum / 1000,
        _ => sum,
    };
    Some((column.heading.to_string(), sum))
}
