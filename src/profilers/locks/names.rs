//! What a lock is called.

use anyhow::Result;

use crate::file::{FileAspect, FileNames};
use crate::host::BlockDevices;
use crate::profiler::{Setup, Timestamp};
use crate::profilers::locks::lock::LockId;
use crate::profilers::locks::table::KernelLock;
use crate::report::Value;

/// The names of locks.
#[derive(Debug, Default)]
pub struct LockNames {
    /// None: no locks of files are wanted.
    files: Option<FileNames>,
}

impl LockNames {
    /// # Errors
    /// The thread that asks for the names of files cannot be started.
    pub fn with_files(setup: &Setup<'_>) -> Result<LockNames> {
        Ok(LockNames { files: Some(FileNames::start(setup.host, BlockDevices::of_machine())?) })
    }

    /// The tid of the thread that asks.
    pub fn thread(&self) -> Option<i32> {
        self.files.as_ref().map(FileNames::tid)
    }

    /// A task waits for the lock.
    pub fn seen(&mut self, lock: LockId, now: Timestamp) {
        if let (LockId::File(key), Some(files)) = (lock, &mut self.files) {
            files.seen(key, now);
        }
    }

    /// The cell of a lock.
    pub fn value(&self, lock: LockId) -> Value {
        match lock {
            LockId::Kernel(address) => Value::cell(KernelLock(address)),
            LockId::Futex { address, .. } => Value::Address(address),
            LockId::File(key) => {
                self.files.as_ref().map_or(Value::None, |files| Value::cell(files.cell(key, FileAspect::Path)))
            }
        }
    }
}
