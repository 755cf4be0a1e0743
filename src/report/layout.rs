//! The layout of one kind of occurrences, for readers that do not know the type: names of values, the line of text, and
//! how a flood is grouped.

use crate::report::Value;

/// Limits of the details of an occurrence, and of the steps of its line.
const MAX_DETAILS: usize = 32;
const MAX_STEPS: usize = 96;
/// Limit of the sets of details of which a group's line has the commonest values.
const MAX_COMMONEST: usize = 2;

/// The name of a detail, independent of the type of the occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetailHead {
    /// The key in JSON. A name with a dot belongs to an object: `waker.tid`.
    pub name: &'static str,
    /// A second key with the same value.
    pub alias: Option<&'static str>,
    pub in_json: bool,
}

/// A part of a line of text, as a schema has it. See [`text`], [`detail`], [`when`].
#[derive(Clone, Copy, Debug)]
pub enum LinePart {
    Text(&'static str),
    Detail(LineDetail),
    Subject,
    Cpu,
    When { name: &'static str, is_known: bool, parts: &'static [LinePart] },
}

/// A detail in a line.
#[derive(Clone, Copy, Debug)]
pub struct LineDetail {
    name: &'static str,
    width: usize,
    in_seconds: bool,
    /// Text before and after the detail. Nothing is printed if the value is unknown.
    between: Option<(&'static str, &'static str)>,
}

/// The subject: name, tid and CPU.
pub const SUBJECT: LinePart = LinePart::Subject;
/// The subject's CPU alone.
pub const CPU: LinePart = LinePart::Cpu;

pub const fn text(text: &'static str) -> LinePart {
    LinePart::Text(text)
}

pub const fn detail(name: &'static str) -> LinePart {
    LinePart::Detail(LineDetail { name, width: 0, in_seconds: false, between: None })
}

/// A duration in seconds.
pub const fn seconds(name: &'static str) -> LinePart {
    LinePart::Detail(LineDetail { name, width: 0, in_seconds: true, between: None })
}

/// Prints `parts` if the value is known, and neither false nor 0 %.
pub const fn when(name: &'static str, parts: &'static [LinePart]) -> LinePart {
    LinePart::When { name, is_known: true, parts }
}

/// Prints `parts` where [`when`] does not.
pub const fn unless(name: &'static str, parts: &'static [LinePart]) -> LinePart {
    LinePart::When { name, is_known: false, parts }
}

impl LinePart {
    /// Aligns the detail right in `width` columns.
    #[must_use]
    pub const fn wide(self, width: usize) -> LinePart {
        LinePart::Detail(LineDetail { width, ..self.as_detail() })
    }

    /// Prints `before` and `after` around the detail, if its value is known.
    #[must_use]
    pub const fn between(self, before: &'static str, after: &'static str) -> LinePart {
        LinePart::Detail(LineDetail { between: Some((before, after)), ..self.as_detail() })
    }

    /// Prints `before` in front of the detail, if its value is known.
    #[must_use]
    pub const fn after(self, before: &'static str) -> LinePart {
        self.between(before, "")
    }

    const fn as_detail(self) -> LineDetail {
        match self {
            LinePart::Detail(detail) => detail,
            _ => panic!("only a detail has a width and something around it"),
        }
    }
}

/// A step of printing a line.
#[derive(Clone, Copy, Debug)]
pub enum LineStep {
    Text(&'static str),
    Value {
        index: usize,
        width: usize,
        in_seconds: bool,
    },
    Subject,
    Cpu,
    /// Skips the next `steps` if the value is known and `is_known` is false, or the other way round.
    SkipUnless {
        index: usize,
        is_known: bool,
        steps: usize,
    },
}

/// Which occurrences share a line of text in a flood, by the names of their details: those with equal stacks and equal
/// values of the details in `same`. The line also shows other details that are equal in the whole group.
#[derive(Clone, Copy, Debug)]
pub struct GroupBy {
    /// The noun for one occurrence.
    pub noun: &'static str,
    pub same: &'static [&'static str],
    /// Where an occurrence without a stack happened. Occurrences that lack this too are grouped only by the name of
    /// their task.
    pub place: &'static str,
    /// The detail with the length of an occurrence, as [`Value::Ns`]: the line shows the longest.
    pub duration: &'static str,
    /// The detail that is true for an occurrence that still goes on: lengths of such ones are not added up, which would
    /// count the same time repeatedly.
    pub goes_on: &'static str,
}

/// A [`GroupBy`] with the indexes of the details in place of their names.
#[derive(Clone, Copy, Debug)]
pub struct Grouping {
    pub noun: &'static str,
    /// One bit for each detail.
    same: u32,
    pub place: usize,
    pub duration: usize,
    pub goes_on: usize,
    commonest: [CommonestDetails; MAX_COMMONEST],
    commonest_count: usize,
    pub folding: Option<Folding>,
}

/// Which occurrences are held and grouped even without a flood, since they seldom matter.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    /// The detail that is true for such an occurrence.
    pub folded: usize,
    /// The detail that is true for one that was shown before: text has no line for it.
    pub again: usize,
    /// One bit for each detail in which those of a group also agree where they have no stack.
    place: u32,
}

impl Folding {
    /// The values of the place.
    pub fn place<'a>(&self, values: &'a [Value]) -> impl Iterator<Item = &'a Value> + use<'a> {
        selected(self.place, values)
    }
}

/// The values whose bits are set.
fn selected<'a>(set: u32, values: &'a [Value]) -> impl Iterator<Item = &'a Value> + use<'a> {
    values.iter().enumerate().filter(move |(index, _)| set >> index & 1 != 0).map(|(_, value)| value)
}

/// Details of which a group's line has the commonest values, with how many occurrences have them.
#[derive(Clone, Copy, Debug)]
pub struct CommonestDetails {
    /// One bit for each detail.
    set: u32,
    /// The detail that takes the number of occurrences; it has no value in a single one.
    pub times: usize,
}

impl CommonestDetails {
    /// The indexes of the details.
    pub fn indexes(self) -> impl Iterator<Item = usize> {
        (0..MAX_DETAILS).filter(move |index| self.set >> index & 1 != 0)
    }
}

impl Grouping {
    pub fn commonest(&self) -> &[CommonestDetails] {
        &self.commonest[..self.commonest_count]
    }

    /// The values in which the occurrences of a group agree.
    pub fn same<'a>(&self, values: &'a [Value]) -> impl Iterator<Item = &'a Value> + use<'a> {
        selected(self.same, values)
    }
}

/// The layout of one kind of occurrences.
#[derive(Debug)]
pub struct OccurrenceLayout {
    details: [DetailHead; MAX_DETAILS],
    detail_count: usize,
    steps: [LineStep; MAX_STEPS],
    step_count: usize,
    /// How a flood of them is grouped in text. None: the user asked for each occurrence, so each has its own line.
    pub grouping: Option<Grouping>,
}

impl OccurrenceLayout {
    pub(super) const fn new() -> OccurrenceLayout {
        OccurrenceLayout {
            details: [DetailHead { name: "", alias: None, in_json: false }; MAX_DETAILS],
            detail_count: 0,
            steps: [LineStep::Text(""); MAX_STEPS],
            step_count: 0,
            grouping: None,
        }
    }

    /// The details, in the order of the values.
    pub fn details(&self) -> &[DetailHead] {
        &self.details[..self.detail_count]
    }

    pub fn line(&self) -> &[LineStep] {
        &self.steps[..self.step_count]
    }

    pub(super) const fn push_detail(&mut self, head: DetailHead) {
        assert!(self.detail_count < MAX_DETAILS, "an occurrence has too many details");
        self.check_is_new(head.name);
        if let Some(alias) = head.alias {
            self.check_is_new(alias);
        }
        self.details[self.detail_count] = head;
        self.detail_count += 1;
    }

    /// Panics for a name that exists. Details of one object must be adjacent, since the object is written as a whole.
    const fn check_is_new(&self, name: &str) {
        let mut index = 0;
        while index < self.detail_count {
            let head = self.details[index];
            let is_known = are_equal(head.name, name) || matches!(head.alias, Some(alias) if are_equal(alias, name));
            assert!(!is_known, "two details have one name");
            let is_torn = index + 1 < self.detail_count
                && are_of_one_object(head.name, name)
                && !are_of_one_object(self.details[index + 1].name, name);
            assert!(!is_torn, "details of one object are no neighbours");
            index += 1;
        }
    }

    pub(super) const fn push_parts(&mut self, parts: &[LinePart]) {
        let mut index = 0;
        while index < parts.len() {
            match parts[index] {
                LinePart::Text(text) => self.push_step(LineStep::Text(text)),
                LinePart::Subject => self.push_step(LineStep::Subject),
                LinePart::Cpu => self.push_step(LineStep::Cpu),
                LinePart::When { name, is_known, parts } => {
                    let skip = self.begin_skip();
                    self.push_parts(parts);
                    self.end_skip(skip, name, is_known);
                }
                LinePart::Detail(detail) => self.push_value(&detail),
            }
            index += 1;
        }
    }

    const fn push_value(&mut self, detail: &LineDetail) {
        let LineDetail { name, width, in_seconds, between } = *detail;
        let value = LineStep::Value { index: self.index_of(name), width, in_seconds };
        let Some((before, after)) = between else { return self.push_step(value) };
        let skip = self.begin_skip();
        self.push_step(LineStep::Text(before));
        self.push_step(value);
        if !after.is_empty() {
            self.push_step(LineStep::Text(after));
        }
        self.end_skip(skip, name, true);
    }

    const fn begin_skip(&mut self) -> usize {
        let index = self.step_count;
        self.push_step(LineStep::Text("")); // `end_skip` replaces it
        index
    }

    const fn end_skip(&mut self, skip: usize, name: &str, is_known: bool) {
        self.steps[skip] =
            LineStep::SkipUnless { index: self.index_of(name), is_known, steps: self.step_count - skip - 1 };
    }

    const fn push_step(&mut self, step: LineStep) {
        assert!(self.step_count < MAX_STEPS, "a line has too many parts");
        self.steps[self.step_count] = step;
        self.step_count += 1;
    }

    pub(super) const fn group(&mut self, by: GroupBy) {
        let same = self.set_of(by.same);
        let (place, duration, goes_on) =
            (self.index_of(by.place), self.index_of(by.duration), self.index_of(by.goes_on));
        let commonest = [CommonestDetails { set: 0, times: 0 }; MAX_COMMONEST];
        self.grouping = Some(Grouping {
            noun: by.noun,
            same,
            place,
            duration,
            goes_on,
            commonest,
            commonest_count: 0,
            folding: None,
        });
    }

    pub(super) const fn fold(&mut self, folded: &str, again: &str, place: &[&str]) {
        let (folded, again, place) = (self.index_of(folded), self.index_of(again), self.set_of(place));
        let Some(grouping) = &mut self.grouping else { panic!("only what is grouped is folded") };
        grouping.folding = Some(Folding { folded, again, place });
    }

    const fn set_of(&self, names: &[&str]) -> u32 {
        let (mut set, mut index) = (0, 0);
        while index < names.len() {
            set |= 1 << self.index_of(names[index]);
            index += 1;
        }
        set
    }

    pub(super) const fn tell_commonest(&mut self, names: &[&str], times: &str) {
        let (set, times) = (self.set_of(names), self.index_of(times));
        let Some(grouping) = &mut self.grouping else { panic!("only a group has commonest values") };
        grouping.commonest[grouping.commonest_count] = CommonestDetails { set, times };
        grouping.commonest_count += 1;
    }

    const fn index_of(&self, name: &str) -> usize {
        let mut index = 0;
        while index < self.detail_count {
            if are_equal(self.details[index].name, name) {
                return index;
            }
            index += 1;
        }
        panic!("no detail has the name that is asked for")
    }
}

const fn are_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    one.len() == other.len() && common_prefix(one, other) == one.len()
}

/// Whether both names have a dot, and the same text before it.
const fn are_of_one_object(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let mut dot = 0;
    while dot < one.len() && one[dot] != b'.' {
        dot += 1;
    }
    dot < one.len() && common_prefix(one, other.as_bytes()) > dot
}

const fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let mut len = 0;
    while len < one.len() && len < other.len() && one[len] == other[len] {
        len += 1;
    }
    len
}
