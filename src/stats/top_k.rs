//! The greatest of many values, in memory for a few of them.

/// Keeps the `most` values with the greatest keys. Of equal keys the one that was offered first is greater.
#[derive(Clone, Debug)]
pub struct TopK<K, V> {
    most: usize,
    /// Up to twice `most` entries, so that sorting is rare.
    entries: Vec<(K, V)>,
    /// True: the first `most` entries are sorted, and the greatest of all that were offered.
    is_sorted: bool,
}

impl<K: Ord, V> TopK<K, V> {
    pub fn new(most: usize) -> TopK<K, V> {
        TopK { most, entries: Vec::new(), is_sorted: false }
    }

    /// The `most` greatest of `all`.
    pub fn of(most: usize, all: impl IntoIterator<Item = (K, V)>) -> TopK<K, V> {
        let mut top = TopK::new(most);
        all.into_iter().for_each(|(key, value)| top.offer(key, value));
        top
    }

    pub fn offer(&mut self, key: K, value: V) {
        let Some(last) = self.most.checked_sub(1) else { return };
        if self.is_sorted && self.entries.get(last).is_some_and(|(least, _)| key <= *least) {
            return;
        }
        self.entries.push((key, value));
        if self.entries.len() >= self.most.saturating_mul(2) {
            self.sort();
        }
    }

    /// The entries, greatest first.
    pub fn into_sorted(mut self) -> Vec<(K, V)> {
        self.sort();
        self.entries
    }

    /// The sort is stable: equal entries stay in the order in which they were offered.
    fn sort(&mut self) {
        self.entries.sort_by(|(one, _), (other, _)| other.cmp(one));
        self.entries.truncate(self.most);
        self.is_sorted = true;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few keys, so that many are equal; the value is the number of the offer.
        #[test]
        fn it_is_the_beginning_of_a_stable_sort(most in 0_usize..9, keys in prop::collection::vec(0_u8..20, 0..100)) {
            let offered = || keys.iter().copied().zip(0..);
            let mut all: Vec<(u8, u32)> = offered().collect();
            all.sort_by_key(|(key, _)| Reverse(*key));
            all.truncate(most);
            let mut top = TopK::new(most);
            for (key, number) in offered() {
                top.offer(key, number);
                prop_assert!(top.entries.len() <= 2 * most);
            }
            prop_assert_eq!(top.into_sorted(), all.clone());
            prop_assert_eq!(TopK::of(most, offered()).into_sorted(), all);
        }
    }
}
