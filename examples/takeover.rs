//! A thread that is not the first one of its process executes a program.
//!
//! `takeover MS PROGRAM ARG...`: prints `pid=N tid=N`, the second the thread's, which sleeps for MS and then executes PROGRAM. The
//! first thread, and another one, wait until that ends them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{env, process, thread};

fn main() {
    let mut args = env::args().skip(1);
    let (Some(ms), Some(program)) = (args.next().and_then(|ms| ms.parse().ok()), args.next()) else {
        eprintln!("usage: takeover MS PROGRAM ARG...");
        process::exit(2);
    };
    let args: Vec<String> = args.collect();
    let wait = || loop {
        thread::park();
    };
    thread::Builder::new().name("bystander".to_owned()).spawn(wait).expect("a thread");
    let execute = move || {
        println!("pid={} tid={}", process::id(), nix::unistd::gettid());
        thread::sleep(Duration::from_millis(ms));
        panic!("{program}: {}", Command::new(&program).args(args).exec());
    };
    thread::Builder::new().name("launcher".to_owned()).spawn(execute).expect("a thread");
    wait();
}
