//! Lines and tables in text.

pub mod call_text;
pub mod flood;
pub mod frames;
pub mod stack_numbers;

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use crate::digits::{push_blank_padded, push_signed, push_unsigned, push_zero_padded};
use crate::escape::{escape_into, is_plain};
use crate::output::event_text::EventText;
use crate::output::table::{BrokenStacks, TableLine, is_in_text};
use crate::output::text::flood::{FloodGroup, OmittedGroups};
use crate::output::text::stack_numbers::StackMention;
use crate::report::layout::LineStep;
use crate::report::value_text::{cell, push_seconds, push_value};
use crate::report::{ColumnHead, OccurrenceLayout, Subject, Value};
use crate::symbol::StackId;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::task::Comm;

/// Appends `comm tid flags [cpu]` of a traced event, the comm right-aligned as trace readers know it.
pub fn event_head(subject: &Subject, flags: [u8; 5], out: &mut Vec<u8>) {
    let comm = subject.comm.as_bytes();
    if comm.is_empty() || !is_plain(comm) {
        let start = out.len();
        push_comm(subject, out);
        pad_left(start, 16, out);
    } else {
        out.extend_from_slice(&BLANKS[..16 - comm.len()]); // 15 bytes at most
        out.extend_from_slice(comm);
    }
    match u64::try_from(subject.tid) {
        Ok(tid) => {
            out.push(b' ');
            push_blank_padded::<7>(tid, out);
        }
        Err(_) => drop(write!(out, " {:>7}", subject.tid)),
    }
    let [a, b, c, d, e] = flags;
    out.extend_from_slice(&[b' ', a, b, c, d, e, b' ', b'[']);
    push_zero_padded::<3>(u64::from(subject.cpu), out);
    out.extend_from_slice(b"] ");
}

const BLANKS: [u8; 16] = [b' '; 16];

fn push_comm(subject: &Subject, out: &mut Vec<u8>) {
    push_name(subject.comm, subject.tid, out);
}

fn push_name(comm: Comm, tid: i32, out: &mut Vec<u8>) {
    if comm.is_empty() {
        out.extend_from_slice(if tid < 0 { b"<exited>" } else { b"<gone>" });
    } else {
        escape_into(comm.as_bytes(), out);
    }
}

/// The five flag columns of the kernel's own trace output: irq state, resched, context, preempt count, migrate-disable
/// count.
pub fn latency_flags(event: &EventText, raw: &[u8]) -> [u8; 5] {
    // include/linux/trace_events.h, trace_print_lat_fmt in kernel/trace/trace_output.c
    let flags = event.flags.as_ref().and_then(|field| field.read_u64(raw).ok()).unwrap_or(0);
    let count = event.preempt_count.as_ref().and_then(|field| field.read_u64(raw).ok()).unwrap_or(0);
    let has = |bit: u64| flags & bit != 0;
    let irq = match (has(0x01), has(0x80)) {
        (true, true) => b'D',
        (true, false) => b'd',
        (false, true) => b'b',
        (false, false) => b'.',
    };
    let resched = match (has(0x04), has(0x20), has(0x02)) {
        (true, true, true) => b'B',
        (true, true, false) => b'N',
        (true, false, true) => b'b',
        (false, true, true) => b'L',
        (true, false, false) => b'n',
        (false, true, false) => b'p',
        (false, false, true) => b'l',
        (false, false, false) => b'.',
    };
    let context = match (has(0x40), has(0x08), has(0x10)) {
        (true, true, _) => b'Z',
        (true, false, _) => b'z',
        (false, true, true) => b'H',
        (false, true, false) => b'h',
        (false, false, true) => b's',
        (false, false, false) => b'.',
    };
    let digit = |nibble: u64| if nibble == 0 { b'.' } else { b"0123456789abcdef"[(nibble & 15) as usize] };
    [irq, resched, context, digit(count & 15), digit(count >> 4 & 15)]
}

/// Appends an occurrence as its layout has it.
pub fn occurrence(subject: &Subject, layout: &OccurrenceLayout, values: &[Value], out: &mut Vec<u8>) {
    line(layout, subject, &push_subject, values, out);
}

/// Appends a group of occurrences like a single one. `values` are the values that they have in common, with names.
pub fn group(group: &FloodGroup, values: &[Value], out: &mut Vec<u8>) {
    if group.count == 1 {
        occurrence(&group.subject, group.layout, values, out);
    } else {
        line(group.layout, &group.subject, &|_, out| push_members(group, out), values, out);
    }
}

/// Appends a line that counts the groups without a line.
pub fn rest(rest: &OmittedGroups, out: &mut Vec<u8>) {
    let many = |count: u64| if count == 1 { "" } else { "s" };
    let folded = if rest.are_folded { "idle " } else { "" };
    let _ = write!(out, "and {} more {folded}{}{}", rest.count, rest.grouping.noun, many(rest.count));
    let _ = match rest.groups {
        Some(groups) if groups < rest.count => write!(out, " in {groups} group{}", many(groups)),
        _ => Ok(()),
    };
    out.extend_from_slice(b", up to ");
    push_value(&Value::Ns(rest.longest_ns), out);
    out.extend_from_slice(b" ms\n");
}

/// Appends the number of occurrences, their tasks, and the total duration:
/// `longest of 133 in 30 tasks: nginx × 130 (7, 8, 9, +26), sh × 3; 2500.000 ms in all`.
fn push_members(group: &FloodGroup, out: &mut Vec<u8>) {
    const MAX_NAMES: usize = 3;
    const MAX_TIDS: usize = 3;
    let tasks = group.tasks();
    let _ = match tasks {
        Some(tasks) if tasks as u64 == group.count => write!(out, "longest of {tasks} tasks: "),
        Some(1) | None => write!(out, "longest of {}: ", group.count),
        Some(tasks) => write!(out, "longest of {} in {tasks} tasks: ", group.count),
    };
    let all = group.names(MAX_NAMES + 1);
    let (names, others) = if all.1 == 0 { all } else { group.names(MAX_NAMES) };
    for (index, (comm, name)) in names.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b", " } else { b"" });
        push_name(*comm, name.tids.first().copied().unwrap_or(-1), out);
        if name.count < group.count {
            let _ = write!(out, " × {}", name.count);
        }
        match &name.tids[..] {
            [tid] if name.count == group.count => drop(write!(out, " {tid}")),
            tids if index == 0 => {
                let shown = if tids.len() == MAX_TIDS + 1 { tids.len() } else { MAX_TIDS.min(tids.len()) };
                let list: Vec<String> = tids[..shown].iter().map(i32::to_string).collect();
                let _ = write!(out, " ({}", list.join(", "));
                let _ = match (name.is_crowd, tids.len() - shown) {
                    (true, _) => write!(out, ", ...)"),
                    (false, 0) => write!(out, ")"),
                    (false, more) => write!(out, ", +{more})"),
                };
            }
            _ => {}
        }
    }
    if others > 0 {
        let _ = write!(out, ", others × {others}");
    }
    if !group.goes_on() {
        out.extend_from_slice(b"; ");
        push_value(&Value::Ns(group.total_ns), out);
        out.extend_from_slice(b" ms in all");
    }
}

/// Appends the number of a line's stack, whose frames follow or stand above.
pub fn stack_mention(mention: StackMention, out: &mut Vec<u8>) {
    let _ = match mention {
        StackMention::Printed(number) => write!(out, ", stack {number}:"),
        StackMention::Above(number) => write!(out, ", stack {number} above"),
    };
}

fn push_subject(subject: &Subject, out: &mut Vec<u8>) {
    push_comm(subject, out);
    // The kernel gives -1 for a task that has lost its tid: it is exiting and about to leave its CPU for good.
    if subject.tid >= 0 {
        out.push(b' ');
        push_signed(i64::from(subject.tid), out);
    }
    out.extend_from_slice(b" [");
    push_zero_padded::<3>(u64::from(subject.cpu), out);
    out.push(b']');
}

type PushSubject<'a> = &'a dyn Fn(&Subject, &mut Vec<u8>);

fn line(
    layout: &OccurrenceLayout,
    subject: &Subject,
    push_subject: PushSubject<'_>,
    values: &[Value],
    out: &mut Vec<u8>,
) {
    let value = |index: usize| values.get(index).unwrap_or(&Value::None);
    let mut steps = layout.line().iter();
    while let Some(step) = steps.next() {
        match *step {
            LineStep::Text(text) => out.extend_from_slice(text.as_bytes()),
            LineStep::Value { index, width, in_seconds } => {
                let start = out.len();
                let push = if in_seconds { push_seconds } else { push_value };
                push(value(index), out);
                pad_left(start, width, out);
            }
            LineStep::Subject => push_subject(subject, out),
            LineStep::Cpu => push_unsigned(u64::from(subject.cpu), out),
            LineStep::SkipUnless { index, is_known, steps: many } => {
                if is_known == matches!(value(index), Value::None | Value::Bool(false) | Value::Pct(0)) {
                    steps = steps.as_slice().get(many..).unwrap_or_default().iter();
                }
            }
        }
    }
}

/// Right-aligns the text from `start` on.
fn pad_left(start: usize, width: usize, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let text = &out[start..];
    let len = if is_plain(text) { text.len() } else { String::from_utf8_lossy(text).width() };
    let blanks = width.saturating_sub(len);
    out.resize(out.len() + blanks, b' ');
    out[start..].rotate_right(blanks);
}

/// Appends a table: headings, then rows, every column as wide as its widest cell. Names are left-aligned. The frames of
/// a row stand below it. A row that is not exact has a mark in front, which is explained below the table unless the
/// tables above have `explained` it.
pub fn table(
    columns: &[ColumnHead],
    lines: &[TableLine],
    mut name: impl FnMut(StackId) -> Vec<NamedFrame>,
    explained: &mut Vec<&'static str>,
    out: &mut Vec<u8>,
) {
    let shown: Vec<usize> = (0..columns.len()).filter(|&index| is_in_text(&columns[index], index, lines)).collect();
    let texts = |line: &TableLine| -> Vec<String> {
        shown.iter().map(|&index| line.cells.get(index).map_or_else(String::new, cell)).collect()
    };
    let headings: Vec<String> = shown.iter().map(|&index| columns[index].heading.to_string()).collect();
    let cells: Vec<Vec<String>> = lines.iter().map(texts).collect();
    let layout = TableLayout::of(&shown, &headings, &cells, lines);
    layout.push_row("", &headings, out);
    let mut marks: Vec<(&'static str, &str)> = Vec::new();
    for (texts, line) in cells.iter().zip(lines) {
        let mark = line.verdict.mark();
        layout.push_row(mark.map_or("", |(mark, _)| mark), texts, out);
        marks.extend(mark.filter(|mark| !marks.contains(mark)));
        push_below(columns, line, out);
        let Some(frames) = line.place.named(&mut name) else { continue };
        if !line.place.has_stack() {
            out.extend_from_slice(b"    (no stack)\n");
        }
        frames::stack(&frames, out);
        if let Some(BrokenStacks { stacks, .. }) = line.place.broken {
            let _ = writeln!(out, "    ({stacks} broken stacks: what follows differs, and leads nowhere)");
        }
    }
    marks.retain(|(mark, _)| !explained.contains(mark));
    for (mark, meaning) in marks {
        let _ = writeln!(out, "{mark} {meaning}");
        explained.push(mark);
    }
}

/// Appends the cells that stand below their row.
fn push_below(columns: &[ColumnHead], line: &TableLine, out: &mut Vec<u8>) {
    for (column, value) in columns.iter().zip(&line.cells).filter(|(column, _)| column.is_below) {
        let text = cell(value);
        if !text.is_empty() {
            let _ = writeln!(out, "    {}: {text}", column.heading);
        }
    }
}

/// Where the cells of a table stand.
struct TableLayout {
    /// Some rows have a mark in front.
    is_marked: bool,
    /// The width of each column, and whether its cells are names.
    columns: Vec<(usize, bool)>,
}

impl TableLayout {
    fn of(shown: &[usize], headings: &[String], cells: &[Vec<String>], lines: &[TableLine]) -> TableLayout {
        use Value::{Cell, Comm, Path, Phrase, Text, Word, Words};
        let is_name =
            |value: &Value| matches!(value, Word(_) | Phrase { .. } | Comm(_) | Text(_) | Path(_) | Words(_) | Cell(_));
        let column = |(place, &index): (usize, &usize)| {
            let widest = cells.iter().map(|row| row[place].width()).max().unwrap_or(0);
            let is_of_names = lines.iter().filter_map(|line| line.cells.get(index)).any(is_name);
            (widest.max(headings[place].len()), is_of_names)
        };
        let is_marked = lines.iter().any(|line| line.verdict.mark().is_some());
        TableLayout { is_marked, columns: shown.iter().enumerate().map(column).collect() }
    }

    fn push_row(&self, mark: &str, texts: &[String], out: &mut Vec<u8>) {
        let start = out.len();
        if self.is_marked {
            let _ = write!(out, "{mark:2} ");
        }
        for (index, (text, (width, is_name))) in texts.iter().zip(&self.columns).enumerate() {
            let gap = if index == 0 { "" } else { " " };
            // Some characters take two columns, marks above others none.
            let blanks = width.saturating_sub(text.width());
            let _ = if *is_name {
                write!(out, "{gap}{text}{:blanks$}", "")
            } else {
                write!(out, "{gap}{:blanks$}{text}", "")
            };
        }
        let end = start + out[start..].trim_ascii_end().len();
        out.truncate(end);
        out.push(b'\n');
    }
}

/// Appends rows of cells under headings.
pub fn plain_table(headings: &[&'static str], rows: Vec<Vec<Value>>, out: &mut Vec<u8>) {
    let columns: Vec<ColumnHead> = headings.iter().map(|heading| ColumnHead::plain(heading)).collect();
    let lines: Vec<TableLine> = rows.into_iter().map(TableLine::plain).collect();
    table(&columns, &lines, |_| Vec::new(), &mut Vec::new(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::text::flood::{Flood, Groupable};
    use crate::report::layout::{self, CPU, SUBJECT, detail, seconds, unless, when};
    use crate::report::{Detail, GroupBy, OccurrenceSchema, Verdict};
    use crate::symbol::stacks::key::StackKey;

    fn text(build: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        build(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_align() {
        let headings = ["comm", "count", "max ms"];
        let columns = headings.map(ColumnHead::plain);
        let rows = || {
            [
                vec![Value::Comm(Comm::new(b"nginx")), Value::Unsigned(7), Value::Ns(1_234_567)],
                vec![Value::Comm(Comm::new(b"a\x1b")), Value::Unsigned(123_456), Value::None],
            ]
        };
        let want = "comm   count max ms\nnginx      7 1.2345\na\\x1b 123456\n";
        assert_eq!(text(|out| plain_table(&headings, rows().into(), out)), want);
        let mut lines = rows().map(TableLine::plain);
        lines[1].verdict = Verdict::LowerBound;
        let want = "   comm   count max ms\n   nginx      7 1.2345\n>= a\\x1b 123456\n>= at least so much: records were lost or left out\n";
        assert_eq!(text(|out| table(&columns, &lines, |_| Vec::new(), &mut Vec::new(), out)), want);
        let mut explained = vec![">="];
        let below = text(|out| table(&columns, &lines, |_| Vec::new(), &mut explained, out));
        assert_eq!(below.lines().count(), 3, "a table above has explained the mark");
        let only_if = |index: usize| {
            let mut columns = columns.clone();
            columns[index].if_any = true;
            columns
        };
        lines.iter_mut().for_each(|line| (line.cells[1], line.verdict) = (Value::Unsigned(0), Verdict::Exact));
        let table_with =
            |columns: [ColumnHead; 3]| text(|out| table(&columns, &lines, |_| Vec::new(), &mut Vec::new(), out));
        assert_eq!(table_with(only_if(1)), "comm  max ms\nnginx 1.2345\na\\x1b\n");
        assert_eq!(table_with(only_if(2)), "comm  count max ms\nnginx     0 1.2345\na\\x1b     0\n");
    }

    #[test]
    fn wide_characters_do_not_shift_a_column() {
        let comm = |text: &str| Value::Comm(Comm::new(text.as_bytes()));
        let rows =
            [comm("進捗"), comm("e\u{301}te"), comm("abcde")].map(|comm| vec![comm, Value::Unsigned(7)]).to_vec();
        let want = "comm  count\n進捗      7\ne\u{301}te       7\nabcde     7\n";
        assert_eq!(text(|out| plain_table(&["comm", "count"], rows, out)), want);
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new("進捗".as_bytes()) };
        let head = text(|out| event_head(&subject, *b"d..1.", out));
        assert_eq!(head, "            進捗       8 d..1. [001] ");
    }

    #[test]
    fn schemas_lay_out_lines() {
        struct LineWait {
            state: &'static str,
            ns: u64,
            waker: Option<Comm>,
        }
        static WAITS: OccurrenceSchema<LineWait> = OccurrenceSchema::new(
            &[
                Detail::new("state", |wait| Value::Word(wait.state)),
                Detail::new("duration_ns", |wait| Value::Ns(wait.ns)),
                Detail::new("waker", |wait| wait.waker.map_or(Value::None, Value::Comm)),
            ],
            &[
                layout::text("waited "),
                detail("duration_ns").wide(9),
                layout::text(" ms in "),
                detail("state").wide(2),
                layout::text(" "),
                SUBJECT,
                when("waker", &[layout::text(", woken"), detail("waker").between(" by <", ">")]),
                unless("waker", &[layout::text(", still"), detail("waker").after(" by ")]),
                layout::text(", "),
                seconds("duration_ns"),
                layout::text(" on "),
                CPU,
            ],
        );
        let line = |subject: &Subject, wait: &LineWait| {
            text(|out| occurrence(subject, WAITS.layout(), &WAITS.values(wait).collect::<Vec<_>>(), out))
        };
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"nginx") };
        let wait = LineWait { state: "D", ns: 150_250_000, waker: Some(Comm::new(b"sh")) };
        assert_eq!(line(&subject, &wait), "waited   150.250 ms in  D nginx 8 [001], woken by <sh>, 0.150 on 1");
        let without_number = Subject { pid: -1, tid: -1, comm: Comm::default(), ..subject };
        assert_eq!(line(&without_number, &wait), "waited   150.250 ms in  D <exited> [001], woken by <sh>, 0.150 on 1");
        let wait = LineWait { state: "RD", ns: 0, waker: None };
        assert_eq!(line(&subject, &wait), "waited     0.000 ms in RD nginx 8 [001], still, 0.000 on 1");
    }

    #[test]
    fn groups_read_like_single_occurrences() {
        struct GroupWait {
            ms: u64,
            goes_on: bool,
            waker: u64,
        }
        static WAITS: OccurrenceSchema<GroupWait> = OccurrenceSchema::<GroupWait>::new(
            &[
                Detail::new("state", |_| Value::Word("D")),
                Detail::new("duration_ns", |wait| Value::Ns(wait.ms * 1_000_000)),
                Detail::new("goes_on", |wait| Value::Bool(wait.goes_on)),
                Detail::new("waker", |wait| Value::Unsigned(wait.waker)),
            ],
            &[
                detail("state").wide(2),
                layout::text(" "),
                detail("duration_ns").wide(8),
                layout::text(" ms  "),
                SUBJECT,
                when("goes_on", &[layout::text(" still waiting")]),
                detail("waker").after(", woken by "),
            ],
        )
        .grouped(GroupBy {
            noun: "wait",
            same: &["state", "goes_on"],
            place: "waker",
            duration: "duration_ns",
            goes_on: "goes_on",
        });
        let line = |ones: &[(i32, &str, u64, u64)], goes_on: bool| {
            let mut flood = Flood::default();
            for &(tid, comm, ms, waker) in ones {
                let subject = Subject { time: 0, cpu: 1, pid: tid, tid, comm: Comm::new(comm.as_bytes()) };
                let (layout, values) =
                    (WAITS.layout(), &WAITS.values(&GroupWait { ms, goes_on, waker }).collect::<Vec<_>>()[..]);
                let grouping = layout.grouping.as_ref().unwrap();
                let one = Groupable { view: 0, subject: &subject, layout, grouping, values, stack: None };
                flood.hold(0, one, StackKey::Unknown);
            }
            let held = flood.take(0);
            assert_eq!(held.groups.len(), 1);
            text(|out| group(&held.groups[0], &held.groups[0].values, out))
        };
        assert_eq!(line(&[(7, "dd", 5, 1)], true), " D    5.000 ms  dd 7 [001] still waiting, woken by 1");
        let two = [(7, "dd", 5, 1), (8, "dd", 6, 2)];
        assert_eq!(line(&two, true), " D    6.000 ms  longest of 2 tasks: dd (7, 8) still waiting");
        assert_eq!(line(&two, false), " D    6.000 ms  longest of 2 tasks: dd (7, 8); 11.000 ms in all");
        let again = [(7, "dd", 5, 1), (7, "dd", 6, 1), (7, "dd", 4, 1)];
        assert_eq!(line(&again, false), " D    6.000 ms  longest of 3: dd 7; 15.000 ms in all, woken by 1");
        let mut many: Vec<(i32, &str, u64, u64)> = (10..14).map(|tid| (tid, "dd", 1, 1)).collect();
        let want = " D    1.000 ms  longest of 4 tasks: dd (10, 11, 12, 13) still waiting, woken by 1";
        assert_eq!(line(&many, true), want);
        many.extend((14..20).map(|tid| (tid, "dd", 1, 1)));
        many.extend([(20, "cp", 2, 1), (21, "c\x1b", 2, 1), (22, "mv", 2, 1), (20, "cp", 1, 1)]);
        let want = " D    2.000 ms  longest of 14 in 13 tasks: dd × 10 (10, 11, 12, +7), cp × 2, c\\x1b × 1, mv × 1 \
                    still waiting, woken by 1";
        assert_eq!(line(&many, true), want);
        many.push((0, "rm", 1, 1));
        let want = " D    2.000 ms  longest of 15 in 14 tasks: dd × 10 (10, 11, 12, +7), cp × 2, c\\x1b × 1, others × 2 \
                    still waiting, woken by 1";
        assert_eq!(line(&many, true), want);
    }

    #[test]
    fn groups_without_a_line_are_counted() {
        static WAITS: OccurrenceSchema<u64> = OccurrenceSchema::<u64>::new(&[Detail::new("n", |n| Value::Ns(*n))], &[])
            .grouped(GroupBy { noun: "wait", same: &[], place: "n", duration: "n", goes_on: "n" });
        let grouping = WAITS.layout().grouping.as_ref().unwrap();
        let line = |count, groups| {
            text(|out| rest(&OmittedGroups { grouping, count, groups, longest_ns: 12_345_678, are_folded: false }, out))
        };
        assert_eq!(line(133, Some(40)), "and 133 more waits in 40 groups, up to 12.345 ms\n");
        assert_eq!(line(133, None), "and 133 more waits, up to 12.345 ms\n");
        assert_eq!(line(2, Some(2)), "and 2 more waits, up to 12.345 ms\n");
        assert_eq!(line(1, Some(1)), "and 1 more wait, up to 12.345 ms\n");
        assert_eq!(line(2, Some(1)), "and 2 more waits in 1 group, up to 12.345 ms\n");
    }
}
