//! Names of frames, on the output thread: a frame is named when it is first printed, and the name is kept.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::symbol::elf::symbols::{FileSymbols, SymbolOptions};
use crate::symbol::elf::vdso::Vdso;
use crate::symbol::kernel::kallsyms::{Kallsyms, KallsymsError};
use crate::symbol::naming::coverage::{Coverage, ModuleCoverage, PlaceTally};
use crate::symbol::naming::name_cache::NameCache;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::time::{CurrentStep, NamingTime};
use crate::symbol::perf_map::content::PerfMap;
use crate::symbol::spaces::module::{Content, Module};
use crate::symbol::spaces::unwind_tables;
use crate::symbol::stacks::frame::{Frame, StackCut};
use crate::symbol::unnamed::{
    GIVEN_UP, HIDDEN, JIT_NO_MAP, NO_ADDRESS, NO_SYMBOL, NOT_IN_MAP, STRIPPED, TOO_LARGE, TOO_SLOW, Unnamed,
    UnnamedReason,
};

/// Names frames, and keeps the names of places. Opens kallsyms and files only when a frame needs them.
pub struct FrameNames {
    kallsyms_path: PathBuf,
    /// Functions of kallsyms, and when they were read.
    kernel: Option<(Result<Kallsyms, UnnamedReason>, Instant)>,
    /// Data of kallsyms, read when first needed; None inside when kallsyms cannot be read or lists none.
    data: Option<Option<Kallsyms>>,
    options: SymbolOptions,
    /// By address of the [`Module`].
    modules: FxHashMap<usize, ModuleNames>,
    /// Files whose symbols will be needed.
    unread: Vec<Arc<Module>>,
    /// By address of the open file.
    perf_maps: FxHashMap<usize, PerfMap>,
    vdso: Option<Option<Vdso>>,
    /// Places in modules: by address of the [`Module`], and offset.
    places: NameCache<(usize, u64)>,
    /// Kernel addresses.
    addresses: NameCache<u64>,
    kernel_tally: PlaceTally,
    /// User addresses in no module.
    nowhere: PlaceTally,
    time: NamingTime,
}

/// What is known of a module. `module` keeps the allocation, whose address is the key.
struct ModuleNames {
    module: Arc<Module>,
    symbols: Option<Result<FileSymbols, UnnamedReason>>,
    /// Number of attempts to read the symbols that ran out of time.
    given_up: u32,
    /// Number of users that had mapped the module when its symbols were read.
    users: usize,
    tally: PlaceTally,
    /// Why the last frame without a name has none.
    reason: Option<UnnamedReason>,
}

impl FrameNames {
    pub fn new(kallsyms: impl Into<PathBuf>, options: SymbolOptions) -> FrameNames {
        FrameNames::observed(kallsyms, options, CurrentStep::default())
    }

    /// As [`FrameNames::new`]; `step` tells other threads which file is being read.
    pub fn observed(kallsyms: impl Into<PathBuf>, options: SymbolOptions, step: CurrentStep) -> FrameNames {
        FrameNames {
            kallsyms_path: kallsyms.into(),
            kernel: None,
            data: None,
            options,
            modules: FxHashMap::default(),
            unread: Vec::new(),
            perf_maps: FxHashMap::default(),
            vdso: None,
            places: NameCache::default(),
            addresses: NameCache::default(),
            kernel_tally: PlaceTally::default(),
            nowhere: PlaceTally::default(),
            time: NamingTime::new(step),
        }
    }

    /// Names the frames of a stack, innermost first.
    pub fn stack(&mut self, frames: &[Frame]) -> Vec<NamedFrame> {
        let mut named: Vec<NamedFrame> = Vec::with_capacity(frames.len());
        for frame in frames {
            let was_interrupted =
                named.last().is_some_and(|inner| inner.symbol.as_deref().is_ok_and(is_interrupt_entry));
            named.push(match frame {
                Frame::Kernel { addr, behind_call: true } if was_interrupted => self.kernel(*addr),
                frame => self.frame(frame),
            });
        }
        named
    }

    /// Starts the time for the names of a message: of a report, or of a batch of occurrences.
    pub fn start(&mut self, is_report: bool) {
        self.time.start(is_report);
    }

    /// The message on names that were given up, at most once per report.
    pub fn take_given_up(&mut self) -> Option<String> {
        self.time.take_message()
    }

    /// True when no name is looked up any more until the next report.
    pub fn has_no_time(&self) -> bool {
        self.time.is_over()
    }

    #[cfg(test)]
    pub(super) fn spend_all(&mut self) {
        self.time.spend_all();
    }

    /// Names one frame.
    pub fn frame(&mut self, frame: &Frame) -> NamedFrame {
        match frame {
            Frame::Kernel { addr, behind_call: false } => self.kernel(*addr),
            Frame::Kernel { addr, behind_call: true } => {
                let before = self.kernel(addr.saturating_sub(1));
                NamedFrame { addr: Some(*addr), offset: before.offset + 1, ..before }
            }
            Frame::User { addr, behind_call, guessed, place: Ok((module, offset)) } => {
                NamedFrame { addr: Some(*addr), guessed: *guessed, ..self.user(module, *addr, *offset, *behind_call) }
            }
            Frame::User { addr, guessed, place: Err(reason), .. } => {
                if *reason != NO_ADDRESS {
                    self.nowhere.add(*addr, false, false);
                }
                let unnamed = NamedFrame::new(Err((*reason).into()), *addr, None);
                NamedFrame { addr: Some(*addr), guessed: *guessed, ..unnamed }
            }
            Frame::Named(named) => {
                let module = named.module.as_deref().unwrap_or(KERNEL);
                NamedFrame::new(Ok(named.symbol.as_str().into()), named.offset, Some(module.into()))
            }
            Frame::Python(python) => {
                let named = NamedFrame::new(Ok(Arc::from(&*python.function)), 0, Some(Arc::from(&*python.file)));
                NamedFrame { line: Some(python.line.unwrap_or(0)), ..named }
            }
            Frame::Truncated(cut) => {
                let symbol = match cut {
                    StackCut::DepthLimit => "[truncated]".into(),
                    StackCut::Window { kib } => format!("[truncated after {kib} KiB]").into(),
                };
                NamedFrame::new(Ok(symbol), 0, None)
            }
        }
    }

    /// Names the kernel function at an address.
    pub fn kernel(&mut self, addr: u64) -> NamedFrame {
        self.kernel_place(addr, false)
    }

    /// Names the kernel function or data at an address, as `%pS` of the kernel does.
    pub fn kernel_or_data(&mut self, addr: u64) -> NamedFrame {
        self.kernel_place(addr, true)
    }

    fn kernel_place(&mut self, addr: u64, or_data: bool) -> NamedFrame {
        if let Some((function, offset)) = self.addresses.get(&addr) {
            return NamedFrame::of(function, offset, Some(addr));
        }
        let mut named = self.look_up_kernel(addr);
        if or_data && named.symbol.is_err() {
            named = self.look_up_data(addr).unwrap_or(named);
        }
        // An address without a name may get one from a kernel module that is loaded later.
        let is_final = named.symbol.is_ok() && self.addresses.keep(addr, named.function(), named.offset);
        self.kernel_tally.add(addr, named.symbol.is_ok(), is_final);
        named
    }

    /// The size of the kernel symbol at an address, as `%pS` of the kernel prints it.
    pub fn kernel_size(&self, addr: u64) -> Option<u64> {
        let (table, _) = self.kernel.as_ref()?;
        let table = table.as_ref().ok()?;
        table.size(addr).or_else(|| self.data.as_ref()?.as_ref()?.size(addr))
    }

    /// Reads kallsyms ahead of the first kernel address, which may have to be named quickly.
    pub fn read_kernel(&mut self) {
        self.look_up_kernel(0);
    }

    fn look_up_kernel(&mut self, addr: u64) -> NamedFrame {
        const LOAD_AGAIN: Duration = Duration::from_secs(10);
        let path = &self.kallsyms_path;
        let load = || (Kallsyms::load(path).map_err(reason), Instant::now());
        let (table, loaded) = self.kernel.get_or_insert_with(load);
        // A kernel module or BPF program may have been loaded since.
        if table.as_ref().is_ok_and(|table| table.resolve(addr).is_none()) && loaded.elapsed() > LOAD_AGAIN {
            (*table, *loaded) = load();
        }
        let (symbol, offset, module) = match table {
            Err(reason) => (Err((*reason).into()), addr, None),
            Ok(table) => match table.resolve(addr) {
                Some(found) => (Ok(String::from_utf8_lossy(found.name).into()), found.offset, found.module),
                None => (Err(NO_KERNEL_SYMBOL.into()), addr, None),
            },
        };
        let named = NamedFrame::new(symbol, offset, Some(module.unwrap_or(KERNEL).into()));
        NamedFrame { addr: Some(addr), ..named }
    }

    fn look_up_data(&mut self, addr: u64) -> Option<NamedFrame> {
        let is_kernels = addr >> 63 == 1;
        let has_functions = self.kernel.as_ref().is_some_and(|(table, _)| table.is_ok());
        if !is_kernels || !has_functions {
            return None; // not a kernel address, or kallsyms is unreadable
        }
        let data = self.data.get_or_insert_with(|| Kallsyms::load_data(&self.kallsyms_path).ok());
        let found = data.as_ref()?.resolve(addr)?;
        let symbol = String::from_utf8_lossy(found.name).into();
        let module = Some(found.module.unwrap_or(KERNEL).into());
        Some(NamedFrame { addr: Some(addr), ..NamedFrame::new(Ok(symbol), found.offset, module) })
    }

    /// Names a user frame. `offset`: with `behind_call`, that of the call, one byte before `addr`.
    fn user(&mut self, module: &Arc<Module>, addr: u64, offset: u64, behind_call: bool) -> NamedFrame {
        let key = place_key(module, offset, behind_call);
        if let Some((function, offset)) = self.places.get(&key) {
            return NamedFrame::of(function, offset, None);
        }
        let found = if behind_call {
            let found =
                self.look_up_in_time(module, addr.saturating_sub(1), offset).map(|(symbol, into)| (symbol, into + 1));
            // A signal handler returns to the first instruction of a trampoline, which is behind no call.
            let at = match &found {
                Err((unnamed, _)) if unnamed.reason == GIVEN_UP => None,
                _ => self.look_up_in_time(module, addr, offset.saturating_add(1)).ok(),
            };
            at.filter(|(symbol, into)| *into == 0 && returns_from_signals(symbol)).map_or(found, Ok)
        } else {
            self.look_up_in_time(module, addr, offset)
        };
        let (symbol, into) = match found {
            Ok((symbol, into)) => (Ok(symbol.into()), into),
            Err((unnamed, into)) => (Err(unnamed), into + u64::from(behind_call)),
        };
        let named = NamedFrame::new(symbol, into, Some(module.path.clone()));
        // A perf map may still be written, or name this place later, or rename it for new code.
        let may_change = matches!(module.content, Content::Unnamed { map: Some(_), .. })
            || matches!(named.reason(), Some(TOO_LARGE | MAP_TOO_LARGE | GIVEN_UP));
        let is_final = !may_change && self.places.keep(key, named.function(), into);
        let known = self.of_module(module);
        known.tally.add(offset, named.symbol.is_ok(), is_final);
        if !(named.is_given_up() && known.reason.is_some()) {
            known.reason = named.reason().or(known.reason);
        }
        named
    }

    /// True for an offset in the entry function of its file. `named`: the name of the frame.
    pub fn is_entry(&self, module: &Arc<Module>, named: &NamedFrame, offset: u64) -> bool {
        const ENTRY_BYTES: u64 = 64; // `_start` is shorter in every C library
        let known = self.modules.get(&(Arc::as_ptr(module) as usize));
        let entry = known.and_then(|known| known.symbols.as_ref()?.as_ref().ok()?.entry());
        entry.is_some_and(|entry| match named.symbol {
            Ok(_) => offset.checked_sub(named.offset).is_some_and(|start| start == entry),
            Err(_) => offset.checked_sub(entry).is_some_and(|into| into < ENTRY_BYTES),
        })
    }

    fn look_up_in_time(
        &mut self,
        module: &Arc<Module>,
        addr: u64,
        offset: u64,
    ) -> Result<(String, u64), (Unnamed, u64)> {
        if let Content::Unnamed { reason, map: None } = &module.content {
            return Err(((*reason).into(), offset)); // takes no time
        }
        let start_ns = self.time.begin(&module.path).ok_or((GIVEN_UP.into(), offset))?;
        let found = self.look_up(module, addr, offset);
        if found == Err(GIVEN_UP) {
            self.time.give_up(&module.path);
        }
        let found = found.map_err(|reason| self.without_symbol(module, offset, reason));
        self.time.end(&module.path, start_ns);
        found
    }

    /// The function around a place that no symbol covers, by the file's unwind tables, which strip(1) keeps, and the
    /// offset in that function. Without such a function: the offset in the file.
    fn without_symbol(&self, module: &Arc<Module>, offset: u64, reason: UnnamedReason) -> (Unnamed, u64) {
        let is_without = matches!(reason, STRIPPED | NO_SYMBOL); // otherwise the symbols could not be read
        match is_without.then(|| self.function_start(module, offset)).flatten() {
            Some((start, into)) => (Unnamed { reason, function: Some(start) }, into),
            None => (reason.into(), offset),
        }
    }

    /// The linker's address of the function around a place without a symbol, and the distance from its start.
    fn function_start(&self, module: &Arc<Module>, offset: u64) -> Option<(u64, u64)> {
        unwind_tables::load(module, &self.options.budget);
        let function = module.code.tables()??.function(offset)?;
        let known = self.modules.get(&(Arc::as_ptr(module) as usize))?;
        let start = known.symbols.as_ref()?.as_ref().ok()?.address(function.start)?;
        Some((start, offset.checked_sub(function.start)?))
    }

    fn of_module(&mut self, module: &Arc<Module>) -> &mut ModuleNames {
        self.modules.entry(Arc::as_ptr(module) as usize).or_insert_with(|| ModuleNames {
            module: module.clone(),
            symbols: None,
            given_up: 0,
            users: 0,
            tally: PlaceTally::default(),
            reason: None,
        })
    }

    fn look_up(&mut self, module: &Arc<Module>, addr: u64, offset: u64) -> Result<(String, u64), UnnamedReason> {
        match &module.content {
            Content::File(file) => self.symbols_of(module, file)?.resolve(offset),
            Content::Vdso { len } => {
                let options = &self.options;
                match self.vdso.get_or_insert_with(|| Vdso::ours(options)) {
                    // The vdso of a 32-bit program may be as long, but is below 4 GiB.
                    Some(vdso) if vdso.len == *len && addr > u64::from(u32::MAX) => {
                        vdso.symbols.resolve(offset).map_err(|_| VDSO)
                    }
                    _ => Err(VDSO),
                }
            }
            Content::Unnamed { reason, map: Some(map) } => {
                let file = map.find().map_err(|why| if *reason == JIT_NO_MAP { why } else { *reason })?;
                let key = Arc::as_ptr(&file) as usize; // the file stays in `perf_maps`
                let known = self.perf_maps.entry(key).or_insert_with(|| PerfMap::new(file, &self.options.budget));
                let missing = if known.is_whole() { NOT_IN_MAP } else { MAP_TOO_LARGE };
                known.resolve(addr).ok_or(missing)
            }
            Content::Unnamed { reason, map: None } => Err(reason),
        }
    }

    /// The symbols of a file, read when they are first asked for.
    fn symbols_of(&mut self, module: &Arc<Module>, file: &File) -> Result<&mut FileSymbols, UnnamedReason> {
        /// Attempts to read a file's symbols that ran out of time. Each leaves more of the file in the page cache,
        /// unless that is too small.
        const MAX_GIVEN_UP: u32 = 5;
        let options = self.options.clone();
        let known = self.of_module(module);
        // A failure is kept, so that not each frame reads the file again. But a further user of the file may have
        // budget left for it, and after a lack of time the next report has new time.
        let users = module.users();
        let may_succeed = match known.symbols {
            None => true,
            Some(Err(TOO_LARGE)) => known.users < users.len(),
            Some(Err(GIVEN_UP)) => known.given_up < MAX_GIVEN_UP,
            Some(_) => false,
        };
        if may_succeed {
            known.symbols = Some(FileSymbols::open(file, &options, &users));
            known.users = users.len();
            known.given_up += u32::from(matches!(known.symbols, Some(Err(GIVEN_UP))));
        }
        match known.symbols.as_mut() {
            Some(Ok(symbols)) => Ok(symbols),
            Some(Err(GIVEN_UP)) if known.given_up >= MAX_GIVEN_UP => Err(TOO_SLOW),
            Some(Err(reason)) => Err(reason),
            None => Err(TOO_LARGE),
        }
    }

    /// Notes the files of frames that will be named. [`FrameNames::read_next_symbols`] reads them.
    pub fn expect(&mut self, frames: &[Frame]) {
        for frame in frames {
            let Frame::User { place: Ok((module, _)), .. } = frame else { continue };
            let is_file = matches!(module.content, Content::File(_));
            if is_file && !self.modules.contains_key(&(Arc::as_ptr(module) as usize)) {
                self.of_module(module);
                self.unread.push(module.clone());
            }
        }
    }

    /// Reads the symbols of one more file, ahead of its first name: at the end of a run there is less time. False when there is none
    /// left, or no time.
    pub fn read_next_symbols(&mut self) -> bool {
        let Some(module) = self.unread.pop().filter(|_| !self.has_no_time()) else {
            self.unread.clear();
            return false;
        };
        if let Content::File(file) = &module.content
            && let Some(start) = self.time.begin(&module.path)
        {
            let _ = self.symbols_of(&module, file); // the reason is kept, and shown with the frames
            self.time.end(&module.path, start);
        }
        true
    }

    /// Reads the names of frames ahead, with one question per file.
    pub fn read_ahead<'a>(&mut self, frames: impl Iterator<Item = &'a Frame>) {
        let mut files: Vec<(&'a Arc<Module>, FxHashSet<u64>)> = Vec::new();
        let mut indices: FxHashMap<usize, usize> = FxHashMap::default();
        for frame in frames {
            let Frame::User { behind_call, place: Ok((module, offset)), .. } = frame else { continue };
            let is_in_file = matches!(module.content, Content::File(_));
            if !is_in_file || self.places.get(&place_key(module, *offset, *behind_call)).is_some() {
                continue;
            }
            let index = *indices.entry(Arc::as_ptr(module) as usize).or_insert(files.len());
            if index == files.len() {
                files.push((module, FxHashSet::default()));
            }
            files[index].1.insert(*offset);
        }
        for (module, offsets) in files {
            let Content::File(file) = &module.content else { continue };
            let Some(start) = self.time.begin(&module.path) else { continue };
            match self.symbols_of(module, file) {
                Ok(symbols) => symbols.read_ahead(offsets.into_iter()),
                Err(GIVEN_UP) => self.time.give_up(&module.path),
                Err(_) => {} // the reason is shown with the frame
            }
            self.time.end(&module.path, start);
        }
    }

    /// Forgets modules that nobody else refers to.
    pub fn forget_unused(&mut self) {
        let before = self.modules.len();
        // `AddressSpaces` keeps a reference to modules with an open file.
        let others = |module: &Module| 1 + usize::from(matches!(module.content, Content::File(_)));
        self.modules.retain(|_, known| Arc::strong_count(&known.module) > others(&known.module));
        if self.modules.len() < before {
            let modules = &self.modules;
            self.places.retain(|(module, _)| modules.contains_key(module));
            self.perf_maps.retain(|_, map| map.is_used());
        }
    }

    /// Numbers of distinct places with and without names, and the modules with most unnamed places.
    pub fn coverage(&self) -> Coverage {
        let kernel_reason = self.kernel.as_ref().and_then(|(table, _)| table.as_ref().err().copied());
        let kernel = ModuleCoverage {
            module: KERNEL.to_owned(),
            count: self.kernel_tally.count,
            reason: kernel_reason.unwrap_or(NO_KERNEL_SYMBOL),
            runtimes: Vec::new(),
            reach: None,
        };
        let modules = self.modules.values().map(|known| ModuleCoverage {
            module: known.module.path_from_here().to_string(),
            reach: known.module.reach.clone(),
            count: known.tally.count,
            reason: known.reason.unwrap_or_default(),
            runtimes: match &known.module.content {
                Content::Unnamed { map: Some(map), .. } => map.runtime().into_iter().collect(),
                _ => Vec::new(),
            },
        });
        Coverage::of(std::iter::once(kernel).chain(modules).collect(), self.nowhere.count.unnamed)
    }
}

/// True for the entry points of interrupts and exceptions: the address in the frame further out was interrupted, and is
/// no return address. For x86 (arch/x86/entry/entry_64.S, also before 5.8) and arm64 (arch/arm64/kernel/entry.S).
pub(super) fn is_interrupt_entry(function: &str) -> bool {
    const NAMES: [&str; 12] = [
        "apic_timer_interrupt",
        "async_page_fault",
        "common_interrupt",
        "el1_error",
        "el1_irq",
        "el1_sync",
        "end_repeat_nmi",
        "nmi",
        "page_fault",
        "reschedule_interrupt",
        "ret_from_intr",
        "xen_hvm_callback_vector",
    ];
    const STARTS: [&str; 5] = ["asm_sysvec_", "asm_exc_", "asm_common_interrupt", "asm_spurious_interrupt", "el1h_64_"];
    STARTS.iter().any(|start| function.starts_with(start)) || NAMES.binary_search(&function).is_ok()
}

/// True for the signal trampolines of glibc, musl, and the vdso.
fn returns_from_signals(function: &str) -> bool {
    ["__restore_rt", "__restore", "__kernel_rt_sigreturn", "__kernel_sigreturn"].contains(&function)
}

/// A place in the file of a module: its address, and the offset.
fn place_key(module: &Arc<Module>, offset: u64, behind_call: bool) -> (usize, u64) {
    const BEHIND_CALL: u64 = 1 << 63; // no file is that large
    (Arc::as_ptr(module) as usize, offset | if behind_call { BEHIND_CALL } else { 0 })
}

const VDSO: UnnamedReason = "vdso";
const MAP_TOO_LARGE: UnnamedReason = "perf map too large: a larger `--symbol-memory` helps";

pub const KERNEL: &str = "[kernel]";
const NO_KERNEL_SYMBOL: UnnamedReason = "no kernel symbol there";

fn reason(err: KallsymsError) -> UnnamedReason {
    match err {
        KallsymsError::Restricted => HIDDEN,
        KallsymsError::Empty => "the kernel lists no symbols",
        KallsymsError::TooLarge => "kallsyms is too large",
        KallsymsError::Io(_) => "no-perm: /proc/kallsyms cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::symbol::budget::Budget;
    use crate::symbol::naming::coverage::PlaceCounts;
    use crate::symbol::naming::fixture::{functions, options, stripped_file};
    use crate::symbol::perf_map::file::PerfMapFile;

    fn names() -> FrameNames {
        FrameNames::new(
            "/nonexistent",
            SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() },
        )
    }

    #[test]
    fn frames_without_a_name_say_why() {
        let not_elf = File::open("/proc/self/status").unwrap();
        let cases = [
            (Content::Vdso { len: 1 }, "vdso"),
            (Content::Unnamed { reason: JIT_NO_MAP, map: None }, "jit-no-map"),
            (Content::File(not_elf), "non-elf"),
        ];
        for (content, reason) in cases {
            let module = Arc::new(Module::new("x", content));
            let named =
                names().frame(&Frame::User { addr: 7, behind_call: false, guessed: false, place: Ok((module, 3)) });
            assert_eq!((named.symbol, named.offset, named.addr), (Err(reason.into()), 3, Some(7)));
        }
        assert!(names().frame(&Frame::Kernel { addr: 1 << 63, behind_call: false }).symbol.is_err());
        assert_eq!(
            names().frame(&Frame::User { addr: 7, behind_call: false, guessed: false, place: Err("exited") }).symbol,
            Err("exited".into())
        );
    }

    #[inline(never)]
    extern "C" fn landmark_of_this_test() -> u64 {
        std::hint::black_box(42)
    }

    fn of_this_process(addr: u64) -> NamedFrame {
        // While a thread of another test is in state D, the mappings of this process are not read.
        let look = || crate::symbol::AddressSpaces::new(Default::default()).locate(std::process::id() as i32, addr);
        let place = std::iter::repeat_with(look).take(10_000).find(Result::is_ok).unwrap_or_else(look);
        names().frame(&Frame::User { addr, behind_call: false, guessed: false, place })
    }

    #[test]
    fn finds_a_function_of_this_very_program() {
        landmark_of_this_test();
        let named = of_this_process(landmark_of_this_test as *const () as u64);
        assert!(named.symbol.as_ref().is_ok_and(|name| name.contains("landmark_of_this_test")), "{named:?}");
        assert_eq!(named.offset, 0);
    }

    #[test]
    fn a_kernel_message_may_name_data() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "ffffffff81000000 T function\nffffffff82000000 d its_ops\nffffffff82000040 D next\n";
        fs::write(file.path(), text).unwrap();
        let mut names = FrameNames { kallsyms_path: file.path().into(), ..names() };
        let (function, data) = (0xffff_ffff_8100_0000, 0xffff_ffff_8200_0008);
        assert!(names.kernel(data).symbol.is_err());
        let named = names.kernel_or_data(data);
        assert_eq!((named.symbol.as_deref(), named.offset), (Ok("its_ops"), 8));
        assert_eq!(names.kernel_size(data), Some(0x40));
        assert_eq!(names.kernel_or_data(function).symbol.as_deref(), Ok("function"));
        assert!(names.kernel_or_data(7).symbol.is_err());
    }

    #[test]
    fn a_return_address_is_named_after_the_call() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "ffffffff81000000 T never_returns_to\nffffffff81000010 T asm_sysvec_apic_timer_interrupt\n\
            ffffffff81000020 T next\n";
        fs::write(file.path(), text).unwrap();
        let mut names = FrameNames { kallsyms_path: file.path().into(), ..names() };
        let kernel = |low: u64, behind_call| Frame::Kernel { addr: 0xffff_ffff_8100_0000 + low, behind_call };
        type Case<'a> = (&'a [Frame], &'a [(&'a str, u64)]);
        let stacks: [Case<'_>; 3] = [
            (&[kernel(0x10, true)], &[("never_returns_to", 0x10)]),
            (&[kernel(0x10, false)], &[("asm_sysvec_apic_timer_interrupt", 0)]),
            (
                &[kernel(0x18, true), kernel(0x20, true), kernel(0x20, true)],
                &[("asm_sysvec_apic_timer_interrupt", 8), ("next", 0), ("asm_sysvec_apic_timer_interrupt", 0x10)],
            ),
        ];
        for (frames, want) in stacks {
            let named = names.stack(frames);
            let named: Vec<(&str, u64)> =
                named.iter().map(|named| (named.symbol.as_deref().unwrap(), named.offset)).collect();
            assert_eq!(named, want);
        }
    }

    #[test]
    fn a_place_without_a_name_counts_once() {
        let mut names = names();
        for _ in 0..3 {
            names.kernel(1 << 63);
            names.frame(&Frame::User { addr: 7, behind_call: false, guessed: false, place: Err("exited") });
        }
        let coverage = names.coverage();
        assert_eq!((coverage.count, coverage.nowhere), (PlaceCounts { named: 0, unnamed: 2 }, 1));
    }

    #[test]
    fn kallsyms_is_read_for_kernel_addresses_only() {
        let mut names = names();
        let module = Arc::new(Module::new("x", Content::Vdso { len: 1 }));
        names.frame(&Frame::User { addr: 7, behind_call: false, guessed: false, place: Ok((module, 3)) });
        names.frame(&Frame::User { addr: 7, behind_call: false, guessed: false, place: Err("exited") });
        names.frame(&Frame::Truncated(StackCut::DepthLimit));
        assert!(names.kernel.is_none());
        names.frame(&Frame::Kernel { addr: 7, behind_call: false });
        assert!(names.kernel.is_some());
    }

    #[test]
    fn a_perf_map_names_code_without_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"1000 100 hot\n").unwrap();
        let map = Some(Arc::new(PerfMapFile::of(file.reopen().unwrap())));
        let module = Arc::new(Module::new("//anon", Content::Unnamed { reason: JIT_NO_MAP, map }));
        let mut names = names();
        let mut at = |addr| {
            names.frame(&Frame::User {
                addr,
                behind_call: false,
                guessed: false,
                place: Ok((module.clone(), addr - 0x1000)),
            })
        };
        assert_eq!((at(0x1004).symbol, at(0x1004).offset), (Ok("hot".into()), 4));
        assert!(at(0x2000).symbol.is_err());
        std::io::Write::write_all(&mut file, b"2000 100 later\n").unwrap();
        assert_eq!(at(0x2000).symbol, Ok("later".into()));
        assert_eq!(names.coverage().count, PlaceCounts { named: 2, unnamed: 0 });
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
        let mut names = FrameNames::new("/nonexistent", options(Budget::new(2 << 10)));
        assert_eq!(named(&mut names, &file, one, false).symbol, Err(STRIPPED.into()));
        let (file, mut names) = (stripped_file(), FrameNames::new("/nonexistent", options(Budget::default())));
        names.spend_all();
        let frame = named(&mut names, &file, one, false);
        assert!(frame.is_given_up() && file.code.tables().is_none(), "{frame:?}");
    }
}
