//! `/tmp/perf-PID.map`: names of code that a run-time compiler has generated.
//!
//! Lines are `START SIZE NAME`, numbers in hex without a prefix. The file grows while its process runs. Workers read it: it may be on
//! a server that does not answer.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext, as_bytes};
use crate::symbol::budget::{Budget, Share};
use crate::symbol::opening::reopen;
use crate::symbol::perf_map::file::MapPlace;

/// Most bytes read per file.
const MAX_BYTES: u64 = 32 << 20;
/// Most entries per file; a large Java program has 100,000.
const MAX_ENTRIES: usize = 500_000;
/// A longer line is no entry.
const MAX_LINE_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 512;
/// Bytes compared to see whether a file was only appended to: a few lines.
const TAIL_BYTES: usize = 256;
/// Bytes of a file that are asked for at once.
const CHUNK_BYTES: u64 = 40 << 10;
/// A map that was read so recently is not read again.
const FRESH: Duration = Duration::from_millis(20);
/// A last line without a line break counts when the file has not changed for so long: until then it may be half
/// written.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// A file that is rewritten all the time is reread no sooner than this.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// The parsed part of a map file.
#[derive(Debug)]
pub struct PerfMap {
    file: Arc<MapPlace>,
    /// When the file was last asked for more.
    asked_at: Option<Instant>,
    read_bytes: u64,
    /// The last bytes read. Other bytes in their place mean that the file was rewritten.
    tail: Vec<u8>,
    modified: Option<SystemTime>,
    /// Offset and length of a last line without a line break, if it was taken as an entry.
    unended: Option<(u64, usize)>,
    /// When a rewritten file may be read again.
    reread_at: Option<Instant>,
    /// Sorted by start. Of overlapping entries the later one in the file counts: code is replaced in place.
    entries: Vec<PerfMapEntry>,
    sorted: bool,
    names: Vec<u8>,
    budget: Budget,
    /// Owner of the file (uid), who is charged.
    user: u32,
    /// None until an entry is kept.
    share: Option<Share>,
    /// The budget did not suffice for the whole file.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct PerfMapEntry {
    start: u64,
    end: u64,
    /// Index of the entry in the file.
    order: u32,
    /// Offset in `names`.
    name: u32,
    len: u16,
}

/// Reads the next bytes of the map that comes with the question.
#[derive(Debug, Serialize, Deserialize)]
pub struct PerfMapPart {
    from: u64,
    /// The bytes in front of `from`, as they were when last read.
    tail: Vec<u8>,
    modified: Option<SystemTime>,
}

/// A part of a map.
#[derive(Debug, Serialize, Deserialize)]
pub struct MapPart {
    /// The bytes that were read before are not in the file any more.
    is_rewritten: bool,
    /// Length of the file, up to [`MAX_BYTES`].
    len: u64,
    modified: Option<SystemTime>,
    #[serde(with = "as_bytes")]
    bytes: Vec<u8>,
}

impl Question for PerfMapPart {
    type Answer = Option<MapPart>;

    fn answer(&self, context: &mut WorkerContext) -> Option<MapPart> {
        let file = reopen(context.file(0)?).ok()?;
        let metadata = file.metadata().ok()?;
        let (len, modified) = (metadata.len().min(MAX_BYTES), metadata.modified().ok());
        let is_appended_to = || {
            let mut there = vec![0; self.tail.len()];
            let at = self.from - self.tail.len() as u64;
            file.read_exact_at(&mut there, at).is_ok() && there == self.tail
        };
        let is_rewritten = len < self.from || modified != self.modified && !is_appended_to();
        let mut bytes = vec![0; if is_rewritten { 0 } else { (len - self.from).min(CHUNK_BYTES) as usize }];
        let got = file.read_at(&mut bytes, self.from).unwrap_or(0);
        bytes.truncate(got);
        Some(MapPart { is_rewritten, len, modified, bytes })
    }
}

impl PerfMap {
    pub fn new(file: Arc<MapPlace>, budget: &Budget) -> PerfMap {
        let user = file.user;
        let (names, budget) = (Vec::new(), budget.clone());
        PerfMap {
            file,
            asked_at: None,
            read_bytes: 0,
            tail: Vec::new(),
            modified: None,
            unended: None,
            reread_at: None,
            entries: Vec::new(),
            sorted: true,
            names,
            budget,
            user,
            share: None,
            is_cut: false,
        }
    }

    /// False when the budget did not suffice for the whole file.
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// False when no process refers to the file any more.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.file) > 1
    }

    /// The name of the code at `addr`, and the distance from its start. Reads first what was appended to the file.
    pub fn resolve(&mut self, addr: u64) -> Option<(String, u64)> {
        // The code at `addr` may have been replaced since.
        let now = Instant::now();
        let is_fresh = self.asked_at.is_some_and(|asked_at| now.duration_since(asked_at) < FRESH);
        if !is_fresh || self.find(addr).is_none() {
            self.asked_at = Some(now);
            self.read_appended();
        }
        let entry = self.find(addr)?;
        let name = self.names.get(entry.name as usize..)?.get(..usize::from(entry.len))?;
        Some((String::from_utf8_lossy(name).into_owned(), addr - entry.start))
    }

    fn find(&mut self, addr: u64) -> Option<PerfMapEntry> {
        if !self.sorted {
            self.entries.sort_by_key(|entry| (entry.start, entry.order));
            self.sorted = true;
        }
        const OVERLAPS: usize = 64; // entries checked for one that starts earlier and reaches `addr`
        let after = self.entries.partition_point(|entry| entry.start <= addr);
        let near = &self.entries[after.saturating_sub(OVERLAPS)..after];
        near.iter().filter(|entry| addr < entry.end).max_by_key(|entry| entry.order).copied()
    }

    /// Reads what was appended to the file.
    pub fn read_appended(&mut self) {
        let Some(mut part) = self.ask() else { return };
        if part.is_rewritten {
            let now = Instant::now();
            if self.reread_at.is_some_and(|reread_at| now < reread_at) {
                return;
            }
            self.reread_at = Some(now + REREAD_AFTER);
            (self.read_bytes, self.sorted) = (0, true);
            self.entries = Vec::new();
            self.names = Vec::new();
            self.tail.clear();
            (self.share, self.is_cut, self.unended) = (None, false, None);
            let Some(start) = self.ask() else { return };
            part = start;
        }
        loop {
            self.modified = part.modified;
            let got = part.bytes.len();
            if got == 0 || !self.has_room(got) {
                return;
            }
            // An incomplete line is read again when the rest has been written.
            let whole = match part.bytes.iter().rposition(|&byte| byte == b'\n') {
                Some(at) => at + 1,
                None if got >= MAX_LINE_BYTES => got,
                None => 0,
            };
            let (lines, rest) = part.bytes.split_at(whole);
            lines.split(|&byte| byte == b'\n').for_each(|line| self.line(line));
            self.read_bytes += whole as u64;
            if whole > 0 {
                self.tail = lines[whole.saturating_sub(TAIL_BYTES)..].to_vec();
            }
            if self.read_bytes + rest.len() as u64 >= part.len {
                self.unended_line(rest);
                return;
            }
            if whole == 0 {
                return;
            }
            match self.ask() {
                Some(next) if !next.is_rewritten => part = next,
                _ => return,
            }
        }
    }

    /// Takes the last line of the file, which does not end. It is read again when more has been written.
    fn unended_line(&mut self, line: &[u8]) {
        let age = self.modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        let place = Some((self.read_bytes, line.len()));
        if !line.is_empty() && self.unended != place && age.is_some_and(|age| age >= SETTLED_AFTER) {
            self.line(line);
            self.unended = place;
        }
    }

    /// Asks for the bytes behind those that were read.
    fn ask(&self) -> Option<MapPart> {
        let question = PerfMapPart { from: self.read_bytes, tail: self.tail.clone(), modified: self.modified };
        let subject = AskedOf::file_of_users(&[self.user]);
        outside::ask_with(&Host::default(), subject, &question, &[&self.file.file]).ok()?.value
    }

    /// Reserves memory for the entries in `bytes` more of the file. Grows by half at least, so that entries are not
    /// copied too often.
    fn has_room(&mut self, bytes: usize) -> bool {
        const SHORTEST_LINE: usize = 6; // `0 1 x`
        // Elements by which the capacity must grow.
        let grown = |len: usize, capacity: usize, more: usize| {
            if len + more <= capacity { 0 } else { (len + more.max(len / 2)).saturating_sub(capacity) }
        };
        let names = grown(self.names.len(), self.names.capacity(), bytes);
        let entries = grown(self.entries.len(), self.entries.capacity(), bytes / SHORTEST_LINE);
        if names + entries == 0 || self.is_cut {
            return !self.is_cut;
        }
        let more_bytes = (names + entries * size_of::<PerfMapEntry>()) as u64;
        match &mut self.share {
            Some(share) => self.is_cut = !share.grow(more_bytes),
            None => {
                self.share = self.budget.take(more_bytes, &[self.user]);
                self.is_cut = self.share.is_none();
            }
        }
        if !self.is_cut {
            self.names.reserve_exact(self.names.capacity() + names - self.names.len());
            self.entries.reserve_exact(self.entries.capacity() + entries - self.entries.len());
        }
        !self.is_cut
    }

    fn line(&mut self, line: &[u8]) {
        let mut words = line.splitn(3, |&byte| byte == b' ');
        let mut hex = || {
            let word = std::str::from_utf8(words.next()?).ok()?;
            u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
        };
        let (Some(start), Some(size)) = (hex(), hex()) else { return };
        let name = words.next().unwrap_or_default().trim_ascii();
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        let (Ok(at), Ok(order)) = (u32::try_from(self.names.len()), u32::try_from(self.entries.len())) else { return };
        if name.is_empty() || size == 0 || self.entries.len() >= MAX_ENTRIES {
            return;
        }
        self.names.extend_from_slice(name);
        self.sorted &= self.entries.last().is_none_or(|last| last.start <= start);
        self.entries.push(PerfMapEntry {
            start,
            end: start.saturating_add(size),
            order,
            name: at,
            len: name.len() as u16,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn place(file: &tempfile::NamedTempFile) -> Arc<MapPlace> {
        Arc::new(MapPlace { file: file.reopen().unwrap(), user: 7 })
    }

    fn map_of(text: &[u8]) -> (tempfile::NamedTempFile, PerfMap) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let map = PerfMap::new(place(&file), &Budget::default());
        (file, map)
    }

    /// The name at an address, after reading the file however recently it was read.
    fn name(map: &mut PerfMap, addr: u64) -> Option<(String, u64)> {
        map.asked_at = None;
        map.resolve(addr)
    }

    #[test]
    fn names_code_within_its_size() {
        let (_file, mut map) =
            map_of(b"2000 10 b\n1000 20 LazyCompile:~a b.js:1\nrubbish\n3000 0 empty\n0x4000 0x8 c\n");
        let cases = [
            (0xfff, None),
            (0x1000, Some(("LazyCompile:~a b.js:1", 0))),
            (0x101f, Some(("LazyCompile:~a b.js:1", 0x1f))),
            (0x1020, None),
            (0x200f, Some(("b", 0xf))),
            (0x3000, None),
            (0x4007, Some(("c", 7))),
        ];
        for (addr, want) in cases {
            assert_eq!(name(&mut map, addr), want.map(|(name, offset)| (name.to_owned(), offset)), "{addr:#x}");
        }
    }

    #[test]
    fn grows_with_its_file_and_the_latest_name_counts() {
        let (mut file, mut map) = map_of(b"1000 100 old\n2000 10 ha");
        assert_eq!(name(&mut map, 0x1001).unwrap().0, "old");
        assert_eq!(name(&mut map, 0x2001), None, "half a line");
        file.write_all(b"lf\n1000 10 new\n").unwrap();
        assert_eq!(name(&mut map, 0x2001).unwrap().0, "half");
        assert_eq!(name(&mut map, 0x1001).unwrap().0, "new");
        assert_eq!(name(&mut map, 0x1020).unwrap().0, "old");
    }

    #[test]
    fn a_last_line_without_an_end_counts_when_the_file_is_settled() {
        for before in ["", "1000 100 first\n"] {
            let (mut file, mut map) = map_of(format!("{before}2000 10 last").as_bytes());
            assert_eq!(name(&mut map, 0x2001), None, "it may be half a line");
            file.as_file().set_modified(SystemTime::now() - SETTLED_AFTER).unwrap();
            for _ in 0..3 {
                assert_eq!(name(&mut map, 0x2001), Some(("last".to_owned(), 1)));
            }
            assert_eq!(map.entries.len(), before.lines().count() + 1, "once");
            file.write_all(b"ing\n3000 10 next").unwrap();
            assert_eq!(name(&mut map, 0x2001).unwrap().0, "lasting");
            assert_eq!(name(&mut map, 0x3001), None);
            file.as_file().set_modified(SystemTime::now() - SETTLED_AFTER).unwrap();
            assert_eq!(name(&mut map, 0x3001).unwrap().0, "next");
        }
    }

    #[test]
    fn the_budget_bounds_what_is_kept() {
        let lines: String = (0..100_000).map(|n| format!("{n:x}0 10 function_{n}\n")).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.as_bytes()).unwrap();
        let budget = Budget::new(4 << 20); // of which a user has a quarter
        let user = [7];
        let room = budget.room(&user);
        let mut map = PerfMap::new(place(&file), &budget);
        assert_eq!(name(&mut map, 0x15).unwrap().0, "function_1");
        assert!(name(&mut map, 99_999 * 16).is_none() && !map.is_whole());
        let kept = map.names.capacity() + map.entries.capacity() * size_of::<PerfMapEntry>();
        assert!(kept as u64 + budget.room(&user) == room && map.entries.len() > 1000, "{kept} of {room}");
        drop(map);
        assert_eq!(budget.room(&user), room);
    }

    #[test]
    fn a_rewritten_file_is_reread() {
        let lines = |names: &[&str]| {
            let line = |(n, name): (usize, &&str)| format!("{n}000 100 {name}\n");
            (1..).zip(names).map(line).collect::<String>()
        };
        for after in [&["y", "b"][..], &["y"], &["new", "y", "a", "b", "c"]] {
            let (file, mut map) = map_of(lines(&["a", "b"]).as_bytes());
            assert_eq!(name(&mut map, 0x1000).unwrap().0, "a");
            let written = File::options().write(true).open(file.path()).unwrap();
            written.set_len(0).unwrap();
            (&written).write_all(lines(after).as_bytes()).unwrap();
            written.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
            assert_eq!(name(&mut map, 0x1000).unwrap().0, after[0], "{after:?}");
            assert_eq!(map.entries.len(), after.len());
            written.set_len(0).unwrap();
            assert_eq!(name(&mut map, 0x1000).unwrap().0, after[0], "too soon to read it again");
            map.reread_at = None;
            assert_eq!(name(&mut map, 0x1000), None);
        }
    }

    #[test]
    fn rubbish_is_survived() {
        let long = [b'x'; 200_000];
        let mut text = long.to_vec();
        text.extend_from_slice(b"\n1000 10 a\nffffffffffffffff ffffffffffffffff b\n \n1 \n\xff \xff \xff\n");
        let (_file, mut map) = map_of(&text);
        assert_eq!(name(&mut map, 0x1000).unwrap().0, "a");
        assert_eq!(name(&mut map, u64::MAX), None);
    }
}
