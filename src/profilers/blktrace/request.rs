//! A request to a block device, from when it is asked for until it is done, and the stages in between.

use crate::host::BlockDevice;
use crate::profilers::blktrace::files::RequestFile;
use crate::report::Value;
use crate::stats::PairKey;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    Read,
    /// A read that nobody waits for yet.
    Readahead,
    /// A write that somebody waits for: `O_DIRECT`, `O_SYNC`, fsync(2), the journal.
    SyncWrite,
    /// Mostly writeback.
    Write,
    Flush,
    Discard,
    Other,
}

impl RequestKind {
    /// Whether a request of this kind that is done was for a flush alone. The flush has told of it before: what asked for
    /// it ends as a write of nothing.
    pub fn is_of_flush(self, sectors: u64) -> bool {
        sectors == 0 && matches!(self, RequestKind::Write | RequestKind::SyncWrite)
    }

    /// From the letters of the field `rwbs`, see `blk_fill_rwbs` in kernel/trace/blktrace.c.
    pub fn parse(rwbs: &[u8], sectors: u64) -> RequestKind {
        // A leading F asks for a flush before the operation. Without data only the flush is left.
        let (asks_flush, rest) = match rwbs {
            [b'F', rest @ ..] => (true, rest),
            _ => (false, rwbs),
        };
        match rest {
            _ if asks_flush && sectors == 0 => RequestKind::Flush,
            [b'R', flags @ ..] if flags.contains(&b'A') => RequestKind::Readahead,
            [b'R', ..] => RequestKind::Read,
            [b'W', flags @ ..] if flags.contains(&b'S') => RequestKind::SyncWrite,
            [b'W', ..] => RequestKind::Write,
            [b'D', ..] => RequestKind::Discard,
            _ => RequestKind::Other,
        }
    }

    pub fn value(self) -> Value {
        Value::Word(match self {
            RequestKind::Read => "read",
            RequestKind::Readahead => "readahead",
            RequestKind::SyncWrite => "sync write",
            RequestKind::Write => "write",
            RequestKind::Flush => "flush",
            RequestKind::Discard => "discard",
            RequestKind::Other => "other",
        })
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestStage {
    /// For a free request: the queue is full, or throttles the submitter.
    Entry,
    /// For more requests to go with it: it is in the plug of its submitter.
    Plug,
    /// For its turn in the queue of the scheduler, or of the device.
    Queue,
    Device,
}

/// Number of stages.
pub const STAGES: usize = 4;

impl RequestStage {
    pub const ALL: [RequestStage; STAGES] =
        [RequestStage::Entry, RequestStage::Plug, RequestStage::Queue, RequestStage::Device];

    pub fn value(self) -> Value {
        Value::Word(match self {
            RequestStage::Entry => "entry",
            RequestStage::Plug => "plug",
            RequestStage::Queue => "queue",
            RequestStage::Device => "device",
        })
    }
}

/// A request, or an I/O operation that is to become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    pub kind: RequestKind,
    pub sector: u64,
    pub bytes: u64,
    /// The bytes that its submitter asked for, without what joined it.
    pub asked_bytes: u64,
    pub file: RequestFile,
    /// Sectors that are not done yet.
    pub sectors_left: u64,
    /// The submitter is among the watched tasks, and the sectors among the watched ones.
    pub is_wanted: bool,
    /// A device above has passed it on, with the task that submitted it there.
    pub is_passed_on: bool,
    /// The device is asked for a flush first.
    pub asks_flush: bool,
    /// It was issued right behind the request that ends where it begins.
    pub is_sequential: bool,
    pub stage: RequestStage,
    /// When the stage began, ns.
    pub stage_since: u64,
    /// The time in each stage that has ended, ns.
    pub spent_ns: [u64; STAGES],
}

impl BlockRequest {
    pub fn new(kind: RequestKind, sector: u64, sectors: u64, stage: RequestStage, now: u64) -> BlockRequest {
        let bytes = sectors.saturating_mul(SECTOR_BYTES);
        BlockRequest {
            kind,
            sector,
            bytes,
            asked_bytes: bytes,
            file: RequestFile::Unknown,
            sectors_left: sectors,
            is_wanted: true,
            is_passed_on: false,
            asks_flush: false,
            is_sequential: false,
            stage,
            stage_since: now,
            spent_ns: [0; STAGES],
        }
    }

    pub fn set_sectors(&mut self, sector: u64, sectors: u64) {
        (self.sector, self.sectors_left, self.bytes) = (sector, sectors, sectors.saturating_mul(SECTOR_BYTES));
        self.asked_bytes = self.bytes;
    }

    /// The next stage begins.
    pub fn enter(&mut self, stage: RequestStage, now: u64) {
        self.spent_ns[self.stage as usize] += now.saturating_sub(self.stage_since);
        (self.stage, self.stage_since) = (stage, now);
    }

    /// The time in each stage, if the present one ends `now`. What never was a request of its own was below: its whole
    /// time is the device's.
    pub fn spent_until(&self, now: u64) -> [u64; STAGES] {
        let mut ended = *self;
        ended.enter(self.stage, now);
        match self.stage {
            RequestStage::Entry => [0, 0, 0, ended.spent_ns.iter().sum()],
            _ => ended.spent_ns,
        }
    }
}

const SECTOR_BYTES: u64 = 512;

/// A request by its device and first sector, before or after it was issued to the device: two programs may ask for the
/// same sectors at once. Flushes, which have no sector, are joined by the kernel: one waits while one is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    pub device: BlockDevice,
    /// None: a flush.
    pub sector: Option<u64>,
    pub is_issued: bool,
}

impl RequestKey {
    pub fn issued(self) -> RequestKey {
        RequestKey { is_issued: true, ..self }
    }

    pub fn at(self, sector: u64) -> RequestKey {
        RequestKey { sector: Some(sector), ..self }
    }

    pub fn flush(self) -> RequestKey {
        RequestKey { sector: None, is_issued: false, ..self }
    }
}

impl PairKey for RequestKey {
    fn cpu(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_the_kernel() {
        let cases: [(&[u8], u64, RequestKind); 13] = [
            (b"R", 8, RequestKind::Read),
            (b"RS", 8, RequestKind::Read),
            (b"RA", 8, RequestKind::Readahead),
            (b"RAM", 8, RequestKind::Readahead),
            (b"W", 8, RequestKind::Write),
            (b"WM", 8, RequestKind::Write),
            (b"WSM", 8, RequestKind::SyncWrite),
            (b"FWFS", 8, RequestKind::SyncWrite),
            (b"FWS", 0, RequestKind::Flush),
            (b"FF", 0, RequestKind::Flush),
            (b"DS", 8, RequestKind::Discard),
            (b"N", 0, RequestKind::Other),
            (b"", 0, RequestKind::Other),
        ];
        for (rwbs, sectors, want) in cases {
            assert_eq!(RequestKind::parse(rwbs, sectors), want, "{}", rwbs.escape_ascii());
        }
    }

    #[test]
    fn what_asked_for_a_flush_alone_ends_as_a_write_of_nothing() {
        let is_of_flush = |rwbs: &[u8], sectors| RequestKind::parse(rwbs, sectors).is_of_flush(sectors);
        assert!(is_of_flush(b"WS", 0) && is_of_flush(b"W", 0));
        assert!(!is_of_flush(b"WS", 8) && !is_of_flush(b"FF", 0) && !is_of_flush(b"N", 0));
    }

    /// The stages add up to the whole, also if the device gives a request back.
    #[test]
    fn stages_add_up() {
        let mut request = BlockRequest::new(RequestKind::Read, 64, 8, RequestStage::Entry, 100);
        assert_eq!(request.spent_until(150), [0, 0, 0, 50], "it never became a request");
        for (stage, now) in [
            (RequestStage::Plug, 110),
            (RequestStage::Queue, 130),
            (RequestStage::Device, 200),
            (RequestStage::Queue, 250),
            (RequestStage::Device, 300),
        ] {
            request.enter(stage, now);
        }
        assert_eq!(request.spent_until(1300), [10, 20, 120, 1050]);
    }
}
