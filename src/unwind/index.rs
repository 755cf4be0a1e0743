//! Finds the FDE of an address: by the table in `.eh_frame_hdr`, which the linker has sorted, or, if there is no such
//! table, by an index made of all FDEs.

use gimli::{BaseAddresses, UnwindSection};

use crate::unwind::cfi::{self, Bytes, Cie};
use crate::unwind::sections::FrameSection;

/// Limit of the FDEs of one section in such an index.
const MAX_FDES: usize = 4 << 20;
/// Limit of the work for an index: bytes decoded per byte of the section.
const MAX_LOOKS: usize = 8;

/// The binary search table of `.eh_frame_hdr`: pairs of a function's start and its FDE's address, both relative to the
/// start of the section, four bytes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderTable {
    count: usize,
}

/// The starts of all functions of a section, sorted, each with the offset of its FDE.
#[derive(Debug, Default)]
pub(super) struct FdeIndex {
    /// The address that the starts are relative to.
    base: u64,
    entries: Vec<(u32, u32)>,
}

impl HeaderTable {
    const START: usize = 12;
    const PAIR: usize = 8;

    /// None: the section has no table, or not in the encoding that linkers use.
    pub fn of(section: &FrameSection) -> Option<HeaderTable> {
        // The version, and the encodings of the address of .eh_frame, of the count and of the pairs: 4 bytes each.
        let [1, 0x1b | 0x03 | 0x0b | 0x3b, 0x03, 0x3b, _, _, _, _, a, b, c, d, ..] = section.bytes[..] else {
            return None;
        };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        let has = (section.bytes.len() - HeaderTable::START) / HeaderTable::PAIR;
        (1..=has).contains(&count).then_some(HeaderTable { count })
    }

    /// The address of the FDE of the last function that starts at or before `address`. If the section is wrong, this is
    /// any address.
    pub fn find(self, section: &FrameSection, address: u64) -> Option<u64> {
        let (mut first, mut end) = (0, self.count);
        while first < end {
            let middle = first + (end - first) / 2;
            if self.pair(section, middle)?.0 <= address {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Some(self.pair(section, first.checked_sub(1)?)?.1)
    }

    fn pair(self, section: &FrameSection, index: usize) -> Option<(u64, u64)> {
        let start = HeaderTable::START + index * HeaderTable::PAIR;
        let bytes = section.bytes.get(start..start + HeaderTable::PAIR)?;
        let [a, b, c, d, e, f, g, h] = *bytes else { return None };
        let address = |offset: [u8; 4]| section.address.wrapping_add_signed(i64::from(i32::from_le_bytes(offset)));
        Some((address([a, b, c, d]), address([e, f, g, h])))
    }
}

impl FdeIndex {
    /// Makes the index of a whole section. `base`: an address at or before all functions.
    pub fn of<'a, S: UnwindSection<Bytes<'a>>>(
        section: &S,
        bytes: &'a [u8],
        bases: &BaseAddresses,
        base: u64,
    ) -> FdeIndex {
        let mut entries = Vec::new();
        let mut known: Option<(usize, gimli::Result<Cie<'a>>)> = None;
        // All FDEs may refer to the longest CIE, so the work is limited.
        let mut left = bytes.len().saturating_mul(MAX_LOOKS);
        let mut at = 0;
        while let Some(range) = cfi::entry(bytes, at)
            && entries.len() < MAX_FDES
            && left > 0
        {
            let fde = cfi::fde(section, bytes, bases, at, |offset| match &known {
                Some((place, cie)) if *place == offset => cie.clone(),
                _ => {
                    left = left.saturating_sub(cfi::entry(bytes, offset).map_or(0, |range| range.len()));
                    let cie = cfi::cie(section, bytes, bases, offset);
                    known = Some((offset, cie.clone()));
                    cie
                }
            });
            if let Some(fde) = fde.filter(|fde| fde.len() > 0)
                && let Some(start) = fde.initial_address().checked_sub(base)
                && let (Ok(start), Ok(at)) = (u32::try_from(start), u32::try_from(at))
            {
                entries.push((start, at));
            }
            at = range.end; // at least four bytes further
        }
        entries.sort_unstable();
        entries.shrink_to_fit();
        FdeIndex { base, entries }
    }

    /// The offset of the FDE of the last function that starts at or before `address`.
    pub fn find(&self, address: u64) -> Option<usize> {
        let wanted = address.checked_sub(self.base)?;
        let behind = self.entries.partition_point(|(start, _)| u64::from(*start) <= wanted);
        Some(self.entries.get(behind.checked_sub(1)?)?.1 as usize)
    }

    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u32)>()
    }
}
