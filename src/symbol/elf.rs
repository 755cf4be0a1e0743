//! The symbols of one ELF file: from its own tables, then `.gnu_debugdata`, then a separate debug file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use lzma_rust2::XzReader;

use crate::symbol::budget::{Budget, Share};
use crate::symbol::demangle;
use crate::symbol::elf_file::{FileRange, build_id, in_memory};
use crate::symbol::file_tables::{CopiedTables, FileHead, SymbolSource, symbol_tables};
use crate::symbol::files::{UnnamedReason, open_regular};

pub const NOT_ELF: UnnamedReason = "non-elf";
pub const STRIPPED: UnnamedReason = "stripped";
pub const NO_SYMBOL: UnnamedReason = "between symbols";
pub const TOO_LARGE: UnnamedReason = "too many symbols: a larger `--symbol-memory` helps";

/// Most bytes of a decompressed `.gnu_debugdata`.
pub(super) const MAX_DEBUGDATA_BYTES: u64 = 64 << 20;
/// Most memory of the decompressor: the file states the size of its dictionary.
const MAX_DICTIONARY_KIB: u32 = 64 << 10;

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

/// Decompresses `.gnu_debugdata`, a whole ELF file compressed with xz. Data beyond `most` bytes is cut off, without an
/// error.
///
/// # Errors
/// The range is not xz data, or memory is short.
pub(super) fn decompress(file: &File, xz: FileRange, most: u64) -> io::Result<File> {
    let xz = BufReader::new(FilePart { file, rest: xz });
    let mut table = XzReader::new_mem_limit(xz, false, MAX_DICTIONARY_KIB).take(most);
    in_memory(&mut table)
}

/// Reader of a range of a file.
struct FilePart<'a> {
    file: &'a File,
    rest: FileRange,
}

impl Read for FilePart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.rest.len).unwrap_or(usize::MAX).min(buffer.len());
        let len = self.file.read_at(&mut buffer[..len], self.rest.offset)?;
        self.rest = FileRange { offset: self.rest.offset + len as u64, len: self.rest.len - len as u64 };
        Ok(len)
    }
}

/// Opens the debug file of a build id: `DIR/.build-id/ab/cdef.debug`, or `DIR/abcdef/debuginfo` as in debuginfod's
/// cache.
pub(super) fn separate_file(id: &[u8], dirs: &[PathBuf]) -> Option<File> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    if hex.len() < 8 {
        return None;
    }
    let (head, tail) = hex.split_at(2);
    let named =
        |dir: &Path| [dir.join(".build-id").join(head).join(format!("{tail}.debug")), dir.join(&hex).join("debuginfo")];
    let files = dirs.iter().flat_map(|dir| named(dir)).filter_map(|path| open_regular(&path).ok());
    // The file may be anything that somebody with write access has put there.
    files.into_iter().find(|file| build_id(file).as_deref() == Some(id))
}

/// Default directories of separate debug files: that of distributions, and debuginfod's cache.
pub fn default_debug_dirs() -> Vec<PathBuf> {
    let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        Some(base.join("debuginfod_client"))
    });
    std::iter::once(PathBuf::from("/usr/lib/debug")).chain(cache).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;
    use crate::symbol::vdso::own_vdso;
    use proptest::prelude::*;

    fn options() -> SymbolOptions {
        SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Budget::default() }
    }

    fn vdso() -> Vec<u8> {
        own_vdso().expect("every process has one")
    }

    /// A small ELF file with random bytes changed, cut at a random length.
    pub fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let damage = proptest::collection::vec((0_usize..4096, any::<u8>()), 1..20);
        (damage, 0_usize..9000).prop_map(|(damage, cut)| {
            let mut bytes = vdso();
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            bytes.truncate(cut.max(64));
            bytes
        })
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

    #[test]
    fn a_debug_file_must_have_the_same_build_id() {
        let own = File::open("/proc/self/exe").unwrap();
        let Some(id) = build_id(&own) else { skip!("the linker writes no build ids") };
        let dir = tempfile::tempdir().unwrap();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let place = dir.path().join(".build-id").join(&hex[..2]);
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join(format!("{}.debug", &hex[2..]));
        std::fs::write(&path, vdso()).unwrap();
        assert!(separate_file(&id, &[dir.path().into()]).is_none(), "a file with another build id");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        assert!(separate_file(&id, &[dir.path().into()]).is_some());
    }
}
