//! A name belongs to one type of the package, so that a reader never asks which one is meant.

#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::sources;

/// Names that two files still define. A name that is settled leaves the list.
const SHARED: &str = "";

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// What a line begins with behind `pub`, `pub(super)` and `unsafe`.
fn item(line: &str) -> &str {
    let mut rest = line.trim_start();
    loop {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        if word != "unsafe" && word != "pub" && !word.starts_with("pub(") {
            return rest;
        }
        rest = behind;
    }
}

/// Whether the line at `at` stands in an `impl`, a `trait` or a function: the code is formatted, so its indentation tells.
fn is_inside(lines: &[&str], at: usize) -> bool {
    let mut outside = indentation(lines[at]);
    for line in lines[..at].iter().rev().filter(|line| !line.trim().is_empty()) {
        if indentation(line) < outside || outside == 0 {
            outside = indentation(line);
            match item(line).split([' ', '<']).next() {
                Some("impl" | "trait" | "fn") => return outside < indentation(lines[at]),
                Some("mod") => return false,
                _ => {} // `where` and its `{`, or a block in a function
            }
        }
    }
    false
}

/// The names of the types that a file defines: structs, enums, traits, unions and aliases, without associated types and
/// without aliases in functions, which are known to a few lines.
fn defined(text: &str) -> BTreeSet<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut names = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((keyword, rest)) = item(line).split_once(' ') else { continue };
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        let is_definition =
            matches!(keyword, "struct" | "enum" | "trait" | "union") || keyword == "type" && !is_inside(&lines, at);
        if is_definition && name.starts_with(|c: char| c.is_ascii_uppercase()) {
            names.insert(name);
        }
    }
    names
}

#[test]
fn no_type_name_is_defined_in_two_files() {
    let sources = sources("src");
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in &sources {
        for name in defined(text) {
            files.entry(name).or_default().push(path.display().to_string());
        }
    }
    assert!(files.len() > 500, "{} names were found", files.len());
    files.retain(|_, files| files.len() > 1);
    let settled: Vec<&str> = SHARED.split_whitespace().filter(|name| files.remove(name).is_none()).collect();
    let shared: Vec<String> = files.iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect();
    assert!(shared.is_empty(), "names of two types:\n{}", shared.join("\n"));
    assert!(settled.is_empty(), "no longer shared, so not to be listed here: {settled:?}");
}

#[test]
fn definitions_are_found() {
    let text = "pub struct A<T>(T);\npub(super) enum B {}\nunsafe trait C {\n    type D;\n}\n\nimpl<T> E for T\n\
                where\n    T: F,\n{\n    type G = A<T>;\n\n    fn f() {\n        struct H;\n        type I = u8;\n    }\n}\n\n\
                type J = u8;\n\nmod tests {\n    type K = u8;\n    union L {}\n    // struct M\n    let structure = N;\n}\n";
    assert!(defined(text).into_iter().eq(["A", "B", "C", "H", "J", "K", "L"]));
}
