//! The report: rows by place, and the lines above them.

use crate::profilers::kmemleak::ledger::{Counts, Sum, Sums};
use crate::report::{Column, Join, Value};
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

const WIDTH: usize = 10;

/// The column that tells how many may have been freed.
pub const UNSURE: usize = 5;

/// The column that tells how many were freed unseen, for JSON alone: in text that is a mark.
pub const REPLACED: usize = 9;

pub static JOINS: [Join; WIDTH] = [
    Join::Sum,
    Join::Sum,
    Join::Greatest,
    Join::Least,
    Join::Sum,
    Join::Sum,
    Join::Heaviest,
    Join::Names,
    Join::Stack,
    Join::Sum,
];

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
        Column { key: "freed_unseen", heading: "" },
    ]
}

pub fn columns(shown: Shown) -> &'static [Column] {
    let at = usize::from(shown.bytes) | usize::from(shown.exited) << 1 | usize::from(shown.unsure) << 2;
    &COLUMNS[at]
}

/// The rows, in no order. `places`: they tell where.
pub fn rows(sums: &Sums, shown: Shown, places: bool, comm: impl Fn(u32) -> Comm) -> Vec<Vec<Value>> {
    let row = |(&(stack, owner), sum): (&_, &Sum)| {
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
            Value::Unsigned(sum.replaced),
        ]
    };
    sums.iter().map(row).collect()
}

/// All that is outstanding: objects, bytes.
pub fn outstanding(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |(allocs, bytes), sum| (allocs + sum.allocs, bytes.saturating_add(sum.bytes)))
}

/// `44000 bytes in 500 objects`
pub fn amount((allocs, bytes): (u64, u64), shown: Shown) -> String {
    let objects = if allocs == 1 { "object" } else { "objects" };
    if shown.bytes { format!("{bytes} bytes in {allocs} {objects}") } else { format!("{allocs} {objects}") }
}

/// What was counted since the start, in lines.
pub fn balance(counts: Counts) -> Vec<String> {
    let Counts { allocs, frees, unmatched, replaced, out_of_reach, unfinished } = counts;
    let unseen = if replaced > 0 { format!(", {replaced} freed unseen") } else { String::new() };
    let mut lines = vec![format!("{allocs} allocated, {} of them freed{unseen}", frees.saturating_sub(unmatched))];
    if unmatched > 0 {
        lines.push(format!("{unmatched} frees of what was allocated before the start, or unseen"));
    }
    if out_of_reach > 0 {
        lines.push(format!("{out_of_reach} left out: posix_memalign stored them where no sample reaches"));
    }
    if unfinished > 0 {
        lines.push(format!("{unfinished} calls left out: their return may be among what was lost"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_headings_where_they_say_something() {
        let headings = |shown: Shown| -> Vec<&str> {
            columns(shown).iter().map(|column| column.heading).filter(|heading| !heading.is_empty()).collect()
        };
        assert_eq!(headings(Shown::default()), ["objects", "oldest", "newest", "comm"]);
        let all = Shown { bytes: true, exited: true, unsure: true };
        assert_eq!(headings(all), ["bytes", "objects", "oldest", "newest", "exited", "unsure", "comm"]);
        assert_eq!(headings(Shown { unsure: true, ..Shown::default() })[3], "unsure");
    }

    #[test]
    fn sizes_that_nobody_knows_are_absent() {
        let sum = Sum { allocs: 2, bytes: 0, oldest_ns: 9, newest_ns: 5, exited: 0, unsure: 1, replaced: 0 };
        let sums: Sums = [((None, 1), sum)].into_iter().collect();
        let [row] = &rows(&sums, Shown::default(), false, |_| Comm::new(b"a"))[..] else { panic!() };
        assert_eq!(row.len(), WIDTH);
        assert_eq!(
            (&row[0], &row[1], &row[2], &row[8]),
            (&Value::None, &Value::Unsigned(2), &Value::Age(9), &Value::None)
        );
        assert_eq!(amount(outstanding(&sums), Shown::default()), "2 objects");
        assert_eq!(amount((1, 64), Shown { bytes: true, ..Shown::default() }), "64 bytes in 1 object");
    }

    #[test]
    fn the_balance_is_told() {
        let counts = Counts { allocs: 10, frees: 9, unmatched: 2, replaced: 1, unfinished: 3, ..Counts::default() };
        let want = [
            "10 allocated, 7 of them freed, 1 freed unseen",
            "2 frees of what was allocated before the start, or unseen",
            "3 calls left out: their return may be among what was lost",
        ];
        assert_eq!(balance(counts), want);
        assert_eq!(balance(Counts { allocs: 1, ..Counts::default() }), ["1 allocated, 0 of them freed"]);
    }
}
