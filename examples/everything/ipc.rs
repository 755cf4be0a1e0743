//! Communication between tasks: pipes, System V and POSIX queues, events, keys.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::sys::{BAD, at, at_mut, call, close, text};

pub fn all(_dir: &Path) {
    pipes();
    polled();
    if call(libc::SYS_unshare, [libc::CLONE_NEWIPC as usize]) == 0 {
        system_v();
        queue();
    }
    keys();
    rules();
}

fn pipe() -> [usize; 2] {
    let mut ends = [0i32; 2];
    call(libc::SYS_pipe2, [at_mut(&mut ends), libc::O_NONBLOCK as usize]);
    ends.map(|end| end as usize)
}

fn pipes() {
    let ([out, input], [second_out, second_in]) = (pipe(), pipe());
    call(libc::SYS_write, [input, at(b"hello"), 5]);
    call(libc::SYS_tee, [out, second_in, 5, 0]);
    call(libc::SYS_fcntl, [out, libc::F_SETPIPE_SZ as usize, 1 << 18]);
    let mut bytes = [0u8; 8];
    let vector = [at_mut(&mut bytes), bytes.len()];
    call(libc::SYS_readv, [out, at(&vector), 1]);
    call(libc::SYS_writev, [input, at(&vector), 1]);
    call(libc::SYS_ioctl, [out, libc::FIONREAD as usize, at_mut(&mut 0i32)]);
    for end in [out, input, second_out, second_in] {
        call(libc::SYS_close, [end]);
    }
}

fn polled() {
    let event = call(libc::SYS_eventfd2, [0, 0]);
    let epoll = call(libc::SYS_epoll_create1, [0]);
    let mut wanted = [0u32; 3];
    wanted[0] = 1; // EPOLLIN
    call(libc::SYS_epoll_ctl, [epoll as usize, 1, event as usize, at(&wanted)]);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(1));
            call(libc::SYS_write, [event as usize, at(&1u64), 8]);
        });
        call(libc::SYS_epoll_pwait, [epoll as usize, at_mut(&mut [0u8; 64]), 4, 1000, 0, 8]);
    });
    call(libc::SYS_epoll_pwait2, [epoll as usize, at_mut(&mut [0u8; 64]), 4, at(&[0u64; 2]), 0, 8]);
    close(epoll);
    close(event);
}

fn system_v() {
    let own = 0; // IPC_PRIVATE
    let make = 0o1600; // IPC_CREAT, for this user only
    let queue = call(libc::SYS_msgget, [own, make]) as usize;
    let mut message = [1u64, 0x006f_6c6c_6568, 0];
    call(libc::SYS_msgsnd, [queue, at(&message), 8, 0]);
    call(libc::SYS_msgrcv, [queue, at_mut(&mut message), 8, 0, 0]);
    call(libc::SYS_msgctl, [queue, 0, 0]);
    let semaphore = call(libc::SYS_semget, [own, 1, make]) as usize;
    let (up, down) = ([0u16, 1, 0], [0u16, u16::MAX, 0]);
    call(libc::SYS_semop, [semaphore, at(&up), 1]);
    call(libc::SYS_semtimedop, [semaphore, at(&down), 1, 0]);
    call(libc::SYS_semctl, [semaphore, 0, 0]);
    let memory = call(libc::SYS_shmget, [own, 1 << 16, make]) as usize;
    let start = call(libc::SYS_shmat, [memory, 0, 0]);
    if start != -1 {
        crate::sys::touch(start as usize, 1 << 16);
        call(libc::SYS_shmdt, [start as usize]);
    }
    call(libc::SYS_shmctl, [memory, 0, 0]);
}

fn queue() {
    let attributes = [0i64, 4, 64, 0, 0, 0, 0, 0];
    let flags = libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK;
    let queue = call(libc::SYS_mq_open, [text(c"everything"), flags as usize, 0o600, at(&attributes)]) as usize;
    call(libc::SYS_mq_timedsend, [queue, at(b"hello"), 5, 3, 0]);
    call(libc::SYS_mq_notify, [queue, 0]);
    call(libc::SYS_mq_timedreceive, [queue, at_mut(&mut [0u8; 64]), 64, 0, 0]);
    call(libc::SYS_mq_getsetattr, [queue, 0, at_mut(&mut [0u64; 8])]);
    call(libc::SYS_mq_unlink, [text(c"everything")]);
    call(libc::SYS_close, [queue]);
}

/// A key in the keyring of this process.
fn keys() {
    const PROCESS_KEYRING: usize = -2isize as usize;
    let key = call(libc::SYS_add_key, [text(c"user"), text(c"everything"), at(b"x"), 1, PROCESS_KEYRING]) as usize;
    for operation in [0, 6, 11, 3] {
        call(libc::SYS_keyctl, [operation, key, 0, 0, 0]); // id, describe, read, revoke
    }
    call(libc::SYS_keyctl, [9, key, PROCESS_KEYRING]);
}

/// A set of file access rules, which is created but not enforced.
fn rules() {
    let handled = [1u64, 0, 0];
    let set = call(libc::SYS_landlock_create_ruleset, [at(&handled), 8, 0]);
    call(libc::SYS_landlock_add_rule, [set as usize, 1, BAD, 0]);
    close(set);
}
