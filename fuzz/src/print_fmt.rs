//! A `print fmt`, compiled, over hostile records: the text is bounded, and is the same twice.

use perf_prof::tep::{Format, KernelLookup, NoNames, PrintFmt};

use super::input::text_and_bytes;

/// As `MAX_TEXT_BYTES` there.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Has a name for every address.
struct AllNames;

impl KernelLookup for AllNames {
    fn kernel_symbol(&self, _addr: u64, out: &mut Vec<u8>, with_offset: bool) -> bool {
        out.extend_from_slice(if with_offset { b"vfs_read+0x0/0x10" } else { b"vfs_read" });
        true
    }

    fn kernel_text(&self, _addr: u64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(b"constant");
        true
    }
}

pub fn run(data: &[u8]) {
    let Some((text, raw)) = text_and_bytes(data) else { return };
    let Ok(format) = Format::parse("fuzz", text) else { return };
    let Ok(compiled) = PrintFmt::compile(&format) else { return };
    let render = |raw: &[u8], names: &dyn KernelLookup| {
        let mut out = b"before".to_vec();
        compiled.render(raw, names, &mut out);
        assert!(out.starts_with(b"before") && out.len() <= MAX_TEXT_BYTES + 6);
        out
    };
    assert_eq!(render(raw, &NoNames), render(raw, &NoNames));
    render(raw, &AllNames);
    render(&raw[..raw.len() / 2], &NoNames);
    render(&[], &NoNames);
    assert!(compiled.gaps().iter().all(|gap| !gap.is_empty()));
    for field in &format.fields {
        let Some(table) = compiled.flag_table(&field.name) else { continue };
        let values = table.entries.iter().map(|(value, _)| *value).take(8);
        for value in values.chain([0, 1, u64::MAX, field.read_u64(raw).unwrap_or(2)]) {
            let _ = table.masked(value);
            table.render(value, &mut Vec::new());
        }
    }
}
