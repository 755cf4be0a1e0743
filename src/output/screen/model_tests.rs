//! Tests of the model by its keys.

use super::*;

const NS: u64 = 1_000_000_000;

/// A table of two columns, a name and a number.
pub fn table(interval: u64, rows: &[(&str, i64)]) -> ScreenTable {
    let row = |(name, number): &(&str, i64)| ScreenRow {
        cells: Box::new([
            ScreenCell { text: (*name).into(), number: None },
            ScreenCell { text: number.to_string().into(), number: Some(*number) },
        ]),
        verdict: Verdict::Exact,
    };
    let column = |heading: &str, is_name| ScreenColumn { heading: heading.to_owned(), is_name, is_left: is_name };
    ScreenTable {
        interval,
        time_ns: interval * NS,
        span_ns: NS,
        wall: format!("10:00:{interval:02}"),
        columns: vec![column("comm", true), column("count", false)],
        rows: rows.iter().map(row).collect(),
        main: Some(("count".to_owned(), rows.iter().map(|(_, number)| *number as u64).sum())),
        ..ScreenTable::default()
    }
}

pub const PAGE: PageKey = PageKey { view: 0, table: "tasks" };

pub fn model(intervals: &[&[(&str, i64)]]) -> ScreenModel {
    let mut model = ScreenModel::new(vec!["task-state".to_owned(), "profile".to_owned()]);
    for (at, rows) in intervals.iter().enumerate() {
        model.add(PAGE, table(at as u64 + 1, rows));
    }
    model
}

fn press(model: &mut ScreenModel, keys: &str) {
    for key in keys.chars() {
        model.press(Key::Char(key));
    }
}

fn shown(model: &ScreenModel) -> String {
    let (page, table) = (model.page().unwrap(), model.table().unwrap());
    let names: Vec<&str> = model.rows(page, table).iter().map(|row| &*row.cells[0].text).collect();
    format!("{}: {}", table.interval, names.join(" "))
}

#[test]
fn keys_order_the_rows() {
    let mut model = model(&[&[("b", 5), ("c", 7), ("a", 6)]]);
    let cases = [
        ("", "1: b c a"),
        ("s", "1: a b c"),
        (">", "1: c a b"),
        ("r", "1: b a c"),
        ("<", "1: a b c"),
        ("<", "1: b c a"),
        ("<", "1: c a b"),
        ("s", "1: b c a"),
        ("1", "1: a b c"),
        ("2", "1: c a b"),
        ("9", "1: c a b"),
        ("0", "1: b c a"),
        ("r", "1: b c a"),
    ];
    for (keys, want) in cases {
        press(&mut model, keys);
        assert_eq!(shown(&model), want, "after {keys:?}");
    }
}

#[test]
fn cells_without_a_value_are_last() {
    let mut model = model(&[&[("b", 5), ("a", 6)]]);
    model.pages[0].history[0].rows[1].cells[1] = ScreenCell::default();
    press(&mut model, "2");
    assert_eq!(shown(&model), "1: b a");
}

#[test]
fn typing_filters() {
    let mut model = model(&[&[("nginx", 5), ("Java", 7), ("sh q", 6)]]);
    press(&mut model, "/jAv");
    assert_eq!((shown(&model), model.is_typing), ("1: Java".to_owned(), true));
    for _ in 0..4 {
        model.press(Key::Backspace);
    }
    press(&mut model, "h q"); // `q` is no command while the user types a filter
    assert_eq!((shown(&model), model.at_ns, model.shows_help), ("1: sh q".to_owned(), None, false));
    model.press(Key::Enter);
    assert!(!model.is_typing);
    model.press(Key::Esc);
    assert_eq!(shown(&model), "1: nginx Java sh q");
    press(&mut model, "/7");
    assert_eq!(shown(&model), "1: Java", "a number is text, too");
    press(&mut model, &"x".repeat(1000));
    assert_eq!(model.filter.chars().count(), MAX_FILTER);
    model.press(Key::Esc);
    assert_eq!((shown(&model), model.is_typing), ("1: nginx Java sh q".to_owned(), false));
}

#[test]
fn the_past_is_a_key_away() {
    let mut model = model(&[&[("a", 1)], &[("b", 2)], &[("c", 3)]]);
    let cases = [
        ("", "3: c"),
        ("[", "2: b"),
        ("[", "1: a"),
        ("[", "1: a"),
        ("]", "2: b"),
        ("]", "3: c"),
        ("]", "3: c"),
        ("[[ ", "3: c"),
    ];
    for (keys, want) in cases {
        press(&mut model, keys);
        assert_eq!(shown(&model), want, "after {keys:?}");
    }
    assert_eq!((model.at_ns, model.is_past), (None, false));
    press(&mut model, "[");
    model.add(PAGE, table(4, &[("d", 4)]));
    assert_eq!((shown(&model), model.is_past), ("2: b".to_owned(), true));
    press(&mut model, "]]");
    assert_eq!((shown(&model), model.at_ns), ("4: d".to_owned(), None));
}

#[test]
fn a_frozen_screen_stays() {
    let mut model = model(&[&[("a", 1)]]);
    press(&mut model, " ");
    model.add(PAGE, table(2, &[("b", 2)]));
    model.add_lines(b"x\n");
    assert_eq!((shown(&model), model.is_past, model.pane.shown(0).1), ("1: a".to_owned(), false, 1));
    press(&mut model, " ");
    assert_eq!(shown(&model), "2: b");
}

#[test]
fn tabs_turn_pages() {
    let mut model = model(&[&[("a", 1)]]);
    let profile = |table| PageKey { view: 1, table };
    model.add(profile("cpus"), table(1, &[("p", 1)]));
    let other = PageKey { view: 0, table: "calls" };
    model.add(other, table(1, &[("q", 1)]));
    let names: Vec<String> = model.pages.iter().map(|page| model.page_name(page)).collect();
    assert_eq!(names, ["task-state tasks", "task-state calls", "profile"]);
    let mut seen = Vec::new();
    for key in [Key::Tab, Key::Tab, Key::Tab, Key::BackTab] {
        model.press(key);
        seen.push(shown(&model));
    }
    assert_eq!(seen, ["1: q", "1: p", "1: a", "1: p"]);
    // A page that is added later does not become the current one.
    model.add(PageKey { view: 0, table: "late" }, table(1, &[("r", 1)]));
    assert_eq!(shown(&model), "1: p");
}

#[test]
fn a_table_with_more_names_replaces_the_one_before() {
    let mut model = model(&[&[("a", 1)], &[("", 2)]]);
    model.add(PAGE, table(2, &[("named", 2)]));
    assert_eq!((shown(&model), model.pages[0].history.len()), ("2: named".to_owned(), 2));
    assert_eq!(model.pages[0].sparks, [(NS, 1), (2 * NS, 2)]);
}

#[test]
fn the_past_is_bounded() {
    let mut model = model(&[]);
    let long = "x".repeat(1000);
    let rows: Vec<(&str, i64)> = (0..1000).map(|n| (&*long, n)).collect();
    for interval in 1..=100 {
        model.add(PAGE, table(interval, &rows));
        model.add(PageKey { view: 1, table: "other" }, table(interval, &rows[..10]));
    }
    let bytes: usize = model.pages.iter().flat_map(|page| &page.history).map(|table| table.bytes).sum();
    assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&bytes), "{bytes}");
    assert_eq!(model.pages.iter().map(|page| page.bytes).sum::<usize>(), bytes);
    let oldest: Vec<u64> = model.pages.iter().map(|page| page.history[0].interval).collect();
    assert!(oldest[0].abs_diff(oldest[1]) <= 1 && oldest[0] > 80, "{oldest:?}: both go back equally far");
    // A table that is too large by itself loses its last rows.
    let many: Vec<(&str, i64)> = (0..10_000).map(|n| (&*long, n)).collect();
    model.add(PAGE, table(101, &many));
    let newest = model.table().unwrap();
    assert!(newest.bytes <= MAX_TABLE_BYTES + newest.bytes_without_rows());
    assert_eq!(newest.rows.len() + newest.rows_left_out, 10_000);
    // After a pause, all tables but the newest are too old.
    model.add(PAGE, table(1000, &[("a", 1)]));
    assert_eq!(model.pages.iter().map(|page| page.history.len()).collect::<Vec<_>>(), [1, 1]);
}

/// With very short intervals, most tables have no rows; the memory of their headings is bounded, too.
#[test]
fn tables_without_rows_are_bounded() {
    let mut model = model(&[]);
    let heading = "h".repeat(10_000);
    for interval in 1..=10_000 {
        let columns = vec![ScreenColumn { heading: heading.clone(), is_name: true, is_left: true }];
        model.add(PAGE, ScreenTable { time_ns: interval * 1_000_000, columns, ..table(interval, &[]) });
    }
    let kept = model.pages[0].history.len();
    assert!((MAX_BYTES / 12_000..=MAX_BYTES / 10_000).contains(&kept), "{kept}");
}

#[test]
fn other_keys_do_what_they_say() {
    let mut model = model(&[&[("a", 1), ("b", 2), ("c", 3)]]);
    assert_eq!(model.press(Key::Char('q')), KeyEffect::Quit);
    assert_eq!(model.press(Key::Redraw), KeyEffect::Redraw);
    press(&mut model, "?");
    assert!(model.shows_help);
    press(&mut model, "x");
    assert!(!model.shows_help);
    let moves = [(Key::End, 2), (Key::Down, 2), (Key::Up, 1), (Key::Char('k'), 0), (Key::Up, 0), (Key::Home, 0)];
    for (key, want) in moves {
        model.press(key);
        assert_eq!(model.pages[0].first_row.get(), want, "{key:?}");
    }
    for (key, want) in [(Key::Left, 0), (Key::Right, 1), (Key::Right, 1), (Key::Left, 0)] {
        model.press(key);
        assert_eq!(model.pages[0].first_column, want, "{key:?}");
    }
    // Without any table no key does harm.
    let mut empty = ScreenModel::new(Vec::new());
    let keys = [Key::Up, Key::Tab, Key::BackTab, Key::End, Key::PageUp, Key::PageDown, Key::Esc, Key::Right];
    for key in keys {
        empty.press(key);
    }
    press(&mut empty, " [] sr<>19/");
}
