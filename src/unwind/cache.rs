//! A cache of rules, for all files: most addresses of a walk were visited by earlier walks.

use crate::unwind::rules::Rule;

/// The key of a rule: the id of the code, and an offset in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheKey(u64);

/// A direct-mapped cache: each key has one slot, which holds the last rule stored there. It has no memory until the
/// first rule is stored: most runs have none.
#[derive(Debug, Default)]
pub(super) struct RuleCache {
    places: Box<[(CacheKey, Rule)]>,
}

/// Number of slots, a power of two. The ordinary programs of a machine together use some ten thousand rules.
const PLACES: usize = 1 << 16;

const _: () = assert!(size_of::<(CacheKey, Rule)>() <= 24, "1.5 MiB");

impl CacheKey {
    const NONE: CacheKey = CacheKey(u64::MAX);

    /// None: the file offset is too large, which no real file reaches.
    pub fn new(code: u32, offset: u64) -> Option<CacheKey> {
        let key = u64::from(code) << 32 | u64::from(u32::try_from(offset).ok()?);
        (CacheKey(key) != CacheKey::NONE).then_some(CacheKey(key))
    }

    fn place(self) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.0.wrapping_mul(GOLDEN) >> (64 - PLACES.trailing_zeros())) as usize
    }
}

impl RuleCache {
    pub fn get(&self, key: CacheKey) -> Option<Rule> {
        let (known, rule) = self.places.get(key.place())?;
        (*known == key).then_some(*rule)
    }

    pub fn keep(&mut self, key: CacheKey, rule: Rule) {
        if self.places.is_empty() {
            self.places = vec![(CacheKey::NONE, Rule::Missing); PLACES].into();
        }
        self.places[key.place()] = (key, rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_has_the_place() {
        let mut cache = RuleCache::default();
        let key = |code, offset| CacheKey::new(code, offset).unwrap();
        assert_eq!(cache.get(key(0, 0)), None);
        let first = key(1, 0x1234);
        let other = (0..).map(|offset| key(2, offset)).find(|other| other.place() == first.place()).unwrap();
        cache.keep(first, Rule::End);
        assert_eq!((cache.get(first), cache.get(other)), (Some(Rule::End), None));
        cache.keep(other, Rule::Signal);
        assert_eq!((cache.get(first), cache.get(other)), (None, Some(Rule::Signal)));
        assert!(CacheKey::new(u32::MAX, u32::MAX.into()).is_none() && CacheKey::new(0, 1 << 32).is_none());
    }

    #[test]
    fn neighbours_have_places_of_their_own() {
        let places = |code| (0..1000).map(move |offset| CacheKey::new(code, 0x10_0000 + offset * 3).unwrap().place());
        let used: std::collections::BTreeSet<usize> = places(1).chain(places(2)).collect();
        assert!(used.len() > 1900, "{}", used.len());
    }
}
