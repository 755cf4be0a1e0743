//! The documentation: every link leads somewhere, every command and option has its place, every command line parses.

mod common;
#[path = "common/sources.rs"]
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use common::shell::{call, check};
use perf_prof::commands::Cli;
use perf_prof::profilers::trials;
use perf_prof::report::{ColumnHead, ColumnKind, TableHead, Unit};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// README, CHANGELOG and all pages below docs/.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    let mut dirs = vec![root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                None if path.is_dir() => dirs.push(path),
                Some(extension) if extension == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    pages
}

/// The text without blocks of code.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect()
}

/// The anchor of a heading, as forges make it: lower case, dashes for blanks, no punctuation.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

fn broken(page: &Path, link: &str) -> bool {
    if link.contains("://") {
        return false;
    }
    let (file, part) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    let has_part = || prose(&read(&target)).lines().any(|line| line.starts_with('#') && anchor(line) == part);
    !target.exists() || !part.is_empty() && !has_part()
}

#[test]
fn links_lead_somewhere() {
    let mut links = 0;
    for page in pages() {
        for link in prose(&read(&page)).split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            assert!(!broken(&page, link), "{}: {link}", page.display());
            links += 1;
        }
    }
    assert!(links > 20, "{links} links");
    let readme = root().join("README.md");
    assert!(broken(&readme, "docs/no-such-page.md") && broken(&readme, "docs/events.md#no-such-part"));
}

/// Who has an incident reads one page, and who is new to the code another one.
#[test]
fn the_first_pages_are_short() {
    for (page, limit) in [("README.md", 180), ("docs/design.md", 150)] {
        let lines = read(&root().join(page)).lines().count();
        assert!(lines <= limit, "{page}: {lines} lines, {limit} at most");
    }
}

#[test]
fn the_list_of_pages_is_complete() {
    let list = read(&root().join("docs/README.md"));
    for page in pages() {
        let Ok(name) = page.strip_prefix(root().join("docs")) else { continue };
        let link = format!("]({})", name.display());
        assert!(name == Path::new("README.md") || list.contains(&link), "docs/README.md lacks {link}");
    }
}

#[test]
fn every_command_and_option_has_its_place() {
    let common = read(&root().join("docs/common-options.md"));
    let readme = read(&root().join("README.md"));
    let mut command = Cli::command();
    command.build();
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        assert!(readme.contains(&format!("`perf-prof {name}")), "README.md says not what {name} is for");
        let own = root().join(format!("docs/profilers/{name}.md"));
        let own = read(&own);
        assert!(own.contains(&format!("perf-prof {name}")), "no page is about {name}");
        let shared = command.get_arguments().any(|arg| arg.get_long() == Some("mmap-pages"));
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help" && !arg.is_hide_set()) {
            let Some(long) = arg.get_long() else { continue };
            let mut spellings = vec![format!("--{long}")];
            spellings.extend(arg.get_short().filter(|_| !shared).map(|short| format!("`-{short}`")));
            let told = |page: &str| spellings.iter().any(|spelling| has_word(page, spelling));
            assert!(told(&own) || shared && told(&common), "no page tells of {name} --{long}");
        }
    }
}

/// `word` and not the start of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    text.split(word).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
}

#[test]
fn command_lines_parse() {
    let mut calls = 0;
    for page in pages() {
        let text = read(&page);
        let lines: Vec<_> = text.lines().collect();
        let mut fenced = false;
        for (at, line) in lines.iter().enumerate() {
            let refused = lines.get(at + 1).is_some_and(|next| next.starts_with("perf-prof: invalid value"));
            fenced ^= line.starts_with("```");
            let in_block =
                fenced && ["# perf-prof ", "$ perf-prof ", "perf-prof "].iter().any(|start| line.starts_with(start));
            let in_prose = line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("perf-prof "));
            let here = if in_block { vec![*line] } else { in_prose.collect() };
            for words in here.into_iter().filter_map(call) {
                let result = check(&words);
                assert!(result.is_ok() != refused, "{}: {line}: {result:?}", page.display());
                calls += 1;
            }
        }
    }
    assert!(calls > 30, "{calls} command lines");
}

#[test]
fn pages_list_the_keys_of_occurrences() {
    let mut told = 0;
    for profiler in trials() {
        let Some(layout) = profiler.occurrences else { continue };
        let page = read(&root().join(format!("docs/profilers/{}.md", profiler.name)));
        for detail in layout.details().iter().filter(|detail| detail.in_json) {
            let (object, key) = detail.name.split_once('.').unwrap_or(("", detail.name));
            let is_told = |key: &str| page.contains(&format!("`{key}`"));
            let with_object = (is_told(key) && is_told(object)) || is_told(detail.name);
            assert!(is_told(key) && object.is_empty() || with_object, "{}: {}", profiler.name, detail.name);
            assert!(detail.alias.is_none_or(is_told), "{}: {:?}", profiler.name, detail.alias);
            told += 1;
        }
    }
    assert!(told > 55, "{told} keys");
}

/// The page for contributors shows a whole profiler; it must equal the source.
#[test]
fn the_profiler_of_the_page_is_the_real_one() {
    let page = read(&root().join("docs/contributing.md"));
    let file = read(&root().join("src/profilers/page_faults.rs"));
    let (code, _) = file.split_once("\n#[cfg(test)]").expect("tests of its own");
    let (_, part) = page.split_once("\n## A whole profiler\n").expect("a part on it");
    let part = part.split("\n## ").next().unwrap();
    let shown: String = part.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let lines = |text: &str| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (_, code) = code.split_once("\n/// ").expect("the options");
    assert_eq!(lines(&shown), lines(&format!("/// {code}")));
}

/// Every call of the trait, as the page on it has it.
#[test]
fn the_trait_of_the_page_is_the_real_one() {
    let page = read(&root().join("docs/reports.md"));
    let source = read(&root().join("src/profiler.rs"));
    let calls = |text: &str| -> Vec<String> {
        let (_, block) = text.split_once("\npub trait Profiler {\n").expect("the trait");
        let block = block.split("\n}\n").next().unwrap();
        let lines = block.lines().map(str::trim).filter(|line| line.starts_with("fn "));
        let mut calls: Vec<_> = lines.map(|line| line.split([';', '{']).next().unwrap().trim().to_owned()).collect();
        calls.sort();
        calls
    };
    assert_eq!(calls(&page), calls(&source));
}

/// Pages whose words in backquotes are names of the code.
const PAGES_ON_CODE: [&str; 4] = ["design", "reports", "kernel-facts", "contributing"];

#[test]
fn pages_on_the_code_name_what_there_is() {
    let names = CodeNames::read();
    let (mut found, mut stale) = (0, Vec::new());
    for page in PAGES_ON_CODE {
        for span in prose(&read(&root().join(format!("docs/{page}.md")))).split('`').skip(1).step_by(2) {
            stale.extend(names.stale(span).map(|name| format!("docs/{page}.md: no {name}, in `{span}`")));
            found += usize::from(is_path(span) || code_name(span).is_some());
        }
    }
    assert!(stale.is_empty() && found > 150, "{found} names; {stale:#?}");
    for stale in
        ["run/no_such_file.rs", "NoSuchType", "Evlist::no_such_call", "ctx.no_such_call(event)", "no_such_word"]
    {
        assert!(names.stale(stale).is_some(), "{stale}");
    }
    let design = read(&root().join("docs/design.md"));
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let named = if path.is_dir() { format!("`{name}/`") } else { format!("`{name}`") };
        assert!(name == "lib.rs" || design.contains(&named), "docs/design.md lacks the room {named}");
    }
}

/// Names that the code defines or uses, comments left out.
struct CodeNames {
    types: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl CodeNames {
    fn read() -> CodeNames {
        let (mut types, mut words) = (BTreeSet::new(), BTreeSet::new());
        for folder in ["src", "tests", "examples"] {
            for (path, text) in sources::sources(folder) {
                if path == Path::new("docs.rs") {
                    continue; // the stale names of the test itself
                }
                for line in text.lines().map(|line| line.split("//").next().unwrap()) {
                    words.extend(identifiers(line).map(str::to_owned));
                    types.extend(defined_type(line).map(str::to_owned));
                }
            }
        }
        CodeNames { types, words }
    }

    /// The part of `span` that names nothing. None also if it is no name: an option, a command line, an expression.
    fn stale<'a>(&self, span: &'a str) -> Option<&'a str> {
        if is_path(span) {
            let bases = ["", "src", "src/profilers"].map(|base| root().join(base));
            return bases.iter().all(|base| !base.join(span).exists()).then_some(span);
        }
        let mut names = code_name(span)?.split(['.', ':']).filter(|name| !name.is_empty());
        names.find(|name| {
            let is_type = name.starts_with(|c: char| c.is_uppercase()) && name.contains(|c: char| c.is_lowercase());
            !(if is_type { &self.types } else { &self.words }).contains(*name)
        })
    }
}

fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
    (span.contains('/') || span.ends_with(".rs")) && !span.starts_with('/') && span.chars().all(plain)
}

/// `Evlist::watch_idle`, `ctx.weigh` of a call, `Schema` of `Schema<R>`.
fn code_name(span: &str) -> Option<&str> {
    let name = span.split(['(', '<', '!']).next().unwrap();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:".contains(c);
    let name = name.strip_prefix('.').unwrap_or(name);
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain)).then_some(name)
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The type, or the variant of an enumeration, that the line defines.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = identifiers(line).skip_while(|word| ["pub", "crate", "super", "in"].contains(word));
    let first = words.next()?;
    let is_variant = line.starts_with("    ") && line.trim_start().starts_with(first);
    match first {
        "struct" | "enum" | "trait" | "type" => words.next(),
        _ if is_variant && first.starts_with(|c: char| c.is_ascii_uppercase()) => Some(first),
        _ => None,
    }
}

const BEGIN: &str = "<!-- tables: made from the schemas by tests/docs.rs -->\n";
const END: &str = "<!-- end of the tables -->\n";

/// `PERF_PROF_WRITE_DOCS=1` writes the tables again.
#[test]
fn the_keys_of_tables_are_those_of_the_schemas() {
    let path = root().join("docs/json.md");
    let text = read(&path);
    let (before, rest) = text.split_once(BEGIN).expect("where the tables begin");
    let (told, after) = rest.split_once(END).expect("where they end");
    let mut tables = String::new();
    for profiler in trials() {
        assert_eq!(
            profiler.tables.is_empty(),
            ["expr", "trace"].contains(&profiler.name),
            "{} tells its tables",
            profiler.name
        );
        profiler.tables.iter().for_each(|table| push_table(profiler.name, &table.head(), &mut tables));
    }
    assert!(tables.matches("\n###").count() >= 8, "{tables}");
    if std::env::var_os("PERF_PROF_WRITE_DOCS").is_some() {
        fs::write(&path, [before, BEGIN, &tables, END, after].concat()).expect("written");
    } else {
        assert!(told == tables, "docs/json.md is old: PERF_PROF_WRITE_DOCS=1 cargo test --test docs writes it anew");
    }
}

/// Meanings of keys in every table, unless a schema has another meaning.
const COMMON_MEANINGS: [(&str, &str); 5] = [
    ("cpu", "the CPU"),
    ("pid", "the process"),
    ("tid", "the thread"),
    ("comm", "name of the task"),
    ("place", "function of the instruction, with the offset in it, or why it has no name"),
];

fn push_table(profiler: &str, head: &TableHead, out: &mut String) {
    let TableHead { table, columns, meanings, is_snapshot } = head;
    let shown: Vec<&ColumnHead> = columns.iter().filter(|column| column.in_text || column.in_json).collect();
    *out += &format!("\n### {profiler}: {table}\n\n");
    if *is_snapshot {
        *out += "Of what is now: rows of a later interval replace them.\n\n";
    }
    let over = if *is_snapshot { ["", ""] } else { [" | over intervals", " | ---"] };
    *out += &format!("| key | in text | unit{} | meaning |\n| --- | --- | ---{} | --- |\n", over[0], over[1]);
    for column in &shown {
        let meaning = meanings.iter().chain(&COMMON_MEANINGS).find(|(key, _)| *key == column.key);
        let (_, meaning) =
            meaning.unwrap_or_else(|| panic!("{profiler}, {table}: nobody tells what {} is", column.key));
        let key = if column.in_json { format!("`{}`", column.key) } else { String::new() };
        let mut row = vec![key, in_text(column), unit(column).to_owned()];
        row.extend((!is_snapshot).then(|| over_intervals(column.kind).to_owned()));
        row.push((*meaning).to_owned());
        *out += &format!("| {} |\n", row.join(" | "));
    }
    for (key, _) in meanings {
        assert!(columns.iter().any(|column| column.key == *key), "{profiler}, {table}: no column is {key}");
    }
}

fn in_text(column: &ColumnHead) -> String {
    match column {
        ColumnHead { kind: ColumnKind::Stack, .. } => "lines below".to_owned(),
        ColumnHead { is_below: true, heading, .. } => format!("`{heading}:`, below the row"),
        ColumnHead { in_text: false, .. } => String::new(),
        ColumnHead { heading, .. } if heading == " " => "behind the row".to_owned(),
        ColumnHead { if_any: true, heading, .. } => format!("`{heading}`, if any"),
        ColumnHead { heading, .. } => format!("`{heading}`"),
    }
}

/// The unit of a column in JSON.
fn unit(column: &ColumnHead) -> &'static str {
    match column.unit {
        _ if column.key.ends_with("_ns") => "ns",
        _ if column.key.ends_with("pct") => "%",
        _ if column.key.ends_with("_hz") => "Hz",
        Unit::Ns | Unit::Us | Unit::Age => "ns",
        Unit::Bytes => "bytes",
        Unit::Hz => "Hz",
        Unit::Count => "",
    }
}

/// How cells of several intervals become one.
fn over_intervals(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Label | ColumnKind::Stack | ColumnKind::Place => "names the row",
        ColumnKind::Counter => "adds up",
        ColumnKind::Gauge => "the newest",
        ColumnKind::Greatest => "the greatest",
        ColumnKind::Least => "the least",
        ColumnKind::Names => "all of them",
        ColumnKind::Distribution | ColumnKind::Derived => "worked out anew",
    }
}
