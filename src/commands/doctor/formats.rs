//! Whether perf-prof can print events as their `print fmt` says, for this kernel or for saved copies of tracefs.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::commands::doctor::{WIDTH, wrap};
use crate::escape::escape;
use crate::json::{Object, push_string};
use crate::output::text;
use crate::profiler::TracefsFinder;
use crate::report::Value;
use crate::tep::tracefs::check::{FormatCheck, FormatFinding, FormatFindingKind, FormatTree, check_formats};

const KEYS: [&str; 6] = ["tree", "formats", "parsed", "compiled", "incomplete", "fallback"];
const HEADINGS: [&str; 6] = ["TREE", "FORMATS", "PARSED", "COMPILED", "INCOMPLETE", "FALLBACK"];

/// Checks the formats below the directory that the user named.
pub fn saved(dir: &Path) -> Result<FormatCheck> {
    let mut checked = check_formats(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    if checked.formats() == 0 {
        let troubles = checked.troubles.iter().map(|trouble| format!("; {trouble}")).collect::<String>();
        bail!("no event format below {}: DIR/events/SYSTEM/EVENT/format or deeper is needed{troubles}", dir.display());
    }
    let dir_name = dir.file_name().map_or_else(|| dir.to_string_lossy(), |name| name.to_string_lossy());
    name_tree(&mut checked, &dir_name);
    Ok(checked)
}

/// Checks the formats of the running kernel.
pub fn running(finder: &TracefsFinder) -> Result<FormatCheck> {
    let tracefs = finder.get()?;
    let events = tracefs.root().join("events");
    let mut checked = check_formats(&events).with_context(|| format!("cannot read {}", events.display()))?;
    if checked.formats() == 0 {
        bail!("no event format can be read in {}: run as root", events.display());
    }
    name_tree(&mut checked, "this kernel");
    Ok(checked)
}

fn name_tree(checked: &mut FormatCheck, name: &str) {
    for tree in checked.trees.iter_mut().filter(|tree| tree.name.is_empty()) {
        name.clone_into(&mut tree.name);
    }
}

fn row(name: &str, trees: &[FormatTree]) -> Vec<Value> {
    let sum = |count: &dyn Fn(&FormatTree) -> usize| Value::Unsigned(trees.iter().map(count).sum::<usize>() as u64);
    vec![
        Value::Text(Arc::from(name)),
        sum(&|tree| tree.formats),
        sum(&|tree| tree.parsed),
        sum(&|tree| tree.compiled),
        sum(&|tree| tree.count(FormatFindingKind::Incomplete)),
        sum(&|tree| tree.count(FormatFindingKind::Fallback)),
    ]
}

pub fn print(checked: &FormatCheck, verbose: bool, out: &mut Vec<u8>) {
    let mut rows: Vec<_> = checked.trees.iter().map(|tree| row(&tree.name, std::slice::from_ref(tree))).collect();
    if rows.len() > 1 {
        rows.push(row("all", &checked.trees));
    }
    text::plain_table(&HEADINGS, rows, out);
    list(checked, FormatFindingKind::Unparsed, "Not understood:", out);
    list(
        checked,
        FormatFindingKind::Fallback,
        "Shown as field=value, because the print format cannot be compiled:",
        out,
    );
    let incomplete: usize = checked.trees.iter().map(|tree| tree.count(FormatFindingKind::Incomplete)).sum();
    if verbose {
        list(checked, FormatFindingKind::Incomplete, "As the kernel shows them, but for:", out);
    } else if incomplete > 0 {
        // Writing to a Vec cannot fail, here and below.
        let _ = writeln!(out, "\n{incomplete} of the compiled texts lack something that nobody knows here: see -v");
    }
    for trouble in &checked.troubles {
        let _ = writeln!(out, "\nnote: {}", escape(trouble.as_bytes()));
    }
}

/// Prints the findings of one kind, one event per line: tree, event and reasons, aligned.
fn list(checked: &FormatCheck, kind: FormatFindingKind, title: &str, out: &mut Vec<u8>) {
    let found = || all(checked, kind);
    if found().next().is_none() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    let several = checked.trees.len() > 1;
    let place = |tree: &FormatTree, finding: &FormatFinding| match several {
        true => escape(format!("{} {}", tree.name, finding.event).as_bytes()),
        false => escape(finding.event.as_bytes()),
    };
    let longest = found().map(|(tree, finding)| place(tree, finding).chars().count()).max().unwrap_or(0).min(WIDTH / 2);
    for (tree, finding) in found() {
        let head = format!("  {:<longest$} ", place(tree, finding));
        wrap(&head, &escape(reasons(finding).as_bytes()), 6, out);
    }
}

/// The reasons of a finding, joined: `function f, names A, B`.
fn reasons(finding: &FormatFinding) -> String {
    let (names, others): (Vec<_>, Vec<_>) = finding.reasons.iter().partition(|reason| reason.starts_with("name "));
    let mut parts: Vec<String> = others.into_iter().cloned().collect();
    let plain: Vec<_> = names.iter().filter_map(|reason| reason.strip_prefix("name ")).collect();
    match plain.as_slice() {
        [] => {}
        [name] => parts.push(format!("name {name}")),
        names => parts.push(format!("names {}", names.join(", "))),
    }
    parts.join(", ")
}

fn all(checked: &FormatCheck, kind: FormatFindingKind) -> impl Iterator<Item = (&FormatTree, &FormatFinding)> {
    let of_tree = move |tree| move |finding| (tree, finding);
    let trees = checked.trees.iter();
    trees.flat_map(move |tree| tree.findings.iter().filter(move |finding| finding.kind == kind).map(of_tree(tree)))
}

/// Writes the results of the check as keys of the object.
pub fn json(checked: &FormatCheck, object: &mut Object<'_>) {
    let totals = row("", &checked.trees);
    for (key, value) in KEYS.iter().zip(&totals).skip(1).take(3) {
        object.value(key, value);
    }
    findings(checked, FormatFindingKind::Fallback, object.key("fallback"));
    findings(checked, FormatFindingKind::Incomplete, object.key("incomplete"));
    findings(checked, FormatFindingKind::Unparsed, object.key("unparsed"));
    objects(checked.trees.iter(), object.key("trees"), |tree, object| {
        for (key, value) in KEYS.iter().zip(row(&tree.name, std::slice::from_ref(tree))) {
            object.value(key, &value);
        }
    });
    let troubles = object.key("troubles");
    troubles.push(b'[');
    for (at, trouble) in checked.troubles.iter().enumerate() {
        troubles.extend_from_slice(if at > 0 { b"," } else { b"" });
        push_string(&escape(trouble.as_bytes()), troubles);
    }
    troubles.push(b']');
}

fn findings(checked: &FormatCheck, kind: FormatFindingKind, out: &mut Vec<u8>) {
    objects(all(checked, kind), out, |(tree, finding), object| {
        object.text("tree", &escape(tree.name.as_bytes()));
        object.text("event", &escape(finding.event.as_bytes()));
        object.text("reason", &escape(reasons(finding).as_bytes()));
    });
}

/// A list of objects.
pub fn objects<T>(items: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Object<'_>)) {
    out.push(b'[');
    for (at, item) in items.enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        let mut object = Object::new(out);
        write(item, &mut object);
        object.end();
    }
    out.push(b']');
}
