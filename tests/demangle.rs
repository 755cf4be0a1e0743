//! Names of C++ as c++filt writes them: those of a fixture, of a C++20 program without optimisation, of libstdc++, and what
//! the programs and libraries of this machine export.
//!
//! perf-prof differs on purpose where c++filt
//! - leaves a comma or `>>` behind an empty pack: `f<A<int>>(int, , char)` for `f<A<int> >(int, char)`,
//! - calls the constructor of a lambda after the function around it: `f()::{lambda()#1}::f()`,
//! - takes `T_` for that of a function whose lambda is an argument, or refuses to name it,
//! - prints qualifiers of a function type that a reference of `T const&` does not have,
//! - prints the type of `&A::f` where `f` is const or has a tag,
//! - goes on after 4,096 bytes.

#[macro_use]
mod common;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use perf_prof::symbol::demangle::demangled;
use perf_prof::symbol::elf::file::is_elf;

const FIXTURE: &str = include_str!("data/cpp_names.txt");
const PROGRAM: &str = include_str!("data/cpp20.cpp");

const MAX_NAME_BYTES: usize = 4096;

#[test]
fn names_are_written_as_cxxfilt_writes_them() {
    let lines = FIXTURE.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let (name, want) = line.split_once('\t').expect("two columns");
        assert_eq!(demangled(name).as_deref(), Some(want), "{name}");
        count += 1;
    }
    assert!(count > 500, "{count}");
}

#[test]
fn names_that_cxxfilt_refuses_or_writes_otherwise() {
    let cases = [
        // Empty packs.
        ("_Z1fIJEiEvv", "void f<int>()"),
        ("_Z1f1AI1BIiJEEE", "f(A<B<int> >)"),
        ("_ZN1A1fIJEEEviDpRKT_c", "void A::f<>(int, char)"),
        // Constructors of what has no name.
        ("_ZZ3foovENUlvE_C1ERKS_", "foo()::{lambda()#1}::{lambda()#1}({lambda()#1} const&)"),
        ("_ZN3FooUt_D1Ev", "Foo::{unnamed type#1}::~{unnamed type#1}()"),
        // Which function `T_` is an argument of.
        ("_Z1gIZ1fIiEvT_EUlvE_EvRS1_", "void g<f<int>(int)::{lambda()#1}>(f<int>(int)::{lambda()#1}&)"),
        ("_ZZ3fooIiEvT_ENKUlS0_E_clES0_", "foo<int>(int)::{lambda(auto:1)#1}::operator()(int) const"),
        ("_ZNK1AIiEcvS_IT_EIdEEv", "A<int>::operator A<double><double>() const"),
        // Types of functions.
        ("_Z1fIFviEEvRKT_", "void f<void (int)>(void (&)(int))"),
        ("_Z1fIXadL_ZNK1A1gEvEEEvv", "void f<&A::g>()"),
        // Newer than binutils 2.40.
        ("_Z1fDB8_DU8_", "f(_BitInt(8), unsigned _BitInt(8))"),
        ("_Z1fDk1C", "f(C auto)"),
        ("_Z1fITtTyE1AEvv", "void f<A>()"),
        ("_Z1fITnDaLi3EEvv", "void f<3>()"),
        ("_Z1fITk1CiEvT_", "void f<int>(int)"),
        ("_Z1fIiEvT_Q1CIS0_E", "void f<int>(int) requires C<int>"),
        ("_Z1fIiEvT_QrQS0__Xplfp_Li1EE", "void f<int>(int) requires requires (int) { {parm#1}+(1); }"),
        ("_ZN1AF3fooEv", "A::friend foo()"),
        ("_ZNH1A3fooEi", "A::foo(this int)"),
        ("_Z1fIiE1AIXnxfp_EES0_", "A<noexcept ({parm#1})> f<int>(A)"),
        ("_Z1fTs1A", "f(struct A)"),
        ("_ZGR1x0_", "reference temporary #1 for x"),
        ("_Z1fILA5_KcEEvv", "void f<char const [5]>()"),
    ];
    for (name, want) in cases {
        assert_eq!(demangled(name).as_deref(), Some(want), "{name}");
    }
}

#[test]
fn a_program_of_every_kind_of_name_is_as_cxxfilt_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("names.cpp");
    fs::write(&source, PROGRAM).unwrap();
    let program = dir.path().join("names");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++20", "-O0", "-pthread", "-o"]).args([&program, &source]);
    let done = match compiler.output() {
        Ok(done) => done,
        Err(err) => skip!("no g++: {err}"),
    };
    let text = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        skip!("this g++ does not build it: {}", text.lines().next().unwrap_or_default());
    }
    compare(&program, &[], 3000).unwrap_or_else(|why| skip_part!("{why}"));
}

#[test]
fn the_names_of_libstdcxx_are_as_cxxfilt_writes_them() {
    let done = match Command::new("g++").arg("-print-file-name=libstdc++.so.6").output() {
        Ok(done) => done,
        Err(err) => skip!("no g++: {err}"),
    };
    let path = String::from_utf8(done.stdout).unwrap();
    let path = Path::new(path.trim());
    if !path.is_absolute() {
        skip!("no libstdc++.so.6 beside g++");
    }
    compare(path, &["--dynamic"], 3000).unwrap_or_else(|why| skip_part!("{why}"));
}

/// Every name has the text of c++filt, or one that differs for a known reason. Programs and libraries are taken by size until
/// they have enough names.
#[test]
fn each_exported_name_that_cxxfilt_writes_otherwise_has_a_known_reason() {
    const LEAST: usize = 100_000;
    let mut names = BTreeSet::new();
    for path in large_programs() {
        match exported_names(&path, &["--dynamic", "--defined-only"]) {
            Ok(exported) => names.extend(exported),
            Err(why) => skip!("{why}"),
        }
        if names.len() > LEAST + LEAST / 5 {
            break;
        }
    }
    if names.len() < LEAST {
        skip!("the programs and libraries here export {} names of C++", names.len());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wanted = match cxxfilt(&names) {
        Ok(wanted) => wanted,
        Err(why) => skip!("{why}"),
    };
    let (mut counts, mut unexplained) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for (name, want) in names.iter().zip(&wanted) {
        let text = demangled(name);
        match difference(name, text.as_deref().unwrap_or(name), want) {
            Some(kind) => *counts.entry(kind).or_default() += 1,
            None => unexplained.push(format!("{name}\n    {text:?}\n    {want}")),
        }
    }
    println!("{} names: {counts:?}", names.len());
    assert!(unexplained.is_empty(), "{} of {}:\n{}", unexplained.len(), names.len(), unexplained.join("\n"));
    let rare =
        counts.iter().filter(|(kind, _)| ![SAME, PACKS, CUT].contains(*kind)).map(|(_, count)| count).sum::<usize>();
    assert!(rare * 1000 < names.len(), "{counts:?}");
}

const SAME: &str = "the same";
const PACKS: &str = "empty packs";
const CUT: &str = "cut";

/// How the text differs from that of c++filt. None: in no known way.
fn difference(name: &str, text: &str, want: &str) -> Option<&'static str> {
    if text == want {
        return Some(SAME);
    }
    let (ours, theirs) = (plain(text), plain(want));
    if ours == theirs {
        return Some(PACKS);
    }
    let prefix = ours.bytes().zip(theirs.bytes()).take_while(|(one, other)| one == other).count();
    if text.len() > MAX_NAME_BYTES - 4 && want.len() > text.len() && prefix + 2 > ours.len() {
        return Some(CUT);
    }
    if want == name {
        return Some("refused by c++filt");
    }
    let (same, ours) = (ours.get(..prefix)?, ours.get(prefix..)?);
    let is_structor =
        ["{unnamed type#", "{lambda("].iter().any(|start| ours.trim_start_matches('~').starts_with(start));
    if is_structor && same.trim_end_matches('~').ends_with("}::") {
        return Some("constructors of what has no name");
    }
    if same.ends_with('&') && theirs.get(prefix..)?.starts_with('(') && name.contains("XadL_ZNK") {
        return Some("a member function that is const, as an argument");
    }
    // `T_` of the function around the lambda, or of the one whose argument the lambda is.
    (same.contains("{lambda(") && name.contains("EUl") && name.contains("T_")).then_some("arguments of which function")
}

/// Files of programs and libraries, the largest first.
fn large_programs() -> Vec<PathBuf> {
    const MIN_BYTES: u64 = 1 << 20;
    const MAX_DEPTH: usize = 4;
    const MAX_FILES: usize = 64;
    let mut found = BTreeMap::new();
    let mut pending: Vec<(PathBuf, usize)> =
        ["/usr/bin", "/usr/lib", "/usr/local"].iter().map(|dir| (PathBuf::from(dir), 1)).collect();
    while let Some((dir, depth)) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() && depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else if meta.is_file()
                && meta.len() >= MIN_BYTES
                && File::open(entry.path()).is_ok_and(|file| is_elf(&file))
            {
                found.insert((Reverse(meta.len()), meta.ino()), entry.path());
            }
        }
    }
    found.into_values().take(MAX_FILES).collect()
}

/// Under 0.2 % of the names that c++filt demangles are refused, and under 2 % have another text, for the reasons above.
/// `Err`: what is not installed.
fn compare(file: &Path, options: &[&str], least: usize) -> Result<(), String> {
    let names = exported_names(file, options)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(names.len() > least, "{} names in {}", names.len(), file.display());
    let wanted = cxxfilt(&names)?;
    let (mut all, mut refused, mut other) = (0, Vec::new(), Vec::new());
    for (name, want) in names.iter().zip(&wanted).filter(|(name, want)| *name != want) {
        all += 1;
        match demangled(name) {
            None => refused.push(*name),
            Some(text) if !is_same(&text, want) => other.push(format!("{name}\n    {text}\n    {want}")),
            Some(_) => {}
        }
    }
    println!("{all} names: {} refused, {} of another text\n{}", refused.len(), other.len(), other.join("\n"));
    assert!(refused.len() * 500 < all, "{refused:?}");
    assert!(other.len() * 50 < all, "{} of {all}", other.len());
    Ok(())
}

/// The names of C++ that nm lists.
fn exported_names(file: &Path, options: &[&str]) -> Result<BTreeSet<String>, String> {
    let listed = Command::new("nm").args(["--format=posix"]).args(options).arg(file).output();
    let listed = listed.map_err(|err| format!("no nm: {err}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let words = listed.lines().filter_map(|line| line.split([' ', '@']).next());
    Ok(words.filter(|name| name.starts_with("_Z")).map(str::to_owned).collect())
}

fn is_same(text: &str, want: &str) -> bool {
    if text.len() == MAX_NAME_BYTES {
        return want.len() >= MAX_NAME_BYTES;
    }
    plain(text) == plain(want)
}

fn plain(text: &str) -> String {
    text.replace("> >", ">>").replace("> >", ">>").replace(", ,", ",").replace("<, ", "<")
}

fn cxxfilt(names: &[&str]) -> Result<Vec<String>, String> {
    let child = Command::new("c++filt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|err| format!("no c++filt: {err}"))?;
    let (text, mut input) = (names.join("\n") + "\n", child.stdin.take().unwrap());
    let writer = thread::spawn(move || input.write_all(text.as_bytes()));
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let lines: Vec<String> = String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), names.len());
    Ok(lines)
}
