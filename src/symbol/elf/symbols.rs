//! The symbols of one ELF file: from its own tables, then `.gnu_debugdata`, then a separate debug file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use crate::symbol::budget::{Budget, Share};
use crate::symbol::demangle;
use crate::symbol::elf::questions::{CopiedTables, FileHead, SymbolSource, symbol_tables};
use crate::symbol::unnamed::{NO_SYMBOL, STRIPPED, TOO_LARGE, UnnamedReason};

/// Symbols of one file. The next table is opened when a look-up fails in all before it.
pub struct FileSymbols {
    layers: Vec<SymbolLayer>,
    head: FileHead,
    /// The file, until nothing more is to be asked of it.
    file: Option<File>,
    /// Where else symbols may be: the next one last.
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

/// The symbols of one file on disk or in memory.
struct SymbolLayer {
    symbolizer: Symbolizer,
    source: Source<'static>,
    demangle: bool,
    _tables: Tables, // keeps open the descriptor that `source` names
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
    /// No table has a symbol there.
    pub fn resolve(&mut self, offset: u64) -> Result<(String, u64), UnnamedReason> {
        let missing = if self.head.has_symtab { NO_SYMBOL } else { STRIPPED };
        let address = self.head.loads.address(offset).ok_or(missing)?;
        let mut next = 0;
        loop {
            while let Some(layer) = self.layers.get_mut(next) {
                match layer.resolve(address) {
                    Ok(Some(found)) => return Ok(found),
                    Ok(None) => next += 1,
                    Err(DamagedTables) => drop(self.layers.remove(next)),
                }
            }
            if !self.open_next() {
                break;
            }
        }
        Err(if self.head.has_symtab { NO_SYMBOL } else { STRIPPED })
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

/// A copy in memory. It can be mapped: later changes of the original do not reach it.
#[derive(Debug)]
struct Tables {
    file: File,
    _share: Share,
}

/// Tables whose content made the reader panic.
struct DamagedTables;

impl SymbolLayer {
    fn open(
        file: &File,
        from: SymbolSource,
        options: &SymbolOptions,
        users: &[u32],
    ) -> Result<(SymbolLayer, FileHead), UnnamedReason> {
        let (CopiedTables { kept_bytes, head }, file) = symbol_tables(file, users, from, options.budget.room(users))?;
        let share = options.budget.take(kept_bytes, users).ok_or(TOO_LARGE)?;
        let tables = Tables { file, _share: share };
        let mut source = source::Elf::new(format!("/proc/self/fd/{}", tables.file.as_raw_fd()));
        source.debug_syms = false; // line tables are large, and names do not need them
        let symbolizer = Symbolizer::builder()
            .enable_code_info(false)
            .enable_inlined_fns(false)
            .enable_auto_reload(false)
            .enable_demangling(false) // blazesym takes `f` for `float`, see `demangle`
            .build();
        let source = Source::Elf(source);
        Ok((SymbolLayer { symbolizer, source, demangle: options.demangle, _tables: tables }, head))
    }

    fn resolve(&mut self, address: u64) -> Result<Option<(String, u64)>, DamagedTables> {
        let input = Input::VirtOffset(address);
        // The tables come from others: a panic of their reader must not end the run.
        let found = catch_unwind(AssertUnwindSafe(|| match self.symbolizer.symbolize_single(&self.source, input) {
            Ok(Symbolized::Sym(symbol)) => {
                let name = self.demangle.then(|| demangle::demangled(&symbol.name)).flatten();
                let name = name.unwrap_or_else(|| demangle::cut(&symbol.name));
                Some((name, symbol.offset as u64))
            }
            _ => None,
        }));
        found.map_err(|_| DamagedTables)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::symbol::elf::debug_files::decompress;
    use crate::symbol::elf::file::{FileRange, in_memory};
    use crate::symbol::elf::fixture::damaged;
    use crate::symbol::elf::vdso::own_vdso;
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
