//! Copies of the sections of one ELF file from which its unwind tables are made.

use serde::{Deserialize, Serialize};

use crate::unwind::Arch;

/// The input of the tables of a file. A part that the file lacks is empty.
#[derive(Clone, Debug)]
pub struct FrameSections {
    pub arch: Arch,
    pub eh_frame: FrameSection,
    pub eh_frame_hdr: FrameSection,
    /// The section, decompressed.
    pub debug_frame: FrameSection,
    /// The executable segments.
    pub loads: Vec<CodeLoad>,
    /// The linker's address of the program's entry point; None if the file is no program.
    pub entry: Option<u64>,
    /// The linker's addresses of code that returns from signals: `mov $15, %eax; syscall`, or `mov x8, #139; svc #0`.
    pub sigreturns: Vec<u64>,
}

/// A section, and the linker's address of its first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameSection {
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// An executable segment: the bytes of the file, and the linker's addresses of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLoad {
    pub offset: u64,
    pub len: u64,
    pub address: u64,
}

impl Default for FrameSections {
    fn default() -> FrameSections {
        FrameSections {
            arch: Arch::NATIVE,
            eh_frame: FrameSection::default(),
            eh_frame_hdr: FrameSection::default(),
            debug_frame: FrameSection::default(),
            loads: Vec::new(),
            entry: None,
            sigreturns: Vec::new(),
        }
    }
}
