//! Lines of /proc/PID/maps, one for each mapping. Of too many mappings, some are left out.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::symbol::elf::file::MAX_PATH_BYTES;
use crate::task::procfs::mapped_range;

/// Most mappings kept per process: the process decides how many it makes.
pub(super) const MAX_MAPPINGS: usize = 16_384;

/// Longest line: a newline in a path is written as `\012`.
pub(super) const MAX_LINE_BYTES: u64 = 4 * MAX_PATH_BYTES as u64 + 128;

/// Identity of a mapped file, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKey {
    Inode { major: u32, minor: u32, inode: u64 },
    BuildId(Box<[u8]>),
    Unknown,
}

/// One line of /proc/PID/maps.
pub struct MapsLine<'a> {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub key: FileKey,
    /// As in the line, see [`path_of_line`](crate::symbol::spaces::files::path_of_line).
    pub path: &'a [u8],
}

/// False for a line that [`parse_maps_line`] does not take: most of them.
pub(super) fn is_code(line: &[u8]) -> bool {
    const EXECUTABLE: usize = 3; // behind the first blank
    line.iter().position(|&byte| byte == b' ').is_some_and(|at| line.get(at + EXECUTABLE) == Some(&b'x'))
}

/// Parses a line of /proc/PID/maps. None for a malformed one, or a mapping that is not executable.
pub(super) fn parse_maps_line(line: &[u8]) -> Option<MapsLine<'_>> {
    if is_code(line) { parse_mapping(line) } else { None }
}

/// Parses a line of /proc/PID/maps, whether it is executable or not.
pub(super) fn parse_mapping(line: &[u8]) -> Option<MapsLine<'_>> {
    let (start, end) = mapped_range(line)?;
    let mut words = line.splitn(6, |&byte| byte == b' ').skip(2);
    let hex = |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok();
    let offset = hex(words.next()?)?;
    let device = words.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let (major, minor) = (hex(&device[..colon])? as u32, hex(&device[colon + 1..])? as u32);
    let inode = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let key = FileKey::Inode { major, minor, inode };
    let path = words.next().unwrap_or_default().trim_ascii_start();
    let path = if path.is_empty() { b"//anon" } else { path };
    (start < end).then_some(MapsLine { start, end, offset, key, path })
}

/// The offset in its file of an executable address, by the content of /proc/PID/maps.
pub fn offset_in_file(maps: &[u8], address: u64) -> Option<u64> {
    let mut lines = maps.split(|&byte| byte == b'\n').filter_map(parse_maps_line);
    let line = lines.find(|line| (line.start..line.end).contains(&address))?;
    let is_file = line.path.starts_with(b"/") && !line.path.starts_with(b"//");
    is_file.then(|| address - line.start + line.offset)
}

/// Keeps at most `most` elements: the last ones of each kind, and equally many of each kind that is not kept whole. A
/// program maps the file with its own code once, and files with generated code any number of times.
pub(super) fn leave_last_of_each<T, K: Eq + Hash>(all: &mut Vec<T>, most: usize, kind: impl Fn(&T) -> K) {
    if all.len() <= most {
        return;
    }
    let mut counts: FxHashMap<K, usize> = FxHashMap::default();
    let mut ranked = Vec::with_capacity(all.len());
    for one in all.drain(..).rev() {
        let behind = counts.entry(kind(&one)).or_default();
        ranked.push((*behind, one));
        *behind += 1;
    }
    ranked.sort_by_key(|(behind, _)| *behind); // stable
    ranked.truncate(most);
    all.extend(ranked.into_iter().map(|(_, one)| one));
}

/// True for the names of mappings that the kernel makes by itself: `[vdso]`, `[uprobes]`.
pub fn is_of_kernel(path: &[u8]) -> bool {
    path.starts_with(b"[") && !path.starts_with(b"[anon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_byte_of_a_file() {
        let maps =
            b"5000-6000 r--p 0 fe:00 42 /bin/a\n6000-8000 r-xp 00001000 fe:00 42 /bin/a\n9000-a000 r-xp 0 0:0 0\n";
        let cases = [(0x5000, None), (0x6000, Some(0x1000)), (0x7fff, Some(0x2fff)), (0x8000, None), (0x9000, None)];
        for (address, want) in cases {
            assert_eq!(offset_in_file(maps, address), want, "{address:#x}");
        }
    }

    #[test]
    fn those_of_many_are_left_out() {
        let left = |text: &str, most| {
            let mut all: Vec<(usize, char)> = text.chars().enumerate().collect();
            leave_last_of_each(&mut all, most, |(_, kind)| *kind);
            all.sort_unstable();
            all.into_iter().map(|(at, kind)| format!("{at}{kind}")).collect::<String>()
        };
        assert_eq!(left("abaac", 5), "0a1b2a3a4c");
        assert_eq!(left("abaac", 4), "1b2a3a4c");
        assert_eq!(left("abaac", 3), "1b3a4c");
        assert_eq!(left("aabbcc", 2), "3b5c", "the last ones of all");
        assert_eq!(left("aabb", 0), "");
    }

    #[test]
    fn parses_maps_lines() {
        let line = parse_maps_line(b"7f00-7f10 r-xp 00001000 fe:00 42                 /usr/lib/a b.so").unwrap();
        assert_eq!(
            (line.start, line.end, line.offset, line.key, line.path),
            (0x7f00, 0x7f10, 0x1000, FileKey::Inode { major: 0xfe, minor: 0, inode: 42 }, &b"/usr/lib/a b.so"[..])
        );
        for bad in ["", "7f00-7f10 rw-p 0 0 0 /a", "zz-1 r-xp 0 0 0 /a", "10-0 r-xp 0 0:0 0 /a", "1-2 r-xp"] {
            assert!(parse_maps_line(bad.as_bytes()).is_none(), "{bad}");
        }
        assert_eq!(parse_maps_line(b"1-2 r-xp 0 00:00 0").unwrap().path, b"//anon");
    }
}
