//! Parsing of EVENT selectors. Whether the event exists is checked elsewhere.
//!
//! ```text
//! LIST  = EVENT { "," EVENT }
//! EVENT = HEAD [ "/" FILTER "/" { ATTR "/" } ]
//! HEAD  = SYSTEM ":" NAME | NAME | ("kprobe" | "kretprobe") ":" PLACE | ("uprobe" | "uretprobe") ":" PLACE [ "@" PATH ]
//! PLACE = FUNCTION [ "+" OFFSET ]
//! ATTR  = NAME [ "=" VALUE ]
//! ```
//! `/` and `,` inside quotes or parentheses are text. In quotes, `\` takes the next character as it is. One level of
//! quotes around HEAD, FILTER, NAME, PATH and VALUE is removed.

use std::{error, fmt};

use crate::caret::caret;
use crate::event::attributes::{SelectorAttrs, attribute};
use crate::event::head::{EVENT_FORM, SelectorHead, head};
use crate::event::part::{SelectorFault, SelectorPart};
use crate::glob::is_glob;

/// One event of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub head: SelectorHead,
    pub filter: Option<String>,
    pub attrs: SelectorAttrs,
    pub text: String,  // as typed
    pub offset: usize, // byte offset of `text` in the whole list
}

impl Selector {
    /// True when the name is a pattern of events, or of functions in a program.
    pub fn has_wildcard(&self) -> bool {
        match &self.head {
            SelectorHead::Tracepoint { system, name } => is_glob(system) || is_glob(name),
            SelectorHead::Uprobe(place, _) => place.is_pattern(),
            SelectorHead::Bare(_) | SelectorHead::Kprobe(_) => false,
        }
    }
}

/// A fault and its place. Prints the message, the text and a caret under the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    message: String,
    text: String,
    offset: usize, // byte offset in `text`, at most its length
}

impl SelectorError {
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Byte offset of the fault in the whole text; the length of the text when something is missing at the end.
    pub fn at(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, caret(&self.text, self.offset, 2))
    }
}

impl error::Error for SelectorError {}

/// Parses a list of events.
///
/// # Errors
/// The text does not follow the grammar, or an attribute is unknown or has an unusable value.
pub fn parse(text: &str) -> Result<Vec<Selector>, SelectorError> {
    parse_with(text, &[])
}

/// As [`parse`], with a profiler's own attributes, listed as messages show them: `["ptr=EXPR", "untraced"]`.
/// An attribute listed with `=` takes an expression, an attribute without `=` takes no value. `printkey=EXPR` is over
/// the key alone.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(text: &str, extra: &[&str]) -> Result<Vec<Selector>, SelectorError> {
    let whole = SelectorPart { text, offset: 0 };
    let selectors = whole.split(',').and_then(|parts| parts.into_iter().map(|part| selector(part, extra)).collect());
    selectors.map_err(|SelectorFault { message, offset }| SelectorError { message, text: text.to_owned(), offset })
}

fn selector(part: SelectorPart<'_>, extra: &[&str]) -> Result<Selector, SelectorFault> {
    let part = part.trim();
    if part.text.is_empty() {
        return part.fault(format!("an event is missing, {EVENT_FORM}"));
    }
    let mut parts = part.split('/')?.into_iter();
    let head = head(parts.next().unwrap_or(part))?;
    let tail: Vec<SelectorPart<'_>> = parts.collect();
    let (mut filter, mut attrs) = (None, SelectorAttrs::default());
    match tail.as_slice() {
        [] => {}
        [only] => {
            return only.end().fault("a second `/` is missing, as in sched:sched_switch/prev_pid==1/");
        }
        [first, given @ .., last] if last.trim().text.is_empty() => {
            let text = first.trim().unquote().trim().text;
            filter = (!text.is_empty()).then(|| text.to_owned());
            for (index, attr) in given.iter().enumerate() {
                attribute(*attr, &given[..index], extra, &head, &mut attrs)?;
            }
        }
        [.., last] => {
            return last
                .end()
                .fault("a `/` is missing at the end; a value with `,` or `/` needs quotes, as in cpus=\"0,2\"");
        }
    }
    if let Some(args) = &mut attrs.args {
        if matches!(head, SelectorHead::Tracepoint { .. } | SelectorHead::Bare(_)) {
            return SelectorPart { text: "", offset: args.offset }
                .fault("args are for probes: a tracepoint has fields of its own");
        }
        args.offset -= part.offset;
    }
    if attrs.most.is_some() && !matches!(head, SelectorHead::Uprobe(..)) {
        return part.end().fault("most is for functions of programs: uprobe:, uretprobe:");
    }
    Ok(Selector { head, filter, attrs, text: part.text.to_owned(), offset: part.offset })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::head::ProbePoint;
    use crate::expr::Expr;

    fn one(text: &str) -> Selector {
        let mut all = parse_with(text, &["ptr=EXPR", "untraced"]).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(all.len(), 1, "{text:?}");
        all.remove(0)
    }

    #[test]
    fn parses_heads() {
        let cases = [
            ("sched:sched_switch", "sched:sched_switch", false),
            ("  xhci-hcd:a.b ", "xhci-hcd:a.b", false),
            ("sched:\"sched_switch\"//", "sched:sched_switch", false),
            (" sched_switch/a==1/", "sched_switch", false),
            ("'page-faults'", "page-faults", false),
            ("'sched:sched_switch'", "sched:sched_switch", false),
            ("sys*:*_[!a]", "sys*:*_[!a]", true),
            ("s?:x", "s?:x", true),
            ("kprobe:vfs_read", "kprobe:vfs_read", false),
            ("kretprobe:a.isra.0/x==1/", "kretprobe:a.isra.0", false),
            ("uprobe:a@\"/bin/x\"", "uprobe:a@\"/bin/x\"", false),
            ("uprobe:malloc", "uprobe:malloc", false),
            ("uprobe:a+16@\"/bin/x\"", "uprobe:a+0x10@\"/bin/x\"", false),
            ("uprobe:operator++@x", "uprobe:operator++@\"x\"", false),
            ("kprobe:vfs_read+0x10", "kprobe:vfs_read+0x10", false),
            ("uretprobe:a::b*@'/a, b'//", "uretprobe:a::b*@\"/a, b\"", true),
            ("uprobe:\"a<b, c>::d\"@x", "uprobe:a<b, c>::d@\"x\"", false),
            ("uprobe:\" a b +8 \"@x", "uprobe:a b+0x8@\"x\"", false),
            ("uprobe:<a as b>::c[]", "uprobe:<a as b>::c[]", false),
        ];
        for (text, want, wild) in cases {
            let got = one(text);
            assert_eq!((got.head.to_string().as_str(), got.has_wildcard()), (want, wild), "{text:?}");
            if !want.contains(',') {
                assert_eq!(one(want).head, got.head);
            }
        }
        let is = |text, test: fn(&SelectorHead) -> bool| test(&one(text).head);
        assert!(is(
            "a:b",
            |head| matches!(head, SelectorHead::Tracepoint { system, name } if system == "a" && name == "b")
        ));
        assert!(is("b", |head| matches!(head, SelectorHead::Bare(name) if name == "b")));
        assert!(is("kprobe:b", |head| matches!(head, SelectorHead::Kprobe(ProbePoint { ret: false, .. }))));
        assert!(is(
            "uretprobe:b@'c'",
            |head| matches!(head, SelectorHead::Uprobe(ProbePoint { ret: true, .. }, Some(path)) if path == "c")
        ));
        assert!(is("uprobe:b", |head| matches!(head, SelectorHead::Uprobe(_, None))));
        assert!(is("kprobe:b+16", |head| matches!(head, SelectorHead::Kprobe(place) if place.offset == 16)));
    }

    #[test]
    fn parses_filters() {
        let cases = [
            ("a:b", None),
            ("a:b//", None),
            ("a:b/ pid == 1 /", Some("pid == 1")),
            ("a:b/(x/2)>1/stack/", Some("(x/2)>1")),
            ("a:b/comm ~ \"k/1,*\"/", Some("comm ~ \"k/1,*\"")),
            ("a:b/\"comm == 'x'\"/", Some("comm == 'x'")),
            ("a:b/\"a\" == \"b\"/", Some("\"a\" == \"b\"")),
            ("a:b/'\"x\"'/", Some("\"x\"")),
            ("a:b/c == \")/\"/", Some("c == \")/\"")),
            ("a:b/\"x\\\"/,\" == y/", Some("\"x\\\"/,\" == y")),
        ];
        for (text, want) in cases {
            assert_eq!(one(text).filter.as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn parses_attributes() {
        let attrs = |text| one(text).attrs;
        assert_eq!(attrs("a:b//"), SelectorAttrs::default());
        assert!(attrs("a:b//stack/").stack);
        let deep = attrs("a:b/x/ max-stack = 16 /");
        assert_eq!((deep.stack, deep.max_stack), (true, Some(16)));
        let both = attrs("a:b//cpus=\"0,2-3\"/alias='x y'/");
        assert_eq!((both.cpus.as_deref(), both.alias.as_deref()), (Some(&[0, 2, 3][..]), Some("x y")));
        let own = attrs("a:b//ptr=(x/8)/untraced/");
        let ptr = |text: &str| vec![("ptr".to_owned(), Expr::parse(text).unwrap())];
        assert_eq!((own.has("untraced"), own.has("ptr"), own.expressions), (true, false, ptr("(x/8)")));
        assert_eq!(attrs("a:b//ptr=a==b/").expressions, ptr("a==b"));
        let all = parse("a:b, uprobe:f//args='x=$arg1 y=+0($arg2):b4@0/32'/stack/").unwrap();
        let args = all[1].attrs.args.as_ref().unwrap();
        assert_eq!(args.text, "x=$arg1 y=+0($arg2):b4@0/32");
        assert!(all[1].text[args.offset..].starts_with(&args.text));
    }

    #[test]
    fn parses_lists() {
        let all = parse("a:b, c:d/x==\",\"/alias=(e,f)/ ,g:h").unwrap();
        let parts: Vec<_> = all.iter().map(|selector| (selector.text.as_str(), selector.offset)).collect();
        assert_eq!(parts, [("a:b", 0), ("c:d/x==\",\"/alias=(e,f)/", 5), ("g:h", 30)]);
    }

    #[test]
    fn refuses_with_the_place() {
        let cases = [
            ("", 0, "an event is missing"),
            ("a:b,", 4, "an event is missing"),
            ("a:b, ,c:d", 5, "an event is missing"),
            ("w o", 0, "`w o` is not an event, write SYSTEM:NAME"),
            ("a:b,w*/x/", 4, "`w*` is not an event, write SYSTEM:NAME, as in sched:sched_switch, or *:w*"),
            ("a:b,../x/", 4, "`..` is not an event"),
            ("a:b,sched_switch//args=x/", 23, "args are for probes"),
            (":b", 0, "a name is missing"),
            ("a:", 2, "a name is missing"),
            ("a:..", 2, "a name is missing"),
            ("a:\"../b\"", 5, "unexpected character"),
            ("a:b:c", 3, "unexpected character"),
            ("a:b/x", 5, "a second `/`"),
            ("a:b/x/stack", 11, "a `/` is missing at the end"),
            ("a:b//cpus=0,2/", 11, "a `/` is missing at the end"),
            ("a:b///", 5, "unknown attribute \"\""),
            ("a:b//foo=1/", 5, "unknown attribute \"foo\"; known:"),
            ("a:b//stack/stack/", 11, "attribute stack given twice"),
            ("a:b//stack=1/", 11, "attribute stack takes no value"),
            ("a:b//alias/", 10, "attribute alias needs a value"),
            ("a:b//alias=''/", 13, "attribute alias needs a value"),
            ("a:b//max-stack=0/", 15, "max-stack is a number"),
            ("a:b//max-stack=65536/", 15, "max-stack is a number"),
            ("a:b//max-stack=+1/", 15, "max-stack is a number"),
            ("uprobe:a*//most=0/", 16, "most is a number of functions from 1 to 1000"),
            ("uprobe:a*+8", 7, "an offset is one into a single function"),
            ("uprobe:a\tb", 8, "not a function name"),
            ("a:b//most=5/", 12, "most is for functions of programs"),
            ("a:b//cpus=2-0/", 10, "the range `2-0` runs backwards"),
            ("a:b/(x/", 4, "this `(` is never closed"),
            ("a:b/x)/", 5, "this `)` closes nothing"),
            ("a:b/\"x/", 4, "this quote is never closed"),
            ("kprobe:", 7, "the function is missing"),
            ("kprobe:a b", 8, "not a function name"),
            ("kprobe:a;b", 8, "no kernel function has this in its name"),
            ("kprobe:a+9z", 9, "the offset is a number"),
            ("kprobe:a+8+0", 8, "no kernel function has this in its name"),
            ("kprobe:+9", 7, "the function is missing"),
            ("kprobe:a+99999999999999999999", 9, "the offset is a number"),
            ("kretprobe:a+8", 12, "a function returns as a whole"),
            ("a:b,sched:x//args='a=$arg1'/", 19, "args are for probes"),
            ("uprobe:main@/bin/true", 12, "the file is missing, or its path"),
            ("uprobe:@\"/bin/true\"", 7, "the function is missing"),
        ];
        for (text, offset, message) in cases {
            let err = parse_with(text, &["ptr=EXPR"]).expect_err(text);
            assert!(err.message().starts_with(message), "{text:?}: {err}");
            assert_eq!(err.at(), offset, "{text:?}: {err}");
        }
    }

    #[test]
    fn lists_known_attributes() {
        let message = parse_with("a:b//foo=1/", &["ptr=EXPR"]).unwrap_err().message;
        let want = "unknown attribute \"foo\"; known: stack, max-stack=N, alias=NAME, cpus=LIST, args='NAME=FETCH ...', most=N, ptr=EXPR";
        assert_eq!(message, want);
    }

    #[test]
    fn shows_a_caret() {
        let cases = [
            ("é:a,a:b", "  é:a,a:b\n  ^"),
            ("é\n:a", "  é?:a\n  ^"),
            ("a:b,é", "  a:b,é\n      ^"),
            ("a:b/é)/", "  a:b/é)/\n       ^"),
            ("a:b,", "  a:b,\n      ^"),
        ];
        for (text, want) in cases {
            let shown = parse(text).unwrap_err().to_string();
            assert_eq!(shown.split_once('\n').unwrap().1, want);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "([a-z:/,=\"'()\\\\é@ \n]|stack|cpus|kprobe:|uprobe:|\\PC){0,40}") {
            match parse_with(&text, &["ptr=EXPR"]) {
                Ok(all) => for selector in all {
                    prop_assert_eq!(&text[selector.offset..][..selector.text.len()], &selector.text);
                    let _ = selector.has_wildcard();
                },
                Err(err) => {
                    prop_assert!(text.is_char_boundary(err.at()) && err.at() <= text.len());
                    prop_assert!(text.is_empty() || err.to_string().ends_with('^'));
                }
            }
        }
    }
}
