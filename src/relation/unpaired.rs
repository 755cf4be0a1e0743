//! How many events were in no pair, and why, in words and as totals of a report.

use crate::report::{Report, Value, Verdict};
use crate::stats::PairCounts;

/// How many events were in no pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpaired {
    pub pairs: PairCounts,
    /// Starts whose next event does not end their pair: with positions, an event that skips a position.
    pub skipped: u64,
    /// Starts whose next event was hidden; a filter might have dropped that event.
    pub hidden: u64,
}

impl Unpaired {
    /// The sum of both counts.
    #[must_use]
    pub fn and(self, other: Unpaired) -> Unpaired {
        let (one, two) = (self.pairs, other.pairs);
        let pairs = PairCounts {
            unmatched: one.unmatched + two.unmatched,
            doubtful: one.doubtful + two.doubtful,
            reopened: one.reopened + two.reopened,
            expired: one.expired + two.expired,
            no_room: one.no_room + two.no_room,
        };
        Unpaired { pairs, skipped: self.skipped + other.skipped, hidden: self.hidden + other.hidden }
    }

    /// The counts that are not 0, in words. None: all counts are 0.
    pub fn in_words(&self) -> Option<String> {
        let words = self.named().into_iter().filter(|(count, ..)| *count > 0);
        let words: Vec<String> = words
            .map(|(count, _, [one, several])| format!("{count} {}", if count == 1 { one } else { several }))
            .collect();
        (!words.is_empty()).then(|| format!("in no pair: {}", words.join(", ")))
    }

    /// The verdict on rows that follows from the counts. `misses_cpus`: pairs may go through CPUs whose events are not
    /// seen.
    pub fn verdict(&self, misses_cpus: bool) -> Verdict {
        match misses_cpus {
            true => Verdict::Unsure,
            false if self.pairs.doubtful > 0 => Verdict::Discarded,
            false => Verdict::Exact,
        }
    }

    /// Adds the counts to a report.
    pub fn report(&self, report: &mut Report) {
        for (count, key, _) in self.named() {
            report.total(key, Value::Unsigned(count));
        }
    }

    fn named(&self) -> [(u64, &'static str, [&'static str; 2]); 7] {
        let PairCounts { unmatched, doubtful, reopened, expired, no_room } = self.pairs;
        [
            (unmatched, "ends_alone", ["end without a start", "ends without a start"]),
            (
                reopened,
                "starts_again",
                ["start before another start of its key", "starts before another start of their key"],
            ),
            (
                self.skipped,
                "skipped",
                ["start whose next event skips a position", "starts whose next event skips a position"],
            ),
            (self.hidden, "hidden", ["start whose next event was hidden", "starts whose next event was hidden"]),
            (expired, "expired", ["start that expired", "starts that expired"]),
            (no_room, "no_room", ["start for which there was no room", "starts for which there was no room"]),
            (doubtful, "doubtful", ["pair across lost records", "pairs across lost records"]),
        ]
    }
}
