//! The unwind tables of one ELF file: copies of its sections, and the search for the FDE of an address.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindSection, Vendor};

use crate::unwind::Arch;
use crate::unwind::cfi::{self, Bytes, Fde};
use crate::unwind::index::{FdeIndex, HeaderTable};
use crate::unwind::rules::{self, Rule, Saved};
use crate::unwind::sections::{CodeLoad, FrameSections};

/// See [`FrameSections`].
pub struct FrameTables {
    sections: FrameSections,
    header: Option<HeaderTable>,
    /// Used if there is no header.
    eh_index: FdeIndex,
    debug_index: FdeIndex,
    /// A value that is dropped together with the tables.
    _beside: Option<Box<dyn Any + Send + Sync>>,
}

/// The cost of finding the FDE of an address, in units of CFA instructions.
const FINDING_INSTRUCTIONS: usize = 16;

impl fmt::Debug for FrameTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameTables").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl FrameTables {
    /// Makes tables from sections, in time proportional to their lengths.
    pub fn new(mut sections: FrameSections) -> FrameTables {
        sections.sigreturns.sort_unstable();
        let base = sections.loads.iter().map(|load| load.address).min().unwrap_or(0);
        let header = HeaderTable::of(&sections.eh_frame_hdr);
        let (eh_index, debug_index) = (FdeIndex::default(), FdeIndex::default());
        let mut tables = FrameTables { sections, header, eh_index, debug_index, _beside: None };
        if tables.header.is_none() {
            let bytes = &tables.sections.eh_frame.bytes;
            tables.eh_index = FdeIndex::of(&tables.eh_frame(), bytes, &tables.bases(), base);
        }
        let bytes = &tables.sections.debug_frame.bytes;
        tables.debug_index = FdeIndex::of(&tables.debug_frame(), bytes, &tables.bases(), base);
        tables
    }

    /// Adds a value that is dropped together with the tables, such as the guard of a memory budget.
    #[must_use]
    pub fn keeping(self, beside: Box<dyn Any + Send + Sync>) -> FrameTables {
        FrameTables { _beside: Some(beside), ..self }
    }

    /// The memory of the tables in bytes.
    pub fn bytes(&self) -> usize {
        let FrameSections { eh_frame, eh_frame_hdr, debug_frame, loads, sigreturns, .. } = &self.sections;
        let sections: usize =
            [eh_frame, eh_frame_hdr, debug_frame].iter().map(|section| section.bytes.capacity()).sum();
        let lists = loads.capacity() * size_of::<CodeLoad>() + sigreturns.capacity() * size_of::<u64>();
        size_of::<FrameTables>() + sections + lists + self.eh_index.bytes() + self.debug_index.bytes()
    }

    /// The function around a byte of the file, by the file's tables: the range of its bytes.
    pub fn function(&self, offset: u64) -> Option<Range<u64>> {
        let address = self.address(offset)?;
        let fde = match self.eh_fde(address) {
            Some(fde) => fde,
            None => self.debug_fde(address)?,
        };
        let start = offset.checked_sub(address.checked_sub(fde.initial_address())?)?;
        Some(start..start.checked_add(fde.len())?)
    }

    pub(super) fn arch(&self) -> Arch {
        self.sections.arch
    }

    /// The linker's address of a byte of the file, if it is code.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.sections.loads.iter().find_map(|load| {
            let into = offset.checked_sub(load.offset).filter(|into| *into < load.len)?;
            load.address.checked_add(into)
        })
    }

    /// The rule for one of the linker's addresses. `budget`: instructions that may still be executed, reduced by those
    /// that were. None: the budget is used up.
    pub(super) fn rule_within(&self, address: u64, budget: &mut usize) -> Option<Rule> {
        *budget = budget.checked_sub(FINDING_INSTRUCTIONS)?;
        if self.returns_from_signal(address) {
            return Some(Rule::Signal);
        }
        let arch = self.arch();
        let bases = self.bases();
        let (covers_entry, rule) = if let Some(fde) = self.eh_fde(address) {
            (self.is_of_entry(&fde), rules::rule(&self.eh_frame(), &bases, &fde, address, arch, budget)?)
        } else if let Some(fde) = self.debug_fde(address) {
            (self.is_of_entry(&fde), rules::rule(&self.debug_frame(), &bases, &fde, address, arch, budget)?)
        } else {
            return Some(if self.is_near_entry(address) { Rule::End } else { Rule::Missing });
        };
        Some(if covers_entry { Rule::End } else { rule })
    }

    /// Where a register of the caller is, by its DWARF number, at one of the linker's addresses. `budget`: as above.
    pub(super) fn saved_within(&self, address: u64, register: u8, budget: &mut usize) -> Option<Saved> {
        *budget = budget.checked_sub(FINDING_INSTRUCTIONS)?;
        let bases = self.bases();
        let what = (self.arch(), register);
        if let Some(fde) = self.eh_fde(address) {
            rules::saved(&self.eh_frame(), &bases, &fde, address, what, budget)
        } else if let Some(fde) = self.debug_fde(address) {
            rules::saved(&self.debug_frame(), &bases, &fde, address, what, budget)
        } else {
            Some(Saved::Lost)
        }
    }

    #[cfg(test)]
    pub(super) fn rule(&self, address: u64) -> Rule {
        self.rule_within(address, &mut usize::MAX.clone()).unwrap_or(Rule::Missing)
    }

    /// Whether the address is in a signal trampoline, or one byte before it (as for a return address).
    fn returns_from_signal(&self, address: u64) -> bool {
        const CODE_BYTES: u64 = 8; // up to the end of the system call instruction
        let first = self.sections.sigreturns.partition_point(|start| start.saturating_add(CODE_BYTES) <= address);
        self.sections.sigreturns.get(first).is_some_and(|start| start.saturating_sub(1) <= address)
    }

    fn is_of_entry(&self, fde: &Fde<'_>) -> bool {
        self.sections.entry.is_some_and(|entry| fde.contains(entry))
    }

    /// Whether the address is in the program's entry function, which may have no table and is short in every C library.
    fn is_near_entry(&self, address: u64) -> bool {
        const ENTRY_BYTES: u64 = 64;
        let into = self.sections.entry.and_then(|entry| address.checked_sub(entry));
        into.is_some_and(|into| into < ENTRY_BYTES)
    }

    fn eh_fde(&self, address: u64) -> Option<Fde<'_>> {
        let FrameSections { eh_frame, eh_frame_hdr, .. } = &self.sections;
        let at = match self.header {
            Some(header) => {
                let place = header.find(eh_frame_hdr, address)?.checked_sub(eh_frame.address)?;
                usize::try_from(place).ok()?
            }
            None => self.eh_index.find(address)?,
        };
        fde_for(&self.eh_frame(), &eh_frame.bytes, &self.bases(), at, address)
    }

    fn debug_fde(&self, address: u64) -> Option<Fde<'_>> {
        let at = self.debug_index.find(address)?;
        fde_for(&self.debug_frame(), &self.sections.debug_frame.bytes, &self.bases(), at, address)
    }

    fn eh_frame(&self) -> EhFrame<Bytes<'_>> {
        let mut section = EhFrame::new(&self.sections.eh_frame.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        section
    }

    fn debug_frame(&self) -> DebugFrame<Bytes<'_>> {
        let mut section = DebugFrame::new(&self.sections.debug_frame.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        section
    }

    fn vendor(&self) -> Vendor {
        match self.arch() {
            Arch::X86_64 => Vendor::Default,
            Arch::Aarch64 => Vendor::AArch64,
        }
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.sections.eh_frame.address)
    }
}

/// The FDE at an offset, if it covers the address.
fn fde_for<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bytes: &'a [u8],
    bases: &BaseAddresses,
    start: usize,
    address: u64,
) -> Option<Fde<'a>> {
    let fde = cfi::fde(section, bytes, bases, start, |offset| cfi::cie(section, bytes, bases, offset))?;
    fde.contains(address).then_some(fde)
}
