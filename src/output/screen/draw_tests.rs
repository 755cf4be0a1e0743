//! Screens of several sizes as text.

use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::output::screen::keys::Key;
use crate::output::screen::model::model_tests::{PAGE, model, table};
use crate::output::screen::model::{ScreenCell, ScreenColumn};
use crate::report::Verdict;

fn screen(model: &ScreenModel, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, true, frame.buffer_mut())).unwrap();
    super::super::text_of(terminal.backend().buffer())
}

fn trusted(model: &mut ScreenModel, lost: u64, verdict: Verdict) {
    model.set_trust(0, ScreenTrust { samples: 1234, lost, discarded: 0, coverage: 0.5, verdict });
    model.own_cpu = Some(123);
}

#[test]
fn a_table_on_a_usual_terminal() {
    let mut model = model(&[&[("nginx", 1)], &[("nginx", 9)], &[("nginx", 700), ("木", 21)]]);
    trusted(&mut model, 0, Verdict::Exact);
    model.add_lines(b"10:00:01.5 waited 100 ms\n");
    let got = screen(&model, 80, 24);
    assert_eq!(got[0], format!("task-state  10:00:03  interval 3, 1.000 s{:>39}", "? help"));
    assert_eq!(got[1], format!("count 721, 1 min up to 721: {:>50}▂█", ""));
    let table = ["comm  count", "nginx   700", "木       21"];
    assert_eq!(got[2..5], table);
    let head = got.iter().position(|line| line.starts_with("── occurrences: 1 lines ──")).unwrap();
    assert_eq!(got[head + 1], "10:00:01.5 waited 100 ms");
    assert_eq!(got[22], "samples 1234  lost 0  coverage 50.0 %  own CPU 1.2 %  exact");
}

#[test]
fn what_does_not_fit_is_counted() {
    let rows: Vec<(&str, i64)> = (0..60).map(|n| ("a", n)).collect();
    let mut model = model(&[&rows]);
    let got = screen(&model, 80, 24);
    assert_eq!(got[21], "+42 rows", "{got:#?}");
    assert_eq!(screen(&model, 200, 50)[47], "+16 rows");
    model.press(Key::End);
    let got = screen(&model, 80, 24);
    assert_eq!((&*got[20], &*got[21]), ("a       59", "+42 rows"), "the last one is in sight");
    model.press(Key::Up);
    assert_eq!(screen(&model, 80, 24)[20], "a       58");
    // The same for columns.
    let mut wide = table(1, &[("a", 1)]);
    for n in 0..30 {
        wide.columns.push(ScreenColumn { heading: format!("column{n:02}"), is_name: false, is_left: false });
        let cells = wide.rows[0].cells.iter().cloned();
        wide.rows[0].cells = cells.chain([ScreenCell { text: n.to_string().into(), number: Some(n) }]).collect();
    }
    let mut model = model_of(wide);
    let got = screen(&model, 80, 24);
    assert!(got[2].starts_with("comm count column00 column01") && got[2].width() <= 80, "{got:#?}");
    assert_eq!(got[4], "+23 columns");
    for _ in 0..5 {
        model.press(Key::Right);
    }
    assert!(screen(&model, 80, 24)[2].starts_with("comm column04"));
    for _ in 0..3 {
        model.press(Key::Char('<'));
    }
    assert!(screen(&model, 80, 24)[2].contains("column27"), "the one that orders the rows");
}

fn model_of(table: ScreenTable) -> ScreenModel {
    let mut model = model(&[]);
    model.add(PAGE, table);
    model
}

#[test]
fn a_screen_of_any_size_is_drawn() {
    let rows: Vec<(&str, i64)> = (0..60).map(|n| ("木木木木木木", n)).collect();
    let mut model = model(&[&rows, &rows[..1]]);
    trusted(&mut model, 3, Verdict::LowerBound);
    model.add_lines(&b"a line of text\n".repeat(100));
    model.note("a note".to_owned());
    let empty = ScreenModel::new(vec!["x".to_owned()]);
    for (width, height) in [(20, 5), (1, 1), (2, 1), (1, 50), (200, 1), (3, 3), (80, 8), (80, 12), (500, 200)] {
        for keys in ["", " ", "[", "/x", "?"] {
            for key in keys.chars() {
                model.press(Key::Char(key));
            }
            assert_eq!(screen(&model, width, height).len(), usize::from(height));
            screen(&empty, width, height);
            model.press(Key::Esc);
        }
    }
    let got = screen(&super::super::model::model_tests::model(&[&rows]), 20, 5);
    assert!(got[0].starts_with("task-state"), "{got:#?}");
    assert!(got[1].starts_with("comm"), "{got:#?}");
}

#[test]
fn what_the_user_has_chosen_is_in_sight() {
    let mut model = model(&[&[("a", 1)], &[("b", 2)]]);
    let right = |model: &ScreenModel, want: &str| {
        let got = screen(model, 40, 10);
        assert!(got[0].ends_with(want), "{got:#?}");
    };
    model.press(Key::Char('['));
    right(&model, "past -1.0 s");
    model.press(Key::Char(']'));
    right(&model, "? help");
    model.press(Key::Char(' '));
    right(&model, "frozen -0.0 s");
    model.press(Key::Char(' '));
    for key in "/zz".chars() {
        model.press(Key::Char(key));
    }
    right(&model, "/zz_");
    assert!(screen(&model, 80, 24).concat().contains("no row has the text"));
    model.press(Key::Enter);
    right(&model, "/zz");
    model.press(Key::Char('?'));
    assert!(screen(&model, 80, 24).concat().contains("one interval back"));
}

#[test]
fn losses_and_marks_are_in_sight() {
    let mut one = table(1, &[("a", 1)]);
    one.rows[0].verdict = Verdict::LowerBound;
    let mut model = model_of(one);
    trusted(&mut model, 7, Verdict::LowerBound);
    trusted(&mut model, 2, Verdict::LowerBound);
    model.note("task-state: 2 lost".to_owned());
    let got = screen(&model, 120, 24);
    assert_eq!(got[2..4], ["   comm count", ">= a        1"]);
    let want = ">= samples 1234  lost 2 (9 in all)  coverage 50.0 %  own CPU 1.2 %  at least so much: records were lost or left out";
    assert_eq!(got[22], want);
    assert_eq!(got[23], "task-state: 2 lost");
}

#[test]
fn several_pages_have_tabs() {
    let mut model = model(&[&[("a", 1)]]);
    model.add(crate::output::screen::model::PageKey { view: 1, table: "cpus" }, table(1, &[("b", 2)]));
    assert_eq!(screen(&model, 80, 24)[1], " task-state  profile");
    model.press(Key::Tab);
    let got = screen(&model, 12, 10);
    assert_eq!(got[1], " profile", "the one that is shown");
}

#[test]
fn without_colours_there_are_none() {
    let mut model = model(&[&[("a", 1)]]);
    trusted(&mut model, 7, Verdict::LowerBound);
    model.note("a note".to_owned());
    model.add_lines(b"x\n");
    for (colours, want) in [(true, true), (false, false)] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(&model, colours, frame.buffer_mut())).unwrap();
        let has = terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(has, want);
    }
}
