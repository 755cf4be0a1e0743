//! The attributes of a selector: those that every profiler knows, and lists of those that only some profilers know.

use crate::event::head::SelectorHead;
use crate::event::part::{SelectorFault, SelectorPart};
use crate::event::print_key::PrintKey;
use crate::expr::Expr;
use crate::host::parse_cpus;

/// How many functions a pattern may match: without the attribute `most`, and with its largest value.
pub const DEFAULT_FUNCTIONS: u16 = 100;
pub const MAX_FUNCTIONS: u16 = 1000;

/// Attributes that every profiler knows. The part after `=` is for messages.
const ATTRIBUTES: [&str; 6] = ["stack", "max-stack=N", "alias=NAME", "cpus=LIST", "args='NAME=FETCH ...'", "most=N"];

/// Attributes of events that are paired with each other.
pub const RELATION_ATTRS: [&str; 5] = ["key=EXPR", "printkey=EXPR", "role=EXPR", "untraced", "trigger"];
/// Attributes of events whose numbers are added up by a key.
pub const AMOUNT_ATTRS: [&str; 5] = ["key=EXPR", "printkey=EXPR", "top-by=EXPR", "top-add=EXPR", "comm=EXPR"];
/// Attributes of events that have a number each.
pub const NUMBER_ATTRS: [&str; 3] = ["num=EXPR", "key=EXPR", "printkey=EXPR"];
/// Attributes of events that allocate memory.
pub const ALLOCATION_ATTRS: [&str; 3] = ["ptr=EXPR", "key=EXPR", "size=EXPR"];

/// Attributes that may be given several times.
const REPEATABLE: [&str; 2] = ["top-by", "top-add"];

/// The attributes that only some profilers know, without their values, and the names of these profilers.
const OWNERS: [(&str, &str); 11] = [
    ("key", "multi-trace, top, num-dist and kmemleak"),
    ("printkey", "multi-trace, top and num-dist"),
    ("role", "multi-trace"),
    ("untraced", "multi-trace"),
    ("trigger", "multi-trace"),
    ("top-by", "top"),
    ("top-add", "top"),
    ("comm", "top"),
    ("num", "num-dist"),
    ("ptr", "kmemleak"),
    ("size", "--alloc of kmemleak"),
];

/// Attributes of older versions and other tools, and what to use instead.
const INSTEAD: [(&str, &str); 2] = [
    ("exec", "`perf-prof expr -e EVENT 'EXPRESSION'` shows values of expressions"),
    ("delay", "multi-trace measures the time from one event to another, num-dist the durations in a field (num=FIELD)"),
];

/// The attributes behind the filter, each at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorAttrs {
    pub stack: bool,
    pub max_stack: Option<u16>, // frames; implies `stack`
    pub alias: Option<String>,
    pub cpus: Option<Vec<u32>>,
    pub args: Option<ProbeArgs>,
    pub most: Option<u16>, // functions that the name may match
    pub print_key: Option<PrintKey>,
    /// The profiler's own attributes with a value, see [`parse_with`](crate::event::parse_with), in the order of the text.
    pub expressions: Vec<(String, Expr)>,
    /// The profiler's own attributes without a value.
    pub flags: Vec<String>,
}

/// The arguments that a probe records, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeArgs {
    pub text: String,
    /// Byte offset in the text of the selector.
    pub offset: usize,
}

impl SelectorAttrs {
    /// True when the profiler's own attribute `flag` was given.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }

    /// Sets the attribute `name`. `has_value`: whether the attribute takes a value.
    fn set(
        &mut self,
        name: &str,
        value: SelectorPart<'_>,
        has_value: bool,
        head: &SelectorHead,
    ) -> Result<(), SelectorFault> {
        match name {
            "stack" => self.stack = true,
            "max-stack" => {
                let number = value.text.parse().ok().filter(|&n| n > 0 && !value.text.starts_with('+'));
                if number.is_none() {
                    return value
                        .fault(format!("max-stack is a number of frames from 1 to {}, as in max-stack=16", u16::MAX));
                }
                (self.stack, self.max_stack) = (true, number);
            }
            "most" => {
                self.most =
                    value.text.parse().ok().filter(|n| (1..=MAX_FUNCTIONS).contains(n) && !value.text.starts_with('+'));
                if self.most.is_none() {
                    return value
                        .fault(format!("most is a number of functions from 1 to {MAX_FUNCTIONS}, as in most=200"));
                }
            }
            "alias" => self.alias = Some(value.text.to_owned()),
            "args" => self.args = Some(ProbeArgs { text: value.text.to_owned(), offset: value.offset }),
            "cpus" => self.cpus = Some(parse_cpus(value.text).or_else(|message| value.fault(message))?),
            "printkey" => {
                self.print_key = Some(PrintKey::parse(value).map_err(|SelectorFault { message, offset }| {
                    SelectorFault { message: format!("printkey of {head}: {message}"), offset }
                })?);
            }
            flag if !has_value => self.flags.push(flag.to_owned()),
            name => {
                let expr = Expr::parse(value.text).map_err(|err| SelectorFault {
                    message: format!("{name} of {head}: {}", err.message()),
                    offset: value.offset + err.at(),
                })?;
                self.expressions.push((name.to_owned(), expr));
            }
        }
        Ok(())
    }
}

/// Parses the attribute `part`, which stands behind the attributes `before`. `extra`: the profiler's own attributes, as
/// in [`parse_with`](crate::event::parse_with).
pub fn attribute(
    part: SelectorPart<'_>,
    before: &[SelectorPart<'_>],
    extra: &[&str],
    head: &SelectorHead,
    attrs: &mut SelectorAttrs,
) -> Result<(), SelectorFault> {
    let part = part.trim();
    let (typed, value) = name_value(part);
    let name = dashed(typed);
    let Some(form) = ATTRIBUTES.iter().chain(extra).find(|form| form.split('=').next() == Some(&*name)) else {
        return part.fault(unknown(&name, typed.text, extra));
    };
    let is_given = || before.iter().any(|other| dashed(name_value(other.trim()).0) == name);
    if !REPEATABLE.contains(&&*name) && is_given() {
        return part.fault(format!("attribute {name} given twice"));
    }
    let value = match value.map(|value| value.trim().unquote()) {
        Some(value) if !form.contains('=') => {
            return value.fault(format!("attribute {form} takes no value"));
        }
        Some(value) if !value.text.is_empty() => value,
        None if !form.contains('=') => part.end(),
        _ => {
            return part.end().fault(format!("attribute {name} needs a value, {form}"));
        }
    };
    attrs.set(&name, value, form.contains('='), head)
}

/// Why there is no attribute of this name.
fn unknown(name: &str, typed: &str, extra: &[&str]) -> String {
    let list = ATTRIBUTES.iter().chain(extra).copied().collect::<Vec<_>>().join(", ");
    let owners = OWNERS.iter().find(|(other, _)| *other == name);
    let instead = INSTEAD.iter().find(|(other, _)| *other == name);
    match (owners, instead) {
        (Some((_, owners)), _) => format!("attribute {name} is for {owners}; known here: {list}"),
        (None, Some((_, instead))) => format!("there is no attribute {name}: {instead}"),
        (None, None) => format!("unknown attribute \"{typed}\"; known: {list}"),
    }
}

fn name_value<'a>(part: SelectorPart<'a>) -> (SelectorPart<'a>, Option<SelectorPart<'a>>) {
    part.cut('=').map_or((part, None), |(name, value)| (name.trim(), Some(value)))
}

/// The name of an attribute with dashes: `top_by` is an older spelling of `top-by`.
fn dashed(name: SelectorPart<'_>) -> String {
    name.text.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse_with;

    #[test]
    fn attributes_of_others_are_refused_with_their_owner() {
        let cases = [
            ("a:b//num=x/", 5, "attribute num is for num-dist; known here: stack, max-stack=N"),
            ("a:b//key=x/role=1/", 11, "attribute role is for multi-trace; known here"),
            ("a:b//untraced/", 5, "attribute untraced is for multi-trace;"),
            ("a:b//exec=x/", 5, "there is no attribute exec: `perf-prof expr"),
            ("a:b//nums=x/", 5, "unknown attribute \"nums\"; known:"),
            ("a:b//key=x/key=y/", 11, "attribute key given twice"),
            ("a:b//printkey=printf(\"%q\", key)/", 22, "printkey of a:b: "),
        ];
        for (text, offset, message) in cases {
            let err = parse_with(text, &AMOUNT_ATTRS).expect_err(text);
            assert!(err.message().starts_with(message), "{text:?}: {err}");
            assert_eq!(err.at(), offset, "{text:?}: {err}");
        }
        for form in RELATION_ATTRS.iter().chain(&AMOUNT_ATTRS).chain(&NUMBER_ATTRS).chain(&ALLOCATION_ATTRS) {
            let name = form.split('=').next().unwrap();
            assert!(OWNERS.iter().any(|(owned, _)| *owned == name), "{name}");
        }
    }

    #[test]
    fn amounts_are_given_several_times_and_in_both_spellings() {
        let selectors = parse_with("a:b//top_by=x/top-add=y/top-by=z/key=k/max_stack=3/", &AMOUNT_ATTRS).unwrap();
        let attrs = &selectors[0].attrs;
        let given: Vec<(&str, &str)> = attrs.expressions.iter().map(|(name, expr)| (&**name, expr.text())).collect();
        assert_eq!(given, [("top-by", "x"), ("top-add", "y"), ("top-by", "z"), ("key", "k")]);
        assert_eq!(attrs.max_stack, Some(3));
    }
}
