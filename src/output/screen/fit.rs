//! Which columns of a table fit in the width of the screen, and how wide each is.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::screen::model::ScreenColumn;

/// Width of a name column beside numbers, if there is no room to spare.
const NAME_WIDTH: usize = 24;

/// The columns that fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FittedColumns {
    /// The index and width of each column shown, in the order of the table.
    pub shown: Vec<(usize, usize)>,
    /// Columns that are left out.
    pub left_out: usize,
}

/// Chooses columns: names first, since a row without its name says nothing, then `favourite`, then the others in their
/// order, without the number columns that the user has scrolled past. `widths`: the width of the widest cell of each
/// column, heading included.
pub fn fit(
    columns: &[ScreenColumn],
    widths: &[usize],
    favourite: Option<usize>,
    passed_over: usize,
    room: usize,
) -> FittedColumns {
    let is_name = |at: &usize| columns.get(*at).is_some_and(|column| column.is_name);
    let names = (0..columns.len()).filter(is_name);
    let numbers = (0..columns.len()).filter(|at| !is_name(at) && favourite != Some(*at)).skip(passed_over);
    let candidates = names.chain(favourite.filter(|at| !is_name(at))).chain(numbers);
    let (mut shown, mut left): (Vec<(usize, usize)>, usize) = (Vec::new(), room);
    for at in candidates {
        let natural = widths.get(at).copied().unwrap_or(0);
        let width = if is_name(&at) { natural.min(NAME_WIDTH) } else { natural };
        let gap = usize::from(!shown.is_empty());
        if width + gap <= left {
            shown.push((at, width));
            left -= width + gap;
        } else if shown.is_empty() && left > 0 {
            shown.push((at, left)); // a part of the first column
            left = 0;
        }
    }
    // Long names get the remaining room, the first columns first.
    for (at, width) in &mut shown {
        let more = widths.get(*at).map_or(0, |natural| natural.saturating_sub(*width)).min(left);
        *width += more;
        left -= more;
    }
    shown.sort_unstable();
    FittedColumns { left_out: columns.len() - shown.len(), shown }
}

/// The text in at most `width` columns of the screen, with its width. An ellipsis replaces the rest.
pub fn cut(text: &str, width: usize) -> (String, usize) {
    let whole = text.width();
    if whole <= width {
        return (text.to_owned(), whole);
    }
    let (mut cut, mut used) = (String::new(), 0);
    for one in text.chars() {
        let more = one.width().unwrap_or(0);
        if used + more + 1 > width {
            break;
        }
        cut.push(one);
        used += more;
    }
    if width > 0 {
        cut.push('…');
        used += 1;
    }
    (cut, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(kinds: &str) -> Vec<ScreenColumn> {
        kinds
            .chars()
            .map(|kind| ScreenColumn { heading: kind.to_string(), is_name: kind == 'n', is_left: kind == 'n' })
            .collect()
    }

    fn fitted(kinds: &str, widths: &[usize], favourite: Option<usize>, passed_over: usize, room: usize) -> String {
        let fitted = fit(&columns(kinds), widths, favourite, passed_over, room);
        let used: usize = fitted.shown.iter().map(|(_, width)| width + 1).sum();
        assert!(used <= room + 1, "{fitted:?}");
        let shown: Vec<String> = fitted.shown.iter().map(|(at, width)| format!("{at}:{width}")).collect();
        format!("{} +{}", shown.join(" "), fitted.left_out)
    }

    #[test]
    fn the_best_columns_fit() {
        assert_eq!(fitted("##n", &[4, 5, 6], None, 0, 80), "0:4 1:5 2:6 +0");
        assert_eq!(fitted("##n", &[4, 5, 6], None, 0, 12), "0:4 2:6 +1");
        assert_eq!(fitted("##n", &[4, 5, 6], None, 0, 6), "2:6 +2");
        assert_eq!(fitted("##n", &[4, 5, 6], None, 0, 3), "2:3 +2", "cut");
        assert_eq!(fitted("##n", &[4, 5, 6], None, 0, 0), " +3");
        assert_eq!(fitted("", &[], None, 0, 80), " +0");
        assert_eq!(fitted("##n", &[4, 5, 6], Some(1), 0, 12), "1:5 2:6 +1", "the one that orders the rows");
        assert_eq!(fitted("###n", &[4, 5, 5, 6], None, 1, 14), "1:5 3:6 +2");
        assert_eq!(fitted("#n", &[4, 50], None, 0, 80), "0:4 1:50 +0", "a long name gets what is left");
        assert_eq!(fitted("#n", &[4, 50], None, 0, 40), "0:4 1:35 +0");
    }

    #[test]
    fn text_is_cut_by_its_width() {
        let cases = [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("木木", 4, "木木"),
            ("木木木", 4, "木…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ];
        for (text, width, want) in cases {
            assert_eq!(cut(text, width).0, want, "{text} in {width}");
            assert!(cut(text, width).1 <= width && cut(text, width).0.width() == cut(text, width).1);
        }
    }
}
