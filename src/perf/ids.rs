//! Finds the event that writes an id into its samples, and its owner.

use rustc_hash::FxHashMap;

use crate::perf::event_id::EventId;
use crate::perf::layout::SampleLayoutKind;

/// The owner and event of a sample, and how it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub event: EventId,
    /// The index of the profiler that gets the samples, or one of the special owners in `event_id`.
    pub owner: u32,
    /// [`Layout::kind`](crate::perf::layout::Layout::kind)
    pub kind: SampleLayoutKind,
}

/// Maps ids to events. The kernel assigns ids in sequence, so a short table serves nearly all of them.
#[derive(Debug, Default)]
pub struct Ids {
    base: u64,
    near: Vec<Route>, // owner `NOBODY` where there is no event: cheaper to check than an `Option`
    far: FxHashMap<u64, Route>,
}

const NOBODY: u32 = u32::MAX;
const NONE: Route = Route { event: EventId(0), owner: NOBODY, kind: SampleLayoutKind::Other };

impl Ids {
    pub fn insert(&mut self, id: u64, route: Route) {
        const SPAN: u64 = 1 << 16;
        if self.near.is_empty() {
            self.base = id;
        }
        match id.checked_sub(self.base) {
            Some(index) if index < SPAN => {
                let index = index as usize;
                if index >= self.near.len() {
                    self.near.resize(index + 1, NONE);
                }
                self.near[index] = route;
            }
            _ => {
                self.far.insert(id, route);
            }
        }
    }

    #[inline(always)]
    pub fn routes(&self) -> Routes<'_> {
        Routes { base: self.base, near: &self.near, far: &self.far }
    }
}

/// A borrowed table for look-ups, `Copy` so that it can stay in registers.
#[derive(Clone, Copy)]
pub struct Routes<'a> {
    base: u64,
    near: &'a [Route],
    far: &'a FxHashMap<u64, Route>,
}

impl<'a> Routes<'a> {
    /// The route of the event that writes `id` into its samples.
    #[inline(always)]
    pub fn get(self, id: u64) -> Option<&'a Route> {
        match self.near.get(id.wrapping_sub(self.base) as usize) {
            Some(route) if route.owner != NOBODY => Some(route),
            _ => self.get_far(id),
        }
    }

    /// The route of the event that writes `id` into its samples, if the event is this owner's.
    #[inline(always)]
    pub fn get_of(self, id: u64, owner: u32) -> Option<&'a Route> {
        match self.near.get(id.wrapping_sub(self.base) as usize) {
            Some(route) if route.owner == owner => Some(route),
            _ => self.get_far(id).filter(|route| route.owner == owner),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_far(self, id: u64) -> Option<&'a Route> {
        self.far.get(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_near_and_far() {
        let mut ids = Ids::default();
        for (id, event) in [(1000, 0), (1003, 1), (5, 2), (1 << 40, 3)] {
            ids.insert(id, Route { event: EventId(event), owner: 0, kind: SampleLayoutKind::Other });
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
            assert_eq!(ids.routes().get(id).map(|route| route.event.0), want, "{id}");
        }
    }
}
