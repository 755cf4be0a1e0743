//! Symbols of an ELF file that a process has mapped, read from the memory of the process: no file is opened.

use std::ops::Range;

use crate::task::memory::ProcessMemory;

/// A mapped file.
#[derive(Debug)]
pub struct Image {
    /// Addresses in memory minus addresses in the file.
    bias: u64,
    symbols: u64,
    names: u64,
    hash: u64,
}

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;

impl Image {
    /// The file whose ELF header is at `base`. None: there is no 64-bit ELF header.
    pub fn at(base: u64, memory: &mut ProcessMemory) -> Option<Image> {
        const MAX_SEGMENTS: u16 = 64;
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        let header: [u8; HEADER_BYTES] = memory.array(base)?;
        let is_ours =
            header.starts_with(b"\x7fELF\x02") && header[5] == if cfg!(target_endian = "little") { 1 } else { 2 };
        let half = |offset: usize| Some(u16::from_ne_bytes(header.get(offset..offset + 2)?.try_into().ok()?));
        let (size, count) = (half(54)?, half(56)?);
        if !is_ours || usize::from(size) != SEGMENT_BYTES || count > MAX_SEGMENTS {
            return None;
        }
        let table = base.checked_add(word(&header, 32)?)?;
        let (mut bias, mut dynamic) = (None, None);
        for index in 0..u64::from(count) {
            let segment: [u8; SEGMENT_BYTES] = memory.array(table.checked_add(index * SEGMENT_BYTES as u64)?)?;
            let address = word(&segment, 16)?;
            match u32::from_ne_bytes(segment[..4].try_into().ok()?) {
                // The first loaded segment holds the header.
                PT_LOAD if bias.is_none() => bias = Some(base.checked_sub(address.checked_sub(word(&segment, 8)?)?)?),
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let (symbols, names, hash) = tables(bias.checked_add(dynamic?)?, memory)?;
        // The loader of glibc replaces the addresses in the dynamic section by addresses in memory; the loader of musl
        // does not.
        let loaded = |value: u64| if value < bias { value.checked_add(bias) } else { Some(value) };
        Some(Image { bias, symbols: loaded(symbols)?, names: loaded(names)?, hash: loaded(hash)? })
    }

    /// The memory range of an exported symbol, found through the GNU hash table.
    pub fn symbol(&self, name: &str, memory: &mut ProcessMemory) -> Option<Range<u64>> {
        const MAX_STEPS: u32 = 4096;
        let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let [buckets, first, filter_words] = [0, 4, 8].map(|offset| memory.half(self.hash.wrapping_add(offset)));
        let (buckets, first, filter_words) = (buckets.filter(|&count| count > 0)?, first?, filter_words?);
        let bucket_table = self.hash.checked_add(16 + u64::from(filter_words) * 8)?;
        let chains = bucket_table.checked_add(u64::from(buckets) * 4)?;
        let mut index = memory.half(bucket_table.checked_add(u64::from(hash % buckets) * 4)?)?;
        for _ in 0..MAX_STEPS {
            let known = memory.half(chains.checked_add(u64::from(index.checked_sub(first)?) * 4)?)?;
            if known | 1 == hash | 1
                && let Some(found) = self.defined(index, name, memory)
            {
                return Some(found);
            }
            if known & 1 == 1 {
                return None; // end of the chain
            }
            index = index.checked_add(1)?;
        }
        None
    }

    /// The memory range of the symbol `index`, if it is defined and has this name.
    fn defined(&self, index: u32, name: &str, memory: &mut ProcessMemory) -> Option<Range<u64>> {
        let symbol: [u8; SYMBOL_BYTES] =
            memory.array(self.symbols.checked_add(u64::from(index) * SYMBOL_BYTES as u64)?)?;
        let offset = u32::from_ne_bytes(symbol[..4].try_into().ok()?);
        let text = memory.up_to(self.names.checked_add(u64::from(offset))?, name.len() + 1);
        let is_defined = symbol[6..8] != [0, 0];
        if !is_defined || text.strip_suffix(b"\0") != Some(name.as_bytes()) {
            return None;
        }
        let start = self.bias.checked_add(word(&symbol, 8)?)?;
        Some(start..start.checked_add(word(&symbol, 16)?)?)
    }
}

/// The addresses of symbol table, string table and hash table, from a dynamic section.
fn tables(dynamic: u64, memory: &mut ProcessMemory) -> Option<(u64, u64, u64)> {
    const MAX_ENTRIES: usize = 256;
    const DT_NULL: u64 = 0;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_GNU_HASH: u64 = 0x6fff_fef5;
    let bytes = memory.up_to(dynamic, MAX_ENTRIES * 16);
    let (entries, _) = bytes.as_chunks::<16>();
    let entries = entries.iter().map_while(|entry| Some((word(entry, 0)?, word(entry, 8)?)));
    let (mut symbols, mut names, mut hash) = (None, None, None);
    for (tag, value) in entries.take_while(|(tag, _)| *tag != DT_NULL) {
        match tag {
            DT_SYMTAB => symbols = Some(value),
            DT_STRTAB => names = Some(value),
            DT_GNU_HASH => hash = Some(value),
            _ => {}
        }
    }
    Some((symbols?, names?, hash?))
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}
