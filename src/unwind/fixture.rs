//! Unwind tables made by hand.

use crate::unwind::{Arch, CodeLoad, FrameSection, FrameSections};

/// Addresses of code and sections, as the linker assigned them.
pub const CODE: u64 = 0x1000;
pub const CODE_BYTES: u64 = 0x1_0000;
pub const EH_FRAME: u64 = 0x2_0000;
const HEADER: u64 = 0x3_0000;

/// A section under construction; addresses have eight bytes.
#[derive(Clone, Debug)]
pub struct Cfi {
    pub bytes: Vec<u8>,
    is_debug: bool,
    cie: usize,
    /// The start of each function, and the offset of its FDE.
    pub functions: Vec<(u64, usize)>,
}

impl Cfi {
    /// `.eh_frame` with one CIE. `augmentation` may have only letters without data, `z` and `S`.
    pub fn eh_frame(arch: Arch, augmentation: &str) -> Cfi {
        Cfi::new(arch, augmentation, false)
    }

    pub fn debug_frame(arch: Arch) -> Cfi {
        Cfi::new(arch, "", true)
    }

    fn new(arch: Arch, augmentation: &str, is_debug: bool) -> Cfi {
        let mut cfi = Cfi { bytes: Vec::new(), is_debug, cie: 0, functions: Vec::new() };
        cfi.cie(arch, augmentation);
        cfi
    }

    /// Adds a CIE, for the functions that are added after it.
    pub fn cie(&mut self, arch: Arch, augmentation: &str) {
        self.cie = self.bytes.len();
        let id: u32 = if self.is_debug { u32::MAX } else { 0 };
        let mut body = id.to_le_bytes().to_vec();
        body.push(1);
        body.extend(augmentation.bytes());
        body.push(0);
        let (code_factor, column) = match arch {
            Arch::X86_64 => (1, 16),
            Arch::Aarch64 => (4, 30),
        };
        body.extend([code_factor, 0x78, column]); // the data factor is -8
        if augmentation.starts_with('z') {
            body.push(0);
        }
        body.extend_from_slice(match arch {
            Arch::X86_64 => &[0x0c, 7, 8, 0x90, 1], // the frame address is rsp + 8, the return address 8 below
            Arch::Aarch64 => &[0x0c, 31, 0],
        });
        self.entry(body);
    }

    /// Adds the FDE of a function.
    pub fn function(&mut self, start: u64, len: u64, augmented: bool, instructions: &[u8]) {
        let at = self.bytes.len();
        self.functions.push((start, at));
        let cie = if self.is_debug { self.cie } else { at + 4 - self.cie };
        let mut body = (cie as u32).to_le_bytes().to_vec();
        body.extend(start.to_le_bytes());
        body.extend(len.to_le_bytes());
        if augmented {
            body.push(0);
        }
        body.extend(instructions);
        self.entry(body);
    }

    fn entry(&mut self, mut body: Vec<u8>) {
        body.resize(body.len().next_multiple_of(4), 0);
        self.bytes.extend((body.len() as u32).to_le_bytes());
        self.bytes.append(&mut body);
    }

    /// The `.eh_frame_hdr` of this section.
    pub fn header(&self) -> FrameSection {
        let mut bytes = vec![1, 0x1b, 3, 0x3b, 0, 0, 0, 0];
        bytes.extend((self.functions.len() as u32).to_le_bytes());
        let mut functions = self.functions.clone();
        functions.sort_unstable();
        for (start, at) in functions {
            for address in [start, EH_FRAME + at as u64] {
                bytes.extend((address.wrapping_sub(HEADER) as u32).to_le_bytes());
            }
        }
        FrameSection { address: HEADER, bytes }
    }

    /// The sections of a file that has only this section and its header.
    pub fn sections(&self, arch: Arch) -> FrameSections {
        let section = FrameSection { address: EH_FRAME, bytes: self.bytes.clone() };
        let (eh_frame, debug_frame) =
            if self.is_debug { (FrameSection::default(), section) } else { (section, FrameSection::default()) };
        let loads = vec![CodeLoad { offset: 0, len: CODE_BYTES, address: CODE }];
        FrameSections { arch, eh_frame, debug_frame, loads, ..FrameSections::default() }
    }
}
