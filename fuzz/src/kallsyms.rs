//! `/proc/kallsyms`: a name is a name of the text, and covers its own address.

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use perf_prof::symbol::kernel::kallsyms::{Kallsyms, address_of, each_function};

use super::input::file_of;

pub fn run(data: &[u8]) {
    let file = file_of(data);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mut functions = Vec::new();
    each_function(&path, |name, address| functions.push((name.to_owned(), address)));
    for (name, address) in functions.iter().take(4) {
        if let Ok(Some(found)) = address_of(&path, name) {
            let same = functions.iter().any(|(other, address)| other.starts_with(name.as_str()) && *address == found);
            // A name that is no UTF-8 is skipped.
            assert!(same || *address == 0 || !data.is_ascii(), "{name} at {found:#x}");
        }
    }
    let lines = data.split(|&byte| byte == b'\n').filter_map(|line| line.splitn(3, |&byte| byte == b' ').nth(2));
    let names: HashSet<&[u8]> = lines.flat_map(|rest| [rest, before_tab(rest)]).collect();
    if let Ok(table) = Kallsyms::load_data(&path) {
        for address in functions.iter().take(8).map(|(_, address)| *address).chain([0, u64::MAX]) {
            assert!(table.resolve(address).is_none_or(|symbol| names.contains(symbol.name)));
        }
    }
    let (Ok(table), loaded) = (Kallsyms::parse(data), Kallsyms::load(&path)) else { return };
    let loaded = loaded.expect("as parsed");
    assert!(!table.is_empty() && table.heap_bytes() <= 64 * data.len() + 4096);
    for address in functions.iter().take(32).map(|(_, address)| *address).chain([0, u64::MAX]) {
        for address in [address, address.wrapping_add(1), address.wrapping_sub(1)] {
            let found = table.resolve(address);
            assert_eq!(found, loaded.resolve(address));
            let _ = table.size(address);
            let Some(symbol) = found else { continue };
            assert!(!symbol.name.is_empty() && symbol.offset <= address);
            assert!(names.contains(symbol.name));
        }
    }
}

fn before_tab(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == b'\t').next().unwrap_or_default()
}
