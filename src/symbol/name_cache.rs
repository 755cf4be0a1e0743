//! The names of places that were looked up. There are many more places than functions, so that each names its function by
//! a number.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::symbol::files::UnnamedReason;

/// A function, or why there is no name for it, with its module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    pub name: Result<Arc<str>, UnnamedReason>,
    pub module: Option<Arc<str>>,
}

/// What is kept of each kind: of the kernel 4 MiB, of programs 5. There are always more places: records of a run of days,
/// or an address that differs each time. What comes often comes early.
const MOST_KEPT: usize = 1 << 16;
/// Of the functions' names, which others have chosen.
const MOST_NAME_BYTES: usize = 8 << 20;

/// Places, a few words each, and their functions.
#[derive(Debug)]
pub struct NameCache<K> {
    /// The function, and how far into it.
    of: FxHashMap<K, (u32, u32)>,
    functions: Vec<FunctionName>,
    numbers: FxHashMap<FunctionName, u32>,
    name_bytes: usize,
}

impl FunctionName {
    fn name_bytes(&self) -> usize {
        self.name.as_ref().map_or(0, |name| name.len())
    }
}

impl<K> Default for NameCache<K> {
    fn default() -> NameCache<K> {
        NameCache { of: FxHashMap::default(), functions: Vec::new(), numbers: FxHashMap::default(), name_bytes: 0 }
    }
}

impl<K: Eq + Hash> NameCache<K> {
    pub fn get(&self, place: &K) -> Option<(&FunctionName, u64)> {
        let (number, offset) = self.of.get(place)?;
        Some((self.functions.get(*number as usize)?, u64::from(*offset)))
    }

    /// False: there is no room, or it is too far into the file.
    pub fn keep(&mut self, place: K, function: FunctionName, offset: u64) -> bool {
        let Ok(offset) = u32::try_from(offset) else { return false };
        let is_long = || self.name_bytes + function.name_bytes() > MOST_NAME_BYTES;
        if self.of.len() >= MOST_KEPT || is_long() && !self.numbers.contains_key(&function) {
            return false;
        }
        let next = self.functions.len() as u32; // no more than places
        let number = *self.numbers.entry(function).or_insert_with_key(|function| {
            self.name_bytes += function.name_bytes();
            self.functions.push(function.clone());
            next
        });
        self.of.insert(place, (number, offset));
        true
    }

    /// Forgets the others, and functions that none of these is in.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.of.retain(|place, _| keep(place));
        let before = std::mem::take(&mut self.functions);
        self.numbers.clear();
        self.name_bytes = 0;
        for (number, _) in self.of.values_mut() {
            let Some(function) = before.get(*number as usize) else { continue };
            let next = self.functions.len() as u32;
            *number = *self.numbers.entry(function.clone()).or_insert_with_key(|function| {
                self.name_bytes += function.name_bytes();
                self.functions.push(function.clone());
                next
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> FunctionName {
        FunctionName { name: Ok(name.into()), module: Some("m".into()) }
    }

    #[test]
    fn places_of_one_function_share_it() {
        let mut places = NameCache::default();
        for place in 0..100_u64 {
            assert!(places.keep(place, function(if place < 90 { "a" } else { "b" }), place * 2));
        }
        assert_eq!(places.functions.len(), 2);
        assert_eq!(places.get(&7), Some((&function("a"), 14)));
        assert_eq!(places.get(&95), Some((&function("b"), 190)));
        assert_eq!(places.get(&100), None);
        places.retain(|place| *place >= 90);
        assert_eq!((places.functions.len(), places.get(&7)), (1, None));
        assert_eq!(places.get(&95), Some((&function("b"), 190)));
        assert!(places.keep(7, function("a"), 1) && places.functions.len() == 2);
        assert_eq!(places.get(&7), Some((&function("a"), 1)));
    }

    #[test]
    fn long_names_take_a_bound_of_memory() {
        let mut places = NameCache::default();
        let long = |n: u64| function(&format!("{n:04096}"));
        let kept = (0..4096_u64).filter(|n| places.keep(*n, long(*n), 0)).count();
        assert_eq!(kept, MOST_NAME_BYTES / 4096);
        assert!(places.keep(5000, long(7), 1), "it is there already");
        places.retain(|place| *place < 10);
        assert_eq!((10..20).filter(|n| places.keep(*n, long(*n), 0)).count(), 10);
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let mut places = NameCache::default();
        let unnamed = FunctionName { name: Err("stripped"), module: None };
        assert!(!places.keep(u64::MAX, unnamed.clone(), 1 << 32));
        for place in 0..MOST_KEPT as u64 {
            assert!(places.keep(place, unnamed.clone(), u64::from(u32::MAX)));
        }
        assert!(!places.keep(u64::MAX, unnamed.clone(), 0) && places.get(&u64::MAX).is_none());
        assert_eq!(places.get(&0), Some((&unnamed, u64::from(u32::MAX))));
    }
}
