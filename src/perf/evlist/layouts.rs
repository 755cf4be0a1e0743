//! The layouts of records: events that share a ring have the time of their samples at the same offset.

use std::sync::Arc;

use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::ids::Route;
use crate::perf::layout::Layout;
use crate::perf::sample_type::SampleType;

impl Evlist {
    /// Events share rings, so the time must be at the same offset in the records of all events of a ring.
    pub(super) fn share_layout(&mut self) {
        let shared: Vec<SampleType> =
            (0..self.evsels.len()).map(|index| self.shared_in(self.ring_of(EventId(index as u16)))).collect();
        let with_companion: Vec<EventId> = self.evsels.iter().filter_map(|evsel| evsel.window_of).collect();
        let layout = |(index, evsel): (usize, &mut Evsel)| {
            evsel.attr.add_sample_type(shared[index]);
            let has_companion = with_companion.iter().any(|event| event.index() == index);
            Layout::full(evsel.attr.sample_type(), 0, 0, evsel.attr.regs_user(), 0)
                .with_chain_form(evsel.chain_form())
                .with_window(has_companion || evsel.attr.has_user_window())
        };
        self.layouts = self.evsels.iter_mut().enumerate().map(layout).collect();
    }

    /// The layout of an event's samples, once the plan of opening is made.
    pub fn layout(&self, event: EventId) -> &Layout {
        self.layouts.get(event.index()).unwrap_or(&Layout::NONE)
    }

    /// The route of an event's samples.
    pub(super) fn route_of(&self, event: EventId) -> Route {
        let owner = self.evsels[event.index()].owner_of_samples();
        Route { event, owner: owner as u32, kind: self.layout(event).kind() }
    }

    /// By class of rings, the offsets of id and time that all records of a ring share. Has at least one entry.
    pub fn shared_layouts(&self) -> Arc<[Layout]> {
        let layout = |ring| Layout::new(SampleType::BASE.with(self.shared_in(ring)), 0);
        (0..self.plan.rings.max(1)).map(layout).collect()
    }

    /// The fields in front of the time that any event of the ring asks for, and the trailer fields of side records that
    /// any event of the run asks for: side records of all rings have one layout.
    fn shared_in(&self, ring: usize) -> SampleType {
        let has_address = |(index, evsel): (usize, &Evsel)| {
            self.ring_of(EventId(index as u16)) == ring
                && evsel.is_opened()
                && evsel.attr.sample_type().contains(SampleType::IP)
        };
        let shared = shared_bits(&self.evsels);
        let any_address = self.evsels.iter().enumerate().any(has_address);
        if any_address { shared.with(SampleType::IP) } else { shared }
    }
}

/// The fields in the trailer of side records, besides `BASE`, that any of the events asks for.
pub(super) fn shared_bits(evsels: &[Evsel]) -> SampleType {
    let in_trailer = SampleType::ID.with(SampleType::STREAM_ID).bits();
    SampleType::from_bits(evsels.iter().fold(0, |bits, evsel| bits | evsel.attr.sample_type().bits() & in_trailer))
}
