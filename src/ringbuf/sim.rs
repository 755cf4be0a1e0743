//! The kernel's end of a ring buffer, simulated: tests and benches need no privilege.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{PERF_RECORD_LOST, perf_event_mmap_page};

use super::RingBuf;
use super::memory::Memory;
use super::ring::page_bytes;

/// Size of the LOST records that the simulation writes: header, id, lost and the time that `sample_id_all` adds.
pub const LOST_BYTES: usize = 32;

/// Writes records into a ring of shared memory as `kernel/events/ring_buffer.c` does.
pub struct Producer {
    map: Memory,
    file: File,
    #[cfg_attr(miri, expect(dead_code))]
    pages: usize,
    data: usize,
    size: u64,
    lost: u64, // dropped records that are in no LOST record yet
    dropped: u64,
    make_lost: fn(u64, u64) -> Vec<u8>,
    lost_record_bytes: usize,
}

impl Producer {
    /// A ring of `data_pages` pages, a power of two.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn new(data_pages: usize) -> io::Result<Producer> {
        Producer::with_size(data_pages * page_bytes()?, data_pages)
    }

    /// A ring of `bytes`, less than a page. The kernel makes no such rings, but tests fill them sooner.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn tiny(bytes: usize) -> io::Result<Producer> {
        Producer::with_size(bytes, 1)
    }

    /// A ring of `bytes`, a power of two, in as many pages as needed.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn of_bytes(bytes: usize) -> io::Result<Producer> {
        Producer::with_size(bytes, bytes.div_ceil(page_bytes()?))
    }

    fn with_size(bytes: usize, pages: usize) -> io::Result<Producer> {
        let page = page_bytes()?;
        assert!(bytes.is_power_of_two() && bytes >= 8 && bytes <= pages * page);
        let (file, map) = shared((1 + pages) * page)?;
        let (data, size) = (page, bytes as u64);
        let make_lost: fn(u64, u64) -> Vec<u8> = |lost, now| lost_record(lost, now).to_vec();
        let mut producer =
            Producer { map, file, pages, data, size, lost: 0, dropped: 0, make_lost, lost_record_bytes: LOST_BYTES };
        producer.set_data_area(page as u64, bytes as u64);
        Ok(producer)
    }

    /// `make_lost` makes LOST records from the number of drops and the time, with the sample_id of a real event.
    #[must_use]
    pub fn with_lost_records(mut self, make_lost: fn(u64, u64) -> Vec<u8>) -> Producer {
        self.lost_record_bytes = make_lost(0, 0).len();
        self.make_lost = make_lost;
        self
    }

    /// The reading end.
    ///
    /// # Errors
    /// As [`RingBuf::map`].
    pub fn ring(&self) -> io::Result<RingBuf> {
        #[cfg(miri)]
        return RingBuf::over(self.map.clone(), page_bytes()?);
        #[cfg(not(miri))]
        RingBuf::map(self.fd(), self.pages)
    }

    /// The descriptor for [`RingBuf::map`], in place of the descriptor of an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes `record`, which includes its header, or drops and counts it when it does not fit. A LOST record, stamped
    /// `now`, comes before the next record that fits.
    pub fn write(&mut self, record: &[u8], now: u64) -> bool {
        let lost_bytes = if self.lost > 0 { self.lost_record_bytes } else { 0 };
        let used = self.head().wrapping_sub(self.tail());
        // As `ring_buffer_has_space`: one byte always stays free.
        if used + (lost_bytes + record.len()) as u64 >= self.size {
            self.lost += 1;
            self.dropped += 1;
            return false;
        }
        let mut head = self.head();
        if self.lost > 0 {
            let lost = (self.make_lost)(std::mem::take(&mut self.lost), now);
            head = self.copy(head, &lost);
        }
        head = self.copy(head, record);
        self.set_head(head);
        true
    }

    /// Records dropped so far, as PERF_FORMAT_LOST counts them.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Dropped records that are in no LOST record yet.
    pub fn pending_lost(&self) -> u64 {
        self.lost
    }

    /// Bytes written so far.
    pub fn head(&self) -> u64 {
        // SAFETY: the map starts with a whole page, so the field is in bounds and aligned.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_head) }.load(Ordering::Relaxed)
    }

    /// Bytes that the reader has returned so far.
    pub fn tail(&self) -> u64 {
        // SAFETY: as in `head`. Acquire pairs with the reader's release.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_tail) }.load(Ordering::Acquire)
    }

    /// Moves the head, with or without bytes before it.
    pub(super) fn set_head(&mut self, head: u64) {
        // SAFETY: as in `head`. Release: the bytes are there before the head says so.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_head) }.store(head, Ordering::Release);
    }

    /// Sets the data area that the mmap page describes; the writer does not use it.
    pub(super) fn set_data_area(&mut self, offset: u64, size: u64) {
        // SAFETY: in bounds and aligned as in `head`; a reader looks at these only in `map`.
        unsafe {
            (&raw mut (*self.page()).data_offset).write_volatile(offset);
            (&raw mut (*self.page()).data_size).write_volatile(size);
        }
    }

    /// Writes any bytes, complete records or not, and moves the head by `claim`, as a hostile kernel might.
    #[cfg(test)]
    pub(super) fn write_raw(&mut self, bytes: &[u8], claim: u64) {
        self.copy(self.head(), bytes);
        self.set_head(self.head().wrapping_add(claim));
    }

    /// Starts the ring at `position`, before it is mapped by a reader.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, position: u64) {
        self.set_head(position);
        // SAFETY: as in `head`.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_tail) }.store(position, Ordering::Release);
    }

    /// Copies `bytes` to `position`, in two pieces when they wrap. Returns the position behind them.
    fn copy(&mut self, position: u64, bytes: &[u8]) -> u64 {
        let start = (position & (self.size - 1)) as usize;
        let first = bytes.len().min(self.size as usize - start);
        let rest = bytes.len() - first;
        assert!(rest <= start && self.data + self.size as usize <= self.map.len());
        // SAFETY: both pieces end inside the data area, which is in the map: `first` stops at its
        // end and `rest` before `start`. The source is other memory. A reader has no borrow of
        // these bytes: they are free, as `write` has checked.
        unsafe {
            let data = self.map.as_mut_ptr().add(self.data);
            ptr::copy_nonoverlapping(bytes.as_ptr(), data.add(start), first);
            ptr::copy_nonoverlapping(bytes[first..].as_ptr(), data, rest);
        }
        position.wrapping_add(bytes.len() as u64)
    }

    fn page(&self) -> *mut perf_event_mmap_page {
        self.map.as_mut_ptr().cast()
    }
}

/// A LOST record about `lost` records dropped, with the time `time`.
fn lost_record(lost: u64, time: u64) -> [u8; LOST_BYTES] {
    let mut record = [0; LOST_BYTES];
    record[..4].copy_from_slice(&PERF_RECORD_LOST.to_ne_bytes());
    record[6..8].copy_from_slice(&(LOST_BYTES as u16).to_ne_bytes());
    record[16..24].copy_from_slice(&lost.to_ne_bytes());
    record[24..].copy_from_slice(&time.to_ne_bytes());
    record
}

/// A file, and its bytes mapped.
#[cfg(not(miri))]
fn shared(len: usize) -> io::Result<(File, Memory)> {
    let file = anonymous_file()?;
    file.set_len(len as u64)?;
    let map = super::memory::map(file.as_fd(), len)?;
    Ok((file, map))
}

#[cfg(miri)]
fn shared(len: usize) -> io::Result<(File, Memory)> {
    Ok((File::open("/dev/null")?, Memory::new(len, page_bytes()?)))
}

/// A file in memory without a name.
#[cfg(not(miri))]
fn anonymous_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;

    // SAFETY: the name ends with a 0 byte.
    let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}
