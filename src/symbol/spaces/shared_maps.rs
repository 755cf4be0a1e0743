//! The lists of what processes have mapped. A process shares its list with its forked children until one of them
//! changes it, and the user of a process pays for each list: a program with many mappings decides how often it forks.

use std::sync::Arc;

use crate::symbol::budget::{Budget, Share};
use crate::symbol::spaces::mappings::Mappings;
use crate::symbol::unnamed::UnnamedReason;

/// Reason for an address of a process whose mappings are not kept.
pub(super) const NO_ROOM_FOR_MAPPINGS: UnnamedReason = "too much is mapped by its user";
/// Reason for an address that one of the mappings may have that are not kept.
const TOO_MANY_MAPPINGS: UnnamedReason = "too many mappings in its process";

/// Stands for the user of a process that was gone before its user was known.
pub(super) const UNKNOWN_USER: u32 = u32::MAX;

/// The list of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedMappings {
    list: Arc<PaidMappings>,
    /// Bytes that the user's budget had no room for.
    refused: Option<u64>,
}

#[derive(Debug, Default)]
struct PaidMappings {
    maps: Mappings,
    share: Option<Share>,
}

impl SharedMappings {
    pub fn get(&self) -> &Mappings {
        &self.list.maps
    }

    /// Why an address may be missing though it is mapped.
    pub fn why_missing(&self) -> Option<UnnamedReason> {
        if self.refused.is_some() {
            return Some(NO_ROOM_FOR_MAPPINGS);
        }
        self.get().is_partial().then_some(TOO_MANY_MAPPINGS)
    }

    /// True when there may be room for the list that was refused.
    pub fn may_fit(&self, budget: &Budget, user: u32) -> bool {
        self.refused.is_none_or(|bytes| bytes <= budget.room(&[user]))
    }

    /// Changes the list of this process only. Without room for the changed list the process has none: a part of it
    /// would be no better, and the old list is wrong.
    pub fn change(&mut self, budget: &Budget, user: u32, change: impl FnOnce(&mut Mappings)) {
        if Arc::get_mut(&mut self.list).is_none() {
            let maps = &self.list.maps;
            let Some(share) = budget.take(maps.bytes() as u64, &[user]) else { return self.refuse() };
            self.list = Arc::new(PaidMappings { maps: maps.clone(), share: Some(share) });
        }
        let Some(list) = Arc::get_mut(&mut self.list) else { return };
        change(&mut list.maps);
        if !list.pay(budget, user) {
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        let refused = Some(self.get().bytes() as u64);
        *self = SharedMappings { refused, ..SharedMappings::default() };
    }
}

impl PaidMappings {
    /// Takes the memory of the list from the user's budget. False: there is no room.
    fn pay(&mut self, budget: &Budget, user: u32) -> bool {
        let bytes = self.maps.bytes() as u64;
        match &mut self.share {
            Some(share) => share.set(bytes),
            None => {
                self.share = budget.take(bytes, &[user]);
                self.share.is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::spaces::mappings::Mapping;
    use crate::symbol::spaces::module::{Content, Module};

    const USER: u32 = 7;

    fn page(number: u64) -> Mapping {
        let module = Arc::new(Module::new("/a", Content::Unnamed { reason: "", map: None }));
        Mapping::new((number * 0x1000, (number + 1) * 0x1000), 0, module)
    }

    fn pages(budget: &Budget, count: u64) -> SharedMappings {
        let mut maps = SharedMappings::default();
        maps.change(budget, USER, |maps| (1..=count).for_each(|number| maps.insert(page(number))));
        maps
    }

    fn has(maps: &SharedMappings, number: u64) -> bool {
        maps.get().find(number * 0x1000).is_some()
    }

    /// A process with many mappings forks, and maps one page more after each fork.
    #[test]
    fn forks_take_no_more_than_their_user_may_have() {
        let budget = Budget::halved(2 << 20);
        let room = budget.room(&[USER]);
        let mut parent = pages(&budget, 1000);
        let took = room - budget.room(&[USER]);
        assert!(took > 60_000, "{took}");
        let mut children: Vec<SharedMappings> = (0..1000).map(|_| parent.clone()).collect();
        assert_eq!(room - budget.room(&[USER]), took, "they share the list");
        let mut kept = 0;
        for (number, child) in (0..).zip(&mut children) {
            child.change(&budget, USER, |maps| maps.insert(page(2000 + number)));
            kept += usize::from(has(child, 1));
            assert_eq!(has(child, 1), child.why_missing().is_none());
            assert_eq!(has(child, 1), has(child, 2000 + number));
        }
        assert!((4..room as usize / 60_000).contains(&kept), "{kept}");
        assert!(has(&parent, 1) && budget.room(&[8]) >= room / 2, "others have room");
        let last = children.last_mut().expect("many");
        assert!(!last.may_fit(&budget, USER) && last.may_fit(&budget, 8));
        last.change(&budget, USER, |maps| maps.insert(page(5)));
        assert!(has(last, 5) && last.why_missing() == Some(NO_ROOM_FOR_MAPPINGS), "a part of what is mapped");
        children.truncate(1);
        assert!(children[0].may_fit(&budget, USER));
        parent.change(&budget, USER, |maps| maps.insert(page(3000)));
        assert!(has(&parent, 3000) && !has(&children[0], 3000));
        drop((parent, children));
        assert_eq!(budget.room(&[USER]), room);
    }

    #[test]
    fn a_list_that_grows_is_paid_for() {
        let budget = Budget::halved(2 << 20);
        let mut maps = pages(&budget, 1);
        let mut number = 1;
        while maps.why_missing().is_none() {
            number += 1;
            assert!(number < 100_000);
            maps.change(&budget, USER, |maps| maps.insert(page(number)));
        }
        assert!(number > 5_000 && !has(&maps, 1), "{number}");
        assert_eq!(budget.room(&[USER]), 1 << 20);
    }
}
