//! The symbol and unwind tables of a mapped file, as workers read them: the file may be on a server that does not
//! answer, and may change or shrink meanwhile. A worker returns an index of functions, the text of some names, or
//! copies of sections.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, Answered, AskedOf, NoAnswer, Question, WorkerContext, as_bytes};
use crate::symbol::elf::debug_files::{MAX_DEBUGDATA_BYTES, decompress, separate_file};
use crate::symbol::elf::file::{ElfFile, FileRange, LoadSegments};
use crate::symbol::elf::function_index::{FunctionIndex, IndexLayout, IndexSource, NoTables, UNREADABLE, name_at};
use crate::symbol::elf::unwind_sections::sections_of_file;
use crate::symbol::opening::{place_of, reopen};
use crate::symbol::unnamed::{CHANGED, GIVEN_UP, NO_ANSWER, NO_ROOM, UnnamedReason};
use crate::unwind::{Arch, CodeLoad, FrameSection, FrameSections};

/// Most bytes of names in one answer.
const MAX_NAMES_BYTES: usize = 4 << 20;

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

/// Makes an index of the functions of the file that comes with the question.
#[derive(Debug, Serialize, Deserialize)]
pub struct IndexFunctions {
    source: SymbolSource,
    max_bytes: u64,
}

/// An index, as a worker has made it. The first file of the answer is the index; the second one is the debug file with
/// the names, if the names are in one.
#[derive(Debug, Serialize, Deserialize)]
pub struct IndexedTables {
    layout: IndexLayout,
    /// Stamp of the file with the names, when it was read.
    stamp: Option<ContentStamp>,
    head: FileHead,
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

/// Properties of a file that differ after its content has changed. (Links change only ctime, which does not count.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentStamp {
    len: u64,
    /// Seconds and ns.
    modified: (i64, i64),
}

impl ContentStamp {
    fn of(file: &File) -> Option<ContentStamp> {
        let meta = file.metadata().ok()?;
        Some(ContentStamp { len: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
}

impl Question for IndexFunctions {
    type Answer = Result<IndexedTables, NoTables>;

    fn answer(&self, context: &mut WorkerContext) -> Result<IndexedTables, NoTables> {
        let (tables, files) = self.index(reopen(context.file(0).ok_or(NoTables::Unreadable)?)?)?;
        files.into_iter().for_each(|file| context.give(file));
        Ok(tables)
    }
}

impl IndexFunctions {
    /// # Errors
    /// There are no tables in that place, or they take too much memory or time.
    fn index(&self, file: File) -> Result<(IndexedTables, Vec<File>), NoTables> {
        let elf = ElfFile::read(&file).ok_or(NoTables::NotElf)?;
        let head = FileHead {
            loads: elf.loads(),
            entry: elf.entry(),
            build_id: elf.build_id(&file),
            has_symtab: elf.has_symtab(),
            has_debugdata: elf.debugdata(&file).is_some(),
        };
        let other = self.source.open(&elf, &file, self.max_bytes)?;
        let other_elf = other.as_ref().map(|other| ElfFile::read(other).ok_or(NoTables::NotElf)).transpose()?;
        let code: Vec<Range<u64>> =
            elf.code_segments().map(|(range, address)| address..address.saturating_add(range.len)).collect();
        let source = IndexSource {
            elf: other_elf.as_ref().unwrap_or(&elf),
            file: other.as_ref().unwrap_or(&file),
            code: &code,
            copies_names: matches!(self.source, SymbolSource::Debugdata),
        };
        let stamp = ContentStamp::of(source.file);
        let (index, layout) = source.index(self.max_bytes)?;
        let mut files = vec![index];
        if let (SymbolSource::Separate { .. }, Some(other)) = (&self.source, &other) {
            files.push(place_of(other)?);
        }
        Ok((IndexedTables { layout, stamp, head }, files))
    }
}

impl SymbolSource {
    /// The file with the tables. None: `file` itself has them.
    fn open(&self, elf: &ElfFile, file: &File, max_bytes: u64) -> Result<Option<File>, NoTables> {
        match self {
            SymbolSource::Own => Ok(None),
            SymbolSource::Debugdata => {
                let xz = elf.debugdata(file).ok_or(NoTables::NotElf)?;
                // Until its tables are copied, the file takes memory twice: as a file, and as the decompressor's
                // dictionary.
                Ok(Some(decompress(file, xz, MAX_DEBUGDATA_BYTES.min(max_bytes / 3))?))
            }
            SymbolSource::Separate { build_id, dirs } => {
                let dirs: Vec<PathBuf> = dirs.iter().map(|dir| OsStr::from_bytes(dir).into()).collect();
                Ok(Some(separate_file(build_id, &dirs).ok_or(NoTables::Unreadable)?))
            }
        }
    }
}

/// The functions of a file, as a worker has found them.
#[derive(Debug)]
pub struct FoundFunctions {
    pub index: FunctionIndex,
    pub head: FileHead,
    pub names: NamesFile,
}

/// The file in which names are, open as a place only (O_PATH).
#[derive(Debug)]
pub struct NamesFile {
    /// None: all names came along with the index.
    place: Option<File>,
    stamp: Option<ContentStamp>,
}

/// Asks for an index of the functions of a file that processes of `users` have mapped.
///
/// # Errors
/// There are no tables, or there is no answer.
pub fn index_functions(
    file: &File,
    users: &[u32],
    source: SymbolSource,
    max_bytes: u64,
) -> Result<FoundFunctions, UnnamedReason> {
    let subject = AskedOf { by_steps: true, ..AskedOf::file_of_users(users) };
    let answered = outside::ask_with(&Host::default(), subject, &IndexFunctions { source, max_bytes }, &[file]);
    let Answered { value, files } =
        answered.map_err(|why| if why == NoAnswer::TakesLong { GIVEN_UP } else { NO_ANSWER })?;
    let IndexedTables { layout, stamp, head } = value?;
    let mut files = files.into_iter();
    let index = files.next().and_then(|index| FunctionIndex::open(index, layout).ok()).ok_or(UNREADABLE)?;
    let place = match files.next() {
        None if index.has_all_names() => None,
        None => Some(file.try_clone().map_err(|_| NO_ROOM)?),
        other => other,
    };
    Ok(FoundFunctions { index, head, names: NamesFile { place, stamp } })
}

/// Reads names in the file that comes with the question: each from the start of its range up to its NUL byte, or to the
/// end of the range.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadNames {
    stamp: Option<ContentStamp>,
    places: Vec<FileRange>,
}

/// One name. Empty: it cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub struct NameBytes(#[serde(with = "as_bytes")] pub Vec<u8>);

impl Question for ReadNames {
    /// The first names, as many as fit into the answer. None: the file has changed.
    type Answer = Option<Vec<NameBytes>>;

    fn answer(&self, context: &mut WorkerContext) -> Option<Vec<NameBytes>> {
        let file = reopen(context.file(0)?).ok()?;
        let mut left = MAX_NAMES_BYTES;
        let has_room = |name: &NameBytes| {
            left = left.saturating_sub(name.0.len());
            left > 0
        };
        let names = self.places.iter().map(|place| NameBytes(name_at(&file, *place))).take_while(has_room).collect();
        (ContentStamp::of(&file) == self.stamp).then_some(names)
    }
}

impl NamesFile {
    /// Asks for the names at `places`. The answer may have only the first ones.
    ///
    /// # Errors
    /// There is no answer, or the file has changed.
    pub fn read(&self, users: &[u32], places: Vec<FileRange>) -> Result<Vec<NameBytes>, UnnamedReason> {
        let place = self.place.as_ref().ok_or(UNREADABLE)?;
        ask(place, users, &ReadNames { stamp: self.stamp, places })?.value.ok_or(CHANGED)
    }
}

fn ask<Q: Question>(file: &File, users: &[u32], question: &Q) -> Result<Answered<Q::Answer>, UnnamedReason> {
    outside::ask_with(&Host::default(), AskedOf::file_of_users(users), question, &[file]).map_err(|_| NO_ANSWER)
}

/// Copies the unwind tables of the file that comes with the question.
#[derive(Debug, Serialize, Deserialize)]
pub struct UnwindSections {
    max_bytes: u64,
}

/// Copies of sections, and the other facts of the file that unwinding needs.
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
