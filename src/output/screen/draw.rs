//! Draws the model: a head line, the tabs, a spark line, the table, the pane of occurrences, and a line about losses.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use crate::output::screen::fit::{cut, fit};
use crate::output::screen::model::{Page, SPARK_NS, ScreenModel, ScreenRow, ScreenTable, ScreenTrust};
use crate::report::{Value, value_text};

/// The keys, for the help.
const HELP: [&str; 12] = [
    "q, Ctrl-C    end the run, with its last report",
    "Tab          next table; Shift-Tab: the one before",
    "s > <        order the rows by the next column, or by the one before",
    "1 to 9       order them by that column; 0: as the report has them",
    "r            order them the other way round",
    "/            show rows with a text only; Enter ends it, Esc clears it",
    "space        freeze, and go on",
    "[ ]          one interval back, one on",
    "Up Down      move through the rows; Home: to the first, End: to the last",
    "Left Right   move through the columns of numbers",
    "PgUp PgDn    move through the occurrences",
    "? h          this help; Ctrl-L draws the screen again",
];
/// Height of the screen below which a table has no pane of occurrences.
const ROOM_FOR_PANE: u16 = 12;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A part of the screen that is filled from its top, line by line.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    colours: bool,
}

impl Canvas<'_> {
    fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Takes `lines` lines from the top, or all that are left.
    fn take(&mut self, lines: usize) -> Rect {
        let height = self.area.height.min(u16::try_from(lines).unwrap_or(u16::MAX));
        let taken = Rect { height, ..self.area };
        self.area = Rect { y: self.area.y + height, height: self.area.height - height, ..self.area };
        taken
    }

    fn line(&mut self, text: &str, style: Style) {
        let area = self.take(1);
        self.text_at(area, text, style);
    }

    fn text_at(&mut self, area: Rect, text: &str, style: Style) {
        if area.height > 0 && area.width > 0 {
            let (text, _) = cut(text, usize::from(area.width));
            self.buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
        }
    }

    fn style(&self, colour: Color, plain: Modifier) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new().add_modifier(plain) }
    }

    fn below(&self, lines: u16) -> Rect {
        Rect { y: self.area.y + self.area.height - lines, height: lines, ..self.area }
    }
}

/// Draws the model in `buffer`, which is empty.
pub fn draw(model: &ScreenModel, colours: bool, buffer: &mut Buffer) {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, area, colours };
    let table = model.page().zip(model.table());
    let all = table.map_or_else(Vec::new, |(page, table)| model.rows(page, table));
    head(model, table.map(|(_, table)| table), &mut canvas);
    // At the bottom: the line about losses, and the newest note.
    let bottom = u16::from(canvas.height() > 1) + u16::from(canvas.height() > 7);
    let foot = canvas.below(bottom);
    canvas.area.height -= bottom;
    if model.pages.len() > 1 && canvas.height() > 2 {
        tabs(model, &mut canvas);
    }
    if model.shows_help {
        HELP.iter().for_each(|line| canvas.line(line, Style::new()));
    } else {
        if let Some((page, table)) = table.filter(|_| canvas.height() > 5) {
            spark_line(page, table, &mut canvas);
        }
        let pane_height = match table {
            _ if model.pane.is_empty() => 0,
            None => canvas.area.height,
            Some(_) if area.height < ROOM_FOR_PANE => 0,
            Some((_, table)) => {
                let unused = canvas.height().saturating_sub(all.len() + table.above.len() + 4);
                (canvas.area.height / 3).max(u16::try_from(unused).unwrap_or(0))
            }
        };
        let pane = canvas.below(pane_height);
        canvas.area.height -= pane_height;
        match table {
            Some((page, table)) => rows(&all, page, table, &mut canvas),
            None if pane_height == 0 => canvas.line("waiting for the first interval", Style::new()),
            None => {}
        }
        canvas.area = pane;
        occurrences(model, &mut canvas);
    }
    canvas.area = foot;
    trust(model, &mut canvas);
    if let Some(note) = model.notes.back() {
        let style = canvas.style(Color::Yellow, Modifier::empty());
        canvas.line(note, style);
    }
}

/// The head line: what is shown, and from which time.
fn head(model: &ScreenModel, table: Option<&ScreenTable>, canvas: &mut Canvas<'_>) {
    let name = model.page().map_or_else(|| model.views.join(", "), |page| model.page_name(page));
    let mut left = name;
    if let Some(table) = table {
        let (seconds, millis) = (table.span_ns / 1_000_000_000, table.span_ns / 1_000_000 % 1000);
        left = format!("{left}  {}  interval {}, {seconds}.{millis:03} s", table.wall, table.interval);
        if !table.title.is_empty() {
            left = format!("{left}: {}", table.title);
        }
    }
    let right = match (model.at_ns, table) {
        _ if model.is_typing => format!("/{}_", model.filter),
        (Some(_), Some(table)) => {
            let newest = model.page().and_then(|page| page.table(None)).map_or(0, |newest| newest.time_ns);
            let ago_ns = newest.saturating_sub(table.time_ns);
            let word = if model.is_past { "past" } else { "frozen" };
            let filter = if model.filter.is_empty() { String::new() } else { format!("/{}  ", model.filter) };
            format!("{filter}{word} -{}.{} s", ago_ns / 1_000_000_000, ago_ns / 100_000_000 % 10)
        }
        _ if !model.filter.is_empty() => format!("/{}", model.filter),
        _ => "? help".to_owned(),
    };
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let area = canvas.take(1);
    canvas.buffer.set_style(area, style);
    // The settings that the user has made are visible even on the narrowest screen.
    let (right, right_width) = cut(&right, canvas.width());
    let room = canvas.width().saturating_sub(right_width + 1);
    canvas.text_at(Rect { width: u16::try_from(room).unwrap_or(0), ..area }, &left, style);
    let from = area.width.saturating_sub(u16::try_from(right_width).unwrap_or(0));
    canvas.text_at(
        Rect { x: area.x + from, width: area.width - from, ..area },
        &right,
        style.add_modifier(Modifier::BOLD),
    );
}

fn tabs(model: &ScreenModel, canvas: &mut Canvas<'_>) {
    let line = canvas.take(1);
    let names: Vec<String> = model.pages.iter().map(|page| format!(" {} ", model.page_name(page))).collect();
    // The current tab is always visible.
    let mut first = 0;
    while first < model.current
        && names[first..=model.current].iter().map(|name| name.width()).sum::<usize>() > canvas.width()
    {
        first += 1;
    }
    let mut x = line.x;
    for (index, name) in names.iter().enumerate().skip(first) {
        let style = if index == model.current {
            Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        let room = line.right().saturating_sub(x);
        canvas.text_at(Rect { x, width: room, ..line }, name, style);
        x += room.min(u16::try_from(name.width()).unwrap_or(u16::MAX));
    }
}

/// The sums of the main column in the last minute.
fn spark_line(page: &Page, table: &ScreenTable, canvas: &mut Canvas<'_>) {
    let Some((heading, sum)) = &table.main else { return };
    let most = page.sparks(table).map(|(_, sum)| sum).max().unwrap_or(0);
    let label = format!("{heading} {}, 1 min up to {}: ", short(*sum), short(most));
    let width = canvas.width().saturating_sub(label.width()).min(60);
    if width == 0 {
        return;
    }
    // Values that share a bar show as their maximum, so that a short stall stays visible.
    let mut bars = vec![None; width];
    for (time_ns, sum) in page.sparks(table) {
        let age = table.time_ns - time_ns;
        let place = width - 1 - (age as usize / (SPARK_NS as usize / width).max(1)).min(width - 1);
        bars[place] = bars[place].max(Some(sum));
    }
    let bar = |sum: &Option<u64>| match *sum {
        None => ' ',
        Some(sum) => BARS[(u128::from(sum) * 7).div_ceil(u128::from(most.max(1))).min(7) as usize],
    };
    let line: String = bars.iter().map(bar).collect();
    let area = canvas.take(1);
    canvas.text_at(area, &label, Style::new());
    let from = area.width.min(u16::try_from(label.width()).unwrap_or(u16::MAX));
    let style = canvas.style(Color::Cyan, Modifier::empty());
    canvas.text_at(Rect { x: area.x + from, width: area.width - from, ..area }, line.trim_end(), style);
}

/// A number in at most a few characters.
fn short(number: u64) -> String {
    match number {
        0..=99_999 => number.to_string(),
        100_000..=99_999_999 => format!("{}k", number / 1000),
        100_000_000..=99_999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// The heading and the rows of the table, as many as there is room for.
fn rows(all: &[&ScreenRow], page: &Page, table: &ScreenTable, canvas: &mut Canvas<'_>) {
    if canvas.height() > 6 {
        table.above.iter().take(2).for_each(|line| canvas.line(line, Style::new()));
    }
    if all.is_empty() {
        let why = if table.rows.is_empty() { "nothing seen" } else { "no row has the text" };
        return canvas.line(why, Style::new());
    }
    if let Some(line) = table.below.as_ref().filter(|_| canvas.height() > 6) {
        let area = canvas.below(1);
        canvas.area.height -= 1;
        canvas.text_at(area, line, Style::new());
    }
    // The height without the heading and the line that counts omitted rows.
    let room = canvas.height().saturating_sub(1).max(1);
    let room = if all.len() <= room { room } else { room.saturating_sub(1) };
    let first = page.first_row.get().min(all.len() - room.min(all.len()));
    page.first_row.set(first);
    let shown = &all[first..all.len().min(first + room)];
    let marked = shown.iter().any(|row| row.verdict.mark().is_some());
    let mark_width = if marked { 3 } else { 0 };
    let widths: Vec<usize> = (table.columns.iter().enumerate())
        .map(|(index, column)| {
            let cells = shown.iter().filter_map(|row| row.cells.get(index)).map(|cell| cell.text.width());
            cells.max().unwrap_or(0).max(column.heading.width())
        })
        .collect();
    let favourite = page.sort.map(|sort| sort.column);
    let fitted = fit(&table.columns, &widths, favourite, page.first_column, canvas.width().saturating_sub(mark_width));
    if canvas.height() > 1 {
        let area = canvas.take(1);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heads: Vec<(&str, Style)> = table
            .columns
            .iter()
            .enumerate()
            .map(|(column, head)| {
                let is_sorted = favourite == Some(column);
                (&*head.heading, if is_sorted { bold.add_modifier(Modifier::UNDERLINED) } else { bold })
            })
            .collect();
        cells(area, mark_width, table, &fitted.shown, &heads, canvas);
    }
    for row in shown {
        let area = canvas.take(1);
        if let Some((mark, _)) = row.verdict.mark() {
            let style = canvas.style(Color::Yellow, Modifier::BOLD);
            canvas.text_at(area, mark, style);
        }
        let texts: Vec<(&str, Style)> = row.cells.iter().map(|cell| (&*cell.text, Style::new())).collect();
        cells(area, mark_width, table, &fitted.shown, &texts, canvas);
    }
    let left_out = left_out(fitted.left_out, all.len() - shown.len(), table.rows_left_out);
    if !left_out.is_empty() && canvas.height() > 0 {
        let style = canvas.style(Color::DarkGray, Modifier::DIM);
        canvas.line(&left_out, style);
    }
}

/// Draws cells side by side: names left-aligned, numbers right-aligned.
fn cells(
    area: Rect,
    mark_width: usize,
    table: &ScreenTable,
    shown: &[(usize, usize)],
    texts: &[(&str, Style)],
    canvas: &mut Canvas<'_>,
) {
    let mut x = mark_width;
    for &(column, width) in shown {
        let Some(&(text, style)) = texts.get(column) else { continue };
        let (text, used) = cut(text, width);
        let is_left = table.columns.get(column).is_some_and(|column| column.is_left);
        let from = x + if is_left { 0 } else { width - used };
        if let (Ok(from), Ok(used)) = (u16::try_from(from), u16::try_from(used)) {
            canvas.text_at(
                Rect { x: area.x + from, width: used.min(area.width.saturating_sub(from)), ..area },
                &text,
                style,
            );
        }
        x += width + 1;
    }
}

fn left_out(columns: usize, rows: usize, not_kept: usize) -> String {
    let many = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("+1 {what}")),
        _ => Some(format!("+{count} {what}s")),
    };
    let kept = (not_kept > 0).then(|| format!("+{not_kept} rows that were not kept"));
    let parts: Vec<String> = [many(columns, "column"), many(rows, "row"), kept].into_iter().flatten().collect();
    parts.join(", ")
}

/// The pane below the table.
fn occurrences(model: &ScreenModel, canvas: &mut Canvas<'_>) {
    if canvas.height() == 0 {
        return;
    }
    let (lines, below) = model.pane.shown(canvas.height() - 1);
    let more = if below > 0 { format!(", {below} below") } else { String::new() };
    let style = canvas.style(Color::DarkGray, Modifier::DIM);
    let width = canvas.width();
    canvas.line(&format!("── occurrences: {} lines{more} {}", model.pane.count, "─".repeat(width)), style);
    lines.for_each(|line| canvas.line(line, Style::new()));
}

/// The line about losses of the view that is shown: what was lost, and what is missing.
fn trust(model: &ScreenModel, canvas: &mut Canvas<'_>) {
    let view = model.page().map_or(0, |page| page.key.view);
    let whole = model.trust.get(view).copied().unwrap_or_default();
    if whole.intervals == 0 {
        return canvas.line("no interval yet", Style::new());
    }
    let ScreenTrust { samples, lost, discarded, coverage, verdict } = whole.newest;
    let (mark, meaning) = verdict.mark().map_or(("", verdict.word()), |(mark, meaning)| (mark.trim(), meaning));
    let mut line = format!("{mark}{}samples {samples}  lost {lost}", if mark.is_empty() { "" } else { " " });
    if whole.lost > lost {
        line = format!("{line} ({} in all)", whole.lost);
    }
    if whole.discarded > 0 {
        line = format!("{line}  discarded {discarded} ({} in all)", whole.discarded);
    }
    line = format!("{line}  coverage {} %", value_text::cell(&Value::Pct((coverage * 10_000.0) as u32)));
    if let Some(own) = model.own_cpu {
        line = format!("{line}  own CPU {} %", value_text::cell(&Value::Pct(own)));
    }
    line = format!("{line}  {meaning}");
    let is_bad = lost > 0 || verdict.mark().is_some();
    let style = if is_bad { canvas.style(Color::Red, Modifier::BOLD) } else { Style::new() };
    canvas.line(&line, style);
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod draw_tests;
