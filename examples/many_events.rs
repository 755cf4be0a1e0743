//! Makes events of many kinds, on files, memory, tasks, signals, timers and the loopback: one round for each line of stdin,
//! with `done` on stdout after each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, alarm};

fn main() -> io::Result<()> {
    // SAFETY: no handler is set: both are ignored.
    unsafe {
        signal(Signal::SIGUSR1, SigHandler::SigIgn)?;
        signal(Signal::SIGALRM, SigHandler::SigIgn)?;
    }
    for line in io::stdin().lock().lines() {
        line?;
        round()?;
        println!("done");
    }
    Ok(())
}

fn round() -> io::Result<()> {
    let dir = std::env::temp_dir().join(format!("many-events-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let files = files(&dir);
    fs::remove_dir_all(&dir)?;
    files?;
    memory();
    tasks()?;
    network()?;
    cgroups();
    Ok(())
}

fn files(dir: &Path) -> io::Result<()> {
    let path = dir.join("file");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
    file.write_all(&[7; 1 << 16])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut Vec::new())?;
    file.set_len(5000)?;
    let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, err)| err)?;
    drop(lock);
    fs::rename(&path, dir.join("renamed"))?;
    symlink("renamed", dir.join("link"))?;
    fs::hard_link(dir.join("renamed"), dir.join("second"))?;
    fs::create_dir(dir.join("sub"))?;
    fs::remove_dir(dir.join("sub"))?;
    fs::write("/proc/self/oom_score_adj", "0")?;
    File::open(dir)?.sync_all()
}

/// Takes and gives back pages.
fn memory() {
    let mut pages = vec![0u8; 1 << 20];
    pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&pages);
}

fn tasks() -> io::Result<()> {
    let thread = thread::Builder::new().name("of many events".to_owned());
    let _ = thread.spawn(|| thread::sleep(Duration::from_millis(2)))?.join();
    Command::new("true").status()?;
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn()?;
    let child_pid = Pid::from_raw(child.id() as i32);
    kill(child_pid, Signal::SIGSTOP)?;
    kill(child_pid, Signal::SIGCONT)?;
    child.kill()?;
    child.wait()?;
    kill(Pid::this(), Signal::SIGUSR1)?;
    alarm::set(100);
    alarm::cancel();
    thread::yield_now();
    Ok(())
}

fn network() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"hello")?;
    server.read_exact(&mut [0; 5])?;
    drop((client, server, listener));
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let other = UdpSocket::bind("127.0.0.1:0")?;
    socket.send_to(b"hello", other.local_addr()?)?;
    other.recv_from(&mut [0; 5])?;
    let gone = other.local_addr()?;
    drop(other);
    socket.send_to(b"nobody is there", gone)?;
    if let Ok(six) = UdpSocket::bind("[::1]:0") {
        six.send_to(b"hello", six.local_addr()?)?; // no IPv6 here is fine
    }
    Ok(())
}

/// Needs root; without it nothing happens.
fn cgroups() {
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"] {
        if Path::new(root).join("cgroup.procs").exists() {
            let group = Path::new(root).join(format!("many-events-{}", std::process::id()));
            let _ = fs::create_dir(&group).and_then(|()| fs::remove_dir(&group));
        }
    }
}
