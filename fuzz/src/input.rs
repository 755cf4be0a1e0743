//! Hostile bytes, cut into what a target needs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::str;
use std::sync::LazyLock;

use perf_prof::sys::packets::memory_file;
use perf_prof::tep::Format;

/// Bytes that are taken from the front; zeros when there are no more.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}

/// The text before the first NUL, and the bytes behind it to apply it to.
pub fn text_and_bytes(data: &[u8]) -> Option<(&str, &[u8])> {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    Some((str::from_utf8(&data[..end]).ok()?, data.get(end + 1..).unwrap_or_default()))
}

/// A file with the contents `data`.
pub fn file_of(data: &[u8]) -> File {
    let file = memory_file().expect("a file in memory");
    file.write_all_at(data, 0).expect("room in memory");
    file
}

/// An event that has a field of every kind.
pub static EVERY_KIND: LazyLock<Format> = LazyLock::new(|| {
    const FIELDS: &str = "\
name: every_kind
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t pid;	offset:24;	size:4;	signed:1;
	field:unsigned int flags;	offset:28;	size:4;	signed:0;
	field:long state;	offset:32;	size:8;	signed:1;
	field:unsigned long size;	offset:40;	size:8;	signed:0;
	field:void * ptr;	offset:48;	size:8;	signed:0;
	field:const char * text;	offset:56;	size:8;	signed:0;
	field:u8 u;	offset:64;	size:1;	signed:0;
	field:s16 s;	offset:66;	size:2;	signed:1;
	field:__data_loc char[] name;	offset:68;	size:4;	signed:0;
	field:__rel_loc char[] path;	offset:72;	size:4;	signed:0;
	field:__data_loc cpumask_t mask;	offset:76;	size:4;	signed:0;
	field:u32 words[2];	offset:80;	size:8;	signed:0;
	field:struct sockaddr_in where;	offset:88;	size:16;	signed:0;

print fmt: \"\"
";
    Format::parse("fuzz", FIELDS).expect("a format")
});
