//! The code of an address space by address: immutable, and shared among threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::unwind::FrameTables;

/// The code behind a mapping, shared by all processes that map the file.
#[derive(Debug)]
pub struct MappedCode {
    id: u32,
    kind: CodeKind,
    tables: OnceLock<Option<Box<FrameTables>>>,
}

/// The kind of code, which decides how it can be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Code of an ELF file.
    File,
    /// The vdso, which the kernel maps into every process.
    Vdso,
    /// Code generated at run time: only frame pointers can be followed.
    Anonymous,
    /// `[uprobes]`: the trampoline to which a function with a return probe returns.
    Trampoline,
    /// A file that cannot be read, or that is no ELF file.
    NoTables,
}

/// Makes the tables of code when they are needed.
pub trait LoadTables {
    /// May call [`MappedCode::set_tables`] for `code`.
    fn load(&mut self, code: &Arc<MappedCode>);
}

/// A loader that loads nothing, for threads that must not wait for files.
#[derive(Clone, Copy, Debug)]
pub struct LoadNothing;

/// Code mapped at addresses of one space.
#[derive(Clone, Debug)]
pub struct CodeRange {
    pub start: u64,
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    pub code: Arc<MappedCode>,
}

/// The executable mappings of one address space.
#[derive(Debug, Default)]
pub struct SpaceCode {
    /// Sorted ranges that do not overlap.
    ranges: Vec<CodeRange>,
    /// Start of the range of return probes.
    trampoline: Option<u64>,
}

impl MappedCode {
    pub fn new(kind: CodeKind) -> MappedCode {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Fewer than 2^32 files are mapped in one run.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let code = MappedCode { id, kind, tables: OnceLock::new() };
        if !matches!(kind, CodeKind::File | CodeKind::Vdso) {
            code.set_tables(None);
        }
        code
    }

    /// The id of the code, unique in this process.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// Sets the tables. None: there are none, or they cannot be read. Only the first call counts.
    pub fn set_tables(&self, tables: Option<FrameTables>) {
        let _ = self.tables.set(tables.map(Box::new));
    }

    /// The tables. None: they are not set yet.
    pub fn tables(&self) -> Option<Option<&FrameTables>> {
        self.tables.get().map(Option::as_deref)
    }
}

impl LoadTables for LoadNothing {
    fn load(&mut self, _code: &Arc<MappedCode>) {}
}

impl<F: FnMut(&Arc<MappedCode>)> LoadTables for F {
    fn load(&mut self, code: &Arc<MappedCode>) {
        self(code);
    }
}

impl SpaceCode {
    /// Makes the space of ranges in any order. Of two overlapping ranges, the second loses the common part.
    pub fn new(mut ranges: Vec<CodeRange>) -> SpaceCode {
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        ranges.retain_mut(|range| {
            let cut = u64::saturating_sub(end, range.start);
            range.start += cut;
            range.offset = range.offset.wrapping_add(cut);
            end = end.max(range.end);
            range.start < range.end
        });
        let trampoline = ranges.iter().find(|range| range.code.kind == CodeKind::Trampoline);
        let trampoline = trampoline.map(|range| range.start);
        SpaceCode { ranges, trampoline }
    }

    pub fn ranges(&self) -> &[CodeRange] {
        &self.ranges
    }

    /// The code at an address.
    pub fn find(&self, address: u64) -> Option<&CodeRange> {
        self.find_near(address, &mut 0)
    }

    /// As [`SpaceCode::find`]. `near`: index of the range that was found last.
    pub(super) fn find_near(&self, address: u64, near: &mut usize) -> Option<&CodeRange> {
        if let Some(range) = self.ranges.get(*near).filter(|range| range.has(address)) {
            return Some(range);
        }
        let at = self.ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        let range = self.ranges.get(at).filter(|range| range.has(address))?;
        *near = at;
        Some(range)
    }

    /// True for the address by which a return probe replaces a return address.
    pub(super) fn is_trampoline(&self, address: u64) -> bool {
        self.trampoline == Some(address)
    }
}

impl CodeRange {
    fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The offset in the file of an address in the range.
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, offset: u64, kind: CodeKind) -> CodeRange {
        CodeRange { start, end, offset, code: Arc::new(MappedCode::new(kind)) }
    }

    #[test]
    fn an_address_is_in_one_range() {
        use CodeKind::{Anonymous, File, Trampoline};
        let space = SpaceCode::new(vec![
            range(0x5000, 0x6000, 0, Trampoline),
            range(0x1000, 0x3000, 0x200, File),
            range(0x2000, 0x4000, 0, Anonymous),
            range(0x2100, 0x2200, 0, File),
            range(9, 9, 0, File),
        ]);
        let mut near = 0;
        let mut seen = |address| {
            let found = space.find_near(address, &mut near);
            found.map(|range| (range.code.kind(), range.offset_of(address)))
        };
        let cases = [
            (0xfff, None),
            (0x1000, Some((File, 0x200))),
            (0x2fff, Some((File, 0x21ff))),
            (0x3000, Some((Anonymous, 0x1000))),
            (0x3fff, Some((Anonymous, 0x1fff))),
            (0x4000, None),
            (0x5000, Some((Trampoline, 0))),
            (u64::MAX, None),
        ];
        for (address, want) in cases.into_iter().chain(cases.into_iter().rev()) {
            assert_eq!(seen(address), want, "{address:#x}");
        }
        assert!(space.is_trampoline(0x5000) && !space.is_trampoline(0x5001) && !space.is_trampoline(0x1000));
        assert!(SpaceCode::default().find(0).is_none());
    }

    #[test]
    fn tables_are_set_once() {
        let (file, other) = (MappedCode::new(CodeKind::File), MappedCode::new(CodeKind::Anonymous));
        assert!(file.id() != other.id() && file.tables().is_none() && other.tables().is_some_and(|set| set.is_none()));
        file.set_tables(None);
        file.set_tables(Some(FrameTables::new(Default::default())));
        assert!(file.tables().is_some_and(|tables| tables.is_none()));
    }
}
