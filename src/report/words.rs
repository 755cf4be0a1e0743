//! A few different words of a row.

use std::sync::Arc;

use crate::escape::escape;
use crate::report::Value;

/// Words that are kept of one row.
const LIMIT: usize = 3;

/// Different words, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordSet {
    words: Vec<Arc<str>>,
    /// There were others, for which there was no room.
    are_more: bool,
}

impl WordSet {
    /// Adds a word, which may be any bytes.
    pub fn add(&mut self, word: &[u8]) {
        self.add_spelt(&escape(word).into());
    }

    fn add_spelt(&mut self, word: &Arc<str>) {
        match self.words.len() {
            _ if word.is_empty() || self.words.contains(word) => {}
            LIMIT.. => self.are_more = true,
            _ => self.words.push(word.clone()),
        }
    }

    pub fn merge(&mut self, other: &WordSet) {
        other.words.iter().for_each(|word| self.add_spelt(word));
        self.are_more |= other.are_more;
    }

    /// The words, and `...` if there are more.
    pub fn value(&self) -> Value {
        if self.words.is_empty() {
            return Value::None;
        }
        let words = self.words.iter().map(|word| word.to_string());
        Value::Words(words.chain(self.are_more.then(|| "...".to_owned())).collect())
    }

    pub fn heap_bytes(&self) -> usize {
        self.words.iter().map(|word| size_of_val(word) + word.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_different_words_are_kept() {
        let set = |words: &[&str]| {
            let mut set = WordSet::default();
            words.iter().for_each(|word| set.add(word.as_bytes()));
            set
        };
        let words = |set: &WordSet| match set.value() {
            Value::Words(words) => words.join(" "),
            value => format!("{value:?}"),
        };
        assert_eq!(words(&set(&[])), "None");
        assert_eq!(words(&set(&["", "a\x1b", "b", "a\x1b"])), "a\\x1b b");
        let mut all = set(&["a", "b"]);
        all.merge(&set(&["b", "c"]));
        assert_eq!(words(&all), "a b c");
        all.merge(&set(&["d"]));
        assert_eq!(words(&all), "a b c ...");
        let mut few = set(&["a"]);
        few.merge(&all);
        assert_eq!((words(&few), few.heap_bytes() > 3), ("a b c ...".to_owned(), true));
    }
}
