//! The sections of unwind tables in an ELF file, and what else its unwinding needs. A worker copies them.

use std::fs::File;

use memchr::memmem;

use crate::symbol::elf::file::{ElfFile, FileRange};
use crate::unwind::{Arch, CodeLoad, FrameSection, FrameSections};

/// Most bytes of code that are searched for returns from signal handlers.
const MAX_SCANNED_BYTES: u64 = 32 << 20;
const CHUNK_BYTES: u64 = 64 << 10;
/// A C library has one or two.
const MAX_SIGRETURNS: usize = 16;

/// Copies the sections of unwind tables. None: the code is of an unknown machine, or tables made from the sections
/// would take more than `max_bytes`.
pub(super) fn sections_of_file(file: &File, max_bytes: u64) -> Option<FrameSections> {
    let elf = ElfFile::read(file)?;
    let arch = arch(&elf)?;
    let sections = elf.sections_named(file, [b".eh_frame", b".eh_frame_hdr", b".debug_frame"]);
    let [mut eh_frame, mut eh_frame_hdr, debug_frame] = sections;
    if eh_frame.is_none()
        && let Some([header, frames]) = elf.unwind_segments(file)
    {
        (eh_frame_hdr, eh_frame) = (Some(header), Some(frames));
    }
    let len = |section: Option<(FileRange, u64)>| section.map_or(0, |(range, _)| range.len);
    let bytes = [eh_frame, eh_frame_hdr, debug_frame].into_iter().map(len).fold(0, u64::saturating_add);
    if bytes.saturating_mul(2) > max_bytes {
        return None;
    }
    let copy = |section: Option<(FileRange, u64)>| match section {
        Some((range, address)) => Some(FrameSection { address, bytes: range.read(file)? }),
        None => Some(FrameSection::default()),
    };
    Some(FrameSections {
        arch,
        eh_frame: copy(eh_frame)?,
        eh_frame_hdr: copy(eh_frame_hdr)?,
        debug_frame: copy(debug_frame)?,
        loads: elf
            .code_segments()
            .map(|(range, address)| CodeLoad { offset: range.offset, len: range.len, address })
            .collect(),
        entry: elf.entry_address(),
        sigreturns: sigreturns(&elf, file, arch),
    })
}

fn arch(elf: &ElfFile) -> Option<Arch> {
    const EM_X86_64: u16 = 62;
    const EM_AARCH64: u16 = 183;
    match elf.machine() {
        EM_X86_64 if elf.is_64_bit() => Some(Arch::X86_64),
        EM_AARCH64 if elf.is_64_bit() => Some(Arch::Aarch64),
        _ => None,
    }
}

/// Addresses to which signal handlers return, found by their code. Only files that need no library have such code: C
/// libraries, whose unwind tables may not cover it, static programs and the vdso.
fn sigreturns(elf: &ElfFile, file: &File, arch: Arch) -> Vec<u64> {
    if elf.dynamic(file).is_some_and(|dynamic| !dynamic.libraries.is_empty()) {
        return Vec::new();
    }
    // rt_sigreturn is system call 15 on x86_64 and 139 on aarch64.
    let codes: &[&[u8]] = match arch {
        Arch::X86_64 => &[&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]],
        Arch::Aarch64 => &[&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]],
    };
    let mut found = Vec::new();
    let mut left = MAX_SCANNED_BYTES;
    for (range, address) in elf.code_segments() {
        let range = FileRange { len: range.len.min(left), ..range };
        left -= range.len;
        for chunk in range.chunks(CHUNK_BYTES) {
            // The instructions may go on in the next chunk.
            let chunk = FileRange { len: (chunk.len + 16).min(range.end() - chunk.offset), ..chunk };
            let Some(bytes) = chunk.read(file) else { return found };
            let start = address.saturating_add(chunk.offset - range.offset);
            for code in codes {
                found.extend(memmem::find_iter(&bytes, code).map(|offset| start.saturating_add(offset as u64)));
            }
            found.sort_unstable();
            found.dedup();
            if found.len() >= MAX_SIGRETURNS {
                found.truncate(MAX_SIGRETURNS);
                return found;
            }
        }
    }
    found
}
