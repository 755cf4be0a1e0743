//! Bounds the number of user stack snapshots that were read and not symbolised yet.

use std::sync::Arc;

/// Most snapshots that exist at a time.
const MAX_SNAPSHOTS: usize = 128;

/// Bounds the number of snapshots: each holds a ticket.
#[derive(Clone, Debug, Default)]
pub struct SnapshotPool(Arc<Issued>);

/// The tickets: each snapshot holds a reference.
#[derive(Debug, Default)]
struct Issued {
    tickets: Arc<()>,
}

/// See [`SnapshotPool`].
pub type SnapshotTicket = Arc<()>;

impl SnapshotPool {
    /// False while too many snapshots exist.
    pub fn has_room(&self) -> bool {
        Arc::strong_count(&self.0.tickets) <= MAX_SNAPSHOTS
    }

    pub fn ticket(&self) -> SnapshotTicket {
        self.0.tickets.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_at_most() {
        let pool = SnapshotPool::default();
        let mut tickets: Vec<SnapshotTicket> = std::iter::from_fn(|| pool.has_room().then(|| pool.ticket())).collect();
        assert_eq!(tickets.len(), MAX_SNAPSHOTS);
        tickets.pop();
        assert!(pool.has_room());
    }
}
