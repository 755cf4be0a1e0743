//! The accounts of places, in single cases and against a plain model.

use std::collections::HashMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::perf::record::Innermost;
use crate::symbol::{SpaceKeys, Stacks};
use crate::tep::format::field::{Field, FieldKind};

/// Stacks. Those whose numbers differ by [`RECENT`] share a slot.
static STACKS: LazyLock<Vec<StackId>> = LazyLock::new(|| {
    let (mut stacks, mut spaces) = (Stacks::new(64 << 20, 127), SpaceKeys::default());
    let stack = |ip| stacks.intern_address(ip, false, Innermost::default(), 0, &mut spaces);
    (1..=4 * RECENT as u64).filter_map(stack).collect()
});

/// A place by its stack, or from number 4 on by its owner. 0 and 1 share a slot, and so do 2 and 3.
fn place(number: u32) -> (Option<StackId>, u32) {
    let at = number as usize / 2 + number as usize % 2 * RECENT;
    (STACKS.get(at).copied().filter(|_| number < 4), number)
}

fn key(number: u32) -> FlowKey {
    let (stack, owner) = place(number);
    FlowKey::of(stack, owner)
}

impl Flows {
    fn takes(&mut self, number: u32, bytes: u64, cache: CacheTag<'_>) {
        let (stack, owner) = place(number);
        self.allocated(stack, owner, bytes, cache);
    }

    fn gives(&mut self, number: u32, bytes: u64) {
        let (stack, owner) = place(number);
        self.freed(stack, owner, bytes);
    }
}

fn cache() -> LocatedText {
    let kind = FieldKind::DataLoc { text: true, element: 1 };
    let (name, declared) = ("name".to_owned(), "__data_loc char[]".to_owned());
    let field = Field { name, declared, offset: 0, size: 4, signed: false, kind, limit: None };
    field.located_text().expect("it is located")
}

/// A record with this cache name.
fn raw(name: &str) -> Vec<u8> {
    let word = (name.len() as u32 + 1) << 16 | 4;
    [&word.to_ne_bytes(), name.as_bytes(), b"\0"].concat()
}

/// The expected sums of a place after each look.
#[derive(Debug, Default)]
struct ModelFlows {
    /// Allocations, frees and outstanding bytes.
    sums: HashMap<u32, [u64; 3]>,
    /// Times of the looks, with the sums at each.
    looks: Vec<(u64, HashMap<u32, [u64; 3]>)>,
}

impl ModelFlows {
    fn look(&mut self, now: u64) {
        self.looks.push((now, self.sums.clone()));
    }

    fn at(&self, look: usize, number: u32) -> [u64; 3] {
        self.looks[look].1.get(&number).copied().unwrap_or_default()
    }

    /// The minimum of the bytes in a part: from the look that ended the previous part to the look that ended this part.
    fn least(&self, number: u32, start_ns: u64, end_ns: u64) -> u64 {
        let look = |time_ns| self.looks.iter().position(|(now, _)| *now >= time_ns).expect("the part is over");
        (look(start_ns)..=look(end_ns)).map(|look| self.at(look, number)[2]).min().expect("a look")
    }
}

proptest! {
    /// Places that share slots, looks at any time, parts that are merged.
    #[test]
    fn does_what_a_model_does(
        steps in prop::collection::vec((0..6_u32, 0..3_u8, 1..100_u64, 0..900_u64), 1..400),
    ) {
        let mut flows = Flows { has_sizes: true, ..Flows::default() };
        flows.start(1000);
        let (mut model, mut now) = (ModelFlows::default(), 1000);
        model.look(now);
        for (number, step, bytes, wait_ms) in steps {
            let sums = model.sums.entry(number).or_default();
            match step {
                0 | 1 => {
                    flows.takes(number, bytes, CacheTag::default());
                    *sums = [sums[0] + 1, sums[1], sums[2] + bytes];
                }
                _ if sums[0] > sums[1] => {
                    let freed = sums[2] / (sums[0] - sums[1]);
                    flows.gives(number, freed);
                    *sums = [sums[0], sums[1] + 1, sums[2] - freed];
                }
                _ => {}
            }
            if wait_ms % 2 == 0 {
                now += wait_ms * 1_000_000;
                flows.look(now);
                model.look(now);
            }
        }
        now += 1;
        flows.look(now);
        model.look(now);
        let span = flows.span(now);
        let all = (now - 1000) / span.part_ns;
        prop_assert!(span.parts as u64 == all.min(8) && all < 16);
        let start_ns = 1000 + (all - span.parts as u64) * span.part_ns;
        prop_assert_eq!(span.span_ns, now - start_ns);
        for number in 0..6 {
            let flow = flows.of(key(number));
            let [allocs, frees, _] = model.at(model.looks.len() - 1, number);
            let before = model.looks.iter().position(|(now, _)| *now >= start_ns).expect("a look");
            let [allocs_before, frees_before, _] = if all > 8 { model.at(before, number) } else { [0; 3] };
            prop_assert_eq!((flow.all_allocs, flow.all_frees), (allocs, frees));
            prop_assert_eq!((flow.allocs, flow.frees), (allocs - allocs_before, frees - frees_before));
            for (part, least) in (0..).zip(&flow.least[..span.parts]) {
                let part_ns = start_ns + part * span.part_ns;
                prop_assert_eq!(*least, model.least(number, part_ns, part_ns + span.part_ns), "{} {}", number, part);
            }
        }
    }
}

#[test]
fn places_without_anything_outstanding_are_dropped() {
    let mut flows = Flows::default();
    let all = 3 * MAX_IDLE;
    for (number, stack) in STACKS[..all].iter().enumerate() {
        flows.allocated(Some(*stack), 1, 1, CacheTag::default());
        if number % 3 > 0 {
            flows.freed(Some(*stack), 1, 1);
        }
    }
    assert_eq!(flows.accounts.len(), all);
    flows.look(1);
    assert_eq!((flows.accounts.len(), flows.numbers.len()), (MAX_IDLE, MAX_IDLE));
    // Places that stay are found, and so is a place that returns.
    let sums = |flows: &Flows, number: usize| {
        let flow = flows.of(FlowKey::of(Some(STACKS[number]), 1));
        (flow.all_allocs, flow.all_frees)
    };
    let found = [0, 3, 4, all - 3].map(|number| sums(&flows, number));
    assert_eq!(found, [(1, 0), (1, 0), (0, 0), (1, 0)]);
    flows.allocated(Some(STACKS[4]), 1, 1, CacheTag::default());
    flows.freed(Some(STACKS[3]), 1, 1);
    flows.look(2);
    assert_eq!([3, 4].map(|number| sums(&flows, number)), [(1, 1), (1, 0)]);
    assert_eq!(flows.accounts.len(), MAX_IDLE + 1);
}

#[test]
fn a_place_has_the_caches_of_its_objects() {
    let mut flows = Flows::default();
    for first in [0, 4] {
        let mut take = |number: u32, name: &str, bytes| {
            flows.takes(first + number, bytes, CacheTag::of(cache(), bytes, &raw(name)));
        };
        take(0, "TCP", 2432);
        take(0, "UDP", 1344);
        take(0, "TCP", 2432);
        for (name, bytes) in [("a\x1b", 8), ("b", 8), ("cc", 8), ("ddd", 8)] {
            take(1, name, bytes);
        }
        flows.takes(first + 2, 8, CacheTag::default());
        // Records that end too early, and names that lie outside of their record.
        flows.takes(first + 3, 8, CacheTag::of(cache(), 8, &[1, 2]));
        flows.takes(first + 3, 8, CacheTag::of(cache(), 8, &[0xff; 4]));
        flows.look(1);
        let set = |names: &[&str]| {
            let mut set = WordSet::default();
            names.iter().for_each(|name| set.add(name.as_bytes()));
            set
        };
        let found = [0, 1, 2, 3].map(|number| flows.of(key(first + number)));
        let want = [set(&["TCP", "UDP"]), set(&["a\x1b", "b", "cc", "ddd"]), set(&[]), set(&[])];
        assert_eq!(found.each_ref().map(|flow| flow.caches.clone()), want, "{first}");
        assert_eq!(found.map(|flow| flow.all_allocs), [3, 4, 1, 2], "{first}");
    }
}

#[test]
fn what_was_not_freed_after_all_is_outstanding() {
    for number in [1, 5] {
        let mut flows = Flows { has_sizes: true, ..Flows::default() };
        let (stack, owner) = place(number);
        flows.takes(number, 10, CacheTag::default());
        flows.gives(number, 10);
        flows.restored(stack, owner, 10);
        flows.look(FIRST_PART_NS);
        flows.look(2 * FIRST_PART_NS);
        let flow = flows.of(key(number));
        assert_eq!((flow.all_allocs, flow.all_frees, flow.least[..2].to_vec()), (1, 0, vec![0, 10]));
    }
}
