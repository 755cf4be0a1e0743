//! Text for frames, on the output thread: each is resolved once, the first time it is printed.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Reason, Symbolized, Symbolizer};
use rustc_hash::FxHashMap;

use crate::symbol::kallsyms::{Kallsyms, KallsymsError};
use crate::symbol::spaces::Module;
use crate::symbol::stacks::Frame;

/// A frame with its name, or with why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// None for frames from /proc, which have no address, and for the mark of a cut stack.
    pub addr: Option<u64>,
    /// The symbol, or why there is none.
    pub symbol: Result<Arc<str>, &'static str>,
    /// From the start of the symbol; of the file or address without one.
    pub offset: u64,
    pub module: Option<Arc<str>>,
}

/// Resolves frames. Opens kallsyms and files only when a frame needs them.
pub struct Names {
    kallsyms_path: PathBuf,
    kernel: Option<Result<Kallsyms, &'static str>>,
    symbolizer: Option<Symbolizer>,
    files: FxHashMap<(usize, u64), Named>,
    addresses: FxHashMap<u64, Named>,
    kept: Vec<Arc<Module>>,
}

impl Names {
    pub fn new(kallsyms: impl Into<PathBuf>) -> Names {
        Names {
            kallsyms_path: kallsyms.into(),
            kernel: None,
            symbolizer: None,
            files: FxHashMap::default(),
            addresses: FxHashMap::default(),
            kept: Vec::new(),
        }
    }

    pub fn frame(&mut self, frame: &Frame) -> Named {
        match frame {
            Frame::Kernel(addr) => self.kernel(*addr),
            Frame::User { addr, place: Some((module, offset)) } => {
                Named { addr: Some(*addr), ..self.user(module, *offset) }
            }
            Frame::User { addr, place: None } => {
                const LOWEST: u64 = 1 << 16; // vm.mmap_min_addr
                let reason =
                    if *addr < LOWEST { "no address: no frame pointers here" } else { "not mapped when last seen" };
                Named { addr: Some(*addr), symbol: Err(reason), offset: *addr, module: None }
            }
            Frame::Named(named) => Named {
                addr: None,
                symbol: Ok(named.symbol.as_str().into()),
                offset: named.offset,
                module: Some(named.module.as_deref().unwrap_or(KERNEL).into()),
            },
            Frame::Truncated => Named { addr: None, symbol: Ok("[truncated]".into()), offset: 0, module: None },
        }
    }

    /// The kernel symbol of an address, or why it has none.
    pub fn kernel(&mut self, addr: u64) -> Named {
        const MOST_KEPT: usize = 1 << 18; // the address may come from a record that names a different one each time
        if let Some(named) = self.addresses.get(&addr) {
            return named.clone();
        }
        let named = self.look_up_kernel(addr);
        if self.addresses.len() < MOST_KEPT {
            self.addresses.insert(addr, named.clone());
        }
        named
    }

    fn look_up_kernel(&mut self, addr: u64) -> Named {
        let path = &self.kallsyms_path;
        let table = self.kernel.get_or_insert_with(|| Kallsyms::load(path).map_err(reason));
        let (symbol, offset, module) = match table {
            Err(reason) => (Err(*reason), addr, None),
            Ok(table) => match table.resolve(addr) {
                Some(found) => (Ok(String::from_utf8_lossy(found.name).into()), found.offset, found.module),
                None => (Err("no kernel symbol there"), addr, None),
            },
        };
        Named { addr: Some(addr), symbol, offset, module: Some(module.unwrap_or(KERNEL).into()) }
    }

    fn user(&mut self, module: &Arc<Module>, offset: u64) -> Named {
        let key = (Arc::as_ptr(module) as usize, offset);
        if let Some(named) = self.files.get(&key) {
            return named.clone();
        }
        let (symbol, from) = match self.look_up(module, offset) {
            Ok((symbol, from)) => (Ok(symbol.into()), from),
            Err(reason) => (Err(reason), offset),
        };
        let named = Named { addr: None, symbol, offset: from, module: Some(module.path.clone()) };
        self.kept.push(module.clone()); // its address is the key, so it must stay
        self.files.insert(key, named.clone());
        named
    }

    fn look_up(&mut self, module: &Module, offset: u64) -> Result<(String, u64), &'static str> {
        let Some(file) = &module.file else {
            return Err(match &*module.path {
                "[vdso]" => "vdso",
                path if path.starts_with("//anon") || path.starts_with("[anon") || path.starts_with("/memfd:") => {
                    "jit-no-map"
                }
                path if path.starts_with('[') => "no file",
                _ => "file could not be opened",
            });
        };
        let symbolizer = self.symbolizer.get_or_insert_with(|| {
            Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).enable_auto_reload(false).build()
        });
        let source = Source::Elf(Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd())));
        match symbolizer.symbolize_single(&source, Input::FileOffset(offset)) {
            Ok(Symbolized::Sym(symbol)) => Ok((symbol.name.into_owned(), symbol.offset as u64)),
            Ok(Symbolized::Unknown(Reason::MissingSyms | Reason::UnknownAddr)) => Err("stripped"),
            Ok(Symbolized::Unknown(_)) => Err("outside the file's code"),
            Err(_) => Err("non-elf"),
        }
    }
}

const KERNEL: &str = "[kernel]";

fn reason(err: KallsymsError) -> &'static str {
    match err {
        KallsymsError::Restricted => "no-perm: kernel.kptr_restrict hides addresses",
        KallsymsError::Empty => "the kernel lists no symbols",
        KallsymsError::TooLarge => "kallsyms is too large",
        KallsymsError::Io(_) => "no-perm: /proc/kallsyms cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Arc<Module> {
        Arc::new(Module { path: path.into(), file: std::fs::File::open(path).ok() })
    }

    #[test]
    fn frames_without_a_name_say_why() {
        let mut names = Names::new("/nonexistent");
        let cases = [
            ("[vdso]", "vdso"),
            ("//anon", "jit-no-map"),
            ("/nonexistent/lib.so", "file could not be opened"),
            ("/proc/self/status", "non-elf"),
        ];
        for (path, reason) in cases {
            let named = names.frame(&Frame::User { addr: 7, place: Some((module(path), 3)) });
            assert_eq!((named.symbol, named.offset, named.addr), (Err(reason), 3, Some(7)), "{path}");
        }
        assert!(names.frame(&Frame::Kernel(1 << 63)).symbol.is_err());
        assert!(names.frame(&Frame::User { addr: 7, place: None }).symbol.is_err());
    }

    #[inline(never)]
    extern "C" fn landmark_of_this_test() -> u64 {
        std::hint::black_box(42)
    }

    #[test]
    fn finds_a_function_of_this_very_program() {
        landmark_of_this_test();
        let mut spaces = crate::symbol::Spaces::new(Default::default());
        let addr = landmark_of_this_test as *const () as u64;
        let place = spaces.locate(std::process::id() as i32, addr);
        let named = Names::new("/nonexistent").frame(&Frame::User { addr, place });
        assert!(named.symbol.as_ref().is_ok_and(|name| name.contains("landmark_of_this_test")), "{named:?}");
        assert_eq!(named.offset, 0);
    }
}
