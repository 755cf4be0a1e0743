//! The occurrences of a run as lines, the newest last, of which the screen shows a few.

use std::collections::VecDeque;

/// Limit of the lines that are kept.
const MAX_LINES: usize = 10_000;
/// Limit of the bytes of all lines.
const MAX_BYTES: usize = 2 << 20;
/// Lines that one key scrolls.
const STEP: usize = 10;

#[derive(Debug, Default)]
pub struct Pane {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines added so far, including those that were dropped.
    pub count: u64,
    /// Number of lines below the ones that are shown.
    below: usize,
}

impl Pane {
    /// Adds lines of text. `holds`: the lines that are shown keep their place.
    pub fn add(&mut self, text: &[u8], holds: bool) {
        let holds = holds || self.below > 0;
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let line = String::from_utf8_lossy(line).into_owned();
            self.bytes += line.len();
            self.lines.push_back(line);
            self.count += 1;
            self.below += usize::from(holds);
            while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
                self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
            }
        }
        self.below = self.below.min(self.lines.len());
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines to show in `height`, and the number of lines below them.
    pub fn shown(&self, height: usize) -> (impl Iterator<Item = &str>, usize) {
        let len = self.lines.len();
        let below = self.below.min(len.saturating_sub(height));
        let end = len - below;
        (self.lines.range(end.saturating_sub(height)..end).map(String::as_str), below)
    }

    pub fn scroll_back(&mut self) {
        self.below = (self.below + STEP).min(self.lines.len().saturating_sub(1));
    }

    pub fn scroll_on(&mut self) {
        self.below = self.below.saturating_sub(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pane: &Pane, height: usize) -> (Vec<&str>, usize) {
        let (lines, below) = pane.shown(height);
        (lines.collect(), below)
    }

    #[test]
    fn the_newest_lines_are_last() {
        let mut pane = Pane::default();
        assert!(pane.is_empty() && shown(&pane, 5) == (vec![], 0));
        pane.add(b"one\ntwo\n", false);
        pane.add(b"three\n", false);
        assert_eq!(shown(&pane, 2), (vec!["two", "three"], 0));
        assert_eq!(shown(&pane, 9), (vec!["one", "two", "three"], 0));
        assert_eq!(shown(&pane, 0), (vec![], 0));
    }

    #[test]
    fn lines_stay_where_they_are_while_one_reads_them() {
        let mut pane = Pane::default();
        (0..30).for_each(|n| pane.add(format!("{n}\n").as_bytes(), false));
        pane.scroll_back();
        assert_eq!(shown(&pane, 2), (vec!["18", "19"], 10));
        pane.add(b"30\n", false);
        assert_eq!(shown(&pane, 2), (vec!["18", "19"], 11));
        (0..9).for_each(|_| pane.scroll_back());
        assert_eq!(shown(&pane, 3).0, ["0", "1", "2"]);
        (0..9).for_each(|_| pane.scroll_on());
        assert_eq!(shown(&pane, 1), (vec!["30"], 0));
        pane.add(b"31\n", true); // the screen is frozen
        assert_eq!(shown(&pane, 1), (vec!["30"], 1));
    }

    #[test]
    fn the_oldest_lines_are_forgotten() {
        let mut pane = Pane::default();
        pane.add(&b"x\n".repeat(MAX_LINES + 7), false);
        assert_eq!((pane.lines.len(), pane.count), (MAX_LINES, MAX_LINES as u64 + 7));
        pane.add(&[b'y'; MAX_BYTES], false);
        assert_eq!(pane.lines.len(), 1);
        pane.add(&[b'z'; MAX_BYTES + 1], false);
        assert!(pane.is_empty() && pane.bytes == 0);
    }
}
