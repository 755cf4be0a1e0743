//! Where a file's symbols are besides its own tables: compressed in its `.gnu_debugdata`, or in a separate debug file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;

use crate::symbol::elf::file::{FileRange, build_id, in_memory};
use crate::symbol::opening::open_regular;

/// Most bytes of a decompressed `.gnu_debugdata`.
pub const MAX_DEBUGDATA_BYTES: u64 = 64 << 20;
/// Most memory of the decompressor: the file states the size of its dictionary.
const MAX_DICTIONARY_KIB: u32 = 64 << 10;

/// Decompresses `.gnu_debugdata`, a whole ELF file compressed with xz. Data beyond `most` bytes is cut off, without an
/// error.
///
/// # Errors
/// The range is not xz data, or memory is short.
pub fn decompress(file: &File, xz: FileRange, most: u64) -> io::Result<File> {
    let xz = BufReader::new(FilePart { file, rest: xz });
    let mut table = XzReader::new_mem_limit(xz, false, MAX_DICTIONARY_KIB).take(most);
    in_memory(&mut table)
}

/// Reader of a range of a file.
struct FilePart<'a> {
    file: &'a File,
    rest: FileRange,
}

impl Read for FilePart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.rest.len).unwrap_or(usize::MAX).min(buffer.len());
        let len = self.file.read_at(&mut buffer[..len], self.rest.offset)?;
        self.rest = FileRange { offset: self.rest.offset + len as u64, len: self.rest.len - len as u64 };
        Ok(len)
    }
}

/// Opens the debug file of a build id: `DIR/.build-id/ab/cdef.debug`, or `DIR/abcdef/debuginfo` as in debuginfod's
/// cache.
pub fn separate_file(id: &[u8], dirs: &[PathBuf]) -> Option<File> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    if hex.len() < 8 {
        return None;
    }
    let (head, tail) = hex.split_at(2);
    let named =
        |dir: &Path| [dir.join(".build-id").join(head).join(format!("{tail}.debug")), dir.join(&hex).join("debuginfo")];
    let files = dirs.iter().flat_map(|dir| named(dir)).filter_map(|path| open_regular(&path).ok());
    // The file may be anything that somebody with write access has put there.
    files.into_iter().find(|file| build_id(file).as_deref() == Some(id))
}

/// Default directories of separate debug files: that of distributions, and debuginfod's cache.
pub fn default_debug_dirs() -> Vec<PathBuf> {
    let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        Some(base.join("debuginfod_client"))
    });
    std::iter::once(PathBuf::from("/usr/lib/debug")).chain(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::vdso::own_vdso;

    #[test]
    fn a_debug_file_must_have_the_same_build_id() {
        let own = File::open("/proc/self/exe").unwrap();
        let Some(id) = build_id(&own) else { skip!("the linker writes no build ids") };
        let dir = tempfile::tempdir().unwrap();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let place = dir.path().join(".build-id").join(&hex[..2]);
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join(format!("{}.debug", &hex[2..]));
        std::fs::write(&path, own_vdso().expect("every process has one")).unwrap();
        assert!(separate_file(&id, &[dir.path().into()]).is_none(), "a file with another build id");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        assert!(separate_file(&id, &[dir.path().into()]).is_some());
    }
}
