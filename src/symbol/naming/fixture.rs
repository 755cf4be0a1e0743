//! A file without symbols, for tests.

use std::sync::Arc;

use crate::symbol::budget::Budget;
use crate::symbol::elf::file::in_memory;
use crate::symbol::elf::symbols::{FileSymbols, SymbolOptions};
use crate::symbol::elf::vdso::own_vdso;
use crate::symbol::{Content, Module};

pub fn options(budget: Budget) -> SymbolOptions {
    SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget }
}

/// A small file with unwind tables, without the symbols that it had.
pub fn stripped_file() -> Arc<Module> {
    const DYNSYM: u8 = 11;
    let mut bytes = own_vdso().expect("every process has one");
    let word = |offset: usize, len: usize| {
        bytes[offset..offset + len].iter().rev().fold(0, |sum, &byte| sum << 8 | byte as usize)
    };
    let (table, count) = (word(0x28, 8), word(0x3c, 2)); // e_shoff, e_shnum
    for section in (0..count).map(|number| table + 64 * number) {
        if [2, DYNSYM].contains(&bytes[section + 4]) {
            bytes[section + 4] = 0;
        }
    }
    let module = Module::new("/a/stripped", Content::File(in_memory(&mut bytes.as_slice()).unwrap()));
    module.used_by(0);
    Arc::new(module)
}

/// Starts of two functions of [`stripped_file`], in the file.
pub fn functions() -> [u64; 2] {
    ["__vdso_clock_gettime", "__vdso_gettimeofday"].map(|vdsos| {
        let file = in_memory(&mut own_vdso().unwrap().as_slice()).unwrap();
        let mut symbols = FileSymbols::open(&file, &options(Budget::default()), &[0]).unwrap();
        let kernels = vdsos.replace("__vdso", "__kernel"); // as aarch64 calls them
        let weak = vdsos.replace("__vdso_", "");
        let is_it = |name: &str| [vdsos, &*kernels, &*weak].contains(&name);
        let start = (0..16384)
            .step_by(4)
            .find(|offset| symbols.resolve(*offset).is_ok_and(|(name, into)| is_it(&name) && into == 0));
        start.expect("all have them")
    })
}
