//! The symbols of one ELF file: from its own tables, then `.gnu_debugdata`, then a separate debug file.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::escape::escape;
use crate::symbol::budget::{Budget, Share};
use crate::symbol::demangle;
use crate::symbol::elf::file::FileRange;
use crate::symbol::elf::function_index::{FunctionIndex, NamePlace, name_at};
use crate::symbol::elf::questions::{FileHead, NamesFile, SymbolSource, index_functions};
use crate::symbol::unnamed::{NO_SYMBOL, STRIPPED, TOO_LARGE, UnnamedReason};

/// Most names per question: they fit into a message.
const MAX_ASKED: usize = 2048;
/// Most bytes of names that are kept per table. The names of looked-up places are kept elsewhere, too.
const MAX_KEPT_BYTES: u64 = 1 << 20;

/// Symbols of one file. The next table is opened when a look-up fails in all tables before it.
pub struct FileSymbols {
    layers: Vec<SymbolLayer>,
    head: FileHead,
    /// The file, as long as further tables may be read from it.
    file: Option<File>,
    /// Further places of symbols; the next one to be opened is the last.
    sources: Vec<SymbolSource>,
    options: SymbolOptions,
    users: Vec<u32>,
}

/// Options of symbol look-ups.
#[derive(Clone, Debug)]
pub struct SymbolOptions {
    pub demangle: bool,
    /// Where distributions put separate debug files.
    pub debug_dirs: Vec<PathBuf>,
    /// Memory for what is read from files.
    pub budget: Budget,
}

/// The functions of one file on disk or in memory.
struct SymbolLayer {
    index: FunctionIndex,
    names: NamesFile,
    /// Names that were read. Empty: the symbol has none.
    texts: FxHashMap<NamePlace, String>,
    text_bytes: u64,
    demangle: bool,
    /// Memory for the index and the names.
    share: Share,
    /// The names take as much as they may: the next question drops them.
    is_full: bool,
}

impl FileSymbols {
    /// Opens the symbols of a file, which may be open as a place only (O_PATH). `users`: uids of the processes that have mapped it;
    /// their share of the budget pays.
    ///
    /// # Errors
    /// The file is not ELF, cannot be read, or does not answer; the budget of its users is spent.
    pub fn open(file: &File, options: &SymbolOptions, users: &[u32]) -> Result<FileSymbols, UnnamedReason> {
        let (layer, head) = SymbolLayer::open(file, SymbolSource::Own, options, users)?;
        let separate = head.build_id.clone().map(|build_id| {
            let dirs = options.debug_dirs.iter().map(|dir| dir.as_os_str().as_bytes().to_vec()).collect();
            SymbolSource::Separate { build_id, dirs }
        });
        let sources: Vec<SymbolSource> =
            separate.into_iter().chain(head.has_debugdata.then_some(SymbolSource::Debugdata)).collect();
        let file = if sources.is_empty() { None } else { file.try_clone().ok() };
        Ok(FileSymbols { layers: vec![layer], head, file, sources, options: options.clone(), users: users.to_vec() })
    }

    /// The function at `offset` in the file, and the distance from its start.
    ///
    /// # Errors
    /// No table has a symbol there, or its name cannot be read.
    pub fn resolve(&mut self, offset: u64) -> Result<(String, u64), UnnamedReason> {
        let missing = if self.head.has_symtab { NO_SYMBOL } else { STRIPPED };
        let address = self.head.loads.address(offset).ok_or(missing)?;
        let mut next = 0;
        loop {
            while let Some(layer) = self.layers.get_mut(next) {
                if let Some(function) = layer.index.find(address)
                    && let Some(name) = layer.name(function.name, &self.users)?
                {
                    return Ok((name, address - function.start));
                }
                next += 1;
            }
            if !self.open_next() {
                break;
            }
        }
        Err(if self.head.has_symtab { NO_SYMBOL } else { STRIPPED })
    }

    /// Reads the names at these offsets with one question, so that [`FileSymbols::resolve`] need not ask.
    pub fn read_ahead(&mut self, offsets: impl Iterator<Item = u64>) {
        let addresses = offsets.filter_map(|offset| self.head.loads.address(offset));
        let mut wanted: Vec<FxHashSet<NamePlace>> = vec![FxHashSet::default(); self.layers.len()];
        for address in addresses {
            let mut layers = self.layers.iter().zip(&mut wanted);
            if let Some((function, wanted)) =
                layers.find_map(|(layer, wanted)| Some((layer.index.find(address)?, wanted)))
            {
                wanted.insert(function.name);
            }
        }
        for (layer, wanted) in self.layers.iter_mut().zip(wanted) {
            let wanted: Vec<NamePlace> = wanted.into_iter().collect();
            for some in wanted.chunks(MAX_ASKED) {
                if layer.ask(some, &self.users).is_err() || layer.is_full {
                    break; // `resolve` returns the reason when the frame is printed
                }
            }
        }
    }

    /// The linker's address of a byte of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.head.loads.address(offset)
    }

    /// The offset in the file of the program's entry point.
    pub fn entry(&self) -> Option<u64> {
        self.head.entry
    }

    /// Opens the next table. False when there is none.
    fn open_next(&mut self) -> bool {
        while let Some(source) = self.sources.pop()
            && let Some(file) = &self.file
        {
            if let Ok((layer, _)) = SymbolLayer::open(file, source, &self.options, &self.users) {
                self.head.has_symtab = true;
                self.layers.push(layer);
                return true;
            }
        }
        self.file = None;
        false
    }
}

impl SymbolLayer {
    fn open(
        file: &File,
        from: SymbolSource,
        options: &SymbolOptions,
        users: &[u32],
    ) -> Result<(SymbolLayer, FileHead), UnnamedReason> {
        let found = index_functions(file, users, from, options.budget.room(users))?;
        let share = options.budget.take(found.index.bytes(), users).ok_or(TOO_LARGE)?;
        let layer = SymbolLayer {
            index: found.index,
            names: found.names,
            texts: FxHashMap::default(),
            text_bytes: 0,
            demangle: options.demangle,
            share,
            is_full: false,
        };
        Ok((layer, found.head))
    }

    /// The name at a place in a string table. None: there is none.
    fn name(&mut self, place: NamePlace, users: &[u32]) -> Result<Option<String>, UnnamedReason> {
        let Some(table) = self.index.text(place) else { return Ok(None) };
        let text = if table.is_copied {
            self.text(&name_at(self.index.file(), table.range))
        } else {
            self.ask(&[place], users)?;
            self.texts.get(&place).cloned().unwrap_or_default()
        };
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Reads those of these names that are neither copied into the index nor read already.
    fn ask(&mut self, places: &[NamePlace], users: &[u32]) -> Result<(), UnnamedReason> {
        let is_asked = |place: &NamePlace| {
            let table = self.index.text(*place).filter(|table| !table.is_copied)?;
            (!self.texts.contains_key(place)).then_some((*place, table.range))
        };
        let (asked, ranges): (Vec<NamePlace>, Vec<FileRange>) = places.iter().filter_map(is_asked).unzip();
        if asked.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.is_full) {
            (self.texts, self.text_bytes) = Default::default();
        }
        for (place, name) in asked.into_iter().zip(self.names.read(users, ranges)?) {
            let text = self.text(&name.0);
            self.text_bytes += text.len() as u64;
            self.texts.insert(place, text);
        }
        // Beyond the limits, the names are dropped with the next question.
        let is_paid = self.share.set(self.index.bytes() + self.text_bytes);
        self.is_full = !is_paid || self.text_bytes > MAX_KEPT_BYTES;
        Ok(())
    }

    /// A name as it is shown.
    fn text(&self, name: &[u8]) -> String {
        let Ok(name) = str::from_utf8(name) else { return demangle::cut(&escape(name)) };
        let demangled = if self.demangle { demangle::demangled(name) } else { None };
        demangled.unwrap_or_else(|| demangle::cut(name))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::symbol::elf::debug_files::decompress;
    use crate::symbol::elf::file::{FileRange, in_memory};
    use crate::symbol::elf::fixture::{GLOBAL_FUNCTION, SymbolSpec, damaged, file_with};
    use crate::symbol::elf::vdso::own_vdso;
    use crate::symbol::unnamed::CHANGED;
    use proptest::prelude::*;

    fn options() -> SymbolOptions {
        SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Budget::default() }
    }

    fn vdso() -> Vec<u8> {
        own_vdso().expect("every process has one")
    }

    fn resolve_some(bytes: &[u8]) -> usize {
        let file = in_memory(&mut &*bytes).unwrap();
        let Ok(mut symbols) = FileSymbols::open(&file, &options(), &[0]) else { return 0 };
        (0..8192).step_by(64).filter(|offset| symbols.resolve(*offset).is_ok()).count()
    }

    #[test]
    fn functions_of_c_keep_their_names() {
        const NAME: &[u8] = b"gettimeofday\0"; // or the end of __vdso_gettimeofday
        let mut bytes = vdso();
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(NAME)).collect();
        for at in places {
            let start = bytes[..at].iter().rposition(|&byte| byte == 0).unwrap() + 1;
            bytes[at..at + 2].copy_from_slice(b"f\0");
            bytes[start..start + 2].copy_from_slice(b"f\0");
        }
        let mut symbols = FileSymbols::open(&in_memory(&mut bytes.as_slice()).unwrap(), &options(), &[0]).unwrap();
        let names: Vec<String> = (0..8192).step_by(16).filter_map(|at| Some(symbols.resolve(at).ok()?.0)).collect();
        assert!(names.iter().any(|name| name == "f") && !names.iter().any(|name| name == "float"), "{names:?}");
    }

    #[test]
    fn a_whole_file_has_symbols() {
        assert!(resolve_some(&vdso()) > 5);
        assert_eq!(resolve_some(b"\x7fELF"), 0);
        assert_eq!(resolve_some(b""), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn damaged_files_are_survived(bytes in damaged()) {
            resolve_some(&bytes);
        }
    }

    #[test]
    fn tables_that_are_dropped_leave_room_for_others() {
        let file = in_memory(&mut vdso().as_slice()).unwrap();
        let options = SymbolOptions { budget: Budget::new(128 << 10), ..options() };
        let open = || FileSymbols::open(&file, &options, &[0]);
        let mut kept: Vec<FileSymbols> = std::iter::from_fn(|| open().ok()).take(1024).collect();
        assert!((1..1024).contains(&kept.len()), "{}", kept.len());
        assert_eq!(open().err(), Some(TOO_LARGE));
        kept.pop();
        assert!(open().is_ok_and(|mut symbols| (0..8192).any(|offset| symbols.resolve(offset).is_ok())));
    }

    /// Names of large tables stay in their file until they are asked for.
    #[test]
    fn names_are_read_when_they_are_printed() {
        const PADDING: usize = 2 << 20;
        let names: Vec<String> = (0..5000).map(|number| format!("_Z{}function_{number:04}i", 13)).collect();
        let symbols: Vec<SymbolSpec<'_>> =
            names.iter().zip(0..).map(|(name, number)| (name.as_str(), 64 * number, 64, GLOBAL_FUNCTION)).collect();
        let bytes = file_with(&symbols, &[], PADDING);
        let file = in_memory(&mut bytes.as_slice()).unwrap();
        let open = || FileSymbols::open(&file, &options(), &[0]).unwrap();
        let mut symbols = open();
        assert_eq!(symbols.resolve(64 * 7 + 63), Ok(("function_0007(int)".to_owned(), 63)));
        assert_eq!(symbols.layers[0].texts.len(), 1);
        symbols.read_ahead((0..5000).map(|number| 64 * number + 1));
        assert_eq!(symbols.layers[0].texts.len(), 5000);
        assert!(symbols.layers[0].share.bytes() < 500_000, "{}", symbols.layers[0].share.bytes());
        file.write_all_at(b"?", bytes.len() as u64).unwrap();
        assert_eq!(symbols.resolve(64 * 4999), Ok(("function_4999(int)".to_owned(), 0)), "that was read before");
        let mut symbols = open();
        file.write_all_at(b"??", bytes.len() as u64).unwrap();
        assert_eq!(symbols.resolve(0), Err(CHANGED), "the names may be others");
    }

    #[test]
    fn names_that_are_not_text_are_escaped() {
        let mut bytes = file_with(&[("h\u{e9}llo", 100, 10, GLOBAL_FUNCTION)], &[], 0);
        let place = bytes.windows(2).position(|pair| pair == [0xc3, 0xa9]).unwrap();
        bytes[place] = 0xff;
        let mut symbols = FileSymbols::open(&in_memory(&mut bytes.as_slice()).unwrap(), &options(), &[0]).unwrap();
        assert_eq!(symbols.resolve(103), Ok((r"h\xff\xa9llo".to_owned(), 3)));
    }

    #[test]
    fn compressed_tables_are_used_last_and_bounded() {
        let whole = vdso();
        let mut stripped = whole.clone();
        stripped[0x28..0x30].fill(0); // e_shoff
        stripped[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
        assert_eq!(resolve_some(&stripped), 0);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), Default::default()).unwrap();
        writer.write_all(&whole).unwrap();
        let xz = writer.finish().unwrap();
        let mut symbols = FileSymbols::open(&in_memory(&mut stripped.as_slice()).unwrap(), &options(), &[0]).unwrap();
        assert_eq!(symbols.resolve(0x40), Err(STRIPPED));
        let range = FileRange { offset: 0, len: xz.len() as u64 };
        let unpacked = decompress(&in_memory(&mut xz.as_slice()).unwrap(), range, 1 << 20).unwrap();
        let (layer, _) = SymbolLayer::open(&unpacked, SymbolSource::Own, &options(), &[0]).unwrap();
        symbols.layers.push(layer);
        let found = (0..8192).step_by(64).filter(|offset| symbols.resolve(*offset).is_ok()).count();
        assert_eq!(found, resolve_some(&whole));
        for xz in [&b"rubbish"[..], b""] {
            let range = FileRange { offset: 0, len: 1 << 40 };
            assert!(decompress(&in_memory(&mut &*xz).unwrap(), range, 1 << 20).is_err());
        }
    }
}
