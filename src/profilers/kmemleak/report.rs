//! The report: rows by place, and the lines above them.

use crate::profilers::kmemleak::ledger::{Counts, Sums};
use crate::stats::value::{Column, Join, Value};
use crate::task::Comm;

/// What a report needs to show, beside what it always shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Sizes are known.
    pub bytes: bool,
    /// Something is left of processes that have ended.
    pub exited: bool,
    /// Events were lost.
    pub unsure: bool,
}

const WIDTH: usize = 9;

pub static JOINS: [Join; WIDTH] =
    [Join::Sum, Join::Sum, Join::Greatest, Join::Least, Join::Sum, Join::Sum, Join::Heaviest, Join::Names, Join::Stack];

/// By what is shown: columns without a heading are for JSON alone.
static COLUMNS: [[Column; WIDTH]; 8] = {
    let mut all = [[Column { key: "", heading: "" }; WIDTH]; 8];
    let mut at = 0;
    while at < all.len() {
        all[at] = columns_of(at & 1 != 0, at & 2 != 0, at & 4 != 0);
        at += 1;
    }
    all
};

const fn columns_of(bytes: bool, exited: bool, unsure: bool) -> [Column; WIDTH] {
    const fn heading(heading: &'static str, shown: bool) -> &'static str {
        if shown { heading } else { "" }
    }
    [
        Column { key: "bytes", heading: heading("bytes", bytes) },
        Column { key: "allocs", heading: "objects" },
        Column { key: "oldest_ns", heading: "oldest" },
        Column { key: "newest_ns", heading: "newest" },
        Column { key: "exited", heading: heading("exited", exited) },
        Column { key: "unsure", heading: heading("unsure", unsure) },
        Column { key: "comm", heading: "" },
        Column { key: "comms", heading: "comm" },
        Column { key: "stack", heading: "" },
    ]
}

pub fn columns(shown: Shown) -> &'static [Column] {
    let at = usize::from(shown.bytes) | usize::from(shown.exited) << 1 | usize::from(shown.unsure) << 2;
    &COLUMNS[at]
}

/// The rows, in no order. `places`: they tell where.
pub fn rows(sums: &Sums, shown: Shown, places: bool, comm: impl Fn(u32) -> Comm) -> Vec<Vec<Value>> {
    let row = |(&(stack, owner), sum): (&_, &crate::profilers::kmemleak::ledger::Sum)| {
        vec![
            if shown.bytes { Value::Unsigned(sum.bytes) } else { Value::None },
            Value::Unsigned(sum.allocs),
            Value::Age(sum.oldest_ns),
            Value::Age(sum.newest_ns),
            Value::Unsigned(sum.exited),
            Value::Unsigned(sum.unsure),
            Value::Comm(comm(owner)),
            Value::None,
            if places { Value::Stack(stack) } else { Value::None },
        ]
    };
    sums.iter().map(row).collect()
}

/// All that is outstanding: objects, bytes.
pub fn outstanding(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |(allocs, bytes), sum| (allocs + sum.allocs, bytes.saturating_add(sum.bytes)))
}

/// `500 objects, 44000 bytes`
pub fn amount((allocs, bytes): (u64, u64), shown: Shown) -> String {
    let objects = if allocs == 1 { "object" } else { "objects" };
    if shown.bytes { format!("{bytes} bytes in {allocs} {objects}") } else { format!("{allocs} {objects}") }
}

/// What was counted since the start.
pub fn balance(counts: Counts) -> String {
    let Counts { allocs, frees, unmatched, replaced } = counts;
    let matched = frees.saturating_sub(unmatched);
    let mut line = format!("{allocs} allocated, {matched} of them freed");
    if replaced > 0 {
        line += &format!(", {replaced} freed unseen");
    }
    if unmatched > 0 {
        line += &format!("; {unmatched} frees of what was allocated before the start, or unseen");
    }
    line
}
