//! Which tests of one program may run at a time. Cargo runs one program after another.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// As long as it is kept, the test has the machine to itself, or shares it with others of which none measures.
#[must_use]
pub struct Turn {
    _beside: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Turn {
    pub fn beside_others() -> Turn {
        Turn { _beside: Some(MACHINE.read().unwrap_or_else(PoisonError::into_inner)), _alone: None }
    }

    /// For what measures time, CPU or shares of it, counts on how fast a load is, or changes a setting of the machine.
    pub fn alone() -> Turn {
        Turn { _beside: None, _alone: Some(MACHINE.write().unwrap_or_else(PoisonError::into_inner)) }
    }
}
