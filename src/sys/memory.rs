//! What happens when memory runs out, as under `ulimit -v`: a message and exit code 1, where the standard library aborts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator; a failed allocation ends the program.
#[derive(Debug)]
pub struct OrExit;

// SAFETY: each call is passed to `System`, and its result is returned unchanged; on null the program ends.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { exit_without_memory(layout.size()) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() { exit_without_memory(layout.size()) } else { memory }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { System.realloc(memory, layout, size) };
        if memory.is_null() { exit_without_memory(size) } else { memory }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cold]
fn exit_without_memory(bytes: usize) -> ! {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    while IS_ENDING.swap(true, Ordering::Relaxed) {
        std::thread::yield_now(); // another thread writes the message and ends the process
    }
    let mut text = [0; 160];
    let length = out_of_memory_message(bytes, super::address_space_bytes(), &mut text);
    // SAFETY: `text` is a local array of at least `length` bytes. `_exit` runs no handlers, which might need memory.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length);
        libc::_exit(1)
    }
}

/// Writes the message into `text`, without allocating, and returns its length.
fn out_of_memory_message(bytes: usize, limit_bytes: Option<u64>, text: &mut [u8]) -> usize {
    let mut rest = &mut text[..];
    let _ = write!(rest, "perf-prof: out of memory: an allocation of {bytes} bytes was refused");
    let _ = match limit_bytes {
        Some(limit) => writeln!(rest, "; cure: raise `ulimit -v` (it is {})", limit / 1024),
        None => writeln!(rest),
    };
    let left = rest.len();
    text.len() - left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_needs_no_memory() {
        let said = |limit| {
            let mut text = [0; 160];
            let length = out_of_memory_message(usize::MAX, limit, &mut text);
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        let head = format!("perf-prof: out of memory: an allocation of {} bytes was refused", usize::MAX);
        assert_eq!(said(None), format!("{head}\n"));
        assert_eq!(said(Some(40_000 << 10)), format!("{head}; cure: raise `ulimit -v` (it is 40000)\n"));
        assert!(said(Some(u64::MAX - 1)).ends_with(")\n"), "it fits");
    }
}
