//! The descendants of processes, found in /proc.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::{Host, processes};
use crate::task::thread_reader::ask_states;

/// The living descendants of `pids`, in no order, without `but` and its descendants. Descendants whose parent has
/// exited are not included.
pub fn family(host: &Host, pids: &[i32], but: i32) -> Vec<i32> {
    let mut children: FxHashMap<i32, Vec<i32>> = FxHashMap::default();
    ask_states(host, &processes(host), |seen| children.entry(seen.stat.parent).or_default().push(seen.tid));
    let (mut met, mut family) = (FxHashSet::from_iter(pids.iter().copied().chain([but])), pids.to_vec());
    let mut index = 0;
    while let Some(parent) = family.get(index) {
        let born = children.remove(parent).unwrap_or_default();
        family.extend(born.into_iter().filter(|child| met.insert(*child)));
        index += 1;
    }
    family.split_off(pids.len())
}
