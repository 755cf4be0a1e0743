//! The memory of a ring, which the kernel writes into: a mapping. Miri cannot map files; under Miri the memory is an
//! allocation that reader and writer share.

#[cfg(miri)]
pub use block::Memory;
#[cfg(not(miri))]
pub use memmap2::MmapRaw as Memory;

use std::io;
use std::os::fd::BorrowedFd;

/// Maps `len` bytes of the file or event behind `fd`.
///
/// # Errors
/// mmap(2) fails.
#[cfg(not(miri))]
pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Memory> {
    memmap2::MmapOptions::new().len(len).map_raw(&fd)
}

#[cfg(miri)]
pub fn map(_fd: BorrowedFd<'_>, _len: usize) -> io::Result<Memory> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(miri)]
mod block {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// Raw bytes as in a mapping, initially zero. No reference to them exists.
    #[derive(Clone)]
    pub struct Memory(Arc<Allocation>);

    struct Allocation {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: the bytes are only reached through raw pointers, whose users must prove each access, as with a mapping.
    unsafe impl Send for Allocation {}
    // SAFETY: as above.
    unsafe impl Sync for Allocation {}

    impl Memory {
        pub fn new(len: usize, page_bytes: usize) -> Memory {
            let layout = Layout::from_size_align(len.max(1), page_bytes).expect("a page is a power of two");
            // SAFETY: the layout has a size that is not 0.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
            Memory(Arc::new(Allocation { start, layout }))
        }

        pub fn len(&self) -> usize {
            self.0.layout.size()
        }

        pub fn as_ptr(&self) -> *const u8 {
            self.as_mut_ptr()
        }

        pub fn as_mut_ptr(&self) -> *mut u8 {
            self.0.start.as_ptr()
        }
    }

    impl Drop for Allocation {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout, and nobody holds it any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}
