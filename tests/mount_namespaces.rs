//! Files of processes in other mount namespaces: told with a path that leads to them from here.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use common::{Done, Load, copy_program, run};

const SHELL: &str = "/bin/sh";
const ENDLESS: &str = "while :; do :; done";

/// A copy of the shell in a file system that only its own mount namespace has, which uses its CPU. None: there are no
/// namespaces here.
fn load_elsewhere() -> Option<Load> {
    let is_allowed = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    let script = "mount -t tmpfs none /mnt && cp \"$0\" /mnt/only-there && exec /mnt/only-there -c \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", SHELL, "-c", script, SHELL, ENDLESS]);
    is_allowed.then(|| Load::start(command))
}

/// The path that a run tells of the program, in its last line about files.
fn told(done: &Done) -> Option<String> {
    let line = done.err.iter().find(|line| line.starts_with("files of other mount namespaces: "))?;
    let (_, paths) = line.split_once("namespaces: ")?;
    paths.split([',', ' ']).find(|path| path.ends_with("/mnt/only-there")).map(str::to_owned)
}

#[test]
fn a_program_in_another_mount_namespace_is_reached_through_its_process() {
    need_events!();
    let Some(load) = load_elsewhere() else { skip!("no mount namespaces") };
    let pid = load.pid().to_string();
    common::until("the program", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "only-there\n")
    });
    let path = format!("/proc/{pid}/root/mnt/only-there");
    for options in [&["-g"][..], &["-v"], &["--json"]] {
        let done = run(&[&["profile", "-F", "499", "-p", &pid, "--for", "0.5"], options].concat()).code(0);
        if options == ["--json"] {
            let end = done.end();
            let elsewhere = end["symbols"]["elsewhere"].as_array().unwrap_or_else(|| panic!("{end}"));
            assert!(elsewhere.iter().any(|file| file["path"] == *path), "{end}");
            assert!(elsewhere.iter().all(|file| file["container"].is_null()), "{end}");
        } else {
            assert_eq!(told(&done).as_deref(), Some(&*path), "{options:?}: {done:#?}");
        }
    }
    let [own, there] = [SHELL, &path].map(|path| fs::metadata(path).expect("the file"));
    assert_eq!((own.len(), own.ino() == there.ino() && own.dev() == there.dev()), (there.len(), false), "a copy");
}

/// The kernel tells paths from the root of the reader.
#[test]
fn a_program_below_another_root_is_at_its_path() {
    need_events!();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    copy_program(SHELL, dir.path().join("only-there"));
    // The libraries of the program, at their own paths.
    let libraries = Command::new("ldd").arg(SHELL).output().expect("ldd");
    for library in String::from_utf8_lossy(&libraries.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
        let inside = dir.path().join(&library[1..]);
        fs::create_dir_all(inside.parent().expect("a directory")).expect("directories");
        copy_program(library, &inside);
    }
    let mut command = Command::new("chroot");
    command.arg(dir.path()).args(["/only-there", "-c", ENDLESS]);
    let load = Load::start(command);
    let pid = load.pid().to_string();
    common::until("the program", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "only-there\n")
    });
    let done = run(&["profile", "-F", "499", "-g", "-p", &pid, "--for", "0.5"]).code(0);
    assert!(!done.err.iter().any(|line| line.contains("mount namespaces")), "{done:#?}");
    assert!(done.out.iter().any(|line| line.contains("only-there")), "{done:#?}");
}

#[test]
fn files_that_are_where_they_seem_to_be_are_not_told() {
    need_events!();
    let done = run(&["profile", "-F", "499", "-g", "--for", "0.5", "--", SHELL, "-c", ENDLESS]).code(0);
    assert!(!done.err.iter().any(|line| line.contains("mount namespaces")), "{done:#?}");
}
