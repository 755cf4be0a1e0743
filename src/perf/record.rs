//! The contents of `PERF_RECORD_*` entries. The types borrow from the ring buffer.

use perf_event_open_sys::bindings as b;
use thiserror::Error;

pub use crate::perf::user_window::UserPart;

/// Why a record cannot be decoded. Such a record is counted and skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("a record ends before its last field")]
    Short,
    #[error("a length inside a record does not fit into it")]
    Length,
}

/// How the callchains of an event must be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainForm {
    /// Limit of the addresses in a callchain; 0: the kernel's limit.
    pub depth: u16,
    pub innermost: Innermost,
    pub user: UserPart,
}

/// Which instruction the innermost address of a callchain points to. All other addresses are return addresses, behind a
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Innermost {
    /// The interrupted or probed instruction.
    #[default]
    Executed,
    /// In the kernel: the instruction behind the call of a tracepoint (perf_fetch_caller_regs,
    /// include/linux/perf_event.h).
    BehindTracepoint,
    /// The instruction behind the call of a function that returns.
    BehindCall,
}

/// Addresses, innermost first, mixed with `PERF_CONTEXT_*` markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callchain<'a>(&'a [u8]);

const PERF_CONTEXT_USER_DEFERRED: [u8; 8] = b::PERF_CONTEXT_USER_DEFERRED.to_ne_bytes();

impl<'a> Callchain<'a> {
    /// A callchain of whole words.
    pub fn from_bytes(words: &'a [u8]) -> Callchain<'a> {
        Callchain(words)
    }

    /// The callchain of a sample, of whole words. If the user part follows in a separate record, the words end with a
    /// marker and the cookie of that record (`perf_callchain`, kernel/events/core.c). The cookie is no address, differs
    /// each time, and is removed here.
    #[inline(always)]
    pub fn of_sample(words: &'a [u8]) -> Callchain<'a> {
        match words.as_chunks::<8>().0 {
            [before @ .., PERF_CONTEXT_USER_DEFERRED, _] => Callchain(before.as_flattened()),
            _ => Callchain(words),
        }
    }

    pub fn empty() -> Callchain<'static> {
        Callchain(&[])
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.0.len() / 8
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u64> + 'a {
        words(self.0)
    }

    /// All words, as in the record.
    #[inline(always)]
    pub fn words(&self) -> &'a [[u8; 8]] {
        self.0.as_chunks().0
    }

    /// A hash of all words, for the tables of one run.
    ///
    /// Hashes four words in parallel: in one chain each word would wait for the product of the word before, which would
    /// be most of the cost of a callchain.
    #[inline]
    pub fn hash(&self) -> u64 {
        const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
        let mix = |lane: u64, word: [u8; 8]| (lane.rotate_left(26) ^ u64::from_ne_bytes(word)).wrapping_mul(FACTOR);
        let words = self.words();
        let (blocks, rest) = words.as_chunks::<4>();
        let mut lanes = [words.len() as u64, 1, 2, 3];
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block) {
                *lane = mix(*lane, *word);
            }
        }
        for (lane, word) in lanes.iter_mut().zip(rest) {
            *lane = mix(*lane, *word);
        }
        let [a, b, c, d] = lanes;
        let join = |one, other: u64| mix(one, other.to_ne_bytes());
        let hash = join(join(a, b), join(c, d));
        hash ^ hash >> 32 // the lower bits of a product depend on the lower bits of its factors only
    }
}

/// The values of a sampled counter or group.
#[derive(Clone, Copy, Debug)]
pub struct ReadValues<'a> {
    pub enabled: u64,
    pub running: u64,
    words: &'a [u8],
    per_value: usize,
}

impl<'a> ReadValues<'a> {
    pub(in crate::perf) fn none() -> ReadValues<'static> {
        ReadValues { enabled: 0, running: 0, words: &[], per_value: 1 }
    }

    pub(in crate::perf) fn new(enabled: u64, running: u64, words: &'a [u8], per_value: usize) -> ReadValues<'a> {
        ReadValues { enabled, running, words, per_value }
    }

    /// The counts, in the order of the group.
    pub fn values(&self) -> impl Iterator<Item = u64> + 'a {
        words(self.words).step_by(self.per_value)
    }
}

/// The fields behind RAW, which few events ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra<'a> {
    pub branches: Option<Branches<'a>>,
    /// One word per bit of the event's register mask.
    pub regs_user: Option<&'a [u8]>,
    pub stack_user: &'a [u8],
    /// Bytes that the kernel reserved for the stack.
    pub stack_reserved: usize,
    pub weight: Option<u64>,
    pub data_src: Option<u64>,
    pub transaction: Option<u64>,
    pub regs_intr: Option<&'a [u8]>,
    pub phys_addr: Option<u64>,
    pub cgroup: Option<u64>,
    pub data_page_size: Option<u64>,
    pub code_page_size: Option<u64>,
    pub aux: &'a [u8],
}

/// Last branches, three words each: from, to, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branches<'a> {
    pub hw_index: Option<u64>,
    pub entries: &'a [u8],
}

/// The trailer of every record that is no sample (`sample_id_all`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    pub pid: i32,
    pub tid: i32,
    pub time: u64,
    pub id: u64,
    pub cpu: u32,
}

/// Any record that is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The number of records, of all events of the ring, that were dropped because the ring was full.
    Lost {
        count: u64,
    },
    /// Samples that the hardware dropped.
    LostSamples {
        count: u64,
    },
    Comm {
        pid: i32,
        tid: i32,
        comm: &'a [u8],
        exec: bool,
    },
    Fork(TaskRecord),
    Exit(TaskRecord),
    Mmap(Mmap<'a>),
    Throttle {
        on: bool,
    },
    Switch {
        out: bool,
        preempted: bool,
        /// The tid of the task before or after, if the record has it.
        other: Option<i32>,
    },
    /// A kernel symbol that appeared, or is `gone`. `len` in bytes.
    Ksymbol {
        addr: u64,
        len: u32,
        name: &'a [u8],
        gone: bool,
    },
    Cgroup {
        id: u64,
        path: &'a [u8],
    },
    /// The user part of the callchains that end with this cookie: all callchains of one task since it was last in user
    /// mode.
    DeferredCallchain {
        cookie: u64,
        callchain: Callchain<'a>,
    },
    Other(u32),
}

/// The body of FORK and EXIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    pub pid: i32,
    pub ppid: i32,
    pub tid: i32,
    pub ptid: i32,
    pub time: u64,
}

/// A new executable mapping, from MMAP or MMAP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    pub pid: i32,
    pub tid: i32,
    pub addr: u64,
    pub len: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    pub file: FileId<'a>,
    pub path: &'a [u8],
}

/// What identifies a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileId<'a> {
    Inode { major: u32, minor: u32, inode: u64 },
    BuildId(&'a [u8]),
    Unknown,
}

/// The type of a record, from its header.
#[inline]
pub fn record_type(record: &[u8]) -> u32 {
    match record.get(..4) {
        Some(bytes) => u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        None => 0,
    }
}

/// The identifier of the sample at the start of `rest`, which BASE puts right behind the header. None: the record is no sample.
#[inline(always)]
pub fn sample_identifier(rest: &[u8]) -> Option<u64> {
    let (header, id) = rest.first_chunk::<16>()?.split_at(8);
    if record_type(header) == b::PERF_RECORD_SAMPLE { Some(u64::from_ne_bytes(id.try_into().ok()?)) } else { None }
}

#[inline]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
}
