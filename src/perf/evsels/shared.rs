//! Equal events of several views: opened once, and all these views get the samples.

use crate::perf::event_id::EventId;
use crate::perf::evsel::Evsel;
use crate::perf::evsels::Evsels;

impl Evsels {
    /// Opens events of several views only once where their attrs and filters are equal. To be called after all filters
    /// are set.
    pub fn share(&mut self) {
        for index in 1..self.list.len() {
            let (earlier, rest) = self.list.split_at_mut(index);
            let Some(evsel) = rest.first_mut() else { continue };
            let Some(first) = earlier.iter().position(|first| first.is_opened() && first.is_same_event(evsel)) else {
                continue;
            };
            evsel.shared_with = Some(EventId(first as u16));
            let first = &mut earlier[first];
            first.sharers.push(EventId(index as u16));
            // An event that one view pairs with others stays in their ring.
            first.is_unpaired &= evsel.is_unpaired;
            first.is_filtered &= evsel.is_filtered;
        }
    }

    /// The views that get the samples of an event, each with its own id of the event.
    pub fn subscribers(&self, event: EventId) -> impl Iterator<Item = (usize, EventId)> {
        let sharers = self.list[event.index()].sharers.iter().copied();
        std::iter::once(event).chain(sharers).map(|event| (self.list[event.index()].owner, event))
    }
}

impl Evsel {
    /// Whether one descriptor could serve both events. Probes never share: a probe can be removed only when nobody
    /// holds its event, and each has an id of its own.
    fn is_same_event(&self, other: &Evsel) -> bool {
        let is_probe = |evsel: &Evsel| evsel.is_probe || evsel.in_program.is_some();
        self.owner != other.owner
            && other.is_opened()
            && !is_probe(self)
            && !is_probe(other)
            && self.name == other.name
            && self.attr.is_same(&other.attr)
            && self.filter == other.filter
            && self.binding == other.binding
            && self.cpus == other.cpus
            && self.optional == other.optional
            && self.chain_form() == other.chain_form()
            && self.chain_use == other.chain_use
            && self.is_counted == other.is_counted
            && !self.is_of_program()
            && !other.is_of_program()
            && self.test.is_none()
            && other.test.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::event_id::SHARED_OWNER;
    use crate::perf::ids::Route;
    use crate::perf::{Attr, Evlist};

    fn evlist(events: &[(usize, u32, Option<&str>, bool)]) -> Evlist {
        let mut evlist = Evlist::new();
        for (owner, id, filter, has_chain) in events {
            evlist.adding_for(*owner);
            let evsel = Evsel::new(format!("a:{id}"), Attr::tracepoint(*id)).callchain_if(*has_chain, 0);
            let event = evlist.add(evsel).unwrap();
            filter.iter().for_each(|filter| evlist.set_filter(event, *filter).unwrap());
        }
        evlist
    }

    #[test]
    fn equal_events_of_several_views_are_one() {
        let mut evlist = evlist(&[
            (0, 1, None, false),
            (0, 1, None, false), // of the same view, which needs two events
            (1, 1, None, false),
            (1, 2, None, false),
            (2, 1, Some("x == 1"), false),
            (2, 2, None, true),
            (3, 1, None, false),
        ]);
        evlist.evsels.share();
        let opened: Vec<bool> = evlist.evsels.iter().map(Evsel::is_opened).collect();
        assert_eq!(opened, [true, true, false, true, true, true, false]);
        let of_first: Vec<(usize, EventId)> = evlist.evsels.subscribers(EventId(0)).collect();
        assert_eq!(of_first, [(0, EventId(0)), (1, EventId(2)), (3, EventId(6))]);
        evlist.assign_ids();
        let owner = |id| evlist.route(id).map(|route: &Route| route.owner as usize);
        assert_eq!([1, 2, 4].map(owner), [Some(SHARED_OWNER), Some(0), Some(1)]);
    }
}
