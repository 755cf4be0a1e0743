//! Files: written, read, locked, renamed, punched, mapped, watched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use crate::file;
use crate::sys::{at, at_mut, call, close, map, open, path, text, touch, unmap};

const PAGE: usize = 4096;
/// Constants of linux/fs.h and linux/fiemap.h.
const FS_IOC_GETFLAGS: usize = 0x8008_6601;
const FS_IOC_SETFLAGS: usize = 0x4008_6602;
const FS_IOC_FIEMAP: usize = 0xc020_660b;
/// Constants of fcntl(2).
const F_SETSIG: usize = 10;
const FIBMAP: usize = 1;
const FIGETBSZ: usize = 2;

pub fn all(dir: &Path) {
    let _ = content(dir);
    let _ = names(dir);
    let _ = moved(dir);
    let _ = locks(dir);
    let _ = mapped(dir);
    let _ = direct(dir);
    let _ = attributes(dir);
    watched(dir);
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
}

pub fn content(dir: &Path) -> io::Result<()> {
    let path = file(dir, "file");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
    let fd = file.as_raw_fd() as usize;
    file.write_all(&[7; 1 << 17])?;
    call(libc::SYS_sync_file_range, [fd, 0, 1 << 16, 7]);
    file.sync_all()?;
    call(libc::SYS_fadvise64, [fd, 0, 0, libc::POSIX_FADV_DONTNEED as usize]);
    call(libc::SYS_readahead, [fd, 0, 1 << 16]);
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut Vec::new())?;
    file.write_all_at(b"over", 70_000)?;
    file.sync_data()?;
    // keep size; punch; zero; collapse; insert; extend
    for mode in [1, 3, 0x11, 0x10, 8, 0x20, 0] {
        call(libc::SYS_fallocate, [fd, mode, 8 * PAGE, 4 * PAGE]);
    }
    call(libc::SYS_lseek, [fd, 0, libc::SEEK_HOLE as usize]);
    call(libc::SYS_lseek, [fd, 0, libc::SEEK_DATA as usize]);
    let mut extents = [0u64; 4 + 7 * 4];
    extents[1] = u64::MAX; // the whole file
    extents[3] = 4; // room for this many extents
    call(libc::SYS_ioctl, [fd, FS_IOC_FIEMAP, at_mut(&mut extents)]);
    for request in [FIBMAP, FIGETBSZ, FS_IOC_GETFLAGS] {
        call(libc::SYS_ioctl, [fd, request, at_mut(&mut 0u64)]);
    }
    file.set_len(5000)?;
    file.sync_all()?;
    call(libc::SYS_syncfs, [fd]);
    let hidden = open(dir, libc::O_TMPFILE | libc::O_RDWR);
    call(libc::SYS_write, [hidden as usize, at(b"hidden"), 6]);
    close(hidden);
    Ok(())
}

fn names(dir: &Path) -> io::Result<()> {
    let renamed = file(dir, "renamed");
    fs::rename(file(dir, "file"), &renamed)?;
    symlink("renamed", file(dir, "link"))?;
    fs::read_link(file(dir, "link"))?;
    fs::hard_link(&renamed, file(dir, "second"))?;
    let sub = file(dir, "sub");
    fs::create_dir(&sub)?;
    for number in 0..50 {
        fs::write(sub.join(format!("a file with a long name, number {number}")), "x")?;
    }
    fs::read_dir(&sub)?.count();
    let (one, other) = (path(&renamed), path(&file(dir, "second")));
    let here = libc::AT_FDCWD as usize;
    call(libc::SYS_renameat2, [here, text(&one), here, text(&other), libc::RENAME_EXCHANGE as usize]);
    call(libc::SYS_renameat2, [here, text(&one), here, text(&other), libc::RENAME_NOREPLACE as usize]);
    fs::remove_dir_all(&sub)?;
    for (name, mode) in [("fifo", libc::S_IFIFO), ("socket", libc::S_IFSOCK), ("null", libc::S_IFCHR)] {
        let name = path(&file(dir, name));
        call(libc::SYS_mknodat, [here, text(&name), (mode | 0o600) as usize, 0x103]);
    }
    Ok(())
}

/// Copies from file to file without buffers of this process.
fn moved(dir: &Path) -> io::Result<()> {
    let from = File::open(file(dir, "renamed"))?;
    let into = File::create(file(dir, "copy"))?;
    let (from, to) = (from.as_raw_fd() as usize, into.as_raw_fd() as usize);
    call(libc::SYS_sendfile, [to, from, 0, 1000]);
    call(libc::SYS_copy_file_range, [from, 0, to, 0, 1000, 0]);
    let mut ends = [0i32; 2];
    call(libc::SYS_pipe2, [at_mut(&mut ends), 0]);
    let [out, input] = ends.map(|end| end as usize);
    call(libc::SYS_splice, [from, 0, input, 0, 1000, 0]);
    call(libc::SYS_splice, [out, 0, to, 0, 1000, 0]);
    let text = *b"by vmsplice";
    let vector = [at(&text), text.len()];
    call(libc::SYS_vmsplice, [input, at(&vector), 1, 0]);
    call(libc::SYS_close, [out]);
    call(libc::SYS_close, [input]);
    into.sync_all()
}

fn locks(dir: &Path) -> io::Result<()> {
    let name = file(dir, "locked");
    let one = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&name)?;
    let fd = one.as_raw_fd() as usize;
    for operation in [libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_UN] {
        call(libc::SYS_flock, [fd, operation as usize]);
    }
    for (command, kind) in [
        (libc::F_SETLK, libc::F_WRLCK),
        (libc::F_GETLK, libc::F_WRLCK),
        (libc::F_SETLKW, libc::F_UNLCK),
        (libc::F_OFD_SETLK, libc::F_RDLCK),
        (libc::F_OFD_GETLK, libc::F_WRLCK),
        (libc::F_OFD_SETLK, libc::F_UNLCK),
    ] {
        // SAFETY: a struct of integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_len = 100;
        call(libc::SYS_fcntl, [fd, command as usize, at_mut(&mut lock)]);
    }
    call(libc::SYS_fcntl, [fd, libc::F_SETLK as usize, 1]);
    drop(one);
    // A lease, which opening the file for reading breaks.
    let leased = OpenOptions::new().write(true).open(&name)?;
    let fd = leased.as_raw_fd() as usize;
    call(libc::SYS_fcntl, [fd, F_SETSIG, libc::SIGURG as usize]); // the signal is ignored
    call(libc::SYS_fcntl, [fd, libc::F_SETLEASE as usize, libc::F_WRLCK as usize]);
    call(libc::SYS_fcntl, [fd, libc::F_GETLEASE as usize, 0]);
    close(open(&name, libc::O_RDONLY | libc::O_NONBLOCK));
    call(libc::SYS_fcntl, [fd, libc::F_SETLEASE as usize, libc::F_UNLCK as usize]);
    Ok(())
}

fn mapped(dir: &Path) -> io::Result<()> {
    let len = 64 * PAGE;
    let backing = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(file(dir, "mapped"))?;
    backing.set_len(len as u64)?;
    let fd = backing.as_raw_fd() as isize;
    if let Some(at) = map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd) {
        touch(at, len);
        for advice in [libc::MADV_RANDOM, libc::MADV_SEQUENTIAL, libc::MADV_WILLNEED, libc::MADV_COLD] {
            call(libc::SYS_madvise, [at, len, advice as usize]);
        }
        call(libc::SYS_msync, [at, len, libc::MS_ASYNC as usize]);
        call(libc::SYS_msync, [at, len, libc::MS_SYNC as usize]);
        call(libc::SYS_mincore, [at, len, at_mut(&mut [0u8; 64])]);
        call(libc::SYS_madvise, [at, len, libc::MADV_PAGEOUT as usize]);
        touch(at, len);
        call(libc::SYS_madvise, [at, len, libc::MADV_REMOVE as usize]);
        unmap(at, len);
    }
    backing.sync_all()
}

/// Reads and writes that bypass the page cache.
fn direct(dir: &Path) -> io::Result<()> {
    let options = |flags| {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(file(dir, "direct"))
    };
    let target = options(libc::O_DIRECT | libc::O_DSYNC)?;
    let fd = target.as_raw_fd() as usize;
    if let Some(at) = crate::sys::pages(16 * PAGE) {
        touch(at, 16 * PAGE);
        for place in [0, 16, 64] {
            call(libc::SYS_pwrite64, [fd, at, 16 * PAGE, place * PAGE]);
        }
        call(libc::SYS_pwrite64, [fd, at, 16 * PAGE, 0]);
        call(libc::SYS_pread64, [fd, at, 16 * PAGE, 0]);
        unmap(at, 16 * PAGE);
    }
    drop(target);
    options(0)?.set_len(0)
}

fn attributes(dir: &Path) -> io::Result<()> {
    let name = file(dir, "attributes");
    let target = File::create(&name)?;
    let fd = target.as_raw_fd() as usize;
    target.set_permissions(fs::Permissions::from_mode(0o640))?;
    call(libc::SYS_fchown, [fd, 0, 0]);
    call(libc::SYS_utimensat, [fd, 0, 0, 0]);
    let value = [b'v'; 300];
    let names = [c"user.one", c"user.two", c"trusted.three"];
    for attribute in names {
        call(libc::SYS_fsetxattr, [fd, text(attribute), at(&value), value.len(), 0]);
        call(libc::SYS_fgetxattr, [fd, text(attribute), at_mut(&mut [0u8; 400]), 400]);
    }
    call(libc::SYS_flistxattr, [fd, at_mut(&mut [0u8; 400]), 400]);
    for attribute in names {
        call(libc::SYS_fremovexattr, [fd, text(attribute)]);
    }
    let mut flags = 0u64;
    if call(libc::SYS_ioctl, [fd, FS_IOC_GETFLAGS, at_mut(&mut flags)]) == 0 {
        let no_dump = flags | 0x40;
        call(libc::SYS_ioctl, [fd, FS_IOC_SETFLAGS, at(&no_dump)]);
    }
    let name = path(&name);
    call(libc::SYS_statx, [libc::AT_FDCWD as usize, text(&name), 0, 0xfff, at_mut(&mut [0u8; 256])]);
    call(libc::SYS_statfs, [text(&name), at_mut(&mut [0u8; 256])]);
    target.sync_all()
}

fn watched(dir: &Path) {
    let name = path(dir);
    let inotify = call(libc::SYS_inotify_init1, [libc::O_NONBLOCK as usize]);
    let watch = call(libc::SYS_inotify_add_watch, [inotify as usize, text(&name), 0xfff]);
    let fanotify = call(libc::SYS_fanotify_init, [libc::O_NONBLOCK as usize, 0]);
    call(libc::SYS_fanotify_mark, [fanotify as usize, 1, 0x0b, libc::AT_FDCWD as usize, text(&name)]);
    let _ = fs::write(file(dir, "noticed"), "noticed").and_then(|()| fs::remove_file(file(dir, "noticed")));
    for fd in [inotify, fanotify] {
        call(libc::SYS_read, [fd as usize, at_mut(&mut [0u8; 4096]), 4096]);
    }
    call(libc::SYS_inotify_rm_watch, [inotify as usize, watch as usize]);
    close(inotify);
    close(fanotify);
}
