//! How far a number can be trusted.

/// How far the numbers of a row can be trusted, the best verdict first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing that belongs to the row is missing.
    #[default]
    Exact,
    /// The row is estimated from samples; its error depends on their number.
    Estimate,
    /// No record is missing, but pairs that contradicted other records, or came too late, were discarded.
    Discarded,
    /// Records are missing: counts and sums are lower bounds.
    LowerBound,
    /// Records are missing, and some things that the row counts may have ended.
    Unsure,
}

impl Verdict {
    /// The verdict in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Estimate => "estimate",
            Verdict::Discarded => "discarded",
            Verdict::LowerBound => "lower_bound",
            Verdict::Unsure => "unsure",
        }
    }

    /// The mark in front of a row of text, and its meaning.
    pub fn mark(self) -> Option<(&'static str, &'static str)> {
        match self {
            Verdict::Exact | Verdict::Estimate => None,
            Verdict::Discarded => Some((" ~", "but for pairs that were discarded or seen in part")),
            Verdict::LowerBound => Some((">=", "at least so much: records were lost or left out")),
            Verdict::Unsure => Some((" ?", "some of it may be gone: records were lost, or calls not seen")),
        }
    }

    /// The worse of two verdicts on the same row; an estimate stays an estimate, since it does not need every sample.
    #[must_use]
    pub fn and(self, other: Verdict) -> Verdict {
        if self == Verdict::Estimate { self } else { self.max(other) }
    }
}
