//! Frames whose function has no name.

use std::fmt;

use crate::symbol::files::UnnamedReason;

/// Why a frame has no name, and which function it is in all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unnamed {
    pub reason: UnnamedReason,
    /// The linker's address of the function's first byte, by the unwind tables of its file. None: they do not tell.
    pub function: Option<u64>,
}

impl From<UnnamedReason> for Unnamed {
    fn from(reason: UnnamedReason) -> Unnamed {
        Unnamed { reason, function: None }
    }
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::symbol::budget::Budget;
    use crate::symbol::elf::{FileSymbols, STRIPPED, SymbolOptions};
    use crate::symbol::elf_file::in_memory;
    use crate::symbol::names::NamedFrame;
    use crate::symbol::vdso::own_vdso;
    use crate::symbol::{Content, Frame, FrameNames, Module};

    fn options(budget: Budget) -> SymbolOptions {
        SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget }
    }

    /// A small file with unwind tables, without the symbols that it had.
    pub fn stripped_file() -> Arc<Module> {
        const DYNSYM: u8 = 11;
        let mut bytes = own_vdso().expect("every process has one");
        let word =
            |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |sum, &byte| sum << 8 | byte as usize);
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
                .find(|at| symbols.resolve(*at).is_ok_and(|(name, into)| is_it(&name) && into == 0));
            start.expect("all have them")
        })
    }

    fn named(names: &mut FrameNames, module: &Arc<Module>, offset: u64, behind_call: bool) -> NamedFrame {
        let offset_of_call = offset - u64::from(behind_call);
        names.frame(&Frame::User { addr: 7, behind_call, guessed: false, place: Ok((module.clone(), offset_of_call)) })
    }

    #[test]
    fn a_function_of_a_stripped_file_is_known_by_its_start() {
        let (file, [one, other]) = (stripped_file(), functions());
        let mut names = FrameNames::new("/nonexistent", options(Budget::default()));
        // The linker puts the file of the vdso at address 0.
        let unnamed = |start| Err(Unnamed { reason: STRIPPED, function: Some(start) });
        for (start, into, behind_call) in [(one, 0, false), (one, 5, false), (other, 5, true), (other, 1, true)] {
            let frame = named(&mut names, &file, start + into, behind_call);
            assert_eq!((frame.symbol, frame.offset), (unnamed(start), into));
        }
        assert_eq!(
            named(&mut names, &file, one, false).function(),
            named(&mut names, &file, one + 4, false).function()
        );
        let headers = named(&mut names, &file, 0x10, false);
        assert_eq!((headers.symbol, headers.offset), (Err(STRIPPED.into()), 0x10), "that is no function");
        let coverage = names.coverage();
        assert_eq!((coverage.count.named, coverage.count.unnamed), (0, 6), "a place is no name");
    }

    /// Unwind tables have the budget of all other tables, and the time of names.
    #[test]
    fn functions_cost_no_more_than_names_may() {
        let (file, [one, _]) = (stripped_file(), functions());
        let mut names = FrameNames::new("/nonexistent", options(Budget::new(4 << 10)));
        assert_eq!(named(&mut names, &file, one, false).symbol, Err(STRIPPED.into()));
        let (file, mut names) = (stripped_file(), FrameNames::new("/nonexistent", options(Budget::default())));
        names.spend_all();
        let frame = named(&mut names, &file, one, false);
        assert!(frame.is_given_up() && file.code.tables().is_none(), "{frame:?}");
    }
}
