//! The vdso: code that the kernel maps into every process. It has no file, but is laid out as an ELF file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::symbol::budget::ROOT;
use crate::symbol::elf::file::in_memory;
use crate::symbol::elf::symbols::{FileSymbols, SymbolOptions};
use crate::sys;
use crate::task::procfs::mapped_range;

/// Symbols of the vdso of this process.
pub struct Vdso {
    pub len: u64,
    pub symbols: FileSymbols,
}

impl Vdso {
    /// The vdso is the same in all processes of an architecture. It has no file, so its memory is copied into one.
    pub fn ours(options: &SymbolOptions) -> Option<Vdso> {
        let bytes = own_vdso()?;
        let symbols = FileSymbols::open(&in_memory(&mut bytes.as_slice()).ok()?, options, &[ROOT]).ok()?;
        Some(Vdso { len: bytes.len() as u64, symbols })
    }
}

/// The content of the vdso of this process, a small ELF file.
pub fn own_vdso() -> Option<Vec<u8>> {
    const MAX_BYTES: u64 = 1 << 20;
    if sys::replayed::is_on() {
        return None;
    }
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = mapped_range(line.as_bytes())?;
    let len = end.checked_sub(start).filter(|len| *len <= MAX_BYTES)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_function_of_the_vdso() {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        let vdso = Vdso::ours(&options).expect("every process has one");
        let mut symbols = vdso.symbols;
        let found = (0..vdso.len).filter_map(|offset| symbols.resolve(offset).ok());
        let functions: std::collections::BTreeSet<String> = found.map(|(name, _)| name).collect();
        assert!(functions.iter().any(|name| name.contains("clock_gettime")), "{functions:?}");
    }
}
