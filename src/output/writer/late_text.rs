//! Strings of system calls that were not copied at the entry of their call: read from the memory of the process when its
//! line is written, as long as it lives, by a worker.

use crate::host::Host;
use crate::output::event_text::EventText;
use crate::outside::{self, AskedOf};
use crate::report::{ArgumentText, ArgumentTextWriter, ArgumentTexts};
use crate::sys;
use crate::task::memory::StringsAt;

/// Questions in a span of time. One takes some 20 µs.
const MAX_READS: u32 = 2000;
const SPAN_NS: u64 = 100_000_000;

/// Reads strings, and limits how many.
#[derive(Debug)]
pub struct LateReader {
    host: Host,
    reads: u32,
    since_ns: u64,
    /// A record with its strings.
    record: Vec<u8>,
}

impl LateReader {
    pub fn new(host: Host) -> LateReader {
        LateReader { host, reads: 0, since_ns: 0, record: Vec::new() }
    }

    /// The record of an event, with its strings if there are any.
    pub fn texts<'a>(&'a mut self, event: &EventText, pid: i32, bytes: &'a [u8]) -> ArgumentTexts<'a> {
        if event.has_strings { ArgumentTexts::split(self.resolve(pid, bytes)) } else { ArgumentTexts::none(bytes) }
    }

    /// The record `bytes` of a process with the strings that can still be read.
    fn resolve<'a>(&'a mut self, pid: i32, bytes: &'a [u8]) -> &'a [u8] {
        let texts = ArgumentTexts::split(bytes);
        let is_unread = |text: ArgumentText<'_>| matches!(text, ArgumentText::Unread(_));
        let unread = texts.iter().filter(|(_, text)| is_unread(*text));
        let addresses: Vec<u64> = unread.map(|(offset, _)| address(texts.raw, offset)).collect();
        if pid <= 0 || addresses.is_empty() {
            return bytes;
        }
        let mut late = self.read(pid, addresses).into_iter();
        let mut record = std::mem::take(&mut self.record);
        let mut writer = ArgumentTextWriter::new(&mut record, texts.raw);
        for (offset, text) in texts.iter() {
            let read = if is_unread(text) { late.next().flatten() } else { None };
            writer.push(offset, read.as_deref().map_or(text, ArgumentText::Late));
        }
        writer.finish();
        self.record = record;
        &self.record
    }

    /// The string at an address of a thread's memory.
    pub fn string(&mut self, tid: i32, address: u64) -> Option<Vec<u8>> {
        self.read(tid, vec![address]).pop().flatten()
    }

    fn read(&mut self, tid: i32, addresses: Vec<u64>) -> Vec<Option<Vec<u8>>> {
        if addresses.iter().all(|address| *address == 0) {
            return Vec::new();
        }
        let now = sys::monotonic_ns();
        if now.saturating_sub(self.since_ns) >= SPAN_NS {
            (self.reads, self.since_ns) = (0, now);
        }
        self.reads = self.reads.saturating_add(1);
        if self.reads > MAX_READS {
            return Vec::new();
        }
        let answered = outside::ask(&self.host, AskedOf::process(tid), &StringsAt { tid, addresses });
        answered.map_or_else(|_| Vec::new(), |answered| answered.value)
    }
}

/// The address at an offset of a record; 0 where there is none.
fn address(raw: &[u8], offset: u16) -> u64 {
    raw.get(usize::from(offset)..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::UnreadText;

    #[test]
    fn what_lives_is_read_late() {
        let own = std::process::id() as i32;
        let path = c"/late";
        let raw = [path.as_ptr().addr() as u64, 0, 0x10].map(u64::to_ne_bytes).concat();
        let mut bytes = Vec::new();
        let mut writer = ArgumentTextWriter::new(&mut bytes, &raw);
        for offset in [0, 8, 16] {
            writer.push(offset, ArgumentText::Unread(UnreadText::Refused));
        }
        let bytes = writer.finish().to_vec();
        let mut reader = LateReader::new(Host::default());
        let of = |bytes: &[u8]| {
            ArgumentTexts::split(bytes)
                .iter()
                .map(|(at, text)| (at, text == ArgumentText::Late(b"/late")))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(reader.resolve(own, &bytes)), [(0, true), (8, false), (16, false)]);
        assert_eq!(of(reader.resolve(-1, &bytes)), [(0, false), (8, false), (16, false)]);
        for _ in 0..MAX_READS {
            reader.resolve(own, &bytes);
        }
        // More would take too long, unless the loop took the whole span.
        assert!(reader.reads > 0);
    }
}
