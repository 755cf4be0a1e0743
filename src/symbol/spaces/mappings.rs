//! The executable mappings of one process.

use std::sync::{Arc, OnceLock};

use crate::symbol::spaces::maps_line::{MAX_MAPPINGS, leave_last_of_each};
use crate::symbol::spaces::module::Module;
use crate::unwind::{CodeRange, SpaceCode};

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    start: u64,
    end: u64,
    /// Offset of `start` in the file.
    offset: u64,
    module: Arc<Module>,
    /// Number of mappings of the process that were seen before this one.
    number: u32,
    /// The mapping has no file, and touches mappings of a file: it may be a copy of the file's code.
    may_be_copy: bool,
}

impl Mapping {
    pub fn new((start, end): (u64, u64), offset: u64, module: Arc<Module>) -> Mapping {
        // Memory without a file has a meaningless offset.
        let offset = if module.has_file() { offset } else { 0 };
        Mapping { start, end, offset, module, number: 0, may_be_copy: false }
    }

    /// Notes whether the mapping touches a mapping of a file.
    #[must_use]
    pub fn beside_file(self, is_beside: bool) -> Mapping {
        Mapping { may_be_copy: is_beside && !self.module.has_file(), ..self }
    }
}

/// The mappings of a process, sorted and without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    all: Vec<Mapping>,
    /// Number of mappings seen so far.
    seen: u32,
    /// Some mappings were left out.
    is_partial: bool,
    /// Some mappings may be copies of a file's code.
    may_have_copies: bool,
    /// Made when it is asked for.
    code: OnceLock<Arc<SpaceCode>>,
}

impl Mappings {
    /// Sorts the mappings by start. Where two overlap, the one with the higher start cuts the other.
    /// `is_partial`: there were more.
    pub fn of(mut seen: Vec<Mapping>, is_partial: bool) -> Mappings {
        seen.sort_by_key(|mapping| mapping.start);
        let mut all = Mappings { all: Vec::with_capacity(seen.len()), is_partial, ..Mappings::default() };
        seen.into_iter().for_each(|mapping| all.insert(mapping));
        all
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True when there were more mappings than are kept.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Memory of the mappings and of [`Mappings::code`], in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Mappings>() + self.all.capacity() * size_of::<Mapping>() + self.all.len() * size_of::<CodeRange>()
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.all.iter().map(|mapping| &*mapping.module)
    }

    /// The module mapped at an address, and the offset of the address in its file.
    pub fn find(&self, addr: u64) -> Option<(&Arc<Module>, u64)> {
        let at = self.all.partition_point(|mapping| mapping.start <= addr).checked_sub(1)?;
        let mapping = self.all.get(at).filter(|mapping| addr < mapping.end)?;
        Some((&mapping.module, (addr - mapping.start).wrapping_add(mapping.offset)))
    }

    /// Whether some of the code may be a copy of a file's.
    pub fn may_have_copies(&self) -> bool {
        self.may_have_copies
    }

    /// Notes that no mapping may be a copy any more: those that are copies were replaced.
    pub fn copies_are_known(&mut self) {
        self.all.iter_mut().for_each(|mapping| mapping.may_be_copy = false);
        self.may_have_copies = false;
    }

    /// The mappings as the unwinder needs them.
    pub fn code(&self) -> Arc<SpaceCode> {
        let range = |mapping: &Mapping| CodeRange {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            code: mapping.module.code.clone(),
        };
        self.code.get_or_init(|| Arc::new(SpaceCode::new(self.all.iter().map(range).collect()))).clone()
    }

    /// Adds a mapping, and cuts those that it overlaps. Beyond the limit, a quarter of the mappings is left out: no
    /// record says what was unmapped.
    pub fn insert(&mut self, new: Mapping) {
        let maps = &mut self.all;
        if new.start >= new.end {
            return;
        }
        let new = Mapping { number: self.seen, ..new };
        self.seen = self.seen.wrapping_add(1);
        let first = maps.partition_point(|old| old.end <= new.start);
        let last = maps.partition_point(|old| old.start < new.end);
        let of_file = |old: &Mapping| old.module.has_file() || old.may_be_copy;
        let new = if maps[first..last].iter().any(of_file) { new.beside_file(true) } else { new };
        self.may_have_copies |= new.may_be_copy;
        let mut pieces = Vec::with_capacity(3);
        for old in &maps[first..last] {
            if old.start < new.start {
                pieces.push(Mapping { end: new.start, ..old.clone() });
            }
            if old.end > new.end {
                pieces.push(Mapping {
                    start: new.end,
                    offset: old.offset.wrapping_add(new.end - old.start),
                    ..old.clone()
                });
            }
        }
        pieces.push(new);
        pieces.sort_by_key(|mapping| mapping.start);
        maps.splice(first..last, pieces);
        if maps.len() > MAX_MAPPINGS {
            maps.sort_unstable_by_key(|mapping| mapping.number);
            leave_last_of_each(maps, MAX_MAPPINGS / 4 * 3, |mapping| Arc::as_ptr(&mapping.module));
            maps.sort_unstable_by_key(|mapping| mapping.start);
            self.is_partial = true;
        }
        self.code.take();
    }

    /// Adds the mappings of `others` that overlap no mapping of this list.
    pub fn fill(&mut self, others: Mappings) {
        self.is_partial |= others.is_partial;
        for mapping in others.all {
            let first = self.all.partition_point(|old| old.end <= mapping.start);
            if self.all.get(first).is_none_or(|old| old.start >= mapping.end) {
                self.insert(mapping);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::symbol::Content;

    fn module(path: &str) -> Arc<Module> {
        Arc::new(Module::new(path, Content::Unnamed { reason: "", map: None }))
    }

    fn page(number: u64, module: &Arc<Module>) -> Mapping {
        let start = 0x10_0000 + number * 0x2000;
        Mapping::new((start, start + 0x1000), 0, module.clone())
    }

    /// A program may map one page after the other, at new addresses and at old ones, and unmap them: no record reports
    /// an unmap.
    #[test]
    fn a_mapping_beyond_the_most_cuts_the_earlier_ones() {
        let [code, made, later] = ["/code", "/made", "/later"].map(module);
        let mut maps = Mappings::default();
        maps.insert(page(0, &code));
        (1..=3 * MAX_MAPPINGS as u64).for_each(|number| maps.insert(page(number, &made)));
        let name = |maps: &Mappings, number: u64| {
            maps.find(0x10_0000 + number * 0x2000).map(|(module, _)| module.path.to_string())
        };
        let last = 3 * MAX_MAPPINGS as u64;
        assert!(maps.all.len() <= MAX_MAPPINGS && maps.is_partial());
        assert!(maps.all.is_sorted_by(|one, next| one.end <= next.start));
        assert_eq!((name(&maps, 0).as_deref(), name(&maps, last).as_deref()), (Some("/code"), Some("/made")));
        assert_eq!(name(&maps, 1), None, "rather no name than a wrong one");
        for number in [0, 7, last, last + 1] {
            maps.insert(page(number, &later));
            assert_eq!(name(&maps, number).as_deref(), Some("/later"), "{number}");
        }
        assert!(maps.all.len() <= MAX_MAPPINGS);
    }

    proptest! {
        /// Against a page table: the last mapping of a page has it.
        #[test]
        fn the_last_mapping_of_a_page_has_it(
            maps in prop::collection::vec((0_u64..24, 0_u64..9, 0_u64..1000), 0..40),
            fills in prop::collection::vec((0_u64..24, 1_u64..9), 0..6),
        ) {
            const PAGE: u64 = 0x1000;
            let (mut all, mut pages) = (Mappings::default(), [None; 40]);
            let files: Vec<Arc<Module>> = (0..48).map(|number| module(&format!("/{number}"))).collect();
            for (number, (start, len, offset)) in maps.into_iter().enumerate() {
                all.insert(Mapping::new((start * PAGE, (start + len) * PAGE), offset * PAGE, files[number].clone()));
                (0..len).for_each(|page| pages[(start + page) as usize] = Some((number, (offset + page) * PAGE)));
            }
            // Mappings that were read later are added where they overlap nothing.
            for (number, (start, len)) in (40..).zip(fills) {
                let file = &files[number];
                all.fill(Mappings::of(vec![Mapping::new((start * PAGE, (start + len) * PAGE), 0, file.clone())], false));
                let new = start as usize..(start + len) as usize;
                if pages[new.clone()].iter().all(Option::is_none) {
                    new.for_each(|page| pages[page] = Some((number, (page as u64 - start) * PAGE)));
                }
            }
            for (page, want) in pages.into_iter().enumerate() {
                let found = all.find(page as u64 * PAGE + 5);
                let want = want.map(|(number, offset)| (&files[number], offset + 5));
                prop_assert_eq!(found.map(|(file, offset)| (&file.path, offset)), want.map(|(file, offset)| (&file.path, offset)));
            }
        }
    }
}
