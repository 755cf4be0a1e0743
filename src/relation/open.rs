//! Starts that wait for their ends: those that have waited for long enough to have a line, and the oldest of each group.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::profiler::{Context, Timestamp};
use crate::relation::{Declaration, OpenStart, Relation};
use crate::stats::TopK;

/// Starts that have had a line.
#[derive(Debug)]
pub struct OpenLines<K> {
    /// By key: the time of the start, and the age at which it has its next line.
    told: FxHashMap<K, ToldStart>,
    next_look: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct ToldStart {
    since: u64,
    next_age_ns: u64,
}

/// Starts that wait, and the oldest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingStarts<K, S> {
    pub count: u64,
    pub key: K,
    pub oldest: OpenStart<S>,
}

impl<K> Default for OpenLines<K> {
    fn default() -> OpenLines<K> {
        OpenLines { told: FxHashMap::default(), next_look: 0 }
    }
}

impl<D: Declaration> Relation<D> {
    /// The starts that have waited for `--than` and have a line now: the oldest 16, once a second, each again when its age has
    /// doubled.
    pub(super) fn open_lines(&mut self, now: Timestamp) -> Vec<(D::Key, OpenStart<D::Start>)> {
        const PAUSE_NS: u64 = 1_000_000_000;
        const LIMIT: usize = 16;
        if now < self.open_lines.next_look {
            return Vec::new();
        }
        self.open_lines.next_look = now.saturating_add(PAUSE_NS);
        self.due(now, LIMIT, |due_age, age_ns| due_age.is_none_or(|due| due <= age_ns))
    }

    /// As the run ends: as [`Relation::tick`], with the oldest 100 of the starts that have had no line.
    pub fn open_lines_at_end(&mut self, now: Timestamp, ctx: &mut Context) -> Vec<(D::Key, OpenStart<D::Start>)> {
        const LIMIT: usize = 100;
        self.drop_doubtful(now, ctx);
        self.due(now, LIMIT, |due_age, _| due_age.is_none())
    }

    /// The oldest starts that have waited for `--than` at `now` and of which `is_due` says so, by the age of the next line (None:
    /// there was none yet), and their age.
    fn due(
        &mut self,
        now: Timestamp,
        limit: usize,
        is_due: impl Fn(Option<u64>, u64) -> bool,
    ) -> Vec<(D::Key, OpenStart<D::Start>)> {
        let Some(than) = self.lengths.than_ns() else { return Vec::new() };
        // Others choose how many are due: only those that get a line are kept.
        let mut due = TopK::new(limit);
        let mut still_told = FxHashMap::default();
        for (key, start) in self.pairs.still_open(now).filter(|(key, _)| self.declared.waits_on(key)) {
            let age_ns = now.saturating_sub(start.since);
            let told = self.open_lines.told.get(key).filter(|told| told.since == start.since);
            if let Some(told) = told {
                still_told.insert(*key, *told);
            }
            if age_ns >= than && is_due(told.map(|told| told.next_age_ns), age_ns) {
                due.offer(Reverse((start.since, start.open.tid)), (*key, *start));
            }
        }
        self.open_lines.told = still_told;
        let due: Vec<(D::Key, OpenStart<D::Start>)> = due.into_sorted().into_iter().map(|(_, due)| due).collect();
        for (key, start) in &due {
            let next_age_ns = now.saturating_sub(start.since).saturating_mul(2);
            self.open_lines.told.insert(*key, ToldStart { since: start.since, next_age_ns });
        }
        due
    }

    /// The starts that wait at `now`, by `group`.
    pub fn waiting_by<G: Eq + Hash>(
        &mut self,
        now: Timestamp,
        group: impl Fn(&D::Key, &OpenStart<D::Start>) -> G,
    ) -> FxHashMap<G, WaitingStarts<D::Key, D::Start>> {
        let mut groups = FxHashMap::default();
        for (key, start) in self.pairs.still_open(now).filter(|(key, _)| self.declared.waits_on(key)) {
            match groups.entry(group(key, start)) {
                Entry::Vacant(place) => {
                    place.insert(WaitingStarts { count: 1, key: *key, oldest: *start });
                }
                Entry::Occupied(place) => {
                    let known = place.into_mut();
                    known.count += 1;
                    if start.since < known.oldest.since {
                        (known.key, known.oldest) = (*key, *start);
                    }
                }
            }
        }
        groups
    }
}
