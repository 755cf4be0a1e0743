//! Lists of priorities, `0-99,120`.

use std::ops::RangeInclusive;

/// Priorities as the kernel numbers them in its events: -1 deadline, 0 to 98 real-time, 100 to 139 nice -20 to 19.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityList(Vec<RangeInclusive<i32>>);

/// The lowest number that a priority has, and the highest.
const LEAST: i32 = -1;
const LIMIT: i32 = 139;

impl PriorityList {
    pub fn contains(&self, priority: i32) -> bool {
        self.0.iter().any(|range| range.contains(&priority))
    }
}

/// `120`, `0-99,120`.
pub fn priorities(text: &str) -> Result<PriorityList, String> {
    text.split(',').map(range).collect::<Result<_, _>>().map(PriorityList)
}

fn range(text: &str) -> Result<RangeInclusive<i32>, String> {
    // A `-` in front belongs to the number.
    let dash = text.char_indices().skip(1).find(|(_, c)| *c == '-');
    let (first, last) = dash.map_or((text, text), |(at, _)| (&text[..at], &text[at + 1..]));
    let (first, last) = (priority(first)?, priority(last)?);
    if first > last {
        return Err(format!("the range `{text}` runs backwards, write {last}-{first}"));
    }
    Ok(first..=last)
}

fn priority(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(priority) if (LEAST..=LIMIT).contains(&priority) && !text.starts_with('+') => Ok(priority),
        _ => Err(format!(
            "`{text}` is not a priority: 0-98 are real-time, 100-139 are nice -20 to 19, -1 is deadline, as in 0-98,120"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let cases: [(&str, Option<&[i32]>); 10] = [
            ("120", Some(&[120])),
            ("0-2,139", Some(&[0, 1, 2, 139])),
            ("-1", Some(&[-1])),
            ("-1-1", Some(&[-1, 0, 1])),
            ("2-0", None),
            ("", None),
            ("1,", None),
            ("140", None),
            ("-2", None),
            ("+5", None),
        ];
        for (text, want) in cases {
            let list = priorities(text).ok();
            let found = list.map(|list| (-5..200).filter(|&priority| list.contains(priority)).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), want, "{text:?}");
        }
    }
}
