//! Live allocations by address: one table per address space.
//!
//! A record takes 32 bytes in a slab that grows by chunks, so that little is copied when it grows. The index takes 8
//! bytes per slot, including half of the hash, so that a search reads hardly any record but the wanted one.

use std::num::NonZeroUsize;

use crate::symbol::StackId;

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAllocation {
    pub ptr: u64,
    /// ns, CLOCK_MONOTONIC.
    pub time: u64,
    /// 0: not known.
    pub bytes: u64,
    pub stack: Option<StackId>,
    /// The number of the task in `owners`.
    pub owner: u32,
}

const _: () = assert!(size_of::<LiveAllocation>() == 32);

/// Live allocations of one address space.
#[derive(Debug, Default)]
pub struct Pointers {
    slab: AllocationSlab,
    /// Slots by hash, linear probing: the upper half of the hash, and the record number plus 1. 0: empty.
    slots: Box<[u64]>,
    len: usize,
}

/// Initial number of slots.
const FEWEST_SLOTS: usize = 64;
/// The greatest share of used slots: a higher share makes the runs of full slots longer, and no CPU predicts their
/// length.
const FULL: (usize, usize) = (5, 8);

impl Pointers {
    /// Adds a record. Returns the record that had the same address, whose free was not seen. A table with 2^32 records
    /// accepts no more.
    #[inline(always)] // otherwise the record is copied twice
    pub fn insert(&mut self, record: LiveAllocation) -> Option<LiveAllocation> {
        if (self.len + 1) * FULL.1 > self.slots.len() * FULL.0 {
            self.grow();
        }
        let hash = hash(record.ptr);
        match self.find(record.ptr, hash) {
            Ok((_, number)) => {
                let known = self.slab.get_mut(number)?;
                Some(std::mem::replace(known, record))
            }
            Err(at) => {
                let (number, place) = self.slab.room()?;
                *place = record;
                *self.slots.get_mut(at)? = slot(hash, number);
                self.len += 1;
                None
            }
        }
    }

    /// The record of the allocation at an address.
    #[inline]
    pub fn get(&self, ptr: u64) -> Option<&LiveAllocation> {
        let (_, number) = self.find(ptr, hash(ptr)).ok()?;
        self.slab.get(number)
    }

    /// Removes the record of an address, unless it is newer than `time`.
    #[cfg(test)]
    pub fn remove_until(&mut self, ptr: u64, time: u64) -> Option<LiveAllocation> {
        self.take_until(ptr, time, |_| {})
    }

    /// Like `remove_until`. `seen` gets the record first, so that values it needs are not kept until the slot is
    /// closed.
    #[inline(always)] // most callers read only a part of the record
    pub fn take_until(&mut self, ptr: u64, time: u64, seen: impl FnOnce(&LiveAllocation)) -> Option<LiveAllocation> {
        let (at, number) = self.find(ptr, hash(ptr)).ok()?;
        let record = self.slab.take_until(number, time)?;
        seen(&record);
        self.close(at);
        self.len -= 1;
        Some(record)
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &LiveAllocation> {
        self.slots.iter().filter(|slot| **slot != 0).filter_map(|slot| self.slab.get(number(*slot)))
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The slot of an address, and the record number in it; else the empty slot where the address belongs.
    #[inline(always)]
    fn find(&self, ptr: u64, hash: u32) -> Result<(usize, u32), usize> {
        let slots = &*self.slots;
        let mask = slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(&slot) = slots.get(at)
            && slot != 0
        {
            if (slot >> 32) as u32 == hash && self.slab.get(number(slot)).is_some_and(|record| record.ptr == ptr) {
                return Ok((at, number(slot)));
            }
            at = (at + 1) & mask;
        }
        Err(at)
    }

    /// Puts a slot into the first free position from its home on. There is room.
    fn place(&mut self, slot: u64) {
        let mask = self.mask();
        let mut at = home(slot) & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Empties a slot: the slots after it move up, at most to their homes.
    #[inline]
    fn close(&mut self, mut hole: usize) {
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            // A slot may be anywhere from its home on.
            let (from_home, from_hole) = (at.wrapping_sub(home(slot)) & mask, at.wrapping_sub(hole) & mask);
            if from_home >= from_hole {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(FEWEST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![0; len].into_boxed_slice());
        old.iter().filter(|slot| **slot != 0).for_each(|slot| self.place(*slot));
    }
}

/// All bits of an address must affect the hash: the addresses of allocators end in zeros.
#[inline]
fn hash(ptr: u64) -> u32 {
    // The multiplier of splitmix64's finalizer.
    let mixed = (ptr ^ ptr >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 32) as u32
}

fn slot(hash: u32, number: u32) -> u64 {
    u64::from(hash) << 32 | (u64::from(number) + 1)
}

fn home(slot: u64) -> usize {
    (slot >> 32) as usize
}

fn number(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// Records by number, in chunks. Records never move, except in the first chunk, which grows up to its full size.
#[derive(Debug, Default)]
struct AllocationSlab {
    chunks: Vec<Vec<LiveAllocation>>,
    /// Numbers used so far.
    used: u32,
    /// The first free number plus 1; its record holds the next free number.
    free: Option<NonZeroUsize>,
}

/// Records in a chunk: a mebibyte.
const CHUNK: usize = 1 << 15;

impl AllocationSlab {
    /// Index of the chunk, and index in the chunk.
    #[inline(always)]
    fn place_of(number: u32) -> (usize, usize) {
        (number as usize / CHUNK, number as usize % CHUNK)
    }

    #[inline(always)]
    fn get(&self, number: u32) -> Option<&LiveAllocation> {
        let (chunk, at) = AllocationSlab::place_of(number);
        self.chunks.get(chunk)?.get(at)
    }

    #[inline(always)]
    fn get_mut(&mut self, number: u32) -> Option<&mut LiveAllocation> {
        let (chunk, at) = AllocationSlab::place_of(number);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    /// A free record, and its number. It holds no allocation, but the next free number.
    #[inline(always)]
    fn room(&mut self) -> Option<(u32, &mut LiveAllocation)> {
        let Some(free) = self.free else { return self.grow() };
        let number = u32::try_from(free.get() - 1).ok()?;
        let (chunk, at) = AllocationSlab::place_of(number);
        let place = self.chunks.get_mut(chunk)?.get_mut(at)?;
        self.free = usize::try_from(place.ptr).ok().and_then(NonZeroUsize::new);
        Some((number, place))
    }

    #[inline(never)]
    fn grow(&mut self) -> Option<(u32, &mut LiveAllocation)> {
        let number = self.used;
        self.used = self.used.checked_add(1)?;
        let (chunk, _) = AllocationSlab::place_of(number);
        if chunk >= self.chunks.len() {
            self.chunks.push(Vec::with_capacity(if chunk == 0 { 0 } else { CHUNK }));
        }
        let chunk = self.chunks.get_mut(chunk)?;
        chunk.push(LiveAllocation { ptr: 0, time: 0, bytes: 0, stack: None, owner: 0 });
        chunk.last_mut().map(|place| (number, place))
    }

    /// Removes a record, unless it is newer than `time`.
    #[inline(always)]
    fn take_until(&mut self, number: u32, time: u64) -> Option<LiveAllocation> {
        let next = self.free.map_or(0, NonZeroUsize::get) as u64;
        let place = self.get_mut(number)?;
        if place.time > time {
            return None;
        }
        let record = *place;
        place.ptr = next;
        self.free = NonZeroUsize::new(number as usize + 1);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn record(ptr: u64, time: u64) -> LiveAllocation {
        LiveAllocation { ptr, time, bytes: time * 3, stack: None, owner: 7 }
    }

    #[test]
    fn chunks_follow_each_other() {
        let mut table = Pointers::default();
        let most = 3 * CHUNK as u64 + 5;
        (0..most).for_each(|ptr| assert_eq!(table.insert(record(ptr, ptr)), None));
        assert_eq!(table.slab.chunks.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK, CHUNK, CHUNK, 5]);
        assert!((0..most).all(|ptr| table.get(ptr) == Some(&record(ptr, ptr))));
    }

    #[test]
    fn addresses_that_differ_little_are_spread() {
        let mut table = Pointers::default();
        for step in [1, 8, 64, 4096, 1 << 21, 1 << 32] {
            let ptr = |n: u64| 0xffff_8880_0000_0000 + n * step;
            (0..10_000).for_each(|n| assert_eq!(table.insert(record(ptr(n), n)), None));
            // The length of a search: the run of full slots after each home.
            let longest = table.slots.split(|slot| *slot == 0).map(<[u64]>::len).max().unwrap();
            assert!(longest < 400, "{longest} at {step}");
            (0..10_000).for_each(|n| assert!(table.remove_until(ptr(n), u64::MAX).is_some()));
            assert!(table.len == 0);
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut table = Pointers::default();
        for round in 0..100 {
            (0..1000).for_each(|ptr| assert_eq!(table.insert(record(ptr, round)), None));
            (0..1000).for_each(|ptr| assert_eq!(table.remove_until(ptr, u64::MAX), Some(record(ptr, round))));
        }
        assert_eq!((table.slab.used, table.len), (1000, 0));
    }

    #[test]
    fn a_reused_address_replaces() {
        let mut table = Pointers::default();
        assert_eq!(table.insert(record(0x10, 1)), None);
        assert_eq!(table.insert(record(0x10, 2)), Some(record(0x10, 1)));
        assert_eq!((table.len, table.get(0x10)), (1, Some(&record(0x10, 2))));
        assert_eq!(
            (table.remove_until(0x10, u64::MAX), table.remove_until(0x10, u64::MAX), table.get(0x10)),
            (Some(record(0x10, 2)), None, None)
        );
    }

    proptest! {
        /// Few addresses, so that they collide; some with hashes that are equal in the lower bits.
        #[test]
        fn does_what_a_map_does(steps in prop::collection::vec((any::<bool>(), 0..200_u64, 0..4_u32), 0..2000)) {
            let (mut table, mut model) = (Pointers::default(), HashMap::new());
            for (time, (adds, low, high)) in steps.into_iter().enumerate() {
                let ptr = low | u64::from(high) << 60;
                if adds {
                    let record = record(ptr, time as u64);
                    prop_assert_eq!(table.insert(record), model.insert(ptr, record));
                } else {
                    prop_assert_eq!(table.remove_until(ptr, u64::MAX), model.remove(&ptr));
                }
                prop_assert_eq!(table.len, model.len());
            }
            let mut all: Vec<LiveAllocation> = table.iter().copied().collect();
            let mut want: Vec<LiveAllocation> = model.values().copied().collect();
            all.sort_by_key(|record| record.ptr);
            want.sort_by_key(|record| record.ptr);
            prop_assert_eq!(all, want);
        }
    }
}
