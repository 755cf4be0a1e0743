//! One mapped perf ring buffer: records are read in place, and their room is returned to the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::memory::{self, Memory};
use super::prefetch::{LINE_BYTES, prefetch};

/// Bytes of `struct perf_event_header`: type u32, misc u16, size u16.
const HEADER_BYTES: u64 = 8;

/// The most room that one record can need, in bytes: `perf_event_header.size` is a u16 and counts in eights, and a LOST
/// record (24 bytes and at most 48 of `sample_id_all`) may go before it. The kernel leaves one byte free
/// (`CIRC_SPACE`), so it takes *more* than this to be safe.
const LARGEST_NEED_BYTES: u64 = (u16::MAX as u64 & !7) + 72;

/// How many bytes ahead a ring is prefetched. Between two records of a ring come records of all other rings, which
/// gives the memory time to arrive, even with more rings than the CPU's own prefetcher follows. 512 and 2,048 bytes are
/// equally fast.
pub(super) const AHEAD_BYTES: u64 = 1024;

/// One mapped ring buffer. The kernel moves `data_head`; only this type moves `data_tail`.
pub struct RingBuf {
    map: Memory,      // not `MmapMut`: that would lend out bytes the kernel is still writing
    data: usize,      // where the data area starts in `map`, in bytes
    mask: u64,        // size of the data area in bytes, minus 1
    start: u64,       // position of the next record, in bytes since the ring was made; a multiple of 8
    unread: u64,      // bytes from `start` to the end of the last snapshot
    tail: u64,        // the last published `data_tail`, at most the ring's size before `start`
    next: usize,      // size of the peeked record at `start`, 0 when there is none
    scratch: Vec<u8>, // the peeked record in one piece, when it wraps
    peak: u64,
    corrupt: u64,
    ahead: u64, // bytes behind `start` that are prefetched
}

impl RingBuf {
    /// Maps the ring buffer of a perf event: the mmap page and `data_pages` (a power of two).
    ///
    /// # Errors
    /// mmap(2) fails, or the mmap page describes a data area that is not in the map.
    pub fn map(fd: BorrowedFd<'_>, data_pages: usize) -> io::Result<RingBuf> {
        let page = page_bytes()?;
        let len = data_pages.checked_add(1).and_then(|pages| pages.checked_mul(page));
        let len = len.filter(|_| data_pages.is_power_of_two()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a ring buffer has a power of two of data pages")
        })?;
        let map = memory::map(fd, len)?;
        assert_eq!(map.len(), len, "memmap2 maps what it was asked to");
        RingBuf::over(map, page)
    }

    /// The ring in mapped memory, at least two pages of it.
    pub(super) fn over(map: Memory, page: usize) -> io::Result<RingBuf> {
        let mut ring = RingBuf {
            map,
            data: 0,
            mask: 0,
            start: 0,
            unread: 0,
            tail: 0,
            next: 0,
            scratch: Vec::new(),
            peak: 0,
            corrupt: 0,
            ahead: AHEAD_BYTES,
        };
        ring.find_data(page)?;
        Ok(ring)
    }

    /// Finds the data area and where an earlier reader stopped.
    fn find_data(&mut self, page: usize) -> io::Result<()> {
        // SAFETY: the map is at least two pages long, so the mmap page is in bounds and aligned.
        // The kernel writes these two fields once, before `mmap` returns.
        let (offset, size) = unsafe {
            let page = self.mmap_page();
            ((&raw const (*page).data_offset).read_volatile(), (&raw const (*page).data_size).read_volatile())
        };
        // Kernels before 4.1 leave both 0: the data follows the mmap page.
        let offset = if offset == 0 { page } else { usize::try_from(offset).unwrap_or(usize::MAX) };
        let size = if size == 0 { self.map.len() - page } else { usize::try_from(size).unwrap_or(usize::MAX) };
        let tail = self.tail_field().load(Ordering::Relaxed);
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.map.len());
        if offset < page
            || !inside
            || !size.is_power_of_two()
            || size < HEADER_BYTES as usize
            || !tail.is_multiple_of(8)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the mmap page describes an impossible ring buffer",
            ));
        }
        self.data = offset;
        self.mask = size as u64 - 1;
        self.start = tail;
        self.tail = tail;
        Ok(())
    }

    /// Turns prefetching off, for comparison.
    pub fn disable_prefetch(&mut self) {
        self.ahead = 0;
    }

    /// Takes a new snapshot of the records that the kernel has published.
    ///
    /// Returns what [`publish`](RingBuf::publish) does: whether the kernel may have dropped a record since the tail
    /// last moved.
    pub fn load(&mut self) -> bool {
        let head = self.load_head();
        let unread = head.wrapping_sub(self.start);
        if unread > self.size() - self.passed() || unread < self.next as u64 || !head.is_multiple_of(8) {
            self.corrupt += 1;
            self.next = 0;
            self.start = head & !7; // a multiple of 8, so that a header never wraps
            self.unread = 0;
            self.store_tail();
            return true;
        }
        self.unread = unread;
        self.prefetch_unread(0, self.ahead);
        self.note_backlog(head)
    }

    /// The next record of the snapshot, with its header: in the ring, or copied when it wraps.
    ///
    /// The length is the size in the header, at least 8; nothing else is checked.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.next == 0 && !self.measure() {
            return None;
        }
        if self.contiguous() < self.next as u64 {
            return Some(&self.scratch);
        }
        let at = self.data + (self.start & self.mask) as usize;
        // SAFETY: `measure` found the record to be unread, and it ends within the data area, which `find_data` found to
        // be in the map. For the rest see `bytes`.
        Some(unsafe { slice::from_raw_parts(self.map.as_ptr().add(at), self.next) })
    }

    /// Passes the peeked record: its room returns to the kernel with the next `publish`. Returns its size in bytes.
    #[inline]
    pub fn advance(&mut self) -> u64 {
        let passed = self.next as u64;
        if self.ahead > 0 {
            self.prefetch_unread(self.ahead, passed);
        }
        self.start = self.start.wrapping_add(passed);
        self.unread -= passed;
        self.next = 0;
        passed
    }

    /// The contiguous bytes of the snapshot from the next record on, at most `most`.
    #[inline]
    pub(super) fn piece(&self, most: u64) -> &[u8] {
        self.bytes(0, self.unread.min(self.contiguous()).min(most))
    }

    /// Passes `bytes` bytes of the piece, which must be complete records. `left`: remaining bytes of the piece, which
    /// have been prefetched.
    #[inline]
    pub(super) fn pass(&mut self, bytes: u64, left: u64) {
        assert!(bytes <= self.unread);
        self.start = self.start.wrapping_add(bytes);
        self.unread -= bytes;
        self.next = 0;
        if left < self.ahead {
            self.prefetch_unread(left, self.ahead - left);
        }
    }

    /// Returns the room of all passed records to the kernel.
    ///
    /// True when, since the last `publish`, the ring was so full that the kernel may have dropped a record. Always true
    /// for rings of up to 64 KiB, since one record can be that long.
    pub fn publish(&mut self) -> bool {
        // Compares with the present head, not the snapshot: the head only grows, so the ring was never fuller since the
        // tail moved.
        let head = self.load_head();
        let near_full = self.note_backlog(head);
        if self.start != self.tail {
            self.store_tail();
        }
        near_full
    }

    /// Unread bytes of the snapshot.
    pub fn backlog(&self) -> u64 {
        self.unread
    }

    /// The most bytes ever seen in the ring, including passed bytes that were not returned yet.
    pub fn backlog_peak(&self) -> u64 {
        self.peak
    }

    /// How often the rest of a snapshot was skipped because a record's size, or the head, was impossible.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Size of the data area in bytes.
    pub fn size(&self) -> u64 {
        self.mask + 1
    }

    /// Passed bytes that were not returned to the kernel yet.
    #[inline]
    pub(super) fn passed(&self) -> u64 {
        self.start.wrapping_sub(self.tail)
    }

    /// Position of the next record, in bytes since the ring was made.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.start
    }

    /// Position of the end of the snapshot.
    pub(super) fn end(&self) -> u64 {
        self.start.wrapping_add(self.unread)
    }

    /// Finds the size of the next record, and makes the record contiguous. False at the end of the snapshot. An
    /// impossible size ends the snapshot early, since no later record can be found then.
    #[inline]
    fn measure(&mut self) -> bool {
        if self.unread == 0 {
            return false;
        }
        let Some(size) = self.size_of_next().filter(|&size| size <= self.unread) else {
            self.corrupt += 1;
            self.start = self.end();
            self.unread = 0;
            return false;
        };
        self.next = size as usize;
        if self.contiguous() < size {
            self.copy_wrapped(size);
        }
        true
    }

    /// The size of the next record. None: the size is impossible. There must be unread bytes.
    #[inline]
    fn size_of_next(&self) -> Option<u64> {
        // `start`, the head and the size of the ring are multiples of 8: a header is never cut.
        let header = self.bytes(0, HEADER_BYTES);
        let size = u64::from(header.last_chunk().map_or(0, |size| u16::from_ne_bytes(*size)));
        Some(size).filter(|size| *size >= HEADER_BYTES && size.is_multiple_of(8))
    }

    #[cold]
    fn copy_wrapped(&mut self, size: u64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let first = self.contiguous();
        scratch.clear();
        scratch.extend_from_slice(self.bytes(0, first));
        scratch.extend_from_slice(self.bytes(first, size - first));
        self.scratch = scratch;
    }

    /// Prefetches `len` bytes, `skip` bytes after `start`. Only bytes of the snapshot, since the kernel writes behind
    /// it.
    #[inline]
    fn prefetch_unread(&self, skip: u64, len: u64) {
        let end = self.unread.min(skip + len);
        let mut skip = skip;
        while skip < end {
            let at = self.data + (self.start.wrapping_add(skip) & self.mask) as usize;
            prefetch(self.map.as_ptr().wrapping_add(at));
            skip += LINE_BYTES;
        }
    }

    /// Bytes from `start` to the end of the data area.
    #[inline]
    fn contiguous(&self) -> u64 {
        self.size() - (self.start & self.mask)
    }

    /// `len` unread bytes, `skip` bytes after `start`. A record that wraps takes two calls.
    #[inline]
    fn bytes(&self, skip: u64, len: u64) -> &[u8] {
        assert!(skip <= self.unread && len <= self.unread - skip);
        let at = self.start.wrapping_add(skip) & self.mask;
        assert!(len <= self.size() - at);
        // SAFETY: in bounds and unread, as asserted; `find_data` checked that the data area is in
        // the map. The kernel reuses these bytes only after `data_tail` passes them, and moving it
        // takes `&mut self`, which this borrow excludes.
        unsafe { slice::from_raw_parts(self.map.as_ptr().add(self.data + at as usize), len as usize) }
    }

    /// Whether a record might not have fitted when the head was at `head`.
    fn note_backlog(&mut self, head: u64) -> bool {
        let backlog = head.wrapping_sub(self.tail).min(self.size());
        self.peak = self.peak.max(backlog);
        self.size() - backlog <= LARGEST_NEED_BYTES
    }

    fn load_head(&self) -> u64 {
        // SAFETY: `map` starts with the mmap page and lives as long as `self`, so the field is in
        // bounds and aligned. The kernel may store to it at any time, hence an atomic.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.mmap_page()).data_head) };
        // Pairs with the barrier in `perf_output_put_handle`, kernel/events/ring_buffer.c.
        head.load(Ordering::Acquire)
    }

    fn store_tail(&mut self) {
        self.tail = self.start;
        // Release: our reads of the passed bytes come before the kernel's writes over them.
        self.tail_field().store(self.tail, Ordering::Release);
    }

    fn tail_field(&self) -> &AtomicU64 {
        // SAFETY: in bounds and aligned, as in `load_head`. The kernel only reads it.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.mmap_page()).data_tail) }
    }

    fn mmap_page(&self) -> *mut perf_event_mmap_page {
        self.map.as_mut_ptr().cast()
    }
}

/// Splits off the first of the records in `bytes`, if it is whole and its size is possible.
#[inline(always)]
pub(super) fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header: &[u8; HEADER_BYTES as usize] = bytes.first_chunk()?;
    let size = usize::from(u16::from_ne_bytes(*header.last_chunk()?));
    if size < HEADER_BYTES as usize || !size.is_multiple_of(8) { None } else { bytes.split_at_checked(size) }
}

/// Size of a memory page: 4, 16 or 64 KiB on aarch64.
pub(super) fn page_bytes() -> io::Result<usize> {
    // SAFETY: sysconf only takes and returns numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).map_err(|_| io::Error::last_os_error())
}
