//! A table that is made in a file in memory, changed in place, and handed out sealed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memmap2::MmapMut;

use super::packets::{memory_file, seal};

/// A file in memory that nobody else has yet.
#[derive(Debug)]
pub struct UnsealedMemory {
    file: File,
    len: u64,
}

impl UnsealedMemory {
    /// # Errors
    /// Memory or descriptors are short.
    pub fn new() -> io::Result<UnsealedMemory> {
        Ok(UnsealedMemory { file: memory_file()?, len: 0 })
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Errors
    /// Memory is short.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Lets `change` work on the bytes where they are. The first so many as it returns are kept.
    ///
    /// # Errors
    /// The address space is too small.
    pub fn rework(&mut self, change: impl FnOnce(&mut [u8]) -> usize) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: only `self` has the descriptor, which it hands out at its end, so that nobody changes or cuts the file while
        // it is mapped; and the map ends in this function.
        let mut map = unsafe { MmapMut::map_mut(&self.file)? };
        let kept = change(&mut map) as u64;
        drop(map);
        self.len = self.len.min(kept);
        self.file.set_len(self.len)
    }

    /// # Errors
    /// As fcntl(2).
    pub fn sealed(self) -> io::Result<File> {
        seal(&self.file)?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::packets::read_sealed;

    #[test]
    fn bytes_are_changed_in_place_and_cut() {
        let mut memory = UnsealedMemory::new().unwrap();
        memory.rework(|_| panic!("there is nothing to change")).unwrap();
        memory.append(b"dcb").unwrap();
        memory.append(b"a!").unwrap();
        memory
            .rework(|bytes| {
                bytes.sort_unstable();
                bytes.reverse();
                4
            })
            .unwrap();
        memory.append(b".").unwrap();
        assert_eq!(memory.len(), 5);
        assert_eq!(read_sealed(&memory.sealed().unwrap(), 10).unwrap(), b"dcba.");
    }
}
