//! What a stall for memory is, and the events that tell of one.

use crate::report::Value;
use crate::stats::TaskKey;

/// Why a task stalls for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallKind {
    /// The machine is short of memory.
    Direct,
    /// The task's memory cgroup is at its limit, or one above it.
    Memcg,
    /// The node of memory is full, and others are not to be used.
    Node,
    /// Free memory is in too small pieces.
    Compaction,
}

impl StallKind {
    pub fn value(self) -> Value {
        Value::Word(match self {
            StallKind::Direct => "direct reclaim",
            StallKind::Memcg => "cgroup reclaim",
            StallKind::Node => "node reclaim",
            StallKind::Compaction => "compaction",
        })
    }
}

/// What an event says of the current task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallStep {
    Begins(StallKind),
    Ends(StallKind),
    /// Compaction is about to begin for an allocation.
    Asks,
    /// The task has slept, since reclaim makes no progress.
    Throttled,
}

/// The events of stalls. None of them is within another, since a task that reclaims allocates without reclaim. The search for
/// cgroups above their soft limits has events, too: it is a part of direct reclaim, or of kswapd's work.
pub const EVENTS: [(&str, StallStep); 10] = [
    ("vmscan:mm_vmscan_direct_reclaim_begin", StallStep::Begins(StallKind::Direct)),
    ("vmscan:mm_vmscan_direct_reclaim_end", StallStep::Ends(StallKind::Direct)),
    ("vmscan:mm_vmscan_memcg_reclaim_begin", StallStep::Begins(StallKind::Memcg)),
    ("vmscan:mm_vmscan_memcg_reclaim_end", StallStep::Ends(StallKind::Memcg)),
    ("vmscan:mm_vmscan_node_reclaim_begin", StallStep::Begins(StallKind::Node)),
    ("vmscan:mm_vmscan_node_reclaim_end", StallStep::Ends(StallKind::Node)),
    ("compaction:mm_compaction_begin", StallStep::Begins(StallKind::Compaction)),
    ("compaction:mm_compaction_end", StallStep::Ends(StallKind::Compaction)),
    ("compaction:mm_compaction_try_to_compact_pages", StallStep::Asks),
    ("vmscan:mm_vmscan_throttled", StallStep::Throttled),
];

/// The allocation for which a task stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalledAllocation {
    /// It asks for 2^order pages.
    pub order: i64,
    pub gfp_flags: u64,
}

/// What is kept of the beginning of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Of its row.
    pub task: TaskKey,
    pub kind: StallKind,
    /// None: compaction that no allocation asked for.
    pub allocation: Option<StalledAllocation>,
    /// Of it, the time slept because reclaim made no progress.
    pub throttled_ns: u64,
}
