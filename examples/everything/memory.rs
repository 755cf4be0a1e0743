//! Memory: mapped, touched, moved, merged, locked, freed.

use std::path::Path;
use std::thread;

use crate::sys::{at, at_mut, call, close, map, open, pages, text, touch, unmap};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const LEN: usize = 16 * PAGE;
/// Constants of linux/mman.h that libc lacks on some targets.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_COLLAPSE: i32 = 25;

pub fn all(_dir: &Path) {
    advised();
    huge();
    protected();
    shared();
    faults_of_ours();
    nodes();
    many_threads();
    kernel_pages();
}

fn advised() {
    let Some(start) = pages(LEN) else { return };
    touch(start, LEN);
    for advice in [
        libc::MADV_NORMAL,
        libc::MADV_MERGEABLE,
        libc::MADV_UNMERGEABLE,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_FREE,
        libc::MADV_DONTNEED,
        MADV_POPULATE_WRITE,
    ] {
        call(libc::SYS_madvise, [start, LEN, advice as usize]);
    }
    let own = call(libc::SYS_pidfd_open, [std::process::id() as usize, 0]);
    let vector = [start, LEN];
    call(libc::SYS_process_madvise, [own as usize, at(&vector), 1, libc::MADV_COLD as usize, 0]);
    close(own);
    for (number, flags) in [(libc::SYS_mlock, 0), (libc::SYS_munlock, 0), (libc::SYS_mlock2, 1), (libc::SYS_munlock, 0)]
    {
        call(number, [start, LEN, flags]);
    }
    let moved = call(libc::SYS_mremap, [start, LEN, 2 * LEN, libc::MREMAP_MAYMOVE as usize]);
    if moved != -1 {
        touch(moved as usize, 2 * LEN);
        unmap(moved as usize, 2 * LEN);
    }
    let end = call(libc::SYS_brk, [0]) as usize;
    call(libc::SYS_brk, [end + LEN]);
    call(libc::SYS_brk, [end]);
}

/// A huge page of 2 MiB, merged from small pages and split again.
fn huge() {
    let Some(start) = pages(3 * HUGE) else { return };
    let huge = start.next_multiple_of(HUGE);
    call(libc::SYS_madvise, [huge, HUGE, libc::MADV_NOHUGEPAGE as usize]);
    touch(huge, HUGE);
    call(libc::SYS_madvise, [huge, HUGE, libc::MADV_HUGEPAGE as usize]);
    call(libc::SYS_madvise, [huge, HUGE, MADV_COLLAPSE as usize]);
    call(libc::SYS_madvise, [huge, 5 * PAGE, libc::MADV_DONTNEED as usize]);
    call(libc::SYS_mprotect, [huge, 9 * PAGE, libc::PROT_READ as usize]);
    unmap(start, 3 * HUGE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    if let Some(start) = map(HUGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1) {
        unmap(start, HUGE); // not touched: there may be no huge pages left
    }
}

fn protected() {
    let Some(start) = pages(LEN) else { return };
    touch(start, LEN);
    let key = call(libc::SYS_pkey_alloc, [0, 0]);
    call(libc::SYS_pkey_mprotect, [start, LEN, libc::PROT_READ as usize, key as usize]);
    call(libc::SYS_mprotect, [start, LEN, (libc::PROT_READ | libc::PROT_WRITE) as usize]);
    call(libc::SYS_pkey_free, [key as usize]);
    let mut seen = [0u8; 64];
    let (here, there) = ([at_mut(&mut seen), seen.len()], [start, seen.len()]);
    let own = std::process::id() as usize;
    call(libc::SYS_process_vm_readv, [own, at(&here), 1, at(&there), 1, 0]);
    call(libc::SYS_process_vm_writev, [own, at(&here), 1, at(&there), 1, 0]);
    // The kernel itself takes the fault at a bad address.
    call(libc::SYS_mprotect, [start, LEN, libc::PROT_NONE as usize]);
    call(libc::SYS_uname, [start]);
    unmap(start, LEN);
}

fn shared() {
    let file = call(libc::SYS_memfd_create, [text(c"everything"), libc::MFD_ALLOW_SEALING as usize]);
    call(libc::SYS_ftruncate, [file as usize, LEN]);
    if let Some(start) = map(LEN, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file) {
        touch(start, LEN);
        call(libc::SYS_fallocate, [file as usize, 3, 0, LEN / 2]);
        unmap(start, LEN);
    }
    call(libc::SYS_fcntl, [file as usize, libc::F_ADD_SEALS as usize, libc::F_SEAL_SHRINK as usize]);
    close(file);
    if let Some(start) = map(LEN, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1) {
        touch(start, LEN);
        call(libc::SYS_madvise, [start, LEN, libc::MADV_REMOVE as usize]);
        unmap(start, LEN);
    }
    close(call(libc::SYS_memfd_secret, [0]));
}

fn faults_of_ours() {
    let fd = call(libc::SYS_userfaultfd, [(libc::O_NONBLOCK | libc::O_CLOEXEC) as usize | 1]);
    let mut api = [0xaau64, 0, 0];
    call(libc::SYS_ioctl, [fd as usize, 0xc018_aa3f, at_mut(&mut api)]); // UFFDIO_API
    close(fd);
}

/// Moves pages to their own memory node, and to one that may not exist.
fn nodes() {
    let Some(start) = pages(LEN) else { return };
    touch(start, LEN);
    let (place, nodes, mut states) = ([start, start + PAGE], [0i32, 0], [0i32; 2]);
    call(libc::SYS_move_pages, [0, 2, at(&place), 0, at_mut(&mut states), 0]);
    call(libc::SYS_move_pages, [0, 2, at(&place), at(&nodes), at_mut(&mut states), 2]);
    let mask = 1u64;
    call(libc::SYS_mbind, [start, LEN, 2, at(&mask), 64, 2]);
    call(libc::SYS_set_mempolicy, [0, 0, 0]);
    call(libc::SYS_get_mempolicy, [at_mut(&mut 0i32), 0, 0, 0, 0]);
    call(libc::SYS_migrate_pages, [0, 64, at(&mask), at(&mask)]);
    unmap(start, LEN);
}

/// With a second CPU in the address space, that CPU must flush unmapped pages from its TLB, too.
fn many_threads() {
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let Some(start) = pages(LEN) else { return };
                    touch(start, LEN);
                    call(libc::SYS_mprotect, [start, LEN, libc::PROT_READ as usize]);
                    unmap(start, LEN);
                }
            });
        }
        for command in [1 << 4, 1 << 3] {
            call(libc::SYS_membarrier, [command, 0, 0]); // private expedited barriers: registered, then executed
        }
    });
}

/// Memory of the kernel itself: large tables and areas of many pages.
fn kernel_pages() {
    let name = Path::new("/proc/self/smaps");
    let _ = std::fs::read(name);
    let epoll = open(Path::new("/proc/self/status"), libc::O_RDONLY);
    // A descriptor table for 70,000 files.
    let limit = [100_000u64, 1 << 20];
    call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, at(&limit), 0]);
    close(call(libc::SYS_dup3, [epoll as usize, 70_000, 0]));
    close(epoll);
}
