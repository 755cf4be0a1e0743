//! Which fields the samples of an event have.

use perf_event_open_sys::bindings as b;

/// The `PERF_SAMPLE_*` bits of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleType(u64);

macro_rules! sample_bits {
    ($($name:ident = $bit:ident,)*) => {
        impl SampleType {
            $(pub const $name: SampleType = SampleType(b::$bit as u64);)*
            /// Every bit known here, in the order of the fields.
            pub const ALL: &'static [(&'static str, SampleType)] = &[$((stringify!($name), SampleType::$name),)*];
        }
    };
}

sample_bits! {
    IDENTIFIER = PERF_SAMPLE_IDENTIFIER,
    IP = PERF_SAMPLE_IP,
    TID = PERF_SAMPLE_TID,
    TIME = PERF_SAMPLE_TIME,
    ADDR = PERF_SAMPLE_ADDR,
    ID = PERF_SAMPLE_ID,
    STREAM_ID = PERF_SAMPLE_STREAM_ID,
    CPU = PERF_SAMPLE_CPU,
    PERIOD = PERF_SAMPLE_PERIOD,
    READ = PERF_SAMPLE_READ,
    CALLCHAIN = PERF_SAMPLE_CALLCHAIN,
    RAW = PERF_SAMPLE_RAW,
    BRANCH_STACK = PERF_SAMPLE_BRANCH_STACK,
    REGS_USER = PERF_SAMPLE_REGS_USER,
    STACK_USER = PERF_SAMPLE_STACK_USER,
    WEIGHT = PERF_SAMPLE_WEIGHT,
    WEIGHT_STRUCT = PERF_SAMPLE_WEIGHT_STRUCT,
    DATA_SRC = PERF_SAMPLE_DATA_SRC,
    TRANSACTION = PERF_SAMPLE_TRANSACTION,
    REGS_INTR = PERF_SAMPLE_REGS_INTR,
    PHYS_ADDR = PERF_SAMPLE_PHYS_ADDR,
    CGROUP = PERF_SAMPLE_CGROUP,
    DATA_PAGE_SIZE = PERF_SAMPLE_DATA_PAGE_SIZE,
    CODE_PAGE_SIZE = PERF_SAMPLE_CODE_PAGE_SIZE,
    AUX = PERF_SAMPLE_AUX,
}

impl SampleType {
    /// What every event asks for: its id at a fixed offset, thread, time and CPU.
    pub const BASE: SampleType = SampleType(Self::IDENTIFIER.0 | Self::TID.0 | Self::TIME.0 | Self::CPU.0);

    pub const fn from_bits(bits: u64) -> SampleType {
        SampleType(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn contains(self, other: SampleType) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn with(self, other: SampleType) -> SampleType {
        SampleType(self.0 | other.0)
    }
}
