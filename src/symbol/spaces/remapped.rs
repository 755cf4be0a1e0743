//! Copies that a program has made of its own code: anonymous memory at the addresses of its file, with the same bytes.
//! Programs that want large pages for their code make them. The file still names that code, and has its unwind tables.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext};
use crate::symbol::elf::file::{ElfFile, LoadSegments};
use crate::symbol::spaces::files::{CodeMapping, DELETED_MARK, WantedFile};
use crate::symbol::spaces::maps_line::{MAX_LINE_BYTES, MapsLine, is_of_kernel, parse_mapping, parse_maps_line};
use crate::symbol::spaces::module::is_anonymous;
use crate::task::memory::ProcessMemory;

/// Most mappings of one process that are compared.
const MAX_PLACES: usize = 64;
/// Most lines of /proc/PID/maps that are read.
const MAX_LINES: usize = 1 << 17;
/// Number of blocks that are compared, spread over the code.
const BLOCKS: u64 = 64;
const BLOCK_BYTES: usize = 64;
/// Fewest equal blocks in a copy. Blocks of zeros are padding, and do not count.
const MIN_BLOCKS: usize = 4;
/// One block may differ for so many equal ones: a program may have patched its code.
const BLOCKS_PER_PATCH: usize = 16;

/// Looks for copies of code in a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct FindRemapped {
    pid: i32,
}

impl Question for FindRemapped {
    /// The copies, as if they were mappings of the files.
    type Answer = Vec<CodeMapping>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<CodeMapping> {
        let host = &context.host;
        let Ok(mut memory) = ProcessMemory::open(host, self.pid) else { return Vec::new() };
        let places = self.places(host);
        places.iter().filter_map(|place| place.as_of_file(self.pid, host, &mut memory)).collect()
    }
}

/// Anonymous code that directly follows a mapping of a file.
struct RemappedPlace {
    start: u64,
    end: u64,
    /// The mapping of the file before it.
    before: CodeMapping,
}

impl FindRemapped {
    /// Asks about a process. Empty also if there is no answer.
    pub fn ask(host: &Host, pid: i32) -> Vec<CodeMapping> {
        let answered = outside::ask(host, AskedOf::file_of(pid), &FindRemapped { pid });
        answered.map_or_else(|_| Vec::new(), |answered| answered.value)
    }

    fn places(&self, host: &Host) -> Vec<RemappedPlace> {
        let mut places = Vec::new();
        let Ok(file) = File::open(host.proc.join(self.pid.to_string()).join("maps")) else { return places };
        let (mut lines, mut line) = (BufReader::new(file), Vec::new());
        let (mut end_before, mut before) = (0, Vec::new());
        for _ in 0..MAX_LINES {
            line.clear();
            match lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(1..) if places.len() < MAX_PLACES => {}
                _ => break,
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let Some(MapsLine { start, end, path, .. }) = parse_mapping(text) else { continue };
            if start != end_before {
                before.clear();
            }
            end_before = end;
            if path.starts_with(b"/") && !is_anonymous(&String::from_utf8_lossy(path)) {
                before.clear();
                before.extend_from_slice(text);
            } else if let (Some(_), Some(file)) = (parse_maps_line(text), parse_mapping(&before))
                && !is_of_kernel(path)
            {
                places.push(RemappedPlace { start, end, before: CodeMapping::of(&file) });
            }
        }
        places
    }
}

impl RemappedPlace {
    /// The place as a mapping of the file. None: it is no copy.
    fn as_of_file(&self, pid: i32, host: &Host, memory: &mut ProcessMemory) -> Option<CodeMapping> {
        let CodeMapping { start, end, key, path, .. } = &self.before;
        let shown = Path::new(OsStr::from_bytes(path.strip_suffix(DELETED_MARK).unwrap_or(path)));
        let wanted = WantedFile { pid, start: *start, end: *end, path: shown, key, ancestors: &[] };
        let file = wanted.open_here(host).ok()?;
        let elf = ElfFile::read(&file)?;
        let loads = elf.loads();
        let offset = [0, 0xfff].into_iter().find_map(|into| {
            let address = self.address(&loads, into)?;
            elf.code_offset(address).filter(|_| self.is_copy(&file, &elf, address, memory))
        })?;
        Some(CodeMapping { start: self.start, end: self.end, offset, ..self.before.clone() })
    }

    /// The linker's address of the place's first byte, from that of the byte at `into` in the mapping before: a segment
    /// may begin within the first page of its mapping.
    fn address(&self, loads: &LoadSegments, into: u64) -> Option<u64> {
        let known = loads.address(self.before.offset.checked_add(into)?)?;
        let distance = self.start.checked_sub(self.before.start.checked_add(into)?)?;
        known.checked_add(distance)
    }

    /// Whether the memory has the same bytes as the file from the linker's address on.
    fn is_copy(&self, file: &File, elf: &ElfFile, address: u64, memory: &mut ProcessMemory) -> bool {
        let step = ((self.end - self.start) / BLOCKS).max(BLOCK_BYTES as u64);
        let (mut same, mut other) = (0, 0);
        for into in (0..BLOCKS).map(|number| number * step).take_while(|into| *into < self.end - self.start) {
            let mut there = [0; BLOCK_BYTES];
            // The last page goes on behind the end of the segment.
            let last = address.saturating_add(into + BLOCK_BYTES as u64 - 1);
            let Some(offset) = elf.code_offset(last) else { break };
            let offset = offset.saturating_sub(BLOCK_BYTES as u64 - 1);
            if file.read_exact_at(&mut there, offset).is_err() || there == [0; BLOCK_BYTES] {
                continue;
            }
            match memory.array::<BLOCK_BYTES>(self.start + into) {
                Some(bytes) if bytes == there => same += 1,
                _ => other += 1,
            }
        }
        same >= MIN_BLOCKS && other * BLOCKS_PER_PATCH <= same
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const TEXT: u64 = 0x1000;
    const TEXT_BYTES: usize = 0x3000;
    const BASE: u64 = 0x40_0000;

    /// A program of two segments, its headers and its code, and a memory with a copy of the code.
    struct CopiedProgram {
        dir: tempfile::TempDir,
        host: Host,
        key: String,
        code: Vec<u8>,
    }

    impl CopiedProgram {
        fn new() -> CopiedProgram {
            let dir = tempfile::tempdir().unwrap();
            let host = Host { proc: dir.path().join("proc"), ..Host::default() };
            fs::create_dir_all(host.proc.join("5/task/5")).unwrap();
            let mut bytes = vec![0; TEXT as usize];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[0x20..0x28].copy_from_slice(&64_u64.to_le_bytes()); // e_phoff
            bytes[0x38] = 2; // e_phnum
            let code: Vec<u8> = (0..TEXT_BYTES).map(|at| (at / 7) as u8 | 1).collect();
            for (at, flags, offset, len) in [(64, 4, 0, TEXT), (120, 5, TEXT, TEXT_BYTES as u64)] {
                bytes[at] = 1; // PT_LOAD
                bytes[at + 4] = flags;
                for (place, number) in [(8, offset), (16, offset), (32, len), (40, len)] {
                    bytes[at + place..at + place + 8].copy_from_slice(&u64::to_le_bytes(number));
                }
            }
            bytes.extend(&code);
            let path = dir.path().join("program");
            fs::write(&path, bytes).unwrap();
            let meta = fs::metadata(&path).unwrap();
            let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
            let key = format!("{major:x}:{minor:x} {} {}", meta.ino(), path.display());
            CopiedProgram { dir, host, key, code }
        }

        /// The remapped code among these lines of /proc/5/maps; the memory has `code` at its place.
        fn found(&self, lines: &str, code: &[u8]) -> Vec<(u64, u64, u64)> {
            fs::write(self.host.proc.join("5/maps"), lines.replace("FILE", &self.key)).unwrap();
            for mem in ["5/mem", "5/task/5/mem"] {
                let mem = File::create(self.host.proc.join(mem)).unwrap();
                mem.write_all_at(code, BASE + TEXT).unwrap();
            }
            let found = FindRemapped { pid: 5 };
            let mut memory = ProcessMemory::open(&self.host, 5).unwrap();
            let places = found.places(&self.host);
            let found: Vec<CodeMapping> =
                places.iter().filter_map(|place| place.as_of_file(5, &self.host, &mut memory)).collect();
            let path = self.dir.path().join("program");
            assert!(found.iter().all(|mapping| mapping.path == path.as_os_str().as_bytes()));
            found.into_iter().map(|mapping| (mapping.start, mapping.end, mapping.offset)).collect()
        }
    }

    #[test]
    fn a_copy_of_code_is_that_of_its_file() {
        let fixture = CopiedProgram::new();
        let whole = "400000-401000 r--p 0 FILE\n401000-404000 r-xp 0 0:0 0\n404000-405000 r--p 4000 FILE\n";
        let part = "400000-401000 r--p 0 FILE\n401000-402000 r-xp 1000 FILE\n402000-404000 r-xp 0 0:0 0\n";
        let named = whole.replace("0:0 0\n", "0:0 0 [anon:text]\n");
        for lines in [whole, &named] {
            assert_eq!(fixture.found(lines, &fixture.code), [(0x40_1000, 0x40_4000, 0x1000)], "{lines}");
        }
        assert_eq!(fixture.found(part, &fixture.code), [(0x40_2000, 0x40_4000, 0x2000)]);
        let mut patched = fixture.code.clone();
        patched[0x40] = 0xcc;
        assert_eq!(fixture.found(whole, &patched).len(), 1, "a breakpoint");
        // Other code at that place, code that touches no file, or touches it elsewhere.
        let other: Vec<u8> = fixture.code.iter().map(|byte| !byte).collect();
        let gap = whole.replace("400000-401000", "3f0000-3f1000");
        let behind = "401000-404000 r-xp 1000 FILE\n404000-405000 rw-p 4000 FILE\n405000-407000 r-xp 0 0:0 0\n";
        let is_data = whole.replace("r-xp", "rw-p");
        for (lines, code) in
            [(whole, &other), (&gap, &fixture.code), (behind, &fixture.code), (&is_data, &fixture.code)]
        {
            assert!(fixture.found(lines, code).is_empty(), "{lines}");
        }
        assert!(fixture.found(whole, &fixture.code[..TEXT_BYTES / 2]).is_empty(), "half of it");
        for lines in ["", "rubbish\n", "400000-401000 r--p 0 FILE\n401000-400000 r-xp 0 0:0 0\n"] {
            assert!(fixture.found(lines, &fixture.code).is_empty(), "{lines}");
        }
    }
}
