//! Prefetching memory.

/// Bytes of a cache line. On machines with longer lines some are prefetched twice.
pub(super) const LINE_BYTES: u64 = 64;

/// Prefetches the cache line of `address`. This is a hint: an unreadable address does no harm.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is no read in the memory model, and an unmapped address is ignored.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above. The intrinsic for it is not stable.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
