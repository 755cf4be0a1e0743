//! Cache of names by place. There are many more places than functions, so a place refers to its function by an index.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::symbol::unnamed::Unnamed;

/// The name of a function, or what is known of it instead, with its module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    pub name: Result<Arc<str>, Unnamed>,
    pub module: Option<Arc<str>>,
}

/// Most places per cache: 4 MiB for the kernel, 5 for programs. A run of days, or addresses that never recur, exceed
/// it; frequent places are cached early.
const MAX_KEPT: usize = 1 << 16;
/// Most bytes of function names: other programs decide how long these are.
const MAX_NAME_BYTES: usize = 8 << 20;

/// Functions by place.
#[derive(Debug)]
pub struct NameCache<K> {
    /// Index of the function, and the offset in it.
    places: FxHashMap<K, (u32, u32)>,
    functions: Vec<FunctionName>,
    indices: FxHashMap<FunctionName, u32>,
    name_bytes: usize,
}

impl FunctionName {
    fn name_bytes(&self) -> usize {
        self.name.as_ref().map_or(0, |name| name.len())
    }
}

impl<K> Default for NameCache<K> {
    fn default() -> NameCache<K> {
        NameCache { places: FxHashMap::default(), functions: Vec::new(), indices: FxHashMap::default(), name_bytes: 0 }
    }
}

impl<K: Eq + Hash> NameCache<K> {
    /// The function of a place, and the offset in it.
    pub fn get(&self, place: &K) -> Option<(&FunctionName, u64)> {
        let (index, offset) = self.places.get(place)?;
        Some((self.functions.get(*index as usize)?, u64::from(*offset)))
    }

    /// Keeps a place. False when the cache is full, or the offset is 4 GiB or more.
    pub fn keep(&mut self, place: K, function: FunctionName, offset: u64) -> bool {
        let Ok(offset) = u32::try_from(offset) else { return false };
        let is_long = || self.name_bytes + function.name_bytes() > MAX_NAME_BYTES;
        if self.places.len() >= MAX_KEPT || is_long() && !self.indices.contains_key(&function) {
            return false;
        }
        let index = self.index_of(function);
        self.places.insert(place, (index, offset));
        true
    }

    fn index_of(&mut self, function: FunctionName) -> u32 {
        let next = self.functions.len() as u32; // no more than places
        *self.indices.entry(function).or_insert_with_key(|function| {
            self.name_bytes += function.name_bytes();
            self.functions.push(function.clone());
            next
        })
    }

    /// Forgets places for which `keep` is false, and functions without places.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let mut places = std::mem::take(&mut self.places);
        places.retain(|place, _| keep(place));
        let before = std::mem::take(&mut self.functions);
        self.indices.clear();
        self.name_bytes = 0;
        for (index, _) in places.values_mut() {
            let Some(function) = before.get(*index as usize) else { continue };
            *index = self.index_of(function.clone());
        }
        self.places = places;
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
    fn the_memory_of_long_names_is_bounded() {
        let mut places = NameCache::default();
        let long = |n: u64| function(&format!("{n:04096}"));
        let kept = (0..4096_u64).filter(|n| places.keep(*n, long(*n), 0)).count();
        assert_eq!(kept, MAX_NAME_BYTES / 4096);
        assert!(places.keep(5000, long(7), 1), "it is there already");
        places.retain(|place| *place < 10);
        assert_eq!((10..20).filter(|n| places.keep(*n, long(*n), 0)).count(), 10);
    }

    #[test]
    fn a_full_cache_keeps_no_place() {
        let mut places = NameCache::default();
        let unnamed = FunctionName { name: Err("stripped".into()), module: None };
        assert!(!places.keep(u64::MAX, unnamed.clone(), 1 << 32));
        for place in 0..MAX_KEPT as u64 {
            assert!(places.keep(place, unnamed.clone(), u64::from(u32::MAX)));
        }
        assert!(!places.keep(u64::MAX, unnamed.clone(), 0) && places.get(&u64::MAX).is_none());
        assert_eq!(places.get(&0), Some((&unnamed, u64::from(u32::MAX))));
    }
}
