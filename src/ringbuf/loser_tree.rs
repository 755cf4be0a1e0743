//! The tournament that finds the first of the rings with something to deliver.

use std::hint::select_unpredictable;

/// A ring in the tournament.
struct Leaf {
    key: u64, // as of `build`
    ring: usize,
}

/// Stands for a ring without further items: it loses against all others.
const NONE: u64 = u64::MAX;

/// A tournament of the rings, by the keys of their next items; of equal keys the lower ring comes first. Each game
/// stores its loser, so that a ring with a new key replays only the games on its own path to the root.
///
/// The winner of a game cannot be predicted, so the code has no branch on it: a player is one number, its key in the
/// upper bits, its leaf in the lower. Half of the range of the upper bits lies before the round's clock, half after:
/// 100 days each with 1,000 rings. Keys outside of it are no times of this run; they come first or last.
#[derive(Default)]
pub(super) struct LoserTree {
    leaves: Vec<Leaf>, // in ring order
    games: Vec<u64>,   // losers; the children of game `i` are at `2 * i` and `2 * i + 1`; the winner is at 0
    base: u64,         // the lowest key
    bits: u32,         // of a leaf's number
    horizon: u64,
}

impl LoserTree {
    /// Removes all rings. Only keys up to `horizon` are due.
    pub fn clear(&mut self, horizon: u64) {
        self.leaves.clear();
        self.horizon = horizon;
    }

    /// Adds a ring if its `key` is due, and returns whether it is. Rings come in ring order, and `build` must follow.
    pub fn push(&mut self, ring: usize, key: u64) -> bool {
        if key <= self.horizon {
            self.leaves.push(Leaf { key, ring });
        }
        key <= self.horizon
    }

    /// Number of rings added.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Plays all games. `now` is the clock of the round.
    pub fn build(&mut self, now: u64) {
        let leaves = self.leaves.len().next_power_of_two();
        self.bits = leaves.trailing_zeros();
        self.base = now.saturating_sub(self.highest() / 2);
        self.games.clear();
        self.games.resize(leaves, NONE);
        // First, bottom up, `games` gets the winners of all games; then, top down, their losers.
        for at in (0..leaves).rev() {
            let (one, other) = self.players(at);
            self.games[at] = one.min(other);
        }
        for at in 1..leaves {
            let (one, other) = self.players(at);
            self.games[at] = one.max(other);
        }
    }

    /// The two players of a game, while `games` has winners for the games below it.
    fn players(&self, game: usize) -> (u64, u64) {
        let player = |child: usize| match child.checked_sub(self.games.len()) {
            None => self.games[child],
            Some(leaf) => self.leaves.get(leaf).map_or(NONE, |&Leaf { key, .. }| self.player(leaf, key)),
        };
        // The overall winner comes from game 1, or is the only player.
        if game == 0 { (player(1), NONE) } else { (player(2 * game), player(2 * game + 1)) }
    }

    /// The leaf of the first ring.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.games.first().and_then(|&winner| self.leaf_of(winner))
    }

    #[inline]
    fn leaf_of(&self, player: u64) -> Option<usize> {
        (player != NONE).then(|| player as usize & (self.games.len() - 1))
    }

    /// The ring of a leaf.
    #[inline]
    pub fn ring(&self, leaf: usize) -> Option<usize> {
        Some(self.leaves.get(leaf)?.ring)
    }

    /// The highest key with which the first ring is still first.
    #[inline]
    pub fn limit(&self, first: usize) -> u64 {
        // The second player is among those that lost against the first one.
        let mut second = NONE;
        let mut at = (first + self.games.len()) / 2;
        while let Some(&loser) = self.games.get(at).filter(|_| at > 0) {
            second = second.min(loser);
            at /= 2;
        }
        let limit = second.saturating_sub(first as u64 + 1) >> self.bits;
        // Keys of the far future are all treated as equal.
        let limit = if limit < self.highest() { self.base.saturating_add(limit) } else { u64::MAX };
        limit.min(self.horizon)
    }

    /// Sets a new key for the first ring, `None` if it has no further item. Returns the leaf of the ring that is first
    /// now.
    #[inline]
    pub fn replace(&mut self, first: usize, key: Option<u64>) -> Option<usize> {
        let mut player = key.map_or(NONE, |key| self.player(first, key));
        let mut at = (first + self.games.len()) / 2;
        while at > 0 {
            let Some(other) = self.games.get_mut(at) else { break };
            let loses = *other < player;
            let winner = select_unpredictable(loses, *other, player);
            *other = select_unpredictable(loses, player, *other);
            player = winner;
            at /= 2;
        }
        if let Some(winner) = self.games.first_mut() {
            *winner = player;
        }
        self.leaf_of(player)
    }

    #[inline]
    fn player(&self, leaf: usize, key: u64) -> u64 {
        let player = key.saturating_sub(self.base).min(self.highest()) << self.bits | leaf as u64;
        if key <= self.horizon { player } else { NONE }
    }

    /// The highest distance of a key from `base`; higher numbers have special meanings.
    #[inline]
    fn highest(&self) -> u64 {
        (u64::MAX >> self.bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes all keys of all rings. `choices` decides whether the first ring goes on up to its limit.
    fn order(rings: &[Vec<u64>], now: u64, horizon: u64, choices: &mut impl FnMut() -> bool) -> Vec<(u64, usize)> {
        let mut tree = LoserTree::default();
        let mut at = vec![0; rings.len()];
        let mut taken = Vec::new();
        tree.clear(horizon);
        for (ring, keys) in rings.iter().enumerate() {
            if let Some(&key) = keys.first() {
                assert_eq!(tree.push(ring, key), key <= horizon);
            }
        }
        tree.build(now);
        while let Some(first) = tree.first() {
            let ring = tree.ring(first).unwrap();
            let next = |at: &[usize]| rings[ring].get(at[ring]).copied();
            let limit = choices().then(|| tree.limit(first));
            loop {
                taken.push((rings[ring][at[ring]], ring));
                at[ring] += 1;
                if limit.is_none_or(|limit| next(&at).is_none_or(|key| key > limit)) {
                    break;
                }
            }
            tree.replace(first, next(&at));
        }
        taken
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lowest_key_then_lowest_ring(
            mut rings in prop::collection::vec(prop::collection::vec(0u64..50, 0..8), 0..20),
            start in prop_oneof![Just(0u64), Just(1 << 40), Just(u64::MAX - 50)],
            horizon in prop_oneof![0u64..60, Just(u64::MAX)],
            choices in prop::collection::vec(any::<bool>(), 1..50),
        ) {
            rings.iter_mut().for_each(|keys| keys.iter_mut().for_each(|key| *key += start));
            let horizon = horizon.saturating_add(start);
            let mut want = Vec::new();
            let mut at = vec![0; rings.len()];
            let least = |at: &[usize]| {
                let heads = rings.iter().enumerate().filter_map(|(ring, keys)| Some((*keys.get(at[ring])?, ring)));
                heads.filter(|&(key, _)| key <= horizon).min()
            };
            while let Some((key, ring)) = least(&at) {
                want.push((key, ring));
                at[ring] += 1;
            }
            let mut choices = choices.into_iter().cycle();
            prop_assert_eq!(order(&rings, start, horizon, &mut || choices.next().unwrap()), want);
        }
    }

    #[test]
    fn keys_that_are_no_times_come_first_or_last() {
        let now = 1 << 62;
        let rings = [vec![u64::MAX], vec![now, now + 1], vec![0, u64::MAX - 1], vec![now - 1]];
        let want = [(0, 2), (now - 1, 3), (now, 1), (now + 1, 1), (u64::MAX, 0), (u64::MAX - 1, 2)];
        for choice in [false, true] {
            assert_eq!(order(&rings, now, u64::MAX, &mut || choice), want);
        }
        assert_eq!(order(&[vec![u64::MAX]], 0, u64::MAX, &mut || true), [(u64::MAX, 0)]);
        assert_eq!(order(&[vec![7, u64::MAX, 5]], 0, 8, &mut || true), [(7, 0)]);
    }
}
