//! Names of functions in files whose symbols are larger than what perf-prof may have in memory.

#[macro_use]
mod common;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{Load, example, number, start};
use perf_prof::symbol::functions::binary::Binary;
use perf_prof::symbol::functions::matching::WantedName;
use perf_prof::symbol::functions::search::{MAX_OF_FILE_BYTES, Search};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0xb9, 0, 0, 0, 1, 0xff, 0xc9, 0x75, 0xfc, 0xc3]; // see examples/burn.rs
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[0, 0x20, 0xa0, 0xd2, 0, 4, 0, 0x71, 0xe1, 0xff, 0xff, 0x54, 0xc0, 3, 0x5f, 0xd6];

/// A library of two million functions, with names like those of templates.
struct LargeLibrary {
    functions: u64,
    function_bytes: u64,
    name_bytes: u64,
}

/// A debug build, which is slow, has a fifth of them.
const FUNCTIONS: u64 = if cfg!(debug_assertions) { 400_000 } else { 2_000_000 };
const LIBRARY: LargeLibrary = LargeLibrary { functions: FUNCTIONS, function_bytes: 64, name_bytes: 500 };
/// Number of the function with which the table begins, and the step to the next one: it is in no order.
const FIRST: u64 = 123_456;
const STEP: u64 = 1_234_577; // prime

impl LargeLibrary {
    fn code_bytes(&self) -> u64 {
        self.functions * self.function_bytes
    }

    /// Where a function begins, in the file and in memory.
    fn offset(&self, function: u64) -> u64 {
        PAGE + function * self.function_bytes
    }

    fn name(&self, function: u64) -> String {
        let name = format!("function_{function:07}_");
        let rest = self.name_bytes as usize - name.len() - 1;
        format!("{name}{}", "x".repeat(rest))
    }

    /// Writes the file, in which code and names are holes but for those of some functions.
    fn write(&self, path: &Path, some: &[u64], is_exported: bool) {
        let (symbols_at, entries) = (PAGE + self.code_bytes(), self.functions + 1);
        let names_at = symbols_at + 24 * entries;
        let sections_at = (names_at + 1 + self.functions * self.name_bytes).next_multiple_of(8);
        let file = File::create(path).expect("a file");
        file.set_len(sections_at + 3 * 64).expect("room for holes");
        let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).expect("writes");
        let half = |number: u16| number.to_le_bytes();
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend([half(3), half(if cfg!(target_arch = "x86_64") { 62 } else { 183 })].concat());
        head.extend(1_u32.to_le_bytes());
        head.extend([0, 64, sections_at].map(u64::to_le_bytes).concat());
        head.extend(0_u32.to_le_bytes());
        head.extend([64, 56, 1, 64, 3, 0].map(half).concat());
        head.extend([1, 5].map(u32::to_le_bytes).concat()); // PT_LOAD, read and execute
        head.extend([0, 0, 0, symbols_at, symbols_at, PAGE].map(u64::to_le_bytes).concat());
        put(0, &head);
        let section = |kind: u32, offset: u64, len: u64, link: u32| {
            let mut header = [0, kind].map(u32::to_le_bytes).concat();
            header.extend([0, 0, offset, len].map(u64::to_le_bytes).concat());
            header.extend([link, 0].map(u32::to_le_bytes).concat());
            header.extend([8, 24].map(u64::to_le_bytes).concat());
            header
        };
        put(sections_at + 64, &section(if is_exported { 11 } else { 2 }, symbols_at, 24 * entries, 2));
        put(sections_at + 128, &section(3, names_at, sections_at - names_at, 0));
        for function in some {
            put(self.offset(*function), CODE);
            put(names_at + 1 + function * self.name_bytes, self.name(*function).as_bytes());
        }
        let table = file.try_clone().expect("a descriptor");
        let mut table = BufWriter::with_capacity(1 << 20, table);
        std::io::Seek::seek(&mut table, std::io::SeekFrom::Start(symbols_at + 24)).expect("seek");
        let mut function = FIRST;
        for _ in 0..self.functions {
            let mut entry = (1 + (function * self.name_bytes) as u32).to_le_bytes().to_vec();
            entry.extend([0x12, 0, 1, 0]); // a global function
            entry.extend([self.offset(function), self.function_bytes].map(u64::to_le_bytes).concat());
            table.write_all(&entry).expect("writes");
            function = (function + STEP) % self.functions;
        }
        table.flush().expect("writes");
    }
}

/// Peak resident bytes of a process.
fn peak_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}

/// The first function, the last ones of a page, and some in between, in a file with a gigabyte of names.
#[test]
fn functions_with_a_gigabyte_of_names_have_them() {
    need_events!();
    let page = PAGE / LIBRARY.function_bytes;
    let functions = [0, page, 777 * page, LIBRARY.functions / 2 / page * page, LIBRARY.functions - page];
    for is_exported in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("liblarge.so");
        LIBRARY.write(&path, &functions, is_exported);
        let places: Vec<String> =
            functions.iter().map(|function| format!("{}@{}", path.display(), LIBRARY.offset(*function))).collect();
        let words: Vec<&str> = places.iter().map(String::as_str).collect();
        let mut load = Load::of(&example("burn"), &words);
        load.says();
        let pid = load.pid().to_string();
        let mut run = start(&["profile", "--json", "-F", "499", "-g", "-p", &pid, "-i", "1000", "--for", "8"]);
        run.line(|line| line.contains("\"interval\":5"));
        let worker = run.helpers().into_iter().map(peak_bytes).max().unwrap_or(0);
        let done = run.finish().code(0);
        let stacks = done.rows_and_lists().into_iter().filter_map(|row| row["stack"].as_array().cloned());
        let mut found: Vec<String> = stacks
            .flatten()
            .filter(|frame| frame["module"].as_str().is_some_and(|module| module.ends_with("liblarge.so")))
            .filter_map(|frame| Some(frame["symbol"].as_str().or(frame["reason"].as_str())?.to_owned()))
            .collect();
        found.sort();
        found.dedup();
        found.retain(|name| name != "names given up"); // in the first report of a debug build
        let want: Vec<String> = functions.iter().map(|function| LIBRARY.name(*function)).collect();
        assert_eq!(found, want, "{done:#?}");
        let own = done.end()["self"].clone();
        let peak = number(&own, "rss_peak_bytes");
        println!(
            "exported: {is_exported}; CPU {} ms, own memory {} MiB, a worker's {} MiB",
            number(&own, "cpu_ns") / 1_000_000,
            peak / MIB,
            worker / MIB
        );
        assert!(peak < 64 * MIB && worker < 64 * MIB, "{} and {} MiB", peak / MIB, worker / MIB);
    }
}

#[test]
fn functions_are_found_by_a_pattern_among_a_gigabyte_of_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("liblarge.so");
    let functions = [0, 64, 65, LIBRARY.functions / 3, LIBRARY.functions - 1];
    LIBRARY.write(&path, &functions, false);
    let search = Search::within(MAX_OF_FILE_BYTES);
    let binary = Binary::open(&path, &search).expect("it opens").expect("ELF");
    let found = |text: &str| {
        let search = Search::within(MAX_OF_FILE_BYTES);
        let functions = binary.matching(WantedName::new(text, text.contains('*')), false, &search).functions;
        assert_eq!(search.left_out(), None);
        functions.into_iter().map(|function| (function.name, function.address)).collect::<Vec<(String, u64)>>()
    };
    let want = |functions: &[u64]| {
        functions
            .iter()
            .map(|function| (LIBRARY.name(*function), LIBRARY.offset(*function)))
            .collect::<Vec<(String, u64)>>()
    };
    assert_eq!(found("function_*"), want(&functions));
    assert_eq!(found("function_000006*"), want(&functions[1..3]));
    assert_eq!(found(&LIBRARY.name(65)), want(&functions[2..3]));
}
