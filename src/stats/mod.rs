//! What profilers analyse with: distributions of many values ([`Distribution`]), sums by key ([`keyed`]), latencies by
//! key ([`latency`]), numbers with a sign ([`signed`]), the greatest of many values ([`top_k`]), pairs of events ([`pairs`]), how far back a loss reaches
//! ([`loss_horizon`]), a map by thread ([`tid_map`]), weights of stacks ([`weights`]).

mod buckets;
pub mod distribution;
pub mod keyed;
pub mod latency;
pub mod loss_horizon;
pub mod pairs;
pub mod signed;
mod stretches;
pub mod tid_map;
pub mod top_k;
pub mod weights;

pub use distribution::Distribution;
pub use keyed::{KeyedSums, SumKey, TaskKey, TaskStack};
pub use latency::{Latency, LatencyTable, WorstCase};
pub use loss_horizon::{Began, LossHorizon, LostWindow};
pub use pairs::{CloseOutcome, OpenPair, PairCounts, PairKey, Pairs};
pub use signed::SignedDistribution;
pub use stretches::union_ns;
pub use tid_map::TidMap;
pub use top_k::TopK;
