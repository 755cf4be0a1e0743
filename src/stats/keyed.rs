//! Sums by key, in bounded memory: a value whose key finds no room is added to the sum of the others, never dropped.

use std::collections::hash_map::Drain;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::symbol::StackId;
use crate::task::Comm;

/// A key of [`KeyedSums`].
pub trait SumKey: Eq + Hash {
    /// The key `<others>`, whose sum takes the values of this key when there is no room for it. The few such keys do
    /// not count towards the limit.
    #[must_use]
    fn others(&self) -> Self;
}

/// A task and its stack, as the key of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskStack {
    pub pid: i32,
    pub comm: Comm,
    /// None: there was no stack, or it was not kept.
    pub stack: Option<StackId>,
}

impl SumKey for TaskStack {
    fn others(&self) -> TaskStack {
        TaskStack { pid: 0, comm: Comm::new(b"<others>"), stack: None }
    }
}

/// A task, or all tasks of a process or of a name, as the key of a sum. Numbers that do not apply are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskKey {
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}

impl SumKey for TaskKey {
    fn others(&self) -> TaskKey {
        TaskKey { comm: Comm::new(b"<others>"), ..TaskKey::default() }
    }
}

/// Default limit of distinct keys: nobody reads more rows.
const DEFAULT_MAX_KEYS: usize = 10_000;

/// One sum for each key, for a limited number of keys.
#[derive(Clone, Debug)]
pub struct KeyedSums<K, V> {
    sums: FxHashMap<K, V>,
    most: usize,
}

impl<K: SumKey, V: Default> Default for KeyedSums<K, V> {
    fn default() -> KeyedSums<K, V> {
        KeyedSums::new(DEFAULT_MAX_KEYS)
    }
}

impl<K: SumKey, V: Default> KeyedSums<K, V> {
    pub fn new(most: usize) -> KeyedSums<K, V> {
        KeyedSums { sums: FxHashMap::default(), most }
    }

    /// The same sums, without a limit.
    #[must_use]
    pub fn unbounded(self) -> KeyedSums<K, V> {
        KeyedSums { most: usize::MAX, ..self }
    }

    /// The sum of `key`, for adding to it; if the key finds no room, the sum of [`SumKey::others`].
    #[inline]
    pub fn sum(&mut self, key: K) -> &mut V {
        let fits = self.sums.len() < self.most || self.sums.contains_key(&key);
        self.sums.entry(if fits { key } else { key.others() }).or_default()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.sums.get(key)
    }

    pub fn len(&self) -> usize {
        self.sums.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The order is arbitrary, as in the iterators below.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.sums.iter()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.sums.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.sums.iter_mut()
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.sums.keys()
    }

    /// Takes all sums out.
    pub fn drain(&mut self) -> Drain<'_, K, V> {
        self.sums.drain()
    }

    pub fn clear(&mut self) {
        self.sums.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A number; without room it is summed up by its parity.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum ParityKey {
        Number(u8),
        Others { odd: bool },
    }

    impl SumKey for ParityKey {
        fn others(&self) -> ParityKey {
            match *self {
                ParityKey::Number(number) => ParityKey::Others { odd: number % 2 == 1 },
                others @ ParityKey::Others { .. } => others,
            }
        }
    }

    proptest! {
        /// Compared with a plain map of all keys: the sums of the first keys are exact, and all other values are in the
        /// sums of the others.
        #[test]
        fn nothing_is_dropped_and_the_first_are_exact(
            most in 0_usize..12,
            added in prop::collection::vec((0_u8..30, 1_u64..1000), 0..200),
        ) {
            let mut first: Vec<u8> = Vec::new();
            for (number, _) in &added {
                if first.len() < most && !first.contains(number) {
                    first.push(*number);
                }
            }
            let mut sums: KeyedSums<ParityKey, u64> = KeyedSums::new(most);
            let mut plain: HashMap<ParityKey, u64> = HashMap::new();
            for (number, amount) in added {
                let key = ParityKey::Number(number);
                *sums.sum(key) += amount;
                *plain.entry(if first.contains(&number) { key } else { key.others() }).or_default() += amount;
            }
            prop_assert!(sums.len() <= most + 2);
            prop_assert_eq!(sums.drain().collect::<HashMap<_, _>>(), plain);
            prop_assert!(sums.is_empty());
        }
    }
}
