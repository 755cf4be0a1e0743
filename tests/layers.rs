//! The files inside of each room: siblings use one another in one direction only, and no function is long without a reason.

#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sources::sources;

/// A module as a path of names.
type Module = Vec<String>;

/// The code of a module without comments and tests, and what it gives away under names of its own.
#[derive(Default)]
struct ModuleCode {
    paths: Vec<Module>,
    exported: BTreeMap<String, Module>,
    exported_all: Vec<Module>,
}

fn module_of(path: &Path) -> Module {
    let mut names: Module = path.with_extension("").iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|name| name == "mod") || names == ["lib"] {
        names.pop();
    }
    names
}

fn is_test(module: &Module) -> bool {
    module.iter().any(|name| matches!(&**name, "tests" | "model_tests" | "main") || name.ends_with("_tests"))
}

/// Without the modules of tests, whose declarations end with `;` or stand last in their files.
fn without_tests(text: &str) -> String {
    let mut parts = text.split("#[cfg(test)]\n");
    let mut code = parts.next().unwrap().to_owned();
    for part in parts {
        let (line, rest) = part.split_once('\n').unwrap_or((part, ""));
        if line.ends_with(" {") {
            break;
        }
        code += if line.ends_with("\")]") { rest.split_once('\n').map_or("", |(_, rest)| rest) } else { rest };
    }
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::d as e}` as `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, body)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_owned()];
    };
    let body = &body[..body.rfind('}').unwrap()];
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in body.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{}{}", head.trim(), part.trim()))).collect()
}

/// The path from the root of the package. None: it begins elsewhere.
fn absolute(module: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut names: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
    let mut base = module.clone();
    match &*names[0] {
        "crate" => return Some(names.split_off(1)),
        "self" => names.drain(..1).for_each(drop),
        "super" => {}
        _ if modules.contains(&[base.clone(), vec![names[0].clone()]].concat()) => {}
        _ => return None,
    }
    while names.first().is_some_and(|name| name == "super") {
        names.remove(0);
        base.pop();
    }
    Some([base, names].concat())
}

/// The tree of a line that begins a `use`, and whether it is public.
fn use_of(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let (visibility, tree) = line.split_once("use ")?;
    let is_public = visibility.starts_with("pub");
    (visibility.is_empty() || is_public && visibility.split_whitespace().count() == 1).then_some((tree, is_public))
}

fn read(module: &Module, code: &str, modules: &BTreeSet<Module>) -> ModuleCode {
    let (mut read, mut rest) = (ModuleCode::default(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let Some((tree, is_public)) = use_of(line) else {
            rest = rest + line + "\n";
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree += lines.next().expect("a use ends");
        }
        for path in expand(tree.trim_end_matches(';')).iter().filter_map(|path| absolute(module, path, modules)) {
            match path.last().map(|name| &**name) {
                Some("*") if is_public => read.exported_all.push(path[..path.len() - 1].to_vec()),
                Some(name) if is_public => drop(read.exported.insert(name.to_owned(), path)),
                _ => read.paths.push(path),
            }
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(start) {
            let len = rest[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let path = &rest[at..at + len.unwrap_or(rest.len() - at)];
            read.paths.extend(absolute(module, path.trim_end_matches(':'), modules));
        }
    }
    read
}

/// The module in which what the path names is.
fn resolve(path: &[String], all: &BTreeMap<Module, ModuleCode>, depth: u32) -> Module {
    let mut module = Module::new();
    for (index, name) in path.iter().enumerate() {
        let inner = [module.clone(), vec![name.clone()]].concat();
        if all.contains_key(&inner) {
            module = inner;
            continue;
        }
        let Some(code) = all.get(&module).filter(|_| depth < 8) else { break };
        let rest = &path[index + 1..];
        if let Some(target) = code.exported.get(name) {
            return resolve(&[target, rest].concat(), all, depth + 1);
        }
        for target in &code.exported_all {
            let found = resolve(&[target, &path[index..]].concat(), all, depth + 1);
            if found != *target {
                return found;
            }
        }
        break;
    }
    module
}

/// Which sibling uses which, by the module that holds them.
fn uses_of_siblings(all: &BTreeMap<Module, ModuleCode>) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
    let mut uses: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, code) in all {
        for path in &code.paths {
            let target = resolve(path, all, 0);
            let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if common > 0 && common < module.len() && common < target.len() {
                let siblings = uses.entry(module[..common].to_vec()).or_default();
                siblings.entry(module[common].clone()).or_default().insert(target[common].clone());
            }
        }
    }
    uses
}

#[test]
fn no_circle_is_among_siblings() {
    let sources: Vec<(Module, String)> = sources("src")
        .into_iter()
        .map(|(path, text)| (module_of(&path), without_tests(&text)))
        .filter(|(module, _)| !is_test(module))
        .collect();
    let modules: BTreeSet<Module> = sources.iter().map(|(module, _)| module.clone()).collect();
    let all: BTreeMap<Module, ModuleCode> =
        sources.iter().map(|(module, code)| (module.clone(), read(module, code, &modules))).collect();
    let uses = uses_of_siblings(&all);
    assert!(uses.len() > 20 && uses.values().map(BTreeMap::len).sum::<usize>() > 200, "the reader sees too little");
    let mut circles = Vec::new();
    for (room, mut uses) in uses {
        // What uses nothing that is left is in no circle.
        loop {
            let left: BTreeSet<String> = uses.keys().cloned().collect();
            uses.values_mut().for_each(|used| used.retain(|used| left.contains(used)));
            let before = uses.len();
            uses.retain(|_, used| !used.is_empty());
            if uses.len() == before {
                break;
            }
        }
        circles.extend(uses.iter().map(|(one, used)| format!("{}: {one} uses {used:?}", room.join("::"))));
    }
    assert!(circles.is_empty(), "files that use each other, or wait behind such:\n{}", circles.join("\n"));
}

/// A longer function has a comment that says why: `// One function, since ...`.
#[test]
fn functions_fit_on_a_screen() {
    const MAX_LINES: usize = 60;
    let (mut long, mut functions) = (Vec::new(), 0);
    for (path, text) in sources("src").into_iter().filter(|(path, _)| !is_test(&module_of(path))) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines: Vec<&str> = code.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let is_function = head.starts_with("fn ") || head.starts_with("pub") && head.contains(" fn ");
            if !is_function || head.ends_with(['}', ';']) {
                continue;
            }
            functions += 1;
            let end = format!("{}}}", " ".repeat(indent));
            let Some(len) = lines[start..].iter().position(|line| *line == end) else { continue };
            let has_reason = lines[start..start + len].iter().any(|line| line.contains("// One function, since "));
            if len + 1 > MAX_LINES && !has_reason {
                long.push(format!("{}: {} lines: {head}", path.display(), len + 1));
            }
        }
    }
    assert!(functions > 3000, "{functions}");
    assert!(long.is_empty(), "{}", long.join("\n"));
}
