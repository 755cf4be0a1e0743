//! Which event writes an id into its samples, and whose it is.

use rustc_hash::FxHashMap;

use crate::perf::evsel::EventId;
use crate::perf::layout::Shape;

/// Where a sample goes, and how it is decoded: all that is asked of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub event: EventId,
    /// [`Evsel::owner`](crate::perf::evsel::Evsel::owner)
    pub owner: u32,
    /// [`Layout::shape`](crate::perf::layout::Layout::shape)
    pub shape: Shape,
}

/// Ids of samples to events. The kernel hands ids out in sequence, so a short table serves nearly all of them.
#[derive(Debug, Default)]
pub struct Ids {
    base: u64,
    near: Vec<Route>, // of `NOBODY` where there is none: shorter to look at than an `Option`
    far: FxHashMap<u64, Route>,
}

/// The short table.
#[derive(Clone, Copy, Debug)]
pub struct NearIds<'a> {
    base: u64,
    routes: &'a [Route],
}

impl<'a> NearIds<'a> {
    /// Perhaps it is nobody's. None: ask [`Ids::get`].
    #[inline(always)]
    pub fn get(self, id: u64) -> Option<&'a Route> {
        self.routes.get(usize::try_from(id.wrapping_sub(self.base)).ok()?)
    }
}

const NOBODY: u32 = u32::MAX;
const NONE: Route = Route { event: EventId(0), owner: NOBODY, shape: Shape::Other };

impl Ids {
    pub fn insert(&mut self, id: u64, route: Route) {
        const SPAN: u64 = 1 << 16;
        if self.near.is_empty() {
            self.base = id;
        }
        match id.checked_sub(self.base) {
            Some(at) if at < SPAN => {
                let at = at as usize;
                if at >= self.near.len() {
                    self.near.resize(at + 1, NONE);
                }
                self.near[at] = route;
            }
            _ => {
                self.far.insert(id, route);
            }
        }
    }

    #[inline]
    pub fn get(&self, id: u64) -> Option<Route> {
        match self.get_near(id) {
            Some(route) if route.owner != NOBODY => Some(*route),
            _ => self.get_far(id),
        }
    }

    #[inline(always)]
    fn get_near(&self, id: u64) -> Option<&Route> {
        self.near().get(id)
    }

    #[inline(always)]
    pub fn near(&self) -> NearIds<'_> {
        NearIds { base: self.base, routes: &self.near }
    }

    #[cold]
    fn get_far(&self, id: u64) -> Option<Route> {
        self.far.get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_near_and_far() {
        let mut ids = Ids::default();
        for (id, event) in [(1000, 0), (1003, 1), (5, 2), (1 << 40, 3)] {
            ids.insert(id, Route { event: EventId(event), owner: 0, shape: Shape::Other });
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
            assert_eq!(ids.get(id).map(|route| route.event.0), want, "{id}");
        }
    }
}
