//! One ring with any bytes, heads and valid records: reads stay within the data that was written.

use std::fs::File;
use std::os::unix::fs::FileExt;

use perf_prof::ringbuf::RingBuf;
use perf_prof::ringbuf::sim::Producer;

use super::input::Input;

/// Size of the data area, its offset in the file, and the offset of the head in the page before it.
pub const RING_BYTES: u64 = 512;
pub const PAGE_BYTES: u64 = 4096;
const HEAD_AT: u64 = 1024; // offsetof(struct perf_event_mmap_page, data_head)

/// The kernel's end, and the memory behind it.
pub struct Hostile {
    pub kernel: Producer,
    memory: File,
}

impl Hostile {
    pub fn new() -> Hostile {
        let kernel = Producer::tiny(RING_BYTES as usize).expect("memory");
        let memory = File::from(kernel.fd().try_clone_to_owned().expect("a descriptor"));
        Hostile { kernel, memory }
    }

    pub fn set_head(&self, head: u64) {
        self.memory.write_all_at(&head.to_ne_bytes(), HEAD_AT).expect("memory");
    }

    /// Overwrites the data area.
    pub fn scribble(&self, at: u64, bytes: &[u8]) {
        let at = at % RING_BYTES;
        let room = (RING_BYTES - at).min(bytes.len() as u64) as usize;
        self.memory.write_all_at(&bytes[..room], PAGE_BYTES + at).expect("memory");
    }

    /// Writes any bytes behind the head, as far as there is room, and moves it by `claim`. Data written before stays.
    pub fn append(&self, bytes: &[u8], claim: u64) {
        let (head, tail) = (self.kernel.head(), self.kernel.tail());
        let Some(room) = RING_BYTES.checked_sub(head.wrapping_sub(tail)) else { return };
        for (at, byte) in (head..).zip(bytes).take(room as usize) {
            self.scribble(at, &[*byte]);
        }
        self.set_head(head.wrapping_add(claim));
    }

    /// Writes a record as the kernel does, if the head is one that a kernel could have.
    pub fn write(&mut self, record: &[u8], now: u64) -> bool {
        let (head, tail) = (self.kernel.head(), self.kernel.tail());
        head.wrapping_sub(tail) <= RING_BYTES && head.is_multiple_of(8) && self.kernel.write(record, now)
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut hostile = Hostile::new();
    let mut ring = hostile.kernel.ring().expect("a ring");
    while !input.is_empty() {
        match input.u8() % 8 {
            0 => {
                let record = record(&mut input);
                hostile.write(&record, 0);
            }
            1 => {
                let (at, len) = (input.u16(), input.u8());
                hostile.scribble(at.into(), input.bytes(len.into()));
            }
            2 => hostile.set_head(input.u64()),
            3 => hostile.set_head(hostile.kernel.head().wrapping_add(u64::from(input.u8()) * 8)),
            4 => {
                ring.load();
                assert!(ring.backlog() <= RING_BYTES);
            }
            5 => {
                ring.publish();
                assert!(hostile.kernel.tail().is_multiple_of(8));
            }
            6 => read(&mut ring, input.u8().into()),
            _ => read(&mut ring, usize::MAX),
        }
    }
    read(&mut ring, usize::MAX);
    assert_eq!(ring.backlog(), 0, "a snapshot has an end");
    assert!(ring.backlog_peak() <= RING_BYTES);
}

/// A valid record: its header has its size.
pub fn record(input: &mut Input<'_>) -> Vec<u8> {
    let mut record = vec![0; usize::from(input.u8() % 16 + 1) * 8];
    let body = input.bytes(record.len() - 8);
    record[8..8 + body.len()].copy_from_slice(body);
    record[0] = 9;
    let len = record.len() as u16;
    record[6..8].copy_from_slice(&len.to_ne_bytes());
    record
}

/// Passes up to `most` records: each is as long as it says, and all of them no longer than the snapshot.
fn read(ring: &mut RingBuf, most: usize) {
    for _ in 0..most {
        let (before, skipped) = (ring.backlog(), ring.corrupt());
        let Some(record) = ring.peek() else {
            assert!(ring.backlog() == 0 && ring.corrupt() - skipped <= 1);
            return;
        };
        let (len, size) = (record.len(), u16::from_ne_bytes([record[6], record[7]]));
        assert!(len == usize::from(size) && len >= 8 && len.is_multiple_of(8) && len as u64 <= before);
        ring.advance();
        assert_eq!(ring.backlog(), before - len as u64);
    }
}
