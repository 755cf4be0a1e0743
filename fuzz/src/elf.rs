//! An ELF file: all queries, with false sizes.

use std::ops::Range;

use perf_prof::symbol::elf::file::{ElfFile, build_id, is_elf};
use perf_prof::symbol::elf::function_index::{FunctionIndex, IndexSource, name_at};
use perf_prof::symbol::functions::search::Search;

use super::input::file_of;

/// Budget for symbols and their names, in bytes.
const BUDGET_BYTES: u64 = 1 << 20;

pub fn run(data: &[u8]) {
    let file = file_of(data);
    let Some(elf) = ElfFile::read(&file) else { return };
    assert!(is_elf(&file) && elf.is_like(&elf));
    for offset in [0, 0x1000, data.len() as u64, u64::MAX] {
        if let Some(address) = elf.loads().address(offset) {
            let _ = elf.code_offset(address);
        }
    }
    assert_eq!(build_id(&file), elf.build_id(&file));
    assert!(elf.build_id(&file).is_none_or(|id| id.len() <= data.len()));
    assert!(elf.interpreter(&file).is_none_or(|path| path.len() <= 3 * data.len()));
    if let Some(dynamic) = elf.dynamic(&file) {
        assert!(dynamic.libraries.len() <= 256 && dynamic.directories.len() <= 128);
    }
    assert!(elf.debugdata(&file).is_none_or(|range| range.end() <= data.len() as u64));
    let _ = [0, 1, data.len(), usize::MAX].map(|index| elf.is_old_version(&file, index));
    for exported in [false, true] {
        let (mut left, mut seen) = (1 << 16, 0_u64);
        let search = Search::within(BUDGET_BYTES);
        search.each_symbol(
            &elf,
            &file,
            exported,
            |_| true,
            |symbol| {
                seen += 1;
                let name = symbol.name_within(512, &mut left);
                assert!(name.is_none_or(|name| name.len() <= 512 && !name.contains(&0)));
            },
        );
        assert!(seen == 0 || elf.has_symtab() || exported);
        let mut named = 0;
        search.each_named(&elf, &file, exported, "main", |_| named += 1);
        assert!(named <= seen);
    }
    let code: Vec<Range<u64>> =
        elf.code_segments().map(|(range, address)| address..address.saturating_add(range.len)).collect();
    for copies_names in [false, true] {
        let source = IndexSource { elf: &elf, file: &file, code: &code, copies_names };
        let Ok((memory, layout)) = source.index(BUDGET_BYTES) else { continue };
        assert!(memory.metadata().expect("a file").len() <= BUDGET_BYTES);
        let index = FunctionIndex::open(memory, layout).expect("it is whole");
        for address in code.iter().flat_map(|code| [code.start, code.start / 2 + code.end / 2, code.end]) {
            let Some(found) = index.find(address) else { continue };
            assert!(found.start <= address);
            let Some(table) = index.text(found.name) else { continue };
            name_at(if table.is_copied { index.file() } else { &file }, table.range);
        }
    }
}
