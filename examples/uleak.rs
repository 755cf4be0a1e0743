//! A program that leaks intentionally, and prints how much.
//!
//! `uleak LEAKED BYTES CLEAN [--all] [--far] [--wait]`: `leaky` allocates LEAKED times BYTES and keeps these, among
//! CLEAN allocations of the same size that `clean` frees. With `--all`, calloc, realloc, posix_memalign and
//! aligned_alloc do the same in `leaky_calloc` and so on; with `--far` only posix_memalign does, and stores its results
//! outside of the stack. Prints `leaked=N bytes=N clean=N pid=N`; with `--wait` it waits for a line before, and for the
//! end of stdin after that.

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{env, io, process, ptr};

type Allocate = fn(usize) -> *mut c_void;

/// Uses the result after the call: otherwise the compiler might make a tail call, and the caller would be missing in
/// the stack.
macro_rules! allocators {
    ($($name:ident = |$bytes:ident| $call:expr;)*) => {
        $(
            #[inline(never)]
            fn $name($bytes: usize) -> *mut c_void {
                // SAFETY: sizes are plain numbers, and pointer arguments are ours.
                let result = unsafe { $call };
                // Identical functions would be merged: the name makes each different.
                assert!(!result.is_null(), stringify!($name));
                black_box(stringify!($name));
                black_box(result)
            }
        )*
    };
}

allocators! {
    leaky = |bytes| libc::malloc(bytes);
    clean = |bytes| libc::malloc(bytes);
    leaky_calloc = |bytes| libc::calloc(1, bytes);
    clean_calloc = |bytes| libc::calloc(1, bytes);
    leaky_realloc = |bytes| libc::realloc(libc::malloc(bytes / 2 + 1), bytes);
    clean_realloc = |bytes| libc::realloc(libc::malloc(bytes / 2 + 1), bytes);
    leaky_memalign = |bytes| memalign(bytes);
    clean_memalign = |bytes| memalign(bytes);
    leaky_far = |bytes| memalign_far(bytes);
    clean_far = |bytes| memalign_far(bytes);
    leaky_aligned = |bytes| libc::aligned_alloc(64, bytes.next_multiple_of(64));
    clean_aligned = |bytes| libc::aligned_alloc(64, bytes.next_multiple_of(64));
}

/// posix_memalign stores its result in a variable of the caller.
#[inline(always)]
unsafe fn memalign(bytes: usize) -> *mut c_void {
    let mut result = ptr::null_mut();
    // SAFETY: `result` is ours, and 64 a power of two.
    let errno = unsafe { libc::posix_memalign(&raw mut result, 64, bytes) };
    if errno == 0 { result } else { ptr::null_mut() }
}

/// posix_memalign with a variable that is not on the stack.
#[inline(always)]
unsafe fn memalign_far(bytes: usize) -> *mut c_void {
    static RESULT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: there is one thread, and 64 is a power of two.
    let errno = unsafe { libc::posix_memalign(RESULT.as_ptr(), 64, bytes) };
    if errno == 0 { RESULT.load(Ordering::Relaxed) } else { ptr::null_mut() }
}

const FAR: [(Allocate, Allocate); 1] = [(leaky_far, clean_far)];

const ALL: [(Allocate, Allocate); 5] = [
    (leaky, clean),
    (leaky_calloc, clean_calloc),
    (leaky_realloc, clean_realloc),
    (leaky_memalign, clean_memalign),
    (leaky_aligned, clean_aligned),
];

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let numbers: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let [leaked, bytes, cleaned] = numbers[..] else {
        eprintln!("usage: uleak LEAKED BYTES CLEAN [--all] [--far] [--wait]");
        process::exit(2);
    };
    let pairs = match () {
        () if has("--all") => &ALL[..],
        () if has("--far") => &FAR[..],
        () => &ALL[..1],
    };
    if has("--wait") {
        let mut line = String::new();
        io::stdin().read_line(&mut line).expect("a line");
    }
    for (leaky, clean) in pairs {
        let mut kept = 0;
        for index in 0..cleaned.max(leaked) {
            if index < cleaned {
                // SAFETY: there is no other pointer to the allocation.
                unsafe { libc::free(clean(bytes)) };
            }
            if kept < leaked && index * leaked >= kept * cleaned {
                black_box(leaky(bytes));
                kept += 1;
            }
        }
        assert_eq!(kept, leaked, "CLEAN must be at least LEAKED");
    }
    let all = leaked * pairs.len();
    println!("leaked={all} bytes={} clean={} pid={}", all * bytes, cleaned * pairs.len(), process::id());
    if has("--wait") {
        io::copy(&mut io::stdin(), &mut io::sink()).expect("stdin");
    }
}
