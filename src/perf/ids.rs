//! Which event writes an id into its samples.

use rustc_hash::FxHashMap;

use crate::perf::evsel::EventId;

/// Ids of samples to events. The kernel hands ids out in sequence, so a short table serves nearly all of them.
#[derive(Debug, Default)]
pub struct Ids {
    base: u64,
    near: Vec<Option<EventId>>,
    far: FxHashMap<u64, EventId>,
}

impl Ids {
    pub fn insert(&mut self, id: u64, event: EventId) {
        const SPAN: u64 = 1 << 16;
        if self.near.is_empty() {
            self.base = id;
        }
        match id.checked_sub(self.base) {
            Some(at) if at < SPAN => {
                let at = at as usize;
                if at >= self.near.len() {
                    self.near.resize(at + 1, None);
                }
                self.near[at] = Some(event);
            }
            _ => {
                self.far.insert(id, event);
            }
        }
    }

    #[inline]
    pub fn get(&self, id: u64) -> Option<EventId> {
        let near = usize::try_from(id.wrapping_sub(self.base)).ok().and_then(|at| self.near.get(at));
        match near {
            Some(Some(event)) => Some(*event),
            _ => self.far.get(&id).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_near_and_far() {
        let mut ids = Ids::default();
        for (id, event) in [(1000, 0), (1003, 1), (5, 2), (1 << 40, 3)] {
            ids.insert(id, EventId(event));
        }
        let cases = [
            (1000, Some(0)),
            (1001, None),
            (1003, Some(1)),
            (5, Some(2)),
            (1 << 40, Some(3)),
            (0, None),
            (u64::MAX, None),
        ];
        for (id, want) in cases {
            assert_eq!(ids.get(id).map(|event| event.0), want, "{id}");
        }
    }
}
