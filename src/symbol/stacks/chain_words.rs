//! The words of a callchain: addresses and markers.

use crate::perf::record::Callchain;

pub const PERF_CONTEXT_MAX: u64 = -4095_i64 as u64; // markers are above, include/uapi/linux/perf_event.h
pub const PERF_CONTEXT_KERNEL: u64 = -128_i64 as u64;
pub const PERF_CONTEXT_USER: u64 = -512_i64 as u64;

/// Index of PERF_CONTEXT_USER in a callchain, or `len` without one. The user part comes last (perf_callchain() in
/// kernel/events/callchain.c): a word in it that looks like a marker is data from the stack of the process.
pub fn user_part_start(mut words: impl Iterator<Item = u64>, len: usize) -> usize {
    words.position(|word| word == PERF_CONTEXT_USER).unwrap_or(len)
}

/// Drops the zero that may end a user stack: on arm64 the kernel records the return address of the outermost frame,
/// too, which is 0.
pub fn without_end_marker(words: &[u64]) -> &[u64] {
    match words {
        [rest @ .., before, 0] if *before < PERF_CONTEXT_MAX => words.get(..=rest.len()).unwrap_or(words),
        _ => words,
    }
}

/// The innermost user address of `chain`. None for a chain without a user part.
pub fn innermost_user(chain: Callchain<'_>) -> Option<u64> {
    let mut words = chain.iter().skip_while(|word| *word != PERF_CONTEXT_USER).skip(1);
    words.next().filter(|word| *word < PERF_CONTEXT_MAX)
}
