//! The symbol and unwind tables of a mapped file, as workers read them: the file may be on a server that does not answer, and may change
//! or shrink meanwhile. What comes back is a small ELF file of our own, or copies of sections.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, Answered, AskedOf, Question, WorkerContext, as_bytes};
use crate::symbol::elf::debug_files::{MAX_DEBUGDATA_BYTES, decompress, separate_file};
use crate::symbol::elf::file::{ElfFile, LoadSegments};
use crate::symbol::elf::symbol_copy;
use crate::symbol::elf::unwind_sections::sections_of_file;
use crate::symbol::opening::reopen;
use crate::symbol::unnamed::{NO_ANSWER, NO_ROOM, NOT_ELF, TOO_LARGE, UnnamedReason};
use crate::sys;
use crate::sys::packets::sealed_len;
use crate::unwind::{Arch, CodeLoad, FrameSection, FrameSections};

const UNREADABLE: UnnamedReason = "cannot be read";

/// Where symbols are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SymbolSource {
    /// In the file's own tables.
    Own,
    /// In its `.gnu_debugdata`.
    Debugdata,
    /// In a separate debug file with this build id, below one of these directories, whose paths are any bytes.
    Separate { build_id: Vec<u8>, dirs: Vec<Vec<u8>> },
}

/// Copies the symbol tables of the file that comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SymbolTables {
    source: SymbolSource,
    /// For what is kept of them.
    max_bytes: u64,
}

/// What came of a copy.
#[derive(Debug, Serialize, Deserialize)]
pub struct CopiedTables {
    /// Memory that they take, with the index that is made of them.
    pub kept_bytes: u64,
    pub head: FileHead,
}

/// What is kept of the headers of a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileHead {
    pub loads: LoadSegments,
    /// The offset in the file of the program's entry point.
    pub entry: Option<u64>,
    pub build_id: Option<Vec<u8>>,
    pub has_symtab: bool,
    pub has_debugdata: bool,
}

/// Why there are no tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoTables {
    NotElf,
    TooLarge,
    NoDescriptor,
    Unreadable,
}

impl From<NoTables> for UnnamedReason {
    fn from(why: NoTables) -> UnnamedReason {
        match why {
            NoTables::NotElf => NOT_ELF,
            NoTables::TooLarge => TOO_LARGE,
            NoTables::NoDescriptor => NO_ROOM,
            NoTables::Unreadable => UNREADABLE,
        }
    }
}

impl From<io::Error> for NoTables {
    fn from(err: io::Error) -> NoTables {
        match err.kind() {
            io::ErrorKind::QuotaExceeded => NoTables::TooLarge,
            _ if sys::lacks_descriptors(&err) => NoTables::NoDescriptor,
            _ => NoTables::Unreadable,
        }
    }
}

impl Question for SymbolTables {
    type Answer = Result<CopiedTables, NoTables>;

    fn answer(&self, context: &mut WorkerContext) -> Result<CopiedTables, NoTables> {
        let (copied, copy) = self.copy(reopen(context.file(0).ok_or(NoTables::Unreadable)?)?)?;
        context.give(copy);
        Ok(copied)
    }
}

impl SymbolTables {
    /// # Errors
    /// There are no tables in that place, or they take too much memory.
    fn copy(&self, file: File) -> Result<(CopiedTables, File), NoTables> {
        let file = match &self.source {
            SymbolSource::Own => file,
            SymbolSource::Debugdata => {
                let xz = ElfFile::read(&file).and_then(|elf| elf.debugdata(&file)).ok_or(NoTables::NotElf)?;
                // It takes memory twice until its tables are copied: as a file, and as the decompressor's dictionary.
                decompress(&file, xz, MAX_DEBUGDATA_BYTES.min(self.max_bytes / 3))?
            }
            SymbolSource::Separate { build_id, dirs } => {
                let dirs: Vec<PathBuf> = dirs.iter().map(|dir| OsStr::from_bytes(dir).into()).collect();
                separate_file(build_id, &dirs).ok_or(NoTables::Unreadable)?
            }
        };
        let elf = ElfFile::read(&file).ok_or(NoTables::NotElf)?;
        let (copy, kept_bytes) = symbol_copy::copy(&elf, &file, self.max_bytes)?;
        let head = FileHead {
            loads: elf.loads(),
            entry: elf.entry(),
            build_id: elf.build_id(&file),
            has_symtab: elf.has_symtab(),
            has_debugdata: elf.debugdata(&file).is_some(),
        };
        Ok((CopiedTables { kept_bytes, head }, copy))
    }
}

/// Asks for the symbol tables of a file that processes of `users` have mapped.
///
/// # Errors
/// There are none, or there is no answer.
pub fn symbol_tables(
    file: &File,
    users: &[u32],
    source: SymbolSource,
    max_bytes: u64,
) -> Result<(CopiedTables, File), UnnamedReason> {
    let Answered { value, mut files } = ask(file, users, &SymbolTables { source, max_bytes })?;
    let copy = files.pop().filter(|copy| sealed_len(copy).is_ok());
    Ok((value?, copy.ok_or(UNREADABLE)?))
}

fn ask<Q: Question>(file: &File, users: &[u32], question: &Q) -> Result<Answered<Q::Answer>, UnnamedReason> {
    outside::ask_with(&Host::default(), AskedOf::file_of_users(users), question, &[file]).map_err(|_| NO_ANSWER)
}

/// Copies the unwind tables of the file that comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub struct UnwindSections {
    max_bytes: u64,
}

/// Copies of sections, and what else is needed of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct CopiedSections {
    arch: Arch,
    /// `.eh_frame`, `.eh_frame_hdr`, `.debug_frame`.
    sections: [CopiedSection; 3],
    loads: Vec<CodeLoad>,
    entry: Option<u64>,
    sigreturns: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CopiedSection {
    address: u64,
    #[serde(with = "as_bytes")]
    bytes: Vec<u8>,
}

impl Question for UnwindSections {
    type Answer = Option<CopiedSections>;

    fn answer(&self, context: &mut WorkerContext) -> Option<CopiedSections> {
        let file = reopen(context.file(0)?).ok()?;
        let sections = sections_of_file(&file, self.max_bytes)?;
        let copied = |section: FrameSection| CopiedSection { address: section.address, bytes: section.bytes };
        Some(CopiedSections {
            arch: sections.arch,
            sections: [sections.eh_frame, sections.eh_frame_hdr, sections.debug_frame].map(copied),
            loads: sections.loads,
            entry: sections.entry,
            sigreturns: sections.sigreturns,
        })
    }
}

/// Asks for the unwind tables of a file that processes of `users` have mapped. None: there are none, they take more than
/// `max_bytes`, or there is no answer.
pub fn unwind_sections(file: &File, users: &[u32], max_bytes: u64) -> Option<FrameSections> {
    let copied = ask(file, users, &UnwindSections { max_bytes }).ok()?.value?;
    let [eh_frame, eh_frame_hdr, debug_frame] =
        copied.sections.map(|CopiedSection { address, bytes }| FrameSection { address, bytes });
    Some(FrameSections {
        arch: copied.arch,
        eh_frame,
        eh_frame_hdr,
        debug_frame,
        loads: copied.loads,
        entry: copied.entry,
        sigreturns: copied.sigreturns,
    })
}
