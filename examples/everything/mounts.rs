//! File systems, mounted in a private namespace.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use crate::sys::{BAD, at, at_mut, call, close, open, path, text};
use crate::{file, files};

pub fn all(dir: &Path) {
    if call(libc::SYS_unshare, [libc::CLONE_NEWNS as usize]) != 0 {
        return;
    }
    let apart = (libc::MS_REC | libc::MS_PRIVATE) as usize;
    if call(libc::SYS_mount, [0, text(c"/"), 0, apart, 0]) != 0 {
        return; // otherwise other processes would see these mounts
    }
    in_memory(dir);
    layers(dir);
    by_parts(dir);
    user_space(dir);
    huge_pages(dir);
    looped(dir);
}

/// Mounts, uses and unmounts a file system in a directory made for it.
fn with(dir: &Path, kind: &CStr, source: &CStr, options: &CStr, use_it: impl FnOnce(&Path)) {
    let place = file(dir, "mount");
    let _ = fs::create_dir(&place);
    let target = path(&place);
    if call(libc::SYS_mount, [text(source), text(&target), text(kind), 0, text(options)]) == 0 {
        use_it(&place);
        call(libc::SYS_umount2, [text(&target), libc::MNT_DETACH as usize]);
    }
    let _ = fs::remove_dir(&place);
}

fn in_memory(dir: &Path) {
    for kind in [c"tmpfs", c"ramfs"] {
        with(dir, kind, kind, c"", |place| drop(files::content(place)));
    }
    for kind in [c"proc", c"sysfs", c"mqueue", c"devpts"] {
        with(dir, kind, kind, c"", |place| drop(fs::read_dir(place).map(Iterator::count)));
    }
}

fn layers(dir: &Path) {
    with(dir, c"tmpfs", c"tmpfs", c"", |base| {
        let names = ["lower", "upper", "work"].map(|name| file(base, name));
        names.iter().for_each(|name| drop(fs::create_dir(name)));
        let _ = fs::write(names[0].join("file"), "below");
        let [lower, upper, work] = names.map(|name| name.display().to_string());
        let options = std::ffi::CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}"));
        with(base, c"overlay", c"overlay", &options.expect("no NUL"), |place| {
            let _ = fs::write(place.join("file"), "above");
            let _ = fs::remove_file(place.join("file"));
        });
    });
}

/// A mount by the newer calls.
fn by_parts(dir: &Path) {
    let context = call(libc::SYS_fsopen, [text(c"tmpfs"), 0]);
    call(libc::SYS_fsconfig, [context as usize, 6, 0, 0, 0]); // FSCONFIG_CMD_CREATE
    let mount = call(libc::SYS_fsmount, [context as usize, 0, 0]);
    let place = path(dir);
    call(libc::SYS_move_mount, [mount as usize, text(c""), libc::AT_FDCWD as usize, text(&place), 4]);
    call(libc::SYS_mount_setattr, [mount as usize, text(c""), 0x1000, at(&[1u64, 0, 0, 0]), 32]);
    let picked = call(libc::SYS_fspick, [libc::AT_FDCWD as usize, text(&place), 0]);
    close(call(libc::SYS_open_tree, [libc::AT_FDCWD as usize, text(&place), 1]));
    call(libc::SYS_umount2, [text(&place), libc::MNT_DETACH as usize]);
    for fd in [context, mount, picked] {
        close(fd);
    }
}

/// A FUSE file system whose daemon exits before it answers.
fn user_space(dir: &Path) {
    let device = open(Path::new("/dev/fuse"), libc::O_RDWR | libc::O_NONBLOCK);
    if device == -1 {
        return;
    }
    let options = std::ffi::CString::new(format!("fd={device},rootmode=40000,user_id=0,group_id=0"));
    with(dir, c"fuse", c"everything", &options.expect("no NUL"), |_| {
        call(libc::SYS_read, [device as usize, at_mut(&mut vec![0u8; 1 << 16][..]), 1 << 16]);
    });
    close(device);
}

/// Only the inodes of hugetlbfs: there may be no free huge page.
fn huge_pages(dir: &Path) {
    with(dir, c"hugetlbfs", c"hugetlbfs", c"size=0", |place| {
        let fd = open(&file(place, "file"), libc::O_RDWR | libc::O_CREAT);
        call(libc::SYS_ftruncate, [fd as usize, 2 << 20]);
        call(libc::SYS_fallocate, [fd as usize, 0, 0, 2 << 20]);
        close(fd);
        let _ = fs::remove_file(file(place, "file"));
    });
}

const LOOP_CTL_GET_FREE: usize = 0x4c82;
const LOOP_CLR_FD: usize = 0x4c01;
const LOOP_CONFIGURE: usize = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// A loop device over a file. The device is also released when this process ends.
fn looped(dir: &Path) {
    let control = open(Path::new("/dev/loop-control"), libc::O_RDWR);
    let number = call(libc::SYS_ioctl, [control as usize, LOOP_CTL_GET_FREE, 0]);
    close(control);
    if number < 0 {
        return;
    }
    let name = file(dir, "image");
    let _ = fs::write(&name, vec![0u8; 1 << 20]);
    let image = open(&name, libc::O_RDWR);
    let device = open(Path::new(&format!("/dev/loop{number}")), libc::O_RDWR);
    let mut settings = [0u32; 76];
    settings[0] = image as u32;
    settings[2 + 13] = LO_FLAGS_AUTOCLEAR;
    if call(libc::SYS_ioctl, [device as usize, LOOP_CONFIGURE, at(&settings)]) == 0 {
        let block = vec![9u8; 1 << 16];
        for _ in 0..2 {
            call(libc::SYS_write, [device as usize, at(&block[..]), block.len()]);
        }
        call(libc::SYS_fsync, [device as usize]);
        call(libc::SYS_ioctl, [device as usize, BAD, 0]);
        call(libc::SYS_ioctl, [device as usize, LOOP_CLR_FD, 0]);
    }
    close(device);
    close(image);
}
