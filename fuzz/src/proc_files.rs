//! Files of a process in /proc, above all its mappings, and MMAP2 records that follow.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use perf_prof::host::Host;
use perf_prof::perf::Record;
use perf_prof::perf::record::{FileId, Mmap, TaskRecord};
use perf_prof::symbol::{AddressSpaces, SpaceKeys};
use perf_prof::task::procfs;

use super::input::Input;

const PID: i32 = 7;

thread_local! {
    static PROC: RefCell<Option<Proc>> = const { RefCell::new(None) };
}

/// A directory like /proc, with one process in it.
struct Proc(PathBuf);

impl Proc {
    fn new() -> Proc {
        let name = format!("perf-prof-proc-{}-{:?}", std::process::id(), std::thread::current().id());
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let proc = Proc(parent.join(name));
        fs::create_dir_all(proc.0.join(format!("{PID}/task/{PID}"))).expect("a directory");
        proc
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The texts of the files, each ended by a NUL, then records.
pub fn run(data: &[u8]) {
    PROC.with_borrow_mut(|proc| {
        let proc = proc.get_or_insert_with(Proc::new);
        let host = Host { proc: proc.0.clone(), ..Host::default() };
        let mut parts = data.splitn(5, |&byte| byte == 0);
        for name in ["maps", "task/7/stat", "task/7/status", "task/7/stack"] {
            let text = parts.next().unwrap_or_default();
            fs::write(proc.0.join(format!("{PID}/{name}")), text).expect("a file");
        }
        task(&host);
        spaces(host, Input(parts.next().unwrap_or_default()));
    });
}

fn task(host: &Host) {
    if let Some(stat) = procfs::stat(host, PID) {
        assert!(
            stat.comm.as_bytes().len() <= 15
                && (!matches!(stat.state, b'Z' | b'X') || procfs::stat(host, PID) == Some(stat))
        );
    }
    if let Some(signals) = procfs::signals(host, PID) {
        let bits = (1..=64).filter(|&signo| procfs::SignalState::has(signals.pending, signo)).count();
        assert_eq!(bits, signals.pending.count_ones() as usize);
    }
    assert!(procfs::stack(host, PID).len() <= 256);
    let _ = (procfs::start_ticks(host, PID), procfs::owner(host, PID), procfs::pid_of(host, PID));
}

fn spaces(host: Host, mut input: Input<'_>) {
    let (mut spaces, mut keys, mut time) = (AddressSpaces::new(host), SpaceKeys::default(), 0_u64);
    locate(&mut spaces, PID, 0x7000_0000_0000);
    for _ in 0..32 {
        if input.is_empty() {
            break;
        }
        let (what, pid) = (input.u8(), PID + i32::from(input.u8() % 4));
        time = time.saturating_add(u64::from(input.u8()) << 24);
        let task = TaskRecord { pid, ppid: PID, tid: pid, ptid: PID, time };
        let record = match what % 8 {
            0 => Record::Fork(task),
            1 => Record::Exit(task),
            2 => Record::Comm { pid, tid: pid, comm: b"x", exec: true },
            _ => {
                let (addr, len, offset) = (input.u64(), input.u64() >> (what >> 3), input.u64());
                let file = FileId::Inode { major: 0, minor: 0, inode: 1 };
                let path = [&b"/nonexistent/a"[..], b"//anon", b"[vdso]", b""][usize::from(input.u8() % 4)];
                Record::Mmap(Mmap { pid, tid: pid, addr, len, offset, file, path })
            }
        };
        if let Some(change) = keys.apply(&record, time) {
            spaces.apply(change);
        }
        keys.expire(time);
        if let Record::Mmap(mmap) = record {
            // The newest mapping is the one that counts.
            if let Some(last) = mmap.len.checked_sub(1).and_then(|last| mmap.addr.checked_add(last))
                && mmap.addr.checked_add(mmap.len).is_some()
            {
                for address in [mmap.addr, last] {
                    let found = locate(&mut spaces, pid, address);
                    assert!(found.is_some(), "{address:#x} was just mapped");
                }
            }
        }
    }
    spaces.preload(PID);
    spaces.forget_unused();
}

fn locate(spaces: &mut AddressSpaces, pid: i32, address: u64) -> Option<u64> {
    spaces.locate(pid, address).ok().map(|(_, offset)| offset)
}
