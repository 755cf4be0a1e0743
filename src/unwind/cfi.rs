//! Entries of `.eh_frame` and `.debug_frame`: found by their offset, and decoded only if their size is within a limit.
//! DWARF 5, 6.4.1; LSB, "Exception Frames".

use std::ops::Range;

use gimli::{
    BaseAddresses, CommonInformationEntry, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindOffset,
    UnwindSection,
};

/// Bytes of a section.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Fde<'a> = FrameDescriptionEntry<Bytes<'a>>;
pub(super) type Cie<'a> = CommonInformationEntry<Bytes<'a>>;

/// Limit of the bytes of an entry. Entries of the largest functions have some thousand bytes.
const MAX_ENTRY_BYTES: usize = 64 << 10;
/// Limit of the bytes of the augmentation string, with the fields in front of it in 64-bit DWARF. Each byte costs time
/// whenever an entry is decoded; `zPLRS` has all known letters.
const MAX_AUGMENTATION_BYTES: usize = 16;

/// The range of the entry that starts at `offset`. None: it does not lie within the section.
pub(super) fn entry(section: &[u8], offset: usize) -> Option<Range<usize>> {
    let number = |offset: usize, len: usize| -> Option<u64> {
        let bytes = section.get(offset..offset.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (len, start) = match number(offset, 4)? {
        0xffff_ffff => (number(offset + 4, 8)?, offset + 12), // 64-bit DWARF
        len => (len, offset + 4),
    };
    let end = start.checked_add(usize::try_from(len).ok()?).filter(|end| *end <= section.len())?;
    Some(offset..end)
}

/// Decodes the FDE (the entry of a function) at an offset of its section.
pub(super) fn fde<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bytes: &'a [u8],
    bases: &BaseAddresses,
    start: usize,
    mut cie: impl FnMut(usize) -> gimli::Result<Cie<'a>>,
) -> Option<Fde<'a>> {
    let range = entry(bytes, start)?;
    if range.len() > MAX_ENTRY_BYTES {
        return None;
    }
    section.fde_from_offset(bases, S::Offset::from(start), |_, _, offset| cie(UnwindOffset::into(offset))).ok()
}

/// Decodes the CIE that an FDE refers to.
pub(super) fn cie<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bytes: &'a [u8],
    bases: &BaseAddresses,
    offset: usize,
) -> gimli::Result<Cie<'a>> {
    match entry(bytes, offset) {
        Some(range) if range.len() <= MAX_ENTRY_BYTES && has_short_augmentation(&bytes[range.clone()]) => {
            section.cie_from_offset(bases, S::Offset::from(offset))
        }
        _ => Err(gimli::Error::NotCieId(offset as u64)),
    }
}

/// Whether the augmentation string of a CIE is short. A CIE begins with its length, its id, a version of one byte, and
/// this string.
fn has_short_augmentation(entry: &[u8]) -> bool {
    let text = if entry.starts_with(&[0xff; 4]) { 17 } else { 9 };
    entry.iter().skip(text).take(MAX_AUGMENTATION_BYTES).any(|byte| *byte == 0)
}
