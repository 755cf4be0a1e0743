//! A thread that is not the first one of its process executes a program.
//!
//! `takeover MS PROGRAM ARG...`: prints `pid=N tid=N`, where tid is that of a second thread, which sleeps for MS, or
//! with `stdin` in place of MS waits for a line on stdin, and then executes PROGRAM. The first thread and a third one
//! wait until the exec ends them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{env, io, process, thread};

fn main() {
    let mut args = env::args().skip(1);
    let usage = || -> ! {
        eprintln!("usage: takeover MS|stdin PROGRAM ARG...");
        process::exit(2);
    };
    let (Some(when), Some(program)) = (args.next(), args.next()) else { usage() };
    let ms = if when == "stdin" { None } else { Some(when.parse().unwrap_or_else(|_| usage())) };
    let args: Vec<String> = args.collect();
    let wait = || loop {
        thread::park();
    };
    thread::Builder::new().name("bystander".to_owned()).spawn(wait).expect("a thread");
    let execute = move || {
        println!("pid={} tid={}", process::id(), nix::unistd::gettid());
        match ms {
            Some(ms) => thread::sleep(Duration::from_millis(ms)),
            None => drop(io::stdin().read_line(&mut String::new())),
        }
        panic!("{program}: {}", Command::new(&program).args(args).exec());
    };
    thread::Builder::new().name("launcher".to_owned()).spawn(execute).expect("a thread");
    wait();
}
