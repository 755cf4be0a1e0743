//! A map by thread, made for events that come in bursts from few threads.

use rustc_hash::FxHashMap;

/// A map by tid. A look-up is short enough to be inlined, even one that may add a thread: some profilers make two or
/// three look-ups per switch. The map grows until its owner removes threads.
#[derive(Debug)]
pub struct TidMap<T> {
    /// Index into `entries`.
    indexes: FxHashMap<i32, u32>,
    entries: Vec<(i32, T)>,
    /// The index that was last found for each value of the low bits of a tid: most threads are looked up again soon.
    hints: [u32; HINTS],
}

const HINTS: usize = 256;

impl<T> Default for TidMap<T> {
    fn default() -> TidMap<T> {
        TidMap { indexes: FxHashMap::default(), entries: Vec::new(), hints: [0; HINTS] }
    }
}

impl<T> TidMap<T> {
    #[inline]
    pub fn get(&self, tid: i32) -> Option<&T> {
        self.entries.get(*self.indexes.get(&tid)? as usize).map(|(_, value)| value)
    }

    #[inline]
    pub fn get_mut(&mut self, tid: i32) -> Option<&mut T> {
        self.entries.get_mut(*self.indexes.get(&tid)? as usize).map(|(_, value)| value)
    }

    /// As [`get_mut`](TidMap::get_mut), by the hint if there is one.
    #[inline]
    pub fn find(&mut self, tid: i32) -> Option<&mut T> {
        let hint = self.hints[tid as usize % HINTS];
        let is_hint = self.entries.get(hint as usize).is_some_and(|(other, _)| *other == tid);
        let index = if is_hint { hint } else { *self.indexes.get(&tid)? };
        self.entries.get_mut(index as usize).map(|(_, value)| value)
    }

    /// As [`get_mut`](TidMap::get_mut), but only finds a thread that was looked up recently, by its hint.
    #[inline(always)]
    pub fn get_recent(&mut self, tid: i32) -> Option<&mut T> {
        let index = self.hints[tid as usize % HINTS] as usize;
        self.entries.get_mut(index).filter(|(other, _)| *other == tid).map(|(_, value)| value)
    }

    /// As [`get_mut`](TidMap::get_mut). Adds a default value for a thread that is missing.
    #[inline(always)]
    pub fn get_or_default(&mut self, tid: i32) -> &mut T
    where
        T: Default,
    {
        let index = self.hints[tid as usize % HINTS] as usize;
        if self.entries.get(index).is_none_or(|(other, _)| *other != tid) {
            return self.find_or_add(tid);
        }
        &mut self.entries[index].1
    }

    #[inline(never)]
    fn find_or_add(&mut self, tid: i32) -> &mut T
    where
        T: Default,
    {
        let index = match self.indexes.get(&tid) {
            Some(index) => *index,
            None => self.add(tid, T::default()),
        };
        self.hints[tid as usize % HINTS] = index;
        &mut self.entries[index as usize].1
    }

    #[cold]
    fn add(&mut self, tid: i32, value: T) -> u32 {
        let index = self.entries.len() as u32; // tids have 32 bits
        self.entries.push((tid, value));
        self.indexes.insert(tid, index);
        index
    }

    pub fn remove(&mut self, tid: i32) -> Option<T> {
        let index = self.indexes.remove(&tid)?;
        let (_, value) = self.entries.swap_remove(index as usize);
        if let Some((moved, _)) = self.entries.get(index as usize) {
            self.indexes.insert(*moved, index);
        }
        Some(value)
    }

    pub fn retain(&mut self, mut keeps: impl FnMut(i32, &T) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(tid, value)| keeps(*tid, value));
        if self.entries.len() < before {
            self.indexes.clear();
            self.indexes.extend(self.entries.iter().zip(0..).map(|((tid, _), index)| (*tid, index)));
        }
    }

    /// All threads, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &T)> {
        self.entries.iter().map(|(tid, value)| (*tid, value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (i32, &mut T)> {
        self.entries.iter_mut().map(|(tid, value)| (*tid, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum MapStep {
        Add(i32, u32),
        AddRecent(i32, u32),
        Remove(i32),
        Retain(u32),
    }

    /// Tids that share a hint, and a tid that no kernel assigns.
    fn tid() -> impl Strategy<Value = i32> {
        prop_oneof![0..6, (0..4).prop_map(|times| 5 + times * HINTS as i32), Just(-1)]
    }

    fn step() -> impl Strategy<Value = MapStep> {
        prop_oneof![
            4 => (tid(), 1_u32..20).prop_map(|(tid, by)| MapStep::Add(tid, by)),
            4 => (tid(), 1_u32..20).prop_map(|(tid, by)| MapStep::AddRecent(tid, by)),
            2 => tid().prop_map(MapStep::Remove),
            1 => (0_u32..40).prop_map(MapStep::Retain),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec(step(), 0..100)) {
            let mut map: TidMap<u32> = TidMap::default();
            let mut plain: BTreeMap<i32, u32> = BTreeMap::new();
            for step in steps {
                match step {
                    MapStep::Add(tid, by) => {
                        *map.get_or_default(tid) += by;
                        *plain.entry(tid).or_default() += by;
                    }
                    MapStep::AddRecent(tid, by) => {
                        if let Some(value) = map.get_recent(tid) {
                            *value += by;
                            *plain.get_mut(&tid).expect("it was looked up") += by;
                        }
                    }
                    MapStep::Remove(tid) => prop_assert_eq!(map.remove(tid), plain.remove(&tid)),
                    MapStep::Retain(least) => {
                        map.retain(|_, value| *value >= least);
                        plain.retain(|_, value| *value >= least);
                    }
                }
                prop_assert_eq!(map.iter().map(|(tid, value)| (tid, *value)).collect::<BTreeMap<_, _>>(), plain.clone());
                for tid in [0, 5, 5 + HINTS as i32, -1] {
                    prop_assert_eq!(map.get(tid), plain.get(&tid));
                    prop_assert_eq!(map.get_mut(tid), plain.get_mut(&tid));
                    prop_assert_eq!(map.find(tid), plain.get_mut(&tid));
                }
            }
        }

        #[test]
        fn what_was_just_looked_up_is_recent(first in tid(), tids in prop::collection::vec(tid(), 0..20)) {
            let mut map: TidMap<u32> = TidMap::default();
            for tid in tids.into_iter().chain([first]) {
                *map.get_or_default(tid) += 1;
                prop_assert!(map.get_recent(tid).is_some());
            }
        }
    }
}
