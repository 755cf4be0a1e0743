//! Synchronous writes to a disk with a known delay: device-mapper's `delay` target over another block device.
//!
//! `slow_disk DEVICE MS COUNT`: creates the slow disk over DEVICE, which delays each request by MS, counted in the
//! kernel's ticks, so sometimes a tick less. Prints `device=MAJOR:MINOR path=PATH pid=N`, waits for a line on stdin,
//! then COUNT times writes the next page and calls fsync. At the end prints `fsyncs=N total_ns=N shortest_ns=N
//! longest_ns=N`, measured around each fsync. Overwrites DEVICE; the slow disk exists until the machine stops.

use std::{
    env,
    ffi::c_ulong,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::fd::AsRawFd,
    os::unix::fs::FileExt,
    path::Path,
    process,
    time::Instant,
};

const PAGE: usize = 4096;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [device, ms, count] = &args[..] else { usage() };
    let (Ok(ms), Ok(count)) = (ms.parse(), count.parse()) else { usage() };
    let (major, minor) = make_slow_disk(device, ms).unwrap_or_else(|err| {
        eprintln!("cannot make a slow disk over {device}: {err}");
        process::exit(1);
    });
    let path = format!("/dev/dm-{minor}");
    let disk = OpenOptions::new().write(true).open(&path).expect("the slow disk");
    println!("device={major}:{minor} path={path} pid={}", process::id());
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("read from stdin");
    let times: Vec<u128> = (0..count).map(|number| write_and_sync(&disk, number)).collect();
    println!(
        "fsyncs={count} total_ns={} shortest_ns={} longest_ns={}",
        times.iter().sum::<u128>(),
        times.iter().min().unwrap_or(&0),
        times.iter().max().unwrap_or(&0)
    );
}

fn usage() -> ! {
    eprintln!("usage: slow_disk DEVICE MS COUNT");
    process::exit(2);
}

/// Returns how long the fsync took.
fn write_and_sync(disk: &File, number: u64) -> u128 {
    disk.write_all_at(&[number as u8; PAGE], number * PAGE as u64).expect("write");
    let start = Instant::now();
    disk.sync_all().expect("fsync");
    start.elapsed().as_nanos()
}

/// A device of device-mapper with one target. Returns its number.
fn make_slow_disk(device: &str, ms: u64) -> io::Result<(u64, u64)> {
    const CREATE: c_ulong = 3;
    const TABLE_LOAD: c_ulong = 9;
    const SUSPEND: c_ulong = 6; // without its flag: resume
    let name = Path::new(device).file_name().unwrap_or_default();
    let sectors = fs::read_to_string(Path::new("/sys/class/block").join(name).join("size"))?;
    let sectors = sectors.trim().parse().map_err(io::Error::other)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/mapper/control")?;
    let name = format!("slow-{}", process::id());
    let number = Request::new(&name).send(&control, CREATE)?;
    Request::new(&name).target(sectors, "delay", &format!("{device} 0 {ms}")).send(&control, TABLE_LOAD)?;
    Request::new(&name).send(&control, SUSPEND)?;
    Ok((number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00))
}

/// `struct dm_ioctl` of include/uapi/linux/dm-ioctl.h, and the data after it.
struct Request(Vec<u8>);

impl Request {
    const HEAD: usize = 312;
    const ROOM: usize = 4096;
    const DEVICE: usize = 40;
    const NAME: usize = 48;

    fn new(name: &str) -> Request {
        let mut request = Request(vec![0; Request::ROOM]);
        // Version 4.0.0, the total length, and the offset of the data.
        for (at, number) in [4, 0, 0, Request::ROOM as u32, Request::HEAD as u32].into_iter().enumerate() {
            request.put(at * 4, &number.to_ne_bytes());
        }
        request.put(Request::NAME, name.as_bytes());
        request
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// One target that begins at the first sector: `struct dm_target_spec`, then its parameters.
    fn target(mut self, sectors: u64, kind: &str, parameters: &str) -> Request {
        const TARGET_COUNT: usize = 20;
        const LENGTH: usize = Request::HEAD + 8;
        const KIND: usize = Request::HEAD + 24;
        const PARAMETERS: usize = Request::HEAD + 40;
        self.put(TARGET_COUNT, &1_u32.to_ne_bytes());
        self.put(LENGTH, &sectors.to_ne_bytes());
        self.put(KIND, kind.as_bytes());
        self.put(PARAMETERS, parameters.as_bytes());
        self
    }

    /// Returns the number of the device.
    fn send(mut self, control: &File, command: c_ulong) -> io::Result<u64> {
        // _IOWR(0xfd, command, struct dm_ioctl)
        let command = 3 << 30 | (Request::HEAD as c_ulong) << 16 | 0xfd << 8 | command;
        // SAFETY: the kernel accesses as many bytes as the header says, which is the length of the vector.
        if unsafe { libc::ioctl(control.as_raw_fd(), command as _, self.0.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = self.0[Request::DEVICE..Request::NAME].try_into().expect("8 bytes");
        Ok(u64::from_ne_bytes(number))
    }
}
