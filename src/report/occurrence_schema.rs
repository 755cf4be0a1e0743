//! The schema of one kind of single occurrences: its details by name, and the line of text for one of them.
//!
//! A line names its details. The names become indexes at compile time, so that a misspelt one does not compile.

use crate::report::Value;
use crate::report::layout::{DetailHead, GroupBy, LinePart, OccurrenceLayout};

/// What the occurrences of one kind have in common. `O` is the profiler's type of an occurrence.
#[derive(Debug)]
pub struct OccurrenceSchema<O: 'static> {
    details: &'static [Detail<O>],
    layout: OccurrenceLayout,
}

/// A detail of an occurrence: its name, and its value in an `O`.
#[derive(Debug)]
pub struct Detail<O: 'static> {
    head: DetailHead,
    value: fn(&O) -> Value,
}

impl<O> Detail<O> {
    pub const fn new(name: &'static str, value: fn(&O) -> Value) -> Detail<O> {
        Detail { head: DetailHead { name, alias: None, in_json: true }, value }
    }

    /// A detail with a second, older key in JSON.
    pub const fn aliased(name: &'static str, alias: &'static str, value: fn(&O) -> Value) -> Detail<O> {
        Detail { head: DetailHead { name, alias: Some(alias), in_json: true }, value }
    }

    /// A detail that is not in JSON: the line of text shows it, or depends on it.
    pub const fn text_only(name: &'static str, value: fn(&O) -> Value) -> Detail<O> {
        Detail { head: DetailHead { name, alias: None, in_json: false }, value }
    }
}

impl<O> OccurrenceSchema<O> {
    /// # Panics
    /// At compile time, for a static: two details have the same name, the details of an object are not adjacent, `line`
    /// names a detail that does not exist, or there are too many.
    pub const fn new(details: &'static [Detail<O>], line: &[LinePart]) -> OccurrenceSchema<O> {
        let mut layout = OccurrenceLayout::new();
        let mut at = 0;
        while at < details.len() {
            layout.push_detail(details[at].head);
            at += 1;
        }
        layout.push_parts(line);
        OccurrenceSchema { details, layout }
    }

    /// Groups occurrences in a flood: in text, equal ones share one line.
    ///
    /// # Panics
    /// At compile time, for a static: `by` names a detail that does not exist.
    #[must_use]
    pub const fn grouped(mut self, by: GroupBy) -> OccurrenceSchema<O> {
        self.layout.group(by);
        self
    }

    /// The line of a group has the commonest values of these details, and in `times` how many occurrences have them.
    /// Among those, numbers that differ are left out, and of durations the longest counts.
    ///
    /// # Panics
    /// At compile time, for a static: a detail does not exist, or occurrences are not grouped.
    #[must_use]
    pub const fn telling_commonest(mut self, names: &[&str], times: &str) -> OccurrenceSchema<O> {
        self.layout.tell_commonest(names, times);
        self
    }

    /// Text holds and groups occurrences with a true `folded` even without a flood; where they have no stack, by `place`,
    /// too. It has no line for those with a true `again`.
    ///
    /// # Panics
    /// At compile time, for a static: a detail does not exist, or occurrences are not grouped.
    #[must_use]
    pub const fn folding(mut self, folded: &str, again: &str, place: &[&str]) -> OccurrenceSchema<O> {
        self.layout.fold(folded, again, place);
        self
    }

    /// The part of the schema that does not depend on `O`.
    pub const fn layout(&self) -> &OccurrenceLayout {
        &self.layout
    }

    /// The values of the details of `occurrence`, in the order of the schema.
    #[inline]
    pub fn values<'a>(&self, occurrence: &'a O) -> impl ExactSizeIterator<Item = Value> + use<'a, O> {
        self.details.iter().map(|detail| (detail.value)(occurrence))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::report::layout::{detail, text, when};

    static ONE: [Detail<u64>; 4] = [
        Detail::new("a.x", |_| Value::None),
        Detail::new("a.y", |_| Value::None),
        Detail::aliased("b", "older", |n| Value::Unsigned(*n)),
        Detail::text_only("c", |n| Value::Unsigned(n + 1)),
    ];

    #[test]
    fn details_keep_their_order() {
        let schema = OccurrenceSchema::new(&ONE, &[]);
        assert!(schema.values(&7).eq([Value::None, Value::None, Value::Unsigned(7), Value::Unsigned(8)]));
        let names: Vec<&str> = schema.layout().details().iter().map(|detail| detail.name).collect();
        assert_eq!(names, ["a.x", "a.y", "b", "c"]);
        let keys = schema.layout().details().iter().filter(|detail| detail.in_json);
        assert_eq!(keys.clone().count(), 3);
        assert_eq!(keys.filter_map(|detail| detail.alias).collect::<Vec<_>>(), ["older"]);
    }

    /// In a static schema this panic is a compile error.
    #[test]
    fn names_must_be_right() {
        fn is_refused(build: fn() -> OccurrenceSchema<u64>) -> bool {
            catch_unwind(build).is_err()
        }
        static TWICE: [Detail<u64>; 2] = [Detail::new("b", |_| Value::None), Detail::new("b", |_| Value::None)];
        static OF_ALIAS: [Detail<u64>; 2] =
            [Detail::aliased("b", "c", |_| Value::None), Detail::new("c", |_| Value::None)];
        static TORN: [Detail<u64>; 3] = [
            Detail::new("a.x", |_| Value::None),
            Detail::new("b", |_| Value::None),
            Detail::new("a.y", |_| Value::None),
        ];
        static MANY: [Detail<u64>; 33] = {
            const NAMES: &str = "abcdefghijklmnopqrstuvwxyzABCDEFG";
            let mut many = [const { Detail::new("", |_| Value::None) }; 33];
            let mut at = 0;
            while at < 33 {
                many[at].head.name = NAMES.split_at(at).1.split_at(1).0;
                at += 1;
            }
            many
        };
        const WAITS: GroupBy = GroupBy { noun: "wait", same: &["b"], place: "c", duration: "b", goes_on: "c" };
        assert!(is_refused(|| OccurrenceSchema::new(&TWICE, &[])));
        assert!(is_refused(|| OccurrenceSchema::new(&OF_ALIAS, &[])));
        assert!(is_refused(|| OccurrenceSchema::new(&TORN, &[])));
        assert!(is_refused(|| OccurrenceSchema::new(&MANY, &[])));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[detail("bb")])));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[when("b", const { &[when("d", &[])] })])));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[text("x"); 97])));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[text("x").wide(2)])));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[]).grouped(GroupBy { same: &["bb"], ..WAITS })));
        assert!(is_refused(|| OccurrenceSchema::new(&ONE, &[]).grouped(GroupBy { place: "", ..WAITS })));
        let right: fn() -> OccurrenceSchema<u64> =
            || OccurrenceSchema::new(&ONE, &[detail("b"), when("a.y", const { &[text("x")] })]).grouped(WAITS);
        assert!(!is_refused(right) && right().layout().grouping.is_some());
    }
}
