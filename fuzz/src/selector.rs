//! The text of `-e`: faults are at a character of it, and what is parsed prints as text that parses to the same.

use perf_prof::event::{Selector, SelectorHead, counter, parse, parse_with};

use super::input::text_and_bytes;

pub fn run(data: &[u8]) {
    let Some((text, _)) = text_and_bytes(data) else { return };
    match parse_with(text, &["ptr=EXPR", "untraced"]) {
        Ok(all) => all.iter().for_each(|selector| is_in(text, selector)),
        Err(error) => {
            assert!(text.is_char_boundary(error.at()) && !error.message().is_empty());
            assert!(text.is_empty() || error.to_string().ends_with('^'));
        }
    }
    if let Ok(named) = counter::parse(text) {
        assert_eq!(counter::parse(&named.name), Ok(named));
    }
}

fn is_in(text: &str, selector: &Selector) {
    assert_eq!(&text[selector.offset..][..selector.text.len()], selector.text);
    if let Some(args) = &selector.attrs.args {
        assert!(selector.text[args.offset..].starts_with(&args.text));
    }
    if let Some(cpus) = &selector.attrs.cpus {
        assert!(cpus.is_sorted_by(|a, b| a < b));
    }
    let (kind, name) = selector.head.parts();
    let whole = if matches!(selector.head, SelectorHead::Bare(_)) { name } else { format!("{kind}:{name}") };
    assert_eq!(selector.head.to_string(), whole);
    // Quotes and parentheses may be part of a name, but then not of the grammar.
    let is_plain = !matches!(&selector.head, SelectorHead::Uprobe(place, path)
        if place.function.contains(['"', '\'', '(', ')', '/', ',', '\\', '@', '+'])
            || path.as_ref().is_some_and(|path| path.contains(['"', '\\'])));
    if is_plain {
        let again = parse(&selector.head.to_string()).expect("what was parsed");
        assert_eq!((again.len(), &again[0].head), (1, &selector.head));
    }
}
