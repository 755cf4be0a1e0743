//! Functions by address against another reader of symbol tables, in the libraries of this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use perf_prof::symbol::elf::file::ElfFile;
use perf_prof::symbol::elf::symbols::{FileSymbols, SymbolOptions};

/// Addresses that are compared in a file.
const ADDRESSES: u64 = 2000;
const MAX_FILES: usize = 60;

/// What the two say of the addresses of a file.
#[derive(Debug, Default)]
struct Comparison {
    same: u64,
    /// Another name of the same function.
    aliases: u64,
    /// A function that has another one inside, which the other reader takes for its end.
    enclosing: u64,
    /// The other reader gives what follows a symbol without a size to that symbol.
    unsized_label: u64,
    nowhere: u64,
    /// The other reader does not read the file.
    refused: u64,
    other: Vec<String>,
}

fn compare(path: &Path, sum: &mut Comparison) -> Option<()> {
    let file = File::open(path).ok()?;
    let elf = ElfFile::read(&file)?;
    let options = SymbolOptions { demangle: false, debug_dirs: Vec::new(), budget: Default::default() };
    let mut symbols = FileSymbols::open(&file, &options, &[0]).ok()?;
    let mut source = source::Elf::new(path);
    source.debug_syms = false;
    let source = Source::Elf(source);
    let symbolizer = Symbolizer::builder().enable_demangling(false).enable_code_info(false).build();
    let code: Vec<_> = elf.code_segments().collect();
    for (range, address) in code {
        for offset in (0..range.len).step_by((range.len / ADDRESSES + 1) as usize) {
            let ours = symbols.resolve(range.offset + offset).ok();
            let theirs = match symbolizer.symbolize_single(&source, Input::VirtOffset(address + offset)) {
                Ok(Symbolized::Sym(symbol)) => Some((symbol.name.into_owned(), symbol.offset as u64, symbol.size)),
                Ok(Symbolized::Unknown(_)) => None,
                Err(_) => {
                    sum.refused += 1;
                    continue;
                }
            };
            match (ours, theirs) {
                (None, None) => sum.nowhere += 1,
                (Some((name, into)), Some((other, other_into, _))) if into == other_into => {
                    *(if name == other { &mut sum.same } else { &mut sum.aliases }) += 1;
                }
                (Some((_, into)), Some((_, other_into, None))) if into > other_into => sum.unsized_label += 1,
                (None, Some((_, _, None))) => sum.unsized_label += 1,
                (Some(_), None) => sum.enclosing += 1,
                (ours, theirs) => {
                    sum.other.push(format!("{}: {:#x}: {ours:?}, {theirs:?}", path.display(), address + offset));
                }
            }
        }
    }
    Some(())
}

#[test]
fn functions_are_those_of_another_reader() {
    let mut files: Vec<PathBuf> = vec![std::env::current_exe().expect("a path")];
    for dir in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/bin"] {
        let Ok(entries) = fs::read_dir(dir) else { continue };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.is_file() && !path.is_symlink());
        paths.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).map_or(0, |meta| meta.len())));
        files.extend(paths.into_iter().take(MAX_FILES / 2));
    }
    let mut sum = Comparison::default();
    let compared = files.iter().filter(|path| compare(path, &mut sum).is_some()).count();
    println!("{compared} files: {sum:#?}");
    assert!(compared > 5 && sum.same > 1000 && sum.other.is_empty(), "{sum:#?}");
}
