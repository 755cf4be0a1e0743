//! The kernel's own symbol table, `/proc/kallsyms`, read once and kept small.
//!
//! An address has a name only where a function can be: from its symbol up to whatever symbol comes next, code or data.
//! `_etext` and `_einittext` end the kernel's code; they name nothing. The last symbol of a module, or before a wide
//! gap, has no next one that bounds it and is given `TAIL_BYTES`. Data is a table of its own ([`Kallsyms::load_data`]):
//! it takes as much memory again, and few profilers need it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use rustc_hash::FxHashMap;

/// `KSYM_NAME_LEN`, include/linux/kallsyms.h.
const MAX_NAME: usize = 512;
/// No function is this long: the next symbol belongs to another section.
const MAX_GAP_BYTES: u64 = 1 << 20;
/// Length of a symbol that no other one bounds, as `symbols__fixup_end` of tools/perf assumes.
const TAIL_BYTES: u64 = 4096;
/// Bytes parsed at a time. A read(2) returns up to a page of them, whatever its buffer.
const CHUNK_BYTES: usize = 64 << 10;

/// The kernel's functions, or its data, by address.
#[derive(Debug)]
pub struct Kallsyms {
    entries: Vec<KallsymsEntry>, // sorted, one per address
    names: Vec<u8>,              // per name: its type letter, then the name
    modules: Vec<String>,
}

/// A symbol; with `len` 0 an address that ends the symbol before it and has no name.
#[derive(Clone, Copy, Debug)]
struct KallsymsEntry {
    address: u64,
    name: u32, // offset in `names`, 0 if it has none
    len: u16,
    module: u16, // index + 1, 0 for the kernel proper
}

/// The symbol of a kernel address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    pub name: &'a [u8],
    pub offset: u64, // distance of the address from the symbol
    pub module: Option<&'a str>,
}

/// Why there are no kernel symbols.
#[derive(Debug, thiserror::Error)]
pub enum KallsymsError {
    #[error("kernel addresses are hidden: run as root, or lower kernel.kptr_restrict")]
    Restricted,
    #[error("no kernel symbols: the kernel was built without CONFIG_KALLSYMS")]
    Empty,
    #[error("too many kernel symbols")]
    TooLarge,
    #[error("cannot read kernel symbols")]
    Io(#[from] io::Error),
}

/// Calls `take` with the name and address of each function in `/proc/kallsyms`. Hidden addresses are 0.
pub fn each_function(path: &Path, mut take: impl FnMut(&str, u64)) {
    let Ok(file) = File::open(path) else { return };
    let mut lines = BufReader::with_capacity(CHUNK_BYTES, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A longer line is no symbol, and the rest of it does not parse as one.
        let len = Read::by_ref(&mut lines).take(2 * MAX_NAME as u64).read_until(b'\n', &mut line);
        if !len.is_ok_and(|len| len > 0) {
            return;
        }
        if let Some((address, [b' ', b't' | b'T' | b'w' | b'W', b' ', rest @ ..])) = hex(line.trim_ascii_end())
            && let Ok(name) = std::str::from_utf8(split_module(rest).0)
            && !name.is_empty()
        {
            take(name, address);
        }
    }
}

impl Kallsyms {
    /// Reads the functions.
    ///
    /// # Errors
    /// There are no symbols, their addresses are hidden, or `path` cannot be read.
    pub fn load(path: &Path) -> Result<Self, KallsymsError> {
        Builder::default().load(path)
    }

    /// Reads the data. Only a kernel with CONFIG_KALLSYMS_ALL lists its data; the local symbols show that it does.
    ///
    /// # Errors
    /// As [`Kallsyms::load`].
    pub fn load_data(path: &Path) -> Result<Self, KallsymsError> {
        Builder { is_of_data: true, ..Builder::default() }.load(path)
    }

    /// Parses the functions in `text`, the content of `/proc/kallsyms`. Malformed lines are skipped.
    ///
    /// # Errors
    /// There are no symbols, or their addresses are hidden.
    pub fn parse(text: &[u8]) -> Result<Self, KallsymsError> {
        let mut builder = Builder::default();
        builder.lines(text)?;
        builder.finish()
    }

    /// The symbol of an address. `None` outside of functions (user addresses, data, gaps), or of data in a table of
    /// data.
    pub fn resolve(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let (entry, size) = self.around(address)?;
        let offset = address - entry.address;
        if size.is_none() && offset >= TAIL_BYTES {
            return None;
        }
        let module = usize::from(entry.module).checked_sub(1);
        Some(KernelSymbol {
            name: entry.name(&self.names),
            offset,
            module: module.and_then(|index| self.modules.get(index)).map(String::as_str),
        })
    }

    /// Distance from the symbol of `address` to the next one, which the kernel takes for its size. None where no symbol
    /// bounds it.
    pub fn size(&self, address: u64) -> Option<u64> {
        self.around(address)?.1
    }

    /// The last symbol up to an address, and its size if another one bounds it.
    fn around(&self, address: u64) -> Option<(&KallsymsEntry, Option<u64>)> {
        let after = self.entries.partition_point(|entry| entry.address <= address);
        let entry = self.entries[..after].last().filter(|entry| entry.len > 0)?;
        let next = self.entries.get(after).filter(|next| next.module == entry.module || next.len == 0);
        Some((entry, next.map(|next| next.address - entry.address).filter(|size| *size <= MAX_GAP_BYTES)))
    }

    /// Number of addresses with a name.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.len > 0).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<KallsymsEntry>()
            + self.names.capacity()
            + self.modules.iter().map(String::capacity).sum::<usize>()
    }
}

impl KallsymsEntry {
    fn name(self, names: &[u8]) -> &[u8] {
        &names[self.name as usize..][..usize::from(self.len)]
    }

    /// Sort key of the names of one address, of which the first is shown: functions before boundaries of sections; then
    /// global, weak, local; then by leading underscores and length.
    fn rank<'a>(&self, names: &'a [u8]) -> (bool, bool, u8, usize, usize, &'a [u8]) {
        let name = self.name(names);
        let letter = (self.name as usize).checked_sub(1).and_then(|offset| names.get(offset));
        let scope = match letter {
            Some(b'W' | b'V') => 1,
            Some(b'A'..=b'Z') => 0,
            _ => 2,
        };
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        (name.is_empty(), is_boundary(name), scope, underscores, name.len(), name)
    }
}

/// True for symbols that the linker script defines at the edge of a section: `_stext`, `__irqentry_text_end`.
fn is_boundary(name: &[u8]) -> bool {
    let edge = |word: &[u8]| name.starts_with(b"_") && name.ends_with(word);
    edge(b"text") || edge(b"text_start") || edge(b"text_end") || edge(b"_begin")
}

/// Parser of the lines of kallsyms.
#[derive(Default)]
struct Builder {
    entries: Vec<KallsymsEntry>,
    names: Vec<u8>,
    modules: Vec<String>,
    module_ids: FxHashMap<String, u16>,
    last_module: u16, // symbols of a module are adjacent
    hidden: bool,     // an address was 0
    is_of_data: bool, // keeps data, not functions
    has_local_data: bool,
}

impl Builder {
    fn load(mut self, path: &Path) -> Result<Kallsyms, KallsymsError> {
        let mut file = File::open(path)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        loop {
            match file.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err.into()),
            }
            if filled == chunk.len() {
                // Whole lines are parsed, and the start of the next one moves to the front. A line longer than the
                // chunk is no symbol.
                let lines = chunk.iter().rposition(|&byte| byte == b'\n').map_or(filled, |index| index + 1);
                self.lines(&chunk[..lines])?;
                chunk.copy_within(lines.., 0);
                filled -= lines;
            }
        }
        self.lines(&chunk[..filled])?;
        self.finish()
    }

    fn lines(&mut self, text: &[u8]) -> Result<(), KallsymsError> {
        // A line has 44 bytes on average, 26 of them the name.
        self.entries.reserve(text.len() / 44);
        self.names.reserve(text.len() * 26 / 44);
        text.split(|&byte| byte == b'\n').try_for_each(|line| self.line(line))
    }

    /// `ffffffff81000000 T _stext`, for a module `ffffffffc0201000 t helper\t[module]`.
    fn line(&mut self, line: &[u8]) -> Result<(), KallsymsError> {
        let Some((address, [b' ', kind, b' ', rest @ ..])) = hex(line) else {
            return Ok(());
        };
        if !kind.is_ascii_graphic() {
            return Ok(());
        }
        let (name, module) = match rest {
            [.., b']'] => split_module(rest),
            _ => (rest, None),
        };
        if name.is_empty() {
            return Ok(());
        }
        let is_text = matches!(kind, b't' | b'T' | b'w' | b'W' | b'i');
        // `$x` marks where data turns into code (arm64), `.L` is a label in a function: neither ends the function.
        // Absolute symbols (`A`; per-CPU offsets of old kernels) are no addresses.
        if name.starts_with(b"$") || name.starts_with(b".L") || matches!(kind, b'a' | b'A') {
            return Ok(());
        }
        if address == 0 {
            self.hidden |= is_text;
            return Ok(());
        }
        self.has_local_data |= matches!(kind, b'b' | b'd' | b'r');
        let is_wanted = is_text != self.is_of_data;
        let named = is_wanted && name.len() <= MAX_NAME && name != b"_etext" && name != b"_einittext";
        let module = module.map_or(Ok(0), |module| self.module(module))?;
        let (mut at, mut len) = (0, 0);
        if named {
            self.names.push(*kind);
            at = u32::try_from(self.names.len()).map_err(|_| KallsymsError::TooLarge)?;
            len = name.len() as u16;
            self.names.extend_from_slice(name);
        }
        self.entries.push(KallsymsEntry { address, name: at, len, module });
        Ok(())
    }

    fn module(&mut self, name: &[u8]) -> Result<u16, KallsymsError> {
        if usize::from(self.last_module).checked_sub(1).is_some_and(|index| self.modules[index].as_bytes() == name) {
            return Ok(self.last_module);
        }
        let name = String::from_utf8_lossy(name);
        self.last_module = match self.module_ids.get(name.as_ref()) {
            Some(&id) => id,
            None => {
                let id = u16::try_from(self.modules.len() + 1).map_err(|_| KallsymsError::TooLarge)?;
                self.modules.push(name.clone().into_owned());
                self.module_ids.insert(name.into_owned(), id);
                id
            }
        };
        Ok(self.last_module)
    }

    fn finish(self) -> Result<Kallsyms, KallsymsError> {
        let Self { mut entries, mut names, modules, hidden, is_of_data, has_local_data, .. } = self;
        if entries.iter().all(|entry| entry.len == 0) || is_of_data && !has_local_data {
            return Err(if hidden { KallsymsError::Restricted } else { KallsymsError::Empty });
        }
        // The kernel proper is sorted; modules, ftrace and BPF follow in order of loading. The sort is fast on such
        // runs.
        entries.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| a.rank(&names).cmp(&b.rank(&names))));
        entries.dedup_by_key(|entry| entry.address);
        // The first of adjacent entries without a name suffices; with CONFIG_KALLSYMS_ALL these are most symbols.
        entries.dedup_by(|next, entry| next.len == 0 && entry.len == 0);
        entries.shrink_to_fit();
        names.shrink_to_fit();
        Ok(Kallsyms { entries, names, modules })
    }
}

/// The addresses of the kernel's functions whose names `matches`. Empty where addresses are hidden.
pub fn ranges_of(path: &Path, matches: impl Fn(&str) -> bool) -> Vec<Range<u64>> {
    let [found] = ranges_by(path, |name| matches(name).then_some(0));
    found
}

/// As [`ranges_of`], of `N` groups of functions: `group` gives the number of the one to which a name belongs.
pub fn ranges_by<const N: usize>(path: &Path, group: impl Fn(&str) -> Option<usize>) -> [Vec<Range<u64>>; N] {
    let (mut starts, mut found) = (Vec::new(), [const { Vec::new() }; N]);
    each_function(path, |name, address| {
        starts.push(address);
        if address != 0
            && let Some(found) = group(name).and_then(|group| found.get_mut(group))
        {
            found.push(address);
        }
    });
    let end = |start: u64| starts.iter().copied().filter(|other| *other > start).min();
    let range = |start: u64| start..end(start).unwrap_or(start).min(start.saturating_add(TAIL_BYTES));
    found.map(|found: Vec<u64>| found.into_iter().map(range).collect())
}

/// The address of the kernel's function `name`, outside of modules. None without such a function.
///
/// # Errors
/// Addresses are hidden, or `path` cannot be read.
pub fn address_of(path: &Path, name: &str) -> Result<Option<u64>, KallsymsError> {
    let mut hidden = false;
    for line in BufReader::with_capacity(CHUNK_BYTES, File::open(path)?).split(b'\n') {
        let line = line?;
        let Some((address, [b' ', b't' | b'T' | b'w' | b'W', b' ', rest @ ..])) = hex(&line) else { continue };
        let (its_name, module) = split_module(rest);
        // Link-time optimization appends a number to the names of local functions: `name.llvm.123`.
        let tail = its_name.strip_prefix(name.as_bytes());
        if module.is_none() && tail.is_some_and(|tail| tail.is_empty() || tail.starts_with(b".llvm.")) {
            if address != 0 {
                return Ok(Some(address));
            }
            hidden = true;
        }
    }
    if hidden { Err(KallsymsError::Restricted) } else { Ok(None) }
}

/// Splits `name\t[module]`.
fn split_module(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'\t').map(|tab| text.split_at(tab)) {
        Some((name, [b'\t', b'[', module @ .., b']'])) => (name, Some(module)),
        _ => (text, None),
    }
}

/// Parses one to 16 hexadecimal digits; also returns the text behind them.
fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    let mut len = 0;
    while let Some(digit) = text.get(len).and_then(|&byte| char::from(byte).to_digit(16)) {
        value = value << 4 | u64::from(digit);
        len += 1;
    }
    (1..=16).contains(&len).then(|| (value, &text[len..]))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    // From kernel 6.18, shortened; the modules are invented, and out of order as loaded ones may be.
    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_tss_rw
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000010 t $x
ffffffff81000020 t .Llabel
ffffffff81001000 t __do_sys_getpid
ffffffff81001000 T __ia32_sys_getpid
ffffffff81001000 T __x64_sys_getpid
ffffffff81001030 W weak
ffffffff81001030 t local
ffffffff81001040 t run_init_process
ffffffff81001040 T __split_text_end
ffffffff81001050 t last_function
ffffffff81002000 T _etext
ffffffff82000000 D some_data
ffffffff83783000 B __init_begin
ffffffff83783000 t set_reset_devices
ffffffff83784000 T _einittext
ffffffff83784100 R more_data
ffffffffc0400000 t b_one\t[mod_b]
ffffffffc0400100 T b_two\t[mod_b]
ffffffffc0500000 t bpf_prog_6deef7357e7b4530\t[bpf]
ffffffffc0300000 t a_one\t[mod_a]
ffffffffc0300040 d a_data\t[mod_a]
";

    fn name(table: &Kallsyms, address: u64) -> Option<(String, u64, Option<&str>)> {
        table
            .resolve(address)
            .map(|symbol| (String::from_utf8_lossy(symbol.name).into_owned(), symbol.offset, symbol.module))
    }

    #[test]
    fn resolves_addresses() {
        let table = Kallsyms::parse(TEXT.as_bytes()).unwrap();
        let cases = [
            (0, None),
            (0x1000, None),
            (0x7fff_ffff_f000, None),
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_8100_0000, Some(("srso_alias_untrain_ret", 0, None))),
            (0xffff_ffff_8100_0fff, Some(("srso_alias_untrain_ret", 0xfff, None))),
            (0xffff_ffff_8100_1000, Some(("__x64_sys_getpid", 0, None))),
            (0xffff_ffff_8100_1030, Some(("weak", 0, None))),
            (0xffff_ffff_8100_1041, Some(("run_init_process", 1, None))),
            (0xffff_ffff_8100_1fff, Some(("last_function", 0xfaf, None))),
            (0xffff_ffff_8100_2000, None),
            (0xffff_ffff_81ff_ffff, None),
            (0xffff_ffff_8200_0000, None),
            (0xffff_ffff_8378_3000, Some(("set_reset_devices", 0, None))),
            (0xffff_ffff_8378_4000, None),
            (0xffff_ffff_8378_4100, None),
            (0xffff_ffff_c030_0000, Some(("a_one", 0, Some("mod_a")))),
            (0xffff_ffff_c030_0040, None),
            (0xffff_ffff_c040_00ff, Some(("b_one", 0xff, Some("mod_b")))),
            (0xffff_ffff_c040_0100, Some(("b_two", 0, Some("mod_b")))),
            (0xffff_ffff_c040_10ff, Some(("b_two", 0xfff, Some("mod_b")))),
            (0xffff_ffff_c040_1100, None),
            (0xffff_ffff_c050_0fff, Some(("bpf_prog_6deef7357e7b4530", 0xfff, Some("bpf")))),
            (0xffff_ffff_c050_1000, None),
            (u64::MAX, None),
        ];
        for (address, want) in cases {
            assert_eq!(
                name(&table, address),
                want.map(|(name, offset, module)| (name.to_owned(), offset, module)),
                "{address:#x}"
            );
        }
        assert_eq!((table.len(), table.is_empty()), (10, false));
    }

    #[test]
    fn skips_malformed_lines() {
        let long = "x".repeat(513);
        let text = format!(
            "\n \nffffffff81000000\nffffffff81000000 T\nxyz T a\n1ffffffff81000000 T b\n+1 T c\nffffffff81000000 TT d\n\
             ffffffff81000100 T good\nffffffff81000200 T {long}\nffffffff81000300 T last"
        );
        let table = Kallsyms::parse(text.as_bytes()).unwrap();
        let names = [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0100, 0xffff_ffff_8100_0200, 0xffff_ffff_8100_0300]
            .map(|address| name(&table, address).map(|found| found.0));
        assert_eq!(names, [None, Some("good".to_owned()), None, Some("last".to_owned())]);
    }

    #[test]
    fn lists_functions_with_a_name() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"ff10 T one\nff20 d data\nff30 T \t[mod]\nff40 T \nff50 t two\t[mod]\n0 w three\n").unwrap();
        let mut functions = Vec::new();
        each_function(file.path(), |name, address| functions.push((name.to_owned(), address)));
        let want = [("one", 0xff10), ("two", 0xff50), ("three", 0)];
        assert_eq!(functions, want.map(|(name, address)| (name.to_owned(), address)));
    }

    #[test]
    fn shows_the_plainest_name_of_an_address() {
        let cases: [(&[&str], &str); 6] = [
            (&["t a", "D b", "D c"], "a"),
            (&["B b", "t a"], "a"),
            (&["T __bb", "T _cc", "t dd"], "_cc"),
            (&["T arch_ops", "T ops"], "ops"),
            (&["T b", "T a"], "a"),
            (&["t f", "T _etext", "T __split_text_end"], "f"),
        ];
        for (lines, want) in cases {
            let lines: String = lines.iter().map(|line| format!("ffffffff81000000 {line}\n")).collect();
            let table = Kallsyms::parse(lines.as_bytes()).unwrap();
            let found = name(&table, 0xffff_ffff_8100_0000).unwrap();
            assert_eq!(found.0, want);
        }
    }

    #[test]
    fn names_data_where_the_kernel_does() {
        let load = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            Kallsyms::load_data(file.path())
        };
        let table = load(TEXT).unwrap();
        let cases = [
            (0xffff_ffff_8100_1030, None),
            (0xffff_ffff_8100_2000, None),
            (0xffff_ffff_8200_0010, Some(("some_data", 0x10, None))),
            (0xffff_ffff_8378_4000, None),
            (0xffff_ffff_8378_4100, Some(("more_data", 0, None))),
            (0xffff_ffff_c030_0000, None),
            (0xffff_ffff_c030_0044, Some(("a_data", 4, Some("mod_a")))),
            (0x1000, None),
        ];
        for (address, want) in cases {
            let want = want.map(|(name, offset, module): (&str, u64, _)| (name.to_owned(), offset, module));
            assert_eq!(name(&table, address), want, "{address:#x}");
        }
        let without_local = TEXT.replace(" d a_data", " D a_data");
        assert!(matches!(load(&without_local), Err(KallsymsError::Empty)));
    }

    #[test]
    fn a_size_reaches_to_the_next_symbol() {
        let table = Kallsyms::parse(TEXT.as_bytes()).unwrap();
        let sizes = [0xffff_ffff_8100_1041, 0xffff_ffff_8200_0000, 0xffff_ffff_c040_0100, 0];
        assert_eq!(sizes.map(|address| table.size(address)), [Some(0x10), None, None, None]);
    }

    #[test]
    fn finds_a_function_by_its_name() {
        let found = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            address_of(file.path(), "timer_fn")
        };
        let text =
            "ffffffff81000010 t timer_fn.cold\nffffffffc0000000 t timer_fn\t[mod]\nffffffff81000020 D timer_fn\n";
        assert!(matches!(found(text), Ok(None)));
        assert!(matches!(found(&format!("{text}ffffffff81000030 t timer_fn\n")), Ok(Some(0xffff_ffff_8100_0030))));
        assert!(matches!(found("ffffffff81000040 t timer_fn.llvm.77\nx"), Ok(Some(0xffff_ffff_8100_0040))));
        assert!(matches!(found("0000000000000000 t timer_fn\n"), Err(KallsymsError::Restricted)));
        assert!(matches!(address_of(Path::new("/nonexistent"), "x"), Err(KallsymsError::Io(_))));
    }

    #[test]
    fn functions_end_where_the_next_begins() {
        let found = |text: &str, name: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            ranges_of(file.path(), |function| function == name)
        };
        let start = 0xffff_ffff_8100_1000_u64;
        assert_eq!(found(TEXT, "__x64_sys_getpid").first(), Some(&(start..start + 0x30)));
        assert!(found("ffffffff81000000 t last\n", "last").iter().all(Range::is_empty));
        assert!(found("0000000000000000 t hidden\n", "hidden").is_empty() && found("", "x").is_empty());
    }

    #[test]
    fn says_why_there_are_no_symbols() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t a\t[mod]\n";
        assert!(matches!(Kallsyms::parse(hidden.as_bytes()), Err(KallsymsError::Restricted)));
        for text in ["", "\n", "garbage", "ffffffff81000000 D data\n", "0000000000000000 A percpu\n"] {
            assert!(matches!(Kallsyms::parse(text.as_bytes()), Err(KallsymsError::Empty)), "{text:?}");
        }
        assert!(matches!(Kallsyms::load(Path::new("/nonexistent")), Err(KallsymsError::Io(_))));
    }

    #[test]
    fn loads_in_chunks() {
        let mut text = String::new();
        for index in 0..10_000 {
            text += &format!("{:016x} t function_{index}\n", 0xffff_ffff_8100_0000_u64 + index * 16);
        }
        let line_start = text[..text.len() / 2].rfind('\n').unwrap() + 1;
        text.insert_str(line_start, &("z".repeat(3 * CHUNK_BYTES) + "\n"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let table = Kallsyms::load(file.path()).unwrap();
        assert_eq!(table.len(), 10_000);
        for index in 0..10_000 {
            let found = name(&table, 0xffff_ffff_8100_0003 + index * 16);
            assert_eq!(found, Some((format!("function_{index}"), 3, None)));
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "((0|f{14}[0-9a-f]{2}|[0-9a-f]{1,2}|[0-9a-f]{1,17}) [tTDA$] [_a-z.$]{0,9}(\t\\[m?\\])?\n?|\\PC){0,20}", address: u64) {
            if let Ok(table) = Kallsyms::parse(text.as_bytes()) {
                table.resolve(address);
                table.resolve(address | 0xffff_ffff_ffff_ff00);
            }
        }

        #[test]
        fn survives_bytes(text: Vec<u8>) {
            let _ = Kallsyms::parse(&text);
        }
    }
}
