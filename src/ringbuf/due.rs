//! The rings that have something to deliver, and which of them is first.

/// A ring and the key of its next item. Of equal keys the lower ring comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub key: u64,
    pub ring: usize,
}

/// The ring that is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    pub ring: usize,
    /// The highest key with which it still is.
    pub limit: u64,
    at: usize,
}

/// Up to so many rings are searched through, in ring order; more are kept as a binary heap.
/// Which ring is first cannot be predicted, so both are written to compile without jumps.
const SEARCHED: usize = 8;

/// A priority queue whose first element is usually not removed but gets another key.
#[derive(Default)]
pub(super) struct Due {
    heads: Vec<Head>,
}

impl Due {
    pub fn clear(&mut self) {
        self.heads.clear();
    }

    /// Adds a ring. In ring order, and `build` must follow.
    pub fn push(&mut self, head: Head) {
        self.heads.push(head);
    }

    pub fn build(&mut self) {
        if self.heads.len() > SEARCHED {
            for at in (0..self.heads.len() / 2).rev() {
                self.sift_down(at);
            }
        }
    }

    /// The first ring, with a limit of at most `horizon`.
    #[inline]
    pub fn first(&self, horizon: u64) -> Option<First> {
        let first = *self.heads.first()?;
        if self.heads.len() <= SEARCHED {
            return Some(self.search(first, horizon));
        }
        // In a heap the second is a child of the first. Its key is not 0 when its ring is lower:
        // it would come first then.
        let second = if self.heads[2].order() < self.heads[1].order() { self.heads[2] } else { self.heads[1] };
        let limit = second.key - u64::from(second.ring < first.ring);
        Some(First { ring: first.ring, limit: limit.min(horizon), at: 0 })
    }

    /// Gives the ring another key.
    #[inline]
    pub fn replace(&mut self, first: First, key: u64) {
        self.heads[first.at].key = key;
        if self.heads.len() > SEARCHED {
            self.sift_down(0);
        }
    }

    pub fn remove(&mut self, first: First) {
        if self.heads.len() <= SEARCHED {
            self.heads.remove(first.at);
            return;
        }
        self.heads.swap_remove(0);
        if self.heads.len() > SEARCHED {
            self.sift_down(0);
        } else {
            self.heads.sort_unstable_by_key(|head| head.ring);
        }
    }

    #[inline]
    fn search(&self, mut first: Head, mut limit: u64) -> First {
        let mut first_at = 0;
        for (at, &head) in self.heads.iter().enumerate().skip(1) {
            // All before `at` are lower rings. A new first one must stay below the smallest of them,
            // which was the first until now; otherwise the limit may come down to this one.
            let less = head.key < first.key;
            let bound = if less { first.key.wrapping_sub(1) } else { head.key };
            limit = limit.min(bound);
            first_at = if less { at } else { first_at };
            first = if less { head } else { first };
        }
        First { ring: first.ring, limit, at: first_at }
    }

    fn sift_down(&mut self, mut at: usize) {
        let heads = &mut self.heads[..];
        let moved = heads[at];
        loop {
            let left = 2 * at + 1;
            if left >= heads.len() {
                break;
            }
            let right = (left + 1).min(heads.len() - 1);
            let child = left + usize::from(heads[right].order() < heads[left].order());
            if moved.order() < heads[child].order() {
                break;
            }
            heads[at] = heads[child];
            at = child;
        }
        heads[at] = moved;
    }
}

impl Head {
    /// One number compares without a jump, a pair does not.
    #[inline]
    fn order(self) -> u128 {
        u128::from(self.key) << 64 | self.ring as u128
    }
}
