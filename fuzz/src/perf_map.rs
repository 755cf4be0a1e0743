//! `/tmp/perf-PID.map`: names come from the file, and reading a file as it grows gives the same result as reading it at
//! once.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::perf_map::content::PerfMap;
use perf_prof::symbol::perf_map::file::MapPlace;

use super::input::{Input, file_of};

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (address, cut) = (input.u64(), usize::from(input.u16()));
    let text = input.0;
    let place = |file| Arc::new(MapPlace { file, user: 0 });
    let mut map = PerfMap::new(place(file_of(text)), &Budget::default());
    let (first, rest) = text.split_at(cut.min(text.len()));
    let growing = file_of(first);
    let mut grown = PerfMap::new(place(growing.try_clone().expect("a descriptor")), &Budget::default());
    let _ = grown.resolve(address);
    growing.write_all_at(rest, first.len() as u64).expect("memory");
    grown.read_appended();
    // The rest of a line that is too long is read as another line.
    let is_long = text.split(|&byte| byte == b'\n').any(|line| line.len() >= 4096);
    let starts = text.split(|&byte| byte == b'\n').filter_map(start_of).take(64);
    for address in starts.flat_map(|start| [start, start.wrapping_add(1), start.wrapping_sub(1)]).chain([address, 0]) {
        let found = map.resolve(address);
        if let Some((name, offset)) = &found {
            assert!(!name.is_empty() && *offset <= address);
            let lossy = String::from_utf8_lossy(text);
            assert!(name.contains('\u{fffd}') || lossy.contains(name.as_str()));
        }
        assert!(is_long || found == grown.resolve(address), "{address:#x}");
    }
}

fn start_of(line: &[u8]) -> Option<u64> {
    let word = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
}
