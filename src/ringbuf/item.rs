//! What the merge delivers.

/// The time of a record, and how the merge orders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// An ordinary record and its time.
    At(u64),
    /// A record about the drops before it, and its own time. The kernel stamps it *after* the
    /// record that follows it, so it keeps its position in its ring.
    Here(u64),
    /// No time can be found: the record is counted and skipped.
    Bad,
}

/// One delivery.
#[derive(Debug)]
pub struct Item<'a> {
    /// The index that [`Merge::add`](super::Merge::add) gave.
    pub ring: usize,
    /// The record's own stamp. For a gap: the time up to which records may be missing.
    pub time: u64,
    /// Stamp of the previous `Stamp::At` record delivered from this ring, 0 if there was none. With `time`, the window
    /// of a loss: every dropped record is stamped within it. (Exception: if a record is dropped, but not the record of
    /// the interrupt that came inside of it, its stamp is slightly earlier.)
    pub after: u64,
    /// A record with a higher stamp was delivered before, from this ring or another.
    /// Never set for gaps and `Stamp::Here`.
    pub late: bool,
    pub kind: ItemKind<'a>,
}

#[derive(Debug)]
pub enum ItemKind<'a> {
    Record(&'a [u8]),
    /// Records of this ring are missing here: the caller reported it with [`Merge::mark_gap`](super::Merge::mark_gap).
    Gap,
    /// As `Gap`, but because corrupt bytes were skipped. No lost counter includes these.
    Corrupt,
}
