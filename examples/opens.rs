//! Opens paths whose number and names are known: `opens COUNT DIR` opens DIR/missing-I, with the mode I, and every
//! tenth time DIR/there-I, a directory. `opens odd DIR` opens paths that are hard to read: null, unmapped addresses, a
//! path without an end, and long ones.

use std::ffi::CString;

/// openat(2) with any address.
fn open_at(path: *const libc::c_char, mode: u64) {
    // SAFETY: the kernel checks the address, and opens for reading at most.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, mode) };
    if fd >= 0 {
        // SAFETY: the descriptor was just opened, and has no other owner.
        unsafe { libc::close(fd as libc::c_int) };
    }
}

fn open(path: &str, mode: u64) {
    let path = CString::new(path).expect("a path without NUL");
    open_at(path.as_ptr(), mode);
}

fn odd(dir: &str) {
    // SAFETY: a new mapping, whose second page is unmapped again; no other code uses it. The last byte before the hole
    // is no NUL.
    let endless = unsafe {
        let page = 4096;
        let map = libc::mmap(
            std::ptr::null_mut(),
            2 * page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::munmap(map.byte_add(page), page), 0);
        map.cast::<u8>().write_bytes(b'e', page);
        map.byte_add(page - 8)
    };
    let addresses = [0, 1, 0x1000, 0x8000_0000_0000_0000, usize::MAX, endless.addr()];
    for (mode, address) in addresses.into_iter().enumerate() {
        open_at(std::ptr::without_provenance(address), mode as u64);
    }
    let long = |bytes: usize| format!("{dir}/{}", "a".repeat(bytes - dir.len() - 1));
    open(&long(4095), 4095);
    open(&long(4096), 4096);
    open(&long(5000), 5000);
    open("", 10);
    open("\u{1b}[31m\"\n", 11);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (what, dir) = (args[1].as_str(), args[2].as_str());
    if what == "odd" {
        return odd(dir);
    }
    let count: u64 = what.parse().expect("a count");
    let there = |number: u64| format!("{dir}/there-{number}");
    for number in (0..count).step_by(10) {
        std::fs::create_dir(there(number)).expect("a new directory");
    }
    for number in 0..count {
        open(&format!("{dir}/missing-{number}"), number);
        if number % 10 == 0 {
            open(&there(number), number);
        }
    }
}
