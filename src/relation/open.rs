//! Starts that wait for their ends: lines for those that have waited for long enough, and the oldest start of each
//! group.

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
    /// By key: the time of the start, and the age at which the start gets its next line.
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
    /// The starts that have waited for at least `--than` and get a line now: the oldest 16, once a second; each gets
    /// its next line when its age has doubled.
    pub(super) fn open_lines(&mut self, now: Timestamp) -> Vec<(D::Key, OpenStart<D::Start>)> {
        const PAUSE_NS: u64 = 1_000_000_000;
        const LIMIT: usize = 16;
        if now < self.open_lines.next_look {
            return Vec::new();
        }
        self.open_lines.next_look = now.saturating_add(PAUSE_NS);
        self.due(now, LIMIT, |due_age, age_ns| due_age.is_none_or(|due| due <= age_ns))
    }

    /// At the end of the run: as [`Relation::tick`], but returns the oldest 100 starts that have had no line yet.
    pub fn open_lines_at_end(&mut self, now: Timestamp, ctx: &mut Context) -> Vec<(D::Key, OpenStart<D::Start>)> {
        const LIMIT: usize = 100;
        self.drop_doubtful(now, ctx);
        self.due(now, LIMIT, |due_age, _| due_age.is_none())
    }

    /// The oldest starts, with their ages, that have waited for at least `--than` at `now` and are due for a line.
    /// `is_due`: decides by the age of the start's next line (None: it has had none yet) and its present age.
    fn due(
        &mut self,
        now: Timestamp,
        limit: usize,
        is_due: impl Fn(Option<u64>, u64) -> bool,
    ) -> Vec<(D::Key, OpenStart<D::Start>)> {
        let Some(than) = self.lengths.than_ns() else { return Vec::new() };
        // The traced programs decide how many starts are due, so only those that get a line are kept.
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

    /// The starts that wait at `now`, grouped by `group`.
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

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::cli::LatencyArgs;
    use crate::relation::{EventMoment, PairEnd, RelationKey, RelationTerms, RowKey};
    use crate::stats::SumKey;
    use crate::task::Comm;

    /// Pairs by a number; those with odd numbers may be given up unseen.
    #[derive(Debug)]
    struct AgedPairs;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct AgedRow;

    impl SumKey for AgedRow {
        fn others(&self) -> AgedRow {
            AgedRow
        }
    }

    impl RowKey for AgedRow {}

    impl Declaration for AgedPairs {
        type Key = RelationKey;
        type Start = ();
        type End = ();
        type Row = AgedRow;
        type Sums = ();

        fn row(&self, _key: &RelationKey, _start: &OpenStart<()>, _end: &PairEnd<()>) -> AgedRow {
            AgedRow
        }

        fn waits_on(&self, key: &RelationKey) -> bool {
            matches!(key, RelationKey::Number(number) if number % 2 == 0)
        }
    }

    /// A relation with starts of these keys at 10 ms, 20 ms, ...; starts that wait for 50 ms get lines.
    fn relation(keys: &[u64]) -> Relation<AgedPairs> {
        let args = LatencyArgs::augment_args(Command::new("x")).get_matches_from(["x", "--than", "50ms"]);
        let lengths = LatencyArgs::from_arg_matches(&args).unwrap();
        let mut relation = Relation::new(AgedPairs, RelationTerms { lengths, ..RelationTerms::default() });
        for (time, key) in (1..).zip(keys) {
            let at = EventMoment { time: time * 10_000_000, cpu: 0, pid: 1, tid: 1 };
            relation.start(RelationKey::Number(*key), at, Comm::default(), None, ());
        }
        relation
    }

    fn keys(lines: Vec<(RelationKey, OpenStart<()>)>) -> Vec<u64> {
        let number = |(key, _)| if let RelationKey::Number(number) = key { number } else { u64::MAX };
        lines.into_iter().map(number).collect()
    }

    #[test]
    fn a_start_has_a_line_again_when_its_age_has_doubled() {
        const SECOND: u64 = 1_000_000_000;
        let mut relation = relation(&[2, 3, 4, 6]);
        assert_eq!(keys(relation.open_lines(80_000_000)), [2, 4], "the oldest first; 6 is too young, 3 may be gone");
        assert!(keys(relation.open_lines(90_000_000)).is_empty(), "once a second");
        assert_eq!(keys(relation.open_lines(2 * SECOND)), [2, 4, 6]);
        assert!(keys(relation.open_lines(3 * SECOND)).is_empty());
        assert_eq!(keys(relation.open_lines(4 * SECOND)), [2, 4, 6]);
        relation.forget(RelationKey::Number(4));
        assert_eq!(keys(relation.open_lines(8 * SECOND)), [2, 6]);
        assert!(keys(relation.due(9 * SECOND, 100, |due_age, _| due_age.is_none())).is_empty(), "all have had one");
    }

    #[test]
    fn starts_that_wait_are_grouped() {
        let mut relation = relation(&[8, 2, 3, 4]);
        let groups = relation.waiting_by(100_000_000, |key, _| *key == RelationKey::Number(8));
        let of = |is_8: bool| groups.get(&is_8).map(|waiting| (waiting.count, waiting.key, waiting.oldest.since));
        assert_eq!(of(true), Some((1, RelationKey::Number(8), 10_000_000)));
        assert_eq!(of(false), Some((2, RelationKey::Number(2), 20_000_000)));
    }
}
