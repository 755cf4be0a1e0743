//! The meanings of the columns of a table of lengths, for its schema.

use crate::report::LATENCY_MEANINGS;

/// A column's key, and its meaning.
type Meaning = (&'static str, &'static str);

/// The meanings of a table's own columns, and behind them those of lengths.
pub const fn with_lengths<const OWN: usize, const ALL: usize>(own: [Meaning; OWN]) -> [Meaning; ALL] {
    assert!(ALL == OWN + LATENCY_MEANINGS.len());
    let mut all = [("", ""); ALL];
    let mut index = 0;
    while index < ALL {
        all[index] = if index < OWN { own[index] } else { LATENCY_MEANINGS[index - OWN] };
        index += 1;
    }
    all
}
