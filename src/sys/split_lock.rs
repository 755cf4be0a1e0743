//! Provokes split locks: locked operations on eight bytes that lie in two cache lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A thread that provokes split locks as long as this value lives.
#[derive(Debug)]
pub struct SplitLocks {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Whether locked operations may cross a cache line on this architecture.
pub const POSSIBLE: bool = cfg!(target_arch = "x86_64");

impl SplitLocks {
    /// Starts the thread.
    ///
    /// # Errors
    /// Threads cannot be started, or this architecture has no split locks.
    #[cfg(target_arch = "x86_64")]
    pub fn provoke() -> io::Result<SplitLocks> {
        use std::time::Duration;
        /// Not a multiple of the default `-T`: otherwise each sample would be due at the last split lock of a burst,
        /// and land in the sleep after it.
        const BURST: u32 = 1100;
        const PAUSE: Duration = Duration::from_millis(1); // a split lock stalls all CPUs
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let work = move || {
            let mut lines = Lines([0; 128]);
            while !told.load(Ordering::Relaxed) {
                (0..BURST).for_each(|_| lines.add_across());
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("split-lock-test".into()).spawn(work)?;
        Ok(SplitLocks { stop, thread: Some(thread) })
    }

    /// The counterpart of the x86 function.
    ///
    /// # Errors
    /// Always: on this architecture an exclusive access across a cache line faults.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn provoke() -> io::Result<SplitLocks> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

impl Drop for SplitLocks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Two cache lines.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
struct Lines([u8; 128]);

#[cfg(target_arch = "x86_64")]
impl Lines {
    /// A locked addition to the eight bytes around the border of the cache lines. It is not inlined, so that samples
    /// show its name.
    #[inline(never)]
    fn add_across(&mut self) {
        const BORDER: usize = 64;
        let across = &mut self.0[BORDER - 4..BORDER + 4];
        // SAFETY: the instruction reads and writes the eight bytes of `across`, which are borrowed mutably. Unlike
        // Rust's atomics, x86 needs no alignment for it.
        unsafe { std::arch::asm!("lock add qword ptr [{}], 1", in(reg) across.as_mut_ptr(), options(nostack)) };
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn adds_across_the_border() {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if cpu.contains("split_lock_detect") {
            skip!("this CPU raises an exception, which some kernels answer with a kill");
        }
        let mut lines = Lines([0xff; 128]);
        lines.add_across();
        assert_eq!((lines.0[59], &lines.0[60..68], lines.0[68]), (0xff, &[0; 8][..], 0xff));
    }
}
