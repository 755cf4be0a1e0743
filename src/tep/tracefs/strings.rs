//! The kernel's constant strings that events point to: a `const char *` field holds an address, and `printk_formats` in
//! tracefs lists the strings by address.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustc_hash::FxHashMap;

/// Limit of the list: ten times the size in a kernel with many modules.
const MAX_BYTES: u64 = 4 << 20;
const MAX_STRINGS: usize = 100_000;

/// The strings by address. The file is opened immediately, and read at the first look-up.
#[derive(Debug, Default)]
pub struct KernelStrings {
    file: Option<File>,
    strings: OnceCell<FxHashMap<u64, Vec<u8>>>,
}

impl KernelStrings {
    /// The strings of the tracefs at `root`. A list that cannot be read is empty.
    pub fn open(root: &Path) -> KernelStrings {
        KernelStrings { file: File::open(root.join("printk_formats")).ok(), strings: OnceCell::new() }
    }

    pub fn get(&self, addr: u64) -> Option<&[u8]> {
        self.strings.get_or_init(|| self.read()).get(&addr).map(Vec::as_slice)
    }

    fn read(&self) -> FxHashMap<u64, Vec<u8>> {
        let mut text = Vec::new();
        if let Some(file) = &self.file {
            let _ = file.take(MAX_BYTES).read_to_end(&mut text); // what was read before an error is used
        }
        text.split(|&byte| byte == b'\n').filter_map(parse).take(MAX_STRINGS).collect()
    }
}

/// Parses a line: `0xffffffff8281a374 : "WakeNotPoll"`
fn parse(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let at = line.iter().position(|&byte| byte == b'"')?;
    let (addr, quoted) = line.split_at_checked(at)?;
    let addr = str::from_utf8(addr).ok()?.trim_end_matches([' ', ':']).strip_prefix("0x")?;
    let text = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some((u64::from_str_radix(addr, 16).ok()?, unescape(text)))
}

/// Undoes the escapes of t_show, kernel/trace/trace_printk.c, which does not double backslashes of the string itself.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [b'"', after @ ..]) => (b'"', after),
            _ => (byte, after),
        };
        out.push(byte);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let list = b"0xffffffff8281a374 : \"WakeNotPoll\"\n0x10 : \"\"\n0x20 : \"a \\\"b\\\"\\n\\t\\x : \"\n\
            nonsense\n0x : \"x\"\n0xfffffffffffffffff : \"x\"\n0x30 : \"open\n0x40 \xff: \"x\"\n0x50 : \"\xff\"";
        std::fs::write(dir.path().join("printk_formats"), list).unwrap();
        let strings = KernelStrings::open(dir.path());
        let cases: [(u64, Option<&[u8]>); 8] = [
            (0xffff_ffff_8281_a374, Some(b"WakeNotPoll")),
            (0x10, Some(b"")),
            (0x20, Some(b"a \"b\"\n\t\\x : ")),
            (0x30, None),
            (0x40, None),
            (0x50, Some(b"\xff")),
            (0, None),
            (0xffff_ffff_8281_a375, None),
        ];
        for (addr, want) in cases {
            assert_eq!(strings.get(addr), want, "{addr:#x}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(KernelStrings::open(dir.path()).get(1), None);
        std::fs::create_dir(dir.path().join("printk_formats")).unwrap();
        assert_eq!(KernelStrings::open(dir.path()).get(1), None);
        assert_eq!(KernelStrings::default().get(1), None);
    }
}
