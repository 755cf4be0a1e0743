//! The number of an event in a run, and the owners of samples that belong to no single profiler.

/// One event of a run: its index in the [`Evlist`](crate::perf::Evlist).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub(in crate::perf) u16);

impl EventId {
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Owner of the companions, which hold windows of user stacks. It is the index of no profiler.
pub const WINDOW_OWNER: usize = u32::MAX as usize - 1;

/// Owner of the samples of an event that several views share. It is the index of no profiler.
pub const SHARED_OWNER: usize = u32::MAX as usize - 2;

/// Owner of the BPF output events that take the records of idle tasks. It is the index of no profiler.
pub const IDLE_OWNER: usize = u32::MAX as usize - 3;
