//! Which tests of one program may run at a time. Cargo runs one program after another.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// While it lives, the test runs alone, or together with tests that measure nothing.
#[must_use]
pub struct Turn {
    _beside: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Turn {
    pub fn beside_others() -> Turn {
        Turn { _beside: Some(MACHINE.read().unwrap_or_else(PoisonError::into_inner)), _alone: None }
    }

    /// For tests that measure time, CPU time or shares, depend on the speed of a load, or change a setting of the
    /// machine.
    pub fn alone() -> Turn {
        Turn { _beside: None, _alone: Some(MACHINE.write().unwrap_or_else(PoisonError::into_inner)) }
    }
}
