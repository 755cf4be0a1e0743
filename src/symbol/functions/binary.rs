//! Functions of a program or library by name, and the files of processes and commands in which a name is looked for.
//!
//! A function may be exported (`.dynsym`), listed for debuggers (`.symtab`), or listed only in `.gnu_debugdata` or a
//! separate debug file; its address is the same in all of these. See elf(5).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::symbol::elf::debug_files::{decompress, default_debug_dirs, separate_file};
use crate::symbol::elf::file::{
    DynamicSection, ElfFile, ElfSymbol, MAX_FILES, MAX_PATH_BYTES, STT_FUNC, STT_GNU_IFUNC,
};
use crate::symbol::functions::search::Search;
use crate::symbol::opening::{is_on_overlay, open_regular};
use crate::symbol::spaces::files::{CodeMapping, DELETED_MARK, WantedFile, code_maps};
use crate::symbol::spaces::maps_line::FileKey;
use crate::symbol::unnamed::{NOT_ELF, UnnamedReason};
use crate::task::procfs;

/// Most segments and sections of a file; programs and libraries have up to a hundred.
const MAX_HEADERS: usize = 1024;
const TOO_MANY_HEADERS: UnnamedReason = "too many sections";
/// Most functions of one name that are listed.
const MAX_ADDRESSES: usize = 1024;
/// Longest chain of scripts that run scripts.
const MAX_INTERPRETERS: usize = 4;

/// The file of a program or a library.
#[derive(Debug)]
pub struct BinaryFile {
    /// As the result of a search, only the place of the file (O_PATH).
    pub file: File,
    /// The path to show.
    pub path: String,
    /// None: the metadata cannot be read.
    pub stamp: Option<FileStamp>,
}

/// Metadata by which files are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Times of the last change of the content (mtime) and of the inode (ctime): seconds and ns.
    changed: [(i64, i64); 2],
    is_on_overlay: bool,
}

/// A program or a library, with its headers.
#[derive(Debug)]
pub struct Binary {
    pub file: BinaryFile,
    elf: ElfFile,
}

/// Result of looking up a function by name in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionLookup {
    Function {
        address: u64,
        size: u64,
    },
    /// Addresses of several functions of the same name.
    Several(Vec<u64>),
    /// An indirect function (STT_GNU_IFUNC): the implementation is chosen when the program is loaded.
    Indirect,
    /// The function is called here, but defined in another file.
    Elsewhere,
    Unknown,
}

impl FileStamp {
    fn of(file: &File) -> Option<FileStamp> {
        let meta = file.metadata().ok()?;
        Some(FileStamp {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.size(),
            changed: [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())],
            is_on_overlay: is_on_overlay(file),
        })
    }
}

impl BinaryFile {
    /// Device and inode.
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.stamp.map(|stamp| (stamp.device, stamp.inode))
    }

    /// True when probes in both files would be in one file: the kernel puts them into the file below an overlay
    /// (d_real_inode, kernel/trace/trace_uprobe.c), and each overlay reports a device of its own.
    pub fn is_same(&self, other: &BinaryFile) -> bool {
        let (Some(one), Some(two)) = (self.stamp, other.stamp) else { return false };
        // An overlay may use the upper half of the inode number. A copy in its upper layer keeps the inode number of
        // the original, but has times of its own.
        let below = |stamp: FileStamp| (stamp.inode as u32, stamp.bytes, stamp.changed);
        self.identity() == other.identity() || below(one) == below(two) && (one.is_on_overlay || two.is_on_overlay)
    }
}

impl Binary {
    /// Opens a program or library.
    ///
    /// # Errors
    /// The file cannot be read; inside: as [`Binary::of`].
    pub fn open(path: &Path, search: &Search) -> io::Result<Result<Binary, UnnamedReason>> {
        Ok(Binary::of(open_regular(&search.at_file(path))?, path.to_string_lossy().into_owned()))
    }

    /// Reads the headers of a program or library. `path`: the path to show.
    ///
    /// # Errors
    /// The file is not ELF, or has too many headers for a program or library.
    pub fn of(file: File, path: String) -> Result<Binary, UnnamedReason> {
        let elf = ElfFile::read(&file).ok_or(NOT_ELF)?;
        if elf.headers() > MAX_HEADERS {
            return Err(TOO_MANY_HEADERS);
        }
        let stamp = FileStamp::of(&file);
        Ok(Binary { file: BinaryFile { file, path, stamp }, elf })
    }

    /// `e_machine`.
    pub fn machine(&self) -> u16 {
        self.elf.machine()
    }

    /// True for a file without `.symtab`: only exported functions have names in it.
    pub fn is_stripped(&self) -> bool {
        !self.elf.has_symtab()
    }

    /// The offset in the file of a virtual address, if that is in an executable segment.
    pub fn offset(&self, address: u64) -> Option<u64> {
        self.elf.code_offset(address)
    }

    /// Looks up a function among the exported ones, then in each other symbol table.
    pub fn find(&self, name: &str, search: &Search) -> FunctionLookup {
        self.tell_next(search);
        let mut found = NameMatches::default();
        let file = &self.file.file;
        let mut is_whole = search.each_named(&self.elf, file, true, name, |symbol| {
            found.take(symbol, self.elf.is_old_version(file, symbol.index));
        });
        if let Some(named) = found.clone().verdict() {
            return named;
        }
        for table in self.tables(search) {
            let (elf, file) = table.parts();
            is_whole &= search.each_named(elf, file, false, name, |symbol| found.take(symbol, false));
            if let Some(named) = found.clone().verdict() {
                return named;
            }
        }
        if !is_whole {
            search.leave_out(&self.file.path);
        }
        if found.is_called { FunctionLookup::Elsewhere } else { FunctionLookup::Unknown }
    }

    /// Records that this file is read next, for the message if the read hangs.
    pub fn tell_next(&self, search: &Search) {
        search.at_file(Path::new(&self.file.path));
    }

    /// Bytes that [`Binary::exports`] reads.
    pub fn exported_bytes(&self, search: &Search) -> u64 {
        self.tell_next(search);
        let (entries, names) = self.elf.symbol_table(&self.file.file, true).unwrap_or_default();
        entries.len.saturating_add(names.len)
    }

    /// True when the file defines and exports a function of this name.
    pub fn exports(&self, name: &str, search: &Search) -> bool {
        self.tell_next(search);
        let mut found = NameMatches::default();
        let is_whole = search.each_named(&self.elf, &self.file.file, true, name, |symbol| found.take(symbol, false));
        if !is_whole {
            search.leave_out(&self.file.path);
        }
        found.verdict().is_some()
    }

    pub fn parts(&self) -> (&ElfFile, &File) {
        (&self.elf, &self.file.file)
    }

    /// The symbol tables besides `.dynsym`, in order of search. Each is opened when the iterator reaches it.
    pub(super) fn tables<'a>(&'a self, search: &'a Search) -> impl Iterator<Item = SymbolTable<'a>> {
        const MAX_DEBUGDATA_BYTES: u64 = 32 << 20; // twice as much while it is decompressed
        let own = std::iter::once_with(|| Some(SymbolTable::Own(self)));
        let carried = std::iter::once_with(|| {
            let carried = self.elf.debugdata(&self.file.file)?;
            let most = MAX_DEBUGDATA_BYTES.min(search.left_bytes());
            let file = decompress(&self.file.file, carried, most).ok()?;
            if !search.spend(file.metadata().ok()?.len()) {
                search.leave_out(&self.file.path);
                return None;
            }
            Some(SymbolTable::Other(ElfFile::read(&file)?, file))
        });
        let separate = std::iter::once_with(|| {
            let file = separate_file(&self.elf.build_id(&self.file.file)?, &default_debug_dirs())?;
            Some(SymbolTable::Other(ElfFile::read(&file)?, file))
        });
        own.chain(carried).chain(separate).flatten()
    }

    /// The binary and the libraries that the dynamic linker would load for it, in the order of loading.
    pub fn with_libraries(self, library_path: &[PathBuf], search: &Search) -> Vec<Binary> {
        self.tell_next(search);
        let interpreter = self.elf.interpreter(&self.file.file).map(PathBuf::from);
        let mut all = vec![self];
        let mut at = 0;
        while let Some(binary) = all.get(at) {
            at += 1;
            binary.tell_next(search);
            let DynamicSection { libraries, directories } = binary.elf.dynamic(&binary.file.file).unwrap_or_default();
            let origin = Path::new(&binary.file.path).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
            let own = directories
                .iter()
                .map(|dir| PathBuf::from(dir.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)))
                .filter(|dir| dir.as_os_str().len() < MAX_PATH_BYTES);
            let default = default_library_dirs(binary.machine(), interpreter.as_deref(), search);
            let places: Vec<PathBuf> = library_path.iter().cloned().chain(own).chain(default).collect();
            for name in libraries {
                let known = |other: &Binary| Path::new(&other.file.path).file_name().is_some_and(|file| *file == *name);
                if all.len() >= MAX_FILES || all.iter().any(known) {
                    continue;
                }
                // A name with a slash is a path. An absolute one replaces `place` in the join; a relative one is not
                // found.
                let found = places.iter().filter_map(|place| Binary::open(&place.join(&name), search).ok()?.ok());
                let fits =
                    found.into_iter().find(|other| all.first().is_some_and(|first| other.elf.is_like(&first.elf)));
                all.extend(fits);
            }
        }
        all
    }
}

/// A file whose `.symtab` is searched.
pub(super) enum SymbolTable<'a> {
    Own(&'a Binary),
    Other(ElfFile, File),
}

impl SymbolTable<'_> {
    pub fn parts(&self) -> (&ElfFile, &File) {
        match self {
            SymbolTable::Own(binary) => (&binary.elf, &binary.file.file),
            SymbolTable::Other(elf, file) => (elf, file),
        }
    }
}

/// Symbols of one name, by kind.
#[derive(Clone, Debug, Default)]
struct NameMatches {
    /// Sizes by address, as in `local` and `old`.
    global: BTreeMap<u64, u64>,
    local: BTreeMap<u64, u64>,
    old: BTreeMap<u64, u64>,
    is_indirect: bool,
    is_called: bool,
}

impl NameMatches {
    fn take(&mut self, symbol: &ElfSymbol<'_>, is_old: bool) {
        match symbol.kind {
            _ if !symbol.is_defined => self.is_called = true,
            STT_GNU_IFUNC => self.is_indirect = true,
            STT_FUNC => {
                let place = match (symbol.is_local, is_old) {
                    (true, _) => &mut self.local,
                    (false, true) => &mut self.old,
                    (false, false) => &mut self.global,
                };
                if place.len() < MAX_ADDRESSES {
                    place.insert(symbol.address, symbol.size);
                }
            }
            _ => {}
        }
    }

    /// The function that the name means: global functions before local ones, and these before old versions. None: there
    /// is no such function.
    fn verdict(self) -> Option<FunctionLookup> {
        if self.is_indirect {
            return Some(FunctionLookup::Indirect);
        }
        let found = [self.global, self.local, self.old].into_iter().find(|found| !found.is_empty())?;
        let mut found = found.into_iter();
        match (found.next(), found.len()) {
            (Some((address, size)), 0) => Some(FunctionLookup::Function { address, size }),
            (first, _) => {
                Some(FunctionLookup::Several(first.into_iter().chain(found).map(|(address, _)| address).collect()))
            }
        }
    }
}

/// The binaries that a process has mapped, its program first.
pub fn mapped_binaries(host: &Host, pid: i32, search: &Search) -> Vec<Binary> {
    // Bytes read to open a binary, and at most for one that has too many headers.
    const HEAD_BYTES: u64 = 64 << 10;
    const MAX_HEADS_BYTES: u64 = 8 << 20;
    search.at_process(pid);
    let mappings = code_maps(host, pid).unwrap_or_default().mappings; // a worker answers its own question
    let program = procfs::program(host, pid).map(|path| path.to_string_lossy().into_owned());
    let mut seen = Vec::new();
    let mut all: Vec<Binary> = Vec::new();
    for line in mappings {
        if !line.path.starts_with(b"/") || seen.contains(&line.key) || seen.len() >= MAX_FILES {
            continue;
        }
        let path = Path::new(OsStr::from_bytes(line.path.strip_suffix(DELETED_MARK).unwrap_or(&line.path)));
        let wanted = WantedFile { pid, start: line.start, end: line.end, path, key: &line.key, ancestors: &[] };
        let shown = path.to_string_lossy().into_owned();
        search.at_file(path);
        let opened = wanted.open_here(host).map_err(UnnamedReason::from).and_then(|file| {
            let is_room = search.spend(HEAD_BYTES);
            if is_room { Binary::of(file, shown) } else { Err(TOO_MANY_HEADERS) }
        });
        match opened {
            Ok(binary) => all.push(binary),
            Err(TOO_MANY_HEADERS) => {
                search.spend(MAX_HEADS_BYTES);
                search.leave_out(&path.to_string_lossy());
            }
            Err(_) => {}
        }
        seen.push(line.key);
    }
    all.sort_by_key(|binary| program.as_deref() != Some(&*binary.file.path)); // stable
    all
}

/// True when a process has mapped this file executable, or does not answer. Only inodes are compared: on an overlay, the mappings
/// have another device.
pub fn has_mapped(host: &Host, pid: i32, file: &BinaryFile) -> bool {
    file.identity().is_some_and(|(_, inode)| has_mapped_inode(host, pid, inode) != Some(false))
}

/// As [`has_mapped`], for the file of an inode on any device. None: the process does not answer.
pub fn has_mapped_inode(host: &Host, pid: i32, wanted: u64) -> Option<bool> {
    let is_it = |line: &CodeMapping| matches!(line.key, FileKey::Inode { inode, .. } if inode == wanted);
    Some(code_maps(host, pid)?.mappings.iter().any(is_it))
}

/// The program that a command starts, as execvp(3) finds it; for a script, its interpreter.
pub fn find_command(command: &Path, search: &Search) -> Option<Binary> {
    let mut path = if command.components().count() > 1 {
        command.to_owned()
    } else {
        let places = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&places)
            .map(|place| place.join(command))
            .find(|path| is_executable(&search.at_file(path)))?
    };
    for _ in 0..MAX_INTERPRETERS {
        if let Ok(binary) = Binary::open(&path, search).ok()? {
            return Some(binary);
        }
        path = interpreter_of(&search.at_file(&path))?;
    }
    None
}

fn is_executable(path: &Path) -> bool {
    const ANY_X: u32 = 0o111;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.mode() & ANY_X != 0)
}

/// The interpreter of a script: `/bin/sh` for `#!/bin/sh -e`.
fn interpreter_of(script: &Path) -> Option<PathBuf> {
    const MAX_BYTES: u64 = 256; // BINPRM_BUF_SIZE
    let mut head = Vec::new();
    open_regular(script).ok()?.take(MAX_BYTES).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let path = String::from_utf8_lossy(line);
    path.split_ascii_whitespace().next().map(PathBuf::from)
}

/// The absolute directories of LD_LIBRARY_PATH, which a program that we start inherits.
pub fn library_path() -> Vec<PathBuf> {
    let places = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&places).filter(|place| place.is_absolute()).collect()
}

/// Directories in which the dynamic linker looks, and into which distributions put libraries.
fn default_library_dirs(machine: u16, interpreter: Option<&Path>, search: &Search) -> Vec<PathBuf> {
    let triplet = match machine {
        3 => "i386-linux-gnu",
        40 => "arm-linux-gnueabihf",
        62 => "x86_64-linux-gnu",
        183 => "aarch64-linux-gnu",
        _ => "",
    };
    let mut dirs: Vec<PathBuf> = ["/lib", "/usr/lib"].iter().map(|dir| Path::new(dir).join(triplet)).collect();
    dirs.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    let near = interpreter.and_then(Path::parent).map(Path::to_owned);
    let real = interpreter.and_then(|path| fs::canonicalize(search.at_file(path)).ok()?.parent().map(Path::to_owned));
    dirs.extend(near.into_iter().chain(real));
    dirs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::symbol::elf::file::in_memory;
    use crate::symbol::elf::fixture::damaged;
    use crate::symbol::elf::vdso::own_vdso;
    use crate::symbol::functions::matching::WantedName;

    fn symbol(name: &str, kind: u8, is_local: bool, address: u64) -> ElfSymbol<'_> {
        let names = name.as_bytes();
        ElfSymbol {
            names,
            name_at: 0,
            kind,
            is_local,
            is_weak: false,
            is_defined: address > 0,
            address,
            size: 8,
            index: 0,
        }
    }

    #[test]
    fn the_function_meant_by_several_symbols() {
        const OBJECT: u8 = 1;
        let function = |address| Some(FunctionLookup::Function { address, size: 8 });
        type Case<'a> = (&'a [(u8, bool, u64, bool)], Option<FunctionLookup>);
        let cases: [Case<'_>; 10] = [
            (&[], None),
            (&[(STT_FUNC, false, 16, false)], function(16)),
            (&[(STT_FUNC, false, 16, false), (STT_FUNC, false, 16, false)], function(16)),
            (&[(STT_FUNC, true, 16, false), (STT_FUNC, false, 32, false)], function(32)),
            (&[(STT_FUNC, false, 16, true), (STT_FUNC, false, 32, false)], function(32)),
            (&[(STT_FUNC, false, 16, true)], function(16)),
            (&[(STT_FUNC, true, 16, false), (STT_FUNC, true, 32, false)], Some(FunctionLookup::Several(vec![16, 32]))),
            (&[(STT_GNU_IFUNC, false, 16, false)], Some(FunctionLookup::Indirect)),
            (&[(OBJECT, false, 16, false)], None),
            (&[(STT_FUNC, false, 0, false)], None),
        ];
        for (symbols, want) in cases {
            let mut found = NameMatches::default();
            symbols.iter().for_each(|&(kind, local, address, old)| found.take(&symbol("f", kind, local, address), old));
            assert_eq!(found.verdict(), want, "{symbols:?}");
        }
    }

    #[test]
    fn libraries_are_found_as_the_linker_would() {
        let own = Binary::open(Path::new("/proc/self/exe"), &Search::within(0)).unwrap().unwrap();
        if own.elf.interpreter(&own.file.file).is_none() {
            skip!("a static program has no libraries");
        }
        let files: Vec<String> =
            own.with_libraries(&[], &Search::within(0)).into_iter().map(|binary| binary.file.path).collect();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        for path in &files[1..] {
            let real = fs::canonicalize(path).unwrap();
            assert!(maps.contains(real.to_str().unwrap()), "{path} is not loaded: {files:?}");
        }
        assert!(files.iter().any(|path| path.contains("libc.")), "{files:?}");
    }

    #[test]
    fn the_program_of_a_script_is_its_interpreter() {
        let (dir, search) = (tempfile::tempdir().unwrap(), Search::within(0));
        let script = dir.path().join("script");
        fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
        assert_eq!(find_command(&script, &search).unwrap().file.path, "/bin/sh");
        assert_eq!(find_command(Path::new("sh"), &search).unwrap().file.path.rsplit('/').next(), Some("sh"));
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(find_command(&script, &search).is_none(), "runs itself");
        assert!(
            find_command(Path::new("/nonexistent"), &search).is_none()
                && find_command(Path::new("no such command"), &search).is_none()
        );
    }

    fn look(bytes: &[u8]) -> Option<(FunctionLookup, usize)> {
        let binary = Binary::of(in_memory(&mut &*bytes).unwrap(), "x".to_owned()).ok()?;
        let mut names = 0;
        let search = Search::within(1 << 20);
        binary.each_name(&search, |_| names += 1);
        let found = binary.find("clock_gettime", &search);
        let matching = binary.matching(WantedName::new("*get*", true), false, &search);
        assert!(matching.functions.len() <= names, "{matching:?}");
        let _ = (binary.offset(0x1000), binary.exports("x", &search), binary.elf.interpreter(&binary.file.file));
        let _ = binary.with_libraries(&[], &search).len();
        Some((found, names))
    }

    #[test]
    fn exported_functions_have_names() {
        let (_, names) = look(&own_vdso().unwrap()).unwrap();
        assert!(names > 3, "{names}");
        assert!(look(b"\x7fELF").is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn damaged_files_are_survived(bytes in damaged()) {
            look(&bytes);
        }
    }
}
